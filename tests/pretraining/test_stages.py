"""Stages of a run: which batch is of which, that the settings alone decide it, and what is refused."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import load_file

from albertine.core.settings import dump, resolve
from albertine.corpus.reader import Corpus
from albertine.errors import CheckpointError, SettingsError
from albertine.model.presets import preset
from albertine.model.sharing import SharingPlan
from albertine.objectives.batch import PretrainingBatch
from albertine.objectives.losses import pretraining_losses
from albertine.objectives.pairs import PairSettings
from albertine.objectives.unigram_baseline import count_tokens
from albertine.pretraining import run as module
from albertine.pretraining.data import PretrainingBatches, branching, held_out_batches
from albertine.pretraining.held_out import score_batches
from albertine.pretraining.initial_model import initial_model
from albertine.pretraining.run import pretrain, stage_ends
from albertine.pretraining.settings import PretrainingSettings
from albertine.pretraining.stages import check_unused_settings, resolved_stages, stage_summaries, untrained
from albertine.training import distributed
from albertine.training.alarms import TrainingAlarms
from albertine.training.checkpoints import read
from albertine.training.distributed import World
from albertine.training.job import Clock
from albertine.training.metrics import read_metrics
from albertine.training.progress import Reporter
from albertine.training.recorder import Recorder
from tests.pretraining.conftest import Build
from tests.pretraining.test_run import BASELINES, in_two_processes, run, weights

RAMP: list[dict[str, Any]] = [
    {"begin": 0, "max_length": 8},
    {"begin": 0.35, "max_length": 16},
    {"begin": 0.6},
]
"""Of 8 steps: three batches of 32 x 8, two of 16 x 16, three of 8 x 32."""


class Stopper(Reporter):
    """Sends SIGTERM after a step, which is then the last that is saved."""

    def __init__(self, stop: int) -> None:
        super().__init__(quiet=True)
        self.stop = stop

    def step(self, step: int, progress: float, left: float | None) -> None:
        if step == self.stop:
            os.kill(os.getpid(), signal.SIGTERM)


def same(a: PretrainingBatch, b: PretrainingBatch) -> bool:
    """Every tensor the same, to the bit."""
    names = ("mlm_positions", "mlm_labels", "samples")
    pairs = [(getattr(a, name), getattr(b, name)) for name in names]
    return (
        a.packed.lengths == b.packed.lengths
        and (a.sentence_labels is None) == (b.sentence_labels is None)
        and all(torch.equal(x, y) for x, y in [*pairs, (a.packed.input_ids, b.packed.input_ids)])
    )


def newest(settings: PretrainingSettings) -> Path:
    return max(
        (settings.folder / "checkpoints").glob("step-*"), key=lambda p: int(p.name.removeprefix("step-"))
    )


def batches(settings: PretrainingSettings, count: int, place: Any = None, **options: Any) -> list[Any]:
    torch.set_num_threads(1)
    return list(islice(iter(PretrainingBatches(Corpus(settings.corpus), settings, place, **options)), count))


def test_a_ramp_of_lengths_has_as_many_tokens_a_step(build: Build) -> None:
    stages = resolved_stages(build(stages=RAMP))
    assert [(s.objective.max_length, s.batch_size) for s in stages] == [(8, 32), (16, 16), (32, 8)]
    assert [s.objective.pairs for s in stages] == ["none", "none", "sop"]
    own = resolved_stages(build(stages=[{"begin": 0, "max_length": 12, "batch_size": 5, "pairs": "sop"}]))[0]
    assert (own.batch_size, own.objective.pairs) == (5, "sop")
    odd = resolved_stages(build(stages=[{"begin": 0, "max_length": 12}]))[0]
    assert (odd.batch_size, odd.objective.pairs) == (21, "none"), "21.3 samples of 12 are 8 of 32"
    causal = {"begin": 0, "causal": True, "pairs": "none"}
    pair = resolved_stages(build(stages=[causal, {**causal, "begin": 0.5, "mask_probability": 0.5}]))
    assert [stage.objective.causal_share for stage in pair] == [1, 1]
    assert [stage.objective.causal_predictions for stage in pair] == [1 / 3, 0.5]
    short = build(objective={"max_length": 16}, stages=[{"begin": 0}])
    assert resolved_stages(short)[0].objective == short.objective, "a stage that changes nothing is the run"


def test_the_stage_of_a_batch_is_a_function_of_its_step(build: Build) -> None:
    drawn = batches(build(stages=RAMP), 9)
    assert [place["stage"] for place, _ in drawn] == [0, 0, 0, 1, 1, 2, 2, 2, 2]
    assert [place["epoch"] for place, _ in drawn[:6]] == [0, 0, 0, 1, 1, 2]
    assert [place["offset"] for place, _ in drawn[:6]] == [32, 64, 96, 16, 32, 8]
    for place, parts in drawn:
        length, size = {0: (8, 32), 1: (16, 16), 2: (32, 8)}[place["stage"]]
        assert sum(b.packed.num_sequences for b in parts) == size
        assert max(b.packed.max_length for b in parts) == length
        assert all((b.sentence_labels is None) == (length < 32) for b in parts)
    keys = [tuple(key) for _, parts in drawn for b in parts for key in b.samples.tolist()]
    assert len(set(keys)) == len(keys), "no draw is made twice"


def test_a_run_through_a_ramp_and_its_interruptions(build: Build) -> None:
    """Stopped in the middle of a stage, at a border, and one step after it."""
    straight = run(build(name="straight", stages=RAMP))
    rows = [row for row in read_metrics(straight / "metrics.jsonl") if "mlm_loss" in row]
    assert [row["stage"] for row in rows] == [0, 1, 2, 2]
    assert ["sentence_loss" in row for row in rows] == [False, False, True, True]
    for stop, stage in ((2, 0), (3, 0), (4, 1), (5, 1)):
        settings = build(name=f"stopped-{stop}", stages=RAMP)
        result = pretrain(settings, reporter=Stopper(stop))
        assert not result.outcome.done
        assert read(newest(settings)).state["cursor"]["stage"] == stage
        assert weights(run(settings)) == weights(straight)


def test_the_stages_of_a_stream_resumed_anywhere(build: Build) -> None:
    settings = build(stages=RAMP)
    whole = batches(settings, 8)
    for stop in range(1, 8):
        again = batches(settings, 8 - stop, whole[stop - 1][0], clock=Clock(stop))
        for (place, left), (there, right) in zip(whole[stop:], again, strict=True):
            assert place == there
            assert all(same(a, b) for a, b in zip(left, right, strict=True))


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
@pytest.mark.parametrize("workers", [1, 3])
def test_the_stage_does_not_depend_on_how_far_ahead_batches_are_prepared(build: Build, workers: int) -> None:
    alone = batches(build(stages=RAMP), 8)
    ahead = batches(build(stages=RAMP, training={"workers": workers}), 8)
    for (place, left), (there, right) in zip(alone, ahead, strict=True):
        assert place == there
        assert all(same(a, b) for a, b in zip(left, right, strict=True))


def test_ranks_share_the_batches_of_every_stage(build: Build) -> None:
    settings = build(stages=RAMP)
    alone, *ranks = (batches(settings, 8, **o) for o in ({}, *({"rank": r, "world": 2} for r in (0, 1))))
    for (place, whole), *shares in zip(alone, *ranks, strict=True):
        assert all(there == place and parts for there, parts in shares)
        keys = [
            {tuple(k) for b in found for k in b.samples.tolist()}
            for found in (whole, *(p for _, p in shares))
        ]
        assert keys[0] == keys[1] | keys[2] and not keys[1] & keys[2]


@pytest.mark.matrix
def test_two_processes_go_through_the_same_stages(build: Build, tmp_path: Path) -> None:
    """A stage without a sentence loss on every rank; its head has no gradient."""
    change = {"change": {**build().model.change.model_dump(), "hidden_dropout_prob": 0.0}}
    stages = [{"begin": 0, "max_length": 8, "depth": 1}, {"begin": 0.4, "max_length": 16, "causal": True}]
    stages = [*stages, {"begin": 0.7}]
    one = run(build(name="one", model=change, stages=stages))
    settings = build(name="two", model=change, stages=stages)
    in_two_processes(settings, tmp_path)
    other = load_file(settings.folder / "final" / "model.safetensors")
    for name, tensor in load_file(one / "final" / "model.safetensors").items():
        assert torch.allclose(tensor, other[name], atol=2e-4), name


def test_by_the_clock_a_stage_begins_when_its_time_has_come(build: Build) -> None:
    settings = build(training={"steps": None, "minutes": 1}, stages=RAMP)
    clock = Clock()
    stream = iter(PretrainingBatches(Corpus(settings.corpus), settings, None, clock=clock))
    seen = []
    for progress in (0, 0.2, 0.35, 0.5, 0.1, 0.7):
        clock.progress = progress
        seen.append(next(stream)[0])
    assert [place["stage"] for place in seen] == [0, 0, 1, 1, 1, 2], "and never goes back"
    assert [place["epoch"] for place in seen] == [0, 0, 1, 1, 1, 2]
    again = batches(settings, 2, seen[3], clock=Clock(4, 0.0))
    assert [place["stage"] for place, _ in again] == [1, 1], (
        "the checkpoint knows it, whatever the clock messages"
    )
    assert again[0][0]["offset"] == seen[3]["offset"] + 16
    jump = batches(settings, 1, seen[1], clock=Clock(2, 0.9))[0][0]
    assert jump == {"epoch": 1, "offset": 8, "stage": 2}, "a stage can be missed"


def test_the_loop_sets_the_clock(build: Build) -> None:
    """Three minutes of training in a second: the clock is moved on by hand, a fifth of the run a step."""
    settings = build(training={"steps": None, "minutes": 3}, stages=RAMP, watching={"log_every": 1})

    class Fast(Reporter):
        def step(self, step: int, progress: float, left: float | None) -> None:
            moved[0] += 36

    moved = [0.0]
    real = Recorder.elapsed.fget
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Recorder, "elapsed", property(lambda self: real(self) + moved[0]))
        folder = pretrain(settings, reporter=Fast(quiet=True)).folder
    rows = [row for row in read_metrics(folder / "metrics.jsonl") if "lr" in row]
    # A batch is drawn before the ranks agree on its time: one step late, and the same everywhere.
    assert [row["stage"] for row in rows] == [0, 0, 0, 1, 2]


@pytest.mark.parametrize("sharing", ["all", "none"])
def test_what_joins_late_is_resumed_exactly(build: Build, sharing: str) -> None:
    """Weights that had no gradient yet have no moments; they begin with the first step that uses them."""
    stages = [{"begin": 0, "depth": 1, "pairs": "none"}, {"begin": 0.5}]
    model = {"sharing": sharing}
    first = build(name="first", model=model, stages=stages, training={"optimizer": "adamw"})
    start = initial_model(first, count_tokens(Corpus(first.corpus), 500)).state_dict()
    assert not pretrain(first, reporter=Stopper(3)).outcome.done
    saved = read(newest(first))
    late = [n for n in saved.model if n.startswith("sentence") or (sharing == "none" and ".1." in n)]
    assert late and not any(name.startswith(tuple(late)) for name in saved.optimizer)
    assert all(torch.equal(saved.model[name], start[name]) for name in late), "nor do they decay"
    straight = build(name="straight", model=model, stages=stages, training={"optimizer": "adamw"})
    assert weights(run(first)) == weights(run(straight))
    final = load_file(first.folder / "checkpoints" / "step-8" / "model.safetensors")
    assert not any(torch.equal(final[name], start[name]) for name in late if "weight" in name)


def test_a_stage_of_fewer_depths_computes_no_more(build: Build) -> None:
    settings = build(stages=[{"begin": 0, "depth": 1}], model={"change": {"hidden_dropout_prob": 0.0}})
    corpus = Corpus(settings.corpus)
    model = initial_model(settings, count_tokens(corpus, 500)).eval()
    ((_, (batch, *_)),) = batches(settings, 1)
    ((_, (whole, *_)),) = batches(build(), 1)
    assert batch.depth == 1 and whole.depth is None
    shallow = pretraining_losses(model, batch)["mlm"].loss_sum
    rows = model.encoder(batch.packed, depth=1).last_hidden[batch.mlm_positions]
    expected = torch.nn.functional.cross_entropy(model.mlm_logits(rows), batch.mlm_labels, reduction="sum")
    assert shallow.item() == pytest.approx(expected.item(), rel=1e-5)
    assert pretraining_losses(model, whole)["mlm"].loss_sum.item() != pytest.approx(shallow.item(), rel=1e-6)


def test_a_causal_stage_sees_nothing_that_comes_after(build: Build) -> None:
    settings = build(stages=[{"begin": 0, "causal": True, "pairs": "none"}])
    ((_, (batch, *_)),) = batches(settings, 1)
    model = initial_model(settings, count_tokens(Corpus(settings.corpus), 500)).eval()
    position = int(batch.mlm_positions[len(batch.mlm_positions) // 2])
    assert batch.packed.input_ids[position + 1] == batch.mlm_labels[len(batch.mlm_positions) // 2]
    logits, sentence = model.pretraining_forward(batch.packed, torch.tensor([position]), sentence=False)
    assert sentence is None
    ids = batch.packed.input_ids.clone()
    ids[position + 1 :] = 7
    hidden, _ = model.pretraining_forward(replace(batch.packed, input_ids=ids), torch.tensor([position]))
    assert torch.allclose(logits, hidden, atol=1e-6)
    ids[position] = 9
    other, _ = model.pretraining_forward(replace(batch.packed, input_ids=ids), torch.tensor([position]))
    assert not torch.allclose(logits, other, atol=1e-3)
    share = len(batch.mlm_positions) / (batch.packed.num_tokens - 2 * batch.packed.num_sequences)
    assert share == pytest.approx(1 / 3, abs=0.04)


def test_masks_of_a_stage(build: Build) -> None:
    stage = {"begin": 0, "mask_probability": 0.5, "masked": 1.0, "random": 0.0, "ngram": 1}
    mask = Corpus(build().corpus).tokenizer().mask_id
    ((_, parts),) = batches(build(stages=[stage], training={"batch_size": 64}), 1)
    for batch in parts:
        assert (batch.packed.input_ids[batch.mlm_positions] == mask).all()
    share = sum(len(b.mlm_positions) for b in parts) / sum(b.num_tokens for b in parts)
    assert share == pytest.approx(0.5, abs=0.05)


@pytest.mark.parametrize(
    ("stages", "messages"),
    [
        ([{"begin": 0.1}], "first begins at 0.1; it must begin at 0"),
        (
            [{"begin": 0}, {"begin": 0.5}, {"begin": 0.5}],
            "number 3 begins at 0.5, and the one before it at 0.5",
        ),
        ([{"begin": 0}, {"begin": 1.0}], r"`stages\.1\.begin`"),
        ([{"begin": 0, "max_length": 64}], "number 1 has max_length 64, more than objective.max_length 32"),
        ([{"begin": 0, "max_length": 7}], r"`stages\.0\.max_length`"),
        ([{"begin": 0, "causal": True}], "number 1 is causal and has pairs sop"),
        ([{"begin": 0, "pairs": "nsp"}], "number 1 has pairs nsp, and objective.pairs is sop"),
        ([{"begin": 0, "max_length": 8, "causal": True, "ngram": 1}], "masks nothing; leave out"),
        ([{"begin": 0, "max_length": 8, "causal": True, "masked": 0.5}], "masks nothing; leave out"),
        ([{"begin": 0, "max_length": 8, "causal": True, "random": 0.0}], "masks nothing; leave out"),
        ([{"begin": 0}, {"begin": 0.5, "masked": 0.95}], "number 2 has masked 0.95 and random 0.1"),
        ([{"begin": 0, "pairs": "none", "repeats": 0.1}], "number 1 has repeats and no pairs"),
        ([{"begin": 0, "max_length": 8, "repeats": 0.1}], "number 1 has repeats and no pairs"),
        ([{"begin": 0, "depth": 0}], r"`stages\.0\.depth`"),
        ([{"begin": 0, "max_lenght": 8}], "did you mean `stages.max_length`"),
        ([{"max_length": 8}], r"`stages\.0\.begin`: field required"),
    ],
    ids=str,
)
def test_stages_that_cannot_be(build: Build, stages: list[dict[str, Any]], messages: str) -> None:
    with pytest.raises(SettingsError, match=messages) as refused:
        build(stages=stages)
    assert ";" not in str(refused.value).partition("; ")[2], "one message"


def test_stages_that_train_on_something_else_are_not_judged(build: Build) -> None:
    causal, shallow, whole = {"causal": True, "pairs": "none"}, {"depth": 1}, {"depth": 3}
    stages = [{"begin": i / 4, **more} for i, more in enumerate((causal, shallow, whole, {}))]
    config = replace(preset("albert-tiny-zh"), plan=SharingPlan.shared(3))
    alarms = module._alarms(build(stages=stages), BASELINES, config)
    assert alarms.uninformative_stages == {0, 1}
    assert module._alarms(build(), BASELINES, config).uninformative_stages == set()


@pytest.mark.parametrize(("name", "uninformative"), [("albert-tiny-zh", {0, 1}), ("albertine-mini", set())])
def test_far_places_of_a_table_are_judged_from_where_they_are_trained_on(
    build: Build, name: str, uninformative: set[int]
) -> None:
    stages = [{"begin": i / 4, "max_length": n} for i, n in enumerate((8, 16, 32, 8))]
    assert module._alarms(build(stages=stages), BASELINES, preset(name)).uninformative_stages == uninformative


def test_a_stage_of_fewer_depths_is_judged_by_them_too(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("albertine.training.alarms.ONSET", -9.0)  # so that any model reads
    stages = [{"begin": 0, "depth": 1}, {"begin": 0.5}]
    settings = build(stages=stages, watching={"evaluate_every": 2, "checkpoint_every": 2})
    # Step 4 is judged by the process after it, which has drawn no batch by then.
    assert not pretrain(settings, reporter=Stopper(4)).outcome.done
    folder = run(settings)
    rows = [row for row in read_metrics(folder / "metrics.jsonl") if "evaluation" in row]
    assert [row["step"] for row in rows if "stage_mask_loss" in row["evaluation"]] == [2, 4]
    assert "nats, with the layers of its stage" in (folder / "log.txt").read_text()
    model = initial_model(settings, count_tokens(Corpus(settings.corpus), 500))
    model.load_state_dict(read(folder / "checkpoints" / "step-4").model)
    held_out = held_out_batches(settings.corpus, settings.objective, sequences=8)
    shallow = score_batches(model, [replace(batch, depth=1) for batch in held_out])["mask_loss"]
    (_, fourth, *_, last) = rows
    assert fourth["evaluation"]["stage_mask_loss"] == pytest.approx(shallow, rel=1e-5)
    assert fourth["evaluation"]["mask_loss"] == pytest.approx(
        score_batches(model, held_out)["mask_loss"], rel=1e-5
    )
    blind = last["context_gain"] + last["evaluation"]["mask_loss"]
    assert fourth["context_gain"] == pytest.approx(blind - shallow, abs=1e-4)


def test_a_branch_is_judged_as_deep_as_the_stage_it_is_in(build: Build) -> None:
    """Also before its first batch, when no position in the data names a stage."""
    stages = [{"begin": 0, "depth": 1}, {"begin": 0.5}]
    watching = {"evaluate_every": 2, "checkpoint_every": 2, "keep": 9}
    first = run(build(name="first", stages=stages, watching=watching, training={"steps": 12}))
    settings = build(name="second", stages=stages, watching=watching, training={"steps": 8})
    second = pretrain(
        settings, branch_from=first / "checkpoints" / "step-4", reporter=Reporter(quiet=True)
    ).folder
    rows = [row for row in read_metrics(second / "metrics.jsonl") if "evaluation" in row]
    assert rows[0]["step"] == 4 and not any("stage_mask_loss" in row["evaluation"] for row in rows)
    earlier = [row for row in read_metrics(first / "metrics.jsonl") if "evaluation" in row]
    assert [row["step"] for row in earlier if "stage_mask_loss" in row["evaluation"]] == [2, 4, 6]


@pytest.mark.parametrize(
    ("wrong", "right", "name"),
    [
        (
            {"masking": {"ngram": 1, "favor_shorter": False}},
            {"masking": {"ngram": 2, "favor_shorter": False}},
            "objective.masking.favor_shorter",
        ),
        (
            {"kind": "causal", "pairs": "none", "reference_defects": True},
            {"reference_defects": True},
            "objective.reference_defects",
        ),
        (
            {"pairs": "none", "reference_defects": True},
            {"pairs": "none", "memory": 16, "reference_defects": True},
            "objective.reference_defects",
        ),
        (
            {"distillation": {"teacher": "x", "soft": 0.0, "temperature": 8.0}},
            {"distillation": {"teacher": "x", "temperature": 8.0}},
            "objective.distillation.temperature",
        ),
    ],
)
def test_a_setting_that_nothing_reads_is_refused(build: Build, wrong: Any, right: Any, name: str) -> None:
    config = preset("albert-tiny-zh")
    with pytest.raises(SettingsError, match=rf"^{name}: belongs to .*nothing in this run reads it"):
        check_unused_settings(build(objective=wrong), config)
    check_unused_settings(build(objective=right), config)
    if "favor_shorter" in name:
        check_unused_settings(
            build(objective=wrong, stages=[{"begin": 0}, {"begin": 0.5, "ngram": 3}]), config
        )


def test_repeats_need_pairs_and_wait_for_them(build: Build) -> None:
    with pytest.raises(SettingsError, match=r"an excerpt is a second segment; set objective\.pairs"):
        build(objective={"pairs": "none", "repeats": 0.1})
    objective = {"pairs": "sop", "max_length": 32, "repeats": 0.1}
    stages = [{"begin": 0, "max_length": 8}, {"begin": 0.5}, {"begin": 0.8, "repeats": 0.5}]
    settings = build(objective=objective, stages=stages)
    assert [stage.objective.repeats for stage in resolved_stages(settings)] == [0.0, 0.1, 0.5]
    assert "10% repeats" in stage_summaries(settings)[1] and "repeats" not in stage_summaries(settings)[0]


def test_a_stage_has_no_pairs_that_the_run_has_no_head_for(build: Build) -> None:
    with pytest.raises(SettingsError, match=r"number 2 has pairs sop, and objective\.pairs is none"):
        build(objective={"pairs": "none"}, stages=[{"begin": 0}, {"begin": 0.5, "pairs": "sop"}])


def test_masked_and_random_are_shares_of_one_whole(build: Build) -> None:
    with pytest.raises(SettingsError, match=r"`objective\.masking`: masked 0\.8 and random 0\.3"):
        build(objective={"masking": {"random": 0.3}})


def test_stages_that_this_run_cannot_have(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SettingsError, match="number 2 computes 3 layers, and the encoder has 2"):
        run(build(stages=[{"begin": 0}, {"begin": 0.5, "depth": 3}]))
    long = build(objective={"max_length": 600}, stages=RAMP)
    with pytest.raises(SettingsError, match=r"max_length 600 is more than the \d+ positions"):
        run(long)
    monkeypatch.setattr(module, "start", lambda: World(rank=0, size=9))
    monkeypatch.setattr(distributed, "stop", lambda world, **_: None)
    with pytest.raises(SettingsError, match="batch_size of stage 3 is 8, fewer sequences than the 9"):
        run(build(stages=RAMP))
    assert not build().folder.exists(), "nothing was written"


CAUSAL: dict[str, Any] = {"begin": 0, "causal": True, "pairs": "none"}
LEFT: list[tuple[list[dict[str, Any]], dict[str, Any], list[str]]] = [
    ([CAUSAL, {"begin": 0.9}], {}, ["number 2 (from 0.9)", "causal", "head"]),
    ([{"begin": 0, "depth": 1}], {}, ["computes 1 layers only, and the saved model 4 layers"]),
    ([{"begin": 0}, {"begin": 0.5, "depth": 4}], {}, []),
    ([{"begin": 0, "max_length": 8, "pairs": "sop"}], {}, ["more than 8 tokens"]),
    ([{"begin": 0, "max_length": 8}, {"begin": 0.3}, {"begin": 0.5, "max_length": 8}], {}, []),
    ([{"begin": 0, "pairs": "none"}], {}, ["head for sentence pairs (sop)"]),
    ([{"begin": 0, "pairs": "none"}], {"objective": {"pairs": "none"}}, []),
    ([{"begin": 0}, {"begin": 0.875}], {}, []),
    ([{"begin": 0}, {"begin": 0.876}], {}, ["none of 8 steps is of number 2 (from 0.876)"]),
    ([{"begin": 0}, {"begin": 0.9}], {"training": {"steps": None, "minutes": 1}}, []),
    (RAMP, {}, []),
    ([], {}, []),
]


@pytest.mark.parametrize(("stages", "changes", "messages"), LEFT)
def test_what_the_stages_leave_untrained_is_reported(
    build: Build, stages: list[dict[str, Any]], changes: dict[str, Any], messages: list[str]
) -> None:
    config = preset("albert-tiny-zh")
    assert config.num_hidden_layers == 4 and config.positions == "learned"
    lines = untrained(build(stages=stages, **changes), config)
    assert len(lines) == len(messages) and all(map(str.__contains__, lines, messages)), lines
    assert all(line.startswith("stages: ") and "; " in line for line in lines), "and what to do"


def test_only_what_begins_at_random_is_left_untrained(build: Build) -> None:
    settings = build(stages=[{**CAUSAL, "max_length": 8, "depth": 1}])
    assert len(untrained(settings, preset("albert-tiny-zh"))) == 4
    assert ["causal" in line for line in untrained(settings, None)] == [True]
    rotary = untrained(settings, preset("albertine-mini"))
    assert not any("8 tokens" in line for line in rotary) and len(rotary) == 3
    solved = replace(preset("albert-tiny-zh"), solver="anderson", input_injection=True)
    assert any("the fixed point" in line for line in untrained(settings, solved))


def test_a_run_reports_layers_that_its_stages_leave_untrained(build: Build) -> None:
    folder = run(build(stages=[{"begin": 0, "pairs": "none"}], training={"steps": 2}))
    assert (folder / "log.txt").read_text().count("stages: none has pairs, so the head") == 1


def test_a_run_without_stages(build: Build) -> None:
    """Neither cursor nor metrics name a stage."""
    folder = run(build(training={"steps": 1}))
    state = read(folder / "checkpoints" / "step-1").state
    assert set(state["cursor"]) == {"epoch", "offset"}
    assert not any("stage" in row for row in read_metrics(folder / "metrics.jsonl"))
    with pytest.raises(CheckpointError, match=r"stages: checkpoint \[\], now \["):
        run(build(training={"steps": 1}, stages=RAMP))
    with pytest.raises(CheckpointError, match=r"masking\.random: checkpoint 0\.1, now 0\.0"):
        run(build(training={"steps": 1}, objective={"masking": {"random": 0.0}}))


def test_stages_survive_being_written_down(build: Build) -> None:
    settings = build(stages=[{**RAMP[0], "random": 0.0}, *RAMP[1:]])
    tree = yaml.safe_load(dump(settings))
    assert resolve(PretrainingSettings, tree) == settings
    assert tree["stages"] == [{"begin": 0.0, "max_length": 8, "random": 0.0}, *RAMP[1:]]


def test_a_branch_begins_the_stages_that_are_due(build: Build) -> None:
    plain = run(build(name="plain", training={"steps": 4}))
    saved = read(plain / "checkpoints" / "step-4").state["cursor"]
    staged = run(build(name="staged", stages=RAMP), branch_from=plain / "checkpoints" / "step-4")
    first = read(staged / "checkpoints" / "step-4").state["cursor"]
    assert first == {"epoch": saved["epoch"] + 1, "offset": 0}
    rows = [row for row in read_metrics(staged / "metrics.jsonl") if "lr" in row]
    assert [(row["step"], row["stage"]) for row in rows] == [(6, 2), (8, 2)]
    differences = json.loads((staged / "branch.json").read_text())["differences"]
    assert differences["stages"]["now"] == RAMP
    longer = build(name="longer", stages=RAMP, training={"steps": 20}, watching={"log_every": 1})
    drawn = run(longer, branch_from=staged / "checkpoints" / "step-6")
    rows = [row for row in read_metrics(drawn / "metrics.jsonl") if "lr" in row]
    assert [row["stage"] for row in rows] == [0] + 5 * [1] + 8 * [2], "shares of the longer run"
    back = run(build(name="back", training={"steps": 8}), branch_from=staged / "checkpoints" / "step-6")
    assert set(read(back / "checkpoints" / "step-8").state["cursor"]) == {"epoch", "offset"}


def test_a_branch_goes_on_in_the_stage_of_its_checkpoint(build: Build) -> None:
    """In the middle of a stage, and where one ends: it gets the batches of the run, to the bit."""
    watching = {"checkpoint_every": 1, "keep": 9, "log_every": 1}
    whole = run(build(name="whole", stages=RAMP, watching=watching))
    expected = batches(build(stages=RAMP), 8)
    for step in (1, 3, 4, 5):
        settings = build(name=f"at-{step}", stages=RAMP, training={"learning_rate": 0.005}, watching=watching)
        branch = run(settings, branch_from=whole / "checkpoints" / f"step-{step}")
        begun, ended = (read(branch / "checkpoints" / f"step-{n}").state["cursor"] for n in (step, 8))
        assert ended == expected[-1][0]
        drawn = batches(settings, 8 - step, begun, clock=Clock(step))
        for (place, left), (there, right) in zip(drawn, expected[step:], strict=True):
            assert place == there and all(same(a, b) for a, b in zip(left, right, strict=True))


@pytest.mark.parametrize(
    ("changes", "kept"),
    [
        ({"stages": RAMP}, True),
        ({"stages": [RAMP[0], {**RAMP[1], "begin": 0.3}, RAMP[2]]}, True),
        ({"stages": [RAMP[0], {**RAMP[1], "max_length": 12}, RAMP[2]]}, False),
        ({"stages": RAMP, "training": {"steps": 20}}, False),
        ({"stages": RAMP, "training": {"steps": 10}}, True),
        ({"stages": [{"begin": 0}]}, False),
        ({}, False),
    ],
)
def test_the_place_of_a_branch_is_kept_where_its_samples_are_cut_alike(
    build: Build, changes: dict[str, Any], kept: bool
) -> None:
    old = {"stages": [stage.model_dump(mode="json") for stage in build(stages=RAMP).stages]}
    settings = build(**changes)
    place = {"epoch": 1, "offset": 16, "stage": 1}
    done = 4 / (settings.training.steps or 0)
    rules = branching(Corpus(settings.corpus), settings)
    assert rules.cursor(place, old, done) == (place if kept else {"epoch": 2, "offset": 0})
    assert rules.cursor({**place, "offset": 10**9}, old, done) == {"epoch": 2, "offset": 0}


def test_pictures_show_where_stages_end(build: Build) -> None:
    folder = run(build(stages=RAMP, watching={"log_every": 1}))
    assert stage_ends(folder / "metrics.jsonl") == [3, 5]
    assert stage_ends(run(build(name="plain")) / "metrics.jsonl") == []


def test_alarms_do_not_compare_stages() -> None:
    def alarms(*stages: Any) -> list[str]:
        alarms = TrainingAlarms(6.0, 1e-3, 8, total_steps=4000, patience=200)
        found = []
        for step in range(0, 4000, 20):
            half = step >= 2000
            row = {"step": step, "mlm_loss": 5.0 if half else 3.0, "mlm_accuracy": 0.1 if half else 0.4}
            found += alarms.update({**row, "stage": stages[half]}, step / 4000)
        return [alarm.kind for alarm in found]

    assert alarms(0, 0) == ["collapse"]
    assert alarms(0, 1) == []


def test_every_choice_of_pairs_reaches_the_samples(build: Build) -> None:
    """The setting has an effect beyond the fingerprint."""
    objective = {"short_probability": 0.4, "reference_defects": True, "repeats": 0.3}
    settings = build(objective=objective, stages=[{"begin": 0}, {"begin": 0.5, "repeats": 0.9}])
    made = PretrainingBatches(Corpus(settings.corpus), settings, None)
    assert made.builder.pairs == PairSettings("sop", 32, 0.4, True, 0.3)
    assert made._use(1).pairs == PairSettings("sop", 32, 0.4, True, 0.9)
