"""torch is imported with the garbage collector off, without other effects."""

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
{first}
from albertine.tasks.predictor import Predictor
import albertine.core.devices
print(seen, gc.isenabled(), gc.get_freeze_count() > 100_000)
"""


@pytest.mark.sample
@pytest.mark.parametrize("frozen", [True, False])
@pytest.mark.parametrize("before", ["enable", "disable"])
def test_the_collector_rests_while_torch_is_imported(before: str, frozen: bool) -> None:
    """Catches: torch imported by another module first; a collector that stays off, or is switched on where
    the program had switched it off; what a program of others made before kept for ever."""
    first = "import albertine.cli.app" if frozen else ""
    program = PROGRAM.format(before=before, first=first)
    result = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert result.stdout.strip() == f"[False] {before == 'enable'} {frozen}"
