"""Prune a vocabulary: select the tokens to keep for a text, and build the tokenizer with only these.

A text whose tokens are all kept has the same tokens as before: for a unigram model the best segmentation is
among the remaining ones; for WordPiece the longest match at each position is still there.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from albertine.errors import SettingsError, TokenizerError
from albertine.tokenizers.base import Tokenizer
from albertine.tokenizers.load import has_vocabulary, load_tokenizer
from albertine.tokenizers.sentencepiece import SentencePieceTokenizer
from albertine.tokenizers.sentencepiece_proto import PieceType, ends_in_digit_comma, select_pieces
from albertine.tokenizers.wordpiece import WordPieceTokenizer

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]


def select_tokens(
    tokenizer: Tokenizer, counts: Ints, *, keep: int | None = None, coverage: float = 1.0
) -> Ints:
    """The ids of the tokens to keep, increasing, int64 (V',).

    All `required_tokens` are kept, then the most frequent tokens; of equally frequent ones
    those that stand first in the vocabulary.

    Args:
        counts: occurrences of each token in the text, (V,).
        keep: number of tokens to keep, which may include tokens that do not occur in the text.
        coverage: without `keep`: keep the fewest tokens that make up this share of the text's tokens.

    Raises:
        SettingsError: `keep` is below the number of required tokens or above the vocabulary size; a coverage
            outside of 0 to 1.
    """
    stay = required_tokens(tokenizer, counts)
    order = np.argsort(-counts, kind="stable")
    if keep is None:
        if not 0 <= coverage <= 1:
            raise SettingsError(f"the coverage {coverage:g} is no share", remedy="Give one from 0 to 1")
        covered = np.cumsum(counts[order])
        target = covered[-1] - int((1 - coverage) * int(covered[-1]) + 1e-9)
        stay[order[: int(np.searchsorted(covered, target)) + 1] if target > 0 else []] = True
        return np.flatnonzero(stay)
    least, most = int(stay.sum()), tokenizer.vocab_size
    if not least <= keep <= most:
        raise SettingsError(
            f"of {most:,} tokens {keep:,} cannot be kept: {least:,} are special or spell what the text has",
            where="--keep",
            remedy=f"Give a number from {least:,} to {most:,}, or --coverage",
        )
    rest = order[~stay[order]]
    stay[rest[: keep - least]] = True
    return np.flatnonzero(stay)


def required_tokens(tokenizer: Tokenizer, counts: Ints) -> Flags:
    """Which tokens must be kept, (V,) boolean: special tokens, and the single-character tokens that spell a
    token of the text, so that nothing becomes unknown.

    Also added tokens; and of SentencePiece byte pieces, user-defined pieces, the piece with the lowest score,
    which sets the score of unknown ones, and pieces such as "▁2000,", which the digit-comma rule splits after
    they are chosen.
    """
    stay = np.zeros(tokenizer.vocab_size, dtype=np.bool_)
    stay[sorted(tokenizer.special_ids)] = True
    tokens = [tokenizer.id_to_piece(i) for i in range(tokenizer.vocab_size)]
    ids = {token: i for i, token in enumerate(tokens)}
    spelled = {c for i in np.flatnonzero((counts > 0) & ~stay) for c in _characters(tokenizer, tokens[i])}
    stay[[ids[c] for c in spelled if c in ids]] = True
    if isinstance(tokenizer, WordPieceTokenizer | SentencePieceTokenizer):
        stay[[ids[token.content] for token in tokenizer.whole]] = True
    if isinstance(tokenizer, SentencePieceTokenizer):
        proto = tokenizer.proto.pieces
        for i, piece in enumerate(proto):
            plain = piece.type in (PieceType.NORMAL, PieceType.UNUSED)
            stay[i] |= not plain or ends_in_digit_comma(piece.text)
        normal = [i for i, piece in enumerate(proto) if piece.type is PieceType.NORMAL]
        if normal:
            stay[min(normal, key=lambda i: proto[i].score)] = True
    return stay


def _characters(tokenizer: Tokenizer, token: str) -> list[str]:
    """The single-character tokens that spell a token."""
    if tokenizer.kind == "sentencepiece":
        return list(token)
    inside = token.startswith("##")
    return [f"##{c}" if inside or i else c for i, c in enumerate(token.removeprefix("##"))]


def prune_tokenizer(tokenizer: Tokenizer, kept: Ints) -> Tokenizer:
    """The tokenizer with only the tokens `kept`, in their order, and the same settings.

    Raises:
        TokenizerError: it is BPE, whose tokens are built from their parts by merges.
    """
    if isinstance(tokenizer, WordPieceTokenizer):
        return WordPieceTokenizer(
            [tokenizer.pieces[i] for i in kept],
            lower=tokenizer.lower,
            strip_accents=tokenizer.strip_accents,
            chinese=tokenizer.chinese,
            whole=tokenizer.whole,
        )
    if isinstance(tokenizer, SentencePieceTokenizer) and tokenizer.proto.model_type == 1:
        own = [i for i in kept.tolist() if i < len(tokenizer.proto.pieces)]
        model = select_pieces(tokenizer.model, own)
        return SentencePieceTokenizer(model, tokenizer.cleaning, whole=tokenizer.whole)
    raise TokenizerError(
        "is no unigram model and no WordPiece, and only of these tokens can be left out",
        remedy="Train a vocabulary of the size you want: albertine tokenizer train --vocab-size N",
    )


def same_vocabulary(one: Tokenizer, other: Tokenizer) -> bool:
    """Whether two tokenizers give the same ids, by their fingerprints, or by their tokens if they were stored
    in different files."""
    if one.fingerprint == other.fingerprint:
        return True
    size = one.vocab_size
    return size == other.vocab_size and all(one.id_to_piece(i) == other.id_to_piece(i) for i in range(size))


def has_other_vocabulary(folder: Path, tokenizer: Tokenizer) -> bool:
    """Whether a model folder has a vocabulary other than that of this tokenizer."""
    return (
        folder.is_dir() and has_vocabulary(folder) and not same_vocabulary(load_tokenizer(folder), tokenizer)
    )
