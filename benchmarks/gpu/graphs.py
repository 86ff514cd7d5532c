"""A training step of a batch whose shape repeats, as one CUDA graph and without."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from albertine.bench.inputs import inputs, lengths_of, pretraining
from albertine.bench.step import learn
from albertine.model.model import Model
from albertine.objectives.batch import PretrainingBatch
from benchmarks.gpu.findings import Findings
from benchmarks.gpu.place import Place, captured
from benchmarks.gpu.rates import RATE, shape_of

SHAPES = {"8 x 128": (8, 128), "32 x 512": (32, 512)}


@dataclass
class _Training:
    """A model that learns one batch over and over; its loss lies in one place, as a graph wants it."""

    model: Model
    batch: PretrainingBatch
    loss: Tensor

    @classmethod
    def of(cls, model: Model, batch: PretrainingBatch, place: Place) -> _Training:
        return cls(place.ready(copy.deepcopy(model)).train(), batch, torch.zeros((), device=place.device))

    def step(self) -> Callable[[], None]:
        """Forward, backward and AdamW, without any allocation that outlives it but the gradients."""
        optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=RATE, fused=True, capturable=self.model.device.type == "cuda"
        )

        def run() -> None:
            optimizer.zero_grad(set_to_none=True)
            self.loss.copy_(learn(self.model, self.batch))
            optimizer.step()

        return run


def graphs(place: Place, found: Findings) -> None:
    """Milliseconds of a step of ALBERT-base; the graph must learn what the plain steps learn."""
    torch.set_float32_matmul_precision("high")
    shape = shape_of("albert-base-v2", place)
    model = Model(shape, ("mlm", "sop"))
    model.precision = "bfloat16"
    found.note("captured", not place.rehearsal)
    for name, (sequences, longest) in SHAPES.items():
        if place.rehearsal:
            sequences, longest = 2, 16
        given = inputs("gpu", lengths_of(sequences, longest, 0.8), shape.vocab_size)
        batch = pretraining(given)[0].to(place.device)
        plain, whole = _Training.of(model, batch, place), _Training.of(model, batch, place)
        run = plain.step()
        replay = captured(place, found, name, whole.step())
        if replay is not None:
            _together(place, found, name, (plain, run), (whole, replay))
            found.note(f"{name}, CUDA graph, ms", 1e3 * place.seconds(replay))
        found.note(f"{name}, ms", 1e3 * place.seconds(run))


Way = tuple[_Training, Callable[[], object]]


def _together(place: Place, found: Findings, name: str, plain: Way, whole: Way) -> None:
    # Capturing made three steps to warm up and then none; the plain model makes as many.
    for _ in range(0 if place.rehearsal else 3):
        plain[1]()
    for step in range(5):
        losses = []
        for training, run in (plain, whole):
            run()
            place.wait()
            losses.append(float(training.loss))
        here, there = losses
        found.demand(
            abs(here - there) < 0.02 * here, f"{name}: step {step} of the graph is {there}, not {here}"
        )
