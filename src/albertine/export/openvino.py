"""OpenVINO: the ONNX graph as an intermediate representation, in float32 and on request in bfloat16 and in
8-bit integers. Shared weights stand once in the .bin, as in the graph.

The runtime decides by the processor in which format it computes any of these files, unless it is loaded with
`INFERENCE_PRECISION_HINT: f32`: in bfloat16 where there are such instructions, and on some processors without
them too (AVX-512 with VNNI only). In that format a place above 256 is no whole number any more. So what an
angle of rotation is made of is marked to stay float32, and so is what is computed once a text for its vector.

bfloat16 is therefore two things, and the report names the one measured: weights that are stored in it
(half the bytes), and arithmetic that the runtime does in it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from albertine.core.openvino_core import openvino_core
from albertine.export.formats import ExportedFile, ExportOptions
from albertine.export.graph import Graph, described, graph_of
from albertine.export.onnx import OPSET, check_opset, save_graph
from albertine.export.source_model import Opened
from albertine.export.verify import Arrays, text_batches
from albertine.interop.exported_folder import VECTOR

NEEDS = ("onnx", "onnxscript", "openvino")
EXTRA = "openvino-export"
OPTIONS = frozenset({"opset", "int8", "bfloat16", "sample"})
FOLDER = "openvino"
_SMALL = 4096
"""Numbers of a constant that is worth storing in half the bytes."""
_PRECISE = "precise_0"
"""Marks an operation that must not be computed in lower precision."""
_PRODUCTS = ("FullyConnected", "MatMul")


def write(source: Opened, folder: Path, options: ExportOptions) -> list[ExportedFile]:
    """Write `openvino/openvino_model.xml` and .bin, and those of `_bf16` and `_int8` on request.

    Raises:
        ModelError: the 8-bit graph is none. SettingsError: an opset that is not known, no text to measure
            activations by.
    """
    (folder / FOLDER).mkdir(exist_ok=True)
    opset = check_opset(options.opset if options.opset is not None else OPSET)
    graph = graph_of(source.head)
    with TemporaryDirectory(dir=folder) as beside:
        onnx = folder / "onnx" / "model.onnx"
        if not onnx.is_file():  # else ONNX is requested too
            onnx = Path(beside) / "model.onnx"
            save_graph(graph, onnx, opset)
        plain = folder / FOLDER / "openvino_model.xml"
        save(converted(onnx), plain)
    written = [_file(plain, "float32", graph)]
    if options.bfloat16:
        small = plain.with_stem(f"{plain.stem}_bf16")
        save(narrowed(openvino_core().read_model(plain)), small)
        written.append(_file(small, "bfloat16", graph))
    if options.int8:
        from albertine.export.openvino_int8 import calibration, quantized

        small = plain.with_stem(f"{plain.stem}_int8")
        rows = calibration(source, options.sample)
        model, counts = quantized(plain, rows[::2])
        save(model, small)
        # The ranges were measured on text, and random tokens lie outside: verify with the other sentences.
        text = list(text_batches(source.head.base.config, rows[1::2] or rows))
        written.append(replace(_file(small, "int8", graph, counts), inputs=text))
    return written


def converted(onnx: Path) -> Any:
    """A graph of ONNX as a model of OpenVINO, with what must stay float32 marked."""
    import openvino

    model = openvino.convert_model(onnx)
    for node in precise(model):
        node.get_rt_info()[_PRECISE] = ""
    return model


def save(model: Any, file: Path) -> None:
    """Write the .xml and its .bin, numbers as they are."""
    import openvino

    openvino.save_model(model, file, compress_to_fp16=False)


def precise(model: Any) -> list[Any]:
    """The operations that stay float32: all that sines and cosines are made of, and what makes a vector of
    the sum over a text."""
    starts = [node for node in model.get_ops() if node.get_type_name() in ("Sin", "Cos")]
    found = {node.get_name(): node for start in starts for node in _above(start, ())}
    for output in model.outputs:
        if VECTOR in output.get_names():
            found |= {node.get_name(): node for node in _above(output.get_node(), ("ReduceSum",))}
    return [node for node in found.values() if node.get_type_name() not in ("Parameter", "Result")]


def _above(node: Any, until: tuple[str, ...]) -> list[Any]:
    """An operation and all that it is computed from, up to operations of these kinds; nothing where there is
    none of them."""
    found, ahead, stopped = {node.get_name(): node}, [node], not until
    while ahead:
        for value in ahead.pop().inputs():
            above = value.get_source_output().get_node()
            if above.get_name() in found:
                continue
            found[above.get_name()] = above
            if above.get_type_name() in until:
                stopped = True
            else:
                ahead.append(above)
    return list(found.values()) if stopped else []


def narrowed(model: Any) -> Any:
    """The model with its large constants stored in bfloat16, and widened where they are used."""
    import openvino
    import torch
    from openvino import opset1

    kept = {node.get_name() for node in precise(model)}
    for node in model.get_ops():
        large = node.get_type_name() == "Constant" and node.get_output_size() == 1
        if not large or node.get_element_type() != openvino.Type.f32 or node.get_name() in kept:
            continue
        values = node.get_data()
        if values.size < _SMALL:
            continue
        bits = torch.from_numpy(np.array(values)).to(torch.bfloat16).view(torch.int16).numpy()
        tensor = openvino.Tensor(bits.view(np.uint16), list(values.shape), openvino.Type.bf16)
        stored = openvino.op.Constant(tensor, shared_memory=False)
        wide = opset1.convert(stored, "f32")
        wide.get_rt_info()["decompression_0"] = ""
        for target in list(node.output(0).get_target_inputs()):
            target.replace_source_output(wide.output(0))
    model.validate_nodes_and_infer_types()
    return model


def _file(file: Path, precision: str, graph: Graph, counts: dict[str, Any] | None = None) -> ExportedFile:
    run = OpenVinoModel(file, "bf16" if precision == "bfloat16" else "f32")
    executed = run.products()
    what = ", ".join(f"{count} in {kind}" for kind, count in sorted(executed.items()))
    facts: dict[str, Any] = {
        **described(graph),
        "bytes": file.stat().st_size + file.with_suffix(".bin").stat().st_size,
        "executed": dict(executed),
        **(counts or {}),
        "notes": [f"matrix products on this processor, with INFERENCE_PRECISION_HINT {run.hint}: {what}"],
    }
    return ExportedFile(f"{FOLDER}/{file.name}", precision, run, facts=facts)


class OpenVinoModel:
    """Computes a file on the CPU; it is compiled at the first call.

    Attributes:
        hint: INFERENCE_PRECISION_HINT, "f32" or "bf16"; "f32" too where the runtime has no kernels for
            bfloat16 here, after the file was compiled. threads: 0: as many as the runtime likes.
    """

    def __init__(self, file: Path, hint: str, threads: int = 0) -> None:
        self.file, self.hint, self.threads = file, hint, threads

    @cached_property
    def compiled(self) -> Any:
        threads = {"INFERENCE_NUM_THREADS": self.threads} if self.threads else {}
        try:
            return openvino_core().compile_model(
                self.file, "CPU", {"INFERENCE_PRECISION_HINT": self.hint} | threads
            )
        except RuntimeError:
            # It can take a processor for one with bfloat16 whose kernels are limited (ONEDNN_MAX_CPU_ISA).
            if self.hint == "f32":
                raise
            self.hint = "f32"
        return self.compiled

    def __call__(self, inputs: Arrays) -> Arrays:
        known = {name for one in self.compiled.inputs for name in one.get_names()}
        found = self.compiled({name: x for name, x in inputs.items() if name in known})
        return {one.get_any_name(): np.array(found[one]) for one in self.compiled.outputs}

    def products(self) -> Counter[str]:
        """How many matrix products the runtime computes in which format, by its own report; fused ones, such
        as those of attention, are not among them."""
        nodes = (node.get_rt_info() for node in self.compiled.get_runtime_model().get_ops())
        kinds = ((info["layerType"].astype(str), info["runtimePrecision"].astype(str)) for info in nodes)
        return Counter(precision for kind, precision in kinds if kind in _PRODUCTS)
