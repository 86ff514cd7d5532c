"""The cost of comparing each block of a corpus with its SHA-256 before its first use.

    python -m benchmarks.corpus_digests --save
    python -m benchmarks.corpus_digests --megabytes 100 --rounds 3      a quick look

A corpus of that many megabytes of random tokens is written to a temporary folder. Each measurement is taken
with the check and without it in turn, on a corpus just opened, and the medians of the turns are compared.
`open` is set against the same folder with a manifest that has no digests of blocks; the rest against the same
code with the comparison left out. `count` is what a training run does first: it reads all tokens, and with
that checks them for its loader processes too. The steps read the spans of batches of 32 sequences of 128
tokens in two segments at random places, of a corpus not counted before: the first ones meet the
most blocks that were not read. They are set against the training step (forward and backward) of a model on
such a batch.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from albertine.bench.machine import describe
from albertine.bench.step import learn
from albertine.corpus.manifest import BLOCK_BYTES, MANIFEST_FILE, SPLITS, Manifest
from albertine.corpus.reader import Corpus, SpanReader
from albertine.corpus.shards import CheckedArray, ShardArrays, token_dtype, write_shard
from albertine.model.model import Model
from albertine.model.presets import preset
from albertine.objectives.batch import BatchBuilder, SpecialTokens
from albertine.objectives.masking import MaskSettings
from albertine.objectives.pairs import PairSettings
from albertine.objectives.unigram_baseline import count_tokens
from benchmarks.keep import keep

SHARD_TOKENS, SENTENCE, SENTENCES = 4_000_000, 25, 20
"""Tokens of a shard, as of 16 million characters of English; of a sentence; sentences of a document."""
BATCH, LENGTH = 32, 128
STEPS, FIRST = 2000, 20


def write(folder: Path, megabytes: float, vocab_size: int) -> None:
    """A corpus of random tokens."""
    random = np.random.default_rng(0)
    sentences = np.arange(0, SHARD_TOKENS + 1, SENTENCE, dtype=np.int64)
    documents = np.arange(0, len(sentences), SENTENCES, dtype=np.int64)
    splits: dict[str, list[Any]] = {split: [] for split in SPLITS}
    (folder / "train").mkdir(parents=True)
    size = SHARD_TOKENS * np.dtype(token_dtype(vocab_size)).itemsize
    for index in range(max(1, round(megabytes * 1e6 / size))):
        tokens: Any = random.integers(5, vocab_size, SHARD_TOKENS).astype(token_dtype(vocab_size))
        arrays = ShardArrays(tokens, sentences, documents, random.random(SHARD_TOKENS) < 0.7)
        made = write_shard(folder / "train", index, arrays, unknown=0, empty_documents=0, text="", stamp="")
        splits["train"].append(made)
    tokenizer = {"kind": "wordpiece", "vocab_size": vocab_size, "fingerprint": "none"}
    manifest = Manifest("en", tokenizer, {}, [], 0, {}, splits, {})
    (folder / MANIFEST_FILE).write_text(manifest.dump(), encoding="utf-8")


def without_blocks(folder: Path, other: Path) -> None:
    """The same corpus with a manifest that has no digests of blocks."""
    tree = json.loads((folder / MANIFEST_FILE).read_text(encoding="utf-8"))
    tree["version"] = 1
    for shard in tree["splits"]["train"]:
        for file in shard["files"].values():
            file.pop("blocks", None)
    other.mkdir()
    (other / MANIFEST_FILE).write_text(json.dumps(tree, indent=1) + "\n", encoding="utf-8")
    (other / "train").symlink_to(folder / "train")


def unchecked() -> AbstractContextManager[Any]:
    """Within, every block counts as checked."""

    def passed(array: Any, block: int) -> None:
        array._checked[block] = 1
        array._unchecked -= 1

    return patch.object(CheckedArray, "_check", passed)


def seconds(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def paired(rounds: int, checked: Callable[[], float], plain: Callable[[], float]) -> dict[str, float]:
    """Medians of both in turns, each going first every other time, and of their differences."""
    times: dict[bool, list[float]] = {True: [], False: []}
    for turn in range(rounds):
        for check in (True, False) if turn % 2 else (False, True):
            times[check].append(checked() if check else plain())
    differences = [a - b for a, b in zip(times[True], times[False], strict=True)]
    with_it, without = (statistics.median(times[check]) for check in (True, False))
    added = statistics.median(differences)
    return {"checked": with_it, "unchecked": without, "added": added, "share": added / without}


def batches(corpus: Corpus) -> Iterator[tuple[Any, Any]]:
    """Where the spans of steps lie: starts and lengths."""
    random = np.random.default_rng(1)
    while True:
        starts = random.integers(0, corpus.num_tokens // SHARD_TOKENS, 2 * BATCH) * SHARD_TOKENS
        starts += random.integers(0, SHARD_TOKENS - LENGTH, 2 * BATCH)
        yield starts, np.full(2 * BATCH, LENGTH // 2)


def read_steps(folder: Path, context: AbstractContextManager[Any]) -> tuple[float, float]:
    """Seconds of each of the first steps, and of each of all."""
    with context:
        corpus = Corpus(folder)
        reader, where = SpanReader(corpus), batches(corpus)
        begin = time.perf_counter()
        for _ in range(FIRST):
            reader.gather(*next(where))
        middle = time.perf_counter()
        for _ in range(STEPS - FIRST):
            reader.gather(*next(where))
        end = time.perf_counter()
    return (middle - begin) / FIRST, (end - begin) / STEPS


def training_step(folder: Path, name: str, vocab_size: int) -> float:
    """Seconds of a training step, the least of ten."""
    small = folder / "small"
    write(small, 1, vocab_size)
    names = SpecialTokens(cls_id=2, sep_id=3, mask_id=4, vocab_size=vocab_size)
    builder = BatchBuilder(Corpus(small), PairSettings(max_length=LENGTH), MaskSettings(), 1, names)
    (batch,) = builder.build([(0, row) for row in range(BATCH)])
    model = Model(replace(preset(name), vocab_size=vocab_size), ("mlm", "sop"), precision="auto").train()
    return min(seconds(lambda: learn(model, batch)) for _ in range(10))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--megabytes", type=float, default=1000, help="of tokens")
    parser.add_argument("--vocab-size", type=int, default=21_128)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--preset", default="albert-tiny-zh", help="model of the training step")
    parser.add_argument("--folder", type=Path, help="where the corpus is written; default a temporary place")
    parser.add_argument("--save", action="store_true", help="write the result under benchmarks/results")
    arguments = parser.parse_args()
    rounds, vocab_size = arguments.rounds, arguments.vocab_size
    with tempfile.TemporaryDirectory(dir=arguments.folder) as temporary:
        folder, other = Path(temporary) / "corpus", Path(temporary) / "without"
        write(folder, arguments.megabytes, vocab_size)
        without_blocks(folder, other)
        step = training_step(Path(temporary), arguments.preset, vocab_size)

        def count(context: AbstractContextManager[Any]) -> float:
            with context:
                corpus = Corpus(folder)
                return seconds(lambda: count_tokens(corpus, vocab_size))

        def lengths(context: AbstractContextManager[Any]) -> float:
            with context:
                corpus = Corpus(folder)
                return seconds(lambda: (corpus.sentence_lengths, corpus.document_offsets))

        count(nullcontext())  # the files are in memory from now on
        found = {
            "open": paired(
                3 * rounds, lambda: seconds(lambda: Corpus(folder)), lambda: seconds(lambda: Corpus(other))
            ),
            "count": paired(rounds, lambda: count(nullcontext()), lambda: count(unchecked())),
            "lengths": paired(rounds, lambda: lengths(nullcontext()), lambda: lengths(unchecked())),
        }
        both = [(read_steps(folder, nullcontext()), read_steps(folder, unchecked())) for _ in range(rounds)]
        for index, name in enumerate(("first steps", "all steps")):
            on, off = ([pair[which][index] for pair in both] for which in (0, 1))
            added = statistics.median(a - b for a, b in zip(on, off, strict=True))
            found[name] = {
                "checked": statistics.median(on),
                "unchecked": statistics.median(off),
                "added": added,
            }
            found[name]["share"] = added / (step + statistics.median(off))
        size = sum(record.bytes for _, record in Corpus(folder).manifest.files())
    for name, row in found.items():
        of = "of a training step" if "steps" in name else "of it"
        shown = ", ".join(f"{key} {1e3 * row[key]:.3f} ms" for key in ("checked", "unchecked", "added"))
        print(f"{name:12} {shown}: {row['share']:+.2%} {of}")
    print(f"{size / 1e6:,.0f} MB in blocks of {BLOCK_BYTES:,} bytes")
    print(f"training step of {arguments.preset}: {1e3 * step:.1f} ms")
    if arguments.save:
        settings = {"megabytes": size / 1e6, "rounds": rounds, "preset": arguments.preset, "step": step}
        keep("corpus-digests", {"machine": describe(), **settings, "seconds": found})


if __name__ == "__main__":
    main()
