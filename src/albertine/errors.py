"""What a person can cause, said once and clearly.

Every error below prints as one message: what was wrong, where, and what to do. The command line turns it
into that message and exit code 2. Anything else that escapes as a traceback is a bug of ours.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from numbers import Integral
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class AlbertineError(Exception):
    """A problem that its reader can mend.

    Args:
        what: what is wrong, a sentence without a full stop.
        where: the file, setting or row it concerns, if any.
        remedy: what to do about it.
    """

    def __init__(self, what: str, *, where: object = None, remedy: str | None = None) -> None:
        self.what, self.where, self.remedy = what, where, remedy
        place = f"{where}: " if where is not None else ""
        advice = f". {remedy}" if remedy else ""
        super().__init__(f"{place}{what}{advice}")

    def __reduce__(self) -> tuple[object, ...]:
        # Made anew from its arguments, as exceptions are, it would get a remedy by default once more.
        return _as_it_was, (type(self), self.args, dict(self.__dict__))


def _as_it_was(kind: type[AlbertineError], args: tuple[object, ...], attributes: dict[str, object]) -> object:
    error = kind.__new__(kind, *args)
    error.__dict__.update(attributes)
    return error


class SettingsError(AlbertineError):
    """Settings with unknown, contradictory or impossible values."""


def check_integer(name: str, given: object, least: int) -> None:
    """Raises SettingsError for what is no whole number from `least`; one of NumPy's is one."""
    if not isinstance(given, Integral) or given < least:
        raise SettingsError(f"{name} is a whole number from {least}, not {given!r:.40}")


class InputError(AlbertineError, ValueError):
    """Tensors handed to a model that it cannot read: a mask that is none, an id outside a table."""


class DataError(AlbertineError):
    """A text file that is missing, empty, binary, truncated or wrongly encoded."""


class TokenizerError(AlbertineError):
    """A vocabulary that is missing, broken or does not fit the text or the model."""


class CorpusError(AlbertineError):
    """A prepared corpus that is incomplete, damaged or made with another tokenizer."""


class ModelError(AlbertineError):
    """A model folder that is missing, damaged or of a kind we cannot read."""


class NotFinite(ModelError):
    """Numbers of a model that are NaN or infinite: for one text, or by its weights for all."""

    def __init__(
        self,
        what: str = "the model gives numbers that are not finite, which mean nothing",
        *,
        where: object = None,
        remedy: str | None = "Compute in float32 (--precision float32 or training.precision, in Python "
        'precision="float32"); if it stays so, the text overflows or the weights are damaged',
    ) -> None:
        super().__init__(what, where=where, remedy=remedy)

    @classmethod
    def of_items(cls, kind: str, places: Sequence[int]) -> NotFinite:
        """Of some items of a kind ("text", "row"), by their places, at least one, from 0."""
        more = f" and {len(places) - 1:,} more" if len(places) > 1 else ""
        return cls(where=f"{kind} {places[0] + 1:,}{more}")


class CheckpointError(AlbertineError):
    """A checkpoint that is damaged or belongs to another run."""


class RunError(AlbertineError):
    """A run that cannot go on: folder in use, disk full, loss not finite."""


class ProcessError(RunError):
    """A process of the work was killed or has ended: nothing was wrong with the input."""


class MissingExtra(AlbertineError):
    """A library that is not installed, because the extra that brings it was not asked for."""


def missing_torch_error(error: ModuleNotFoundError, where: object = None) -> Exception:
    """The error of a command that needs torch and does not find it; the given one if another module is
    missing."""
    if (error.name or "").partition(".")[0] != "torch":
        return error
    return MissingExtra(
        f"{'this ' if where is None else ''}needs torch, which is not installed",
        where=where,
        remedy="pip install 'albertine[torch]'",
    )


def needs_torch(function: Callable[P, R]) -> Callable[P, R]:
    """A public function of `albertine` that says which extra it needs, where torch is missing: a user of
    `albertine[onnx]` is told by `albertine.load` what the command line tells."""

    @wraps(function)
    def told(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except ModuleNotFoundError as error:
            if (missing := missing_torch_error(error, where=f"albertine.{function.__name__}")) is error:
                raise
            raise missing from error

    return told
