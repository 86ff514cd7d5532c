"""Entities to the tags of tokens and back, by hand."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from albertine.inference.tags import entities_of, tags_of, typed
from albertine.inference.windows import Window
from albertine.interop.huggingface.folders import load_model
from albertine.tasks.encoded import IGNORED
from albertine.tasks.examples import Example
from albertine.tasks.finetune import save_tuned
from albertine.tasks.rescore import evaluate_run, open_run
from albertine.tasks.tag import Tag, TextInWindows, tags_for, windows_to_learn
from albertine.tokenizers.base import Spans
from albertine.tokenizers.load import load_tokenizer
from albertine.tokenizers.wordpiece import WordPieceTokenizer

SPANS = Spans([7, 7, 7, 7], [0, 3, 5, 8], [3, 5, 8, 8])
"""Four adjacent tokens, the last without visible characters."""


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


def test_the_probability_of_an_entity_is_that_of_its_own_tokens() -> None:
    chances = np.array([0.5, 0.6, 0.7, 0.9, 0.95, 0.5])  # [CLS], four tokens, [SEP]
    logits = np.log(np.stack([chances, 0.7 * (1 - chances), 0.3 * (1 - chances)], axis=-1))
    text = TextInWindows(None, SPANS, (Window(0, 1, 4),))
    data: Any = SimpleNamespace(examples=[text], ids=[range(6)], starts=np.array([0, 1]))
    (found,) = Tag(("O", "B-x", "I-x"), 16).entity_probabilities(logits, data, [[("x", 3, 8)]])
    assert found == pytest.approx([0.8])  # tokens 1 and 2: .7 and .9; shifted by [CLS] it would be .65


def test_tags_of_other_models_may_lack_the_o_and_the_b() -> None:
    tokenizer = WordPieceTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "old", "man"])
    unlabelled, labelled = (Example("0", "old man", None, label, "") for label in (None, [("X", 0, 7)]))
    speech = Tag(("NOUN", "VERB"), 16).encode([unlabelled], tokenizer)
    assert speech.targets is None and len(speech.ids[0]) == 4
    (inside,) = Tag(("O", "I-X"), 16).encode([labelled], tokenizer).targets or []
    assert inside.tolist() == [IGNORED, IGNORED, 1, IGNORED]  # [CLS], B-X that it has not, I-X, [SEP]


PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "she", "left", "the", "university", "of", "bonn"]
PIECES += ["in", "1990", ".", "##ed"]
BONN = "She left the University of Bonn in 1990."
BLANKS = "left \u200b\u2009 Bonn"


def words() -> WordPieceTokenizer:
    return WordPieceTokenizer(PIECES)


@pytest.mark.parametrize("learning", [False, True])
@pytest.mark.parametrize(
    ("text", "entities", "lost"),
    [
        (BONN, [("ORG", 13, 31), ("LOC", 27, 31)], "nested in or overlapping another"),
        (BONN, [("ORG", 13, 31), ("LOC", 22, 34)], "nested in or overlapping another"),
        (BONN, [("ORG", 27, 31), ("LOC", 27, 31)], "on the same characters as one of another type"),
        (BONN, [("ORG", 13, 31), ("DAY", 35, 37), ("YEAR", 37, 39)], "in one token with another"),
        (BONN, [("ORG", 13, 31), ("YEAR", 37, 39)], "that begin or end inside a token or at a blank"),
        (BONN, [("ORG", 13, 31), ("YEAR", 34, 39)], "that begin or end inside a token or at a blank"),
        (BLANKS, [("LOC", 8, 12), ("NO", 5, 6)], "of blank or invisible characters"),
    ],
)
def test_entities_that_tags_cannot_name_are_counted_with_the_first(
    text: str, entities: list[tuple[str, int, int]], lost: str, learning: bool
) -> None:
    example = Example("x", text, None, tuple(entities), "own.jsonl:7")
    family = Tag(tags_of(("DAY", "LOC", "NO", "ORG", "YEAR")), 16)
    data = (family.encode_to_learn if learning else family.encode)([example, example], words())
    counts = {what.split(",")[0]: count for count, what in data.lost}
    assert counts[f"entities {lost}"] == 2 and data.truncated == 0
    kind, begin, end = entities[-1]
    (what,) = (what for _, what in data.lost if lost in what)
    assert ("not learned" in what or "learned as whole tokens" in what) == learning
    assert ("always missed" in what) == (not learning or "begin or end" in what)
    assert what.endswith(f"(the first: {kind} `{text[begin:end]}` in own.jsonl:7)")


def test_entities_of_blanks_alone_teach_nothing() -> None:
    blank, plain = (Example("x", BLANKS, None, e, "f:1") for e in ((("NO", 5, 6),), ()))
    learned = Tag(tags_of(["NO"]), 16).encode_to_learn([blank, plain], words())
    assert [text.example for text in learned.examples] == [plain]
    assert [(n, what.split(",")[0]) for n, what in learned.lost] == [
        (1, "entities of blank or invisible characters"),
        (1, "texts left out"),
    ]
    assert len(Tag(tags_of(["NO"]), 16).encode([blank], words()).examples) == 1


@pytest.mark.parametrize("scheme", ["bio", "bioes"])
@pytest.mark.parametrize("length", [8, 9, 13, 64])
def test_a_long_text_is_read_whole_in_windows(scheme: Any, length: int) -> None:
    """The targets of all windows, each token in the window with the most context around it, are the labels of
    the file; a row has no more tokens than it may."""
    one = "She left the University of Bonn in 1990. "
    found = [(kind, a + i * len(one), b + i * len(one)) for i in range(5) for kind, a, b in [("ORG", 13, 31)]]
    texts = [Example("0", one * 5, None, tuple(found), ""), Example("1", "left", None, (), "")]
    texts.append(Example("2", one[:8], None, (("X", 4, 8),), ""))
    family = Tag(tags_of(["ORG", "X"], scheme), length)
    data = family.encode(texts, words())
    assert data.targets is not None and max(map(len, data.ids)) <= length and data.truncated == 0
    targets = np.concatenate(data.targets)
    assert len(targets) == sum(map(len, data.ids))
    logits = np.eye(len(family.labels), dtype=np.float32)[np.maximum(targets, 0)]
    assert family.answers(logits, data) == [[*e.label] for e in texts]
    assert [len(s) for s in family.entity_probabilities(logits, data, family.answers(logits, data))] == [
        5,
        0,
        1,
    ]
    apart = windows_to_learn(data)
    assert len(apart.examples) == len(data.ids) and apart.targets is not None
    for ids, target in zip(apart.ids, apart.targets, strict=True):
        assert len(ids) == len(target) and (target == IGNORED).sum() == 2
    assert (windows_to_learn(family.encode(texts[1:], words())).examples) == family.encode(
        texts[1:], words()
    ).examples


def test_tags_without_a_type_are_those_of_one() -> None:
    assert typed(("O", "B", "I")) == ("O", "B-_", "I-_")
    for others in (("O", "B-x", "I-x"), ("NOUN", "VERB"), ("B", "I"), ("O", "B", "NOUN"), ("O",)):
        assert typed(others) == others


def test_a_folder_whose_tags_name_no_type_is_scored_on_files_of_that_kind(
    pretrained: Path, tmp_path: Path
) -> None:
    """Catches: B and I counted as two classes."""
    family, tokenizer = Tag(("O", "B", "I"), 16), load_tokenizer(pretrained)
    model = family.build(load_model(pretrained), 0.0, 1)
    save_tuned(model, tokenizer, family, tmp_path / "theirs")
    (tmp_path / "a.conll").write_text("the O\nold B\nman I\nsaid B\n")
    task = {"kind": "entities", "test": tmp_path / "a.conll"}
    (judged,) = evaluate_run(open_run(tmp_path / "theirs", task=task), ["test"])
    assert judged.data.examples[0].example.label == (("_", 4, 11), ("_", 12, 16))
    assert {kind for kind, _, _ in judged.answers[0]} <= {"_"} and judged.scores.keys() == {"entity_f1"}
