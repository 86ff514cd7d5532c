"""What a loop learns that a stack does not, and whether it takes more steps for longer problems.

    OMP_NUM_THREADS=1 python -m benchmarks.universal --save

Algorithms (Dehghani et al. 2019, section 3.2): copy, reverse and add sequences of up to 40 symbols, judged at
lengths up to 40 and at 400, which no training sequence has. Positions begin at random, so that all places are
known. Every source symbol is a row, and every answer a blank row at the same place. Four encoders of equal
cost a token: the Universal Transformer; without its step signal; with halting; and a plain encoder that has a
block for every depth and positions in its embeddings alone.

Pondering (Graves 2016): sums of all lengths with a price of 0 to .1 on a step; the mean number of steps, and
Spearman's correlations: of a sum's mean steps, and of the steps until all of it has halted, which is what it
costs in a packed batch, with its length; and of its mean steps with its longest run of carries.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from albertine.core.batch import Packed, pack
from albertine.core.randomness import generator, seed_torch
from albertine.evaluation.metrics import spearman
from albertine.model.config import EncoderConfig
from albertine.model.init import widen_embeddings
from albertine.model.model import Model, evaluating
from albertine.model.sharing import SharingPlan
from albertine.objectives.losses import WEIGHT
from albertine.training.optimizers import build_optimizer
from benchmarks.keep import keep
from benchmarks.markdown import table

BLANK, BEGIN, END, FIRST, SYMBOLS = 1, 2, 3, 4, 100
TRAINED, LONG, PLACES = 40, 400, 512
WARMUP, RATE, RAMP = 0.05, 0.01, 0.5  # lengths grow over half of the run, and then the rate falls
LENGTHS = 8  # different ones in an update: attention goes through neighbours of one length at once
WEIGHTS = (0.0, 0.001, 0.01, 0.1)
Answer = Callable[[np.ndarray], np.ndarray]


def added(pairs: np.ndarray) -> np.ndarray:
    """The digits of the sum of two numbers, lowest digit first, whose digits i are pair i: 10·a + b; the last
    carry is left out."""
    digits, carry = np.empty_like(pairs), 0
    for i, pair in enumerate(pairs.tolist()):
        carry, digits[i] = divmod(pair // 10 + pair % 10 + carry, 10)
    return digits


def carried(pairs: np.ndarray) -> int:
    """The longest run of carries of a sum as in `added`: through so many digits one of them can matter."""
    longest = run = carry = 0
    for pair in pairs.tolist():
        carry = (pair // 10 + pair % 10 + carry) // 10
        run = run + 1 if carry else 0
        longest = max(longest, run)
    return longest


class Task(NamedTuple):
    """Sequences of numbers below `symbols`, and the answer to each: as many numbers."""

    symbols: int
    answer: Answer


TASKS = {
    "copy": Task(10, lambda x: x),
    "reverse": Task(10, lambda x: x[::-1]),
    "addition": Task(100, added),
}


PARTS = (*TASKS, "pondering")
CURVE = "loss, by eighths of the run"
RECORDED = ("longest", "steps", "batch", "hidden", "depth", "norm", "seed")


class Batch(NamedTuple):
    """Packed sequences, their blank rows (P,), the symbols that belong there, and the lengths."""

    packed: Packed
    rows: Tensor
    labels: Tensor
    lengths: np.ndarray


def batch_of(task: Task, lengths: np.ndarray, seed: int, step: int) -> Batch:
    """BEGIN x END, then a blank for every x at its place; all from a place drawn at random."""
    draws = generator(seed, "universal/batch", step)
    texts, kinds, places, labels = [], [], [], []
    for n in lengths.tolist():
        x = draws.integers(0, task.symbols, n)
        first = int(draws.integers(0, PLACES - n - 1))
        texts.append(np.concatenate([[BEGIN], x + FIRST, [END], np.full(n, BLANK)]))
        kinds.append(np.concatenate([np.zeros(n + 2, int), np.ones(n, int)]))
        places.append(first + np.concatenate([np.arange(n + 2), np.arange(1, n + 1)]))
        labels.append(task.answer(x) + FIRST)
    packed = replace(pack(texts, kinds), position_ids=torch.from_numpy(np.concatenate(places)))
    rows = (packed.input_ids == BLANK).nonzero()[:, 0]
    return Batch(packed, rows, torch.from_numpy(np.concatenate(labels)), lengths)


def encoder(kind: str, options: argparse.Namespace, ponder: bool = False) -> Model:
    """A new one of a kind in `KINDS`."""
    depth, loop = options.depth, kind != "plain"
    config = EncoderConfig(
        vocab_size=FIRST + SYMBOLS,
        embedding_size=options.hidden,
        hidden_size=options.hidden,
        num_attention_heads=4,
        intermediate_size=2 * options.hidden,
        plan=SharingPlan.shared(depth) if loop else SharingPlan.unshared(depth),
        max_position_embeddings=2 * LONG + 2,  # rows of the longest sequence; places are fewer
        norm=options.norm,
        positions="none" if loop else "learned",
        position_signal="sinusoid" if loop else "none",
        step_signal="learned" if loop and kind != "without step signal" else "none",
        halting="accumulated" if ponder or kind == "halting" else "none",
    )
    model = Model(config, {"mlm"}, seed=options.seed)
    widen_embeddings(model.encoder.embeddings, config.initializer_range)  # sinusoids for the plain one's too
    return model


KINDS = ("universal", "without step signal", "halting", "plain")


def train(
    model: Model, task: Task, options: argparse.Namespace, weight: float = WEIGHT
) -> Iterator[dict[str, float]]:
    """Train; yields a point of the curve now and then."""
    optimizer = build_optimizer(model, "muon", weight_decay=0.01, precision="float32")
    model.train()
    begun = time.monotonic()
    for step in range(options.steps):
        done = step / options.steps
        longest = min(options.longest, 4 + round(done / RAMP * options.longest))
        lengths = generator(options.seed, "universal/lengths", step).integers(1, longest + 1, LENGTHS)
        lengths = np.repeat(lengths, options.batch // LENGTHS)
        batch = batch_of(task, lengths, options.seed, step)
        seed_torch(options.seed, "universal/dropout", step)
        logits, _, ponder = model.pondering_forward(batch.packed, batch.rows)
        loss = F.cross_entropy(logits.float(), batch.labels)
        (loss if ponder is None else loss + weight * ponder.cost.mean()).backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for group in optimizer.param_groups:
            group["lr"] = RATE * min(1.0, done / WARMUP, (1 - done) / 0.5) * group["rate"]
        optimizer.step()
        optimizer.zero_grad()
        if (step + 1) % max(1, options.steps // 8) == 0:
            steps = {} if ponder is None else {"mean_steps": float(ponder.steps.float().mean())}
            seconds = time.monotonic() - begun
            yield {"step": step + 1, "seconds": seconds, "loss": float(loss.detach()), **steps}


@torch.no_grad()
def judged(model: Model, batches: list[Batch]) -> dict[str, float]:
    """Shares of symbols and of whole sequences that are right."""
    symbols, sequences = [], []
    with evaluating(model):
        for batch in batches:
            right = model.pretraining_forward(batch.packed, batch.rows)[0].argmax(-1) == batch.labels
            symbols.append(right)
            sequences += [bool(part.all()) for part in right.split(batch.lengths.tolist())]
    return {"symbols": float(torch.cat(symbols).float().mean()), "sequences": float(np.mean(sequences))}


def algorithm(name: str, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Every encoder on one task."""
    runs, task = [], TASKS[name]
    short = [batch_of(task, np.arange(1, options.longest + 1), options.seed + 1, i) for i in range(4)]
    long = [batch_of(task, np.full(4, LONG), options.seed + 1, 100 + i) for i in range(4)]
    for kind in options.kinds.split(","):
        model = encoder(kind, options)
        curve = list(train(model, task, options))
        run = {
            "task": name,
            "encoder": kind,
            "parameters": sum(p.numel() for p in model.parameters()),
            "short": judged(model, short),
            "long": judged(model, long),
            "curve": curve,
        }
        print(name, kind, run["short"], run["long"], curve[-1], flush=True)
        runs.append(run)
    return runs


def pondering(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Addition at every price of a step."""
    runs, task = [], TASKS["addition"]
    batches = [batch_of(task, np.arange(1, options.longest + 1), options.seed + 1, i) for i in range(32)]
    for weight in WEIGHTS:
        model = encoder("halting", options)
        curve = list(train(model, task, options, weight))
        mean, most, lengths, carries = _steps(model, batches)
        run = {
            "weight": weight,
            "mean_steps": float(np.mean(mean)),
            "spearman": spearman(lengths, mean),
            "until_all": spearman(lengths, most),
            "carries": spearman(carries, mean),
            "short": judged(model, batches),
            "curve": curve,
        }
        print("ponder", {k: v for k, v in run.items() if k != "curve"}, flush=True)
        runs.append(run)
    return runs


@torch.no_grad()
def _steps(model: Model, batches: list[Batch]) -> tuple[list[float], ...]:
    """Of every sum the mean steps of its blanks, those until all its rows have halted, its length, and its
    longest run of carries."""
    found = []
    with evaluating(model):
        for batch in batches:
            ponder = model.encoder(batch.packed).ponder
            assert ponder is not None
            steps = ponder.steps.float()
            taken = steps[batch.rows].split(batch.lengths.tolist())
            rows = steps.split((2 * batch.lengths + 2).tolist())
            token_ids = batch.packed.input_ids.split((2 * batch.lengths + 2).tolist())
            for n, blanks, every, ids in zip(batch.lengths.tolist(), taken, rows, token_ids, strict=True):
                carries = carried(ids[1 : n + 1].numpy() - FIRST)
                found.append((float(blanks.mean()), float(every.max()), float(n), float(carries)))
    return tuple(list(column) for column in zip(*found, strict=True))


def table_of_algorithms(runs: list[dict[str, Any]]) -> str:
    """A line a run."""
    rows = [
        [run["task"], run["encoder"], f"{run['parameters']:,}"]
        + [f"{run[part][what]:.1%}" for part in ("short", "long") for what in ("symbols", "sequences")]
        + [written_curve(run)]
        for run in runs
    ]
    heads = ["task", "encoder", "parameters", "right, short", "whole", "right, 400", "whole, 400"]
    return table([*heads, CURVE], rows)


def written_curve(run: dict[str, Any]) -> str:
    """The losses of a run, one after the other."""
    return " ".join(f"{point['loss']:.2f}" for point in run["curve"])


def table_of_pondering(runs: list[dict[str, Any]]) -> str:
    """A line a price."""
    rows = [
        [
            f"{run['weight']:g}",
            f"{run['mean_steps']:.2f}",
            f"{run['spearman']:.2f}",
            *(f"{run[name]:.2f}" if name in run else "" for name in ("until_all", "carries")),
            f"{run['short']['symbols']:.1%}",
            written_curve(run),
        ]
        for run in runs
    ]
    heads = ["price of a step", "mean steps", "with length", "until all have halted, with length"]
    return table([*heads, "with carries", "right", CURVE], rows)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--parts", default=",".join(PARTS), help="comma-separated; default: all")
    parser.add_argument("--kinds", default=",".join(KINDS), help="encoders, comma-separated; default: all")
    parser.add_argument("--steps", type=int, default=400, help="updates of each run")
    parser.add_argument("--batch", type=int, default=64, help="sequences of an update")
    parser.add_argument("--longest", type=int, default=TRAINED, help="symbols of a sequence in training")
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--norm", choices=("pre", "post"), default="pre", help="of the block")
    parser.add_argument("--depth", type=int, default=6, help="depths, or steps at most")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--save", action="store_true", help="keep the result below benchmarks/results")
    options = parser.parse_args()
    for part in options.parts.split(","):
        runs = pondering(options) if part == "pondering" else algorithm(part, options)
        print(table_of_pondering(runs) if part == "pondering" else table_of_algorithms(runs))
        if options.save:
            record = {name: getattr(options, name) for name in RECORDED}
            name = part if options.longest == TRAINED else f"{part}-{options.longest}"
            keep(f"universal-{name}", {**record, "threads": torch.get_num_threads(), "runs": runs})


if __name__ == "__main__":
    main()
