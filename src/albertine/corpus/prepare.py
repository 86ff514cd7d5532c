"""Write a corpus folder from text: read, filter, hold out, split into shards, and encode in worker processes.

The bytes depend on the text, the tokenizer and the settings, not on the number of processes. Every shard is
complete or absent, the manifest is written last, and the same call continues an interrupted one.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from albertine.core.files import check_disk_space, recover, replace_durably, replaced_folder, sync_folder
from albertine.core.processors import usable_cores
from albertine.corpus.build_plan import (
    PLAN_FILE,
    READ_LIMITS,
    BuildOptions,
    make_plan,
    plan_digest,
    resume_plan,
    stored_setting,
)
from albertine.corpus.duplicates import SeenDigests
from albertine.corpus.lock import locked
from albertine.corpus.manifest import MANIFEST_FILE, SPLITS, Manifest, ShardRecord, load_manifest, shard_stem
from albertine.corpus.shard_texts import DocumentCounts, ShardText, SplitRules, split_into_shards
from albertine.corpus.shard_tokens import WordSource, encode_shard
from albertine.corpus.shards import check_file, file_record, load_finished_shard, write_shard
from albertine.corpus.workers import WorkerPool
from albertine.errors import CorpusError, DataError, RunError, TokenizerError
from albertine.text.documents import PASSED_OVER, FileReport, list_files, read_documents
from albertine.text.sentences import Language
from albertine.tokenizers.base import Tokenizer

MAX_UNKNOWN_SHARE = 0.2
_TOKENS_TO_JUDGE = 200_000
IN_FLIGHT = 17_000_000
"""Characters in progress per process: the largest shard and the rest of its last document."""

_COMPRESSED = {".xz", ".gz", ".zst", ".bz2", ".tgz", ".txz", ".parquet"}
_MIN_RATIO = 3  # of compression of text
_SHARD_RATIO = 0.5  # shard bytes per byte of text: English 0.55 to 0.6, Chinese 0.7 to 0.8
_MARGIN = 32 << 20


@dataclass(frozen=True)
class Progress:
    """Progress of `write_corpus`; bytes are of the files on disk."""

    bytes_read: int
    bytes_total: int
    documents: int
    tokens: int


def write_corpus(
    paths: Sequence[Path | str],
    folder: Path | str,
    tokenizer: Tokenizer,
    language: Language,
    *,
    format: str = "auto",
    text_field: str = "text",
    encoding: str = "utf-8",
    workers: int | None = None,
    min_characters: int = 200,
    held_out: float = 0.01,
    deduplicate: bool = True,
    shard_characters: int | None = None,
    words: WordSource = "pieces",
    seed: int = 1,
    allow_unknown: bool = False,
    named: str | None = None,
    progress: Callable[[Progress], None] | None = None,
    on_file: Callable[[FileReport], None] | None = None,
) -> Manifest:
    """Write a corpus folder from text, or finish or repair one that the same call began.

    Args:
        paths: files and folders of text; see `text.documents.read_documents`, also for format, text_field,
            encoding and on_file. Unusable files in folders are skipped and counted.
        folder: new, empty, or written by the same call.
        workers: processes that encode, in addition to this one, which reads; 1: all in this process; default:
            one per CPU core.
        min_characters: shorter documents are dropped.
        held_out: share of documents held out for evaluation, drawn by their content.
        deduplicate: drop documents with the same letters as an earlier one.
        shard_characters: text of a shard; default: that of the corpus in the folder, or about 1/32 of the
            files' bytes, 1 to 16 million.
        words: word boundaries for whole-word masking: `pieces` from the tokens, `jieba` by Chinese
            segmentation.
        seed: of the draw of held-out documents.
        allow_unknown: accept more than 20 % unknown tokens.
        named: recorded in the manifest in place of the path, if `paths` is one temporary file.
        progress: called repeatedly.

    Raises:
        DataError: text that cannot be read.
        CorpusError: nothing is left of the text, or the folder belongs to another call.
        TokenizerError: more than a fifth of the tokens are unknown.
        RunError: the folder is in use, the disk is full, or a process was killed; the same call continues
            later.
    """
    files = [list_files([path]) for path in paths]
    if shard_characters is None:
        size = sum(f.stat().st_size for group in files for f in group)
        shard_characters = int(stored_setting(Path(folder), "shard_characters") or _shard_characters(size))
    options = BuildOptions(
        language,
        format,
        text_field,
        encoding,
        workers if workers is not None else usable_cores(),
        deduplicate,
        words,
        SplitRules(min_characters, held_out, shard_characters, seed),
        allow_unknown,
    )
    options.check()
    plan = make_plan(paths, files, tokenizer, options, named)
    all_files = [file for group in files for file in group]
    return _run(_Run(Path(folder), tokenizer, options, plan, paths, all_files, progress, on_file))


def _shard_characters(size: int) -> int:
    """A power of two that gives enough shards for many processes, few files and bounded memory."""
    return int(1_000_000 << min(max(size // 32_000_000, 1).bit_length() - 1, 4))


def _run(run: _Run) -> Manifest:
    """Lock the folder and run; after an error, remove what this call wrote if a corrected call could not use
    it."""
    folder = run.folder
    new = not folder.exists()
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        try:
            with locked(folder):
                try:
                    return run.result()
                except (TokenizerError, CorpusError, DataError) as error:
                    ours = not run.foreign and not run.kept  # keep shards of an earlier call
                    if ours and (not isinstance(error, DataError) or (new and not run.records)):
                        run.discard()
                    raise
                finally:
                    if not run.foreign:
                        run.sweep()
        finally:
            if new and not os.listdir(folder):
                folder.rmdir()


@dataclass
class _Run:
    """One call of `write_corpus` on a locked folder.

    Attributes:
        foreign: the folder belongs to another call, or this is not known yet.
        kept: shards of an earlier call were reused.
    """

    folder: Path
    tokenizer: Tokenizer
    options: BuildOptions
    plan: dict[str, Any]
    paths: Sequence[Path | str]
    files: list[Path]
    progress: Callable[[Progress], None] | None
    on_file: Callable[[FileReport], None] | None
    foreign: bool = True
    passed_over: dict[str, str] = field(default_factory=dict)
    records: dict[tuple[str, int], ShardRecord] = field(default_factory=dict)
    tally: DocumentCounts = field(default_factory=DocumentCounts)
    tokens: int = 0
    unknown: int = 0
    kept: bool = False

    def result(self) -> Manifest:
        self.plan = resume_plan(self.folder, self.plan)
        self.foreign = False
        if (manifest := self._up_to_date()) is not None:
            return manifest
        begin = time.monotonic()
        self.sweep()
        written = sum(path.stat().st_size for split in SPLITS for path in self._shard_files(split))
        check_disk_space(self.folder, disk_space_needed(self.files, written), "the corpus")
        self._begin()
        self._encode()
        return self._finish(begin)

    def _up_to_date(self) -> Manifest | None:
        """The manifest if the folder is complete, undamaged and newer than every source."""
        path = self.folder / MANIFEST_FILE
        if not path.is_file() or (self.folder / PLAN_FILE).is_file():
            return None
        # a moved or copied file keeps its mtime, but its ctime is new
        dates = (date for f in map(Path.stat, self.files) for date in (f.st_mtime_ns, f.st_ctime_ns))
        if max(dates) >= path.stat().st_mtime_ns:
            return None
        try:
            manifest = load_manifest(self.folder)
            for name, record in manifest.files():
                check_file(self.folder / name, record, full=True)
        except CorpusError:
            return None
        return manifest

    def _begin(self) -> None:
        plan = json.dumps(self.plan, indent=1, ensure_ascii=False) + "\n"
        replace_durably(self.folder / PLAN_FILE, plan.encode())
        (self.folder / MANIFEST_FILE).unlink(missing_ok=True)
        with replaced_folder(self.folder / "tokenizer") as beside:
            self.tokenizer.save(beside)
        for split in SPLITS:
            (self.folder / split).mkdir(exist_ok=True)
        sync_folder(self.folder)

    def _encode(self) -> None:
        options = self.options
        total = sum(file.stat().st_size for file in self.files)
        digest = plan_digest(self.plan)
        read = 0

        def count_bytes(more: int) -> None:
            nonlocal read
            read += more

        def add_report(report: FileReport) -> None:
            if report.format in PASSED_OVER:
                self.passed_over[report.source] = report.format
            if self.on_file is not None:
                self.on_file(report)

        def report() -> None:
            if self.progress is not None:
                self.progress(Progress(min(read, total), total, self.tally.documents, self.tokens))

        def poll() -> None:
            pool.poll()
            report()

        def work(job: ShardText) -> tuple[str, int, ShardRecord]:
            arrays, unknown, empty = encode_shard(job, self.tokenizer, options.language, options.words)
            where = self.folder / job.split
            record = write_shard(
                where, job.index, arrays, unknown=unknown, empty_documents=empty, text=job.text, stamp=digest
            )
            return job.split, job.index, record

        seen = SeenDigests(self.folder) if options.deduplicate else None
        with WorkerPool(
            work,
            self._take,
            options.workers,
            weight=lambda job: job.characters,
            budget=IN_FLIGHT * max(2, options.workers),
        ) as pool:
            documents = read_documents(
                self.paths,
                options.format,
                options.text_field,
                encoding=options.encoding,
                limits=READ_LIMITS,
                on_file=add_report,
                on_bytes=count_bytes,
            )
            for job in split_into_shards(documents, options.rules, seen, self.tally, poll):
                done = load_finished_shard(self.folder / job.split, job.index, text=job.text, stamp=digest)
                if done is not None:
                    self.kept = True
                    self._take((job.split, job.index, done))
                else:
                    pool.put(job)
                report()
            pool.finish()
        report()

    def _take(self, result: tuple[str, int, ShardRecord]) -> None:
        split, index, record = result
        self.records[split, index] = record
        self.tokens += record.tokens
        self.unknown += record.unknown
        if self.tokens >= _TOKENS_TO_JUDGE:
            self._check_unknown()

    def _check_unknown(self) -> None:
        share = self.unknown / max(1, self.tokens)
        if share > MAX_UNKNOWN_SHARE and not self.options.allow_unknown:
            raise TokenizerError(
                f"does not fit this text: {share:.0%} of the tokens are unknown to it",
                where=f"tokenizer ({self.tokenizer.kind}, {self.tokenizer.vocab_size:,} tokens)",
                remedy="Use a tokenizer of the text's language or train one on it",
            )

    def _finish(self, begin: float) -> Manifest:
        self._check_unknown()
        tally, dropped = self.tally, {"short": self.tally.short, "duplicate": self.tally.duplicate}
        dropped["empty"] = sum(record.empty_documents for record in self.records.values())
        splits = {
            split: [self.records[key] for key in sorted(self.records) if key[0] == split] for split in SPLITS
        }
        manifest = Manifest(
            **self.plan,
            documents_read=tally.documents,
            dropped=dropped,
            passed_over=dict(sorted(Counter(self.passed_over.values()).items())),
            splits=splits,
            tokenizer_files={
                path.name: file_record(path) for path in sorted((self.folder / "tokenizer").iterdir())
            },
            megabytes_per_second=tally.text_bytes / 1e6 / max(1e-9, time.monotonic() - begin),
        )
        self._check_content(manifest)
        self._remove_others(manifest)
        replace_durably(self.folder / MANIFEST_FILE, manifest.dump().encode())
        (self.folder / PLAN_FILE).unlink(missing_ok=True)
        return manifest

    def _check_content(self, manifest: Manifest) -> None:
        rules = self.options.rules
        if not manifest.documents:
            raise CorpusError(
                f"nothing is left of {manifest.documents_read:,} documents: {self.tally.short:,} had fewer "
                f"than {rules.min_characters} characters, {self.tally.duplicate:,} were duplicates, "
                f"{manifest.dropped['empty']:,} had no token",
                where=", ".join(str(source["path"]) for source in self.plan["sources"]),
                remedy="Lower min_characters, or choose the format that separates documents correctly, as "
                '--format lines (Python: format="lines") does where a line is a sentence and a blank line '
                "ends a document",
            )
        if not manifest.count("documents", "train"):
            raise CorpusError(
                f"all {manifest.documents:,} documents fell to the held-out part",
                remedy="Give more text, a smaller held_out share, or the format that separates documents, "
                'as --format lines (Python: format="lines") does where a line is a sentence and a blank line '
                "ends a document",
            )

    def _remove_others(self, manifest: Manifest) -> None:
        """Remove shards of an earlier call on more text."""
        for split in SPLITS:
            keep = {shard_stem(index) for index in range(len(manifest.splits[split]))}
            for path in self._shard_files(split):
                if path.name.split(".")[0] not in keep:
                    path.unlink()

    def _shard_files(self, split: str) -> list[Path]:
        return sorted((self.folder / split).glob("shard-[0-9]*"))

    def sweep(self) -> None:
        """Remove half-written files of a killed process."""
        recover(self.folder / "tokenizer")
        for place in (self.folder, *(self.folder / split for split in SPLITS)):
            for path in (*place.glob("*.tmp"), *place.glob(".*.new")):
                with suppress(OSError):
                    path.unlink()

    def discard(self) -> None:
        """Remove all that this call wrote, since a call with other settings cannot use it."""
        self.sweep()
        for split in SPLITS:
            for path in self._shard_files(split):
                path.unlink()
            with suppress(OSError):  # missing, or not empty
                (self.folder / split).rmdir()
        shutil.rmtree(self.folder / "tokenizer", ignore_errors=True)
        for name in (MANIFEST_FILE, PLAN_FILE):
            (self.folder / name).unlink(missing_ok=True)


def disk_space_needed(files: Sequence[Path], written: int = 0) -> int:
    """Lower bound of the bytes that a corpus of `files` takes; low, so that no possible call is refused.

    Args:
        written: bytes of existing shards, which stay or are replaced one at a time.
    """
    text = sum(f.stat().st_size * (_MIN_RATIO if f.suffix.lower() in _COMPRESSED else 1) for f in files)
    return max(0, int(text * _SHARD_RATIO) - written) + _MARGIN


@contextmanager
def disk_errors(folder: Path) -> Iterator[None]:
    """Raise an OSError while writing to `folder` as a RunError with a remedy."""
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        what = "the disk is full" if full else f"cannot be written ({error.strerror or error})"
        remedy = "Free space" if full else "Fix this"
        raise RunError(
            what, where=folder, remedy=f"{remedy} and run the same command again; finished shards are kept"
        ) from error
