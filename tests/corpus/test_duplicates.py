"""The set of seen documents: exact, growing, and gone from the disk with its process."""

from __future__ import annotations

import errno
import hashlib
import os
from pathlib import Path

import pytest

from albertine.corpus.duplicates import SeenDigests, content_digest


def digest(number: int) -> bytes:
    return hashlib.blake2b(str(number).encode(), digest_size=16).digest()


def test_it_is_a_set_while_it_grows(tmp_path: Path) -> None:
    seen, expected = SeenDigests(tmp_path, slots=4), set[bytes]()
    for number in [*range(3000), *range(2500, 3500), *range(0, 3500, 7)]:
        new = digest(number)
        assert seen.add(new) == (new not in expected)
        expected.add(new)
    assert len(seen) == len(expected) == 3500
    assert not any(seen.add(digest(n)) for n in range(3500))


def test_crowded_slots_and_zeros(tmp_path: Path) -> None:
    """Digests that all hash to the same slot, before and after growing, and the one that marks a free
    slot."""
    seen = SeenDigests(tmp_path, slots=8)
    crowd = [(7).to_bytes(8, "little") + n.to_bytes(8, "little") for n in range(300)]
    assert all(seen.add(d) for d in crowd) and not any(seen.add(d) for d in crowd)
    assert seen.add(bytes(16)) and not seen.add(bytes(16))


def test_nothing_is_left_on_disk(tmp_path: Path) -> None:
    seen = SeenDigests(tmp_path, slots=4)
    for number in range(50):
        seen.add(digest(number))
    assert os.listdir(tmp_path) == []


def test_a_full_disk_is_an_error_and_not_a_crash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: int) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OSError, match="full"):
        SeenDigests(tmp_path)
    assert os.listdir(tmp_path) == []


def test_what_counts_as_the_same() -> None:
    same = content_digest(["The old man.", "He went home."])
    assert content_digest(["the OLD  man. He went", "home."]) == same
    assert content_digest(["The old man.", "He went home"]) != same
    beginning = ["The old man went home. " * 1000] * 3
    assert content_digest([*beginning, "He slept."]) != content_digest([*beginning, "He woke."])
    assert len(same) == 16 and content_digest(["\ud800"]) != same


def test_what_is_held_out_stays_so_in_later_versions() -> None:
    """Corpora that are prepared again, and those of the released models, draw from these digests."""
    import hashlib

    expected = hashlib.blake2b("the\told\u3000man.hewent\u00a0home.".encode(), digest_size=16).digest()
    assert content_digest(["The\told\u3000man.", "He went\u00a0home."]) == expected
