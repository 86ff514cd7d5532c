"""Reading a corpus folder: every span is what was written, and every kind of damage is named."""

from __future__ import annotations

import json
import os
import resource
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from albertine.corpus.manifest import NAME, load_manifest
from albertine.corpus.reader import Corpus
from albertine.corpus.shards import ShardArrays
from albertine.errors import CorpusError
from tests.corpus import handmade
from tests.corpus.handmade import arrays, write_corpus


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_corpus(tmp_path / "corpus", [20, 31, 5])
    return tmp_path / "corpus"


def joined(parts: list[ShardArrays]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """All tokens, word starts and sentence lengths."""
    return (
        np.concatenate([p.tokens for p in parts]),
        np.concatenate([p.starts for p in parts]),
        np.concatenate([np.diff(p.sentences) for p in parts]),
    )


def test_counts_and_global_arrays(tmp_path: Path) -> None:
    parts = write_corpus(tmp_path / "corpus", [20, 31, 5])
    corpus = Corpus(tmp_path / "corpus")
    tokens, _, lengths = joined(parts)
    assert (corpus.num_shards, corpus.num_documents) == (3, 56)
    assert (corpus.num_tokens, corpus.num_sentences) == (len(tokens), len(lengths))
    assert np.array_equal(corpus.sentence_lengths, lengths)
    sizes = np.concatenate([np.diff(p.documents) for p in parts])
    assert np.array_equal(corpus.document_offsets, np.concatenate([[0], np.cumsum(sizes)]))
    assert corpus.document_offsets.dtype == np.int64
    assert Corpus(tmp_path / "corpus", "heldout").num_documents == 3


def test_every_span_is_what_was_written(tmp_path: Path) -> None:
    parts = write_corpus(tmp_path / "corpus", [3, 1, 4])
    corpus = Corpus(tmp_path / "corpus")
    tokens, starts, lengths = joined(parts)
    edges = np.concatenate([[0], np.cumsum(lengths)])
    for start in range(len(lengths)):
        assert np.array_equal(corpus.sentence_tokens(start), tokens[edges[start] : edges[start + 1]])
        for end in range(start + 1, len(lengths) + 1):
            ids, words = corpus.span(start, end)
            assert np.array_equal(ids, tokens[edges[start] : edges[end]])
            assert words.dtype == np.bool_ and np.array_equal(words, starts[edges[start] : edges[end]])
    for bad in ((-1, 2), (2, 2), (0, len(lengths) + 1)):
        with pytest.raises(IndexError):
            corpus.span(*bad)


def test_tokens_are_mapped_and_not_copied(folder: Path) -> None:
    corpus = Corpus(folder)
    view = corpus.sentence_tokens(0)
    assert np.shares_memory(view, corpus.shard(0).tokens) and not view.flags.writeable
    state = corpus.__getstate__()
    assert not state["_shards"], "a mapping must not travel to another process"


@pytest.mark.parametrize(("size", "dtype"), [(65_535, np.uint16), (65_536, np.uint32)])
def test_token_type_follows_the_vocabulary(tmp_path: Path, size: int, dtype: type) -> None:
    parts = write_corpus(tmp_path / "corpus", [4], vocab_size=size)
    corpus = Corpus(tmp_path / "corpus")
    assert corpus.shard(0).tokens.dtype == dtype
    assert np.array_equal(corpus.shard(0).tokens, parts[0].tokens)


def flip(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


def swap(a: Path, b: Path) -> None:
    first = a.read_bytes()
    a.write_bytes(b.read_bytes())
    b.write_bytes(first)


DAMAGE: dict[str, tuple[Callable[[Path], None], str]] = {
    "missing": (lambda f: (f / "train/shard-00001.words.npy").unlink(), "shard-00001.words.npy: is missing"),
    "cut off": (
        lambda f: (f / "train/shard-00002.tokens.npy").write_bytes(b"\x93NUMPY"),
        "shard-00002.tokens.npy: is cut off",
    ),
    "longer": (
        lambda f: (f / "train/shard-00000.documents.npy").open("ab").write(b"12345678"),
        "shard-00000.documents.npy: is too long",
    ),
    "swapped": (
        lambda f: swap(f / "train/shard-00000.sentences.npy", f / "train/shard-00001.sentences.npy"),
        "shard-00000.sentences.npy",
    ),
    "flipped bit in the header": (lambda f: flip(f / "train/shard-00000.tokens.npy", 20), "SHA-256 differs"),
    "flipped last bit": (lambda f: flip(f / "train/shard-00001.tokens.npy", -1), "SHA-256 differs"),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_damage_is_found_at_opening(folder: Path, kind: str) -> None:
    hurt, message = DAMAGE[kind]
    hurt(folder)
    with pytest.raises(CorpusError, match=message) as caught:
        Corpus(folder)
    assert caught.value.remedy and "prepare" in caught.value.remedy


def test_shards_of_equal_size_swapped_are_found(tmp_path: Path) -> None:
    write_corpus(tmp_path / "corpus", [40, 40])
    a, b = (tmp_path / f"corpus/train/shard-0000{i}.words.npy" for i in (0, 1))
    size = min(a.stat().st_size, b.stat().st_size)
    tree = json.loads((tmp_path / "corpus" / NAME).read_text())
    for i, path in enumerate((a, b)):
        path.write_bytes(path.read_bytes()[:size])
        tree["splits"]["train"][i]["files"]["words"]["bytes"] = size
    (tmp_path / "corpus" / NAME).write_text(json.dumps(tree))
    swap(a, b)
    with pytest.raises(CorpusError, match="another shard's"):
        Corpus(tmp_path / "corpus")


def test_every_flipped_bit_is_found_by_the_full_check(tmp_path: Path) -> None:
    """200 random places, most beyond the edges that opening looks at."""
    write_corpus(tmp_path / "corpus", [700, 2])
    corpus = Corpus(tmp_path / "corpus")
    corpus.verify(full=True)
    rng = np.random.default_rng(0)
    files = [tmp_path / "corpus" / name for name, _ in corpus.manifest.files()]
    assert files[0].stat().st_size > 3 * 4096
    for _ in range(200):
        path = files[int(rng.integers(len(files)))]
        whole = path.read_bytes()
        flip(path, int(rng.integers(len(whole))))
        with pytest.raises(CorpusError, match=path.name):
            corpus.verify(full=True)
        path.write_bytes(whole)


def test_ids_beyond_the_vocabulary_are_refused(folder: Path) -> None:
    tree = json.loads((folder / NAME).read_text())
    tree["tokenizer"]["vocab_size"] = 900
    (folder / NAME).write_text(json.dumps(tree))
    with pytest.raises(CorpusError, match="which the vocabulary lacks"):
        Corpus(folder)


def change(path: Path, **values: object) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


@pytest.mark.parametrize(
    ("hurt", "message"),
    [
        (lambda f: (f / NAME).unlink(), "no corpus"),
        (lambda f: (f / NAME).write_text("{"), "is damaged"),
        (lambda f: (f / NAME).write_text("[]"), "not the manifest"),
        (lambda f: change(f / NAME, version=99), "version 99"),
        (lambda f: change(f / NAME, splits={"train": [{}], "heldout": []}), "is damaged"),
        (lambda f: ((f / NAME).unlink(), (f / "prepare.json").write_text("{}")), "not prepared to the end"),
    ],
)
def test_bad_manifests_are_named(folder: Path, hurt: Callable[[Path], object], message: str) -> None:
    hurt(folder)
    with pytest.raises(CorpusError, match=message):
        Corpus(folder)


def test_unknown_folder_and_split(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match="no such corpus"):
        Corpus(tmp_path / "elsewhere")
    with pytest.raises(CorpusError, match="no split `test`"):
        Corpus(folder, "test")


def test_manifest_round_trip(folder: Path) -> None:
    assert load_manifest(folder).dump() == (folder / NAME).read_text(encoding="utf-8")


def test_the_largest_id_is_below_the_size_of_the_vocabulary(folder: Path) -> None:
    manifest = load_manifest(folder)
    largest = max(shard.max_id for shard in manifest.splits["train"])
    for size, fits in ((largest + 1, True), (largest, False)):
        change(folder / NAME, tokenizer={**manifest.tokenizer, "vocab_size": size})
        if fits:
            assert Corpus(folder).num_shards == 3
        else:
            with pytest.raises(CorpusError, match=f"holds token {largest}, which the vocabulary lacks"):
                Corpus(folder)


def test_a_sentence_without_tokens_is_found_by_the_full_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hollow(seed: int, documents: int, vocab_size: int) -> ShardArrays:
        whole = arrays(seed, documents, vocab_size)
        whole.sentences[1] = whole.sentences[2]
        return whole

    monkeypatch.setattr(handmade, "arrays", hollow)
    write_corpus(tmp_path / "corpus", [20])
    with pytest.raises(CorpusError, match=r"sentences.npy: holds offsets that do not increase"):
        Corpus(tmp_path / "corpus").verify(full=True)


@pytest.mark.parametrize("version", [0, None])
def test_an_earlier_version_is_another_one_too(folder: Path, version: int | None) -> None:
    change(folder / NAME, version=version)
    with pytest.raises(CorpusError, match=f"is of version {version}, not 1"):
        Corpus(folder)


def test_a_corpus_of_more_files_than_a_process_may_open(tmp_path: Path) -> None:
    write_corpus(tmp_path / "corpus", [1] * 40)  # 160 files
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 60, hard))
    try:
        corpus = Corpus(tmp_path / "corpus")
        assert [len(corpus.shard(i).tokens) > 0 for i in range(40)] == [True] * 40
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
