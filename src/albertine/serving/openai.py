"""`/v1/embeddings` and `/embeddings`, as OpenAI's clients ask (reference serving.md, 2.1 and 2.2)."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np

from albertine.serving import bodies
from albertine.serving.bodies import Cutting
from albertine.serving.native import listed, vectors
from albertine.serving.refusal import Refusal, invalid
from albertine.serving.visit import Visit


async def embeddings(visit: Visit) -> Any:
    """Vectors of length 1, as numbers or as base64 of little-endian float32."""
    _no_ids(visit.body.get("input"))
    asked = bodies.read(bodies.OpenAiTexts, visit.body)
    name = visit.service.answerer.name
    if asked.model not in (None, "", name):
        raise Refusal(404, "model_not_found", f"there is no model `{asked.model}`; there is `{name}`")
    found = await vectors(visit, listed(asked.input), Cutting(), normalize=True, dimensions=asked.dimensions)
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
    return {"object": "list", "data": data, "model": name, "usage": usage}


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
