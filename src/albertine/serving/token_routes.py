"""Routes of token vectors, sparse vectors and decoding, with the paths and shapes of
text-embeddings-inference (`router/src/http/types.rs`)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from albertine.inference.token_outputs import SparseVector
from albertine.serving import schemas
from albertine.serving.model_tasks import BatchKey
from albertine.serving.request_context import RequestContext
from albertine.tasks.http.base import listed
from albertine.tasks.http.errors import invalid

AT_ONCE = 20_000
"""Numbers below which starting another thread takes longer than to make them Python's."""
LARGEST = 1_000_000
"""Most weights of a response, some 40 MB of JSON."""


async def embed_all(context: RequestContext) -> Any:
    """`/embed_all`: the last state of every token of every text, special tokens included, not normalized."""
    request = schemas.read(schemas.TextsToEmbedByToken, context.body)
    context.service.check_view("token-vectors")
    found: list[NDArray[np.float32]] = await context.answer(
        BatchKey("token-vectors"), listed(request.inputs), request
    )
    return await _converted(lambda: [own.tolist() for own in found], sum(own.size for own in found))


async def embed_sparse(context: RequestContext) -> Any:
    """`/embed_sparse`: for every text the weights of tokens of the vocabulary that are not zero."""
    request = schemas.read(schemas.TextsToEmbedByToken, context.body)
    context.service.check_view("sparse-vectors")
    found: list[SparseVector] = await context.answer(
        BatchKey("sparse-vectors"), listed(request.inputs), request
    )
    size = sum(len(one.ids) for one in found)
    if size > LARGEST:
        raise invalid(
            "batch_too_large",
            f"the texts have {size:,} weights that are not zero, and the server gives {LARGEST:,}; send "
            "fewer texts",
            limit=LARGEST,
        )
    return await _converted(lambda: list(map(_weights, found)), size)


def _weights(one: SparseVector) -> list[dict[str, Any]]:
    pairs = zip(one.ids.tolist(), one.weights.tolist(), strict=True)
    return [{"index": index, "value": value} for index, value in pairs]


async def _converted(convert: Callable[[], Any], numbers: int) -> Any:
    return convert() if numbers < AT_ONCE else await asyncio.to_thread(convert)


async def decode(context: RequestContext) -> Any:
    """`/decode`: the text of every list of token ids."""
    request, service = schemas.read(schemas.IdsToDecode, context.body), context.service
    rows: list[list[int]] = (
        [request.ids] if isinstance(request.ids[0], int) else request.ids  # type: ignore[list-item,assignment]
    )
    context.inputs, size = len(rows), sum(map(len, rows))
    service.check_size(inputs=len(rows), tokens=size)
    tokenizer = service.model.predictor.tokenizer
    _check_ids(rows, tokenizer.vocab_size)

    def texts(check: Callable[[], None]) -> list[str]:
        found = []
        for row in rows:
            check()
            found.append(tokenizer.decode(row, skip_special=request.skip_special_tokens))
        return found

    return await service.run(texts, size, context.gone, service.deadline)


def _check_ids(rows: Sequence[Sequence[int]], vocabulary: int) -> None:
    """
    Raises:
        HttpError: an id is not one of the vocabulary.
    """
    for index, row in enumerate(rows):
        for one in row:
            if not 0 <= one < vocabulary:
                raise invalid(
                    "unknown_token",
                    f"`ids` holds a number that is no id of this vocabulary, 0 to {vocabulary - 1}",
                    field="ids",
                    index=index,
                )


ROUTES: dict[str, Callable[[RequestContext], Awaitable[Any]]] = {
    "/embed_all": embed_all,
    "/embed_sparse": embed_sparse,
    "/decode": decode,
}
"""All of them."""
