"""The text of a shard to its arrays: sentences, tokens, word starts."""

from __future__ import annotations

from array import array
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from albertine.corpus.cutting import Job
from albertine.corpus.shards import ShardArrays, token_dtype
from albertine.text.documents import Document
from albertine.text.sentences import Language, document_sentences
from albertine.text.tokenizer import Tokenizer

Words = Literal["pieces", "jieba"]


def encode_job(
    job: Job, tokenizer: Tokenizer, language: Language, words: Words
) -> tuple[ShardArrays, int, int]:
    """The arrays of a shard, its unknown tokens, and its documents without any token.

    Sentences without a token are left out, and so are documents without such a sentence.
    """
    tokens = array("I")
    sentences, documents = array("q", [0]), array("q", [0])
    starts: list[NDArray[np.bool_]] = []
    for presplit, paragraphs in job.documents:
        found = document_sentences(Document("", paragraphs, presplit), language)
        if words == "jieba":
            for sentence in found:
                starts.append(_add_segmented(sentence, tokenizer, tokens, sentences))
        else:
            for ids in tokenizer.encode_batch(found):
                if ids:
                    tokens.extend(ids)
                    sentences.append(len(tokens))
        if len(sentences) - 1 > documents[-1]:
            documents.append(len(sentences) - 1)
    flat = np.frombuffer(tokens, dtype=np.uintc) if tokens else np.zeros(0, np.uintc)
    offsets = np.frombuffer(sentences, dtype=np.int64)
    begins = np.concatenate(starts) if words == "jieba" and starts else tokenizer.word_starts(flat)
    # the first token of a sentence never continues a word of the sentence before it
    begins[offsets[:-1]] = True
    unknown = int(np.count_nonzero(flat == tokenizer.unk_id))
    arrays = ShardArrays(
        flat.astype(token_dtype(tokenizer.vocab_size)),
        offsets,
        np.frombuffer(documents, dtype=np.int64),
        begins,
    )
    return arrays, unknown, len(job.documents) - (len(documents) - 1)


def _add_segmented(
    sentence: str, tokenizer: Tokenizer, tokens: array[int], sentences: array[int]
) -> NDArray[np.bool_]:
    from albertine.text.words import zh_word_starts

    ids, offsets = tokenizer.encode_with_offsets(sentence)
    if ids:
        tokens.extend(ids)
        sentences.append(len(tokens))
    return zh_word_starts(sentence, offsets)
