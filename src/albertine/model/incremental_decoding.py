"""Incremental decoding: extend sequences with an encoder and a KV cache."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from operator import itemgetter

from torch import Tensor

from albertine.core.batch import Packed
from albertine.core.precision import without_autocast
from albertine.errors import SettingsError
from albertine.model.backend.base import Backend
from albertine.model.encoder import Encoder
from albertine.model.key_value_cache import Extension, KeyValueCache
from albertine.model.positions.registry import with_positions


@without_autocast
def decode_step(
    encoder: Encoder, packed: Packed, cache: KeyValueCache | None = None
) -> tuple[Tensor, KeyValueCache]:
    """Encode new tokens of sequences whose earlier tokens are in a cache, for inference.

    Args:
        packed: the new tokens of each sequence, without `prefix`; they attend to all earlier tokens and to
            each other. Their positions continue those of `cache`.
        cache: keys and values of the same sequences; None: they are new.

    Returns:
        (T, H) of the new tokens, and the cache with them.

    Raises:
        SettingsError: a sequence exceeds the position table; an encoder that halts, whose earlier rows took
            only the steps that they needed then; or an encoder with a solver.
    """
    config = encoder.config
    if config.halts:
        raise SettingsError(
            "an encoder that halts has no KV cache: its earlier rows end at the steps where they halted",
            remedy="Encode the whole sequences at once, or use a model with halting=none",
        )
    if config.solves:
        raise SettingsError(
            "an encoder with a solver has no KV cache: it keeps only its fixed point",
            remedy="Use a model with solver=none",
        )
    with encoder.forward_pass() as ops:
        return ops.isolate_non_finite(partial(_decode_step, encoder, ops, packed, cache), itemgetter(0))


def _decode_step(
    encoder: Encoder, ops: Backend, packed: Packed, cache: KeyValueCache | None
) -> tuple[Tensor, KeyValueCache]:
    config = encoder.config
    dtype, heads = ops.form.dtype, (config.num_attention_heads, config.head_size)
    empty = encoder.embeddings.word.weight.new_empty(0, *heads, dtype=dtype)
    extension = Extension.of(packed, cache, config.num_hidden_layers, empty)
    encoder.embeddings.check_length(max(extension.lengths))
    x_TH = encoder.embeddings(packed, dtype)
    longest = extension.keys.longest
    queries, keys = (
        with_positions(rows, config, x_TH, encoder.training, longest)
        for rows in (extension.queries, extension.keys)
    )
    if encoder.injection is not None:
        queries = replace(queries, injection=encoder.injection(x_TH))
    layer = encoder.layer_function(x_TH)
    for d, layer_cache in enumerate(extension.layers):
        x_TH = layer(d, x_TH, x_TH, queries, keys, layer_cache)
    if encoder.final_norm is not None:
        x_TH = encoder.final_norm(x_TH)
    return x_TH, extension.cache()
