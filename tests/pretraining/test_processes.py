"""`albertine pretrain --processes`: real processes of the command, on a small corpus."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from safetensors.torch import load_file

from albertine.cli.app import run as main
from albertine.core.settings import dump
from albertine.errors import RunError
from albertine.training.launch import started, threads_each, together
from albertine.training.metrics import TIMINGS, read_metrics
from tests.pretraining.conftest import Build
from tests.toy import MODEL
from tests.warm_process import WarmProcess

SIX = {"steps": 6, "precision": "float32"}


def command(recipe: Path, *words: str, new_session: bool = False) -> WarmProcess:
    names = {k: v for k, v in os.environ.items() if k not in ("WORLD_SIZE", "RANK")} | {
        "OMP_NUM_THREADS": "1"
    }
    line = ["pretrain", "--config", str(recipe), *words]
    return WarmProcess(line, environment=names, new_session=new_session)


def recipe(build: Build, tmp_path: Path, **changes: Any) -> Path:
    file = tmp_path / "a recipe.yaml"
    file.write_text(dump(build(**changes)), encoding="utf-8")
    return file


def children(pid: int) -> list[int]:
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            words = status.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(words[1]) == pid:
            found.append(int(status.parent.name))
    return found


def _line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def two_that_train(file: Path, tmp_path: Path) -> tuple[WarmProcess, int]:
    """A command whose run has begun, and the number of its other process."""
    process = command(file, "--processes", "2")
    metrics = tmp_path / "runs" / "toy" / "metrics.jsonl"
    deadline = time.monotonic() + 90
    while not (metrics.is_file() and metrics.stat().st_size) and time.monotonic() < deadline:
        time.sleep(0.2)
    (other,) = [pid for pid in children(process.pid) if b"--processes" in _line(pid)]
    return process, other


@pytest.mark.parametrize("elastic", [None, {"least": 1, "most": 2, "teacher": True}])
def test_two_processes_are_one_run(build: Build, tmp_path: Path, elastic: dict[str, Any] | None) -> None:
    model = {"change": {**MODEL, "hidden_dropout_prob": 0.0}}
    objective = {"max_length": 32, "elastic": elastic}
    file = recipe(build, tmp_path, training=SIX, model=model, objective=objective)
    environments, weights = {}, {}
    for name, words in {"one": (), "two": ("--processes", "2")}.items():
        process = command(file, f"name={name}", *words)
        out, err = process.communicate(timeout=120)
        assert process.returncode == 0, err
        assert out.count("Done after 6 steps") == 1
        environments[name] = json.loads((tmp_path / "runs" / name / "environment.json").read_text())
        settings = yaml.safe_load((tmp_path / "runs" / name / "settings.yaml").read_text())
        assert settings["training"]["threads"] is None, "the share of one process is not a wish of the user"
        weights[name] = load_file(tmp_path / "runs" / name / "final" / "model.safetensors")
    assert (environments["one"]["world_size"], environments["two"]["world_size"]) == (1, 2)
    assert environments["two"]["threads"] == threads_each(2)
    for key, value in weights["one"].items():
        if key.endswith("key.bias"):  # its gradient is rounding: a softmax does not see it
            continue
        error = float((weights["two"][key] - value).norm() / value.norm().clamp_min(1e-9))
        assert error <= 1e-3, f"{key}: {error:.1e}"


def test_a_mistake_is_reported_once_and_soon(build: Build, tmp_path: Path) -> None:
    began = time.monotonic()
    process = command(recipe(build, tmp_path, training={"batch_size": 1}), "--processes", "2")
    out, err = process.communicate(timeout=60)
    assert process.returncode == 2 and out == ""
    assert err.count("fewer sequences than the 2 processes") == 1 and "Traceback" not in err
    assert time.monotonic() - began < 40, "it did not wait for the other process"


EARLY = """
import os, time
if os.environ.get("RANK") == "1":
    {}
"""


def of_two_that_never_meet(
    build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, instead: str
) -> WarmProcess:
    """A command whose second process does something else instead of its work."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(EARLY.format(instead), encoding="utf-8")
    path = [str(tmp_path / "site"), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, path)))
    return command(recipe(build, tmp_path), "--processes", "2")


def test_a_process_that_ends_before_it_meets_the_others_is_reported(
    build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began = time.monotonic()
    instead = "os.write(2, b'albertine: no memory\\n'); os._exit(3)"
    process = of_two_that_never_meet(build, tmp_path, monkeypatch, instead)
    try:
        _, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 1 and "Traceback" not in err
    assert "another process of the run ended with exit code 3: albertine: no memory" in err
    assert time.monotonic() - began < 40


@pytest.mark.skipif(not Path("/proc/self/stat").is_file(), reason="looks for processes in /proc")
def test_a_wait_for_another_process_can_be_interrupted(
    build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = of_two_that_never_meet(build, tmp_path, monkeypatch, "time.sleep(600)")
    try:
        deadline = time.monotonic() + 60
        while not children(process.pid) and time.monotonic() < deadline:
            time.sleep(0.2)
        (other,) = children(process.pid)
        time.sleep(2)
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode == 143, err
    assert not Path(f"/proc/{other}").exists(), "the other process lives on"


def test_no_more_processes_than_cards(
    build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.setattr("albertine.training.launch.subprocess.Popen", None)
    file = recipe(build, tmp_path)
    assert main(["pretrain", "--config", str(file), "--processes=3"]) == 2
    assert "--processes: 3 processes need a GPU each, and torch sees 2 here" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


@pytest.mark.skipif(not Path("/proc/self/stat").is_file(), reason="looks for processes in /proc")
def test_a_signal_to_one_saves_and_ends_both(build: Build, tmp_path: Path) -> None:
    file = recipe(build, tmp_path, training={"steps": 4000}, watching={"checkpoint_every": 4000})
    process, other = two_that_train(file, tmp_path)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 143, err
    assert not Path(f"/proc/{other}").exists(), "the other process lives on"
    assert (tmp_path / "runs" / "toy" / "checkpoints" / "latest").is_file()


@pytest.mark.skipif(not Path("/proc/self/stat").is_file(), reason="looks for processes in /proc")
def test_the_end_of_the_other_process_is_reported(build: Build, tmp_path: Path) -> None:
    file = recipe(build, tmp_path, training={"steps": 4000})
    process, other = two_that_train(file, tmp_path)
    os.kill(other, signal.SIGKILL)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1, err
    assert "another process of the run ended by signal 9" in err and "resumes from the last checkpoint" in err
    assert "Traceback" not in err


def only_line(err: str) -> str:
    """The one message of a command; warnings of the run apart."""
    assert "Traceback" not in err and err.count("albertine: ") == 1, err
    return err[err.index("albertine: ") :]


def gone(pids: list[int], seconds: float = 10.0) -> bool:
    """Whether processes have ended by then."""
    deadline = time.monotonic() + seconds
    while any(map(_line, pids)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not any(map(_line, pids))


@pytest.mark.skipif(not Path("/proc/self/stat").is_file(), reason="looks for processes in /proc")
def test_a_killed_loader_ends_the_run_with_one_message(build: Build, tmp_path: Path) -> None:
    file = recipe(build, tmp_path, training={"steps": 4000, "workers": 2})
    process = command(file)
    metrics = tmp_path / "runs" / "toy" / "metrics.jsonl"
    deadline = time.monotonic() + 90
    while not (metrics.is_file() and metrics.stat().st_size) and time.monotonic() < deadline:
        time.sleep(0.1)
    loaders = children(process.pid)
    assert len(loaders) == 2
    os.kill(loaders[0], signal.SIGKILL)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1 and gone(loaders)
    assert only_line(err).startswith("albertine: a loader process was killed by SIGKILL. Out of memory")


@pytest.mark.matrix
@pytest.mark.skipif(not Path("/proc/self/stat").is_file(), reason="looks for processes in /proc")
def test_torchrun_starts_again_what_was_killed(build: Build, tmp_path: Path) -> None:
    """First a rank, then a loader of the other one; the run goes on to its end and leaves no process."""
    file = recipe(
        build,
        tmp_path,
        training={"steps": 300, "workers": 2},
        watching={"checkpoint_every": 10, "evaluate_every": 300, "log_every": 50},
    )
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--max-restarts", "3"]
    line = [sys.executable, *torchrun, "-m", "albertine", "pretrain", "--config", str(file)]
    names = {k: v for k, v in os.environ.items() if k not in ("WORLD_SIZE", "RANK")} | {
        "OMP_NUM_THREADS": "1"
    }
    with (tmp_path / "output").open("w+") as output:
        process = subprocess.Popen(line, env=names, stdout=output, stderr=output, start_new_session=True)
        try:
            known: list[int] = []
            for rank, loader in ((1, False), (0, True)):
                before = steps_saved(tmp_path)
                deadline = time.monotonic() + 90
                while steps_saved(tmp_path) <= before and time.monotonic() < deadline:
                    time.sleep(0.02)
                ranks = sorted(children(process.pid), key=_rank)
                assert process.poll() is None and [_rank(pid) for pid in ranks] == [0, 1]
                known += [*ranks, *(pid for one in ranks for pid in children(one))]
                os.kill(children(ranks[rank])[0] if loader else ranks[rank], signal.SIGKILL)
                assert gone(ranks, 60), "the other rank is started again too"
            assert process.wait(120) == 0
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        output.seek(0)
        text = output.read()
    assert gone(known) and text.count("Done after 300 steps") == 1
    assert "a loader process was killed by SIGKILL" in text and "another process of the run has ended" in text
    assert "[rank" not in text, "tracebacks of torch"


def steps_saved(folder: Path) -> int:
    """The last step of which there is a checkpoint."""
    names = [path.name for path in folder.glob("runs/toy/checkpoints/step-*")]
    return max((int(name.partition("-")[2]) for name in names), default=0)


def _rank(pid: int) -> int:
    try:
        words = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return -1
    return next((int(word[5:]) for word in words if word.startswith(b"RANK=")), -1)


def test_two_killed_processes_resume_to_the_same_weights(build: Build, tmp_path: Path) -> None:
    """A run as those of the released models are, with a loader for each process."""
    short = {"max_length": 16, "pairs": "none"}
    stages = [
        {"begin": 0, **short},
        {"begin": 0.2, "max_length": 16, "pairs": "sop", "repeats": 1.0},
        {"begin": 0.4, "repeats": 0.1},
        {"begin": 0.7, **short},
        {"begin": 0.85, "repeats": 0.1},
    ]
    file = recipe(
        build,
        tmp_path,
        model={"preset": "albertine-mini"},
        objective={"masking": {"ngram": 1, "whole_word": False}},
        training={"optimizer": "muon", "steps": 40, "workers": 1},
        watching={"checkpoint_every": 5, "evaluate_every": 20, "log_every": 5},
        stages=stages,
    )
    two = ("--processes", "2")
    straight = command(file, "name=straight", *two)
    process = command(file, "name=killed", *two, new_session=True)
    folder, deadline = tmp_path / "runs" / "killed", time.monotonic() + 90
    while not list(folder.glob("checkpoints/step-1*")) and time.monotonic() < deadline:
        time.sleep(0.005)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    reached = max(int(path.name.partition("-")[2]) for path in folder.glob("checkpoints/step-*"))
    assert process.returncode == -signal.SIGKILL and 10 <= reached < 40
    again = command(file, "name=killed", *two)
    for one in (straight, again):
        _, err = one.communicate(timeout=120)
        assert one.returncode == 0, err
    runs = [tmp_path / "runs" / name for name in ("straight", "killed")]
    first, second = ((run / "final" / "model.safetensors").read_bytes() for run in runs)
    assert first == second
    rows = [
        [{k: v for k, v in row.items() if k not in TIMINGS} for row in read_metrics(run / "metrics.jsonl")]
        for run in runs
    ]
    assert rows[0] == rows[1]
    assert {row["stage"] for row in rows[0] if "stage" in row} == {0, 1, 2, 3, 4}


def test_one_process_of_torchrun_is_not_several(monkeypatch: pytest.MonkeyPatch) -> None:
    for size, several in (("1", False), ("2", True)):
        monkeypatch.setenv("WORLD_SIZE", size)
        assert started() is several


def test_the_last_output_of_another_process_is_in_the_error() -> None:
    with (
        pytest.raises(RunError, match=r"exit code 2: .*No such option") as error,
        together(2, ["--nonsense"]),
    ):
        assert started()
        time.sleep(0.5)
        raise RuntimeError("connection closed by peer")
    assert isinstance(error.value.__cause__, RuntimeError)
    assert not started(), "the names of torchrun are gone again"
