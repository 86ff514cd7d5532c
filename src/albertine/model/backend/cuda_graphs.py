"""Passes on a GPU as graphs of kernels that are started as a whole: here those of inference.

A pass of a short batch takes as long as Python needs to start some 140 kernels one by one, many times what
they compute for. A CUDA graph holds the kernels of one pass with the memory they read and write; it is
recorded once for a size, and a batch is copied into its inputs. Batches of many sizes share few graphs: they
are filled up with sequences that nobody asked for.

The casts of the weights are part of a graph, so that it computes with the weights as they are; what moves
them elsewhere, or adds something to a layer, is seen before every pass.
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
from albertine.model.backend.gradient_accumulation import hooked

MOST_TOKENS = 8192
"""Of a batch; a larger one keeps the card busy for longer than its kernels take to start."""
FEWEST_TOKENS, SHORTEST = 64, 64
TOKENS_A_SEQUENCE = 4
"""Of a graph there is one sequence for so many tokens; an empty one costs nothing."""
SIGHTS = 3
"""A size is recorded when it is seen so often: to record takes as long as a few passes."""
MOST_GRAPHS = 64

OWN = ("albertine.model.", "torch.nn.modules.")
"""Where the classes of an encoder's modules stand; adapters, quantizers and wrappers stand elsewhere."""

Compute = Callable[[Any, Packed], Any]
"""(encoder, batch) → what the encoder gives of it."""
log = logging.getLogger("albertine.model")


def round_up(tokens: int) -> int:
    """The size of the graph for that many tokens: at most an eighth more, or 31."""
    return max(FEWEST_TOKENS, bucket_size(tokens, 8, 32))


@dataclass(frozen=True)
class BatchSize:
    """What all batches of one graph have in common.

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
        """Of the batch's sequences, and of those that fill it up."""
        whole, rest = divmod(self.tokens - packed.num_tokens, self.longest)
        return [*packed.lengths, *[self.longest] * whole, *([rest] if rest else [])]

    def offsets(self, packed: Packed) -> Tensor:
        """`cu_seqlens` of the filled batch, the last sequences empty, int32 (sequences + 1,)."""
        lengths = self.lengths(packed)
        lengths += [0] * (self.sequences - len(lengths))
        return torch.tensor([0, *lengths], dtype=torch.int32, device="cpu").cumsum(0, dtype=torch.int32)

    def filled(self, packed: Packed) -> Packed:
        """The batch at this size, in memory of its own. Of its lengths an upper bound is known."""
        device = packed.input_ids.device
        ids, types, positions = (torch.zeros(self.tokens, dtype=torch.long, device=device) for _ in range(3))
        offsets = torch.zeros(self.sequences + 1, dtype=torch.int32, device=device)
        found = Packed(ids, types, positions, offsets, (self.longest,))
        self.fill(found, packed)
        return found

    def fill(self, inputs: Packed, packed: Packed) -> None:
        """Copy a batch into the inputs. Behind it stays what was there, which no real sequence sees."""
        n = packed.num_tokens
        inputs.input_ids[:n].copy_(packed.input_ids)
        inputs.token_type_ids[:n].copy_(packed.token_type_ids)
        inputs.position_ids[:n].copy_(packed.position_ids)
        inputs.cu_seqlens.copy_(self.offsets(packed), non_blocking=True)


class Recording:
    """One recorded pass, which does not hold the encoder."""

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
    """`run` as a graph, started by a call."""
    graph, card = torch.cuda.CUDAGraph(), _card(device)
    with torch.cuda.device(device):
        card.side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(card.side):
            run()  # what a first call loads or measures cannot be recorded
        torch.cuda.current_stream().wait_stream(card.side)
        card.capture(graph, run)
    return graph.replay


def peak_share(run: Callable[[], None], device: torch.device) -> float:
    """The share of the card's memory that `run` takes beside what is taken before."""
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    run()
    taken = torch.cuda.max_memory_allocated(device) - before
    return float(taken / torch.cuda.mem_get_info(device)[1])


class _Card:
    """What all graphs of a card have in common.

    Attributes:
        pool: the memory that they use in turn, as each leaves its result until it is copied.
        side: where passes are computed before they are recorded. A new stream for each would have cuBLAS set
            aside memory for every one of them.
    """

    def __init__(self, device: torch.device) -> None:
        with torch.cuda.device(device):
            self.pool = torch.cuda.graph_pool_handle()  # type: ignore[no-untyped-call]
            self.side, self._own = torch.cuda.Stream(), torch.cuda.Stream()  # type: ignore[no-untyped-call]
            # Memory whose last graph is gone can be taken by no other, so this one stays.
            self._first = torch.cuda.CUDAGraph()
            self.capture(self._first, lambda: torch.zeros(1, device=device))

    def capture(self, graph: torch.cuda.CUDAGraph, run: Callable[[], object]) -> None:
        mode = "thread_local"  # other threads may allocate and wait meanwhile
        with torch.cuda.graph(graph, pool=self.pool, stream=self._own, capture_error_mode=mode):
            run()


_card = cache(_Card)


G = TypeVar("G")


class Graphs(Generic[G]):
    """Graphs that read the weights of one model, by what they depend on, the least lately used first.

    Attributes:
        failed: whether one could not be recorded; then no other is tried.
    """

    def __init__(self) -> None:
        self.known: OrderedDict[Hashable, G] = OrderedDict()
        self.failed = False
        self._places: list[tuple[int, torch.Size, tuple[int, ...]]] = []

    def get(self, key: Hashable, weights: Sequence[Tensor]) -> G | None:
        """The graph of `key`. Graphs read weights where they lay: all are forgotten where one has moved."""
        places = [(p.data_ptr(), p.shape, p.stride()) for p in weights]
        if places != self._places:
            self.known.clear()
            self._places = places
        if key in self.known:
            self.known.move_to_end(key)
        return self.known.get(key)

    def record(self, key: Hashable, make: Callable[[], G]) -> G | None:
        """A new one; None, and one warning, where that is impossible."""
        try:
            self.known[key] = graph = make()
        except RuntimeError as error:
            self.failed = True
            told = str(error).splitlines()[0]
            log.warning("a pass could not be recorded as a CUDA graph, and is computed without: %s", told)
            # Their memory would be nobody's: it is given back when other models' graphs are gone too.
            self.known.clear()
            _card.cache_clear()
            torch.cuda.empty_cache()
            return None
        while len(self.known) > MOST_GRAPHS:
            self.known.popitem(last=False)
        return graph


class Replays:
    """The passes of one encoder."""

    # Held from the copying of a batch to that of its result, and by all encoders, whose graphs share memory.
    _lock = threading.Lock()

    def __init__(self) -> None:
        self.graphs: Graphs[Recording] = Graphs()
        self._sights: Counter[Hashable] = Counter()

    def run(
        self, kind: Hashable, encoder: Any, weights: Sequence[Tensor], packed: Packed, compute: Compute
    ) -> Any:
        """`compute` of the batch, filled up to a size; None where no graph takes it.

        Args:
            kind: all that a graph depends on but the batch and its size. weights: all of the encoder.
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
                    # The same kernels as those of the graph, and so the same bits.
                    return compute(encoder, size.filled(packed)).first(packed.num_tokens, packed.num_tokens)
                graph = self.graphs.record(key, partial(Recording, size, encoder, packed, compute))
            return None if graph is None else graph(packed)


_replays: WeakKeyDictionary[nn.Module, Replays] = WeakKeyDictionary()


def replayed(encoder: Any, packed: Packed, kind: Hashable, compute: Compute) -> Any:
    """A pass by a graph of its size; None where it has to be computed without.

    Args:
        kind: what else the pass depends on. compute: the pass; it must not hold the encoder.
    """
    weights = plain_weights(encoder) if is_alone(packed.input_ids) else None
    if weights is None:
        return None
    return _replays.setdefault(encoder, Replays()).run(kind, encoder, weights, packed, compute)


def is_alone(x: Tensor) -> bool:
    """Whether this is a plain pass on the card's usual stream, of which nobody makes something else."""
    if type(x) is not Tensor or x.device.type != "cuda" or torch.cuda.is_current_stream_capturing():
        return False
    if torch.compiler.is_compiling() or torch._C._get_tracing_state() is not None:
        return False
    return bool(torch.cuda.current_stream(x.device) == torch.cuda.default_stream(x.device))


def plain_weights(encoder: Any) -> list[nn.Parameter] | None:
    """The weights of an encoder that consists of our own modules alone and always computes the same kernels
    for a size; None of another, or while one of its modules is in training (Monte Carlo dropout)."""
    steady = repeats(encoder) and not any(module.training for module in encoder.modules())
    return own_weights(encoder) if steady else None


def repeats(encoder: Any) -> bool:
    """Whether an encoder always computes the same kernels for a size, if nobody changes its modules."""
    config = encoder.config
    return config.positions in ("learned", "rotary") and not (
        config.solves or config.halts or encoder.signals
    )


def own_weights(model: nn.Module) -> list[nn.Parameter] | None:
    """The weights of a model that consists of our own modules alone, with nobody's hooks; None of another."""
    modules = list(model.modules())
    if not all(type(m).__module__.startswith(OWN) for m in modules) or hooked(modules):
        return None
    weights = [p for m in modules for p in m._parameters.values() if p is not None]
    return weights if all(type(p) is nn.Parameter for p in weights) else None
