"""A model on Ray Serve: in each replica the application of `albertine serve`.

`albertine export MODEL OUT --to ray-serve` writes a folder whose `app.py` calls `deployment`. Routes, limits
and errors are therefore those of `albertine serve`; Ray Serve distributes requests and replaces replicas.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import Field
from starlette.applications import Starlette
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from albertine.errors import MissingExtra, ModelError
from albertine.serving.app import application
from albertine.serving.hosted import HostedSettings, running_models
from albertine.serving.limits import ServingLimits, read_token
from albertine.serving.models import Models
from albertine.serving.origins import read_hosts, read_origins

TOKEN = "ALBERTINE_TOKEN"
DEPLOYMENT = "albertine"
"""Name of the deployment, by which `config.yaml` sets its options."""
AT_ONCE = 512
"""Requests that a replica has at once. Ray Serve's default, 5, would leave steps of the engine almost empty;
beyond what fits in its queue of tokens the engine itself refuses."""
DRAINING = 40.0
"""Seconds for the requests of a replica that is stopped: more than the deadline of a request."""


class ReplicaSettings(HostedSettings):
    """`args` of an application in config.yaml.

    Attributes:
        token_file: file with the token that clients must send, on the machine of each replica; None: the
            variable ALBERTINE_TOKEN, or no token.
        allowed_hosts, allowed_origins: lists, otherwise as the options of `albertine serve`.
    """

    token_file: Path | None = None
    allowed_hosts: tuple[str, ...] = ()
    allowed_origins: tuple[str, ...] = ()
    body_seconds: float = Field(ServingLimits.body_seconds, gt=0)

    def limits(self) -> ServingLimits:
        return replace(
            super().limits(),
            hosts=read_hosts(self.allowed_hosts),
            origins=read_origins(self.allowed_origins),
            body_seconds=self.body_seconds,
        )


def deployment(folder: Path, name: str, settings: ReplicaSettings) -> Any:
    """The deployment of a model, to be bound: `app = deployment(Path("model"), "reviews", settings).bind()`.

    Args:
        folder: of the model. name: of the model for clients.

    Raises:
        MissingExtra: Ray Serve is not installed.
    """
    try:
        from ray import serve
    except ImportError as error:  # also where Ray is installed without the packages of Serve
        raise MissingExtra(
            "an application of Ray Serve needs ray[serve], which is not installed",
            remedy="pip install 'albertine[ray-serve]'",
        ) from error

    def build() -> Starlette:
        return replica(folder, name, settings)

    made: Any = serve.deployment(
        name=DEPLOYMENT, max_ongoing_requests=AT_ONCE, graceful_shutdown_timeout_s=DRAINING
    )
    return made(serve.ingress(build)(Replica))


def replica(folder: Path, name: str, settings: ReplicaSettings) -> Starlette:
    """The application of one replica, whose model computes; `app.state.models` has it.

    Args:
        folder, name: as in `deployment`.

    Raises:
        AlbertineError: the model cannot be served, or a setting is not valid.
    """
    if not folder.is_dir():
        # On another node the `working_dir` of the application, which is the current folder, lies elsewhere.
        folder = Path.cwd() / folder.name
    token = read_token(settings.token_file, TOKEN)
    models = running_models(folder, name, settings)
    app = application(models, token)
    app.add_middleware(WithoutRequestId)
    app.state.models = models
    return app


class Replica:
    """What Ray Serve calls of a replica besides its application.

    Attributes:
        app: the application, set by `serve.ingress`.
    """

    app: Starlette

    async def check_health(self) -> None:
        """Called from time to time; a replica for which it raises is replaced.

        Raises:
            ModelError: the model does not answer, for which `/health/ready` has 503.
        """
        models: Models = self.app.state.models
        if not await models.ready(models.services):
            raise ModelError("does not answer", where=models.services[0].model.name)


class WithoutRequestId:
    """Middleware that leaves the header `x-request-id` of answers to Ray Serve's proxy, which adds it without
    looking whether it is there. The id is that of the request in both places."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def passed(message: Message) -> None:
            if message["type"] == "http.response.start":
                rest = [header for header in message["headers"] if header[0] != b"x-request-id"]
                message = {**message, "headers": rest}
            await send(message)

        await self._app(scope, receive, passed)
