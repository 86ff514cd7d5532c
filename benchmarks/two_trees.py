"""This source tree beside another one: encoding, a training step and an optimizer step, in turn, in
processes of their own.

    git worktree add ../before COMMIT
    python -m benchmarks.two_trees ../before/src --rounds 5 --save

Every round starts each tree once, so that both meet the same hours of the machine; of a case the least time
of a round counts, and of the ratios of the rounds the median. Random weights, ALBERT base and tiny (Chinese).
"""

from __future__ import annotations

import argparse
import inspect
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch

HERE = Path(__file__).resolve().parents[1] / "src"
PRESETS = {"base": ("albert-base-v2", 12), "tiny": ("albert-tiny-zh", 32)}
"""Preset, and how many texts a batch has: 16 to 128 tokens each."""


def least(run: Callable[[], object], seconds: float = 1.0) -> float:
    """Milliseconds of the fastest of at least three runs, for about so many seconds."""
    run(), run()
    found: list[float] = []
    end = time.perf_counter() + seconds
    while len(found) < 3 or time.perf_counter() < end:
        start = time.perf_counter()
        run()
        found.append(1e3 * (time.perf_counter() - start))
    return min(found)


def measured() -> dict[str, float]:
    """Every case of the tree that is imported."""
    from albertine.layout import pack
    from albertine.model.model import Model
    from albertine.model.presets import preset
    from albertine.precision import fast_bfloat16

    # Emulated, a training step of base would take minutes, and nobody would train so.
    precisions = ("float32", "bfloat16") if fast_bfloat16(torch.device("cpu")) else ("float32",)
    random, cases = np.random.default_rng(0), {}
    for name, (which, texts) in PRESETS.items():
        config = preset(which)
        one, *many = (
            pack([random.integers(1, config.vocab_size, n) for n in lengths])
            for lengths in ([32], np.linspace(16, 128, texts).astype(int).tolist())
        )
        for precision in precisions:
            model = Model(config, {"mlm", "sop"}, precision=precision).eval()
            with torch.inference_mode():
                for case, batch in (("one text of 32", one), ("a batch of texts", many[0])):

                    def encode(model: Model = model, batch: Any = batch) -> object:
                        return model.encoder(batch, rows=batch.first_tokens)

                    cases[f"{name} {precision}: {case}"] = least(encode)
            cases[f"{name} {precision}: training step"] = least(_training_step(model.train(), texts), 2.0)
        for optimizer in ("adamw", "lamb"):
            cases[f"{name}: {optimizer}"] = least(_update(model, optimizer))
    return cases


def _training_step(model: Any, texts: int) -> Callable[[], object]:
    """Forward and backward of texts of 64 tokens, a seventh of them masked."""
    from albertine.layout import pack
    from albertine.objectives.batch import PretrainingBatch
    from albertine.objectives.losses import pretraining_losses

    random, vocabulary = np.random.default_rng(1), model.config.vocab_size
    packed = pack([random.integers(1, vocabulary, 64) for _ in range(texts)])
    rows = torch.from_numpy(np.sort(random.choice(packed.num_tokens, packed.num_tokens // 7, replace=False)))
    labels, zeros = torch.from_numpy(random.integers(1, vocabulary, len(rows))), torch.zeros(texts).long()
    batch = PretrainingBatch(packed, rows, labels, zeros, texts, torch.zeros(texts, 2).long())

    def run() -> None:
        model.zero_grad(set_to_none=True)
        sum(part.mean for part in pretraining_losses(model, batch).values()).backward()  # type: ignore[union-attr]

    return run


def _update(model: Any, name: str) -> Callable[[], object]:
    from albertine.training.optimizers import build_optimizer

    optimizer = build_optimizer(model, name)  # type: ignore[arg-type]
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, 1e-3)
    return optimizer.step


def main() -> None:
    parser = argparse.ArgumentParser(description=inspect.cleandoc(__doc__ or ""))
    parser.add_argument("other", type=Path, nargs="?", help="the src folder of the other tree")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--save", action="store_true", help="keep the result below benchmarks/results")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(measured()))
        return
    rounds: dict[str, list[dict[str, float]]] = {"this": [], "other": []}
    for _ in range(options.rounds):
        for tree, source in (("other", options.other.resolve()), ("this", HERE)):
            command = [sys.executable, str(Path(__file__).resolve()), "--child"]
            environment = os.environ | {"PYTHONPATH": str(source)}
            done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
            rounds[tree].append(json.loads(done.stdout))
    table = {}
    for case in rounds["this"][0]:
        ratios = [a[case] / b[case] for a, b in zip(rounds["other"], rounds["this"], strict=True)]
        times = {tree: min(found[case] for found in rounds[tree]) for tree in rounds}
        table[case] = {**times, "ratio": median(ratios), "least": min(ratios), "most": max(ratios)}
        print(
            f"{case:36} other {times['other']:9.2f} ms, this {times['this']:9.2f} ms, "
            f"{median(ratios):.3f} times as fast ({min(ratios):.3f} to {max(ratios):.3f})"
        )
    if options.save:
        from benchmarks.keep import keep

        keep("two-trees", {"rounds": options.rounds, "cases": table})


if __name__ == "__main__":
    main()
