"""Weights in half the bytes: what both programs make of such a folder."""

from __future__ import annotations

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file
from typer.testing import CliRunner

from albertine.cli.app import build
from albertine.errors import ModelError
from albertine.interop.huggingface.folders import load_model, save_model
from albertine.model.sharing import SharingPlan
from tests.model import builders


@pytest.mark.parametrize("stored", ["float16", "bfloat16"])
def test_half_the_bytes_and_float32_when_loaded(stored: Any, tmp_path: Path) -> None:
    model = builders.model(SharingPlan.unshared(2), positions="rotary")
    save_model(model, None, tmp_path / "whole")
    save_model(model, None, tmp_path / "half", stored=stored)
    dtype = getattr(torch, stored)
    tensors = load_file(tmp_path / "half" / "model.safetensors")
    positions = tensors.pop("roformer.encoder.embed_positions.weight")
    assert positions.dtype == torch.float32  # no weights: transformers turns by what stands there
    assert {x.dtype for x in tensors.values()} == {dtype}
    again = load_model(tmp_path / "half")
    for name, x in model.state_dict().items():
        found = again.state_dict()[name]
        assert found.dtype == torch.float32
        assert torch.equal(found, x.to(dtype).float()), name
    theirs = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "half")
    assert {x.dtype for x in theirs.parameters()} == {torch.float32}


def test_a_number_too_large_for_float16_is_reported(tmp_path: Path) -> None:
    model = builders.model()
    with torch.no_grad():
        model.encoder.embeddings.word.weight[3, 1] = 1e5
    with pytest.raises(ModelError, match=r"word.*float16"):
        save_model(model, None, tmp_path / "m", stored="float16")
    assert not (tmp_path / "m").exists()
    save_model(model, None, tmp_path / "m", stored="bfloat16")


def test_convert_stores_the_requested_format(tmp_path: Path) -> None:
    save_model(builders.model(), None, tmp_path / "whole")
    done = CliRunner().invoke(
        build(), ["convert", str(tmp_path / "whole"), str(tmp_path / "half"), "--dtype", "float16"]
    )
    assert done.exit_code == 0, done.output
    assert {x.dtype for x in load_file(tmp_path / "half" / "model.safetensors").values()} == {torch.float16}
