"""Overlapping windows over long texts, and over long passages with a question.

With a question: [CLS] question [SEP] part of the passage [SEP], or XLNet's part [SEP] question [SEP] [CLS],
as in the reference code. The predictions of a token come from the window with the most context around it
(google-research/albert, `squad_utils.py`, `_check_is_max_context`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from albertine.errors import SettingsError
from albertine.tokenizers.base import Tokenizer

Ids = NDArray[np.int32]
Row = tuple[Ids, NDArray[np.int8]]
"""Token and segment ids."""
QUESTION = 64
"""Maximum tokens of a question, as in BERT's and ALBERT's code."""
LEAST_PASSAGE = 4
"""Minimum tokens of a passage in a row."""


@dataclass(frozen=True)
class WindowSettings:
    """Sizes in tokens of windows and answers; the defaults are those of BERT's and ALBERT's code.

    Attributes:
        max_length: of a window, question and special tokens included. stride: from one window to the next.
        question: maximum of a question, which is truncated. longest: maximum of an answer.
        best: how many of the most probable spans are kept.
    """

    max_length: int = 384
    stride: int = 128
    question: int = QUESTION
    longest: int = 30
    best: int = 20


def question_room(max_length: int, wanted: int = QUESTION) -> int:
    """Maximum tokens of a question in rows of `max_length`: `wanted`, or half of the row where that would
    leave the passage less than `LEAST_PASSAGE`."""
    return wanted if max_length - wanted - 3 >= LEAST_PASSAGE else min(wanted, max_length // 2)


class PassageTokens(NamedTuple):
    """A passage's tokens, and the characters of each: from `starts` to `ends` (exclusive)."""

    ids: Ids
    starts: Ids
    ends: Ids

    @classmethod
    def of(cls, tokenizer: Tokenizer, text: str) -> PassageTokens:
        """The tokens of a text."""
        return cls(*(np.array(part, dtype=np.int32) for part in tokenizer.encode_spans(text)))


class Window(NamedTuple):
    """The part of a passage in a row: `size` tokens from token `first` on, at row positions from `offset`
    on."""

    first: int
    offset: int
    size: int


def windows_of(
    question: int, total: int, settings: WindowSettings, *, cls_last: bool = False, between: int = 1
) -> list[Window]:
    """The windows of a passage of `total` tokens with a question of `question` tokens, a stride apart, or
    half a window where that is less.

    Args:
        cls_last: the passage is before the question. between: separators between the two.

    Raises:
        SettingsError: the question leaves no room for the passage.
    """
    room = settings.max_length - question - 2 - between
    if room < LEAST_PASSAGE:
        raise SettingsError(
            f"a question of {question} tokens leaves no room for its passage in {settings.max_length}",
            remedy="Raise task.max_length, or lower task.answer.question or task.target_length",
        )
    stride = min(settings.stride, max(1, room // 2))
    return _overlapping(total, room, stride, 0 if cls_last else question + 1 + between)


def text_windows(total: int, max_length: int, lead: int) -> list[Window]:
    """The windows of a text of `total` tokens in rows of `max_length`, half a window apart; one window where
    the text fits.

    Args:
        lead: how many of the two special tokens of a row are before its text.
    """
    room = max_length - 2
    return _overlapping(total, room, max(1, room // 2), lead)


def _overlapping(total: int, room: int, stride: int, offset: int) -> list[Window]:
    last = max(0, -(-(total - room) // stride))
    return [Window(number * stride, offset, min(room, total - number * stride)) for number in range(last + 1)]


def rows_of(
    tokenizer: Tokenizer, question: Sequence[int], passage: PassageTokens, settings: WindowSettings
) -> tuple[list[Window], list[Row]]:
    """The windows and their rows. Raises as `windows_of`."""
    kept, cls, sep = question[: settings.question], tokenizer.cls_id, tokenizer.sep_id
    between, last = tokenizer.between, tokenizer.cls_last
    windows = windows_of(len(kept), len(passage.ids), settings, cls_last=last, between=between)
    edges = ([], [sep, *kept, sep, cls]) if last else ([cls, *kept, *[sep] * between], [sep])
    begin, end = (np.array(ids, dtype=np.int32) for ids in edges)
    rows = []
    for window in windows:
        ids = np.concatenate([begin, passage.ids[window.first : window.first + window.size], end])
        sizes: tuple[int, ...] = (len(begin), window.size + 1)
        if last:
            sizes = (window.size + 1, len(kept) + 1, 1)
        elif not tokenizer.segments:
            sizes = (len(ids),)
        rows.append((ids, _types(sizes)))
    return windows, rows


@lru_cache(maxsize=1 << 12)
def _types(sizes: tuple[int, ...]) -> NDArray[np.int8]:
    # Rows of the same shape share one array, so it is read-only.
    types = np.repeat(np.arange(len(sizes), dtype=np.int8), sizes)
    types.flags.writeable = False
    return types


def owners(windows: Sequence[Window], total: int) -> NDArray[np.int32]:
    """For every token of the passage the window in which the smaller of its two contexts is largest."""
    owner = np.zeros(total, dtype=np.int32)
    if len(windows) == 1:
        return owner
    widest = np.full(total, -1.0)
    for number, window in enumerate(windows):
        place = np.arange(window.size)
        context = np.minimum(place, window.size - 1 - place) + 0.01 * window.size
        shown = slice(window.first, window.first + window.size)
        wider = context > widest[shown]
        owner[shown][wider], widest[shown][wider] = number, context[wider]
    return owner
