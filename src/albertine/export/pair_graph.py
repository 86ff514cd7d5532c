"""The graph of a classifier that compares the two texts of a pair (`model/pair_head.py`)."""

from __future__ import annotations

import torch
from torch import Tensor

from albertine.core.batch import Packed
from albertine.export.outputs import Head, Outputs
from albertine.export.sequence_tables import Table, goes_on
from albertine.model.layer_loop import EncoderOutput
from albertine.model.pair_head import Comparer


class Comparison(Head):
    """Classes or a score of every sequence, by the embeddings and the first depth."""

    depth, all_depths = 1, True

    def __init__(self, model: Comparer) -> None:
        super().__init__(model, model.base)
        self.comparer = model
        outputs = int(model.get_submodule(model.name).weight.shape[0])  # type: ignore[union-attr,arg-type,index,call-overload]
        self.axes = {"logits": ("batch", outputs)}

    @property
    def tables(self) -> int:
        return super().tables + 4 * (self.comparer.means.numel() + self.comparer.matrices.numel())

    def traced(self, table: Table, out: EncoderOutput, subjects: Tensor | None) -> Outputs:
        text, states = _text(table, self.base.config.lead), out.hidden_states or ()
        return (self.comparer.compared(torch.stack([_pair_means(table, text, x) for x in states], 1)),)

    def source(self, packed: Packed, subjects: Tensor | None) -> Outputs:
        return (self.comparer(packed),)


def _text(table: Table, lead: int) -> Tensor:
    """Which tokens are of the texts themselves, bool (S, L): not [CLS], and none that ends a segment."""
    text = goes_on(table) & (table.types < 2)
    if not lead:
        return text
    columns = torch.arange(text.shape[1], device=text.device)
    return text & (columns != table.first_column[:, None])


def _pair_means(table: Table, text_SL: Tensor, x_RH: Tensor) -> Tensor:
    """`model.pair_head.pair_means` of a table, (S, 2, H)."""
    x_SLH, found = table.table(x_RH), []
    for segment in (0, 1):
        of_it = (text_SL & (table.types == segment)).to(x_SLH.dtype)
        # Where there is no token a row may hold anything; times 0 it would still be no number.
        sums = torch.where(of_it[..., None] > 0, x_SLH, 0.0).sum(1)
        found.append(sums / of_it.sum(1).clamp_min(1)[:, None])
    return torch.stack(found, 1)
