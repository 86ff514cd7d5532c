"""One pass over segments of longer texts: with a memory of what was read before, in any order of
factorisation, and with XLNet's second stream (Yang et al. 2019, sections 2.2 to 2.5).

The second stream is more rows that ask: a row for each token to predict, which stands at the token's place
and does not know the token. They look at the rows of the first stream, the contents, and nobody looks at
them; so a depth is one call of the encoder's `step` with more rows, and of the last one only those are
computed that are wanted.
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
from albertine.model.position_inputs import placed
from albertine.model.rows import Rows
from albertine.model.segment_memory import Memory
from albertine.model.visibility import Visibility

REMEMBERED = -1
"""`Visibility.when` of what a memory holds: all see it."""


@dataclass(frozen=True, eq=False)
class Segments:
    """A batch of segments, and how they are to be read.

    Attributes:
        packed: the tokens.
        visible: who sees whom among them; None: all see all.
        targets: int64 (K,), increasing: rows of T that the second stream asks for, in place of the contents;
            each sees what its `until` in `asking` lets it see. None: there is no second stream.
        asking: `until` of the targets, int64 (K,).
        backward: of each sequence whether its text is reversed; None: no text is.
        reach: see `Distances`. masks, asking_masks: bool (n, m + n) and (k, m + n) for each sequence, m rows
            being of the memory, in place of `visible` and `asking`, for what these cannot say.
    """

    packed: Packed
    visible: Visibility | None = None
    targets: Tensor | None = None
    asking: Tensor | None = None
    backward: tuple[bool, ...] | None = None
    reach: int | None = None
    masks: tuple[Tensor, ...] | None = None
    asking_masks: tuple[Tensor, ...] | None = None


def check_segments(config: EncoderConfig) -> None:
    """Refuse an encoder that cannot read segments with a memory or a second stream.

    Raises:
        SettingsError: it has no relative positions, without which a memory has no place, or it halts, adds
            signals of places or embeddings, or runs to a fixed point.
    """
    if config.positions != "relative":
        raise SettingsError(
            "a memory, a reach and a second stream want relative positions, and this encoder's are "
            f"{config.positions}",
            remedy="Use an encoder with positions: relative, such as the preset xlnet-base",
        )
    if config.halts or config.position_signal != "none":
        raise SettingsError(
            "a memory knows neither how long earlier rows were computed nor at which places they stood",
            remedy="Use an encoder with halting: none and position_signal: none",
        )
    if config.solves or config.input_injection or "injection" in config.plan.own:
        raise SettingsError(
            "a memory and a second stream keep what every depth was given, which a fixed point and injection "
            "have not",
            remedy="Use an encoder with solver: none, input_injection: false, and no injection in own",
        )


@without_autocast
def read_segments(
    encoder: Encoder,
    segments: Segments,
    memory: Memory | None = None,
    *,
    query: Tensor | None = None,
    keep: int = 0,
    reuse: int | None = None,
    rows: Tensor | None = None,
) -> tuple[Tensor, Memory]:
    """Read segments.

    Args:
        memory: of the same sequences; None: they begin here.
        query: what the second stream begins with, (H,) or (K, H).
        keep, reuse: see `Memory.next`. With `keep` 0 nothing is kept.
        rows: int64 (P,), increasing: the only rows of T that are wanted where there is no second stream.

    Returns:
        The second stream (K, H); without targets the contents, (T, H) or (P, H). And the next memory.

    Raises:
        SettingsError: see `check_segments`.
    """
    config, packed = encoder.config, segments.packed
    check_segments(config)
    with encoder.computing() as ops:
        x_TH = encoder.embeddings(packed, ops.form.dtype)
        if memory is None:
            memory = Memory.empty(packed.num_sequences, config.num_hidden_layers, x_TH)
        plan = _Plan.of(encoder, segments, memory, x_TH)
        step, inputs, x_RH = encoder.stepping(x_TH), [], x_TH
        if segments.targets is not None:
            assert query is not None
            query_KH = ops.cast(query, x_TH.dtype).expand(len(segments.targets), -1)
            query_KH = F.dropout(query_KH, config.hidden_dropout_prob, encoder.training)
            x_RH = torch.cat([x_TH, query_KH]).index_select(0, plan.order)
        wanted = plan.targets if segments.targets is not None else rows
        queries = plan.queries
        for d in range(config.num_hidden_layers):
            content_TH = x_RH if segments.targets is None else x_RH.index_select(0, plan.contents)
            if keep:
                inputs.append(content_TH)
            context = content_TH
            if plan.merge is not None:
                old = memory.states[d].to(content_TH.dtype)
                context = torch.cat([old, content_TH]).index_select(0, plan.merge)
            last = d == config.num_hidden_layers - 1
            if last and wanted is not None and segments.masks is None:
                x_RH, queries = x_RH.index_select(0, wanted), plan.queries.select(wanted).rows
                wanted = None
            x_RH = step(d, x_RH, context, queries, plan.keys)
        if wanted is not None:
            x_RH = x_RH.index_select(0, wanted)
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
    """Logits (P, V) of the language-model head for the targets, or without targets for the rows asked for;
    by the masked-LM head where the model has no other. And the next memory.

    Args: as of `read_segments`.

    Raises:
        SettingsError: no head, or targets and no head that begins a second stream.
    """
    query = None if model.lm is None else model.lm.query
    head = model.lm or model.mlm
    if head is None or (query is None and segments.targets is not None):
        kind = "has no head that predicts tokens" if head is None else "cannot begin a second stream"
        raise SettingsError(f"this model {kind}", remedy='Build it with heads={"lm", …}')
    with model.encoder.computing():
        x_PH, kept = read_segments(
            model.encoder, segments, memory, query=query, keep=keep, reuse=reuse, rows=rows
        )
        return head(x_PH, model.encoder.embeddings), kept


@dataclass(frozen=True, eq=False)
class _Plan:
    """Where the rows of a pass are.

    Attributes:
        queries: rows that ask, of each sequence the contents and then the second stream. keys: rows looked
            at, of each sequence the memory and then the contents.
        order: of (contents, second stream) those of `queries`. contents, targets: where they are there.
        merge: of (memory, contents) the rows of `keys`; None: there is no memory.
    """

    queries: Rows
    keys: Rows
    order: Tensor
    contents: Tensor
    targets: Tensor
    merge: Tensor | None

    @classmethod
    def of(cls, encoder: Encoder, segments: Segments, memory: Memory, x_TH: Tensor) -> _Plan:
        packed, device = segments.packed, x_TH.device
        ends = np.cumsum(packed.lengths)
        counts = [0] * packed.num_sequences
        if segments.targets is not None:
            places = np.searchsorted(segments.targets.cpu().numpy(), [0, *ends])
            counts = np.diff(places).tolist()
        asked = _interleaved(packed.lengths, counts)
        order = torch.from_numpy(asked).to(device)
        is_target = torch.from_numpy(asked >= packed.num_tokens).to(device)
        lengths = tuple(n + k for n, k in zip(packed.lengths, counts, strict=True))
        seen = tuple(m + n for m, n in zip(memory.lengths, packed.lengths, strict=True))
        longest = max(seen, default=0)
        rows = replace(Rows.of(packed), visible=segments.visible)
        content = placed(rows, encoder.config, x_TH, encoder.training, longest)
        merge = memory.merge(packed.lengths).to(device) if any(memory.lengths) else None
        queries = _asking(content, segments, lengths, order)
        keys = content if merge is None else _looked_at(content, memory, seen, merge)
        return cls(queries, keys, order, (~is_target).nonzero()[:, 0], is_target.nonzero()[:, 0], merge)


def _interleaved(lengths: Sequence[int], counts: Sequence[int]) -> np.ndarray:
    """Of (contents, second stream) the order in which each sequence's stand together."""
    new, asked = np.cumsum((0, *lengths)), sum(lengths) + np.cumsum((0, *counts))
    both = zip(new, new[1:], asked, asked[1:], strict=False)
    return np.concatenate([np.r_[a:b, c:d] for a, b, c, d in both])


def _asking(content: Rows, segments: Segments, lengths: tuple[int, ...], order: Tensor) -> Rows:
    """The rows that ask: contents, and behind those of each sequence its targets."""
    distances = content.distances
    assert distances is not None
    masks = segments.masks
    if masks is not None and segments.asking_masks is not None:
        masks = tuple(map(torch.cat, zip(masks, segments.asking_masks, strict=True)))
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
    if segments.visible is not None and segments.asking is not None:
        when, until = segments.visible
        until = torch.cat([until, segments.asking])[order]
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


def _looked_at(content: Rows, memory: Memory, seen: tuple[int, ...], merge: Tensor) -> Rows:
    """The rows that are looked at: the memory's, before the first place of their sequence, in segment 0 as in
    XLNet's code, and the contents."""
    places = np.concatenate([np.arange(-m, 0) for m in memory.lengths])
    before = torch.from_numpy(places).to(merge.device)
    nothing = torch.zeros_like(before)
    positions = torch.cat([before, content.positions])[merge]
    types = torch.cat([nothing, content.token_types])[merge]
    visible = None
    if content.visible is not None:
        when = torch.cat([nothing + REMEMBERED, content.visible.when])[merge]
        visible = Visibility(when, when)
    offsets = np.cumsum((0, *seen)).astype(np.int32)
    return replace(
        content,
        cu_seqlens=torch.from_numpy(offsets).to(merge.device),
        lengths=seen,
        longest=max(seen, default=0),
        positions=positions,
        token_types=types,
        visible=visible,
    )
