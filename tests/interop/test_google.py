"""Google's checkpoints as model folders: published names and counts, round trips without a changed bit, the
numbers of other loaders, and refusals with a reason."""

from __future__ import annotations

import json
import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from torch import Tensor

import albertine
from albertine.analysis.parameters import report
from albertine.errors import ModelError, SettingsError
from albertine.interop.heads import is_joint, task_of
from albertine.interop.hub.upload import plan_upload
from albertine.interop.huggingface.folders import read_folder, save_model
from albertine.interop.model_files import checkpoint_in
from albertine.interop.tensorflow.bundle import open_bundle, read_index, write_bundle
from albertine.interop.tensorflow.checkpoints import NAME, google_config, save_checkpoint
from albertine.interop.tensorflow.config import google_json, read_google
from albertine.interop.tensorflow.names import Kind, keymap, kind_of, without_slots
from albertine.model.answerability_head import JointAnswer
from albertine.model.model import Model
from albertine.model.presets import preset
from albertine.model.sharing import SharingPlan
from albertine.tokenizers.wordpiece import WordPieceTokenizer
from tests.interop.test_roformer import assert_same_model
from tests.interop.test_xlnet import our_model as xlnet_model
from tests.model import builders
from tests.model.test_xlnet_goldens import CASES, FILE, encoder_of

HERE = Path(__file__).with_name("tensorflow")
PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnopqrstuvwxyz", "##a", "北", "京"]


def google(model: Model, folder: Path, wanted: str = "google", **given: Any) -> Path:
    save_checkpoint(model, given.pop("tokenizer", None), folder, wanted, **given)
    return folder


def variables(folder: Path) -> dict[str, Tensor]:
    prefix = checkpoint_in(folder)
    assert prefix is not None
    with open_bundle(prefix) as found:
        return {name: found.read(name) for name in found.shapes}


def rewrite(folder: Path, tensors: Mapping[str, Tensor], name: str = NAME) -> None:
    """The checkpoint of a folder with other variables."""
    for file in folder.glob(f"{NAME}.*"):
        file.unlink()
    write_bundle(folder / name, tensors)


def edit(folder: Path, **changes: object) -> None:
    (path,) = folder.glob("*_config.json")
    tree = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({k: v for k, v in tree.items() if v is not ...}))


@pytest.mark.parametrize(
    ("file", "shape", "heads", "count"),
    [
        ("tfhub_albert_base_3", "albert-base-v2", {"pooler", "mlm"}, 11_812_272),
        ("albert_tiny_google_snappy", "albert-tiny-zh", {"mlm", "sop"}, 4_142_594),
        ("albert_tiny_google_tuned", "albert-tiny-zh", {"pooler"}, 4_080_520),
    ],
)
def test_published_variables_are_those_of_our_presets(
    file: str, shape: str, heads: set[str], count: int
) -> None:
    """Every name and shape, none missing, none too many but slots and the step."""
    _, entries = read_index(HERE / f"{file}.index")
    theirs = {name: entries[name].shape for name in without_slots(entries)} | {"global_step": ()}
    with torch.device("meta"):
        state = Model(preset(shape), heads).state_dict()
    assert kind_of(entries) == "albert"
    rules = keymap("albert", preset(shape)).entries(state)
    ours = {rule.theirs: rule.shape(tuple(state[name].shape)) for name, rule in rules.items()}
    assert ours | {"global_step": ()} == theirs
    assert sum(x.numel() for x in state.values()) == count


@torch.no_grad()
@pytest.mark.parametrize("name", ["albert", "same", "bert", "brightmart"])
def test_outputs_of_the_original_code(name: str) -> None:
    """Checkpoints that Google's and brightmart's own code wrote, and what it computes with them: states,
    pooled outputs, both pretraining heads (tensorflow/README.md)."""
    found, stored = read_folder(HERE / name), np.load(HERE / name / "outputs.npz")
    model, wanted = found.model, {part: torch.from_numpy(stored[part]) for part in stored.files}
    assert model.heads == {"pooler", "mlm", "nsp" if name == "bert" else "sop"} and not found.left_aside
    out = model(wanted["ids"], wanted["mask"], wanted["segments"])
    real = wanted["mask"].bool()
    bound = {"atol": 1e-5, "rtol": 1e-5}
    torch.testing.assert_close(out.last_hidden_state[real], wanted["sequence"][real], **bound)
    assert out.pooler_output is not None and model.mlm is not None and model.sentence is not None
    torch.testing.assert_close(out.pooler_output, wanted["pooled"], **bound)
    rows = torch.cat([x[p] for x, p in zip(out.last_hidden_state, wanted["positions"], strict=True)])
    with model.encoder.forward_pass():
        masked = model.mlm(rows, model.encoder.embeddings).log_softmax(-1)
    torch.testing.assert_close(masked, wanted["mlm"], **bound)
    torch.testing.assert_close(model.sentence(out.pooler_output).log_softmax(-1), wanted["sentence"], **bound)


@pytest.mark.parametrize("name", ["albert", "same", "bert", "brightmart"])
def test_what_the_original_code_wrote_is_written_again(name: str, tmp_path: Path) -> None:
    """The same variables by the same names, to the bit, and the words of its configuration."""
    google(albertine.load(HERE / name), tmp_path, "brightmart" if name == "brightmart" else "google")
    ours, theirs = variables(tmp_path), variables(HERE / name)
    assert ours.keys() == theirs.keys() and all(torch.equal(ours[n], x) for n, x in theirs.items())
    (file,) = HERE.joinpath(name).glob("*_config.json")
    config, words = json.loads((tmp_path / file.name).read_text()), json.loads(file.read_text())
    if name == "brightmart":  # which has no groups; the words were added for what ran it
        words = {word: x for word, x in words.items() if word in config}
        assert words.keys() >= {"embedding_size", "ln_type", "num_hidden_layers"}
    assert {word: config[word] for word in words} == words
    assert config.keys() - words.keys() == {"albertine"}


@pytest.mark.parametrize("number", range(len(CASES)))
def test_weights_of_xlnets_own_code(number: int, tmp_path: Path) -> None:
    """Those that `tests/model/xlnet_official.md` describes, as a checkpoint: tied and untied biases, with and
    without segments."""
    case, prefix = CASES[number], f"{number}/w/"
    stored = {f"model/{n.removeprefix(prefix)}": FILE[n] for n in FILE.files if n.startswith(prefix)}
    write_bundle(tmp_path / "xlnet_model.ckpt", {n: torch.from_numpy(x) for n, x in stored.items()})
    words = {name: case[name] for name in ("d_head", "d_inner", "d_model", "n_head", "n_layer", "n_token")}
    words |= {"ff_activation": case["act"], "untie_r": case["untie"]}
    (tmp_path / "xlnet_config.json").write_text(json.dumps(words))
    encoder, _ = encoder_of(number, case)
    found = albertine.load(tmp_path).encoder.state_dict()
    assert found.keys() == encoder.state_dict().keys()
    assert all(torch.equal(found[name], x) for name, x in encoder.state_dict().items())


PLANS = {
    "shared": (SharingPlan.shared(3), 8, "albert"),
    "as wide as the layers": (SharingPlan.shared(3), 24, "albert"),
    "groups": (SharingPlan.grouped(4, 2), 8, "albert"),
    "uneven groups": (SharingPlan.grouped(5, 3), 8, "albert"),
    "inner groups": (SharingPlan.grouped(4, 2, 2), 8, "albert"),
    "one group of two": (SharingPlan.grouped(3, 1, 2), 8, "albert"),
    "nothing shared": (SharingPlan.unshared(3), 8, "albert"),
    "BERT": (SharingPlan.unshared(3), 24, "bert"),
}


@pytest.mark.sample
@pytest.mark.parametrize("name", PLANS)
@pytest.mark.parametrize("heads", [{"mlm", "sop"}, {"mlm", "nsp"}, {"mlm"}, {"pooler"}, set()])
def test_every_plan_comes_back_as_it_was(name: str, heads: set[str], tmp_path: Path) -> None:
    plan, width, kind = PLANS[name]
    config = builders.config(plan, embedding_size=width, hidden_dropout_prob=0.1, hidden_act="relu")
    model = Model(replace(config, feed_forward_dropout=False, classifier_dropout_prob=0.3), heads, seed=3)
    assert_same_model(albertine.load(google(model, tmp_path)), model)
    assert (tmp_path / f"{kind}_config.json").is_file()
    assert google_config(tmp_path, tmp_path / NAME) == model.config


@pytest.mark.parametrize("name", PLANS)
@torch.no_grad()
def test_transformers_to_google_and_back(name: str, tmp_path: Path) -> None:
    """The same file of transformers, and the outputs of its classes."""
    plan, width, _ = PLANS[name]
    model = builders.model(plan, embedding_size=width)
    albertine.save(model, None, tmp_path / "hf")
    google(read_folder(tmp_path / "hf").model, tmp_path / "g")
    albertine.save(read_folder(tmp_path / "g").model, None, tmp_path / "back")
    for file in ("model.safetensors", "config.json"):
        assert (tmp_path / "hf" / file).read_bytes() == (tmp_path / "back" / file).read_bytes()
    ids = torch.arange(1, 13).view(2, 6)
    theirs = transformers.AutoModel.from_pretrained(tmp_path / "hf").eval()(ids)
    ours = albertine.load(tmp_path / "g")(ids)
    torch.testing.assert_close(ours.last_hidden_state, theirs.last_hidden_state, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(ours.pooler_output, theirs.pooler_output, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("tied", ["block", "tied"])
@pytest.mark.parametrize("heads", [{"lm", "pooler"}, {"lm"}, {"pooler"}, set()])
def test_xlnet_comes_back_as_it_was(tied: Any, heads: set[str], tmp_path: Path) -> None:
    model = xlnet_model(heads or None, plan=SharingPlan.unshared(3), relative_biases=tied)
    model = model if heads else Model(model.config, set())
    again = albertine.load(google(model, tmp_path, "xlnet-tf"))
    assert_same_model(again, model)
    found = variables(tmp_path)
    assert found["model/transformer/mask_emb/mask_emb"].shape == (1, 1, 24)
    assert found["model/transformer/r_w_bias"].shape == ((4, 6) if tied == "tied" else (3, 4, 6))


def test_dense_kernels_are_transposed_and_nothing_else(tmp_path: Path) -> None:
    """By the shapes of Google's own layer functions, so that no pair of mistakes cancels."""
    model = builders.model()
    found = variables(google(model, tmp_path))
    state, block = model.state_dict(), "bert/encoder/transformer/group_0/inner_group_0"
    x = torch.randn(5, 24)
    kernel, bias = (found[f"{block}/ffn_1/intermediate/dense/{part}"] for part in ("kernel", "bias"))
    torch.testing.assert_close(x @ kernel + bias, model.encoder.feed_forward[0].intermediate(x))
    assert found["bert/embeddings/word_embeddings"].shape == (53, 8)
    assert torch.equal(
        found["bert/embeddings/position_embeddings"], state["encoder.embeddings.position.weight"]
    )
    assert found["bert/encoder/embedding_hidden_mapping_in/kernel"].shape == (8, 24)
    assert torch.equal(found["cls/seq_relationship/output_weights"], state["sentence.classifier.weight"])
    assert torch.equal(found[f"{block}/LayerNorm/gamma"], state["encoder.attention.0.layer_norm.weight"])
    assert torch.equal(found[f"{block}/LayerNorm_1/beta"], state["encoder.feed_forward.0.layer_norm.bias"])


def test_slots_and_the_step_are_passed_over(tmp_path: Path) -> None:
    model = builders.model()
    found = variables(google(model, tmp_path))
    slots = {f"{name}/{slot}": x * 9 for name, x in found.items() for slot in ("adam_m", "adam_v", "lamb_m")}
    rewrite(tmp_path, found | slots | {"beta1_power": torch.tensor(0.9)})
    again = read_folder(tmp_path)
    assert_same_model(again.model, model)
    assert not again.left_aside and not again.extra


@pytest.mark.parametrize(
    ("head", "names"),
    [
        ("classifier", ("output_weights", "output_bias")),
        ("qa_outputs", ("cls/squad/output_weights", "cls/squad/output_bias")),
    ],
)
def test_heads_of_tasks(head: str, names: tuple[str, str], tmp_path: Path) -> None:
    extra = {f"{head}.weight": torch.randn(2, 24), f"{head}.bias": torch.randn(2)}
    assert save_checkpoint(
        builders.model(),
        None,
        tmp_path / "m",
        "google",
        extra_tensors=extra | {"other.weight": torch.ones(1)},
    ) == ("other.weight",)
    found = read_folder(tmp_path / "m")
    assert set(names) <= variables(tmp_path / "m").keys()
    assert found.extra.keys() == extra.keys()
    assert all(torch.equal(found.extra[name], x) for name, x in extra.items())
    kind = "SequenceClassification" if head == "classifier" else "QuestionAnswering"
    assert found.config["architectures"] == [f"AlbertFor{kind}"]


@pytest.mark.parametrize("head", ["classifier", "qa_outputs"])
def test_heads_of_an_encoder_that_transformers_does_not_compute(head: str, tmp_path: Path) -> None:
    """In a checkpoint that does not describe them, as Google's own: the task is stored under our keys."""
    extra = {f"{head}.weight": torch.randn(2, 24), f"{head}.bias": torch.randn(2)}
    save_checkpoint(
        builders.model(SharingPlan.grouped(18, 14)), None, tmp_path / "m", "google", extra_tensors=extra
    )
    found = read_folder(tmp_path / "m")
    assert found.config["model_type"] == "albertine" and "architectures" not in found.config
    assert task_of(found) == {"classifier": "classify", "qa_outputs": "answer"}[head]
    assert all(torch.equal(found.extra[name], x) for name, x in extra.items())


JOINT = {
    "start_logits/dense": (24, 1),
    "end_logits/dense_0": (48, 24),
    "end_logits/dense_1": (24, 1),
    "answer_class/dense_0": (48, 24),
}
"""Layers of Google's head for SQuAD 2.0 (`squad_utils.py:create_v2_model`), with their kernels' shapes."""


@pytest.mark.parametrize("wanted", ["google", "bert4keras", "xlnet-tf"])
def test_the_head_of_squad_2_comes_back_as_it_was(wanted: str, tmp_path: Path) -> None:
    unshared = SharingPlan.unshared(2)
    base = xlnet_model(plan=unshared) if wanted == "xlnet-tf" else builders.model(unshared)
    head = JointAnswer(base, seed=1).head
    assert save_checkpoint(base, None, tmp_path / "m", wanted, extra_tensors=head) == ()
    stored = variables(tmp_path / "m")
    shapes = {f"{name}/kernel": shape for name, shape in JOINT.items()}
    shapes |= {f"{name}/bias": shape[1:] for name, shape in JOINT.items()}
    shapes |= {f"end_logits/LayerNorm/{part}": (24,) for part in ("gamma", "beta")}
    shapes |= {"answer_class/dense_1/kernel": (24, 1)}  # which has no bias
    assert {
        name: tuple(stored[name].shape) for name in stored if "_logits/" in name or "class/" in name
    } == shapes
    found = read_folder(tmp_path / "m")
    assert not found.left_aside and found.extra.keys() == head.keys()
    assert all(torch.equal(found.extra[name], x) for name, x in head.items())
    assert task_of(found) == "answer" and is_joint(found.extra)
    named = found.config.get("architectures") == ["XLNetForQuestionAnswering"]
    assert named == (wanted == "xlnet-tf") and ("start_n_top" in found.config) == named


@torch.no_grad()
def test_the_head_of_squad_2_computes_what_googles_does(tmp_path: Path) -> None:
    """By the order in which its code puts rows side by side: a token before the start that it is seen with,
    the expected start before [CLS]."""
    model = JointAnswer(builders.model(), seed=1).eval()
    save_checkpoint(model.base, None, tmp_path / "m", "google", extra_tensors=model.head)
    found, (x, start, cls) = variables(tmp_path / "m"), torch.randn(3, 5, 24).unbind()

    def dense(name: str, x: Tensor) -> Tensor:
        return x @ found[f"{name}/kernel"] + found.get(f"{name}/bias", 0)

    torch.testing.assert_close(model.start_logits(x), dense("start_logits/dense", x)[:, 0])
    end = dense("end_logits/dense_0", torch.cat([x, start], -1)).tanh()
    gamma, beta = (found[f"end_logits/LayerNorm/{part}"] for part in ("gamma", "beta"))
    end = torch.nn.functional.layer_norm(end, (24,), gamma, beta, model.base.config.layer_norm_eps)
    ours = model.end_logits(model.end_logits.tokens(x), start, torch.arange(5))
    torch.testing.assert_close(ours, dense("end_logits/dense_1", end)[:, 0])
    none = dense("answer_class/dense_1", dense("answer_class/dense_0", torch.cat([start, cls], -1)).tanh())
    torch.testing.assert_close(model.answer_class(start, cls, 0.0), none[:, 0])


def test_a_head_of_squad_2_that_holds_other_than_matrices_is_left_aside(tmp_path: Path) -> None:
    base = builders.model()
    folder = google(base, tmp_path, extra_tensors=JointAnswer(base).head)
    rewrite(folder, variables(folder) | {"answer_class/dense_1/kernel": torch.ones(24, 1, 1)})
    found = read_folder(folder)
    assert not found.extra and len(found.left_aside) == 11


def test_another_head_is_left_aside(tmp_path: Path) -> None:
    folder = google(builders.model(), tmp_path)
    rewrite(folder, variables(folder) | {"end_logits/dense_0/kernel": torch.ones(48, 24)})
    assert read_folder(folder).left_aside == ("end_logits/dense_0/kernel",)


def test_tfhub(tmp_path: Path) -> None:
    """Variables in a folder of their own, configuration and vocabulary among the assets, no sentence head."""
    model = Model(builders.config(), {"mlm", "pooler"}, seed=4)
    google(model, tmp_path / "g", tokenizer=WordPieceTokenizer(PIECES))
    for place in ("variables", "assets"):
        (tmp_path / "hub" / place).mkdir(parents=True)
    write_bundle(tmp_path / "hub" / "variables" / "variables", variables(tmp_path / "g"))
    (tmp_path / "g" / "albert_config.json").rename(tmp_path / "hub" / "assets" / "albert_config.json")
    (tmp_path / "g" / "vocab.txt").rename(tmp_path / "hub" / "assets" / "vocab.txt")
    assert_same_model(albertine.load(tmp_path / "hub"), model)
    assert albertine.load_tokenizer(tmp_path / "hub").vocab_size == len(PIECES)


def test_of_several_checkpoints_the_named_one_is_read(tmp_path: Path) -> None:
    folder = google(builders.model(), tmp_path)
    other = builders.model(seed=7)
    write_bundle(folder / "model.ckpt-9", variables(google(other, tmp_path / "other")))
    assert_same_model(albertine.load(folder), builders.model())
    (folder / "checkpoint").write_text('model_checkpoint_path: "/elsewhere/model.ckpt-9"\nall_: "x"\n')
    assert_same_model(albertine.load(folder), other)
    (folder / "checkpoint").unlink()
    with pytest.raises(ModelError, match=r"several checkpoints \(model.ckpt-9, model.ckpt-best\)"):
        albertine.load(folder)


def test_safetensors_beside_win(tmp_path: Path) -> None:
    save_model(builders.model(seed=7), None, tmp_path)
    write_bundle(tmp_path / "model.ckpt", variables(google(builders.model(), tmp_path / "g")))
    assert_same_model(albertine.load(tmp_path), builders.model(seed=7))


def test_a_folder_of_transformers_with_some_index_is_one(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "faiss.index").write_bytes(b"x")
    assert checkpoint_in(tmp_path) is None


def test_the_configuration_is_found_or_reported_missing(tmp_path: Path) -> None:
    folder = google(builders.model(), tmp_path)
    file = folder / "albert_config.json"
    file.rename(folder / "albert_config_tiny_g.json")
    assert_same_model(albertine.load(folder), builders.model())
    (folder / "other_config.json").write_text("{}")
    with pytest.raises(ModelError, match="several configurations"):
        albertine.load(folder)
    for path in folder.glob("*.json"):
        path.unlink()
    with pytest.raises(ModelError, match=r"no albert_config.json\. Put the configuration"):
        albertine.load(folder)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_size": 32}, "has shape .* its configuration gives"),
        ({"num_hidden_groups": 2}, "has no bert/encoder/transformer/group_1"),
        ({"num_hidden_groups": 0}, "num_hidden_groups must be"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers must be"),
        ({"num_hidden_layers": 4000, "inner_group_num": 4000}, "do not fit"),
        ({"vocab_size": "many"}, "vocab_size must be"),
        ({"hidden_act": "swish"}, "hidden_act `swish`"),
        ({"num_attention_heads": 5}, "not a multiple"),
        ({"hidden_dropout_prob": "x"}, "cannot be used"),
        ({"albertine": {"initialization": [1]}}, "is not supported"),
    ],
)
def test_contradictory_configurations_are_refused(
    changes: dict[str, object], message: str, tmp_path: Path
) -> None:
    folder = google(builders.model(), tmp_path)
    edit(folder, **changes)
    with pytest.raises(ModelError, match=message):
        albertine.load(folder)


def test_variables_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    folder = google(builders.model(SharingPlan.unshared(3), embedding_size=24), tmp_path)
    found = variables(folder)
    edit(folder, num_hidden_layers=2)
    with pytest.raises(ModelError, match=r"bert/encoder/layer_2/.* 15 more variables .* no place for"):
        albertine.load(folder)
    edit(folder, num_hidden_layers=3)
    found["bert/pooler/dense/bias"][3] = torch.nan
    rewrite(folder, found)
    with pytest.raises(ModelError, match="pooler/dense/bias holds values that are not finite"):
        albertine.load(folder)
    rewrite(folder, {"model/layer/kernel": torch.ones(3)})
    with pytest.raises(ModelError, match="no variables of ALBERT, BERT or XLNet"):
        albertine.load(folder)


@pytest.mark.parametrize(
    ("changes", "wanted", "message"),
    [
        ({"plan": SharingPlan.attention_only(3)}, "google", "a plan other than groups of whole blocks"),
        ({"plan": SharingPlan((0, 1, 0), (0, 1, 0))}, "google", "a plan other than groups"),
        ({"plan": SharingPlan((0, 0, 0), (0, 0, 0), own=("norms",))}, "google", "a plan other than groups"),
        ({"hidden_act": "gelu"}, "google", 'the tanh form. Set "hidden_act": "gelu_new"'),
        ({"layer_norm_eps": 1e-5}, "google", "layer_norm_eps 1e-05"),
        ({"embedding_size": 24, "embedding_mapping": "always"}, "google", "a mapping of embeddings"),
        ({"positions": "rotary"}, "google", "the block of roformer"),
        ({"qk_norm": True}, "google", "the block of no published model"),
        ({}, "xlnet-tf", "the block of albert"),
    ],
)
def test_what_the_google_layout_cannot_hold_is_reported(
    changes: dict[str, Any], wanted: str, message: str, tmp_path: Path
) -> None:
    with pytest.raises(SettingsError) as caught:
        google(Model(builders.config(**changes), {"mlm"}), tmp_path / "m", wanted)
    assert message in str(caught.value) and not (tmp_path / "m").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, "shared weights"),
        ({"plan": SharingPlan.unshared(3), "clamp_positions": 4}, "clamp_positions"),
        ({"plan": SharingPlan.unshared(3), "embedding_size": 8}, "a mapping of embeddings"),
        ({"plan": SharingPlan.unshared(3), "type_vocab_size": 0}, "type_vocab_size 0, no segments"),
    ],
)
def test_what_the_xlnet_layout_cannot_hold_is_reported(
    changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(SettingsError, match=message):
        google(xlnet_model({"lm"}, **changes), tmp_path / "m", "xlnet-tf")
    with pytest.raises(SettingsError, match="the block of xlnet"):
        google(xlnet_model({"lm"}), tmp_path / "m")


def test_foreign_folders_are_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ModelError, match="nothing was overwritten"):
        google(builders.model(), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
    for seed in (1, 2):  # own files are replaced, other files beside them stay
        folder = google(builders.model(seed=seed), tmp_path / "m")
        (folder / "tuned").mkdir(exist_ok=True)
        (folder / "tuned" / "model.ckpt-9.index").write_bytes(b"mine")
        (folder / "30k-clean.vocab").write_text("of the old model")
    google(builders.model(SharingPlan.shared(5)), folder)
    assert albertine.load(folder).config.num_hidden_layers == 5
    google(builders.model(seed=2), folder)
    assert (folder / "tuned" / "model.ckpt-9.index").read_bytes() == b"mine"
    assert not (folder / "30k-clean.vocab").exists()
    assert_same_model(albertine.load(folder), builders.model(seed=2))


def test_a_checkpoint_is_converted_before_it_is_sent(tmp_path: Path) -> None:
    """Catches: "is no model folder" of a folder that every other command reads."""
    folder = google(builders.model(), tmp_path / "m")
    with pytest.raises(ModelError, match=r"checkpoint of TensorFlow.*albertine convert .* NEW-FOLDER"):
        plan_upload(folder)


@pytest.mark.parametrize(
    ("kind", "shape"), [("albert", "albert-xxlarge-zh"), ("bert", "bert-base"), ("xlnet", "xlnet-base")]
)
def test_presets_are_recognised_by_their_configuration(kind: Kind, shape: str) -> None:
    """Written and read, a configuration is the same; and as Google published them, without our words."""
    with torch.device("meta"):
        model = Model(preset(shape), preset(shape).pretraining_heads)
    tree = google_json(kind, model, model.config.pad_token_id)
    assert read_google(kind, tree) == model.config
    plain = {name: value for name, value in tree.items() if name != "albertine"}
    found = read_google(kind, plain)
    assert report(found).everything == report(model.config).everything
    assert found.pad_token_id == model.config.pad_token_id
    assert found.hidden_act == model.config.hidden_act and "gelu_new" not in plain.values()
