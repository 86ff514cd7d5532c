"""Multiple choice: the real files, the layout of a row, training, transformers' head, own files."""

from __future__ import annotations

import json
import shutil
import tarfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from albertine.cli.app import run
from albertine.errors import DataError, ModelError
from albertine.inference.option_rows import option_rows
from albertine.tasks.dataset_registry import Columns, named
from albertine.tasks.datasets.multiple_choice import in_own_form, own_choices, read, read_labels
from albertine.tasks.encoded import Encoded
from albertine.tasks.finetune import finetune
from albertine.tasks.multiple_choice import SHOWN, Choice, Choose, by_option, encode
from albertine.tasks.predictor import Predictor
from albertine.tasks.readers.table import rows_of
from albertine.tasks.rescore import open_run
from albertine.tasks.run_record import stamp
from albertine.tasks.task_data import missing, read_data
from albertine.tokenizers.load import load_tokenizer
from albertine.training.progress import Reporter
from tests.tasks.conftest import Tune
from tests.text.test_documents import Failing

OFFICIAL = [
    pytest.param(
        "race", "race", {"train": 87866, "dev": 4887, "test": 4934}, id="race", marks=pytest.mark.matrix
    ),
    pytest.param("dream", "dream", {"train": 6116, "dev": 2040, "test": 2041}, id="dream"),
    pytest.param("c3", "c3", {"train": 11869, "dev": 3816, "test": 3892}, id="c3"),
]


@pytest.mark.parametrize(("name", "folder", "counts"), OFFICIAL)
def test_real_files_have_their_official_counts(
    shared_data: Path, name: str, folder: str, counts: dict[str, int]
) -> None:
    for split, count in counts.items():
        found = list(read(named(name), shared_data / folder, split))
        assert len(found) == count, split
        assert all(e.label is not None and e.passage and e.question for e in found)
        assert len({e.name for e in found}) == count
        if name == "race" and split == "dev":
            groups = Counter(e.group for e in found)
            assert groups == {"middle": 1436, "high": 3451}
            assert groups["middle"] == len(list(read(named("race-middle"), shared_data / folder, split)))


def test_a_passage_of_race_that_cannot_be_read_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "RACE" / "dev" / "high" / "7.txt"
    path.parent.mkdir(parents=True)
    path.touch()
    race = named("race")
    monkeypatch.setattr(Path, "open", lambda *_, **__: Failing(b""))
    for rows in (read(race, tmp_path, "dev"), in_own_form(tmp_path, Columns(), "utf-8", "task.")):
        assert rows is not None
        with pytest.raises(DataError, match=r"7\.txt: cannot be read \(.*\. Check the disk"):
            list(rows)


def test_race_as_a_folder_is_race_as_an_archive(tmp_path: Path) -> None:
    tree = {
        "id": "high7.txt",
        "article": "A cat sat.",
        "questions": ["What sat?", "It was _ that sat."],
        "options": [["a cat", "a dog"], ["a dog", "a cat"]],
        "answers": ["A", "B"],
    }
    path = tmp_path / "folder" / "RACE" / "dev" / "high" / "7.txt"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(tree))
    (tmp_path / "archive").mkdir()
    with tarfile.open(tmp_path / "archive" / "RACE.tar.xz", "w:xz") as tar:
        tar.add(tmp_path / "folder" / "RACE", "RACE")
    plain, packed = (list(read(named("race"), tmp_path / f, "dev")) for f in ("folder", "archive"))
    assert [(e.name, e.options, e.label, e.group) for e in plain] == [
        ("high7.txt-0", ("a cat", "a dog"), 0, "high"),
        ("high7.txt-1", ("a dog", "a cat"), 1, "high"),
    ]
    assert [e.options for e in plain] == [e.options for e in packed]
    for wrong, message in (
        ({"id": "high7.txt"}, "is not a RACE passage"),
        ({**tree, "answers": ["A", "C"]}, r"is not a RACE passage \('C' is not in list"),
        ({**tree, "answers": ["", "A"]}, "is not a RACE passage"),
        ({**tree, "article": 5}, r"is not a RACE passage \(5 is no text"),
        ({**tree, "options": [["a cat", "a dog"], ["a dog"]]}, r"`options\[1\]` is not a list of two texts"),
    ):
        path.write_text(json.dumps(wrong))
        with pytest.raises(DataError, match=message):
            list(read(named("race"), tmp_path / "folder", "dev"))


def test_a_folder_of_passages_is_an_own_file(tune: Tune, tmp_path: Path) -> None:
    """Training and prediction use the same form, which a run detects from its files."""
    passage = {"article": "A cat sat.", "questions": ["who?"], "options": [["a", "b"]], "answers": ["B"]}
    (folder := tmp_path / "RACE" / "high").mkdir(parents=True)
    for number in (2, 10):
        (folder / f"{number}.txt").write_text(json.dumps({"id": f"high{number}.txt", **passage}))
    settings = tune(task={"train": tmp_path / "RACE", "dev": folder, "kind": "choice"})
    assert missing(settings.task) is None
    data = read_data(settings.task, load_tokenizer(settings.encoder.folder))
    assert [(e.name, e.label) for e in data.train.examples] == [("high2.txt-0", 1), ("high10.txt-0", 1)]
    before = stamp(settings)
    (folder / "2.txt").write_text(json.dumps({"id": "high2.txt", **passage, "answers": ["A"]}))
    assert stamp(settings) != before


def test_the_row_of_an_option(tune: Tune) -> None:
    tokenizer = load_tokenizer(tune().encoder.folder)
    cls, sep = tokenizer.cls_id, tokenizer.sep_id

    def row(passage: str, question: str, limit: int = 60) -> tuple[list[int], list[int]]:
        rows, _ = option_rows(tokenizer, passage, question, ["the old man"], limit)
        return rows[0]

    passage, option = tokenizer.encode("he was at home"), tokenizer.encode("the old man")
    question_ids = tokenizer.encode("who was it the old man")
    filled = tokenizer.encode("it was the old man there")
    ids, types = row("he was at home", "who was it")
    assert ids == [cls, *passage, sep, *question_ids, sep]
    assert types == [0] * (len(passage) + 2) + [1] * (len(question_ids) + 1)
    assert row("he was at home", "it was _ there")[0] == [cls, *passage, sep, *filled, sep]
    assert row("he was at home", "")[0] == [cls, *passage, sep, *option, sep]
    assert row("it was #idiom# there", "") == ([cls, *filled, sep], [0] * (len(filled) + 2))
    for gap in ("____", "_______________", "__①__"):
        assert row("he was at home", f"it was {gap} there")[0] == row("he was at home", "it was _ there")[0]
        assert row(f"it was {gap} there", "")[0] == [cls, *filled, sep]
    name, tight = tokenizer.encode("he was at my_house"), tokenizer.encode("wasthe old manthere")
    assert row("he was at my_house", "")[0] == [cls, *name, sep, *option, sep], "a name is no gap"
    assert row("he was at my_house", "was_there")[0] == [cls, *name, sep, *tight, sep]
    # The passage gives way; of the question the end stays, where the option is.
    short, _ = row("he was at home " * 20, "who was it " * 20, limit=30)
    assert len(short) == 30 and short[-1 - len(option) : -1] == option
    _, cut = option_rows(tokenizer, "he was " * 50, "who", ["a", "b"], 30)
    assert cut == 2


def test_options_of_unequal_number() -> None:
    logits = np.array([[1.0], [2.0], [0.0], [5.0], [4.0]], dtype=np.float32)
    table = by_option(logits, (3, 2))
    assert table.tolist() == [[1.0, 2.0, 0.0], [5.0, 4.0, float("-inf")]]
    assert Choose(32).outputs == 1


def questions(path: Path, count: int, seed: int) -> Path:
    """The right option names the word that the passage has; two or three options."""
    rng = np.random.default_rng(seed)
    words = ["house", "time", "man", "night"]
    lines = []
    for _ in range(count):
        options = [str(w) for w in rng.permutation(words)[: int(rng.integers(2, 4))]]
        answer = int(rng.integers(len(options)))
        lines.append({"text": "he said good", "ask": "what was it", "options": options, "right": answer})
        # Learnable without attention between the segments: the right one is marked.
        lines[-1]["options"][answer] = "never " + options[answer]  # type: ignore[index]
    path.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    return path


def command_of_the_column_of_options(folder: Path, dev: Path, out: Path, capsys: Any) -> None:
    """`--options` names the column, and messages name `--options`."""
    rows = [json.loads(line) for line in dev.read_text().splitlines()]
    other = out / "other.jsonl"
    other.write_text(
        "\n".join(json.dumps({**row, "options": "none", "picks": row["options"]}) for row in rows)
    )
    words = ["predict", "choose", str(folder), "--precision", "float32", "--pair", "ask", "-o"]
    assert run([*words, str(out / "a.jsonl"), "--file", str(dev)]) == 0
    assert run([*words, str(out / "b.jsonl"), "--file", str(other), "--options", "picks"]) == 0
    usual, found = ([r.fields["prediction"] for r in rows_of(out / f"{name}.jsonl")] for name in "ab")
    assert found == usual
    capsys.readouterr()
    assert run([*words, str(out / "c.jsonl"), "--file", str(other), "--options", "choices"]) == 2
    assert "has no column `choices`" in (stderr := capsys.readouterr().err) and "--options COLUMN" in stderr
    assert run(["predict", "classify", str(folder), "a", "--options", "picks"]) == 2
    assert "No such option" in capsys.readouterr().err


def test_a_run_learns_to_choose_and_transformers_agrees(tune: Tune, tmp_path: Path, capsys: Any) -> None:
    from transformers import AutoModelForMultipleChoice

    task = {
        "train": questions(tmp_path / "train.jsonl", 200, 1),
        "dev": questions(tmp_path / "dev.jsonl", 60, 2),
        "test": questions(tmp_path / "test.jsonl", 20, 3),
        "text": "text",
        "pair": "ask",
        "label": "right",
        "kind": "choice",
    }
    result = finetune(tune(task=task), reporter=Reporter(quiet=True))
    assert result.scores["accuracy"] > 0.8 and result.test["accuracy"] > 0.7
    lines = [json.loads(x) for x in (result.folder / "predictions-dev.jsonl").read_text().splitlines()]
    assert sum(x["prediction"] == x["label"] for x in lines) / 60 == pytest.approx(result.scores["accuracy"])
    assert {len(x["probabilities"]) for x in lines} == {2, 3}

    predictor = Predictor(result.folder / "best", precision="float32")
    options = ["house", "never time", "man"]
    ours = predictor.choose("he said good", options, question="what was it")
    assert max(range(3), key=ours.__getitem__) == 1
    theirs = AutoModelForMultipleChoice.from_pretrained(result.folder / "best").eval()
    rows, _ = option_rows(predictor.tokenizer, "he said good", "what was it", options, 64)
    width = max(len(ids) for ids, _ in rows)

    def padded(values: list[list[int]]) -> torch.Tensor:
        return torch.tensor([[v + [0] * (width - len(v)) for v in values]])

    with torch.no_grad():
        logits = theirs(
            input_ids=padded([ids for ids, _ in rows]),
            token_type_ids=padded([types for _, types in rows]),
            attention_mask=padded([[1] * len(ids) for ids, _ in rows]),
        ).logits
    assert ours == pytest.approx(logits.softmax(-1)[0].tolist(), abs=1e-5)
    for nothing in (["b"], "bc"):
        with pytest.raises(DataError, match=r"^asked\[0\]: `options` is not a list of two texts or more"):
            predictor.choose("a", nothing)
    command_of_the_column_of_options(result.folder, task["dev"], tmp_path, capsys)
    for passage, choices, question in (
        ("\ud800", "bc", ""),
        ("a", ("b", "\ud800"), ""),
        ("a", "bc", "\ud800"),
    ):
        with pytest.raises(DataError, match=r"^asked\[0\]: has half of a character"):
            predictor.choose(passage, list(choices), question=question)


def test_a_classifier_does_not_choose(tune: Tune) -> None:
    folder = finetune(tune(training={"epochs": 0.1}), reporter=Reporter(quiet=True)).folder
    with pytest.raises(ModelError, match="tuned to classify texts, and cannot choose among options"):
        Predictor(folder / "best").choose("a", ["b", "c"])


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"text": "a", "options": "b", "right": 0}', "`options` is not a list"),
        ('{"text": "a", "options": ["b"], "right": 0}', "not a list of two texts or more"),
        ('{"text": "a", "options": ["b", "c"], "right": 3}', r"neither one of the options nor their number"),
        ('{"text": "a", "options": ["b", "c"], "right": "d"}', r"`right` is `d`"),
        ('{"options": ["b", "c"], "right": 1}', "has no column `text`"),
    ],
)
def test_wrong_own_files_are_reported_with_their_line(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "q.jsonl"
    path.write_text('{"text": "a", "options": ["b", "c"], "right": "c"}\n' + line)
    with pytest.raises(DataError, match=r"q\.jsonl:2.*" + message):
        list(own_choices(rows_of(path), Columns(label="right")))


def test_answers_that_are_missing(tmp_path: Path, tune: Tune) -> None:
    tokenizer = load_tokenizer(tune().encoder.folder)
    examples = [Choice("1", "a", "b", ("c", "d"), None, "x"), Choice("2", "a", "b", ("c", "d"), 1, "x")]
    assert encode(examples, tokenizer, 32).targets is None
    found = encode(examples[1:], tokenizer, 32)
    assert found.targets is not None and [t.tolist() for t in found.targets] == [[1]]
    assert found.lengths.tolist() == [sum(len(ids) for ids in found.ids)] and found.sizes == (2,)


@pytest.mark.matrix
@pytest.mark.parametrize("name", ["c3", "dream"])
def test_real_sets_go_the_whole_way(tune: Tune, shared_data: Path, name: str) -> None:
    task = {"train": None, "dev": None, "text": "text", "label": "label", "dataset": name}
    settings = tune(
        name=name,
        task={**task, "folder": shared_data / name, "max_length": 48},
        training={"epochs": 0.003, "micro_batch_tokens": 8192},
        watching={"evaluations": 1},
    )
    result = finetune(settings, reporter=Reporter(quiet=True))
    assert 0 < result.scores["accuracy"] < 1
    assert (result.folder / "predictions-test.jsonl").is_file()


def test_a_missing_test_file_is_no_matter_and_a_damaged_one_is(tune: Tune, tmp_path: Path) -> None:
    lines = [[["A: good."], [{"question": "What?", "choice": ["good", "bad"], "answer": "good"}], "1"]]
    for split in ("train", "dev"):
        (tmp_path / f"{split}.json").write_text(json.dumps(lines))
    task = {"train": None, "dev": None, "dataset": "dream", "folder": tmp_path}
    settings = tune(task=task, training={"epochs": 1})
    tokenizer = load_tokenizer(settings.encoder.folder)
    assert read_data(settings.task, tokenizer).test is None
    (tmp_path / "test.json").write_text("[[")
    with pytest.raises(DataError, match=r"test\.json:1: is not JSON"):
        read_data(settings.task, tokenizer)


def test_a_passage_is_shown_up_to_its_length() -> None:
    def shown(length: int) -> str:
        choice = Choice("0", "x" * length, "what", ("a", "b"), None, "")
        row = [np.zeros(1, dtype=np.int32)] * 2
        data = Encoded((choice,), row, [r.astype(np.int8) for r in row], np.array([0, 2]), None, 0)
        (line,) = Choose(32).lines(np.zeros((2, 1)), data, [0])
        return str(line["passage"])

    assert shown(SHOWN) == "x" * SHOWN and shown(SHOWN + 1) == "x" * SHOWN + " …"


def choices(*rows: tuple[list[object], object]) -> dict[str, list[Choice]]:
    """Questions to learn from, by their options and what stands in the column of the right one."""
    given = [{"text": "a", "options": options, "right": right} for options, right in rows]
    return {"train": list(own_choices(rows_of(given, name="train"), Columns(label="right")))}


@pytest.mark.parametrize(
    ("options", "right", "number"),
    [
        ([10, 20, 30], 20.0, 1),
        ([7, 9], 0, 0),
        (["1", "2"], 1, 1),  # a number is no text
        ([True, False], 0, 0),  # to Python 0 is false
    ],
)
def test_options_that_are_numbers(options: list[object], right: float, number: int) -> None:
    _, read = read_labels(choices((options, right)))
    assert [e.label for e in read["train"]] == [number]


CASES = [
    (["one", "two", "three"], "1"),
    (["1", "2", "3"], "1"),
    (["B", "A", "C"], "B"),
]
"""The first can only be a place; the others may be a place or a text, and are different options by it."""


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0)])
def test_the_label_is_read_in_one_way_in_all_rows(order: tuple[int, ...]) -> None:
    label_is, read = read_labels(choices(*(CASES[i] for i in order)))
    assert label_is == "place" and [e.label for e in read["train"]] == [1, 1, 1]
    label_is, read = read_labels(choices(*CASES[1:], (["x", "y"], "y")))
    assert label_is == "text" and [e.label for e in read["train"]] == [0, 0, 1]


def test_an_ambiguous_label_is_an_error_without_label_is() -> None:
    refused = (
        r"train\[0\]: `right` is `1`, as a place the option `2` and as a text `1`.*Set task\.label_is=place"
    )
    with pytest.raises(DataError, match=refused):
        read_labels(choices(*CASES[1:]))
    for label_is, numbers in (("place", [1, 1]), ("text", [0, 0]), ("place_from_1", [0, 1])):
        notices, read = read_labels(choices(*CASES[1:]), label_is)
        assert notices == label_is and [e.label for e in read["train"]] == numbers
    label_is, read = read_labels(choices((["0", "1"], "1")))  # the same option either way
    assert label_is is None and [e.label for e in read["train"]] == [1]


def test_labels_of_two_kinds_are_refused_with_a_row_of_each() -> None:
    with pytest.raises(DataError, match=r"train\[1\]: .* `y`, not the number.*train\[0\]: `1`.*in one way"):
        read_labels(choices((["x", "y"], 1), (["x", "y"], "y")))
    with pytest.raises(DataError, match=r"train\[1\]: .* `2`, not the.*set task\.label_is=place_from_1$"):
        read_labels(choices((["x", "y"], 1), (["x", "y"], 2)))
    _, read = read_labels(choices((["x", "y"], 1), (["x", "y"], 2)), "place_from_1")
    assert [e.label for e in read["train"]] == [0, 1]


def test_the_way_of_a_model_decides_where_both_fit_alone() -> None:
    """Catches: an unambiguous file refused as it has texts, and the model learned from places."""
    for usual, numbers in (("place", [1, 1]), ("text", [0, 0]), ("place_from_1", [0, 1])):
        notices, read = read_labels(choices(*CASES[1:]), None, usual)
        assert notices == usual and [e.label for e in read["train"]] == numbers
        notices, read = read_labels(choices((["x", "y"], "y")), None, usual)
        assert notices == "text" and [e.label for e in read["train"]] == [1]
    notices, read = read_labels(choices((["x", "y"], 1)), None, "text")
    assert notices == "place" and [e.label for e in read["train"]] == [1]
    with pytest.raises(DataError, match=r"neither one of the options nor their number from 1 to 2"):
        read_labels(choices((["x", "y"], 0)), None, "place_from_1")


def test_dev_and_evaluate_read_labels_as_the_training_file(tune: Tune, tmp_path: Path) -> None:
    """Catches: a dev file or one to be scored that decides for itself, since its own rows fit both ways."""

    def file(name: str, *rows: tuple[list[object], object]) -> Path:
        lines = (json.dumps({"text": "a", "options": o, "label": r}) for o, r in rows)
        (tmp_path / name).write_text("\n".join(lines))
        return tmp_path / name

    sure, either = file("sure.jsonl", *CASES), file("either.jsonl", *CASES[1:])
    task = {"kind": "choice", "text": "text", "label": "label", "max_length": 32}
    settings = tune(task={**task, "train": sure, "dev": either}, training={"steps": 1})
    run = finetune(settings, reporter=Reporter(quiet=True)).folder
    alone = tmp_path / "alone"
    shutil.copytree(run / "best", alone)
    for judged in (
        open_run(run),
        open_run(run, file=either),
        open_run(alone, file=either),
        open_run(alone, ["task.label_is=place"], file=either),
    ):
        assert [e.label for data in judged.splits.values() for e in data.examples] == [1, 1]
    stated = open_run(alone, ["task.label_is=text"], file=either)
    assert [e.label for e in stated.splits["test"].examples] == [0, 0]
    texts = open_run(run, file=file("text.jsonl", (["one", "two"], "two"), (["2", "1"], "1")))
    assert [e.label for e in texts.splits["test"].examples] == [1, 1]
    with pytest.raises(DataError, match=r"both\.jsonl:2: `label` is `1`, not the text of an option"):
        open_run(run, file=file("both.jsonl", (["one", "two"], "two"), (["one", "two"], 1)))


def test_chid_in_the_layout_of_clue(tune: Tune, tmp_path: Path) -> None:
    """Each blank is a question of its own, whose answer stands in another file by its number."""
    idioms = ["一心一意", "三心二意", "五湖四海"]
    texts = ["他#idiom000001#地学习,朋友来自#idiom000002#。", "没有成语。", "不要#idiom000003#。"]
    line = json.dumps({"candidates": idioms, "content": texts}, ensure_ascii=False)
    answers = {"#idiom000001#": 0, "#idiom000002#": 2, "#idiom000003#": 1}
    for split in ("train", "dev"):
        (tmp_path / f"{split}.json").write_text(line)
        (tmp_path / f"{split}_answer.json").write_text(json.dumps(answers, indent=1))
    (tmp_path / "test1.1.json").write_text(line)
    named_set = {"dataset": "clue-chid", "folder": tmp_path, "train": None, "dev": None}
    own = {"kind": "choice", "train": tmp_path / "train.json", "dev": None, "text": "text", "label": "label"}
    own["test"] = tmp_path / "test1.1.json"
    tokenizer = load_tokenizer(tune().encoder.folder)
    for task in (named_set, own):
        data = read_data(tune(task={**task, "max_length": 32}).task, tokenizer)
        found = data.train.examples
        assert [e.name for e in found] == list(answers) and [e.label for e in found] == [0, 2, 1]
        assert found[1].passage == "他____地学习,朋友来自#idiom#。" and found[1].options == tuple(idioms)
        assert data.test is not None and data.test.targets is None and len(data.test.examples) == 3
    settings = tune(task={**named_set, "max_length": 32}, training={"steps": 1})
    before = stamp(settings)
    (tmp_path / "train_answer.json").write_text(json.dumps(answers | {"#idiom000002#": 0}))
    assert stamp(settings) != before
    (tmp_path / "train_answer.json").write_text(json.dumps(answers | {"#idiom000002#": 3}))
    with pytest.raises(
        DataError, match=r"train\.json:1: `#idiom000002#` has no answer from 0 to 2 in .*answer"
    ):
        read_data(settings.task, tokenizer)
    (tmp_path / "train_answer.json").unlink()
    with pytest.raises(DataError, match=r"has no train_answer\.json"):
        read_data(settings.task, tokenizer)
