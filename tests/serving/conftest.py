"""A folder and a client for every head."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from tests.inference.exports import tuned
from tests.serving.served import client_of


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The model folder of a head of `tests.inference.exports`, made once."""
    place = tmp_path_factory.mktemp("served")
    return cache(lambda name: tuned(name, place / name))


@pytest.fixture(scope="session")
def client(folder: Callable[[str], Path]) -> Iterator[Callable[[str], TestClient]]:
    """A client of the server of a head."""
    opened: dict[str, TestClient] = {}

    def of(name: str) -> TestClient:
        if name not in opened:
            opened[name] = client_of(folder(name)).__enter__()  # one event loop for all requests
        return opened[name]

    yield of
    for one in opened.values():
        one.__exit__()
        one.service.stop(5.0)  # type: ignore[attr-defined]
