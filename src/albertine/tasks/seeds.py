"""The same run with several seeds: median, spread and the best, as the ALBERT paper reports its scores."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from albertine.errors import SettingsError
from albertine.files import replace_durably
from albertine.tasks.finetune import Result, finetune
from albertine.tasks.settings import FinetuneSettings


@dataclass(frozen=True)
class Spread:
    """A metric over the runs of several seeds.

    Attributes:
        values: in the order of the seeds. deviation: of the sample; 0 for one run.
    """

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def deviation(self) -> float:
        return statistics.stdev(self.values) if len(self.values) > 1 else 0.0


@dataclass(frozen=True)
class Seeds:
    """How the runs of several seeds ended.

    Attributes:
        results: in the order of the seeds; fewer than asked for if one was stopped.
        metrics: every score that all runs have, by name, the one that picks models first.
        best: folder of the run with the best first metric, the higher the better.
    """

    results: tuple[Result, ...]
    metrics: Mapping[str, Spread]
    best: Path
    report: Path

    @property
    def done(self) -> bool:
        return all(result.outcome.done for result in self.results)


def over_seeds(
    settings: FinetuneSettings,
    count: int,
    *,
    resume: str = "auto",
    run: Callable[..., Result] = finetune,
) -> Seeds:
    """Run `count` seeds from `settings.seed` on, each in a folder `NAME-seed-N`; what is done is not done
    again.

    Returns:
        Their scores, also written to `NAME-seeds.json` beside the folders.

    Raises:
        SettingsError: without a dev set there is nothing to compare.
    """
    task = settings.task
    if task.dataset is None and task.dev is None:
        raise SettingsError("several seeds are compared on a dev set", remedy="Name it in task.dev")
    results = []
    for seed in range(settings.seed, settings.seed + count):
        own = settings.model_copy(update={"seed": seed, "name": f"{settings.name}-seed-{seed}"})
        results.append(run(own, resume=resume))
        if not results[-1].outcome.done:
            break
    names = [n for n in results[0].scores if n != "step" and all(n in r.scores for r in results)]
    metrics = {name: Spread(tuple(r.scores[name] for r in results)) for name in names}
    best = max(results, key=lambda r: r.scores[names[0]]) if names else results[0]
    report = settings.output / f"{settings.name}-seeds.json"
    tree = {
        "runs": [result.folder.name for result in results],
        "best": best.folder.name,
        "metrics": {
            name: {"median": s.median, "deviation": s.deviation, "values": s.values}
            for name, s in metrics.items()
        },
    }
    replace_durably(report, (json.dumps(tree, indent=2, ensure_ascii=False) + "\n").encode())
    return Seeds(tuple(results), metrics, best.folder, report)
