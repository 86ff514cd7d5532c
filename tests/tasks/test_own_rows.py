"""Rows that a program holds in memory: kept as a file of the run, and read like any other."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import albertine
from albertine.errors import AlbertineError, DataError
from albertine.tasks.dataset_files import Data
from albertine.tasks.materialized_rows import MaterializedRows, materialized
from albertine.tasks.prediction_rows import rows_to_predict
from albertine.tasks.rescore import evaluate_run, open_run
from albertine.tasks.tag import Tag
from albertine.tokenizers.base import Tokenizer
from albertine.tokenizers.load import load_tokenizer
from albertine.training.progress import Reporter
from tests.tasks.conftest import Tune
from tests.tasks.test_own_files import LABELLED, SPANS, text_and_answer
from tests.tasks.test_own_files import read as read_files


@pytest.fixture(scope="module")
def tokenizer(pretrained: Path) -> Tokenizer:
    return load_tokenizer(pretrained)


Read = Callable[..., Data]


@pytest.fixture
def read(tokenizer: Tokenizer, tmp_path: Path) -> Read:
    """The data of a task, rows in memory kept first."""

    def kept(**task: Any) -> Data:
        for split in ("train", "dev"):
            if split in task:
                rows = MaterializedRows.of(task[split], tmp_path, split)
                rows.write()
                task[split] = rows.path
        return read_files(tokenizer, **task)

    return kept


def test_rows_in_memory_are_read_like_files(read: Read) -> None:
    pd, datasets = pytest.importorskip("pandas"), pytest.importorskip("datasets")
    pa = pytest.importorskip("pyarrow")
    wanted = [("a", "x"), ("b", "y")]
    columns = {"text": ["a", "b"], "label": ["x", "y"]}
    features = datasets.Features(
        {"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["x", "y"])}
    )
    for source in (
        LABELLED,
        iter(LABELLED),
        columns,
        pd.DataFrame(columns),
        pa.table(columns),
        datasets.Dataset.from_dict(columns),
        datasets.Dataset.from_dict({"text": ["a", "b"], "label": [0, 1]}, features=features),
    ):
        data = read(train=source, dev=pd.DataFrame(columns))
        assert [text_and_answer(e) for e in data.train.examples] == wanted
        assert data.dev is not None and [text_and_answer(e) for e in data.dev.examples] == wanted


def test_words_and_tags_of_a_dataset(read: Read) -> None:
    datasets = pytest.importorskip("datasets")
    tags = datasets.Sequence(datasets.ClassLabel(names=["O", "B-x", "I-x"]))
    features = datasets.Features({"tokens": datasets.Sequence(datasets.Value("string")), "ner_tags": tags})
    rows = {"tokens": [["a", "good", "man"], ["he"]], "ner_tags": [[0, 1, 2], [0]]}
    source = datasets.Dataset.from_dict(rows, features=features)
    data = read(train=source, kind="entities", text="tokens", label="ner_tags")
    assert [text_and_answer(e) for e in data.train.examples] == SPANS


def breaks() -> Iterator[dict[str, str]]:
    yield LABELLED[0]
    raise KeyError("gone")


def test_wrong_rows_in_memory_are_one_message(read: Read) -> None:
    pd, datasets = pytest.importorskip("pandas"), pytest.importorskip("datasets")
    nan, text = float("nan"), ["a", "b"]
    images = datasets.Features(
        {"text": datasets.Sequence(datasets.Value("string")), "label": datasets.Value("string")}
    )
    for source, message in (
        (
            pd.DataFrame({"body": text, "label": text}),
            r"train-\w+\.jsonl:1: has no column `text`; it has `body`, `label`",
        ),
        (pd.DataFrame({"text": text, "label": [1, nan]}), r"jsonl:2: `label` is missing or empty"),
        (pd.DataFrame({"text": ["a", nan], "label": text}), r"jsonl:2: `text` is empty, not text"),
        (pd.DataFrame({"text": text, "label": [b"x", b"y"]}), r"jsonl:1: `label` is an object, not the name"),
        (
            datasets.Dataset.from_dict({"text": [["a"]], "label": ["x"]}, features=images),
            r"jsonl:1: `text` is a list",
        ),
        (pd.Series(text), "train: a Series holds no rows"),
        ([], "holds no train examples"),
        (3, "train: a int holds no rows"),
    ):
        with pytest.raises(AlbertineError, match=message):
            read(train=source)
    with pytest.raises(DataError, match=r"train\[1\]: cannot be read \(KeyError: 'gone'\)"):
        read(train=breaks())
    gaps = pd.DataFrame({"text": ["a", "b", "c"], "label": [0, 1, nan]})[:2]
    assert [text_and_answer(e)[1] for e in read(train=gaps).train.examples] == ["0", "1"]


def test_settings_require_files(tune: Tune) -> None:
    with pytest.raises(AlbertineError, match=r"a list is no file.*albertine\.finetune\(train="):
        tune(task={"dev": LABELLED})


def test_a_run_on_frames_and_then_on_a_file_without_labels(
    pretrained: Path, tmp_path: Path, tables: dict[str, Path]
) -> None:
    pd = pytest.importorskip("pandas")
    frames = {name: pd.read_csv(path) for name, path in tables.items()}
    result = albertine.finetune(
        pretrained,
        **frames,
        test=frames["dev"][["review"]],
        output=tmp_path,
        task={"text": "review", "label": "verdict"},
        training={"steps": 2},
        reporter=Reporter(quiet=True),
    )
    assert result.scores and result.test == {}
    predicted = (result.folder / "predictions-test.jsonl").read_text().splitlines()
    assert len(predicted) == 100 and "label" not in json.loads(predicted[0])

    (tmp_path / "new.csv").write_text("review\nthe good old house\nnever he said\n")
    (judged,) = evaluate_run(open_run(result.folder, file=tmp_path / "new.csv"), ["test"])
    assert len(judged.answers) == 2 and judged.scores == {}


def test_a_mark_inside_a_text_keeps_its_place(read: Read) -> None:
    rows = [{"text": "\ufeff张三 来了", "label": [["P", 1, 3]]}]
    (text,) = read(train=rows, kind="entities").train.examples
    assert [text.example.text[a:b] for _, a, b in text.example.label] == ["张三"] and text.found == 1


@pytest.mark.parametrize(("begin", "end"), [(0, 3), (1, 4), (0, 5)])
def test_an_entity_may_begin_or_end_at_an_invisible_character(read: Read, begin: int, end: int) -> None:
    """Catches: a file refused as if no tag could name what its tokens are tagged as."""
    rows = [{"text": "\ufeff张三\u200b 来了", "label": [["P", begin, end]]}]
    (text,) = (data := read(train=rows, kind="entities").train).examples
    assert text.found == 1 and (data.targets[0] > 0).any()


def test_text_that_looks_like_a_list_is_the_text_that_offsets_refer_to(read: Read, tmp_path: Path) -> None:
    """Catches: the words of a list in place of the text, which are other characters."""
    text = '["alice", "bob"]'
    rows = [{"text": text, "label": [["PER", 2, 7]]}]
    (found,) = read(train=rows, kind="entities").train.source_examples
    assert (found.text, found.label) == (text, (("PER", 2, 7),))
    family = Tag(("O", "B-PER", "I-PER"), 32)
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": text}))
    (tmp_path / "a.csv").write_text('text\n"[""alice"", ""bob""]"\n')
    for source, shown in (
        ([{"text": text}], text),
        (tmp_path / "a.jsonl", text),
        (tmp_path / "a.csv", "alice bob"),
        ([{"text": ["alice", "bob"]}], "alice bob"),
    ):
        assert [row.fields["text"] for row in rows_to_predict(source, family)[0]] == [shown]
    words = [{"text": text, "label": '["B-PER", "O"]'}]  # as a frame has them that was read from CSV
    (found,) = read(train=words, kind="entities").train.source_examples
    assert (found.text, found.label) == ("alice bob", (("PER", 0, 5),))


@pytest.mark.parametrize("held", [False, True])
def test_a_refused_call_leaves_no_folder_but_one_in_use(tmp_path: Path, held: bool) -> None:
    rows = MaterializedRows.of([{"text": "a", "label": "x"}], folder := tmp_path / "run", "train")
    with pytest.raises(DataError, match="refused"), materialized([rows], folder):
        assert rows.path.is_file()
        (folder / "lock").write_text("held" if held else "")
        raise DataError("refused")
    assert [path.name for path in tmp_path.glob("run/*")] == (["lock"] if held else [])
    assert folder.exists() == held
