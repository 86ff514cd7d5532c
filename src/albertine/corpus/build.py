"""Build a corpus from text, with a given vocabulary or one trained from that text."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from albertine.corpus.build_plan import check_held_out_share, check_resumable
from albertine.corpus.prepare import write_corpus
from albertine.corpus.source import Progress, Source, no_progress
from albertine.corpus.vocabulary import VocabularyKind, reusable_vocabulary, train_vocabulary
from albertine.errors import SettingsError
from albertine.text.sentences import Language
from albertine.tokenizers.word_starts import check_segmenter

if TYPE_CHECKING:
    from albertine.corpus.manifest import Manifest
    from albertine.tokenizers.base import Tokenizer

KNOWN_BEFORE_READING = ("held_out", "min_characters", "deduplicate", "words", "seed")
"""Settings of a corpus that are known before its text is read."""


def build_corpus(
    source: Source,
    folder: Path,
    *,
    tokenizer: Tokenizer | None = None,
    kind: VocabularyKind | None = None,
    vocab_size: int | None = None,
    shrink: bool = False,
    language: str = "auto",
    held_out: float | None = None,
    progress: Progress = no_progress,
    **options: Any,
) -> Manifest:
    """Build a corpus from a text, or continue one that the same call began. `source` then reports its files.

    Args:
        tokenizer: default: trained from the text; `kind`, `vocab_size` and `shrink` as in `train_vocabulary`.
        held_out: share of documents; default: that of the corpus in the folder, or one that fits the text.
        progress: shows the progress of each step.
        options: as in `corpus.prepare.write_corpus`.

    Raises:
        AlbertineError: the text cannot be read, or the folder belongs to another call (checked before a
            vocabulary is trained).
    """
    if tokenizer is not None and not (vocab_size is None and kind is None):
        raise SettingsError(
            "a given tokenizer is not trained", remedy="Leave it out, or kind and size of a new vocabulary"
        )
    if held_out is not None:
        check_held_out_share(held_out)
    text_language = source.resolve_language(language)
    share = source.held_out_share(folder) if held_out is None else held_out
    options = {**source.read_options, "held_out": share, **options}
    if tokenizer is None:
        tokenizer = reusable_vocabulary(folder, source, kind=kind, vocab_size=vocab_size, shrink=shrink)
    if tokenizer is None:
        _check_before_training(folder, text_language, options)
        with progress("sentences for the vocabulary") as update, tempfile.TemporaryDirectory() as trained:
            tokenizer = train_vocabulary(
                source,
                Path(trained),
                text_language,
                kind=kind,
                vocab_size=vocab_size,
                shrink=shrink,
                progress=lambda number: update(number, None),
            )
    source.reports.clear()  # of the reads before
    with progress("bytes read") as update:
        return write_corpus(
            source.paths,
            folder,
            tokenizer,
            text_language,
            progress=lambda now: update(now.bytes_read, now.bytes_total),
            on_file=source.add_report,
            **options,
        )


def _check_before_training(folder: Path, language: Language, options: dict[str, Any]) -> None:
    """Raise what `write_corpus` would raise after the vocabulary is trained, which takes minutes.

    Raises:
        CorpusError: the folder belongs to another call.
        DataError: words are found by jieba, which is not installed.
    """
    names = ("format", "text_field", "encoding", *KNOWN_BEFORE_READING)
    check_resumable(folder, language, {name: options[name] for name in names if name in options})
    if options.get("words") == "jieba":
        check_segmenter()
