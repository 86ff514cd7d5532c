"""Attention on a processor, by torch's fused kernel and by two plain products, in inference and in training.

    python -m benchmarks.attention --save

Sequences of equal length, heads of 64; what `model/backend/cpu_attention.py` chooses between. With gradients
the time is that of both directions, and little is left to the fused kernel in any case.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from albertine.bench.interleaved import compete
from albertine.model.backend.cpu_attention import QueryMask, by_kernel, by_products
from albertine.model.backend.cpu_training_attention import training_products
from benchmarks.keep import keep
from benchmarks.markdown import newest, table

SHAPES = ((1, 32, 12), (1, 128, 12), (8, 128, 12), (1, 512, 12), (64, 16, 4), (64, 64, 4), (16, 128, 4))
"""Sequences, tokens and heads."""
SIZE = 64
Way = Callable[[Tensor, Tensor, Tensor], Tensor]


def fused(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return by_kernel(q, k, v, QueryMask(), 0.0)


def in_float32(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return fused(q.float(), k.float(), v.float()).to(q.dtype)


def products(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return training_products(q, k, v, None, 0.0) if q.requires_grad else by_products(q, k, v)


WAYS: dict[str, Way] = {
    "fused, all in float32": fused,
    "fused": fused,
    "fused, in float32 inside": in_float32,
    "products": products,
}
FLOAT32, *BFLOAT16 = WAYS


def once(way: Way, qkv: Tensor, shape: tuple[int, int, int], learns: bool) -> None:
    """One call; with gradients of what the three are cut from."""
    sequences, tokens, heads = shape
    q, k, v = (
        x.view(sequences, tokens, heads, SIZE).transpose(1, 2) for x in torch.split(qkv, heads * SIZE, 1)
    )
    out = way(q, k, v)
    if learns:
        torch.autograd.grad(out, qkv, torch.ones_like(out))


def measured(shape: tuple[int, int, int], learns: bool, rounds: int, threads: int) -> dict[str, Any]:
    sequences, tokens, heads = shape
    plain = torch.randn(sequences * tokens, 3 * heads * SIZE)
    given = {name: plain if name == FLOAT32 else plain.bfloat16() for name in WAYS}
    ways = {
        name: partial(once, way, given[name].requires_grad_(learns), shape, learns)
        for name, way in WAYS.items()
    }
    contest = compete(ways, rounds, threads)
    ratios = contest.ratios([("products", other) for other in WAYS if other != "products"])
    return {"shape": shape, "learns": learns, **contest.as_dict(), "ratios": ratios}


def written(points: list[dict[str, Any]]) -> str:
    """A row a shape: least milliseconds of each way."""
    rows = [
        [
            f"{'training' if point['learns'] else 'inference'}, {n} of {tokens} tokens, {heads} heads",
            *(f"{point['runs'][way]['min_ms']:.2f}" if way in point["runs"] else "stopped" for way in WAYS),
        ]
        for point in points
        for n, tokens, heads in [point["shape"]]
    ]
    return table(["ms", FLOAT32, *(f"bfloat16, {way}" for way in BFLOAT16)], rows)


def section(hardware: Path) -> Iterator[str]:
    """For docs/results."""
    if (found := newest(hardware, "attention")) is None:
        return
    yield "## Attention of equal sequences\n\n`python -m benchmarks.attention --save`, "
    yield f"{found['date']}, {found['threads']} threads: least of the rounds; training with gradients.\n\n"
    yield written(found["points"]) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--save", action="store_true", help="keep the result below benchmarks/results")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    points = []
    for learns in (False, True):
        with torch.inference_mode(not learns):
            points += [measured(shape, learns, options.rounds, options.threads) for shape in SHAPES]
    print(written(points))
    if options.save:
        keep("attention", {"threads": options.threads, "points": points})


if __name__ == "__main__":
    main()
