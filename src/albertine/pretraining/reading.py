"""What a pretrained model is asked beyond its training task: fixed hidden words, a copy probe."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from albertine.corpus.reader import Corpus
from albertine.devices import on_processor
from albertine.errors import ModelError, SettingsError
from albertine.evaluation.cloze import PASSAGES, SEED, choose_passages, judge_cloze
from albertine.evaluation.copying import judge_copying
from albertine.objectives.baseline import Unigram
from albertine.pretraining.scores import Pretrained, objective_of, token_counts
from albertine.randomness import permutation
from albertine.text.documents import FileReport, read_documents
from albertine.text.tokenizer import Tokenizer
from albertine.training.branching import onset_of

MOST_TOKENS = 100_000  # of a document


@on_processor()
def reading(
    judged: Pretrained,
    corpus: Path | None,
    files: Sequence[Path],
    *,
    max_length: int | None = None,
    passages: int = PASSAGES,
    counts: NDArray[np.int64] | None = None,
    on_file: Callable[[FileReport], None] | None = None,
) -> dict[str, Any]:
    """The scores on fixed hidden words and of the copy probe, as plain data; with the minute from which on a
    run read, where the model lies in one.

    Args:
        corpus: whose training text tells frequencies, and whose held-out documents are read where no files
            are named.
        files: text to read instead. Only with files are passages and words the same for two vocabularies to
            the character, because a corpus holds tokens, which spell the text as its vocabulary sees it.
        passages: most passages. counts: as in `held_out_scores`.
        on_file: told of every file that is read or passed over.

    Raises:
        SettingsError, ModelError, DataError: neither corpus nor files, not so many positions, no text, or a
            model that fills no gaps.
    """
    folder, model, tokenizer = judged
    if model.mlm is None:
        raise ModelError(
            "predicts what comes next and fills no gaps, so no words can be hidden from it",
            where=folder,
            remedy="Score it on a corpus of `albertine prepare`, without --texts",
        )
    if corpus is None and not files:
        remedy = "Name a corpus of `albertine prepare`, or text: --texts FILE"
        raise SettingsError("there is no text to score the model on", remedy=remedy)
    length = objective_of(judged, max_length).max_length
    if files or corpus is None:
        texts = [" ".join(document.paragraphs) for document in read_documents(files, on_file=on_file)]
    else:
        texts = _of_corpus(corpus, tokenizer, passages)
    chosen = choose_passages(texts, count=passages)
    size = model.config.vocab_size
    if corpus is not None:
        counts = token_counts(judged, corpus) if counts is None else counts
    else:
        counts = np.bincount(tokenizer.encode_flat(texts)[0].astype(np.int64), minlength=size)
    unigram = Unigram(counts).log_probabilities
    copying = judge_copying(model, tokenizer, chosen, max_length=length)
    return {
        "spans": asdict(judge_cloze(model, tokenizer, chosen, unigram, max_length=length)),
        "copying": None if copying is None else asdict(copying),
        "onset_minutes": onset_of(folder.resolve().parent),
    }


def _of_corpus(folder: Path, tokenizer: Tokenizer, most: int) -> list[str]:
    """Held-out documents as their tokens spell them."""
    corpus = Corpus(folder, split="heldout")
    offsets = corpus.document_offsets
    texts = []
    for i in np.sort(permutation(corpus.num_documents, SEED, "cloze documents")[:most]).tolist():
        ids = corpus.span(int(offsets[i]), int(offsets[i + 1]))[0][:MOST_TOKENS]
        texts.append(tokenizer.decode(ids.tolist()))
    return texts
