"""Beam search and sampling on languages small enough to try every text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import product
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from albertine.errors import SettingsError
from albertine.inference.search import Draw, Hypothesis, Search, beam_search, sample

END = 0


class Language:
    """Probabilities of the next of V tokens that depend on the asker and all tokens before."""

    def __init__(self, size: int, seed: int) -> None:
        self.size, self.seed = size, seed
        self.texts: list[tuple[int, tuple[int, ...]]] = []

    def table(self, asker: int, text: tuple[int, ...]) -> Tensor:
        key = hash((self.seed, asker, *text)) % 2**31
        return torch.randn(self.size, generator=torch.Generator().manual_seed(key)).mul(2).log_softmax(-1)

    def first(self, askers: int) -> Tensor:
        self.texts = [(asker, ()) for asker in range(askers)]
        return self._tables()

    def after(self, rows: Sequence[int], tokens: Sequence[int]) -> Tensor:
        self.texts = [(self.texts[r][0], (*self.texts[r][1], t)) for r, t in zip(rows, tokens, strict=True)]
        return self._tables()

    def _tables(self) -> Tensor:
        return torch.stack([self.table(*text) for text in self.texts])

    def total(self, asker: int, text: tuple[int, ...]) -> float:
        """Sum of logarithms of a text with its end."""
        whole = (*text, END)
        return sum(float(self.table(asker, whole[:i])[token]) for i, token in enumerate(whole))


def every_text(size: int, limit: int) -> list[tuple[int, ...]]:
    """All texts of at most `limit` tokens, the end included."""
    return [text for n in range(limit) for text in product(range(1, size), repeat=n)]


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([(3, 4), (4, 3), (2, 5)]), st.sampled_from([0.0, 0.7, 1.0]))
def test_a_beam_of_full_width_is_the_exhaustive_search(
    seed: int, size: tuple[int, int], penalty: float
) -> None:
    pieces, limit = size
    language = Language(pieces, seed)
    search = Search(beams=pieces**limit, max_tokens=limit, length_penalty=penalty)
    found = beam_search(language.first(2), language.after, END, search)
    for asker, texts in enumerate(found):
        scores = {t: language.total(asker, t) / (len(t) + 1) ** penalty for t in every_text(pieces, limit)}
        assert dict(texts) == pytest.approx(scores, abs=1e-5)
        assert texts[0].score == pytest.approx(max(scores.values()), abs=1e-5)
        assert [f.score for f in texts] == sorted((f.score for f in texts), reverse=True)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6))
def test_one_beam_is_the_greedy_choice(seed: int) -> None:
    language = Language(6, seed)
    for asker, texts in enumerate(beam_search(language.first(3), language.after, END, Search(1, 6))):
        text: tuple[int, ...] = ()
        while len(text) < 5 and (token := int(language.table(asker, text).argmax())) != END:
            text = (*text, token)
        assert [f.ids for f in texts] == [text]


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 4))
def test_askers_do_not_disturb_one_another(seed: int, beams: int) -> None:
    language = Language(5, seed)
    together = beam_search(language.first(3), language.after, END, Search(beams, 6))
    for asker in range(3):
        language.texts = [(asker, ())]
        alone = beam_search(language.table(asker, ())[None], language.after, END, Search(beams, 6))
        assert [f.ids for f in alone[0]] == [f.ids for f in together[asker]]
        assert 1 <= len(together[asker]) <= beams


def test_what_may_follow_is_bounded() -> None:
    language = Language(6, 1)

    def odd(asker: int, text: tuple[int, ...]) -> set[int]:
        return {1, 3} if len(text) < 2 else {END, 5}

    for texts in beam_search(language.first(2), language.after, END, Search(3, 5), odd):
        assert texts
        for ids, _ in texts:
            assert len(ids) >= 2 and set(ids[:2]) <= {1, 3} and set(ids[2:]) <= {5}


def test_the_length_penalty_by_hand() -> None:
    half, most = torch.log(torch.tensor(0.5)), torch.log(torch.tensor(0.9))
    first = torch.tensor([[float(half), float(half), -99.0]])  # the end, or token 1

    def after(rows: Sequence[int], tokens: Sequence[int]) -> Tensor:
        return torch.tensor([[float(most), -99.0, -99.0]] * len(rows))

    found = {a: beam_search(first, after, END, Search(2, 4, a))[0] for a in (0.0, 1.0)}
    assert [f.ids for f in found[0.0]] == [(), (1,)] and [f.ids for f in found[1.0]] == [(1,), ()]
    assert found[1.0][0].score == pytest.approx(float(half + most) / 2)


def test_draws_are_a_function_of_the_seed_and_follow_the_probabilities() -> None:
    language = Language(3, 7)

    def drawn(seed: int, **how: float) -> list[list[Hypothesis]]:
        return sample(language.first(2), language.after, END, Draw(count=400, max_tokens=3, seed=seed, **how))  # type: ignore[arg-type]

    once = drawn(1)
    assert once == drawn(1) and once != drawn(2)
    for asker, texts in enumerate(once):
        counts = Counter(f.ids for f in texts)
        assert sum(counts.values()) == 400
        for text in every_text(3, 2):  # the longest end by force
            wanted = float(torch.tensor(language.total(asker, text)).exp())
            assert counts[text] / 400 == pytest.approx(wanted, abs=0.1)
        for ids, score in texts:
            assert score == pytest.approx(language.total(asker, ids) / (len(ids) + 1), abs=1e-5)


def test_few_likely_tokens_are_the_greedy_choice() -> None:
    language = Language(6, 3)
    greedy = [texts[0].ids for texts in beam_search(language.first(3), language.after, END, Search(1, 6))]
    for how in ({"top_k": 1}, {"top_p": 1e-6}, {"temperature": 1e-3}):
        texts = sample(language.first(3), language.after, END, Draw(count=2, max_tokens=6, **how))  # type: ignore[arg-type]
        assert [[f.ids for f in own] for own in texts] == [[ids, ids] for ids in greedy]


def test_top_p_and_top_k_leave_out_the_unlikely() -> None:
    table = torch.tensor([0.05, 0.5, 0.15, 0.3]).log()[None]

    def end(rows: Sequence[int], tokens: Sequence[int]) -> Tensor:
        return torch.tensor([[0.0, -99.0, -99.0, -99.0]] * len(rows))

    def seen(**how: float) -> set[tuple[int, ...]]:
        return {f.ids for f in sample(table, end, END, Draw(count=300, max_tokens=3, **how))[0]}  # type: ignore[arg-type]

    assert seen() == {(), (1,), (2,), (3,)}
    assert seen(top_k=2) == {(1,), (3,)} == seen(top_p=0.6)
    assert seen(top_p=0.81) == {(1,), (2,), (3,)}


def test_what_makes_up_the_share_exactly_is_enough() -> None:
    """Of four tokens that are equally likely two are a half."""
    table = torch.full((1, 4), 0.25).log()
    how = Draw(count=200, max_tokens=2, top_p=0.5)
    drawn = sample(table, lambda rows, tokens: table[[0] * len(rows)], END, how)
    assert {f.ids for f in drawn[0]} == {(), (1,)}


def test_a_draw_is_named_by_the_asker_and_not_by_its_place() -> None:
    """The output does not depend on batching."""
    table = torch.zeros(2, 50).log_softmax(-1)

    def drawn(names: list[int]) -> list[list[Hypothesis]]:
        how = Draw(count=5, max_tokens=4)
        return sample(table[: len(names)], lambda rows, tokens: table[[0] * len(rows)], END, how, names)

    both = drawn([7, 3])
    assert [both[0]] == drawn([7]) and [both[1]] == drawn([3]) and both[0] != both[1]


def test_a_text_that_ends_costs_no_beam() -> None:
    """The two best tokens beside the end token are followed, and the second gives the better text."""
    chances = {1: [0.1, 0.45, 0.45], 2: [0.98, 0.01, 0.01]}

    def after(rows: Sequence[int], tokens: Sequence[int]) -> Tensor:
        return torch.tensor([chances[token] for token in tokens]).log()

    (found,) = beam_search(torch.tensor([[0.5, 0.3, 0.2]]).log(), after, END, Search(2, 3))
    assert [f.ids for f in found] == [(), (2,)]


@pytest.mark.parametrize("how", [{"temperature": 0.0}, {"temperature": -1.0}, {"count": 0}, {"top_p": 2.0}])
def test_invalid_sampling_settings_are_refused(how: dict[str, Any]) -> None:
    """Catches: texts that consist of token 0 only."""
    with pytest.raises(SettingsError, match="nothing can be drawn"):
        Draw(**how)
    with pytest.raises(SettingsError, match="nothing can be found"):
        Search(beams=0)
