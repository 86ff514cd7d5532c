"""Predictions of the pretraining heads: masked tokens and sentence order."""

from __future__ import annotations

from collections.abc import Sequence
from shlex import quote

import numpy as np
import torch
from numpy.typing import NDArray

from albertine.core.batch import pack
from albertine.core.precision import without_autocast
from albertine.core.token_batches import batch_longest_first
from albertine.errors import ModelError
from albertine.inference.probabilities import check_finite
from albertine.model.model import Model
from albertine.tokenizers.base import Tokenizer


def check_mlm_head(model: Model, where: object) -> None:
    """
    Raises:
        ModelError: the model has no masked-LM head.
    """
    if model.mlm is not None:
        return
    if model.lm is None:
        raise ModelError(
            "the model has no masked-LM head", remedy="Use a pretrained model, not a fine-tuned one"
        )
    raise ModelError(
        "is a causal language model, which was not trained with [MASK]",
        where=where,
        remedy=f"Continue a text with it: albertine predict continue {quote(str(where))} TEXT",
    )


@torch.inference_mode()
def masked_token_logits(
    model: Model,
    rows: Sequence[Sequence[int]],
    types: Sequence[Sequence[int]],
    places: Sequence[Sequence[int]],
) -> list[NDArray[np.float32]]:
    """The logits over the vocabulary at these positions of every row, (positions, V) each."""
    found: list[NDArray[np.float32]] = [np.empty(0, np.float32)] * len(rows)
    for chosen in batch_longest_first([len(ids) for ids in rows], model.tokens_per_pass):
        packed = pack([rows[i] for i in chosen], [types[i] for i in chosen])
        counts = [len(places[i]) for i in chosen]
        begins = np.repeat(packed.cu_seqlens[:-1].numpy(), counts)
        wanted = torch.from_numpy(begins + np.concatenate([places[i] for i in chosen]))
        logits, _ = model.pretraining_forward(packed.to(model.device), wanted.to(model.device))
        for i, part in zip(chosen, logits.float().cpu().split_with_sizes(counts), strict=True):
            found[i] = part.numpy()
    return found


@torch.inference_mode()
@without_autocast
def sentence_order_probabilities(
    model: Model, tokenizer: Tokenizer, pairs: Sequence[tuple[str, str]]
) -> tuple[list[float], int]:
    """The probability of the sentence head's first label for every pair, and the number of truncated pairs.

    Raises:
        ModelError: there is no sentence head. NotFinite: a probability is not finite; names the pair.
    """
    if model.sentence is None:
        raise ModelError("the model has no sentence head", remedy="Pretrain with objective.pairs sop or nsp")
    length = model.config.max_position_embeddings
    encoded = [(tokenizer.encode(a), tokenizer.encode(b)) for a, b in pairs]
    rows = [tokenizer.layout(a, b, max_length=length) for a, b in encoded]
    found = torch.empty(len(rows), dtype=torch.float32, device="cpu")
    for chosen in batch_longest_first([len(ids) for ids, _ in rows], model.tokens_per_pass):
        packed = pack([rows[i][0] for i in chosen], [rows[i][1] for i in chosen]).to(model.device)
        with model.encoder.forward_pass():
            summary = model.encoder(packed, rows=model.summary_rows(packed)).last_hidden
            logits = model.sentence_logits(summary)
        found[chosen] = logits.float().softmax(-1)[:, 0].cpu()
    check_finite(found.numpy(), "pair")
    cut = sum(len(ids) < len(a) + len(b) + 3 for (ids, _), (a, b) in zip(rows, encoded, strict=True))
    return list(found.tolist()), cut
