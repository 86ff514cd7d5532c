"""What a shared plan does over depth, and the verb that shows it."""

from __future__ import annotations

import io
import json
import math
import sys
from pathlib import Path

import pytest
import torch

import albertine as package
from albertine.analysis.depth import LAYERS_DIFFER, convergence_rate, study_depth
from albertine.cli.app import run
from albertine.model.fixed_point import FixedPoint
from albertine.model.sharing import SharingPlan
from tests.analysis.test_html_report import Elements
from tests.model import builders

pytestmark = pytest.mark.pictures

LENGTHS = [5, 12, 7]


def test_the_distance_of_a_contractive_block_falls_by_its_spectral_radius() -> None:
    settings = {"input_injection": True, "initializer_range": 0.1}
    model = builders.model(SharingPlan.shared(3), **settings).double()  # type: ignore[arg-type]
    study = study_depth(model, builders.packed(LENGTHS), depths=60, tolerance=1e-10)
    assert all(study.converged) and max(study.radius) < 0.9
    assert study.rate == pytest.approx(max(study.radius), rel=0.02)
    assert study.distance[40] / study.distance[30] == pytest.approx(study.rate**10, rel=0.1)
    assert study.residual[50] < 1e-3 < study.residual[0] and study.cosine[-1] == pytest.approx(1.0)
    unrolled = model.encoder(builders.packed(LENGTHS), depth=3)  # the loop is the model's own again
    assert unrolled.equilibrium is None


def moved(before: torch.Tensor, after: torch.Tensor) -> float:
    """How far a depth moved its input, in proportion to its output, the mean over sequences."""
    parts = zip(before.split(LENGTHS), after.split(LENGTHS), strict=True)
    return sum(float((b - a).norm() / b.norm()) for a, b in parts) / len(LENGTHS)


def test_plain_albert_begins_at_its_embeddings_and_is_what_the_encoder_computes() -> None:
    model, batch = builders.model(SharingPlan.shared(3)), builders.packed(LENGTHS)
    study = study_depth(model, batch, depths=3)
    with torch.no_grad():
        states = model.encoder(batch, all_depths=True).hidden_states
    for d in range(3):
        assert study.residual[d] == pytest.approx(moved(*states[d : d + 2]), rel=1e-4)


@pytest.mark.parametrize("solver", ["none", "anderson"])
def test_with_injection_it_begins_where_the_encoder_does(solver: str) -> None:
    """At the embeddings where every depth is computed, at zeros where the encoder looks for a fixed point."""
    model = builders.model(SharingPlan.shared(3), input_injection=True, solver=solver)
    batch = builders.packed(LENGTHS)
    study = study_depth(model, batch, depths=3)
    if isinstance(loop := model.encoder.loop, FixedPoint):
        loop.unrolled = True
    with torch.no_grad():
        states = [*model.encoder(batch, all_depths=True).hidden_states]
    for d in range(3):
        assert study.residual[d] == pytest.approx(moved(*states[d : d + 2]), rel=1e-4)


@pytest.mark.parametrize("default", [torch.float32, torch.float64])
def test_a_study_is_of_the_texts_alone_and_leaves_no_trace(default: torch.dtype) -> None:
    """Catches: a sequence that fills up a batch of bfloat16; a program's generator that continues from our
    seed."""
    model, batch = builders.model(SharingPlan.shared(3)), builders.packed([5, 12])
    expected = study_depth(model, batch, depths=2, limit=20)
    torch.set_default_dtype(default)
    try:
        before = torch.get_rng_state()
        for precision in ("bfloat16", "int8"):
            model.precision = precision  # type: ignore[assignment]
            assert study_depth(model, batch, depths=2, limit=20) == expected
            assert model.precision == precision
        assert torch.equal(torch.get_rng_state(), before)
    finally:
        torch.set_default_dtype(torch.float32)
    assert len(expected.converged) == len(expected.radius) == 2


def test_a_pre_norm_plan_continues_as_its_second_layer() -> None:
    model, batch = builders.model(SharingPlan.shared(3), norm="pre"), builders.packed(LENGTHS)
    study = study_depth(model, batch, depths=2)
    with torch.no_grad():
        states = model.encoder(batch, all_depths=True).hidden_states
    assert study.residual[0] == pytest.approx(moved(*states[:2]), rel=1e-4)


@pytest.mark.parametrize("signal", ["learned", "sinusoid"])
def test_a_block_with_step_embeddings_has_no_fixed_point(signal: str) -> None:
    """Catches: the signal of step 1 at all later depths; a radius and a rate at a point that is none."""
    model, batch = builders.model(SharingPlan.shared(4), step_signal=signal), builders.packed(LENGTHS)
    study = study_depth(model, batch, depths=48)
    with torch.no_grad():
        states = model.encoder(batch, all_depths=True).hidden_states
    for d in range(4):
        assert study.residual[d] == pytest.approx(moved(*states[d : d + 2]), rel=1e-4)
    assert len(study.residual) == len(study.cosine) == 4  # there is no signal of a fifth step
    assert study.no_fixed_point == "a step that depends on its number has no fixed point"
    assert not (study.distance or study.radius or study.converged) and math.isnan(study.rate)


def test_the_rate_is_of_what_is_no_noise() -> None:
    assert convergence_rate([0.5**i for i in range(60)]) == pytest.approx(0.5)
    assert convergence_rate([max(0.5**i, 1e-6) for i in range(60)], noise=1e-5) == pytest.approx(0.5)
    assert math.isnan(convergence_rate([1.0, 1e-9, 1e-9, 1e-9, 1e-9]))
    assert math.isnan(convergence_rate([math.nan] * 9))


@pytest.mark.parametrize(
    "plan", [SharingPlan.unshared(3), SharingPlan((0, 0), (0, 0), own=("norms",)), SharingPlan.grouped(4, 2)]
)
def test_layers_that_differ_have_residuals_and_no_fixed_point(plan: SharingPlan) -> None:
    model, batch = builders.model(plan), builders.packed(LENGTHS)
    study = study_depth(model, batch, depths=48)
    with torch.no_grad():
        states = model.encoder(batch, all_depths=True).hidden_states
    assert len(study.residual) == len(study.cosine) == plan.depth
    for d in range(plan.depth):
        assert study.residual[d] == pytest.approx(moved(*states[d : d + 2]), rel=1e-4)
    assert study.no_fixed_point == LAYERS_DIFFER
    assert not (study.distance or study.radius or study.converged) and math.isnan(study.rate)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Of a model whose depths share everything."""
    tokenizer = package.load_tokenizer("albertine-mini-zh")
    model = builders.model(SharingPlan.shared(4), vocab_size=tokenizer.vocab_size)
    package.save(model, tokenizer, tmp_path / "plain")
    return tmp_path / "plain"


def test_the_verb(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = tmp_path / "plots" / "depth.png"
    texts = ["今天天气很好。", "我们去公园。"]
    arguments = ["analyze", "depth", str(folder), *texts, "--depths", "6"]
    assert run([*arguments, "--json", "--plot", str(picture)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found["residual"]) == 6 and len(found["radius"]) == 2 and found["depths_of_plan"] == 4
    assert picture.stat().st_size > 5000
    assert run(arguments) == 0
    out = capsys.readouterr().out
    assert f"{sum(found['radius']) / 2:.3f} (median), {max(found['radius']):.3f} (largest)" in out
    assert f"{found['residual'][0]:.2e}" in out
    assert run(["analyze", "depth", "albertine-mini-en", "A text."]) == 0
    out = capsys.readouterr().out
    assert "the layers of this model have different weights" in out and "distance" not in out


def test_figure_and_report_have_values_at_a_logarithmic_axis(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    figure, report = tmp_path / "depth.svg", tmp_path / "depth.html"
    arguments = ["analyze", "depth", str(folder), "今天天气很好。", "--depths", "12"]
    assert run([*arguments, "--plot", str(figure), "--html", str(report)]) == 0
    capsys.readouterr()
    drawn = figure.read_text(encoding="utf-8")
    assert ">relative L2 distance<" in drawn and "power of ten" not in drawn
    assert ">Convergence over depth of plain<" in drawn and str(tmp_path) not in drawn
    text = report.read_text(encoding="utf-8")
    assert any(tag == "svg" for tag, _ in Elements(text).found)
    assert "Spectral radius there:" in text and '<th scope="row">12</th>' in text


def test_the_verb_prints_that_there_is_no_fixed_point(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tokenizer = package.load_tokenizer("albertine-mini-zh")
    model = builders.model(step_signal="learned", halting="basic", vocab_size=tokenizer.vocab_size)
    package.save(model, tokenizer, tmp_path / "loop")
    arguments = ["analyze", "depth", str(tmp_path / "loop"), "今天天气很好。"]
    assert run([*arguments, "--plot", str(tmp_path / "depth.png")]) == 0
    out = capsys.readouterr().out
    assert "A step that depends on its number has no fixed point (the plan has 3 depths)." in out
    assert "distance" not in out and "radius" not in out and (tmp_path / "depth.png").is_file()
    assert run([*arguments, "--json"]) == 0
    found = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert found["rate"] is None and len(found["residual"]) == 3


def test_the_verb_refuses_before_the_study_begins(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("albertine.analysis.depth.study_depth", lambda *_, **__: pytest.fail("a study"))
    monkeypatch.setattr("sys.stdin", io.StringIO("\n"))
    assert run(["analyze", "depth", str(folder)]) == 2
    assert "give a text" in capsys.readouterr().err
    (tmp_path / "folder.png").mkdir()
    for name in ("x.txt", "folder.png", "plots/"):
        assert run(["analyze", "depth", str(folder), "A text.", "--plot", f"{tmp_path}/{name}"]) == 2
        assert "is not the name of a PNG or SVG file. End it in .png" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert run(["analyze", "depth", str(folder), "A text.", "--plot", str(tmp_path / "x.png")]) == 2
    assert "matplotlib is not installed" in capsys.readouterr().err
