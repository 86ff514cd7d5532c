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

# The blocks that the library sets apart as Chinese characters: BERT's, but for U+2B820 to U+2B91F. Escaped:
# normalising this file would turn the first compatibility ideograph into an ordinary one, and the range with
# it into half of all scripts.
HAN = (
    r"\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    r"\U00020000-\U0002a6df\U0002a700-\U0002b81f\U0002b920-\U0002ceaf\U0002f800-\U0002fa1f"
)
_HAN_OR_REST = re.compile(f"[{HAN}]|[^ \\t\\n\\r\\u3000{HAN}]+")
_REST = re.compile("[^ \\t\\n\\r\\u3000]+")
_SPACE = re.compile("[ \\t\\n\\r\\u3000]")
_SPACE_OR_HAN = re.compile(f"[ \\t\\n\\r\\u3000{HAN}]")
# BERT parts words at each of these, whatever stands beside them
_MARKS = re.escape(string.punctuation)
_MARK_OR_REST = re.compile(f"[{_MARKS}]|[^{_MARKS}]+")
_LONG_WORD = re.compile(f"[A-Za-z0-9]{{{MAX_WORD_CHARACTERS + 1},}}")


class WordPieceTokenizer(Tokenizer):
    """Clean, set Chinese characters apart, lower, strip accents, split at punctuation, then longest match
    first.

    The rules are carried out by the `tokenizers` library; words and characters met before come from a
    dictionary.

    Args:
        pieces: the vocabulary in the order of ids.
        lower: small letters only.
        strip_accents: drop accents; None does so if `lower`, as in the original.
        chinese: each Chinese character is a word.
        whole: pieces of the vocabulary that are kept whole wherever a text has them
            (`tokenizers.added_tokens`).
        where: named in error messages.

    Raises:
        TokenizerError: a vocabulary that is empty, has duplicates or lacks a special piece.
    """

    kind = "wordpiece"

    def __init__(
        self,
        pieces: Sequence[str],
        *,
        lower: bool = True,
        strip_accents: bool | None = None,
        chinese: bool = True,
        whole: Sequence[AddedToken] = (),
        where: object = None,
    ) -> None:
        _check(pieces, where)
        self.lower, self.strip_accents, self.chinese = lower, strip_accents, chinese
        self.whole = tuple(whole)
        super().__init__(pieces, BERT, _fingerprint(pieces, lower, strip_accents, chinese, self.whole))
        # without BERT's rule for Chinese characters, a cut beside one would split words
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

    def encode(self, text: str) -> list[int]:
        """Token ids of a text, without special pieces. A lone surrogate in it counts as U+FFFD."""
        if not self.whole:
            return self._encode(text)
        parts = ([piece] if piece >= 0 else self._encode(part) for part, piece in self._parted(text))
        return list(chain.from_iterable(parts))

    def _encode(self, text: str) -> list[int]:
        return list(chain.from_iterable(map(self._words.__getitem__, self.parts(text))))

    def _encode_parts(self, parts: list[str]) -> list[Sequence[int]]:
        if self.whole:
            return [self.encode(part) for part in parts]
        short = [part for part in parts if len(part) <= MAX_CACHED_CHARACTERS]
        # in one call, which other threads do not wait for
        texts = [well_formed(part) for part in short]
        found = iter(self._library.encode_batch(texts, add_special_tokens=False))
        return [
            next(found).ids if len(part) <= MAX_CACHED_CHARACTERS else self._encode_part(part)
            for part in parts
        ]

    def parts(self, text: str) -> list[str]:
        """The text cut at spaces and around Chinese characters, so that each part can be encoded alone."""
        # str.split also cuts at \x0b, \x0c and \x1c-\x1f, which BERT deletes instead: no cut there
        plain = text.isascii() and text.isprintable()
        return text.split() if plain else self._parts.findall(text)

    def words(self, text: str) -> list[str]:
        """The words that are looked up in the vocabulary: cleaned, lowered, split at punctuation."""
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
        """A part, with places in it, that has no more marks at which it could be cut."""
        if _LONG_WORD.fullmatch(part):
            return Spans([self.unk_id], [0], [len(part)])
        from albertine.tokenizers.fast import library_encode

        return _spans(library_encode(self._library, part))

    def encode_spans(self, text: str) -> Spans:
        """The ids of `encode` with the characters of the given text that each token came from."""
        if not self.whole:
            return self._encode_spans(text)
        return self._joined_spans(text)

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
        """Readable text for token ids: no space beside Chinese characters and marks, before closing
        punctuation, behind the point of a decimal nor inside straight double quotes, which open and close in
        turn."""
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
        """The vocabulary in the order of ids."""
        return self._pieces

    @staticmethod
    def _is_start(piece: str) -> bool:
        return not piece.startswith("##")


def _spans(found: Any) -> Spans:
    """Of what the library encoded."""
    starts, ends = zip(*found.offsets, strict=True) if found.offsets else ((), ())
    return Spans(found.ids, list(starts), list(ends))


_WIDE = re.compile(f"[{HAN}\u3000-\u303f\uff00-\uffef]")
_CLOSING = frozenset(".,!?;:)]}%'”’…—·")
_POINT = re.compile(r"(?<!\d)\d{1,3}\.$")
_OPENING = frozenset("([{“‘—·")


def _is_spaced(text: str, piece: str, quoted: bool) -> bool:
    """Whether a space parts a piece from the text before it; `quoted`: a quotation is open there."""
    before = text[-1]
    if _WIDE.match(before) or _WIDE.match(piece) or piece in _CLOSING or before in _OPENING:
        return False
    if before == "." and piece[0].isdigit() and _POINT.search(text):
        return False  # 3.14, and not a year that ends a sentence
    return not (quoted and '"' in (before, piece))


def _check(pieces: Sequence[str], where: object) -> None:
    missing = [piece for piece in vars(BERT).values() if piece not in pieces]
    if missing:
        raise TokenizerError(
            f"is a vocabulary without {', '.join(missing)}",
            where=where,
            remedy="Use the vocab.txt that belongs to the model, one piece a line",
        )
    if len(set(pieces)) != len(pieces):
        seen: dict[str, int] = {}
        for line, piece in enumerate(pieces, start=1):
            if piece in seen:
                raise TokenizerError(
                    f"holds {piece!r} twice, in lines {seen[piece]} and {line}, so ids are not clear",
                    where=where,
                    remedy="Use the vocab.txt that belongs to the model, unchanged",
                )
            seen[piece] = line


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
