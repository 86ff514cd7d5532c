"""What 8-bit integers cost in points: three tuned tasks judged in float32, bfloat16 and int8.

    python -m benchmarks.int8 MODEL --shared ../shared/data --save

One sentence's class (TNEWS), sentiment (ChnSentiCorp) and entities (CLUENER), each tuned once from the same
checkpoint and scored on its dev set three times. The vectors of TNEWS's dev texts (mean of the tokens) are
compared as well, by cosine with those of float32.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from albertine.bench.machine import describe
from albertine.core.batch import pack
from albertine.core.precision import InferencePrecision
from albertine.core.settings import resolve
from albertine.interop.model_names import model_folder
from albertine.model.pooling import text_vectors
from albertine.tasks.finetune import finetune
from albertine.tasks.rescore import TunedRun, evaluate_run, model_of, open_run
from albertine.tasks.settings import FinetuneSettings
from albertine.tasks.task_data import once
from albertine.training.progress import Reporter
from benchmarks.keep import keep

TASKS: dict[str, dict[str, Any]] = {
    "tnews": {"folder": "tnews", "max_length": 64, "examples": 5000},
    "chnsenticorp": {"folder": "chnsenticorp", "max_length": 128, "examples": 3000},
    "cluener": {"folder": "cluener2020", "max_length": 64, "examples": 3000},
}
TRAINING = {"epochs": 2, "batch_size": 32, "learning_rate": 3e-4}
FORMATS: tuple[InferencePrecision, ...] = ("float32", "bfloat16", "int8")
TEXTS, TOGETHER = 2048, 64


def tune(name: str, arguments: argparse.Namespace, scratch: Path) -> Path:
    """The folder of a run."""
    task = {**TASKS[name], "dataset": name, "folder": arguments.shared / TASKS[name]["folder"]}
    settings = resolve(
        FinetuneSettings,
        {
            "name": name,
            "output": scratch,
            "task": task,
            "encoder": {"folder": arguments.model},
            "training": TRAINING,
            "watching": {"evaluations": 1, "tensorboard": False, "report": False},
        },
    )
    return finetune(settings, reporter=Reporter(quiet=True)).folder


@torch.inference_mode()
def cosines(run: TunedRun) -> dict[str, dict[str, float]]:
    """Mean and least cosine of the vectors of the first dev texts with those of float32."""
    assert run.data.dev is not None
    texts = run.data.dev.ids[:TEXTS]
    batches = [pack(texts[i : i + TOGETHER]) for i in range(0, len(texts), TOGETHER)]
    model = model_of(run).base

    def vectors(precision: InferencePrecision) -> torch.Tensor:
        model.precision = precision
        return torch.cat([text_vectors(model, batch, "mean", normalize=False) for batch in batches])

    exact = vectors("float32")
    found = {name: F.cosine_similarity(vectors(name), exact) for name in FORMATS[1:]}
    return {name: {"mean": float(each.mean()), "least": float(each.min())} for name, each in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=model_folder, help="a folder, or the name of a released model")
    parser.add_argument("--shared", type=Path, default=Path("../shared/data"), help="folder of the data sets")
    parser.add_argument("--save", action="store_true", help="write the result under benchmarks/results")
    arguments = parser.parse_args()
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for name in TASKS:
            folder, read = tune(name, arguments, Path(scratch)), once()
            runs = {form: open_run(folder, precision=form, read=read) for form in FORMATS}
            metric = runs["float32"].family.metrics[0]
            scores = {form: evaluate_run(run, ["dev"])[0].scores[metric] for form, run in runs.items()}
            found[name] = {"metric": metric, "scores": scores, "cosines": cosines(runs["float32"])}
            print(name, found[name], flush=True)
    if arguments.save:
        record = {"model": arguments.model.name, "training": TRAINING, "settings": TASKS, "tasks": found}
        keep("int8", {"machine": describe(), **record})


if __name__ == "__main__":
    main()
