"""Checkpoints of bert4keras: read as it computes them, written as it loads them."""

from __future__ import annotations

import os
import subprocess

os.environ.setdefault("HF_HUB_OFFLINE", "1")

from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

import albertine
from albertine.errors import SettingsError
from albertine.interop.huggingface.folders import save_model
from albertine.interop.tensorflow.bundle import open_bundle, read_index
from albertine.interop.tensorflow.checkpoints import NAME, save_checkpoint
from albertine.interop.tensorflow.names import kind_of
from albertine.interop.weights import read_json
from albertine.model.model import Model
from albertine.model.sharing import SharingPlan
from tests.interop.test_roformer import assert_same_model
from tests.model import builders

HERE = Path(__file__).with_name("tensorflow")
KEPT = HERE / "bert4keras"


@pytest.mark.parametrize(
    ("name", "kind", "blocks", "act"),
    [
        ("albert", "albert", 1, "gelu_new"),
        ("unshared", "unshared", 3, "gelu_new"),
        ("bert", "bert", 3, "gelu"),
    ],
)
@torch.no_grad()
def test_three_ways(name: str, kind: str, blocks: int, act: str, tmp_path: Path) -> None:
    """What bert4keras computed of a checkpoint it saved, we and transformers compute of it too. Its ALBERT
    has 1e-7 in the LayerNorms of its block, which is less than the numbers are exact to."""
    _, entries = read_index(KEPT / name / "model.ckpt.index")
    model, stored = albertine.load(KEPT / name), np.load(KEPT / name / "outputs.npz")
    assert (kind_of(entries), model.config.plan.num_attention_blocks) == (kind, blocks)
    assert model.config.hidden_act == act and model.heads >= {"pooler", "mlm"}
    save_model(model, None, tmp_path)
    theirs = transformers.AutoModel.from_pretrained(tmp_path).eval()
    wanted = {part: torch.from_numpy(stored[part]) for part in stored.files}
    batch = wanted["ids"], wanted["mask"], wanted["segments"]
    real, bound = wanted["mask"].bool(), {"atol": 1e-5, "rtol": 1e-5}
    ours, third = model(*batch), theirs(*batch)
    for out in (ours, third):
        torch.testing.assert_close(out.last_hidden_state[real], wanted["sequence"][real], **bound)
    with model.encoder.forward_pass():
        logits = model.mlm_logits(ours.last_hidden_state[real])
    torch.testing.assert_close(logits, wanted["mlm"][real], **bound)
    assert model.sentence is not None and ours.pooler_output is not None
    proba = model.sentence(ours.pooler_output).softmax(-1)
    torch.testing.assert_close(proba, wanted["sentence"], **bound)


def test_layers_of_an_unshared_one_are_counted() -> None:
    """One name for all of them, and TensorFlow's numbers behind it; the first has none."""
    block = "bert/encoder/transformer/group_0/inner_group_0"
    with open_bundle(KEPT / "unshared" / "model.ckpt") as found:
        for d, copy in enumerate(("", "_1", "_2")):
            kernel = found.read(f"{block}/ffn_1/intermediate/dense/kernel{copy}")
            ours = albertine.load(KEPT / "unshared").encoder.feed_forward[d].intermediate.weight
            assert torch.equal(kernel.T, ours)
            norm = found.read(f"{block}/LayerNorm_1/gamma{copy}")
            assert torch.equal(
                norm, albertine.load(KEPT / "unshared").encoder.feed_forward[d].layer_norm.weight
            )


SHAPES = {
    "shared": ("albert", SharingPlan.shared(3), 8),
    "shared, one width": ("albert", SharingPlan.shared(3), 24),
    "unshared": ("bert", SharingPlan.unshared(3), 8),
    "BERT": ("bert", SharingPlan.unshared(3), 24),
    "one depth": ("bert", SharingPlan.unshared(1), 8),
}


@pytest.mark.parametrize("act", ["gelu", "gelu_new", "relu"])
@pytest.mark.parametrize("shape", SHAPES)
def test_what_it_can_hold_comes_back(shape: str, act: str, tmp_path: Path) -> None:
    kind, plan, width = SHAPES[shape]
    model = builders.model(plan, embedding_size=width, hidden_act=act)
    save_checkpoint(model, None, tmp_path, "bert4keras")
    assert_same_model(albertine.load(tmp_path), model)
    config = read_json(tmp_path / f"{kind}_config.json")
    assert config["hidden_act"] == {"gelu": "gelu_erf", "gelu_new": "gelu_tanh"}.get(act, act)
    assert config.get("embedding_size", 24) == width


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"plan": SharingPlan.grouped(4, 2)}, r"one block for all depths or one for each. Add --lossy"),
        ({"plan": SharingPlan.grouped(4, 1, 2)}, "a plan other than one block"),
        ({"layer_norm_eps": 1e-5}, "layer_norm_eps 1e-05, .* Add --lossy"),
        ({"positions": "rotary"}, "the block of roformer. Leave --to out"),
    ],
)
def test_what_it_would_compute_otherwise_is_refused(
    changes: dict[str, object], message: str, tmp_path: Path
) -> None:
    """It supports one group: it would silently ignore the others of a checkpoint."""
    model = Model(builders.config(**changes), {"mlm"})  # type: ignore[arg-type]
    with pytest.raises(SettingsError, match=message):
        save_checkpoint(model, None, tmp_path / "m", "bert4keras")


@pytest.mark.parametrize("shape", ["shared", "shared, one width", "unshared", "BERT"])
@torch.no_grad()
def test_bert4keras_computes_what_is_written(shape: str, tmp_path: Path) -> None:
    python = os.environ.get("ALBERTINE_BERT4KERAS")
    if not python:
        pytest.skip("ALBERTINE_BERT4KERAS names no Python with bert4keras and tensorflow-cpu==2.15.1")
    kind, plan, width = SHAPES[shape]
    for act in ("gelu", "gelu_new"):
        model, folder = builders.model(plan, embedding_size=width, hidden_act=act), tmp_path / act
        save_checkpoint(model, None, folder, "bert4keras")
        assert (folder / f"{NAME}.index").is_file()
        oracle = HERE / "bert4keras_oracle.py"
        subprocess.run([python, oracle, "run", folder, kind, folder / "out.npz"], check=True)
        found = {part: torch.from_numpy(x) for part, x in np.load(folder / "out.npz").items()}
        out = model(found["ids"], found["mask"], found["segments"])
        real = found["mask"].bool()
        torch.testing.assert_close(out.last_hidden_state[real], found["sequence"][real], atol=1e-5, rtol=1e-5)
        with model.encoder.forward_pass():
            logits = model.mlm_logits(out.last_hidden_state[real])
        torch.testing.assert_close(logits, found["mlm"][real], atol=1e-4, rtol=1e-4)
