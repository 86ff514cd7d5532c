"""The only place that decides in which number format things are computed.

Parameters are always float32 (the master weights). A forward pass casts the weights it needs, once per pass,
to the compute format; LayerNorm statistics, softmax of the loss and the loss itself stay in float32.
"""

from __future__ import annotations

from typing import Literal

import torch

from albertine.errors import SettingsError

Precision = Literal["auto", "float32", "bfloat16"]

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def fast_bfloat16(device: torch.device) -> bool:
    """Whether bfloat16 products run in hardware there. An AVX2-only CPU emulates them, eight times slower."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    flags = _cpu_flags() if device.type == "cpu" else frozenset[str]()
    return bool(flags & {"avx512_bf16", "amx_bf16", "bf16"})


def compute_dtype(precision: Precision, device: torch.device) -> torch.dtype:
    """The format of matrix products for a precision setting; `auto` takes bfloat16 where hardware has it."""
    if precision == "auto":
        return torch.bfloat16 if fast_bfloat16(device) else torch.float32
    if precision not in _DTYPES:
        raise SettingsError(f"unknown precision `{precision}`", remedy="Use auto, float32 or bfloat16")
    return _DTYPES[precision]


def _cpu_flags() -> frozenset[str]:
    try:
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as lines:
            for line in lines:
                if line.lower().startswith(("flags", "features")):
                    return frozenset(line.split(":", 1)[1].split())
    except OSError:
        pass
    return frozenset()
