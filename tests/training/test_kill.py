"""Exact resume with real processes: SIGKILL at random moments does not change the final weights."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from albertine.training.metrics import TIMINGS, read_metrics

ROOT = Path(__file__).resolve().parents[2]
KILLS = 4


def lines(path: Path) -> list[dict[str, object]]:
    return [
        {k: v for k, v in row.items() if k not in TIMINGS} for row in read_metrics(path / "metrics.jsonl")
    ]


def test_killed_runs_end_with_the_same_bits(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.training.kill_driver", str(tmp_path), str(KILLS), "1"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    for kind, result in json.loads(done.stdout.splitlines()[-1]).items():
        assert result["last"] == 0 and result["same"], (kind, result, done.stderr)
        assert len(result["codes"]) == KILLS and result["codes"].count(-9) >= 2, result
        # After SIGTERM a run saves and exits; 0 if it was done, -15 before it handles signals.
        assert set(result["codes"][3::4]) <= {143, 0, -15}, result
        assert lines(tmp_path / kind) == lines(tmp_path / f"{kind}-killed")
