"""Routes of the views (`albertine.serving.views`): facts of the model, sentence order, analysis of texts."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import numpy as np

from albertine.inference.exported_model import ExportedModel
from albertine.model.config import EncoderConfig
from albertine.serving import schemas
from albertine.serving.model_tasks import BatchKey, ServedModel
from albertine.serving.request_context import RequestContext
from albertine.serving.views import LensView
from albertine.tasks.http.base import Truncation, listed
from albertine.tokenizers.base import Tokenizer

CARD, CARD_CHARACTERS = "README.md", 200_000
LANGUAGE = re.compile(r"^language:\s*(?:\[|\n\s*-)?\s*['\"]?([a-z]{2})\b", re.MULTILINE)
"""The first language in the front matter of a card."""
CHINESE = re.compile(r"[\u4e00-\u9fff]")
CHINESE_SHARE = 0.15
"""Share of tokens with Chinese characters above which a vocabulary counts as Chinese."""


async def sentence_order(context: RequestContext) -> Any:
    """`/sentence-order`: the probability that two passages are in their original order."""
    request = schemas.read(schemas.TwoPassages, context.body)
    [score] = await _answer(context, "sentence-order", (request.first, request.second))
    model = context.service.model.predictor.model
    assert not isinstance(model, ExportedModel)  # which has no views
    return {"score": score, "objective": model.sentence_objective}


async def lens(context: RequestContext) -> Any:
    """`/analyze/lens`: the guesses at masks at every depth; without a mask, at every token."""
    request = schemas.read(schemas.TextOfLens, context.body)
    [found] = await _answer(context, "lens", (request.inputs, request.top_k))
    view = context.service.model.task("lens")
    assert isinstance(view, LensView)
    return await asyncio.to_thread(view.as_json, found)


async def attention(context: RequestContext) -> Any:
    """`/analyze/attention`: the attention weights of every layer and head, with four decimals."""
    request = schemas.read(schemas.TextOfAttention, context.body)
    [found] = await _answer(context, "attention", request.inputs)
    return {
        name: value if isinstance(value, list) else np.round(value.astype(np.float32), 4)
        for name, value in found.items()
    }


async def layers(context: RequestContext) -> Any:
    """`/analyze/layers`: statistics of the states of every layer over texts."""
    request = schemas.read(schemas.TextsOfLayers, context.body)
    [found] = await _answer(context, "layers", tuple(listed(request.inputs)))
    return {name: value for name, value in found.items() if name not in ("model", "cut")}


async def model_facts(context: RequestContext) -> Any:
    """`/analyze/model`: sharing plan, sizes, card, and the views that the model has."""
    model = context.service.model
    if model.facts is None:  # the first time it takes some tens of milliseconds
        model.facts = await asyncio.to_thread(_facts, model)
    return model.facts


async def _answer(context: RequestContext, view: str, question: Any) -> list[Any]:
    context.service.check_view(view)
    return await context.answer(BatchKey(view), [question], Truncation(truncate=False))


def _facts(model: ServedModel) -> dict[str, Any]:
    from albertine.model.sharing import sharing_in_words

    predictor = model.predictor
    config, plan = predictor.model.config, predictor.model.config.plan
    front, card = _card(predictor.path)
    return {
        "name": model.name,
        "language": front or _language(predictor.tokenizer),
        "tasks": list(model.tasks),
        "views": model.views,
        "pairs": getattr(model.family, "pairs", None),
        "mask": model.mask,
        "plan": {
            "attention": list(plan.attention),
            "feed_forward": list(plan.feed_forward),
            "description": sharing_in_words(plan),
        },
        "sizes": {
            "layers": plan.depth,
            "hidden": config.hidden_size,
            "embedding": config.embedding_size,
            "heads": config.num_attention_heads,
            "feed_forward": config.intermediate_size,
            "vocabulary": config.vocab_size,
            "positions": config.max_position_embeddings,
        },
        "costs": None if isinstance(predictor.model, ExportedModel) else _costs(config),
        "card": card,
    }


def _costs(config: EncoderConfig) -> dict[str, Any]:
    """Parameters by part, operations per token and bytes, of the encoder with all pretraining heads."""
    from albertine.analysis.parameters import report

    most = config.max_sequence_length
    found = report(config, tuple(n for n in (128, 512) if most is None or n <= most) or (most or 1,))
    return {
        "parameters": found.parts,
        "total": found.everything,
        "inference_flops_per_token": found.inference_flops,
        "memory_bytes": found.memory,
    }


def _card(folder: Path) -> tuple[str | None, str | None]:
    """The language in the front matter of a card, and its text without front matter and comments."""
    try:
        text = (folder / CARD).read_text(encoding="utf-8", errors="replace")[:CARD_CHARACTERS]
    except OSError:
        return None, None
    front = ""
    if text.startswith("---\n") and (end := text.find("\n---\n", 3)) > 0:
        front, text = text[:end], text[end + 5 :]
    language = LANGUAGE.search(front)
    return language and language[1], re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL).strip()


def _language(tokenizer: Tokenizer) -> str:
    """The language of a vocabulary, `en` or `zh`."""
    size = tokenizer.vocab_size
    chinese = sum(CHINESE.search(tokenizer.id_to_piece(i)) is not None for i in range(size))
    return "zh" if chinese > CHINESE_SHARE * size else "en"


ROUTES: dict[str, Callable[[RequestContext], Awaitable[Any]]] = {
    "/sentence-order": sentence_order,
    "/analyze/lens": lens,
    "/analyze/attention": attention,
    "/analyze/layers": layers,
}
"""Those with a body."""
