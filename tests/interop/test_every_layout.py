"""All layouts against each other: what one can hold goes through the others without a changed bit, and `info`
reads each."""

from __future__ import annotations

import itertools
import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")

from pathlib import Path

import pytest
import torch
import transformers

import albertine
from albertine.analysis.parameters import parameters_by_part
from albertine.errors import SettingsError
from albertine.interop.heads import head_config, head_config_for, read_classifier, task_of
from albertine.interop.huggingface.folders import read_folder, save_model, written_type
from albertine.interop.huggingface.lonepatient import save_lonepatient
from albertine.interop.model_folder import ModelFolder
from albertine.interop.tensorflow.checkpoints import save_checkpoint
from albertine.interop.tensorflow.layouts import written_kind
from albertine.interop.tensorflow.names import keymap
from albertine.model.config import EncoderConfig
from albertine.model.model import Model
from albertine.model.presets import preset
from albertine.model.sharing import SharingPlan
from albertine.model.task_model import Classifier
from albertine.pretraining.model_costs import look_up_model
from tests.interop.folder_mutations import originals
from tests.interop.test_modernbert import BLOCK
from tests.interop.test_roformer import assert_same_model
from tests.interop.test_xlnet import our_model as xlnet_model
from tests.model import builders

TENSORFLOW = ("google", "bert4keras", "brightmart", "xlnet-tf")
CHAINS = {
    "shared": (SharingPlan.shared(3), {}, ("google", "bert4keras", "transformers", "albertine", "hf")),
    "unshared": (SharingPlan.unshared(3), {}, ("bert4keras", "google", "transformers", "albertine")),
    "BERT": (SharingPlan.unshared(3), {"embedding_size": 24}, ("bert4keras", "google", "transformers")),
    "groups": (SharingPlan.grouped(4, 2, 2), {}, ("google", "albertine", "transformers", "google")),
    "partly shared": (SharingPlan.attention_only(3), {}, ("transformers", "albertine", "transformers")),
    "brightmart": (
        SharingPlan.shared(3),
        {"embedding_mapping": "words"},
        ("brightmart", "transformers", "albertine", "brightmart"),
    ),
    "erf": (SharingPlan.shared(3), {"hidden_act": "gelu"}, ("bert4keras", "transformers", "albertine")),
}


def written(found: ModelFolder, folder: Path, to: str) -> ModelFolder:
    """A model, and the head of a task where it has one, as `convert` writes it."""
    model, extra, layout = found.model, found.extra, "transformers" if to == "hf" else to
    if to in TENSORFLOW:
        extra_config = head_config_for(found, written_kind(model, to))
        save_checkpoint(model, None, folder, to, extra_tensors=extra, extra_config=extra_config)
    elif to == "lonepatient":
        extra_config = head_config_for(found, "albert")
        save_lonepatient(model, None, folder, extra_tensors=extra, extra_config=extra_config)
    else:
        extra_config = head_config_for(found, written_type(model.config, layout))  # type: ignore[arg-type]
        save_model(model, None, folder, extra_tensors=extra, extra_config=extra_config, layout=layout)  # type: ignore[arg-type]
    return read_folder(folder)


@pytest.mark.parametrize("name", CHAINS)
def test_through_every_layout_and_back(name: str, tmp_path: Path) -> None:
    plan, changes, chain = CHAINS[name]
    model = builders.model(plan, **changes)
    found = ModelFolder(model, {}, {})
    for i, to in enumerate((*chain, chain[0])):
        found = written(found, tmp_path / str(i), to)
        assert_same_model(found.model, model)


HEADS = CHAINS | {"groups that transformers cuts elsewhere": (SharingPlan.grouped(18, 14), {}, ("google",))}


@pytest.mark.sample
@pytest.mark.parametrize("name", HEADS)
@pytest.mark.parametrize("task", ["classify", "answer"])
def test_a_head_goes_along(name: str, task: str, tmp_path: Path) -> None:
    """Catches: a class of transformers named for an encoder that none computes, which left a folder that
    nothing read."""
    plan, changes, chain = HEADS[name]
    of = "classifier" if task == "classify" else "qa_outputs"
    base = builders.model(plan, **changes)
    tuned = Classifier(base, 2, per_token=task == "answer", name=of, seed=1).eval()
    kind = "single" if task == "classify" else None
    extra_config = head_config(
        "albert", task, 0.1, names=("x", "y") if kind else (), kind=kind, max_length=20
    )
    found = ModelFolder(base, {"model_type": "albert"} | extra_config, tuned.head)
    for i, to in enumerate((*chain, chain[0], "albertine")):
        found = written(found, tmp_path / str(i), to)
        assert_same_model(found.model, base)
        assert task_of(found) == task and found.extra.keys() == tuned.head.keys()
        assert all(torch.equal(found.extra[part], x) for part, x in tuned.head.items())
        assert kind is None or read_classifier(found, to).labels == ("x", "y")


_TASKS = {
    "ForSequenceClassification": "classify",
    "ForMultipleChoice": "choose",
    "ForTokenClassification": "tag",
    "ForQuestionAnswering": "answer",
    "ForQuestionAnsweringSimple": "answer",
}
_HOLDING = {
    "Albert": ("albertine", "hf", "electra", "lonepatient", "google"),
    "Bert": ("albertine", "hf", "bert", "electra", "lonepatient", "google"),
    "Electra": ("albertine", "hf", "electra"),
    "RoFormer": ("albertine", "hf", "roformer"),
    "XLNet": ("albertine", "hf", "xlnet"),
}
"""Layouts for the heads of an encoder of transformers; Google's has those of classification and answers."""
_OTHERS = {f"{name}{head}" for name in ("Electra", "RoFormer") for head in list(_TASKS)[:2]}
"""Heads that compute otherwise than ours, and are ignored."""
THEIRS = [
    (name, head)
    for name, head in itertools.product(_HOLDING, _TASKS)
    if hasattr(transformers, name + head) and name + head not in _OTHERS
]


@pytest.mark.sample(6)
@pytest.mark.parametrize(("name", "head"), THEIRS)
def test_what_a_head_of_transformers_does_goes_along(name: str, head: str, tmp_path: Path) -> None:
    """Catches: the task derived from the class alone, which other layouts lack: a choice answered as a
    score."""
    auto, task = getattr(transformers, name + head), _TASKS[head]
    xlnet = {"d_model": 24, "n_layer": 2, "n_head": 2, "d_inner": 40}
    usual = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 40}
    shape = xlnet if name == "XLNet" else usual | {"embedding_size": 8}
    words = {"vocab_size": 40, "hidden_act": "gelu_new"}
    auto(auto.config_class(**words, **shape)).save_pretrained(tmp_path / "theirs")
    theirs = read_folder(tmp_path / "theirs")
    assert theirs.extra and task_of(theirs) == task
    for to in _HOLDING[name]:
        if to == "google" and task not in ("classify", "answer"):
            continue
        if to == "electra" and task == "classify" and name != "Electra":
            with pytest.raises(SettingsError, match="another activation in place of the pooler's tanh"):
                written(theirs, tmp_path / to, to)
            continue
        there = written(theirs, tmp_path / to, to)
        for found in (there, written(there, tmp_path / f"{to} back", "hf")):
            assert task_of(found) == task and found.extra.keys() == theirs.extra.keys(), to
            assert all(torch.equal(found.extra[part], x) for part, x in theirs.extra.items())


def test_xlnet_through_every_layout(tmp_path: Path) -> None:
    model = xlnet_model({"lm", "pooler"}, plan=SharingPlan.unshared(3))
    found = ModelFolder(model, {}, {})
    for i, to in enumerate(("xlnet-tf", "transformers", "albertine", "xlnet", "xlnet-tf")):
        found = written(found, tmp_path / str(i), to)
        assert_same_model(found.model, model)


def test_info_reads_every_layout(tmp_path: Path) -> None:
    """The parameters that a model has when it is loaded; of copies, those that stand there."""
    for name, folder in originals(tmp_path).items():
        described, found = look_up_model(str(folder)), albertine.load(folder).config
        if name in ("copies", "roformer", "modernbert", "xlnet", "product"):
            assert described.num_hidden_layers == found.num_hidden_layers
        else:
            assert parameters_by_part(described) == parameters_by_part(found), name


def reads_of_keras_xlnet(config: EncoderConfig) -> dict[str, tuple[int, ...]]:
    """What its loader reads of a checkpoint for the masked-LM model, and the numbers that it reshapes."""
    depth, hidden, inner = config.num_hidden_layers, config.hidden_size, config.intermediate_size
    root, heads = "model/transformer", (config.num_attention_heads, config.head_size)
    found: dict[str, tuple[int, ...]] = {
        f"{root}/word_embedding/lookup_table": (config.vocab_size, hidden),
        f"{root}/mask_emb/mask_emb": (1, 1, hidden),
        "model/lm_loss/bias": (config.vocab_size,),
        f"{root}/seg_embed": (depth, 2, *heads),
        **{f"{root}/{name}": (depth, *heads) for name in ("r_w_bias", "r_r_bias", "r_s_bias")},
    }
    for i in range(depth):
        layer = f"{root}/layer_{i}"
        found |= {f"{layer}/rel_attn/{part}/kernel": (hidden, *heads) for part in "qkvro"}
        for part in ("rel_attn", "ff"):
            found |= {f"{layer}/{part}/LayerNorm/{x}": (hidden,) for x in ("gamma", "beta")}
        found |= {f"{layer}/ff/layer_1/kernel": (hidden, inner), f"{layer}/ff/layer_1/bias": (inner,)}
        found |= {f"{layer}/ff/layer_2/kernel": (inner, hidden), f"{layer}/ff/layer_2/bias": (hidden,)}
    return found


def test_keras_xlnet_finds_all_it_reads() -> None:
    """Nothing more is written of the base model, and nothing less (CyberZHG/keras-xlnet, loader.py)."""
    config = preset("xlnet-base")
    with torch.device("meta"):
        model = Model(config, {"lm"})
    assert written_kind(model, "xlnet-tf") == "xlnet"
    state = model.state_dict()
    rules, shapes = keymap("xlnet", config).entries(state), dict[str, tuple[int, ...]]()
    for name, rule in rules.items():
        shapes[rule.theirs] = rule.shape(tuple(state[name].shape), config.num_attention_heads)
    assert shapes == reads_of_keras_xlnet(config)


@pytest.mark.sample(1)
@pytest.mark.parametrize("kind", ["modernbert", "xlnet"])
def test_every_rate_of_dropout_is_in_the_file(kind: str, tmp_path: Path) -> None:
    rates = {
        "hidden_dropout_prob": 0.11,
        "attention_probs_dropout_prob": 0.22,
        "classifier_dropout_prob": 0.33,
    }
    plan = SharingPlan.unshared(2)
    if kind == "xlnet":
        model, named = xlnet_model(plan=plan, **rates), {"dropout": 0.11, "summary_last_dropout": 0.33}
    else:
        model = builders.model(plan, embedding_size=24, **BLOCK, **rates)
        named = {"embedding_dropout": 0.11, "mlp_dropout": 0.11, "attention_dropout": 0.22}
        named |= {"classifier_dropout": 0.33}
    save_model(model, None, tmp_path / "m")
    again = albertine.load(tmp_path / "m").config
    assert {name: getattr(again, name) for name in rates} == rates
    theirs = transformers.AutoConfig.from_pretrained(tmp_path / "m")
    assert theirs.model_type == kind
    assert {name: getattr(theirs, name) for name in named} == named
