"""How likely a masked language model finds a sentence: its pseudo-log-likelihood.

The sum over the tokens of a sentence of log p(token | all the others), each token masked by itself (Salazar
et al. 2020, "Masked Language Model Scoring", section 2): as many masked copies as there are tokens. What
copies have in common is computed once: sentences that come again, and the copies of two sentences that differ
in the masked token alone, as those of many minimal pairs do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from albertine.core.batch import Packed, pack
from albertine.core.token_batches import batch_by_tokens, batch_longest_first
from albertine.errors import ModelError, NotFinite, SettingsError
from albertine.inference.probabilities import check_finite
from albertine.model.eval_mode import evaluating
from albertine.model.model import Model
from albertine.tokenizers.base import Tokenizer

COPIES = 32768
"""Masked copies that are made and sorted by length at once; bounds the memory, not the result."""

Ints = NDArray[np.int64]


class MaskedInput(NamedTuple):
    """Tokens and segments of one input, [MASK] where it is asked, and what should stand in these places."""

    ids: list[int]
    types: list[int]
    places: list[int]
    labels: list[int]


class TokenScores(NamedTuple):
    """For the places of a question the log-probability of the label in nats, and whether it is the model's
    first choice."""

    log_probabilities: NDArray[np.float64]
    right: NDArray[np.bool_]


class TextScores(NamedTuple):
    """Of every text the pseudo-log-likelihood in nats, 0 at most, and of how many tokens it is the sum."""

    nats: NDArray[np.float64]
    tokens: Ints


def score_masked_tokens(model: Model, questions: Sequence[MaskedInput]) -> list[TokenScores]:
    """What a model with a masked-LM head says to questions, in their order; segments that it has no vectors
    for are read as the first. Raises NotFinite: a log-probability is not."""
    found: dict[int, TokenScores] = {}
    most = model.config.type_vocab_size - 1
    with evaluating(model), torch.inference_mode():
        lengths = [len(question.ids) for question in questions]
        for chosen in batch_longest_first(lengths, model.tokens_per_pass):
            own = [questions[i] for i in chosen]
            types = [[t if t <= most else 0 for t in question.types] for question in own]
            packed = pack([question.ids for question in own], types).to(model.device)
            first = np.cumsum([0, *packed.lengths[:-1]])
            rows = np.concatenate([at + np.array(q.places) for at, q in zip(first, own, strict=True)])
            labels = torch.tensor([label for q in own for label in q.labels], device=model.device)
            logits_PV = _logits(model, packed, torch.from_numpy(rows).to(model.device))
            logs = logits_PV.gather(1, labels[:, None])[:, 0] - logits_PV.logsumexp(1)
            right = logits_PV.max(1).indices == labels
            cuts = np.cumsum([len(q.places) for q in own])[:-1]
            if not bool(logs.isfinite().all()):
                raise NotFinite
            parts = (np.split(x.cpu().numpy(), cuts) for x in (logs.double(), right))
            found |= {i: TokenScores(*both) for i, both in zip(chosen, zip(*parts, strict=True), strict=True)}
    return [found[i] for i in range(len(questions))]


def _logits(model: Model, packed: Packed, rows: Tensor) -> Tensor:
    """Masked-LM logits at some rows (P, V), float32; the last depth computes no others."""
    with model.encoder.computing():
        return model.mlm_logits(model.encoder(packed, rows=rows).last_hidden).float()


class PseudoLikelihood:
    """Scores sentences with a model.

    Args:
        where: the folder of the model, for messages.

    Raises:
        ModelError: the model has no masked-LM head.
    """

    def __init__(self, model: Model, tokenizer: Tokenizer, where: Path | None = None) -> None:
        if model.mlm is None:
            raise ModelError(
                "has no masked-LM head, so no sentence can be scored with it",
                where=where,
                remedy="Name a pretrained model",
            )
        self.model, self.tokenizer = model, tokenizer

    def __call__(
        self, texts: Sequence[str], progress: Callable[[int, int | None], None] = lambda done, total: None
    ) -> TextScores:
        """Every text, summed over its tokens without [CLS] and [SEP]; (texts,) each.

        Args:
            progress: told how many of how many tokens were scored.

        Raises:
            SettingsError: a text is longer than the model reads. NotFinite: a sum is not; names the text.
        """
        place = {text: i for i, text in enumerate(dict.fromkeys(texts))}
        rows = [self.tokenizer.layout(ids) for ids in self.tokenizer.encode_batch(list(place))]
        self._check(rows, list(place))
        edges = (self.tokenizer.cls_id, self.tokenizer.sep_id)
        targets = [[i for i, token in enumerate(ids) if token not in edges] for ids, _ in rows]
        sums = np.zeros(len(rows))
        total, done = sum(map(len, targets)), 0
        with evaluating(self.model), torch.inference_mode():
            for chunk in batch_by_tokens(range(len(rows)), [len(t) for t in targets], COPIES):
                copies = _Copies(rows, targets, chunk, self.tokenizer.mask_id)
                # In the order of the tokens of a sentence, so that equal sentences have equal sums.
                np.add.at(sums, copies.sentence, self._log_probabilities(copies))
                done += len(copies.sentence)
                progress(done, total)
        order = [place[text] for text in texts]
        check_finite(sums[order], "text")
        return TextScores(sums[order], np.array([len(t) for t in targets], dtype=np.int64)[order])

    def _check(self, rows: Sequence[tuple[list[int], list[int]]], texts: Sequence[str]) -> None:
        limit = self.model.config.max_position_embeddings
        for (ids, _), text in zip(rows, texts, strict=True):
            if len(ids) > limit:
                raise SettingsError(
                    f"the sentence `{text:.60}` has {len(ids)} tokens, and the model reads {limit}",
                    remedy="Use a model with more positions",
                )

    def _log_probabilities(self, copies: _Copies) -> NDArray[np.float64]:
        """Of every token that some copy is to predict."""
        device, found = self.model.device, np.empty(len(copies.token))
        for chosen in batch_longest_first(copies.lengths, self.model.tokens_per_pass):
            packed = pack([copies.ids[i] for i in chosen], [copies.types[i] for i in chosen]).to(device)
            rows = packed.first_tokens + torch.from_numpy(copies.position[chosen]).to(device)
            logits_PV = _logits(self.model, packed, rows)
            which, row = copies.asked_of(chosen)
            at, token = torch.from_numpy(row).to(device), torch.from_numpy(copies.token[which]).to(device)
            scores = logits_PV[at, token] - logits_PV.logsumexp(1)[at]
            found[which] = scores.double().cpu().numpy()
        return found


class _Copies:
    """Masked copies of some sentences, none twice, and what they are asked.

    Attributes:
        ids, types, position, lengths: of every copy its tokens, its segments, its masked place, its length.
        sentence, token: of every question the sentence and the token that is to be predicted.
    """

    def __init__(
        self,
        rows: Sequence[tuple[list[int], list[int]]],
        targets: Sequence[Sequence[int]],
        chosen: Sequence[int],
        mask_id: int,
    ) -> None:
        number: dict[bytes, int] = {}
        self.ids: list[Ints] = []
        self.types: list[list[int]] = []
        self._asked: list[list[int]] = []
        sentence, position = [], []
        token: list[int] = []
        for s in chosen:
            ids = np.array(rows[s][0], dtype=np.int64)
            for place in targets[s]:
                masked = ids.copy()
                masked[place] = mask_id
                # A text cannot spell [MASK], so the masked ids alone tell which place is asked for.
                c = number.setdefault(masked.tobytes(), len(number))
                if c == len(self.ids):
                    self.ids.append(masked)
                    self.types.append(rows[s][1])
                    position.append(place)
                    self._asked.append([])
                self._asked[c].append(len(token))
                sentence.append(s)
                token.append(int(ids[place]))
        self.sentence, self.token = np.array(sentence, dtype=np.int64), np.array(token, dtype=np.int64)
        self.position = np.array(position, dtype=np.int64)
        self.lengths = [len(ids) for ids in self.ids]

    def asked_of(self, chosen: Sequence[int]) -> tuple[Ints, Ints]:
        """The questions to some copies, and for each of them which of these copies it is asked of."""
        parts = [self._asked[c] for c in chosen]
        return np.concatenate(parts), np.repeat(np.arange(len(parts)), [len(p) for p in parts])
