"""Which next tokens are predicted: a share of every sample, never a special one, the same for equal draws."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from albertine.errors import SettingsError
from albertine.objectives.batch import BatchBuilder
from albertine.objectives.masking import MaskSettings, next_tokens
from albertine.objectives.pairs import PairSettings
from tests.objectives.standin import random_corpus


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


def builder(causal: float | None = 1 / 3, kind: str = "none") -> BatchBuilder:
    pairs = PairSettings(kind, 24)  # type: ignore[arg-type]
    return BatchBuilder(random_corpus(3, 30), pairs, MaskSettings(), 5, depth=2, causal=causal)


def test_a_causal_batch_is_not_masked_and_sees_what_is_before() -> None:
    rows = [(0, i) for i in range(12)]
    (batch,), (masked,) = builder().build(rows), builder(None).build(rows)
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


def test_pairs_are_refused() -> None:
    with pytest.raises(SettingsError, match="no sentence pairs"):
        builder(kind="sop")
