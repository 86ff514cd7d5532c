"""Word, position and segment embeddings, and the mapping of width E to H."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from albertine.core.batch import Packed
from albertine.errors import SettingsError
from albertine.model.backend import Linear
from albertine.model.config import EncoderConfig


def _table(rows: int, width: int) -> nn.Embedding:
    """An uninitialised embedding; `initialize` or a checkpoint fills it. torch's own initialisation on the
    device "meta" imports its compiler, which takes longer than importing torch."""
    return nn.Embedding(rows, width, _weight=torch.empty(rows, width))


class Embeddings(nn.Module):
    """Sum of the embeddings of width E → LayerNorm(E) → dropout → dense E→H (Google's `modeling.py`).

    The mapping exists only where the configuration has it, and nothing follows it. A pre-norm encoder maps
    the sum first, and normalises it at width H; brightmart maps the word embeddings alone.

    Attributes:
        mapping_input: as in `EncoderConfig`.
        position, token_type: None where positions and segments are encoded elsewhere or not at all.
        num_segments, max_length: as in `EncoderConfig`.
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        width, hidden = config.embedding_size, config.hidden_size
        self.mapping_input, self.max_length = config.mapping_input, config.max_sequence_length
        self.dropout = config.hidden_dropout_prob
        self.word = _table(config.vocab_size, width)
        added = hidden if self.mapping_input == "words" else width
        learned = config.positions == "learned"
        self.position = _table(config.max_position_embeddings, added) if learned else None
        segments = config.type_vocab_size and config.positions != "relative"
        self.token_type = _table(config.type_vocab_size, added) if segments else None
        self.num_segments = config.num_segments
        normed = width if self.mapping_input == "normed" else hidden
        norm = nn.LayerNorm(normed, config.layer_norm_eps, bias=config.biases)
        self.layer_norm = norm if config.embedding_norm else nn.Identity()
        biases = config.biases and self.mapping_input != "words"
        self.mapping = Linear(width, hidden, biases) if config.has_mapping else None

    def forward(self, packed: Packed, dtype: torch.dtype) -> Tensor:
        """(T, H) in `dtype`. The sum and its LayerNorm stay in float32, the format of the parameters: they
        are cheap, and every later layer depends on them."""
        x = self.word(packed.input_ids)  # (T, E), and (T, H) from the mapping on
        if self.mapping_input == "words":
            x = self._to_hidden(x, dtype)
        if self.token_type is not None:
            types = packed.token_type_ids
            # With a single segment id in the table a second text has that one too.
            x = x + self.token_type(types if self.num_segments else torch.zeros_like(types))
        if self.position is not None:
            x = x + self.position(packed.position_ids)
        if self.mapping_input == "sum":
            x = self._to_hidden(x, dtype)
        x = F.dropout(self.layer_norm(x), self.dropout, self.training).to(dtype)
        return self._to_hidden(x, dtype) if self.mapping_input == "normed" else x

    def _to_hidden(self, x_TE: Tensor, dtype: torch.dtype) -> Tensor:
        """(T, E) to (T, H) by a product in `dtype`, in the format of x."""
        return x_TE if self.mapping is None else self.mapping(x_TE.to(dtype)).to(x_TE.dtype)  # type: ignore[no-any-return]

    def check_length(self, length: int) -> None:
        """Refuse a sequence that is longer than the position table or the coordinate embeddings."""
        if self.max_length is not None and length > self.max_length:
            raise SettingsError(
                f"a sequence of {length} tokens is longer than the model's {self.max_length} positions",
                remedy="Truncate the text, or split it into windows",
            )
