from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from albertine.errors import CorpusError
from albertine.objectives.batch import BatchBuilder, PretrainingBatch, split
from albertine.objectives.masking import MaskSettings
from albertine.objectives.pairs import PairSettings
from tests.objectives.standin import SPECIALS, MemoryCorpus, random_corpus


@pytest.fixture(scope="module")
def corpus() -> MemoryCorpus:
    return random_corpus(2, 400, shards=3)


def builder(corpus: MemoryCorpus, kind: str = "sop", length: int = 64, seed: int = 1) -> BatchBuilder:
    return BatchBuilder(corpus, PairSettings(kind, length), MaskSettings(), seed)  # type: ignore[arg-type]


def some_rows(count: int, epoch: int = 0) -> list[tuple[int, int]]:
    return [(epoch, int(r)) for r in np.random.default_rng(0).permutation(700)[:count]]


def as_samples(batches: list[PretrainingBatch]) -> dict[tuple[int, int], tuple[list[int], ...]]:
    """Every sample's ids, types, predicted places, their labels, and sentence label, by (epoch, sample)."""
    found = {}
    for batch in batches:
        offsets = batch.packed.cu_seqlens.tolist()
        for i, name in enumerate(batch.samples.tolist()):
            lo, hi = offsets[i], offsets[i + 1]
            mine = (batch.mlm_positions >= lo) & (batch.mlm_positions < hi)
            assert tuple(name) not in found
            found[tuple(name)] = (
                batch.packed.input_ids[lo:hi].tolist(),
                batch.packed.token_type_ids[lo:hi].tolist(),
                (batch.mlm_positions[mine] - lo).tolist(),
                batch.mlm_labels[mine].tolist(),
                [] if batch.sentence_labels is None else [int(batch.sentence_labels[i])],
            )
    return found


@pytest.mark.parametrize("kind", ["sop", "nsp", "none"])
def test_layout_and_text(corpus: MemoryCorpus, kind: str) -> None:
    made = builder(corpus, kind)
    plan = made.plan(0)
    [batch] = made.build(some_rows(100))
    assert batch.packed.lengths == tuple(np.diff(batch.packed.cu_seqlens).tolist())
    for (_, row), (ids, types, places, labels, sentence) in as_samples([batch]).items():
        a, b = int(plan.a_length[row]), int(plan.b_length[row])
        original = np.array(ids)
        original[places] = labels
        text = (
            corpus.tokens[plan.a_start[row] :][:a].tolist(),
            corpus.tokens[plan.b_start[row] :][:b].tolist(),
        )
        second = [*text[1], SPECIALS.sep_id] if b else []
        assert original.tolist() == [SPECIALS.cls_id, *text[0], SPECIALS.sep_id, *second]
        assert types == [0] * (a + 2) + [1] * len(second)
        assert sentence == ([] if kind == "none" else [plan.label[row]])
        words = np.ones(len(ids), dtype=bool)  # a special token and the first token of a segment begin a unit
        words[2 : a + 1] = corpus.word_starts[plan.a_start[row] :][1:a]
        if b:
            words[a + 3 : a + b + 2] = corpus.word_starts[plan.b_start[row] :][1:b]
        predicted = np.zeros(len(ids), dtype=bool)
        predicted[places] = True
        # Within a word, predicted throughout or not at all.
        assert not (np.diff(predicted) & ~words[1:]).any()
    positions = np.concatenate([np.arange(n) for n in batch.packed.lengths])
    np.testing.assert_array_equal(batch.packed.position_ids, positions)
    assert batch.packed.position_ids.dtype == batch.mlm_labels.dtype == torch.int64
    assert batch.num_tokens == sum(batch.packed.lengths) == len(batch.packed.input_ids)


@pytest.mark.parametrize("kind", ["sop", "none"])
def test_counts(corpus: MemoryCorpus, kind: str) -> None:
    [batch] = builder(corpus, kind).build(some_rows(200))
    expected = {"mlm": len(batch.mlm_positions)}
    if batch.sentence_labels is not None:
        expected["sentence"] = int((batch.sentence_labels != -100).sum())
        assert 0 < expected["sentence"] < 200  # some chunks had one sentence
    assert batch.counts == expected
    assert (kind == "none") == (batch.sentence_labels is None)
    moved = batch.to("cpu")
    assert moved.counts == batch.counts and torch.equal(moved.mlm_labels, batch.mlm_labels)


@pytest.mark.parametrize("micro", [{}, {"micro_batches": 3}, {"micro_batch_tokens": 400}], ids=str)
def test_ranks_share_the_same_samples(corpus: MemoryCorpus, micro: dict[str, int]) -> None:
    rows = some_rows(61)
    alone = as_samples(builder(corpus).build(rows))
    assert sorted(alone) == sorted(rows)
    for world in (1, 2, 4):
        ranks = [builder(corpus).build(rows, rank, world, **micro) for rank in range(world)]
        assert as_samples([batch for rank in ranks for batch in rank]) == alone
        tokens = [sum(b.num_tokens for b in rank) for rank in ranks]
        assert max(tokens) - min(tokens) <= 64 * len(ranks[0])
        if "micro_batches" in micro:
            assert {len(rank) for rank in ranks} == {3}
        if "micro_batch_tokens" in micro:
            assert max(b.num_tokens for rank in ranks for b in rank) <= 400


def test_draws_belong_to_the_epoch_and_the_sample(corpus: MemoryCorpus) -> None:
    made = builder(corpus, "none", 512)  # long enough that epochs cut many documents alike
    rows = some_rows(40)
    first = as_samples(made.build(rows))
    other = as_samples(made.build(list(reversed(rows))))
    assert first == other
    again = as_samples(made.build([(1, row) for _, row in rows]))
    assert all(first[(0, r)][2] != again[(1, r)][2] for _, r in rows if len(first[(0, r)][0]) > 60)
    mixed = as_samples(made.build([(0, 3), (1, 3), (1, 5), (0, 5)]))
    assert sorted(mixed) == [(0, 3), (0, 5), (1, 3), (1, 5)]
    reseeded = as_samples(builder(corpus, "none", 512, seed=2).build(rows))
    assert first != reseeded


def test_same_text_at_other_rows_is_masked_otherwise() -> None:
    corpus = MemoryCorpus([[30]] * 200, word=1)
    [batch] = builder(corpus).build([(0, r) for r in range(200)])
    places = {tuple(sample[2]) for sample in as_samples([batch]).values()}
    assert len(places) > 190


def test_text_cut_alike_in_two_epochs_is_masked_otherwise() -> None:
    made = builder(MemoryCorpus([[30]] * 200, word=1))
    plans = [made.plan(epoch) for epoch in (0, 1)]
    for column in ("a_start", "a_length", "b_length"):
        np.testing.assert_array_equal(getattr(plans[0], column), getattr(plans[1], column))
    first, second = (as_samples(made.build([(epoch, r) for r in range(200)])) for epoch in (0, 1))
    alike = sum(first[(0, r)][2] == second[(1, r)][2] for r in range(200))
    assert alike < 10


def test_rows_that_do_not_exist_are_refused(corpus: MemoryCorpus) -> None:
    made = builder(corpus)
    with pytest.raises(CorpusError, match=f"has {made.rows(0)} samples"):
        made.build([(0, made.rows(0))])
    made.build([(0, made.rows(0) - 1)])


def test_another_process_gets_the_recipe_and_builds_the_same(corpus: MemoryCorpus) -> None:
    made = builder(corpus)
    first = as_samples(made.build(some_rows(20)))
    make, recipe = made.__reduce__()
    assert not any(isinstance(x, np.ndarray) for x in recipe)
    assert as_samples(make(*recipe).build(some_rows(20))) == first


def test_only_two_plans_are_kept(corpus: MemoryCorpus) -> None:
    made = builder(corpus)
    plans = [made.plan(epoch) for epoch in (0, 1)]
    assert made.plan(0) is plans[0] and made.plan(1) is plans[1]
    made.plan(2)
    assert made.plan(1) is plans[1] and made.plan(0) is not plans[0]


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.integers(3, 128), min_size=1, max_size=60),
    st.integers(1, 8),
    st.one_of(st.none(), st.integers(1, 5)),
    st.one_of(st.none(), st.integers(3, 1000)),
)
def test_split_holds_every_sample_once_and_is_balanced(
    sizes: list[int], world: int, micro_batches: int | None, tokens: int | None
) -> None:
    lengths = np.array(sizes)
    bins = split(lengths, world, micro_batches, tokens)
    assert len(bins) == world and len({len(rank) for rank in bins}) == 1
    if micro_batches:
        assert len(bins[0]) == micro_batches
    flat = [b for rank in bins for b in rank]
    assert sorted(np.concatenate(flat).tolist()) == list(range(len(sizes)))
    loads = [int(lengths[b].sum()) for b in flat]
    assert max(loads) - min(loads) <= max(sizes)  # a snake's bins differ by less than one sample
    if tokens and not micro_batches:
        assert max(loads) <= max(tokens, *sizes, 0)


def test_split_is_a_snake() -> None:
    """Dealing out in one direction would give the first rank the longest sample of every lap."""
    loads = [sum(int(np.arange(3, 131)[b].sum()) for b in rank) for rank in split(np.arange(3, 131), 4, 2)]
    assert len(set(loads)) == 1


def test_neighbours_of_the_snake_are_of_different_ranks() -> None:
    """The last lap is rarely full; dealt to one rank after the other it would fall on one of them alone."""
    lengths = np.array([5, 4, 3, 2, 1])
    assert [[lengths[b].tolist() for b in rank] for rank in split(lengths, 2, 2)] == [
        [[5], [3]],
        [[4], [2, 1]],
    ]


@pytest.mark.parametrize("kind", ["sop", "none"])
def test_cls_may_be_last(corpus: MemoryCorpus, kind: str) -> None:
    """XLNet's layout of the same samples: A [SEP] B [SEP] [CLS], the last of segment 2."""
    pairs, special = PairSettings(kind, 64), SPECIALS._replace(cls_last=True)  # type: ignore[arg-type]
    made = BatchBuilder(corpus, pairs, MaskSettings(), 1, special)
    assert pickle.loads(pickle.dumps(made)).specials.cls_last
    first, last = (as_samples(b.build(some_rows(100))) for b in (builder(corpus, kind), made))
    assert first.keys() == last.keys()
    plan, lengths = made.plan(0), set()
    for name, (ids, types, places, labels, sentence) in last.items():
        a, b = int(plan.a_length[name[1]]), int(plan.b_length[name[1]])
        whole, before = np.array(ids), np.array(first[name][0])
        whole[places], before[first[name][2]] = labels, first[name][3]
        assert whole.tolist() == [*before[1:], SPECIALS.cls_id] and sentence == first[name][4]
        assert types == [0] * (a + 1) + [1] * (b + 1 if b else 0) + [2]
        assert {a, len(ids) - 1, len(ids) - 2}.isdisjoint(places)
        lengths.add(len(ids))
    assert len(lengths) > 1


def test_a_causal_row_whose_cls_is_last_does_not_predict_its_first_token(corpus: MemoryCorpus) -> None:
    special, share = SPECIALS._replace(cls_last=True), {"causal_share": 1.0, "causal_predictions": 1.0}
    made = BatchBuilder(corpus, PairSettings("none", 64), MaskSettings(), 1, special, **share)
    [batch] = made.build(some_rows(50))
    ends = torch.tensor(batch.packed.lengths)
    wanted = [
        row
        for start, length in zip(batch.packed.first_tokens.tolist(), ends.tolist(), strict=True)
        for row in range(start, start + length - 3)  # the last one before [SEP] [CLS] predicts neither
    ]
    assert batch.mlm_positions.tolist() == wanted
    assert torch.equal(batch.mlm_labels, batch.packed.input_ids[batch.mlm_positions + 1])


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_text_cut_alike_is_predicted_otherwise_under_another_seed(share: float) -> None:
    corpus = MemoryCorpus([[30]] * 200, word=1)
    pairs, rows = PairSettings("none", 64), [(0, r) for r in range(200)]
    made = [BatchBuilder(corpus, pairs, MaskSettings(), seed, causal_share=share) for seed in (1, 2)]
    for column in ("a_start", "a_length"):
        np.testing.assert_array_equal(*(getattr(m.plan(0), column) for m in made))
    first, second = (as_samples(m.build(rows)) for m in made)
    assert sum(first[row][2] == second[row][2] for row in rows) < 10
