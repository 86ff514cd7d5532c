"""Where a run goes on: the checkpoint to begin from, proven to belong to it."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from albertine.core.files import os_errors_as_run_errors, read_json, user_path, write_json
from albertine.errors import CheckpointError, RunError, SettingsError
from albertine.training.alarms import onset_minute
from albertine.training.checkpoints import (
    ABSENT,
    MANIFEST,
    Change,
    Checkpoint,
    CheckpointStore,
    check_fingerprint,
    fingerprint_changes,
    has_average,
    is_fixed,
    read_named,
    restore,
)
from albertine.training.job import Branching, Job, State
from albertine.training.metrics import read_metrics

log = logging.getLogger("albertine.training")


@dataclass(frozen=True)
class Start:
    """How a run begins: its state, and of a branch that has saved nothing yet where it comes from; and
    whether it goes back, so that its later checkpoints are put aside when it begins."""

    state: State
    branch: Branch | None = None
    goes_back: bool = False


def restored_state(
    job: Job,
    store: CheckpointStore,
    resume: str | Path,
    *,
    strict: bool = False,
    branch_from: str | Path | None = None,
) -> Start:
    """Put the checkpoint that a run goes on from into the job's model and optimiser, and give back the state
    of the run.

    Args:
        resume, branch_from: as in `train`.

    Raises:
        CheckpointError: it is damaged, or made by a run with other settings or another model.
        RunError: `never`, and there are checkpoints; or the ranks see different ones; or they are not of this
            branch; or a run that is done has none.
        SettingsError: both a branch and a checkpoint to resume were named.
    """
    if branch_from is not None and _is_new_branch(job, store, resume, user_path(branch_from)):
        _check_not_done(job, store)
        return _branch(job, user_path(branch_from))
    found = _choose(store, resume, strict)
    _agree(job, store, found)
    if found is None:
        check_no_branch(job.folder.path)
        _check_not_done(job, store)
        return Start(State())
    state = State.of(found.state)
    branches = job.branching is not None and job.settings.progress(state.step, state.elapsed) < 1
    fixed = job.branching.fixed if job.branching is not None and branches else None
    check_fingerprint(found, job.fingerprint, fixed)
    restore(found, job.model, job.optimizer, job.average, job.carried)
    if found.path.resolve() != store.path(found.step).resolve():  # another folder's, or one put aside
        state = _as_a_stranger(job, state)
    log.info("resumed from %s", found.path)
    return Start(state, goes_back=resume != "auto")


def _check_not_done(job: Job, store: CheckpointStore) -> None:
    """Refuse to begin at step 0 over a run that is done, or whose checkpoints lie where a link leads nowhere.

    Raises:
        RunError: it says so.
    """
    astray = store.folder.is_symlink() and not store.folder.is_dir()
    if job.world.from_main(float(job.folder.final.is_dir() or astray)):
        raise RunError(
            "holds a run and none of its checkpoints",
            where=job.folder.path,
            remedy="Put them back, choose another name, or delete the folder",
        )


def _is_new_branch(job: Job, store: CheckpointStore, resume: str | Path, origin: Path) -> bool:
    if resume not in ("auto", "never"):
        raise SettingsError(
            "--resume with a checkpoint and --branch-from exclude each other",
            remedy="A branch begins a new run with other settings; --resume goes on with one",
        )
    # As the main process sees it: it is the first to write here, while others may still be looking.
    if job.world.from_main(not store.steps()):
        return True
    check_same_branch(job.folder.path, store, origin)
    return False


def _branch(job: Job, origin: Path) -> Start:
    if job.branching is None:
        raise SettingsError("a run of this kind cannot be branched", where=origin)
    found, state, branch = branched(job, job.branching, origin)
    restore(found, job.model, job.optimizer, job.average, job.carried, branch=branch.changes)
    another = any(change.key == "training.average" for change in branch.changes)  # its decay
    if job.average is not None and (another or not has_average(found)):
        job.average.begin()
        state = replace(state, unaveraged=state.step)
    return Start(state, branch)


def _as_a_stranger(job: Job, state: State) -> State:
    """The state of another folder's checkpoint in this one, which has lines, scores and a best of its own."""
    lines = sum(row["step"] <= state.step for row in read_metrics(job.folder.metrics))
    lines = round(job.world.from_main(lines))
    return replace(state, lines=lines, saved=State().saved, best=None, since_best=0)


def _agree(job: Job, store: CheckpointStore, found: Checkpoint | None) -> None:
    step = found.step if found else 0
    if job.world.any(step != job.world.from_main(step)):
        raise RunError(
            "the ranks do not see the same checkpoints", where=store.folder, remedy="Use a shared folder"
        )


def _choose(store: CheckpointStore, resume: str | Path, strict: bool) -> Checkpoint | None:
    if resume == "auto":
        return store.load(strict=strict)
    if resume != "never":
        return read_named(user_path(resume))
    if store.steps():
        raise RunError(
            "holds checkpoints of an earlier run",
            where=store.folder,
            remedy="Choose another name, delete the folder, or resume it with --resume auto",
        )
    return None


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


def onset_of_run(folder: Path) -> float | None:
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
