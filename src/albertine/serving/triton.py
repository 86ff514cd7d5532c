"""A model of Triton Inference Server by its Python backend, answered by the engine of `albertine serve`.

`albertine export MODEL OUT --to triton` writes a model repository whose `model.py` calls `TritonModel`.
Interface: triton-inference-server/python_backend, README.md ("Python Model Example", "Error Handling") and
src/resources/triton_python_backend_utils.py.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from albertine.errors import AlbertineError, SettingsError
from albertine.serving.engine import traceback_without_text
from albertine.serving.error_responses import http_error_of
from albertine.serving.hosted import STOPPING, HostedSettings, running_models
from albertine.serving.json_output import as_json
from albertine.serving.limits import read_json
from albertine.serving.request_context import RequestContext
from albertine.serving.routes import respond
from albertine.tasks.http.errors import HttpError, invalid

log = logging.getLogger("albertine.serving")
Tables = dict[str, NDArray[Any]]
UNAVAILABLE = (429, 503, 504)
"""Status of errors after which a client may send the same request again."""


class TritonModel:
    """The model behind the class `TritonPythonModel` of a repository.

    Its kind follows from the outputs in config.pbtxt: `LABEL` and `SCORE` of a `TEXT` and perhaps its `PAIR`,
    the likeliest first, as `POST /predict` gives them; `VECTOR` of a `TEXT`, of length 1, as `POST /embed`;
    `RESPONSE` to a `REQUEST`, the JSON of `POST /`. Requests of one call are computed together.

    Args:
        folder: of the model. args: of `initialize`. utils: the module `triton_python_backend_utils`.

    Raises:
        AlbertineError: the model cannot be served, or config.pbtxt is not valid.
    """

    def __init__(self, folder: Path, args: Mapping[str, str], utils: Any) -> None:
        config = json.loads(args["model_config"])
        kinds = {"LABEL": self._classes, "VECTOR": self._vectors, "RESPONSE": self._responses}
        found = [kinds[one["name"]] for one in config["output"] if one["name"] in kinds]
        if not found:
            raise SettingsError(
                f"has none of the outputs {', '.join(kinds)}",
                where="config.pbtxt",
                remedy="Export the model again: albertine export MODEL OUT --to triton",
            )
        self._tables: Callable[[Any], Awaitable[Tables]] = found[0]
        self._utils = utils
        self._models = running_models(folder, args["model_name"], _settings(config, args))
        self._loop = asyncio.new_event_loop()

    def execute(self, requests: Sequence[Any]) -> list[Any]:
        """The responses to requests, in their order; an error of one is its own."""
        return self._loop.run_until_complete(self._all(requests))

    def close(self) -> None:
        """End the thread that computes."""
        self._models.stop(STOPPING)
        self._loop.close()

    async def _all(self, requests: Sequence[Any]) -> list[Any]:
        return await asyncio.gather(*map(self._response, requests))

    async def _response(self, request: Any) -> Any:
        try:
            tables = await self._tables(request)
            tensors = [self._utils.Tensor(name, table) for name, table in tables.items()]
            return self._utils.InferenceResponse(output_tensors=tensors)
        except Exception as error:
            if not isinstance(error, HttpError | AlbertineError):
                log.error("a request failed: %s", traceback_without_text(error))
            failure = http_error_of(error, 0)
            found = self._utils.TritonError(failure.message, self._code(failure.status))
            return self._utils.InferenceResponse(error=found)

    def _code(self, status: int) -> Any:
        codes = self._utils.TritonError
        if status in UNAVAILABLE:
            return codes.UNAVAILABLE
        return codes.INVALID_ARG if status < 500 else codes.INTERNAL

    # ---- tables of outputs by the kind of model

    async def _classes(self, request: Any) -> Tables:
        texts, pairs = self._texts(request, "TEXT"), self._texts(request, "PAIR")
        rows = [[text] for text in texts or ()]
        if pairs is not None:
            rows = [[*row, pair] for row, pair in zip(rows, pairs, strict=True)]
        found = await self._answer("/predict", {"inputs": rows})
        labels = np.array([[one["label"].encode() for one in row] for row in found], np.object_)
        scores = np.array([[one["score"] for one in row] for row in found], np.float32)
        shape = (*self._batch(request, "TEXT"), -1)
        return {"LABEL": labels.reshape(shape), "SCORE": scores.reshape(shape)}

    async def _vectors(self, request: Any) -> Tables:
        found = await self._answer("/embed", {"inputs": self._texts(request, "TEXT")})
        return {"VECTOR": np.asarray(found, np.float32).reshape(*self._batch(request, "TEXT"), -1)}

    async def _responses(self, request: Any) -> Tables:
        bodies = [read_json(row) for row in self._bytes(request, "REQUEST") or ()]
        # All are awaited: the rest would go on without a reader if the first error ended the call.
        answers = (self._answer("/", body) for body in bodies)
        found = await asyncio.gather(*answers, return_exceptions=True)
        for one in found:
            if isinstance(one, BaseException):
                raise one
        table = np.array([as_json(one) for one in found], np.object_)
        return {"RESPONSE": table.reshape(*self._batch(request, "REQUEST"), 1)}

    async def _answer(self, path: str, body: dict[str, Any]) -> Any:
        """The answer of the server to a request.

        Raises:
            HttpError: as the server has it.
        """
        with self._models.using(None) as service:
            return await respond(RequestContext(service, body, _never), path)

    # ---- inputs

    def _bytes(self, request: Any, name: str) -> list[bytes] | None:
        """The rows of an input; None: the request does not have it."""
        tensor = self._utils.get_input_tensor_by_name(request, name)
        return None if tensor is None else [bytes(one) for one in tensor.as_numpy().reshape(-1)]

    def _texts(self, request: Any, name: str) -> list[str] | None:
        """The same as text.

        Raises:
            HttpError: a row is not UTF-8.
        """
        rows = self._bytes(request, name)
        try:
            return None if rows is None else [row.decode("utf-8") for row in rows]
        except UnicodeDecodeError:
            raise invalid("not_utf8", f"a row of {name} is not UTF-8 text") from None

    def _batch(self, request: Any, name: str) -> tuple[int, ...]:
        """The shape of an input without its last axis, that of the strings of a row: (rows,), or () where
        max_batch_size is 0."""
        tensor = self._utils.get_input_tensor_by_name(request, name)
        return tuple(tensor.as_numpy().shape[:-1])


async def _never() -> None:
    """Awaited for a client that leaves: Triton drops the answer itself."""
    await asyncio.Event().wait()


def _settings(config: Mapping[str, Any], args: Mapping[str, str]) -> HostedSettings:
    """The parameters of config.pbtxt; those in capitals, such as EXECUTION_ENV_PATH, are Triton's own.

    Raises:
        SettingsError: one is unknown, or not valid.
    """
    parameters: Mapping[str, Any] = config.get("parameters", {})
    given = {name: one["string_value"] for name, one in parameters.items() if not name.isupper()}
    if args.get("model_instance_kind") == "GPU":
        given.setdefault("device", f"cuda:{args['model_instance_device_id']}")
    try:
        return HostedSettings.model_validate(given)
    except ValidationError as error:
        first = error.errors()[0]
        raise SettingsError(
            f"parameter {'.'.join(map(str, first['loc']))}: {first['msg'].lower()}",
            where="config.pbtxt",
            remedy=f"Parameters are {', '.join(HostedSettings.model_fields)}",
        ) from None
