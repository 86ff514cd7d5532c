"""The number format of a setting on GPUs that are not present."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from albertine.core.precision import ComputeFormat, compute_format, without_autocast
from albertine.errors import SettingsError


def on_card(monkeypatch: pytest.MonkeyPatch, bfloat16: bool, dtype: torch.dtype = torch.float32) -> Any:
    """A weight on a GPU that has bfloat16 or has it only emulated."""
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True: bfloat16)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device=None: "Tesla T4")
    return SimpleNamespace(device=torch.device("cuda", 0), dtype=dtype)


def test_bfloat16_on_a_card_without_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    weight = on_card(monkeypatch, False)
    with pytest.raises(SettingsError, match=r"not supported by Tesla T4 .*precision auto or float32"):
        compute_format("bfloat16", weight)
    with pytest.raises(SettingsError, match="Tesla T4"):
        compute_format("auto", on_card(monkeypatch, False, torch.bfloat16))
    assert compute_format("auto", weight) == compute_format("float32", weight) == ComputeFormat(torch.float32)
    assert compute_format("int8", weight) == ComputeFormat(torch.float32, True)


def test_bfloat16_on_a_card_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    weight = on_card(monkeypatch, True)
    assert (
        compute_format("auto", weight) == compute_format("bfloat16", weight) == ComputeFormat(torch.bfloat16)
    )
    assert compute_format("float32", weight) == ComputeFormat(torch.float32)


def test_a_wish_of_autocast_that_a_card_cannot_fulfil_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    weight = on_card(monkeypatch, False)
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda kind: autocast_enabled and kind == "cuda")
    monkeypatch.setattr(torch, "get_autocast_dtype", lambda kind: torch.bfloat16)
    autocast_enabled = True

    def inside() -> ComputeFormat:
        return compute_format("auto", weight)

    class Off:
        """In place of `torch.autocast`, which requires a GPU."""

        def __init__(self, *_: object, **__: object) -> None: ...

        def __enter__(self) -> None:
            nonlocal autocast_enabled
            autocast_enabled = False

        def __exit__(self, *_: object) -> None: ...

    monkeypatch.setattr(torch, "autocast", Off)
    with pytest.raises(SettingsError, match="autocast"):
        without_autocast(inside)()
