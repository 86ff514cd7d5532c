"""One fine-tuning run: a pretrained folder and a task's files in; a tuned model, its scores and predictions
out."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from albertine.errors import DataError, ModelError, SettingsError
from albertine.files import replace_durably
from albertine.interop.heads import classifier_config, classifier_tensors, read_classifier
from albertine.interop.huggingface import load_model, read_folder, save_model
from albertine.interop.huggingface_config import model_type
from albertine.model.model import Model
from albertine.model.plan import SharingPlan
from albertine.model.replan import replan
from albertine.randomness import permutation
from albertine.settings import dump
from albertine.tasks import classify
from albertine.tasks.classify import Classifier, Encoded
from albertine.tasks.datasets.classify import Columns, Dataset
from albertine.tasks.reading import Split, check_labels, known, label_names, read_file, read_split
from albertine.tasks.settings import FinetuneSettings, TaskChoice
from albertine.tasks.tables import is_there
from albertine.text.load import load_tokenizer
from albertine.text.tokenizer import Tokenizer
from albertine.training.distributed import World, start, stop
from albertine.training.job import Cursor, Drawn, Job, LoopSettings, Outcome
from albertine.training.loop import train
from albertine.training.optimizers import build_optimizer
from albertine.training.progress import Reporter
from albertine.training.run_folder import RunFolder, environment
from albertine.training.schedules import make_schedule
from albertine.training.step import Adversary

DEFAULT_METRICS = {
    "single": ("accuracy", "macro_f1"),
    "multi": ("micro_f1",),
    "score": ("pearson", "spearman"),
}


@dataclass(frozen=True)
class Data:
    """What a run learns from and is judged by.

    Attributes:
        labels: the classes in the order of their numbers; empty for a score.
        notes: what a person should know of the files: rows left out, empty or cut short.
    """

    dataset: Dataset
    labels: tuple[str, ...]
    train: Encoded
    dev: Encoded | None
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Result:
    """How a run ended.

    Attributes:
        scores: of the best model on the dev set, and its `step`; empty without a dev set.
        notes: what a person should know of the files.
        test: scores of the best model on the test file; empty where that has no labels.
    """

    folder: Path
    outcome: Outcome
    scores: Mapping[str, float]
    notes: tuple[str, ...]
    test: Mapping[str, float]


def finetune(
    settings: FinetuneSettings, *, resume: str | Path = "auto", reporter: Reporter | None = None
) -> Result:
    """Fine-tune, or go on with a run that was interrupted. Under `torchrun` every process calls this.

    Args:
        resume: as in `pretrain`.

    Returns:
        The run's folder: the best model by the dev set in `best/`, the last in `final/`, the dev set's
        predictions in `predictions-dev.jsonl`, scores in `scores.json`.

    Raises:
        AlbertineError: settings, files or model do not allow it; the message says what to do.
    """
    if settings.training.threads:
        torch.set_num_threads(settings.training.threads)
    world = start()
    try:
        base, tokenizer = _encoder(settings)
        data = read_data(settings.task, tokenizer)
        model = Classifier(
            base,
            max(1, len(data.labels)),
            dropout=settings.encoder.classifier_dropout,
            seed=settings.seed,
        ).to(world.device)
        with RunFolder(settings.folder, main=world.main) as folder:
            folder.describe(
                dump(settings), environment(settings.seed, device=str(world.device), world_size=world.size)
            )
            return _run(settings, folder, model, tokenizer, data, world, resume, reporter)
    finally:
        stop(world)


def read_data(task: TaskChoice, tokenizer: Tokenizer) -> Data:
    """Read and encode the training and dev files of a task."""
    dataset = _dataset(task)
    train_split = _read(task, dataset, "train")
    dev_split = _read(task, dataset, "dev") if _has(task, dataset, "dev") else None
    if train_split is None:
        raise DataError("there is no training file", remedy="Name it in task.train")
    labels = label_names(dataset, train_split.examples)
    notes: list[str] = []
    encoded: list[Encoded | None] = []
    for name, split in (("train", train_split), ("dev", dev_split)):
        if split is None:
            encoded.append(None)
            continue
        if dataset.kind != "score":
            check_labels(split.examples, labels)
        found = classify.encode(split.examples, tokenizer, task.max_length, dataset.kind, labels)
        if found.targets is None:
            raise DataError(f"the {name} file has no labels", where=split.examples[0].where)
        encoded.append(found)
        notes.append(_note(name, split, found, task.max_length))
    assert encoded[0] is not None
    return Data(dataset, labels, encoded[0], encoded[1], tuple(notes))


def _note(name: str, split: Split, found: Encoded, limit: int) -> str:
    text = f"{name}: {len(split.examples):,} examples"
    counts = (
        (split.left_out, "left out for their label"),
        (split.empty, "without text"),
        (found.truncated, f"cut to {limit} tokens"),
    )
    return text + "".join(f", {count:,} {what}" for count, what in counts if count)


def _dataset(task: TaskChoice) -> Dataset:
    if task.dataset is not None:
        return known(task.dataset)
    return Dataset(
        files={},
        columns=Columns(task.text, task.pair, task.label),
        kind=task.kind,
        metrics=DEFAULT_METRICS[task.kind],
        separator=task.separator,
    )


def _has(task: TaskChoice, dataset: Dataset, split: str) -> bool:
    if task.dataset is None:
        return getattr(task, split) is not None
    assert task.folder is not None
    name = dataset.files.get(split)
    # The test file of a benchmark is often not there, and not needed; the others are.
    return name is not None and (split != "test" or is_there(task.folder, name))


def _read(task: TaskChoice, dataset: Dataset, split: str) -> Split | None:
    if task.dataset is not None:
        assert task.folder is not None
        return read_split(dataset, task.folder, split, task.encoding)
    path: Path | None = getattr(task, split)
    return None if path is None else read_file(dataset, path, dataset.columns, task.encoding)


def _encoder(settings: FinetuneSettings) -> tuple[Model, Tokenizer]:
    """The pretrained encoder with its pooler alone, by the plan that the settings ask for."""
    choice = settings.encoder
    pretrained = load_model(choice.folder)
    tokenizer = load_tokenizer(choice.folder)
    config = replace(
        pretrained.config, hidden_dropout_prob=choice.dropout, attention_probs_dropout_prob=choice.dropout
    )
    if tokenizer.vocab_size > config.vocab_size:
        raise ModelError(
            f"has {config.vocab_size} word vectors, and its tokenizer knows {tokenizer.vocab_size} pieces",
            where=choice.folder,
            remedy="Put the tokenizer that the model was trained with into the folder",
        )
    if settings.task.max_length > config.max_position_embeddings:
        raise SettingsError(
            f"task.max_length {settings.task.max_length} is more than the model's "
            f"{config.max_position_embeddings} positions",
            remedy=f"Set task.max_length={config.max_position_embeddings} or less",
        )
    model = Model(config, {"pooler"}, seed=settings.seed, precision=settings.training.precision)
    state = model.state_dict()
    model.load_state_dict(state | {k: v for k, v in pretrained.state_dict().items() if k in state})
    plan = _plan(config.plan, choice.unshare, choice.num_hidden_layers)
    return (model if plan == config.plan else replan(model, plan)), tokenizer


def _plan(plan: SharingPlan, unshare: str, depth: int | None) -> SharingPlan:
    depth = depth or plan.depth
    if unshare == "no":
        if depth == plan.depth:
            return plan
        repeat = [d % plan.depth for d in range(depth)]
        return SharingPlan(
            tuple(plan.attention[d] for d in repeat), tuple(plan.feed_forward[d] for d in repeat)
        )
    # What is unshared gets a block a depth; what stays shared keeps sharing as it does.
    kept = [d % plan.depth for d in range(depth)]
    each = tuple(range(depth))
    attention = each if unshare in ("all", "attention") else tuple(plan.attention[d] for d in kept)
    feed_forward = each if unshare in ("all", "ffn") else tuple(plan.feed_forward[d] for d in kept)
    return SharingPlan(attention, feed_forward)


def rates(plan: SharingPlan, decay: float) -> Callable[[str], float]:
    """Share of the learning rate by parameter name under layer-wise decay: 1 for the head and the pooler,
    `decay` for the top depth, one factor more for every depth below it, and the last for the embeddings.

    A block that several depths share has the rate of the highest of them.
    """
    top = {
        part: {block: max(d for d, b in enumerate(blocks) if b == block) for block in set(blocks)}
        for part, blocks in (("attention", plan.attention), ("feed_forward", plan.feed_forward))
    }

    def rate(name: str) -> float:
        if ".embeddings." in name:
            return decay ** (plan.depth + 1)
        if found := re.search(r"encoder\.(attention|feed_forward)\.(\d+)\.", name):
            return decay ** (plan.depth - top[found[1]][int(found[2])])
        return 1.0

    return rate


class Batches:
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
        epoch, at = self.epoch, self.at
        while True:
            order = permutation(len(lengths), self.settings.seed, "finetune", epoch)
            while at < len(order):
                chosen = order[at : at + training.batch_size]
                at += len(chosen)
                mine = chosen[self.rank :: self.world]
                groups = classify.by_tokens(mine, lengths, training.micro_batch_tokens)
                yield {"epoch": epoch, "at": at}, [self.data.batch(group) for group in groups]
            epoch, at = epoch + 1, 0


def _run(
    settings: FinetuneSettings,
    folder: RunFolder,
    model: Classifier,
    tokenizer: Tokenizer,
    data: Data,
    world: World,
    resume: str | Path,
    reporter: Reporter | None,
) -> Result:
    kind, metrics = data.dataset.kind, data.dataset.metrics
    an_epoch = math.ceil(len(data.train.ids) / settings.training.batch_size)
    steps = settings.training.steps or max(1, round(settings.training.epochs * an_epoch))
    latest = torch.empty(0)

    def evaluate(poll: Callable[[], None]) -> Mapping[str, float]:
        nonlocal latest
        assert data.dev is not None
        latest = classify.predict(model, data.dev, device=world.device, poll=poll)
        return classify.score(data.dev.examples, classify.answers(latest, kind, data.labels), metrics)

    def keep_best(step: int, scores: Mapping[str, float]) -> None:
        assert data.dev is not None
        save_classifier(model, tokenizer, data, folder.best)
        predicted = classify.answers(latest, kind, data.labels)
        path = folder.path / "predictions-dev.jsonl"
        classify.write_predictions(path, data.dev.examples, latest, predicted, kind, data.labels)
        told = json.dumps({"step": step, **scores}, indent=2) + "\n"
        replace_durably(folder.path / "scores.json", told.encode())

    outcome = train(
        Job(
            model=model,
            optimizer=build_optimizer(
                model,
                "adamw",
                weight_decay=settings.training.weight_decay,
                rate_of=rates(model.base.config.plan, settings.training.layer_decay),
            ),
            batches=lambda cursor: Batches(data.train, settings, cursor, world.rank, world.size),
            loss_fn=classify.loss(kind, _class_weights(settings, data, world)),
            settings=_loop(settings, steps, metrics[0]),
            folder=folder,
            evaluate=evaluate if data.dev is not None else None,
            fingerprint=_fingerprint(settings, model, tokenizer, data),
            world=world,
            reporter=reporter,
            on_best=keep_best,
            adversary=_adversary(settings, model),
        ),
        resume,
    )
    test: dict[str, float] = {}
    if world.main and outcome.done:
        save_classifier(model, tokenizer, data, folder.final)
        if _has(settings.task, data.dataset, "test"):
            test = _answer_test(settings.task, folder, model, tokenizer, data)
    return Result(folder.path, outcome, _best_scores(folder.path), data.notes, test)


def _adversary(settings: FinetuneSettings, model: Classifier) -> Adversary | None:
    epsilon = settings.training.adversarial
    return Adversary(model.base.encoder.embeddings.word.weight, epsilon) if epsilon else None


def _class_weights(settings: FinetuneSettings, data: Data, world: World) -> torch.Tensor | None:
    """Weights of the classes so that each has the same sum over the training examples, mean 1."""
    if settings.training.class_weights == "none":
        return None
    if data.dataset.kind != "single":
        raise SettingsError("training.class_weights is for tasks with one class a text")
    assert data.train.targets is not None
    counts = torch.bincount(data.train.targets, minlength=len(data.labels)).clamp(min=1)
    return (counts.sum() / (len(counts) * counts)).float().to(world.device)


def _answer_test(
    task: TaskChoice, folder: RunFolder, model: Classifier, tokenizer: Tokenizer, data: Data
) -> dict[str, float]:
    """Answer the test file with the best model; its scores, if the file has labels."""
    split = _read(task, data.dataset, "test")
    assert split is not None
    kind, labels = data.dataset.kind, data.labels
    labelled = all(example.label is not None for example in split.examples)
    if labelled and kind != "score":
        check_labels(split.examples, labels)
    encoded = classify.encode(split.examples, tokenizer, task.max_length, kind, labels)
    load_classifier(model, folder.best if folder.best.is_dir() else folder.final)
    logits = classify.predict(model, encoded, device=model.classifier.weight.device)
    predicted = classify.answers(logits, kind, labels)
    classify.write_predictions(
        folder.path / "predictions-test.jsonl", split.examples, logits, predicted, kind, labels
    )
    return classify.score(split.examples, predicted, data.dataset.metrics) if labelled else {}


def load_classifier(model: Classifier, folder: Path) -> None:
    """Give a model the weights that `save_classifier` wrote."""
    found = read_folder(folder)
    head = read_classifier(found, folder)
    model.base.load_state_dict(found.model.state_dict())
    model.classifier.load_state_dict({"weight": head.weight, "bias": head.bias})


def save_classifier(model: Classifier, tokenizer: Tokenizer, data: Data, folder: Path) -> None:
    """Write a folder that transformers loads as a sequence classifier, where its plan allows."""
    kind = model_type(model.base.config)
    save_model(
        model.base,
        tokenizer,
        folder,
        extra_tensors=classifier_tensors(model.classifier.weight, model.classifier.bias),
        extra_config=classifier_config(kind, data.dataset.kind, data.labels, model.dropout),
    )


def _best_scores(folder: Path) -> dict[str, float]:
    try:
        found = json.loads((folder / "scores.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return {str(k): float(v) for k, v in found.items()} if isinstance(found, dict) else {}


def _loop(settings: FinetuneSettings, steps: int, metric: str) -> LoopSettings:
    training, watching = settings.training, settings.watching
    every = max(1, math.ceil(steps / watching.evaluations))
    return LoopSettings(
        schedule=make_schedule(training.schedule, warmup=training.warmup),
        learning_rate=training.learning_rate,
        steps=steps,
        seed=settings.seed,
        clip=training.clip,
        log_every=watching.log_every,
        evaluate_every=every,
        checkpoint_every=every,
        keep=watching.keep,
        early_stopping=watching.early_stopping,
        best=(metric, "min" if metric == "mean_squared_error" else "max"),
        tensorboard=watching.tensorboard,
    )


def _fingerprint(
    settings: FinetuneSettings, model: Classifier, tokenizer: Tokenizer, data: Data
) -> dict[str, Any]:
    """All that decides the result of a run."""
    content = hashlib.sha256()
    for ids in data.train.ids:
        content.update(np.int64(len(ids)).tobytes() + ids.tobytes())
    assert data.train.targets is not None
    content.update(data.train.targets.numpy().tobytes())
    start_weights = hashlib.sha256(model.base.encoder.embeddings.word.weight.detach().cpu().numpy().tobytes())
    return {
        "seed": settings.seed,
        "data": content.hexdigest(),
        "labels": list(data.labels),
        "tokenizer": tokenizer.fingerprint,
        "model": model.base.config.to_dict(),
        "start": start_weights.hexdigest(),
        "encoder": settings.encoder.model_dump(mode="json", exclude={"folder"}),
        "training": settings.training.model_dump(mode="json", exclude={"threads"}),
    }
