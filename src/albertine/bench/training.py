"""How fast a training step is, forward and backward, beside `AlbertForPreTraining` or
`BertForPreTraining` as it comes."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from albertine.bench.inputs import inputs, lengths_of, pretraining
from albertine.bench.interleaved import PATIENCE, Contest, Log, compete
from albertine.bench.peers import pretraining_peer
from albertine.bench.step import learn
from albertine.core.devices import fast_bfloat16
from albertine.core.number_formats import Precision
from albertine.interop.huggingface.folders import save_model
from albertine.model.config import EncoderConfig
from albertine.model.model import Model
from albertine.objectives.batch import PretrainingBatch

SEQUENCES, LONGEST, FILL = 8, 128, 0.57
THEIRS = "transformers {}, padded, dense head"
OURS = "albertine {}, packed"


def measure(
    config: EncoderConfig, *, rounds: int, threads: int, log: Log = lambda text: None
) -> tuple[Contest, dict[str, float]]:
    """Eight sequences of at most 128 tokens, 57 % of the padded batch real, 15 % of the real tokens masked;
    in float32, and in bfloat16 where the processor has it.

    Returns:
        The times, and the loss that each way computed, to check that they compute the same.

    Raises:
        RunError: transformers is not installed, or has no such training step for this encoder.
    """
    ours = Model(config, config.pretraining_heads).train()
    with tempfile.TemporaryDirectory() as scratch:
        save_model(ours, None, scratch)
        theirs = pretraining_peer(Path(scratch))
    given = inputs("step", lengths_of(SEQUENCES, LONGEST, FILL), config.vocab_size)
    batch, padded = pretraining(given, "next_sentence_label" if config.is_bert else "sentence_order_label")
    formats: tuple[Precision, ...] = ("float32", "bfloat16")
    ways: dict[str, Callable[[], float]] = {}
    for precision in formats if fast_bfloat16(torch.device("cpu")) else formats[:1]:
        # Ours first: a time-out is relative to the runs before.
        ways[OURS.format(precision)] = _our_step(ours, batch, precision)
        ways[THEIRS.format(precision)] = _their_step(theirs, padded, precision)
    kept = [OURS.format("float32")]
    contest = compete(ways, rounds, threads, log, patience=PATIENCE, kept=kept)
    return contest, dict(contest.outputs)


def as_dict(contest: Contest, losses: Mapping[str, float]) -> dict[str, Any]:
    """As JSON data, with the ratios if the machine was quiet."""
    pairs = [
        (OURS.format(precision), theirs)
        for precision in ("float32", "bfloat16")
        for theirs in dict.fromkeys((THEIRS.format(precision), THEIRS.format("float32")))
        if OURS.format(precision) in contest.times
    ]
    tree = contest.as_dict()
    for name, loss in losses.items():
        tree["runs"][name]["loss"] = loss
    return {**tree, "ratios": contest.ratios(pairs)}


def _our_step(model: Model, batch: PretrainingBatch, precision: Precision) -> Callable[[], float]:
    def run() -> float:
        model.precision = precision
        return _value(model, learn(model, batch))

    return run


def _their_step(model: nn.Module, batch: Mapping[str, Tensor], precision: Precision) -> Callable[[], float]:
    def run() -> float:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "bfloat16"):
            loss = model(**batch).loss
        loss.backward()
        return _value(model, loss)

    return run


def _value(model: nn.Module, loss: Tensor) -> float:
    model.zero_grad(set_to_none=True)
    return float(loss.detach())
