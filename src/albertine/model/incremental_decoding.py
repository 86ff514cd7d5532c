"""Reading sequences on from where they ended, with an encoder and the keys and values that it kept."""

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
from albertine.model.position_inputs import placed


@without_autocast
def read_on(
    encoder: Encoder, packed: Packed, cache: KeyValueCache | None = None
) -> tuple[Tensor, KeyValueCache]:
    """Read sequences on, for inference.

    Args:
        packed: the new tokens of each sequence, without `prefix`; they see all before them and each other.
            Their positions go on where those of `cache` ended.
        cache: keys and values of the same sequences; None begins them.

    Returns:
        (T, H) of the new tokens, and the cache with them.

    Raises:
        SettingsError: a sequence grows longer than the position table; an encoder that halts, because rows
            read before were given as many steps as they needed then; or one that runs to a fixed point.
    """
    config = encoder.config
    if config.halts:
        raise SettingsError(
            "an encoder that halts cannot read on: what it kept of earlier rows ends where they halted",
            remedy="Read the whole sequences at once, or take a model with halting=none",
        )
    if config.solves:
        raise SettingsError(
            "an encoder that runs to its fixed point keeps no keys and values to read on with",
            remedy="Write with a model of solver=none",
        )
    with encoder.computing() as ops:
        return ops.isolated(partial(_read_on, encoder, ops, packed, cache), itemgetter(0))


def _read_on(
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
        placed(rows, config, x_TH, encoder.training, longest) for rows in (extension.queries, extension.keys)
    )
    if encoder.injection is not None:
        queries = replace(queries, injection=encoder.injection(x_TH))
    step = encoder.stepping(x_TH)
    for d, past in enumerate(extension.pasts):
        x_TH = step(d, x_TH, x_TH, queries, keys, past)
    if encoder.final_norm is not None:
        x_TH = encoder.final_norm(x_TH)
    return x_TH, extension.cache()
