"""Masked words that are the same for every vocabulary, and the copy probe."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from albertine.errors import DataError
from albertine.evaluation import cloze, copy_probe
from albertine.evaluation.cloze import (
    NONE,
    WORD,
    Cloze,
    choose_passages,
    score_cloze,
    tokenize_cloze,
)
from albertine.evaluation.copy_probe import score_copying
from albertine.inference.likelihood import MaskedInput, TokenScores
from albertine.model.config import EncoderConfig
from albertine.model.model import Model
from albertine.model.sharing import SharingPlan
from albertine.text.documents import read_documents
from albertine.text.sentences import document_sentences
from albertine.tokenizers.base import Tokenizer
from albertine.tokenizers.load import load_tokenizer
from albertine.tokenizers.train import train_sentencepiece, train_wordpiece
from tests.toy import demo_text

Vocabularies = dict[str, Tokenizer]


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    folder = tmp_path_factory.mktemp("texts")
    found = {}
    for language in ("en", "zh"):
        documents = read_documents([demo_text(language, folder / language, 60_000)])
        found[language] = [" ".join(document.paragraphs) for document in documents]
    return found


@pytest.fixture(scope="module")
def vocabularies(tmp_path_factory: pytest.TempPathFactory) -> Vocabularies:
    folder = tmp_path_factory.mktemp("vocabularies")
    text = {language: demo_text(language, folder / language, 60_000) for language in ("en", "zh")}

    def sentences(language: Any) -> Any:
        return (s for d in read_documents([text[language]]) for s in document_sentences(d, language))

    train_sentencepiece(sentences("en"), folder / "small", vocab_size=300)
    train_sentencepiece(sentences("en"), folder / "large", vocab_size=900)
    train_wordpiece(sentences("en"), folder / "wordpiece", vocab_size=600)
    train_sentencepiece(sentences("zh"), folder / "chinese", vocab_size=2500)
    return {name: load_tokenizer(folder / name) for name in ("small", "large", "wordpiece", "chinese")}


def made(tokenizer: Tokenizer, **changes: Any) -> Model:
    settings = {
        "vocab_size": tokenizer.vocab_size,
        "embedding_size": 8,
        "hidden_size": 24,
        "num_attention_heads": 4,
        "intermediate_size": 40,
        "max_position_embeddings": 256,
        "initializer_range": 0.2,
        "plan": SharingPlan.shared(2),
    }
    return Model(EncoderConfig(**(settings | changes)), {"mlm", "sop"}).eval()


def even(tokenizer: Tokenizer) -> NDArray[np.float64]:
    return np.full(tokenizer.vocab_size, -np.log(tokenizer.vocab_size))


def test_words_are_those_of_the_characters() -> None:
    text = "She didn't say 北京 in 1984, did she? 漢字と"
    assert " ".join(WORD.findall(text)) == "She didn't say 北 京 in 1984 did she 漢 字 と"


def test_passages_are_chosen_without_a_vocabulary_and_alike(texts: dict[str, list[str]]) -> None:
    for language, width in (("en", 240), ("zh", 60)):
        passages = choose_passages(texts[language], count=50)
        assert passages == choose_passages(texts[language], count=50)
        assert len(passages) == 50 and len({p.text for p in passages}) > 45
        for passage in passages:
            assert len(passage.text) <= width + 60 and any(passage.text in t for t in texts[language])
            words = [w.span() for w in WORD.finditer(passage.text)]
            assert set(passage.spans) <= set(words)
            assert len(passage.spans) == max(1, round(0.15 * len(words)))
    short = choose_passages(["A line.", "...", "Another."])
    assert sorted(p.text for p in short) == ["A line.", "Another."] and all(p.spans for p in short)
    with pytest.raises(DataError, match="no word to mask"):
        choose_passages(["...", ""])


@pytest.mark.parametrize("name", ["small", "large", "wordpiece", "chinese"])
def test_the_tokens_of_a_word_cover_it_exactly(
    name: str, vocabularies: Vocabularies, texts: dict[str, list[str]]
) -> None:
    tokenizer = vocabularies[name]
    for passage in choose_passages(texts["zh" if name == "chinese" else "en"], count=40):
        ids, owner = tokenize_cloze(tokenizer, passage)
        assert set(owner) == {NONE, *range(len(passage.spans))}
        for number, (start, end) in enumerate(passage.spans):
            pieces = [token for token, own in zip(ids, owner, strict=True) if own == number]
            spelled = tokenizer.decode(pieces).replace(" ", "").lower()
            if tokenizer.unk_id not in pieces:
                assert spelled == passage.text[start:end].replace("’", "'").lower().replace(" ", "")


def test_a_token_across_the_border_is_split(vocabularies: Vocabularies) -> None:
    """A Chinese vocabulary has tokens of several characters, and one of these is predicted."""
    tokenizer, text = vocabularies["chinese"], "中华人民共和国劳动法规定劳动者依法享有权利"
    spans = tokenizer.encode_spans(text)
    long = next(i for i in range(len(spans.ids)) if spans.ends[i] - spans.starts[i] > 1)
    at = spans.starts[long] + 1
    ids, owner = tokenize_cloze(tokenizer, Cloze(text, ((at, at + 1),)))
    own = [token for token, o in zip(ids, owner, strict=True) if o == 0]
    assert tokenizer.decode(own).strip() == text[at]


@pytest.mark.parametrize("name", ["small", "large", "wordpiece"])
def test_no_character_is_lost_where_tokens_are_split(name: str, vocabularies: Vocabularies) -> None:
    """Words cut anywhere: the rest of a word begins with a token of its own, or with a mark alone."""
    tokenizer, text = vocabularies[name], "she asked whether the captain wanted another thing"
    for at in (i for i in range(1, len(text) - 1) if text[i - 1 : i + 2].isalpha()):
        ids, owner = tokenize_cloze(tokenizer, Cloze(text, ((at, at + 1),)))
        assert tokenizer.unk_id not in ids
        spelled = tokenizer.decode(ids).replace(" ", "").replace("##", "")
        assert spelled == text.replace(" ", "")
        own = [token for token, o in zip(ids, owner, strict=True) if o == 0]
        assert tokenizer.decode(own).strip().replace("##", "") == text[at]


def test_two_vocabularies_hide_the_same_characters(
    vocabularies: Vocabularies, texts: dict[str, list[str]]
) -> None:
    passages = choose_passages(texts["en"], count=30)
    scores = {}
    for name in ("small", "large", "wordpiece"):
        tokenizer = vocabularies[name]
        model = made(tokenizer, max_position_embeddings=64)
        # All weights 0: every piece costs ln V, whatever is read.
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.zero_()
        scores[name] = found = score_cloze(model, tokenizer, passages, even(tokenizer), max_length=24)
        assert found.nats_per_piece == pytest.approx(np.log(tokenizer.vocab_size), rel=1e-5)
        assert found.nats_per_character == pytest.approx(
            found.pieces * np.log(tokenizer.vocab_size) / found.characters, rel=1e-5
        )
        assert found.unigram_nats_per_character == pytest.approx(found.nats_per_character, rel=1e-5)
    expected = sum(end - start for p in passages for start, end in p.spans)
    assert {s.characters for s in scores.values()} == {expected}
    assert {s.spans for s in scores.values()} == {sum(len(p.spans) for p in passages)}
    assert scores["small"].pieces > scores["large"].pieces


def test_passages_too_long_for_a_model_lose_no_word(
    vocabularies: Vocabularies, texts: dict[str, list[str]]
) -> None:
    tokenizer = vocabularies["small"]
    passages, model = choose_passages(texts["en"], count=10), made(tokenizer)
    whole, parts = (
        score_cloze(model, tokenizer, passages, even(tokenizer), max_length=length) for length in (256, 20)
    )
    assert (whole.pieces, whole.spans) == (parts.pieces, parts.spans)
    assert whole.nats_per_character != parts.nats_per_character, "less context is read"


def test_parts_fit_the_model_and_split_no_word(
    vocabularies: Vocabularies, texts: dict[str, list[str]]
) -> None:
    tokenizer = vocabularies["small"]
    for passage in choose_passages(texts["en"], count=40):
        found = list(cloze._inputs(tokenizer, passage, 20))
        assert all(len(question.ids) <= 20 for question, _ in found)
        words = [word for _, own in found for word in sorted(set(own))]
        assert words == list(range(len(passage.spans))), "each in one part"


def test_accuracy_of_words_requires_every_token(
    vocabularies: Vocabularies, texts: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stand-in model that predicts all but the first token of every question."""
    tokenizer = vocabularies["small"]
    passages = choose_passages(texts["en"], count=10)
    inputs: list[MaskedInput] = []

    def known(model: Model, questions: list[MaskedInput]) -> list[TokenScores]:
        inputs.extend(questions)
        for question in questions:
            assert all(question.ids[place] == tokenizer.mask_id for place in question.places)
            assert question.ids.count(tokenizer.mask_id) == len(question.places)
        return [TokenScores(-np.ones(len(q.places)), np.arange(len(q.places)) > 0) for q in questions]

    monkeypatch.setattr(cloze, "score_masked_tokens", known)
    found = score_cloze(made(tokenizer), tokenizer, passages, even(tokenizer), max_length=256)
    assert len(inputs) == 10
    assert found.piece_accuracy == pytest.approx(1 - 10 / found.pieces)
    assert found.span_accuracy == pytest.approx(1 - 10 / found.spans)
    assert found.nats_per_character == pytest.approx(found.pieces / found.characters)


@pytest.mark.parametrize("heads", [{"mlm", "sop"}, {"mlm"}])
def test_a_model_that_copies_is_distinguished_from_one_that_does_not(
    heads: set[str], vocabularies: Vocabularies, texts: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer = vocabularies["large"]
    passages = choose_passages(texts["en"], count=40)

    def copier(model: Model, questions: list[MaskedInput]) -> list[TokenScores]:
        """Predicts the tokens between the same neighbours elsewhere in its input."""
        found = []
        for ids, _, places, labels in questions:
            assert len(ids) <= 64
            begin, end = places[0], places[-1] + 1
            copied = None
            for at in range(begin - 1):
                same = ids[at - 1] == ids[begin - 1] and tokenizer.mask_id not in ids[at : at + end - begin]
                if at and same and ids[at + end - begin : at + end - begin + 1] == ids[end : end + 1]:
                    copied = ids[at : at + end - begin]
            right = np.array(
                [copied is not None and s == x for s, x in zip(copied or labels, labels, strict=True)]
            )
            found.append(TokenScores(-np.ones(len(places)), right))
        return found

    model = Model(made(tokenizer).config, heads)
    monkeypatch.setattr(copy_probe, "score_masked_tokens", copier)
    score = score_copying(model, tokenizer, passages, max_length=64)
    assert score is not None and score.words == 40
    assert score.right > 0.7 and score.without_copy < 0.1
    monkeypatch.undo()
    real = score_copying(model.eval(), tokenizer, passages, max_length=64)
    assert real is not None and real.right < 0.2


def test_a_masked_word_is_whole_in_the_first_copy(
    vocabularies: Vocabularies, texts: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer = vocabularies["wordpiece"]
    seen: list[list[MaskedInput]] = []

    def look(model: Model, questions: list[MaskedInput]) -> list[TokenScores]:
        seen.append(questions)
        return [TokenScores(-np.ones(len(q.places)), np.ones(len(q.places), dtype=bool)) for q in questions]

    monkeypatch.setattr(copy_probe, "score_masked_tokens", look)
    score_copying(made(tokenizer), tokenizer, choose_passages(texts["en"], count=20), max_length=40)
    for twice, once in zip(*seen, strict=True):
        middle = twice.ids.index(tokenizer.sep_id)
        first, second = twice.ids[1:middle], twice.ids[middle + 1 : -1]
        assert len(first) == len(second) and len(twice.ids) <= 40
        filled = list(second)
        for place, label in zip(twice.places, twice.labels, strict=True):
            assert second[place - middle - 1] == tokenizer.mask_id
            filled[place - middle - 1] = label
        assert filled == first and once.ids[1:-1] == second
        assert twice.types == [0] * (middle + 1) + [1] * (len(second) + 1)


def test_no_room_no_probe(vocabularies: Vocabularies, texts: dict[str, list[str]]) -> None:
    tokenizer = vocabularies["small"]
    passages = [replace(p) for p in choose_passages(texts["en"], count=5)]
    assert score_copying(made(tokenizer), tokenizer, passages, max_length=4) is None


def test_every_passage_hides_words_of_its_own() -> None:
    text = "the old man said that he was never in the house of the time"
    assert len({passage.spans for passage in choose_passages([text] * 12)}) > 3
