"""Graphs in 8-bit integers by ONNX Runtime's dynamic quantisation, with a check that products were quantised.

Plain dynamic quantisation silently skips every product whose weight is not a direct constant: in a usual
export of a shared ALBERT 96 of 97 products stay float32. So the graph is preprocessed first, and an export
with too few quantised products is refused.

Weights are signed, per output channel; activations are measured at run time; tables of embeddings are
quantised as a whole.
"""

from __future__ import annotations

import platform
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from albertine.core.processors import cpu_flags
from albertine.errors import ModelError
from albertine.export.quiet_logging import errors_only

LEAST_SHARE = 70 / 97
"""Least share of quantised matrix products; in albert-base 73 of 97 multiply by a weight."""
IN_INTEGERS = ("MatMulInteger", "MatMulIntegerToFloat", "DynamicQuantizeMatMul", "QLinearMatMul", "QGemm")
IN_FLOATS = ("MatMul", "FusedMatMul", "Gemm")
_REARRANGED = ("Transpose", "Cast", "Identity", "Reshape", "DequantizeLinear")
_EXACT_DOTS = {"avx512_vnni", "avx_vnni", "amx_int8"}


def saturates() -> bool:
    """Whether this processor adds products of 8-bit numbers in pairs of 16 bits, which overflow: x86 without
    VNNI or AMX. Weights of 7 bits then keep the sums right."""
    return platform.machine().lower() in ("x86_64", "amd64") and not (_EXACT_DOTS & cpu_flags())


def quantized(source: Path, target: Path) -> dict[str, Any]:
    """Quantise a float32 graph.

    Returns:
        For the report: products, how many of them are quantised, and bits of the weights.

    Raises:
        ModelError: too few products are; `target` is then not there.
    """
    from onnxruntime.quantization import QuantType, quantize_dynamic

    narrow = saturates()
    # Without the advice to preprocess, which is given even to what was.
    with TemporaryDirectory(dir=target.parent) as beside, errors_only(""):
        ready = Path(beside) / source.name
        _preprocess(source, ready)
        quantize_dynamic(
            ready,
            target,
            per_channel=True,
            reduce_range=narrow,
            weight_type=QuantType.QInt8,
            nodes_to_exclude=_stacked(ready),
        )
    return counted(target) | {"weight_bits": 7 if narrow else 8}


def _preprocess(source: Path, target: Path) -> None:
    from onnxruntime.quantization.shape_inference import quant_pre_process

    # ONNX Runtime's own symbolic inference gives up on sizes that are products of open ones.
    quant_pre_process(source, target, skip_symbolic_shape=True)


def _stacked(file: Path) -> list[str]:
    """Products with several matrices at once, of which ONNX Runtime multiplies none by a step a channel."""
    import onnx

    graph = onnx.load(file, load_external_data=False).graph
    several = {x.name for x in graph.initializer if len(x.dims) > 2}
    return [n.name for n in graph.node if n.op_type in IN_FLOATS and not several.isdisjoint(n.input)]


def counted(file: Path) -> dict[str, int]:
    """The number of matrix products of a graph, and of those that multiply integers.

    Relative positions have one more product of two activations in every layer, which is not quantised: the
    share may then be lower, if every product with a weight is quantised.

    Raises:
        ModelError: they are too few for INT8; the file is removed.
    """
    total, integers = products(file)
    if not integers or (integers < LEAST_SHARE * total and left(file)):
        file.unlink()
        raise ModelError(
            f"only {integers} of {total} matrix products came out in 8-bit integers, and "
            f"{LEAST_SHARE:.0%} is the least that may be called INT8",
            where=file.name,
            remedy="Export it without --int8; nothing was written",
        )
    return {"products": total, "quantised": integers}


def products(file: Path) -> tuple[int, int]:
    """The matrix products of a graph, and those of them that multiply integers."""
    import onnx

    kinds = Counter(node.op_type for node in onnx.load(file, load_external_data=False).graph.node)
    integers = sum(kinds[kind] for kind in IN_INTEGERS)
    return integers + sum(kinds[kind] for kind in IN_FLOATS), integers


def left(file: Path) -> int:
    """How many products of floats have a weight for a factor, perhaps one that is transposed first."""
    import onnx

    graph = onnx.load(file, load_external_data=False).graph
    weights = {x.name for x in graph.initializer}
    found = 0
    for node in graph.node:
        if node.op_type in IN_FLOATS:
            found += not weights.isdisjoint(node.input[:2])
        elif node.op_type in _REARRANGED and weights.issuperset(node.input):
            weights |= set(node.output)
    return found
