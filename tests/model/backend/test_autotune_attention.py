"""The attention kernel in bfloat16 is timed, and used only if it is faster and correct."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from albertine.model.backend import autotune_attention, choices
from albertine.model.backend.autotune import fixed
from albertine.model.backend.autotune_attention import choice, products_are_faster


@pytest.fixture(autouse=True)
def anew() -> Iterator[None]:
    choice.cache_clear()
    yield
    choice.cache_clear()


def has_bfloat16(monkeypatch: pytest.MonkeyPatch, there: bool = True) -> None:
    monkeypatch.setattr(autotune_attention, "fast_bfloat16", lambda _: there)


@pytest.mark.parametrize(("products", "taken"), [(0.5, True), (0.79, True), (0.81, False), (3.0, False)])
def test_products_are_taken_where_they_are_faster(
    products: float, taken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    has_bfloat16(monkeypatch)
    times = {"fused": 1.0, "products": products}
    monkeypatch.setattr(autotune_attention, "fastest_times", lambda ways, enough: times)
    assert products_are_faster() == taken
    assert choice().form == ("products" if taken else "fused")
    assert choice().plain == 1.0 and choice().seconds == (products if taken else 1.0)


def test_wrong_products_are_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    has_bfloat16(monkeypatch)

    def unscaled(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return torch.softmax(q @ k.transpose(2, 3), -1) @ v

    monkeypatch.setattr(autotune_attention, "by_products", unscaled)
    monkeypatch.setattr(autotune_attention, "fastest_times", lambda *_: {"fused": 1.0, "products": 0.1})
    assert not products_are_faster()


def test_nothing_is_measured_without_bfloat16(monkeypatch: pytest.MonkeyPatch) -> None:
    has_bfloat16(monkeypatch, there=False)
    monkeypatch.setattr(autotune_attention, "fastest_times", lambda *_: pytest.fail("measured"))
    assert not products_are_faster() and choice().seconds == 0


def test_a_fixed_form_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(autotune_attention, "fastest_times", lambda *_: pytest.fail("measured"))
    for form in ("products", "fused"):
        with fixed(attention=form):
            assert products_are_faster() == (form == "products")


def test_the_choice_of_this_machine_is_reported() -> None:
    assert [each.kind for each in choices()][-2:] == ["training", "attention"]
    assert choices()[-1] == choice() and choice().form in ("products", "fused")
