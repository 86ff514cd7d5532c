"""What a vocabulary of the user's own text is made of, and the requirements of a corpus in place of text."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from albertine.corpus import build
from albertine.corpus import prepare as preparing
from albertine.corpus import vocabulary as module
from albertine.corpus.source import Source
from albertine.tokenizers.train import VocabularyTooSmall
from tests.cli.conftest import Command
from tests.cli.conftest import albertine as albertine
from tests.corpus.texts import content, document, library


def records(path: Path, documents: int, characters: int) -> Path:
    path.write_text("\n".join([json.dumps({"text": "a" * characters})] * documents), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("documents", "characters", "pieces"),
    [(1, 800, 4_000), (50, 50_000, 6_250), (3_000, 800, 6_000), (2_600, 5_000, 30_000)],
)
def test_the_size_depends_on_the_text_and_not_on_its_documents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, documents: int, characters: int, pieces: int
) -> None:
    sizes: list[int] = []

    def make(sentences: Iterable[str], folder: Path, size: int, **_: Any) -> None:
        sizes.append(size)

    monkeypatch.setattr(module, "TRAINERS", {"sentencepiece": make})
    module.train_vocabulary(Source([records(tmp_path / "a.jsonl", documents, characters)]), tmp_path, "en")
    assert sizes == [pieces]


def test_a_text_of_many_characters_gets_a_vocabulary_that_holds_them(tmp_path: Path) -> None:
    characters = "".join(map(chr, range(0x4E00, 0x4E00 + 4_500)))
    lines = [characters[at : at + 100] * 3 for at in range(0, len(characters), 50)]
    (tmp_path / "a.txt").write_text("。\n".join(lines), encoding="utf-8")
    source = Source([tmp_path / "a.txt"])
    made = module.train_vocabulary(source, tmp_path / "out", "zh", kind="sentencepiece")
    assert made.vocab_size > 4_500 and made.unk_id not in made.encode(characters)
    with pytest.raises(VocabularyTooSmall, match="--vocab-size") as caught:
        module.train_vocabulary(
            source, tmp_path / "small", "zh", kind="sentencepiece", vocab_size=4_000, shrink=True
        )
    assert caught.value.smallest > 4_500


def test_no_more_characters_are_counted_than_matter(tmp_path: Path) -> None:
    source = Source([records(tmp_path / "a.jsonl", 3_000, 10)])
    assert not source.survey.whole
    assert [source.count_characters(n) for n in (15_000, 25_000, 99_000)] == [
        20_000,
        25_000,
        30_000,
    ]


def test_an_unfinished_vocabulary_is_resumed_for_the_same_text_alone(
    albertine: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    def prepare(text: Path, corpus: str) -> int:
        return albertine("prepare", text, "-o", tmp_path / corpus, "--kind", "wordpiece", "--workers", 1).code

    text = library(tmp_path / "text")
    for name in ("same", "another"):
        with monkeypatch.context() as patched:
            patched.setattr(preparing, "write_shard", killed)
            assert prepare(text, name) != 0 and (tmp_path / name / "tokenizer").is_dir()
    with monkeypatch.context() as patched:
        patched.setattr(build, "train_vocabulary", killed)
        assert prepare(text, "same") == 0
    other = "\n\n".join("\n".join(document(i, 9)).replace("river", "lagoon") for i in range(60))
    text.write_text(other, encoding="utf-8")
    assert prepare(text, "another") == prepare(text, "fresh") == 0
    assert content(tmp_path / "another") == content(tmp_path / "fresh")


def test_a_finished_corpus_is_reported(albertine: Command, tmp_path: Path) -> None:
    text = library(tmp_path / "text")
    os.utime(text, (1, 1))
    words = ("prepare", text, "-o", tmp_path / "corpus", "--tokenizer", "albertine-mini-en", "--workers", 1)
    first, again = albertine(*words), albertine(*words)
    assert first.code == again.code == 0
    assert "read as lines" in first.out and "nothing was done" not in first.out
    assert "read as" not in again.out and "nothing was done" in again.out


@pytest.mark.parametrize("option", [("--format", "lines"), ("--encoding", "big5"), ("--language", "en")])
def test_prune_takes_no_options_of_text_with_a_corpus(
    albertine: Command, tmp_path: Path, option: tuple[str, str]
) -> None:
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "manifest.json").write_text("{}")
    refused = albertine("prune", "albertine-mini-en", tmp_path / "corpus", "-o", tmp_path / "out", *option)
    assert (
        refused.code == 2 and option[0] in refused.err and "not for a corpus" in " ".join(refused.err.split())
    )


@pytest.mark.parametrize("kind", module.TRAINERS)
def test_a_vocabulary_is_of_the_kind_that_was_named(tmp_path: Path, kind: str) -> None:
    """XLNet's puts [CLS] behind the text, all others before it."""
    source = Source([library(tmp_path / "text")])
    made = module.train_vocabulary(source, tmp_path / "out", "en", kind=kind, vocab_size=300, shrink=True)
    ids = made("the river")["input_ids"]
    assert [i for i, token in enumerate(ids) if token == made.cls_id] == [
        len(ids) - 1 if kind == "xlnet" else 0
    ]
