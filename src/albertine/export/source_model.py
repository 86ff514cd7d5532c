"""The model that is exported: its folder, and the head that a graph answers with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from albertine.errors import ModelError, SettingsError
from albertine.inference.embedding import vector_settings
from albertine.inference.graph_heads import (
    Head,
    Hidden,
    TextVector,
    Words,
)
from albertine.inference.whitening import read_whitening
from albertine.interop.heads import head_config_for, task_of
from albertine.interop.huggingface.config import config_json, our_flags
from albertine.interop.huggingface.folders import read_folder, written_type
from albertine.interop.model_files import digest_of
from albertine.interop.model_folder import ModelFolder
from albertine.interop.model_names import model_folder
from albertine.interop.sentence_transformers import WHITENING, vector_files
from albertine.model.model import Model
from albertine.tasks.families import family_of, tuned_model
from albertine.tokenizers.base import Tokenizer
from albertine.tokenizers.load import check_tokenizer, has_vocabulary, load_tokenizer

HEADS = ("task", "fill-mask", "embed", "features")
"""Outputs of a graph: of the model's task, or of masked tokens if it has none; of masked tokens; the vector
of a text; the hidden states of every token."""


@dataclass(frozen=True)
class Opened:
    """A model to export.

    Attributes:
        path: its folder. digest: of its weights and configuration.
        head: what the graph answers with. answers: the name of that: a task, or one of `HEADS`.
        config: config.json of the exported folder. tokenizer: None where the model has none.
        files: further files of the exported folder, by their paths in it.
    """

    path: Path
    digest: str
    head: Head
    answers: str
    config: dict[str, Any]
    tokenizer: Tokenizer | None
    files: Mapping[str, bytes] = field(default_factory=dict)


def opened(what: str | Path, wanted: str = "task") -> Opened:
    """Read a model to export it.

    Args:
        what: a model folder, a run, a released model or `owner/name` of the hub. wanted: one of `HEADS`.

    Raises:
        ModelError: there is no such model, or it computes what has no graph. SettingsError: an unknown head.
    """
    if wanted not in HEADS:
        raise SettingsError(f"there is no head `{wanted}`", remedy=f"Use one of {', '.join(HEADS)}")
    path = model_folder(what)
    folder = read_folder(path)
    folder.model.precision, folder.model.encoder.backend = "float32", "plain"
    _refuse_loops(folder.model, path)
    tokenizer = load_tokenizer(path) if has_vocabulary(path) else None
    if tokenizer is not None:
        check_tokenizer(folder.model.config, tokenizer, path)
    answers = _which(folder, wanted, path)
    head, files = _head(answers, folder, tokenizer, path)
    config = _config(folder, tokenizer, answers)
    # sentence-transformers pools last states itself: no other head, nor what whitens them or averages all
    # layers, has its modules.
    pooled = answers in ("embed", "features") and not (path / WHITENING).is_file()
    last = folder.encoder.summary == "last"
    beside = vector_files(path, last=last, all_layers=False) if pooled else {}
    return Opened(path, digest_of(path), head, answers, config, tokenizer, beside | files)


def _refuse_loops(model: Model, path: Path) -> None:
    """Loops without a fixed number of steps have no graph."""
    why = None
    if model.config.halts:
        why = "decides itself after how many steps each token is done, and a graph has a fixed number of them"
    if model.config.solves:
        why = "runs until nothing changes any more (a fixed point), and a graph has a fixed number of steps"
    if why is not None:
        raise ModelError(f"cannot be exported: it {why}", where=path, remedy="Use it with albertine predict")


def _which(folder: ModelFolder, wanted: str, path: Path) -> str:
    """The name of what the graph answers."""
    task = task_of(folder)
    if task is None and "classifier.weight" in folder.extra:
        task = "classify"  # the default of folders without a task
    if wanted == "features" or (wanted == "embed" and task != "embed"):
        return wanted
    if wanted == "task" and task is not None:
        return task
    if wanted == "embed":
        return "embed"
    if folder.model.mlm is not None:
        return "fill-mask"
    if wanted == "fill-mask":
        raise ModelError("has no masked-LM head", where=path, remedy="Use a pretrained model")
    if folder.model.lm is not None:
        raise ModelError(
            "goes on with texts from a memory of what was before (XLNet), which a graph does not carry",
            where=path,
            remedy="Use it with albertine predict continue, or export its states: --head features",
        )
    return "features"


def _head(
    answers: str, folder: ModelFolder, tokenizer: Tokenizer | None, path: Path
) -> tuple[Head, dict[str, bytes]]:
    """The head of that name, and the files that its outputs are read with."""
    base = folder.model
    if answers == "features":
        return Hidden(base), {}
    if answers == "fill-mask":
        return Words(base), {}
    if answers == "embed":
        how = vector_settings(folder, path)
        whitening = read_whitening(path, base.config.hidden_size, base.config.plan.depth)
        return TextVector(base, how.pooling, how.normalize, whitening), {}
    if tokenizer is None:
        raise ModelError("has no tokenizer", where=path, remedy="Put its vocabulary beside its config.json")
    family = family_of(folder, tokenizer, path)
    model = tuned_model(folder, family, path)
    return family.graph_head(model, path), family.graph_files(model)


def _config(folder: ModelFolder, tokenizer: Tokenizer | None, answers: str) -> dict[str, Any]:
    """config.json as in a saved model folder, with the part on the head where that is exported."""
    tree = config_json(folder.model, tokenizer)
    # Never of a head that the graph lacks: numbers of a vector would be taken for its logits.
    if answers not in HEADS or (answers == "embed" and task_of(folder) in (None, "embed")):
        head_config = head_config_for(folder, written_type(folder.model.config))
        tree |= head_config | {"albertine": our_flags(tree) | our_flags(head_config)}
    return tree
