"""The WordPiece tokenizer of BERT and of every Chinese ALBERT (`google-research/bert:tokenization.py`)."""

from __future__ import annotations

import hashlib
import json
import re
import string
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any

from albertine.errors import TokenizerError
from albertine.text.cleaning import well_formed
from albertine.tokenizers.added_tokens import AddedToken
from albertine.tokenizers.base import MAX_WORD_CHARACTERS, Spans, SpecialTokens, Tokenizer
from albertine.tokenizers.word_cache import MAX_CACHED_CHARACTERS, BatchEncoder, WordCache

BERT = SpecialTokens("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")

# The blocks that the library treats as Chinese characters: BERT's without U+2B820 to U+2B91F. Escaped, since
# Unicode normalisation of this file would change the first compatibility ideograph and with it the range.
HAN = (
    r"\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    r"\U00020000-\U0002a6df\U0002a700-\U0002b81f\U0002b920-\U0002ceaf\U0002f800-\U0002fa1f"
)
_HAN_OR_REST = re.compile(f"[{HAN}]|[^ \\t\\n\\r\\u3000{HAN}]+")
_REST = re.compile("[^ \\t\\n\\r\\u3000]+")
_SPACE = re.compile("[ \\t\\n\\r\\u3000]")
_SPACE_OR_HAN = re.compile(f"[ \\t\\n\\r\\u3000{HAN}]")
# BERT splits words at each of these
_MARKS = re.escape(string.punctuation)
_MARK_OR_REST = re.compile(f"[{_MARKS}]|[^{_MARKS}]+")
_LONG_WORD = re.compile(f"[A-Za-z0-9]{{{MAX_WORD_CHARACTERS + 1},}}")


class WordPieceTokenizer(Tokenizer):
    """Clean, split Chinese characters, lowercase, strip accents, split at punctuation, then longest match
    first.

    The `tokenizers` library does this; known words come from a cache.

    Args:
        vocabulary: tokens in the order of ids.
        lower: lowercase text.
        strip_accents: default: if `lower`, as in the original.
        chinese: each Chinese character is a word.
        whole: added tokens of the vocabulary, which are not split (`tokenizers.added_tokens`).
        where: for error messages.

    Raises:
        TokenizerError: a vocabulary that is empty, has duplicates or lacks a special token.
    """

    kind = "wordpiece"

    def __init__(
        self,
        vocabulary: Sequence[str],
        *,
        lower: bool = True,
        strip_accents: bool | None = None,
        chinese: bool = True,
        whole: Sequence[AddedToken] = (),
        where: object = None,
    ) -> None:
        _check(vocabulary, where)
        self.lower, self.strip_accents, self.chinese = lower, strip_accents, chinese
        self.whole = tuple(whole)
        super().__init__(
            vocabulary, BERT, _fingerprint(vocabulary, lower, strip_accents, chinese, self.whole)
        )
        # without BERT's rule for Chinese characters they are parts of words
        self._parts = _HAN_OR_REST if chinese else _REST
        self._open()

    def _open(self) -> None:
        from albertine.tokenizers.fast import (
            TextRules,
            added_token_finder,
            bert_normalizer,
            wordpiece_backend,
        )

        rules = TextRules(self.lower, self.strip_accents, self.chinese)
        self._library = wordpiece_backend(self.pieces, self.special.unk, rules)
        self._words = WordCache(self._encode_part)
        self._borders = None if self.whole else _SPACE_OR_HAN if self.chinese else _SPACE
        self._located = lru_cache(maxsize=1 << 15)(self._spans_of)
        self._bulk = BatchEncoder(None if self.whole else self.parts, self._encode_parts)
        if self.whole:
            self._found = added_token_finder(self.whole, bert_normalizer(rules))

    def _encode(self, text: str) -> list[int]:
        return list(chain.from_iterable(map(self._words.__getitem__, self.parts(text))))

    def _encode_parts(self, parts: list[str]) -> list[Sequence[int]]:
        if self.whole:
            return [self.encode(part) for part in parts]
        short = [part for part in parts if len(part) <= MAX_CACHED_CHARACTERS]
        # in one call, which releases the GIL
        texts = [well_formed(part) for part in short]
        found = iter(self._library.encode_batch(texts, add_special_tokens=False))
        return [
            next(found).ids if len(part) <= MAX_CACHED_CHARACTERS else self._encode_part(part)
            for part in parts
        ]

    def parts(self, text: str) -> list[str]:
        """Split a text at spaces and around Chinese characters into parts that can be encoded separately."""
        # str.split also splits at \x0b, \x0c and \x1c-\x1f, which BERT deletes
        plain = text.isascii() and text.isprintable()
        return text.split() if plain else self._parts.findall(text)

    def words(self, text: str) -> list[str]:
        """The words of a text after cleaning, lowercasing and splitting at punctuation."""
        clean = self._library.normalizer.normalize_str(text)
        return [word for word, _ in self._library.pre_tokenizer.pre_tokenize_str(clean)]

    def _encode_part(self, part: str) -> tuple[int, ...]:
        if len(part) <= MAX_CACHED_CHARACTERS:
            return tuple(self._library.encode(well_formed(part), add_special_tokens=False).ids)
        cuts = _MARK_OR_REST.findall(part)
        if len(cuts) > 1:
            return tuple(chain.from_iterable(map(self._words.__getitem__, cuts)))
        return tuple(self._encode_long(part).ids)

    def _encode_long(self, part: str) -> Spans:
        """Encode a part without punctuation at which it could be split."""
        if _LONG_WORD.fullmatch(part):
            return Spans([self.unk_id], [0], [len(part)])
        from albertine.tokenizers.fast import library_encode

        return _spans(library_encode(self._library, part))

    def _encode_spans(self, text: str) -> Spans:
        ids, starts, ends = spans = Spans([], [], [])
        for match in self._parts.finditer(text):
            part, begin = match[0], match.start()
            if len(part) <= MAX_CACHED_CHARACTERS:
                found = self._located(part)
                ids += found.ids
                starts += [begin + place for place in found.starts]
                ends += [begin + place for place in found.ends]
                continue
            for cut in _MARK_OR_REST.finditer(part):
                at = begin + cut.start()
                found = (
                    self._located(cut[0])
                    if len(cut[0]) <= MAX_CACHED_CHARACTERS
                    else self._encode_long(cut[0])
                )
                ids += found.ids
                starts += [at + place for place in found.starts]
                ends += [at + place for place in found.ends]
        return spans.with_combining_marks(text)

    def _spans_of(self, part: str) -> Spans:
        return _spans(self._library.encode(well_formed(part), add_special_tokens=False))

    def decode(self, ids: Iterable[int], *, skip_special: bool = True) -> str:
        """Readable text for token ids: without spaces beside Chinese characters and punctuation, before
        closing punctuation, after a decimal point, and inside straight double quotes, which open and close
        alternately."""
        hidden = self.special_ids - {self.unk_id} if skip_special else frozenset()
        text, quoted = "", False
        for token in ids:
            if token in hidden:
                continue
            piece = self.id_to_piece(int(token))
            if piece.startswith("##"):
                text += piece[2:]
            elif text and piece and _is_spaced(text, piece, quoted):
                text += " " + piece
            else:
                text += piece
            quoted ^= piece == '"'
        return text

    def save(self, folder: str | Path) -> None:
        """Write `vocab.txt`, `tokenizer.json` and `tokenizer_config.json`."""
        from albertine.tokenizers.fast import TextRules, save_wordpiece

        rules = TextRules(self.lower, self.strip_accents, self.chinese)
        save_wordpiece(self, self.pieces, rules, self.whole, Path(folder))

    @property
    def pieces(self) -> tuple[str, ...]:
        """The tokens in the order of ids."""
        return self._tokens

    @staticmethod
    def _is_start(token: str) -> bool:
        return not token.startswith("##")


def _spans(found: Any) -> Spans:
    """The spans in an encoding of the library."""
    starts, ends = zip(*found.offsets, strict=True) if found.offsets else ((), ())
    return Spans(found.ids, list(starts), list(ends))


_WIDE = re.compile(f"[{HAN}\u3000-\u303f\uff00-\uffef]")
_CLOSING = frozenset(".,!?;:)]}%'”’…—·")
_POINT = re.compile(r"(?<!\d)\d{1,3}\.$")
_OPENING = frozenset("([{“‘—·")


def _is_spaced(text: str, piece: str, quoted: bool) -> bool:
    """Whether `decode` puts a space before a token; `quoted`: inside a quotation."""
    before = text[-1]
    if _WIDE.match(before) or _WIDE.match(piece) or piece in _CLOSING or before in _OPENING:
        return False
    if before == "." and piece[0].isdigit() and _POINT.search(text):
        return False  # 3.14, but not after a year that ends a sentence
    return not (quoted and '"' in (before, piece))


def _check(vocabulary: Sequence[str], where: object) -> None:
    missing = [token for token in vars(BERT).values() if token not in vocabulary]
    if missing:
        raise TokenizerError(
            f"is a vocabulary without {', '.join(missing)}",
            where=where,
            remedy="Use the vocab.txt that belongs to the model, one token a line",
        )
    if len(set(vocabulary)) != len(vocabulary):
        seen: dict[str, int] = {}
        for line, token in enumerate(vocabulary, start=1):
            if token in seen:
                raise TokenizerError(
                    f"holds {token!r} twice, in lines {seen[token]} and {line}, so ids are not clear",
                    where=where,
                    remedy="Use the vocab.txt that belongs to the model, unchanged",
                )
            seen[token] = line


def _fingerprint(
    pieces: Sequence[str],
    lower: bool,
    strip_accents: bool | None,
    chinese: bool,
    whole: tuple[AddedToken, ...],
) -> str:
    settings = {
        "kind": "wordpiece",
        "lower": lower,
        "strip_accents": lower if strip_accents is None else strip_accents,
        "chinese": chinese,
        **({"whole": sorted(whole)} if whole else {}),
    }
    return hashlib.sha256(
        json.dumps(settings, sort_keys=True).encode() + "\n".join(["", *pieces]).encode()
    ).hexdigest()
