"""The head of XLNet and Transformer-XL."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from albertine.core.precision import without_autocast
from albertine.model.backend import current
from albertine.model.config import EncoderConfig
from albertine.model.embeddings import Embeddings
from albertine.model.output_projection import way_back


class LanguageModelHead(nn.Module):
    """The word embeddings transposed and a bias, with nothing between.

    Attributes:
        query: what a row knows that is to predict a token and does not see it, (H,): the start of XLNet's
            second stream (Yang et al. 2019, section 2.3).
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.query = nn.Parameter(torch.zeros(config.hidden_size))
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))

    @without_autocast
    def forward(self, rows_PH: Tensor, embeddings: Embeddings) -> Tensor:
        """(P, H) wanted rows to logits (P, V), tied to the embeddings, back through their mapping to H where
        there is one."""
        x_PE = rows_PH if embeddings.mapping is None else way_back(embeddings.mapping, rows_PH)
        return current().tied(x_PE, embeddings.word.weight, self.bias)
