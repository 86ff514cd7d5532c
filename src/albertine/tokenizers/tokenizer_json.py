"""Read a tokenizer from `tokenizer.json`, the only vocabulary file that transformers 5 saves."""

from __future__ import annotations

import base64
import json
import re
import struct
from pathlib import Path
from typing import Any

from albertine.errors import TokenizerError
from albertine.text.cleaning import Cleaning
from albertine.tokenizers.added_tokens import (
    AddedToken,
    AddedTokens,
    append_added_tokens,
    id_gap_error,
    read_added_tokens,
)
from albertine.tokenizers.base import MAX_WORD_CHARACTERS, Tokenizer
from albertine.tokenizers.fast import DIGIT_COMMA_PENALTY, special_tokens_template
from albertine.tokenizers.sentencepiece import ALBERT, XLNET, SentencePieceTokenizer
from albertine.tokenizers.sentencepiece_proto import (
    SPACE,
    Piece,
    PieceType,
    ends_in_digit_comma,
    serialize_model,
)
from albertine.tokenizers.wordpiece import BERT, WordPieceTokenizer

_CONTROL = frozenset(
    {"<pad>", "[CLS]", "[SEP]", "[MASK]", "<s>", "</s>", "<cls>", "<sep>", "<mask>", "<eod>"}
)
_IN_TEXT = frozenset({"<eop>"})
"""Special in XLNet's tokenizer.json, but recognised in text by its spiece.model."""
_BYTE = re.compile("<0x[0-9A-F]{2}>")
KNOWN_SPECIAL = frozenset(token for family in (BERT, ALBERT, XLNET) for token in vars(family).values())
GENERIC_CLASSES = frozenset({"PreTrainedTokenizerFast", "TokenizersBackend"})
"""Classes of transformers that use the pipeline of tokenizer.json unchanged."""
_ORDER = ("controls", "``", "''", "NFKD", "accents", "sigma", "Lowercase", "Precompiled", "spaces")
"""The steps of ALBERT's and XLNet's normalizers in order, as written by transformers and
`tokenizers.fast`."""
_REPLACED = (
    ("controls", {"Regex": r"[\x0b\x1c-\x1f]"}, " "),
    ("controls", {"Regex": r"[\x1c-\x1f]"}, " "),  # this and the second sigma: of earlier versions
    ("``", {"String": "``"}, '"'),
    ("''", {"String": "''"}, '"'),
    ("sigma", {"Regex": r"(?<=[\p{Lu}\p{Ll}\p{Lt}])Σ(?![\p{Lu}\p{Ll}\p{Lt}])"}, "ς"),
    ("sigma", {"Regex": r"(?<=\p{L})Σ(?!\p{L})"}, "ς"),
    ("spaces", {"Regex": " {2,}"}, " "),
)
_MARKS = "[\u0300-\u034e"
"""Beginning of a regular expression class of all combining marks, in any version of Unicode."""


_DAMAGED = (
    *(ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError),
    struct.error,
)
"""Exceptions of reading a file of another structure; struct.error: a score that is not a number."""


def read_tokenizer_json(file: Path, data: bytes, config: dict[str, Any]) -> Tokenizer:
    """The tokenizer in a `tokenizer.json` of BERT, ALBERT or XLNet.

    A SentencePiece model is rebuilt from pieces, scores and normalisation rule. It encodes as the original,
    but has another fingerprint, since its bytes differ.

    Args:
        file: path of the `tokenizer.json`, for messages.
        data: its bytes.
        config: the `tokenizer_config.json` beside it; its settings take precedence, except for classes that
            use `tokenizer.json` unchanged.

    Raises:
        TokenizerError: not such a file, another model or text pipeline, added tokens whose ids do not follow
            the vocabulary, or other special tokens around texts.
    """
    try:
        tree = json.loads(data.decode("utf-8-sig"))
        found = _read(tree, config, file)
        if config.get("tokenizer_class") in GENERIC_CLASSES:
            _check_special_tokens(tree, found, file)
        return found
    except _DAMAGED as error:
        raise TokenizerError(f"is not a tokenizer of the tokenizers library ({error})", where=file) from error


def _read(tree: Any, config: dict[str, Any], file: Path) -> Tokenizer:
    model = tree["model"]
    kind, vocabulary = model.get("type"), model["vocab"]
    if kind == "WordPiece" or (kind is None and isinstance(vocabulary, dict)):
        tokens = sorted(vocabulary, key=vocabulary.__getitem__)
        ids: list[Any] = [vocabulary[token] for token in tokens]
    elif kind == "Unigram" or (kind is None and isinstance(vocabulary, list)):
        tokens = [entry[0] for entry in vocabulary]
        ids = list(range(len(tokens)))
    else:
        raise TokenizerError(
            f"holds a {kind} model; Albertine reads WordPiece and Unigram",
            where=file,
            remedy="Use the tokenizer of a BERT, ALBERT or XLNet model",
        )
    if ids != list(range(len(ids))):
        raise id_gap_error([], file)
    added = read_added_tokens(tree, config)
    if isinstance(vocabulary, dict):
        tokens, whole = append_added_tokens(tokens, added, vars(BERT).values(), KNOWN_SPECIAL, file)
        return _wordpiece(tokens, whole, tree, config, file)
    return with_added_tokens(_unigram(tree, config, file), added, file)


def with_added_tokens(
    base: SentencePieceTokenizer, added: AddedTokens, where: object
) -> SentencePieceTokenizer:
    """`base` with added tokens: new ones after its own, and tokens of its own that it would split in a text
    (all but user-defined pieces)."""
    special = {base.id_to_piece(i) for i in base.special_ids} | KNOWN_SPECIAL
    if added.keys() <= special:  # nearly every model; the rest looks at all its tokens
        return base
    named = {piece.text for piece in base.proto.pieces if piece.type is PieceType.USER_DEFINED}
    tokens = [base.id_to_piece(i) for i in range(base.vocab_size)]
    _, listed = append_added_tokens(tokens, added, special | named, KNOWN_SPECIAL, where)
    known = {token: i for i, token in enumerate(tokens)}
    whole = [p for p in listed if base.encode(p.content) != [known.get(p.content)]]
    return SentencePieceTokenizer(base.model, base.cleaning, whole=whole, where=where) if whole else base


def _steps(part: dict[str, Any] | None, inside: str) -> list[dict[str, Any]]:
    """The steps of a normalizer or pre-tokenizer; `inside` is the key of the list in a Sequence."""
    if not part:
        return []
    if part.get("type") == "Sequence":
        return [inner for step in part[inside] for inner in _steps(step, inside)]
    return [part]


def _check_special_tokens(tree: dict[str, Any], tokenizer: Tokenizer, file: Path) -> None:
    """Check that the post-processor adds special tokens as our tokenizer does. Only for generic classes:
    others of transformers set their own."""
    steps = _steps(tree.get("post_processor"), "processors")
    if not (len(steps) == 1 and _adds_same_tokens(steps[0], tokenizer)):
        kind = "BertTokenizer" if tokenizer.kind == "wordpiece" else "AlbertTokenizer"
        kind = "XLNetTokenizer" if tokenizer.cls_last else kind
        named = ", ".join(str(step.get("type")) for step in steps) or "none"
        raise TokenizerError(
            f"puts other special tokens around a text than {kind} does (post_processor: {named})",
            where=file,
            remedy=f'If the model was trained with those, write "tokenizer_class": "{kind}" into '
            "tokenizer_config.json",
        )


def _adds_same_tokens(step: dict[str, Any], tokenizer: Tokenizer) -> bool:
    special = tokenizer.special
    if step.get("type") == "BertProcessing":
        ours = [special.cls, tokenizer.cls_id], [special.sep, tokenizer.sep_id]
        return not tokenizer.cls_last and (step.get("cls"), step.get("sep")) == ours
    expected, listed = (
        json.loads(special_tokens_template(tokenizer).__getstate__()),
        step.get("special_tokens", {}),
    )
    return all(step.get(name) == expected[name] for name in ("type", "single", "pair")) and all(
        listed[name]["ids"] == entry["ids"] for name, entry in expected["special_tokens"].items()
    )


def _wordpiece(
    tokens: list[str], whole: list[AddedToken], tree: dict[str, Any], config: dict[str, Any], file: Path
) -> Tokenizer:
    steps = _steps(tree.get("normalizer"), "normalizers")
    if not _is_bert(tree, steps):
        raise TokenizerError(
            "treats text in another way than BERT does, so its ids would come out wrong",
            where=file,
            remedy="Use a tokenizer with BERT's normalizer, pre-tokenizer and WordPiece settings",
        )
    rules = steps[0]
    overrides = _overrides(config)
    lower, chinese = overrides.get("do_lower_case"), overrides.get("tokenize_chinese_chars")
    return WordPieceTokenizer(
        tokens,
        lower=bool(rules["lowercase"] if lower is None else lower),
        strip_accents=overrides.get("strip_accents", rules.get("strip_accents")),
        chinese=bool(rules["handle_chinese_chars"] if chinese is None else chinese),
        whole=whole,
        where=file,
    )


def _overrides(config: dict[str, Any]) -> dict[str, Any]:
    """The settings that take precedence over `tokenizer.json`; none for classes that use it unchanged."""
    return {} if config.get("tokenizer_class") in GENERIC_CLASSES else config


def _is_bert(tree: dict[str, Any], steps: list[dict[str, Any]]) -> bool:
    model, before = tree["model"], _steps(tree.get("pre_tokenizer"), "pretokenizers")
    return (
        [step.get("type") for step in steps] == ["BertNormalizer"]
        and steps[0].get("clean_text") is True
        and {"lowercase", "handle_chinese_chars"} <= steps[0].keys()
        and [step.get("type") for step in before] == ["BertPreTokenizer"]
        and model.get("continuing_subword_prefix", "##") == "##"
        and model.get("unk_token", BERT.unk) == BERT.unk
        and model.get("max_input_chars_per_word", MAX_WORD_CHARACTERS) == MAX_WORD_CHARACTERS
    )


def _named(step: dict[str, Any]) -> str:
    """The name in `_ORDER` of a step of a normalizer; for others and for pre-tokenizers, its type."""
    kind, pattern, by = step.get("type"), step.get("pattern"), step.get("content")
    if kind == "Metaspace" and step.get("replacement") != SPACE:
        return f"Metaspace of {step.get('replacement')}"
    if kind == "StripAccents":
        return "accents"
    if kind != "Replace":
        return str(kind)
    if isinstance(pattern, dict) and str(pattern.get("Regex")).startswith(_MARKS) and by == "":
        return "accents"
    return next((name for name, *rest in _REPLACED if rest == [pattern, by]), "Replace")


def _is_albert(names: list[str], kinds: list[str]) -> bool:
    """Whether the steps of a normalizer and pre-tokenizer are those of ALBERT or XLNet, with steps that
    belong together both present."""
    # Metaspace alone would make words of consecutive spaces
    before = [["WhitespaceSplit", "Metaspace"], *([["Metaspace"]] if "spaces" in names else [])]
    return (
        names == [name for name in _ORDER if name in names]
        and ("NFKD" in names) == ("accents" in names)
        and ("``" in names) == ("''" in names)
        and kinds in before
    )


def _check_unigram(tree: dict[str, Any], file: Path) -> None:
    names = [_named(step) for step in _steps(tree.get("normalizer"), "normalizers")]
    before = _steps(tree.get("pre_tokenizer"), "pretokenizers")
    kinds = [_named(step) for step in before]
    for step in before:
        # older releases of the library write add_prefix_space alone
        scheme = step.get("prepend_scheme", "always" if step.get("add_prefix_space", True) else "never")
        if step.get("type") == "Metaspace" and scheme != "always":
            raise TokenizerError(
                f"marks the beginning of words in another way than ALBERT does (prepend_scheme {scheme})",
                where=file,
                remedy="Use the spiece.model of the model",
            )
    if not _is_albert(names, kinds):
        raise TokenizerError(
            "treats text in another way than ALBERT and XLNet do, so its ids would come out wrong "
            f"({', '.join([*names, *kinds])})",
            where=file,
            remedy="Use the tokenizer of an ALBERT or XLNet model",
        )


def _unigram(tree: dict[str, Any], config: dict[str, Any], file: Path) -> SentencePieceTokenizer:
    _check_unigram(tree, file)
    model, steps = tree["model"], _steps(tree.get("normalizer"), "normalizers")
    listed = tree.get("added_tokens") or []
    special = {str(entry["content"]) for entry in listed if entry.get("special") is True}
    control = (_CONTROL | special) - _IN_TEXT
    lowest = min((score for text, score in model["vocab"] if not ends_in_digit_comma(text)), default=0.0)
    pieces = []
    for i, (text, score) in enumerate(model["vocab"]):
        if ends_in_digit_comma(text) and score < lowest - DIGIT_COMMA_PENALTY / 2:
            score += (
                DIGIT_COMMA_PENALTY  # it replaces the digit-comma rule, which our tokenizer applies itself
            )
        if i == model.get("unk_id"):
            kind = PieceType.UNKNOWN
        elif text in control:
            kind = PieceType.CONTROL
        elif model.get("byte_fallback") and _BYTE.fullmatch(text):
            kind = PieceType.BYTE
        else:
            # only user-defined pieces score exactly zero
            kind = PieceType.USER_DEFINED if score == 0.0 else PieceType.NORMAL
        pieces.append(Piece(text, score, kind))
    kinds = [step.get("type") for step in steps]
    charsmap = next((step["precompiled_charsmap"] for step in steps if step.get("type") == "Precompiled"), "")
    quotes = any(step.get("type") == "Replace" and step.get("pattern") == {"String": "``"} for step in steps)
    data = serialize_model(
        pieces, base64.b64decode(charsmap or ""), byte_fallback=bool(model.get("byte_fallback"))
    )
    overrides = _overrides(config)
    cleaning = Cleaning(
        lower=bool(overrides.get("do_lower_case", "Lowercase" in kinds)),
        keep_accents=bool(overrides.get("keep_accents", "NFKD" not in kinds)),
        replace_quotes=quotes,
    )
    return SentencePieceTokenizer(data, cleaning, where=file)
