"""Studies of real processes, killed, end with the results of one that was not."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import torch

from albertine.core.files import read_json
from albertine.study.definition import read_study
from albertine.study.engines import LocalEngine, RayEngine, begin
from albertine.study.runner import prepared, run_plan, status_of, unit_folder
from albertine.study.units import CELLS, Plan, plan_of
from albertine.study.work import RESULT
from tests.study.conftest import Here, Write

LONG = 80  # updates: a second or two
FEW: dict[str, Any] = {"judged": {"cost": False}, "conclusions": None, "budget": {"steps": LONG}}
SAVED = {"pretrain": {"watching": {"checkpoint_every": 5, "evaluate_every": 40}}}
pytestmark = pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="finds processes in /proc")


def outcome(plan: Plan, output: Path) -> Any:
    """The weights of all models to the bit, and all scores, which are equal up to rounding: the kernels that
    score a model are chosen in each process by measurement."""
    found = {}
    for unit in plan.units.values():
        folder = unit_folder(output, unit.key)
        weights = folder / "run" / "final" / "model.safetensors"
        scores = read_json(folder / RESULT)["scores"]
        digest = hashlib.sha256(weights.read_bytes()).hexdigest() if weights.is_file() else ""
        near = {name: pytest.approx(value) for name, value in scores.items()}
        found[f"{unit.kind} of {unit.label}"] = {"weights": digest, **near}
    return found


def command(*words: object) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-m", "albertine", *map(str, words)], start_new_session=True)


def until(condition: Callable[[], bool], seconds: float = 90.0) -> None:
    limit = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < limit, "it did not happen in time"
        time.sleep(0.05)


def checkpoints(output: Path) -> list[Path]:
    return list((output / CELLS).glob("pretrain-*/run/checkpoints/step-*"))


def processes(output: Path) -> list[int]:
    """The processes that compute units in a folder."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if b"albertine.study.worker" in words and any(str(output).encode() in word for word in words):
            found.append(int(entry.name))
    return found


@pytest.fixture
def file(write: Write) -> Path:
    return write(seeds=[1], **FEW, base=SAVED)


@pytest.fixture(autouse=True)
def one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the number of threads the last bits depend."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    torch.set_num_threads(1)


@pytest.fixture
def undisturbed(file: Path, data: Path, tmp_path: Path) -> Any:
    plan = plan_of(read_study(file), data)
    assert run_plan(plan, tmp_path / "undisturbed", Here())
    return outcome(plan, tmp_path / "undisturbed")


def test_a_killed_cell_is_named_and_goes_on(write: Write, data: Path, tmp_path: Path) -> None:
    file = write(seeds=[1], axes={"sharing": {"values": ["all"]}}, **FEW, base=SAVED)
    plan, output, undisturbed = plan_of(read_study(file), data), tmp_path / "one", tmp_path / "undisturbed"
    assert run_plan(plan, undisturbed, Here())
    for unit in (unit for unit in plan.units.values() if unit.kind == "corpus"):  # as another study made it
        shutil.copytree(unit_folder(undisturbed, unit.key), unit_folder(output, unit.key))
    running = Thread(target=run_plan, args=(plan, output, LocalEngine(1)))
    running.start()
    until(lambda: len(checkpoints(output)) > 0)
    assert [one.state for one in status_of(plan, output)] == ["running"]
    (number,) = processes(output)
    os.kill(number, signal.SIGKILL)
    running.join(120)
    (failed,) = status_of(plan, output)
    assert (failed.state, failed.reason) == ("failed", "its process was killed (signal 9)")
    assert run_plan(plan, output, Here())
    assert outcome(plan, output) == outcome(plan, undisturbed)


@pytest.mark.matrix
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_killed_study_goes_on(
    number: signal.Signals, file: Path, data: Path, tmp_path: Path, undisturbed: Any
) -> None:
    plan, output = plan_of(read_study(file), data), tmp_path / "studies"
    words = ("study", "run", file, f"--data={data}", f"--output={output}", "--parallel=2")
    run = command(*words)
    until(lambda: len(checkpoints(output)) > 1)
    os.kill(run.pid, number)
    assert run.wait(60) == {signal.SIGKILL: -9, signal.SIGTERM: 143, signal.SIGINT: 130}[number]
    until(lambda: not processes(output), 30)  # nothing of it goes on by itself
    assert any(one.state != "done" for one in status_of(plan, output))
    assert command(*words).wait(120) == 0
    assert outcome(plan, output) == undisturbed


@pytest.fixture
def cluster() -> Iterator[Any]:
    ray = pytest.importorskip("ray", reason="ray is not installed")
    ray.init(num_cpus=3, include_dashboard=False, log_to_driver=False)
    yield ray
    ray.shutdown()


@pytest.mark.matrix
def test_a_ray_worker_that_is_killed_is_replaced(
    cluster: Any, write: Write, data: Path, tmp_path: Path
) -> None:
    file = write(seeds=[1, 2], **FEW, base=SAVED)
    plan, output = plan_of(read_study(file), data), tmp_path / "studies"
    killed: list[int] = []

    def kill() -> None:
        until(lambda: len(checkpoints(output)) > 2)
        parents = {parent_of(number) for number in processes(output)}
        killed.append(min(parents))
        os.kill(killed[0], signal.SIGKILL)

    killer = Thread(target=kill)
    killer.start()
    done = run_plan(plan, output, RayEngine(3))
    killer.join()
    assert killed
    assert done, status_of(plan, output)
    undisturbed = tmp_path / "undisturbed"
    assert run_plan(plan, undisturbed, Here())
    assert outcome(plan, output) == outcome(plan, undisturbed)


def parent_of(number: int) -> int:
    return int(Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[1])


@pytest.mark.matrix
def test_a_unit_in_two_studies_is_computed_by_one_process(file: Path, data: Path, tmp_path: Path) -> None:
    plan = plan_of(read_study(file), data)
    corpus = next(unit for unit in plan.units.values() if unit.kind == "corpus")
    folder = prepared(corpus, tmp_path)
    first, second = begin(folder, 1), begin(folder, 1)
    assert (first.wait(60), second.wait(60)) == (0, 0)
    assert read_json(unit_folder(tmp_path, corpus.key) / RESULT)["facts"]["vocabulary"] == 500
