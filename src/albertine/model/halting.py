"""Adaptive computation time: every position decides after how many steps it halts (Graves 2016; in the
Universal Transformer, Dehghani et al. 2019, section 2.2).

Before step t a unit reads the state s of a position, coordinate embeddings included, and computes p = σ(w·s +
b). With h the sum of its earlier p, a position halts in the first step in which h + p exceeds 1 - ε; the
weight of that step is the remainder 1 - h, that of the others p. The output combines the states s after the
steps by weights w:

    accumulated   y ← y + w·s                      weighted mean (Graves)
    basic         y ← w·s + (1 - w)·y              Dehghani's; the initial zero keeps some of the weight

A position that has halted is still updated, and others attend to it, until its whole sequence has halted;
only its y stays. So the output of a sequence does not depend on the other sequences of the batch.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from albertine.model.config import EncoderConfig
from albertine.model.loop import EncoderOutput, LayerFunction, LayerLoop, Ponder
from albertine.model.positions.coordinates import CoordinateEmbeddings
from albertine.model.rows import Rows, SelectedRows


class HaltingUnit(nn.Module):
    """The probability that a position halts, H + 1 parameters."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(1, config.hidden_size))
        self.bias = nn.Parameter(torch.empty(1))

    def forward(self, x_RH: Tensor) -> Tensor:
        """(R, H) to (R,), in float32 in any format: sums of probabilities are compared with 1 - ε."""
        wide = torch.promote_types(x_RH.dtype, torch.float32)
        return torch.sigmoid(x_RH.to(wide) @ self.weight.to(wide)[0] + self.bias.to(wide))


@dataclass(frozen=True)
class ActiveRows:
    """The rows that are still computed.

    Attributes:
        indices: their rows in the batch, int64 (R,). rows: their metadata.
        x: their state, (R, H). y: their output so far, (R, H).
        halted: h, (R,). running: whether the position has not halted yet, bool (R,).
        steps, remainder: as in `Ponder`, (R,).
    """

    indices: Tensor
    rows: Rows
    x: Tensor
    y: Tensor
    halted: Tensor
    running: Tensor
    steps: Tensor
    remainder: Tensor

    @classmethod
    def initial(cls, x_TH: Tensor, rows: Rows) -> ActiveRows:
        y_TH = torch.zeros_like(x_TH, dtype=torch.promote_types(x_TH.dtype, torch.float32))
        zeros, indices = y_TH[:, 0], torch.arange(len(x_TH), device=x_TH.device)
        return cls(indices, rows, x_TH, y_TH, zeros, zeros == 0, torch.zeros_like(indices), zeros)

    def select(self, index: Tensor) -> ActiveRows:
        """The rows of some whole sequences, int64 (P,) ascending."""
        names = ("indices", "x", "y", "halted", "running", "steps", "remainder")
        fewer = {name: getattr(self, name)[index] for name in names}
        return replace(self, rows=self.rows.some_sequences(index), **fewer)

    def in_running_sequence(self) -> Tensor:
        """Which rows belong to a sequence with a running position, bool (R,)."""
        offsets = self.rows.cu_seqlens.long()
        before = torch.cat([offsets.new_zeros(1), self.running.cumsum(0)])[offsets]
        return (before.diff() > 0).repeat_interleave(offsets.diff(), output_size=len(self.indices))


class Halting(LayerLoop):
    """The loop until all positions have halted.

    Args:
        unit: the encoder's. signals: the encoder's coordinate embeddings, which the unit reads too.
    """

    def __init__(
        self, config: EncoderConfig, unit: HaltingUnit, signals: CoordinateEmbeddings | None
    ) -> None:
        self.unit, self.signals = unit, signals
        self.accumulated = config.halting == "accumulated"
        self.threshold = 1 - config.halting_epsilon
        self.remainder_at_limit = config.halting_limit == "remainder"

    def run(
        self,
        layer: LayerFunction,
        x_TH: Tensor,
        rows: Rows,
        depth: int,
        selected: SelectedRows | None,
        all_depths: bool,
    ) -> EncoderOutput:
        """As `LayerLoop.run`; `depth` is the maximum number of steps, and hidden state d is the output with a
        maximum of d.

        Returns:
            With `ponder`; at depth 0 the embeddings without.
        """
        if not depth:
            return super().run(layer, x_TH, rows, 0, selected, all_depths)
        active, done = ActiveRows.initial(x_TH, rows), list[ActiveRows]()
        outputs = [x_TH]
        for d in range(depth):
            before, active = active, self._step(layer, d, active, last=d == depth - 1)
            if all_depths and d < depth - 1:
                ended = self._update(before, active.x, self._probability(d, before), last=True)
                outputs.append(_join([*done, ended]).y.to(x_TH.dtype))
            if d == depth - 1:
                break
            stays = active.in_running_sequence()  # synchronises with the device once a step
            if not bool(stays.all()):
                done.append(active.select((~stays).nonzero()[:, 0]))
                active = active.select(stays.nonzero()[:, 0])
            if not len(active.indices):
                break
        every = _join([*done, active])
        last = every.y.to(x_TH.dtype)
        outputs += [last] * (depth + 1 - len(outputs))
        return EncoderOutput(
            last if selected is None else selected.of(last),
            tuple(outputs) if all_depths else None,
            ponder=Ponder(every.steps, every.remainder),
        )

    def _probability(self, d: int, active: ActiveRows) -> Tensor:
        return self.unit(active.x if self.signals is None else self.signals(d, active.x, active.rows))  # type: ignore[no-any-return]

    def _step(self, layer: LayerFunction, d: int, active: ActiveRows, last: bool) -> ActiveRows:
        p_R = self._probability(d, active)
        return self._update(active, layer(d, active.x, active.x, active.rows, active.rows), p_R, last)

    def _update(self, active: ActiveRows, x_RH: Tensor, p_R: Tensor, last: bool) -> ActiveRows:
        """The rows after a step to the states `x_RH`, with the halting probabilities read before it."""
        halts = active.running & (active.halted + p_R > self.threshold)
        if last and self.remainder_at_limit:
            halts = active.running
        left_R = 1 - active.halted
        continues = active.running & ~halts
        w_R1 = torch.where(halts, left_R, p_R * continues)[:, None]
        y_RH = w_R1 * x_RH + (active.y if self.accumulated else (1 - w_R1) * active.y)
        return replace(
            active,
            x=x_RH,
            y=y_RH,
            halted=active.halted + p_R * continues,
            running=continues,
            steps=active.steps + active.running,
            remainder=active.remainder + left_R * halts,
        )


def _join(parts: list[ActiveRows]) -> ActiveRows:
    """All rows of the batch in order, from disjoint parts."""
    if len(parts) == 1:
        return parts[0]
    order = torch.cat([part.indices for part in parts]).argsort()
    names = ("y", "steps", "remainder")
    joined: dict[str, Any] = {name: torch.cat([getattr(p, name) for p in parts])[order] for name in names}
    return replace(parts[-1], **joined)
