"""Pipelines of the `tokenizers` library equal to our tokenizers, and files that transformers' AutoTokenizer
loads.

A saved folder works without this package: `tokenizer.json` has the whole pipeline, and
`tokenizer_config.json` names a class of transformers that uses it unchanged.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import tokenizers
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, processors

from albertine.core.files import replace_durably
from albertine.errors import TokenizerError
from albertine.text.cleaning import Cleaning, combining_class, well_formed
from albertine.tokenizers.added_tokens import AddedToken
from albertine.tokenizers.base import MAX_WORD_CHARACTERS, MODEL_FILE, VOCABULARY_FILE, Tokenizer
from albertine.tokenizers.sentencepiece_proto import SPACE, ModelProto, ends_in_digit_comma

LONG = 10_000
"""Characters from which on the GIL is released while encoding."""
DIGIT_COMMA_PENALTY = 100.0


class TextRules(NamedTuple):
    """BERT's text normalisation: lowercase, strip accents, split Chinese characters."""

    lower: bool
    strip_accents: bool | None
    chinese: bool


def wordpiece_backend(
    pieces: Sequence[str], unknown: str, rules: TextRules, whole: Sequence[AddedToken] = ()
) -> tokenizers.Tokenizer:
    """BERT's pipeline, with the added tokens `whole` but without special tokens, so that those in a text are
    not recognised."""
    vocabulary = {piece: i for i, piece in enumerate(pieces)}
    backend = tokenizers.Tokenizer(
        models.WordPiece(vocabulary, unk_token=unknown, max_input_chars_per_word=MAX_WORD_CHARACTERS)
    )
    backend.normalizer = bert_normalizer(rules)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece(prefix="##")
    _add_tokens(backend, whole)
    return backend


def bert_normalizer(rules: TextRules) -> Any:
    """BERT's normalizer."""
    return normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=rules.chinese,
        strip_accents=rules.strip_accents,
        lowercase=rules.lower,
    )


def _add_tokens(backend: tokenizers.Tokenizer, whole: Sequence[AddedToken]) -> None:
    backend.add_tokens([tokenizers.AddedToken(**piece._asdict()) for piece in whole])


def library_encode(backend: tokenizers.Tokenizer, text: str) -> tokenizers.Encoding:
    """Encode a text by the library; a long one as a batch, for which the library releases the GIL."""
    text = well_formed(text)
    if len(text) < LONG:
        return backend.encode(text, add_special_tokens=False)
    [found] = backend.encode_batch([text], add_special_tokens=False)
    return found


def check_sentencepiece(proto: ModelProto) -> None:
    """Check that a SentencePiece model can be written as `tokenizer.json`.

    Raises:
        TokenizerError: it is not a unigram model, or does not encode a text word by word.
    """
    if proto.model_type != 1:
        raise TokenizerError(
            "only unigram models of SentencePiece can be written as tokenizer.json",
            remedy="Train with model_type unigram, as ALBERT does",
        )
    if not proto.marks_words:
        raise TokenizerError(
            "keeps spaces, joins words or does not mark where they begin, which tokenizer.json cannot say",
            remedy="Train with SentencePiece's own settings for spaces, as ALBERT does",
        )


def sentencepiece_backend(proto: ModelProto, unk_id: int, cleaning: Cleaning) -> tokenizers.Tokenizer:
    """The SentencePiece pipeline as a Unigram model of the library.

    The library has no digit-comma rule. As in transformers, pieces such as "▁2000," get such a low score that
    none is chosen; numbers may then be split at other digits than by the rule.

    Raises:
        TokenizerError: as `check_sentencepiece`.
    """
    check_sentencepiece(proto)
    vocabulary = [
        (piece.text, piece.score - (DIGIT_COMMA_PENALTY if ends_in_digit_comma(piece.text) else 0.0))
        for piece in proto.pieces
    ]
    backend = tokenizers.Tokenizer(
        models.Unigram(vocabulary, unk_id=unk_id, byte_fallback=proto.byte_fallback)
    )
    backend.normalizer = sentencepiece_normalizer(cleaning, proto.charsmap)
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.WhitespaceSplit(),
            pre_tokenizers.Metaspace(replacement=SPACE, prepend_scheme="always", split=False),
        ]
    )
    backend.decoder = decoders.Metaspace(replacement=SPACE, prepend_scheme="always")
    return backend


def sentencepiece_normalizer(cleaning: Cleaning, charsmap: bytes) -> Any:
    """Cleaning before SentencePiece, and SentencePiece's own normalisation."""
    # Python's split() separates words at these control characters, the normalisation rule deletes them
    steps: list[Any] = [normalizers.Replace(Regex("[\\x0b\\x1c-\\x1f]"), " ")]
    if cleaning.replace_quotes:
        steps += [normalizers.Replace("``", '"'), normalizers.Replace("''", '"')]
    if not cleaning.keep_accents:
        # StripAccents removes other characters than the reference (see combining_class)
        steps += [normalizers.NFKD(), normalizers.Replace(Regex(f"[{combining_class()}]"), "")]
    if cleaning.lower:
        # the library lowercases character by character, without the final sigma
        cased = r"[\p{Lu}\p{Ll}\p{Lt}]"
        steps += [normalizers.Replace(Regex(f"(?<={cased})Σ(?!{cased})"), "ς"), normalizers.Lowercase()]
    if charsmap:
        steps.append(normalizers.Precompiled(charsmap))
    return normalizers.Sequence(steps)


def added_token_finder(
    whole: Sequence[AddedToken], normalizer: Any
) -> Callable[[str], list[tuple[int, int, str]]]:
    """A function that finds added tokens in a text: (start, end, content) of each in order.

    Args:
        normalizer: of the `tokenizers` library, applied to the text for normalized tokens.
    """
    backend = tokenizers.Tokenizer(models.WordLevel({"": 0}, ""))
    backend.normalizer = normalizer
    _add_tokens(backend, whole)
    names = {backend.token_to_id(piece.content): piece.content for piece in whole}

    def found(text: str) -> list[tuple[int, int, str]]:
        encoding = library_encode(backend, text)
        # A space that BERT's normalizer inserts beside a Chinese character has the offsets of that character.
        # If a token includes such a space, its offsets overlap those of its neighbour and are cut there.
        begins = [*(start for start, _ in encoding.offsets), len(text)]
        matches, before = [], 0
        for token, (start, end), following in zip(encoding.ids, encoding.offsets, begins[1:], strict=True):
            if token:
                start, end = max(start, before), min(end, following)
                matches.append((start, end, names[token]))
            before = end
        return matches

    return found


def _add_special(backend: tokenizers.Tokenizer, tokenizer: Tokenizer) -> None:
    ids = sorted(tokenizer.special_ids)
    backend.add_special_tokens(
        [tokenizers.AddedToken(tokenizer.id_to_piece(i), special=True, normalized=False) for i in ids]
    )
    backend.post_processor = special_tokens_template(tokenizer)


def special_tokens_template(tokenizer: Tokenizer) -> processors.TemplateProcessing:
    """Post-processor that adds special tokens and segment ids to a text or a pair."""
    cls, sep = tokenizer.special.cls, tokenizer.special.sep
    if tokenizer.cls_last:
        single, pair = f"$A:0 {sep}:0 {cls}:2", f"$A:0 {sep}:0 $B:1 {sep}:1 {cls}:2"
    else:
        single, pair = f"{cls}:0 $A:0 {sep}:0", f"{cls}:0 $A:0 {sep}:0 $B:1 {sep}:1"
    ids = [(cls, tokenizer.cls_id), (sep, tokenizer.sep_id)]
    return processors.TemplateProcessing(single=single, pair=pair, special_tokens=ids)


def _config(tokenizer: Tokenizer) -> dict[str, Any]:
    special = tokenizer.special
    return {
        "model_input_names": ["input_ids", "token_type_ids", "attention_mask"],
        "pad_token": special.pad,
        "unk_token": special.unk,
        "cls_token": special.cls,
        "sep_token": special.sep,
        "mask_token": special.mask,
        "model_max_length": 512,
        "clean_up_tokenization_spaces": False,
    }


def save_sentencepiece(
    tokenizer: Tokenizer,
    model: bytes,
    proto: ModelProto,
    cleaning: Cleaning,
    whole: Sequence[AddedToken],
    folder: Path,
) -> None:
    """Write `spiece.model` (the bytes `model`), `tokenizer.json` and `tokenizer_config.json` to a folder."""
    backend = sentencepiece_backend(proto, tokenizer.unk_id, cleaning)
    _add_special(backend, tokenizer)
    _add_tokens(backend, whole)
    config = _config(tokenizer) | {
        # AlbertTokenizer of transformers would rebuild the pipeline and replace `` and ''
        "tokenizer_class": "PreTrainedTokenizerFast",
        "do_lower_case": cleaning.lower,
        "keep_accents": cleaning.keep_accents,
        "replace_quotes": cleaning.replace_quotes,
        "padding_side": "left" if tokenizer.cls_last else "right",
    }
    config |= _added_tokens_config(tokenizer, whole)
    if tokenizer.cls_last:
        config["pad_token_type_id"] = 3
    _write(folder, MODEL_FILE, model, backend, config)


def save_wordpiece(
    tokenizer: Tokenizer, pieces: Sequence[str], rules: TextRules, whole: Sequence[AddedToken], folder: Path
) -> None:
    """Write `vocab.txt`, `tokenizer.json` and `tokenizer_config.json` to a folder."""
    backend = wordpiece_backend(pieces, tokenizer.special.unk, rules, whole)
    _add_special(backend, tokenizer)
    config = _config(tokenizer) | {
        "tokenizer_class": "BertTokenizer",
        "do_lower_case": rules.lower,
        "strip_accents": rules.strip_accents,
        "tokenize_chinese_chars": rules.chinese,
    }
    config |= _added_tokens_config(tokenizer, whole)
    _write(folder, VOCABULARY_FILE, "".join(f"{p}\n" for p in pieces).encode("utf-8"), backend, config)


def byte_level_backend(
    pieces: Sequence[str], merges: Sequence[tuple[str, str]], prefix_space: bool
) -> tokenizers.Tokenizer:
    """RoBERTa's pipeline without special tokens, so that those in a text are not recognised."""
    vocabulary = {piece: i for i, piece in enumerate(pieces)}
    backend = tokenizers.Tokenizer(models.BPE(vocabulary, list(merges)))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix_space)
    backend.decoder = decoders.ByteLevel()
    return backend


def save_byte_level(
    tokenizer: Tokenizer, backend: tokenizers.Tokenizer, prefix_space: bool, mask_lstrip: bool, folder: Path
) -> None:
    """Write `tokenizer.json` and `tokenizer_config.json` to a folder."""
    special = tokenizer.special
    written = tokenizers.Tokenizer.from_str(backend.to_str())
    written.post_processor = processors.RobertaProcessing(
        (special.sep, tokenizer.sep_id), (special.cls, tokenizer.cls_id), True, prefix_space
    )
    written.add_special_tokens(
        [
            tokenizers.AddedToken(
                piece, normalized=False, special=True, lstrip=mask_lstrip and piece == special.mask
            )
            for piece in vars(special).values()
        ]
    )
    config = _config(tokenizer) | {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_input_names": ["input_ids", "attention_mask"],
        "bos_token": special.cls,
        "eos_token": special.sep,
    }
    folder.mkdir(parents=True, exist_ok=True)
    replace_durably(folder / "tokenizer.json", written.to_str(pretty=False).encode("utf-8"))
    text = json.dumps(config, indent=2, ensure_ascii=False) + "\n"
    replace_durably(folder / "tokenizer_config.json", text.encode("utf-8"))


def _added_tokens_config(tokenizer: Tokenizer, whole: Sequence[AddedToken]) -> dict[str, Any]:
    """The added tokens in the configuration, where transformers 4 reads them."""
    ids = {str(tokenizer.piece_to_id(piece.content)): piece._asdict() for piece in whole}
    entries = {i: {**flags, "special": False} for i, flags in ids.items()}
    return {"added_tokens_decoder": entries} if entries else {}


def _write(
    folder: Path, name: str, vocabulary: bytes, backend: tokenizers.Tokenizer, config: dict[str, Any]
) -> None:
    other = {"vocab.txt": "spiece.model", "spiece.model": "vocab.txt"}[name]
    if (folder / other).exists():
        raise TokenizerError(
            f"already holds a {other}, so two tokenizers would be in one folder",
            where=folder,
            remedy="Save into an empty folder, or remove the other tokenizer first",
        )
    folder.mkdir(parents=True, exist_ok=True)
    files = {
        name: vocabulary,
        "tokenizer.json": backend.to_str(pretty=False).encode("utf-8"),
        "tokenizer_config.json": (json.dumps(config, indent=2, ensure_ascii=False) + "\n").encode("utf-8"),
    }
    for file, data in files.items():
        replace_durably(folder / file, data)
