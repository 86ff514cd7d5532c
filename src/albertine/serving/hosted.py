"""A model behind another server, Ray Serve or Triton, which starts this process and sends it requests: its
settings, and the engine that computes for it."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from albertine.core.number_formats import InferencePrecision, Runtime
from albertine.serving.app import paths
from albertine.serving.limits import ServingLimits
from albertine.serving.models import Models
from albertine.tasks.predictor import Predictor

STOPPING = 5.0
"""Seconds for what is computed when the process ends, which is after the answer to the last request."""


class HostedSettings(BaseModel):
    """Settings of a model, with the names of the options of `albertine serve`."""

    model_config = ConfigDict(extra="forbid")

    device: str = "cpu"
    precision: InferencePrecision = "auto"
    batch_tokens: int | None = Field(None, ge=1)
    runtime: Runtime | None = None
    exit: str | None = None
    layers: int | None = Field(None, ge=1)
    auto_truncate: bool = ServingLimits.auto_truncate
    body_bytes: int = Field(ServingLimits.body_bytes, ge=1)
    queue_tokens: int = Field(ServingLimits.queue_tokens, ge=1)
    deadline_seconds: float = Field(ServingLimits.deadline_seconds, gt=0)

    def limits(self) -> ServingLimits:
        """The limits of the server.

        Raises:
            SettingsError: a setting is not valid.
        """
        return ServingLimits(
            body_bytes=self.body_bytes,
            queue_tokens=self.queue_tokens,
            deadline_seconds=self.deadline_seconds,
            auto_truncate=self.auto_truncate,
        )


def running_models(folder: Path, name: str, settings: HostedSettings) -> Models:
    """The model of a folder as the only one of a server, whose thread computes from now on.

    Args:
        name: of the model for clients.

    Raises:
        AlbertineError: it cannot be served.
    """
    models = Models(
        settings.limits(),
        paths(),
        lambda model: Predictor(
            model,
            device=settings.device,
            precision=settings.precision,
            batch_tokens=settings.batch_tokens,
            runtime=settings.runtime,
            exit=settings.exit,
            layers=settings.layers,
        ),
    )
    models.add(name, str(folder))
    models.start()
    return models
