"""Settings of language models over streams, and their checks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from albertine.errors import SettingsError
from albertine.objectives.factorisation import check_blocks
from albertine.objectives.masking import MaskSettings
from albertine.objectives.prediction_spans import SpanSettings, halves
from albertine.objectives.streams import stream_length
from albertine.objectives.xlnet_segments import SPECIALS


@dataclass(frozen=True)
class StreamSettings:
    """Settings of language models over streams.

    Attributes:
        kind: causal, masked or permutation LM.
        length: tokens of a segment.
        lanes: number of streams, the sequences of a batch over all processes.
        masks: of a masked objective.
        reuse: permutation only: tokens of a segment repeated from the step before, followed by A and B. 0:
            segments are consecutive plain text.
        block: tokens of a permutation, a divisor of the segment, or of both its halves. 0: the largest.
        predictions: predicted tokens of a segment with a permutation.
        spans: how they are drawn.
        both: half of the streams are reversed.
    """

    kind: Literal["causal", "masked", "permutation"]
    length: int
    lanes: int
    masks: MaskSettings = field(default_factory=MaskSettings)
    reuse: int = 0
    block: int = 0
    predictions: int = 0
    spans: SpanSettings = field(default_factory=SpanSettings)
    both: bool = False

    def __post_init__(self) -> None:
        if self.kind != "permutation" and (self.reuse or self.both):
            raise SettingsError(
                f"segments with a reused part, and both directions, are of a permutation LM, not of a "
                f"{self.kind} one",
                where="objective",
                remedy="Set objective.kind: permutation, or leave reuse and both_directions out",
            )
        if self.both and self.lanes % 2:
            raise SettingsError(
                f"a batch of {self.lanes} sequences cannot be read in both directions",
                where="training.batch_size",
                remedy="Make it even, or set objective.permutation.both_directions: false",
            )
        if self.kind == "permutation":
            self._check_permutation()

    def _check_permutation(self) -> None:
        if self.reuse and not self.reuse + SPECIALS + 2 <= self.length:
            raise SettingsError(
                f"{self.reuse} reused tokens leave no room for two pieces of text in {self.length}",
                where="objective.permutation.reuse",
                remedy=f"Use at most {self.length - SPECIALS - 2}; half of max_length is usual",
            )
        check_blocks(self.length, self.reuse, self.order_block)
        if self.order_block == 1:
            parts = " and ".join(map(str, self.halves))
            raise SettingsError(
                f"parts of {parts} tokens have blocks of one token alone in common, which know one order",
                where="objective.permutation",
                remedy="Use half of max_length for reuse, and a block above 1",
            )
        if any(n > half for n, half in zip(self.wanted, self.halves, strict=True)) or self.predictions < 1:
            raise SettingsError(
                f"{self.predictions} predictions of segments with {self.length} tokens",
                where="objective.permutation.predictions",
                remedy="Use 1 at least, and no more than a half has; a sixth of max_length is usual",
            )

    @property
    def halves(self) -> tuple[int, ...]:
        """Lengths of the parts of a segment that are permuted separately."""
        return (self.reuse, self.length - self.reuse) if self.reuse else (self.length,)

    @property
    def wanted(self) -> tuple[int, ...]:
        """Predictions in each of them."""
        return halves(self.predictions) if self.reuse else (self.predictions,)

    @property
    def order_block(self) -> int:
        return self.block or int(np.gcd.reduce(self.halves))

    @property
    def advance(self) -> int:
        """Tokens by which a stream advances each step; the memory takes this many of each segment."""
        return self.reuse or self.length

    def segments(self, tokens: int) -> int:
        """Steps of an epoch of this number of tokens, closing [SEP] included; 0: too few."""
        lane = stream_length(tokens, self.lanes, both=self.both)
        # One more than a segment has: the last token of a causal one predicts the token behind it.
        return max(0, (lane - self.length - 1) // self.advance + 1)
