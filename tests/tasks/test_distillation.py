"""A task learned from a tuned model: its loss in every family by its definition, whole runs, and refusals."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor

from albertine.core.batch import pack
from albertine.errors import CheckpointError, ModelError, SettingsError
from albertine.interop.huggingface.folders import load_model, save_model
from albertine.tasks.answer import Answer
from albertine.tasks.classify import Classify
from albertine.tasks.distillation import open_task_teacher
from albertine.tasks.encoded import IGNORED, TaskBatch
from albertine.tasks.family import OneLayer
from albertine.tasks.finetune import finetune
from albertine.tasks.multiple_choice import Choose
from albertine.tasks.settings import FinetuneSettings
from albertine.tasks.tag import Tag
from albertine.tokenizers.load import load_tokenizer
from albertine.training.checkpoints import read
from albertine.training.metrics import read_metrics
from albertine.training.progress import Reporter
from tests.tasks.conftest import Tune
from tests.toy import toy_vocabulary

ABC = ("a", "b", "c")
Definition = Callable[[Tensor, Tensor], Tensor]


def run(settings: FinetuneSettings) -> Path:
    result = finetune(settings, reporter=Reporter(quiet=True))
    assert result.outcome.done
    return result.folder


def soft(mine: Tensor, its: Tensor) -> Tensor:
    """T²·Σ p·log(p / q) at T = 2 of two lists of numbers."""
    q, p = (mine / 2).softmax(0), (its / 2).softmax(0)
    return 4 * (p * (p / q).log()).sum()


def by_rows(mine: Tensor, its: Tensor) -> Tensor:
    return torch.stack([soft(x, y) for x, y in zip(mine, its, strict=True)]).sum()


def of_several(mine: Tensor, its: Tensor) -> Tensor:
    """Each class is there or not."""
    q, p = (mine / 2).sigmoid(), (its / 2).sigmoid()
    return 4 * (p * (p / q).log() + (1 - p) * ((1 - p) / (1 - q)).log()).sum() / 3


def by_examples(mine: Tensor, its: Tensor) -> Tensor:
    return soft(mine[:2, 0], its[:2, 0]) + soft(mine[2:, 0], its[2:, 0])


def of_two_ends(mine: Tensor, its: Tensor) -> Tensor:
    parts = [(slice(0, 2), k) for k in (0, 1)] + [(slice(2, 5), k) for k in (0, 1)]
    return torch.stack([soft(mine[rows, k], its[rows, k]) for rows, k in parts]).sum() / 2


FAMILIES: dict[str, tuple[OneLayer, Definition]] = {
    "a class": (Classify("single", ABC, (), 8), by_rows),
    "several": (Classify("multi", ABC, (), 8), of_several),
    "a score": (Classify("score", (), (), 8), lambda mine, its: F.mse_loss(mine, its, reduction="sum") / 2),
    "a choice": (Choose(8), by_examples),
    "entities": (Tag(ABC, 8), lambda mine, its: by_rows(mine[[1, 2, 4]], its[[1, 2, 4]])),
    "answers": (Answer(), of_two_ends),
}


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_by_its_definition(name: str) -> None:
    family, definition = FAMILIES[name]
    torch.manual_seed(1)
    mine, its = (torch.randn(5, family.outputs, dtype=torch.float64) * 2 for _ in range(2))
    targets = torch.tensor([IGNORED, 0, 1, IGNORED, 2])  # those that only entities look at
    batch = TaskBatch(pack([[1, 2], [3, 4, 5]]), targets, (2, 3), 5)
    leaf = mine.clone().requires_grad_()
    found, _ = family.soft_loss(leaf, its, batch, 2.0)
    assert found.item() == pytest.approx(definition(mine, its).item(), rel=1e-5)
    (gradient,) = torch.autograd.grad(found, leaf)
    assert bool(torch.isfinite(gradient).all()) and bool(gradient.any())
    same, agreed = family.soft_loss(its, its, batch, 2.0)
    assert same.item() == pytest.approx(0.0, abs=1e-6)
    assert int(agreed) == {"a choice": 2, "entities": 3, "answers": 2}.get(name, 5)


@pytest.fixture(scope="module")
def tuned(pretrained: Path, tables: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tuned")
    tree: dict[str, Any] = {
        "name": "teacher",
        "output": folder,
        "task": {**tables, "text": "review", "label": "verdict", "max_length": 32},
        "encoder": {"folder": pretrained},
        "training": {"precision": "float32", "steps": 60, "batch_size": 16, "learning_rate": 0.01},
        "watching": {"evaluations": 1, "tensorboard": False, "report": False},
    }
    return run(FinetuneSettings.model_validate(tree))


def taught(tune: Tune, teacher: Path, name: str = "toy", **changes: Any) -> FinetuneSettings:
    training = {"steps": 24, "teacher": teacher, **changes.pop("training", {})}
    return tune(name=name, training=training, **changes)


def test_a_student_approaches_the_outputs_of_its_teacher(tune: Tune, tuned: Path) -> None:
    folder = run(taught(tune, tuned, training={"steps": 60}))
    rows = [row for row in read_metrics(folder / "metrics.jsonl") if "evaluation" not in row]
    assert {"soft_loss", "agreement", "task_loss", "task_accuracy"} <= rows[0].keys()
    assert rows[-1]["soft_loss"] < rows[0]["soft_loss"] and rows[-1]["agreement"] > 0.8


def test_a_run_that_was_stopped_is_the_same_run(tune: Tune, tuned: Path) -> None:
    class Stopper(Reporter):
        def step(self, step: int, progress: float, left: float | None) -> None:
            if step == 10:
                os.kill(os.getpid(), signal.SIGTERM)

    straight = run(taught(tune, tuned, "straight"))
    settings = taught(tune, tuned, "stopped")
    assert not finetune(settings, reporter=Stopper(quiet=True)).outcome.done
    both = [load_file(folder / "final" / "model.safetensors") for folder in (straight, run(settings))]
    assert all(torch.equal(tensor, both[1][name]) for name, tensor in both[0].items())
    without = run(tune(name="without", training={"steps": 24}))
    alone = load_file(without / "final" / "model.safetensors")
    assert not torch.equal(alone["classifier.weight"], both[0]["classifier.weight"])


def test_the_teacher_belongs_to_the_run(tune: Tune, tuned: Path) -> None:
    folder = run(taught(tune, tuned))
    fingerprint = read(folder / "checkpoints" / "step-24").state["fingerprint"]
    assert len(fingerprint["training"]["teacher"]) == 64
    run(taught(tune, tuned / "best"))  # the same weights by another path
    with pytest.raises(CheckpointError, match=r"training\.teacher"):
        finetune(taught(tune, folder), reporter=Reporter(quiet=True))
    with pytest.raises(CheckpointError, match=r"training\.teacher: checkpoint"):
        finetune(tune(training={"steps": 24}), reporter=Reporter(quiet=True))


def test_teachers_that_do_not_fit(tune: Tune, tuned: Path, pretrained: Path, tmp_path: Path) -> None:
    tokenizer = load_tokenizer(pretrained)
    with pytest.raises(ModelError, match="head"):
        open_task_teacher(pretrained, Classify("single", ("fine", "poor"), (), 32), tokenizer)
    with pytest.raises(ModelError, match=r"has 2 classes \(fine, poor\), and this task 2 classes \(poor"):
        open_task_teacher(tuned, Classify("single", ("poor", "fine"), (), 32), tokenizer)
    with pytest.raises(ModelError, match=r"was tuned to .* and this task is to"):
        open_task_teacher(tuned, Choose(32), tokenizer)
    with pytest.raises(ModelError, match=r"task\.kind=single, and this task has multi"):
        open_task_teacher(tuned, Classify("multi", ("fine", "poor"), (), 32), tokenizer)
    with pytest.raises(SettingsError, match="positions of the teacher"):
        open_task_teacher(tuned, Classify("single", ("fine", "poor"), (), 32), tokenizer, 100_000)
    _, vocabulary = toy_vocabulary(tmp_path, 50_000)
    save_model(load_model(pretrained), load_tokenizer(vocabulary), tmp_path / "stranger")
    with pytest.raises(ModelError, match="another vocabulary"):
        finetune(
            taught(tune, tuned, encoder={"folder": tmp_path / "stranger"}), reporter=Reporter(quiet=True)
        )
    assert not taught(tune, tuned).folder.exists()


class Seen(Exception):
    """Raised as soon as the expected value is seen."""


@pytest.mark.parametrize("setting", [{"soft": 0.5}, {"temperature": 5.0}])
def test_a_run_refuses_a_teacher_weight_without_a_teacher(tune: Tune, setting: dict[str, float]) -> None:
    (name,) = setting
    alone = tune(name="alone", training={"steps": 1, **setting})
    with pytest.raises(SettingsError, match=r"belongs to training\.teacher, and nothing") as refused:
        run(alone)
    assert refused.value.where == f"training.{name}" and not alone.folder.exists()


def test_patience_requires_a_score(tune: Tune) -> None:
    """Catches: a setting that is never read where nothing is judged."""
    alone = tune(name="alone", training={"steps": 1}, watching={"early_stopping": 2})
    unjudged = alone.model_copy(update={"task": alone.task.model_copy(update={"dev": None})})
    with pytest.raises(SettingsError, match="nothing in this run reads") as refused:
        run(unjudged)
    assert refused.value.where == "watching.early_stopping" and not unjudged.folder.exists()


def test_the_outputs_of_a_teacher_have_the_weight_that_was_set(
    tune: Tune, tuned: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from albertine.tasks import finetune as module

    found: list[dict[str, float]] = []

    def seen(job: Any, *_: Any) -> None:
        _, batches = next(iter(job.batches(None)))
        job.model.eval()
        parts = job.loss_fn(job.model, batches[0])
        found.append({name: float(part.loss_sum.detach()) for name, part in parts.items()})
        raise Seen

    monkeypatch.setattr(module, "train", seen)
    for weight, temperature in ((1.0, 2.0), (3.0, 2.0), (1.0, 5.0)):
        ways = {"soft": weight, "temperature": temperature}
        with pytest.raises(Seen):
            run(taught(tune, tuned, f"{weight} {temperature}", training=ways))
    plain, heavy, warm = found
    assert plain["soft"] > 0 and heavy["soft"] == pytest.approx(3 * plain["soft"], rel=1e-5)
    assert heavy["task"] == pytest.approx(plain["task"], rel=1e-6)
    assert warm["soft"] != pytest.approx(plain["soft"], rel=1e-4)
