"""A tiny corpus, a pretraining run, a tuned run, a model folder, an export and predictions of a table."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import albertine
from albertine.cli.app import run
from tests.toy import MODEL, demo_text

STEPS = 3
WORDS = ("glad", "sad")


@dataclass(frozen=True)
class Products:
    """What the functions of the package returned and where it lies.

    Attributes:
        folder: all of it. corpus, model, export, predictions: in that folder.
        manifest, pretrained, tuned, exported, converted: returned by `prepare`, `pretrain`, `finetune`,
            `export` and `convert`.
    """

    folder: Path
    corpus: Path
    model: Path
    export: Path
    predictions: Path
    manifest: Any
    pretrained: Any
    tuned: Any
    exported: Any
    converted: Any


def make(folder: Path) -> Products:
    """All products in a new folder, from text of the demo, by the public functions alone.

    The vocabulary is that of a released model: one that was trained here could differ between processors.
    """
    text = demo_text("en", folder / "text", 100_000)
    corpus, model, export = folder / "corpus", folder / "model", folder / "export"
    manifest = albertine.prepare(
        text, corpus, tokenizer="albertine-mini-en", language="en", workers=1, held_out=0.3, seed=5
    )
    pretrained = albertine.pretrain(
        name="pretrained",
        output=folder / "runs",
        corpus=corpus,
        model={"preset": "albert-base-v2", "change": {**MODEL, "embedding_size": 16}},
        objective={"max_length": 64},
        training={
            "steps": STEPS,
            "batch_size": 8,
            "learning_rate": 0.05,
            "workers": 0,
            "precision": "float32",
        },
        watching={"log_every": 1, "evaluate_every": STEPS, "evaluate_sequences": 8, "tensorboard": False},
        seed=7,
    )
    converted = albertine.convert(pretrained.folder, model)
    rows = [{"text": f"he was {word} at home", "label": word} for word in WORDS * 8]
    tuned = albertine.finetune(
        model,
        train=rows,
        dev=rows[:4],
        test=rows[:4],
        name="tuned",
        output=folder / "runs",
        task={"max_length": 16},
        training={"steps": STEPS, "batch_size": 4},
        watching={"log_every": 1, "tensorboard": False},
    )
    exported = albertine.export(tuned.folder, export)
    table, predictions = folder / "table.csv", folder / "predictions.csv"
    with table.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("text", "other"), *((row["text"], "kept") for row in rows[:3])])
    words = ["predict", "classify", tuned.folder, "--file", table, "-o", predictions, "--top", "2"]
    code = run([*map(str, words), "--workers", "1"])
    assert code == 0, code
    return Products(
        folder, corpus, model, export, predictions, manifest, pretrained, tuned, exported, converted
    )
