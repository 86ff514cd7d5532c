"""Reading a corpus folder: every span is what was written, and every kind of damage is named."""

from __future__ import annotations

import json
import os
import resource
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from albertine.corpus.loader import Loader
from albertine.corpus.manifest import BLOCK_BYTES, MANIFEST_FILE, PARTS, load_manifest
from albertine.corpus.reader import Corpus, SpanReader
from albertine.corpus.shards import ShardArrays
from albertine.errors import CorpusError
from albertine.objectives.unigram_baseline import count_tokens
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
        for end in range(start + 1, len(lengths) + 1):
            ids, words = corpus.span(start, end)
            assert np.array_equal(ids, tokens[edges[start] : edges[end]])
            assert words.dtype == np.bool_ and np.array_equal(words, starts[edges[start] : edges[end]])
    for bad in ((-1, 2), (2, 2), (0, len(lengths) + 1)):
        with pytest.raises(IndexError):
            corpus.span(*bad)


def test_tokens_are_mapped_and_not_copied(folder: Path) -> None:
    corpus = Corpus(folder)
    view = corpus.span(0, 1)[0]
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
    tree = json.loads((tmp_path / "corpus" / MANIFEST_FILE).read_text())
    for i, path in enumerate((a, b)):
        path.write_bytes(path.read_bytes()[:size])
        tree["splits"]["train"][i]["files"]["words"]["bytes"] = size
    (tmp_path / "corpus" / MANIFEST_FILE).write_text(json.dumps(tree))
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


READING: dict[str, Callable[[Corpus], object]] = {
    "sentences": lambda corpus: [corpus.span(i, i + 500) for i in places(corpus)],
    "spans": lambda corpus: SpanReader(corpus).gather(np.array([0]), np.array([corpus.num_tokens])),
    "counts": lambda corpus: (count_tokens(corpus, 70_000), corpus.sentence_lengths, corpus.document_offsets),
    "in two processes": lambda corpus: list(Loader(lambda i: corpus.span(i, i + 500)[0], places(corpus), 2)),
}


def places(corpus: Corpus) -> range:
    return range(0, corpus.num_sentences - 500, 400)


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus of one shard with three blocks of tokens, the last of them a part of one."""
    folder = tmp_path_factory.mktemp("long") / "corpus"
    write_corpus(folder, [24_000], vocab_size=70_000)
    size = (folder / "train/shard-00000.tokens.npy").stat().st_size
    assert 2 * BLOCK_BYTES < size < 3 * BLOCK_BYTES
    return folder


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("part", "reads"),
    [
        ("tokens", ("sentences", "spans", "counts", "in two processes")),
        ("words", ("sentences", "spans")),
        ("sentences", ("sentences", "counts")),
        ("documents", ("counts",)),
    ],
)
def test_a_flipped_bit_in_the_middle_is_found_before_it_is_used(
    long: Path, part: str, reads: tuple[str, ...]
) -> None:
    """Opening looks at the ends of a file alone."""
    path = long / f"train/shard-00000.{part}.npy"
    whole = path.read_bytes()
    try:
        for read in reads:
            READING[read](Corpus(long))
            for at in np.linspace(4096, len(whole) - 4097, 2 if "two" in read else 7).astype(int).tolist():
                flip(path, at)
                corpus = Corpus(long)
                with pytest.raises(
                    CorpusError, match=rf"{path.name}: is damaged in block .*SHA-256"
                ) as caught:
                    READING[read](corpus)
                assert caught.value.remedy and "prepare" in caught.value.remedy
                path.write_bytes(whole)
    finally:
        path.write_bytes(whole)


def test_a_block_is_checked_before_its_first_use_and_no_other_one(long: Path) -> None:
    path = long / "train/shard-00000.tokens.npy"
    whole = path.read_bytes()
    try:
        flip(path, BLOCK_BYTES + 4000)
        corpus = Corpus(long)
        last = corpus.num_sentences - 1
        assert len(corpus.span(0, 1)[0]) and len(corpus.span(last, last + 1)[0])
        with pytest.raises(CorpusError, match=r"block 2 of 3 \(bytes 2,097,152 to 4,194,304"):
            corpus.span(0, last)
    finally:
        path.write_bytes(whole)


def test_a_manifest_has_digests_of_blocks_where_files_have_several(long: Path, folder: Path) -> None:
    tree = json.loads((long / MANIFEST_FILE).read_text())
    files = tree["splits"]["train"][0]["files"]
    assert len(files["tokens"]["blocks"]) == 3 * 64
    assert [part for part in PARTS if files[part]["bytes"] <= BLOCK_BYTES and "blocks" in files[part]] == []
    assert "blocks" not in (folder / MANIFEST_FILE).read_text()
    files["tokens"]["blocks"] += "0"
    (folder / MANIFEST_FILE).write_text(json.dumps(tree))
    with pytest.raises(CorpusError, match=r"manifest.json: is damaged"):
        Corpus(folder)


def test_ids_beyond_the_vocabulary_of_a_model_are_refused(folder: Path) -> None:
    largest = max(shard.max_id for shard in load_manifest(folder).splits["train"])
    assert count_tokens(Corpus(folder), largest + 1)[largest] > 0
    with pytest.raises(CorpusError, match=rf"holds token {largest}, beyond a vocabulary of {largest}"):
        count_tokens(Corpus(folder), largest)


def test_ids_beyond_the_vocabulary_are_refused_whatever_the_manifest_has(folder: Path) -> None:
    """With matching digests in the manifest."""
    tree = json.loads((folder / MANIFEST_FILE).read_text())
    tree["tokenizer"]["vocab_size"] = 900
    for shard in tree["splits"]["train"]:
        shard["max_id"] = 899
    (folder / MANIFEST_FILE).write_text(json.dumps(tree))
    with pytest.raises(
        CorpusError, match=r"shard-0000\d.tokens.npy: holds token 9\d\d, which the vocabulary"
    ):
        READING["spans"](Corpus(folder))


def test_ids_beyond_the_vocabulary_are_refused(folder: Path) -> None:
    tree = json.loads((folder / MANIFEST_FILE).read_text())
    tree["tokenizer"]["vocab_size"] = 900
    (folder / MANIFEST_FILE).write_text(json.dumps(tree))
    with pytest.raises(CorpusError, match="which the vocabulary lacks"):
        Corpus(folder)


def change(path: Path, **values: object) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


@pytest.mark.parametrize(
    ("hurt", "message"),
    [
        (lambda f: (f / MANIFEST_FILE).unlink(), "no corpus"),
        (lambda f: (f / MANIFEST_FILE).write_text("{"), "is damaged"),
        (lambda f: (f / MANIFEST_FILE).write_text("[]"), "not the manifest"),
        (lambda f: change(f / MANIFEST_FILE, version=99), "version 99"),
        (lambda f: change(f / MANIFEST_FILE, splits={"train": [{}], "heldout": []}), "is damaged"),
        (
            lambda f: ((f / MANIFEST_FILE).unlink(), (f / "prepare.json").write_text("{}")),
            "not prepared to the end",
        ),
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
    assert load_manifest(folder).dump() == (folder / MANIFEST_FILE).read_text(encoding="utf-8")


def test_the_largest_id_is_below_the_size_of_the_vocabulary(folder: Path) -> None:
    manifest = load_manifest(folder)
    largest = max(shard.max_id for shard in manifest.splits["train"])
    for size, fits in ((largest + 1, True), (largest, False)):
        change(folder / MANIFEST_FILE, tokenizer={**manifest.tokenizer, "vocab_size": size})
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


@pytest.mark.parametrize("version", [1, 3, None])
def test_a_corpus_of_another_version_is_refused(folder: Path, version: int | None) -> None:
    change(folder / MANIFEST_FILE, version=version)
    with pytest.raises(CorpusError, match=f"is of version {version}, not 2"):
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
