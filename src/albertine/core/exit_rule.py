"""The rule of early exit; does not import torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from albertine.errors import SettingsError

_REMEDY = "Give patience=N (N further layers predict the same) or confidence=P (a probability, such as 0.9)"


@dataclass(frozen=True)
class ExitRule:
    """When the layers that a text has passed suffice; one of the two is given.

    Attributes:
        patience: the text leaves when so many layers in a row predict the same as the layer before them
            (Zhou et al. 2020, PABEE).
        confidence: it leaves when the prediction of a layer is at least so probable; of several classes, the
            least certain of them.
    """

    patience: int | None = None
    confidence: float | None = None

    def __post_init__(self) -> None:
        """Raises SettingsError: not one of them is given, or it is out of range."""
        if (self.patience is None) == (self.confidence is None):
            raise SettingsError("a rule of early exit is either a patience or a confidence", remedy=_REMEDY)
        if self.patience is not None and self.patience < 1:
            raise SettingsError(f"the patience of an early exit is {self.patience}, below 1", remedy=_REMEDY)
        if self.confidence is not None and not 0 < self.confidence <= 1:
            raise SettingsError(
                f"the confidence of an early exit is {self.confidence}, not between 0 and 1", remedy=_REMEDY
            )

    @classmethod
    def parse(cls, text: str) -> Self:
        """The rule in words such as `patience=2` or `confidence=0.9`. Raises SettingsError."""
        name, _, value = text.partition("=")
        try:
            if name == "patience":
                return cls(patience=int(value))
            if name == "confidence":
                return cls(confidence=float(value))
        except ValueError:
            pass
        raise SettingsError(f"`{text}` is no rule of early exit", remedy=_REMEDY)

    def __str__(self) -> str:
        if self.patience is not None:
            return f"patience={self.patience}"
        return f"confidence={self.confidence:g}"
