"""The speed column of the ALBERT paper's table 2: how much text a training step gets through, by size."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch

from albertine.bench.inputs import inputs, pretraining
from albertine.bench.step import learn
from albertine.model.config import EncoderConfig
from albertine.model.model import Model
from albertine.model.presets import preset
from albertine.training.optimizers import build_optimizer

PAPER = {
    "bert-base": 4.7,
    "bert-large": 1.0,
    "albert-base-v2": 5.6,
    "albert-large-v2": 1.7,
    "albert-xlarge-v2": 0.6,
    "albert-xxlarge-v2": 0.3,
}
"""Table 2 of the paper, on its TPUs; BERT-large is 1. Its xxlarge row is that of 24 layers, ours has 12."""


@dataclass(frozen=True)
class Size:
    """One size.

    Attributes:
        parameters: of encoder and heads. tokens_per_second: of the fastest step, with AdamW.
    """

    name: str
    parameters: int
    tokens_per_second: float


def measure(*, sequences: int, length: int, rounds: int, device: str = "cpu") -> Iterator[Size]:
    """A training step of every size: MLM and sentence order, forward, backward and AdamW, all sequences full.

    Sizes are measured one after the other, as they do not all fit into memory at once.
    """
    for name in PAPER:
        how = {"sequences": sequences, "length": length, "rounds": rounds}
        yield measure_size(name, preset(name), **how, device=device)


def measure_size(
    name: str, config: EncoderConfig, *, sequences: int, length: int, rounds: int, device: str = "cpu"
) -> Size:
    """As `measure`, of one configuration.

    Args:
        name: of its preset; a BERT has next-sentence prediction in place of sentence order.
    """
    heads = ("mlm", "nsp" if name.startswith("bert") else "sop")
    model = Model(replace(config, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0), heads)
    model = model.to(device).train()
    model.precision = "auto"
    optimizer = build_optimizer(model, "adamw")
    batch, _ = pretraining(inputs(name, [length] * sequences, config.vocab_size))
    batch = batch.to(device)
    best = float("inf")
    for _ in range(rounds + 1):  # the first warms up
        _finish(device)
        begin = time.perf_counter()
        learn(model, batch)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        _finish(device)
        best = min(best, time.perf_counter() - begin)
    return Size(name, sum(p.numel() for p in model.parameters()), sequences * length / best)


def _finish(device: str) -> None:
    if device != "cpu":
        torch.cuda.synchronize()
