"""Find and load the tokenizer in a folder or file."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal, Protocol

from albertine.core.files import (
    is_run_checkpoint,
    read_regular,
    replaced_folder,
    resolve_folder,
    run_of_checkpoint,
)
from albertine.core.released import model_name_help
from albertine.errors import AlbertineError, ModelError, TokenizerError
from albertine.text.cleaning import Cleaning
from albertine.tokenizers.added_tokens import LIST_KEYS, AddedTokens, append_added_tokens, read_added_tokens
from albertine.tokenizers.base import CLS_SEGMENT, MODEL_FILE, VOCABULARY_FILE, Tokenizer
from albertine.tokenizers.byte_level import BYTE_FILE, PAIRS_FILE, read_byte_level, read_byte_pairs
from albertine.tokenizers.sentencepiece import SentencePieceTokenizer
from albertine.tokenizers.tokenizer_json import (
    GENERIC_CLASSES,
    KNOWN_SPECIAL,
    read_tokenizer_json,
    with_added_tokens,
)
from albertine.tokenizers.wordpiece import BERT, WordPieceTokenizer

CONFIG_FILE = "tokenizer_config.json"
FAST_FILE = "tokenizer.json"
ADDED_FILE = "added_tokens.json"
SPECIAL_FILE = "special_tokens_map.json"
ASSETS = "assets"
SAVED = {MODEL_FILE, VOCABULARY_FILE, FAST_FILE, CONFIG_FILE}
"""Names of the files that a saved tokenizer consists of."""
MAX_BYTES = 64 * 2**20
_AS_BERT = "Bert ConvBert DPRContextEncoder DPRQuestionEncoder DistilBert Electra LayoutLM Lxmert MobileBert"
_CLASSES = frozenset(f"{name}Tokenizer" for name in ("Albert", "XLNet", "SqueezeBert", *_AS_BERT.split()))
"""Tokenizer classes of transformers, without "Fast", that split text and place special tokens as the
tokenizers here."""


def load_tokenizer(path: str | Path) -> Tokenizer:
    """Load the tokenizer in a folder or vocabulary file, or of a released model by its name.

    Its kind is determined by the files, not by the model: `vocab.txt` is WordPiece, also for an ALBERT (all
    Chinese ones); `spiece.model` (or a single other *.model) is SentencePiece; without either,
    `tokenizer.json` is read, else the folder `assets`, as in TF-Hub modules. RoBERTa's is `tokenizer.json`,
    or `vocab.json` and `merges.txt`.

    Tokens added with transformers are not split, as there. These settings of `tokenizer_config.json` are
    applied: do_lower_case, keep_accents, strip_accents, tokenize_chinese_chars, replace_quotes. Google's
    archives have no such file; whether text is lowercased then follows from the tokens of `vocab.txt`. If the
    configuration names a class of transformers that uses `tokenizer.json` unchanged, that file is read
    instead of the vocabulary beside it, except for a SentencePiece model saved by this package.

    Raises:
        TokenizerError: no vocabulary, several, a damaged one, added tokens whose ids do not follow its own, a
            tokenizer class that may split text differently, such as RoFormer's, or a `tokenizer.json` with
            other special tokens around texts.
    """
    path = resolve_folder(Path(path))
    if not path.exists():
        raise TokenizerError(
            "there is no such file or folder",
            where=path,
            remedy=f"Check the path of the tokenizer. {model_name_help(str(path))}",
        )
    if is_run_checkpoint(path):
        return _checkpoint_tokenizer(path)
    file = path if path.is_file() else vocabulary_file(path)
    folder = file.parent
    config = _config(folder / CONFIG_FILE)
    if config.get("tokenizer_class") is None:
        named = _config(folder / "config.json").get("tokenizer_class")
        config = config | ({"tokenizer_class": named} if named else {})
    if "added_tokens_decoder" not in config:  # else transformers ignores that file too
        config |= {name: x for name, x in _config(folder / SPECIAL_FILE).items() if name in LIST_KEYS}
    if (found := _byte_level(file, config)) is not None:
        return found
    _check_class(config, folder)
    if path != file and (folder / FAST_FILE).is_file() and _uses_tokenizer_json(config):
        file = folder / FAST_FILE
    data = _read(file)
    if not data.strip():
        raise TokenizerError("is empty", where=file, remedy="Copy the vocabulary of the model again")
    if file.suffix == ".json":
        return read_tokenizer_json(file, data, config)
    added = read_added_tokens(_config(folder / FAST_FILE), config, _config(folder / ADDED_FILE))
    if file.suffix == ".txt":
        return _wordpiece(data, config, added, file)
    return with_added_tokens(_sentencepiece(data, config, file), added, folder)


def _checkpoint_tokenizer(folder: Path) -> Tokenizer:
    """The tokenizer of a checkpoint, which is stored elsewhere in its run or with the corpus.

    Raises:
        TokenizerError: it is no longer there.
    """
    fingerprints = _config(folder / "state.json").get("fingerprint")
    expected = fingerprints.get("tokenizer") if isinstance(fingerprints, dict) else None
    for place in _beside_checkpoint(folder):
        found = load_tokenizer(place)
        if found.fingerprint == expected:
            return found
    raise TokenizerError(
        "is a checkpoint, whose tokenizer is neither in its run nor with the corpus that the run names",
        where=folder,
        remedy="Leave it in the folder of its run; or let the run finish, and name its final/",
    )


def _beside_checkpoint(folder: Path) -> list[Path]:
    """Folders where the tokenizer of a checkpoint may be."""
    if not is_run_checkpoint(folder) or (run := run_of_checkpoint(folder)) is None:
        return []
    from albertine.core.settings import read_yaml  # slow to import, and rarely needed

    places = [run / "best", run / "final"]
    with suppress(AlbertineError):  # unreadable settings: look in the run only
        match read_yaml(run / "settings.yaml"):
            case {"corpus": str(corpus)}:
                places.append(Path(corpus) / "tokenizer")
            case {"encoder": {"folder": str(encoder)}}:
                places.append(Path(encoder))
    return [
        place for place in map(resolve_folder, places) if _vocabularies(place) or is_run_checkpoint(place)
    ]


def _byte_level(file: Path, config: dict[str, Any]) -> Tokenizer | None:
    """A RoBERTa tokenizer, from one file or the two of earlier releases; None if it is of another kind."""
    if file.name == PAIRS_FILE or (file.name == BYTE_FILE and (file.parent / PAIRS_FILE).is_file()):
        return read_byte_pairs(
            _read(file.with_name(BYTE_FILE)), _read(file.with_name(PAIRS_FILE)), config, file
        )
    if file.suffix == ".json" and b'"BPE"' in (data := _read(file)):
        return read_byte_level(data, file)
    return None


def _uses_tokenizer_json(config: dict[str, Any]) -> bool:
    """Whether to read `tokenizer.json` and not a vocabulary beside it: for classes of transformers that use
    it unchanged, but not for a SentencePiece model saved by this package, which the file represents less
    exactly."""
    named = str(config.get("tokenizer_class")) in GENERIC_CLASSES
    return named and config.keys().isdisjoint(("keep_accents", "replace_quotes"))


def _check_class(config: dict[str, Any], folder: Path) -> None:
    """Refuse a vocabulary whose tokenizer class in transformers may give other ids.

    The class is named by `tokenizer_config.json` (`config`) or the model's config.json; without either,
    transformers uses RoFormerTokenizer for every RoFormer.
    """
    named = config.get("tokenizer_class")
    if named is None:
        model = _config(folder / "config.json")
        own = "RoFormerTokenizer" if model.get("model_type") == "roformer" else None
        named = model.get("tokenizer_class") or own
    if named and str(named) not in GENERIC_CLASSES and str(named).removesuffix("Fast") not in _CLASSES:
        raise TokenizerError(
            f"is of the class {named}, which may split text differently from BERT's, ALBERT's and XLNet's",
            where=folder,
            remedy=f'If it splits as BERT does, write "tokenizer_class": "BertTokenizer" into {CONFIG_FILE}',
        )


def _wordpiece(data: bytes, config: dict[str, Any], added: AddedTokens, file: Path) -> Tokenizer:
    lines = _lines(data, file)
    vocabulary, whole = append_added_tokens(lines, added, vars(BERT).values(), KNOWN_SPECIAL, file.parent)
    return WordPieceTokenizer(
        vocabulary,
        # without a setting transformers lowercases; Google's archives (no model_type) go by the tokens
        lower=_flag(
            config,
            "do_lower_case",
            not _cased(lines) or "model_type" in _config(file.parent / "config.json"),
        ),
        strip_accents=None if config.get("strip_accents") is None else bool(config["strip_accents"]),
        chinese=_flag(config, "tokenize_chinese_chars", True),
        whole=whole,
        where=file,
    )


def _sentencepiece(data: bytes, config: dict[str, Any], file: Path) -> SentencePieceTokenizer:
    plain = SentencePieceTokenizer(data, where=file)
    default = plain.cleaning
    cleaning = Cleaning(
        lower=_flag(config, "do_lower_case", default.lower),
        keep_accents=_flag(config, "keep_accents", default.keep_accents),
        replace_quotes=_flag(config, "replace_quotes", default.replace_quotes),
    )
    return plain if cleaning == default else SentencePieceTokenizer(data, cleaning, where=file)


@contextmanager
def replaced_tokenizer(folder: Path) -> Iterator[Path]:
    """A new folder to save a tokenizer to, which atomically replaces `folder`.

    Raises:
        TokenizerError: `folder` is a model or has other files than a tokenizer; it stays unchanged.
        RunError: another process writes there.
    """
    _check_replaceable(folder)
    with replaced_folder(folder) as beside:
        yield beside
        _check_replaceable(folder)  # again: a file added meanwhile would be lost


def _check_replaceable(folder: Path) -> None:
    if not os.path.lexists(folder):
        return
    if not folder.is_dir():
        raise TokenizerError("is not a folder", where=folder, remedy="Name a new folder")
    there = set(os.listdir(folder))
    if "config.json" in there:
        raise TokenizerError(
            "holds a model, whose vocabulary would be lost", where=folder, remedy="Name a new folder"
        )
    if others := sorted(there - SAVED):
        raise TokenizerError(
            f"holds other files ({', '.join(others[:3])})", where=folder, remedy="Name a new folder"
        )


class EncoderShape(Protocol):
    """Properties of an encoder that a tokenizer must fit; see `EncoderConfig`."""

    @property
    def vocab_size(self) -> int: ...
    @property
    def type_vocab_size(self) -> int: ...
    @property
    def positions(self) -> str: ...
    @property
    def summary(self) -> Literal["first", "last"]: ...


def check_tokenizer(encoder: EncoderShape, tokenizer: Tokenizer, where: object) -> None:
    """Check that a tokenizer fits an encoder: not more tokens than word embeddings, [CLS] where the encoder
    pools, and not more segment ids than segment embeddings.

    Raises:
        ModelError: it does not fit.
    """
    remedy = "Put the tokenizer that the model was trained with into the folder"
    cls, kinds = tokenizer.special.cls, encoder.type_vocab_size
    if tokenizer.vocab_size > encoder.vocab_size:
        found = f"has {encoder.vocab_size} word vectors, and its tokenizer has {tokenizer.vocab_size} tokens"
    elif encoder.summary == "last" and not tokenizer.cls_last:
        found = f"pools the last token of a text, as XLNet does, and its tokenizer puts {cls} first"
        remedy = (
            "Use one with <sep> and <cls>, such as XLNet's or one of `albertine tokenizer train --kind xlnet`"
        )
    elif encoder.summary == "first" and tokenizer.cls_last:
        found = f"pools the first token of a text, and its tokenizer puts {cls} last"
    elif tokenizer.cls_last and encoder.positions != "relative" and 0 < kinds <= CLS_SEGMENT:
        found = f"has {kinds} segment embeddings, and {cls} of its tokenizer has the segment id {CLS_SEGMENT}"
        remedy = "An encoder for such a tokenizer has three, or none (model.change.type_vocab_size=3 or 0)"
    else:
        return
    raise ModelError(found, where=where, remedy=remedy)


def has_vocabulary(folder: Path) -> bool:
    """Whether a folder has a vocabulary file that `load_tokenizer` would read, valid or not."""
    return bool(
        _vocabularies(folder) or _vocabularies(folder / ASSETS) or _beside_checkpoint(resolve_folder(folder))
    )


def vocabulary_file(folder: Path) -> Path:
    """The vocabulary file of the tokenizer in a folder. Raises as `load_tokenizer`."""
    inside = folder / ASSETS
    return _one_of(inside if not _vocabularies(folder) and _vocabularies(inside) else folder)


def _vocabularies(folder: Path) -> list[Path]:
    there = (VOCABULARY_FILE, MODEL_FILE, FAST_FILE, PAIRS_FILE)
    named = [folder / name for name in there if (folder / name).exists()]
    return named or sorted(folder.glob("*.model")) or sorted(folder.glob("vocab*.txt"))


def _cased(tokens: list[str]) -> bool:
    """Whether a vocabulary is cased: one in twenty tokens has capitals, since uncased ones have a few, such
    as `<S>` beside [CLS]."""
    words = [token for token in tokens if not token.startswith(("[", "<"))]
    capital = sum(word != word.lower() and word.isascii() for word in words)
    return capital * 20 > len(words)


def _one_of(folder: Path) -> Path:
    for name in (VOCABULARY_FILE, MODEL_FILE):
        if (folder / name).is_file():
            return folder / name
    found = sorted(folder.glob("*.model")) or sorted(folder.glob("vocab*.txt"))
    if not found and (folder / FAST_FILE).is_file():
        return folder / FAST_FILE
    if not found and all((folder / name).is_file() for name in (BYTE_FILE, PAIRS_FILE)):
        return folder / BYTE_FILE
    if len(found) == 1:
        return found[0]
    if found:
        raise TokenizerError(
            f"holds several vocabularies ({', '.join(f.name for f in found)})",
            where=folder,
            remedy="Name one of them",
        )
    raise TokenizerError(
        f"holds no tokenizer: no {VOCABULARY_FILE}, {MODEL_FILE} or {FAST_FILE}",
        where=folder,
        remedy="Copy the vocabulary of the model into the folder",
    )


def _read(file: Path) -> bytes:
    try:
        return read_regular(file, MAX_BYTES)
    except OSError as error:
        if error.errno == errno.EFBIG:
            raise TokenizerError("is larger than 64 MB, which no vocabulary is", where=file) from error
        remedy = "Copy the vocabulary of the model into the folder as a file"
        raise TokenizerError(f"cannot be read ({error.strerror})", where=file, remedy=remedy) from error


def _config(file: Path) -> dict[str, Any]:
    if not file.is_file():
        return {}
    try:
        config = json.loads(_read(file).decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise TokenizerError(f"is not readable as JSON ({error})", where=file) from error
    if not isinstance(config, dict):
        raise TokenizerError("must hold a JSON object", where=file)
    return config


def _flag(config: dict[str, Any], key: str, default: bool) -> bool:
    value = config.get(key, default)
    return default if value is None else bool(value)


def _lines(data: bytes, file: Path) -> list[str]:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise TokenizerError(
            f"is not UTF-8 (byte {error.start})", where=file, remedy="Convert the vocabulary to UTF-8"
        ) from error
    # not splitlines(): vocabularies contain U+2028 and other line separators as tokens
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    while lines and not lines[-1]:
        lines.pop()
    return lines
