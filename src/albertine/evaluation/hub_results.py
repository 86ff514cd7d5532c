"""A model's scores in the formats of the Hub: `.eval_results/*.yaml`, one file per benchmark, and
`model-index`.

The first is for datasets on the Hub (huggingface.co/docs/hub/eval-results, which shows those that are
registered as benchmarks). The second, an older format, takes any data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import yaml

from albertine.evaluation.run_facts import Facts, Score


class HubDataset(NamedTuple):
    """A dataset on the Hub: its id and configuration."""

    dataset: str
    task: str


HUB: Mapping[str, HubDataset] = {
    **{
        name: HubDataset("nyu-mll/glue", task)
        for name, task in {
            "cola": "cola",
            "sst-2": "sst2",
            "mrpc": "mrpc",
            "sts-b": "stsb",
            "qqp": "qqp",
            "mnli": "mnli_matched",
            "mnli-mm": "mnli_mismatched",
            "qnli": "qnli",
            "rte": "rte",
            "wnli": "wnli",
        }.items()
    },
    **{
        name: HubDataset("clue/clue", name)
        for name in ("afqmc", "tnews", "iflytek", "cmnli", "csl", "cmrc2018", "drcd", "c3")
    },
    "squad": HubDataset("rajpurkar/squad", "plain_text"),
    "squad2": HubDataset("rajpurkar/squad_v2", "squad_v2"),
    "race": HubDataset("ehovy/race", "all"),
    "race-middle": HubDataset("ehovy/race", "middle"),
    "race-high": HubDataset("ehovy/race", "high"),
}
"""Datasets on the Hub by our names. ChID is missing: ours is FewCLUE's, a part of it."""
FILES = frozenset(f"{name}.yaml" for name in HUB)
"""Names of our score files."""
TRIAL = frozenset({"cmrc2018"})
"""Datasets whose test file here is not the benchmark's test set."""


def result_files(facts: Facts) -> dict[str, bytes]:
    """The files of `.eval_results`, by name; none where the data is not on the Hub. They hold the first
    metric only, because a benchmark ranks models by one number."""
    place = _hub_dataset(facts, facts.data)
    scores = [score for score in facts.scores if score.split != "test" or facts.data not in TRIAL]
    first = next(iter(_own(scores)), None)
    if place is None or first is None:
        return {}
    row = {
        "dataset": {"id": place.dataset, "task_id": place.task},
        "value": round(_value(first), 6),
        "notes": describe_score(first, facts.seeds),
    }
    return {f"{facts.data}.yaml": yaml.safe_dump([row], sort_keys=False, allow_unicode=True).encode()}


def model_index(facts: Facts, name: str, pipeline: str | None) -> list[dict[str, Any]] | None:
    """The scores for the YAML head of a card; None where there are none.

    Args:
        name: of the model. pipeline: its task, as the Hub calls it.
    """
    rows: dict[str, dict[str, Any]] = {}
    for score in facts.scores:
        what = facts.data or score.what or "text"
        place = _hub_dataset(facts, what)
        # The Hub requires a type, also for data that is not on the Hub.
        kind = place.dataset if place else "".join(c if c.isalnum() else "-" for c in what.lower())
        data = {"name": what, "type": kind, **({"config": place.task} if place else {})}
        key = f"{what} {score.split}"
        row = rows.setdefault(
            key,
            {
                "task": {"type": pipeline or "feature-extraction"},
                "dataset": {**data, "split": _split(score, what).replace(" ", "-")},
                "metrics": [],
            },
        )
        row["metrics"].append(
            {
                "type": score.metric,
                "value": round(_value(score), 6),
                "name": describe_score(score, facts.seeds),
            }
        )
    return [{"name": name, "results": list(rows.values())}] if rows else None


def _hub_dataset(facts: Facts, data: str) -> HubDataset | None:
    """The scored dataset on the Hub; None where it is not there, or where the run's task differs from the
    benchmark's: generated answers, or classes by cosine similarity."""
    return HUB.get(data) if facts.as_benchmark else None


def describe_score(score: Score, seeds: int) -> str:
    """A score as text, such as `accuracy on dev, median of 5 seeds (0.91 to 0.93)`."""
    label = f"{score.metric.replace('_', ' ')} on {score.split}"
    if score.spread is not None:
        low, high = min(score.spread.values), max(score.spread.values)
        return f"{label}, median of {seeds} seeds ({low:.4f} to {high:.4f})"
    label += ", one seed"
    return f"{label}, 95 % {score.interval.low:.4f} to {score.interval.high:.4f}" if score.interval else label


def _split(score: Score, data: str) -> str:
    return "trial" if score.split == "test" and data in TRIAL else score.split


def _own(scores: Sequence[Score]) -> list[Score]:
    """The scores on the test file, else those on dev."""
    return [score for score in scores if score.split == "test"] or list(scores)


def _value(score: Score) -> float:
    return score.value if score.spread is None else score.spread.median
