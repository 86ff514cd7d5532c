"""Loss of consecutive segments, with the memory between them."""

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
    """Segments of a batch with their attention mask: permuted, causal, or bidirectional.

    Args:
        reach: see `Segments`.
    """
    packed = batch.packed
    if batch.when is not None and batch.until is not None:
        visible, rows = Visibility(batch.when, batch.until), batch.mlm_positions
        # In the query stream a target sees what comes before it, and not itself.
        until = batch.when[rows]
        return Segments(packed, visible, rows, until, backward=batch.backward, reach=reach)
    seen = None if packed.prefix is None else causal(packed.lengths, packed.input_ids)
    return Segments(packed, seen, reach=reach)


def read_batch(
    model: Model, batch: StreamBatch, memory: Memory | None, keep: int, reach: int | None = None
) -> tuple[Tensor, Memory | None]:
    """Logits (P, V) of the predicted positions of a batch, and the next memory; None with `keep` 0 for causal
    LM, which any encoder supports.

    Args:
        memory: of the same streams; None: they begin here.
        keep: maximum tokens of a sequence in the next memory.
    """
    if batch.packed.prefix is not None and memory is None and not keep and reach is None:
        return model.pretraining_forward(batch.packed, batch.mlm_positions)[0], None
    rows = None if batch.when is not None else batch.mlm_positions
    segments = segments_of(batch, reach)
    return predict_segments(model, segments, memory, rows=rows, keep=keep, reuse=batch.advance)


class StreamLoss:
    """Language-model loss of segments, called like `pretraining_losses`; it carries the memory of each stream
    from step to step.

    A call reads the memory of committed steps and never changes it, so a step that is discarded, for a
    non-finite loss or a signal, leaves no memory.

    Args:
        length: tokens of a sequence in the memory; 0: no memory.
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
        """Commit the step: the next step reads its memory."""
        self._settled, self._next, self._restored = self._next, {}, None

    def tensors(self) -> dict[str, Tensor]:
        """Checkpoint state: for each layer the rows of all streams in order, (streams·M, H), and their number
        for each stream; empty before the first step. Every process calls this."""
        if self._restored is not None:
            return _named(self._restored)
        if not self._settled:
            return {}
        some = next(iter(self._settled.values()))
        # Every stream advances equally each step, so all memories have one length.
        rows = some.lengths[0]
        places = [lane for lanes in self._settled for lane in lanes]
        mine = Memory.joined(list(self._settled.values()))
        states = []
        for state in mine.states:
            # Summed in float32, which represents every half-precision number exactly.
            whole = torch.zeros(self.lanes, rows, state.shape[1], device=state.device)
            whole[places] = state.view(len(places), rows, -1).float()
            states.append(self.add(whole).to(state.dtype).flatten(0, 1))
        return _named(Memory(tuple(states), (rows,) * self.lanes))

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore the memory of a checkpoint; an empty one starts without."""
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
