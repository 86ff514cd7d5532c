"""What each route takes, as data. Unknown fields are refused on the native routes, so that a misspelt one is
not silently without effect; OpenAI's clients send more than we know, and those are left aside."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from albertine.serving.error_responses import Refusal, invalid

# Every list ends at its first wrong element: an error for each of a million holds up the server for seconds.
Several = Annotated[list[str], Field(min_length=1, fail_fast=True)]
OneOrTwo = Annotated[list[str], Field(min_length=1, max_length=2, fail_fast=True)]
TEXTS = "a text, or a list of texts"


class Body(BaseModel):
    """An object of known fields; a number is no text, and no text is a number."""

    model_config = ConfigDict(strict=True, extra="forbid", hide_input_in_errors=True)


B = TypeVar("B", bound=Body)


class Cutting(Body):
    """What may become of too long inputs: cut if `truncate`, refused if not, as the server was told if
    nothing is said."""

    truncate: bool | None = None
    truncation_direction: Literal["left", "right", "Left", "Right", "LEFT", "RIGHT"] = "right"

    @property
    def left(self) -> bool:
        return self.truncation_direction.lower() == "left"


class TextsToEmbed(Cutting):
    """`/embed`, and `/` for vectors."""

    inputs: str | Several = Field(description=TEXTS)
    normalize: bool = True
    dimensions: int | None = Field(None, description="a whole number from 1 to the size of the vectors")
    prompt_name: None = Field(None, description="left out: this folder has no prompts")
    encoding_format: Any = None  # numbers are always given, since huggingface_hub reads nothing else


Pairs = Annotated[list[OneOrTwo], Field(min_length=1, fail_fast=True)]
ONE_PAIR_OR_MANY = "a text, a list of one or two texts (a pair), or a list of such lists"


class TextsToClassify(Cutting):
    """`/predict`."""

    inputs: str | OneOrTwo | Pairs = Field(description=ONE_PAIR_OR_MANY)
    raw_scores: bool = False


class TextsToRank(Cutting):
    """`/rerank`, as text-embeddings-inference and LlamaIndex (`texts`) or Cohere and Infinity (`documents`)
    ask."""

    query: str
    texts: Several | None = Field(None, description="a list of texts")
    # Nothing said is not false: a score is on the scale of its labels, and need not be a logit.
    raw_scores: bool | None = Field(None, description="true, or false for scores from 0 to 1")
    return_text: bool = False
    documents: Several | None = Field(None, description="a list of texts")
    top_n: int | None = Field(None, ge=1, description="a whole number from 1")
    return_documents: bool = False
    model: str | None = None


class SourceAndSentences(Body):
    """What is compared with each of which."""

    source_sentence: str
    sentences: Several = Field(description="a list of texts")


class SimilarityParameters(Cutting):
    """Of `/similarity`."""

    prompt_name: None = Field(None, description="left out: this folder has no prompts")


class TextsToCompare(Body):
    """`/similarity`, and `/` for it."""

    inputs: SourceAndSentences = Field(description='{"source_sentence": text, "sentences": list of texts}')
    parameters: SimilarityParameters = SimilarityParameters()


class TextsToCut(Body):
    """`/tokenize`."""

    inputs: str | Several = Field(description=TEXTS)
    add_special_tokens: bool = True
    prompt_name: None = Field(None, description="left out: this folder has no prompts")


class OptionsToChoose(Cutting):
    """`/choose`."""

    question: str = ""
    passage: str = ""
    options: Annotated[list[str], Field(min_length=2, fail_fast=True)] = Field(
        description="a list of two texts or more"
    )


class TextsToRelate(Cutting):
    """`/relate`."""

    inputs: str | Several = Field(description=TEXTS)


class OpenAiTexts(Cutting):
    """`/v1/embeddings` and `/embeddings`; how to cut is ours, not OpenAI's."""

    model_config = ConfigDict(strict=True, extra="ignore", hide_input_in_errors=True)
    input: str | Several = Field(description=TEXTS)
    model: str | None = None
    encoding_format: Literal["float", "base64"] | None = None  # `float`; LiteLLM sends null
    dimensions: int | None = Field(None, description="a whole number from 1 to the size of the vectors")


class MaskParameters(Cutting):
    """Of filling masks."""

    targets: Annotated[list[str], Field(min_length=1, max_length=1000, fail_fast=True)] | None = Field(
        None, description="a list of 1 to 1000 words of the vocabulary"
    )
    top_k: int | None = Field(None, ge=1, le=1000, description="a whole number from 1 to 1000")


class TextsToFill(Body):
    """`/` for words under masks."""

    inputs: str | Several = Field(description=TEXTS)
    parameters: MaskParameters = MaskParameters()


class TextAndPair(Body):
    """A pair as pipelines of transformers take it."""

    text: str
    text_pair: str | None = None


class ClassParameters(Cutting):
    """Of classification."""

    function_to_apply: Literal["sigmoid", "softmax", "none"] | None = None
    top_k: int | None = Field(None, ge=1, description="a whole number from 1")


class TextsOfClasses(Body):
    """`/` for classes: a list is of texts, not a pair."""

    inputs: (
        str | Several | TextAndPair | Annotated[list[TextAndPair], Field(min_length=1, fail_fast=True)]
    ) = Field(description=TEXTS + ', or {"text": text, "text_pair": text}, or a list of these')
    parameters: ClassParameters = ClassParameters()


class TagParameters(Cutting):
    """Of entities, which the model's own scheme of tags joins from tokens: every strategy means that."""

    aggregation_strategy: Literal["simple", "first", "average", "max"] = Field(
        "simple", description='"simple", "first", "average" or "max": entities are given, not single tokens'
    )
    ignore_labels: list[str] = Field([], fail_fast=True, description="a list of labels")
    stride: None = Field(None, description="left out: a text is read in one row, up to the model's length")


class TextsToTag(Body):
    """`/` for entities."""

    inputs: str | Several = Field(description=TEXTS)
    parameters: TagParameters = TagParameters()


class QuestionAndContext(Body):
    """A question about a passage."""

    question: str
    context: str


AS_TUNED = "left out: passages are read as the model was tuned and scored"


class AnswerParameters(Cutting):
    """Of answers."""

    top_k: int = Field(1, ge=1, description="a whole number from 1")
    handle_impossible_answer: bool | None = None
    align_to_words: bool | None = None  # spans begin and end with whole pieces, which words are made of
    doc_stride: None = Field(None, description=AS_TUNED)
    max_answer_len: None = Field(None, description=AS_TUNED)
    max_question_len: None = Field(None, description=AS_TUNED)
    max_seq_len: None = Field(None, description=AS_TUNED)


class QuestionsToAnswer(Body):
    """`/` for answers."""

    inputs: QuestionAndContext | Annotated[list[QuestionAndContext], Field(min_length=1, fail_fast=True)] = (
        Field(description='{"question": text, "context": text}, or a list of these')
    )
    parameters: AnswerParameters = AnswerParameters()


def read(kind: type[B], body: dict[str, Any]) -> B:
    """The body as a route wants it.

    Raises:
        Refusal: 422, and which field is wrong.
    """
    try:
        return kind.model_validate(body)
    except ValidationError as error:
        # Of the errors of a union the first is of its first form; what is wanted is told of the whole field.
        raise _told(
            kind, error.errors(include_url=False, include_input=False, include_context=False)
        ) from None


TOLD_FIRST = ("extra_forbidden", "missing", "too_short")
"""Of several errors the one that says most: each form of a union has its own."""


def _told(kind: type[Body], errors: list[ErrorDetails]) -> Refusal:
    """What is said of a body's errors: the field, by its way through the objects, and what it is to be."""
    ranks = {name: rank for rank, name in enumerate(TOLD_FIRST)}
    first = min(errors, key=lambda one: ranks.get(one["type"], len(ranks)))
    place: type[Body] = kind
    names: list[str] = []
    described = ""
    for part in first["loc"]:
        field = place.model_fields.get(str(part))
        names.append(str(part))
        if field is None:
            break
        described = field.description or _plain(field.annotation)
        inner = field.annotation
        if not (isinstance(inner, type) and issubclass(inner, Body)):
            break
        place = inner
    name = ".".join(names)
    whole = len(names) == len(first["loc"])  # else the error is of one form of a union, of which none fits
    if first["type"] == "extra_forbidden" and whole:
        known = ", ".join(place.model_fields)
        return invalid("unknown_field", f"there is no field `{name}` here; known are {known}", field=name)
    if first["type"] == "missing" and whole:
        return invalid("missing_field", f"`{name}` is missing: {described}", field=name)
    if first["type"] == "too_short":
        return invalid("empty_input", f"`{name}` is empty; give {described}", field=name)
    return invalid("invalid_type", f"`{name}` is to be {described}", field=name)


def _plain(annotation: Any) -> str:
    """A type in words."""
    words = {str: "a text", bool: "true or false", int: "a whole number"}
    if annotation in words:
        return words[annotation]
    if isinstance(annotation, str):  # of a `Literal`
        return f'"{annotation}"'
    given = [one for one in getattr(annotation, "__args__", ()) if one is not type(None)]
    return " or ".join(map(_plain, given)) or "an object"
