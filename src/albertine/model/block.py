"""The two kinds of block, self-attention and feed-forward, each with its LayerNorm: after it (post) or before
it (pre).

The mathematics stands here; how a product, an attention or a norm is computed is the backend's affair
(`model/backend/`). What a backend takes together, such as a product and what is added to it, it may compute
in one step; layers that were replaced or hooked (adapters, probes) are simply called.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from albertine.model.backend import current
from albertine.model.config import EncoderConfig
from albertine.model.key_value_cache import Past
from albertine.model.layer_parameters import Own, hidden_norm
from albertine.model.layers import Linear, Module
from albertine.model.rows import Rows


class Block(Module):
    """What the two kinds have in common: x + f(x), normalised behind the sum or before f."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.pre = config.norm == "pre"
        self.dropout = config.hidden_dropout_prob
        self.layer_norm = None if "norms" in config.plan.own else hidden_norm(config)

    def normed(self, x: Tensor, own: Own | None) -> Tensor:
        """x by this block's LayerNorm, or by the depth's own."""
        norm = self.layer_norm if own is None or own.layer_norm is None else own.layer_norm
        return norm(x)  # type: ignore[no-any-return, misc]

    def read(self, x: Tensor, own: Own | None) -> Tensor:
        """What f is given of x: all of it, or in a pre-norm block its LayerNorm."""
        return self.normed(x, own) if self.pre else x

    def added(self, layer: Linear, y: Tensor, x: Tensor, read: Tensor, own: Own | None) -> Tensor:
        """x + own(dropout(layer(y))), or its LayerNorm in a post-norm block; `read` is what f was given."""
        dropout = self.training * self.dropout
        if own is None or own.changes_nothing:
            x = current().added(layer, y, x, dropout)
        else:
            x = x + own(F.dropout(layer(y), dropout, dropout > 0), read)
        return x if self.pre else self.normed(x, own)


class AttentionBlock(Block):
    """4(H²+H) parameters of self-attention and the 2H of its LayerNorm (Vaswani et al. 2017, 3.2)."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__(config)
        hidden, bias = config.hidden_size, config.attention_biases
        self.num_heads, self.head_size = config.num_attention_heads, config.head_size
        self.attention_dropout = config.attention_probs_dropout_prob
        self.query = Linear(hidden, hidden, bias)
        self.key = Linear(hidden, hidden, bias)
        self.value = Linear(hidden, hidden, bias)
        self.output = Linear(hidden, hidden, bias)

    def forward(
        self,
        x_RH: Tensor,
        context_TH: Tensor,
        queries: Rows,
        keys: Rows,
        past: Past | None = None,
        own: Own | None = None,
    ) -> Tensor:
        """x + output(softmax(q·kᵀ/√D)·v) inside each sequence, with a LayerNorm behind or before, (R, H).

        Args:
            x_RH: the rows that ask. context_TH: the rows that are looked at; often the same tensor.
            queries, keys: what is known of the rows of x and of the context; with `past`, of all its rows.
            past: keys and values of rows read before; it takes those of the context too, whose rows are then
                those of x.
            own: what this depth has of its own.
        """
        read_RH = self.read(x_RH, own)
        context_TH = read_RH if context_TH is x_RH else self.read(context_TH, own)
        new = keys if past is None else queries
        q_RND, k_TND, v_TND = self.projected(read_RH, context_TH, queries, new)
        if past is not None:
            k_TND, v_TND = past.extend(k_TND, v_TND)
        mixed_RND = self.attend(q_RND, k_TND, v_TND, queries, keys)
        return self.added(self.output, mixed_RND.flatten(1), x_RH, read_RH, own)

    def projected(
        self, x_RH: Tensor, context_TH: Tensor, queries: Rows, keys: Rows
    ) -> tuple[Tensor, Tensor, Tensor]:
        """By heads, the queries (R, N, D), and the keys and values (T, N, D) of rows as they are read."""
        layers, heads = (self.query, self.key, self.value), (-1, self.num_heads, self.head_size)
        q_RH, k_TH, v_TH = current().linears(layers, (x_RH, context_TH, context_TH))
        return q_RH.view(heads), k_TH.view(heads), v_TH.view(heads)

    def attend(self, q_RND: Tensor, k_TND: Tensor, v_TND: Tensor, queries: Rows, keys: Rows) -> Tensor:
        """softmax(q·kᵀ/√D)·v inside each sequence, (R, N, D)."""
        dropout = self.training * self.attention_dropout
        return current().attend(q_RND, k_TND, v_TND, queries, keys, dropout)


class FeedForwardBlock(Block):
    """2·H·F+F+H parameters of the feed-forward (Vaswani et al. 2017, 3.3), F·(H+1) more if it is gated, and
    the 2H of its LayerNorm."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__(config)
        self.activation, self.gated = config.hidden_act, config.feed_forward == "gated"
        if not config.feed_forward_dropout:
            self.dropout = 0.0
        wide = config.intermediate_size * (2 if self.gated else 1)
        self.intermediate = Linear(config.hidden_size, wide, config.biases)
        self.output = Linear(config.intermediate_size, config.hidden_size, config.biases)

    def forward(self, x_RH: Tensor, own: Own | None = None) -> Tensor:
        """x + output(activation(intermediate(x))) of each row, with a LayerNorm behind or before, (R, H)."""
        read_RH = self.read(x_RH, own)
        return self.added(self.output, self.inner(read_RH), x_RH, read_RH, own)

    def inner(self, x_RH: Tensor) -> Tensor:
        """activation(intermediate(x)), (R, F)."""
        if not self.gated:
            return current().activated(self.intermediate, x_RH, self.activation)
        y_RF, gate_RF = self.intermediate(x_RH).chunk(2, -1)
        return current().activate(y_RF, self.activation) * gate_RF  # type: ignore[no-any-return]
