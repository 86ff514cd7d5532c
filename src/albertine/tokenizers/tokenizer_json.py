"""Read a vocabulary from `tokenizer.json`: since release 5, transformers saves nothing else."""

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
"""Special in XLNet's tokenizer.json, but its spiece.model finds it in text."""
_BYTE = re.compile("<0x[0-9A-F]{2}>")
KNOWN_SPECIAL = frozenset(piece for family in (BERT, ALBERT, XLNET) for piece in vars(family).values())
GENERIC_CLASSES = frozenset({"PreTrainedTokenizerFast", "TokenizersBackend"})
"""The classes of transformers that take tokenizer.json alone for the pipeline."""
_ORDER = ("controls", "``", "''", "NFKD", "accents", "sigma", "Lowercase", "Precompiled", "spaces")
"""The steps of ALBERT's and XLNet's normalizers, as transformers and `tokenizers.fast` write them."""
_REPLACED = (
    ("controls", {"Regex": r"[\x0b\x1c-\x1f]"}, " "),
    ("controls", {"Regex": r"[\x1c-\x1f]"}, " "),  # this, and the second for a sigma, of earlier versions
    ("``", {"String": "``"}, '"'),
    ("''", {"String": "''"}, '"'),
    ("sigma", {"Regex": r"(?<=[\p{Lu}\p{Ll}\p{Lt}])Σ(?![\p{Lu}\p{Ll}\p{Lt}])"}, "ς"),
    ("sigma", {"Regex": r"(?<=\p{L})Σ(?!\p{L})"}, "ς"),
    ("spaces", {"Regex": " {2,}"}, " "),
)
_MARKS = "[\u0300-\u034e"
"""How a class of all combining marks begins, whatever the release of Unicode."""


_DAMAGED = (
    *(ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError),
    struct.error,
)
"""What reading a file of another structure may end with; the last: a score that is no number."""


def read_tokenizer_json(file: Path, data: bytes, config: dict[str, Any]) -> Tokenizer:
    """The tokenizer that a `tokenizer.json` of BERT's, ALBERT's or XLNet's kind describes.

    A SentencePiece model is put together again from pieces, scores and normalisation rule, and encodes as the
    one it came from; its fingerprint differs, since its bytes do.

    Args:
        file: the `tokenizer.json`. data: its bytes.
        config: the `tokenizer_config.json` beside it, whose settings of the family's pipeline come first.

    Raises:
        TokenizerError: not such a file, another kind of model or treatment of text, added pieces whose ids do
            not follow, or other special pieces around a text where the file is taken as it is.
    """
    try:
        tree = json.loads(data.decode("utf-8-sig"))
        found = _read(tree, config, file)
        if config.get("tokenizer_class") in GENERIC_CLASSES:
            _check_around(tree, found, file)
        return found
    except _DAMAGED as error:
        raise TokenizerError(f"is not a tokenizer of the tokenizers library ({error})", where=file) from error


def _read(tree: Any, config: dict[str, Any], file: Path) -> Tokenizer:
    model = tree["model"]
    kind, vocabulary = model.get("type"), model["vocab"]
    if kind == "WordPiece" or (kind is None and isinstance(vocabulary, dict)):
        pieces = sorted(vocabulary, key=vocabulary.__getitem__)
        ids: list[Any] = [vocabulary[piece] for piece in pieces]
    elif kind == "Unigram" or (kind is None and isinstance(vocabulary, list)):
        pieces = [entry[0] for entry in vocabulary]
        ids = list(range(len(pieces)))
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
        pieces, whole = append_added_tokens(pieces, added, vars(BERT).values(), KNOWN_SPECIAL, file)
        return _wordpiece(pieces, whole, tree, config, file)
    return with_added_tokens(_unigram(tree, config, file), added, file)


def with_added_tokens(
    plain: SentencePieceTokenizer, added: AddedTokens, where: object
) -> SentencePieceTokenizer:
    """The same tokenizer, with what was added to it: pieces behind its own, and those of its own that it does
    not find in a text by itself, as it finds what was asked for by name when it was made."""
    special = {plain.id_to_piece(i) for i in plain.special_ids} | KNOWN_SPECIAL
    if added.keys() <= special:  # of nearly every model; what follows looks at all its pieces
        return plain
    named = {piece.text for piece in plain.proto.pieces if piece.type is PieceType.USER_DEFINED}
    pieces = [plain.id_to_piece(i) for i in range(plain.vocab_size)]
    _, listed = append_added_tokens(pieces, added, special | named, KNOWN_SPECIAL, where)
    known = {piece: i for i, piece in enumerate(pieces)}
    whole = [p for p in listed if plain.encode(p.content) != [known.get(p.content)]]
    return SentencePieceTokenizer(plain.model, plain.cleaning, whole=whole, where=where) if whole else plain


def _steps(part: dict[str, Any] | None, inside: str) -> list[dict[str, Any]]:
    """The steps of a normalizer or pre-tokenizer; `inside` is the key of those in a sequence."""
    if not part:
        return []
    if part.get("type") == "Sequence":
        return [inner for step in part[inside] for inner in _steps(step, inside)]
    return [part]


def _check_around(tree: dict[str, Any], tokenizer: Tokenizer, file: Path) -> None:
    """Refuse special pieces around texts that are not ours; other classes of transformers put their own."""
    steps = _steps(tree.get("post_processor"), "processors")
    if not (len(steps) == 1 and _puts_ours(steps[0], tokenizer)):
        kind = "BertTokenizer" if tokenizer.kind == "wordpiece" else "AlbertTokenizer"
        kind = "XLNetTokenizer" if tokenizer.cls_last else kind
        named = ", ".join(str(step.get("type")) for step in steps) or "none"
        raise TokenizerError(
            f"puts other special pieces around a text than {kind} does (post_processor: {named})",
            where=file,
            remedy=f'If the model was trained with those, write "tokenizer_class": "{kind}" into '
            "tokenizer_config.json",
        )


def _puts_ours(step: dict[str, Any], tokenizer: Tokenizer) -> bool:
    special = tokenizer.special
    if step.get("type") == "BertProcessing":
        ours = [special.cls, tokenizer.cls_id], [special.sep, tokenizer.sep_id]
        return not tokenizer.cls_last and (step.get("cls"), step.get("sep")) == ours
    wanted, listed = (
        json.loads(special_tokens_template(tokenizer).__getstate__()),
        step.get("special_tokens", {}),
    )
    return all(step.get(name) == wanted[name] for name in ("type", "single", "pair")) and all(
        listed[name]["ids"] == piece["ids"] for name, piece in wanted["special_tokens"].items()
    )


def _wordpiece(
    pieces: list[str], whole: list[AddedToken], tree: dict[str, Any], config: dict[str, Any], file: Path
) -> Tokenizer:
    steps = _steps(tree.get("normalizer"), "normalizers")
    if not _is_bert(tree, steps):
        raise TokenizerError(
            "treats text in another way than BERT does, so its ids would come out wrong",
            where=file,
            remedy="Use a tokenizer with BERT's normalizer, pre-tokenizer and WordPiece settings",
        )
    rules = steps[0]
    said = _said(config)
    lower, chinese = said.get("do_lower_case"), said.get("tokenize_chinese_chars")
    return WordPieceTokenizer(
        pieces,
        lower=bool(rules["lowercase"] if lower is None else lower),
        strip_accents=said.get("strip_accents", rules.get("strip_accents")),
        chinese=bool(rules["handle_chinese_chars"] if chinese is None else chinese),
        whole=whole,
        where=file,
    )


def _said(config: dict[str, Any]) -> dict[str, Any]:
    """The settings beside the file that count more than what it says; for a class that takes the file as it
    is, none."""
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
    """What a step of a normalizer does, one of `_ORDER`; else, and of a pre-tokenizer, its type."""
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
    """Whether the steps of a normalizer and pre-tokenizer are those of ALBERT or XLNet, none without the one
    that belongs to it."""
    # alone, the marker would make words of spaces in a row
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
    usual = min((score for text, score in model["vocab"] if not ends_in_digit_comma(text)), default=0.0)
    pieces = []
    for i, (text, score) in enumerate(model["vocab"]):
        if ends_in_digit_comma(text) and score < usual - DIGIT_COMMA_PENALTY / 2:
            score += DIGIT_COMMA_PENALTY  # the penalty stands in for the rule, which is carried out here
        if i == model.get("unk_id"):
            kind = PieceType.UNKNOWN
        elif text in control:
            kind = PieceType.CONTROL
        elif model.get("byte_fallback") and _BYTE.fullmatch(text):
            kind = PieceType.BYTE
        else:
            # only pieces that were asked for by name score exactly zero
            kind = PieceType.USER_DEFINED if score == 0.0 else PieceType.NORMAL
        pieces.append(Piece(text, score, kind))
    kinds = [step.get("type") for step in steps]
    charsmap = next((step["precompiled_charsmap"] for step in steps if step.get("type") == "Precompiled"), "")
    quotes = any(step.get("type") == "Replace" and step.get("pattern") == {"String": "``"} for step in steps)
    data = serialize_model(
        pieces, base64.b64decode(charsmap or ""), byte_fallback=bool(model.get("byte_fallback"))
    )
    said = _said(config)
    cleaning = Cleaning(
        lower=bool(said.get("do_lower_case", "Lowercase" in kinds)),
        keep_accents=bool(said.get("keep_accents", "NFKD" not in kinds)),
        replace_quotes=quotes,
    )
    return SentencePieceTokenizer(data, cleaning, where=file)
