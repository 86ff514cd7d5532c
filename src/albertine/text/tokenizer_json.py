"""Read a vocabulary from `tokenizer.json`: since release 5, transformers saves nothing else."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

from albertine.errors import TokenizerError
from albertine.text.cleaning import Cleaning
from albertine.text.fast import DIGIT_COMMA_PENALTY
from albertine.text.modelproto import Piece, PieceType, ends_in_digit_comma, serialize
from albertine.text.sentencepiece import SentencePieceTokenizer
from albertine.text.tokenizer import Tokenizer
from albertine.text.wordpiece import WordPieceTokenizer

_CONTROL = frozenset(
    {"<pad>", "[CLS]", "[SEP]", "[MASK]", "<s>", "</s>", "<cls>", "<sep>", "<mask>", "<eod>"}
)


def read_tokenizer_json(file: Path) -> Tokenizer:
    """The tokenizer that a `tokenizer.json` of BERT's, ALBERT's or XLNet's kind describes.

    A SentencePiece model is put together again from pieces, scores and normalisation rule, and encodes as the
    one it came from; its fingerprint differs, since its bytes do.

    Raises:
        TokenizerError: not such a file, another kind of model, or pieces added to the vocabulary later.
    """
    try:
        tree = json.loads(file.read_text(encoding="utf-8"))
        model = tree["model"]
        kind, vocabulary = model.get("type"), model["vocab"]
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise TokenizerError(f"is not a tokenizer of the tokenizers library ({error})", where=file) from error
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
    more = [str(t["content"]) for t in tree.get("added_tokens") or [] if t["content"] not in set(pieces)]
    if more or ids != list(range(len(ids))):
        raise TokenizerError(
            f"has pieces outside its vocabulary ({', '.join(more[:3]) or 'ids with gaps'})",
            where=file,
            remedy="Use the tokenizer before pieces were added, or add them to vocab.txt",
        )
    steps = _steps(tree.get("normalizer"))
    return _wordpiece(pieces, steps, file) if isinstance(vocabulary, dict) else _unigram(model, steps, file)


def _steps(normalizer: dict[str, Any] | None) -> list[dict[str, Any]]:
    if not normalizer:
        return []
    if normalizer.get("type") == "Sequence":
        return [inner for step in normalizer["normalizers"] for inner in _steps(step)]
    return [normalizer]


def _wordpiece(pieces: list[str], steps: list[dict[str, Any]], file: Path) -> Tokenizer:
    bert = next((step for step in steps if step.get("type") == "BertNormalizer"), {})
    return WordPieceTokenizer(
        pieces,
        lower=bool(bert.get("lowercase", True)),
        strip_accents=bert.get("strip_accents"),
        chinese=bool(bert.get("handle_chinese_chars", True)),
        where=file,
    )


def _unigram(model: dict[str, Any], steps: list[dict[str, Any]], file: Path) -> Tokenizer:
    usual = min((score for text, score in model["vocab"] if not ends_in_digit_comma(text)), default=0.0)
    pieces = []
    for i, (text, score) in enumerate(model["vocab"]):
        if ends_in_digit_comma(text) and score < usual - DIGIT_COMMA_PENALTY / 2:
            score += DIGIT_COMMA_PENALTY  # the penalty stands in for the rule, which is carried out here
        if i == model.get("unk_id"):
            kind = PieceType.UNKNOWN
        elif text in _CONTROL:
            kind = PieceType.CONTROL
        else:
            # only pieces that were asked for by name score exactly zero
            kind = PieceType.USER_DEFINED if score == 0.0 else PieceType.NORMAL
        pieces.append(Piece(text, score, kind))
    kinds = [step.get("type") for step in steps]
    charsmap = next((step["precompiled_charsmap"] for step in steps if step.get("type") == "Precompiled"), "")
    quotes = any(step.get("type") == "Replace" and step.get("pattern") == {"String": "``"} for step in steps)
    data = serialize(pieces, base64.b64decode(charsmap or ""), byte_fallback=bool(model.get("byte_fallback")))
    cleaning = Cleaning(lower="Lowercase" in kinds, keep_accents="NFKD" not in kinds, replace_quotes=quotes)
    return SentencePieceTokenizer(data, cleaning, where=file)
