"""Sources and targets: WebQA and files in SQuAD's format to read by generation, and own rows to write freely.

WebQA has a JSON object a line: a question with its evidences, all cut into words.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from albertine.errors import DataError
from albertine.inference.search import Search
from albertine.tasks.answer import Question
from albertine.tasks.datasets.answer import ANSWERS, first_row, own_questions
from albertine.tasks.family import Family
from albertine.tasks.generate import Read, Room, Wanted, Write
from albertine.tasks.readers.files import File, TaskSet, find
from albertine.tasks.readers.table import Row, rows_of
from albertine.tasks.settings import TaskChoice
from albertine.tasks.sources import Data, as_data, fewer, own_rows, read_splits
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


def _webqa(evidence: str) -> TaskSet[Question]:
    names = {"train": "training.json", "dev": f"validation.{evidence}.json", "test": f"test.{evidence}.json"}
    return TaskSet(lambda folder, split: webqa_file(find(folder, names[split])))


READINGS = {"webqa": _webqa("ann"), "webqa-retrieved": _webqa("ir")}


def own_reading(path: Path, split: str) -> Iterator[Question]:
    """A user's file in SQuAD's or WebQA's format, told apart by its first line."""
    first = first_row(path)
    return webqa_file(path) if first is not None and "evidences" in first.fields else own_questions(path)


def own_texts(rows: Iterable[Row], text: str, pair: str | None, target: str) -> Iterator[Wanted]:
    """A user's rows: a source of one text or two, and the target, which a test file may lack."""
    for row in rows:
        told = row.fields.get(target) is not None
        yield Wanted(
            row.name,
            row.text(text),
            None if pair is None else row.text(pair),
            row.text(target) if told else None,
            row.where,
        )


def load_questions(task: TaskChoice, tokenizer: Tokenizer, known: Family | None = None) -> Data:
    """The data of questions whose answers are written."""
    room, search = Room.of(task.max_length, task.target_length), Search(task.beams, task.target_length)
    sets = {**ANSWERS, **READINGS}
    splits = fewer(read_splits(task, sets, own_reading, judging=known is not None), task)
    train = splits.get("train", [])
    names, answered = {q.name for q in train}, {q.name for q in train if q.answers}
    always = known.always if isinstance(known, Read) else names == answered
    family = Read(tokenizer, room, search, always=always)
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


def load_texts(task: TaskChoice, tokenizer: Tokenizer, known: Family | None = None) -> Data:
    """The data of texts that are written."""

    def own(path: Path, split: str) -> Iterator[Wanted]:
        return own_texts(own_rows(task, path), task.text, task.pair, task.label)

    room, search = Room.of(task.max_length, task.target_length), Search(task.beams, task.target_length)
    splits = fewer(read_splits(task, {}, own, judging=known is not None), task)
    for example in (e for name in ("train", "dev") for e in splits.get(name, ())):
        if example.target is None:
            raise DataError(
                f"has no `{task.label}`, the text to be written",
                where=example.where,
                remedy="Name the column of the target in task.label",
            )
    family = Write(tokenizer, room, search)
    encoded = {name: family.encode(found, tokenizer) for name, found in splits.items()}
    lost = {
        name: (
            (sum(not e.text.strip() for e in found), "without a source"),
            (sum(e.target is not None and not e.target.strip() for e in found), "with an empty target"),
        )
        for name, found in splits.items()
    }
    return as_data(family, encoded, task, lost)
