"""Albertine: parameter-shared text encoders, from raw text to a served model.

Everything is imported on first use, so that `import albertine` costs nothing.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from albertine.interop.writing import SavableTokenizer
    from albertine.model.model import Model
    from albertine.text.tokenizer import Tokenizer

__version__ = "0.1.0"
__all__ = ["load", "load_tokenizer", "presets", "save"]


def load(path_or_preset: str | Path, *, seed: int = 0) -> Model:
    """A model from a folder, or with random weights from the name of a preset.

    Args:
        path_or_preset: a model folder, or a name among `presets()`; a path wins if both exist.
        seed: random weights of a preset are a function of it.

    Returns:
        A `torch.nn.Module` in evaluation mode, called as model(input_ids, attention_mask=None,
        token_type_ids=None).

    Raises:
        ModelError: neither exists, or the folder is damaged.
    """
    from albertine.errors import ModelError, SettingsError
    from albertine.files import standing
    from albertine.interop.huggingface import load_model
    from albertine.model.model import Model
    from albertine.model.presets import preset

    if standing(Path(path_or_preset)).exists():
        return load_model(path_or_preset)
    try:
        config = preset(str(path_or_preset))
    except SettingsError as error:
        raise ModelError(
            "is neither a folder nor a preset", where=path_or_preset, remedy=error.remedy
        ) from error
    return Model(config, {"mlm", "nsp" if config.is_bert else "sop"}, seed=seed).eval()


def save(model: Model, tokenizer: SavableTokenizer | None, folder: str | Path) -> None:
    """Write a model folder that `load`, and where its plan allows transformers, reads; whole or not at all.

    Raises:
        ModelError: the folder holds something else, or cannot be written.
    """
    from albertine.interop.huggingface import save_model

    save_model(model, tokenizer, folder)


def load_tokenizer(path: str | Path) -> Tokenizer:
    """The tokenizer in a folder or vocabulary file; its kind is told by the files.

    Raises:
        TokenizerError: nothing there that is one.
    """
    from albertine.text.load import load_tokenizer as load_from

    return load_from(Path(path))


def presets() -> tuple[str, ...]:
    """The names that `load` knows."""
    from albertine.model.presets import PRESETS

    return tuple(PRESETS)
