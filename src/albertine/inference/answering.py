"""Asking a folder that was tuned on questions: which part of a passage answers, and whether any does."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from albertine.errors import ModelError
from albertine.inference.spans import Answer, Found, by_beam, by_two_logits
from albertine.inference.windows import Passage, Reading, Row, rows_of
from albertine.interop.huggingface import ModelFolder
from albertine.interop.huggingface_config import our_flags
from albertine.layout import by_tokens, pack
from albertine.model.backend import tokens_per_pass
from albertine.model.joint import Beam, JointAnswer
from albertine.model.task_model import Classifier, TaskModel
from albertine.text.tokenizer import Tokenizer

FOREIGN = 384
"""Tokens of a window where the folder does not say: what most such models were tuned with."""


class Answerer:
    """The answering head of a folder, ready to be asked.

    Attributes:
        joint: whether the model can say that a passage does not answer. threshold: above this probability
            that it does not, `answer` gives None; chosen on the dev set.
        reading: how passages were read in training.

    Raises:
        ModelError: the folder was not tuned to answer.
    """

    def __init__(self, folder: ModelFolder, tokenizer: Tokenizer, where: Path) -> None:
        told, base = our_flags(folder.config), folder.model
        self.joint = "answer_class.dense_1.weight" in folder.extra
        if not self.joint and "qa_outputs.weight" not in folder.extra:
            raise ModelError(
                "was not tuned to answer", where=where, remedy="Use a model tuned on questions about passages"
            )
        self.tuned: TaskModel = (
            JointAnswer(base) if self.joint else Classifier(base, 2, per_token=True, name="qa_outputs")
        )
        self.tuned.load_head(folder.extra, where)
        self.tuned.to(base.device).eval()
        threshold = told.get("threshold")
        self.tokenizer, self.threshold = tokenizer, threshold if isinstance(threshold, float) else 0.5
        self.reading = _reading(told.get("reading"), base.config.max_position_embeddings)

    @torch.inference_mode()
    def ask(self, question: str, passage: str) -> Found:
        """The likeliest spans with their probabilities, and how likely it is that there is no answer.

        Raises:
            SettingsError: the question leaves no room for the passage.
        """
        tokens = Passage.of(self.tokenizer, passage)
        windows, rows = rows_of(self.tokenizer, self.tokenizer.encode(question), tokens, self.reading)
        parts = []
        lengths, limit = [len(ids) for ids, _ in rows], tokens_per_pass(self.tuned.base.device)
        for chosen in by_tokens(range(len(rows)), lengths, limit):
            parts.append(self._said([rows[i] for i in chosen]))
        said = torch.cat(parts)
        if self.joint:
            return by_beam(windows, Beam.of(said), tokens, self.reading)
        logits = torch.split(said, lengths)
        return by_two_logits(windows, logits, tokens, self.reading)

    def answer(self, question: str, passage: str) -> Answer | None:
        """The likeliest span; None if there is none, or if it is likelier that the passage does not answer.
        Raises as `ask`."""
        return self.ask(question, passage).best(self.threshold)

    def _said(self, rows: list[Row]) -> torch.Tensor:
        packed = pack([ids for ids, _ in rows], [types for _, types in rows])
        said: torch.Tensor = self.tuned(packed.to(self.tuned.base.device)).cpu()
        return said


def _reading(told: object, positions: int) -> Reading:
    names = vars(Reading())
    given: Mapping[str, Any] = told if isinstance(told, dict) else {}
    sizes = {name: v for name, v in given.items() if name in names and isinstance(v, int) and v > 0}
    return Reading(**({"max_length": min(FOREIGN, positions)} | sizes))
