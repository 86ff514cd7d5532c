"""Text to a corpus, with a vocabulary of its own or a given one: for `prepare`, the demo and Python."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from albertine.cli import show
from albertine.cli.source import Source, Watch
from albertine.cli.vocabulary import Kind, vocabulary_for
from albertine.errors import SettingsError

if TYPE_CHECKING:
    from albertine.corpus.manifest import Manifest


def unwatched(what: str) -> nullcontext[Any]:
    """Instead of `show.progress`: nobody waits at a terminal."""
    return nullcontext(lambda done, total: None)


def corpus_of(
    source: Source,
    corpus: Path,
    *,
    tokenizer: str | Path | None = None,
    kind: Kind | None = None,
    vocab_size: int | None = None,
    shrink: bool = False,
    language: str = "auto",
    held_out: float | None = None,
    watch: Watch = show.progress,
    **options: Any,
) -> Manifest:
    """A corpus of a text, or go on with one that the same call began; what `source` reports afterwards is
    what the corpus was made of.

    Args:
        tokenizer: all that `albertine.load_tokenizer` takes; default: a vocabulary is trained, as `kind`,
            `vocab_size` and `shrink` say to `vocabulary.train`.
        held_out: share of documents; default that of the corpus in the folder, or one that fits the text.
        watch: shows whoever waits how far it is. options: as `corpus.prepare.prepare` has them.

    Raises:
        AlbertineError: the text cannot be read, or the folder belongs to another call.
    """
    from albertine import load_tokenizer

    if tokenizer is not None and not (vocab_size is None and kind is None):
        raise SettingsError(
            "a given tokenizer is not trained", remedy="Leave it out, or kind and size of a new vocabulary"
        )
    spoken = source.language(language)
    if tokenizer is not None:
        vocabulary = load_tokenizer(tokenizer)
    else:
        with watch("sentences for the vocabulary") as update:
            vocabulary = vocabulary_for(
                source,
                corpus,
                spoken,
                kind=kind,
                vocab_size=vocab_size,
                shrink=shrink,
                progress=lambda number: update(number, None),
            )
    share = source.held_out(corpus) if held_out is None else held_out
    source.reports.clear()  # of the first look
    return source.prepare(corpus, vocabulary, spoken, "bytes read", watch=watch, held_out=share, **options)
