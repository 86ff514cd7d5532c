"""A model that 8-bit integers change is refused; others are not."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from albertine.errors import ModelError
from albertine.inference import int8_parity
from albertine.interop.huggingface.folders import save_model
from albertine.model.backend import int8
from albertine.tasks.predictor import Predictor
from albertine.tokenizers.load import load_tokenizer
from tests.model import builders
from tests.toy import toy_vocabulary

pytestmark = pytest.mark.usefixtures("products_in_int8")


def test_the_cosine_is_that_of_float32_and_int8(monkeypatch: pytest.MonkeyPatch) -> None:
    model = builders.model(initializer_range=0.1)
    model.precision = "bfloat16"
    found = int8_parity.int8_cosine(model)
    assert 0.999 < found < 1 and model.precision == "bfloat16"
    assert 0.999 < int8_parity.int8_cosine(model, [[5, 6, 7]]) < 1
    exact = int8.rounded

    def coarse(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        q, step = exact(x)
        return (q // 32) * 32, step

    monkeypatch.setattr(int8, "rounded", coarse)
    assert int8_parity.int8_cosine(model) < found - 0.001


def test_a_model_that_changes_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, vocabulary = toy_vocabulary(tmp_path, 60_000)
    tokenizer = load_tokenizer(vocabulary)
    model = builders.model(vocab_size=tokenizer.vocab_size, initializer_range=0.1)
    save_model(model, tokenizer, tmp_path / "model")
    guesses = Predictor(tmp_path / "model", precision="int8").fill_mask("The old [MASK] said.")
    assert len(guesses) == 1 and sum(guess.probability for guess in guesses[0]) <= 1
    monkeypatch.setattr(int8_parity, "MIN_COSINE", 1.0)
    with pytest.raises(ModelError, match="in int8 it is another model"):
        Predictor(tmp_path / "model", precision="int8")
