"""Log-likelihoods of sentences under a masked language model.

Pseudo-log-likelihood is the sum over the tokens of a sentence of log p(token | all other tokens), each token
masked by itself (Salazar et al. 2020, "Masked Language Model Scoring", section 2): one masked copy for each
token. Equal copies are computed once: those of repeated sentences, and those of two sentences that differ in
the masked token alone, as in many minimal pairs.

A model that was also trained causally has a log-likelihood, the sum of log p(token | earlier tokens): one
pass for each sentence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
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
from albertine.model.model import Model, evaluating
from albertine.tokenizers.base import Tokenizer

COPIES = 32768
"""Masked copies that are built and sorted by length at once; bounds the memory, not the result."""

ROWS = 2048
"""Rows whose logits are computed at once; bounds the memory, not the result."""

Ints = NDArray[np.int64]
Progress = Callable[[int, int | None], None]
Layout = tuple[list[int], list[int]]
"""Token and segment ids of a sentence with its special tokens."""
Scored = tuple[Ints, NDArray[np.float64]]
"""The sentence of every target token, and its log-probability."""


class MaskedInput(NamedTuple):
    """Token and segment ids of one input with [MASK] at some positions, these positions, and the original
    tokens there."""

    ids: list[int]
    types: list[int]
    places: list[int]
    labels: list[int]


class TokenScores(NamedTuple):
    """For the masked positions of an input the log-probability of the label in nats, and whether the label is
    the model's top prediction."""

    log_probabilities: NDArray[np.float64]
    right: NDArray[np.bool_]


class TextScores(NamedTuple):
    """The log-likelihood of every text in nats, at most 0, and the number of tokens summed."""

    nats: NDArray[np.float64]
    tokens: Ints


def score_masked_tokens(model: Model, inputs: Sequence[MaskedInput]) -> list[TokenScores]:
    """Score masked inputs with a masked-LM head, in their order; segment ids that the model has no embedding
    for are read as 0. Raises NotFinite: a log-probability is not finite."""
    found: dict[int, TokenScores] = {}
    most = model.config.type_vocab_size - 1
    with evaluating(model), torch.inference_mode():
        lengths = [len(one.ids) for one in inputs]
        for chosen in batch_longest_first(lengths, model.tokens_per_pass):
            own = [inputs[i] for i in chosen]
            types = [[t if t <= most else 0 for t in one.types] for one in own]
            packed = pack([one.ids for one in own], types).to(model.device)
            first = np.cumsum([0, *packed.lengths[:-1]])
            rows = np.concatenate([at + np.array(one.places) for at, one in zip(first, own, strict=True)])
            labels = torch.tensor([label for one in own for label in one.labels], device=model.device)
            logits_PV = _logits(model, packed, torch.from_numpy(rows).to(model.device))
            logs = logits_PV.gather(1, labels[:, None])[:, 0] - logits_PV.logsumexp(1)
            right = logits_PV.max(1).indices == labels
            cuts = np.cumsum([len(one.places) for one in own])[:-1]
            if not bool(logs.isfinite().all()):
                raise NotFinite
            parts = (np.split(x.cpu().numpy(), cuts) for x in (logs.double(), right))
            found |= {i: TokenScores(*both) for i, both in zip(chosen, zip(*parts, strict=True), strict=True)}
    return [found[i] for i in range(len(inputs))]


def _logits(model: Model, packed: Packed, rows: Tensor, depth: int | None = None) -> Tensor:
    """Masked-LM logits (P, V) at these rows, float32, after `depth` layers (default all); the last of them
    computes no other rows."""
    with model.encoder.forward_pass():
        return model.mlm_logits(model.encoder(packed, rows=rows, depth=depth).last_hidden).float()


class Likelihood:
    """Scores sentences by a sum of log-probabilities of their tokens.

    Args:
        where: the folder of the model, for messages.
        depth: number of layers before the masked-LM head; default all.

    Raises:
        ModelError: the model has no masked-LM head.
    """

    first = 0
    """The first position that is scored."""

    def __init__(
        self, model: Model, tokenizer: Tokenizer, where: Path | None = None, *, depth: int | None = None
    ) -> None:
        if model.mlm is None:
            raise ModelError(
                "has no masked-LM head, so no sentence can be scored with it",
                where=where,
                remedy="Name a pretrained model"
                if model.lm is None
                else "Models with the head of a streamed language model are compared by albertine score",
            )
        self.model, self.tokenizer, self.depth = model, tokenizer, depth

    def __call__(self, texts: Sequence[str], progress: Progress = lambda done, total: None) -> TextScores:
        """Score texts, summed over their tokens without [CLS] and [SEP]; (texts,) each.

        Args:
            progress: called with the tokens scored so far and in all.

        Raises:
            SettingsError: a text is longer than the model's maximum.
            NotFinite: a sum is not finite; names the text.
        """
        place = {text: i for i, text in enumerate(dict.fromkeys(texts))}
        rows = _layouts(self.model, self.tokenizer, list(place))
        edges = (self.tokenizer.cls_id, self.tokenizer.sep_id)
        targets = [
            [i for i, token in enumerate(ids) if i >= self.first and token not in edges] for ids, _ in rows
        ]
        sums = np.zeros(len(rows))
        total, done = sum(map(len, targets)), 0
        with evaluating(self.model), torch.inference_mode():
            for sentences, scores in self._parts(rows, targets):
                # In the order of the tokens of a sentence, so that equal sentences have equal sums.
                np.add.at(sums, sentences, scores)
                done += len(scores)
                progress(done, total)
        order = [place[text] for text in texts]
        check_finite(sums[order], "text")
        return TextScores(sums[order], np.array([len(t) for t in targets], dtype=np.int64)[order])

    def _parts(self, rows: Sequence[Layout], targets: Sequence[Sequence[int]]) -> Iterator[Scored]:
        """The log-probabilities of all targets, with the sentence of each, in parts.

        Args:
            targets: positions to score of every sentence.
        """
        raise NotImplementedError


class PseudoLikelihood(Likelihood):
    """Scores sentences by their pseudo-log-likelihood."""

    def _parts(self, rows: Sequence[Layout], targets: Sequence[Sequence[int]]) -> Iterator[Scored]:
        for chunk in batch_by_tokens(range(len(rows)), [len(t) for t in targets], COPIES):
            copies = _Copies(rows, targets, chunk, self.tokenizer.mask_id)
            yield copies.sentence, self._log_probabilities(copies)

    def _log_probabilities(self, copies: _Copies) -> NDArray[np.float64]:
        """The log-probability of every target token."""
        device, found = self.model.device, np.empty(len(copies.token))
        for chosen in batch_longest_first(copies.lengths, self.model.tokens_per_pass):
            packed = pack([copies.ids[i] for i in chosen], [copies.types[i] for i in chosen]).to(device)
            rows = packed.first_tokens + torch.from_numpy(copies.position[chosen]).to(device)
            logits_PV = _logits(self.model, packed, rows, self.depth)
            which, row = copies.targets_of(chosen)
            at, token = torch.from_numpy(row).to(device), torch.from_numpy(copies.token[which]).to(device)
            scores = logits_PV[at, token] - logits_PV.logsumexp(1)[at]
            found[which] = scores.double().cpu().numpy()
        return found


class _Copies:
    """Masked copies of sentences without duplicates, and the tokens to predict from them.

    Attributes:
        ids, types, position, lengths: token ids, segment ids, masked position and length of every copy.
        sentence, token: sentence and token id of every target.
    """

    def __init__(
        self,
        rows: Sequence[Layout],
        targets: Sequence[Sequence[int]],
        chosen: Sequence[int],
        mask_id: int,
    ) -> None:
        number: dict[bytes, int] = {}
        self.ids: list[Ints] = []
        self.types: list[list[int]] = []
        self._targets: list[list[int]] = []
        sentence, position = [], []
        token: list[int] = []
        for s in chosen:
            ids = np.array(rows[s][0], dtype=np.int64)
            for place in targets[s]:
                masked = ids.copy()
                masked[place] = mask_id
                # A text cannot contain the id of [MASK], so the masked ids determine the masked position.
                c = number.setdefault(masked.tobytes(), len(number))
                if c == len(self.ids):
                    self.ids.append(masked)
                    self.types.append(rows[s][1])
                    position.append(place)
                    self._targets.append([])
                self._targets[c].append(len(token))
                sentence.append(s)
                token.append(int(ids[place]))
        self.sentence, self.token = np.array(sentence, dtype=np.int64), np.array(token, dtype=np.int64)
        self.position = np.array(position, dtype=np.int64)
        self.lengths = [len(ids) for ids in self.ids]

    def targets_of(self, chosen: Sequence[int]) -> tuple[Ints, Ints]:
        """The targets of some copies, and for each target the index of its copy among them."""
        parts = [self._targets[c] for c in chosen]
        return np.concatenate(parts), np.repeat(np.arange(len(parts)), [len(p) for p in parts])


class CausalLikelihood(Likelihood):
    """Scores sentences by their log-likelihood from left to right, under a causal attention mask.

    Each token is predicted from [CLS] and the tokens before it, as in causal samples of pretraining; [SEP],
    which these do not predict, is not scored. Without a [CLS] before it the first token is not scored either.

    Args: as of `Likelihood`; the model was trained causally.
    """

    first = 1

    def _parts(self, rows: Sequence[Layout], targets: Sequence[Sequence[int]]) -> Iterator[Scored]:
        chosen = [i for i, places in enumerate(targets) if places]
        lengths = [targets[i][-1] for i in chosen]  # the last token is predicted and not read
        for part in batch_longest_first(lengths, self.model.tokens_per_pass):
            own = [chosen[i] for i in part]
            sentences = np.repeat(own, [len(targets[i]) for i in own])
            yield sentences, self._log_probabilities([rows[i] for i in own], [targets[i] for i in own])

    def _log_probabilities(
        self, rows: Sequence[Layout], targets: Sequence[Sequence[int]]
    ) -> NDArray[np.float64]:
        """The log-probability of every target token, sentence by sentence."""
        device = self.model.device
        sizes = [places[-1] for places in targets]
        read = [(ids[:size], types[:size]) for (ids, types), size in zip(rows, sizes, strict=True)]
        packed = pack([ids for ids, _ in read], [types for _, types in read], prefix=[1] * len(rows))
        first = np.cumsum(sizes) - sizes
        before = np.concatenate([at + np.array(own) - 1 for at, own in zip(first, targets, strict=True)])
        labels = [ids[place] for (ids, _), own in zip(rows, targets, strict=True) for place in own]
        labels_P1 = torch.tensor(labels, device=device)[:, None]
        with self.model.encoder.forward_pass():
            where = torch.from_numpy(before).to(device)
            states_PH = self.model.encoder(packed.to(device), rows=where, depth=self.depth).last_hidden
            found = []
            for begin in range(0, len(labels), ROWS):
                part = slice(begin, begin + ROWS)
                logits_PV = self.model.mlm_logits(states_PH[part]).float()
                scores = logits_PV.gather(1, labels_P1[part])[:, 0] - logits_PV.logsumexp(1)
                found.append(scores.double().cpu().numpy())
        return np.concatenate(found)


def _layouts(model: Model, tokenizer: Tokenizer, texts: list[str]) -> list[Layout]:
    """Token and segment ids of texts.

    Raises:
        SettingsError: a text is longer than the model's maximum.
    """
    limit = model.config.max_position_embeddings
    rows = [tokenizer.layout(ids) for ids in tokenizer.encode_batch(texts)]
    for (ids, _), text in zip(rows, texts, strict=True):
        if len(ids) > limit:
            raise SettingsError(
                f"the sentence `{text:.60}` has {len(ids)} tokens, and the model reads {limit}",
                remedy="Use a model with more positions",
            )
    return rows
