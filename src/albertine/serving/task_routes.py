"""The routes that text-embeddings-inference has too, under its names, and ours for what it lacks: `/choose`
and `/relate`. Shapes: huggingface/text-embeddings-inference, `router/src/http/types.rs`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from albertine import __version__
from albertine.inference.embedding import cosines, normalize_rows
from albertine.inference.probabilities import sigmoid, softmax
from albertine.serving import schemas
from albertine.serving.error_responses import Refusal, invalid
from albertine.serving.model_tasks import ROW, Kind
from albertine.serving.request_context import Visit
from albertine.serving.schemas import Cutting
from albertine.tokenizers.base import Spans, Tokenizer

Scored = list[dict[str, Any]]


def listed(texts: Any) -> list[Any]:
    """One as a list of one."""
    return texts if isinstance(texts, list) else [texts]


async def vectors(
    visit: Visit, texts: Sequence[str], how: Cutting, *, normalize: bool, dimensions: int | None
) -> NDArray[np.float32]:
    """A vector for every text, (texts, H), or so many of its first numbers, of length 1 again if wanted."""
    visit.service.needs("embed")
    found = np.stack(await visit.ask(Kind("embed", normalize), texts, how))
    if dimensions is None:
        return found
    if not 1 <= dimensions <= found.shape[1]:
        raise invalid(
            "invalid_dimensions",
            f"`dimensions` is to be a whole number from 1 to {found.shape[1]}",
            field="dimensions",
            limit=found.shape[1],
        )
    if dimensions < found.shape[1]:
        visit.headers["x-warning"] = "this model was not trained for vectors that are cut"
    return normalize_rows(found[:, :dimensions]) if normalize else found[:, :dimensions]


async def embed(visit: Visit) -> Any:
    """`/embed`: always a list of vectors."""
    asked = schemas.read(schemas.TextsToEmbed, visit.body)
    texts = listed(asked.inputs)
    found = await vectors(visit, texts, asked, normalize=asked.normalize, dimensions=asked.dimensions)
    return found.tolist()


async def predict(visit: Visit) -> Any:
    """`/predict`: classes, the likeliest first; flat for a text or a pair, a list of lists for a batch."""
    asked = schemas.read(schemas.TextsToClassify, visit.body)
    visit.service.needs("classify")
    given = asked.inputs
    single = isinstance(given, str) or isinstance(given[0], str)
    rows = [listed(given)] if single else list(given)
    questions = [(row[0], row[1] if len(row) > 1 else None) for row in rows]
    paired = next((i for i, (_, second) in enumerate(questions) if second is not None), None)
    if paired is not None and visit.service.answerer.classifier.pairs is False:
        raise invalid(
            "not_answerable",
            "a list of two texts is a pair, and the model was tuned with single texts. Write each in a list "
            'of its own, [["one"], ["two"]]; or ask at `/`, where a list is of several texts',
            index=paired,
        )
    logits = await visit.ask(Kind("classify"), questions, asked)
    found = classes(visit, np.stack(logits), "none" if asked.raw_scores else None)
    return found[0] if single else found


def classes(visit: Visit, logits: NDArray[Any], function: str | None) -> list[Scored]:
    """Labels and scores of every row, the likeliest first; of equal ones in the order of the classes.

    Args:
        function: `softmax`, `sigmoid` or `none` of logits; None: as the model was tuned.
    """
    family = visit.service.answerer.classifier
    if function is None:
        table = family.values(logits)
    else:
        table = {"softmax": softmax, "sigmoid": sigmoid}.get(function, np.asarray)(logits).tolist()
    names = family.labels or ("score",)
    pairs = [sorted(zip(names, row, strict=True), key=lambda one: -one[1]) for row in table]
    return [[{"label": name, "score": score} for name, score in row] for row in pairs]


async def rerank(visit: Visit) -> Any:
    """`/rerank`: by the score that the model gives to query and text as a pair, else by the cosine of their
    vectors; the best first, of equal ones in the order given. Of a score that is not to be raw its sigmoid
    is told, and the texts themselves where either form's word asks for them."""
    asked = schemas.read(schemas.TextsToRank, visit.body)
    cohere = asked.documents is not None
    if cohere and asked.texts is not None:
        raise invalid(
            "conflicting_fields",
            "`texts` and `documents` are two names of one list, and both are here; send one of them",
            field="documents",
        )
    texts = asked.documents if cohere else asked.texts
    if texts is None:
        raise invalid("missing_field", "`texts` is missing: a list of texts", field="texts")
    raw, scores = await _scores(visit, asked.query, texts, asked)
    order = sorted(range(len(texts)), key=lambda i: -raw[i])[: asked.top_n]
    score, text = ("relevance_score", "document") if cohere else ("score", "text")
    told: Scored = [{"index": i, score: scores[i]} for i in order]
    if asked.return_text or asked.return_documents:
        told = [{**one, text: texts[one["index"]]} for one in told]
    return {"results": told} if cohere else told


async def _scores(
    visit: Visit, query: str, texts: Sequence[str], how: schemas.TextsToRank
) -> tuple[list[float], list[float]]:
    """The scores to rank by, and those to tell."""
    service = visit.service
    if "classify" in service.answerer.tasks and not service.answerer.classifier.labels:
        pairs = [(query, text) for text in texts]
        logits = np.stack(await visit.ask(Kind("classify"), pairs, how))[:, 0]
        # Not by its sigmoid, by which large scores are equal.
        return logits.tolist(), (sigmoid(logits) if how.raw_scores is False else logits).tolist()
    if "classify" in service.answerer.tasks:
        raise invalid(
            "not_for_this_model", "this model tells classes, and no score to rank by", wanted="rerank"
        )
    found = await _cosines(visit, query, texts, how, field="query")
    return found, found


async def _cosines(
    visit: Visit, source: str, texts: Sequence[str], how: Cutting, *, field: str
) -> list[float]:
    """The cosine of a text, which was sent as `field`, with each of others."""
    # The source last: errors name a text by its number in the list that was sent.
    try:
        found = await vectors(visit, [*texts, source], how, normalize=True, dimensions=None)
    except Refusal as error:
        if error.details.get("index") == len(texts):
            del error.details["index"]
            error.details["field"] = field
            error.message = error.message.replace(f"input {len(texts)} ", f"`{field}` ")
        raise
    return list(cosines(found[-1:], found[:-1])[0].tolist())


async def similarity(visit: Visit) -> Any:
    """`/similarity`: the cosine of one text with each of others."""
    asked = schemas.read(schemas.TextsToCompare, visit.body)
    one, others = asked.inputs.source_sentence, asked.inputs.sentences
    return await _cosines(visit, one, others, asked.parameters, field="inputs.source_sentence")


async def choose(visit: Visit) -> Any:
    """`/choose`: options and how likely each is to fit, the best first."""
    asked = schemas.read(schemas.OptionsToChoose, visit.body)
    visit.service.needs("choose")
    question = (asked.passage, asked.question, tuple(asked.options))
    [chances] = await visit.ask(Kind("choose"), [question], asked)
    order = sorted(range(len(chances)), key=lambda i: -chances[i])
    return [{"index": i, "option": asked.options[i], "score": chances[i]} for i in order]


async def relate(visit: Visit) -> Any:
    """`/relate`: subject, predicate and object, with their places; of a list a list for each text."""
    asked = schemas.read(schemas.TextsToRelate, visit.body)
    visit.service.needs("relate")
    texts = listed(asked.inputs)
    found = [
        [
            {
                part: {"text": text[slice(*place)], "start": place[0], "end": place[1]}
                for part, place in (("subject", one.subject), ("object", one.object))
            }
            | {"predicate": one.predicate}
            for one in relations
        ]
        for text, relations in zip(texts, await visit.ask(Kind("relate"), texts, asked), strict=True)
    ]
    return found[0] if isinstance(asked.inputs, str) else found


async def tokenize(visit: Visit) -> Any:
    """`/tokenize`: the tokens of every text as the model reads it alone, uncut."""
    asked, service = schemas.read(schemas.TextsToCut, visit.body), visit.service
    texts = listed(asked.inputs)
    visit.inputs, size = len(texts), sum(map(len, texts))
    service.takes(inputs=len(texts), characters=size)

    def cut(check: Callable[[], None]) -> list[Scored]:
        answerer, tokens = service.answerer, 0
        for text in texts:
            tokens += answerer.tokens(text)
            service.takes(tokens=tokens)  # before the places, which take most of the time
            check()
        found: list[Scored] = []
        for text in texts:
            spans = answerer.spans(text)
            found.append(_tokens(answerer.predictor.tokenizer, spans, asked.add_special_tokens))
            check()
        return found

    return await service.run(cut, size + ROW * len(texts), visit.gone, service.deadline)


def _tokens(tokenizer: Tokenizer, spans: Spans, special: bool) -> Scored:
    own = [
        {"id": i, "text": tokenizer.id_to_piece(i), "special": False, "start": a, "stop": b}
        for i, a, b in zip(*spans, strict=True)
    ]
    if not special:
        return own
    ids, _ = tokenizer.layout(spans.ids)
    marks = [
        {"id": i, "text": tokenizer.id_to_piece(i), "special": True, "start": None, "stop": None}
        for i in (*ids[: tokenizer.lead], *ids[tokenizer.lead + len(own) :])
    ]
    return [*marks[: tokenizer.lead], *own, *marks[tokenizer.lead :]]


async def info(visit: Visit) -> Any:
    """`/info`: what this server is and what it takes in."""
    service, answerer = visit.service, visit.service.answerer
    kind: dict[str, Any] = {task: {} for task in answerer.tasks}
    if "embed" in kind:
        kind["embedding"] = {"pooling": answerer.predictor.embedder.how.pooling}
    if "classify" in kind:
        labels = answerer.classifier.labels or ("score",)
        told = {"id2label": dict(enumerate(labels)), "label2id": {name: i for i, name in enumerate(labels)}}
        kind["classifier" if answerer.classifier.labels else "reranker"] = told
    limits = service.limits
    return {
        "model_id": answerer.name,
        "model_sha": service.sha,
        "model_dtype": answerer.number_format,
        "model_type": kind,
        "max_concurrent_requests": limits.queue_items,
        "max_input_length": answerer.limit(answerer.tasks[0]),
        "max_batch_tokens": service.engine.budget,
        "max_client_batch_size": service.most_inputs,
        "auto_truncate": limits.auto_truncate,
        "lists": {"/": "a list is of several texts", "/predict": "a list of two texts is a pair"},
        "version": __version__,
    }
