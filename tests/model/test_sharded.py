"""FSDP2 and DDP over two ranks of gloo, against the whole model."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.model.sharded import CASES, COPIED, RANKS

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def results(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> list[dict[str, dict[str, Any]]]:
    folder = tmp_path_factory.mktemp("sharded")
    calls = [item.callspec.params for item in request.session.items if item.path == request.path]
    cases = [str(params["case"]) for params in calls if "case" in params]
    command = [sys.executable, "-W", "ignore", "-m", "tests.model.sharded", str(folder), *cases]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(RANKS)]


@pytest.mark.sample(8)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_sharded_model_is_the_whole_one(results: list[dict[str, dict[str, Any]]], case: object) -> None:
    for rank in results:
        found = rank[str(case)]
        assert found["sharded"] > 16 and found["gradients"] > 16 and found["moved"] > 0.1
        for name in ("before", "forward", "backward", "weights"):
            assert found[name] <= 1e-5, name
        assert found["after"] <= 2e-5


@pytest.mark.parametrize("how", COPIED)
def test_copies_have_the_gradient_of_the_whole_batch(
    results: list[dict[str, dict[str, Any]]], how: str
) -> None:
    assert all(rank[how]["apart"] <= 1e-5 for rank in results)
