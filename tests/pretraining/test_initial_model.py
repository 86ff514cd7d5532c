"""The weights a run begins with."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from albertine.corpus.reader import Corpus
from albertine.errors import ModelError, SettingsError
from albertine.interop.huggingface.folders import save_model
from albertine.model.init import WIDE, sinusoids
from albertine.model.model import Model
from albertine.objectives.unigram_baseline import count_tokens
from albertine.pretraining.initial_model import initial_model
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
    with pytest.raises((SettingsError, ValueError), match="belong to a preset"):
        build(model={"preset": None, "change": {}, "start_from": tmp_path, "embeddings": "wide"})


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
