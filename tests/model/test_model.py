"""Heads, the padded call, initial weights, presets and configurations."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

import albertine
from albertine.errors import ModelError, SettingsError
from albertine.model.config import EncoderConfig
from albertine.model.init import initialize, sinusoids, widen_embeddings
from albertine.model.model import Model, evaluating
from albertine.model.presets import PRESETS, paper_row, paper_rows, preset
from albertine.model.sharing import SharingPlan
from tests import reference
from tests.model import builders


def test_pretraining_heads_equal_the_reference_and_the_padded_call():
    model, batch = builders.model(SharingPlan.grouped(4, 2)), builders.packed([5, 9, 1, 9])
    rows = torch.tensor([22, 1, 7, 14])
    ids, mask, types = builders.padded(batch)
    with torch.no_grad():
        logits, sentence = model.pretraining_forward(batch, rows)
        hidden = reference.encode(model, ids, mask, types)[-1]
        flat = torch.cat([row[:n] for row, n in zip(hidden, batch.lengths, strict=True)])
        output = model(ids, mask, types, output_hidden_states=True)
    torch.testing.assert_close(logits, reference.mlm_logits(model, flat[rows]), atol=5e-5, rtol=1e-4)
    torch.testing.assert_close(sentence, reference.sentence_logits(model, hidden), atol=2e-5, rtol=1e-4)
    torch.testing.assert_close(model.mlm_logits(flat[rows]), logits, atol=5e-5, rtol=1e-4)
    torch.testing.assert_close(
        model.sentence_logits(flat[batch.first_tokens]), sentence, atol=2e-5, rtol=1e-4
    )
    torch.testing.assert_close(output.last_hidden_state[mask.bool()], flat, atol=2e-5, rtol=1e-4)
    assert not output.last_hidden_state[~mask.bool()].any()
    assert [tuple(s.shape) for s in output.hidden_states] == [(4, 9, 24)] * 5
    torch.testing.assert_close(output.pooler_output, model.pooled(flat[batch.first_tokens]))


def test_masked_rows_may_include_first_tokens_and_may_be_none():
    model, batch = builders.model(), builders.packed([3, 4])
    logits, sentence = model.pretraining_forward(batch, torch.tensor([0, 3]))
    nothing, same = model.pretraining_forward(batch, torch.tensor([], dtype=torch.long))
    assert (logits.shape, nothing.shape) == ((2, builders.VOCABULARY), (0, builders.VOCABULARY))
    torch.testing.assert_close(sentence, same)


def test_with_one_kind_of_segment_pairs_are_read_all_the_same():
    """As RoBERTa's tokenizer would lay them out, all in the first; catches: a row of the table that is not
    there."""
    model, batch = builders.model(type_vocab_size=1), builders.packed([5, 9])
    ids, mask, types = builders.padded(batch)
    assert types.any()
    with torch.no_grad():
        found, wanted = model(ids, mask, types), model(ids, mask)
        two = builders.model(type_vocab_size=2)
        apart = two(ids, mask, types).pooler_output - two(ids, mask).pooler_output
    assert torch.equal(found.last_hidden_state, wanted.last_hidden_state)
    assert apart.abs().max() > 1e-3


def test_requested_heads_are_present():
    assert Model(builders.config(), {"mlm"}).heads == {"mlm"}
    assert Model(builders.config(), {"nsp"}).heads == {"pooler", "nsp"}
    bare = Model(builders.config(), ())
    assert bare(torch.tensor([[5, 6]])).pooler_output is None
    logits, sentence = Model(builders.config(), {"mlm"}).pretraining_forward(
        builders.packed([3]), torch.tensor([1])
    )
    assert logits.shape == (1, builders.VOCABULARY)
    assert sentence is None
    for call in (
        lambda: bare.pretraining_forward(builders.packed([3]), torch.tensor([1])),
        lambda: bare.mlm_logits(torch.zeros(1, 24)),
        lambda: bare.pooled(torch.zeros(1, 24)),
        lambda: bare.sentence_logits(torch.zeros(1, 24)),
        lambda: Model(builders.config(), {"sop", "nsp"}),
        lambda: Model(builders.config(), {"mlm", "other"}),
    ):
        with pytest.raises(SettingsError):
            call()


def test_sentence_dropout_only_in_the_semantics_of_transformers():
    config = builders.config()
    google, other = (Model(c, {"sop"}).train().sentence for c in (config, config.huggingface()))
    x = torch.randn(50, 24)
    assert torch.equal(google(x), google(x))
    assert not torch.equal(other(x), other(x))


def test_truncated_normal_is_cut_at_two_sigma():
    weight = Model(builders.config(vocab_size=4000, initializer_range=0.02)).encoder.embeddings.word.weight
    assert weight.abs().max() <= 0.04
    # A normal cut at two sigma keeps .8796 of its standard deviation.
    assert weight.std().item() == pytest.approx(0.02 * 0.8796, rel=0.02)
    assert abs(weight.mean().item()) < 1e-3


def test_normal_initialisation_is_uncut_with_a_zero_padding_row():
    config = builders.config(vocab_size=4000, initializer_range=0.02, pad_token_id=3).huggingface()
    weight = Model(config).encoder.embeddings.word.weight
    assert weight.abs().max() > 0.06
    assert weight.std().item() == pytest.approx(0.02, rel=0.02)
    assert not weight[3].any()


def test_other_parameters_start_at_zero_and_one():
    for name, parameter in Model(builders.config(), {"mlm", "sop"}).named_parameters():
        if parameter.ndim == 1:
            assert parameter.unique().tolist() == [1.0 if name.endswith("layer_norm.weight") else 0.0], name


def test_weights_are_a_function_of_seed_and_name():
    config = builders.config()
    small, large = Model(config, (), seed=4).state_dict(), Model(config, {"mlm", "sop"}, seed=4).state_dict()
    assert all(torch.equal(large[name], value) for name, value in small.items())
    other = Model(config, (), seed=5).encoder.embeddings.word.weight
    assert not torch.equal(other, small["encoder.embeddings.word.weight"])


@pytest.mark.parametrize("default", [torch.float64, torch.bfloat16])
def test_sinusoids_are_float32_whatever_the_default_is(default):
    expected, widened = sinusoids(40, 24), Model(builders.config(), ()).encoder.embeddings
    widen_embeddings(widened, 0.3)
    torch.set_default_dtype(default)
    try:
        found, other = sinusoids(40, 24), Model(builders.config(), ()).encoder.embeddings
        widen_embeddings(other, 0.3)
    finally:
        torch.set_default_dtype(torch.float32)
    assert found.dtype == torch.float32 and torch.equal(found, expected)
    assert torch.equal(other.position.weight, widened.position.weight)


def test_a_fresh_model_is_a_fair_guesser():
    model = Model(preset("albert-tiny-zh"), {"mlm"}).eval()
    with torch.no_grad():
        logits, _ = model.pretraining_forward(builders.packed([20, 30]), torch.arange(1, 15))
    loss = torch.nn.functional.cross_entropy(logits, torch.arange(14) + 500)
    assert loss.item() == pytest.approx(math.log(21128), abs=0.3)


def test_huggingface_semantics_of_bert_differ_only_in_initialisation():
    bert = preset("bert-base")
    assert bert.huggingface() == replace(bert, initialization="normal")
    albert = preset("albert-base-v1").huggingface()
    assert (albert.embedding_mapping, albert.feed_forward_dropout, albert.sentence_dropout) == (
        "always",
        False,
        True,
    )


def test_only_albert_loses_what_transformers_leaves_out_of_it():
    """Catches: RoFormer and ModernBERT without dropout behind the feed-forward, XLNet with an E→H map."""
    rotary = builders.config(positions="rotary")
    xlnet = builders.config(positions="relative", embedding_norm=False, summary="last", embedding_size=24)
    modern = replace(rotary, norm="pre", feed_forward="gated", biases=False, type_vocab_size=0)
    assert [c.architecture for c in (rotary, xlnet, modern)] == ["roformer", "xlnet", "modernbert"]
    assert rotary.huggingface() == replace(rotary, initialization="normal")
    assert xlnet.huggingface() == replace(xlnet, initialization="normal")
    assert modern.huggingface() == modern


def test_traps_in_the_presets():
    assert (
        preset("albert-xlarge-v1").num_attention_heads == preset("albert-xlarge-v2").num_attention_heads == 16
    )
    assert preset("albert-xxlarge-v2").num_attention_heads == 64
    assert preset("albert-xxlarge-zh").num_attention_heads == 16
    assert [preset(f"albert-{s}-v1").hidden_dropout_prob for s in ("base", "xlarge", "xxlarge")] == [
        0.1,
        0.1,
        0.0,
    ]
    assert {preset(f"albert-{s}-v2").attention_probs_dropout_prob for s in ("base", "xxlarge")} == {0.0}
    assert [preset(f"albert-{s}-zh").hidden_act for s in ("tiny", "small")] == ["gelu_new"] * 2
    assert {preset(f"albert-{s}-zh").hidden_act for s in ("base", "large", "xlarge", "xxlarge")} == {"relu"}
    assert [preset(f"albert-{s}-zh").initializer_range for s in ("large", "xlarge", "xxlarge")] == [
        0.02,
        0.014,
        0.01,
    ]
    assert preset("bert-large").plan.is_unshared
    assert {c.classifier_dropout_prob for c in PRESETS.values()} == {0.1}


def test_paper_rows_by_name():
    assert len(paper_rows()) == 16
    assert preset("albert-base-ffn-e768") == paper_row("ffn", 768)
    assert paper_row("ffn", 768).has_mapping is False
    with pytest.raises(SettingsError, match="sharing"):
        paper_row("some")


def test_random_weights_of_a_preset_and_of_a_wrong_one():
    model = albertine.load("albert-tiny-zh", random=True, seed=2)
    assert model.heads == {"pooler", "mlm", "sop"}
    assert not model.training
    assert "albert-tiny-zh" in albertine.presets()
    with pytest.raises(SettingsError, match="Did you mean `albert-base-v2`"):
        albertine.load("albert-base-v3", random=True)
    small = {"hidden_size": 32, "vocab_size": 64, "embedding_size": 16}
    named = albertine.load("albert-tiny-zh", random=True, plan="attention", **small)
    assert named.config.plan == SharingPlan.attention_only(model.config.num_hidden_layers)
    deeper = albertine.load("albert-tiny-zh", random=True, plan="none", num_hidden_layers=3, **small)
    assert deeper.config.plan == SharingPlan.unshared(3)
    for odd in ("some", 3, None):
        with pytest.raises(SettingsError, match=r"there is no plan.*Use one of all, attention, ffn, none"):
            albertine.load("albert-tiny-zh", random=True, plan=odd)


@pytest.mark.parametrize("name", ["albert-tiny-zh", "albert-base-ffn-e768"])
def test_a_preset_needs_random_weights_to_be_requested(name):
    with pytest.raises(ModelError, match=f"shape without weights.*load\\('{name}', random=True\\)"):
        albertine.load(name)


def test_configuration_round_trip_as_plain_data():
    config = builders.config(SharingPlan.attention_only(3), hidden_act="relu")
    assert EncoderConfig.from_dict(config.to_dict()) == config
    with pytest.raises(SettingsError):
        EncoderConfig.from_dict({"vocab_size": 3})
    assert config.to_dict() == {"format": 1, **config.non_default_dict()}
    assert (
        EncoderConfig.from_dict(config.non_default_dict()) == config
    )  # a folder from before there was a format


@pytest.mark.parametrize(
    ("odd", "message"),
    [
        ({"norm_position": "pre"}, "unknown key `norm_position`.*written by a newer version"),
        ({"hiden_size": 3}, "Did you mean `hidden_size`"),
        ({"format": 99}, r"format 99, and this version reads up to \d+.*newer version"),
        ({"format": "1"}, "whole number"),
        ({"format": True}, "whole number"),
        ({"format": 0}, "whole number"),
        ({"plan": {"attention": [0], "feed_forward": [0], "adapters": [0]}}, "`adapters` in its plan"),
        ({"plan": {"attention": [0]}}, "incomplete"),
        ({"plan": [0]}, "incomplete"),
        ({"plan": {"attention": 0, "feed_forward": [0]}}, "incomplete"),
        (
            {"plan": {"attention": [0], "feed_forward": [0], "low_rank": 2.0}},
            "low_rank must be a whole number",
        ),
        ({"qk_norm": "false"}, "qk_norm must be true or false, got 'false'"),
        ({"sentence_dropout": 0}, "sentence_dropout must be true or false, got 0"),
    ],
)
def test_a_configuration_with_unknown_settings_is_refused(odd, message):
    tree = builders.config(SharingPlan.attention_only(3)).to_dict() | odd
    with pytest.raises(SettingsError, match=message):
        EncoderConfig.from_dict(tree)


@pytest.mark.parametrize(
    "change",
    [
        {"hidden_size": 25},
        {"vocab_size": 0},
        {"vocab_size": True},
        {"vocab_size": 10**12},
        {"hidden_act": "swish"},
        {"hidden_dropout_prob": 1.0},
        {"attention_probs_dropout_prob": float("nan")},
        {"layer_norm_eps": 0.0},
        {"layer_norm_eps": float("inf")},
        {"initializer_range": float("inf")},
        {"pad_token_id": 53},
        {"embedding_mapping": "never"},
    ],
)
def test_impossible_configurations_are_refused(change):
    with pytest.raises(SettingsError):
        builders.config(**change)


@pytest.mark.parametrize("training", [True, False])
def test_after_evaluating_a_model_is_in_the_mode_it_was_in(training):
    model = builders.model().train(training)
    with pytest.raises(KeyError), evaluating(model):
        assert not model.training and not model.encoder.training
        raise KeyError
    assert model.training is training and model.encoder.training is training


def test_evaluating_leaves_every_module_in_its_mode():
    """Catches: a part that was frozen in evaluation mode trains on with dropout."""
    model = builders.model(hidden_dropout_prob=0.5).train()
    model.encoder.eval()
    modes = {name: module.training for name, module in model.named_modules()}
    with evaluating(model):
        assert not any(module.training for module in model.modules())
    assert {name: module.training for name, module in model.named_modules()} == modes
    assert model.pooler.training and not model.encoder.feed_forward[0].training


def test_a_seed_means_the_same_weights_whatever_device_is_the_default():
    config = builders.config(positions="relative", embedding_norm=False)
    expected, found = (Model(config, {"lm"}, seed=seed) for seed in (3, 4))
    with torch.device("meta"):
        initialize(found, config, 3)
    for name, x in expected.state_dict().items():
        assert torch.equal(found.state_dict()[name], x), name


def test_with_one_segment_type_relative_segments_are_equal():
    model, batch = builders.model(type_vocab_size=1, positions="relative"), builders.packed([5, 9])
    ids, mask, types = builders.padded(batch)
    with torch.no_grad():
        found, wanted = model(ids, mask, types), model(ids, mask)
    torch.testing.assert_close(found.last_hidden_state, wanted.last_hidden_state)


def test_dropout_of_the_presets_that_were_published_with_it():
    for name in ("bert-base", "bert-large", "bert-base-zh", "xlnet-base", "xlnet-large"):
        config = preset(name)
        assert (config.hidden_dropout_prob, config.attention_probs_dropout_prob) == (0.1, 0.1), name


def test_a_preset_with_other_sizes():
    """Catches: sizes that do not fit together because only one of them was named."""
    model = albertine.load(
        "albert-base-v2", random=True, seed=2, hidden_size=np.int64(128), num_hidden_layers=2, vocab_size=100
    )
    config = model.config
    assert (config.hidden_size, config.num_hidden_layers, config.vocab_size) == (128, 2, 100)
    assert (config.num_attention_heads, config.intermediate_size, config.embedding_size) == (2, 512, 128)
    assert config.plan == SharingPlan.shared(2)
    assert sum(p.numel() for p in model.parameters()) < 400_000
    assert model(torch.tensor([[2, 5, 3]])).last_hidden_state.shape == (1, 3, 128)
    same = albertine.load(
        "albert-base-v2", random=True, seed=2, hidden_size=128, num_hidden_layers=2, vocab_size=100
    )
    assert all(map(torch.equal, model.parameters(), same.parameters()))
    narrow = {"hidden_size": 96, "num_hidden_layers": 3, "vocab_size": 50}
    bert = albertine.load(
        "bert-base", random=True, **narrow, num_attention_heads=3, hidden_dropout_prob=0
    ).config
    assert (bert.embedding_size, bert.num_attention_heads, bert.intermediate_size) == (96, 3, 384)
    assert bert.plan == SharingPlan.unshared(3) and bert.hidden_dropout_prob == 0
    plan = SharingPlan.grouped(4, 2)
    assert albertine.load("albert-tiny-zh", random=True, plan=plan, vocab_size=50).config.plan == plan


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hiden_size": 128}, "there is no `hiden_size`.*Did you mean `hidden_size`"),
        ({"layers": 2}, "there is no `layers`.*Did you mean `num_hidden_layers`"),
        ({"hidden_size": 100, "num_attention_heads": 3}, "is not a multiple of num_attention_heads 3"),
        ({"hidden_size": "128"}, "hidden_size must be a whole number"),
        ({"num_hidden_layers": 0}, "num_hidden_layers is a whole number from 1, not 0"),
        ({"hidden_dropout_prob": "a"}, "must be in"),
        ({"hidden_act": "swish"}, "hidden_act `swish` is not supported"),
    ],
)
def test_sizes_that_a_preset_cannot_have(changes: dict[str, object], message: str):
    with pytest.raises(SettingsError, match=message):
        albertine.load("albert-base-v2", random=True, **changes)


def test_what_is_trained_has_its_sizes():
    with pytest.raises(
        SettingsError, match=r"hidden_size: only the shape of a preset can be changed.*random=True"
    ):
        albertine.load("albertine-mini-en", hidden_size=128)
