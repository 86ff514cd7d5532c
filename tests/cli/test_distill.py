"""`albertine distill` and `prune`: the settings of their arguments, and errors of wrong ones."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

import albertine.training.launch as launch
from albertine.cli.app import build
from albertine.corpus.prepare import write_corpus
from albertine.interop.huggingface.folders import load_model, save_model
from albertine.model.config import EncoderConfig
from albertine.model.model import Model
from albertine.model.sharing import SharingPlan
from albertine.tokenizers.load import load_tokenizer
from tests.cli.conftest import Command
from tests.toy import toy_vocabulary


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus and a model of four depths."""
    folder = tmp_path_factory.mktemp("distill")
    text, vocabulary = toy_vocabulary(folder, 60_000)
    tokenizer = load_tokenizer(vocabulary)
    write_corpus([text], folder / "corpus", tokenizer, "en", workers=1, held_out=0.3)
    config = EncoderConfig(
        vocab_size=tokenizer.vocab_size,
        embedding_size=8,
        hidden_size=16,
        num_attention_heads=2,
        intermediate_size=20,
        max_position_embeddings=64,
        plan=SharingPlan.unshared(4),
    )
    save_model(Model(config, {"mlm", "sop"}), tokenizer, folder / "big")
    return folder


def test_arguments_become_settings(albertine: Command, place: Path) -> None:
    words = ["distill", str(place / "big"), str(place / "corpus"), "--sharing", "all", "--dry-run", "seed=3"]
    output = yaml.safe_load(albertine(*words, "--hidden-size", "8", "training.minutes=2").out)
    student = {name: value for name, value in output["model"]["student"].items() if value is not None}
    assert student == {"sharing": "all", "hidden_size": 8}
    assert (
        output["objective"]["distillation"]["teacher"] == output["model"]["start_from"] == str(place / "big")
    )
    assert (output["name"], output["seed"], output["training"]["steps"]) == ("big-student", 3, None)
    elsewhere = yaml.safe_load(albertine(*words, "output=/else where").out)
    assert (elsewhere["name"], elsewhere["output"]) == ("big-student", "/else where")
    half = albertine(*words[:3], "--dry-run").out
    assert "    # layers of the student, initialised from some of the model's\n    depth: 2\n" in half
    halved = yaml.safe_load(half)
    assert halved["model"]["student"]["depth"] == 2 and halved["training"]["steps"] == 2000


def test_parts_without_lines_report_nothing(albertine: Command, place: Path, tmp_path: Path) -> None:
    empty = tmp_path / "r.yaml"
    empty.write_text("model:\nobjective:  # max_length: 64\ntraining:\n", encoding="utf-8")
    words = ("distill", place / "big", place / "corpus", "--dry-run")
    assert albertine(*words, "--config", empty).out == albertine(*words).out != ""
    whole = yaml.safe_load(albertine(*words, "objective={max_length: 64}", "training={steps: 3}").out)
    assert whole["objective"]["distillation"]["teacher"] == str(place / "big")
    assert (whole["objective"]["max_length"], whole["training"]["steps"]) == (64, 3)


def test_a_run_of_the_command(albertine: Command, place: Path, tmp_path: Path) -> None:
    small = ["training.steps=2", "training.batch_size=4", "objective.max_length=32", "training.workers=0"]
    small += ["watching.evaluate_sequences=4", "watching.tensorboard=false"]
    out = tmp_path / "runs" / "small"
    words = ["distill", str(place / "big"), str(place / "corpus"), *small, "--depth=1", "-o", str(out)]
    assert "Done after 2 steps" in albertine(*words).out
    assert load_model(out / "final").config.num_hidden_layers == 1
    assert "Done after 2 steps" in albertine(*words).out  # and is not done again


def test_a_branch_of_a_distillation(albertine: Command, place: Path, tmp_path: Path) -> None:
    """As the error of a failed run suggests."""
    words = ["distill", str(place / "big"), str(place / "corpus"), "training.batch_size=4"]
    words += ["objective.max_length=32", "training.workers=0", "watching.tensorboard=false", "--depth=1"]
    words += ["watching.evaluate_sequences=4", "watching.checkpoint_every=1"]
    first, second = tmp_path / "runs" / "first", tmp_path / "runs" / "second"
    assert albertine(*words, "training.steps=2", "-o", first).code == 0
    command = [*words, "training.steps=3", "-o", second]
    outcome = albertine(*command, "--branch-from", first / "checkpoints" / "step-2")
    assert outcome.code == 0 and "Done after 3 steps" in outcome.out
    assert "begins at step 2 of" in " ".join(outcome.err.split()) and (second / "branch.json").is_file()


def test_other_processes_get_the_same_words(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    @contextmanager
    def stop_here(processes: int, words: list[str]) -> Iterator[None]:
        seen.append((processes, words))
        raise SystemExit(0)
        yield

    monkeypatch.setattr(launch, "together", stop_here)
    words = ["distill", str(place / "big"), str(place / "corpus"), "seed=3", "--depth=2", "--output=runs/x"]
    words += ["--branch-from=runs/y/checkpoints/step-2"]
    with pytest.raises(SystemExit):
        build()([*words, "--processes=2"])
    given = ["distill", str(place / "big"), str(place / "corpus"), "seed=3", "--output=runs/x", "--depth=2"]
    given += ["--branch-from=runs/y/checkpoints/step-2"]
    assert seen == [(2, [*given, "--resume=auto", "--processes=2"])]


def test_wrong_arguments_are_reported(albertine: Command, place: Path, tmp_path: Path) -> None:
    nobody = albertine("distill", "nobody", str(place / "corpus"))
    assert nobody.code == 2 and "neither a folder nor a released model" in nobody.err
    for given, word in (
        (["corpus=x"], "CORPUS"),
        (["model.start_from=x"], "TEACHER"),
        (["objective.distillation.teacher=x"], "TEACHER"),
        (["name=x", "-o", str(tmp_path / "y")], "--output"),
    ):
        outcome = albertine("distill", str(place / "big"), str(place / "corpus"), "--dry-run", *given)
        assert outcome.code == 2 and f"is set by {word}" in outcome.err
    near = albertine("distill", str(place / "big"), str(place / "corpus"), "--hiden-size=8")
    assert near.code == 2 and "Did you mean --hidden-size" in near.err
    both = albertine(
        "prune",
        str(place / "big"),
        str(place / "corpus"),
        "-o",
        str(tmp_path / "out"),
        "--keep=300",
        "--coverage=0.9",
    )
    assert both.code == 2 and "both set how many tokens stay" in both.err
    for part in ("training: 5", "model: small", "objective: [64]"):
        (tmp_path / "r.yaml").write_text(f"{part}\n", encoding="utf-8")
        odd = albertine("distill", place / "big", place / "corpus", "--config", tmp_path / "r.yaml")
        assert odd.code == 2 and f"`{part.partition(':')[0]}`" in odd.err and "Traceback" not in odd.err
    same = albertine("prune", str(place / "big"), str(place / "corpus"), "-o", str(place / "big"))
    assert same.code == 2 and "is both read and written" in same.err


def test_pruning_by_a_corpus(albertine: Command, place: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    output = albertine(
        "prune", str(place / "big"), str(place / "corpus"), "-o", str(out), "--keep", "400"
    ).out
    assert "pieces" in output and "400 of 500" in output and "unknown" in output
    assert load_model(out).config.vocab_size == 400 == load_tokenizer(out).vocab_size
    assert (place / "corpus" / "manifest.json").is_file()  # a corpus that was named is not tidied away
    for option in ("--workers=1", "--language=en"):
        idle = albertine("prune", place / "big", place / "corpus", "-o", tmp_path / "idle", option)
        assert idle.code == 2 and "are for text, not for a corpus" in " ".join(idle.err.split())
