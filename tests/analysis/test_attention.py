"""Attention weights of a text, what is computed from them, and the command that shows them."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch

import albertine as package
from albertine.analysis.attention import attention_of, distance, entropy, similarities
from albertine.cli.app import run
from albertine.errors import DataError
from albertine.model.model import Model
from albertine.model.sharing import SharingPlan
from tests import reference
from tests.model import builders
from tests.model.test_universal import universal

TEXT = "今天天气很好。"


def chinese(plan: SharingPlan | None = None, **changes: object) -> Model:
    tokenizer = package.load_tokenizer("albertine-mini-zh")
    return builders.model(plan, vocab_size=tokenizer.vocab_size, **changes)


def test_values_computed_by_hand() -> None:
    even, one = [0.25] * 4, [0.0, 0.0, 0.0, 1.0]
    maps = torch.tensor([[even] * 4, [one] * 4, [[0.5, 0.5, 0.0, 0.0]] * 4])
    assert entropy(maps)[:, 0].tolist() == pytest.approx([math.log(4), 0, math.log(2)])
    # distances of each query to keys 0 to 3: even (6, 4, 4, 6) / 4, the last key 3, 2, 1, 0
    assert distance(maps).tolist() == pytest.approx([1.25, 1.5, (0.5 + 0.5 + 1.5 + 2.5) / 4])
    found = similarities(maps)
    # JS of one and even: the mean is (1/8, 1/8, 1/8, 5/8)
    mixed = 3 / 8 * math.log(8) + 5 / 8 * math.log(8 / 5)
    assert float(found[0, 1]) == pytest.approx(1 - (mixed - math.log(4) / 2) / math.log(2), abs=1e-6)
    assert float(found[1, 2]) == pytest.approx(0, abs=1e-6)  # no key in common
    assert torch.equal(found, found.T) and found.diag().tolist() == [1, 1, 1]


def jensen_shannon(p: np.ndarray, q: np.ndarray) -> float:
    """As it is defined, by relative entropies to the mean."""
    m = (p + q) / 2
    parts = [sum(a * math.log(a / b) for a, b in zip(x, m, strict=True) if a > 0) for x in (p, q)]
    return sum(parts) / 2


@pytest.mark.parametrize("plan", [SharingPlan.shared(3), SharingPlan.unshared(3), SharingPlan.grouped(4, 2)])
def test_maps_of_a_model_are_those_of_the_reference(plan: SharingPlan) -> None:
    model, tokenizer = chinese(plan), package.load_tokenizer("albertine-mini-zh")
    maps = attention_of(model, tokenizer, TEXT)
    ids = torch.tensor([tokenizer(TEXT)["input_ids"]])
    with torch.no_grad():
        layers = reference.attentions(model, ids, torch.ones_like(ids), torch.zeros_like(ids))
    expected = torch.stack(layers)[:, 0].numpy()
    length, depth = ids.shape[1], plan.depth
    assert maps.tokens[0] == "[CLS]" and len(maps.tokens) == length and maps.blocks == plan.attention
    assert maps.weights.shape == (depth, 4, length, length) and maps.weights.dtype == np.float32
    assert np.abs(maps.weights - expected).max() <= 1e-5
    assert maps.entropy.shape == maps.distance.shape == (depth, 4)
    shared = []
    for a in range(depth):
        for b in range(depth):
            pairs = zip(expected[a].mean(0), expected[b].mean(0), strict=True)
            right = 1 - np.mean([jensen_shannon(p, q) for p, q in pairs]) / math.log(2)
            assert maps.similarity[a, b] == pytest.approx(right, abs=1e-5)
            for head in range(4):
                pairs = zip(expected[a, head], expected[b, head], strict=True)
                right = 1 - np.mean([jensen_shannon(p, q) for p, q in pairs]) / math.log(2)
                found = maps.head_similarity[head, a, b]
                if plan.attention[a] != plan.attention[b]:
                    assert math.isnan(found)
                else:
                    assert found == pytest.approx(right, abs=1e-5)
                    shared += [right] if a < b else []
    above = maps.similarity[np.triu_indices(depth, 1)]
    assert maps.mean_similarity == pytest.approx(above.mean(), abs=1e-6)
    assert maps.mean_head_similarity == pytest.approx(np.mean(shared), abs=1e-5) if shared else True
    assert math.isnan(maps.mean_head_similarity) is (not shared)
    heads = [
        1 - np.mean([jensen_shannon(p, q) for p, q in zip(layer[i], layer[j], strict=True)]) / math.log(2)
        for layer in expected
        for i in range(4)
        for j in range(i)
    ]
    assert maps.other_heads == pytest.approx(np.mean(heads), abs=1e-5)


def test_layers_that_were_not_computed_are_left_out() -> None:
    tokenizer = package.load_tokenizer("albertine-mini-zh")
    model = universal(bias=3.0, vocab_size=tokenizer.vocab_size)
    maps = attention_of(model, tokenizer, TEXT)
    assert 1 <= len(maps.weights) < 6 and len(maps.blocks) == len(maps.weights)
    assert maps.weights.sum(-1) == pytest.approx(1, abs=1e-5)
    model = chinese(SharingPlan.shared(9), solver="anderson", input_injection=True, initializer_range=0.1)
    maps = attention_of(model, tokenizer, TEXT)
    assert len(maps.weights) == 1 and maps.as_dict()["mean_similarity"] is None


def test_texts_that_have_no_maps_are_refused() -> None:
    model, tokenizer = chinese(), package.load_tokenizer("albertine-mini-zh")
    with pytest.raises(DataError, match="there is no text"):
        attention_of(model, tokenizer, " ")
    with pytest.raises(
        DataError, match=r"has 42 tokens with special ones, and the model reads 32\. Shorten it"
    ):
        attention_of(model, tokenizer, "天" * 40)
    assert len(attention_of(model, tokenizer, "天" * 30).tokens) == 32


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    package.save(
        chinese(SharingPlan.shared(3)), package.load_tokenizer("albertine-mini-zh"), tmp_path / "deep"
    )
    return tmp_path / "deep"


@pytest.mark.pictures
def test_the_command(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture, page = tmp_path / "plots" / "maps.png", tmp_path / "maps.html"
    arguments = ["analyze", "attention", str(folder), TEXT]
    assert run([*arguments, "--json", "--plot", str(picture), "--html", str(page)]) == 0
    found = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert found["model"] == "deep" and np.array(found["weights"]).shape[:2] == (3, 4)
    assert found == {"model": "deep", **package.analyze.attention(folder, TEXT).as_dict()}
    assert picture.stat().st_size > 20_000
    html = page.read_text(encoding="utf-8")
    assert TEXT in html and html.count("<svg") == 2 and f"{found['mean_similarity']:.3f}" in html
    assert run(arguments) == 0
    out = capsys.readouterr().out
    assert "deep: entropy in nats\n" in out and "deep: mean distance in tokens" in out
    low, high = (f"{x:.2f}" for x in (min(found["entropy"][1]), max(found["entropy"][1])))
    assert f"{low} to {high}" in out and f"{found['similarity'][1][2]:.3f}" in out
    assert f"{found['mean_similarity']:.3f}, mean over pairs" in out
    assert f"{found['mean_head_similarity']:.3f}, where they share its weights" in out
    assert f"{found['entropy'][0][0]:.2f}" in out


def test_the_command_checks_its_files_first(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("albertine.analysis.attention.attention_of", lambda *_: pytest.fail("computed"))
    (tmp_path / "file").touch()
    for option, name, message in (
        ("--plot", "x.txt", "is not the name of a PNG or SVG file"),
        ("--plot", "file/x.png", "cannot be written"),
        ("--html", "x.png", "is not the name of an HTML file"),
    ):
        assert run(["analyze", "attention", str(folder), TEXT, option, str(tmp_path / name)]) == 2
        assert message in capsys.readouterr().err
    assert run(["analyze", "attention", str(folder), " "]) == 2
    assert "give a text" in capsys.readouterr().err
    assert run(["analyze", "attention", str(tmp_path / "nothing"), TEXT]) == 2
    assert "neither a folder nor a released model" in capsys.readouterr().err
