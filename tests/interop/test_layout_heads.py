"""Heads of tasks, sentence vectors and the verb `convert` in the layouts of RoFormer and ModernBERT."""

from __future__ import annotations

import json
import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file

import albertine
from albertine.cli.app import run
from albertine.core.batch import from_padded
from albertine.errors import ModelError
from albertine.interop.heads import Task, head_config, head_config_for, read_classifier, task_of
from albertine.interop.huggingface.folders import read_folder, save_model
from albertine.interop.sentence_transformers import sentence_files
from albertine.interop.tensorflow.checkpoints import save_checkpoint
from albertine.model.model import Model
from albertine.model.sharing import SharingPlan
from albertine.model.task_model import Classifier, Embedder
from albertine.tasks.predictor import Predictor
from albertine.tokenizers.wordpiece import WordPieceTokenizer
from tests.interop.test_modernbert import BLOCK
from tests.interop.test_roformer import BOUND, PIECES, assert_same_model, batch_of
from tests.model import builders

LAYOUTS: dict[str, dict[str, Any]] = {
    "roformer": {"positions": "rotary", "hidden_act": "gelu"},
    "modernbert": BLOCK,
}
each = pytest.mark.parametrize("layout", LAYOUTS)


def shared(layout: str) -> Model:
    return builders.model(max_position_embeddings=64, **LAYOUTS[layout])


def unshared(layout: str, heads: set[str]) -> Model:
    plan = SharingPlan.unshared(2)
    config = builders.config(plan, **({"embedding_size": 24} | LAYOUTS[layout]))
    return Model(config, heads).eval()


@pytest.mark.parametrize(("task", "name"), [("tag", "classifier"), ("answer", "qa_outputs")])
def test_heads_that_are_roformers_own_load_there(task: Task, name: str, tmp_path: Path) -> None:
    tuned = Classifier(unshared("roformer", set()), 2, per_token=True, name=name).eval()
    extra_config = head_config("roformer", task, 0.1, names=("A", "B"))
    save_model(tuned.base, None, tmp_path / "m", extra_tensors=tuned.head, extra_config=extra_config)
    auto = {
        "tag": transformers.AutoModelForTokenClassification,
        "answer": transformers.AutoModelForQuestionAnswering,
    }[task]
    theirs, loading_info = auto.from_pretrained(tmp_path / "m", output_loading_info=True)
    assert not any(loading_info.values()) and theirs.config.architectures == [type(theirs).__name__]
    batch = batch_of(builders.VOCABULARY, 2, 20)
    real = batch["attention_mask"].bool()
    with torch.no_grad():
        out = theirs.eval()(**batch)
        logits = out.logits if task == "tag" else torch.stack([out.start_logits, out.end_logits], -1)
        assert (tuned(from_padded(*batch.values())[0]) - logits[real]).abs().max() <= BOUND
    assert task_of(read_folder(tmp_path / "m")) == task


@pytest.mark.parametrize(
    ("config", "auto"),
    [
        (
            transformers.RoFormerConfig(embedding_size=8, type_vocab_size=2),
            transformers.RoFormerForSequenceClassification,
        ),
        (transformers.ModernBertConfig(), transformers.ModernBertForSequenceClassification),
        (transformers.ModernBertConfig(), transformers.ModernBertForTokenClassification),
    ],
)
def test_their_heads_are_ignored_and_never_run(config: Any, auto: Any, tmp_path: Path, capsys: Any) -> None:
    small = {"vocab_size": 40, "hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 2}
    more = {"layer_types": ["full_attention"] * 2, "pad_token_id": 0, "intermediate_size": 20}
    theirs = auto(type(config)(**(config.to_dict() | small | more)))
    theirs.save_pretrained(tmp_path / "m")
    found = read_folder(tmp_path / "m")
    assert found.extra == {} and found.left_aside
    with pytest.warns(UserWarning, match=f"does not compute .{found.left_aside[0]}"):
        albertine.load(tmp_path / "m")
    batch = batch_of(40, 1, 9)
    del batch["token_type_ids"]
    with torch.no_grad():
        expected = theirs.eval().base_model(**batch).last_hidden_state
        change = found.model(*batch.values()).last_hidden_state - expected
    assert change[batch["attention_mask"].bool()].abs().max() <= BOUND
    with pytest.raises(ModelError, match="does not compute"):
        read_classifier(found, tmp_path)
    assert run(["convert", str(tmp_path / "m"), str(tmp_path / "again")]) == 0
    assert "Left out: " in capsys.readouterr().out
    assert read_folder(tmp_path / "again").left_aside == ()


def test_classes_of_one_name_are_distinguished(tmp_path: Path) -> None:
    """Catches: the probability of one class returned for the other, and the likeliest class left out."""
    tuned = Classifier(unshared("modernbert", {"pooler"}), 3)
    with torch.no_grad():
        tuned.head["classifier.bias"].copy_(torch.tensor([0.0, 9.0, -9.0]))
    extra_config = head_config("modernbert", "classify", 0.1, names=("y", "x", "x"), kind="single")
    save_model(
        tuned.base, WordPieceTokenizer(PIECES), tmp_path, extra_tensors=tuned.head, extra_config=extra_config
    )
    (chances,) = Predictor(tmp_path).classify(["a b"])
    assert chances.keys() == {"y", "x (1)", "x (2)"} and sum(chances.values()) == pytest.approx(1, abs=1e-4)
    assert max(chances, key=lambda name: chances[name]) == "x (1)"
    found = read_folder(tmp_path)
    found.config["albertine"]["task"] = "tag"
    assert read_classifier(found, tmp_path).labels == ("y", "x", "x")


def test_a_class_is_named_once_without_a_model_type(tmp_path: Path) -> None:
    """As in the config.json of BERTs from 2018."""
    base = builders.model(SharingPlan.unshared(2), embedding_size=24)
    head = Classifier(base, 2).head
    extra_config = head_config("bert", "classify", 0.1, names=("A", "B"), kind="single")
    save_model(base, None, tmp_path / "m", extra_tensors=head, extra_config=extra_config)
    tree = json.loads((tmp_path / "m" / "config.json").read_text())
    assert tree.pop("model_type") == "bert" and tree["architectures"] == ["BertForSequenceClassification"]
    (tmp_path / "m" / "config.json").write_text(json.dumps(tree))
    found = read_folder(tmp_path / "m")
    for layout, name in (("bert", "Bert"), ("albert", "Albert")):
        assert head_config_for(found, layout)["architectures"] == [f"{name}ForSequenceClassification"]
    assert run(["convert", str(tmp_path / "m"), str(tmp_path / "again")]) == 0
    again = json.loads((tmp_path / "again" / "config.json").read_text())
    assert again["architectures"] == ["BertForSequenceClassification"]


def test_several_scores_are_refused(tmp_path: Path) -> None:
    config = transformers.BertConfig(
        vocab_size=40, hidden_size=12, num_hidden_layers=1, num_attention_heads=2, intermediate_size=20
    )
    config.num_labels, config.problem_type = 3, "regression"
    transformers.BertForSequenceClassification(config).save_pretrained(tmp_path)
    with pytest.raises(ModelError, match="3 numbers a text"):
        read_classifier(read_folder(tmp_path), tmp_path)


def test_one_number_of_googles_code_is_learned_as_it_is(tmp_path: Path) -> None:
    """Catches: the default sigmoid of other folders applied to a checkpoint whose code has none."""
    base = builders.model(SharingPlan.unshared(2), embedding_size=24)
    save_checkpoint(base, None, tmp_path / "m", "google", extra_tensors=Classifier(base, 1).head)
    found = read_folder(tmp_path / "m")
    assert not read_classifier(found, tmp_path).sigmoid and found.config["problem_type"] == "regression"
    assert head_config_for(found, "bert")["problem_type"] == "regression"


@each
@pytest.mark.parametrize("one_for_all", [True, False])
def test_sentence_transformers_reads_the_folder(layout: str, one_for_all: bool, tmp_path: Path) -> None:
    package = pytest.importorskip("sentence_transformers")
    model = shared(layout) if one_for_all else unshared(layout, {"mlm"})
    files = sentence_files(Embedder(model, "mean", True))
    folder = tmp_path / "a folder"
    tokenizer = WordPieceTokenizer(PIECES)
    save_model(model, tokenizer, folder, extra_files=files, layout="transformers")
    texts = ["a b c 北 京", "z", "a a b"]
    theirs = package.SentenceTransformer(str(folder), device="cpu").encode(texts)
    np.testing.assert_allclose(Predictor(folder, precision="float32").embed(texts), theirs, atol=BOUND)


@each
def test_convert_writes_copies_and_the_small_form_again(layout: str, tmp_path: Path, capsys: Any) -> None:
    model = shared(layout)
    small, wide, again = (tmp_path / name for name in ("small", "wide", "again"))
    tokenizer = WordPieceTokenizer(PIECES)
    tagger = layout == "roformer"  # ModernBERT's class has another head
    head = Classifier(model, 2, per_token=True).head if tagger else {}
    extra_config = head_config("albertine", "tag", 0.1, names=("A", "B")) if tagger else {}
    save_model(model, tokenizer, small, extra_tensors=head, extra_config=extra_config)
    assert run(["convert", str(small), str(wide), "--to", layout]) == 0
    tree = json.loads((wide / "config.json").read_text())
    name = {"roformer": "RoFormerForTokenClassification", "modernbert": "ModernBertForMaskedLM"}[layout]
    assert (tree["model_type"], tree["architectures"]) == (layout, [name])
    assert tree.get("id2label", {}).get("1") == ("B" if tagger else None)
    assert transformers.AutoModel.from_pretrained(wide).config.model_type == layout
    assert run(["convert", str(wide), str(again)]) == 0
    before, after = (load_file(folder / "model.safetensors") for folder in (small, again))
    assert before.keys() == after.keys()
    assert all(torch.equal(before[key], after[key]) for key in before)
    first, last = (json.loads((folder / "config.json").read_text()) for folder in (small, again))
    assert (
        first.pop("classifier_dropout", 0.1) == 0.1 and last == first
    )  # `convert` does not carry that of a head
    assert_same_model(albertine.load(again), model)

    capsys.readouterr()
    other = {"roformer": "modernbert", "modernbert": "roformer"}[layout]
    assert run(["convert", str(small), str(tmp_path / "x"), "--to", other]) == 2
    message = capsys.readouterr().err
    assert f"the layout of {other} has no place for norm {model.config.norm}, " in message
    assert len(message.strip().splitlines()) == 1 and not (tmp_path / "x").exists()
    assert run(["convert", str(small), str(tmp_path / "x"), "--to", "gpt2"]) == 2


@pytest.mark.parametrize("layout", ["albertine", "transformers"])
@pytest.mark.parametrize("kind", ["albert", "xlnet"])
def test_a_tokenizer_records_the_maximum_length_of_its_model(kind: str, layout: Any, tmp_path: Path) -> None:
    """In every layout that has it: XLNet's has no field for it, and ours has its own."""
    xlnet = {"positions": "relative", "embedding_norm": False, "embedding_size": 24}
    model = builders.model(SharingPlan.unshared(2), **(xlnet if kind == "xlnet" else {}))
    save_model(model, WordPieceTokenizer(PIECES), tmp_path, layout=layout)
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    assert config["model_max_length"] == model.config.max_position_embeddings == 32


def test_what_transformers_expresses_is_written_in_its_form(tmp_path: Path) -> None:
    for name, plan in (("albert", SharingPlan.shared(3)), ("bert", SharingPlan.unshared(3))):
        model = builders.model(plan, embedding_size=24 if name == "bert" else 8)
        save_model(model, None, tmp_path / name)
        save_model(model, None, tmp_path / "to", layout="transformers")
        for file in ("config.json", "model.safetensors"):
            assert (tmp_path / name / file).read_bytes() == (tmp_path / "to" / file).read_bytes()


def test_other_ways_of_sharing_are_copies_in_bert_and_albert(tmp_path: Path) -> None:
    for width, kind in ((24, "bert"), (8, "albert")):
        model = builders.model(SharingPlan.attention_only(3), embedding_size=width)
        save_model(model, None, tmp_path / kind, layout="transformers")
        theirs = transformers.AutoModel.from_pretrained(tmp_path / kind).eval()
        assert theirs.config.model_type == kind
        batch = batch_of(builders.VOCABULARY, 2, 20)
        real = batch["attention_mask"].bool()
        with torch.no_grad():
            change = theirs(**batch).last_hidden_state - model(*batch.values()).last_hidden_state
        assert change[real].abs().max() <= BOUND
        assert_same_model(albertine.load(tmp_path / kind), model)


def test_a_class_without_a_name_is_called_by_its_number(tmp_path: Path) -> None:
    """Catches: the answer is empty, which in a table is that of no answer."""
    config = transformers.BertConfig(
        **{"vocab_size": len(PIECES), "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2},
        id2label={0: "", 1: "b"},
    )
    transformers.BertForSequenceClassification(config).save_pretrained(tmp_path / "m")
    WordPieceTokenizer(PIECES).save(tmp_path / "tokenizer")
    (tmp_path / "tokenizer" / "vocab.txt").rename(tmp_path / "m" / "vocab.txt")
    assert set(Predictor(tmp_path / "m").classify([PIECES[5]])[0]) == {"LABEL_0", "b"}
