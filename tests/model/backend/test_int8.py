"""8-bit products are integer arithmetic with a scale per row and output, and rows are independent."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from albertine.model.backend import autotune, int8
from albertine.model.backend.base import PLAIN
from albertine.model.backend.int8 import Int8Form, Int8Linear, largest_weight, piece_of, rounded

ROWS, INSIDE, OUT = 64, 96, 80
FORMS = (int8.unsigned, int8.signed, int8.plain_integers)


@pytest.fixture(params=FORMS, ids=lambda form: form.__name__)
def form(request: pytest.FixtureRequest) -> Int8Form:
    chosen: Int8Form = request.param
    try:
        largest_weight(chosen)
    except (RuntimeError, AttributeError) as error:
        pytest.skip(f"no such kernel here: {error}")
    return chosen


def tensors(rows: int = ROWS, inside: int = INSIDE, out: int = OUT) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = ((out, inside), (out,), (rows, inside), (rows, out))
    weight, bias, x, residual = (torch.randn(s, generator=generator) for s in shapes)
    return weight / inside**0.5, bias, x, residual


@torch.inference_mode()
def test_whole_number_arithmetic(form: Int8Form) -> None:
    weight, bias, x, residual = tensors()
    x[7] *= 300
    linear = Int8Linear(weight, bias, torch.float32, form)
    # Written out in float64: every output and every row has a scale of its own; products are exact integers.
    scale = weight.abs().amax(1).double() / largest_weight(form)
    step = x.abs().amax(1, keepdim=True).double() / 127
    whole = (x / step).round() @ (weight / scale[:, None]).round().T
    right = (whole * step * scale + bias).float()
    assert (right - F.linear(x, weight, bias)).abs().max() > 0
    found = {
        "alone": (linear(x), right),
        "no rows": (linear(x[:0]), right[:0]),
        "rows with gaps": (linear(x[::2]), right[::2]),
        "residual": (linear(x, None, residual), right + residual),
        **{
            n: (linear(x, n), PLAIN.activate(right, "gelu" if n == "gelu_new" else n)) for n in int8._IN_PLACE
        },
        "relu, residual": (linear(x, "relu", residual), PLAIN.activate(right, "relu") + residual),
    }
    for name, (ours, exact) in found.items():
        assert ours.shape == exact.shape, name
        if len(exact):
            assert ((ours - exact).abs() <= 1e-5 * exact.abs().amax(1, keepdim=True)).all(), name
        assert ours.dtype == torch.float32, name
    fresh = tensors()
    assert torch.equal(residual, fresh[3]) and torch.equal(x[:7], fresh[2][:7])


@pytest.mark.parametrize("default", [torch.float64, torch.bfloat16])
def test_the_largest_weight_is_found_whatever_the_default_format_is(
    form: Int8Form, default: torch.dtype
) -> None:
    expected = largest_weight(form)
    torch.set_default_dtype(default)
    try:
        largest_weight.cache_clear()
        assert largest_weight(form) == expected
        autotune.reset()
        taken = autotune.choices()
    finally:
        torch.set_default_dtype(torch.float32)
        largest_weight.cache_clear()
        autotune.reset()
    assert [one.kind for one in taken] == [one.kind for one in autotune.choices()]


def test_the_largest_weight_is_found_where_weights_are_multiplied_as_they_lie() -> None:
    """The processor shifts rows in place, and a form may keep a view of its weights."""

    def exact(whole: Tensor, scales: Tensor) -> Callable[[Tensor], Tensor]:
        def sums(q: Tensor) -> Tensor:
            shifted = q.view(torch.uint8).bitwise_xor_(128).double() - 128
            return (shifted @ whole.double().T).float() * scales

        return sums

    assert largest_weight(exact) == 127


@torch.inference_mode()
def test_results_in_bfloat16(form: Int8Form) -> None:
    weight, bias, x, residual = tensors()
    x, residual = x.bfloat16(), residual.bfloat16()
    exact = Int8Linear(weight, bias, torch.float32, form)
    found = Int8Linear(weight, bias, torch.bfloat16, form)(x, "gelu", residual)
    assert found.dtype == torch.bfloat16  # rounded once, at the end
    assert torch.equal(found, exact(x.float(), "gelu", residual.float()).bfloat16())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("activation", [None, "gelu"])
@torch.inference_mode()
def test_a_row_does_not_depend_on_its_neighbours(
    form: Int8Form, activation: str | None, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Alone, among 63 others of which one reaches a million times as far, and in another part."""
    monkeypatch.setattr(int8, "PIECE", 1)
    for rows, out in ((64, OUT), (100, OUT), (64, 37)):  # 37: not a whole number of vectors
        weight, bias, x, residual = (each.to(dtype) for each in tensors(rows, INSIDE, out))
        x[5] *= 1e6
        linear = Int8Linear(weight, bias, dtype, form)
        together = linear(x, activation, residual)
        for i in (0, 4, 31, 32, rows - 1):
            alone = linear(x[i : i + 1], activation, residual[i : i + 1])[0]
            # To the bit, but that torch computes what is left of a vector of GELU in another way.
            if out % 16 == 0 or activation is None:
                assert torch.equal(together[i], alone), (rows, out, i)
            assert (together[i] - alone).abs().max() <= 1e-5 * together[i].abs().max(), (rows, out, i)


@torch.inference_mode()
def test_no_piece_is_a_remnant() -> None:
    assert piece_of(128, 3072) == 128 and piece_of(20, 3072) == 32
    for rows, outputs in ((130, 3072), (256, 2304), (1000, 768), (4096, 3072), (514, 4096)):
        piece = piece_of(rows, outputs)
        last = rows % piece or piece
        assert piece % 16 == 0 and 4 * (piece - 16) * outputs < int8.PIECE and last > piece // 3


def test_one_outlier_costs_the_others_nothing(form: Int8Form) -> None:
    weight, bias, x, _ = tensors()
    x[5, 3] = 1e4
    found, right = Int8Linear(weight, bias, torch.float32, form)(x), F.linear(x, weight, bias)
    error = (found - right).norm(dim=1) / right.norm(dim=1)
    error[5] = 0
    assert error.max() < (0.02 if largest_weight(form) == 127 else 0.04)


@torch.inference_mode()
def test_extreme_rows(form: Int8Form) -> None:
    weight, bias, x, _ = tensors(8)
    x[0] = 0
    x[1] *= 1e-38
    x[2] *= 1e37
    x[3, 1] = float("inf")
    x[4, 1] = float("nan")
    linear = Int8Linear(weight, bias, torch.float32, form)
    found = linear(x)
    assert torch.equal(found[0], bias) and torch.allclose(found[1], bias)
    exact = F.linear(x[2], weight)
    assert (found[2] - exact).abs().max() < 0.04 * exact.abs().max()
    assert not found[3].isfinite().any() and not found[4].isfinite().any()
    assert torch.equal(found[5:], linear(x[5:]))
    assert torch.equal(
        Int8Linear(torch.zeros(4, 16), bias[:4], torch.float32, form)(x[5:6, :16])[0], bias[:4]
    )


@torch.inference_mode()
def test_sums_do_not_saturate(form: Int8Form) -> None:
    """Two products of 127 and 255 do not fit into 16 bits, where processors without VNNI add them."""
    ones, bias = torch.ones(32, 3072), torch.zeros(32)
    linear = Int8Linear(ones, bias, torch.float32, form)
    for rows in (ones, -ones, ones * torch.tensor([1.0, -1.0]).repeat(1536)):
        right = rows.sum(1, keepdim=True).expand(32, 32)
        torch.testing.assert_close(linear(rows), right, atol=1e-2, rtol=1e-5)


def test_rounding_is_of_each_row_alone() -> None:
    q, step = rounded(torch.tensor([[-2.54, 0.0, 1.27, 0.021], [0.0, 0.0, 0.0, 0.0], [1.0, -0.5, 0.25, 0.0]]))
    assert q.tolist() == [[-127, 0, 64, 1], [0, 0, 0, 0], [127, -64, 32, 0]]
    assert step[0].item() == pytest.approx(0.02) and step[2].item() == pytest.approx(1 / 127)
    assert step[1].item() > 0 and q.dtype == torch.int8


CHILD = """
import json, torch
from albertine.model.backend import autotune
from albertine.model.backend import int8 as forms
from albertine.core.precision import ComputeFormat as Format

autotune.ATTEMPTS = 20  # beside other work a way is not to be taken for a slow one
torch.manual_seed(0)
weight, x = torch.randn(256, 512) / 20, torch.randn(64, 512)
kinds = {"float32": Format(torch.float32), "int8": Format(torch.float32, int8=True)}
for kind, form in kinds.items():
    autotune.inference_linear(weight, weight[:, 0], form)  # what is tried out may be slow
int8 = autotune._choose("int8", torch.float32)[0]
layers = {"float32": autotune.inference_linear(weight, weight[:, 0], kinds["float32"]),
          "int8": int8.make(weight, weight[:, 0], torch.float32)}
print(json.dumps(autotune._choose("int8", torch.float32)[1]._asdict()), flush=True)
with torch.inference_mode(), torch.backends.mkldnn.verbose(torch.backends.mkldnn.VERBOSE_ON):
    for name, layer in layers.items():
        print("layer", name, flush=True)
        for given in ((x,), (x, "gelu"), (x, None, layer(x))):
            layer(*given)
right = torch.nn.functional.linear(x, weight, weight[:, 0])
with torch.inference_mode():
    errors = {name: (layer(x) - right).norm() / right.norm() for name, layer in layers.items()}
    print(json.dumps({name: error.item() for name, error in errors.items()}))
ones = torch.ones(16, 3072)  # two products of 127 and 255 do not fit into 16 bits
for form in (forms.unsigned, forms.plain_integers):
    sums = forms.Int8Linear(ones, ones[:, 0] * 0, torch.float32, form)(ones)
    print(forms.largest_weight(form), (sums - 3072).abs().max().item())
"""

CAPS = ("ONEDNN_MAX_CPU_ISA", "ATEN_CPU_CAPABILITY", "MKL_ENABLE_INSTRUCTIONS")
"""What makes an older processor of this one; "default" is without."""
NEEDS = {"default": "", "AVX512_CORE_VNNI": "avx512_vnni", "AVX2": "avx2"}


def flags() -> set[str]:
    try:
        return set(Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace").split())
    except OSError:
        return set()


def names_of(lines: list[str]) -> dict[str, list[str]]:
    """The operations and kernels that oneDNN names in the lines of each layer."""
    names: dict[str, list[str]] = {}
    for line in lines:
        if line.startswith("layer "):
            names[line.removeprefix("layer ")] = []
        elif ",exec," in line:
            names[[*names][-1]].append(" ".join(line.split(",")[5:7]))
    return names


@pytest.mark.parametrize("isa", NEEDS)
def test_never_a_reference_kernel(isa: str) -> None:
    """What is chosen runs in kernels made for the processor, not in oneDNN's loops of scalars, and is
    right."""
    if NEEDS[isa] and NEEDS[isa] not in flags():
        pytest.skip(f"this processor has no {NEEDS[isa]}")
    capped = {} if isa == "default" else {"ONEDNN_MAX_CPU_ISA": isa}
    if isa == "AVX2":
        capped |= {"ATEN_CPU_CAPABILITY": "avx2", "MKL_ENABLE_INSTRUCTIONS": "AVX2"}
    run = subprocess.run(
        [sys.executable, "-c", CHILD],
        env={name: value for name, value in os.environ.items() if name not in CAPS}
        | capped
        | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert run.returncode == 0, run.stderr
    chosen, *kernels, errors, unsigned, plain = run.stdout.strip().splitlines()
    names = names_of(kernels)
    assert not [name for each in names.values() for name in each if "ref" in name], kernels
    form = json.loads(chosen)["form"]
    if form == "32-bit sums":  # which torch requests from oneDNN by a call that names no kernel
        assert names["int8"].count("gemm_api ") == 4, kernels
    else:
        assert form in {"unsigned", "signed"}
        made = {"AVX2": "gemm:jit", "AVX512_CORE_VNNI": "vnni"}.get(isa, "")
        if isa == "default" and flags() & {"amx_int8", "avx512_vnni"}:
            made = "amx" if "amx_int8" in flags() else "vnni"
        assert sum(name.startswith("matmul") and made in name for name in names["int8"]) == 4, kernels
    assert all(float(line.split()[1]) < 0.1 for line in (unsigned, plain))
    if (
        isa == "AVX2"
    ):  # which has no VNNI; `_int_mm` adds pairs in 16 bits only where oneDNN multiplies for it
        assert unsigned.startswith("64 ") and plain.split()[0] in {"64", "127"}
    found = json.loads(errors)
    assert found["float32"] < 1e-5 and 1e-4 < found["int8"] < 0.03
