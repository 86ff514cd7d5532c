"""Texts with relations as model input: the token positions of each triple's names, and the subject drawn for
a text in training.

The subject is drawn as in bert4keras' example `task_relation_extraction`: the first token of one subject, and
the last token of one that does not end before it. With several subjects the two may belong to different ones;
such a pair has no objects, and trains the second stage to reject errors of the first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from albertine.core.randomness import uniforms
from albertine.evaluation.entities import Triple
from albertine.tasks.encoded import Encoded, RowBuilder, Tally, TaskBatch, cut_text
from albertine.tasks.examples import Example
from albertine.text.cleaning import is_han
from albertine.tokenizers.base import Spans, Tokenizer

if TYPE_CHECKING:
    import torch
    from torch import Tensor


@dataclass(frozen=True)
class RelationBatch(TaskBatch):
    """A batch with one subject a text.

    Attributes:
        targets: bool (T, 2), whether a token is the first, and the last, of a subject.
        subjects: int64 (S, 2), rows in T of the first and last token of the drawn subjects.
        objects: bool (T, predicates, 2), as `targets` for the objects of these subjects.
        predictions: the number of tokens.
    """

    subjects: Tensor
    objects: Tensor

    def to(self, device: torch.device | str) -> RelationBatch:
        return replace(
            self,
            packed=self.packed.to(device),
            targets=self.targets.to(device),
            subjects=self.subjects.to(device),
            objects=self.objects.to(device),
        )


@dataclass(frozen=True)
class Related(Encoded):
    """Texts with relations; the target of each is int64 (triples, 5): positions in its row of the first and
    last token of the subject, number of the predicate, first and last token of the object.

    Attributes:
        predicates: their number.
    """

    predicates: int

    def batch(self, chosen: Sequence[int], *, seed: int = 0, epoch: int = 0) -> RelationBatch:
        import torch

        assert self.targets is not None
        packed = self.packed(chosen)
        offsets = packed.first_tokens
        subjects = self._drawn(chosen, seed, epoch) + offsets[:, None]
        owner = torch.repeat_interleave(torch.tensor([len(self.targets[i]) for i in chosen], device="cpu"))
        found = torch.from_numpy(np.concatenate([self.targets[i] for i in chosen]))
        places, kinds = found[:, [0, 1, 3, 4]] + offsets[owner, None], found[:, 2]
        mine = (places[:, :2] == subjects[owner]).all(1)
        pointers = torch.zeros(packed.num_tokens, 2, dtype=torch.bool, device="cpu")
        objects = torch.zeros(packed.num_tokens, self.predicates, 2, dtype=torch.bool, device="cpu")
        for side in (0, 1):
            pointers[places[:, side], side] = True
            objects[places[mine, 2 + side], kinds[mine], side] = True
        return RelationBatch(packed, pointers, (1,) * len(chosen), packed.num_tokens, subjects, objects)

    def _drawn(self, chosen: Sequence[int], seed: int, epoch: int) -> Tensor:
        """Positions of the first and last token of the subject drawn for each text, int64 (texts, 2): a
        function of seed, epoch and text. For a text without triples it is [CLS], which has no objects."""
        import torch

        assert self.targets is not None
        count = len(chosen)
        draws = uniforms(seed, "relation subject", [epoch] * count, chosen, [2] * count).reshape(-1, 2)
        found = []
        for i, (one, two) in zip(chosen, draws.tolist(), strict=True):
            ends = list(dict.fromkeys((first, last) for first, last, *_ in self.targets[i].tolist()))
            nowhere = 0 if self.examples[i].lead else len(self.ids[i]) - 1
            first = ends[int(one * len(ends))][0] if ends else nowhere
            lasts = [last for _, last in ends if last >= first] or [nowhere]
            found.append((first, lasts[int(two * len(lasts))]))
        return torch.tensor(found, device="cpu")


def encode(
    examples: Sequence[Example],
    tokenizer: Tokenizer,
    max_length: int,
    predicates: Sequence[str],
    *,
    learning: bool = False,
) -> Related:
    """One row a text.

    Args:
        learning: leave out texts of whose triples none can be pointed to: they would be trained as texts
            without triples.
    """
    number = {name: i for i, name in enumerate(predicates)}
    rows, cuts, targets = RowBuilder(tokenizer, max_length), [], []
    fate, tally = ("not learned" if learning else "always missed"), Tally()
    for example in examples:
        cut, ids = cut_text(example, tokenizer, max_length)
        names, places = Names(example.text, cut.spans, tokenizer.lead), {}
        for triple in dict.fromkeys(example.label or ()):
            subject, predicate, thing = triple
            first, second = names.place(subject), names.place(thing)
            if first is not None and second is not None:
                places[triple] = (*first, number[predicate], *second)
            elif subject in names and thing in names:
                tally.add(f"triples cut off or inside a token, {fate}", _shown(triple), example.where)
            else:
                tally.add(f"triples not in their text, {fate}", _shown(triple), example.where)
        for triple in _hidden(places):
            what = "triples of a name that another one ends in, always missed"
            tally.add(what, _shown(triple), example.where)
        if learning and example.label and not places:
            what = "left out, none of their triples can be learned"
            tally.add(what, f"`{example.text:.40}`", example.where)
            continue
        rows.add(ids, None)
        rows.end()
        cuts.append(cut)
        targets.append(np.array(list(places.values()), dtype=np.int64).reshape(-1, 5))
    known = all(example.label is not None for example in examples)
    encoded = replace(rows.encoded(cuts, targets if known else None), lost=tally.lost)
    return Related(**vars(encoded), predicates=len(predicates))


def _shown(triple: Triple) -> str:
    return f"`{' · '.join(triple):.60}`"


def _hidden(places: Mapping[Triple, tuple[int, ...]]) -> list[Triple]:
    """The triples that decoding cannot find even if every pointer is right: the first token of a name is
    paired with the nearest last token, which is that of another subject, or of another object of the
    subject."""
    lasts: dict[tuple[int, ...], set[int]] = {}
    for first, last, kind, _, end in places.values():
        lasts.setdefault((), set()).add(last)
        lasts.setdefault((first, last, kind), set()).add(end)
    found = []
    for triple, (first, last, kind, begin, end) in places.items():
        nearest = min(place for place in lasts[()] if place >= first)
        if nearest != last or min(p for p in lasts[first, last, kind] if p >= begin) != end:
            found.append(triple)
    return found


class Names:
    """Token positions of names in a text, in the same spelling or else in other case, as in the score."""

    def __init__(self, text: str, spans: Spans, lead: int = 1) -> None:
        """
        Args:
            lead: number of special tokens before the text.
        """
        self._lines = text, _lower(text)
        seen = [
            (i, a, b) for i, (a, b) in enumerate(zip(spans.starts, spans.ends, strict=True), lead) if b > a
        ]
        self._first = {begin: i for i, begin, _ in reversed(seen)}
        self._last = {end: i for i, _, end in seen}

    def __contains__(self, name: str) -> bool:
        return bool(name.strip()) and (name in self._lines[0] or _lower(name) in self._lines[1])

    def place(self, name: str) -> tuple[int, int] | None:
        """Positions in the row of the first and last token of the first occurrence of a name that consists of
        whole tokens; occurrences inside a word only if there is no other."""
        if name not in self:
            return None
        for word, line in zip((name, _lower(name)), self._lines, strict=True):
            found = []
            begin = line.find(word)
            while begin >= 0:
                end = begin + len(word)
                if begin in self._first and end in self._last:
                    part = _goes_on(line, begin) or _goes_on(line, end)
                    found.append((part, self._first[begin], self._last[end]))
                begin = line.find(word, begin + 1)
            if found:
                return min(found)[1:]
        return None


def _goes_on(text: str, at: int) -> bool:
    """Whether the characters before and at `at` belong to one word; Chinese words have no visible borders."""
    pair = text[at - 1 : at + 1] if at else ""
    return len(pair) == 2 and all(c.isalnum() and not is_han(c) for c in pair)


def _lower(text: str) -> str:
    """Lowercased, where that leaves every character in its place."""
    lower = text.lower()
    return lower if len(lower) == len(text) else text
