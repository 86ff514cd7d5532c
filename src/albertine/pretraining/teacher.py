"""The teacher of a run: which one it is, that it fits the corpus, and what is put on record."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from albertine.core.files import os_errors_as_run_errors, replace_durably
from albertine.errors import ModelError, SettingsError
from albertine.interop.huggingface.folders import load_model
from albertine.interop.model_location import model_folder
from albertine.model.model import Model
from albertine.model.weights_digest import weights_digest
from albertine.pretraining.settings import Distillation
from albertine.tokenizers.base import Tokenizer
from albertine.tokenizers.prune import has_other_vocabulary

RECORD = "teacher.json"


@dataclass(frozen=True)
class Teacher:
    """A teacher as it was found.

    Attributes:
        name: as it was given. model: in evaluation mode.
    """

    name: str
    model: Model

    @cached_property
    def sha256(self) -> str:
        """Of its configuration and its weights, whatever file they lay in."""
        return model_digest(self.model)

    def write(self, folder: Path) -> None:
        """Put on record who it was.

        Raises:
            RunError: the disk refuses.
        """
        config = self.model.config
        tree = {
            "teacher": self.name,
            "sha256": self.sha256,
            "parameters": sum(p.numel() for p in self.model.parameters()),
            "num_hidden_layers": config.num_hidden_layers,
            "hidden_size": config.hidden_size,
        }
        with os_errors_as_run_errors(folder):
            replace_durably(folder / RECORD, (json.dumps(tree, indent=2) + "\n").encode())


def model_digest(model: Model) -> str:
    """SHA-256 over the configuration, the heads and all weights of a model."""
    told = {**model.config.non_default_dict(), "heads": sorted(model.heads)}
    return weights_digest(model, json.dumps(told, sort_keys=True).encode())


def open_teacher(choice: Distillation, tokenizer: Tokenizer, max_length: int) -> Teacher:
    """The teacher, if it reads the same pieces as the run's corpus.

    Raises:
        ModelError: there is none, it has another vocabulary, no masked-LM head to tell soft targets with
            where these are learned, or too few positions.
    """
    folder, name = model_folder(choice.teacher), str(choice.teacher)
    model = load_model(folder)
    if model.config.vocab_size != tokenizer.vocab_size or has_other_vocabulary(folder, tokenizer):
        raise ModelError(
            "has another vocabulary than the corpus, and a student learns what it says of each piece",
            where=name,
            remedy=f"Prepare the text with the teacher's: albertine prepare TEXT --tokenizer {name}",
        )
    if choice.soft and model.mlm is None:
        raise ModelError(
            "has no masked-LM head, so it cannot say which word is hidden",
            where=name,
            remedy="Take a masked LM, or learn from the states of this one alone: "
            "objective.distillation.soft=0; a tuned model teaches its task: training.teacher of `finetune`",
        )
    if (longest := model.config.max_sequence_length) is not None and max_length > longest:
        raise SettingsError(
            f"objective.max_length {max_length} is more than the {longest} positions of the teacher",
            where=name,
            remedy="Set a shorter objective.max_length",
        )
    return Teacher(name, model)
