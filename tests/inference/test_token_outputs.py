"""Token vectors and sparse vectors of `Predictor`: in batches as alone, exported as not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from albertine import Predictor
from albertine.errors import ModelError, NotFinite
from albertine.inference import token_outputs
from tests.inference.exports import LONG, TEXTS, exported, tuned


@pytest.fixture(scope="module")
def masks(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return exported("fill-mask", tmp_path_factory.mktemp("outputs"))


def test_in_batches_as_alone(masks: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches: the maximum over the tokens of another text; an order by length."""
    model = Predictor(masks[0], precision="float32")
    alone = [model.embed_sparse(text)[0] for text in TEXTS]
    monkeypatch.setattr(token_outputs, "LOGIT_ROWS", 16)
    assert model.cut == 1  # the last text has more tokens than the model has positions
    for own, wanted in zip(model.embed_sparse(TEXTS), alone, strict=True):
        assert np.array_equal(own.ids, wanted.ids) and own.weights.dtype == np.float32
        np.testing.assert_allclose(own.weights, wanted.weights, atol=1e-5)
    assert (np.concatenate([one.weights for one in alone]) > 0).all() and len(alone[0].ids) < 23
    for own, text in zip(model.embed_all(TEXTS), TEXTS, strict=True):
        np.testing.assert_allclose(own, model.embed_all(text)[0], atol=1e-5)
    assert model.embed_all([]) == model.embed_sparse([]) == []


def test_an_exported_graph_gives_the_same(masks: tuple[Path, Path], tmp_path: Path) -> None:
    for own, wanted in zip(
        Predictor(masks[1]).embed_sparse(TEXTS),
        Predictor(masks[0], precision="float32").embed_sparse(TEXTS),
        strict=True,
    ):
        assert np.array_equal(own.ids, wanted.ids)
        np.testing.assert_allclose(own.weights, wanted.weights, atol=1e-4)
    with pytest.raises(ModelError, match="for each token"):
        Predictor(masks[1]).embed_all("who")
    with pytest.raises(ModelError, match="no masked-LM head"):
        Predictor(tuned("single", tmp_path / "single")).embed_sparse("who")


def test_numbers_that_are_not_finite_name_the_text(masks: tuple[Path, Path]) -> None:
    model = Predictor(masks[0], precision="float32")
    with torch.no_grad():
        model.model.encoder.embeddings.word.weight[model.tokenizer.encode("who")[0]] = float("nan")
    with pytest.raises(NotFinite, match="text 2"):
        model.embed_all(["the old man", "who", LONG])
    with pytest.raises(NotFinite):  # of every text, since the output layer has the same embedding
        model.embed_sparse("the old man")
