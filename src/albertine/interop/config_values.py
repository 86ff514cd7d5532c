"""Values out of a config.json, and what both kinds of them need."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from albertine.errors import ModelError, SettingsError
from albertine.model.config import Activation, Output

if TYPE_CHECKING:
    from albertine.interop.save_checks import SavableTokenizer


@contextmanager
def config_errors(file: Path) -> Iterator[None]:
    """A context for reading a configuration and building its model.

    Raises:
        ModelError: a value is missing, impossible, not supported, or of a wrong type, which cannot all be
            checked in advance.
    """
    try:
        yield
    except SettingsError as error:
        raise ModelError(f"cannot be used: {error}", where=file) from error
    except (TypeError, ValueError, AttributeError, LookupError, ArithmeticError) as error:
        what = f"cannot be used: a word has a value of the wrong kind ({error})"
        raise ModelError(what, where=file) from error


TANH_GELUS = ("gelu_new", "gelu_pytorch_tanh", "gelu_fast", "gelu_accurate")


def number(tree: Mapping[str, Any], name: str, cap: int = 1 << 24) -> int:
    """A whole number that must be there, from 1 to `cap`."""
    value = tree.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= cap:
        raise SettingsError(f"{name} must be a whole number from 1 to {cap}, got {value!r}")
    return value


def activation(name: Any) -> Activation:
    """Our name of an activation; `EncoderConfig` refuses unknown ones."""
    result: Activation = "gelu_new" if name in TANH_GELUS else name
    return result


def output_matrix(tree: Mapping[str, Any]) -> Output:
    """Whether the language-model head is tied to the word embeddings, by transformers' key."""
    return "own" if tree.get("tie_word_embeddings") is False else "tied"


def refuse_other(tree: Mapping[str, Any], only: Mapping[str, Any]) -> None:
    """Refuse a configuration that has other than these values, which are also those of a missing word."""
    for name, value in only.items():
        if tree.get(name, value) != value:
            raise SettingsError(f"{name} `{tree[name]}` is not supported")


def our_flags(tree: Mapping[str, Any]) -> dict[str, Any]:
    """The Albertine part of a configuration: settings that transformers does not have."""
    flags = tree.get("albertine")
    return flags if isinstance(flags, dict) else {}


def tokenizer_class(tokenizer: SavableTokenizer | None) -> str:
    """The class by which transformers reads the files of a tokenizer of ours."""
    wordpiece = getattr(tokenizer, "kind", "wordpiece") == "wordpiece"
    return "BertTokenizer" if wordpiece else "PreTrainedTokenizerFast"
