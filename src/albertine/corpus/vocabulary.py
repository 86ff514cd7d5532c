"""A vocabulary from the user's own text, for `tokenizer train`, `prepare` and the demo."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Literal

from albertine.corpus.build_plan import begun_on_another_text
from albertine.corpus.source import Source
from albertine.errors import SettingsError, TokenizerError
from albertine.text.sentences import Language, document_sentences
from albertine.tokenizers.base import Tokenizer
from albertine.tokenizers.load import load_tokenizer
from albertine.tokenizers.train import (
    VocabularyTooLarge,
    VocabularyTooSmall,
    train_sentencepiece,
    train_wordpiece,
)

Kind = Literal["sentencepiece", "wordpiece", "xlnet"]
KIND: dict[str, Kind] = {"en": "sentencepiece", "zh": "wordpiece"}
CHARACTERS_A_PIECE = 400  # so that the rarest pieces still occur often enough to be learned
SMALLEST, LARGEST, LARGEST_WORDPIECE = 4_000, 30_000, 21_128


MAKERS: dict[Kind, Callable[..., Tokenizer]] = {
    "sentencepiece": train_sentencepiece,
    "wordpiece": train_wordpiece,
    "xlnet": partial(train_sentencepiece, cls_last=True),
}


def kind_of(tokenizer: Tokenizer) -> str:
    """The kind that would train such a vocabulary."""
    return "xlnet" if tokenizer.cls_last else tokenizer.kind


def train(
    source: Source,
    folder: Path,
    language: Language,
    *,
    kind: Kind | None = None,
    vocab_size: int | None = None,
    shrink: bool = False,
    progress: Callable[[int], None] | None = None,
) -> Tokenizer:
    """Train and save a vocabulary.

    Args:
        kind: default SentencePiece for English and WordPiece for Chinese, as the published models have;
            "xlnet" is SentencePiece with capitals and with XLNet's special pieces.
        vocab_size: default a size that fits the text: a piece for every 400 characters, 4,000 to 30,000; for
            WordPiece as many as the text holds, at most 21,128. Where its characters alone take more, as
            many beside them.
        shrink: take the largest vocabulary that the text allows where it does not allow `vocab_size`.

    Raises:
        TokenizerError: no text, or `vocab_size` is too large or too small for it. SettingsError: there is no
            such kind.
    """
    kind = kind or KIND[language]
    if kind not in MAKERS:
        raise SettingsError(
            f"there is no kind of vocabulary `{kind}`", remedy=f"Known are {', '.join(MAKERS)}"
        )
    make = MAKERS[kind]

    def sentences() -> Iterator[str]:
        for document in source.documents():
            yield from document_sentences(document, language)

    def made(size: int) -> Tokenizer:
        try:
            return make(sentences(), folder, size, progress=progress)
        except VocabularyTooLarge as error:
            if vocab_size is not None and not shrink:
                raise
            return make(sentences(), folder, error.largest, progress=progress)

    if vocab_size is not None:
        return made(vocab_size)
    usual = LARGEST_WORDPIECE if kind == "wordpiece" else _fitting(source)
    try:
        return made(usual)
    except VocabularyTooSmall as error:
        return made(error.smallest + usual)


def _fitting(source: Source) -> int:
    pieces = source.characters(LARGEST * CHARACTERS_A_PIECE) // CHARACTERS_A_PIECE
    return min(LARGEST, max(SMALLEST, pieces))


def vocabulary_for(
    source: Source,
    corpus: Path,
    language: Language,
    *,
    kind: Kind | None = None,
    vocab_size: int | None = None,
    shrink: bool = False,
    progress: Callable[[int], None] | None = None,
    check: Callable[[], None] = lambda: None,
) -> Tokenizer:
    """The vocabulary that an earlier `prepare` of `corpus` trained, also one that was interrupted, but not on
    another text; or a new one.

    Arguments and errors as `train`.

    Args:
        check: called before a new one is made, which takes minutes; what it raises ends the call.
    """
    found = None
    if (corpus / "tokenizer").is_dir():
        with contextlib.suppress(TokenizerError):  # of a damaged one the same is made again
            found = load_tokenizer(corpus / "tokenizer")
    if found is not None:
        wanted = kind in (None, kind_of(found)) and (shrink or vocab_size in (None, found.vocab_size))
        if wanted and not begun_on_another_text(corpus, source.paths, found):
            return found
    check()
    with tempfile.TemporaryDirectory() as folder:
        return train(
            source,
            Path(folder),
            language,
            kind=kind,
            vocab_size=vocab_size,
            shrink=shrink,
            progress=progress,
        )
