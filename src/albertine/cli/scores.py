"""How a model folder does on the held-out documents of a corpus, beside what no skill would score."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from albertine.corpus.reader import Corpus
from albertine.errors import ModelError, SettingsError, TokenizerError
from albertine.interop.huggingface import load_model
from albertine.interop.places import model_folder
from albertine.model.model import Model
from albertine.objectives.baseline import Unigram, count_tokens
from albertine.pretraining.data import held_out_batches
from albertine.pretraining.held_out import judge
from albertine.pretraining.settings import ObjectiveChoice, PretrainingSettings
from albertine.settings import load
from albertine.text.load import load_tokenizer

SEQUENCES, LENGTH = 1024, 128


@dataclass(frozen=True)
class Score:
    """One task: accuracy and loss of the model, and what a model without skill gets.

    Attributes:
        task: "mlm", "sop" or "nsp".
        baseline: accuracy of always guessing the commonest token (mlm), or the commoner order among the
            pairs judged.
        baseline_loss: in nats, of predicting token frequencies (mlm), or those of the two orders.
        count: predictions judged.
    """

    task: str
    accuracy: float
    loss: float
    baseline: float
    baseline_loss: float
    count: int


def held_out_scores(
    folder: Path,
    corpus_folder: Path,
    *,
    max_length: int | None = None,
    sequences: int = SEQUENCES,
    device: str = "cpu",
) -> list[Score]:
    """Judge a model on held-out documents.

    Args:
        folder: a model folder, or a released model's name; inside a run folder the run's objective is used.
        max_length: of a sample; by default the run's, or 128.
        sequences: most samples to judge.

    Raises:
        ModelError, CorpusError, TokenizerError: what is missing, damaged or does not fit together.
    """
    corpus, folder = Corpus(corpus_folder), model_folder(folder)
    model = load_model(folder).to(device)
    _check_vocabulary(folder, model, corpus)
    settings = _settings_of_run(folder)
    objective = _objective(model, settings, max_length, folder)
    batches = held_out_batches(corpus_folder, objective, sequences=sequences)
    found = judge(model, batches, device=device)
    unigram = Unigram(count_tokens(corpus, model.config.vocab_size)).score_batches(batches)
    scores = [
        Score(
            "mlm",
            found["mlm_accuracy"],
            found["mlm_loss"],
            unigram.accuracy,
            unigram.cross_entropy,
            unigram.count,
        )
    ]
    if "sentence_accuracy" in found:
        labels = torch.cat([b.sentence_labels for b in batches if b.sentence_labels is not None])
        counts = labels[labels >= 0].bincount(minlength=2).double()
        shares = counts / counts.sum()
        frequencies = float(-torch.special.xlogy(shares, shares).sum())
        accuracy, loss, count = found["sentence_accuracy"], found["sentence_loss"], int(counts.sum())
        scores.append(Score(objective.pairs, accuracy, loss, float(shares.max()), frequencies, count))
    return scores


def _check_vocabulary(folder: Path, model: Model, corpus: Corpus) -> None:
    try:
        fingerprint = load_tokenizer(folder).fingerprint
    except TokenizerError as error:
        raise ModelError(
            "has no readable tokenizer to compare with the corpus", where=folder, remedy=str(error)
        ) from error
    if fingerprint != corpus.manifest.tokenizer["fingerprint"]:
        raise TokenizerError(
            "is not the one the corpus was prepared with",
            where=folder,
            remedy=f"Prepare the text with --tokenizer {folder}",
        )
    if model.mlm is None:
        raise ModelError("has no masked-LM head to judge", where=folder, remedy="Name a pretrained model")


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


def _objective(
    model: Model, settings: PretrainingSettings | None, max_length: int | None, folder: Path
) -> ObjectiveChoice:
    objective = settings.objective if settings else ObjectiveChoice()
    pairs = next((kind for kind in ("sop", "nsp") if kind in model.heads), "none")
    positions = model.config.max_position_embeddings
    length = max_length or min(objective.max_length if settings else LENGTH, positions)
    if length > positions:
        raise ModelError(
            f"has {positions} positions", where=folder, remedy=f"Give --max-length {positions} or less"
        )
    return objective.model_copy(update={"pairs": pairs, "max_length": length})
