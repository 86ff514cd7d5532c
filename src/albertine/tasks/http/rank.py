"""`/rerank`: texts in the order of their scores for a query, for cross-encoders and for text vectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import Field

from albertine.tasks.http.base import JSON, Answer, Several, Truncation
from albertine.tasks.http.errors import invalid


class TextsToRank(Truncation):
    """`/rerank`, as text-embeddings-inference and LlamaIndex (`texts`) or Cohere and Infinity (`documents`)
    send it."""

    query: str
    texts: Several | None = Field(None, description="a list of texts")
    # None is not False: a score is on the scale of its labels, and need not be a logit.
    raw_scores: bool | None = Field(None, description="true, or false for scores from 0 to 1")
    return_text: bool = False
    documents: Several | None = Field(None, description="a list of texts")
    top_n: int | None = Field(None, ge=1, description="a whole number from 1")
    return_documents: bool = False
    model: str | None = None


EXAMPLE = {"query": "Who wrote Faust?", "texts": ["It was Goethe.", "It rained."], "return_text": True}


class RankedText(Answer):
    """A text by its number in the request."""

    index: int
    score: float
    text: str | None = None


class RankedDocument(Answer):
    """The same for Cohere's clients."""

    index: int
    relevance_score: float
    document: str | None = None


class RankedDocuments(Answer):
    """The response to `documents`."""

    results: list[RankedDocument]


Ranking = list[RankedText] | RankedDocuments


def texts_to_rank(request: TextsToRank) -> list[str]:
    """The texts of a request, under either name.

    Raises:
        HttpError: both names, or neither.
    """
    if request.documents is not None and request.texts is not None:
        raise invalid(
            "conflicting_fields",
            "`texts` and `documents` are two names of one list, and both are here; send one of them",
            field="documents",
        )
    texts = request.texts if request.documents is None else request.documents
    if texts is None:
        raise invalid("missing_field", "`texts` is missing: a list of texts", field="texts")
    return texts


def ranking(request: TextsToRank, raw: Sequence[float], scores: Sequence[float]) -> JSON:
    """The response: the best text first, of equal ones in the order of the request.

    Args:
        raw: the numbers to sort by. scores: those to return.
    """
    texts, cohere = texts_to_rank(request), request.documents is not None
    order = sorted(range(len(texts)), key=lambda i: -raw[i])[: request.top_n]
    score, text = ("relevance_score", "document") if cohere else ("score", "text")
    rows: list[dict[str, Any]] = [{"index": i, score: scores[i]} for i in order]
    if request.return_text or request.return_documents:
        rows = [{**row, text: texts[i]} for i, row in zip(order, rows, strict=True)]
    return {"results": rows} if cohere else rows
