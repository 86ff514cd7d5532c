"""The processes of a run: who I am, and sums over all of us.

Albertine runs under `torchrun` and needs three things of it: to add tensors over all ranks, to decide
together, and to know who writes files. With one process every function here returns its argument, so
nothing else asks how many there are.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from albertine.errors import RunError, SettingsError
from albertine.training.launch import GONE, PartnerEnded, meet

if TYPE_CHECKING:
    from torch.distributed.distributed_c10d import Store
from contextlib import contextmanager

from albertine.core.devices import on_cpu
from albertine.core.randomness import isolated_torch_rng

PATIENCE = timedelta(minutes=30)
"""How long a process waits for the others before it gives up."""
POLL = 0.02
"""Seconds between two looks whether the others are there."""

LOCAL_RANKS = ("LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK")
"""Variables in which torchrun, Slurm and Open MPI tell a process its number on its machine."""


@dataclass(frozen=True)
class World:
    """One process among `size`.

    Attributes:
        rank, size: this process and how many there are.
        device: where this process computes.
    """

    rank: int = 0
    size: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    @property
    def main(self) -> bool:
        """Whether this process writes the files and speaks to the user."""
        return self.rank == 0

    def add(self, tensor: Tensor) -> Tensor:
        """The sum over all ranks, in place; every rank gets the same bits."""
        if self.size > 1:
            with _partners():
                torch.distributed.all_reduce(tensor)
        return tensor

    def add_numbers(self, numbers: Sequence[float]) -> list[float]:
        """Sums over all ranks of a few host numbers, exact for integers below 2**53; never waits for an
        accelerator.
        """
        if self.size == 1:
            return list(numbers)
        total: list[float] = self.add(torch.tensor(numbers, dtype=torch.float64)).tolist()
        return total

    def any(self, flag: bool) -> bool:
        """Whether any rank says yes."""
        return self.add_numbers([float(flag)])[0] > 0

    def busy(self) -> None:
        """The main process, which does something alone, says so to those that wait for it in `together`: they
        would give up (`PATIENCE`)."""
        self.any(True)

    def together(self) -> None:
        """Wait here until all processes are here."""
        while self.any(False):
            pass

    def from_main(self, number: float) -> float:
        """The main process' number, on every rank."""
        return self.add_numbers([number if self.main else 0.0])[0]

    def share_weights(self, model: nn.Module) -> None:
        """Give every rank the main process' parameters and buffers."""
        if self.size == 1:
            return
        with torch.no_grad(), _partners():
            for tensor in [*model.parameters(), *model.buffers()]:
                torch.distributed.broadcast(tensor, src=0)

    def add_gradients(self, parameters: Sequence[nn.Parameter]) -> None:
        """Sum gradients over all ranks by one flat all-reduce; a parameter without a gradient here counts
        as zero.

        A shared parameter has one gradient however many depths use it, so a sum after the backward pass
        moves exactly what is needed. DistributedDataParallel would send per micro-batch and divide by ranks
        that hold unequal numbers of predictions.
        """
        if self.size == 1:
            return
        grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
        flat = self.add(torch.cat([g.reshape(-1) for g in grads]))
        torch._foreach_copy_(
            grads,
            [f.view_as(g) for f, g in zip(torch.split(flat, [g.numel() for g in grads]), grads, strict=True)],
        )
        for parameter, grad in zip(parameters, grads, strict=True):
            parameter.grad = grad


def start(device: torch.device | str | None = None) -> World:
    """Join the processes that `torchrun` started, or stand alone where it did not.

    Args:
        device: default: this process' GPU where there is one, else the CPU.

    Raises:
        RunError: torchrun's environment is incomplete, or this machine has no such GPU.
        PartnerEnded: another process has ended.
    """
    told = next((os.environ[name] for name in LOCAL_RANKS if name in os.environ), None)
    local = int(told or "0")
    place = torch.device(device) if device is not None else _default_device(local)
    if place.type == "cuda":
        place = _own_card(place, local)
        torch.cuda.set_device(place)
    if "WORLD_SIZE" not in os.environ or int(os.environ["WORLD_SIZE"]) == 1:
        return World(device=place)
    wanted = ["RANK", "MASTER_ADDR", "MASTER_PORT"]
    if device is None and place.type == "cuda" and torch.cuda.device_count() > 1 and told is None:
        wanted.append("LOCAL_RANK")  # else every process would take the first card
    if missing := [name for name in wanted if name not in os.environ]:
        alone = ", or with one process a machine set LOCAL_RANK=0" if missing == ["LOCAL_RANK"] else ""
        raise RunError(
            f"WORLD_SIZE is set and {', '.join(missing)} is not", remedy=f"Start the run with torchrun{alone}"
        )
    # Its functions take the group of the moment of the import as their default: imported later, as torch's
    # optimizers do on the way, they keep gloo's threads beyond `stop`, and a thread that lets go of a tensor
    # while the interpreter shuts down aborts the process.
    importlib.import_module("torch.distributed.nn")
    # Both backends: gradients go by NCCL, and the few host numbers of a step by gloo, so that they cost no
    # device wait.
    backend = "cpu:gloo,cuda:nccl" if place.type == "cuda" else "gloo"
    # NCCL is told its card; it would guess it at the first collective, and hang where it guesses wrong.
    card = place if place.type == "cuda" else None
    meet()
    while _abandoned:
        _abandoned.pop()
        torch.distributed.destroy_process_group()
    with _partners():
        torch.distributed.init_process_group(backend, timeout=PATIENCE, device_id=card, **_meeting())
    return World(torch.distributed.get_rank(), torch.distributed.get_world_size(), place)


def _meeting() -> dict[str, Any]:
    """Where the processes of this run meet, as `init_process_group` takes it; nothing where the environment
    says enough."""
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        return {}
    from torch.distributed.rendezvous import rendezvous

    store, rank, size = next(rendezvous("env://", timeout=PATIENCE))
    return {"store": _of_this_start(store, rank, size), "rank": rank, "world_size": size}


def _of_this_start(store: Store, rank: int, size: int) -> Store:
    """The part of a store that only the processes started together with this one use.

    Processes that torchrun starts again (`--max-restarts`) get the store of those before them, in which the
    addresses of these still lie: they would call processes that are gone, and wait for each other. Nothing
    in the environment of torchrun is different from before on every machine, so that the first process
    chooses a name. Every other process reads it under a random key, which no process had before.

    Raises:
        RunError: a process is not there after `PATIENCE`.
    """
    from torch.distributed.distributed_c10d import PrefixStore

    deadline = time.monotonic() + PATIENCE.total_seconds()

    def check_time(what: str) -> None:
        if time.monotonic() > deadline:
            raise RunError(
                f"{what} within {PATIENCE.total_seconds() / 60:g} minutes",
                remedy="Look at the output of the other processes, end all of them and start the run again; "
                "it continues from its last checkpoint",
            )

    mine, prefix = uuid.uuid4().hex, "albertine"
    if rank == 0:
        absent = set(range(1, size))
        while absent:
            check_time(f"of {size} processes of the run {len(absent)} did not start")
            for other in sorted(absent):
                if store.check([f"{prefix}/{mine}/{other}"]):
                    absent.remove(other)
                elif store.check([f"{prefix}/here/{other}"]):  # perhaps left by one that is gone
                    name = store.get(f"{prefix}/here/{other}").decode()
                    store.set(f"{prefix}/start/{name}", mine)
            time.sleep(POLL)
        return PrefixStore(mine, store)
    store.set(f"{prefix}/here/{rank}", mine)
    while not store.check([f"{prefix}/start/{mine}"]):
        check_time("the first process of the run did not answer")
        time.sleep(POLL)  # where a signal is heard
    first = store.get(f"{prefix}/start/{mine}").decode()
    store.set(f"{prefix}/{first}/{rank}", "")
    return PrefixStore(first, store)


@contextlib.contextmanager
def _partners() -> Iterator[None]:
    """Turn errors of gloo and of the store that come from another process into PartnerEnded."""
    try:
        yield
    except RuntimeError as error:
        if GONE.search(str(error)) is None:
            raise
        remedy = "See its own output for the cause. The same command goes on from the last checkpoint"
        raise PartnerEnded(
            "another process of the run has ended or does not answer", remedy=remedy
        ) from error


_abandoned: list[World] = []
"""Whom `stop` did not wait for; a program that goes on leaves them before it joins others."""


def check_cards(count: int) -> None:
    """Refuse to start more processes on this machine than it has GPUs, where it has any.

    Raises:
        SettingsError: it says how many there are.
    """
    if torch.cuda.is_available() and count > (cards := torch.cuda.device_count()):
        raise SettingsError(
            f"{count} processes need a GPU each, and torch sees {cards} here",
            where="--processes",
            remedy=f"Start at most {cards}, or hide the GPUs (CUDA_VISIBLE_DEVICES=) to use the processor",
        )


def is_main() -> bool:
    """Whether this process is the one that writes, also before `start` and after `stop`."""
    return os.environ.get("RANK", "0") == "0"


def stop(world: World, *, broken: bool = False) -> None:
    """Leave the processes joined by `start`.

    Args:
        broken: an error ends this process, perhaps alone. NCCL would wait for the others, which may wait for
            this one, and the message would never be said; the end of the process leaves without waiting.
    """
    if world.size == 1:
        return
    if broken and world.device.type == "cuda":
        _abandoned.append(world)
    else:
        torch.distributed.destroy_process_group()


def trainable(model: nn.Module) -> list[nn.Parameter]:
    """The parameters that are trained, each once, in the model's order."""
    return [p for p in _unique(model.parameters()) if p.requires_grad]


def _unique(parameters: Iterable[nn.Parameter]) -> list[nn.Parameter]:
    return list(dict.fromkeys(parameters))


def _default_device(local_rank: int) -> torch.device:
    return torch.device("cuda", local_rank) if torch.cuda.is_available() else torch.device("cpu")


def _own_card(place: torch.device, local_rank: int) -> torch.device:
    """A GPU with its number; "cuda" alone means that of the local rank."""
    number = local_rank if place.index is None else place.index
    if number >= (count := torch.cuda.device_count()):
        raise RunError(
            f"process {local_rank} of this machine is to compute on GPU {number}, and torch sees {count} "
            "here (the first is 0)",
            where="LOCAL_RANK" if number == local_rank else "device",
            remedy=f"Start at most {count} processes a machine (torchrun --nproc-per-node {count}), or check "
            "CUDA_VISIBLE_DEVICES"
            if count
            else "Check the driver and CUDA_VISIBLE_DEVICES, or compute on the device cpu",
        )
    return torch.device("cuda", number)


@contextmanager
def isolated_process_state(world: World, threads: int | None = None) -> Iterator[None]:
    """Train as in a process of one's own: gradients flow also under `torch.no_grad`, numbers are float32 and
    lie where the run computes whatever the default format and device, products are as the settings say also
    under `torch.autocast`. Afterwards torch's generators, that format and the number of threads are as a
    program had them, and the other processes of the run are left.

    Args:
        world: as `start` gave it. threads: how many compute on a processor; None: as many as before.
    """
    before, broken = torch.get_num_threads(), True
    try:
        if threads:
            torch.set_num_threads(threads)
        plain = torch.autocast(world.device.type, enabled=False)
        # The third is with gradients.
        with on_cpu(), isolated_torch_rng(world.device), torch.inference_mode(False), plain:
            yield
        broken = False
    finally:
        if threads:
            torch.set_num_threads(before)
        stop(world, broken=broken)
