"""A check that int8 inference gives nearly the vectors of float32."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F

from albertine.core.batch import Packed, pack
from albertine.core.number_formats import InferencePrecision
from albertine.core.randomness import generator
from albertine.errors import ModelError
from albertine.model.model import Model
from albertine.model.pooling import text_vectors

MIN_COSINE = 0.99
"""Cosine of an int8 vector with its float32 vector below which a model is refused."""

LENGTHS = (8, 16, 32, 64)


@torch.inference_mode()
def int8_cosine(model: Model, texts: Sequence[Sequence[int]] = ()) -> float:
    """The least cosine between the mean token vectors of a text in int8 and in float32.

    Args:
        texts: token ids; by default random tokens in several lengths, which are harder than real text.
    """
    before = model.precision
    packed = pack(list(texts) or _random(model)).to(model.device)
    try:
        exact, rough = (_vectors(model, packed, precision) for precision in ("float32", "int8"))
    finally:
        model.precision = before
    return float(F.cosine_similarity(exact, rough).min())


def check_int8(model: Model, where: object) -> None:
    """Raise if a model loses too much in int8.

    Raises:
        ModelError: the least cosine is below `MIN_COSINE`. SettingsError: this machine has no int8.
    """
    if (found := int8_cosine(model)) < MIN_COSINE:
        raise ModelError(
            f"in int8 it is another model: least cosine of its vectors with those of float32 {found:.3f}",
            where=where,
            remedy="Use precision auto",
        )


def _vectors(model: Model, packed: Packed, precision: InferencePrecision) -> torch.Tensor:
    model.precision = precision
    return text_vectors(model, packed, "mean", normalize=False)


def _random(model: Model) -> list[list[int]]:
    limit, vocab = model.config.max_position_embeddings, model.config.vocab_size
    draws = generator(0, "parity")
    return [draws.integers(0, vocab, min(length, limit)).tolist() for length in LENGTHS]
