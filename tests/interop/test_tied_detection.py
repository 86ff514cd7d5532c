"""`albertine info` of a folder of copies: what they were written from, and whether they are copies still."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import albertine as package
from albertine.errors import ModelError
from albertine.interop.huggingface.folders import save_model
from albertine.interop.tied_detection import detect_expanded
from albertine.interop.tied_expansion import KEPT
from albertine.model.model import Model
from albertine.model.sharing import SharingPlan
from tests.cli.conftest import Command
from tests.cli.conftest import albertine as albertine  # the fixture
from tests.model import builders

ROTARY: dict[str, Any] = {"positions": "rotary"}
MODERN: dict[str, Any] = {
    **ROTARY,
    **{"norm": "pre", "feed_forward": "gated", "biases": False, "type_vocab_size": 0, "embedding_size": 24},
}
FEED_FORWARD = ("layer.3.output.dense.weight", "layers.3.mlp.Wo.weight", "layer.3.ff.layer_2.weight")
PLANS = {
    "all": SharingPlan.shared(4),
    "groups": SharingPlan.grouped(4, 2),
    "feed-forward": SharingPlan.feed_forward_only(4),
    "norms of its own": replace(SharingPlan.shared(3), own=("norms",)),
    "factors of its own": replace(SharingPlan.shared(3), own=("norms", "residuals")),
}
RELATIVE: dict[str, Any] = {
    **{"positions": "relative", "embedding_size": 24, "type_vocab_size": 3, "embedding_norm": False},
    **{"summary": "last", "initialization": "normal"},
}
BLOCKS: dict[str, dict[str, Any]] = {
    "bert": {"embedding_size": 24},
    "electra": {},
    "roformer": ROTARY,
    "modernbert": MODERN,
    "xlnet": RELATIVE,
}


PRODUCTS: dict[str, dict[str, Any]] = {
    "modernbert": MODERN | {"embedding_size": 16},
    "transformers": {"embedding_mapping": "words"},
}
"""Whose word embeddings are written multiplied."""


def jostled(**changes: Any) -> Model:
    """A model whose depths differ in what they have of their own."""
    model = builders.model(**changes)
    torch.manual_seed(4)
    if model.encoder.own is not None:
        for parameter in model.encoder.own.parameters():
            torch.nn.init.normal_(parameter, 1.0, 0.2)
    return model


@pytest.mark.parametrize("stored", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize(
    ("layout", "changes"),
    [*BLOCKS.items(), *PRODUCTS.items()],
    ids=[*BLOCKS, *(f"{x}, mapped" for x in PRODUCTS)],
)
@pytest.mark.parametrize("plan", PLANS)
def test_what_copies_were_written_from(
    layout: Any, changes: dict[str, Any], plan: str, stored: Any, tmp_path: Path
) -> None:
    """As reading the whole folder finds it, and what lies beside copies to the bit; catches: own norms taken
    for parts of a block, the unused norm of ModernBERT's first depth compared, attention and feed-forward
    taken for one, factors that are rounded, copies in half precision compared with unrounded ones."""
    model, folder = jostled(plan=PLANS[plan], **changes), tmp_path / "m"
    save_model(model, None, folder, layout=layout, stored=stored)
    found, again = detect_expanded(folder / "config.json"), package.load(folder)
    assert found is not None and found.equal and found.config == again.config
    assert found.config.plan == PLANS[plan]
    kept, dtype = load_file(folder / "model.safetensors").keys(), getattr(torch, stored)
    for name, x in model.state_dict().items():
        wanted = x if f"{KEPT}{name}" in kept else x.to(dtype).float()
        assert torch.equal(again.state_dict()[name], wanted), name


@pytest.mark.parametrize("stored", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("part", ["words", "a factor", "an identity"])
def test_a_changed_copy_is_reported_as_it_is_read(part: str, stored: Any, tmp_path: Path) -> None:
    """Not only blocks may have been trained elsewhere: the table of words, what a depth has of its own, and
    the mapping that transformers' ALBERT has in any case. Catches: `info` looking at blocks alone."""
    plan, folder = PLANS["all" if part == "an identity" else "factors of its own"], tmp_path / "m"
    layout: Any = "transformers" if part == "an identity" else "modernbert"
    model = jostled(plan=plan, **PRODUCTS[layout])
    save_model(model, None, folder, layout=layout, stored=stored)
    tensors = load_file(folder / "model.safetensors")
    name = {
        "words": "model.embeddings.tok_embeddings.weight",
        "a factor": "model.layers.1.mlp.Wo.weight",
        "an identity": "albert.encoder.embedding_hidden_mapping_in.weight",
    }[part]
    tensors[name][2, 1] += 0.0625
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    found, again = detect_expanded(folder / "config.json"), package.load(folder)
    assert found is not None and not found.equal and again.config != model.config


@pytest.mark.parametrize("layout", BLOCKS)
def test_one_number_of_one_depth(layout: Any, tmp_path: Path) -> None:
    """Catches: only the first depths, or only vectors, are looked at."""
    folder = tmp_path / "m"
    save_model(builders.model(plan=PLANS["feed-forward"], **BLOCKS[layout]), None, folder, layout=layout)
    tensors = load_file(folder / "model.safetensors")
    name = next(
        n for n in tensors if n.endswith(FEED_FORWARD)
    )  # of the feed-forward block, which alone is shared
    tensors[name][0, 0] += 1e-3
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    found = detect_expanded(folder / "config.json")
    assert found is not None and not found.equal
    assert package.load(folder).config.plan == SharingPlan.unshared(4)


def test_info_of_tied_copies(albertine: Command, tmp_path: Path) -> None:
    folder = tmp_path / "m"
    save_model(
        builders.model(plan=PLANS["groups"], **MODERN | {"embedding_size": 16}),
        None,
        folder,
        layout="modernbert",
    )
    output = albertine("info", folder).out
    assert "4 depths, each with its own block" in output and "Its depths are copies, read as" in output
    assert "2 blocks: 1 to 2 use number 0; 3 to 4 use number 1; words of 16 mapped to 24" in output
    printed = json.loads(albertine("info", folder, "--json").out)["copies_of"]
    assert printed["equal"] is True and printed["encoder"]["plan"]["attention"] == [0, 0, 1, 1]
    (folder / "model.safetensors").rename(tmp_path / "elsewhere")
    assert (
        "Written as copies of another model: 4 depths, 2 blocks"
        in albertine("info", folder / "config.json").out
    )


def test_what_is_no_copy(albertine: Command, tmp_path: Path) -> None:
    for number, layout in enumerate(("transformers", "albertine")):
        folder = tmp_path / str(number)
        save_model(builders.model(), None, folder, layout=layout)  # type: ignore[arg-type]
        assert detect_expanded(folder / "config.json") is None
        assert "copies" not in albertine("info", folder).out


def test_a_depth_that_only_the_configuration_states(tmp_path: Path) -> None:
    """Catches: a model of a million depths made of a small file, before it is looked at."""
    folder = tmp_path / "m"
    save_model(builders.model(plan=PLANS["all"], **ROTARY), None, folder, layout="roformer")
    tree = json.loads((folder / "config.json").read_text())
    tree["num_hidden_layers"] = 50_000
    plan = {"attention": [0] * 50_000, "feed_forward": [0] * 50_000}
    tree["albertine"]["encoder"]["plan"] = plan
    (folder / "config.json").write_text(json.dumps(tree))
    with pytest.raises(ModelError):
        detect_expanded(folder / "config.json")


@pytest.mark.parametrize("layout", BLOCKS)
def test_a_tensor_of_another_shape(layout: Any, tmp_path: Path) -> None:
    """Catches: comparing before the shapes are checked, which PyTorch cannot do."""
    folder = tmp_path / "m"
    save_model(builders.model(plan=PLANS["all"], **BLOCKS[layout]), None, folder, layout=layout)
    tensors = load_file(folder / "model.safetensors")
    name = next(
        n
        for n in tensors
        if ".1." in n and any(part in n for part in ("attention.self", "attn.Wqkv", "rel_attn.q"))
    )
    tensors[name] = tensors[name].flatten()[:5].clone()
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(ModelError, match="has shape"):
        detect_expanded(folder / "config.json")
