"""A tokenizer of ours as llama.cpp has it (`src/llama-vocab.cpp`): WordPiece is its "bert", a unigram
SentencePiece its "t5"."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from albertine.errors import ModelError
from albertine.interop.gguf.file import Value
from albertine.tokenizers.base import Tokenizer
from albertine.tokenizers.sentencepiece import SentencePieceTokenizer
from albertine.tokenizers.sentencepiece_proto import SPACE, Piece, PieceType
from albertine.tokenizers.wordpiece import WordPieceTokenizer

_UNIGRAM = 1
LEAST_SCORE = -10_000.0
"""Score of a token that occurs in no text."""
_CONTINUES = "##"


@dataclass(frozen=True)
class LlamaPieces:
    """A vocabulary: texts, types and scores of its tokens, and further values of the file."""

    texts: Sequence[str]
    types: Sequence[int]
    scores: Sequence[float]
    values: Mapping[str, Value]


def vocabulary(tokenizer: Tokenizer, rows: int) -> dict[str, Value]:
    """The values under `tokenizer.ggml.` of a file.

    Args:
        rows: of the word embeddings; rows without a token become unused tokens.

    Raises:
        ModelError: llama.cpp has no such tokenizer.
    """
    if isinstance(tokenizer, WordPieceTokenizer):
        found = _wordpiece(tokenizer)
    elif isinstance(tokenizer, SentencePieceTokenizer):
        found = _unigram(tokenizer)
    else:
        raise ModelError(f"has a tokenizer that llama.cpp does not know ({tokenizer.kind})")
    spare = range(len(found.texts), rows)
    texts = [*found.texts, *(f"[unused in row {i}]" for i in spare)]
    if twice := [text for text, count in Counter(texts).items() if count > 1]:
        raise ModelError(f"has tokens that llama.cpp does not distinguish: `{twice[0]}`")
    values: dict[str, Value] = {
        **found.values,
        "tokens": texts,
        "token_type": np.array([*found.types, *(PieceType.UNUSED for _ in spare)], np.int32),
        "scores": np.array([*found.scores, *(LEAST_SCORE for _ in spare)], np.float32),
        "bos_token_id": tokenizer.cls_id,
        "eos_token_id": tokenizer.sep_id,
        "unknown_token_id": tokenizer.unk_id,
        "seperator_token_id": tokenizer.sep_id,  # sic
        "padding_token_id": tokenizer.pad_id,
        "cls_token_id": tokenizer.cls_id,
        "mask_token_id": tokenizer.mask_id,
    }
    return {f"tokenizer.ggml.{name}": value for name, value in values.items()}


def unlike(tokenizer: Tokenizer) -> list[str]:
    """Notes on differences of llama.cpp's tokenization from ours."""
    if not isinstance(tokenizer, SentencePieceTokenizer):
        return []
    cleaning = tokenizer.cleaning
    steps = ["small letters"] * cleaning.lower + ["no accents"] * (not cleaning.keep_accents)
    return [
        f"llama.cpp does not clean texts for a SentencePiece vocabulary: give it {' and '.join(steps)}, "
        "or the ids of albertine's tokenizer"
    ][: len(steps)]


def _check_added(tokenizer: WordPieceTokenizer | SentencePieceTokenizer) -> None:
    if tokenizer.whole:
        name = tokenizer.whole[0].content
        raise ModelError(f"has a tokenizer to which pieces were added ({name}), and llama.cpp would cut them")


def _wordpiece(tokenizer: WordPieceTokenizer) -> LlamaPieces:
    _check_added(tokenizer)
    if not tokenizer.chinese:
        raise ModelError("has a tokenizer that keeps Chinese words whole, and llama.cpp cuts them")
    lower, accents = tokenizer.lower, tokenizer.strip_accents
    every = range(tokenizer.vocab_size)
    values: dict[str, Value] = {
        "model": "bert",
        "pre": "default",
        "normalizer.lowercase": lower,
        "normalizer.strip_accents": lower if accents is None else accents,
    }
    texts, types = [_phantom(i, tokenizer) for i in every], [_type(i, tokenizer) for i in every]
    return LlamaPieces(texts, types, [0.0] * len(texts), values)


def _phantom(i: int, tokenizer: WordPieceTokenizer) -> str:
    """A token with SentencePiece's mark at the beginning of a word, in place of WordPiece's mark inside."""
    piece = tokenizer.pieces[i]
    if i in tokenizer.special_ids:
        return piece
    return piece[2:] if piece.startswith(_CONTINUES) and len(piece) > 2 else SPACE + piece


def _type(i: int, tokenizer: Tokenizer) -> PieceType:
    if i == tokenizer.unk_id:
        return PieceType.UNKNOWN
    return PieceType.CONTROL if i in tokenizer.special_ids else PieceType.NORMAL


def _unigram(tokenizer: SentencePieceTokenizer) -> LlamaPieces:
    _check_added(tokenizer)
    proto = tokenizer.proto
    odd = {
        "is no unigram model": proto.model_type != _UNIGRAM,
        "falls back to bytes": proto.byte_fallback,
        "has the mark of spaces behind words": proto.whitespace_suffix,
        "keeps spaces as they are": not proto.escape_whitespaces,
    }
    if why := [what for what, so in odd.items() if so]:
        raise ModelError(f"has a SentencePiece vocabulary that {why[0]}, which llama.cpp has no way to read")
    values: dict[str, Value] = {
        "model": "t5",
        "pre": "default",
        "add_space_prefix": proto.add_dummy_prefix,
        "remove_extra_whitespaces": proto.remove_extra_whitespaces,
        "add_bos_token": True,
        "add_eos_token": True,
    }
    if proto.charsmap:
        values["precompiled_charsmap"] = np.frombuffer(proto.charsmap, np.uint8)
    types = [_unigram_type(i, tokenizer) for i in range(len(proto.pieces))]
    return LlamaPieces([piece.text for piece in proto.pieces], types, _scores(proto.pieces), values)


def _unigram_type(i: int, tokenizer: SentencePieceTokenizer) -> PieceType:
    kind = tokenizer.proto.pieces[i].type
    # llama.cpp first splits a text at user-defined tokens, and begins a word behind each.
    plain = kind in (PieceType.NORMAL, PieceType.USER_DEFINED)
    return _type(i, tokenizer) if plain else kind


def _scores(pieces: Sequence[Piece]) -> list[float]:
    """The score of every token; that of a user-defined one is SentencePiece's (`unigram_model.cc`), so that
    it wins over every other way to write it."""
    best = max((piece.score for piece in pieces if piece.type is PieceType.NORMAL), default=0.0)
    return [
        len(piece.text.encode()) * best - 0.1 if piece.type is PieceType.USER_DEFINED else piece.score
        for piece in pieces
    ]
