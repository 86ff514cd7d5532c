"""What a model computes for each token of a text, without pooling: last states, and sparse vectors over the
vocabulary."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from albertine.core.token_batches import batch_longest_first, batch_padded
from albertine.inference.embedding import TextEmbedder, rows_of
from albertine.inference.exported_model import ExportedModel
from albertine.inference.inference_mode import without_gradients
from albertine.inference.probabilities import check_finite
from albertine.tokenizers.base import Tokenizer

if TYPE_CHECKING:
    from albertine.model.model import Model

LOGIT_ROWS = 1024
"""Tokens whose logits over the vocabulary are in memory at once; a longer text is computed alone."""
IdRows = list[list[int]]


class SparseVector(NamedTuple):
    """Weights of the tokens of the vocabulary that are not zero.

    Attributes:
        ids: int64 (n,), ascending. weights: float32 (n,), positive.
    """

    ids: NDArray[np.int64]
    weights: NDArray[np.float32]


def token_vectors(
    embedder: TextEmbedder, texts: Sequence[str], *, check: bool = True
) -> tuple[list[NDArray[np.float32]], int]:
    """The last state of every token of every text, special tokens included, float32 (tokens, H) each, and the
    number of truncated texts. Texts are read as for vectors.

    Args:
        check: raise if a number is not finite; otherwise it is returned unchanged.

    Raises:
        NotFinite: names the text.
    """
    model = embedder.model
    rows, cut = rows_of(embedder.tokenizer, embedder.tokens(texts), embedder.limit)
    ids, types = ([row[part] for row in rows] for part in (0, 1))
    lengths = [len(row) for row in ids]
    found: list[NDArray[np.float32]] = [np.empty((0, 0), np.float32)] * len(ids)
    batches = batch_padded if isinstance(model, ExportedModel) else batch_longest_first
    for chosen in batches(lengths, model.tokens_per_pass):
        part = [ids[i] for i in chosen], [types[i] for i in chosen]
        states = model.states(*part) if isinstance(model, ExportedModel) else _states(model, *part)
        for i, own in zip(chosen, states, strict=True):
            found[i] = own
    if check:
        check_finite(found, "text")
    return found, cut


def sparse_vectors(
    model: Model | ExportedModel,
    tokenizer: Tokenizer,
    texts: Sequence[str],
    where: object,
    *,
    check: bool = True,
) -> tuple[list[SparseVector], int]:
    """The sparse vector of every text by the masked-LM head, and the number of truncated texts.

    The weight of a token of the vocabulary is the maximum over the tokens of the text, special ones included,
    of log(1 + relu(logit)): SPLADE with max pooling (Formal et al., 2021, "SPLADE v2", equation 6), as
    `SpladePooling` of sentence-transformers and text-embeddings-inference compute it.

    Args:
        where: the model's name, for messages.
        check: raise if a logit is not finite; otherwise the weight is NaN or infinite.

    Raises:
        ModelError: the model has no masked-LM head. NotFinite: names the text.
    """
    if isinstance(model, ExportedModel):
        model.check_mlm_head()
    else:
        from albertine.inference.pretraining_heads import check_mlm_head

        check_mlm_head(model, where)
    limit = model.config.max_position_embeddings
    encoded = tokenizer.encode_batch([tokenizer.head(text, limit) for text in texts])
    rows, cut = rows_of(tokenizer, encoded, limit)
    ids, types = ([row[part] for row in rows] for part in (0, 1))
    found: list[SparseVector] = [SparseVector(np.empty(0, np.int64), np.empty(0, np.float32))] * len(ids)
    for chosen in batch_longest_first([len(row) for row in ids], LOGIT_ROWS):
        for i, logits_V in zip(chosen, _highest(model, ids, types, chosen), strict=True):
            # The vocabulary of the model may be padded with tokens that do not exist.
            weights_V = np.log1p(np.maximum(logits_V[: tokenizer.vocab_size], 0.0))
            (own,) = np.nonzero(weights_V)  # NaN among them
            found[i] = SparseVector(own, weights_V[own])
    if check:
        check_finite([one.weights for one in found], "text")
    return found, cut


def _highest(
    model: Model | ExportedModel, ids: IdRows, types: IdRows, chosen: Sequence[int]
) -> Iterator[NDArray[np.float32]]:
    """For every chosen row the highest logit of each token of the vocabulary, (V,)."""
    rows, segments = [ids[i] for i in chosen], [types[i] for i in chosen]
    if isinstance(model, ExportedModel):
        # One at a time: a graph returns the logits of all rows of a batch, padded to the longest.
        for row, segment in zip(rows, segments, strict=True):
            yield model.words([row], [segment], [range(len(row))])[0].max(0)
        return
    yield from _highest_by_torch(model, rows, segments)


@without_gradients
def _highest_by_torch(model: Model, rows: IdRows, segments: IdRows) -> list[NDArray[np.float32]]:
    from albertine.core.batch import pack

    with model.encoder.forward_pass():
        x_TH = model.encoder(pack(rows, segments).to(model.device)).last_hidden
        logits_TV = model.mlm_logits(x_TH).float()
    parts = logits_TV.split_with_sizes([len(row) for row in rows])
    return [own_LV.amax(0).cpu().numpy() for own_LV in parts]


@without_gradients
def _states(model: Model, ids: IdRows, types: IdRows) -> list[NDArray[np.float32]]:
    """The last states of rows by a torch model, (tokens, H) each."""
    from albertine.core.batch import pack

    x_TH = model.encoder(pack(ids, types).to(model.device)).last_hidden.float().cpu().numpy()
    return np.split(x_TH, np.cumsum([len(row) for row in ids])[:-1])
