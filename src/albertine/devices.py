"""Devices by name, and what the one at hand can do."""

from __future__ import annotations

from functools import cache

from albertine.errors import SettingsError
from albertine.quick import torch


def device_of(name: str) -> torch.device:
    """The device of a name such as cpu, cuda or cuda:1, which is there.

    Raises:
        SettingsError: there is no such device here.
    """
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError, TypeError) as error:  # the last: no name
        here = "cpu, cuda" if torch.cuda.is_available() else "cpu alone"
        raise SettingsError(f"there is no device `{name}` here", remedy=f"Known: {here}") from error
    return device


def fast_bfloat16(device: torch.device) -> bool:
    """Whether bfloat16 products run in hardware there. An AVX2-only CPU emulates them, eight times slower."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    flags = cpu_flags() if device.type == "cpu" else frozenset[str]()
    return bool(flags & {"avx512_bf16", "amx_bf16", "bf16"})


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
