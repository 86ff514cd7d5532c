"""A smaller vocabulary: which pieces of a tokenizer stay for a text, and the tokenizer that knows only these.

A text whose pieces all stay is cut exactly as before. For a unigram model the best way to cut it is among the
ways that remain; for WordPiece the longest match at each place is still there, and no longer one came.
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
    """The ids of the pieces that stay, increasing, int64 (V',).

    Those that are `required_tokens` stay in any case; then the most frequent ones, of equally frequent ones
    those that stand first in the vocabulary.

    Args:
        counts: how often the text has each piece, (V,).
        keep: how many stay in all, pieces that the text has not among them where there is room.
        coverage: without `keep`: share of the text's tokens that stay what they are, by the fewest pieces.

    Raises:
        SettingsError: fewer are to stay than are needed, or more than there are; a coverage outside of 0..1.
    """
    stay = required_tokens(tokenizer, counts)
    order = np.argsort(-counts, kind="stable")
    if keep is None:
        if not 0 <= coverage <= 1:
            raise SettingsError(f"the coverage {coverage:g} is no share", remedy="Give one from 0 to 1")
        covered = np.cumsum(counts[order])
        wanted = covered[-1] - int((1 - coverage) * int(covered[-1]) + 1e-9)
        stay[order[: int(np.searchsorted(covered, wanted)) + 1] if wanted > 0 else []] = True
        return np.flatnonzero(stay)
    least, most = int(stay.sum()), tokenizer.vocab_size
    if not least <= keep <= most:
        raise SettingsError(
            f"of {most:,} pieces {keep:,} cannot stay: {least:,} are special or spell what the text has",
            where="--keep",
            remedy=f"Give a number from {least:,} to {most:,}, or --coverage",
        )
    rest = order[~stay[order]]
    stay[rest[: keep - least]] = True
    return np.flatnonzero(stay)


def required_tokens(tokenizer: Tokenizer, counts: Ints) -> Flags:
    """Which pieces stay whatever else does, (V,): the special ones, and every character by which a piece of
    the text can be spelled, so that nothing of it becomes unknown.

    Also what is kept whole; and of a SentencePiece bytes, what was asked for by name, the least likely piece,
    from which the price of an unknown one is reckoned, and pieces such as "▁2000,", which are cut otherwise
    once they were chosen.
    """
    stay = np.zeros(tokenizer.vocab_size, dtype=np.bool_)
    stay[sorted(tokenizer.special_ids)] = True
    pieces = [tokenizer.id_to_piece(i) for i in range(tokenizer.vocab_size)]
    ids = {piece: i for i, piece in enumerate(pieces)}
    spelled = {c for i in np.flatnonzero((counts > 0) & ~stay) for c in _characters(tokenizer, pieces[i])}
    stay[[ids[c] for c in spelled if c in ids]] = True
    if isinstance(tokenizer, WordPieceTokenizer | SentencePieceTokenizer):
        stay[[ids[piece.content] for piece in tokenizer.whole]] = True
    if isinstance(tokenizer, SentencePieceTokenizer):
        proto = tokenizer.proto.pieces
        for i, piece in enumerate(proto):
            plain = piece.type in (PieceType.NORMAL, PieceType.UNUSED)
            stay[i] |= not plain or ends_in_digit_comma(piece.text)
        normal = [i for i, piece in enumerate(proto) if piece.type is PieceType.NORMAL]
        if normal:
            stay[min(normal, key=lambda i: proto[i].score)] = True
    return stay


def _characters(tokenizer: Tokenizer, piece: str) -> list[str]:
    """The pieces of one character that spell a piece."""
    if tokenizer.kind == "sentencepiece":
        return list(piece)
    inside = piece.startswith("##")
    return [f"##{c}" if inside or place else c for place, c in enumerate(piece.removeprefix("##"))]


def prune_tokenizer(tokenizer: Tokenizer, kept: Ints) -> Tokenizer:
    """The tokenizer that knows the pieces `kept` alone, in the order they had; all else about it is the same.

    Raises:
        TokenizerError: it merges pieces pair by pair (BPE), so that a piece without its parts is never made.
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
        "is no unigram model and no WordPiece, and only of these a piece can be left out",
        remedy="Train a vocabulary of the size you want: albertine tokenizer train --vocab-size N",
    )


def same_vocabulary(one: Tokenizer, other: Tokenizer) -> bool:
    """Whether two tokenizers give the same ids: told by their fingerprints, or where they lie in files of two
    kinds, by their pieces."""
    if one.fingerprint == other.fingerprint:
        return True
    size = one.vocab_size
    return size == other.vocab_size and all(one.id_to_piece(i) == other.id_to_piece(i) for i in range(size))


def has_other_vocabulary(folder: Path, tokenizer: Tokenizer) -> bool:
    """Whether a folder of a model holds a vocabulary, and not that of this tokenizer."""
    return (
        folder.is_dir() and has_vocabulary(folder) and not same_vocabulary(load_tokenizer(folder), tokenizer)
    )
