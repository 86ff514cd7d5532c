"""Scores of a run with contiguous streams: on the same text whatever the segments, and what cannot be."""

from __future__ import annotations

import json
import math
import shutil

import pytest
import torch

import albertine
from albertine.cli.app import run as command_line
from albertine.errors import CorpusError, ModelError, SettingsError
from albertine.interop.huggingface.folders import load_model
from albertine.pretraining.held_out import score_streams
from albertine.pretraining.scores import stream_scores
from albertine.pretraining.stream_data import held_out_streams
from tests.pretraining.conftest import Build
from tests.pretraining.test_streams import model_of, run, settings_of


def test_a_causal_model_without_its_run_needs_the_memory_length(build: Build) -> None:
    settings = settings_of(build)
    folder = run(settings)
    scores = albertine.score(folder / "final", settings.corpus, max_length=8, sequences=64)["lm"]
    lonely = folder.parent.parent / "alone"
    shutil.copytree(folder / "final", lonely)
    with pytest.raises(ModelError, match=r"causal model, and does not record how many tokens.*Give `memory`"):
        albertine.score(lonely, settings.corpus)
    scored = albertine.score(lonely, settings.corpus, max_length=8, sequences=16, memory=24)["lm"]
    assert scored == scores, "whose 64 segments of 32 are 16 of 128"
    config = json.loads((lonely / "config.json").read_text(encoding="utf-8"))
    for objective, what in (
        ("permutation", "permutation LM, and does not record its predicted tokens and segments"),
        (None, "does not record whether it is a causal"),
    ):
        config["albertine"]["objective"] = objective
        (lonely / "config.json").write_text(json.dumps(config), encoding="utf-8")
        with pytest.raises(ModelError, match=what):
            albertine.score(lonely, settings.corpus, memory=24)


@pytest.mark.sample(2)
@pytest.mark.parametrize("sequences", [64, 20, 1, 10**6])
def test_score_reads_the_same_text_in_segments_of_any_length(build: Build, sequences: int) -> None:
    settings = settings_of(build)
    model, own = model_of(settings), settings.objective
    counts, texts = [], []
    for length in (None, 32, 8, 64):
        objective = own.model_copy(update={"max_length": length or 32})
        batches = held_out_streams(settings.corpus, objective, sequences=sequences, length=32)
        ids = [batch.packed.input_ids.view(len(batch.lanes), -1) for batch in batches]
        texts.append(torch.cat(ids, 1))
        counts.append(
            stream_scores(model, settings.corpus, objective, sequences=sequences, length=32)["count"]
        )
    assert torch.equal(texts[0], texts[1]) and torch.equal(texts[0], texts[2])
    assert counts[0] == counts[1] == counts[2] == texts[0].numel()
    assert sequences == 1 or abs(counts[3] - counts[0]) <= 8 * 32


def test_the_command_scores_the_same_text_in_shorter_segments(build: Build) -> None:
    settings = settings_of(build)
    folder = run(settings) / "final"
    counts = [
        albertine.score(folder, settings.corpus, max_length=length, sequences=64)["lm"]["count"]
        for length in (None, 32, 8)
    ]
    assert counts == [64 * 32] * 3


def test_a_masked_run_with_memory_is_scored_on_masks_first(
    build: Build, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = settings_of(build, "masked")
    folder = run(settings) / "final"
    scored = albertine.score(folder, settings.corpus, sequences=32)["lm"]
    batches = held_out_streams(settings.corpus, settings.objective, sequences=32)
    judged = score_streams(load_model(folder), batches, memory=24)
    assert scored["mask_loss"] == pytest.approx(judged["mask_loss"]) != scored["loss"]
    hidden = sum(int((b.packed.input_ids[b.mlm_positions] == b.mask_id).sum()) for b in batches)
    assert scored["mask_count"] == hidden < scored["count"]
    assert scored["context_gain"] == scored["mask_baseline_loss"] - scored["mask_loss"]
    assert command_line(["score", str(folder), str(settings.corpus), "--sequences", "32"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    values = [" ".join(line) for line in lines]
    first = next(i for i, line in enumerate(values) if line.startswith("perplexity"))
    assert values[first].startswith(f"perplexity {math.exp(scored['mask_loss']):.2f} (by frequency")
    assert values[first + 2].startswith(f"right {scored['mask_accuracy']:.1%} of {hidden}")
    assert values[first + 3].startswith(f"those kept or replaced too perplexity {scored['perplexity']:.2f}")


def test_a_length_that_segments_of_a_run_cannot_have_is_reported(build: Build) -> None:
    settings = settings_of(build, "permutation")
    folder = run(settings) / "final"
    own = albertine.score(folder, settings.corpus, sequences=16)
    assert albertine.score(folder, settings.corpus, sequences=16, max_length=32) == own
    for length in (16, 24, 64):
        with pytest.raises(
            SettingsError, match=r"reuse 16 tokens of the previous step.*Leave `max_length` out.*32"
        ):
            albertine.score(folder, settings.corpus, max_length=length)
    other = settings_of(
        build, "other", name="block", objective={"kind": "permutation", "permutation": {"block": 16}}
    )
    folder = run(other) / "final"
    assert albertine.score(folder, other.corpus, max_length=16, sequences=16)["lm"]["segment"] == 16
    with pytest.raises(SettingsError, match=r"not fit segments of 24 tokens: .*Leave `max_length` out.*32"):
        albertine.score(folder, other.corpus, max_length=24)


def test_a_held_out_text_too_short_for_a_segment_is_reported(build: Build) -> None:
    settings = settings_of(build)
    objective = settings.objective.model_copy(update={"max_length": 10**6})
    with pytest.raises(
        CorpusError, match=r"have \d+ tokens, too few for segments of 1000000.*--held-out"
    ) as scored:
        held_out_streams(settings.corpus, objective, sequences=8)
    assert scored.value.where == settings.corpus and "shorter max_length" in str(scored.value)


def test_a_memory_of_a_model_without_one_is_reported(build: Build) -> None:
    settings = build()
    folder = run(settings) / "final"
    for given in ({"memory": 4}, {"reach": 4}, {"clamp": 4}):
        with pytest.raises(SettingsError, match="memory, reach and clamp are of models with streamed"):
            albertine.score(folder, settings.corpus, **given)
