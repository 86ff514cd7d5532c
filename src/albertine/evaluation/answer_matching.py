"""How two answers are compared, whichever script's rules they are compared by."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class MatchRules:
    """How two answers are compared.

    Attributes:
        plain: a text as exact match compares it. tokens: the tokens of a text that `plain` gave.
        agreement: how many tokens two texts have in common.
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
            empty_counts: two answers without tokens agree, as in SQuAD v2.0.
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
    """How many tokens two bags of them have in common."""
    return sum((Counter(a) & Counter(b)).values())
