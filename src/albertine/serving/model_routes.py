"""Routes of the list of models, in OpenAI's form, and of loading and unloading them."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from albertine.serving import schemas
from albertine.serving.error_responses import guarded
from albertine.serving.json_output import as_json
from albertine.serving.limits import read_body, read_json
from albertine.serving.models import Models
from albertine.serving.service import Service


def model_routes(models: Models, path: str) -> list[Route]:
    """The routes below a path, which may raise `HttpError`."""

    async def all_of_them(request: Request) -> Response:
        return _json({"object": "list", "data": list(map(_entry, models.services))})

    async def one(request: Request) -> Response:
        """`GET`: the entry; `PUT`: load, or replace; `DELETE`: unload."""
        name = request.path_params["name"]

        async def respond() -> Response:
            if request.method == "DELETE":
                await models.unload(name)
                return _json({"id": name, "object": "model", "deleted": True})
            if request.method == "PUT":
                body = await read_body(request.stream(), request.headers, models.limits)
                wanted = schemas.read(schemas.ModelToLoad, read_json(body))
                return _json(_entry(await models.load(name, wanted.model)))
            return _json(_entry(models.find(name)))

        return await guarded(respond)

    return [
        Route(path, all_of_them),
        Route(path + "/{name:path}", one, methods=["GET", "PUT", "DELETE"]),
    ]


def _entry(service: Service) -> dict[str, Any]:
    return {
        "id": service.model.name,
        "object": "model",
        "created": 0,  # no folder records it
        "owned_by": "albertine",
        "sha": service.sha,
        "tasks": service.model.tasks,
    }


def _json(found: Any) -> Response:
    return Response(as_json(found), media_type="application/json")
