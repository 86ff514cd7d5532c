"""Sources and targets of generation: WebQA and files in SQuAD's format for generative reading, and own rows.

WebQA has a JSON object a line: a question with its evidences, all split into words.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from pydantic import Field

from albertine.errors import DataError, SettingsError
from albertine.inference.search import Search
from albertine.inference.windows import WindowSettings
from albertine.model.config import EncoderConfig
from albertine.tasks.answer import Question, question_fields, question_row
from albertine.tasks.dataset_files import Lost, all_rows, check_labelled, files_of
from albertine.tasks.dataset_registry import SPLITS, Columns, Dataset, Split
from albertine.tasks.datasets.answer import flat_columns, in_squads_form, questions_in
from albertine.tasks.encoded import Encoded
from albertine.tasks.examples import Example
from albertine.tasks.family import Family, Fields
from albertine.tasks.generate import LEAST_SOURCE, Read, Room, Write, key_of, of_folder
from albertine.tasks.kind_settings import Examples, Registration, TaskCard, TaskChoice
from albertine.tasks.readers.files import File
from albertine.tasks.readers.table import Row, first_fields, rows_of
from albertine.tokenizers.base import Tokenizer

NO_ANSWER = "no_answer"


def webqa_file(path: File, encoding: str = "utf-8", prefix: str = "") -> Iterator[Question]:
    """One question per evidence; those of one question have its key and follow each other.

    Every evidence has all right answers of the question, whether it contains them or not; one that is marked
    as having no answer has none.

    Raises:
        DataError: it is not in WebQA's format.
    """
    for row in rows_of(path, encoding=encoding, prefix=prefix):
        try:
            yield from _evidences(row)
        except (KeyError, TypeError, AttributeError) as error:
            raise DataError(f"is not a question of WebQA ({error!r:.80})", where=row.where) from error


def _evidences(row: Row) -> Iterator[Question]:
    question = joined(row.fields["question_tokens"])
    for evidence in row.fields["evidences"]:
        passage = joined(evidence["evidence_tokens"])
        texts = [joined(tokens) for tokens in evidence.get("golden_answers") or ()]
        answers = [(text, passage.find(text)) for text in texts if text and text != NO_ANSWER]
        answers.sort(key=lambda answer: answer[1] < 0)
        yield Question(str(row.fields["q_key"]), question, passage, tuple(answers), row.where)


def joined(words: Sequence[str]) -> str:
    """Words as a text: with a space only between two ASCII letters or digits."""
    text = ""
    for word in words:
        gap = text[-1:].isascii() and text[-1:].isalnum() and word[:1].isascii() and word[:1].isalnum()
        text += f" {word}" if gap else word
    return text


def in_own_form(
    path: File, columns: Columns | Fields, encoding: str, prefix: str
) -> Iterator[Question] | None:
    """The questions of a file in WebQA's format or SQuAD's own, detected by its first line; None: it has
    flat rows."""
    if "evidences" in (first_fields(path, encoding, prefix) or ()):
        return webqa_file(path, encoding, prefix)
    return in_squads_form(path, columns, encoding, prefix)


def read_questions(dataset: Dataset, folder: Path, split: Split) -> Iterator[Question]:
    """The questions of a split of a data set."""
    for path in files_of(dataset, folder, split):
        if dataset.reader == "webqa":
            yield from webqa_file(path, dataset.encoding, "task.")
        else:
            yield from questions_in(dataset, path, split, in_own_form)


def read_texts(dataset: Dataset, folder: Path, split: Split) -> Iterator[Example]:
    """Sources of one or two texts, and their targets, which a test file may lack."""
    columns = dataset.columns_of(split)
    for row in all_rows(dataset, folder, split):
        text, pair = row.text(columns.text), None if columns.pair is None else row.text(columns.pair)
        has_target = columns.label is not None and row.fields.get(columns.label) is not None
        target = row.text(columns.label or "") if has_target else None
        yield Example(row.named(columns.id), text, pair, target, row.where)


class WritingTask(TaskChoice):
    """The base of tasks whose answers are generated."""

    labelled = False

    target_length: int = Field(
        32,
        ge=2,
        description="of max_length the most tokens of the target, [SEP] included; default: 32, or half of "
        "task.max_length where 32 would leave the source no room",
    )
    beams: int = Field(2, ge=1, description="beams of the search when it is evaluated")

    def fitting(self, positions: int) -> Self:
        found = super().fitting(positions)
        fits = found.max_length - found.target_length >= LEAST_SOURCE
        if fits or "target_length" in self.model_fields_set:
            return found
        return found.model_copy(update={"target_length": found.max_length // 2})

    def check_encoder(self, config: EncoderConfig, where: object) -> None:
        if config.halts or config.solves:
            what, without = ("halts", "halting") if config.halts else ("runs to its fixed point", "solver")
            raise SettingsError(
                f"task.kind={self.kind} writes token by token, which an encoder that {what} cannot",
                where=where,
                remedy=f"Use an encoder with {without}: none, or task.kind=answers, which points at its "
                "answers",
            )

    @property
    def lengths(self) -> tuple[Room, Search]:
        """Most tokens of source and target, and the search. Raises SettingsError."""
        return Room.of(self.max_length, self.target_length), Search(self.beams, self.target_length)


class TextsTask(WritingTask):
    """A text to be written (task.label is its column)."""

    kind: Literal["generation"]
    default_metrics = ("rouge_l", "text_f1", "text_exact")
    read: ClassVar = staticmethod(read_texts)

    def kept(self, split: str, examples: Examples) -> Examples:
        """An empty target means an empty text; a file with only empty targets has no targets."""
        if any(example.label and example.label.strip() for example in examples):
            return examples
        return [replace(example, label=None) for example in examples]

    def family(self, splits: dict[str, list[Any]], tokenizer: Tokenizer, known: Family | None) -> Family:
        for example in (e for name in ("train", "dev") for e in splits.get(name, ())):
            if example.label is None:
                raise DataError(
                    f"has no `{self.data.columns.label}`, the text to be written",
                    where=example.where,
                    remedy="Name the column of the target in task.label",
                )
        check_labelled(splits.get("test", ()), self.data.columns_of("test").label or "", test=True)
        return Write(tokenizer, *self.lengths, metrics=self.metrics)

    def lost(self, read: Examples, kept: Examples, encoded: Encoded, split: str) -> Iterable[Lost]:
        yield sum(not e.text.strip() for e in kept), "without a source"
        yield sum(e.label is not None and not e.label.strip() for e in kept), "with an empty target"
        yield from encoded.lost


class ReadingTask(WritingTask):
    """Answers that are written (SQuAD's or WebQA's format)."""

    kind: Literal["reading"]
    default_metrics = ("text_f1", "text_exact")
    readers = ("webqa",)
    share_passages, as_benchmark = True, False
    read: ClassVar = staticmethod(read_questions)
    in_own_form: ClassVar = staticmethod(in_own_form)
    own_fields: ClassVar = staticmethod(question_fields)
    own_row: ClassVar = staticmethod(question_row)

    def family(self, splits: dict[str, list[Any]], tokenizer: Tokenizer, known: Family | None) -> Family:
        for split in SPLITS:  # questions without an answer are labelled too
            label = flat_columns(self.data, split).label or ""
            check_labelled(splits.get(split, ()), label, test=split == "test")
        train = self._drawn(splits.get("train", []))
        questions, answered = set(map(key_of, train)), {key_of(q) for q in train if q.answers}
        always = known.always if isinstance(known, Read) else questions == answered
        return Read(tokenizer, *self.lengths, always=always, metrics=self.metrics)

    def lost(self, read: Examples, kept: Examples, encoded: Encoded, split: str) -> Iterable[Lost]:
        yield encoded.cut_questions, f"with a question cut to {WindowSettings().question} tokens"
        yield from encoded.lost
        if split != "train" or encoded.targets is None:
            return
        lengths = zip(encoded.targets, encoded.examples, strict=True)
        empty = sum(len(target) == len(example.sources) for target, example in lengths)
        if empty == len(encoded.examples):
            why = "".join(f"; {count:,} {what}" for count, what in encoded.lost)
            raise DataError(f"has no answer that stands in its passage{why}", where=kept[0].where)
        yield empty, "without an answer in their passage, whose target is empty"


CARD = TaskCard("text-generation", lambda config: None)
FAMILY = Registration("generate", "generate texts", of_folder, (TextsTask, ReadingTask), http=None, card=CARD)
