"""Minutes of training until a model is right about 60, 65 and 70 % of minimal pairs.

    albertine pretrain --config recipes/albertine-mini-en.yaml watching.keep=100
    python -m benchmarks.time_to_suite runs/albertine-mini-en --data ../shared/data/blimp --save

Scores every checkpoint that a run has kept (`albertine suite`). Times are those of the run's clock, which
stands still between an interruption and its resumption, and include its evaluations and checkpoints. Between
two checkpoints the score is taken as linear.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from albertine.bench.machine import RESULTS
from albertine.core.settings import read_yaml
from albertine.pretraining.scores import suite_scores
from albertine.training.metrics import read_metrics
from benchmarks.keep import keep
from benchmarks.markdown import newest_of_each, table

NAME = "time-to"
HEAD = """# Time to BLiMP

Minutes of training from random weights until a model is right about 60, 65 and 70 % of the minimal pairs of
BLiMP (of SLING for Chinese), and what it reaches in the end.
"""
LEVELS = (0.60, 0.65, 0.70)


def measured(run: Path, data: Path, limit: int | None, scoring: str) -> dict[str, Any]:
    """The scores of the checkpoints of a run.

    Args:
        data: folder of the suite, with its name. limit: most pairs of a paradigm. scoring: "pll" or "causal".
    """
    logged = [line for line in read_metrics(run / "metrics.jsonl") if "tokens" in line]
    folders = {int(path.name[5:]): path for path in (run / "checkpoints").glob("step-*")}
    if not folders:
        raise SystemExit(f"{run} has no checkpoints; train it with watching.keep=100")
    points = []
    for step, folder in sorted(folders.items()):
        line = min(logged, key=lambda line: abs(line["step"] - step))
        right = suite_scores(data.name, folder, data, limit=limit, scoring=scoring).overall.value
        points.append(
            {"step": step, "minutes": line["elapsed"] / 60, "tokens": line["tokens"], "right": right}
        )
        print(f"{points[-1]['minutes']:7.1f} minutes, {line['tokens'] / 1e6:7.1f} M tokens: {right:.1%}")
    return {
        "settings": {"suite": data.name, "limit": limit, "scoring": scoring},
        "run": read_yaml(run / "settings.yaml")["name"],
        "points": points,
    }


def minutes_to(points: Sequence[dict[str, Any]], level: float) -> float | None:
    """The time at which a score is first reached; None: never."""
    before = None
    for point in points:
        if point["right"] >= level:
            if before is None or point["right"] == before["right"]:
                return float(point["minutes"])
            share = (level - before["right"]) / (point["right"] - before["right"])
            return float(before["minutes"] + share * (point["minutes"] - before["minutes"]))
        before = point
    return None


def page(title: Callable[[str], str]) -> str:
    """docs/results/time-to-blimp.md, of all hardware; empty where nothing was measured.

    Args:
        title: from the name of a folder of results to words.
    """
    sections = [
        f"\n## {title(hardware.name)}\n\n{_rows(found)}"
        for hardware in sorted(path for path in RESULTS.iterdir() if path.is_dir())
        if (found := newest_of_each(hardware, NAME))
    ]
    return "".join([HEAD, *sections]) if sections else ""


def _rows(found: dict[str, dict[str, Any]]) -> str:
    rows = []
    for result in found.values():
        points, settings = result["points"], result["settings"]
        reached = [minutes_to(points, level) for level in LEVELS]
        last = points[-1]
        pairs = f"{settings['limit']} pairs a paradigm" if settings["limit"] else "all pairs"
        rows.append(
            [
                f"`{result['run']}`, {result['date']}",
                f"{settings['suite']}, {settings['scoring']}, {pairs}",
                *("" if minutes is None else f"{minutes:.1f}" for minutes in reached),
                f"{last['right']:.1%} after {last['minutes']:.0f}",
                f"{last['tokens'] / 1e6:.0f} M",
            ]
        )
    heads = [f"{level:.0%}, minutes" for level in LEVELS]
    commands = "`albertine pretrain --config recipes/NAME.yaml watching.keep=100`, then "
    commands += "`python -m benchmarks.time_to_suite runs/NAME --data FOLDER --save`:\n\n"
    return commands + table(["recipe", "scored", *heads, "in the end", "tokens"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--data", type=Path, required=True, help="folder of BLiMP or SLING")
    parser.add_argument("--limit", type=int, help="most pairs of a paradigm")
    parser.add_argument("--scoring", choices=("pll", "causal"), default="pll")
    parser.add_argument("--save", action="store_true", help="keep the result below benchmarks/results")
    options = parser.parse_args()
    found = measured(options.run, options.data, options.limit, options.scoring)
    if options.save:
        suffix = "" if options.scoring == "pll" else "-causal"
        keep(f"{NAME}-{re.sub(r'[^a-z0-9-]', '-', found['run'].lower())}{suffix}", found)


if __name__ == "__main__":
    main()
