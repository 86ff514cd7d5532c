"""This source tree beside another one: encoding, a training step and an optimizer step, run by run in turn.

    git worktree add ../before COMMIT
    python -m benchmarks.two_trees ../before/src --rounds 5 --save

In every round each tree has a process, which waits while the other one runs: a turn is a short burst of one
tree and then of the other, the first of a turn changing, and counts by the ratio of its two times. So a
machine whose speed wanders by the second slows both down alike. Of a round counts the median of its turns,
and of the rounds, whose processes lie in other memory, their median again. Random weights, ALBERT base and
tiny (Chinese).
"""

from __future__ import annotations

import argparse
import inspect
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from statistics import median
from subprocess import PIPE
from typing import Any

import numpy as np
import torch

HERE = Path(__file__).resolve().parents[1] / "src"
PRESETS = {"base": ("albert-base-v2", 12), "tiny": ("albert-tiny-zh", 32)}
"""Preset, and how many texts a batch has: 16 to 128 tokens each."""


def _of_tree(module: str, earlier: str, name: str) -> Any:
    """A function of the tree that is imported; before decision 038 its module was not in `core`."""
    try:
        found = import_module(f"albertine.core.{module}")
    except ModuleNotFoundError:
        found = import_module(f"albertine.{earlier}")
    return getattr(found, name)


def cases_of_tree() -> Iterator[tuple[str, Callable[[], object]]]:
    """Every case of the tree that is imported, and what runs it once."""
    from albertine.model.model import Model
    from albertine.model.presets import preset

    pack, fast_bfloat16 = (
        _of_tree("batch", "layout", "pack"),
        _of_tree("precision", "precision", "fast_bfloat16"),
    )
    # Emulated, a training step of base would take minutes, which is no realistic setting.
    precisions = ("float32", "bfloat16") if fast_bfloat16(torch.device("cpu")) else ("float32",)
    random = np.random.default_rng(0)
    for name, (which, texts) in PRESETS.items():
        config = preset(which)
        one, *many = (
            pack([random.integers(1, config.vocab_size, n) for n in lengths])
            for lengths in ([32], np.linspace(16, 128, texts).astype(int).tolist())
        )
        for precision in precisions:
            model = Model(config, {"mlm", "sop"}, precision=precision).eval()
            for case, batch in (("one text of 32", one), ("a batch of texts", many[0])):

                def encode(model: Model = model, batch: Any = batch) -> object:
                    with torch.inference_mode():
                        return model.encoder(batch, rows=batch.first_tokens)

                yield f"{name} {precision}: {case}", encode
            yield f"{name} {precision}: training step", _training_step(model.train(), [64] * texts)
            mixed = np.linspace(8, 48, texts).astype(int).tolist()
            yield f"{name} {precision}: training step of lines", _training_step(model, mixed)
        for optimizer in ("adamw", "lamb"):
            yield f"{name}: {optimizer}", _update(model, optimizer)


def _training_step(model: Any, lengths: Sequence[int]) -> Callable[[], object]:
    """Forward and backward of texts of so many tokens, a seventh of all of them masked."""
    from albertine.objectives.batch import PretrainingBatch
    from albertine.objectives.losses import pretraining_losses

    pack = _of_tree("batch", "layout", "pack")
    random, vocabulary = np.random.default_rng(1), model.config.vocab_size
    packed, texts = pack([random.integers(1, vocabulary, n) for n in lengths]), len(lengths)
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


def answer() -> None:
    """The process of one tree: a line requests the next case or one run of it, in milliseconds."""
    cases, run = cases_of_tree(), None
    for line in sys.stdin:
        if line.strip() == "next":
            name, run = next(cases, ("", None))
            print(name, flush=True)
        elif run:
            print(1e3 * once(run), flush=True)


def once(run: Callable[[], object], burst: float = 0.05) -> float:
    """Seconds of one run: of a burst of short ones the least, as another process has driven the data of the
    first from the caches and what else runs here makes some of them longer."""
    found: list[float] = []
    end = time.perf_counter() + burst
    while not found or time.perf_counter() < end:
        start = time.perf_counter()
        run()
        found.append(time.perf_counter() - start)
    return min(found)


def reply_of(tree: subprocess.Popen[str], line: str) -> str:
    """The reply of a tree's process to one line."""
    assert tree.stdin and tree.stdout
    print(line, file=tree.stdin, flush=True)
    if not (reply := tree.stdout.readline()):
        raise SystemExit("a tree's process has ended: its message stands above")
    return reply.strip()


def one_round(sources: dict[str, Path], seconds: float, only: str) -> dict[str, dict[str, float]]:
    """By case the ratio of the trees' times, and the median of each."""
    command = [sys.executable, str(Path(__file__).resolve()), "--child"]
    trees = {
        tree: subprocess.Popen(
            command, env=os.environ | {"PYTHONPATH": str(source)}, stdin=PIPE, stdout=PIPE, text=True
        )
        for tree, source in sources.items()
    }
    found: dict[str, dict[str, float]] = {}
    while any(names := [reply_of(process, "next") for process in trees.values()]):
        case, *others = names
        if others != [case]:
            raise SystemExit(f"the trees do not have the same cases: {', '.join(names)}")
        if only not in case:
            continue
        for process in trees.values():
            reply_of(process, "run")  # which lays weights out and compiles
        times: dict[str, list[float]] = {tree: [] for tree in trees}
        end, order = time.perf_counter() + seconds, list(trees)
        while len(times["this"]) < 3 or time.perf_counter() < end:
            for tree in order:
                times[tree].append(float(reply_of(trees[tree], "run")))
            order.reverse()
        ratios = [a / b for a, b in zip(times["other"], times["this"], strict=True)]
        found[case] = {"ratio": median(ratios), **{tree: median(each) for tree, each in times.items()}}
    for process in trees.values():
        process.communicate()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=inspect.cleandoc(__doc__ or ""))
    parser.add_argument("other", type=Path, nargs="?", help="the src folder of the other tree")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--seconds", type=float, default=5.0, help="for each case of a round; at least 3 turns"
    )
    parser.add_argument("--only", default="", help="cases whose names hold this")
    parser.add_argument("--save", action="store_true", help="keep the result below benchmarks/results")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        answer()
        return
    if options.other is None:
        parser.error("name the src folder of the other tree")
    sources = {"other": options.other.resolve(), "this": HERE}
    rounds = [one_round(sources, options.seconds, options.only) for _ in range(options.rounds)]
    table = {}
    for case in rounds[0]:
        ratios, other, this = ([each[case][key] for each in rounds] for key in ("ratio", "other", "this"))
        table[case] = {
            "other": median(other),
            "this": median(this),
            "ratio": median(ratios),
            "least": min(ratios),
            "most": max(ratios),
        }
        print(
            f"{case:36} other {median(other):9.2f} ms, this {median(this):9.2f} ms, "
            f"{median(ratios):.3f} times as fast ({min(ratios):.3f} to {max(ratios):.3f})"
        )
    if options.save:
        from benchmarks.keep import keep

        keep("two-trees", {"rounds": options.rounds, "seconds": options.seconds, "cases": table})


if __name__ == "__main__":
    main()
