"""`/v1/embeddings`, `/embeddings` and `/v1/models`, as OpenAI's clients ask (openai 3.54.0)."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np

from albertine.serving import schemas
from albertine.serving.error_responses import Refusal, invalid
from albertine.serving.request_context import Visit
from albertine.serving.task_routes import listed, vectors


async def embeddings(visit: Visit) -> Any:
    """Vectors of length 1, as numbers or as base64 of little-endian float32."""
    _no_ids(visit.body.get("input"))
    asked = schemas.read(schemas.OpenAiTexts, visit.body)
    if asked.model:
        _check(visit, asked.model)
    found = await vectors(visit, listed(asked.input), asked, normalize=True, dimensions=asked.dimensions)
    base = asked.encoding_format == "base64"
    data = [
        {
            "object": "embedding",
            "index": i,
            "embedding": base64.b64encode(row.astype("<f4").tobytes()).decode() if base else row.tolist(),
        }
        for i, row in enumerate(np.ascontiguousarray(found))
    ]
    usage = {"prompt_tokens": visit.tokens, "total_tokens": visit.tokens}
    return {"object": "list", "data": data, "model": visit.service.answerer.name, "usage": usage}


async def models(visit: Visit) -> Any:
    """`/v1/models`: the one that is served."""
    return {"object": "list", "data": [_model(visit)]}


async def model(visit: Visit) -> Any:
    """`/v1/models/NAME`."""
    _check(visit, visit.body["name"])
    return _model(visit)


def _model(visit: Visit) -> dict[str, Any]:
    # When it was created no folder tells.
    return {"id": visit.service.answerer.name, "object": "model", "created": 0, "owned_by": "albertine"}


def _check(visit: Visit, asked: str) -> None:
    """That the model is asked for by its name.

    Raises:
        Refusal: 404, by another.
    """
    name = visit.service.answerer.name
    if asked != name:
        raise Refusal(404, "model_not_found", f"there is no model `{asked}`; there is `{name}`")


def _no_ids(given: Any) -> None:
    """Token ids are those of another vocabulary and would give vectors of some other text, silently."""
    first = given[0] if isinstance(given, list) and given else None
    if isinstance(first, list) and first:
        first = first[0]
    if isinstance(first, int):
        raise invalid(
            "token_ids",
            "`input` holds token ids, which mean other pieces here; send texts "
            "(with langchain-openai: OpenAIEmbeddings(check_embedding_ctx_length=False))",
            field="input",
        )
