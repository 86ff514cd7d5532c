"""Folders of lonePatient's albert_pytorch: known by their names, computed as its own code computes them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from typer.testing import CliRunner

import albertine
from albertine.analysis.parameters import parameters_by_part
from albertine.cli.app import build, run
from albertine.errors import ModelError, SettingsError
from albertine.interop.heads import head_config
from albertine.interop.huggingface.folders import read_folder, save_model
from albertine.interop.huggingface.lonepatient import save_lonepatient
from albertine.interop.huggingface.lonepatient_names import layout_of, lonepatient_plan
from albertine.interop.huggingface.names import huggingface_plan
from albertine.model.model import Model
from albertine.model.sharing import SharingPlan
from albertine.pretraining.model_costs import look_up_model
from albertine.tokenizers.wordpiece import WordPieceTokenizer
from tests.interop.test_roformer import assert_same_model
from tests.model import builders

HERE = Path(__file__).with_name("lonepatient")
GROUP = "bert.encoder.transformer.group"
PROJECTION = "cls.predictions.project_layer.weight"


@pytest.fixture
def changed(tmp_path: Path) -> Callable[..., Path]:
    """A folder that is kept here, with other tensors or words."""

    def change(name: str, tensors: dict[str, Tensor | None], **words: object) -> Path:
        folder = tmp_path / name
        shutil.copytree(HERE / name, folder)
        state: dict[str, Tensor | None] = dict(load_file(folder / "model.safetensors")) | tensors
        save_file({n: x for n, x in state.items() if x is not None}, folder / "model.safetensors")
        tree = json.loads((folder / "config.json").read_text()) | words
        (folder / "config.json").write_text(json.dumps(tree))
        return folder

    return change


@pytest.mark.parametrize(("name", "layout"), [("groups", "lonepatient"), ("bright", "bright")])
@torch.no_grad()
def test_outputs_of_the_original_code(name: str, layout: str) -> None:
    found, stored = read_folder(HERE / name), np.load(HERE / name / "outputs.npz")
    assert layout_of(load_file(HERE / name / "model.safetensors")) == layout
    model, wanted = found.model, {part: torch.from_numpy(stored[part]) for part in stored.files}
    assert model.heads == {"pooler", "mlm", "sop"} and not found.left_aside and not found.extra
    out = model(wanted["ids"], wanted["mask"], wanted["segments"])
    real, bound = wanted["mask"].bool(), {"atol": 1e-5, "rtol": 1e-5}
    torch.testing.assert_close(out.last_hidden_state[real], wanted["sequence"][real], **bound)
    torch.testing.assert_close(out.pooler_output, wanted["pooled"], **bound)
    with model.encoder.forward_pass():
        logits = model.mlm_logits(out.last_hidden_state[real])
    torch.testing.assert_close(logits, wanted["mlm"][real], **bound)
    assert model.sentence is not None
    torch.testing.assert_close(model.sentence(out.pooler_output), wanted["sentence"], **bound)


def test_their_shape_is_read_from_their_files() -> None:
    """Its `gelu` is the erf form, where brightmart's own code has the tanh form under that name."""
    groups, bright = (albertine.load(HERE / name).config for name in ("groups", "bright"))
    assert groups.plan == SharingPlan.grouped(4, 2, 2) and groups.embedding_mapping == "if_needed"
    assert bright.plan == SharingPlan.shared(4) and bright.embedding_mapping == "words"
    assert (groups.hidden_act, bright.hidden_act) == ("gelu_new", "gelu")
    for name, config in (("groups", groups), ("bright", bright)):
        counts = parameters_by_part(look_up_model(str(HERE / name)))
        assert counts == parameters_by_part(config)


@pytest.mark.parametrize("name", ["groups", "bright"])
def test_every_bit_is_kept_in_our_folders(name: str, tmp_path: Path) -> None:
    model = albertine.load(HERE / name)
    save_model(model, None, tmp_path)
    assert_same_model(albertine.load(tmp_path), model)


def test_a_projection_of_its_own_is_left_out(changed: Callable[..., Path]) -> None:
    """As after its conversion, which gives the head random numbers; then the head computes otherwise."""
    found = read_folder(changed("bright", {PROJECTION: torch.ones(6, 8)}))
    assert found.model.heads == {"pooler", "sop"} and PROJECTION in found.left_aside
    assert "cls.predictions.bias" in found.left_aside and not found.extra


def test_brightmart_without_its_setting(changed: Callable[..., Path]) -> None:
    """The tensor names show it too."""
    folder = changed("bright", {}, ln_type="postln", inner_group_num=1)
    tree = json.loads((folder / "config.json").read_text())
    del tree["ln_type"]
    (folder / "config.json").write_text(json.dumps(tree))
    assert_same_model(albertine.load(folder), albertine.load(HERE / "bright"))


@pytest.mark.parametrize("pickled", [False, pytest.param(True, marks=pytest.mark.matrix)])
def test_the_word_of_brightmart_beside_groups(changed: Callable[..., Path], pickled: bool) -> None:
    """Whose code passes it over. Catches: brightmart's mapping, for which nothing fits; a look-up that trusts
    the configuration."""
    folder, model = changed("groups", {}, ln_type="postln"), albertine.load(HERE / "groups")
    if pickled:
        torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
        (folder / "model.safetensors").unlink()
    assert_same_model(albertine.load(folder), model)
    for what in (folder, folder / "config.json"):
        assert look_up_model(str(what)) == model.config
    save_model(albertine.load(folder), None, folder.with_name("again"))
    assert_same_model(albertine.load(folder.with_name("again")), model)


def test_a_mapping_that_nothing_is_computed_with(changed: Callable[..., Path]) -> None:
    """It stands in every checkpoint, also where E = H."""
    wide = {
        name: x.new_ones(*x.shape[:-1], 8)
        for name, x in load_file(HERE / "groups" / "model.safetensors").items()
        if "embeddings" in name or name.startswith("cls.predictions.transform.Layer") or "decoder" in name
    }
    wide |= {
        f"cls.predictions.transform.dense.{n}": torch.ones(s) for n, s in (("weight", (8, 8)), ("bias", (8,)))
    }
    wide["bert.encoder.embedding_hidden_mapping_in.weight"] = torch.ones(8, 8)
    found = read_folder(changed("groups", wide, embedding_size=8))
    assert found.model.encoder.embeddings.mapping is None and not found.extra and not found.left_aside


@pytest.mark.parametrize(
    ("tensors", "words", "message"),
    [
        (
            {f"{GROUP}.7.inner_group.0.LayerNorm.bias": torch.ones(8)},
            {},
            "no place for",
        ),
        ({"bert.pooler.dense.bias": None}, {}, "has no bert.pooler.dense.bias"),
        ({"cls.predictions.decoder.weight": torch.ones(21, 6)}, {}, "is not tied"),
        ({}, {"num_hidden_layers": 22, "num_hidden_groups": 22}, "leaves some out"),
        ({}, {"hidden_size": 16}, "has shape"),
        ({}, {"ln_type": "preln"}, "ln_type `preln`"),
        ({}, {"num_hidden_groups": "two"}, "two groups of 2"),
    ],
)
def test_what_does_not_belong_together_is_refused(
    changed: Callable[..., Path], tensors: dict[str, Tensor | None], words: dict[str, object], message: str
) -> None:
    with pytest.raises(ModelError, match=message):
        albertine.load(changed("groups", tensors, **words))


def test_groups_are_picked_as_its_code_picks_them() -> None:
    """In floating point, but not in transformers' order: of 14 groups in 18 layers, 9 has group 7."""
    assert lonepatient_plan(4, 2, 2) == SharingPlan.grouped(4, 2, 2)
    assert lonepatient_plan(18, 14, 1).attention[9] == 7
    with pytest.raises(SettingsError, match="leaves some out"):
        lonepatient_plan(22, 22, 1)


@pytest.mark.parametrize("name", ["groups", "bright"])
def test_what_is_written_is_what_was_read(name: str, tmp_path: Path) -> None:
    """The same names, shapes and bits as its own state, in a file that torch.load reads with weights_only."""
    model = albertine.load(HERE / name)
    save_lonepatient(model, None, tmp_path)
    written = torch.load(tmp_path / "pytorch_model.bin", weights_only=True)
    stored = load_file(HERE / name / "model.safetensors")
    assert written.keys() == stored.keys()
    assert all(torch.equal(written[key], x) for key, x in stored.items())
    config, was = (json.loads((folder / "config.json").read_text()) for folder in (tmp_path, HERE / name))
    assert was.items() <= config.items()
    assert_same_model(albertine.load(tmp_path), model)


@pytest.mark.sample
@pytest.mark.parametrize(
    "plan",
    [
        SharingPlan.shared(3),
        SharingPlan.unshared(3),
        SharingPlan.grouped(4, 2, 2),
        SharingPlan.grouped(3, 1, 2),
        lonepatient_plan(18, 14, 1),
    ],
)
@pytest.mark.parametrize("width", [8, 24])
@pytest.mark.parametrize("heads", [{"mlm", "sop"}, {"mlm", "nsp"}, {"pooler"}, set()])
def test_plans_come_back(plan: SharingPlan, width: int, heads: set[str], tmp_path: Path) -> None:
    config = builders.config(plan, embedding_size=width, hidden_act="gelu", layer_norm_eps=1e-5)
    model = Model(replace(config, feed_forward_dropout=False, classifier_dropout_prob=0.3), heads, seed=3)
    save_lonepatient(model, None, tmp_path)
    assert_same_model(albertine.load(tmp_path), model)


@pytest.mark.parametrize(
    ("changes", "head", "message"),
    [
        ({"plan": SharingPlan((0, 1, 0), (0, 1, 0))}, "mlm", "a plan other than groups"),
        ({"plan": SharingPlan.attention_only(3)}, "mlm", "a plan other than groups"),
        ({"plan": huggingface_plan(18, 14, 1)}, "mlm", "a plan other than groups"),
        ({"positions": "rotary"}, "mlm", "the block of roformer"),
        ({"embedding_size": 24, "embedding_mapping": "always"}, "mlm", "a mapping of embeddings"),
        ({}, "lm", "the head lm"),
        ({"embedding_mapping": "words", "plan": SharingPlan.unshared(3)}, "mlm", "other than one block"),
    ],
)
def test_what_its_code_does_not_compute_is_refused(
    changes: dict[str, Any], head: str, message: str, tmp_path: Path
) -> None:
    with pytest.raises(SettingsError, match=message):
        save_lonepatient(Model(builders.config(**changes), {head}), None, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_tuned_model_is_written_with_its_classifier(tmp_path: Path) -> None:
    """By the command, in place of a folder of transformers."""
    model, head = builders.model(), {"classifier.weight": torch.ones(3, 24), "classifier.bias": torch.ones(3)}
    extra_config = head_config("albert", "classify", 0.1, names=("a", "b", "c"), kind="single")
    for folder in ("in", "out"):
        save_model(model, None, tmp_path / folder, extra_tensors=head, extra_config=extra_config)
    done = CliRunner().invoke(
        build(), ["convert", f"{tmp_path}/in", f"{tmp_path}/out", "--to", "lonepatient"]
    )
    assert done.exit_code == 0, done.output
    again = read_folder(tmp_path / "out")
    assert_same_model(again.model, model)
    assert all(torch.equal(again.extra[name], x) for name, x in head.items())
    assert (again.config["num_labels"], again.config["id2label"]["2"]) == (3, "c")
    assert not (tmp_path / "out" / "model.safetensors").exists()


def test_a_sample_that_nothing_is_compared_on_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What this layout leaves out changes no output of the encoder. Catches: any file taken without a
    word."""
    save_model(builders.model(), None, tmp_path / "in")
    words = ["convert", f"{tmp_path}/in", f"{tmp_path}/out", "--to", "lonepatient", "--lossy"]
    assert run([*words, "--sample", f"{tmp_path}/in/config.json"]) == 2
    assert "--sample belongs to --share, or to --lossy with a TensorFlow" in capsys.readouterr().err
    assert run(words) == 0


@pytest.mark.parametrize("layout", ["lonepatient", "google", None])
def test_a_tokenizer_with_more_tokens_than_embeddings_is_refused(layout: str | None, tmp_path: Path) -> None:
    """In every target layout, not only that of transformers."""
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdef"]
    model = Model(builders.config(vocab_size=len(pieces)), {"mlm"})
    save_model(model, WordPieceTokenizer(pieces), tmp_path / "in")
    (tmp_path / "in" / "tokenizer.json").unlink()
    vocabulary = tmp_path / "in" / "vocab.txt"
    vocabulary.write_text(vocabulary.read_text() + "z\n")
    words = ["convert", f"{tmp_path}/in", f"{tmp_path}/out", *(["--to", layout] if layout else [])]
    assert run(words) == 2
    assert not (tmp_path / "out").exists()
