"""The run folder: one process at a time, and a record of where a result came from."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from albertine.core.files import recover, remove_folder, replaced_folder, resolve_folder
from albertine.errors import RunError
from albertine.training.run_folder import RunFolder, environment
from tests.crashes import states_at_kills

HOLDER = """
import sys, time
from pathlib import Path
from albertine.training.run_folder import RunFolder
with RunFolder(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_second_process_is_refused_and_a_dead_one_ignored(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path / "run")], stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout is not None and holder.stdout.readline() == "held\n"
        with (
            pytest.raises(RunError, match=rf"process {holder.pid} on {socket.gethostname()}"),
            RunFolder(tmp_path / "run"),
        ):
            pass
    finally:
        holder.send_signal(signal.SIGKILL)
        holder.communicate()
    with caplog.at_level(logging.WARNING, logger="albertine.training"), RunFolder(tmp_path / "run"):
        assert json.loads((tmp_path / "run" / "lock").read_text())["pid"] == os.getpid()
    assert f"{holder.pid}" in caplog.text and "is gone" in caplog.text


def test_the_same_process_is_refused_too_and_leaving_frees(tmp_path: Path) -> None:
    with RunFolder(tmp_path), pytest.raises(RunError, match="is in use"), RunFolder(tmp_path):
        pass
    with RunFolder(tmp_path):
        pass
    assert (tmp_path / "lock").read_text() == ""


def test_a_forked_loader_does_not_keep_the_lock(tmp_path: Path) -> None:
    with RunFolder(tmp_path):
        child = os.fork()
        if child == 0:
            time.sleep(30)
            os._exit(0)
    try:
        done = subprocess.run(
            [sys.executable, "-c", HOLDER.replace("time.sleep(60)", "pass"), str(tmp_path)],
            capture_output=True,
            text=True,
        )
        assert done.stdout == "held\n", done.stderr
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_users_of_a_shared_folder_may_resume_a_run(tmp_path: Path) -> None:
    """Also one started by another user of the group: none of its files is restricted to its owner."""
    before = os.umask(0o002)
    try:
        with RunFolder(tmp_path / "run") as folder:
            folder.begin()
            folder.write_settings("seed: 1\n")
    finally:
        os.umask(before)
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "run").iterdir()}
    assert modes == dict.fromkeys(("lock", "log.txt", "settings.yaml"), 0o664)


def test_the_level_of_the_log_is_the_program_s(tmp_path: Path) -> None:
    log = logging.getLogger("albertine.training")
    log.setLevel(logging.ERROR)
    try:
        with RunFolder(tmp_path):
            assert log.isEnabledFor(logging.INFO)  # for the run's own file
        assert log.level == logging.ERROR
    finally:
        log.setLevel(logging.NOTSET)


def test_other_ranks_touch_nothing(tmp_path: Path) -> None:
    with RunFolder(tmp_path / "run", main=False) as folder:
        folder.describe("a: 1\n", {})
    assert not (tmp_path / "run").exists()


def test_environment_is_written_and_a_change_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    facts = environment(7)
    assert torch.__version__.startswith(facts["versions"]["torch"]) and facts["seed"] == 7
    assert facts["threads"] == torch.get_num_threads() and facts["command"] == sys.argv and facts["cpu"]
    with RunFolder(tmp_path) as folder, caplog.at_level(logging.WARNING, logger="albertine.training"):
        folder.begin()
        folder.describe("name: x\n", facts)
        folder.describe("name: x\n", facts | {"command": ["other"]})
        assert caplog.text == ""
        folder.describe(
            "name: x\n", facts | {"threads": 99, "versions": facts["versions"] | {"torch": "0.1"}}
        )
    assert (
        "threads" in caplog.text and "versions.torch" in caplog.text and "last bits may differ" in caplog.text
    )
    assert folder.settings.read_text() == "name: x\n"
    assert json.loads(folder.environment.read_text())["threads"] == 99
    assert "last bits" in folder.log.read_text()


def test_errors_reach_the_log_of_a_run_that_began(tmp_path: Path) -> None:
    logger = logging.getLogger("albertine.training")
    for began in (False, True):
        with pytest.raises(RunError), RunFolder(tmp_path / "run") as folder:
            logger.warning("going back")
            if began:
                folder.begin()
            raise RunError("no more coffee")
        assert folder.path.exists() == began
    text = folder.log.read_text()
    assert text.index("going back") < text.index("no more coffee") and text.count("going back") == 1


@pytest.mark.parametrize("name", ["best", "final"])
@pytest.mark.parametrize("stage", ["new", "old"])
def test_entering_puts_a_model_back_that_a_kill_left_beside(tmp_path: Path, name: str, stage: str) -> None:
    (tmp_path / f".{name}.{stage}").mkdir()
    (tmp_path / f".{name}.{stage}" / "model").write_text("whole")
    (tmp_path / f".{name}.part").mkdir()
    with RunFolder(tmp_path) as folder:
        assert (folder.path / name / "model").read_text() == "whole"
    assert not list(tmp_path.glob(".*"))


def test_a_complete_folder_in_place_wins_over_one_beside(tmp_path: Path) -> None:
    for name, content in (("best", "in place"), (".best.new", "new"), (".best.old", "old")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "model").write_text(content)
    assert resolve_folder(tmp_path / "best") == tmp_path / "best"
    recover(tmp_path / "best")
    assert [p.name for p in tmp_path.iterdir()] == ["best"]
    assert (tmp_path / "best" / "model").read_text() == "in place"
    (tmp_path / "best").rename(tmp_path / ".best.old")
    (tmp_path / ".best.new").mkdir()
    assert resolve_folder(tmp_path / "best").name == ".best.new", "the newer of the two"


def test_a_deleted_folder_is_never_half_there(tmp_path: Path) -> None:
    folder = tmp_path / "run" / "step-1"
    folder.mkdir(parents=True)
    for name in "abc":
        (folder / name).write_text(name)
    kills = states_at_kills(lambda: remove_folder(folder), folder.parent, tmp_path / "kills")
    assert len(kills) > 4
    for place in kills:
        found = resolve_folder(place / "step-1")
        assert not found.exists() or sorted(p.name for p in found.iterdir()) == ["a", "b", "c"]
        recover(place / "step-1")
        assert [p.name for p in place.iterdir()] in ([], ["step-1"])


def test_a_folder_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    best = tmp_path / "best"
    for content in ("one", "two"):
        with replaced_folder(best) as new:
            (new / "model").write_text(content)
    with pytest.raises(ValueError), replaced_folder(best) as new:
        (new / "model").write_text("three")
        raise ValueError
    assert (best / "model").read_text() == "two"
    assert [p.name for p in tmp_path.iterdir()] == ["best"]


def test_an_error_on_entering_frees_the_folder(tmp_path: Path) -> None:
    (tmp_path / ".best.part").mkdir()
    handle = os.open(tmp_path / ".best.part", os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    with pytest.raises(RunError, match="being written"), RunFolder(tmp_path):
        pass
    os.close(handle)
    with RunFolder(tmp_path):
        pass
