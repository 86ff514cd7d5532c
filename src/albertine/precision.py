"""The only place that decides in which number format things are computed.

Parameters are always float32 (the master weights). A forward pass casts the weights it needs, once per pass,
to the compute format; LayerNorm statistics, softmax of the loss and the loss itself stay in float32.
Inference can also multiply 8-bit integers.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cache, wraps
from typing import Any, Literal, NamedTuple, TypeVar, cast

import torch
from torch import Tensor

from albertine.errors import SettingsError

Precision = Literal["auto", "float32", "bfloat16"]
InferencePrecision = Precision | Literal["int8"]

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


class Format(NamedTuple):
    """How products are computed.

    Attributes:
        dtype: of activations, and of weights unless these are integers.
        int8: whether the blocks multiply 8-bit integers; for inference alone.
    """

    dtype: torch.dtype
    int8: bool = False


def device_of(name: str) -> torch.device:
    """The device of a name such as cpu, cuda or cuda:1, which is there.

    Raises:
        SettingsError: there is no such device here.
    """
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        here = "cpu, cuda" if torch.cuda.is_available() else "cpu alone"
        raise SettingsError(f"there is no device `{name}` here", remedy=f"Known: {here}") from error
    return device


def fast_bfloat16(device: torch.device) -> bool:
    """Whether bfloat16 products run in hardware there. An AVX2-only CPU emulates them, eight times slower."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    flags = cpu_flags() if device.type == "cpu" else frozenset[str]()
    return bool(flags & {"avx512_bf16", "amx_bf16", "bf16"})


def compute_format(precision: InferencePrecision, weight: Tensor, training: bool = False) -> Format:
    """What a precision setting means for a model with such weights.

    `auto` takes bfloat16 where hardware has it, and so do the activations of `int8`. Under `torch.autocast`
    `auto` and `float32` take its format, and so they take the format of weights that are not float32.

    Raises:
        SettingsError: an unknown setting, or bfloat16 on a GPU that has none.
    """
    if precision not in ("auto", "int8", *_DTYPES):
        raise SettingsError(f"unknown precision `{precision}`", remedy="Use auto, float32, bfloat16 or int8")
    if precision == "int8" and training:
        raise SettingsError(
            "int8 is for inference", remedy="Call model.eval(), and the model under torch.inference_mode()"
        )
    form = _format(precision, weight)
    # Such a card emulates single products, and the kernels of attention fail there in words of their own.
    if form.dtype == torch.bfloat16 and weight.device.type == "cuda" and not fast_bfloat16(weight.device):
        name = torch.cuda.get_device_name(weight.device)
        raise SettingsError(
            f"bfloat16 was asked for, and {name} has none (NVIDIA cards have it since Ampere, 2020)",
            remedy="Use precision auto or float32, without torch.autocast to bfloat16",
        )
    return form


def _format(precision: InferencePrecision, weight: Tensor) -> Format:
    """What was asked for, whether or not the device has it."""
    asked = getattr(_autocast, weight.device.type, None)
    if precision in ("auto", "float32") and asked is not None:
        return Format(asked)
    if precision in ("auto", "float32") and weight.dtype != torch.float32:
        return Format(weight.dtype)
    if precision in ("auto", "int8"):
        dtype = torch.bfloat16 if fast_bfloat16(weight.device) else torch.float32
        return Format(dtype, precision == "int8")
    return Format(_DTYPES[precision])


_autocast = threading.local()
"""By kind of device, the format that `torch.autocast` asked for around the method under way."""

M = TypeVar("M", bound=Callable[..., Any])


def own_precision(method: M) -> M:
    """Compute a method as this module decides: `torch.autocast` around it is a wish for a format
    (`compute_format`) and changes no single operation inside."""

    @wraps(method)
    def computed(*args: Any, **options: Any) -> Any:
        for kind in ("cpu", "cuda"):
            if torch.is_autocast_enabled(kind):
                before = getattr(_autocast, kind, None)
                setattr(_autocast, kind, torch.get_autocast_dtype(kind))
                try:
                    with torch.autocast(kind, enabled=False):
                        return computed(*args, **options)
                finally:
                    setattr(_autocast, kind, before)
        return method(*args, **options)

    return cast(M, computed)


@cache  # asked in every forward pass
def cpu_flags() -> frozenset[str]:
    """What the processor can do, as Linux names it; empty where it is not told."""
    try:
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as lines:
            for line in lines:
                if line.lower().startswith(("flags", "features")):
                    return frozenset(line.split(":", 1)[1].split())
    except OSError:
        pass
    return frozenset()
