"""Rows that a program holds in memory as a task, and the run on them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from albertine.errors import AlbertineError, DataError
from albertine.settings import dump, resolve
from albertine.tasks.advice import advice
from albertine.tasks.finetune import finetune
from albertine.tasks.judge import judge, open_run
from albertine.tasks.settings import FinetuneSettings
from albertine.text.load import load_tokenizer
from albertine.text.tokenizer import Tokenizer
from albertine.training.progress import Reporter
from tests.tasks.conftest import Tune
from tests.tasks.test_own_files import LABELLED, SPANS, read, told


@pytest.fixture(scope="module")
def tokenizer(pretrained: Path) -> Tokenizer:
    return load_tokenizer(pretrained)


def test_rows_in_memory_are_read_like_files(tokenizer: Tokenizer, tmp_path: Path) -> None:
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
        data = read(tokenizer, train=source, dev=pd.DataFrame(columns))
        assert [told(e) for e in data.train.examples] == wanted
        assert data.dev is not None and [e.where for e in data.dev.examples] == ["dev[0]", "dev[1]"]
    (tmp_path / "a.csv").write_text("text,label\na,x\n")
    data = read(tokenizer, train=[tmp_path / "a.csv", pd.DataFrame(columns)[1:]])
    assert [told(e) for e in data.train.examples] == wanted


def test_words_and_tags_of_a_dataset(tokenizer: Tokenizer) -> None:
    datasets = pytest.importorskip("datasets")
    tags = datasets.Sequence(datasets.ClassLabel(names=["O", "B-x", "I-x"]))
    features = datasets.Features({"tokens": datasets.Sequence(datasets.Value("string")), "ner_tags": tags})
    rows = {"tokens": [["a", "good", "man"], ["he"]], "ner_tags": [[0, 1, 2], [0]]}
    source = datasets.Dataset.from_dict(rows, features=features)
    data = read(tokenizer, train=source, kind="entities", text="tokens", label="ner_tags")
    assert [told(e) for e in data.train.examples] == SPANS


def breaks() -> Iterator[dict[str, str]]:
    yield LABELLED[0]
    raise KeyError("gone")


def test_wrong_rows_in_memory_are_one_message(tokenizer: Tokenizer) -> None:
    pd, datasets = pytest.importorskip("pandas"), pytest.importorskip("datasets")
    nan, text = float("nan"), ["a", "b"]
    images = datasets.Features(
        {"text": datasets.Sequence(datasets.Value("string")), "label": datasets.Value("string")}
    )
    for source, message in (
        (
            pd.DataFrame({"body": text, "label": text}),
            r"train\[0\]: has no column `text`; it has `body`, `label`",
        ),
        (pd.DataFrame({"text": text, "label": [1, nan]}), r"train\[1\]: `label` is missing or empty"),
        (pd.DataFrame({"text": ["a", nan], "label": text}), r"train\[1\]: `text` is empty, not text"),
        (
            pd.DataFrame({"text": text, "label": pd.to_datetime(["2020-01-01"] * 2)}),
            r"train\[0\]: `label` is a Timestamp",
        ),
        (
            datasets.Dataset.from_dict({"text": [["a"]], "label": ["x"]}, features=images),
            r"train\[0\]: `text` is a list",
        ),
        (pd.Series(text), "train: a Series holds no rows"),
        ([], "holds no train examples|give task.dataset"),
        (3, "train: a int holds no rows"),
    ):
        with pytest.raises(AlbertineError, match=message):
            read(tokenizer, train=source)
    with pytest.raises(DataError, match=r"generator\[1\]: cannot be read \(KeyError: 'gone'\)"):
        read(tokenizer, train=breaks())
    gaps = pd.DataFrame({"text": ["a", "b", "c"], "label": [0, 1, nan]})[:2]
    assert [told(e)[1] for e in read(tokenizer, train=gaps).train.examples] == ["0", "1"]


def test_settings_tell_rows_in_memory_by_what_they_hold(tune: Tune) -> None:
    def record(label: str) -> str:
        rows = [{"text": "a", "label": "x"}, {"text": "b", "label": label}]
        return dump(tune(task={"train": rows, "dev": None}))

    assert "2 rows in memory (" in record("y")
    assert record("y") == record("y") != record("z")
    back = resolve(FinetuneSettings, tune(task={"train": LABELLED, "dev": None}).model_dump(mode="json"))
    assert "2 rows in memory" in back.task.source
    assert advice(tune(task={"train": LABELLED, "dev": None})) == []  # nothing is known of their number


def test_a_run_on_frames_and_then_on_a_file_without_labels(
    tune: Tune, tmp_path: Path, tables: dict[str, Path]
) -> None:
    pd = pytest.importorskip("pandas")
    frames = {name: pd.read_csv(path) for name, path in tables.items()}
    settings = tune(task={**frames, "test": frames["dev"][["review"]]}, training={"steps": 2})
    result = finetune(settings, reporter=Reporter(quiet=True))
    assert result.scores and result.test == {}
    predicted = (result.folder / "predictions-test.jsonl").read_text().splitlines()
    assert len(predicted) == 100 and "label" not in json.loads(predicted[0])

    (tmp_path / "new.csv").write_text("review\nthe good old house\nnever he said\n")
    files = [f"task.{name}={path}" for name, path in tables.items()]
    (judged,) = judge(open_run(result.folder, files, file=tmp_path / "new.csv"), ["test"])
    assert len(judged.answers) == 2 and judged.scores == {}
