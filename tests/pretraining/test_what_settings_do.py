"""Settings of a run affect sampling, optimisation and evaluation, and not its fingerprint alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from albertine.corpus.reader import Corpus
from albertine.errors import SettingsError
from albertine.objectives.unigram_baseline import count_tokens
from albertine.pretraining import run as module
from albertine.pretraining.data import PretrainingBatches
from albertine.pretraining.initial_model import initial_model
from albertine.pretraining.run import loop_settings, pretrain
from albertine.pretraining.stream_data import StreamBatches
from albertine.training.distributed import World
from albertine.training.job import Clock, Job
from albertine.training.progress import Reporter
from tests.pretraining.conftest import Build
from tests.toy import MODEL


def test_the_seed_names_all_that_a_run_draws(build: Build, corpus: Path) -> None:
    """Weights, cuts and masks, order and dropout."""
    opened = Corpus(corpus)
    counts = count_tokens(opened, opened.tokenizer().vocab_size)
    # Without short samples every seed has as many, so that orders differ by the seed alone.
    both = [build(seed=seed, objective={"short_probability": 0.0}) for seed in (2, 3)]
    words = [initial_model(s, counts).state_dict()["encoder.embeddings.word.weight"] for s in both]
    assert not torch.equal(*words)
    made = [PretrainingBatches(opened, s, None) for s in both]
    assert [m.builder.seed for m in made] == [2, 3]
    assert made[0].builder.rows(0) == made[1].builder.rows(0)
    rows = [{tuple(k) for b in next(iter(m))[1] for k in b.samples.tolist()} for m in made]
    assert rows[0] != rows[1]
    assert [loop_settings(s).seed for s in both] == [2, 3]
    streams = [build(seed=seed, objective={"kind": "causal", "pairs": "none"}) for seed in (2, 3)]
    assert [StreamBatches(opened, s, None).builder.seed for s in streams] == [2, 3]


class Seen(Exception):
    """Raised as soon as the expected value is seen, before training."""


SOLVES = {"num_hidden_layers": 9, "solver": "anderson", "input_injection": True}


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({}, {"mlm", "sentence"}),
        ({"objective": {"pairs": "none"}}, {"mlm"}),
        ({"stages": [{"begin": 0, "pairs": "none"}, {"begin": 0.5}]}, {"mlm", "sentence"}),
        ({"objective": {"kind": "causal", "pairs": "none"}}, {"mlm"}),
        ({"model": {"change": {**MODEL, "halting": "basic"}}}, {"mlm", "sentence", "ponder"}),
        (
            {"objective": {"jacobian": 1.0}, "model": {"change": {**MODEL, **SOLVES}}},
            {"mlm", "sentence", "jacobian"},
        ),
    ],
)
def test_every_rank_has_the_parts_of_the_loss_before_its_first_batch(
    build: Build, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], parts: set[str]
) -> None:
    """Catches: ranks that add as many numbers as their own micro-batches have parts."""

    def seen(job: Job, **_: Any) -> None:
        assert job.parts is not None and set(job.parts) == parts
        _, batches = next(iter(job.batches(None)))
        assert all(set(batch.counts) <= parts for batch in batches) and batches
        raise Seen

    monkeypatch.setattr(module, "train", seen)
    with pytest.raises(Seen):
        pretrain(build(**changes), reporter=Reporter(quiet=True))


@pytest.mark.parametrize("clip", [0.5, None])
def test_how_a_run_is_optimised(build: Build, monkeypatch: pytest.MonkeyPatch, clip: float | None) -> None:
    def seen(job: Job, **_: Any) -> None:
        groups = job.optimizer.param_groups
        assert {group["weight_decay"] for group in groups} == {0.0, 0.07}
        assert {group["rate"] for group in groups} == {1.0, 0.3}
        assert job.settings.clip == clip
        raise Seen

    monkeypatch.setattr(module, "train", seen)
    training = {"optimizer": "muon", "adamw_rate": 0.3, "weight_decay": 0.07, "clip": clip}
    with pytest.raises(Seen):
        pretrain(build(training=training), reporter=Reporter(quiet=True))


@pytest.mark.parametrize("objective", [{}, {"kind": "causal", "pairs": "none"}], ids=["samples", "streams"])
def test_each_process_evaluates_its_share(build: Build, objective: dict[str, Any]) -> None:
    settings = build(objective=objective)

    def tokens(rank: int, size: int) -> int:
        batches, _ = module._evaluation(module._inputs(settings, World(rank, size)), Clock())
        return sum(batch.num_tokens for batch in batches)

    shares, whole = [tokens(0, 2), tokens(1, 2)], tokens(0, 1)
    assert sum(shares) == whole > 0


def test_evaluations_are_summed_over_processes(build: Build) -> None:
    heard: list[int] = []

    class Heard(World):
        def add(self, tensor: torch.Tensor) -> torch.Tensor:
            heard.append(len(tensor))
            return tensor

    _, evaluate = module._evaluation(module._inputs(build(), Heard(size=2)), Clock())
    evaluate(lambda: None)
    assert len(heard) == 1


CAUSAL = {"kind": "causal", "pairs": "none"}


@pytest.mark.parametrize(
    ("name", "value", "usual", "reader"),
    [
        ("training.decay", 0.4, 0.2, {"training": {"schedule": "wsd"}}),
        ("objective.jacobian_frequency", 0.9, 0.35, {"model": SOLVES, "objective": {"jacobian": 1.0}}),
        ("objective.short_probability", 0.9, 0.1, {"objective": {"kind": "masked"}}),
        ("model.rotary_base", 500.0, 10000.0, {"model": {"positions": "rotary"}}),
        ("model.halting_epsilon", 0.2, 0.01, {"model": {"halting": "basic"}}),
        ("model.halting_limit", "reference", "remainder", {"model": {"halting": "accumulated"}}),
        ("model.tolerance", 0.1, 0.001, {"model": SOLVES}),
    ],
)
def test_a_run_does_not_begin_with_a_setting_that_nothing_in_it_reads(
    build: Build, monkeypatch: pytest.MonkeyPatch, name: str, value: Any, usual: Any, reader: dict[str, Any]
) -> None:
    """Otherwise it would be in settings.yaml without any effect."""

    def seen(job: Job, **_: Any) -> None:
        raise Seen

    def begun(value: Any, reader: dict[str, Any]) -> None:
        part, field = name.split(".")
        changed = {**reader, part: {**reader.get(part, {}), field: value}}
        objective, change = CAUSAL | changed.get("objective", {}), {**MODEL, **changed.get("model", {})}
        more = {"training": changed["training"]} if "training" in changed else {}
        pretrain(build(model={"change": change}, objective=objective, **more), reporter=Reporter(quiet=True))

    monkeypatch.setattr(module, "train", seen)
    full = name.replace("model.", "model.change.")
    with pytest.raises(SettingsError, match=rf"^{full}: belongs to .*over a recipe write {full}={usual}$"):
        begun(value, {})
    for given, how in ((usual, {}), (value, reader)):
        with pytest.raises(Seen):
            begun(given, how)
    assert not (build().folder / "settings.yaml").exists()
