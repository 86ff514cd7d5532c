"""Selection of the backend of a forward pass, the backend of the current pass, and the layers that it
computes.

A backend is one file with a subclass of `base.Backend` and a line in `backend_for`. Its object lives as long
as one forward pass, with everything that it prepares for the pass.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
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
    """The current pass of this thread, and its encoder."""

    backend: Backend | None = None
    owner: object = None


_current = _Current()


def current() -> Backend:
    """The backend of the current forward pass in this thread; plain torch outside of a pass."""
    if _compiling():
        return _traced()
    return _current.backend or PLAIN


class Linear(nn.Linear):
    """x·Wᵀ + b in the format of x, (…, in) to (…, out); parameters are float32."""

    computed_by_backend = True

    def forward(self, x: Tensor) -> Tensor:
        return current().linear(self, x)


class LayerNorm(nn.LayerNorm):
    """(x - mean) / standard deviation of each row, times a scale plus a shift; in the format of x."""

    def forward(self, x: Tensor) -> Tensor:
        return current().layer_norm(self, x)


def _compiling() -> bool:
    """Whether torch's compiler is tracing, which needs plain operations. An export compiles too, but is
    traced with its own backend."""
    # `is_exporting()` is this flag, and in torch 2.11 true for its compiler in any case.
    return is_dynamo_compiling() and not torch.compiler._is_exporting_flag


@contextmanager
def forward_pass(owner: object, make: Callable[[], Backend]) -> Iterator[Backend]:
    """A pass of `owner`: the current one, or a new one with the backend from `make`."""
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


@contextmanager
def outside_pass() -> Iterator[None]:
    """As if no pass were current: for other passes between two layers of one."""
    before = _current.backend, _current.owner
    _current.backend = _current.owner = None
    try:
        yield
    finally:
        _current.backend, _current.owner = before


def backend_for(
    name: str, form: ComputeFormat, device: torch.device, *, weights_stay: bool, compiled: bool
) -> Backend:
    """A backend for one forward pass.

    Args:
        name: one of `NAMES`. form: the format of the pass.
        weights_stay: whether weights stay in place during the pass; FSDP moves them.
        compiled: whether to compile a layer as one function, where that is faster.

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
    """Maximum tokens of one pass of inference: on a CPU as many as keep the activations of a layer in its
    caches (docs/decisions/015), elsewhere enough to keep the device busy."""
    return 4096 if torch.device(device).type == "cpu" else 16384


def choices() -> list[KernelChoice]:
    """Kernels chosen on this CPU: for inference products and attention in bfloat16 by measurement, for
    training in bfloat16 by its features."""
    from albertine.model.backend import autotune, autotune_attention, onednn

    return [*autotune.choices(), onednn.training_choice(), autotune_attention.choice()]


def _traced(form: ComputeFormat | None = None) -> Backend:
    from albertine.model.backend.cuda import TRACED, Traced

    return TRACED if form is None else Traced(form)
