"""Checkpoints under crashes, damage, full disks and foreign settings."""

from __future__ import annotations

import errno
import json
import logging
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from albertine.core.files import check_disk_space, replaced_folder
from albertine.errors import CheckpointError, RunError, SettingsError
from albertine.training.checkpoints import (
    ABSENT,
    LATEST,
    MANIFEST,
    MODEL,
    OPTIMIZER,
    STATE,
    Change,
    CheckpointStore,
    _sealed,
    check_fingerprint,
    model_tensors,
    optimizer_tensors,
    read,
    restore,
)
from albertine.training.optimizers import OptimizerKind, build_optimizer
from albertine.training.step import train_step
from tests.crashes import Disk, states_at_kills
from tests.training.toy import Toy, toy, toy_batches, toy_loss


def save(store: CheckpointStore, step: int, weights: int | None = None, state: int | None = None) -> None:
    """A checkpoint that differs from every other one; `weights` and `state` make another of its step."""
    mark = step if weights is None else weights
    tensors = {"w": torch.full((5, 3), float(mark)), "b": torch.arange(4.0) + mark}
    moments = {"w/exp_avg": torch.full((5, 3), mark / 7)}
    row = step if state is None else state
    store.save(step, tensors, moments, {"step": step, "cursor": {"row": row}})


def holds(store: CheckpointStore, step: int) -> bool:
    found = store.load()
    return found is not None and found.step == step and bool((found.model["w"] == step).all())


@pytest.fixture
def store(tmp_path: Path) -> CheckpointStore:
    made = CheckpointStore(tmp_path / "checkpoints", keep=2)
    for step in (10, 20):
        save(made, step)
    return made


def test_what_was_saved_is_loaded(store: CheckpointStore) -> None:
    found = store.load()
    assert found is not None and found.step == 20
    assert found.state == {"step": 20, "cursor": {"row": 20}}
    assert torch.equal(found.optimizer["w/exp_avg"], torch.full((5, 3), 20 / 7))
    assert (store.folder / LATEST).read_text() == "step-20\n"
    assert sorted(p.name for p in store.path(20).iterdir()) == [MANIFEST, MODEL, OPTIMIZER, STATE]


def test_nothing_to_load(tmp_path: Path) -> None:
    assert CheckpointStore(tmp_path / "none").load() is None


def test_pruning_keeps_the_newest(store: CheckpointStore) -> None:
    for step in (30, 40, 100):
        save(store, step)
    assert store.steps() == [40, 100]


def test_one_checkpoint_is_not_enough(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="two"):
        CheckpointStore(tmp_path, keep=1)


def test_saving_the_same_step_again(store: CheckpointStore) -> None:
    (store.path(20) / MODEL).write_bytes(b"damaged")
    save(store, 20)
    assert holds(store, 20) and store.steps() == [10, 20]
    assert not list(store.folder.glob(".*"))


# A kill at every step of writing.

CASES: dict[str, tuple[int, int, int]] = {  # step, mark of its weights, mark of its state
    "new": (30, 30, 30),
    "again": (20, 20, 21),
    "other weights": (20, 22, 22),
}


@pytest.mark.parametrize("case", CASES)
def test_a_kill_anywhere_leaves_a_whole_checkpoint(store: CheckpointStore, tmp_path: Path, case: str) -> None:
    step, weights, state = CASES[case]
    kills = states_at_kills(lambda: save(store, step, weights, state), store.folder, tmp_path / "kills")
    seen = set()
    for folder in kills:
        copy = CheckpointStore(folder, keep=2)
        found = copy.load(strict=True)  # strict: no half checkpoint may even be seen
        assert found is not None
        marks = int(found.model["w"][0, 0]), found.state["cursor"]["row"]
        # What was whole is never lost, so it is the newest before or the one that was being written.
        assert (found.step, *marks) in {(20, 20, 20), CASES[case]}, folder
        seen.add(marks)
        save(copy, 40)  # and what the crash left behind is no hindrance
        assert holds(copy, 40) and len(copy.steps()) == 2 and not [*copy.folder.rglob(".*")]
    assert len(kills) > 5 and len(seen) == 2


def test_a_kill_while_a_damaged_one_is_replaced(store: CheckpointStore, tmp_path: Path) -> None:
    (store.path(20) / MODEL).write_bytes(b"damaged")
    kills = states_at_kills(lambda: save(store, 20), store.folder, tmp_path / "kills")
    assert len(kills) > 5
    for folder in kills:
        copy = CheckpointStore(folder, keep=2)
        assert holds(copy, 10) or holds(copy, 20)
        save(copy, 20)
        assert holds(copy, 20) and not [*copy.folder.rglob(".*")]


def test_the_only_checkpoint_survives_a_kill_while_its_step_is_saved_again(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path / "store", keep=2)
    save(store, 40)
    kills = states_at_kills(lambda: save(store, 40, 40, 41), store.folder, tmp_path / "kills")
    for folder in kills:
        copy = CheckpointStore(folder, keep=2)
        assert holds(copy, 40)
        assert CheckpointStore(folder).steps() == [40]
    assert len(kills) > 4


def test_the_state_of_a_step_is_replaced_without_exchanging_folders(
    store: CheckpointStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    about = store.path(20).stat().st_ino, (store.path(20) / MODEL).stat().st_ino
    moved = []
    monkeypatch.setattr(os, "rename", lambda *given: moved.append(given))
    save(store, 20, 20, 21)
    assert not moved and holds(store, 20)
    assert read(store.path(20)).state["cursor"] == {"row": 21}
    assert about == (store.path(20).stat().st_ino, (store.path(20) / MODEL).stat().st_ino)
    # The manifest proves the state before too, because a kill may come between the two; no third one.
    save(store, 20, 20, 22)
    tree = json.loads((store.path(20) / STATE).read_text())
    for row, whole in ((21, True), (22, True), (20, False)):
        text = json.dumps({**tree, "cursor": {"row": row}}, indent=1, sort_keys=True) + "\n"
        (store.path(20) / STATE).write_text(text)
        if whole:
            assert read(store.path(20)).state["cursor"] == {"row": row}
        else:
            with pytest.raises(CheckpointError, match=STATE):
                read(store.path(20))


def test_other_moments_of_the_same_weights_are_written(store: CheckpointStore) -> None:
    found = store.load()
    assert found is not None
    store.save(20, found.model, {"w/exp_avg": torch.full((5, 3), 9.0)}, found.state)
    assert torch.equal(read(store.path(20)).optimizer["w/exp_avg"], torch.full((5, 3), 9.0))


@pytest.mark.parametrize("stage", ["new", "old"])
def test_a_whole_checkpoint_beside_its_place_is_found(store: CheckpointStore, stage: str) -> None:
    os.rename(store.path(20), store.folder / f".step-20.{stage}")
    assert store.steps() == [10, 20] and holds(store, 20) and (store.path(20) / MODEL).is_file()
    assert read(store.folder / "step-20").step == 20
    save(store, 30)
    assert (store.folder / "step-20").is_dir() and not list(store.folder.glob(".*"))


def test_of_two_whole_copies_beside_its_place_the_newer_is_taken(store: CheckpointStore) -> None:
    """They are what a kill between the two renames of an exchange leaves."""
    before = shutil.copytree(store.path(20), store.folder.parent / "before")
    save(store, 20, 22, 22)
    os.rename(store.path(20), store.folder / ".step-20.new")
    os.rename(before, store.folder / ".step-20.old")
    for _ in ("seen by a reader", "put back by a writer"):
        assert bool((read(store.path(20)).model["w"] == 22).all())
        save(store, 30)
    assert not list(store.folder.glob(".*"))


def test_a_half_written_or_half_deleted_checkpoint_is_ignored(store: CheckpointStore) -> None:
    half = store.folder / ".step-30.part"
    shutil.copytree(store.path(20), half)
    (half / MANIFEST).unlink()
    found = store.load(strict=True)
    assert found is not None and found.step == 20 and store.steps() == [10, 20]
    save(store, 30)
    assert holds(store, 30) and not list(store.folder.glob(".*"))


def test_a_loss_of_power_costs_nothing_that_was_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(monkeypatch, tmp_path)
    store = CheckpointStore(tmp_path / "run" / "checkpoints", keep=2)
    for step, weights, state in ((10, 10, 10), (10, 10, 11), (10, 12, 12), (20, 20, 20), (30, 30, 30)):
        save(store, step, weights, state)
        assert disk.complaints == [] and disk.lost(store.path(step)) == []
        for path in (store.path(step), store.folder / LATEST):
            assert disk.missing(path) == []
    assert {"step-10", "step-20", "step-30", STATE, MANIFEST, LATEST} <= set(disk.renamed)


# Damage.


def flip(path: Path, place: int) -> None:
    data = bytearray(path.read_bytes())
    data[place // 8] ^= 1 << (place % 8)
    path.write_bytes(data)


def test_every_flipped_bit_is_found(store: CheckpointStore) -> None:
    draws = random.Random(4)
    whole = {p.name: p.read_bytes() for p in store.path(20).iterdir()}
    for _ in range(200):
        name = draws.choice(sorted(whole))
        flip(store.path(20) / name, draws.randrange(8 * len(whole[name])))
        with pytest.raises(CheckpointError):
            read(store.path(20))
        (store.path(20) / name).write_bytes(whole[name])
    assert read(store.path(20)).step == 20


DAMAGE: dict[str, Callable[[Path], object]] = {
    "state missing": lambda p: (p / STATE).unlink(),
    "state empty": lambda p: (p / STATE).write_bytes(b""),
    "weights missing": lambda p: (p / MODEL).unlink(),
    "weights truncated": lambda p: os.truncate(p / MODEL, 100),
    "weights longer": lambda p: (p / MODEL).write_bytes((p / MODEL).read_bytes() + b"\0"),
    "weights bit": lambda p: flip(p / MODEL, 8 * 90),
    "optimizer missing": lambda p: (p / OPTIMIZER).unlink(),
    "optimizer truncated": lambda p: os.truncate(p / OPTIMIZER, 10),
    "optimizer bit": lambda p: flip(p / OPTIMIZER, 8 * 80),
    "manifest missing": lambda p: (p / MANIFEST).unlink(),
    "manifest empty": lambda p: (p / MANIFEST).write_bytes(b""),
    "manifest of another kind": lambda p: (p / MANIFEST).write_text("[1]"),
    "weights of another checkpoint": lambda p: shutil.copy(p.parent / "step-10" / MODEL, p / MODEL),
    "a folder for a file": lambda p: ((p / STATE).unlink(), (p / STATE).mkdir()),
    "another checkpoint renamed": lambda p: (shutil.rmtree(p), shutil.copytree(p.parent / "step-10", p)),
    "empty folder": lambda p: (shutil.rmtree(p), p.mkdir()),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_damage_is_reported_and_the_one_before_is_taken(
    store: CheckpointStore, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    DAMAGE[kind](store.path(20))
    with pytest.raises(CheckpointError, match="step-20"):
        store.load(strict=True)
    with caplog.at_level(logging.WARNING, logger="albertine.training"):
        assert holds(store, 10)
    assert "DAMAGED" in caplog.text and "step 10 instead of step 20" in caplog.text
    save(store, 20)
    assert holds(store, 20)


@pytest.mark.parametrize("content", [None, b"", b"step-999\n", b"\xff\x00"])
def test_latest_is_only_a_sign(store: CheckpointStore, content: bytes | None) -> None:
    (store.folder / LATEST).unlink()
    if content is not None:
        (store.folder / LATEST).write_bytes(content)
    assert holds(store, 20)


def test_all_damaged_is_no_reason_to_begin_again_silently(store: CheckpointStore) -> None:
    for step in (10, 20):
        (store.path(step) / MODEL).unlink()
    with pytest.raises(CheckpointError, match="none of the 2"):
        store.load()


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_one_does_not_count_as_kept(store: CheckpointStore, kind: str) -> None:
    """Also where only the hashes showed it."""
    DAMAGE[kind](store.path(20))
    assert holds(store, 10)
    save(store, 30)
    assert store.steps() == [10, 30]


def test_going_on_from_an_earlier_one_puts_the_later_aside(store: CheckpointStore) -> None:
    store.abandon_after(10)
    assert store.steps() == [10] and (store.folder / "abandoned-step-20").is_dir()
    assert holds(store, 10)


# A full disk.


def test_full_disk_keeps_the_old_one(store: CheckpointStore, monkeypatch: pytest.MonkeyPatch) -> None:
    real, count = os.write, 0
    while True:
        calls = 0

        def write(handle: int, data: bytes, limit: int = count) -> int:
            nonlocal calls
            calls += 1
            if calls > limit:
                raise OSError(errno.ENOSPC, "No space left on device")
            return real(handle, data)

        with monkeypatch.context() as patch:
            patch.setattr(os, "write", write)
            try:
                save(store, 30)
                break
            except RunError as error:
                assert "disk is full" in str(error) and "Free some space" in str(error)
        found = store.load(strict=True)
        assert found is not None and found.step in (20, 30)
        assert not list(store.folder.glob(".step-*"))
        count += 1
    assert count == 5 and holds(store, 30)


def test_a_folder_that_cannot_be_exchanged_is_put_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under its own name, for readers of that name only."""
    rename, folder = os.rename, tmp_path / "best"

    def refusing(source: Any, target: Any) -> None:
        if (Path(source).suffix, Path(target)) == (".new", folder):
            raise OSError(errno.EIO, "input/output error")
        rename(source, target)

    with replaced_folder(folder) as beside:
        (beside / "old").touch()
    monkeypatch.setattr(os, "rename", refusing)
    with pytest.raises(OSError, match="input/output"), replaced_folder(folder) as beside:
        (beside / "new").touch()
    assert [path.name for path in tmp_path.iterdir()] == ["best"]
    assert [path.name for path in folder.iterdir()] == ["old"]


def test_space_is_checked_before_the_start(tmp_path: Path) -> None:
    check_disk_space(tmp_path, 1)
    with pytest.raises(RunError, match=r"free and the run needs 1,000,000,000,000 MB"):
        check_disk_space(tmp_path, 10**18)


# Another model, other settings.


def trained(kind: OptimizerKind = "lamb") -> tuple[Toy, torch.optim.Optimizer]:
    model = toy(kind)
    optimizer = build_optimizer(model, kind)
    train_step(model, next(toy_batches(None))[1], toy_loss, optimizer, lr=0.1)
    return model, optimizer


@pytest.mark.parametrize("kind", ["lamb", "adamw", "muon"])
def test_model_and_optimiser_come_back(tmp_path: Path, kind: OptimizerKind) -> None:
    model, optimizer = trained(kind)
    store = CheckpointStore(tmp_path)
    store.save(1, model_tensors(model), optimizer_tensors(model, optimizer), {})
    fresh = toy(kind)
    with torch.no_grad():
        for p in fresh.parameters():
            p.zero_()
    fresh_optimizer = build_optimizer(fresh, kind)
    found = store.load()
    assert found is not None
    restore(found, fresh, fresh_optimizer)
    before, after = model_tensors(model), model_tensors(fresh)
    assert all(torch.equal(before[name], after[name]) for name in before)
    old, new = optimizer_tensors(model, optimizer), optimizer_tensors(fresh, fresh_optimizer)
    assert old.keys() == new.keys() and all(torch.equal(old[name], new[name]) for name in old)


@pytest.mark.parametrize("kind", ["lamb", "adamw", "muon"])
def test_missing_optimizer_moments_start_at_zero(tmp_path: Path, kind: OptimizerKind) -> None:
    """A parameter that was not in use then begins with none again."""
    store, model = CheckpointStore(tmp_path), toy(kind)
    optimizer = build_optimizer(model, kind)
    store.save(0, model_tensors(model), optimizer_tensors(model, optimizer), {})
    batch = next(toy_batches(None))[1][0]
    torch.nn.functional.cross_entropy(model(batch.ids)[0], batch.labels).backward()
    optimizer.step()
    assert optimizer_tensors(model, optimizer)
    found = store.load()
    assert found is not None
    restore(found, model, optimizer)
    assert not optimizer_tensors(model, optimizer)


def test_shared_tensors_are_saved_once() -> None:
    model = Toy()
    model.parity.register_parameter("tied", model.embedding.weight)
    names = set(model_tensors(model))
    assert "embedding.weight" in names and "parity.tied" not in names


def test_another_model_is_refused_untouched(tmp_path: Path) -> None:
    model, optimizer = trained()
    store = CheckpointStore(tmp_path)
    store.save(1, model_tensors(model), optimizer_tensors(model, optimizer), {})
    other = Toy()
    other.shared = torch.nn.Linear(16, 17)
    other.extra = torch.nn.Linear(2, 2)
    del other.spare
    before = {name: t.clone() for name, t in model_tensors(other).items()}
    with pytest.raises(CheckpointError) as error:
        restore(read(store.path(1)), other, build_optimizer(other, "lamb"))
    for clue in (
        "shared.weight: checkpoint [16, 16]",
        "now [17, 16]",
        "extra.weight: not in",
        "spare.bias",
        "now absent",
    ):
        assert clue in str(error.value)
    assert all(torch.equal(before[name], t) for name, t in model_tensors(other).items())


def test_of_many_other_names_one_is_listed_with_the_remedy_of_a_branch(tmp_path: Path) -> None:
    """As where a run had its model beside something else that was trained. Catches: a list of all names,
    twice for the optimiser's; the remedy of a resumed run."""
    model, optimizer = trained()
    store = CheckpointStore(tmp_path)
    store.save(1, model_tensors(model), optimizer_tensors(model, optimizer), {})
    other = torch.nn.ModuleDict({"student": Toy()})
    differ = [Change("teacher", "a", ABSENT)]
    with pytest.raises(CheckpointError) as error:
        restore(read(store.path(1)), other, build_optimizer(other, "lamb"), branch=differ)
    count = len(model_tensors(model))
    assert str(error.value) == (
        f"{store.path(1)}: does not fit this model: {count} of its tensors do not exist now, such as "
        f"LayerNorm.bias; {count} are not in it, such as student.LayerNorm.bias; settings that differ: "
        "teacher: checkpoint a, now absent. Set those back that make another model; to begin with its "
        "weights alone, give model.start_from, such as the final/ of that run"
    )


FINGERPRINT: dict[str, Any] = {
    "seed": 1,
    "corpus": {"tokenizer": "a1", "files": "b2", "language": "en"},
    "model": {"hidden_size": 64, "plan": [0, 0, 0], "act": "gelu_new", "norm_eps": 1e-12},
    "objective": {"pairs": "sop", "max_length": 128, "whole_word": True},
    "training": {"batch_size": 256, "optimizer": "lamb", "learning_rate": 1e-3, "steps": 100, "clip": None},
}

CHANGES: list[tuple[str, Any]] = [
    ("seed", 2),
    ("corpus.tokenizer", "zz"),
    ("corpus.files", "zz"),
    ("corpus.language", "zh"),
    ("model.hidden_size", 128),
    ("model.plan", [0, 1, 2]),
    ("model.act", "relu"),
    ("model.norm_eps", 1e-6),
    ("objective.pairs", "nsp"),
    ("objective.max_length", 512),
    ("objective.whole_word", False),
    ("objective.whole_word", 1),
    ("training.batch_size", 255),
    ("training.optimizer", "adamw"),
    ("training.learning_rate", 1.0000001e-3),
    ("training.steps", 101),
    ("training.clip", 1.0),
    ("training.extra", "new key"),
    ("objective", None),
]


@pytest.mark.parametrize(("key", "value"), CHANGES)
def test_other_settings_are_refused_by_name(tmp_path: Path, key: str, value: Any) -> None:
    store = CheckpointStore(tmp_path)
    store.save(1, {"w": torch.zeros(1)}, {}, {"fingerprint": FINGERPRINT})
    found = read(store.path(1))
    check_fingerprint(found, FINGERPRINT)
    changed = json.loads(json.dumps(FINGERPRINT))
    node = changed
    *parents, leaf = key.split(".")
    for name in parents:
        node = node[name]
    node[leaf] = value
    with pytest.raises(CheckpointError, match="other settings") as error:
        check_fingerprint(found, changed)
    assert f"{key}: " in str(error.value)


def test_what_was_put_aside_before_stays(store: CheckpointStore) -> None:
    store.abandon_after(10)
    save(store, 20, weights=22)
    store.abandon_after(10)
    assert (read(store.folder / "abandoned-step-20").model["w"] == 20).all()
    assert (read(store.folder / "abandoned-step-20-2").model["w"] == 22).all()


def test_what_cannot_be_read_now_is_not_deleted(
    store: CheckpointStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Path.read_bytes

    def stale(path: Path) -> bytes:
        if path.parent.name == "step-20":
            raise OSError(errno.ESTALE, "Stale file handle")
        return real(path)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_bytes", stale)
        save(store, 30)
    assert store.steps() == [20, 30]


def test_another_version_is_no_damage(store: CheckpointStore) -> None:
    manifest = store.path(20) / MANIFEST
    tree = json.loads(manifest.read_bytes())
    del tree["manifest_sha256"]
    manifest.write_bytes(_sealed(tree | {"format": 2}))
    with pytest.raises(CheckpointError, match="has format 2"):
        store.load()
    save(store, 15)
    assert 20 in store.steps()


def test_what_cannot_be_deleted_is_no_hindrance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("albertine.core.files.shutil.rmtree", lambda *_, **__: None)
    for content in ("one", "two", "three"):
        with replaced_folder(tmp_path / "best") as new:
            (new / "model").write_text(content)
    assert (tmp_path / "best" / "model").read_text() == "three"


def test_what_could_not_be_deleted_goes_at_the_next_save(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = CheckpointStore(tmp_path, keep=2)
    for step in (10, 20):
        save(made, step)
    with monkeypatch.context() as patch:
        patch.setattr("albertine.core.files.shutil.rmtree", lambda *_, **__: None)
        save(made, 30)
    assert [*tmp_path.glob(".*.left.part")]
    save(made, 40)
    assert not [*tmp_path.glob(".step-10.*")]
