"""Train a vocabulary from text, of a size that fits it, or reuse the one in a corpus folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Literal

from albertine.corpus.build_plan import has_other_text
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

VocabularyKind = Literal["sentencepiece", "wordpiece", "xlnet"]
DEFAULT_KINDS: dict[str, VocabularyKind] = {"en": "sentencepiece", "zh": "wordpiece"}
CHARACTERS_PER_TOKEN = 400  # of text, so that the rarest tokens still occur often enough to be learned
SMALLEST, LARGEST, LARGEST_WORDPIECE = 4_000, 30_000, 21_128

TRAINERS: dict[VocabularyKind, Callable[..., Tokenizer]] = {
    "sentencepiece": train_sentencepiece,
    "wordpiece": train_wordpiece,
    "xlnet": partial(train_sentencepiece, cls_last=True),
}


def train_vocabulary(
    source: Source,
    folder: Path,
    language: Language,
    *,
    kind: VocabularyKind | None = None,
    vocab_size: int | None = None,
    shrink: bool = False,
    progress: Callable[[int], None] | None = None,
) -> Tokenizer:
    """Train a vocabulary and save it to `folder`.

    Args:
        kind: default SentencePiece for English and WordPiece for Chinese, as the published models have;
            "xlnet" is cased SentencePiece with XLNet's special tokens.
        vocab_size: default: a token per 400 characters of text, 4,000 to 30,000; for WordPiece as many as the
            text has, at most 21,128. Where single characters alone take more, that many in addition.
        shrink: if the text has too few tokens for `vocab_size`, train the largest vocabulary possible.
        progress: called with the number of sentences read.

    Raises:
        TokenizerError: no text, or `vocab_size` is too large or too small for it.
        SettingsError: unknown kind.
    """
    kind = kind or DEFAULT_KINDS[language]
    if kind not in TRAINERS:
        raise SettingsError(
            f"there is no kind of vocabulary `{kind}`", remedy=f"Known are {', '.join(TRAINERS)}"
        )
    train = TRAINERS[kind]

    def sentences() -> Iterator[str]:
        for document in source.documents():
            yield from document_sentences(document, language)

    def trained(size: int) -> Tokenizer:
        try:
            return train(sentences(), folder, size, progress=progress)
        except VocabularyTooLarge as error:
            if vocab_size is not None and not shrink:
                raise
            return train(sentences(), folder, error.largest, progress=progress)

    if vocab_size is not None:
        return trained(vocab_size)
    default = LARGEST_WORDPIECE if kind == "wordpiece" else _size_for(source)
    try:
        return trained(default)
    except VocabularyTooSmall as error:
        return trained(error.smallest + default)


def _size_for(source: Source) -> int:
    size = source.count_characters(LARGEST * CHARACTERS_PER_TOKEN) // CHARACTERS_PER_TOKEN
    return min(LARGEST, max(SMALLEST, size))


def reusable_vocabulary(
    corpus: Path,
    source: Source,
    *,
    kind: VocabularyKind | None = None,
    vocab_size: int | None = None,
    shrink: bool = False,
) -> Tokenizer | None:
    """The vocabulary in a corpus folder, also of an interrupted call, if `train_vocabulary` with the same
    text and arguments would train the same one; else None."""
    if not (corpus / "tokenizer").is_dir():
        return None
    try:
        found = load_tokenizer(corpus / "tokenizer")
    except TokenizerError:  # damaged: training gives the same one again
        return None
    found_kind = "xlnet" if found.cls_last else found.kind
    matches = kind in (None, found_kind) and (shrink or vocab_size in (None, found.vocab_size))
    return found if matches and not has_other_text(corpus, source.paths, found) else None
