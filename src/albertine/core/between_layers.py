"""A function that an encoder calls between its layers, in the thread that computes; does not import torch."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

BetweenLayers = Callable[[int, int], None]
"""(layers done, layers of the pass), at least one done and one left. What it raises ends the pass."""


class _Current(threading.local):
    call: BetweenLayers | None = None


_current = _Current()


def between_layers() -> BetweenLayers | None:
    """The function of this thread."""
    return _current.call


@contextmanager
def calling_between_layers(call: BetweenLayers | None) -> Iterator[None]:
    """Passes within, in this thread, call a function between their layers; None: none. The function itself
    may compute other passes, which do not call it."""
    before, _current.call = _current.call, call
    try:
        yield
    finally:
        _current.call = before
