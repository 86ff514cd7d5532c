"""Whitened vectors against their definition; the file, and who may use it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import albertine
from albertine.core.batch import pack
from albertine.errors import DataError, ModelError, SettingsError
from albertine.inference.embedding import cosines
from albertine.inference.whitening import FILE, fit_whitening, read_whitening, sentences_of
from albertine.interop.huggingface.folders import save_model
from albertine.tasks.predictor import Predictor
from albertine.tokenizers.load import load_tokenizer
from tests import stand_in
from tests.cli.conftest import Command

WORDS = ["the", "old", "man", "said", "he", "was", "a", "good", "house", "cat", "sat", "on", "mat"]


def sentences(count: int) -> list[str]:
    rng = np.random.default_rng(4)
    return [" ".join(rng.choice(WORDS, rng.integers(2, 9))) for _ in range(count)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return stand_in.put(tmp_path, "en")


@pytest.fixture
def whitened(folder: Path, tmp_path: Path) -> Path:
    """The same model with a whitening beside it."""
    model, tokenizer = albertine.load(folder), albertine.load_tokenizer(folder)
    files = {FILE: fit_whitening(model, tokenizer, sentences(300)).to_bytes()}
    target = tmp_path / "whitened"
    save_model(model, tokenizer, target, extra_files=files)
    return target


@pytest.mark.sample(1)
@pytest.mark.parametrize("depth", [0, 1, 2])
def test_over_its_own_sentences_vectors_have_no_mean_and_unit_covariance(folder: Path, depth: int) -> None:
    model, tokenizer = albertine.load(folder).eval(), albertine.load_tokenizer(folder)
    texts = sentences(300)
    found = fit_whitening(model, tokenizer, texts, depth)
    packed = pack([tokenizer.layout(ids)[0] for ids in tokenizer.encode_batch(texts)])
    with torch.no_grad():
        vectors = found(model, packed).double()
        states = model.encoder(packed, all_depths=True).hidden_states
    assert states is not None
    means = torch.stack([x.mean(0) for x in states[depth].split(list(packed.lengths))])
    torch.testing.assert_close(found.mean, means.mean(0), atol=1e-5, rtol=0)
    torch.testing.assert_close(vectors.mean(0), torch.zeros(vectors.shape[1]).double(), atol=1e-3, rtol=0)
    torch.testing.assert_close(
        vectors.T @ vectors / len(texts), torch.eye(vectors.shape[1]).double(), atol=2e-2, rtol=0
    )
    assert vectors.shape[1] > 5  # of 13 words at most 32 directions


def test_vectors_are_whitened_unless_a_pooling_is_named(folder: Path, whitened: Path) -> None:
    plain, white = (Predictor(p, precision="float32") for p in (folder, whitened))
    texts = ["the old man", "a good cat", "the cat sat on the mat"]
    np.testing.assert_allclose(white.embed(texts, pooling="mean"), plain.embed(texts), atol=1e-5)
    vectors = white.embed(texts)
    alone = np.concatenate([white.embed([text]) for text in texts])
    np.testing.assert_allclose(vectors, alone, atol=1e-3)
    assert not np.allclose(vectors[:, :5], plain.embed(texts)[:, :5], atol=0.1)
    np.testing.assert_allclose(np.linalg.norm(white.embed(texts, normalize=True), axis=1), 1, atol=1e-5)
    raw, new = (float(p.similarity(texts[:1], texts[1:2])[0, 0]) for p in (plain, white))
    assert new < raw  # what all texts have in common is gone


def test_no_cosine_is_above_one() -> None:
    vectors = np.random.default_rng(0).standard_normal((300, 48)).astype(np.float32)
    lengths = np.linalg.norm(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), axis=1)
    assert (lengths > 1).any()  # or rounding would have nothing to spoil
    found = cosines(vectors, np.concatenate([vectors, -vectors]))
    assert found.max() == 1 and found.min() == -1


def test_a_whitening_of_another_encoder_is_refused(folder: Path, whitened: Path) -> None:
    with pytest.raises(ModelError, match="another encoder"):
        read_whitening(whitened, 64, 2)
    with pytest.raises(ModelError, match="another encoder"):
        read_whitening(whitened, 32, 0)
    assert read_whitening(folder, 32, 2) is None
    (whitened / FILE).write_bytes((whitened / FILE).read_bytes()[:100])
    with pytest.raises(ModelError, match="is not a whitening"):
        Predictor(whitened).embed(["the cat"])


def test_too_little_text_and_no_such_depth(folder: Path) -> None:
    model, tokenizer = albertine.load(folder), load_tokenizer(folder)
    with pytest.raises(DataError, match="too few"):
        fit_whitening(model, tokenizer, sentences(63))
    with pytest.raises(SettingsError, match="no depth 3"):
        fit_whitening(model, tokenizer, sentences(64), 3)


def test_sentences_of_files_are_the_same_every_time(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("\n\n".join(f"He said number {i}. Then he left." for i in range(300)))
    found = sentences_of([tmp_path], 50)
    assert len(found) == 50 and found == sentences_of([tmp_path], 50) and len(set(found)) > 10
    assert len(sentences_of([tmp_path])) == 600


def test_convert_makes_it_and_carries_it_on(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = Command(capsys)
    text = tmp_path / "text.txt"
    text.write_text("\n\n".join(f"{s[0].upper()}{s[1:]}." for s in sentences(200)))
    assert command("convert", folder, tmp_path / "w", "--whiten", text).code == 0
    assert command("convert", tmp_path / "w", tmp_path / "again").code == 0
    one, two = ((tmp_path / name / FILE).read_bytes() for name in ("w", "again"))
    assert one == two
    done = command("convert", folder, tmp_path / "no", "--depth", "1")
    assert done.code == 2 and "--whiten" in done.err
    done = command("convert", folder, tmp_path / "no", "--whiten", tmp_path / "missing")
    assert done.code == 2 and not (tmp_path / "no").exists()


def test_no_sentence_is_drawn_twice(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("\n\n".join(f"He said number {i}." for i in range(100)))
    found = sentences_of([tmp_path], 90)
    assert len(set(found)) == 90 and found == sorted(found, key=lambda s: int(s.strip(".").split()[-1]))


def test_convert_measures_the_requested_depth(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command, text = Command(capsys), tmp_path / "text.txt"
    text.write_text("\n\n".join(f"{s[0].upper()}{s[1:]}." for s in sentences(200)))
    for depth in (0, 2):
        out = tmp_path / f"depth-{depth}"
        assert command("convert", folder, out, "--whiten", text, "--depth", depth).code == 0
        found = read_whitening(out, 32, 2)
        assert found is not None and found.depth == depth
