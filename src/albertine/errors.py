"""Exceptions for problems that a user can fix.

Each has one message: what is wrong, where, and what to do. The command line prints that message and exits
with code 2. Any other exception that reaches the user is a bug.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from numbers import Integral
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class AlbertineError(Exception):
    """Base class: a problem that the user can fix.

    Args:
        what: what is wrong, a sentence without a full stop.
        where: the file, setting or row concerned, if any.
        remedy: what to do about it.
    """

    def __init__(self, what: str, *, where: object = None, remedy: str | None = None) -> None:
        self.what, self.where, self.remedy = what, where, remedy
        place = f"{where}: " if where is not None else ""
        advice = f". {remedy}" if remedy else ""
        super().__init__(f"{place}{what}{advice}")

    def __reduce__(self) -> tuple[object, ...]:
        # The default, calling the class with the message, would add a default remedy a second time.
        return _unpickled, (type(self), self.args, dict(self.__dict__))


def _unpickled(kind: type[AlbertineError], args: tuple[object, ...], attributes: dict[str, object]) -> object:
    error = kind.__new__(kind, *args)
    error.__dict__.update(attributes)
    return error


class SettingsError(AlbertineError):
    """Settings or arguments with unknown, contradictory or invalid values."""


def check_integer(name: str, value: object, minimum: int) -> None:
    """Raise SettingsError unless `value` is an integer, of Python or NumPy, of at least `minimum`."""
    if not isinstance(value, Integral) or value < minimum:
        raise SettingsError(f"{name} is a whole number from {minimum}, not {value!r:.40}")


class InputError(AlbertineError, ValueError):
    """Invalid input tensors of a model: an attention mask of other values than 0 and 1, an id out of
    range."""


class DataError(AlbertineError):
    """A text file that is missing, empty, binary, truncated or in another encoding."""


class TokenizerError(AlbertineError):
    """A vocabulary that is missing, damaged or does not fit the text or the model."""


class CorpusError(AlbertineError):
    """A corpus folder that is incomplete, damaged or made with another tokenizer."""


class ModelError(AlbertineError):
    """A model folder that is missing, damaged or of an unsupported kind."""


class NotFinite(ModelError):
    """NaN or infinite outputs of a model: for one text, or for all because of its weights."""

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
    def of_items(cls, kind: str, indices: Sequence[int]) -> NotFinite:
        """The error for items of a kind ("text", "row") by their indices from 0, at least one."""
        more = f" and {len(indices) - 1:,} more" if len(indices) > 1 else ""
        return cls(where=f"{kind} {indices[0] + 1:,}{more}")


class CheckpointError(AlbertineError):
    """A checkpoint that is damaged or belongs to another run."""


class RunError(AlbertineError):
    """A run that cannot continue: folder in use, disk full, loss not finite."""


class ProcessError(RunError):
    """A worker process was killed or has ended; the input is not the cause."""


class MissingExtra(AlbertineError):
    """A library of an optional extra that is not installed."""


def missing_torch_error(error: ModuleNotFoundError, where: object = None) -> Exception:
    """The error to raise where torch is missing; `error` itself if another module is missing."""
    if (error.name or "").partition(".")[0] != "torch":
        return error
    return MissingExtra(
        f"{'this ' if where is None else ''}needs torch, which is not installed",
        where=where,
        remedy="pip install 'albertine[torch]'",
    )


def needs_torch(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a public function of `albertine` to raise MissingExtra, with the extra to install, where torch
    is missing, as the command line does."""

    module = function.__module__.removesuffix(".api")  # `albertine.api.info` is `albertine.info`

    @wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except ModuleNotFoundError as error:
            if (missing := missing_torch_error(error, where=f"{module}.{function.__name__}")) is error:
                raise
            raise missing from error

    return checked
