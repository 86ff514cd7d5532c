"""The card that is measured, or for a rehearsal a processor that takes the branches of one."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar
from unittest.mock import patch

import torch
from torch import Tensor, nn

from albertine.model.backend import cuda
from albertine.model.model import Model
from albertine.model.rows import Rows
from albertine.pretraining import cuda_graphs as recording

M = TypeVar("M", bound=nn.Module)


@dataclass(frozen=True)
class Place:
    """Where to compute.

    Attributes:
        rehearsal: everything at toy size on a processor, to see that it runs.
        rounds: how often each thing is timed.
    """

    rehearsal: bool
    rounds: int = 10

    @property
    def device(self) -> torch.device:
        return torch.device("cpu" if self.rehearsal else "cuda")

    def ready(self, model: M) -> M:
        """A model on the device, ours by the backend of a GPU."""
        if isinstance(model, Model):
            model.encoder.backend = "cuda"
        return model.to(self.device)

    def wait(self) -> None:
        if not self.rehearsal:
            torch.cuda.synchronize()

    def seconds(self, run: Callable[[], Any]) -> float:
        """Fastest of `rounds` runs after three to warm up, the device finished each time."""
        best, warm = float("inf"), 1 if self.rehearsal else 3
        for i in range(self.rounds + warm):
            self.wait()
            begin = time.perf_counter()
            run()
            self.wait()
            if i >= warm:
                best = min(best, time.perf_counter() - begin)
        return best

    def freed(self) -> float:
        """Free unreferenced memory, including compiled models; returns gigabytes still in use."""
        torch._dynamo.reset()  # its cache holds every module that was compiled
        gc.collect()
        if self.rehearsal:
            return 0.0
        torch.cuda.empty_cache()
        return torch.cuda.memory_allocated() / 1e9

    def watch_peak(self) -> None:
        """Measure the peak of memory from here on."""
        if not self.rehearsal:
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()

    def peak_gb(self) -> float:
        """Most memory in use at a time since `watch_peak`."""
        return 0.0 if self.rehearsal else torch.cuda.max_memory_allocated() / 1e9

    def compiled(self, model: nn.Module) -> Any:
        """A peer, compiled as its users would."""
        return torch.compile(model, backend="eager" if self.rehearsal else "inductor")

    @contextmanager
    def never_waiting(self) -> Iterator[None]:
        """Whatever makes the host wait for the device raises."""
        if self.rehearsal:
            yield
            return
        self.wait()
        torch.cuda.set_sync_debug_mode("error")
        try:
            yield
        finally:
            torch.cuda.set_sync_debug_mode("default")


@contextmanager
def standing_in() -> Iterator[None]:
    """The backend of a GPU on a processor: its unpadded kernel by a mask, its compiler without code, and
    graphs that compute anew."""

    def attend(
        backend: Any, q: Tensor, k: Tensor, v: Tensor, queries: Rows, keys: Rows, dropout: float
    ) -> Tensor:
        return cuda.attend(q, k, v, queries, keys, dropout)

    def recorded(run: Callable[[], None], device: torch.device) -> Callable[[], None]:
        run()
        return run

    def share(run: Callable[[], None], device: torch.device) -> float:
        run()
        return 0.0

    def lengths(rows: Rows) -> tuple[int, ...]:
        return tuple(rows.cu_seqlens.diff().tolist())

    whole = torch.compile(cuda.plain_layer, dynamic=True, backend="aot_eager")
    with (
        patch.object(cuda, "PACKED_KERNEL", _by_mask),
        patch.object(cuda.Traced, "attend", attend),
        patch.object(cuda, "_compiled_layer", lambda: whole),
        patch.object(recording, "recorded", recorded),
        patch.object(recording, "peak_share", share),
        patch.object(Rows, "known_lengths", lengths),
    ):
        yield


def _by_mask(
    q_RND: Tensor, k_TND: Tensor, v_TND: Tensor, cu_q: Tensor, cu_k: Tensor, longest_q: int, longest_k: int
) -> Tensor:
    """Attention within sequences as the unpadded kernel has it."""
    queries, looked = (
        torch.bucketize(torch.arange(len(x)), cu.long()[1:], right=True)
        for x, cu in ((q_RND, cu_q), (k_TND, cu_k))
    )
    scores = torch.einsum("rnd,tnd->nrt", q_RND, k_TND) * q_RND.shape[2] ** -0.5
    weights = scores.masked_fill(queries[:, None] != looked[None], float("-inf")).softmax(-1)
    return torch.einsum("nrt,tnd->rnd", weights, v_TND)
