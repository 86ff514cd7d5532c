"""Ensembles of tuned runs: members are selected by their dev scores, and their predictions averaged.

The protocol of the ALBERT paper (Lan et al. 2019, section 4.9): candidates may differ in seed, checkpoint and
number of layers. Every member encodes the data itself, so that tokenizers may differ unless answers depend on
them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from albertine.errors import DataError, ModelError, SettingsError
from albertine.evaluation.ensembles import Rule, best_members, greedy_members
from albertine.evaluation.metrics import metric_sign
from albertine.evaluation.report import write_report
from albertine.evaluation.runs import read_run, without_seed
from albertine.tasks.encoded import Encoded
from albertine.tasks.family import Family, Mergeable, TunedOnDev
from albertine.tasks.rescore import (
    SPLITS,
    Split,
    SplitResult,
    TunedRun,
    predict_splits,
    score_outputs,
    write_results,
)


@dataclass(frozen=True)
class Member:
    """A candidate.

    Attributes:
        scores: its own, by split.
    """

    run: TunedRun
    outputs: Mapping[Split, Any]
    scores: Mapping[Split, Mapping[str, float]]


@dataclass(frozen=True)
class Ensemble:
    """The members of an ensemble and its scores.

    Attributes:
        candidates: all runs that were given. members: indices of the selected ones, in that order.
        rule: how they were selected, in words. picked: whether they were selected on the dev set.
        found: the result of the ensemble for each split.
    """

    candidates: tuple[Member, ...]
    members: tuple[int, ...]
    rule: str
    picked: bool
    found: tuple[SplitResult, ...]

    @property
    def family(self) -> Family:
        return self.candidates[0].run.family

    @property
    def scores(self) -> dict[Split, Mapping[str, float]]:
        return {one.split: one.scores for one in self.found}


def ensemble(
    runs: Sequence[TunedRun],
    *,
    pick: int | None = None,
    rule: Rule = "greedy",
    splits: Sequence[Split] = SPLITS,
    device: torch.device | str = "cpu",
) -> Ensemble:
    """Evaluate all candidates, select members, and evaluate the ensemble.

    Args:
        pick: most members, selected on the dev set; default: all candidates.
        rule: "greedy", forward selection, or "best", those with the best scores of their own.

    Raises:
        SettingsError: fewer than two candidates, no such split, or nothing to pick on.
        ModelError, DataError: the candidates do not belong together; the message names the difference.
    """
    check(runs, splits)
    family, first = runs[0].family, runs[0]
    tunes_on_dev = isinstance(family, TunedOnDev) and "dev" in first.splits
    if (pick is not None or tunes_on_dev) and "dev" not in splits:
        for other in runs[1:]:
            _check_data(first, other, "dev")
        splits = ("dev", *splits)
    candidates = tuple(_member(run, splits, device) for run in runs)

    def merged(numbers: Sequence[int], split: Split) -> tuple[Any, Encoded]:
        assert isinstance(family, Mergeable)
        data = first.splits[split]
        return family.merge([candidates[i].outputs[split] for i in numbers], data), data

    def together(numbers: Sequence[int], split: Split) -> SplitResult:
        if tunes_on_dev and isinstance(family, TunedOnDev):
            family.tune_on_dev(*merged(numbers, "dev"))  # every set of members has a threshold of its own
        outputs, data = merged(numbers, split)
        return score_outputs(family, split, data, outputs)

    members, how = tuple(range(len(runs))), "all that were named"
    if pick is not None:
        metric = family.metrics[0]
        if metric not in candidates[0].scores.get("dev", {}):
            raise SettingsError(
                "members are picked on a dev set, and there is none", remedy="Leave out --pick"
            )
        own = [metric_sign(metric) * member.scores["dev"][metric] for member in candidates]
        if rule == "best":
            members = best_members(own, pick)
            how = f"the {len(members)} best by {metric} on dev"
        else:
            members, _ = greedy_members(
                len(runs), pick, lambda numbers: metric_sign(metric) * together(numbers, "dev").scores[metric]
            )
            how = f"forward selection by {metric} on dev, at most {pick}"
    found = tuple(together(members, split) for split in splits if split in first.splits)
    return Ensemble(candidates, members, how, pick is not None, found)


def _member(run: TunedRun, splits: Sequence[Split], device: torch.device | str) -> Member:
    outputs = predict_splits(run, splits, device)
    alone = {
        split: score_outputs(run.family, split, run.splits[split], output)
        for split, output in outputs.items()
    }
    return Member(run, outputs, {split: one.scores for split, one in alone.items()})


def check(runs: Sequence[TunedRun], splits: Sequence[Split]) -> None:
    """Check that candidates fit together. Raises as `ensemble`."""
    if len(runs) < 2:
        raise SettingsError(
            "an ensemble has two members or more",
            remedy="Name several runs; one alone is scored by `albertine evaluate RUN`",
        )
    first = runs[0]
    if not isinstance(first.family, Mergeable):
        raise SettingsError(f"models that were tuned to {first.family.task} cannot be averaged")
    for other in runs[1:]:
        ours, theirs = first.family, other.family
        for what, a, b in (
            ("tuned to", ours.task, theirs.task),
            ("scored by", ", ".join(ours.metrics), ", ".join(theirs.metrics)),
            ("for the classes", ", ".join(ours.labels), ", ".join(theirs.labels)),
        ):
            if a != b:
                raise ModelError(
                    f"{first.name} and {other.name} do not belong together: one is {what} {a or 'none'}, "
                    f"the other {what} {b or 'none'}"
                )
        for split in splits:
            _check_data(first, other, split)
    if first.splits.keys().isdisjoint(splits):
        raise SettingsError(f"{first.name} has no {' and no '.join(splits)} file")


def _check_data(first: TunedRun, other: TunedRun, split: Split) -> None:
    ours, theirs = first.splits.get(split), other.splits.get(split)
    names = f"{first.name} and {other.name}"
    if (ours is None) != (theirs is None):
        has, lacks = (first, other) if ours is not None else (other, first)
        raise DataError(f"{has.name} has a {split} file and {lacks.name} has none")
    if ours is None or theirs is None or ours is theirs:
        return
    if len(ours.examples) != len(theirs.examples):
        raise DataError(
            f"the {split} files of {names} differ: {len(ours.examples):,} and {len(theirs.examples):,} "
            "examples"
        )
    for number, (a, b) in enumerate(zip(ours.source_examples, theirs.source_examples, strict=True)):
        if _content(a) != _content(b):
            raise DataError(f"the {split} files of {names} differ from example {number} on")
    cut = zip(ours.ids, theirs.ids, strict=True)
    if first.family.task == "tag" and any(a.tolist() != b.tolist() for a, b in cut):
        raise ModelError(
            f"{names} cut texts into different tokens, and tags of tokens have no mean",
            remedy="Take models with one tokenizer and one task.max_length",
        )


def _content(example: Any) -> Any:
    """An example without its location in a file."""
    return replace(example, where="") if hasattr(example, "where") else example


def write_ensemble(folder: Path, found: Ensemble) -> Path:
    """Write predictions, a record and a report into a folder.

    Returns:
        The path of the report.
    """
    runs = [member.run for member in found.candidates]
    members = [
        {
            "run": str(member.run.model_folder),
            "taken": found.members.index(i) + 1 if i in found.members else None,
            **{split: dict(scores) for split, scores in member.scores.items()},
        }
        for i, member in enumerate(found.candidates)
    ]
    task = runs[0].settings.task
    write_results(
        folder,
        folder.name,
        found.family,
        found.found,
        data=task.source,
        rule=found.rule,
        members=members,
        notes=runs[0].notes([one.split for one in found.found]),
    )
    return write_report(folder, folder.name, {folder.name: [read_run(folder)]}, remarks(found))


def ensemble_data(found: Ensemble, page: Path) -> dict[str, Any]:
    """An ensemble and the page of its report as plain data."""
    return {
        "rule": found.rule,
        "members": [found.candidates[i].run.name for i in found.members],
        "candidates": [{"run": member.run.name, **member.scores} for member in found.candidates],
        "scores": found.scores,
        "warning": warning(found) or None,
        "notes": found.candidates[0].run.notes([one.split for one in found.found]),
        "report": str(page),
    }


def ensemble_folder(runs: Sequence[TunedRun]) -> Path:
    """The default folder for predictions and report of an ensemble, beside its first run."""
    return runs[0].folder.absolute().parent / f"{without_seed(runs[0].name)}-ensemble"


def remarks(found: Ensemble) -> list[str]:
    """Paragraphs of a report on an ensemble: the members, the rule, and a warning on its dev score."""
    splits = [one.split for one in found.found]
    lines = ["| member | taken | " + " | ".join(splits) + " |", "| --- | ---: |" + " ---: |" * len(splits)]
    *members, together = rows(found)
    lines += ["| " + " | ".join(row) + " |" for row in members]
    lines.append("| **together** | | " + " | ".join(together[2:]) + " |")
    paragraphs = [f"Members: {found.rule}. Numbers are {found.family.metrics[0]}.", "\n".join(lines)]
    return [*paragraphs, warning(found)] if warning(found) else paragraphs


def rows(found: Ensemble) -> list[list[str]]:
    """A row for each candidate: its name, its rank among the members or "no", and its first score on every
    split; the last row is that of the ensemble."""
    metric = found.family.metrics[0]
    table = []
    for i, member in enumerate(found.candidates):
        place = str(found.members.index(i) + 1) if i in found.members else "no"
        scores = (member.scores.get(one.split, {}) for one in found.found)
        table.append([member.run.name, place, *(_number(own, metric) for own in scores)])
    return [*table, ["together", "", *(_number(one.scores, metric) for one in found.found)]]


def warning(found: Ensemble) -> str:
    """A warning that the dev score is optimistic; empty if the members were not selected on the dev set."""
    if not found.picked:
        return ""
    text = "The dev set picked the members, so the dev score of the ensemble is optimistic"
    if found.scores.get("test"):
        return f"{text}; the test score is not."
    return f"{text}, and there is no labelled test file to measure by how much."


def _number(scores: Mapping[str, float], metric: str) -> str:
    return f"{scores[metric]:.4f}" if metric in scores else ""
