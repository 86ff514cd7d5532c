"""ONNX: a graph that any ONNX runtime computes, with one copy of every weight however many depths share it.

torch traces the graph with its sizes left open (`torch.onnx.export(dynamo=True)`). Products with a weight
are Gemm of rows, which name the weight as it is stored; so a shared weight stands once among the
initialisers, and the table of words once for the embeddings and for the logits.
"""

from __future__ import annotations

import contextlib
import io
import math
import warnings
from pathlib import Path
from typing import Any

import torch

from albertine import __version__
from albertine.errors import ModelError, SettingsError
from albertine.export.formats import ExportedFile, ExportOptions
from albertine.export.graph import Graph, PackedGraph, described, example_of, graphs_of, open_axes
from albertine.export.quiet_logging import errors_only
from albertine.export.source_model import Opened
from albertine.export.verify import Arrays, Run
from albertine.inference.graph_heads import Head

NEEDS = ("onnx", "onnxscript", "onnxruntime")
EXTRA = "export"
OPTIONS = frozenset({"opset", "int8", "packed"})
OPSET, OPSETS = 20, range(18, 24)
"""The default is the first with an operator for GELU."""
LARGEST = 2_000_000_000
"""Most bytes of a protobuf message."""
SMALL = 1 << 16
"""Bytes of constants that the trace may add to the weights: shapes, indices, frequencies."""


def write(source: Opened, folder: Path, options: ExportOptions) -> list[ExportedFile]:
    """Write `onnx/model.onnx`, on request also the graph of packed batches and both in 8-bit integers.

    Raises:
        SettingsError: an opset that is not known, or a packed graph of relative positions. ModelError: the
            8-bit graph is none.
    """
    opset = check_opset(OPSET if options.opset is None else options.opset)
    weights = sum(x.numel() * x.element_size() for x in source.head.model.parameters())
    if weights > LARGEST:
        raise ModelError(
            f"has {weights:,} bytes of weights, and one ONNX file holds {LARGEST:,}",
            where=source.path,
            remedy="Share more of its depths, or export a smaller model",
        )
    (folder / "onnx").mkdir(exist_ok=True)
    written = []
    for graph, stem in graphs_of(source.head, packed=options.packed):
        name, packed = f"onnx/{stem}.onnx", isinstance(graph, PackedGraph)
        save_graph(graph, folder / name, opset)
        check_copies(folder / name, source.head)
        facts = _facts(graph, folder / name, opset)
        written.append(ExportedFile(name, "float32", runner(folder / name), packed, facts))
        if options.int8:
            from albertine.export.onnx_int8 import quantized

            small = f"onnx/{stem}_int8.onnx"
            counts = quantized(folder / name, folder / small)
            facts = _facts(graph, folder / small, opset) | counts
            written.append(ExportedFile(small, "int8", runner(folder / small), packed, facts))
    return written


def check_opset(opset: int) -> int:
    """An opset that is known.

    Raises:
        SettingsError: it is not.
    """
    if opset not in OPSETS:
        raise SettingsError(
            f"opset {opset} is not supported", remedy=f"Use one of {OPSETS[0]} to {OPSETS[-1]}"
        )
    return opset


def save_graph(graph: Graph, file: Path, opset: int) -> None:
    """Trace a graph and write it, its weights inside."""
    import onnx

    silent = contextlib.redirect_stdout(io.StringIO())  # of the exporter, whose errors are raised
    with errors_only("torch.onnx"), warnings.catch_warnings(), silent, torch.no_grad():
        warnings.simplefilter("ignore")
        program = torch.onnx.export(
            graph,
            example_of(graph),
            dynamo=True,
            opset_version=opset,
            input_names=list(graph.inputs),
            output_names=list(graph.outputs),
            dynamic_shapes=open_axes(graph),
            verbose=False,
        )
    assert program is not None
    model = program.model_proto
    for value in (*model.graph.input, *model.graph.output):
        axes = {**graph.inputs, **graph.outputs}[value.name]
        for size, axis in zip(value.type.tensor_type.shape.dim, axes, strict=True):
            if isinstance(axis, str):  # the trace names sizes by how it found them
                size.dim_param = axis
    for part in (model, model.graph, *model.graph.node, *model.graph.value_info):
        del part.metadata_props[:]  # where in which program the trace was made: paths of this machine
        part.doc_string = ""
    model.producer_name, model.producer_version = "albertine", __version__
    onnx.save(model, file)


def check_copies(file: Path, head: Head) -> None:
    """Refuse a graph that holds a weight more than once.

    Raises:
        ModelError: its constants are larger than the parameters of the model.
    """
    weights = sum(x.numel() * x.element_size() for x in head.model.parameters())
    found = constants(file)
    if found > weights + head.tables + SMALL:
        raise ModelError(
            f"the graph holds {found:,} bytes of constants, and the model has {weights:,} bytes of weights: "
            "some are written more than once",
            where=file.name,
            remedy="Please report this with the model's config.json; nothing was written",
        )


def constants(file: Path) -> int:
    """Bytes of all initialisers and constants of a graph."""
    import onnx
    from onnx.helper import tensor_dtype_to_np_dtype

    graph = onnx.load(file).graph
    stored = [*graph.initializer, *(a.t for node in graph.node for a in node.attribute if a.HasField("t"))]
    return sum(math.prod(x.dims) * tensor_dtype_to_np_dtype(x.data_type).itemsize for x in stored)


def _facts(graph: Graph, file: Path, opset: int) -> dict[str, Any]:
    return {**described(graph), "opset": opset, "bytes": file.stat().st_size}


def runner(file: Path, threads: int = 0) -> Run:
    """Computes a graph with ONNX Runtime on the CPU; its session is made at the first call.

    Args:
        threads: inside one operation; 0: as many as the processor has cores.
    """
    session: Any = None

    def run(inputs: Arrays) -> Arrays:
        nonlocal session
        if session is None:
            session = session_of(file, threads)
        known = {one.name for one in session.get_inputs()}
        found = session.run(None, {name: x for name, x in inputs.items() if name in known})
        return dict(zip((one.name for one in session.get_outputs()), found, strict=True))

    return run


def session_of(file: Path, threads: int = 0) -> Any:
    """A session of ONNX Runtime on the processor."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    return onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
