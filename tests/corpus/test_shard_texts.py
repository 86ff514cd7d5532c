"""Where a document is dropped and where a shard ends, to the character; and what names its text."""

from __future__ import annotations

from itertools import permutations

import pytest

from albertine.corpus.shard_texts import DocumentCounts, ShardText, SplitRules, split_into_shards
from albertine.text.documents import Document


def jobs(
    *documents: tuple[str, ...], presplit: bool = False, least: int = 0, full: int = 10**6
) -> list[ShardText]:
    found = (Document("f", paragraphs, presplit) for paragraphs in documents)
    return list(
        split_into_shards(found, SplitRules(least, 0.0, full, 1), None, DocumentCounts(), lambda: None)
    )


def test_a_document_as_long_as_the_least_is_kept() -> None:
    (job,) = jobs(("abcd",), ("abc", "d"), ("abcde",), least=5)
    assert [paragraphs for _, paragraphs in job.documents] == [("abc", "d"), ("abcde",)]


def test_a_shard_ends_with_the_document_that_reaches_its_size() -> None:
    assert [len(job.documents) for job in jobs(("abc",), ("de",), ("fgh",), ("ij",), full=5)] == [2, 2]


@pytest.mark.parametrize("held_out", [1e-9, 1 - 1e-9])
def test_a_document_longer_than_all_that_waits_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, held_out: float
) -> None:
    def splits(texts: tuple[str, ...]) -> dict[str, set[str]]:
        found = split_into_shards(
            (Document("f", (text,), False) for text in texts), rules, None, DocumentCounts(), lambda: None
        )
        return {job.split: {lines[0] for _, lines in job.documents} for job in found}

    rules = SplitRules(0, held_out, 10**6, 1)
    texts = ("long " * 100, "one", "two", "three")
    wanted = splits(texts)
    assert sorted(map(len, wanted.values())) == [1, 3]
    monkeypatch.setattr("albertine.corpus.shard_texts._MAX_WAITING", 20)
    assert all(splits(order) == wanted for order in permutations(texts))


def test_borders_are_part_of_what_names_a_text() -> None:
    texts = {
        jobs(*documents, presplit=presplit)[0].text
        for documents in ([("ab", "c")], [("ab",), ("c",)], [("a",), ("bc",)])
        for presplit in (False, True)
    }
    assert len(texts) == 6


def test_copies_go_where_their_document_goes() -> None:
    texts = [Document("f", (text,), False) for text in ("one", "two", "three") * 2]
    found = split_into_shards(texts, SplitRules(0, 1e-9, 10**6, 1), None, DocumentCounts(), lambda: None)
    splits: dict[str, set[str]] = {"train": set(), "heldout": set()}
    for job in found:
        splits[job.split] |= {lines[0] for _, lines in job.documents}
    assert splits["train"].isdisjoint(splits["heldout"]) and len(splits["heldout"]) == 1
