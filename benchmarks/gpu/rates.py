"""Tokens per second, share of the card's own matrix product, and memory, beside transformers.

A step is forward, backward and optimiser at at most 512 tokens a sequence, masked words and a sentence task,
in bfloat16. transformers computes padded, with `sdpa`, under autocast, its optimiser the fused AdamW. MFU
counts the matrix products of the whole model for real tokens at their real lengths
(`analysis.parameters.training_flops_per_token`), whatever computes them: time spent on padding,
or saved because only wanted rows are computed, shows as a lower or higher MFU.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn

import albertine
from albertine.analysis.parameters import training_flops_per_token
from albertine.bench.inputs import inputs, lengths_of, pretraining
from albertine.bench.step import learn
from albertine.model.backend import cuda_graphs
from albertine.model.config import EncoderConfig
from albertine.model.model import Model
from albertine.model.presets import preset as named
from albertine.model.sharing import SharingPlan
from albertine.objectives.batch import PretrainingBatch
from albertine.training.optimizers import OptimizerKind, build_optimizer
from benchmarks.gpu.findings import Findings
from benchmarks.gpu.place import Place

SEQUENCES = {
    "albert-base-v2": 128,
    "bert-base": 128,
    "albert-xxlarge-v2": 32,
    "albert-base-v1": 128,
    "albert-large-v2": 64,
}
LENGTH, FILLS = 512, (1.0, 0.6)
WIDE = 4096
"""From this width on it is also measured with activations computed again in the backward pass."""
PEER_COMPILED = "albert-base-v2"
"""The peer is compiled for this one alone: all its depths one by one take a minute."""
RATE = 1e-4

Step = Callable[[], Tensor]


@dataclass(frozen=True)
class Work:
    """A batch as both sides take it.

    Attributes:
        flops: matrix products of a step on the real tokens, at the real lengths.
    """

    batch: PretrainingBatch
    padded: dict[str, Tensor]
    fill: float
    flops: float

    @classmethod
    def of(cls, shape: EncoderConfig, sequences: int, length: int, fill: float) -> Work:
        batch, padded = pretraining(inputs("gpu", lengths_of(sequences, length, fill), shape.vocab_size))
        lengths, masked = batch.packed.lengths, len(batch.mlm_positions) / batch.num_tokens
        flops = sum(n * training_flops_per_token(shape, n, masked) for n in lengths)
        return cls(batch, padded, batch.num_tokens / (sequences * length), flops)


def shape_of(preset: str, place: Place) -> EncoderConfig:
    """A preset, or in a rehearsal one of its kind at toy size."""
    shape = named(preset)
    if not place.rehearsal:
        return shape
    shared = shape.plan.num_attention_blocks == 1
    tiny: dict[str, Any] = {"hidden_size": 64, "num_attention_heads": 2, "intermediate_size": 96}
    tiny |= {"vocab_size": 1000, "plan": SharingPlan.shared(2) if shared else SharingPlan.unshared(2)}
    return replace(shape, **(tiny if shared else {**tiny, "embedding_size": 64}))


def ceilings(place: Place, found: Findings) -> None:
    """What the card does at best: bfloat16 matrix products (TFLOP/s) and copies (GB/s)."""
    size = 2**16 if place.rehearsal else 2**30
    big = torch.empty(size, device=place.device, dtype=torch.uint8)
    found.note("bf16_tflops", product_tflops(place))
    found.note("copy_gb_per_s", 2 * size / place.seconds(lambda: big.clone()) / 1e9)


def product_tflops(place: Place) -> float:
    n = 64 if place.rehearsal else 8192
    a = torch.randn(n, n, device=place.device, dtype=torch.bfloat16)
    return float(2 * n**3 / place.seconds(lambda: a @ a) / 1e12)


def training(preset: str, place: Place, found: Findings) -> None:
    """Every way to train one preset, each alone in the card's memory."""
    torch.set_float32_matmul_precision("high")
    shape, ceiling = shape_of(preset, place), product_tflops(place)
    sequences, length = (2, 32) if place.rehearsal else (SEQUENCES[preset], LENGTH)
    works = [Work.of(shape, sequences, length, fill) for fill in FILLS]
    found.note("bf16_tflops", ceiling)
    with saved(shape) as folder:
        for name, build in _ways(preset, shape, folder, place).items():
            held = place.freed()
            found.demand(held < 0.3, f"{name}: {held:.2f} GB of the way before it are still held")
            row: dict[str, Any] = {}
            try:
                _timed(build, works, ceiling, place, row)
            except torch.OutOfMemoryError:
                row["out_of_memory"] = True
            found.note(name, row)
    _same_loss(shape, found)


def _timed(build: Build, works: list[Work], ceiling: float, place: Place, row: dict[str, Any]) -> None:
    """Fill `row` with what one way does; what it needs is free again afterwards."""
    prepare = build()
    for i, work in enumerate(works):
        step = prepare(work)
        if i == 0:
            row["loss"] = float(step())
        place.watch_peak()
        took = place.seconds(step)
        row[f"fill {work.fill:.2f}"] = {
            "tokens_per_second": work.batch.num_tokens / took,
            "mfu": work.flops / took / 1e12 / ceiling,
            "peak_gb": place.peak_gb(),
        }


def _same_loss(shape: EncoderConfig, found: Findings) -> None:
    """Without dropout all ways begin with one loss, or they do not compute the same."""
    rows = {
        name: row["loss"] for name, row in found.values.items() if isinstance(row, dict) and "loss" in row
    }
    if shape.hidden_dropout_prob == 0 and rows:
        first = next(iter(rows.values()))
        for name, loss in rows.items():
            found.demand(
                abs(loss - first) < 0.02 * first, f"{name} begins at {loss:.3f}, others at {first:.3f}"
            )


@contextmanager
def saved(shape: EncoderConfig) -> Iterator[Path]:
    """A model folder with random weights."""
    from albertine.interop.huggingface.folders import save_model

    objective = "sop" if shape.plan.num_attention_blocks == 1 else "nsp"
    with tempfile.TemporaryDirectory() as folder:
        save_model(Model(shape, ("mlm", objective)), None, folder)
        yield Path(folder)


Prepare = Callable[[Work], Step]
Build = Callable[[], Prepare]


def _ways(preset: str, shape: EncoderConfig, folder: Path, place: Place) -> dict[str, Build]:
    def ours(kind: OptimizerKind = "adamw", compiled: bool = False, recompute: bool = False) -> Build:
        return lambda: _ours(folder, place, kind, compiled, recompute)

    ways = {"albertine": ours()}
    if shape.attention_probs_dropout_prob == 0:  # the padded kernel is not compiled
        ways["albertine compiled"] = ours(compiled=True)
    ways["albertine LAMB"] = ours("lamb")
    if named(preset).hidden_size >= WIDE:
        ways["albertine recomputed"] = ours(recompute=True)
    ways["transformers"] = lambda: _theirs(folder, place, False)
    if preset == PEER_COMPILED:
        ways["transformers compiled"] = lambda: _theirs(folder, place, True)
    return ways


def _ours(folder: Path, place: Place, kind: OptimizerKind, compiled: bool, recompute: bool) -> Prepare:
    model: Model = place.ready(albertine.load(folder)).train()
    model.precision = "bfloat16"
    model.encoder.compiled, model.encoder.recompute = compiled, recompute
    optimizer = build_optimizer(model, kind)
    for group in optimizer.param_groups:
        group["lr"] = RATE

    def prepare(work: Work) -> Step:
        batch = work.batch.to(place.device)
        return lambda: _stepped(lambda: learn(model, batch), optimizer)

    return prepare


def _theirs(folder: Path, place: Place, compiled: bool) -> Prepare:
    from transformers import AutoModelForPreTraining

    bert = _model_type(folder) == "bert"
    changes: dict[str, Any] = {} if bert else {"classifier_dropout_prob": 0.0}
    found: Any = AutoModelForPreTraining.from_pretrained(folder, attn_implementation="sdpa", **changes)
    peer: nn.Module = place.ready(found).train()
    optimizer = torch.optim.AdamW(peer.parameters(), lr=RATE, fused=True)
    model = place.compiled(peer) if compiled else peer

    def prepare(work: Work) -> Step:
        given = {name: x.to(place.device) for name, x in work.padded.items()}
        if bert:
            given["next_sentence_label"] = given.pop("sentence_order_label")

        def learned() -> Tensor:
            with torch.autocast(place.device.type, dtype=torch.bfloat16):
                loss: Tensor = model(**given).loss
            loss.backward()  # type: ignore[no-untyped-call]
            return loss.detach()

        return lambda: _stepped(learned, optimizer)

    return prepare


def _model_type(folder: Path) -> str:
    from transformers import AutoConfig

    return str(AutoConfig.from_pretrained(folder).model_type)


def _stepped(learned: Callable[[], Tensor], optimizer: torch.optim.Optimizer) -> Tensor:
    loss = learned()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return loss


def encoding(place: Place, found: Findings) -> None:
    """Milliseconds of 32 texts of at most 128 tokens and of one of 32, ALBERT-base in bfloat16, as a graph
    and without."""
    from transformers import AutoModel

    shape = shape_of("albert-base-v2", place)
    longest = 32 if place.rehearsal else 128
    shapes = {"32 texts": lengths_of(32, longest, 0.48), "1 text": [32]}
    with saved(shape) as folder, torch.inference_mode():
        ours: Model = place.ready(albertine.load(folder)).eval()
        ours.precision = "bfloat16"
        peer = place.ready(AutoModel.from_pretrained(folder, dtype=torch.bfloat16)).eval()
        faster = place.compiled(peer)
        for name, lengths in shapes.items():
            given = inputs("gpu", lengths, shape.vocab_size)
            packed = given.packed.to(place.device)
            padded = {key: x.to(place.device) for key, x in given.padded.items()}
            ways: dict[str, Callable[[], Any]] = {
                "albertine": partial(ours.encoder, packed),
                "transformers": partial(peer, **padded),
                "transformers compiled": partial(faster, **padded),
            }
            for way, run in ways.items():
                found.note(f"{name}, {way}, ms", 1e3 * place.seconds(run))
            with patch.object(cuda_graphs, "MOST_TOKENS", 0):
                found.note(f"{name}, albertine without a graph, ms", 1e3 * place.seconds(ways["albertine"]))
