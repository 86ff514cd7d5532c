"""Predictions with another number of layers: `--layers`, `Predictor(layers=…)`, `load(layers=…)`."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import albertine
from albertine.errors import ModelError, SettingsError
from albertine.model.config import EncoderConfig
from albertine.model.model import Model
from albertine.model.resharing import with_layers
from albertine.model.sharing import SharingPlan
from albertine.pretraining.scores import suite_scores_by_depth
from albertine.tasks.finetune import save_tuned
from albertine.tasks.predictor import Predictor
from albertine.tokenizers.wordpiece import WordPieceTokenizer
from tests.cli.conftest import Command
from tests.cli.conftest import albertine as albertine_command  # noqa: F401
from tests.evaluation.test_suites import few_pairs, write  # noqa: F401
from tests.inference.exports import FAMILIES, PIECES, TEXTS, encoder

PLAN = replace(SharingPlan.looped(1, 1, 2, 1), own=("norms",))


def config() -> EncoderConfig:
    return encoder(1).with_plan(PLAN)


def randomised(model: torch.nn.Module) -> None:
    """Every parameter away from its initial value, so that layers differ."""
    draws = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for x in model.parameters():
            x.add_(0.3 * torch.randn(x.shape, generator=draws))


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory: pytest.TempPathFactory) -> dict[int | None, Path]:
    """A masked LM of four layers, and by number of layers the folder of the same with others."""
    home, tokenizer = tmp_path_factory.mktemp("pretrained"), WordPieceTokenizer(PIECES)
    model = Model(config(), {"mlm", "sop"}, seed=2).eval()
    randomised(model)
    found: dict[int | None, Path] = {None: home / "all"}
    albertine.save(model, tokenizer, home / "all")
    for layers in (3, 6):
        found[layers] = home / str(layers)
        albertine.save(with_layers(model, layers), tokenizer, home / str(layers))
    return found


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> dict[int | None, Path]:
    """A classifier likewise."""
    home, tokenizer, family = tmp_path_factory.mktemp("tuned"), WordPieceTokenizer(PIECES), FAMILIES["single"]
    base = Model(config(), family.heads, seed=2)
    randomised(base)
    found: dict[int | None, Path] = {}
    for layers in (None, 3, 6):
        other = base if layers is None else with_layers(base, layers)
        model = family.build(other, 0.0, 1).eval()
        draws = torch.Generator().manual_seed(7)
        with torch.no_grad():
            for name, x in model.named_parameters():
                if not name.startswith("base."):
                    x.copy_(0.7 * torch.randn(x.shape, generator=draws))
        found[layers] = home / str(layers)
        save_tuned(model, tokenizer, family, found[layers])
    return found


@pytest.mark.parametrize("layers", [3, 6])
def test_a_tuned_model_predicts_as_one_saved_with_these_layers(
    tuned: dict[int | None, Path], layers: int
) -> None:
    whole, other = Predictor(tuned[None]), Predictor(tuned[layers])
    mine = Predictor(tuned[None], layers=layers)

    def logits(predictor: Predictor) -> list[float]:
        return [x for row in predictor.classify(TEXTS, logits=True) for x in row.values()]

    assert logits(mine) == pytest.approx(logits(other))
    assert logits(mine) != pytest.approx(logits(whole), rel=0.01)
    np.testing.assert_allclose(mine.embed(TEXTS), other.embed(TEXTS), atol=1e-5)
    assert mine.fingerprint != whole.fingerprint


@pytest.mark.parametrize("layers", [3, 6])
def test_commands_take_the_number_of_layers(
    albertine_command: Command,  # noqa: F811
    pretrained: dict[int | None, Path],
    tuned: dict[int | None, Path],
    tmp_path: Path,
    layers: int,
) -> None:
    table = tmp_path / "rows.csv"
    table.write_text("text,label\n" + "".join(f"{text},{i % 2}\n" for i, text in enumerate(TEXTS)))
    for before, after, known in (
        (("predict", "fill-mask"), ("the [MASK] man", "--json"), pretrained),
        (("predict", "order"), ("the old man", "a house", "--json"), pretrained),
        (("predict", "embed"), ("the old man",), pretrained),
        (("predict", "classify"), ("the old man", "--json"), tuned),
        (("score",), ("--texts", table, "--json"), pretrained),
    ):
        found = albertine_command(*before, known[None], *after, "--layers", layers)
        expected = albertine_command(*before, known[layers], *after)
        whole = albertine_command(*before, known[None], *after)
        assert found.code == expected.code == whole.code == 0, found.err
        assert numbers(found.out) == pytest.approx(numbers(expected.out), rel=1e-4, abs=1e-5)
        assert numbers(found.out) != pytest.approx(numbers(whole.out), rel=1e-3)


def numbers(out: str) -> list[float]:
    """All numbers of a printed JSON tree."""

    def of(tree: object) -> list[float]:
        if isinstance(tree, dict):
            return [x for value in tree.values() for x in of(value)]
        if isinstance(tree, list):
            return [x for value in tree for x in of(value)]
        return [float(tree)] if isinstance(tree, int | float) else []

    return of(json.loads(out))


def test_a_run_is_scored_with_other_layers(tuned: dict[int | None, Path]) -> None:
    names = Predictor(tuned[None]).family.labels
    rows = [{"text": text, "label": names[i % len(names)]} for i, text in enumerate(TEXTS * 4)]
    found = albertine.evaluate(tuned[None], file=rows, layers=3)
    assert found == albertine.evaluate(tuned[3], file=rows)
    with pytest.raises(SettingsError, match=r"Take 3$"):
        albertine.evaluate(tuned[None], file=rows, layers=2)


def test_load_gives_the_model_with_these_layers(pretrained: dict[int | None, Path]) -> None:
    ids = torch.tensor([[2, 7, 8, 3]])
    mine, other = albertine.load(pretrained[None], layers=6), albertine.load(pretrained[6])
    with torch.no_grad():
        torch.testing.assert_close(mine(ids).last_hidden_state, other(ids).last_hidden_state)
    with pytest.raises(SettingsError, match="layers is a whole number from 1"):
        albertine.load(pretrained[None], layers=0)
    with pytest.raises(SettingsError, match="num_hidden_layers"):
        albertine.load("albert-base-v2", random=True, layers=2)


@pytest.mark.usefixtures("few_pairs")
def test_the_curve_over_depth_counts_loops_before_a_coda(
    pretrained: dict[int | None, Path], tmp_path: Path
) -> None:
    write(tmp_path, "blimp", 1)
    found = suite_scores_by_depth("blimp", pretrained[None], tmp_path, limit=1)
    assert [score.depth for score in found.scores] == [3, 4]
    assert found.scores[1].flops == pytest.approx(found.scores[0].flops * 4 / 3, rel=0.2)


def test_what_cannot_have_other_layers_is_refused(
    albertine_command: Command,  # noqa: F811
    tuned: dict[int | None, Path],
    tmp_path: Path,
) -> None:
    outcome = albertine_command("predict", "classify", tuned[None], "the old man", "--layers", 2)
    assert outcome.code == 2
    assert "2 layers are no whole number of loops" in outcome.err and "Take 3" in " ".join(
        outcome.err.split()
    )
    unshared = tmp_path / "unshared"
    model = Model(config().with_plan(SharingPlan.unshared(2)), {"mlm"})
    albertine.save(model, WordPieceTokenizer(PIECES), unshared)
    assert len(Predictor(unshared, layers=1).embed(["the old man"])) == 1
    with pytest.raises(SettingsError, match="can compute its first 1 to 2 layers"):
        Predictor(unshared, layers=3)


def test_a_server_computes_these_layers(tuned: dict[int | None, Path]) -> None:
    """As `albertine serve --layers` and the `layers` of Ray Serve and Triton."""
    from starlette.testclient import TestClient

    from albertine.serving.app import application
    from albertine.serving.hosted import HostedSettings, running_models

    models = running_models(tuned[None], "few", HostedSettings(layers=3, precision="float32"))
    with TestClient(application(models), "http://localhost") as client:
        found = client.post("/predict", json={"inputs": [[text] for text in TEXTS[:3]]}).json()
    assert models.stop(10.0)
    expected = Predictor(tuned[3], precision="float32").classify(TEXTS[:3])
    for row, values in zip(found, expected, strict=True):
        assert {one["label"]: one["score"] for one in row} == pytest.approx(values, abs=1e-5)


def test_an_export_has_its_own_number_of_layers(tuned: dict[int | None, Path], tmp_path: Path) -> None:
    exported = albertine.export(tuned[None], tmp_path / "exported").folder
    with pytest.raises(ModelError, match=r"always computes all layers.*--layers"):
        Predictor(exported, layers=3)
