"""Extractive question answering with unanswerable questions (SQuAD v2.0), by `model.answerability_head`.

The loss of a window is ½ (start + end) + ½ answerability (google-research/albert, `squad_utils.py`). A window
that does not contain the answer counts as unanswerable: its start and end targets are [CLS].
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from albertine.evaluation.answer_scores import SQUAD2_METRICS, AnswerDecision, squad2, squad2_prefix
from albertine.inference.spans import LikelySpans, SpanTable, spans_from_table
from albertine.inference.windows import WindowSettings
from albertine.interop.heads import is_joint, joint_architecture
from albertine.tasks.answer import Answer, FromPassages, of_questions, words
from albertine.tasks.encoded import Encoded, TaskBatch
from albertine.tasks.family import Poll, Tuned, over_rows

if TYPE_CHECKING:
    from pathlib import Path

    from albertine.inference.graph_heads import Head
    from albertine.model.answerability_head import JointAnswer
    from albertine.model.model import Model
    from albertine.model.task_model import TaskModel
    from albertine.objectives.losses import Part
    from albertine.tasks.family import AnyModel

FOREIGN_WINDOW = 384
"""Tokens of a window for models of other programs: what most of them were tuned with."""


def scores(rules: str) -> tuple[str, ...]:
    """The metrics with some rules; the first selects the best model."""
    return tuple(f"{squad2_prefix(rules)}_{name}" for name in SQUAD2_METRICS)


@dataclass
class AnswerOrNot(FromPassages):
    """The family of extracted answers with unanswerable questions.

    Attributes:
        metrics: from `scores`. rules: how answers are compared, one of `evaluation.answer_scores.RULES`.
        threshold: above this probability of no answer the prediction is no answer; `tune_on_dev` sets it.
    """

    metrics: tuple[str, ...] = scores("squad")
    no_answer: ClassVar[bool] = True
    reading: WindowSettings = field(default_factory=WindowSettings)
    rules: str = "squad"
    threshold: float = 0.5
    labels: tuple[str, ...] = ()

    def build(self, base: Model, dropout: float, seed: int) -> JointAnswer:
        from albertine.model.answerability_head import JointAnswer

        return JointAnswer(base, dropout=dropout, seed=seed)

    def part(self, model: JointAnswer, batch: TaskBatch) -> Part:
        import torch.nn.functional as F

        from albertine.objectives.losses import Part

        first, last = batch.targets.unbind(-1)
        logits = model.learn(batch.packed, first)
        begins, ends = logits.starts.gather(1, first[:, None]), logits.ends.gather(1, last[:, None])
        spans = -(begins + ends).sum() / 2
        nowhere = model.base.summary_rows(batch.packed) - batch.packed.first_tokens
        none = (first == nowhere).float()
        answerable = F.binary_cross_entropy_with_logits(logits.impossible, none, reduction="sum")
        right = (logits.impossible > 0) == (none > 0)
        return Part(spans + answerable / 2, batch.predictions, right.sum())

    def predict(self, model: AnyModel, data: Encoded, poll: Poll = lambda: None) -> list[LikelySpans]:
        table = over_rows(model, data, poll)
        return of_questions(
            data,
            lambda entry, at: spans_from_table(
                entry.windows, SpanTable.of(table[at]), entry.passage, self.reading
            ),
        )

    def graph_head(self, model: TaskModel, where: Path) -> Head:
        from albertine.inference.graph_heads import JointSpan
        from albertine.model.answerability_head import JointAnswer

        assert isinstance(model, JointAnswer)
        return JointSpan(model)

    def tune_on_dev(self, outputs: list[LikelySpans], data: Encoded) -> None:
        """Set the threshold with the best F1, found as in SQuAD's script."""
        found = squad2(self.gold(data), self.answers(outputs, data), self.rules)
        self.threshold = found["best_f1_threshold"]

    def load_state(self, flags: Mapping[str, Any]) -> None:
        """Load the threshold of a folder."""
        self.threshold = float(flags.get("threshold", self.threshold))

    def answers(self, outputs: list[LikelySpans], data: Encoded) -> list[AnswerDecision]:
        found = []
        for one, entry in zip(outputs, data.examples, strict=True):
            best, none = words(one, entry.example.passage), one.no_answer or 0.0
            found.append(AnswerDecision(best, none, "" if none > self.threshold else best))
        return found

    def as_json(self, answer: Any, example: Any) -> Any:
        """The text of an answer, "" for none."""
        return answer.text if isinstance(answer, AnswerDecision) else answer

    def config(self, model_type: str, dropout: float) -> dict[str, Any]:
        tree = super().config(model_type, dropout)
        tree.pop("architectures", None)  # of a head with start and end logits only
        tree |= joint_architecture(model_type)
        tree["albertine"] |= {"threshold": self.threshold}
        return tree


def of_folder(found: Tuned) -> Answer | AnswerOrNot:
    """The family that a folder was tuned with."""
    stored, positions = found.flags.get("reading"), found.folder.encoder.max_position_embeddings
    given: Mapping[str, Any] = stored if isinstance(stored, dict) else {}
    names = vars(WindowSettings())
    sizes = {name: v for name, v in given.items() if name in names and isinstance(v, int) and v > 0}
    reading = WindowSettings(**({"max_length": min(FOREIGN_WINDOW, positions)} | sizes))
    joint = is_joint(found.folder.shapes)
    return AnswerOrNot(reading=reading) if joint else Answer(reading=reading)
