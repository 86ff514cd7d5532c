"""The weights a run begins with."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from albertine.corpus.reader import Corpus
from albertine.errors import SettingsError
from albertine.model.init import WIDE, sinusoids
from albertine.objectives.baseline import count_tokens
from albertine.pretraining.choose import first_model
from tests.pretraining.conftest import Build


def test_sinusoids_by_their_formula() -> None:
    table = sinusoids(7, 6)
    assert table.shape == (7, 6)
    for position, column in ((0, 0), (3, 0), (3, 1), (5, 4), (6, 5)):
        angle = position / 10000 ** ((column - column % 2) / 6)
        wave = math.sin(angle) if column % 2 == 0 else math.cos(angle)
        assert table[position, column].item() == pytest.approx(wave, abs=1e-6)


def test_wide_embeddings_change_the_tables_alone(build: Build, corpus: Path) -> None:
    opened = Corpus(corpus)
    counts = count_tokens(opened, opened.tokenizer().vocab_size)
    plain = first_model(build(), counts)
    wide = first_model(build(model={"embeddings": "wide"}), counts)
    tables = {f"encoder.embeddings.{name}.weight" for name in ("word", "position", "token_type")}
    for (name, before), after in zip(plain.named_parameters(), wide.parameters(), strict=True):
        assert torch.equal(before, after) == (name not in tables), name
    old, new = plain.encoder.embeddings, wide.encoder.embeddings
    torch.testing.assert_close(new.word.weight, old.word.weight * (WIDE / 0.02))
    assert new.position.weight.square().mean().sqrt().item() == pytest.approx(WIDE, rel=0.01)
    near, far = (torch.cosine_similarity(new.position.weight[0], new.position.weight[i], 0) for i in (1, 20))
    assert near > far


def test_the_output_bias_is_the_frequency_of_the_pieces(build: Build, corpus: Path) -> None:
    opened = Corpus(corpus)
    counts = count_tokens(opened, opened.tokenizer().vocab_size)
    model = first_model(build(model={"output_bias": "unigram"}), counts)
    assert model.mlm is not None
    common, rare = int(counts.argmax()), int(counts.argmin())
    assert model.mlm.bias[common] > model.mlm.bias[rare]
    assert model.mlm.bias.softmax(0)[common].item() == pytest.approx(counts[common] / counts.sum(), rel=0.2)


def test_weights_that_are_gone_on_from_bring_their_own(build: Build, tmp_path: Path) -> None:
    with pytest.raises((SettingsError, ValueError), match="belong to a preset"):
        build(model={"preset": None, "change": {}, "start_from": tmp_path, "embeddings": "wide"})
