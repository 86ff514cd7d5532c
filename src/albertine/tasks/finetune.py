"""A fine-tuning run: from a pretrained model and the files of a task to a tuned model, scores and
predictions."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray

from albertine.core.files import read_json, write_json
from albertine.core.randomness import permutation
from albertine.core.settings import dump, unused_setting_error, with_absolute_paths
from albertine.core.token_batches import batch_by_tokens
from albertine.errors import RunError, SettingsError
from albertine.evaluation.metrics import metric_sign, score
from albertine.evaluation.report import write_report
from albertine.evaluation.runs import predictions_file, read_run, write_predictions, write_record
from albertine.interop.heads import usual_pooling
from albertine.interop.huggingface.config import model_type, our_flags
from albertine.interop.huggingface.folders import read_folder, save_model
from albertine.interop.model_names import model_of_run
from albertine.interop.save_checks import SavableTokenizer
from albertine.interop.sentence_transformers import sentence_files
from albertine.model.pair_head import Comparer
from albertine.model.task_model import Classifier, TaskModel, WhitenedEmbedder
from albertine.model.weights_digest import tensor_bytes
from albertine.objectives.equilibrium import EquilibriumMetrics
from albertine.tasks.classify import Classify
from albertine.tasks.dataset_files import Data
from albertine.tasks.distillation import TaskTeacher, open_task_teacher
from albertine.tasks.encoded import Encoded
from albertine.tasks.families import take_head
from albertine.tasks.family import Family, OneLayer, Poll, RunContext, TunedOnDev, loss
from albertine.tasks.initial_model import embedding_rate, first_encoder, open_encoder, rates, start_notes
from albertine.tasks.kind_settings import PooledTask, TaskChoice
from albertine.tasks.rescore import Split, score_outputs
from albertine.tasks.run_record import (
    RunIdentity,
    check_files,
    check_finished,
    finished,
    matching_record,
    models_in,
    predictions_of,
    stamp,
    write_run_record,
)
from albertine.tasks.settings import FinetuneSettings, TuningChoice
from albertine.tasks.task_data import read_data
from albertine.tasks.whitened_start import whiten, whitening_files
from albertine.tokenizers.base import Tokenizer
from albertine.training.average import Average
from albertine.training.checkpoints import LAYOUT, model_tensors
from albertine.training.distributed import World, isolated_process_state, start
from albertine.training.job import Cursor, Drawn, Job, LoopSettings, Outcome
from albertine.training.loop import train
from albertine.training.optimizers import build_optimizer
from albertine.training.progress import Reporter
from albertine.training.run_folder import RunFolder, describe
from albertine.training.schedules import make_schedule
from albertine.training.step import FastGradientMethod, MicroBatch

NOT_IN_FINGERPRINT = {"dataset", "folder", "train", "dev", "test", "dev_share", "encoding", "separator"}
NOT_IN_FINGERPRINT |= {"text", "pair", "label", "options", "classes", "label_is", "pooling"}
"""Settings of a task that a fingerprint does not repeat: it has the content of the data, and the pooling of
the model."""
NO_GRADIENT = (
    "Look at the training rows: all labels or scores, or all texts, may be the same, or a batch "
    "(training.batch_size) has nothing to compare"
)


class TaskBatches:
    """The training batches of one process from any point on, epoch after epoch, without end.

    Yields (cursor after the batch, micro-batches of this process); the global batches depend on the seed
    alone.
    """

    def __init__(
        self, data: Encoded, settings: FinetuneSettings, cursor: Cursor | None, rank: int = 0, world: int = 1
    ) -> None:
        self.data, self.settings, self.rank, self.world = data, settings, rank, world
        self.epoch: int = cursor["epoch"] if cursor else 0
        self.at: int = cursor["at"] if cursor else 0

    def __iter__(self) -> Iterator[Drawn]:
        training, lengths = self.settings.training, self.data.lengths
        limit = int(lengths.sum()) if self.data.together else training.micro_batch_tokens
        epoch, at, distilled = self.epoch, self.at, training.teacher is not None
        while True:
            order = permutation(len(lengths), self.settings.seed, "finetune", epoch)
            while at < len(order):
                chosen = order[at : at + training.batch_size]
                at += len(chosen)
                mine = chosen[self.rank :: self.world]
                groups = batch_by_tokens(mine.tolist(), lengths, limit)
                batches = [self.data.batch(g, seed=self.settings.seed, epoch=epoch) for g in groups]
                micro_batches: list[MicroBatch] = [
                    replace(b, distilled=True) if distilled else b for b in batches
                ]
                yield {"epoch": epoch, "at": at}, micro_batches
            epoch, at = epoch + 1, 0


@dataclass(frozen=True)
class FinetuneResult:
    """The result of a fine-tuning run.

    Attributes:
        scores: of the best model on the dev set, and its `step`; empty without a dev set.
        notes: remarks on the files.
        test: scores of the best model on the test file; empty if that has no labels.
    """

    folder: Path
    outcome: Outcome
    scores: Mapping[str, float]
    notes: tuple[str, ...]
    test: Mapping[str, float]

    @property
    def model(self) -> Path:
        """The folder of the best model by the dev set, or of the last one without a dev set."""
        return model_of_run(self.folder)


def finetune(
    settings: FinetuneSettings,
    *,
    resume: str | Path = "auto",
    reporter: Reporter | None = None,
    read: Callable[[TaskChoice, Tokenizer], Data] = read_data,
) -> FinetuneResult:
    """Fine-tune, or resume a run that was interrupted. Under `torchrun` every process calls this.

    A finished run with the same settings and files is not repeated; if only its dev or test file changed, its
    best model is evaluated again. A run that is refused changes nothing.

    Args:
        resume: as in `pretrain`.
        read: reader of the data; `once()` reads and encodes the data that runs share only once.

    Returns:
        The run's folder: the best model by the dev set in `best/`, the last in `final/`, the dev set's
        predictions in `predictions-dev.jsonl`, scores in `scores.json`, the record of the run in
        `result.json`, and a report in `report/`.

    Raises:
        AlbertineError: settings, files or model are invalid or do not fit together, or the files of a
            finished run have changed.
    """
    stamped = stamp(settings)  # before the files are read: they may change while the run is under way
    if resume == "auto" and (record := matching_record(settings, stamped)) is not None:
        check_files(record, settings.folder)
        return _result_of_record(settings, record)
    _check_unused_settings(settings)
    world = start()
    with isolated_process_state(world, settings.training.threads):
        pretrained, tokenizer = open_encoder(settings)
        task = settings.task.fitting(pretrained.config.max_position_embeddings)
        settings = settings.model_copy(update={"task": task})
        data = read(settings.task, tokenizer)
        data = replace(data, notes=(*data.notes, *start_notes(settings, pretrained, data.family)))
        context = RunContext(
            pretrained.config,
            tokenizer,
            data.train,
            settings.task.pooling if isinstance(settings.task, PooledTask) else None,
            settings.training.class_weights == "balanced",
            settings.training.exits,
            str(world.device),
        )
        data = replace(data, family=data.family.for_run(context))
        data = replace(data, notes=(*data.notes, *_exit_notes(context, data.family)))
        _check_batch_size(settings, data, world.size)
        base = first_encoder(settings, pretrained, data.family.heads)
        model = data.family.build(base, settings.encoder.classifier_dropout, settings.seed).to(world.device)
        teacher: TaskTeacher | None = None
        if (name := settings.training.teacher) is not None:
            teacher = open_task_teacher(name, data.family, tokenizer, settings.task.max_length)
            teacher.model.to(world.device).base.encoder.apply_settings(settings.training)
        with RunFolder(settings.folder, main=world.main) as folder:
            identity = RunIdentity(stamped, _fingerprint(settings, model, tokenizer, data, teacher))
            if resume in ("auto", "never") and (record := finished(folder.path)) is not None:
                return _evaluate_again(settings, folder, model, data, world, identity, record, resume)
            if _whitens(settings, model):
                whiten(cast("Classifier | WhitenedEmbedder", model), data.train)
            return _run(settings, folder, model, tokenizer, data, teacher, world, identity, resume, reporter)


def _exit_notes(context: RunContext, family: Family) -> tuple[str, ...]:
    """A note on the pooling that `training.exits` has in place of the usual one."""
    usual = usual_pooling(context.encoder, pairs=isinstance(family, Classify) and family.pairs is True)
    if not context.exits or context.pooling is not None or usual != "compared":
        return ()
    return (
        "exits: the heads read means of all layers (task.pooling=depths). Without training.exits pairs are "
        "compared by the first layers, which is often better for an encoder as narrow as this one",
    )


def _check_unused_settings(settings: FinetuneSettings) -> None:
    """Raises SettingsError for distillation settings without a teacher, and early stopping without a dev
    set."""
    training = settings.training
    if settings.watching.early_stopping is not None and not settings.task.has_dev:
        raise unused_setting_error("watching.early_stopping", "task.dev or task.dev_share", "null")
    for name in ("soft", "temperature"):
        usual = TuningChoice.model_fields[name].default
        if training.teacher is None and getattr(training, name) != usual:
            raise unused_setting_error(f"training.{name}", "training.teacher", usual)
    if training.exits and training.teacher is not None:
        raise SettingsError(
            "training.exits has a head after every layer, and training.teacher teaches the last one alone",
            remedy="Leave one of them out",
        )


def _run(
    settings: FinetuneSettings,
    folder: RunFolder,
    model: TaskModel,
    tokenizer: Tokenizer,
    data: Data,
    teacher: TaskTeacher | None,
    world: World,
    identity: RunIdentity,
    resume: str | Path,
    reporter: Reporter | None,
) -> FinetuneResult:
    family = data.family
    an_epoch = math.ceil(len(data.train.examples) / settings.training.batch_size)
    steps = settings.training.steps or max(1, round(settings.training.epochs * an_epoch))
    outputs, answers = None, list[Any]()

    def evaluate(poll: Callable[[], None]) -> Mapping[str, float]:
        nonlocal outputs, answers
        assert data.dev is not None
        outputs = family.predict(model, data.dev, poll)
        if isinstance(family, TunedOnDev):
            family.tune_on_dev(outputs, data.dev)
        answers = family.answers(outputs, data.dev)
        return score(family.gold(data.dev), answers, family.metrics)

    def keep_best(step: int, scores: Mapping[str, float]) -> None:
        assert data.dev is not None
        save_tuned(model, tokenizer, family, folder.best)
        write_predictions(predictions_file(folder.path, "dev"), family.lines(outputs, data.dev, answers))
        _write_scores(folder, {"step": step, **scores})

    average = Average(model, settings.training.ema) if settings.training.ema else None
    outcome = train(
        Job(
            model=model,
            optimizer=build_optimizer(
                model,
                settings.training.optimizer,
                weight_decay=settings.training.weight_decay,
                rate_of=_rates(settings, model),
                world=world,
            ),
            batches=lambda cursor: TaskBatches(data.train, settings, cursor, world.rank, world.size),
            loss_fn=loss(family)
            if teacher is None
            else teacher.losses(settings.training.soft, settings.training.temperature),
            settings=_loop(settings, steps, family.metrics[0], model.base.config.hidden_size),
            folder=folder,
            evaluate=evaluate if data.dev is not None else None,
            fingerprint=identity.fingerprint,
            world=world,
            reporter=reporter,
            on_start=partial(describe, folder, settings, world),
            on_best=keep_best,
            adversary=_adversary(settings, model),
            extra_metrics=EquilibriumMetrics(model.base.encoder, evaluation=False).metrics
            if model.base.config.solves
            else dict,
            average=average,
            # Fixed, as the last batch of an epoch may have fewer examples than there are processes.
            parts=("task",) if teacher is None else ("soft", "task"),
            no_gradient=NO_GRADIENT if teacher is None else None,
        ),
        resume,
    )
    test: Mapping[str, float] = {}
    if world.main and outcome.done:
        with nullcontext() if average is None else average.in_place():
            if outputs is None and data.dev is not None and isinstance(family, TunedOnDev):
                evaluate(world.busy)  # resumed after the last evaluation, so the family is not tuned yet
            save_tuned(model, tokenizer, family, folder.final)
        test = _finish(settings, folder, model, data, outcome, identity, world.busy)
    world.together()  # until the files are written
    return FinetuneResult(folder.path, outcome, _best_scores(folder.path), data.notes, test)


def _finish(
    settings: FinetuneSettings,
    folder: RunFolder,
    model: TaskModel,
    data: Data,
    outcome: Outcome,
    identity: RunIdentity,
    busy: Poll,
) -> Mapping[str, float]:
    """Predict the test file, and write the record of the run and its report. Returns the test scores."""
    family, scores = data.family, _best_scores(folder.path)
    test: Mapping[str, float] = {}
    if data.test is not None:
        _load_best(model, family, folder)
        test = _predict_split(folder, model, family, "test", data.test, busy)
    write_run_record(settings, model, family, outcome, scores, test, data.notes, identity)
    _report(settings)
    return test


def _evaluate_again(
    settings: FinetuneSettings,
    folder: RunFolder,
    model: TaskModel,
    data: Data,
    world: World,
    identity: RunIdentity,
    record: Mapping[str, Any],
    resume: str | Path,
) -> FinetuneResult:
    """Evaluate the best model of a finished run on the current dev and test files, and update its record;
    nothing is trained.

    Raises:
        RunError: a new run was requested. CheckpointError: the settings describe another model than the
            run's.
    """
    if resume == "never":
        raise RunError(
            "holds an earlier run",
            where=folder.path,
            remedy="Choose another name, delete the folder, or go on with --resume auto",
        )
    notes = (*data.notes, *check_finished(record, identity, folder.path))
    check_files(record, folder.path, predictions=False)
    world.together()  # until all have read the record
    if world.main:
        folder.begin()
        _load_best(model, data.family, folder)
        models = models_in(record)
        # Without a stamp the next command evaluates again, if this one is interrupted.
        write_record(folder.path, {**record, "stamp": None, "files": models})
        splits: dict[Split, Encoded | None] = {"dev": data.dev, "test": data.test}
        found = {
            name: _predict_split(folder, model, data.family, name, split, world.busy)
            for name, split in splits.items()
            if split is not None
        }
        if data.test is None:
            predictions_file(folder.path, "test").unlink(missing_ok=True)
        folder.write_settings(dump(with_absolute_paths(settings)))
        record = {**record, "scores": {}, "test": found.get("test", {}), "notes": list(notes)}
        if "dev" in found:
            record["scores"] = {"step": _best_scores(folder.path).get("step", record["step"]), **found["dev"]}
            _write_scores(folder, record["scores"])
        files = models | predictions_of(folder.path)
        write_record(folder.path, {**record, "stamp": identity.stamp, "files": files})
        _report(settings)
    world.together()
    return _result_of_record(settings, finished(folder.path) or record)


def _result_of_record(settings: FinetuneSettings, record: Mapping[str, Any]) -> FinetuneResult:
    """The result of a finished run."""
    outcome = Outcome(True, 0, record["step"], record["tokens"], record["seconds"], record["scores"])
    return FinetuneResult(settings.folder, outcome, record["scores"], tuple(record["notes"]), record["test"])


def _check_batch_size(settings: FinetuneSettings, data: Data, processes: int) -> None:
    """Check that batches of a loss that compares examples have at least two for each process.

    Raises:
        SettingsError: they have not, and some examples have no hard negative.
    """
    size = settings.training.batch_size
    compares = data.train.together and not all(e.negative for e in data.train.examples)
    if compares and size <= processes:
        each = "" if processes == 1 else f" on {processes} processes"
        raise SettingsError(
            f"batches of {size}{each} have nothing to compare, and the loss compares the examples of a batch",
            where="training.batch_size",
            remedy=f"Set it to {2 * processes} or more, or task.similarity.loss=cosine",
        )


def _whitens(settings: FinetuneSettings, model: TaskModel) -> bool:
    if not settings.training.whiten:
        return False
    has_whitening = isinstance(model, Comparer | WhitenedEmbedder)
    return has_whitening or (isinstance(model, Classifier) and model.uses_mean_pooling)


def _rates(settings: FinetuneSettings, model: TaskModel) -> Callable[[str], float]:
    training = settings.training
    words = embedding_rate(training, model)
    return rates(model.base.config.plan, training.layer_decay, training.crf_rate, words)


def _adversary(settings: FinetuneSettings, model: TaskModel) -> FastGradientMethod | None:
    epsilon = settings.training.adversarial
    table = cast(torch.nn.Parameter, model.base.encoder.embeddings.word.weight)
    return FastGradientMethod(table, epsilon) if epsilon else None


def _load_best(model: TaskModel, family: Family, folder: RunFolder) -> None:
    """Load the weights of the best model, or of the last one without a dev set."""
    where = model_of_run(folder.path)
    found = read_folder(where)
    model.base.load_state_dict(found.model.state_dict())
    take_head(model, family, found, where)


def _predict_split(
    folder: RunFolder, model: TaskModel, family: Family, split: Split, data: Encoded, busy: Poll
) -> Mapping[str, float]:
    """Write the predictions for a file. Returns their scores; empty if the file has no labels.

    Args:
        busy: called between batches, while other processes wait.
    """
    outputs = family.predict(model, data, busy)
    found = score_outputs(family, split, data, outputs)
    write_predictions(predictions_file(folder.path, split), family.lines(outputs, data, found.answers))
    return found.scores


def save_tuned(model: TaskModel, tokenizer: SavableTokenizer | None, family: Family, folder: Path) -> None:
    """Write a model folder with the head of the family, which transformers loads if it supports the plan."""
    config = family.config(model_type(model.base.config), model.dropout)
    save_model(
        model.base,
        tokenizer,
        folder,
        extra_tensors=model.head,
        extra_config=config,
        extra_files=sentence_files(model, our_flags(config).get("max_length")) | whitening_files(model),
    )


def _write_scores(folder: RunFolder, scores: Mapping[str, float]) -> None:
    write_json(folder.path / "scores.json", dict(scores))


def _report(settings: FinetuneSettings) -> None:
    """Write the report of a run whose record is written into `report/`, if the settings enable it."""
    if settings.watching.report:
        write_report(settings.folder / "report", settings.name, {settings.name: [read_run(settings.folder)]})


def _best_scores(folder: Path) -> dict[str, float]:
    return {str(k): float(v) for k, v in read_json(folder / "scores.json").items()}


def _loop(settings: FinetuneSettings, steps: int, metric: str, hidden_size: int) -> LoopSettings:
    training, watching = settings.training, settings.watching
    every = max(1, math.ceil(steps / watching.evaluations))
    return LoopSettings(
        schedule=make_schedule(training.schedule, warmup=training.warmup),
        learning_rate=training.rate(hidden_size),
        steps=steps,
        seed=settings.seed,
        clip=training.clip,
        log_every=watching.log_every,
        evaluate_every=every,
        checkpoint_every=every,
        keep=watching.keep,
        early_stopping=watching.early_stopping,
        best=(metric, "max" if metric_sign(metric) > 0 else "min"),
        tensorboard=watching.tensorboard,
    )


def _fingerprint(
    settings: FinetuneSettings,
    model: TaskModel,
    tokenizer: Tokenizer,
    data: Data,
    teacher: TaskTeacher | None = None,
) -> dict[str, Any]:
    """Everything that determines the result of a run; models by digests of their weights."""
    targets = data.train.targets
    assert targets is not None
    content = _hashed(*map(_bytes_of_row, data.train.ids), np.concatenate(targets).tobytes())
    training = settings.training.model_dump(mode="json", exclude={"threads", "recompute"})
    training |= {
        "learning_rate": settings.training.rate(model.base.config.hidden_size),
        "embedding_rate": embedding_rate(settings.training, model),
        "whiten": _whitens(settings, model),
        "teacher": None if teacher is None else teacher.sha256,
    }
    weights = sorted(model_tensors(model.base).items())
    return {
        "layout": LAYOUT,
        "seed": settings.seed,
        "data": content,
        "labels": list(data.family.labels),
        "tokenizer": tokenizer.fingerprint,
        "model": model.base.config.non_default_dict(),
        "weights": _hashed(*(name.encode() + tensor_bytes(tensor) for name, tensor in weights)),
        "dev": None if data.dev is None else _dev_digest(data.family, data.dev),
        "task": _task_facts(settings.task),
        "pooling": data.family.pooling if isinstance(data.family, OneLayer) else None,
        "metric": data.family.metrics[0],
        "watching": settings.watching.model_dump(mode="json", include={"evaluations", "early_stopping"}),
        "encoder": settings.encoder.model_dump(mode="json", exclude={"folder"}),
        "training": training,
    }


def _task_facts(task: TaskChoice) -> dict[str, Any]:
    """The settings of a task, and those of a YAML file of its data beyond their content."""
    facts = task.model_dump(mode="json", exclude=NOT_IN_FINGERPRINT)
    if isinstance(task.dataset, Path):
        facts["dataset"] = task.data.model_dump(
            mode="json", exclude={"files", "columns", "test_columns", "label_is"}
        )
    return facts


def _dev_digest(family: Family, dev: Encoded) -> str:
    """The inputs and labels of a dev file, independent of its path and of the order of sets."""
    gold = [sorted(map(repr, g)) if isinstance(g, set | frozenset) else repr(g) for g in family.gold(dev)]
    return _hashed(*map(_bytes_of_row, dev.ids), repr(gold).encode())


def _bytes_of_row(ids: NDArray[np.int32]) -> bytes:
    return np.int64(len(ids)).tobytes() + ids.tobytes()


def _hashed(*parts: bytes) -> str:
    content = hashlib.sha256()
    for part in parts:
        content.update(part)
    return content.hexdigest()
