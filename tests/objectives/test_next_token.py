"""Causal samples: which of a batch they are, and which of their next tokens are predicted."""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from albertine.errors import SettingsError
from albertine.objectives.batch import BatchBuilder, PretrainingBatch
from albertine.objectives.masking import MaskSettings, next_tokens
from albertine.objectives.pairs import PairSettings
from tests.objectives.standin import SPECIALS, random_corpus


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=9),
    share=st.sampled_from([0.01, 1 / 3, 0.5, 0.99]),
    seed=st.integers(0, 99),
)
def test_a_share_of_every_sample_and_no_special_token(sizes: list[int], share: float, seed: int) -> None:
    offsets = np.concatenate([[0], np.cumsum(np.array(sizes) + 2)])
    total = int(offsets[-1])
    special = np.zeros(total, dtype=bool)
    special[offsets[:-1]] = special[offsets[1:] - 1] = True
    ids = 100 + np.arange(total)
    draws = np.random.default_rng(seed).random(total)
    rows, labels = next_tokens(ids, special, offsets, draws, share)
    assert (labels == ids[rows + 1]).all() and not special[rows + 1].any()
    assert (np.diff(rows) > 0).all()
    sample = np.searchsorted(offsets, rows, side="right") - 1
    wanted = [max(1, round(n * share)) for n in sizes]
    assert np.bincount(sample, minlength=len(sizes)).tolist() == wanted
    cut = int(offsets[len(sizes) // 2])  # what a sample predicts does not depend on what stands beside it
    kept = rows < cut
    if cut:
        alone, _ = next_tokens(ids[:cut], special[:cut], offsets[: len(sizes) // 2 + 1], draws[:cut], share)
        assert alone.tolist() == rows[kept].tolist()


def builder(share: float = 1.0, kind: str = "none", *, seed: int = 5) -> BatchBuilder:
    pairs = PairSettings(kind, 24)  # type: ignore[arg-type]
    return BatchBuilder(random_corpus(3, 30), pairs, MaskSettings(), seed, depth=2, causal_share=share)


def texts(batch: PretrainingBatch) -> dict[tuple[int, ...], tuple[list[int], list[int], list[int]]]:
    """By (epoch, sample) the ids, the predicted positions and the labels."""
    found, where = {}, batch.mlm_positions
    ends = batch.packed.cu_seqlens.tolist()
    for key, begin, end in zip(batch.samples.tolist(), ends, ends[1:], strict=False):
        own = (where >= begin) & (where < end)
        ids = batch.packed.input_ids[begin:end].tolist()
        found[tuple(key)] = (ids, (where[own] - begin).tolist(), batch.mlm_labels[own].tolist())
    return found


def samples(batches: Iterable[PretrainingBatch], part: str) -> dict[tuple[int, ...], Any]:
    return {key: x for b in batches if b.part == part for key, x in texts(b).items()}


def test_a_causal_batch_is_not_masked_and_sees_what_is_before() -> None:
    rows = [(0, i) for i in range(12)]
    (batch,), (masked,) = builder().build(rows), builder(0.0).build(rows)
    assert batch.packed.prefix == (1,) * 12 and masked.packed.prefix is None
    whole = masked.packed.input_ids.clone()
    whole[masked.mlm_positions] = masked.mlm_labels
    assert batch.packed.input_ids.tolist() == whole.tolist()
    assert batch.mlm_labels.tolist() == whole[batch.mlm_positions + 1].tolist()
    assert batch.sentence_labels is None and batch.counts == {"mlm": len(batch.mlm_positions)}
    assert (batch.to("cpu").depth, batch.to("cpu").packed.prefix) == (2, batch.packed.prefix)


def test_every_epoch_predicts_others() -> None:
    made = builder()
    parts = [made.build([(epoch, i) for i in range(made.rows(epoch))])[0] for epoch in (0, 1)]
    chosen = [set(part.mlm_positions.tolist()) for part in parts]
    assert chosen[0] != chosen[1]
    again = builder().build([(0, i) for i in range(made.rows(0))])[0]
    assert again.mlm_positions.tolist() == parts[0].mlm_positions.tolist()


def test_a_loader_process_builds_the_same() -> None:
    rows = [(0, i) for i in range(8)]
    sent = pickle.loads(pickle.dumps(builder()))
    (here,), (there,) = builder().build(rows), sent.build(rows)
    assert here.mlm_positions.tolist() == there.mlm_positions.tolist()
    assert here.packed.prefix == there.packed.prefix and there.depth == 2
    mixed = builder(0.5)
    for here, there in zip(mixed.build(rows), pickle.loads(pickle.dumps(mixed)).build(rows), strict=True):
        assert texts(here) == texts(there) and (here.part, here.weights) == (there.part, there.weights)


def test_pairs_are_refused() -> None:
    with pytest.raises(SettingsError, match="no sentence pairs"):
        builder(kind="sop")


def test_a_mixed_batch_has_the_samples_of_both_kinds_unchanged() -> None:
    """A masked sample is masked as without the share, a causal one predicts what it does alone."""
    made, rows = builder(0.4), [(0, i) for i in range(builder().rows(0))]
    batches = made.build(rows, micro_batch_tokens=200)
    masked, causal = samples(batches, "mlm"), samples(batches, "causal")
    assert masked.keys() | causal.keys() == set(rows) and not masked.keys() & causal.keys()
    all_masked = samples(builder(0.0).build(rows), "mlm")
    all_causal = samples(builder(1.0).build(rows), "mlm")
    assert all(all_masked[key] == found for key, found in masked.items())
    assert all(all_causal[key] == found for key, found in causal.items())
    assert all(SPECIALS.mask_id not in ids for ids, _, _ in causal.values())
    assert any(SPECIALS.mask_id in ids for ids, _, _ in masked.values())
    for batch in batches:
        is_causal = batch.part == "causal"
        assert batch.packed.prefix == ((1,) * len(batch.samples) if is_causal else None)
        assert (batch.weights["mlm"], batch.weights["causal"]) == (0.6, 0.4)
        assert batch.counts == {batch.part: len(batch.mlm_labels)} and batch.num_tokens <= 200
    assert len(masked) / len(rows) == pytest.approx(0.6, abs=0.1)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_the_share_comes_out_over_many_samples(share: float) -> None:
    made, seen = builder(share), []
    for epoch in range(12):
        rows = [(epoch, i) for i in range(made.rows(epoch))]
        causal = samples(made.build(rows), "causal")
        seen += [row in causal for row in rows]
    error = (share * (1 - share) / len(seen)) ** 0.5
    assert abs(sum(seen) / len(seen) - share) < 4 * error and len(seen) > 1500


def test_whether_a_sample_is_causal_is_its_own() -> None:
    """Of seed, epoch and sample alone: not of the batch, and a larger share keeps those of a smaller one."""
    rows = [(0, i) for i in range(60)]
    chosen = {share: samples(builder(share).build(rows), "causal").keys() for share in (0.3, 0.6)}
    assert chosen[0.3] < chosen[0.6]
    made = builder(0.3)
    alone = {row for row in rows if samples(made.build([row]), "causal")}
    assert alone == chosen[0.3]
    later = samples(made.build([(1, i) for i in range(60)]), "causal").keys()
    assert {i for _, i in later} != {i for _, i in alone}
    assert samples(builder(0.3, seed=6).build(rows), "causal").keys() != alone


@pytest.mark.parametrize("world", [2, 3])
def test_ranks_share_samples_of_both_kinds(world: int) -> None:
    made = builder(0.4)
    for first in range(0, 120, world):
        rows = [(0, i) for i in range(first, first + world)]
        shares = [made.build(rows, rank, world) for rank in range(world)]
        assert all(shares), "with as many samples as ranks every rank has one"
        keys = [key for share in shares for batch in share for key in texts(batch)]
        assert sorted(keys) == rows
    rows = [(0, i) for i in range(200)]
    tokens = [
        sum(batch.num_tokens for batch in made.build(rows, rank, world, micro_batch_tokens=150))
        for rank in range(world)
    ]
    assert max(tokens) - min(tokens) <= 24, "no rank has more than a sample more"
