"""A session of onnxruntime for an exported graph, without torch."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from albertine.core.processors import competing_threads, usable_threads
from albertine.core.protobuf import MalformedProtobuf, parse_fields
from albertine.errors import ModelError, SettingsError

_GRAPH, _FUNCTIONS, _FUNCTION_NODES, _NODES, _OPERATOR, _ATTRIBUTES = 7, 25, 7, 1, 4, 5
_INNER_GRAPHS = (6, 11)
"""Field numbers in onnx.proto: graph and functions of a model, nodes of a function and of a graph, operator
and attributes of a node, graphs of an attribute."""


class OnnxSession:
    """A graph in onnxruntime, on the CPUs of this process; safe to call from several threads.

    Attributes:
        inputs: their names. outputs: axis sizes of every output by its name, 0 for a dynamic axis.

    Raises:
        SettingsError: onnxruntime is not installed. ModelError: the file is damaged.
    """

    def __init__(self, file: Path) -> None:
        self._session = _session(file)
        self.inputs = frozenset(each.name for each in self._session.get_inputs())
        self.outputs = {
            output.name: tuple(size if isinstance(size, int) else 0 for size in output.shape)
            for output in self._session.get_outputs()
        }

    def run(self, inputs: Mapping[str, NDArray[np.int64]]) -> dict[str, NDArray[Any]]:
        """The outputs by their names."""
        names = list(self.outputs)
        return dict(zip(names, self._session.run(names, dict(inputs)), strict=True))


def _refuse_loops(file: Path) -> None:
    """Refuse a graph with the operator Loop, which may never end and which no export of an encoder has.

    Raises:
        ModelError: there is one, in the graph, in a branch or in a function; or the file is damaged.
    """
    damaged = "It is cut short or damaged; export the model again"
    try:
        with file.open("rb") as opened:
            data = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)  # closed with the last view of it
        operators = set(_operators(memoryview(data)))
    except (MalformedProtobuf, OSError, ValueError) as error:
        raise ModelError(f"is not a whole graph ({error})", where=file, remedy=damaged) from error
    if "Loop" in operators:
        raise ModelError(
            "has a loop (operator Loop), which may never end, and which no export of an encoder has",
            where=file,
            remedy="Export the model again with `albertine export`, or with Optimum",
        )


def _operators(model: memoryview) -> Iterator[str]:
    """The operators of a ModelProto, including those of branches, which are graphs in attributes of nodes."""
    graphs: list[memoryview] = []
    nodes: list[memoryview] = []
    for number, value in _messages(model):
        if number == _GRAPH:
            graphs.append(value)
        elif number == _FUNCTIONS:
            nodes += [node for number, node in _messages(value) if number == _FUNCTION_NODES]
    while graphs or nodes:
        if graphs:
            nodes += [node for number, node in _messages(graphs.pop()) if number == _NODES]
            continue
        for number, value in _messages(nodes.pop()):
            if number == _OPERATOR:
                yield bytes(value).decode(errors="replace")
            elif number == _ATTRIBUTES:
                graphs += [graph for number, graph in _messages(value) if number in _INNER_GRAPHS]


def _messages(data: memoryview) -> Iterator[tuple[int, memoryview]]:
    """The length-delimited fields of a protocol buffer, as views, because weights are among them."""
    for number, value in parse_fields(data):
        if not isinstance(value, int):
            yield number, value


def _session(file: Path) -> Any:
    """An onnxruntime session of a graph, on the CPUs of this process.

    Raises:
        SettingsError: onnxruntime is not installed. ModelError: the file is damaged.
    """
    try:
        import onnxruntime
    except ImportError as error:
        raise SettingsError(
            "an exported model requires onnxruntime, which is not installed",
            where=file,
            remedy="pip install 'albertine[onnx]'",
        ) from error
    _refuse_loops(file)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = usable_threads(), 1
    options.log_severity_level = 3
    # Threads that spin between two operators are faster only where the CPUs are idle (decision 008).
    idle = competing_threads() < (os.cpu_count() or 1) / 2
    options.add_session_config_entry("session.intra_op.allow_spinning", str(int(idle)))
    try:
        return onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime has no exception class of its own
        raise ModelError(
            f"is not a whole graph ({str(error).partition(chr(10))[0]:.200})",
            where=file,
            remedy="It is cut short or damaged; export the model again",
        ) from error
