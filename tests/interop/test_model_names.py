"""How names resolve, wherever a model is named: a folder, a run, a released model; or the near ones."""

from __future__ import annotations

from pathlib import Path

import pytest

import albertine
from albertine.core import released
from albertine.errors import ModelError
from albertine.interop.model_names import model_folder, resolve_model
from albertine.tasks.predictor import Predictor
from tests import stand_in

EN = released.DEFAULT_MODELS["en"]


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package with one released model, and an empty working directory."""
    for name in ("package", "here"):
        (tmp_path / name).mkdir()
    stand_in.put(tmp_path / "package", "en")
    monkeypatch.setattr(released, "FOLDER", tmp_path / "package")
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "package"


def refused(what: str | Path) -> str:
    with pytest.raises(ModelError) as caught:
        model_folder(what)
    return str(caught.value)


def test_a_run_is_its_best_model_else_its_last(package: Path) -> None:
    run = Path("runs/mine")
    run.mkdir(parents=True)
    (run / "settings.yaml").write_text("name: mine\n")
    assert "runs/mine: is a run that holds no model yet. The command that began the run" in refused(run)
    (package / EN).rename(run / "final")
    assert model_folder(run) == model_folder("runs/mine") == run / "final"
    (run / ".best.new").symlink_to("final")  # a kill between two renames: files.replaced_folder
    assert model_folder(run) == run / ".best.new"
    (run / ".best.new").rename(run / "best")
    assert model_folder(run) == run / "best"
    assert albertine.load(run).heads and albertine.load_tokenizer(run).vocab_size
    assert Predictor(run).embed(["the cat"]).shape[0] == 1
    assert resolve_model(run) == run and model_folder(run / "final") == run / "final"


def test_a_corpus_is_distinguished_from_a_model(package: Path) -> None:
    """Catches: a corpus in place of a model called a broken copy of one; one refused where it may stand;
    a model whose folder has folders of these names."""
    for part in ("train", "tokenizer"):
        Path("corpora", "mine", part).mkdir(parents=True)
    assert "corpora/mine: is a corpus, and no model. Released models: " in refused("corpora/mine")
    assert resolve_model("corpora/mine") == Path("corpora/mine")
    Path("corpora", "mine", "config.json").write_text("{}")  # a model with such folders beside it
    assert model_folder("corpora/mine") == Path("corpora/mine")


def test_a_released_model_lies_with_the_settings_of_its_run(package: Path) -> None:
    (package / EN / "settings.yaml").write_text("name: mini\n")
    assert model_folder(EN) == package / EN


@pytest.mark.parametrize("name", ["albert-base-v2", "albertine-mini", "albert-base-ffn-e768"])
def test_a_preset_without_weights_is_reported(package: Path, name: str) -> None:
    for load in (albertine.load, Predictor, model_folder):
        with pytest.raises(ModelError) as caught:
            load(name)
        message = str(caught.value)
        assert message.startswith(f"{name}: is a preset, a shape without weights.")
        assert f"Released models: {EN}; or name a model folder, or OWNER/NAME" in message
        assert message.endswith(f"For random weights: albertine.load('{name}', random=True)")
    assert albertine.load("albertine-mini", random=True).config.hidden_size == 256


@pytest.mark.parametrize(
    ("what", "near"),
    [
        ("albertine-mini-eng", EN),
        ("runs/reviws/best", "runs/reviews/best"),
        ("runs/reviews/bst", "runs/reviews/best"),
        ("rusn/reviws/bst", "runs/reviews/best"),
        ("mymodel", "my-model"),
    ],
)
def test_a_mistyped_name_or_path_gets_the_near_one(package: Path, what: str, near: str) -> None:
    for folder in ("runs/reviews/best", "my-model"):
        Path(folder).mkdir(parents=True)
    Path("mymodel.txt").write_text("no folder")
    assert f"Did you mean `{near}`? Released models: {EN}" in refused(what)
    assert f"Did you mean `{Path.cwd() / near}`?" in refused(Path.cwd() / what) or near == EN


@pytest.mark.parametrize("what", ["nothing/like/it", "zzz", "a sentence " * 50, "", "/"])
def test_what_is_like_nothing_gets_none(package: Path, what: str) -> None:
    Path("runs").mkdir()
    assert "Did you mean" not in released.model_name_help(what)


def test_a_working_directory_that_is_gone(package: Path) -> None:
    Path.cwd().rmdir()
    assert "Did you mean" not in refused("zzz/zzz/zzz")
