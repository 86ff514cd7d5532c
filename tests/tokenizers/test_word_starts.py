"""Chinese word starts."""

from __future__ import annotations

import builtins
import logging
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from albertine.errors import DataError
from albertine.text.cleaning import is_han
from albertine.tokenizers import word_starts
from albertine.tokenizers.word_starts import zh_word_starts
from albertine.tokenizers.wordpiece import WordPieceTokenizer

TEXT = "我来到北京清华大学，买了 iPhone12。"


@pytest.fixture
def jieba() -> None:
    pytest.importorskip("jieba")


def marked(sentence: str, offsets: list[int], **kw: int) -> str:
    starts = zh_word_starts(sentence, offsets, **kw)
    ends = [*offsets[1:], len(sentence)]
    return "".join(("|" if s else "") + sentence[a:b] for a, b, s in zip(offsets, ends, starts, strict=True))


def test_characters_continue_their_word(jieba: None) -> None:
    shown = marked(TEXT, list(range(len(TEXT))), longest=4)
    assert shown == "|我|来到|北京|清华大学|，|买|了| |iPhone12|。"


def test_longer_words_fall_apart_into_characters(jieba: None) -> None:
    assert "|清|华|大|学|" in marked(TEXT, list(range(len(TEXT))))
    assert "|北|京|" in marked(TEXT, list(range(len(TEXT))), longest=1)
    # a foreign word is no Chinese word, however long
    assert "|iPhone12" in marked(TEXT, list(range(len(TEXT))))


def test_tokens_may_be_longer_than_a_character_and_need_not_begin_at_the_start(jieba: None) -> None:
    at = TEXT.index("iPhone")
    assert (
        marked(TEXT, [0, 1, 3, at, at + 2, at + 6, len(TEXT) - 1])
        == "|我|来到|北京清华大学，买了 |iPhone12|。"
    )


@pytest.mark.parametrize(
    ("text", "begun"),
    [
        ("München的大学", "|m ##un ##chen |的 |大 学"),
        ("在Москва Привет", "|在 |м ##о ##с ##к ##в ##а |п ##р ##и ##в ##е ##т"),
        ("カタカナの本", "|カ ##タ ##カ ##ナ ##の |本"),
        ("é-é京", "|e |- |e |京"),
    ],
)
def test_foreign_words_are_whole_outside_ascii_too(jieba: None, text: str, begun: str) -> None:
    pieces = sorted({piece.lstrip("|") for piece in begun.split()})
    tokenizer = WordPieceTokenizer([*("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"), *pieces])
    ids, offsets = tokenizer.encode_with_offsets(text)
    starts = zh_word_starts(text, offsets)
    spelled = [tokenizer.id_to_piece(i) for i in ids]
    shown = [("|" if start else "") + piece for piece, start in zip(spelled, starts, strict=True)]
    assert " ".join(shown) == begun


def test_several_tokens_on_one_character_are_one_unit(jieba: None) -> None:
    assert zh_word_starts("龘字", [0, 0, 0, 1]).tolist() == [True, False, False, True]


def test_shapes_and_edges(jieba: None) -> None:
    assert zh_word_starts("", []).shape == (0,)
    assert zh_word_starts("北京", np.array([0, 1], dtype=np.int32)).dtype == np.bool_
    # an offset at the very end, as a tokenizer may give for an empty piece
    assert zh_word_starts("北京", [0, 1, 2]).tolist() == [True, False, True]


@pytest.mark.parametrize(
    "text", [TEXT, " 北 京 \u3000天安門\n", "a\ud800b", "𠀀𠀁字", "e\u0301 3.14 100%", "ｶﾀｶﾅひらがな"]
)
def test_words_joined_are_the_sentence(jieba: None, text: str) -> None:
    assert "".join(word_starts._segmenter().cut(text)) == text
    assert zh_word_starts(text, list(range(len(text))))[0]


def test_segmenting_is_quiet_and_leaves_no_file(
    jieba: None, tmp_path: Path, capfd: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    word_starts._segmenter.cache_clear()
    zh_word_starts("北京", [0, 1])
    assert capfd.readouterr() == ("", "")
    assert list(tmp_path.iterdir()) == []
    assert logging.getLogger("jieba").level >= logging.WARNING


def test_absence_of_jieba_names_what_to_install(monkeypatch: Any) -> None:
    real = builtins.__import__

    def refuse(name: str, *rest: Any, **kw: Any) -> Any:
        if name == "jieba":
            raise ImportError(name)
        return real(name, *rest, **kw)

    word_starts._segmenter.cache_clear()
    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(DataError, match=r"albertine\[zh\]"):
        zh_word_starts("北京", [0, 1])


def test_is_han() -> None:
    assert all(map(is_han, "中㐀豈𠀀\U00031350"))
    assert not any(map(is_han, "aあ。1ｱ\U000e0067\U0001f3f4"))
