"""A folder whose encoder halts or runs to a fixed point is described, used for predictions and tuned like any
other."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import albertine
from albertine.cli.app import run
from albertine.core.batch import pack
from albertine.errors import SettingsError
from albertine.inference.whitening import fit_whitening
from albertine.model.model import Model
from albertine.model.pair_head import Comparer, pair_means
from albertine.model.sharing import SharingPlan
from albertine.tasks.finetune import finetune
from albertine.tasks.initial_model import tuned_config
from albertine.tasks.predictor import Predictor
from albertine.training.metrics import read_metrics
from tests import stand_in
from tests.tasks.conftest import Tune


@pytest.fixture(scope="module", params=[pytest.param("basic", marks=pytest.mark.matrix), "accumulated"])
def halting(
    request: pytest.FixtureRequest, pretrained: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    tokenizer = albertine.load_tokenizer(pretrained)
    model = stand_in.rotary_model(
        tokenizer.vocab_size, seed=3, halting=request.param, step_signal="learned", position_signal="sinusoid"
    )
    folder = tmp_path_factory.mktemp("halting") / "loop"
    albertine.save(model, tokenizer, folder)
    return folder


def test_it_is_described(halting: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["info", str(halting)]) == 0
    output = capsys.readouterr().out
    assert "sinusoid signal of the place, learned signal of the step" in output
    assert "halting (at most 2 steps, epsilon 0.01)" in output
    assert run(["info", str(halting), "--json"]) == 0
    described = json.loads(capsys.readouterr().out)
    assert described["encoder"]["halting"] in ("basic", "accumulated")
    # Two rows of step signals, and a unit of H + 1.
    before = albertine.load(halting).config
    assert described["parameters"]["encoder"] == sum(
        p.numel()
        for name, p in albertine.load(halting).encoder.named_parameters()
        if not name.startswith("embeddings")
    )
    assert before.max_position_embeddings == 64


def test_words_are_filled_in(halting: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["predict", "fill-mask", str(halting), "the old man [MASK] a house", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    (guesses,) = Predictor(halting).fill_mask("the old man [MASK] a house")
    assert guesses[0].token in json.dumps(printed)


def test_it_is_tuned(halting: Path, tune: Tune) -> None:
    result = finetune(tune(encoder={"folder": halting}))
    assert result.scores["accuracy"] > 0.9
    best = albertine.load(result.folder / "best")
    assert best.config.halts
    (answer,) = Predictor(result.folder / "best").classify(["the good man was old"])
    assert answer["fine"] > 0.5


@pytest.fixture(scope="module")
def solving(pretrained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fixed point that is found, in some iterations more than one."""
    tokenizer = albertine.load_tokenizer(pretrained)
    model = stand_in.rotary_model(
        tokenizer.vocab_size, seed=3, solver="anderson", input_injection=True, depth=12
    )
    folder = tmp_path_factory.mktemp("solving") / "loop"
    albertine.save(model, tokenizer, folder)
    return folder


def test_a_run_records_the_residual_of_its_fixed_points(solving: Path, tune: Tune) -> None:
    model, tokenizer = albertine.load(solving), albertine.load_tokenizer(solving)
    few = model.config.with_plan(SharingPlan.shared(2))  # in which nothing converges
    short = Model(few, model.heads)
    short.load_state_dict(model.state_dict())
    albertine.save(short, tokenizer, solving.parent / "short")
    shares = []
    for folder in (solving, solving.parent / "short"):
        result = finetune(tune(name=folder.name, encoder={"folder": folder}, training={"epochs": 0.5}))
        rows = [r for r in read_metrics(result.folder / "metrics.jsonl") if "evaluation" not in r]
        assert all(row["residual"] > 0 and "gradient_residual" in row for row in rows)
        shares.append([row["converged"] for row in rows])
    assert max(shares[0]) > 0.5 and max(shares[1]) == 0


def test_pairs_are_compared_at_the_fixed_point(solving: Path) -> None:
    model = albertine.load(solving).eval()
    packed = pack([[1, 5, 6, 2, 7, 2], [1, 8, 2, 9, 9, 2]], [[0] * 4 + [1] * 2, [0] * 3 + [1] * 3])
    with torch.no_grad():
        found = Comparer(model, 2).vectors(packed)
        exact = pair_means(model.encoder(packed).last_hidden.float(), packed, 1)
        began = pair_means(model.encoder(packed, depth=1).last_hidden.float(), packed, 1)
    assert (found[:, 1] - exact).abs().max() < 1e-6 < 1e-3 < (began - exact).abs().max()


def test_vectors_are_those_of_the_fixed_point(solving: Path, tune: Tune, tmp_path: Path) -> None:
    model, tokenizer = albertine.load(solving), albertine.load_tokenizer(solving)
    sentences = [f"the {a} man was {b}" for a in ("good", "old", "dark", "young") for b in range(40)]
    found = fit_whitening(model, tokenizer, sentences)
    assert found.depth == model.config.plan.depth
    choice = tune(encoder={"folder": solving}).encoder
    assert tuned_config(model.config, choice, 1).plan.depth == model.config.plan.depth
    assert tuned_config(replace(model.config, solver="none"), choice, 1).plan.depth == 1


def refused(folder: Path, tune: Tune, why: str) -> None:
    settings = tune(encoder={"folder": folder}, task={"kind": "generation", "label": "answer"})
    with pytest.raises(SettingsError, match=f"writes token by token, which an encoder that {why}") as error:
        finetune(settings)
    assert error.value.remedy and not settings.folder.exists()


def test_what_writes_token_by_token_is_refused_before_anything_is_trained(halting: Path, tune: Tune) -> None:
    refused(halting, tune, "halts")


def test_a_fixed_point_does_not_write_either(solving: Path, tune: Tune) -> None:
    refused(solving, tune, "runs to its fixed point")
