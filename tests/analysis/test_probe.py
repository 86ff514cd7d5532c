"""Scores over depth: the probe against scikit-learn, operations by formula, the command."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression as Peer

import albertine as package
from albertine.analysis.parameters import inference_flops_per_token
from albertine.analysis.probe import (
    DepthScore,
    DepthScores,
    LogisticRegression,
    flops_of_depths,
    in_words,
    majority,
    pooled_states,
)
from albertine.model.presets import preset
from albertine.model.sharing import SharingPlan
from tests.analysis.test_html_report import Elements
from tests.cli.conftest import Command
from tests.cli.conftest import albertine as albertine
from tests.evaluation.test_suites import few_pairs as few_pairs
from tests.evaluation.test_suites import write
from tests.model import builders


def test_the_probe_is_the_optimum_that_scikit_learn_finds() -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 200)
    features = rng.normal(size=(200, 8)) * 3 + 2 + labels[:, None] * rng.normal(size=8)
    features[:, 3] = 7.0  # a feature without variance
    probe = LogisticRegression(torch.from_numpy(features), torch.from_numpy(labels), 3)
    deviation = features.std(0)
    standard = (features - features.mean(0)) / np.where(deviation > 0, deviation, 1)
    peer = Peer(tol=1e-8, max_iter=2000).fit(standard, labels)
    assert probe.weight.detach().numpy() == pytest.approx(peer.coef_, abs=2e-3)
    assert (probe.predict(torch.from_numpy(features)).numpy() == peer.predict(standard)).all()


def test_pooled_states_are_means_of_each_layer() -> None:
    model = builders.model(SharingPlan.unshared(2))
    batches = [builders.packed([4, 6]), builders.packed([3])]
    found = pooled_states(model, batches)
    with torch.no_grad():
        states = [model.encoder(batch, all_depths=True).hidden_states for batch in batches]
    assert found.shape == (3, 3, 24)
    assert torch.allclose(found[1, 2], states[0][2][4:].mean(0), atol=1e-6)
    assert torch.allclose(found[2, 0], states[1][0].mean(0), atol=1e-6)


def test_pooled_states_of_a_fixed_point_are_those_of_every_iteration() -> None:
    model = builders.model(SharingPlan.shared(3), input_injection=True, solver="anderson")
    batch = builders.packed([4, 6])
    found = pooled_states(model, [batch])
    assert found.shape == (2, 4, 24) and not model.encoder.loop.unrolled
    with torch.no_grad():
        embeddings = model.encoder(batch, depth=0).last_hidden
        assert torch.allclose(found[1, 0], embeddings[4:].mean(0), atol=1e-6)
        model.encoder.loop.unrolled = True
        for depth in (1, 2, 3):
            state = model.encoder(batch, depth=depth).last_hidden
            assert torch.allclose(found[1, depth], state[4:].mean(0), atol=1e-6)


@pytest.mark.parametrize("name", ["albert-base-v2", "bert-base"])
def test_operations_of_a_depth_are_those_of_a_model_of_that_depth(name: str) -> None:
    config = preset(name)
    found = flops_of_depths(config, 128)
    assert len(found) == 13
    for depth in (1, 5, 12):
        cut = replace(config, plan=config.plan.truncated(depth))
        assert found[depth] == pytest.approx(inference_flops_per_token(cut, 128))
    mapping = 2 * 128 * 768 if config.has_mapping else 0
    assert found[0] == pytest.approx(mapping)


def test_the_baseline_is_the_commonest_training_class() -> None:
    assert majority(np.array([1, 1, 0]), np.array([1, 0, 0, 2])) == 0.25


def test_the_least_depth_that_suffices_is_named() -> None:
    values = (0.5, 0.78, 0.8, 0.79)
    scores = tuple(DepthScore(d, v, v - 0.03, v + 0.03, 1e6 * d, 1.0) for d, v in enumerate(values))
    found = DepthScores("m", "task", "accuracy", 0.4, "chance", 100, scores)
    assert found.best.depth == 2
    assert in_words(found) == (
        "task, 100 scored; chance 40.0%. Best at depth 2; depth 1 is within its interval, with 50% of the "
        "operations."
    )


@pytest.mark.pictures
@pytest.mark.usefixtures("few_pairs")
def test_a_suite_after_every_layer(albertine: Command, tmp_path: Path) -> None:
    data, figure, report = write(tmp_path, "blimp", 1), tmp_path / "blimp.svg", tmp_path / "blimp.html"
    tokenizer, model = package.load_tokenizer("albertine-mini-en"), tmp_path / "tiny"
    changes = {"vocab_size": tokenizer.vocab_size, "max_position_embeddings": 64}
    package.save(builders.model(SharingPlan.unshared(3), **changes), tokenizer, model)
    arguments = ("analyze", "probe", model, "--suite", "blimp", "--data", data)
    outcome = albertine(*arguments, "--json", "--plot", figure, "--html", report)
    assert outcome.code == 0, outcome.err
    (found,) = json.loads(outcome.out)
    assert [s["depth"] for s in found["scores"]] == [0, 1, 2, 3] and found["baseline"] == 0.5
    exact = ("--json", "--precision", "float32")
    whole = json.loads(albertine("suite", "blimp", model, "--data", data, *exact).out)
    assert found["scores"][-1]["value"] == pytest.approx(whole["right"]) and found["count"] == whole["pairs"]
    drawn = figure.read_text(encoding="utf-8")
    assert ">BLiMP over depth: tiny<" in drawn and ">pairs that are right<" in drawn
    assert any(tag == "svg" for tag, _ in Elements(report.read_text(encoding="utf-8")).found)


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables of texts whose class is one word, which the embeddings already show."""
    folder = tmp_path_factory.mktemp("weather")
    words = ("sun", "rain")
    for split, count in (("train", 60), ("dev", 20)):
        rows = [f"there was {words[i % 2]} on day {i}\t{words[i % 2]}" for i in range(count)]
        (folder / f"{split}.tsv").write_text("\n".join(["text\tlabel", *rows]) + "\n", encoding="utf-8")
    return folder


def test_a_linear_probe_on_every_layer(albertine: Command, task: Path) -> None:
    models = ("albertine-mini-en", "albertine-small-en")
    outcome = albertine("analyze", "probe", *models, "--task", task, "--json")
    assert outcome.code == 0, outcome.err
    found = json.loads(outcome.out)
    assert [one["model"] for one in found] == list(models)
    for one in found:
        assert (one["count"], one["baseline"], one["what"]) == (20, 0.5, "train.tsv")
        assert one["scores"][0]["value"] == 1.0
        flops = [score["flops"] for score in one["scores"]]
        assert flops == sorted(flops) and all(score["seconds"] > 0 for score in one["scores"])
    table = albertine("analyze", "probe", models[0], "--task", task, "--limit", 10).out
    assert "0 (embeddings)" in table and "10 scored; the most frequent class 50.0%" in table


def test_bad_input_is_refused(albertine: Command, task: Path, tmp_path: Path) -> None:
    (tmp_path / "half").mkdir()
    (tmp_path / "half" / "train.tsv").write_text("text\tlabel\na b\tc\n")
    for words, message in (
        ([], "give one of --suite and --task"),
        (["--suite", "blimp", "--task", task], "give one of --suite and --task"),
        (["--suite", "blimp"], "a suite needs the folder of its files"),
        (["--suite", "blump", "--data", task], "there is no suite `blump`"),
        (["--task", tmp_path / "half"], "has no table dev"),
        (["--task", "sst-2"], "needs --data"),
        (["--task", "no-such-set", "--data", tmp_path], "no-such-set"),
        (["--task", "sts-b", "--data", tmp_path], "a linear probe predicts one class"),
        (["--task", task, "--html", tmp_path / "x.txt"], "is not the name of an HTML file"),
    ):
        outcome = albertine("analyze", "probe", "albertine-mini-en", *words)
        assert outcome.code == 2 and message in " ".join(outcome.err.split()), (words, outcome.err)


def test_a_suite_needs_a_masked_lm_head(albertine: Command, tmp_path: Path) -> None:
    from albertine.model.model import Model

    tokenizer = package.load_tokenizer("albertine-mini-en")
    config = builders.config(vocab_size=tokenizer.vocab_size)
    package.save(Model(config, {"pooler"}), tokenizer, tmp_path / "bare")
    outcome = albertine("analyze", "probe", tmp_path / "bare", "--suite", "blimp", "--data", tmp_path)
    assert outcome.code == 2 and "no masked-LM head" in outcome.err
