"""Assign documents to shards: drop short ones and duplicates, hold some out, and end shards by size.

The result depends only on the stream of documents, not on the processes that encode the shards.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain

from albertine.corpus.duplicates import SeenDigests, content_digest
from albertine.corpus.manifest import SPLITS
from albertine.text.documents import Document

_POLL_CHARACTERS = 200_000
_MAX_WAITING = 16_000_000
"""Characters kept in memory until both splits have a document, in addition to the longest document."""


@dataclass(frozen=True)
class SplitRules:
    """Rules by which documents are dropped, held out and grouped.

    Args:
        min_characters: shorter documents are dropped.
        held_out: share of documents held out for evaluation.
        shard_characters: a shard ends with the document that reaches this size.
        seed: of the draw of held-out documents.
    """

    min_characters: int
    held_out: float
    shard_characters: int
    seed: int

    def draw(self, digest: bytes) -> float:
        """A number from 0 to 1 as a function of a document's content; documents below `held_out` are held
        out."""
        key = self.seed.to_bytes(8, "little")
        return int.from_bytes(hashlib.blake2b(digest, digest_size=8, key=key).digest(), "little") / 2**64


@dataclass
class DocumentCounts:
    """Documents read and dropped so far; `text_bytes` is UTF-8 of all documents read."""

    documents: int = 0
    short: int = 0
    duplicate: int = 0
    text_bytes: int = 0


@dataclass
class ShardText:
    """The text of one shard."""

    split: str
    index: int
    documents: list[tuple[bool, tuple[str, ...]]] = field(default_factory=list)
    characters: int = 0
    text: str = ""
    """SHA-256 of the documents in order"""


@dataclass
class _Kept:
    """A document that was not dropped."""

    document: Document
    draw: float
    split: str


def split_into_shards(
    documents: Iterable[Document],
    rules: SplitRules,
    seen: SeenDigests | None,
    tally: DocumentCounts,
    poll: Callable[[], None],
) -> Iterator[ShardText]:
    """Yield the text of every shard when it is full.

    Args:
        seen: digests of earlier documents; None keeps duplicates.
        tally: updated with every document.
        poll: called every few hundred thousand characters.
    """
    open_jobs = {split: ShardText(split, 0) for split in SPLITS}
    hashes = {split: hashlib.sha256() for split in SPLITS}
    for kept in _with_both_splits(_filtered(documents, rules, seen, tally, poll), rules.held_out):
        document, split = kept.document, kept.split
        job, text = open_jobs[split], _bytes(document)
        job.documents.append((document.presplit, document.paragraphs))
        job.characters += document.characters
        hashes[split].update(b"%d\0%d\0" % (document.presplit, len(text)))
        hashes[split].update(text)
        if job.characters >= rules.shard_characters:
            job.text = hashes[split].hexdigest()
            open_jobs[split], hashes[split] = ShardText(split, job.index + 1), hashlib.sha256()
            yield job
    for split, job in open_jobs.items():
        if job.documents:
            job.text = hashes[split].hexdigest()
            yield job


def _filtered(
    documents: Iterable[Document],
    rules: SplitRules,
    seen: SeenDigests | None,
    tally: DocumentCounts,
    poll: Callable[[], None],
) -> Iterator[_Kept]:
    since_poll = 0
    for document in documents:
        characters = document.characters
        tally.documents += 1
        since_poll += characters
        if since_poll >= _POLL_CHARACTERS:
            poll()
            since_poll = 0
        digest = content_digest(document.paragraphs)
        tally.text_bytes += len(_bytes(document)) + 1
        if characters < rules.min_characters:
            tally.short += 1
        elif seen is not None and not seen.add(digest):
            tally.duplicate += 1
        else:
            draw = rules.draw(digest)
            yield _Kept(document, draw, "heldout" if draw < rules.held_out else "train")


def _with_both_splits(kept: Iterator[_Kept], held_out: float) -> Iterator[_Kept]:
    """Ensure that at least one document is for training and, of two or more, one is held out.

    If all draws of a few documents fall on the same side, the document with the largest draw moves to
    training, or the one with the smallest is held out. The first documents are kept in memory until this is
    decided.
    """
    waiting: list[_Kept] = []
    characters = longest = 0
    for one in kept if held_out else ():
        waiting.append(one)
        characters += one.document.characters
        longest = max(longest, one.document.characters)
        if one.split != waiting[0].split or characters - longest > _MAX_WAITING:
            break
    moved: dict[float, str] = {}  # by draw, so that copies of a document move with it
    draws = {one.draw for one in waiting}
    if waiting and all(one.split == "heldout" for one in waiting):
        moved[max(draws)] = "train"
    elif len(draws) > 1 and all(one.split == "train" for one in waiting):
        moved[min(draws)] = "heldout"
    for one in chain(waiting, kept):
        one.split = moved.get(one.draw, one.split)
        yield one


def _bytes(document: Document) -> bytes:
    return "\n".join(document.paragraphs).encode("utf-8", "surrogatepass")
