"""brightmart's own architecture: its published counts and names, its outputs against a slow reference, kept
whole in our folders and its own, multiplied out only on request."""

from __future__ import annotations

import json
import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")

from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
import transformers
from torch import Tensor

import albertine
from albertine.analysis.parameters import parameters_by_part
from albertine.core.precision import InferencePrecision
from albertine.errors import ModelError, SettingsError
from albertine.interop import tied_expansion
from albertine.interop.heads import usual_pooling
from albertine.interop.huggingface.folders import Layout, load_model, read_folder, save_model
from albertine.interop.tensorflow.bundle import open_bundle, read_index, write_bundle
from albertine.interop.tensorflow.checkpoints import NAME, save_checkpoint
from albertine.interop.tensorflow.names import SECOND, WORDS, keymap, kind_of
from albertine.interop.tied_expansion import KEPT
from albertine.interop.weights import open_weights, read_json
from albertine.model.config import EncoderConfig
from albertine.model.model import Model
from albertine.model.presets import preset
from albertine.model.sharing import SharingPlan
from albertine.pretraining.model_costs import look_up_model
from tests.interop.test_roformer import assert_same_model
from tests.model import builders

HERE = Path(__file__).with_name("tensorflow")


def brightmart(plan: SharingPlan | None = None, seed: int = 0, **changes: object) -> Model:
    return builders.model(plan, seed=seed, embedding_mapping="words", **changes)


def saved(model: Model, folder: Path, wanted: str = "brightmart") -> Path:
    save_checkpoint(model, None, folder, wanted)
    return folder


def variables(folder: Path) -> dict[str, Tensor]:
    with open_bundle(folder / NAME) as found:
        return {name: found.read(name) for name in found.shapes}


@pytest.mark.parametrize(
    ("size", "count"),
    [("tiny", 4_295_186), ("base", 11_492_234), ("large", 18_084_490), ("xlarge", 62_803_594)],
)
def test_published_counts(size: str, count: int) -> None:
    """Counts by formula from the published shapes; that of tiny equals its checkpoint's sum."""
    assert sum(parameters_by_part(preset(f"brightmart-{size}-zh")).values()) == count


def test_the_count_of_the_largest() -> None:
    """As if it were post-norm: its weights are as many."""
    shape = {"hidden_size": 4096, "num_attention_heads": 64, "intermediate_size": 16384}
    config = replace(preset("brightmart-tiny-zh"), plan=SharingPlan.shared(12), **shape)  # type: ignore[arg-type]
    assert sum(parameters_by_part(config).values()) == 240_322_186


def test_published_variables_are_those_of_our_preset() -> None:
    """Every name and shape of albert_tiny, 31 variables, none too many."""
    _, entries = read_index(HERE / "brightmart_tiny.index")
    theirs = {name: entry.shape for name, entry in entries.items()}
    with torch.device("meta"):
        state = Model(preset("brightmart-tiny-zh"), {"mlm", "sop"}).state_dict()
    rules = keymap("brightmart", preset("brightmart-tiny-zh")).entries(state)
    ours = {rule.theirs: rule.shape(tuple(state[name].shape)) for name, rule in rules.items()}
    assert kind_of(theirs) == "brightmart" and ours == theirs and len(theirs) == 31
    assert (ours[WORDS], ours[SECOND]) == ((21128, 128), (128, 312))


def reference(w: dict[str, Tensor], ids: Tensor, types: Tensor, heads: int, depth: int) -> Tensor:
    """albert_zh's encoder of one text (L, H), as its `modeling.py` has it."""

    def norm(x: Tensor, name: str) -> Tensor:
        mean = x.mean(-1, keepdim=True)
        spread = ((x - mean) ** 2).mean(-1, keepdim=True)
        return (x - mean) / (spread + 1e-12).sqrt() * w[f"{name}/gamma"] + w[f"{name}/beta"]

    def dense(x: Tensor, name: str) -> Tensor:
        return x @ w[f"{name}/kernel"] + w[f"{name}/bias"]

    x = w[WORDS][ids] @ w[SECOND]
    x = x + w["bert/embeddings/token_type_embeddings"][types]
    x = norm(x + w["bert/embeddings/position_embeddings"][: len(ids)], "bert/embeddings/LayerNorm")
    layer = "bert/encoder/layer_shared"
    for _ in range(depth):
        q, k, v = (
            dense(x, f"{layer}/attention/self/{part}").view(len(ids), heads, -1)
            for part in ("query", "key", "value")
        )
        read = torch.zeros_like(q)
        for h in range(heads):
            read[:, h] = (q[:, h] @ k[:, h].T / q.shape[-1] ** 0.5).softmax(-1) @ v[:, h]
        x = norm(
            x + dense(read.flatten(1), f"{layer}/attention/output/dense"),
            f"{layer}/attention/output/LayerNorm",
        )
        inner = F.gelu(dense(x, f"{layer}/intermediate/dense"), approximate="tanh")
        x = norm(x + dense(inner, f"{layer}/output/dense"), f"{layer}/output/LayerNorm")
    return x


def reference_mlm(w: dict[str, Tensor], x: Tensor) -> Tensor:
    """Logits (L, V): the transform stays H wide, then back through both factors."""
    top = "cls/predictions/transform"
    y = F.gelu(x @ w[f"{top}/dense/kernel"] + w[f"{top}/dense/bias"], approximate="tanh")
    y = F.layer_norm(y, y.shape[-1:], w[f"{top}/LayerNorm/gamma"], w[f"{top}/LayerNorm/beta"], 1e-12)
    return y @ w[SECOND].T @ w[WORDS].T + w["cls/predictions/output_bias"]


@torch.no_grad()
def test_outputs_of_a_slow_reference(tmp_path: Path) -> None:
    """By the variables of its checkpoint; what its own code computes is compared in test_google.py."""
    model = brightmart(seed=5)
    w = variables(saved(model, tmp_path))
    ids, types = torch.tensor([3, 9, 27, 1]), torch.tensor([0, 0, 1, 1])
    wanted = reference(w, ids, types, heads=4, depth=3)
    found = model(ids[None], token_type_ids=types[None]).last_hidden_state[0]
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)
    with model.encoder.forward_pass():
        torch.testing.assert_close(model.mlm_logits(wanted), reference_mlm(w, wanted), atol=1e-5, rtol=1e-5)


PLANS = {
    "shared": SharingPlan.shared(3),
    "unshared": SharingPlan.unshared(3),
    "groups": SharingPlan.grouped(4, 2),
    "partly shared": SharingPlan.attention_only(3),
}


@pytest.mark.parametrize("layout", [None, "albertine", "transformers"])
@pytest.mark.parametrize("plan", PLANS)
def test_folders_keep_every_bit(plan: str, layout: Layout | None, tmp_path: Path) -> None:
    """Both factors, whatever is shared; in transformers' layout they stand beside the product."""
    model = brightmart(PLANS[plan])
    save_model(model, None, tmp_path, layout=layout)
    assert_same_model(albertine.load(tmp_path), model)
    kinds = {"shared": "albert", "groups": "albert"} if layout == "transformers" else {}
    kind = kinds.get(plan, "bert" if layout == "transformers" else "albertine")
    assert read_json(tmp_path / "config.json")["model_type"] == kind
    with open_weights(tmp_path) as found:
        kept = {name for name in found.shapes if name.startswith(KEPT)}
    factors = {f"{KEPT}encoder.embeddings.{name}.weight" for name in ("word", "mapping")}
    assert kept == (factors if layout == "transformers" else set())


@torch.no_grad()
@pytest.mark.parametrize("plan", PLANS)
def test_transformers_computes_the_product(plan: str, tmp_path: Path) -> None:
    model = brightmart(PLANS[plan])
    save_model(model, None, tmp_path, layout="transformers")
    theirs = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path).eval()
    ids = torch.arange(1, 13).view(2, 6)
    out = theirs(ids, output_hidden_states=True)
    ours = model(ids).last_hidden_state
    torch.testing.assert_close(ours, out.hidden_states[-1], atol=1e-5, rtol=1e-5)
    with model.encoder.forward_pass():
        torch.testing.assert_close(
            model.mlm_logits(ours.flatten(0, 1)), out.logits.flatten(0, 1), atol=1e-4, rtol=1e-4
        )


@pytest.mark.parametrize("heads", [{"mlm", "sop"}, {"mlm"}, {"pooler"}, set()])
def test_its_own_checkpoint_comes_back(heads: set[str], tmp_path: Path) -> None:
    config = builders.config(embedding_mapping="words", hidden_dropout_prob=0.1)
    model = Model(config, heads, seed=3)
    assert_same_model(albertine.load(saved(model, tmp_path)), model)
    tree = read_json(tmp_path / "albert_config.json")
    assert (tree["embedding_size"], tree["ln_type"]) == (8, "postln") and "num_hidden_groups" not in tree
    tree.pop("albertine")  # as albert_zh publishes it
    (tmp_path / "albert_config.json").write_text(json.dumps(tree))
    assert albertine.load(tmp_path).config == model.config


def test_equal_widths_are_mapped_too(tmp_path: Path) -> None:
    model = brightmart(embedding_size=24)
    assert model.encoder.embeddings.mapping is not None
    assert_same_model(albertine.load(saved(model, tmp_path)), model)


def test_factors_must_fit(tmp_path: Path) -> None:
    w = variables(saved(brightmart(), tmp_path))
    for file in tmp_path.glob(f"{NAME}.*"):
        file.unlink()
    write_bundle(tmp_path / NAME, w | {SECOND: torch.zeros(5, 24)})
    with pytest.raises(ModelError, match=r"word_embeddings_2 has shape \[5, 24\], .* \[8, 24\]"):
        albertine.load(tmp_path)


def test_narrow_factors_of_a_huge_product(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tied_expansion, "MAX_PRODUCT", 53 * 24 - 1)
    with pytest.raises(SettingsError, match="a table of 1,272 numbers"):
        save_model(brightmart(), None, tmp_path / "m", layout="transformers")


def test_its_pre_norm_is_refused_by_name(tmp_path: Path) -> None:
    path = saved(brightmart(), tmp_path) / "albert_config.json"
    path.write_text(json.dumps(read_json(path) | {"ln_type": "preln"}))
    with pytest.raises(ModelError, match="ln_type `preln` is brightmart's pre-norm encoder"):
        albertine.load(tmp_path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"plan": SharingPlan.unshared(3)}, "a plan other than one block for all depths"),
        ({"embedding_mapping": "if_needed"}, "the block of albert"),
        ({"hidden_act": "gelu"}, "the erf form"),
    ],
)
def test_what_albert_zh_does_not_compute(changes: dict[str, object], message: str, tmp_path: Path) -> None:
    model = Model(builders.config(**{"embedding_mapping": "words"} | changes), {"mlm"})
    with pytest.raises(SettingsError, match=message):
        saved(model, tmp_path / "m")


def test_words_alone_are_not_mapped_before_a_pre_norm_encoder() -> None:
    with pytest.raises(SettingsError, match="maps the sum of its embeddings"):
        builders.config(norm="pre", embedding_mapping="words")


def test_older_versions_are_recognised() -> None:
    """They do not know the setting; the number shows why."""
    tree = preset("brightmart-tiny-zh").to_dict()
    assert tree["format"] == 4 and EncoderConfig.from_dict(tree) == preset("brightmart-tiny-zh")
    assert preset("albert-tiny-zh").to_dict()["format"] == 1


def test_a_folder_without_a_sentence_head(tmp_path: Path) -> None:
    model = Model(builders.config(embedding_mapping="words"), {"mlm"}, seed=2)
    save_model(model, None, tmp_path, layout="transformers")
    found = read_folder(tmp_path)
    assert_same_model(found.model, model)
    assert not found.extra and not found.left_aside


def test_a_classifier_on_it_looks_where_that_of_its_own_code_does() -> None:
    assert usual_pooling(preset("brightmart-tiny-zh")) == usual_pooling(preset("albert-tiny-zh")) == "cls"
    partly = preset("brightmart-tiny-zh").with_plan(SharingPlan.attention_only(4))
    assert usual_pooling(partly) == "depths"


@pytest.mark.parametrize("positions", ["learned", "rotary", "relative"])
def test_training_reaches_both_factors(positions: str) -> None:
    """Through the embeddings and through the head; positions of every kind."""
    model = brightmart(positions=positions).train()
    logits, _ = model.pretraining_forward(builders.packed([5, 7]), torch.tensor([1, 3, 8]))
    logits.square().sum().backward()
    mapping, word = model.encoder.embeddings.mapping, model.encoder.embeddings.word.weight
    assert mapping is not None and mapping.bias is None and mapping.weight.grad is not None
    assert word.grad is not None and bool(word.grad.any(1).all())  # every row is an output too
    assert bool(mapping.weight.grad.any(1).all())


@torch.no_grad()
@pytest.mark.parametrize(("precision", "bound"), [("bfloat16", 0.1), ("int8", 0.25)])
@pytest.mark.usefixtures("products_in_int8")
def test_narrower_formats(precision: InferencePrecision, bound: float) -> None:
    model, ids = brightmart(), torch.arange(1, 13).view(2, 6)
    exact = model(ids).last_hidden_state
    model.precision = precision
    assert 0 < (model(ids).last_hidden_state.float() - exact).abs().max() < bound


def test_the_word_of_brightmart_beside_weights_of_transformers(tmp_path: Path) -> None:
    """Their names carry the same information: transformers ignores the setting and loads them."""
    model = builders.model(SharingPlan.shared(2))
    save_model(model, None, tmp_path)
    path = tmp_path / "config.json"
    tree = {name: value for name, value in read_json(path).items() if name != "albertine"}
    path.write_text(json.dumps(tree | {"ln_type": "postln"}))
    found = load_model(tmp_path)
    assert found.config.embedding_mapping == "if_needed" and look_up_model(str(path)) == found.config
    path.with_name("model.safetensors").unlink()
    assert (
        look_up_model(str(path)).embedding_mapping == "words"
    )  # the configuration does not state it otherwise
    assert all(torch.equal(a, b) for a, b in zip(found.parameters(), model.parameters(), strict=True))
