"""What `evaluate` asks of a pretrained model beyond its training task: fixed hidden words, a copy probe."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from albertine.cli import show
from albertine.cli.scores import objective_of
from albertine.cli.source import Source
from albertine.corpus.reader import Corpus
from albertine.errors import ModelError
from albertine.evaluation.cloze import PASSAGES, SEED, choose_passages, judge_cloze
from albertine.evaluation.copying import judge_copying
from albertine.interop.huggingface import load_model
from albertine.interop.places import model_folder
from albertine.objectives.baseline import Unigram, count_tokens
from albertine.precision import InferencePrecision
from albertine.randomness import permutation
from albertine.text.load import check_vocabulary, load_tokenizer
from albertine.text.tokenizer import Tokenizer
from albertine.training.branching import onset_of

MOST_TOKENS = 100_000  # of a document


def reading(
    folder: Path,
    corpus: Path | None,
    files: Sequence[Path],
    *,
    max_length: int | None = None,
    passages: int = PASSAGES,
    device: str = "cpu",
    precision: InferencePrecision = "float32",
) -> dict[str, Any]:
    """The scores on fixed hidden words and of the copy probe, as plain data; with the minute from which on a
    run read, where the model lies in one.

    Args:
        folder: a model folder, or a released model's name.
        corpus: whose training text tells frequencies, and whose held-out documents are read where no files
            are named.
        files: text to read instead. Only with files are passages and words the same for two vocabularies to
            the character, because a corpus holds tokens, which spell the text as its vocabulary sees it.
        passages: most passages. precision: of matrix products.

    Raises:
        ModelError, DataError: no masked-LM head, no text.
    """
    folder = model_folder(folder)
    tokenizer, model = load_tokenizer(folder), load_model(folder).to(device)
    model.precision = precision
    check_vocabulary(model.config.vocab_size, tokenizer, folder)
    if model.mlm is None:
        raise ModelError("has no masked-LM head to judge", where=folder, remedy="Name a pretrained model")
    length = objective_of(model, max_length, folder).max_length
    texts = _of_files(files) if files or corpus is None else _of_corpus(corpus, tokenizer, passages)
    chosen = choose_passages(texts, count=passages)
    size = model.config.vocab_size
    if corpus is not None:
        counts = count_tokens(Corpus(corpus), size)
    else:
        counts = np.bincount(tokenizer.encode_flat(texts)[0].astype(np.int64), minlength=size)
    unigram = Unigram(counts).log_probabilities
    copying = judge_copying(model, tokenizer, chosen, max_length=length)
    return {
        "spans": asdict(judge_cloze(model, tokenizer, chosen, unigram, max_length=length)),
        "copying": None if copying is None else asdict(copying),
        "onset_minutes": onset_of(folder.resolve().parent),
    }


def _of_files(files: Sequence[Path]) -> list[str]:
    source = Source(files)
    texts = [" ".join(document.paragraphs) for document in source.documents()]
    show.notes(source.passed_over())
    return texts


def _of_corpus(folder: Path, tokenizer: Tokenizer, most: int) -> list[str]:
    """Held-out documents as their tokens spell them."""
    corpus = Corpus(folder, split="heldout")
    offsets = corpus.document_offsets
    texts = []
    for i in np.sort(permutation(corpus.num_documents, SEED, "cloze documents")[:most]).tolist():
        ids = corpus.span(int(offsets[i]), int(offsets[i + 1]))[0][:MOST_TOKENS]
        texts.append(tokenizer.decode(ids.tolist()))
    return texts
