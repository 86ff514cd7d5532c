"""Transformer-XL's evaluation: short segments, and a memory longer than in training.

    albertine pretrain --config recipes/transformer-xl-tiny-en.yaml
    python -m benchmarks.sliding runs/transformer-xl-tiny-en corpora/en --save

A causal run is judged on the same held-out tokens in segments as long as in training with the memory of its
training, and then in short segments with once, twice and four times that memory: every token then has a long
text behind it (1901.02860, sections 3.2 and 4). The model has never seen distances beyond those of training.
A clamp counts them all as the longest that it knows; without one it meets distances that it never learned. So
each memory is judged with the clamp of the training, with one at its longest distance, and with that and
every token seeing itself and as many before it as the memory has: XLNet's `same_length`, one key more than
that of Transformer-XL's own code.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from albertine.errors import SettingsError
from albertine.pretraining.scores import objective_of, open_pretrained, stream_scores
from benchmarks.keep import keep
from benchmarks.markdown import table

WAYS = ("as trained", "clamped", "clamped, equal reach")


def judged(run: Path, corpus: Path, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """A point for the training's own segments, and one for each memory and way with short ones.

    Raises:
        SettingsError: the run is not causal, or has no memory.
    """
    model = open_pretrained(run)
    trained, short = objective_of(model, None), objective_of(model, options.segment)
    if trained.kind != "causal" or not trained.memory:
        raise SettingsError(
            "is no causal run with a memory",
            where=run,
            remedy="Pretrain with objective.kind=causal and objective.memory",
        )
    own = model.model.config.clamp_positions
    longest = trained.max_length - 1 + trained.memory
    cases = [(trained, 1, "as trained")]
    cases += [(short, times, way) for times in options.times for way in WAYS]
    for objective, times, way in cases:
        clamp = own if way == "as trained" else min(longest, own or longest)
        memory, begin = times * trained.memory, time.perf_counter()
        scores = stream_scores(
            model.model,
            corpus,
            objective,
            memory=memory,
            reach=memory if way == WAYS[2] else None,
            clamp=clamp,
            sequences=options.tokens // objective.max_length,
        )
        seconds = time.perf_counter() - begin
        yield {"times": times, "way": way, "clamp": clamp, "seconds": seconds, **scores}


def written(points: list[dict[str, Any]]) -> str:
    """A line a point: bits a token, and how much less than in training's own segments."""
    first = points[0]["bits"]
    rows = [
        [
            f"{p['segment']} / {p['memory']}, {p['way']}",
            str(p["clamp"] or "none"),
            f"{p['bits']:.4f}",
            f"{p['perplexity']:.2f}",
            f"{p['bits'] / first - 1:+.2%}",
            f"{p['count']:,}",
        ]
        for p in points
    ]
    heads = ["segment / memory", "clamp", "bits a token", "perplexity", "bits against training's", "tokens"]
    return table(heads, rows)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path, metavar="RUN", help="a causal run with objective.memory")
    parser.add_argument("corpus", type=Path, metavar="CORPUS", help="its corpus; held-out text is judged")
    parser.add_argument("--segment", type=int, default=16, help="tokens of a short segment")
    parser.add_argument(
        "--times", type=int, nargs="+", default=[1, 2, 4], help="memories, as multiples of the training's"
    )
    parser.add_argument("--tokens", type=int, default=65536, help="most held-out tokens to judge")
    parser.add_argument("--save", action="store_true", help="keep the result below benchmarks/results")
    options = parser.parse_args()
    points = []
    for point in judged(options.run, options.corpus, options):
        points.append(point)
        line = f"{point['way']}: {point['bits']:.4f} bits a token, {point['seconds']:.0f} s"
        print(f"segment {point['segment']}, memory {point['memory']}, {line}", flush=True)
    print(written(points))
    if options.save:
        keep("sliding", {"run": options.run.name, "points": points})


if __name__ == "__main__":
    main()
