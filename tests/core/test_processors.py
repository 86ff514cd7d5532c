"""What differs between Linux and macOS."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from albertine.bench.machine import describe
from albertine.cli.app import _set_thread_variables
from albertine.core.processors import competing_threads, cpu_time_limited, usable_cores
from albertine.corpus.prepare import write_corpus
from albertine.corpus.reader import Corpus
from tests.corpus.texts import letter_tokenizer, library


def test_the_processors_of_this_process_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("albertine.core.processors.QUOTA_FILE", "nowhere")
    monkeypatch.setattr("albertine.core.processors.CGROUP_V1_FOLDER", "nowhere")
    if hasattr(os, "sched_setaffinity"):
        all_of_them = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {min(all_of_them)})
        try:
            assert usable_cores() == 1
        finally:
            os.sched_setaffinity(0, all_of_them)
        assert usable_cores() == len(all_of_them)


def test_processor_load_is_counted_now_and_over_the_last_minute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("albertine.core.processors.LOAD_FILE", str(tmp_path / "loadavg"))
    monkeypatch.setattr(os, "getloadavg", lambda: (2.5, 1.0, 1.0))
    assert competing_threads() == 2.5
    (tmp_path / "loadavg").write_text("2.5 1.0 1.0 4/78 8724\n")
    assert competing_threads() == 2.5
    (tmp_path / "loadavg").write_text("2.5 1.0 1.0 2/78 8724\n")
    assert competing_threads() == 1


def test_a_corpus_is_made_where_linux_calls_are_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("albertine.core.processors.QUOTA_FILE", "nowhere")
    monkeypatch.setattr("albertine.core.processors.CGROUP_V1_FOLDER", "nowhere")
    for name in ("sched_getaffinity", "posix_fallocate"):
        monkeypatch.delattr(os, name, raising=False)
    assert usable_cores() == os.cpu_count() == describe()["cores"]
    tokenizer = letter_tokenizer(tmp_path / "vocabulary")
    manifest = write_corpus(
        [library(tmp_path)], tmp_path / "corpus", tokenizer, "en", format="lines", held_out=0.1
    )
    assert manifest.documents == 60
    Corpus(tmp_path / "corpus").verify(full=True)


def test_the_limit_of_a_container_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("albertine.core.processors.QUOTA_FILE", str(tmp_path / "cpu.max"))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)), raising=False)
    for content, cores in (("400000 100000\n", 4), ("50000 100000\n", 1), ("max 100000\n", 64)):
        (tmp_path / "cpu.max").write_text(content)
        assert usable_cores() == cores and cpu_time_limited() == (cores < 64)


def test_the_limit_of_an_older_container_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("albertine.core.processors.QUOTA_FILE", "nowhere")
    monkeypatch.setattr("albertine.core.processors.CGROUP_V1_FOLDER", str(tmp_path))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)), raising=False)
    (tmp_path / "cpu.cfs_period_us").write_text("100000\n")
    for content, cores in (("250000\n", 3), ("-1\n", 64)):
        (tmp_path / "cpu.cfs_quota_us").write_text(content)
        assert usable_cores() == cores and cpu_time_limited() == (cores < 64)


def test_torch_has_as_many_threads_as_a_container_gives_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("albertine.core.processors.QUOTA_FILE", str(tmp_path / "cpu.max"))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)), raising=False)
    for content, threads in (("300000 100000\n", "3"), ("max 100000\n", None)):
        monkeypatch.setattr(os, "environ", {})
        (tmp_path / "cpu.max").write_text(content)
        _set_thread_variables([])
        assert os.environ.get("OMP_NUM_THREADS") == threads
