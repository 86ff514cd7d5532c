"""A checkpoint of a pretraining run, read as the model that the run would have written there."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

import albertine
from albertine.errors import ModelError, TokenizerError
from albertine.interop.huggingface.folders import folder_config
from albertine.pretraining.run import pretrain
from albertine.training.progress import Reporter
from tests.pretraining.conftest import Build
from tests.pretraining.test_distillation import teacher_of

RUNS: dict[str, dict[str, Any]] = {
    "sentence order": {},
    "next sentence, averaged": {"objective": {"pairs": "nsp"}, "training": {"average": 0.5}},
    "left to right": {"objective": {"kind": "causal", "pairs": "none", "memory": 24}},
    "halting": {"model": {"change": {"halting": "basic", "step_signal": "learned"}}},
}


def finished(build: Build, **changes: Any) -> Path:
    return pretrain(build(**changes), reporter=Reporter(quiet=True)).folder


def same(ours: Path, theirs: Path) -> None:
    one, other = albertine.load(ours), albertine.load(theirs)
    assert (one.config, one.heads, one.training) == (other.config, other.heads, False)
    assert one.state_dict().keys() == other.state_dict().keys()
    assert all(map(torch.equal, one.state_dict().values(), other.state_dict().values()))
    assert albertine.load_tokenizer(ours).fingerprint == albertine.load_tokenizer(theirs).fingerprint


@pytest.mark.parametrize("kind", RUNS)
def test_the_last_checkpoint_is_the_final_model(kind: str, build: Build, corpus: Path) -> None:
    """Catches: weights in place of their average; a head or an objective without a record."""
    changes = dict(RUNS[kind])
    if kind == "left to right":
        shape = {"positions": "relative", "hidden_dropout_prob": 0.0, "embedding_size": 32}
        changes["model"] = {"change": {**build().model.change.model_dump(exclude_unset=True), **shape}}
    if kind == "halting":
        shape = changes["model"]["change"]
        changes["model"] = {"change": {**build().model.change.model_dump(exclude_unset=True), **shape}}
    run = finished(build, **changes)
    last = run / "checkpoints" / "step-8"
    same(last, run / "final")
    assert folder_config(last).get("albertine") == folder_config(run / "final").get("albertine")
    scores = [albertine.score(model, corpus, sequences=8) for model in (last, run / "final")]
    assert scores[0] == scores[1]
    earlier = albertine.load(run / "checkpoints" / "step-6")
    assert not torch.equal(
        earlier.encoder.embeddings.word.weight, albertine.load(last).encoder.embeddings.word.weight
    )


def test_of_a_narrower_student_the_student_alone(build: Build, corpus: Path, tmp_path: Path) -> None:
    teacher = teacher_of(corpus, tmp_path / "teacher")
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(
        "training: {steps: 2, batch_size: 4, workers: 0}\nobjective: {max_length: 32}\n"
        "watching: {tensorboard: false, evaluate_sequences: 8}\n"
    )
    narrow = {"depth": 2, "hidden_size": 16, "num_attention_heads": 2}
    quiet = Reporter(quiet=True)
    run = albertine.distill(
        teacher, corpus, tmp_path / "student", config=recipe, reporter=quiet, **narrow
    ).folder
    same(run / "checkpoints" / "step-2", run / "final")


def test_before_the_run_has_written_a_model(build: Build, corpus: Path, tmp_path: Path) -> None:
    """Its tokenizer is that of the corpus; catches: one of another corpus at the same place."""
    run = finished(build)
    for name in ("best", "final"):
        shutil.rmtree(run / name)
    step = run / "checkpoints" / "step-6"
    model, tokenizer = albertine.load(step), albertine.load_tokenizer(step)
    assert tokenizer.fingerprint == albertine.load_tokenizer(corpus / "tokenizer").fingerprint
    albertine.save(model, tokenizer, tmp_path / "copy")
    same(step, tmp_path / "copy")
    assert albertine.Predictor(step).fill_mask("the [MASK] man")
    again = build(
        name="again", model={"preset": None, "change": {}, "start_from": step}, training={"steps": 1}
    )
    assert pretrain(again, reporter=Reporter(quiet=True)).outcome.done
    state = json.loads((step / "state.json").read_text())["fingerprint"]["tokenizer"]
    assert state == tokenizer.fingerprint
    moved = shutil.copytree(step, tmp_path / "alone" / "step-6")
    assert albertine.load(moved).config == model.config
    with pytest.raises(TokenizerError, match="is a checkpoint, whose tokenizer is neither in its run"):
        albertine.load_tokenizer(moved)


def test_what_is_no_such_checkpoint(build: Build) -> None:
    run = finished(build)
    checkpoints = run / "checkpoints"
    with pytest.raises(ModelError, match=r"holds the checkpoints of a run. Name one, such as .*step-8"):
        albertine.load(checkpoints)
    with pytest.raises(ModelError, match=r"no such checkpoint. There are step-3, step-6, step-8"):
        albertine.load(checkpoints / "step-4")
    weights = checkpoints / "step-6" / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-5] ^= 0x40
    weights.write_bytes(data)
    with pytest.raises(ModelError, match=r"model.safetensors was changed after it was written"):
        albertine.load(checkpoints / "step-6")
