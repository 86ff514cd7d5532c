"""CUDA graphs of inference passes.

A pass of a short batch takes as long as Python needs to launch some 140 kernels one by one, many times their
computing time. A CUDA graph holds the kernels of one pass with their memory; it is captured once for a size,
and a batch is copied into its inputs. Batches are padded to few sizes, so that they share graphs.

The casts of the weights are part of a graph, so it follows updates in place; moved weights and replaced or
hooked layers are detected before every pass.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary, ref

import torch
from torch import Tensor, nn

from albertine.core.batch import Packed
from albertine.core.token_batches import bucket_size
from albertine.model.backend.base import has_hooks

MOST_TOKENS = 8192
"""Maximum batch; a larger one computes for longer than its kernels take to launch."""
FEWEST_TOKENS, SHORTEST = 64, 64
TOKENS_A_SEQUENCE = 4
"""Tokens of a graph for each of its sequences; empty sequences cost nothing."""
SIGHTS = 3
"""A size is captured when it occurs this often: capturing takes as long as a few passes."""
MOST_GRAPHS = 64

OWN = ("albertine.model.", "torch.nn.modules.")
"""Modules that define the classes of an unmodified encoder; adapters, quantizers and wrappers are defined
elsewhere."""

Compute = Callable[[Any, Packed], Any]
"""(encoder, batch) → output of the encoder."""
log = logging.getLogger("albertine.model")


def round_up(tokens: int) -> int:
    """Size of the graph for this number of tokens: at most an eighth more, or 31."""
    return max(FEWEST_TOKENS, bucket_size(tokens, 8, 32))


@dataclass(frozen=True)
class BatchSize:
    """Size of the batches of one graph.

    Attributes:
        tokens, sequences: of the graph's batch. longest: an upper bound of the lengths.
    """

    tokens: int
    sequences: int
    longest: int

    @classmethod
    def of(cls, packed: Packed) -> BatchSize | None:
        """None where no graph takes such a batch."""
        if packed.prefix is not None or not 0 < packed.num_tokens <= MOST_TOKENS:
            return None
        tokens = round_up(packed.num_tokens)
        longest = max(SHORTEST, 1 << (packed.max_length - 1).bit_length())
        size = cls(tokens, tokens // TOKENS_A_SEQUENCE, longest)
        return size if len(size.lengths(packed)) <= size.sequences else None

    def lengths(self, packed: Packed) -> list[int]:
        """Lengths of the sequences of the batch, and of the padding."""
        whole, rest = divmod(self.tokens - packed.num_tokens, self.longest)
        return [*packed.lengths, *[self.longest] * whole, *([rest] if rest else [])]

    def offsets(self, packed: Packed) -> Tensor:
        """`cu_seqlens` of the padded batch, the last sequences empty, int32 (sequences + 1,)."""
        lengths = self.lengths(packed)
        lengths += [0] * (self.sequences - len(lengths))
        return torch.tensor([0, *lengths], dtype=torch.int32, device="cpu").cumsum(0, dtype=torch.int32)

    def filled(self, packed: Packed) -> Packed:
        """The batch padded to this size, in new memory; of its lengths only an upper bound is known."""
        device = packed.input_ids.device
        ids, types, positions = (torch.zeros(self.tokens, dtype=torch.long, device=device) for _ in range(3))
        offsets = torch.zeros(self.sequences + 1, dtype=torch.int32, device=device)
        found = Packed(ids, types, positions, offsets, (self.longest,))
        self.fill(found, packed)
        return found

    def fill(self, inputs: Packed, packed: Packed) -> None:
        """Copy a batch into the inputs; the rows after it keep their old content, as padding."""
        n = packed.num_tokens
        inputs.input_ids[:n].copy_(packed.input_ids)
        inputs.token_type_ids[:n].copy_(packed.token_type_ids)
        inputs.position_ids[:n].copy_(packed.position_ids)
        inputs.cu_seqlens.copy_(self.offsets(packed), non_blocking=True)


class CapturedPass:
    """A captured pass; it holds no reference to the encoder."""

    def __init__(self, size: BatchSize, encoder: Any, packed: Packed, compute: Compute) -> None:
        self._size, self._inputs = size, size.filled(packed)
        self._encoder, self._compute = ref(encoder), compute
        self._replay = recorded(self._run, packed.input_ids.device)

    def _run(self) -> None:
        encoder = self._encoder()
        assert encoder is not None
        self._out = self._compute(encoder, self._inputs)

    def __call__(self, packed: Packed) -> Any:
        self._size.fill(self._inputs, packed)
        self._replay()
        return replace(self._out, last_hidden=self._out.last_hidden[: packed.num_tokens].clone())


def recorded(run: Callable[[], None], device: torch.device) -> Callable[[], None]:
    """`run` captured as a graph; returns a function that replays it."""
    graph, card = torch.cuda.CUDAGraph(), _card(device)
    with torch.cuda.device(device):
        card.side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(card.side):
            run()  # what a first call loads or measures cannot be captured
        torch.cuda.current_stream().wait_stream(card.side)
        card.capture(graph, run)
    return graph.replay


def peak_share(run: Callable[[], None], device: torch.device) -> float:
    """Share of the device's memory that `run` allocates at its peak."""
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    run()
    taken = torch.cuda.max_memory_allocated(device) - before
    return float(taken / torch.cuda.mem_get_info(device)[1])


class _DevicePool:
    """Memory pool and streams of all graphs of a device.

    Attributes:
        pool: shared memory; each result is copied out before the next graph runs.
        side: stream for warm-up passes before capture. With a new stream for each, cuBLAS would reserve
            memory for every one.
    """

    def __init__(self, device: torch.device) -> None:
        with torch.cuda.device(device):
            self.pool = torch.cuda.graph_pool_handle()  # type: ignore[no-untyped-call]
            self.side, self._own = torch.cuda.Stream(), torch.cuda.Stream()  # type: ignore[no-untyped-call]
            # A pool is lost with its last graph, so this one stays.
            self._first = torch.cuda.CUDAGraph()
            self.capture(self._first, lambda: torch.zeros(1, device=device))

    def capture(self, graph: torch.cuda.CUDAGraph, run: Callable[[], object]) -> None:
        mode = "thread_local"  # other threads may allocate and synchronise meanwhile
        with torch.cuda.graph(graph, pool=self.pool, stream=self._own, capture_error_mode=mode):
            run()


_card = cache(_DevicePool)


G = TypeVar("G")


class Graphs(Generic[G]):
    """Graphs of one model by key, the least recently used first.

    Attributes:
        failed: whether a capture failed; then no other is tried.
    """

    def __init__(self) -> None:
        self.known: OrderedDict[Hashable, G] = OrderedDict()
        self.failed = False
        self._places: list[tuple[int, torch.Size, tuple[int, ...]]] = []

    def get(self, key: Hashable, weights: Sequence[Tensor]) -> G | None:
        """The graph of `key`. Graphs read weights by address: all are dropped when a weight has moved."""
        places = [(p.data_ptr(), p.shape, p.stride()) for p in weights]
        if places != self._places:
            self.known.clear()
            self._places = places
        if key in self.known:
            self.known.move_to_end(key)
        return self.known.get(key)

    def record(self, key: Hashable, make: Callable[[], G]) -> G | None:
        """Capture a new graph; None, with one warning, where that fails."""
        try:
            self.known[key] = graph = make()
        except RuntimeError as error:
            self.failed = True
            reason = str(error).splitlines()[0]
            log.warning("a pass could not be recorded as a CUDA graph, and is computed without: %s", reason)
            # The pool is released when the graphs of other models are gone too.
            self.known.clear()
            _card.cache_clear()
            torch.cuda.empty_cache()
            return None
        while len(self.known) > MOST_GRAPHS:
            self.known.popitem(last=False)
        return graph


class CapturedPasses:
    """Captured passes of one encoder."""

    # Held from copying a batch in to copying its result out, by all encoders, whose graphs share memory.
    _lock = threading.Lock()

    def __init__(self) -> None:
        self.graphs: Graphs[CapturedPass] = Graphs()
        self._sights: Counter[Hashable] = Counter()

    def run(
        self, kind: Hashable, encoder: Any, weights: Sequence[Tensor], packed: Packed, compute: Compute
    ) -> Any:
        """`compute` of the padded batch, by a graph; None where no graph takes it.

        Args:
            kind: what a graph depends on beside the size of the batch. weights: all of the encoder.
        """
        size = BatchSize.of(packed)
        if size is None or self.graphs.failed:
            return None
        with self._lock, torch.inference_mode(False), torch.no_grad():
            key = (kind, size)
            graph = self.graphs.get(key, weights)
            if graph is None:
                self._sights[key] += 1
                if self._sights[key] < SIGHTS:
                    # Padded, for the same kernels as the graph, and so the same bits.
                    return compute(encoder, size.filled(packed)).first(packed.num_tokens, packed.num_tokens)
                graph = self.graphs.record(key, partial(CapturedPass, size, encoder, packed, compute))
            return None if graph is None else graph(packed)


_replays: WeakKeyDictionary[nn.Module, CapturedPasses] = WeakKeyDictionary()


def run_captured(encoder: Any, packed: Packed, kind: Hashable, compute: Compute) -> Any:
    """A pass by a graph; None where it has to be computed without.

    Args:
        kind: what the pass depends on beside its size. compute: the pass; it must not hold a reference to the
            encoder.
    """
    weights = inference_weights(encoder) if can_replay(packed.input_ids) else None
    if weights is None:
        return None
    return _replays.setdefault(encoder, CapturedPasses()).run(kind, encoder, weights, packed, compute)


def can_replay(x: Tensor) -> bool:
    """Whether this is an ordinary pass on the default stream, outside of compilation, tracing and capture."""
    if type(x) is not Tensor or x.device.type != "cuda" or torch.cuda.is_current_stream_capturing():
        return False
    if torch.compiler.is_compiling() or torch._C._get_tracing_state() is not None:
        return False
    return bool(torch.cuda.current_stream(x.device) == torch.cuda.default_stream(x.device))


def inference_weights(encoder: Any) -> list[nn.Parameter] | None:
    """The weights of an unmodified encoder that launches the same kernels for every batch of a size; None for
    others, or while a module is in training mode (Monte Carlo dropout)."""
    steady = has_static_kernels(encoder) and not any(module.training for module in encoder.modules())
    return own_weights(encoder) if steady else None


def has_static_kernels(encoder: Any) -> bool:
    """Whether an unmodified encoder launches the same kernels for every batch of a size."""
    config = encoder.config
    return config.positions in ("learned", "rotary") and not (
        config.solves or config.halts or encoder.signals
    )


def own_weights(model: nn.Module) -> list[nn.Parameter] | None:
    """The weights of a model of our own modules without hooks; None for others."""
    modules = list(model.modules())
    if not all(type(m).__module__.startswith(OWN) for m in modules) or has_hooks(modules):
        return None
    weights = [p for m in modules for p in m._parameters.values() if p is not None]
    return weights if all(type(p) is nn.Parameter for p in weights) else None
