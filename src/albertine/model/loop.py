"""The loop over the layers of an encoder, separate from what one layer computes.

A loop decides how often, and for which rows, a layer is called. Halting (`halting.py`) and the search for a
fixed point (`fixed_point.py`) are subclasses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, NamedTuple

from torch import Tensor, nn
from torch.utils._pytree import register_dataclass

from albertine.core.between_layers import BetweenLayers, calling_between_layers
from albertine.model.backend import outside_pass
from albertine.model.rows import Rows, SelectedRows
from albertine.model.sharing import LoopStructure
from albertine.model.solvers import Equilibrium

LayerFunction = Callable[..., Tensor]
"""(layer d, x (R, H), context (T, H), rows of x, rows of the context, optional `LayerCache`) → (R, H)."""


def in_order(layer: LayerFunction, order: Sequence[int]) -> LayerFunction:
    """`layer`, of which call d computes layer `order[d]`, with the parameters and signals of that layer."""

    def ordered(d: int, *given: Any) -> Tensor:
        return layer(order[d], *given)

    return ordered


class Ponder(NamedTuple):
    """Computation time of each position in a loop that halts.

    Attributes:
        steps: number of steps, int64 (T,).
        remainder: the weight of its last step where it halted there, float32 (T,), with gradient.
    """

    steps: Tensor
    remainder: Tensor

    @property
    def cost(self) -> Tensor:
        """Ponder cost (T,): steps plus remainder (Graves 2016, section 2)."""
        return self.steps + self.remainder


@dataclass(frozen=True)
class EncoderOutput:
    """Output of an encoder.

    Attributes:
        last_hidden: (T, H), or (P, H) in the order of the requested rows.
        hidden_states: with `all_depths`, the embeddings and the output of every layer, each (T, H); else
            None.
        attentions: on request the attention weights of every layer, of each sequence (N, L, L); else None.
        ponder: of an encoder that halts; else None.
        equilibrium: convergence of an encoder with a solver; else None.
        shallow: of a pass with `shallow_loops`, as `last_hidden` with that number of loops; else None.
    """

    last_hidden: Tensor
    hidden_states: tuple[Tensor, ...] | None = None
    attentions: tuple[tuple[Tensor, ...], ...] | None = None
    ponder: Ponder | None = None
    equilibrium: Equilibrium | None = None
    shallow: Tensor | None = None

    def first(self, rows: int, tokens: int) -> EncoderOutput:
        """Without padding: the first rows of the states, and the ponder time of the first tokens."""
        if len(self.last_hidden) == rows and self.ponder is None:
            return self
        states = None if self.hidden_states is None else tuple(x[:rows] for x in self.hidden_states)
        ponder = self.ponder and Ponder(*(x[:tokens] for x in self.ponder))
        shallow = None if self.shallow is None else self.shallow[:rows]
        last = self.last_hidden[:rows]
        return replace(self, last_hidden=last, hidden_states=states, ponder=ponder, shallow=shallow)

    def normed(self, norm: nn.Module) -> EncoderOutput:
        """With `norm`, a LayerNorm or XLNet's dropout, applied to the last states."""
        last = norm(self.last_hidden)
        states = self.hidden_states and (*self.hidden_states[:-1], last)
        shallow = None if self.shallow is None else norm(self.shallow)
        return replace(self, last_hidden=last, hidden_states=states, shallow=shallow)


register_dataclass(EncoderOutput)  # as `ModelOutput`


class LayerLoop:
    """The ordinary loop: every row passes through the same number of layers. The last layer computes only the
    requested rows; its keys and values still come from all."""

    def run(
        self,
        layer: LayerFunction,
        x_TH: Tensor,
        rows: Rows,
        depth: int,
        selected: SelectedRows | None,
        all_depths: bool,
    ) -> EncoderOutput:
        """
        Args:
            x_TH: the embeddings. rows: their metadata.
            depth: number of layers, at most.
            selected: the rows to return; None: all.
            all_depths: also return the output of every layer.
        """
        states = [x_TH]
        for d in range(depth if selected is None else depth - 1):
            x_TH = layer(d, x_TH, x_TH, rows, rows)
            if all_depths:
                states.append(x_TH)
        if selected is None:
            return EncoderOutput(x_TH, tuple(states) if all_depths else None)
        x_PH = x_TH.index_select(0, selected.indices)
        if depth:
            x_PH = layer(depth - 1, x_PH, x_TH, selected.rows, rows)
        return EncoderOutput(selected.restore_order(x_PH))


class BranchingLoop(LayerLoop):
    """A loop of which the coda is computed twice: after all repeats of the core, and after fewer.

    Args:
        structure: of the plan. loops: the smaller number of repeats.
    """

    def __init__(self, structure: LoopStructure, loops: int) -> None:
        self._branch, self._coda = structure.prelude + structure.core * loops, structure.coda

    def run(
        self,
        layer: LayerFunction,
        x_TH: Tensor,
        rows: Rows,
        depth: int,
        selected: SelectedRows | None,
        all_depths: bool,
    ) -> EncoderOutput:
        """As `LayerLoop.run`, with `shallow`."""

        def from_layer(first: int, x_TH: Tensor, count: int) -> EncoderOutput:
            order = range(first, first + count)
            return LayerLoop.run(self, in_order(layer, order), x_TH, rows, count, selected, False)

        x_TH = LayerLoop.run(self, layer, x_TH, rows, self._branch, None, False).last_hidden
        shallow = from_layer(depth - self._coda, x_TH, self._coda)
        deep = from_layer(self._branch, x_TH, depth - self._branch)
        return replace(deep, shallow=shallow.last_hidden)


class InterruptedLoop(LayerLoop):
    """A loop that calls a function between layers (`albertine.core.between_layers`)."""

    def __init__(self, loop: LayerLoop, call: BetweenLayers) -> None:
        self._loop, self._call = loop, call

    def run(
        self,
        layer: LayerFunction,
        x_TH: Tensor,
        rows: Rows,
        depth: int,
        selected: SelectedRows | None,
        all_depths: bool,
    ) -> EncoderOutput:
        calls = count()  # not d, which stays 0 where a fixed point is solved for

        def after_others(d: int, *given: Any) -> Tensor:
            if 0 < (done := next(calls)) < depth:
                with outside_pass(), calling_between_layers(None):
                    self._call(done, depth)
            return layer(d, *given)

        return self._loop.run(after_others, x_TH, rows, depth, selected, all_depths)
