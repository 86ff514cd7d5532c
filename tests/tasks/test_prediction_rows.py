"""Files that finetune reads, as rows to predict: those of a form of their own, and tables as they are."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from albertine import Predictor
from albertine.cli.app import run
from albertine.errors import DataError
from albertine.inference.search import Search
from albertine.inference.windows import WindowSettings
from albertine.tasks import predict, predictor
from albertine.tasks.answer import Answer
from albertine.tasks.classify import Classify
from albertine.tasks.families import KINDS
from albertine.tasks.family import Fields
from albertine.tasks.finetune import finetune
from albertine.tasks.generate import Read, Room
from albertine.tasks.multiple_choice import Choose
from albertine.tasks.predict import predict_file
from albertine.tasks.prediction_rows import rows_to_predict
from albertine.tasks.readers.table import rows_of
from albertine.tasks.relate import Relate
from albertine.tasks.tag import Tag
from albertine.training.progress import Reporter
from tests.tasks.conftest import Tune
from tests.tasks.test_answer import squad

NO_TOKENIZER: Any = None
FAMILIES: dict[str, Any] = {
    "answer": Answer(reading=WindowSettings(16)),
    "read": Read(NO_TOKENIZER, Room(16, 4), Search()),
    "tag": Tag(("O", "B-x", "I-x"), 8, False),
    "choose": Choose(8),
    "relate": Relate(("p",), 8),
    "classify": Classify("single", ("a", "b"), (), 8),
}
SQUAD_QUESTION = {"id": "7", "question": "who", "answers": []}
TREE = {
    "version": "1",
    "data": [{"title": "t", "paragraphs": [{"context": "a man", "qas": [SQUAD_QUESTION]}]}],
}
WEBQA = {"q_key": "7", "question_tokens": ["who"], "evidences": [{"evidence_tokens": ["a", "man"]}]}
DIALOGUE = [[["m: hi", "f: oh"], [{"question": "who", "choice": ["a", "b"]}], "7"]]
QUESTION = {"id": "7", "question": "who", "context": "a man"}
CASES: dict[str, tuple[str, str, str, list[dict[str, Any]]]] = {
    "squad": ("answer", "a.json", json.dumps(TREE), [QUESTION]),
    "squad over lines": ("answer", "a.json", json.dumps(TREE, indent=1), [QUESTION]),
    "squad for a reader": ("read", "a.json", json.dumps(TREE), [QUESTION]),
    "webqa": ("read", "a.json", json.dumps(WEBQA), [QUESTION]),
    "flat questions": ("answer", "a.json", json.dumps([QUESTION]), [QUESTION]),
    "flat questions with data": ("answer", "a.jsonl", json.dumps({**QUESTION, "data": 1}), [QUESTION]),
    "rows of questions": ("answer", "a.jsonl", json.dumps(QUESTION), [QUESTION]),
    "conll": ("tag", "a.conll", "a B-x\nman O\n\n北 O\n京 O\n", [{"text": "a man"}, {"text": "北京"}]),
    "conll without tags": ("tag", "a.txt", "a\nman\n", [{"text": "a man"}]),
    "tsv": ("tag", "a.tsv", "text\tn\na man\t1\n", [{"text": "a man", "n": "1"}]),
    "words": ("tag", "a.jsonl", '{"text": ["a", "man"], "n": 1}', [{"text": "a man", "n": 1}]),
    "dialogues": (
        "choose",
        "a.json",
        json.dumps(DIALOGUE),
        [{"id": "7-0", "question": "who", "text": "m: hi\nf: oh", "options": ["a", "b"]}],
    ),
    "options": ("choose", "a.json", '[{"text": "a", "options": ["b", "c"]}]', []),
    "options that are numbers": ("choose", "a.jsonl", '{"text": "a", "options": [3, 4.5]}', []),
    "duie": ("relate", "a.json", '{"text": "a man", "spo_list": []}', [{"text": "a man"}]),
    "a table": ("classify", "a.txt", "text\na man\n", [{"text": "a man"}]),
}


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_every_form_becomes_rows(case: str, packed: bool, tmp_path: Path) -> None:
    task, name, content, expected = CASES[case]
    path = tmp_path / (f"{name}.gz" if packed else name)
    path.write_bytes(gzip.compress(content.encode()) if packed else content.encode())
    rows, fields = rows_to_predict(path, FAMILIES[task])
    found = [dict(row.fields) for row in rows]
    for row, want in zip(found, expected, strict=False):
        assert {name: row[name] for name in want} == want
        assert fields.text in row and (fields.pair is None or fields.pair in row)
    assert len(found) == max(1, len(expected))
    if task == "choose":
        again, _ = rows_to_predict(path, FAMILIES[task])
        assert all(len(FAMILIES[task].example(row, fields).options) == 2 for row in again)


@pytest.mark.parametrize(
    "case", ["squad", "squad over lines", "squad for a reader", "webqa", "dialogues", "conll without tags"]
)
def test_the_rows_of_predictions_are_the_rows_of_evaluation(case: str, tmp_path: Path) -> None:
    """A file in a form of its own is found to be that by `predict` and `evaluate` alike."""
    family, path = FAMILIES[CASES[case][0]], tmp_path / CASES[case][1]
    kind = family.settings["kind"]
    path.write_text(CASES[case][2])
    rows, fields = rows_to_predict(path, family)
    of_predict = [dict(row.fields) for row in rows]
    judged = [
        {"id": e.name, fields.text: getattr(e, "passage", "") or e.text}
        | ({} if fields.pair is None else {fields.pair: e.question})
        | ({fields.options: list(e.options)} if case == "dialogues" else {})
        for e in KINDS[kind](kind=kind, test=path).examples_in("test")
    ]
    assert of_predict == judged and judged


@pytest.mark.parametrize("case", ["squad", "squad for a reader", "webqa", "dialogues", "conll"])
def test_messages_name_the_options_of_the_command(case: str, tmp_path: Path) -> None:
    task, name, content, _ = CASES[case]
    content = content.replace("man", "grand\u00e9").replace("oh", "grand\u00e9")
    (tmp_path / name).write_bytes(content.encode("latin-1", "ignore"))
    with pytest.raises(DataError, match=r"or pass --encoding=latin-1") as error:
        list(rows_to_predict(tmp_path / name, FAMILIES[task], prefix="--")[0])
    assert "task." not in str(error.value)


def test_columns_are_named_as_requested(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps(TREE))
    rows, fields = rows_to_predict(tmp_path / "a.json", FAMILIES["answer"], Fields("passage", "asked"))
    assert dict(next(rows).fields) == {"id": "7", "asked": "who", "passage": "a man"}
    assert fields == Fields("passage", "asked")


def test_a_folder_of_race_is_rows(tmp_path: Path) -> None:
    passage = {"article": "A cat sat.", "questions": ["who?"], "options": [["a", "b"]], "answers": ["A"]}
    for level, number in (("high", 10), ("high", 9), ("middle", 1)):
        (tmp_path / level).mkdir(exist_ok=True)
        text = json.dumps({"id": f"{level}{number}.txt", **passage})
        (tmp_path / level / f"{number}.txt").write_text(text)
    rows, fields = rows_to_predict(tmp_path, FAMILIES["choose"])
    found = list(rows)
    assert [row.fields["id"] for row in found] == ["high9.txt-0", "high10.txt-0", "middle1.txt-0"]
    assert found[0].fields[fields.pair or ""] == "who?" and found[0].fields["options"] == ["a", "b"]
    before = predict._digest(tmp_path)
    (tmp_path / "high" / "9.txt").rename(tmp_path / "high" / "8.txt")
    renamed = predict._digest(tmp_path)
    (tmp_path / "middle" / "1.txt").write_text("{}")
    assert len({before, renamed, predict._digest(tmp_path)}) == 3
    with pytest.raises(DataError, match=r"1\.txt: is not a RACE passage"):
        list(rows_to_predict(tmp_path, FAMILIES["choose"])[0])


def test_what_is_in_no_form(tmp_path: Path) -> None:
    for name, content, task, message in (
        ("a.json", '{"data": [{"paragraphs": 1}]}', "answer", "not a file in SQuAD's format"),
        ("a.jsonl", '{"question": "a"\n', "answer", "is not JSON"),
        ("a.json", "[[1, 2]]", "choose", "list of"),
        ("a.conll", "a O\nman\n", "tag", "a.conll:2: is not a word and its tag"),
    ):
        (tmp_path / name).write_text(content)
        with pytest.raises(DataError, match=message):
            list(rows_to_predict(tmp_path / name, FAMILIES[task])[0])


def without_answers(path: Path) -> Path:
    tree = json.loads(path.read_text())
    for paragraph in tree["data"][0]["paragraphs"]:
        del paragraph["qas"][0]["answers"]
    path.write_text(json.dumps(tree))
    return path


@pytest.mark.parametrize("change", [lambda path: path, without_answers], ids=["answers", "no answers"])
def test_every_question_of_squad_is_answered_once(
    tune: Tune,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: Any,
    change: Callable[[Path], Path],
) -> None:
    monkeypatch.setattr(predict, "CHUNK", 16)
    monkeypatch.setattr(predictor, "CHUNK", 16)
    train, dev = squad(tmp_path / "train.json", 40, 1), squad(tmp_path / "dev.json", 40, 2)
    task = {"train": train, "dev": dev, "kind": "answers", "max_length": 16}
    result = finetune(tune(task=task, training={"steps": 2}), reporter=Reporter(quiet=True))
    predictions = [
        json.loads(line) for line in (result.folder / "predictions-dev.jsonl").read_text().splitlines()
    ]
    source, output = change(dev), tmp_path / "out.csv"

    def stop(done: int, total: int | None) -> None:
        if done == 32:
            raise KeyboardInterrupt

    loaded = Predictor(result.folder, precision="float32")
    usual = Fields("context", "question")
    with pytest.raises(KeyboardInterrupt):
        predict_file(loaded, source, output, fields=usual, progress=stop, top=0)
    words = ["predict", "answer", str(result.folder), "--file", str(source), "-o", str(output)]
    assert run([*words, "--precision", "float32"]) == 0
    assert "40 rows" in capsys.readouterr().out.replace("32 of them by an earlier", "")
    found = [dict(row.fields) for row in rows_of(output)]
    assert [(row["id"], row["prediction"]) for row in found] == [
        (s["id"], s["prediction"]) for s in predictions
    ]
    assert list(found[0])[:3] == ["id", "question", "context"]
