"""Runs scored again and together: the scores again are the scores of the run, averages are averages, what
does not belong together is refused."""

from __future__ import annotations

import csv
import json
import shlex
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from safetensors.torch import load_file, save_file

from albertine import api
from albertine.api import evaluate
from albertine.core.settings import read_yaml, resolve
from albertine.errors import DataError, ModelError, SettingsError
from albertine.inference.probabilities import sigmoid, softmax
from albertine.inference.tags import tags_of
from albertine.interop.huggingface.folders import save_model
from albertine.interop.model_names import model_folder
from albertine.model.model import Model
from albertine.pretraining.initial_model import encoder_config
from albertine.pretraining.settings import ModelChoice
from albertine.tasks.classify import Classify
from albertine.tasks.ensemble import Ensemble, check, ensemble, warning
from albertine.tasks.examples import Example
from albertine.tasks.families import of_its_kind
from albertine.tasks.family import Mergeable
from albertine.tasks.finetune import finetune
from albertine.tasks.multiple_choice import Choice, Choose, by_option, encode
from albertine.tasks.predictor import Predictor
from albertine.tasks.rescore import TunedRun, _of_own_files, evaluate_run, model_of, open_run
from albertine.tasks.settings import FinetuneSettings
from albertine.tasks.tag import Tag
from albertine.tasks.task_data import once, read_data
from albertine.tokenizers.load import load_tokenizer
from albertine.tokenizers.train import train_wordpiece
from albertine.training.progress import Reporter
from tests.cli.conftest import Command
from tests.tasks.conftest import table
from tests.toy import MODEL

Train = Callable[..., Path]


@pytest.fixture(scope="module")
def train(pretrained: Path, tables: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Train:
    """A short run by its name; keyword arguments change parts of its settings."""
    output = tmp_path_factory.mktemp("runs of judge")
    test = table(output / "test.csv", 60, 3)

    def run(name: str, **changes: Any) -> Path:
        tree: dict[str, Any] = {
            "name": name,
            "output": output,
            "task": {**tables, "test": test, "text": "review", "label": "verdict", "max_length": 32},
            "encoder": {"folder": pretrained},
            "training": {"precision": "float32", "steps": 12, "batch_size": 16, "learning_rate": 0.003},
            "watching": {"tensorboard": False, "report": False, "evaluations": 2},
        }
        for part, values in changes.items():
            tree[part] = {**tree[part], **values} if isinstance(tree.get(part), dict) else values
        result = finetune(resolve(FinetuneSettings, tree), reporter=Reporter(quiet=True))
        return result.folder

    return run


@pytest.fixture(scope="module")
def members(train: Train) -> list[Path]:
    """Three runs: two seeds, and one of three loops."""
    return [
        train("toy-seed-1"),
        train("toy-seed-2", seed=2, training={"steps": 20}),
        train("deep", encoder={"num_hidden_layers": 3}),
    ]


def opened(paths: list[Path], *assignments: str) -> list[TunedRun]:
    read = once()
    return [open_run(path, assignments, read=read) for path in paths]


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_run_scores_again_what_it_scored(members: list[Path]) -> None:
    for path in (members[0], members[2], members[2] / "best"):
        run = open_run(path)
        folder = path if path.name != "best" else path.parent
        dev, test = evaluate_run(run)
        record = json.loads((folder / "result.json").read_text())
        assert dev.scores["accuracy"] == record["scores"]["accuracy"]
        assert test.scores["accuracy"] == record["test"]["accuracy"]
        before = lines(folder / "predictions-dev.jsonl")
        again = run.family.lines(dev.outputs, dev.data, dev.answers)
        assert [row["probabilities"] for row in again] == [
            pytest.approx(row["probabilities"], abs=2e-6) for row in before
        ]


def test_files_that_moved_and_other_files(
    members: list[Path], tables: dict[str, Path], tmp_path: Path
) -> None:
    moved = shutil.copy(tables["dev"], tmp_path / "elsewhere.csv")
    (dev,) = evaluate_run(open_run(members[0], [f"task.dev={moved}"]), ["dev"])
    assert dev.scores == pytest.approx(evaluate_run(open_run(members[0]), ["dev"])[0].scores)
    (test,) = evaluate_run(open_run(members[0], file=table(tmp_path / "more.csv", 7, 9)), ["test"])
    assert len(test.answers) == 7
    bare = shutil.copytree(members[0] / "best", tmp_path / "bare")
    task = [f"task.{name}={path}" for name, path in tables.items()]
    (again,) = evaluate_run(
        open_run(bare, [*task, "task.text=review", "task.label=verdict", "task.max_length=32"])
    )
    assert again.scores["accuracy"] == dev.scores["accuracy"]


def test_members_are_averaged(members: list[Path]) -> None:
    found = ensemble(opened(members))
    alone = [lines(path / "predictions-dev.jsonl") for path in members]
    together = found.found[0]
    for i, row in enumerate(found.family.lines(together.outputs, together.data, together.answers)):
        for name, value in row["probabilities"].items():
            mean = sum(own[i]["probabilities"][name] for own in alone) / 3
            assert value == pytest.approx(mean, abs=3e-6)
        assert row["prediction"] == max(row["probabilities"], key=row["probabilities"].__getitem__)
    assert found.members == (0, 1, 2) and warning(found) == "" and not found.picked
    assert set(found.scores) == {"dev", "test"}


@pytest.mark.parametrize("rule", ["greedy", "best"])
def test_members_are_picked_on_dev(members: list[Path], rule: Any) -> None:
    found = ensemble(opened(members), pick=2, rule=rule)
    scores = [member.scores["dev"]["accuracy"] for member in found.candidates]
    assert scores[found.members[0]] == max(scores) and len(found.members) <= 2
    assert "the test score is not" in warning(found)
    if rule == "best":
        assert found.members == tuple(sorted(range(3), key=lambda i: -scores[i])[:2])
    else:
        assert found.scores["dev"]["accuracy"] >= max(scores)
    # Picked on dev even where only the test file is requested.
    (only,) = ensemble(opened(members), pick=2, rule=rule, splits=["test"]).found[1:]
    assert only.scores == found.scores["test"]


def test_what_does_not_belong_together(
    members: list[Path], train: Train, tables: dict[str, Path], tmp_path: Path
) -> None:
    with pytest.raises(SettingsError, match="two members or more"):
        ensemble(opened(members[:1]))
    first = open_run(members[0])
    points = train("points", task={"label": "points", "kind": "score"})
    with pytest.raises(ModelError, match=r"toy-seed-1 and points .* scored by accuracy, macro_f1"):
        check([first, open_run(points)], ["dev"])
    (tmp_path / "short.csv").write_text("".join(tables["dev"].open().readlines()[:50]))
    with pytest.raises(DataError, match=r"dev files of toy-seed-1 and toy-seed-2 differ: 100 and 49"):
        check([first, open_run(members[1], [f"task.dev={tmp_path / 'short.csv'}"])], ["dev"])
    (tmp_path / "other.csv").write_text(tables["dev"].read_text().replace("house", "hut"))
    with pytest.raises(DataError, match=r"differ from example \d+ on"):
        check([first, open_run(members[1], [f"task.dev={tmp_path / 'other.csv'}"])], ["dev"])
    with pytest.raises(DataError, match="toy-seed-1 has a test file and toy-seed-2 has none"):
        check([first, open_run(members[1], ["task.test=null"])], ["dev", "test"])
    # The same rows in another file are the same data.
    copy = shutil.copy(tables["dev"], tmp_path / "copy.csv")
    check([first, open_run(members[1], [f"task.dev={copy}"])], ["dev"])


def test_precision_is_as_requested_else_as_in_training(members: list[Path]) -> None:
    requested, trained = open_run(members[0], precision="int8"), open_run(members[0])
    assert (requested.precision, trained.precision) == ("int8", "float32")
    assert model_of(requested).base.precision == "int8"


def test_a_run_without_a_model_is_reported_alike_everywhere(members: list[Path], tmp_path: Path) -> None:
    shutil.copy(members[0] / "settings.yaml", tmp_path)
    with pytest.raises(ModelError) as here:
        open_run(tmp_path)
    with pytest.raises(ModelError) as elsewhere:
        model_folder(tmp_path)
    assert str(here.value) == str(elsewhere.value)


def test_what_cannot_be_opened(members: list[Path], tables: dict[str, Path], tmp_path: Path) -> None:
    for wrong, error, message in (
        (tmp_path, ModelError, "neither a run nor a model"),
        (tables["dev"], ModelError, "neither a run nor a model"),
    ):
        with pytest.raises(error, match=message):
            open_run(wrong)
    with pytest.raises(SettingsError, match="did you mean"):
        open_run(members[0], ["task.folde=x"])
    dev = tmp_path / "dev.csv"
    dev.write_text(tables["dev"].read_text().replace("poor", "awful"))
    with pytest.raises(DataError, match=r"has the class `awful`, which is not known.*fine, poor"):
        open_run(members[0], [f"task.dev={dev}", "task.test=null"])
    with pytest.raises(ModelError, match="was tuned to classify texts, and cannot answer from passages"):
        squad = {"data": [{"paragraphs": [{"context": "a", "qas": [_question()]}]}]}
        (tmp_path / "q.json").write_text(json.dumps(squad))
        paths = [f"task.{name}={tmp_path / 'q.json'}" for name in ("train", "dev", "test")]
        evaluate_run(open_run(members[0], [*paths, "task.kind=answers"]))
    with pytest.raises(SettingsError, match="has no dev"):
        evaluate_run(open_run(members[0], ["task.dev=null"]), ["dev"])


def test_no_training_file_is_needed(members: list[Path], tables: dict[str, Path], tmp_path: Path) -> None:
    there = evaluate_run(open_run(members[0]), ["dev"])[0].scores
    gone = tmp_path / "gone.csv"
    assert evaluate_run(open_run(members[0], [f"task.train={gone}"]), ["dev"])[0].scores == there
    # A folder outside a run holds its length and its classes.
    copy = tmp_path / "a copy"
    shutil.copytree(members[0] / "best", copy)
    words = ["task.text=review", "task.label=verdict", f"task.dev={tables['dev']}"]
    run = open_run(copy, words)
    assert run.settings.task.max_length == read_yaml(members[0] / "settings.yaml")["task"]["max_length"] == 32
    assert evaluate_run(run, ["dev"])[0].scores == there


def test_data_are_shared_by_models_with_equal_settings(
    members: list[Path], tables: dict[str, Path], tmp_path: Path
) -> None:
    words, read = ["task.text=review", "task.label=verdict", f"task.dev={tables['dev']}"], once()
    first, second, other = (shutil.copytree(members[0] / "best", tmp_path / name) for name in "abc")
    config = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(
        json.dumps({**config, "albertine": {**config["albertine"], "pairs": True}})
    )
    assert open_run(first, words, read=read).data is open_run(second, words, read=read).data
    with pytest.raises(DataError, match="was tuned with pairs"):
        open_run(other, words, read=read)


def test_numbers_that_are_not_finite_have_no_score(members: list[Path], tmp_path: Path) -> None:
    broken = shutil.copytree(members[0], tmp_path / "broken")
    weights = load_file(broken / "best" / "model.safetensors")
    weights["classifier.weight"][1, 3] = float("nan")
    save_file(weights, broken / "best" / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match="not finite"):
        evaluate_run(open_run(broken))
    with pytest.raises(ModelError, match="not finite"):
        Predictor(broken / "best").classify(["the old man"])


def _question() -> dict[str, Any]:
    return {"id": "0", "question": "what", "answers": [{"text": "a", "answer_start": 0}]}


def test_options_are_averaged_question_by_question(pretrained: Path) -> None:
    questions = [
        Choice("0", "he sat", "who", ("he", "she", "it"), 0, ""),
        Choice("1", "she sat", "who", ("he", "she"), 1, ""),
    ]
    data = encode(questions, load_tokenizer(pretrained), 32)
    logits = [
        np.array([[1.0], [2.0], [0.5], [3.0], [0.0]]),
        np.array([[0.0], [0.0], [4.0], [0.0], [1.0]]),
    ]
    merged = Choose(32).merge(logits, data)
    assert merged.shape == (5, 1)
    tables = [np.split(x[:, 0], [3]) for x in logits]
    for i, row in enumerate(softmax(by_option(merged, data.sizes))):
        mean = sum(softmax(t[i]) for t in tables) / 2
        assert row[: len(mean)].tolist() == pytest.approx(mean.tolist(), abs=1e-6)
        assert row[len(mean) :].sum() == 0


def test_tags_need_the_same_tokens(pretrained: Path) -> None:
    family, tokenizer = Tag(tags_of(["X"]), 32), load_tokenizer(pretrained)
    data = family.encode([Example("0", "the old man", None, (("X", 0, 3),), "")], tokenizer)
    count = len(data.ids[0])
    logits = [np.random.Generator(np.random.Philox(key=i)).normal(size=(count, 3)) for i in range(2)]
    wanted = (softmax(logits[0]) + softmax(logits[1])) / 2
    np.testing.assert_allclose(softmax(family.merge(logits, data)), wanted, rtol=1e-5)
    with pytest.raises(ModelError, match="different tokens"):
        family.merge([logits[0], logits[1][1:]], data)


def test_members_may_cut_texts_differently(train: Train, members: list[Path], tmp_path: Path) -> None:
    words = ["the house and", "he was old", "good old house", "never the man", "time of man", "he said"]
    train_wordpiece(iter(words * 3), tmp_path / "words", vocab_size=40)
    tokenizer = load_tokenizer(tmp_path / "words")
    choice = ModelChoice(preset="albert-tiny-zh", change={**MODEL, "initializer_range": 0.1})
    model = Model(encoder_config(choice, tokenizer.vocab_size, 64), {"mlm", "sop"}, seed=5)
    save_model(model, tokenizer, tmp_path / "other")
    runs = opened([members[0], train("other words", encoder={"folder": tmp_path / "other"})])
    assert runs[0].data.dev is not None and runs[1].data.dev is not None
    assert runs[0].data.dev.ids[0].tolist() != runs[1].data.dev.ids[0].tolist()
    assert ensemble(runs, splits=["dev"]).scores["dev"]["accuracy"] > 0.4
    # Tags belong to tokens, so there it matters.
    rows = [{"text": "the old house", "label": [["X", 4, 7]]}] * 2
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    task = {"train": tmp_path / "rows.jsonl", "dev": tmp_path / "rows.jsonl", "kind": "entities"}
    choice_of_task = of_its_kind(task)
    tagged = [replace(run, data=read_data(choice_of_task, load_tokenizer(run.model_folder))) for run in runs]
    with pytest.raises(ModelError, match="different tokens"):
        check(tagged, ["dev"])


def test_classes_and_sets_have_their_own_mean() -> None:
    logits = [np.array([[2.0, -1.0]]), np.array([[-3.0, 0.5]])]
    many = Classify("multi", ("x", "y"), ("micro_f1",), 32)
    assert isinstance(many, Mergeable)
    wanted = (sigmoid(logits[0]) + sigmoid(logits[1])) / 2
    np.testing.assert_allclose(sigmoid(many.merge(logits, None)), wanted, rtol=1e-5)  # type: ignore[arg-type]


@pytest.fixture
def albertine(capsys: pytest.CaptureFixture[str]) -> Iterator[Command]:
    yield Command(capsys)


def test_evaluate_runs(albertine: Command, members: list[Path], tmp_path: Path) -> None:
    outcome = albertine("evaluate", members[0], "--dev", "--json")
    assert outcome.code == 0, outcome.err
    (found,) = json.loads(outcome.out)
    record = json.loads((members[0] / "result.json").read_text())
    assert found["split"] == "dev" and found["examples"] == 100
    assert found["scores"]["accuracy"] == record["scores"]["accuracy"]
    assert len(lines(Path(found["predictions"]))) == 100
    assert (members[0] / "evaluation" / "report.md").is_file()
    outcome = albertine("evaluate", *members[:2], "-o", tmp_path / "out")
    assert outcome.code == 0 and len(outcome.out.splitlines()) >= 5
    assert (tmp_path / "out" / "toy-seed-2" / "predictions-test.jsonl").is_file()


def test_labels_that_no_model_can_predict_are_reported_wherever_it_is_scored(
    train: Train, albertine: Command, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Catches: a score that leaves them out; a verb that does not report it; examples in a published card."""
    row = {"text": "the old man said", "label": [["A", 4, 11], ["B", 8, 11]]}
    (file := tmp_path / "nested.jsonl").write_text("\n".join([json.dumps(row)] * 3))
    task = {"kind": "entities", "train": file, "dev": file, "test": None, "text": "text", "label": "label"}
    folder = train("nested", task=task)
    first = f"(the first: B `man` in {file}:1)"
    missed = f"3 examples, 3 entities nested in or overlapping another, always missed {first}"
    notes = json.loads((folder / "result.json").read_text())["notes"]
    assert notes[0] == f"train: 3 examples, 3 entities nested in or overlapping another, not learned {first}"
    assert notes[1] == f"dev: {missed}"
    (judged,) = evaluate_run(open_run(folder), ["dev"])
    assert sum(len(gold) for gold in open_run(folder).family.gold(judged.data)) == 6
    outcome = albertine("evaluate", folder, "--dev", "-o", tmp_path / "out")
    assert outcome.code == 0 and f"nested, dev: {missed}" in outcome.err
    outcome = albertine("evaluate", folder, "--file", file, "--json", "-o", tmp_path / "out")
    assert json.loads(outcome.out)[0]["notes"] == [f"test: {missed}"]
    outcome = albertine("ensemble", folder, folder, "--dev", "-o", tmp_path / "together")
    assert outcome.code == 0 and f"dev: {missed}" in outcome.err
    evaluate(folder, file=[row] * 3)
    assert "nested, test: 3 examples, 3 entities nested in or overlapping another" in caplog.text
    assert albertine("card", folder).code == 0
    card = (folder / "best" / "README.md").read_text()
    assert "train: 3 examples, 3 entities nested in or overlapping another, not learned." in card
    assert "the first" not in card and "`man`" not in card


@pytest.mark.parametrize("name", ["adjacent", "blank"])
def test_entities_of_which_none_can_be_tagged_are_refused(train: Train, tmp_path: Path, name: str) -> None:
    texts = {
        "adjacent": ("the old man", [["A", 4, 5], ["B", 5, 6]]),
        "blank": ("a \u200b man", [["A", 2, 3]]),
    }
    text, label = texts[name]
    (file := tmp_path / f"{name}.jsonl").write_text(json.dumps({"text": text, "label": label}))
    task = {"kind": "entities", "train": file, "dev": file, "test": None, "text": "text", "label": "label"}
    with pytest.raises(
        DataError, match=rf"{name}\.jsonl:1: has no entity that the tags of tokens can name: 1"
    ):
        train(name, task=task)


@pytest.mark.parametrize("verb", ["evaluate", "ensemble"])
def test_where_nothing_can_be_written_nothing_is_computed(
    albertine: Command, members: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    """Otherwise computed scores would be lost."""
    (tmp_path / "file").touch()
    monkeypatch.setattr("albertine.tasks.rescore.model_of", lambda run: pytest.fail("asked in vain"))
    outcome = albertine(verb, *members[:2], "-o", tmp_path / "file" / "out")
    assert outcome.code == 2 and "cannot be written" in outcome.err


def test_a_report_is_of_the_latest_request(
    albertine: Command, members: list[Path], tables: dict[str, Path], tmp_path: Path
) -> None:
    new, report = table(tmp_path / "new.csv", 7, 9), tmp_path / "e" / "report.json"
    assert albertine("evaluate", members[0], "--dev", "-o", report.parent).code == 0
    assert '"examples": 100' in report.read_text()
    assert albertine("evaluate", members[0], "--file", new, "-o", report.parent).code == 0
    assert '"examples": 7' in report.read_text() and '"examples": 100' not in report.read_text()
    assert [path.name for path in report.parent.glob("*.jsonl")] == ["predictions-test.jsonl"]


def test_scores_do_not_take_the_place_of_a_run(
    albertine: Command, members: list[Path], tables: dict[str, Path], tmp_path: Path
) -> None:
    run = shutil.copytree(members[0], tmp_path / "run")
    before = {path.name: path.read_bytes() for path in run.iterdir() if path.is_file()}
    for words in (
        ("evaluate", run, "--file", tables["dev"], "-o", run),
        ("ensemble", *members, "-o", run),
    ):
        outcome = albertine(*words)
        assert outcome.code == 2 and "is a run, whose own record would be lost" in outcome.err
    assert {path.name: path.read_bytes() for path in run.iterdir() if path.is_file()} == before


def test_two_runs_of_one_name_do_not_share_a_folder(
    albertine: Command, members: list[Path], tmp_path: Path
) -> None:
    other = shutil.copytree(members[0], tmp_path / "elsewhere" / members[0].name)
    outcome = albertine("evaluate", members[0], other, "--dev", "-o", tmp_path / "two")
    assert outcome.code == 2 and "would both be written to this folder" in outcome.err
    assert not (tmp_path / "two").exists()


def test_another_file_stands_in_for_the_test_file(
    albertine: Command, members: list[Path], tables: dict[str, Path], tmp_path: Path
) -> None:
    more = ("--file", tables["dev"], "-o", tmp_path, "--json")
    (found,) = json.loads(albertine("evaluate", members[0], *more).out)
    record = json.loads((members[0] / "result.json").read_text())
    assert found["split"] == "test" and found["scores"]["accuracy"] == record["scores"]["accuracy"]
    for pick, splits in (([], {"test"}), (["--pick", 1], {"dev", "test"})):
        printed = json.loads(albertine("ensemble", *members, *pick, *more).out)
        assert set(printed["scores"]) == splits
        assert not pick or printed["scores"]["dev"] == printed["scores"]["test"]


def test_beside_another_file_the_own_dev_file_is_read_for_what_needs_it_alone(
    albertine: Command, members: list[Path], tables: dict[str, Path], tmp_path: Path, monkeypatch: Any
) -> None:
    """Gone or in another encoding, it is not needed: but members are picked on it, and a threshold
    of members together is settled on it."""
    moved, rows = [], [{"review": "the good old house", "verdict": "fine"}]
    for member in members[:2]:
        moved.append(shutil.copytree(member, tmp_path / member.name))
        settings = read_yaml(moved[-1] / "settings.yaml")
        settings["task"] |= {"dev": str(tmp_path / "gone.csv"), "encoding": "utf-16"}
        (moved[-1] / "settings.yaml").write_text(json.dumps(settings))
    own = tmp_path / "own.csv"
    own.write_text(tables["dev"].read_text(), encoding="utf-8-sig")
    more = ("--file", own, "-o", tmp_path / "out")
    assert evaluate(moved[0], file=rows).keys() == {"test"}
    for words in (("evaluate", moved[0]), ("ensemble", *moved)):
        assert albertine(*words, *more).code == 0
    outcome = albertine("ensemble", *moved, "--pick", 1, *more)
    assert outcome.code == 2 and "gone.csv: cannot be opened" in outcome.err
    with pytest.raises(DataError, match=r"gone\.csv"):
        evaluate_run(open_run(moved[0]))
    for name in ("tune_on_dev", "load_state"):
        monkeypatch.setattr(Classify, name, lambda *given: None, raising=False)
    for dev, splits in ((False, {"test"}), (None, {"dev", "test"})):
        assert open_run(members[0], file=tables["dev"], dev=dev).splits.keys() == splits


@pytest.fixture(scope="module")
def on_data_set(pretrained: Path, tables: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on a data set that is known by its name."""
    (folder := tmp_path_factory.mktemp("on sst-2") / "SST-2").mkdir()
    for split in ("train", "dev"):
        rows = csv.DictReader(tables[split].open())
        lines = [f"{row['review']}\t{int(row['verdict'] == 'fine')}\n" for row in rows]
        (folder / f"{split}.tsv").write_text("sentence\tlabel\n" + "".join(lines))
    result = api.finetune(
        pretrained,
        name="sst",
        output=folder.parent,
        task={"dataset": "sst-2", "folder": folder, "max_length": 16},
        training={"steps": 6, "precision": "float32", "learning_rate": 0.003},
        watching={"tensorboard": False, "report": False},
        reporter=Reporter(quiet=True),
    )
    return result.folder


def test_own_rows_are_scored_by_any_tuned_model(
    albertine: Command, on_data_set: Path, tmp_path: Path
) -> None:
    """By that of a run on a data set, and by a folder outside a run; their kind, length and labels are in the
    folder."""
    with (on_data_set.parent / "SST-2" / "dev.tsv").open() as file:
        rows = [
            {"text": row["sentence"], "label": row["label"]} for row in csv.DictReader(file, delimiter="\t")
        ]
    (table := tmp_path / "t.csv").write_text(
        "text,label\n" + "".join(f"{r['text']},{r['label']}\n" for r in rows)
    )
    copied = Path(shutil.copytree(on_data_set / "best", tmp_path / "copied" / "best"))
    wanted = evaluate(on_data_set)["dev"]
    named = [{"said": row["text"], "right": row["label"]} for row in rows]
    for model in (on_data_set, copied):
        scored = evaluate(model, file=rows, precision="float32")
        assert scored["test"]["accuracy"] == wanted["accuracy"]
        own = {"text": "said", "label": "right"}
        assert evaluate(model, file=named, task=own, precision="float32") == scored
        outcome = albertine("evaluate", model, "--file", table, "--precision", "float32", "--json")
        assert outcome.code == 0, outcome.err
        assert json.loads(outcome.out)[0]["scores"]["accuracy"] == wanted["accuracy"]
    assert (copied / "evaluation" / "report.md").is_file()
    with pytest.raises(DataError, match=r"^test\[0\]: has no column `text`; it has `said`"):
        evaluate(on_data_set, file=named)
    for task in ({"dataset": "rte", "folder": "x"}, {"dataset": "rte", "folder": "x", "test": None}):
        with pytest.raises(SettingsError, match=r"not both|Leave out one of them"):
            evaluate(on_data_set, file=rows, task=task)
    with pytest.raises(SettingsError, match=r"task is of the type list\. Give a"):
        evaluate(on_data_set, file=rows, task=["text"])  # type: ignore[arg-type]
    assert evaluate(copied, task={"dev": table}) == {"dev": evaluate(copied, file=table)["test"]}


def test_the_dev_set_of_a_data_set_is_not_quietly_left_out(
    albertine: Command, on_data_set: Path, tmp_path: Path
) -> None:
    (table := tmp_path / "t.csv").write_text("text,label\na good man,1\nnever,0\n")
    other = Path(shutil.copytree(on_data_set, tmp_path / "other"))
    words = ("ensemble", on_data_set, other, "--pick", 1, "--file", table, "-o", tmp_path / "out", "--json")
    refused = albertine(*words)
    assert refused.code == 2 and "on the dev set of sst-2, which is not read beside own rows" in refused.err
    outcome = albertine(*words, f"task.dev={table}")
    assert outcome.code == 0 and set(json.loads(outcome.out)["scores"]) == {"dev", "test"}


def test_the_scoring_rules_of_a_data_set_hold_for_own_rows(tmp_path: Path) -> None:
    """Except its columns: own rows have theirs."""
    answers, alike, classes = (
        SimpleNamespace(settings={"kind": kind}) for kind in ("answers", "similarity", "multi")
    )

    def own(family: Any, **task: Any) -> dict[str, Any]:
        return dict(_of_own_files({"folder": "x", "max_length": 9, **task}, family))

    scores = own(answers, dataset="cmrc2018", answer={"stride": 3})
    assert scores["answer"] == {"stride": 3, "no_answer": False, "rules": "cmrc"}
    assert {"dataset", "folder"}.isdisjoint(scores) and scores["max_length"] == 9
    assert own(answers, dataset="squad2")["answer"]["no_answer"]
    scores = own(alike, dataset="sts-b", kind="similarity", similarity={"pooling": "cls"})
    assert scores["similarity"] == {"pooling": "cls", "lowest": 0, "highest": 5}
    assert "separator" not in scores and "columns" not in scores
    described = tmp_path / "d.yaml"
    described.write_text("{kind: multi, files: {test: a.csv}, separator: '|'}")
    assert own(classes, dataset=str(described))["separator"] == "|"
    described.unlink()
    assert own(classes, dataset=str(described)) == {"kind": "multi", "max_length": 9}
    assert own(classes, train="a.csv") == {"folder": "x", "max_length": 9, "train": "a.csv"}


def test_scores_and_ensembles_lie_with_the_run(
    albertine: Command, members: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run, other = (Path(shutil.copytree(one, tmp_path / "moved" / one.name)) for one in members[:2])
    for path in (run, run / "best"):
        assert open_run(path).folder.resolve() == run
    away = Path(shutil.copytree(run / "best", tmp_path / "away"))
    words = [
        f"task.dev={read_yaml(run / 'settings.yaml')['task']['dev']}",
        "task.text=review",
        "task.label=verdict",
    ]
    assert open_run(away, words).folder == away
    monkeypatch.setattr("albertine.tasks.rescore.resolve_model", lambda name: away)  # as of the hub
    assert open_run(Path("owner/name"), words).folder == Path("runs/name")
    monkeypatch.undo()
    monkeypatch.chdir(run)
    assert albertine("ensemble", ".", other / "best", "--dev").code == 0
    assert (tmp_path / "moved" / "toy-ensemble" / "result.json").is_file()
    assert albertine("evaluate", run / "best", "--dev").code == 0
    assert (run / "evaluation" / "report.md").is_file() and not (run / "best" / "evaluation").exists()


def test_the_verb_ensemble(albertine: Command, members: list[Path], tmp_path: Path) -> None:
    outcome = albertine("ensemble", *members, "--pick", 2, "-o", tmp_path / "e", "--json")
    assert outcome.code == 0, outcome.err
    found = json.loads(outcome.out)
    wanted: Ensemble = ensemble(opened(members), pick=2)
    assert found["scores"]["test"]["accuracy"] == wanted.scores["test"]["accuracy"]
    assert found["members"] == [wanted.candidates[i].run.name for i in wanted.members]
    text = (tmp_path / "e" / "report.md").read_text()
    assert "forward selection by accuracy on dev, at most 2" in text and "is optimistic" in text
    assert f"| **together** | | {found['scores']['dev']['accuracy']:.4f} |" in text
    assert len(lines(tmp_path / "e" / "predictions-dev.jsonl")) == 100
    plain = albertine("ensemble", *members, "--pick", 2, "--rule", "best", "-o", tmp_path / "f")
    assert plain.code == 0 and "together" in plain.out and "optimistic" in plain.err


def test_the_verb_report(albertine: Command, members: list[Path], tmp_path: Path) -> None:
    outcome = albertine("report", *members, "-o", tmp_path / "report", "--json")
    assert outcome.code == 0, outcome.err
    printed = json.loads(outcome.out)["tasks"]
    assert len(printed["toy"]["accuracy"]["values"]) == 2 and len(printed["deep"]["accuracy"]["values"]) == 1
    assert "## deep" in (tmp_path / "report" / "report.md").read_text()


def test_wrong_arguments_are_one_message(
    albertine: Command, members: list[Path], pretrained: Path, tables: dict[str, Path], tmp_path: Path
) -> None:
    columns = ["task.text=review", "task.label=verdict"]
    none = [f"task.{name}=null" for name in ("train", "dev", "test")]
    bare, run, best = (shlex.quote(str(path)) for path in (pretrained, members[0], members[0] / "best"))
    for words, message in (
        (["evaluate", tmp_path], "neither a run nor a model"),
        (
            ["evaluate", pretrained],
            f"A pretrained model is scored on text: albertine score {bare} CORPUS",
        ),
        (
            ["evaluate", pretrained, *(f"task.{name}={path}" for name, path in tables.items()), *columns],
            "no head of a task",
        ),
        (["evaluate", "owner/name"], "albertine score owner/name CORPUS"),
        (["ensemble", pretrained, members[0]], f"albertine score {bare} CORPUS"),
        (["ensemble", members[0]], "one alone is scored by `albertine evaluate RUN`"),
        (["report", members[0], tmp_path, "-o", tmp_path], "no finished run"),
        (
            ["evaluate", members[0], *none, "task.dataset=rte", "task.folder=x", "--file", tmp_path],
            "task.dataset=rte. Leave out one of them",
        ),
        (["evaluate", members[0], "--device", "abacus"], "no device `abacus`"),
        (
            ["score", members[0]],
            f"tuned to classify texts. Score it on the files of its task: albertine evaluate {run}",
        ),
        (["score", members[0] / "best", "--texts", tables["dev"]], f"albertine evaluate {best}"),
        (["suite", "blimp", members[0] / "best", "--data", tmp_path], f"albertine evaluate {best}"),
        (["score", pretrained], "Name a corpus of `albertine prepare`, or text: --texts FILE"),
    ):
        outcome = albertine(*words)
        assert outcome.code == 2 and message in outcome.err and "Traceback" not in outcome.err, outcome.err


def test_members_are_picked_on_one_dev_file(members: list[Path], tmp_path: Path) -> None:
    """Also where only the test file is requested."""
    other, short = table(tmp_path / "o.csv", 100, 8), table(tmp_path / "s.csv", 50, 8)
    for dev, message in (
        (other, r"dev files of .* differ from example \d+ on"),
        (short, "differ: 100 and 50"),
        ("null", "has a dev file and .* has none"),
    ):
        runs = [open_run(members[0]), open_run(members[1], [f"task.dev={dev}"])]
        with pytest.raises(DataError, match=message):
            ensemble(runs, pick=2, splits=["test"])


def test_an_ensemble_of_runs_that_were_moved_lies_beside_them(
    albertine: Command, members: list[Path], tmp_path: Path
) -> None:
    moved = [Path(shutil.copytree(run, tmp_path / "moved" / run.name)) for run in members[:2]]
    assert albertine("ensemble", *moved, "--dev").code == 0
    assert (tmp_path / "moved" / "toy-ensemble" / "result.json").is_file()
