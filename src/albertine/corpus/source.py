"""The user's text: where it lies, how it is read, what is passed over, and a first look at it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from albertine.corpus.build_plan import LIMITS, earlier_setting
from albertine.errors import SettingsError
from albertine.text.documents import PASSED_OVER, Document, FileReport, read_documents
from albertine.text.sentences import Language, guess_language

if TYPE_CHECKING:
    from albertine.corpus.manifest import Manifest
    from albertine.tokenizers.base import Tokenizer

Progress = Callable[[str], AbstractContextManager[Callable[[int, int | None], None]]]
"""Called with what is counted; gives update(done, total) for a `with` block, `total` None where it is not
known, as `cli.show.progress` does."""


def no_progress(what: str) -> nullcontext[Callable[[int, int | None], None]]:
    """Shows nothing."""
    return nullcontext(lambda done, total: None)


MOST_NAMED = 8
ENOUGH_DOCUMENTS, ENOUGH_CHARACTERS = 2_000, 50_000_000
GUESSED_CHARACTERS = 20_000


@dataclass(frozen=True)
class Survey:
    """A first look at a text.

    Attributes:
        documents, characters: as far as the look went.
        whole: whether that was all of it.
        language: of its beginning.
    """

    documents: int
    characters: int
    whole: bool
    language: Language

    @property
    def held_out(self) -> float:
        """A share for evaluation: 1 %, more of few documents, so that some are held out at all."""
        return max(0.01, min(0.2, round(10 / self.documents, 3))) if self.whole and self.documents else 0.01


@dataclass(frozen=True)
class Source:
    """Files and folders, the arguments with which `read_documents` reads them, and what it reported."""

    paths: Sequence[Path]
    format: str = "auto"
    text_field: str = "text"
    encoding: str = "utf-8"
    reports: dict[str, FileReport] = field(default_factory=dict)

    @property
    def reading(self) -> dict[str, str]:
        """How the text is read, under the names that the settings of a corpus have for it."""
        return {"format": self.format, "text_field": self.text_field, "encoding": self.encoding}

    def documents(self) -> Iterator[Document]:
        return read_documents(
            self.paths,
            self.format,
            self.text_field,
            encoding=self.encoding,
            limits=LIMITS,
            on_file=self.note,
        )

    def note(self, report: FileReport) -> None:
        self.reports[report.source] = report

    def read(self) -> list[FileReport]:
        """The files that gave documents."""
        return [report for report in self.reports.values() if report.format not in PASSED_OVER]

    def passed_over(self) -> list[str]:
        """Sentences that name the files in folders which could not be read or hold no text, and count, by
        extension or name, those which the search passed by."""
        reports = [report for report in self.reports.values() if report.format in PASSED_OVER]
        odd = [report for report in reports if report.format != "skipped"]
        lines = [f"passed over {report.source} ({report.format}): {report.reason}" for report in odd]
        if len(lines) > MOST_NAMED:
            lines[MOST_NAMED:] = [f"passed over {len(lines) - MOST_NAMED:,} files more"]
        kinds = Counter(report.reason for report in reports if report.format == "skipped").most_common()
        named = [f"{number:,} {kind}" for kind, number in kinds[:MOST_NAMED]]
        if rest := sum(number for _, number in kinds[MOST_NAMED:]):
            named.append(f"{rest:,} others")
        if named:
            lines.append(f"passed over by their names: {', '.join(named)}. Name a file to have it read")
        return lines

    @cached_property
    def survey(self) -> Survey:
        """What the text is like; reads at most its first 2,000 documents or 50 million characters."""
        sample: list[str] = []
        documents = characters = sampled = 0
        whole = True
        for document in self.documents():
            documents, characters = documents + 1, characters + document.characters
            if sampled < GUESSED_CHARACTERS:
                sample += document.paragraphs
                sampled += document.characters
            if documents >= ENOUGH_DOCUMENTS or characters >= ENOUGH_CHARACTERS:
                whole = False
                break
        language = guess_language("\n".join(sample)[:GUESSED_CHARACTERS])
        return Survey(documents, characters, whole, language)

    def prepare(
        self,
        corpus: Path,
        tokenizer: Tokenizer,
        language: Language,
        what: str,
        *,
        progress: Progress = no_progress,
        **options: Any,
    ) -> Manifest:
        """A corpus of the text; `progress` is called with `what`, and counts bytes. `options` as in
        `corpus.prepare.prepare`."""
        from albertine.corpus.prepare import prepare

        with progress(what) as update:
            callbacks = {
                "progress": lambda now: update(now.bytes_read, now.bytes_total),
                "on_file": self.note,
            }
            return prepare(
                self.paths, corpus, tokenizer, language, **{**self.reading, **callbacks, **options}
            )

    def held_out(self, corpus: Path) -> float:
        """The share of documents held out in a corpus folder, whole or unfinished, so that it is gone on with
        also where the text has grown; or what fits the text."""
        earlier = earlier_setting(corpus, "held_out")
        return self.survey.held_out if earlier is None else earlier

    def characters(self, enough: int) -> int:
        """How many characters the text has, counted until there are `enough`."""
        first = self.survey
        if first.whole or first.characters >= enough:
            return first.characters
        counted = 0
        for document in self.documents():
            counted += document.characters
            if counted >= enough:
                break
        return counted

    def language(self, wanted: str = "auto") -> Language:
        """The language that is wanted, or for `auto` the one at the beginning of the text.

        Raises:
            SettingsError: it is none that texts are cut into sentences by.
        """
        if wanted == "auto":
            return self.survey.language
        if wanted not in get_args(Language):
            raise SettingsError(f"`{wanted}` is no language of texts", remedy="Say en, zh or auto")
        return "zh" if wanted == "zh" else "en"
