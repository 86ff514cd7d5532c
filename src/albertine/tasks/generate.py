"""Texts written after a source: titles, free answers, and reading by generation.

The encoder reads source and target as one row, in which the source sees itself and the target is read
causally; the masked-LM head predicts the next token from the last source token on (UniLM, Dong et
al. 2019, section 2.3). The loss is the cross-entropy of the target's tokens and of the [SEP] after them.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from albertine.errors import ModelError, SettingsError
from albertine.inference.generative_reading import PassageQuestion, SourcePassage, generate_answers
from albertine.inference.search import Search
from albertine.inference.seq2seq_rows import Written, generate_texts, source_row
from albertine.inference.windows import Window
from albertine.interop.heads import Task, head_config
from albertine.tasks.answer import QUESTIONS, Question, question_of
from albertine.tasks.encoded import Encoded, RowBuilder, Tally, TaskBatch
from albertine.tasks.examples import Example
from albertine.tasks.family import Family, Fields, Poll, Tuned
from albertine.tasks.readers.table import Row
from albertine.tokenizers.base import Spans, Tokenizer

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor

    from albertine.inference.graph_heads import Head
    from albertine.model.model import Model
    from albertine.model.task_model import TaskModel
    from albertine.objectives.losses import Part

LEAST_SOURCE = 8


@dataclass(frozen=True)
class Room:
    """Most tokens of a source and of a target, special ones included."""

    source: int
    target: int

    @classmethod
    def of(cls, max_length: int, target: int) -> Room:
        """From the length of a row.

        Raises:
            SettingsError: there is no room for the source.
        """
        if max_length - target < LEAST_SOURCE:
            raise SettingsError(
                f"task.max_length {max_length} leaves {max_length - target} tokens for the source beside a "
                f"target of {target}",
                remedy="Raise task.max_length, or lower task.target_length",
            )
        return cls(max_length - target, target)


@dataclass(frozen=True)
class ReadQuestion(PassageQuestion):
    """An encoded question.

    Attributes:
        name: its name in predictions. label: the right answers; ("",) if it has no answer, None if the file
            has no labels.
    """

    name: str
    label: tuple[str, ...] | None


def encode_texts(examples: Sequence[Example], tokenizer: Tokenizer, room: Room) -> Encoded:
    """One row an example: source and, if known, target."""
    rows, prefix, targets = RowBuilder(tokenizer, room.source + room.target), [], []
    firsts, tally = map(tokenizer.encode, [e.text for e in examples]), Tally()
    known = all(e.label is not None for e in examples)
    for example, first in zip(examples, firsts, strict=True):
        second = None if example.pair is None else tokenizer.encode(example.pair)
        source, cut = source_row(tokenizer, first, second, room.source)
        target = tokenizer.encode(example.label or "") if known else None
        if len(target or ()) >= room.target:
            what = f"with a target of more than task.target_length={room.target} tokens, whose end is cut off"
            tally.add(what, f"`{example.label:.40}`", example.where)
        row, target_ids = _row(source, target, room, tokenizer.sep_id)
        rows.take([row], cut)
        prefix.append(len(source))
        targets.append(target_ids)
    encoded = rows.encoded(examples, targets if known else None)
    return replace(encoded, prefix=tuple(prefix), lost=tally.lost)


def key_of(question: Question) -> tuple[str, str, str]:
    """The identity of a question with several passages: ids alone may repeat."""
    return question.name, question.question, question.where


def encode_questions(
    questions: Sequence[Question], tokenizer: Tokenizer, room: Room, *, together: bool
) -> Encoded:
    """One row a window of a passage; its target is the first right answer that it contains, in the passage's
    own tokens, or empty.

    Args:
        together: the adjacent passages of a question are one example, whose answer they vote on; otherwise
            each passage is a training example, and is left out if it has an answer that is in no window: it
            would be trained as a passage without an answer.
    """
    rows, targets, entries, tally = RowBuilder(tokenizer, room.source + room.target), [], [], Tally()
    prefix: list[int] = []
    known = any(q.answers for q in questions)
    seen: tuple[str, Spans] = ("", Spans([], [], []))
    for _, group in groupby(enumerate(questions), lambda item: key_of(item[1]) if together else item[0]):
        passages, shown, golds, there = [], [], list[str](), False
        for _, question in group:
            if seen[0] != question.passage:
                seen = (question.passage, tokenizer.encode_spans(question.passage))
            spans, ids = seen[1], tokenizer.encode(question.question)
            passage = SourcePassage.of(tokenizer, ids, question.passage, spans, room.source)
            passages.append(passage)
            answers = question.answers or ()
            golds += [text for text, _ in answers]
            there = there or any(begin >= 0 for _, begin in answers)
            shown += [_shown(w, spans, answers, room.target) if known else None for w in passage.windows]
        lengths = [len(target) for target in shown if target]
        if golds and not any(length < room.target for length in lengths):
            why = _why_never(there, bool(lengths), room, together=together)
            if why is not None:
                tally.add(why, f"question {question.name}", question.where)
            if there and not lengths and not together:
                continue
        label = (*dict.fromkeys(golds),) or ("",) if known else None
        inquiry = ReadQuestion(tuple(passages), question.name, label)
        made = [_row(s, t, room, tokenizer.sep_id) for s, t in zip(inquiry.sources, shown, strict=True)]
        rows.take([row for row, _ in made], 0)
        prefix += map(len, inquiry.sources)
        targets.append(np.concatenate([target for _, target in made]))
        entries.append(inquiry)
    data, cut = rows.encoded(entries, targets if known else None), sum(one.cut for one in entries)
    return replace(data, prefix=tuple(prefix), cut_questions=cut, lost=tally.lost)


def _why_never(there: bool, shown: bool, room: Room, *, together: bool) -> str | None:
    """Why no right answer of a question can be generated as a whole, and the effect; None if it is not in a
    training passage, whose target is then empty.

    Args:
        there: one is in a passage. shown: a window contains one. together: as in `encode_questions`.
    """
    if shown:
        fate = "never predicted as a whole" if together else "learned without its end"
        return f"with an answer of more than task.target_length={room.target} tokens, {fate}"
    if there:
        fate = "never predicted as a whole" if together else "left out"
        return f"with an answer that no window of {room.source} tokens shows as a whole, {fate}"
    return "with an answer that is not in a passage, never predicted as a whole" if together else None


def _shown(window: Window, spans: Spans, answers: Sequence[tuple[str, int]], room: int) -> list[int]:
    """The tokens of the first answer that a window contains and that has, with [SEP], at most `room` tokens;
    else of the first that it contains; empty if there is none."""
    shown, longer = range(window.first, window.first + window.size), list[int]()
    for text, begin in answers:
        end = begin + len(text)
        inside = [i for i in shown if spans.starts[i] < end and spans.ends[i] > begin]
        if begin >= 0 and inside and spans.starts[inside[0]] <= begin and spans.ends[inside[-1]] >= end:
            found = spans.ids[inside[0] : inside[-1] + 1]
            if len(found) < room:
                return found
            longer = longer or found
    return longer


def _row(
    source: list[int], target: list[int] | None, room: Room, end: int
) -> tuple[tuple[list[int], list[int]], NDArray[np.int64]]:
    """Token and segment ids, and the target's tokens with their end."""
    output = [] if target is None else [*target[: room.target - 1], end]
    return ([*source, *output], [0] * len(source) + [1] * len(output)), np.array(output, dtype=np.int64)


@dataclass
class Generate(Family):
    """The base of generating families, whose outputs are the best text of every example.

    Attributes:
        search: parameters of beam search in evaluation. kind: of its task, in settings.
    """

    kind: ClassVar[str]
    tokenizer: Tokenizer
    room: Room
    search: Search
    labels: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ()
    heads: frozenset[str] = frozenset({"mlm"})
    task: ClassVar[Task] = "generate"

    @property
    def settings(self) -> dict[str, Any]:
        length, target = self.room.source + self.room.target, self.room.target
        return {
            "kind": self.kind,
            "max_length": length,
            "target_length": target,
            "beams": self.search.beams,
        }

    def build(self, base: Model, dropout: float, seed: int) -> TaskModel:
        from albertine.model.task_model import Seq2Seq

        if base.config.type_vocab_size < 2:
            raise ModelError(
                f"the encoder knows {base.config.type_vocab_size} kinds of segments, and a source and its "
                "target are two",
                remedy="Use an encoder with type_vocab_size 2 or more, or task.kind=answers",
            )
        return Seq2Seq(base, dropout)

    def part(self, model: Callable[..., Tensor], batch: TaskBatch) -> Part:
        import torch.nn.functional as F

        from albertine.objectives.losses import Part

        logits = model(batch.packed).float()
        total = F.cross_entropy(logits, batch.targets, reduction="sum")
        return Part(total, batch.predictions, (logits.argmax(-1) == batch.targets).sum())

    def predict(self, model: TaskModel, data: Encoded, poll: Poll = lambda: None) -> list[Written]:
        from albertine.model.model import evaluating

        with evaluating(model):
            return [best[0] for best in self.generated(model.base, data, poll)]

    def graph_head(self, model: TaskModel, where: Path) -> Head:
        raise ModelError(
            "generates token by token and reads its own output (UniLM), for which a graph has no loop",
            where=where,
            remedy="Use it with albertine predict generate, or export its states: --head features",
        )

    @abstractmethod
    def generated(self, model: Model, data: Encoded, poll: Poll) -> list[list[Written]]:
        """The best texts of every example."""

    def answers(self, outputs: Sequence[Written], data: Encoded) -> list[str]:
        return [written.text for written in outputs]

    def as_json(self, answer: Any, example: Any) -> Any:
        return list(answer) if isinstance(answer, tuple) else answer

    def extra_columns(self, outputs: Sequence[Written], data: Encoded) -> Iterable[dict[str, Any]]:
        return [{"score": round(written.score, 6)} for written in outputs]

    def config(self, model_type: str, dropout: float) -> dict[str, Any]:
        tree = head_config(model_type, self.task, dropout)
        tree["albertine"] |= {
            "source_length": self.room.source,
            "target_length": self.room.target,
            "beams": self.search.beams,
        }
        return tree


@dataclass
class Write(Generate):
    """The family of texts written freely."""

    kind: ClassVar[str] = "generation"
    metrics: tuple[str, ...] = ("rouge_l", "text_f1", "text_exact")

    def example(self, row: Row, fields: Fields) -> Example:
        return Example(row.name, fields.first(row), fields.second(row), None, row.where)

    def encode(self, examples: Sequence[Example], tokenizer: Tokenizer) -> Encoded:
        return encode_texts(examples, tokenizer, self.room)

    def gold(self, data: Encoded) -> list[Any]:
        return [None if example.label is None else (example.label,) for example in data.examples]

    def generated(self, model: Model, data: Encoded, poll: Poll) -> list[list[Written]]:
        assert data.prefix is not None
        sources = [ids[:n].tolist() for ids, n in zip(data.ids, data.prefix, strict=True)]
        return generate_texts(model, self.tokenizer, sources, self.search, poll)


@dataclass
class Read(Generate):
    """The family of answers generated from passages as spans of them (generative reading).

    Attributes:
        always: every question of the training file has an answer, so the model always returns one.
    """

    always: bool = False

    kind: ClassVar[str] = "reading"
    metrics: tuple[str, ...] = ("text_f1", "text_exact")
    fields: ClassVar[Fields] = QUESTIONS

    def example(self, row: Row, fields: Fields) -> Question:
        # Passages with the same name would be read together: every row is a separate question.
        return question_of(row, fields, f"{row.number} ")

    def encode(self, examples: Sequence[Question], tokenizer: Tokenizer) -> Encoded:
        return encode_questions(examples, tokenizer, self.room, together=True)

    def encode_to_learn(self, examples: Sequence[Question], tokenizer: Tokenizer) -> Encoded:
        """As `encode`, with every passage as an example of its own."""
        return encode_questions(examples, tokenizer, self.room, together=False)

    def generated(self, model: Model, data: Encoded, poll: Poll) -> list[list[Written]]:
        return generate_answers(
            model, self.tokenizer, data.examples, self.search, always=self.always, poll=poll
        )

    def config(self, model_type: str, dropout: float) -> dict[str, Any]:
        tree = super().config(model_type, dropout)
        tree["albertine"] |= {"reads": True, "always": self.always}
        return tree


def of_folder(found: Tuned) -> Read | Write:
    """The family that a folder was tuned with."""
    flags = found.flags
    source, target, beams = flags.get("source_length"), flags.get("target_length"), flags.get("beams")
    if not (isinstance(source, int) and isinstance(target, int)):
        raise ModelError("has no source_length and target_length for generation", where=found.where)
    search, room = Search(beams if isinstance(beams, int) else 2, target), Room(source, target)
    if flags.get("reads") is True:
        return Read(found.tokenizer, room, search, always=flags.get("always") is True)
    return Write(found.tokenizer, room, search)
