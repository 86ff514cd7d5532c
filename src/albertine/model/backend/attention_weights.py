"""The plain backend for a pass that returns attention weights: fast kernels never store them."""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn

from albertine.core.precision import ComputeFormat
from albertine.errors import SettingsError
from albertine.model.backend.base import Backend
from albertine.model.positions.sequence_groups import group_sequences

if TYPE_CHECKING:
    from albertine.model.key_value_cache import LayerCache
    from albertine.model.rows import Rows


class LayerCall(NamedTuple):
    """One call of a layer.

    Attributes:
        queries, keys: metadata of its rows.
        weights: as they were computed: (N, L, M) of each sequence, or with relative positions (S, N, L, M) of
            some queries of each group of sequences.
    """

    queries: Rows
    keys: Rows
    weights: list[Tensor]


class AttentionWeights(Backend):
    """Keeps the attention weights of every layer of one pass, before dropout.

    Attributes:
        only_last: keep those of the last call alone, as in the search for a fixed point.
        calls: the calls of layers so far.
    """

    def __init__(self, form: ComputeFormat, only_last: bool = False) -> None:
        """
        Raises:
            SettingsError: the format is int8.
        """
        super().__init__(form)
        if form.int8:
            raise SettingsError(
                "attention weights are not computed with int8",
                remedy='Set model.precision = "float32", or load the model without int8',
            )
        self.only_last = only_last
        self.calls: list[LayerCall] = []

    def run_layer(
        self,
        attention: nn.Module,
        feed_forward: nn.Module,
        x: Tensor,
        context: Tensor,
        queries: Rows,
        keys: Rows,
        cache: LayerCache | None = None,
        own: nn.Module | None = None,
    ) -> Tensor:
        if self.only_last:
            self.calls.clear()
        self.calls.append(LayerCall(queries, keys, []))
        return super().run_layer(attention, feed_forward, x, context, queries, keys, cache, own)

    def keep_weights(self, weights: Tensor, factor: Tensor | None = None) -> None:
        self.calls[-1].weights.append(weights if factor is None else weights * factor)

    def by_layer(self, lengths: tuple[int, ...], depth: int) -> tuple[tuple[Tensor, ...], ...]:
        """The weights of every layer: for each sequence (N, L, L); zeros where a layer was not computed,
        because its sequence had halted.

        Args:
            lengths: of all sequences of the batch. depth: number of layers.
        """
        if not depth:
            return ()
        offsets = list(accumulate(lengths, initial=0))
        layers = [_by_sequence(call, offsets) for call in self.calls]
        layers += [{}] * ((1 if self.only_last else depth) - len(layers))
        like = next(iter(layers[0].values()))
        return tuple(
            tuple(known[s] if s in known else like.new_zeros(len(like), n, n) for s, n in enumerate(lengths))
            for known in layers
        )


def _by_sequence(call: LayerCall, offsets: list[int]) -> dict[int, Tensor]:
    """The weights (N, L, M) of a call, by the index of their sequence in the batch with these offsets."""
    queries, keys, weights = call
    q_sizes, k_sizes = queries.known_lengths(), keys.known_lengths()
    if queries.distances is not None:
        groups = group_sequences(queries.distances, queries, keys)
        weights = groups.split_weights(weights, q_sizes, k_sizes)
    if queries.indices is None:
        return dict(enumerate(weights))
    firsts = torch.tensor([*accumulate(q_sizes[:-1], initial=0)], device=queries.indices.device)
    rows = queries.indices[firsts].tolist()
    return {bisect_right(offsets, row) - 1: one for row, one in zip(rows, weights, strict=True)}
