"""The teacher of a distillation: loading, checks against the corpus, and its record in the run folder."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from albertine.core.files import os_errors_as_run_errors, replace_durably
from albertine.errors import ModelError, SettingsError
from albertine.interop.huggingface.folders import load_model
from albertine.interop.model_names import model_folder
from albertine.model.model import Model
from albertine.model.weights_digest import weights_digest
from albertine.pretraining.settings import Distillation
from albertine.tokenizers.base import Tokenizer
from albertine.tokenizers.prune import has_other_vocabulary

RECORD = "teacher.json"


@dataclass(frozen=True)
class Teacher:
    """
    Attributes:
        name: as given by the user. model: in evaluation mode.
    """

    name: str
    model: Model

    @cached_property
    def sha256(self) -> str:
        """Hash of configuration and weights, independent of their files."""
        return model_digest(self.model)

    def write(self, folder: Path) -> None:
        """Write `teacher.json` into the folder of a run.

        Raises:
            RunError: the disk is full or not writable.
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
    config = {**model.config.non_default_dict(), "heads": sorted(model.heads)}
    return weights_digest(model, json.dumps(config, sort_keys=True).encode())


def open_teacher(choice: Distillation, tokenizer: Tokenizer, max_length: int) -> Teacher:
    """Load the teacher of a run.

    Raises:
        ModelError: there is no such model, it has another vocabulary than the corpus, or no masked-LM head
            for soft targets. SettingsError: it has too few positions.
    """
    folder, name = model_folder(choice.teacher), str(choice.teacher)
    model = load_model(folder)
    if model.config.vocab_size != tokenizer.vocab_size or has_other_vocabulary(folder, tokenizer):
        raise ModelError(
            "has another vocabulary than the corpus, and a student learns its probabilities of every token",
            where=name,
            remedy=f"Prepare the text with the teacher's: albertine prepare TEXT --tokenizer {name}",
        )
    if choice.soft and model.mlm is None:
        raise ModelError(
            "has no masked-LM head, and so no soft targets for masked tokens",
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
