"""Extractive question answering (SQuAD v1.1): start and end logits for every token of a passage.

The loss is the mean of the two cross-entropies over each window's tokens (google-research/albert,
`squad_utils.py`); the targets of a window without the answer are [CLS].
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from albertine.core.randomness import generator
from albertine.inference.spans import LikelySpans, mean_spans, spans_from_logits
from albertine.inference.windows import PassageTokens, Window, WindowSettings, rows_of
from albertine.interop.heads import Task, head_config
from albertine.tasks.encoded import Encoded, RowBuilder, Tally, TaskBatch
from albertine.tasks.family import Family, Fields, OneLayer, Poll, over_rows
from albertine.tasks.readers.table import Row
from albertine.tokenizers.base import Tokenizer

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor

    from albertine.inference.graph_heads import Head
    from albertine.model.task_model import TaskModel
    from albertine.objectives.losses import Part
    from albertine.tasks.family import AnyModel


@dataclass(frozen=True)
class Question:
    """One question.

    Attributes:
        answers: (text, offset) of every right answer, the offset -1 if the text is not in the passage; empty
            if the passage has no answer, None if the file has no labels.
        where: its location for messages.
    """

    name: str
    question: str
    passage: str
    answers: tuple[tuple[str, int], ...] | None
    where: str

    @property
    def label(self) -> list[str] | None:
        """The texts of the right answers."""
        return None if self.answers is None else [text for text, _ in self.answers]


@dataclass(frozen=True)
class EncodedQuestion:
    """An encoded question.

    Attributes:
        passage: its tokens; questions about one passage share them.
        cut: whether the question was truncated. cls_last: whether [CLS] is the last token of a row.
        whole: whether one of its right answers can be predicted as a whole.
    """

    example: Question
    passage: PassageTokens
    windows: list[Window]
    cut: bool
    cls_last: bool = False
    whole: bool = False

    def nowhere(self, length: int) -> int:
        """The target in a row of this length for a window without the answer: the position of [CLS]."""
        return length - 1 if self.cls_last else 0


def encode(
    examples: Sequence[Question], tokenizer: Tokenizer, reading: WindowSettings, *, learning: bool = False
) -> Encoded:
    """One row a window. Its target is the positions of a right answer's first and last token in it, int64
    (1, 2), or twice that of [CLS] if the window does not contain the answer. Of several right answers it is
    the first that can be predicted, else the first that a window contains.

    Args:
        learning: leave out questions whose answers are in no window: they would be trained as questions
            without an answer.
    """
    rows, entries, targets, tally = RowBuilder(tokenizer, reading.max_length), [], [], Tally()
    questions = tokenizer.encode_batch([example.question for example in examples])
    seen, passage = "", PassageTokens.of(tokenizer, "")
    known = all(example.answers is not None for example in examples)
    for example, question in zip(examples, questions, strict=True):
        if example.passage is not seen and example.passage != seen:  # questions of one passage are adjacent
            seen, passage = example.passage, PassageTokens.of(tokenizer, example.passage)
        windows, laid_out = rows_of(tokenizer, question, passage, reading)
        cut = len(question) > reading.question
        place, why = _place(example, passage, windows, reading)
        if why is not None:
            out = learning and place is None
            fate = ("left out" if out else "still learned") if learning else "never predicted as a whole"
            tally.add(f"{why}, {fate}", f"question {example.name}", example.where)
            if out:
                continue
        one = EncodedQuestion(
            example, passage, windows, cut, tokenizer.cls_last, bool(example.answers) and why is None
        )
        rows.take(laid_out, 0)
        entries.append(one)
        if example.answers is not None:
            targets.append(_targets(one, [len(ids) for ids, _ in laid_out], place))
    data = rows.encoded(entries, targets if known else None)
    return replace(data, cut_questions=sum(one.cut for one in entries), lost=tally.lost)


def _place(
    example: Question, passage: PassageTokens, windows: Sequence[Window], reading: WindowSettings
) -> tuple[tuple[int, int] | None, str | None]:
    """The first and the last token of the right answer to learn, None if no window contains one; and the
    reason why none can be predicted, None if one can or there is none."""
    shown, there = None, False
    for text, begin in example.answers or ():
        if begin < 0:
            continue
        # The tokens that overlap the answer: its ends may be inside a token.
        inside = np.flatnonzero((passage.starts < begin + len(text)) & (passage.ends > begin))
        if not len(inside):
            continue
        there, first, last = True, int(inside[0]), int(inside[-1])
        if any(w.first <= first and last < w.first + w.size for w in windows):
            if last - first < reading.longest:
                return (first, last), None
            shown = shown or (first, last)
    if not example.answers:
        return None, None
    if shown is not None:
        return shown, f"with an answer of more than task.answer.longest={reading.longest} tokens"
    fits = f"with an answer that no window of task.max_length={reading.max_length} tokens shows as a whole"
    return None, fits if there else "with an answer that is not in the passage"


def _targets(
    entry: EncodedQuestion, lengths: Sequence[int], place: tuple[int, int] | None
) -> NDArray[np.int64]:
    """The targets of the windows of a question, whose rows have these lengths.

    Args:
        place: indices of the first and the last token of its answer in the passage.
    """
    places = np.array([[entry.nowhere(length)] * 2 for length in lengths], dtype=np.int64)
    if place is None:
        return places
    first, last = place
    for row, window in enumerate(entry.windows):
        if window.first <= first and last < window.first + window.size:
            shift = window.offset - window.first
            places[row, 0], places[row, 1] = first + shift, last + shift
    return places


def windows_to_learn(data: Encoded, blank: float) -> Encoded:
    """Every window as an example of its own; of the windows without their question's answer only a share
    `blank`, the same ones in every run."""
    data = data.apart
    assert data.targets is not None
    draws = generator(0, "windows without their answer").random(len(data.targets))
    rows = zip(data.examples, data.ids, data.targets, strict=True)
    shown = np.array([int(target[0, 0]) != entry.nowhere(len(ids)) for entry, ids, target in rows])
    answered = np.array([bool(entry.example.answers) for entry in data.examples])
    return data.some(np.flatnonzero(shown | ~answered | (draws < blank)).tolist())


QUESTIONS = Fields("context", "question")


def question_of(row: Row, fields: Fields, prefix: str = "") -> Question:
    """The question in a row of a table, without its answers."""
    question = fields.needed(row)
    return Question(prefix + row.name, question, fields.first(row), None, row.where)


def question_fields(fields: Fields) -> Fields:
    """The columns of questions from files that are not tables."""
    return replace(fields, pair=fields.pair or "question")


def question_row(example: Question, fields: Fields) -> dict[str, Any]:
    """A question as the fields of a row of a table."""
    return {fields.pair or "": example.question, fields.text: example.passage}


class FromPassages(Family):
    """The base of extractive families, whose outputs are a `LikelySpans` for every question.

    Attributes:
        reading: lengths of questions, windows and answers. no_answer: whether a passage may have no answer.
    """

    task: ClassVar[Task] = "answer"
    fields: ClassVar[Fields] = QUESTIONS
    no_answer: ClassVar[bool] = False
    reading: WindowSettings

    @property
    def settings(self) -> dict[str, Any]:
        own = self.reading
        sizes = {"stride": own.stride, "question": own.question, "longest": own.longest, "n_best": own.best}
        how = {**sizes, "no_answer": self.no_answer}
        return {"kind": "answers", "max_length": own.max_length, "answer": how}

    def example(self, row: Row, fields: Fields) -> Question:
        return question_of(row, fields)

    def encode(self, examples: Sequence[Question], tokenizer: Tokenizer) -> Encoded:
        return encode(examples, tokenizer, self.reading)

    def encode_to_learn(self, examples: Sequence[Question], tokenizer: Tokenizer) -> Encoded:
        return encode(examples, tokenizer, self.reading, learning=True)

    def merge(self, outputs: Sequence[list[LikelySpans]], data: Encoded) -> list[LikelySpans]:
        """The mean of the outputs for every question."""
        return [mean_spans(of_one, self.reading.best) for of_one in zip(*outputs, strict=True)]

    def input_columns(self, example: Question) -> dict[str, Any]:
        return {"question": example.question}

    def extra_columns(self, outputs: list[LikelySpans], data: Encoded) -> Iterable[dict[str, Any]]:
        """The most probable spans: begin, end, probability; and the probability that there is no answer, if
        the model has it."""
        for found in outputs:
            none = {} if found.no_answer is None else {"no_answer": found.no_answer}
            yield none | {"spans": [[a, b, round(p, 6)] for (a, b), p in found.spans.items()]}

    def config(self, model_type: str, dropout: float) -> dict[str, Any]:
        tree = head_config(model_type, self.task, dropout)
        tree["albertine"] |= {"reading": vars(self.reading)}
        return tree


@dataclass
class Answer(FromPassages, OneLayer):
    """The family of extracted answers.

    Attributes:
        metrics: the scores of the data set.
    """

    metrics: tuple[str, ...] = ("squad_f1", "squad_exact")
    reading: WindowSettings = field(default_factory=WindowSettings)
    labels: tuple[str, ...] = ()
    outputs: int = 2
    layer: ClassVar[str] = "qa_outputs"
    per_token: ClassVar[bool] = True

    def loss(self, logits: Tensor, batch: TaskBatch) -> Part:
        import torch
        import torch.nn.functional as F
        from torch.nn.utils.rnn import pad_sequence

        from albertine.objectives.losses import Part

        table = pad_sequence(list(torch.split(logits, list(batch.packed.lengths))), True, float("-inf"))
        starts, ends = table.unbind(-1)
        first, last = batch.targets.unbind(-1)
        total = sum(F.cross_entropy(x, y, reduction="sum") for x, y in ((starts, first), (ends, last)))
        right = (starts.argmax(-1) == first) & (ends.argmax(-1) == last)
        return Part(torch.as_tensor(total) / 2, batch.predictions, right.sum())

    def graph_head(self, model: TaskModel, where: Path) -> Head:
        from albertine.inference.graph_heads import Span
        from albertine.model.task_model import Classifier

        assert isinstance(model, Classifier)
        return Span(model)

    def soft_loss(
        self, student: Tensor, teacher: Tensor, batch: TaskBatch, temperature: float
    ) -> tuple[Tensor, Tensor]:
        """The mean of the soft target losses of an answer's first and last token, each a distribution over
        the tokens of a window."""
        import torch

        from albertine.objectives.distillation import soft_target_loss

        loss = torch.zeros((), device=student.device)
        agreed = torch.zeros((), dtype=torch.int64, device=student.device)
        windows = (torch.split(x, list(batch.packed.lengths)) for x in (student, teacher))
        for one_L2, other_L2 in zip(*windows, strict=True):
            loss = loss + soft_target_loss(one_L2.T, other_L2.T, temperature) / 2
            agreed = agreed + (one_L2.argmax(0) == other_L2.argmax(0)).all()
        return loss, agreed

    def predict(self, model: AnyModel, data: Encoded, poll: Poll = lambda: None) -> list[LikelySpans]:
        logits = over_rows(model, data, poll, per_token=True)
        rows = np.split(logits, np.cumsum([len(ids) for ids in data.ids])[:-1])
        return of_questions(
            data, lambda entry, at: spans_from_logits(entry.windows, rows[at], entry.passage, self.reading)
        )

    def answers(self, outputs: list[LikelySpans], data: Encoded) -> list[str]:
        """The text of the best span of every passage, "" if there is none."""
        return [
            words(found, entry.example.passage) for found, entry in zip(outputs, data.examples, strict=True)
        ]


def of_questions(data: Encoded, find: Callable[[EncodedQuestion, slice], LikelySpans]) -> list[LikelySpans]:
    """The result of `find` for every question and its rows."""
    return [
        find(entry, slice(int(data.starts[i]), int(data.starts[i + 1])))
        for i, entry in enumerate(data.examples)
    ]


def words(found: LikelySpans, passage: str) -> str:
    """The text of the most probable span, "" if there is none."""
    span = next(iter(found.spans), (0, 0))
    return passage[slice(*span)]
