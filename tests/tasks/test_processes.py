"""Fine-tuning in two processes ends with the weights of one, also where a batch has one example."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from albertine.cli.app import run


def test_a_batch_may_have_fewer_examples_than_processes(
    pretrained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [{"text": f"the {word}", "pair": "he was", "label": i / 4} for i, word in enumerate("abcde")]
    (tmp_path / "five.jsonl").write_text("\n".join(map(json.dumps, rows)))
    settings = [
        f"encoder.folder={json.dumps(str(pretrained))}",
        "task.kind=similarity",
        f"task.train={json.dumps(str(tmp_path / 'five.jsonl'))}",
        "task.pair=pair",
        "task.similarity.loss=cosine",
        "training.epochs=2",
        "training.batch_size=4",
        "training.learning_rate=0.001",
        "training.precision=float32",
        "watching.tensorboard=false",
    ]
    monkeypatch.chdir(tmp_path)
    assert run(["finetune", "name=one", *settings]) == 0
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command = [sys.executable, *torchrun, "-m", "albertine", "finetune", "name=two", *settings]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    one, two = (
        load_file(tmp_path / "runs" / name / "final" / "model.safetensors") for name in ("one", "two")
    )
    before = load_file(pretrained / "model.safetensors")
    name = "albert.embeddings.word_embeddings.weight"
    assert float((one[name] - before[name]).abs().max()) > 1e-4
    for name, value in one.items():
        torch.testing.assert_close(two[name], value, atol=1e-5, rtol=1e-4)
