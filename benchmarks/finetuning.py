"""Fine-tuning against transformers and its Trainer: same checkpoint, examples and settings, several seeds.

    python -m benchmarks.finetuning MODEL tnews task.dataset=tnews task.folder=../shared/data/tnews --save
    python -m benchmarks.finetuning MODEL cmrc2018 task.kind=answers task.answer.rules=cmrc \\
        task.train=../shared/data/cmrc2018/train.json.xz task.dev=../shared/data/cmrc2018/trial.json.xz

Any task of `albertine finetune` that has classes, options, tags or answers, with its settings. Both make
tokens and score the dev set once, at the end, inside the measured time, and both compute in bfloat16 where
the processor can; reading the files counts for ours alone. They take turns, seed by seed. Google's linear
schedule, which is ours, falls from the first step on, that of transformers from the end of the warm-up: ours
is given the peak with which both have the rate `training.learning_rate` there, and theirs the epsilon of Adam
that the paper has.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from albertine.bench.machine import describe
from albertine.core.settings import apply_overrides, resolve
from albertine.interop.model_names import model_folder
from albertine.tasks.dataset_files import Data
from albertine.tasks.finetune import finetune
from albertine.tasks.initial_model import open_encoder
from albertine.tasks.kind_settings import TaskChoice
from albertine.tasks.settings import FinetuneSettings
from albertine.tasks.task_data import read_data
from albertine.tokenizers.base import Tokenizer
from albertine.training.progress import Reporter
from benchmarks import peer_finetuning
from benchmarks.keep import keep

WARMUP = 0.1


def settings_of(arguments: argparse.Namespace, folder: Path, seed: int) -> FinetuneSettings:
    """The settings of a run, its rate that of the whole linear fall."""
    fixed = {
        "name": f"seed-{seed}",
        "output": str(folder),
        "seed": seed,
        "encoder": {"folder": str(arguments.model)},
        "training": {"epochs": 3, "batch_size": 32, "learning_rate": 1e-4},
        "watching": {"evaluations": 1, "tensorboard": False},
    }
    tree = apply_overrides(fixed, arguments.settings)
    tree["training"]["warmup"] = WARMUP
    tree["training"]["learning_rate"] = float(tree["training"]["learning_rate"]) / (1 - WARMUP)
    return resolve(FinetuneSettings, tree)


def ours(settings: FinetuneSettings, metric: str) -> dict[str, float]:
    """Seconds, and the score of the dev set; a test file, which the peer does not answer, is left out."""

    def read(task: TaskChoice, tokenizer: Tokenizer) -> Data:
        return replace(read_data(task, tokenizer), test=None)

    begin = time.perf_counter()
    result = finetune(settings, reporter=Reporter(quiet=True), read=read)
    return {"seconds": time.perf_counter() - begin, "score": result.scores[metric]}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=model_folder, help="a folder, or the name of a released model")
    parser.add_argument("name", help="of the result")
    parser.add_argument("settings", nargs="+", help="key.sub=value, as of albertine finetune")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--save", action="store_true", help="write the result under benchmarks/results")
    arguments = parser.parse_args()
    runs: dict[str, list[dict[str, float]]] = {"albertine": [], "transformers": []}
    with tempfile.TemporaryDirectory() as scratch:
        first = settings_of(arguments, Path(scratch), 1)
        data = read_data(first.task, open_encoder(first)[1])
        metric = data.family.metrics[0]
        for seed in range(1, arguments.seeds + 1):
            settings = settings_of(arguments, Path(scratch), seed)
            runs["albertine"].append(ours(settings, metric))
            runs["transformers"].append(peer_finetuning.finetune(settings, data, Path(scratch) / "theirs"))
            print(seed, {who: rows[-1] for who, rows in runs.items()}, flush=True)
    middle = {
        who: {key: statistics.median(row[key] for row in rows) for key in ("score", "seconds")}
        for who, rows in runs.items()
    }
    for who, row in middle.items():
        print(f"{who:14} median {metric} {row['score']:.4f}  median {row['seconds']:.1f} s")
    share = middle["albertine"]["seconds"] / middle["transformers"]["seconds"]
    print(f"albertine takes {share:.2f} of the time of transformers")
    if arguments.save:
        train, dev = (len(set(map(id, found.examples))) if found else 0 for found in (data.train, data.dev))
        keep(
            f"finetuning-{arguments.name}",
            {
                "machine": describe(),
                "model": arguments.model.name,
                "settings": arguments.settings,
                "examples": {"train": train, "dev": dev},
                "metric": metric,
                "runs": runs,
                "median": middle,
                "share": share,
            },
        )


if __name__ == "__main__":
    main()
