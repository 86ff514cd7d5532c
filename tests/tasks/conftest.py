"""A small pretrained folder with random weights, and a task that a small model can learn."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from albertine.core.settings import resolve
from albertine.interop.huggingface.folders import save_model
from albertine.model.model import Model
from albertine.pretraining.initial_model import encoder_config
from albertine.pretraining.settings import ModelChoice
from albertine.tasks.settings import FinetuneSettings
from albertine.tokenizers.load import load_tokenizer
from tests.session_folders import made_once
from tests.toy import MODEL, toy_vocabulary

Tune = Callable[..., FinetuneSettings]


def make_pretrained(folder: Path) -> None:
    _, vocabulary = toy_vocabulary(folder, 100_000)
    tokenizer = load_tokenizer(vocabulary)
    choice = ModelChoice(preset="albert-tiny-zh", change={**MODEL, "initializer_range": 0.1})
    model = Model(encoder_config(choice, tokenizer.vocab_size, 64), {"mlm", "sop"}, seed=3)
    save_model(model, tokenizer, folder / "a model")


@pytest.fixture(scope="session")
def pretrained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two shared layers of width 32, 500 tokens, with the pretraining heads."""
    return made_once(tmp_path_factory, "tasks", make_pretrained) / "a model"


def table(path: Path, count: int, seed: int) -> Path:
    """Rows whose class depends on which of two words is in the text; with a pair, a score and a set too."""
    rng = np.random.default_rng(seed)
    fillers = ["the", "house", "and", "he", "was", "old", "man", "of", "time", "said"]
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["review", "answer", "verdict", "points", "tags"])
        for _ in range(count):
            good = bool(rng.integers(2))
            words = [str(w) for w in rng.choice(fillers, 6)]
            words[int(rng.integers(6))] = "good" if good else "never"
            tags = [name for name in ("x", "y") if rng.random() < 0.5]
            writer.writerow(
                [
                    " ".join(words),
                    "yes, sir",
                    "fine" if good else "poor",
                    2.5 if good else 0.5,
                    ",".join(tags),
                ]
            )
    return path


@pytest.fixture(scope="session")
def tables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("own files")
    return {"train": table(folder / "train.csv", 400, 1), "dev": table(folder / "dev.csv", 100, 2)}


@pytest.fixture
def tune(pretrained: Path, tables: dict[str, Path], tmp_path: Path) -> Tune:
    """Settings of a toy run; keyword arguments change parts of them."""

    def make(**changes: Any) -> FinetuneSettings:
        tree: dict[str, Any] = {
            "name": "toy",
            "output": tmp_path / "runs",
            "task": {**tables, "text": "review", "label": "verdict", "max_length": 32},
            "encoder": {"folder": pretrained},
            "training": {
                "precision": "float32",
                "epochs": 6,
                "batch_size": 16,
                "micro_batch_tokens": 128,
                "learning_rate": 0.003,
            },
            "watching": {"log_every": 10, "evaluations": 3, "tensorboard": False, "report": False},
        }
        for part, values in changes.items():
            tree[part] = {**tree[part], **values} if isinstance(tree.get(part), dict) else values
        if tree["task"].get("dataset"):  # which has columns of its own
            own = changes["task"]
            tree["task"] = {k: v for k, v in tree["task"].items() if k not in ("text", "label") or k in own}
        return resolve(FinetuneSettings, tree)

    return make
