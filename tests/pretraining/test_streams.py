"""Runs with contiguous streams: their batches, their memory, and that none of it is lost."""

from __future__ import annotations

import hashlib
import math
import os
import re
import signal
import subprocess
import sys
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import albertine
from albertine.cli.app import run as run_command
from albertine.core.settings import dump
from albertine.corpus.reader import Corpus
from albertine.errors import CheckpointError, CorpusError, ModelError, SettingsError
from albertine.interop.heads import left_to_right
from albertine.interop.huggingface.folders import load_model, read_folder, save_model
from albertine.model.model import Model, evaluating
from albertine.model.presets import preset
from albertine.model.two_streams import predict_segments
from albertine.objectives.prediction_spans import SpanSettings
from albertine.objectives.stream_batch import StreamBatch, StreamBuilder
from albertine.objectives.stream_losses import StreamLoss, read_batch, segments_of
from albertine.objectives.unigram_baseline import Unigram, count_tokens
from albertine.pretraining.data import predicted_counts
from albertine.pretraining.held_out import score_streams
from albertine.pretraining.initial_model import initial_model
from albertine.pretraining.run import _alarms, fingerprint, pretrain
from albertine.pretraining.scores import objective_of, open_pretrained
from albertine.pretraining.settings import PretrainingSettings
from albertine.pretraining.stages import check_processes
from albertine.pretraining.stream_data import StreamBatches, held_out_streams, micro_batch_lanes
from albertine.training.checkpoints import read
from albertine.training.metrics import read_metrics
from albertine.training.progress import Reporter
from tests.pretraining.conftest import Build
from tests.pretraining.test_run import BASELINES
from tests.toy import MODEL

XLNET = {"reuse": 16, "both_directions": True}
KINDS = {
    "causal": {"kind": "causal", "memory": 24},
    "masked": {"kind": "masked", "memory": 24},
    "permutation": {"kind": "permutation", "memory": 24, "permutation": XLNET},
}
PLAIN = {"kind": "causal", "memory": 0}


def settings_of(
    build: Build, kind: str = "causal", *, dropout: float = 0.1, **changes: Any
) -> PretrainingSettings:
    change = {**MODEL, "positions": "relative", "hidden_dropout_prob": dropout}
    objective = {"max_length": 32, "pairs": "none", **KINDS.get(kind, PLAIN), **changes.pop("objective", {})}
    model = {"change": change, **changes.pop("model", {})}
    return build(model=model, objective=objective, **changes)


def run(settings: PretrainingSettings) -> Path:
    result = pretrain(settings, reporter=Reporter(quiet=True))
    assert result.outcome.done
    return result.folder


def digest(folder: Path) -> str:
    return hashlib.sha256((folder / "final" / "model.safetensors").read_bytes()).hexdigest()


def corpus_of(settings: PretrainingSettings) -> Corpus:
    return Corpus(settings.corpus)


def model_of(settings: PretrainingSettings) -> Model:
    import numpy as np

    return initial_model(settings, np.ones(corpus_of(settings).manifest.vocab_size, dtype=np.int64))


def same(one: StreamBatch, two: StreamBatch) -> bool:
    return one.lanes == two.lanes and all(
        torch.equal(getattr(one, name), getattr(two, name))
        for name in ("mlm_positions", "mlm_labels", "samples")
    )


@pytest.mark.parametrize("kind", list(KINDS))
def test_batches_do_not_depend_on_workers_processes_or_restarts(build: Build, kind: str) -> None:
    settings = settings_of(build, kind)
    corpus = corpus_of(settings)
    straight = list(islice(StreamBatches(corpus, settings, None), 7))
    workers = settings.model_copy(update={"training": settings.training.model_copy(update={"workers": 2})})
    for other in (
        list(islice(StreamBatches(corpus, workers, None), 7)),
        [*straight[:3], *islice(StreamBatches(corpus, settings, straight[2][0]), 4)],
    ):
        for (place, parts), (there, others) in zip(straight, other, strict=True):
            assert place == there and len(parts) == len(others) == 3
            assert all(same(a, b) for a, b in zip(parts, others, strict=True))  # type: ignore[arg-type]
    halves = [list(islice(StreamBatches(corpus, settings, None, rank, 2), 7)) for rank in (0, 1)]
    for step, (_, parts) in enumerate(straight):
        whole = by_lane(parts)
        shares = [by_lane(half[step][1]) for half in halves]
        assert [sorted(share) for share in shares] == [[0, 1, 2, 3], [4, 5, 6, 7]]
        assert whole == shares[0] | shares[1]


def by_lane(parts: Any) -> dict[int, list[int]]:
    """The tokens of every lane of some micro-batches."""
    return {
        lane: ids.tolist()
        for part in parts
        for lane, ids in zip(part.lanes, part.packed.input_ids.split(part.packed.lengths), strict=True)
    }


def test_sequences_of_one_direction_are_neighbours(build: Build) -> None:
    """Only these are computed together; the streams of a causal run stay as they are."""
    settings = settings_of(build, "permutation", training={"micro_batch_tokens": 4 * 32})
    _, parts = next(iter(StreamBatches(corpus_of(settings), settings, None)))
    batches = [*parts, *held_out_streams(settings.corpus, settings.objective, sequences=16)]
    lanes = [batch.lanes for batch in batches]  # type: ignore[attr-defined]
    assert lanes[:3] == [(0, 2, 1, 3), (4, 6, 5, 7), (0, 2, 4, 6, 1, 3, 5, 7)]
    for batch in batches:
        half = len(batch.lanes) // 2  # type: ignore[attr-defined]
        assert batch.backward == (False,) * half + (True,) * half  # type: ignore[attr-defined]
    _, parts = next(iter(StreamBatches(corpus_of(settings), settings_of(build), None)))
    assert [part.lanes for part in parts] == [(0, 1, 2), (3, 4, 5), (6, 7)]  # type: ignore[attr-defined]


def test_an_epoch_ends_and_the_next_begins(build: Build) -> None:
    settings = settings_of(build)
    streams = StreamBatches(corpus_of(settings), settings, None)
    last = streams.builder.segments
    streams.cursor = {"epoch": 0, "segment": last - 1}
    places = [place for place, _ in islice(streams, 3)]
    assert [tuple(p.values()) for p in places] == [(0, last), (1, 1), (1, 2)]
    streams.cursor = {"epoch": 0, "segment": last + 1}
    with pytest.raises(CorpusError, match="is at segment"):
        next(iter(streams))


def test_lanes_stay_in_their_micro_batch() -> None:
    assert micro_batch_lanes(8, 0, 1, 32, 100) == [[0, 1, 2], [3, 4, 5], [6, 7]]
    assert [micro_batch_lanes(5, rank, 2, 32, 1000) for rank in (0, 1)] == [[[0, 1, 2]], [[3, 4]]]
    assert micro_batch_lanes(2, 0, 1, 512, 100) == [[0], [1]], "a segment longer than a micro-batch is alone"


def builder(settings: PretrainingSettings, **objective: Any) -> StreamBuilder:
    choice = settings.objective.model_copy(update=objective)
    return StreamBuilder(corpus_of(settings), choice.streams(4), 7)


@pytest.mark.parametrize("memory", [64, 0])
def test_short_segments_with_memory_are_one_long_segment(build: Build, memory: int) -> None:
    """Causal, and a memory of all that came before: the same loss in pieces of 16 as in one of 64."""
    settings = settings_of(build, dropout=0.0)
    model = model_of(settings)
    with torch.no_grad():
        for parameter in model.parameters():  # fresh ones look at nothing in particular
            parameter.mul_(8)
    short, long = builder(settings, max_length=16), builder(settings, max_length=64)
    with torch.no_grad(), evaluating(model):
        loss = StreamLoss(model.config, memory, 4)
        pieces = []
        for segment in range(4):
            pieces.append(float(loss(model, short.build(0, segment, range(4)))["mlm"].loss_sum))
            loss.settle()
        whole = float(StreamLoss(model.config, 0, 4)(model, long.build(0, 0, range(4)))["mlm"].loss_sum)
    gap = abs(sum(pieces) - whole) / whole
    assert gap < 1e-6 if memory else gap > 1e-4


@pytest.mark.parametrize("kind", list(KINDS))
def test_micro_batches_carry_their_lanes_memory(build: Build, kind: str) -> None:
    settings = settings_of(build, kind, dropout=0.0)
    model, streams = model_of(settings), builder(settings)
    cuts = ([[0, 1, 2, 3]], [[0, 1], [2, 3]], [[0], [1, 2], [3]], [[0, 2, 1, 3]])
    losses = [StreamLoss(model.config, 24, 4) for _ in cuts]
    with torch.no_grad(), evaluating(model):
        for segment in range(3):
            sums = []
            for loss, cut in zip(losses, cuts, strict=True):
                parts = [loss(model, streams.build(0, segment, lanes))["mlm"] for lanes in cut]
                sums.append(float(sum(part.loss_sum for part in parts)))
                loss.settle()
            assert sums == pytest.approx([sums[0]] * 4, rel=1e-6)
    kept = [loss.tensors() for loss in losses]
    for other in kept[1:]:
        assert other.keys() == kept[0].keys() == {"0", "1", "lengths"}
        for name, value in other.items():
            torch.testing.assert_close(value, kept[0][name], rtol=1e-5, atol=1e-6)
    advance = 16 if kind == "permutation" else 32
    assert kept[0]["lengths"].tolist() == [min(24, 3 * advance)] * 4
    with torch.no_grad(), evaluating(model):  # checkpoints of other orders are gone on with
        sums = []
        for loss, (lanes, *_) in ((losses[0], cuts[0]), (losses[-1], cuts[-1])):
            loss.restore(kept[0])
            sums.append(float(loss(model, streams.build(0, 3, lanes))["mlm"].loss_sum))
        assert sums[1] == pytest.approx(sums[0], rel=1e-6)


def test_a_discarded_step_leaves_no_memory(build: Build) -> None:
    settings = settings_of(build, dropout=0.0)
    model, streams = model_of(settings), builder(settings)
    loss = StreamLoss(model.config, 24, 4)
    with torch.no_grad(), evaluating(model):
        loss(model, streams.build(0, 0, range(4)))
        assert loss.tensors() == {}, "not yet settled"
        loss.settle()
        before = loss.tensors()
        twice = [float(loss(model, streams.build(0, 1, range(4)))["mlm"].loss_sum) for _ in range(2)]
        assert twice[0] == twice[1]
        assert all(torch.equal(loss.tensors()[name], value) for name, value in before.items())
        again = StreamLoss(model.config, 24, 4)
        again.restore(before)
        assert float(again(model, streams.build(0, 1, range(4)))["mlm"].loss_sum) == twice[0]
        alone = StreamLoss(model.config, 24, 4)
        assert float(alone(model, streams.build(0, 1, range(4)))["mlm"].loss_sum) != twice[0]


@pytest.mark.parametrize("kind", [*KINDS, "plain"])
def test_a_run_of_each_kind(build: Build, kind: str) -> None:
    settings = settings_of(build, kind, watching={"evaluate_sequences": 32})
    folder = run(settings)
    final = load_model(folder / "final")
    assert ("lm" in final.heads) == (kind != "masked") and ("mlm" in final.heads) == (kind == "masked")
    causal = {left_to_right(read_folder(folder / name)) for name in ("best", "final")}
    assert causal == {kind in ("causal", "plain")}
    scores = [row["evaluation"] for row in read_metrics(folder / "metrics.jsonl") if "evaluation" in row][-1]
    memory = settings.objective.memory
    batches = held_out_streams(settings.corpus, settings.objective, sequences=32)
    assert len(batches) == 4
    assert score_streams(final, batches, memory=memory) == pytest.approx(scores, abs=1e-6)
    saved = read(folder / "checkpoints" / "step-8").optimizer
    carried = {name for name in saved if name.startswith("carried/")}
    assert carried == ({"carried/0", "carried/1", "carried/lengths"} if memory else set())
    shown = [line for line in (folder / "log.txt").read_text().splitlines() if "held out:" in line]
    losses = {"masked": {"mlm loss", "mask loss"}, "permutation": {"plm loss"}}
    assert shown and set(re.findall(r"\w+ loss", shown[-1])) == losses.get(kind, {"lm loss"})


def test_the_unigram_baseline_counts_document_ends(build: Build) -> None:
    """A causal objective predicts the [SEP] behind every document, which no text has in it."""
    settings = settings_of(build)
    corpus = corpus_of(settings)
    sep, size = corpus.tokenizer().sep_id, corpus.manifest.vocab_size
    counts = count_tokens(corpus, size)
    assert counts[sep] == 0
    counts[sep] = corpus.num_documents
    baseline = Unigram(counts).score_batches(
        held_out_streams(settings.corpus, settings.objective, sequences=64)
    )
    result = pretrain(settings_of(build, watching={"evaluate_sequences": 64}), reporter=Reporter(quiet=True))
    assert result.baseline == baseline
    scores = albertine.score(result.folder / "final", settings.corpus, sequences=64)["lm"]
    assert scores["baseline_loss"] == baseline.cross_entropy
    for kind in ("masked", "permutation"):  # they never predict one
        objective = settings_of(build, kind).objective
        assert predicted_counts(corpus, objective, size)[sep] == 0


def test_held_out_lanes_are_judged_alike_by_any_number_of_processes(build: Build) -> None:
    settings = settings_of(build)
    model, objective = model_of(settings), settings.objective
    shares: list[torch.Tensor] = []

    def add(sums: torch.Tensor) -> torch.Tensor:
        shares.append(sums)
        return torch.stack(shares).sum(0)

    whole = held_out_streams(settings.corpus, objective, sequences=64)
    assert len(whole) > 3 and whole[0].lanes == tuple(range(len(whole[0].lanes)))
    one = score_streams(model, whole, memory=24)
    for rank in (0, 1, 2):
        part = held_out_streams(settings.corpus, objective, sequences=64, rank=rank, world=3)
        three = score_streams(model, part, memory=24, add_up=add)
    assert three == pytest.approx(one, rel=1e-6)
    assert score_streams(model, whole, memory=0)["mlm_loss"] != one["mlm_loss"]
    assert score_streams(model, whole, memory=24) == one, "its memory begins empty"


def test_a_longer_memory_and_a_reach_are_another_evaluation(build: Build) -> None:
    settings = settings_of(build)
    model = model_of(settings)
    batches = held_out_streams(settings.corpus, settings.objective, sequences=32)
    found = [
        score_streams(model, batches, memory=m, reach=r)["mlm_loss"]
        for m, r in ((24, None), (96, None), (96, 24))
    ]
    assert len(set(found)) == 3
    with torch.no_grad(), evaluating(model):
        _, kept = read_batch(model, batches[0], None, 96)
        _, kept = read_batch(model, batches[1], kept, 96)
    assert kept.lengths == (64,) * len(batches[0].lanes)


def test_score_takes_a_longer_memory(build: Build) -> None:
    """Transformer-XL's evaluation by the command's function: segments of 8, up to four times the memory."""
    settings = settings_of(build)
    folder = run(settings)
    scores = {
        m: albertine.score(folder / "final", settings.corpus, max_length=8, sequences=64, memory=m)["lm"]
        for m in (None, 24, 96)
    }
    assert (
        scores[None] == scores[24] and scores[24]["memory"] == 24 and scores[96]["loss"] != scores[24]["loss"]
    )
    assert math.log(scores[96]["perplexity"]) == pytest.approx(scores[96]["loss"])
    assert 2 ** scores[96]["bits"] == pytest.approx(scores[96]["perplexity"])
    assert scores[96]["segment"] == 8
    near = albertine.score(folder / "final", settings.corpus, max_length=8, sequences=64, reach=0)["lm"]
    assert near["loss"] not in {each["loss"] for each in scores.values()}
    how = {"max_length": 8, "sequences": 64, "memory": 96}
    far, clamped = (
        albertine.score(folder / "final", settings.corpus, clamp=c, **how)["lm"] for c in (103, 9)
    )
    assert far == scores[96], "no distance is larger"
    assert clamped["loss"] not in {near["loss"], far["loss"]}
    with pytest.raises(ModelError, match="predicts next tokens"):
        albertine.score(folder / "final", texts=[Path(__file__)])


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_stopped_run_with_memory_resumes_exactly(build: Build, precision: str) -> None:
    training = {"precision": precision}
    straight = run(settings_of(build, "permutation", name="straight", training=training))
    settings = settings_of(build, "permutation", name="stopped", training=training)

    class Stopper(Reporter):
        def step(self, step: int, progress: float, left: float | None) -> None:
            if step == 5:
                os.kill(os.getpid(), signal.SIGTERM)

    stopped = pretrain(settings, reporter=Stopper(quiet=True))
    assert stopped.outcome.exit_code == 143 and not (stopped.folder / "final").exists()
    assert digest(run(settings)) == digest(straight)
    saved = read(straight / "checkpoints" / "step-8").optimizer["carried/1"]
    assert str(saved.dtype) == f"torch.{precision}", "as it was computed, no larger and no coarser"


def command(settings: PretrainingSettings, file: Path, *words: str) -> subprocess.Popen[bytes]:
    file.write_text(dump(settings), encoding="utf-8")
    line = [sys.executable, "-m", "albertine", "pretrain", "--config", str(file), *words]
    names = {k: v for k, v in os.environ.items() if k not in ("WORLD_SIZE", "RANK")} | {
        "OMP_NUM_THREADS": "1"
    }
    return subprocess.Popen(line, env=names, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def ended(process: subprocess.Popen[bytes]) -> None:
    _, err = process.communicate(timeout=180)
    assert process.returncode == 0, err.decode()


def test_a_killed_run_ends_with_the_same_bits(build: Build) -> None:
    """SIGKILL after a checkpoint; memory and place in the text are in it."""
    training = {"steps": 12, "threads": 1}
    settings = settings_of(build, "permutation", name="killed", training=training)

    class Killer(Reporter):
        def step(self, step: int, progress: float, left: float | None) -> None:
            if step == 8:
                os.kill(os.getpid(), signal.SIGKILL)

    child = os.fork()
    if child == 0:
        try:
            pretrain(settings, reporter=Killer(quiet=True))
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert (settings.folder / "checkpoints" / "step-6" / "manifest.json").is_file()
    assert not (settings.folder / "final").exists()
    other = settings_of(build, "permutation", name="straight", training=training)
    assert digest(run(settings)) == digest(run(other))
    last = [(one.folder / "checkpoints" / "step-12" / "optimizer.safetensors") for one in (settings, other)]
    assert last[0].read_bytes() == last[1].read_bytes(), "the memories too"
    assert len(read_metrics(settings.folder / "metrics.jsonl")) == len(
        read_metrics(other.folder / "metrics.jsonl")
    )


@pytest.mark.matrix
def test_processes_are_one_run(build: Build, tmp_path: Path) -> None:
    """With gradient accumulation: the losses of two and four processes are those of one, and one process
    resumes a run of two, because a checkpoint holds the memory of all lanes in their order, whichever rank
    had them."""
    training = {"learning_rate": 0.002, "threads": 1}
    one, two, four, on = (
        settings_of(build, "permutation", dropout=0.0, name=name, training=training)
        for name in ("one", "two", "four", "on")
    )
    for settings, processes in ((two, "2"), (four, "4")):
        ended(command(settings, tmp_path / f"{processes}.yaml", "--processes", processes))
    run(one)
    halfway = two.folder / "checkpoints" / "step-3"
    assert pretrain(on, resume=halfway, reporter=Reporter(quiet=True)).outcome.done
    scores, states = [], []
    for settings in (one, two, four, on):
        rows = read_metrics(settings.folder / "metrics.jsonl")
        judged = [row["evaluation"]["mlm_loss"] for row in rows if "evaluation" in row]
        scores.append([row["mlm_loss"] for row in rows if "mlm_loss" in row][-3:] + judged)
        states.append(load_file(settings.folder / "checkpoints" / "step-8" / "optimizer.safetensors"))
    assert all(found == pytest.approx(scores[0], rel=1e-6) for found in scores[1:])
    for name in ("carried/0", "carried/1", "carried/lengths"):
        for other in states[1:]:
            torch.testing.assert_close(states[0][name], other[name], rtol=1e-3, atol=1e-3)


def test_a_branch_keeps_its_text_and_memory(build: Build) -> None:
    origin = run(settings_of(build, name="origin")) / "checkpoints" / "step-6"
    longer = settings_of(build, name="longer", training={"steps": 10})
    assert pretrain(longer, branch_from=origin, reporter=Reporter(quiet=True)).outcome.step == 10
    for changes in ({"objective": {"memory": 8}}, {"training": {"batch_size": 4}}):
        other = settings_of(build, name="other", **changes)  # type: ignore[arg-type]
        with pytest.raises(CheckpointError, match="cannot be branched"):
            pretrain(other, branch_from=origin, reporter=Reporter(quiet=True))


@pytest.mark.parametrize(
    ("objective", "more", "scores"),
    [
        (
            {"memory": 8, "pairs": "sop"},
            {},
            "objective.memory is.*pairs sop are single.*set objective.pairs: none",
        ),
        ({"kind": "causal", "pairs": "nsp"}, {}, "objective.kind causal is.*set objective.pairs: none"),
        ({"kind": "causal", "permutation": {"reuse": 8}}, {}, "belongs to objective.kind permutation"),
        ({"kind": "permutation", "permutation": {"block": 5}}, {}, "block of 5 does not divide.*such as 32"),
        (
            {"kind": "permutation", "permutation": {"both_directions": True}},
            {"training": {"batch_size": 7}},
            "7 sequences cannot be read in both directions.*Make it even",
        ),
        ({"kind": "permutation", "permutation": {"reuse": 30}}, {}, "no room for two pieces"),
        ({"kind": "permutation", "permutation": {"predictions": 33}}, {}, "33 predictions"),
        ({"kind": "permutation", "permutation": {"beta": 7}}, {}, "no context"),
        ({"kind": "permutation", "permutation": {"reuse": 15}}, {}, "blocks of one token alone in common"),
        (
            {"kind": "causal", "masking": {"probability": 0.3, "ngram": 1}},
            {},
            r"masking belongs to.*write objective.masking.probability=0.15, objective.masking.ngram=3$",
        ),
        (
            {"kind": "causal", "masking": {"ngram": 1}, "distillation": {"teacher": "t"}},
            {},
            "distillation needs masked tokens",
        ),
        ({"kind": "causal"}, {"stages": [{"begin": 0}]}, "leave stages out"),
    ],
)
def test_what_does_not_fit_is_reported(build: Build, objective: Any, more: Any, scores: str) -> None:
    with pytest.raises(SettingsError, match=scores):
        settings_of(build, "other", objective={"kind": "masked", "memory": 0, **objective}, **more)


def test_an_encoder_without_relative_positions_is_reported(build: Build) -> None:
    change = {**MODEL, "positions": "rotary"}
    with pytest.raises(SettingsError, match=r"need relative positions.*rotary.*positions: relative"):
        pretrain(settings_of(build, model={"change": change}))


ANY = {
    "rotary": {"positions": "rotary"},
    "learned": {"positions": "learned"},
    "halting": {"positions": "rotary", "halting": "basic"},
    "solving": {"positions": "rotary", "solver": "anderson", "input_injection": True},
}


@pytest.mark.parametrize("name", ANY)
def test_what_is_before_a_token_any_encoder_looks_at(build: Build, name: str, tmp_path: Path) -> None:
    objective = {"kind": "causal", "memory": 0, **({"ponder": 0.5} if name == "halting" else {})}
    model = {"change": {**MODEL, **ANY[name]}, "sharing": "all" if name in ("halting", "solving") else "none"}
    settings = settings_of(build, "plain", model=model, objective=objective)
    folder = run(settings)
    found = read_folder(folder / "final")
    assert found.model.heads == {"lm"} and left_to_right(found)
    rows = [row for row in read_metrics(folder / "metrics.jsonl") if "evaluation" not in row]
    assert all(
        ("ponder_loss" in row, "converged" in row) == (name == "halting", name == "solving") for row in rows
    )
    scores = albertine.score(folder / "final", settings.corpus, sequences=32)["lm"]
    batches = held_out_streams(settings.corpus, settings.objective, sequences=32)
    assert scores["loss"] == pytest.approx(score_streams(found.model, batches, memory=0)["mlm_loss"])
    with torch.no_grad(), evaluating(found.model):
        batch = replace(batches[0].packed, prefix=(1,) * batches[0].packed.num_sequences)
        before = found.model.encoder(batch).last_hidden[:20]
        ids = batch.input_ids.clone()
        ids[20] = 5 + (ids[20] - 4) % 20
        after = found.model.encoder(replace(batch, input_ids=ids)).last_hidden[:21]
    torch.testing.assert_close(after[:20], before, atol=1e-4, rtol=0)
    with pytest.raises(SettingsError, match="a memory"):
        albertine.score(folder / "final", settings.corpus, memory=8, sequences=32)
    assert run_command(["convert", str(folder / "final"), str(tmp_path / "copy")]) == 0
    assert left_to_right(read_folder(tmp_path / "copy"))
    with pytest.raises(SettingsError, match=r"no place for|Use the layout|fixed point"):
        save_model(found.model, None, tmp_path / "theirs", layout="transformers")


def test_from_left_to_right_the_plain_encoder_reads_what_segments_do(build: Build) -> None:
    settings = settings_of(build, "plain")
    model = model_of(settings)
    batch = held_out_streams(settings.corpus, settings.objective, sequences=32)[0]
    with torch.no_grad(), evaluating(model):
        found, kept = read_batch(model, batch, None, 0)
        segments, _ = predict_segments(model, segments_of(batch), rows=batch.mlm_positions)
    assert kept is None
    torch.testing.assert_close(found, segments, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("more", "own", "scores"),
    [
        ({"halting": "basic"}, [], "a memory keeps neither the number of steps"),
        ({"position_signal": "sinusoid"}, [], "a memory keeps neither the number of steps"),
        ({"input_injection": True}, [], "which a fixed point and injection do not have"),
        ({}, ["injection"], "no injection in own"),
    ],
)
def test_an_encoder_that_cannot_hold_a_memory_is_reported(
    build: Build, more: Any, own: list[str], scores: str
) -> None:
    change = {**MODEL, "positions": "relative", **more}
    settings = settings_of(build, model={"change": change, "own": own})
    with pytest.raises(SettingsError, match=scores):
        pretrain(settings)
    assert not settings.folder.exists(), "scores before anything is written"


def test_segments_that_end_with_cls_require_such_a_vocabulary(build: Build, corpus: Path) -> None:
    settings = settings_of(build, "permutation", corpus=corpus)
    with pytest.raises(SettingsError, match=r"permutation\.reuse: .*puts \[CLS\] first.*train --kind xlnet"):
        pretrain(settings)
    assert not settings.folder.exists(), "scores before anything is written"


def test_a_price_of_steps_is_not_passed_over(build: Build) -> None:
    with pytest.raises(SettingsError, match="does not halt, and has no ponder cost"):
        pretrain(settings_of(build, objective={"ponder": 0.1}))


def test_more_processes_than_lanes_are_reported(build: Build) -> None:
    with pytest.raises(
        SettingsError, match=r"training\.batch_size is 2, fewer sequences than the 3 processes"
    ):
        check_processes(settings_of(build, training={"batch_size": 2}), 3)


def test_a_text_too_short_for_the_lanes_is_reported(build: Build) -> None:
    with pytest.raises(CorpusError, match="too few for 4000 streams"):
        pretrain(settings_of(build, training={"batch_size": 4000}))


@pytest.mark.parametrize("kind", ["plain", "permutation"])
def test_the_fingerprint_has_all_of_the_objective(build: Build, kind: str) -> None:
    settings = build() if kind == "plain" else settings_of(build, kind)
    model, tokenizer = model_of(settings), corpus_of(settings).tokenizer()
    expected = settings.objective.model_dump(mode="json")
    assert fingerprint(settings, model, tokenizer)["objective"] == expected


def test_segments_of_another_length_predict_the_same_share(build: Build) -> None:
    folder = run(settings_of(build, objective={"kind": "permutation", "permutation": {"predictions": 6}}))
    judged = open_pretrained(folder / "final")
    assert objective_of(judged, 16).permutation.predictions == 3
    assert objective_of(judged, None).permutation.predictions == 6


@pytest.mark.parametrize("kind", ["masked", "causal", "permutation"])
def test_alarms_depend_on_the_objective(build: Build, kind: str) -> None:
    settings = settings_of(build, kind, objective={"kind": kind, "memory": 8})
    assert _alarms(settings, BASELINES, preset("xlnet-base")).objective == kind


def test_every_choice_of_a_permutation_reaches_its_spans(build: Build) -> None:
    order = {"ngram": 3, "alpha": 8, "beta": 2}
    own = {"kind": "permutation", "memory": 0, "reference_defects": True, "permutation": order}
    objective = settings_of(build, "other", objective=own).objective
    assert objective.streams(4).spans == SpanSettings(3, 8, 2, True)
    assert objective.masks.reference_defects
