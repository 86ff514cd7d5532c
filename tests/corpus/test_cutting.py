"""Where a document is dropped and where a shard ends, to the character; and what names its text."""

from __future__ import annotations

from albertine.corpus.cutting import CutRules, ShardText, Tally, cut
from albertine.text.documents import Document


def jobs(
    *documents: tuple[str, ...], presplit: bool = False, least: int = 0, full: int = 10**6
) -> list[ShardText]:
    found = (Document("f", paragraphs, presplit) for paragraphs in documents)
    return list(cut(found, CutRules(least, 0.0, full, 1), None, Tally(), lambda: None))


def test_a_document_as_long_as_the_least_is_kept() -> None:
    (job,) = jobs(("abcd",), ("abc", "d"), ("abcde",), least=5)
    assert [paragraphs for _, paragraphs in job.documents] == [("abc", "d"), ("abcde",)]


def test_a_shard_ends_with_the_document_that_reaches_its_size() -> None:
    assert [len(job.documents) for job in jobs(("abc",), ("de",), ("fgh",), ("ij",), full=5)] == [2, 2]


def test_borders_are_part_of_what_names_a_text() -> None:
    texts = {
        jobs(*documents, presplit=presplit)[0].text
        for documents in ([("ab", "c")], [("ab",), ("c",)], [("a",), ("bc",)])
        for presplit in (False, True)
    }
    assert len(texts) == 6
