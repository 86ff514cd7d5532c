"""Ranks that compare a model sharded by FSDP2, or copied by DDP, with the same model whole; each writes what
it found.

python -m tests.model.sharded FOLDER
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from itertools import product
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from albertine.model.model import Model
from albertine.model.sharing import SharingPlan
from albertine.training.launch import free_port
from albertine.training.optimizers import build_optimizer
from tests.model import builders

RANKS = 2
PLANS: dict[str, dict[str, Any]] = {
    "shared": {"plan": SharingPlan.shared(3)},
    "unshared": {"plan": SharingPlan.unshared(3), "head_gate": True, "output": "own"},
}
UNITS = ("blocks and encoder", "blocks and model", "encoder", "model")
PASSES = ("padded", "pretraining")
CASES = list(product(PLANS, UNITS, (False, True), PASSES))
ROWS = torch.tensor([1, 7, 16])
COPIED = ("find_unused_parameters", "static_graph")


def shard(model: Model, units: str, mesh: DeviceMesh) -> None:
    if "blocks" in units:
        for block in (*model.encoder.attention, *model.encoder.feed_forward):
            fully_shard(block, mesh=mesh)
    fully_shard(model if "model" in units else model.encoder, mesh=mesh)
    if "model" in units:
        register_fsdp_forward_method(model, "pretraining_forward")


def outputs(model: Model, which: str, rank: int) -> list[Tensor]:
    batch = builders.packed([5, 9, 3], seed=rank)
    if which == "padded":
        found = model(*builders.padded(batch))
        return [found.last_hidden_state, found.pooler_output]
    logits, sentence = model.pretraining_forward(batch, ROWS)
    assert sentence is not None
    return [logits, sentence]


def loss(found: list[Tensor]) -> Tensor:
    return torch.stack([x.square().mean() for x in found]).sum()


def whole(x: Tensor) -> Tensor:
    """A sharded tensor of all ranks."""
    return x.full_tensor() if isinstance(x, DTensor) else x.detach()


def apart(found: list[Tensor], expected: list[Tensor]) -> float:
    return max(float((a - b).abs().max()) for a, b in zip(found, expected, strict=True))


def compare(case: tuple[str, str, bool, str], rank: int, mesh: DeviceMesh) -> dict[str, Any]:
    """Largest differences between the sharded model and the whole one."""
    plan, units, recompute, which = case
    one, model = (builders.model(**PLANS[plan]).train() for _ in range(2))
    model.encoder.recompute = recompute
    shard(model, units, mesh)
    sharded = sum(isinstance(p, DTensor) for p in model.parameters())

    with torch.no_grad():  # which prepares weights, if any are
        before = apart(outputs(model.eval(), which, rank), outputs(one.eval(), which, rank))
    model.train()
    one.train()
    found = outputs(model, which, rank)
    loss(found).backward()
    forward = apart(found, outputs(one, which, rank))
    (torch.stack([loss(outputs(one, which, r)) for r in range(RANKS)]).mean()).backward()

    names = [name for name, p in one.named_parameters() if p.grad is not None]
    ours, theirs = dict(model.named_parameters()), dict(one.named_parameters())
    backward = 0.0
    for name in names:
        gradient, right = ours[name].grad, theirs[name].grad
        assert gradient is not None and right is not None, name
        if not isinstance(gradient, DTensor):  # gradients that are not sharded are not averaged
            dist.all_reduce(gradient)
            gradient /= RANKS
        backward = max(backward, apart([whole(gradient)], [right]))
        # Adam divides by the size of a gradient: of rounding it would make a step.
        right.copy_(whole(gradient))
    for each in (model, one):
        for part in (each,) if "model" in units else (each.encoder, nn.ModuleList(list(each.children())[1:])):
            optimizer = build_optimizer(part, "adamw")
            for group in optimizer.param_groups:
                group["lr"] = 0.05
            optimizer.step()
    with torch.no_grad():
        after = apart(outputs(model.eval(), which, rank), outputs(one.eval(), which, rank))
        moved = apart(outputs(one, which, rank), [x.detach() for x in found])
    weights = max(apart([whole(p)], [theirs[name].detach()]) for name, p in ours.items())
    return {
        "sharded": sharded,
        "gradients": len(names),
        "moved": moved,
        "before": before,
        "forward": forward,
        "backward": backward,
        "after": after,
        "weights": weights,
    }


def copied(how: str, rank: int) -> float:
    """Largest difference between a gradient under DDP and that of the whole batch, where some parameters have
    none: the largest of the encoder's, and of the model's."""
    found = []
    for part in ("encoder", "model"):
        one, model = builders.model().train(), builders.model().train()
        ours = DistributedDataParallel(model if part == "model" else model.encoder, **{how: True})

        def summed(each: Any, r: int, part: str = part) -> Tensor:
            batch = builders.packed([5, 9, 3], seed=r)
            if part == "encoder":
                return each(batch).last_hidden[:, 0].square().sum()
            return each(*builders.padded(batch)).last_hidden_state[..., 0].square().sum()

        summed(ours, rank).backward()
        right = one if part == "model" else one.encoder
        torch.stack([summed(right, r) for r in range(RANKS)]).mean().backward()
        pairs = zip(ours.parameters(), right.parameters(), strict=True)
        known = [(a.grad, b.grad) for a, b in pairs if b.grad is not None]
        assert len(known) > 16
        found.append(max(float((a - b).abs().max()) for a, b in known))
    return max(found)


def run(rank: int, port: int, folder: Path, cases: list[str]) -> None:
    torch.set_num_threads(1)
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(RANKS)}
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (RANKS,))
    results = {str(case): compare(case, rank, mesh) for case in CASES if str(case) in cases}
    results |= {how: {"apart": copied(how, rank)} for how in COPIED}
    (folder / f"{rank}.json").write_text(json.dumps(results))
    dist.destroy_process_group()


def main() -> None:
    folder = Path(sys.argv[1])
    port = free_port()
    children = []
    for rank in range(RANKS):
        if (child := os.fork()) == 0:
            try:
                run(rank, port, folder, sys.argv[2:])
                os._exit(0)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
        children.append(child)
    if any(os.waitpid(child, 0)[1] for child in children):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
