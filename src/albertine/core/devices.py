"""Devices by name, and what the one at hand can do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

from albertine.core.processors import BFLOAT16, cpu_flags
from albertine.core.torch_import import torch
from albertine.errors import SettingsError


def parse_device(name: str) -> torch.device:
    """The device of a name such as cpu, cuda or cuda:1, which is there.

    Raises:
        SettingsError: there is no such device here.
    """
    try:
        device = torch.device(name)
        torch.zeros(1, device=device).item()  # which fails on "meta", where a tensor holds no number
    except (RuntimeError, AssertionError, NotImplementedError, TypeError) as error:  # the last: no name
        here = "cpu, cuda" if torch.cuda.is_available() else "cpu alone"
        raise SettingsError(f"there is no device `{name}` here", remedy=f"Known: {here}") from error
    return device


@contextmanager
def on_cpu() -> Iterator[None]:
    """Within, new tensors lie on the processor whatever device a program chose as its default
    (`torch.set_default_device`)."""
    with nullcontext() if torch.get_default_device().type == "cpu" else torch.device("cpu"):
        yield


def fast_bfloat16(device: torch.device) -> bool:
    """Whether bfloat16 products run in hardware there. An AVX2-only CPU emulates them, eight times slower."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    flags = cpu_flags() if device.type == "cpu" else frozenset[str]()
    return bool(flags & BFLOAT16)
