"""ModernBERT's layout: the numbers of transformers, both ways, and models that share weights inside it."""

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

import albertine
from albertine.core.batch import from_padded
from albertine.errors import ModelError, SettingsError
from albertine.interop.huggingface.folders import read_folder, save_model
from albertine.interop.huggingface.modernbert import preserved_keys
from albertine.model.model import Model
from albertine.model.sharing import SharingPlan
from albertine.tokenizers.wordpiece import WordPieceTokenizer
from tests.interop.test_roformer import BOUND, PIECES, assert_same_model, batch_of, jostled
from tests.model import builders

BLOCK: dict[str, Any] = {
    "positions": "rotary",
    "norm": "pre",
    "feed_forward": "gated",
    "biases": False,
    "type_vocab_size": 0,
    "hidden_act": "gelu",
    "rotary_base": 700.0,
}
SHARED: dict[str, dict[str, Any]] = {
    "all": {},
    "as wide as hidden": {"embedding_size": 24},
    "groups": {"plan": SharingPlan.grouped(4, 2)},
    "first depth alone": {"plan": SharingPlan((0, 1, 1), (0, 0, 1))},
    "norms of its own": {"plan": replace(SharingPlan.shared(3), own=("norms",))},
    "factors of its own": {"plan": replace(SharingPlan.shared(3), own=("norms", "residuals"))},
}


def their_model(case: int, **changes: Any) -> transformers.PreTrainedModel:
    rng = np.random.default_rng([12, case])
    heads, size, layers = int(rng.choice([1, 2, 3])), int(rng.choice([4, 6, 8])), int(rng.integers(1, 4))
    act = str(rng.choice(["gelu", "gelu_new", "relu", "relu2"]))
    bases = {kind: {"rope_type": "default", "rope_theta": 900.0} for kind in KINDS}
    settings = {
        "vocab_size": int(rng.integers(30, 90)),
        "hidden_size": heads * size,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "intermediate_size": int(rng.integers(5, 50)),
        "hidden_activation": act,
        "classifier_activation": act,
        "max_position_embeddings": [24, 512][case % 2],
        "initializer_range": 0.2,
        "norm_eps": [1e-5, 1e-12][case % 2],
        "mlp_dropout": 0.1,
        "pad_token_id": 0,
        "layer_types": [KINDS[0]] * layers,
        "rope_parameters": bases if case % 3 else None,
    }
    torch.manual_seed(case)
    return jostled(transformers.ModernBertForMaskedLM(transformers.ModernBertConfig(**(settings | changes))))


KINDS = ("full_attention", "sliding_attention")


@torch.no_grad()
def assert_same_numbers(ours: Model, theirs: transformers.PreTrainedModel, length: int) -> None:
    batch = batch_of(theirs.config.vocab_size, 1, length)
    types = batch.pop("token_type_ids")
    real = batch["attention_mask"].bool()
    expected = theirs.base_model(**batch).last_hidden_state
    assert (ours(*batch.values()).last_hidden_state - expected)[real].abs().max() <= BOUND
    packed, _ = from_padded(*batch.values(), types)
    logits, _ = ours.pretraining_forward(packed, torch.arange(packed.num_tokens))
    wanted = theirs(**batch).logits[real]
    # Copies multiply the two factors before, not behind: rounding in proportion to what is added up.
    assert (logits - wanted).abs().max() <= BOUND * max(1.0, float(wanted.abs().max()))


@pytest.mark.sample
@pytest.mark.parametrize("case", range(12))
def test_their_folder_here_and_back_again(case: int, tmp_path: Path) -> None:
    theirs = their_model(case)
    theirs.save_pretrained(tmp_path / "theirs")
    ours = albertine.load(tmp_path / "theirs")
    length = theirs.config.max_position_embeddings
    assert ours.heads == {"mlm"} and ours.config.architecture == "modernbert"
    assert ours.config.rotary_base == (900.0 if case % 3 else 160_000.0)
    assert_same_numbers(ours, theirs, length)

    save_model(ours, None, tmp_path / "ours")
    again, loading_info = transformers.AutoModelForMaskedLM.from_pretrained(
        tmp_path / "ours", output_loading_info=True
    )
    assert not any(loading_info.values())
    before, after = theirs.state_dict(), again.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(after[name], value) for name, value in before.items())
    assert_same_numbers(ours, again.eval(), length)
    for name in ("hidden_activation", "norm_eps", "mlp_dropout", "layer_types", "max_position_embeddings"):
        assert getattr(theirs.config, name) == getattr(again.config, name)


def test_a_backbone_alone(tmp_path: Path) -> None:
    theirs = their_model(1)
    theirs.base_model.save_pretrained(tmp_path / "backbone")
    ours = albertine.load(tmp_path / "backbone")
    assert ours.heads == set()
    save_model(ours, None, tmp_path / "ours")
    again, loading_info = transformers.AutoModel.from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not any(loading_info.values())
    batch = batch_of(theirs.config.vocab_size, 1, 20)
    del batch["token_type_ids"]
    real = batch["attention_mask"].bool()
    with torch.no_grad():
        expected = theirs.base_model(**batch).last_hidden_state
        assert (ours(*batch.values()).last_hidden_state - expected)[real].abs().max() <= BOUND
        assert (again.eval()(**batch).last_hidden_state - expected)[real].abs().max() <= BOUND


def test_a_window_as_wide_as_the_text_is_none(tmp_path: Path) -> None:
    bases = {kind: {"rope_type": "default", "rope_theta": 900.0} for kind in KINDS}
    changes = {"num_hidden_layers": 2, "layer_types": list(KINDS), "rope_parameters": bases}
    theirs = their_model(0, local_attention=48, **changes)
    theirs.save_pretrained(tmp_path / "wide")
    assert_same_numbers(albertine.load(tmp_path / "wide"), theirs, 24)
    their_model(0, local_attention=46, **changes).save_pretrained(tmp_path / "narrow")
    with pytest.raises(ModelError, match=r"1 of 2 layers look at a window of 46 tokens only"):
        albertine.load(tmp_path / "narrow")


PUBLISHED = {  # of answerdotai/ModernBERT-base, whose config.json is from before transformers 5
    "layer_types": ...,
    "rope_parameters": ...,
    "global_attn_every_n_layers": 3,
    "local_attention": 128,
    "max_position_embeddings": 8192,
}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (PUBLISHED, "2 of 3 layers look at a window of 128 tokens only"),
        ({"layer_types": ["full_attention"]}, "layer_types must name"),
        ({"layer_types": ["full_attention", "chunked", "full_attention"]}, "layer_types must name"),
        ({"rope_parameters": {"full_attention": {"rope_type": "yarn"}}}, "rope_type `yarn`"),
        ({"rope_parameters": {"full_attention": {"type": "linear", "factor": 4.0}}}, "type `linear`"),
        ({"rope_parameters": {"rope_type": "default", "rope_theta": 5.0}}, "rope_parameters must have"),
        ({"rope_scaling": {"factor": 2}}, "rope_scaling"),
        ({"norm_bias": True}, "norm_bias `True`"),
        ({"decoder_bias": False}, "decoder_bias `False`"),
        ({"classifier_activation": "relu"}, "classifier_activation `relu`"),
        ({"hidden_activation": "relu"}, "`gelu` and hidden_activation `relu` must be one"),
        ({"num_hidden_layers": 2, "layer_types": ["full_attention"] * 2}, "no place for"),
    ],
)
def test_what_cannot_be_computed_is_refused(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    save_model(unshared(), None, tmp_path / "m")
    path = tmp_path / "m" / "config.json"
    tree = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({name: x for name, x in tree.items() if x is not ...}))
    with pytest.raises(ModelError, match=message):
        albertine.load(tmp_path / "m")


def test_a_config_from_before_transformers_5_is_understood(tmp_path: Path) -> None:
    save_model(unshared(), None, tmp_path / "m")
    path = tmp_path / "m" / "config.json"
    tree = json.loads(path.read_text())
    del tree["layer_types"], tree["rope_parameters"]
    path.write_text(json.dumps(tree))
    assert albertine.load(tmp_path / "m").config.rotary_base == 700.0


def unshared() -> Model:
    return read_as_saved(builders.model(SharingPlan.unshared(3), embedding_size=24, **BLOCK))


def read_as_saved(model: Model) -> Model:
    """With the unused norm, which every loaded model has."""
    with torch.no_grad():
        model.encoder.attention[0].layer_norm.weight.fill_(1.0)
    return model


@pytest.mark.parametrize("heads", [{"mlm", "sop"}, {"mlm"}, {"pooler"}, set()])
def test_an_unshared_model_is_saved_as_a_modernbert_with_all_its_heads(
    heads: set[str], tmp_path: Path
) -> None:
    model = Model(replace(unshared().config, hidden_dropout_prob=0.1, classifier_dropout_prob=0.3), heads)
    albertine.save(model, None, tmp_path / "m")
    tree = json.loads((tmp_path / "m" / "config.json").read_text())
    assert tree["architectures"] == ["ModernBertForMaskedLM" if "mlm" in heads else "ModernBertModel"]
    assert_same_model(albertine.load(tmp_path / "m"), model)


@pytest.mark.sample
@pytest.mark.parametrize("name", SHARED)
@pytest.mark.parametrize("layout", ["transformers", "modernbert"])
def test_a_shared_model_is_written_as_copies_and_folded_again(name: str, layout: Any, tmp_path: Path) -> None:
    model = builders.model(**BLOCK, **SHARED[name])
    torch.manual_seed(4)
    for parameter in model.encoder.own.parameters():
        torch.nn.init.normal_(parameter, 1.0, 0.2)
    save_model(model, None, tmp_path / "small")
    save_model(model, None, tmp_path / "m", layout=layout)
    assert json.loads((tmp_path / "small" / "config.json").read_text())["model_type"] == "albertine"
    theirs = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "m")
    assert type(theirs).__name__ == "ModernBertForMaskedLM"
    assert_same_numbers(model, theirs.eval(), 20)
    found = read_folder(tmp_path / "m")
    assert found.extra == {}
    assert_same_model(found.model, model)
    save_model(found.model, None, tmp_path / "again")
    save_model(found.model, None, tmp_path / "once more", layout=layout)
    for before, after in (("small", "again"), ("m", "once more")):
        files = [(tmp_path / x / "model.safetensors").read_bytes() for x in (before, after)]
        assert files[0] == files[1]


def test_copies_that_were_trained_apart_stay_apart(tmp_path: Path) -> None:
    model = builders.model(**BLOCK)
    save_model(model, None, tmp_path / "m", layout="modernbert")
    theirs = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "m")
    with torch.no_grad():
        theirs.model.layers[1].mlp.Wo.weight[0, 0] += 1e-3
    theirs.save_pretrained(tmp_path / "trained")
    ours = albertine.load(tmp_path / "trained")
    assert ours.config.plan == SharingPlan.unshared(3) and ours.config.embedding_size == 24
    assert_same_numbers(ours, theirs.eval(), 20)


@pytest.mark.parametrize(
    ("changes", "ways"),
    [
        ({"qk_norm": True, "type_vocab_size": 2}, ["type_vocab_size 2", "qk_norm"]),
        ({"norm": "post", "feed_forward": "plain"}, ["norm post", "feed_forward plain"]),
        ({"biases": True, "positions": "learned"}, ["positions learned", "biases True"]),
        (
            {"plan": replace(SharingPlan.shared(3), own=("injection",), low_rank=1)},
            ["injection", "low_rank 1"],
        ),
    ],
)
def test_all_obstacles_are_reported_at_once(changes: Any, ways: list[str], tmp_path: Path) -> None:
    with pytest.raises(SettingsError) as caught:
        save_model(builders.model(**(BLOCK | changes)), None, tmp_path / "m", layout="modernbert")
    assert caught.value.what == "the layout of modernbert has no place for " + ", ".join(ways)
    assert caught.value.remedy and not (tmp_path / "m").exists()


def test_fill_mask_and_the_auto_classes(tmp_path: Path) -> None:
    tokenizer = WordPieceTokenizer(PIECES)
    model = builders.model(**BLOCK, max_position_embeddings=64)
    save_model(model, tokenizer, tmp_path / "m", layout="modernbert")
    best = transformers.pipeline("fill-mask", model=str(tmp_path / "m"))("a b [MASK] 北 京")[0]
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "m")
    fields = theirs("a b [MASK] 北 京")
    assert set(fields) == {"input_ids", "attention_mask"}
    ids = tokenizer("a b c 北 京", return_tensors="pt")["input_ids"]
    place = int((ids[0] == tokenizer.piece_to_id("c")).nonzero())
    ids[0, place] = tokenizer.mask_id
    assert fields["input_ids"] == ids[0].tolist()
    with torch.no_grad():
        logits = model.mlm_logits(model(ids).last_hidden_state[0, place : place + 1])
    assert best["token"] == int(logits.argmax())
    assert best["score"] == pytest.approx(float(logits.softmax(1).max()), abs=1e-5)
    # the tokenizer of the folder is ours as before
    again = albertine.load_tokenizer(tmp_path / "m")
    assert again("a b")["input_ids"] == tokenizer("a b")["input_ids"]


def test_where_dropout_stands_is_kept(tmp_path: Path) -> None:
    model = builders.model(**(BLOCK | {"feed_forward_dropout": False}))
    save_model(model, None, tmp_path / "copies", layout="modernbert")
    assert_same_model(albertine.load(tmp_path / "copies"), model)
    alone = Model(replace(unshared().config, feed_forward_dropout=False), {"mlm"})
    save_model(alone, None, tmp_path / "alone")
    assert not albertine.load(tmp_path / "alone").config.feed_forward_dropout


FOREIGN = {
    "bos_token_id": 5,
    "cls_token_id": 5,
    "eos_token_id": 6,
    "sep_token_id": 6,
    "classifier_pooling": "mean",
}


def test_convert_keeps_what_only_a_tokenizer_would_know(tmp_path: Path) -> None:
    their_model(2, **FOREIGN).save_pretrained(tmp_path / "theirs")
    albertine.convert(tmp_path / "theirs", tmp_path / "ours", without_tokenizer=True)
    tree = json.loads((tmp_path / "ours" / "config.json").read_text())
    assert tree["model_type"] == "modernbert" and {name: tree[name] for name in FOREIGN} == FOREIGN
    assert preserved_keys(tree, ids=False) == {"classifier_pooling": "mean"}


def test_unknown_special_tokens_are_not_written(tmp_path: Path) -> None:
    save_model(unshared(), None, tmp_path / "m")
    tree = json.loads((tmp_path / "m" / "config.json").read_text())
    assert [tree[name] for name in FOREIGN if name != "classifier_pooling"] == [None] * 4
    assert transformers.AutoConfig.from_pretrained(tmp_path / "m").cls_token_id is None


def test_dropouts_that_differ_are_reported_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    their_model(2, embedding_dropout=0.21, mlp_dropout=0.0).save_pretrained(tmp_path)
    for _ in range(2):
        assert albertine.load(tmp_path).config.hidden_dropout_prob == 0.0
    assert [r.getMessage() for r in caplog.records if "embedding_dropout 0.21" in r.getMessage()] == [
        "embedding_dropout 0.21 and mlp_dropout 0.0 of a ModernBERT are one rate here, 0.0; to train with "
        "another, set mlp_dropout in its config.json"
    ]
