"""F1 of entities and of relations by exact match, counted over all texts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from typing import Any, NamedTuple

Triple = tuple[str, str, str]
"""Subject, predicate, object."""


class Scores(NamedTuple):
    """Scores in [0, 1]; 0 where nothing was predicted, or there is no gold item."""

    precision: float
    recall: float
    f1: float


def micro(gold: Sequence[Iterable[Hashable]], predicted: Sequence[Iterable[Hashable]]) -> Scores:
    """Precision, recall and F1 over the items of all texts; within one text each item counts once.

    For CLUENER an item is (type, first, last character), for DuIE a triple from `plain_triple`.
    """
    if len(gold) != len(predicted):
        raise ValueError(f"{len(gold)} texts and {len(predicted)} predictions")
    hit = found = there = 0
    for own, theirs in zip(map(set, gold), map(set, predicted), strict=True):
        hit, there, found = hit + len(own & theirs), there + len(own), found + len(theirs)
    return _scores(hit, found, there)


def mean_over_types(gold: Sequence[Iterable[Any]], predicted: Sequence[Iterable[Any]]) -> float:
    """Mean of the F1 of every gold or predicted type; 0 where there is none. CLUENER's script computes it
    over its ten types, and counts a name once per text."""
    hit, found, there = Counter[str](), Counter[str](), Counter[str]()
    for own, theirs in zip(map(set, gold), map(set, predicted), strict=True):
        hit.update(one[0] for one in own & theirs)
        there.update(one[0] for one in own)
        found.update(one[0] for one in theirs)
    types = there.keys() | found.keys()
    return sum(_scores(hit[k], found[k], there[k]).f1 for k in types) / len(types) if types else 0.0


def plain_triple(triple: Triple) -> Triple:
    """A triple normalized as in the DuIE script: subject and object lowercased, and without the title
    brackets 《》 around a whole name."""
    subject, predicate, thing = triple
    return _plain(subject), predicate, _plain(thing)


def _plain(name: str) -> str:
    name = name.lower()
    return name[1:-1] if name.startswith("《") and name.endswith("》") else name


def _scores(hit: int, found: int, there: int) -> Scores:
    return Scores(
        hit / found if found else 0.0,
        hit / there if there else 0.0,
        2 * hit / (found + there) if hit else 0.0,
    )
