"""The stream a run trains on: order, batches and loader processes together."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch

from albertine.corpus.loader import Loader
from albertine.corpus.prepare import write_corpus
from albertine.corpus.reader import Corpus
from albertine.objectives.batch import BatchBuilder, PretrainingBatch, Row
from albertine.objectives.masking import MaskSettings
from albertine.objectives.pairs import PairSettings
from albertine.pretraining.stages import Cursor, global_batches
from albertine.tokenizers.load import load_tokenizer
from tests.objectives.standin import random_corpus

BATCH = 24


class Recipe:
    """The request of a run to a loader process: the micro-batches of one rank of one global batch."""

    def __init__(self, rank: int = 0, world: int = 1) -> None:
        self.builder = BatchBuilder(random_corpus(6, 40), PairSettings("sop", 48), MaskSettings(), 9)
        self.rank, self.world = rank, world

    def __call__(self, order: tuple[Cursor, list[Row]]) -> tuple[Cursor, list[PretrainingBatch]]:
        return order[0], self.builder.build(order[1], self.rank, self.world, micro_batch_tokens=400)

    def stream(
        self, workers: int, count: int, cursor: Cursor | None = None
    ) -> list[tuple[Cursor, list[PretrainingBatch]]]:
        torch.set_num_threads(1)
        return list(islice(Loader(self, global_batches(self.builder.rows, BATCH, 9, cursor), workers), count))


def equal(a: PretrainingBatch, b: PretrainingBatch) -> bool:
    """Every tensor the same, to the bit."""
    pairs = [
        (getattr(a.packed, name), getattr(b.packed, name))
        for name in ("input_ids", "token_type_ids", "position_ids")
    ]
    pairs += [
        (getattr(a, name), getattr(b, name))
        for name in ("mlm_positions", "mlm_labels", "sentence_labels", "samples")
    ]
    return (
        a.packed.lengths == b.packed.lengths
        and a.counts == b.counts
        and all(torch.equal(x, y) for x, y in pairs)
    )


# torch finds four processes many for a small machine; here they are the point.
@pytest.mark.filterwarnings("ignore:This DataLoader will create")
@pytest.mark.parametrize("workers", [2, 4])
def test_batches_do_not_depend_on_the_number_of_loader_processes(workers: int) -> None:
    epoch = -(-Recipe().builder.rows(0) // BATCH)
    count = epoch + 3  # across the change of epochs
    alone, spread = Recipe().stream(0, count), Recipe().stream(workers, count)
    assert alone[-1][0].epoch == 1
    for (here, left), (there, right) in zip(alone, spread, strict=True):
        assert here == there and len(left) == len(right) > 1
        assert all(equal(a, b) for a, b in zip(left, right, strict=True))


def test_a_resumed_run_continues_with_the_same_batches() -> None:
    whole = Recipe().stream(0, 9)
    for stop in (1, 4, 8):
        again = Recipe().stream(0, 9 - stop, whole[stop - 1][0])
        for (_, left), (_, right) in zip(whole[stop:], again, strict=True):
            assert all(equal(a, b) for a, b in zip(left, right, strict=True))


@pytest.mark.parametrize("world", [2, 4])
def test_ranks_together_see_every_sample_of_an_epoch_once(world: int) -> None:
    rows = Recipe().builder.rows(0)
    ranks = [Recipe(rank, world).stream(0, -(-rows // BATCH) + 1) for rank in range(world)]
    seen = [tuple(s) for rank in ranks for _, batches in rank for b in batches for s in b.samples.tolist()]
    assert len(set(seen)) == len(seen)
    assert sorted(sample for epoch, sample in seen if epoch == 0) == list(range(rows))


@pytest.fixture
def prepared(tmp_path: Path) -> Path:
    """A corpus folder of several shards, from text under a vocabulary of single letters."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ".", *letters, *(f"##{x}" for x in letters)]
    (tmp_path / "vocab.txt").write_text("\n".join(pieces) + "\n", encoding="utf-8")
    rng = np.random.default_rng(0)

    def sentence() -> str:
        return " ".join(
            "".join(rng.choice([*letters], rng.integers(1, 7))) for _ in range(rng.integers(3, 9))
        )

    text = ["\n".join(f"{sentence()}." for _ in range(rng.integers(4, 15))) + "\n\n" for _ in range(120)]
    (tmp_path / "text.txt").write_text("".join(text), encoding="utf-8")
    tokenizer = load_tokenizer(tmp_path / "vocab.txt")
    folder = tmp_path / "corpus"
    write_corpus(
        [tmp_path / "text.txt"],
        folder,
        tokenizer,
        "en",
        format="lines",
        workers=1,
        min_characters=1,
        held_out=0.1,
        shard_characters=8000,
    )
    return folder


def test_from_a_corpus_folder(prepared: Path) -> None:
    corpus = Corpus(prepared)
    assert corpus.num_shards > 1
    tokenizer = corpus.tokenizer()
    made = BatchBuilder(corpus, PairSettings("sop", 64), MaskSettings(), 1)
    rows = [(0, r) for r in range(made.rows(0))]
    text = np.concatenate([corpus.shard(i).tokens for i in range(corpus.num_shards)])
    seen = np.zeros(len(text), dtype=bool)
    plan = made.plan(0)
    for batch in made.build(rows, micro_batches=7):
        ids = batch.packed.input_ids.numpy().copy()
        ids[batch.mlm_positions] = batch.mlm_labels
        for i, (_, row) in enumerate(batch.samples.tolist()):
            a, n = int(plan.a_start[row]), int(plan.a_length[row])
            begin = int(batch.packed.cu_seqlens[i])
            assert ids[begin] == tokenizer.cls_id and ids[begin + n + 1] == tokenizer.sep_id
            assert ids[begin + 1 : begin + n + 1].tolist() == text[a : a + n].tolist()
            seen[a : a + n] = seen[plan.b_start[row] : plan.b_start[row] + plan.b_length[row]] = True
        # "##x" goes on with the word before it: both are predicted or neither is, within a segment.
        predicted = np.zeros(len(ids), dtype=bool)
        predicted[batch.mlm_positions] = True
        joined = np.array([tokenizer.id_to_piece(int(t)).startswith("##") for t in ids])
        joined[1:] &= ~np.isin(ids[:-1], [tokenizer.cls_id, tokenizer.sep_id])
        assert not (joined[1:] & (predicted[1:] != predicted[:-1])).any()
    assert seen.mean() > 0.8
    held_out = BatchBuilder(Corpus(prepared, "heldout"), PairSettings("none", 64), MaskSettings(), 1)
    assert held_out.build([(0, 0)])[0].sentence_labels is None
