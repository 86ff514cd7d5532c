"""HTTP interface of a task: request bodies, questions to the model, and responses.

The server (`albertine.serving`) finds the class of a family in its registration and calls it; it knows no
family by name. `HttpTask` itself serves every family whose question is one text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple, Protocol

from pydantic import BaseModel, ConfigDict, Field

from albertine.tasks.encoded import Encoded, EncodedExample, joined
from albertine.tasks.examples import Example
from albertine.tokenizers.base import Tokenizer

if TYPE_CHECKING:
    from albertine.tasks.family import Family

# Every list ends at its first wrong element: an error for each of a million holds up the server for seconds.
Several = Annotated[list[str], Field(min_length=1, fail_fast=True)]
TEXTS = "a text, or a list of texts"
UNCUT = 1 << 30
"""A `max_length` that no row reaches, with which a family encodes without truncation."""
ROW = 16
"""Characters whose encoding costs as much as an empty row."""
JSON = Any


class Body(BaseModel):
    """A JSON object of known fields, without conversions between texts and numbers."""

    model_config = ConfigDict(strict=True, extra="forbid", hide_input_in_errors=True)


class Answer(BaseModel):
    """A JSON object of a response, for the OpenAPI document."""

    model_config = ConfigDict(extra="forbid")


class Truncation(Body):
    """Whether inputs that are too long are truncated or refused; None: as the server is configured."""

    truncate: bool | None = None
    truncation_direction: Literal["left", "right", "Left", "Right", "LEFT", "RIGHT"] = "right"

    @property
    def left(self) -> bool:
        return self.truncation_direction.lower() == "left"


class TextsToPredict(Body):
    """`/` of a family without a schema of its own."""

    inputs: str | Several = Field(description=TEXTS)
    parameters: Truncation = Truncation()


class InputLength(NamedTuple):
    """Length of a question.

    Attributes:
        tokens: to compute, of all rows, special tokens included.
        length: before truncation, of the part that is bounded: the longest row, or the question to a passage.
        limit: most tokens of that part. cut: whether tokens are lost.
        encoded: the tokens of the question in the form that its task computes; None: it is encoded there.
    """

    tokens: int
    length: int
    limit: int
    cut: bool
    encoded: Any = None

    @classmethod
    def of_rows(cls, rows: Sequence[int], limit: int, encoded: Any = None) -> InputLength:
        """From the lengths of rows. `encoded`: without truncation."""
        longest = max(rows)
        cut = longest > limit
        return cls(sum(min(row, limit) for row in rows), longest, limit, cut, None if cut else encoded)


class Model(Protocol):
    """The part of a `Predictor` that an `HttpTask` uses."""

    tokenizer: Tokenizer

    @property
    def family(self) -> Family: ...


class HttpRoute:
    """One kind of request: `POST` of a body to a path. The first line of the docstring is its summary.

    Attributes:
        schema: of the body. response_type: of the response. example: a body.
    """

    schema: type[Body]
    response_type: Any = Any
    example: ClassVar[Mapping[str, Any]] = MappingProxyType({})

    def claims(self, body: Mapping[str, Any]) -> bool:
        """Whether a body posted to `/` has the form of this route, whatever model is served."""
        return False

    def questions(self, task: Any, request: Any) -> list[Any]:
        """The questions of a request. Raises HttpError."""
        raise NotImplementedError

    def input_of(self, request: Any, question: int) -> int:
        """The number of the input that a question belongs to, for errors."""
        return question

    def truncation(self, request: Any) -> Truncation:
        """The part of a request that says how to truncate."""
        found = request if isinstance(request, Truncation) else request.parameters
        assert isinstance(found, Truncation)
        return found

    def response(self, task: Any, request: Any, questions: Sequence[Any], values: Sequence[Any]) -> JSON:
        """The response. `values`: what `HttpTask.values` gives for each of `questions`."""
        raise NotImplementedError


class PredictTexts(HttpRoute):
    """Predictions as in a predictions file: an object for a text, a list of objects for a list."""

    schema = TextsToPredict
    example: ClassVar = {"inputs": "Marie Curie worked in Paris."}

    def questions(self, task: HttpTask, request: TextsToPredict) -> list[Any]:
        return listed(request.inputs)

    def response(
        self, task: HttpTask, request: TextsToPredict, questions: Sequence[Any], values: Sequence[Any]
    ) -> JSON:
        return values[0] if isinstance(request.inputs, str) else list(values)


class HttpTask:
    """Questions of one task to a model. A question is a text, or what the routes of the task make of a body.

    Lengths may be measured by several threads at once.

    Attributes:
        does: the task as a verb with its object, such as "tags entities", for errors.
        routes: by path; `/` is the route of clients that know the model's task (huggingface_hub).
        probe: a short question, by which the server checks the model.

    Args:
        model: a `Predictor`.
    """

    does: ClassVar[str] = ""
    routes: ClassVar[Mapping[str, HttpRoute]] = {"/": PredictTexts()}

    def __init__(self, model: Model) -> None:
        self.model = model

    @property
    def family(self) -> Any:
        return self.model.family

    @property
    def probe(self) -> Any:
        return "a"

    @property
    def limit(self) -> int:
        """Most tokens of a question's bounded part, special tokens included."""
        return int(self.family.max_length)

    def info(self) -> dict[str, Any]:
        """Entries of `model_type` at `/info`."""
        return {}

    def example(self, question: Any, name: str) -> Any:
        """A question as an example of the family."""
        return Example(name, question, None, None, "")

    def examples(self, questions: Sequence[Any]) -> list[Any]:
        """Questions as examples, named by their numbers."""
        return [self.example(question, str(i)) for i, question in enumerate(questions)]

    def characters(self, question: Any) -> int:
        """How many characters `lengths` encodes, without encoding them."""
        return characters_of(question)

    def lengths(self, questions: Sequence[Any]) -> list[InputLength]:
        """The length of every question.

        Raises:
            AlbertineError: the model cannot answer one.
        """
        data = replace(self.family, max_length=UNCUT).encode(self.examples(questions), self.model.tokenizer)
        lengths, limit = [len(row) for row in data.ids], self.limit
        whole = type(data) is Encoded  # a family's own class holds more than rows
        return [
            InputLength.of_rows(lengths[a:b], limit, EncodedExample(data, i) if whole else None)
            for i, (a, b) in enumerate(pairwise(data.starts))
        ]

    def check_lengths(self, lengths: Sequence[InputLength]) -> None:
        """Check that the response to a request with questions of these lengths is not too large.

        Raises:
            HttpError: 422 `batch_too_large`.
        """

    def encode(self, questions: Sequence[Any]) -> Encoded:
        """Questions as rows of the model.

        Args:
            questions: each as it was requested, or as `InputLength.encoded` holds it.
        """
        rest = [question for question in questions if not isinstance(question, EncodedExample)]
        if not rest:
            return joined(questions)
        data: Encoded = self.family.encode(self.examples(rest), self.model.tokenizer)
        if len(rest) == len(questions):
            return data
        left = iter(range(len(rest)))
        return joined(
            [
                one if isinstance(one, EncodedExample) else EncodedExample(data, next(left))
                for one in questions
            ]
        )

    def cut_right(self, question: Any) -> Any:
        """A question without most of what truncation at the end removes, so that the thread of the model need
        not encode it; the encoded rows stay the same."""
        return self.model.tokenizer.head(question, self.limit) if isinstance(question, str) else question

    def cut_left(self, question: Any, cut: Callable[[str], str]) -> Any | None:
        """A question truncated at the beginning of its text; None where that is not possible: it has several
        texts, or the response has places in the text.

        Args:
            cut: the end of a text that fits a row.
        """
        return cut(question) if isinstance(question, str) else None

    def values(self, outputs: Any, data: Encoded) -> Sequence[Any]:
        """The outputs of each example for the routes; the server refuses values that are not finite.

        Args:
            outputs: of the family's `predict`, for `data`.
        """
        return self.model.family.predictions(outputs, data, self.model.family.answers(outputs, data))


def listed(inputs: Any) -> list[Any]:
    """One input as a list of one."""
    return inputs if isinstance(inputs, list) else [inputs]


def characters_of(question: Any) -> int:
    """Characters of all texts in a question, each counted once."""
    if isinstance(question, str):
        return len(question)
    return sum(map(characters_of, question)) if isinstance(question, tuple | list) else 0
