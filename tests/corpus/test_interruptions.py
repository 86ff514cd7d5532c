"""Preparing that is stopped: nothing half-written is ever taken for complete, and the same call resumes."""

from __future__ import annotations

import errno
import fcntl
import json
import multiprocessing
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from albertine.core import files
from albertine.core.files import replace_durably
from albertine.corpus import prepare as module
from albertine.corpus.lock import locked
from albertine.corpus.prepare import Progress, write_corpus
from albertine.corpus.reader import Corpus
from albertine.corpus.shards import load_finished_shard
from albertine.errors import CorpusError, RunError
from albertine.tokenizers.base import Tokenizer
from tests.corpus.texts import content, letter_tokenizer, library

FORK = multiprocessing.get_context("fork")


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return letter_tokenizer(tmp_path_factory.mktemp("vocabulary"))


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return library(tmp_path_factory.mktemp("text"), 120)


@pytest.fixture(scope="module")
def whole(text: Path, tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The corpus as it is when nothing interrupts."""
    folder = tmp_path_factory.mktemp("whole") / "corpus"
    run(text, folder, tokenizer)
    return content(folder)


def run(text: Path, folder: Path, tokenizer: Tokenizer, workers: int = 1, **options: Any) -> None:
    given = {"format": "lines", "held_out": 0.1, "shard_characters": 6000, **options}
    write_corpus([text], folder, tokenizer, "en", workers=workers, **given)


def check_unfinished(folder: Path) -> int:
    """No manifest, nothing half-written, every recorded shard whole; how many are recorded."""
    assert not (folder / "manifest.json").exists() and (folder / "prepare.json").exists()
    assert not [*folder.rglob("*.tmp"), *folder.rglob(".*.new")]
    records = list(folder.glob("*/shard-*.json"))
    for path in records:
        tree = json.loads(path.read_text())
        index = int(path.stem.removeprefix("shard-"))
        assert load_finished_shard(path.parent, index, text=tree["text"], stamp=tree["stamp"]) is not None
    return len(records)


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("after", [1, 2, 4, 9, 23])
def test_disk_full(
    tmp_path: Path,
    text: Path,
    tokenizer: Tokenizer,
    whole: dict[str, bytes],
    monkeypatch: pytest.MonkeyPatch,
    workers: int,
    after: int,
) -> None:
    """The disk is full at one of the writes: of the plan, of any file of a shard, of its record."""
    left = [after]

    def fsync(handle: int) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(files.os, "fsync", fsync)
        with pytest.raises(RunError, match="the disk is full") as caught:
            run(text, tmp_path / "corpus", tokenizer, workers)
    assert "run the same command again" in str(caught.value)
    check_unfinished(tmp_path / "corpus")
    run(text, tmp_path / "corpus", tokenizer, workers)
    assert content(tmp_path / "corpus") == whole


def test_a_corpus_that_is_being_remade_is_not_complete(
    tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, folder = library(tmp_path), tmp_path / "corpus"
    run(text, folder, tokenizer)
    text.write_text(text.read_text().replace("river", "rivet"))

    def fail(*_: Any) -> Any:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(module, "encode_shard", fail)
    with pytest.raises(RunError, match="the disk is full"):
        run(text, folder, tokenizer)
    check_unfinished(folder)
    with pytest.raises(CorpusError, match="not prepared to the end"):
        Corpus(folder)


def test_a_killed_worker_is_named_and_work_is_kept(
    tmp_path: Path, text: Path, tokenizer: Tokenizer, whole: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = module.encode_shard

    def encode(job: Any, *rest: Any) -> Any:
        if (job.split, job.index) == ("train", 5):
            os.kill(os.getpid(), signal.SIGKILL)
        return real(job, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(module, "encode_shard", encode)
        with pytest.raises(RunError, match="a worker process was killed by SIGKILL"):
            run(text, tmp_path / "corpus", tokenizer, 2)
    assert check_unfinished(tmp_path / "corpus") >= 2
    records = (tmp_path / "corpus").glob("*/shard-*.json")
    finished = [part for record in records for part in record.parent.glob(f"{record.stem}.*")]
    times = {part: part.stat().st_mtime_ns for part in finished}
    run(text, tmp_path / "corpus", tokenizer, 2)
    assert content(tmp_path / "corpus") == whole
    assert {p: p.stat().st_mtime_ns for p in times} == times, "finished shards are not made again"


def test_an_error_in_a_worker_arrives_as_itself(
    tmp_path: Path, text: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(error: Exception) -> Callable[..., Any]:
        def encode(*_: Any) -> Any:
            raise error

        return encode

    with monkeypatch.context() as patch:
        patch.setattr(module, "encode_shard", fail(RunError("no luck", where="here", remedy="Try")))
        with pytest.raises(RunError) as caught:
            run(text, tmp_path / "a", tokenizer, 2)
        assert (caught.value.what, caught.value.where, caught.value.remedy) == ("no luck", "here", "Try")
        patch.setattr(module, "encode_shard", fail(ZeroDivisionError("odd")))
        with pytest.raises(RuntimeError, match="ZeroDivisionError: odd") as other:
            run(text, tmp_path / "b", tokenizer, 2)
        assert "in encode" in str(other.value.__cause__), "the traceback of the worker is chained"


def start(text: Path, folder: Path, tokenizer: Tokenizer, workers: int) -> Any:
    """`write_corpus` in a process group of its own; the exit code is 7 for a KeyboardInterrupt."""

    def main() -> None:
        os.setsid()
        sys.stderr = Path(f"{folder}.stderr").open("w")  # noqa: SIM115 - for as long as the process lives
        slow = module.encode_shard

        def encode(*given: Any) -> Any:
            time.sleep(0.02)
            return slow(*given)

        module.encode_shard = encode
        try:
            run(text, folder, tokenizer, workers)
        except KeyboardInterrupt:
            os._exit(7)
        os._exit(0)

    process = FORK.Process(target=main)
    process.start()
    return process


def wait_for(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.002)


def group_is_gone(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return True
    return False


def test_killed_at_any_moment(
    tmp_path: Path, text: Path, tokenizer: Tokenizer, whole: dict[str, bytes]
) -> None:
    """SIGKILL to the parent alone; its workers end by themselves, and the next call waits for them."""
    folder = tmp_path / "corpus"
    for number in range(8):
        process = start(text, folder, tokenizer, 2)
        wait_for((folder / ".lock").exists)
        time.sleep(0.012 * number)
        process.kill()
        process.join()
        if (folder / "manifest.json").exists():
            break
    run(text, folder, tokenizer, 2)
    assert content(folder) == whole


@pytest.mark.parametrize("workers", [1, 2])
def test_ctrl_c_is_clean(tmp_path: Path, text: Path, tokenizer: Tokenizer, workers: int) -> None:
    folder = tmp_path / "corpus"
    process = start(text, folder, tokenizer, workers)
    wait_for((folder / "train" / "shard-00002.json").exists)
    os.killpg(process.pid, signal.SIGINT)
    process.join(20)
    assert process.exitcode == 7
    wait_for(lambda: group_is_gone(process.pid), 5)
    assert not (folder / ".lock").exists()
    assert check_unfinished(folder) >= 3
    assert Path(f"{folder}.stderr").read_text() == "", "no traceback from any process"


def test_an_interruption_between_documents_is_clean(
    tmp_path: Path, text: Path, tokenizer: Tokenizer, whole: dict[str, bytes]
) -> None:
    def interrupt(now: Progress) -> None:
        if now.documents > 40:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(text, tmp_path / "corpus", tokenizer, 2, progress=interrupt)
    check_unfinished(tmp_path / "corpus")
    with pytest.raises(CorpusError, match=r"settings.seed: 1 → 2"):
        run(text, tmp_path / "corpus", tokenizer, seed=2)
    run(text, tmp_path / "corpus", tokenizer, 2)
    assert content(tmp_path / "corpus") == whole


def test_two_at_once_are_refused(tmp_path: Path, text: Path, tokenizer: Tokenizer) -> None:
    folder = tmp_path / "corpus"
    folder.mkdir()
    with locked(folder):
        with pytest.raises(RunError, match=f"in use by process {os.getpid()} on {socket.gethostname()}"):
            run(text, folder, tokenizer)
        assert (folder / ".lock").exists()
    run(text, folder, tokenizer)
    assert not (folder / ".lock").exists()


def test_a_stale_lock_is_recovered(tmp_path: Path, text: Path, tokenizer: Tokenizer) -> None:
    folder = tmp_path / "corpus"
    folder.mkdir()
    (folder / ".lock").write_text(json.dumps({"pid": 2**22 - 1, "host": socket.gethostname()}))
    run(text, folder, tokenizer)
    assert (folder / "manifest.json").exists() and not (folder / ".lock").exists()


def test_a_lock_file_removed_while_it_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The previous holder removes it just as it is locked: the lock must be on the file that other processes
    see."""
    real, removed = fcntl.flock, []

    def flock(handle: int, how: int) -> None:
        real(handle, how)
        if not removed:
            removed.append((tmp_path / ".lock").unlink())
            (tmp_path / ".lock").touch()  # and a third process makes a new one

    monkeypatch.setattr(fcntl, "flock", flock)
    with locked(tmp_path), pytest.raises(RunError, match="in use"), locked(tmp_path):
        pass


def test_a_lock_that_was_left_behind_is_for_all_who_may_write(tmp_path: Path) -> None:
    before = os.umask(0o002)
    try:
        with locked(tmp_path):
            assert (tmp_path / ".lock").stat().st_mode & 0o777 == 0o664
    finally:
        os.umask(before)


def test_a_file_that_could_not_be_written_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: int) -> None:
        raise OSError(errno.EIO, "broken")

    replace_durably(tmp_path / "a", b"old")
    monkeypatch.setattr(files.os, "fsync", fail)
    with pytest.raises(OSError, match="broken"):
        replace_durably(tmp_path / "a", b"new")
    assert content(tmp_path) == {"a": b"old"}
