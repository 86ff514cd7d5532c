"""Scores on held-out batches, against slow loops over the same batches."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import albertine
from albertine.corpus.prepare import write_corpus
from albertine.corpus.reader import Corpus
from albertine.errors import CorpusError, ModelError, SettingsError
from albertine.model.config import EncoderConfig
from albertine.model.model import Model
from albertine.model.sharing import SharingPlan
from albertine.objectives.batch import BatchBuilder, PretrainingBatch
from albertine.objectives.masking import MaskSettings
from albertine.objectives.pairs import PairSettings
from albertine.pretraining.data import HELD_OUT_SEED, builder_of, held_out_batches
from albertine.pretraining.held_out import score_batches
from albertine.pretraining.initial_model import initial_model
from albertine.pretraining.scores import Pretrained, by_length, held_out_scores
from tests.objectives.standin import SPECIALS, MemoryCorpus
from tests.pretraining.conftest import Build


@pytest.fixture
def batches(build: Build, corpus: Path) -> list[PretrainingBatch]:
    return held_out_batches(corpus, build().objective, sequences=200)


@pytest.fixture
def model() -> Model:
    return Model(
        EncoderConfig(
            vocab_size=500,
            embedding_size=8,
            hidden_size=24,
            num_attention_heads=4,
            intermediate_size=40,
            max_position_embeddings=32,
            initializer_range=0.5,
            plan=SharingPlan.shared(2),
        ),
        {"mlm", "sop"},
    ).eval()


def test_nothing_can_be_looked_up_in_what_judges(build: Build, corpus: Path) -> None:
    plain, repeated = (build().objective.model_copy(update={"repeats": share}) for share in (0.0, 0.9))
    one, other = (held_out_batches(corpus, objective, sequences=40) for objective in (plain, repeated))
    for a, b in zip(one, other, strict=True):
        assert torch.equal(a.packed.input_ids, b.packed.input_ids)


def test_masked_rows_alone_against_a_loop(batches: list[PretrainingBatch], model: Model) -> None:
    losses, right, states = [], [], []
    for batch in batches:
        assert batch.mask_id is not None
        with torch.no_grad():
            hidden = model.encoder(batch.packed).last_hidden
            logits = model.mlm_logits(hidden[batch.mlm_positions])
        states.append(hidden[batch.mlm_positions])
        for row, label, scores in zip(batch.mlm_positions, batch.mlm_labels, logits, strict=True):
            if batch.packed.input_ids[row] == batch.mask_id:
                losses.append(float(F.cross_entropy(scores, label)))
                right.append(bool(scores.argmax() == label))
    chosen = sum(len(batch.mlm_labels) for batch in batches)
    assert 0.7 * chosen < len(losses) < 0.9 * chosen
    found = score_batches(model, batches)
    assert found["mask_loss"] == pytest.approx(sum(losses) / len(losses), rel=1e-5)
    assert found["mask_accuracy"] == pytest.approx(sum(right) / len(right))
    assert found["mask_loss"] != found["mlm_loss"]
    x = torch.cat(states)[:, None, :]
    cosines = F.cosine_similarity(x, x.transpose(0, 1), dim=-1)
    pairs = len(x) * (len(x) - 1)
    assert found["cosine"] == pytest.approx(float(cosines.sum() - cosines.trace()) / pairs, abs=1e-5)


def test_scores_do_not_depend_on_the_split_into_batches(build: Build, corpus: Path, model: Model) -> None:
    objective = build().objective
    whole = score_batches(model, held_out_batches(corpus, objective, sequences=200))
    sums: list[torch.Tensor] = []
    for rank in range(3):  # the third has none

        def keep(own: torch.Tensor) -> torch.Tensor:
            sums.append(own)
            return own

        score_batches(
            model, held_out_batches(corpus, objective, sequences=200, rank=rank, world=3), add_up=keep
        )
    total = torch.stack(sums).sum(0)
    assert score_batches(model, [], add_up=lambda own: total) == pytest.approx(whole, rel=1e-5)


def test_orders_apart_make_up_the_whole(batches: list[PretrainingBatch], model: Model) -> None:
    scores = score_batches(model, batches, by_order=True)
    labels = torch.cat([b.sentence_labels for b in batches if b.sentence_labels is not None])
    first, second = int((labels == 0).sum()), int((labels == 1).sum())
    both = first * scores["sentence_first_accuracy"] + second * scores["sentence_second_accuracy"]
    assert scores["sentence_accuracy"] == pytest.approx(both / (first + second))
    # A head that always predicts "in order" is right on one kind and wrong on the other.
    assert model.sentence is not None
    with torch.no_grad():
        model.sentence.classifier.bias.copy_(torch.tensor([100.0, 0.0]))
    scores = score_batches(model, batches, by_order=True)
    assert (scores["sentence_first_accuracy"], scores["sentence_second_accuracy"]) == (1.0, 0.0)
    assert not any("first" in name or "second" in name for name in score_batches(model, batches))


def test_states_that_are_one_have_cosine_one(batches: list[PretrainingBatch], model: Model) -> None:
    with torch.no_grad():
        for name, parameter in model.encoder.named_parameters():
            if "layer_norm" in name:
                parameter.copy_(torch.full_like(parameter, 1.0 if name.endswith("bias") else 0.01))
    assert score_batches(model, batches)["cosine"] > 0.99


def test_one_held_out_document_makes_no_pairs_across_documents(
    build: Build, corpus: Path, tmp_path: Path
) -> None:
    lines = tmp_path / "lines.txt"
    lines.write_text("".join(f"the house number {i} is red\n" for i in range(60)), encoding="utf-8")
    names = Corpus(corpus).tokenizer()
    few = tmp_path / "few"
    write_corpus([lines], few, names, "en", workers=1, held_out=0.001, format="documents", min_characters=1)
    assert Corpus(few, split="heldout").num_documents == 1
    for changes in ({"pairs": "nsp"}, {"reference_defects": True}):
        objective = build().objective.model_copy(update=changes)
        with pytest.raises(CorpusError, match=r"few: has one held-out document.*larger --held-out"):
            held_out_batches(few, objective, sequences=8)
    assert held_out_batches(few, build().objective, sequences=8)
    assert held_out_batches(corpus, build(objective={"pairs": "nsp"}).objective, sequences=8)


def test_batches_that_do_not_name_the_mask_are_judged_as_a_whole(
    batches: list[PretrainingBatch], model: Model
) -> None:
    scores = score_batches(model, [replace(batch, mask_id=None) for batch in batches])
    assert "mlm_loss" in scores and "mask_loss" not in scores


def test_what_judges_is_taken_from_all_of_the_held_out_text(build: Build, corpus: Path) -> None:
    """And not its first sequences, which are those of its first documents."""
    objective = build().objective
    rows = builder_of(Corpus(corpus, split="heldout"), objective, HELD_OUT_SEED).rows(0)
    chosen = held_out_batches(corpus, objective, sequences=rows // 4)
    samples = [sample for batch in chosen for _, sample in batch.samples.tolist()]
    assert len(set(samples)) == len(samples) == rows // 4
    assert np.histogram(samples, 4, (0, rows))[0].min() > rows // 32


@pytest.mark.parametrize(
    ("pairs", "names"), [("sop", ("in_order", "swapped")), ("nsp", ("truly_next", "random"))]
)
def test_each_order_is_reported_by_its_own_name(
    build: Build, corpus: Path, tmp_path: Path, pairs: str, names: tuple[str, str]
) -> None:
    made = initial_model(build(objective={"pairs": pairs}), np.ones(500, dtype=np.int64)).eval()
    assert made.sentence is not None
    with torch.no_grad():  # always label 0: in order, or truly next
        made.sentence.classifier.weight.zero_()
        made.sentence.classifier.bias.copy_(torch.tensor([5.0, -5.0]))
    judged = Pretrained(tmp_path, made, Corpus(corpus).tokenizer())
    scores = held_out_scores(judged, corpus, max_length=32, sequences=100)[pairs]
    assert [scores[f"{name}_accuracy"] for name in names] == [1.0, 0.0]


def test_the_order_of_pairs_by_their_lengths_alone() -> None:
    rng = np.random.default_rng(0)
    corpus = MemoryCorpus([rng.geometric(1 / 25, 400).tolist() for _ in range(100)])
    builder = BatchBuilder(corpus, PairSettings("sop", 128, short_probability=0), MaskSettings(), 1, SPECIALS)
    plan = builder.plan(0)
    batches = builder.build([(0, i) for i in range(len(plan))], micro_batch_tokens=16384)
    a, b, pair = plan.a_length, plan.b_length, plan.label >= 0
    right = np.where(a == b, 0.5, (a > b) == (plan.label == 1))[pair].mean()
    assert by_length(batches) == pytest.approx(right)
    assert right > 0.55  # so half of them is not what no skill has right


@pytest.mark.parametrize(("own", "other"), [("sop", "nsp"), ("nsp", "sop")])
def test_a_sentence_head_is_scored_on_the_pairs_of_another_objective(
    model: Model, corpus: Path, tmp_path: Path, own: str, other: str
) -> None:
    """As Table 5 of the ALBERT paper: with equal weights, what the model of that objective scores itself."""
    names = albertine.load_tokenizer(corpus / "tokenizer")
    for kind in (own, other):
        same = Model(model.config, {"mlm", kind})
        same.load_state_dict(model.state_dict())
        albertine.save(same, names, tmp_path / kind)
    how = {"max_length": 32, "sequences": 64}
    crossed = albertine.score(tmp_path / own, corpus, sentence_task=other, **how)  # type: ignore[arg-type]
    plain = albertine.score(tmp_path / other, corpus, **how)  # type: ignore[arg-type]
    assert crossed[other].pop("trained_with") == own
    assert crossed == plain and list(crossed) == ["mlm", other]
    itself = albertine.score(tmp_path / own, corpus, sentence_task=own, **how)  # type: ignore[arg-type]
    assert itself == albertine.score(tmp_path / own, corpus, **how)  # type: ignore[arg-type]


def test_sentence_tasks_that_cannot_be_scored(model: Model, corpus: Path, tmp_path: Path) -> None:
    names = albertine.load_tokenizer(corpus / "tokenizer")
    albertine.save(Model(model.config, {"mlm"}), names, tmp_path / "words alone")
    albertine.save(model, names, tmp_path / "sop")
    with pytest.raises(ModelError, match="has no sentence head, and cannot be scored by nsp"):
        albertine.score(tmp_path / "words alone", corpus, sentence_task="nsp")
    with pytest.raises(SettingsError, match=r"no sentence task `order`. Give sop or nsp"):
        albertine.score(tmp_path / "sop", corpus, sentence_task="order")  # type: ignore[arg-type]
    with pytest.raises(SettingsError, match="scored on pairs, and pairs are switched off"):
        albertine.score(tmp_path / "sop", corpus, sentence_task="nsp", pairs=False)
    with pytest.raises(SettingsError, match="are of a corpus"):
        albertine.score(tmp_path / "sop", texts=[tmp_path], sentence_task="nsp")
