"""Small models and batches for the tests of `model/` and `interop/`."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import strategies as st
from torch import Tensor

from albertine.core.batch import Packed, pack
from albertine.model.config import EncoderConfig
from albertine.model.model import Model
from albertine.model.sharing import SharingPlan
from albertine.model.visibility import Visibility

VOCABULARY = 53


def config(plan: SharingPlan | None = None, **changes: object) -> EncoderConfig:
    """A tiny encoder; H 24, 4 heads, E 8, depth 3 and all shared by default."""
    settings: dict[str, object] = {
        "vocab_size": VOCABULARY,
        "embedding_size": 8,
        "hidden_size": 24,
        "num_attention_heads": 4,
        "intermediate_size": 40,
        "max_position_embeddings": 32,
        "initializer_range": 0.3,
        "plan": plan or SharingPlan.shared(3),
    }
    return EncoderConfig(**(settings | changes))  # type: ignore[arg-type]


def model(plan: SharingPlan | None = None, *, seed: int = 0, **changes: object) -> Model:
    """A tiny model with every head, biases and norms too away from their initial values."""
    made = Model(config(plan, **changes), {"mlm", "sop"}, seed=seed)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in made.parameters():
            if parameter.ndim == 1:
                parameter.add_(0.2 * torch.randn(parameter.shape, generator=generator))
    return made.eval()


def sequences(lengths: list[int], seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.integers(1, VOCABULARY, length) for length in lengths]


def packed(lengths: list[int], seed: int = 0) -> Packed:
    """A packed batch whose second halves are segment 1."""
    return pack(sequences(lengths, seed), [np.arange(n) >= n // 2 for n in lengths])


def padded(batch: Packed) -> tuple[Tensor, Tensor, Tensor]:
    """The same batch as ids, mask and types, each (B, L)."""
    shape = (batch.num_sequences, batch.max_length)
    ids, mask, types = (torch.zeros(shape, dtype=torch.long) for _ in range(3))
    parts = zip(batch.input_ids.split(batch.lengths), batch.token_type_ids.split(batch.lengths), strict=True)
    for row, (row_ids, row_types) in enumerate(parts):
        ids[row, : len(row_ids)], types[row, : len(row_ids)] = row_ids, row_types
        mask[row, : len(row_ids)] = 1
    return ids, mask, types


def permuted(ranks: Tensor, targets: Tensor) -> tuple[Visibility, Visibility]:
    """Who sees whom in XLNet's content stream, whose rows see themselves, and in its query stream, whose
    targets do not: from ranks in the order of factorisation, int64 (R,), -1 for what all see."""
    content = Visibility(ranks, ranks + 1)
    return content, Visibility(ranks, torch.where(targets, ranks, ranks + 1))


lengths = st.lists(st.integers(1, 12), min_size=1, max_size=6)


@st.composite
def plans(draw: st.DrawFn) -> SharingPlan:
    depth = draw(st.integers(1, 4))
    blocks = st.lists(st.integers(0, depth - 1), min_size=depth, max_size=depth)
    return SharingPlan(tuple(draw(blocks)), tuple(draw(blocks)))


def computed(model: Model, packed: Packed, rows: Tensor | None = None) -> tuple[int, int | None]:
    """How many tokens, and rows of the last depth, a pass computes; None where these are all."""
    batch, requested = model.encoder._backend().pad(packed, rows)
    return batch.num_tokens, None if requested is None else len(requested)
