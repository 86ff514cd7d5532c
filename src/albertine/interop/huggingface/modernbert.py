"""config.json of ModernBERT, both ways: of those whose layers all look at the whole text."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from albertine.errors import SettingsError
from albertine.interop.config_values import (
    activation,
    number,
    our_flags,
    output_matrix,
    refuse_other,
    tokenizer_class,
)
from albertine.model.config import MAX_DEPTH, EncoderConfig
from albertine.model.sharing import SharingPlan

if TYPE_CHECKING:
    from albertine.interop.save_checks import SavableTokenizer

FULL, SLIDING = "full_attention", "sliding_attention"
_BASES = {FULL: ("global_rope_theta", 160_000.0), SLIDING: ("local_rope_theta", 10_000.0)}
"""The name of the base of rotation before transformers 5, and its default, by the kind of a layer."""

_ROLES = {
    "bos_token_id": "cls_id",
    "cls_token_id": "cls_id",
    "eos_token_id": "sep_id",
    "sep_token_id": "sep_id",
}
_log = logging.getLogger("albertine.interop")


def read_modernbert(tree: Mapping[str, Any]) -> EncoderConfig:
    """The encoder of a config.json.

    Raises:
        SettingsError: layers with a window, biases, or whatever else we cannot compute.
    """
    biases = ("norm_bias", "attention_bias", "mlp_bias", "classifier_bias")
    refuse_other(tree, dict.fromkeys(biases, False) | {"decoder_bias": True, "rope_scaling": None})
    act = tree.get("hidden_activation", "gelu")
    if (other := tree.get("classifier_activation", "gelu")) != act:
        raise SettingsError(f"classifier_activation `{other}` and hidden_activation `{act}` must be one")
    flags, hidden = our_flags(tree), number(tree, "hidden_size")
    embedding_dropout, dropout = (tree.get(f"{name}_dropout", 0.0) for name in ("embedding", "mlp"))
    if embedding_dropout != dropout:
        _warn_of_dropouts(embedding_dropout, dropout)
    depth, length = number(tree, "num_hidden_layers", MAX_DEPTH), tree.get("max_position_embeddings", 8192)
    return EncoderConfig(
        vocab_size=number(tree, "vocab_size"),
        embedding_size=hidden,
        hidden_size=hidden,
        num_attention_heads=number(tree, "num_attention_heads"),
        intermediate_size=number(tree, "intermediate_size"),
        plan=SharingPlan.unshared(depth),
        hidden_act=activation(act),
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=tree.get("attention_dropout", 0.0),
        classifier_dropout_prob=tree.get("classifier_dropout", 0.0),
        max_position_embeddings=length,
        type_vocab_size=0,
        initializer_range=tree.get("initializer_range", 0.02),
        layer_norm_eps=tree.get("norm_eps", 1e-5),
        pad_token_id=tree.get("pad_token_id") or 0,
        feed_forward_dropout=flags.get("feed_forward_dropout", True),
        sentence_dropout=flags.get("sentence_dropout", False),
        initialization=flags.get("initialization", "truncated_normal"),
        positions="rotary",
        rotary_base=_base(tree, depth, length),
        norm="pre",
        feed_forward="gated",
        biases=False,
        output=output_matrix(tree),
    )


@cache
def _warn_of_dropouts(embedding: object, mlp: object) -> None:
    """Once, because a folder is read several times."""
    _log.warning(
        "embedding_dropout %s and mlp_dropout %s of a ModernBERT are one rate here, %s; to train with "
        "another, set mlp_dropout in its config.json",
        embedding,
        mlp,
        mlp,
    )


def preserved_keys(tree: Mapping[str, Any], *, ids: bool) -> dict[str, Any]:
    """The entries of a ModernBERT's config.json that are no part of an encoder, for the folder of the same
    model.

    Args:
        ids: with those of its special tokens, which only a tokenizer has.
    """
    names = ("classifier_pooling", *(_ROLES if ids else ()))
    return {name: tree[name] for name in names if name in tree and tree.get("model_type") == "modernbert"}


def _base(tree: Mapping[str, Any], depth: int, length: int) -> float:
    """The base of the rotation of all layers, which must all look at the whole text."""
    kinds = tree.get("layer_types")
    if kinds is None:
        every = tree.get("global_attn_every_n_layers", 3)
        kinds = [SLIDING if i % every else FULL for i in range(depth)]
    if len(kinds) != depth or not set(kinds) <= _BASES.keys():
        raise SettingsError(f"layer_types must name {FULL} or {SLIDING} for each of {depth} layers")
    window = tree.get("local_attention", 128)
    if (local := kinds.count(SLIDING)) and window // 2 < length:
        raise SettingsError(
            f"{local} of {depth} layers look at a window of {window} tokens only (sliding_attention), "
            "and Albertine computes attention to the whole text",
            remedy="Use transformers for it; a ModernBERT whose layers are all full_attention is read",
        )
    bases = {kind: _rotary_base(tree, kind) for kind in set(kinds)}
    if len(set(bases.values())) > 1:
        raise SettingsError(f"its layers have different bases of rotation, {bases}, and Albertine's one")
    return float(bases[kinds[0]])


def _rotary_base(tree: Mapping[str, Any], kind: str) -> Any:
    parameters = tree.get("rope_parameters") or {}
    if not parameters.keys() <= _BASES.keys():
        raise SettingsError(f"rope_parameters must have entries for {FULL} and {SLIDING}")
    own = parameters.get(kind) or {}
    refuse_other(own, {"rope_type": "default", "type": "default"})  # the second is its older name
    old, default = _BASES[kind]
    return own.get("rope_theta") or tree.get(old) or default


def modernbert_json(config: EncoderConfig, tokenizer: SavableTokenizer | None) -> dict[str, Any]:
    """The config.json of an encoder of this architecture, for every transformers that knows it.

    There the dropouts of residual branches and of embeddings are separate; here they are one. Without a
    tokenizer the special tokens are unknown, and transformers uses its defaults.
    """
    base = config.rotary_base
    return {
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "num_hidden_layers": config.num_hidden_layers,
        "num_attention_heads": config.num_attention_heads,
        "intermediate_size": config.intermediate_size,
        "hidden_activation": config.hidden_act,
        "classifier_activation": config.hidden_act,
        "embedding_dropout": config.hidden_dropout_prob,
        "mlp_dropout": config.hidden_dropout_prob,
        "attention_dropout": config.attention_probs_dropout_prob,
        "classifier_dropout": config.classifier_dropout_prob,
        "max_position_embeddings": config.max_position_embeddings,
        "initializer_range": config.initializer_range,
        "norm_eps": config.layer_norm_eps,
        "norm_bias": False,
        "attention_bias": False,
        "mlp_bias": False,
        "classifier_bias": False,
        "decoder_bias": True,
        "layer_types": [FULL] * config.num_hidden_layers,
        "global_attn_every_n_layers": 1,
        "rope_parameters": {kind: {"rope_type": "default", "rope_theta": base} for kind in _BASES},
        "global_rope_theta": base,
        "local_rope_theta": base,
        "pad_token_id": getattr(tokenizer, "pad_id", config.pad_token_id),
        **{name: getattr(tokenizer, role, None) for name, role in _ROLES.items()},
        "tokenizer_class": tokenizer_class(tokenizer),
        "tie_word_embeddings": config.output == "tied",
        "dtype": "float32",
    }
