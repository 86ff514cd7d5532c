"""The user's text: where it lies, how it is read, and a first look that decides the defaults."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from albertine.text.documents import Document, FileReport, read_documents
from albertine.text.sentences import Language, guess_language

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
    """Files and folders, and the arguments with which `read_documents` reads them."""

    paths: Sequence[Path]
    format: str = "auto"
    text_field: str = "text"
    encoding: str = "utf-8"

    def documents(self, on_file: Callable[[FileReport], None] | None = None) -> Iterator[Document]:
        return read_documents(
            self.paths, self.format, self.text_field, encoding=self.encoding, on_file=on_file
        )

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

    def language(self, wanted: str = "auto") -> Language:
        """The language that is wanted, or for `auto` the one at the beginning of the text."""
        if wanted == "auto":
            return self.survey.language
        return "zh" if wanted == "zh" else "en"
