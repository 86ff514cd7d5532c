"""HTTP interface of answers from passages: `/`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

from pydantic import Field

from albertine.inference.spans import LikelySpans
from albertine.tasks.answer import Question
from albertine.tasks.answerability import AnswerOrNot
from albertine.tasks.encoded import Encoded, EncodedExample
from albertine.tasks.http.base import (
    JSON,
    Answer,
    Body,
    HttpRoute,
    HttpTask,
    InputLength,
    Truncation,
    listed,
)

AS_TUNED = "left out: passages are read as the model was tuned and scored"
Pair = tuple[str, str]
"""A question and its passage."""


class QuestionAndContext(Body):
    """A question about a passage."""

    question: str
    context: str


class AnswerParameters(Truncation):
    """`parameters` of `/`."""

    top_k: int = Field(1, ge=1, description="a whole number from 1")
    handle_impossible_answer: bool | None = None
    align_to_words: bool | None = None  # spans consist of whole tokens, of which words consist
    doc_stride: None = Field(None, description=AS_TUNED)
    max_answer_len: None = Field(None, description=AS_TUNED)
    max_question_len: None = Field(None, description=AS_TUNED)
    max_seq_len: None = Field(None, description=AS_TUNED)


class QuestionsToAnswer(Body):
    """`/`."""

    inputs: QuestionAndContext | Annotated[list[QuestionAndContext], Field(min_length=1, fail_fast=True)] = (
        Field(description='{"question": text, "context": text}, or a list of these')
    )
    parameters: AnswerParameters = AnswerParameters()


class FoundAnswer(Answer):
    """A part of the passage by its characters; empty for no answer."""

    answer: str
    score: float
    start: int
    end: int


class Pipeline(HttpRoute):
    """`/`: one answer, or a list of `top_k`; for a list of questions a list of that."""

    schema = QuestionsToAnswer
    response_type = FoundAnswer | list[FoundAnswer] | list[list[FoundAnswer]]
    example: ClassVar = {"inputs": {"question": "Who wrote Faust?", "context": "Goethe wrote Faust."}}

    def questions(self, task: AnswerHttp, request: QuestionsToAnswer) -> list[Pair]:
        return [(one.question, one.context) for one in listed(request.inputs)]

    def response(
        self,
        task: AnswerHttp,
        request: QuestionsToAnswer,
        questions: Sequence[Pair],
        values: Sequence[LikelySpans],
    ) -> JSON:
        count = request.parameters.top_k
        always = request.parameters.handle_impossible_answer is False
        threshold = 1.0 if always else task.threshold
        found = [
            _spans(likely, passage, threshold, count)
            for likely, (_, passage) in zip(values, questions, strict=True)
        ]
        shown: list[Any] = [one[0] if count == 1 else one for one in found]
        return shown if isinstance(request.inputs, list) else shown[0]


def _spans(likely: LikelySpans, passage: str, threshold: float, count: int) -> list[dict[str, Any]]:
    """The likeliest spans; an empty one first where the model predicts that there is no answer."""
    spans = [
        {"answer": passage[a:b], "score": score, "start": a, "end": b}
        for (a, b), score in likely.spans.items()
    ]
    if likely.best(threshold) is None:
        spans.insert(0, {"answer": "", "score": likely.no_answer or 0.0, "start": 0, "end": 0})
    return spans[:count]


class AnswerHttp(HttpTask):
    """Answers to (question, passage). A passage may have any length, as it is read in windows; its question
    may not."""

    does = "answers questions about a passage"
    routes: ClassVar = {"/": Pipeline()}

    @property
    def probe(self) -> Pair:
        return "a", "a"

    @property
    def limit(self) -> int:
        return int(self.family.reading.question)

    @property
    def threshold(self) -> float:
        """The response has no answer where its probability of there being none is above."""
        return self.family.threshold if isinstance(self.family, AnswerOrNot) else 1.0

    def example(self, question: Pair, name: str) -> Question:
        return Question(name, *question, None, "")

    def lengths(self, questions: Sequence[Pair]) -> list[InputLength]:
        tokenizer, limit = self.model.tokenizer, self.limit
        data = self.family.encode(self.examples(questions), tokenizer)
        ids = tokenizer.encode_batch([question for question, _ in questions])
        return [
            InputLength(int(tokens), len(own), limit, len(own) > limit, EncodedExample(data, i))
            for i, (tokens, own) in enumerate(zip(data.lengths, ids, strict=True))
        ]

    def values(self, outputs: list[LikelySpans], data: Encoded) -> list[LikelySpans]:
        return outputs
