"""Beam search (greedy with one beam) and sampling from next-token probabilities, for a batch of sources.

A text ends with an end token, which is scored like any other; at the length limit only the end token is
allowed.
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
"""(rows of the last table, the token appended to each) → log-probabilities of the next token (rows, V)."""
Follow = Callable[[int, tuple[int, ...]], Collection[int]]
"""(source, tokens so far) → the tokens allowed next."""


@dataclass(frozen=True)
class Search:
    """Settings of beam search.

    Attributes:
        beams: unfinished texts kept for each source, which is done when as many texts have ended.
        max_tokens: maximum length, end token included.
        length_penalty: a; a text of n tokens, end token included, scores Σ log p / nᵃ. 0 compares sums, which
            prefers short texts, 1 compares means.
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
    """Settings of sampling.

    Attributes:
        count: texts for each source. max_tokens: maximum length, end token included.
        top_k: sample from the k most probable tokens; 0: from all.
        top_p: sample from the smallest set of most probable tokens with this total probability.
        temperature: divides the log-probabilities first. seed: of the random numbers.
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
    """Tokens of a text without the end token, and its score; higher is better."""

    ids: tuple[int, ...]
    score: float


class _Partial(NamedTuple):
    source: int
    ids: tuple[int, ...]
    total: float


def beam_search(
    first: Tensor, after: Next, end: int, search: Search, follow: Follow | None = None
) -> list[list[Hypothesis]]:
    """The best texts of every source, at most `search.beams`, best first.

    Args:
        first: (sources, V) log-probabilities of the first token.
        after: those of the next token.
        follow: constrains the next token; probabilities are not renormalized.
    """
    partial = [_Partial(source, (), 0.0) for source in range(len(first))]
    done: list[list[Hypothesis]] = [[] for _ in partial]
    table = first
    for length in range(1, search.max_tokens + 1):
        allowed: list[Collection[int]] | None = None
        if length == search.max_tokens:
            allowed = [(end,)] * len(partial)
        elif follow is not None:
            allowed = [follow(text.source, text.ids) for text in partial]
        rows: list[int] = []
        grown: list[_Partial] = []
        for source, ranked in _candidates(table, partial, allowed, search.beams).items():
            ended, unfinished = _split_candidates(ranked, partial, end, search)
            done[source] += [
                Hypothesis(ids, total / length**search.length_penalty) for _, ids, total in ended
            ]
            if len(done[source]) < search.beams:
                rows += [row for row, _ in unfinished]
                grown += [text for _, text in unfinished]
        if not grown:
            break
        table, partial = after(rows, [text.ids[-1] for text in grown]), grown
    return [sorted(found, key=lambda f: -f.score)[: search.beams] for found in done]


_Candidate = tuple[float, int, int]
"""Sum of log-probabilities, row, token."""


def _candidates(
    table: Tensor, partial: Sequence[_Partial], allowed: Sequence[Collection[int]] | None, beams: int
) -> dict[int, list[_Candidate]]:
    """For each source the best next tokens, best first, enough to fill the beams."""
    import torch

    if allowed is not None:
        pairs = [(row, token) for row, tokens in enumerate(allowed) for token in tokens]
        places = torch.tensor(pairs, device=table.device).unbind(1)
        table = torch.full_like(table, float("-inf")).index_put(places, table[places])
    # Twice the beams, because at most one candidate of a row is the end token.
    best = table.topk(min(2 * beams, table.shape[1]))
    found: dict[int, list[_Candidate]] = {text.source: [] for text in partial}
    for row, (values, tokens) in enumerate(zip(best.values.tolist(), best.indices.tolist(), strict=True)):
        text = partial[row]
        found[text.source] += [
            (text.total + value, row, token)
            for value, token in zip(values, tokens, strict=True)
            if value > float("-inf")
        ]
    return {source: sorted(own, key=lambda c: (-c[0], c[1], c[2])) for source, own in found.items()}


def _split_candidates(
    ranked: Sequence[_Candidate], partial: Sequence[_Partial], end: int, search: Search
) -> tuple[list[_Partial], list[tuple[int, _Partial]]]:
    """Split a source's candidates into texts that end, where among the best, and the best unfinished ones
    with their rows."""
    ended = [
        _Partial(*partial[row][:2], total) for total, row, token in ranked[: search.beams] if token == end
    ]
    others = [c for c in ranked if c[2] != end][: search.beams]
    unfinished = [
        (row, _Partial(partial[row].source, (*partial[row].ids, token), total))
        for total, row, token in others
    ]
    return ended, unfinished


def sample(
    first: Tensor, after: Next, end: int, draw: Draw, names: Sequence[int] | None = None
) -> list[list[Hypothesis]]:
    """`draw.count` texts of every source, in the order of sampling; a random number is a function of the
    seed, the source, the number of the text and the position of the token. The score is the mean log-
    probability before temperature, top-k and top-p.

    Args:
        names: numbers of the sources for the random numbers; by default from 0.
    """
    names = range(len(first)) if names is None else names
    keys = [(source, number) for source in range(len(first)) for number in range(draw.count)]
    partial = [_Partial(source, (), 0.0) for source, _ in keys]
    done: dict[tuple[int, int], Hypothesis] = {}
    at = [source for source, _ in keys]  # the row of each text in `table`
    table = first[at]
    for length in range(1, draw.max_tokens + 1):
        if length == draw.max_tokens:
            tokens = [end] * len(keys)
        else:
            uniforms = [
                generator(draw.seed, "generate", names[source], number, length).random()
                for source, number in keys
            ]
            tokens = _sample_tokens(table, uniforms, draw)
        values = table[list(range(len(tokens))), tokens].tolist()
        texts = [
            _Partial(text.source, (*text.ids, token), text.total + value)
            for text, token, value in zip(partial, tokens, values, strict=True)
        ]
        for key, text in zip(keys, texts, strict=True):
            if text.ids[-1] == end:
                done[key] = Hypothesis(text.ids[:-1], text.total / length)
        rows = [row for row, token in enumerate(tokens) if token != end]
        if not rows:
            break
        keys, partial = [keys[row] for row in rows], [texts[row] for row in rows]
        table = after([at[row] for row in rows], [tokens[row] for row in rows])
        at = list(range(len(rows)))
    return [[done[source, number] for number in range(draw.count)] for source in range(len(first))]


def _sample_tokens(table: Tensor, uniforms: Sequence[float], draw: Draw) -> list[int]:
    """Sample a token for each row with one uniform random number."""
    import torch

    scaled = (table.double() / draw.temperature).softmax(-1)
    values, order = scaled.sort(dim=-1, descending=True, stable=True)
    before = values.cumsum(-1) - values
    kept = before < draw.top_p
    if draw.top_k:
        kept[:, draw.top_k :] = False
    kept[:, 0] = True
    sums = (values * kept).cumsum(-1)
    wanted = torch.tensor(uniforms, dtype=torch.float64, device=table.device)[:, None] * sums[:, -1:]
    place = torch.searchsorted(sums, wanted, right=True)
    last = kept.sum(-1, keepdim=True) - 1
    return list(order.gather(1, torch.minimum(place, last)).squeeze(1).tolist())
