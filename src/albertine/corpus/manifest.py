"""The table of contents of a corpus folder: what is in it, how it was made, and the SHA-256 of every file.

It holds no time and no machine, so that the same text prepared twice gives the same bytes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from albertine.errors import CorpusError

NAME = "manifest.json"
FORMAT = "albertine-corpus"
VERSION = 1
SPLITS = ("train", "heldout")
PARTS = ("tokens", "sentences", "documents", "words")


@dataclass(frozen=True)
class FileRecord:
    """One file: its size, its SHA-256, and that of its first and last 4096 bytes for the quick check."""

    bytes: int
    sha256: str
    edges: str


@dataclass(frozen=True)
class ShardRecord:
    """One shard: its counts and files.

    Attributes:
        text: SHA-256 of the text it was made from, in order.
        empty_documents: documents of that text in which the tokenizer found nothing.
        max_id: the largest token id in it.
        files: by part: tokens, sentences, documents, words.
    """

    documents: int
    sentences: int
    tokens: int
    unknown: int
    empty_documents: int
    max_id: int
    text: str
    files: dict[str, FileRecord]

    @classmethod
    def parse(cls, tree: Mapping[str, Any]) -> ShardRecord:
        values = {f.name: tree[f.name] for f in fields(cls)}
        values["files"] = {name: FileRecord(**entry) for name, entry in tree["files"].items()}
        return cls(**values)


@dataclass(frozen=True)
class Manifest:
    """What `prepare` made.

    Attributes:
        language: `en` or `zh`.
        tokenizer: kind, vocab_size, fingerprint.
        settings: everything else that decides the bytes.
        sources: what was read, as it was named first: path, number of files, bytes, and a digest of their
            names and sizes.
        documents_read: before anything was dropped.
        dropped: documents dropped, by reason: short, duplicate, empty.
        splits: the shards of `train` and `heldout`.
        tokenizer_files: the files of `tokenizer/`.
        passed_over: how many files in folders and archives gave no documents, or not all, by the reason
            (`text.documents.PASSED_OVER`).
        megabytes_per_second: UTF-8 text over wall time of the call that returned this; never written.
    """

    language: str
    tokenizer: dict[str, Any]
    settings: dict[str, Any]
    sources: list[dict[str, Any]]
    documents_read: int
    dropped: dict[str, int]
    splits: dict[str, list[ShardRecord]]
    tokenizer_files: dict[str, FileRecord]
    passed_over: dict[str, int] = field(default_factory=dict)
    megabytes_per_second: float | None = field(default=None, compare=False)

    def count(self, what: str, split: str | None = None) -> int:
        """Sum of `documents`, `sentences`, `tokens` or `unknown` over one split or both."""
        wanted = SPLITS if split is None else (split,)
        return sum(int(getattr(shard, what)) for name in wanted for shard in self.splits[name])

    @property
    def documents(self) -> int:
        return self.count("documents")

    @property
    def sentences(self) -> int:
        return self.count("sentences")

    @property
    def tokens(self) -> int:
        return self.count("tokens")

    @property
    def unknown_share(self) -> float:
        """Share of tokens that are the tokenizer's unknown one."""
        return self.count("unknown") / max(1, self.tokens)

    @property
    def vocab_size(self) -> int:
        return int(self.tokenizer["vocab_size"])

    def files(self, split: str | None = None) -> Iterator[tuple[str, FileRecord]]:
        """Path inside the folder and record of every file; with `split` only of that split's shards."""
        for name in SPLITS if split is None else (split,):
            for index, shard in enumerate(self.splits[name]):
                for part, record in shard.files.items():
                    yield f"{name}/{shard_stem(index)}.{part}.npy", record
        if split is None:
            for file, record in self.tokenizer_files.items():
                yield f"tokenizer/{file}", record

    def dump(self) -> str:
        """The JSON text of `manifest.json`."""
        tree = asdict(self)
        del tree["megabytes_per_second"]
        return json.dumps({"format": FORMAT, "version": VERSION, **tree}, indent=1, ensure_ascii=False) + "\n"


def shard_stem(index: int) -> str:
    return f"shard-{index:05d}"


def manifest_digest(folder: Path) -> str:
    """SHA-256 of the manifest of a corpus, by which runs know what they read."""
    return hashlib.sha256((folder / NAME).read_bytes()).hexdigest()


def load_manifest(folder: Path) -> Manifest:
    """The manifest of a corpus folder.

    Raises:
        CorpusError: there is none, or it is no readable manifest of a version known here.
    """
    path = folder / NAME
    if not path.is_file():
        raise _absent(folder)
    try:
        tree = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise _unreadable(path, str(error)) from error
    if not isinstance(tree, dict) or tree.get("format") != FORMAT:
        remedy = "Name a folder made by `prepare`"
        raise CorpusError("is not the manifest of a corpus", where=path, remedy=remedy)
    if tree.get("version") != VERSION:
        remedy = "Prepare the text again with this version"
        raise CorpusError(f"is of version {tree.get('version')}, not {VERSION}", where=path, remedy=remedy)
    try:
        tree = {"passed_over": {}, **tree}  # older manifests do not tell
        values = {f.name: tree[f.name] for f in fields(Manifest) if f.name != "megabytes_per_second"}
        values["splits"] = {name: [ShardRecord.parse(s) for s in tree["splits"][name]] for name in SPLITS}
        values["tokenizer_files"] = {n: FileRecord(**e) for n, e in tree["tokenizer_files"].items()}
        return Manifest(**values)
    except (KeyError, TypeError, AttributeError) as error:
        raise _unreadable(path, f"{type(error).__name__} {error}") from error


def _unreadable(path: Path, why: str) -> CorpusError:
    return CorpusError(f"is damaged ({why})", where=path, remedy="Run `prepare` on this folder again")


def _absent(folder: Path) -> CorpusError:
    if not folder.is_dir():
        return CorpusError("there is no such corpus folder", where=folder, remedy="Make it with `prepare`")
    if (folder / "prepare.json").is_file():
        remedy = "Run the same `prepare` command again; finished shards are kept"
        return CorpusError("was not prepared to the end", where=folder, remedy=remedy)
    return CorpusError(f"holds no {NAME}, so it is no corpus", where=folder, remedy="Make one with `prepare`")
