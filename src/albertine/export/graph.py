"""The model that a runtime gets: the blocks of the encoder as they are, over a table of sequences in place of
a packed batch (docs/decisions/026).

    padded  input_ids, attention_mask, token_type_ids, int64 (B, L)
    packed  input_ids, token_type_ids, int64 (T,), cu_seqlens, int64 (S + 1,)

Products, norms and activations are the plain backend's; attention is written out, since kernels for packed
batches have no place in a graph. A head with subjects takes `subjects`, int64 (M, 3), too.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from albertine.core.batch import pack
from albertine.core.precision import ComputeFormat
from albertine.errors import SettingsError
from albertine.inference.graph_heads import Head
from albertine.inference.sequence_tables import PackedTable, PaddedTable, Table
from albertine.model.backend import forward_pass
from albertine.model.backend.base import Backend
from albertine.model.positions.registry import ENCODINGS
from albertine.model.positions.relative import KeyMask
from albertine.model.rows import Rows

UNSEEN = -1e30
"""Added to the score of a padding key, whose exponential is then 0; minus infinity would give NaN in rows of
padding."""
Axes = tuple[str | int, ...]
"""The dimensions of an input or output: names of dynamic ones, or sizes."""


class Graph(nn.Module):
    """An encoder with a head, as a function of tensors alone.

    Attributes:
        head: what is computed from the encoder's states.
        constants: of the position encoding, or empty (`PositionEncoding.constants`).
        inputs: names, in the order of the arguments, with their axes. outputs: likewise.
    """

    inputs: dict[str, Axes]
    constants: Tensor

    def __init__(self, head: Head) -> None:
        super().__init__()
        self.model, self.head = head.model, head
        config = head.base.config
        self.positions = ENCODINGS[config.positions]
        constants = self.positions.constants
        self.register_buffer(
            "constants", torch.empty(0) if constants is None else constants(config), persistent=False
        )
        self.outputs: dict[str, Axes] = {
            name: tuple(part for axis in axes for part in self.opened(axis))
            for name, axes in head.axes.items()
        }

    def opened(self, axis: str | int) -> Axes:
        """An axis of a head as one or two of this layout."""
        raise NotImplementedError

    def example(self) -> tuple[Tensor, ...]:
        """Arguments to trace it with: no size is one that an open size could be taken for."""
        raise NotImplementedError

    def answers(self, table: Table, subjects: Tensor | None) -> tuple[Tensor, ...]:
        """The outputs, in the order of `outputs`."""
        encoder, head = self.head.encoder, self.head
        depth = encoder.config.plan.depth if head.depth is None else head.depth
        with forward_pass(encoder, lambda: TableBackend(table)) as ops:
            out = encoder.encode(ops, table.rows, depth, None, head.all_depths, self.row_metadata(table))
            return head.traced(table, out, subjects)

    def row_metadata(self, table: Table) -> Rows:
        """Metadata of all rows, with positions that need no sizes of the batch."""
        batch, config = table.rows, self.head.base.config
        rows = Rows(batch.cu_seqlens, None, 0, batch.position_ids, batch.token_type_ids)
        trace = self.positions.trace
        return rows if trace is None else trace(rows, config, self.constants, *table.real.shape)

    def subject_inputs(self) -> dict[str, Axes]:
        """The further input of a head with subjects."""
        return {"subjects": ("subjects", 3)} if self.head.of_subjects else {}


class PaddedGraph(Graph):
    """From a padded batch; where a mask has no 1 in a row, that row's answers mean nothing."""

    def __init__(self, head: Head) -> None:
        super().__init__(head)
        names = ("input_ids", "attention_mask", "token_type_ids")
        self.inputs = dict.fromkeys(names, ("batch", "length")) | self.subject_inputs()

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        token_type_ids: Tensor,
        subjects: Tensor | None = None,
    ) -> tuple[Tensor, ...]:
        return self.answers(PaddedTable(input_ids, token_type_ids, attention_mask != 0), subjects)

    def opened(self, axis: str | int) -> Axes:
        return ("batch", "length") if axis == "tokens" else (axis,)

    def example(self) -> tuple[Tensor, ...]:
        ids, mask = torch.full((3, 7), 5), torch.ones(3, 7, dtype=torch.long)
        mask[1, 4:] = 0
        types = torch.zeros_like(ids)
        types[:, 3:] = 1
        return ids, mask, types, *_subjects(self.head)


class PackedGraph(Graph):
    """From a packed batch."""

    def __init__(self, head: Head) -> None:
        super().__init__(head)
        tokens: dict[str, Axes] = dict.fromkeys(("input_ids", "token_type_ids"), ("tokens",))
        self.inputs = {**tokens, "cu_seqlens": ("sequences + 1",)} | self.subject_inputs()

    def forward(
        self, input_ids: Tensor, token_type_ids: Tensor, cu_seqlens: Tensor, subjects: Tensor | None = None
    ) -> tuple[Tensor, ...]:
        return self.answers(PackedTable(input_ids, token_type_ids, cu_seqlens), subjects)

    def opened(self, axis: str | int) -> Axes:
        return ("sequences" if axis == "batch" else axis,)

    def example(self) -> tuple[Tensor, ...]:
        batch = pack([[5] * 7, [5] * 4, [5] * 6], [[0, 1] * 3 + [1], [0] * 4, [0, 1] * 3])
        return batch.input_ids, batch.token_type_ids, batch.cu_seqlens.long(), *_subjects(self.head)


def _subjects(head: Head) -> tuple[Tensor, ...]:
    return (torch.tensor([[0, 1, 2], [2, 1, 1]]),) if head.of_subjects else ()


class TableBackend(Backend):
    """Plain operations, with attention among the sequences of a table.

    Attributes:
        unseen_S11L: `UNSEEN` at keys that are padding, else 0, float32 (S, 1, 1, L).
    """

    def __init__(self, table: Table) -> None:
        super().__init__(ComputeFormat(torch.float32))
        self.table = table
        self.unseen_S11L = torch.where(table.real, 0.0, UNSEEN)[:, None, None]

    def attend(
        self, q_RND: Tensor, k_TND: Tensor, v_TND: Tensor, queries: Rows, keys: Rows, dropout: float
    ) -> Tensor:
        # Scaled before the product: a smaller tensor than the scores.
        q, k, v = (
            self.table.table(y).transpose(1, 2) for y in (q_RND * q_RND.shape[2] ** -0.5, k_TND, v_TND)
        )
        weights_SNLM = (q @ k.transpose(2, 3) + self.unseen_S11L).softmax(-1)
        return self.table.flat((weights_SNLM @ v).transpose(1, 2))

    def attend_scored(
        self,
        q_SNLD: Tensor,
        k_SNMD: Tensor,
        v_SNMD: Tensor,
        added_SNLM: Tensor,
        key_mask: KeyMask | None,
        dropout: float,
    ) -> Tensor:
        scores_SNLM = q_SNLD @ k_SNMD.transpose(2, 3) + added_SNLM + self.unseen_S11L
        return scores_SNLM.softmax(-1) @ v_SNMD


def open_axes(graph: Graph) -> tuple[dict[int, Any], ...]:
    """The open sizes of each input, as torch.export takes them."""
    sizes: dict[str, Any] = {}
    for axes in graph.inputs.values():
        for axis in axes:
            if isinstance(axis, str):
                name, _, more = axis.partition(" + ")
                size = torch.export.Dim(name)
                sizes.setdefault(axis, size + int(more) if more else size)
    return tuple(
        {i: sizes[axis] for i, axis in enumerate(axes) if isinstance(axis, str)}
        for axes in graph.inputs.values()
    )


def example_of(graph: Graph) -> tuple[Tensor, ...]:
    """Arguments to trace with, after the graph has computed them once: what the model keeps from pass to pass
    is then made of numbers and not of symbols."""
    arguments = graph.example()
    with torch.no_grad():
        graph(*arguments)
    return arguments


def graph_of(head: Head, packed: bool = False) -> Graph:
    """The traceable model of a head, in evaluation mode."""
    return (PackedGraph if packed else PaddedGraph)(head).eval()


def graphs_of(head: Head, *, packed: bool) -> list[tuple[Graph, str]]:
    """The graph of padded batches and, on request, that of packed ones, with the names of their files.

    Raises:
        SettingsError: a packed graph of positions that add scores, as relative ones.
    """
    positions = head.base.config.positions
    if packed and ENCODINGS[positions].adds_scores:
        raise SettingsError(f"{positions} positions have a padded graph only", remedy="Leave out --packed")
    more = [(graph_of(head, packed=True), "model_packed")] if packed else []
    return [(graph_of(head), "model"), *more]


def described(graph: Graph) -> dict[str, Any]:
    """The entry of a graph in export.json, in every format."""
    return {
        "layout": "packed" if "cu_seqlens" in graph.inputs else "padded",
        "inputs": {name: list(axes) for name, axes in graph.inputs.items()},
        "outputs": {name: list(axes) for name, axes in graph.outputs.items()},
    }
