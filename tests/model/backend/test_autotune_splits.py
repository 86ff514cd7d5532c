"""Products in bfloat16 are split by rows only where that was measured to be faster."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from albertine.model.backend import autotune_splits
from albertine.model.backend.autotune import PlainLinear, fixed
from albertine.model.backend.autotune_splits import RowSplitLinear, piece_of, split_is_faster, with_row_splits
from albertine.model.backend.fused_linear import FusedLinear


@pytest.fixture(autouse=True)
def anew() -> Iterator[None]:
    autotune_splits._faster.cache_clear()
    yield
    autotune_splits._faster.cache_clear()


class Counting:
    """A layer that notes how many rows each call has."""

    def __init__(self, layer: PlainLinear) -> None:
        self.layer, self.calls = layer, list[int]()

    def __call__(self, x_TI: Tensor, activation: str | None = None, residual: Tensor | None = None) -> Tensor:
        self.calls.append(len(x_TI))
        return self.layer(x_TI, activation, residual)


@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize(
    ("rows", "calls"),
    [
        (511, [511]),
        (512, [256, 256]),
        (768, [384, 384]),
        (800, [272, 272, 256]),
        (1535, [384, 384, 384, 383]),
        (1536, [1536]),
    ],
)
def test_pieces_give_what_the_whole_gives(
    rows: int, calls: list[int], residual: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(autotune_splits, "split_is_faster", lambda *_: True)
    random = torch.Generator().manual_seed(0)
    weight, x, added = (torch.randn(n, 24, generator=random) for n in (24, rows, rows))
    inner = Counting(PlainLinear(weight, weight[0]))
    given = (x, "relu", added if residual else None)
    found = RowSplitLinear(inner, 24, 24)(*given)
    assert inner.calls == calls
    torch.testing.assert_close(found, inner.layer(*given), rtol=0, atol=1e-5)


def test_rows_are_judged_by_steps_of_their_number(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    monkeypatch.setattr(autotune_splits, "split_is_faster", lambda *given: bool(calls.append(given)))
    layer = Counting(PlainLinear(torch.ones(3, 2), torch.ones(3)))
    for rows in (500, 512, 600, 640, 641, 2000):
        RowSplitLinear(layer, 2, 3)(torch.ones(rows, 2))
    threads = torch.get_num_threads()
    assert calls == [(2, 3, judged, threads) for judged in (512, 640, 640, 768)]
    assert layer.calls == [500, 512, 600, 640, 641, 2000]


@pytest.mark.parametrize("rows", range(512, 1536, 16))
def test_pieces_are_equal_and_fit_the_kernels(rows: int) -> None:
    size = piece_of(rows)
    assert size % 16 == 0 and size <= 384
    assert rows - size * (-(-rows // size) - 1) > size // 2, "a last piece of few rows would cost a call"


@pytest.mark.parametrize(("pieces", "taken"), [(0.5, True), (0.79, True), (0.81, False), (2.0, False)])
def test_only_what_is_faster_is_taken(pieces: float, taken: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    measured = {"whole": 1.0, "pieces": pieces}
    monkeypatch.setattr(autotune_splits, "fastest_times", lambda *_, **__: measured)
    assert split_is_faster(16, 16, 512, 2) == taken


def test_nothing_is_measured_with_one_thread_or_fixed_forms(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(autotune_splits, "fastest_times", lambda *_, **__: pytest.fail("measured"))
    assert not split_is_faster(16, 16, 512, 1)
    with fixed(bfloat16="fused"):
        assert not split_is_faster(16, 16, 512, 2)


@pytest.mark.parametrize(
    ("outputs", "inputs", "dtype", "flag", "may"),
    [
        (768, 768, torch.bfloat16, "amx_bf16", True),
        (768, 3072, torch.bfloat16, "amx_bf16", True),
        (768, 768, torch.bfloat16, "avx512_bf16", False),
        (768, 768, torch.float32, "amx_bf16", False),
        (3072, 768, torch.bfloat16, "amx_bf16", False),
        (256, 1024, torch.bfloat16, "amx_bf16", False),
    ],
)
def test_which_products_may_gain(
    outputs: int, inputs: int, dtype: torch.dtype, flag: str, may: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(autotune_splits, "cpu_flags", lambda: frozenset({flag}))
    weight = torch.empty(outputs, inputs, dtype=dtype)
    assert isinstance(with_row_splits(FusedLinear(weight, weight[:, 0])), RowSplitLinear) == may
    assert not isinstance(with_row_splits(PlainLinear(weight, weight[:, 0])), RowSplitLinear)
