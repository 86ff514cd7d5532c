"""Inference on an exported ONNX graph with onnxruntime, without torch.

A graph takes padded batches. Padding is added here, to rows of about the same length, and outputs at padding
are dropped.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from albertine.core.number_formats import InferencePrecision
from albertine.core.processors import competing_threads, usable_threads
from albertine.core.protobuf import MalformedProtobuf, parse_fields
from albertine.errors import ModelError, SettingsError
from albertine.inference.probabilities import sigmoid
from albertine.inference.tags import Transitions
from albertine.interop.exported_folder import (
    RAW_VECTOR,
    TRANSITIONS,
    VECTOR,
    ExportedFolder,
    graph_in,
    read_exported,
    read_transitions,
)
from albertine.model.config import OBJECT_POWER, SUBJECT_POWER, EncoderConfig, Pooling

DEFAULT_BATCH_TOKENS = 4096
"""Maximum tokens of a padded batch, as for a torch model on a CPU (docs/decisions/015)."""
MIN_LOG_PROBABILITY = -1e29
"""Spans below this log-probability are filler, in rows with fewer positions than spans."""
_GRAPH, _FUNCTIONS, _FUNCTION_NODES, _NODES, _OPERATOR, _ATTRIBUTES = 7, 25, 7, 1, 4, 5
_INNER_GRAPHS = (6, 11)
"""Field numbers in onnx.proto: graph and functions of a model, nodes of a function and of a graph, operator
and attributes of a node, graphs of an attribute."""
Rows = Sequence[Sequence[int] | NDArray[Any]]
Outputs = Mapping[str, NDArray[Any]]


class ExportedModel:
    """An exported graph in an inference session; safe to call from several threads.

    Attributes:
        folder: encoder, config.json and head shapes of its folder. precision: as requested.
        outputs: axis sizes of every output by its transformers name, 0 for a dynamic axis.

    Args:
        path: an exported folder.
        precision: `auto`, `float32` or `int8`. device: only "cpu".
        batch_tokens: maximum tokens of a padded batch.

    Raises:
        ModelError: the folder or its graph is damaged, or has no graph of that precision.
        SettingsError: onnxruntime is not installed; another device.
    """

    def __init__(
        self,
        path: Path,
        precision: InferencePrecision = "auto",
        batch_tokens: int | None = None,
        device: str = "cpu",
    ) -> None:
        if device != "cpu":
            raise SettingsError(
                f"an exported graph is computed on the processor, not on `{device}`",
                remedy="Leave the device out, or use the model folder that it was exported from",
            )
        self.path, self.precision = path, precision
        self.tokens_per_pass = batch_tokens or DEFAULT_BATCH_TOKENS
        self._session = _session(graph_in(path, precision))
        self.outputs = {
            output.name: tuple(size if isinstance(size, int) else 0 for size in output.shape)
            for output in self._session.get_outputs()
        }
        self._inputs = frozenset(each.name for each in self._session.get_inputs())
        if "attention_mask" not in self._inputs:
            raise ModelError(
                "has a graph of packed batches, and padded ones are required here",
                where=path,
                remedy="Export the model again without packed inputs",
            )
        self.folder: ExportedFolder = read_exported(path, self.outputs)
        self._transitions = read_transitions(path)  # now, as the folder may be replaced later

    def __reduce__(self) -> tuple[type[ExportedModel], tuple[Any, ...]]:
        """A copy, also in another process, opens the folder again, as a session cannot be copied."""
        return type(self), (self.path, self.precision, self.tokens_per_pass)

    @property
    def config(self) -> EncoderConfig:
        """The configuration of the encoder."""
        return self.folder.encoder

    def run(self, ids: Rows, types: Rows, **more: NDArray[np.int64]) -> Outputs:
        """The graph's outputs for rows as one padded batch, padding included.

        Args:
            ids, types: token and segment ids of every row. more: further inputs of this graph.
        """
        lengths = np.array([len(row) for row in ids])
        real = np.arange(lengths.max()) < lengths[:, None]
        table = {"input_ids": ids, "token_type_ids": types}
        inputs = {"attention_mask": real.astype(np.int64)}
        for name in table.keys() & self._inputs:
            inputs[name] = np.zeros(real.shape, dtype=np.int64)
            inputs[name][real] = np.concatenate(table[name])
        names = list(self.outputs)
        return dict(zip(names, self._session.run(names, {**inputs, **more}), strict=True))

    def numbers(self, ids: Rows, types: Rows, *, per_token: bool = False) -> NDArray[np.float32]:
        """The outputs of a task's head, (rows or tokens, outputs) float32, several outputs side by side.

        Raises:
            ModelError: the graph has another head.
        """
        outputs = self.run(ids, types)
        if "logits" in outputs:
            parts = [outputs["logits"]]
        elif "start_logits" in outputs:
            parts = [outputs["start_logits"][..., None], outputs["end_logits"][..., None]]
        elif VECTOR in outputs:
            parts = [outputs[VECTOR]]
        elif "cls_logits" in outputs:
            parts = _span_table(outputs)
        else:
            raise self._no_output("of a task")
        joined: NDArray[np.float32] = np.concatenate(parts, axis=-1)
        if not per_token:
            return joined
        return np.concatenate([row[: len(own)] for row, own in zip(joined, ids, strict=True)])

    def transitions(self, tags: Sequence[str]) -> Transitions:
        """The conditional random field over the tags.

        Raises:
            ModelError: its file is damaged.
        """
        found = self._transitions
        count = len(tags)
        sizes = {"crf.transitions": (count, count), "crf.start": (count,), "crf.end": (count,)}
        if {name: x.shape for name, x in found.items()} != sizes:
            raise ModelError(
                f"holds no random field over {count} tags",
                where=self.path / TRANSITIONS,
                remedy="Export the model again",
            )
        return Transitions(tags, *(found[name] for name in sizes))

    def check_mlm_head(self) -> None:
        """
        Raises:
            ModelError: the graph has no masked-LM head.
        """
        if self.outputs.get("logits", ())[-1:] != (self.config.vocab_size,):
            raise self._no_output("for the words under a mask")

    def words(
        self,
        rows: Sequence[Sequence[int]],
        types: Sequence[Sequence[int]],
        positions: Sequence[Sequence[int]],
    ) -> list[NDArray[np.float32]]:
        """The logits over the vocabulary at these positions of every row, (positions, V) each."""
        # Row by row: a graph returns the logits of all positions, which for a batch would fill the memory.
        each = zip(rows, types, positions, strict=True)
        return [self.run([ids], [own])["logits"][0, list(wanted)] for ids, own, wanted in each]

    def states(self, ids: Rows, types: Rows) -> list[NDArray[np.float32]]:
        """The last hidden states of every row, (tokens, H) each.

        Raises:
            ModelError: the graph has no such output.
        """
        if "last_hidden_state" not in self.outputs:
            raise self._no_output("for each token")
        states = self.run(ids, types)["last_hidden_state"]
        return [own[: len(row)] for own, row in zip(states, ids, strict=True)]

    @property
    def width(self) -> int:
        """The size of a text vector."""
        return self.outputs.get(VECTOR, (self.config.hidden_size,))[-1]

    def vectors(
        self, ids: Rows, types: Rows, pooling: Pooling | None, raw: bool = False
    ) -> NDArray[np.float32]:
        """A vector for every row, (rows, width of them).

        Args:
            pooling: of the last hidden states; None: the graph's own vector output.
            raw: the vectors before normalization.

        Raises:
            ModelError: the graph has no such output.
        """
        name = RAW_VECTOR if raw else VECTOR
        if pooling is None and name in self.outputs:
            whole: NDArray[np.float32] = self.run(ids, types)[name]
            return whole
        # Before it is run: a graph of another task may require further inputs.
        if "last_hidden_state" not in self.outputs or pooling not in (None, "cls", "mean"):
            raise self._no_output(f"to pool by `{pooling or 'mean'}`")
        states = self.run(ids, types)["last_hidden_state"]
        lengths = np.array([len(row) for row in ids])
        if pooling == "cls":
            positions = np.zeros_like(lengths) if self.config.summary == "first" else lengths - 1
            one: NDArray[np.float32] = states[np.arange(len(lengths)), positions]
            return one
        real = (np.arange(states.shape[1]) < lengths[:, None])[..., None]
        mean: NDArray[np.float32] = (states * real).sum(1) / lengths[:, None].astype(np.float32)
        return mean

    def _no_output(self, what: str) -> ModelError:
        return ModelError(
            f"is a graph without outputs {what}; it gives {', '.join(self.outputs)}",
            where=self.path,
            remedy="Export the model of that task",
        )


class OnnxPointers:
    """An exported graph as a `triples.PointerModel` of some texts: subjects in one pass, the objects of found
    subjects in further passes.

    Attributes:
        lengths: tokens of every row.
    """

    def __init__(self, model: ExportedModel, ids: Rows, types: Rows) -> None:
        self.lengths = [len(row) for row in ids]
        self._model, self._ids, self._types = model, ids, types

    def subjects(self) -> NDArray[Any]:
        """Probabilities (T, 2)."""
        placeholder = np.zeros((1, 3), dtype=np.int64)  # the input must not be empty; its output is not used
        outputs = self._model.run(self._ids, self._types, subjects=placeholder)["subject_logits"]
        rows = [row[:length] for row, length in zip(outputs, self.lengths, strict=True)]
        return sigmoid(np.concatenate(rows)) ** SUBJECT_POWER

    def objects(self, subjects: Sequence[tuple[int, int, int]]) -> NDArray[Any]:
        """Probabilities (R, predicates, 2)."""
        texts = sorted({text for text, _, _ in subjects})
        place = {text: i for i, text in enumerate(texts)}
        table = np.array([(place[text], first, last) for text, first, last in subjects], dtype=np.int64)
        ids, types = ([rows[text] for text in texts] for rows in (self._ids, self._types))
        outputs = self._model.run(ids, types, subjects=table)["object_logits"]
        rows = [row[: self.lengths[text]] for row, (text, _, _) in zip(outputs, subjects, strict=True)]
        return sigmoid(np.concatenate(rows)) ** OBJECT_POWER


def _span_table(outputs: Outputs) -> list[NDArray[np.float32]]:
    """The joint head's outputs in the layout of a torch model (`spans.SpanTable`). In the graph, as in
    transformers' XLNet, end e of start s has index e·starts + s."""
    begins, starts = outputs["start_top_log_probs"], outputs["start_top_index"]
    count = starts.shape[1]
    scores, ends = (
        outputs[name].reshape(len(starts), -1, count).transpose(0, 2, 1)
        for name in ("end_top_log_probs", "end_top_index")
    )
    positions = np.broadcast_to(starts[..., None], ends.shape)
    sums = begins[..., None] + scores
    sums[sums < MIN_LOG_PROBABILITY] = -np.inf
    joined = (positions, ends, sums)
    flat = [x.reshape(len(starts), -1).astype(np.float32) for x in joined]
    return [*flat, outputs["cls_logits"].reshape(-1, 1)]


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
