"""Text to a corpus, with a vocabulary of its own or a given one: for `prepare`, the demo and Python."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from albertine.corpus.build_plan import check_folder, check_share
from albertine.corpus.source import Progress, Source, no_progress
from albertine.corpus.vocabulary import Kind, vocabulary_for
from albertine.errors import SettingsError
from albertine.text.sentences import Language
from albertine.tokenizers.word_starts import check_segmenter

if TYPE_CHECKING:
    from albertine.corpus.manifest import Manifest
    from albertine.tokenizers.base import Tokenizer


def build_corpus(
    source: Source,
    corpus: Path,
    *,
    tokenizer: Tokenizer | None = None,
    kind: Kind | None = None,
    vocab_size: int | None = None,
    shrink: bool = False,
    language: str = "auto",
    held_out: float | None = None,
    progress: Progress = no_progress,
    **options: Any,
) -> Manifest:
    """Build a corpus of a text, or continue one that the same call began; afterwards `source` reports the
    files it was made of.

    Args:
        tokenizer: default: a vocabulary is trained; `kind`, `vocab_size` and `shrink` as in
            `vocabulary.train`.
        held_out: share of documents; default that of the corpus in the folder, or one that fits the text.
        progress: shows how far the work is. options: as in `corpus.prepare.prepare`.

    Raises:
        AlbertineError: the text cannot be read, or the folder belongs to another call; where a vocabulary is
            to be trained, before that.
    """
    if tokenizer is not None and not (vocab_size is None and kind is None):
        raise SettingsError(
            "a given tokenizer is not trained", remedy="Leave it out, or kind and size of a new vocabulary"
        )
    if held_out is not None:
        check_share(held_out)
    spoken = source.language(language)
    share = source.held_out(corpus) if held_out is None else held_out
    if tokenizer is not None:
        vocabulary = tokenizer
    else:
        with progress("sentences for the vocabulary") as update:
            vocabulary = vocabulary_for(
                source,
                corpus,
                spoken,
                kind=kind,
                vocab_size=vocab_size,
                shrink=shrink,
                progress=lambda number: update(number, None),
                check=lambda: _check(source, corpus, spoken, {"held_out": share, **options}),
            )
    source.reports.clear()  # of the first look
    return source.prepare(
        corpus, vocabulary, spoken, "bytes read", progress=progress, held_out=share, **options
    )


SETTINGS = ("held_out", "min_characters", "deduplicate", "words", "seed")
"""Of a corpus, what is known of a call before its text was read."""


def _check(source: Source, corpus: Path, language: Language, options: dict[str, Any]) -> None:
    """Refuse what `prepare` would refuse when it has a vocabulary.

    Raises:
        CorpusError: the folder belongs to another call. DataError: words by jieba, which is not installed.
    """
    given = {name: options[name] for name in SETTINGS if name in options}
    check_folder(corpus, language, source.reading | given)
    if options.get("words") == "jieba":
        check_segmenter()
