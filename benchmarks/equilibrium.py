"""What a loop to its fixed point learns beside as plain an ALBERT, and what a penalty on its Jacobian does.

    python -m benchmarks.equilibrium --save

On the English demo text, each for the same steps: ALBERT's block over fixed depths; the same block with input
injection run to its fixed point (Anderson, the first part of the run unrolled); and that with the penalty
(Bai et al. 2021, 2106.14342). Recorded of each: held-out loss, tokens a second, iterations and residual on
held-out text, the spectral radius of a step at the fixed point, and the residual over depth of the block
applied again and again. The same seeds, batches and masks for all. A core needs about ten minutes by default.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

from albertine.analysis.depth import study_depth
from albertine.bench.machine import describe
from albertine.core.settings import resolve
from albertine.interop.huggingface.folders import load_model
from albertine.pretraining.data import held_out_batches
from albertine.pretraining.demo import demo_texts
from albertine.pretraining.run import pretrain
from albertine.pretraining.settings import PretrainingSettings
from albertine.training.metrics import read_metrics
from benchmarks.keep import keep

SHAPE = {
    "hidden_size": 128,
    "embedding_size": 64,
    "intermediate_size": 512,
    "num_attention_heads": 4,
    "positions": "rotary",
}
SOLVING = {"solver": "anderson", "input_injection": True}


def settings_of(
    folder: Path, name: str, options: argparse.Namespace, change: dict[str, Any], jacobian: float | None
) -> PretrainingSettings:
    solves = "solver" in change
    tree: dict[str, Any] = {
        "name": name,
        "output": folder / "runs",
        "corpus": folder / "corpus",
        "seed": options.seed,
        "model": {
            "preset": "albert-tiny-zh",
            "change": {**SHAPE, **change},
            "embeddings": "wide",
            "output_bias": "unigram",
        },
        "objective": {
            "pairs": "none",
            "max_length": 32,
            "masking": {"probability": 0.2, "ngram": 1, "whole_word": False},
            "jacobian": jacobian,
            **({} if jacobian is None else {"jacobian_frequency": options.frequency}),
        },
        "training": {
            "precision": "float32",
            "steps": options.steps,
            "batch_size": 32,
            "micro_batch_tokens": 2048,
            "optimizer": "muon",
            "warmup": 0.05,
            "workers": 0,
        },
        "watching": {
            "log_every": max(1, options.steps // 20),
            "evaluate_every": options.steps,
            "evaluate_sequences": 128,
            "checkpoint_every": options.steps,
            "tensorboard": False,
        },
    }
    if solves:
        tree["stages"] = [{"begin": 0, "depth": options.depths}, {"begin": options.unrolled}]
    return resolve(PretrainingSettings, tree)


def trained(settings: PretrainingSettings) -> dict[str, Any]:
    """The numbers of a run and of its final model."""
    result = pretrain(settings)
    rows = read_metrics(result.folder / "metrics.jsonl")
    lines = [row for row in rows if "lr" in row]
    judged = [row["evaluation"] for row in rows if "evaluation" in row][-1]
    last = lines[-max(1, len(lines) // 4) :]
    found = {
        "held_out_loss": judged["mlm_loss"],
        "context_gain": result.no_skill["mask_loss"] - judged["mask_loss"],
    }
    found["tokens_per_second"] = statistics.median(row["tokens_per_second"] for row in last)
    for name in ("iterations", "residual", "converged"):
        if name in judged:
            found[name] = judged[name]
        if f"gradient_{name}" in last[-1]:
            found[f"gradient_{name}"] = statistics.mean(row[f"gradient_{name}"] for row in last)
    batch = held_out_batches(settings.corpus, settings.objective, sequences=16)[0]
    study = study_depth(load_model(result.folder / "final"), batch.packed, depths=48)
    found["radius_median"], found["radius_largest"] = statistics.median(study.radius), max(study.radius)
    found["found_at_1e-5"] = sum(study.converged) / len(study.converged)
    found["residual_over_depth"] = [float(f"{x:.3g}") for x in study.residual]
    found["distance_over_depth"] = [float(f"{x:.3g}") for x in study.distance]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--depths", type=int, default=4, help="of the plain one, and while unrolled")
    parser.add_argument("--iterations", type=int, default=24, help="most of the solver")
    parser.add_argument("--unrolled", type=float, default=0.5, help="share of the run before the solver")
    parser.add_argument("--weight", type=float, default=2.0, help="of the Jacobian")
    parser.add_argument("--frequency", type=float, default=0.35)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--save", action="store_true", help="keep the result below benchmarks/results")
    options = parser.parse_args()
    solving = {**SOLVING, "num_hidden_layers": options.iterations}
    cases: dict[str, tuple[dict[str, Any], float | None]] = {
        "ALBERT": ({"num_hidden_layers": options.depths}, None),
        "fixed point": (solving, None),
        "fixed point, Jacobian": (solving, options.weight),
    }
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        words = ["prepare", *map(str, demo_texts()["en"]), "--output", str(folder / "corpus")]
        command = [sys.executable, "-m", "albertine", *words, "--vocab-size", "2000"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        for name, (change, jacobian) in cases.items():
            slug = name.replace(", ", "-").replace(" ", "-")
            results[name] = found = trained(settings_of(folder, slug, options, change, jacobian))
            print(name, {key: x for key, x in found.items() if not isinstance(x, list)}, flush=True)
    without, penalised = results["fixed point"], results["fixed point, Jacobian"]
    fewer = 1 - penalised["iterations"] / without["iterations"]
    dearer = penalised["held_out_loss"] / without["held_out_loss"] - 1
    print(f"with the penalty {fewer:.0%} fewer iterations, loss {dearer:+.1%}")
    if options.save:
        record = {
            **vars(options),
            "threads": torch.get_num_threads(),
            "machine": describe(),
            "models": results,
        }
        keep("equilibrium", record)


if __name__ == "__main__":
    main()
