"""Routes: those of every model, with the paths and shapes of text-embeddings-inference, huggingface_hub and
OpenAI, and those of the families (`albertine.tasks.http`).

Shapes: huggingface/text-embeddings-inference, `router/src/http/types.rs`; huggingface_hub 2.4.0; openai
3.54.0.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from albertine import __version__
from albertine.inference.embedding import cosines, normalize_rows
from albertine.inference.fill_mask import Guess
from albertine.serving import schemas
from albertine.serving.model_tasks import BatchKey, ServedModel
from albertine.serving.request_context import RequestContext
from albertine.serving.token_routes import ROUTES as TOKEN_ROUTES
from albertine.serving.view_routes import ROUTES as VIEW_ROUTES
from albertine.tasks.families import FAMILIES
from albertine.tasks.http.base import ROW, HttpRoute, HttpTask, Truncation, listed
from albertine.tasks.http.errors import HttpError, invalid
from albertine.tasks.http.rank import TextsToRank, ranking, texts_to_rank
from albertine.tokenizers.base import Spans, Tokenizer

Handler = Callable[[RequestContext], Awaitable[Any]]
Rows = list[dict[str, Any]]
CANDIDATES = 5
"""Default number of candidates for a mask."""
LONGEST = 16_000_000
"""Most characters of all filled texts of a response."""
AT_ONCE = 100_000
"""Characters below which starting another thread takes longer than to fill them in."""


# ---- which route answers


def handlers() -> dict[str, Handler]:
    """The handlers of all paths that take a body."""
    return {path: _handler(path) for path in (*COMMON, *(path for path, _, _ in _of_families()))}


def _handler(path: str) -> Handler:
    async def handler(context: RequestContext) -> Any:
        return await respond(context, path)

    return handler


async def respond(context: RequestContext, path: str) -> Any:
    """The response of the model's family where it has the path, else that of all models; else the error of
    a path for other families."""
    task = context.service.model.of_family
    if path == "/":
        return await _root(context)
    if task is not None and path in task.routes:
        return await _of_family(context, task.routes[path])
    if path in COMMON:
        return await COMMON[path](context)
    name, route = next((name, route) for known, name, route in _of_families() if known == path)
    return await _of_family(context, route, name)


def _of_families() -> Iterator[tuple[str, str, HttpRoute]]:
    """Path, task and route of all families."""
    for name, known in FAMILIES.items():
        if known.http is not None:
            yield from ((path, name, route) for path, route in known.http().routes.items())


async def _of_family(context: RequestContext, route: HttpRoute, name: str | None = None) -> Any:
    """The response of a route of a family.

    Args:
        name: of its task, by default that of the model.

    Raises:
        HttpError: the body is invalid, or the model has another task.
    """
    request, model = schemas.read(route.schema, context.body), context.service.model
    name = name or model.tasks[0]
    context.service.check_task(name)
    task = model.task(name)
    questions = route.questions(task, request)
    try:
        values = await context.answer(BatchKey(name), questions, route.truncation(request))
    except HttpError as error:
        if isinstance(index := error.details.get("index"), int):
            place = error.details["index"] = route.input_of(request, index)
            error.message = error.message.replace(f"input {index} ", f"input {place} ")
        raise
    return route.response(task, request, questions, values)


async def _root(context: RequestContext) -> Any:
    """`POST /`, as huggingface_hub's `InferenceClient(model=URL)` and pipelines send it: the route is that of
    the form of the body, or of the model's head; vectors, and masks where a text has one, otherwise."""
    model, body = context.service.model, context.body
    inputs, parameters = body.get("inputs"), body.get("parameters")
    if isinstance(inputs, dict) and "source_sentence" in inputs:
        return await similarity(context)
    for _, name, route in _of_families():
        if route.claims(body):
            return await _of_family(context, route, name)
    if model.of_family is not None:
        return await _of_family(context, model.of_family.routes["/"])
    masked = parameters is not None or any(
        isinstance(one, str) and model.mask in one for one in listed(inputs)
    )
    if "fill-mask" in model.tasks and (masked or "embed" not in model.tasks):
        return await fill_mask(context)
    return await embed(context)


# ---- vectors


async def vectors(
    context: RequestContext,
    texts: Sequence[str],
    truncation: Truncation,
    *,
    normalize: bool,
    dimensions: int | None,
) -> NDArray[np.float32]:
    """The vector of every text, (texts, H).

    Args:
        dimensions: keep so many numbers of each vector, normalized again where `normalize`.
    """
    context.service.check_task("embed")
    found = np.stack(await context.answer(BatchKey("embed", normalize), texts, truncation))
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
        context.headers["x-warning"] = "this model was not trained for vectors that are cut"
    found = np.ascontiguousarray(found[:, :dimensions])
    return normalize_rows(found) if normalize else found


async def embed(context: RequestContext) -> Any:
    """`/embed`: always a list of vectors."""
    request = schemas.read(schemas.TextsToEmbed, context.body)
    texts = listed(request.inputs)
    found = await vectors(context, texts, request, normalize=request.normalize, dimensions=request.dimensions)
    return found


async def rerank(context: RequestContext) -> Any:
    """`/rerank` of models without a score of pairs: by the cosines of vectors."""
    request = schemas.read(TextsToRank, context.body)
    texts = texts_to_rank(request)
    found = await _cosines(context, request.query, texts, request, field="query")
    return ranking(request, found, found)


async def similarity(context: RequestContext) -> Any:
    """`/similarity`: the cosine of one text with each of others."""
    request = schemas.read(schemas.TextsToCompare, context.body)
    one, others = request.inputs.source_sentence, request.inputs.sentences
    return await _cosines(context, one, others, request.parameters, field="inputs.source_sentence")


async def _cosines(
    context: RequestContext, source: str, texts: Sequence[str], truncation: Truncation, *, field: str
) -> list[float]:
    """The cosine of a text, the field of that name, with each of others."""
    # The source last: errors name a text by its number in the list of the request.
    try:
        found = await vectors(context, [*texts, source], truncation, normalize=True, dimensions=None)
    except HttpError as error:
        if error.details.get("index") == len(texts):
            del error.details["index"]
            error.details["field"] = field
            error.message = error.message.replace(f"input {len(texts)} ", f"`{field}` ")
        raise
    return list(cosines(found[-1:], found[:-1])[0].tolist())


async def embeddings(context: RequestContext) -> Any:
    """`/v1/embeddings`, `/embeddings`: vectors of length 1, as numbers or base64 of little-endian float32."""
    _refuse_token_ids(context.body.get("input"))
    request = schemas.read(schemas.OpenAiTexts, context.body)
    found = await vectors(
        context, listed(request.input), request, normalize=True, dimensions=request.dimensions
    )
    encoded = request.encoding_format == "base64"
    data = [
        {
            "object": "embedding",
            "index": i,
            "embedding": base64.b64encode(row.astype("<f4").tobytes()).decode() if encoded else row,
        }
        for i, row in enumerate(np.ascontiguousarray(found))
    ]
    usage = {"prompt_tokens": context.tokens, "total_tokens": context.tokens}
    return {"object": "list", "data": data, "model": context.service.model.name, "usage": usage}


def _refuse_token_ids(given: Any) -> None:
    """Token ids are those of another vocabulary and would silently give vectors of another text."""
    first = given[0] if isinstance(given, list) and given else None
    if isinstance(first, list) and first:
        first = first[0]
    if isinstance(first, int):
        raise invalid(
            "token_ids",
            "`input` holds token ids, which mean other tokens here; send texts "
            "(with langchain-openai: OpenAIEmbeddings(check_embedding_ctx_length=False))",
            field="input",
        )


# ---- masks


async def fill_mask(context: RequestContext) -> Any:
    """Candidates for a mask; for several masks, or several texts, a list of that."""
    request = schemas.read(schemas.TextsToFill, context.body)
    service, model = context.service, context.service.model
    service.check_task("fill-mask")
    texts, targets, among = listed(request.inputs), request.parameters.targets, None
    if targets is not None:
        tokenizer, size = model.predictor.tokenizer, sum(map(len, targets))
        among = await service.run(lambda _: _ids(tokenizer, targets), size, context.gone, service.deadline)
    top = request.parameters.top_k or (CANDIDATES if targets is None else len(targets))
    size = _filled_size(model, texts, top if among is None else min(top, len(among)))
    questions = [(text, top, among) for text in texts]
    found = await context.answer(BatchKey("fill-mask"), questions, request.parameters)

    def filled() -> list[Any]:
        return [_filled(model, text, masks) for text, masks in zip(texts, found, strict=True)]

    rows = filled() if size < AT_ONCE else await asyncio.to_thread(filled)
    return rows[0] if isinstance(request.inputs, str) else rows


def _filled_size(model: ServedModel, texts: Sequence[str], top: int) -> int:
    """At most how many characters the filled texts of a response have together.

    Raises:
        HttpError: too many.
    """
    top = min(top, model.predictor.tokenizer.vocab_size)
    most = model.task("fill-mask").limit
    size = sum(min(most, text.count(model.mask)) * top * len(text) for text in texts)
    if size > LONGEST:
        raise invalid(
            "batch_too_large",
            f"the filled texts would have {size:,} characters, and the server gives {LONGEST:,}; "
            "send a smaller top_k, or fewer masks",
            limit=LONGEST,
        )
    return size


def _filled(model: ServedModel, text: str, masks: Sequence[Sequence[Guess]]) -> list[Any]:
    """The candidates for the mask of a text, or for each of several."""
    tokenizer, mask = model.predictor.tokenizer, model.mask
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


def _ids(tokenizer: Tokenizer, targets: Sequence[str]) -> frozenset[int]:
    """The ids of tokens of the vocabulary.

    Raises:
        HttpError: one is none.
    """
    found = set()
    for word in targets:
        ids = tokenizer.encode(word)
        if len(ids) != 1 or ids[0] in tokenizer.special_ids:
            raise invalid("unknown_target", f"`{word}` is not one token of the vocabulary", field="targets")
        found.add(ids[0])
    return frozenset(found)


# ---- tokens, model and server


async def tokenize(context: RequestContext) -> Any:
    """`/tokenize`: the tokens of every text alone, without truncation."""
    request, service = schemas.read(schemas.TextsToCut, context.body), context.service
    texts = listed(request.inputs)
    context.inputs, size = len(texts), sum(map(len, texts))
    service.check_size(inputs=len(texts), characters=size)

    def tokens_of(check: Callable[[], None]) -> list[Rows]:
        model, count = service.model, 0
        for text in texts:
            count += model.tokens(text)
            service.check_size(tokens=count)  # before the spans, which take most of the time
            check()
        found: list[Rows] = []
        for text in texts:
            spans = model.spans(text)
            found.append(_tokens(model.predictor.tokenizer, spans, request.add_special_tokens))
            check()
        return found

    return await service.run(tokens_of, size + ROW * len(texts), context.gone, service.deadline)


def _tokens(tokenizer: Tokenizer, spans: Spans, special: bool) -> Rows:
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


async def info(context: RequestContext) -> Any:
    """`/info`: model, version and limits."""
    service, model = context.service, context.service.model
    tasks: list[HttpTask] = list(map(model.task, model.tasks))
    model_type: dict[str, Any] = {name: {} for name in model.tasks}
    for task in reversed(tasks):
        model_type |= task.info()
    limits = service.limits
    return {
        "model_id": model.name,
        "model_sha": service.sha,
        "model_dtype": model.number_format,
        "model_type": model_type,
        "max_concurrent_requests": limits.queue_items,
        "max_input_length": tasks[0].limit,
        "max_batch_tokens": service.engine.budget,
        "max_client_batch_size": service.most_inputs,
        "auto_truncate": limits.auto_truncate,
        "lists": {"/": "a list is of several texts", "/predict": "a list of two texts is a pair"},
        "version": __version__,
    }


COMMON: dict[str, Handler] = {
    "/": _root,
    "/embed": embed,
    "/rerank": rerank,
    "/similarity": similarity,
    "/tokenize": tokenize,
    "/embeddings": embeddings,
    "/v1/embeddings": embeddings,
    **TOKEN_ROUTES,
    **VIEW_ROUTES,
}
"""Routes that do not depend on the family of the model."""
