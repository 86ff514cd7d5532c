"""What a second command does to the folder of a first one: a record is true, and what is refused changes
nothing."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from albertine.core.settings import dump
from albertine.errors import AlbertineError, CheckpointError, RunError
from albertine.interop.huggingface.folders import load_model, save_model
from albertine.tasks.finetune import FinetuneResult, finetune
from albertine.tasks.rescore import evaluate_run, open_run
from albertine.tasks.settings import FinetuneSettings
from albertine.tokenizers.load import load_tokenizer
from albertine.training.checkpoints import CheckpointStore, read
from albertine.training.progress import Reporter
from tests.cli.conftest import Command
from tests.tasks.conftest import Tune, table

Short = Callable[..., FinetuneSettings]


@pytest.fixture
def short(tune: Tune, tables: dict[str, Path], pretrained: Path, tmp_path: Path) -> Short:
    """Settings of a run of six steps, on files and an encoder of its own."""
    own = {name: Path(shutil.copy(path, tmp_path / path.name)) for name, path in tables.items()}
    own["test"] = table(tmp_path / "test.csv", 30, 3)
    shutil.copytree(pretrained, tmp_path / "encoder")

    def make(**changes: Any) -> FinetuneSettings:
        training = {"steps": 6, "learning_rate": 0.01, **changes.pop("training", {})}
        encoder = {"folder": tmp_path / "encoder", **changes.pop("encoder", {})}
        task = {**own, **changes.pop("task", {})}
        return tune(training=training, encoder=encoder, task=task, **changes)

    return make


@pytest.fixture
def albertine(capsys: pytest.CaptureFixture[str]) -> Iterator[Command]:
    yield Command(capsys)


def run(settings: FinetuneSettings, **options: Any) -> FinetuneResult:
    return finetune(settings, reporter=Reporter(quiet=True), **options)


def bytes_of(folder: Path) -> dict[str, str]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def times_of(folder: Path) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in folder.rglob("*")}


def record(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "result.json").read_text())
    return found


def scores_again(folder: Path) -> list[float]:
    return [found.scores["accuracy"] for found in evaluate_run(open_run(folder))]


def rewrite(path: Path, *pairs: tuple[str, str]) -> None:
    """Change a file and keep its size and its times."""
    before, text = path.stat(), path.read_bytes()
    for old, new in pairs:
        text = text.replace(old.encode(), new.encode())
    path.write_bytes(text)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_size == before.st_size and path.stat().st_mtime_ns == before.st_mtime_ns


TURNED = (("fine", "????"), ("poor", "fine"), ("????", "poor"))


def test_a_refused_command_leaves_every_byte(short: Short, tmp_path: Path) -> None:
    folder = run(short()).folder
    other = tmp_path / "other"
    before = load_model(tmp_path / "encoder")
    with torch.no_grad():
        before.encoder.attention[0].query.weight.mul_(2)  # the word vectors stay
    save_model(before, load_tokenizer(tmp_path / "encoder"), other)
    known = bytes_of(folder)
    table(tmp_path / "others.csv", 400, 9)
    for changes, resume in (
        ({"seed": 7}, "auto"),
        ({"training": {"learning_rate": 0.02}}, "auto"),
        ({"training": {"steps": 7}}, "auto"),
        ({"task": {"train": tmp_path / "others.csv"}}, "auto"),
        ({"task": {"dev": tmp_path / "none.csv"}}, "auto"),
        ({"task": {"dev": None}}, "auto"),
        ({"task": {"max_length": 64}}, "auto"),
        ({"encoder": {"folder": other}}, "auto"),
        ({"encoder": {"folder": tmp_path / "nothing"}}, "auto"),
        ({"watching": {"evaluations": 2}}, "auto"),
        ({}, "never"),
        ({"seed": 7}, "never"),
        ({}, str(tmp_path / "no checkpoint")),
    ):
        with pytest.raises(AlbertineError):
            run(short(**changes), resume=resume)
        assert bytes_of(folder) == known, changes


def test_a_finished_run_is_known_by_its_record_too(short: Short) -> None:
    """Its checkpoints are large, and may be deleted."""
    folder = run(short()).folder
    shutil.rmtree(folder / "checkpoints")
    known = bytes_of(folder)
    for changes, resume in (({"seed": 7}, "auto"), ({"task": {"max_length": 64}}, "auto"), ({}, "never")):
        with pytest.raises(AlbertineError, match=r"other settings|earlier run"):
            run(short(**changes), resume=resume)
        assert bytes_of(folder) == known


def test_a_run_of_a_development_version_is_refused_once(short: Short) -> None:
    """Catches: a list of keys that the user never changed."""
    settings = short()
    folder = run(settings).folder
    found = record(folder)
    assert found["fingerprint"].pop("layout") == 2
    (folder / "result.json").write_text(json.dumps({**found, "stamp": None}))
    with pytest.raises(CheckpointError, match="begun by a development version before") as error:
        run(settings)
    assert "other settings" not in str(error.value) and "new run under another name" in str(error.value)
    assert scores_again(folder)[0] == found["scores"]["accuracy"]
    (folder / "result.json").unlink()  # the run was interrupted
    store = CheckpointStore(folder / "checkpoints")
    step = store.steps()[-1]
    last = read(store.path(step))
    store.save(step, last.model, last.optimizer, {**last.state, "fingerprint": found["fingerprint"]})
    with pytest.raises(CheckpointError, match="begun by a development version before"):
        run(settings)


def test_a_command_that_is_refused_before_it_begins_leaves_no_folder(short: Short, tmp_path: Path) -> None:
    settings = short(name="never begun")
    with pytest.raises(AlbertineError):
        run(settings, resume=str(tmp_path / "no checkpoint"))
    assert not settings.folder.exists()


def test_the_same_command_again_changes_nothing(short: Short) -> None:
    folder = run(short()).folder
    known, times = bytes_of(folder), times_of(folder)
    again = run(short())
    assert (bytes_of(folder), times_of(folder)) == (known, times)
    assert again.scores == record(folder)["scores"] and again.test == record(folder)["test"]
    for path in (short().task.dev, *short().task.train):  # type: ignore[misc]
        path.touch()  # type: ignore[union-attr]
    run(short())
    assert (bytes_of(folder), times_of(folder)) == (known, times), "the time of a file says nothing"


@pytest.mark.parametrize("name", ["best/model.safetensors", "final/vocab.txt", "predictions-dev.jsonl"])
def test_a_damaged_file_of_a_run_that_is_done_is_named(short: Short, name: str) -> None:
    """By a single run, by several seeds and by a suite, all of which leave a run that is done as it is."""
    folder = run(short()).folder
    if not (path := folder / name).is_file():
        path = folder / "final" / "spiece.model"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0x40
    path.write_bytes(content)
    with pytest.raises(RunError, match=rf"{path.name}.*is not what the run wrote"):
        run(short())
    if path.parent != folder:
        path.unlink()
        with pytest.raises(RunError, match=rf"{path.name}.*is missing"):
            run(short())


def test_a_model_that_was_removed_on_purpose_is_not_missed(short: Short) -> None:
    folder = run(short()).folder
    shutil.rmtree(folder / "best")
    assert run(short()).scores == record(folder)["scores"]


def test_changed_files_are_scored_anew(short: Short, tmp_path: Path) -> None:
    settings = short()
    first = run(settings)
    folder = first.folder
    models = [times_of(folder / name) for name in ("best", "final", "checkpoints")]
    assert settings.task.dev is not None and settings.task.test is not None
    rewrite(settings.task.dev, *TURNED)
    second = run(settings)
    assert second.scores["accuracy"] == pytest.approx(1 - first.scores["accuracy"])
    assert second.scores["step"] == first.scores["step"] and second.test == first.test
    assert any("dev: changed since" in note for note in second.notes)
    scores = json.loads((folder / "scores.json").read_text())
    assert record(folder)["scores"] == scores == dict(second.scores)
    assert scores_again(folder) == [second.scores["accuracy"], second.test["accuracy"]]
    line = json.loads((folder / "predictions-dev.jsonl").read_text().splitlines()[0])
    assert line["label"] in settings.task.dev.read_text().splitlines()[1]
    rewrite(settings.task.test, *TURNED)
    third = run(settings)
    assert third.test["accuracy"] == pytest.approx(1 - first.test["accuracy"])
    assert third.scores == second.scores
    more = table(tmp_path / "more.csv", 37, 11)
    fourth = run(short(task={"dev": more}))
    assert any(note.startswith("dev: 37 examples") for note in fourth.notes)
    assert scores_again(folder)[0] == fourth.scores["accuracy"] == record(folder)["scores"]["accuracy"]
    assert [times_of(folder / name) for name in ("best", "final", "checkpoints")] == models
    rewrite(settings.task.dev, *TURNED)
    last = run(settings)
    assert last.scores == first.scores and not any("changed since" in note for note in last.notes)


@pytest.mark.parametrize("back", [False, True], ids=["the same files", "the files of the run"])
def test_scoring_anew_that_was_interrupted_is_done_by_the_next_command(short: Short, back: bool) -> None:
    settings = short()
    first = run(settings)
    assert settings.task.dev is not None
    rewrite(settings.task.dev, *TURNED)
    blocked = first.folder / "predictions-test.jsonl"  # is written behind the predictions for the dev file
    blocked.unlink()
    (blocked / "in the way").mkdir(parents=True)
    with pytest.raises(AlbertineError, match=blocked.name):
        run(settings)
    shutil.rmtree(blocked)
    if back:
        rewrite(settings.task.dev, *TURNED)
    accuracy = first.scores["accuracy"]
    assert run(settings).scores["accuracy"] == pytest.approx(accuracy if back else 1 - accuracy)
    assert blocked.is_file()
    assert scores_again(first.folder)[0] == record(first.folder)["scores"]["accuracy"]


@pytest.mark.parametrize("kind", ["classes", "vectors"])
def test_only_what_the_run_wrote_is_watched(short: Short, kind: str) -> None:
    """Not a card, its results, notes or the files of an upload."""
    alike = {"kind": "similarity", "pair": "answer", "label": "points", "test": None}
    alike["similarity"] = {"highest": 5, "pooling": "depths", "normalize": True}
    settings = short(task=alike if kind == "vectors" else {})
    folder = run(settings).folder
    models = {str(Path(x).relative_to(folder)) for name in ("best", "final") for x in bytes_of(folder / name)}
    known = {name for name in record(folder)["files"] if "/" in name}
    assert known == {name for name in models if not name.endswith("README.md")}
    others = [folder / "best" / name for name in ("NOTES.txt", ".eval_results/sst-2.yaml", ".cache/x/y.json")]
    for path in (*others, folder / "predictions-mine.jsonl"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("of others")
    assert settings.task.dev is not None
    rewrite(settings.task.dev, *([("2.5", "1.5")] if kind == "vectors" else TURNED))
    run(settings)
    assert {name for name in record(folder)["files"] if "/" in name} == known
    for path in (*others, folder / "predictions-mine.jsonl"):
        path.unlink()
    run(settings)


def test_scoring_anew_keeps_what_is_known_of_a_model_that_is_away(short: Short, tmp_path: Path) -> None:
    settings = short()
    folder = run(settings).folder
    shutil.move(folder / "best", tmp_path / "away")
    assert settings.task.dev is not None
    rewrite(settings.task.dev, *TURNED)
    run(settings)
    shutil.move(tmp_path / "away", folder / "best")
    run(settings)
    (folder / "best" / "config.json").write_text("{}")
    with pytest.raises(RunError, match=r"config\.json.*is not what the run wrote"):
        run(settings)


def test_what_was_learned_from_may_not_change(short: Short) -> None:
    settings = short()
    folder = run(settings).folder
    known = bytes_of(folder)
    rewrite(settings.task.own("train")[0], *TURNED)
    with pytest.raises(AlbertineError, match="data: "):
        run(settings)
    assert bytes_of(folder) == known


def test_an_unfinished_run_keeps_its_files(short: Short, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its next best model would be picked by comparing scores of two dev files."""
    from albertine.tasks import finetune as module

    settings, plain, calls = short(), module.loss, 0

    def failing(*arguments: Any) -> Any:
        inner = plain(*arguments)

        def part(*inputs: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == 9:
                raise KeyError("the machine fell over")
            return inner(*inputs)

        return part

    monkeypatch.setattr(module, "loss", failing)
    with pytest.raises(KeyError):
        run(settings)
    monkeypatch.setattr(module, "loss", plain)
    assert CheckpointStore(settings.folder / "checkpoints").steps()
    known = bytes_of(settings.folder)
    assert settings.task.dev is not None
    rewrite(settings.task.dev, *TURNED)
    with pytest.raises(AlbertineError, match="dev: "):
        run(settings)
    assert bytes_of(settings.folder) == known
    rewrite(settings.task.dev, *TURNED)
    assert run(settings).outcome.done


def test_a_run_is_judged_from_every_working_directory(
    short: Short, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, albertine: Command
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = short(
        output="runs", task={"train": "train.csv", "dev": "dev.csv"}, encoder={"folder": "encoder"}
    )
    folder = run(settings).folder
    assert dump(settings) != (folder / "settings.yaml").read_text()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    outcome = albertine("evaluate", Path("..") / folder, "--json")
    assert outcome.code == 0, outcome.err
    accuracies = {found["split"]: found["scores"]["accuracy"] for found in json.loads(outcome.out)}
    kept = record(tmp_path / folder)
    assert accuracies == {"dev": kept["scores"]["accuracy"], "test": kept["test"]["accuracy"]}


def test_a_file_that_changes_while_a_run_is_under_way_is_noticed(
    short: Short, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = short()
    assert settings.task.dev is not None

    class Meanwhile(Reporter):
        def step(self, step: int, progress: float, left: float | None) -> None:
            if step == 3:
                rewrite(settings.task.dev, *TURNED)  # type: ignore[arg-type]

    first = finetune(settings, reporter=Meanwhile(quiet=True))
    assert run(settings).scores["accuracy"] == pytest.approx(1 - first.scores["accuracy"])
