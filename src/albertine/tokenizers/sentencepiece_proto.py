"""Parse and write the fields of a SentencePiece model file that determine how text is split.

The sentencepiece package does not expose them, and a dependency on protobuf is not worth a few fields. Field
numbers are those of `google/sentencepiece:src/sentencepiece_model.proto`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from albertine.core.protobuf import encode_field, encode_varint, parse_fields, read_varint

SPACE = "▁"


def ends_in_digit_comma(piece: str) -> bool:
    """Whether the digit-comma rule applies to a piece, such as "▁2000," (Google's `encode_pieces`)."""
    return len(piece) > 1 and piece[-1] == "," and piece[-2].isdigit()


class PieceType(IntEnum):
    """Type of a piece, as in ModelProto.SentencePiece.Type."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


_TYPES = {int(t): t for t in PieceType}
_USABLE = frozenset({PieceType.NORMAL, PieceType.USER_DEFINED})
_FLOAT = struct.Struct("<f")


class Piece(NamedTuple):
    """One entry of the vocabulary; its id is its index."""

    text: str
    score: float
    type: PieceType


@dataclass(frozen=True)
class ModelProto:
    """The parsed fields of a model file.

    Attributes:
        pieces: the vocabulary in the order of ids.
        model_type: 1 unigram, 2 BPE, 3 word, 4 character.
        byte_fallback: unknown characters become bytes instead of the unknown piece.
        whitespace_suffix: the space marker is after words instead of before them.
        normalizer: name of the normalisation rule, such as "nmt_nfkc".
        charsmap: the rule itself, compiled; empty for the identity.
        add_dummy_prefix, remove_extra_whitespaces, escape_whitespaces: as in NormalizerSpec.
    """

    pieces: tuple[Piece, ...]
    model_type: int
    byte_fallback: bool
    whitespace_suffix: bool
    normalizer: str
    charsmap: bytes
    add_dummy_prefix: bool
    remove_extra_whitespaces: bool
    escape_whitespaces: bool

    @property
    def marks_words(self) -> bool:
        """Whether every word gets a space marker before it, and no piece extends over a marker."""
        return (
            not self.whitespace_suffix
            and self.add_dummy_prefix
            and self.remove_extra_whitespaces
            and self.escape_whitespaces
            and not any(SPACE in p.text[1:] or " " in p.text for p in self.pieces if p.type in _USABLE)
        )

    @property
    def splits_at_spaces(self) -> bool:
        """Whether encoding a text equals encoding its words one by one.

        It does if no piece extends over a space and the space marker is itself a piece: then every
        segmentation of a text splits before each marker, so the best one is the best for each word. The
        marker also keeps unknown characters of neighbouring words from being merged into one unknown token.

        Where two segmentations of a word have the same score (6|66 and 66|6; about one word in 200,000 of
        English Wikipedia), the library's choice for a whole text depends on rounding errors of the words
        before it. A word encoded alone always has the same segmentation.
        """
        return (
            self.model_type in (1, 2)
            and self.marks_words
            and self.normalizer in ("nmt_nfkc", "nmt_nfkc_cf", "nfkc", "nfkc_cf", "identity")
            and any(piece.text == SPACE and piece.type in _USABLE for piece in self.pieces)
        )


def parse_model(data: bytes) -> ModelProto:
    """Parse a model file.

    Raises:
        ValueError: the bytes are not a SentencePiece model.
    """
    pieces: list[Piece] = []
    trainer, normalizer = b"", b""
    for number, value in parse_fields(data):
        if number == 1:
            pieces.append(_piece(_message(value)))
        elif number == 2:
            trainer = _message(value)
        elif number == 3:
            normalizer = _message(value)
    if not pieces:
        raise ValueError("holds no pieces")
    train, norm = dict(parse_fields(trainer)), dict(parse_fields(normalizer))
    return ModelProto(
        pieces=tuple(pieces),
        model_type=_number(train.get(3, 1)),
        byte_fallback=bool(train.get(35, 0)),
        whitespace_suffix=bool(train.get(24, 0)),
        normalizer=_message(norm.get(1, b"")).decode("utf-8"),
        charsmap=_message(norm.get(2, b"")),
        add_dummy_prefix=bool(norm.get(3, 1)),
        remove_extra_whitespaces=bool(norm.get(4, 1)),
        escape_whitespaces=bool(norm.get(5, 1)),
    )


def parse_encoded_text(data: bytes) -> list[tuple[int, int, int, int, int]]:
    """Parse a serialised SentencePieceText, the result with offsets that all releases of sentencepiece give.

    Returns:
        For each piece its id, its begin and end in the bytes of the (UTF-8) input, and the begin and end of
        its text in `data`.
    """
    found = []
    at, size = 0, len(data)
    while at < size:
        key = data[at]
        if key != 0x12:  # not a piece
            key, at = read_varint(data, at)
            at = _skip(data, at, key & 7)
            continue
        length, at = read_varint(data, at + 1)
        stop = at + length
        token = begin = end = spelled = spelled_end = 0
        # one-byte numbers are read inline: this loop runs over millions of fields
        while at < stop:
            key = data[at]
            value = data[at + 1]
            at += 2
            if value > 0x7F:
                value, at = read_varint(data, at - 1)
            if key == 0x0A:
                spelled, spelled_end = at, at + value
                at = spelled_end
            elif key == 0x1A:
                at += value
            elif key == 0x10:
                token = value
            elif key == 0x20:
                begin = value
            elif key == 0x28:
                end = value
            else:
                raise ValueError("is no piece of a text")
        found.append((token, begin, end, spelled, spelled_end))
    return found


def _skip(data: bytes, at: int, wire_type: int) -> int:
    """The offset after the value of a field."""
    if wire_type in (1, 5):
        return at + (8 if wire_type == 1 else 4)
    value, at = read_varint(data, at)
    return at + value if wire_type == 2 else at


def serialize_model(pieces: Sequence[Piece], charsmap: bytes, *, byte_fallback: bool = False) -> bytes:
    """A unigram model file with these pieces and this compiled normalisation rule, named "nmt_nfkc" if not
    empty."""
    parts = []
    for piece in pieces:
        text = piece.text.encode("utf-8")
        body = (
            encode_field(1, text) + b"\x15" + _FLOAT.pack(piece.score) + b"\x18" + encode_varint(piece.type)
        )
        parts.append(encode_field(1, body))
    trainer = b"\x18\x01" + b"\x20" + encode_varint(len(pieces))
    if byte_fallback:
        trainer += encode_varint(35 << 3) + b"\x01"
    normalizer = encode_field(1, b"nmt_nfkc" if charsmap else b"identity") + encode_field(2, charsmap)
    return b"".join([*parts, encode_field(2, trainer), encode_field(3, normalizer)])


def select_pieces(data: bytes, kept: Sequence[int]) -> bytes:
    """A model file with only the pieces of these ids, in this order. All else is as in `data`, except the
    vocabulary size, which is adjusted, and self-test samples, which are removed.

    Raises:
        ValueError: the bytes are not a SentencePiece model.
    """
    pieces: list[bytes] = []
    others: list[bytes] = []
    for number, value in parse_fields(data):
        if number == 1:
            pieces.append(encode_field(1, _message(value)))
        elif number == 2:
            others.append(encode_field(2, _resized(_message(value), len(kept))))
        elif number == 3:
            others.append(encode_field(3, _message(value)))
        elif number == 5:
            others.append(encode_field(5, _message(value)))
    return b"".join([*(pieces[i] for i in kept), *others])


def _resized(trainer: bytes, size: int) -> bytes:
    """A TrainerSpec with another vocabulary size (field 4)."""
    parts = []
    for number, raw in _raw_fields(trainer):
        parts.append(b"\x20" + encode_varint(size) if number == 4 else raw)
    return b"".join(parts)


def _raw_fields(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Field numbers and the raw bytes of each field, key included."""
    at = 0
    while at < len(data):
        begin = at
        key, at = read_varint(data, at)
        wire = key & 7
        if wire == 0:
            _, at = read_varint(data, at)
        elif wire == 2:
            size, at = read_varint(data, at)
            at += size
        else:
            at += 8 if wire == 1 else 4
        yield key >> 3, data[begin:at]


def _piece(data: bytes) -> Piece:
    # fast path for the layout that all writers use, since a vocabulary has tens of thousands of pieces
    size = data[1] if len(data) > 1 else 0
    if size < 0x80 and len(data) in (size + 7, size + 9) and data[0] == 0x0A and data[size + 2] == 0x15:
        kind = _TYPES[1] if len(data) == size + 7 else _TYPES.get(data[-1] if data[-2] == 0x18 else 0)
        if kind:
            return Piece(data[2 : size + 2].decode("utf-8"), _FLOAT.unpack_from(data, size + 3)[0], kind)
    found = dict(parse_fields(data))
    bits = _number(found.get(2, 0))
    if bits >> 32:
        raise ValueError("a field has the wrong type")
    text, score = _message(found.get(1, b"")).decode("utf-8"), _FLOAT.unpack(bits.to_bytes(4, "little"))[0]
    return Piece(text, score, PieceType(_number(found.get(3, 1))))


def _message(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise ValueError("a field has the wrong type")
    return value


def _number(value: int | bytes) -> int:
    if isinstance(value, bytes):
        raise ValueError("a field has the wrong type")
    return value
