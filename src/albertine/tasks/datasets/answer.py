"""Files in SQuAD's format: SQuAD, SQuADShifts, XQuAD, CMRC 2018, DRCD, DuReader-robust, and own ones.

Known defects are repaired where possible: an answer that is not at the offset in the file, or has none
(DuReader-robust), is searched in the passage, nearest to that offset. An answer that is not in the passage
is used for evaluation only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from pydantic import Field

from albertine.core.settings import Settings
from albertine.errors import DataError
from albertine.inference.windows import QUESTION, WindowSettings, question_room
from albertine.tasks.answer import Answer, Question, question_fields, question_row, windows_to_learn
from albertine.tasks.answerability import AnswerOrNot, of_folder, scores
from albertine.tasks.dataset_files import Data, Lost, check_labelled, files_of, rows_in
from albertine.tasks.dataset_registry import Columns, Dataset, Rules, Split
from albertine.tasks.encoded import Encoded
from albertine.tasks.family import Family, Fields
from albertine.tasks.kind_settings import OWN_FILES, Examples, OwnForm, Registration, TaskCard, TaskChoice
from albertine.tasks.readers.files import File, whole_json
from albertine.tasks.readers.table import Row, first_fields
from albertine.tasks.readers.values import kind_of_value, nested, text_in, whole_number
from albertine.tokenizers.base import Tokenizer

if TYPE_CHECKING:
    from albertine.tasks.http.answer import AnswerHttp
    from albertine.tasks.padded import PaddedAnswers

SCORES: Mapping[Rules, tuple[str, ...]] = {
    "squad": ("squad_f1", "squad_exact"),
    "cmrc": ("cmrc_average", "cmrc_f1", "cmrc_exact"),
    "dureader": ("dureader_f1", "dureader_exact"),
    "mlqa": ("mlqa_f1", "mlqa_exact"),
}
"""The metrics of each evaluation script; the first selects the best model."""


FLAT = Columns(text="context", pair="question", label="answers")
"""The columns of flat rows of questions, as `datasets` has them for SQuAD."""


def squad_file(path: File, encoding: str = "utf-8", prefix: str = "task.") -> Iterator[Question]:
    """The questions of a file. Arguments as `whole_json`.

    Raises:
        DataError: it is not in SQuAD's format.
    """
    try:
        tree = whole_json(path, encoding, prefix)
    except DataError as error:
        if error.remedy is not None:
            raise
        remedy = "Questions about passages come in one JSON object, as SQuAD's files are"
        raise DataError(error.what, where=error.where, remedy=remedy) from error
    try:
        for article in tree["data"]:
            for paragraph in article["paragraphs"]:
                for question in paragraph["qas"]:
                    yield _question(paragraph["context"], question, str(path))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(
            f"is not a file in SQuAD's format ({error!r:.80})",
            where=path,
            remedy='It has {"data": [{"paragraphs": [{"context", "qas": [{"id", "question", "answers"}]}]}]}',
        ) from error


ANSWERS = 'It is {"text": ["good"], "answer_start": [2]}, or {"text": [], "answer_start": []} for no answer'
"""The form of the answers of a flat row."""


def flat_columns(dataset: Dataset, split: Split) -> Columns:
    """The columns of flat rows: the settings of the data set, and `FLAT` for those left at their default."""
    default = Columns()
    named = {name: value for name, value in dataset.columns_of(split) if value != getattr(default, name)}
    return FLAT.model_copy(update=named)


def flat_questions(rows: Iterable[Row], columns: Columns) -> Iterator[Question]:
    """The questions of flat rows: a passage, a question, and answers with lists `text` and `answer_start`,
    which are empty if the passage has no answer.

    Raises:
        DataError: with the row that is invalid.
    """
    pair, label = columns.pair or "", columns.label or ""
    for row in rows:
        question, passage = row.text(pair), row.text(columns.text)
        answers = nested(row.value_or_none(label), row.where)
        if isinstance(answers, str | int | float):
            what = f"`{label}` is {kind_of_value(answers)}, not what SQuAD's are"
            raise DataError(what, where=row.where, remedy=ANSWERS)
        try:
            if isinstance(answers, dict):
                pairs = zip(answers["text"], answers["answer_start"], strict=True)
                answers = [{"text": text, "answer_start": start} for text, start in pairs]
            fields = {"id": row.named(columns.id), "question": question, "answers": answers}
            yield _question(passage, fields | {"is_impossible": answers == []}, row.where)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DataError(
                f"`{label}` is not what SQuAD's are ({error!r:.80})",
                where=row.where,
                remedy=ANSWERS,
            ) from error


def in_squads_form(
    path: File, columns: Columns | Fields, encoding: str, prefix: str
) -> Iterator[Question] | None:
    """The questions of a file in SQuAD's own format; None: it has flat rows, which may have a column `data`
    too."""
    first = first_fields(path, encoding, prefix)
    flat = (FLAT.text, FLAT.pair, columns.text, columns.pair)
    tree = first is None or ("data" in first and first.keys().isdisjoint(flat))
    return squad_file(path, encoding, prefix) if tree else None


def questions_in(
    dataset: Dataset, path: File, split: Split, own_form: OwnForm = in_squads_form
) -> Iterator[Question]:
    """The questions of a file: flat rows, or one of the forms that `own_form` knows."""
    columns, how = flat_columns(dataset, split), (dataset.encoding, "task.")
    own = squad_file(path, *how) if dataset.reader == "squad" else own_form(path, columns, *how)
    return flat_questions(rows_in(dataset, path, split), columns) if own is None else own


def _question(passage: str, fields: dict[str, Any], where: str) -> Question:
    """A question from the fields of an entry of `qas`."""
    passage, question = text_in(passage), text_in(fields["question"])
    name, listed = str(fields["id"]), fields.get("answers")
    if fields.get("is_impossible"):
        return Question(name, question, passage, (), where)  # "plausible" answers are wrong ones
    if listed is None or (not listed and "is_impossible" not in fields):
        return Question(name, question, passage, None, where)
    answers = [(a["text"], _place(passage, a["text"], _offset(a["answer_start"]))) for a in listed]
    # The first one is the training target, so it should be one that is in the passage.
    answers.sort(key=lambda answer: answer[1] < 0)
    return Question(name, question, passage, tuple(answers), where)


def _offset(value: Any) -> int:
    """An offset in a file as an integer. Raises ValueError: it is not a whole number."""
    try:
        found = int(value) if isinstance(value, str) else whole_number(value)
    except ValueError:
        found = None
    if found is None:
        raise ValueError(f"answer_start is {value!r:.40}, not a whole number")
    return found


def _place(passage: str, text: str, offset: int) -> int:
    """The occurrence of a text in the passage that is nearest to an offset; -1: there is none."""
    if offset < 0 or not text:
        return passage.find(text) if text else -1
    if passage.startswith(text, offset):
        return offset
    places = (passage.rfind(text, 0, offset + len(text) - 1), passage.find(text, offset + 1))
    return min((place for place in places if place >= 0), key=lambda p: abs(p - offset), default=-1)


def check(splits: Mapping[str, Sequence[Question]], no_answer: bool) -> None:
    """Check that the files fit the setting `no_answer`.

    Raises:
        DataError: a question has no answer without `no_answer`, or none is without an answer with it.
    """
    for name, questions in splits.items():
        without = next((q for q in questions if q.answers == ()), None)
        if without is not None and not no_answer:
            raise DataError(
                f"question {without.name} has no answer",
                where=without.where,
                remedy="Set task.answer.no_answer=true, so that the model learns to detect this",
            )
        if without is None and no_answer and name == "train":
            raise DataError(
                "has no question without an answer, which task.answer.no_answer is to learn from",
                where=questions[0].where,
                remedy="Leave the setting out, or add a file with such questions (SQuAD v2.0's format)",
            )


def learnable(questions: Sequence[Question]) -> list[Question]:
    """The questions usable in training: their answer is in the passage, or they have none.

    Raises:
        DataError: no question is usable.
    """
    found = [q for q in questions if q.answers == () or (q.answers and q.answers[0][1] >= 0)]
    if not found:
        raise DataError("has no question whose answer is in its passage", where=questions[0].where)
    return found


def read(dataset: Dataset, folder: Path, split: Split) -> Iterator[Question]:
    """The questions of a split of a data set."""
    for path in files_of(dataset, folder, split):
        yield from questions_in(dataset, path, split)


class AnswerChoice(Settings):
    """Lengths in tokens of questions, windows and answers, and how own files are scored."""

    stride: int = Field(128, ge=1, description="from one window of task.max_length to the next")
    question: int = Field(
        QUESTION,
        ge=1,
        description="of the question, the rest is cut; default: 64, or half of the encoder's positions where "
        "64 would leave the passage no room",
    )
    longest: int = Field(30, ge=1, description="of an answer")
    blank: float = Field(
        1.0,
        ge=0,
        le=1,
        description="share of the training windows without the answer of their question that are learned "
        "from; a small budget is better spent on the others",
    )
    n_best: int = Field(20, ge=1, description="how many likely spans are kept")
    no_answer: bool = Field(
        False, description="own files: passages may not answer, as in SQuAD v2.0", json_schema_extra=OWN_FILES
    )
    rules: Rules = Field(
        "squad",
        description="own files: whose script scores the answers; the last three are for Chinese",
        json_schema_extra=OWN_FILES,
    )


class AnswersTask(TaskChoice):
    """Answers in a passage (SQuAD's format)."""

    kind: Literal["answers"]
    readers = ("squad",)
    labelled = False
    share_passages = True
    read: ClassVar = staticmethod(read)
    in_own_form: ClassVar = staticmethod(in_squads_form)
    own_fields: ClassVar = staticmethod(question_fields)
    own_row: ClassVar = staticmethod(question_row)

    answer: AnswerChoice = AnswerChoice()

    def _own_settings(self) -> dict[str, Any]:
        of_answers = {name: value for name, value in self.answer if name in Dataset.model_fields}
        return super()._own_settings() | of_answers

    def fitting(self, positions: int) -> Self:
        found = super().fitting(positions)
        if found is self or "question" in self.answer.model_fields_set:
            return found
        room = question_room(found.max_length, self.answer.question)
        return found.model_copy(update={"answer": self.answer.model_copy(update={"question": room})})

    def family(self, splits: dict[str, list[Any]], tokenizer: Tokenizer, known: Family | None) -> Family:
        dataset, own = self.data, self.answer
        check(splits, dataset.no_answer)
        check_labelled(splits.get("test", ()), flat_columns(dataset, "test").label or "", test=True)
        reading = WindowSettings(self.max_length, own.stride, own.question, own.longest, own.n_best)
        if dataset.no_answer:
            return AnswerOrNot(scores(dataset.rules), reading, dataset.rules)
        return Answer(SCORES[dataset.rules], reading)

    def kept(self, split: str, examples: Examples) -> Examples:
        return learnable(examples) if split == "train" else examples

    def lost(self, read: Examples, kept: Examples, encoded: Encoded, split: str) -> Iterable[Lost]:
        answered = any(q.answers for q in kept)
        if split == "train" and answered and not any(one.whole for one in encoded.examples):
            why = "; ".join(f"{count:,} {what}" for count, what in encoded.lost)
            raise DataError(
                f"has no question whose answer can be predicted: {why}",
                where=kept[0].where,
                remedy="Raise task.max_length and task.answer.longest",
            )
        yield encoded.cut_questions, f"with a question cut to {self.answer.question} tokens"
        if split == "train":
            left_out = [q for q in read if q.answers is None or (q.answers and q.answers[0][1] < 0)]
            first = f" (the first: question {left_out[0].name} in {left_out[0].where})" if left_out else ""
            yield len(left_out), f"left out, their answer is not in the passage{first}"
        yield from encoded.lost

    def load(self, tokenizer: Tokenizer, known: Family | None = None) -> Data:
        """As `TaskChoice.load`; training examples are windows, as in Google's code, so that the size of a
        batch does not depend on the length of passages."""
        data = super().load(tokenizer, known)
        return data if known else replace(data, train=windows_to_learn(data.train, self.answer.blank))


def http_task() -> type[AnswerHttp]:
    """The HTTP interface, imported by the server alone."""
    from albertine.tasks.http.answer import AnswerHttp

    return AnswerHttp


def padded_task() -> type[PaddedAnswers]:
    """The call with padded batches, which imports torch."""
    from albertine.tasks.padded import PaddedAnswers

    return PaddedAnswers


CARD = TaskCard("question-answering", lambda config: 'answer("a question", "a passage")')
FAMILY = Registration(
    "answer", "answer from passages", of_folder, (AnswersTask,), http_task, CARD, padded_task
)
