"""A run that begins where a checkpoint of another run stands, with other settings.

So a run is extended, its rate lowered, or a stable phase cooled down, without touching the run it comes from.
Where it comes from, and what differs, stands in `branch.json` of its folder.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from albertine.core.files import os_errors_as_run_errors, read_json, write_json
from albertine.errors import CheckpointError, RunError, SettingsError
from albertine.training.alarms import onset_minute
from albertine.training.checkpoints import (
    MANIFEST,
    Checkpoint,
    CheckpointStore,
    fingerprint_changes,
    is_fixed,
    read_named,
)
from albertine.training.config_diff import ABSENT, Change
from albertine.training.job import Branching, Job, State
from albertine.training.metrics import read_metrics

FILE = "branch.json"


@dataclass(frozen=True)
class Branch:
    """Where a run began.

    Attributes:
        checkpoint: of the run it comes from. sha256: of that checkpoint's manifest, which has those of all
            its files.
        changes: the settings that decide the result and differ.
    """

    checkpoint: Path
    sha256: str
    step: int
    changes: tuple[Change, ...]

    def write(self, folder: Path) -> None:
        """Put it on record in the folder of the run.

        Raises:
            RunError: the disk refuses.
        """
        tree = {
            "checkpoint": str(self.checkpoint),
            "manifest_sha256": self.sha256,
            "step": self.step,
            "differences": {change.key: _values(change) for change in self.changes},
        }
        with os_errors_as_run_errors(folder):
            write_json(folder / FILE, tree)

    def told(self) -> list[str]:
        """What a person has to know of it, in lines."""
        found = [f"begins at step {self.step} of {self.checkpoint}"]
        return found + ([f"  {change}" for change in self.changes] or ["  with the same settings"])


def branched(job: Job, rules: Branching, origin: Path) -> tuple[Checkpoint, State, Branch]:
    """The checkpoint that a new run begins with, its first state, and what to put on record.

    Nothing is written.

    Raises:
        CheckpointError: it is damaged, or differs in what a branch may not change.
        SettingsError: the run would be over before its first step.
    """
    found = read_named(origin)
    before = found.state.get("fingerprint", {})
    differ = tuple(fingerprint_changes(before, job.fingerprint))
    _refuse_fixed(found, [change for change in differ if is_fixed(change.key, rules.fixed)])
    state = State.of(found.state)
    progress = job.settings.progress(state.step, state.elapsed)
    if progress >= 1:
        raise SettingsError(
            f"the run would end where it begins, at step {state.step}",
            where=origin,
            remedy="Raise training.steps or training.minutes, which count from the start of the run before",
        )
    # It has written, scored and saved nothing yet; its best and the sums of its first line are its own.
    fresh = State()
    state = replace(
        state,
        cursor=rules.cursor(state.cursor, before, progress),
        saved=fresh.saved,
        evaluated=fresh.evaluated,
        best=None,
        since_best=0,
        scores={},
        window=None,
        lines=0,
    )
    path = origin.resolve()
    return found, state, Branch(path, _digest(found.path), state.step, differ)


def check_same_branch(folder: Path, store: CheckpointStore, origin: Path) -> None:
    """Refuse a folder whose checkpoints are not those of a branch from `origin`.

    Raises:
        RunError: they are of another run.
    """
    known = branch_of(folder)
    same_place = known.get("checkpoint") == str(origin.resolve())
    if not same_place and (not known or known.get("manifest_sha256") != _digest(origin)):
        raise RunError(
            f"holds checkpoints of another run, which began {_beginning(known)}",
            where=store.folder,
            remedy="Choose another name for the branch",
        )


def check_no_branch(folder: Path) -> None:
    """Refuse to begin at step 0 where a branch was begun and killed before its first checkpoint.

    Raises:
        RunError: the folder says so.
    """
    if known := branch_of(folder):
        raise RunError(
            f"is of a run that begins {_beginning(known)}, and has no checkpoint yet",
            where=folder,
            remedy="Give the same command with --branch-from, or choose another name",
        )


def branch_of(folder: Path) -> dict[str, Any]:
    """The record of a branch in a run's folder; empty where it is none."""
    return read_json(folder / FILE)


def onset_of(folder: Path) -> float | None:
    """The minute by which an evaluation of the run in a folder found that it reads; None without one, or of
    a branch, which may have begun long after."""
    return None if branch_of(folder) else onset_minute(read_metrics(folder / "metrics.jsonl"))


def _refuse_fixed(found: Checkpoint, fixed: list[Change]) -> None:
    if fixed:
        raise CheckpointError(
            f"cannot be branched to other data, another model or optimizer: {'; '.join(map(str, fixed))}",
            where=found.path,
            remedy="Set them as they were; to begin with its weights alone, give model.start_from",
        )


def _beginning(known: Mapping[str, Any]) -> str:
    return f"at {known['checkpoint']}" if "checkpoint" in known else "at step 0"


def _digest(checkpoint: Path) -> str:
    """SHA-256 of its manifest; of one that is gone an empty text."""
    try:
        return hashlib.sha256((checkpoint / MANIFEST).read_bytes()).hexdigest()
    except OSError:
        return ""


def _values(change: Change) -> dict[str, Any]:
    both = {"before": change.before, "now": change.now}
    return {name: value for name, value in both.items() if value is not ABSENT}
