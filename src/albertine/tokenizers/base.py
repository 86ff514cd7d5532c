"""Base class of the tokenizers: encode, build model inputs, pad, decode, save."""

from __future__ import annotations

import re
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from albertine.core.dataframes import is_table
from albertine.errors import TokenizerError
from albertine.tokenizers.added_tokens import AddedToken
from albertine.tokenizers.word_cache import BatchEncoder

Padding = bool | Literal["longest", "max_length"]
Pair = tuple[str, str]

CLS_SEGMENT, PAD_SEGMENT = 2, 3
"""Segment ids of XLNet's layout. A separator has the segment of the text before it, as in XLNet's reference,
which never uses its SEG_ID_SEP (classifier_utils.py, run_squad.py)."""
MODEL_FILE, VOCABULARY_FILE = "spiece.model", "vocab.txt"
MAX_WORD_CHARACTERS = 100
"""Longer words are unknown to WordPiece. The value of transformers; Google's 200 makes no difference for real
words."""
CHARACTERS_PER_TOKEN = 8
"""An upper estimate; only the speed of `head` and `tail` depends on it."""
_HANDLES = ("_library", "_words", "_located", "_bulk", "_found")  # not pickled; created again by `_open`


@dataclass(frozen=True)
class SpecialTokens:
    """The five special tokens as written in the vocabulary."""

    pad: str
    unk: str
    cls: str
    sep: str
    mask: str


class Spans(NamedTuple):
    """Token ids with the character span `starts[i]:ends[i]` of each in the text."""

    ids: list[int]
    starts: list[int]
    ends: list[int]

    def with_combining_marks(self, text: str) -> Spans:
        """Extend each token over the combining marks after its last character, which cleaning removes, so
        that spans of words include them."""
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
    """Whether cleaning removes a character: ALBERT's by combining class, BERT's by category."""
    return unicodedata.combining(character) > 0 or unicodedata.category(character) == "Mn"


class Tokenizer(ABC):
    """Text to token ids and back. Made by `load_tokenizer`.

    `encode`, `encode_batch` and the methods with offsets do not recognise special tokens: "[MASK]" in a
    corpus is ordinary text, as in the reference code. Calling the tokenizer builds model inputs and, as users
    of fill-mask expect, does recognise special tokens written in the text.

    Attributes:
        kind: "sentencepiece", "wordpiece" or "byte-level".
        vocab_size: number of tokens.
        pad_id, unk_id, cls_id, sep_id, mask_id: ids of the special tokens.
        special_ids: these five and every other id that no text encodes to (control pieces of SentencePiece).
        fingerprint: SHA-256 over the vocabulary and every setting that changes ids.
        between: number of separators between two texts of an input.
        segments: whether the second text has segment id 1, else 0.
        cls_last: XLNet's layout A [SEP] B [SEP] [CLS], with [CLS] in segment 2 and padding on the left in
            segment 3.
        whole: added tokens, kept whole wherever a text has them.
    """

    kind: str
    between: ClassVar[int] = 1
    segments: ClassVar[bool] = True
    whole: tuple[AddedToken, ...] = ()
    _borders: re.Pattern[str] | None
    """Positions at which a text can be split without changing its ids; None: there are none."""
    _bulk: BatchEncoder
    _found: Callable[[str], list[tuple[int, int, str]]]

    def __init__(
        self,
        tokens: Sequence[str],
        special: SpecialTokens,
        fingerprint: str,
        *,
        cls_last: bool = False,
        other_special_ids: Iterable[int] = (),
    ) -> None:
        self._tokens = tuple(tokens)
        self._ids = {token: i for i, token in enumerate(self._tokens)}
        self.special, self.fingerprint, self.cls_last = special, fingerprint, cls_last
        self.vocab_size = len(self._tokens)
        self.pad_id, self.unk_id = self._ids[special.pad], self._ids[special.unk]
        self.cls_id, self.sep_id, self.mask_id = (
            self._ids[p] for p in (special.cls, special.sep, special.mask)
        )
        five = (self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id)
        self.special_ids: frozenset[int] = frozenset(five) | frozenset(other_special_ids)
        written = sorted((self._tokens[i] for i in self.special_ids), key=len, reverse=True)
        self._written_special = re.compile("(" + "|".join(map(re.escape, written)) + ")")
        self._starts = np.array([self._is_start(p) for p in self._tokens], dtype=np.bool_)
        self._starts[sorted(self.special_ids)] = True

    @abstractmethod
    def _open(self) -> None:
        """Create the attributes of `_HANDLES`, at construction and after unpickling."""

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k not in _HANDLES}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._open()

    @property
    def lead(self) -> int:
        """Number of special tokens before a single text: 1 for [CLS], 0 with `cls_last`."""
        return 0 if self.cls_last else 1

    def encode(self, text: str) -> list[int]:
        """Token ids of a text, without special tokens. Lone surrogates count as U+FFFD."""
        if not self.whole:
            return self._encode(text)
        parts = ([token] if token >= 0 else self._encode(part) for part, token in self._split_added(text))
        return list(chain.from_iterable(parts))

    @abstractmethod
    def _encode(self, text: str) -> list[int]:
        """`encode` of a text without added tokens."""

    def head(self, text: str, tokens: int) -> str:
        """A prefix of a text with the same first `tokens` ids as the whole text, so that a text to be
        truncated need not be encoded whole. The text itself if it is short or cannot be split."""
        return self._end(text, tokens, left=False)

    def tail(self, text: str, tokens: int) -> str:
        """As `head`: a suffix with the same last ids."""
        return self._end(text, tokens, left=True)

    def _end(self, text: str, tokens: int, *, left: bool) -> str:
        size = CHARACTERS_PER_TOKEN * (tokens + 1)
        while self._borders is not None and size < len(text):
            found = self._borders.search(text, len(text) - size if left else size)
            if found is None:  # no position up to the end
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
        """The ids of `encode` for many texts end to end, and the number of ids of each; the fastest way."""
        return self._bulk(texts)

    def encode_spans(self, text: str) -> Spans:
        """The ids of `encode` with their character spans in the text.

        A token without visible characters (a lone space marker) has an empty span.
        """
        if not self.whole:
            return self._encode_spans(text)
        spans, begin = Spans([], [], []), 0
        for part, token in self._split_added(text):
            ids, starts, ends = self._encode_spans(part) if token < 0 else ([token], [0], [len(part)])
            spans.ids.extend(ids)
            spans.starts.extend([begin + place for place in starts])
            spans.ends.extend([begin + place for place in ends])
            begin += len(part)
        return spans

    def _split_added(self, text: str) -> Iterator[tuple[str, int]]:
        """Split a text at added tokens; each part with the id of the added token that it is, or -1."""
        end = 0
        for start, stop, name in self._found(text):
            yield text[end:start], -1
            yield text[start:stop], self._ids[name]
            end = stop
        yield text[end:], -1

    @abstractmethod
    def _encode_spans(self, text: str) -> Spans:
        """`encode_spans` of a text without added tokens."""

    def encode_with_offsets(self, text: str) -> tuple[list[int], list[int]]:
        """The ids of `encode` and the index of the first character of each."""
        ids, starts, _ = self.encode_spans(text)
        return ids, starts

    @abstractmethod
    def decode(self, ids: Iterable[int], *, skip_special: bool = True) -> str:
        """Readable text for token ids. Capitals, accents and spacing removed by cleaning are lost."""

    def check_can_save(self) -> None:  # noqa: B027  # not abstract: most tokenizers can be saved
        """Check before a long run that `save` will succeed.

        Raises:
            TokenizerError: `save` would raise.
        """

    @abstractmethod
    def save(self, folder: str | Path) -> None:
        """Write the tokenizer so that `load_tokenizer` and transformers' AutoTokenizer give the same ids."""

    @staticmethod
    @abstractmethod
    def _is_start(token: str) -> bool:
        """Whether a token begins a word, by its spelling."""

    def id_to_piece(self, token: int) -> str:
        """The token with this id, as written in the vocabulary."""
        if not 0 <= token < self.vocab_size:
            raise TokenizerError(f"there is no token {token}; ids run from 0 to {self.vocab_size - 1}")
        return self._tokens[token]

    def piece_to_id(self, piece: str) -> int:
        """The id of a token of the vocabulary; `unk_id` if there is no such token."""
        return self._ids.get(piece, self.unk_id)

    def word_starts(self, ids: Sequence[int] | npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.bool_]:
        """Which tokens begin a word, (T,) boolean. Special tokens do."""
        marks: npt.NDArray[np.bool_] = self._starts[np.asarray(ids, dtype=np.int64)]
        return marks

    def __len__(self) -> int:
        return self.vocab_size

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.vocab_size:,} tokens, fingerprint {self.fingerprint[:12]})"

    def encode_with_special_tokens(self, text: str) -> list[int]:
        """`encode`, but special tokens written in the text, such as [MASK], become those tokens."""
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
        """The ids of `encode_with_special_tokens` with their character spans in the text."""
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
        """The text to encode before the special token `special`, which is empty at the end of the input."""
        return text

    def layout(
        self, a: Sequence[int], b: Sequence[int] | None = None, *, max_length: int | None = None
    ) -> tuple[list[int], list[int]]:
        """Token ids and segment ids of one model input: [CLS] A [SEP] or [CLS] A [SEP] B [SEP], XLNet's
        A [SEP] [CLS] or A [SEP] B [SEP] [CLS], or RoBERTa's <s> A </s> or <s> A </s> </s> B </s>.

        Args:
            a, b: ids without special tokens.
            max_length: maximum length of the input; tokens are removed from the end of the longer of A and B.
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
        """Model inputs: `input_ids`, `attention_mask` and `token_type_ids`.

        Args:
            text: one text, a list of texts, or a list of (text, pair) tuples.
            pair: the second text of each input.
            max_length: maximum tokens of an input with special tokens; longer inputs are truncated at the end
                of the longer text. None: no limit.
            padding: True or "longest" pads to the longest input, "max_length" to `max_length`. Tensors are
                always padded.
            return_tensors: "pt" for torch (B, L) int64, "np" for numpy, None for lists (flat lists for a
                single text).

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
    """The texts as tuples (text, pair or None).

    Raises:
        TokenizerError: not texts, or a table, whose iteration would give column names.
    """
    for value in (text, pair) if pair is not None else (text,):
        if not isinstance(value, Iterable) or is_table(value):
            remedy = "Give a text, a list of them, or the values of one column of a table"
            raise TokenizerError(f"a {type(value).__name__} is no list of texts", remedy=remedy)
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
