"""The two kinds of block, self-attention and feed-forward, each with the LayerNorm after it (post-LN).

The mathematics stands here; how a product, an attention or a norm is computed is the backend's affair
(`model/backend/`). What a backend takes together, such as a product and what is added to it, it may compute
in one step; layers that were replaced or hooked (adapters, probes) are simply called.
"""

from __future__ import annotations

from torch import Tensor, nn

from albertine.model.backend import current
from albertine.model.config import EncoderConfig
from albertine.model.key_value_cache import Past
from albertine.model.rows import Rows


class Linear(nn.Linear):
    """x·Wᵀ + b in the format of x, (…, in) to (…, out); parameters are float32."""

    computed_by_backend = True

    def forward(self, x: Tensor) -> Tensor:
        return current().linear(self, x)


class LayerNorm(nn.LayerNorm):
    """(x - mean) / standard deviation of each row, times a scale plus a shift; in the format of x."""

    def forward(self, x: Tensor) -> Tensor:
        return current().layer_norm(self, x)


class AttentionBlock(nn.Module):
    """4(H²+H) parameters of self-attention and the 2H of its LayerNorm (Vaswani et al. 2017, 3.2)."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        hidden = config.hidden_size
        self.num_heads, self.head_size = config.num_attention_heads, config.head_size
        self.dropout, self.attention_dropout = config.hidden_dropout_prob, config.attention_probs_dropout_prob
        self.query = Linear(hidden, hidden)
        self.key = Linear(hidden, hidden)
        self.value = Linear(hidden, hidden)
        self.output = Linear(hidden, hidden)
        self.layer_norm = LayerNorm(hidden, config.layer_norm_eps)

    def forward(
        self, x_RH: Tensor, context_TH: Tensor, queries: Rows, keys: Rows, past: Past | None = None
    ) -> Tensor:
        """LayerNorm(x + output(softmax(q·kᵀ/√D)·v)) inside each sequence, (R, H).

        Args:
            x_RH: the rows that ask. context_TH: the rows that are looked at; often the same tensor.
            queries, keys: what is known of the rows of x and of the context; with `past`, of all its rows.
            past: keys and values of rows read before; it takes those of the context too.
        """
        ops, on = current(), float(self.training)
        layers, inputs = (self.query, self.key, self.value), (x_RH, context_TH, context_TH)
        shape = -1, self.num_heads, self.head_size
        q_RND, k_TND, v_TND = (y.view(shape) for y in ops.linears(layers, inputs))
        if past is not None:
            k_TND, v_TND = past.extend(k_TND, v_TND)
        mixed_RND = ops.attend(q_RND, k_TND, v_TND, queries, keys, on * self.attention_dropout)
        x_RH = ops.added(self.output, mixed_RND.flatten(1), x_RH, on * self.dropout)
        return self.layer_norm(x_RH)  # type: ignore[no-any-return]


class FeedForwardBlock(nn.Module):
    """2·H·F+F+H parameters of the feed-forward and the 2H of its LayerNorm (Vaswani et al. 2017, 3.3)."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.activation = config.hidden_act
        self.dropout = config.hidden_dropout_prob if config.feed_forward_dropout else 0.0
        self.intermediate = Linear(config.hidden_size, config.intermediate_size)
        self.output = Linear(config.intermediate_size, config.hidden_size)
        self.layer_norm = LayerNorm(config.hidden_size, config.layer_norm_eps)

    def forward(self, x_RH: Tensor) -> Tensor:
        """LayerNorm(x + output(activation(intermediate(x)))) of each row by itself, (R, H)."""
        ops, on = current(), float(self.training)
        y_RF = ops.activated(self.intermediate, x_RH, self.activation)
        return self.layer_norm(ops.added(self.output, y_RF, x_RH, on * self.dropout))  # type: ignore[no-any-return]
