"""A matrix kernel is chosen if it is correct and fast on this machine; otherwise one log line names the
fallback."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from albertine.core.precision import ComputeFormat
from albertine.errors import SettingsError
from albertine.model.backend import autotune, int8
from albertine.model.backend.autotune import Candidate, PlainLinear, choices, fixed, inference_linear
from albertine.model.backend.base import PLAIN
from albertine.model.backend.int8 import Int8Linear

FLOAT, INT8 = ComputeFormat(torch.float32), ComputeFormat(torch.float32, int8=True)
Make = Callable[[Tensor, Tensor, torch.dtype], autotune.LinearLayer]


@pytest.fixture(autouse=True)
def nothing_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(autotune, "_chosen", {})
    monkeypatch.setattr(autotune, "WIDTH", 96)
    autotune.int8_gains.cache_clear()
    autotune.int8_share.cache_clear()
    autotune.onednn_gains_with_many_rows.cache_clear()


@pytest.fixture
def one_thread() -> None:
    """For wall-clock times: threads of several processes that wait for each other take any time."""
    torch.set_num_threads(1)


class Altered(PlainLinear):
    """Plain operations with an error."""

    calls = 0

    def __init__(self, weight: Tensor, bias: Tensor, fault: Callable[[Tensor], Tensor]) -> None:
        super().__init__(weight, bias)
        self.fault = fault

    def __call__(self, x_TI: Tensor, activation: str | None = None, residual: Tensor | None = None) -> Tensor:
        Altered.calls += 1
        return self.fault(super().__call__(x_TI, activation, residual))


def candidate(name: str, fault: Callable[[Tensor], Tensor] = lambda y: y) -> Candidate:
    return Candidate(
        name, "test", lambda weight, bias, dtype: Altered(weight.to(dtype), bias.to(dtype), fault)
    )


def slowly(y: Tensor) -> Tensor:
    begin = time.process_time()  # busily: after a sleep on a busy machine the next one is slow, too
    while time.process_time() < begin + 0.02:
        pass
    return y


def broken(y: Tensor) -> Tensor:
    raise RuntimeError("no such kernel\nwith a second line")


def timed(monkeypatch: pytest.MonkeyPatch, **seconds: float) -> None:
    """Layers take these times; others, and small products, take a second."""

    def times(ways: Mapping[str, object], *_: object, **__: object) -> dict[str, float]:
        return {name: seconds.get(name, 1.0) for name in ways}

    monkeypatch.setattr(autotune, "fastest_times", times)


def offered(monkeypatch: pytest.MonkeyPatch, kind: str, *ways: Candidate) -> None:
    monkeypatch.setitem(autotune.CANDIDATES, kind, ways)


@pytest.mark.parametrize("kind", ["float32", "int8"])
@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (slowly, "times as long"),
        (broken, "not there: no such kernel)"),
        (lambda y: y * 1.2, "wrong"),
        (lambda y: y.clamp(max=y.max() * 0.8), "wrong"),
        (lambda y: y * float("nan"), "wrong"),
    ],
)
def test_slow_missing_and_wrong_ways_are_not_taken(
    kind: str,
    fault: Callable[[Tensor], Tensor],
    reason: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    offered(monkeypatch, "float32", candidate("quick"))
    timed(monkeypatch, quick=0.5)
    if kind == "int8":
        autotune._choose("float32", torch.float32)
    timed(monkeypatch, new=100.0 if fault is slowly else 1.0)
    offered(monkeypatch, kind, candidate("faulty", fault))
    with caplog.at_level(logging.WARNING):
        form = INT8 if kind == "int8" else FLOAT
        layer = inference_linear(torch.ones(8, 4), torch.zeros(8), form)
        inference_linear(torch.ones(8, 4), torch.zeros(8), form)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    line = caplog.records[0].getMessage()
    assert kind in line and f"faulty: {reason}" in line.replace("100 times", "times") and "\n" not in line
    assert torch.equal(layer(torch.ones(3, 4)), torch.full((3, 8), 4.0))


@pytest.mark.usefixtures("one_thread")
def test_a_hopelessly_slow_way_gets_a_few_small_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the real clock. A product as large as the timed ones would take such a kernel seconds."""
    seen: list[int] = []

    def dragging(y: Tensor) -> Tensor:
        seen.append(len(y))
        return slowly(y)

    offered(monkeypatch, "float32", candidate("dragging", dragging))
    assert autotune._choose("float32", torch.float32)[1].form == "plain"
    assert len(seen) <= 8 and set(seen) == {autotune.SMALL[0]}


@pytest.mark.usefixtures("one_thread")
def test_calls_around_a_quick_product_are_not_hopeless() -> None:
    """With the real clock. Operations around a product of int8 take about as long."""

    def called(y: Tensor) -> Tensor:
        begin = time.perf_counter()
        while time.perf_counter() < begin + 2e-4:
            pass
        return y

    usual, large = candidate("usual"), autotune._sample_inputs((8, 16, 16), torch.float32)
    small = autotune._sample_inputs(autotune.SMALL, torch.float32)
    found = autotune._check_candidate(
        candidate("called", called), usual, small, large, "float32", torch.float32
    )
    assert not isinstance(found, str)


@pytest.mark.usefixtures("one_thread")
def test_a_slow_baseline_sample_passes_no_slow_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the real clock: the first calls of the default kernel take as long as a loop of scalars."""
    calls: list[int] = []

    def held_up(y: Tensor) -> Tensor:
        calls.append(len(y))
        return slowly(y) if len(calls) <= 4 else y

    usual = candidate("held up", held_up)
    dragging = autotune._check_candidate(
        candidate("dragging", slowly),
        usual,
        autotune._sample_inputs(autotune.SMALL, torch.float32),
        autotune._sample_inputs(autotune.SMALL, torch.float32),
        "float32",
        torch.float32,
    )
    assert isinstance(dragging, str) and "times as long" in dragging


def test_only_wrong_for_large_products(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    offered(monkeypatch, "float32", candidate("odd", lambda y: y if len(y) == autotune.SMALL[0] else y * 2))
    assert autotune._choose("float32", torch.float32)[1].form == "plain"
    assert "odd: wrong" in caplog.text


@pytest.mark.parametrize("kind", ["float32", "bfloat16", "int8"])
@pytest.mark.parametrize("factor", [0.0, 0.5, 1.2, 2.0, -1.0])
def test_a_way_that_is_right_for_the_largest_row_alone_is_wrong(
    kind: str, factor: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    def others(y: Tensor) -> Tensor:
        largest = y.abs().amax(1).argmax()
        return torch.where(torch.arange(len(y))[:, None] == largest, y, y * factor)

    dtype = torch.float32 if kind == "float32" else torch.bfloat16
    small, large = (autotune._sample_inputs(sizes, dtype) for sizes in (autotune.SMALL, (64, 96, 96)))
    timed(monkeypatch)
    usual, partial = candidate("usual"), candidate("partial", others)
    assert not isinstance(autotune._check_candidate(usual, usual, small, large, kind, dtype), str)
    assert autotune._check_candidate(partial, usual, small, large, kind, dtype) == "wrong"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_int8_with_one_step_for_all_rows_is_wrong(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    def rounded_alike(x_RI: Tensor) -> tuple[Tensor, Tensor]:
        step = x_RI.float().abs().max() / 127
        return (x_RI.float() / step).round().to(torch.int8), step.repeat(len(x_RI), 1)

    small, large = (autotune._sample_inputs(sizes, dtype) for sizes in (autotune.SMALL, (64, 96, 96)))
    usual = candidate("usual")
    timed(monkeypatch)
    assert not isinstance(autotune._check_candidate(autotune._SUMS, usual, small, large, "int8", dtype), str)
    monkeypatch.setattr(int8, "rounded", rounded_alike)
    assert autotune._check_candidate(autotune._SUMS, usual, small, large, "int8", dtype) == "wrong"


def test_a_way_that_changes_its_arguments_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    class Spoils(PlainLinear):
        def __call__(
            self, x_TI: Tensor, activation: str | None = None, residual: Tensor | None = None
        ) -> Tensor:
            y = super().__call__(x_TI, activation, residual)
            if residual is not None:
                residual.add_(1)
            return y

    offered(monkeypatch, "float32", Candidate("spoils", "test", lambda w, b, dtype: Spoils(w, b)))
    assert autotune._choose("float32", torch.float32)[1].form == "plain"


@pytest.mark.parametrize(
    ("first", "second", "form"),
    [
        (0.5, 0.3, "second"),
        (0.5, 0.41, "first"),  # as good: the likeliest stays
        (1.05, 2.0, "first"),
        (1.05, 0.8, "second"),
        (1.2, 1.3, "plain"),
        (1.2, 0.3, "second"),
    ],
)
def test_the_fastest_is_taken(
    first: float, second: float, form: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    offered(monkeypatch, "float32", candidate("first"), candidate("second"))
    timed(monkeypatch, first=first, second=second)
    caplog.set_level(logging.INFO)
    choice = autotune._choose("float32", torch.float32)[1]
    assert choice.form == form and choice.plain == 1.0
    assert choice.seconds == {"first": first, "second": second, "plain": 1.0}[form]
    # As fast as plain operations is no fault, and not reported by every command.
    assert [record.levelname for record in caplog.records] == ["INFO"] * (form == "plain")


def test_the_slower_one_is_timed_again() -> None:
    """On a busy machine the first times may be those of another program."""
    pauses = iter([0, 0.02, 0, 0.02, 0, 0, 0, 0.02])  # the second run of each pair is the one that counts
    runs: list[str] = []

    def held() -> None:
        runs.append("held")
        time.sleep(next(pauses))

    found = autotune.fastest_times(
        {"usual": lambda: time.sleep(0.005), "held": held}, lambda t: t["held"] < t["usual"], 2
    )
    assert found["held"] < 0.005 <= found["usual"] and len(runs) == 8
    runs.clear()
    pauses = iter([0.01] * 99)
    autotune.fastest_times({"usual": lambda: None, "held": held}, lambda t: t["held"] < t["usual"], 1)
    assert len(runs) == 2 * autotune.ATTEMPTS


def test_int8_falls_back_to_what_is_best_in_float(monkeypatch: pytest.MonkeyPatch) -> None:
    offered(monkeypatch, "float32", candidate("quick"))
    offered(monkeypatch, "int8", candidate("rough"))
    timed(monkeypatch, quick=0.5, rough=2.0)
    assert autotune._choose("int8", torch.float32)[1].form == "quick"
    assert not autotune.int8_gains(512, 512, torch.float32)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_products_that_gain_nothing_stay_in_float(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A log line reports it once per size."""
    with fixed(int8="unsigned"):
        entry = autotune._choose("int8", dtype)
    with fixed(**{autotune._name(dtype): "plain"}):
        usual = autotune._choose(autotune._name(dtype), dtype)
    monkeypatch.setattr(autotune, "_chosen", {("int8", dtype): entry, (autotune._name(dtype), dtype): usual})
    form = ComputeFormat(dtype, int8=True)
    for inputs, outputs, rounding, rounds in (
        (256, 256, 2.0, False),
        (256, 512, 0.5, True),
        (64, 64, 2.0, True),
    ):
        timed(monkeypatch, int8=rounding)
        for _ in range(2):
            layer = inference_linear(torch.ones(outputs, inputs), torch.ones(outputs), form)
            assert isinstance(layer, Int8Linear) == rounds, (inputs, outputs)
        assert layer(torch.ones(2, inputs, dtype=dtype)).dtype == dtype
    assert [record.getMessage() for record in caplog.records] == [
        f"products in int8 of 256 numbers to 256 are computed in {autotune._name(dtype)} here: int8 takes "
        "2.0 times as long"
    ]


def test_sizes_that_gain_nothing_are_reported(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """In `choices`, which measures them itself; not logged at every start."""
    offered(monkeypatch, "float32", candidate("quick"))
    offered(monkeypatch, "bfloat16", candidate("quick"))
    offered(monkeypatch, "int8", candidate("rough"))
    monkeypatch.setattr(autotune, "REPORTED_SIZES", ((256, 256), (256, 512)))
    timed(monkeypatch, quick=0.5, rough=0.5)
    choices()
    shares = {(256, 256): 1.2, (256, 512): 1.05}
    monkeypatch.setattr(autotune, "int8_share", lambda inputs, outputs, _: shares[inputs, outputs])
    assert [choice.refused for choice in choices()] == [(), (), ((256, 256),)]
    assert not caplog.records


@pytest.mark.parametrize(("onednn", "many"), [(1.1, False), (0.95, False), (0.85, True)])
def test_many_rows_with_avx2_use_the_clearly_faster_kernel(
    onednn: float, many: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    timed(monkeypatch, torch=1.0, onednn=onednn)
    weight = torch.zeros(400, 400)
    layer = autotune._narrow(weight, weight[0], torch.float32)
    assert isinstance(layer, autotune.FusedLinear)
    assert layer._without_layout(200) != many and not layer._without_layout(100)
    with fixed(float32=autotune._NARROW.form):  # where nothing is measured it is torch
        assert autotune._narrow(weight, weight[0], torch.float32)._without_layout(200)  # type: ignore[attr-defined]


def test_fixed_forms_are_taken_without_measuring(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(autotune, "fastest_times", lambda *_, **__: pytest.fail("measured"))
    weight, bias = torch.ones(400, 300), torch.zeros(400)
    with fixed(int8="signed"):
        assert inference_linear(weight[:8], bias[:8], INT8).form is int8.signed
    with fixed(int8="32-bit sums", float32="plain", bfloat16="plain"):
        with fixed(int8="unsigned"):
            assert inference_linear(weight, bias, INT8).form is int8.unsigned
        assert inference_linear(weight, bias, INT8).form is int8.plain_integers
        assert isinstance(inference_linear(weight, bias, FLOAT), PlainLinear)
        assert [choice.form for choice in choices()] == ["plain", "plain", "32-bit sums"]
    assert not autotune._fixed


def test_choices_of_this_machine() -> None:
    found = choices()
    assert [choice.kind for choice in found] == ["float32", "bfloat16", "int8"]
    assert all(0 < choice.seconds <= autotune.WORSE * choice.plain for choice in found)
    assert choices() == found  # once in a process


@pytest.mark.parametrize(
    "form", [FLOAT, ComputeFormat(torch.bfloat16), INT8, ComputeFormat(torch.bfloat16, int8=True)]
)
@torch.inference_mode()
def test_what_is_prepared_is_right(form: ComputeFormat) -> None:
    generator = torch.Generator().manual_seed(0)
    weight, x, residual = (torch.randn(s, generator=generator) for s in ((80, 48), (20, 48), (20, 80)))
    bias, rows = weight[:, 0], (x.to(form.dtype), residual.to(form.dtype))
    layer = inference_linear(weight, bias, form)
    exact = PLAIN.activate(F.linear(x, weight, bias), "gelu") + residual
    found = layer(rows[0], "gelu", rows[1])
    bound = 0.03 if form != FLOAT else 1e-5
    assert found.dtype == form.dtype
    assert (found.float() - exact).abs().max() < bound * exact.abs().max()


def test_elsewhere_than_on_a_processor() -> None:
    weight = torch.ones(4, 4, device="meta")
    assert isinstance(inference_linear(weight, weight[0], FLOAT), PlainLinear)
    with pytest.raises(SettingsError, match="int8 is for processors"):
        inference_linear(weight, weight[0], INT8)
