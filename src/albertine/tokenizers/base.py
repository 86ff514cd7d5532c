"""What every tokenizer can do, whatever its vocabulary: encode, lay out, pad, decode, save."""

from __future__ import annotations

import re
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from albertine.core.dataframes import is_table
from albertine.errors import TokenizerError
from albertine.tokenizers.word_cache import BatchEncoder

Padding = bool | Literal["longest", "max_length"]
Pair = tuple[str, str]

CLS_SEGMENT, PAD_SEGMENT = 2, 3
"""Where [CLS] is last. A separator has the segment of the text before it, as in XLNet's reference, whose
SEG_ID_SEP is never used (classifier_utils.py, run_squad.py)."""
MODEL_FILE, VOCABULARY_FILE = "spiece.model", "vocab.txt"
MAX_WORD_CHARACTERS = 100
"""Characters of a word of WordPiece; longer ones are unknown. The value of transformers; Google's 200 differs
for no real word."""
CHARACTERS_PER_TOKEN = 8
"""More than most texts have; only the time of `head` and `tail` depends on it."""
_HANDLES = ("_library", "_words", "_located", "_bulk", "_found")  # made anew in another process


@dataclass(frozen=True)
class SpecialTokens:
    """How the five special pieces are written in the vocabulary."""

    pad: str
    unk: str
    cls: str
    sep: str
    mask: str


class Spans(NamedTuple):
    """Tokens and where they stand in the text: character `starts[i]` up to but not including `ends[i]`."""

    ids: list[int]
    starts: list[int]
    ends: list[int]

    def with_combining_marks(self, text: str) -> Spans:
        """The same, where a token ends behind the combining marks of its last character, which cleaning takes
        away: a name that ends in one is that of its tokens."""
        if text.isascii():
            return self
        ends = list(self.ends)
        for token, (start, end) in enumerate(zip(self.starts, self.ends, strict=True)):
            limit = self.starts[token + 1] if token + 1 < len(ends) else len(text)
            while start < end < limit and _is_mark(text[end]):
                end += 1
            ends[token] = end
        return Spans(self.ids, self.starts, ends)


def _is_mark(character: str) -> bool:
    """Whether cleaning takes a character away: ALBERT's by its combining class, BERT's by its category."""
    return unicodedata.combining(character) > 0 or unicodedata.category(character) == "Mn"


class Tokenizer(ABC):
    """Text to token ids and back. Made by `load_tokenizer`.

    `encode`, `encode_batch` and the two methods with offsets treat the text as nothing but text: "[MASK]" in
    a corpus is five characters in brackets, as in the reference code. Calling the tokenizer prepares model
    input and does what users of fill-mask expect: there a special piece written in the text is that piece.

    Attributes:
        kind: "sentencepiece", "wordpiece" or "byte-level".
        vocab_size: number of pieces.
        pad_id, unk_id, cls_id, sep_id, mask_id: ids of the special pieces.
        special_ids: these five and every other id that no text encodes to (control pieces).
        fingerprint: SHA-256 over the vocabulary and every setting that changes ids.
        between: separators between two texts of a row. segments: whether the second is of another segment.
        cls_last: XLNet's layout: A [SEP] B [SEP] [CLS], the last in segment 2, padding on the left in segment
            3.
    """

    kind: str
    between: ClassVar[int] = 1
    segments: ClassVar[bool] = True
    _borders: re.Pattern[str] | None
    """Where a text can be cut so that both parts have the ids that they have together; None: nowhere."""
    _bulk: BatchEncoder
    _found: Callable[[str], list[tuple[int, int, str]]]

    def __init__(
        self,
        pieces: Sequence[str],
        special: SpecialTokens,
        fingerprint: str,
        *,
        cls_last: bool = False,
        more_special: Iterable[int] = (),
    ) -> None:
        self._pieces = tuple(pieces)
        self._ids = {piece: i for i, piece in enumerate(self._pieces)}
        self.special, self.fingerprint, self.cls_last = special, fingerprint, cls_last
        self.vocab_size = len(self._pieces)
        self.pad_id, self.unk_id = self._ids[special.pad], self._ids[special.unk]
        self.cls_id, self.sep_id, self.mask_id = (
            self._ids[p] for p in (special.cls, special.sep, special.mask)
        )
        five = (self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id)
        self.special_ids: frozenset[int] = frozenset(five) | frozenset(more_special)
        written = sorted((self._pieces[i] for i in self.special_ids), key=len, reverse=True)
        self._written_special = re.compile("(" + "|".join(map(re.escape, written)) + ")")
        self._starts = np.array([self._is_start(p) for p in self._pieces], dtype=np.bool_)
        self._starts[sorted(self.special_ids)] = True

    @abstractmethod
    def _open(self) -> None:
        """Make the handles, here or in another process."""

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k not in _HANDLES}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._open()

    @property
    def lead(self) -> int:
        """How many special pieces stand before a text that is alone in its row: [CLS], unless it is last."""
        return 0 if self.cls_last else 1

    @abstractmethod
    def encode(self, text: str) -> list[int]:
        """Token ids of a text, without special pieces. A lone surrogate in it counts as U+FFFD."""

    def head(self, text: str, tokens: int) -> str:
        """A beginning of a text whose first ids, so many of them, are those of the whole text: what is enough
        of a text that will be cut on the right. The whole text, where it is short or cannot be cut."""
        return self._end(text, tokens, left=False)

    def tail(self, text: str, tokens: int) -> str:
        """As `head`, an end of a text with its last ids."""
        return self._end(text, tokens, left=True)

    def _end(self, text: str, tokens: int, *, left: bool) -> str:
        size = CHARACTERS_PER_TOKEN * (tokens + 1)
        while self._borders is not None and size < len(text):
            found = self._borders.search(text, len(text) - size if left else size)
            if found is None:  # no border up to the end
                if not left:
                    break
                part = ""
            else:
                part = text[found.start() :] if left else text[: found.start()]
            if len(self.encode(part)) >= tokens:
                return part
            size *= 4
        return text

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """`encode` for many texts."""
        encode = self.encode
        return [encode(text) for text in texts]

    def encode_flat(self, texts: Sequence[str]) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64]]:
        """The ids of `encode` for many texts end to end, and how many each text has; the fastest way."""
        return self._bulk(texts)

    @abstractmethod
    def encode_spans(self, text: str) -> Spans:
        """The ids of `encode` with the characters of the given text that each token came from.

        A token that stands for nothing visible (a lone space marker) has an empty span.
        """

    def _parted(self, text: str) -> Iterator[tuple[str, int]]:
        """The text in parts, each with the id of the added piece that it is; -1: none."""
        end = 0
        for start, stop, name in self._found(text):
            yield text[end:start], -1
            yield text[start:stop], self._ids[name]
            end = stop
        yield text[end:], -1

    def _joined_spans(self, text: str) -> Spans:
        """`encode_spans` where pieces are kept whole."""
        spans, begin = Spans([], [], []), 0
        for part, piece in self._parted(text):
            ids, starts, ends = self._encode_spans(part) if piece < 0 else ([piece], [0], [len(part)])
            spans.ids.extend(ids)
            spans.starts.extend([begin + place for place in starts])
            spans.ends.extend([begin + place for place in ends])
            begin += len(part)
        return spans

    @abstractmethod
    def _encode_spans(self, text: str) -> Spans:
        """`encode_spans` of a text without added pieces."""

    def encode_with_offsets(self, text: str) -> tuple[list[int], list[int]]:
        """The ids of `encode` and, for each, the character of the given text at which it begins."""
        ids, starts, _ = self.encode_spans(text)
        return ids, starts

    @abstractmethod
    def decode(self, ids: Iterable[int], *, skip_special: bool = True) -> str:
        """Readable text for token ids. What cleaning took away (capitals, accents, spacing) stays away."""

    def check_can_save(self) -> None:  # noqa: B027  # most can
        """Whoever will save it at the end of hours asks before.

        Raises:
            TokenizerError: `save` would refuse.
        """

    @abstractmethod
    def save(self, folder: str | Path) -> None:
        """Write the tokenizer so that `load_tokenizer` and transformers' AutoTokenizer give the same ids."""

    @staticmethod
    @abstractmethod
    def _is_start(piece: str) -> bool:
        """Whether a piece begins a word, by its spelling alone."""

    def id_to_piece(self, token: int) -> str:
        """The piece with this id, spelled as in the vocabulary."""
        if not 0 <= token < self.vocab_size:
            raise TokenizerError(f"there is no token {token}; ids run from 0 to {self.vocab_size - 1}")
        return self._pieces[token]

    def piece_to_id(self, piece: str) -> int:
        """The id of a piece; the unknown id if the vocabulary lacks it."""
        return self._ids.get(piece, self.unk_id)

    def word_starts(self, ids: Sequence[int] | npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.bool_]:
        """Which tokens begin a word, (T,) boolean. Special pieces do."""
        marks: npt.NDArray[np.bool_] = self._starts[np.asarray(ids, dtype=np.int64)]
        return marks

    def __len__(self) -> int:
        return self.vocab_size

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.vocab_size:,} pieces, fingerprint {self.fingerprint[:12]})"

    def encode_with_special_tokens(self, text: str) -> list[int]:
        """`encode`, but special pieces written in the text, such as [MASK], become those pieces."""
        parts = self._written_special.split(text)
        if len(parts) == 1:
            return self.encode(text)
        ids: list[int] = []
        for part, special in zip_longest(parts[::2], parts[1::2], fillvalue=""):
            ids.extend(self.encode(self._before(part, special)))
            if special:
                ids.append(self._ids[special])
        return ids

    def encode_spans_with_special_tokens(self, text: str) -> Spans:
        """The ids of `encode_with_special_tokens` with the characters of the text that each came from."""
        found, begin = Spans([], [], []), 0
        parts = self._written_special.split(text)
        for part, special in zip_longest(parts[::2], parts[1::2], fillvalue=""):
            own = self.encode_spans(self._before(part, special))
            found.ids.extend(own.ids)
            found.starts.extend(begin + start for start in own.starts)
            found.ends.extend(begin + end for end in own.ends)
            begin += len(part)
            if special:
                found.ids.append(self._ids[special])
                found.starts.append(begin)
                begin += len(special)
                found.ends.append(begin)
        return found

    def _before(self, text: str, special: str) -> str:
        """The text between two special pieces as it is encoded; `special` is the one behind it, empty at the
        end of all."""
        return text

    def layout(
        self, a: Sequence[int], b: Sequence[int] | None = None, *, max_length: int | None = None
    ) -> tuple[list[int], list[int]]:
        """Token ids and segment ids of one model input: [CLS] A [SEP] or [CLS] A [SEP] B [SEP], XLNet's
        A [SEP] [CLS] or A [SEP] B [SEP] [CLS], or RoBERTa's <s> A </s> or <s> A </s> </s> B </s>.

        Args:
            a, b: ids without special pieces.
            max_length: whole length allowed; the longer of A and B loses tokens from its end until all fits.
        """
        a, b = list(a), (None if b is None else list(b))
        if max_length is not None:
            room = max_length - (2 if b is None else 2 + self.between)
            if room < 1:
                raise TokenizerError(
                    f"max_length {max_length} leaves no room for text",
                    remedy=f"Allow at least {3 + self.between}",
                )
            a, b = truncate(a, b, room)
        ids, segments = [*a, self.sep_id], [0] * (len(a) + 1)
        if b is not None:
            second = [*[self.sep_id] * (self.between - 1), *b, self.sep_id]
            ids, segments = [*ids, *second], [*segments, *([int(self.segments)] * len(second))]
        if self.cls_last:
            return [*ids, self.cls_id], [*segments, CLS_SEGMENT]
        return [self.cls_id, *ids], [0, *segments]

    def __call__(
        self,
        text: str | Sequence[str] | Sequence[Pair],
        pair: str | Sequence[str] | None = None,
        *,
        max_length: int | None = None,
        padding: Padding = False,
        return_tensors: Literal["pt", "np"] | None = None,
    ) -> dict[str, Any]:
        """Model input: `input_ids`, `attention_mask` and `token_type_ids`, always all three.

        Args:
            text: one text, a list of texts, or a list of (text, pair) tuples.
            pair: the second segment of `text`, or a list of them, one for each.
            max_length: longest input in tokens, special pieces included; longer ones lose tokens of the
                longer segment, from its end. None: no limit.
            padding: True or "longest" pads to the longest input, "max_length" to `max_length`. Tensors are
                always padded, since they have to be rectangular.
            return_tensors: "pt" for torch (B, L) int64, "np" for numpy, None for lists; one text alone then
                gives flat lists.

        Raises:
            TokenizerError: lists of different length, not text, or a length without room for text.
        """
        single = isinstance(text, str)
        rows = [
            self.layout(
                self.encode_with_special_tokens(a),
                None if b is None else self.encode_with_special_tokens(b),
                max_length=max_length,
            )
            for a, b in _pairs(text, pair)
        ]
        width = None
        if padding == "max_length":
            if max_length is None:
                raise TokenizerError('padding="max_length" needs max_length')
            width = max_length
        elif padding or return_tensors:
            width = max((len(ids) for ids, _ in rows), default=0)
        result = self._pad(rows, width)
        if return_tensors == "np":
            return {name: np.array(value, dtype=np.int64) for name, value in result.items()}
        if return_tensors == "pt":
            import torch

            return {name: torch.tensor(value, dtype=torch.long) for name, value in result.items()}
        if return_tensors is not None:
            raise TokenizerError(f"there are no `{return_tensors}` tensors", remedy='Use "pt", "np" or None')
        return {name: value[0] for name, value in result.items()} if single else result

    def _pad(self, rows: list[tuple[list[int], list[int]]], width: int | None) -> dict[str, list[list[int]]]:
        result: dict[str, list[list[int]]] = {"input_ids": [], "attention_mask": [], "token_type_ids": []}
        for ids, segments in rows:
            gap = 0 if width is None else width - len(ids)
            fill = {
                "input_ids": self.pad_id,
                "attention_mask": 0,
                "token_type_ids": PAD_SEGMENT if self.cls_last else 0,
            }
            values = {"input_ids": ids, "attention_mask": [1] * len(ids), "token_type_ids": segments}
            for name, value in values.items():
                padding = [fill[name]] * gap
                result[name].append(padding + value if self.cls_last else value + padding)
        return result


def truncate(a: list[int], b: list[int] | None, room: int) -> tuple[list[int], list[int] | None]:
    if b is None:
        return a[:room], None
    keep_a, keep_b = len(a), len(b)
    while keep_a + keep_b > room:
        if keep_a > keep_b:
            keep_a -= 1
        else:
            keep_b -= 1
    return a[:keep_a], b[:keep_b]


def _pairs(
    text: str | Sequence[str] | Sequence[Pair], pair: str | Sequence[str] | None
) -> list[tuple[str, str | None]]:
    """The texts as (text, pair or None), whatever shape they came in.

    Raises:
        TokenizerError: they are a table, whose names of columns would be the texts, or nothing of the kind.
    """
    for given in (text, pair) if pair is not None else (text,):
        if not isinstance(given, Iterable) or is_table(given):
            remedy = "Give a text, a list of them, or the values of one column of a table"
            raise TokenizerError(f"a {type(given).__name__} is no list of texts", remedy=remedy)
    found: list[tuple[Any, Any]]
    if isinstance(text, str):
        if pair is not None and not isinstance(pair, str):
            raise TokenizerError(
                "one text cannot have a list as its pair", remedy="Give two texts or two lists"
            )
        found = [(text, pair)]
    elif pair is None:
        found = [tuple(t) if isinstance(t, (tuple, list)) else (t, None) for t in text]  # type: ignore[misc]
    else:
        if isinstance(pair, str) or len(pair) != len(text):
            raise TokenizerError("texts and pairs differ in number", remedy="Give one pair for each text")
        found = list(zip(text, pair, strict=True))
    for number, item in enumerate(found):
        if len(item) != 2 or not isinstance(item[0], str) or not isinstance(item[1], str | None):
            what = f"{item!r:.80} is not a text or a pair of texts"
            raise TokenizerError(what, where=f"texts[{number}]", remedy="Give strings")
    return found
