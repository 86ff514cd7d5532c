"""A small corpus from the demo text, and settings for runs that take seconds."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from albertine.core.settings import resolve
from albertine.pretraining.settings import PretrainingSettings
from tests.session_folders import made_once
from tests.toy import MODEL, toy_corpus

Build = Callable[..., PretrainingSettings]


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """About 150 kB of novels, cut at chapters, with a vocabulary of 500 tokens."""
    return made_once(tmp_path_factory, "pre training", toy_corpus) / "corpus"


@pytest.fixture(scope="session")
def cls_last(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same text with a vocabulary of XLNet's kind."""
    return made_once(tmp_path_factory, "cls last", partial(toy_corpus, cls_last=True)) / "corpus"


@pytest.fixture
def build(corpus: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Build:
    """Settings of a toy run in a fresh folder; keyword arguments change parts of them. Segments with a reused
    part are of the corpus whose vocabulary lays them out."""

    def make(**changes: Any) -> PretrainingSettings:
        if changes.get("objective", {}).get("permutation", {}).get("reuse"):
            changes = {"corpus": request.getfixturevalue("cls_last"), **changes}
        tree: dict[str, Any] = {
            "name": "toy",
            "output": tmp_path / "runs",
            "corpus": corpus,
            "model": {"preset": "albert-tiny-zh", "change": {**MODEL, "hidden_dropout_prob": 0.1}},
            "objective": {"max_length": 32},
            "training": {
                "precision": "float32",  # what a test expects must not depend on the processor
                "steps": 8,
                "batch_size": 8,
                "micro_batch_tokens": 100,
                "learning_rate": 0.01,
                "workers": 0,
            },
            "watching": {
                "log_every": 2,
                "evaluate_every": 4,
                "evaluate_sequences": 8,
                "checkpoint_every": 3,
                "tensorboard": False,
            },
        }
        for part, values in changes.items():
            tree[part] = {**tree[part], **values} if isinstance(tree.get(part), dict) else values
        return resolve(PretrainingSettings, tree)

    return make
