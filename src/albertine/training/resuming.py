"""Where a run goes on: the checkpoint to begin from, proven to belong to it."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from pathlib import Path

from albertine.core.files import user_path
from albertine.errors import RunError, SettingsError
from albertine.training.branching import Branch, branched, check_no_branch, check_same_branch
from albertine.training.checkpoints import (
    Checkpoint,
    CheckpointStore,
    check_fingerprint,
    has_average,
    read_named,
    restore,
)
from albertine.training.job import Job, State
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
