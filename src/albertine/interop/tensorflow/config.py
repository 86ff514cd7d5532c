"""Reading and writing of albert_config.json, bert_config.json and xlnet_config.json.

Google's code ignores unknown keys, so settings without a key are stored under `albertine`, as in the folders
of transformers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from albertine.errors import SettingsError
from albertine.interop.config_values import activation, number, our_flags, refuse_other
from albertine.interop.huggingface.config import inner_blocks, written_flags
from albertine.interop.huggingface.xlnet import read_xlnet, xlnet_flags
from albertine.interop.tensorflow.names import Kind
from albertine.model.config import MAX_DEPTH, EncoderConfig, RelativeBiasesOf
from albertine.model.model import Model
from albertine.model.sharing import SharingPlan

EPSILON = 1e-12
"""Of every LayerNorm; not in Google's configurations, but that of `tf.contrib.layers.layer_norm`."""
_KEPT = (
    "classifier_dropout_prob",
    "embedding_mapping",
    "feed_forward_dropout",
    "initialization",
    "pad_token_id",
    "sentence_dropout",
)
_KERAS_GELUS = {"gelu_tanh": "gelu_new", "gelu_erf": "gelu"}
"""Values of bert4keras; its own `gelu` is the one of the last `set_gelu`."""
_XLNET_PAD = 5
"""Id of the padding token in every vocabulary of XLNet (zihangdai/xlnet, `data_utils.py`)."""
_IGNORED = {"net_structure_type": 0, "gap_size": 0, "num_memory_blocks": 0, "down_scale_factor": 1}
"""Keys of the published configurations that the code does not read."""


def read_google(kind: Kind, tree: Mapping[str, Any]) -> EncoderConfig:
    """The encoder of a configuration. `gelu` is the tanh approximation in all of this code; in a file of
    transformers (it has a model_type) it is the erf form, as there.

    Raises:
        SettingsError: a value is missing, impossible or not supported.
    """
    if kind == "xlnet":
        return _read_xlnet(tree)
    refuse_other(tree, {"hierarchical_position": False})
    if kind == "brightmart" and tree.get("ln_type", "postln") not in ("postln", None):
        raise SettingsError(
            f"ln_type `{tree['ln_type']}` is brightmart's pre-norm encoder, which normalises what its first "
            "layer reads twice and what its last one gives never; Albertine computes its post-norm one"
        )
    flags, hidden = our_flags(tree), number(tree, "hidden_size")
    layers = number(tree, "num_hidden_layers", MAX_DEPTH)
    # Google's BERT has no such key; a BERT of bert4keras may have narrower embeddings.
    values = dict(tree) if kind == "bert" else {"embedding_size": None} | dict(tree)
    own = {name: flags[name] for name in _KEPT if name in flags}
    if kind == "brightmart":
        own["embedding_mapping"] = "words"
    return EncoderConfig(
        vocab_size=number(tree, "vocab_size"),
        embedding_size=number({"embedding_size": hidden} | values, "embedding_size"),
        hidden_size=hidden,
        num_attention_heads=number(tree, "num_attention_heads"),
        intermediate_size=number(tree, "intermediate_size"),
        plan=_plan(kind, tree, layers),
        hidden_act=_activation(tree, "hidden_act"),
        hidden_dropout_prob=tree.get("hidden_dropout_prob", 0.1),
        attention_probs_dropout_prob=tree.get("attention_probs_dropout_prob", 0.1),
        max_position_embeddings=tree.get("max_position_embeddings", 512),
        type_vocab_size=tree.get("type_vocab_size", 16 if kind in ("bert", "brightmart") else 2),
        initializer_range=tree.get("initializer_range", 0.02),
        layer_norm_eps=EPSILON,
        **own,
    )


def _activation(tree: Mapping[str, Any], word: str) -> Any:
    name = tree.get(word, "gelu")
    if name in _KERAS_GELUS:
        return _KERAS_GELUS[name]
    return "gelu_new" if name == "gelu" and "model_type" not in tree else activation(name)


def _plan(kind: Kind, tree: Mapping[str, Any], layers: int) -> SharingPlan:
    if kind in ("bert", "unshared"):
        return SharingPlan.unshared(layers)
    if kind == "brightmart":
        return SharingPlan.shared(layers)
    groups, inner = number({"num_hidden_groups": 1} | dict(tree), "num_hidden_groups"), inner_blocks(tree)
    if layers * inner > MAX_DEPTH:
        raise SettingsError(f"{groups} groups of {inner} inner blocks do not fit {layers} layers")
    return SharingPlan.grouped(layers, groups, inner)


def _read_xlnet(tree: Mapping[str, Any]) -> EncoderConfig:
    """As transformers' configuration, except for three keys."""
    act = _activation(tree, "ff_activation")
    values = {"vocab_size": number(tree, "n_token")} | dict(tree) | {"ff_activation": act}
    flags, tied = our_flags(tree), not tree.get("untie_r", False)
    own: dict[str, Any] = {"pad_token_id": _XLNET_PAD if values["vocab_size"] > _XLNET_PAD else 0}
    own |= {name: flags[name] for name in ("classifier_dropout_prob", "pad_token_id") if name in flags}
    biases: RelativeBiasesOf = "tied" if tied else "block"
    return replace(read_xlnet(values), relative_biases=biases, layer_norm_eps=EPSILON, **own)


def google_json(kind: Kind, model: Model, pad: int, *, keras: bool = False) -> dict[str, Any]:
    """The configuration of a model.

    Args:
        pad: id of the padding token. keras: for bert4keras.
    """
    config = model.config
    flags = written_flags(model) | {name: getattr(config, name) for name in _KEPT} | {"pad_token_id": pad}
    act: str = "gelu" if config.hidden_act == "gelu_new" else config.hidden_act
    if keras:
        words: dict[str, str] = {ours: theirs for theirs, ours in _KERAS_GELUS.items()}
        act = words.get(config.hidden_act, act)
    if kind == "xlnet":
        return {
            "d_head": config.head_size,
            "d_inner": config.intermediate_size,
            "d_model": config.hidden_size,
            "ff_activation": act,
            "n_head": config.num_attention_heads,
            "n_layer": config.num_hidden_layers,
            "n_token": config.vocab_size,
            "untie_r": config.relative_biases == "block",
            "dropout": config.hidden_dropout_prob,
            "initializer_range": config.initializer_range,
            "summary_type": config.summary,
            "albertine": flags | xlnet_flags(config),
        }
    tree: dict[str, Any] = {
        "attention_probs_dropout_prob": config.attention_probs_dropout_prob,
        "hidden_act": act,
        "hidden_dropout_prob": config.hidden_dropout_prob,
        "hidden_size": config.hidden_size,
        "initializer_range": config.initializer_range,
        "intermediate_size": config.intermediate_size,
        "max_position_embeddings": config.max_position_embeddings,
        "num_attention_heads": config.num_attention_heads,
        "num_hidden_layers": config.num_hidden_layers,
        "type_vocab_size": config.type_vocab_size,
        "vocab_size": config.vocab_size,
        "albertine": flags,
    }
    if kind == "albert":
        layers, groups, inner = config.plan.groups() or (0, 0, 0)
        shape = {"num_hidden_layers": layers, "num_hidden_groups": groups, "inner_group_num": inner}
        tree |= {"embedding_size": config.embedding_size, **shape, **_IGNORED}
    elif kind == "brightmart":
        tree |= {"embedding_size": config.embedding_size, "ln_type": "postln"}
    elif config.embedding_size != config.hidden_size:  # bert4keras alone has such a BERT
        tree |= {"embedding_size": config.embedding_size}
    return tree
