"""Probes of a pretrained model: cloze spans on fixed passages, and a copy probe."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from albertine.core.devices import on_cpu
from albertine.core.number_formats import InferencePrecision
from albertine.core.randomness import permutation
from albertine.corpus.reader import Corpus
from albertine.errors import ModelError, NotFinite, SettingsError
from albertine.evaluation.cloze import PASSAGES, SEED, choose_passages, score_cloze
from albertine.evaluation.copy_probe import score_copying
from albertine.objectives.unigram_baseline import Unigram
from albertine.pretraining.scores import (
    SEQUENCES,
    CorpusOptions,
    Pretrained,
    held_out_scores,
    objective_of,
    open_pretrained,
    token_counts,
)
from albertine.text.documents import FileReport, read_documents
from albertine.tokenizers.base import Tokenizer
from albertine.training.resuming import onset_of_run

MOST_TOKENS = 100_000  # of a document


def score_pretrained(
    model: str | Path,
    corpus: Path | None,
    *,
    texts: Sequence[Path] = (),
    max_length: int | None = None,
    sequences: int = SEQUENCES,
    device: str = "cpu",
    precision: InferencePrecision = "float32",
    layers: int | None = None,
    on_file: Callable[[FileReport], None] | None = None,
    **of_corpus: Unpack[CorpusOptions],
) -> dict[str, dict[str, Any]]:
    """The scores of a pretrained model on held-out documents of a corpus and in the probes, by objective.

    Args:
        model: any name of a model. of_corpus: as in `held_out_scores`. The others as in `albertine.score`.

    Raises:
        NotFinite: a loss is not finite. AlbertineError: something is missing, damaged or does not fit.
    """
    pretrained = open_pretrained(model, device=device, precision=precision, layers=layers)
    found: dict[str, dict[str, Any]] = {"mlm": {"task": "mlm"}}
    how: dict[str, Any] = {"max_length": max_length}
    if corpus is not None:
        how["counts"] = token_counts(pretrained, corpus)  # reads all of the corpus
        found = held_out_scores(pretrained, corpus, sequences=sequences, **how, **of_corpus)
    if "lm" not in found or texts:
        own = probe_scores(pretrained, corpus, texts, passages=sequences, on_file=on_file, **how)
        found.setdefault("mlm", {"task": "mlm"}).update(own)
    losses = (x for task in found.values() for name, x in task.items() if name.endswith("loss"))
    if not all(map(math.isfinite, losses)):
        raise NotFinite(where=model)
    return found


@on_cpu()
def probe_scores(
    pretrained: Pretrained,
    corpus: Path | None,
    files: Sequence[Path],
    *,
    max_length: int | None = None,
    passages: int = PASSAGES,
    counts: NDArray[np.int64] | None = None,
    on_file: Callable[[FileReport], None] | None = None,
) -> dict[str, Any]:
    """The scores of cloze spans and of the copy probe as JSON data, with the minutes to the context-gain
    onset if the model is in the folder of its run.

    Args:
        corpus: for token frequencies, and without files for its held-out documents.
        files: text. With files, passages and masked spans are the same characters for every vocabulary; a
            corpus holds tokens, which spell the text as its vocabulary normalises it.
        passages: most passages. counts: as in `held_out_scores`.
        on_file: called with a report of every file that is read or skipped.

    Raises:
        SettingsError, ModelError, DataError: neither corpus nor files, too few positions, no text, or a model
            without a masked-LM head.
    """
    folder, model, tokenizer = pretrained
    if model.mlm is None:
        raise ModelError(
            "predicts next tokens, and has no masked tokens to predict",
            where=folder,
            remedy="Score it on a corpus of `albertine prepare`, without --texts",
        )
    if corpus is None and not files:
        remedy = "Name a corpus of `albertine prepare`, or text: --texts FILE"
        raise SettingsError("there is no text to score the model on", remedy=remedy)
    length = objective_of(pretrained, max_length).max_length
    if files or corpus is None:
        texts = [" ".join(document.paragraphs) for document in read_documents(files, on_file=on_file)]
    else:
        texts = held_out_texts(corpus, tokenizer, passages)
    chosen = choose_passages(texts, count=passages)
    size = model.config.vocab_size
    if corpus is not None:
        counts = token_counts(pretrained, corpus) if counts is None else counts
    else:
        counts = np.bincount(tokenizer.encode_flat(texts)[0].astype(np.int64), minlength=size)
    unigram = Unigram(counts).log_probabilities
    copying = score_copying(model, tokenizer, chosen, max_length=length)
    return {
        "spans": asdict(score_cloze(model, tokenizer, chosen, unigram, max_length=length)),
        "copying": None if copying is None else asdict(copying),
        "onset_minutes": onset_of_run(folder.resolve().parent),
    }


def held_out_texts(folder: Path, tokenizer: Tokenizer, most: int) -> list[str]:
    """Held-out documents, decoded from their tokens."""
    corpus = Corpus(folder, split="heldout")
    offsets = corpus.document_offsets
    texts = []
    for i in np.sort(permutation(corpus.num_documents, SEED, "cloze documents")[:most]).tolist():
        ids = corpus.span(int(offsets[i]), int(offsets[i + 1]))[0][:MOST_TOKENS]
        texts.append(tokenizer.decode(ids.tolist()))
    return texts
