"""`albertine predict embed` and `similarity`."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest

from albertine.interop.huggingface import save_model
from albertine.model.model import Model
from albertine.pretraining.choose import encoder_config
from albertine.pretraining.settings import ModelChoice
from albertine.tasks.predictor import Predictor
from albertine.text.load import load_tokenizer
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


def test_every_line_of_stdin_is_a_row(
    albertine: Command, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("\n".join(TEXTS) + "\n"))
    monkeypatch.setattr("albertine.cli.embed.CHUNK", 2)
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


def test_wrong_use_is_said(albertine: Command, folder: Path, tmp_path: Path) -> None:
    outcome = albertine("predict", "embed", folder, "a", "-o", tmp_path / "vectors.txt")
    assert outcome.code == 2 and ".npy" in outcome.err
    assert albertine("predict", "embed", folder, "a", "--pooling", "max").code == 2
    (folder.parent / "odd").mkdir()
    for path in folder.iterdir():
        (folder.parent / "odd" / path.name).write_bytes(path.read_bytes())
    (folder.parent / "odd" / "modules.json").write_text("[]")
    outcome = albertine("predict", "embed", folder.parent / "odd", "a")
    assert outcome.code == 2 and "modules.json: names the modules" in outcome.err
