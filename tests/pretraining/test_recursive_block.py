"""A short run of one block with all that RecGPT's has (serdardoesml/bblm26-recgpt), and what its model does
afterwards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import albertine
from albertine.export.graph import graph_of
from albertine.export.onnx import runner, save_graph
from albertine.export.source_model import opened
from albertine.export.verify import verify
from albertine.inference.pruning import prune
from albertine.interop.huggingface.folders import load_model
from albertine.model.model import Model
from albertine.pretraining.run import pretrain
from albertine.pretraining.settings import PretrainingSettings, Student
from albertine.pretraining.student import student_of
from albertine.training.metrics import read_metrics
from albertine.training.progress import Reporter
from tests import reference
from tests.model import builders
from tests.pretraining.conftest import Build
from tests.toy import MODEL

BLOCK: dict[str, Any] = {
    "preset": "albertine-mini",
    "sharing": "all",
    "own": ["norms"],
    "output": "own",
    "residual_init": "zeros",
    "change": {
        **MODEL,
        **{"num_hidden_layers": 3, "embedding_size": 16, "type_vocab_size": 0, "norm": "pre"},
        **{"hidden_act": "relu2", "head_gate": True, "qk_norm": True},
    },
}


@pytest.fixture
def settings(build: Build) -> PretrainingSettings:
    training = {"steps": 60, "optimizer": "muon", "learning_rate": 0.02, "batch_size": 16}
    watching = {"evaluate_every": 60, "checkpoint_every": 60, "evaluate_sequences": 64}
    objective = {"pairs": "none", "max_length": 32}
    return build(model=BLOCK, training=training, watching=watching, objective=objective)


def test_it_learns_and_its_model_is_read_pruned_exported_and_reduced(
    settings: PretrainingSettings, corpus: Path, tmp_path: Path
) -> None:
    pretrain(settings, reporter=Reporter(quiet=True))
    lines = [line for line in read_metrics(settings.folder / "metrics.jsonl") if "loss" in line]
    assert lines[-1]["loss"] < lines[0]["loss"] - 0.3
    model = load_model(settings.folder / "final")
    assert model.config.output == "own" and model.config.head_gate and model.config.hidden_act == "relu2"
    gate = model.encoder.attention[0].gate
    assert gate.weight.any() and model.encoder.feed_forward[0].output.weight.any()  # type: ignore[union-attr]
    _equals_the_reference(model)

    filled = albertine.Predictor(settings.folder / "final").fill_mask("The old [MASK] was in the house.")
    assert len(filled) >= 1
    head = opened(settings.folder / "final").head
    save_graph(graph_of(head), tmp_path / "model.onnx", 20)
    assert verify(head, runner(tmp_path / "model.onnx", 1)).exact

    prune(settings.folder / "final", corpus, tmp_path / "small")
    small = load_model(tmp_path / "small")
    assert small.mlm is not None and small.mlm.output is not None
    assert len(small.mlm.output) == small.config.vocab_size

    student = student_of(model, Student(depth=2, embedding_size=8), seed=1)
    assert student.mlm is not None and student.mlm.output is not None
    assert student.mlm.output.shape == (model.config.vocab_size, 8)
    same = student_of(model, Student(depth=2), seed=1)
    assert same.mlm is not None and torch.equal(same.mlm.output, model.mlm.output)  # type: ignore


def _equals_the_reference(model: Model) -> None:
    batch = builders.packed([5, 1, 12, 12, 7])
    with torch.no_grad():
        states = reference.encode(model, *builders.padded(batch))[-1]
        rows = torch.cat([row[:n] for row, n in zip(states, batch.lengths, strict=True)])
        expected = reference.mlm_logits(model, rows)
        for backend, precision, bound in (
            ("plain", "float32", 1e-4),
            ("auto", "float32", 1e-4),
            ("auto", "bfloat16", 0.06),
            ("auto", "int8", 0.12),
        ):
            model.encoder.backend, model.precision = backend, precision  # type: ignore[assignment]
            found = model.mlm_logits(model.encoder(batch).last_hidden).float()
            assert (found - expected).norm() <= bound * expected.norm(), (backend, precision)
    model.encoder.backend, model.precision = "auto", "float32"


@pytest.mark.parametrize("optimizer", ["lamb", "adamw"])
def test_matrices_that_begin_at_zero_grow(build: Build, optimizer: str) -> None:
    training = {"steps": 12, "optimizer": optimizer, "learning_rate": 0.005}
    settings = build(model=BLOCK, training=training, objective={"pairs": "none", "max_length": 32})
    pretrain(settings, reporter=Reporter(quiet=True))
    model = load_model(settings.folder / "final")
    block, inner = model.encoder.attention[0], model.encoder.feed_forward[0]
    for weight in (block.output.weight, inner.output.weight, block.gate.weight):  # type: ignore[union-attr]
        assert weight.abs().max() > 0.005, float(weight.abs().max())  # more than a step
