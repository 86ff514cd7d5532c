"""The loss of segments that go on from step to step, and the memory that goes with them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from albertine.model.config import EncoderConfig
from albertine.model.model import Model
from albertine.model.segment_memory import Memory
from albertine.model.two_streams import Segments, predict_segments
from albertine.model.visibility import Visibility, causal
from albertine.objectives.losses import Part, part_of
from albertine.objectives.stream_batch import StreamBatch

LENGTHS = "lengths"


def segments_of(batch: StreamBatch, reach: int | None = None) -> Segments:
    """How the segments of a batch are read: in an order of factorisation, from left to right, or whole.

    Args:
        reach: see `Segments`.
    """
    packed = batch.packed
    if batch.when is not None and batch.until is not None:
        visible, rows = Visibility(batch.when, batch.until), batch.mlm_positions
        # In the query stream a target sees what comes before it, and not itself.
        asking = batch.when[rows]
        return Segments(packed, visible, rows, asking, backward=batch.backward, reach=reach)
    seen = None if packed.prefix is None else causal(packed.lengths, packed.input_ids)
    return Segments(packed, seen, reach=reach)


def read_batch(
    model: Model, batch: StreamBatch, memory: Memory | None, keep: int, reach: int | None = None
) -> tuple[Tensor, Memory | None]:
    """Logits (P, V) of the rows that a batch predicts, and the memory after it; None with `keep` 0 where
    tokens are predicted from left to right, for which any encoder will do.

    Args:
        memory: of the same lanes; None: they begin here.
        keep: most tokens of a sequence that the next memory holds.
    """
    if batch.packed.prefix is not None and memory is None and not keep and reach is None:
        return model.pretraining_forward(batch.packed, batch.mlm_positions)[0], None
    rows = None if batch.when is not None else batch.mlm_positions
    segments = segments_of(batch, reach)
    return predict_segments(model, segments, memory, rows=rows, keep=keep, reuse=batch.advance)


class StreamLoss:
    """The language-model loss of segments; called as `pretraining_losses` is, it takes each lane's memory
    from step to step.

    A call reads the memory of the steps that are settled and never changes it; so a step that came to
    nothing, as its loss was not finite or a signal fell into it, leaves none behind.

    Args:
        length: tokens of a sequence that are remembered; 0: none.
        lanes: sequences of all processes together.
        add: the sum of a tensor over all processes.
    """

    def __init__(
        self,
        config: EncoderConfig,
        length: int,
        lanes: int,
        add: Callable[[Tensor], Tensor] = lambda x: x,
    ) -> None:
        self.length, self.lanes, self.add = length, lanes, add
        self.nbytes = 4 * lanes * length * config.hidden_size * config.num_hidden_layers
        self._settled: dict[tuple[int, ...], Memory] = {}
        self._next: dict[tuple[int, ...], Memory] = {}
        self._restored: Memory | None = None

    def __call__(self, model: Model, batch: StreamBatch) -> dict[str, Part]:
        """The part `mlm` of the loss of one micro-batch."""
        logits, kept = read_batch(model, batch, self._memory(batch), self.length)
        if self.length and kept is not None:
            self._next[batch.lanes] = kept
        return {"mlm": part_of(logits, batch.mlm_labels, batch.counts["mlm"])}

    def settle(self) -> None:
        """The step was made: its memories are those that the next step reads."""
        self._settled, self._next, self._restored = self._next, {}, None

    def tensors(self) -> dict[str, Tensor]:
        """What a checkpoint holds: of each depth the rows of all lanes in their order, (lanes·M, H), and how
        many each lane has; nothing before the first step. Every process calls this."""
        if self._restored is not None:
            return _named(self._restored)
        if not self._settled:
            return {}
        some = next(iter(self._settled.values()))
        # Every lane goes on by as many tokens each step, so all remember equally many.
        rows = some.lengths[0]
        places = [lane for lanes in self._settled for lane in lanes]
        mine = Memory.joined(list(self._settled.values()))
        states = []
        for state in mine.states:
            # Summed in float32, to which every half is widened without a rounding.
            whole = torch.zeros(self.lanes, rows, state.shape[1], device=state.device)
            whole[places] = state.view(len(places), rows, -1).float()
            states.append(self.add(whole).to(state.dtype).flatten(0, 1))
        return _named(Memory(tuple(states), (rows,) * self.lanes))

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Go on from the memory of a checkpoint; an empty one begins anew."""
        self._settled, self._next, self._restored = {}, {}, None
        if tensors:
            states = tuple(tensors[str(d)] for d in range(len(tensors) - 1))
            self._restored = Memory(states, tuple(tensors[LENGTHS].tolist()))

    def _memory(self, batch: StreamBatch) -> Memory | None:
        if self._restored is None:
            return self._settled.get(batch.lanes)
        return self._restored.of(batch.lanes).to(batch.packed.input_ids.device)


def _named(memory: Memory) -> dict[str, Tensor]:
    states = {str(d): state.cpu() for d, state in enumerate(memory.states)}
    return {**states, LENGTHS: torch.tensor(memory.lengths)}
