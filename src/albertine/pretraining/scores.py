"""How a pretrained model does on the held-out documents of a corpus, beside what no skill would score."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from albertine.arithmetic import InferencePrecision
from albertine.corpus.reader import Corpus
from albertine.devices import device_of
from albertine.errors import ModelError, SettingsError, TokenizerError
from albertine.interop.heads import task_of
from albertine.interop.huggingface import read_folder
from albertine.interop.places import model_folder
from albertine.model.model import Model
from albertine.objectives.baseline import Unigram, blind_accuracy, count_tokens, masked_labels
from albertine.objectives.batch import PretrainingBatch
from albertine.pretraining.data import held_out_batches
from albertine.pretraining.held_out import judge
from albertine.pretraining.settings import ObjectiveChoice, PretrainingSettings
from albertine.pretraining.stream_scores import stream_scores
from albertine.settings import load
from albertine.tasks.families import in_words
from albertine.text.load import check_tokenizer, load_tokenizer
from albertine.text.tokenizer import Tokenizer

SEQUENCES, LENGTH = 1024, 128


class Pretrained(NamedTuple):
    """A pretrained model, the folder that it was read from, and its tokenizer."""

    folder: Path
    model: Model
    tokenizer: Tokenizer


def open_pretrained(
    what: str | Path, *, device: str = "cpu", precision: InferencePrecision = "float32"
) -> Pretrained:
    """A model to judge by its masked words.

    Args:
        what: any name of a model. precision: of matrix products.

    Raises:
        ModelError: there is no such model, it was tuned for a task, or it has no head that predicts words.
    """
    folder, place = model_folder(what), device_of(device)
    found = read_folder(folder)
    model, task = found.model, task_of(found)
    if task is not None:
        raise ModelError(
            f"is no longer a pretrained model: it was tuned to {in_words(task)}",
            where=what,
            remedy=f"Score it on the files of its task: albertine evaluate {quote(str(what))}",
        )
    if model.mlm is None and model.lm is None:
        raise ModelError("has no masked-LM head to judge", where=folder, remedy="Name a pretrained model")
    tokenizer = load_tokenizer(folder)
    check_tokenizer(model.config, tokenizer, folder)
    model.precision = precision
    return Pretrained(folder, model.to(place), tokenizer)


def token_counts(judged: Pretrained, corpus_folder: Path) -> NDArray[np.int64]:
    """How often every token stands in the training text of a corpus, (vocabulary,).

    Raises:
        TokenizerError: the corpus was prepared with another vocabulary than the model's. CorpusError.
    """
    corpus = Corpus(corpus_folder)
    if judged.tokenizer.fingerprint != corpus.manifest.tokenizer["fingerprint"]:
        raise TokenizerError(
            "its tokenizer is not the one the corpus was prepared with",
            where=judged.folder,
            remedy="Score it on text, whatever the vocabulary: --texts FILE_OR_FOLDER and no corpus. Or "
            f"prepare the text with --tokenizer {quote(str(judged.folder))}",
        )
    return count_tokens(corpus, judged.model.config.vocab_size)


def held_out_scores(
    judged: Pretrained,
    corpus_folder: Path,
    *,
    max_length: int | None = None,
    sequences: int = SEQUENCES,
    pairs: bool = True,
    memory: int | None = None,
    reach: int | None = None,
    counts: NDArray[np.int64] | None = None,
) -> dict[str, dict[str, Any]]:
    """Judge a model on held-out documents, inside a run folder by the objective of the run.

    Args:
        max_length: of a sample; by default the run's, or 128.
        sequences: most samples to judge.
        memory: of a model whose sequences go on, tokens before a sample that it may look at; default: as in
            training.
        reach: of such a model, every token sees so many before it and no more; default: all there are.
        pairs: judge a model with a sentence head by pairs of segments, as it was trained; without them all
            models see the same passages.
        counts: as `token_counts` gives them, where they are known.

    Returns:
        By task, "mlm" and "sop" or "nsp", also named in `task`: `accuracy`, `loss` in nats, and `count` of
        predictions; of a model without skill the `baseline`, accuracy of always guessing the commonest token,
        or the commoner order among the pairs judged, and the `baseline_loss`, that of their frequencies; and
        what else is known. Of a model whose sequences go on "lm" alone: see `stream_scores`.

    Raises:
        ModelError, CorpusError, TokenizerError: what is missing, damaged or does not fit together.
    """
    counts, model = token_counts(judged, corpus_folder) if counts is None else counts, judged.model
    objective = objective_of(judged, max_length)
    if objective.streamed:
        how = {"memory": memory, "reach": reach}
        return {"lm": stream_scores(model, corpus_folder, objective, **how, sequences=sequences)}
    if memory is not None or reach is not None:
        raise SettingsError(
            "memory and reach are of models whose sequences go on from sample to sample; this one's do not",
            where=judged.folder,
            remedy="Leave it out, or name a run with objective.memory or another objective.kind",
        )
    if not pairs:
        objective = objective.model_copy(update={"pairs": "none"})
    batches = held_out_batches(corpus_folder, objective, sequences=sequences)
    found = judge(model, batches, device=model.device, by_order=True)
    unigram = Unigram(counts)
    level = unigram.score_batches(batches)
    words = {
        "task": "mlm",
        "accuracy": found["mlm_accuracy"],
        "loss": found["mlm_loss"],
        "baseline": level.accuracy,
        "baseline_loss": level.cross_entropy,
        "count": level.count,
    }
    scores = {"mlm": words | _words(found, unigram, batches)}
    if "sentence_accuracy" in found:
        scores[objective.pairs] = _sentences(objective.pairs, found, batches)
    return scores


def _words(
    found: Mapping[str, float], unigram: Unigram, batches: Sequence[PretrainingBatch]
) -> dict[str, float]:
    """What the accuracy over all chosen tokens, of which a tenth can be copied, does not tell."""
    details = {"floor": blind_accuracy(batches, unigram.guess)}
    details |= {name: found[name] for name in ("cosine", "mean_steps") if name in found}
    labels = np.concatenate([masked_labels(batch) for batch in batches])
    level = unigram.score(labels)
    if level.count:
        details |= {
            "mask_accuracy": found["mask_accuracy"],
            "mask_loss": found["mask_loss"],
            "mask_baseline": level.accuracy,
            "mask_baseline_loss": level.cross_entropy,
            "mask_count": level.count,
            "context_gain": level.cross_entropy - found["mask_loss"],
        }
    return details


def _sentences(task: str, found: Mapping[str, float], batches: Sequence[PretrainingBatch]) -> dict[str, Any]:
    labels = torch.cat([b.sentence_labels for b in batches if b.sentence_labels is not None])
    counts = labels[labels >= 0].bincount(minlength=2).double()
    shares = counts / counts.sum()
    names = ("in_order", "swapped") if task == "sop" else ("truly_next", "random")
    orders = {
        f"{name}_accuracy": found[f"sentence_{label}_accuracy"]
        for name, label in zip(names, ("first", "second"), strict=True)
        if f"sentence_{label}_accuracy" in found
    }
    return {
        "task": task,
        "accuracy": found["sentence_accuracy"],
        "loss": found["sentence_loss"],
        "baseline": float(shares.max()),
        "baseline_loss": float(-torch.special.xlogy(shares, shares).sum()),
        "count": int(counts.sum()),
    } | orders


def _settings_of_run(folder: Path) -> PretrainingSettings | None:
    """The settings of the run that a model folder lies in, such as runs/mine for runs/mine/final; a released
    model has them with it."""
    folder = folder.resolve()
    path = next(
        (f / "settings.yaml" for f in (folder, folder.parent) if (f / "settings.yaml").is_file()), None
    )
    if path is None:
        return None
    try:
        return load(PretrainingSettings, path)
    except SettingsError:
        return None  # a settings.yaml of something else


def objective_of(judged: Pretrained, max_length: int | None) -> ObjectiveChoice:
    """What a model is judged on: the objective of its run, or the default.

    Raises:
        ModelError: it has not so many positions, or nothing tells in what order it predicts.
    """
    folder, model, _ = judged
    settings = _settings_of_run(folder)
    if model.mlm is None and settings is None:
        raise ModelError(
            "does not tell whether it predicts from left to right or in a drawn order",
            where=folder,
            remedy="Name it in the folder of its run, whose settings.yaml tells",
        )
    objective = settings.objective if settings else ObjectiveChoice()
    pairs = next((kind for kind in ("sop", "nsp") if kind in model.heads), "none")
    positions = model.config.max_position_embeddings
    length = max_length or min(objective.max_length if settings else LENGTH, positions)
    if length > positions:
        raise ModelError(
            f"has {positions} positions", where=folder, remedy=f"Give --max-length {positions} or less"
        )
    return objective.model_copy(update={"pairs": pairs, "max_length": length})
