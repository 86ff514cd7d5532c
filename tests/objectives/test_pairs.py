from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from albertine.errors import CorpusError, SettingsError
from albertine.objectives import pairs
from albertine.objectives.pairs import EpochPlan, PairSettings, plan_epoch, token_offsets
from tests.objectives import reference_rules
from tests.objectives.standin import MemoryCorpus, random_corpus


@pytest.fixture(scope="module")
def corpus() -> MemoryCorpus:
    return random_corpus(1, 6000)


def single_token_sentences(documents: int, sentences: int) -> MemoryCorpus:
    """Every sentence is one token: a chunk then reaches its target exactly and nothing is ever truncated."""
    return MemoryCorpus([[1] * sentences for _ in range(documents)])


def documents_of(corpus: MemoryCorpus) -> list[list[list[int]]]:
    """The corpus as lists, each token being its own offset."""
    edges, offsets = token_offsets(corpus).tolist(), corpus.document_offsets.tolist()
    return [[list(range(edges[s], edges[s + 1])) for s in range(a, b)] for a, b in pairwise(offsets)]


def document_at(corpus: MemoryCorpus, token: np.ndarray) -> np.ndarray:
    return np.searchsorted(token_offsets(corpus)[corpus.document_offsets], token, side="right")


def same(a: EpochPlan, b: EpochPlan) -> bool:
    return all(np.array_equal(x, y) for x, y in zip(vars(a).values(), vars(b).values(), strict=True))


def distance(x: np.ndarray, y: np.ndarray) -> float:
    """Kolmogorov-Smirnov distance between two samples of integers."""
    top = int(max(x.max(), y.max())) + 1
    return float(
        np.abs(
            np.cumsum(np.bincount(x, minlength=top)) / len(x)
            - np.cumsum(np.bincount(y, minlength=top)) / len(y)
        ).max()
    )


# --- a function of its arguments ---


@pytest.mark.parametrize("kind", ["sop", "nsp", "none"])
def test_same_arguments_same_plan_and_another_one_every_epoch(corpus: MemoryCorpus, kind: str) -> None:
    settings = PairSettings(kind, 64)  # type: ignore[arg-type]
    plan = plan_epoch(corpus, settings, 7, 3)
    assert same(plan, plan_epoch(corpus, settings, 7, 3))
    assert not same(plan, plan_epoch(corpus, settings, 7, 4))
    assert not same(plan, plan_epoch(corpus, settings, 8, 3))


def test_blocks_are_drawn_apart(corpus: MemoryCorpus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairs, "BLOCK_SENTENCES", 1000)
    plan = plan_epoch(corpus, PairSettings("sop", 64), 1, 0)
    assert plan.lengths.max() == 64
    order = np.minimum(plan.a_start, np.where(plan.b_length > 0, plan.b_start, plan.a_start))
    assert (np.diff(order) > 0).all()
    repeated = MemoryCorpus([[5, 6, 7, 8] * 50] * 20)  # blocks of equal text must not be cut alike
    monkeypatch.setattr(pairs, "BLOCK_SENTENCES", 200)
    plan = plan_epoch(repeated, PairSettings("sop", 64, short_probability=0), 1, 0)
    assert len({tuple(p) for p in plan.a_length.reshape(20, -1).tolist()}) == 20


# --- the rules, exactly ---


@pytest.mark.parametrize("length", range(5, 12))
def test_truncation_equals_the_token_by_token_rule(length: int) -> None:
    settings = PairSettings("sop", length + 3)
    a, b = (x.reshape(-1) for x in np.meshgrid(np.arange(1, 15), np.arange(1, 15)))
    start = np.zeros_like(a)
    _, keep_a, _, keep_b = pairs._truncate(start, a, start, b, settings, np.random.default_rng(0))
    for i in range(len(a)):
        left, right = [0] * int(a[i]), [0] * int(b[i])
        reference_rules.truncate(left, right, length, random.Random(0))
        assert (keep_a[i], keep_b[i]) == (len(left), len(right)), (a[i], b[i])


def test_truncation_takes_front_and_back_with_equal_chance() -> None:
    count, removed = 40_000, 20
    a, b = np.full(count, 60), np.full(count, 10)
    start = np.full(count, 1000)
    a_start, keep, b_start, _ = pairs._truncate(
        start, a, start, b, PairSettings("sop", 53), np.random.default_rng(0)
    )
    assert (keep == 60 - removed).all() and (b_start == 1000).all() and (start == 1000).all()
    front = a_start - 1000
    assert abs(front.mean() - removed / 2) < 0.05
    assert abs(front.var() - removed / 4) < 0.15


def test_the_second_segment_loses_tokens_at_both_ends_too() -> None:
    count, removed = 40_000, 20
    start = np.full(count, 1000)
    a_start, _, b_start, keep = pairs._truncate(
        start,
        np.full(count, 10),
        start,
        np.full(count, 60),
        PairSettings("sop", 53),
        np.random.default_rng(0),
    )
    assert (keep == 60 - removed).all() and (a_start == 1000).all()
    front = b_start - 1000
    assert abs(front.mean() - removed / 2) < 0.05
    assert abs(front.var() - removed / 4) < 0.15


def test_chunk_without_overshoot_has_the_target_length_of_its_document() -> None:
    room, count = 61, 40_000
    corpus = single_token_sentences(count, room)
    plan = plan_epoch(corpus, PairSettings("sop", room + 3), 3, 0)
    first = np.flatnonzero(np.diff(document_at(corpus, np.minimum(plan.a_start, plan.b_start)), prepend=0))
    target = (plan.a_length + plan.b_length)[first]
    assert len(first) == count
    # 2…61 uniform in a tenth of the documents; 61 itself is also what the others have.
    short = target[target < room]
    assert abs(len(short) / count - 0.1 * 59 / 60) < 0.004
    counts = np.bincount(short, minlength=room)[2:]
    assert ((counts - len(short) / 59) ** 2).sum() / (
        len(short) / 59
    ) < 100  # chi-square, 58 degrees of freedom
    whole = np.isin(np.arange(len(plan)), first) & (plan.a_length + plan.b_length == room)
    split = np.where(plan.label == 1, plan.b_length, plan.a_length)[whole]
    assert split.min() == 1 and split.max() == room - 1
    assert np.abs(np.bincount(split)[1:] / len(split) - 1 / 60).max() < 0.004


@pytest.mark.parametrize("kind", ["sop", "nsp", "none"])
@pytest.mark.parametrize("defects", [False, True])
def test_every_token_is_used_once(kind: str, defects: bool) -> None:
    corpus = single_token_sentences(50, 333)
    plan = plan_epoch(corpus, PairSettings(kind, 40, reference_defects=defects), 3, 0)  # type: ignore[arg-type]
    seen = np.zeros(50 * 333, dtype=int)
    foreign = (plan.label == 1) & (document_at(corpus, plan.a_start) != document_at(corpus, plan.b_start))
    for start, length, skip in (
        (plan.a_start, plan.a_length, np.zeros(len(plan), bool)),
        (plan.b_start, plan.b_length, foreign),
    ):
        for s, n in zip(start[~skip].tolist(), length[~skip].tolist(), strict=True):
            seen[s : s + n] += 1
    assert (seen == 1).all()


def test_order_labels_have_their_meaning(corpus: MemoryCorpus) -> None:
    plan = plan_epoch(corpus, PairSettings("sop", 64), 5, 0)
    pair = plan.b_length > 0
    assert (plan.label[~pair] == -100).all() and (plan.label[pair] >= 0).all()
    assert (document_at(corpus, plan.a_start)[pair] == document_at(corpus, plan.b_start)[pair]).all()
    behind = plan.b_start >= plan.a_start + plan.a_length
    assert behind[plan.label == 0].all() and not behind[plan.label == 1].any()
    assert plan.lengths.max() == 64


def test_next_sentence_labels_have_their_meaning(corpus: MemoryCorpus) -> None:
    plan = plan_epoch(corpus, PairSettings("nsp", 64), 5, 0)
    here, there = document_at(corpus, plan.a_start), document_at(corpus, plan.b_start)
    assert (plan.b_length > 0).all()
    assert (here == there)[plan.label == 0].all()
    assert (here != there)[plan.label == 1].all()
    # Any document, and any sentence of it, may be the other one.
    assert len(np.unique(there[plan.label == 1])) > 0.95 * (len(corpus.document_offsets) - 1)


def test_none_takes_as_many_complete_sentences_as_fit() -> None:
    corpus = MemoryCorpus([[10, 10, 10, 50, 3, 3], [100], [4]])
    plan = plan_epoch(corpus, PairSettings("none", 34, short_probability=0), 1, 0)
    assert plan.a_length.tolist() == [30, 32, 6, 32, 4]  # sentences of 50 and 100 tokens are cut to the room
    assert plan.a_start[[0, 2, 4]].tolist() == [0, 80, 186]
    assert 30 <= plan.a_start[1] <= 48
    assert (plan.label == -100).all() and (plan.b_length == 0).all()
    assert plan.lengths.max() == 34


def test_a_lone_segment_is_a_window_anywhere_in_a_long_sentence() -> None:
    plan = plan_epoch(MemoryCorpus([[300]] * 20_000), PairSettings("sop", 64, short_probability=0), 1, 0)
    start = plan.a_start - 300 * np.arange(20_000)
    assert (plan.a_length == 62).all() and start.min() == 0 and start.max() == 300 - 62
    assert np.abs(np.bincount(start) / 20_000 - 1 / 239).max() < 0.0025


def test_chunk_of_one_sentence_stays_as_one_segment_and_is_a_foreign_pair_with_the_defect() -> None:
    corpus = MemoryCorpus([[70], [5, 90, 6], [80]] * 200)
    fixed = plan_epoch(corpus, PairSettings("sop", 64), 1, 0)
    single = fixed.label == -100
    assert (fixed.b_length[single] == 0).all()
    assert set(fixed.a_length[single].tolist()) <= {62, 5, 6}
    original = plan_epoch(corpus, PairSettings("sop", 64, reference_defects=True), 1, 0)
    assert (original.b_length > 0).all()
    foreign = document_at(corpus, original.a_start) != document_at(corpus, original.b_start)
    assert (original.label[foreign] == 1).all()
    assert foreign.sum() > 400


@pytest.mark.parametrize("kind", ["sop", "nsp"])
def test_a_repeat_is_a_passage_and_an_excerpt_of_it(corpus: MemoryCorpus, kind: str) -> None:
    settings = PairSettings(kind, 64, repeats=0.25)  # type: ignore[arg-type]
    plan = plan_epoch(corpus, settings, 5, 0)
    a_end, b_end = plan.a_start + plan.a_length, plan.b_start + plan.b_length
    a_in_b = (plan.b_length > 0) & (plan.b_start <= plan.a_start) & (a_end <= b_end)
    b_in_a = (plan.b_length > 0) & (plan.a_start <= plan.b_start) & (b_end <= a_end)
    repeats = a_in_b | b_in_a
    assert abs(repeats.mean() - 0.25) < 0.01
    assert (plan.label[repeats] == -100).all()
    assert (plan.label[~repeats & (plan.b_length > 0)] >= 0).all()
    assert 0.45 < a_in_b[repeats].mean() < 0.55
    assert plan.lengths.max() == 64
    assert (document_at(corpus, plan.a_start) == document_at(corpus, plan.b_start))[repeats].all()
    # Neither the excerpt's length nor its place gives the distance between the two copies away.
    excerpt = np.minimum(plan.a_length, plan.b_length)[repeats]
    shift = np.abs(plan.a_start - plan.b_start)[repeats]
    assert set(range(1, 31)) <= set(excerpt.tolist()) and excerpt.max() <= 31
    assert set(range(0, 50)) <= set(shift.tolist())


def test_repeats_fill_the_room_of_a_long_run_and_leave_a_short_one_whole() -> None:
    settings = PairSettings("sop", 64, short_probability=0, repeats=1.0)
    plan = plan_epoch(MemoryCorpus([[40, 40], [6, 5]] * 400), settings, 1, 0)
    passage, excerpt = np.maximum(plan.a_length, plan.b_length), np.minimum(plan.a_length, plan.b_length)
    long = passage > 11
    assert long.sum() == 400 and (plan.lengths[long] == 64).all()
    assert (passage[~long] == 11).all() and (excerpt[~long] <= 11).all()


def test_without_repeats_the_draws_are_what_they_were(corpus: MemoryCorpus) -> None:
    plain, some = (plan_epoch(corpus, PairSettings("sop", 64, repeats=share), 5, 0) for share in (0.0, 0.5))
    assert len(plain) == len(some)
    kept = (some.label >= 0) & (plain.b_length > 0)
    assert 0.4 < kept.mean() < 0.6
    # The same chunks, cut in the same places and in the same order.
    assert (plain.label == some.label)[kept].all()


# --- the rules, in the mean, against the slow rendering ---


@pytest.mark.parametrize("kind", ["sop", "nsp"])
def test_statistics_equal_the_slow_rules(corpus: MemoryCorpus, kind: str) -> None:
    settings = PairSettings(kind, 96, reference_defects=True)  # type: ignore[arg-type]
    rng = random.Random(0)
    documents = documents_of(corpus)
    slow = reference_rules.make_samples(documents, rng, nsp=kind == "nsp", max_length=96)
    fast = plan_epoch(corpus, settings, 11, 0)
    assert min(len(slow), len(fast)) >= 20_000
    assert abs(len(fast) / len(slow) - 1) < 0.01
    a = np.array([len(s.a) for s in slow])
    b = np.array([len(s.b) for s in slow])
    assert distance(fast.a_length, a) < 0.012
    assert distance(fast.b_length, b) < 0.012
    assert distance(fast.a_length + fast.b_length, a + b) < 0.01
    label = np.array([s.label for s in slow])
    assert abs(fast.label.mean() - label.mean()) < 0.01
    foreign = document_at(corpus, fast.a_start) != document_at(corpus, fast.b_start)
    assert abs(foreign.mean() - np.mean([s.foreign for s in slow])) < 0.01
    for want in (0, 1):
        assert distance(fast.a_length[fast.label == want], a[label == want]) < 0.018


def test_half_of_the_pairs_are_swapped(corpus: MemoryCorpus) -> None:
    plan = plan_epoch(corpus, PairSettings("sop", 64), 2, 0)
    labels = plan.label[plan.label >= 0]
    assert len(labels) > 30_000
    assert abs(labels.mean() - 0.5) < 0.01


# --- mistakes ---


def test_refuses_what_cannot_work() -> None:
    with pytest.raises(CorpusError, match="one document"):
        plan_epoch(MemoryCorpus([[5, 5]], shards=1), PairSettings("nsp", 16), 1, 0)
    with pytest.raises(CorpusError, match="no text"):
        plan_epoch(MemoryCorpus([[]], shards=1), PairSettings("sop", 16), 1, 0)
    for bad in ({"kind": "sbo"}, {"max_length": 7}, {"short_probability": 1.1}, {"repeats": -0.1}):
        with pytest.raises(SettingsError):
            replace(PairSettings(), **bad)  # type: ignore[arg-type]
    with pytest.raises(SettingsError, match="second segment"):
        PairSettings("none", repeats=0.1)


def test_one_document_is_enough_for_order_pairs_and_empty_sentences_are_harmless() -> None:
    plan = plan_epoch(MemoryCorpus([[5, 0, 0, 5, 0]], shards=1), PairSettings("sop", 16), 1, 0)
    assert (plan.a_length > 0).all()
    assert ((plan.b_length > 0) == (plan.label >= 0)).all()


def test_a_repeated_passage_is_anywhere_in_a_long_run() -> None:
    corpus = MemoryCorpus([[30]] * 2000)
    plan = plan_epoch(corpus, PairSettings("sop", 16, short_probability=0, repeats=1.0), 1, 0)
    begin = np.minimum(plan.a_start, plan.b_start) - 30 * np.arange(2000)
    read = np.zeros(30, dtype=int)
    for s, n in zip(begin.tolist(), np.maximum(plan.a_length, plan.b_length).tolist(), strict=True):
        read[s : s + n] += 1
    assert read.min() > 0
