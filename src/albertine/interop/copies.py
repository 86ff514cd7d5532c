"""A model whose depths share weights, as a copy for every depth, and one whose word embeddings are a product,
as one table: what layouts that know neither hold, and what is folded together again when it is read."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Literal, get_args

import torch
from torch import Tensor

from albertine.errors import SettingsError
from albertine.interop.huggingface_config import model_type, obstacles
from albertine.interop.keymap import OURS
from albertine.model.config import EncoderConfig
from albertine.model.model import Model
from albertine.model.plan import SharingPlan
from albertine.model.replan import replan

Layout = Literal["transformers", "bert", "electra", "roformer", "modernbert", "xlnet", "albertine"]
"""Of folders with config.json and safetensors: transformers' (the first is the nearest of them), and ours."""
MAX_PRODUCT = 1 << 28
"""Numbers in a table of words that is multiplied out; that of the largest model has 123 million. Two narrow
factors in a small file must not ask for more memory than there is."""
LAYOUTS: dict[str, Layout] = {name: name for name in get_args(Layout)} | {"hf": "transformers"}
"""By the names that a person gives them."""
KEPT = f"{OURS}kept."
"""What the names of our parameters begin with that no copy gives back exactly."""

_WORD, _MAPPING = "encoder.embeddings.word.weight", "encoder.embeddings.mapping.weight"
_FIRST = "encoder.attention.0."
_BLOCK = re.compile(r"^encoder\.(attention|feed_forward)\.(\d+)\.(.+)$")
_OWN_NORM = re.compile(r"^encoder\.own\.(\d+)\.(attention|feed_forward)\.(layer_norm\..+)$")
_FREE = (
    "hidden_dropout_prob",
    "attention_probs_dropout_prob",
    "classifier_dropout_prob",
    "max_position_embeddings",
    "initializer_range",
)
"""What a person may change in the config.json of copies without making another model of them."""
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


def in_the_way(config: EncoderConfig, layout: Layout) -> list[str]:
    """What of an encoder a layout has no place for; "transformers" is the nearest of its layouts."""
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
    found += [f"low_rank {config.plan.low_rank}"] if config.plan.low_rank else []
    return found + obstacles(config, kind)


def copied_config(config: EncoderConfig, layout: Layout = "transformers") -> EncoderConfig:
    """The configuration of `copied`.

    Raises:
        SettingsError: the layout cannot hold the model, with everything that is in the way.
    """
    if found := in_the_way(config, layout):
        raise SettingsError(
            f"the layout of {layout} has no place for {', '.join(found)}",
            remedy="Leave the layout out, and the model is written in Albertine's own",
        )
    config = one_table_config(config)
    return config if layout == "transformers" and model_type(config) == "albert" else _written_out(config)


def _written_out(config: EncoderConfig) -> EncoderConfig:
    """With a block of its own for every depth."""
    return replace(config, plan=SharingPlan.unshared(config.plan.depth), relative_biases="block")


def one_table_config(config: EncoderConfig) -> EncoderConfig:
    """The configuration of `one_table`.

    Raises:
        SettingsError: the table would be larger than that of any model.
    """
    if config.mapped == "normed" or not config.has_mapping:
        return config
    if (numbers := config.vocab_size * config.hidden_size) > MAX_PRODUCT:
        raise SettingsError(f"a table of {numbers:,} numbers for the words is more than any such model has")
    return replace(config, embedding_size=config.hidden_size, embedding_mapping="if_needed")


def one_table(model: Model) -> Model:
    """The same model with the product of both factors as its word embeddings, (V, H), where they are mapped
    before the LayerNorm; else the model itself. Its outputs are the same up to rounding.

    Raises:
        SettingsError: as `one_table_config`.
    """
    if (config := one_table_config(model.config)) == model.config:
        return model
    return _with_state(config, model, _multiplied(model.state_dict()))


def _multiplied(state: dict[str, Tensor]) -> dict[str, Tensor]:
    # In float64, so that every machine finds the same product.
    word, mapping = state[_WORD], state[_MAPPING]
    product = (word.cpu().double() @ mapping.cpu().double().T).float().to(word.device)
    return {name: x for name, x in state.items() if name != _MAPPING} | {_WORD: product}


def _with_state(config: EncoderConfig, like: Model, state: Mapping[str, Tensor]) -> Model:
    with torch.device("meta"):
        result = Model(config, like.heads, precision=like.precision)
    result.load_state_dict(state, assign=True)
    return result.requires_grad_(True).train(like.training)


def in_numbers(model: Model, copies: Model) -> str:
    """What a model costs as `copies` of it."""
    before, after = (sum(x.numel() for x in m.state_dict().values()) for m in (model, copies))
    return f"{after:,} numbers instead of {before:,}, for the same outputs"


def copied(model: Model, layout: Layout = "transformers") -> Model:
    """The same model with a block of its own for every depth, and for ModernBERT and brightmart's with
    embeddings as wide as the hidden states, the product of the two factors (which is all of it where the
    layout knows the sharing). Its outputs are the same up to rounding.

    Raises:
        SettingsError: as `copied_config`.
    """
    return _as(model, copied_config(model.config, layout))


def _as(model: Model, config: EncoderConfig) -> Model:
    plain = replan(model, config.plan)
    state = plain.state_dict()
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
    return _with_state(config, model, state)


def kept_beside(model: Model, copies: Model) -> dict[str, Tensor]:
    """Our parameters that `folded` could not tell from the copies alone, by their names in the file: factors
    of products, and what nothing is computed with."""
    told = _told(copies, model.config, {name: x.shape for name, x in model.state_dict().items()})
    return {
        KEPT + name: x.detach().cpu().contiguous()
        for name, x in model.state_dict().items()
        if name not in told or not torch.equal(told[name], x.cpu())
    }


def folded(copies: Model, config: EncoderConfig, kept: Mapping[str, Tensor]) -> Model | None:
    """The model that was written as these copies; None where they are no longer copies of one model, as after
    training by a library that knows of no sharing.

    Args:
        config: of the model. kept: what `kept_beside` gave.
    """
    if (both := as_written(config, copies.config)) is None:
        return None
    config, written = both
    with torch.device("meta"):
        model = Model(config, copies.heads)
    shapes = {name: x.shape for name, x in model.state_dict().items()}
    state = _told(copies, config, shapes)
    state |= {n: kept[KEPT + n].float() for n, shape in shapes.items() if _has(kept, KEPT + n, shape)}
    if state.keys() != shapes.keys():
        return None
    model.load_state_dict(state, assign=True)
    again, found = _as(model, written).state_dict(), copies.state_dict()
    same = again.keys() == found.keys() and all(
        again[name].shape == x.shape and torch.allclose(again[name], x, rtol=1e-5, atol=1e-6)
        for name, x in found.items()
    )
    return model if same else None


def as_written(config: EncoderConfig, found: EncoderConfig) -> tuple[EncoderConfig, EncoderConfig] | None:
    """A model's configuration, with what may have been changed since, and that of its copies, which is
    `found`; None where no way of writing the model out gives `found`."""
    config = replace(config, **{name: getattr(found, name) for name in _FREE})
    if in_the_way(config, "transformers"):
        return None
    # What transformers could share may have been written out all the same, for who knows only stacks.
    ways = copied_config(config), _written_out(one_table_config(config))
    written = next((way for way in ways if _computes(way, found)), None)
    return None if written is None else (config, written)


def depths_agree(copies: Mapping[str, Tensor], config: EncoderConfig, names: Iterable[str]) -> bool:
    """Whether all depths that used a block have the same numbers in its place, as only copies have.

    Args:
        copies: by our names; they are looked up a block at a time.
        config: of the model that was written out. names: of its parameters.
    """
    for name in names:
        if (block := _BLOCK.match(name)) is not None:
            values = _values(copies, config, block[1], int(block[2]), block[3])
            if any(x is None or values[0] is None or not torch.equal(x, values[0]) for x in values):
                return False
    return True


def _computes(one: EncoderConfig, other: EncoderConfig) -> bool:
    """Whether two configurations are the same; that of a tokenizer's padding token may differ."""
    return replace(one, pad_token_id=other.pad_token_id) == other


def _told(copies: Model, config: EncoderConfig, shapes: Mapping[str, torch.Size]) -> dict[str, Tensor]:
    """Those parameters of a model that its copies agree about."""
    state = {name: x.detach() for name, x in copies.state_dict().items()}
    told = {}
    written_out = config.mapped != "words" or copies.config.plan != config.plan
    for name, shape in shapes.items():
        if written_out and (block := _BLOCK.match(name)) is not None:
            values = _values(state, config, block[1], int(block[2]), block[3])
        elif (own := _OWN_NORM.match(name)) is not None:
            values = [state.get(f"encoder.{own[2]}.{own[1]}.{own[3]}")]
        else:
            values = [state.get(name)]
        found = [x for x in values if x is not None]
        agreed = len(found) == len(values) and all(torch.equal(x, found[0]) for x in found)
        if found and agreed and found[0].shape == shape:
            told[name] = found[0].cpu().clone()
    return told


def _values(
    state: Mapping[str, Tensor], config: EncoderConfig, part: str, number: int, rest: str
) -> list[Tensor | None]:
    """What the depths that used a block have in its place."""
    used = {"attention": config.plan.attention, "feed_forward": config.plan.feed_forward}[part]
    # A pre-norm encoder's depth 0 does not normalise what its attention reads: its copy has a norm unused.
    unused = config.norm == "pre" and part == "attention" and rest.startswith("layer_norm.")
    tied = config.relative_biases == "tied" and rest.startswith("biases.")
    return [
        state.get(f"encoder.{part}.{d}.{rest}")
        for d, block in enumerate(used)
        if (block == number or tied) and not (unused and d == 0)
    ]


def _has(tensors: Mapping[str, Tensor], name: str, shape: torch.Size) -> bool:
    return name in tensors and tensors[name].shape == shape
