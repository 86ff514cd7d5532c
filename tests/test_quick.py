"""torch is imported while the garbage collector rests, and nothing else is changed by that."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import gc, sys
gc.{before}()
seen = []
class Watch:
    def find_spec(self, name, path=None, target=None):
        if name == "torch.nn":
            seen.append(gc.isenabled())
sys.meta_path.insert(0, Watch())
from albertine.tasks.predictor import Predictor
import albertine.devices
print(seen, gc.isenabled())
"""


@pytest.mark.parametrize(("before", "after"), [("enable", "True"), ("disable", "False")])
def test_the_collector_rests_while_torch_is_imported(before: str, after: str) -> None:
    """Kills: torch imported by another module first; a collector that stays off, or goes on where a program
    had put it off."""
    told = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(before=before)], check=True, capture_output=True, text=True
    )
    assert told.stdout.split("\n")[0] == f"[False] {after}"
