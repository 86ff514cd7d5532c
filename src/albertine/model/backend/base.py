"""The plain backend: the reference for every other one, in ordinary operations of torch. And the common base
of the fast ones, which cache the casts of parameters and may compute a linear layer without calling it.

Weights are float32 and are cast to the format of the activations. The plain backend can be hooked,
differentiated twice, transformed and compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from albertine.core.batch import Packed
from albertine.core.precision import ComputeFormat

if TYPE_CHECKING:
    from albertine.model.key_value_cache import LayerCache
    from albertine.model.positions.relative import KeyMask
    from albertine.model.rows import Rows

K = TypeVar("K")
V = TypeVar("V")
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
        if name in ("relu", "relu2"):
            x = F.relu(x)
            return x if name == "relu" else x.square()
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
        """Logits (P, V): rows times the word embeddings, or another output matrix (V, E), plus a bias, in the
        format of the rows."""
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
            weights_NLM = scores_NLM.softmax(-1)
            if seen_LM is not None:
                weights_NLM = weights_NLM * seen_LM
            self.keep_weights(weights_NLM)
            dropped_NLM = F.dropout(weights_NLM, dropout, dropout > 0)
            parts.append(torch.einsum("nlm,mnd->lnd", dropped_NLM, v_MND))
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
        weights_SNLM = product(added, q, k.transpose(1, 2)).view(added_SNLM.shape).softmax(-1)
        any_visible = None if key_mask is None else key_mask.any_visible
        self.keep_weights(weights_SNLM, any_visible)
        mixed_SNLD = F.dropout(weights_SNLM, dropout, dropout > 0) @ v_SNMD
        return mixed_SNLD if any_visible is None else mixed_SNLD * any_visible

    def keep_weights(self, weights: Tensor, factor: Tensor | None = None) -> None:
        """Called with the attention weights (..., L, M) of every product, before dropout, and a factor of
        them, (..., L, 1). Only `AttentionWeights` keeps them."""

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

    def replay(self, encoder: Any, packed: Packed, depth: int, rows: Tensor | None) -> Any:
        """The output of an encoder by a captured pass; None: it has to be computed."""
        return None

    def pad(self, packed: Packed, rows: Tensor | None) -> tuple[Packed, Tensor | None]:
        """A batch and its requested rows, int64 (P,), both with more rows after them where kernels are
        prepared for few sizes; the same objects where nothing is padded."""
        return packed, rows

    def rounded_rows(self, rows: int) -> int:
        """The number of rows to compute for so many; more where kernels are prepared for few sizes."""
        return rows

    def padded_rows(self, index: Tensor, num_rows: int) -> Tensor:
        """The rows to compute of `num_rows`, int64 (P,), with others after them up to `rounded_rows`."""
        return index

    def isolate_non_finite(self, compute: Callable[[], Result], states: Callable[[Result], Tensor]) -> Result:
        """The result of `compute`, in which no sequence is NaN because of another one.

        Args:
            compute: computes blocks in this pass; may be called twice. states: the rows of its result.
        """
        return compute()


PLAIN = Backend(ComputeFormat(torch.float32))


class CachedCasts(Backend):
    """Caches the casts of parameters for a pass.

    Casts with and without gradients are cached separately: a layer may run under `no_grad` before it is
    trained.

    Attributes:
        float32_norms: whether scale and shift of a LayerNorm stay float32, the format of the parameters; else
            they have the format of the rows.
    """

    float32_norms = False

    def __init__(self, form: ComputeFormat) -> None:
        super().__init__(form)
        self._casts: dict[tuple[Tensor, bool], Tensor] = {}
        self._norms: dict[tuple[nn.LayerNorm, torch.dtype, bool], tuple[Any, ...]] = {}

    def cast(self, parameter: Tensor, dtype: torch.dtype) -> Tensor:
        if parameter.dtype == dtype:
            return parameter
        key = parameter, torch.is_grad_enabled()
        found = self._casts.get(key)
        if found is None or found.dtype != dtype:
            self._casts[key] = found = parameter.to(dtype)
        return found

    def layer_norm(self, layer: nn.LayerNorm, x: Tensor) -> Tensor:
        key = layer, x.dtype, torch.is_grad_enabled()
        known = self._norms.get(key)
        if known is None:
            dtype, bias = torch.float32 if self.float32_norms else x.dtype, layer.bias
            cast_bias = None if bias is None else self.cast(bias, dtype)
            known = layer.normalized_shape, self.cast(layer.weight, dtype), cast_bias, layer.eps
            self._norms[key] = known
        return torch.layer_norm(x, *known)


def are_plain_linears(layers: Sequence[nn.Module]) -> bool:
    """Whether these are our linear layers, neither replaced nor hooked: only then may they be computed
    without calling them."""
    # Loops, because a generator takes longer than the checks, which run in every pass.
    for layer in layers:
        if not vars(type(layer)).get("computed_by_backend"):  # set by the class itself, not by a base class
            return False
    return not has_hooks(layers) and have_dense_weights(cast(Sequence[nn.Linear], layers))


def has_hooks(modules: Iterable[nn.Module]) -> bool:
    """Whether one of these modules has hooks or a replaced forward."""
    everywhere = nn.modules.module
    if everywhere._global_forward_hooks or everywhere._global_forward_pre_hooks:
        return True
    if everywhere._global_backward_hooks or everywhere._global_backward_pre_hooks:
        return True
    for m in modules:
        if "forward" in m.__dict__:  # set on this one object, as accelerate does
            return True
        if m._forward_hooks or m._forward_pre_hooks or m._backward_hooks or m._backward_pre_hooks:
            return True
    return False


class Memo(dict[K, V]):
    """Memo: `make(key)`, computed at the first access. Later accesses cost one dictionary lookup.

    `make` must not reference the owner of the memo: a reference cycle would keep a pass alive until garbage
    collection.
    """

    def __init__(self, make: Callable[[K], V]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, key: K) -> V:
        self[key] = found = self._make(key)
        return found


def have_dense_weights(layers: Sequence[nn.Linear]) -> bool:
    """Whether their weights are ordinary tensors; a subclass of Tensor, as of torchao's quantization,
    multiplies in its own way."""
    for layer in layers:
        weight = layer._parameters.get("weight")  # a tenth of the time of `layer.weight`
        # A parametrized weight, or one of a functional call, is no Parameter.
        if type(layer.weight if weight is None else weight) not in (nn.Parameter, Tensor):
            return False
    return True


def bias_of(layer: nn.Linear) -> Tensor:
    """Its bias, or zeros, because every kernel adds one."""
    return layer.weight.new_zeros(len(layer.weight)) if layer.bias is None else layer.bias


def equal_runs(inputs: Sequence[Tensor]) -> list[tuple[int, int]]:
    """Runs of neighbours that are the same tensor, (first, end) each."""
    last, ends = len(inputs), [i for i in range(1, len(inputs)) if inputs[i] is not inputs[i - 1]]
    return list(pairwise([0, *ends, last]))
