"""Schemas of responses, for the OpenAPI document: those of every model, of views and of errors. Those of a
task stand beside its family, in `albertine.tasks.http`."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from albertine.tasks.http.base import Answer

Numbers = list[float]


class Weight(Answer):
    """The weight of a token of the vocabulary."""

    index: int
    value: float


class Candidate(Answer):
    """A token for a mask."""

    score: float
    token: int
    token_str: str
    sequence: str


class Token(Answer):
    """A token and its characters; null for a special one."""

    id: int
    text: str
    special: bool
    start: int | None
    stop: int | None


class Embedding(Answer):
    """A vector; with `encoding_format` base64 the bytes of little-endian float32."""

    object: Literal["embedding"]
    index: int
    embedding: Numbers | str


class Usage(Answer):
    """Tokens that were computed, special tokens included."""

    prompt_tokens: int
    total_tokens: int


class Embeddings(Answer):
    """Vectors as OpenAI gives them."""

    object: Literal["list"]
    data: list[Embedding]
    model: str
    usage: Usage


class OpenAiModel(Answer):
    """A model as OpenAI lists it."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    sha: str = Field(description="digest of its configuration and weights")
    tasks: list[str]


class OpenAiDeleted(Answer):
    """A model that was unloaded."""

    id: str
    object: Literal["model"]
    deleted: Literal[True]


class OpenAiModels(Answer):
    """The models of the server."""

    object: Literal["list"]
    data: list[OpenAiModel]


class Info(Answer):
    """Model and limits."""

    model_id: str
    model_sha: str
    model_dtype: str
    model_type: dict[str, Any] = Field(description="by task: pooling, or the names of the classes")
    max_concurrent_requests: int
    max_input_length: int
    max_batch_tokens: int
    max_client_batch_size: int
    auto_truncate: bool
    lists: dict[str, str]
    version: str


class Health(Answer):
    """Whether the model answers."""

    status: Literal["ready", "degraded"]


class SentenceOrder(Answer):
    """The probability that two passages are in their order."""

    score: float
    objective: str | None


class LensGuess(Answer):
    """A token and its probability."""

    token_str: str
    token: int
    score: float


class LensPosition(Answer):
    """The guesses for a position at every depth."""

    place: int
    answer: str | None
    probability: Numbers | None
    guesses: list[list[LensGuess]]


class Lens(Answer):
    """Guesses of the masked-LM head over depth."""

    tokens: list[str]
    layers: int
    depths: list[int]
    positions: list[LensPosition]


class Attention(Answer):
    """Attention weights by layer, head, token and token."""

    tokens: list[str]
    blocks: list[int]
    weights: list[list[list[Numbers]]]
    entropy: list[Numbers]
    distance: list[Numbers]
    similarity: list[Numbers]


class Estimate(Answer):
    """By layer the mean over texts and its interval; null where it is not defined."""

    mean: list[float | None]
    low: list[float | None]
    high: list[float | None]


class Layers(Answer):
    """What each layer does to the states of texts."""

    texts: int
    tokens: int
    zero_start: bool
    distance: Estimate
    cosine: Estimate
    angle: Estimate
    norm: Estimate
    anisotropy: Estimate
    effective_rank: Estimate
    curvature: Estimate
    cka: list[list[float | None]]
    cka_tokens: int


class ModelFacts(Answer):
    """Facts of the model."""

    name: str
    language: str
    tasks: list[str]
    views: dict[str, str | None] = Field(description="why the model does not have it; null: it does")
    pairs: bool | None
    mask: str
    plan: dict[str, Any]
    sizes: dict[str, int]
    costs: dict[str, Any] | None
    card: str | None


class Error(Answer):
    """An error."""

    error: str
    error_type: str
    code: str
    details: dict[str, Any]
    request_id: str


class OpenAiErrorBody(Answer):
    """An error in OpenAI's form."""

    message: str
    type: str
    param: str | None
    code: str


class OpenAiError(Answer):
    """An error on `/v1/*`."""

    error: OpenAiErrorBody
    request_id: str
