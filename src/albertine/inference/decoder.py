"""Incremental decoding of sources, token by token, with a KV cache."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from albertine.core.batch import pack
from albertine.errors import NotFinite
from albertine.model.incremental_decoding import decode_step
from albertine.model.model import Model
from albertine.tokenizers.base import Tokenizer


class Decoder:
    """Sources, encoded once, and any number of continuations of each.

    Attributes:
        first: log-probabilities of the first token after each source, float32 (sources, V). Special tokens
            except [SEP], which ends a text, are suppressed.
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
            unknown: allow [UNK], where the caller takes the characters from the source.
        """
        self._model, self._vocab_size = model, tokenizer.vocab_size
        self._end = tokenizer.sep_id
        allowed = {tokenizer.sep_id} | ({tokenizer.unk_id} if unknown else set())
        self._suppressed = torch.tensor(sorted(tokenizer.special_ids - allowed), device=model.device)
        packed = pack(sources).to(model.device)
        hidden, self._cache = decode_step(model.encoder, packed)
        self.first = self._log_probabilities(hidden[packed.cu_seqlens[1:].long() - 1])

    def next(self, rows: Sequence[int], tokens: Sequence[int]) -> Tensor:
        """Log-probabilities (rows, V) after one more token.

        Args:
            rows: row numbers of the last result to continue, in any order and number.
            tokens: the token that follows each of them.
        """
        cache = self._cache.select(rows)
        packed = pack([[token] for token in tokens], [[1]] * len(tokens))
        positions = torch.tensor(cache.lengths, device="cpu")
        packed = replace(packed, position_ids=positions).to(self._model.device)
        hidden, self._cache = decode_step(self._model.encoder, packed, cache)
        return self._log_probabilities(hidden)

    def _log_probabilities(self, hidden_RH: Tensor) -> Tensor:
        logits = self._model.mlm_logits(hidden_RH).float()[:, : self._vocab_size]
        return log_probabilities(logits, self._suppressed, self._end)


def log_probabilities(logits: Tensor, suppressed: Tensor, end: int) -> Tensor:
    """Log-softmax of logits (rows, V) without the suppressed tokens.

    Args:
        suppressed: token ids, int64, that get probability 0. end: a token id that is not suppressed.

    Raises:
        NotFinite: a logit is NaN or infinite.
    """
    found = logits.index_fill(1, suppressed, float("-inf")).log_softmax(-1)
    if not bool(torch.isfinite(found[:, end]).all()):  # one such logit makes its whole row NaN
        raise NotFinite
    return found
