"""Published configurations, and the rows of the studies of Lan et al. (2019), by name."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from albertine.errors import SettingsError
from albertine.model.config import Activation, EncoderConfig
from albertine.model.sharing import SharingPlan


def _encoder(
    hidden: int, depth: int, heads: int, *, vocab: int, embedding: int = 128, dropout: float = 0.0
) -> EncoderConfig:
    return EncoderConfig(
        vocab_size=vocab,
        embedding_size=embedding,
        hidden_size=hidden,
        num_attention_heads=heads,
        intermediate_size=4 * hidden,
        plan=SharingPlan.shared(depth),
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
    )


def _chinese(
    hidden: int, depth: int, heads: int, activation: Activation, init: float = 0.02
) -> EncoderConfig:
    config = _encoder(hidden, depth, heads, vocab=21128)
    return replace(config, hidden_act=activation, initializer_range=init)


def _brightmart(hidden: int, depth: int, heads: int) -> EncoderConfig:
    """brightmart/albert_zh's own `modeling.py`: words mapped before positions and segments are added."""
    return replace(_chinese(hidden, depth, heads, "gelu_new"), embedding_mapping="words")


def _bert(hidden: int, depth: int, heads: int, vocab: int) -> EncoderConfig:
    config = _encoder(hidden, depth, heads, vocab=vocab, embedding=hidden, dropout=0.1)
    # Google's BERT code, like its ALBERT code, calls the tanh approximation "gelu"; transformers reads that
    # word as erf.
    return config.with_plan(SharingPlan.unshared(depth))


def _xlnet(hidden: int, depth: int, heads: int) -> EncoderConfig:
    """XLNet (Yang et al. 2019, A.4.1): biases of each layer, no LayerNorm of embeddings, no cut in drawing
    the weights; A, B and <cls> are segments. Its code, too, calls the tanh approximation "gelu"."""
    config = replace(
        _encoder(hidden, depth, heads, vocab=32000, embedding=hidden, dropout=0.1),
        positions="relative",
        type_vocab_size=3,
        embedding_norm=False,
        summary="last",
        initialization="normal",
        pad_token_id=5,
    )
    return config.with_plan(SharingPlan.unshared(depth))


def _mini() -> EncoderConfig:
    """The shape of the released models: RoFormer's block, so that transformers can load it."""
    config = replace(_encoder(256, 4, 4, vocab=8000), hidden_act="gelu", positions="rotary")
    return config.with_plan(SharingPlan.unshared(4))


def _presets() -> dict[str, EncoderConfig]:
    # xlarge has 16 heads of size 128, not H/64 = 32.
    shapes = {
        "base": (768, 12, 12),
        "large": (1024, 24, 16),
        "xlarge": (2048, 24, 16),
        "xxlarge": (4096, 12, 64),
    }
    presets: dict[str, EncoderConfig] = {}
    for size, shape in shapes.items():
        v1_dropout = 0.0 if size == "xxlarge" else 0.1
        presets[f"albert-{size}-v1"] = _encoder(*shape, vocab=30000, dropout=v1_dropout)
        presets[f"albert-{size}-v2"] = _encoder(*shape, vocab=30000)
    presets |= {
        "albert-tiny-zh": _chinese(312, 4, 12, "gelu_new"),
        "albert-small-zh": _chinese(384, 6, 12, "gelu_new"),
        "albert-base-zh": _chinese(768, 12, 12, "relu"),
        "albert-large-zh": _chinese(1024, 24, 16, "relu"),
        "albert-xlarge-zh": _chinese(2048, 24, 16, "relu", init=0.014),
        # 16 heads of size 256 here, unlike the English xxlarge.
        "albert-xxlarge-zh": _chinese(4096, 12, 16, "relu", init=0.01),
        # brightmart's own architecture; its xxlarge is a pre-norm encoder of another kind.
        "brightmart-tiny-zh": _brightmart(312, 4, 12),
        "brightmart-base-zh": _brightmart(768, 12, 12),
        "brightmart-large-zh": _brightmart(1024, 24, 16),
        "brightmart-xlarge-zh": _brightmart(2048, 24, 32),
        "bert-base": _bert(768, 12, 12, 30522),
        "bert-large": _bert(1024, 24, 16, 30522),
        "bert-base-zh": _bert(768, 12, 12, 21128),
        "xlnet-base": _xlnet(768, 12, 12),
        "xlnet-large": _xlnet(1024, 24, 16),
        "albertine-mini": _mini(),
    }
    return presets


PRESETS: dict[str, EncoderConfig] = _presets()
"""Name → configuration; the names of the design page."""

SHARING = {
    "all": SharingPlan.shared,
    "attention": SharingPlan.attention_only,
    "ffn": SharingPlan.feed_forward_only,
    "none": SharingPlan.unshared,
}
EMBEDDING_SIZES = (64, 128, 256, 768)


def paper_row(
    sharing: str = "all", embedding_size: int = 128, *, base: str = "albert-base-v2"
) -> EncoderConfig:
    """A row of the paper's Tables 3 and 4: `base` with another embedding size E and another way of sharing.

    Args:
        sharing: "all", "attention", "ffn" or "none".
    """
    if sharing not in SHARING:
        raise SettingsError(f"unknown sharing `{sharing}`", remedy=f"Use one of {', '.join(SHARING)}")
    config = preset(base)
    return replace(config, embedding_size=embedding_size, plan=SHARING[sharing](config.num_hidden_layers))


def paper_rows() -> dict[str, EncoderConfig]:
    """The rows of Tables 3 and 4 by name, such as `albert-base-ffn-e768`."""
    return {f"albert-base-{s}-e{e}": paper_row(s, e) for s in SHARING for e in EMBEDDING_SIZES}


def changed_preset(name: str, changes: Mapping[str, Any]) -> EncoderConfig:
    """A preset with other values for some fields of `EncoderConfig`, or for `num_hidden_layers`; `plan` may
    also be a name of `SHARING`.

    Another depth shares as the preset does. Where `hidden_size` changes, what is not named goes with it: the
    feed-forward part keeps its multiple, heads their size (as near as divides), and embeddings that are as
    wide as the hidden states stay so.

    Raises:
        SettingsError: there is no such preset or field, or values do not fit together.
    """
    config, values = preset(name), dict(changes)
    known = ["num_hidden_layers", *(field.name for field in fields(EncoderConfig))]
    for field in values:
        if field not in known:
            near = [name for name in known if field in name] or difflib.get_close_matches(field, known, n=1)
            remedy = f"Did you mean `{near[0]}`?" if near else f"Known are {', '.join(known)}"
            raise SettingsError(f"there is no `{field}` in the configuration of an encoder", remedy=remedy)
    sharing = values.get("plan")
    by_name = isinstance(sharing, str) and sharing in SHARING
    if "plan" in values and not by_name and not isinstance(sharing, SharingPlan):
        raise SettingsError(
            f"there is no plan {sharing!r:.40}",
            remedy=f"Use one of {', '.join(SHARING)}, or a SharingPlan of albertine.model.sharing",
        )
    if "num_hidden_layers" in values:
        depth = values.pop("num_hidden_layers")
        if isinstance(depth, bool) or not isinstance(depth, int) or depth < 1:
            raise SettingsError(f"num_hidden_layers is a whole number from 1, not {depth!r:.40}")
        if "plan" in values and not by_name:
            raise SettingsError("num_hidden_layers and plan both set the depth", remedy="Leave one out")
        values["plan"] = SHARING[values["plan"]](depth) if by_name else config.plan.resized(depth)
    elif by_name:
        values["plan"] = SHARING[values["plan"]](config.num_hidden_layers)
    hidden = values.get("hidden_size")
    if isinstance(hidden, int) and hidden > 0:
        most = max(1, hidden // config.head_size)
        usual = {
            "num_attention_heads": next(n for n in range(most, 0, -1) if hidden % n == 0),
            "intermediate_size": config.intermediate_size * hidden // config.hidden_size,
        }
        if config.embedding_size == config.hidden_size:
            usual["embedding_size"] = hidden
        values = usual | values
    try:
        return replace(config, **values)
    except TypeError as error:  # a string where a number is compared
        raise SettingsError(f"a value is of the wrong type ({error})", where=f"preset {name}") from error


def is_preset(name: str) -> bool:
    """Whether `preset` knows a name."""
    return name in PRESETS or name in paper_rows()


def preset(name: str) -> EncoderConfig:
    """The configuration of a preset or a paper row; an unknown name is a SettingsError that suggests the
    nearest."""
    if name in PRESETS:
        return PRESETS[name]
    rows = paper_rows()
    if name in rows:
        return rows[name]
    near = difflib.get_close_matches(name, [*PRESETS, *rows], n=1)
    remedy = f"Did you mean `{near[0]}`?" if near else f"Known presets: {', '.join(PRESETS)}"
    raise SettingsError(f"there is no preset `{name}`", remedy=remedy)
