"""How long an optimizer's step takes on the parameters of an encoder."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.optim import AdamW, Optimizer
from torch.optim import Muon as TorchMuon

from albertine.bench.interleaved import PATIENCE, Contest, Log, compete
from albertine.model.config import EncoderConfig
from albertine.model.model import Model
from albertine.training.optimizers import block_matrices, build_optimizer

TORCH, OURS, LAMB = "torch AdamW, fused", "albertine AdamW", "albertine LAMB"
TORCH_MUON, MUON = "torch Muon and AdamW", "albertine Muon"


class _Two(Optimizer):
    """Torch's Muon for the matrices of the blocks, its AdamW for the rest."""

    def __init__(self, model: Model) -> None:
        matrices = block_matrices(model)
        taken = [p for name, p in model.named_parameters() if name in matrices]
        others = [p for name, p in model.named_parameters() if name not in matrices]
        self.parts: list[Optimizer] = [TorchMuon(taken, lr=1e-4), AdamW(others, lr=1e-4, fused=True)]
        super().__init__(list(model.parameters()), {"lr": 1e-4})

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for part in self.parts:
            part.step()


def measure(config: EncoderConfig, *, rounds: int, threads: int, log: Log = lambda text: None) -> Contest:
    """Steps on the same gradients, in turn."""
    makers: dict[str, Callable[[Model], Optimizer]] = {
        OURS: lambda model: build_optimizer(model, "adamw"),
        TORCH: lambda model: AdamW(model.parameters(), lr=1e-4, fused=True),
        LAMB: lambda model: build_optimizer(model, "lamb"),
        TORCH_MUON: _Two,
        MUON: lambda model: build_optimizer(model, "muon"),
    }
    ways = {name: _step(config, make) for name, make in makers.items()}
    return compete(ways, rounds, threads, log, patience=PATIENCE, kept=[OURS])


def as_dict(contest: Contest) -> dict[str, Any]:
    """As JSON data; the ratios are the speed of a step relative to torch's, if the machine was idle."""
    pairs = (OURS, TORCH), (LAMB, TORCH), (MUON, TORCH), (MUON, TORCH_MUON)
    return {**contest.as_dict(), "ratios": contest.ratios(pairs)}


def _step(config: EncoderConfig, make: Callable[[Model], Optimizer]) -> Callable[[], None]:
    model = Model(config, ("mlm", "sop"))
    optimizer = make(model)
    for group in optimizer.param_groups:
        group["lr"] = 1e-4
    gradients = [torch.full_like(p, 1e-3) for p in model.parameters()]

    def run() -> None:
        for parameter, gradient in zip(model.parameters(), gradients, strict=True):
            parameter.grad = gradient
        optimizer.step()

    return run
