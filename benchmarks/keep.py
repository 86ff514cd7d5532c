"""Where the results of the studies go."""

from __future__ import annotations

from typing import Any

from albertine.bench.machine import save_result


def keep(name: str, result: dict[str, Any]) -> None:
    """Write a result under benchmarks/results and print its path."""
    print(f"written: {save_result(name, result)}")
