"""The manifest of a corpus folder: its content, settings and the SHA-256 of every file.

It records no time or machine, so that preparing the same text again gives the same bytes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from albertine.core.files import read_regular
from albertine.errors import CorpusError

MANIFEST_FILE = "manifest.json"
FORMAT = "albertine-corpus"
VERSION = 2
MAX_BYTES = 1 << 30
"""Of a manifest; with a thousand shards it has 2 MB."""
BLOCK_BYTES = 2 << 20
"""Size of the blocks of a shard's file that have a digest each."""
SPLITS = ("train", "heldout")
PARTS = ("tokens", "sentences", "documents", "words")


@dataclass(frozen=True)
class FileRecord:
    """One file: its size, its SHA-256, and the SHA-256 of its first and last 4096 bytes for a quick check.

    Attributes:
        blocks: of a shard's file of more than `BLOCK_BYTES` bytes, the SHA-256 (64 hexadecimal digits) of
            each block of that size, end to end. Empty for smaller files, which are one block, and `sha256`
            is its digest.
    """

    bytes: int
    sha256: str
    edges: str
    blocks: str = ""

    def __post_init__(self) -> None:
        if self.blocks and len(self.blocks) != 64 * -(-self.bytes // BLOCK_BYTES):
            raise ValueError(f"{len(self.blocks) / 64:g} digests of blocks for {self.bytes} bytes")

    @property
    def block_bytes(self) -> int:
        """Bytes of each block but the last."""
        return BLOCK_BYTES if self.blocks else max(1, self.bytes)

    def block_digest(self, index: int) -> str:
        """SHA-256 of a block."""
        return self.blocks[64 * index : 64 * index + 64] if self.blocks else self.sha256

    def as_dict(self) -> dict[str, Any]:
        """As in the JSON file."""
        tree = asdict(self)
        if not self.blocks:
            del tree["blocks"]
        return tree


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

    def as_dict(self) -> dict[str, Any]:
        """As in the JSON file."""
        return {**asdict(self), "files": {name: file.as_dict() for name, file in self.files.items()}}


@dataclass(frozen=True)
class Manifest:
    """Content of `manifest.json`.

    Attributes:
        language: `en` or `zh`.
        tokenizer: kind, vocab_size, fingerprint.
        settings: all others that decide the bytes.
        sources: path as first given, number of files, bytes, and a digest of names and sizes of files.
        documents_read: including dropped ones.
        dropped: documents dropped, by reason: short, duplicate, empty.
        splits: the shards of `train` and `heldout`.
        tokenizer_files: the files of `tokenizer/`.
        passed_over: number of files in folders and archives that gave no documents, or not all, by reason
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

    def count(self, field: str, split: str | None = None) -> int:
        """Sum of `documents`, `sentences`, `tokens` or `unknown` over one split or both."""
        splits = SPLITS if split is None else (split,)
        return sum(int(getattr(shard, field)) for name in splits for shard in self.splits[name])

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
        """Share of tokens that are unknown."""
        return self.count("unknown") / max(1, self.tokens)

    @property
    def vocab_size(self) -> int:
        return int(self.tokenizer["vocab_size"])

    def files(self, split: str | None = None) -> Iterator[tuple[str, FileRecord]]:
        """Relative path and record of every file; with `split` only of that split's shards."""
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
        tree["splits"] = {name: [shard.as_dict() for shard in self.splits[name]] for name in self.splits}
        tree["tokenizer_files"] = {name: file.as_dict() for name, file in self.tokenizer_files.items()}
        tree = {"format": FORMAT, "version": VERSION, **tree}
        return json.dumps(tree, indent=1, ensure_ascii=False) + "\n"


def shard_stem(index: int) -> str:
    return f"shard-{index:05d}"


def manifest_digest(folder: Path) -> str:
    """SHA-256 of the manifest of a corpus, by which runs identify it."""
    return hashlib.sha256((folder / MANIFEST_FILE).read_bytes()).hexdigest()


def load_manifest(folder: Path) -> Manifest:
    """Load the manifest of a corpus folder.

    Raises:
        CorpusError: it is missing, unreadable or of another version.
    """
    path = folder / MANIFEST_FILE
    if not path.is_file():
        raise _absent(folder)
    try:
        tree = json.loads(read_regular(path, MAX_BYTES))
    except (OSError, ValueError, RecursionError) as error:
        raise _unreadable(path, str(error)) from error
    if not isinstance(tree, dict) or tree.get("format") != FORMAT:
        remedy = "Name a folder made by `prepare`"
        raise CorpusError("is not the manifest of a corpus", where=path, remedy=remedy)
    if tree.get("version") != VERSION:
        remedy = "Prepare the text again with this version"
        what = f"is of version {tree.get('version')}, not {VERSION}"
        raise CorpusError(what, where=path, remedy=remedy)
    try:
        values = {f.name: tree[f.name] for f in fields(Manifest) if f.name != "megabytes_per_second"}
        values["splits"] = {name: [ShardRecord.parse(s) for s in tree["splits"][name]] for name in SPLITS}
        values["tokenizer_files"] = {n: FileRecord(**e) for n, e in tree["tokenizer_files"].items()}
        return Manifest(**values)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise _unreadable(path, f"{type(error).__name__} {error}") from error


def _unreadable(path: Path, why: str) -> CorpusError:
    return CorpusError(f"is damaged ({why})", where=path, remedy="Run `prepare` on this folder again")


def _absent(folder: Path) -> CorpusError:
    if not folder.is_dir():
        return CorpusError("there is no such corpus folder", where=folder, remedy="Make it with `prepare`")
    if (folder / "prepare.json").is_file():
        remedy = "Run the same `prepare` command again; finished shards are kept"
        return CorpusError("was not prepared to the end", where=folder, remedy=remedy)
    return CorpusError(
        f"holds no {MANIFEST_FILE}, so it is no corpus", where=folder, remedy="Make one with `prepare`"
    )
