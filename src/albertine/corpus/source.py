"""The text that a corpus is built from: its files, how they are read, and a survey of its beginning."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import get_args

from albertine.corpus.build_plan import READ_LIMITS, stored_setting
from albertine.errors import SettingsError
from albertine.text.documents import PASSED_OVER, Document, FileReport, read_documents
from albertine.text.sentences import Language, detect_language

Progress = Callable[[str], AbstractContextManager[Callable[[int, int | None], None]]]
"""Called with the unit that is counted; a context manager that yields update(done, total), with `total` None
where it is not known, as `cli.show.progress` does."""


def no_progress(unit: str) -> nullcontext[Callable[[int, int | None], None]]:
    """A `Progress` that shows nothing."""
    return nullcontext(lambda done, total: None)


MAX_LISTED = 8
SURVEY_DOCUMENTS, SURVEY_CHARACTERS = 2_000, 50_000_000
LANGUAGE_CHARACTERS = 20_000


@dataclass(frozen=True)
class Survey:
    """Facts about the beginning of a text.

    Attributes:
        documents, characters: how many were read.
        whole: whether that was all of the text.
        language: of the first 20,000 characters.
    """

    documents: int
    characters: int
    whole: bool
    language: Language

    @property
    def held_out_share(self) -> float:
        """Share to hold out for evaluation: 1 %, or more of a few documents, so that some are held out."""
        return max(0.01, min(0.2, round(10 / self.documents, 3))) if self.whole and self.documents else 0.01


@dataclass(frozen=True)
class Source:
    """Files and folders, the options with which `read_documents` reads them, and its reports."""

    paths: Sequence[Path]
    format: str = "auto"
    text_field: str = "text"
    encoding: str = "utf-8"
    reports: dict[str, FileReport] = field(default_factory=dict)

    @property
    def read_options(self) -> dict[str, str]:
        """How the text is read, by the names that the settings of a corpus have for it."""
        return {"format": self.format, "text_field": self.text_field, "encoding": self.encoding}

    def documents(self) -> Iterator[Document]:
        """All documents, read anew by each call."""
        return read_documents(
            self.paths,
            self.format,
            self.text_field,
            encoding=self.encoding,
            limits=READ_LIMITS,
            on_file=self.add_report,
        )

    def add_report(self, report: FileReport) -> None:
        """Keep the last report of each file."""
        self.reports[report.source] = report

    def files_read(self) -> list[FileReport]:
        """The files that gave documents."""
        return [report for report in self.reports.values() if report.format not in PASSED_OVER]

    def passed_over(self) -> list[str]:
        """Messages about files in folders that could not be read or hold no text, by name, and about files
        skipped because of their names, counted by extension or name."""
        reports = [report for report in self.reports.values() if report.format in PASSED_OVER]
        unusable = [report for report in reports if report.format != "skipped"]
        lines = [f"passed over {report.source} ({report.format}): {report.reason}" for report in unusable]
        if len(lines) > MAX_LISTED:
            lines[MAX_LISTED:] = [f"passed over {len(lines) - MAX_LISTED:,} files more"]
        kinds = Counter(report.reason for report in reports if report.format == "skipped").most_common()
        listed = [f"{number:,} {kind}" for kind, number in kinds[:MAX_LISTED]]
        if rest := sum(number for _, number in kinds[MAX_LISTED:]):
            listed.append(f"{rest:,} others")
        if listed:
            lines.append(f"passed over by their names: {', '.join(listed)}. Name a file to have it read")
        return lines

    @cached_property
    def survey(self) -> Survey:
        """Read the first 2,000 documents or 50 million characters, whichever is less."""
        sample: list[str] = []
        documents = characters = sampled = 0
        whole = True
        for document in self.documents():
            documents, characters = documents + 1, characters + document.characters
            if sampled < LANGUAGE_CHARACTERS:
                sample += document.paragraphs
                sampled += document.characters
            if documents >= SURVEY_DOCUMENTS or characters >= SURVEY_CHARACTERS:
                whole = False
                break
        language = detect_language("\n".join(sample)[:LANGUAGE_CHARACTERS])
        return Survey(documents, characters, whole, language)

    def held_out_share(self, folder: Path) -> float:
        """The share of held-out documents of the corpus in a folder, finished or not, so that it can be
        continued after the text has grown; else one that fits the text."""
        earlier = stored_setting(folder, "held_out")
        return self.survey.held_out_share if earlier is None else earlier

    def count_characters(self, limit: int) -> int:
        """Number of characters of the text; counting stops at the document that reaches `limit`."""
        first = self.survey
        if first.whole or first.characters >= limit:
            return first.characters
        count = 0
        for document in self.documents():
            count += document.characters
            if count >= limit:
                break
        return count

    def resolve_language(self, requested: str = "auto") -> Language:
        """The requested language; for `auto` that of the beginning of the text.

        Raises:
            SettingsError: there are no sentence rules for it.
        """
        if requested == "auto":
            return self.survey.language
        if requested not in get_args(Language):
            raise SettingsError(f"`{requested}` is no language of texts", remedy="Use en, zh or auto")
        return "zh" if requested == "zh" else "en"
