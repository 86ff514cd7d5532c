"""keras-xlnet (CyberZHG) computes of our checkpoints of XLNet what we compute."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import albertine
from albertine.core.batch import Packed, pack
from albertine.interop.tensorflow.checkpoints import save_checkpoint
from albertine.model.model import Model
from albertine.model.sharing import SharingPlan
from albertine.model.two_streams import Segments, encode_segments, predict_segments
from tests.interop.test_xlnet import our_model

HERE = Path(__file__).with_name("tensorflow")
KEPT = HERE / "keras_xlnet"
BOUND = {"atol": 1e-5, "rtol": 1e-5}
SMALL = {
    **{"vocab_size": 21, "embedding_size": 8, "hidden_size": 8, "num_attention_heads": 2},
    **{"intermediate_size": 12, "hidden_act": "gelu_new", "plan": SharingPlan.unshared(2)},
}
SHAPES: dict[str, dict[str, Any]] = {"base": {}, "tied": {"relative_biases": "tied", "hidden_act": "relu"}}


def small(name: str) -> Model:
    """The model whose checkpoint is kept under a name."""
    return our_model({"lm"}, **(SMALL | SHAPES[name]))


def rows(ids: Tensor, segments: Tensor, mask: Tensor | None = None) -> Packed:
    kept = torch.ones_like(ids).bool() if mask is None else mask.bool()
    texts = [(i[m].numpy(), s[m].numpy()) for i, s, m in zip(ids, segments, kept, strict=True)]
    return pack([ids for ids, _ in texts], [segments for _, segments in texts])


@torch.no_grad()
def assert_computed(model: Model, stored: Mapping[str, np.ndarray]) -> None:
    """What keras-xlnet computed, we compute: contents, with padding; contents after a memory; chances of the
    second stream, of which each place sees all others."""
    given = {name: torch.from_numpy(x) for name, x in stored.items()}
    real, segments = given["mask"].bool(), given["segments"]
    states = model(given["ids"], given["mask"], segments).last_hidden_state
    torch.testing.assert_close(states[real], given["states"][real], **BOUND)
    whole, after = rows(given["whole"], segments), rows(given["next"], segments)
    _, memory = encode_segments(model.encoder, Segments(whole), keep=6)
    found, _ = encode_segments(model.encoder, Segments(after), memory)
    torch.testing.assert_close(found.view(given["after"].shape), given["after"], **BOUND)
    without, _ = encode_segments(model.encoder, Segments(after))
    assert (without - found).abs().max() > 0.01
    streams = Segments(
        after,
        targets=torch.arange(12),
        masks=(torch.ones(6, 6).bool(),) * 2,
        target_masks=(~torch.eye(6).bool(),) * 2,
    )
    logits, _ = predict_segments(model, streams)
    chances = logits.softmax(-1).view(given["chances"].shape)
    torch.testing.assert_close(chances, given["chances"], **BOUND)


@pytest.mark.parametrize("name", SHAPES)
def test_it_computed_what_we_compute(name: str) -> None:
    """Of checkpoints that `convert --to xlnet-tf` wrote. Catches: q, k, v, r or o changed for one another or
    transposed, a segment bias of another layer, a mask embedding or bias that is not the head's."""
    model = albertine.load(KEPT / name)
    assert model.config == small(name).config and model.heads == {"lm"}
    with np.load(KEPT / name / "outputs.npz") as stored:
        assert_computed(model, stored)


@pytest.mark.parametrize("name", SHAPES)
def test_what_is_written_is_what_it_read(name: str, tmp_path: Path) -> None:
    save_checkpoint(albertine.load(KEPT / name), None, tmp_path, "xlnet-tf")
    for file in sorted(KEPT.joinpath(name).glob("model.ckpt-best.*")):
        assert (tmp_path / file.name).read_bytes() == file.read_bytes()


@pytest.mark.parametrize("name", SHAPES)
def test_it_computes_what_is_written(name: str, tmp_path: Path) -> None:
    python = os.environ.get("ALBERTINE_KERAS_XLNET")
    if not python:
        pytest.skip("ALBERTINE_KERAS_XLNET names no Python with keras-xlnet and tensorflow-cpu==2.15.1")
    save_checkpoint(model := small(name), None, tmp_path, "xlnet-tf")
    oracle = HERE / "keras_xlnet_oracle.py"
    subprocess.run([python, oracle, tmp_path, tmp_path / "out.npz"], check=True)
    with np.load(tmp_path / "out.npz") as found:
        assert_computed(model, found)
