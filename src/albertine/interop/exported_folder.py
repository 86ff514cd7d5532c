"""A folder that `albertine export` made: config.json and tokenizer as in any model folder, and a graph in
place of the weights. It is read without torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file

from albertine.errors import ModelError
from albertine.interop.heads import head_input_size, task_in
from albertine.interop.huggingface.config import encoder_in
from albertine.interop.model_files import checkpoint_in
from albertine.interop.model_folder import Shapes
from albertine.interop.pickled import PICKLED, PICKLED_INDEX
from albertine.interop.weights import INDEX, SINGLE, read_json
from albertine.interop.weights import REPORT as REPORT
from albertine.model.config import EncoderConfig

GraphRuntime = Literal["onnx", "openvino"]
"""A program that runs graphs, on processors: onnxruntime or OpenVINO."""
GRAPHS: dict[GraphRuntime, dict[str, str]] = {
    "onnx": {"float32": "onnx/model.onnx", "int8": "onnx/model_int8.onnx"},
    "openvino": {
        "float32": "openvino/openvino_model.xml",
        "bfloat16": "openvino/openvino_model_bf16.xml",
        "int8": "openvino/openvino_model_int8.xml",
    },
}
"""Files by runtime and precision, the most exact first, with the names of Optimum and
sentence-transformers."""
VECTOR, RAW_VECTOR = "sentence_embedding", "sentence_embedding_raw"
"""Outputs of a graph of vectors: as configured in its folder, and before normalization."""
TRANSITIONS = "head.safetensors"
"""Scores of a conditional random field besides the emissions, which the graph computes: "crf.transitions"
(tags, tags) from the row to the column, "crf.start" and "crf.end" (tags,), with very low scores where the
tagging scheme forbids a tag."""


@dataclass(frozen=True)
class ExportedFolder:
    """The description of an exported model.

    Attributes:
        encoder: the shape of its encoder. config: its config.json.
        shapes: of the tensors of the head, as far as the outputs of the graph determine them.
        left_aside: nothing; a head that Albertine does not compute is not exported.
    """

    encoder: EncoderConfig
    config: dict[str, Any]
    shapes: Shapes
    left_aside: tuple[str, ...] = ()


def is_exported(folder: Path) -> bool:
    """Whether a folder holds a graph and no weights, which win where both are there, in any layout.

    Raises:
        ModelError: several checkpoints of TensorFlow, and none is named.
    """
    return bool(graphs_in(folder)) and not _has_weights(folder)


def is_export(folder: Path) -> bool:
    """Whether a folder is the export of a model in any format, and no more. Raises as `is_exported`."""
    return (folder / REPORT).is_file() and not _has_weights(folder)


def _has_weights(folder: Path) -> bool:
    weights = any((folder / name).is_file() for name in (SINGLE, INDEX, PICKLED, PICKLED_INDEX))
    return weights or checkpoint_in(folder) is not None


@dataclass(frozen=True)
class Graph:
    """A graph of an exported folder: what runs it, in which format, and its file."""

    runtime: GraphRuntime
    precision: str
    file: Path


def graphs_in(folder: Path) -> list[Graph]:
    """The graphs of padded batches in a folder: those of ONNX first, of each runtime the most exact first."""
    every = [
        Graph(runtime, precision, folder / name)
        for runtime, files in GRAPHS.items()
        for precision, name in files.items()
    ]
    return [graph for graph in every if graph.file.is_file()]


def graph_in(folder: Path, precision: str, runtime: GraphRuntime | None = None) -> Graph:
    """The first graph of a folder in this precision and of this runtime; `auto`, None: any.

    Raises:
        ModelError: there is none.
    """
    there = [graph for graph in graphs_in(folder) if runtime in (None, graph.runtime)]
    if not there:
        raise ModelError(
            f"has no graph of {runtime}",
            where=folder,
            remedy=f"Export the model with --to {runtime}, or leave --runtime out",
        )
    for graph in there:
        if precision in ("auto", graph.precision):
            return graph
    known = dict.fromkeys(graph.precision for graph in there)
    raise ModelError(
        f"has no graph in {precision}, but in {' and '.join(known)}",
        where=folder,
        remedy=f"Use --precision {next(iter(known))}, or export the model again",
    )


def read_exported(folder: Path, outputs: Shapes) -> ExportedFolder:
    """The description of an exported model, from its folder and the outputs of its graph.

    Args:
        outputs: axes of every output by its name; 0 is one that is left open.

    Raises:
        ModelError: config.json is missing or damaged, or of a kind we cannot compute.
    """
    tree = read_json(folder / "config.json")
    _, encoder = encoder_in(tree, folder / "config.json")
    shapes = _head(outputs, head_input_size(tree, encoder.hidden_size), task_in(tree))
    shapes |= {name: x.shape for name, x in read_transitions(folder).items()}
    return ExportedFolder(encoder, tree, shapes)


def _head(outputs: Shapes, hidden: int, task: str | None) -> dict[str, tuple[int, ...]]:
    """The tensors of a head, by what it gives: a layer of classes or tags, of two numbers a token, or the
    joint head of SQuAD 2.0. Logits of every token that are no tags are those of the vocabulary.

    Args:
        hidden: how many numbers it looks at.
    """
    logits = outputs.get("logits", ())
    if len(logits) == 2 or (logits and task == "tag"):
        return {"classifier.weight": (logits[-1], hidden), "classifier.bias": (logits[-1],)}
    if "start_logits" in outputs:
        return {"qa_outputs.weight": (2, hidden), "qa_outputs.bias": (2,)}
    return {"answer_class.dense_0.weight": (hidden, 2 * hidden)} if "cls_logits" in outputs else {}


def read_transitions(folder: Path) -> dict[str, NDArray[np.float32]]:
    """The parameters of a conditional random field, by the names that they have in a model folder; none
    where a model has no such field.

    Raises:
        ModelError: the file is damaged.
    """
    file = folder / TRANSITIONS
    if not file.is_file():
        return {}
    try:
        found: dict[str, NDArray[np.float32]] = load_file(file)
    except (SafetensorError, OSError) as error:
        raise ModelError(
            f"is not a whole safetensors file ({error})", where=file, remedy="Export the model again"
        ) from error
    return found


def describe_export(report: Mapping[str, Any], where: object) -> dict[str, Any]:
    """The content of an export.json as facts for a person.

    Raises:
        ModelError: it is damaged.
    """
    try:
        found: dict[str, Any] = {
            "answers": report["answers"],
            "source": f"{report['source']['name']} ({report['source']['digest'][:12]})",
        }
        for name, file in report["files"].items():
            found[name] = ", ".join(_of_file(file))
        found["made with"] = ", ".join(f"{name} {number}" for name, number in report["versions"].items())
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ModelError(
            f"is no report of an export ({error!r:.80})",
            where=where,
            remedy="Export the model again: albertine export MODEL OUT --overwrite",
        ) from error
    return found


def _of_file(file: Mapping[str, Any]) -> list[str]:
    words = [str(file["precision"])]
    if "layout" in file:
        words.append(f"{file['layout']} input")
    if "opset" in file:
        words.append(f"opset {file['opset']}")
    if "bytes" in file:
        words.append(f"{file['bytes']:,} bytes")
    if "products" in file:
        words.append(f"{file['quantised']} of {file['products']} products in int8")
    difference, cosine = float(file["greatest_difference"]), float(file["least_cosine"])
    words.append(
        f"greatest difference {difference:.1e} and least cosine {cosine:.6f} "
        f"over {len(file['shapes'])} shapes"
    )
    return words
