"""Multiple choice: a passage, a question and some options, one of which is right.

Each option is a row (`inference.option_rows`) with one logit; a softmax over the options of a question.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, cast, get_args

import numpy as np
from numpy.typing import NDArray

from albertine.errors import DataError
from albertine.evaluation.ensembles import mean_softmax
from albertine.inference.option_rows import option_rows
from albertine.inference.probabilities import softmax
from albertine.interop.heads import Task, head_config, pooling_of
from albertine.tasks.dataset_registry import LabelIs
from albertine.tasks.encoded import Encoded, RowBuilder, TaskBatch
from albertine.tasks.family import Fields, OneLayer, Tuned
from albertine.tasks.readers.table import Row
from albertine.tasks.readers.values import nested
from albertine.tokenizers.base import Tokenizer

if TYPE_CHECKING:
    from torch import Tensor

    from albertine.objectives.losses import Part

SHOWN = 300
"""Most characters of a passage in the predictions file; all passages of RACE would be nine megabytes."""


@dataclass(frozen=True)
class Choice:
    """One question.

    Attributes:
        name: its name in predictions. passage: the text of the question.
        question: may contain a gap, "_"; empty if the passage itself has one, "#idiom#".
        options: at least two. label: number of the right one from 0, or None if the file has none.
        where: `file:line` or file, for messages. group: part of the data set with a score of its own, or "".
    """

    name: str
    passage: str
    question: str
    options: tuple[str, ...]
    label: int | None
    where: str
    group: str = ""


def choices_of(questions: Sequence[tuple[Any, Any, Any]]) -> list[Choice]:
    """Questions from (passage, options, question).

    Raises:
        DataError: fewer than two options, or something that is not text; names the question.
    """
    found = []
    for i, (passage, options, question) in enumerate(questions):
        where = f"asked[{i}]"  # the argument of `Predictor.choose_all`
        texts = checked_options(options, where)
        if not isinstance(passage, str) or not isinstance(question, str):
            raise DataError("has a passage or a question that is no text", where=where)
        found.append(Choice(str(i), passage, question, texts, None, ""))
    return found


def checked_options(options: Any, where: str, name: str = "options") -> tuple[str, ...]:
    """Options as texts; numbers as they are written.

    Args:
        name: of the options in messages.

    Raises:
        DataError: they are not a list of two or more.
    """
    options = nested(options, where)
    several = isinstance(options, list) and len(options) > 1
    if several and all(isinstance(option, str | int | float) for option in options):
        return tuple(map(str, options))
    raise DataError(
        f"`{name}` is not a list of two texts or more",
        where=where,
        remedy='Give the options as a list, in CSV and TSV as ["one", "two"]',
    )


def encode(examples: Sequence[Choice], tokenizer: Tokenizer, max_length: int) -> Encoded:
    """One row an option; the target is the number of the right one, int64 (1,)."""
    rows = RowBuilder(tokenizer, max_length)
    for e in examples:
        found, cut = option_rows(tokenizer, e.passage, e.question, e.options, max_length)
        rows.take(found, cut)
    known = all(e.label is not None for e in examples)
    return rows.encoded(examples, [np.array([e.label], dtype=np.int64) for e in examples] if known else None)


Logits = NDArray[np.float32]
"""Outputs for the rows of options: (rows, 1)."""


@dataclass
class Choose(OneLayer):
    """The family of multiple choice; `labels` is empty, since options have no names.

    Attributes:
        max_length: tokens of the row of an option.
        label_is: form of the labels in the files of its run; None: both forms give the same options.
    """

    max_length: int
    metrics: tuple[str, ...] = ("accuracy",)
    labels: tuple[str, ...] = ()
    outputs: int = 1
    label_is: LabelIs | None = None
    task: ClassVar[Task] = "choose"

    @property
    def settings(self) -> dict[str, Any]:
        return {"kind": "choice", "max_length": self.max_length, "label_is": self.label_is}

    def example(self, row: Row, fields: Fields) -> Choice:
        options = checked_options(fields.choices(row), row.where, fields.options)
        text, question = fields.first(row), fields.second(row) or ""
        return Choice(row.name, text, question, options, None, row.where)

    def encode(self, examples: Sequence[Choice], tokenizer: Tokenizer) -> Encoded:
        return encode(examples, tokenizer, self.max_length)

    def loss(self, logits: Tensor, batch: TaskBatch) -> Part:
        import torch
        import torch.nn.functional as F
        from torch.nn.utils.rnn import pad_sequence

        from albertine.objectives.losses import Part

        rows = torch.split(logits.squeeze(-1), list(batch.rows))
        table = pad_sequence(list(rows), True, float("-inf"))
        total = F.cross_entropy(table, batch.targets, reduction="sum")
        return Part(total, len(batch.rows), (table.argmax(-1) == batch.targets).sum())

    def soft_loss(
        self, student: Tensor, teacher: Tensor, batch: TaskBatch, temperature: float
    ) -> tuple[Tensor, Tensor]:
        """The soft target loss over the options of each question."""
        import torch
        from torch.nn.utils.rnn import pad_sequence

        # Padding for questions with fewer options than others: probability 0 in both models.
        student, teacher = (
            pad_sequence(list(torch.split(x.squeeze(-1), list(batch.rows))), True, -1e4)
            for x in (student, teacher)
        )
        return super().soft_loss(student, teacher, batch, temperature)

    def merge(self, outputs: Sequence[Logits], data: Encoded) -> Logits:
        """Logits whose softmax over the options is the mean of the models'."""
        table = mean_softmax([by_option(logits, data.sizes) for logits in outputs])
        rows = [row[:count] for row, count in zip(table, data.sizes, strict=True)]
        return np.concatenate(rows)[:, None]

    def answers(self, logits: Logits, data: Encoded) -> list[int]:
        """The number of the best option of each example."""
        return list(by_option(logits, data.sizes).argmax(-1).tolist())

    def input_columns(self, example: Choice) -> dict[str, Any]:
        """Passage (its beginning, where there is a question), question and options; the group."""
        shown: dict[str, Any] = {"passage": example.passage}
        if example.question:
            shown = {"passage": _beginning(example.passage), "question": example.question}
        shown |= {"options": list(example.options)}
        return shown | ({"group": example.group} if example.group else {})

    def extra_columns(self, logits: Logits, data: Encoded) -> Iterable[dict[str, Any]]:
        """The probability of every option."""
        probabilities = softmax(by_option(logits, data.sizes)).tolist()
        for example, row in zip(data.examples, probabilities, strict=True):
            yield {"probabilities": [round(chance, 6) for chance in row[: len(example.options)]]}

    def config(self, model_type: str, dropout: float) -> dict[str, Any]:
        flags: dict[str, Any] = {"pooling": self.pooling, "max_length": self.max_length}
        tree = head_config(model_type, self.task, dropout, **flags)
        if self.label_is is not None:
            tree["albertine"] |= {"label_is": self.label_is}
        return tree


def _beginning(text: str) -> str:
    return text if len(text) <= SHOWN else f"{text[:SHOWN]} …"


def by_option(logits: Logits, rows: Sequence[int]) -> Logits:
    """Logits (rows, 1) as (examples, most options), minus infinity where an example has fewer."""
    table = np.full((len(rows), max(rows)), -np.inf, dtype=np.float32)
    table[np.arange(table.shape[1]) < np.array(rows)[:, None]] = logits[:, 0]
    return table


def of_folder(found: Tuned) -> Choose:
    """The family that a folder was tuned with."""
    label_is = found.flags.get("label_is")
    known = cast(LabelIs, label_is) if label_is in get_args(LabelIs) else None
    return Choose(found.length, pooling=pooling_of(found.folder), label_is=known)
