"""The functions of the package beside the verbs of the command: the same work, the same numbers."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import albertine as package
from albertine.errors import AlbertineError, DataError, ModelError, RunError, SettingsError, TokenizerError
from albertine.training.progress import Reporter
from tests.cli.conftest import Command
from tests.evaluation.test_suites import few_pairs as few_pairs
from tests.evaluation.test_suites import write
from tests.inference.exports import tuned
from tests.tasks.conftest import table

ROWS = [{"text": "a good house", "label": "fine"}, {"text": "never a house", "label": "poor"}]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tuned("fill-mask", tmp_path_factory.mktemp("a model") / "words")


@pytest.fixture(scope="module")
def runs(model: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two seeds of a task."""
    folder = tmp_path_factory.mktemp("two runs")
    files = {"train": table(folder / "train.csv", 20, 1), "dev": table(folder / "dev.csv", 20, 2)}
    task = {"text": "review", "label": "verdict", "max_length": 16}
    quiet: dict[str, Any] = {"training": {"steps": 2}, "watching": {"tensorboard": False, "report": False}}
    return [
        package.finetune(
            model,
            **files,
            task=task,
            seed=seed,
            name=f"toy-seed-{seed}",
            output=folder,
            reporter=Reporter(quiet=True),
            **quiet,
        ).folder
        for seed in (1, 2)
    ]


@pytest.fixture
def run_json(albertine: Command) -> Any:
    """What a verb prints with --json."""

    def run(*words: object) -> Any:
        found = albertine(*words, "--json")
        assert found.code == 0, found.err
        return json.loads(found.out)

    return run


def as_json(found: Any) -> Any:
    return json.loads(json.dumps(found))


def test_info(run_json: Any, model: Path) -> None:
    assert package.info() == run_json("info")
    for words, given in (
        (("albert-base-v2",), {"what": "albert-base-v2"}),
        ((model, "--length", 16, "--length", 8), {"what": model, "length": [16, 8]}),
        ((model, "--length", 16), {"what": str(model), "length": 16}),
    ):
        assert as_json(package.info(**given)) == run_json("info", *words)
    recipe = run_json("info", "albert-tiny-en")
    assert recipe["name"] == "albert-tiny-en" and recipe["parameters"]
    for name in ("recipes/albert-tiny-en.yaml", "albert-tiny-en.yaml"):
        assert as_json(package.info(name)) == recipe | {"name": name}
    with pytest.raises(SettingsError, match="a maximum of 40 tokens"):
        package.info(model, length=41)
    with pytest.raises(AlbertineError, match="albert-base-v2"):
        package.info("albert-base-v3")


def test_export(model: Path, tmp_path: Path) -> None:
    """Catches: the package `albertine.export` in place of the function, once it is imported."""
    pytest.importorskip("onnx")
    import albertine.export.formats  # noqa: F401

    found = package.export(model, tmp_path / "out", head="features")
    assert found.folder == tmp_path / "out" and found.report["formats"] == ["onnx"]
    assert (tmp_path / "out" / "onnx" / "model.onnx").is_file()
    with pytest.raises(SettingsError, match="exists"):
        package.export(model, tmp_path / "out", head="features")
    with pytest.raises(SettingsError, match="no format `onx`"):
        package.export(model, tmp_path / "other", "onx")
    with pytest.raises(SettingsError, match="to is of the type NoneType"):
        package.export(model, tmp_path / "other", None)


def test_convert(albertine: Command, model: Path, tmp_path: Path) -> None:
    """Catches: errors that name options of the command; an unknown layout that is written as another."""
    found = package.convert(model, tmp_path / "a", to="electra", dtype="bfloat16")
    assert (found.folder, found.tokenizer, found.notes) == (tmp_path / "a", True, ())
    assert albertine("convert", model, tmp_path / "b", "--to", "electra", "--dtype", "bfloat16").code == 0
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    shared = package.convert(model, tmp_path / "a", share=True, without_tokenizer=True)
    assert not shared.tokenizer and set(shared.distances) == {"attention", "feed_forward"}
    assert not (tmp_path / "a" / "tokenizer.json").exists()
    headless = package.convert(tuned("single", tmp_path / "tuned"), tmp_path / "c", without_head=True)
    assert not headless.notes
    with pytest.raises(ModelError, match="not tuned for a task"):
        package.load_task(tmp_path / "c")
    for wrong, message in (
        ({"to": "brt"}, "no layout `brt`"),
        ({"dtype": "int8"}, "no format `int8`"),
        ({"lossy": True}, "^`lossy` belongs to `to` google"),
        ({"depth": "x"}, "depth is a whole number from 0, not 'x'"),
        ({"depth": 1}, r"^`depth` belongs to `whiten`. Add `whiten`"),
        ({"to": "google", "dtype": "bfloat16"}, "^`dtype` bfloat16 has no place in the layout google"),
    ):
        with pytest.raises(SettingsError, match=message):
            package.convert(model, tmp_path / "d", **wrong)
    assert not (tmp_path / "d").exists()


def test_messages_name_arguments(model: Path, runs: list[Path], tmp_path: Path) -> None:
    """Catches: options of the command in errors of other classes and functions, and in notes; half a name."""
    out = tmp_path / "out"
    with pytest.raises(SettingsError, match=r"^`int8` belongs to onnx.*Add `to` onnx"):
        package.export(model, out, "gguf", int8=True)
    damaged = shutil.copytree(model, tmp_path / "damaged")
    (damaged / "tokenizer.json").write_text("{")
    with pytest.raises(TokenizerError, match="Or add `without_tokenizer`, and the model goes alone"):
        package.convert(damaged, out)
    with pytest.raises(SettingsError, match=r"is a run, .* Name another folder: `output`"):
        package.ensemble(runs, output=runs[0])
    text = tmp_path / "text.txt"
    text.write_bytes("Ein schönes Haus, größer als jedes andere.\n".encode("latin-1") * 40)
    with pytest.raises(DataError, match=r"pass `encoding` [a-z0-9-]+$"):
        package.prepare(text, tmp_path / "corpus")
    with pytest.raises(DataError, match=r"has no field `text`. Pass `text_field`; fields here"):
        records = tmp_path / "records.jsonl"
        records.write_text('{"a": "the old man said", "b": "that the house was good"}\n' * 9)
        package.prepare(records, tmp_path / "corpus")
    assert not out.exists() and not (tmp_path / "corpus").exists()
    small = {"hidden_size": 32, "vocab_size": 64, "embedding_size": 16, "num_hidden_layers": 2}
    unshared = package.load("albert-tiny-zh", random=True, plan="attention", **small)
    package.save(unshared, None, tmp_path / "unshared")
    notes = package.convert(tmp_path / "unshared", out, to="google", lossy=True).notes
    assert "(`sample` takes a text)" in notes[-1] and "--" not in " ".join(notes)


def test_ensemble(run_json: Any, runs: list[Path], tmp_path: Path) -> None:
    assert as_json(package.ensemble(runs, output=tmp_path / "a")) == {
        **run_json("ensemble", *runs, "--output", tmp_path / "b"),
        "report": str(tmp_path / "a" / "report.md"),
    }
    picked = package.ensemble(runs, pick=1, rule="best", split="dev", output=tmp_path / "a")
    assert len(picked["members"]) == 1 and set(picked["scores"]) == {"dev"}
    own = package.ensemble(runs, file=ROWS, task={"text": "text", "label": "label"}, output=tmp_path / "a")
    assert set(own["scores"]) == {"test"} and 0 <= own["scores"]["test"]["accuracy"] <= 1
    for wrong, message in (
        ({"runs": runs[:1]}, "two members or more"),
        ({"runs": runs[0]}, "two members or more"),
        ({"runs": None}, "runs is of the type NoneType"),
        ({"runs": runs, "pick": 0}, "pick is a whole number from 1"),
        ({"runs": runs, "pick": 1, "rule": "gready"}, "no rule 'gready'. Known are greedy, best"),
        ({"runs": runs, "rule": "best"}, "rule belongs to pick"),
        ({"runs": runs, "split": "train"}, "split is dev or test"),
    ):
        with pytest.raises(SettingsError, match=message):
            package.ensemble(**wrong)


def test_report(run_json: Any, runs: list[Path], tmp_path: Path) -> None:
    found = package.report(runs, tmp_path / "a")
    assert as_json(found) == {
        **run_json("report", *runs, "--output", tmp_path / "b"),
        "report": str(tmp_path / "a" / "report.md"),
    }
    assert list(found["tasks"]) == ["toy"] and Path(found["report"]).is_file()
    with pytest.raises(RunError, match="no finished run"):
        package.report(tmp_path, tmp_path / "c")
    with pytest.raises(SettingsError, match="no run to report on"):
        package.report([], tmp_path / "c")
    with pytest.raises(SettingsError, match=r"runs is of the type NoneType\. Give folders in a list"):
        package.report(None, tmp_path / "c")


def test_card_and_analyze(run_json: Any, model: Path, runs: list[Path], tmp_path: Path) -> None:
    run = shutil.copytree(runs[0], tmp_path / "run")
    page = package.card(run, licence="apache-2.0", language="en")
    assert page == run / "best" / "README.md" and "license: apache-2.0" in page.read_text()
    found = package.analyze.layers(model, ["the old man", "he sat there"])
    (one,) = run_json("analyze", "layers", model, "the old man", "he sat there")
    assert found.as_dict() | {"model": None} == one | {"model": None}
    assert found.norm.low.shape == (found.layers + 1,)
    assert package.analyze.parameters(str(model)) == [package.info(model) | {"name": str(model)}]
    with pytest.raises(SettingsError, match="takes one of suite and task"):
        package.analyze.probe(model)
    study = package.analyze.depth(model, "the old man", depths=4)
    assert study.residual == run_json("analyze", "depth", model, "the old man", "--depths", 4)["residual"]
    assert len(study.residual) == 4
    with pytest.raises(DataError, match="no text"):
        package.analyze.depth(model, [])
    with pytest.raises(SettingsError, match="max_length is a whole number from 1, not 'x'"):
        package.analyze.depth(model, "the old man", max_length="x")
    for wrong, message in (
        ({"watts": "x"}, "watts is 'x'; it must be a number above zero"),
        ({"watts": True}, "watts is True; it must be a number"),
        ({"grid": -1}, "grid is -1; it must be above zero"),
        ({"grid": float("nan")}, "grid is nan"),
        ({"licence": 3}, "`3` is no name of a licence"),
        ({"language": 3}, "language is 3. Give a code"),
        ({"language": ["en", None]}, "language is .*Give a code"),
        ({"base_model": 3}, "base_model is 3. Give OWNER/NAME"),
    ):
        with pytest.raises(SettingsError, match=message):
            package.card(run, **wrong)


@pytest.mark.usefixtures("few_pairs")
def test_suite(run_json: Any, model: Path, tmp_path: Path) -> None:
    folder = write(tmp_path / "files", "blimp", 2)
    found = package.suite("blimp", model, folder, limit=1)
    assert as_json(found) == run_json("suite", "blimp", model, "--data", folder, "--limit", 1)
    assert found["pairs"] == 67 and 0 <= found["right"] <= 1
    with pytest.raises(DataError, match="is no folder"):
        package.suite("blimp", model, tmp_path / "nothing")
    with pytest.raises(AlbertineError, match="blimp"):
        package.suite("glue", model, tmp_path)
    with pytest.raises(ModelError, match="neither a folder nor"):
        package.suite("blimp", tmp_path / "no model", tmp_path)
