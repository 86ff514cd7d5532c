"""Does the card compute what the slow reference computes?"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from unittest.mock import patch

import torch
from torch import Tensor

from albertine.bench.inputs import inputs
from albertine.bench.step import learn
from albertine.core.precision import ComputeFormat, Precision
from albertine.core.randomness import isolated_torch_rng
from albertine.model.backend import cuda, cuda_graphs
from albertine.model.backend.base import Backend
from albertine.model.model import Model
from albertine.model.rows import Rows
from albertine.model.visibility import Visibility
from albertine.objectives.batch import PretrainingBatch
from albertine.training.optimizers import OptimizerKind, build_optimizer
from benchmarks.gpu.cases import VOCABULARY, Right, batch_of, cases, gradients_of, model_of, right
from benchmarks.gpu.findings import Findings
from benchmarks.gpu.place import Place

ROWS = {"float32": 1e-4, "bfloat16": 0.05}
"""Bound of the largest difference of a row, relative to the largest value."""
GRADIENTS = {"float32": 1e-3, "bfloat16": 0.1}
"""Bound of the length of the difference of all gradients, relative to the length of the gradients."""


def agreement(place: Place, found: Findings) -> None:
    """Forward passes and gradients in every case, format and way, and whether a step makes the host wait."""
    for case in cases(place.rehearsal):
        model = model_of(case)
        batch, padded = batch_of(case, place.rehearsal)
        wanted = right(model, case, batch, padded)
        place.ready(model)
        mine = batch.to(place.device)
        for precision in case.precisions:
            _compared(place, found, f"{case.name}, {precision}", model, mine, wanted, precision)
        for precision in case.compiled:
            name = f"{case.name}, {precision}, compiled"
            model.encoder.compiled = True
            torch._dynamo.reset()
            before = _compiled_functions()
            _compared(place, found, name, model, mine, wanted, precision)
            functions = _compiled_functions() - before
            found.note(f"{name}: functions compiled", functions)
            found.demand(functions > 0, f"{name}: nothing was compiled, so nothing was compared")
            model.encoder.compiled = False


def generators(place: Place, found: Findings) -> None:
    """Draws within `isolated_torch_rng` leave the generators as they were, those of a GPU too
    on which nothing was computed before."""
    for before in ("an untouched device", "a device in use"):
        torch.manual_seed(1)
        with isolated_torch_rng(place.device):
            torch.rand(4, device=place.device), torch.rand(4)
        drawn = torch.rand(4, device=place.device), torch.rand(4)
        torch.manual_seed(1)
        wanted = torch.rand(4, device=place.device), torch.rand(4)
        same = [torch.equal(a, b) for a, b in zip(drawn, wanted, strict=True)]
        found.note(f"{before}: its generator and the host's are kept", same)
        found.demand(all(same), f"{before}: a generator went on")


def _compared(
    place: Place,
    found: Findings,
    name: str,
    model: Model,
    batch: PretrainingBatch,
    wanted: Right,
    precision: Precision,
) -> None:
    model.precision = precision
    scale = wanted.rows.abs().max()
    # In training and with gradients: without them nothing is compiled, and other kernels are taken.
    rows = model.train().encoder(batch.packed).last_hidden
    found.bounded(f"{name}: rows", _largest(rows, wanted.rows) / float(scale), ROWS[precision])
    with torch.inference_mode():
        rows = model.eval().encoder(batch.packed).last_hidden
    found.bounded(f"{name}: rows of inference", _largest(rows, wanted.rows) / float(scale), ROWS[precision])
    model.zero_grad(set_to_none=True)
    learn(model.train(), batch)
    found.bounded(f"{name}: gradients", distance(gradients_of(model), wanted.gradients), GRADIENTS[precision])
    model.zero_grad(set_to_none=True)
    try:
        with place.never_waiting():
            learn(model, batch)
    except RuntimeError as error:
        found.demand(False, f"{name}: a step waits for the device ({str(error).splitlines()[0]})")
    model.zero_grad(set_to_none=True)


def _largest(found: Tensor, wanted: Tensor) -> float:
    return float((found.detach().float().cpu() - wanted).abs().max())


def distance(found: Mapping[str, Tensor | None], wanted: Mapping[str, Tensor | None]) -> float:
    """Length of the difference of all tensors together, relative to the length of `wanted`; infinite where
    one is missing."""
    if any((found[name] is None) != (tensor is None) for name, tensor in wanted.items()):
        return float("inf")
    pairs = [(found[name], tensor) for name, tensor in wanted.items() if tensor is not None]
    distance = sum(float((a.double() - b.double()).square().sum()) for a, b in pairs if a is not None)
    return float((distance / max(sum(float(b.double().square().sum()) for _, b in pairs), 1e-30)) ** 0.5)


def _compiled_functions() -> int:
    from torch._dynamo.utils import counters

    return int(counters["stats"]["unique_graphs"])


def blindness(place: Place, found: Findings) -> None:
    """The padded kernel with rows that see nothing (they are zeros, and their gradients finite), and with
    dropout (its mean is the result without)."""
    lengths, heads, size = (5, 1, 16), 2, 8
    total = sum(lengths)
    generator = torch.Generator().manual_seed(0)
    qkv = [torch.randn(total, heads, size, generator=generator) for _ in range(3)]
    weights = torch.randn(total, heads, size, generator=generator)
    until = torch.arange(total) % 7  # every seventh row sees nothing, others more and more
    rows = _rows(lengths, Visibility(torch.arange(total) % 5, until))
    seeing = _attended(Backend(ComputeFormat(torch.float32)), qkv, weights, rows)
    found.demand(bool((seeing["out"][until == 0] == 0).all()), "the plain backend lets a blind row see")
    card = cuda.Cuda(ComputeFormat(torch.float32))
    for dtype in (torch.float32, torch.bfloat16):
        moved = [x.to(place.device, dtype) for x in qkv]
        name = str(dtype).removeprefix("torch.")
        there = _attended(card, moved, weights.to(place.device, dtype), _on(rows, place))
        found.bounded(
            f"rows that see nothing, {name}",
            distance(there, seeing),
            1e-4 if dtype == torch.float32 else 0.05,
        )
    whole = _on(_rows(lengths, None), place)
    q, k, v = (x.to(place.device) for x in qkv)
    exact = cuda.attend_padded(q, k, v, whole, whole, 0.0)
    torch.manual_seed(0)
    draws = torch.stack([cuda.attend_padded(q, k, v, whole, whole, 0.1) for _ in range(500)])
    found.bounded("dropout 0.1 in the mean", float((draws.mean(0) - exact).norm() / exact.norm()), 0.05)
    found.demand(float(draws.std(0).mean()) > 0.01, "dropout in attention drops nothing")


def _rows(lengths: tuple[int, ...], visible: Visibility | None) -> Rows:
    offsets = torch.tensor((0, *lengths)).cumsum(0).to(torch.int32)
    zeros = torch.zeros(sum(lengths), dtype=torch.long)
    return Rows(offsets, lengths, max(lengths), zeros, zeros, visible)


def _on(rows: Rows, place: Place) -> Rows:
    visible = rows.visible
    return Rows(
        rows.cu_seqlens.to(place.device),
        rows.lengths,
        rows.longest,
        rows.positions.to(place.device),
        rows.token_types.to(place.device),
        None if visible is None else Visibility(*(x.to(place.device) for x in visible)),
    )


def _attended(backend: Backend, qkv: list[Tensor], weights: Tensor, rows: Rows) -> dict[str, Tensor]:
    """Output and gradients of q, k and v, in float32 on the processor."""
    q, k, v = (x.clone().requires_grad_() for x in qkv)
    out = backend.attend(q, k, v, rows, rows, 0.0)
    found = torch.autograd.grad((out * weights).sum(), (q, k, v))
    every = zip(("out", "q", "k", "v"), (out.detach(), *found), strict=True)
    return {name: x.float().cpu() for name, x in every}


def replays(place: Place, found: Findings) -> None:
    """Passes of inference as graphs beside the same without: batches of many sizes, some rows of them, and
    weights that are changed between."""
    model = place.ready(model_of(cases(place.rehearsal)[0])).eval()
    model.precision = "bfloat16"
    generator = torch.Generator().manual_seed(0)
    distances = {"all rows": 0.0, "some rows": 0.0, "other weights": 0.0}
    with torch.inference_mode():
        for i in range(60):
            lengths = torch.randint(1, 30, (1 + i % 7,), generator=generator).tolist()
            packed = inputs("gpu", lengths, VOCABULARY).packed.to(place.device)
            rows = torch.arange(packed.num_tokens, device=place.device)[::3]
            if i == 40:
                for parameter in model.parameters():
                    parameter.mul_(1.01)
            if i == 50:  # all graphs read memory that is freed now
                with torch.inference_mode(False):
                    for parameter in model.parameters():
                        parameter.data = parameter.data.clone()
            ways = [(None, "all rows" if i < 40 else "other weights"), (rows, "some rows")]
            for wanted, name in ways:
                states = model.encoder(packed, rows=wanted).last_hidden
                with patch.object(cuda_graphs, "MOST_TOKENS", 0):
                    right = model.encoder(packed, rows=wanted).last_hidden
                distances[name] = max(
                    distances[name], float((states - right).float().abs().max() / right.abs().max())
                )
    for name, value in distances.items():
        found.bounded(name, value, ROWS["bfloat16"])
    graphs = sum(len(kept.graphs.known) for kept in cuda_graphs._replays.values())
    found.note("graphs", graphs)
    failed = any(kept.graphs.failed for kept in cuda_graphs._replays.values())
    found.demand(not failed, "a pass could not be recorded, after others had been forgotten or before")
    found.demand(graphs > 0 or place.rehearsal, "no graph was recorded, so none was compared")


def optimizers(place: Place, found: Findings) -> None:
    """Three steps of LAMB and AdamW with the same gradients, here and on the card."""
    kinds: tuple[OptimizerKind, ...] = ("lamb", "adamw")
    model = Model(cases(True)[0].config, ("mlm", "sop"))
    for kind in kinds:
        pair = [copy.deepcopy(model), place.ready(copy.deepcopy(model))]
        start = {name: p.detach().clone() for name, p in model.named_parameters()}
        for one in pair:
            optimizer = build_optimizer(one, kind)
            generator = torch.Generator().manual_seed(0)
            for _ in range(3):
                for p in one.parameters():
                    p.grad = torch.randn(p.shape, generator=generator).to(p.device)
                for group in optimizer.param_groups:
                    group["lr"] = 0.01
                optimizer.step()
        here, there = ({n: p.detach().cpu() - start[n] for n, p in one.named_parameters()} for one in pair)
        found.bounded(f"three steps of {kind}", distance(there, here), 1e-4)
        found.demand(any(bool(x.any()) for x in there.values()), f"{kind} changed nothing")
