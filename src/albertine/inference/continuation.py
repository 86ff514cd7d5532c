"""Texts that a language model goes on with, token by token, however long they grow: what lies far back is
kept as a memory of every depth (Dai et al. 2019, section 3.2), and is not computed again.

A model that was trained left to right has read a token for good when it has read it, so all but the newest
is memory, and a long beginning is read segment by segment. In XLNet's way a token to be predicted is asked
for by the second stream, and what is before it sees itself in both directions; so the newest tokens are read
again for every next one, until there are enough of them to go into the memory as a segment.
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
from albertine.model.two_streams import Segments, predict_segments, read_segments
from albertine.model.visibility import Visibility, causal
from albertine.tokenizers.base import Tokenizer


@dataclass(frozen=True)
class Going:
    """How a text is gone on with.

    Attributes:
        left_to_right: the model was trained so; otherwise it is asked in XLNet's way. None, for
            `Predictor.go_on`: as its folder says.
        memory: most tokens that are remembered, at every depth; 0: the newest up to a segment are read anew
            for every token.
        segment: most tokens that are read at once, which see one another besides what is remembered; in
            XLNet's way the newest up to so many are read anew for every token.
    """

    left_to_right: bool | None = None
    memory: int = 512
    segment: int = 128

    def __post_init__(self) -> None:
        """
        Raises:
            SettingsError: nothing could ever be read.
        """
        if self.segment < 1 or self.memory < 0:
            raise SettingsError(
                f"nothing is read in segments of {self.segment} tokens with a memory of {self.memory}",
                remedy="Use segments of 1 token or more, and a memory of 0 or more",
            )


@dataclass(frozen=True)
class _Text:
    """One text: the memory of its beginning, and the tokens after that."""

    memory: Memory
    newest: tuple[int, ...]


class Continuation:
    """Some texts, and any number of ways to go on with each: what `Speaker` is for sources and targets.

    Attributes:
        first: logarithms of the probabilities of the first token after each text, float32 (texts, V). Special
            pieces but [SEP], which ends a text, have none.
    """

    def __init__(
        self, model: Model, tokenizer: Tokenizer, texts: Sequence[Sequence[int]], going: Going
    ) -> None:
        """
        Args:
            texts: token ids without special pieces, none empty.

        Raises:
            SettingsError: the encoder has no relative positions, or the model no head that predicts tokens.
        """
        self._model, self._going, self._pieces = model, going, tokenizer.vocab_size
        self._end = tokenizer.sep_id
        silent = tokenizer.special_ids - {tokenizer.sep_id}
        self._silent = torch.tensor(sorted(silent), device=model.device)
        like = model.encoder.embeddings.word.weight.new_empty(0, model.config.hidden_size)
        nothing = Memory.empty(1, model.config.num_hidden_layers, like)
        self._texts = [_Text(nothing, tuple(ids)) for ids in texts]
        self.first = self._said()

    def next(self, rows: Sequence[int], tokens: Sequence[int]) -> Tensor:
        """The same after one more token.

        Args: as of `Speaker.next`.
        """
        grown = [(self._texts[row], token) for row, token in zip(rows, tokens, strict=True)]
        self._texts = [replace(text, newest=(*text.newest, token)) for text, token in grown]
        return self._said()

    def _said(self) -> Tensor:
        while long := [i for i, text in enumerate(self._texts) if len(text.newest) > self._going.segment]:
            self._remember(long)
        logits = self._left_to_right() if self._going.left_to_right else self._asked()
        logits = logits.float()[:, : self._pieces]
        return log_probabilities(logits, self._silent, self._end)

    def _left_to_right(self) -> Tensor:
        """Logits (texts, V) of what follows the newest tokens, which then are memory, if there is one."""
        segments = self._segments([text.newest for text in self._texts])
        packed = segments.packed
        logits, memory = predict_segments(
            self._model, segments, self._memory(), rows=packed.last_tokens, keep=self._going.memory
        )
        if self._going.memory:
            self._texts = [_Text(memory.of([i]), ()) for i in range(len(self._texts))]
        return logits

    def _asked(self) -> Tensor:
        """Logits (texts, V) by the second stream: of a place behind the newest tokens, which sees them and
        which none of them sees."""
        unknown = [0]  # whatever stands in that place: the second stream does not look at it
        packed = pack([[*text.newest, *unknown] for text in self._texts]).to(self._model.device)
        asked = packed.last_tokens
        when = torch.zeros_like(packed.input_ids).index_fill(0, asked, 1)
        ones = torch.ones_like(when)
        segments = Segments(packed, Visibility(when, ones), targets=asked, asking=ones[asked])
        return predict_segments(self._model, segments, self._memory())[0]

    def _remember(self, chosen: Sequence[int]) -> None:
        """Take the first segment of the newest tokens of some texts into their memories; without a memory
        leave out all but the last segment."""
        texts, size = [self._texts[i] for i in chosen], self._going.segment
        if not self._going.memory:
            for i, text in zip(chosen, texts, strict=True):
                self._texts[i] = replace(text, newest=text.newest[-size:])
            return
        segments = self._segments([text.newest[:size] for text in texts])
        before = Memory.joined([text.memory for text in texts])
        _, memory = read_segments(self._model.encoder, segments, before, keep=self._going.memory)
        for place, (i, text) in enumerate(zip(chosen, texts, strict=True)):
            self._texts[i] = _Text(memory.of([place]), text.newest[size:])

    def _segments(self, tokens: Sequence[Sequence[int]]) -> Segments:
        """Some tokens of some texts, as the model was trained to read them."""
        packed = pack(tokens).to(self._model.device)
        causally = self._going.left_to_right
        return Segments(packed, causal(packed.lengths, packed.input_ids) if causally else None)

    def _memory(self) -> Memory:
        return Memory.joined([text.memory for text in self._texts])
