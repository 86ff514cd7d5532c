"""Entities to the tags of tokens and back, by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from albertine.inference.tags import entities_of
from albertine.tasks.encoded import IGNORED
from albertine.tasks.examples import Example
from albertine.tasks.tag import Tag, tags_for
from albertine.text.tokenizer import Spans
from albertine.text.wordpiece import WordPieceTokenizer

SPANS = Spans([7, 7, 7, 7], [0, 3, 5, 8], [3, 5, 8, 8])
"""Four tokens that stand end to end, the last for nothing visible."""


def test_a_token_is_inside_if_it_shares_a_character() -> None:
    assert tags_for(SPANS, [("x", 3, 5)]) == ["O", "B-x", "O", "O"]
    assert tags_for(SPANS, [("x", 2, 6)], "bioes") == ["B-x", "I-x", "E-x", "O"]


def test_of_overlapping_entities_the_first_counts_and_of_those_the_longest() -> None:
    short, long, later = ("short", 0, 3), ("long", 0, 5), ("later", 3, 8)
    for given in ([short, long, later], [later, long, short]):
        assert tags_for(SPANS, given) == ["B-long", "I-long", "O", "O"]
    assert tags_for(SPANS, [later, short]) == ["B-short", "B-later", "I-later", "O"]


def test_an_entity_reaches_to_the_end_of_its_last_token() -> None:
    assert entities_of(SPANS, ["O", "B-x", "I-x", "I-x"]) == [("x", 3, 8)]
    assert entities_of(SPANS, ["B-x", "O", "O", "B-y"]) == [("x", 0, 3)]


def test_how_sure_of_an_entity_is_told_by_its_own_tokens() -> None:
    chances = np.array([0.5, 0.6, 0.7, 0.9, 0.95, 0.5])  # [CLS], four tokens, [SEP]
    logits = np.log(np.stack([chances, 0.7 * (1 - chances), 0.3 * (1 - chances)], axis=-1))
    data: Any = SimpleNamespace(examples=[SimpleNamespace(spans=SPANS, lead=1)], ids=[range(6)])
    (found,) = Tag(("O", "B-x", "I-x"), 16).sureness(logits, data, [[("x", 3, 8)]])
    assert found == pytest.approx([0.8])  # tokens 1 and 2: .7 and .9; shifted by [CLS] it would be .65


def test_tags_of_a_stranger_may_lack_the_o_and_the_b() -> None:
    tokenizer = WordPieceTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "old", "man"])
    asked, labelled = (Example("0", "old man", None, told, "") for told in (None, [("X", 0, 7)]))
    speech = Tag(("NOUN", "VERB"), 16).encode([asked], tokenizer)
    assert speech.targets is None and len(speech.ids[0]) == 4
    (inside,) = Tag(("O", "I-X"), 16).encode([labelled], tokenizer).targets or []
    assert inside.tolist() == [IGNORED, IGNORED, 1, IGNORED]  # [CLS], B-X that it has not, I-X, [SEP]
