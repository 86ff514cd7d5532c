"""The heads of pretraining: pooler, masked-LM head, and the two-way sentence head (SOP or NSP)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from albertine.core.precision import without_autocast
from albertine.model.backend import current
from albertine.model.config import EncoderConfig
from albertine.model.embeddings import Embeddings
from albertine.model.layers import LayerNorm, Linear
from albertine.model.output_projection import way_back


class Pooler(nn.Module):
    """Dense H→H and tanh on the token that stands for a sequence."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.dense = Linear(config.hidden_size, config.hidden_size, config.biases)

    @without_autocast
    def forward(self, summary_SH: Tensor) -> Tensor:
        """(S, H) rows of [CLS] to (S, H), in their format."""
        return torch.tanh(self.dense(summary_SH))


class MaskedLMHead(nn.Module):
    """Dense H→E, activation, LayerNorm(E), then the word embeddings transposed and a bias (Google's
    `modeling.py`).

    With E = H this is BERT's head. Where words are mapped before the LayerNorm (ModernBERT's order, and
    brightmart's), the head is H wide and its rows go back to E through the transposed mapping: it is tied to
    both factors of the embeddings.
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.activation = config.hidden_act
        width = config.embedding_size if config.mapped == "normed" else config.hidden_size
        self.dense = Linear(config.hidden_size, width, config.biases)
        self.layer_norm = LayerNorm(width, config.layer_norm_eps, bias=config.biases)
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))

    @without_autocast
    def forward(self, rows_PH: Tensor, embeddings: Embeddings) -> Tensor:
        """(P, H) wanted rows to logits (P, V), tied to the embeddings, in the format of the rows."""
        x_PE = self.layer_norm(current().activated(self.dense, rows_PH, self.activation))
        if embeddings.mapped != "normed" and embeddings.mapping is not None:
            x_PE = way_back(embeddings.mapping, x_PE)
        return current().tied(x_PE, embeddings.word.weight, self.bias)


class SentenceHead(nn.Module):
    """Two logits from the pooled output; label 0 = in order (or truly next), 1 = swapped (or random).

    Google's has no dropout; transformers' ALBERT (5.23.0) has `classifier_dropout_prob`.
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.dropout = config.classifier_dropout_prob if config.sentence_dropout else 0.0
        self.classifier = Linear(config.hidden_size, 2)

    @without_autocast
    def forward(self, pooled_SH: Tensor) -> Tensor:
        """(S, H) to (S, 2)."""
        return self.classifier(F.dropout(pooled_SH, self.dropout, self.training))  # type: ignore[no-any-return]
