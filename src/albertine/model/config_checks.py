"""Which configurations there are: sizes within bounds, known choices, and choices that go together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import log10
from sys import float_info
from typing import Any

from albertine.errors import SettingsError
from albertine.model.sharing import SharingPlan

Fields = Mapping[str, Any]
"""Those of an `EncoderConfig`, by name."""

MAX_DEPTH = 4096
MAX_WIDTH = 1 << 20
MAX_ROWS = 1 << 24
# The caps stop a broken configuration file from asking for terabytes before anything else looks at it.
_CAPS = {
    "vocab_size": MAX_ROWS,
    "max_position_embeddings": MAX_ROWS,
    "type_vocab_size": MAX_ROWS,
    "clamp_positions": MAX_ROWS,
    "embedding_size": MAX_WIDTH,
    "hidden_size": MAX_WIDTH,
    "intermediate_size": MAX_WIDTH,
    "num_attention_heads": MAX_WIDTH,
}
_MAY_BE_0 = ("type_vocab_size", "clamp_positions")
_REMEDIES = {"clamp_positions": "Give the largest distance that is told apart, 1 or more, or 0 for no clamp"}

KNOWS_ITS_STEP = "a step that knows its number has no fixed point"


def check(config: Fields, choices: Mapping[str, tuple[str, ...]], flags: Iterable[str]) -> None:
    """
    Args:
        choices: the words that each field takes that takes one of several. flags: what is true or false.

    Raises:
        SettingsError: what `EncoderConfig` says.
    """
    _check_sizes(config)
    for name, known in choices.items():
        if config[name] not in known:
            raise SettingsError(
                f"{name} `{_shown(config[name], str)}` is not supported",
                remedy=f"Use one of {', '.join(known)}",
            )
    for name in flags:
        if not isinstance(config[name], bool):
            raise SettingsError(f"{name} must be true or false, got {_shown(config[name])}")
    for name in ("hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout_prob"):
        if not _is_number(config[name]) or not 0.0 <= config[name] < 1.0:
            raise SettingsError(f"{name} must be in [0, 1), got {_shown(config[name])}")
    for name in ("initializer_range", "layer_norm_eps"):
        if not _is_number(config[name]) or not 0 < config[name] <= float_info.max:
            raise SettingsError(f"{name} must be positive and finite, got {_shown(config[name])}")
    _check_positions(config)
    _check_halting(config)
    if config["embedding_mapping"] == "words" and config["norm"] == "pre":
        raise SettingsError(
            "a pre-norm encoder maps the sum of its embeddings, not the words alone",
            remedy="Set embedding_mapping=if_needed, or norm=post",
        )
    if config["solver"] != "none":
        _check_fixed_point(config)


def _check_sizes(config: Fields) -> None:
    for name, cap in _CAPS.items():
        value, least = config[name], int(name not in _MAY_BE_0)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= cap:
            raise SettingsError(
                f"{name} must be a whole number from {least} to {cap}, got {_shown(value)}",
                remedy=_REMEDIES.get(name),
            )
    if config["plan"].depth > MAX_DEPTH:
        raise SettingsError(f"a depth of {config['plan'].depth} is more than {MAX_DEPTH}")
    if config["hidden_size"] % config["num_attention_heads"]:
        raise SettingsError(
            f"hidden_size {config['hidden_size']} is not a multiple of "
            f"num_attention_heads {config['num_attention_heads']}"
        )
    if not 0 <= config["pad_token_id"] < config["vocab_size"]:
        raise SettingsError(
            f"pad_token_id {_shown(config['pad_token_id'])} is outside the vocabulary of "
            f"{config['vocab_size']}"
        )


def _head_size(config: Fields) -> int:
    return int(config["hidden_size"] // config["num_attention_heads"])


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _shown(value: object, text: Callable[[object], str] = repr) -> str:
    """A value in a message. Python refuses to write whole numbers of thousands of digits."""
    if isinstance(value, int) and value.bit_length() > 64:
        return f"a whole number of about {value.bit_length() * log10(2):.0f} digits"
    return text(value)


def _check_positions(config: Fields) -> None:
    base = config["rotary_base"]
    if not _is_number(base) or not 1 < base <= float_info.max:
        # A whole number may be larger than any float.
        raise SettingsError(f"rotary_base must be above 1 and finite, got {_shown(base)}")
    if config["positions"] == "rotary" and _head_size(config) % 2:
        raise SettingsError(f"rotary positions need heads of an even size, got {_head_size(config)}")
    if config["positions"] == "relative":
        if config["hidden_size"] % 2 or config["qk_norm"]:
            raise SettingsError("relative positions need an even hidden_size, and qk_norm: false")
    elif config["clamp_positions"] or config["relative_biases"] != "block":
        raise SettingsError(
            "clamp_positions and relative_biases belong to relative positions",
            remedy="Set positions: relative, or leave them out",
        )


def _check_halting(config: Fields) -> None:
    if not _is_number(epsilon := config["halting_epsilon"]) or not 0 < epsilon < 1:
        raise SettingsError(f"halting_epsilon must be above 0 and below 1, got {_shown(epsilon)}")
    blocks = config["plan"].num_attention_blocks, config["plan"].num_feed_forward_blocks
    if config["halting"] != "none" and blocks != (1, 1):
        raise SettingsError(
            f"halting repeats one block, and this plan has {blocks[0]} of attention and {blocks[1]} of "
            "feed-forward",
            remedy="Share all depths (model.sharing=all), or set halting=none",
        )


def _check_fixed_point(config: Fields) -> None:
    if not _is_number(tolerance := config["tolerance"]) or not 0 < tolerance < 1:
        raise SettingsError(f"tolerance must be between 0 and 1, got {_shown(tolerance)}")
    if config["halting"] != "none":
        raise SettingsError(
            "a loop either halts by itself or runs to its fixed point",
            remedy="Set halting=none or solver=none",
        )
    if config["plan"] != SharingPlan.shared(config["plan"].depth):
        raise SettingsError(
            "a fixed point is that of one block, and the depths of this plan differ",
            remedy="Share all (model.sharing=all, no model.own, no model.low_rank), or set solver=none",
        )
    if config["step_signal"] != "none":
        raise SettingsError(
            KNOWS_ITS_STEP,
            remedy="Set step_signal=none, or solver=none",
        )
    if config["norm"] == "pre":
        raise SettingsError(
            "a pre-norm block adds to its input and leaves nothing as it is, so it has no fixed point",
            remedy="Use norm=post, or set solver=none",
        )
    if not config["input_injection"]:
        raise SettingsError(
            "at a fixed point nothing is left of the input unless every step is given it",
            remedy="Add model.change.input_injection=true",
        )
