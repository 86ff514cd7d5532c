"""`albertine predict embed` and `similarity`."""

from __future__ import annotations

import io
import json
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from albertine.core import files
from albertine.errors import RunError
from albertine.interop.huggingface.folders import save_model
from albertine.model.model import Model
from albertine.pretraining.initial_model import encoder_config
from albertine.pretraining.settings import ModelChoice
from albertine.tasks.family import Fields
from albertine.tasks.predict import predict_file
from albertine.tasks.predictor import Predictor
from albertine.tasks.readers.table import rows_of
from albertine.tasks.text_vectors import cosines, vectors
from albertine.tokenizers.load import load_tokenizer
from tests.cli.conftest import Command
from tests.toy import MODEL

TEXTS = ["he was", "", "the " * 90]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random model that was never tuned."""
    home = tmp_path_factory.mktemp("a home")
    words = "[PAD] [UNK] [CLS] [SEP] [MASK] the old man said he was"
    (home / "vocab.txt").write_text(words.replace(" ", "\n") + "\n")
    tokenizer = load_tokenizer(home / "vocab.txt")
    choice = ModelChoice(preset="albert-tiny-zh", change={**MODEL, "max_position_embeddings": 64})
    config = encoder_config(choice, tokenizer.vocab_size, 64)
    save_model(Model(config, {"pooler"}, seed=3), tokenizer, home / "model")
    return home / "model"


def test_vectors_as_json_lines(albertine: Command, folder: Path) -> None:
    outcome = albertine("predict", "embed", folder, "he was", "old")
    assert outcome.code == 0 and outcome.err == ""
    lines = [json.loads(line) for line in outcome.out.splitlines()]
    assert [line["text"] for line in lines] == ["he was", "old"]
    found = np.array([line["vector"] for line in lines], dtype=np.float32)
    np.testing.assert_array_equal(found, Predictor(folder).embed(["he was", "old"]))
    written = [number for line in lines for number in line["vector"]]
    assert written == [float(str(number)) for number in found.ravel()], "more decimals than a float32 has"


def test_every_line_of_stdin_is_a_row(
    albertine: Command, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("\n".join(TEXTS) + "\n"))
    monkeypatch.setattr("albertine.tasks.predictor.CHUNK", 2)
    output = tmp_path / "vectors.npy"
    outcome = albertine("predict", "embed", folder, "-o", output, "--normalize")
    assert outcome.code == 0
    assert "3 vectors of 32 numbers" in outcome.out and "1 texts were cut to 64 tokens" in outcome.err
    expected = Predictor(folder).embed(TEXTS, normalize=True)
    np.testing.assert_allclose(np.load(output), expected, atol=0.01)
    assert np.load(output).dtype == np.float32


def test_nothing_gives_no_rows(
    albertine: Command, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    assert albertine("predict", "embed", folder, "-o", tmp_path / "none.npy").code == 0
    assert np.load(tmp_path / "none.npy").shape == (0, 32)


def test_the_similarity_of_two_texts(albertine: Command, folder: Path) -> None:
    assert albertine("predict", "similarity", folder, "he was", "he was").out == "1.0000\n"
    outcome = albertine("predict", "similarity", folder, "he was", "old", "--pooling", "cls", "--json")
    expected = Predictor(folder).similarity(["he was"], ["old"], pooling="cls")
    assert json.loads(outcome.out)["similarity"] == pytest.approx(float(expected[0, 0]), abs=0.01)


def test_wrong_use_is_reported(albertine: Command, folder: Path, tmp_path: Path) -> None:
    outcome = albertine("predict", "embed", folder, "a", "-o", tmp_path / "vectors.txt")
    assert outcome.code == 2 and ".npy" in outcome.err
    assert albertine("predict", "embed", folder, "a", "--pooling", "max").code == 2
    (folder.parent / "odd").mkdir()
    for path in folder.iterdir():
        (folder.parent / "odd" / path.name).write_bytes(path.read_bytes())
    (folder.parent / "odd" / "modules.json").write_text("[]")
    outcome = albertine("predict", "embed", folder.parent / "odd", "a")
    assert outcome.code == 2 and "modules.json: names the modules" in outcome.err


@pytest.mark.parametrize("ending", [".csv", ".jsonl", ".parquet"])
def test_the_rows_of_a_table_get_their_vectors(
    albertine: Command, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    monkeypatch.setattr("albertine.tasks.predict.CHUNK", 2)
    monkeypatch.setattr("albertine.tasks.text_vectors.CHUNK", 2)
    source, output = tmp_path / "in.csv", tmp_path / f"out{ending}"
    source.write_text("n,said,other\n" + "".join(f"{i},{t},old\n" for i, t in enumerate(TEXTS)))
    how = ("--file", source, "-o", output, "--text", "said", "--precision", "float32", "--batch-tokens", 9)
    outcome = albertine("predict", "embed", folder, *how, "--normalize")
    assert outcome.code == 0 and "3 rows in" in outcome.out and "1 texts were too long" in outcome.err
    rows = [row.fields for row in rows_of(output)]
    vectors = [json.loads(v) if isinstance(v := row["vector"], str) else v for row in rows]
    assert isinstance(rows[0]["vector"], str) == (ending == ".csv")
    expected = Predictor(folder, precision="float32").embed(TEXTS, normalize=True)
    np.testing.assert_allclose(np.array(vectors, dtype=np.float32), expected, atol=1e-6)
    assert [row["other"] for row in rows] == ["old"] * 3
    again = albertine("predict", "embed", folder, *how, "--no-normalize")
    assert again.code == 2 and "is there already" in again.err
    alike = tmp_path / f"alike{ending}"
    how = ("--file", source, "-o", alike, "--text", "said", "--pair", "other", "--precision", "float32")
    assert albertine("predict", "similarity", folder, *how).code == 0
    cosines_of_rows = [float(row.fields["prediction"]) for row in rows_of(alike)]
    expected = Predictor(folder, precision="float32").similarity(TEXTS, ["old"])[:, 0]
    np.testing.assert_allclose(cosines_of_rows, expected, atol=1e-5)


def test_vectors_of_another_kind_are_another_job(folder: Path, tmp_path: Path) -> None:
    source, output = tmp_path / "in.csv", tmp_path / "out.csv"
    source.write_text("text,pair\nhe was,old\n")

    def stop(done: int, total: int | None) -> None:
        if done:
            raise KeyboardInterrupt

    go = partial(predict_file, Predictor(folder), source, output)
    with pytest.raises(KeyboardInterrupt):
        go(function=vectors, progress=stop, pooling=None)
    for what, how in (
        ("pooling", {"function": vectors, "pooling": "cls"}),
        ("function", {"function": cosines}),
    ):
        with pytest.raises(RunError, match=f"another .*{what}"):
            go(fields=Fields(pair="pair"), **how)
    done = go(function=vectors, pooling=None)
    assert (done.rows, done.before) == (1, 1)  # all was answered, and not yet put together


def test_all_that_decides_a_vector_makes_the_model(folder: Path, tmp_path: Path) -> None:
    """Also of a model whose weights are in shards."""
    copied = tmp_path / "model"
    shutil.copytree(folder, copied)
    files = (
        "whitening.safetensors",
        "1_Pooling/config.json",
        "model-00001-of-00002.safetensors",
        "config.json",
    )
    for name in files:
        predictor = Predictor(copied)
        before = predictor.fingerprint
        (copied / name).parent.mkdir(exist_ok=True)
        (copied / name).write_bytes(b"other")
        assert predictor.fingerprint != before
        shutil.copytree(folder, copied, dirs_exist_ok=True)
    (copied / "model.safetensors").unlink()
    assert predictor.fingerprint


def test_what_belongs_to_a_table(albertine: Command, folder: Path, tmp_path: Path) -> None:
    source = tmp_path / "in.csv"
    source.write_text("3.5,said\nhe was,old\n")
    table = ("--file", source, "-o", tmp_path / "out.csv")
    for words, message in (
        (("embed", folder, "--file", source), "name the table to write"),
        (("embed", folder, "he was", *table), "give texts or --file"),
        (("embed", *table), "name the model"),
        (("embed", folder, *table), "has no column `text`; it has `3.5`, `said`. Name it: --text COLUMN; or"),
        (("embed", folder, *table), "--no-header"),
        (("similarity", folder, *table, "--text", "said"), "Name it: --pair COLUMN"),
        (("similarity", folder, *table, "--text", "said", "--pair", "no"), "Name it: --pair COLUMN"),
        (("similarity", folder, "a", "b", *table[2:]), "belongs to --file"),
        (("embed", folder, "a", "--batch-tokens", "0"), "batch-tokens"),
    ):
        outcome = albertine("predict", *words)
        assert outcome.code == 2 and message in " ".join(outcome.err.split()), outcome.err
    assert albertine("predict", "embed", folder, *table, "--no-header", "--text", "2").code == 0
    assert [row.fields["2"] for row in rows_of(tmp_path / "out.csv")] == ["said", "old"]


def test_the_folder_of_the_vectors_is_made(albertine: Command, folder: Path, tmp_path: Path) -> None:
    output = tmp_path / "new" / "v.npy"
    assert albertine("predict", "embed", folder, "he was", "-o", output).code == 0
    assert np.load(output).shape == (1, 32)
    (tmp_path / "x.npy").mkdir()
    assert "ends in .npy" in albertine("predict", "embed", folder, "a", "-o", tmp_path / "x.npy").err


def test_existing_vectors_are_replaced_only_with_overwrite(
    albertine: Command, folder: Path, tmp_path: Path
) -> None:
    output, source = tmp_path / "v.npy", tmp_path / "in.csv"
    source.write_text("text\nhe was\n")
    output.write_bytes(b"mine")
    refused = albertine("predict", "embed", folder, "he was", "-o", output)
    assert refused.code == 2 and "is there already. Pass --overwrite" in refused.err
    assert output.read_bytes() == b"mine"
    link = tmp_path / "link.npy"
    link.symlink_to(output)
    assert albertine("predict", "embed", folder, "he was", "-o", link, "--overwrite").code == 0
    assert np.load(output).shape == (1, 32) and link.is_symlink()
    alone = albertine("predict", "embed", folder, "he was", "--overwrite")
    assert alone.code == 2 and "belongs to --output" in " ".join(alone.err.split())
    how = ("predict", "embed", folder, "--file", source, "-o", tmp_path / "out.csv")
    assert [albertine(*how, *more).code for more in ((), (), ("--overwrite",))] == [0, 2, 0]


def test_a_table_uses_the_requested_pooling(folder: Path) -> None:
    predictor, rows = (
        Predictor(folder, precision="float32"),
        list(rows_of([{"text": "he was", "pair": "old"}])),
    )
    ((_, answer),) = vectors(predictor, rows, pooling="cls")
    np.testing.assert_allclose(answer["vector"], predictor.embed("he was", pooling="cls")[0], atol=1e-6)
    assert not np.allclose(answer["vector"], predictor.embed("he was")[0], atol=1e-2)
    ((_, answer),) = cosines(predictor, rows, Fields(pair="pair"), pooling="cls")
    one, two = predictor.embed(["he was", "old"], pooling="cls", normalize=True)
    assert answer["prediction"] == pytest.approx(float(one @ two), abs=1e-5)


def test_a_text_uses_the_requested_pooling(albertine: Command, folder: Path) -> None:
    (line,) = albertine("predict", "embed", folder, "he was", "--pooling", "cls").out.splitlines()
    found = np.array(json.loads(line)["vector"], dtype=np.float32)
    np.testing.assert_array_equal(found, Predictor(folder).embed("he was", pooling="cls")[0])
    assert not np.allclose(found, Predictor(folder).embed("he was")[0], atol=1e-2)


def test_vectors_are_written_as_they_are(
    albertine: Command, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches: three copies of all vectors in memory."""
    monkeypatch.setattr("sys.stdin", io.StringIO("a\nb\nc\n"))
    monkeypatch.setattr("albertine.tasks.predictor.CHUNK", 2)
    given: list[int] = []
    real = files.replace_durably

    def noted(path: Path, *pieces: Any) -> None:
        given.extend(map(len, pieces))
        real(path, *pieces)

    monkeypatch.setattr(files, "replace_durably", noted)
    assert albertine("predict", "embed", folder, "-o", tmp_path / "v.npy").code == 0
    assert len(given) == 3 and np.load(tmp_path / "v.npy").shape == (3, 32)  # a head and two chunks
