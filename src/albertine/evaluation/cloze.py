"""A cloze test that compares models of different vocabularies: nats per character of hidden words.

The passages and the words to hide are chosen on the characters of the text, before any tokenizer sees it.
Then each model hides every piece of such a word, all of them at once, and pays -log p for each piece; the sum
is divided by the characters of the words, which are the same for every vocabulary.
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
"""Names all draws: everyone's passages and words are the same."""
SHARE = 0.15
WIDTH, HAN_WIDTH, LEAST = 240, 4, 80
"""Width of a passage, of which a Chinese character takes 4 and any other 1, so that either comes to some 60
tokens; what is left at the end of a document is a passage from `LEAST` on."""
LONGEST_TEXT = 200_000  # characters of a document that are looked at
NONE = -1

_HAN = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
WORD = re.compile(rf"[{_HAN}]|[^\W{_HAN}]+(?:['’][^\W{_HAN}]+)*")
"""A word as far as its characters tell: letters and digits between others, or one Chinese character."""


@dataclass(frozen=True)
class Cloze:
    """A text and the words in it that are to be guessed: characters `start` up to `end`, in order."""

    text: str
    spans: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class ClozeScore:
    """What a model makes of the hidden words.

    Attributes:
        nats_per_character: the figure that vocabularies share. unigram_nats_per_character: of guessing the
            pieces by their frequency. nats_per_piece: the same sum over the pieces.
        piece_accuracy, span_accuracy: share of pieces, and of whole words, that are right.
        unknown: share of the pieces that stand for what the vocabulary lacks, which are easy to guess.
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
    """Passages of texts, spread over them at random, with a word in seven to be guessed.

    Raises:
        DataError: the texts have no word.
    """
    documents = [texts[i] for i in np.sort(permutation(len(texts), SEED, "cloze documents")[:count])]
    cut = [piece for document in documents for piece in _cut(document[:LONGEST_TEXT])]
    # Of documents that are all short, such as lines, each is a passage.
    cut = cut or [document.strip() for document in documents if WORD.search(document)]
    chosen = np.sort(permutation(len(cut), SEED, "cloze passages")[:count])
    passages = [Cloze(cut[i], _spans(cut[i], number)) for number, i in enumerate(chosen.tolist())]
    if not passages:
        raise DataError("the held-out text has no word to hide", remedy="Name a text with --texts")
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
    """Judge a model with a masked-LM head.

    Args:
        unigram: log-probability of every piece by frequency, (V,).
        max_length: tokens the model reads at once. A longer passage is read in parts; every word of it is
            judged all the same.
    """
    questions: list[MaskedInput] = []
    owners: list[tuple[int, ...]] = []  # for every place of a question, which of all words
    first = 0
    for passage in passages:
        for question, own in _questions(tokenizer, passage, max_length):
            questions.append(question)
            owners.append(tuple(first + span for span in own))
        first += len(passage.spans)
    found = score_masked_tokens(model, questions)
    owner = np.array([span for own in owners for span in own], dtype=np.int64)
    labels = np.array([label for question in questions for label in question.labels], dtype=np.int64)
    logs = np.concatenate([a.log_probabilities for a in found])
    right = np.concatenate([a.right for a in found])
    wrong_words = np.bincount(owner[~right], minlength=first) > 0
    judged_words = np.bincount(owner, minlength=first) > 0
    characters = sum(end - start for passage in passages for start, end in passage.spans)
    return ClozeScore(
        nats_per_character=float(-logs.sum()) / characters,
        unigram_nats_per_character=float(-unigram[labels].sum()) / characters,
        nats_per_piece=float(-logs.mean()),
        piece_accuracy=float(right.mean()),
        span_accuracy=float((judged_words & ~wrong_words).sum() / judged_words.sum()),
        unknown=float((labels == tokenizer.unk_id).mean()),
        spans=first,
        pieces=len(labels),
        characters=characters,
    )


def _questions(
    tokenizer: Tokenizer, passage: Cloze, max_length: int
) -> Iterator[tuple[MaskedInput, tuple[int, ...]]]:
    """The passage in as few parts as its tokens need, and to which word every masked place belongs."""
    ids, owner = tokenize_cloze(tokenizer, passage)
    room = max_length - 2
    size = -(-len(ids) // -(-len(ids) // room)) if ids else room
    start = 0
    while start < len(ids):
        end = min(start + size, len(ids))
        whole = end
        while start < whole < len(ids) and owner[whole] != NONE and owner[whole] == owner[whole - 1]:
            whole -= 1  # a word is hidden as one
        end = whole if whole > start else end
        places = [i for i in range(start, end) if owner[i] != NONE]
        if places:
            masked = [tokenizer.mask_id if owner[i] != NONE else ids[i] for i in range(start, end)]
            row, types = tokenizer.layout(masked)
            shift = (0 if tokenizer.cls_last else 1) - start
            question = MaskedInput(row, types, [i + shift for i in places], [ids[i] for i in places])
            yield question, tuple(owner[i] for i in places)
        start = end


def tokenize_cloze(tokenizer: Tokenizer, passage: Cloze) -> tuple[list[int], list[int]]:
    """The tokens of a passage, and for each the word to be guessed that it is a piece of, or -1.

    Where a piece of the vocabulary reaches over the border of such a word, the text is cut at these borders
    and its parts are encoded by themselves, so that the pieces are those of the word's characters and no
    others.
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
        # In the middle of a text a vocabulary's mark for the beginning of a word would be invented.
        skip = 1 if inside and part.ids and part.starts[0] == part.ends[0] else 0
        ids += part.ids[skip:]
        owner += [number // 2 if number % 2 else NONE] * (len(part.ids) - skip)
    return ids, owner


def _owners(spans: Spans, passage: Cloze) -> list[int] | None:
    """The word of every token; None where one reaches over a border."""
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
        # A mark for the beginning of a word, by itself, is a piece of that word.
        if spans.starts[i] == spans.ends[i] and owner[i + 1] not in (NONE, owner[i - 1] if i else NONE):
            owner[i] = owner[i + 1]
    return owner
