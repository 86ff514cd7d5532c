"""Parse device names; device capabilities."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

from albertine.core.processors import BFLOAT16, cpu_flags
from albertine.core.torch_import import torch
from albertine.errors import SettingsError


def parse_device(name: str) -> torch.device:
    """The device with a name such as cpu, cuda or cuda:1.

    Raises:
        SettingsError: this machine has no such device.
    """
    try:
        device = torch.device(name)
        torch.zeros(1, device=device).item()  # fails on "meta", whose tensors have no values
    except (RuntimeError, AssertionError, NotImplementedError, TypeError) as error:  # TypeError: not a name
        known = "cpu, cuda" if torch.cuda.is_available() else "cpu alone"
        raise SettingsError(f"there is no device `{name}` here", remedy=f"Known: {known}") from error
    return device


@contextmanager
def on_cpu() -> Iterator[None]:
    """Create new tensors on the CPU, whatever the program's default device (`torch.set_default_device`)."""
    with nullcontext() if torch.get_default_device().type == "cpu" else torch.device("cpu"):
        yield


def fast_bfloat16(device: torch.device) -> bool:
    """Whether the device multiplies bfloat16 in hardware. A CPU with AVX2 alone emulates it, eight times
    slower."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    flags = cpu_flags() if device.type == "cpu" else frozenset[str]()
    return bool(flags & BFLOAT16)
