"""A folder whose encoder halts by itself is described, asked and tuned like any other."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import albertine
from albertine.cli.app import run
from albertine.errors import SettingsError
from albertine.tasks.finetune import finetune
from albertine.tasks.predictor import Predictor
from tests import stand_in
from tests.tasks.conftest import Tune


@pytest.fixture(scope="module", params=["basic", "accumulated"])
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
    said = capsys.readouterr().out
    assert "sinusoid signal of the place, learned signal of the step" in said
    assert "halting (at most 2 steps, epsilon 0.01)" in said
    assert run(["info", str(halting), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["encoder"]["halting"] in ("basic", "accumulated")
    # Two rows of step signals, and a unit of H + 1.
    before = albertine.load(halting).config
    assert told["parameters"]["encoder"] == sum(
        p.numel()
        for name, p in albertine.load(halting).encoder.named_parameters()
        if not name.startswith("embeddings")
    )
    assert before.max_position_embeddings == 64


def test_words_are_filled_in(halting: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["predict", "fill-mask", str(halting), "the old man [MASK] a house", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    (asked,) = Predictor(halting).fill_mask("the old man [MASK] a house")
    assert asked[0].token in json.dumps(said)


def test_it_is_tuned(halting: Path, tune: Tune) -> None:
    result = finetune(tune(encoder={"folder": halting}))
    assert result.scores["accuracy"] > 0.9
    best = albertine.load(result.folder / "best")
    assert best.config.halts
    (said,) = Predictor(result.folder / "best").classify(["the good man was old"])
    assert said["fine"] > 0.5


def test_what_writes_token_by_token_is_refused_before_anything_is_trained(halting: Path, tune: Tune) -> None:
    settings = tune(encoder={"folder": halting}, task={"kind": "generation", "label": "answer"})
    with pytest.raises(SettingsError, match="writes token by token") as error:
        finetune(settings)
    assert error.value.remedy and not settings.folder.exists()
