"""A pretraining run, from its settings to a trained model."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
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
from albertine.errors import RunError, SettingsError
from albertine.interop.heads import objective_config
from albertine.interop.hub.download import commit_of
from albertine.interop.huggingface.folders import load_model, save_model
from albertine.interop.model_names import model_folder
from albertine.model.config import EncoderConfig
from albertine.model.model import Model
from albertine.model.presets import preset
from albertine.objectives.batch import PretrainingBatch
from albertine.objectives.distillation import DistillationLosses
from albertine.objectives.elastic import elastic_losses
from albertine.objectives.equilibrium import EquilibriumLosses
from albertine.objectives.losses import WEIGHT, pondering_losses, pretraining_losses
from albertine.objectives.stream_losses import StreamLoss
from albertine.objectives.unigram_baseline import BaselineScore
from albertine.pretraining.baselines import Baselines
from albertine.pretraining.cuda_graphs import cuda_graph_runner
from albertine.pretraining.data import PretrainingBatches, branching, held_out_batches, predicted_counts
from albertine.pretraining.held_out import score_batches, score_streams
from albertine.pretraining.initial_model import initial_model, new_config, with_max_length
from albertine.pretraining.settings import Elastic, ModelChoice, ObjectiveChoice, PretrainingSettings
from albertine.pretraining.stages import (
    check_depths,
    check_processes,
    check_unused_settings,
    last_stage,
    resolved_stages,
    stage_at,
    untrained,
)
from albertine.pretraining.stream_data import StreamBatches, held_out_streams
from albertine.pretraining.teacher import Teacher, model_digest, open_teacher
from albertine.tokenizers.base import Tokenizer
from albertine.training.alarms import TrainingAlarms
from albertine.training.average import Average
from albertine.training.checkpoints import LATEST, LAYOUT
from albertine.training.distributed import World, isolated_process_state, start
from albertine.training.job import Clock, Job, LoopSettings, Outcome
from albertine.training.loop import train
from albertine.training.metrics import curve, read_metrics
from albertine.training.optimizers import build_optimizer
from albertine.training.progress import Reporter
from albertine.training.run_folder import RunFolder, describe
from albertine.training.schedules import make_schedule
from albertine.training.step import LossFunction, means

SHORT_START, SHORT_LENGTH = 16, 64
"""Tokens of a sample: up to the first, learned positions are not the cause of a plateau; the second is the
length advised for a small model."""
SMALL_HIDDEN, SMALL_RATE = 384, 1e-3
"""Hidden size up to which AdamW was measured to learn at this rate, with batches as small as 64."""
NO_GRADIENT = (
    "Look at the corpus (`albertine info CORPUS`) and at objective.masking: there may be nothing to predict"
)
Evaluate = Callable[[Callable[[], None]], Mapping[str, float]]
log = logging.getLogger("albertine.training")


@dataclass(frozen=True)
class PretrainResult:
    """The result of a run.

    Attributes:
        baseline: unigram baseline at the predicted positions of the held-out batches.
        no_skill: scores of baselines that ignore the context, under the names of the run's scores.
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
    """Pretrain, or resume an interrupted run. Under `torchrun` every process calls this.

    Args:
        resume: `auto` resumes from the newest complete checkpoint of the run's folder, `never` requires a new
            folder, a path resumes from that checkpoint.
        strict: refuse a damaged newest checkpoint instead of falling back to the one before.
        branch_from: checkpoint of another run to start from, where the run's own folder has none. Settings
            may differ, but not corpus, model and optimizer; `branch.json` in the folder records it.
        reporter: shows the progress; by default a bar on a terminal and plain lines elsewhere.

    Returns:
        The run's folder, with the trained model in `final/` if the run is done.

    Raises:
        AlbertineError: settings, corpus, checkpoint or disk do not allow it; the message has the remedy.
    """
    world = start()
    with isolated_process_state(world, settings.training.threads):
        inputs = _inputs(settings, world)
        with RunFolder(settings.folder, main=world.main) as folder:
            clock = Clock()
            held_out, score = _evaluation(inputs, clock)
            baselines = Baselines.of(held_out, inputs.counts, settings.objective, world)
            job = _job(inputs, folder, score, baselines, clock, reporter)
            outcome = train(job, resume=resume, strict=strict, branch_from=branch_from)
            if world.main and (outcome.updates or _is_outdated(folder)):
                if outcome.done:
                    with nullcontext() if job.average is None else job.average.in_place():
                        inputs.save(folder.final, last_stage(settings))
                words = "masked words" if settings.objective.kind == "masked" else "predicted words"
                draw_curves(folder, baselines.levels, words)
    return PretrainResult(folder.path, outcome, baselines.unigram, baselines.scores)


def check_losses(objective: ObjectiveChoice, config: EncoderConfig) -> None:
    """
    Raises:
        SettingsError: a ponder cost without halting, a Jacobian penalty without a solver, or elastic depth
            outside of the plan.
    """
    if objective.ponder is not None and not config.halts:
        raise SettingsError(
            "this encoder does not halt, and has no ponder cost",
            where="objective.ponder",
            remedy="Leave it out, or set model.change.halting=basic",
        )
    if objective.jacobian is not None and not config.solves:
        raise SettingsError(
            "the Jacobian is that of a fixed-point iteration, and this encoder has a fixed number of layers",
            where="objective.jacobian",
            remedy="Leave it out, or set model.change.solver=anderson",
        )
    if objective.elastic is not None:
        check_elastic(objective.elastic, config)


def check_elastic(elastic: Elastic, config: EncoderConfig) -> None:
    """
    Raises:
        SettingsError: the encoder halts or solves, repeats no core of blocks, or another number of times.
    """
    where = "objective.elastic"
    if config.halts or config.solves:
        raise SettingsError(
            "the loops of an encoder that halts or solves are not drawn",
            where=where,
            remedy="Leave it out, or set model.change.halting=none and model.change.solver=none",
        )
    if (structure := config.plan.loop_structure) is None:
        raise SettingsError(
            "this plan repeats no core of blocks, so there are no loops to draw",
            where=where,
            remedy="Leave it out, set model.sharing=all, or 'model.sharing={core: 1, loops: 4}'",
        )
    if elastic.most != structure.loops:  # the depth that is evaluated, saved and served
        raise SettingsError(
            f"most is {elastic.most}, and the plan has {structure.loops} loops",
            where=where,
            remedy=f"Set objective.elastic.most={structure.loops}, or the plan to {elastic.most} loops",
        )


def losses_of(
    settings: PretrainingSettings, model: Model, world: World, teacher: Model | None = None
) -> LossFunction:
    """The loss function of a run.

    Args:
        teacher: on the device of the model, where `objective.distillation` names one.

    Raises:
        SettingsError: see `check_losses`; or a distillation without a fixed number of layers.
    """
    objective, config = settings.objective, model.config
    check_losses(objective, config)
    if objective.segmented:
        return StreamLoss(config, objective.memory, settings.training.batch_size, world.add)
    if objective.distillation is not None and teacher is not None:
        if any(one.halts or one.solves for one in (config, teacher.config)):
            raise SettingsError(
                "each layer of a student is matched with one of its teacher's, and one of the two has no "
                "fixed number of layers",
                where="objective.distillation",
                remedy="Take an encoder that neither halts nor solves",
            )
        return DistillationLosses(model, teacher, objective.distillation.loss_weights, settings.seed)
    if config.halts:
        return partial(pondering_losses, weight=WEIGHT if objective.ponder is None else objective.ponder)
    if config.solves:
        return EquilibriumLosses(model, objective.jacobian or 0.0, objective.jacobian_frequency)
    if objective.elastic is not None and objective.elastic.teacher:
        return elastic_losses
    return pretraining_losses


def parts_of_run(settings: PretrainingSettings, config: EncoderConfig) -> tuple[str, ...]:
    """The names of the parts of the loss over all stages. Every rank needs them all, as a step sums an equal
    number of values on every rank."""
    objective, stages = settings.objective, resolved_stages(settings)
    paired = any(stage.objective.pairs != "none" for stage in stages)
    mixed = any(0 < stage.objective.causal_share < 1 for stage in stages)
    teaches = objective.elastic is not None and objective.elastic.teacher
    there = {"sentence": paired, "causal": mixed, "ponder": config.halts}
    there |= {"jacobian": objective.jacobian is not None}
    there |= {"elastic_mlm": teaches, "elastic_sentence": teaches and paired}
    there |= {"elastic_causal": teaches and mixed}
    names = () if objective.distillation is None else objective.distillation.loss_weights.names
    return ("mlm", *(name for name, is_there in there.items() if is_there), *names)


@dataclass(frozen=True)
class _Inputs:
    """The checked settings of a run, and what they name, loaded.

    Attributes:
        counts: of every token in the training text, int64 (V,).
        start_sha256: of the model to start from; None for a new encoder.
        teacher: on the run's device and in its number format; None without distillation.
    """

    settings: PretrainingSettings
    corpus: Corpus
    tokenizer: Tokenizer
    counts: NDArray[np.int64]
    model: Model
    start_sha256: str | None
    teacher: Teacher | None
    world: World

    def save(self, folder: Path, stage: int) -> None:
        """Write the model as a model folder, with the objective of a stage, by its index."""
        extra = objective_config(resolved_stages(self.settings)[stage].objective.model_dump(mode="json"))
        save_model(self.model, self.tokenizer, folder, extra_config=extra)


def _inputs(settings: PretrainingSettings, world: World) -> _Inputs:
    """
    Raises:
        AlbertineError: see `pretrain`.
    """
    settings = with_max_length(settings)
    check_processes(settings, world.size)
    corpus = Corpus(settings.corpus)
    tokenizer = corpus.tokenizer()
    counts = predicted_counts(corpus, settings.objective, tokenizer.vocab_size)
    start_from = settings.model.start_from
    start = None if start_from is None else load_model(model_folder(start_from))
    start_sha256 = None if start is None else model_digest(start)
    model = initial_model(settings, counts, tokenizer, start).to(world.device)
    check_depths(settings, model.config.num_hidden_layers)
    check_unused_settings(settings, model.config)
    teacher = None
    if (distillation := settings.objective.distillation) is not None:
        teacher = open_teacher(distillation, tokenizer, settings.objective.max_length)
        teacher.model.to(world.device).encoder.apply_settings(settings.training)
    return _Inputs(settings, corpus, tokenizer, counts, model, start_sha256, teacher, world)


def check_new_encoder(settings: PretrainingSettings) -> EncoderConfig:
    """Check the settings of a run from a preset as far as possible without its corpus.

    Returns:
        The configuration of its encoder, but for the vocabulary size.

    Raises:
        SettingsError: values of the encoder, its stages or its objective do not fit together, or one is
            unused.
    """
    settings = with_max_length(settings)
    assert settings.model.preset is not None
    config = new_config(settings, preset(settings.model.preset).vocab_size)
    check_depths(settings, config.num_hidden_layers)
    check_unused_settings(settings, config)
    check_losses(settings.objective, config)
    loop_settings(settings)
    return config


def _job(
    inputs: _Inputs,
    folder: RunFolder,
    score: Evaluate,
    baselines: Baselines,
    clock: Clock,
    reporter: Reporter | None,
) -> Job:
    settings, model, world, teacher = inputs.settings, inputs.model, inputs.world, inputs.teacher
    training = settings.training
    losses = losses_of(settings, model, world, None if teacher is None else teacher.model)
    solver_metrics = losses.metrics if isinstance(losses, EquilibriumLosses) else dict
    # A narrower student is trained together with maps of its states to the teacher's.
    trained = losses.trained.to(world.device) if isinstance(losses, DistillationLosses) else model
    optimizer = build_optimizer(
        trained,
        training.optimizer,
        weight_decay=training.weight_decay,
        adamw_share=training.adamw_rate,
        zero_outputs=settings.model.residual_init == "zeros",
        precision=training.precision,
        world=world,
    )

    def evaluate(poll: Callable[[], None]) -> Mapping[str, float]:
        return {**score(poll), **means(solver_metrics(), world)}

    return Job(
        model=trained,
        optimizer=optimizer,
        batches=partial(_batches, inputs, clock),
        loss_fn=losses,
        parts=parts_of_run(settings, model.config),
        runner=cuda_graph_runner(model, losses, world.device),
        extra_metrics=solver_metrics,
        settings=loop_settings(settings),
        folder=folder,
        evaluate=evaluate,
        fingerprint=fingerprint(settings, model, inputs.tokenizer, inputs.start_sha256, teacher),
        average=Average(trained, training.average) if training.average else None,
        world=world,
        # The metrics are the same on every rank.
        alarms=_alarms(settings, baselines, model.config) if world.main else None,
        reporter=reporter,
        on_start=partial(_write_records, inputs, folder),
        on_best=lambda step, scores: inputs.save(folder.best, (clock.cursor or {}).get("stage", 0)),
        branching=branching(inputs.corpus, settings),
        clock=clock,
        no_gradient=NO_GRADIENT if teacher is None else None,
    )


def _is_outdated(folder: RunFolder) -> bool:
    """Whether the final model is missing or older than the last checkpoint: the run was resumed from an
    earlier one and killed before it saved its model."""
    if not folder.final.is_dir():
        return True
    newest = folder.checkpoints / LATEST
    return newest.is_file() and folder.final.stat().st_mtime_ns < newest.stat().st_mtime_ns


def _evaluation(inputs: _Inputs, clock: Clock) -> tuple[Sequence[PretrainingBatch], Evaluate]:
    """The held-out batches of this process, with those of the same samples as causal ones in a run that has
    such; and the scores of the model on them. In a stage of fewer layers `stage_mask_loss` is the loss with
    these layers alone; with elastic depth `least_mask_loss` that with the fewest loops."""
    settings, model, world = inputs.settings, inputs.model, inputs.world
    objective, sequences = settings.objective, settings.watching.evaluate_sequences
    here: dict[str, Any] = {"sequences": sequences, "rank": world.rank, "world": world.size}
    if not objective.streamed:
        stages = resolved_stages(settings)
        read = partial(held_out_batches, settings.corpus, objective, **here)
        masked, causal = read(), list[PretrainingBatch]()
        if any(stage.objective.causal_share for stage in stages):
            causal = read(causal=True)

        def evaluate(poll: Callable[[], None]) -> Mapping[str, float]:
            score = partial(score_batches, model, device=world.device, add_up=world.add, poll=poll)
            stage = (clock.cursor or {}).get("stage")  # absent in a branch before its first batch
            scores = score([*masked, *causal])
            if objective.elastic is not None:
                least = score([replace(batch, loops=objective.elastic.least) for batch in masked])
                scores |= {"least_mask_loss": least["mask_loss"]} if "mask_loss" in least else {}
            depth = stages[stage_at(stages, clock.progress) if stage is None else stage].depth
            # A solver runs to its fixed point, whatever the depth.
            if not _is_shallower(depth, model.config) or model.config.solves:
                return scores
            shallow = score([replace(batch, depth=depth) for batch in masked])
            return scores | ({"stage_mask_loss": shallow["mask_loss"]} if "mask_loss" in shallow else {})

        return [*masked, *causal], evaluate
    segments = held_out_streams(settings.corpus, objective, **here)
    return segments, lambda poll: score_streams(
        model, segments, memory=objective.memory, device=world.device, add_up=world.add, poll=poll
    )


def _write_records(inputs: _Inputs, folder: RunFolder) -> None:
    """Write settings, environment and teacher; log warnings."""
    settings, teacher = inputs.settings, inputs.teacher
    describe(folder, settings, inputs.world)
    start = settings.model.start_from
    for line in untrained(settings, inputs.model.config if start is None else None):
        log.warning("%s", line)
    segmented = inputs.corpus.manifest.settings.get("words") == "jieba"
    if segmented and settings.objective.kind == "masked" and not settings.objective.masking.whole_word:
        log.warning(
            "the corpus has words segmented by jieba, but single tokens are masked; to mask whole words, set "
            "objective.masking.whole_word=true"
        )
    if teacher is not None:
        teacher.write(folder.path)
        log.info("teacher: %s, sha256 %s", teacher.name, teacher.sha256)
    if start is not None and teacher is None and settings.training.learning_rate is None:
        log.warning(
            "continues %s at the learning rate of random weights, at which a model forgets much of what it "
            "learned; lower: training.optimizer=muon training.learning_rate=0.005, as "
            "recipes/adapted-mini-en.yaml",
            start,
        )
    if start is not None and (commit := commit_of(model_folder(start))):
        log.info("starts from %s, revision %s of the hub", start, commit)


def _batches(
    inputs: _Inputs, clock: Clock, cursor: dict[str, Any] | None
) -> PretrainingBatches | StreamBatches:
    corpus, settings, world = inputs.corpus, inputs.settings, inputs.world
    ponders = inputs.model.config.halts
    if settings.objective.streamed:
        return StreamBatches(corpus, settings, cursor, world.rank, world.size, ponders=ponders)
    return PretrainingBatches(corpus, settings, cursor, world.rank, world.size, clock, ponders=ponders)


def loop_settings(settings: PretrainingSettings) -> LoopSettings:
    """The settings of the training loop."""
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
        # Without masked tokens the second would repeat the first.
        shown={} if kind == "masked" else {"mlm": "plm" if kind == "permutation" else "lm", "mask": None},
        permutation=kind == "permutation",
    )


def fingerprint(
    settings: PretrainingSettings,
    model: Model,
    tokenizer: Tokenizer,
    start_sha256: str | None = None,
    teacher: Teacher | None = None,
) -> dict[str, Any]:
    """Everything that determines the result of a run; a checkpoint with another one is refused. Models to
    start from and to learn from are identified by their weights, not by their paths."""
    objective = settings.objective.model_dump(mode="json")
    if teacher is not None:
        objective["distillation"]["teacher"] = teacher.sha256
    return {
        "layout": LAYOUT,
        "seed": settings.seed,
        "corpus": manifest_digest(settings.corpus),
        "tokenizer": tokenizer.fingerprint,
        "model": {**model.config.non_default_dict(), "heads": sorted(model.heads)},
        "start": settings.model.model_dump(
            mode="json", include={"embeddings", "output_bias", "residual_init", "student"}
        ),
        "weights": start_sha256,
        "objective": objective,
        "training": settings.training.model_dump(mode="json", exclude={"workers", "threads", "recompute"}),
        "stages": [stage.model_dump(mode="json") for stage in settings.stages],
    }


def _is_shallower(depth: int | None, config: EncoderConfig) -> bool:
    return depth is not None and depth < config.num_hidden_layers


def _uninformative_stages(settings: PretrainingSettings, config: EncoderConfig) -> frozenset[int]:
    """The stages in which an evaluation, with all layers and full-length samples, does not show whether the
    model learns; learned positions are untrained up to the first samples of full length."""
    found, longest = set[int](), 0
    for number, stage in enumerate(resolved_stages(settings)):
        longest = max(longest, stage.objective.max_length)
        untrained_positions = config.positions == "learned" and longest < settings.objective.max_length
        causal = stage.objective.causal_share == 1
        if causal or _is_shallower(stage.depth, config) or untrained_positions:
            found.add(number)
    return frozenset(found)


def _alarms(settings: PretrainingSettings, baselines: Baselines, config: EncoderConfig) -> TrainingAlarms:
    training, objective = settings.training, settings.objective
    # SOP labels are drawn evenly. With the reference's defects, and of NSP, one label is more frequent.
    even = objective.pairs == "sop" and not objective.reference_defects
    return TrainingAlarms(
        unigram_entropy=baselines.unigram.cross_entropy,
        masked_entropy=baselines.scores.get("mask_loss"),
        unigram_accuracy=baselines.unigram.accuracy,
        majority_accuracy=0.5 if even or baselines.pairs is None else baselines.pairs.majority,
        learning_rate=training.rate,
        batch_size=training.batch_size,
        optimizer=training.optimizer,
        measured_rate=SMALL_RATE
        if training.optimizer == "adamw" and config.hidden_size <= SMALL_HIDDEN
        else None,
        suggest_higher_rate=settings.model.start_from is None,
        warmup=training.warmup,
        total_steps=training.steps,
        uninformative_stages=_uninformative_stages(settings, config),
        plateau_advice=_plateau_advice(settings, config.positions),
        slow_start_advice=_slow_start_advice(settings.model),
        objective=objective.kind,
    )


def _slow_start_advice(choice: ModelChoice) -> tuple[str, ...]:
    """The setting that initialises a new model with the token frequencies, unless it is set."""
    is_set = choice.output_bias == "unigram" or choice.start_from is not None
    return () if is_set else ("model.output_bias=unigram begins at the frequencies of the corpus.",)


def _plateau_advice(settings: PretrainingSettings, positions: str) -> tuple[str, ...]:
    """Settings that shorten the plateau of a new small model and are not set; none for streams, for which
    they were not measured."""
    if settings.objective.streamed or settings.model.start_from is not None:
        return ()
    missing = _missing_settings(settings.model_dump(mode="json"), positions)
    *others, last = missing or [""]
    listed = f"{', '.join(others)} and {last}" if others else last
    return (f"A small model leaves it sooner with {listed}.",) if missing else ()


def _missing_settings(tree: Mapping[str, Any], positions: str) -> list[str]:
    """Settings against the plateau (decision 017), the most effective first. With many learned positions
    attention to a neighbour is learned late; relative positions avoid that, as do short samples at first."""
    model, stages = tree["model"], tree.get("stages") or [{}]
    fresh, missing = model.get("preset") is not None, []
    first = stages[0].get("max_length") or tree["objective"]["max_length"]
    if positions == "learned" and first > SHORT_START:
        if fresh:
            missing.append("rotary positions (model.change.positions=rotary)")
        missing.append("a ramp of lengths from 8 tokens (stages)")
    if tree["training"]["optimizer"] != "muon":
        other_rate = tree["training"].get("learning_rate") is not None
        missing.append("training.optimizer=muon" + (" training.learning_rate=null" if other_rate else ""))
    if fresh and model.get("embeddings") != "wide":
        missing.append("model.embeddings=wide")
    if first > SHORT_LENGTH:
        missing.append(f"objective.max_length={SHORT_LENGTH}")
    return missing


def stage_ends(metrics: Path) -> list[int]:
    """The last logged step of every stage but the last; empty without stages."""
    rows = [row for row in read_metrics(metrics) if "stage" in row]
    return [one["step"] for one, two in pairwise(rows) if one["stage"] != two["stage"]]


def run_curves(
    metrics: Path, words: str = "masked words"
) -> Iterator[tuple[str, str, str, dict[str, list[tuple[float, float]]]]]:
    """The curves of loss and accuracy in a file of metrics: key, what is predicted, unit, and points by name.

    Args:
        words: of predicted tokens.
    """
    for part, what in (("mlm", words), ("causal", "next tokens"), ("sentence", "sentence pairs")):
        for number, unit in (("loss", "loss, nats"), ("accuracy", "share that is right")):
            key = f"{part}_{number}"
            found = {
                "training": curve(metrics, key),
                "held out": curve(metrics, key, evaluated=True),
            }
            if curves := {name: points for name, points in found.items() if points}:
                yield key, what, unit, curves


def draw_curves(
    folder: RunFolder, levels: Mapping[str, Mapping[str, float]], words: str = "masked words"
) -> None:
    """Write loss and accuracy curves as PNG into `plots/`, with vertical lines at the ends of stages. Without
    matplotlib only a line in the log is written.

    Args:
        levels: horizontal lines by name, for each plot, such as `mlm_loss`.
        words: title of the curves of predicted tokens.
    """
    borders = stage_ends(folder.metrics)
    try:
        for key, what, unit, curves in run_curves(folder.metrics, words):
            path, lines = folder.plots / f"{key}.png", levels.get(key, {})
            title = f"{folder.path.name}: {what}"
            save_curves(path, curves, title=title, y=unit, levels=lines, borders=borders)
    except RunError as error:
        log.info("no plots: %s", error)
