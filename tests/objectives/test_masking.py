from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from albertine.core.randomness import generator, uniforms
from albertine.errors import SettingsError
from albertine.objectives.masking import MaskSettings, mask, mask_batch
from tests.objectives import reference_rules

MASK, VOCAB = 4, 1000


class Batch:
    """Samples [CLS] A [SEP] B [SEP] whose token ids are all different from each other and from [MASK]."""

    def __init__(self, segments: list[list[int]], starts: np.ndarray) -> None:
        self.special, at = np.zeros(len(starts), dtype=bool), 0
        self.offsets = [0]
        for sizes in segments:
            self.special[at] = True
            for size in sizes:
                at += size + 1
                self.special[at] = True
            at += 1
            self.offsets.append(at)
        self.starts = starts & ~self.special
        self.ids = 10_000 + np.arange(len(starts))

    @staticmethod
    def length(segments: list[list[int]]) -> int:
        return sum(1 + sum(n + 1 for n in sizes) for sizes in segments)

    def mask(self, choice: MaskSettings, seed: int = 0, vocab: int = VOCAB) -> tuple[np.ndarray, ...]:
        lengths = np.diff(self.offsets)
        draws = np.random.default_rng(seed).random(sum(choice.draws(int(n)) for n in lengths))
        return mask_batch(
            self.ids,
            self.starts,
            self.special,
            np.array(self.offsets),
            draws,
            choice,
            mask_id=MASK,
            vocab_size=vocab,
        )

    def words(self, whole_word: bool) -> list[list[int]]:
        """Positions of every word; a segment's first token begins one."""
        words: list[list[int]] = []
        for position in np.flatnonzero(~self.special).tolist():
            if self.starts[position] or not whole_word or self.special[position - 1]:
                words.append([])
            words[-1].append(position)
        return words


def uniform_batch(samples: int, a: int, b: int, word: int = 1) -> Batch:
    """Samples of two segments; every `word` tokens of a segment make a word."""
    one = np.concatenate([[True], np.arange(a) % word == 0, [True], np.arange(b) % word == 0, [True]])
    return Batch([[a, b]] * samples, np.tile(one, samples))


@st.composite
def cases(draw: Any) -> tuple[Batch, MaskSettings, int]:
    segments = draw(st.lists(st.lists(st.integers(1, 30), min_size=1, max_size=2), min_size=1, max_size=4))
    seed = draw(st.integers(0, 2**32))
    density = draw(st.sampled_from([0.0, 0.3, 0.7, 1.0]))
    starts = np.random.default_rng(seed).random(Batch.length(segments)) < density
    choice = MaskSettings(
        probability=draw(st.sampled_from([0.05, 0.15, 0.4, 0.9])),
        ngram=draw(st.integers(1, 5)),
        favor_shorter=draw(st.booleans()),
        whole_word=draw(st.booleans()),
        permutation=draw(st.booleans()),
        max_predictions=draw(st.sampled_from([None, 1, 3, 20])),
    )
    return Batch(segments, starts), choice, seed


@settings(max_examples=300, deadline=None)
@given(cases())
def test_properties(case: tuple[Batch, MaskSettings, int]) -> None:
    batch, choice, seed = case
    masked, where, labels = batch.mask(choice, seed)
    restored = masked.copy()
    restored[where] = labels
    np.testing.assert_array_equal(
        restored, batch.ids
    )  # labels restore the text, and nothing else was touched
    assert (np.diff(where) > 0).all()
    assert not batch.special[where].any()
    chosen = set(where.tolist())
    for word in batch.words(
        choice.whole_word
    ):  # a word is predicted whole or not at all, whatever the budget
        assert len(chosen & set(word)) in (0, len(word))
    lengths = np.diff(batch.offsets)
    sample = np.searchsorted(batch.offsets, where, side="right") - 1
    budget = np.maximum(1, np.rint(choice.probability * lengths))
    if choice.max_predictions:
        budget = np.minimum(budget, choice.max_predictions)
    predicted = np.bincount(sample, minlength=len(lengths))
    assert (predicted <= budget * (2 if choice.permutation else 1)).all()
    if not choice.permutation:
        smallest = [
            min(map(len, (w for w in batch.words(choice.whole_word) if lo <= w[0] < hi)))
            for lo, hi in pairwise(batch.offsets)
        ]
        assert (predicted[budget >= smallest] > 0).all()  # whatever fits is used
    again = batch.mask(choice, seed)
    assert all(np.array_equal(x, y) for x, y in zip((masked, where, labels), again, strict=True))


@settings(max_examples=60, deadline=None)
@given(cases())
def test_a_sample_is_masked_alike_alone_and_in_a_batch(case: tuple[Batch, MaskSettings, int]) -> None:
    batch, choice, seed = case
    lengths = np.diff(batch.offsets).tolist()
    epochs, samples = [3] * len(lengths), list(range(7, 7 + len(lengths)))
    draws = uniforms(seed, "masking", epochs, samples, [choice.draws(n) for n in lengths])
    masked, where, _ = mask_batch(
        batch.ids,
        batch.starts,
        batch.special,
        np.array(batch.offsets),
        draws,
        choice,
        mask_id=MASK,
        vocab_size=VOCAB,
    )
    for i, (lo, hi) in enumerate(pairwise(batch.offsets)):
        one, here, _ = mask(
            batch.ids[lo:hi],
            batch.starts[lo:hi],
            batch.special[lo:hi],
            choice,
            generator(seed, "masking", 3, 7 + i),
            mask_id=MASK,
            vocab_size=VOCAB,
        )
        np.testing.assert_array_equal(one, masked[lo:hi])
        np.testing.assert_array_equal(here + lo, where[(where >= lo) & (where < hi)])


@pytest.mark.parametrize("options", [{}, {"permutation": True}, {"whole_word": False}])
def test_a_batch_of_special_tokens_alone_is_left_as_it_is(options: dict[str, Any]) -> None:
    batch = Batch([[0, 0], [0]], np.zeros(5, dtype=bool))
    masked, chosen, labels = batch.mask(MaskSettings(**options))
    assert masked.tolist() == batch.ids.tolist() and not len(chosen) and not len(labels)


def test_uniforms_are_those_of_the_named_generator() -> None:
    names = [(0, 5, 7), (2, 5, 1), (0, 2**40, 130), (0, 5, 9)]
    numbers = uniforms(3, "masking", *zip(*names, strict=True))
    expected = [generator(3, "masking", epoch, sample).random(size) for epoch, sample, size in names]
    np.testing.assert_array_equal(numbers, np.concatenate(expected))


# --- statistics ---


def test_budget_counts_special_tokens_and_is_used_up() -> None:
    for a, b, expected in (
        (62, 63, 19),
        (253, 256, 77),
        (3, 4, 2),
        (1, 1, 1),
    ):  # .15·128, .15·512, .15·10, .15·5
        _, where, _ = uniform_batch(50, a, b).mask(MaskSettings())
        assert len(where) == 50 * expected
    _, where, _ = uniform_batch(50, 253, 256).mask(MaskSettings(max_predictions=20))
    assert len(where) == 50 * 20


def test_eighty_ten_ten() -> None:
    batch = uniform_batch(20_000, 30, 31)
    masked, where, labels = batch.mask(MaskSettings(), vocab=50)
    got = masked[where]
    count = len(where)
    assert count == 200_000
    stray = got[(got != MASK) & (got != labels)]
    random_share = len(stray) * 50 / 49 / count  # a fiftieth of the random tokens is [MASK] itself
    assert abs((got == labels).mean() - 0.1) < 0.003
    assert abs(random_share - 0.1) < 0.003
    assert abs((got == MASK).mean() - 0.8 - 0.1 / 50) < 0.003
    ids = np.bincount(stray, minlength=50)  # the whole vocabulary, special tokens included
    assert len(ids) == 50 and ids[MASK] == 0
    others = np.delete(ids, MASK)
    assert ((others - others.mean()) ** 2 / others.mean()).sum() < 85  # chi-square, 48 degrees of freedom
    # Token by token: in a masked pair of neighbours the second's fate is independent of the first's.
    pair = np.flatnonzero(np.diff(where) == 1)
    kept = got == labels
    assert abs(kept[pair + 1][kept[pair]].mean() - 0.1) < 0.01


@pytest.mark.parametrize("favor_shorter", [True, False])
def test_ngram_lengths(favor_shorter: bool) -> None:
    """With three tokens to predict in a long text the first n-gram can be read off the runs of masked
    tokens."""
    samples = 20_000
    choice = MaskSettings(max_predictions=3, favor_shorter=favor_shorter)
    _, where, _ = uniform_batch(samples, 100, 100).mask(choice)
    runs = np.diff(where.reshape(samples, 3), axis=1) == 1
    one, two, three = (6 / 11, 3 / 11, 2 / 11) if favor_shorter else (2 / 11, 3 / 11, 6 / 11)
    # A first bigram leaves one token; a first unigram leaves two, which any longer draw is shortened to.
    expected = {2: three, 1: two + one * (two + three), 0: one * one}
    for size, share in expected.items():
        # Two n-grams lie side by side in up to 1 % (a bigram) or 3 % (three unigrams) of samples and count
        # as one run.
        assert abs((runs.sum(1) == size).mean() - share) < 0.02


@pytest.mark.sample(3, keep=["{}", "max_predictions", "whole_word"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"favor_shorter": False},
        {"whole_word": False},
        {"max_predictions": 9},
        {"ngram": 1},
        {"probability": 0.3, "ngram": 5},
    ],
    ids=str,
)
def test_statistics_equal_the_slow_rules(options: dict[str, Any]) -> None:
    """Which runs of words are masked, how many tokens, and where: against the rules written out."""
    samples, a, b = 20_000, 24, 37
    choice = MaskSettings(**options)
    starts = np.random.default_rng(5).random(samples * (a + b + 3)) < 0.65
    batch = Batch([[a, b]] * samples, starts)
    _, where, _ = batch.mask(choice)
    length = a + b + 3
    fast = np.zeros(len(starts), dtype=bool)
    fast[where] = True

    slow = np.zeros_like(fast)
    rng = random.Random(2)
    for i in range(samples):
        lo = i * length
        special = batch.special[lo : lo + length].tolist()
        tokens: list[int | str] = [reference_rules.SEP if s else j for j, s in enumerate(special)]
        result = reference_rules.mask(
            tokens,
            batch.starts[lo : lo + length].tolist(),
            rng,
            vocab_size=VOCAB,
            max_predictions=choice.max_predictions or 10**9,
            probability=choice.probability,
            longest=choice.ngram,
            favor_shorter=choice.favor_shorter,
            whole_word=choice.whole_word,
        )
        for positions in result.ngrams:
            slow[[lo + p for p in positions]] = True

    table_fast, table_slow = fast.reshape(samples, length), slow.reshape(samples, length)
    assert np.abs(table_fast.mean(0) - table_slow.mean(0)).max() < 0.015  # where in the sample
    counts = [np.bincount(t.sum(1), minlength=40) / samples for t in (table_fast, table_slow)]
    assert np.abs(counts[0] - counts[1]).max() < 0.012
    shares = [np.bincount(run_lengths(t), minlength=60)[:60] for t in (table_fast, table_slow)]
    fast_share, slow_share = (x / x.sum() for x in shares)
    assert np.abs(fast_share - slow_share).max() < 0.006
    assert abs(shares[0].sum() / shares[1].sum() - 1) < 0.01


def run_lengths(table: np.ndarray) -> np.ndarray:
    """Lengths of the runs of True in the rows."""
    edges = np.diff(np.pad(table, ((0, 0), (1, 1))).astype(np.int8).reshape(-1))
    return np.flatnonzero(edges == -1) - np.flatnonzero(edges == 1)


def test_an_ngram_stays_in_its_segment_without_the_reference_defect() -> None:
    starts = np.tile(
        [True, True, False, True, False, False, True], 4000
    )  # [CLS] a a [SEP] b b [SEP], b cut in a word
    batch = Batch([[2, 2]] * 4000, starts)
    _, where, _ = batch.mask(MaskSettings(probability=0.3))
    places = where.reshape(4000, 2) % 7
    assert set(map(tuple, places.tolist())) == {(1, 2), (4, 5)}
    _, where, _ = batch.mask(MaskSettings(probability=0.6, reference_defects=True))
    # The remnant of a word at the head of B belongs to A's last word, as the reference has it.
    assert set(map(tuple, (where.reshape(4000, 4) % 7).tolist())) == {(1, 2, 4, 5)}


def test_permutation_shuffles_further_tokens_among_themselves() -> None:
    samples = 3000
    batch = uniform_batch(samples, 30, 31)
    plain, where, _ = batch.mask(MaskSettings())
    masked, both, labels = batch.mask(MaskSettings(permutation=True))
    assert len(both) == 2 * samples * 10
    np.testing.assert_array_equal(labels, batch.ids[both])
    length = 64
    moved = (masked != batch.ids) & (masked >= 10_000)
    for i in range(0, samples, 300):
        here = slice(i * length, (i + 1) * length)
        positions = np.flatnonzero(moved[here])
        assert 2 <= len(positions) <= 10
        assert sorted(masked[here][positions]) == sorted(batch.ids[here][positions])
    # A random order of ten leaves each in place with probability a tenth.
    kept_by_chance = samples * 10 * 0.1 + samples * 10 * 0.1
    unchanged = (masked[both] == labels).sum()
    assert abs(unchanged - kept_by_chance) < 0.06 * kept_by_chance
    assert len(where) == samples * 10 and (plain != masked).any()


def test_refuses_impossible_settings() -> None:
    for bad in ({"probability": 0.0}, {"probability": 1.0}, {"ngram": 0}, {"max_predictions": 0}):
        with pytest.raises(SettingsError):
            MaskSettings(**bad)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="draws"):
        mask_batch(
            np.arange(5),
            np.ones(5, bool),
            np.zeros(5, bool),
            np.array([0, 5]),
            np.zeros(14),
            MaskSettings(),
            mask_id=MASK,
            vocab_size=VOCAB,
        )


@pytest.mark.parametrize(("masked", "stray"), [(1.0, 0.0), (0.0, 1.0), (0.6, 0.3), (0.0, 0.0), (0.7, 0.3)])
def test_other_shares_of_masked_random_and_kept(masked: float, stray: float) -> None:
    batch = uniform_batch(400, 60, 60)
    shown, where, labels = batch.mask(MaskSettings(masked=masked, random=stray))
    _, same, _ = batch.mask(MaskSettings())
    assert where.tolist() == same.tolist(), "which tokens are predicted is another matter"
    found = [(shown[where] == MASK).mean(), (shown[where] < VOCAB).mean(), (shown[where] == labels).mean()]
    assert found == pytest.approx([masked, masked + stray, 1 - masked - stray], abs=0.02)
    others = np.delete(np.arange(len(shown)), where)
    assert (shown[others] == batch.ids[others]).all()
    if stray:  # from the whole vocabulary, evenly
        random_ids = shown[where][(shown[where] < VOCAB) & (shown[where] != MASK)]
        assert np.histogram(random_ids, 4, (0, VOCAB))[0] / len(random_ids) == pytest.approx(
            4 * [0.25], abs=0.04
        )


@pytest.mark.parametrize("shares", [{"masked": 0.95}, {"random": 0.21}, {"masked": -0.1}, {"random": -0.1}])
def test_impossible_shares(shares: dict[str, float]) -> None:
    with pytest.raises(SettingsError, match="masked and random"):
        MaskSettings(**shares)  # type: ignore[arg-type]
