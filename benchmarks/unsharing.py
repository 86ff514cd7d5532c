"""Shared against unshared weights in fine-tuning: the same checkpoint, tasks and settings, several seeds.

    python -m benchmarks.unsharing MODEL --shared ../shared/data --save

Three tasks in the manner of Su Jianlin's comparison (kexue.fm 7187): sentiment, many classes and
relations, from a model of one block for all depths. For each the score, the score after the first epoch, and
the seconds an epoch of training takes; shared and unshared take turns, seed by seed.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path
from typing import Any

from albertine.bench.machine import describe
from albertine.core.settings import resolve
from albertine.interop.model_names import model_folder
from albertine.tasks.finetune import finetune
from albertine.tasks.settings import FinetuneSettings
from albertine.training.metrics import read_metrics
from albertine.training.progress import Reporter
from benchmarks.keep import keep

TASKS: dict[str, dict[str, Any]] = {
    "sentiment": {"dataset": "chnsenticorp", "folder": "chnsenticorp", "examples": 1500, "max_length": 128},
    "iflytek": {"dataset": "fewclue-iflytek", "folder": "fewclue", "examples": 1500, "max_length": 128},
    "relations": {"dataset": "duie", "folder": "duie_sample", "max_length": 128},
}
"""What `task` of the settings has; folders are those below the folder of the data sets."""

EPOCHS = {"sentiment": 3, "iflytek": 4, "relations": 4}


def run(name: str, seed: int, unshare: str, arguments: argparse.Namespace, scratch: Path) -> dict[str, float]:
    task = {**TASKS[name], "folder": arguments.shared / TASKS[name]["folder"]}
    epochs = EPOCHS[name]
    settings = resolve(
        FinetuneSettings,
        {
            "name": f"{name}-{unshare}-{seed}",
            "output": scratch,
            "seed": seed,
            "task": task,
            "encoder": {"folder": arguments.model, "unshare": unshare},
            "training": {
                "epochs": epochs,
                "batch_size": arguments.batch,
                "learning_rate": arguments.rate,
            },
            "watching": {"evaluations": epochs, "log_every": 10, "tensorboard": False},
        },
    )
    result = finetune(settings, reporter=Reporter(quiet=True))
    rows = read_metrics(result.folder / "metrics.jsonl")
    first = next(row["evaluation"] for row in rows if "evaluation" in row)
    metric = next(iter(first))  # the one that picks the best model stands first
    trained = [row for row in rows if "tokens" in row]
    pace = statistics.median(row["tokens_per_second"] for row in trained)  # few windows hold an evaluation
    return {
        "score": result.scores[metric],
        "first_epoch": first[metric],
        "seconds_an_epoch": trained[-1]["tokens"] / pace / epochs,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=model_folder, help="a folder, or the name of a released model")
    parser.add_argument("--name", help="of the model in the results; default: that of its folder")
    parser.add_argument("--shared", type=Path, default=Path("../shared/data"), help="folder of the data sets")
    parser.add_argument("--tasks", nargs="+", choices=tuple(TASKS), default=list(TASKS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--rate", type=float, default=2e-4)
    parser.add_argument("--save", action="store_true", help="write the result under benchmarks/results")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        for name in arguments.tasks:
            found: dict[str, list[dict[str, float]]] = {"shared": [], "unshared": []}
            for seed in range(1, arguments.seeds + 1):
                for how, unshare in (("shared", "no"), ("unshared", "all")):
                    found[how].append(run(name, seed, unshare, arguments, Path(scratch)))
                    print(name, how, seed, found[how][-1], flush=True)
            print_and_save(name, found, arguments)


def print_and_save(name: str, runs: dict[str, list[dict[str, float]]], arguments: argparse.Namespace) -> None:
    """Print, and keep, a task that is done."""
    middle = {
        how: {key: statistics.median(row[key] for row in rows) for key in rows[0]}
        for how, rows in runs.items()
    }
    for how, row in middle.items():
        print(f"{name} {how:9} " + "  ".join(f"{key} {value:.4g}" for key, value in row.items()))
    if arguments.save:
        settings = {
            "seeds": arguments.seeds,
            "batch": arguments.batch,
            "rate": arguments.rate,
            "epochs": EPOCHS[name],
            "task": TASKS[name],
        }
        record = {"settings": settings, "runs": runs, "median": middle}
        name_of_model = arguments.name or arguments.model.name
        keep(f"unsharing-{name}", {"machine": describe(), "model": name_of_model, **record})


if __name__ == "__main__":
    main()
