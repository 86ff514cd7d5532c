"""Self-attention blocks with absolute or rotary positions, QK-norm, input injection and head gates."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from albertine.model.backend import Linear, current
from albertine.model.block import Block
from albertine.model.config import QK_SCALE, EncoderConfig
from albertine.model.key_value_cache import LayerCache
from albertine.model.layer_parameters import BlockParameters
from albertine.model.rows import Rows


class AttentionBlock(Block):
    """Multi-head self-attention (Vaswani et al. 2017, section 3.2): 4(H²+H) parameters, and 2H of its
    LayerNorm.

    Attributes:
        gate: H→N, the logits of a factor of each head's output (`head_gate`), N(H+1) more; or None.
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__(config)
        hidden, bias = config.hidden_size, config.attention_biases
        self.num_heads, self.head_size = config.num_attention_heads, config.head_size
        self.attention_dropout = config.attention_probs_dropout_prob
        self.query = Linear(hidden, hidden, bias)
        self.key = Linear(hidden, hidden, bias)
        self.value = Linear(hidden, hidden, bias)
        self.output = Linear(hidden, hidden, bias)
        self.gate = Linear(hidden, self.num_heads) if config.head_gate else None

    def forward(
        self,
        x_RH: Tensor,
        context_TH: Tensor,
        queries: Rows,
        keys: Rows,
        cache: LayerCache | None = None,
        own: BlockParameters | None = None,
    ) -> Tensor:
        """x + output(softmax(q·kᵀ/√D)·v) inside each sequence, with LayerNorm, (R, H).

        Args:
            x_RH: query tokens.
            context_TH: key/value tokens; often the same tensor as `x_RH`.
            queries, keys: metadata of the rows of `x_RH` and `context_TH`. With a cache, `keys` describes
                cached and new rows, and `context_TH` holds the rows of `x_RH`.
            cache: keys and values of earlier rows; those of `context_TH` are appended to it.
            own: parameters of this layer beside those of the shared block.
        """
        input_RH = self.sublayer_input(x_RH, own)
        context_TH = input_RH if context_TH is x_RH else self.sublayer_input(context_TH, own)
        new_keys = keys if cache is None else queries
        q_RND, k_TND, v_TND = self.project(input_RH, context_TH, queries, new_keys)
        if cache is not None:
            k_TND, v_TND = cache.extend(k_TND, v_TND)
        mixed_RND = self.attend(q_RND, k_TND, v_TND, queries, keys)
        if self.gate is not None:
            mixed_RND = mixed_RND * self.gate(input_RH).sigmoid()[:, :, None]
        return self.residual_add(self.output, mixed_RND.flatten(1), x_RH, input_RH, own)

    def project(
        self, x_RH: Tensor, context_TH: Tensor, queries: Rows, keys: Rows
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Queries (R, N, D), and keys and values (T, N, D), of sublayer inputs."""
        layers, heads = (self.query, self.key, self.value), (-1, self.num_heads, self.head_size)
        q_RH, k_TH, v_TH = current().linears(layers, (x_RH, context_TH, context_TH))
        return q_RH.view(heads), k_TH.view(heads), v_TH.view(heads)

    def attend(self, q_RND: Tensor, k_TND: Tensor, v_TND: Tensor, queries: Rows, keys: Rows) -> Tensor:
        """softmax(q·kᵀ/√D)·v inside each sequence, (R, N, D)."""
        dropout = self.training * self.attention_dropout
        return current().attend(q_RND, k_TND, v_TND, queries, keys, dropout)

    def prepare(self, queries: Rows) -> None:
        """Compute what attention reads of the `distances` of the queries, once a pass for all layers."""


class TransformedAttentionBlock(AttentionBlock):
    """Attention with input injection, QK-norm and rotary positions, each where the configuration has it."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__(config)
        self.qk_norm = config.qk_norm

    def project(
        self, x_RH: Tensor, context_TH: Tensor, queries: Rows, keys: Rows
    ) -> tuple[Tensor, Tensor, Tensor]:
        q_RND, k_TND, v_TND = super().project(x_RH, context_TH, queries, keys)
        q_RND, k_TND, v_TND = add_injection((q_RND, k_TND, v_TND), queries, keys)
        if self.qk_norm:
            q_RND, k_TND = (F.rms_norm(y, y.shape[-1:]) for y in (q_RND, k_TND))
            q_RND = q_RND * (QK_SCALE * self.head_size**0.5)  # the kernels divide by √D
        if queries.rotation is not None:
            q_RND, k_TND = queries.rotation.rotate(q_RND), keys.rotation.rotate(k_TND)  # type: ignore[union-attr]
        return q_RND, k_TND, v_TND


def add_injection(qkv: tuple[Tensor, ...], queries: Rows, keys: Rows) -> tuple[Tensor, ...]:
    """Input injection: W_u·x of the embeddings x, 3H wide, added to queries (R, N, D), keys and values (T, N,
    D) (Bai et al. 2019, 1909.01377; `inject_conv` in locuslab/deq). It is computed once a pass for all
    layers.

    A fixed point needs it: where a block is contractive every start converges to the same point, so the input
    has to be part of the map. `own: injection` of a sharing plan differs: there each layer adds the
    embeddings to its input by a factor of its own.

    Args:
        keys: metadata of the new keys, without cached ones.
    """
    if queries.injection is None or keys.injection is None:
        return qkv
    width = queries.injection.shape[1] // 3
    additions = (queries.injection[:, :width], *keys.injection[:, width:].tensor_split(2, 1))
    return tuple(y + addition.view_as(y) for y, addition in zip(qkv, additions, strict=True))
