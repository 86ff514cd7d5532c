"""Request bodies of the routes of every model, and the check of a body by its schema. Unknown fields are
errors on native routes, so that a misspelt one has no silent effect; those of OpenAI's clients are ignored.
Bodies of a task stand beside its family, in `albertine.tasks.http`."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

from pydantic import ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from albertine.serving.views import TEXTS as TEXTS_AT_ONCE
from albertine.tasks.http.base import TEXTS, Body, Several, Truncation
from albertine.tasks.http.errors import HttpError, invalid

B = TypeVar("B", bound=Body)


class TextsToEmbed(Truncation):
    """`/embed`, and `/` for vectors."""

    inputs: str | Several = Field(description=TEXTS)
    normalize: bool = True
    dimensions: int | None = Field(None, description="a whole number from 1 to the size of the vectors")
    prompt_name: None = Field(None, description="left out: this folder has no prompts")
    encoding_format: Any = None  # numbers are always given, since huggingface_hub reads nothing else


class TextsToEmbedByToken(Truncation):
    """`/embed_all` and `/embed_sparse`."""

    inputs: str | Several = Field(description=TEXTS)
    prompt_name: None = Field(None, description="left out: this folder has no prompts")


TokenIds = Annotated[list[int], Field(min_length=1, fail_fast=True)]


class IdsToDecode(Body):
    """`/decode`."""

    ids: TokenIds | Annotated[list[TokenIds], Field(min_length=1, fail_fast=True)] = Field(
        description="a list of token ids, or a list of such lists"
    )
    skip_special_tokens: bool = True


class SourceAndSentences(Body):
    """A text, and the texts to compare it with."""

    source_sentence: str
    sentences: Several = Field(description="a list of texts")


class SimilarityParameters(Truncation):
    """`parameters` of `/similarity`."""

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


class OpenAiTexts(Truncation):
    """`/v1/embeddings` and `/embeddings`; how to cut is ours, not OpenAI's."""

    model_config = ConfigDict(strict=True, extra="ignore", hide_input_in_errors=True)
    input: str | Several = Field(description=TEXTS)
    model: str | None = None
    encoding_format: Literal["float", "base64"] | None = None  # `float`; LiteLLM sends null
    dimensions: int | None = Field(None, description="a whole number from 1 to the size of the vectors")


class MaskParameters(Truncation):
    """`parameters` of filling masks."""

    targets: Annotated[list[str], Field(min_length=1, max_length=1000, fail_fast=True)] | None = Field(
        None, description="a list of 1 to 1000 words of the vocabulary"
    )
    top_k: int | None = Field(None, ge=1, le=1000, description="a whole number from 1 to 1000")


class TextsToFill(Body):
    """`/` for words under masks."""

    inputs: str | Several = Field(description=TEXTS)
    parameters: MaskParameters = MaskParameters()


class ModelToLoad(Body):
    """`PUT /v1/models/NAME`."""

    model: str = Field(
        min_length=1, description="a folder on the server, a released model, or OWNER/NAME of the hub"
    )


class TwoPassages(Body):
    """`/sentence-order`."""

    first: str
    second: str


class TextOfLens(Body):
    """`/analyze/lens`."""

    inputs: str
    top_k: int = Field(5, ge=1, le=20, description="a whole number from 1 to 20")


class TextOfAttention(Body):
    """`/analyze/attention`."""

    inputs: str


class TextsOfLayers(Body):
    """`/analyze/layers`."""

    inputs: str | Annotated[list[str], Field(min_length=1, max_length=TEXTS_AT_ONCE, fail_fast=True)] = Field(
        description=f"a text, or a list of 1 to {TEXTS_AT_ONCE} texts"
    )


def read(kind: type[B], body: dict[str, Any]) -> B:
    """A body by the schema of its route.

    Raises:
        HttpError: 422, and which field is wrong.
    """
    try:
        return kind.model_validate(body)
    except ValidationError as error:
        # The first error of a union is that of its first form; the message describes the whole field.
        raise _error_of(
            kind, error.errors(include_url=False, include_input=False, include_context=False)
        ) from None


MOST_SPECIFIC = ("extra_forbidden", "missing", "too_short")
"""Types of errors that are reported first: each form of a union has its own errors."""


def _error_of(kind: type[Body], errors: list[ErrorDetails]) -> HttpError:
    """The error of a body: the path of the field, and what it must be."""
    ranks = {name: rank for rank, name in enumerate(MOST_SPECIFIC)}
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
