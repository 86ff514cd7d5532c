"""Exit codes: 0 done, 1 failed, 2 wrong usage or input, 130 Ctrl-C."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from albertine.cli.app import run
from tests.contracts.products import Products

FILE = "model.safetensors"
COMMAND = [sys.executable, "-m", "albertine"]


@pytest.fixture(autouse=True)
def own_handler_of_sigterm() -> Iterator[None]:
    """`run` installs one for its process, which is this one here."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("--version", 0),
        ("--help", 0),
        ("info albert-base-v2", 0),
        ("pretrain --help", 0),
        ("no-such-verb", 2),
        ("info --no-such-flag", 2),
        ("info no/such/folder", 2),
        ("prepare no/such/text -o corpus", 2),
        ("pretrain name=a", 2),
        ("finetune name=a task.no_such_key=1", 2),
        ("evaluate no/such/run", 2),
        ("predict classify no/such/model text", 2),
        ("serve no/such/model", 2),
        ("doctor no/such/folder", 2),
    ],
)
def test_the_code_of(words: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(words.split()) == code
    assert not list(tmp_path.iterdir())  # a refused command writes nothing


def test_a_damaged_input_is_2(products: Products, tmp_path: Path) -> None:
    corpus = shutil.copytree(products.corpus, tmp_path / "corpus")
    assert run(["doctor", str(corpus)]) == 0
    shard = next(corpus.glob("train/*.tokens.npy"))
    shard.write_bytes(shard.read_bytes()[:-1])
    assert run(["doctor", str(corpus)]) == 2


def test_numbers_that_overflow_are_1(products: Products, tmp_path: Path) -> None:
    model = shutil.copytree(products.tuned.folder / "best", tmp_path / "model")
    weights = load_file(model / FILE)
    norm = "albert.embeddings.LayerNorm.weight"
    save_file({**weights, norm: np.full_like(weights[norm], 3e38)}, model / FILE)
    assert run(["predict", "classify", str(model), "a text", "--precision", "float32"]) == 1


def test_ctrl_c_is_130_and_the_run_is_saved(products: Products, tmp_path: Path) -> None:
    words = [
        *("name=stopped", "model.preset=albert-base-v2", "model.change.num_hidden_layers=2"),
        *("model.change.hidden_size=32", "model.change.num_attention_heads=2", "training.steps=100000"),
        *("training.batch_size=4", "training.workers=0", "watching.log_every=1"),
        *("watching.tensorboard=false", f"corpus={products.corpus}"),
    ]
    process = subprocess.Popen(
        [*COMMAND, "pretrain", *words], cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    folder = tmp_path / "runs" / "stopped"
    deadline = time.monotonic() + 120
    while not (folder / "metrics.jsonl").exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 130, errors.decode()
    assert b"Traceback" not in errors
    assert list((folder / "checkpoints").glob("step-*"))
