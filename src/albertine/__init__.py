"""Albertine: parameter-shared text encoders, from raw text to a served model.

Everything is imported on first use, so that `import albertine` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any
from warnings import warn

from albertine.errors import SettingsError, TokenizerError, needs_torch

if TYPE_CHECKING:
    from albertine import analyze as analyze
    from albertine import study as study
    from albertine.api import (
        card,
        convert,
        distill,
        ensemble,
        evaluate,
        export,
        finetune,
        info,
        prepare,
        pretrain,
        report,
        score,
        suite,
    )
    from albertine.interop.model_folder import ModelFolder
    from albertine.interop.save_checks import SavableTokenizer
    from albertine.model.model import Model
    from albertine.sklearn import TextClassifier as TextClassifier
    from albertine.tasks.predictor import Predictor
    from albertine.tasks.trainable import TrainableTask
    from albertine.tokenizers.base import Tokenizer

__version__ = "0.1.0"
__all__ = [
    "Predictor",
    "analyze",
    "card",
    "convert",
    "distill",
    "ensemble",
    "evaluate",
    "export",
    "finetune",
    "info",
    "load",
    "load_task",
    "load_tokenizer",
    "prepare",
    "presets",
    "pretrain",
    "released_models",
    "report",
    "save",
    "score",
    "study",
    "suite",
]
ELSEWHERE = {
    "Predictor": "albertine.tasks.predictor",
    "TextClassifier": "albertine.sklearn",  # not in __all__: it needs scikit-learn, which may be missing
    **dict.fromkeys(
        ("card", "convert", "distill", "ensemble", "evaluate", "finetune", "info"), "albertine.api"
    ),
    **dict.fromkeys(("prepare", "pretrain", "report", "score", "suite"), "albertine.api"),
}
"""Names defined in other modules, which are imported at first use."""
MODULES = ("analyze", "export", "study")
"""Modules among the names; `export` is a package that can be called."""


if not TYPE_CHECKING:  # a type checker sees all names itself and reports misspelt ones

    def __getattr__(name: str) -> Any:
        if name in MODULES:
            return import_module(f"albertine.{name}")
        if name in ELSEWHERE:
            return getattr(import_module(ELSEWHERE[name]), name)
        raise AttributeError(f"module `albertine` has no attribute `{name}`")


def __dir__() -> list[str]:
    there = ELSEWHERE if find_spec("sklearn") else ELSEWHERE.keys() - {"TextClassifier"}
    return sorted({*globals(), *there, *MODULES})


@needs_torch
def load(
    what: str | Path, *, layers: int | None = None, random: bool = False, seed: int = 0, **changes: Any
) -> Model:
    """A trained model by its folder, run folder, released name or `owner/name` on the Hugging Face hub; or,
    on request, random weights in the shape of a preset.

    Args:
        what: a path, which wins if it exists; or one of `released_models()`; or `owner/name`, perhaps with
            `@revision`, which is looked for in the hub's cache before anything is downloaded. With `random`
            one of `presets()`.
        layers: another number of layers than the model has: other loops of a repeated core, also more than in
            training, or the first layers of another encoder (`model.resharing.with_layers`).
        random: fill the shape of a preset with random weights, a function of `seed`.
        changes: with `random`, other values for fields of `model.config.EncoderConfig`, such as
            `hidden_size=128, num_hidden_layers=2`; heads, feed-forward part and the like then keep their
            proportions unless they are named too. `plan` is a `SharingPlan` or a name: "all", "attention",
            "ffn" or "none".

    Returns:
        A `torch.nn.Module` in evaluation mode, called as model(input_ids, attention_mask=None,
        token_type_ids=None).

    Raises:
        ModelError: nothing of these exists or can be had, or the folder is damaged.
        SettingsError: there is no preset or field of that name, or values do not fit together; the encoder
            cannot compute that number of layers.
    """
    from albertine.errors import check_integer
    from albertine.interop.huggingface.folders import read_folder
    from albertine.interop.model_names import model_folder
    from albertine.model.model import Model
    from albertine.model.presets import changed_preset
    from albertine.tasks.readers.values import plain

    if layers is not None:
        check_integer("layers", layers, 1)
    if not random:
        if changes:
            raise SettingsError(
                f"{', '.join(changes)}: only the shape of a preset can be changed",
                where="albertine.load",
                remedy="Add random=True for random weights, or leave it out",
            )
        found = read_folder(folder := model_folder(what), layers=layers)
        _warn_of_head(found, what, folder)
        return found.model
    if layers is not None:  # refused by its name, with that of the field
        changes = {"layers": layers, **changes}
    config = changed_preset(str(what), plain(changes, "albertine.load"))
    return Model(config, config.pretraining_heads, seed=seed).eval()


def _warn_of_head(found: ModelFolder, what: object, folder: Path) -> None:
    """Warn that the head of a task, or a whitening, is not part of what `load` returns."""
    from albertine.interop.heads import task_of
    from albertine.interop.huggingface.xlnet_names import MASK_EMBEDDING
    from albertine.interop.sentence_transformers import WHITENING

    task = task_of(found)
    named = f" ({task})" if task else ""
    # What an ELECTRA was pretrained with is no head of a task, and its encoder is what is meant.
    aside = [name for name in found.left_aside if not name.startswith("discriminator_predictions.")]
    if aside:
        left = f"a head{named} that Albertine does not compute ({', '.join(aside)})"
    elif found.extra.keys() - {MASK_EMBEDDING}:
        left = f"the head of its task{named}"
    elif task == "embed" and (folder / WHITENING).is_file():
        left = "the whitening of its vectors"
    else:
        return
    whole = f"for the model with it use albertine.load_task({str(folder)!r}), for answers albertine.Predictor"
    warn(
        f"{what}: albertine.load leaves out {left}" + ("" if aside else f"; {whole}"),
        stacklevel=4,  # the caller of `load`, around which stands `needs_torch`
    )


@needs_torch
def load_task(what: str | Path) -> TrainableTask:
    """A tuned model with its head, for a training loop of one's own; its numbers are those of `Predictor`
    with precision="float32".

    Args:
        what: as `load`: a tuned model's folder, its run folder, or `owner/name` of the hub.

    Returns:
        A `torch.nn.Module` in evaluation mode, called as model(input_ids, attention_mask=None,
        token_type_ids=None, labels=None), for answers with start_positions= and end_positions= instead of
        labels=. It returns a tuple `TaskOutput` of `loss` (None without labels), `logits` and what else the
        task has. Similarity learns by the squared error of cosines, whatever loss the folder was tuned with.
        `save` writes it.

    Raises:
        ModelError: nothing is there, it was not tuned, or its task takes more than padded rows and labels
            (generation, reading, relations); the message names the function to use.
    """
    from albertine.tasks.trainable import load_task as run

    return run(what)


@needs_torch
def save(model: Model | TrainableTask, tokenizer: SavableTokenizer | None, folder: str | Path) -> None:
    """Write a model folder that `load`, and where its plan allows transformers, reads; whole or not at all.
    What `load_task` returned is written with its head. A folder that says how sentence-transformers makes
    vectors still says so, unless it has a whitening, which holds for the weights that were there, or averages
    all layers, which only a model tuned for it does. A compiled model is saved as it was before.

    Raises:
        ModelError: the folder holds something else, or cannot be written; or the model is one that `load`
            would refuse: adapters are not merged, a layer has another shape, a weight is not finite.
        TokenizerError: the tokenizer is none of ours.
    """
    from albertine.core.files import user_path
    from albertine.interop.huggingface.folders import save_model
    from albertine.interop.save_checks import COMPILED, plain_model
    from albertine.interop.sentence_transformers import vector_files

    folder = user_path(folder)
    if tokenizer is not None and not hasattr(tokenizer, "save"):
        remedy = "Give what albertine.load_tokenizer gives, or None"
        raise TokenizerError(
            f"a {type(tokenizer).__name__} is no tokenizer of albertine", where=folder, remedy=remedy
        )
    from albertine.tasks.trainable import TrainableTask, save_task

    if isinstance(whole := getattr(model, COMPILED, model), TrainableTask):
        save_task(whole, tokenizer, folder)
        return
    model = plain_model(model, folder)
    last = model.config.summary == "last"
    beside = vector_files(folder, same_weights=False, last=last, all_layers=False)
    save_model(model, tokenizer, folder, extra_files=beside)


@needs_torch
def load_tokenizer(what: str | Path) -> Tokenizer:
    """The tokenizer in a vocabulary file, or of a model by all that `load` takes; its kind follows from the
    files.

    Raises:
        ModelError: nothing there. TokenizerError: nothing there that is one.
    """
    from albertine.interop.model_names import model_folder
    from albertine.tokenizers.load import load_tokenizer as load_from

    return load_from(model_folder(what))


def released_models() -> tuple[str, ...]:
    """The names of the trained models that come with the package."""
    from albertine.core.released import released_names

    return released_names()


def presets() -> tuple[str, ...]:
    """The names of shapes that `load(name, random=True)` fills with random weights."""
    from albertine.model.presets import PRESETS

    return tuple(PRESETS)
