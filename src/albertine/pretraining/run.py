"""One pretraining run: corpus, objective, model and loop brought together; settings in, a model out."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from albertine.analysis.plots import save_curves
from albertine.corpus.manifest import manifest_digest
from albertine.corpus.reader import Corpus
from albertine.errors import RunError
from albertine.interop.heads import objective_config
from albertine.interop.hub.download import commit_of
from albertine.interop.huggingface.folders import load_model, save_model
from albertine.interop.model_location import model_folder
from albertine.model.config import EncoderConfig
from albertine.model.model import Model
from albertine.model.presets import preset
from albertine.objectives.batch import PretrainingBatch
from albertine.objectives.distillation import DistillationLosses
from albertine.objectives.equilibrium import EquilibriumLosses
from albertine.objectives.stream_losses import StreamLoss
from albertine.objectives.unigram_baseline import BaselineScore
from albertine.pretraining.baselines import Baselines
from albertine.pretraining.cuda_graphs import cuda_graph_runner
from albertine.pretraining.data import PretrainingBatches, branching, held_out_batches, predicted_counts
from albertine.pretraining.held_out import score_batches, score_streams
from albertine.pretraining.initial_model import fitting, initial_model, new_config
from albertine.pretraining.losses import check_losses, losses_of, parts_of_run
from albertine.pretraining.settings import Masking, ModelChoice, ObjectiveChoice, PretrainingSettings
from albertine.pretraining.stages import (
    check_depths,
    check_processes,
    check_unused_settings,
    resolved_stages,
    stage_at,
    untrained,
)
from albertine.pretraining.stream_data import StreamBatches, held_out_streams
from albertine.pretraining.teacher import Teacher, model_digest, open_teacher
from albertine.tokenizers.base import Tokenizer
from albertine.training.alarms import TrainingAlarms
from albertine.training.average import Average
from albertine.training.checkpoints import LATEST
from albertine.training.distributed import World, isolated_process_state, start
from albertine.training.job import Clock, Job, LoopSettings, Outcome
from albertine.training.loop import train
from albertine.training.metrics import curve, read_metrics
from albertine.training.optimizers import build_optimizer
from albertine.training.progress import Reporter
from albertine.training.run_folder import RunFolder, describe
from albertine.training.schedules import make_schedule
from albertine.training.step import means

FEW, SHORT = 16, 64
"""Tokens of a sample: so few places are learned at once, and so many are no burden to a small model."""
SMALL, SMALL_RATE = 384, 1e-3
"""A hidden size up to which AdamW was measured to learn at this rate, with batches as small as 64."""
NO_GRADIENT = (
    "Look at the corpus (`albertine info CORPUS`) and at objective.masking: there may be nothing to predict"
)
Evaluate = Callable[[Callable[[], None]], Mapping[str, float]]
log = logging.getLogger("albertine.training")


@dataclass(frozen=True)
class PretrainResult:
    """How a run ended.

    Attributes:
        baseline: of guessing by frequency, on the positions that judge the run.
        no_skill: what a model that does not read scores there, by the names of its scores.
    """

    folder: Path
    outcome: Outcome
    baseline: BaselineScore
    no_skill: Mapping[str, float]


def pretrain(
    settings: PretrainingSettings,
    *,
    resume: str | Path = "auto",
    strict: bool = False,
    branch_from: str | Path | None = None,
    reporter: Reporter | None = None,
) -> PretrainResult:
    """Pretrain, or go on with a run that was interrupted. Under `torchrun` every process calls this.

    Args:
        resume: `auto` goes on from the newest whole checkpoint of the run's folder, `never` wants a new
            folder, a path goes on from that checkpoint.
        strict: refuse a damaged newest checkpoint instead of going back to the one before.
        branch_from: checkpoint of another run to begin with, although settings differ, where the run's own
            folder has none; not its corpus, model or optimizer. `branch.json` in the folder tells of it.
        reporter: shows the run; by default a progress bar on a terminal and plain lines elsewhere.

    Returns:
        The run's folder, with the trained model in `final/` if the run is done.

    Raises:
        AlbertineError: settings, corpus, checkpoint or disk do not allow it; the message says what to do.
    """
    world = start()
    with isolated_process_state(world, settings.training.threads):
        settings = fitting(settings)
        check_processes(settings, world.size)
        corpus = Corpus(settings.corpus)
        tokenizer = corpus.tokenizer()
        counts = predicted_counts(corpus, settings.objective, tokenizer.vocab_size)
        model = initial_model(settings, counts, tokenizer).to(world.device)
        check_depths(settings, model.config.num_hidden_layers)
        teacher = _teacher(settings, tokenizer, world)
        with RunFolder(settings.folder, main=world.main) as folder:
            if not folder.settings.is_file():  # a run that began when this was passed over goes on
                check_unused_settings(settings, model.config)
            begin = partial(train, resume=resume, strict=strict, branch_from=branch_from)
            return _run(settings, folder, corpus, tokenizer, counts, model, teacher, world, begin, reporter)


def check_new_encoder(settings: PretrainingSettings) -> EncoderConfig:
    """Refuse, before there is a corpus, settings with which no run of a preset begins.

    Returns:
        What its encoder would be, but for the size of the vocabulary.

    Raises:
        SettingsError: values of the encoder, its stages or its objective do not fit together, or nothing
            reads one.
    """
    settings = fitting(settings)
    assert settings.model.preset is not None
    config = new_config(settings, preset(settings.model.preset).vocab_size)
    check_depths(settings, config.num_hidden_layers)
    check_unused_settings(settings, config)
    check_losses(settings.objective, config)
    loop_settings(settings)
    return config


def _run(
    settings: PretrainingSettings,
    folder: RunFolder,
    corpus: Corpus,
    tokenizer: Tokenizer,
    counts: NDArray[np.int64],
    model: Model,
    teacher: Teacher | None,
    world: World,
    begin: Callable[[Job], Outcome],
    reporter: Reporter | None,
) -> PretrainResult:
    clock = Clock()
    held_out, judged = _judging(settings, model, world, clock)
    no_skill = Baselines.of(held_out, counts, settings.objective, world)
    losses = losses_of(settings, model, world, None if teacher is None else teacher.model)
    told = losses.told if isinstance(losses, EquilibriumLosses) else dict
    trained = losses.trained.to(world.device) if isinstance(losses, DistillationLosses) else model
    average = Average(trained, settings.training.average) if settings.training.average else None

    def evaluate(poll: Callable[[], None]) -> Mapping[str, float]:
        return {**judged(poll), **means(told(), world)}

    save = partial(save_model, model, tokenizer, extra_config=objective_config(settings.objective.kind))

    def keep_best(step: int, scores: Mapping[str, float]) -> None:
        save(folder.best)

    outcome = begin(
        Job(
            model=trained,
            optimizer=build_optimizer(
                trained,
                settings.training.optimizer,
                weight_decay=settings.training.weight_decay,
                adamw_share=settings.training.adamw_rate,
                precision=settings.training.precision,
                world=world,
            ),
            batches=partial(_batches, corpus, settings, model.config.halts, world, clock),
            loss_fn=losses,
            parts=parts_of_run(settings, model.config),
            told=told,
            instead=cuda_graph_runner(model, losses, world.device),
            carried=losses if isinstance(losses, StreamLoss) else None,
            settings=loop_settings(settings),
            folder=folder,
            evaluate=evaluate,
            fingerprint=fingerprint(settings, model, tokenizer, teacher),
            average=average,
            world=world,
            alarms=_watch(settings, no_skill, model.config)
            if world.main
            else None,  # all see the same numbers
            reporter=reporter,
            on_start=partial(_describe, folder, settings, world, corpus, model.config, teacher),
            on_best=keep_best,
            branching=branching(corpus, settings),
            clock=clock,
            no_gradient=NO_GRADIENT if teacher is None else None,
        )
    )
    if world.main and (outcome.updates or _outdated(folder)):
        if outcome.done:
            with nullcontext() if average is None else average.in_place():
                save(folder.final)
        words = "masked words" if settings.objective.kind == "masked" else "predicted words"
        draw(folder, no_skill.levels, words)
    return PretrainResult(folder.path, outcome, no_skill.baseline, no_skill.scores)


def _outdated(folder: RunFolder) -> bool:
    """Whether the final model is not there, or of an end before this one: the run went on from an earlier
    checkpoint since and was killed between its last one and its model."""
    if not folder.final.is_dir():
        return True
    newest = folder.checkpoints / LATEST
    return newest.is_file() and folder.final.stat().st_mtime_ns < newest.stat().st_mtime_ns


def _judging(
    settings: PretrainingSettings, model: Model, world: World, clock: Clock
) -> tuple[Sequence[PretrainingBatch], Evaluate]:
    """The held-out batches of this process, and what judges the model by them: all of it, and where a stage
    computes fewer depths these alone too, `stage_mask_loss`."""
    objective, sequences = settings.objective, settings.watching.evaluate_sequences
    here = {"rank": world.rank, "world": world.size}
    if not objective.streamed:
        batches = held_out_batches(settings.corpus, objective, sequences=sequences, **here)
        stages = resolved_stages(settings)

        def judged(poll: Callable[[], None]) -> Mapping[str, float]:
            score = partial(score_batches, model, device=world.device, add_up=world.add, poll=poll)
            stage = (clock.cursor or {}).get("stage")  # none of a branch, before its first batch
            scores = score(batches)
            depth = stages[stage_at(stages, clock.progress) if stage is None else stage].depth
            if not _shallower(depth, model.config) or model.config.solves:  # which runs to its fixed point
                return scores
            shallow = score([replace(batch, depth=depth) for batch in batches])
            return scores | ({"stage_mask_loss": shallow["mask_loss"]} if "mask_loss" in shallow else {})

        return batches, judged
    segments = held_out_streams(settings.corpus, objective, sequences=sequences, **here)
    return segments, lambda poll: score_streams(
        model, segments, memory=objective.memory, device=world.device, add_up=world.add, poll=poll
    )


def _teacher(settings: PretrainingSettings, tokenizer: Tokenizer, world: World) -> Teacher | None:
    """Whom the run learns from, on its device and in its number format; None where it learns alone."""
    distillation = settings.objective.distillation
    if distillation is None:
        return None
    teacher = open_teacher(distillation, tokenizer, settings.objective.max_length)
    teacher.model.to(world.device).encoder.apply_settings(settings.training)
    return teacher


def _describe(
    folder: RunFolder,
    settings: PretrainingSettings,
    world: World,
    corpus: Corpus,
    config: EncoderConfig,
    teacher: Teacher | None = None,
) -> None:
    describe(folder, settings, world)
    for line in untrained(settings, config if settings.model.start_from is None else None):
        log.warning("%s", line)
    told = corpus.manifest.settings.get("words") == "jieba"
    if told and settings.objective.kind == "masked" and not settings.objective.masking.whole_word:
        log.warning(
            "the corpus knows its words by jieba, but single tokens are hidden; to hide words whole, set "
            "objective.masking.whole_word=true"
        )
    if teacher is not None:
        teacher.write(folder.path)
        log.info("learns from %s, sha256 %s", teacher.name, teacher.sha256)
    start = settings.model.start_from
    if start is not None and teacher is None and settings.training.learning_rate is None:
        log.warning(
            "goes on from %s at the rate for random weights, at which a model forgets much of what it knows; "
            "gentler: training.optimizer=muon training.learning_rate=0.005, as recipes/adapted-mini-en.yaml",
            start,
        )
    if start is not None and (commit := commit_of(model_folder(start))):
        log.info("starts from %s, revision %s of the hub", start, commit)


def _batches(
    corpus: Corpus,
    settings: PretrainingSettings,
    ponders: bool,
    world: World,
    clock: Clock,
    cursor: dict[str, Any] | None,
) -> PretrainingBatches | StreamBatches:
    if settings.objective.streamed:
        return StreamBatches(corpus, settings, cursor, world.rank, world.size, ponders=ponders)
    return PretrainingBatches(corpus, settings, cursor, world.rank, world.size, clock, ponders=ponders)


def loop_settings(settings: PretrainingSettings) -> LoopSettings:
    """What the training loop has to know of the settings."""
    training, watching, kind = settings.training, settings.watching, settings.objective.kind
    return LoopSettings(
        schedule=make_schedule(training.schedule, warmup=training.warmup, decay=training.decay),
        learning_rate=training.rate,
        steps=training.steps,
        minutes=training.minutes,
        seed=settings.seed,
        clip=training.clip,
        log_every=watching.log_every,
        evaluate_every=watching.evaluate_every,
        checkpoint_every=watching.checkpoint_every,
        keep=watching.keep,
        best=("mlm_accuracy", "max"),  # as Google chose its checkpoints
        stop_on_alarm=watching.stop_on_alarm,
        tensorboard=watching.tensorboard,
        # Nothing is masked there, so the second would say the same again.
        shown={} if kind == "masked" else {"mlm": "plm" if kind == "permutation" else "lm", "mask": None},
        permutation=kind == "permutation",
    )


def fingerprint(
    settings: PretrainingSettings, model: Model, tokenizer: Tokenizer, teacher: Teacher | None = None
) -> dict[str, Any]:
    """All that decides the result of a run. A checkpoint with another fingerprint is not gone on from.

    What came later than the first runs is left out where it is as it was for them.
    """
    training = settings.training.model_dump(mode="json", exclude={"workers", "threads", "recompute"})
    for name in ("adamw_rate", "average"):  # checkpoints of runs that were made before there was such a key
        if training[name] is None:
            del training[name]
    return {
        "seed": settings.seed,
        "corpus": manifest_digest(settings.corpus),
        "tokenizer": tokenizer.fingerprint,
        "model": {**model.config.non_default_dict(), "heads": sorted(model.heads)},
        **_start(settings.model),
        "objective": _objective(settings.objective, teacher),
        "training": training,
        **(
            {"stages": [stage.model_dump(mode="json") for stage in settings.stages]}
            if settings.stages
            else {}
        ),
    }


def _start(choice: ModelChoice) -> dict[str, Any]:
    """How the model begins; one that was there before is told by its weights, wherever they lie."""
    plain = choice.model_dump(mode="json", include={"start_from", "embeddings", "output_bias", "student"})
    if choice.student is None:
        del plain["student"]
    if choice.start_from is None:
        return {"start": plain}
    del plain["start_from"]
    return {"start": plain, "weights": model_digest(load_model(model_folder(choice.start_from)))}


def _objective(objective: ObjectiveChoice, teacher: Teacher | None = None) -> dict[str, Any]:
    """A teacher is told by its weights, wherever they lie."""
    plain = objective.model_dump(mode="json")
    if objective.distillation is None:
        del plain["distillation"]
    elif teacher is not None:
        plain["distillation"]["teacher"] = teacher.sha256
    if not objective.repeats:
        del plain["repeats"]
    for name in ("kind", "memory"):
        if plain[name] == ObjectiveChoice.model_fields[name].default:
            del plain[name]
    if objective.kind != "permutation":
        del plain["permutation"]
    if objective.ponder is None:
        del plain["ponder"]
    if objective.jacobian is None:
        del plain["jacobian"], plain["jacobian_frequency"]
    for name in ("masked", "random"):
        if plain["masking"][name] == Masking.model_fields[name].default:
            del plain["masking"][name]
    return plain


def _shallower(depth: int | None, config: EncoderConfig) -> bool:
    return depth is not None and depth < config.num_hidden_layers


def _untold(settings: PretrainingSettings, config: EncoderConfig) -> frozenset[int]:
    """The stages of which an evaluation, of all depths and samples of full length, says little: far places of
    a learned table are not learned before there were samples that long."""
    found, longest = set[int](), 0
    for number, stage in enumerate(resolved_stages(settings)):
        longest = max(longest, stage.objective.max_length)
        unseen = config.positions == "learned" and longest < settings.objective.max_length
        if stage.causal is not None or _shallower(stage.depth, config) or unseen:
            found.add(number)
    return frozenset(found)


def _watch(settings: PretrainingSettings, no_skill: Baselines, config: EncoderConfig) -> TrainingAlarms:
    training, objective = settings.training, settings.objective
    # Segments are swapped by a fair coin. But a chunk of one sentence has no next one, only a random one.
    fair = objective.pairs == "sop" and not objective.reference_defects
    return TrainingAlarms(
        unigram_entropy=no_skill.baseline.cross_entropy,
        masked_entropy=no_skill.scores.get("mask_loss"),
        unigram_accuracy=no_skill.baseline.accuracy,
        one_order=0.5 if fair or no_skill.orders is None else no_skill.orders.commoner,
        learning_rate=training.rate,
        batch_size=training.batch_size,
        optimizer=training.optimizer,
        fitting=SMALL_RATE if training.optimizer == "adamw" and config.hidden_size <= SMALL else None,
        may_rise=settings.model.start_from is None,
        warmup=training.warmup,
        total_steps=training.steps,
        untold=_untold(settings, config),
        hints=_hints(settings, config.positions),
        beginning=_beginning(settings.model),
        objective=objective.kind,
    )


def _beginning(choice: ModelChoice) -> tuple[str, ...]:
    """What spares a new model the way to the frequencies of the corpus, and is not set yet."""
    set_already = choice.output_bias == "unigram" or choice.start_from is not None
    return () if set_already else ("model.output_bias=unigram begins at the frequencies of the corpus.",)


def _hints(settings: PretrainingSettings, positions: str) -> tuple[str, ...]:
    """What else helps a new small model off the plateau, and is not set yet. Of streams little is known."""
    if settings.objective.streamed or settings.model.start_from is not None:
        return ()
    missing = _missing(settings.model_dump(mode="json"), positions)
    *others, last = missing or [""]
    listed = f"{', '.join(others)} and {last}" if others else last
    return (f"A small model leaves it sooner with {listed}.",) if missing else ()


def _missing(plain: Mapping[str, Any], positions: str) -> list[str]:
    """The surest first (decision 017): among the far positions of a learned table a neighbour is hard to
    find, which relative positions end, or a start with a few positions."""
    model, stages = plain["model"], plain.get("stages") or [{}]
    fresh, missing = model.get("preset") is not None, []
    first = stages[0].get("max_length") or plain["objective"]["max_length"]
    if positions == "learned" and first > FEW:
        if fresh:
            missing.append("rotary positions (model.change.positions=rotary)")
        missing.append("a ramp of lengths from 8 tokens (stages)")
    if plain["training"]["optimizer"] != "muon":
        told = plain["training"].get("learning_rate") is not None  # of the other optimizer
        missing.append("training.optimizer=muon" + (" training.learning_rate=null" if told else ""))
    if fresh and model.get("embeddings") != "wide":
        missing.append("model.embeddings=wide")
    if first > SHORT:
        missing.append(f"objective.max_length={SHORT}")
    return missing


log = logging.getLogger("albertine.training")


def stage_ends(metrics: Path) -> list[int]:
    """The steps after which a run's metrics tell of another stage than before; none without stages."""
    rows = [row for row in read_metrics(metrics) if "stage" in row]
    return [one["step"] for one, two in pairwise(rows) if one["stage"] != two["stage"]]


def draw(folder: RunFolder, levels: Mapping[str, Mapping[str, float]], words: str = "masked words") -> None:
    """Loss and accuracy curves as PNG; none, and a line in the log, where matplotlib is not installed.

    Thin vertical lines stand where a stage ends.

    Args:
        levels: of `mlm_loss` and the other pictures, horizontal lines by name. words: what it is the loss of.
    """
    between = stage_ends(folder.metrics)
    try:
        for part, what in (("mlm", words), ("sentence", "sentence pairs")):
            for number, unit in (("loss", "loss, nats"), ("accuracy", "share that is right")):
                key = f"{part}_{number}"
                found = {
                    "training": curve(folder.metrics, key),
                    "held out": curve(folder.metrics, key, evaluated=True),
                }
                curves = {name: points for name, points in found.items() if points}
                if curves:
                    path, lines = folder.plots / f"{key}.png", levels.get(key, {})
                    title = f"{folder.path.name}: {what}"
                    save_curves(path, curves, title=title, y=unit, levels=lines, borders=between)
    except RunError as error:
        log.info("no plots: %s", error)
