"""Word, position and segment embeddings, and the mapping of width E to H."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from albertine.core.batch import Packed
from albertine.errors import SettingsError
from albertine.model.config import EncoderConfig
from albertine.model.layers import Linear, Module


def _table(rows: int, width: int) -> nn.Embedding:
    """An embedding that nobody has filled; `initialize` or a checkpoint does. torch's own way to fill one on
    the device "meta" imports its compiler, which takes longer than torch itself."""
    return nn.Embedding(rows, width, _weight=torch.empty(rows, width))


class Embeddings(Module):
    """Sum of the embeddings of width E → LayerNorm(E) → dropout → dense E→H (Google's `modeling.py`).

    The dense mapping has nothing after it, and exists only where the configuration says so. A pre-norm
    encoder's sum is mapped first, and normalised when it is H wide; brightmart maps the words alone.

    Attributes:
        mapped: what the mapping is applied to, as in `EncoderConfig`.
        position, token_type: None where positions and segments are not told here.
        kinds: how many kinds of segments are told apart; None: none.
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        width, hidden = config.embedding_size, config.hidden_size
        self.mapped, self.longest = config.mapped, config.longest_sequence
        self.dropout = config.hidden_dropout_prob
        self.word = _table(config.vocab_size, width)
        added = hidden if self.mapped == "words" else width
        learned = config.positions == "learned"
        self.position = _table(config.max_position_embeddings, added) if learned else None
        told_apart = config.type_vocab_size and config.positions != "relative"
        self.token_type = _table(config.type_vocab_size, added) if told_apart else None
        self.kinds = config.segments_told_apart
        normed = width if self.mapped == "normed" else hidden
        norm = nn.LayerNorm(normed, config.layer_norm_eps, bias=config.biases)
        self.layer_norm = norm if config.embedding_norm else nn.Identity()
        biases = config.biases and self.mapped != "words"
        self.mapping = Linear(width, hidden, biases) if config.has_mapping else None

    def forward(self, packed: Packed, dtype: torch.dtype) -> Tensor:
        """(T, H) in `dtype`. The sum and its LayerNorm keep the format of the parameters, float32: they are
        narrow, and everything rests on them."""
        x = self.word(packed.input_ids)  # (T, E), and (T, H) from the mapping on
        if self.mapped == "words":
            x = self._to_hidden(x, dtype)
        if self.token_type is not None:
            types = packed.token_type_ids  # of one kind, a second text is of that too
            x = x + self.token_type(types if self.kinds else torch.zeros_like(types))
        if self.position is not None:
            x = x + self.position(packed.position_ids)
        if self.mapped == "sum":
            x = self._to_hidden(x, dtype)
        x = F.dropout(self.layer_norm(x), self.dropout, self.training).to(dtype)
        return self._to_hidden(x, dtype) if self.mapped == "normed" else x

    def _to_hidden(self, x_TE: Tensor, dtype: torch.dtype) -> Tensor:
        """x mapped to H by a product in `dtype`, in the format of x."""
        return x_TE if self.mapping is None else self.mapping(x_TE.to(dtype)).to(x_TE.dtype)  # type: ignore[no-any-return]

    def check_length(self, longest: int) -> None:
        """Refuse a sequence longer than the table of positions, or of their signals at every depth."""
        if self.longest is not None and longest > self.longest:
            raise SettingsError(
                f"a sequence of {longest} tokens is longer than the model's {self.longest} positions",
                remedy="Truncate the text, or split it into windows",
            )
