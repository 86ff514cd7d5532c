"""The encoder: embeddings, then the blocks that the sharing plan names for each depth."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from albertine.errors import SettingsError
from albertine.layout import Packed, with_filler
from albertine.model.attention import RowSubset, Segments
from albertine.model.block import AttentionBlock, FeedForwardBlock, PreparedAttention, PreparedFeedForward
from albertine.model.compiled import compiles
from albertine.model.compiled import depth as compiled_depth
from albertine.model.config import EncoderConfig
from albertine.model.embeddings import Embeddings
from albertine.model.memory import Join, Memory
from albertine.precision import Format, InferencePrecision, compute_format

if TYPE_CHECKING:
    from albertine.settings import Computing


@dataclass(frozen=True)
class EncoderOutput:
    """What an encoder computed.

    Attributes:
        last_hidden: (T, H), or (R, H) in the order of the rows asked for.
        hidden_states: with all_depths, the embeddings and every depth's output, each (T, H); else None.
    """

    last_hidden: Tensor
    hidden_states: tuple[Tensor, ...] | None = None


class Encoder(nn.Module):
    """A parameter-shared transformer encoder over packed batches.

    Attributes:
        precision: format of the matrix products; parameters are float32 whatever it says.
        recompute: in training keep only the rows that go from depth to depth, and compute the rest of a depth
            again in its backward pass.
        compiled: in training compile a depth as one, on a GPU.
    """

    recompute = False
    compiled = False

    def __init__(self, config: EncoderConfig, precision: InferencePrecision = "float32") -> None:
        super().__init__()
        self.config = config
        self.precision: InferencePrecision = precision
        self.embeddings = Embeddings(config)
        plan = config.plan
        self.attention = nn.ModuleList(AttentionBlock(config) for _ in range(plan.num_attention_blocks))
        self.feed_forward = nn.ModuleList(
            FeedForwardBlock(config) for _ in range(plan.num_feed_forward_blocks)
        )

    def compute_as(self, how: Computing) -> None:
        """Follow the settings of a run."""
        self.precision, self.recompute, self.compiled = how.precision, how.recompute, how.compile

    @property
    def format(self) -> Format:
        """How products are computed on the device where the parameters are."""
        form = compute_format(self.precision, self.embeddings.word.weight.device)
        if self.compiled and torch.is_grad_enabled():
            return form._replace(compiled=compiles(self.embeddings.word.weight.device))
        return form

    def forward(
        self,
        packed: Packed,
        *,
        depth: int | None = None,
        rows: Tensor | None = None,
        all_depths: bool = False,
    ) -> EncoderOutput:
        """Encode a packed batch.

        Args:
            depth: how many depths to compute (an early exit), default all; 0 gives the embeddings.
            rows: int64 (R,) indices into T, none more than twice: the only rows wanted from the last computed
                depth, which then computes queries, output and feed-forward for these alone.
            all_depths: also return the output of every depth, for analysis; not together with `rows`.

        Raises:
            SettingsError: depth outside 0..num_hidden_layers, a sequence longer than the position table, or
                `rows` together with `all_depths`.
        """
        depth = self._checked(packed, depth, rows, all_depths)
        real, form = packed.num_tokens, self.format
        packed = with_filler(packed, steady(real, form, packed.input_ids.device))
        x = self.embeddings(packed, form.dtype)
        steps = self.prepare(depth)
        keys = Segments.of(packed)
        states = [x]
        for attention, feed_forward in steps[:-1] if rows is not None else steps:
            x = self._depth(x, keys, attention, feed_forward, form)
            if all_depths:
                states.append(x)
        if rows is not None:
            return EncoderOutput(_last_depth(x, steps[-1:], keys, rows, packed))
        return EncoderOutput(x[:real], tuple(state[:real] for state in states) if all_depths else None)

    def _depth(
        self,
        x_TH: Tensor,
        keys: Segments,
        attention: PreparedAttention,
        feed_forward: PreparedFeedForward,
        form: Format,
    ) -> Tensor:
        def run(x_TH: Tensor) -> Tensor:
            if form.compiled:
                return compiled_depth(x_TH, keys, attention, feed_forward)
            return feed_forward(attention(x_TH, keys, None))

        if not (self.recompute and torch.is_grad_enabled()):
            return run(x_TH)
        return cast(Tensor, checkpoint(run, x_TH, use_reentrant=False))

    def extend(self, packed: Packed, memory: Memory | None = None) -> tuple[Tensor, Memory]:
        """Read sequences on, for inference.

        Args:
            packed: the new tokens of each sequence, without `prefix`; they see all before them and each
                other. Their positions go on where those of `memory` ended.
            memory: what is kept of the same sequences; None begins them.

        Returns:
            (T, H) of the new tokens, and the memory with them.

        Raises:
            SettingsError: a sequence grows longer than the position table.
        """
        dtype, depths = self.format.dtype, self.config.num_hidden_layers
        join = Join.of(packed, memory)
        self._check_length(join.keys.longest)
        x = self.embeddings(packed, dtype)
        none = x.new_empty(0, self.config.num_attention_heads, self.config.head_size)
        keys, values = [], []
        for depth, (attention, feed_forward) in enumerate(self.prepare(depths)):
            past = (none, none) if memory is None else (memory.keys[depth], memory.values[depth])
            x, k, v = attention.extend(x, past, join)
            x = feed_forward(x)
            keys.append(k)
            values.append(v)
        return x, Memory(tuple(keys), tuple(values), join.starts, join.lengths)

    def prepare(self, depth: int) -> list[tuple[PreparedAttention, PreparedFeedForward]]:
        """The blocks of the first `depth` depths, each distinct one cast and fused once.

        Raises:
            SettingsError: int8 where gradients are wanted, or where it is not to be had.
        """
        form, plan = self.format, self.config.plan
        if form.int8 and (self.training or torch.is_grad_enabled()):
            raise SettingsError(
                "int8 is for inference",
                remedy="Call model.eval(), and the model under torch.inference_mode()",
            )
        attention = {
            i: cast(AttentionBlock, self.attention[i]).prepare(form) for i in set(plan.attention[:depth])
        }
        feed_forward = {
            i: cast(FeedForwardBlock, self.feed_forward[i]).prepare(form)
            for i in set(plan.feed_forward[:depth])
        }
        return [(attention[plan.attention[d]], feed_forward[plan.feed_forward[d]]) for d in range(depth)]

    def _checked(self, packed: Packed, depth: int | None, rows: Tensor | None, all_depths: bool) -> int:
        depth = self.config.num_hidden_layers if depth is None else depth
        if not 0 <= depth <= self.config.num_hidden_layers:
            raise SettingsError(f"depth {depth} is outside 0..{self.config.num_hidden_layers}")
        self._check_length(packed.max_length)
        if rows is not None and all_depths:
            raise SettingsError("all_depths computes every row; ask for rows or for all_depths")
        return depth

    def _check_length(self, longest: int) -> None:
        if longest > self.config.max_position_embeddings:
            raise SettingsError(
                f"a sequence of {longest} tokens is longer than the model's "
                f"{self.config.max_position_embeddings} positions",
                remedy="Truncate the text, or split it into windows",
            )


def steady(num_tokens: int, form: Format, device: torch.device) -> int:
    """The number of rows to compute for that many tokens: at most a sixteenth more, or 15.

    oneDNN compiles its kernels anew for every number of rows, which for a small model takes as long as the
    products; with few different numbers the compiled ones are found again. It computes all products of a CPU
    but those of training in float32.
    """
    training = torch.is_grad_enabled() and form.dtype == torch.float32 and not form.int8
    if device.type != "cpu" or training:
        return num_tokens
    multiple = 16 if num_tokens < 512 else 32 if num_tokens < 1024 else 64
    return -(-num_tokens // multiple) * multiple


def _last_depth(
    x_TH: Tensor,
    step: list[tuple[PreparedAttention, PreparedFeedForward]],
    keys: Segments,
    rows: Tensor,
    packed: Packed,
) -> Tensor:
    """The last depth for the wanted rows alone; keys and values still come from all of T."""
    if not step:
        return x_TH.index_select(0, rows)
    attention, feed_forward = step[0]
    subset = RowSubset.of(rows, packed)
    x_RH = feed_forward(attention(x_TH, keys, subset))
    return x_RH if subset.restore is None else x_RH.index_select(0, subset.restore)
