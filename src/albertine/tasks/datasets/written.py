"""Sources and targets: WebQA and files in SQuAD's format to read by generation, and own rows to write freely.

WebQA has a JSON object a line: a question with its evidences, all cut into words.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from albertine.errors import DataError
from albertine.inference.search import Search
from albertine.tasks.answer import Question
from albertine.tasks.datasets.answer import first_row, questions_in
from albertine.tasks.family import Family
from albertine.tasks.generate import Read, Room, Wanted, Write
from albertine.tasks.readers.files import File
from albertine.tasks.readers.table import Row, rows_of
from albertine.tasks.registry import Dataset, Split
from albertine.tasks.settings import WritingTask
from albertine.tasks.sources import Data, as_data, fewer, files_of, read_splits, rows_in
from albertine.text.tokenizer import Tokenizer

NO_ANSWER = "no_answer"


def webqa_file(path: File) -> Iterator[Question]:
    """A question for each of its evidences, which stand together under its key.

    The right answers stand with every evidence, found in it or not; one that is marked as having none has
    none.

    Raises:
        DataError: it is not in WebQA's format.
    """
    for row in rows_of(path):
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
    """Chinese words run together; a space stays between two that are not Chinese."""
    text = ""
    for word in words:
        gap = text[-1:].isascii() and text[-1:].isalnum() and word[:1].isascii() and word[:1].isalnum()
        text += f" {word}" if gap else word
    return text


def read_questions(dataset: Dataset, folder: Path, split: Split) -> Iterator[Question]:
    """The questions of a split of a data set; own files in SQuAD's or WebQA's format are told apart by their
    first line."""
    for path in files_of(dataset, folder, split):
        reader = dataset.reader
        if reader is None and (first := first_row(path)) is not None and "evidences" in first.fields:
            reader = "webqa"
        yield from webqa_file(path) if reader == "webqa" else questions_in(dataset, path)


def read_texts(dataset: Dataset, folder: Path, split: Split) -> Iterator[Wanted]:
    """Sources of one text or two, and the targets, which a test file may lack."""
    columns = dataset.columns_of(split)
    for row in (row for file in files_of(dataset, folder, split) for row in rows_in(dataset, file, split)):
        text, pair = row.text(columns.text), None if columns.pair is None else row.text(columns.pair)
        told = row.fields.get(columns.label or "") is not None
        yield Wanted(row.name, text, pair, row.text(columns.label or "") if told else None, row.where)


def load_questions(task: WritingTask, tokenizer: Tokenizer, known: Family | None = None) -> Data:
    """The data of questions whose answers are written."""
    room, search = Room.of(task.max_length, task.target_length), Search(task.beams, task.target_length)
    splits = fewer(read_splits(task, read_questions, judging=known is not None), task)
    train = splits.get("train", [])
    names, answered = {q.name for q in train}, {q.name for q in train if q.answers}
    always = known.always if isinstance(known, Read) else names == answered
    family = Read(tokenizer, room, search, always=always, metrics=task.data.judged_by(task.kind))
    encoded = {
        name: family.encode(found, tokenizer, learning=name == "train") for name, found in splits.items()
    }
    if known is not None:
        return as_data(family, encoded, task)
    learned = encoded["train"]
    lengths = zip(learned.targets or (), learned.examples, strict=True)
    silent = sum(len(target) == len(example.sources) for target, example in lengths)
    if silent == len(learned.examples):
        raise DataError("has no answer that stands in its passage", where=train[0].where)
    lost = {"train": [(silent, "without an answer in their passage, which learn to say nothing")]}
    return as_data(family, encoded, task, lost)


def load_texts(task: WritingTask, tokenizer: Tokenizer, known: Family | None = None) -> Data:
    """The data of texts that are written."""
    room, search = Room.of(task.max_length, task.target_length), Search(task.beams, task.target_length)
    splits = fewer(read_splits(task, read_texts, judging=known is not None), task)
    for example in (e for name in ("train", "dev") for e in splits.get(name, ())):
        if example.target is None:
            raise DataError(
                f"has no `{task.data.columns.label}`, the text to be written",
                where=example.where,
                remedy="Name the column of the target in task.label",
            )
    family = Write(tokenizer, room, search, metrics=task.data.judged_by(task.kind))
    encoded = {name: family.encode(found, tokenizer) for name, found in splits.items()}
    lost = {
        name: (
            (sum(not e.text.strip() for e in found), "without a source"),
            (sum(e.target is not None and not e.target.strip() for e in found), "with an empty target"),
        )
        for name, found in splits.items()
    }
    return as_data(family, encoded, task, lost)
