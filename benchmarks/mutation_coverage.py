"""A plugin of pytest for `mutation_sample.py`: which tests execute which lines, and how long they take.

Lines that run in other processes are not seen. `MUTATION_FILES` is a JSON list of the files that are watched,
`MUTATION_RESULT` the path of what is written: {"seconds": {test: s}, "lines": {file: {line: [tests]}}}.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import coverage
import pytest

watched = coverage.Coverage(data_file=None, include=json.loads(os.environ["MUTATION_FILES"]))
seconds: dict[str, float] = {}


def pytest_configure() -> None:
    watched.start()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    watched.switch_context(item.nodeid)
    began = time.monotonic()
    yield
    seconds[item.nodeid] = time.monotonic() - began
    watched.switch_context("")


def pytest_sessionfinish() -> None:
    watched.stop()
    data = watched.get_data()
    lines = {file: data.contexts_by_lineno(file) for file in data.measured_files()}
    result = Path(os.environ["MUTATION_RESULT"])
    result.write_text(json.dumps({"seconds": seconds, "lines": lines}), encoding="utf-8")
