"""Which way of multiplying is right and fast on this processor: tried out, not looked up.

The kernels behind `fused.py` and `int8.py` are not public, and the same call is a fast kernel on one
processor, a loop of scalars on the next and wrong on a third. So once in a process, when a kind of product is
first asked for, every way to compute it is compared with the plain operations and timed on a small product;
that takes some tenths of a second. `choices` tells what came of it.
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
from albertine.model.backend.fused_linear import KERNELS, MANY, FusedLinear, followed

Given = tuple[Tensor, Tensor, Tensor, Tensor]
"""Weight, bias, rows, residual."""

PLAIN, USUAL = "plain", ""

SMALL, WIDTH = (48, 256, 192), 768
"""Rows, inputs and outputs that are tried first; both widths that are timed."""

ROWS: dict[str, tuple[int, str | None]] = {
    "float32": (64, "gelu"),
    "bfloat16": (64, "gelu"),
    "int8": (256, None),
}
"""Rows that are timed, and what follows the product. What int8 gains over bfloat16 grows with the rows, as of
the passes around its product the calls cost most: with 64 rows it is even where whole layers are faster."""

ATTEMPTS = 3
"""How often a way is timed before it is refused: on a busy machine a time may be that of another program."""

HOPELESS = 20
"""How many times slower than plain operations the first, small product may be. With AVX2 alone int8's fast
kernels take 3 times as long there, by the calls around them, and a loop of scalars 26 times or more: for
larger products that would be seconds. With a still smaller product fast kernels came near this limit, and on
a busy machine over it (docs/experiments)."""

BETTER, WORSE = 0.8, 1.1
"""A way takes over from one before it if it needs less than this part of its time; and from plain operations,
which are not fused and not tuned for few rows, if it needs less than this part of theirs. Between equal ways
noise should not decide: they round differently."""

CLEARLY = 0.9
"""Part of torch's time that oneDNN may need for many rows with AVX2 alone, to take them over: it needs 1.1 on
one such processor and .85 on another, and an answer's last bits should not change from start to start."""

LARGEST, SMALLEST = 1024, 1 << 16
"""Inputs and outputs up to which a product is timed to see whether int8 gains there; number of weights below
which the time says nothing, and int8 is taken because it was asked for."""

TOLD = ((256, 256), (256, 1024), (1024, 256), (768, 768), (768, 1024), (1024, 768))
"""Inputs and outputs of the products of usual encoders, of which `choices` tells whether int8 gains there."""

TOLERANCE = {"float32": 1e-5, "bfloat16": 0.02, "int8": 0.05}
"""Differences from plain operations in float32, as part of the largest value, here of each row: beside a row
of large values nothing would be seen of what is wrong in the others."""

_log = logging.getLogger(__name__)


class LinearLayer(Protocol):
    """A linear layer of inference."""

    def __call__(self, x_TI: Tensor, activation: str | None = None, residual: Tensor | None = None) -> Tensor:
        """Rows (T, in) to (T, out): through an activation, and then added to a residual (T, out)."""


class Candidate(NamedTuple):
    """A way to compute one kind of product.

    Attributes:
        form: its name.
        kernel: the operation of torch it stands on.
        make: a layer of float32 weights (out, in) and a bias (out,), whose results have some dtype.
    """

    form: str
    kernel: str
    make: Callable[[Tensor, Tensor, torch.dtype], LinearLayer]


class KernelChoice(NamedTuple):
    """What was chosen for a kind of product.

    Attributes:
        kind: "float32", "bfloat16" or "int8".
        form: name of the candidate. kernel: the operation of torch it stands on.
        seconds: that it took. plain: that the operations it replaces took. Both 0 if nothing was measured.
        refused: of `TOLD` the sizes at which int8 gains nothing, so that they stay in the activations' dtype.
    """

    kind: str
    form: str
    kernel: str
    seconds: float = 0.0
    plain: float = 0.0
    refused: tuple[tuple[int, int], ...] = ()


class PlainLinear:
    """The same with torch's ordinary operations."""

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        self.weight, self.bias = weight, bias

    def __call__(self, x_TI: Tensor, activation: str | None = None, residual: Tensor | None = None) -> Tensor:
        return followed(F.linear(x_TI, self.weight, self.bias), activation, residual)


def _plain(weight: Tensor, bias: Tensor, dtype: torch.dtype) -> LinearLayer:
    return PlainLinear(weight.to(dtype), bias.to(dtype))


def _fused(weight: Tensor, bias: Tensor, dtype: torch.dtype) -> LinearLayer:
    return FusedLinear(weight.to(dtype), bias.to(dtype))


def _narrow(weight: Tensor, bias: Tensor, dtype: torch.dtype) -> LinearLayer:
    many = "float32" not in _fixed and many_rows_gain()
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
"""By kind, the likeliest first: what AVX2 alone gains (`fused.py`) shows with more rows than are timed."""

_chosen: dict[tuple[str, torch.dtype], tuple[Candidate, KernelChoice]] = {}
_fixed: dict[str, str] = {}
_lock = threading.RLock()


def prepared(weight: Tensor, bias: Tensor, form: ComputeFormat) -> LinearLayer:
    """A linear layer of inference, computed in the way that is best here.

    Args:
        weight: (out, in), float32. bias: (out,).
        form: the dtype of rows and results, and whether 8-bit integers are multiplied. Where these gain
            nothing, on this processor or with so few outputs, the product stays in `form.dtype`.

    Raises:
        SettingsError: int8 was asked for elsewhere than on a processor.
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
        or gains(min(inputs, LARGEST), min(outputs, LARGEST), dtype)
    )
    return _choose("int8" if rounds else _name(dtype), dtype)[0].make(weight, bias, dtype)


def choices() -> list[KernelChoice]:
    """What is taken on this processor for each kind of product; of int8 with the dtype that it has here."""
    dtype = compute_format("int8", torch.empty(0, device="cpu")).dtype
    kinds = [("float32", torch.float32), ("bfloat16", torch.bfloat16), ("int8", dtype)]
    *found, int8s = [_choose(*each)[1] for each in kinds]
    if "int8" in _fixed or _same(dtype):
        return [*found, int8s]
    refused = (size for size in TOLD if int8_share(*size, dtype) > WORSE)
    return [*found, int8s._replace(refused=tuple(refused))]


@contextmanager
def fixed(**forms: str) -> Iterator[None]:
    """Within it these forms are taken, by kind, and nothing is measured; "plain" is one too. For tests."""
    before = dict(_fixed)
    _fixed.update(forms)
    try:
        yield
    finally:
        _fixed.clear()
        _fixed.update(before)


def fixed_form(kind: str) -> str | None:
    """The form that `fixed` says for a kind, if any."""
    return _fixed.get(kind)


def forget() -> None:
    """Try again at the next use. For tests."""
    _chosen.clear()
    gains.cache_clear()
    int8_share.cache_clear()
    many_rows_gain.cache_clear()


@cache
def gains(inputs: int, outputs: int, dtype: torch.dtype) -> bool:
    """Whether a product of that size is faster in int8 than in `dtype`: with few outputs, rounding the rows
    takes longer than it saves. Where it is not, a line in the log says so.

    A little slower counts as a gain: many rows at once gain more, and noise should not decide what is
    rounded.
    """
    if _same(dtype):
        return False
    share = int8_share(inputs, outputs, dtype)
    if share > WORSE:
        told = "products in int8 of %d numbers to %d are computed in %s here: int8 takes %.1f times as long"
        _log.warning(told, inputs, outputs, _name(dtype), share)
    return share <= WORSE


def _same(dtype: torch.dtype) -> bool:
    """Whether int8 was refused whatever the size, as no form of it gains."""
    return _choose(_name(dtype), dtype)[0] is _choose("int8", dtype)[0]


@cache
def int8_share(inputs: int, outputs: int, dtype: torch.dtype) -> float:
    """The time of a product of that size in int8, as part of its time in `dtype`."""
    forms = [_choose(kind, dtype)[0] for kind in (_name(dtype), "int8")]
    weight = torch.full((outputs, inputs), 0.5, dtype=torch.float32, device="cpu")
    x = torch.full((ROWS["int8"][0], inputs), 0.5, dtype=dtype, device="cpu")
    with torch.inference_mode():
        layers = [form.make(weight, weight[:, 0], dtype) for form in forms]
        ways = {name: partial(layer, x) for name, layer in zip(("float", "int8"), layers, strict=True)}
        times = least_seconds(ways, lambda t: t["int8"] <= WORSE * t["float"], rounds=2)
    return times["int8"] / times["float"]


@cache
def many_rows_gain() -> bool:
    """Whether with AVX2 alone oneDNN multiplies many rows clearly faster than torch, whose library looks at
    who made a processor."""
    weight, bias, x, _ = _given((2 * MANY, WIDTH, WIDTH), torch.float32)
    with torch.inference_mode():
        laid_out = FusedLinear(weight, bias)
        ways = {"torch": partial(F.linear, x, weight, bias), "onednn": partial(laid_out, x)}
        times = least_seconds(ways, lambda t: t["onednn"] <= CLEARLY * t["torch"])
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
    """The best candidate; without one, what it would have replaced, and a line in the log."""
    rows, activation = ROWS[kind]
    usual = _choose(_name(dtype), dtype)[0] if kind == "int8" else Candidate(PLAIN, PLAIN, _plain)
    with torch.inference_mode():
        small, large = _given(SMALL, dtype), _given((rows, WIDTH, WIDTH), dtype)
        tried = {way.form: _tried(way, usual, small, large, kind, dtype) for way in CANDIDATES[kind]}
        layers = {form: layer for form, layer in tried.items() if not isinstance(layer, str)}
        layers[USUAL] = usual.make(*large[:2], dtype)
        ways = {name: partial(layer, large[2], activation) for name, layer in layers.items()}
        times = least_seconds(ways, lambda t: min(t, key=t.__getitem__) != USUAL)
    plain = times.pop(USUAL)
    best = None
    for way in CANDIDATES[kind]:
        if way.form in times and (best is None or times[way.form] < BETTER * times[best.form]):
            best = way
    if best and times[best.form] <= WORSE * plain:
        return best, KernelChoice(kind, best.form, best.kernel, times[best.form], plain)
    faults = tried | {form: f"{seconds / plain:.1f} times as long" for form, seconds in times.items()}
    told = "; ".join(f"{form}: {fault}" for form, fault in faults.items())
    instead = _name(dtype) if kind == "int8" else "plain operations"
    # What is but as fast as plain operations, as with AVX2 alone, is nothing to be told on every start.
    level = logging.INFO if kind != "int8" and len(times) == len(faults) else logging.WARNING
    _log.log(
        level, "products in %s are computed in %s here, for want of a fast kernel (%s)", kind, instead, told
    )
    return usual, KernelChoice(kind, usual.form, usual.kernel, plain, plain)


def _tried(
    way: Candidate, usual: Candidate, small: Given, large: Given, kind: str, dtype: torch.dtype
) -> LinearLayer | str:
    """A candidate's layer of the large weights, or what is wrong with it."""
    weight, bias, x, _ = small
    try:
        layer, other = way.make(weight, bias, dtype), usual.make(weight, bias, dtype)
        layer(x), other(x)  # which lays weights out and compiles
        # One time of the usual way, taken while another program was busy, would let a loop of scalars pass.
        usually = least_seconds({"usual": partial(other, x)}, lambda _: True, rounds=16)["usual"]
        new = least_seconds({"new": partial(layer, x)}, lambda t: t["new"] <= HOPELESS * usually, rounds=1)
        if (ratio := new["new"] / usually) > HOPELESS:
            return f"{ratio:.0f} times as long"
        every = (None, False), (None, True), *((name, False) for name in KERNELS)
        if not _agrees(layer, small, kind, every):
            return "wrong"
        layer = way.make(*large[:2], dtype)
        return layer if _agrees(layer, large, kind, [(ROWS[kind][1], False)]) else "wrong"
    except (RuntimeError, AttributeError, TypeError) as error:
        return f"not there: {str(error).splitlines()[0] if str(error) else type(error).__name__}"


def _agrees(layer: LinearLayer, given: Given, kind: str, after: Iterable[tuple[str | None, bool]]) -> bool:
    """Whether it gives what plain operations in float32 give, and leaves its arguments as they were.

    Args:
        after: what follows the product: an activation, and whether the residual is added.
    """
    weight, bias, x, residual = (each.to(torch.float32, copy=True) for each in given)
    exact = PlainLinear(weight, bias)
    for activation, adds in after:
        found = layer(given[2], activation, given[3] if adds else None).float()
        right = exact(x, activation, residual if adds else None)
        if not bool(((found - right).abs().amax(1) <= TOLERANCE[kind] * right.abs().amax(1)).all()):
            return False
    return torch.equal(given[2].float(), x) and torch.equal(given[3].float(), residual)


def _given(sizes: tuple[int, int, int], dtype: torch.dtype) -> Given:
    """Weights and bias in float32, exact in `dtype`; rows and residual in it. One row reaches 500 times as
    far, so that steps of 8 bits which rows had in common would round all others to 0."""
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


def least_seconds(
    ways: Mapping[str, Callable[[], object]], enough: Callable[[Mapping[str, float]], bool], rounds: int = 3
) -> dict[str, float]:
    """The least seconds of every way, timed in turn; each runs once more before, as another way left its data
    in the caches.

    Args:
        enough: of the times so far; unless it holds, everything is timed again, `ATTEMPTS` times in all.
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
