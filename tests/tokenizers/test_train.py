"""Vocabularies made from text: the reference's layout, the same bytes every time, clear mistakes."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from sentencepiece import SentencePieceProcessor

from albertine.errors import TokenizerError
from albertine.text.cleaning import Cleaning
from albertine.tokenizers import train
from albertine.tokenizers.load import load_tokenizer
from albertine.tokenizers.sentencepiece_proto import PieceType
from albertine.tokenizers.train import USER_DEFINED, VocabularyTooLarge, train_sentencepiece, train_wordpiece
from tests.toy import demo_text


@pytest.fixture(scope="module")
def english(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return sentences(demo_text("en", tmp_path_factory.mktemp("en"), 300_000))


@pytest.fixture(scope="module")
def chinese(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return sentences(demo_text("zh", tmp_path_factory.mktemp("zh"), 300_000))


def sentences(folder: Path) -> list[str]:
    files = sorted(p for p in folder.rglob("*") if p.is_file())
    return [
        line.strip()
        for file in files
        for line in file.read_text(encoding="utf-8").split("\n")
        if line.strip()
    ]


def digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def elsewhere(code: str, lines: list[str], folder: Path) -> None:
    """Run training in a fresh process, where hash tables have another order."""
    (folder / "lines.json").write_text(json.dumps(lines))
    head = "import json, sys; from albertine.tokenizers.train import *; folder = sys.argv[1];"
    head += "lines = json.load(open(folder + '/lines.json'));"
    subprocess.run([sys.executable, "-c", head + code, str(folder)], check=True, timeout=120)


def test_sentencepiece_has_the_layout_of_albert(english: list[str], tmp_path: Path) -> None:
    seen: list[int] = []
    tokenizer = train_sentencepiece(iter(english), tmp_path / "a", 1200, progress=seen.append)
    assert seen[-1] == len(english)
    pieces = tokenizer.proto.pieces
    assert [p.text for p in pieces[:5]] == ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"]
    assert [p.type for p in pieces[:5]] == [PieceType.CONTROL, PieceType.UNKNOWN] + [PieceType.CONTROL] * 3
    assert tuple(p.text for p in pieces[5:13]) == USER_DEFINED
    assert all(p.type is PieceType.USER_DEFINED for p in pieces[5:13])
    assert all(p.type is PieceType.NORMAL for p in pieces[13:]) and tokenizer.vocab_size == 1200
    assert tokenizer.proto.model_type == 1 and tokenizer.proto.normalizer == "nmt_nfkc"
    assert tokenizer.proto.splits_at_spaces
    assert not any(c.isupper() for p in pieces[13:] for c in p.text), "text is cleaned before training"
    library = SentencePieceProcessor(model_proto=tokenizer.model)
    assert (library.pad_id(), library.unk_id(), library.bos_id(), library.eos_id()) == (0, 1, -1, -1)
    assert load_tokenizer(tmp_path / "a").fingerprint == tokenizer.fingerprint
    text = "The people of the town (and others) were there."
    assert tokenizer.decode(tokenizer.encode(text)) == text.lower()
    assert len(tokenizer.encode(text)) < len(text) / 2


def test_xlnets_vocabulary_is_cased_and_has_the_released_ids(
    english: list[str], shared_data: Path, tmp_path: Path
) -> None:
    made = train_sentencepiece(english, tmp_path / "cased", 600, cls_last=True)
    released = load_tokenizer(shared_data / "tokenizers" / "xlnet-en-32k")
    for tokenizer in (made, load_tokenizer(tmp_path / "cased")):
        assert tokenizer.cls_last and tokenizer.special_ids == released.special_ids
        for i in (*released.special_ids, released.piece_to_id("<eop>")):
            assert tokenizer.id_to_piece(i) == released.id_to_piece(i)
        assert tokenizer.decode(tokenizer.encode("The old man said No")) == "The old man said No"
        assert tokenizer("a", "b")["token_type_ids"][-1] == 2


def test_sentencepiece_is_the_same_in_another_process(english: list[str], tmp_path: Path) -> None:
    train_sentencepiece(iter(english[:1500]), tmp_path / "a", 600)
    elsewhere("train_sentencepiece(iter(lines), folder + '/b', 600)", english[:1500], tmp_path)
    assert digest(tmp_path / "a" / "spiece.model") == digest(tmp_path / "b" / "spiece.model")


def test_a_sample_of_the_sentences_is_the_same_sample_every_time(english: list[str], tmp_path: Path) -> None:
    for name in ("a", "b"):
        train_sentencepiece(iter(english), tmp_path / name, 300, sample=700)
    train_sentencepiece(iter(english), tmp_path / "all", 300)
    assert digest(tmp_path / "a" / "spiece.model") == digest(tmp_path / "b" / "spiece.model")
    assert digest(tmp_path / "a" / "spiece.model") != digest(tmp_path / "all" / "spiece.model")


def test_cleaning_settings_stay_with_the_vocabulary(english: list[str], tmp_path: Path) -> None:
    cased = train_sentencepiece(iter(english), tmp_path / "cased", 800, cleaning=Cleaning(lower=False))
    assert any(p.text.startswith("▁T") for p in cased.proto.pieces)
    again = load_tokenizer(tmp_path / "cased")
    assert again.encode("The Town") == cased.encode("The Town") != cased.encode("the town")


def test_long_paragraphs_are_not_left_out(tmp_path: Path) -> None:
    # alone this line exceeds what SentencePiece reads of one sentence, and it would train on nothing
    line = " ".join(["abc", "abd", "bcd"] * 2000)
    assert len(line) > train.MAX_SENTENCE_BYTES
    tokenizer = train_sentencepiece([line], tmp_path, 20)
    assert {"a", "b", "c", "d"} <= set("".join(p.text for p in tokenizer.proto.pieces))
    assert tokenizer.unk_id not in tokenizer.encode("abc bcd")


def test_wordpiece_for_english(english: list[str], tmp_path: Path) -> None:
    seen: list[int] = []
    tokenizer = train_wordpiece(iter(english), tmp_path, 1500, progress=seen.append)
    pieces = tokenizer.pieces
    assert pieces[:5] == ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]") and len(pieces) == 1500
    assert pieces[5] == "e" and seen[-1] == len(english)
    assert "##ing" in pieces and "the" in pieces and not any(p[-1].isupper() for p in pieces[5:])
    ids = tokenizer.encode(" ".join(english[:200]))
    assert ids.count(tokenizer.unk_id) < len(ids) / 500
    assert (tmp_path / "vocab.txt").read_text(encoding="utf-8").split("\n")[:-1] == list(pieces)


def test_wordpiece_for_chinese(chinese: list[str], tmp_path: Path) -> None:
    with pytest.raises(VocabularyTooLarge) as caught:
        train_wordpiece(iter(chinese), tmp_path, 100_000)
    size = caught.value.largest
    assert str(size) in str(caught.value) and "--vocab-size" in str(caught.value)
    tokenizer = train_wordpiece(iter(chinese), tmp_path, size)
    assert tokenizer.vocab_size == size
    text = "".join(chinese)
    han = [p for p in tokenizer.pieces if "\u4e00" <= p <= "\u9fff"]
    counts = [text.count(p) for p in han]
    assert len(han) > 1000 and counts == sorted(counts, reverse=True), "characters stand by frequency"
    assert not any(p.startswith("##") and "\u4e00" <= p[2] <= "\u9fff" for p in tokenizer.pieces)
    ids = tokenizer.encode("".join(chinese[:100]))
    assert ids.count(tokenizer.unk_id) < len(ids) / 500


def test_wordpiece_is_the_same_in_another_process(
    english: list[str], chinese: list[str], tmp_path: Path
) -> None:
    mixed = [*english[:1000], *chinese[:300]]
    train_wordpiece(iter(mixed), tmp_path / "a", 2500, character_coverage=0.995)
    elsewhere("train_wordpiece(iter(lines), folder + '/b', 2500, character_coverage=0.995)", mixed, tmp_path)
    assert (tmp_path / "a" / "vocab.txt").read_text() == (tmp_path / "b" / "vocab.txt").read_text()


def test_rare_words_are_dropped_when_there_are_too_many(
    english: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(train, "MAX_WORDS", 2000)
    monkeypatch.setattr(train, "MAX_TRAINER_WORDS", 5000)
    tokenizer = train_wordpiece(iter(english), tmp_path, 600)
    assert "the" in tokenizer.pieces and tokenizer.vocab_size == 600


@pytest.mark.parametrize("trainer", [train_sentencepiece, train_wordpiece])
@pytest.mark.parametrize("text", [[], ["", "  \t", "\u3000"]])
def test_no_text_is_an_error(trainer: object, text: list[str], tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match="no text"):
        trainer(iter(text), tmp_path / "x", 100)  # type: ignore[operator]
    assert not (tmp_path / "x").exists()


def test_sizes_that_cannot_be_are_errors_that_name_what_can(english: list[str], tmp_path: Path) -> None:
    few = english[:300]
    with pytest.raises(VocabularyTooLarge) as caught:
        train_sentencepiece(iter(few), tmp_path / "a", 90_000)
    assert (
        train_sentencepiece(iter(few), tmp_path / "a", caught.value.largest).vocab_size
        == caught.value.largest
    )
    with pytest.raises(TokenizerError, match=r"too small: the characters of the text take \d+") as small:
        train_sentencepiece(iter(few), tmp_path / "b", 20)
    assert str(small.value).split(". ")[-1].startswith("Set vocab_size (--vocab-size) to at least ")
    with pytest.raises(TokenizerError, match=r"take (\d+)\. Set vocab_size \(--vocab-size\) to at least \1$"):
        train_wordpiece(iter(few), tmp_path / "b", 20)


def test_an_error_in_the_text_is_not_hidden(tmp_path: Path) -> None:
    def broken(error: BaseException) -> Iterator[str]:
        yield "some text"
        raise error

    for error in (TokenizerError("is damaged"), OSError("is damaged"), KeyboardInterrupt("is damaged")):
        for trainer in (train_sentencepiece, train_wordpiece):
            with pytest.raises(type(error), match="is damaged"):
                trainer(broken(error), tmp_path, 50)


def test_training_is_quiet(english: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    train_sentencepiece(iter(english[:500]), tmp_path / "s", 300)
    train_wordpiece(iter(english[:500]), tmp_path / "w", 300)
    captured = capfd.readouterr()
    assert captured.out == captured.err == ""
