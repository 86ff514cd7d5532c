"""Passes of pretraining recorded as CUDA graphs (`albertine.pretraining.cuda_graphs`) beside the same passes
whose kernels are started one by one: gradients, and milliseconds of a step."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from torch import Tensor

from albertine.bench.inputs import inputs, lengths_of, pretraining
from albertine.model.config import EncoderConfig
from albertine.model.model import Model
from albertine.model.presets import preset
from albertine.model.sharing import SharingPlan
from albertine.objectives.batch import PretrainingBatch
from albertine.objectives.losses import pretraining_losses
from albertine.pretraining.cuda_graphs import CudaGraphRunner
from albertine.training.distributed import World
from albertine.training.optimizers import build_optimizer
from albertine.training.step import MicroBatchRunner, StepReport, train_step
from benchmarks.gpu.checks import distance
from benchmarks.gpu.findings import Findings
from benchmarks.gpu.place import Place
from benchmarks.gpu.rates import RATE, shape_of

SMALL = {"hidden_size": 320, "num_attention_heads": 5, "intermediate_size": 1280}
SHAPES = {
    "albertine-mini, 32 x 128": (32, 128),
    "albertine-small, 128 x 256": (128, 256),
    "albert-base-v2, 8 x 128": (8, 128),
    "albert-base-v2, 32 x 512": (32, 512),
}
FILLS = (0.79, 0.8, 0.81)
BOUND = 0.05
"""Of the difference of two gradients in bfloat16, relative to their length."""


def _shape(name: str, place: Place) -> EncoderConfig:
    if name == "albertine-small" and not place.rehearsal:
        found = preset("albertine-mini")
        return replace(found, **SMALL, plan=SharingPlan.unshared(6))
    return shape_of(name.replace("small", "mini"), place)


def _batches(shape: EncoderConfig, sequences: int, longest: int) -> list[PretrainingBatch]:
    """Of lengths that differ a little, as those of a run do."""
    given = [inputs("gpu", lengths_of(sequences, longest, fill), shape.vocab_size) for fill in FILLS]
    return [pretraining(one)[0] for one in given]


class _Training:
    def __init__(self, model: Model, place: Place, record: bool) -> None:
        self.model, self._world = place.ready(copy.deepcopy(model)).train(), World(device=place.device)
        self.passes: MicroBatchRunner | None = CudaGraphRunner(self.model, place.device) if record else None
        self._optimizer = build_optimizer(self.model, "muon", precision="bfloat16")

    def step(self, batch: PretrainingBatch, rate: float = RATE) -> StepReport:
        return train_step(
            self.model,
            [batch],
            pretraining_losses,
            self._optimizer,
            lr=rate,
            world=self._world,
            runner=self.passes,
        )

    def gradients(self, batch: PretrainingBatch) -> dict[str, Tensor | None]:
        """Of one pass, by a step that leads nowhere."""
        found: dict[str, Tensor | None] = {}
        hook = self._optimizer.register_step_pre_hook(lambda *_: found.update(_gradients(self.model)))
        self.step(batch, rate=0.0)
        hook.remove()
        return found


def _gradients(model: Model) -> dict[str, Tensor | None]:
    pairs = model.named_parameters()
    return {name: None if p.grad is None else p.grad.detach().float().cpu().clone() for name, p in pairs}


def graphs(place: Place, found: Findings) -> None:
    """The graph must find the gradients that the plain pass finds, of every batch, and is timed with Muon."""
    for name, (sequences, longest) in SHAPES.items():
        if place.rehearsal:
            sequences, longest = 3, 16
        shape = _shape(name.split(",")[0], place)
        model = Model(shape, ("mlm", "sop"))
        model.precision = "bfloat16"
        batches = _batches(shape, sequences, longest)
        for compiled in (False, True):
            way = f"{name}, compiled" if compiled else name
            model.encoder.compiled = compiled and not place.rehearsal
            plain, whole = _Training(model, place, record=False), _Training(model, place, record=True)
            _together(found, way, plain, whole, batches)
            for training, unit in ((plain, "ms"), (whole, "recorded, ms")):
                found.note(f"{way}: {unit}", 1e3 * place.seconds(partial(training.step, batches[0])))
            del plain, whole
            place.freed()


def _together(
    found: Findings, name: str, plain: _Training, whole: _Training, batches: Sequence[PretrainingBatch]
) -> None:
    apart = 0.0
    for batch in (*batches, *batches, *batches, *batches):
        apart = max(apart, distance(whole.gradients(batch), plain.gradients(batch)))
    found.bounded(f"{name}: gradients", apart, BOUND)
    assert isinstance(whole.passes, CudaGraphRunner)
    found.note(f"{name}: sizes recorded and kept", len(whole.passes.graphs.known))
    found.demand(not whole.passes.graphs.failed, f"{name}: a pass could not be recorded")
