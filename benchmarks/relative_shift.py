"""Scores of relative positions: the shift as one view, beside that by reshapes.

    python -m benchmarks.relative_shift --save

A query's product with the table of distances is the row of its scores, moved by its place. Transformer-XL's
code moves it by two reshapes with a slice between them; `shifted_scores` reads the same numbers with rows
that are one shorter. In the forward pass neither copies anything, and the two are equal in strides too; on
the way back every slice is a whole product of zeros to write into. Both are timed in turn, in the attention
of one block, with and without gradients, and in a step of XLNet's pretraining, for one sequence of 512 tokens
and a memory of 384; memory is the peak of a process that does it once, above that of one that does everything
else.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from albertine.bench.interleaved import compete
from albertine.bench.process import run
from albertine.model.backend import current
from albertine.model.positions import relative_attention
from albertine.model.positions.relative import SequenceGroup, shifted_scores
from benchmarks.keep import keep
from benchmarks.markdown import table
from benchmarks.xlnet_pair import HEAD, Shape, batch_of, our_model, our_step

SHAPE = Shape(width=768, depth=2, batch=1, length=512, memory=384, targets=85)
Form = Callable[[Tensor, Tensor, SequenceGroup, slice], Tensor]


def reshaped_scores(q_SNLD: Tensor, directed_NDP: Tensor, group: SequenceGroup, some: slice) -> Tensor:
    """What `shifted_scores` gives, by reshapes (`_rel_shift`, Dai et al. 2019, appendix B)."""
    q_SNLD = q_SNLD[:, :, some]
    s, heads, n, _ = q_SNLD.shape
    nearest = group.farthest + group.leading - some.start
    table_N1DP = directed_NDP[:, None, :, nearest - group.keys - n : nearest]
    scores = (q_SNLD.transpose(0, 1) @ table_N1DP).transpose(0, 1)
    columns = scores.shape[3]
    moved = scores.reshape(s, heads, columns, n)[:, :, 1:].reshape(s, heads, n, columns - 1)
    return moved[..., : group.keys]


FORMS: dict[str, Form] = {"view": shifted_scores, "reshape": reshaped_scores}


@contextmanager
def shifting(form: Form) -> Iterator[None]:
    """Every block moves its scores so."""
    relative_attention.shifted_scores = form  # type: ignore[attr-defined,assignment]
    try:
        yield
    finally:
        relative_attention.shifted_scores = shifted_scores  # type: ignore[attr-defined]


def attention(form: Form, shape: Shape, learns: bool = True) -> Callable[[], float]:
    """The attention of a block of queries, keys, values and the table; and all their gradients."""
    heads, keys, draws = shape.width // HEAD, shape.memory + shape.length, torch.Generator().manual_seed(0)

    def drawn(*sizes: int) -> Tensor:
        return torch.randn(*sizes, generator=draws).requires_grad_()

    q = drawn(shape.batch, heads, shape.length, HEAD)
    k, v = (drawn(shape.batch, heads, keys, HEAD) for _ in "kv")
    distances = drawn(heads, HEAD, 2 * keys + 1)
    nothing = torch.zeros(0, dtype=torch.int64)
    group = SequenceGroup(
        *(shape.batch, shape.length, keys, False, shape.length, keys), nothing, None, nothing, nothing
    )
    ops = current()

    def step() -> float:
        with torch.set_grad_enabled(learns):
            mixed = ops.attend_scored(q, k, v, form(q, distances, group, slice(0, None)), None, 0.0).sum()
        if not learns:
            return float(mixed)
        mixed.backward()  # type: ignore[no-untyped-call]
        found = sum(float(x.grad.norm()) for x in (q, k, v, distances) if x.grad is not None)
        for x in (q, k, v, distances):
            x.grad = None
        return found

    return step


def pretraining(form: Form, shape: Shape) -> Callable[[], float]:
    """A step of XLNet's pretraining."""
    step = our_step(our_model(shape), shape, batch_of(shape), "float32")

    def shifted() -> float:
        with shifting(form):
            return sum(step())

    return shifted


PARTS = {
    "attention, forward": partial(attention, learns=False),
    "attention, and gradients": attention,
    "pretraining step": pretraining,
}


def peak(part: str, form: str, shape: Shape, threads: int) -> float:
    """Megabytes of a process that does it once, above those of one that only prepares it."""
    given = [json.dumps(asdict(shape)), part, form, str(threads)]
    whole, empty = (
        run([sys.executable, "-m", "benchmarks.relative_shift", "--child", *given, times])[1]
        for times in "10"
    )
    return whole - empty


def child(settings: str, part: str, form: str, threads: str, times: str) -> None:
    torch.set_num_threads(int(threads))
    step = PARTS[part](FORMS[form], Shape(**json.loads(settings)))
    for _ in range(int(times)):
        step()


def measured(part: str, shape: Shape, rounds: int, threads: int) -> dict[str, Any]:
    """Times and peaks of both forms, which must give equal numbers."""
    steps = {name: PARTS[part](form, shape) for name, form in FORMS.items()}
    one, other = (step() for step in steps.values())
    assert abs(one - other) <= 1e-5 * abs(one), (part, one, other)
    contest = compete(steps, rounds, threads)
    megabytes = {form: peak(part, form, shape, threads) for form in FORMS}
    ratios = contest.ratios([("view", "reshape")])
    return {"part": part, **contest.as_dict(), "ratios": ratios, "megabytes": megabytes}


def written(points: list[dict[str, Any]]) -> str:
    rows = [
        [
            point["part"],
            *(f"{point['runs'][form]['median_ms']:.2f}" for form in FORMS),
            *([f"{ratio:.2f}" for ratio in point["ratios"].values()] or [""]),
            *(f"{point['megabytes'][form]:.0f}" for form in FORMS),
        ]
        for point in points
    ]
    heads = ["view, ms", "reshape, ms", "reshape / view", "view, MB", "reshape, MB"]
    return table(["one sequence", *heads], rows)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--length", type=int, default=SHAPE.length)
    parser.add_argument("--memory", type=int, default=SHAPE.memory)
    parser.add_argument("--width", type=int, default=SHAPE.width)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--child", nargs=5, help=argparse.SUPPRESS)
    parser.add_argument("--save", action="store_true", help="keep the result below benchmarks/results")
    options = parser.parse_args()
    if options.child:
        child(*options.child)
        return
    torch.set_num_threads(options.threads)
    targets = min(SHAPE.targets, options.length // 6)
    sizes = {"length": options.length, "memory": options.memory, "width": options.width, "targets": targets}
    shape = replace(SHAPE, **sizes)
    points = [measured(part, shape, options.rounds, options.threads) for part in PARTS]
    print(written(points))
    if options.save:
        keep("relative-shift", {**asdict(shape), "threads": options.threads, "points": points})


if __name__ == "__main__":
    main()
