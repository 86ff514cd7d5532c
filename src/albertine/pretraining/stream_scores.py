"""How well a model whose sequences go on tells the tokens of held-out text: perplexity with a memory of any
length, which is Transformer-XL's evaluation where it is longer than in training and segments are shorter
(1901.02860, section 4; the scripts of kimiyoung/transformer-xl)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from albertine.corpus.reader import Corpus
from albertine.model.model import Model
from albertine.objectives.unigram_baseline import Unigram
from albertine.pretraining.data import predicted_counts
from albertine.pretraining.held_out import judge_streams
from albertine.pretraining.masked_scores import masked_scores
from albertine.pretraining.settings import ObjectiveChoice
from albertine.pretraining.stream_data import held_out_streams


def stream_scores(
    model: Model,
    corpus_folder: Path,
    objective: ObjectiveChoice,
    *,
    memory: int | None = None,
    reach: int | None = None,
    clamp: int | None = None,
    sequences: int = 1024,
    length: int | None = None,
) -> dict[str, Any]:
    """Judge a model on held-out segments of its objective, which go on from step to step.

    Args:
        objective: with `max_length` the tokens of a segment.
        memory: tokens before a segment that it may look at; default: as in training.
        reach: every token sees so many before it and no more, wherever it stands in its segment; None: all.
        clamp: larger distances count as this one; 0: none does. Default: as in training.
        sequences: about so many segments are judged. length: as in `held_out_streams`.

    Returns:
        `accuracy` and `loss` in nats a token, `perplexity`, `bits` a token, `memory`, `segment`, `count` of
        predictions; and `baseline` and `baseline_loss` of guessing by frequency. Of a masked objective, whose
        chosen tokens can be copied where they are kept, also those of [MASK] alone: see `masked_scores`.

    Raises:
        CorpusError: too few held-out documents. SettingsError: segments of another length do not fit.
    """
    kept = objective.memory if memory is None else memory
    batches = held_out_streams(corpus_folder, objective, sequences=sequences, length=length)
    with _clamped(model, clamp):
        found = judge_streams(model, batches, memory=kept, reach=reach, device=model.device)
    counts = predicted_counts(Corpus(corpus_folder), objective, model.config.vocab_size)
    unigram = Unigram(counts)
    level = unigram.score_batches(batches)
    hidden = masked_scores(found, unigram, batches) if objective.kind == "masked" else {}
    return {
        "task": "lm",
        "kind": objective.kind,
        **hidden,
        "accuracy": found["mlm_accuracy"],
        "loss": found["mlm_loss"],
        "perplexity": math.exp(found["mlm_loss"]),
        "bits": found["mlm_loss"] / math.log(2),
        "memory": kept,
        "segment": objective.max_length,
        "baseline": level.accuracy,
        "baseline_loss": level.cross_entropy,
        "count": level.count,
    }


@contextmanager
def _clamped(model: Model, clamp: int | None) -> Iterator[None]:
    """Larger distances count as `clamp` inside; None: as ever."""
    own = model.encoder.config
    model.encoder.config = own if clamp is None else replace(own, clamp_positions=clamp)
    try:
        yield
    finally:
        model.encoder.config = own
