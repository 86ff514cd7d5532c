"""ALBERT as a plain stack, for programs that loop over layers with weights of their own: BERT's layout where
embeddings are as wide as hidden states, ELECTRA's where they are mapped."""

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
from albertine.cli.app import run
from albertine.core.batch import from_padded
from albertine.errors import ModelError, SettingsError
from albertine.interop.heads import head_config
from albertine.interop.huggingface.folders import read_folder, save_model
from albertine.model.sharing import SharingPlan
from albertine.model.task_model import Classifier
from albertine.tokenizers.wordpiece import WordPieceTokenizer
from tests.interop.test_roformer import BOUND, PIECES, assert_same_model, batch_of, jostled
from tests.model import builders

WIDE = {"embedding_size": 24}
SHARED: dict[str, dict[str, Any]] = {
    "all": {},
    "groups": {"plan": SharingPlan.grouped(4, 2)},
    "nothing": {"plan": SharingPlan.unshared(3)},
    "norms of its own": {"plan": replace(SharingPlan.shared(3), own=("norms",))},
    "factors of its own": {"plan": replace(SharingPlan.shared(3), own=("norms", "residuals"))},
}


@pytest.mark.sample(10)
@pytest.mark.parametrize("name", SHARED)
@pytest.mark.parametrize("act", ["gelu_new", "gelu"])
@pytest.mark.parametrize(("layout", "width"), [("bert", WIDE), ("electra", WIDE), ("electra", {})])
@torch.no_grad()
def test_a_shared_model_as_a_stack_and_folded_again(
    layout: Any, width: dict[str, Any], act: str, name: str, tmp_path: Path
) -> None:
    model = builders.model(hidden_act=act, **width, **SHARED[name])
    torch.manual_seed(4)
    if model.encoder.own is not None:
        for parameter in model.encoder.own.parameters():
            torch.nn.init.normal_(parameter, 1.0, 0.2)
    save_model(model, None, tmp_path / "m", layout=layout)
    tree = json.loads((tmp_path / "m" / "config.json").read_text())
    assert tree["model_type"] == layout
    batch = batch_of(builders.VOCABULARY, 2, 20)
    real = batch["attention_mask"].bool()
    ours = model(*batch.values()).last_hidden_state[real]
    theirs, loading_info = transformers.AutoModel.from_pretrained(tmp_path / "m", output_loading_info=True)
    assert not loading_info["missing_keys"] and not loading_info["mismatched_keys"]
    assert len(theirs.encoder.layer) == model.config.plan.depth
    found = theirs.eval()(**batch)
    assert (found.last_hidden_state[real] - ours).abs().max() <= BOUND
    whole = getattr(transformers, tree["architectures"][0]).from_pretrained(tmp_path / "m").eval()
    if layout == "bert":
        pooled = model(*batch.values()).pooler_output
        # transformers looks at the first column also where that is padding, as in the last row
        assert (found.pooler_output - pooled)[:2].abs().max() <= BOUND
        assert tree["architectures"] == ["BertForPreTraining"]
    if tree["architectures"] != ["ElectraModel"]:
        out = whole(**batch)
        logits = out.prediction_logits if layout == "bert" else out.logits
        assert (logits[real] - model.mlm_logits(ours)).abs().max() <= BOUND
    else:  # its masked-LM head would be computed by another activation
        assert act == "gelu_new"
    again = read_folder(tmp_path / "m")
    assert again.extra == {}
    assert_same_model(again.model, model)


def test_bert_normalises_last_and_its_configuration_states_it(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"embeddings of 8 that are normalised and then mapped to 24"):
        save_model(builders.model(), None, tmp_path / "m", layout="bert")
    mapped = builders.model(embedding_mapping="always", **WIDE)
    for layout in ("bert", "electra"):
        with pytest.raises(SettingsError, match="a mapping of embeddings that are as wide"):
            save_model(mapped, None, tmp_path / "m", layout=layout)  # type: ignore[arg-type]
    with pytest.raises(SettingsError, match="positions rotary"):
        save_model(builders.model(positions="rotary", **WIDE), None, tmp_path / "m", layout="bert")
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize(
    ("layout", "task", "head"),
    [
        ("bert", "classify", "BertForSequenceClassification"),
        ("bert", "tag", "BertForTokenClassification"),
        ("electra", "tag", "ElectraForTokenClassification"),
        ("electra", "classify", None),  # its classifier has a layer of its own and no tanh
    ],
)
@torch.no_grad()
def test_heads_of_tasks_go_along(layout: Any, task: str, head: str | None, tmp_path: Path) -> None:
    tuned = Classifier(builders.model(**WIDE), 3, per_token=task == "tag", seed=1).eval()
    extra_config = head_config("albert", task, 0.1, names=("x", "y", "z"), kind="single")
    save_model(tuned.base, None, tmp_path / "a", extra_tensors=tuned.head, extra_config=extra_config)
    to = ["convert", str(tmp_path / "a"), str(tmp_path / "b"), "--to", layout]
    if head is None:
        assert run(to) == 2 and not (tmp_path / "b").exists()
        assert run([*to, "--without-head"]) == 0
        assert read_folder(tmp_path / "b").extra == {}
        assert transformers.AutoModel.from_pretrained(tmp_path / "b").config.model_type == layout
        return
    assert run(to) == 0
    tree = json.loads((tmp_path / "b" / "config.json").read_text())
    assert tree["model_type"] == layout
    found = read_folder(tmp_path / "b")
    assert all(torch.equal(found.extra[name], x) for name, x in tuned.head.items())
    assert tree["architectures"] == [head]
    batch = batch_of(builders.VOCABULARY, 2, 20)
    theirs = getattr(transformers, f"AutoModelFor{head.split('For')[1]}").from_pretrained(tmp_path / "b")
    assert theirs.config.id2label == {0: "x", 1: "y", 2: "z"}
    packed, _ = from_padded(*batch.values())
    logits, wanted = theirs.eval()(**batch).logits, tuned(packed)
    if task == "classify":  # transformers looks at the first column, which is padding in the last row
        assert (logits - wanted)[:2].abs().max() <= BOUND
    else:
        assert (logits[batch["attention_mask"].bool()] - wanted).abs().max() <= BOUND


def their_electra(case: int, kind: Any) -> transformers.PreTrainedModel:
    rng = np.random.default_rng([13, case])
    heads, size = int(rng.choice([1, 2, 3])), int(rng.choice([4, 6, 8]))
    config = transformers.ElectraConfig(
        vocab_size=int(rng.integers(30, 90)),
        embedding_size=[heads * size, 5][case % 2],
        hidden_size=heads * size,
        num_hidden_layers=int(rng.integers(1, 4)),
        num_attention_heads=heads,
        intermediate_size=int(rng.integers(5, 50)),
        hidden_act=["gelu", "relu", "gelu"][case % 3],
        max_position_embeddings=24,
        type_vocab_size=int(rng.integers(1, 4)),
        initializer_range=0.2,
        layer_norm_eps=[1e-12, 1e-5][case % 2],
    )
    torch.manual_seed(case)
    return jostled(kind(config))


@pytest.mark.parametrize("case", range(4))
@torch.no_grad()
def test_an_electra_is_read(case: int, tmp_path: Path) -> None:
    """The generator with its masked-LM head, where it has the encoder's activation; the discriminator without
    its own."""
    batch = None
    for kind in (transformers.ElectraForMaskedLM, transformers.ElectraForPreTraining):
        theirs = their_electra(case, kind)
        theirs.save_pretrained(tmp_path / "theirs")
        found = read_folder(tmp_path / "theirs")
        generator = kind is transformers.ElectraForMaskedLM
        computed = generator and theirs.config.hidden_act == "gelu"
        assert found.model.heads == ({"mlm"} if computed else set())
        assert bool(found.left_aside) == (not computed)
        batch = batch_of(theirs.config.vocab_size, theirs.config.type_vocab_size, 20)
        real = batch["attention_mask"].bool()
        ours = found.model(*batch.values()).last_hidden_state[real]
        wanted = theirs(**batch, output_hidden_states=True)
        assert (ours - wanted.hidden_states[-1][real]).abs().max() <= BOUND
        if computed:
            assert (found.model.mlm_logits(ours) - wanted.logits[real]).abs().max() <= BOUND
            save_model(found.model, None, tmp_path / "ours", layout="electra")
            before = theirs.state_dict()
            again, loading_info = kind.from_pretrained(tmp_path / "ours", output_loading_info=True)
            assert not any(loading_info.values())
            assert all(torch.equal(again.state_dict()[name], x) for name, x in before.items())


def test_an_electra_whose_outputs_are_not_its_embeddings_is_refused(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    their_electra(0, transformers.ElectraForMaskedLM).save_pretrained(tmp_path / "m")
    tensors = load_file(tmp_path / "m" / "model.safetensors")
    tensors["generator_lm_head.weight"] = tensors["electra.embeddings.word_embeddings.weight"] + 1
    save_file(tensors, tmp_path / "m" / "model.safetensors")
    with pytest.raises(ModelError, match="not tied to the embeddings"):
        albertine.load(tmp_path / "m")


@pytest.mark.parametrize("layout", ["bert", "electra"])
def test_the_tokenizer_goes_along(layout: Any, tmp_path: Path) -> None:
    tokenizer = WordPieceTokenizer(PIECES)
    save_model(builders.model(hidden_act="gelu", **WIDE), tokenizer, tmp_path / "m", layout=layout)
    text = "a b [MASK] 北 京"
    fill = transformers.pipeline("fill-mask", model=str(tmp_path / "m"))
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "m")
    assert theirs(text)["input_ids"] == tokenizer(text)["input_ids"]
    assert len(fill(text)) == 5
