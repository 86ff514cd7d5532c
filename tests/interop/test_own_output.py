"""Output matrices that are not the word embeddings: the logits of transformers, both ways, and the layouts
without a place for one."""

from __future__ import annotations

import json
import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

import albertine
from albertine.errors import ModelError, SettingsError
from albertine.export.convert import convert
from albertine.interop.huggingface.folders import load_model, read_folder, save_model
from albertine.interop.huggingface.lonepatient import save_lonepatient
from albertine.interop.tensorflow.checkpoints import save_checkpoint
from albertine.model.config import EncoderConfig
from albertine.model.model import Model
from albertine.model.sharing import SharingPlan
from tests.interop.test_roformer import batch_of, jostled
from tests.interop.test_tied_detection import BLOCKS, ROTARY
from tests.model import builders

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

BOUND = 1e-5
SHAPE = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 40}
FULL = ["full_attention"] * 2
UNSHARED = SharingPlan.unshared(3)
CLASSES: dict[str, tuple[str, dict[str, Any]]] = {
    "albert": ("AlbertForMaskedLM", {"embedding_size": 8, **SHAPE}),
    "bert": ("BertForMaskedLM", SHAPE),
    "roberta": ("RobertaForMaskedLM", {**SHAPE, "pad_token_id": 1, "max_position_embeddings": 34}),
    "electra": ("ElectraForMaskedLM", {"embedding_size": 8, **SHAPE}),
    "roformer": ("RoFormerForMaskedLM", {"embedding_size": 8, **SHAPE}),
    "modernbert": ("ModernBertForMaskedLM", {**SHAPE, "layer_types": FULL, "pad_token_id": 0}),
    "xlnet": ("XLNetLMHeadModel", {"d_model": 24, "n_layer": 2, "n_head": 2, "d_inner": 40}),
}
OURS: dict[str, dict[str, Any]] = {
    "AlbertForMaskedLM": {"hidden_act": "relu2"},
    "BertForMaskedLM": {"embedding_size": 24, "plan": UNSHARED, "hidden_act": "relu2"},
    "RoFormerForMaskedLM": {"positions": "rotary", "plan": UNSHARED, "hidden_act": "relu2"},
    "ModernBertForMaskedLM": BLOCKS["modernbert"] | {"plan": UNSHARED, "hidden_act": "relu2"},
}


def their_model(kind: str) -> transformers.PreTrainedModel:
    """With an output bias that differs from the one that no layer reads."""
    name, shape = CLASSES[kind]
    auto = getattr(transformers, name)
    torch.manual_seed(3)
    config = auto.config_class(vocab_size=40, tie_word_embeddings=False, initializer_range=0.2, **shape)
    return jostled(auto(config))


@torch.no_grad()
def logits_of(model: Model, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    head = model.mlm or model.lm
    assert head is not None
    return head(model(*batch.values()).last_hidden_state, model.encoder.embeddings)  # type: ignore[no-any-return]


@torch.no_grad()
def theirs_of(model: transformers.PreTrainedModel, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    known = {name: x for name, x in batch.items() if name != "token_type_ids" or _has_types(model)}
    return model(**known).logits  # type: ignore[no-any-return]


def _has_types(model: transformers.PreTrainedModel) -> bool:
    return model.config.model_type != "modernbert"


@pytest.mark.parametrize("kind", CLASSES)
def test_their_untied_head_here_and_back_again(kind: str, tmp_path: Path) -> None:
    theirs = their_model(kind)
    theirs.save_pretrained(tmp_path / "theirs")
    ours = albertine.load(tmp_path / "theirs")
    assert isinstance(ours, Model) and ours.config.output == "own"
    batch = batch_of(40, 1, 9)
    real = batch["attention_mask"].bool()
    real[2] = False  # padded on the left, where RoBERTa counts positions otherwise
    expected = theirs_of(theirs, batch)
    assert (logits_of(ours, batch) - expected)[real].abs().max() <= BOUND
    save_model(ours, None, tmp_path / "ours")
    written = json.loads((tmp_path / "ours" / "config.json").read_text())
    assert written["tie_word_embeddings"] is False
    again = getattr(transformers, written["architectures"][0]).from_pretrained(tmp_path / "ours").eval()
    assert (theirs_of(again, batch) - expected)[real].abs().max() <= BOUND


@pytest.mark.parametrize("name", OURS)
def test_our_own_matrix_in_a_class_of_transformers(name: str, tmp_path: Path) -> None:
    """With ReLU squared, which these classes take too."""
    model = builders.model(output="own", initializer_range=0.2, **OURS[name])
    save_model(model, None, tmp_path / "m")
    assert load_model(tmp_path / "m").config == model.config
    theirs, info = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "m", output_loading_info=True)
    assert type(theirs).__name__ == name and not info["missing_keys"]
    batch = batch_of(builders.VOCABULARY, model.config.type_vocab_size or 1, 11)
    real = batch["attention_mask"].bool()
    found = theirs_of(theirs.eval(), batch)
    assert (logits_of(model, batch) - found)[real].abs().max() <= 1e-4
    assert real.any() and found[real].std() > 0.1


def test_a_shared_model_is_copied_and_read_back(tmp_path: Path) -> None:
    """The matrix is no part of a layer, so it is written once, and the copies are still found to be equal."""
    model = builders.model(output="own", **ROTARY)
    save_model(model, None, tmp_path / "m", layout="transformers")
    theirs = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "m").eval()
    batch = batch_of(builders.VOCABULARY, 2, 11)
    real = batch["attention_mask"].bool()
    assert (logits_of(model, batch) - theirs_of(theirs, batch))[real].abs().max() <= 1e-4
    again = load_model(tmp_path / "m")
    assert again.config == model.config
    assert all(torch.equal(again.state_dict()[name], x) for name, x in model.state_dict().items())


def test_without_the_setting_an_output_matrix_that_differs_is_refused(tmp_path: Path) -> None:
    """Catches: a head that is tied silently."""
    save_model(builders.model(output="own"), None, tmp_path / "m")
    file = tmp_path / "m" / "config.json"
    tree = json.loads(file.read_text())
    file.write_text(json.dumps(tree | {"tie_word_embeddings": True}))
    with pytest.raises(ModelError, match=r"decoder\.weight is not tied .*tie_word_embeddings to fa"):
        load_model(tmp_path / "m")
    file.write_text(json.dumps(tree))
    tensors = load_file(tmp_path / "m" / "model.safetensors")
    del tensors["predictions.decoder.weight"]
    save_file(tensors, tmp_path / "m" / "model.safetensors")
    with pytest.raises(ModelError, match=r"has no predictions\.decoder\.weight"):
        load_model(tmp_path / "m")


def test_of_two_biases_the_one_of_the_output_layer_is_read(tmp_path: Path) -> None:
    """transformers trains that alone where nothing is tied."""
    save_model(builders.model(output="own"), None, tmp_path / "m")
    tensors = load_file(tmp_path / "m" / "model.safetensors")
    tensors["predictions.decoder.bias"] += 1
    save_file(tensors, tmp_path / "m" / "model.safetensors")
    theirs = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "m").eval()
    batch = batch_of(builders.VOCABULARY, 2, 11)
    real = batch["attention_mask"].bool()
    found = logits_of(load_model(tmp_path / "m"), batch)
    assert (found - theirs_of(theirs, batch))[real].abs().max() <= 1e-4


GATED: dict[str, Any] = {"head_gate": True}
HALF: dict[str, Any] = {"residual_factor": 0.5}
SQUARED: dict[str, Any] = {"hidden_act": "relu2"}
OWN: dict[str, Any] = {"output": "own"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (GATED, "head_gate"),
        (HALF, "residual_factor 0.5"),
        (SQUARED, "hidden_act relu2"),
        (OWN, r"an output matrix of its own \(transformers' layouts and albertine have it\)"),
    ],
)
@pytest.mark.parametrize("to", ["google", "bert4keras", "lonepatient"])
def test_layouts_without_a_place_for_a_choice_name_it(
    changes: dict[str, Any], message: str, to: str, tmp_path: Path
) -> None:
    model = builders.model(**changes)
    with pytest.raises(SettingsError, match=rf"the layout {to} has no place for .*{message}"):
        if to == "lonepatient":
            save_lonepatient(model, None, tmp_path / "m")
        else:
            save_checkpoint(model, None, tmp_path / "m", to)
    save_model(model, None, tmp_path / "source")
    if to != "lonepatient":
        with pytest.raises(SettingsError, match=message):
            convert(tmp_path / "source", tmp_path / "m", to=to, lossy=True)
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (GATED, "head_gate"),
        (HALF, "residual_factor 0.5"),
        (OWN | {"embedding_mapping": "words"}, "output own, a matrix over vectors of 8, where.*albertine"),
    ],
)
def test_transformers_has_no_place_for_the_rest(
    changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    model = builders.model(**changes)
    with pytest.raises(SettingsError, match=rf"layout of transformers has no place for {message}"):
        save_model(model, None, tmp_path / "m", layout="transformers")
    save_model(model, None, tmp_path / "m")
    assert read_folder(tmp_path / "m").names == "albertine"


def test_without_its_head_a_model_goes_anywhere(tmp_path: Path) -> None:
    """The matrix is the head's, so nothing of it is left in the encoder."""
    whole = builders.model(output="own")
    alone = Model(whole.config, {"pooler"})
    alone.load_state_dict(whole.state_dict(), strict=False)
    save_checkpoint(alone, None, tmp_path / "google", "google")
    found = load_model(tmp_path / "google")
    assert isinstance(found.config, EncoderConfig) and found.config.output == "tied"
    assert torch.equal(found.encoder.attention[0].query.weight, alone.encoder.attention[0].query.weight)  # type: ignore
