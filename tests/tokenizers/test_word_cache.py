"""Encoding many texts at once gives what encoding each of them gives."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from albertine.tokenizers import word_cache
from albertine.tokenizers.base import Tokenizer
from albertine.tokenizers.load import load_tokenizer
from albertine.tokenizers.word_cache import BatchEncoder

TEXTS = st.lists(
    st.one_of(
        st.text(max_size=30),
        st.text("ab ,.1|<~>\t\x0b\x1c\u3000北京Éé", max_size=30),
        st.sampled_from(
            ["", " ", "<|~|>", "a <|~|> b", "1,000,", "The cat, the dog.", "\ud800 x", "我们在北京"]
        ),
    ),
    max_size=12,
)


@pytest.fixture(scope="module")
def tokenizers(shared_data: Path) -> list[Tokenizer]:
    return [load_tokenizer(path) for path in sorted((shared_data / "tokenizers").iterdir()) if path.is_dir()]


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts=TEXTS)
def test_the_same_ids_as_one_by_one(tokenizers: list[Tokenizer], texts: list[str]) -> None:
    assert len(tokenizers) == 3
    for tokenizer in tokenizers:
        ids, lengths = tokenizer.encode_flat(texts)
        expected = [tokenizer.encode(text) for text in texts]
        assert lengths.tolist() == [len(e) for e in expected]
        assert ids.tolist() == [i for e in expected for i in e]


def letters(words: list[str]) -> list[Sequence[int]]:
    return [[ord(c) for c in word] for word in words]


def test_tables_that_are_emptied_and_batches_that_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(word_cache, "BATCH_CHARACTERS", 40)
    encoder = BatchEncoder(str.split, letters, rows=20)
    texts = [f"word{i} w{i % 7} {'x' * (i % 5)}" for i in range(200)]
    for _ in range(2):
        ids, lengths = encoder(texts)
        assert ids.tolist() == [ord(c) for text in texts for c in text if c != " "]
        assert lengths.tolist() == [len(text.replace(" ", "")) for text in texts]


def test_a_table_of_long_words_is_emptied_earlier() -> None:
    """Catches: a bound on words alone, which DNA fills with gigabytes; one on ids, of which an unknown word
    of any length has one."""
    for encode in (letters, lambda words: [[7] for _ in words]):
        encoder = BatchEncoder(str.split, encode, rows=1000)
        for call in range(90):
            words = [f"{10 * call + i:04}" + "ACGT" * 249 for i in range(10)]
            ids, lengths = encoder([" ".join(words)])
            assert ids.tolist() == [i for word in encode(words) for i in word] and lengths.sum() == len(ids)
            held = sum(map(len, encoder._rows)) + len(encoder._ids)
            assert held < 32 * 1000 + 2 * 10 * 1000 + 100


def test_every_word_is_encoded_once() -> None:
    encoded: list[str] = []

    def encode(words: list[str]) -> list[Sequence[int]]:
        encoded.extend(words)
        return letters(words)

    encoder = BatchEncoder(str.split, encode)
    for _ in range(3):
        encoder(["a b a", "b c", "", "a"])
    assert sorted(encoded) == ["a", "b", "c"]


def test_texts_that_are_only_right_as_a_whole() -> None:
    encoder = BatchEncoder(None, letters)
    ids, lengths = encoder(["a b", "", "<|~|>", "a b"])
    assert lengths.tolist() == [3, 0, 5, 3] and bytes(ids.tolist()) == b"a b<|~|>a b"


def test_an_error_leaves_the_table_right() -> None:
    broken = True

    def encode(words: list[str]) -> list[Sequence[int]]:
        if broken:
            raise MemoryError
        return letters(words)

    encoder = BatchEncoder(str.split, encode)
    with pytest.raises(MemoryError):
        encoder(["a b"])
    broken = False
    assert encoder(["a b"])[0].tolist() == [97, 98]
