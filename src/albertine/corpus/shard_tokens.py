"""Encode the text of a shard: sentences, tokens, word starts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from albertine.corpus.shard_texts import ShardText
from albertine.corpus.shards import ShardArrays, token_dtype
from albertine.text.documents import Document
from albertine.text.sentences import Language, document_sentences
from albertine.tokenizers.base import Tokenizer

SENTENCES_PER_BATCH = 8192
WordSource = Literal["pieces", "jieba"]
Ints = NDArray[np.int64]


def encode_shard(
    job: ShardText, tokenizer: Tokenizer, language: Language, words: WordSource
) -> tuple[ShardArrays, int, int]:
    """The arrays of a shard, the number of unknown tokens, and the number of documents without tokens.

    Sentences and documents without tokens are left out. The job's documents are removed while they are
    encoded, because a single document may take as much memory as all else.
    """
    parts: list[tuple[NDArray[np.unsignedinteger[Any]], Ints, NDArray[np.bool_]]] = []
    counts: list[int] = []
    for sentences in _sentence_batches(job, language, counts):
        ids, sizes, marks = _encode(sentences, tokenizer, words)
        parts.append((ids.astype(token_dtype(tokenizer.vocab_size)), sizes, marks))
    tokens, lengths, starts = (np.concatenate(column) for column in zip(*parts, strict=True))
    full = lengths > 0
    offsets = _offsets(lengths[full])
    # the first token of a sentence never continues a word of the sentence before it
    starts[offsets[:-1]] = True
    documents = np.diff(_offsets(full)[_offsets(np.array(counts, np.int64))])
    arrays = ShardArrays(tokens, offsets, _offsets(documents[documents > 0]), starts)
    unknown = int(np.count_nonzero(tokens == tokenizer.unk_id))
    return arrays, unknown, int(np.count_nonzero(documents == 0))


def _sentence_batches(job: ShardText, language: Language, counts: list[int]) -> Iterator[list[str]]:
    """The sentences of a job in batches; the number of sentences of each document is appended to `counts`."""
    waiting: list[str] = []
    job.documents.reverse()
    while job.documents:
        presplit, paragraphs = job.documents.pop()
        found = document_sentences(Document("", paragraphs, presplit), language)
        counts.append(len(found))
        waiting += found
        del found, paragraphs
        while len(waiting) >= SENTENCES_PER_BATCH:
            yield waiting[:SENTENCES_PER_BATCH]
            del waiting[:SENTENCES_PER_BATCH]
    yield waiting


def _offsets(sizes: NDArray[np.int64] | NDArray[np.bool_]) -> Ints:
    return np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])


def _encode(
    sentences: list[str], tokenizer: Tokenizer, words: WordSource
) -> tuple[NDArray[np.uint32], Ints, NDArray[np.bool_]]:
    """Ids of all sentences end to end, the number of tokens of each, and which tokens begin a word."""
    if words == "pieces":
        ids, lengths = tokenizer.encode_flat(sentences)
        return ids, lengths, tokenizer.word_starts(ids)
    from albertine.tokenizers.word_starts import zh_word_starts

    flat, sizes, starts = [np.zeros(0, np.uint32)], [], [np.zeros(0, np.bool_)]
    for sentence in sentences:
        found, begins = tokenizer.encode_with_offsets(sentence)
        flat.append(np.array(found, np.uint32))
        sizes.append(len(found))
        starts.append(zh_word_starts(sentence, begins))
    return np.concatenate(flat), np.array(sizes, np.int64), np.concatenate(starts)
