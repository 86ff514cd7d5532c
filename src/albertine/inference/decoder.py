"""A model that is asked, token by token, how its sources go on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from albertine.core.batch import pack
from albertine.errors import NotFinite
from albertine.model.incremental_decoding import read_on
from albertine.model.model import Model
from albertine.tokenizers.base import Tokenizer


class Decoder:
    """Some sources, read once, and any number of continuations of each.

    Attributes:
        first: logarithms of the probabilities of the first token after each source, float32 (sources, V).
            Special pieces but [SEP], which ends a text, have none: a text does not hold them.
    """

    def __init__(
        self,
        model: Model,
        tokenizer: Tokenizer,
        sources: Sequence[Sequence[int]],
        *,
        unknown: bool = False,
    ) -> None:
        """
        Args:
            unknown: let the model say [UNK], where a reader knows what stands there.
        """
        self._model, self._pieces = model, tokenizer.vocab_size
        self._end = tokenizer.sep_id
        said = {tokenizer.sep_id} | ({tokenizer.unk_id} if unknown else set())
        self._silent = torch.tensor(sorted(tokenizer.special_ids - said), device=model.device)
        packed = pack(sources).to(model.device)
        hidden, self._cache = read_on(model.encoder, packed)
        self.first = self._said(hidden[packed.cu_seqlens[1:].long() - 1])

    def next(self, rows: Sequence[int], tokens: Sequence[int]) -> Tensor:
        """The same after one more token.

        Args:
            rows: what is gone on with: numbers of rows of the last answer, in any order and number.
            tokens: what each of them is followed by.
        """
        cache = self._cache.of(rows)
        packed = pack([[token] for token in tokens], [[1]] * len(tokens))
        places = torch.tensor(cache.lengths, device="cpu")
        packed = replace(packed, position_ids=places).to(self._model.device)
        hidden, self._cache = read_on(self._model.encoder, packed, cache)
        return self._said(hidden)

    def _said(self, hidden_RH: Tensor) -> Tensor:
        logits = self._model.mlm_logits(hidden_RH).float()[:, : self._pieces]
        return log_probabilities(logits, self._silent, self._end)


def log_probabilities(logits: Tensor, silent: Tensor, end: int) -> Tensor:
    """Those of tokens by their logits (rows, V), in which some have none.

    Args:
        silent: these tokens, int64. end: another token.

    Raises:
        NotFinite: a logit is NaN or infinite.
    """
    found = logits.index_fill(1, silent, float("-inf")).log_softmax(-1)
    if not bool(torch.isfinite(found[:, end]).all()):  # of one such logit a row of NaN
        raise NotFinite
    return found
