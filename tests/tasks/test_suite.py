"""Suites: a toy one end to end with a missing task, a chain, a failure; the real ones resolve."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from albertine.core.settings import load, merge
from albertine.errors import DataError, SettingsError
from albertine.interop.huggingface.folders import load_model
from albertine.tasks import finetune as module
from albertine.tasks.finetune import FinetuneResult, finetune
from albertine.tasks.initial_model import first_encoder, open_encoder
from albertine.tasks.run_record import matching_record, pretraining, stamp
from albertine.tasks.settings import FinetuneSettings
from albertine.tasks.suite import read_suite
from albertine.tasks.suite_run import run_suite
from albertine.training.job import Outcome
from albertine.training.progress import Reporter
from tests.cli.conftest import Command

SUITES = Path(__file__).resolve().parents[2] / "recipes" / "suites"


def quiet(settings: FinetuneSettings, **options: Any) -> FinetuneResult:
    return finetune(settings, reporter=Reporter(quiet=True), **options)


@pytest.fixture
def suite(pretrained: Path, tables: dict[str, Path], tmp_path: Path) -> Path:
    """first, second (from first), absent (no file), lost (from absent), broken (a strange class)."""
    strange = tmp_path / "strange.csv"
    strange.write_text(tables["dev"].read_text().replace("poor", "awful", 1))
    own = {"train": str(tables["train"]), "dev": str(tables["dev"]), "text": "review"}
    (tmp_path / "one.yaml").write_text(
        yaml.safe_dump({"task": own, "training": {"batch_size": 8, "steps": 3}})
    )
    tree = {
        "name": "toys",
        "output": str(tmp_path / "runs"),
        "task": {"label": "verdict", "max_length": 32},
        "encoder": {"folder": str(pretrained)},
        "training": {"precision": "float32", "steps": 5, "learning_rate": 0.003},
        "watching": {"tensorboard": False, "report": False, "evaluations": 1},
        "tasks": {
            "second": {"recipe": "one.yaml", "start_from": "first", "training": {"steps": 4}},
            "first": {"task": own},
            "absent": {"task": {**own, "dev": "nowhere.csv"}},
            "lost": {"recipe": "one.yaml", "start_from": "absent"},
            "broken": {"task": {**own, "dev": str(strange)}},
        },
    }
    path = tmp_path / "toys.yaml"
    path.write_text(yaml.safe_dump(tree, sort_keys=False))
    return path


def test_what_comes_later_wins(suite: Path) -> None:
    tasks = {task.name: task for task in read_suite(suite).tasks}
    assert list(tasks) == ["first", "absent", "broken", "second", "lost"]
    training = tasks["second"].settings.training
    assert (training.steps, training.batch_size, training.learning_rate) == (4, 8, 0.003)
    assert tasks["lost"].settings.training.steps == 3 and tasks["first"].settings.training.steps == 5
    assert tasks["absent"].missing == "there is no nowhere.csv" and tasks["first"].missing is None
    changed = read_suite(suite, ["training.steps=9", "tasks.first.seed=7", "name=others"])
    assert {task.settings.training.steps for task in changed.tasks} == {9}
    assert {task.name: task.settings.seed for task in changed.tasks}["first"] == 7
    assert changed.folder.name == "others"
    assert merge({"a": {"b": 1, "c": 2}}, {"a": {"b": 3}}) == {"a": {"b": 3, "c": 2}}


def test_a_suite_end_to_end(suite: Path, pretrained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    result = run_suite(read_suite(suite), run=quiet, log=lines.append)
    assert list(result.runs) == ["first", "second", "lost"] and result.failed == ("broken",)
    assert set(result.left_out) == {"absent", "broken"} and "awful" in result.left_out["broken"]
    assert result.exit_code == 1 and not result.stopped
    folder = result.report.parent
    starts = {name: runs[0].record["encoder"] for name, runs in result.runs.items()}
    assert starts["second"] == str(folder / "first" / "best") and starts["lost"] == str(pretrained)
    notes = result.runs["second"][0].record["notes"]
    assert (
        "head: that of `classify` (2 outputs) in the folder is left aside, though it is of the same task"
        in (notes[-1])
    )
    assert result.runs["second"][0].record["pretraining"].startswith("tuned before on ")
    text = (result.report / "report.md").read_text()
    for message in ("there is no nowhere.csv", "since absent was not run", "Failed: broken", "## second"):
        assert message in text, message
    score = result.runs["first"][0].scores["accuracy"]
    assert f"| first | accuracy | {score:.4f} |" in text
    assert (result.report / "scores.png").is_file() and (result.report / "second-confusion.png").is_file()
    tree = json.loads((result.report / "report.json").read_text())
    assert tree["tasks"]["first"]["metrics"]["accuracy"]["values"] == [score]
    assert any("absent" in line for line in lines)

    # What is done is not done again: no model is even opened, but for the one that failed.
    monkeypatch.setattr(module, "train", lambda *_: pytest.fail("a task is run again"))
    again = run_suite(read_suite(suite), run=quiet)
    assert {n: r[0].scores for n, r in again.runs.items()} == {n: r[0].scores for n, r in result.runs.items()}


def test_a_chain_starts_with_the_weights_of_the_best_seed(suite: Path) -> None:
    result = run_suite(read_suite(suite), seeds=2, run=quiet)
    first = result.runs["first"]
    best = max(first, key=lambda run: run.scores["accuracy"])
    assert [run.name for run in first] == ["first-seed-1", "first-seed-2"]
    assert {run.record["encoder"] for run in result.runs["second"]} == {str(best.folder / "best")}
    begins = load(FinetuneSettings, result.runs["second"][0].folder / "settings.yaml")
    model = first_encoder(begins, open_encoder(begins)[0], frozenset({"pooler"}))
    start = load_model(best.folder / "best").state_dict()
    assert start.keys() == model.state_dict().keys()
    assert all(torch.equal(start[name], x) for name, x in model.state_dict().items())


def test_a_signal_ends_the_suite(suite: Path) -> None:
    ran: list[str] = []

    def stopped(settings: FinetuneSettings, **options: Any) -> FinetuneResult:
        ran.append(settings.name)
        return FinetuneResult(settings.folder, Outcome(False, 143, 1, 0, 0.0, {}), {}, (), {})

    result = run_suite(read_suite(suite), run=stopped)
    assert ran == ["first"] and result.stopped and result.exit_code == 143 and not result.runs


def test_tasks_can_be_taken_out(suite: Path) -> None:
    kept = read_suite(suite, ["tasks.first=null", "tasks.broken=null"]).tasks
    assert [task.name for task in kept] == ["absent", "second", "lost"]
    with pytest.raises(SettingsError, match="every task"):
        read_suite(suite, [f"tasks.{name}=null" for name in ("first", "second", "absent", "lost", "broken")])


def test_what_is_known_of_the_pretraining(tmp_path: Path) -> None:
    model = tmp_path / "run" / "final"
    model.mkdir(parents=True)
    assert pretraining(model) is None
    (model / "README.md").write_text(
        "# A\n`AutoModel.from_pretrained(...)`\nPretrained for 5 hours on novels.\n"
    )
    assert pretraining(model) == "Pretrained for 5 hours on novels."
    tree = {
        "corpus": "corpora/mine",
        "objective": {"pairs": "sop"},
        "training": {"steps": 2000, "minutes": None},
    }
    (tmp_path / "run" / "settings.yaml").write_text(yaml.safe_dump(tree))
    assert pretraining(model) == "corpus corpora/mine, objective sop, 2,000 steps"


def test_data_that_changed_is_not_taken_for_done(
    suite: Path, tables: dict[str, Path], tmp_path: Path
) -> None:
    copy = tmp_path / "copy.csv"
    copy.write_text(tables["dev"].read_text())
    settings = {task.name: task for task in read_suite(suite, [f"task.dev={copy}"]).tasks}["first"].settings
    quiet(settings)
    assert matching_record(settings, stamp(settings)) is not None
    copy.write_text("".join(tables["dev"].open().readlines()[:60]))
    assert matching_record(settings, stamp(settings)) is None


def test_mistakes_are_reported_before_anything_runs(suite: Path, tmp_path: Path) -> None:
    for assignments, message in (
        (["tasks.second.start_from=thrid"], "there is no task `thrid` to start second from"),
        (["tasks.first.start_from=second"], "the tasks start from each other"),
        (["training.stepps=3"], "did you mean `training.steps`"),
        (["tasks.first.task.kin=single"], "did you mean `task.kind`"),
        (["tasks.first=3"], "task first: holds no settings"),
        (["tasks.first.recipe=nowhere.yaml"], "no such settings file"),
        (["task.max_length=900"], "is more than the model's"),
        (["tasks={}"], "is no suite"),
        (["tasks.first.task={dataset: rtee, folder: x}"], "there is no data set `rtee`"),
    ):
        with pytest.raises(SettingsError, match=message.replace("[", r"\[")):
            read_suite(suite, assignments)
    with pytest.raises(DataError, match="no task has its files"):
        run_suite(read_suite(suite, ["task.train=gone.csv"]), run=quiet)
    assert not (tmp_path / "runs").exists()


@pytest.mark.matrix
def test_the_real_suites(shared_data: Path, pretrained: Path) -> None:
    own = [f"encoder.folder={json.dumps(str(pretrained))}", "task.max_length=128"]
    glue = {
        task.name: task
        for task in read_suite(SUITES / "glue.yaml", [*own, f"data={shared_data / 'glue'}"]).tasks
    }
    missing = {name for name, task in glue.items() if task.missing}
    assert len(glue) == 9 and missing == {"mnli", "qqp", "qnli"}
    assert "has no train.tsv" in str(glue["qnli"].missing)
    assert {name for name, task in glue.items() if task.start_from == "mnli"} == {"rte", "mrpc", "sts-b"}
    assert glue["rte"].settings.training.steps == 800 and next(iter(glue)) == "mnli"
    clue = {task.name: task for task in read_suite(SUITES / "clue.yaml", [*own, f"data={shared_data}"]).tasks}
    assert {name for name, task in clue.items() if task.missing} == {"iflytek", "csl", "cluewsc", "ocnli"}
    few = read_suite(SUITES / "fewclue.yaml", [*own, f"data={shared_data / 'fewclue'}"]).tasks
    assert len(few) == 45 and not any(task.missing for task in few)


@pytest.mark.parametrize("path", sorted(SUITES.glob("*.yaml")), ids=lambda path: path.stem)
def test_headers_state_expected_results(path: Path) -> None:
    header = [line for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("#")]
    for word in ("command", "hardware", "expected"):
        assert any(line.startswith(f"# {word}: ") for line in header), word
    command = f"finetune --suite recipes/suites/{path.name} encoder.folder=MODEL data="
    assert any(command in line for line in header)


@pytest.fixture
def albertine(capsys: pytest.CaptureFixture[str]) -> Iterator[Command]:
    yield Command(capsys)


def test_the_command(albertine: Command, suite: Path) -> None:
    dry = albertine("finetune", "--suite", suite, "--dry-run")
    assert dry.code == 0 and "--- # second, starts from first" in dry.out
    assert "left out: there is no nowhere.csv" in dry.out
    assert len(list(yaml.safe_load_all(dry.out))) == 5
    outcome = albertine("finetune", "--suite", suite, "training.steps=2")
    assert outcome.code == 1, outcome.err
    assert "failed" in outcome.out and "left out" in outcome.out and "report:" in outcome.out
    assert albertine("finetune", "--suite", suite, "--config", suite).code == 2


def test_several_seeds_are_not_advised_where_they_are_set(
    albertine: Command, suite: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*given: object, **how: object) -> None:
        raise DataError("far enough")

    monkeypatch.setattr("albertine.tasks.suite_run.run_suite", stop)
    for more, advised in (([], True), (["--seeds", 5], False)):
        outcome = albertine("finetune", "--suite", suite, *more)
        assert outcome.code == 2 and ("warning: first: " in outcome.err) == advised
        assert ("--seeds 5 reports the median" in outcome.err) == advised


def test_a_suite_expands_the_home_folder(
    suite: Path, tables: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "own.csv").write_text(tables["dev"].read_text())
    gone = [f"tasks.{name}=null" for name in ("second", "absent", "lost", "broken")]
    found = read_suite(suite, ["output=~/runs", "data=~", "tasks.first.task.dev=own.csv", *gone])
    assert found.folder == tmp_path / "runs" / "toys" and found.tasks[0].missing is None


def test_what_an_encoder_began_with_is_known(tmp_path: Path) -> None:
    model = tmp_path / "run" / "final"
    model.mkdir(parents=True)
    (model.parent / "settings.yaml").write_text(
        "corpus: c\nmodel: {start_from: big}\nobjective: {pairs: sop, distillation: {teacher: big}}\n"
        "training: {steps: 2000}\n"
    )
    assert pretraining(model) == "corpus c, objective sop, 2,000 steps, begun with big, taught by big"
