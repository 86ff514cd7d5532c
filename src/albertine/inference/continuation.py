"""Text continuation by a language model with a segment memory: hidden states of earlier tokens are kept for
every layer (Dai et al. 2019, section 3.2) and not computed again.

In a model trained left to right the states of a token never change, so all tokens but the newest are in
memory and a long prompt is read segment by segment. In an XLNet the second stream predicts the next token and
the tokens before it attend in both directions, so the newest tokens are recomputed for every prediction until
they fill a segment, which then goes into the memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from albertine.core.batch import pack
from albertine.errors import SettingsError
from albertine.inference.decoder import log_probabilities
from albertine.model.model import Model
from albertine.model.segment_memory import Memory
from albertine.model.two_streams import Segments, encode_segments, predict_segments
from albertine.model.visibility import Visibility, causal
from albertine.tokenizers.base import Tokenizer


@dataclass(frozen=True)
class Going:
    """Settings of a continuation.

    Attributes:
        left_to_right: predict with causal attention; False: with XLNet's second stream. None, for
            `Predictor.go_on`: by the objective in config.json.
        memory: maximum tokens in memory, for every layer; 0: the newest `segment` tokens are recomputed for
            every token.
        segment: maximum tokens of one pass, which attend to one another and to the memory; with the second
            stream they are recomputed for every token.
    """

    left_to_right: bool | None = None
    memory: int = 512
    segment: int = 128

    def __post_init__(self) -> None:
        """
        Raises:
            SettingsError: `segment` is below 1 or `memory` below 0.
        """
        if self.segment < 1 or self.memory < 0:
            raise SettingsError(
                f"segments of {self.segment} tokens with a memory of {self.memory} are not possible",
                remedy="Use segments of 1 token or more, and a memory of 0 or more",
            )


@dataclass(frozen=True)
class _Text:
    """One text: the memory of its first tokens, and the tokens after them."""

    memory: Memory
    newest: tuple[int, ...]


class Continuation:
    """Continuations of texts, with the interface of `Decoder`.

    Attributes:
        first: log-probabilities of the first token after each text, float32 (texts, V). Special tokens except
            [SEP], which ends a text, are suppressed.
    """

    def __init__(
        self, model: Model, tokenizer: Tokenizer, texts: Sequence[Sequence[int]], going: Going
    ) -> None:
        """
        Args:
            texts: token ids without special tokens, none empty.

        Raises:
            SettingsError: the encoder has no relative positions, or the model no language-model head.
        """
        self._model, self._going, self._vocab_size = model, going, tokenizer.vocab_size
        self._end = tokenizer.sep_id
        suppressed = tokenizer.special_ids - {tokenizer.sep_id}
        self._suppressed = torch.tensor(sorted(suppressed), device=model.device)
        like = model.encoder.embeddings.word.weight.new_empty(0, model.config.hidden_size)
        empty = Memory.empty(1, model.config.num_hidden_layers, like)
        self._texts = [_Text(empty, tuple(ids)) for ids in texts]
        self.first = self._log_probabilities()

    def next(self, rows: Sequence[int], tokens: Sequence[int]) -> Tensor:
        """`first` after one more token; arguments as in `Decoder.next`."""
        grown = [(self._texts[row], token) for row, token in zip(rows, tokens, strict=True)]
        self._texts = [replace(text, newest=(*text.newest, token)) for text, token in grown]
        return self._log_probabilities()

    def _log_probabilities(self) -> Tensor:
        while long := [i for i, text in enumerate(self._texts) if len(text.newest) > self._going.segment]:
            self._store(long)
        logits = self._left_to_right() if self._going.left_to_right else self._second_stream()
        logits = logits.float()[:, : self._vocab_size]
        return log_probabilities(logits, self._suppressed, self._end)

    def _left_to_right(self) -> Tensor:
        """Logits (texts, V) of the next token; the newest tokens then go into the memory, if there is one."""
        segments = self._segments([text.newest for text in self._texts])
        packed = segments.packed
        logits, memory = predict_segments(
            self._model, segments, self._memory(), rows=packed.last_tokens, keep=self._going.memory
        )
        if self._going.memory:
            self._texts = [_Text(memory.of([i]), ()) for i in range(len(self._texts))]
        return logits

    def _second_stream(self) -> Tensor:
        """Logits (texts, V) by the second stream: at a position after the newest tokens, which attends to
        them and to which none of them attends."""
        unknown = [0]  # any id: the second stream does not use the token at its own position
        packed = pack([[*text.newest, *unknown] for text in self._texts]).to(self._model.device)
        targets = packed.last_tokens
        when = torch.zeros_like(packed.input_ids).index_fill(0, targets, 1)
        ones = torch.ones_like(when)
        segments = Segments(packed, Visibility(when, ones), targets=targets, target_until=ones[targets])
        return predict_segments(self._model, segments, self._memory())[0]

    def _store(self, chosen: Sequence[int]) -> None:
        """Move the first segment of the newest tokens of these texts into their memories; without a memory
        drop all but the last segment."""
        texts, size = [self._texts[i] for i in chosen], self._going.segment
        if not self._going.memory:
            for i, text in zip(chosen, texts, strict=True):
                self._texts[i] = replace(text, newest=text.newest[-size:])
            return
        segments = self._segments([text.newest[:size] for text in texts])
        before = Memory.joined([text.memory for text in texts])
        _, memory = encode_segments(self._model.encoder, segments, before, keep=self._going.memory)
        for place, (i, text) in enumerate(zip(chosen, texts, strict=True)):
            self._texts[i] = _Text(memory.of([place]), text.newest[size:])

    def _segments(self, tokens: Sequence[Sequence[int]]) -> Segments:
        """Packed tokens with the attention that the model was trained with."""
        packed = pack(tokens).to(self._model.device)
        causally = self._going.left_to_right
        return Segments(packed, causal(packed.lengths, packed.input_ids) if causally else None)

    def _memory(self) -> Memory:
        return Memory.joined([text.memory for text in self._texts])
