"""How a pretrained model does on the held-out documents of a corpus, beside what no skill would score."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from albertine.core.devices import on_cpu, parse_device
from albertine.core.files import is_run_checkpoint, run_of_checkpoint
from albertine.core.number_formats import InferencePrecision
from albertine.core.settings import read_yaml, resolve
from albertine.corpus.reader import Corpus
from albertine.errors import ModelError, SettingsError, TokenizerError
from albertine.evaluation.minimal_pairs import SuiteScores, score_suite
from albertine.evaluation.suites import read_suite
from albertine.inference.likelihood import PseudoLikelihood
from albertine.interop.config_values import our_flags
from albertine.interop.heads import task_of
from albertine.interop.huggingface.folders import folder_config, read_folder
from albertine.interop.model_location import model_folder
from albertine.model.model import Model
from albertine.objectives.batch import PretrainingBatch
from albertine.objectives.unigram_baseline import Unigram, count_tokens
from albertine.pretraining.baselines import by_length, label_counts, masked_scores
from albertine.pretraining.data import held_out_batches, predicted_counts
from albertine.pretraining.held_out import score_batches, score_streams
from albertine.pretraining.settings import ObjectiveChoice, PretrainingSettings
from albertine.pretraining.stream_data import held_out_streams
from albertine.tasks.families import in_words
from albertine.tokenizers.base import Tokenizer
from albertine.tokenizers.load import check_tokenizer, load_tokenizer

SEQUENCES, LENGTH = 1024, 128
SentenceTask = Literal["sop", "nsp"]
"""Sentence order (Lan et al. 2019) and next sentence (Devlin et al. 2019)."""


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
    folder, place = model_folder(what), parse_device(device)
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


def suite_scores(
    name: str,
    what: str | Path,
    data: Path,
    *,
    limit: int | None = None,
    device: str = "cpu",
    precision: InferencePrecision = "auto",
    update: Callable[[int, int | None], None] = lambda done, total: None,
) -> SuiteScores:
    """A pretrained model judged by the minimal pairs of a suite.

    Args:
        name: of the suite, "blimp" or "sling". data: folder of its files. limit: most pairs of a paradigm.
        update: called with the tokens that are scored, of how many.

    Raises:
        AlbertineError: what is missing, damaged or does not fit together.
    """
    folder, model, tokenizer = open_pretrained(what, device=device, precision=precision)
    pairs, score = read_suite(name, data, limit=limit), PseudoLikelihood(model, tokenizer, folder)
    return score_suite(pairs, lambda texts: score(texts, update))


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


@on_cpu()
def held_out_scores(
    judged: Pretrained,
    corpus_folder: Path,
    *,
    max_length: int | None = None,
    sequences: int = SEQUENCES,
    pairs: bool = True,
    sentence_task: SentenceTask | None = None,
    memory: int | None = None,
    reach: int | None = None,
    clamp: int | None = None,
    counts: NDArray[np.int64] | None = None,
) -> dict[str, dict[str, Any]]:
    """Judge a model on held-out documents, inside a run folder by the objective of the run.

    Args:
        max_length: of a sample; by default the run's, or 128.
        sequences: most samples to judge; of a model whose sequences go on, as much text as so many of the
            run's length have, whatever `max_length` is.
        memory: of a model whose sequences go on, tokens before a sample that it may look at; default: as in
            training.
        reach: of such a model, every token sees so many before it and no more; default: all there are.
        clamp: of such a model, larger distances count as this one; default: as in training.
        pairs: judge a model with a sentence head by pairs of segments, as it was trained; without them all
            models see the same passages.
        sentence_task: judge its sentence head by the pairs of this objective, whatever it was trained with:
            label 0 is in order or truly next, label 1 swapped or random (ALBERT, Table 5). Default: its own.
        counts: as `token_counts` gives them, where they are known.

    Returns:
        By task, "mlm" and "sop" or "nsp", also named in `task`: `accuracy`, `loss` in nats, and `count` of
        predictions; of a model without skill the `baseline`, accuracy of always guessing the commonest token,
        or the commoner order among the pairs judged, and the `baseline_loss`, that of their frequencies; and
        what else is known. Of a model whose sequences go on "lm" alone: see `stream_scores`.

    Raises:
        ModelError, CorpusError, TokenizerError: what is missing, damaged or does not fit together, such as a
            sentence task for a model without a sentence head.
    """
    counts, model = token_counts(judged, corpus_folder) if counts is None else counts, judged.model
    objective = objective_of(judged, max_length, memory)
    if sentence_task not in (None, *get_args(SentenceTask)):
        raise SettingsError(f"there is no sentence task `{sentence_task}`", remedy="Give sop or nsp")
    if sentence_task is not None and not pairs:
        raise SettingsError(
            f"the sentence task {sentence_task} is scored on pairs, and pairs are switched off",
            remedy="Leave one of the two out",
        )
    if sentence_task is not None and judged.model.sentence is None:
        raise ModelError(
            f"has no sentence head, and cannot be scored by {sentence_task}",
            where=judged.folder,
            remedy="Name a model that was pretrained with objective.pairs=sop or nsp",
        )
    if objective.streamed:
        own = objective_of(judged, None, memory).max_length
        how = {"memory": memory, "reach": reach, "clamp": clamp, "length": own}
        return {"lm": stream_scores(model, corpus_folder, objective, **how, sequences=sequences)}
    if (memory, reach, clamp) != (None, None, None):
        raise SettingsError(
            "memory, reach and clamp are of models whose sequences go on from sample to sample; this one's "
            "do not",
            where=judged.folder,
            remedy="Leave it out, or name a run with objective.memory or another objective.kind",
        )
    if not pairs or sentence_task is not None:
        objective = objective.model_copy(update={"pairs": sentence_task if pairs else "none"})
    batches = held_out_batches(corpus_folder, objective, sequences=sequences)
    found = score_batches(model, batches, device=model.device, by_order=True)
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
    scores = {"mlm": words | masked_scores(found, unigram, batches)}
    if "sentence_accuracy" in found:
        scores[objective.pairs] = _sentences(objective.pairs, found, batches)
        if objective.pairs != judged.model.sentence_objective:
            scores[objective.pairs]["trained_with"] = judged.model.sentence_objective
    return scores


def _sentences(task: str, found: Mapping[str, float], batches: Sequence[PretrainingBatch]) -> dict[str, Any]:
    counts = label_counts(batches)
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
        **({"by_length": by_length(batches)} if task == "sop" else {}),
    } | orders


def _settings_of_run(folder: Path) -> PretrainingSettings | None:
    """The settings of the run that a model folder lies in, such as runs/mine for runs/mine/final; a released
    model has them with it."""
    folder = folder.resolve()
    run = (run_of_checkpoint(folder) if is_run_checkpoint(folder) else None) or folder.parent
    path = next((f / "settings.yaml" for f in (folder, run) if (f / "settings.yaml").is_file()), None)
    if path is None:
        return None
    try:
        tree = read_yaml(path)
        if (
            isinstance(objective := tree.get("objective"), dict)
            and objective.get("kind", "masked") != "masked"
        ):
            objective.pop("masking", None)  # which earlier runs could say of objectives that mask nothing
        return resolve(PretrainingSettings, tree, path)
    except SettingsError:
        return None  # a settings.yaml of something else


def objective_of(judged: Pretrained, max_length: int | None, memory: int | None = None) -> ObjectiveChoice:
    """What a model is judged on: the objective of its run, or the default.

    Args:
        memory: that of the judging, for a folder that tells all but the memory of its training.

    Raises:
        ModelError: it has not so many positions, or nothing tells in what order it predicts, or how.
        SettingsError: its segments cannot have such a length.
    """
    folder, model, _ = judged
    settings = _settings_of_run(folder)
    if settings:
        objective = settings.objective
    else:
        objective = ObjectiveChoice() if model.mlm is not None else _told(folder, memory)
    pairs = next((kind for kind in ("sop", "nsp") if kind in model.heads), "none")
    positions = model.config.max_position_embeddings
    length = max_length or min(objective.max_length if settings else LENGTH, positions)
    if length > positions:
        raise ModelError(
            f"has {positions} positions", where=folder, remedy=f"Give --max-length {positions} or less"
        )
    changed = objective.model_copy(update={"pairs": pairs, "max_length": length})
    if max_length is not None and objective.kind == "permutation":
        changed = _same_share(objective, changed)
        _check_length(objective, changed, folder)
    return changed


def _same_share(own: ObjectiveChoice, changed: ObjectiveChoice) -> ObjectiveChoice:
    """With the share of a segment predicted that is predicted in training."""
    if (count := own.permutation.predictions) is None:
        return changed
    scaled = max(1, round(count * changed.max_length / own.max_length))
    return changed.model_copy(
        update={"permutation": own.permutation.model_copy(update={"predictions": scaled})}
    )


def _told(folder: Path, memory: int | None) -> ObjectiveChoice:
    """The objective of a model without the settings of its run.

    Raises:
        ModelError: its folder, and `memory`, do not tell enough.
    """
    learned, run = our_flags(folder_config(folder)).get("objective"), "in the folder of its run"
    if learned == "causal":
        if memory is not None:
            return ObjectiveChoice(kind="causal", pairs="none", memory=memory)
        what = "tells that it predicts from left to right, and not how many tokens it remembers"
        raise ModelError(
            what, where=folder, remedy=f"Give --memory, or name it {run}, whose settings.yaml tells"
        )
    if learned == "permutation":
        what = "tells that it predicts in a drawn order, and neither which tokens nor in what segments"
    else:
        what = "does not tell whether it predicts from left to right or in a drawn order"
    raise ModelError(what, where=folder, remedy=f"Name it {run}, whose settings.yaml tells")


def _check_length(own: ObjectiveChoice, changed: ObjectiveChoice, folder: Path) -> None:
    """Refuse segments of another length than the run's where its settings do not fit them.

    Raises:
        SettingsError: they do not.
    """
    length, reuse = changed.max_length, own.permutation.reuse
    remedy = f"Leave --max-length out: its own segments have {own.max_length}"
    if reuse and length != own.max_length:
        what = f"its segments hold {reuse} tokens of the step before, and cannot have {length} in all"
        raise SettingsError(what, where=folder, remedy=remedy)
    try:
        changed.streams(2)
    except SettingsError as error:
        what = f"its objective does not fit segments of {length} tokens: {error.what}"
        raise SettingsError(what, where=folder, remedy=remedy) from error


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
        found = score_streams(model, batches, memory=kept, reach=reach, device=model.device)
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
