"""Whole runs: what they leave behind, that interruption changes nothing, and what they refuse."""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from albertine.core.settings import dump, load, read_yaml, resolve
from albertine.corpus.prepare import write_corpus
from albertine.corpus.reader import Corpus
from albertine.errors import AlbertineError, CheckpointError, CorpusError, ModelError, RunError, SettingsError
from albertine.interop.huggingface.folders import load_model
from albertine.model.config import EncoderConfig
from albertine.model.presets import preset
from albertine.objectives import batch
from albertine.objectives.unigram_baseline import BaselineScore
from albertine.pretraining.baselines import Baselines, PairBaselines
from albertine.pretraining.data import PretrainingBatches, held_out_batches
from albertine.pretraining.held_out import score_batches
from albertine.pretraining.run import (
    PretrainResult,
    _alarms,
    _missing_settings,
    _plateau_advice,
    _slow_start_advice,
    pretrain,
)
from albertine.pretraining.scores import held_out_scores, open_pretrained
from albertine.pretraining.settings import PretrainingSettings
from albertine.text.documents import read_documents
from albertine.text.sentences import document_sentences
from albertine.tokenizers.load import load_tokenizer
from albertine.tokenizers.train import train_sentencepiece
from albertine.training import distributed
from albertine.training.alarms import onset_minute
from albertine.training.checkpoints import CheckpointStore, read
from albertine.training.distributed import World
from albertine.training.job import Job
from albertine.training.launch import free_port
from albertine.training.metrics import read_metrics
from albertine.training.progress import Reporter
from tests.pretraining.conftest import Build
from tests.toy import MODEL, demo_text


def run(settings: PretrainingSettings, resume: str = "auto", branch_from: Path | None = None) -> Path:
    result = pretrain(settings, resume=resume, branch_from=branch_from, reporter=Reporter(quiet=True))
    assert result.outcome.done
    return result.folder


def weights(folder: Path) -> str:
    return hashlib.sha256((folder / "final" / "model.safetensors").read_bytes()).hexdigest()


@pytest.mark.pictures
def test_a_run_has_the_files_of_the_contract(build: Build) -> None:
    settings = build()
    folder = run(settings)
    for name in ("settings.yaml", "environment.json", "metrics.jsonl", "log.txt", "plots/mlm_loss.png"):
        assert (folder / name).stat().st_size > 0, name
    for name in ("best", "final"):
        assert load_model(folder / name).heads == {"pooler", "mlm", "sop"}
    assert sorted(p.name for p in (folder / "checkpoints").glob("step-*")) == ["step-3", "step-6", "step-8"]
    rows = read_metrics(folder / "metrics.jsonl")
    judged = [row for row in rows if "evaluation" in row]
    assert [row["step"] for row in judged] == [4, 8]
    for row in judged:  # a model of 8 steps is no better than the frequencies
        assert -2 < row["context_gain"] < 0.3 and row["elapsed"] > 0
        assert {"mask_loss", "mask_accuracy", "cosine"} <= row["evaluation"].keys()
    assert {"mlm_loss", "mlm_accuracy", "sentence_accuracy", "lr", "grad_norm", "tokens"} <= rows[0].keys()


def test_the_final_model_has_the_scores_of_the_run(build: Build, corpus: Path) -> None:
    settings = build()
    folder = run(settings)
    evaluation = [row["evaluation"] for row in read_metrics(folder / "metrics.jsonl") if "evaluation" in row][
        -1
    ]
    batches = held_out_batches(corpus, settings.objective, sequences=8)
    scores = score_batches(load_model(folder / "final"), batches)
    assert scores == pytest.approx(evaluation, abs=1e-6)


def test_the_context_gain_of_a_run_is_that_of_scoring_it(build: Build, corpus: Path) -> None:
    """Over the same [MASK] positions, not over all chosen tokens, which include others."""
    folder = run(build())
    gain = [row["context_gain"] for row in read_metrics(folder / "metrics.jsonl") if "evaluation" in row][-1]
    found = held_out_scores(open_pretrained(folder / "final"), corpus, sequences=8)["mlm"]
    assert found["mask_baseline_loss"] != pytest.approx(found["baseline_loss"], abs=1e-3)
    assert gain == pytest.approx(found["context_gain"], abs=1e-6)


def test_transformers_loads_the_final_model(build: Build) -> None:
    folder = run(build())
    from transformers import AlbertForPreTraining, AutoTokenizer, pipeline

    tokenizer = AutoTokenizer.from_pretrained(folder / "final")
    theirs = AlbertForPreTraining.from_pretrained(folder / "final").eval()
    text = tokenizer("It was a dark night.", "She went home.", return_tensors="pt")
    assert text["token_type_ids"].sum() > 0
    ours = load_model(folder / "final")
    with torch.no_grad():
        hidden = ours(**text).last_hidden_state
        assert torch.allclose(hidden, theirs.albert(**text).last_hidden_state, atol=1e-5)
        assert torch.allclose(ours.sentence_logits(hidden[:, 0]), theirs(**text).sop_logits, atol=1e-5)
    best = pipeline("fill-mask", model=str(folder / "final"))("It was a [MASK] night.")[0]
    assert best["score"] > 0


def test_objectives_without_pairs_and_with_next_sentence(build: Build) -> None:
    none = run(build(name="none", objective={"pairs": "none"}))
    assert load_model(none / "final").heads == {"pooler", "mlm"}
    assert not any("sentence_loss" in row for row in read_metrics(none / "metrics.jsonl"))
    change = {"num_hidden_layers": 2, "hidden_size": 24, "num_attention_heads": 2, "intermediate_size": 32}
    nsp = build(name="nsp", objective={"pairs": "nsp"}, model={"preset": "bert-base", "change": change})
    assert load_model(run(nsp) / "final").heads == {"pooler", "mlm", "nsp"}


def test_a_signal_saves_and_the_resumed_run_is_the_same_run(build: Build) -> None:
    straight = run(build(name="straight"))
    settings = build(name="stopped")
    # The signal comes while the second of the four micro-batches or evaluations after it is under way.
    seen = threading.Event()

    class Stopper(Reporter):
        def step(self, step: int, progress: float, left: float | None) -> None:
            if step == 5 and not seen.is_set():
                seen.set()
                os.kill(os.getpid(), signal.SIGTERM)

    result = pretrain(settings, reporter=Stopper(quiet=True))
    assert not result.outcome.done
    assert result.outcome.exit_code == 143
    assert not (result.folder / "final").exists()
    assert weights(run(settings)) == weights(straight)
    timings = {"elapsed", "tokens_per_second"}
    lines = [
        [{k: v for k, v in row.items() if k not in timings} for row in read_metrics(f / "metrics.jsonl")]
        for f in (straight, result.folder)
    ]
    assert lines[0] == lines[1]


MUON = {"optimizer": "muon", "average": 0.9, "learning_rate": None}


def other_block(build: Build, **more: object) -> dict[str, object]:
    """The model's settings with all that ALBERT's block has not."""
    change = build().model.change.model_dump()
    new = {"positions": "rotary", "norm": "pre", "feed_forward": "gated", "qk_norm": True, "biases": False}
    own = {"own": ["norms", "residuals", "injection"], "low_rank": 2}
    return {**own, "change": {**change, **new, **more}}


@pytest.mark.sample(1)
@pytest.mark.parametrize("block", ["albert", "other"])
def test_a_run_with_muon_and_an_average_resumes_exactly(build: Build, block: str) -> None:
    """Its checkpoints hold the momentum of the matrices, Adam's moments of all else, and the average."""
    training = {**MUON, "precision": "auto"}
    parts = {"training": training} | ({"model": other_block(build)} if block == "other" else {})
    straight = run(build(name="straight", **parts))
    settings = build(name="stopped", **parts)

    class Stopper(Reporter):
        def step(self, step: int, progress: float, left: float | None) -> None:
            if step == 5:
                os.kill(os.getpid(), signal.SIGTERM)

    result = pretrain(settings, reporter=Stopper(quiet=True))
    assert result.outcome.exit_code == 143
    assert weights(run(settings)) == weights(straight)
    ended = [read(folder / "checkpoints" / "step-8") for folder in (straight, settings.folder)]
    keys = {name.rpartition("/")[2] for name in ended[0].optimizer}
    assert keys == {"momentum", "step", "exp_avg", "exp_avg_sq", "average"}
    assert ended[0].optimizer.keys() == ended[1].optimizer.keys()
    for name, tensor in ended[0].optimizer.items():
        assert torch.equal(tensor, ended[1].optimizer[name]), name


def test_the_average_is_what_is_judged_and_kept(build: Build, corpus: Path) -> None:
    """And training itself does not depend on it."""
    plain, averaged = (
        run(build(name=name, training=training))
        for name, training in (("plain", {}), ("averaged", {"average": 0.9}))
    )
    ended = [read(folder / "checkpoints" / "step-8") for folder in (plain, averaged)]
    assert all(torch.equal(tensor, ended[1].model[name]) for name, tensor in ended[0].model.items())
    final = dict(load_model(averaged / "final").named_parameters())
    for name, tensor in final.items():
        assert torch.equal(tensor, ended[1].optimizer[f"{name}/average"]), name
    assert weights(plain) != weights(averaged)
    rows = [row for row in read_metrics(averaged / "metrics.jsonl") if "evaluation" in row]
    best = max(rows, key=lambda row: row["evaluation"]["mlm_accuracy"])["evaluation"]
    batches = held_out_batches(corpus, build().objective, sequences=8)
    for folder, expected in (("final", rows[-1]["evaluation"]), ("best", best)):
        assert score_batches(load_model(averaged / folder), batches) == pytest.approx(expected, abs=1e-6), (
            folder
        )


def test_another_micro_batch_size_is_the_same_batch(build: Build) -> None:
    small = run(build(name="small", model={"change": {"hidden_size": 32, "num_attention_heads": 2}}))
    rows = read_metrics(small / "metrics.jsonl")
    large = run(
        build(
            name="large",
            model={"change": {"hidden_size": 32, "num_attention_heads": 2}},
            training={"micro_batch_tokens": 4000},
        )
    )
    other = read_metrics(large / "metrics.jsonl")
    for a, b in zip(rows, other, strict=True):
        if "mlm_loss" in a:
            assert a["tokens"] == b["tokens"]
            assert a["mlm_loss"] == pytest.approx(b["mlm_loss"], rel=1e-4)


def in_two_processes(settings: PretrainingSettings, folder: Path) -> str:
    """Pretrain in two real processes; returns their output."""
    recipe = folder / "recipe.yaml"
    recipe.write_text(dump(settings), encoding="utf-8")
    environment = {
        **os.environ,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "WORLD_SIZE": "2",
    }
    command = [sys.executable, "-m", "albertine", "pretrain", "--config", str(recipe)]
    processes = [
        subprocess.Popen(
            command,
            env={**environment, "RANK": r, "LOCAL_RANK": r},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        for r in ("0", "1")
    ]
    printed = ""
    for process in processes:
        output, _ = process.communicate(timeout=120)
        assert process.returncode == 0, output.decode()
        printed += output.decode()
    return printed


BASELINES = Baselines(BaselineScore(0.1, 6.0, 10), None, {})


def printed_baselines(output: str) -> set[str]:
    """The printed baselines."""
    return set(re.findall(r"without skill\s+(.+)", output))


def no_skill(result: PretrainResult) -> str:
    return ", ".join(f"{name} {value:.3f}" for name, value in result.no_skill.items())


@pytest.mark.matrix
@pytest.mark.parametrize(
    ("training", "block"),
    [({}, "albert"), ({**MUON, "learning_rate": 0.01}, "albert"), ({}, "other")],
    ids=["lamb", "muon", "other block"],
)
def test_two_processes_train_the_same_model(
    build: Build, tmp_path: Path, training: dict[str, object], block: str
) -> None:
    change: dict[str, object] = {"change": {**build().model.change.model_dump(), "hidden_dropout_prob": 0.0}}
    if block == "other":
        change = other_block(build, hidden_dropout_prob=0.0)
    watching = {"evaluate_sequences": 200}  # two parts: each process has one, and they are not equal
    parts = {"model": change, "watching": watching, "training": training}
    one = pretrain(build(name="one", **parts), reporter=Reporter(quiet=True))
    settings = build(name="two", **parts)
    output = in_two_processes(settings, tmp_path)
    for name, tensor in load_file(one.folder / "final" / "model.safetensors").items():
        other = load_file(settings.folder / "final" / "model.safetensors")[name]
        assert torch.allclose(tensor, other, atol=2e-4), name
    assert printed_baselines(output) == {no_skill(one)}


@pytest.mark.matrix
def test_a_process_without_held_out_sequences_raises_no_alarm(build: Build, tmp_path: Path) -> None:
    """The unigram loss is 0 where nothing is masked, and every model is worse than that."""
    changes: dict[str, Any] = {
        "objective": {"pairs": "none"},
        "training": {"steps": 60, "learning_rate": 0.003, "batch_size": 16},
        "watching": {"stop_on_alarm": True, "evaluate_sequences": 64, "evaluate_every": 60},
    }
    one = pretrain(build(name="one", **changes), reporter=Reporter(quiet=True))
    assert one.outcome.done
    settings = build(name="two", **changes)
    output = in_two_processes(settings, tmp_path)
    assert (settings.folder / "final" / "model.safetensors").is_file()
    assert printed_baselines(output) == {no_skill(one)}


def test_baselines_of_masked_words_equal_those_of_scoring(build: Build, corpus: Path) -> None:
    """A tenth of the chosen words is shown: a model that has learned no more than to copy them has these."""
    result = pretrain(build(watching={"evaluate_sequences": 100}), reporter=Reporter(quiet=True))
    scores = held_out_scores(open_pretrained(result.folder / "final"), corpus, sequences=100)["mlm"]
    expected = {
        "mlm_accuracy": scores["floor"],
        "mask_loss": scores["mask_baseline_loss"],
        "mask_accuracy": scores["mask_baseline"],
    }
    found = {name: result.no_skill[name] for name in expected}
    assert found == pytest.approx(expected) and "mlm_loss" not in result.no_skill
    assert found["mlm_accuracy"] > result.baseline.accuracy + 0.05


@pytest.mark.sample(1)
@pytest.mark.parametrize("pairs", ["sop", "nsp"])
def test_baselines_of_pairs_equal_those_of_scoring(build: Build, corpus: Path, pairs: str) -> None:
    """More of the next sentences are random than true, and lengths are informative of the order."""
    result = pretrain(
        build(objective={"pairs": pairs}, watching={"evaluate_sequences": 100}), reporter=Reporter(quiet=True)
    )
    scores = held_out_scores(open_pretrained(result.folder / "final"), corpus, sequences=100)[pairs]
    level = max(scores["baseline"], scores.get("by_length", 0.0))
    assert result.no_skill["sentence_accuracy"] == pytest.approx(level) and level > 0.51


@pytest.mark.parametrize(
    ("changes", "level"),
    [({"pairs": "sop"}, 0.5), ({"pairs": "nsp"}, 0.56), ({"pairs": "sop", "reference_defects": True}, 0.56)],
)
def test_the_majority_accuracy_of_pairs(build: Build, changes: dict[str, object], level: float) -> None:
    """Where it is not commoner by the luck of the held-out pairs alone, as that of a fair coin is."""
    baselines = BASELINES._replace(pairs=PairBaselines(0.56, 0.6))
    assert _alarms(build(objective=changes), baselines, preset("bert-base")).majority_accuracy == level


def test_every_held_out_sequence_is_judged_by_one_process(build: Build, corpus: Path) -> None:
    objective = build(objective={"max_length": 8}).objective

    def samples(rank: int, world: int) -> list[list[int]]:
        batches = held_out_batches(corpus, objective, sequences=150, rank=rank, world=world)
        return [row for batch in batches for row in batch.samples.tolist()]

    alone = samples(0, 1)
    assert len(alone) == 150
    shares = [samples(rank, 3) for rank in range(3)]
    assert sorted(row for share in shares for row in share) == sorted(alone)
    assert [bool(share) for share in shares] == [True, True, False]  # they come in parts of 128


def test_runs_of_two_seeds_are_judged_on_the_same_masks(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged: list[Any] = []

    def keep(model: Any, batches: Any, **options: Any) -> dict[str, float]:
        judged.append(batches)
        return score_batches(model, batches, **options)

    monkeypatch.setattr("albertine.pretraining.run.score_batches", keep)
    for seed in (1, 2):
        run(build(name=f"seed-{seed}", seed=seed, training={"steps": 1}))
    first, second = judged
    assert len(first) == len(second) > 0
    for a, b in zip(first, second, strict=True):
        assert torch.equal(a.packed.input_ids, b.packed.input_ids)
        assert torch.equal(a.packed.cu_seqlens, b.packed.cu_seqlens)
        assert torch.equal(a.mlm_positions, b.mlm_positions) and torch.equal(a.mlm_labels, b.mlm_labels)
        assert torch.equal(a.sentence_labels, b.sentence_labels)


def test_plateau_advice_names_settings_that_are_not_set(build: Build) -> None:
    (hint,) = _plateau_advice(build(objective={"max_length": 128}), "learned")
    assert "model.embeddings=wide and objective.max_length=64" in hint
    for word in ("model.change.positions=rotary", "stages", "training.optimizer=muon"):
        assert word in hint
    (hint,) = _plateau_advice(build(model={"embeddings": "wide"}), "learned")
    assert "embeddings" not in hint and "max_length" not in hint
    assert _slow_start_advice(build().model) and not _slow_start_advice(
        build(model={"output_bias": "unigram"}).model
    )


def test_a_run_that_learns_nothing_from_context_is_stopped_with_advice(build: Build) -> None:
    settings = build(
        model={**build().model.model_dump(exclude_none=True), "output_bias": "unigram"},
        objective={"pairs": "none"},
        training={"steps": 60, "learning_rate": 1e-6},
        watching={"stop_on_alarm": True, "evaluate_every": 5, "log_every": 1, "evaluate_sequences": 64},
    )
    with pytest.raises(RunError, match=r"(?s)plateau.*context gain is -?0\.0.*mean cosine.*stages"):
        pretrain(settings, reporter=Reporter(quiet=True))
    assert onset_minute(read_metrics(settings.folder / "metrics.jsonl")) is None


def test_what_is_set_is_not_named() -> None:
    model = {"preset": "albert-base-v2", "embeddings": "wide"}
    plain = {"model": model, "objective": {"max_length": 64}, "training": {"optimizer": "muon"}}
    assert _missing_settings(plain, "rotary") == []
    assert [m.split()[0] for m in _missing_settings(plain, "learned")] == ["rotary", "a"]
    # A ramp makes any length bearable, and learned positions too.
    ramp = plain | {"objective": {"max_length": 512}, "stages": [{"max_length": 8}]}
    assert _missing_settings(ramp, "learned") == []
    # The positions of given weights are what they are.
    given = plain | {"model": {"start_from": "m"}, "training": {"optimizer": "lamb"}}
    ramp_and_muon = ["a ramp of lengths from 8 tokens (stages)", "training.optimizer=muon"]
    assert _missing_settings(given, "learned") == ramp_and_muon
    assert _missing_settings(given, "rotary") == ramp_and_muon[1:]


def test_another_optimizer_takes_a_rate_of_its_own() -> None:
    plain = {"model": {"start_from": "m"}, "objective": {"max_length": 64}}
    for rate, more in ((None, ""), (1e-3, " training.learning_rate=null")):
        training = {"optimizer": "adamw", "learning_rate": rate}
        assert _missing_settings(plain | {"training": training}, "rotary") == [
            f"training.optimizer=muon{more}"
        ]


@pytest.mark.parametrize(
    ("name", "optimizer", "rate"),
    [("albert-tiny-zh", "adamw", 1e-3), ("albert-tiny-zh", "lamb", None), ("albert-base-v2", "adamw", None)],
)
def test_a_small_model_is_measured_by_the_rate_of_small_ones(
    build: Build, name: str, optimizer: str, rate: float | None
) -> None:
    alarms = _alarms(build(training={"optimizer": optimizer}), BASELINES, preset(name))
    assert alarms.measured_rate == rate and alarms.suggest_higher_rate
    goes_on = build(model={"preset": None, "change": {}, "start_from": "m"})
    assert not _alarms(goes_on, BASELINES, preset(name)).suggest_higher_rate


def test_stages_that_do_not_begin_short_are_no_ramp(build: Build) -> None:
    stages = [{"begin": 0, "mask_probability": 0.3}, {"begin": 0.5}]
    (hint,) = _plateau_advice(build(objective={"max_length": 512}, stages=stages), "learned")
    for word in ("model.change.positions=rotary", "a ramp of lengths from 8 tokens (stages)", "max_length"):
        assert word in hint


def test_more_processes_than_sequences_are_refused(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    from albertine.pretraining import run as module

    monkeypatch.setattr(module, "start", lambda: World(rank=0, size=9))
    monkeypatch.setattr(distributed, "stop", lambda world, **_: None)
    with pytest.raises(SettingsError, match=r"batch_size is 8, fewer sequences than the 9 processes"):
        run(build())


@pytest.mark.parametrize("rank", [0, 1])
def test_the_main_process_alone_watches(build: Build, monkeypatch: pytest.MonkeyPatch, rank: int) -> None:
    """All ranks use the same numbers; others could read the metrics file while it is truncated."""
    from albertine.pretraining import run as module

    class Deaf(World):
        def add(self, tensor: torch.Tensor) -> torch.Tensor:
            return tensor

    class Seen(Exception):
        pass

    def seen(job: Job, *_: Any, **__: Any) -> None:
        assert (job.alarms is not None) == (rank == 0)
        raise Seen

    monkeypatch.setattr(module, "start", lambda: Deaf(rank=rank, size=2))
    monkeypatch.setattr(distributed, "stop", lambda world, **_: None)
    monkeypatch.setattr(module, "train", seen)
    with pytest.raises(Seen):
        pretrain(build(), reporter=Reporter(quiet=True))


def test_the_stream_does_not_depend_on_ranks(build: Build, corpus: Path) -> None:
    settings = build()
    opened = Corpus(corpus)
    alone = iter(PretrainingBatches(opened, settings, None))
    ranks = [iter(PretrainingBatches(opened, settings, None, rank, 2)) for rank in range(2)]
    for _ in range(5):
        cursor, batches = next(alone)
        shares = [next(rank) for rank in ranks]
        assert all(share[0] == cursor for share in shares)

        def samples(found: list) -> set[tuple[int, int]]:  # type: ignore[type-arg]
            return {tuple(row) for batch in found for row in batch.samples.tolist()}

        assert samples(batches) == samples(shares[0][1]) | samples(shares[1][1])


@pytest.mark.parametrize(
    "changes",
    [
        {"seed": 2},
        {"model": {"change": {"hidden_size": 64, "num_attention_heads": 2}}},
        {"model": {"sharing": "none"}},
        {"objective": {"max_length": 31}},
        {"objective": {"pairs": "none"}},
        {"objective": {"masking": {"ngram": 1}}},
        {"training": {"batch_size": 9}},
        {"training": {"learning_rate": 0.02}},
        {"training": {"optimizer": "adamw"}},
        {"training": {"steps": 9}},
        {"training": {"schedule": "wsd"}},
        {"training": {"clip": None}},
        {"training": {"average": 0.9}},
        {"training": {"optimizer": "muon"}},
    ],
    ids=str,
)
def test_a_checkpoint_of_another_run_is_refused(build: Build, changes: dict[str, object]) -> None:
    folder = run(build(training={"steps": 1}, watching={"evaluate_every": 100}))
    before = weights(folder)
    training = {"steps": 1, **(changes.get("training") or {})}  # type: ignore[dict-item]
    with pytest.raises(CheckpointError) as refused:
        run(build(watching={"evaluate_every": 100}, **{**changes, "training": training}))
    assert str(refused.value).count("checkpoint")
    assert weights(folder) == before


@pytest.mark.parametrize("seconds", [-60, 60])
def test_a_final_model_that_is_older_than_the_last_checkpoint_is_written_again(
    build: Build, seconds: int
) -> None:
    """As after resuming from an earlier checkpoint and a kill before the model is saved; a model changed
    afterwards is kept."""
    settings = build()
    folder = run(settings)
    good, at = weights(folder), (folder / "checkpoints" / "latest").stat().st_mtime + seconds
    (folder / "final" / "model.safetensors").write_bytes(b"of before")
    os.utime(folder / "final", (at, at))
    run(settings)
    assert (weights(folder) == good) == (seconds < 0)


def test_the_check_interval_changes_no_result(build: Build) -> None:
    """A run can be resumed with any `watching`, which decides which steps may be the best."""
    often = {"evaluate_every": 1, "evaluate_sequences": 16, "log_every": 1, "checkpoint_every": 2}
    rare = {"evaluate_every": 100, "evaluate_sequences": 8, "log_every": 5, "checkpoint_every": 100}
    one, two = (run(build(name=name, watching=watching)) for name, watching in (("a", often), ("b", rare)))
    assert weights(one) == weights(two)


FIRST_FIELDS = {
    *("vocab_size", "embedding_size", "hidden_size", "num_attention_heads", "intermediate_size", "plan"),
    *("hidden_act", "hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout_prob"),
    *("max_position_embeddings", "type_vocab_size", "initializer_range", "layer_norm_eps", "pad_token_id"),
    *("embedding_mapping", "feed_forward_dropout", "sentence_dropout", "initialization"),
}
"""Of an encoder configuration in format 1."""


def test_the_fingerprint_has_no_format_of_a_configuration(build: Build) -> None:
    """Nor of later settings at their defaults: earlier runs must be resumable."""
    folder = run(build(training={"steps": 1}))
    state = json.loads((folder / "checkpoints" / "step-1" / "state.json").read_text())
    known = {f.name for f in fields(EncoderConfig)}
    assert set(state["fingerprint"]["model"]) == (known & FIRST_FIELDS) | {"heads"}
    assert known >= FIRST_FIELDS
    assert set(state["fingerprint"]["model"]["plan"]) == {"attention", "feed_forward"}


def test_never_refuses_a_folder_that_has_a_run(build: Build) -> None:
    settings = build(training={"steps": 1})
    run(settings)
    with pytest.raises(RunError, match="earlier run"):
        run(settings, "never")


def record(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in ("settings.yaml", "environment.json")}


def test_a_refused_command_leaves_the_record_as_it_was(build: Build, tmp_path: Path) -> None:
    other = {"seed": 77, "training": {"steps": 9, "learning_rate": 0.5}}
    folder = run(build(training={"steps": 1}, watching={"evaluate_every": 100}))
    before, lines = record(folder), (folder / "metrics.jsonl").read_bytes()
    foreign = run(build(name="foreign", seed=5, training={"steps": 1})) / "checkpoints" / "step-1"
    for changes, resume in ((other, "auto"), ({}, "never"), (other, "never"), ({}, str(foreign))):
        with pytest.raises((CheckpointError, RunError)):
            run(build(**changes), resume)
        assert record(folder) == before and (folder / "metrics.jsonl").read_bytes() == lines
    with pytest.raises(SettingsError, match="longer than the run"):
        run(build(name="new", training={"schedule": "wsd", "warmup": 0.9, "decay": 0.9}))
    with pytest.raises(CheckpointError, match="no such checkpoint"):
        run(build(name="new"), str(tmp_path / "none"))
    assert not (build(name="new").folder / "settings.yaml").exists(), "nothing was run in it"


@pytest.fixture(scope="module")
def other_corpora(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Another text with the same tokenizer, and with another one of as many tokens."""
    folder = tmp_path_factory.mktemp("other")
    tokenizer = Corpus(corpus).tokenizer()
    text = demo_text("en", folder / "text", 30_000)
    write_corpus([text], folder / "corpus", tokenizer, "en", workers=1, held_out=0.3)
    sentences = (s for d in read_documents([text]) for s in document_sentences(d, "en"))
    train_sentencepiece(sentences, folder / "trained", vocab_size=tokenizer.vocab_size)
    other = load_tokenizer(folder / "trained")
    assert other.vocab_size == tokenizer.vocab_size and other.fingerprint != tokenizer.fingerprint
    write_corpus([text], folder / "tokenizer", other, "en", workers=1, held_out=0.3)
    return {"corpus": folder / "corpus", "tokenizer": folder / "tokenizer"}


@pytest.mark.parametrize("what", ["corpus", "tokenizer"])
def test_other_data_are_refused_by_name(build: Build, other_corpora: dict[str, Path], what: str) -> None:
    settings = build(training={"steps": 1}, watching={"evaluate_every": 100})
    run(settings)
    with pytest.raises(
        CheckpointError, match=rf"other settings.*\b{what}: checkpoint [0-9a-f]+, now [0-9a-f]+"
    ):
        run(settings.model_copy(update={"corpus": other_corpora[what]}))


def test_a_run_of_a_development_version_is_refused_once(build: Build) -> None:
    """Catches: a list of keys that the user never changed."""
    settings = build(training={"steps": 1}, watching={"evaluate_every": 100})
    folder = run(settings)
    store = CheckpointStore(folder / "checkpoints")
    found = read(store.path(1))
    of_before = {key: value for key, value in found.state["fingerprint"].items() if key != "layout"}
    store.save(1, found.model, found.optimizer, {**found.state, "fingerprint": of_before})
    longer = build(name="longer", training={"steps": 2})
    for refused in (lambda: run(settings), lambda: run(longer, branch_from=store.path(1))):
        with pytest.raises(CheckpointError, match="begun by a development version before") as error:
            refused()
        assert "other settings" not in str(error.value) and "new run under another name" in str(error.value)
    assert load_model(store.path(1)).config == load_model(folder / "final").config


FLAT = {"schedule": "constant", "warmup": 0.0}


def test_a_branch_of_more_steps_is_the_longer_run(build: Build) -> None:
    straight = run(build(name="straight", training=FLAT))
    short = run(build(name="short", training={**FLAT, "steps": 6}))
    origin = short / "checkpoints" / "step-6"
    settings = build(name="longer", training=FLAT)
    longer = run(settings, branch_from=origin)
    assert weights(longer) == weights(straight) and (longer / "best" / "config.json").is_file()
    record = json.loads((longer / "branch.json").read_text())
    assert record["checkpoint"] == str(origin) and record["step"] == 6
    assert record["differences"] == {"training.steps": {"before": 6, "now": 8}}
    assert dump(settings) == (longer / "settings.yaml").read_text(encoding="utf-8")
    assert run(settings, branch_from=origin) == longer, "the same command finds a run that is done"


def test_resuming_with_more_steps_proposes_a_branch(build: Build) -> None:
    """Catches: the advice to begin anew, where the same run can be resumed; a branch that cannot be."""
    quiet = Reporter(quiet=True)
    run = pretrain(build(training={"steps": 2}), reporter=quiet).folder
    with pytest.raises(CheckpointError, match=r"training.steps: checkpoint 2, now 4.*--branch-from") as error:
        pretrain(build(training={"steps": 4}), reporter=quiet)
    named = re.search(r"--branch-from (.*) with another name", str(error.value))
    assert named is not None and Path(named[1]) == run / "checkpoints" / "step-2"
    longer = pretrain(build(name="longer", training={"steps": 4}), branch_from=named[1], reporter=quiet)
    assert longer.outcome.step == 4
    for training in ({"steps": 4, "optimizer": "muon"}, {"steps": 1}):
        with pytest.raises(CheckpointError, match="begin a new run under another name") as other:
            pretrain(build(training=training), reporter=quiet)
        assert "--branch-from" not in str(other.value)


def test_a_branch_has_the_rate_it_is_given(build: Build) -> None:
    def rates(folder: Path) -> list[float]:
        return [row["lr"] for row in read_metrics(folder / "metrics.jsonl") if "lr" in row]

    each = {"log_every": 1}
    stable = {"schedule": "wsd", "warmup": 0.1, "decay": 0.2, "steps": 12}
    folder = run(build(name="stable", training=stable, watching=each))
    assert rates(folder)[2:9] == [0.01] * 7
    cooled = build(name="cool", training={**stable, "steps": 10, "decay": 0.4}, watching=each)
    with pytest.raises(CheckpointError, match="no such checkpoint"):
        run(cooled, branch_from=folder / "checkpoints" / "step-3")
    cool = run(cooled, branch_from=folder / "checkpoints" / "step-6")
    assert rates(cool) == pytest.approx([0.01, 0.0075, 0.005, 0.0025])
    lower = build(name="low", training={**FLAT, "learning_rate": 1e-4}, watching=each)
    assert rates(run(lower, branch_from=folder / "checkpoints" / "step-6")) == [1e-4, 1e-4]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"training": {"optimizer": "adamw"}}, "training.optimizer: checkpoint lamb, now adamw"),
        ({"model": {"sharing": "none"}}, "model.plan"),
        ({"objective": {"pairs": "none"}}, "model.heads"),
        ({"corpus": "corpus"}, "corpus: checkpoint"),
        ({"corpus": "tokenizer"}, "tokenizer: checkpoint"),
    ],
)
def test_what_a_branch_cannot_change(
    build: Build, other_corpora: dict[str, Path], changes: dict[str, object], message: str
) -> None:
    origin = run(build(training={"steps": 1})) / "checkpoints" / "step-1"
    settings = build(name="branch", **changes) if "corpus" not in changes else build(name="branch")
    if (which := changes.get("corpus")) is not None:
        settings = settings.model_copy(update={"corpus": other_corpora[str(which)]})
    with pytest.raises(CheckpointError, match="cannot be branched") as refused:
        run(settings, branch_from=origin)
    assert message in str(refused.value) and not (settings.folder / "settings.yaml").exists()


def test_a_branch_with_fewer_samples_begins_the_next_epoch(build: Build, corpus: Path) -> None:
    size = PretrainingBatches(Corpus(corpus), build(), None).builder.rows(0) // 3 + 1
    large = {"steps": 3, "batch_size": size, "micro_batch_tokens": 4000}
    first = build(objective={"max_length": 16}, training=large)
    origin = run(first) / "checkpoints" / "step-3"
    saved = read(origin).state["cursor"]
    branch = build(name="branch", objective={"max_length": 32}, training={"steps": 4})
    assert PretrainingBatches(Corpus(corpus), branch, None).builder.rows(saved["epoch"]) < saved["offset"]
    folder = run(branch, branch_from=origin)
    assert read(folder / "checkpoints" / "step-3").state["cursor"] == {
        "epoch": saved["epoch"] + 1,
        "offset": 0,
    }
    assert "objective.max_length" in json.loads((folder / "branch.json").read_text())["differences"]


def test_two_runs_in_one_folder(build: Build) -> None:
    settings = build()
    errors: list[AlbertineError] = []

    class Second(Reporter):
        def step(self, step: int, progress: float, left: float | None) -> None:
            if step == 2:
                try:
                    pretrain(settings, reporter=Reporter(quiet=True))
                except AlbertineError as error:
                    errors.append(error)

    pretrain(settings, reporter=Second(quiet=True))
    assert len(errors) == 1
    assert "in use" in str(errors[0])


def test_going_on_from_a_model_folder(build: Build) -> None:
    first = run(build(name="first"))
    second = build(name="second", model={"preset": None, "change": {}, "start_from": first / "final"})
    assert load_model(run(second) / "final").config == load_model(first / "final").config
    with pytest.raises(ModelError, match="no nsp head"):
        run(
            second.model_copy(
                update={"name": "third", "objective": build(objective={"pairs": "nsp"}).objective}
            )
        )


def test_a_sample_is_by_default_no_longer_than_the_encoder_reads(build: Build) -> None:
    def begun(name: str, **changes: Any) -> tuple[Path, int]:
        tree = build(name=name, **changes).model_dump(exclude_unset=True)
        del tree["objective"]["max_length"]
        folder = run(resolve(PretrainingSettings, tree))
        return folder, read_yaml(folder / "settings.yaml")["objective"]["max_length"]

    short, length = begun("short", model={"change": {**MODEL, "max_position_embeddings": 48}})
    assert length == 48
    model = {"preset": None, "change": {}, "start_from": short / "final"}
    assert begun("more", model=model)[1] == 48
    assert begun("taught", objective={"distillation": {"teacher": short / "final"}})[1] == 48


@pytest.mark.parametrize("rate", [None, 0.005])
def test_the_rate_of_random_weights_is_warned_of_when_starting_from_weights(
    build: Build, caplog: pytest.LogCaptureFixture, rate: float | None
) -> None:
    first = run(build(name="first"))
    warning = "a model forgets much of what it"
    assert warning not in caplog.text
    more = {"optimizer": "muon", "learning_rate": rate}
    model = {"preset": None, "change": {}, "start_from": first / "final"}
    run(build(name="second", model=model, training=more))
    assert (warning in caplog.text) == (rate is None)


def test_a_run_with_a_start_model_resumes_wherever_that_is(
    build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = run(build(name="first"))
    monkeypatch.chdir(tmp_path)
    choice = {"preset": None, "change": {}, "start_from": Path("runs/first/final")}
    folder = run(build(name="second", model=choice))
    as_recorded = load(PretrainingSettings, folder / "settings.yaml")
    assert as_recorded.model.start_from == first / "final"
    assert pretrain(as_recorded, reporter=Reporter(quiet=True)).outcome.updates == 0
    other = build(name="second", model=choice | {"start_from": run(build(name="other", seed=2)) / "final"})
    with pytest.raises(CheckpointError, match=r"other settings: weights: checkpoint \w{10}"):
        pretrain(other, reporter=Reporter(quiet=True))


def test_no_held_out_documents(build: Build, corpus: Path, tmp_path: Path) -> None:
    from albertine.corpus.prepare import write_corpus
    from tests.toy import demo_text

    text = demo_text("en", tmp_path / "text", 30_000)
    write_corpus([text], tmp_path / "whole", Corpus(corpus).tokenizer(), "en", workers=1, held_out=0)
    with pytest.raises(CorpusError, match="no held-out documents"):
        run(build(corpus=tmp_path / "whole"))


def test_metrics_are_plain_json(build: Build) -> None:
    folder = run(build(training={"steps": 2}))
    for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines():
        json.loads(line, parse_constant=lambda name: pytest.fail(name))


def test_the_same_command_again_and_a_refused_one_change_nothing(build: Build, tmp_path: Path) -> None:
    def every_file(folder: Path) -> dict[str, tuple[int, str]]:
        files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != "lock")
        return {
            str(path): (path.stat().st_mtime_ns, hashlib.sha256(path.read_bytes()).hexdigest())
            for path in files
        }

    settings = build(training={"steps": 2})
    folder = run(settings)
    before = every_file(folder)
    assert run(settings) == folder and every_file(folder) == before
    for changes, resume in (({"seed": 77}, "auto"), ({}, "never"), ({}, str(tmp_path / "none"))):
        with pytest.raises((CheckpointError, RunError)):
            run(build(**{"training": {"steps": 2}, **changes}), resume)
        assert every_file(folder) == before
    new = build(name="never begun")
    with pytest.raises(CheckpointError, match="no such checkpoint"):
        run(new, str(tmp_path / "none"))
    assert not new.folder.exists()


@pytest.mark.parametrize("name", ["albertine-mini", "xlnet-base"])
def test_an_encoder_without_learned_positions_needs_no_others(build: Build, name: str) -> None:
    settings = build(model={"embeddings": "wide"}, training={"optimizer": "muon"})
    alarms = _alarms(settings, BASELINES, preset(name))
    assert alarms.plateau_advice == () and _alarms(settings, BASELINES, preset("bert-base")).plateau_advice


def test_processes_share_the_plan_of_the_first_epoch(
    build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scores, plan = tmp_path / "scores", batch.plan_epoch

    def noted(*given: Any, **how: Any) -> Any:
        with scores.open("a") as file:
            file.write(f"{os.getpid()}\n")
        return plan(*given, **how)

    monkeypatch.setattr(batch, "plan_epoch", noted)
    settings = build(training={"workers": 2})
    corpus = Corpus(settings.corpus)
    made = iter(PretrainingBatches(corpus, settings, None))
    for _ in range(3):
        next(made)
    assert set(scores.read_text().split()) == {str(os.getpid())}
