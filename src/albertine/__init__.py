"""Albertine: parameter-shared text encoders, from raw text to a served model.

Everything is imported on first use, so that `import albertine` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from albertine.api import evaluate, finetune, prepare, pretrain
    from albertine.interop.writing import SavableTokenizer
    from albertine.model.model import Model
    from albertine.tasks.predictor import Predictor
    from albertine.text.tokenizer import Tokenizer

__version__ = "0.1.0"
__all__ = [
    "Predictor",
    "evaluate",
    "finetune",
    "load",
    "load_tokenizer",
    "prepare",
    "presets",
    "pretrain",
    "released_models",
    "save",
]
ELSEWHERE = {
    "Predictor": "albertine.tasks.predictor",
    **dict.fromkeys(("evaluate", "finetune", "prepare", "pretrain"), "albertine.api"),
}
"""What stands in another module, which is imported when it is first asked for."""


def __getattr__(name: str) -> Any:
    if name in ELSEWHERE:
        return getattr(import_module(ELSEWHERE[name]), name)
    raise AttributeError(f"module `albertine` has no attribute `{name}`")


def load(path_or_preset: str | Path, *, seed: int = 0) -> Model:
    """A model from a folder, a released one by its name, or with random weights from the name of a preset.

    Args:
        path_or_preset: a model folder, or a name among `released_models()` or `presets()`; a path wins if
            both exist.
        seed: random weights of a preset are a function of it.

    Returns:
        A `torch.nn.Module` in evaluation mode, called as model(input_ids, attention_mask=None,
        token_type_ids=None).

    Raises:
        ModelError: nothing of these exists, or the folder is damaged.
    """
    from albertine.errors import ModelError, SettingsError
    from albertine.files import standing
    from albertine.interop.huggingface import load_model
    from albertine.model.model import Model
    from albertine.model.presets import preset
    from albertine.released import which

    if standing(Path(path_or_preset)).exists():
        return load_model(path_or_preset)
    try:
        config = preset(str(path_or_preset))
    except SettingsError as error:
        raise ModelError(
            "is neither a folder, a released model nor a preset",
            where=path_or_preset,
            remedy=f"{which(str(path_or_preset))}. {error.remedy}",
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
    """The tokenizer in a folder or vocabulary file, or of a released model by its name; its kind is told by
    the files.

    Raises:
        TokenizerError: nothing there that is one.
    """
    from albertine.text.load import load_tokenizer as load_from

    return load_from(Path(path))


def released_models() -> tuple[str, ...]:
    """The names of the trained models that come with the package."""
    from albertine.released import released_names

    return released_names()


def presets() -> tuple[str, ...]:
    """The names of shapes that `load` fills with random weights."""
    from albertine.model.presets import PRESETS

    return tuple(PRESETS)
