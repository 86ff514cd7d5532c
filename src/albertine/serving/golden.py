"""Golden answers: a file in a model folder with requests and the answers that the model is to give.

They are checked before a model that was loaded by a request answers others. Damaged weights, another
vocabulary, or a processor whose kernels compute otherwise would give wrong answers without any error.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from albertine.core.files import read_regular
from albertine.errors import ModelError
from albertine.serving import operations, routes
from albertine.serving.json_output import as_json
from albertine.serving.request_context import RequestContext
from albertine.serving.service import Service
from albertine.tasks.http.base import Body
from albertine.tasks.http.errors import HttpError

FILE = "golden.json"
TOLERANCE = 0.02
"""How far numbers may be from those of the file: as far as precisions of one model are from each other, for
probabilities and unit vectors."""
BUSY = (429, 503, 504)
LARGEST = 10_000_000
"""Most bytes of a file."""
LEFT_OUT = ("/", "/decode", "/embeddings", "/v1/embeddings")
"""Routes whose examples are not among those of `golden_answers`: what they give is part of other answers."""


class GoldenAnswer(Body):
    """A request and its answer."""

    path: str
    body: dict[str, Any]
    answer: Any


class GoldenAnswers(Body):
    """The file."""

    tolerance: float = Field(TOLERANCE, gt=0)
    answers: list[GoldenAnswer] = Field(min_length=1)


async def check_golden(service: Service, folder: Path) -> int:
    """How many golden answers the folder of a model has; 0 without such a file.

    Raises:
        ModelError: the file is not valid, or the model answers otherwise. HttpError: 503, the server is too
            busy.
    """
    file = folder / FILE
    try:
        known = GoldenAnswers.model_validate(json.loads(read_regular(file, LARGEST)))
    except FileNotFoundError:
        return 0
    except (OSError, ValueError, RecursionError, ValidationError) as error:
        raise ModelError(
            "is no file of golden answers", where=file, remedy="Write it again with `albertine golden`"
        ) from error
    for number, one in enumerate(known.answers, 1):
        try:
            found = await answer(service, one.path, one.body)
        except HttpError as error:
            if error.status in BUSY:
                why = f"the server is too busy to try the model: {error.message}"
                raise HttpError(503, "busy", why, headers={"retry-after": "10"}) from None
            raise ModelError(f"golden answer {number} ({one.path}): {error.message}", where=file) from None
        if (place := difference(found, one.answer, known.tolerance)) is not None:
            raise ModelError(
                f"golden answer {number} ({one.path}): the model answers otherwise at {place}",
                where=file,
                remedy="The model or its vocabulary is damaged, or the file is of another model, or was "
                "written with another --exit or --layers than that of the server",
            )
    return len(known.answers)


async def answer(service: Service, path: str, body: Mapping[str, Any]) -> Any:
    """The JSON of the answer to a request.

    Raises:
        HttpError: the model has none.
    """
    if path not in routes.handlers():
        raise HttpError(404, "no_route", "there is no such route")
    context = RequestContext(service, dict(body), asyncio.Event().wait)
    found = json.loads(as_json(await routes.respond(context, path)))
    if isinstance(found, dict):
        found.pop("model", None)  # its name, which another server may choose
    return found


async def golden_answers(
    service: Service, requests: Sequence[tuple[str, Mapping[str, Any]]] = ()
) -> AsyncIterator[dict[str, Any]]:
    """Entries of the file: of requests (path, body); without any, of the example of each route that the model
    has.

    Raises:
        HttpError: the model has no answer to one of the requests.
    """
    for path, body in requests:
        yield {"path": path, "body": body, "answer": await answer(service, path, body)}
    if requests:
        return
    for path, forms in operations.posted().items():
        for form in forms:
            if form.example and path not in LEFT_OUT and not path.startswith("/analyze/"):
                try:
                    found = await answer(service, path, form.example)
                except HttpError:  # of another head
                    continue
                yield {"path": path, "body": dict(form.example), "answer": found}
                break


def difference(found: Any, known: Any, tolerance: float, place: str = "") -> str | None:
    """Where two JSON values differ, numbers by more than the tolerance, relatively above 1, whole ones at
    all; None: nowhere."""
    numbers = (int, float)
    if isinstance(found, int) and isinstance(known, int):  # numbers of tokens, places in a text
        return None if found == known else place or "its value"
    if isinstance(found, numbers) and isinstance(known, numbers):
        near = abs(found - known) <= tolerance * max(1.0, abs(known))
        return None if near else place or "its value"
    if isinstance(found, dict) and isinstance(known, dict) and found.keys() == known.keys():
        pairs: list[tuple[str, Any, Any]] = [(f"{place}.{key}", found[key], known[key]) for key in known]
    elif isinstance(found, list) and isinstance(known, list) and len(found) == len(known):
        pairs = [(f"{place}[{i}]", *both) for i, both in enumerate(zip(found, known, strict=True))]
    else:
        return None if found == known else place or "its value"
    places = (difference(one, other, tolerance, where) for where, one, other in pairs)
    return next((where for where in places if where is not None), None)
