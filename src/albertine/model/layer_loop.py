"""The loop over depths, apart from what one depth computes.

A loop decides how often, and for which rows, the encoder's `step` is called. Halting (rows that are done
leave the loop) and a fixed point (the same step until nothing changes) are other objects of this kind.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from torch import Tensor, nn
from torch.utils._pytree import register_dataclass

from albertine.model.ponder_time import Ponder
from albertine.model.rows import Rows, Selected
from albertine.model.solvers import Equilibrium

Step = Callable[..., Tensor]
"""(depth d, x (R, H), context (T, H), rows of x, rows of the context, perhaps a `Past`) → (R, H)."""


@dataclass(frozen=True)
class EncoderOutput:
    """What an encoder computed.

    Attributes:
        last_hidden: (T, H), or (P, H) in the order of the rows asked for.
        hidden_states: with all_depths, the embeddings and every depth's output, each (T, H); else None.
        ponder: where the loop halts by itself, when it did; else None.
        equilibrium: of a loop to its fixed point, how near it came; else None.
    """

    last_hidden: Tensor
    hidden_states: tuple[Tensor, ...] | None = None
    ponder: Ponder | None = None
    equilibrium: Equilibrium | None = None

    def first(self, rows: int, tokens: int) -> EncoderOutput:
        """The first rows of the states, and what is known of the first tokens."""
        if len(self.last_hidden) == rows and self.ponder is None:
            return self
        states = None if self.hidden_states is None else tuple(x[:rows] for x in self.hidden_states)
        ponder = self.ponder and Ponder(*(x[:tokens] for x in self.ponder))
        return replace(self, last_hidden=self.last_hidden[:rows], hidden_states=states, ponder=ponder)

    def normed(self, norm: nn.Module) -> EncoderOutput:
        """With the last states through what follows the last depth: a LayerNorm, or XLNet's dropout."""
        last = norm(self.last_hidden)
        states = self.hidden_states and (*self.hidden_states[:-1], last)
        return replace(self, last_hidden=last, hidden_states=states)


register_dataclass(EncoderOutput)  # as `ModelOutput`


class Depths:
    """The plain loop: every row takes the same number of steps; of the last one only the wanted rows are
    computed, and their keys and values still come from all. Other loops are its subclasses."""

    def run(
        self, step: Step, x_TH: Tensor, rows: Rows, depth: int, wanted: Selected | None, all_depths: bool
    ) -> EncoderOutput:
        """
        Args:
            x_TH: the embeddings. rows: what is known of their rows.
            depth: most depths to compute. wanted: the only rows of the result; None: all.
            all_depths: the output of every depth is wanted too.
        """
        states = [x_TH]
        for d in range(depth if wanted is None else depth - 1):
            x_TH = step(d, x_TH, x_TH, rows, rows)
            if all_depths:
                states.append(x_TH)
        if wanted is None:
            return EncoderOutput(x_TH, tuple(states) if all_depths else None)
        x_PH = x_TH.index_select(0, wanted.places)
        if depth:
            x_PH = step(depth - 1, x_PH, x_TH, wanted.rows, rows)
        return EncoderOutput(wanted.as_asked(x_PH))
