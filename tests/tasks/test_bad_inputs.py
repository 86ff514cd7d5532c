"""Common mistakes in input files: the result is right, or one message names what is wrong and where."""

from __future__ import annotations

import codecs
import json
import os
from pathlib import Path
from typing import Any

import pytest

from albertine.core.settings import resolve
from albertine.errors import DataError, ModelError, SettingsError
from albertine.tasks.dataset_files import Data
from albertine.tasks.dataset_registry import named
from albertine.tasks.datasets.classes import kept, read
from albertine.tasks.finetune import finetune
from albertine.tasks.predictor import Predictor
from albertine.tasks.settings import FinetuneSettings
from albertine.tasks.task_data import read_data
from albertine.tokenizers.load import load_tokenizer
from albertine.training.progress import Reporter
from tests.tasks.conftest import Tune

CLASSES = "text\tlabel\na good house\tyes\nnever a man\tno\n"
QUESTIONS = [
    {"text": "a", "options": ["b", "c"], "right": 1},
    {"text": "d", "options": ["e", "f"], "right": 0},
]
THINGS = [{"text": "a good man", "found": [["x", 2, 6]]}, {"text": "he was", "found": []}]
SQUAD = {
    "data": [
        {
            "paragraphs": [
                {
                    "context": "a good man",
                    "qas": [
                        {"id": "1", "question": "what", "answers": [{"text": "good", "answer_start": 2}]}
                    ],
                }
            ]
        }
    ]
}
LINES: dict[str, tuple[str, dict[str, Any]]] = {
    "classes": (CLASSES, {"text": "text", "label": "label"}),
    "choice": ("\n".join(map(json.dumps, QUESTIONS)), {"kind": "choice", "text": "text", "label": "right"}),
    "entities": ("\n".join(map(json.dumps, THINGS)), {"kind": "entities", "text": "text", "label": "found"}),
    "answers": (json.dumps(SQUAD, indent=1), {"kind": "answers"}),
}
ENDINGS = {"classes": "tsv", "choice": "jsonl", "entities": "jsonl", "answers": "json"}


def data_of(tune: Tune, folder: Path, kind: str, content: bytes, dev: bytes | None = None) -> Data:
    task: dict[str, Any] = {**LINES[kind][1], "train": folder / f"train.{ENDINGS[kind]}", "dev": None}
    task["train"].write_bytes(content)
    if dev is not None:
        task["dev"] = folder / f"dev.{ENDINGS[kind]}"
        task["dev"].write_bytes(dev)
    settings = tune(task=task)
    return read_data(settings.task, load_tokenizer(settings.encoder.folder))


@pytest.mark.parametrize("kind", LINES)
@pytest.mark.parametrize("form", ["windows", "mark", "both", "mac"])
def test_line_ends_and_byte_order_marks_change_nothing(
    tune: Tune, tmp_path: Path, kind: str, form: str
) -> None:
    plain = LINES[kind][0].encode()
    ends = {"windows": b"\r\n", "both": b"\r\n", "mac": b"\r"}.get(form, b"\n")
    changed = (codecs.BOM_UTF8 if form in ("mark", "both") else b"") + plain.replace(b"\n", ends)
    wanted, found = (data_of(tune, tmp_path, kind, content).train for content in (plain, changed))
    assert [ids.tolist() for ids in found.ids] == [ids.tolist() for ids in wanted.ids]
    assert found.targets is not None and wanted.targets is not None
    assert [t.tolist() for t in found.targets] == [t.tolist() for t in wanted.targets]


@pytest.mark.parametrize("kind", LINES)
def test_latin_1_is_reported_with_its_line(tune: Tune, tmp_path: Path, kind: str) -> None:
    content = LINES[kind][0].replace("man", "caf\u00e9").encode("latin-1")
    content = content.replace(b"caf\\u00e9", b"caf\xe9")
    if b"\xe9" not in content:
        content = content.replace(b'"a"', b'"caf\xe9"')
    with pytest.raises(DataError, match=r"train\.\w+(:\d+)?: is not utf-8 text \((line \d+: )?"):
        data_of(tune, tmp_path, kind, content)


def test_latin_1_is_read_where_it_is_named(tune: Tune, tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_bytes("text\tlabel\ncaf\u00e9\tyes\nbar\tno\n".encode("latin-1"))
    task = {"train": tmp_path / "a.tsv", "dev": None, "text": "text", "label": "label", "encoding": "latin-1"}
    settings = tune(task=task)
    data = read_data(settings.task, load_tokenizer(settings.encoder.folder))
    assert data.train.examples[0].text == "caf\u00e9"


@pytest.mark.parametrize(
    ("kind", "content", "message"),
    [
        ("classes", "text\tclass\na\tyes\n", r"train\.tsv:2: has no column `label`; it has `text`, `class`"),
        ("choice", '{"text": "a", "choices": ["b"]}', r"train\.jsonl:1: has no column `options`"),
        ("entities", '{"body": "a"}', r"train\.jsonl:1: has no column `text`; it has `body`"),
        ("answers", '{"data": [{"paragraphs": [{"text": "a"}]}]}', r"train\.json: is not a file in SQuAD"),
        ("classes", "", "holds no train examples"),
        ("choice", "\n\n", "holds no train examples"),
        ("answers", '{"data": []}', "holds no train examples"),
        ("answers", '{\n"data": [}', r"train\.json:2: is not JSON"),
    ],
)
def test_missing_columns_and_empty_files(
    tune: Tune, tmp_path: Path, kind: str, content: str, message: str
) -> None:
    with pytest.raises(DataError, match=message):
        data_of(tune, tmp_path, kind, content.encode())


def test_unknown_labels_in_dev(tune: Tune, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"dev\.tsv:3: has the class `maybe`.*Known: no, yes"):
        data_of(tune, tmp_path, "classes", CLASSES.encode(), b"text\tlabel\na\tyes\nb\tmaybe\n")
    strange = json.dumps({"text": "a man", "found": [["y", 0, 1]]}).encode()
    with pytest.raises(DataError, match=r"dev\.jsonl:1: has the type `y`.*Known: x"):
        data_of(tune, tmp_path, "entities", LINES["entities"][0].encode(), strange)


def test_classes_are_counted(tune: Tune, tmp_path: Path) -> None:
    """So that a column of something else is known, and a class that was written in two ways."""
    data = data_of(tune, tmp_path, "classes", (CLASSES + "c\tYes\nd\tNO\ne\tYES\n").encode())
    assert data.notes == ("train: 5 examples, 5 classes, 3 of them like another but for capitals",)


def test_empty_texts_are_kept_and_counted(tune: Tune, tmp_path: Path) -> None:
    data = data_of(tune, tmp_path, "classes", (CLASSES + " \tno\n\tyes\n").encode())
    assert data.notes == ("train: 4 examples, 2 classes, 2 without text",)
    hollow = json.dumps({"text": "", "options": ["b", "c"], "right": 1})
    data = data_of(tune, tmp_path, "choice", f"{LINES['choice'][0]}\n{hollow}".encode())
    assert data.notes == ("train: 3 examples, 1 without text",)
    hollow = json.dumps({"text": "  ", "found": []})
    data = data_of(tune, tmp_path, "entities", f"{LINES['entities'][0]}\n{hollow}".encode())
    assert data.notes == ("train: 3 examples, 1 without text",)
    assert data.train.ids[-1].size == 2


@pytest.mark.parametrize("crf", [False, True])
def test_a_run_on_empty_texts_does_not_fall_over(tune: Tune, tmp_path: Path, crf: bool) -> None:
    rows = [*THINGS, {"text": "", "found": []}] * 6
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    task = {"train": path, "dev": path, "kind": "entities", "text": "text", "label": "found", "crf": crf}
    result = finetune(tune(task=task, training={"epochs": 1}), reporter=Reporter(quiet=True))
    assert Predictor(result.folder / "best").tag("") == []


@pytest.mark.parametrize("kind", ["choice", "entities"])
def test_long_texts_are_cut_or_read_in_windows_and_counted(tune: Tune, tmp_path: Path, kind: str) -> None:
    long = LINES[kind][0].replace('"text": "a', '"text": "a' + " house" * 60)
    if kind == "entities":
        long = long.replace("[2, 6]", "[0, 1]").replace('"x", 2, 6', '"x", 0, 1')
    data = data_of(tune, tmp_path, kind, long.encode())
    messages = {
        "choice": "cut to 32 tokens",
        "entities": "longer than 32 tokens, read in windows that overlap",
    }
    assert messages[kind] in data.notes[0]
    assert max(len(ids) for ids in data.train.ids) <= 32


WRONG = [(a, b) for a in LINES for b in LINES if a != b]


@pytest.mark.parametrize(("task", "given"), WRONG, ids=[f"{a} gets {b}" for a, b in WRONG])
def test_a_task_file_given_to_the_wrong_task(tune: Tune, tmp_path: Path, task: str, given: str) -> None:
    path = tmp_path / f"train.{ENDINGS[given]}"
    path.write_text(LINES[given][0])
    settings = tune(task={**LINES[task][1], "train": path, "dev": None})
    with pytest.raises(DataError, match=r"train\.\w+"):
        read_data(settings.task, load_tokenizer(settings.encoder.folder))


@pytest.mark.parametrize("name", ["dream", "c3", "race", "chid", "squad", "cluener", "wnut-17"])
@pytest.mark.parametrize(
    "content",
    [
        '{"data": []}',
        "[[1, 2]]",
        '[[["a"], [{"question": "b"}], "c"]]',
        "[1]",
        "a\tb\n",
        '{"text": 5}\n',
        '["a"]',
    ],
)
def test_known_sets_with_files_of_another(tune: Tune, tmp_path: Path, name: str, content: str) -> None:
    names = {
        "dream": "train.json",
        "c3": "c3-m-train.json",
        "race": "RACE/train/high/1.txt",
        "chid": "chid/train_few_all.json",
        "squad": "train-v1.1.json",
        "cluener": "train.json",
        "wnut-17": "wnut17train.conll",
    }
    path = tmp_path / names[name]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    task = {"train": None, "dev": None, "text": "text", "label": "label", "dataset": name, "folder": tmp_path}
    settings = tune(task=task)
    with pytest.raises(DataError) as error:
        read_data(settings.task, load_tokenizer(settings.encoder.folder))
    assert str(tmp_path) in str(error.value)


def test_a_tuned_model_used_for_another_task(tune: Tune) -> None:
    folder = finetune(tune(training={"epochs": 0.1}), reporter=Reporter(quiet=True)).folder / "best"
    for call in (
        lambda p: p.tag("a man"),
        lambda p: p.choose("a", ["b", "c"]),
        lambda p: p.answer("what", "a man"),
        lambda p: p.fill_mask("a [MASK]"),
    ):
        with pytest.raises(ModelError, match=r"best|masked-LM head"):
            call(Predictor(folder))


PAIRS = [
    ("lcqmc", "lcqmc", 8802, 12500),
    ("bq", "bq_corpus", 10000, 10000),
    ("paws-x", "pawsx_zh", 2000, 2000),
]


@pytest.mark.parametrize(("name", "folder", "dev", "test"), PAIRS, ids=[row[0] for row in PAIRS])
def test_pairs_without_a_header_line(shared_data: Path, name: str, folder: str, dev: int, test: int) -> None:
    dataset = named(name)
    found = kept(read(dataset, shared_data / folder, "dev"))
    assert len(found) == dev and {e.label for e in found} == {"0", "1"}
    assert found[0].where.endswith(":1") and all(e.pair for e in found)
    assert len(list(read(dataset, shared_data / folder, "test"))) == test
    with pytest.raises(DataError, match=r"has no train\.tsv"):
        list(read(dataset, shared_data / folder, "train"))


def test_a_header_line_where_none_belongs(tmp_path: Path, tune: Tune) -> None:
    for split in ("train", "dev"):
        (tmp_path / f"{split}.tsv").write_text("text_a\ttext_b\tlabel\na\tb\t1\nc\td\t0\n")
    settings = tune(
        task={
            "train": None,
            "dev": None,
            "text": "text",
            "label": "label",
            "dataset": "lcqmc",
            "folder": tmp_path,
        }
    )
    with pytest.raises(DataError, match=r"train\.tsv:1: has the class `label`"):
        read_data(settings.task, load_tokenizer(settings.encoder.folder))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("options", "choices"),
        ("separator", "|"),
        ("similarity", {"loss": "cosine"}),
        ("tags", "bioes"),
        ("crf", True),
        ("crf", False),
        ("answer", {"stride": 9}),
        ("target_length", 32),
        ("beams", 3),
    ],
)
def test_a_setting_of_another_kind_is_refused(tune: Tune, field: str, value: object) -> None:
    with pytest.raises(SettingsError, match=rf"^task\.{field} is for [a-z, ]+, and this task is single$"):
        tune(task={field: value})


def test_a_data_set_sets_its_kind_and_refuses_others(tune: Tune, tmp_path: Path) -> None:
    known = {"train": None, "dev": None, "folder": tmp_path}
    assert tune(task={**known, "dataset": "race", "options": "options"}).task.kind == "choice"
    assert tune(task={**known, "dataset": "race", "kind": "single"}).task.kind == "choice"
    assert tune(task={**known, "dataset": "sts-b"}).task.kind == "score"
    for name, value in {"text": "review", "pair": "b", "label": "stars", "header": False}.items():
        with pytest.raises(
            SettingsError, match=rf"task\.{name} is for own files, and sts-b has a value of its own"
        ):
            tune(task={**known, "dataset": "sts-b", name: value})
    with pytest.raises(SettingsError, match=r"task\.similarity\.highest is for own files, and sts-b has"):
        tune(task={**known, "dataset": "sts-b", "kind": "similarity", "similarity": {"highest": 5}})
    assert tune(task={**known, "dataset": "sts-b", "kind": "similarity"}).task.kind == "similarity"
    assert tune(task={**known, "dataset": "squad", "kind": "reading"}).task.kind == "reading"
    with pytest.raises(SettingsError, match=r"task\.crf is for entities, and this task is choice"):
        tune(task={**known, "dataset": "race", "crf": False})
    with pytest.raises(
        SettingsError, match=r"`cola` is no data set of the kind similarity, but of single; known .*sts-b"
    ):
        tune(task={**known, "dataset": "cola", "kind": "similarity"})
    with pytest.raises(
        SettingsError, match=r"no task\.kind `classes`; known are single: one class; multi: any"
    ):
        tune(task={"kind": "classes"})
    with pytest.raises(SettingsError, match=r"no task\.kind `\['single'\]`"):
        tune(task={"kind": ["single"]})
    with pytest.raises(SettingsError, match=r"`task`: give its settings, such as task\.train=FILE"):
        resolve(FinetuneSettings, {"name": "a", "task": 5, "encoder": {"folder": "a"}})
    settings = tune()
    assert FinetuneSettings(name="a", task=settings.task, encoder=settings.encoder).task == settings.task
    with pytest.raises(SettingsError, match=r"Did you mean `tnews`"):
        tune(task={**known, "dataset": "tnew"})


@pytest.mark.parametrize("split", ["train", "dev"])
def test_a_pipe_or_a_device_is_refused_before_it_is_read(tune: Tune, tmp_path: Path, split: str) -> None:
    """Catches: a pipe is waited for without end, and a device read until the memory is full."""
    os.mkfifo(tmp_path / "pipe.csv")
    (tmp_path / "zeros.csv").symlink_to("/dev/zero")
    for name in ("pipe.csv", "zeros.csv"):
        with pytest.raises(DataError, match=rf"{name}: is a pipe or a device.*Write its content to a file"):
            finetune(tune(task={split: tmp_path / name}), reporter=Reporter(quiet=True))
