"""A cloze test that compares models of different vocabularies: nats per character of masked words.

Passages and words are chosen on the characters of the text, independently of any tokenizer. Then all tokens
of the chosen words are masked at once, and the sum of -log p over these tokens is divided by the number of
characters of the words, which is the same for every vocabulary.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from albertine.core.randomness import generator, permutation
from albertine.errors import DataError
from albertine.inference.likelihood import MaskedInput, score_masked_tokens
from albertine.model.model import Model
from albertine.tokenizers.base import Spans, Tokenizer

PASSAGES = 512
SEED = 1
"""Seed of all random choices, so that every model has the same passages and words."""
SHARE = 0.15
WIDTH, HAN_WIDTH, LEAST = 240, 4, 80
"""Width of a passage, where a Chinese character counts 4 and any other 1, so that both are some 60 tokens;
the rest of a document is a passage if it has at least the width `LEAST`."""
LONGEST_TEXT = 200_000  # characters of a document that are used
NONE = -1

_HAN = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
WORD = re.compile(rf"[{_HAN}]|[^\W{_HAN}]+(?:['’][^\W{_HAN}]+)*")
"""A word: a run of letters and digits, or one Chinese character."""


@dataclass(frozen=True)
class Cloze:
    """A text and the words in it to predict: characters `start` to `end` (exclusive), in order."""

    text: str
    spans: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class ClozeScore:
    """Scores of the masked words; the field names are keys of `albertine score --json`.

    Attributes:
        nats_per_character: comparable between vocabularies. unigram_nats_per_character: of a unigram model.
            nats_per_piece: mean over the tokens.
        piece_accuracy, span_accuracy: shares of correct tokens and of entirely correct words.
        unknown: share of [UNK] among the masked tokens, which are easy to predict.
        spans, pieces, characters: numbers of words, tokens and characters.
    """

    nats_per_character: float
    unigram_nats_per_character: float
    nats_per_piece: float
    piece_accuracy: float
    span_accuracy: float
    unknown: float
    spans: int
    pieces: int
    characters: int


def choose_passages(texts: Sequence[str], *, count: int = PASSAGES) -> list[Cloze]:
    """Random passages of texts, with one word in seven to predict.

    Raises:
        DataError: the texts contain no word.
    """
    documents = [texts[i] for i in np.sort(permutation(len(texts), SEED, "cloze documents")[:count])]
    cut = [piece for document in documents for piece in _cut(document[:LONGEST_TEXT])]
    # Where all documents are short, such as lines, each is a passage.
    cut = cut or [document.strip() for document in documents if WORD.search(document)]
    chosen = np.sort(permutation(len(cut), SEED, "cloze passages")[:count])
    passages = [Cloze(cut[i], _spans(cut[i], number)) for number, i in enumerate(chosen.tolist())]
    if not passages:
        raise DataError("the held-out text has no word to mask", remedy="Name a text with --texts")
    return passages


def _cut(text: str) -> Iterator[str]:
    """Passages of whole words, without white space around them."""
    words = list(WORD.finditer(text))
    start, width = 0, 0
    for word, after in zip(words, [*words[1:], None], strict=False):
        end = after.start() if after else len(text)
        width += HAN_WIDTH if end and _is_han(word[0]) else end - word.start()
        if (after is None and width >= LEAST) or width >= WIDTH:
            yield text[start:end].strip()
            start, width = end, 0


def _is_han(word: str) -> bool:
    return len(word) == 1 and re.match(f"[{_HAN}]", word) is not None


def _spans(text: str, number: int) -> tuple[tuple[int, int], ...]:
    words = [word.span() for word in WORD.finditer(text)]
    wanted = max(1, round(SHARE * len(words)))
    chosen = generator(SEED, "cloze words", number).permutation(len(words))[:wanted]
    return tuple(words[i] for i in np.sort(chosen))


def score_cloze(
    model: Model,
    tokenizer: Tokenizer,
    passages: Sequence[Cloze],
    unigram: NDArray[np.float64],
    *,
    max_length: int,
) -> ClozeScore:
    """Score a model with a masked-LM head.

    Args:
        unigram: log-probability of every token by frequency, (V,).
        max_length: maximum tokens of a row. A longer passage is split into rows; all its words are scored.
    """
    inputs: list[MaskedInput] = []
    owners: list[tuple[int, ...]] = []  # for every masked position of a row, the index of its word
    first = 0
    for passage in passages:
        for row_input, own in _inputs(tokenizer, passage, max_length):
            inputs.append(row_input)
            owners.append(tuple(first + span for span in own))
        first += len(passage.spans)
    found = score_masked_tokens(model, inputs)
    owner = np.array([span for own in owners for span in own], dtype=np.int64)
    labels = np.array([label for row_input in inputs for label in row_input.labels], dtype=np.int64)
    logs = np.concatenate([a.log_probabilities for a in found])
    right = np.concatenate([a.right for a in found])
    wrong_words = np.bincount(owner[~right], minlength=first) > 0
    scored_words = np.bincount(owner, minlength=first) > 0
    characters = sum(end - start for passage in passages for start, end in passage.spans)
    return ClozeScore(
        nats_per_character=float(-logs.sum()) / characters,
        unigram_nats_per_character=float(-unigram[labels].sum()) / characters,
        nats_per_piece=float(-logs.mean()),
        piece_accuracy=float(right.mean()),
        span_accuracy=float((scored_words & ~wrong_words).sum() / scored_words.sum()),
        unknown=float((labels == tokenizer.unk_id).mean()),
        spans=first,
        pieces=len(labels),
        characters=characters,
    )


def _inputs(
    tokenizer: Tokenizer, passage: Cloze, max_length: int
) -> Iterator[tuple[MaskedInput, tuple[int, ...]]]:
    """The rows of a passage, as few as possible, and the word of every masked position."""
    ids, owner = tokenize_cloze(tokenizer, passage)
    room = max_length - 2
    size = -(-len(ids) // -(-len(ids) // room)) if ids else room
    start = 0
    while start < len(ids):
        end = min(start + size, len(ids))
        whole = end
        while start < whole < len(ids) and owner[whole] != NONE and owner[whole] == owner[whole - 1]:
            whole -= 1  # a word is masked as a whole
        end = whole if whole > start else end
        places = [i for i in range(start, end) if owner[i] != NONE]
        if places:
            masked = [tokenizer.mask_id if owner[i] != NONE else ids[i] for i in range(start, end)]
            row, types = tokenizer.layout(masked)
            shift = (0 if tokenizer.cls_last else 1) - start
            row_input = MaskedInput(row, types, [i + shift for i in places], [ids[i] for i in places])
            yield row_input, tuple(owner[i] for i in places)
        start = end


def tokenize_cloze(tokenizer: Tokenizer, passage: Cloze) -> tuple[list[int], list[int]]:
    """The tokens of a passage, and for each token the index of its word to predict, or -1.

    Where a token crosses the border of such a word, the text is split at these borders and its parts are
    tokenized separately, so that every token belongs to one word or to none.
    """
    spans = tokenizer.encode_spans(passage.text)
    owner = _owners(spans, passage)
    if owner is not None:
        return spans.ids, owner
    ids: list[int] = []
    owner = []
    borders = [0, *(place for span in passage.spans for place in span), len(passage.text)]
    for number, (start, end) in enumerate(pairwise(borders)):
        part = tokenizer.encode_spans(passage.text[start:end])
        inside = bool(start) and not passage.text[start - 1].isspace()
        # Drop the word-boundary token that the tokenizer adds at the start of a part inside a word.
        skip = 1 if inside and part.ids and part.starts[0] == part.ends[0] else 0
        ids += part.ids[skip:]
        owner += [number // 2 if number % 2 else NONE] * (len(part.ids) - skip)
    return ids, owner


def _owners(spans: Spans, passage: Cloze) -> list[int] | None:
    """The word of every token; None where a token crosses a border."""
    owner = [NONE] * len(spans.ids)
    k = 0
    for i, (start, end) in enumerate(zip(spans.starts, spans.ends, strict=True)):
        covered = passage.text[start:end]
        start, end = end - len(covered.lstrip()), start + len(covered.rstrip())
        if start >= end:
            continue
        while k < len(passage.spans) and passage.spans[k][1] <= start:
            k += 1
        if k < len(passage.spans) and passage.spans[k][0] < end:
            if start < passage.spans[k][0] or end > passage.spans[k][1]:
                return None
            owner[i] = k
    for i in range(len(owner) - 1):
        # A separate word-boundary token belongs to the word after it.
        if spans.starts[i] == spans.ends[i] and owner[i + 1] not in (NONE, owner[i - 1] if i else NONE):
            owner[i] = owner[i + 1]
    return owner
