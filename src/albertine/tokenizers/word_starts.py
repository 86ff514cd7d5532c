"""Chinese words: which tokens of a sentence begin a word, as whole-word masking needs to know.

A Chinese vocabulary has one token a character, so words come from a segmenter, jieba (`albertine[zh]`). Its
own `initialize` is avoided: it keeps a cache in the shared temporary folder and reads it back with
`marshal`, where another user may have put anything.
"""

from __future__ import annotations

import logging
import string
import unicodedata
import warnings
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from albertine.errors import DataError
from albertine.text.cleaning import is_han

# brightmart/albert_zh masks words of at most three characters whole (create_pretraining_data.py)
LONGEST_WORD = 3


@lru_cache(maxsize=1)
def _segmenter() -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes and pkg_resources in jieba itself
            import jieba
    except ImportError as error:
        raise DataError(
            "Chinese words need the `jieba` package, which is not installed",
            remedy="pip install 'albertine[zh]', or prepare with words from pieces",
        ) from error
    jieba.setLogLevel(logging.WARNING)
    segmenter = jieba.Tokenizer()
    segmenter.FREQ, segmenter.total = segmenter.gen_pfdict(segmenter.get_dict_file())
    segmenter.initialized = True
    return segmenter


def check_segmenter() -> None:
    """Raises DataError: jieba is not installed."""
    _segmenter()


@lru_cache(maxsize=1 << 14)
def _parts_words(character: str) -> bool:
    """Whether a character is a word alone or stands between words, in BERT's pipeline: a Chinese one, white
    space or punctuation."""
    return (
        is_han(character)
        or character in string.punctuation + "\t\n\r"
        or unicodedata.category(character)[0] in "PZ"
    )


def zh_word_starts(
    sentence: str, offsets: Sequence[int] | npt.NDArray[np.integer[Any]], *, longest: int = LONGEST_WORD
) -> npt.NDArray[np.bool_]:
    """Which tokens of a sentence begin a word.

    A token continues a word if the character it begins with stands inside one: the second character of 北京,
    a `##` piece of a foreign word. The segmenter cuts foreign words at each letter outside ASCII (München,
    Москва); here they are whole. A Chinese word longer than `longest` counts as single characters, because
    masking it whole leaves too little to guess it from.

    Args:
        sentence: the text that was encoded, unchanged.
        offsets: for each token, the character at which it begins, never decreasing.
        longest: longest Chinese word, in characters, that is kept whole.

    Returns:
        One boolean for each token.

    Raises:
        DataError: jieba is not installed.
    """
    begins = np.zeros(len(sentence) + 1, dtype=np.bool_)
    at = 0
    for word in _segmenter().cut(sentence):
        end = at + len(word)
        if len(word) > longest and any(map(is_han, word)):
            begins[at:end] = True
        else:
            begins[at] = at == 0 or _parts_words(sentence[at - 1]) or _parts_words(sentence[at])
        at = end
    begins[at:] = True
    starts = np.asarray(offsets, dtype=np.int64)
    marks: npt.NDArray[np.bool_] = begins[np.minimum(starts, len(sentence))]
    if marks.size:
        repeated = np.flatnonzero(starts[1:] == starts[:-1]) + 1
        marks[repeated] = False  # several tokens for one character (byte pieces) are one unit
    return marks
