"""`prepare` that resumes an earlier call."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from albertine.corpus import prepare as preparing
from albertine.corpus import source, vocabulary
from albertine.corpus.manifest import load_manifest
from albertine.text.streams import Limits
from albertine.tokenizers import word_starts as segmenting
from tests.cli.conftest import Command
from tests.corpus.texts import library, write_lines
from tests.text.test_documents import PROSE, wrapped


def test_grown_text_keeps_its_held_out_share(
    albertine: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    corpus, text = tmp_path / "corpus", library(tmp_path / "text", 60)
    words = ("prepare", text, "-o", corpus, "--tokenizer", "albertine-mini-en", "--workers", 1)
    with monkeypatch.context() as patched:
        patched.setattr(preparing, "write_shard", killed)
        assert albertine(*words).code != 0 and (corpus / "prepare.json").is_file()
    library(tmp_path / "text", 90)
    refused = albertine(*words, "--held-out", 0.3)
    assert refused.code == 2 and "settings.held_out: 0.167 → 0.3" in " ".join(refused.err.split())
    assert albertine(*words).code == 0
    made = (corpus / "manifest.json").read_bytes()
    assert json.loads(made)["settings"]["held_out"] == 0.167
    assert albertine(*words).code == 0 and (corpus / "manifest.json").read_bytes() == made


def test_narrow_lines_that_look_hard_wrapped_are_reported(albertine: Command, tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.mkdir()
    for name in "ab":
        (text / f"{name}.txt").write_text(wrapped(PROSE["en"], 30, "  "))
    words = ("prepare", text, "--tokenizer", "albertine-mini-en", "--workers", 1, "--keep-duplicates", "-o")
    stderr = " ".join(albertine(*words, tmp_path / "c").err.split())
    assert "a.txt and 1 more look hard-wrapped, at 30 columns" in stderr and "pass --format book" in stderr
    assert "hard-wrapped" not in albertine(*words, tmp_path / "d", "--format", "book").err


def test_every_option_is_a_setting_of_the_corpus(albertine: Command, tmp_path: Path) -> None:
    pytest.importorskip("jieba")
    sentence = "我们明天去北京大学看朋友。"
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *sorted(set(sentence))]
    (tmp_path / "vocab.txt").write_text("\n".join(pieces) + "\n", encoding="utf-8")
    text = write_lines(tmp_path / "t.txt", [[sentence] * 3] * 2)
    words = ("prepare", text, "-o", tmp_path / "c", "--tokenizer", tmp_path / "vocab.txt", "--language", "zh")
    how = ("--format", "lines", "--workers", 1, "--held-out", 0, "--min-characters", 5)
    assert albertine(*words, *how, "--words", "jieba", "--seed", 7, "--keep-duplicates").code == 0
    made = load_manifest(tmp_path / "c")
    wanted = {"words": "jieba", "seed": 7, "deduplicate": False, "min_characters": 5, "format": "lines"}
    assert {name: made.settings[name] for name in wanted} == wanted
    assert made.documents == 2 and made.dropped["duplicate"] == 0


def test_the_vocabulary_is_made_of_what_the_corpus_takes(
    albertine: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A text that the corpus would refuse is reported before a vocabulary is trained on it."""
    monkeypatch.setattr(source, "READ_LIMITS", Limits(document_characters=2000))
    (tmp_path / "book.txt").write_text("The old man said that it was good. " * 100, encoding="utf-8")
    outcome = albertine("prepare", tmp_path / "book.txt", "--output", tmp_path / "c", "--format", "book")
    assert outcome.code == 2 and "longer than 2,000 characters" in outcome.err
    assert "sentences for the vocabulary" not in outcome.err


@pytest.mark.parametrize(
    ("words", "there", "message"),
    [
        (("--held-out", 1.5), None, "held_out is a share from 0 to below 1, not 1.5"),
        (("--words", "jieba"), None, "need the `jieba` package"),
        ((), "thesis.doc", "holds other files (thesis.doc)"),
        ((), "", "is not a folder"),
        (("--keep-duplicates",), "corpus", "settings.deduplicate: true → false"),
        (("--language", "zh", "--kind", "sentencepiece"), "corpus", 'language: "en" → "zh"'),
    ],
)
def test_what_is_refused_is_refused_before_a_vocabulary_is_trained(
    albertine: Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[object, ...],
    there: str | None,
    message: str,
) -> None:
    """Which takes minutes."""
    text, corpus = library(tmp_path / "text", 60), tmp_path / "c"
    command = ("prepare", text, "-o", corpus, "--workers", 1, "--vocab-size")
    if there == "corpus":
        assert albertine(*command, 45).code == 0
    elif there is not None:
        (corpus / there).parent.mkdir(exist_ok=True)
        (corpus / there).write_text("precious")
    monkeypatch.setattr(
        vocabulary, "train_vocabulary", lambda *_, **__: pytest.fail("a vocabulary is trained")
    )
    monkeypatch.setitem(sys.modules, "jieba", None)
    segmenting._segmenter.cache_clear()
    refused = albertine(*command, 50, *words)
    assert refused.code == 2 and message in " ".join(refused.err.split())


@pytest.mark.parametrize("damage", ["cut off", "another", "nested manifest"])
def test_a_damaged_vocabulary_is_trained_again(albertine: Command, tmp_path: Path, damage: str) -> None:
    """By the same command, as `doctor` advises; the same bytes."""
    text = library(tmp_path / "text", 60)
    words = ("prepare", text, "--output", tmp_path / "c", "--vocab-size", "45", "--language", "en")
    assert albertine(*words, "--workers", "1").code == 0
    before = {x.name: x.read_bytes() for x in (tmp_path / "c" / "tokenizer").iterdir()}
    if damage == "cut off":
        (tmp_path / "c" / "tokenizer" / "spiece.model").write_bytes(before["spiece.model"][:1000])
    elif damage == "another":
        (tmp_path / "c" / "tokenizer" / "spiece.model").unlink()
    else:
        (tmp_path / "c" / "manifest.json").write_text("[" * 100_000)
    again = albertine(*words, "--workers", "1")
    assert again.code == 0, again.err
    assert {x.name: x.read_bytes() for x in (tmp_path / "c" / "tokenizer").iterdir()} == before
    assert albertine("doctor", "--full", tmp_path / "c").code == 0


def test_a_seed_is_of_eight_bytes(albertine: Command, tmp_path: Path) -> None:
    text = library(tmp_path / "text", 3)
    outcome = albertine(
        "prepare", text, "--output", tmp_path / "c", "--seed", str(2**64), "--vocab-size", "40"
    )
    assert outcome.code == 2 and "seed is below 2 ** 64" in outcome.err
