"""Tagging schemes, entities from tags, and the Viterbi decoding of a CRF."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from albertine.tokenizers.base import Spans

Entity = tuple[str, int, int]
"""Type, first character, end (exclusive)."""

Scheme = Literal["bio", "bioes"]
"""BIO marks the first token of an entity, BIOES also the last and a single one."""

_MARKS: dict[Scheme, str] = {"bio": "BI", "bioes": "BIES"}


def tags_of(types: Sequence[str], scheme: Scheme = "bio") -> tuple[str, ...]:
    """O, and all tags of every type."""
    return ("O", *(f"{mark}-{name}" for name in types for mark in _MARKS[scheme]))


def types_of(tags: Sequence[str]) -> tuple[str, ...]:
    """The entity types of tags, in their order."""
    return tuple(dict.fromkeys(name for _, sign, name in (tag.partition("-") for tag in tags) if sign))


def scheme_of(tags: Sequence[str]) -> Scheme:
    """The scheme of a model's tags."""
    return "bioes" if any(tag[:2] in ("E-", "S-") for tag in tags) else "bio"


def marks(count: int, scheme: Scheme = "bio") -> str:
    """The marks of an entity of `count` tokens."""
    if scheme == "bio":
        return "B" + "I" * (count - 1)
    return "S" if count == 1 else "B" + "I" * (count - 2) + "E"


def allowed(tags: Sequence[str]) -> list[list[bool]]:
    """Which tag may follow which, for `Crf`: row before column, the last row and column being the edges."""
    closed = scheme_of(tags) == "bioes"
    outside = "O"  # stands for the edges: before the first token and after the last
    return [[_follows(a, b, closed) for b in (*tags, outside)] for a in (*tags, outside)]


def _follows(before: str, after: str, closed: bool) -> bool:
    mark, _, running = before.partition("-")
    begins, _, kind = after.partition("-")
    is_open = mark in ("B", "I")
    if begins in ("I", "E"):
        return is_open and running == kind
    return not (closed and is_open)


UNTYPED = "_"
"""The type of tags B and I without a type, as in seqeval."""
_BARE = frozenset("BIESMLU")


def typed(tags: Sequence[str]) -> tuple[str, ...]:
    """A model's tags, with the type `UNTYPED` where none has a type (B, I and O, of models with one type)."""
    named = {tag for tag in tags if tag != "O"}
    bare = "O" in tags and bool(named) and named <= _BARE
    return tuple(tag if tag == "O" or not bare else f"{tag}-{UNTYPED}" for tag in tags)


AS_BIOES = {"M": "I", "L": "E", "U": "S"}
"""Marks of BMES and BILOU, and the equal marks of BIOES."""


def bio_spans(tags: Sequence[str]) -> list[tuple[str, int, int]]:
    """Entities of a sequence of BIO or BIOES tags as (type, first, end), `end` exclusive.

    As in seqeval's default mode and conlleval: an I without a B, or of another type than the open entity,
    begins an entity. A tag of no scheme, such as a part of speech, is a class of tokens, and a run of it is
    an entity, as in transformers.
    """
    spans: list[tuple[str, int, int]] = []
    kind, begin, closed = "", 0, False
    for i, tag in enumerate([*tags, "O"]):
        mark, _, name = tag.partition("-")
        mark = AS_BIOES.get(mark, mark)
        if tag != "O" and not (name and mark in ("B", "I", "E", "S")):
            mark, name = "I", tag
        ends = kind and (mark in "OBS" or name != kind or closed)
        if ends:
            spans.append((kind, begin, i))
            kind = ""
        if mark != "O" and not kind:
            kind, begin = name, i
        closed = mark in "ES"
    return spans


def entities_of(spans: Spans, tags: Sequence[str]) -> list[Entity]:
    """The entities of tagged tokens, in characters."""
    found = []
    for name, first, end in bio_spans(tags):
        begin, last = spans.starts[first], max(spans.ends[first:end])
        if last > begin:
            found.append((name, begin, last))
    return found


class Transitions:
    """The transition scores of a conditional random field (`model.crf`).

    Attributes:
        between: (tags, tags), from the row to the column. start, end: (tags,). Transitions that the tagging
            scheme forbids are minus infinity.
    """

    def __init__(
        self,
        tags: Sequence[str],
        between: NDArray[np.float32],
        start: NDArray[np.float32],
        end: NDArray[np.float32],
    ) -> None:
        never = np.where(np.array(allowed(tags)), np.float32(0), np.float32(-np.inf))
        self.between = between + never[:-1, :-1]
        self.start, self.end = start + never[-1, :-1], end + never[:-1, -1]

    def best(self, emitted: NDArray[np.float32]) -> NDArray[np.int64]:
        """The best tag sequence (tokens,) of one text by its emissions (tokens, tags), at least one token
        (Viterbi); equal to `Crf.best`, which takes a batch."""
        total, origins = self.start + emitted[0], []
        for here in emitted[1:]:
            onward = total[:, None] + self.between
            origins.append(onward.argmax(0))
            total = onward.max(0) + here
        tags = [int((total + self.end).argmax())]
        for origin in reversed(origins):
            tags.append(int(origin[tags[-1]]))
        return np.array(tags[::-1], dtype=np.int64)
