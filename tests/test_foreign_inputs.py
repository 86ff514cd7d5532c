"""Every verb with files as users have them: the right answer, or one line of error.

A row of a table is an input, real bytes in a real file; a column is a verb. A cell is `SAME`, the answer to
the plain form of that input; `DONE`, exit 0; or words of the one line on standard error with which the
command ends with 2, having written nothing.
"""

from __future__ import annotations

import codecs
import gzip
import io
import json
import lzma
import os
import shutil
import sys
import tarfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from typer.main import get_command

from albertine.cli import app
from albertine.cli.app import run
from tests.cli.conftest import Command, Outcome, albertine
from tests.evaluation.test_suites import write as write_suite
from tests.toy import RUN, demo_text

__all__ = ["albertine"]

SAME, DONE = "the same", "done"
CELL = str | Mapping[str, str | None]
"""How the verbs end: one way for all, or by the name of the verb, `*` for the others; None: not run."""

TUNED: dict[str, list[dict[str, Any]]] = {
    "single": [{"text": "good old house", "label": "fine"}, {"text": "he never said", "label": "poor"}],
    "entities": [{"text": "a good man", "label": [["x", 2, 6]]}],
    "answers": [{"context": "a man", "question": "who", "answers": {"text": ["man"], "answer_start": [2]}}],
    "generation": [{"text": "a good man", "label": "good"}],
    "choice": [{"text": "a man", "options": ["good", "old"], "label": 1}],
    "relations": [{"text": "the man sold time", "label": [["man", "sold", "time"]]}],
    "similarity": [
        {"text": "a man", "other": "the man", "label": 0.8},
        {"text": "b", "other": "c", "label": 0},
    ],
    "reading": [{"context": "a man", "question": "who", "answers": {"text": ["man"], "answer_start": [2]}}],
}
MORE: dict[str, list[str]] = {
    "generation": ["task.target_length=6", "task.beams=1"],
    "reading": ["task.target_length=6", "task.beams=1"],
    "similarity": ["task.pair=other"],
}
"""Settings that a kind requires besides its files."""


class Home(NamedTuple):
    """A corpus, a pretrained model, a run of every kind in `runs`, named by it, and minimal pairs."""

    text: Path
    corpus: Path
    model: Path
    runs: Path
    pairs: Path


def learn(home: Home, train: Path, output: Path, kind: str = "single", *more: object) -> list[object]:
    settings = [
        f"output={output}",
        f"encoder.folder={home.model}",
        f"task.kind={kind}",
        f"task.train={train}",
    ]
    settings += ["task.max_length=32", "training.steps=1", "training.precision=float32"]
    settings += ["watching.tensorboard=false", "watching.report=false", *MORE.get(kind, [])]
    return ["finetune", f"name={kind}", *settings, *more]


def pretrain(corpus: Path, output: Path, *more: object) -> list[object]:
    return ["pretrain", "name=p", f"output={output}", f"corpus={corpus}", *RUN, "training.steps=1", *more]


def distill(teacher: Path, corpus: Path, output: Path) -> list[object]:
    words = [word for word in RUN if not word.startswith("model.")]
    return ["distill", teacher, corpus, "-o", output / "s", "--depth", 1, *words, "training.steps=1"]


def suite(model: Path, pairs: Path) -> list[object]:
    return ["suite", "blimp", model, "--data", pairs, "--limit", 1, "--json"]


@pytest.fixture(scope="module", autouse=True)
def one_table_of_verbs() -> Iterator[None]:
    """The table of verbs is built once: that takes as long as the command itself does here."""
    table = get_command(app.build())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(app, "build", lambda: table)
        yield


@pytest.fixture(scope="module", autouse=True)
def two_pairs_are_a_paradigm() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("albertine.evaluation.suites.PAIRS", 2)
        yield


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    folder = tmp_path_factory.mktemp("home")
    text = demo_text("en", folder / "text", 60_000)
    found = Home(text, folder / "corpus", folder / "runs" / "p" / "final", folder / "runs", folder / "b")
    vocabulary = ["--vocab-size", "200", "--held-out", "0.3"]
    commands = [["prepare", text, "-o", found.corpus, "--workers", "1", *vocabulary]]
    commands.append(pretrain(found.corpus, found.runs, "model.preset=albert-tiny-zh"))
    for kind, rows in TUNED.items():
        train = folder / f"{kind}.jsonl"
        train.write_text("\n".join(map(json.dumps, rows * 4)))
        dev = [f"task.dev={train}"] if kind == "single" else []
        commands.append(learn(found, train, found.runs, kind, *dev))
    commands.append(["card", found.model, "--licence", "mit"])
    for command in commands:
        assert run([str(word) for word in command]) == 0
    write_suite(found.pairs, "blimp", 2)
    return found


Verb = Callable[[Home, Path, Path], list[object]]
"""The words of a command: of an input and of a folder for what it writes."""

TEXT: dict[str, Verb] = {
    "prepare": lambda home, file, out: [
        *("prepare", file, "-o", out / "c", "--tokenizer", home.corpus / "tokenizer", "--language", "en"),
        *("--workers", 1, "--min-characters", 0, "--held-out", 0),
    ],
    "tokenizer train": lambda home, file, out: [
        *("tokenizer", "train", file, "-o", out / "v", "--vocab-size", 50, "--language", "en")
    ],
    "tokenizer inspect": lambda home, file, out: [
        *("tokenizer", "inspect", home.corpus / "tokenizer", file, "--json")
    ],
    "convert --whiten": lambda home, file, out: ["convert", home.model, out / "m", "--whiten", file],
    "convert --sample": lambda home, file, out: [
        *("convert", home.model, out / "m", "--share", "--sample", file)
    ],
    "score --texts": lambda home, file, out: [
        *("score", home.model, home.corpus, "--texts", file, "--sequences", 4, "--json")
    ],
    "cloze": lambda home, file, out: [
        *("cloze", file, "-o", out / "q", "--questions", 20, "--language", "en", "--json")
    ],
    "prune": lambda home, file, out: [
        *("prune", home.model, file, "-o", out / "m", "--language", "en", "--workers", 1)
    ],
}


def predict(task: str, kind: str, name: str, *more: object) -> Verb:
    return lambda home, file, out: [
        *("predict", task, home.runs / kind, "--file", file, "-o", out / name, *more)
    ]


TABLE: dict[str, Verb] = {
    "finetune": lambda home, file, out: learn(home, file, out),
    "evaluate --file": lambda home, file, out: [
        *("evaluate", home.runs / "single", "--file", file, "-o", out / "judged")
    ],
    "ensemble --file": lambda home, file, out: [
        *("ensemble", home.runs / "single", home.runs / "single", "--file", file, "-o", out / "judged")
    ],
    "predict classify": predict("classify", "single", "o.jsonl"),
    "predict tag": predict("tag", "entities", "o.csv"),
    "predict answer": predict("answer", "answers", "o.jsonl", "--text", "text", "--pair", "question"),
    "predict generate": predict("generate", "generation", "o.jsonl"),
    "predict relate": predict("relate", "relations", "o.jsonl"),
    "predict read": predict("read", "reading", "o.jsonl", "--text", "text", "--pair", "question"),
    "predict similarity": predict(
        "similarity", "similarity", "o.csv", "--text", "text", "--pair", "question"
    ),
    "predict embed": predict("embed", "p/final", "o.jsonl"),
}
FILES = [verb for verb in TABLE if verb.startswith("predict")]

PREDICT: dict[str, Verb] = {
    "predict classify": lambda home, file, out: ["predict", "classify", home.runs / "single"],
    "predict tag": lambda home, file, out: ["predict", "tag", home.runs / "entities"],
    "predict generate": lambda home, file, out: ["predict", "generate", home.runs / "generation"],
    "predict fill-mask": lambda home, file, out: ["predict", "fill-mask", home.model],
    "predict embed": lambda home, file, out: ["predict", "embed", home.model],
}
"""Verbs that read lines of standard input."""

MODEL: dict[str, Verb] = {
    "info": lambda home, model, out: ["info", model],
    "tokenizer encode": lambda home, model, out: ["tokenizer", "encode", model, "the man"],
    "pretrain": lambda home, model, out: [
        *("pretrain", "name=p", f"output={out}", f"corpus={home.corpus}", f"model.start_from={model}"),
        *(word for word in RUN if not word.startswith("model.")),
    ],
    "finetune": lambda home, model, out: learn(
        home._replace(model=model), home.runs.parent / "single.jsonl", out
    ),
    "score": lambda home, model, out: ["score", model, home.corpus, "--sequences", 4],
    "predict fill-mask": lambda home, model, out: ["predict", "fill-mask", model, "the [MASK]"],
    "convert": lambda home, model, out: ["convert", model, out / "m"],
    "analyze depth": lambda home, model, out: ["analyze", "depth", model, "the man", "--depths", 2],
    "analyze attention": lambda home, model, out: ["analyze", "attention", model, "the man"],
    "analyze lens": lambda home, model, out: ["analyze", "lens", model, "the [MASK]"],
    "analyze layers": lambda home, model, out: ["analyze", "layers", model, "the man"],
    "prune": lambda home, model, out: ["prune", model, home.corpus, "-o", out / "m"],
    "distill": lambda home, model, out: distill(model, home.corpus, out),
    "suite": lambda home, model, out: suite(model, home.pairs),
    "export": lambda home, model, out: ["export", model, out / "m", "--head", "fill-mask"],
    "serve": lambda home, model, out: ["serve", model, "--port", 0],
    "card": lambda home, model, out: ["card", model],
    "push": lambda home, model, out: ["push", model, "a/b", "--dry-run"],
}

PAIRS: dict[str, Verb] = {"suite": lambda home, pairs, out: suite(home.model, pairs)}

CORPUS: dict[str, Verb] = {
    "info": lambda home, corpus, out: ["info", corpus],
    "pretrain": lambda home, corpus, out: pretrain(corpus, out, "model.preset=albert-tiny-zh"),
    "score": lambda home, corpus, out: ["score", home.model, corpus, "--sequences", 4],
    "distill": lambda home, corpus, out: distill(home.model, corpus, out),
    "prune": lambda home, corpus, out: ["prune", home.model, corpus, "-o", out / "m"],
}

TUNED_RUN: dict[str, Verb] = {
    "info": lambda home, run, out: ["info", run],
    "evaluate": lambda home, run, out: [
        *("evaluate", run, "-o", out / "judged", "--file", home.runs.parent / "single.jsonl")
    ],
    "predict classify": lambda home, run, out: ["predict", "classify", run, "the man"],
    "convert": lambda home, run, out: ["convert", run, out / "m"],
    "report": lambda home, run, out: ["report", run, "-o", out / "r"],
    "ensemble": lambda home, run, out: ["ensemble", run, home.runs / "single", "-o", out / "judged"],
    "export": lambda home, run, out: ["export", run, out / "m"],
    "serve": lambda home, run, out: ["serve", run, "--port", 0],
    "card": lambda home, run, out: ["card", run],
}

FEW: dict[str, set[str]] = {
    "cloze": {"gb18030", "utf-16", "latin-1, late", "nul", "pdf", "empty", "half of JSON", "damaged Parquet"}
    | {"gzip cut off", "zip", "tar cut off", "folder", "nothing", "link to itself"},
    "prune": {"plain", "gzip", "gb18030", "latin-1, late", "another field", "gzip cut off", "zip", "blank"}
    | {"weights cut off", "nan", "another vocabulary", "half a manifest", "tokens cut off", "no tokenizer"},
    "ensemble --file": {"plain", "gb18030", "latin-1", "nul", "names alone", "no names", "short row", "null"}
    | {"another label", "open quote", "damaged Parquet", "folder", "nothing"},
    "analyze depth": {"a tensor more", "weights cut off", "a tensor less", "half a configuration"}
    | {"another type", "no vocabulary", "another vocabulary"},
    "analyze attention": {"nan", "no vocabulary", "another vocabulary"},
    "analyze lens": {"weights cut off", "nan", "another type", "no vocabulary", "another vocabulary"},
    "analyze layers": {"weights cut off", "nan", "half a configuration", "no vocabulary"},
    "serve": {"weights cut off", "nan", "half a configuration", "another type", "no vocabulary"}
    | {"another vocabulary", "pickled weights", "no model yet"},
    "export": {"whole", "weights cut off", "nan", "half a configuration", "another type", "no vocabulary"}
    | {"another vocabulary", "pickled weights", "no model yet", "binary settings"},
    "distill": {"weights cut off", "nan", "half a configuration", "another type", "half a manifest"}
    | {"another version", "tokens cut off", "no tokens", "no tokenizer", "nothing"},
}
"""The only rows for verbs that take long, or whose tests have inputs of their own."""

# Texts.

WORDS = ["house", "man", "time", "wall", "road", "hand", "door", "life", "book", "word", "tree", "fire"]
EN = (
    "\n\n".join(
        f"The old {a} was good, said the {b}. He went to the {a}, and never came back to it."
        for a in WORDS
        for b in WORDS
    ).encode()
    + b"\n"
)
ZH = "服务很好，下次还来。老人说他从来没有去过那座房子。\n\n".encode() * 9
LATIN = EN.replace(b"old man", "café".encode("latin-1"))


def tar_of(*members: tuple[str, bytes]) -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tar:
        for name, data in members:
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return content.getvalue()


def zip_of(name: str, data: bytes) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as file:
        file.writestr(name, data)
    return content.getvalue()


Row = tuple[str, bytes | Callable[[Path], object], CELL]
LINES_OF_ANY = {"convert --sample": DONE}
"""It reads lines of plain text, whatever they are, and no more than 64 of them."""

TEXTS: dict[str, Row] = {
    "plain": ("a.txt", EN, SAME),
    "byte order mark": ("a.txt", b"\xef\xbb\xbf" + EN, SAME),
    "windows": ("a.txt", EN.replace(b"\n", b"\r\n"), SAME),
    "mac": ("a.txt", EN.replace(b"\n", b"\r"), SAME),
    "gzip": ("a.txt.gz", gzip.compress(EN), SAME),
    "xz without its name": ("a.txt", lzma.compress(EN), SAME),
    "tar": ("a.tar", tar_of(("a.txt", EN)), {"*": SAME, "convert --sample": "binary file"}),
    "gb18030": (
        "a.txt",
        ZH.decode().encode("gb18030"),
        {"*": "--encoding gb18030", "convert --sample": "is not utf-8"},
    ),
    "utf-16": ("a.txt", EN.decode().encode("utf-16"), {"*": "is UTF-16", "convert --sample": "is not utf-8"}),
    "latin-1": ("a.txt", LATIN, {"*": "--encoding latin-1", "convert --sample": "is not utf-8"}),
    "latin-1, late": ("a.txt", EN * 9 + LATIN, "is not utf-8 text (line 2608"),
    "nul": ("a.txt", b"the \0 man\n" + EN, "is a binary file, not text (NUL byte"),
    "pdf": (
        "a.pdf",
        b"%PDF-1.4\n1 0 obj\n" + EN,  # plain characters, as some are
        "is a PDF, which is not read. Save its words as plain text in UTF-8",
    ),
    "empty": ("a.txt", b"", {"*": "is empty", "convert --sample": "no line with text"}),
    "blank": ("a.txt", b"\n \n\t\n", {"*": "holds no text", "convert --sample": "no line with text"}),
    "one word": ("a.txt", b"man", {"*": DONE, "tokenizer train": "too short", "convert --whiten": "too few"}),
    "long line": ("a.txt", EN.replace(b"\n", b" ") * 3, DONE),
    "long word": (
        "a.txt",
        b"x" * 20_000,
        {"*": DONE, "tokenizer train": "too short", "convert --whiten": "too few"},
    ),
    "another field": (
        "a.jsonl",
        b'{"body": "a"}\n',
        {"*": "no field `text`. Pass --text-field", **LINES_OF_ANY},
    ),
    "half of JSON": (
        "a.jsonl",
        b'{"text": "a"}\n{"text": \n',
        {"*": "a.jsonl:2: is not a line of JSON", **LINES_OF_ANY},
    ),
    "list of JSON": ("a.jsonl", b'["a"]\n', {"*": "holds a JSON list, not an object", **LINES_OF_ANY}),
    "deep JSON": ("a.jsonl", b"[" * 100_000, {"*": "is not a line of JSON", **LINES_OF_ANY}),
    "number for a text": ("a.jsonl", b'{"text": 3}\n', {"*": "holds int, not text", **LINES_OF_ANY}),
    "damaged Parquet": ("a.parquet", b"PAR1" + b"x" * 99, {"*": "is damaged", **LINES_OF_ANY}),
    "gzip cut off": (
        "a.txt.gz",
        gzip.compress(EN)[:-20],
        "is damaged or cut off (gzip: the file ends too early)",
    ),
    "gzip by name alone": ("a.txt.gz", EN, "is named .gz but holds no gzip data"),
    "bomb": ("a.txt.gz", gzip.compress(bytes(1 << 22)), {"*": "binary file", "convert --sample": "NUL byte"}),
    "zip": ("a.zip", zip_of("a.txt", EN), "is a zip, 7z or rar archive, which is not read. Unpack it first"),
    "tar cut off": (
        "a.tar",
        tar_of(("a.txt", EN))[:9999],
        {"*": "is damaged or cut off (tar", "convert --sample": "binary"},
    ),
    "tar of nothing to read": (
        "a.tar",
        tar_of(("a.txt", LATIN)),
        {"*": "a.tar:a.txt: is not utf-8", "convert --sample": "binary"},
    ),
    "tar with an odd member": (
        "a.tar",
        tar_of(("0.txt", LATIN), ("a.txt", EN)),
        {"*": SAME, "convert --sample": "binary"},
    ),
    "tar with a zip": (
        "a.tar",
        tar_of(("a.txt", EN), ("b.txt", zip_of("b", EN))),
        {"*": SAME, "convert --sample": "binary"},
    ),
    "tar in a tar": (
        "a.tar",
        tar_of(("a.txt", EN), ("b.tar", tar_of(("b", EN)))),
        {"*": SAME, "convert --sample": "binary"},
    ),
    "folder": (
        "in",
        lambda path: path.mkdir(),
        {"*": "no text file in this folder", "convert --sample": "Is a directory"},
    ),
    "folder with an odd file": (
        "in",
        lambda path: odd_folder(path),
        {"*": SAME, "convert --sample": "Is a directory"},
    ),
    "nothing": ("none/a.txt", lambda path: None, {"*": "no such file", "convert --sample": "No such file"}),
    "link to itself": (
        "a.txt",
        lambda path: path.symlink_to(path),
        {"*": "no such file", "convert --sample": "symbolic links"},
    ),
}


def odd_folder(folder: Path) -> None:
    folder.mkdir()
    for name, content in {
        "a.txt": EN,
        "b.txt": LATIN,
        "c.jpg": b"\xff\xd8\0",
        "d.txt": b"",
        ".e.txt": EN,
    }.items():
        (folder / name).write_bytes(content)


# Tables.

ROWS = [("the good old house", "what was good", "fine"), ("he never said a word", "who said", "poor")] * 4
CSV = ("text,question,label\n" + "".join(f"{a},{b},{c}\n" for a, b, c in ROWS)).encode()
JSON = [{"text": a, "question": b, "label": c} for a, b, c in ROWS]
LINES = "".join(json.dumps(row) + "\n" for row in JSON).encode()


def unread(message: str) -> dict[str, str]:
    """A column that only tuning and evaluation read."""
    return {"*": message, **dict.fromkeys(FILES, DONE)}


NO_SQUAD = dict.fromkeys(("predict answer", "predict read"), "is not a file in SQuAD's format")


def lacks(columns: str) -> dict[str, str]:
    """How verbs end on a table of other columns: each names the first that it looks for."""
    with_question = dict.fromkeys(("predict answer", "predict read"), f"has no column `question`; {columns}")
    return {"*": f"has no column `text`; {columns}", **with_question}


LATE = dict.fromkeys(("finetune", "evaluate --file", "predict classify"), "is not utf-8 text (line 13501")

TABLES: dict[str, Row] = {
    "plain": ("a.csv", CSV, SAME),
    "tabs": ("a.tsv", CSV.replace(b",", b"\t"), SAME),
    "byte order mark": ("a.csv", b"\xef\xbb\xbf" + CSV, SAME),
    "windows": ("a.csv", CSV.replace(b"\n", b"\r\n"), SAME),
    "mac": ("a.csv", CSV.replace(b"\n", b"\r"), SAME),
    "blank lines": ("a.csv", CSV.replace(b"\n", b"\n\n"), SAME),
    "all in quotes": ("a.csv", b'"' + CSV.replace(b",", b'","').replace(b"\n", b'"\n"')[:-1], SAME),
    "JSON lines": ("a.jsonl", LINES, SAME),
    "list of JSON": ("a.json", json.dumps(JSON, indent=1).encode(), SAME),
    "gzip": ("a.csv.gz", gzip.compress(CSV), SAME),
    "gb18030": ("a.csv", CSV.replace(b"good", "服务很好下次还来".encode("gb18030")), "encoding=gb18030"),
    "utf-16": ("a.csv", CSV.decode().encode("utf-16"), "encoding=utf-16"),
    "latin-1": ("a.csv", CSV.replace(b"word", b"caf\xe9"), "encoding=latin-1"),
    "latin-1, late": ("a.csv", CSV * 1500 + b"caf\xe9,b,fine\n", LATE),
    "nul": ("a.csv", CSV.replace(b"word", b"wo\0rd"), "is a binary file"),
    "empty": ("a.csv", b"", "a.csv: holds no"),
    "names alone": ("a.csv", b"text,question,label\n", "a.csv: holds no"),
    "no names": ("a.csv", CSV.partition(b"\n")[2], lacks("it has `the good old house`")),
    "short row": ("a.csv", CSV + b"a,b\n", "a.csv:10: has 2 fields, the file has 3 columns"),
    "long row": ("a.csv", CSV + b"a,b,fine,c\n", "a.csv:10: has 4 fields, the file has 3 columns"),
    "no text in a row": ("a.csv", CSV + b",what,fine\n", DONE),
    "no label in a row": ("a.csv", CSV + b"a,b,\n", unread("a.csv:10: `label` is missing or empty")),
    "no labels": ("a.csv", b"text,question\na,b\nc,d\n", {"*": DONE, "finetune": "has no column `label`"}),
    "another label": (
        "a.csv",
        CSV + b"a,b,c\n",
        {"*": DONE, **dict.fromkeys(("evaluate --file", "ensemble --file"), "has the class `c`, which")},
    ),
    "circled label": (
        "a.csv",
        CSV.replace(b"fine", "①".encode()),
        {"*": DONE, "evaluate --file": "the class `①`"},
    ),
    "open quote": ("a.csv", CSV + b'"a,b,fine\n', "a.csv:10: is not CSV (unexpected end of data)"),
    "break in quotes": ("a.csv", CSV + b'"say\n""a""",b,fine\n', DONE),
    "two of a name": ("a.csv", b"text,text,label\na,b,fine\n", "a.csv:1: has two columns `text`"),
    "long field": ("a.csv", CSV + b"man " * 4000 + b",b,fine\n", DONE),
    "half of a character": (
        "a.jsonl",
        LINES.replace(b"word", b"\\ud83d"),
        "a.jsonl:2: has half of a character",
    ),
    "null": ("a.jsonl", b'{"text": null, "question": "b", "label": "fine"}\n', "`text` is empty, not text"),
    "list for a text": (
        "a.jsonl",
        LINES.replace(b'"he never said a word"', b"[1]"),
        "`text` is a list, not text",
    ),
    "true for a text": (
        "a.jsonl",
        LINES.replace(b'"he never said a word"', b"true"),
        "`text` is true or false",
    ),
    "number without end": ("a.jsonl", b'{"text": ' + b"9" * 5000 + b"}\n", "is not JSON (Exceeds"),
    "deep JSON": ("a.json", b"[" * 100_000, "is not JSON"),
    "lists in a list": ("a.json", b'[["a", "b"]]', {"*": "holds a list, not an object", **NO_SQUAD}),
    "word of JSON": ("a.json", b'"abc"', {"*": "holds text, not an object", **NO_SQUAD}),
    "squad": (
        "a.json",
        b'{"data": [{"paragraphs": []}]}',
        {
            "*": "has no column `text`; it has `data`",
            **dict.fromkeys(("predict answer", "predict read"), "holds no rows"),
        },
    ),
    "conll": ("a.conll", b"a\tO\nman\tB-x\n\nhe\tO\n", {**lacks("it has `a`, `O`"), "predict tag": DONE}),
    "damaged Parquet": ("a.parquet", b"PAR1xxxx", "is damaged or no Parquet file"),
    "gzip cut off": ("a.csv.gz", gzip.compress(CSV)[:-9], "is damaged or cut off"),
    "zip": ("a.zip", zip_of("a.csv", CSV), "is a zip, 7z or rar archive"),
    "workbook": (
        "a.xlsx",
        zip_of("xl/workbook.xml", CSV),
        "is a workbook of a spreadsheet, which is not read. Save its sheet there as CSV in UTF-8",
    ),
    "tar": ("a.tar", tar_of(("a.csv", CSV)), "is a binary file"),
    "folder": ("a.csv", lambda path: path.mkdir(), "(Is a directory)"),
    "nothing": ("a.csv", lambda path: None, "(No such file or directory)"),
}

# Rows of the other kinds, whose answers are lists and objects.

OWN: dict[str, tuple[str, Verb]] = {
    f"finetune {kind}": (kind, lambda home, file, out, kind=kind: learn(home, file, out, kind))
    for kind in ("choice", "relations", "similarity", "reading")
} | {
    "predict choose": ("choice", predict("choose", "choice", "o.jsonl")),
    "predict read": ("reading", predict("read", "reading", "o.jsonl")),
    "predict relate": ("relations", predict("relate", "relations", "o.jsonl")),
}
"""Verbs, each with the kind whose rows it is given."""
Rows = list[dict[str, Any]]


def as_lines(rows: Rows) -> bytes:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


def with_values(**values: object) -> Callable[[Rows], bytes]:
    """Rows of which the second has other values in those of these columns that it has."""

    def make(rows: Rows) -> bytes:
        second = dict(rows[1])
        for name in [n for n in values if n in second]:
            second[name] = values[name]
        return as_lines([rows[0], second, *rows[2:]])

    return make


def lacking(*names: str) -> Callable[[Rows], bytes]:
    return lambda rows: as_lines([{k: v for k, v in row.items() if k not in names} for row in rows])


def without_answers(**ends: str) -> dict[str, str]:
    """How tuning ends without answers; prediction does not read them."""
    predicting = dict.fromkeys((verb for verb in OWN if verb.startswith("predict")), DONE)
    return predicting | {f"finetune {kind}": end for kind, end in ends.items()}


ANSWER = ("label", "answers")
OF_KIND: dict[str, tuple[str, Callable[[Rows], bytes], CELL]] = {
    "plain": ("a.jsonl", as_lines, SAME),
    "byte order mark": ("a.jsonl", lambda rows: b"\xef\xbb\xbf" + as_lines(rows), SAME),
    "windows": ("a.jsonl", lambda rows: as_lines(rows).replace(b"\n", b"\r\n"), SAME),
    "blank lines": ("a.jsonl", lambda rows: as_lines(rows).replace(b"\n", b"\n\n"), SAME),
    "list of JSON": ("a.json", lambda rows: json.dumps(rows, indent=1).encode(), SAME),
    "gzip": ("a.jsonl.gz", lambda rows: gzip.compress(as_lines(rows)), SAME),
    "gb18030": (
        "a.jsonl",
        lambda rows: as_lines(rows).decode().replace("man", "服务很好下次还来").encode("gb18030"),
        "encoding=gb18030",
    ),
    "nul": ("a.jsonl", lambda rows: as_lines(rows).replace(b"man", b"m\0n"), "is a binary file"),
    "empty": ("a.jsonl", lambda rows: b"", "a.jsonl: holds no"),
    "half of JSON": ("a.jsonl", lambda rows: as_lines(rows)[:-9], "is not JSON"),
    "half of a character": (
        "a.jsonl",
        lambda rows: as_lines(rows).replace(b"man", b"\\ud83d"),
        "has half of a character",
    ),
    "no answers": (
        "a.jsonl",
        lacking(*ANSWER),
        without_answers(
            choice="is missing or empty",
            relations="is missing or empty",
            similarity="has no scores to learn from",
            reading="is missing or empty",
        ),
    ),
    "another answer": (
        "a.jsonl",
        with_values(label={"a": 1}, answers=3),
        without_answers(
            choice="neither one of the options nor their number",
            relations="is not a list of triples",
            similarity="`label` is an object, not text",
            reading="`answers` is a number, not what SQuAD's are",
        ),
    ),
    "no text": ("a.jsonl", lacking("text", "context"), "has no column `"),
    "a list for a text": ("a.jsonl", with_values(text=[1], context=[1]), "is a list, not text"),
    "an empty text": (
        "a.jsonl",
        with_values(text="", context=""),
        {"*": DONE, "finetune relations": "`text` is empty"},
    ),
    "a long text": ("a.jsonl", with_values(text="man " * 4000, context="man " * 4000), DONE),
    "one option": (
        "a.jsonl",
        with_values(options=["old"]),
        dict.fromkeys(("finetune choice", "predict choose"), "is not a list of two texts or more"),
    ),
    "options in one text": (
        "a.jsonl",
        with_values(options="good, old"),
        dict.fromkeys(("finetune choice", "predict choose"), "is not a list of two texts or more"),
    ),
    "a triple of two": (
        "a.jsonl",
        with_values(label=[["man", "sold"]]),
        {"finetune relations": "A triple is [subject, predicate, object]", "predict relate": DONE},
    ),
    "a score outside": ("a.jsonl", with_values(label=7), {"finetune similarity": "outside 0 to 1"}),
    "places that are words": (
        "a.jsonl",
        with_values(answers={"text": ["man"], "answer_start": ["two"]}),
        {"finetune reading": "`answers` is not what SQuAD's are", "predict read": DONE},
    ),
}

# Lines of standard input.

MASKED_LINES = b"the old [MASK]\nhe said [MASK]\n"
NO_MASK = {"predict fill-mask": "there is no [MASK] in the text"}
STANDARD_INPUTS: dict[str, tuple[bytes, CELL]] = {
    "plain": (MASKED_LINES, SAME),
    "byte order mark": (b"\xef\xbb\xbf" + MASKED_LINES, SAME),
    "windows": (MASKED_LINES.replace(b"\n", b"\r\n"), SAME),
    "no end": (MASKED_LINES[:-1], SAME),
    "gb18030": (
        "服务很好[MASK]下次还来\n".encode("gb18030"),
        "line 1 is not UTF-8 text. Convert it before: iconv -f gb18030",
    ),
    "utf-16": (
        MASKED_LINES.decode().encode("utf-16"),
        "line 1 is not UTF-8 text. Convert it before: iconv -f utf-16",
    ),
    "latin-1 in a later line": (
        MASKED_LINES + b"caf\xe9 [MASK]\n",
        "line 3 is not UTF-8 text. Convert it before: iconv -f latin1",
    ),
    "nul": (b"a [MASK]\0b\n", "line 1 is binary, not text"),
    "zip": (zip_of("a", MASKED_LINES), "line 1 is binary, not text"),
    "nothing": (b"", DONE),
    "blank": (b"\n \n", DONE),
    "long line": (b"the [MASK] " + b"man " * 9000 + b"\n", DONE),
    "no mask": (b"the man\n", {"*": DONE, **NO_MASK}),
    "mask far away": (
        b"man " * 2000 + b"[MASK]\n",
        {"*": DONE, "predict fill-mask": "within the first 512 tokens"},
    ),
}


# Models, corpora and runs, broken.

Break = Callable[[Path], object]


def changed(name: str, change: Callable[[bytes], bytes]) -> Break:
    return lambda folder: (folder / name).write_bytes(change((folder / name).read_bytes()))


def keys(**values: object) -> Break:
    return changed("config.json", lambda old: json.dumps({**json.loads(old), **values}).encode())


def tensors(change: Callable[[dict[str, Any]], object]) -> Break:
    def broken(folder: Path) -> None:
        found = load_file(folder / "model.safetensors")
        change(found)
        save_file(found, folder / "model.safetensors", metadata={"format": "pt"})

    return broken


def without(*names: str) -> Break:
    return lambda folder: [(folder / name).unlink(missing_ok=True) for name in names]


def vocabulary(content: bytes) -> Break:
    def broken(folder: Path) -> None:
        without("spiece.model", "tokenizer.json")(folder)
        (folder / "vocab.txt").write_bytes(content)

    return broken


def pickled(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def indexed(content: str) -> Break:
    def broken(folder: Path) -> None:
        (folder / "model.safetensors").rename(folder / "other.safetensors")
        (folder / "model.safetensors.index.json").write_text(content)

    return broken


def every(pattern: str, change: Callable[[bytes], bytes]) -> Break:
    return lambda folder: [
        path.write_bytes(change(path.read_bytes())) for path in sorted(folder.rglob(pattern))
    ]


WORD_VECTORS = "albert.embeddings.word_embeddings.weight"
PIECES = b"[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n"


def weights(message: str) -> dict[str, str]:
    return {"*": message, "info": DONE, "tokenizer encode": DONE}


def config(message: str) -> dict[str, str]:
    return {"*": message, "tokenizer encode": DONE}


def tokens(message: str, **more: str) -> dict[str, str | None]:
    """Of a tokenizer, which neither `info` nor a card nor a run looks at; the run has that of its corpus."""
    return {"*": message, "info": DONE, "card": DONE, "pretrain": None, **more}


MODELS: dict[str, tuple[Break, CELL]] = {
    "whole": (lambda folder: None, SAME),
    "a card in latin-1": (
        changed("README.md", lambda old: b"caf\xe9"),
        {"*": SAME, "pretrain": None, "push": "has no README.md that states a licence"},
    ),
    "a tensor more": (
        tensors(lambda found: found.update(strange=np.zeros(3, np.float32))),
        {"*": DONE, "pretrain": None},
    ),
    "weights cut off": (
        changed("model.safetensors", lambda old: old[:-99]),
        weights("is not a whole safetensors file"),
    ),
    "weights of nothing": (
        changed("model.safetensors", lambda old: b""),
        weights("is not a whole safetensors file"),
    ),
    "a web page for weights": (
        changed("model.safetensors", lambda old: b"<!DOCTYPE html>" * 9),
        weights("is not a whole"),
    ),
    "no weights": (without("model.safetensors"), weights("holds no model.safetensors")),
    "pickled weights": (
        pickled,
        {**weights("is no file of torch.save, by how it begins"), "push": "only as pytorch_model.bin"},
    ),
    "a tensor less": (
        tensors(lambda found: found.pop(sorted(found)[0])),
        weights("The configuration and the weights do not"),
    ),
    "a tensor of another shape": (
        tensors(lambda found: found.update({WORD_VECTORS: found[WORD_VECTORS][:-7].copy()})),
        weights("has shape [193, 128], its configuration gives [200, 128]"),
    ),
    "whole numbers for weights": (
        tensors(lambda found: found.update({WORD_VECTORS: found[WORD_VECTORS].astype(np.int64)})),
        weights("is stored as I64"),
    ),
    "nan": (
        tensors(lambda found: found.update({WORD_VECTORS: found[WORD_VECTORS] * np.nan})),
        weights("values that are not finite"),
    ),
    "an index that is a list": (indexed("[]"), weights("must hold one JSON object")),
    "an index of what is gone": (
        indexed('{"weight_map": {"a": "b.safetensors"}}'),
        weights("is missing, the index names it"),
    ),
    "an index that leads outside": (
        indexed('{"weight_map": {"a": "../b.safetensors"}}'),
        weights("names a file outside the folder"),
    ),
    "a list for a configuration": (
        changed("config.json", lambda old: b"[]"),
        config("config.json: must hold one JSON object"),
    ),
    "half a configuration": (
        changed("config.json", lambda old: old[:20]),
        config("config.json: is not readable as JSON"),
    ),
    "a deep configuration": (
        changed("config.json", lambda old: b"[" * 100_000),
        config("config.json: is not readable as JSON"),
    ),
    "a configuration in latin-1": (
        changed("config.json", lambda old: b'{"a": "\xe9"}'),
        config("config.json: is not readable as JSON"),
    ),
    "another type": (keys(model_type="gpt2"), config("model_type `gpt2` is not supported")),
    "a size in words": (keys(hidden_size="many"), config("hidden_size must be a whole number")),
    "a size of nothing": (keys(hidden_size=0), config("hidden_size must be a whole number")),
    "a size without end": (keys(vocab_size=10**12), config("vocab_size must be a whole number")),
    "no vocabulary": (
        without("spiece.model", "vocab.txt", "tokenizer.json"),
        tokens("holds no tokenizer", convert=DONE, export=DONE, push="has no tokenizer, without which"),
    ),
    "half a vocabulary": (
        changed("spiece.model", lambda old: old[:99]),
        tokens("is not a SentencePiece model"),
    ),
    "a tokenizer that is a list": (
        lambda folder: (
            without("spiece.model")(folder),
            changed("tokenizer.json", lambda old: b"[]")(folder),
        ),
        tokens("is not a tokenizer of the tokenizers library"),
    ),
    "another vocabulary": (
        vocabulary(PIECES + b"".join(b"%d\n" % n for n in range(500))),
        {
            **tokens("has 200 word vectors, and its tokenizer has 505 tokens"),
            "tokenizer encode": DONE,
        },
    ),
    "a vocabulary in latin-1": (vocabulary(PIECES + b"caf\xe9\n"), tokens("vocab.txt: is not UTF-8")),
    "a vocabulary without marks": (vocabulary(b"a\nb\n"), tokens("is a vocabulary without [PAD], [UNK]")),
}
CORPORA: dict[str, tuple[Break, CELL]] = {
    "whole": (lambda folder: None, SAME),
    "a list for a manifest": (changed("manifest.json", lambda old: b"[]"), "is not the manifest of a corpus"),
    "a deep manifest": (changed("manifest.json", lambda old: b"[" * 100_000), "manifest.json: is damaged"),
    "half a manifest": (changed("manifest.json", lambda old: old[:99]), "manifest.json: is damaged"),
    "another version": (
        changed("manifest.json", lambda old: json.dumps({**json.loads(old), "version": 99}).encode()),
        "is of version 99, not 2",
    ),
    "tokens cut off": (every("*.npy", lambda old: old[:-40]), {"*": "is cut off", "info": DONE}),
    "a web page for tokens": (every("*.npy", lambda old: b"<html>"), {"*": "is cut off", "info": DONE}),
    "no tokens": (
        lambda folder: [path.unlink() for path in folder.rglob("*.npy")],
        {"*": "is missing", "info": DONE},
    ),
    "no tokenizer": (lambda folder: shutil.rmtree(folder / "tokenizer"), {"*": "tokenizer", "info": DONE}),
    "nothing": (
        lambda folder: (shutil.rmtree(folder), folder.mkdir()),
        {"*": "so it is no corpus", "info": "holds no model, corpus or run"},
    ),
}
PAIRED = "data/wh_island.jsonl"
SUITES: dict[str, tuple[Break, CELL]] = {
    "whole": (lambda folder: None, SAME),
    "windows": (every("*.jsonl", lambda old: old.replace(b"\n", b"\r\n")), SAME),
    "byte order mark": (every("*.jsonl", lambda old: codecs.BOM_UTF8 + old), SAME),
    "blank lines": (every("*.jsonl", lambda old: old.replace(b"\n", b"\n\n")), SAME),
    "another file beside": (lambda folder: (folder / "data" / "more.jsonl").write_text("{"), SAME),
    "a file is missing": (without(PAIRED), "lacks 1 of the 67 files of BLiMP"),
    "nothing": (lambda folder: shutil.rmtree(folder / "data"), "lacks 67 of the 67"),
    "a file": (lambda folder: (shutil.rmtree(folder), folder.write_bytes(b"a")), "is no folder"),
    "an empty file": (changed(PAIRED, lambda old: b""), "holds no pair"),
    "half of JSON": (changed(PAIRED, lambda old: old[:-9]), "line 2: is not JSON"),
    "half of its lines": (changed(PAIRED, lambda old: old[: old.index(b"\n") + 1]), "holds 1 of 2 pairs"),
    "a list": (changed(PAIRED, lambda old: b"[1]\n"), "line 1: is not a JSON object"),
    "deep JSON": (changed(PAIRED, lambda old: b"[" * 100_000), "line 1: is not JSON"),
    "another field": (changed(PAIRED, lambda old: old.replace(b"sentence_", b"x_")), "line 1: has no texts"),
    "number for a text": (changed(PAIRED, lambda old: b'{"sentence_good": 1}'), "line 1: has no texts"),
    "latin-1": (changed(PAIRED, lambda old: old.replace(b"good", b"\xe9")), "not UTF-8"),
    "nul": (changed(PAIRED, lambda old: old + b"\0"), "line 3: is not JSON"),
    "half of a character": (changed(PAIRED, lambda old: old.replace(b"good 1", b"\\ud83d")), "half of a"),
    "an empty text": (changed(PAIRED, lambda old: old.replace(b"wh_island good 1", b"")), "has no texts"),
    "a link to itself": (
        lambda folder: (without(PAIRED)(folder), (folder / PAIRED).symlink_to(folder / PAIRED)),
        "lacks 1 of the 67",
    ),
    "a folder for a file": (lambda folder: (without(PAIRED)(folder), (folder / PAIRED).mkdir()), "lacks 1"),
}
SETTINGS, READS_SETTINGS = "settings.yaml", ("evaluate", "ensemble", "card")
"""Of a run, and the verbs that read them."""
RUNS: dict[str, tuple[Break, CELL]] = {
    "whole": (lambda folder: None, SAME),
    "no settings": (
        changed(SETTINGS, lambda old: b""),
        {"*": DONE, "ensemble": "is no run of a task"},
    ),
    "half of YAML": (
        changed(SETTINGS, lambda old: b"a: [\n"),
        {"*": DONE, **dict.fromkeys(READS_SETTINGS, "is not readable as YAML")},
    ),
    "a call in YAML": (
        changed(SETTINGS, lambda old: b"!!python/object/apply:os.system ['true']\n"),
        {"*": DONE, **dict.fromkeys(READS_SETTINGS, "is not readable as YAML")},
    ),
    "binary settings": (
        changed(SETTINGS, lambda old: b"a\0b"),
        {"*": DONE, **dict.fromkeys(READS_SETTINGS, "is not readable as YAML")},
    ),
    "settings of another program": (
        changed(SETTINGS, lambda old: b"task: 3\n"),
        {
            "*": DONE,
            **dict.fromkeys(READS_SETTINGS, "`name`: field required"),
            "card": "`task` holds no settings",
        },
    ),
    "no model yet": (
        lambda folder: [shutil.rmtree(folder / name) for name in ("best", "final")],
        {"*": "holds no model yet", "info": DONE, "report": DONE},
    ),
    "half a record": (
        changed("result.json", lambda old: old[:9]),
        {"*": SAME, **dict.fromkeys(("report", "card"), "is not a record of a run")},
    ),
    "a record of another program": (
        changed("result.json", lambda old: b'{"metrics": 3, "scores": {}}'),
        {"*": SAME, **dict.fromkeys(("report", "card"), "is not a record of a run")},
    ),
    "half of the predictions": (
        changed("predictions-dev.jsonl", lambda old: old[:-9]),
        {"*": SAME, **dict.fromkeys(("report", "card"), "predictions-dev.jsonl: is damaged")},
    ),
    "a list among the predictions": (
        changed("predictions-dev.jsonl", lambda old: b"[1]\n"),
        {"*": SAME, **dict.fromkeys(("report", "card"), "predictions-dev.jsonl: is damaged")},
    ),
    "no predictions": (without("predictions-dev.jsonl"), {"*": SAME, "report": DONE, "card": DONE}),
    "weights of a checkpoint cut off": (every("checkpoints/**/*.safetensors", lambda old: old[:9]), SAME),
}


def cells(verbs: Mapping[str, object], ends: Mapping[str, CELL]) -> list[Any]:
    """The cells of a table, row by row: (verb, row, how it ends)."""
    return [
        pytest.param(verb, name, way, id=f"{verb}: {name}")
        for name, end in ends.items()
        for verb in verbs
        if name in FEW.get(verb, ends)
        if (way := end if isinstance(end, str) else end.get(verb, end.get("*"))) is not None
    ]


def held(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


class Answers:
    """The outputs for plain inputs, each computed once."""

    def __init__(self) -> None:
        self.known: dict[tuple[str, str], object] = {}

    def plain(self, table: str, verb: str, compute: Callable[[], object]) -> object:
        if (table, verb) not in self.known:
            self.known[table, verb] = compute()
        return self.known[table, verb]


@pytest.fixture(scope="module")
def answers() -> Answers:
    return Answers()


def output_of(outcome: Outcome, out: Path, *given: Path) -> object:
    """All that a command printed and wrote, without paths."""
    text = outcome.out
    for path in (out, *given):
        text = text.replace(str(path), "")
    kept = ("model.safetensors", "spiece.model", "predictions-test.jsonl", ".npy")
    written = {
        name: data for name, data in held(out).items() if name.endswith(kept) and "checkpoints" not in name
    }
    written |= {  # a mark of UTF-8 comes back
        name: data.removeprefix(codecs.BOM_UTF8)
        for name, data in held(out).items()
        if name.startswith("o.") or "whitening" in name
    }
    return written or text


def check(outcome: Outcome, ends: str, out: Path) -> None:
    """Check that a command ended as a cell expects."""
    messages = [line for line in outcome.err.splitlines() if not line.startswith("warning: ")]
    if ends in (SAME, DONE):
        assert outcome.code == 0, outcome.err
        return
    assert outcome.code == 2, (outcome.code, outcome.err)
    assert len(messages) == 1 and messages[0].startswith("albertine: ") and ends in messages[0], outcome.err
    assert not list(out.glob("*")), "something was left behind"


def made(name: str, content: bytes | Callable[[Path], object], folder: Path) -> Path:
    place = folder / name
    place.write_bytes(content) if isinstance(content, bytes) else content(place)
    return place


@pytest.fixture
def out(tmp_path: Path) -> Path:
    (tmp_path / "out").mkdir()
    return tmp_path / "out"


@pytest.fixture
def cell(albertine: Command, home: Home, answers: Answers, out: Path, tmp_path: Path) -> Callable[..., None]:
    """Run a cell of a table: a verb on an input that is made in a folder, beside the plain one if need be."""

    def checked(
        table: str,
        verb: Verb,
        name: str,
        make: Callable[[Path], Path],
        plain: Callable[[Path], Path],
        ends: str,
    ) -> None:
        given = make(tmp_path)
        before = held(given)
        outcome = albertine(*verb(home, given, out))
        check(outcome, ends, out)
        assert ends in (SAME, DONE) or held(given) == before

        def plain_output() -> object:
            (beside := tmp_path / "plain" / "out").mkdir(parents=True)
            usual = plain(beside.parent)
            return output_of(albertine(*verb(home, usual, beside)), beside, usual)

        if ends == SAME:
            assert output_of(outcome, out, given) == answers.plain(table, name, plain_output)

    return checked


@pytest.mark.sample
@pytest.mark.parametrize(("verb", "row", "ends"), cells(TEXT, {name: row[2] for name, row in TEXTS.items()}))
def test_texts(cell: Callable[..., None], verb: str, row: str, ends: str) -> None:
    make, plain = (partial(made, *TEXTS[name][:2]) for name in (row, "plain"))
    cell("texts", TEXT[verb], verb, make, plain, ends)


@pytest.mark.sample
@pytest.mark.parametrize(
    ("verb", "row", "ends"), cells(TABLE, {name: row[2] for name, row in TABLES.items()})
)
def test_tables(cell: Callable[..., None], verb: str, row: str, ends: str) -> None:
    make, plain = (partial(made, *TABLES[name][:2]) for name in (row, "plain"))
    cell("tables", TABLE[verb], verb, make, plain, ends)


@pytest.mark.sample
@pytest.mark.parametrize(("verb", "row", "ends"), cells(OWN, {name: row[2] for name, row in OF_KIND.items()}))
def test_rows_of_every_kind(cell: Callable[..., None], verb: str, row: str, ends: str) -> None:
    kind, words = OWN[verb]

    def of_kind(name: str) -> Callable[[Path], Path]:
        file, make, _ = OF_KIND[name]
        return partial(made, file, make(TUNED[kind] * 4))

    cell("rows", words, verb, of_kind(row), of_kind("plain"), ends)


def test_a_folder_of_race(albertine: Command, home: Home, tmp_path: Path, out: Path) -> None:
    passage = {"id": "high1.txt", "article": "a man", "questions": ["who"], "options": [["good", "old"]]}
    (folder := tmp_path / "RACE" / "test" / "high").mkdir(parents=True)
    (folder / "1.txt").write_text(json.dumps(passage))
    outcome = albertine(*predict("choose", "choice", "o.jsonl")(home, folder.parent, out))
    assert outcome.code == 0, outcome.err
    (row,) = [json.loads(line) for line in (out / "o.jsonl").read_text().splitlines()]
    assert row["id"] == "high1.txt-0" and row["options"] == ["good", "old"] and row["prediction"] in (0, 1)
    (folder / "1.txt").write_text("{}")
    check(
        albertine(*predict("choose", "choice", "p.jsonl")(home, folder, out)),
        "is not a RACE passage",
        tmp_path / "n",
    )
    check(
        albertine(*predict("tag", "entities", "p.csv")(home, folder, out)), "(Is a directory)", tmp_path / "n"
    )


@pytest.mark.sample
@pytest.mark.parametrize(
    ("verb", "row", "ends"), cells(PREDICT, {name: row[1] for name, row in STANDARD_INPUTS.items()})
)
def test_lines_of_standard_input(
    cell: Callable[..., None], monkeypatch: pytest.MonkeyPatch, verb: str, row: str, ends: str
) -> None:
    def piped(name: str) -> Callable[[Path], Path]:
        def make(folder: Path) -> Path:
            monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(STANDARD_INPUTS[name][0])))
            return folder / "none"

        return make

    cell("lines", PREDICT[verb], verb, piped(row), piped("plain"), ends)


BROKEN: dict[str, tuple[Mapping[str, Verb], Mapping[str, tuple[Break, CELL]]]] = {
    "model": (MODEL, MODELS),
    "corpus": (CORPUS, CORPORA),
    "run": (TUNED_RUN, RUNS),
    "suite": (PAIRS, SUITES),
}


@pytest.mark.sample
@pytest.mark.parametrize(
    ("what", "verb", "row", "ends"),
    [
        pytest.param(what, *one.values, id=f"{what}, {one.id}")
        for what, (verbs, rows) in BROKEN.items()
        for one in cells(verbs, {row: way for row, (_, way) in rows.items()})
    ],
)
def test_what_is_broken(
    cell: Callable[..., None], home: Home, what: str, verb: str, row: str, ends: str
) -> None:
    folders = {"model": home.model, "corpus": home.corpus, "run": home.runs / "single", "suite": home.pairs}
    whole, (verbs, rows) = folders[what], BROKEN[what]

    def broken(name: str) -> Callable[[Path], Path]:
        def make(folder: Path) -> Path:
            place = Path(shutil.copytree(whole, folder / "it"))
            rows[name][0](place)
            return place

        return make

    cell(what, verbs[verb], verb, broken(row), broken("whole"), ends)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read everything")
@pytest.mark.parametrize("verb", [*TEXT, *TABLE])
def test_what_may_not_be_read(albertine: Command, home: Home, tmp_path: Path, out: Path, verb: str) -> None:
    file = made("a.csv", CSV, tmp_path)
    file.chmod(0)
    outcome = albertine(*(TEXT | TABLE)[verb](home, file, out))
    # Arguments that are paths are checked by the command line itself, which prints the usage of the verb.
    assert outcome.code == 2 and not held(out)
    assert "not readable" in outcome.err or "ermission" in outcome.err


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write everywhere")
@pytest.mark.parametrize("verb", ["prepare", "tokenizer train", "convert --whiten", *TABLE])
def test_where_nothing_may_be_written(
    albertine: Command, home: Home, tmp_path: Path, out: Path, verb: str
) -> None:
    file = made(*(("a.csv", CSV) if verb in TABLE else ("a.txt", EN)), tmp_path)
    out.chmod(0o500)
    try:
        check(albertine(*(TEXT | TABLE)[verb](home, file, out)), "ermission", out)
    finally:
        out.chmod(0o700)
