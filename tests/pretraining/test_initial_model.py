"""The weights a run begins with."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

from albertine.core.batch import pack
from albertine.core.settings import dump, resolve
from albertine.corpus.reader import Corpus
from albertine.errors import ModelError, SettingsError
from albertine.interop.huggingface.folders import save_model
from albertine.model.init import WIDE, sinusoids
from albertine.model.model import Model
from albertine.objectives.unigram_baseline import count_tokens
from albertine.pretraining.initial_model import encoder_config, initial_model
from albertine.pretraining.settings import ModelChoice, PretrainingSettings
from albertine.tokenizers.train import train_sentencepiece
from albertine.tokenizers.wordpiece import BERT, WordPieceTokenizer
from tests.pretraining.conftest import Build


def test_sinusoids_by_their_formula() -> None:
    table = sinusoids(7, 6)
    assert table.shape == (7, 6)
    for position, column in ((0, 0), (3, 0), (3, 1), (5, 4), (6, 5)):
        angle = position / 10000 ** ((column - column % 2) / 6)
        wave = math.sin(angle) if column % 2 == 0 else math.cos(angle)
        assert table[position, column].item() == pytest.approx(wave, abs=1e-6)


def test_wide_embeddings_change_the_tables_alone(build: Build, corpus: Path) -> None:
    opened = Corpus(corpus)
    counts = count_tokens(opened, opened.tokenizer().vocab_size)
    plain = initial_model(build(), counts)
    wide = initial_model(build(model={"embeddings": "wide"}), counts)
    tables = {f"encoder.embeddings.{name}.weight" for name in ("word", "position", "token_type")}
    for (name, before), after in zip(plain.named_parameters(), wide.parameters(), strict=True):
        assert torch.equal(before, after) == (name not in tables), name
    old, new = plain.encoder.embeddings, wide.encoder.embeddings
    torch.testing.assert_close(new.word.weight, old.word.weight * (WIDE / 0.02))
    assert new.position.weight.square().mean().sqrt().item() == pytest.approx(WIDE, rel=0.01)
    near, far = (torch.cosine_similarity(new.position.weight[0], new.position.weight[i], 0) for i in (1, 20))
    assert near > far


def test_an_own_output_matrix_begins_with_the_reference_deviation(build: Build, corpus: Path) -> None:
    """Also beside wide embeddings; other weights are those of the run without it."""
    opened = Corpus(corpus)
    counts = count_tokens(opened, opened.tokenizer().vocab_size)
    wide = {"embeddings": "wide"}
    plain, own = (initial_model(build(model=wide | more), counts) for more in ({}, {"output": "own"}))
    assert own.config.output == "own" and own.mlm is not None and own.mlm.output is not None
    assert own.mlm.output.shape == own.encoder.embeddings.word.weight.shape
    assert own.mlm.output.std().item() == pytest.approx(0.02 * 0.88, rel=0.03)  # cut at two sigma
    assert own.encoder.embeddings.word.weight.std().item() == pytest.approx(WIDE * 0.88, rel=0.03)
    assert all(torch.equal(own.state_dict()[name], x) for name, x in plain.state_dict().items())


def test_zero_output_projections_leave_the_embeddings_as_they_are(build: Build, corpus: Path) -> None:
    """In a pre-norm encoder, whose layers add nothing at first; no other weight changes."""
    opened = Corpus(corpus)
    counts = count_tokens(opened, opened.tokenizer().vocab_size)
    shape = {**build().model.change.model_dump(), "norm": "pre", "hidden_dropout_prob": 0.0}
    more = {"change": shape, "low_rank": 2, "sharing": "none"}
    plain, zero = (
        initial_model(build(model=more | {"residual_init": init}), counts) for init in ("reference", "zeros")
    )
    changed = {n for n, x in plain.state_dict().items() if not torch.equal(x, zero.state_dict()[n])}
    parts = ("attention", "feed_forward")
    assert changed == {f"encoder.{part}.{d}.output.weight" for part in parts for d in range(2)}
    with torch.no_grad():
        states = zero.encoder(pack([[5, 6, 7]]), all_depths=True).hidden_states
        assert states is not None and torch.equal(states[1], states[0])


@pytest.mark.parametrize(
    ("residuals", "factor"), [("plain", 1), ("inverse_sqrt", 3**-0.5), ("inverse", 1 / 3)]
)
def test_the_residual_factor_is_of_the_number_of_layers(residuals: str, factor: float) -> None:
    choice = ModelChoice.model_validate(
        {"preset": "albert-tiny-zh", "residuals": residuals, "change": {"num_hidden_layers": 3}}
    )
    assert encoder_config(choice, 500, 32).residual_factor == pytest.approx(factor)


def test_settings_without_an_effect_are_in_no_record(build: Build) -> None:
    """Catches: runs and studies of before that are refused or computed again."""
    assert not {"output", "residuals", "residual_init"} & build().model.model_dump().keys()
    given = {"output": "own", "residuals": "inverse", "residual_init": "zeros"}
    settings = build(model=given)
    assert settings.model.model_dump().items() >= given.items()
    assert load_settings(settings) == settings


def load_settings(settings: PretrainingSettings) -> PretrainingSettings:
    return resolve(PretrainingSettings, yaml.safe_load(dump(settings)))


def test_the_output_bias_is_the_frequency_of_the_tokens(build: Build, corpus: Path) -> None:
    opened = Corpus(corpus)
    counts = count_tokens(opened, opened.tokenizer().vocab_size)
    model = initial_model(build(model={"output_bias": "unigram"}), counts)
    assert model.mlm is not None
    common, rare = int(counts.argmax()), int(counts.argmin())
    assert model.mlm.bias[common] > model.mlm.bias[rare]
    assert model.mlm.bias.softmax(0)[common].item() == pytest.approx(counts[common] / counts.sum(), rel=0.2)


def test_pairs_need_two_kinds_of_segments_or_none(build: Build, corpus: Path, tmp_path: Path) -> None:
    counts = count_tokens(Corpus(corpus), 500)
    shape = build().model.change.model_dump()
    for kinds, pairs in ((2, "sop"), (0, "sop"), (1, "none"), (1, "sop")):
        settings = build(model={"change": {**shape, "type_vocab_size": kinds}}, objective={"pairs": pairs})
        if (kinds, pairs) == (1, "sop"):
            with pytest.raises(SettingsError, match="type_vocab_size is 1"):
                initial_model(settings, counts)
        else:
            assert initial_model(settings, counts).config.type_vocab_size == kinds
    one = Model(replace(initial_model(build(), counts).config, type_vocab_size=1), {"mlm", "sop"})
    save_model(one, None, tmp_path / "one")
    given = {"preset": None, "change": {}, "start_from": tmp_path / "one"}
    with pytest.raises(ModelError, match="one segment type"):
        initial_model(build(model=given), counts)


def test_another_vocabulary_of_as_many_tokens_is_refused(build: Build, corpus: Path, tmp_path: Path) -> None:
    """Catches: rows of embeddings that are trained as those of other words, without an error."""
    own = Corpus(corpus).tokenizer()
    counts, special = count_tokens(Corpus(corpus), own.vocab_size), list(vars(BERT).values())
    other = WordPieceTokenizer([*special, *(f"w{i}" for i in range(own.vocab_size - len(special)))])
    model = initial_model(build(), counts)
    for name, tokenizer in (("other", other), ("own", own), ("none", None)):
        save_model(model, tokenizer, tmp_path / name)
        settings = build(model={"preset": None, "change": {}, "start_from": tmp_path / name})
        if name == "other":
            with pytest.raises(ModelError, match=r"another vocabulary than the corpus.*prepare TEXT --token"):
                initial_model(settings, counts, own)
        else:
            assert initial_model(settings, counts, own).config == model.config


def test_a_model_without_pairs_gets_a_sentence_head(build: Build, corpus: Path, tmp_path: Path) -> None:
    """Catches: other weights drawn anew; a head that does not depend on the seed; one objective's head read
    as another's; a masked-LM head made up."""
    counts = count_tokens(Corpus(corpus), Corpus(corpus).tokenizer().vocab_size)
    plain = initial_model(build(objective={"pairs": "none"}), counts)
    save_model(plain, None, tmp_path / "plain")
    given = {"preset": None, "change": {}, "start_from": tmp_path / "plain"}
    grown = initial_model(build(model=given), counts)
    assert (grown.sentence_objective, plain.sentence_objective) == ("sop", None)
    old, new = plain.state_dict(), grown.state_dict()
    assert all(torch.equal(new[name], value) for name, value in old.items())
    (weight,) = (value for name, value in new.items() if name not in old and value.ndim == 2)
    assert weight.std() > 0
    again, other = (
        initial_model(build(model=given, seed=seed), counts).state_dict()["sentence.classifier.weight"]
        for seed in (build().seed, build().seed + 1)
    )
    assert torch.equal(again, weight)
    assert not torch.equal(other, weight)
    assert initial_model(build(model=given, objective={"pairs": "none"}), counts).sentence is None
    for heads, missing, instead in (
        ({"mlm", "nsp"}, "sop", "objective.pairs=nsp"),
        ({"pooler"}, "mlm", "Start from a pretraining checkpoint$"),
    ):
        save_model(Model(plain.config, heads), None, tmp_path / missing)
        with pytest.raises(ModelError, match=f"has no {missing} head.*{instead}"):
            initial_model(build(model={**given, "start_from": tmp_path / missing}), counts)


def test_another_kind_of_objective_is_named_where_its_head_is_missing(
    build: Build, corpus: Path, tmp_path: Path
) -> None:
    """Catches: `objective.pairs`, which helps neither."""
    counts = count_tokens(Corpus(corpus), Corpus(corpus).tokenizer().vocab_size)
    config = replace(initial_model(build(), counts).config, qk_norm=True)  # a layout of our own has any head
    for head, kind, message in (
        ("mlm", "causal", "has no lm head.*objective.kind=masked.*causal: true"),
        ("lm", "masked", "has no mlm head.*objective.kind=causal or permutation"),
    ):
        save_model(Model(config, {head}), None, tmp_path / head)
        given = {"preset": None, "change": {}, "start_from": tmp_path / head}
        with pytest.raises(ModelError, match=message):
            initial_model(build(model=given, objective={"kind": kind, "pairs": "none"}), counts)


def test_a_start_model_excludes_settings_of_presets(build: Build, tmp_path: Path) -> None:
    for name, value in (
        ("embeddings", "wide"),
        ("output", "own"),
        ("residuals", "inverse"),
        ("residual_init", "zeros"),
    ):
        with pytest.raises((SettingsError, ValueError), match="residual_init belong to a preset"):
            build(model={"preset": None, "change": {}, "start_from": tmp_path, name: value})


def test_the_model_looks_where_the_corpus_tokenizer_puts_cls(build: Build, tmp_path: Path) -> None:
    texts = ["The old man message that he had no time.", "It was a dark and stormy night in London."] * 20
    shape = build().model.change.model_dump()
    last = train_sentencepiece(texts, tmp_path / "last", 46, cls_last=True)
    first = train_sentencepiece(texts, tmp_path / "first", 40)
    counts = np.ones(last.vocab_size, dtype=np.int64)
    config = initial_model(build(), counts, last).config
    assert (config.summary, config.type_vocab_size) == ("last", 3)
    config = initial_model(build(model={"change": {**shape, "type_vocab_size": 0}}), counts, last).config
    assert (config.summary, config.type_vocab_size) == ("last", 0)
    assert initial_model(build(), counts, first).config.summary == "first"
    with pytest.raises(ModelError, match=r"2 segment embeddings.*segment id 2"):
        initial_model(build(model={"change": {**shape, "type_vocab_size": 2}}), counts, last)
    relative = {**shape, "type_vocab_size": 2, "positions": "relative"}  # compares segments, has no table
    assert initial_model(build(model={"change": relative}), counts, last).config.type_vocab_size == 2
    with pytest.raises(ModelError, match=r"last token.*puts .CLS. first"):
        initial_model(build(model={"change": {**shape, "summary": "last"}}), counts, first)
