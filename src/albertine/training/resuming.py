"""The start of a run: at step 0, resumed from a checkpoint of its own, or branched from one of another run.

A branch has other settings: the run is extended, its learning rate lowered, or a stable phase cooled down.
The original run stays as it is; `branch.json` in the folder of the branch records checkpoint and differences.
"""

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
    check_layout,
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
    """The start of a run.

    Attributes:
        branch: its origin, of a branch without a checkpoint of its own.
        goes_back: resumed from a named checkpoint; later ones are renamed.
    """

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
    """Load the checkpoint that a run starts from into the job's model and optimizer.

    Args:
        resume, branch_from: as in `train`.

    Raises:
        CheckpointError: it is damaged, or of a run with other settings or another model.
        RunError: there are checkpoints under `never`, the ranks see different ones, they are not of this
            branch, or a finished run has none.
        SettingsError: both a branch and a checkpoint to resume are given.
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
    restore(found, job.model, job.optimizer, job.average, job.recurrent_state)
    if found.path.resolve() != store.path(found.step).resolve():  # of another folder, or abandoned
        state = _of_another_folder(job, state)
    log.info("resumed from %s", found.path)
    return Start(state, goes_back=resume != "auto")


def _check_not_done(job: Job, store: CheckpointStore) -> None:
    """Refuse to start at step 0 in the folder of a finished run, or where `checkpoints` is a broken link.

    Raises:
        RunError: it is one of them.
    """
    broken_link = store.folder.is_symlink() and not store.folder.is_dir()
    if job.world.from_main(float(job.folder.final.is_dir() or broken_link)):
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
    # The main process' answer: it may write here while other ranks still look.
    if job.world.from_main(not store.steps()):
        return True
    check_same_branch(job.folder.path, store, origin)
    return False


def _branch(job: Job, origin: Path) -> Start:
    if job.branching is None:
        raise SettingsError("a run of this kind cannot be branched", where=origin)
    found, state, branch = branched(job, job.branching, origin)
    restore(found, job.model, job.optimizer, job.average, job.recurrent_state, branch=branch.changes)
    new_decay = any(change.key == "training.average" for change in branch.changes)
    if job.average is not None and (new_decay or not has_average(found)):
        job.average.begin()
        state = replace(state, unaveraged=state.step)
    return Start(state, branch)


def _of_another_folder(job: Job, state: State) -> State:
    """The state of another folder's checkpoint for this one, whose metrics lines and best score it
    replaces."""
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
    """The origin of a run.

    Attributes:
        checkpoint: of the original run. sha256: of its manifest, which has the hashes of all its files.
        changes: fingerprint keys that differ.
    """

    checkpoint: Path
    sha256: str
    step: int
    changes: tuple[Change, ...]

    def write(self, folder: Path) -> None:
        """Write `branch.json` into the folder of the run.

        Raises:
            RunError: the disk is full or not writable.
        """
        tree = {
            "checkpoint": str(self.checkpoint),
            "manifest_sha256": self.sha256,
            "step": self.step,
            "differences": {change.key: _values(change) for change in self.changes},
        }
        with os_errors_as_run_errors(folder):
            write_json(folder / FILE, tree)

    def summary(self) -> list[str]:
        """Lines for the log."""
        found = [f"begins at step {self.step} of {self.checkpoint}"]
        return found + ([f"  {change}" for change in self.changes] or ["  with the same settings"])


def branched(job: Job, rules: Branching, origin: Path) -> tuple[Checkpoint, State, Branch]:
    """The checkpoint that a branch starts from, its first state, and its record. Writes nothing.

    Raises:
        CheckpointError: it is damaged, differs in what a branch may not change, or is of a run that a
            development version began.
        SettingsError: the branch would end before its first step.
    """
    found = read_named(origin)
    before = found.state.get("fingerprint", {})
    check_layout(before, job.fingerprint, found.path)
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
    # Best score, scores and metrics lines are those of the original run.
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
    """Refuse to start at step 0 where a branch was killed before its first checkpoint.

    Raises:
        RunError: the folder has `branch.json`.
    """
    if known := branch_of(folder):
        raise RunError(
            f"is of a run that begins {_beginning(known)}, and has no checkpoint yet",
            where=folder,
            remedy="Give the same command with --branch-from, or choose another name",
        )


def branch_of(folder: Path) -> dict[str, Any]:
    """`branch.json` of a run's folder; empty without one."""
    return read_json(folder / FILE)


def onset_of_run(folder: Path) -> float | None:
    """Minutes of training to the context-gain onset of the run in a folder; None without one, and for a
    branch, which may start after it."""
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
    """SHA-256 of its manifest; empty if there is none."""
    try:
        return hashlib.sha256((checkpoint / MANIFEST).read_bytes()).hexdigest()
    except OSError:
        return ""


def _values(change: Change) -> dict[str, Any]:
    both = {"before": change.before, "now": change.now}
    return {name: value for name, value in both.items() if value is not ABSENT}
