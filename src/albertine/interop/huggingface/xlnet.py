"""config.json of XLNet, both ways."""

from __future__ import annotations

from collections.abc import Mapping
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

SEGMENTS = 3
"""A, B and [CLS]; what is compared is only whether two are the same."""
_OURS = ("attention_probs_dropout_prob", "max_position_embeddings", "type_vocab_size")


def attention_type(flags: Mapping[str, Any]) -> str:
    """`attn_type` of a model by `our_flags` of its configuration: to the left alone if it learned so."""
    return "uni" if flags.get("objective") == "causal" else "bi"


def read_xlnet(tree: Mapping[str, Any]) -> EncoderConfig:
    """The encoder of a config.json. Its memory settings (`mem_len`, `reuse_len`) are no part of it: the
    reader of segments sets the memory. Nor is `attn_type`: the caller sets the attention mask. `same_length`
    does nothing without `attn_type` uni.

    Raises:
        SettingsError: an `attn_type` that `our_flags` do not confirm, half a batch backward, heads of
            another size, a summary that is not of one token, or another head on it.
    """
    flags, hidden, heads = our_flags(tree), number(tree, "d_model"), number(tree, "n_head")
    refuse_other(tree, {"attn_type": attention_type(flags)})
    refuse_other(tree, {"bi_data": False, "summary_use_proj": True, "summary_activation": "tanh"})
    if number({"d_head": hidden // heads} | dict(tree), "d_head") * heads != hidden:
        raise SettingsError(f"{heads} heads of {tree['d_head']} are not d_model {hidden}")
    dropout, clamp = tree.get("dropout", 0.1), tree.get("clamp_len", -1)
    return EncoderConfig(
        vocab_size=number(tree, "vocab_size"),
        embedding_size=hidden,
        hidden_size=hidden,
        num_attention_heads=heads,
        intermediate_size=number(tree, "d_inner"),
        plan=SharingPlan.unshared(number(tree, "n_layer", MAX_DEPTH)),
        hidden_act=activation(tree.get("ff_activation", "gelu")),
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=flags.get("attention_probs_dropout_prob", dropout),
        classifier_dropout_prob=tree.get("summary_last_dropout", 0.1),
        max_position_embeddings=flags.get("max_position_embeddings", 512),
        type_vocab_size=flags.get("type_vocab_size", SEGMENTS),
        initializer_range=tree.get("initializer_range", 0.02),
        layer_norm_eps=tree.get("layer_norm_eps", 1e-12),
        pad_token_id=tree.get("pad_token_id") or 0,
        feed_forward_dropout=flags.get("feed_forward_dropout", True),
        sentence_dropout=flags.get("sentence_dropout", False),
        initialization=flags.get("initialization", "normal"),
        positions="relative",
        clamp_positions=max(0, clamp) if isinstance(clamp, int) else 0,
        embedding_norm=False,
        summary=tree.get("summary_type", "last"),
        output=output_matrix(tree),
    )


def xlnet_json(config: EncoderConfig, tokenizer: SavableTokenizer | None) -> dict[str, Any]:
    """The config.json of an encoder of this architecture. `max_position_embeddings` must not be in it:
    transformers' XLNet has no longest text, and refuses the word."""
    return {
        "vocab_size": config.vocab_size,
        "d_model": config.hidden_size,
        "n_layer": config.num_hidden_layers,
        "n_head": config.num_attention_heads,
        "d_inner": config.intermediate_size,
        "ff_activation": config.hidden_act,
        "dropout": config.hidden_dropout_prob,
        "initializer_range": config.initializer_range,
        "layer_norm_eps": config.layer_norm_eps,
        "attn_type": "bi",
        "untie_r": True,
        "bi_data": False,
        "same_length": False,
        "clamp_len": config.clamp_positions or -1,
        "mem_len": None,
        "reuse_len": None,
        "summary_type": config.summary,
        "summary_use_proj": True,
        "summary_activation": "tanh",
        "summary_last_dropout": config.classifier_dropout_prob,
        "pad_token_id": getattr(tokenizer, "pad_id", config.pad_token_id),
        "tokenizer_class": tokenizer_class(tokenizer),
        "tie_word_embeddings": config.output == "tied",
        "dtype": "float32",
    }


def xlnet_flags(config: EncoderConfig) -> dict[str, Any]:
    """Settings that transformers' configuration of XLNet does not have."""
    return {name: getattr(config, name) for name in _OURS}
