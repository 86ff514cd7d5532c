"""`albertine info`: the figures of the paper, for presets, files and folders."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import albertine as package
from albertine.corpus.manifest import load_manifest
from albertine.corpus.prepare import write_corpus
from albertine.interop.huggingface.folders import save_model
from albertine.interop.tensorflow.checkpoints import save_checkpoint
from albertine.model.model import Model
from albertine.model.sharing import SharingPlan, sharing_in_words
from albertine.pretraining.model_costs import look_up
from albertine.tokenizers.load import load_tokenizer
from tests.cli.conftest import Command
from tests.interop.test_xlnet import our_model as xlnet_model
from tests.model import builders
from tests.toy import toy_vocabulary


@pytest.mark.parametrize("name", ["best", "final"])
def test_a_run_is_described_by_its_model(tmp_path: Path, name: str) -> None:
    save_model(builders.model(), None, tmp_path / "run" / name)
    assert look_up(str(tmp_path / "run")) == look_up(str(tmp_path / "run" / name))


def test_presets_are_listed_with_their_counts(albertine: Command) -> None:
    lines = {line.split()[0]: line.split()[-1] for line in albertine("info").out.splitlines() if line.strip()}
    assert set(package.presets()) <= set(lines)
    assert lines["albert-base-v2"] == "11,813,810"
    assert json.loads(albertine("info", "--json").out)["albert-base-v2"] == 11_813_810


def test_a_preset(albertine: Command) -> None:
    out = albertine("info", "albert-base-v2").out
    for figure in (
        "3,906,048",
        "99,072",
        "7,087,872",
        "590,592",
        "128,688",
        "11,683,584",
        "one block used at every depth",
        "In training 15% of the tokens are predicted, as masked tokens; causal runs predict all.",
    ):
        assert figure in out


def test_lengths(albertine: Command) -> None:
    found = json.loads(albertine("info", "albert-base-v2", "--length", 64, "--json").out)
    assert list(found["training_flops_per_token"]) == ["64"]
    # 6·(L·(4h² + 2hf) + Eh) + 12·L·h·s + 6·0.15·(hE + EV), with L 12, h 768, f 3072, E 128, s 64.
    products = 12 * (4 * 768**2 + 2 * 768 * 3072) + 128 * 768
    expected = 6 * products + 12 * 12 * 768 * 64 + 6 * 0.15 * (768 * 128 + 128 * 30000)
    assert found["training_flops_per_token"]["64"] == pytest.approx(expected)


def test_a_length_that_the_model_does_not_read_is_refused(albertine: Command) -> None:
    for lengths in (["1024"], ["64", "--length", "513"]):
        refused = albertine("info", "albert-base-v2", "--length", *lengths, "--json")
        assert refused.code == 2 and "--length" in refused.err and "maximum of 512 tokens" in refused.err
        assert refused.out == ""


def test_without_a_table_of_positions_any_length_is_counted(albertine: Command) -> None:
    found = json.loads(albertine("info", "albertine-mini", "--length", 1024, "--json").out)
    assert list(found["training_flops_per_token"]) == ["1024"]


def test_default_lengths_are_those_that_fit(albertine: Command, tmp_path: Path) -> None:
    for positions, lengths in ((300, ["128"]), (32, ["32"])):
        save_model(Model(builders.config(max_position_embeddings=positions)), None, tmp_path / "model")
        found = json.loads(albertine("info", tmp_path / "model", "--json").out)
        assert list(found["inference_flops_per_token"]) == lengths


def test_a_config_file_and_a_folder_with_chinese_and_spaces(albertine: Command, tmp_path: Path) -> None:
    folder = tmp_path / "模型 一"
    package.save(package.load("albert-tiny-zh", random=True), None, folder)
    expected = json.loads(albertine("info", "albert-tiny-zh", "--json").out)["parameters"]
    for what in (folder, folder / "config.json"):
        assert (
            json.loads(albertine("info", what, "--json").out)["parameters"]["encoder"] == expected["encoder"]
        )


def test_an_empty_name_is_not_the_working_directory(albertine: Command) -> None:
    for name in ("", " "):
        refused = albertine("info", name)
        assert refused.code == 2 and "is empty: give a preset, file, folder or name" in refused.err


@pytest.mark.parametrize("layout", ["albert", "bert", "brightmart", "xlnet"])
def test_a_configuration_of_google_is_read_as_with_its_checkpoint(
    albertine: Command, tmp_path: Path, layout: str
) -> None:
    """Catches: the erf form of GELU, which none of that code computes."""
    each = SharingPlan.unshared(3)
    model, wanted = {
        "albert": (builders.model(hidden_act="gelu_new"), "google"),
        "bert": (builders.model(each, hidden_act="gelu_new", embedding_size=24), "google"),
        "brightmart": (builders.model(hidden_act="gelu_new", embedding_mapping="words"), "brightmart"),
        "xlnet": (xlnet_model(plan=each, hidden_act="gelu_new"), "xlnet-tf"),
    }[layout]
    save_checkpoint(model, None, tmp_path / "google", wanted)
    [file] = (tmp_path / "google").glob("*_config.json")
    whole, alone = (albertine("info", what, "--json") for what in (tmp_path / "google", file))
    encoder = json.loads(alone.out)["encoder"]
    assert encoder == json.loads(whole.out)["encoder"] and encoder["hidden_act"] == "gelu_new"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"model_type": "bert"}))
    if layout == "bert":  # which the file of transformers states, where it is the erf form
        assert json.loads(albertine("info", file, "--json").out)["encoder"]["hidden_act"] == "gelu"


def test_weights_beside_the_report_of_an_export_are_reported(albertine: Command, tmp_path: Path) -> None:
    """Weights beside export.json make the folder a model, as for every other command."""
    save_model(Model(builders.config()), None, tmp_path / "model")
    report = {"answers": "classify", "source": {"name": "x", "digest": "y"}, "files": {}, "versions": {}}
    (tmp_path / "model" / "export.json").write_text(json.dumps(report))
    assert "with all pretraining heads" in albertine("info", tmp_path / "model").out
    (tmp_path / "model" / "model.safetensors").unlink()
    assert "classify" in albertine("info", tmp_path / "model").out


def test_a_recipe(albertine: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # where there is no corpora/en
    recipe = Path(__file__).parents[2] / "recipes" / "albert-base-en.yaml"
    output = albertine("info", recipe).out
    assert "11,683,584" in output and "the preset's vocabulary of 30,000 tokens" in output


def test_a_recipe_whose_corpus_is_there(albertine: Command, tmp_path: Path) -> None:
    text, vocabulary = toy_vocabulary(tmp_path, 40_000)
    write_corpus([text], tmp_path / "corpus", load_tokenizer(vocabulary), "en", workers=1)
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(
        f"name: a\ncorpus: {tmp_path / 'corpus'}\nmodel: {{preset: albert-tiny-zh}}\ntraining: {{steps: 1}}\n"
    )
    output = albertine("info", recipe).out
    assert "preset's vocabulary" not in output
    encoder = json.loads(albertine("info", recipe, "--json").out)["encoder"]
    assert encoder["vocab_size"] == load_manifest(tmp_path / "corpus").vocab_size


def test_info_of_a_student_recipe_reports_the_cost_of_the_student(albertine: Command, tmp_path: Path) -> None:
    """Not of its start model; likewise for the folder of a run without a model."""
    save_model(Model(builders.config(SharingPlan.unshared(4))), None, tmp_path / "large")
    (tmp_path / "run").mkdir()
    recipe = tmp_path / "run" / "settings.yaml"
    recipe.write_text(
        f"name: a\ncorpus: {tmp_path / 'corpus'}\ntraining: {{steps: 1}}\n"
        f"model: {{start_from: {tmp_path / 'large'}, student: {{depth: 2, sharing: all, hidden_size: 16}}}}\n"
    )
    expected = builders.config(SharingPlan.shared(2), hidden_size=16)
    for what in (recipe, tmp_path / "run"):
        assert json.loads(albertine("info", what, "--json").out)["encoder"] == expected.to_dict()


@pytest.mark.parametrize(
    ("encoder", "similarity", "plan"),
    [
        ("num_hidden_layers: 3, unshare: share", "mean", SharingPlan.shared(3)),
        ("unshare: attention, groups: 2", "mean", SharingPlan((0, 0, 1, 1), (0, 0, 1, 1))),
        ("dropout: 0.2", "whitened", SharingPlan.shared(1)),
    ],
)
def test_info_of_a_fine_tuning_recipe_reports_the_cost_of_its_encoder(
    albertine: Command, tmp_path: Path, encoder: str, similarity: str, plan: SharingPlan
) -> None:
    before = SharingPlan((0, 0, 1, 1), (0, 0, 1, 1))
    save_model(Model(builders.config(before)), None, tmp_path / "whole")
    recipe = tmp_path / "tuning.yaml"
    recipe.write_text(
        f"name: a\nencoder: {{folder: {tmp_path / 'whole'}, {encoder}}}\n"
        "task: {kind: similarity, train: a.csv, dev: a.csv, text: a, pair: b, label: c, similarity: "
        f"{{pooling: {similarity}}}}}\n"
    )
    dropout = 0.2 if "dropout" in encoder else 0.0
    expected = builders.config(plan, hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout)
    assert json.loads(albertine("info", recipe, "--json").out)["encoder"] == expected.to_dict()


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        (SharingPlan.shared(12), "12 depths, one block used at every depth"),
        (SharingPlan.unshared(12), "12 depths, each with its own block"),
        (SharingPlan.shared(1), "1 depth, one block"),
        (SharingPlan.grouped(12, 2), "12 depths, 2 blocks: 1 to 6 use number 0; 7 to 12 use number 1"),
        (SharingPlan.grouped(2, 1, 2), "4 depths, a core of 2 blocks used 2 times"),
        (
            SharingPlan.feed_forward_only(3),
            "3 depths, each with its own attention block, one feed-forward block used at every depth",
        ),
    ],
)
def test_sharing_in_words(plan: SharingPlan, words: str) -> None:
    assert sharing_in_words(plan) == words


def test_a_fixed_point(albertine: Command, tmp_path: Path) -> None:
    config = builders.config(SharingPlan.shared(9), solver="broyden", input_injection=True, tolerance=0.01)
    save_model(Model(config), None, tmp_path / "model")
    out = albertine("info", tmp_path / "model").out
    assert "input injection, run to its fixed point by broyden (at most 9 iterations, to 0.01)" in out
    assert "Operations are those of all 9 iterations." in out
    found = json.loads(albertine("info", tmp_path / "model", "--length", 32, "--json").out)
    plain = json.loads(albertine("info", tmp_path / "model", "--length", 16, "--json").out)
    # Two products of H x length a head and depth; the rest has no length in it: 3·24² of it is the injection.
    assert (
        found["inference_flops_per_token"]["32"] - plain["inference_flops_per_token"]["16"] == 4 * 9 * 24 * 16
    )
    products = 9 * (4 * 24**2 + 2 * 24 * 40) + 8 * 24 + 3 * 24**2
    assert found["inference_flops_per_token"]["32"] == 2 * (products + 2 * 9 * 24 * 32)
