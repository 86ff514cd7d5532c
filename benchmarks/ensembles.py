"""Ensembles of models of two depths: members, what they score together, and the rule that picked them.

    python -m benchmarks.ensembles MODEL --shared ../shared/data --save

Four candidates a task: two seeds with the checkpoint's own number of depths, two with half as many more. The
dev set picks three, the best ones or by forward selection, and the labelled test set is scored once. The
tasks are ChnSentiCorp (sentiment) and C3 (multiple choice).
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

from albertine.bench.machine import describe
from albertine.core.settings import resolve
from albertine.evaluation.ensembles import Rule
from albertine.interop.huggingface.folders import load_model
from albertine.interop.model_names import model_folder
from albertine.tasks.ensemble import ensemble
from albertine.tasks.finetune import finetune
from albertine.tasks.rescore import open_run
from albertine.tasks.settings import FinetuneSettings
from albertine.tasks.task_data import once
from albertine.training.progress import Reporter
from benchmarks.keep import keep

TASKS: dict[str, dict[str, Any]] = {
    "chnsenticorp": {"folder": "chnsenticorp", "max_length": 128, "examples": 4000},
    "c3": {"folder": "c3", "max_length": 64, "examples": 3000},
}
RULES: dict[str, Rule] = {"chnsenticorp": "best", "c3": "greedy"}
TRAINING = {"epochs": 2, "batch_size": 32, "learning_rate": 3e-4}
PICK = 3


def candidate(name: str, depth: int, seed: int, arguments: argparse.Namespace, scratch: Path) -> Path:
    """The folder of one run."""
    task = {**TASKS[name], "dataset": name, "folder": arguments.shared / TASKS[name]["folder"]}
    settings = resolve(
        FinetuneSettings,
        {
            "name": f"{name}-depth-{depth}-seed-{seed}",
            "output": scratch,
            "seed": seed,
            "task": task,
            "encoder": {"folder": arguments.model, "num_hidden_layers": depth},
            "training": TRAINING,
            "watching": {"evaluations": 2, "tensorboard": False, "report": False},
        },
    )
    return finetune(settings, reporter=Reporter(quiet=True)).folder


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=model_folder, help="a folder, or the name of a released model")
    parser.add_argument("--shared", type=Path, default=Path("../shared/data"), help="folder of the data sets")
    parser.add_argument("--tasks", nargs="+", choices=tuple(TASKS), default=list(TASKS))
    parser.add_argument("--save", action="store_true", help="write the result under benchmarks/results")
    arguments = parser.parse_args()
    depth = load_model(arguments.model).config.num_hidden_layers
    with tempfile.TemporaryDirectory() as scratch:
        for name in arguments.tasks:
            shapes = [(depths, seed) for depths in (depth, depth + depth // 2) for seed in (1, 2)]
            folders = [candidate(name, *shape, arguments, Path(scratch)) for shape in shapes]
            read = once()
            whole = ensemble([open_run(folder, read=read) for folder in folders], pick=PICK, rule=RULES[name])
            found = {
                "metric": whole.family.metrics[0],
                "rule": whole.rule,
                "members": [whole.candidates[i].run.name for i in whole.members],
                "candidates": {member.run.name: member.scores for member in whole.candidates},
                "together": whole.scores,
            }
            print(name, found, flush=True)
            if arguments.save:
                settings = {"training": TRAINING, "task": TASKS[name]}
                record = {"model": arguments.model.name, "settings": settings, **found}
                keep(f"ensembles-{name}", {"machine": describe(), **record})


if __name__ == "__main__":
    main()
