"""A folder and a client for every head."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
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
    with ExitStack() as stack:
        yield cache(lambda name: stack.enter_context(client_of(folder(name))))
