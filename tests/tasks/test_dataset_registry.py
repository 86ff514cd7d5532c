"""Data sets that a YAML file describes: training and scoring with it, and errors in it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from albertine.core.settings import dump, load
from albertine.errors import AlbertineError, CheckpointError, DataError, SettingsError
from albertine.tasks.dataset_registry import Columns, Dataset, known, listed, named
from albertine.tasks.families import KINDS, checked, task_of_kind
from albertine.tasks.finetune import FinetuneResult, finetune
from albertine.tasks.rescore import evaluate_run, open_run
from albertine.tasks.run_record import matching_record, stamp
from albertine.tasks.seeds import over_seeds
from albertine.tasks.settings import FinetuneSettings
from albertine.tasks.suite import read_suite
from albertine.tasks.task_data import read_data
from albertine.tokenizers.load import load_tokenizer
from albertine.training.progress import Reporter
from tests.cli.conftest import Command
from tests.tasks.conftest import Tune, table

MINE: dict[str, Any] = {
    "files": {"train": "train.csv", "dev": "dev.csv"},
    "columns": {"text": "review", "label": "verdict"},
    "metrics": ["matthews", "accuracy"],
}
Mine = Callable[..., Path]


@pytest.fixture
def mine(tmp_path: Path) -> Mine:
    """Writes the YAML file, changed, beside its data."""
    folder = tmp_path / "my data"
    folder.mkdir()
    table(folder / "train.csv", 200, 1)
    table(folder / "dev.csv", 60, 2)

    def write(name: str = "mine.yaml", **changes: Any) -> Path:
        path = folder / name
        path.write_text(yaml.safe_dump({**MINE, **changes}))
        return path

    return write


def settings_on(tune: Tune, dataset: Path, **task: Any) -> FinetuneSettings:
    own = {"train": None, "dev": None, "dataset": str(dataset), **task}
    return tune(task=own, training={"steps": 6})


def run(settings: FinetuneSettings) -> FinetuneResult:
    return finetune(settings, reporter=Reporter(quiet=True))


def test_a_registered_data_set_is_trained_on_and_scored(
    tune: Tune, mine: Mine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    path = mine(labels=["poor", "fine"])
    settings = settings_on(tune, path.relative_to(tmp_path))
    result = run(settings)
    assert list(result.scores) == ["step", "matthews", "accuracy"]
    record = json.loads((result.folder / "result.json").read_text())
    assert record["labels"] == ["poor", "fine"] and record["data"] == "my data/mine.yaml"
    (found,) = evaluate_run(open_run(result.folder))
    assert found.scores == {name: result.scores[name] for name in ("matthews", "accuracy")}
    # Its record leads to the file from everywhere.
    monkeypatch.chdir("/")
    saved = load(FinetuneSettings, result.folder / "settings.yaml")
    assert saved.task.dataset == path and saved.task.kind == "single"
    assert [one.scores for one in evaluate_run(open_run(result.folder))] == [found.scores]


def test_a_name_that_means_other_data_is_noticed(
    tune: Tune, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches: the scores of before for a name that another version gives to other files."""
    settings = tune(task={"train": None, "dev": None, "dataset": "ocnli", "folder": tmp_path})
    before = stamp(settings)
    assert stamp(settings) == before
    other = named("ocnli-10k")
    monkeypatch.setattr("albertine.tasks.dataset_registry.named", lambda name: other)
    assert stamp(settings) != before


def test_a_changed_yaml_is_noticed(tune: Tune, mine: Mine) -> None:
    settings = settings_on(tune, mine())
    folder = run(settings).folder
    assert matching_record(settings, stamp(settings)) is not None
    mine(metrics=["accuracy"])
    assert matching_record(settings, stamp(settings)) is None
    with pytest.raises(CheckpointError, match=r"task\.dataset\.metrics"):
        run(settings)
    mine()
    before = (folder / "result.json").read_bytes()
    run(settings)
    assert (folder / "result.json").read_bytes() == before
    (folder.parent / "other.txt").write_text("beside")  # what the YAML does not name is not looked at
    (mine().parent / "other.txt").write_text("beside")
    assert matching_record(settings, stamp(settings)) is not None


def test_files_lie_in_the_folder_that_is_named(tune: Tune, mine: Mine, tmp_path: Path) -> None:
    path = mine().rename(tmp_path / "mine.yml")
    tokenizer = load_tokenizer(tune().encoder.folder)
    with pytest.raises(DataError, match=r"has no train\.csv; it has"):
        read_data(settings_on(tune, path).task, tokenizer)
    data = read_data(settings_on(tune, path, folder=tmp_path / "my data").task, tokenizer)
    assert len(data.train.examples) == 200


def test_a_suite_finds_it_below_its_data(tune: Tune, mine: Mine, tmp_path: Path) -> None:
    mine()
    mine("half.yaml", files={"train": "train.csv", "dev": "nowhere.csv"})
    task = {"dataset": "my data/mine.yaml"}
    tree = {"name": "toys", "encoder": {"folder": str(tune().encoder.folder)}, "tasks": {"a": {"task": task}}}
    tree["tasks"]["b"] = {"task": {"dataset": "my data/half.yaml", "max_length": 16}}
    (tmp_path / "suite.yaml").write_text(yaml.safe_dump({**tree, "task": {"max_length": 32}}))
    first, second = read_suite(tmp_path / "suite.yaml", [f"data={tmp_path}"]).tasks
    assert first.missing is None and first.settings.task.dataset == tmp_path / "my data" / "mine.yaml"
    assert second.missing is not None and "has no nowhere.csv" in second.missing
    (other,) = read_suite(
        tmp_path / "suite.yaml",
        ["tasks.b=null", f"data={tmp_path / 'my data'}", "tasks.a.task.dataset=mine.yaml"],
    ).tasks
    assert other.settings.task.dataset == first.settings.task.dataset


def test_every_kind_can_be_described(tune: Tune, mine: Mine) -> None:
    """Files of its own reader, and metrics in the order of the file."""
    folder, tokenizer = mine().parent, load_tokenizer(tune().encoder.folder)
    (folder / "a.conll").write_text("man\tB-WHO\nsaid\tO\n")
    question = {"id": "1", "context": "the old man", "question": "who", "answers": {"text": ["man"]}}
    question["answers"]["answer_start"] = [8]  # type: ignore[index]
    rows = {
        "choices": {"text": "a", "options": ["old", "man"], "right": "B"},
        "triples": {"text": "the man sold time", "label": [["man", "sold", "time"]]},
        "pairs": {"text": "a man", "other": "the man", "label": 4},
        "titles": {"text": "the old man", "title": "man"},
        "questions": question,
    }
    for name, row in rows.items():
        (folder / f"{name}.jsonl").write_text(json.dumps(row) + "\n")
    with (folder / "pairs.jsonl").open("a") as file:  # of one pair alone no order is learned
        file.write(json.dumps({"text": "a man", "other": "time", "label": 1}))
    described: dict[str, tuple[str, dict[str, Any]]] = {
        "choice": ("choices.jsonl", {"columns": {"label": "right"}}),
        "entities": ("a.conll", {}),
        "relations": ("triples.jsonl", {"metrics": ["triple_recall", "triple_f1"]}),
        "similarity": ("pairs.jsonl", {"columns": {"pair": "other"}, "scores": [0, 5]}),
        "generation": ("titles.jsonl", {"columns": {"label": "title"}, "metrics": ["text_f1"]}),
        "answers": ("questions.jsonl", {"rules": "cmrc"}),
        "reading": ("questions.jsonl", {"metrics": ["text_exact"]}),
    }
    for kind, (file, more) in described.items():
        tree = {"columns": {}, "metrics": [], "kind": kind, "files": {"train": file, "dev": file}, **more}
        data = read_data(settings_on(tune, mine(**tree), max_length=48).task, tokenizer)
        assert data.dev is not None and len(data.dev.examples) == (2 if kind == "similarity" else 1), kind
        assert data.family.task == task_of_kind(settings_on(tune, mine(**tree), max_length=48).task)
        if tree["metrics"]:
            assert list(data.family.metrics) == tree["metrics"]
        if kind == "similarity":
            assert data.dev.examples[0].label == 0.8
        if kind == "answers":
            assert data.family.metrics[0] == "cmrc_average"


ROWS: dict[str, dict[str, Any]] = {
    "single": {"text": "a man", "label": "x"},
    "multi": {"text": "a man", "label": "x"},
    "score": {"text": "a man", "label": 1},
    "choice": {"text": "a man", "options": ["b", "c"], "label": "b"},
    "entities": {"text": "a man", "label": [["x", 0, 1]]},
    "relations": {"text": "a man", "label": [["a", "is", "man"]]},
    "similarity": {"text": "a man", "pair": "b", "label": 1},
    "generation": {"text": "a man", "label": "man"},
    "answers": {"context": "a man", "question": "who", "answers": {"text": ["man"], "answer_start": [2]}},
    "reading": {"context": "a man", "question": "who", "answers": {"text": ["man"], "answer_start": [2]}},
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_column_of_ids_is_named_for_every_kind(tmp_path: Path, kind: str) -> None:
    """One without an id, or whose id is a list, is named by its number, whatever the kind."""
    made = [{**ROWS[kind], "key": key, "id": "other"} for key in ("q-7", [1], None, 8)]
    if kind == "entities":
        made.append({"text": ["a", "man"], "label": ["O", "B-x"], "key": "words"})
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, made)))
    columns = Columns(id="key", pair="pair" if kind == "similarity" else None)
    dataset = Dataset(kind=kind, files={"train": ("a.jsonl",)}, columns=columns)
    found = [example.name for example in KINDS[kind].read(dataset, tmp_path, "train")]
    assert found == ["q-7", "1", "2", "8", *(["words"] if kind == "entities" else [])]


def test_ids_of_rows_in_the_form_of_cluener(tmp_path: Path) -> None:
    row = {"key": "q-7", "text": "a man", "label": {"x": {"man": [[2, 4]]}}}
    (tmp_path / "a.json").write_text(json.dumps(row))
    dataset = Dataset(
        kind="entities", reader="cluener", files={"train": ("a.json",)}, columns=Columns(id="key")
    )
    (found,) = KINDS["entities"].read(dataset, tmp_path, "train")
    assert (found.name, found.label) == ("q-7", (("x", 2, 5),))


@pytest.mark.parametrize("kind", ["generation", "similarity", "single"])
def test_rows_of_another_number_of_fields_are_passed_over_by_every_kind(
    tune: Tune, mine: Mine, kind: str
) -> None:
    path = mine(kind=kind, ragged=True, metrics=[], columns={"pair": "other"})
    for split in ("train", "dev"):
        (path.parent / f"{split}.csv").write_text("text,other,label\na man,b,1\nbroken\nc,d,0\n")
    data = read_data(settings_on(tune, path, max_length=64).task, load_tokenizer(tune().encoder.folder))
    assert len(data.train.examples) == 2
    assert ("1 left out" in data.notes[0]) == (kind == "single")


@pytest.mark.parametrize("kind", ["entities", "relations"])
def test_a_second_text_is_refused_where_nothing_reads_it(tune: Tune, mine: Mine, kind: str) -> None:
    own = {"train": "a.jsonl", "dev": None, "kind": kind, "text": "text", "label": "label"}
    assert tune(task=own).task.pair is None
    with pytest.raises(SettingsError, match=rf"task\.kind={kind} takes one text; leave task\.pair out"):
        tune(task={**own, "pair": "other"})
    with pytest.raises(SettingsError, match=r"takes one text; leave columns\.pair out"):
        settings_on(tune, mine(kind=kind, metrics=[], columns={"pair": "other"}))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"metrics": ["accurracy"]}, r"the metric `accurracy` is unknown; of single there are accuracy, "),
        ({"metrics": ["pearson"]}, r"the metric `pearson` is not of this kind; of single there are accuracy"),
        ({"kind": "answers"}, "the metric `matthews` is not of this kind; answers go by `rules`"),
        ({"kind": "classes"}, "there is no kind `classes`; known are single, multi, score"),
        ({"files": {"trian": "a.csv"}}, r"`files`: .*not trian"),
        ({"files": "a.csv"}, r"`files`: wanted are files by split"),
        ({"files": {"train": 5}}, r"`files`: .*\{train: train\.csv"),
        ({"colums": {}}, "unknown setting `colums`; did you mean `columns`"),
        ({"columns": {"txt": "a"}}, "unknown setting `columns.txt`; did you mean `columns.text`"),
        ({"columns": {"header": 5}}, "`columns.header`: wanted is true, false, or a list"),
        ({"reader": "webqa"}, "there is no reader `webqa` of single"),
        ({"scores": [5]}, r"`scores`: wanted are the lowest and the highest score, \[0, 5\], or"),
        ({"scores": {True: 1}}, "`scores`: wanted are the lowest"),
        ({"labels": [True, False]}, "`labels`: yes, no, true and false are written in quotes"),
        ({"labels": "a"}, "`labels`: wanted is a list"),
    ],
)
def test_what_is_wrong_in_it_is_one_message(
    mine: Mine, capsys: pytest.CaptureFixture[str], changes: dict[str, Any], message: str
) -> None:
    path = mine(**changes)
    with pytest.raises(SettingsError, match=message) as caught:
        checked(path)
    assert str(caught.value).startswith(f"{path}: ") and "; `" not in str(caught.value)
    words = ("finetune", "name=a", "encoder.folder=a", f"task.dataset={path}")
    outcome = Command(capsys)(*words)
    assert (outcome.code, outcome.err) == (2, f"albertine: {caught.value}\n")


def test_files_and_columns_that_are_not_there(tune: Tune, mine: Mine) -> None:
    tokenizer = load_tokenizer(tune().encoder.folder)

    def read(**changes: Any) -> None:
        read_data(settings_on(tune, mine(**changes)).task, tokenizer)

    with pytest.raises(SettingsError, match="several seeds are compared on a dev set"):
        over_seeds(settings_on(tune, mine(files={"train": "train.csv"})), 2)
    for changes, message in (
        ({"columns": {"label": "verdict"}}, r"train\.csv:2: has no column `text`; it has `review`, "),
        ({"files": {**MINE["files"], "test": "test.csv"}}, r"has no test\.csv"),
        ({"files": {"dev": "dev.csv"}}, "has no training file"),
        ({"labels": ["poor", "good"]}, "has the class `fine`"),
        ({"metrics": ["f1"]}, "f1 counts the class `1`"),
        ({"kind": "similarity", "metrics": []}, r"needs columns\.pair"),
    ):
        with pytest.raises(AlbertineError, match=message):
            read(**changes)
    (mine().parent / "odd.yaml").write_text("- a\n")
    with pytest.raises(SettingsError, match=r"odd\.yaml: must hold `key: value` lines"):
        settings_on(tune, mine().parent / "odd.yaml")
    with pytest.raises(SettingsError, match=r"nowhere\.yaml: there is no such data set"):
        settings_on(tune, mine().parent / "nowhere.yaml")
    with pytest.raises(SettingsError, match=r"task\.crf is for entities, and this task is single"):
        settings_on(tune, mine(), crf=True)
    with pytest.raises(SettingsError, match=r"give task\.dataset or own files"):
        tune(task={"dataset": str(mine())})


def test_another_dev_or_test_file_of_a_named_set(tune: Tune, mine: Mine, tmp_path: Path) -> None:
    """A smaller one of the same layout, or none; the run keeps that, and so does one that is scored again."""
    path = mine(files={**MINE["files"], "test": "dev.csv"}, test_columns={"text": "review", "label": None})
    folder, small = path.parent, table(tmp_path / "small.csv", 10, 3)
    tokenizer = load_tokenizer(tune().encoder.folder)

    def sizes(**task: Any) -> tuple[int, int, int | None]:
        data = read_data(settings_on(tune, path, **task).task, tokenizer)
        assert data.dev is not None
        test = None if data.test is None else len(data.test.examples)
        return len(data.train.examples), len(data.dev.examples), test

    assert sizes() == (200, 60, 60)
    assert sizes(dev=small) == (200, 10, 60)
    assert sizes(dev=small, test=small) == (200, 10, 10)
    whole = load(FinetuneSettings, None, [
        "name=a", "encoder.folder=a", f"task.dataset={path}", f"task.dev={small}", "task.test=null"
    ])  # fmt: skip
    assert whole.task.data.files == {"train": ("train.csv",), "dev": (small,)}
    result = run(settings_on(tune, path, dev=small, test=False))
    assert result.test == {} and not (result.folder / "predictions-test.jsonl").exists()
    (again,) = evaluate_run(open_run(result.folder))
    assert len(again.data.examples) == 10
    tested = [one.split for one in evaluate_run(open_run(result.folder, [f"task.test={small}"]))]
    assert tested == ["dev", "test"]
    # Settings that a run saved without a word on its test file still mean the one of the data set.
    usual = settings_on(tune, path)
    (tmp_path / "saved.yaml").write_text(dump(usual))
    assert "test" in load(FinetuneSettings, tmp_path / "saved.yaml").task.data.files
    with pytest.raises(SettingsError, match=r"own files to learn from \(task\.train\), and not both"):
        settings_on(tune, path, train=folder / "train.csv")


def test_a_test_file_may_lack_the_labels(tune: Tune, mine: Mine) -> None:
    path = mine(files={**MINE["files"], "test": "test.csv"})
    (path.parent / "test.csv").write_text("review\nthe old man\n")
    data = read_data(settings_on(tune, path).task, load_tokenizer(tune().encoder.folder))
    assert data.test is not None and data.test.targets is None


def test_the_sets_known_by_name_are_described_as_own_ones_are() -> None:
    kinds = {named(name).kind for name in known()}
    assert len(known()) == 103 and kinds == set(KINDS) - {"multi", "similarity", "generation"}
    own = {reader for kind in KINDS.values() for reader in kind.readers}
    assert own == {found.reader for name in known() if (found := named(name)).reader}
    assert all(checked(name) for name in known())
    assert not any(name.startswith(".") for name in known())
    assert all(not set(kind.default_metrics) & set(kind.other_metrics) for kind in KINDS.values())
    assert dump(named("qqp")).count("accuracy") == 1


def test_the_pages_on_tasks_have_every_name() -> None:
    folder = Path(__file__).resolve().parents[2] / "docs" / "how-to"
    pages = "".join((folder / name).read_text(encoding="utf-8") for name in ("tasks.md", "fine-tuning.md"))
    assert [name for name in listed() if f"`{name}`" not in pages] == []


def test_its_encoding_comes_from_the_file_or_the_task(tune: Tune, mine: Mine) -> None:
    path = mine(encoding="gb18030")
    for name in ("train", "dev"):
        (path.parent / f"{name}.csv").write_bytes("review,verdict\n好书,1\n坏,0\n".encode("gb18030"))
    tokenizer = load_tokenizer(tune().encoder.folder)
    for settings in (settings_on(tune, path), settings_on(tune, mine("plain.yaml"), encoding="gb18030")):
        assert read_data(settings.task, tokenizer).train.examples[0].text == "好书"
    with pytest.raises(DataError, match=r"train\.csv"):
        read_data(settings_on(tune, mine("plain.yaml")).task, tokenizer)


def test_rows_of_qqp_that_are_broken_are_passed_over_by_similarity_too(tmp_path: Path) -> None:
    names = "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n"
    (tmp_path / "train.tsv").write_text(f"{names}1\t2\t3\tA?\tB?\t1\n4\t5\t6\tbroken\n7\t8\t9\tC?\tD?\t0\n")
    found = list(KINDS["similarity"].read(named("qqp"), tmp_path, "train"))
    assert [(e.name, e.text, e.pair, e.label) for e in found] == [("1", "A?", "B?", 1), ("7", "C?", "D?", 0)]
