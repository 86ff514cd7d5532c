"""Autotuning: which linear kernel is correct and fast on this CPU, by measurement.

The kernels of `fused_linear.py` and `int8.py` are not public: one call is a fast kernel on one CPU, a scalar
loop on another and wrong on a third. So at the first product of a kind in a process all candidates are
compared with plain operations and timed on a small product, some tenths of a second. `choices` returns the
result.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache, partial
from math import inf
from typing import NamedTuple, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

import albertine.model.backend.int8 as int8
from albertine.core.precision import ComputeFormat, compute_format
from albertine.errors import SettingsError
from albertine.model.backend.fused_linear import KERNELS, MANY, FusedLinear, activate_and_add

LinearInputs = tuple[Tensor, Tensor, Tensor, Tensor]
"""Weight, bias, rows, residual."""

PLAIN, BASELINE = "plain", ""

SMALL, WIDTH = (48, 256, 192), 768
"""Rows, inputs and outputs of the first product; width of the timed product."""

ROWS: dict[str, tuple[int, str | None]] = {
    "float32": (64, "gelu"),
    "bfloat16": (64, "gelu"),
    "int8": (256, None),
}
"""Timed rows, and the activation. The gain of int8 grows with the rows, because the calls around its product
dominate: at 64 rows it is even where whole layers are faster."""

ATTEMPTS = 3
"""Attempts before a candidate is rejected for its time, which on a busy machine may be due to another
program."""

MAX_SLOWDOWN = 20
"""Early stop: slowdown of the small product over plain operations at which a candidate is rejected. With AVX2
alone fast int8 kernels take 3 times as long, by the calls around them, and a scalar loop 26 times or more,
seconds for larger products. With a smaller product fast kernels came near this limit (docs/experiments)."""

BETTER, WORSE = 0.8, 1.1
"""A candidate replaces an earlier one below BETTER times its time, and plain operations, which are neither
fused nor tuned for few rows, below WORSE times theirs. Noise should not decide between equals, because they
round differently."""

CLEARLY = 0.9
"""With AVX2 alone oneDNN replaces torch for many rows below this part of its time: it needs 1.1 on one CPU
and .85 on another, and the last bits of a result should not change between processes."""

LARGEST, SMALLEST = 1024, 1 << 16
"""Maximum inputs and outputs of a timed int8 product; minimum number of weights: the time of smaller products
is noise, and int8 is used as requested."""

REPORTED_SIZES = ((256, 256), (256, 1024), (1024, 256), (768, 768), (768, 1024), (1024, 768))
"""Inputs and outputs of common encoders, for which `choices` reports whether int8 is faster."""

TOLERANCE = {"float32": 1e-5, "bfloat16": 0.02, "int8": 0.05}
"""Maximum difference from plain operations in float32, relative to the largest value of each row: relative to
all rows, a row of large values would hide errors in the others."""

_log = logging.getLogger(__name__)


class LinearLayer(Protocol):
    """Interface of a linear layer for inference."""

    def __call__(self, x_TI: Tensor, activation: str | None = None, residual: Tensor | None = None) -> Tensor:
        """Rows (T, in) to (T, out): through an activation, and then added to a residual (T, out)."""


class Candidate(NamedTuple):
    """A kernel for one kind of product.

    Attributes:
        form: its name. kernel: the torch operation.
        make: (float32 weight (out, in), bias (out,), dtype of the results) → layer.
    """

    form: str
    kernel: str
    make: Callable[[Tensor, Tensor, torch.dtype], LinearLayer]


class KernelChoice(NamedTuple):
    """The kernel chosen for a kind of product.

    Attributes:
        kind: "float32", "bfloat16" or "int8".
        form: name of the candidate. kernel: its torch operation. seconds: its time. plain: the time of the
            operations it replaces. Both 0 if nothing was measured.
        refused: the `REPORTED_SIZES` at which int8 is not faster, so that products stay in the activations'
            dtype.
    """

    kind: str
    form: str
    kernel: str
    seconds: float = 0.0
    plain: float = 0.0
    refused: tuple[tuple[int, int], ...] = ()


class PlainLinear:
    """A linear layer in plain operations."""

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        self.weight, self.bias = weight, bias

    def __call__(self, x_TI: Tensor, activation: str | None = None, residual: Tensor | None = None) -> Tensor:
        return activate_and_add(F.linear(x_TI, self.weight, self.bias), activation, residual)


def _plain(weight: Tensor, bias: Tensor, dtype: torch.dtype) -> LinearLayer:
    return PlainLinear(weight.to(dtype), bias.to(dtype))


def _fused(weight: Tensor, bias: Tensor, dtype: torch.dtype) -> LinearLayer:
    return FusedLinear(weight.to(dtype), bias.to(dtype))


def _narrow(weight: Tensor, bias: Tensor, dtype: torch.dtype) -> LinearLayer:
    many = "float32" not in _fixed and onednn_gains_with_many_rows()
    return FusedLinear(weight.to(dtype), bias.to(dtype), narrow=True, many=many)


def _int8(form: int8.Int8Form) -> Callable[[Tensor, Tensor, torch.dtype], LinearLayer]:
    return lambda weight, bias, dtype: int8.Int8Linear(weight, bias, dtype, form)


_FUSED = Candidate("fused", "mkldnn._linear_pointwise", _fused)
_NARROW = Candidate("fused, activation apart", _FUSED.kernel, _narrow)
_UNSIGNED = Candidate("unsigned", "onednn.qlinear_pointwise", _int8(int8.unsigned))
_SIGNED = Candidate("signed", "onednn.qlinear_pointwise", _int8(int8.signed))
_SUMS = Candidate("32-bit sums", "aten._int_mm", _int8(int8.plain_integers))
_WIDE = torch.backends.cpu.get_cpu_capability() == "AVX512"

CANDIDATES: dict[str, tuple[Candidate, ...]] = {
    "float32": (_FUSED, _NARROW) if _WIDE else (_NARROW, _FUSED),
    "bfloat16": (_FUSED,),
    "int8": (_UNSIGNED, _SIGNED, _SUMS) if _WIDE else (_SUMS, _UNSIGNED, _SIGNED),
}
"""By kind, the likeliest first: the gain of AVX2 alone (`fused_linear.py`) shows only with more rows than are
timed."""

_chosen: dict[tuple[str, torch.dtype], tuple[Candidate, KernelChoice]] = {}
_fixed: dict[str, str] = {}
_lock = threading.RLock()


def inference_linear(weight: Tensor, bias: Tensor, form: ComputeFormat) -> LinearLayer:
    """A linear layer for inference by the fastest kernel of this CPU.

    Args:
        weight: (out, in), float32. bias: (out,).
        form: the dtype of rows and results, and whether to multiply 8-bit integers. Where int8 is not faster,
            on this CPU or for so few outputs, the product stays in `form.dtype`.

    Raises:
        SettingsError: int8 on a device other than a CPU.
    """
    dtype = form.dtype
    if weight.device.type != "cpu":
        if form.int8:
            raise SettingsError("int8 is for processors", remedy="Use precision auto or bfloat16")
        return _plain(weight, bias, dtype)
    outputs, inputs = weight.shape
    rounds = form.int8 and (
        "int8" in _fixed
        or inputs * outputs < SMALLEST
        or int8_gains(min(inputs, LARGEST), min(outputs, LARGEST), dtype)
    )
    return _choose("int8" if rounds else _name(dtype), dtype)[0].make(weight, bias, dtype)


def choices() -> list[KernelChoice]:
    """The kernel of each kind of product on this CPU; int8 with its dtype here."""
    dtype = compute_format("int8", torch.empty(0, device="cpu")).dtype
    kinds = [("float32", torch.float32), ("bfloat16", torch.bfloat16), ("int8", dtype)]
    *found, int8s = [_choose(*each)[1] for each in kinds]
    if "int8" in _fixed or _same(dtype):
        return [*found, int8s]
    refused = (size for size in REPORTED_SIZES if int8_share(*size, dtype) > WORSE)
    return [*found, int8s._replace(refused=tuple(refused))]


@contextmanager
def fixed(**forms: str) -> Iterator[None]:
    """Context in which these forms are used, by kind, without measuring; "plain" is one too. For tests."""
    before = dict(_fixed)
    _fixed.update(forms)
    try:
        yield
    finally:
        _fixed.clear()
        _fixed.update(before)


def fixed_form(kind: str) -> str | None:
    """The form set by `fixed` for a kind, if any."""
    return _fixed.get(kind)


def reset() -> None:
    """Measure again at the next use. For tests."""
    _chosen.clear()
    int8_gains.cache_clear()
    int8_share.cache_clear()
    onednn_gains_with_many_rows.cache_clear()


@cache
def int8_gains(inputs: int, outputs: int, dtype: torch.dtype) -> bool:
    """Whether a product of that size is faster in int8 than in `dtype`; if not, it is logged. With few
    outputs, rounding the rows takes longer than it saves.

    Slightly slower counts as faster: many rows gain more, and noise should not decide what is rounded.
    """
    if _same(dtype):
        return False
    share = int8_share(inputs, outputs, dtype)
    if share > WORSE:
        message = (
            "products in int8 of %d numbers to %d are computed in %s here: int8 takes %.1f times as long"
        )
        _log.warning(message, inputs, outputs, _name(dtype), share)
    return share <= WORSE


def _same(dtype: torch.dtype) -> bool:
    """Whether int8 was rejected for every size."""
    return _choose(_name(dtype), dtype)[0] is _choose("int8", dtype)[0]


@cache
def int8_share(inputs: int, outputs: int, dtype: torch.dtype) -> float:
    """Time of a product of that size in int8 relative to `dtype`."""
    forms = [_choose(kind, dtype)[0] for kind in (_name(dtype), "int8")]
    weight = torch.full((outputs, inputs), 0.5, dtype=torch.float32, device="cpu")
    x = torch.full((ROWS["int8"][0], inputs), 0.5, dtype=dtype, device="cpu")
    with torch.inference_mode():
        layers = [form.make(weight, weight[:, 0], dtype) for form in forms]
        ways = {name: partial(layer, x) for name, layer in zip(("float", "int8"), layers, strict=True)}
        times = fastest_times(ways, lambda t: t["int8"] <= WORSE * t["float"], rounds=2)
    return times["int8"] / times["float"]


@cache
def onednn_gains_with_many_rows() -> bool:
    """Whether with AVX2 alone oneDNN multiplies many rows clearly faster than torch, whose library (MKL)
    depends on the vendor of the CPU."""
    weight, bias, x, _ = _sample_inputs((2 * MANY, WIDTH, WIDTH), torch.float32)
    with torch.inference_mode():
        laid_out = FusedLinear(weight, bias)
        ways = {"torch": partial(F.linear, x, weight, bias), "onednn": partial(laid_out, x)}
        times = fastest_times(ways, lambda t: t["onednn"] <= CLEARLY * t["torch"])
    return times["onednn"] <= CLEARLY * times["torch"]


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _choose(kind: str, dtype: torch.dtype) -> tuple[Candidate, KernelChoice]:
    if kind in _fixed:
        ways = *CANDIDATES[kind], Candidate(PLAIN, PLAIN, _plain)
        way = next(each for each in ways if each.form == _fixed[kind])
        return way, KernelChoice(kind, way.form, way.kernel)
    with _lock:
        if (kind, dtype) not in _chosen:
            _chosen[kind, dtype] = _measured(kind, dtype)
        return _chosen[kind, dtype]


def _measured(kind: str, dtype: torch.dtype) -> tuple[Candidate, KernelChoice]:
    """The best candidate; without one, the kernel it would have replaced, and a log message."""
    rows, activation = ROWS[kind]
    usual = _choose(_name(dtype), dtype)[0] if kind == "int8" else Candidate(PLAIN, PLAIN, _plain)
    with torch.inference_mode():
        small, large = _sample_inputs(SMALL, dtype), _sample_inputs((rows, WIDTH, WIDTH), dtype)
        tried = {
            way.form: _check_candidate(way, usual, small, large, kind, dtype) for way in CANDIDATES[kind]
        }
        layers = {form: layer for form, layer in tried.items() if not isinstance(layer, str)}
        layers[BASELINE] = usual.make(*large[:2], dtype)
        ways = {name: partial(layer, large[2], activation) for name, layer in layers.items()}
        times = fastest_times(ways, lambda t: min(t, key=t.__getitem__) != BASELINE)
    plain = times.pop(BASELINE)
    best = None
    for way in CANDIDATES[kind]:
        if way.form in times and (best is None or times[way.form] < BETTER * times[best.form]):
            best = way
    if best and times[best.form] <= WORSE * plain:
        return best, KernelChoice(kind, best.form, best.kernel, times[best.form], plain)
    faults = tried | {form: f"{seconds / plain:.1f} times as long" for form, seconds in times.items()}
    reasons = "; ".join(f"{form}: {fault}" for form, fault in faults.items())
    instead = _name(dtype) if kind == "int8" else "plain operations"
    # A kernel as fast as plain operations, as with AVX2 alone, is no reason for a warning at every start.
    level = logging.INFO if kind != "int8" and len(times) == len(faults) else logging.WARNING
    _log.log(
        level,
        "products in %s are computed in %s here, for want of a fast kernel (%s)",
        kind,
        instead,
        reasons,
    )
    return usual, KernelChoice(kind, usual.form, usual.kernel, plain, plain)


def _check_candidate(
    way: Candidate, usual: Candidate, small: LinearInputs, large: LinearInputs, kind: str, dtype: torch.dtype
) -> LinearLayer | str:
    """A candidate's layer for the large product, or the reason for its rejection."""
    weight, bias, x, _ = small
    try:
        layer, other = way.make(weight, bias, dtype), usual.make(weight, bias, dtype)
        layer(x), other(x)  # which prepacks weights and compiles
        # A single time of the baseline, measured beside a busy program, would accept a scalar loop.
        usually = fastest_times({"usual": partial(other, x)}, lambda _: True, rounds=16)["usual"]
        new = fastest_times(
            {"new": partial(layer, x)}, lambda t: t["new"] <= MAX_SLOWDOWN * usually, rounds=1
        )
        if (ratio := new["new"] / usually) > MAX_SLOWDOWN:
            return f"{ratio:.0f} times as long"
        every = (None, False), (None, True), *((name, False) for name in KERNELS)
        if not _is_correct(layer, small, kind, every):
            return "wrong"
        layer = way.make(*large[:2], dtype)
        return layer if _is_correct(layer, large, kind, [(ROWS[kind][1], False)]) else "wrong"
    except (RuntimeError, AttributeError, TypeError) as error:
        return f"not there: {str(error).splitlines()[0] if str(error) else type(error).__name__}"


def _is_correct(
    layer: LinearLayer, given: LinearInputs, kind: str, after: Iterable[tuple[str | None, bool]]
) -> bool:
    """Whether it equals plain operations in float32, and leaves its arguments unchanged.

    Args:
        after: activations after the product, each with whether a residual is added.
    """
    weight, bias, x, residual = (each.to(torch.float32, copy=True) for each in given)
    exact = PlainLinear(weight, bias)
    for activation, adds in after:
        found = layer(given[2], activation, given[3] if adds else None).float()
        right = exact(x, activation, residual if adds else None)
        if not bool(((found - right).abs().amax(1) <= TOLERANCE[kind] * right.abs().amax(1)).all()):
            return False
    return torch.equal(given[2].float(), x) and torch.equal(given[3].float(), residual)


def _sample_inputs(sizes: tuple[int, int, int], dtype: torch.dtype) -> LinearInputs:
    """Weights and bias in float32, exact in `dtype`; rows and residual in `dtype`. One row is 500 times
    larger, so that an 8-bit scale shared by all rows would round the others to 0."""
    rows, inputs, outputs = sizes
    shapes = (outputs, inputs), (rows, inputs), (rows, outputs)
    weight, x, residual = (
        torch.arange(1, a * b + 1, dtype=torch.float32, device="cpu")
        .mul_(12.9898)
        .sin_()
        .view(a, b)
        .to(dtype)
        for a, b in shapes
    )
    x[rows // 2] *= 500
    return weight.float(), weight[:, 0].float(), x, residual


def fastest_times(
    ways: Mapping[str, Callable[[], object]], enough: Callable[[Mapping[str, float]], bool], rounds: int = 3
) -> dict[str, float]:
    """The least seconds of every candidate, timed in turn, each after a warm-up, because the one before left
    its data in the caches.

    Args:
        enough: predicate of the times so far; until it holds everything is timed again, up to `ATTEMPTS`
            times.
    """
    best = dict.fromkeys(ways, inf)
    for _ in range(ATTEMPTS):
        for name, run in [*ways.items()] * rounds:
            run()
            start = time.perf_counter()
            run()
            best[name] = min(best[name], time.perf_counter() - start)
        if enough(best):
            break
    return best
