"""Own files of every kind, in common forms: the right examples, or one message and its place."""

from __future__ import annotations

import codecs
import gzip
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from albertine.core.settings import resolve
from albertine.errors import DataError, SettingsError
from albertine.tasks.answer import Question
from albertine.tasks.classify import Classify
from albertine.tasks.dataset_files import Data
from albertine.tasks.dataset_registry import Dataset
from albertine.tasks.datasets.classes import label_names
from albertine.tasks.examples import Example
from albertine.tasks.finetune import finetune
from albertine.tasks.kind_settings import TaskChoice
from albertine.tasks.materialized_rows import MaterializedRows
from albertine.tasks.predict import predict_file
from albertine.tasks.prediction_rows import rows_to_predict
from albertine.tasks.predictor import Predictor
from albertine.tasks.rescore import evaluate_run, open_run
from albertine.tasks.settings import FinetuneSettings
from albertine.tasks.task_data import read_data
from albertine.tokenizers.base import Tokenizer
from albertine.tokenizers.load import load_tokenizer
from albertine.training.progress import Reporter


@pytest.fixture(scope="module")
def tokenizer(pretrained: Path) -> Tokenizer:
    return load_tokenizer(pretrained)


def lines(*rows: object) -> bytes:
    return "\n".join(map(json.dumps, rows)).encode()


def settings_of(task: Any) -> TaskChoice:
    return resolve(FinetuneSettings, {"name": "a", "encoder": {"folder": "a"}, "task": task}).task


def read(tokenizer: Tokenizer, **task: Any) -> Data:
    return read_data(settings_of({"max_length": 32, **task}), tokenizer)


def text_and_answer(example: Any) -> tuple[str, Any]:
    """The text of an example of any kind, and what is to be answered."""
    example = getattr(example, "example", example)
    answer = example.answers if isinstance(example, Question) else example.label
    passage = getattr(example, "passage", None)
    return (example.text if passage is None else passage), answer


TSV = b"text\tlabel\na good man\tyes\nhe was\tno\n"
ROWS = [("a good man", "yes"), ("he was", "no")]
LABELLED = [{"text": "a", "label": "x"}, {"text": "b", "label": "y"}]
CHOICES = [
    {"text": "a", "options": ["b", "c", "d"], "label": 1},
    {"text": "e", "options": ["f", "g"], "label": 0},
]
CHOSEN = [("a", 1), ("e", 0)]
TAGGED = [{"text": "a good man", "label": [["x", 2, 6]]}, {"text": "he was", "label": []}]
FOUND = [("a good man", (("x", 2, 6),)), ("he was", ())]
CONLL = b"a\tO\ngood\tB-x\nman\tI-x\n\nhe\tO\n"
SPANS = [("a good man", (("x", 2, 10),)), ("he", ())]
SQUAD = [
    {
        "id": "q",
        "context": "a good man",
        "question": "what",
        "answers": {"text": ["good"], "answer_start": [2]},
    }
]
QUESTIONS = [("a good man", (("good", 2),))]
DIALOGUES = [
    [["a", "b"], [{"question": "who", "choice": ["c", "d"], "answer": "d"}], "7"],
    [["e"], [{"question": "who", "choice": [1, 2, 3], "answer": 2}], "8"],
]
TRIPLES = [{"text": "man sold time", "label": [["man", "sold", "time"]]}]
RELATED = [("man sold time", (("man", "sold", "time"),))]
PAIRS = {"kind": "similarity", "pair": "other"}
PAIR_ROWS = [{"text": "a", "other": "b", "label": 1}, {"text": "c", "other": "d", "label": 0.5}]

# What a person has: file name, content, settings, and what must come of it: examples, or a message.
RIGHT: dict[str, tuple[str, bytes, dict[str, Any], list[tuple[str, Any]]]] = {
    "byte order mark": ("a.tsv", b"\xef\xbb\xbf" + TSV, {}, ROWS),
    "windows": ("a.tsv", TSV.replace(b"\n", b"\r\n"), {}, ROWS),
    "utf-16": ("a.tsv", TSV.decode().encode("utf-16"), {"encoding": "utf-16"}, ROWS),
    "gb18030": (
        "a.csv",
        "text,label\n好的,好\n不行,坏\n".encode("gb18030"),
        {"encoding": "gb18030"},
        [("好的", "好"), ("不行", "坏")],
    ),
    "no header line": (
        "a.tsv",
        TSV.partition(b"\n")[2],
        {"header": False, "text": 1, "label": 2},
        ROWS,
    ),
    "semicolons of Excel": (
        "a.csv",
        b'\xef\xbb\xbftext;label\r\n"a; ""b"",\r\nc";x\r\nd, e;y\r\n',
        {},
        [('a; "b",\r\nc', "x"), ("d, e", "y")],
    ),
    "blank lines": ("a.tsv", TSV + b"\n   \n", {}, ROWS),
    "empty text": ("a.tsv", TSV + b"\tno\n", {}, [*ROWS, ("", "no")]),
    "json list": ("a.json", json.dumps(LABELLED).encode(), {}, [("a", "x"), ("b", "y")]),
    "compressed": ("a.jsonl.gz", gzip.compress(lines(*LABELLED)), {}, [("a", "x"), ("b", "y")]),
    "true and false": (
        "a.jsonl",
        lines({"text": "a", "label": True}, {"text": "b", "label": False}),
        {},
        [("a", "true"), ("b", "false")],
    ),
    "circled digits": ("a.csv", "text,label\na,①\nb,²\n".encode(), {}, [("a", "①"), ("b", "²")]),
    "double minus": ("a.csv", b"text,label\na,--1\nb,1\n", {}, [("a", "--1"), ("b", "1")]),
    "digits without end": (
        "a.csv",
        b"text,label\na," + b"1" * 5000 + b"\nb,1\n",
        {},
        [("a", "1" * 5000), ("b", "1")],
    ),
    "column with gaps": (
        "a.csv",
        b"text,label\na,0.0\nb,1.0\nc,1.50\n",
        {},
        [("a", "0"), ("b", "1"), ("c", "1.50")],
    ),
    "floats": (
        "a.jsonl",
        lines({"text": "a", "label": 0.0}, {"text": "b", "label": 1}),
        {},
        [("a", "0"), ("b", "1")],
    ),
    "several": (
        "a.csv",
        b'text,label\na,"x, y"\nb,\nc,2.0\n',
        {"kind": "multi"},
        [("a", frozenset("xy")), ("b", frozenset()), ("c", frozenset("2"))],
    ),
    "several in lists": (
        "a.jsonl",
        lines({"text": "a", "label": ["x", 1.0]}, {"text": "b", "label": []}),
        {"kind": "multi"},
        [("a", frozenset(("x", "1"))), ("b", frozenset())],
    ),
    "several in cells, as JSON and Python write lists": (
        "a.csv",
        b'text,label\na,"[""x"", ""y, z""]"\nb,"[\'y, z\']"\nc,[]\nd,"(\'x\', 1)"\n',
        {"kind": "multi"},
        [
            ("a", frozenset(("x", "y, z"))),
            ("b", frozenset(("y, z",))),
            ("c", frozenset()),
            ("d", frozenset("x1")),
        ],
    ),
    "several in cells, as NumPy writes lists": (
        "a.tsv",
        b"text\tlabel\na\t['x' 'y z']\nb\t['x']\n",
        {"kind": "multi"},
        [("a", frozenset(("x", "y z"))), ("b", frozenset("x"))],
    ),
    "several in brackets that are no list": (
        "a.csv",
        b'text,label\na,"[x],[y]"\nb,[x]\n',
        {"kind": "multi"},
        [("a", frozenset(("[x]", "[y]"))), ("b", frozenset(("[x]",)))],
    ),
    "numbers of several classes": (
        "a.jsonl",
        lines({"text": "a", "label": [0, 1]}, {"text": "b", "label": [1]}, {"text": "c", "label": [0]}),
        {"kind": "multi"},
        [("a", frozenset("01")), ("b", frozenset("1")), ("c", frozenset("0"))],
    ),
    "choices in cells": (
        "a.csv",
        b'text,options,label\na,"[""b"", ""c"", ""d""]",1\ne,"[\'f\', \'g\']",0\n',
        {"kind": "choice"},
        CHOSEN,
    ),
    "entities in cells": (
        "a.csv",
        b'text,label\na good man,"[[""x"", 2, 6]]"\nhe was,[]\n',
        {"kind": "entities"},
        FOUND,
    ),
    "words and tags in cells": (
        "a.csv",
        b"text,label\n\"['a', 'good', 'man']\",\"['O', 'B-x', 'I-x']\"\n['he'],['O']\n",
        {"kind": "entities"},
        SPANS,
    ),
    "entities as they are predicted": (
        "a.jsonl",
        lines({"text": "a good man", "label": [["x", 2, 6, "good"]]}, TAGGED[1]),
        {"kind": "entities"},
        FOUND,
    ),
    "entities of pandas": (
        "a.jsonl",
        lines({"text": "a good man", "label": [["x", 2.0, 6.0]]}, TAGGED[1]),
        {"kind": "entities"},
        FOUND,
    ),
    "relations in cells": (
        "a.csv",
        b'text,label\nman sold time,"[[""man"", ""sold"", ""time""]]"\n',
        {"kind": "relations"},
        RELATED,
    ),
    "squad, flat, in cells": (
        "a.csv",
        b'id,context,question,answers\nq,a good man,what,"{""text"": [""good""], ""answer_start"": [2]}"\n',
        {"kind": "answers"},
        QUESTIONS,
    ),
    "squad, flat, as pandas writes arrays": (
        "a.csv",
        b"id,context,question,answers\n"
        b"q,a good man,what,\"{'text': array(['good'], dtype=object), 'answer_start': array([2.])}\"\n",
        {"kind": "answers"},
        QUESTIONS,
    ),
    "scores": ("a.csv", b"text,label\na,1.5\nb,-2\n", {"kind": "score"}, [("a", 1.5), ("b", -2.0)]),
    "choices": ("a.jsonl", lines(*CHOICES), {"kind": "choice"}, CHOSEN),
    "choices in a list": ("a.json", json.dumps(CHOICES).encode(), {"kind": "choice"}, CHOSEN),
    "letters": (
        "a.jsonl",
        lines(CHOICES[0] | {"label": "B"}, CHOICES[1] | {"label": "A"}),
        {"kind": "choice"},
        CHOSEN,
    ),
    "numbers as text": (
        "a.jsonl",
        lines(CHOICES[0] | {"label": "1"}, CHOICES[1] | {"label": 0.0}),
        {"kind": "choice"},
        CHOSEN,
    ),
    "words of options": (
        "a.jsonl",
        lines({"text": "a", "options": ["B", "A"], "label": "A"}),
        {"kind": "choice", "label_is": "text"},
        [("a", 1)],
    ),
    "dialogues": ("a.json", json.dumps(DIALOGUES).encode(), {"kind": "choice"}, [("a\nb", 1), ("e", 1)]),
    "dialogues over lines": (
        "a.json.gz",
        gzip.compress(json.dumps(DIALOGUES, indent=1).encode()),
        {"kind": "choice"},
        [("a\nb", 1), ("e", 1)],
    ),
    "entities": ("a.jsonl", lines(*TAGGED), {"kind": "entities"}, FOUND),
    "entities of doccano": (
        "a.jsonl",
        lines({"text": "a good man", "label": [[2, 6, "x"]]}, TAGGED[1]),
        {"kind": "entities"},
        FOUND,
    ),
    "conll": ("a.conll", CONLL, {"kind": "entities"}, SPANS),
    "conll of 2003": (
        "a.txt",
        b"-DOCSTART- -X- -X- O\n\n# id 1 domain=en\na DT B-NP O\ngood JJ I-NP I-x\nman NN I-NP I-x\n\n"
        b"he PRP B-NP O",
        {"kind": "entities"},
        SPANS,
    ),
    "conll as a table": ("a.tsv", CONLL.replace(b"\n", b"\r\n"), {"kind": "entities"}, SPANS),
    "conll in chinese": (
        "a.bio",
        "在 O\n北 B-x\n京 E-x\n用 O\niPhone S-y\n".encode(),
        {"kind": "entities"},
        [("在北京用iPhone", (("x", 1, 3), ("y", 4, 10)))],
    ),
    "conll with middles": (
        "a.bmes",
        "南 B-x\n京 M-x\n市 E-x\n".encode(),
        {"kind": "entities"},
        [("南京市", (("x", 0, 3),))],
    ),
    "words and tags": (
        "a.jsonl",
        lines(
            {"tokens": ["a", "good", "man"], "tags": ["O", "B-x", "I-x"]}, {"tokens": ["he"], "tags": ["O"]}
        ),
        {"kind": "entities", "text": "tokens", "label": "tags"},
        SPANS,
    ),
    "relations": ("a.jsonl", lines(*TRIPLES), {"kind": "relations"}, RELATED),
    "relations in the form of duie": (
        "a.json",
        lines(
            {
                "text": "man sold time",
                "spo_list": [{"subject": "man", "predicate": "sold", "object": "time", "object_type": "x"}],
            }
        ),
        {"kind": "relations", "label": "spo_list"},
        RELATED,
    ),
    "squad, flat": ("a.jsonl", lines(*SQUAD), {"kind": "answers"}, QUESTIONS),
    "squad, flat, in a list": ("a.json", json.dumps(SQUAD).encode(), {"kind": "answers"}, QUESTIONS),
    "squad": (
        "a.json",
        json.dumps(
            {
                "data": [
                    {
                        "paragraphs": [
                            {
                                "context": "a good man",
                                "qas": [
                                    {
                                        "id": 1,
                                        "question": "what",
                                        "answers": [{"text": "good", "answer_start": 2}],
                                    }
                                ],
                            }
                        ]
                    }
                ]
            },
            indent=1,
        ).encode(),
        {"kind": "answers"},
        QUESTIONS,
    ),
    "pairs": ("a.jsonl", lines(*PAIR_ROWS), PAIRS, [("a", 1.0), ("c", 0.5)]),
    "pairs with gaps": (
        "a.csv",
        b"text,other,label\na,b,1\nc,d,\ne,f,0.5\n",
        PAIRS,
        [("a", 1.0), ("e", 0.5)],
    ),
}


@pytest.mark.parametrize("case", RIGHT)
def test_what_people_have_is_read(tokenizer: Tokenizer, tmp_path: Path, case: str) -> None:
    name, content, settings, wanted = RIGHT[case]
    (tmp_path / name).write_bytes(content)
    data = read(tokenizer, train=tmp_path / name, **settings)
    assert [text_and_answer(e) for e in data.train.examples] == wanted


def test_flat_questions_are_read_for_written_answers_too(tokenizer: Tokenizer, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(lines(*SQUAD))
    data = read(
        tokenizer, train=tmp_path / "a.jsonl", dev=tmp_path / "a.jsonl", kind="reading", target_length=8
    )
    assert data.dev is not None
    assert [e.label for found in (data.train, data.dev) for e in found.examples] == [("good",)] * 2


@pytest.mark.parametrize("kind", ["answers", "reading"])
def test_flat_questions_have_the_columns_that_are_named(
    tokenizer: Tokenizer, tmp_path: Path, kind: str
) -> None:
    row = {"passage": "a good man", "ask": "what", "right": SQUAD[0]["answers"], "context": "x", "data": 1}
    path = tmp_path / "a.jsonl"
    path.write_bytes(lines(row))
    named = {"text": "passage", "pair": "ask", "label": "right", "kind": kind, "max_length": 64}
    data = read(tokenizer, train=path, dev=path, **named)
    assert data.dev is not None and data.family.gold(data.dev) in ([["good"]], [("good",)])
    with pytest.raises(DataError, match=r"a\.jsonl:1: has no column `body`; it has `passage`"):
        read(tokenizer, train=path, **{**named, "text": "body"})


ODD = [
    b"",
    b"\n\n",
    b"a",
    b"\xff\xfe\x00",
    b"{}",
    b"[]",
    b"[[]]",
    b'{"text": null}',
    b'["a", 1]',
    b"\x00\x01",
]
ODD += [b'"', b"\t\t\n\t", b"text,label\n", b'{"data": 1}', b'{"data": [{"paragraphs": 3}]}', b"[" * 100_000]
LONE = b'{"text": "a \\ud83d", "label": "x", "options": ["b", "c"]}\n'
WRONG: dict[str, tuple[str, bytes, dict[str, Any], str]] = {
    "gb18030 without encoding": (
        "a.csv",
        "text,label\n服务很好下次还来,好\n".encode("gb18030"),
        {},
        r"a\.csv: is not utf-8.*task\.encoding=gb18030",
    ),
    "utf-16 without encoding": (
        "a.csv",
        "text,label\na,b\n".encode("utf-16"),
        {},
        r"a\.csv: is UTF-16.*task\.encoding=utf-16",
    ),
    "no such encoding": (
        "a.csv",
        b"text,label\n",
        {"encoding": "utf-99"},
        "there is no text encoding `utf-99`",
    ),
    "nul": ("a.csv", b"text,label\na\0,b\n", {}, r"a\.csv: is a binary file.*in line 2\)"),
    "empty": ("a.csv", b"", {}, r"a\.csv: holds no train examples"),
    "names alone": ("a.csv", b"text,label\n", {}, r"a\.csv: holds no train examples"),
    "empty list": ("a.json", b"[]", {}, r"a\.json: holds no train examples"),
    "ragged": ("a.csv", b"text,label\na,b\nc\n", {}, r"a\.csv:3: has 1 fields"),
    "no header line": (
        "a.tsv",
        "体验\t8\n两岸\t3\n".encode(),
        {},
        r"has no column `text`; it has `体验`, `8`.*task\.header=false",
    ),
    "names without numbers": (
        "a.tsv",
        b"a\tx\nb\ty\n",
        {"header": False},
        r"a\.tsv:1: has no column `text`; it has `1`, `2`.*by number",
    ),
    "two of a name": ("a.csv", b"text,label,label\na,b,c\n", {}, r"a\.csv:1: has two columns `label`"),
    "empty label": (
        "a.csv",
        b"text,label\na,b\nc,\n",
        {},
        r"a\.csv:3: `label` is missing or empty\. Fill it in",
    ),
    "label of spaces": ("a.tsv", b"text\tlabel\na\tb\nc\t \n", {}, r"a\.tsv:3: `label` is missing or empty"),
    "null label": (
        "a.jsonl",
        lines(*LABELLED, {"text": "c", "label": None}),
        {},
        r"a\.jsonl:3: `label` is missing or empty",
    ),
    "nan label": (
        "a.jsonl",
        lines(*LABELLED) + b'\n{"text": "c", "label": NaN}',
        {},
        r"a\.jsonl:3: `label` is missing or empty",
    ),
    "list for a label": (
        "a.jsonl",
        lines({"text": "a", "label": ["x"]}),
        {},
        r"a\.jsonl:1: `label` is a list, not the name of a class",
    ),
    "one class": ("a.csv", b"text,label\na,b\nc,b\n", {}, r"a\.csv: has only the class `b`"),
    "text is a list": (
        "a.jsonl",
        lines({"text": ["a"], "label": "x"}),
        {},
        r"a\.jsonl:1: `text` is a list, not text",
    ),
    "half a character": ("a.jsonl", LONE, {}, r"a\.jsonl:1: has half of a character"),
    "half a character of a choice": (
        "a.jsonl",
        LONE,
        {"kind": "choice"},
        r"a\.jsonl:1: has half of a character",
    ),
    "half a character of squad": (
        "a.json",
        b'{"data": [{"paragraphs": [{"context": "\\ud83d", "qas": []}]}]}',
        {"kind": "answers"},
        r"a\.json:1: has half of a character",
    ),
    "many, without any": (
        "a.csv",
        b"text,label\na,\nb,\n",
        {"kind": "multi"},
        r"a\.csv: has no class in any row",
    ),
    "many, null": (
        "a.jsonl",
        lines({"text": "a", "label": ["x"]}, {"text": "b", "label": None}),
        {"kind": "multi"},
        r"a\.jsonl:2: `label` is missing",
    ),
    "many, in a list that is cut short": (
        "a.csv",
        b"text,label\na,['x' ... 'z']\n",
        {"kind": "multi"},
        r"a\.csv:2: `label` is `\['x' \.\.\. 'z'\]`, neither a list as JSON or Python.*Write a list as",
    ),
    "many, in a list without quotes": (
        "a.csv",
        b'text,label\na,"[x, y]"\n',
        {"kind": "multi"},
        r"a\.csv:2: `label` is `\[x, y\]`, neither a list",
    ),
    "many, as probabilities": (
        "a.jsonl",
        lines({"text": "a", "label": [0.2, 0.8]}),
        {"kind": "multi"},
        r"a\.jsonl:1: `label` is a list with the number 0\.2.*Give 1 for every class",
    ),
    "many, in a list of lists": (
        "a.jsonl",
        lines({"text": "a", "label": [[0, 1, 0]]}),
        {"kind": "multi"},
        r"a\.jsonl:1: `label` is a list, not the name of a class\. Give a row's classes in one list of",
    ),
    "many, of two lengths": (
        "a.jsonl",
        lines({"text": "a", "label": [0, 1, 0]}, {"text": "b", "label": [0, 1]}),
        {"kind": "multi"},
        r"a\.jsonl:2: `label` has a 0 or 1 for each of 2 classes, and other rows a 0 or 1 for each of 3",
    ),
    "many, in both forms": (
        "a.jsonl",
        lines({"text": "a", "label": [0, 1, 0]}, {"text": "b", "label": [1]}),
        {"kind": "multi"},
        r"a\.jsonl:2: `label` has a list of classes, and other rows a 0 or 1 for each of 3\. Give every row",
    ),
    "many, and other names": (
        "a.jsonl",
        lines({"text": "a", "label": [0, 1, 0]}),
        {"kind": "multi", "classes": ["x", "y"]},
        r"a\.jsonl:1: has a 0 or 1 for each of 3 classes, and there are names of 2: x, y\. Name as many",
    ),
    "part of a character of an entity": (
        "a.jsonl",
        lines({"text": "a good man", "label": [["x", 2.5, 6]]}),
        {"kind": "entities"},
        r"a\.jsonl:1: `label` holds \['x', 2\.5, 6\], not \[type, first, end\].*whole numbers",
    ),
    "part of a character of an answer": (
        "a.jsonl",
        lines(SQUAD[0] | {"answers": {"text": ["good"], "answer_start": [2.5]}}),
        {"kind": "answers"},
        r"a\.jsonl:1: `answers` is not what SQuAD's are \(.*2\.5",
    ),
    "tags of a text": (
        "a.jsonl",
        lines({"text": "a b", "label": ["O", "O"]}),
        {"kind": "entities"},
        r"a\.jsonl:1: `label` has tags of words, and the text is not a list of words\. Give the",
    ),
    "tags with and without a type": (
        "a.jsonl",
        lines({"text": ["a"], "label": ["B-PER"]}, {"text": ["b"], "label": ["B"]}),
        {"kind": "entities"},
        r"a\.jsonl:2: the tag `B` names no type, and `B-PER` in .*a\.jsonl:1 names one\. Give every tag",
    ),
    "an empty word": (
        "a.jsonl",
        lines({"text": ["a", "", "b"], "label": ["O", "O", "O"]}),
        {"kind": "entities"},
        r"a\.jsonl:1: `text` has an empty word at place 1, counted from 0\. Leave it out, and its tag",
    ),
    "an answer as text": (
        "a.csv",
        b"id,context,question,answers\n1,a good man,what,good\n",
        {"kind": "answers"},
        r"a\.csv:2: `answers` is text, not what SQuAD's are.*It is",
    ),
    "empty score": (
        "a.csv",
        b"text,label\na,1\nb,\n",
        {"kind": "score"},
        r"a\.csv:3: `label` is missing or empty",
    ),
    "score of words": (
        "a.csv",
        b"text,label\na,1\nb,much\n",
        {"kind": "score"},
        r"a\.csv:3: `label` is `much`, not a number",
    ),
    "score without end": (
        "a.csv",
        b"text,label\na,inf\n",
        {"kind": "score"},
        r"a\.csv:2: `label` is `inf`, not a number",
    ),
    "score with a comma": (
        "a.csv",
        b"text;label\na;4,5\n",
        {"kind": "score"},
        r"a\.csv:2: `label` is `4,5`, not a number\. Write decimals with a point",
    ),
    "true score": (
        "a.jsonl",
        lines({"text": "a", "label": True}),
        {"kind": "score"},
        r"a\.jsonl:1: `label` is true or false",
    ),
    "number beyond": (
        "a.jsonl",
        lines(CHOICES[1] | {"label": 2}),
        {"kind": "choice"},
        r"a\.jsonl:1: `label` is `2`, neither .* from 0 to 1 nor their letter from A to B",
    ),
    "letter beyond": (
        "a.jsonl",
        lines(CHOICES[1] | {"label": "C"}),
        {"kind": "choice"},
        r"a\.jsonl:1: `label` is `C`, neither",
    ),
    "two letters": (
        "a.jsonl",
        lines(CHOICES[1] | {"label": "AB"}),
        {"kind": "choice"},
        r"a\.jsonl:1: `label` is `AB`, neither",
    ),
    "true choice": (
        "a.jsonl",
        lines(CHOICES[1] | {"label": True}),
        {"kind": "choice"},
        r"a\.jsonl:1: `label` is `True`, neither",
    ),
    "no right choice": (
        "a.jsonl",
        lines(*CHOICES, {"text": "a", "options": ["b", "c"]}),
        {"kind": "choice"},
        r"a\.jsonl:3: `label` is missing",
    ),
    "one option of a dialogue": (
        "a.json",
        json.dumps([[["a"], [{"question": "b", "choice": ["c"]}], "7"]]).encode(),
        {"kind": "choice"},
        r"a\.json: `choice of question 0 of 7` is not a list of two texts or more",
    ),
    "a dialogue without words": (
        "a.json",
        json.dumps([[["a"], [{"question": 5, "choice": ["c", "d"]}], "7"]]).encode(),
        {"kind": "choice"},
        r"a\.json: is not a list of \[lines .*5 is no text.* an object a line with its options",
    ),
    "squad without words": (
        "a.json",
        b'{"data": [{"paragraphs": [{"context": "a", "qas": [{"id": "7", "question": 5}]}]}]}',
        {"kind": "answers"},
        r"a\.json: is not a file in SQuAD's format .*5 is no text",
    ),
    "options as text": (
        "a.csv",
        b'text,options,label\na,"b,c",0\n',
        {"kind": "choice"},
        r"a\.csv:2: `options` is not a list",
    ),
    "one option": (
        "a.jsonl",
        lines({"text": "a", "options": ["b"], "label": 0}),
        {"kind": "choice"},
        r"a\.jsonl:1|fewer than two",
    ),
    "no entities of a row": (
        "a.jsonl",
        lines(*TAGGED, {"text": "a"}),
        {"kind": "entities"},
        r"a\.jsonl:3: `label` is missing",
    ),
    "entity beyond": (
        "a.jsonl",
        lines({"text": "a", "label": [["x", 0, 2]]}),
        {"kind": "entities"},
        r"a\.jsonl:1: has a x from",
    ),
    "entities as text": (
        "a.csv",
        b"text,label\na,x\n",
        {"kind": "entities"},
        r"a\.csv:2: `label` is not a list",
    ),
    "a table for conll": ("a.tsv", TSV, {"kind": "entities"}, r"a\.tsv:1: `label` is no tag"),
    "a word without a tag": (
        "a.conll",
        b"a\tO\nb\n",
        {"kind": "entities"},
        r"a\.conll:2: is not a word and its tag",
    ),
    "words alone": (
        "a.conll",
        b"a\nb\n\nc\n",
        {"kind": "entities"},
        r"a\.conll:1: `label` is missing or empty",
    ),
    "fewer tags than words": (
        "a.jsonl",
        lines({"text": ["a", "b"], "label": ["O"]}),
        {"kind": "entities"},
        r"a\.jsonl:1: `label` has no tag for every one of the 2 words",
    ),
    "numbers for tags": (
        "a.jsonl",
        lines({"text": ["a"], "label": [3]}),
        {"kind": "entities"},
        r"a\.jsonl:1: `3` is no tag",
    ),
    "no relations of a row": (
        "a.jsonl",
        lines(*TRIPLES, {"text": "a"}),
        {"kind": "relations"},
        r"a\.jsonl:2: `label` is missing",
    ),
    "relations as text": (
        "a.csv",
        b"text,label\na,x\n",
        {"kind": "relations"},
        r"a\.csv:2: `label` is not a list",
    ),
    "flat squad, no place": (
        "a.jsonl",
        lines(SQUAD[0] | {"answers": {"text": ["good"]}}),
        {"kind": "answers"},
        r"a\.jsonl:1: `answers` is not what SQuAD's are",
    ),
    "flat squad, no answer": (
        "a.jsonl",
        lines(SQUAD[0], SQUAD[0] | {"answers": {"text": [], "answer_start": []}}),
        {"kind": "answers"},
        r"a\.jsonl:2: question q has no answer.*no_answer=true",
    ),
    "flat squad, no passage": (
        "a.jsonl",
        lines(*SQUAD, {"question": "a"}),
        {"kind": "answers"},
        r"a\.jsonl:2: has no column `context`",
    ),
    "score out of range": (
        "a.csv",
        b"text,other,label\na,b,3\n",
        PAIRS,
        r"a\.csv:2: `label` is 3, outside 0 to 1",
    ),
    "folder": ("a.csv/b", b"", {}, r"a\.csv: cannot be opened"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_cannot_be_read_is_one_message(tokenizer: Tokenizer, tmp_path: Path, case: str) -> None:
    name, content, settings, message = WRONG[case]
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message):
        read(tokenizer, train=tmp_path / name.partition("/")[0], **settings)


TEXT = 'a "good" man, 好'
WRITTEN: dict[str, list[dict[str, Any]]] = {
    "multi": [{"text": TEXT, "label": ["x", "y, z"]}, {"text": "he", "label": []}],
    "choice": [c | {"text": TEXT} for c in CHOICES],
    "entities": [{"text": TEXT, "label": [["x", 3, 7], ["y", 9, 12]]}, {"text": "he was", "label": []}],
    "relations": [{"text": "man sold time", "label": [["man", "sold", "time"]]}],
    "answers": [
        SQUAD[0] | {"context": 'a "good" man, good', "answers": {"text": ["good"], "answer_start": [14]}}
    ],
}


@pytest.mark.parametrize("kind", WRITTEN)
def test_what_predict_writes_is_read_again_in_every_form(tune: Any, tmp_path: Path, kind: str) -> None:
    """The rows with their own answers, and the predictions as labels."""
    source = tmp_path / "in.jsonl"
    source.write_bytes(lines(*WRITTEN[kind]))
    task = {"kind": kind, "train": source, "dev": None, "max_length": 48}
    if kind != "answers":
        task |= {"text": "text", "label": "label"}
    else:
        task |= {"text": "context", "pair": "question", "label": "answers"}
    result = finetune(tune(task=task, training={"steps": 2}), reporter=Reporter(quiet=True))
    predictor = Predictor(result.model)
    fields = predictor.family.fields
    wanted = open_run(result.folder, file=source).splits["test"]
    for ending in ("csv", "tsv", "jsonl", "parquet"):
        output = tmp_path / f"out.{ending}"
        predict_file(predictor, source, output, fields=fields)
        again = open_run(result.folder, file=output).splits["test"]
        assert list(map(text_and_answer, again.source_examples)) == list(
            map(text_and_answer, wanted.source_examples)
        )
        rows, _ = rows_to_predict(output, predictor.family, fields)
        assert [row.fields[fields.text] for row in rows] == [row["context" if kind == "answers" else "text"]
                                                             for row in WRITTEN[kind]]  # fmt: skip
        if kind == "answers":  # which are words, and not where they stand
            continue
        run = open_run(result.folder, ["task.label=prediction"], file=output)
        (judged,) = evaluate_run(run, ["test"])
        gold = run.family.gold(run.splits["test"])
        assert [sorted(g) if isinstance(g, list | tuple) else g for g in gold] == [
            sorted(a) if isinstance(a, list) else a for a in judged.answers
        ]


def test_a_shifted_offset_beside_its_words_is_refused(tokenizer: Tokenizer, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(lines({"text": "a good man", "label": [["x", 3, 7, "good"]]}))
    with pytest.raises(DataError, match=r"a\.jsonl:1: .*, and the text has `ood ` there"):
        read(tokenizer, train=tmp_path / "a.jsonl", kind="entities")


HOT = [[0, 1, 0], [1, 0, 1], [0, 0, 0]]
HOTS: dict[str, tuple[str, bytes]] = {
    "numbers": ("a.jsonl", lines(*({"text": "a", "label": row} for row in HOT))),
    "floats": ("a.jsonl", lines(*({"text": "a", "label": [*map(float, row)]} for row in HOT))),
    "bools": ("a.jsonl", lines(*({"text": "a", "label": [*map(bool, row)]} for row in HOT))),
    "text": ("a.csv", b"text,label\na,0 1 0\na,1 0 1\na,0 0 0\n"),
    "text with commas": ("a.tsv", b"text\tlabel\na\t0,1,0\na\t1,0,1\na\t0,0,0\n"),
    "cells of NumPy": ("a.csv", b"text,label\na,[0. 1. 0.]\na,[1. 0. 1.]\na,[0. 0. 0.]\n"),
    "cells of Python": ("a.tsv", b"text\tlabel\na\t[0, 1, 0]\na\t[1, 0, 1]\na\t[False, False, False]\n"),
}


@pytest.mark.parametrize("form", HOTS)
def test_a_0_or_1_for_every_class_is_a_class_per_place(
    tokenizer: Tokenizer, tmp_path: Path, form: str
) -> None:
    """As transformers takes several classes: no class is called `0` because a row lacks it."""
    name, content = HOTS[form]
    (tmp_path / name).write_bytes(content)
    path, rows = tmp_path / name, [{"y"}, {"x", "z"}, set()]
    data = read(tokenizer, train=path, dev=path, kind="multi", classes=["x", "y", "z"])
    assert data.family.labels == ("x", "y", "z") and data.train.targets is not None
    assert [list(t[0]) for t in data.train.targets] == HOT
    assert data.dev is not None and data.family.gold(data.dev) == rows
    data = read(tokenizer, train=path, kind="multi")
    assert [e.label for e in data.train.examples] == [{"1"}, {"0", "2"}, set()]
    assert data.notes == ("train: 3 examples, 3 classes by a 0 or 1 for each, numbered from 0 "
                          "(task.classes names them)",)  # fmt: skip
    known = Classify("multi", ("p", "q", "r"), ("micro_f1",), 32)
    task = settings_of({"kind": "multi", "dev": path, "train": path, "max_length": 32})
    judged = read_data(task, tokenizer, known=known)
    assert judged.dev is not None and judged.family.gold(judged.dev) == [{"q"}, {"p", "r"}, set()]
    with pytest.raises(DataError, match=r"1: has a 0 or 1 for each of 3 classes.*of 2: p, q|2: has a 0 or 1"):
        read_data(task, tokenizer, known=replace(known, labels=("p", "q")))


def test_a_dev_file_in_the_other_form_is_refused(tokenizer: Tokenizer, tmp_path: Path) -> None:
    """Whichever has more rows: the classes 0 and 1 are never those of a row with a 0 or 1 for each."""
    listed = [{"text": "a", "label": row} for row in ([1], [0, 2], [0, 1], [2], [1, 2], [0])]
    placed = [{"text": "a", "label": row} for row in ([1, 0, 0], [0, 1, 1])]
    for train, dev, name in ((listed, placed, "train"), (placed, listed, "dev")):
        (tmp_path / "train.jsonl").write_bytes(lines(*train))
        (tmp_path / "dev.jsonl").write_bytes(lines(*dev))
        with pytest.raises(
            DataError, match=rf"{name}\.jsonl:1: `label` has a list of classes, and other rows"
        ):
            read(tokenizer, train=tmp_path / "train.jsonl", dev=tmp_path / "dev.jsonl", kind="multi")


def test_arrays_of_frames_have_a_class_per_place(tokenizer: Tokenizer, tmp_path: Path) -> None:
    pd, pa = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    frame = pd.DataFrame({"text": ["a", "b", "c"], "label": [np.array(row, dtype=np.float32) for row in HOT]})
    kept = MaterializedRows.of(frame, tmp_path, "train")
    kept.write()
    frame.to_parquet(tmp_path / "a.parquet")
    frame.to_csv(tmp_path / "a.csv", index=False)
    pa.parquet.write_table(pa.table({"text": ["a", "b", "c"], "label": HOT}), tmp_path / "b.parquet")
    for path in (kept.path, tmp_path / "a.parquet", tmp_path / "a.csv", tmp_path / "b.parquet"):
        data = read(tokenizer, train=path, kind="multi")
        assert [e.label for e in data.train.examples] == [{"1"}, {"0", "2"}, set()]


LOOK_ALIKE = {
    "accents in two forms": ("caf\u00e9", "cafe\u0301"),
    "full width": ("ABC", "ＡＢＣ"),
    "a ligature": ("office", "o\ufb03ce"),
    "no width": ("good", "go\u200bod"),
    "two blanks": ("a b", "a\u3000b"),
}


@pytest.mark.parametrize("names", LOOK_ALIKE.values(), ids=LOOK_ALIKE)
def test_names_that_look_the_same_are_counted_in_every_family(
    tokenizer: Tokenizer, tmp_path: Path, names: tuple[str, str]
) -> None:
    one, other = names
    notice = "1 {} like another but for Unicode form, width or invisible characters"
    for kind, what, labels in (
        ("single", "of them", [one, other]),
        ("multi", "of them", [[one], [other]]),
        ("entities", "types", [[[one, 0, 1]], [[other, 0, 1]]]),
        ("relations", "predicates", [[["a", one, "man"]], [["a", other, "man"]]]),
    ):
        (tmp_path / "a.jsonl").write_bytes(lines(*({"text": "a man", "label": label} for label in labels)))
        (note,) = read(tokenizer, train=tmp_path / "a.jsonl", kind=kind).notes
        assert notice.format(what) in note
        (tmp_path / "b.jsonl").write_bytes(lines({"text": "a man", "label": labels[1]}))
        (tmp_path / "a.jsonl").write_bytes(
            lines({"text": "a man", "label": labels[0]}, {"text": "a man", "label": labels[0]})
            if kind != "single"
            else lines({"text": "a", "label": one}, {"text": "a", "label": "other"})
        )
        with pytest.raises(
            DataError, match=rf"b\.jsonl:1: .*which is not known\. `{one}` is known, of other"
        ):
            read(tokenizer, train=tmp_path / "a.jsonl", dev=tmp_path / "b.jsonl", kind=kind)


def test_types_and_predicates_that_differ_in_capitals_are_counted(
    tokenizer: Tokenizer, tmp_path: Path
) -> None:
    for kind, what, labels in (
        ("entities", "types", [[["Per", 0, 1]], [["PER", 0, 1]]]),
        ("relations", "predicates", [[["a", "has", "man"]], [["a", "Has", "man"]]]),
    ):
        (tmp_path / "a.jsonl").write_bytes(lines(*({"text": "a man", "label": label} for label in labels)))
        (note,) = read(tokenizer, train=tmp_path / "a.jsonl", kind=kind).notes
        assert f"1 {what} like another but for capitals" in note


@pytest.mark.parametrize("kind", ["answers", "reading"])
def test_questions_are_read_in_their_encoding(tokenizer: Tokenizer, tmp_path: Path, kind: str) -> None:
    row = {
        "id": "1",
        "context": "好书 the man",
        "question": "谁",
        "answers": {"text": ["man"], "answer_start": [7]},
    }
    (tmp_path / "a.jsonl").write_bytes(json.dumps(row, ensure_ascii=False).encode("gb18030"))
    settings = {"train": tmp_path / "a.jsonl", "kind": kind, "max_length": 48}
    data = read(tokenizer, encoding="gb18030", **settings)
    seen = data.train.examples[0]
    assert "好书" in (seen.example.passage if kind == "answers" else seen.passages[0].text)
    with pytest.raises(DataError, match=r"task\.encoding=gb18030|utf-8"):
        read(tokenizer, **settings)


NESTED = {
    "answers": {"data": [{"paragraphs": [{"context": "好书 man", "qas": [{"id": "1", "question": "谁"}]}]}]},
    "choice": [[["好书"], [{"question": "谁", "choice": ["书", "人"], "answer": "人"}], "7"]],
    "race": {"id": "high1", "article": "好书", "questions": ["谁"], "options": [["书", "人"]]},
}


@pytest.mark.parametrize("form", NESTED)
def test_forms_of_their_own_are_read_in_their_encoding(
    tokenizer: Tokenizer, tmp_path: Path, form: str
) -> None:
    content = json.dumps(NESTED[form], ensure_ascii=False)
    path, kind = tmp_path / "a.json", "answers" if form == "answers" else "choice"
    if form == "race":
        path = tmp_path / "test"
        path.mkdir()
    file = path / "1.txt" if form == "race" else path
    for encoding in ("gb18030", "utf-16"):
        file.write_bytes(content.encode(encoding))
        task = settings_of({"test": path, "kind": kind, "encoding": encoding})
        (found,) = task.examples_in("test")
        assert found.passage.startswith("好书") and found.question == "谁"
        refused = rf"{file.name}: is (not utf-8|UTF-16, not) .*or pass task\.encoding={encoding}"
        with pytest.raises(DataError, match=refused):
            list(settings_of({"test": path, "kind": kind}).examples_in("test"))
    file.write_bytes(codecs.BOM_UTF8 + content.encode())
    assert (
        len(list(settings_of({"test": path, "kind": kind, "encoding": "gb18030"}).examples_in("test"))) == 1
    )


@pytest.mark.parametrize("kind", ["answers", "reading"])
def test_questions_of_a_table_without_names(tmp_path: Path, kind: str) -> None:
    """Its first line is a question too, also where two of its fields are the same."""
    (tmp_path / "a.csv").write_text("a man,a man\nthe man,who\n")
    settings = {"test": tmp_path / "a.csv", "kind": kind, "header": False, "text": 1, "pair": 2}
    found = list(settings_of(settings).examples_in("test"))
    assert [(q.passage, q.question) for q in found] == [("a man", "a man"), ("the man", "who")]


@pytest.mark.parametrize(
    "kind", ["single", "multi", "score", "choice", "entities", "relations", "answers", "similarity"]
)
def test_whatever_it_is_there_is_no_traceback(tokenizer: Tokenizer, tmp_path: Path, kind: str) -> None:
    pair = {"pair": "other"} if kind == "similarity" else {}
    for number, content in enumerate(ODD):
        for ending in ("csv", "tsv", "jsonl", "json", "parquet", "conll", "csv.gz"):
            path = tmp_path / f"{number}.{ending}"
            path.write_bytes(content)
            with pytest.raises(DataError) as error:
                read(tokenizer, train=path, kind=kind, **pair)
            assert path.name in str(error.value)


def test_parquet_is_read_for_every_kind(tokenizer: Tokenizer, tmp_path: Path) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    for kind, rows, wanted in (
        ("single", LABELLED, [("a", "x"), ("b", "y")]),
        ("choice", CHOICES, CHOSEN),
        ("answers", SQUAD, QUESTIONS),
    ):
        pq.write_table(pa.Table.from_pylist(rows), tmp_path / f"{kind}.parquet")
        data = read(tokenizer, train=tmp_path / f"{kind}.parquet", kind=kind)
        assert [text_and_answer(e) for e in data.train.examples] == wanted
    pq.write_table(pa.Table.from_pylist([*LABELLED, {"text": "c"}]), tmp_path / "gap.parquet")
    with pytest.raises(DataError, match=r"gap\.parquet, row 3: `label` is missing or empty"):
        read(tokenizer, train=tmp_path / "gap.parquet")


def test_a_test_file_without_a_single_class_of_several_has_no_answers(
    tokenizer: Tokenizer, tmp_path: Path
) -> None:
    """No row of it states that a text has none; one class among them does."""
    train, test = tmp_path / "train.csv", tmp_path / "test.csv"
    train.write_text('text,label\na,"x, y"\nb,\n')
    for content, labelled in (("text,label\nc,\nd,\n", False), ("text,label\nc,\nd,x\n", True)):
        test.write_text(content)
        data = read(tokenizer, train=train, dev=test, test=test, kind="multi")
        assert data.test is not None and (data.test.targets is not None) == labelled
        assert data.dev.targets is not None  # none of its texts has a class, and so it is scored


def rows_with_and_without_answers(kind: str) -> tuple[bytes, bytes, bytes, str]:
    """Rows to learn from, and test rows without answers, with an answer in one of two, and their name."""
    if kind in ("single", "multi", "score"):
        train = b"text,label\na,1\nb,2\n"
        return train, b"text\nc\nd\n", b"text,label\nc,1\nd,\n", "a.csv"
    rows: Any = {
        "choice": CHOICES,
        "entities": TAGGED,
        "relations": TRIPLES,
        "answers": SQUAD,
        "reading": SQUAD,
        "generation": LABELLED,
        "similarity": [{"text": "a", "pair": "b", "label": 1}, {"text": "c", "pair": "d", "label": 0.5}],
    }[kind]
    bare = [{n: value for n, value in row.items() if n not in ("label", "answers")} for row in rows]
    return lines(*rows), lines(*bare), lines(rows[0], bare[0]), "a.jsonl"


@pytest.mark.parametrize(
    "kind",
    ["single", "score", "choice", "entities", "relations", "answers", "reading", "generation", "similarity"],
)
def test_a_test_file_may_lack_all_answers_and_not_some(
    tokenizer: Tokenizer, tmp_path: Path, kind: str
) -> None:
    train, test, some, name = rows_with_and_without_answers(kind)
    paths = {split: tmp_path / f"{split}-{name}" for split in ("train", "test", "some")}
    for path, content in zip(paths.values(), (train, test, some), strict=True):
        path.write_bytes(content)
    how = {"kind": kind, "max_length": 64} | ({"pair": "pair"} if kind == "similarity" else {})
    data = read(tokenizer, train=paths["train"], test=paths["test"], **how)
    assert data.test is not None and data.test.targets is None
    assert data.family.gold(data.test) == [None] * len(data.test.examples)
    with pytest.raises(
        DataError, match=r"some-a\.\w+:\d: `(label|answers)` is missing or empty\. Give every row of a test"
    ):
        read(tokenizer, train=paths["train"], test=paths["some"], **how)
    refused = r"-a\.\w+:\d: (has no (column )?`label`|`(label|answers)` is missing)|the dev file has"
    for split in ("test", "some"):
        with pytest.raises(DataError, match=refused):
            read(tokenizer, train=paths["train"], dev=paths[split], **how)


def test_an_empty_label_column_of_a_test_file_is_ignored(tokenizer: Tokenizer, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("text,label\na,x\nb,y\n")
    (tmp_path / "b.csv").write_text("text,label\na,\nb,\n")
    for kind in ("single", "multi"):
        data = read(tokenizer, train=tmp_path / "a.csv", test=tmp_path / "b.csv", kind=kind)
        assert data.test is not None and data.test.targets is None


def test_ids_of_own_rows_are_kept(tokenizer: Tokenizer, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,text,label\nq-7,a,x\n,b,y\n")
    data = read(tokenizer, train=tmp_path / "a.csv")
    assert [e.name for e in data.train.examples] == ["q-7", "1"]


def test_numbers_of_classes_do_not_depend_on_the_order_of_a_set() -> None:
    names = [f"{zero}{n}" for n in range(1, 21) for zero in ("", "0", "00")]
    dataset = Dataset(files={"train": ("a",)})
    found = label_names(dataset, [Example("", "", None, name, "") for name in [*names, "１"]])
    assert found == (
        "001",
        "01",
        "1",
        "１",
        *(f"{zero}{n}" for n in range(2, 21) for zero in ("00", "0", "")),
    )


def test_classes_with_a_point_are_those_of_the_rows(tokenizer: Tokenizer, tmp_path: Path) -> None:
    """In `id2label` of a model, and in a YAML file."""
    (tmp_path / "a.csv").write_text("text,label\na,0.0\nb,1.0\nc,-1.0\n")
    (tmp_path / "set.yaml").write_text(
        "files: {train: a.csv, dev: a.csv}\nlabels: [1.0, 0.0]\nleft_out: [-1.0]\n"
    )
    named = read(tokenizer, dataset=tmp_path / "set.yaml")
    assert named.family.labels == ("1", "0") and list(map(text_and_answer, named.train.examples)) == [
        ("a", "0"),
        ("b", "1"),
    ]
    own = settings_of({"train": tmp_path / "a.csv", "dev": tmp_path / "a.csv", "max_length": 32})
    known = Classify("single", ("-1.0", "0.0", "1.0"), ("accuracy",), 32)
    data = read_data(own, tokenizer, known=known)
    assert data.dev is not None
    assert data.family.labels == ("-1", "0", "1") and data.family.gold(data.dev) == ["0", "1", "-1"]
    both = replace(known, labels=("-1", "0", "1", "1.0"))  # distinguished by nothing else
    assert read_data(own, tokenizer, known=both).family.labels == both.labels


def test_rows_of_labels_that_are_left_out_are_dropped_by_every_kind_that_has_labels(
    tokenizer: Tokenizer, tmp_path: Path
) -> None:
    """Before their value is read: what is left out is often no score at all."""

    def found(kind: str, cells: Sequence[Any], left_out: str, more: str = "") -> list[Any]:
        rows = [{"text": f"a {n}", "other": "b", "label": cell} for n, cell in enumerate(cells)]
        (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        (tmp_path / "set.yaml").write_text(
            f"kind: {kind}\nfiles: {{train: a.jsonl, dev: a.jsonl}}\nleft_out: {left_out}\n"
            f"columns: {{pair: other}}\n{more}"
        )
        task = {"kind": "similarity"} if "scores" in more else {}
        data = read(tokenizer, dataset=tmp_path / "set.yaml", **task)
        dropped = len(cells) - len(data.train.examples)
        assert dropped and ("scores" in more or f", {dropped} left out, as its authors do" in data.notes[0])
        return [one.label for one in data.train.examples]

    assert found("score", [1, "-", 2.5, -1, " -1.0"], "['-', -1]") == [1, 2.5]
    several = ["a", "?", "a,b", "b,?", ["b"], ["a", "?"], [], "x,y"]
    expected = [{"a"}, {"a", "b"}, {"b"}, set()]
    assert found("multi", several, "['?', 'x,y']") == expected
    assert found("single", ["yes", True, "no", " - "], "['-', 'true']") == ["yes", "no"]
    assert found("single", [0, 1, -1.0, "-1"], "[-1]", "scores: [0, 1]") == [0, 1]


@pytest.mark.parametrize(
    "kind", ["answers", "reading", "generation", "entities", "relations", "choice"], ids=str
)
def test_labels_to_leave_out_are_refused_where_there_are_none(tmp_path: Path, kind: str) -> None:
    files = f"kind: {kind}\nfiles: {{train: a.jsonl, dev: a.jsonl}}\n"
    (tmp_path / "set.yaml").write_text(files)
    assert settings_of({"dataset": tmp_path / "set.yaml"}).kind == kind
    (tmp_path / "set.yaml").write_text(files + "left_out: ['-']\n")
    with pytest.raises(SettingsError, match=f"left_out drops.*task.kind={kind} has neither; leave it out"):
        settings_of({"dataset": tmp_path / "set.yaml"})


def test_a_message_lists_a_few_of_many_classes(tokenizer: Tokenizer, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("text,label\n" + "".join(f"a,{n}\n" for n in range(3000)))
    (tmp_path / "b.csv").write_text("text,label\na,x\n")
    with pytest.raises(DataError, match=r"the class `x`.*Known: 0, 1, 2,.* and 2,970 others") as error:
        read(tokenizer, train=tmp_path / "a.csv", dev=tmp_path / "b.csv")
    assert len(str(error.value)) < 500


def test_columns_and_header_are_set_on_the_command_line() -> None:
    task = settings_of({"train": "a.tsv", "header": False, "text": 1, "label": 2})
    assert (task.text, task.label, task.header) == ("1", "2", False)
    with pytest.raises(SettingsError):
        settings_of({"train": "a.tsv", "header": "maybe"})
