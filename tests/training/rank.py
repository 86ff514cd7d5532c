"""One rank of the toy job under torchrun's environment; writes what it ended with.

python -m tests.training.rank CASE FOLDER
"""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from albertine.errors import AlbertineError
from albertine.training.average import Average
from albertine.training.checkpoints import model_tensors
from albertine.training.distributed import World, start, stop
from albertine.training.job import Branching, Job
from albertine.training.launch import free_port
from albertine.training.loop import train
from albertine.training.optimizers import OptimizerKind, build_optimizer
from albertine.training.progress import Reporter
from albertine.training.run_folder import RunFolder
from tests.training.toy import WithoutPairs, toy, toy_batches, toy_loss, toy_settings


def without_pairs(dealt: Iterable[Any], world: World) -> Iterator[Any]:
    """Every second micro-batch of the global batch has no pairs: those of rank 1 where there are two."""
    for cursor, batches in dealt:
        mine = [i % 2 == 1 if world.size == 1 else world.rank == 1 for i in range(len(batches))]
        yield (
            cursor,
            [WithoutPairs(b.ids, b.labels) if m else b for b, m in zip(batches, mine, strict=True)],
        )


def one_rank(case: str, path: Path) -> None:
    world = start("cpu")
    kind: OptimizerKind = "muon" if case.startswith("muon") else "lamb"
    model = toy(kind, dropout=0.5 if case == "dropout" else 0.0)
    dropped: list[list[bool]] = []
    model.dropout.register_forward_hook(lambda _, __, out: dropped.append((out == 0).flatten().tolist()))
    if world.rank == 1:
        with torch.no_grad():  # ranks that begin apart are brought together
            model.parity.weight.add_(1.0)
    calls = [0]

    def loss_fn(model: Any, batch: Any) -> Any:
        calls[0] += 1
        parts = {name: part for name, part in toy_loss(model, batch).items() if name in batch.counts}
        if case == "poison" and world.rank == 1 and calls[0] == 9:
            parts["mlm"] = parts["mlm"]._replace(loss_sum=parts["mlm"].loss_sum * float("nan"))
        if case == "signal" and world.rank == 1 and calls[0] == 9:
            os.kill(os.getpid(), signal.SIGTERM)
        # Every second micro-batch of the global batch: those of rank 1 where there are two.
        if case.startswith("alone") and (calls[0] % 2 == 0 if world.size == 1 else world.rank == 1):
            guess = model.spare(model.embedding(batch.ids))
            more = torch.nn.functional.cross_entropy(guess, batch.ids % 3, reduction="sum")
            parts["mlm"] = parts["mlm"]._replace(loss_sum=parts["mlm"].loss_sum + more)
        return parts

    def evaluate(poll: Callable[[], None]) -> dict[str, float]:
        here = torch.tensor([float(world.rank + 1)], dtype=torch.float64)
        return {"mlm_loss": float(world.add(here))}

    def batches(cursor: Mapping[str, Any] | None) -> Any:
        # The same micro-batches in all, whatever the number of ranks.
        dealt = toy_batches(cursor, micro=4 // world.size, rank=world.rank, world=world.size)
        return without_pairs(dealt, world) if case.startswith("alone") else dealt

    job = Job(
        model=model,
        optimizer=build_optimizer(model, kind, precision="float32", world=world),
        batches=batches,
        loss_fn=loss_fn,
        settings=toy_settings(steps=4 if case == "dropout" else 20, clip=0.5),
        folder=RunFolder(path / "run", main=world.main),
        evaluate=evaluate,
        world=world,
        reporter=Reporter(quiet=True),
        branching=Branching(()),
        parts=("mlm", "sentence"),
        average=Average(model, 0.9) if kind == "muon" else None,
    )
    two = path.parent / "two" / "run" / "checkpoints" / "step-15"
    try:
        with job.folder:
            outcome = train(job, branch_from=two if case.startswith("branch") else None)
        report = {"step": outcome.step, "exit_code": outcome.exit_code, "scores": dict(outcome.scores)}
    except AlbertineError as error:
        report = {"error": str(error)}
    averages = {} if job.average is None else {f"average/{k}": v for k, v in job.average.tensors.items()}
    save_file(
        {k: v.contiguous() for k, v in (model_tensors(model) | averages).items()},
        path / f"{case}-{world.rank}.safetensors",
    )
    stop(world)
    names = [name.read_text() for name in Path("/proc/self/task").glob("*/comm")]  # on Linux
    report["dropped"] = dropped[: 2 * (4 // world.size)]  # in the first step, twice a micro-batch
    report["threads of gloo"] = sum("gloo" in name for name in names)
    (path / f"{case}-{world.rank}.json").write_text(json.dumps(report))


def launch(case: str, size: int, path: Path) -> None:
    path.mkdir(exist_ok=True)
    port = free_port()
    children = []
    for rank in range(size):
        if (child := os.fork()) == 0:
            here = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": size, "MASTER_PORT": port}
            os.environ |= {"MASTER_ADDR": "127.0.0.1"} | {key: str(value) for key, value in here.items()}
            try:
                one_rank(case, path)
                os._exit(0)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
        children.append(child)
    if codes := [code for child in children if (code := os.waitpid(child, 0)[1])]:
        raise SystemExit(f"{case}: {codes}")


def main() -> None:
    torch.set_num_threads(1)
    for job in sys.argv[1:]:
        case, size, path = job.split(":")
        launch(case, int(size), Path(path))


if __name__ == "__main__":
    main()
