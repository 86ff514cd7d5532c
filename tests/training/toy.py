"""A small model with a loss of two parts, and data that is a function of a cursor."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from albertine.core.randomness import generator, seed_torch
from albertine.training.job import Job, LoopSettings, Outcome
from albertine.training.loop import train
from albertine.training.optimizers import OptimizerKind, build_optimizer
from albertine.training.progress import Reporter
from albertine.training.run_folder import RunFolder
from albertine.training.schedules import linear

VOCAB, WIDTH, ROWS_AN_EPOCH = 23, 16, 50


class Toy(nn.Module):
    """Reads one token, uses one matrix twice, predicts the next token and a parity; `spare` is never used."""

    def __init__(self, dropout: float = 0.1) -> None:
        super().__init__()
        seed_torch(0, "toy")
        self.embedding = nn.Embedding(VOCAB, WIDTH)
        self.shared = nn.Linear(WIDTH, WIDTH)
        self.LayerNorm = nn.LayerNorm(WIDTH)
        self.parity = nn.Linear(WIDTH, 2)
        self.spare = nn.Linear(WIDTH, 3)
        self.dropout = nn.Dropout(dropout)

    def forward(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        x = self.embedding(ids)
        for _ in range(2):
            x = self.LayerNorm(x + self.dropout(F.gelu(self.shared(x))))
        return x @ self.embedding.weight.T, self.parity(x)


class BlockToy(Toy):
    """The same with a gated feed-forward named as in an encoder, whose matrices Muon takes."""

    def __init__(self, dropout: float = 0.1) -> None:
        super().__init__(dropout)
        del self.shared
        block = nn.Module()
        block.intermediate, block.output = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)
        self.encoder = nn.ModuleDict({"feed_forward": nn.ModuleList([block])})

    def shared(self, x: Tensor) -> Tensor:
        (block,) = self.encoder["feed_forward"]
        return block.output(F.glu(block.intermediate(x)))


def toy(kind: OptimizerKind, dropout: float = 0.1) -> Toy:
    """A fresh model with parameters of every group of the optimizer."""
    return BlockToy(dropout) if kind == "muon" else Toy(dropout)


@dataclass(frozen=True)
class ToyBatch:
    ids: Tensor
    labels: Tensor

    @property
    def counts(self) -> dict[str, int]:
        return {"mlm": len(self.ids), "sentence": len(self.ids) // 2}

    @property
    def num_tokens(self) -> int:
        return len(self.ids)

    def to(self, device: torch.device | str) -> ToyBatch:
        return replace(self, ids=self.ids.to(device), labels=self.labels.to(device))


@dataclass(frozen=True)
class WithoutPairs(ToyBatch):
    """Without pairs."""

    @property
    def counts(self) -> dict[str, int]:
        return {"mlm": len(self.ids)}


class ToyPart(NamedTuple):
    loss_sum: Tensor
    count: int  # type: ignore[assignment]
    correct: Tensor


def toy_loss(model: nn.Module, batch: ToyBatch) -> dict[str, ToyPart]:
    logits, parity = model(batch.ids)
    half = len(batch.ids) // 2
    target = batch.labels[:half] % 2
    return {
        "mlm": ToyPart(
            F.cross_entropy(logits, batch.labels, reduction="sum"),
            len(batch.ids),
            (logits.argmax(-1) == batch.labels).sum(),
        ),
        "sentence": ToyPart(
            F.cross_entropy(parity[:half], target, reduction="sum"),
            half,
            (parity[:half].argmax(-1) == target).sum(),
        ),
    }


def rows(start: int, size: int, seed: int = 3) -> tuple[np.ndarray, np.ndarray]:
    draws = generator(seed, "toy rows", start)
    ids = draws.integers(0, VOCAB, size)
    return ids, (ids * 2 + 1) % VOCAB


def toy_batches(
    cursor: Mapping[str, Any] | None, *, batch: int = 12, micro: int = 2, rank: int = 0, world: int = 1
) -> Iterator[tuple[dict[str, Any], list[ToyBatch]]]:
    """Endless global batches of `batch` rows, cut into unequal micro-batches over the ranks."""
    at = int(cursor["row"]) if cursor else 0
    while True:
        ids, labels = (torch.from_numpy(x) for x in rows(at, batch))
        at += batch
        pieces = [torch.arange(i, batch, world * micro) for i in range(rank, world * micro, world)]
        yield {"row": at, "epoch": at // ROWS_AN_EPOCH}, [ToyBatch(ids[p], labels[p]) for p in pieces]


def toy_evaluate(model: nn.Module) -> Callable[[Callable[[], None]], dict[str, float]]:
    @torch.no_grad()
    def evaluate(poll: Callable[[], None]) -> dict[str, float]:
        model.eval()
        sums = [0.0, 0.0]
        for at in range(3):
            poll()
            ids, labels = (torch.from_numpy(x) for x in rows(at, 32, seed=99))
            part = toy_loss(model, ToyBatch(ids, labels))["mlm"]
            sums = [sums[0] + float(part.loss_sum), sums[1] + int(part.correct)]
        return {"mlm_loss": sums[0] / 96, "mlm_accuracy": sums[1] / 96}

    return evaluate


def toy_settings(**changes: Any) -> LoopSettings:
    values: dict[str, Any] = {
        "schedule": linear(0.1),
        "learning_rate": 0.02,
        "steps": 40,
        "seed": 5,
        "log_every": 3,
        "evaluate_every": 8,
        "checkpoint_every": 5,
        "keep": 3,
        "best": ("mlm_loss", "min"),
        "tensorboard": False,
    }
    return LoopSettings(**(values | changes))


def toy_job(folder: RunFolder, kind: OptimizerKind = "lamb", **changes: Any) -> Job:
    """A job on a fresh model; `changes` are of the settings."""
    model = toy(kind)
    return Job(
        model=model,
        optimizer=build_optimizer(model, kind),
        batches=toy_batches,
        loss_fn=toy_loss,
        settings=toy_settings(**changes),
        folder=folder,
        evaluate=toy_evaluate(model),
        fingerprint={"optimizer": kind, "data": {"seed": 3, "batch": 12}},
        reporter=Reporter(quiet=True),
    )


def run_toy(
    path: Path, kind: OptimizerKind = "lamb", resume: str | Path = "auto", **changes: Any
) -> tuple[Job, Outcome]:
    with RunFolder(path) as folder:
        job = toy_job(folder, kind, **changes)
        return job, train(job, resume)
