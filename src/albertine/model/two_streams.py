"""Segments of longer texts in one pass: with a memory of earlier segments (Transformer-XL), an order of
factorisation, and XLNet's query stream (Yang et al. 2019, sections 2.2 to 2.5).

The query stream is additional query tokens: a row for each target, at the position of the target and without
its content. These rows attend to the content stream, and no row attends to them. So a layer is one call of
the encoder's `run_layer` with more query tokens, and the last layer computes only the requested ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from albertine.core.batch import Packed
from albertine.core.precision import without_autocast
from albertine.errors import SettingsError
from albertine.model.config import EncoderConfig
from albertine.model.encoder import Encoder
from albertine.model.model import Model
from albertine.model.positions.registry import with_positions
from albertine.model.rows import Rows
from albertine.model.segment_memory import Memory
from albertine.model.visibility import Visibility

IN_MEMORY = -1
"""`Visibility.when` of rows in the memory: visible to all."""


@dataclass(frozen=True, eq=False)
class Segments:
    """A batch of segments, and its attention masks.

    Attributes:
        packed: the tokens.
        visible: attention mask of the content stream; None: all tokens of a sequence see each other.
        targets: int64 (K,), increasing: rows of T that the query stream predicts; the output is then that of
            the query stream. None: no query stream.
        target_until: `Visibility.until` of the targets in the query stream, int64 (K,).
        backward: for each sequence whether its text is reversed; None: no text is.
        reach: see `Distances`.
        masks, target_masks: bool (n, m + n) and (k, m + n) for each sequence of n tokens, k targets and m
            rows in the memory, in place of `visible` and `target_until` where these cannot express a mask.
    """

    packed: Packed
    visible: Visibility | None = None
    targets: Tensor | None = None
    target_until: Tensor | None = None
    backward: tuple[bool, ...] | None = None
    reach: int | None = None
    masks: tuple[Tensor, ...] | None = None
    target_masks: tuple[Tensor, ...] | None = None


def check_segments(config: EncoderConfig) -> None:
    """Refuse an encoder that cannot read segments with a memory or a query stream.

    Raises:
        SettingsError: it has no relative positions, which alone are defined for a memory, or it halts, adds
            coordinate embeddings or input injection, or has a solver.
    """
    if config.positions != "relative":
        raise SettingsError(
            "a memory, a reach and a second stream need relative positions, and this encoder's are "
            f"{config.positions}",
            remedy="Use an encoder with positions: relative, such as the preset xlnet-base",
        )
    if config.halts or config.position_signal != "none":
        raise SettingsError(
            "a memory keeps neither the number of steps nor the positions of earlier rows",
            remedy="Use an encoder with halting: none and position_signal: none",
        )
    if config.solves or config.input_injection or "injection" in config.plan.own:
        raise SettingsError(
            "a memory and a second stream need the input of every layer, which a fixed point and injection "
            "do not have",
            remedy="Use an encoder with solver: none, input_injection: false, and no injection in own",
        )


@without_autocast
def encode_segments(
    encoder: Encoder,
    segments: Segments,
    memory: Memory | None = None,
    *,
    query: Tensor | None = None,
    keep: int = 0,
    reuse: int | None = None,
    rows: Tensor | None = None,
) -> tuple[Tensor, Memory]:
    """Encode segments.

    Args:
        memory: of the same sequences; None: they begin here.
        query: initial state of the query stream, (H,) or (K, H).
        keep, reuse: see `Memory.next`. With `keep` 0 nothing is kept.
        rows: int64 (P,), increasing: the requested rows of T where there is no query stream.

    Returns:
        The query stream (K, H); without targets the content stream, (T, H) or (P, H). And the next memory.

    Raises:
        SettingsError: see `check_segments`.
    """
    config, packed = encoder.config, segments.packed
    check_segments(config)
    with encoder.forward_pass() as ops:
        x_TH = encoder.embeddings(packed, ops.form.dtype)
        if memory is None:
            memory = Memory.empty(packed.num_sequences, config.num_hidden_layers, x_TH)
        layout = _Layout.of(encoder, segments, memory, x_TH)
        layer, inputs, x_RH = encoder.layer_function(x_TH), [], x_TH
        if segments.targets is not None:
            assert query is not None
            query_KH = ops.cast(query, x_TH.dtype).expand(len(segments.targets), -1)
            query_KH = F.dropout(query_KH, config.hidden_dropout_prob, encoder.training)
            x_RH = torch.cat([x_TH, query_KH]).index_select(0, layout.order)
        requested = layout.targets if segments.targets is not None else rows
        queries = layout.queries
        for d in range(config.num_hidden_layers):
            content_TH = x_RH if segments.targets is None else x_RH.index_select(0, layout.contents)
            if keep:
                inputs.append(content_TH)
            context = content_TH
            if layout.merge is not None:
                old = memory.states[d].to(content_TH.dtype)
                context = torch.cat([old, content_TH]).index_select(0, layout.merge)
            last = d == config.num_hidden_layers - 1
            if last and requested is not None and segments.masks is None:
                x_RH, queries = x_RH.index_select(0, requested), layout.queries.select(requested).rows
                requested = None
            x_RH = layer(d, x_RH, context, queries, layout.keys)
        if requested is not None:
            x_RH = x_RH.index_select(0, requested)
        if encoder.final_norm is not None:
            x_RH = encoder.final_norm(x_RH)
    kept = (
        memory.next(inputs, packed.lengths, keep, reuse)
        if keep
        else Memory.empty(packed.num_sequences, config.num_hidden_layers, x_TH)
    )
    return x_RH, kept


@without_autocast
def predict_segments(
    model: Model,
    segments: Segments,
    memory: Memory | None = None,
    *,
    rows: Tensor | None = None,
    keep: int = 0,
    reuse: int | None = None,
) -> tuple[Tensor, Memory]:
    """Logits (P, V) of the language-model head for the targets, or without targets for the requested rows; by
    the masked-LM head where the model has no other. And the next memory.

    Args: as of `encode_segments`.

    Raises:
        SettingsError: no head, or targets without a head for the query stream.
    """
    query = None if model.lm is None else model.lm.query
    head = model.lm or model.mlm
    if head is None or (query is None and segments.targets is not None):
        kind = "has no head that predicts tokens" if head is None else "cannot begin a second stream"
        raise SettingsError(f"this model {kind}", remedy='Build it with heads={"lm", …}')
    with model.encoder.forward_pass():
        x_PH, kept = encode_segments(
            model.encoder, segments, memory, query=query, keep=keep, reuse=reuse, rows=rows
        )
        return head(x_PH, model.encoder.embeddings), kept


@dataclass(frozen=True, eq=False)
class _Layout:
    """Layout of the rows of a pass.

    Attributes:
        queries: metadata of the query tokens: of each sequence the content stream, then the query stream.
        keys: metadata of the key/value tokens: of each sequence the memory, then the content stream.
        order: the rows of `queries` among (content stream, query stream). contents, targets: their places in
            `queries`.
        merge: the rows of `keys` among (memory, content stream); None: there is no memory.
    """

    queries: Rows
    keys: Rows
    order: Tensor
    contents: Tensor
    targets: Tensor
    merge: Tensor | None

    @classmethod
    def of(cls, encoder: Encoder, segments: Segments, memory: Memory, x_TH: Tensor) -> _Layout:
        packed, device = segments.packed, x_TH.device
        ends = np.cumsum(packed.lengths)
        counts = [0] * packed.num_sequences
        if segments.targets is not None:
            places = np.searchsorted(segments.targets.cpu().numpy(), [0, *ends])
            counts = np.diff(places).tolist()
        interleaved = _interleaved(packed.lengths, counts)
        order = torch.from_numpy(interleaved).to(device)
        is_target = torch.from_numpy(interleaved >= packed.num_tokens).to(device)
        lengths = tuple(n + k for n, k in zip(packed.lengths, counts, strict=True))
        key_lengths = tuple(m + n for m, n in zip(memory.lengths, packed.lengths, strict=True))
        longest = max(key_lengths, default=0)
        rows = replace(Rows.of(packed), visible=segments.visible)
        content = with_positions(rows, encoder.config, x_TH, encoder.training, longest)
        merge = memory.merge(packed.lengths).to(device) if any(memory.lengths) else None
        queries = _query_rows(content, segments, lengths, order)
        keys = content if merge is None else _key_rows(content, memory, key_lengths, merge)
        return cls(queries, keys, order, (~is_target).nonzero()[:, 0], is_target.nonzero()[:, 0], merge)


def _interleaved(lengths: Sequence[int], counts: Sequence[int]) -> np.ndarray:
    """The order of (content stream, query stream) in which the rows of each sequence are contiguous."""
    content, query = np.cumsum((0, *lengths)), sum(lengths) + np.cumsum((0, *counts))
    both = zip(content, content[1:], query, query[1:], strict=False)
    return np.concatenate([np.r_[a:b, c:d] for a, b, c, d in both])


def _query_rows(content: Rows, segments: Segments, lengths: tuple[int, ...], order: Tensor) -> Rows:
    """Metadata of the query tokens: of each sequence its contents, then its targets."""
    distances = content.distances
    assert distances is not None
    masks = segments.masks
    if masks is not None and segments.target_masks is not None:
        masks = tuple(map(torch.cat, zip(masks, segments.target_masks, strict=True)))
    distances = replace(
        distances,
        backward=segments.backward,
        leading=content.lengths,
        reach=segments.reach,
        masks=masks,
    )
    if segments.targets is None:
        return replace(content, distances=distances)
    positions, types = (
        torch.cat([x, x[segments.targets]])[order] for x in (content.positions, content.token_types)
    )
    visible = None
    if segments.visible is not None and segments.target_until is not None:
        when, until = segments.visible
        until = torch.cat([until, segments.target_until])[order]
        visible = Visibility(torch.cat([when, when[segments.targets]])[order], until)
    offsets = np.cumsum((0, *lengths)).astype(np.int32)
    return replace(
        content,
        cu_seqlens=torch.from_numpy(offsets).to(order.device),
        lengths=lengths,
        longest=max(lengths, default=0),
        positions=positions,
        token_types=types,
        visible=visible,
        distances=distances,
    )


def _key_rows(content: Rows, memory: Memory, lengths: tuple[int, ...], merge: Tensor) -> Rows:
    """Metadata of the key/value tokens: the memory, at positions below 0 and in segment 0 as in XLNet's code,
    and the contents."""
    before = torch.from_numpy(np.concatenate([np.arange(-m, 0) for m in memory.lengths])).to(merge.device)
    zeros = torch.zeros_like(before)
    positions = torch.cat([before, content.positions])[merge]
    types = torch.cat([zeros, content.token_types])[merge]
    visible = None
    if content.visible is not None:
        when = torch.cat([zeros + IN_MEMORY, content.visible.when])[merge]
        visible = Visibility(when, when)
    offsets = np.cumsum((0, *lengths)).astype(np.int32)
    return replace(
        content,
        cu_seqlens=torch.from_numpy(offsets).to(merge.device),
        lengths=lengths,
        longest=max(lengths, default=0),
        positions=positions,
        token_types=types,
        visible=visible,
    )
