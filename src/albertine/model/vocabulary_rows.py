"""Vocabulary pruning: rows of the word embeddings, and of the output matrices and biases of the heads."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from albertine.model.model import Model

VOCABULARY_ROWS = ("encoder.embeddings.word.weight", "mlm.output", "mlm.bias", "lm.output", "lm.bias")
"""Tensors with a row for every token of the vocabulary."""


def with_pieces(model: Model, kept: Tensor, pad_token_id: int) -> Model:
    """A copy of a model whose vocabulary is the tokens `kept`, int64 (V',), renumbered in this order.

    Hidden states of texts of these tokens are equal to the bit; logits lose the columns of the others.

    Args:
        pad_token_id: in the new numbering.
    """
    config = replace(model.config, vocab_size=len(kept), pad_token_id=pad_token_id)
    with torch.device("meta"):
        new = Model(config, model.heads, precision=model.precision)
    state = {
        name: tensor[kept].clone() if name in VOCABULARY_ROWS else tensor.clone()
        for name, tensor in model.state_dict().items()
    }
    new.load_state_dict(state, assign=True)
    return new.requires_grad_(True).train(model.training)
