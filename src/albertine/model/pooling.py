"""Text vectors: pooling of the states of an encoder.

Exported graphs have the same in `inference/graph_heads.py` (`pooled_table`) and, in NumPy, in
`inference/exported_model.py` (`ExportedModel.vectors`).
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from albertine.core.batch import Packed
from albertine.model.config import HeadInput as HeadInput
from albertine.model.config import Pooling as Pooling
from albertine.model.model import Model


def text_vectors(model: Model, packed: Packed, pooling: Pooling, normalize: bool = False) -> Tensor:
    """A vector for every sequence, (S, H) float32; of unit length with `normalize`.

    For [CLS] the last layer computes only these rows.
    """
    if pooling == "cls":
        x_SH = model.encoder(packed, rows=model.summary_rows(packed)).last_hidden.float()
    elif pooling in ("mean", "depths"):
        out = model.encoder(packed, all_depths=pooling == "depths")
        states = out.hidden_states or (out.last_hidden,)
        x_SH = torch.stack([mean_rows(x_TH.float(), packed.first_tokens) for x_TH in states]).mean(0)
    else:
        raise ValueError(f"pooling {pooling} is not computed here")
    return F.normalize(x_SH, dim=-1) if normalize else x_SH


def mean_rows(x_TH: Tensor, first_tokens: Tensor) -> Tensor:
    """Mean of the rows of each sequence, (S, H).

    Args:
        first_tokens: the first row of each, (S,).
    """
    # `embedding_bag` needs no padding and no loop, and its backward no atomic sums.
    every = torch.arange(len(x_TH), device=x_TH.device)
    return F.embedding_bag(every, x_TH, first_tokens, mode="mean")


def classifier_input(model: Model, packed: Packed, pooling: HeadInput) -> Tensor:
    """Input of a classifier, (S, H): the pooler output of each [CLS], as in google-research/albert's
    `classifier_utils.py`, or a mean."""
    if pooling == "compared" or pooling == "whitened":
        raise ValueError(f"pooling {pooling} is no single row for a classifier")
    if pooling != "cls":
        return text_vectors(model, packed, pooling)
    return model.pooled(model.encoder(packed, rows=model.summary_rows(packed)).last_hidden)
