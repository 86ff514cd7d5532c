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
from albertine.serving.models import Models
from albertine.serving.service import Service
from albertine.tasks.predictor import Predictor


def opened(model: str) -> Predictor:
    return Predictor(model, precision="float32")


class ServiceInTest(Service):
    """A service that has all models of its server."""

    models: Models


def service_of(
    folder: Path, limits: ServingLimits | None = None, model: type[ServedModel] = ServedModel, **more: Any
) -> ServiceInTest:
    """The service of a folder, the only model of a server, whose thread does not run yet.

    Args:
        model: another class than the usual one, for example one that notes its calls.
    """
    models = Models(limits or ServingLimits(), paths(), opened)
    served = model(opened(str(folder)), folder.name)
    service = ServiceInTest(served, models.limits, models.worker, models.metrics, **more)
    service.models = models
    models.put(service)
    return service


@contextmanager
def client_of(
    folder: Path,
    limits: ServingLimits | None = None,
    token: bytes | None = None,
    admin_token: bytes | None = None,
    **more: Any,
) -> Iterator[TestClient]:
    """A client of running models, which it has as attributes `models` and `service`, that of the folder."""
    service = service_of(folder, limits, **more)
    models = service.models
    models.start()
    with TestClient(
        application(models, token, admin_token=admin_token), "http://localhost"
    ) as client:  # one event loop for all requests
        client.models, client.service = models, service  # type: ignore[attr-defined]
        yield client
    assert models.stop(10.0)
