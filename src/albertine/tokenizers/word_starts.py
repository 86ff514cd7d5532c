"""Word starts of Chinese sentences by the segmenter jieba (`albertine[zh]`), for whole-word masking.

Chinese vocabularies have one token per character, so tokens do not show words. jieba's own `initialize` is
not used: it stores a cache in the shared temporary folder and reads it with `marshal`, where another user may
have put anything.
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

# as in brightmart/albert_zh (create_pretraining_data.py)
MAX_WORD_CHARACTERS = 3


@lru_cache(maxsize=1)
def _segmenter() -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # jieba has invalid escapes and imports pkg_resources
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
    """Raise DataError if jieba is not installed."""
    _segmenter()


@lru_cache(maxsize=1 << 14)
def _separates_words(character: str) -> bool:
    """Whether BERT's pipeline splits words at a character: Chinese, white space or punctuation."""
    return (
        is_han(character)
        or character in string.punctuation + "\t\n\r"
        or unicodedata.category(character)[0] in "PZ"
    )


def zh_word_starts(
    sentence: str,
    offsets: Sequence[int] | npt.NDArray[np.integer[Any]],
    *,
    longest: int = MAX_WORD_CHARACTERS,
) -> npt.NDArray[np.bool_]:
    """Which tokens of a sentence begin a word.

    A token continues a word if its first character is inside one: the second of 北京, a `##` token of
    a foreign word. jieba splits foreign words at each letter outside ASCII (München, Москва); here they are
    one word. A Chinese word longer than `longest` is treated as single characters, because masking it whole
    leaves too little context.

    Args:
        sentence: the encoded text, unchanged.
        offsets: index of the first character of each token, non-decreasing.
        longest: maximum characters of a Chinese word.

    Returns:
        Boolean, (T,).

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
            begins[at] = at == 0 or _separates_words(sentence[at - 1]) or _separates_words(sentence[at])
        at = end
    begins[at:] = True
    starts = np.asarray(offsets, dtype=np.int64)
    marks: npt.NDArray[np.bool_] = begins[np.minimum(starts, len(sentence))]
    if marks.size:
        repeated = np.flatnonzero(starts[1:] == starts[:-1]) + 1
        marks[repeated] = False  # several tokens of one character (bytes) are one unit
    return marks
