"""A corpus folder written without text or tokenizer, so that reading is tested apart from preparing."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from albertine.corpus.manifest import MANIFEST_FILE, Manifest
from albertine.corpus.shards import ShardArrays, token_dtype, write_shard


def arrays(seed: int, documents: int, vocab_size: int) -> ShardArrays:
    """A shard of `documents` documents of 1 to 6 sentences of 1 to 30 tokens."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 7, documents)
    lengths = rng.integers(1, 31, int(sizes.sum()))
    tokens = rng.integers(5, vocab_size, int(lengths.sum())).astype(token_dtype(vocab_size))
    return ShardArrays(
        tokens,
        np.concatenate([[0], np.cumsum(lengths)]),
        np.concatenate([[0], np.cumsum(sizes)]),
        rng.random(len(tokens)) < 0.6,
    )


def write_corpus(
    folder: Path, shards: list[int], *, heldout: int = 3, vocab_size: int = 1000
) -> list[ShardArrays]:
    """A corpus whose train shards hold the given numbers of documents; the content of its train shards."""
    content = [arrays(i, n, vocab_size) for i, n in enumerate(shards)]
    splits = {}
    for split, parts in (
        ("train", content),
        ("heldout", [arrays(99, heldout, vocab_size)] if heldout else []),
    ):
        (folder / split).mkdir(parents=True)
        splits[split] = [
            write_shard(folder / split, i, part, unknown=0, empty_documents=0, text="", stamp="")
            for i, part in enumerate(parts)
        ]
    tokenizer = {"kind": "wordpiece", "vocab_size": vocab_size, "fingerprint": "none"}
    manifest = Manifest("en", tokenizer, {}, [], sum(shards) + heldout, {}, splits, {})
    (folder / MANIFEST_FILE).write_text(manifest.dump(), encoding="utf-8")
    return content
