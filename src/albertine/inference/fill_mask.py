"""Which pieces stand under the masks of texts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from albertine.core.token_batches import batch_by_tokens
from albertine.errors import DataError, NotFinite, SettingsError, check_integer
from albertine.inference.onnx_session import ExportedModel
from albertine.inference.probabilities import softmax
from albertine.tokenizers.base import Tokenizer

if TYPE_CHECKING:
    from albertine.model.model import Model

MASK = "[MASK]"
MAX_MASKS = 1024
"""Masks whose logits over the vocabulary are held at once."""
_Rows = Sequence[Sequence[int]]


@dataclass(frozen=True)
class Guess:
    """One candidate for a masked position: the piece, its id and its probability in [0, 1]."""

    token: str
    token_id: int
    probability: float


def fill_masks(
    model: Model | ExportedModel,
    tokenizer: Tokenizer,
    texts: Sequence[str],
    top_k: int | Sequence[int],
    where: object,
    among: Sequence[Collection[int] | None] | None = None,
    *,
    check: bool = True,
) -> tuple[list[list[list[Guess]]], int]:
    """The likeliest pieces for every mask of every text, best first, and how many texts the model did not
    read to their end, where masks have none. Special pieces are never guessed.

    Args:
        top_k: of every mask, or of those of each text.
        where: the model's name, for messages.
        among: for every text the ids of the only pieces to choose from, or None for all; their
            probabilities are those among all.
        check: refuse logits that are not finite; without it all probabilities of such a text are NaN.

    Raises:
        ModelError: the model has no head that guesses words. DataError: a text has no mask where the model
            reads. SettingsError: `top_k` is no number from 1, or it or `among` is not one for every text.
            NotFinite: a logit is NaN or infinite; names the text.
    """
    say: Callable[[_Rows, _Rows, _Rows], list[NDArray[np.float32]]]
    if isinstance(model, ExportedModel):
        model.check_mlm_head()
        say = model.words
    else:
        from albertine.inference.pretraining_heads import check_mlm_head, masked_token_logits

        check_mlm_head(model, where)
        say = partial(masked_token_logits, model)
    length = model.config.max_position_embeddings
    encoded = [tokenizer.encode_with_special_tokens(text) for text in texts]
    laid_out = [tokenizer.layout(ids, max_length=length) for ids in encoded]
    rows, types = ([one[part] for one in laid_out] for part in (0, 1))
    places = [[i for i, token in enumerate(ids) if token == tokenizer.mask_id] for ids in rows]
    for text, masks in zip(texts, places, strict=True):
        if not masks:
            raise no_mask(text, length)
    choices = [None] * len(texts) if among is None else among
    counts = top_k if isinstance(top_k, Sequence) else [top_k] * len(texts)
    _check(counts, choices, len(texts))
    found: list[list[list[Guess]]] = []
    spoiled: list[int] = []
    for chosen in batch_by_tokens(range(len(rows)), [len(masks) for masks in places], MAX_MASKS):
        logits = say(*([part[i] for i in chosen] for part in (rows, types, places)))
        for i, own in zip(chosen, logits, strict=True):
            if not np.isfinite(own).all():
                spoiled.append(i)
                own = np.full_like(own, np.nan)  # infinities would give numbers
            found.append(_likeliest(own, tokenizer, counts[i], choices[i]))
    if spoiled and check:
        raise NotFinite.of_items("text", sorted(spoiled))
    cut = sum(len(row) < len(ids) + 2 for row, ids in zip(rows, encoded, strict=True))  # and [CLS], [SEP]
    return found, cut


def _check(counts: Sequence[int], choices: Sequence[object], texts: int) -> None:
    for name, given in (("top_k", counts), ("among", choices)):
        if len(given) != texts:
            raise SettingsError(
                f"{name} has {len(given):,} parts for {texts:,} texts", remedy="Give one a text"
            )
    for count in counts:
        check_integer("top_k", count, 1)


def no_mask(text: str, length: int) -> DataError:
    """That of a text without a mask among the first `length` tokens, which the model reads."""
    beyond = f" within the first {length} tokens, which the model reads" if MASK in text else ""
    return DataError(
        f"there is no {MASK} in the text{beyond}",
        remedy="Shorten the text" if beyond else f"Write {MASK} where a word is to be guessed",
    )


def _likeliest(
    logits_PV: NDArray[np.float32], tokenizer: Tokenizer, top_k: int, among: Collection[int] | None
) -> list[list[Guess]]:
    """For every place the `top_k` likeliest pieces, of all or of some."""
    logits_PV = logits_PV[:, : tokenizer.vocab_size].copy()
    logits_PV[:, sorted(tokenizer.special_ids)] = -np.inf
    chances = softmax(logits_PV)
    open_V = np.full(logits_PV.shape[1], among is None)
    open_V[sorted(among or ())] = True
    open_V[sorted(tokenizer.special_ids)] = False
    choice = np.flatnonzero(open_V)
    best = choice[np.argsort(-logits_PV[:, choice], axis=-1, kind="stable")[:, :top_k]]
    return [
        [Guess(tokenizer.id_to_piece(token), token, float(row[token])) for token in tokens]
        for tokens, row in zip(best.tolist(), chances, strict=True)
    ]
