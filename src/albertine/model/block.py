"""The two kinds of block: self-attention and feed-forward, each with the LayerNorm after it (post-LN).

Weights live as separate float32 parameters, the way checkpoints name them and LAMB adapts them. A forward
pass prepares each distinct block once (query, key and value fused, everything cast to the compute format) and
applies the result at every depth that shares the block.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from albertine.model.attention import RowSubset, Segments, attend
from albertine.model.config import EncoderConfig
from albertine.model.fused import Fused, Kernel, fuses, int8_of, worth_rounding
from albertine.model.kept import Kept
from albertine.model.memory import Join
from albertine.model.product import Product
from albertine.precision import Format

Linear = Product | Kernel


def stacked(*layers: nn.Linear, dtype: torch.dtype, plain: bool = False) -> Product:
    """The layers in the compute format, as one product that computes them all."""
    weights: list[Tensor] = [layer.weight.to(dtype) for layer in layers]
    biases: list[Tensor] = [layer.bias.to(dtype) for layer in layers]
    if len(layers) == 1:
        return Product(weights[0], biases[0], plain)
    return Product(torch.cat(weights), torch.cat(biases), plain)


def ready(*layers: nn.Linear, form: Format, training: bool) -> Linear:
    """The same for a block, whose products are kept: for inference on a processor in the kernels' own
    layout."""
    if form.int8:
        whole = stacked(*layers, dtype=torch.float32)
        return int8_of(whole.weight, whole.bias, form.dtype)
    whole = stacked(*layers, dtype=form.dtype, plain=form.compiled)
    plain = training or torch.is_grad_enabled() or torch.compiler.is_compiling()
    if plain or whole.weight.device.type != "cpu" or not fuses(form.dtype):
        return whole
    return Fused(whole.weight, whole.bias)


class Norm(NamedTuple):
    """LayerNorm's scale and shift in the compute format; its statistics are computed in float32 in any
    case."""

    weight: Tensor
    bias: Tensor
    eps: float

    @classmethod
    def of(cls, layer: nn.LayerNorm, dtype: torch.dtype) -> Norm:
        return cls(layer.weight.to(dtype), layer.bias.to(dtype), layer.eps)

    def __call__(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias, self.eps)


@dataclass(frozen=True)
class PreparedAttention:
    """Self-attention, output product, residual and LayerNorm, with weights ready to multiply."""

    qkv: Linear
    output: Linear
    norm: Norm
    num_heads: int
    dropout: float
    attention_dropout: float

    def __call__(self, x_TH: Tensor, keys: Segments, subset: RowSubset | None) -> Tensor:
        """(T, H) to (T, H), or to (R, H) where only the rows of `subset` are wanted as queries."""
        hidden = x_TH.shape[1]
        if subset is None:
            q, k, v = self._split(self.qkv(x_TH), 3)
            queries, residual = keys, x_TH
        else:
            residual, queries = x_TH.index_select(0, subset.sorted_rows), subset.segments
            (q,) = self._split(self.qkv(residual, 0, hidden), 1)
            k, v = self._split(self.qkv(x_TH, hidden), 2)
        context_RH = attend(q, k, v, queries, keys, self.attention_dropout).flatten(1)
        return self.norm(self.output.added(context_RH, residual, self.dropout))

    def extend(self, x_RH: Tensor, past: tuple[Tensor, Tensor], join: Join) -> tuple[Tensor, Tensor, Tensor]:
        """New rows (R, H) after those whose keys and values are `past`; with the keys and values of all."""
        q, *new = self._split(self.qkv(x_RH), 3)
        k, v = (torch.cat(pair).index_select(0, join.order) for pair in zip(past, new, strict=True))
        context_RH = attend(q, k, v, join.queries, join.keys, 0.0).flatten(1)
        return self.norm(self.output.added(context_RH, x_RH)), k, v

    def _split(self, x: Tensor, parts: int) -> tuple[Tensor, ...]:
        return x.view(x.shape[0], parts, self.num_heads, x.shape[1] // (parts * self.num_heads)).unbind(1)


@dataclass(frozen=True)
class PreparedFeedForward:
    """Up, activation, down, residual and LayerNorm, with weights ready to multiply."""

    intermediate: Linear
    output: Linear
    norm: Norm
    activation: str
    dropout: float

    def __call__(self, x_TH: Tensor) -> Tensor:
        """(T, H) to (T, H); without gradients it may overwrite `x_TH`."""
        if isinstance(self.intermediate, Kernel) and isinstance(self.output, Kernel):
            return self.norm(self.intermediate.chained(x_TH, self.activation, self.output, x_TH))
        y_TF = self.intermediate.activated(x_TH, self.activation)
        return self.norm(self.output.added(y_TF, x_TH, self.dropout))


class AttentionBlock(nn.Module):
    """Parameters of self-attention: 4(H²+H) and the 2H of its LayerNorm."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        hidden = config.hidden_size
        self.config = config
        self.query = nn.Linear(hidden, hidden)
        self.key = nn.Linear(hidden, hidden)
        self.value = nn.Linear(hidden, hidden)
        self.output = nn.Linear(hidden, hidden)
        self.layer_norm = nn.LayerNorm(hidden, config.layer_norm_eps)
        self._kept: Kept[PreparedAttention] = Kept()

    def prepare(self, form: Format) -> PreparedAttention:
        """Fused and cast, once per forward pass."""
        return self._kept.get(self, form, self._prepare)

    def _prepare(self, form: Format) -> PreparedAttention:
        hidden, training = self.config.hidden_size, self.training
        return PreparedAttention(
            ready(self.query, self.key, self.value, form=worth_rounding(3 * hidden, form), training=training),
            ready(self.output, form=worth_rounding(hidden, form), training=training),
            Norm.of(self.layer_norm, form.dtype),
            self.config.num_attention_heads,
            self.config.hidden_dropout_prob if self.training else 0.0,
            self.config.attention_probs_dropout_prob if self.training else 0.0,
        )


class FeedForwardBlock(nn.Module):
    """Parameters of the feed-forward: 2·H·F+F+H and the 2H of its LayerNorm."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.config = config
        self.intermediate = nn.Linear(config.hidden_size, config.intermediate_size)
        self.output = nn.Linear(config.intermediate_size, config.hidden_size)
        self.layer_norm = nn.LayerNorm(config.hidden_size, config.layer_norm_eps)
        self._kept: Kept[PreparedFeedForward] = Kept()

    def prepare(self, form: Format) -> PreparedFeedForward:
        """Cast, once per forward pass."""
        return self._kept.get(self, form, self._prepare)

    def _prepare(self, form: Format) -> PreparedFeedForward:
        drops = self.training and self.config.feed_forward_dropout
        return PreparedFeedForward(
            ready(self.intermediate, form=form, training=self.training),
            ready(self.output, form=form, training=self.training),
            Norm.of(self.layer_norm, form.dtype),
            self.config.hidden_act,
            self.config.hidden_dropout_prob if drops else 0.0,
        )
