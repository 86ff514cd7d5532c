"""Short names of models for titles, legends and tables."""

from __future__ import annotations

import os.path
from collections.abc import Sequence
from pathlib import Path

_INSIDE = ("final", "best", "checkpoints")
"""Folders inside a run, which have the same name in every run."""


def model_labels(models: Sequence[str | Path]) -> list[str]:
    """A different short name for every different model: the name of a released model or of the hub as it is,
    of a folder its last part, of a model in a run folder the name of the run. Folders with equal last parts
    are named with more of their path."""
    parts = [_parts(str(model)) for model in models]
    for length in range(1, max(map(len, parts), default=1) + 1):
        labels = ["/".join(part[-length:]) for part in parts]
        if len(set(labels)) == len(set(map(str, models))):
            return labels
    return [str(model) for model in models]


def _parts(model: str) -> tuple[str, ...]:
    """The parts of a name, of which the last is the shortest name."""
    if not os.path.exists(model):
        return (model,)
    parts = list(Path(model).absolute().resolve().parts[1:]) or [model]
    step = parts[-1] if parts[-1].startswith("step-") else ""
    while len(parts) > 1 and (parts[-1] in _INSIDE or parts[-1] == step):
        parts.pop()
    return (*parts[:-1], f"{parts[-1]}, {step}" if step else parts[-1])
