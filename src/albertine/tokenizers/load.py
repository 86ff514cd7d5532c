"""Find the tokenizer in a folder or file and open it."""

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
"""All that a tokenizer's folder holds."""
MAX_BYTES = 64 * 2**20
_AS_BERT = "Bert ConvBert DPRContextEncoder DPRQuestionEncoder DistilBert Electra LayoutLM Lxmert MobileBert"
_CLASSES = frozenset(f"{name}Tokenizer" for name in ("Albert", "XLNet", "SqueezeBert", *_AS_BERT.split()))
"""Tokenizers of transformers, without "Fast", that cut text and place special pieces as those read here."""


def load_tokenizer(path: str | Path) -> Tokenizer:
    """The tokenizer in a folder or vocabulary file, or of a released model by its name; its kind is told by
    the files, never by the model's name.

    A folder with `vocab.txt` is WordPiece, also when its model is an ALBERT: all Chinese ones are. One with
    `spiece.model` (or a single other *.model) is SentencePiece. Without either, `tokenizer.json` is read; if
    nothing is there, the folder `assets`, where TF-Hub has them. That of a RoBERTa is `tokenizer.json`, or
    `vocab.json` and `merges.txt`.
    Pieces that were added to it with transformers are kept whole, as there.
    `tokenizer_config.json` beside the vocabulary is honoured: do_lower_case, keep_accents, strip_accents,
    tokenize_chinese_chars, replace_quotes. Google's archives have none: there the pieces of `vocab.txt` tell
    whether text is lowered. Where the class of transformers that it names takes `tokenizer.json` as it is,
    that file is read and not the vocabulary beside it, unless that is a SentencePiece model saved here.

    Raises:
        TokenizerError: nothing there, several vocabularies, one that is damaged, added pieces whose ids do
            not follow its own, or a class is named that may cut text otherwise, such as RoFormer's, or a
            `tokenizer.json` that is taken as it is puts other special pieces around texts.
    """
    path = resolve_folder(Path(path))
    if not path.exists():
        raise TokenizerError(
            "there is no such file or folder",
            where=path,
            remedy=f"Check the path of the tokenizer. {model_name_help(str(path))}",
        )
    if is_run_checkpoint(path):
        return _of_checkpoint(path)
    file = path if path.is_file() else vocabulary_file(path)
    folder = file.parent
    config = _config(folder / CONFIG_FILE)
    if config.get("tokenizer_class") is None:
        told = _config(folder / "config.json").get("tokenizer_class")
        config = config | ({"tokenizer_class": told} if told else {})
    if "added_tokens_decoder" not in config:  # else transformers does not look there either
        config |= {name: x for name, x in _config(folder / SPECIAL_FILE).items() if name in LIST_KEYS}
    if (found := _byte_level(file, config)) is not None:
        return found
    _check_class(config, folder)
    if path != file and (folder / FAST_FILE).is_file() and _as_it_is(config):
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


def _of_checkpoint(folder: Path) -> Tokenizer:
    """The tokenizer that a checkpoint of a run was trained with, which lies elsewhere in the run or with its
    corpus.

    Raises:
        TokenizerError: it is not there any more.
    """
    fingerprints = _config(folder / "state.json").get("fingerprint")
    wanted = fingerprints.get("tokenizer") if isinstance(fingerprints, dict) else None
    for place in _beside_checkpoint(folder):
        found = load_tokenizer(place)
        if found.fingerprint == wanted:
            return found
    raise TokenizerError(
        "is a checkpoint, whose tokenizer is neither in its run nor with the corpus that the run names",
        where=folder,
        remedy="Leave it in the folder of its run; or let the run finish, and name its final/",
    )


def _beside_checkpoint(folder: Path) -> list[Path]:
    """Where the tokenizer of a checkpoint may be."""
    if not is_run_checkpoint(folder) or (run := run_of_checkpoint(folder)) is None:
        return []
    from albertine.core.settings import read_yaml  # slow to import, and rarely needed

    places = [run / "best", run / "final"]
    with suppress(AlbertineError):  # which says nothing then
        match read_yaml(run / "settings.yaml"):
            case {"corpus": str(corpus)}:
                places.append(Path(corpus) / "tokenizer")
            case {"encoder": {"folder": str(encoder)}}:
                places.append(Path(encoder))
    return [
        place for place in map(resolve_folder, places) if _vocabularies(place) or is_run_checkpoint(place)
    ]


def _byte_level(file: Path, config: dict[str, Any]) -> Tokenizer | None:
    """The tokenizer of a RoBERTa, in one file or in the two of earlier releases; None: another's."""
    if file.name == PAIRS_FILE or (file.name == BYTE_FILE and (file.parent / PAIRS_FILE).is_file()):
        return read_byte_pairs(
            _read(file.with_name(BYTE_FILE)), _read(file.with_name(PAIRS_FILE)), config, file
        )
    if file.suffix == ".json" and b'"BPE"' in (data := _read(file)):
        return read_byte_level(data, file)
    return None


def _as_it_is(config: dict[str, Any]) -> bool:
    """Whether `tokenizer.json` counts and not a vocabulary beside it: for a class of transformers that takes
    it as it is, but for a SentencePiece model of ours, which that file says less exactly."""
    named = str(config.get("tokenizer_class")) in GENERIC_CLASSES
    return named and config.keys().isdisjoint(("keep_accents", "replace_quotes"))


def _check_class(config: dict[str, Any], folder: Path) -> None:
    """Refuse a vocabulary whose class in transformers may make other ids of it.

    The class is told by the `tokenizer_config.json` that was read into `config`, else by the model's
    config.json; without either, transformers takes RoFormer's own for every RoFormer.
    """
    named = config.get("tokenizer_class")
    if named is None:
        model = _config(folder / "config.json")
        own = "RoFormerTokenizer" if model.get("model_type") == "roformer" else None
        named = model.get("tokenizer_class") or own
    if named and str(named) not in GENERIC_CLASSES and str(named).removesuffix("Fast") not in _CLASSES:
        raise TokenizerError(
            f"is of the class {named}, which may cut text otherwise than BERT's, ALBERT's and XLNet's",
            where=folder,
            remedy=f'If it cuts as BERT does, write "tokenizer_class": "BertTokenizer" into {CONFIG_FILE}',
        )


def _wordpiece(data: bytes, config: dict[str, Any], added: AddedTokens, file: Path) -> Tokenizer:
    lines = _lines(data, file)
    pieces, whole = append_added_tokens(lines, added, vars(BERT).values(), KNOWN_SPECIAL, file.parent)
    return WordPieceTokenizer(
        pieces,
        # transformers lowers where nobody says so; in Google's archives nobody does.
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
    """A new folder to save a tokenizer into; it takes the place of `folder`, whole or not at all.

    Raises:
        TokenizerError: `folder` is a model or holds something else than a tokenizer, and stays as it is.
        RunError: another process writes there.
    """
    _check_replaceable(folder)
    with replaced_folder(folder) as beside:
        yield beside
        _check_replaceable(folder)  # a file that came meanwhile would be lost


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
    """What a tokenizer must fit; see `EncoderConfig`."""

    @property
    def vocab_size(self) -> int: ...
    @property
    def type_vocab_size(self) -> int: ...
    @property
    def positions(self) -> str: ...
    @property
    def summary(self) -> Literal["first", "last"]: ...


def check_tokenizer(encoder: EncoderShape, tokenizer: Tokenizer, where: object) -> None:
    """Refuse a tokenizer that an encoder cannot read with: one with more pieces than there are word vectors,
    one that puts [CLS] where the encoder does not look, or one with more kinds of segments.

    Raises:
        ModelError: the two do not belong together.
    """
    remedy = "Put the tokenizer that the model was trained with into the folder"
    cls, kinds = tokenizer.special.cls, encoder.type_vocab_size
    if tokenizer.vocab_size > encoder.vocab_size:
        found = (
            f"has {encoder.vocab_size} word vectors, and its tokenizer knows {tokenizer.vocab_size} pieces"
        )
    elif encoder.summary == "last" and not tokenizer.cls_last:
        found = f"looks at the last token of a text, as XLNet does, and its tokenizer puts {cls} first"
        remedy = (
            "Use one with <sep> and <cls>, such as XLNet's or one of `albertine tokenizer train --kind xlnet`"
        )
    elif encoder.summary == "first" and tokenizer.cls_last:
        found = f"looks at the first token of a text, and its tokenizer puts {cls} last"
    elif tokenizer.cls_last and encoder.positions != "relative" and 0 < kinds <= CLS_SEGMENT:
        found = f"knows {kinds} kinds of segments, and {cls} of its tokenizer is of segment {CLS_SEGMENT}"
        remedy = (
            "An encoder for such a tokenizer has three kinds, or none (model.change.type_vocab_size=3 or 0)"
        )
    else:
        return
    raise ModelError(found, where=where, remedy=remedy)


def has_vocabulary(folder: Path) -> bool:
    """Whether `load_tokenizer` finds something to open in a folder, whole or not."""
    return bool(
        _vocabularies(folder) or _vocabularies(folder / ASSETS) or _beside_checkpoint(resolve_folder(folder))
    )


def vocabulary_file(folder: Path) -> Path:
    """The file with the pieces of the tokenizer that a folder holds. Raises as `load_tokenizer` does."""
    inside = folder / ASSETS
    return _one_of(inside if not _vocabularies(folder) and _vocabularies(inside) else folder)


def _vocabularies(folder: Path) -> list[Path]:
    there = (VOCABULARY_FILE, MODEL_FILE, FAST_FILE, PAIRS_FILE)
    named = [folder / name for name in there if (folder / name).exists()]
    return named or sorted(folder.glob("*.model")) or sorted(folder.glob("vocab*.txt"))


def _cased(pieces: list[str]) -> bool:
    """Whether a vocabulary has capital letters: one in twenty pieces, since some that are lowered have a few
    such as `<S>` beside [CLS]."""
    words = [piece for piece in pieces if not piece.startswith(("[", "<"))]
    capital = sum(piece != piece.lower() and piece.isascii() for piece in words)
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
    # not splitlines(): vocabularies hold U+2028 and other line separators as pieces
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    while lines and not lines[-1]:
        lines.pop()
    return lines
