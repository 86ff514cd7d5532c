"""Preparing: what is in the folder, for any number of processes, and what a person reads when it cannot."""

from __future__ import annotations

import json
import lzma
import os
from collections.abc import Iterator
from itertools import count, islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from albertine.core import files
from albertine.corpus import prepare as module
from albertine.corpus.manifest import Manifest
from albertine.corpus.prepare import Progress, disk_space_needed, write_corpus
from albertine.corpus.reader import Corpus
from albertine.corpus.shard_texts import DocumentCounts, ShardText, SplitRules, split_into_shards
from albertine.corpus.shard_tokens import encode_shard
from albertine.corpus.shards import EDGE_BYTES
from albertine.corpus.source import MAX_LISTED, Source
from albertine.errors import CorpusError, DataError, RunError, SettingsError, TokenizerError
from albertine.text.documents import Document, FileReport, read_documents
from albertine.text.sentences import document_sentences
from albertine.text.streams import Limits
from albertine.tokenizers.base import Tokenizer
from tests.corpus.texts import content, document, letter_tokenizer, library, write_files, write_lines


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return letter_tokenizer(tmp_path_factory.mktemp("vocabulary"))


def run(text: Path, folder: Path, tokenizer: Tokenizer, **options: Any) -> Manifest:
    given = {"workers": 1, "format": "lines", "held_out": 0.1, "shard_characters": 6000, **options}
    return write_corpus([text], folder, tokenizer, "en", **given)


def sentences_of(corpus: Corpus, tokenizer: Tokenizer) -> list[list[list[int]]]:
    """All documents of a corpus as lists of sentences of ids."""
    offsets = corpus.document_offsets.tolist()
    return [[corpus.span(i, i + 1)[0].tolist() for i in range(a, b)] for a, b in pairwise(offsets)]


def test_the_corpus_is_the_text(tmp_path: Path, tokenizer: Tokenizer) -> None:
    text = library(tmp_path)
    manifest = run(text, tmp_path / "corpus", tokenizer)
    train, heldout = Corpus(tmp_path / "corpus"), Corpus(tmp_path / "corpus", "heldout")
    train.verify(full=True)
    assert train.num_shards > 3 and heldout.num_documents > 1
    expected = [
        [tokenizer.encode(s) for s in document_sentences(d, "en")] for d in read_documents([text], "lines")
    ]
    found = [*sentences_of(train, tokenizer), *sentences_of(heldout, tokenizer)]
    assert sorted(found) == sorted(expected) and len(expected) == 60
    # order is kept within a split
    kept = sentences_of(train, tokenizer)
    assert kept == [d for d in expected if d in kept]
    assert manifest.documents == 60 and manifest.documents_read == 60
    assert (
        manifest.tokens == train.num_tokens + heldout.num_tokens == sum(len(s) for d in expected for s in d)
    )
    assert train.tokenizer().fingerprint == tokenizer.fingerprint


def test_word_starts_follow_the_tokens(tmp_path: Path, tokenizer: Tokenizer) -> None:
    run(library(tmp_path), tmp_path / "corpus", tokenizer)
    corpus = Corpus(tmp_path / "corpus")
    ids, starts = corpus.span(0, 40)
    assert starts.any() and not starts.all()
    assert np.array_equal(starts, ~np.array([tokenizer.id_to_piece(int(i)).startswith("##") for i in ids]))


class Joined:
    """A stand-in whose every token continues a word."""

    vocab_size, unk_id = 100, 1

    def encode_flat(self, texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
        sizes = np.array([len(t.split()) for t in texts], np.int64)
        return np.full(sizes.sum(), 7, np.uint32), sizes

    def word_starts(self, ids: np.ndarray) -> np.ndarray:
        return np.zeros(len(ids), np.bool_)


def test_a_sentence_begins_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("albertine.corpus.shard_tokens.SENTENCES_PER_BATCH", 2)
    job = ShardText("train", 0, [(True, ("a b c", "d e")), (True, ("f g h i",)), (True, ("j",))])
    arrays, unknown, empty = encode_shard(job, Joined(), "en", "pieces")  # type: ignore[arg-type]
    assert np.flatnonzero(arrays.starts).tolist() == [0, 3, 5, 9]
    assert arrays.sentences.tolist() == [0, 3, 5, 9, 10] and arrays.documents.tolist() == [0, 2, 3, 4]
    assert (unknown, empty) == (0, 0)


def test_same_bytes_for_any_number_of_workers(tmp_path: Path, tokenizer: Tokenizer) -> None:
    text = library(tmp_path, 80)
    for workers in (1, 2, 4):
        run(text, tmp_path / f"corpus{workers}", tokenizer, workers=workers)
    one = content(tmp_path / "corpus1")
    assert content(tmp_path / "corpus2") == one and content(tmp_path / "corpus4") == one
    assert not any(name.startswith(".") or name.endswith(".tmp") or name == "prepare.json" for name in one)


def test_held_out_depends_on_the_document_alone(tmp_path: Path, tokenizer: Tokenizer) -> None:
    documents = [document(i, 12) for i in range(60)]
    write_lines(tmp_path / "a.txt", documents)
    write_lines(tmp_path / "b.txt", [document(999, 30), *documents[::-1]])
    for name in "ab":
        run(tmp_path / f"{name}.txt", tmp_path / name, tokenizer, held_out=0.2)
    a, b = ({str(d) for d in sentences_of(Corpus(tmp_path / n, "heldout"), tokenizer)} for n in "ab")
    assert 4 <= len(a) <= 25 and a <= b and len(b - a) <= 1
    run(tmp_path / "a.txt", tmp_path / "other", tokenizer, held_out=0.2, seed=2)
    assert {str(d) for d in sentences_of(Corpus(tmp_path / "other", "heldout"), tokenizer)} != a


@pytest.mark.parametrize("held_out", [1e-9, 0.2, 1 - 1e-9])
def test_of_two_documents_one_is_held_out_and_one_is_not(
    tmp_path: Path, tokenizer: Tokenizer, held_out: float
) -> None:
    for seed in range(6):
        text = write_lines(tmp_path / f"{seed}.txt", [document(seed, 9), document(100 + seed, 9)])
        manifest = run(text, tmp_path / f"c{seed}", tokenizer, held_out=held_out)
        assert [manifest.count("documents", split) for split in ("train", "heldout")] == [1, 1]


def test_the_smallest_draw_is_held_out_wherever_it_stands(tmp_path: Path, tokenizer: Tokenizer) -> None:
    documents = [document(i, 12) for i in range(30)]
    found = set()
    for name, order in (("a", documents), ("b", documents[::-1])):
        text = write_lines(tmp_path / f"{name}.txt", order)
        manifest = run(text, tmp_path / name, tokenizer, held_out=1e-9, shard_characters=1000)
        assert manifest.count("documents", "heldout") == 1 and len(manifest.splits["train"]) > 5
        found.add(str(sentences_of(Corpus(tmp_path / name, "heldout"), tokenizer)))
    share = 1 / 30
    run(text, tmp_path / "more", tokenizer, held_out=share)
    drawn = {str([d]) for d in sentences_of(Corpus(tmp_path / "more", "heldout"), tokenizer)}
    assert len(found) == 1 and (found <= drawn or len(drawn) == 1)


def test_a_single_document_is_for_training_and_nothing_is_held_out_by_default(
    tmp_path: Path, tokenizer: Tokenizer
) -> None:
    for seed in range(6):
        text = write_lines(tmp_path / f"{seed}.txt", [document(seed, 9)])
        manifest = run(text, tmp_path / f"c{seed}", tokenizer, held_out=0.9)
        assert manifest.count("documents", "train") == 1
    manifest = run(library(tmp_path), tmp_path / "none", tokenizer, held_out=0.0)
    assert manifest.count("documents", "heldout") == 0


def test_documents_do_not_wait_without_end_for_one_of_the_other_split(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("albertine.corpus.shard_texts._MAX_WAITING", 5000)
    read = 0

    def endless() -> Iterator[Document]:
        nonlocal read
        for read in count():
            yield Document("a", tuple(document(read, 9)), True)

    rules = SplitRules(0, 1e-9, 1000, 1)
    jobs = split_into_shards(endless(), rules, None, DocumentCounts(), lambda: None)
    assert {next(jobs).split for _ in range(3)} == {"train"} and read < 60
    monkeypatch.setattr("albertine.corpus.shard_texts._MAX_WAITING", 10**9)
    rules = SplitRules(0, 1e-9, 10**9, 1)
    jobs = split_into_shards(islice(endless(), 40), rules, None, DocumentCounts(), lambda: None)
    assert {job.split: len(job.documents) for job in jobs} == {"train": 39, "heldout": 1}


def test_an_odd_file_in_a_folder_is_counted_in_the_manifest(tmp_path: Path, tokenizer: Tokenizer) -> None:
    text = library(tmp_path / "text").parent
    (text / "blank.txt").write_text("\n\n")
    (text / "meta.json").write_text('{"name": 1}\n')
    (text / "bad.txt").write_bytes(b"caf\xe9 ferm\xe9\n")
    (text / "table.csv").write_text("a,b\n")
    reports: list[FileReport] = []
    manifest = run(text, tmp_path / "a", tokenizer, format="auto", on_file=reports.append)
    assert manifest.passed_over == {"empty": 1, "skipped": 1, "unreadable": 2}
    assert manifest.documents == 60
    assert run(text, tmp_path / "b", tokenizer, format="auto") == manifest, "also without on_file"
    assert Corpus(tmp_path / "b").manifest.passed_over == manifest.passed_over
    with pytest.raises(DataError, match=r"bad\.txt"):
        write_corpus([text, text / "bad.txt"], tmp_path / "c", tokenizer, "en", workers=1)


@pytest.mark.parametrize("blank", [MAX_LISTED, MAX_LISTED + 2])
def test_of_many_odd_files_the_first_are_named(tmp_path: Path, blank: int) -> None:
    text = library(tmp_path / "text").parent
    for number in range(blank):
        (text / f"blank-{number:03}.txt").write_text("\n")
    source = Source([text])
    list(source.documents())
    lines = source.passed_over()
    assert [line for line in lines if "blank-" in line] == lines[:MAX_LISTED]
    assert lines[MAX_LISTED:] == ["passed over 2 files more"] * (blank > MAX_LISTED)


def test_a_corpus_inside_its_text_is_not_read(
    tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches: a vocabulary taken for sentences; other sources for a second call, or after a kill."""
    text = tmp_path / "text"
    os.utime(library(text), (1, 1))
    inside = text / "corpus"
    with monkeypatch.context() as patched:
        patched.setattr(module, "write_shard", _killed)
        with pytest.raises(KeyboardInterrupt):
            run(text, inside, tokenizer)
    assert (inside / "prepare.json").is_file() and (inside / "tokenizer").is_dir()
    first = run(text, inside, tokenizer)
    assert first == run(text, tmp_path / "corpus", tokenizer)
    assert content(inside) == content(tmp_path / "corpus")
    assert run(text, inside, tokenizer) == first


def _killed(*_: Any, **__: Any) -> Any:
    raise KeyboardInterrupt


def test_short_and_duplicate_documents_are_dropped(tmp_path: Path, tokenizer: Tokenizer) -> None:
    whole = [document(i, 10) for i in range(30)]
    shouting = [s.upper().replace(" ", "  ") for s in whole[3]]
    text = write_lines(tmp_path / "t.txt", [*whole, ["The old man."], whole[7], shouting, whole[7]])
    manifest = run(text, tmp_path / "corpus", tokenizer)
    assert manifest.dropped == {"short": 1, "duplicate": 3, "empty": 0}
    assert manifest.documents == 30
    kept = run(text, tmp_path / "kept", tokenizer, deduplicate=False, min_characters=0)
    assert kept.documents == 34 and kept.dropped == {"short": 0, "duplicate": 0, "empty": 0}


def test_sentences_and_documents_without_a_token_are_left_out(tmp_path: Path, tokenizer: Tokenizer) -> None:
    silent = "\u200b" * 20  # zero-width: cleaned away
    documents = [[*document(i, 6), silent] for i in range(8)]
    text = write_lines(tmp_path / "t.txt", [*documents, [silent] * 20])
    manifest = run(text, tmp_path / "corpus", tokenizer, held_out=0.0)
    assert manifest.dropped["empty"] == 1 and manifest.documents == 8
    assert Corpus(tmp_path / "corpus").sentence_lengths.min() >= 1
    assert Corpus(tmp_path / "corpus").num_sentences == 48


def test_an_endless_sentence_is_cut_and_kept(tmp_path: Path, tokenizer: Tokenizer) -> None:
    text = write_lines(tmp_path / "t.txt", [["river " * 20_000, "x" * 50_000], document(1, 9)])
    run(text, tmp_path / "corpus", tokenizer, held_out=0.0)
    corpus = Corpus(tmp_path / "corpus")
    corpus.verify(full=True)
    assert corpus.num_tokens > 20_000 and corpus.sentence_lengths.max() <= 1000


def test_chinese_words_by_segmentation(tmp_path: Path) -> None:
    pytest.importorskip("jieba")
    sentence = "我们明天去北京大学看朋友。"
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *sorted(set(sentence))]
    (tmp_path / "vocab.txt").write_text("\n".join(vocabulary) + "\n", encoding="utf-8")
    from albertine.tokenizers.load import load_tokenizer

    text = write_lines(tmp_path / "t.txt", [[sentence] * 30])
    options: dict[str, Any] = {"format": "lines", "workers": 1, "held_out": 0.0, "min_characters": 1}
    for words in ("pieces", "jieba"):
        write_corpus([text], tmp_path / words, load_tokenizer(tmp_path), "zh", words=words, **options)
    ids, plain = Corpus(tmp_path / "pieces").span(0, 1)
    same, words = Corpus(tmp_path / "jieba").span(0, 1)
    assert plain.all() and np.array_equal(ids, same)
    assert not words.all(), "a segmenter finds words of two characters"
    assert words[0] and not words[1], "我们 is one word"


def test_progress_ends_at_the_size_of_the_files(tmp_path: Path, tokenizer: Tokenizer) -> None:
    text = library(tmp_path, 400)
    packed = tmp_path / "text.txt.xz"
    packed.write_bytes(lzma.compress(text.read_bytes()))
    seen: list[Progress] = []
    manifest = run(packed, tmp_path / "corpus", tokenizer, progress=seen.append)
    assert len(seen) > 5
    assert all(a.bytes_read <= b.bytes_read and a.tokens <= b.tokens for a, b in pairwise(seen))
    assert seen[-1].bytes_read == seen[-1].bytes_total == packed.stat().st_size
    assert (seen[-1].documents, seen[-1].tokens) == (400, manifest.tokens)
    assert manifest.megabytes_per_second and manifest.megabytes_per_second > 0


def test_a_complete_corpus_is_not_made_again(tmp_path: Path, tokenizer: Tokenizer) -> None:
    text = library(tmp_path)
    os.utime(text, (1, 1))
    first = run(text, tmp_path / "corpus", tokenizer)
    before = {p: p.stat().st_mtime_ns for p in (tmp_path / "corpus").rglob("*")}
    assert run(text, tmp_path / "corpus", tokenizer) == first
    assert {p: p.stat().st_mtime_ns for p in (tmp_path / "corpus").rglob("*")} == before


@pytest.mark.parametrize("name", ["train/shard-00002.tokens.npy", "tokenizer/vocab.txt"])
@pytest.mark.parametrize("damage", ["flip", "remove"])
def test_preparing_again_repairs(tmp_path: Path, tokenizer: Tokenizer, name: str, damage: str) -> None:
    text = library(tmp_path, 300)
    os.utime(text, (1, 1))
    run(text, tmp_path / "corpus", tokenizer, shard_characters=30_000)
    whole, victim = content(tmp_path / "corpus"), tmp_path / "corpus" / name
    sound = {p: p.stat().st_mtime_ns for p in (tmp_path / "corpus/train").glob("shard-0000[0134]*")}
    if damage == "flip":
        data = bytearray(victim.read_bytes())
        assert name.endswith("txt") or len(data) > 3 * EDGE_BYTES, "beyond what the quick check looks at"
        data[len(data) // 2] ^= 1
        victim.write_bytes(data)
    else:
        victim.unlink()
    run(text, tmp_path / "corpus", tokenizer, shard_characters=30_000)
    assert content(tmp_path / "corpus") == whole
    assert sound and {p: p.stat().st_mtime_ns for p in sound} == sound, "sound shards are not written again"


def test_changed_text_of_the_same_size_is_noticed(tmp_path: Path, tokenizer: Tokenizer) -> None:
    text = library(tmp_path)
    run(text, tmp_path / "corpus", tokenizer)
    before = content(tmp_path / "corpus")
    changed = text.read_text().replace("home", "hoom", 1)
    text.write_text(changed)
    run(text, tmp_path / "corpus", tokenizer)
    after = content(tmp_path / "corpus")
    assert {n for n in after if n.startswith("train") and after[n] != before[n]} != set()
    run(text, tmp_path / "fresh", tokenizer)
    assert content(tmp_path / "fresh") == after


def test_other_text_of_the_same_size_and_an_old_date_is_noticed(tmp_path: Path, tokenizer: Tokenizer) -> None:
    text = library(tmp_path / "text")
    run(text, tmp_path / "corpus", tokenizer)
    other = tmp_path / "other.txt"
    other.write_text(text.read_text().replace("home", "hoom"))
    os.utime(other, (1, 1))
    other.replace(text)
    run(text, tmp_path / "corpus", tokenizer)
    run(text, tmp_path / "fresh", tokenizer)
    assert content(tmp_path / "corpus") == content(tmp_path / "fresh")


def test_an_unfinished_corpus_takes_another_vocabulary_with_another_text_alone(
    tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, other = library(tmp_path / "text"), letter_tokenizer(tmp_path / "other", without="z")
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(module, "write_shard", _killed)
        run(text, tmp_path / "corpus", tokenizer)
    with pytest.raises(CorpusError, match=r"tokenizer\.vocab_size"):
        run(text, tmp_path / "corpus", other)
    library(tmp_path / "text", seed=1)
    run(text, tmp_path / "corpus", other)
    run(text, tmp_path / "fresh", other)
    assert content(tmp_path / "corpus") == content(tmp_path / "fresh")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"min_characters": 100}, "settings.min_characters: 200 → 100"),
        ({"held_out": 0.2}, "settings.held_out: 0.1 → 0.2"),
        ({"seed": 5}, "settings.seed: 1 → 5"),
        ({"deduplicate": False}, "settings.deduplicate: true → false"),
        ({"shard_characters": 7000}, "settings.shard_characters: 6000 → 7000"),
        ({"tokenizer": "other"}, "tokenizer.vocab_size"),
        ({"text": "other"}, r"sources\[0\].bytes"),
    ],
)
def test_another_call_on_the_folder_is_refused(
    tmp_path: Path, tokenizer: Tokenizer, options: dict[str, Any], message: str
) -> None:
    text = library(tmp_path)
    run(text, tmp_path / "corpus", tokenizer)
    before = content(tmp_path / "corpus")
    if options.pop("tokenizer", None):
        tokenizer = letter_tokenizer(tmp_path / "other", without="z")
    if options.pop("text", None):
        text = library(tmp_path / "more", 70, seed=1)
    with pytest.raises(CorpusError, match=message) as caught:
        run(text, tmp_path / "corpus", tokenizer, **options)
    assert caught.value.remedy
    assert content(tmp_path / "corpus") == before


def test_a_folder_with_other_files_is_left_alone(tmp_path: Path, tokenizer: Tokenizer) -> None:
    names = (".x.new", "draft.tmp", "thesis.doc", "train/x.tmp")
    there = write_files(tmp_path / "corpus", dict.fromkeys(names, b"precious"))
    with pytest.raises(CorpusError, match=r"holds other files \(draft.tmp, thesis.doc, train\)"):
        run(library(tmp_path), tmp_path / "corpus", tokenizer)
    assert content(tmp_path / "corpus") == there


@pytest.mark.parametrize("options", [{}, {"min_characters": 99_999}])
@pytest.mark.parametrize(
    "theirs",
    [
        {"manifest.json": b'{"name": "my speech data"}'},
        {"manifest.json": b"[]"},
        {"prepare.json": b'{"language": "en"}'},
        {"manifest.json/a.txt": b"a folder of that name"},
    ],
)
def test_a_manifest_of_another_program_is_no_corpus(
    tmp_path: Path, tokenizer: Tokenizer, theirs: dict[str, bytes], options: dict[str, Any]
) -> None:
    data = {"train/a.wav": b"sound", "tokenizer/mine.txt": b"words", "readme": b"precious"}
    there = write_files(tmp_path / "corpus", {**data, **theirs})
    with pytest.raises(CorpusError, match="holds other files"):
        run(library(tmp_path), tmp_path / "corpus", tokenizer, **options)
    assert content(tmp_path / "corpus") == there


@pytest.mark.parametrize("left", [60, 0])
def test_files_among_the_shards_stay(tmp_path: Path, tokenizer: Tokenizer, left: int) -> None:
    """Both for a rebuilt corpus and for one whose text is gone."""
    text, folder = library(tmp_path), tmp_path / "corpus"
    run(text, folder, tokenizer)
    whole = content(folder)
    note = write_files(folder, {"train/note.txt": b"precious"})
    (folder / "manifest.json").write_bytes(b"{")
    if left:
        run(text, folder, tokenizer)
        assert content(folder) == whole | note
    else:
        with pytest.raises(CorpusError, match="nothing is left"):
            run(text, folder, tokenizer, min_characters=99_999)
        assert content(folder) == note


def test_a_text_whose_name_is_not_utf8(tmp_path: Path, tokenizer: Tokenizer) -> None:
    name = os.fsdecode(b"\xd6\xd0.txt")
    text = library(tmp_path).rename(tmp_path / name)
    manifest = run(text, tmp_path / "corpus", tokenizer)
    assert manifest.documents == 60 and manifest.sources[0]["path"] == f"{tmp_path}/\\xd6\\xd0.txt"
    assert Corpus(tmp_path / "corpus").manifest == manifest
    assert run(text, tmp_path / "corpus", tokenizer) == manifest


def test_an_empty_corpus_is_explained(tmp_path: Path, tokenizer: Tokenizer) -> None:
    text = write_lines(tmp_path / "t.txt", [["The old man went home."]] * 7 + [document(1, 9)] * 3)
    with pytest.raises(CorpusError, match="10 had fewer than 5000 characters, 0 were dup") as caught:
        run(text, tmp_path / "corpus", tokenizer, min_characters=5000)
    assert '--format lines (Python: format="lines")' in str(caught.value)
    assert not (tmp_path / "corpus").exists()


def test_a_tokenizer_that_does_not_fit_is_refused_early(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = library(tmp_path)
    poor = letter_tokenizer(tmp_path / "poor", without="aeo")
    seen: list[Progress] = []
    for enough, documents in ((10**9, 60), (100, 40)):
        monkeypatch.setattr(module, "_TOKENS_TO_JUDGE", enough)
        seen.clear()
        with pytest.raises(TokenizerError, match=r"\d\d% of the tokens are unknown") as caught:
            run(text, tmp_path / "corpus", poor, progress=seen.append)
        assert "train one" in str(caught.value.remedy) and "allow" not in str(caught.value.remedy)
        assert not (tmp_path / "corpus").exists()
        assert not seen or seen[-1].documents <= documents
    assert run(text, tmp_path / "corpus", poor, allow_unknown=True).unknown_share > 0.2


def test_a_full_disk_is_foreseen(
    tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = library(tmp_path)
    usage = type("usage", (), {"free": 1_000_000})
    monkeypatch.setattr("albertine.core.files.shutil.disk_usage", lambda _: usage)
    with pytest.raises(RunError, match="1 MB free and the corpus needs 34 MB"):
        run(text, tmp_path / "corpus", tokenizer)


@pytest.mark.parametrize(
    "options",
    [
        {"workers": 0},
        {"held_out": 1.0},
        {"held_out": -0.1},
        {"min_characters": -1},
        {"shard_characters": 0},
        {"words": "spaces"},
    ],
)
def test_impossible_options_are_refused(
    tmp_path: Path, tokenizer: Tokenizer, options: dict[str, Any]
) -> None:
    with pytest.raises(SettingsError):
        run(library(tmp_path), tmp_path / "corpus", tokenizer, **options)
    assert not (tmp_path / "corpus").exists()


def test_text_that_cannot_be_read_is_named_and_work_is_kept(tmp_path: Path, tokenizer: Tokenizer) -> None:
    text = library(tmp_path)
    bad = tmp_path / "zz.txt"
    bad.write_bytes(b"\xff\xfe\xfa broken")
    with pytest.raises(DataError, match=r"zz\.txt"):
        write_corpus(
            [text, bad], tmp_path / "corpus", tokenizer, "en", workers=2, shard_characters=6000, held_out=0.1
        )
    done = {p: p.stat().st_mtime_ns for p in (tmp_path / "corpus/train").glob("*.npy")}
    assert done
    with pytest.raises(CorpusError, match="not prepared to the end"):
        Corpus(tmp_path / "corpus")
    write_lines(bad, [document(5, 20)])
    write_corpus(
        [text, bad], tmp_path / "corpus", tokenizer, "en", workers=2, shard_characters=6000, held_out=0.1
    )
    again = {p: p.stat().st_mtime_ns for p in done}
    assert sum(again[p] == done[p] for p in done) >= len(done) - 8, (
        "only the last shard of each split may change"
    )


def test_a_document_too_large_for_memory_is_refused(
    tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "READ_LIMITS", Limits(document_characters=2000))
    text = write_lines(tmp_path / "t.txt", [document(1, 9), document(2, 200)])
    with pytest.raises(DataError, match="longer than 2,000 characters"):
        run(text, tmp_path / "corpus", tokenizer)


def test_the_manifest_is_plain_json_without_times(tmp_path: Path, tokenizer: Tokenizer) -> None:
    run(library(tmp_path), tmp_path / "corpus", tokenizer)
    tree = json.loads((tmp_path / "corpus/manifest.json").read_text())
    assert tree["format"] == "albertine-corpus"
    assert "megabytes_per_second" not in tree and not any("time" in key for key in tree)


def test_demo_text(tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Real books: the corpus decodes to the text it was made from."""
    archive = Path(__file__).parents[2] / "data" / "demo" / "english.tar.xz"
    monkeypatch.setattr(module, "_TOKENS_TO_JUDGE", 10_000)
    manifest = write_corpus(
        [archive], tmp_path / "c", tokenizer, "en", workers=2, allow_unknown=True, held_out=0.2
    )
    corpus = Corpus(tmp_path / "c")
    assert manifest.tokens > 500_000 and manifest.sentences > 3_000
    first = next(iter(read_documents([archive])))
    begin = document_sentences(first, "en")[:3]
    starts = corpus.document_offsets[:-1].tolist()
    texts = [[corpus.span(i + k, i + k + 1)[0].tolist() for k in range(3)] for i in starts]
    heldout = Corpus(tmp_path / "c", "heldout")
    texts += [
        [heldout.span(i + k, i + k + 1)[0].tolist() for k in range(3)] for i in heldout.document_offsets[:-1]
    ]
    assert [tokenizer.encode(s) for s in begin] in texts


def test_shards_of_a_longer_text_do_not_stay(tmp_path: Path, tokenizer: Tokenizer) -> None:
    def stop(seen: Progress) -> None:
        if seen.documents == 60:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(library(tmp_path, 60), tmp_path / "corpus", tokenizer, progress=stop)
    text = library(tmp_path, 20)
    run(text, tmp_path / "fresh", tokenizer)
    there, fresh = content(tmp_path / "corpus"), content(tmp_path / "fresh")
    assert {name for name in there if name.startswith("train")} - fresh.keys()
    run(text, tmp_path / "corpus", tokenizer)
    assert content(tmp_path / "corpus") == fresh


def test_a_refused_tokenizer_costs_no_earlier_work(tmp_path: Path) -> None:
    text, folder = library(tmp_path), tmp_path / "corpus"
    poor = letter_tokenizer(tmp_path / "poor", without="aeo")
    made = run(text, folder, poor, allow_unknown=True)
    os.utime(text)
    with pytest.raises(TokenizerError):
        run(text, folder, poor)
    assert list((folder / "train").glob("*.npy"))
    assert run(text, folder, poor, allow_unknown=True) == made


def test_a_line_stays_one_sentence_whatever_stands_in_it(tmp_path: Path, tokenizer: Tokenizer) -> None:
    text = write_lines(tmp_path / "t.txt", [["The old man went home. He saw a river."] * 12])
    run(text, tmp_path / "corpus", tokenizer, held_out=0.0)
    assert Corpus(tmp_path / "corpus").num_sentences == 12


def test_a_vocabulary_that_was_swapped_is_refused(tmp_path: Path, tokenizer: Tokenizer) -> None:
    run(library(tmp_path), tmp_path / "corpus", tokenizer)
    file = tmp_path / "corpus" / "tokenizer" / "vocab.txt"
    lines = file.read_text(encoding="utf-8").split("\n")
    lines[5], lines[6] = lines[6], lines[5]
    file.write_text("\n".join(lines), encoding="utf-8")
    with pytest.raises(CorpusError, match="not the tokenizer this corpus was prepared with"):
        Corpus(tmp_path / "corpus").tokenizer()


def test_text_is_read_from_the_field_that_is_named(tmp_path: Path, tokenizer: Tokenizer) -> None:
    rows = [{"text": "the old man", "body": " ".join(document(i, 20))} for i in range(6)]
    file = tmp_path / "t.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    made = run(file, tmp_path / "corpus", tokenizer, format="auto", text_field="body", held_out=0.0)
    assert made.documents == 6


def test_every_process_can_have_a_largest_shard_in_hand() -> None:
    assert module._shard_characters(1 << 40) + 500_000 <= module.IN_FLIGHT


MARGIN = 32 << 20


def test_bytes_already_written_reduce_the_space_needed(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(bytes(1000))
    files = [tmp_path / "a.txt"]
    assert [disk_space_needed(files, n) for n in (0, 200, 500, 10**9)] == [
        MARGIN + n for n in (500, 300, 0, 0)
    ]


def test_resuming_a_nearly_finished_corpus_needs_space_for_the_rest_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, folder = library(tmp_path / "text", 100), tmp_path / "corpus"
    tokenizer = letter_tokenizer(tmp_path / "vocabulary")

    def make(name: str) -> None:
        write_corpus([text], tmp_path / name, tokenizer, "en", workers=1, shard_characters=6000)

    make("corpus")
    whole = content(folder)
    (folder / "manifest.json").unlink()
    (folder / "prepare.json").write_text("{")  # unfinished, and damaged
    for path in folder.glob("train/shard-00003.*"):
        path.unlink()
    left = folder / "train" / ".shard-00003.tokens.npy.new"  # of a process that was killed
    left.write_bytes(bytes(1000))

    def disk_usage(_: Path) -> Any:
        assert not left.exists(), "it takes room"
        return type("usage", (), {"free": MARGIN + text.stat().st_size // 4})

    monkeypatch.setattr(files.shutil, "disk_usage", disk_usage)
    make("corpus")
    assert content(folder) == whole
    with pytest.raises(RunError, match="the corpus needs"):
        make("new")
