"""Scores of a pretrained model on the held-out documents of a corpus, beside unigram baselines."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import Any, Literal, NamedTuple, TypedDict, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from albertine.analysis.probe import DepthScore, DepthScores, flops_of_depths
from albertine.core.devices import on_cpu, parse_device
from albertine.core.files import is_run_checkpoint, run_of_checkpoint
from albertine.core.number_formats import InferencePrecision
from albertine.core.settings import read_yaml, resolve
from albertine.corpus.reader import Corpus
from albertine.errors import ModelError, SettingsError, TokenizerError
from albertine.evaluation.intervals import of_error
from albertine.evaluation.minimal_pairs import Scoring, SuiteScores, score_suite
from albertine.evaluation.suites import read_suite
from albertine.inference.likelihood import CausalLikelihood, Likelihood, PseudoLikelihood
from albertine.interop.config_values import our_flags
from albertine.interop.heads import causal_share, task_of
from albertine.interop.huggingface.folders import folder_config, read_folder
from albertine.interop.model_names import model_folder
from albertine.model.model import Model
from albertine.model.resharing import with_layers
from albertine.objectives.batch import PretrainingBatch
from albertine.objectives.unigram_baseline import Unigram, count_tokens
from albertine.pretraining.baselines import by_length, label_counts, masked_scores
from albertine.pretraining.data import held_out_batches, predicted_counts
from albertine.pretraining.held_out import score_batches, score_streams
from albertine.pretraining.settings import ObjectiveChoice, PretrainingSettings
from albertine.pretraining.stream_data import held_out_streams
from albertine.tokenizers.base import Tokenizer
from albertine.tokenizers.load import check_tokenizer, load_tokenizer

SEQUENCES, LENGTH = 1024, 128
SentenceTask = Literal["sop", "nsp"]
"""Sentence order (Lan et al. 2019) and next sentence (Devlin et al. 2019)."""


class CorpusOptions(TypedDict, total=False):
    """The arguments of `held_out_scores` without a meaning for text that is no corpus."""

    pairs: bool
    sentence_task: SentenceTask | None
    memory: int | None
    reach: int | None
    clamp: int | None


class Pretrained(NamedTuple):
    """A pretrained model, its folder, and its tokenizer."""

    folder: Path
    model: Model
    tokenizer: Tokenizer


def open_pretrained(
    what: str | Path,
    *,
    device: str = "cpu",
    precision: InferencePrecision = "float32",
    layers: int | None = None,
) -> Pretrained:
    """A model with a pretraining head, and its tokenizer.

    Args:
        what: any name of a model. precision: of matrix products. layers: as of `read_folder`.

    Raises:
        ModelError: there is no such model, it was fine-tuned, or it has no head that predicts tokens.
        SettingsError: the encoder cannot compute that number of layers.
    """
    folder, place = model_folder(what), parse_device(device)
    found = read_folder(folder, layers=layers)
    model, task = found.model, task_of(found)
    if task is not None:
        from albertine.tasks.families import in_words

        raise ModelError(
            f"is no longer a pretrained model: it was tuned to {in_words(task)}",
            where=what,
            remedy=f"Score it on the files of its task: albertine evaluate {quote(str(what))}",
        )
    if model.mlm is None and model.lm is None:
        raise ModelError("has no masked-LM head to score", where=folder, remedy="Name a pretrained model")
    tokenizer = load_tokenizer(folder)
    check_tokenizer(model.config, tokenizer, folder)
    model.precision = precision
    return Pretrained(folder, model.to(place), tokenizer)


def suite_scores(
    name: str,
    what: str | Path,
    data: Path,
    *,
    scoring: Scoring = "pll",
    limit: int | None = None,
    device: str = "cpu",
    precision: InferencePrecision = "auto",
    layers: int | None = None,
    update: Callable[[int, int | None], None] = lambda done, total: None,
) -> SuiteScores:
    """The scores of a pretrained model on the minimal pairs of a suite.

    Args:
        name: of the suite, "blimp" or "sling". data: folder of its files. limit: most pairs per paradigm.
        scoring: of a sentence: "pll", its pseudo-log-likelihood, or "causal", its log-likelihood from left to
            right, of a model with causal samples in its training.
        layers: as of `read_folder`.
        update: called with the number of scored tokens and their total.

    Raises:
        AlbertineError: something is missing, damaged or does not fit.
    """
    opened = open_pretrained(what, device=device, precision=precision, layers=layers)
    score = _scorer(opened, scoring)
    pairs = read_suite(name, data, limit=limit)
    return score_suite(pairs, lambda texts: score(texts, update), scoring)


def _scorer(pretrained: Pretrained, scoring: Scoring, depth: int | None = None) -> Likelihood:
    """
    Raises:
        SettingsError: there is no such scoring. ModelError: the model has no masked-LM head, or its folder
            does not record that it was trained causally.
    """
    folder, model, tokenizer = pretrained
    if scoring not in get_args(Scoring):
        raise SettingsError(f"there is no scoring `{scoring}`", remedy="Give pll or causal")
    if scoring == "pll":
        return PseudoLikelihood(model, tokenizer, folder, depth=depth)
    score = CausalLikelihood(model, tokenizer, folder, depth=depth)
    if not causal_share(folder_config(folder)):
        raise ModelError(
            "does not record that it was trained causally until the end of its run, and would predict tokens "
            "from earlier ones badly",
            where=folder,
            remedy="Score it by pll, or pretrain with objective.causal_share=0.5 objective.pairs=none",
        )
    return score


def suite_scores_by_depth(
    name: str,
    what: str | Path,
    data: Path,
    *,
    scoring: Scoring = "pll",
    limit: int | None = None,
    label: str | None = None,
    update: Callable[[int, int | None], None] = lambda done, total: None,
) -> DepthScores:
    """The scores of a pretrained model on minimal pairs with its masked-LM head after every layer; of a model
    whose repeated core has layers of their own after it, with every number of loops up to that of its plan.

    Args:
        label: name of the model in the result; default: `what`. The others as of `suite_scores`.

    Raises:
        AlbertineError: as `suite_scores`.
    """
    opened = open_pretrained(what)
    _scorer(opened, scoring)  # refuses an unsuitable model before files are read
    _, model, tokenizer = opened
    pairs = read_suite(name, data, limit=limit)
    texts = [text for paradigm in pairs.paradigms for pair in paradigm.pairs for text in pair]
    lengths = [len(ids) for ids in tokenizer.encode_batch(texts)]
    flops = flops_of_depths(model.config, round(sum(lengths) / len(lengths)) + 2)
    shallow = _shallow_models(model)
    depths = range(model.config.num_hidden_layers + 1) if shallow is None else list(shallow)
    scores, count = [], 0
    for number, depth in enumerate(depths):

        def progress(done: int, total: int | None, number: int = number) -> None:
            update(number * (total or 0) + done, total and total * len(depths))

        begin = time.perf_counter()
        if shallow is None:
            score = _scorer(opened, scoring, depth)
        else:
            score = _scorer(opened._replace(model=shallow[depth]), scoring)
        found = score_suite(pairs, lambda texts, score=score: score(texts, progress)).overall  # type: ignore[misc]
        seconds = time.perf_counter() - begin
        interval = of_error(found.value, found.error or 0.0)
        scores.append(DepthScore(depth, found.value, interval.low, interval.high, flops[depth], seconds))
        count = found.pairs
    title = pairs.name if scoring == "pll" else f"{pairs.name} from left to right"
    return DepthScores(label or str(what), title, "pairs that are right", 0.5, "chance", count, tuple(scores))


def _shallow_models(model: Model) -> dict[int, Model] | None:
    """The model with every number of loops up to its own, by its number of layers, where a repeated core has
    a coda, without which the masked-LM head was not trained; else None."""
    plan = model.config.plan
    if (structure := plan.loop_structure) is None or not structure.coda:
        return None
    numbers = (plan.depth_of(loops) for loops in range(1, structure.loops + 1))
    return {layers: with_layers(model, layers) for layers in numbers}


def token_counts(pretrained: Pretrained, corpus_folder: Path) -> NDArray[np.int64]:
    """Occurrences of every token in the training text of a corpus, int64 (V,).

    Raises:
        TokenizerError: the corpus was prepared with another vocabulary than the model's. CorpusError.
    """
    corpus = Corpus(corpus_folder)
    if pretrained.tokenizer.fingerprint != corpus.manifest.tokenizer["fingerprint"]:
        raise TokenizerError(
            "its tokenizer is not the one the corpus was prepared with",
            where=pretrained.folder,
            remedy="Score it on text, whatever the vocabulary: --texts FILE_OR_FOLDER and no corpus. Or "
            f"prepare the text with --tokenizer {quote(str(pretrained.folder))}",
        )
    return count_tokens(corpus, pretrained.model.config.vocab_size)


@on_cpu()
def held_out_scores(
    pretrained: Pretrained,
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
    """Score a model on held-out documents, by the objective of its run if it is in a run folder.

    Args:
        max_length: of a sample; by default the run's, or 128.
        sequences: most samples; of a streamed objective, the amount of text of so many samples of the run's
            length, whatever `max_length` is.
        memory: streamed: tokens before a sample that it attends to; default: as in training.
        reach: streamed: attention span of every token; default: unlimited.
        clamp: streamed: largest distance; larger ones count as this; default: as in training.
        pairs: score a model with a sentence head on pairs, as it was trained; without them every model gets
            the same passages.
        sentence_task: score its sentence head on the pairs of this objective, whatever it was trained with:
            label 0 is in order or truly next, label 1 swapped or random (ALBERT, Table 5). Default: its own.
        counts: of `token_counts`, if they are known.

    Returns:
        By task, "mlm" and "sop" or "nsp", also named in `task`: `accuracy`, `loss` in nats, and `count` of
        predictions; `baseline`, accuracy of always predicting the most frequent token or label of the scored
        pairs, and `baseline_loss`, that of their frequencies; and further scores. Of a streamed objective
        "lm" alone: see `stream_scores`.

    Raises:
        ModelError, CorpusError, TokenizerError: something is missing, damaged or does not fit, such as a
            sentence task for a model without a sentence head.
    """
    counts, model = token_counts(pretrained, corpus_folder) if counts is None else counts, pretrained.model
    objective = objective_of(pretrained, max_length, memory)
    if sentence_task not in (None, *get_args(SentenceTask)):
        raise SettingsError(f"there is no sentence task `{sentence_task}`", remedy="Give sop or nsp")
    if sentence_task is not None and not pairs:
        raise SettingsError(
            f"the sentence task {sentence_task} is scored on pairs, and pairs are switched off",
            remedy="Leave one of the two out",
        )
    if sentence_task is not None and pretrained.model.sentence is None:
        raise ModelError(
            f"has no sentence head, and cannot be scored by {sentence_task}",
            where=pretrained.folder,
            remedy="Name a model that was pretrained with objective.pairs=sop or nsp",
        )
    if objective.streamed:
        own = objective_of(pretrained, None, memory).max_length
        how = {"memory": memory, "reach": reach, "clamp": clamp, "length": own}
        return {"lm": stream_scores(model, corpus_folder, objective, **how, sequences=sequences)}
    if (memory, reach, clamp) != (None, None, None):
        raise SettingsError(
            "memory, reach and clamp are of models with streamed text; this one has single samples",
            where=pretrained.folder,
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
        if objective.pairs != pretrained.model.sentence_objective:
            scores[objective.pairs]["trained_with"] = pretrained.model.sentence_objective
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


def settings_of_run(folder: Path) -> PretrainingSettings | None:
    """The settings of the run that a model folder is in, such as runs/mine for runs/mine/final; a released
    model has them in its own folder."""
    folder = folder.resolve()
    run = (run_of_checkpoint(folder) if is_run_checkpoint(folder) else None) or folder.parent
    path = next((f / "settings.yaml" for f in (folder, run) if (f / "settings.yaml").is_file()), None)
    if path is None:
        return None
    try:
        return resolve(PretrainingSettings, read_yaml(path), path)
    except SettingsError:
        return None  # settings of something else


def objective_of(
    pretrained: Pretrained, max_length: int | None, memory: int | None = None
) -> ObjectiveChoice:
    """The objective to score a model with: that of its run, or the default.

    Args:
        memory: for a causal model without the settings of its run, which its folder does not record.

    Raises:
        ModelError: it has fewer positions, or its folder does not record the objective.
        SettingsError: its segments cannot have such a length.
    """
    folder, model, _ = pretrained
    settings = settings_of_run(folder)
    if settings:
        objective = settings.objective
    else:
        objective = ObjectiveChoice() if model.mlm is not None else _recorded_objective(folder, memory)
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
    """With the share of predicted tokens of training."""
    if (count := own.permutation.predictions) is None:
        return changed
    scaled = max(1, round(count * changed.max_length / own.max_length))
    return changed.model_copy(
        update={"permutation": own.permutation.model_copy(update={"predictions": scaled})}
    )


def _recorded_objective(folder: Path, memory: int | None) -> ObjectiveChoice:
    """The objective of a model without the settings of its run.

    Raises:
        ModelError: its folder and `memory` do not determine it.
    """
    learned, run = our_flags(folder_config(folder)).get("objective"), "in the folder of its run"
    if learned == "causal":
        if memory is not None:
            return ObjectiveChoice(kind="causal", pairs="none", memory=memory)
        what = "is a causal model, and does not record how many tokens its memory has"
        raise ModelError(what, where=folder, remedy=f"Give --memory, or name it {run}, beside settings.yaml")
    if learned == "permutation":
        what = "is a permutation LM, and does not record its predicted tokens and segments"
    else:
        what = "does not record whether it is a causal or a permutation LM"
    raise ModelError(what, where=folder, remedy=f"Name it {run}, beside settings.yaml")


def _check_length(own: ObjectiveChoice, changed: ObjectiveChoice, folder: Path) -> None:
    """
    Raises:
        SettingsError: the settings of the run do not fit segments of another length.
    """
    length, reuse = changed.max_length, own.permutation.reuse
    remedy = f"Leave --max-length out: its own segments have {own.max_length}"
    if reuse and length != own.max_length:
        what = f"its segments reuse {reuse} tokens of the previous step, and cannot have {length} in all"
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
    """Score a model on held-out segments of a streamed objective, with a memory of any length:
    Transformer-XL's evaluation, with a longer memory and shorter segments than in training (1901.02860,
    section 4; the scripts of kimiyoung/transformer-xl).

    Args:
        objective: with the tokens of a segment as `max_length`.
        memory: tokens before a segment that it attends to; default: as in training.
        reach: attention span of every token, wherever it is in its segment; None: unlimited.
        clamp: larger distances count as this one; 0: no limit. Default: as in training.
        sequences: approximate number of segments. length: as in `held_out_streams`.

    Returns:
        `accuracy` and `loss` in nats per token, `perplexity`, `bits` per token, `memory`, `segment`, `count`
        of predictions; and `baseline` and `baseline_loss` of token frequencies. Of a masked objective also
        those of [MASK] alone: see `masked_scores`.

    Raises:
        CorpusError: too few held-out documents. SettingsError: segments of another length do not fit.
    """
    memory = objective.memory if memory is None else memory
    batches = held_out_streams(corpus_folder, objective, sequences=sequences, length=length)
    with _clamped(model, clamp):
        found = score_streams(model, batches, memory=memory, reach=reach, device=model.device)
    counts = predicted_counts(Corpus(corpus_folder), objective, model.config.vocab_size)
    unigram = Unigram(counts)
    level = unigram.score_batches(batches)
    masked = masked_scores(found, unigram, batches) if objective.kind == "masked" else {}
    return {
        "task": "lm",
        "kind": objective.kind,
        **masked,
        "accuracy": found["mlm_accuracy"],
        "loss": found["mlm_loss"],
        "perplexity": math.exp(found["mlm_loss"]),
        "bits": found["mlm_loss"] / math.log(2),
        "memory": memory,
        "segment": objective.max_length,
        "baseline": level.accuracy,
        "baseline_loss": level.cross_entropy,
        "count": level.count,
    }


@contextmanager
def _clamped(model: Model, clamp: int | None) -> Iterator[None]:
    """Within, larger distances count as `clamp`; None: unchanged."""
    own = model.encoder.config
    model.encoder.config = own if clamp is None else replace(own, clamp_positions=clamp)
    try:
        yield
    finally:
        model.encoder.config = own
