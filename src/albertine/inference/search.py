"""Texts out of next-token probabilities: beam search, of which one beam is the greedy choice, and sampling.

Several texts are wanted at once, each for an asker: an asker is whatever the first table has a row for. All
texts end with an end token, which is scored like any other; where a text has grown to its limit, only the end
can follow.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from albertine.core.randomness import generator
from albertine.errors import SettingsError

if TYPE_CHECKING:
    from torch import Tensor

Next = Callable[[Sequence[int], Sequence[int]], "Tensor"]
"""(rows of the last table, the token that follows each) → logarithms of probabilities (rows, V)."""
Follow = Callable[[int, tuple[int, ...]], Collection[int]]
"""(asker, tokens so far) → the only tokens that may follow."""


@dataclass(frozen=True)
class Search:
    """How a text is looked for.

    Attributes:
        beams: how many unfinished texts are followed; an asker is done when as many have ended.
        max_tokens: longest text, the end included.
        length_penalty: a; a text of n tokens, the end included, scores Σ log p / nᵃ. 0 compares sums, which
            prefers short texts, 1 means.
    """

    beams: int = 2
    max_tokens: int = 64
    length_penalty: float = 1.0

    def __post_init__(self) -> None:
        if self.beams < 1 or self.max_tokens < 1:
            raise SettingsError(
                f"nothing can be found by {self}", remedy="beams and max_tokens are 1 or more"
            )


@dataclass(frozen=True)
class Draw:
    """How a text is drawn.

    Attributes:
        count: texts for each asker. max_tokens: longest text, the end included.
        top_k: only the k likeliest tokens are drawn from; 0: all.
        top_p: only the fewest likeliest tokens that make up this probability are.
        temperature: divides the logarithms first. seed: names the draws.
    """

    count: int = 1
    max_tokens: int = 64
    top_k: int = 0
    top_p: float = 1.0
    temperature: float = 1.0
    seed: int = 1

    def __post_init__(self) -> None:
        counts = self.count >= 1 and self.max_tokens >= 1 and self.top_k >= 0
        if not (counts and 0 <= self.top_p <= 1 and self.temperature > 0):
            raise SettingsError(
                f"nothing can be drawn by {self}",
                remedy="temperature is above 0 (top_k=1 takes the likeliest), top_p from 0 to 1, and counts "
                "are positive",
            )


class Hypothesis(NamedTuple):
    """Tokens of a text without the end, and its score: the higher the better."""

    ids: tuple[int, ...]
    score: float


class _Begun(NamedTuple):
    asker: int
    ids: tuple[int, ...]
    total: float


def beam_search(
    first: Tensor, after: Next, end: int, search: Search, follow: Follow | None = None
) -> list[list[Hypothesis]]:
    """The best texts of every asker, at most `search.beams`, best first.

    Args:
        first: (askers, V) logarithms of the probabilities of the first token.
        after: those of the next one.
        follow: bounds what may follow; probabilities stay as they are.
    """
    begun = [_Begun(asker, (), 0.0) for asker in range(len(first))]
    done: list[list[Hypothesis]] = [[] for _ in begun]
    table = first
    for length in range(1, search.max_tokens + 1):
        allowed: list[Collection[int]] | None = None
        if length == search.max_tokens:
            allowed = [(end,)] * len(begun)
        elif follow is not None:
            allowed = [follow(text.asker, text.ids) for text in begun]
        rows: list[int] = []
        grown: list[_Begun] = []
        for asker, ranked in _ranked(table, begun, allowed, search.beams).items():
            ended, going = _taken(ranked, begun, end, search)
            done[asker] += [Hypothesis(ids, total / length**search.length_penalty) for _, ids, total in ended]
            if len(done[asker]) < search.beams:
                rows += [row for row, _ in going]
                grown += [text for _, text in going]
        if not grown:
            break
        table, begun = after(rows, [text.ids[-1] for text in grown]), grown
    return [sorted(found, key=lambda f: -f.score)[: search.beams] for found in done]


_Candidate = tuple[float, int, int]
"""Sum of logarithms, row, token."""


def _ranked(
    table: Tensor, begun: Sequence[_Begun], allowed: Sequence[Collection[int]] | None, beams: int
) -> dict[int, list[_Candidate]]:
    """For each asker enough of the best ways to go on, best first."""
    import torch

    if allowed is not None:
        pairs = [(row, token) for row, tokens in enumerate(allowed) for token in tokens]
        places = torch.tensor(pairs, device=table.device).unbind(1)
        table = torch.full_like(table, float("-inf")).index_put(places, table[places])
    # Twice as many as beams: of one row at most one ends.
    best = table.topk(min(2 * beams, table.shape[1]))
    found: dict[int, list[_Candidate]] = {text.asker: [] for text in begun}
    for row, (values, tokens) in enumerate(zip(best.values.tolist(), best.indices.tolist(), strict=True)):
        text = begun[row]
        found[text.asker] += [
            (text.total + value, row, token)
            for value, token in zip(values, tokens, strict=True)
            if value > float("-inf")
        ]
    return {asker: sorted(own, key=lambda c: (-c[0], c[1], c[2])) for asker, own in found.items()}


def _taken(
    ranked: Sequence[_Candidate], begun: Sequence[_Begun], end: int, search: Search
) -> tuple[list[_Begun], list[tuple[int, _Begun]]]:
    """Of an asker's ways to go on those that end, if they are among the best, and the best others with their
    rows."""
    ended = [_Begun(*begun[row][:2], total) for total, row, token in ranked[: search.beams] if token == end]
    others = [c for c in ranked if c[2] != end][: search.beams]
    going = [(row, _Begun(begun[row].asker, (*begun[row].ids, token), total)) for total, row, token in others]
    return ended, going


def sample(
    first: Tensor, after: Next, end: int, draw: Draw, names: Sequence[int] | None = None
) -> list[list[Hypothesis]]:
    """`draw.count` texts of every asker, in the order of their draws; a draw is named by seed, asker, its
    number and the place of its token. The score is the mean of the logarithms of the whole probabilities.

    Args:
        names: numbers of the askers; by default from 0.
    """
    names = range(len(first)) if names is None else names
    keys = [(asker, number) for asker in range(len(first)) for number in range(draw.count)]
    begun = [_Begun(asker, (), 0.0) for asker, _ in keys]
    done: dict[tuple[int, int], Hypothesis] = {}
    at = [asker for asker, _ in keys]  # each text's row in what was said last
    table = first[at]
    for length in range(1, draw.max_tokens + 1):
        if length == draw.max_tokens:
            tokens = [end] * len(keys)
        else:
            chances = [
                generator(draw.seed, "generate", names[asker], number, length).random()
                for asker, number in keys
            ]
            tokens = _drawn(table, chances, draw)
        values = table[list(range(len(tokens))), tokens].tolist()
        texts = [
            _Begun(text.asker, (*text.ids, token), text.total + value)
            for text, token, value in zip(begun, tokens, values, strict=True)
        ]
        for key, text in zip(keys, texts, strict=True):
            if text.ids[-1] == end:
                done[key] = Hypothesis(text.ids[:-1], text.total / length)
        rows = [row for row, token in enumerate(tokens) if token != end]
        if not rows:
            break
        keys, begun = [keys[row] for row in rows], [texts[row] for row in rows]
        table = after([at[row] for row in rows], [tokens[row] for row in rows])
        at = list(range(len(rows)))
    return [[done[asker, number] for number in range(draw.count)] for asker in range(len(first))]


def _drawn(table: Tensor, chances: Sequence[float], draw: Draw) -> list[int]:
    """A token for each row, by a uniform number each."""
    import torch

    scaled = (table.double() / draw.temperature).softmax(-1)
    values, order = scaled.sort(dim=-1, descending=True, stable=True)
    before = values.cumsum(-1) - values
    kept = before < draw.top_p
    if draw.top_k:
        kept[:, draw.top_k :] = False
    kept[:, 0] = True
    sums = (values * kept).cumsum(-1)
    wanted = torch.tensor(chances, dtype=torch.float64, device=table.device)[:, None] * sums[:, -1:]
    place = torch.searchsorted(sums, wanted, right=True)
    last = kept.sum(-1, keepdim=True) - 1
    return list(order.gather(1, torch.minimum(place, last)).squeeze(1).tolist())
