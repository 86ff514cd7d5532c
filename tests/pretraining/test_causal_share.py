"""Runs whose batches mix masked and causal samples: losses, exactness, evaluation, records, refusals."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from safetensors.torch import load_file

import albertine
from albertine.core.settings import commented_yaml, dump, resolve
from albertine.corpus.reader import Corpus
from albertine.errors import ModelError, SettingsError
from albertine.interop.heads import causal_share
from albertine.interop.huggingface.folders import read_folder
from albertine.model.presets import preset
from albertine.objectives.batch import PretrainingBatch
from albertine.objectives.losses import pretraining_losses
from albertine.objectives.unigram_baseline import count_tokens
from albertine.pretraining.data import held_out_batches
from albertine.pretraining.held_out import score_batches
from albertine.pretraining.initial_model import initial_model
from albertine.pretraining.run import fingerprint, pretrain
from albertine.pretraining.scores import suite_scores
from albertine.pretraining.settings import PretrainingSettings
from albertine.pretraining.stages import check_unused_settings, stage_summaries, untrained
from albertine.training.metrics import read_metrics
from albertine.training.optimizers import build_optimizer
from albertine.training.step import train_step
from tests import reference
from tests.evaluation.test_suites import few_pairs as few_pairs
from tests.evaluation.test_suites import write
from tests.pretraining.conftest import Build
from tests.pretraining.test_run import in_two_processes, run, weights
from tests.pretraining.test_stages import Stopper, batches
from tests.toy import MODEL

MIXED: dict[str, Any] = {"pairs": "none", "causal_share": 0.5}
STILL = {"change": {**MODEL, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}}


def lines(folder: Path) -> list[dict[str, Any]]:
    return read_metrics(folder / "metrics.jsonl")


def first_batches(settings: PretrainingSettings) -> list[PretrainingBatch]:
    ((_, found),) = batches(settings, 1)
    assert {batch.part for batch in found} == {"mlm", "causal"}
    return found


def test_the_loss_is_the_weighted_mean_of_both_readings(build: Build) -> None:
    """Its sums against the padded reference, its gradient against that of the total."""
    settings = build(objective={**MIXED, "causal_share": 0.25}, training={"batch_size": 16})
    found = first_batches(settings)
    model = initial_model(settings, count_tokens(Corpus(settings.corpus), 500)).eval()
    sums, counts = {"mlm": 0.0, "causal": 0.0}, {"mlm": 0, "causal": 0}
    for batch in found:
        ends = batch.packed.cu_seqlens.tolist()
        for begin, end in pairwise(ends):
            ids, types = (x[None, begin:end] for x in (batch.packed.input_ids, batch.packed.token_type_ids))
            mask = torch.ones(1, end - begin, end - begin)
            mask = mask.tril() if batch.part == "causal" else mask
            with torch.no_grad():
                hidden = reference.encode(model, ids, mask, types)[-1]
                logs = reference.mlm_logits(model, hidden)[0].log_softmax(-1)
            own = (batch.mlm_positions >= begin) & (batch.mlm_positions < end)
            rows, labels = batch.mlm_positions[own] - begin, batch.mlm_labels[own]
            sums[batch.part] -= float(logs[rows, labels].sum())
            counts[batch.part] += len(rows)
    optimizer = build_optimizer(model, "adamw")
    report = train_step(model, found, pretraining_losses, optimizer, lr=0.0)
    for name in ("mlm", "causal"):
        assert report.parts[name].loss_sum == pytest.approx(sums[name], rel=1e-4)
        assert report.parts[name].count == counts[name] > 0
    shares = {"mlm": 0.75 / counts["mlm"], "causal": 0.25 / counts["causal"]}
    for batch in found:
        loss = shares[batch.part] * pretraining_losses(model, batch)[batch.part].loss_sum
        torch.autograd.backward(loss)
    grads = [p.grad.reshape(-1) for p in model.parameters() if p.grad is not None]
    assert report.grad_norm == pytest.approx(float(torch.cat(grads).norm()), rel=1e-4)


def test_a_run_reports_both_losses_apart(build: Build) -> None:
    folder = run(build(objective=MIXED, watching={"log_every": 1}))
    rows = lines(folder)
    trained = [row for row in rows if "lr" in row and "causal_loss" in row]
    assert len(trained) >= 6, "of eight samples none is causal in one batch of 256"
    for row in trained:
        if "mlm_loss" in row:
            assert row["loss"] == pytest.approx(0.5 * row["mlm_loss"] + 0.5 * row["causal_loss"])
    judged = [row["evaluation"] for row in rows if "evaluation" in row]
    assert all({"mlm_loss", "mask_loss", "causal_loss", "causal_accuracy"} <= row.keys() for row in judged)
    log = (folder / "log.txt").read_text()
    assert "causal loss" in log and "causal " in log.partition("held out:")[2]


@pytest.mark.pictures
def test_the_curves_of_next_tokens_are_drawn(build: Build) -> None:
    folder = run(build(objective=MIXED))
    for name in ("mlm_loss", "causal_loss", "causal_accuracy"):
        assert (folder / "plots" / f"{name}.png").stat().st_size > 0, name


def test_held_out_samples_are_scored_in_both_ways(build: Build, corpus: Path) -> None:
    objective = build(objective=MIXED).objective
    masked = held_out_batches(corpus, objective, sequences=40)
    causal = held_out_batches(corpus, objective, sequences=40, causal=True)
    assert {tuple(k) for b in masked for k in b.samples.tolist()} == {
        tuple(k) for b in causal for k in b.samples.tolist()
    }
    model = initial_model(build(objective=MIXED), count_tokens(Corpus(corpus), 500)).eval()
    both, alone = score_batches(model, [*masked, *causal]), score_batches(model, masked)
    assert {name: both[name] for name in alone} == alone, "the masked scores are those of masked samples"
    assert both.keys() - alone.keys() == {"causal_loss", "causal_accuracy"}
    total, count = 0.0, 0
    for batch in causal:
        with torch.no_grad():
            logits, _ = model.pretraining_forward(batch.packed, batch.mlm_positions)
        total += float(torch.nn.functional.cross_entropy(logits, batch.mlm_labels, reduction="sum"))
        count += len(batch.mlm_labels)
    assert both["causal_loss"] == pytest.approx(total / count, rel=1e-5)


def test_an_interrupted_run_ends_with_the_same_weights(build: Build) -> None:
    stages = [
        {"begin": 0, "causal_share": 1},
        {"begin": 0.3, "causal_share": 0.7, "causal_predictions": 1},
        {"begin": 0.7, "causal_share": 0},
    ]
    straight = run(build(name="straight", objective=MIXED, stages=stages))
    for stop in (2, 4):
        settings = build(name=f"stopped-{stop}", objective=MIXED, stages=stages)
        assert not pretrain(settings, reporter=Stopper(stop)).outcome.done
        assert weights(run(settings)) == weights(straight)
    ahead = build(name="ahead", objective=MIXED, stages=stages, training={"workers": 2})
    assert weights(run(ahead)) == weights(straight), "whatever processes prepare the batches"


@pytest.mark.matrix
def test_two_processes_train_as_one(build: Build, tmp_path: Path) -> None:
    """Two sequences a step: often a rank has no causal sample, or no masked one."""
    how = {"objective": MIXED, "model": STILL, "training": {"batch_size": 2}}
    one = run(build(name="one", **how))
    settings = build(name="two", **how)
    in_two_processes(settings, tmp_path)
    other = load_file(settings.folder / "final" / "model.safetensors")
    for name, tensor in load_file(one / "final" / "model.safetensors").items():
        assert torch.allclose(tensor, other[name], atol=2e-4), name
    ours, theirs = (
        [row for row in lines(folder) if "evaluation" in row] for folder in (one, settings.folder)
    )
    for a, b in zip(ours, theirs, strict=True):
        assert a["evaluation"] == pytest.approx(b["evaluation"], abs=1e-3)


def test_recomputed_activations_change_nothing(build: Build) -> None:
    kept = run(build(name="kept", objective=MIXED))
    again = run(build(name="again", objective=MIXED, training={"recompute": True}))
    ours, theirs = (load_file(folder / "final" / "model.safetensors") for folder in (kept, again))
    for name, tensor in ours.items():
        assert torch.allclose(tensor, theirs[name], atol=1e-5), name


@pytest.mark.parametrize(
    "change",
    [
        {"halting": "basic"},
        {"num_hidden_layers": 9, "solver": "anderson", "input_injection": True},
        {"positions": "rotary"},
        {"positions": "relative", "embedding_norm": False},
    ],
    ids=["halting", "solver", "rotary", "relative"],
)
def test_every_encoder_trains_on_both(build: Build, change: dict[str, Any]) -> None:
    settings = build(
        objective=MIXED, model={"change": {**MODEL, **change}}, training={"steps": 3, "batch_size": 6}
    )
    folder = run(settings)
    rows = [row for row in lines(folder) if "evaluation" in row]
    assert all(np.isfinite(row["evaluation"]["causal_loss"]) for row in rows) and rows


def test_a_vocabulary_with_cls_last_works_too(build: Build, cls_last: Path) -> None:
    folder = run(build(corpus=cls_last, objective=MIXED, training={"steps": 2}))
    assert any("causal_loss" in row for row in lines(folder))


def test_a_causal_stage_is_one_of_share_one(build: Build) -> None:
    """`causal: true` is another name of it, with the same batches."""
    short = build(name="a", stages=[{"begin": 0, "causal": True, "pairs": "none", "mask_probability": 0.5}])
    share = {"begin": 0, "causal_share": 1, "causal_predictions": 0.5, "pairs": "none"}
    long = build(name="b", stages=[share])
    assert weights(run(short)) == weights(run(long))
    assert "causal_loss" not in next(row for row in lines(short.folder) if "lr" in row), "its part is mlm"
    assert stage_summaries(short) == stage_summaries(long)


@pytest.mark.parametrize(
    ("changes", "share"),
    [
        ({"objective": MIXED}, 0.5),
        ({"objective": {"pairs": "none"}}, 0.0),
        ({"stages": [{"begin": 0, "causal": True, "pairs": "none"}, {"begin": 0.5}]}, 0.0),
        ({"objective": MIXED, "stages": [{"begin": 0, "causal_share": 0}, {"begin": 0.5}]}, 0.5),
        ({"objective": MIXED, "stages": [{"begin": 0}, {"begin": 0.5, "causal_share": 0.25}]}, 0.25),
        ({"objective": MIXED, "stages": [{"begin": 0}, {"begin": 0.99, "causal_share": 0.0}]}, 0.5),
    ],
)
def test_a_model_records_how_its_training_ended(
    build: Build, tmp_path: Path, changes: dict[str, Any], share: float
) -> None:
    folder = run(build(training={"steps": 4}, **changes))
    for where in (folder / "final", folder / "checkpoints" / "step-4"):
        assert causal_share(read_folder(where).config) == share, where
    albertine.convert(folder / "final", tmp_path / "copy")
    assert causal_share(read_folder(tmp_path / "copy").config) == share


@pytest.mark.usefixtures("few_pairs")
def test_a_suite_is_scored_from_left_to_right_only_by_a_model_trained_so(
    build: Build, tmp_path: Path
) -> None:
    data = write(tmp_path, "blimp", 2)
    mixed = run(build(name="mixed", objective=MIXED, training={"steps": 2}))
    plain = run(build(name="plain", training={"steps": 2}))
    found = suite_scores("blimp", mixed, data, scoring="causal")
    assert found.as_dict()["scoring"] == "causal" and found.overall.pairs == 67 * 2
    assert albertine.suite("blimp", mixed, data, scoring="causal")["right"] == found.overall.value
    assert suite_scores("blimp", plain, data).as_dict()["scoring"] == "pll"
    with pytest.raises(ModelError, match=r"does not record.*Score it by pll, or pretrain with objective"):
        suite_scores("blimp", plain, data, scoring="causal")
    with pytest.raises(SettingsError, match="no scoring `best`"):
        suite_scores("blimp", mixed, data, scoring="best")  # type: ignore[arg-type]
    depths = albertine.analyze.probe(mixed, suite="blimp", data=data, scoring="causal")
    assert depths.what == "BLiMP from left to right"
    assert depths.scores[-1].value == pytest.approx(found.overall.value)


def test_settings_without_the_share_are_written_as_before(build: Build) -> None:
    """So that runs of before resume, and studies keep their cells."""
    settings = build()
    assert "causal" not in dump(settings)
    model = initial_model(settings, count_tokens(Corpus(settings.corpus), 500))
    tokenizer = Corpus(settings.corpus).tokenizer()
    assert "causal" not in json.dumps(fingerprint(settings, model, tokenizer))
    assert "causal_share: 0.0" in commented_yaml(settings), "and --dry-run shows it"
    mixed = build(objective={**MIXED, "causal_predictions": 0.5})
    assert fingerprint(mixed, model, tokenizer)["objective"]["causal_share"] == 0.5
    assert resolve(PretrainingSettings, yaml.safe_load(dump(mixed))) == mixed


SHARE = {"begin": 0, "causal_share": 0.5}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"objective": {"causal_share": 0.5}}, r"causal_share 0.5 and pairs sop, .*; set pairs: none"),
        (
            {"objective": {**MIXED, "repeats": 0.1}},
            "an excerpt is a second segment; set objective.pairs to sop or nsp",
        ),
        ({"stages": [SHARE]}, "number 1 has causal_share 0.5 and pairs sop"),
        ({"objective": {"pairs": "none", "causal_share": 1.5}}, r"`objective\.causal_share`"),
        ({"objective": {**MIXED, "causal_predictions": 0}}, r"`objective\.causal_predictions`"),
        (
            {"objective": {"pairs": "none", "causal_share": 1, "masking": {"ngram": 1}}},
            "objective.masking belongs to masked samples, and objective.causal_share is 1; leave one of the "
            "two out, over a recipe write objective.masking.ngram=3",
        ),
        (
            {"objective": {**MIXED, "distillation": {"teacher": "t"}}},
            "causal_share 0.5, which distillation does not support",
        ),
        (
            {"objective": {"pairs": "none", "distillation": {"teacher": "t"}}, "stages": [SHARE]},
            "number 1 has causal_share 0.5, which distillation does not support",
        ),
        (
            {"objective": {**MIXED, "kind": "causal"}},
            "causal_share is for single samples, and this objective is causal and streams text; leave it out",
        ),
        ({"objective": {**MIXED, "memory": 8}}, "this objective has a memory and streams text"),
        (
            {"objective": MIXED, "stages": [{**SHARE, "causal": True}]},
            "number 1 has causal_share and is causal, which is causal_share: 1",
        ),
        (
            {
                "objective": MIXED,
                "stages": [{"begin": 0, "causal": True, "mask_probability": 0.2, "causal_predictions": 0.2}],
            },
            "has mask_probability and causal_predictions, which mean the same there",
        ),
        (
            {"objective": MIXED, "stages": [{"begin": 0, "causal_share": 1, "mask_probability": 0.2}]},
            "number 1 has causal_share 1 and masks nothing; leave out its mask_probability",
        ),
        (
            {"objective": {"pairs": "none"}, "stages": [{"begin": 0, "causal_predictions": 0.2}]},
            "number 1 has causal_predictions and no causal samples",
        ),
    ],
    ids=str,
)
def test_settings_that_cannot_be(build: Build, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        build(**changes)


def test_predictions_without_causal_samples_have_no_effect(build: Build) -> None:
    config = preset("albert-tiny-zh")
    settings = build(objective={"pairs": "none", "causal_predictions": 0.5})
    with pytest.raises(SettingsError, match=r"causal_predictions: belongs to objective\.causal_share"):
        check_unused_settings(settings, config)
    check_unused_settings(build(objective={**MIXED, "causal_predictions": 0.5}), config)


def test_a_run_without_masked_samples_is_warned_of(build: Build) -> None:
    settings = build(objective={"pairs": "none", "causal_share": 1})
    assert any("objective.causal_share is 1" in line for line in untrained(settings, None))
    assert untrained(build(objective=MIXED), None) == []
    stage = stage_summaries(build(objective=MIXED, stages=[{"begin": 0}]))[0]
    assert "mask 0.15" in stage and "50% of the samples causal, 33% of the next tokens" in stage


def test_elastic_depth_teaches_both_kinds(build: Build) -> None:
    """Each kind of samples has a part of its own, with the weight of its loss."""
    sharing = {"core": 1, "loops": 3}
    change = {name: size for name, size in MODEL.items() if name != "num_hidden_layers"}
    settings = build(
        model={"sharing": sharing, "change": change},
        objective={**MIXED, "causal_share": 0.25, "elastic": {"least": 1, "most": 3, "teacher": True}},
    )
    for batch in first_batches(settings):
        assert batch.counts.keys() == {batch.part, f"elastic_{batch.part}"}
        assert batch.weights["elastic_causal"] == 0.25 and batch.weights["elastic_mlm"] == 0.75
    trained = [row for row in lines(run(settings)) if "lr" in row and "causal_loss" in row]
    assert all(row["elastic_causal_loss"] >= 0 for row in trained) and trained
