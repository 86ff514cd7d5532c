"""Expansion of tied weights for layouts without sharing: a copy of the shared block for every layer, and
factorized word embeddings multiplied into one table. `tied_detection` recovers the model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal, get_args

import torch
from torch import Tensor

from albertine.errors import SettingsError
from albertine.interop.huggingface.config import model_type, obstacles
from albertine.interop.keymap import OURS
from albertine.model.config import EncoderConfig
from albertine.model.model import Model
from albertine.model.resharing import replan
from albertine.model.sharing import SharingPlan

Layout = Literal["transformers", "bert", "electra", "roformer", "modernbert", "xlnet", "albertine"]
"""Layouts of folders with config.json and safetensors: transformers' (the first means the nearest of them),
and ours."""
MAX_PRODUCT = 1 << 28
"""Most elements of a word embedding table that is multiplied out; the largest model has 123 million. It
bounds the memory that two narrow factors in a small file can require."""
LAYOUTS: dict[str, Layout] = {name: name for name in get_args(Layout)} | {"hf": "transformers"}
"""The layouts by their names on the command line."""
KEPT = f"{OURS}kept."
"""Prefix of our parameters that cannot be recovered exactly from copies."""

WORD, MAPPING = "encoder.embeddings.word.weight", "encoder.embeddings.mapping.weight"
_FIRST = "encoder.attention.0."
_ELSE = {"embedding_norm": True, "summary": "first"}
_BERT = {"positions": "learned", "norm": "post", "feed_forward": "plain", "biases": True, **_ELSE}
_BLOCKS: Mapping[str, Mapping[str, object]] = {
    "albert": _BERT,
    "bert": _BERT,
    "electra": _BERT,
    "roformer": {"positions": "rotary", "norm": "post", "feed_forward": "plain", "biases": True, **_ELSE},
    "modernbert": {"positions": "rotary", "norm": "pre", "feed_forward": "gated", "biases": False, **_ELSE},
    "xlnet": {
        "positions": "relative",
        "norm": "post",
        "feed_forward": "plain",
        "biases": True,
        "embedding_norm": False,
    },
}


def unsupported_features(config: EncoderConfig, layout: Layout) -> list[str]:
    """The features of an encoder that a layout does not support; "transformers" is the nearest of its
    layouts."""
    nearest = {"rotary": "roformer", "relative": "xlnet"}.get(config.positions, "albert")
    nearest = "modernbert" if config.norm == "pre" else nearest
    kind = nearest if layout == "transformers" else layout
    found = [
        f"{name} {getattr(config, name)}"
        for name, wanted in _BLOCKS[kind].items()
        if getattr(config, name) != wanted
    ]
    if bool(config.type_vocab_size) == (kind == "modernbert"):
        found.append(f"type_vocab_size {config.type_vocab_size}")
    found += ["qk_norm"] if config.qk_norm else []
    found += [
        f"{name} {getattr(config, name)}"
        for name in ("position_signal", "step_signal", "halting")
        if getattr(config, name) != "none"
    ]
    found += ["injection"] if "injection" in config.plan.own else []
    found += [f"solver {config.solver}"] if config.solves else []
    found += ["input_injection"] if config.input_injection else []
    found += ["head_gate"] if config.head_gate else []
    found += [f"residual_factor {config.residual_factor:g}"] if config.residual_factor != 1 else []
    if config.output == "own" and config.has_mapping and config.mapping_input != "normed":
        found.append(
            f"output own, a matrix over vectors of {config.embedding_size}, where the embeddings are "
            f"multiplied out to {config.hidden_size} (it is held as it is by the layout albertine)"
        )
    found += [f"low_rank {config.plan.low_rank}"] if config.plan.low_rank else []
    return found + obstacles(config, kind)


def expanded_config(config: EncoderConfig, layout: Layout = "transformers") -> EncoderConfig:
    """The configuration of `expanded`.

    Raises:
        SettingsError: the layout cannot hold the model, with everything that is in the way.
    """
    if found := unsupported_features(config, layout):
        raise SettingsError(
            f"the layout of {layout} has no place for {', '.join(found)}",
            remedy="Leave the layout out, and the model is written in Albertine's own",
        )
    config = multiplied_embeddings_config(config)
    return config if layout == "transformers" and model_type(config) == "albert" else unshared_config(config)


def unshared_config(config: EncoderConfig) -> EncoderConfig:
    """With a block of its own for every depth."""
    return replace(config, plan=SharingPlan.unshared(config.plan.depth), relative_biases="block")


def multiplied_embeddings_config(config: EncoderConfig) -> EncoderConfig:
    """The configuration of `multiplied_embeddings`.

    Raises:
        SettingsError: the table would be larger than that of any model.
    """
    if config.mapping_input == "normed" or not config.has_mapping:
        return config
    if (numbers := config.vocab_size * config.hidden_size) > MAX_PRODUCT:
        raise SettingsError(f"a table of {numbers:,} numbers for the words is more than any such model has")
    return replace(config, embedding_size=config.hidden_size, embedding_mapping="if_needed")


def multiplied_embeddings(model: Model) -> Model:
    """The same model with the product of both factors as its word embeddings, (V, H), where they are mapped
    before the LayerNorm; else the model itself. Its outputs are the same up to rounding.

    Raises:
        SettingsError: as `multiplied_embeddings_config`.
    """
    if (config := multiplied_embeddings_config(model.config)) == model.config:
        return model
    return model_with_state(config, model, _multiplied(model.state_dict()))


def _multiplied(state: dict[str, Tensor]) -> dict[str, Tensor]:
    table = embedding_product(state[WORD], state[MAPPING])
    return {name: x for name, x in state.items() if name != MAPPING} | {WORD: table}


def embedding_product(word: Tensor, mapping: Tensor) -> Tensor:
    """The table (V, H) of two factors, in float64 so that every machine finds the same."""
    return (word.cpu().double() @ mapping.cpu().double().T).float().to(word.device)


def model_with_state(config: EncoderConfig, like: Model, state: Mapping[str, Tensor]) -> Model:
    """A model of these weights, in the precision and the mode of another."""
    with torch.device("meta"):
        result = Model(config, like.heads, precision=like.precision)
    result.load_state_dict(state, assign=True)
    return result.requires_grad_(True).train(like.training)


def size_change(model: Model, copies: Model) -> str:
    """A note on the number of parameters of a model and of its expansion `copies`."""
    before, after = (sum(x.numel() for x in m.state_dict().values()) for m in (model, copies))
    return f"{after:,} numbers instead of {before:,}, for the same outputs"


def expanded(model: Model, layout: Layout = "transformers") -> Model:
    """The expansion of a model: a block for every layer unless the layout supports its sharing, and for
    ModernBERT and brightmart's the product of the two embedding factors. Its outputs are the same up to
    rounding.

    Raises:
        SettingsError: as `expanded_config`.
    """
    config = expanded_config(model.config, layout)
    state = replan(model, config.plan).state_dict()
    if model.config.relative_biases == "tied":
        tied = [name for name in state if name.startswith(f"{_FIRST}biases.")]
        for d in range(1, config.num_hidden_layers):
            state |= {n.replace(_FIRST, f"encoder.attention.{d}."): state[n].clone() for n in tied}
    if config.has_mapping != model.config.has_mapping:
        state = _multiplied(state)
    if config.norm == "pre":  # what no output depends on is as in a model that is read
        for name in state:
            if name.startswith("encoder.attention.0.layer_norm."):
                state[name] = torch.full_like(state[name], float(name.endswith("weight")))
    return model_with_state(config, model, state)
