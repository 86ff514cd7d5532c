"""A model with fewer pieces: rows of the word embeddings, and of the biases of the heads tied to them."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from albertine.model.model import Model

OF_PIECES = ("encoder.embeddings.word.weight", "mlm.bias", "lm.bias")
"""Tensors with a row for every piece."""


def with_pieces(model: Model, kept: Tensor, pad_token_id: int) -> Model:
    """A copy of a model that knows the pieces `kept`, int64 (V',), which it numbers by their places in it.

    Hidden states of a text of these pieces are the same to the bit; of logits the columns of the others are
    gone.

    Args:
        pad_token_id: of the new numbers.
    """
    config = replace(model.config, vocab_size=len(kept), pad_token_id=pad_token_id)
    with torch.device("meta"):
        new = Model(config, model.heads, precision=model.precision)
    state = {
        name: tensor[kept].clone() if name in OF_PIECES else tensor.clone()
        for name, tensor in model.state_dict().items()
    }
    new.load_state_dict(state, assign=True)
    return new.requires_grad_(True).train(model.training)
