"""A sequence that overflows is NaN or infinite alone: the others of its batch are as they are without it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from albertine.core.batch import Packed, pack
from albertine.model.incremental_decoding import decode_step
from albertine.model.model import Model
from albertine.model.pooling import text_vectors
from albertine.model.sharing import SharingPlan
from albertine.model.two_streams import Segments, encode_segments
from tests.model import builders
from tests.model.test_choices import CHOICES, changed

POISON = builders.VOCABULARY - 1
LENGTHS = [5, 3, 12, 12, 7, 20, 31, 16, 2]
POISONED = (1, 2, 5, 8)
"""Sequences with the token whose embedding overflows: some between others, one of two of equal length, the
last."""
VALUES = {"nan": float("nan"), "inf": float("inf"), "overflow": 3e38}
KINDS: dict[str, dict[str, object]] = {
    **CHOICES,
    "albert": {},
    "bert": {"plan": SharingPlan.unshared(3)},
    "heads of 26": {"hidden_size": 52, "num_attention_heads": 2, "intermediate_size": 76},
    "anderson": {"plan": SharingPlan.shared(8), "solver": "anderson", "input_injection": True},
    "broyden": {"plan": SharingPlan.shared(8), "solver": "broyden", "input_injection": True},
}
CLOSE = {"float32": 1e-4, "bfloat16": 0.1, "int8": 0.3}
"""Greatest difference of a sequence, as a part of its norm."""


def poisoned(value: float = VALUES["overflow"], **changes: object) -> Model:
    model = changed(builders.model(**changes))  # type: ignore[arg-type]
    with torch.no_grad():
        model.encoder.embeddings.word.weight[POISON] = value
    return model


def batch_of(poison: bool) -> Packed:
    rng = np.random.default_rng(0)
    rows = [rng.integers(1, POISON, n) for n in LENGTHS]
    for i in POISONED if poison else ():
        rows[i][-1] = POISON
    return pack(rows)


def check(found: Tensor, wanted: Tensor, close: float, lengths: list[int] = LENGTHS) -> None:
    """Both (T, …) of the batch with poison and of that without."""
    parts = zip(found.float().split(lengths), wanted.float().split(lengths), strict=True)
    for i, (mine, right) in enumerate(parts):
        assert right.isfinite().all()
        if i in POISONED:
            assert not mine.isfinite().any(), i  # nothing that looks like an answer
        else:
            assert float((mine - right).norm() / right.norm()) < close, i


@pytest.mark.sample
@pytest.mark.parametrize("precision", CLOSE)
@pytest.mark.parametrize("kind", KINDS)
def test_every_encoder(kind: str, precision: str) -> None:
    model = poisoned(**KINDS[kind])
    model.precision = precision  # type: ignore[assignment]
    depths = model.config.plan.depth if model.config.solver == "none" else 1
    for backend in ("auto", "plain") if precision != "int8" else ("auto",):
        model.encoder.backend = backend
        with torch.no_grad():
            found, wanted = (model.encoder(batch_of(p), all_depths=True) for p in (True, False))
            check(found.last_hidden, wanted.last_hidden, CLOSE[precision])
            for mine, right in zip(found.hidden_states[1:], wanted.hidden_states[1:], strict=True):
                check(mine, right, CLOSE[precision])
        assert len(found.hidden_states) == 1 + depths


@pytest.mark.sample(8)
@pytest.mark.parametrize("width", [64, 76])
@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("precision", CLOSE)
def test_every_value(value: str, precision: str, width: int) -> None:
    """Also where rows do not fill the registers of the processor."""
    model = poisoned(VALUES[value], hidden_size=width, embedding_size=64, intermediate_size=96)
    model.precision = precision  # type: ignore[assignment]
    first = batch_of(True).first_tokens
    ones = [1] * len(LENGTHS)
    compute: dict[str, Callable[[Packed], Tensor]] = {
        "rows": lambda batch: model.encoder(batch, rows=first).last_hidden,
        "pooled": lambda batch: model.pooled(model.encoder(batch, rows=first).last_hidden),
        **{p: lambda batch, p=p: text_vectors(model, batch, p) for p in ("mean", "cls", "depths")},
    }
    for name, computed in compute.items():
        with torch.no_grad():
            check(computed(batch_of(True)), computed(batch_of(False)), CLOSE[precision], ones), name
    with torch.no_grad():
        logits = [model.mlm_logits(model.encoder(batch_of(p)).last_hidden) for p in (True, False)]
    check(*(x[:, :POISON] for x in logits), 4 * CLOSE[precision])


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_with_gradients(precision: str) -> None:
    """Of one sequence to its own tokens, in bfloat16 by other kernels."""
    for lengths in (1, 8):
        model = poisoned(max_position_embeddings=256)
        model.precision = precision  # type: ignore[assignment]
        many = [n * lengths for n in LENGTHS]
        rows = [np.full(n, 1 + i) for i, n in enumerate(many)]
        right = model.encoder(pack(rows)).last_hidden
        for i in POISONED:
            rows[i][-1] = POISON
        check(model.encoder(pack(rows)).last_hidden, right, CLOSE[precision], many)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_reading_on(precision: str) -> None:
    """Behind a cache of keys and values, in which the poison is."""
    model = poisoned(max_position_embeddings=64)
    model.precision = precision  # type: ignore[assignment]
    more = pack([[3, 4, 5] if i % 2 else [6] for i in range(len(LENGTHS))])
    with torch.no_grad():
        (began, found), (right, wanted) = (decode_step(model.encoder, batch_of(p)) for p in (True, False))
        check(began, right, CLOSE[precision])
        after = [decode_step(model.encoder, more, cache)[0] for cache in (found, wanted)]
    check(*after, CLOSE[precision], list(more.lengths))


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "int8"])
def test_segments_with_a_memory(precision: str) -> None:
    model = poisoned(**CHOICES["xlnet"])
    model.precision = precision  # type: ignore[assignment]
    with torch.no_grad():
        states = []
        for poison in (True, False):
            batch = batch_of(poison)
            first, memory = encode_segments(model.encoder, Segments(batch), keep=4)
            clean = Segments(batch_of(False))
            states.append((first, encode_segments(model.encoder, clean, memory, keep=4)[0]))
    for found, wanted in zip(*states, strict=True):
        check(found, wanted, CLOSE[precision])


def test_what_fills_a_batch_up_is_of_no_consequence() -> None:
    """Batches are filled up with token 0, which may be the one that overflows."""
    model, fine = builders.model(), builders.model()
    with torch.no_grad():
        model.encoder.embeddings.word.weight[0] = VALUES["overflow"]
        for lengths in ([5], [5, 9], [12, 12, 3]):
            batch = builders.packed(lengths)
            found, wanted = (one.encoder(batch).last_hidden for one in (model, fine))
            torch.testing.assert_close(found, wanted, atol=1e-4, rtol=1e-4)
