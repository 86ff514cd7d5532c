"""The tokenizer of RoBERTa: byte-level byte pair encoding (Radford et al. 2019), which has no unknown text.
Read from `tokenizer.json`, or from `vocab.json` and `merges.txt`."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from albertine.errors import TokenizerError
from albertine.text.cleaning import well_formed
from albertine.tokenizers.base import Spans, SpecialTokens, Tokenizer
from albertine.tokenizers.word_cache import BatchEncoder

ROBERTA = SpecialTokens("<pad>", "<unk>", "<s>", "</s>", "<mask>")
BYTE_FILE, PAIRS_FILE = "vocab.json", "merges.txt"
SPACE = "Ġ"
"""The space before a word, as written in the vocabulary."""
_BORDER = re.compile(r"(?<=\S) (?=\S)")
"""A space that belongs to the word after it; a text can be split before it."""
_DAMAGED = (ValueError, TypeError, LookupError, AttributeError, RecursionError)
_DEFAULTS = {"dropout": None, "byte_fallback": False, "ignore_merges": False}
"""Settings of a BPE model that change ids, with RoBERTa's values."""


class ByteLevelTokenizer(Tokenizer):
    """Byte pair encoding of words with the space before them.

    A pair of texts is `<s> A </s> </s> B </s>`, all in segment 0, RoBERTa's only one.

    Args:
        vocabulary: tokens in the order of ids.
        merges: pairs of tokens to merge, by priority.
        prefix_space: add a space before a text that has none.
        mask_lstrip: spaces before `<mask>` belong to it.
        where: for error messages.

    Raises:
        TokenizerError: a special token is missing, or merges are not in the vocabulary.
    """

    kind = "byte-level"
    between = 2
    segments = False

    def __init__(
        self,
        vocabulary: Sequence[str],
        merges: Sequence[tuple[str, str]],
        *,
        prefix_space: bool = False,
        mask_lstrip: bool = True,
        where: object = None,
    ) -> None:
        if missing := [token for token in vars(ROBERTA).values() if token not in vocabulary]:
            raise TokenizerError(
                f"is a vocabulary without {', '.join(missing)}",
                where=where,
                remedy="Of byte-level BPE tokenizers only RoBERTa's are supported; use the files of one",
            )
        self.merges, self.prefix_space, self.mask_lstrip = tuple(merges), prefix_space, mask_lstrip
        settings = {"kind": self.kind, "prefix_space": prefix_space, "mask_lstrip": mask_lstrip}
        content = json.dumps([settings, list(vocabulary), self.merges], sort_keys=True)
        super().__init__(vocabulary, ROBERTA, hashlib.sha256(content.encode()).hexdigest())
        try:
            self._open()
        except ImportError:
            raise
        except Exception as error:  # the library raises Exception itself
            raise TokenizerError(
                f"is no whole tokenizer ({error})", where=where, remedy="Copy it again"
            ) from error

    def _open(self) -> None:
        from albertine.tokenizers.fast import byte_level_backend

        self._library = byte_level_backend(self._tokens, self.merges, self.prefix_space)
        self._borders = _BORDER
        self._bulk = BatchEncoder(None, self._encode_parts)

    def _encoding(self, text: str) -> Any:
        from albertine.tokenizers.fast import library_encode

        return library_encode(self._library, text)

    def _encode_parts(self, parts: list[str]) -> list[Sequence[int]]:
        texts = [well_formed(part) for part in parts]
        return [found.ids for found in self._library.encode_batch(texts, add_special_tokens=False)]

    def _encode(self, text: str) -> list[int]:
        return list(self._encoding(text).ids)

    def _encode_spans(self, text: str) -> Spans:
        """Without the space before a word; tokens of the same character all have its span."""
        found = self._encoding(text)
        spans = Spans(list(found.ids), [], [])
        for start, end in found.offsets:
            visible = start + len(text[start:end]) - len(text[start:end].lstrip())
            spans.starts.append(visible)
            spans.ends.append(max(visible, end))
        return spans

    def _before(self, text: str, special: str) -> str:
        return text.rstrip() if self.mask_lstrip and special == self.special.mask else text

    def decode(self, ids: Iterable[int], *, skip_special: bool = True) -> str:
        """Readable text for token ids, without a leading space."""
        hidden = self.special_ids if skip_special else frozenset()
        kept = [int(token) for token in ids if token not in hidden]
        return str(self._library.decode(kept, skip_special_tokens=False)).removeprefix(" ")

    def save(self, folder: str | Path) -> None:
        """Write `tokenizer.json` and `tokenizer_config.json`."""
        from albertine.tokenizers.fast import save_byte_level

        save_byte_level(self, self._library, self.prefix_space, self.mask_lstrip, Path(folder))

    @staticmethod
    def _is_start(token: str) -> bool:
        return token.startswith(SPACE)


def read_byte_level(data: bytes, file: Path) -> ByteLevelTokenizer | None:
    """The RoBERTa tokenizer in a `tokenizer.json`; None if it is of another kind.

    Raises:
        TokenizerError: it is damaged, or has added tokens.
    """
    try:
        tree = json.loads(data.decode("utf-8-sig"))
        model, before = tree["model"], tree.get("pre_tokenizer") or {}
        if model.get("type") != "BPE" or "</s>" not in model["vocab"] or before.get("type") != "ByteLevel":
            return None
        unsupported = [name for name, value in _DEFAULTS.items() if model.get(name, value) != value]
        unsupported += [n for n in ("continuing_subword_prefix", "end_of_word_suffix") if model.get(n)]
        unsupported += ["normalizer"] if tree.get("normalizer") else []
        unsupported += [] if before.get("use_regex", True) else ["use_regex"]
        if unsupported:
            raise TokenizerError(
                f"treats text in another way than RoBERTa does ({', '.join(unsupported)})",
                where=file,
                remedy="Use the tokenizer of a RoBERTa model",
            )
        added = {str(entry["content"]): entry for entry in tree.get("added_tokens") or []}
        vocabulary = _ordered(model["vocab"] | {name: entry["id"] for name, entry in added.items()}, file)
        if more := [
            name for name in added if name not in model["vocab"] and name not in vars(ROBERTA).values()
        ]:
            raise TokenizerError(
                f"has tokens added to RoBERTa's vocabulary ({', '.join(more[:3])}), which is not supported",
                where=file,
                remedy="Use the tokenizer without them",
            )
        merges = [_pair(entry) for entry in model["merges"]]
        strips = bool(added.get(ROBERTA.mask, {}).get("lstrip", False))
        prefix = bool(before.get("add_prefix_space", False))
    except _DAMAGED as error:
        raise TokenizerError(f"is not a tokenizer of the tokenizers library ({error})", where=file) from error
    return ByteLevelTokenizer(vocabulary, merges, prefix_space=prefix, mask_lstrip=strips, where=file)


def read_byte_pairs(
    vocabulary_json: bytes, merges: bytes, config: dict[str, Any], file: Path
) -> ByteLevelTokenizer:
    """The tokenizer in a `vocab.json` and a `merges.txt`.

    Raises:
        TokenizerError: one of them is damaged.
    """
    try:
        vocabulary = _ordered(json.loads(vocabulary_json.decode("utf-8-sig")), file)
        lines = merges.decode("utf-8-sig").split("\n")
        pairs = [
            _pair(line.removesuffix("\r"))
            for line in lines
            if line.strip() and not line.startswith("#version")
        ]
    except _DAMAGED as error:
        raise TokenizerError(f"is not a vocabulary of byte pairs ({error})", where=file) from error
    prefix = bool(config.get("add_prefix_space", False))
    return ByteLevelTokenizer(vocabulary, pairs, prefix_space=prefix, where=file)


def _pair(entry: Any) -> tuple[str, str]:
    first, second = entry.split(" ") if isinstance(entry, str) else entry
    return str(first), str(second)


def _ordered(vocabulary: dict[str, int], file: Path) -> list[str]:
    tokens = sorted(vocabulary, key=vocabulary.__getitem__)
    if [vocabulary[token] for token in tokens] != list(range(len(tokens))):
        raise TokenizerError("has ids with gaps", where=file, remedy="Use the files of the model unchanged")
    return tokens
