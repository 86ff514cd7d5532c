"""Pretraining heads: pooler, masked-LM head, XLNet's language-model head, and the sentence head (SOP or
NSP)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from albertine.core.precision import without_autocast
from albertine.model.backend import LayerNorm, Linear, current
from albertine.model.config import EncoderConfig
from albertine.model.embeddings import Embeddings


class Pooler(nn.Module):
    """Dense H→H and tanh on the summary token of a sequence."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.dense = Linear(config.hidden_size, config.hidden_size, config.biases)

    @without_autocast
    def forward(self, summary_SH: Tensor) -> Tensor:
        """[CLS] rows (S, H) to (S, H), in their format."""
        return torch.tanh(self.dense(summary_SH))


class MaskedLMHead(nn.Module):
    """Dense H→E, activation, LayerNorm(E), then the transposed word embeddings and a bias (Google's
    `modeling.py`).

    With E = H this is BERT's head. Where word embeddings are mapped before the LayerNorm (ModernBERT's order,
    and brightmart's), the head is H wide and its rows return to E through the transposed mapping: it is tied
    to both factors of the embeddings.

    Attributes:
        output: (V, E), in place of the word embeddings (`output: own`), with a head that is E wide in any
            case; None: tied.
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.activation = config.hidden_act
        own = config.output == "own"
        width = config.embedding_size if own or config.mapping_input == "normed" else config.hidden_size
        self.dense = Linear(config.hidden_size, width, config.biases)
        self.layer_norm = LayerNorm(width, config.layer_norm_eps, bias=config.biases)
        self.output = _own_output(config)
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))

    @without_autocast
    def forward(self, rows_PH: Tensor, embeddings: Embeddings) -> Tensor:
        """Predicted positions (P, H) to logits (P, V), in the format of the rows."""
        x_PE = self.layer_norm(current().activated(self.dense, rows_PH, self.activation))
        if self.output is not None:
            return current().tied(x_PE, self.output, self.bias)
        if embeddings.mapping_input != "normed" and embeddings.mapping is not None:
            x_PE = project_to_embeddings(embeddings.mapping, x_PE)
        return current().tied(x_PE, embeddings.word.weight, self.bias)


class LanguageModelHead(nn.Module):
    """Head of XLNet and Transformer-XL: the transposed word embeddings and a bias.

    Attributes:
        query: initial query stream (H,) of every target (Yang et al. 2019, section 2.3).
        output: (V, E), in place of the word embeddings (`output: own`); None: tied.
        dense: H→E before it, where E ≠ H; without `output` the transposed mapping.
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.query = nn.Parameter(torch.zeros(config.hidden_size))
        self.output = _own_output(config)
        mapped = self.output is not None and config.embedding_size != config.hidden_size
        self.dense = Linear(config.hidden_size, config.embedding_size, bias=False) if mapped else None
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))

    @without_autocast
    def forward(self, rows_PH: Tensor, embeddings: Embeddings) -> Tensor:
        """Predicted positions (P, H) to logits (P, V), through the transposed mapping to H where there is
        one."""
        if self.output is not None:
            x_PE = rows_PH if self.dense is None else self.dense(rows_PH)
            return current().tied(x_PE, self.output, self.bias)
        mapping = embeddings.mapping
        x_PE = rows_PH if mapping is None else project_to_embeddings(mapping, rows_PH)
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


def _own_output(config: EncoderConfig) -> nn.Parameter | None:
    """An output matrix (V, E) beside the word embeddings, uninitialised; None where they are tied."""
    if config.output == "tied":
        return None
    return nn.Parameter(torch.empty(config.vocab_size, config.embedding_size))


def project_to_embeddings(mapping: nn.Module, x_PH: Tensor) -> Tensor:
    """Tied output projection: (P, H) to (P, E) through the transposed E→H mapping, in the format of the
    rows."""
    ops = current()
    return F.linear(*ops.pad_columns(x_PH, ops.cast(_mapping_matrix(mapping), x_PH.dtype).T))


def _mapping_matrix(mapping: nn.Module) -> Tensor:
    """(H, E), the matrix that a mapping multiplies by."""
    weight: Tensor = mapping.weight  # type: ignore[assignment]
    if type(mapping) is Linear:
        return weight
    # `weight` may be only a part of a replaced layer, as of an adapter: evaluate it on the identity and on
    # zero.
    width = weight.shape[1]
    outputs: Tensor = mapping(weight.new_zeros(width + 1, width).fill_diagonal_(1))
    return (outputs[:-1] - outputs[-1]).T
