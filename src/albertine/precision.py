"""The only place that decides in which number format things are computed.

Parameters are always float32 (the master weights). A forward pass casts the weights it needs, once per pass,
to the compute format; LayerNorm statistics, softmax of the loss and the loss itself stay in float32.
Inference can also multiply 8-bit integers.
"""

from __future__ import annotations

from functools import cache
from typing import Literal, NamedTuple

import torch

from albertine.errors import SettingsError

Precision = Literal["auto", "float32", "bfloat16"]
InferencePrecision = Precision | Literal["int8"]

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


class Format(NamedTuple):
    """How products are computed.

    Attributes:
        dtype: of activations, and of weights unless these are integers.
        int8: whether the blocks multiply 8-bit integers; for inference alone.
        compiled: whether a depth is compiled as one; for training alone.
    """

    dtype: torch.dtype
    int8: bool = False
    compiled: bool = False


def fast_bfloat16(device: torch.device) -> bool:
    """Whether bfloat16 products run in hardware there. An AVX2-only CPU emulates them, eight times slower."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    flags = _cpu_flags() if device.type == "cpu" else frozenset[str]()
    return bool(flags & {"avx512_bf16", "amx_bf16", "bf16"})


def compute_format(precision: InferencePrecision, device: torch.device) -> Format:
    """What a precision setting means on a device; `auto` takes bfloat16 where hardware has it, and so do the
    activations of `int8`."""
    if precision in ("auto", "int8"):
        dtype = torch.bfloat16 if fast_bfloat16(device) else torch.float32
        return Format(dtype, precision == "int8")
    if precision not in _DTYPES:
        raise SettingsError(f"unknown precision `{precision}`", remedy="Use auto, float32, bfloat16 or int8")
    return Format(_DTYPES[precision])


@cache  # asked in every forward pass
def _cpu_flags() -> frozenset[str]:
    try:
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as lines:
            for line in lines:
                if line.lower().startswith(("flags", "features")):
                    return frozenset(line.split(":", 1)[1].split())
    except OSError:
        pass
    return frozenset()
