"""Batches of streams: what goes on from step to step, what is predicted, and that only the key decides it."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from albertine.errors import CorpusError, SettingsError
from albertine.objectives import stream_batch
from albertine.objectives.masking import MaskSettings
from albertine.objectives.stream_batch import StreamBatch, StreamBuilder
from albertine.objectives.stream_settings import StreamSettings
from tests.objectives.standin import SPECIALS, MemoryCorpus, random_corpus

FACTS = Path(__file__).parent / "facts" / "xlnet_data.npz"
CORPUS = random_corpus(3, 40)


def builder(
    kind: str = "causal", corpus: MemoryCorpus = CORPUS, seed: int = 5, **given: Any
) -> StreamBuilder:
    usual = {"length": 48, "lanes": 4, "predictions": 8 if kind == "permutation" else 0}
    return StreamBuilder(corpus, StreamSettings(kind, **usual | given), seed)  # type: ignore[arg-type]


def rows(batch: StreamBatch, what: torch.Tensor) -> np.ndarray:
    return what.view(batch.packed.num_sequences, -1).numpy()


def same(one: StreamBatch, two: StreamBatch) -> bool:
    for name in ("mlm_positions", "mlm_labels", "when", "until", "samples"):
        a, b = getattr(one, name), getattr(two, name)
        if (a is None) != (b is None) or (a is not None and not torch.equal(a, b)):
            return False
    return torch.equal(one.packed.input_ids, two.packed.input_ids) and (
        (one.lanes, one.backward) == (two.lanes, two.backward)
    )


def test_causal_segments_continue_and_predict_every_next_token() -> None:
    streams = builder()
    before: np.ndarray | None = None
    for segment in range(5):
        batch = streams.build(0, segment, range(4))
        ids, labels = rows(batch, batch.packed.input_ids), rows(batch, batch.mlm_labels)
        assert (labels[:, :-1] == ids[:, 1:]).all() and batch.packed.prefix == (1, 1, 1, 1)
        assert batch.mlm_positions.tolist() == list(range(4 * 48))
        if before is not None:
            assert (before == ids[:, 0]).all(), "what the last row predicted begins the next segment"
        before = labels[:, -1]
    assert batch.advance == 48 and batch.lanes == (0, 1, 2, 3) and batch.backward is None


def test_an_epoch_reads_every_lane_to_its_end() -> None:
    for given in ({}, {"reuse": 16, "block": 16, "kind": "permutation"}):
        streams = builder(**given)
        length = streams.lanes(0).length
        last = (streams.segments - 1) * streams.settings.advance
        assert last + 48 < length <= last + 48 + streams.settings.advance
        streams.build(0, streams.segments - 1, range(4))
        assert streams.build(1, 0, [0]).samples.tolist() == [[1, 0]]


def test_masked_segments_hide_tokens_of_the_text() -> None:
    streams, plain = builder("masked", masks=MaskSettings(0.2)), builder()
    batch, text = streams.build(0, 2, range(4)), plain.build(0, 2, range(4))
    ids = text.packed.input_ids
    assert (batch.mlm_labels == ids[batch.mlm_positions]).all() and batch.packed.prefix is None
    assert (batch.mlm_labels != SPECIALS.sep_id).all(), "a border of documents is not predicted"
    untouched = torch.ones(len(ids), dtype=torch.bool)
    untouched[batch.mlm_positions] = False
    assert (batch.packed.input_ids[untouched] == ids[untouched]).all()
    hidden = (batch.packed.input_ids[batch.mlm_positions] == SPECIALS.mask_id).float().mean()
    assert 0.5 < hidden < 1 and 36 <= len(batch.mlm_labels) <= 40


@pytest.mark.parametrize("given", [{}, {"reuse": 16, "block": 8}, {"reuse": 24, "both": True}])
def test_permuted_segments_predict_what_they_do_not_show_the_query(given: dict[str, Any]) -> None:
    streams = builder("permutation", **given)
    batch = streams.build(0, 3, range(4))
    assert batch.when is not None and batch.until is not None
    when, until, ids = (rows(batch, x) for x in (batch.when, batch.until, batch.packed.input_ids))
    functional = (ids == SPECIALS.sep_id) | (ids == SPECIALS.cls_id)
    targets = np.zeros(4 * 48, dtype=bool)
    targets[batch.mlm_positions.numpy()] = True
    targets = targets.reshape(4, 48)
    assert (batch.mlm_labels == batch.packed.input_ids[batch.mlm_positions]).all()
    assert not (targets & functional).any() and (targets.sum(1) <= 8).all() and targets.sum() >= 24
    halves = streams.settings.halves
    assert sum(halves) == 48
    for s in range(4):
        seen = when[s][None, :] < until[s][:, None]
        assert seen.diagonal().all()
        ordinary = ~targets[s] & ~functional[s]
        assert not seen[np.ix_(ordinary[: halves[0]].nonzero()[0], np.arange(halves[0], 48))].any()
        if len(halves) == 2:
            assert seen[halves[0] :, : halves[0]].all(), "the new half sees all of the reused one"
            assert targets[s, : halves[0]].sum() <= 4
    if given.get("both"):
        assert batch.backward == (False, True, False, True)


def test_the_layout_is_the_official_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reused part, A, B, [SEP], [CLS] and segments of `create_tfrecords`, both directions, the same draws."""
    facts = np.load(FACTS)
    length, reuse, lanes = facts["layout/sizes"].tolist()
    given = facts["layout/draws"]
    corpus = MemoryCorpus([facts["layout/lengths"].astype(int).tolist()], shards=1)
    original = stream_batch.generator

    class Injected:
        def __init__(self, segment: int, lane: int) -> None:
            # There all forward streams come first, here a stream's backward one stands beside it.
            self.numbers = given[segment, lane // 2 + lanes // 2 * (lane % 2)]

        def random(self, count: int) -> np.ndarray:
            return self.numbers

    def drawn(seed: int, purpose: str, *key: int) -> Any:
        return Injected(*key[1:]) if purpose == "pieces" else original(seed, purpose, *key)

    monkeypatch.setattr(stream_batch, "generator", drawn)
    streams = builder(
        "permutation", corpus, length=length, lanes=lanes, reuse=reuse, both=True, predictions=4
    )
    wanted, segments = facts["layout/input"].astype(int), facts["layout/segments"]
    assert len(wanted) > 8
    for segment in range(len(wanted)):
        batch = streams.build(0, segment, range(lanes))
        ids, types = rows(batch, batch.packed.input_ids), rows(batch, batch.packed.token_type_ids)
        for lane in range(lanes):
            row = lane // 2 + lanes // 2 * (lane % 2)
            official = np.select(
                [wanted[segment, row] == 4, wanted[segment, row] == 3], [3, 2], wanted[segment, row]
            )
            assert ids[lane].tolist() == official.tolist(), (segment, lane)
            assert types[lane].tolist() == segments[segment, row].tolist()


@pytest.mark.parametrize("kind", ["causal", "masked", "permutation"])
def test_only_the_key_decides_a_batch(kind: str) -> None:
    given = {"reuse": 16, "block": 16, "both": True} if kind == "permutation" else {}
    streams = builder(kind, **given)
    whole = streams.build(1, 2, range(4))
    again: StreamBuilder = pickle.loads(pickle.dumps(streams))
    assert same(whole, again.build(1, 2, range(4)))
    for segment in range(8):
        together = streams.build(1, segment, range(4))
        apart = [streams.build(1, segment, lanes) for lanes in ((0,), (1, 2), (3,))]
        ids = torch.cat([part.packed.input_ids for part in apart])
        assert torch.equal(ids, together.packed.input_ids)
        assert torch.equal(torch.cat([part.mlm_labels for part in apart]), together.mlm_labels)
        if kind == "permutation":
            assert torch.equal(torch.cat([part.when for part in apart]), together.when)  # type: ignore[misc]
    assert not same(whole, builder(kind, seed=6, **given).build(1, 2, range(4)))
    if kind != "causal":  # of which nothing is drawn but the order of documents
        one = random_corpus(3, 1)
        first, second = (
            builder(kind, one, lanes=2, length=16, **{**given, "reuse": 0, "block": 16}).build(e, 2, (0, 1))
            for e in (0, 1)
        )
        assert not torch.equal(first.mlm_positions, second.mlm_positions), "redrawn every epoch"


def test_predictions_are_drawn_for_every_segment() -> None:
    streams = builder("permutation")
    places = [streams.build(0, k, [0]).mlm_positions.tolist() for k in range(4)]
    assert len({tuple(place) for place in places}) == 4


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"kind": "causal", "reuse": 16}, "are of a permutation LM, not of a causal one"),
        ({"kind": "masked", "both": True}, "are of a permutation LM, not of a masked one"),
        ({"kind": "permutation", "both": True, "lanes": 3}, "3 sequences cannot be read in both directions"),
        ({"kind": "permutation", "block": 20}, "block of 20 does not divide"),
        ({"kind": "permutation", "reuse": 44}, "no room for two pieces.*Use at most 43"),
        ({"kind": "permutation", "predictions": 49}, "49 predictions of segments with 48"),
        ({"kind": "permutation", "predictions": 0}, "0 predictions"),
    ],
)
def test_what_does_not_fit_together_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        builder(**given)


def test_a_text_that_is_too_short_is_refused() -> None:
    with pytest.raises(CorpusError, match="too few for 4 streams of segments of 48"):
        builder(corpus=MemoryCorpus([[20], [20]]))


@pytest.mark.parametrize("kind", ["masked", "permutation"])
def test_what_is_predicted_of_the_same_text_is_of_the_seed(kind: str) -> None:
    one = MemoryCorpus([[30] * 40], shards=1, word=1)  # the order of documents does not matter here
    first, second = (builder(kind, one, seed).build(0, 1, range(4)) for seed in (5, 6))
    assert not torch.equal(first.mlm_positions, second.mlm_positions)


def test_every_lane_has_an_order_of_its_own() -> None:
    one = MemoryCorpus([[30] * 40], shards=1, word=1)  # every token begins a word, in every lane
    batch = builder("permutation", one).build(0, 0, range(4))
    assert batch.when is not None
    assert len({tuple(row) for row in rows(batch, batch.when).tolist()}) == 4
