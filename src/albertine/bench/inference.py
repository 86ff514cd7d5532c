"""How fast texts are encoded, beside the peers."""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from albertine.bench.inputs import Inputs, inputs, lengths_of
from albertine.bench.interleaved import PATIENCE, Contest, Log, compete, in_a_line
from albertine.bench.peers import Batch, Run, peers
from albertine.core.devices import fast_bfloat16
from albertine.core.number_formats import InferencePrecision
from albertine.interop.huggingface.folders import save_model
from albertine.model.config import EncoderConfig
from albertine.model.model import Model

SHAPES = {"varied": (32, 128, 0.48), "dense": (8, 128, 1.0), "single": (1, 32, 1.0)}
"""Sequences, the longest of them in tokens, and the share of the padded batch that is real."""

OURS = "albertine"
AGAINST = ("transformers float32", "ONNX Runtime float32", "OpenVINO bfloat16")
"""The peers of our ratios, where they take part."""


@dataclass(frozen=True)
class Measured:
    """One batch, encoded by everyone.

    Attributes:
        cosines: of every way the least cosine of a token's vector with that of our float32.
        left_out: peers that took no part or were stopped, and why.
    """

    inputs: Inputs
    contest: Contest
    cosines: dict[str, float]
    left_out: dict[str, str]

    def as_dict(self) -> dict[str, Any]:
        """As JSON data."""
        times = self.contest.times
        ours = [name for name in times if name.startswith(OURS)]
        tree = self.contest.as_dict()
        for name, row in tree["runs"].items():
            row["tokens_per_second"] = self.inputs.tokens / times[name].median
            row["least_cosine"] = self.cosines[name]
        return {
            "sequences": self.inputs.packed.num_sequences,
            "longest": self.inputs.packed.max_length,
            "fill": self.inputs.fill,
            **tree,
            "ratios": self.contest.ratios((a, b) for b in AGAINST if b in times for a in ours),
            "left_out": self.left_out,
        }


def measure(
    config: EncoderConfig,
    shapes: Sequence[str],
    *,
    rounds: int,
    threads: int,
    compiled: bool = False,
    log: Log = lambda text: None,
) -> list[Measured]:
    """Encode the same batches with the same random weights, everyone in turn.

    Args:
        shapes: of `SHAPES`. compiled: also the peers that take minutes to prepare.
    """
    model = Model(config, ("pooler",)).eval()
    batches = [inputs(name, lengths_of(*SHAPES[name]), config.vocab_size) for name in shapes]
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        save_model(model, None, folder)
        runs, left_out = _built(folder, threads, [b.padded for b in batches], compiled, log)
    # A model keeps its weights laid out for one format: each has its own, as in use.
    models = {precision: copy.deepcopy(model) for precision in _formats()}
    return [_one(models, given, runs, left_out, rounds, threads, log) for given in batches]


def _built(
    folder: Path, threads: int, batches: list[Batch], compiled: bool, log: Log
) -> tuple[dict[str, Run], dict[str, str]]:
    runs: dict[str, Run] = {}
    left_out: dict[str, str] = {}
    for peer in peers():
        if peer.slow and not compiled:
            continue
        log(f"preparing {peer.name}")
        try:
            runs[peer.name] = peer.build(folder, threads, batches)
        except ImportError as error:
            left_out[peer.name] = f"not installed: {error.name}"
        except Exception as error:  # a peer's own failure must not keep the others from being measured
            left_out[peer.name] = in_a_line(error)
    return runs, left_out


def _one(
    models: Mapping[InferencePrecision, Model],
    given: Inputs,
    runs: dict[str, Run],
    left_out: dict[str, str],
    rounds: int,
    threads: int,
    log: Log,
) -> Measured:
    ways: dict[str, Callable[[], Tensor]] = {
        f"{OURS} {precision}": _ours(model, given, precision) for precision, model in models.items()
    }
    for name, run in runs.items():
        ways[name] = lambda run=run: run(given.padded)  # type: ignore[misc]
    right_way = f"{OURS} float32"
    contest = compete(ways, rounds, threads, log, patience=PATIENCE, kept=[right_way])
    real = given.padded["attention_mask"].bool()
    vectors = {name: (x if x.dim() == 2 else x[real]).float() for name, x in contest.outputs.items()}
    right = vectors[right_way]
    cosines = {name: float(F.cosine_similarity(x, right).min()) for name, x in vectors.items()}
    return Measured(given, contest, cosines, {**left_out, **contest.stopped})


def _formats() -> tuple[InferencePrecision, ...]:
    half: tuple[InferencePrecision, ...] = ("bfloat16",) if fast_bfloat16(torch.device("cpu")) else ()
    return ("float32", *half, "int8")


def _ours(model: Model, given: Inputs, precision: InferencePrecision) -> Callable[[], Tensor]:
    model.precision = precision

    def run() -> Tensor:
        with torch.inference_mode():
            hidden: Tensor = model.encoder(given.packed).last_hidden
            return hidden

    return run
