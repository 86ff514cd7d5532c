"""A study whose cells take seconds, and an engine that computes them in this process."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from albertine.core.settings import merge
from albertine.study.work import compute
from tests.session_folders import made_once
from tests.toy import MODEL, demo_text

Write = Callable[..., Path]
TOY: dict[str, Any] = {
    "name": "toy",
    "title": "Does sharing cost anything?",
    "source": {"paper": "one", "table": "Table 4", "columns": ["sharing", "avg"], "rows": [["all", 80.1]]},
    "corpus": {"text": ["text"], "vocab_size": 500, "language": "en", "held_out": 0.3},
    "base": {
        "pretrain": {
            "model": {"preset": "albert-tiny-zh", "change": MODEL},
            "objective": {"max_length": 32, "pairs": "none"},
            "training": {"precision": "float32", "batch_size": 8, "learning_rate": 0.01, "workers": 0},
            "watching": {"log_every": 2, "evaluate_every": 4, "evaluate_sequences": 8, "checkpoint_every": 2,
                         "tensorboard": False},
        }
    },
    "axes": {"sharing": {"setting": "pretrain.model.sharing", "values": ["all", "none"]}},
    "seeds": [1, 2],
    "budget": {"steps": 8},
    "judged": {"held_out": {"sequences": 16}, "cost": True},
    "conclusions": [
        {"claim": "sharing saves parameters", "metric": "parameters", "of": {"sharing": "all"},
         "minus": {"sharing": "none"}, "expected": "less"},
        {"claim": "sharing costs accuracy", "metric": "mask_loss", "of": {"sharing": "all"},
         "minus": {"sharing": "none"}, "expected": "greater"},
    ],
}  # fmt: skip


class Here:
    """An engine of this process, one unit after the other."""

    slots = 1

    def __init__(self) -> None:
        self.computed: list[str] = []

    def submit(self, folder: Path) -> Future[int]:
        self.computed.append(folder.name)
        future: Future[int] = Future()
        future.set_result(compute(folder))
        return future

    def close(self) -> None:
        pass


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a text, and rows of a task."""
    return made_once(tmp_path_factory, "study data", _data)


def _data(folder: Path) -> None:
    demo_text("en", folder / "text", 60_000)
    rows = "".join(f"a sentence of {word},{word}\n" for word in ("summer", "winter") * 12)
    for split in ("train", "dev"):
        (folder / f"{split}.csv").write_text(f"sentence,season\n{rows}", encoding="utf-8")


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes the file of the toy study with changes; a part that is None is left out."""
    return partial(_written, tmp_path)


def _written(folder: Path, file: str = "toy.yaml", **changes: Any) -> Path:
    path = folder / file
    tree = {key: value for key, value in merge(TOY, changes).items() if value is not None}
    path.write_text(yaml.safe_dump(tree, sort_keys=False), encoding="utf-8")
    return path
