"""The facts of a model card as data: read from the run of the model, or from the files beside it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from glob import escape
from pathlib import Path, PurePath
from typing import Any

from albertine.core.files import MAX_JSON_BYTES, read_json, read_regular
from albertine.core.settings import read_yaml
from albertine.corpus.manifest import Manifest, load_manifest, manifest_digest
from albertine.errors import AlbertineError, RunError
from albertine.evaluation.intervals import Interval, of_error, of_predictions, of_share
from albertine.evaluation.report import spreads
from albertine.evaluation.runs import RECORD, Run, Spread, read_predictions, read_run, without_seed
from albertine.training.checkpoints import STATE, CheckpointStore
from albertine.training.metrics import read_metrics
from albertine.training.resuming import branch_of

_ACCURACIES = {
    "accuracy": ("count", "floor", "baseline", "by_length"),
    "mask_accuracy": ("mask_count", "mask_baseline"),
}
"""Accuracies that `albertine score` reports, with the fields of their example count and of their baselines,
of which the highest counts: the floor of masked tokens, of which some are shown, and the lengths of sentence
order."""
_PICKS = "mlm_accuracy"
"""The metric that selects `best/` of a pretraining run; of equal steps the first."""


@dataclass(frozen=True)
class Score:
    """One score.

    Attributes:
        metric: its name. value: on the split. split: "dev", "test" or "held out".
        interval: None where none can be computed. spread: over the seeds of several runs.
        chance: of a baseline without skill. count: examples.
        what: name of the text, where a model was measured on several.
    """

    metric: str
    value: float
    split: str
    what: str = ""
    interval: Interval | None = None
    spread: Spread | None = None
    chance: float | None = None
    count: int | None = None


@dataclass(frozen=True)
class Facts:
    """The origin of a model.

    Attributes:
        made: "pretrained", "tuned", "distilled", or "" where no run is known.
        name: of the run. settings, environment: of the run, empty where unknown.
        data: dataset or files of a tuned model. base: initial model. teacher: of a distilled one.
        corpus: of a pretrained one. notes: of the run, such as the number of truncated texts.
        seconds, tokens, steps: of the run, as far as recorded.
        picked: the step of these weights, where an evaluation selected them.
        branch: the record of a run that started from a checkpoint of another.
        share_passages, as_benchmark: of the kind of task, as in `tasks.kind_settings.TaskChoice`.
    """

    made: str = ""
    name: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, Any] = field(default_factory=dict)
    data: str = ""
    base: str = ""
    teacher: str = ""
    pretraining: str = ""
    corpus: Manifest | None = None
    notes: tuple[str, ...] = ()
    scores: tuple[Score, ...] = ()
    seeds: int = 1
    seconds: float | None = None
    tokens: int | None = None
    steps: int | None = None
    picked: int | None = None
    branch: Mapping[str, Any] = field(default_factory=dict)
    share_passages: bool = False
    as_benchmark: bool = True


def read_facts(model: Path) -> Facts:
    """The facts of a model folder, from its run or the settings beside it; empty where there are none.

    Raises:
        RunError: an unfinished run of a task, or settings of another program.
    """
    above = [model.resolve().parent] if model.resolve().name in ("best", "final") else []
    run = next((folder for folder in (model, *above) if (folder / "settings.yaml").is_file()), None)
    if run is None:
        return Facts(scores=tuple(_stored_scores(model)))
    settings = read_yaml(run / "settings.yaml")
    for part in ("task", "encoder", "model", "objective", "training"):
        if not isinstance(settings.get(part) or {}, dict):
            what, remedy = f"`{part}` holds no settings", "Put back the file that the run has written"
            raise RunError(what, where=run / "settings.yaml", remedy=remedy)
    teacher = public_name(_found(settings, "teacher") or "")
    environment = read_json(run / "environment.json")
    common: dict[str, Any] = {
        "name": str(settings.get("name", run.name)),
        "settings": settings,
        "environment": environment,
        "teacher": teacher,
    }
    last = model.resolve().name == "final" or not (run / "best").is_dir()
    if (run / RECORD).is_file() or (run != model and "task" in settings):
        return _tuned(run, last, common)
    return _pretrained(run, model, last, common)


def _tuned(run: Path, last: bool, common: Mapping[str, Any]) -> Facts:
    best = read_run(run)
    record, picked = best.record, best.scores.get("step")
    other = last and picked not in (None, record.get("step"))  # the scores are of other weights
    runs = [best] if other else _seeds(best)
    return Facts(
        **common,
        made="distilled" if common["teacher"] else "tuned",
        data=", ".join(map(public_name, str(record.get("data", "")).split(", "))),
        # The record has the name from the command line; the settings have the path of a folder.
        base=public_name(
            str((common["settings"].get("encoder") or {}).get("folder") or record.get("encoder", ""))
        ),
        pretraining=str(record.get("pretraining") or ""),
        notes=tuple(map(str, record.get("notes") or ())),
        scores=tuple(_last_scores(best) if other else _tuned_scores(best, runs)),
        seeds=len(runs),
        seconds=record.get("seconds"),
        tokens=record.get("tokens"),
        steps=record.get("step"),
        picked=None if last or picked is None else int(picked),
    )


def _seeds(own: Run) -> list[Run]:
    """The run and those beside it that differ only in the seed."""
    run = own.folder
    stem = without_seed(run.name)
    beside = [run] if stem == run.name else sorted(run.parent.glob(f"{escape(stem)}-seed-*"))
    runs = [
        read_run(folder)
        for folder in beside
        if (folder / RECORD).is_file() and without_seed(folder.name) == stem
    ]
    same = _without_seed(own)
    return [one for one in runs if _without_seed(one) == same]


def _without_seed(run: Run) -> tuple[object, dict[str, Any]]:
    """The data and settings of a run, except its seed."""
    settings = read_yaml(run.folder / "settings.yaml") if (run.folder / "settings.yaml").is_file() else {}
    own = {name: value for name, value in settings.items() if name not in ("name", "seed", "watching")}
    return run.record.get("data"), own


def _tuned_scores(run: Run, runs: Sequence[Run]) -> Iterator[Score]:
    found = spreads(runs) if len(runs) > 1 else {}
    for split, scores in (("dev", run.scores), ("test", run.test)):
        lines = read_predictions(run.folder, split)
        for metric in (name for name in run.metrics if name in scores):
            value = float(scores[metric])
            interval = of_predictions(metric, value, lines)
            spread = found.get(metric) if split == "dev" else None
            yield Score(metric, value, split, interval=interval, spread=spread, count=len(lines) or None)


def _last_scores(run: Run) -> Iterator[Score]:
    """The scores of the last evaluation on dev, where another one selected the best model; none where the
    best model was rescored on other dev examples since."""
    count = len(read_predictions(run.folder, "dev")) or None
    for metric in run.metrics:
        found = dict(run.curve(metric, evaluated=True))
        last, picked = run.record["step"], run.scores["step"]
        if last in found and metric in run.scores and found.get(picked) == run.scores[metric]:
            yield Score(metric, found[last], "dev", what="last step", count=count)


def _pretrained(run: Path, model: Path, last: bool, common: Mapping[str, Any]) -> Facts:
    rows = read_metrics(run / "metrics.jsonl") if (run / "metrics.jsonl").is_file() else []
    trained: dict[str, Any] = next((row for row in reversed(rows) if "tokens" in row), {})
    evaluations = [row for row in rows if "evaluation" in row]
    evaluated: dict[str, Any] = max(
        evaluations[-1:] if last else evaluations, key=_selection_score, default={}
    )
    scores, settings = list(_stored_scores(model)), common["settings"]
    masked = (settings.get("objective") or {}).get("kind", "masked") == "masked"
    for metric, value in evaluated.get("evaluation", {}).items() if not scores else ():
        if not masked:  # without masks, mask_accuracy would repeat accuracy
            metric = metric.replace("mlm_", "lm_", 1)
        if metric.endswith("accuracy") and value is not None and (masked or not metric.startswith("mask_")):
            scores.append(Score(metric, float(value), "held out", what="while it was trained"))
    chosen = settings.get("model") or {}
    return Facts(
        **common,
        made="distilled" if common["teacher"] else "pretrained",
        base=public_name(str(chosen.get("start_from") or "")),
        corpus=_corpus(Path(str(settings.get("corpus", ""))), run),
        scores=tuple(scores),
        seconds=trained.get("elapsed"),
        tokens=trained.get("tokens"),
        steps=trained.get("step"),
        picked=None if last else evaluated.get("step"),
        branch=branch_of(run),
    )


def _selection_score(row: Mapping[str, Any]) -> float:
    value = row["evaluation"].get(_PICKS)
    return -1.0 if value is None else float(value)  # null where it was not a number


def _corpus(folder: Path, run: Path) -> Manifest | None:
    """The corpus of the run; None where it is missing or was replaced by another."""
    try:
        found, sha256 = load_manifest(folder), manifest_digest(folder)
    except (AlbertineError, OSError):
        return None
    return found if _read_corpus(run) in (None, sha256) else None


def _read_corpus(run: Path) -> str | None:
    """SHA-256 of the corpus manifest in the newest checkpoint of a run; None without checkpoints."""
    store = CheckpointStore(run / "checkpoints")
    states = [read_json(store.path(step) / STATE) for step in store.steps()[-1:]]
    return (states[0].get("fingerprint") or {}).get("corpus") if states else None


def _stored_scores(model: Path) -> Iterator[Score]:
    """The scores in scores.json beside a model: rows of `albertine score --json` or a suite, optionally by
    name."""
    try:
        tree = json.loads(read_regular(model / "scores.json", MAX_JSON_BYTES))
    except (OSError, ValueError, RecursionError):
        return
    parts = tree if isinstance(tree, dict) and "right" not in tree else {"": tree}
    for name, part in parts.items():
        for row in part if isinstance(part, list) else [part]:
            if not isinstance(row, dict):
                continue
            if "pairs" in row and "right" in row:
                error = row.get("standard_error")
                interval = None if error is None else of_error(row["right"], error)
                what = str(row.get("suite", name))
                yield Score("right", row["right"], "test", what, interval, chance=0.5, count=row["pairs"])
            elif "task" in row:
                yield from _scored(row, f"{row['task']} {name}".strip().replace("_", " "))


def _scored(row: Mapping[str, Any], what: str) -> Iterator[Score]:
    for metric, (many, *chances) in _ACCURACIES.items():
        if isinstance(row.get(metric), float) and isinstance(count := row.get(many), int) and count:
            interval = of_share(row[metric], count)
            baselines = (row[name] for name in chances if isinstance(row.get(name), int | float))
            chance = max(baselines, default=None)
            yield Score(metric, row[metric], "held out", what, interval, None, chance, count)


def public_name(name: str) -> str:
    """A name without paths of the machine: the last part of a path, of a model in a run the name of the run;
    names of the hub and of released models are unchanged."""
    path = PurePath(name)
    if not path.is_absolute() and not name.startswith((".", "~")):
        return name
    return path.parent.name if path.name in ("best", "final") and path.parent.name else path.name


def _found(tree: Any, key: str) -> str | None:
    """The first string under a key, at any depth."""
    if not isinstance(tree, Mapping):
        return None
    if isinstance(tree.get(key), str):
        return str(tree[key])
    return next((found for part in tree.values() if (found := _found(part, key))), None)
