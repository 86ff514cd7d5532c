"""A compiled model of OpenVINO for an exported graph, without torch."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from threading import Lock
from typing import Any
from xml.etree import ElementTree

import numpy as np
from numpy.typing import NDArray

from albertine.core.openvino_core import openvino_core
from albertine.core.processors import usable_threads
from albertine.errors import ModelError, SettingsError

_REMEDY = "It is cut short or damaged; export the model again"


class OpenVinoSession:
    """A graph in OpenVINO, on the CPUs of this process; safe to call from several threads.

    It is compiled once, with batch and length left open: a compiled copy for each shape would be .15 s and
    the weights again, and is faster for single short texts alone (docs/decisions/041).

    Attributes:
        inputs: their names. outputs: axis sizes of every output by its name, 0 for a dynamic axis.

    Args:
        file: the .xml; its .bin is beside it. precision: of the products, as the file was verified.

    Raises:
        SettingsError: OpenVINO is not installed. ModelError: one of the files is missing or damaged.
    """

    def __init__(self, file: Path, precision: str) -> None:
        compiled = _compiled(file, precision)
        self.inputs = frozenset(each.get_any_name() for each in compiled.inputs)
        self.outputs = {
            each.get_any_name(): tuple(
                size.get_length() if size.is_static else 0 for size in each.get_partial_shape()
            )
            for each in compiled.outputs
        }
        self._request, self._lock = compiled.create_infer_request(), Lock()

    def run(self, inputs: Mapping[str, NDArray[np.int64]]) -> dict[str, NDArray[Any]]:
        """The outputs by their names."""
        # One request for all threads: each has buffers of its own, and a pass uses all CPUs as it is.
        with self._lock:
            found = self._request.infer(dict(inputs), share_inputs=True)  # which copies the outputs
        return dict(zip(self.outputs, found.to_tuple(), strict=True))


def _compiled(file: Path, precision: str) -> Any:
    """
    Raises:
        SettingsError: OpenVINO is not installed. ModelError: the file is damaged, or has a loop.
    """
    try:
        core = openvino_core()
    except ImportError as error:
        raise SettingsError(
            "a model exported to OpenVINO requires openvino, which is not installed",
            where=file,
            remedy="pip install 'albertine[openvino]'",
        ) from error
    _refuse_loops(file)
    settings = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": usable_threads()}
    hints = ("bf16", "f32") if precision == "bfloat16" else ("f32",)
    failure = None
    # A second try, as OpenVINO can take a processor for one with bfloat16 whose kernels are limited
    # (ONEDNN_MAX_CPU_ISA).
    for hint in hints:
        try:
            model = core.read_model(file)
            return core.compile_model(model, "CPU", settings | {"INFERENCE_PRECISION_HINT": hint})
        except RuntimeError as error:  # OpenVINO has no exception class of its own
            failure = error
    lines = [line for line in str(failure).splitlines() if line.strip()]
    raise ModelError(f"is not a whole graph ({lines[-1]:.200})", where=file, remedy=_REMEDY) from failure


def _refuse_loops(file: Path) -> None:
    """Refuse a graph with the operation Loop, which may never end and which no export of an encoder has,
    also where it is in a branch.

    Raises:
        ModelError: there is one, or the file is damaged.
    """
    if not file.with_suffix(".bin").is_file():
        raise ModelError("has no .bin beside it, which holds its weights", where=file, remedy=_REMEDY)
    try:
        layers = [each for _, each in ElementTree.iterparse(file) if each.tag == "layer"]
    except (ElementTree.ParseError, OSError) as error:
        raise ModelError(f"is not a whole graph ({error})", where=file, remedy=_REMEDY) from error
    if any(layer.get("type") == "Loop" for layer in layers):
        raise ModelError(
            "has a loop (operation Loop), which may never end, and which no export of an encoder has",
            where=file,
            remedy="Export the model again with `albertine export`",
        )
