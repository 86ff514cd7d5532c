"""A copy probe: a passage, then the same passage again with one word hidden. Can the model look it up?

To find the place that matches and to take what stands there is what extractive reading needs. The same word
is asked for without the first copy as well: the difference is looking up, the rest is knowing the language.
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
    """Shares of words right, all their pieces, with and without the first copy; the standard error of the
    first; how many words."""

    right: float
    without_copy: float
    standard_error: float
    words: int


def score_copying(
    model: Model, tokenizer: Tokenizer, passages: Sequence[Cloze], *, max_length: int
) -> CopyScore | None:
    """Judge a model with a masked-LM head, one word a passage.

    A model with a sentence head is shown [CLS] A [SEP] A [SEP], one without [CLS] A A [SEP]. Of a passage
    that does not go twice into `max_length` the beginning is taken. None where no word fits.
    """
    twice: list[MaskedInput] = []
    once: list[MaskedInput] = []
    paired = model.sentence is not None
    room = (max_length - (3 if paired else 2)) // 2
    for number, passage in enumerate(passages):
        ids, places = _hidden(tokenizer, passage, number, room)
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
        np.array([bool(a.right.all()) for a in score_masked_tokens(model, questions)])
        for questions in (twice, once)
    )
    error = math.sqrt(float(with_copy.var()) / len(with_copy))
    return CopyScore(float(with_copy.mean()), float(alone.mean()), error, len(with_copy))


def _hidden(tokenizer: Tokenizer, passage: Cloze, number: int, room: int) -> tuple[list[int], list[int]]:
    """The beginning of a passage, and the places of the pieces of a word in it."""
    text = passage.text
    words = [word.span() for word in WORD.finditer(text)]
    ids, owner = tokenize_cloze(tokenizer, Cloze(text, tuple(words)))
    ids, owner = ids[:room], owner[:room]
    # The last word may have been cut off in its middle.
    whole = sorted(set(owner) - {NONE, owner[-1] if owner else NONE})
    if not whole:
        return ids, []
    word = whole[int(generator(SEED, "copied word", number).integers(len(whole)))]
    return ids, [i for i, own in enumerate(owner) if own == word]
