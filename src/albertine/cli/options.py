"""Choices that several verbs offer."""

from __future__ import annotations

from enum import StrEnum


class Language(StrEnum):
    """Whose sentences and words; `auto` looks at the beginning of the text."""

    auto = "auto"
    en = "en"
    zh = "zh"


class VocabularyKind(StrEnum):
    """How a vocabulary cuts words."""

    sentencepiece = "sentencepiece"
    wordpiece = "wordpiece"


class Words(StrEnum):
    """Where a Chinese word ends: a piece is a word, or jieba says."""

    pieces = "pieces"
    jieba = "jieba"
