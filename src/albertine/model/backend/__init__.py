"""The one door to hardware: which backend computes a forward pass, and which one computes now.

A backend is one file with a subclass of `base.Backend` and a line in `backend_for`. One object of it lives as
long as one forward pass, and what it prepares for the pass goes with it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch.compiler import is_dynamo_compiling

from albertine.core.precision import ComputeFormat
from albertine.errors import SettingsError
from albertine.model.backend.base import PLAIN, Backend
from albertine.model.backend.loss import IGNORED as IGNORED
from albertine.model.backend.loss import cross_entropy as cross_entropy

if TYPE_CHECKING:
    from albertine.model.backend.autotune import KernelChoice

NAMES = ("auto", "plain", "onednn", "cuda")


class _Current(threading.local):
    """The pass under way in this thread, and the encoder it is of."""

    backend: Backend | None = None
    owner: object = None


_current = _Current()


def current() -> Backend:
    """The backend of the forward pass under way in this thread; plain torch outside of any."""
    if _compiling():
        return _traced()
    return _current.backend or PLAIN


def _compiling() -> bool:
    """Whether torch's compiler is at work, which takes plain operations apart itself. An export asks for the
    same, and is traced with the backend that it was given."""
    # `is_exporting()` is this flag, and in torch 2.11 true for its compiler in any case.
    return is_dynamo_compiling() and not torch.compiler._is_exporting_flag


@contextmanager
def forward_pass(owner: object, make: Callable[[], Backend]) -> Iterator[Backend]:
    """A pass of `owner`: the one under way, or a new one with the backend that `make` gives."""
    if _compiling():
        yield make()
    elif _current.owner is owner and _current.backend is not None:
        yield _current.backend
    else:
        before = _current.backend, _current.owner
        _current.backend, _current.owner = make(), owner
        try:
            yield _current.backend
        finally:
            _current.backend, _current.owner = before


def backend_for(
    name: str, form: ComputeFormat, device: torch.device, *, weights_stay: bool, compiled: bool
) -> Backend:
    """A backend for one forward pass.

    Args:
        name: one of `NAMES`. form: the format of the pass.
        weights_stay: whether they are where they are for the whole pass; those of FSDP come and go.
        compiled: whether a depth is to be compiled as one, where that is faster.

    Raises:
        SettingsError: an unknown name, or int8 where there is none (`int8.check_place`).
    """
    gradients = torch.is_grad_enabled()
    if name not in NAMES:
        raise SettingsError(f"unknown backend `{name}`", remedy=f"Use one of {', '.join(NAMES)}")
    if name == "auto":
        name = "onednn" if device.type == "cpu" else "cuda"
    if form.int8:
        from albertine.model.backend.int8 import check_place

        check_place(name, device, compiling=_compiling(), weights_stay=weights_stay)
    if _compiling() or not (weights_stay or name == "plain"):
        return _traced(form)
    if name == "onednn" and form.dtype in (torch.float32, torch.bfloat16):
        from albertine.model.backend.onednn import Inference, Training

        return Training(form, compiled) if gradients else Inference(form)
    if name == "cuda":
        from albertine.model.backend.cuda import Cuda

        return Cuda(form, compiled=compiled and gradients)
    return Backend(form)


def tokens_per_pass(device: torch.device | str) -> int:
    """Most tokens for one pass of inference: on a processor so many that what a depth makes of them lies in
    its caches (docs/decisions/015), elsewhere so many that it is busy."""
    return 4096 if torch.device(device).type == "cpu" else 16384


def choices() -> list[KernelChoice]:
    """What this processor takes for each kind of product of inference and for attention in bfloat16, found
    out by measuring it, and for training in bfloat16, by what it has."""
    from albertine.model.backend import autotune, autotune_attention, onednn

    return [*autotune.choices(), onednn.training_choice(), autotune_attention.choice()]


def _traced(form: ComputeFormat | None = None) -> Backend:
    from albertine.model.backend.cuda import TRACED, Traced

    return TRACED if form is None else Traced(form)
