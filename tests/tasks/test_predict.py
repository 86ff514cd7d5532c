"""Predictions equal scores: a tuned folder predicts for the dev set's rows what its run wrote, for every
family and on texts longer than they are read; and files of questions become files of answers."""

from __future__ import annotations

import codecs
import csv
import errno
import io
import json
import os
import re
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from datetime import date, datetime
from functools import partial
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
import torch

from albertine import Predictor
from albertine.cli.app import run
from albertine.errors import DataError, ModelError, RunError, SettingsError
from albertine.inference.embedding import TextEmbedder
from albertine.tasks import output_parts, predict, predictor
from albertine.tasks.family import Fields
from albertine.tasks.finetune import finetune
from albertine.tasks.generate import Read
from albertine.tasks.predict import predict_file
from albertine.tasks.prediction_rows import rows_to_predict
from albertine.tasks.readers.table import rows_of
from albertine.tasks.rescore import evaluate_run, open_run
from albertine.tasks.text_vectors import cosines, vectors
from albertine.training.progress import Reporter
from tests.crashes import Disk, dies_while
from tests.tasks.conftest import Tune
from tests.tasks.test_answer import squad
from tests.tasks.test_crf import entities
from tests.tasks.test_embed import pairs_file
from tests.tasks.test_generate import texts
from tests.tasks.test_multiple_choice import questions
from tests.tasks.test_relate import stories

TABLE = {"text": "review", "label": "verdict"}
OWN: dict[str, tuple[Callable[..., Path] | None, str, dict[str, Any], Fields]] = {
    "single": (None, ".csv", TABLE, Fields("review")),
    "pair": (None, ".csv", {**TABLE, "pair": "answer"}, Fields("review", "answer")),
    "multi": (None, ".csv", {**TABLE, "label": "tags", "kind": "multi"}, Fields("review")),
    "score": (None, ".csv", {**TABLE, "label": "points", "kind": "score"}, Fields("review")),
    "means": (None, ".csv", {**TABLE, "pooling": "depths"}, Fields("review")),
    "choice": (
        questions,
        ".jsonl",
        {"text": "text", "pair": "ask", "label": "right", "kind": "choice"},
        Fields("text", "ask"),
    ),
    "entities": (entities, ".jsonl", {"text": "text", "label": "found", "kind": "entities"}, Fields()),
    "crf": (
        entities,
        ".jsonl",
        {"text": "text", "label": "found", "kind": "entities", "crf": True, "tags": "bioes"},
        Fields(),
    ),
    "answers": (
        squad,
        ".json",
        {"kind": "answers", "answer": {"longest": 3, "stride": 5, "question": 4}},
        Fields("context", "question"),
    ),
    "no answer": (
        partial(squad, without=0.4),
        ".json",
        {"kind": "answers", "answer": {"no_answer": True}},
        Fields("context", "question"),
    ),
    "relations": (stories, ".jsonl", {"text": "said", "label": "facts", "kind": "relations"}, Fields("said")),
    "similarity": (
        pairs_file,
        ".csv",
        {
            "text": "first",
            "pair": "second",
            "label": "points",
            "kind": "similarity",
            "similarity": {"lowest": 1, "highest": 5, "loss": "cosine", "pooling": "depths"},
        },
        Fields("first", "second"),
    ),
    "generation": (
        texts,
        ".jsonl",
        {"text": "source", "label": "target", "kind": "generation", "target_length": 4, "beams": 1},
        Fields("source"),
    ),
    "reading": (
        squad,
        ".json",
        {"kind": "reading", "target_length": 4},
        Fields("context", "question"),
    ),
}


@pytest.mark.sample(11, keep=("choice", "score", "crf"))
@pytest.mark.parametrize("kind", OWN)
def test_a_folder_answers_as_it_was_scored(tune: Tune, tmp_path: Path, kind: str) -> None:
    make, ending, choice, fields = OWN[kind]
    files = {}
    if make is not None:
        files = {n: make(tmp_path / f"{n}{ending}", 40, i) for i, n in enumerate(("train", "dev"))}
    length = 16 if kind in ("answers", "no answer", "reading", "generation") else 8
    defaults = {"text": "text", "label": "label"}  # of tune, which are of the table
    settings = tune(task={**defaults, **files, **choice, "max_length": length}, training={"steps": 3})
    result = finetune(settings, reporter=Reporter(quiet=True))
    predictions = [
        json.loads(line) for line in (result.folder / "predictions-dev.jsonl").read_text().splitlines()
    ]
    assert settings.task.dev is not None
    loaded = Predictor(result.folder / "best", precision="float32")
    there, named = rows_to_predict(settings.task.dev, loaded.family, fields)
    rows = list(loaded.columns(there, named, top=3))
    if kind == "reading":  # every question that was learned from has an answer
        assert isinstance(loaded.family, Read) and loaded.family.always
    assert [answer["prediction"] for _, answer in rows] == [line["prediction"] for line in predictions]
    assert len(rows) == len(predictions) >= 40
    for (_, answer), line in zip(rows, predictions, strict=True):
        for name in ("no_answer", "score"):
            assert answer.get(name) == pytest.approx(line.get(name), abs=2e-6)
        if "probability" in answer and "probabilities" in line:
            assert answer["probability"] == pytest.approx(line["probabilities"][line["prediction"]], abs=2e-6)
        if line.get("spans"):
            assert answer["spans"][0][2] == pytest.approx(line["spans"][0][2], abs=2e-6)
    if kind in ("entities", "crf"):  # whose long texts are read in windows
        assert loaded.cut == 0 and any(
            len(loaded.tokenizer.encode(row.fields["text"])) > 6 for row, _ in rows
        )
    elif kind not in ("answers", "no answer", "reading", "generation"):
        assert loaded.cut > 0, "no text was longer than the length, so it was not tested"
    little = Predictor(result.folder / "best", precision="float32", batch_tokens=20)
    sizes = sizes_of_passes(little)
    there, named = rows_to_predict(settings.task.dev, loaded.family, fields)
    again = [answer for _, answer in little.columns(there, named, top=3)]
    if kind == "no answer":  # the threshold is the margin of one of the rows, so a rounding decides there
        assert near([answer["no_answer"] for _, answer in rows]) == [answer["no_answer"] for answer in again]
    else:
        assert near([answer for _, answer in rows]) == again
    # The windows of a question are read together; a model fills rows of other lengths up to a multiple of 16.
    one = {"reading": 34, "entities": 32, "crf": 32}.get(kind, 20)
    assert max(sizes) <= one < sum(sizes)

    elsewhere = shutil.copytree(result.folder / "best", tmp_path / "elsewhere")
    run = open_run(elsewhere, [f"task.dev={settings.task.dev}", *columns(choice)], precision="float32")
    (judged,) = evaluate_run(run, ["dev"])
    lines = run.family.lines(judged.outputs, judged.data, judged.answers)
    assert [line["prediction"] for line in lines] == [line["prediction"] for line in predictions]
    assert judged.scores == pytest.approx({name: result.scores[name] for name in judged.scores})


def columns(choice: dict[str, Any]) -> list[str]:
    """The settings of a task that concern its file alone."""
    scale = choice.get("similarity", {})
    columns_of_kind = {**{"text": "text", "label": "label"}, **choice}
    found = [
        f"task.{name}={columns_of_kind[name]}"
        for name in ("text", "pair", "label")
        if name in columns_of_kind
    ]
    return found + [f"task.similarity.{n}={scale[n]}" for n in ("lowest", "highest") if n in scale]


def sizes_of_passes(of: Predictor) -> list[int]:
    """How many tokens each pass to come is of."""
    sizes: list[int] = []
    words = of.model.encoder.embeddings.word
    words.register_forward_pre_hook(lambda layer, given: sizes.append(given[0].numel()))
    return sizes


def near(answers: Any) -> Any:
    """Numbers as they are compared."""
    if isinstance(answers, dict):
        return {name: near(value) for name, value in answers.items()}
    if isinstance(answers, list | tuple):
        return [near(value) for value in answers]
    return pytest.approx(answers, abs=5e-6) if isinstance(answers, float) else answers


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory, pretrained: Path, tables: dict[str, Path]) -> Path:
    """The folder of a small classifier."""
    from albertine.core.settings import resolve
    from albertine.tasks.settings import FinetuneSettings

    tree = {
        "name": "toy",
        "output": tmp_path_factory.mktemp("tuned"),
        "task": {**tables, "text": "review", "label": "verdict", "max_length": 12},
        "encoder": {"folder": pretrained},
        "training": {"precision": "float32", "steps": 5, "threads": 1},
        "watching": {"tensorboard": False, "report": False},
    }
    return finetune(resolve(FinetuneSettings, tree), reporter=Reporter(quiet=True)).folder / "best"


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of 16 rows."""
    monkeypatch.setattr(predict, "CHUNK", 16)
    monkeypatch.setattr(predictor, "CHUNK", 16)


FIELDS = Fields("review")


def read(path: Path) -> list[dict[str, Any]]:
    return [dict(row.fields) for row in rows_of(path)]


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("ending", [".csv", ".tsv", ".jsonl", ".parquet"])
def test_every_form_has_the_rows_and_the_answers(
    tuned: Path, tables: dict[str, Path], tmp_path: Path, ending: str
) -> None:
    loaded, output = Predictor(tuned, precision="float32"), tmp_path / "an output" / f"out{ending}"
    output.parent.mkdir()
    source = tables["dev"]
    done = predict_file(loaded, source, output, fields=FIELDS)
    assert (done.rows, done.before) == (100, 0)
    found, given = read(output), read(source)
    assert [list(row) for row in found] == [[*row, "prediction", "probability"] for row in given]
    assert [{k: row[k] for k in given[0]} for row in found] == given
    answers = loaded.classify([row["review"] for row in given])
    for row, chances in zip(found, answers, strict=True):
        assert row["prediction"] == max(chances, key=chances.__getitem__)
        assert float(row["probability"]) == pytest.approx(max(chances.values()), abs=1e-6)
    assert list(output.parent.iterdir()) == [output]  # no part stays


@pytest.mark.sample(2)
@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(("ending", "workers"), [(".csv", 1), (".parquet", 1), (".csv", 2)])
def test_a_kill_anywhere_loses_and_doubles_nothing(
    tuned: Path, tables: dict[str, Path], tmp_path: Path, ending: str, workers: int
) -> None:
    loaded = Predictor(tuned, precision="float32")
    whole = tmp_path / f"whole{ending}"
    predict_file(loaded, tables["dev"], whole, fields=FIELDS)
    expected, output, kills = read(whole), tmp_path / f"out{ending}", 0

    def work() -> None:
        predict_file(loaded, tables["dev"], output, fields=FIELDS, overwrite=True, workers=workers)

    for at in range(1, 400, 7):
        if not dies_while(work, at):
            break
        kills += 1
        if kills % 3 == 0:
            work()
            assert read(output) == expected
            output.unlink()
    work()
    assert read(output) == expected and kills > 4
    assert not output.with_name(f".{output.name}.parts").exists()


@pytest.mark.usefixtures("small")
def test_it_goes_on_where_it_was(tuned: Path, tables: dict[str, Path], tmp_path: Path) -> None:
    loaded, output, source = (
        Predictor(tuned, precision="float32"),
        tmp_path / "out.jsonl",
        tmp_path / "in.csv",
    )
    source.write_bytes(tables["dev"].read_bytes())

    def stop(done: int, total: int | None) -> None:
        assert total == 100
        if done >= 48:
            raise KeyboardInterrupt

    go = partial(predict_file, loaded, source, output, fields=FIELDS)
    with pytest.raises(KeyboardInterrupt):
        go(progress=stop)
    assert not output.exists()
    # Another model, other columns or another source are another job.
    with pytest.raises(RunError, match="another fields"):
        predict_file(loaded, source, output, fields=Fields("answer"))
    content = source.read_bytes()
    source.write_bytes(content.replace(b"old", b"new", 1))
    with pytest.raises(RunError, match=r"another source.*--overwrite"):
        go()
    source.write_bytes(content)
    done = go()
    assert (done.rows, done.before) == (100, 48)
    with pytest.raises(SettingsError, match=r"is there already.*--overwrite"):
        go()
    before = output.read_bytes()
    assert go(overwrite=True).before == 0 and output.read_bytes() == before


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("small", "two_threads")
def test_several_processes_answer_as_one(
    tuned: Path, tables: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows in their order, to the last digit, what lost its end counted; and they do answer."""
    rows = [f'"{"the old man " * (12 if n % 7 == 0 else 1)}house {n}"' for n in range(100)]
    source, loaded = tmp_path / "in.csv", Predictor(tuned, precision="float32")
    source.write_text("\n".join(["review", *rows]) + "\n")
    at_work = tmp_path / "at work"
    real = Predictor.outputs

    def patched(predictor: Predictor, examples: Any) -> Any:
        with at_work.open("a") as file:
            file.write(f"{os.getpid()} {torch.get_num_threads()}\n")
        return real(predictor, examples)

    monkeypatch.setattr(Predictor, "outputs", patched)
    for ending in (".csv", ".jsonl", *([".parquet"] if find_spec("pyarrow") else [])):
        outputs = [tmp_path / f"{count}{ending}" for count in (1, 3)]
        one, three = (
            predict_file(loaded, source, output, fields=FIELDS, workers=count)
            for count, output in zip((1, 3), outputs, strict=True)
        )
        assert one == three and one.cut == 15
        alone, shared = map(read, outputs)
        assert [row["review"] for row in shared] == [row["review"] for row in alone]
        found, expected = ([float(row["probability"]) for row in rows] for rows in (shared, alone))
        assert found == pytest.approx(expected, abs=1e-6)
    forms = 3 if find_spec("pyarrow") else 2
    assert loaded.cut == forms * 30 and torch.get_num_threads() == 2
    progress = [line.split() for line in at_work.read_text().splitlines()]
    own, others = ([n for pid, n in progress if (pid == str(os.getpid())) is here] for here in (True, False))
    assert len(own) == forms * (7 + 1) and len(others) == forms * 6 and set(others) == {"1"}
    assert own.count("1") == forms  # the first part of several processes has one thread too


@pytest.mark.parametrize(
    ("threads", "rows", "count"), [(2, 128, 2), (2, 127, 1), (1, 10_000, 1), (4, 256, 4)]
)
def test_processes_are_as_many_as_threads_where_there_is_work_for_all(
    monkeypatch: pytest.MonkeyPatch, small: None, threads: int, rows: int, count: int
) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    assert predict._default_processes(rows) == count


def test_a_killed_process_is_reported_and_costs_only_its_part(
    tuned: Path, tables: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small: None
) -> None:
    """The next one continues meanwhile, and its answers are not computed again."""
    loaded, output, real, parent = Predictor(tuned), tmp_path / "out.csv", Predictor.outputs, os.getpid()
    parts = tmp_path / ".out.csv.parts"

    def patched(predictor: Predictor, examples: Any) -> Any:
        if os.getpid() != parent and examples[0].where.endswith(":34"):
            until = time.monotonic() + 60
            while not (parts / "000006.csv").exists() and time.monotonic() < until:
                time.sleep(0.01)
            os.kill(os.getpid(), signal.SIGKILL)
        return real(predictor, examples)

    with monkeypatch.context() as patch:
        patch.setattr(Predictor, "outputs", patched)
        with pytest.raises(RunError, match=r"killed by SIGKILL\. If memory ran out, use fewer workers"):
            predict_file(loaded, tables["dev"], output, fields=FIELDS, workers=2)
    assert not output.exists()
    assert sorted(path.stem for path in parts.iterdir()) == [f"{n:06d}" for n in (0, 1, 3, 4, 5, 6)] + [
        "job",
        "parts",
    ]
    done = predict_file(loaded, tables["dev"], output, fields=FIELDS, workers=2)
    assert (
        done.rows == 100
        and done.before == 84
        and [r["review"] for r in read(output)] == [r["review"] for r in read(tables["dev"])]
    )


def test_a_process_without_memory_is_reported(
    tuned: Path, tables: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    real, parent = Predictor.outputs, os.getpid()

    def patched(predictor: Predictor, examples: Any) -> Any:
        if os.getpid() != parent:
            raise MemoryError("Unable to allocate 3 GiB")
        return real(predictor, examples)

    monkeypatch.setattr(Predictor, "outputs", patched)
    monkeypatch.setattr(predict, "CHUNK", 16)
    words = ["predict", "classify", str(tuned), "--file", str(tables["dev"]), "--text", "review"]
    assert run([*words, "-o", str(tmp_path / "out.csv"), "--workers", "2"]) == 2
    assert "not enough memory (Unable to allocate 3 GiB)" in capsys.readouterr().err


def test_an_answer_that_cannot_be_written_is_reported_by_every_process(
    tuned: Path, tables: dict[str, Path], tmp_path: Path, small: None
) -> None:
    """The error names its row, and no file is left."""
    parent = os.getpid()

    def answers(loaded: Any, rows: Any, fields: Any) -> Any:
        names = "prediction" if os.getpid() == parent else "review"
        return ((row, {names: "a"}) for row in rows)

    loaded, output = Predictor(tuned), tmp_path / "out.csv"
    with pytest.raises(DataError, match=r"dev.csv:\d+: has a column `review` itself"):
        predict_file(loaded, tables["dev"], output, fields=FIELDS, function=answers, workers=2)
    assert list(tmp_path.iterdir()) == []


def test_workers_are_refused_where_a_model_lives_in_one_process(
    tuned: Path, tables: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded, output = Predictor(tuned), tmp_path / "out.csv"
    with pytest.raises(SettingsError, match="workers is a whole number from 1, not 0"):
        predict_file(loaded, tables["dev"], output, fields=FIELDS, workers=0)
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(SettingsError, match="Leave the number of workers out"):
        predict_file(loaded, tables["dev"], output, fields=FIELDS, workers=2)
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr(predict, "_default_processes", lambda rows: pytest.fail("it forks"))
    assert predict_file(loaded, tables["dev"], output, fields=FIELDS).rows == 100
    monkeypatch.undo()
    monkeypatch.setattr(predict, "_default_processes", lambda rows: 2)
    with get_context("fork").Pool(1) as pool:  # whose workers may have no children
        assert pool.apply(
            predict_file, (loaded, tables["dev"], output), {"fields": FIELDS, "overwrite": True}
        )


def test_wrong_arguments_are_reported(tuned: Path, tables: dict[str, Path], tmp_path: Path) -> None:
    loaded, source = Predictor(tuned), tmp_path / "in.csv"
    for content, fields, message in (
        ("review\n", FIELDS, "holds no rows"),
        ("other\na man\n", FIELDS, "no column `review`; it has `other`"),
        ("review,prediction\na man,1\n", FIELDS, "has a column `prediction` itself"),
        ("review\na man\nthe,house\n", FIELDS, ":3: has 2 fields"),
    ):
        source.write_text(content)
        with pytest.raises(DataError, match=message):
            predict_file(loaded, source, tmp_path / "out.csv", fields=fields)
        assert sorted(p.name for p in tmp_path.iterdir()) == ["in.csv"]  # nothing half-written
    with pytest.raises(SettingsError, match=r"ends in `.xlsx`.*\.csv"):
        predict_file(loaded, source, tmp_path / "out.xlsx")
    with pytest.raises(DataError, match="No such file"):
        predict_file(loaded, tmp_path / "none.csv", tmp_path / "out.csv")
    with pytest.raises(ModelError, match="tuned to classify texts, and cannot tag entities"):
        loaded.tag("a man")


@pytest.mark.parametrize("column", ["prediction", "probability"])
def test_no_answer_takes_the_place_of_a_column(tuned: Path, column: str) -> None:
    loaded, rows = Predictor(tuned), [{"review": "a man", column: "mine"}]
    with pytest.raises(DataError, match=rf"^list\[0\]: has a column `{column}` itself\. Rename it"):
        list(loaded.predict(rows, text="review"))
    (row,) = loaded.predict([{"review": "a man", "probabilities": "mine"}], text="review")
    assert row["probabilities"] == "mine" and row["prediction"]


def test_rows_of_different_columns_need_json_lines(tuned: Path, tmp_path: Path) -> None:
    source, loaded = tmp_path / "in.jsonl", Predictor(tuned)
    rows = [{"review": "a man"}] * 16 + [{"review": "a man", "more": [1, {"a": "北"}]}]
    source.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(predict, "CHUNK", 16)
        with pytest.raises(DataError, match=r"jsonl:17: has a column `more`, which the first rows lack"):
            predict_file(loaded, source, tmp_path / "out.csv", fields=FIELDS)
        predict_file(loaded, source, tmp_path / "out.jsonl", fields=FIELDS)
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text("utf-8").splitlines()]
    assert [line.get("more") for line in lines] == [None] * 16 + [[1, {"a": "北"}]]


@pytest.mark.parametrize("size", [1, 16])
def test_a_column_of_several_types_is_text_in_parquet(
    tuned: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr(predict, "CHUNK", size)
    source, output = tmp_path / "in.jsonl", tmp_path / "out.parquet"
    values = [1, "two", None, True, [3], 2**70]
    numbers = [1, 2.5, None, 4, 5, 6]
    rows = [{"review": "a man", "n": n, "x": x} for n, x in zip(values, numbers, strict=True)]
    source.write_text("\n".join(map(json.dumps, rows)))
    predict_file(Predictor(tuned), source, output, fields=FIELDS)
    found = read(output)
    assert [row["n"] for row in found] == ["1", "two", None, "true", "[3]", str(2**70)]
    assert [row["x"] for row in found] == numbers


@pytest.mark.parametrize("ending", [".jsonl", ".csv", ".parquet"])
def test_times_and_bytes_of_parquet(tuned: Path, tmp_path: Path, ending: str) -> None:
    arrow = pytest.importorskip("pyarrow")
    source, output = tmp_path / "in.parquet", tmp_path / f"out{ending}"
    when, day = datetime(2026, 1, 2, 3, 4, 5), date(2026, 1, 2)
    columns = {"review": ["a man"], "when": [when], "days": [[day]], "raw": [b"xy"]}
    pytest.importorskip("pyarrow.parquet").write_table(arrow.table(columns), source)
    predict_file(Predictor(tuned), source, output, fields=FIELDS)
    (row,) = read(output)
    days, raw = row["days"], row["raw"]
    assert (days if ending == ".jsonl" else json.loads(days)) == ["2026-01-02"]
    assert raw == (b"xy" if ending == ".parquet" else "xy")
    assert (row["when"] if ending == ".parquet" else datetime.fromisoformat(row["when"])) == when


def test_a_carriage_return_does_not_end_a_row(tuned: Path, tmp_path: Path) -> None:
    source, output = tmp_path / "in.jsonl", tmp_path / "out.csv"
    texts = ["one\rtwo", "the man", 'say "hi"\r\n']
    source.write_text("\n".join(json.dumps({"review": text}) for text in texts))
    predict_file(Predictor(tuned), source, output, fields=FIELDS)
    with output.open(newline="", encoding="utf-8") as file:
        found = list(csv.DictReader(file))
    assert [row["review"] for row in found] == texts
    assert {row["prediction"] for row in found} <= {"fine", "poor"}


@pytest.mark.parametrize("ending", [".csv", ".tsv"])
def test_formulas_are_escaped_where_that_is_wanted(tuned: Path, tmp_path: Path, ending: str) -> None:
    """Else every cell is as it was given; numbers are no formulas."""
    source, output = tmp_path / "in.jsonl", tmp_path / f"out{ending}"
    texts = ["=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(1)", "＝1+1", "-2.5", "+3", "good = bad", "'=1"]
    source.write_text("".join(json.dumps({"review": text, "=n": -1}) + "\n" for text in texts))
    go = partial(predict_file, Predictor(tuned), source, output, fields=FIELDS)
    go()
    assert [row["review"] for row in read(output)] == texts
    go(overwrite=True, escape_formulas=True)
    found = read(output)
    assert [row["review"] for row in found] == [f"'{text}" for text in texts[:5]] + texts[5:]
    assert list(found[0])[1] == "'=n" and found[0]["'=n"] == "-1"
    with pytest.raises(SettingsError, match="escapes formulas for spreadsheets"):
        predict_file(Predictor(tuned), source, tmp_path / "out.jsonl", fields=FIELDS, escape_formulas=True)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("mark", [b"", codecs.BOM_UTF8])
@pytest.mark.parametrize("ending", [".csv", ".tsv", ".jsonl", ".parquet"])
def test_what_excel_wrote_it_can_read_again(tuned: Path, tmp_path: Path, ending: str, mark: bytes) -> None:
    """Without the mark of UTF-8 it shows the characters of another encoding; other forms have none."""
    source, output = tmp_path / "in.csv", tmp_path / f"out{ending}"
    source.write_bytes(mark + b"review\n" + "Müller 很好\n".encode() * 20)
    predict_file(Predictor(tuned), source, output, fields=FIELDS)
    content = output.read_bytes()
    assert content.count(codecs.BOM_UTF8) == (mark != b"" and ending in (".csv", ".tsv"))
    assert content.startswith(mark) or ending in (".jsonl", ".parquet")
    assert [row["review"] for row in read(output)] == ["Müller 很好"] * 20


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("mark", ["\t", "\n", "\r"])
def test_what_no_line_of_tsv_holds_is_reported_before_any_answer(
    tuned: Path, tmp_path: Path, monkeypatch: Any, mark: str
) -> None:
    source, output, loaded = tmp_path / "in.jsonl", tmp_path / "out.tsv", Predictor(tuned)
    texts = ["the man"] * 40 + [f"one{mark}two"]
    source.write_text("\n".join(json.dumps({"review": text}) for text in texts))
    message = "holds a tab or a line break.* ends in .csv, .jsonl or .parquet"
    with monkeypatch.context() as broken:
        broken.setattr(Predictor, "outputs", lambda *given, **more: pytest.fail("asked"))
        with pytest.raises(DataError, match=rf"in.jsonl:41: `review` {message}"):
            predict_file(loaded, source, output, fields=FIELDS)
    assert list(tmp_path.iterdir()) == [source]

    def answers(loaded: Any, rows: Any, fields: Any) -> Any:
        return ((row, {"prediction": f"a{mark}b"}) for row in rows)

    source.write_text(json.dumps({"review": 'say ""hi"'}))
    with pytest.raises(DataError, match=rf"in.jsonl:1: `prediction` {message}"):
        predict_file(loaded, source, output, fields=FIELDS, function=answers)
    source.write_text(json.dumps({f"a{mark}b": 1, "review": "x"}))
    with pytest.raises(DataError, match=rf"in.jsonl:1: `a b` {message}"):
        predict_file(loaded, source, output, fields=FIELDS)


RIGHT = [{"review": "the man", "pair": "a"}] * 40
WRONG: dict[str, tuple[dict[str, Any], str, str]] = {
    "no text": ({"review": None, "pair": "a"}, ".jsonl", "in.jsonl:41: `review` is empty, not text"),
    "no column": ({"pair": "a"}, ".jsonl", "in.jsonl:41: has no column `review`"),
    "a new column": ({**RIGHT[0], "more": 1}, ".csv", "in.jsonl:41: has a column `more`, which the first"),
    "no second text": ({"review": "a", "pair": None}, ".jsonl", "in.jsonl:41: `pair` is empty, not text"),
}


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_row_is_reported_before_any_answer(
    tuned: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: str
) -> None:
    """Catches: hours of answers deleted with the parts that they are in, since the last row is wrong."""
    source, loaded = tmp_path / "in.jsonl", Predictor(tuned)
    row, ending, message = WRONG[wrong]
    source.write_text("\n".join(map(json.dumps, [*RIGHT, row])))
    monkeypatch.setattr("albertine.tasks.text_vectors.CHUNK", 16)
    monkeypatch.setattr(Predictor, "outputs", lambda *given, **more: pytest.fail("asked"))
    monkeypatch.setattr(TextEmbedder, "__call__", lambda *given, **more: pytest.fail("asked"))
    go = partial(predict_file, loaded, source, tmp_path / f"out{ending}", fields=Fields("review", "pair"))
    ways = [cosines] if wrong == "no second text" else [Predictor.columns, vectors, cosines]
    for way in ways:
        with pytest.raises(DataError, match=re.escape(message)):
            go(ask=way)
    assert list(tmp_path.iterdir()) == [source]


@pytest.mark.usefixtures("small")
def test_a_late_column_of_the_name_of_an_answer_costs_no_answers(
    tuned: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In JSON lines, whose rows may have columns that the first ones lack: reported as soon as answers have
    names."""
    source, loaded, real, times = tmp_path / "in.jsonl", Predictor(tuned), Predictor.outputs, list[int]()
    rows: list[dict[str, Any]] = [{"review": "the man"}] * 40
    rows += [{"review": "a", "more": 1}, {"review": "a", "prediction": 1}, {"review": "a", "prediction": 2}]
    source.write_text("\n".join(map(json.dumps, rows)))

    def patched(predictor: Predictor, examples: Any) -> Any:
        times.append(len(examples))
        return real(predictor, examples)

    monkeypatch.setattr(Predictor, "outputs", patched)
    with pytest.raises(DataError, match=r"in.jsonl:42: has a column `prediction` itself\. Rename it"):
        predict_file(loaded, source, tmp_path / "out.jsonl", fields=FIELDS)
    assert times == [16] and list(tmp_path.iterdir()) == [source]


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("ending", [".parquet", ".jsonl", ".json", ".csv"])
def test_how_many_rows_there_are_is_known(tuned: Path, tmp_path: Path, ending: str) -> None:
    """Of every form, also when it resumes; lines of a CSV are no rows."""
    rows, source, totals = [{"review": "a\nman"}] * 40, tmp_path / f"in{ending}", set[int | None]()
    if ending == ".parquet":
        pytest.importorskip("pyarrow")
        arrow, parquet = output_parts._pyarrow()
        parquet.write_table(arrow.Table.from_pylist(rows), source)
    elif ending == ".csv":
        source.write_text("review\n" + '"a\nman"\n' * 40)
    else:
        lines = list(map(json.dumps, rows))
        source.write_text("\n".join(lines) if ending == ".jsonl" else f"[{', '.join(lines)}]")
    go = partial(predict_file, Predictor(tuned), source, tmp_path / "out.jsonl", fields=FIELDS)

    def stop(done: int, total: int | None) -> None:
        totals.add(total)
        if done == 16:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        go(progress=stop)
    assert go(progress=lambda done, total: totals.add(total)).before == 16 and totals == {40}


@pytest.mark.usefixtures("small")
def test_named_columns_are_resumed_too(tuned: Path, tables: dict[str, Path], tmp_path: Path) -> None:
    source, output = tmp_path / "in.csv", tmp_path / "out.csv"
    source.write_text(tables["dev"].read_text().partition("\n")[2])
    names = ("review", "answer", "verdict", "points", "tags")

    def stop(done: int, total: int | None) -> None:
        if done == 48:
            raise KeyboardInterrupt

    go = partial(predict_file, Predictor(tuned), source, output, fields=FIELDS, header=names)
    with pytest.raises(KeyboardInterrupt):
        go(progress=stop)
    assert go().before == 48


def test_the_command(tuned: Path, tables: dict[str, Path], tmp_path: Path, capsys: Any) -> None:
    output = tmp_path / "out.csv"
    words = ["predict", "classify", str(tuned), "--file", str(tables["dev"])]
    assert run([*words, "-o", str(output), "--text", "review", "--top", "2"]) == 0
    captured = capsys.readouterr()
    assert "100 rows in" in captured.out and "were too long" not in captured.err
    with output.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 100 and set(json.loads(rows[0]["probabilities"])) == {"fine", "poor"}
    for wrong, message in (
        (words, "name the table to write"),
        ([*words, "-o", str(output), "--text", "review"], "is there already"),
        ([*words[:3], "a text", *words[3:], "-o", str(tmp_path / "b.csv")], "give texts or --file"),
        ([*words[:3], "a text", "-o", str(tmp_path / "b.csv")], "belongs to --file"),
        ([*words, "-o", str(tmp_path / "b.csv")], "no column `text`"),
        ([*words, "-o", str(tmp_path / "b.csv"), "--json"], "--json: means nothing with --file"),
        ([*words[:3], "a text", "--text", "review"], "--text: belongs to --file"),
        ([*words[:3], "a text", "--pair", "x"], "--pair: belongs to --file"),
        ([*words[:3], "a text", "--top", "1"], "--top: belongs to --file"),
        ([*words[:3], "a text", "--no-header"], "--no-header: belongs to --file"),
        ([*words[:3], "a text", "--encoding", "latin-1"], "--encoding: belongs to --file"),
        ([*words[:3], "a text", "--overwrite"], "--overwrite: belongs to --file"),
        (["predict", "embed", str(tuned), "a text", "--text", "review"], "--text: belongs to --file"),
        (
            ["predict", "similarity", *words[2:], "-o", str(tmp_path / "b.csv"), "--json"],
            "--json: means nothing with --file",
        ),
        (["predict", "tag", *words[2:], "-o", str(tmp_path / "b.csv")], "cannot tag entities"),
        (["predict", "choose", str(tuned)], "is missing; or give --file"),
        (["predict", "classify", str(tuned), "x", "--device", "foo"], "there is no device `foo`"),
    ):
        assert run(wrong) == 2, wrong
        assert message in capsys.readouterr().err.replace("\n", " ")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out.csv"]


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_resumed_command_reports_the_rows_of_the_earlier_one(
    tuned: Path, tables: dict[str, Path], tmp_path: Path, capsys: Any, small: None, workers: str
) -> None:
    words = ["predict", "classify", str(tuned), "--file", str(tables["dev"]), "--text", "review"]
    words += ["-o", str(tmp_path / "out.csv"), "--workers", workers]
    kept = predict._PartWriter.add

    def add(parts: Any, part: Any) -> None:
        if parts.rows == 48:
            raise KeyboardInterrupt
        kept(parts, part)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(predict._PartWriter, "add", add)
        assert run(words) == 130
    assert "The same command goes on" in capsys.readouterr().err
    assert run(words) == 0
    assert "100 rows" in (output := capsys.readouterr().out) and "of them by an earlier command" in output
    assert len(read(tmp_path / "out.csv")) == 100


def test_lines_of_stdin(tuned: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def given(content: bytes) -> int:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content), encoding="ascii"))
        return run(["predict", "classify", str(tuned), "--json"])

    assert given(b"\xef\xbb\xbfa man\r\n\xe5\x8c\x97\r\n") == 0
    lines = [json.loads(line)["text"] for line in capsys.readouterr().out.splitlines()]
    assert lines == ["a man", "北"]
    assert given((" ".join(["house"] * 40) + "\n").encode()) == 0
    assert "1 texts were too long" in capsys.readouterr().err
    for content, guess in (("服务很好".encode("gb18030"), "gb18030"), ("a man".encode("utf-16"), "utf-16")):
        assert given(b"a man\n" + content) == 2
        captured = capsys.readouterr()
        assert "line 2 is not UTF-8 text" in captured.err and "iconv -f" in captured.err and not captured.out
        assert guess == "utf-16" or guess in captured.err


def test_an_answer_that_would_differ_is_another_job(
    tuned: Path, tables: dict[str, Path], tmp_path: Path
) -> None:
    """Everything on which the rows of a part depend."""
    loaded, output = Predictor(tuned, precision="float32"), tmp_path / "out.csv"

    def stop(done: int, total: int | None) -> None:
        if done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        predict_file(loaded, tables["dev"], output, fields=FIELDS, progress=stop)
    other = Predictor(tuned, precision="bfloat16")
    for what, model, more in (
        ("model", other, {}),
        ("top", loaded, {"top": 1}),
        ("encoding", loaded, {"encoding": "latin-1"}),
    ):
        with pytest.raises(RunError, match=f"with another {what}$|with another {what}[.:; ]"):
            predict_file(model, tables["dev"], output, fields=FIELDS, **more)  # type: ignore[arg-type]


def test_a_loss_of_power_costs_no_answer(
    tuned: Path, tables: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded, output = Predictor(tuned, precision="float32"), tmp_path / "out.csv"
    disk = Disk(monkeypatch, tmp_path)
    predict_file(loaded, tables["dev"], output, fields=FIELDS)
    assert disk.complaints == [] and disk.lost(output) == [] == disk.missing(output)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("full_at", [0, 2, 6])
def test_a_full_disk_is_reported_and_loses_nothing(
    tuned: Path, tables: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, full_at: int
) -> None:
    """At the first part, at one in the middle, and at the last; parts are written while the next answers are
    computed."""
    real, output, messages = predict.replace_durably, tmp_path / "out.csv", []

    def full(path: Path, content: bytes) -> None:
        if path.name == f"{full_at:06d}.csv":
            raise OSError(errno.ENOSPC, "No space left on device")
        real(path, content)

    go = partial(predict_file, Predictor(tuned, precision="float32"), tables["dev"], output, fields=FIELDS)
    with monkeypatch.context() as patch, pytest.raises(RunError, match="disk is full"):
        patch.setattr(predict, "replace_durably", full)
        go(progress=lambda done, total: messages.append(done))
    assert messages[-1] == 16 * full_at and not output.exists()
    assert go().before == 16 * full_at
    assert [row["review"] for row in read(output)] == [row["review"] for row in read(tables["dev"])]


def test_what_lost_its_end_is_counted_over_all_calls(tuned: Path) -> None:
    loaded, long = Predictor(tuned), "the old man " * 20
    loaded.classify([long, "a man"])
    loaded.classify(long)
    assert loaded.cut == 2


@pytest.fixture
def broken_off(tuned: Path, tables: dict[str, Path], tmp_path: Path, small: None) -> Any:
    """A command for a CSV file that was stopped after three parts of 16 rows."""

    def stop(done: int, total: int | None) -> None:
        if done >= 48:
            raise KeyboardInterrupt

    go = partial(predict_file, Predictor(tuned, precision="float32"), fields=FIELDS)
    with pytest.raises(KeyboardInterrupt):
        go(tables["dev"], tmp_path / "out.csv", progress=stop)
    return partial(go, tables["dev"], tmp_path / "out.csv")


def test_a_kill_while_parts_are_deleted_loses_no_row(broken_off: Any, tmp_path: Path) -> None:
    (tmp_path / ".out.csv.parts" / "000000.csv").unlink()
    assert broken_off().rows == 100 and len(read(tmp_path / "out.csv")) == 100


def cut_off(folder: Path, ending: str) -> None:
    with (folder / f"000001{ending}").open("r+b") as file:
        file.truncate(100)


def flip(folder: Path, ending: str) -> None:
    path = folder / f"000001{ending}"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0x40
    path.write_bytes(content)


def copy_over(folder: Path, ending: str) -> None:
    """A whole part under the number of another."""
    (folder / f"000001{ending}").write_bytes((folder / f"000000{ending}").read_bytes())


def lose(folder: Path, ending: str) -> None:
    (folder / f"000001{ending}").unlink()


@pytest.mark.parametrize("damage", [cut_off, flip, copy_over, lose])
@pytest.mark.parametrize("ending", [".csv", ".jsonl", ".parquet"])
def test_a_damaged_part_is_computed_again(
    tuned: Path,
    tables: dict[str, Path],
    tmp_path: Path,
    small: None,
    ending: str,
    damage: Callable[[Path, str], None],
) -> None:
    if ending == ".parquet":
        pytest.importorskip("pyarrow")
    go = partial(predict_file, Predictor(tuned, precision="float32"), tables["dev"], fields=FIELDS)
    go(tmp_path / f"whole{ending}")

    def stop(done: int, total: int | None) -> None:
        if done >= 48:
            raise KeyboardInterrupt

    output = tmp_path / f"out{ending}"
    with pytest.raises(KeyboardInterrupt):
        go(output, progress=stop)
    damage(tmp_path / f".out{ending}.parts", ending)
    done = go(output)
    assert (done.rows, done.before, done.again) == (100, 32, 16)
    assert read(output) == read(tmp_path / f"whole{ending}")


@pytest.mark.parametrize("name", ["000001 (copy).csv", "000099.csv", "000001.jsonl", "notes.txt"])
def test_a_file_that_is_no_part_is_refused(broken_off: Any, tmp_path: Path, name: str) -> None:
    folder = tmp_path / ".out.csv.parts"
    (folder / name).write_bytes((folder / "000001.csv").read_bytes())
    with pytest.raises(RunError, match=re.escape(name)):
        broken_off()
    (folder / name).unlink()
    assert broken_off().before == 48 and len(read(tmp_path / "out.csv")) == 100


def test_a_part_that_was_never_finished_is_no_answer(broken_off: Any, tmp_path: Path) -> None:
    folder = tmp_path / ".out.csv.parts"
    (folder / "000004.csv").write_bytes((folder / "000001.csv").read_bytes())
    done = broken_off()
    assert (done.before, done.again) == (48, 0)
    assert len({row["review"] for row in read(tmp_path / "out.csv")}) > 84


def test_a_damaged_record_of_the_job_begins_anew(broken_off: Any, tmp_path: Path) -> None:
    job = tmp_path / ".out.csv.parts" / "job.json"
    job.write_text(job.read_text().replace('"total": 100', '"total": 99'))
    done = broken_off()
    assert (done.rows, done.before, done.again) == (100, 0, 48)


def test_a_job_of_an_earlier_version_is_computed_again_and_counted(broken_off: Any, tmp_path: Path) -> None:
    job = tmp_path / ".out.csv.parts" / "job.json"
    tree = json.loads(job.read_text())
    del tree["digest"]
    job.write_text(json.dumps(tree))
    done = broken_off()
    assert (done.rows, done.before, done.again) == (100, 0, 48)


def test_the_record_of_a_part_is_one_line(broken_off: Any, tmp_path: Path) -> None:
    """Catches: a file that is written whole with every part, quadratic in the rows."""
    folder = tmp_path / ".out.csv.parts"
    job, records = folder / "job.json", folder / "parts.jsonl"
    once, lines, made = job.read_text(), records.read_text().splitlines(), job.stat().st_ino
    assert [json.loads(line)[:2] for line in lines] == [[0, 16], [1, 16], [2, 16]]

    def stop(done: int, total: int | None) -> None:
        if done >= 80:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        broken_off(progress=stop)
    assert (job.read_text(), job.stat().st_ino) == (once, made)
    assert records.read_text().splitlines()[:3] == lines and len(records.read_text().splitlines()) == 5
    assert broken_off().before == 80


def test_a_record_that_a_kill_cut_off_is_none(broken_off: Any, tmp_path: Path) -> None:
    records = tmp_path / ".out.csv.parts" / "parts.jsonl"
    records.write_bytes(records.read_bytes()[:-9])

    def stop(done: int, total: int | None) -> None:
        if done >= 64:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        broken_off(progress=stop)
    done = broken_off()
    assert (done.rows, done.before, done.again) == (100, 64, 0)
    assert len({row["review"] for row in read(tmp_path / "out.csv")}) > 84


@pytest.mark.parametrize(
    ("damaged", "before"), [("", 0), ("{}\n", 0), ("first", 32), ("flipped", 32), ("no line", 16)]
)
def test_damaged_records_are_computed_again_and_counted(
    broken_off: Any, tmp_path: Path, damaged: str, before: int
) -> None:
    records = tmp_path / ".out.csv.parts" / "parts.jsonl"
    first, *others = records.read_text().splitlines(keepends=True)
    content = {
        "first": first[3:] + "".join(others),
        "flipped": first.replace("[0,", "[9,") + "".join(others),
        "no line": first,
    }.get(damaged, damaged)
    records.write_text(content)
    done = broken_off()
    assert (done.rows, done.before) == (100, before)
    assert done.again == 48 - before
    assert len({row["review"] for row in read(tmp_path / "out.csv")}) > 84


def test_a_part_that_changes_meanwhile_is_refused(broken_off: Any, tmp_path: Path) -> None:
    folder = tmp_path / ".out.csv.parts"

    def change(done: int, total: int | None) -> None:
        if done == 100:
            cut_off(folder, ".csv")

    with pytest.raises(RunError, match=r"000001\.csv.*same command again"):
        broken_off(progress=change)
    assert broken_off().again == 16 and len(read(tmp_path / "out.csv")) == 100


def test_a_package_that_is_missing_costs_no_answer(
    tuned: Path, tables: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small: None
) -> None:
    pytest.importorskip("pyarrow")
    arrow, parquet = output_parts._pyarrow()
    source, output = tmp_path / "in.parquet", tmp_path / "out.jsonl"
    parquet.write_table(arrow.Table.from_pylist(read(tables["dev"])), source)

    def stop(done: int, total: int | None) -> None:
        if done >= 48:
            raise KeyboardInterrupt

    go = partial(predict_file, Predictor(tuned, precision="float32"), source, output, fields=FIELDS)
    with pytest.raises(KeyboardInterrupt):
        go(progress=stop)
    with monkeypatch.context() as patch, pytest.raises(DataError, match="pyarrow"):
        patch.setitem(sys.modules, "pyarrow", None)
        go()
    assert go().before == 48


def test_a_job_that_cannot_be_read_is_kept(
    broken_off: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Path.read_text

    def stale(path: Path, *args: Any, **how: Any) -> str:
        if path.name == "job.json":
            raise OSError(errno.ESTALE, "Stale file handle")
        return real(path, *args, **how)

    with monkeypatch.context() as patch, pytest.raises(RunError, match="Stale"):
        patch.setattr(Path, "read_text", stale)
        broken_off()
    assert broken_off().before == 48


def test_nothing_is_open_in_the_folder_that_is_deleted(
    tuned: Path, tables: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a network file system it would not go: the lock, which is open, is the last to be deleted."""
    clear, left = predict._clear, list[str]()

    def cleared(folder: Path) -> None:
        clear(folder)
        left.extend(path.name for path in folder.iterdir())

    monkeypatch.setattr(predict, "_clear", cleared)
    monkeypatch.setattr(shutil, "rmtree", lambda *_, **__: pytest.fail("with the open lock in it"))
    predict_file(Predictor(tuned), tables["dev"], tmp_path / "out.jsonl", fields=FIELDS)
    assert left == [".lock"] * 2  # as it begins and as it ends
    assert [p.name for p in tmp_path.iterdir()] == ["out.jsonl"]


def test_an_output_made_meanwhile_stays(tuned: Path, tables: dict[str, Path], tmp_path: Path) -> None:
    output = tmp_path / "out.jsonl"

    def meanwhile(done: int, total: int | None) -> None:
        output.write_text("another's")

    with pytest.raises(SettingsError, match="is there already"):
        predict_file(Predictor(tuned), tables["dev"], output, fields=FIELDS, progress=meanwhile)
    assert output.read_text() == "another's"


def test_columns_by_number(tuned: Path) -> None:
    frame = pytest.importorskip("pandas").DataFrame([["a man", "x"]])
    (row,) = Predictor(tuned).predict(frame, text=0)
    assert row["0"] == "a man" and row["prediction"]


def test_a_link_to_the_output_stays_one(tuned: Path, tables: dict[str, Path], tmp_path: Path) -> None:
    """The answers are where it leads to, as on a larger disk, and so are the parts."""
    link, file = tmp_path / "here" / "out.jsonl", tmp_path / "there" / "out.jsonl"
    for path in (link, file):
        path.parent.mkdir()
    file.write_text("old")
    link.symlink_to(file)
    written = list[Path]()

    def progress(done: int, total: int | None) -> None:
        written.extend(link.parent.iterdir())

    predict_file(Predictor(tuned), tables["dev"], link, fields=FIELDS, overwrite=True, progress=progress)
    assert link.is_symlink() and len(file.read_text().splitlines()) == 100
    assert {*written} == {link}


def test_a_stream_is_refused_before_it_is_read(tuned: Path, tables: dict[str, Path], tmp_path: Path) -> None:
    """As the `<(zcat rows.csv.gz)` of a shell: read twice, it would hold no rows."""
    reader, writer = os.pipe()
    os.write(writer, b"review\na man\n")
    os.close(writer)
    try:
        with pytest.raises(DataError, match="a stream, which can be read once"):
            predict_file(Predictor(tuned), Path(f"/dev/fd/{reader}"), tmp_path / "out.jsonl", fields=FIELDS)
    finally:
        os.close(reader)


@pytest.mark.parametrize(("form", "answer"), [(".csv", "true"), (".tsv", "true"), (".parquet", True)])
def test_true_is_answered_by_the_class_of_that_name(form: str, answer: object) -> None:
    """As in JSON. Catches: a label `True` beside the prediction `true`, which no comparison finds equal."""
    assert output_parts._cell(True, form) == answer


def test_errors_of_a_python_call_name_its_arguments(tuned: Path, tmp_path: Path) -> None:
    """It takes those by which a file is read, which are options of the command."""
    loaded, path = Predictor(tuned), tmp_path / "a.csv"
    path.write_bytes("1,caf\u00e9\n2,the man\n".encode("latin-1"))
    with pytest.raises(DataError, match=r"is not utf-8 text.*or pass encoding=latin-1$"):
        list(loaded.predict(path))
    with pytest.raises(DataError, match=r"has no column `review`.*Name it: text=COLUMN; or header=False, if"):
        list(loaded.predict(path, encoding="latin-1", text="review"))
    found = list(loaded.predict(path, encoding="latin-1", header=False, text=2))
    assert [row["2"] for row in found] == ["caf\u00e9", "the man"]
    named = loaded.predict(path, encoding="latin-1", header=["n", "review"], text="review")
    assert [row["prediction"] for row in named] == [row["prediction"] for row in found]
    with pytest.raises(DataError, match=r"has no column `said`.*Name it: pair=COLUMN$"):
        list(loaded.predict([{"text": "a"}], pair="said"))
