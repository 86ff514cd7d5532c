"""A model that was exported to ONNX, asked by onnxruntime: numbers in, numbers out, and no torch.

A graph reads padded tables. Padding is made here, at the edge: rows of about the same length go together, and
what the graph says of padding is thrown away.
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
"""Most places of a table, as a model of torch has it on a processor (docs/decisions/015)."""
MIN_LOG_PROBABILITY = -1e29
"""A span with less than this log-probability fills up a row that has fewer places than spans are wanted."""
_GRAPH, _FUNCTIONS, _FUNCTION_NODES, _NODES, _OPERATOR, _ATTRIBUTES = 7, 25, 7, 1, 4, 5
_INNER_GRAPHS = (6, 11)
"""Fields of onnx.proto: of a model its graph and functions, of a function and of a graph their nodes, of a
node its operator and attributes, of an attribute graphs."""
Rows = Sequence[Sequence[int] | NDArray[Any]]
Outputs = Mapping[str, NDArray[Any]]


class ExportedModel:
    """A graph, ready to be asked, from several threads too.

    Attributes:
        folder: what its folder says of it. precision: as it was asked for.
        outputs: what it gives, by the names that transformers has for it, with the sizes of the axes, 0 for
            one that is left open.

    Args:
        path: an exported folder.
        precision: `auto`, `float32` or `int8`. device: the processor; graphs are computed nowhere else here.
        batch_tokens: most places of a table that is computed at once.

    Raises:
        ModelError: the folder or its graph is damaged, or there is no graph of that precision.
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
                remedy="Leave the device out, or ask the model folder that it was exported from",
            )
        self.path, self.precision = path, precision
        self.tokens_per_pass = batch_tokens or DEFAULT_BATCH_TOKENS
        self._session = _session(graph_in(path, precision))
        self.outputs = {
            told.name: tuple(size if isinstance(size, int) else 0 for size in told.shape)
            for told in self._session.get_outputs()
        }
        self._inputs = frozenset(told.name for told in self._session.get_inputs())
        if "attention_mask" not in self._inputs:
            raise ModelError(
                "has a graph of packed batches, and padded ones are asked here",
                where=path,
                remedy="Export the model again without packed inputs",
            )
        self.folder: ExportedFolder = read_exported(path, self.outputs)
        self._transitions = read_transitions(path)  # now: later another model may lie there

    def __reduce__(self) -> tuple[type[ExportedModel], tuple[Any, ...]]:
        """A copy, also one in another process, opens the folder: a session cannot be copied."""
        return type(self), (self.path, self.precision, self.tokens_per_pass)

    @property
    def config(self) -> EncoderConfig:
        """The shape of the encoder."""
        return self.folder.encoder

    def run(self, ids: Rows, types: Rows, **more: NDArray[np.int64]) -> Outputs:
        """What the graph says of rows as one table, padding included.

        Args:
            ids, types: token and segment ids of every row. more: inputs that only this graph has.
        """
        lengths = np.array([len(row) for row in ids])
        real = np.arange(lengths.max()) < lengths[:, None]
        table = {"input_ids": ids, "token_type_ids": types}
        given = {"attention_mask": real.astype(np.int64)}
        for name in table.keys() & self._inputs:
            given[name] = np.zeros(real.shape, dtype=np.int64)
            given[name][real] = np.concatenate(table[name])
        names = list(self.outputs)
        return dict(zip(names, self._session.run(names, {**given, **more}), strict=True))

    def numbers(self, ids: Rows, types: Rows, *, per_token: bool = False) -> NDArray[np.float32]:
        """What the head of a task says, (rows or tokens, outputs) float32: of several outputs side by side.

        Raises:
            ModelError: the graph has another head.
        """
        said = self.run(ids, types)
        if "logits" in said:
            parts = [said["logits"]]
        elif "start_logits" in said:
            parts = [said["start_logits"][..., None], said["end_logits"][..., None]]
        elif VECTOR in said:
            parts = [said[VECTOR]]
        elif "cls_logits" in said:
            parts = _span_table(said)
        else:
            raise self._lacks("of a task")
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
        """That the graph has a masked-LM head.

        Raises:
            ModelError: it has not.
        """
        if self.outputs.get("logits", ())[-1:] != (self.config.vocab_size,):
            raise self._lacks("for the words under a mask")

    def words(
        self, rows: Sequence[Sequence[int]], types: Sequence[Sequence[int]], places: Sequence[Sequence[int]]
    ) -> list[NDArray[np.float32]]:
        """The logits over the vocabulary at some places of every row, (places, V) each."""
        # One by one: a graph gives those of all places, which for a table of rows would fill the memory.
        each = zip(rows, types, places, strict=True)
        return [self.run([ids], [own])["logits"][0, list(wanted)] for ids, own, wanted in each]

    @property
    def width(self) -> int:
        """How many numbers a vector has."""
        return self.outputs.get(VECTOR, (self.config.hidden_size,))[-1]

    def vectors(
        self, ids: Rows, types: Rows, pooling: Pooling | None, raw: bool = False
    ) -> NDArray[np.float32]:
        """A vector for every row, (rows, width of them).

        Args:
            pooling: of the last states; None: the vectors that the graph itself gives, as its folder said.
            raw: what those of length 1 were before.

        Raises:
            ModelError: the graph does not give that.
        """
        name = RAW_VECTOR if raw else VECTOR
        if pooling is None and name in self.outputs:
            whole: NDArray[np.float32] = self.run(ids, types)[name]
            return whole
        # Before it is run: a graph of another task may want inputs that texts alone do not give.
        if "last_hidden_state" not in self.outputs or pooling == "depths":
            if raw and VECTOR in self.outputs:
                raise ModelError(
                    "is an export of earlier, which gives vectors of length 1 alone",
                    where=self.path,
                    remedy="Export the model again, or ask for vectors of length 1",
                )
            raise self._lacks(f"to pool by `{pooling or 'mean'}`")
        states = self.run(ids, types)["last_hidden_state"]
        lengths = np.array([len(row) for row in ids])
        if pooling == "cls":
            places = np.zeros_like(lengths) if self.config.summary == "first" else lengths - 1
            one: NDArray[np.float32] = states[np.arange(len(lengths)), places]
            return one
        real = (np.arange(states.shape[1]) < lengths[:, None])[..., None]
        mean: NDArray[np.float32] = (states * real).sum(1) / lengths[:, None].astype(np.float32)
        return mean

    def _lacks(self, what: str) -> ModelError:
        return ModelError(
            f"is a graph without outputs {what}; it gives {', '.join(self.outputs)}",
            where=self.path,
            remedy="Export the model of that task",
        )


class OnnxPointers:
    """A graph that has read some texts, as `triples.relations` asks it: for the subjects in one pass, and
    then for the objects of those that were found in others.

    Attributes:
        lengths: tokens of every row.
    """

    def __init__(self, model: ExportedModel, ids: Rows, types: Rows) -> None:
        self.lengths = [len(row) for row in ids]
        self._model, self._ids, self._types = model, ids, types

    def subjects(self) -> NDArray[Any]:
        """Probabilities (T, 2)."""
        anyone = np.zeros((1, 3), dtype=np.int64)  # a graph cannot take none; what it says of it is not read
        said = self._model.run(self._ids, self._types, subjects=anyone)["subject_logits"]
        rows = [row[:length] for row, length in zip(said, self.lengths, strict=True)]
        return sigmoid(np.concatenate(rows)) ** SUBJECT_POWER

    def objects(self, asked: Sequence[tuple[int, int, int]]) -> NDArray[Any]:
        """Probabilities (R, predicates, 2)."""
        texts = sorted({text for text, _, _ in asked})
        place = {text: i for i, text in enumerate(texts)}
        subjects = np.array([(place[text], first, last) for text, first, last in asked], dtype=np.int64)
        ids, types = ([rows[text] for text in texts] for rows in (self._ids, self._types))
        said = self._model.run(ids, types, subjects=subjects)["object_logits"]
        rows = [row[: self.lengths[text]] for row, (text, _, _) in zip(said, asked, strict=True)]
        return sigmoid(np.concatenate(rows)) ** OBJECT_POWER


def _span_table(said: Outputs) -> list[NDArray[np.float32]]:
    """What the joint head says, as a model of torch lays it out (`spans.SpanTable`). In the graph, as in
    transformers' XLNet, the ends of each start lie apart: number e·starts + s."""
    begins, starts = said["start_top_log_probs"], said["start_top_index"]
    count = starts.shape[1]
    scores, ends = (
        said[name].reshape(len(starts), -1, count).transpose(0, 2, 1)
        for name in ("end_top_log_probs", "end_top_index")
    )
    places = np.broadcast_to(starts[..., None], ends.shape)
    sums = begins[..., None] + scores
    sums[sums < MIN_LOG_PROBABILITY] = -np.inf
    joined = (places, ends, sums)
    flat = [x.reshape(len(starts), -1).astype(np.float32) for x in joined]
    return [*flat, said["cls_logits"].reshape(-1, 1)]


def _refuse_loops(file: Path) -> None:
    """Refuse a graph with the operator Loop, which no export of an encoder has: its body says when it ends,
    which may be never.

    Raises:
        ModelError: it has one, in the graph, in a branch or in a function; or the file is damaged.
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
    """The operators of a ModelProto, also in graphs that are attributes of a node, as branches are."""
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
    """The fields of a protocol buffer that are no numbers; views, as weights lie among them."""
    for number, value in parse_fields(data):
        if not isinstance(value, int):
            yield number, value


def _session(file: Path) -> Any:
    """onnxruntime's session of a graph, on this process's processors.

    Raises:
        SettingsError: onnxruntime is not installed. ModelError: the file is damaged.
    """
    try:
        import onnxruntime
    except ImportError as error:
        raise SettingsError(
            "an exported model is asked by onnxruntime, which is not installed",
            where=file,
            remedy="pip install 'albertine[onnx]'",
        ) from error
    _refuse_loops(file)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = usable_threads(), 1
    options.log_severity_level = 3
    # Threads that spin between two products are faster only where nobody else wants the processors (008).
    idle = competing_threads() < (os.cpu_count() or 1) / 2
    options.add_session_config_entry("session.intra_op.allow_spinning", str(int(idle)))
    try:
        return onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime has no class of errors of its own to catch
        raise ModelError(
            f"is not a whole graph ({str(error).partition(chr(10))[0]:.200})",
            where=file,
            remedy="It is cut short or damaged; export the model again",
        ) from error
