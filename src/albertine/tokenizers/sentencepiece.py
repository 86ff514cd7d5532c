"""The SentencePiece tokenizer of English ALBERT and of XLNet (`google-research/albert:tokenization.py`)."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import chain
from pathlib import Path

from albertine.errors import TokenizerError
from albertine.text.cleaning import Cleaning
from albertine.tokenizers.added_tokens import AddedToken
from albertine.tokenizers.base import Spans, SpecialTokens, Tokenizer
from albertine.tokenizers.sentencepiece_proto import (
    SPACE,
    ModelProto,
    PieceType,
    ends_in_digit_comma,
    parse_encoded_text,
    parse_model,
)
from albertine.tokenizers.word_cache import MAX_CACHED_CHARACTERS, BatchEncoder, WordCache

ALBERT = SpecialTokens("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]")
XLNET = SpecialTokens("<pad>", "<unk>", "<cls>", "<sep>", "<mask>")
XLNET_CLEANING = Cleaning(lower=False, replace_quotes=True)

# punctuation in the reference's rule for word starts: ASCII without ' < = >
_PUNCTUATION = frozenset('!"#$%&()*+,-./:;?@[\\]^_`{|}~')
_SPACE = re.compile(r"\s")  # where str.split() splits
_KNOWN = _PUNCTUATION | frozenset("abcdefghijklmnopqrstuvwxyz")


class SentencePieceTokenizer(Tokenizer):
    """Cleaning, SentencePiece, and the digit-comma rule: the comma of a piece that ends in a digit and a
    comma becomes a token of its own.

    Args:
        model: bytes of a SentencePiece model file.
        cleaning: default: that of the vocabulary's family (ALBERT: lowercase, no accents; XLNet: cased, ``
            and '' become ").
        whole: added tokens, which are not split (`tokenizers.added_tokens`); those not in the model get the
            ids after its own.
        where: for error messages.

    Raises:
        TokenizerError: not a SentencePiece model, a damaged one, or one without the special tokens of ALBERT
            or XLNet.
    """

    kind = "sentencepiece"

    def __init__(
        self,
        model: bytes,
        cleaning: Cleaning | None = None,
        *,
        whole: Sequence[AddedToken] = (),
        where: object = None,
    ) -> None:
        self.model, self.whole = model, tuple(whole)
        self.proto = _read(model, where)
        special = _special_tokens(self.proto, where)
        xlnet = special == XLNET
        self.cleaning = cleaning or (XLNET_CLEANING if xlnet else Cleaning())
        pieces = [piece.text for piece in self.proto.pieces]
        super().__init__(
            list(dict.fromkeys([*pieces, *(token.content for token in self.whole)])),
            special,
            _fingerprint(model, self.cleaning, self.whole),
            cls_last=xlnet,
            other_special_ids=[i for i, p in enumerate(self.proto.pieces) if p.type is PieceType.CONTROL],
        )
        self._digit_comma = frozenset(i for i, piece in enumerate(self._tokens) if ends_in_digit_comma(piece))
        self._comma = self.piece_to_id(",")
        self._losing_comma = self._digit_comma | ({self.unk_id} if self._comma == self.unk_id else set())
        self._starts[[self._ids[token.content] for token in self.whole]] = True
        try:
            self._open()
        except ImportError:
            raise
        except Exception as error:  # the libraries raise various classes
            raise TokenizerError(
                f"is not a whole SentencePiece model ({error})", where=where, remedy="Copy it again"
            ) from error

    def _open(self) -> None:
        from sentencepiece import SentencePieceProcessor

        self._library = SentencePieceProcessor(model_proto=self.model)
        self._words = WordCache(self._encode_part)
        self._located = lru_cache(maxsize=1 << 15)(self._spans_of)
        self._by_words = self.proto.splits_at_spaces  # computed once: it looks at every piece
        splittable = self._by_words and not self.whole
        self._borders = _SPACE if splittable else None
        self._bulk = BatchEncoder(str.split if splittable else None, self._encode_parts)
        if self.whole:
            from albertine.tokenizers.fast import added_token_finder, sentencepiece_normalizer

            normalizer = sentencepiece_normalizer(self.cleaning, self.proto.charsmap)
            self._found = added_token_finder(self.whole, normalizer)

    def _encode(self, text: str) -> list[int]:
        if self._by_words:
            return list(chain.from_iterable(map(self._words.__getitem__, text.split())))
        return list(self._encode_part(text))

    def _encode_parts(self, parts: list[str]) -> list[Sequence[int]]:
        if self.whole:
            return [self.encode(part) for part in parts]
        clean = [self.cleaning(part) for part in parts]
        found: list[Sequence[int]] = self._library.encode(clean, num_threads=1)
        for i, text in enumerate(clean):
            if (self._comma == self.unk_id and "," in text) or not self._digit_comma.isdisjoint(found[i]):
                found[i] = self._encode_part(parts[i])  # the digit-comma rule
        return found

    def _encode_part(self, text: str) -> tuple[int, ...]:
        """Encode as the reference encodes a whole text; valid for single words too (see
        `splits_at_spaces`)."""
        clean = self.cleaning(text)
        ids: list[int] = self._library.encode(clean)
        if (self._comma == self.unk_id and "," in clean) or not self._digit_comma.isdisjoint(ids):
            pieces = self._library.encode(clean, out_type=str)
            ids = [self.piece_to_id(p) for piece in pieces for p in self._without_comma(piece)]
        return tuple(ids)

    def _without_comma(self, piece: str) -> list[str]:
        """The digit-comma rule for one piece."""
        if not ends_in_digit_comma(piece):
            return [piece]
        parts: list[str] = self._library.encode(piece[:-1].replace(SPACE, ""), out_type=str)
        if not piece.startswith(SPACE) and parts[0].startswith(SPACE):
            # encoded alone, a piece gets a word marker that it did not have
            parts = parts[1:] if parts[0] == SPACE else [parts[0][1:], *parts[1:]]
        return [*parts, ","]

    def _encode_spans(self, text: str) -> Spans:
        if not self._by_words:
            return self._spans_of(text).with_combining_marks(text)
        spans, end = Spans([], [], []), 0
        for word in text.split():
            start = text.index(word, end)
            end = start + len(word)
            ids, starts, ends = (self._located if len(word) <= MAX_CACHED_CHARACTERS else self._spans_of)(
                word
            )
            spans.ids.extend(ids)
            spans.starts.extend([start + place for place in starts])
            spans.ends.extend([start + place for place in ends])
        return spans.with_combining_marks(text)

    def _spans_of(self, part: str) -> Spans:
        clean, origins = self.cleaning.with_origins(part)
        data = clean.encode("utf-8")
        # for each byte of the clean text, the index of its source character in `part`
        if len(data) == len(clean):
            where = origins
        else:
            where = [origin for c, origin in zip(clean, origins, strict=True) for _ in range(_bytes(c))]
        where.append(len(part))
        record = self._library.encode(clean, out_type="serialized_proto")
        ids, starts, ends = spans = Spans([], [], [])
        for token, begin, end, text_begin, text_end in parse_encoded_text(record):
            while begin < end and data[begin] == 0x20:  # the space before a word is not part of its span
                begin += 1
            if token in self._losing_comma:
                self._add_parts(spans, record[text_begin:text_end].decode("utf-8"), token, where, begin, end)
                continue
            ids.append(token)
            starts.append(where[begin])
            ends.append(where[end - 1] + 1 if end > begin else where[begin])
        return spans

    def _add_parts(
        self, spans: Spans, piece: str, token: int, where: Sequence[int], begin: int, end: int
    ) -> None:
        """Append a piece to spans, split if the digit-comma rule applies.

        Args:
            where: source character of each byte.
            begin, end: bytes of the piece.
        """
        parts = self._without_comma(piece)
        for place, sub in enumerate(parts):
            last = place == len(parts) - 1
            stop = end if last else min(begin + len(sub.replace(SPACE, "").encode("utf-8")), end)
            spans.ids.append(token if len(parts) == 1 else self.piece_to_id(sub))
            spans.starts.append(where[begin])
            spans.ends.append(where[stop - 1] + 1 if stop > begin else where[begin])
            begin = stop

    def decode(self, ids: Iterable[int], *, skip_special: bool = True) -> str:
        """Readable text for token ids; special tokens are omitted, or written between spaces."""
        words: list[str] = []
        run: list[int] = []
        for token in ids:
            added = token >= len(self.proto.pieces)
            if token not in self.special_ids and not added:
                run.append(int(token))
                continue
            words.append(self._library.decode(run))
            run = []
            if added or not skip_special or token == self.unk_id:
                words.append(self.id_to_piece(token))
        words.append(self._library.decode(run))
        return " ".join(word for word in words if word)

    def check_can_save(self) -> None:
        from albertine.tokenizers.fast import check_sentencepiece

        check_sentencepiece(self.proto)

    def save(self, folder: str | Path) -> None:
        """Write `spiece.model`, `tokenizer.json` and `tokenizer_config.json`."""
        from albertine.tokenizers.fast import save_sentencepiece

        save_sentencepiece(self, self.model, self.proto, self.cleaning, self.whole, Path(folder))

    @staticmethod
    def _is_start(token: str) -> bool:
        """As in Google's `create_pretraining_data.py`: ▁…, <…, punctuation, or other than ASCII letters."""
        if token.startswith((SPACE, "<")) or token in _PUNCTUATION:
            return True
        return not all(c.lower() in _KNOWN for c in token)


def _bytes(character: str) -> int:
    """Length of a character in UTF-8."""
    code = ord(character)
    return 1 if code < 0x80 else 2 if code < 0x800 else 3 if code < 0x10000 else 4


def _read(model: bytes, where: object) -> ModelProto:
    try:
        proto = parse_model(model)
    except (ValueError, UnicodeDecodeError) as error:
        raise TokenizerError(
            f"is not a SentencePiece model ({error})",
            where=where,
            remedy="Give the .model file that `albertine tokenizer train` or spm_train wrote",
        ) from error
    texts = [piece.text for piece in proto.pieces]
    if len(set(texts)) != len(texts):
        raise TokenizerError(
            "holds the same piece twice", where=where, remedy="Train or fetch the model again"
        )
    return proto


def _special_tokens(proto: ModelProto, where: object) -> SpecialTokens:
    texts = {piece.text for piece in proto.pieces}
    for special in (ALBERT, XLNET):
        needed = vars(special).values()
        if texts.issuperset(needed):
            return special
    missing = ", ".join(piece for piece in vars(ALBERT).values() if piece not in texts)
    raise TokenizerError(
        f"lacks the tokens {missing}, which the model needs",
        where=where,
        remedy="Train one with `albertine tokenizer`, or spm_train with --pad_id and --control_symbols",
    )


def _fingerprint(model: bytes, cleaning: Cleaning, whole: tuple[AddedToken, ...]) -> str:
    more = {"whole": whole} if whole else {}
    settings = json.dumps({"kind": "sentencepiece", **vars(cleaning), **more}, sort_keys=True)
    return hashlib.sha256(settings.encode() + b"\0" + model).hexdigest()
