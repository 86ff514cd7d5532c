"""What is foreseen of the disk: a corpus that is begun needs the rest alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from albertine.corpus import disk_space as module
from albertine.corpus.disk_space import estimate
from albertine.corpus.prepare import prepare
from albertine.errors import RunError
from tests.corpus.texts import content, letter_tokenizer, library

MARGIN = 32 << 20


def test_what_is_written_is_not_asked_for_again(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(bytes(1000))
    files = [tmp_path / "a.txt"]
    assert [estimate(files, n) for n in (0, 200, 500, 10**9)] == [MARGIN + n for n in (500, 300, 0, 0)]


def test_a_corpus_that_is_nearly_done_needs_no_second_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, folder = library(tmp_path / "text", 100), tmp_path / "corpus"
    tokenizer = letter_tokenizer(tmp_path / "vocabulary")

    def run(name: str) -> None:
        prepare([text], tmp_path / name, tokenizer, "en", workers=1, shard_characters=6000)

    run("corpus")
    whole = content(folder)
    (folder / "manifest.json").unlink()
    (folder / "prepare.json").write_text("{")  # unfinished, and damaged
    for path in folder.glob("train/shard-00003.*"):
        path.unlink()
    left = folder / "train" / ".shard-00003.tokens.npy.new"  # of a process that was killed
    left.write_bytes(bytes(1000))

    def disk_usage(_: Path) -> Any:
        assert not left.exists(), "it takes room"
        return type("usage", (), {"free": MARGIN + text.stat().st_size // 4})

    monkeypatch.setattr(module.shutil, "disk_usage", disk_usage)
    run("corpus")
    assert content(folder) == whole
    with pytest.raises(RunError, match="MB more"):
        run("new")
