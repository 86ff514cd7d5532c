"""Text to a corpus, with a vocabulary of its own or a given one: for `prepare`, the demo and Python."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from albertine.cli import show
from albertine.cli.source import Source, Watch
from albertine.cli.vocabulary import Kind, vocabulary_for
from albertine.corpus.plan import check_folder, check_share
from albertine.errors import SettingsError
from albertine.text.sentences import Language
from albertine.text.words import check_segmenter

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
        AlbertineError: the text cannot be read, or the folder belongs to another call; where a vocabulary is
            to be trained, before that.
    """
    from albertine import load_tokenizer

    if tokenizer is not None and not (vocab_size is None and kind is None):
        raise SettingsError(
            "a given tokenizer is not trained", remedy="Leave it out, or kind and size of a new vocabulary"
        )
    if held_out is not None:
        check_share(held_out)
    spoken = source.language(language)
    share = source.held_out(corpus) if held_out is None else held_out
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
                check=lambda: _check(source, corpus, spoken, {"held_out": share, **options}),
            )
    source.reports.clear()  # of the first look
    return source.prepare(corpus, vocabulary, spoken, "bytes read", watch=watch, held_out=share, **options)


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
