"""Small models behind the server's application, in this process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from starlette.testclient import TestClient

from albertine.serving.app import application, paths
from albertine.serving.limits import ServingLimits
from albertine.serving.model_tasks import ServedModel
from albertine.serving.service import Service
from albertine.tasks.predictor import Predictor


def service_of(
    folder: Path, limits: ServingLimits | None = None, model: type[ServedModel] = ServedModel, **more: Any
) -> Service:
    """A service of a folder whose thread does not run yet.

    Args:
        model: another class than the usual one, for example one that notes its calls.
    """
    predictor = Predictor(folder, precision="float32")
    return Service(model(predictor, folder.name), limits or ServingLimits(), paths(), **more)


@contextmanager
def client_of(
    folder: Path, limits: ServingLimits | None = None, token: bytes | None = None, **more: Any
) -> Iterator[TestClient]:
    """A client of a running service, whose `service` it has as an attribute."""
    service = service_of(folder, limits, **more)
    service.start()
    with TestClient(
        application(service, token), "http://localhost"
    ) as client:  # one event loop for all requests
        client.service = service  # type: ignore[attr-defined]
        yield client
    assert service.stop(10.0)
