"""HTTP interface of multiple choice: `/` and `/choose`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar

from pydantic import Field

from albertine.inference.option_rows import characters_of, question_length, question_limit
from albertine.inference.probabilities import softmax
from albertine.tasks.encoded import Encoded
from albertine.tasks.http.base import JSON, ROW, UNCUT, Answer, HttpRoute, HttpTask, InputLength, Truncation
from albertine.tasks.multiple_choice import Choice, Logits, by_option

Question = tuple[str, str, tuple[str, ...]]
"""Passage, question and options."""


class OptionsToChoose(Truncation):
    """`/choose`."""

    question: str = ""
    passage: str = ""
    options: Annotated[list[str], Field(min_length=2, fail_fast=True)] = Field(
        description="a list of two texts or more"
    )


class Option(Answer):
    """An option by its number in the request, and its probability."""

    index: int
    option: str
    score: float


class ChooseOption(HttpRoute):
    """`/choose`: options and their probabilities, the best first."""

    schema = OptionsToChoose
    response_type = list[Option]
    example: ClassVar = {"question": "What is ice?", "options": ["frozen water", "hot air"]}

    def claims(self, body: Mapping[str, Any]) -> bool:
        return "options" in body and "inputs" not in body  # with inputs they are of Hugging Face's old API

    def questions(self, task: ChooseHttp, request: OptionsToChoose) -> list[Question]:
        return [(request.passage, request.question, tuple(request.options))]

    def response(
        self,
        task: ChooseHttp,
        request: OptionsToChoose,
        questions: Sequence[Question],
        values: Sequence[list[float]],
    ) -> JSON:
        [probabilities] = values
        order = sorted(range(len(probabilities)), key=lambda i: -probabilities[i])
        return [{"index": i, "option": request.options[i], "score": probabilities[i]} for i in order]


class ChooseHttp(HttpTask):
    """Which of several options fits."""

    does = "chooses among options"
    routes: ClassVar = {"/": ChooseOption(), "/choose": ChooseOption()}

    @property
    def probe(self) -> Question:
        return "a", "", ("a", "b")

    def example(self, question: Question, name: str) -> Choice:
        return Choice(name, *question, None, "")

    def characters(self, question: Question) -> int:
        return characters_of(*question) + ROW * len(question[2])

    def lengths(self, questions: Sequence[Question]) -> list[InputLength]:
        tokenizer, limit, most = self.model.tokenizer, self.limit, question_limit(self.limit)
        family = replace(self.family, max_length=UNCUT)
        data = family.encode(self.examples(questions), tokenizer)
        rows = [len(row) for row in data.ids]
        # The question with an option, the second segment with its [SEP], has a limit of its own, which
        # depends on that of rows.
        seconds = [int((types == 1).sum()) - 1 for types in data.types]
        found = []
        for question, a, b in zip(questions, data.starts[:-1], data.starts[1:], strict=True):
            length = InputLength.of_rows(rows[a:b], limit)
            if max(seconds[a:b]) >= most:  # truncated to QUESTION_TOKENS even in rows of any length
                whole = question_length(tokenizer, *question)
                if whole > most:
                    length = length._replace(length=whole, limit=most, cut=True)
            found.append(length)
        return found

    def values(self, outputs: Logits, data: Encoded) -> list[list[float]]:
        """The probability of every option."""
        table = softmax(by_option(outputs, data.sizes)).tolist()
        return [row[:count] for row, count in zip(table, data.sizes, strict=True)]
