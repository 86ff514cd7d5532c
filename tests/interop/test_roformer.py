"""RoFormer's layout: the numbers of transformers, both ways, and models that share weights inside it."""

from __future__ import annotations

import json
import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

import albertine
from albertine.core.batch import from_padded
from albertine.errors import ModelError, SettingsError
from albertine.interop.huggingface.folders import read_folder, save_model
from albertine.model.model import Model
from albertine.model.sharing import SharingPlan
from albertine.tokenizers.wordpiece import WordPieceTokenizer
from tests.model import builders

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

BOUND = 1e-5
PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnopqrstuvwxyz", "##a", "北", "京"]
SHARED: dict[str, dict[str, Any]] = {
    "all": {},
    "as wide as hidden": {"embedding_size": 24},
    "groups": {"plan": SharingPlan.grouped(4, 2)},
    "attention only": {"plan": SharingPlan.attention_only(3)},
    "norms of its own": {"plan": replace(SharingPlan.shared(3), own=("norms",))},
    "factors of its own": {"plan": replace(SharingPlan.shared(3), own=("norms", "residuals"))},
}


def their_model(case: int) -> transformers.PreTrainedModel:
    rng = np.random.default_rng([11, case])
    heads, size = int(rng.choice([1, 2, 3])), int(rng.choice([4, 6, 8]))
    hidden = heads * size
    config = transformers.RoFormerConfig(
        vocab_size=int(rng.integers(30, 90)),
        embedding_size=[hidden, 5, None][case % 3],
        hidden_size=hidden,
        num_hidden_layers=int(rng.integers(1, 4)),
        num_attention_heads=heads,
        intermediate_size=int(rng.integers(5, 50)),
        hidden_act=str(rng.choice(["gelu", "gelu_new", "relu", "relu2"])),
        max_position_embeddings=[24, 512][case % 2],
        type_vocab_size=int(rng.integers(1, 4)),
        initializer_range=0.2,
        layer_norm_eps=[1e-12, 1e-5][case % 2],
        hidden_dropout_prob=float(rng.choice([0.0, 0.1])),
    )
    torch.manual_seed(case)
    return jostled(transformers.RoFormerForMaskedLM(config))


def jostled(model: transformers.PreTrainedModel) -> transformers.PreTrainedModel:
    """With biases and norms that differ from zero and one."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.add_(0.1 * torch.randn_like(parameter))
    return model.eval()


def batch_of(vocabulary: int, types: int, length: int) -> dict[str, torch.Tensor]:
    """Three rows: whole, padded on the right, padded on the left."""
    torch.manual_seed(length)
    mask = torch.ones(3, length, dtype=torch.long)
    mask[1, length // 2 :], mask[2, : length // 3] = 0, 0
    ids = torch.randint(1, vocabulary, mask.shape) * mask
    return {
        "input_ids": ids,
        "attention_mask": mask,
        "token_type_ids": torch.randint(0, types, mask.shape) * mask,
    }


@torch.no_grad()
def assert_same_numbers(ours: Model, theirs: transformers.PreTrainedModel, length: int) -> None:
    config = theirs.config
    batch = batch_of(config.vocab_size, config.type_vocab_size, length)
    real = batch["attention_mask"].bool()
    found, expected = ours(*batch.values()), theirs(**batch, output_hidden_states=True)
    assert (found.last_hidden_state - expected.hidden_states[-1])[real].abs().max() <= BOUND
    packed, _ = from_padded(*batch.values())
    logits, _ = ours.pretraining_forward(packed, torch.arange(packed.num_tokens))
    assert (logits - expected.logits[real]).abs().max() <= BOUND


@pytest.mark.sample(5)
@pytest.mark.parametrize("case", range(12))
def test_their_folder_here_and_back_again(case: int, tmp_path: Path) -> None:
    theirs = their_model(case)
    theirs.save_pretrained(tmp_path / "theirs")
    ours = albertine.load(tmp_path / "theirs")
    length = theirs.config.max_position_embeddings
    assert ours.heads == {"mlm"} and ours.config.architecture == "roformer"
    assert ours.config.plan == SharingPlan.unshared(theirs.config.num_hidden_layers)
    assert_same_numbers(ours, theirs, length)

    save_model(ours, None, tmp_path / "ours")
    again, loading_info = transformers.AutoModelForMaskedLM.from_pretrained(
        tmp_path / "ours", output_loading_info=True
    )
    assert not any(loading_info.values())
    before, after = theirs.state_dict(), again.state_dict()
    assert before.keys() == after.keys()
    for name, value in before.items():  # their table is computed by numpy, ours by torch
        assert torch.equal(after[name], value) or "embed_positions" in name, name
    assert_same_numbers(ours, again.eval(), length)
    for name in ("hidden_act", "layer_norm_eps", "type_vocab_size", "hidden_dropout_prob", "embedding_size"):
        assert getattr(theirs.config, name) == getattr(again.config, name)


def test_a_backbone_alone(tmp_path: Path) -> None:
    theirs = their_model(1)
    theirs.base_model.save_pretrained(tmp_path / "backbone")
    ours = albertine.load(tmp_path / "backbone")
    assert ours.heads == set()
    batch = batch_of(theirs.config.vocab_size, theirs.config.type_vocab_size, 20)
    real = batch["attention_mask"].bool()
    save_model(ours, None, tmp_path / "ours")
    again, loading_info = transformers.AutoModel.from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not any(loading_info.values())
    with torch.no_grad():
        expected = theirs.base_model(**batch).last_hidden_state
        assert (ours(*batch.values()).last_hidden_state - expected)[real].abs().max() <= BOUND
        assert (again.eval()(**batch).last_hidden_state - expected)[real].abs().max() <= BOUND


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rotary_value": True}, "rotary_value `True` is not supported"),
        ({"is_decoder": True}, "is_decoder `True` is not supported"),
        ({"hidden_size": 25}, "multiple of"),
        ({"embedding_size": 3}, "has shape"),
        ({"num_hidden_layers": 1}, "no place for"),
    ],
)
def test_what_cannot_be_computed_is_refused(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    save_model(unshared(), None, tmp_path / "m")
    path = tmp_path / "m" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    with pytest.raises(ModelError, match=message):
        albertine.load(tmp_path / "m")


def test_a_table_of_other_positions_is_refused(tmp_path: Path) -> None:
    save_model(unshared(), None, tmp_path / "m")
    file = tmp_path / "m" / "model.safetensors"
    tensors = load_file(file)
    tensors["roformer.encoder.embed_positions.weight"][3, 1] += 0.1
    save_file(tensors, file)
    with pytest.raises(ModelError, match="not the table of sines and cosines"):
        albertine.load(tmp_path / "m")
    del tensors["roformer.encoder.embed_positions.weight"]  # as other programs leave it out
    save_file(tensors, file)
    albertine.load(tmp_path / "m")


def unshared(**changes: Any) -> Model:
    return builders.model(SharingPlan.unshared(3), positions="rotary", hidden_act="gelu", **changes)


def assert_same_model(again: Model, model: Model) -> None:
    assert (again.config, again.heads) == (model.config, model.heads)
    state = again.state_dict()
    for name, value in model.state_dict().items():
        assert torch.equal(state[name], value), name


@pytest.mark.parametrize("heads", [{"mlm", "sop"}, {"mlm", "nsp"}, {"mlm"}, {"pooler"}, set()])
def test_an_unshared_model_is_saved_as_a_roformer_with_all_its_heads(heads: set[str], tmp_path: Path) -> None:
    model = Model(replace(unshared().config, hidden_dropout_prob=0.1, classifier_dropout_prob=0.3), heads)
    albertine.save(model, None, tmp_path / "m")
    tree = json.loads((tmp_path / "m" / "config.json").read_text())
    assert tree["architectures"] == ["RoFormerForMaskedLM" if "mlm" in heads else "RoFormerModel"]
    assert_same_model(albertine.load(tmp_path / "m"), model)


@pytest.mark.parametrize("changes", [{"rotary_base": 500.0}, {"embedding_mapping": "always"}])
def test_what_roformer_cannot_express_keeps_our_names(changes: dict[str, Any], tmp_path: Path) -> None:
    model = unshared(embedding_size=24, **changes)
    albertine.save(model, None, tmp_path / "m")
    assert json.loads((tmp_path / "m" / "config.json").read_text())["model_type"] == "albertine"
    assert_same_model(albertine.load(tmp_path / "m"), model)
    with pytest.raises(SettingsError, match="has no place for"):
        save_model(model, None, tmp_path / "x", layout="roformer")


@pytest.mark.sample(6)
@pytest.mark.parametrize("name", SHARED)
@pytest.mark.parametrize("layout", ["transformers", "roformer"])
def test_a_shared_model_is_written_as_copies_and_folded_again(name: str, layout: Any, tmp_path: Path) -> None:
    model = builders.model(positions="rotary", hidden_act="gelu", **SHARED[name])
    torch.manual_seed(4)
    if model.encoder.own is not None:
        for parameter in model.encoder.own.parameters():
            torch.nn.init.normal_(parameter, 1.0, 0.2)
    save_model(model, None, tmp_path / "small")
    save_model(model, None, tmp_path / "m", layout=layout)
    sizes = [(tmp_path / x / "model.safetensors").stat().st_size for x in ("small", "m")]
    assert sizes[0] < sizes[1]
    theirs = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "m")
    assert type(theirs).__name__ == "RoFormerForMaskedLM"
    assert_same_numbers(model, theirs.eval(), 20)
    found = read_folder(tmp_path / "m")
    assert found.extra == {}
    assert_same_model(found.model, model)
    # what was read is small again, and its copies are the same once more
    save_model(found.model, None, tmp_path / "again")
    save_model(found.model, None, tmp_path / "once more", layout=layout)
    for before, after in (("small", "again"), ("m", "once more")):
        files = [(tmp_path / x / "model.safetensors").read_bytes() for x in (before, after)]
        assert files[0] == files[1]


def test_copies_that_were_trained_apart_stay_apart(tmp_path: Path) -> None:
    """transformers trains the copies separately, and drops tensors that it has no name for."""
    model = builders.model(positions="rotary", plan=replace(SharingPlan.shared(3), own=("residuals",)))
    save_model(model, None, tmp_path / "m", layout="roformer")
    theirs = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "m")
    theirs.save_pretrained(tmp_path / "untouched")
    with torch.no_grad():
        theirs.roformer.encoder.layer[1].output.dense.weight[0, 0] += 1e-3
    theirs.save_pretrained(tmp_path / "trained")
    shared = builders.model(positions="rotary")
    save_model(shared, None, tmp_path / "s", layout="roformer")
    transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "s").save_pretrained(tmp_path / "same")
    same = albertine.load(tmp_path / "same")  # nothing was lost but the heads that are not theirs
    assert_same_model(same, masked_lm_alone(shared))
    for name in ("untouched", "trained"):
        ours = albertine.load(tmp_path / name)
        assert ours.config.plan == SharingPlan.unshared(3) and ours.heads == {"mlm"}
    assert_same_numbers(albertine.load(tmp_path / "trained"), theirs.eval(), 20)


def masked_lm_alone(model: Model) -> Model:
    alone = Model(model.config, {"mlm"})
    state = model.state_dict()
    alone.load_state_dict({name: state[name] for name in alone.state_dict()})
    return alone


def test_a_config_that_was_changed_is_believed(tmp_path: Path) -> None:
    model = builders.model(positions="rotary")
    save_model(model, None, tmp_path / "m", layout="roformer")
    path = tmp_path / "m" / "config.json"
    written = json.loads(path.read_text())
    path.write_text(json.dumps(written | {"hidden_dropout_prob": 0.25, "max_position_embeddings": 16}))
    found = albertine.load(tmp_path / "m").config
    assert found == replace(model.config, hidden_dropout_prob=0.25, max_position_embeddings=16)
    # what computes other numbers makes another model of the same weights
    path.write_text(json.dumps(written | {"layer_norm_eps": 1e-3}))
    assert albertine.load(tmp_path / "m").config.plan == SharingPlan.unshared(3)
    for lie in ({"qk_norm": True}, {"plan": {"attention": [0, 0], "feed_forward": [0, 0]}}):
        flags = written["albertine"] | {"encoder": written["albertine"]["encoder"] | lie}
        path.write_text(json.dumps(written | {"albertine": flags}))
        assert albertine.load(tmp_path / "m").config.plan == SharingPlan.unshared(3)
    path.write_text(json.dumps(written | {"albertine": {"encoder": {"format": 99}}}))
    with pytest.raises(ModelError, match="newer version"):
        albertine.load(tmp_path / "m")


@pytest.mark.parametrize(
    ("changes", "ways"),
    [
        ({"qk_norm": True}, ["qk_norm"]),
        (
            {"plan": replace(SharingPlan.shared(3), own=("injection",), low_rank=2)},
            ["injection", "low_rank 2"],
        ),
        ({"positions": "learned", "qk_norm": True}, ["positions learned", "qk_norm"]),
        ({"norm": "pre", "biases": False}, ["norm pre", "biases False"]),
        ({"rotary_base": 99.0, "feed_forward": "gated"}, ["feed_forward gated", "rotary_base 99"]),
        ({"type_vocab_size": 0}, ["type_vocab_size 0"]),
    ],
)
def test_all_obstacles_are_reported_at_once(changes: Any, ways: list[str], tmp_path: Path) -> None:
    model = builders.model(**({"positions": "rotary"} | changes))
    with pytest.raises(SettingsError) as caught:
        save_model(model, None, tmp_path / "m", layout="roformer")
    assert caught.value.what.startswith("the layout of roformer has no place for " + ", ".join(ways))
    assert caught.value.remedy and not (tmp_path / "m").exists()


@pytest.mark.parametrize("shared", [True, False])
def test_fill_mask_and_the_auto_classes(shared: bool, tmp_path: Path) -> None:
    tokenizer = WordPieceTokenizer(PIECES)
    plan = SharingPlan.shared(2) if shared else SharingPlan.unshared(2)
    model = builders.model(plan, positions="rotary", max_position_embeddings=64)
    save_model(model, tokenizer, tmp_path / "m", layout="roformer")
    fill = transformers.pipeline("fill-mask", model=str(tmp_path / "m"))
    text = "a b [MASK] 北 京"
    best = fill(text)[0]
    fields = tokenizer(text.replace("[MASK]", "c"), return_tensors="pt")
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "m")
    ids = fields["input_ids"]
    assert theirs(text.replace("[MASK]", "c"))["input_ids"] == ids[0].tolist()
    place = int((ids[0] == tokenizer.piece_to_id("c")).nonzero())
    ids[0, place] = tokenizer.mask_id
    with torch.no_grad():
        hidden = model(ids, fields["attention_mask"], fields["token_type_ids"]).last_hidden_state
        logits = model.mlm_logits(hidden[0, place : place + 1])
    assert best["token"] == int(logits.argmax())
    assert best["score"] == pytest.approx(float(logits.softmax(1).max()), abs=1e-5)


def test_a_table_without_columns_and_a_number_without_axes(tmp_path: Path) -> None:
    """Catches: terabytes allocated for a file of a few bytes; a traceback."""
    save_model(unshared(), None, tmp_path / "m")
    file = tmp_path / "m" / "model.safetensors"
    tensors = load_file(file)
    save_file(tensors | {"logit_scale": torch.tensor(2.0)}, file)
    assert read_folder(tmp_path / "m").extra.keys() == {"logit_scale"}
    save_file(tensors | {"roformer.encoder.embed_positions.weight": torch.empty(1 << 40, 0)}, file)
    with pytest.raises(ModelError, match="not the table of sines and cosines"):
        albertine.load(tmp_path / "m")


def test_a_folder_is_read_whatever_device_is_the_default(tmp_path: Path) -> None:
    model = builders.model(positions="rotary")
    save_model(model, None, tmp_path, layout="roformer")
    with torch.device("meta"):
        read = albertine.load(tmp_path)
    for name, x in model.state_dict().items():
        assert torch.equal(read.state_dict()[name], x), name
