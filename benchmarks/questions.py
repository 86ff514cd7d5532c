"""Questions about passages after small pretraining: SQuAD v1.1 and CMRC 2018.

    python -m benchmarks.questions squad ENGLISH_MODEL --shared ../shared/data --save
    python -m benchmarks.questions cmrc2018 CHINESE_MODEL --shared ../shared/data --save

SQuAD: trained on the 11,877 questions of its training set that are at hand and on SQuADShifts (Amazon,
Reddit), scored on the whole dev set of v1.1. CMRC 2018: its own training and dev sets. What the checkpoint
was trained on, and how long the tuning took, stands beside the score.
"""

from __future__ import annotations

import argparse
import re
import tempfile
from pathlib import Path
from typing import Any

from albertine.bench.machine import describe
from albertine.interop.huggingface import load_model
from albertine.settings import resolve
from albertine.tasks.finetune import finetune
from albertine.tasks.record import pretraining
from albertine.tasks.settings import FinetuneSettings
from benchmarks.keep import keep

TASKS: dict[str, dict[str, Any]] = {
    "squad": {
        "train": [
            "squad1.1/train_subset-v1.1.json.xz",
            "squadshifts/amazon_reviews_v1.0.json.xz",
            "squadshifts/reddit_v1.0.json.xz",
        ],
        "dev": "squad1.1/dev-v1.1.json.xz",
    },
    "cmrc2018": {
        "train": ["cmrc2018/train.json.xz"],
        "dev": "cmrc2018/dev.json.xz",
        "answer": {"rules": "cmrc"},
    },
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("task", choices=sorted(TASKS))
    parser.add_argument("model", type=Path)
    parser.add_argument("--shared", type=Path, default=Path("../shared/data"), help="folder of the data sets")
    parser.add_argument("--epochs", type=float, default=1)
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--rate", type=float, default=5e-4)
    parser.add_argument("--save", action="store_true", help="write the result under benchmarks/results")
    arguments = parser.parse_args()
    files = TASKS[arguments.task]
    task = {
        **files,
        "kind": "answers",
        "train": [arguments.shared / path for path in files["train"]],
        "dev": arguments.shared / files["dev"],
        "max_length": arguments.length,
    }
    with tempfile.TemporaryDirectory() as scratch:
        settings = resolve(
            FinetuneSettings,
            {
                "name": arguments.task,
                "output": scratch,
                "task": task,
                "encoder": {"folder": arguments.model},
                "training": {
                    "epochs": arguments.epochs,
                    "batch_size": 32,
                    "learning_rate": arguments.rate,
                },
                "watching": {"evaluations": 1, "tensorboard": False, "report": False},
            },
        )
        result = finetune(settings)
        config = load_model(arguments.model).config
        found = {
            "model": f"{config.num_hidden_layers} depths of {config.hidden_size}",
            "pretraining": re.sub(r"\S*/", "", pretraining(arguments.model) or "unknown"),  # no paths
            "train": files["train"],
            "dev": files["dev"],
            "epochs": arguments.epochs,
            "length": arguments.length,
            "minutes": result.outcome.elapsed / 60,
            "scores": dict(result.scores),
        }
    print(found)
    if arguments.save:
        keep(f"questions-{arguments.task}", {"machine": describe(), **found})


if __name__ == "__main__":
    main()
