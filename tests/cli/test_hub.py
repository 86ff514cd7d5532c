"""Every verb that takes a model takes `owner/name` of the hub; a run records the revision it began with."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from albertine.core import released
from tests import stand_in
from tests.cli.conftest import Command
from tests.hub import COMMIT, Hub, contents, keep, serving

NAME, EN = "someone/a-model", released.DEFAULT_MODELS["en"]
MASKED = "the old [MASK] sat on the mat ."


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return stand_in.put(tmp_path_factory.mktemp("model"), "en")


@pytest.fixture(autouse=True)
def cache(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache with the model, which is the one that is released too, and an empty working directory."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(released, "FOLDER", model.parent)
    keep(tmp_path / "hub", NAME, contents(model))
    return tmp_path / "hub"


def rows(file: str) -> str:
    lines = [f"the {word} cat,{word}" for word in ("good", "old") * 8]
    Path(file).write_text("\n".join(["text,label", *lines]) + "\n")
    return file


FAST = ["training.steps=2", "watching.report=false", "watching.tensorboard=false"]
TUNE = ["finetune", "task.train=t.csv", "task.dev=t.csv", "task.max_length=16", *FAST]


def test_the_verbs_of_inference(albertine: Command, model: Path) -> None:
    for verb in (["predict", "fill-mask", "{}", MASKED, "--json"], ["tokenizer", "encode", "{}", "a cat"]):
        by_name, by_path = (albertine(*[w.format(m) for w in verb]) for m in (NAME, model))
        assert by_name.code == 0 and by_name.out == by_path.out, by_name.err
    assert json.loads(albertine("info", NAME, "--json").out)["encoder"]["positions"] == "rotary"
    assert f"{NAME}: a model with" in albertine("doctor", NAME).out
    assert albertine("convert", NAME, "copy").code == 0 and contents(Path("copy")) == contents(model)
    Path("text.txt").write_text("the old man said he was a good cat on the mat .\n" * 20)
    assert albertine("score", NAME, "--texts", "text.txt").code == 0


def test_a_tuned_run_records_the_revision(albertine: Command) -> None:
    rows("t.csv")
    tuned = albertine(*TUNE, "name=x", f"encoder.folder={NAME}")
    assert tuned.code == 0, tuned.err
    record = json.loads(Path("runs/x/result.json").read_text())
    assert record["encoder"] == NAME and f"encoder: {NAME}, revision {COMMIT} of the hub" in record["notes"]
    assert COMMIT in tuned.out
    before = Path("runs/x/result.json").stat().st_mtime_ns
    assert albertine(*TUNE, "name=x", f"encoder.folder={NAME}").code == 0
    assert Path("runs/x/result.json").stat().st_mtime_ns == before, "what is done is not done again"


def test_a_run_is_a_model_to_the_verbs(albertine: Command) -> None:
    rows("t.csv")
    assert albertine(*TUNE, "name=x", f"encoder.folder={EN}").code == 0
    again = albertine(*TUNE, "name=y", "encoder.folder=runs/x")
    assert again.code == 0, again.err
    record = json.loads(Path("runs/y/result.json").read_text())
    before = f"tuned before on {Path('t.csv').absolute()}, from {EN}"
    assert Path(record["encoder"]).absolute() == Path("runs/x").absolute() and record["pretraining"] == before
    assert any("left aside" in note for note in record["notes"])
    assert albertine("predict", "classify", "runs/y", "the old cat").code == 0
    assert albertine("convert", "runs/x", "copy").code == 0 and Path("copy/config.json").is_file()
    Path("runs/x/best/model.safetensors").unlink()
    done = albertine(*TUNE, "name=y", "encoder.folder=runs/x")
    assert done.code == 2 and "holds no model.safetensors" in done.err, "its encoder has changed"


def test_a_tuned_model_is_scored_on_the_files_of_its_task(albertine: Command, cache: Path) -> None:
    rows("t.csv")
    assert albertine(*TUNE, "name=x", f"encoder.folder={NAME}").code == 0
    keep(cache, "someone/tuned", contents(Path("runs/x/best")))
    refused = albertine("evaluate", "someone/tuned")
    assert refused.code == 2 and "albertine evaluate someone/tuned task.dev=FILE" in refused.err
    scores = [
        json.loads(albertine("evaluate", *words, "--dev", "--json").out)[0]["scores"]
        for words in (["runs/x"], ["someone/tuned", "task.dev=t.csv"])
    ]
    mistyped = albertine("evaluate", "run/x")
    assert mistyped.code == 2 and "run/x: is no folder here" in mistyped.err
    assert "Did you mean `runs/x`?" in mistyped.err
    assert scores[0] == scores[1] and Path("runs/tuned/evaluation/report.md").is_file()
    assert not Path("someone").exists()


def test_pretraining_starts_from_a_revision(albertine: Command) -> None:
    Path("text").mkdir()
    for number in range(20):
        Path("text", f"{number}.txt").write_text(f"the old man said he was a good cat {number}.\n" * 20)
    assert albertine("prepare", "text", "-o", "corpus", "--tokenizer", NAME, "--held-out", 0.3).code == 0
    small = ["objective.max_length=32", "training.batch_size=4", "training.workers=0"]
    watching = ["watching.evaluate_sequences=8", "watching.tensorboard=false", "training.steps=2"]
    outcome = albertine(
        "pretrain", "name=more", "corpus=corpus", f"model.start_from={NAME}", *small, *watching
    )
    assert outcome.code == 0, outcome.err
    assert f"starts from {NAME}, revision {COMMIT} of the hub" in Path("runs/more/log.txt").read_text()


@pytest.mark.parametrize(
    "command",
    [
        ("predict", "fill-mask", "albert-base-v2", MASKED),
        ("predict", "embed", "albert-base-v2", "a text"),
        ("convert", "albert-base-v2", "there"),
        ("score", "albert-base-v2", "--texts", "."),
        ("finetune", "name=x", "task.train=t.csv", "encoder.folder=albert-base-v2"),
    ],
)
def test_a_preset_is_one_message(albertine: Command, command: tuple[str, ...]) -> None:
    outcome = albertine(*command)
    assert outcome.code == 2 and outcome.err.count("\n") == 1
    assert f"is a preset, a shape without weights. Released models: {EN}; or name" in outcome.err
    assert albertine("info", "albert-base-v2").code == 0


def test_a_model_comes_over_the_network(model: Path, tmp_path: Path) -> None:
    pytest.importorskip("huggingface_hub")
    hub = Hub()
    hub.models["owner/new"] = contents(model) | {"pytorch_model.bin": b"a pickle"}
    with serving(hub):
        online = {"HF_ENDPOINT": hub.url, "HF_HUB_OFFLINE": "0", "HF_HOME": str(tmp_path / "home")}
        environment = {k: v for k, v in os.environ.items() if k != "HF_HUB_CACHE"} | online
        done = subprocess.run(
            [sys.executable, "-m", "albertine", "convert", "owner/new", "copy"],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    assert contents(Path("copy")) == contents(model)
    assert set(hub.requested) == set(contents(model))
    assert (tmp_path / "home" / "hub" / "models--owner--new" / "refs" / "main").read_text() == COMMIT
