"""Adaptive computation time: every position decides itself after how many steps it has had enough (Graves
2016; in the Universal Transformer, Dehghani et al. 2019, section 2.2).

Before step t a unit reads the state s of a position, signals included, and gives p = σ(w·s + b). The sum h of
its p is what the position has halted so far; once h + p exceeds 1 - ε it halts with this step, whose weight
is the remainder 1 - h. Others weigh their step by p. The output gathers the states behind the steps:

    accumulated   y ← y + w·s                      Graves' weighted mean
    basic         y ← w·s + (1 - w)·y              Dehghani's, which leaves mass on the zero it began with

A position that halted goes on changing, and others attend to it, until its whole sequence has halted; only
its y stays. So a sequence's result does not depend on who is packed beside it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from albertine.model.config import EncoderConfig
from albertine.model.coordinate_embeddings import StepSignals
from albertine.model.layer_loop import Depths, EncoderOutput, Step
from albertine.model.ponder_time import Ponder
from albertine.model.rows import Rows, Selected


class HaltingUnit(nn.Module):
    """The probability that a position halts, H + 1 parameters."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(1, config.hidden_size))
        self.bias = nn.Parameter(torch.empty(1))

    def forward(self, x_RH: Tensor) -> Tensor:
        """(R, H) to (R,), in float32 whatever the format: sums of probabilities are compared with 1 - ε."""
        wide = torch.promote_types(x_RH.dtype, torch.float32)
        return torch.sigmoid(x_RH.to(wide) @ self.weight.to(wide)[0] + self.bias.to(wide))


@dataclass(frozen=True)
class Running:
    """The rows that are still computed.

    Attributes:
        places: where they stand in the batch, int64 (R,). rows: what is known of them.
        x: their state, (R, H). y: their output so far, (R, H).
        halted: h, (R,). going: whether h is still below one, bool (R,).
        steps, remainder: as in `Ponder`, (R,).
    """

    places: Tensor
    rows: Rows
    x: Tensor
    y: Tensor
    halted: Tensor
    going: Tensor
    steps: Tensor
    remainder: Tensor

    @classmethod
    def at_first(cls, x_TH: Tensor, rows: Rows) -> Running:
        y_TH = torch.zeros_like(x_TH, dtype=torch.promote_types(x_TH.dtype, torch.float32))
        nothing, places = y_TH[:, 0], torch.arange(len(x_TH), device=x_TH.device)
        return cls(places, rows, x_TH, y_TH, nothing, nothing == 0, torch.zeros_like(places), nothing)

    def of(self, index: Tensor) -> Running:
        """The rows of some whole sequences, int64 (P,) ascending."""
        names = ("places", "x", "y", "halted", "going", "steps", "remainder")
        fewer = {name: getattr(self, name)[index] for name in names}
        rows = self.rows.select(index).rows
        # The others are no empty sequences now but none, for which no kernel makes room.
        rows = replace(
            rows,
            cu_seqlens=torch.unique_consecutive(rows.cu_seqlens),
            lengths=None if rows.lengths is None else tuple(n for n in rows.lengths if n),
            longest=min(rows.longest, self.rows.longest),
        )
        return replace(self, rows=rows, **fewer)

    def unfinished(self) -> Tensor:
        """Which rows are of a sequence of which any position goes on, bool (R,)."""
        offsets = self.rows.cu_seqlens.long()
        before = torch.cat([offsets.new_zeros(1), self.going.cumsum(0)])[offsets]
        return (before.diff() > 0).repeat_interleave(offsets.diff(), output_size=len(self.places))


class Halting(Depths):
    """The loop that goes on until all positions have halted; a `Depths`.

    Args:
        unit: the encoder's. signals: the encoder's, which the unit reads too.
    """

    def __init__(self, config: EncoderConfig, unit: HaltingUnit, signals: StepSignals | None) -> None:
        self.unit, self.signals = unit, signals
        self.accumulated = config.halting == "accumulated"
        self.enough = 1 - config.halting_epsilon
        self.remainder_at_limit = config.halting_limit == "remainder"

    def run(
        self, step: Step, x_TH: Tensor, rows: Rows, depth: int, wanted: Selected | None, all_depths: bool
    ) -> EncoderOutput:
        """As `Depths.run`; `depth` is the most steps, and the state of depth d what a most of d would give.

        Returns:
            With `Ponder`; at depth 0 the embeddings and none.
        """
        if not depth:
            return super().run(step, x_TH, rows, 0, wanted, all_depths)
        now, gone = Running.at_first(x_TH, rows), list[Running]()
        outputs = [x_TH]
        for d in range(depth):
            before, now = now, self._step(step, d, now, last=d == depth - 1)
            if all_depths and d < depth - 1:
                ended = self._weighed(before, now.x, self._probability(d, before), last=True)
                outputs.append(_whole([*gone, ended]).y.to(x_TH.dtype))
            if d == depth - 1:
                break
            stays = now.unfinished()  # the host waits for the device here, once a step
            if not bool(stays.all()):
                gone.append(now.of((~stays).nonzero()[:, 0]))
                now = now.of(stays.nonzero()[:, 0])
            if not len(now.places):
                break
        every = _whole([*gone, now])
        last = every.y.to(x_TH.dtype)
        outputs += [last] * (depth + 1 - len(outputs))
        return EncoderOutput(
            last if wanted is None else wanted.of(last),
            tuple(outputs) if all_depths else None,
            Ponder(every.steps, every.remainder),
        )

    def _probability(self, d: int, now: Running) -> Tensor:
        return self.unit(now.x if self.signals is None else self.signals(d, now.x, now.rows))  # type: ignore[no-any-return]

    def _step(self, step: Step, d: int, now: Running, last: bool) -> Running:
        p_R = self._probability(d, now)
        return self._weighed(now, step(d, now.x, now.x, now.rows, now.rows), p_R, last)

    def _weighed(self, now: Running, x_RH: Tensor, p_R: Tensor, last: bool) -> Running:
        """After a step to `x_RH` that was weighed by what was read before it."""
        halts = now.going & (now.halted + p_R > self.enough)
        if last and self.remainder_at_limit:
            halts = now.going
        left_R = 1 - now.halted
        goes_on = now.going & ~halts
        w_R1 = torch.where(halts, left_R, p_R * goes_on)[:, None]
        y_RH = w_R1 * x_RH + (now.y if self.accumulated else (1 - w_R1) * now.y)
        return replace(
            now,
            x=x_RH,
            y=y_RH,
            halted=now.halted + p_R * goes_on,
            going=goes_on,
            steps=now.steps + now.going,
            remainder=now.remainder + left_R * halts,
        )


def _whole(parts: list[Running]) -> Running:
    """All rows of the batch in their places; the parts have some each."""
    if len(parts) == 1:
        return parts[0]
    order = torch.cat([part.places for part in parts]).argsort()
    names = ("y", "steps", "remainder")
    found: dict[str, Any] = {name: torch.cat([getattr(p, name) for p in parts])[order] for name in names}
    return replace(parts[-1], **found)
