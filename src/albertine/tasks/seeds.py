"""A run repeated with several seeds: median, spread and best scores, as reported in the ALBERT paper."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from albertine.core.files import write_json
from albertine.errors import DataError, SettingsError
from albertine.evaluation.metrics import metric_sign
from albertine.evaluation.report import write_report
from albertine.evaluation.runs import Spread, read_run
from albertine.tasks.finetune import FinetuneResult, finetune
from albertine.tasks.run_record import contents
from albertine.tasks.settings import FinetuneSettings
from albertine.tasks.task_data import once
from albertine.training.distributed import is_main


@dataclass(frozen=True)
class Seeds:
    """The results of several seeds.

    Attributes:
        results: in the order of the seeds; if one was stopped it is the last, and there are fewer than
            requested.
        metrics: the scores that all finished runs have, by name; the first selects the best model.
        best: folder of the run with the best first metric. summary: path of a JSON file with the scores,
            written once a run is finished.
    """

    results: tuple[FinetuneResult, ...]
    metrics: Mapping[str, Spread]
    best: Path
    summary: Path

    @property
    def done(self) -> bool:
        return all(result.outcome.done for result in self.results)

    @property
    def report(self) -> Path:
        """Folder of the report, written once all runs are finished."""
        return self.summary.with_name(self.summary.name.removesuffix("-seeds.json") + "-report")


def over_seeds(
    settings: FinetuneSettings,
    count: int,
    *,
    resume: str = "auto",
    run: Callable[..., FinetuneResult] = finetune,
) -> Seeds:
    """Run `count` seeds from `settings.seed` on, each in a folder `NAME-seed-N`; finished runs are not
    repeated. The data is read and encoded once.

    Returns:
        Their scores, also written to `NAME-seeds.json` beside the folders, with a report in `NAME-report/`.

    Raises:
        SettingsError: there is no dev set. DataError: a file changed between two seeds.
    """
    if not settings.task.has_dev:
        remedy = "Name it in task.dev, or take a share of the training rows: task.dev_share=0.1"
        raise SettingsError("several seeds are compared on a dev set", remedy=remedy)
    results, read, before = [], once(), contents(settings)
    for seed in range(settings.seed, settings.seed + count):
        _check_unchanged(before, contents(settings))
        own = settings.model_copy(update={"seed": seed, "name": f"{settings.name}-seed-{seed}"})
        results.append(run(own, resume=resume, read=read))
        if not results[-1].outcome.done:
            break
    done = [r for r in results if r.outcome.done]
    names = [n for n in results[0].scores if n != "step" and all(n in r.scores for r in done)] if done else []
    metrics = {name: Spread(tuple(r.scores[name] for r in done)) for name in names}
    best = max(done, key=lambda r: metric_sign(names[0]) * r.scores[names[0]]) if names else results[0]
    summary = settings.output / f"{settings.name}-seeds.json"
    found = Seeds(tuple(results), metrics, best.folder, summary)
    if is_main() and done:
        _write_summary(settings, found)
    return found


def _check_unchanged(before: Mapping[Path, str], now: Mapping[Path, str]) -> None:
    for path in sorted(before.keys() | now.keys()):
        if before.get(path) != now.get(path):
            raise DataError(
                "changed between two seeds, which cannot be compared then",
                where=path,
                remedy="Put back what it held, or begin anew under another name",
            )


def _write_summary(settings: FinetuneSettings, found: Seeds) -> None:
    tree = {
        "runs": [result.folder.name for result in found.results if result.outcome.done],
        "best": found.best.name,
        "metrics": {name: spread.as_dict() for name, spread in found.metrics.items()},
    }
    write_json(found.summary, tree)
    if settings.watching.report and found.done:
        runs = [read_run(result.folder) for result in found.results]
        title = f"{settings.name}, {len(runs)} seeds"
        write_report(found.report, title, {settings.name: runs})
