"""config.json in the terms of transformers, both ways."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from albertine.errors import SettingsError
from albertine.interop.config_values import (
    activation,
    config_errors,
    number,
    output_matrix,
    refuse_other,
    tokenizer_class,
)
from albertine.interop.config_values import our_flags as our_flags
from albertine.interop.huggingface.modernbert import modernbert_json, read_modernbert
from albertine.interop.huggingface.names import huggingface_plan
from albertine.interop.huggingface.roberta import as_bert, is_roberta
from albertine.interop.huggingface.xlnet import read_xlnet, xlnet_flags, xlnet_json
from albertine.model.config import MAX_DEPTH, EncoderConfig
from albertine.model.sharing import SharingPlan

if TYPE_CHECKING:
    from albertine.interop.save_checks import SavableTokenizer
    from albertine.model.model import Model

ModelType = Literal["albert", "bert", "electra", "roformer", "modernbert", "xlnet", "albertine"]
KINDS: tuple[ModelType, ...] = get_args(ModelType)
ROFORMER_BASE = 10000.0


def read_model_type(tree: Mapping[str, Any]) -> ModelType:
    kind = "bert" if is_roberta(tree) else tree.get("model_type")
    if kind is None and "embedding_size" in tree and ("inner_group_num" in tree or "ln_type" in tree):
        return "albert"  # the files of 2019 have no model_type
    for known in KINDS:
        if kind == known:
            return known
    if kind is None and {"type_vocab_size", "intermediate_size", "num_attention_heads"} <= tree.keys():
        return "bert"  # nor did those of 2018, when there was no other
    raise SettingsError(
        f"model_type `{kind}` is not supported",
        remedy="Use an ALBERT, BERT, RoBERTa, ELECTRA, RoFormer, ModernBERT or XLNet folder",
    )


def read_config(kind: ModelType, tree: Mapping[str, Any]) -> EncoderConfig:
    tree = as_bert(tree)
    if kind == "albertine":
        return EncoderConfig.from_dict(tree["encoder"] if isinstance(tree.get("encoder"), dict) else {})
    if kind == "modernbert":
        return read_modernbert(tree)
    if kind == "xlnet":
        return read_xlnet(tree)
    refused = {"position_embedding_type": "absolute", "is_decoder": False, "add_cross_attention": False}
    refuse_other(tree, refused | ({"rotary_value": False} if kind == "roformer" else {"ln_type": "postln"}))
    # The one word by which brightmart's configurations are known, in whose encoder words alone are mapped.
    words = {"embedding_mapping": "words"} if kind == "albert" and "ln_type" in tree else {}
    flags = words | our_flags(tree)
    act = tree.get("hidden_act", "gelu_new" if kind == "albert" else "gelu")
    hidden_dropout = tree.get("hidden_dropout_prob", 0.0 if kind == "albert" else 0.1)
    dropout = tree.get("classifier_dropout_prob" if kind == "albert" else "classifier_dropout")
    if dropout is None:  # what transformers takes then
        dropout = 0.1 if kind == "albert" else hidden_dropout
    own_width = kind == "albert" or (
        kind in ("electra", "roformer") and tree.get("embedding_size") is not None
    )
    return EncoderConfig(
        vocab_size=number(tree, "vocab_size"),
        embedding_size=number(tree, "embedding_size" if own_width else "hidden_size"),
        hidden_size=number(tree, "hidden_size"),
        num_attention_heads=number(tree, "num_attention_heads"),
        intermediate_size=number(tree, "intermediate_size"),
        plan=_plan(kind, tree),
        hidden_act=activation(act),
        hidden_dropout_prob=hidden_dropout,
        attention_probs_dropout_prob=tree.get(
            "attention_probs_dropout_prob", 0.0 if kind == "albert" else 0.1
        ),
        classifier_dropout_prob=dropout,
        max_position_embeddings=tree.get("max_position_embeddings", 1536 if kind == "roformer" else 512),
        type_vocab_size=tree.get("type_vocab_size", 2),
        initializer_range=tree.get("initializer_range", 0.02),
        layer_norm_eps=tree.get("layer_norm_eps", 1e-12),
        pad_token_id=tree.get("pad_token_id") or 0,
        embedding_mapping=flags.get("embedding_mapping", "if_needed"),
        feed_forward_dropout=flags.get("feed_forward_dropout", True),
        sentence_dropout=flags.get("sentence_dropout", False),
        initialization=flags.get("initialization", "truncated_normal"),
        positions="rotary" if kind == "roformer" else "learned",
        output=output_matrix(tree),
    )


def encoder_in(tree: Mapping[str, Any], where: Path) -> tuple[ModelType, EncoderConfig]:
    """The type and the shape of the encoder that a config.json describes.

    Raises:
        ModelError: of a kind we cannot compute, or contradictory.
    """
    with config_errors(where):
        kind = read_model_type(tree)
        return kind, read_config(kind, tree)


def _plan(kind: ModelType, tree: Mapping[str, Any]) -> SharingPlan:
    layers = number(tree, "num_hidden_layers", MAX_DEPTH)
    if kind != "albert":
        return SharingPlan.unshared(layers)
    groups, inner = tree.get("num_hidden_groups", 1), inner_blocks(tree)
    if not (isinstance(groups, int) and layers * inner <= MAX_DEPTH):
        raise SettingsError(f"{groups} groups of {inner} inner blocks do not fit {layers} layers")
    return huggingface_plan(layers, groups, inner)


def inner_blocks(tree: Mapping[str, Any]) -> int:
    """How many blocks a group of this configuration applies in turn; 1 where the word is unknown."""
    return number({"inner_group_num": 1} | dict(tree), "inner_group_num", MAX_DEPTH)


def model_type(config: EncoderConfig) -> ModelType:
    """The model_type of an encoder in transformers; "albertine" if transformers does not support it."""
    if config.is_bert:
        return "bert"
    architecture, plan = config.architecture, config.plan
    if architecture == "roformer" and plan == SharingPlan.unshared(plan.depth):
        return "albertine" if obstacles(config, "roformer") else "roformer"
    if architecture == "modernbert":
        own = plan == SharingPlan.unshared(plan.depth) and not config.has_mapping
        return "modernbert" if own else "albertine"
    if architecture == "xlnet":
        own = plan == SharingPlan.unshared(plan.depth) and config.relative_biases == "block"
        return "xlnet" if own and not obstacles(config, "xlnet") else "albertine"
    expressible = architecture == "albert" and plan == plan.blocks
    return "albert" if expressible and plan.groups(huggingface_plan) else "albertine"


def obstacles(config: EncoderConfig, kind: str) -> list[str]:
    """The features of an encoder, besides its sharing, that transformers' layout of this kind does not
    support."""
    found = []
    if kind in ("bert", "electra") and config.has_mapping:
        same = config.embedding_size == config.hidden_size
        if kind == "bert" and not same:
            # BERT normalises the sum of its tables, with another scale for each token; no table of width H
            # gives the output of a linear map of already normalised rows.
            found.append(
                f"embeddings of {config.embedding_size} that are normalised and then mapped to "
                f"{config.hidden_size}, where BERT normalises last (electra has that mapping)"
            )
        elif same:
            found.append("a mapping of embeddings that are as wide as the hidden states")
    if kind == "roformer":
        if config.rotary_base != ROFORMER_BASE:
            found.append(f"rotary_base {config.rotary_base:g}, where RoFormer has {ROFORMER_BASE:g}")
        if config.has_mapping and config.embedding_size == config.hidden_size:
            found.append("a mapping of embeddings that are as wide as the hidden states")
    if kind == "xlnet" and config.has_mapping:
        found.append("a mapping of embeddings")
    if kind == "xlnet" and not config.type_vocab_size:
        found.append("type_vocab_size 0, no segments")
    return found


def config_json(
    model: Model, tokenizer: SavableTokenizer | None = None, kind: ModelType | None = None
) -> dict[str, Any]:
    """The config.json of a model, of the model_type `kind`; by default of the one that fits."""
    config, kind = model.config, kind or model_type(model.config)
    if kind == "albertine":
        return {"model_type": kind, "encoder": config.to_dict(), "albertine": written_flags(model)}
    common: dict[str, Any] = {"model_type": kind, "architectures": [_architecture(kind, model)]}
    if kind == "modernbert":
        return common | modernbert_json(config, tokenizer) | {"albertine": written_flags(model)}
    if kind == "xlnet":
        return (
            common | xlnet_json(config, tokenizer) | {"albertine": written_flags(model) | xlnet_flags(config)}
        )
    tree: dict[str, Any] = {
        **common,
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "num_hidden_layers": config.num_hidden_layers,
        "num_attention_heads": config.num_attention_heads,
        "intermediate_size": config.intermediate_size,
        "hidden_act": config.hidden_act,
        "hidden_dropout_prob": config.hidden_dropout_prob,
        "attention_probs_dropout_prob": config.attention_probs_dropout_prob,
        "max_position_embeddings": config.max_position_embeddings,
        "type_vocab_size": config.type_vocab_size,
        "initializer_range": config.initializer_range,
        "layer_norm_eps": config.layer_norm_eps,
        "pad_token_id": getattr(tokenizer, "pad_id", config.pad_token_id),
        "tie_word_embeddings": config.output == "tied",
        "dtype": "float32",
    }
    if kind == "albert":
        layers, groups, inner = config.plan.groups(huggingface_plan) or (0, 0, 0)
        tree |= {
            "embedding_size": config.embedding_size,
            "num_hidden_layers": layers,
            "num_hidden_groups": groups,
            "inner_group_num": inner,
            "classifier_dropout_prob": config.classifier_dropout_prob,
            "bos_token_id": getattr(tokenizer, "cls_id", 2),
            "eos_token_id": getattr(tokenizer, "sep_id", 3),
        }
        if getattr(tokenizer, "kind", None) == "wordpiece":
            tree["tokenizer_class"] = "BertTokenizer"  # else transformers takes SentencePiece for any ALBERT
    else:
        tree["classifier_dropout"] = config.classifier_dropout_prob
    if kind in ("electra", "roformer"):
        # Without its class transformers would take RoFormer's own tokenizer, which parts Chinese words.
        tree |= {"embedding_size": config.embedding_size, "tokenizer_class": tokenizer_class(tokenizer)}
    if kind == "roformer":
        tree["rotary_value"] = False
    return tree | {"albertine": written_flags(model)}


def generates(config: EncoderConfig) -> bool:
    """Whether ELECTRA's generator computes what our masked-LM head does: it has the erf form of GELU whatever
    its encoder has."""
    return config.hidden_act == "gelu"


def written_flags(model: Model) -> dict[str, Any]:
    config = model.config
    return {
        "embedding_mapping": config.embedding_mapping,
        "feed_forward_dropout": config.feed_forward_dropout,
        "sentence_dropout": config.sentence_dropout,
        "initialization": config.initialization,
        "sentence_objective": model.sentence_objective,
    }


def _architecture(kind: str, model: Model) -> str:
    if kind == "xlnet":
        return "XLNetModel" if model.lm is None else "XLNetLMHeadModel"
    name = {
        "albert": "Albert",
        "bert": "Bert",
        "electra": "Electra",
        "roformer": "RoFormer",
        "modernbert": "ModernBert",
    }[kind]
    if model.mlm is None or (kind == "electra" and not generates(model.config)):
        return f"{name}Model"
    both = model.sentence is not None and kind in ("albert", "bert")
    return f"{name}ForPreTraining" if both else f"{name}ForMaskedLM"
