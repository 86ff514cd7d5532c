"""Checkpoints that are complete or absent: written under another name, hashed, flushed, renamed; verified
when they are read.

A checkpoint is a folder `step-N` with `model.safetensors`, `optimizer.safetensors`, `state.json` and
`manifest.json`, which holds size and SHA-256 of the other three. `latest` names the newest for people and
other tools; loading relies on the manifests alone.
"""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import torch
from safetensors.torch import load as tensors_from
from safetensors.torch import save as bytes_of
from torch import Tensor, nn
from torch.optim import Optimizer

from albertine.core.files import (
    MAX_JSON_BYTES,
    make_folder,
    os_errors_as_run_errors,
    read_regular,
    recover,
    remove_folder,
    replace_durably,
    replaced_folder,
    resolve_folder,
    write_durably,
)
from albertine.errors import CheckpointError, SettingsError
from albertine.training.average import Average
from albertine.training.step import RecurrentState

FORMAT = 1
LAYOUT = 2
"""Of fingerprints, in which it is the entry `layout`; those of earlier development versions lack it."""
MODEL, OPTIMIZER, STATE, MANIFEST, LATEST = (
    "model.safetensors",
    "optimizer.safetensors",
    "state.json",
    "manifest.json",
    "latest",
)
AVERAGE, RECURRENT = "average", "carried"
"""Parts of tensor names in `optimizer.safetensors`: averaged weights, and recurrent state of the loss."""
MAX_SHAPES = 6
"""Number of tensors up to which each one that only one of two models has is listed."""
ABSENT: Final = object()

log = logging.getLogger("albertine.training")


@dataclass(frozen=True)
class Checkpoint:
    """A verified checkpoint: tensors by name, and the state of the run as JSON data."""

    path: Path
    step: int
    model: dict[str, Tensor]
    optimizer: dict[str, Tensor]
    state: dict[str, Any]


class OtherVersion(CheckpointError):
    """A checkpoint in the format of another version of Albertine."""


class CheckpointStore:
    """The checkpoints of one run.

    Args:
        folder: holds `step-N` and `latest`; made at the first save.
        keep: number of checkpoints kept, at least 2, because the newest may be damaged.
    """

    def __init__(self, folder: Path, keep: int = 3) -> None:
        if keep < 2:
            raise SettingsError(
                "at least two checkpoints have to be kept", remedy="The newest one may be damaged by a crash"
            )
        self.folder, self.keep = folder, keep
        self._damaged: set[int] = set()

    def steps(self) -> list[int]:
        """Steps of the checkpoints in increasing order, unverified. One whose writing was killed between its
        two renames is included."""
        if not self.folder.is_dir():
            return []
        found = [path for path in self.folder.glob("step-*") if path.is_dir()]
        found += [path for path in self._beside() if path.suffix != ".part" and _looks_complete(path)]
        names = {_name(path).removeprefix("step-") for path in found}
        return sorted(int(name) for name in names if name.isascii() and name.isdecimal())

    def path(self, step: int) -> Path:
        """The folder of the checkpoint of a step."""
        return resolve_folder(self.folder / f"step-{step}")

    def save(
        self,
        step: int,
        model: Mapping[str, Tensor],
        optimizer: Mapping[str, Tensor],
        state: Mapping[str, Any],
    ) -> Path:
        """Write a checkpoint durably; a crash before this returns leaves the older ones intact.

        Where a complete one with the same weights exists, only its state is replaced.

        Raises:
            RunError: the disk is full or not writable.
        """
        with os_errors_as_run_errors(self.folder):
            make_folder(self.folder)
            self._recover()
            target = self.path(step)
            files = {
                MODEL: bytes_of(dict(model)),
                OPTIMIZER: bytes_of(dict(optimizer)),
                STATE: _json(state),
            }
            if not _replace_state(target, step, files):
                # Its name begins with a dot until it is complete, so that no reader takes it for a
                # checkpoint.
                with replaced_folder(target) as beside:
                    for name, data in files.items():
                        write_durably(beside / name, data)
                    write_durably(beside / MANIFEST, _manifest(step, files))
            self._damaged.discard(step)
            replace_durably(self.folder / LATEST, f"step-{step}\n".encode())
            self._prune()
        return target

    def load(self, *, strict: bool = False) -> Checkpoint | None:
        """The newest complete checkpoint, or None where the folder has none.

        A damaged one is skipped with a warning; it is not deleted before a newer one is complete.

        Raises:
            CheckpointError: all are damaged; with `strict`, the newest is; or another version wrote it.
        """
        steps, problems = self.steps(), []
        for step in reversed(steps):
            try:
                found = read(self.path(step))
            except OtherVersion:
                raise
            except CheckpointError as error:
                if strict:
                    raise
                self._damaged.add(step)
                problems.append(str(error))
                log.warning("DAMAGED CHECKPOINT, going back to the one before: %s", error)
                continue
            if problems:
                log.warning("going on from step %d instead of step %d", found.step, steps[-1])
            return found
        if problems:
            raise CheckpointError(
                f"none of the {len(problems)} checkpoints is whole; the newest: {problems[0]}",
                where=self.folder,
                remedy="Begin again under another name, or delete the folder",
            )
        return None

    def abandon_after(self, step: int) -> None:
        """Rename the checkpoints after a step from which the user resumes the run."""
        with os_errors_as_run_errors(self.folder):
            for later in self.steps():
                if later > step:
                    aside, number = self.folder / f"abandoned-step-{later}", 1
                    while os.path.lexists(aside):
                        number += 1
                        aside = self.folder / f"abandoned-step-{later}-{number}"
                    os.rename(self.path(later), aside)
                    log.warning(
                        "step %d is later than the requested checkpoint; kept as %s", later, aside.name
                    )

    def _beside(self) -> list[Path]:
        """What an interrupted writer left: see `replaced_folder`."""
        return sorted(self.folder.glob(".*step-*.*"))

    def _recover(self) -> None:
        """Finish or remove what a killed process left."""
        for name in {_name(rest) for rest in self._beside()}:
            recover(self.folder / name)
        for rest in self.folder.glob("step-*/.*.new"):
            rest.unlink(missing_ok=True)

    def _prune(self) -> None:
        """Delete all but the newest `keep` that look complete; damaged ones are deleted and do not count."""
        kept = 0
        for step in reversed(self.steps()):
            if step not in self._damaged and kept < self.keep and _looks_complete(self.path(step)):
                kept += 1
                continue
            remove_folder(self.path(step))
        self._damaged &= set(self.steps())


def read(path: Path) -> Checkpoint:
    """Read one checkpoint and verify every byte against its manifest.

    Raises:
        CheckpointError: a file is missing, of another size or changed.
    """
    path = resolve_folder(path)
    step, files = _read_manifest(path)
    contents = {name: _read_checked(path / name, facts) for name, facts in files.items()}
    try:
        state = json.loads(contents[STATE])
        return Checkpoint(path, step, tensors_from(contents[MODEL]), tensors_from(contents[OPTIMIZER]), state)
    except Exception as error:  # the hashes are right, so another version wrote it
        raise CheckpointError(f"was written by an incompatible version ({error})", where=path) from error


def read_state(path: Path) -> dict[str, Any]:
    """The state of the run in a checkpoint, checked against its manifest; no tensor is read.

    Raises:
        CheckpointError: it is missing or changed, or another version wrote it.
    """
    path = resolve_folder(path)
    _, files = _read_manifest(path)
    try:
        state: dict[str, Any] = json.loads(_read_checked(path / STATE, files[STATE]))
    except ValueError as error:
        raise CheckpointError(f"was written by an incompatible version ({error})", where=path) from error
    return state


def read_named(path: Path) -> Checkpoint:
    """Read the checkpoint at a path that the user gave.

    Raises:
        CheckpointError: it is a run, a model or something else, or not complete.
    """
    if path.is_dir() and not (path / MANIFEST).is_file() and not _name(path).startswith("step-"):
        stores = map(CheckpointStore, (path / "checkpoints", path, path.parent / "checkpoints"))
        newest = next((store.path(steps[-1]) for store in stores if (steps := store.steps())), None)
        example = f", such as {newest}" if newest else ""
        raise CheckpointError(
            "is no checkpoint",
            where=path,
            remedy=f"Name a folder step-N in the checkpoints/ of a run{example}; to begin with the weights "
            "of a model alone, give model.start_from (of finetune, encoder.folder)",
        )
    return read(path)


def model_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Parameters and persistent buffers by name; a tensor with several names is there once, under the
    first."""
    seen: dict[Tensor, str] = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        seen.setdefault(tensor, name)
    return {name: tensor.detach() for tensor, name in seen.items()}


def first_not_finite(tensors: Mapping[str, Tensor]) -> str | None:
    """The name of the first tensor that holds NaN or infinity, or None."""
    for name, x in tensors.items():
        if x.is_floating_point() and not bool(torch.isfinite(x.sum())) and not bool(x.isfinite().all()):
            return name
    return None


def optimizer_tensors(
    model: nn.Module, optimizer: Optimizer, average: Average | None = None
) -> dict[str, Tensor]:
    """The optimizer's tensors and the averaged weights, named `parameter/key`."""
    names: dict[Tensor, str] = {p: name for name, p in model.named_parameters()}
    found = {
        f"{names[p]}/{key}": value for p, entry in optimizer.state.items() for key, value in entry.items()
    }
    if others := [name for name, value in found.items() if not isinstance(value, Tensor)]:
        raise TypeError(f"optimizer state that is not a tensor: {others}")
    averages = {} if average is None else {f"{name}/{AVERAGE}": x for name, x in average.tensors.items()}
    return {name: value.detach() for name, value in found.items()} | averages


def named_recurrent_state(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Recurrent state of a loss under its names among the optimizer's tensors."""
    return {f"{RECURRENT}/{name}": value for name, value in tensors.items()}


@torch.no_grad()
def restore(
    checkpoint: Checkpoint,
    model: nn.Module,
    optimizer: Optimizer,
    average: Average | None = None,
    recurrent: RecurrentState | None = None,
    *,
    branch: Sequence[Change] | None = None,
) -> None:
    """Load a checkpoint into a model, its optimizer, its averaged weights and the recurrent state of its
    loss. On a mismatch none is changed.

    Args:
        branch: settings of a branch that differ from the run's; it may drop an average, or begin one at these
            weights. None: the run is resumed.

    Raises:
        CheckpointError: names or shapes differ; the message lists them.
    """
    current, parameters = model_tensors(model), dict(model.named_parameters())
    problems = shape_differences(_shapes(checkpoint.model), _shapes(current))
    # No parameter has this prefix: their names have a dot.
    prefix = f"{RECURRENT}/"
    states = {k.removeprefix(prefix): v for k, v in checkpoint.optimizer.items() if k.startswith(prefix)}
    moments = {k: v for k, v in checkpoint.optimizer.items() if not k.startswith(prefix)}
    for name, value in moments.items():
        owner = name.rsplit("/", 1)[0]
        parameter = parameters.get(owner)
        if parameter is None and owner not in checkpoint.model:  # else listed above
            problems.append(f"optimizer state {name}: no such parameter now")
        elif parameter is not None and value.ndim and value.shape != parameter.shape:
            problems.append(
                f"optimizer state {name}: checkpoint {list(value.shape)}, now {list(parameter.shape)}"
            )
    averages = {name for name in moments if name.endswith(f"/{AVERAGE}")}
    expected = set() if average is None else {f"{name}/{AVERAGE}" for name in average.tensors}
    if averages != expected and branch is None:
        problems.append("an average of the weights: " + ("none in it" if expected else "in it, and none now"))
    if problems:
        raise _mismatch(checkpoint, problems, branch)
    for name, tensor in current.items():
        tensor.copy_(checkpoint.model[name])
    if recurrent is not None:
        recurrent.restore({name: value.clone() for name, value in states.items()})
    if average is not None:
        average.begin()
    optimizer.state.clear()
    for name, value in moments.items():
        owner, key = name.rsplit("/", 1)
        parameter = parameters[owner]
        if name in averages:
            if average is not None:
                average.tensors[owner].copy_(value)
            continue
        # A copy, because the tensors of a file share one buffer, which would stay in memory.
        optimizer.state[parameter][key] = value.to(parameter.device, copy=True)


def has_average(checkpoint: Checkpoint) -> bool:
    """Whether a checkpoint has averaged weights."""
    return any(name.endswith(f"/{AVERAGE}") for name in checkpoint.optimizer)


def _mismatch(
    checkpoint: Checkpoint, problems: list[str], branch: Sequence[Change] | None
) -> CheckpointError:
    what, remedy = f"does not fit this model: {listed(problems)}", "Resume with the settings of that run"
    if branch is not None:
        differ = f"; settings that differ: {listed(list(map(str, branch)))}" if branch else ""
        what, remedy = what + differ, "Set those back that make another model"
        remedy += "; to begin with its weights alone, give model.start_from, such as the final/ of that run"
    return CheckpointError(what, where=checkpoint.path, remedy=remedy)


def check_fingerprint(
    checkpoint: Checkpoint, fingerprint: Mapping[str, Any], fixed: Sequence[str] | None = None
) -> None:
    """Refuse to resume with other settings among those that determine the result.

    Args:
        fixed: the keys that a branch of the run cannot change (`Branching.fixed`); None: the run cannot be
            branched.

    Raises:
        CheckpointError: keys differ; lists them with both values, and proposes a branch where one may differ
            in them. Or a development version began the run.
    """
    before = checkpoint.state.get("fingerprint", {})
    check_layout(before, fingerprint, checkpoint.path)
    problems = fingerprint_changes(before, fingerprint)
    remedy = None
    if fixed is not None and not any(is_fixed(change.key, fixed) for change in problems):
        remedy = (
            f"To go on with these settings, begin a new run at this checkpoint: --branch-from "
            f"{checkpoint.path} with another name (in Python branch_from=, name=). Or set them back"
        )
    refuse_changes(problems, checkpoint.path, remedy)


def check_layout(before: Mapping[str, Any], fingerprint: Mapping[str, Any], where: Path) -> None:
    """Refuse the fingerprint of an earlier layout, whose keys differ although no setting was changed.

    Raises:
        CheckpointError: a checkpoint or record has such a fingerprint.
    """
    if "layout" in fingerprint and "layout" not in before:
        raise CheckpointError(
            "was begun by a development version before 2026-11-30 and cannot be resumed; "
            "its models can be used",
            where=where,
            remedy="Begin a new run under another name",
        )


def is_fixed(key: str, fixed: Sequence[str]) -> bool:
    """Whether a fingerprint key is one of the fixed keys, or below one."""
    return any(f"{key}.".startswith(f"{name}.") for name in fixed)


def refuse_changes(problems: Sequence[Change], where: Path, remedy: str | None = None) -> None:
    """
    Raises:
        CheckpointError: there are differences; lists them.
    """
    if problems:
        raise CheckpointError(
            f"belongs to a run with other settings: {listed(list(map(str, problems)))}",
            where=where,
            remedy=remedy or "Set them back, or begin a new run under another name",
        )


def fingerprint_changes(before: Mapping[str, Any], fingerprint: Mapping[str, Any]) -> list[Change]:
    """The differences between the fingerprint in a checkpoint or a record, and that of a run."""
    return list(changes(before, json.loads(_json(fingerprint))))


def checkpoint_bytes(model: nn.Module, moments: int = 2) -> int:
    """Approximate size of a checkpoint: the weights, and as much again for every moment of the optimizer."""
    return sum(t.numel() * t.element_size() for t in model_tensors(model).values()) * (1 + moments)


def _name(path: Path) -> str:
    """`step-N` for a checkpoint and for the names of its unfinished versions."""
    return path.name.lstrip(".").partition(".")[0]


def _replace_state(path: Path, step: int, files: Mapping[str, bytes]) -> bool:
    """Replace the state of a complete checkpoint that has these weights; False if there is none.

    Not by exchanging folders, which would leave a moment without a checkpoint. The new manifest is written
    first, with the hashes of the old and of the new state.
    """
    try:
        _, known = _read_manifest(path)
        before = {name: _read_checked(path / name, facts) for name, facts in known.items()}
    except CheckpointError:
        return False
    if any(before[name] != files[name] for name in (MODEL, OPTIMIZER)):
        return False
    if before[STATE] != files[STATE]:
        replace_durably(path / MANIFEST, _manifest(step, files, before[STATE]))
        replace_durably(path / STATE, files[STATE])
    return True


def _manifest(step: int, files: Mapping[str, bytes], state_before: bytes | None = None) -> bytes:
    tree: dict[str, Any] = {"format": FORMAT, "step": step}
    tree["files"] = {name: _facts(data) for name, data in files.items()}
    return _sealed(tree if state_before is None else {**tree, "state_before": _facts(state_before)})


def _facts(data: bytes) -> dict[str, Any]:
    return {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def _sealed(tree: Mapping[str, Any]) -> bytes:
    # The manifest has the hashes of the other files and its own.
    return _json({**tree, "manifest_sha256": hashlib.sha256(_json(tree)).hexdigest()})


def _read_manifest(path: Path) -> tuple[int, dict[str, list[tuple[int, str]]]]:
    """The step, and for each file its possible pairs of size and SHA-256: one, or two for a state that was
    being replaced."""
    if not path.is_dir():
        raise CheckpointError("there is no such checkpoint", where=path)
    try:
        raw = read_regular(path / MANIFEST, MAX_JSON_BYTES)
        tree = json.loads(raw)
        tree.pop("manifest_sha256")
        intact = _sealed(tree) == raw
        step, form = tree["step"], tree["format"]
        files = {name: [(facts["size"], facts["sha256"])] for name, facts in tree["files"].items()}
        if (facts := tree.get("state_before")) is not None:
            files[STATE].append((facts["size"], facts["sha256"]))
    except FileNotFoundError as error:
        raise CheckpointError(f"{MANIFEST} is missing", where=path) from error
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{MANIFEST} is damaged ({error})", where=path) from error
    if not intact:
        raise CheckpointError(f"{MANIFEST} is damaged", where=path)
    if form != FORMAT or set(files) != {MODEL, OPTIMIZER, STATE}:
        raise OtherVersion(
            f"has format {form}, this version reads {FORMAT}",
            where=path,
            remedy="Use the version that wrote it",
        )
    if _name(path).startswith("step-") and _name(path) != f"step-{step}":
        raise CheckpointError(f"holds step {step}, so the folder was renamed", where=path)
    return step, files


def _read_checked(path: Path, known: Sequence[tuple[int, str]]) -> bytes:
    try:
        if path.exists() and not path.is_file():
            raise OSError(errno.EINVAL, "no regular file")
        data = path.read_bytes()
    except FileNotFoundError as error:
        raise CheckpointError(f"{path.name} is missing", where=path.parent) from error
    except OSError as error:
        raise CheckpointError(f"{path.name} cannot be read ({error.strerror})", where=path.parent) from error
    if all(len(data) != size for size, _ in known):
        raise CheckpointError(
            f"{path.name} has {len(data)} bytes instead of {known[0][0]}", where=path.parent
        )
    if (len(data), hashlib.sha256(data).hexdigest()) not in known:
        raise CheckpointError(
            f"{path.name} was changed after it was written (SHA-256 differs)", where=path.parent
        )
    return data


def _looks_complete(path: Path) -> bool:
    """The quick test for pruning: manifest and sizes, no hashes. One that cannot be read now, or only by
    another version, counts as complete, so that it is not deleted."""
    try:
        _, files = _read_manifest(path)
        return all(
            (path / name).stat().st_size in {size for size, _ in known} for name, known in files.items()
        )
    except OtherVersion:
        return True
    except (CheckpointError, OSError) as error:
        cause = error if isinstance(error, OSError) else error.__cause__
        known = FileNotFoundError | NotADirectoryError | IsADirectoryError
        return isinstance(cause, OSError) and not isinstance(cause, known)


def _json(tree: Mapping[str, Any]) -> bytes:
    # NaN is not JSON and would not compare equal to itself in a fingerprint.
    return (json.dumps(tree, indent=1, sort_keys=True, allow_nan=False) + "\n").encode()


def _shapes(tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    return {name: f"{list(t.shape)} {str(t.dtype).removeprefix('torch.')}" for name, t in tensors.items()}


class Change(NamedTuple):
    """A dotted key of nested mappings and its two values; `ABSENT` where a mapping lacks it."""

    key: str
    before: Any
    now: Any

    def __str__(self) -> str:
        if self.before is ABSENT:
            return f"{self.key}: not in the checkpoint, now {_short(self.now)}"
        now = "absent" if self.now is ABSENT else _short(self.now)
        return f"{self.key}: checkpoint {_short(self.before)}, now {now}"


def changes(before: Mapping[str, Any], now: Mapping[str, Any], prefix: str = "") -> Iterator[Change]:
    """The keys of two nested mappings of JSON data whose values differ, in sorted order."""
    for key in sorted({*before, *now}):
        old, new = before.get(key, ABSENT), now.get(key, ABSENT)
        if isinstance(old, dict) and isinstance(new, dict):
            yield from changes(old, new, f"{prefix}{key}.")
        elif old is not new and (old != new or type(old) is not type(new)):
            yield Change(f"{prefix}{key}", old, new)


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """`changes` as lines `key: checkpoint A, now B`."""
    return list(map(str, changes(before, now)))


def shape_differences(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """How the shapes of two models differ; more than `MAX_SHAPES` tensors that one model lacks are counted,
    not listed."""
    lost, new = sorted(before.keys() - now.keys()), sorted(now.keys() - before.keys())
    if max(len(lost), len(new)) <= MAX_SHAPES:
        return differences(before, now)
    both = before.keys() & now.keys()
    found = differences({name: before[name] for name in both}, {name: now[name] for name in both})
    if lost:
        found.append(f"{len(lost)} of its tensors do not exist now, such as {lost[0]}")
    if new:
        found.append(f"{len(new)} are not in it, such as {new[0]}")
    return found


def listed(lines: Sequence[str], most: int = 12) -> str:
    """Lines joined into one; of more than `most` the first ones, and the number of the others."""
    rest = len(lines) - most
    return "; ".join(lines[:most]) + (f"; and {rest} more" if rest > 0 else "")


def _short(value: Any) -> str:
    text = json.dumps(value) if not isinstance(value, str) else value
    return text if len(text) <= 80 else text[:77] + "..."
