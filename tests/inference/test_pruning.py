"""Models with fewer tokens: equal outputs where all tokens stay, and the report on removed ones."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from albertine.cli.app import run
from albertine.core.batch import pack
from albertine.corpus.prepare import write_corpus
from albertine.corpus.reader import Corpus
from albertine.corpus.vocabulary_usage import measure_coverage, token_counts
from albertine.errors import AlbertineError, CorpusError
from albertine.inference.pruning import prune
from albertine.interop.heads import head_config
from albertine.interop.huggingface.folders import load_model, read_folder, save_model
from albertine.model.config import EncoderConfig
from albertine.model.model import Model
from albertine.model.sharing import SharingPlan
from albertine.tokenizers.load import load_tokenizer
from albertine.tokenizers.prune import prune_tokenizer, select_tokens
from tests import stand_in
from tests.crashes import states_at_kills
from tests.toy import toy_vocabulary


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Text, a corpus of a part of it, and a model with random weights and a classifier."""
    folder = tmp_path_factory.mktemp("pruning")
    text, vocabulary = toy_vocabulary(folder, 120_000)
    tokenizer = load_tokenizer(vocabulary)
    some = folder / "some.txt"
    some.write_text(next(p for p in sorted(text.rglob("*.txt"))).read_text(encoding="utf-8")[:6000])
    write_corpus([some], folder / "corpus", tokenizer, "en", workers=1, held_out=0.0, min_characters=0)
    config = EncoderConfig(
        vocab_size=tokenizer.vocab_size + 3,  # more rows than pieces, as padded tables have
        embedding_size=8,
        hidden_size=16,
        num_attention_heads=2,
        intermediate_size=20,
        max_position_embeddings=64,
        initializer_range=0.3,
        plan=SharingPlan.shared(2),
    )
    model = Model(config, {"mlm", "sop"}, seed=1)
    assert model.mlm is not None
    with torch.no_grad():
        model.mlm.bias.copy_(torch.arange(config.vocab_size) / 100)
    head = {"classifier.weight": torch.randn(2, 16), "classifier.bias": torch.zeros(2)}
    extra_config = head_config("albert", "classify", 0.1, names=("a", "b"), max_length=64)
    save_model(model, tokenizer, folder / "model", extra_tensors=head, extra_config=extra_config)
    return folder


def test_hidden_states_are_the_same_to_the_bit(place: Path, tmp_path: Path) -> None:
    report = prune(place / "model", place / "corpus", tmp_path / "small")
    before, after = read_folder(place / "model"), read_folder(tmp_path / "small")
    old, new = load_tokenizer(place / "model"), load_tokenizer(tmp_path / "small")
    kept = torch.tensor([old.piece_to_id(new.id_to_piece(i)) for i in range(new.vocab_size)])
    assert report.pieces == (500, new.vocab_size) and new.vocab_size == after.model.config.vocab_size < 500
    assert after.model.config.pad_token_id == new.pad_id
    text = (place / "some.txt").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if line.strip()][:20]
    rows = [pack([t.layout(t.encode(line), max_length=64)[0] for line in lines]) for t in (old, new)]
    with torch.no_grad():
        states = [
            m.encoder(r, all_depths=True).hidden_states
            for m, r in zip((before.model, after.model), rows, strict=True)
        ]
        logits = [
            m.pretraining_forward(r, torch.arange(9))[0]
            for m, r in zip((before.model, after.model), rows, strict=True)
        ]
    for one, other in zip(*states, strict=True):
        assert torch.equal(one, other)
    torch.testing.assert_close(logits[1], logits[0][:, kept], rtol=1e-6, atol=1e-6)
    assert torch.equal(after.extra["classifier.weight"], before.extra["classifier.weight"])
    assert after.config["id2label"] == {"0": "a", "1": "b"}
    rows_gone = 503 - new.vocab_size
    assert report.parameters[0] - report.parameters[1] == rows_gone * (8 + 1)


def test_the_reported_coverage_equals_a_naive_count(place: Path, tmp_path: Path) -> None:
    corpus = Corpus(place / "corpus")
    old = corpus.tokenizer()
    sentences = [corpus.span(i, i + 1)[0].tolist() for i in range(corpus.num_sentences)]
    counts = token_counts(place / "corpus")
    assert counts.tolist() == np.bincount([i for s in sentences for i in s], minlength=500).tolist()
    kept = select_tokens(old, counts, coverage=0.9)
    new = prune_tokenizer(old, kept)
    report, stays = measure_coverage(place / "corpus", old, new, kept), set(kept.tolist())
    changed = [s for s in sentences if not stays.issuperset(s)]
    assert (report.sentences, report.sentences_changed) == (len(sentences), len(changed)) and changed
    assert report.tokens == sum(map(len, sentences))
    assert report.tokens_kept == sum(i in stays for s in sentences for i in s)
    assert 0.9 <= report.tokens_kept / report.tokens < 0.91 or report.tokens_kept == report.tokens
    again = sum(len(new.encode(old.decode(s))) for s in changed)
    assert report.tokens_after == report.tokens - sum(map(len, changed)) + again > report.tokens
    assert report.unknown == report.unknown_after == 0
    written = prune(place / "model", place / "corpus", tmp_path / "small", share=0.9)
    record = json.loads((tmp_path / "small" / "pruning.json").read_text())
    assert record["coverage"] == vars(report) == vars(written.coverage)
    assert record["pieces"] == {"before": 500, "after": len(kept)}


def test_unknown_characters_are_counted(place: Path, tmp_path: Path) -> None:
    """Where the vocabulary is forced to lose the characters too."""
    old = load_tokenizer(place / "model")
    counts = token_counts(place / "corpus")
    stays = select_tokens(old, counts)
    letter = old.piece_to_id("e")
    kept = stays[[not (i not in old.special_ids and "e" in old.id_to_piece(i)) for i in stays.tolist()]]
    assert letter not in kept
    report = measure_coverage(place / "corpus", old, prune_tokenizer(old, kept), kept)
    assert report.unknown == 0 < report.unknown_after


@pytest.mark.parametrize("stored", ["float16", "bfloat16"])
def test_weights_of_16_bits_stay_so(place: Path, tmp_path: Path, stored: Any) -> None:
    found = read_folder(place / "model")
    with torch.no_grad():
        found.model.encoder.attention[0].query.weight[0, 0] = 1e-9  # which float16 has none of
    save_model(found.model, load_tokenizer(place / "model"), tmp_path / "half", stored=stored)
    prune(tmp_path / "half", place / "corpus", tmp_path / "small")
    size = (tmp_path / "small" / "model.safetensors").stat().st_size
    assert size < (tmp_path / "half" / "model.safetensors").stat().st_size
    old, new = load_model(tmp_path / "half"), load_model(tmp_path / "small")
    assert torch.equal(old.encoder.attention[0].query.weight, new.encoder.attention[0].query.weight)


def test_a_corpus_of_another_tokenizer_is_refused(place: Path, tmp_path: Path) -> None:
    text, vocabulary = toy_vocabulary(tmp_path, 40_000)
    write_corpus([text], tmp_path / "corpus", load_tokenizer(vocabulary), "en", workers=1)
    with pytest.raises(CorpusError, match=r"another tokenizer.*--tokenizer"):
        prune(place / "model", tmp_path / "corpus", tmp_path / "small")
    with pytest.raises(AlbertineError, match="special or spell"):
        prune(place / "model", place / "corpus", tmp_path / "small", keep=7)
    assert not (tmp_path / "small").exists()


def test_killed_anywhere_nothing_is_half_written(place: Path, tmp_path: Path) -> None:
    whole, out = tmp_path / "whole", tmp_path / "killed" / "out"
    out.parent.mkdir()
    prune(place / "model", place / "corpus", whole)
    names = sorted(path.name for path in whole.iterdir())
    kills = states_at_kills(
        lambda: prune(place / "model", place / "corpus", out), out.parent, tmp_path / "kills"
    )
    for folder in kills:
        copy = folder / "out"
        if copy.exists():
            assert sorted(path.name for path in copy.iterdir()) == names
        prune(place / "model", place / "corpus", copy)
        assert all((copy / name).read_bytes() == (whole / name).read_bytes() for name in names)
    assert len(kills) > 9


def test_the_command_resumes_its_text_after_a_kill(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["prune", str(place / "model"), str(place / "text"), "--workers=1"]
    straight, out = tmp_path / "straight", tmp_path / "out"
    assert run([*words, "-o", str(straight)]) == 0
    printed = capsys.readouterr().out
    assert "tokens kept" in printed and "100.000%" in printed
    assert not (tmp_path / ".straight.corpus").exists()
    process = subprocess.Popen(
        [sys.executable, "-m", "albertine", *words, "-o", str(out)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    since = time.monotonic()
    while not (tmp_path / ".out.corpus").is_dir():
        assert process.poll() is None and time.monotonic() - since < 120
        time.sleep(0.002)
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL and not out.exists()
    assert run([*words, "-o", str(out)]) == 0
    assert not (tmp_path / ".out.corpus").exists()
    for name in ("spiece.model", "model.safetensors", "config.json"):
        assert (out / name).read_bytes() == (straight / name).read_bytes()


def test_a_corpus_that_was_named_stays(place: Path, tmp_path: Path) -> None:
    """Also one at the path where the command would write its own."""
    named = tmp_path / "out.corpus"
    shutil.copytree(place / "corpus", named)
    for text, *workers in ((named,), (place / "some.txt", "--workers=1")):
        words = ["prune", str(place / "model"), str(text), "-o", str(tmp_path / "out"), *workers]
        assert run(words) == 0
    assert Corpus(named).num_sentences == Corpus(place / "corpus").num_sentences


def test_as_many_tokens_stay_as_requested(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[object] = []

    def noted(
        model: Path, corpus: Path, output: Path, *, keep: object, share: object, progress: object
    ) -> object:
        calls.append((keep, share))
        return SimpleNamespace(as_dict=dict)

    monkeypatch.setattr("albertine.inference.pruning.prune", noted)
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    (corpus / "manifest.json").write_text("{}")
    words = ["prune", str(stand_in.put(tmp_path, "en")), str(corpus), "-o", str(tmp_path / "out"), "--json"]
    for more in ([], ["--coverage", "0.9"], ["--keep", "7"]):
        assert run([*words, *more]) == 0
    assert calls == [(None, 1.0), (None, 0.9), (7, 1.0)]


def test_an_ignored_head_is_reported(place: Path, tmp_path: Path) -> None:
    shapes = {
        "dense.weight": (16, 16),
        "dense.bias": (16,),
        "out_proj.weight": (2, 16),
        "out_proj.bias": (2,),
    }
    head = {f"classifier.{name}": torch.zeros(shape) for name, shape in shapes.items()}
    model, tokenizer = load_model(place / "model"), load_tokenizer(place / "model")
    save_model(model, tokenizer, tmp_path / "electra", extra_tensors=head, layout="electra")
    aside = read_folder(tmp_path / "electra").left_aside
    assert aside and prune(tmp_path / "electra", place / "corpus", tmp_path / "small").left_out == tuple(
        aside
    )


def test_a_head_is_not_rounded(place: Path, tmp_path: Path) -> None:
    model = load_model(place / "model").half().float()
    head = {"classifier.weight": torch.full((2, 16), 0.1), "classifier.bias": torch.zeros(2)}
    extra_config = head_config("albert", "classify", 0.1, names=("a", "b"), max_length=64)
    save_model(
        model, load_tokenizer(place / "model"), tmp_path / "m", extra_tensors=head, extra_config=extra_config
    )
    prune(tmp_path / "m", place / "corpus", tmp_path / "small")
    found = read_folder(tmp_path / "small").extra["classifier.weight"]
    assert torch.equal(found, head["classifier.weight"])
