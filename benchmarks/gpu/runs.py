"""Runs on the GPU: pretraining that is saved and resumed, and a recipe on a real corpus."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from safetensors.torch import load_file
from torch import Tensor

from benchmarks.gpu.checks import distance
from benchmarks.gpu.findings import Findings
from benchmarks.gpu.place import Place

STEPS, SAVED = 4, 2
NOISE = 3.0
"""How much further from a straight run a resumed one may end than a second straight one."""


def resuming(place: Place, found: Findings) -> None:
    """Four steps straight, four again, and two from the checkpoint in the middle, with each optimiser.

    Where two straight runs end with the same bits, so must the resumed one. The backward pass
    of flash attention adds with atomics, so on a card they need not; then all differences are reported,
    relative to the length of the way from the checkpoint to the end.
    """
    with tempfile.TemporaryDirectory() as scratch:
        corpus = _corpus(Path(scratch))
        for optimizer, dropout in (("lamb", 0.0), ("adamw", 0.1)):
            ways: dict[str, dict[str, Tensor]] = {}
            middle = Path(scratch, "runs", f"{optimizer}-straight", "checkpoints", f"step-{SAVED}")
            for name in ("straight", "again", "resumed"):
                tree = _settings(Path(scratch), corpus, f"{optimizer}-{name}", optimizer, dropout, place)
                end = _pretrained(tree, middle if name == "resumed" else "never")
                begin = load_file(middle / "model.safetensors")
                ways[name] = {key: end[key] - tensor for key, tensor in begin.items()}
            way = f"{optimizer}, dropout {dropout}"
            again, resumed = (distance(ways[name], ways["straight"]) for name in ("again", "resumed"))
            found.note(f"{way}: a second run differs by", again)
            found.bounded(f"{way}: a resumed run differs by", resumed, NOISE * again)


def _pretrained(tree: dict[str, Any], resume: str | Path) -> dict[str, Tensor]:
    """The weights at the end of a run."""
    from albertine.core.settings import resolve
    from albertine.pretraining.run import pretrain
    from albertine.pretraining.settings import PretrainingSettings
    from albertine.training.progress import Reporter

    result = pretrain(resolve(PretrainingSettings, tree), resume=resume, reporter=Reporter(quiet=True))
    if not (result.outcome.done and result.outcome.step == STEPS):
        raise RuntimeError(f"the run ended at step {result.outcome.step}, not {STEPS}")
    weights: dict[str, Tensor] = load_file(
        result.folder / "checkpoints" / f"step-{STEPS}" / "model.safetensors"
    )
    return weights


def _corpus(scratch: Path) -> Path:
    """Of 150 kB of the demo text, with a vocabulary of 500."""
    from albertine.corpus.prepare import write_corpus
    from albertine.tokenizers.load import load_tokenizer
    from tests.toy import toy_vocabulary

    text, vocabulary = toy_vocabulary(scratch, 150_000)
    write_corpus([text], scratch / "corpus", load_tokenizer(vocabulary), "en", workers=1, held_out=0.3)
    return scratch / "corpus"


def _settings(
    scratch: Path, corpus: Path, name: str, optimizer: str, dropout: float, place: Place
) -> dict[str, Any]:
    shape = {
        "hidden_size": 32 if place.rehearsal else 256,
        "num_attention_heads": 2 if place.rehearsal else 4,
    }
    shape |= {"intermediate_size": 64 if place.rehearsal else 1024, "num_hidden_layers": 3}
    dropouts = {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout}
    return {
        "name": name,
        "output": scratch / "runs",
        "corpus": corpus,
        "model": {"preset": "albert-base-v2", "change": {**shape, **dropouts}},
        "objective": {"max_length": 64},
        "training": {
            "steps": STEPS,
            "batch_size": 32,
            "micro_batch_tokens": 1024,
            "optimizer": optimizer,
            "learning_rate": 0.001,
            "compile": not place.rehearsal,
            "workers": 0,
        },
        "watching": {
            "log_every": 1,
            "evaluate_every": STEPS,
            "evaluate_sequences": 16,
            "checkpoint_every": SAVED,
            "tensorboard": False,
        },
    }


def recipe(corpus: Path, seconds: float, found: Findings) -> None:
    """ALBERT-base by the paper's recipe for so many seconds, a line a step: at batch 4096 the recipe's own
    fifty steps take minutes."""
    with tempfile.TemporaryDirectory() as output:
        done = subprocess.run(recipe_command(corpus, Path(output), seconds))
        found.demand(done.returncode == 0, f"pretrain ended with code {done.returncode}")
        lines = Path(output, "albert-base-en", "metrics.jsonl").read_text().splitlines()
    found.note("metrics", [json.loads(line) for line in lines[:2] + lines[-3:]])


def recipe_command(corpus: Path, output: Path, seconds: float) -> list[str]:
    overrides = [f"corpus={corpus}", f"output={output}", f"training.minutes={seconds / 60:.2f}"]
    overrides += ["training.steps=null", "training.compile=true"]
    overrides += ["watching.log_every=1", "watching.evaluate_sequences=512"]
    words = ["pretrain", "--config", "recipes/albert-base-en.yaml", *overrides, "--resume", "never"]
    return [sys.executable, "-m", "albertine", *words]
