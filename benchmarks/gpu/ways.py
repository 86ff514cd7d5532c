"""Every kind of model in a real run: three steps on the card beside the same three on the processor."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

from benchmarks.gpu.findings import Findings
from benchmarks.gpu.place import Place
from tests.toy import RUN, toy_corpus

RECIPES = {
    "albert-tiny-en": "sentence order, LAMB",
    "bert-base-en": "next sentence, nothing shared",
    "albertine-tiny-en": "rotary, Muon",
    "xlnet-tiny-en": "two streams, relative, memory",
    "transformer-xl-tiny-en": "causal, relative, memory",
    "universal-tiny-en": "halting, signals",
    "equilibrium-tiny-en": "a fixed point",
}
SAME = [
    "training.steps=3",
    "training.batch_size=8",
    "watching.log_every=1",
    "model.change.hidden_dropout_prob=0",
    "model.change.attention_probs_dropout_prob=0",
    "objective.jacobian=null",  # its directions are drawn on the device
    "stages=[]",
]
LOSS = {"float32": 1e-3, "bfloat16": 0.03}
"""Bound of the largest difference of a step's loss, relative to the processor's in float32."""
NORM = {"float32": 2e-3, "bfloat16": 0.15}
"""The same of the first gradient's length."""


def ways(place: Place, found: Findings) -> None:
    """The losses of the steps, the first gradient's length, and the scores of held-out text."""
    with tempfile.TemporaryDirectory() as scratch:
        folders = {last: Path(scratch, f"cls-last-{last}") for last in (False, True)}
        corpora = {last: toy_corpus(folder, cls_last=last) for last, folder in folders.items()}
        for recipe, overrides in RECIPES.items():
            name = f"{recipe} ({overrides})"
            corpus = corpora[recipe.startswith("xlnet")]
            try:
                right = _run(recipe, corpus, Path(scratch, "processor"), torch.device("cpu"), "float32")
                for precision in ("float32",) if recipe.startswith("equilibrium") else LOSS:
                    there = _run(recipe, corpus, Path(scratch, precision), place.device, precision)
                    _compared(found, f"{name}, {precision}", there, right, precision)
            except Exception as error:  # the other kinds are to be heard too
                found.demand(False, f"{name}: {type(error).__name__}: {str(error)[:300]}")


def _run(recipe: str, corpus: Path, output: Path, device: torch.device, precision: str) -> dict[str, Any]:
    """What a run wrote down: the lines of its steps, and the scores of its end."""
    from albertine.core.settings import load
    from albertine.pretraining import run
    from albertine.pretraining.settings import PretrainingSettings
    from albertine.training.distributed import World
    from albertine.training.progress import Reporter

    words = [*RUN, *SAME, f"training.precision={precision}"]
    words += [f"corpus={json.dumps(str(corpus))}", f"output={json.dumps(str(output))}"]
    if recipe.startswith("xlnet"):
        words += ["objective.permutation.reuse=16", "objective.permutation.predictions=5"]
    if recipe.startswith("equilibrium"):
        words.append("model.change.num_hidden_layers=8")
    settings = load(PretrainingSettings, Path("recipes", f"{recipe}.yaml"), words)
    with patch.object(run, "start", lambda: World(device=device)):
        result = run.pretrain(settings, reporter=Reporter(quiet=True))
    lines = (result.folder / "metrics.jsonl").read_text().splitlines()
    steps = [row for row in map(json.loads, lines) if "grad_norm" in row]
    return {"steps": steps, "scores": result.outcome.scores}


def _compared(
    found: Findings, name: str, there: dict[str, Any], right: dict[str, Any], precision: str
) -> None:
    pairs = list(zip(there["steps"], right["steps"], strict=True))
    losses = [abs(a["loss"] - b["loss"]) / b["loss"] for a, b in pairs]
    found.bounded(f"{name}: loss", max(losses), LOSS[precision])
    first, wanted = pairs[0][0]["grad_norm"], pairs[0][1]["grad_norm"]
    found.bounded(f"{name}: first gradient", abs(first - wanted) / wanted, NORM[precision])
    ends = {key: value for key, value in right["scores"].items() if key.endswith("loss")}
    apart = [abs(there["scores"][key] - value) / value for key, value in ends.items()]
    found.bounded(f"{name}: held out", max(apart), LOSS[precision])
