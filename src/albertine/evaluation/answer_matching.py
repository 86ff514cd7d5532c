"""Comparison of two answers by exchangeable rules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class MatchRules:
    """Rules that compare two answers.

    Attributes:
        plain: normalizes a text for exact match. tokens: splits a normalized text.
        agreement: number of tokens that two texts have in common.
    """

    plain: Callable[[str], str]
    tokens: Callable[[str], Sequence[str]]
    agreement: Callable[[Sequence[str], Sequence[str]], int]

    def exact(self, gold: str, answer: str) -> float:
        """1 if the two are the same, else 0."""
        return float(self.plain(gold) == self.plain(answer))

    def f1(self, gold: str, answer: str, *, empty_counts: bool = False) -> float:
        """F1 of the tokens; 0 where they have none in common.

        Args:
            empty_counts: two answers without tokens score 1, as in SQuAD v2.0.
        """
        ours, theirs = (self.tokens(self.plain(text)) for text in (answer, gold))
        if empty_counts and not (ours and theirs):
            return float(not ours and not theirs)
        same = self.agreement(ours, theirs)
        if not same:
            return 0.0
        precision, recall = same / len(ours), same / len(theirs)
        return 2 * precision * recall / (precision + recall)


def common(a: Sequence[str], b: Sequence[str]) -> int:
    """The size of the intersection of two bags of tokens."""
    return sum((Counter(a) & Counter(b)).values())
