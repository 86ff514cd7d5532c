"""Classes of pairs by how their two texts differ and agree, for encoders too narrow to find that out in one
row by attention.

    z = (x - m) W / |(x - m) W|,    of each text u and v;    looked at are √H·|u - v| and H·u·v

where x is the mean over the tokens of a text, special ones left out, once of the embeddings and once of the
first depth. The mean m and the whitening W of each are measured on training rows (`tasks/whitened_start.py`):
without them most of u - v would lie in the few directions in which all vectors are long. The differences and
products are those of Conneau et al. (2017, section 3.2); that a small encoder knows best in its first depths
what a text is about, docs/decisions/018 tells.
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
"""What is looked at: the embeddings, and the first depth."""


class Comparer(Classifier):
    """One linear layer over the differences and products of the two texts of every row.

    Attributes:
        means, matrices: (2, H) and (2, H, H), m and W of the embeddings and of the first depth.
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
        """x of the embeddings and of the first depth (of one that solves, the fixed point), of the first text
        and of the second, (S, 2, 2, H) float32."""
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
    """The mean rows of segment 0 and of segment 1 of each sequence without their special tokens, (S, 2, H);
    zeros where there are none.

    Args:
        lead: how many special tokens a sequence begins with; each segment ends with one.
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
