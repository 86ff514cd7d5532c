"""Slow, obvious renderings of what the tokenizers must do, and strings to try them on."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from typing import Any

import numpy as np

SPACE = "▁"


def sentencepiece_ids(
    processor: Any, text: str, *, lower: bool = True, replace_quotes: bool = False
) -> list[int]:
    """Google's pipeline, a whole text at once: preprocess_text, encode_pieces, PieceToId."""
    text = " ".join(text.strip().split())
    if replace_quotes:
        text = text.replace("``", '"').replace("''", '"')
    text = unicodedata.normalize("NFKD", text)
    text = "".join([c for c in text if not unicodedata.combining(c)])
    if lower:
        text = text.lower()
    pieces: list[str] = []
    for piece in processor.encode(text, out_type=str):
        if len(piece) > 1 and piece[-1] == "," and piece[-2].isdigit():
            shorter = processor.encode(piece[:-1].replace(SPACE, ""), out_type=str)
            if piece[0] != SPACE and shorter[0][0] == SPACE:
                if len(shorter[0]) == 1:
                    shorter = shorter[1:]
                else:
                    shorter[0] = shorter[0][1:]
            pieces += [*shorter, ","]
        else:
            pieces.append(piece)
    return [processor.piece_to_id(piece) for piece in pieces]


def bert_words(text: str, *, lower: bool = True, chinese: bool = True) -> list[str]:
    """Google's BasicTokenizer."""
    cleaned = ""
    for c in text:
        if ord(c) in (0, 0xFFFD) or (unicodedata.category(c) in ("Cc", "Cf") and c not in "\t\n\r"):
            continue
        if c in " \t\n\r" or unicodedata.category(c) == "Zs":
            cleaned += " "
        elif chinese and _is_chinese(ord(c)):
            cleaned += f" {c} "
        else:
            cleaned += c
    words: list[str] = []
    for word in cleaned.split():
        if lower:
            word = unicodedata.normalize("NFD", word.lower())
            word = "".join(c for c in word if unicodedata.category(c) != "Mn")
        current = ""
        for c in word:
            if _is_punctuation(c):
                words += [current, c]
                current = ""
            else:
                current += c
        words.append(current)
    return [word for word in words if word]


def wordpiece_ids(vocabulary: dict[str, int], words: list[str], longest: int = 100) -> list[int]:
    """Longest match first; a word with a part that nothing matches is unknown."""
    ids: list[int] = []
    for word in words:
        found: list[int] = []
        start = 0
        while start < len(word) <= longest:
            for end in range(len(word), start, -1):
                piece = ("##" if start else "") + word[start:end]
                if piece in vocabulary:
                    found.append(vocabulary[piece])
                    start = end
                    break
            else:
                break
        ids += found if start == len(word) else [vocabulary["[UNK]"]]
    return ids


def _is_chinese(code: int) -> bool:
    blocks = [
        (0x4E00, 0x9FFF),
        (0x3400, 0x4DBF),
        (0x20000, 0x2A6DF),
        (0x2A700, 0x2B73F),
        (0x2B740, 0x2B81F),
        (0x2B820, 0x2CEAF),
        (0xF900, 0xFAFF),
        (0x2F800, 0x2FA1F),
    ]
    return any(first <= code <= last for first, last in blocks)


def _is_punctuation(c: str) -> bool:
    code = ord(c)
    if 33 <= code <= 47 or 58 <= code <= 64 or 91 <= code <= 96 or 123 <= code <= 126:
        return True
    return unicodedata.category(c).startswith("P")


def _characters(first: int, last: int) -> list[str]:
    """Assigned characters of a block, as far as old tables know them."""
    old = unicodedata.ucd_3_2_0
    return [chr(code) for code in range(first, last + 1) if old.category(chr(code)) not in ("Cn", "Cs", "Co")]


def _ingredients() -> list[Callable[[np.random.Generator], str]]:
    """Makers of small bits of text of every awkward kind."""
    scripts = {
        "latin": _characters(0xC0, 0x24F),
        "greek": _characters(0x370, 0x3FF),
        "cyrillic": _characters(0x400, 0x4FF),
        "hebrew_arabic": _characters(0x590, 0x6FF),
        "indic": _characters(0x900, 0xD7F),
        "thai": _characters(0xE00, 0xE7F),
        "jamo": _characters(0x1100, 0x11FF),
        "phonetic": _characters(0x1D00, 0x1EFF),
        "greek_extended": _characters(0x1F00, 0x1FFF),
        "symbols": _characters(0x2010, 0x27BF),
        "kana": _characters(0x3041, 0x30FF),
        "han": [chr(code) for code in range(0x4E00, 0x9FA6)],
        "han_rare": [
            chr(c) for c in [*range(0x3400, 0x3500), *range(0x20000, 0x20100), *range(0x2F800, 0x2F900)]
        ],
        "hangul": [chr(code) for code in range(0xAC00, 0xD7A4)],
        "compatibility": _characters(0xF900, 0xFFEF),
        "combining": _characters(0x300, 0x36F),
        "emoji": [chr(code) for code in range(0x1F300, 0x1F600)] + ["\ufe0f", "\u200d"],
    }
    ascii_letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
    spaces = [" "] * 8 + list("\t\n\r\x0b\x0c\x1c\x1d\x1e\x1f\x85\xa0\u1680\u2003\u2028\u2029\u202f\u3000")
    controls = list("\x00\x01\x07\x08\x1b\x7f\x80\x9f\xad\u200b\u200e\u2060\ufeff\ufffd")
    words = [
        "the",
        "of",
        "and",
        "in",
        "was",
        "Albert's",
        "don't",
        "1,000",
        "2,000,000",
        "92000,",
        "3.14",
        "U.S.",
    ]
    words += ["[MASK]", "[CLS]", "<pad>", "▁", "''quoted``", "½", "ﬁ", "ΟΔΟΣ", "İ", "ẞ", "¨"]

    def letters(alphabet: str | list[str], most: int) -> Callable[[np.random.Generator], str]:
        return lambda rng: "".join(
            alphabet[i] for i in rng.integers(len(alphabet), size=rng.integers(1, most + 1))
        )

    english = letters(ascii_letters, 9)
    number = letters("0123456789,", 8)
    marks = letters("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~–—‘’“”£€。，、！？「」（）", 2)
    makers = [
        english,
        english,
        number,
        number,
        marks,
        letters(spaces, 3),
        letters(spaces, 1),
        letters(controls, 1),
    ]
    makers += [letters(characters, 4) for characters in scripts.values()]
    makers += [lambda rng: words[rng.integers(len(words))], lambda rng: words[rng.integers(5)] + " "]
    return makers


def random_strings(count: int, seed: int) -> list[str]:
    """Strings of up to some forty bits of all scripts, controls, marks, numbers and kinds of space."""
    rng = np.random.default_rng(seed)
    makers = _ingredients()
    strings = []
    for _ in range(count):
        few = rng.choice(len(makers), size=int(rng.integers(1, 6)))
        bits = [makers[few[i]](rng) for i in rng.integers(len(few), size=int(rng.integers(1, 12)))]
        strings.append(("" if rng.random() < 0.5 else " ").join(bits))
    return strings
