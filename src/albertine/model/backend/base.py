"""The plain backend: the reference for every other one, in ordinary operations of torch.

Weights are float32 and are cast to the format of the activations. Everything can be hooked, differentiated
twice, transformed and compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from albertine.core.batch import Packed
from albertine.core.precision import ComputeFormat

if TYPE_CHECKING:
    from albertine.model.key_value_cache import LayerCache
    from albertine.model.positions.relative import KeyMask
    from albertine.model.rows import Rows

Result = TypeVar("Result")

TILE = 32
"""Columns of bfloat16 in a register of AMX."""


def reads_past_row_end(x: Tensor) -> bool:
    """Whether oneDNN's product may read past the end of each row (…, in) into the next one, which it
    multiplies by zero: with AMX in bfloat16, where rows do not fill its registers. A NaN there spoils the
    product. With gradients it is ignored: the loss would not be finite anyway."""
    narrow = x.dtype == torch.bfloat16 and x.device.type == "cpu"
    return narrow and x.shape[-1] % TILE != 0 and not torch.is_grad_enabled()


class Backend:
    """How the model's operations are computed in one forward pass.

    Attributes:
        form: number format of the pass.
    """

    def __init__(self, form: ComputeFormat) -> None:
        self.form = form

    def cast(self, parameter: Tensor, dtype: torch.dtype) -> Tensor:
        """A parameter in the format of the activations."""
        return parameter.to(dtype)

    def linear(self, layer: nn.Linear, x: Tensor) -> Tensor:
        """x·Wᵀ + b, (…, in) to (…, out), in the format of x."""
        bias = None if layer.bias is None else self.cast(layer.bias, x.dtype)
        return F.linear(*self.pad_columns(x, self.cast(layer.weight, x.dtype)), bias)

    def pad_columns(self, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        """Rows (…, in) and a weight (out, in) for `F.linear`, padded with columns of zeros where a non-finite
        row would otherwise spoil the row before it (`reads_past_row_end`)."""
        if not reads_past_row_end(x):
            return x, weight
        extra = -x.shape[-1] % TILE
        return F.pad(x, (0, extra)), F.pad(weight, (0, extra))

    def layer_norm(self, layer: nn.LayerNorm, x: Tensor) -> Tensor:
        """LayerNorm in the format of x; statistics are computed in float32."""
        weight = self.cast(layer.weight, x.dtype)
        bias = None if layer.bias is None else self.cast(layer.bias, x.dtype)
        return F.layer_norm(x, layer.normalized_shape, weight, bias, layer.eps)

    def activate(self, x: Tensor, name: str) -> Tensor:
        """The activation of that name; "gelu_new" is the tanh form, which Google's code calls "gelu"."""
        if name == "relu":
            return F.relu(x)
        return F.gelu(x, approximate="tanh" if name == "gelu_new" else "none")

    def linears(self, layers: Sequence[nn.Module], inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """`layer(x)` of each pair."""
        return tuple(layer(x) for layer, x in zip(layers, inputs, strict=True))

    def activated(self, layer: nn.Module, x: Tensor, name: str) -> Tensor:
        """`activation(layer(x))`."""
        return self.activate(layer(x), name)

    def added(self, layer: nn.Module, x: Tensor, residual: Tensor, dropout: float) -> Tensor:
        """`residual + dropout(layer(x))`."""
        y = layer(x)
        return residual + (F.dropout(y, dropout) if dropout > 0 else y)

    def tied(self, x_PE: Tensor, word_VE: Tensor, bias_V: Tensor) -> Tensor:
        """Logits (P, V): rows times the word embeddings, plus a bias, in the format of the rows."""
        return F.linear(
            *self.pad_columns(x_PE, self.cast(word_VE, x_PE.dtype)), self.cast(bias_V, x_PE.dtype)
        )

    def attend(
        self, q_RND: Tensor, k_TND: Tensor, v_TND: Tensor, queries: Rows, keys: Rows, dropout: float
    ) -> Tensor:
        """softmax(q·kᵀ/√D)·v inside each sequence, (R, N, D); zeros for a query without a visible key.

        Args:
            q_RND, k_TND, v_TND: packed; strided views are fine, the last dimension contiguous.
            queries, keys: rows of the same sequences; `queries.visible.until` against `keys.visible.when`
                defines the visible keys.
            dropout: probability for attention weights, 0 outside training.
        """
        q_sizes, k_sizes = queries.known_lengths(), keys.known_lengths()
        seen_by: Sequence[Tensor | None] = [None] * len(q_sizes)
        if queries.visible is not None and keys.visible is not None:
            seen_by = queries.visible.seen(keys.visible, q_sizes, k_sizes)
        q, k = q_RND.split_with_sizes(q_sizes), k_TND.split_with_sizes(k_sizes)
        v = v_TND.split_with_sizes(k_sizes)
        parts = []
        for q_LND, k_MND, v_MND, seen_LM in zip(q, k, v, seen_by, strict=True):
            scores_NLM = torch.einsum("lnd,mnd->nlm", q_LND, k_MND) / q_LND.shape[2] ** 0.5
            if seen_LM is not None:
                scores_NLM = scores_NLM.masked_fill(~seen_LM, torch.finfo(scores_NLM.dtype).min)
            weights_NLM = F.dropout(scores_NLM.softmax(-1), dropout, dropout > 0)
            if seen_LM is not None:
                weights_NLM = weights_NLM * seen_LM
            parts.append(torch.einsum("nlm,mnd->lnd", weights_NLM, v_MND))
        return torch.cat(parts)

    def attend_scored(
        self,
        q_SNLD: Tensor,
        k_SNMD: Tensor,
        v_SNMD: Tensor,
        added_SNLM: Tensor,
        key_mask: KeyMask | None,
        dropout: float,
    ) -> Tensor:
        """softmax(q·kᵀ + added)·v of sequences of equal shape, (S, N, L, D); zeros for a query without a
        visible key.

        Args:
            key_mask: the visible keys; None: all.
        """
        if key_mask is not None:
            added_SNLM = added_SNLM + key_mask.additive(added_SNLM.dtype)
        q, k, added = q_SNLD.flatten(0, 1), k_SNMD.flatten(0, 1), added_SNLM.flatten(0, 1)
        product = torch.baddbmm if key_mask is None else torch.Tensor.baddbmm_  # into our own sum
        scores_SNLM = product(added, q, k.transpose(1, 2)).view(added_SNLM.shape)
        mixed_SNLD = F.dropout(scores_SNLM.softmax(-1), dropout, dropout > 0) @ v_SNMD
        if key_mask is None or key_mask.any_visible is None:
            return mixed_SNLD
        return mixed_SNLD * key_mask.any_visible

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
        """One layer: the attention block, then the feed-forward block on its output."""
        if own is None:
            return feed_forward(attention(x, context, queries, keys, cache))  # type: ignore[no-any-return]
        x = attention(x, context, queries, keys, cache, own.attention)
        return feed_forward(x, own.feed_forward)  # type: ignore[no-any-return]

    def run_encoder(
        self, encoder: Any, packed: Packed, depth: int, rows: Tensor | None, all_depths: bool
    ) -> Any:
        """A pass of an encoder; other backends may pad the batch or the rows."""
        return encoder.encode(self, packed, depth, rows, all_depths)

    def isolate_non_finite(self, compute: Callable[[], Result], states: Callable[[Result], Tensor]) -> Result:
        """The result of `compute`, in which no sequence is NaN because of another one.

        Args:
            compute: computes blocks in this pass; may be called twice. states: the rows of its result.
        """
        return compute()


PLAIN = Backend(ComputeFormat(torch.float32))
