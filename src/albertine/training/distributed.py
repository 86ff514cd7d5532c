"""The processes of a run: rank and size, and sums over all ranks.

Started by `torchrun` or `training.launch`. A run needs three operations: add tensors over all ranks, agree on
a decision, and write files in the main process alone. With one process every function returns its argument.
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
"""Timeout of a wait for the other processes."""
POLL = 0.02
"""Seconds between two checks of the store."""

LOCAL_RANKS = ("LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK")
"""Environment variables of torchrun, Slurm and Open MPI with the rank of a process on its machine."""


@dataclass(frozen=True)
class World:
    """One process among `size`.

    Attributes:
        rank, size: of this process, and number of processes.
        device: of this process.
    """

    rank: int = 0
    size: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    @property
    def main(self) -> bool:
        """Whether this process writes files and messages."""
        return self.rank == 0

    def add(self, tensor: Tensor) -> Tensor:
        """The sum over all ranks, in place; bit for bit the same on every rank."""
        if self.size > 1:
            with _partners():
                torch.distributed.all_reduce(tensor)
        return tensor

    def add_numbers(self, numbers: Sequence[float]) -> list[float]:
        """Sums over all ranks of host numbers, exact for integers below 2**53, without a device
        synchronisation.
        """
        if self.size == 1:
            return list(numbers)
        total: list[float] = self.add(torch.tensor(numbers, dtype=torch.float64)).tolist()
        return total

    def any(self, flag: bool) -> bool:
        """Whether the flag is set on any rank."""
        return self.add_numbers([float(flag)])[0] > 0

    def busy(self) -> None:
        """Called by the main process while it works alone: restarts the timeout (`PATIENCE`) of the ranks
        that wait in `together`."""
        self.any(True)

    def together(self) -> None:
        """A barrier."""
        while self.any(False):
            pass

    def from_main(self, number: float) -> float:
        """The main process' number, on every rank."""
        return self.add_numbers([number if self.main else 0.0])[0]

    def share_weights(self, model: nn.Module) -> None:
        """Broadcast the main process' parameters and buffers."""
        if self.size == 1:
            return
        with torch.no_grad(), _partners():
            for tensor in [*model.parameters(), *model.buffers()]:
                torch.distributed.broadcast(tensor, src=0)

    def add_gradients(self, parameters: Sequence[nn.Parameter]) -> None:
        """Sum gradients over all ranks by one flat all-reduce; a missing gradient counts as zero.

        A shared parameter has one gradient, however many layers use it, so one sum after the backward pass
        is minimal. DistributedDataParallel would communicate per micro-batch, and average over ranks with
        unequal numbers of predictions.
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
    """Join the process group of `torchrun`; without one, a world of this process.

    Args:
        device: default: the GPU of the local rank if there is one, else the CPU.

    Raises:
        RunError: torchrun's environment is incomplete, or this machine has no such GPU.
        PartnerEnded: another process has ended.
    """
    local_rank = next((os.environ[name] for name in LOCAL_RANKS if name in os.environ), None)
    local = int(local_rank or "0")
    place = torch.device(device) if device is not None else _default_device(local)
    if place.type == "cuda":
        place = _indexed_gpu(place, local)
        torch.cuda.set_device(place)
    if "WORLD_SIZE" not in os.environ or int(os.environ["WORLD_SIZE"]) == 1:
        return World(device=place)
    required = ["RANK", "MASTER_ADDR", "MASTER_PORT"]
    if device is None and place.type == "cuda" and torch.cuda.device_count() > 1 and local_rank is None:
        required.append("LOCAL_RANK")  # else every process would use the first GPU
    if missing := [name for name in required if name not in os.environ]:
        alone = ", or with one process a machine set LOCAL_RANK=0" if missing == ["LOCAL_RANK"] else ""
        raise RunError(
            f"WORLD_SIZE is set and {', '.join(missing)} is not", remedy=f"Start the run with torchrun{alone}"
        )
    # Its functions have the process group at the time of the import as a default argument. A later import, by
    # torch's optimizers, would keep gloo's threads alive after `stop`, and a thread that frees a tensor
    # during interpreter shutdown aborts the process.
    importlib.import_module("torch.distributed.nn")
    # Gradients by NCCL, and the host numbers of a step by gloo, without a device synchronisation.
    backend = "cpu:gloo,cuda:nccl" if place.type == "cuda" else "gloo"
    # NCCL gets its GPU here; it would guess it at the first collective, and hang after a wrong guess.
    card = place if place.type == "cuda" else None
    meet()
    while _abandoned:
        _abandoned.pop()
        torch.distributed.destroy_process_group()
    with _partners():
        torch.distributed.init_process_group(backend, timeout=PATIENCE, device_id=card, **_rendezvous())
    return World(torch.distributed.get_rank(), torch.distributed.get_world_size(), place)


def _rendezvous() -> dict[str, Any]:
    """Arguments of `init_process_group` for the rendezvous; none where the environment is enough."""
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        return {}
    from torch.distributed.rendezvous import rendezvous

    store, rank, size = next(rendezvous("env://", timeout=PATIENCE))
    return {"store": _store_of_this_start(store, rank, size), "rank": rank, "world_size": size}


def _store_of_this_start(store: Store, rank: int, size: int) -> Store:
    """A namespace of the store for the processes that were started together with this one.

    torchrun restarts processes (`--max-restarts`) with the same store, which still has the addresses of the
    ended ones; the new processes would connect to these and wait. No environment variable changes at a
    restart on every machine, so rank 0 chooses a name, which the other processes read under random keys.

    Raises:
        RunError: a process is absent after `PATIENCE`.
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
                elif store.check([f"{prefix}/here/{other}"]):  # perhaps of an ended process
                    name = store.get(f"{prefix}/here/{other}").decode()
                    store.set(f"{prefix}/start/{name}", mine)
            time.sleep(POLL)
        return PrefixStore(mine, store)
    store.set(f"{prefix}/here/{rank}", mine)
    while not store.check([f"{prefix}/start/{mine}"]):
        check_time("the first process of the run did not answer")
        time.sleep(POLL)  # interrupted by signals
    first = store.get(f"{prefix}/start/{mine}").decode()
    store.set(f"{prefix}/{first}/{rank}", "")
    return PrefixStore(first, store)


@contextlib.contextmanager
def _partners() -> Iterator[None]:
    """Convert errors of gloo and the store that another process caused into PartnerEnded."""
    try:
        yield
    except RuntimeError as error:
        if GONE.search(str(error)) is None:
            raise
        remedy = "See its own output for the cause. The same command resumes from the last checkpoint"
        raise PartnerEnded(
            "another process of the run has ended or does not answer", remedy=remedy
        ) from error


_abandoned: list[World] = []
"""Process groups that `stop` left open; closed before the next one is joined."""


def check_cards(count: int) -> None:
    """
    Raises:
        SettingsError: more processes than this machine's GPUs, where it has any.
    """
    if torch.cuda.is_available() and count > (cards := torch.cuda.device_count()):
        raise SettingsError(
            f"{count} processes need a GPU each, and torch sees {cards} here",
            where="--processes",
            remedy=f"Start at most {cards}, or hide the GPUs (CUDA_VISIBLE_DEVICES=) to use the processor",
        )


def is_main() -> bool:
    """Whether this is the main process, also before `start` and after `stop`."""
    return os.environ.get("RANK", "0") == "0"


def stop(world: World, *, broken: bool = False) -> None:
    """Leave the process group of `start`.

    Args:
        broken: after an error, perhaps of this process alone. NCCL would wait for the others, which may wait
            for this one, and the error would never be printed; the group is left to the end of the process.
    """
    if world.size == 1:
        return
    if broken and world.device.type == "cuda":
        _abandoned.append(world)
    else:
        torch.distributed.destroy_process_group()


def trainable(model: nn.Module) -> list[nn.Parameter]:
    """The trained parameters without duplicates, in the model's order."""
    return [p for p in _unique(model.parameters()) if p.requires_grad]


def _unique(parameters: Iterable[nn.Parameter]) -> list[nn.Parameter]:
    return list(dict.fromkeys(parameters))


def _default_device(local_rank: int) -> torch.device:
    return torch.device("cuda", local_rank) if torch.cuda.is_available() else torch.device("cpu")


def _indexed_gpu(place: torch.device, local_rank: int) -> torch.device:
    """A GPU with its index; "cuda" alone is that of the local rank."""
    number = local_rank if place.index is None else place.index
    if number >= (count := torch.cuda.device_count()):
        raise RunError(
            f"process {local_rank} of this machine uses GPU {number}, and torch sees {count} "
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
    """Within, a run is independent of torch's global state in the calling program: gradient mode, default
    dtype and device, autocast. Afterwards random generators, dtype and number of threads are restored, and
    the process group is left.

    Args:
        world: of `start`. threads: of the CPU; None: unchanged.
    """
    before, broken = torch.get_num_threads(), True
    try:
        if threads:
            torch.set_num_threads(threads)
        plain = torch.autocast(world.device.type, enabled=False)
        # inference_mode(False) enables gradients.
        with on_cpu(), isolated_torch_rng(world.device), torch.inference_mode(False), plain:
            yield
        broken = False
    finally:
        if threads:
            torch.set_num_threads(before)
        stop(world, broken=broken)
