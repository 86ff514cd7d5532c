"""Smaller vocabularies: which tokens stay, and texts of these alone are tokenized as before."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from albertine.core.released import released_folder
from albertine.errors import SettingsError, TokenizerError
from albertine.text.documents import read_documents
from albertine.text.sentences import document_sentences
from albertine.tokenizers.added_tokens import AddedToken
from albertine.tokenizers.base import Tokenizer
from albertine.tokenizers.load import load_tokenizer
from albertine.tokenizers.prune import prune_tokenizer, required_tokens, same_vocabulary, select_tokens
from albertine.tokenizers.sentencepiece import SentencePieceTokenizer
from albertine.tokenizers.sentencepiece_proto import (
    Piece,
    PieceType,
    ends_in_digit_comma,
    parse_model,
    serialize_model,
)
from albertine.tokenizers.wordpiece import WordPieceTokenizer
from tests.toy import demo_text


@pytest.fixture(scope="module", params=["en", "zh"])
def language(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def tokenizer(language: str) -> Tokenizer:
    return load_tokenizer(released_folder(f"albertine-mini-{language}"))


@pytest.fixture(scope="module")
def sentences(language: str, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = demo_text(language, tmp_path_factory.mktemp(language), 120_000)
    code = "zh" if language == "zh" else "en"
    return [s for d in read_documents([folder]) for s in document_sentences(d, code)]


def counted(tokenizer: Tokenizer, texts: list[str]) -> np.ndarray:
    ids, _ = tokenizer.encode_flat(texts)
    return np.bincount(ids.astype(np.int64), minlength=tokenizer.vocab_size)


def test_texts_of_kept_tokens_are_tokenized_as_before(tokenizer: Tokenizer, sentences: list[str]) -> None:
    """For half of the text; of the other half some sentences have other pieces, and these alone change."""
    kept = select_tokens(tokenizer, counted(tokenizer, sentences[::2]))
    small = prune_tokenizer(tokenizer, kept)
    assert [small.id_to_piece(i) for i in range(small.vocab_size)] == [tokenizer.id_to_piece(i) for i in kept]
    assert {small.id_to_piece(i) for i in small.special_ids} == {
        tokenizer.id_to_piece(i) for i in tokenizer.special_ids
    }
    staying, untouched, changed = set(kept.tolist()), 0, 0
    for text in sentences:
        before, after = tokenizer.encode(text), small.encode(text)
        if staying.issuperset(before):
            untouched += 1
            assert [int(kept[i]) for i in after] == before, text
        else:
            changed += 1
            assert [int(kept[i]) for i in after] != before
    assert untouched >= len(sentences) / 2 and changed > 0


def test_what_the_text_has_never_becomes_unknown(tokenizer: Tokenizer, sentences: list[str]) -> None:
    counts = counted(tokenizer, sentences)
    least = int(required_tokens(tokenizer, counts).sum())
    small = prune_tokenizer(tokenizer, select_tokens(tokenizer, counts, keep=least))
    assert small.vocab_size == least < tokenizer.vocab_size
    unknown = int(counted(small, sentences)[small.unk_id])
    assert unknown == int(counts[tokenizer.unk_id])
    assert len(small.encode(sentences[0])) > 0


def test_the_saved_folder_gives_the_same_ids(
    tokenizer: Tokenizer, sentences: list[str], tmp_path: Path
) -> None:
    """As we read spiece.model or vocab.txt, and as the tokenizers library reads tokenizer.json."""
    from tokenizers import Tokenizer as Library

    small = prune_tokenizer(tokenizer, select_tokens(tokenizer, counted(tokenizer, sentences), coverage=0.98))
    small.save(tmp_path)
    ours, theirs = load_tokenizer(tmp_path), Library.from_file(str(tmp_path / "tokenizer.json"))
    assert ours.fingerprint == small.fingerprint and theirs.get_vocab_size() == small.vocab_size
    for text in sentences[:300]:
        if not any(c.isdigit() for c in text):  # the digit-comma rule is ours alone
            ids = small.encode(text)
            assert ours.encode(text) == ids
            assert theirs.encode(text, add_special_tokens=False).ids == ids


def test_added_tokens_stay(tokenizer: Tokenizer, sentences: list[str]) -> None:
    """Although the text has none of them."""
    whole = [AddedToken("[E1]"), AddedToken("two words")]
    marked: Tokenizer
    if isinstance(tokenizer, WordPieceTokenizer):
        marked = WordPieceTokenizer([*tokenizer.pieces, *(p.content for p in whole)], whole=whole)
    else:
        assert isinstance(tokenizer, SentencePieceTokenizer)
        marked = SentencePieceTokenizer(tokenizer.model, tokenizer.cleaning, whole=whole)
    kept = select_tokens(marked, counted(marked, sentences))
    small, text = prune_tokenizer(marked, kept), f"[E1]{sentences[0]} two words"
    assert small.vocab_size < marked.vocab_size == tokenizer.vocab_size + 2
    assert [int(kept[i]) for i in small.encode(text)] == marked.encode(text)
    assert small.encode(text)[-1] == small.vocab_size - 1


def test_coverage_is_reached_by_the_fewest_tokens() -> None:
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "aa", "bb", "cc", "dd", "ee"]
    tokenizer = WordPieceTokenizer(pieces)
    counts = np.array([0, 0, 0, 0, 0, 2, 50, 40, 8, 0])

    def stays(**how: float) -> list[str]:
        return [pieces[i] for i in select_tokens(tokenizer, counts, **how)[5:]]  # type: ignore[arg-type]

    assert stays(coverage=0.5) == ["bb"] and stays(coverage=0.51) == ["bb", "cc"]
    assert stays(coverage=0.9) == ["bb", "cc"] and stays(coverage=0.98) == ["bb", "cc", "dd"]
    assert stays(coverage=1.0) == stays() == ["aa", "bb", "cc", "dd"] and stays(coverage=0.0) == []
    assert stays(keep=6) == ["bb"] and stays(keep=8) == ["bb", "cc", "dd"]
    assert stays(keep=10) == ["aa", "bb", "cc", "dd", "ee"]
    for keep in (4, 11):
        with pytest.raises(SettingsError, match="from 5 to 10"):
            select_tokens(tokenizer, counts, keep=keep)
    with pytest.raises(SettingsError, match=r"1\.5 is no share"):
        select_tokens(tokenizer, counts, coverage=1.5)


def test_characters_of_wordpiece_stay_where_they_may_stand() -> None:
    pieces = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        "ab",
        "##cd",
        "a",
        "b",
        "##b",
        "##c",
        "##d",
        "c",
        "##a",
    ]
    counts = np.zeros(len(pieces), dtype=np.int64)
    counts[[5, 6]] = 1
    stay = required_tokens(WordPieceTokenizer(pieces), counts)
    assert [pieces[i] for i in np.flatnonzero(stay)[5:]] == ["a", "##b", "##c", "##d"]


def sentencepiece(pieces: list[tuple[str, float]], **how: bool) -> SentencePieceTokenizer:
    special = [("<pad>", PieceType.CONTROL), ("<unk>", PieceType.UNKNOWN)]
    special += [(name, PieceType.CONTROL) for name in ("[CLS]", "[SEP]", "[MASK]")]
    first = [Piece(text, 0.0, kind) for text, kind in special]
    if how.get("byte_fallback"):
        first += [Piece(f"<0x{i:02X}>", 0.0, PieceType.BYTE) for i in range(256)]
    return SentencePieceTokenizer(
        serialize_model([*first, *(Piece(t, s, PieceType.NORMAL) for t, s in pieces)], b"", **how)
    )


def test_what_a_sentencepiece_needs_besides() -> None:
    text = [("▁", -2.0), ("a", -3.0), ("▁ab", -1.0), ("b", -9.0), ("▁20,", -5.0), ("z", -8.0), ("q", -2.5)]
    tokenizer = sentencepiece(text)
    counts = np.zeros(tokenizer.vocab_size, dtype=np.int64)
    counts[tokenizer.piece_to_id("▁ab")] = 3
    stay = {tokenizer.id_to_piece(i) for i in select_tokens(tokenizer, counts)}
    # The characters of "▁ab" (the least likely piece, b, is one of them), and the digit with its comma.
    assert stay - {"<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"} == {"▁", "a", "b", "▁ab", "▁20,"}
    counts[tokenizer.piece_to_id("▁ab")], counts[tokenizer.piece_to_id("q")] = 0, 1
    stay = {tokenizer.id_to_piece(i) for i in select_tokens(tokenizer, counts)}
    assert "b" in stay and "z" not in stay  # the price of an unknown character is reckoned from b
    assert ends_in_digit_comma("▁20,")
    bytewise = sentencepiece(text, byte_fallback=True)
    assert int(required_tokens(bytewise, np.zeros(bytewise.vocab_size, dtype=np.int64)).sum()) == 5 + 256 + 2


def test_all_else_in_a_model_file_stays(tokenizer: Tokenizer) -> None:
    if not isinstance(tokenizer, SentencePieceTokenizer):
        return
    kept = [i for i in range(tokenizer.vocab_size) if i % 3 or i < 100]
    small = prune_tokenizer(tokenizer, np.array(kept))
    assert isinstance(small, SentencePieceTokenizer)
    before, after = tokenizer.proto, parse_model(small.model)
    assert after.pieces == tuple(before.pieces[i] for i in kept)
    for name in vars(before).keys() - {"pieces"}:
        assert getattr(after, name) == getattr(before, name), name
    assert small.cleaning == tokenizer.cleaning


def test_tokens_of_a_bpe_vocabulary_cannot_be_left_out(tokenizer: Tokenizer) -> None:
    if not isinstance(tokenizer, SentencePieceTokenizer):
        return
    merging = SentencePieceTokenizer(tokenizer.model)
    object.__setattr__(merging.proto, "model_type", 2)
    with pytest.raises(TokenizerError, match="no unigram model"):
        prune_tokenizer(merging, np.arange(merging.vocab_size))


def test_tokenizers_are_equal_by_their_tokens(tokenizer: Tokenizer) -> None:
    assert same_vocabulary(tokenizer, prune_tokenizer(tokenizer, np.arange(tokenizer.vocab_size)))
    assert not same_vocabulary(tokenizer, prune_tokenizer(tokenizer, np.arange(tokenizer.vocab_size - 1)))
