"""Classifier of text pairs by differences and products of their vectors, for encoders too narrow to compare
the two texts by attention.

    z = (x - m) W / |(x - m) W|    for each text, u and v;    features √H·|u - v| and H·u·v

where x is the mean over the tokens of a text without special ones, of the embeddings and of the first layer.
Mean m and whitening W of each are measured on training rows (`tasks/whitened_start.py`): without them most of
u - v lies in the few directions in which all vectors are long. Differences and products as in Conneau et al.
(2017, section 3.2); why the first layers, see docs/decisions/018.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from albertine.core.batch import Packed
from albertine.model.config import COMPARED
from albertine.model.model import Model
from albertine.model.task_model import Classifier

STATES = 2
"""Pooled states: the embeddings, and the first layer."""


class Comparer(Classifier):
    """One linear layer over the differences and products of the two texts of every row.

    Attributes:
        means, matrices: (2, H) and (2, H, H), m and W of the embeddings and of the first layer.
    """

    means: Tensor
    matrices: Tensor

    def __init__(
        self, base: Model, outputs: int, *, dropout: float = 0.1, seed: int = 0, name: str = "classifier"
    ) -> None:
        """As `Classifier`."""
        hidden = base.config.hidden_size
        width = COMPARED * hidden
        super().__init__(
            base, outputs, pooling="compared", dropout=dropout, seed=seed, name=name, width=width
        )
        self.register_buffer("means", torch.zeros(STATES, hidden))
        self.register_buffer("matrices", torch.eye(hidden).repeat(STATES, 1, 1))

    def vectors(self, packed: Packed) -> Tensor:
        """x of embeddings and first layer (with a solver, fixed point), for both texts, (S, 2, 2, H)
        float32."""
        config = self.base.config
        states = self.base.encoder(packed, depth=config.early_depth, all_depths=True).hidden_states
        return torch.stack([pair_means(x_TH.float(), packed, config.lead) for x_TH in states], 1)

    def forward(self, packed: Packed) -> Tensor:
        """Logits (S, outputs), float32."""
        return self.compared(self.vectors(packed))

    def compared(self, x_SH: Tensor) -> Tensor:
        """Logits (S, outputs) of `vectors`, (S, 2, 2, H)."""
        z = F.normalize((x_SH - self.means[:, None]) @ self.matrices, dim=-1)
        u, v = z.unbind(2)
        size = u.shape[-1]
        x = torch.cat([size**0.5 * (u - v).abs(), size * u * v], -1).flatten(1)
        logits: Tensor = self.get_submodule(self.name)(F.dropout(x, self.dropout, self.training))
        return logits.float()


def pair_means(x_TH: Tensor, packed: Packed, lead: int) -> Tensor:
    """Mean rows of segments 0 and 1 of each sequence without special tokens, (S, 2, H); zeros for an empty
    segment.

    Args:
        lead: special tokens before a sequence; each segment ends with one.
    """
    types = packed.token_type_ids
    text = types < 2  # XLNet's [CLS] has a segment to itself
    text[:-1] &= types[1:] == types[:-1]
    text[packed.last_tokens] = False
    if lead:
        text[packed.first_tokens] = False
    lengths = packed.cu_seqlens.diff().long()
    sequence = torch.repeat_interleave(torch.arange(len(lengths), device=types.device), lengths)
    place = (2 * sequence + types)[text]
    sums = x_TH.new_zeros(2 * len(lengths), x_TH.shape[1]).index_add(0, place, x_TH[text])
    counts = torch.bincount(place, minlength=len(sums)).clamp_min(1)
    return (sums / counts[:, None]).view(len(lengths), 2, -1)
