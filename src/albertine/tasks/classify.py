"""Classification and regression of texts and pairs: a class, several classes, or a score.

As in google-research/albert's `classifier_utils.py`: cross-entropy for a class, squared error for a score;
several classes have a sigmoid each.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from albertine.errors import DataError, SettingsError
from albertine.evaluation.ensembles import mean_score, mean_sigmoid, mean_softmax
from albertine.inference.probabilities import sigmoid, softmax
from albertine.interop.heads import Kind, Task, head_config, usual_pooling
from albertine.tasks.encoded import Encoded, RowBuilder, TaskBatch
from albertine.tasks.examples import Example
from albertine.tasks.family import Fields, OneLayer, RunContext, Tuned
from albertine.tasks.readers.table import Row
from albertine.tokenizers.base import Tokenizer

if TYPE_CHECKING:
    from torch import Tensor

    from albertine.model.model import Model
    from albertine.model.task_model import TaskModel
    from albertine.objectives.losses import Part


def _targets(examples: Sequence[Example], kind: Kind, labels: Sequence[str]) -> list[NDArray[Any]] | None:
    golds = [e.label for e in examples]
    if any(gold is None for gold in golds):
        return None
    number = {name: i for i, name in enumerate(labels)}
    if kind == "score":
        return [np.array([gold], dtype=np.float32) for gold in golds]
    if kind == "single":
        return [np.array([number[str(gold)]], dtype=np.int64) for gold in golds]
    member = np.zeros((len(golds), len(labels)), dtype=np.float32)
    for row, gold in enumerate(golds):
        assert isinstance(gold, frozenset)
        member[row, [number[name] for name in gold]] = 1.0
    return list(member[:, None])


Logits = NDArray[np.float32]
"""Outputs of a classifier: (rows, classes)."""


@dataclass
class Classify(OneLayer):
    """The family of one class, several classes, or a score.

    Attributes:
        labels: in the order of their numbers; empty for a score. max_length: tokens of a text or pair.
        weights: (classes,) of the classes in the loss of "single", or None. pooling: of the tokens of a text.
        pairs: whether it was tuned with pairs of texts; None: with both, or unknown.
        likeliest: number of most probable classes in a line of predictions, besides the predicted ones.
        sigmoid: a score is the sigmoid of the output, as in other cross-encoders; the loss and the order use
            the output itself.
        exits: a classifier after every layer (`model/early_exit.py`).
    """

    kind: Kind
    labels: tuple[str, ...]
    metrics: tuple[str, ...]
    max_length: int
    weights: Tensor | None = None
    pairs: bool | None = None
    likeliest: int = 10
    sigmoid: bool = False
    exits: bool = False
    task: ClassVar[Task] = "classify"

    @property
    def settings(self) -> dict[str, Any]:
        return {"kind": self.kind, "max_length": self.max_length}

    @property
    def outputs(self) -> int:
        return max(1, len(self.labels))

    def has_pairs(self, examples: Sequence[Example]) -> bool | None:
        found = {example.pair is not None for example in examples}
        return found.pop() if len(found) == 1 else None

    def for_run(self, context: RunContext) -> Self:
        weights, examples = None, context.train.examples
        if context.balanced and self.kind == "single":
            weights = balanced(context.train, len(self.labels)).to(context.device)
            context = replace(context, balanced=False)
        if exits := context.exits:
            self._check_exits(context)
            # A comparison of two texts reads the first layer alone.
            pooling = context.pooling or usual_pooling(context.encoder)
            context = replace(context, exits=False, pooling=pooling)
        pairs = self.has_pairs(examples)
        return replace(super().for_run(context), pairs=pairs, weights=weights, exits=exits)

    def _check_exits(self, context: RunContext) -> None:
        """Raises SettingsError: a model with a head after every layer is not possible."""
        why, remedy = "", "Leave training.exits out"
        if self.kind == "score":
            why = "is for classes, and a score has none on which layers could agree"
        elif context.pooling == "compared":
            why, remedy = (
                "has no use for task.pooling=compared, which reads the first layer",
                ("Set task.pooling=cls or task.pooling=depths"),
            )
        elif context.encoder.halts or context.encoder.solves:
            why = "is for encoders with a fixed number of layers, and this one decides itself when to end"
        if why:
            raise SettingsError(f"training.exits {why}", remedy=remedy)

    def build(self, base: Model, dropout: float, seed: int) -> TaskModel:
        if not self.exits:
            return super().build(base, dropout, seed)
        from albertine.model.early_exit import EarlyExits

        return EarlyExits(
            base,
            self.outputs,
            several=self.kind == "multi",
            pooling=self.pooling,
            dropout=dropout,
            seed=seed,
            name=self.layer,
        )

    def part(self, model: Any, batch: TaskBatch) -> Part:
        """With exits the mean of the losses of all layers, that of layer d with weight d."""
        if not self.exits:
            return super().part(model, batch)
        every = [self.loss(logits, batch) for logits in model.every_logits(batch.packed)]
        last, depth = every[-1], len(every)
        losses = last.loss_sum.new_zeros(())
        for d, part in enumerate(every, 1):
            losses = losses + d * part.loss_sum
        return last._replace(loss_sum=losses / (depth * (depth + 1) / 2))

    def encode(self, examples: Sequence[Example], tokenizer: Tokenizer) -> Encoded:
        """One row an example. Its target is a class number int64 (1,), memberships float32 (1, classes), or a
        score float32 (1,). Every label must be among the classes.

        Raises:
            DataError: single texts for a model tuned with pairs, or the reverse.
        """
        compares = self.pooling == "compared"
        if (compares or self.pairs) and (alone := next((e for e in examples if e.pair is None), None)):
            raise DataError(
                "has one text, and the model "
                + ("compares two (task.pooling=compared)" if compares else "was tuned with pairs"),
                where=alone.where,
                remedy="Give the second one too: behind a tab, --pair COLUMN of a file (task.pair=COLUMN to "
                "evaluate), a tuple or pair=COLUMN in Python",
            )
        if self.pairs is False and (two := next((e for e in examples if e.pair is not None), None)):
            raise DataError(
                "is a pair of texts, and the model was tuned with single ones",
                where=two.where,
                remedy="Give one text: no tab in a line, no --pair, no task.pair, no tuple",
            )

        def ids(text: str) -> list[int]:
            return tokenizer.encode(tokenizer.head(text, self.max_length))

        firsts = map(ids, [e.text for e in examples])  # each is cut before the next is encoded
        pairs = [e.pair for e in examples]
        seconds = map(ids, [p for p in pairs if p is not None])
        rows = RowBuilder(tokenizer, self.max_length)
        for first, pair in zip(firsts, pairs, strict=True):
            rows.add(first, None if pair is None else next(seconds))
            rows.end()
        return rows.encoded(examples, _targets(examples, self.kind, self.labels))

    def example(self, row: Row, fields: Fields) -> Example:
        return Example(row.name, fields.first(row), fields.second(row), None, row.where)

    def loss(self, logits: Tensor, batch: TaskBatch) -> Part:
        import torch.nn.functional as F

        from albertine.objectives.losses import Part

        targets = batch.targets
        if self.kind == "single":
            total = F.cross_entropy(logits, targets, self.weights, reduction="sum")
            right = (logits.argmax(-1) == targets).sum()
        elif self.kind == "multi":
            each = F.binary_cross_entropy_with_logits(logits, targets, reduction="none")
            total, right = each.mean(-1).sum(), ((logits > 0) == targets.bool()).all(-1).sum()
        else:
            gap = logits.squeeze(-1) - targets
            total, right = gap.square().sum(), (gap.abs() < 0.5).sum()  # "right" is within half a point
        return Part(total, len(targets), right)

    def soft_loss(
        self, student: Tensor, teacher: Tensor, batch: TaskBatch, temperature: float
    ) -> tuple[Tensor, Tensor]:
        """Soft targets of the classes; of several classes the mean over their soft targets; of a score half
        the squared error, with agreement within half a point."""
        import torch

        from albertine.objectives.distillation import soft_target_loss

        if self.kind == "single":
            return super().soft_loss(student, teacher, batch, temperature)
        if self.kind == "score":
            gap = (student - teacher).squeeze(-1)
            return gap.square().sum() / 2, (gap.abs() < 0.5).sum()
        both = [torch.stack([x, torch.zeros_like(x)], -1).flatten(0, 1) for x in (student, teacher)]
        loss = soft_target_loss(both[0], both[1], temperature) / student.shape[1]
        return loss, ((student > 0) == (teacher > 0)).all(-1).sum()

    def merge(self, outputs: Sequence[Logits], data: Encoded) -> Logits:
        """Logits of the mean probabilities, or the mean score."""
        score = mean_sigmoid if self.sigmoid else mean_score
        mean = {"single": mean_softmax, "multi": mean_sigmoid, "score": score}
        return mean[self.kind](outputs)

    def answers(self, logits: Logits, data: Encoded) -> list[str | float | frozenset[str]]:
        """Classes, numbers, or sets of classes."""
        if self.kind == "score":
            return list(self._chances(logits).squeeze(-1).tolist())
        if self.kind == "single":
            return [self.labels[i] for i in logits.argmax(-1).tolist()]
        return [
            frozenset(name for name, there in zip(self.labels, row, strict=True) if there)
            for row in (logits > 0).tolist()
        ]

    def with_top(self, count: int) -> Classify:
        return replace(self, likeliest=max(count, self.likeliest))

    def input_columns(self, example: Example) -> dict[str, Any]:
        return {"text": example.text} | ({} if example.pair is None else {"pair": example.pair})

    def as_json(self, answer: Any, example: Any) -> Any:
        return sorted(answer) if isinstance(answer, frozenset) else answer

    def extra_columns(self, logits: Logits, data: Encoded) -> Iterable[dict[str, Any]]:
        """The probabilities of the most probable classes."""
        if self.kind == "score":
            return super().extra_columns(logits, data)
        return [{"probabilities": chances} for chances in self._likeliest(logits)]

    def logits(self, outputs: Any) -> Logits:
        """The logits (rows, classes) in outputs of `predict`."""
        found: Logits = outputs
        return found

    def values(self, logits: Logits) -> list[list[float]]:
        """The probability of every class for every row, or its score alone."""
        return list(self._chances(logits).tolist())

    def _chances(self, logits: Logits) -> NDArray[Any]:
        if self.kind == "single":
            return softmax(logits)
        return sigmoid(logits) if self.kind == "multi" or self.sigmoid else logits

    def _likeliest(self, logits: Logits) -> list[dict[str, float]]:
        """For every row the probabilities of its predicted and its most probable classes, in class order."""
        chances, several = self._chances(logits), self.kind == "multi"
        kept = logits > 0 if several else np.zeros(logits.shape, dtype=bool)
        best = np.argsort(-logits, axis=-1, kind="stable")[:, : max(1, self.likeliest)]
        np.put_along_axis(kept, best, True, axis=-1)
        rows, classes = np.nonzero(kept)
        found: list[dict[str, float]] = [{} for _ in logits]
        for row, number, chance in zip(rows.tolist(), classes.tolist(), chances[kept].tolist(), strict=True):
            found[row][self.labels[number]] = round(chance, 6)
        return found

    def config(self, model_type: str, dropout: float) -> dict[str, Any]:
        flags: dict[str, Any] = {"kind": self.kind, "pooling": self.pooling, "max_length": self.max_length}
        flags["pairs"] = self.pairs
        found = head_config(model_type, self.task, dropout, names=self.labels or ("score",), **flags)
        if self.exits:
            found["albertine"]["exits"] = True
        return found


def balanced(data: Encoded, classes: int) -> Tensor:
    """Weights (classes,) so that each class has the same sum over the examples, mean 1."""
    import torch

    assert data.targets is not None
    found = np.bincount(np.concatenate(data.targets), minlength=classes)
    counts = torch.from_numpy(found).clamp(min=1)
    return (counts.sum() / (len(counts) * counts)).float()


def of_folder(found: Tuned) -> Classify:
    """The family that a folder was tuned with."""
    head = found.head
    how: dict[str, Any] = {"pooling": head.pooling, "pairs": head.pairs, "sigmoid": head.sigmoid}
    how["exits"] = found.flags.get("exits") is True
    return Classify(head.kind, head.labels, (), found.length, **how)
