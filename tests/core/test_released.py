"""Released models are found by name wherever a model can be given."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import albertine
from albertine.core import files, released
from albertine.errors import ModelError, TokenizerError
from albertine.tasks.predictor import Predictor
from tests import stand_in

EN, ZH = released.DEFAULT_MODELS["en"], released.DEFAULT_MODELS["zh"]


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package with both models, and a working directory with neither."""
    package, here = tmp_path / "package", tmp_path / "here"
    package.mkdir()
    here.mkdir()
    for seed, language in enumerate(("en", "zh"), 1):
        stand_in.put(package, language, seed=seed)
    monkeypatch.setattr(released, "FOLDER", package)
    monkeypatch.chdir(here)
    return package


def weights(model: torch.nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def test_a_name_is_a_folder_in_the_package(installed: Path) -> None:
    assert released.released_names() == albertine.released_models() == (EN, ZH)
    assert released.released_folder(EN) == installed / EN
    found, there = albertine.load(EN), albertine.load(installed / EN)
    torch.testing.assert_close(weights(found), weights(there), rtol=0, atol=0)
    assert not torch.equal(weights(found), weights(albertine.load(ZH))[: len(weights(found))])
    assert albertine.load_tokenizer(ZH).fingerprint == albertine.load_tokenizer(installed / ZH).fingerprint
    texts = ["the old cat", "a mat"]
    assert (Predictor(EN).embed(texts) == Predictor(installed / EN).embed(texts)).all()


def test_a_folder_of_that_name_wins(installed: Path) -> None:
    mine = stand_in.rotary_model(albertine.load_tokenizer(EN).vocab_size, seed=9)
    albertine.save(mine, albertine.load_tokenizer(EN), EN)
    assert Path(EN).is_dir()  # saving by the name wrote here
    assert torch.equal(weights(albertine.load(EN)), weights(mine))
    assert not torch.equal(weights(albertine.load(installed / EN)), weights(mine))


def test_writing_under_the_name_leaves_the_package_alone(installed: Path) -> None:
    before = sorted(path.name for path in installed.iterdir())
    files.recover(Path(EN))  # of a folder that is not there, with a released one of its name
    with files.replaced_folder(Path(EN)) as new:
        (new / "x").write_text("y")
    assert sorted(path.name for path in installed.iterdir()) == before and (installed / EN).is_dir()
    assert [path.name for path in Path(EN).iterdir()] == ["x"]


def test_only_a_bare_name_is_a_name(installed: Path) -> None:
    for path in (Path("elsewhere") / EN, Path.cwd() / EN):
        assert files.resolve_folder(path) == path
    assert files.resolve_folder(Path()) == Path()


@pytest.mark.parametrize(
    "load",
    [released.released_folder, albertine.load, albertine.load_tokenizer, Predictor],
    ids=["folder", "load", "tokenizer", "predictor"],
)
def test_an_error_for_an_unknown_name_lists_the_known_ones(installed: Path, load) -> None:
    with pytest.raises((ModelError, TokenizerError)) as caught:
        load("albertine-mini-eng")
    message = str(caught.value)
    assert "albertine-mini-eng" in message and f"Did you mean `{EN}`?" in message
    assert f"Released models: {EN}, {ZH}" in message


def test_without_any_the_message_suggests_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(released, "FOLDER", tmp_path / "nothing")
    assert released.released_names() == ()
    with pytest.raises(ModelError, match="No released model is installed here; name a model folder"):
        Predictor(EN)
