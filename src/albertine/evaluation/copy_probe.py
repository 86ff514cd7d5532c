"""A copy probe: a passage, then the same passage again with one word masked.

Extractive question answering requires finding the matching position and copying its token. The same word is
also predicted without the first copy: the difference in accuracy is due to copying.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from albertine.core.randomness import generator
from albertine.evaluation.cloze import NONE, SEED, WORD, Cloze, tokenize_cloze
from albertine.inference.likelihood import MaskedInput, score_masked_tokens
from albertine.model.model import Model
from albertine.tokenizers.base import Tokenizer


@dataclass(frozen=True)
class CopyScore:
    """Shares of words with all tokens right, with and without the first copy; the standard error of the
    former; the number of words."""

    right: float
    without_copy: float
    standard_error: float
    words: int


def score_copying(
    model: Model, tokenizer: Tokenizer, passages: Sequence[Cloze], *, max_length: int
) -> CopyScore | None:
    """Score a model with a masked-LM head, one word per passage; None where no word fits.

    The input is [CLS] A [SEP] A [SEP] for a model with a sentence head, else [CLS] A A [SEP]. A passage that
    does not fit twice into `max_length` is truncated.
    """
    twice: list[MaskedInput] = []
    once: list[MaskedInput] = []
    paired = model.sentence is not None
    room = (max_length - (3 if paired else 2)) // 2
    for number, passage in enumerate(passages):
        ids, places = _masked_word(tokenizer, passage, number, room)
        if not places:
            continue
        masked, labels = list(ids), [ids[i] for i in places]
        for place in places:
            masked[place] = tokenizer.mask_id
        row, types = tokenizer.layout(ids, masked) if paired else tokenizer.layout([*ids, *masked])
        shift = len(ids) + (tokenizer.between if paired else 0) + (0 if tokenizer.cls_last else 1)
        twice.append(MaskedInput(row, types, [i + shift for i in places], labels))
        row, types = tokenizer.layout(masked)
        shift = 0 if tokenizer.cls_last else 1
        once.append(MaskedInput(row, types, [i + shift for i in places], labels))
    if not twice:
        return None
    with_copy, alone = (
        np.array([bool(a.right.all()) for a in score_masked_tokens(model, inputs)])
        for inputs in (twice, once)
    )
    error = math.sqrt(float(with_copy.var()) / len(with_copy))
    return CopyScore(float(with_copy.mean()), float(alone.mean()), error, len(with_copy))


def _masked_word(tokenizer: Tokenizer, passage: Cloze, number: int, room: int) -> tuple[list[int], list[int]]:
    """The first tokens of a passage, and the positions of the tokens of a word in it."""
    text = passage.text
    words = [word.span() for word in WORD.finditer(text)]
    ids, owner = tokenize_cloze(tokenizer, Cloze(text, tuple(words)))
    ids, owner = ids[:room], owner[:room]
    # The last word may be truncated.
    whole = sorted(set(owner) - {NONE, owner[-1] if owner else NONE})
    if not whole:
        return ids, []
    word = whole[int(generator(SEED, "copied word", number).integers(len(whole)))]
    return ids, [i for i, own in enumerate(owner) if own == word]
