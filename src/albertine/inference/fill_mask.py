"""Predictions of masked tokens."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from albertine.core.token_batches import batch_by_tokens
from albertine.errors import DataError, NotFinite, SettingsError, check_integer
from albertine.inference.exported_model import ExportedModel
from albertine.inference.probabilities import softmax
from albertine.tokenizers.base import Tokenizer

if TYPE_CHECKING:
    from albertine.model.model import Model

MASK = "[MASK]"
MAX_MASKS = 1024
"""Masks whose logits over the vocabulary are in memory at once."""
_Rows = Sequence[Sequence[int]]


@dataclass(frozen=True)
class Guess:
    """One candidate for a masked position: the token, its id and its probability in [0, 1]."""

    token: str
    token_id: int
    probability: float


def fill_masks(
    model: Model | ExportedModel,
    tokenizer: Tokenizer,
    texts: Sequence[str | Sequence[int]],
    top_k: int | Sequence[int],
    where: object,
    among: Sequence[Collection[int] | None] | None = None,
    *,
    check: bool = True,
) -> tuple[list[list[list[Guess]]], int]:
    """The top-k tokens for every mask of every text, best first, and the number of truncated texts, whose
    masks beyond the maximum length get no prediction. Special tokens are never predicted.

    Args:
        texts: or the token ids of one, as `Tokenizer.encode_with_special_tokens` gives them.
        top_k: candidates for each mask; one number, or one for each text.
        where: the model's name, for messages.
        among: for each text the only token ids to choose from, or None for all; probabilities stay those over
            the whole vocabulary.
        check: raise if a logit is not finite; otherwise all probabilities of such a text are NaN.

    Raises:
        ModelError: the model has no masked-LM head. DataError: a text has no mask within the maximum length.
            SettingsError: `top_k` is below 1, or the number of `top_k` or `among` is not that of the texts.
            NotFinite: a logit is NaN or infinite; names the text.
    """
    compute_logits: Callable[[_Rows, _Rows, _Rows], list[NDArray[np.float32]]]
    if isinstance(model, ExportedModel):
        model.check_mlm_head()
        compute_logits = model.words
    else:
        from albertine.inference.pretraining_heads import check_mlm_head, masked_token_logits

        check_mlm_head(model, where)
        compute_logits = partial(masked_token_logits, model)
    length = model.config.max_position_embeddings
    encoded = [
        tokenizer.encode_with_special_tokens(text) if isinstance(text, str) else text for text in texts
    ]
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
    not_finite: list[int] = []
    for chosen in batch_by_tokens(range(len(rows)), [len(masks) for masks in places], MAX_MASKS):
        logits = compute_logits(*([part[i] for i in chosen] for part in (rows, types, places)))
        for i, own in zip(chosen, logits, strict=True):
            if not np.isfinite(own).all():
                not_finite.append(i)
                own = np.full_like(own, np.nan)  # infinities would give numbers
            found.append(_top_tokens(own, tokenizer, counts[i], choices[i]))
    if not_finite and check:
        raise NotFinite.of_items("text", sorted(not_finite))
    cut = sum(len(row) < len(ids) + 2 for row, ids in zip(rows, encoded, strict=True))  # and [CLS], [SEP]
    return found, cut


def _check(counts: Sequence[int], choices: Sequence[object], texts: int) -> None:
    for name, values in (("top_k", counts), ("among", choices)):
        if len(values) != texts:
            raise SettingsError(
                f"{name} has {len(values):,} parts for {texts:,} texts", remedy="Give one a text"
            )
    for count in counts:
        check_integer("top_k", count, 1)


def no_mask(text: str | Sequence[int], length: int) -> DataError:
    """The error for a text without a mask among its first `length` tokens."""
    beyond = f" within the first {length} tokens, which the model reads" if MASK in text else ""
    return DataError(
        f"there is no {MASK} in the text{beyond}",
        remedy="Shorten the text" if beyond else f"Write {MASK} where a word is to be guessed",
    )


def _top_tokens(
    logits_PV: NDArray[np.float32], tokenizer: Tokenizer, top_k: int, among: Collection[int] | None
) -> list[list[Guess]]:
    """The `top_k` most probable tokens of every masked position, among all tokens or the given ids."""
    logits_PV = logits_PV[:, : tokenizer.vocab_size].copy()
    logits_PV[:, sorted(tokenizer.special_ids)] = -np.inf
    probabilities = softmax(logits_PV)
    open_V = np.full(logits_PV.shape[1], among is None)
    open_V[sorted(among or ())] = True
    open_V[sorted(tokenizer.special_ids)] = False
    choice = np.flatnonzero(open_V)
    best = choice[np.argsort(-logits_PV[:, choice], axis=-1, kind="stable")[:, :top_k]]
    return [
        [Guess(tokenizer.id_to_piece(token), token, float(row[token])) for token in tokens]
        for tokens, row in zip(best.tolist(), probabilities, strict=True)
    ]
