"""Whitened vectors in tuning, and how fast word vectors learn."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from albertine.model.config import EncoderConfig
from albertine.model.model import Model
from albertine.model.pooling import text_vectors
from albertine.model.sharing import SharingPlan
from albertine.model.task_model import Classifier, Embedder
from albertine.tasks import whitened_start
from albertine.tasks.encoded import Encoded
from albertine.tasks.initial_model import embedding_rate
from albertine.tasks.settings import TuningChoice
from albertine.tasks.whitened_start import RIDGE, whiten

CONFIG = EncoderConfig(
    vocab_size=50,
    embedding_size=8,
    hidden_size=16,
    num_attention_heads=2,
    intermediate_size=32,
    max_position_embeddings=16,
    plan=SharingPlan.shared(2),
)


def rows(count: int) -> Encoded:
    drawn = np.random.default_rng(1)
    ids = [drawn.integers(5, 50, size=drawn.integers(3, 12)).astype(np.int32) for _ in range(count)]
    types = [np.zeros(len(row), dtype=np.int8) for row in ids]
    return Encoded(tuple(range(count)), ids, types, np.arange(count + 1), None, 0)


def test_the_layer_sees_directions_of_about_one_length() -> None:
    """Of variance λ there is λ / (λ + r·mean λ) left, and nothing that all texts have in common."""
    data, model = rows(300), Classifier(Model(CONFIG, set(), seed=1), 3, pooling="depths")
    model.train()
    whiten(model, data)
    assert model.training and model.mean is not None and model.matrix is not None
    with torch.no_grad():
        model.base.eval()
        x = text_vectors(model.base, data.packed(range(300)), "depths").double()
    z = (x - model.mean) @ model.matrix.double()
    assert z.mean(0).abs().max() < 1e-4
    variances = torch.linalg.eigvalsh(torch.cov(x.T, correction=0))
    left = variances / (variances + RIDGE * variances.mean())
    seen = torch.cov(z.T, correction=0)
    torch.testing.assert_close(torch.linalg.eigvalsh(seen), left.sort().values, atol=1e-3, rtol=1e-3)
    assert (seen - seen.diag().diag()).abs().max() < 1e-3
    assert variances[-1] / variances[0] > 3 * left.max() / left.min()


def test_one_row_and_rows_that_are_all_alike_are_no_end() -> None:
    alike = rows(5)
    alike.ids[:] = [np.array([7, 8], dtype=np.int32)] * 5
    alike.types[:] = [np.zeros(2, dtype=np.int8)] * 5
    for data in (rows(1), alike):
        model = Classifier(Model(CONFIG, set(), seed=1), 3, pooling="mean")
        whiten(model, data)
        assert model.matrix is not None and torch.isfinite(model.matrix).all()
        assert torch.isfinite(model(data.packed([0]))).all()


@pytest.mark.parametrize(
    ("times", "hidden", "given", "expected"),
    [
        (1.0, 16, None, 1.0),
        (4.0, 16, None, 4.0),
        (40.0, 16, None, 8.0),
        (4.0, 768, None, 1.0),
        (4.0, 16, 2.5, 2.5),
    ],
)
def test_word_vectors_learn_as_fast_as_they_are_long(
    times: float, hidden: int, given: float | None, expected: float
) -> None:
    model = Model(replace(CONFIG, hidden_size=hidden), {"pooler"}, seed=1)
    with torch.no_grad():
        table = model.encoder.embeddings.word.weight
        table.mul_(times * CONFIG.initializer_range / table.square().mean().sqrt())
    choice, means = TuningChoice(embedding_rate=given), Classifier(model, 3, pooling="depths")
    assert embedding_rate(choice, means) == pytest.approx(expected, rel=0.01)
    for other in (Classifier(model, 3), Classifier(model, 3, per_token=True), Embedder(model, "depths")):
        assert embedding_rate(choice, other) == (given or 1.0)


def test_what_is_measured_is_drawn_from_all_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is sorted by class is not known by its first class alone."""
    plain, seen = whitened_start.over_rows, list[int]()

    def noted(*given: Any, rows: list[int], **how: Any) -> Any:
        seen.extend(rows)
        return plain(*given, rows=rows, **how)

    monkeypatch.setattr(whitened_start, "ROWS", 40)
    monkeypatch.setattr(whitened_start, "over_rows", noted)
    whiten(Classifier(Model(CONFIG, set(), seed=1), 3, pooling="mean"), rows(200))
    assert len(set(seen)) == len(seen) == 40 and max(seen) > 150
