"""From a stream of documents to the text of shards: what is dropped, what is held out, where a shard ends.

All of it follows from the stream alone, so the shards do not depend on who encodes them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain

from albertine.corpus.duplicates import SeenDigests, content_digest
from albertine.corpus.manifest import SPLITS
from albertine.text.documents import Document

_PULSE = 200_000
_WAITING = 16_000_000
"""Characters that wait at most for a document of the other split, beside the longest document."""


@dataclass(frozen=True)
class SplitRules:
    """What happens to a document.

    Args:
        min_characters: shorter documents are dropped.
        held_out: share of documents kept for evaluation.
        shard_characters: a shard ends with the document that reaches this.
        seed: which documents are held out.
    """

    min_characters: int
    held_out: float
    shard_characters: int
    seed: int

    def draw(self, digest: bytes) -> float:
        """A number from 0 to 1; a document is held out where it is below `held_out`: a function of its
        content, whatever stands around it."""
        key = self.seed.to_bytes(8, "little")
        return int.from_bytes(hashlib.blake2b(digest, digest_size=8, key=key).digest(), "little") / 2**64


@dataclass
class DocumentCounts:
    """What went by so far; `text_bytes` is UTF-8 of all documents read."""

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
    pulse: Callable[[], None],
) -> Iterator[ShardText]:
    """The text of every shard, in the order in which they are full.

    Args:
        seen: digests of documents already taken; None to keep duplicates.
        tally: counted up as documents go by.
        pulse: called every few hundred thousand characters.
    """
    open_jobs = {split: ShardText(split, 0) for split in SPLITS}
    hashes = {split: hashlib.sha256() for split in SPLITS}
    for kept in _both(_not_dropped(documents, rules, seen, tally, pulse), rules.held_out):
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


def _not_dropped(
    documents: Iterable[Document],
    rules: SplitRules,
    seen: SeenDigests | None,
    tally: DocumentCounts,
    pulse: Callable[[], None],
) -> Iterator[_Kept]:
    since_pulse = 0
    for document in documents:
        characters = document.characters
        tally.documents += 1
        since_pulse += characters
        if since_pulse >= _PULSE:
            pulse()
            since_pulse = 0
        digest = content_digest(document.paragraphs)
        tally.text_bytes += len(_bytes(document)) + 1
        if characters < rules.min_characters:
            tally.short += 1
        elif seen is not None and not seen.add(digest):
            tally.duplicate += 1
        else:
            draw = rules.draw(digest)
            yield _Kept(document, draw, "heldout" if draw < rules.held_out else "train")


def _both(kept: Iterator[_Kept], held_out: float) -> Iterator[_Kept]:
    """The same documents, of which one at least is for training, and one, of two or more, is held out.

    Few documents may all draw the same: then the smallest draw is held out, or the largest is not. The first
    documents wait until that is known.
    """
    waiting: list[_Kept] = []
    characters = longest = 0
    for one in kept if held_out else ():
        waiting.append(one)
        characters += one.document.characters
        longest = max(longest, one.document.characters)
        if one.split != waiting[0].split or characters - longest > _WAITING:
            break
    moved: dict[float, str] = {}  # by draw: copies of a document go with it
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
