"""`POST /`, as huggingface_hub's `InferenceClient(model=URL)` and pipelines ask: what is meant goes by
the head of the model and the form of the body (huggingface_hub 2.4.0)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import numpy as np

from albertine.inference.fill_mask import Guess
from albertine.inference.spans import LikelySpans
from albertine.serving import schemas
from albertine.serving.error_responses import invalid
from albertine.serving.model_tasks import Answerer, Kind
from albertine.serving.request_context import Visit
from albertine.serving.task_routes import choose, classes, embed, listed, relate, similarity

CANDIDATES = 5
"""For a mask, where nothing is said."""
LONGEST = 16_000_000
"""Characters of all filled texts of an answer."""
AT_ONCE = 100_000
"""Characters below which the way to another thread takes longer than to fill them in."""


async def root(visit: Visit) -> Any:
    """The answer of the head; a source sentence is always compared, and what only has vectors and masks fills
    those that it is shown."""
    tasks, body = visit.service.answerer.tasks, visit.body
    inputs, parameters = body.get("inputs"), body.get("parameters")
    if isinstance(parameters, dict) and "candidate_labels" in parameters:
        raise invalid(
            "not_for_this_model", "no model here classifies by labels of the request", able=[*tasks]
        )
    if isinstance(inputs, dict) and "source_sentence" in inputs:
        return await similarity(visit)
    if "options" in body and "inputs" not in body:  # those beside them are of Hugging Face's old API
        return await choose(visit)
    by_head = {"classify": _classify, "tag": _tag, "answer": _answer, "choose": choose, "relate": relate}
    if tasks[0] in by_head:
        return await by_head[tasks[0]](visit)
    masked = parameters is not None or any(
        isinstance(one, str) and visit.service.answerer.mask in one for one in listed(inputs)
    )
    if "fill-mask" in tasks and (masked or "embed" not in tasks):
        return await _fill(visit)
    return await embed(visit)


async def _classify(visit: Visit) -> Any:
    """Nested even for one text: clients take the first element."""
    asked = schemas.read(schemas.TextsOfClasses, visit.body)
    questions = [
        (one, None) if isinstance(one, str) else (one.text, one.text_pair) for one in listed(asked.inputs)
    ]
    logits = await visit.ask(Kind("classify"), questions, asked.parameters)
    found = classes(visit, np.stack(logits), asked.parameters.function_to_apply)
    return [row[: asked.parameters.top_k] for row in found]


async def _tag(visit: Visit) -> Any:
    """Entities; the score is null where a random field decodes whole sequences."""
    asked = schemas.read(schemas.TextsToTag, visit.body)
    texts, ignored = listed(asked.inputs), frozenset(asked.parameters.ignore_labels)
    found = []
    for text, (entities, sure) in zip(
        texts, await visit.ask(Kind("tag"), texts, asked.parameters), strict=True
    ):
        scores = sure or [None] * len(entities)
        found.append(
            [
                {"entity_group": name, "score": score, "word": text[a:b], "start": a, "end": b}
                for (name, a, b), score in zip(entities, scores, strict=True)
                if name not in ignored
            ]
        )
    return found[0] if isinstance(asked.inputs, str) else found


async def _answer(visit: Visit) -> Any:
    """One answer, or a list of `top_k`; for a list of questions a list of that."""
    asked = schemas.read(schemas.QuestionsToAnswer, visit.body)
    questions = [(one.question, one.context) for one in listed(asked.inputs)]
    said = await visit.ask(Kind("answer"), questions, asked.parameters)
    threshold = (
        1.0 if asked.parameters.handle_impossible_answer is False else visit.service.answerer.threshold
    )
    found = [
        _spans(likely, passage, threshold, asked.parameters.top_k)
        for likely, (_, passage) in zip(said, questions, strict=True)
    ]
    shown = [one[0] if asked.parameters.top_k == 1 else one for one in found]
    return shown if isinstance(asked.inputs, list) else shown[0]


def _spans(likely: LikelySpans, passage: str, threshold: float, count: int) -> list[dict[str, Any]]:
    """The likeliest spans; an empty one first where the model finds that the passage does not answer."""
    spans = [
        {"answer": passage[a:b], "score": score, "start": a, "end": b}
        for (a, b), score in likely.spans.items()
    ]
    if likely.best(threshold) is None:
        spans.insert(0, {"answer": "", "score": likely.no_answer or 0.0, "start": 0, "end": 0})
    return spans[:count]


async def _fill(visit: Visit) -> Any:
    """Candidates for a mask; for several masks, or several texts, a list of that."""
    asked = schemas.read(schemas.TextsToFill, visit.body)
    visit.service.needs("fill-mask")
    texts, answerer = listed(asked.inputs), visit.service.answerer
    targets, among, service = asked.parameters.targets, None, visit.service
    if targets is not None:
        tokenizer, size = answerer.predictor.tokenizer, sum(map(len, targets))
        among = await service.run(lambda _: _ids(tokenizer, targets), size, visit.gone, service.deadline)
    top = asked.parameters.top_k or (CANDIDATES if targets is None else len(targets))
    size = _size(answerer, texts, top if among is None else min(top, len(among)))
    said = await visit.ask(Kind("fill-mask"), [(text, top, among) for text in texts], asked.parameters)

    def filled() -> list[Any]:
        return [_filled(answerer, text, masks) for text, masks in zip(texts, said, strict=True)]

    found = filled() if size < AT_ONCE else await asyncio.to_thread(filled)
    return found[0] if isinstance(asked.inputs, str) else found


def _size(answerer: Answerer, texts: Sequence[str], top: int) -> int:
    """At most how many characters the filled texts of an answer have together.

    Raises:
        Refusal: too many.
    """
    top = min(top, answerer.predictor.tokenizer.vocab_size)
    most = answerer.limit("fill-mask")
    size = sum(min(most, text.count(answerer.mask)) * top * len(text) for text in texts)
    if size > LONGEST:
        raise invalid(
            "batch_too_large",
            f"the filled texts would have {size:,} characters, and the server gives {LONGEST:,}; "
            "ask for a smaller top_k, or about fewer masks",
            limit=LONGEST,
        )
    return size


def _filled(answerer: Answerer, text: str, masks: Sequence[Sequence[Guess]]) -> list[Any]:
    """The candidates for the mask of a text, or for each of several."""
    tokenizer, mask = answerer.predictor.tokenizer, answerer.mask
    parts, found = text.split(mask), []
    for place, guesses in enumerate(masks, 1):
        before, behind = mask.join(parts[:place]), mask.join(parts[place:])
        words = [tokenizer.decode([guess.token_id], skip_special=False) for guess in guesses]
        found.append(
            [
                {
                    "score": guess.probability,
                    "token": guess.token_id,
                    "token_str": word,
                    "sequence": before + word + behind,
                }
                for guess, word in zip(guesses, words, strict=True)
            ]
        )
    return found[0] if len(found) == 1 else found


def _ids(tokenizer: Any, targets: Sequence[str]) -> frozenset[int]:
    """The ids of words of the vocabulary.

    Raises:
        Refusal: one is no piece of it.
    """
    found = set()
    for word in targets:
        ids = tokenizer.encode(word)
        if len(ids) != 1 or ids[0] in tokenizer.special_ids:
            raise invalid("unknown_target", f"`{word}` is not one piece of the vocabulary", field="targets")
        found.add(ids[0])
    return frozenset(found)
