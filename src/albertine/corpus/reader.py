"""Random access to a corpus: read any span of sentences without reading the rest."""

from __future__ import annotations

import resource
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from albertine.corpus.manifest import PARTS, SPLITS, load_manifest
from albertine.corpus.shards import REPAIR_REMEDY, Shard, check_file, out_of_vocabulary_error, part_path
from albertine.errors import CorpusError

if TYPE_CHECKING:
    from albertine.tokenizers.base import Tokenizer


Ints = NDArray[np.int64]


class Corpus:
    """One split of a corpus folder.

    Opening compares the size and the first and last bytes of every file with the manifest, which finds
    missing, truncated and swapped shards. Shards are memory-mapped at first use in each process; each block
    of a file is compared with its SHA-256 before its first use there. `verify(full=True)` checks everything.

    Args:
        folder: made by `prepare`.
        split: `train` or `heldout`.

    Raises:
        CorpusError: the folder is no corpus or is unfinished, or a file differs from the manifest (the middle
            of a file: when it is read).
    """

    def __init__(self, folder: Path | str, split: str = "train") -> None:
        if split not in SPLITS:
            remedy = f"One of {', '.join(SPLITS)}"
            raise CorpusError(f"there is no split `{split}`", where=folder, remedy=remedy)
        self.folder, self.split = Path(folder), split
        self.manifest = load_manifest(self.folder)
        self._records = self.manifest.splits[split]
        _raise_file_limit(len(PARTS) * sum(map(len, self.manifest.splits.values())))
        self._shards: dict[int, Shard] = {}
        self._first_sentence = _offsets([r.sentences for r in self._records])
        self._documents: Ints | None = None
        self._lengths: NDArray[np.int32] | None = None
        self.verify()

    def __getstate__(self) -> dict[str, Any]:
        # worker processes map the shards themselves
        return {**self.__dict__, "_shards": {}, "_documents": None, "_lengths": None}

    @property
    def num_documents(self) -> int:
        return self.manifest.count("documents", self.split)

    @property
    def num_sentences(self) -> int:
        return self.manifest.count("sentences", self.split)

    @property
    def num_tokens(self) -> int:
        return self.manifest.count("tokens", self.split)

    @property
    def num_shards(self) -> int:
        return len(self._records)

    def shard(self, index: int) -> Shard:
        """Shard `index`, mapped."""
        found = self._shards.get(index)
        if found is None:
            folder, record = self.folder / self.split, self._records[index]
            found = self._shards[index] = Shard(folder, index, record, self.manifest.vocab_size)
        return found

    @property
    def document_offsets(self) -> Ints:
        """Offsets of the documents in all sentences of the split, int64 (documents+1,)."""
        if self._documents is None:
            parts = [self.shard(i).documents[:-1] + self._first_sentence[i] for i in range(self.num_shards)]
            self._documents = np.concatenate([*parts, self._first_sentence[-1:]])
        return self._documents

    @property
    def sentence_lengths(self) -> NDArray[np.int32]:
        """Tokens of every sentence of the split, int32 (sentences,)."""
        if self._lengths is None:
            parts = [np.diff(self.shard(i).sentences).astype(np.int32) for i in range(self.num_shards)]
            self._lengths = np.concatenate([np.zeros(0, np.int32), *parts])
        return self._lengths

    def span(self, start: int, end: int) -> tuple[NDArray[np.unsignedinteger[Any]], NDArray[np.bool_]]:
        """Token ids and word starts of the sentences start:end; views if they are in one shard."""
        if not 0 <= start < end <= self.num_sentences:
            raise IndexError(f"sentences {start}:{end} of {self.num_sentences}")
        tokens, words = [], []
        index = int(np.searchsorted(self._first_sentence, start, side="right")) - 1
        while start < end:
            shard, base = self.shard(index), int(self._first_sentence[index])
            stop = min(end, int(self._first_sentence[index + 1]))
            first, last = int(shard.sentences[start - base]), int(shard.sentences[stop - base])
            tokens.append(shard.ids(first, last))
            words.append(shard.words(first, last))
            start, index = stop, index + 1
        if len(tokens) == 1:
            return tokens[0], words[0]
        return np.concatenate(tokens), np.concatenate(words)

    def tokenizer(self) -> Tokenizer:
        """Load the tokenizer in the folder.

        Raises:
            CorpusError: it is not the one that the text was encoded with, or one of its files is damaged.
        """
        from albertine.tokenizers.load import load_tokenizer

        tokenizer = load_tokenizer(self.folder / "tokenizer")
        if tokenizer.fingerprint != self.manifest.tokenizer["fingerprint"]:
            raise CorpusError(
                "is not the tokenizer this corpus was prepared with",
                where=self.folder / "tokenizer",
                remedy=REPAIR_REMEDY,
            )
        for name, record in self.manifest.tokenizer_files.items():
            check_file(self.folder / "tokenizer" / name, record, full=True)
        return tokenizer

    def verify(self, full: bool = False) -> None:
        """Compare the files with the manifest; with `full` every byte, offset and token id of both splits.

        Raises:
            CorpusError: names the first file that differs.
        """
        for name, record in self.manifest.files(None if full else self.split):
            check_file(self.folder / name, record, full=full)
        for split in SPLITS if full else (self.split,):
            for index, shard in enumerate(self.manifest.splits[split]):
                if shard.max_id >= self.manifest.vocab_size:
                    raise out_of_vocabulary_error(
                        part_path(self.folder / split, index, "tokens"), shard.max_id
                    )
                if full:
                    Shard(self.folder / split, index, shard, self.manifest.vocab_size).check()


def _offsets(lengths: list[int]) -> Ints:
    return np.concatenate([[0], np.cumsum(np.array(lengths, dtype=np.int64))]).astype(np.int64)


def _raise_file_limit(files: int) -> None:
    """Raise the soft limit of open files of this process and its children by `files`: Python keeps a file
    open for every mapped array, and the limit is often 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = files + 1024
    if soft != resource.RLIM_INFINITY and soft < needed:
        most = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


class TokenShard(Protocol):
    """One memory-mapped part of a corpus, checked as it is read."""

    @property
    def num_tokens(self) -> int: ...

    @property
    def tokens(self) -> NDArray[np.integer]:
        """All token ids, (tokens,)."""
        ...

    def ids(self, start: int, end: int) -> NDArray[np.integer]:
        """Token ids start:end, (end-start,)."""
        ...

    def words(self, start: int, end: int) -> NDArray[np.bool_]:
        """Whether each token of start:end begins a word."""
        ...


class Shards(Protocol):
    """The shards of a corpus, in order."""

    @property
    def num_shards(self) -> int: ...

    def shard(self, index: int) -> TokenShard: ...


class SpanReader:
    """Tokens by their offset in the whole corpus. Spans never cross a shard, because documents do not."""

    def __init__(self, corpus: Shards) -> None:
        self._shards = [corpus.shard(i) for i in range(corpus.num_shards)]
        self._first = np.concatenate([[0], np.cumsum([shard.num_tokens for shard in self._shards])])

    def gather(self, starts: Ints, lengths: Ints) -> tuple[Ints, NDArray[np.bool_]]:
        """Tokens and word starts of the spans, end to end; every length is at least 1."""
        home = np.searchsorted(self._first, starts, side="right") - 1
        begin = starts - self._first[home]
        tokens: list[NDArray[np.integer]] = []
        words: list[NDArray[np.bool_]] = []
        for shard, at, end in zip(home.tolist(), begin.tolist(), (begin + lengths).tolist(), strict=True):
            tokens.append(self._shards[shard].ids(at, end))
            words.append(self._shards[shard].words(at, end))
        return np.concatenate(tokens), np.concatenate(words)
