"""The run folder: one process at a time, and a record of where a result came from."""

from __future__ import annotations

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

from albertine.errors import RunError
from albertine.files import replaced_folder
from albertine.training.run_folder import RunFolder, environment

HOLDER = """
import sys, time
from pathlib import Path
from albertine.training.run_folder import RunFolder
with RunFolder(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_second_process_is_refused_and_a_dead_one_forgotten(
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


def test_other_ranks_touch_nothing(tmp_path: Path) -> None:
    with RunFolder(tmp_path / "run", main=False) as folder:
        folder.describe("a: 1\n", {})
    assert not (tmp_path / "run").exists()


def test_environment_is_written_and_a_change_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    facts = environment(7)
    assert facts["versions"]["torch"] == torch.__version__ and facts["seed"] == 7
    assert facts["threads"] == torch.get_num_threads() and facts["command"] == sys.argv and facts["cpu"]
    with RunFolder(tmp_path) as folder, caplog.at_level(logging.WARNING, logger="albertine.training"):
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


def test_errors_reach_the_log(tmp_path: Path) -> None:
    with pytest.raises(RunError), RunFolder(tmp_path):
        raise RunError("no more coffee")
    assert "no more coffee" in (tmp_path / "log.txt").read_text()


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
