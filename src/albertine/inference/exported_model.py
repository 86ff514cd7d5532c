"""Inference on an exported graph with onnxruntime or OpenVINO, without torch.

A graph takes padded batches. Padding is added here, to rows of about the same length, and outputs at padding
are dropped. The sessions of both runtimes are in `onnx_session.py` and `openvino_session.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from albertine.core.number_formats import InferencePrecision
from albertine.errors import ModelError, SettingsError
from albertine.inference.probabilities import sigmoid
from albertine.inference.tags import Transitions
from albertine.interop.exported_folder import (
    RAW_VECTOR,
    TRANSITIONS,
    VECTOR,
    ExportedFolder,
    Graph,
    GraphRuntime,
    graph_in,
    read_exported,
    read_transitions,
)
from albertine.model.config import OBJECT_POWER, SUBJECT_POWER, EncoderConfig, Pooling

DEFAULT_BATCH_TOKENS = 4096
"""Maximum tokens of a padded batch, as for a torch model on a CPU (docs/decisions/015)."""
MIN_LOG_PROBABILITY = -1e29
"""Spans below this log-probability are filler, in rows with fewer positions than spans."""
Rows = Sequence[Sequence[int] | NDArray[Any]]
Outputs = Mapping[str, NDArray[Any]]


class GraphSession(Protocol):
    """A graph in a runtime; safe to call from several threads.

    Attributes:
        inputs: their names. outputs: axis sizes of every output by its name, 0 for a dynamic axis.
    """

    inputs: frozenset[str]
    outputs: dict[str, tuple[int, ...]]

    def run(self, inputs: Mapping[str, NDArray[np.int64]]) -> dict[str, NDArray[Any]]:
        """The outputs by their names."""


class ExportedModel:
    """An exported graph in an inference session; safe to call from several threads.

    Attributes:
        folder: encoder, config.json and head shapes of its folder. precision: as requested.
        graph: the graph that was chosen: runtime, precision and file.
        outputs: axis sizes of every output by its transformers name, 0 for a dynamic axis.

    Args:
        path: an exported folder.
        precision: `auto`, or that of a graph of the folder. device: only "cpu".
        batch_tokens: maximum tokens of a padded batch.
        runtime: of the graph; None: onnxruntime where there is such a graph.

    Raises:
        ModelError: the folder or its graph is damaged, or has no graph of that precision and runtime.
        SettingsError: the runtime is not installed; another device.
    """

    def __init__(
        self,
        path: Path,
        precision: InferencePrecision = "auto",
        batch_tokens: int | None = None,
        device: str = "cpu",
        runtime: GraphRuntime | None = None,
    ) -> None:
        if device != "cpu":
            raise SettingsError(
                f"an exported graph is computed on the processor, not on `{device}`",
                remedy="Leave the device out, or use the model folder that it was exported from",
            )
        self.path, self.precision = path, precision
        self.tokens_per_pass = batch_tokens or DEFAULT_BATCH_TOKENS
        self.graph = graph_in(path, precision, runtime)
        self._session = _session(self.graph)
        self.outputs = self._session.outputs
        if "attention_mask" not in self._session.inputs:
            raise ModelError(
                "has a graph of packed batches, and padded ones are required here",
                where=path,
                remedy="Export the model again without packed inputs",
            )
        self.folder: ExportedFolder = read_exported(path, self.outputs)
        self._transitions = read_transitions(path)  # now, as the folder may be replaced later

    def __reduce__(self) -> tuple[type[ExportedModel], tuple[Any, ...]]:
        """A copy, also in another process, opens the folder again, as a session cannot be copied."""
        return type(self), (self.path, self.precision, self.tokens_per_pass, "cpu", self.graph.runtime)

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
        for name in table.keys() & self._session.inputs:
            inputs[name] = np.zeros(real.shape, dtype=np.int64)
            inputs[name][real] = np.concatenate(table[name])
        return self._session.run(inputs | more)

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


class ExportedPointers:
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


def _session(graph: Graph) -> GraphSession:
    """A session of a graph in its runtime. Raises as `ExportedModel`."""
    if graph.runtime == "onnx":
        from albertine.inference.onnx_session import OnnxSession

        return OnnxSession(graph.file)
    from albertine.inference.openvino_session import OpenVinoSession

    return OpenVinoSession(graph.file, graph.precision)
