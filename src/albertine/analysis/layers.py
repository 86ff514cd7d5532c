"""What every layer does to the token states, for any encoder: Figure 1 of the ALBERT paper, norms, similarity
of layers, anisotropy, effective rank and curvature.

State 0 is the embeddings, state l the output of layer l before any final norm. An encoder with a solver and
input injection begins at zeros instead, and its layer 1 has no distance, cosine and angle. Except for CKA, a
value is that of a text, and is reported as the mean over texts with its 95 % interval (Student's t).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import cosine_similarity, normalize

from albertine.core.batch import pack
from albertine.core.quantiles import t_quantile
from albertine.core.token_batches import batch_by_tokens
from albertine.errors import DataError, NotFinite
from albertine.interop.huggingface.folders import named_model
from albertine.model.fixed_point import FixedPoint
from albertine.model.model import Model, evaluating
from albertine.tokenizers.base import Tokenizer

MAX_LENGTH = 128
TOKENS_PER_PASS = 2048
"""Bounds the memory of the states of all layers."""
CKA_TOKENS, CKA_VALUES = 2048, 10**8
"""Most tokens for CKA, evenly spaced over the texts, and most values of its Gram matrices in memory."""

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Estimate:
    """A mean over texts and its 95 % interval, each (n,); NaN where there are too few texts."""

    mean: Floats
    low: Floats
    high: Floats

    @classmethod
    def of(cls, values: Floats, *, scale: float = 1.0, weights: Floats | None = None) -> Estimate:
        """
        Args:
            values: (texts, n). weights: of the texts in the mean, (texts,); default: equal.
            scale: factor of the standard error.
        """
        mean = np.average(values, axis=0, weights=weights)
        if (texts := len(values)) < 2:
            return cls(mean, *np.full((2, len(mean)), math.nan))
        share = np.full(texts, 1 / texts) if weights is None else weights / weights.sum()
        # With equal weights this is the usual deviation over the root of the number of texts.
        variance = texts / (texts - 1) * ((share[:, None] * (values - mean)) ** 2).sum(0)
        half = scale * t_quantile(texts - 1) * np.sqrt(variance)
        return cls(mean, mean - half, mean + half)

    def as_dict(self) -> dict[str, list[float]]:
        return {f.name: getattr(self, f.name).tolist() for f in fields(self)}


@dataclass(frozen=True)
class LayerStatistics:
    """Statistics of the L layers of a model.

    Attributes:
        model: its name. texts, tokens: read. cut: texts that lost their end.
        zero_start: whether state 0 is zeros, not the embeddings.
        distance: L2 distance between input and output of a layer, mean over tokens (L,).
        cosine, angle: their cosine, and angle in degrees, mean over tokens (L,). Lan et al. 2019, section 2.2
            and Figure 1, which shows the angle. With `zero_start` those of layer 1 are NaN.
        norm: L2 norm of a state, mean over tokens (L+1,).
        anisotropy: cosine between tokens of different texts, [CLS] and [SEP] excluded, mean over pairs
            (L+1,); NaN for one text. Ethayarajh 2019, section 3.
        effective_rank: exp of the entropy of the normalised singular values of the states of a text, (tokens,
            H), not centred (L+1,); at most its tokens. Roy and Vetterli 2007.
        curvature: angle in degrees between the steps x_l - x_{l-1} and x_{l+1} - x_l of a token, mean over
            tokens (L-1,): 0 for a straight path, 180 for a path that goes back and forth.
        cka: linear CKA between states, (L+1, L+1), over `cka_tokens` tokens. Kornblith et al. 2019, eq. 3
            with a linear kernel.
    """

    model: str
    texts: int
    tokens: int
    cut: int
    zero_start: bool
    distance: Estimate
    cosine: Estimate
    angle: Estimate
    norm: Estimate
    anisotropy: Estimate
    effective_rank: Estimate
    curvature: Estimate
    cka: Floats
    cka_tokens: int

    @property
    def layers(self) -> int:
        return len(self.distance.mean)

    def as_dict(self) -> dict[str, Any]:
        """As plain data."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return {
            name: value.as_dict()
            if isinstance(value, Estimate)
            else value.tolist()
            if isinstance(value, np.ndarray)
            else value
            for name, value in values.items()
        }


def layer_statistics_of(
    what: str | Path, texts: Sequence[str], *, max_length: int = MAX_LENGTH, label: str | None = None
) -> LayerStatistics:
    """`layer_statistics` of a named model; `label` is its name in the result.

    Raises:
        AlbertineError: there is no such model or no text.
    """
    model, tokenizer = named_model(what)
    return layer_statistics(model, tokenizer, texts, max_length=max_length, label=label or str(what))


def layer_statistics(
    model: Model,
    tokenizer: Tokenizer,
    texts: Sequence[str],
    *,
    max_length: int = MAX_LENGTH,
    label: str = "model",
) -> LayerStatistics:
    """The statistics of all layers over some texts.

    An encoder that solves for a fixed point is computed as many layers as it has iterations at most.

    Args:
        max_length: tokens of a text, at most the positions of the model; longer texts lose their end.

    Raises:
        DataError: there is no text. NotFinite: a state is not finite; names the first such text.
    """
    if not texts:
        raise DataError("there is no text to read", remedy="Give one or more")
    length = min(max_length, model.config.max_position_embeddings)
    ids = tokenizer.encode_batch(list(texts))
    rows = [tokenizer.layout(one, max_length=length) for one in ids]
    lengths = [len(one) for one, _ in rows]
    special = {tokenizer.cls_id, tokenizer.sep_id}
    zero_start = model.config.zero_start
    sums = _Sums(sum(lengths), model.config.plan.depth, zero_start)
    with evaluating(model), torch.inference_mode(), _layer_outputs(model):
        for chosen in batch_by_tokens(range(len(rows)), lengths, TOKENS_PER_PASS):
            packed = pack(*zip(*(rows[i] for i in chosen), strict=True)).to(model.device)
            states = model.encoder(packed, all_depths=True).hidden_states
            if bad := [
                chosen[i]
                for i, x_LH in enumerate(states[-1].split(packed.lengths))
                if not bool(x_LH.isfinite().all())
            ]:
                raise NotFinite.of_items("text", bad)
            content = torch.tensor([token not in special for i in chosen for token in rows[i][0]])
            sums.add([x.cpu().double() for x in states], list(packed.lengths), content)
    cut = sum(len(tokenizer.layout(one)[0]) > length for one in ids)
    return sums.statistics(label, cut)


@contextmanager
def _layer_outputs(model: Model) -> Iterator[None]:
    """Within, the hidden states of an encoder are the outputs of its layers: without a final norm on the
    last, and of all iterations of a fixed-point loop."""
    encoder = model.encoder
    norm, encoder.final_norm = encoder.final_norm, None
    try:
        with unrolled(model):
            yield
    finally:
        encoder.final_norm = norm


@contextmanager
def unrolled(model: Model) -> Iterator[None]:
    """Within, a fixed-point loop computes as many layers as it has iterations at most, in sequence; other
    loops are unchanged."""
    loop = model.encoder.loop
    if not isinstance(loop, FixedPoint):
        yield
        return
    before, loop.unrolled = loop.unrolled, True
    try:
        yield
    finally:
        loop.unrolled = before


class _Sums:
    """Values of every text, collected over batches.

    Args:
        tokens: in all. zero_start: as in `LayerStatistics`.
    """

    def __init__(self, tokens: int, layers: int, zero_start: bool) -> None:
        self.tokens, self.zero_start = tokens, zero_start
        names = ("distance", "cosine", "angle", "norm", "effective_rank", "curvature")
        self.values: dict[str, list[Tensor]] = {name: [] for name in names}
        self.directions: list[Tensor] = []
        self.counts: list[int] = []
        count = int(min(tokens, CKA_TOKENS, math.sqrt(CKA_VALUES / (layers + 1))))
        self.sample = torch.linspace(0, tokens - 1, count).round().long()
        self.sampled: list[Tensor] = []
        self.read = 0

    def add(self, states: Sequence[Tensor], lengths: list[int], content: Tensor) -> None:
        """Add a batch.

        Args:
            states: (T, H) of each layer, float64. content: tokens other than [CLS] and [SEP], bool (T,).
        """

        def of_texts(name: str, rows: Sequence[Tensor]) -> None:
            """Append means over the tokens of every text, of (T,) for each layer."""
            if rows:
                means = [part.mean(0) for part in torch.split(torch.stack(list(rows), 1), lengths)]
                self.values[name].append(torch.stack(means))

        steps = [after - before for before, after in pairwise(states)]
        cosines = [cosine_similarity(a, b, dim=1) for a, b in pairwise(states)]
        turns = [cosine_similarity(a, b, dim=1) for a, b in pairwise(steps)]
        of_texts("distance", [step.norm(dim=1) for step in steps])
        of_texts("cosine", cosines)
        of_texts("angle", [_degrees(c) for c in cosines])
        of_texts("norm", [x.norm(dim=1) for x in states])
        of_texts("curvature", [_degrees(c) for c in turns])
        ranks = [[effective_rank(part) for part in torch.split(x, lengths)] for x in states]
        self.values["effective_rank"].append(torch.tensor(ranks, dtype=torch.float64).T)
        units = [torch.split(normalize(x, dim=1) * content[:, None], lengths) for x in states]
        self.directions += [torch.stack([u[i].sum(0) for u in units]) for i in range(len(lengths))]
        self.counts += [int(part.sum()) for part in torch.split(content, lengths)]
        here = self.sample[(self.sample >= self.read) & (self.sample < self.read + sum(lengths))]
        self.sampled.append(torch.stack([x[here - self.read] for x in states]).float())
        self.read += sum(lengths)

    def statistics(self, label: str, cut: int) -> LayerStatistics:
        found = {name: torch.cat(parts).numpy() for name, parts in self.values.items() if parts}
        sample = torch.cat(self.sampled, 1)
        if self.zero_start:
            for name in ("distance", "cosine", "angle"):
                found[name][:, 0] = math.nan
        estimates = {name: Estimate.of(values) for name, values in found.items()}
        estimates.setdefault("curvature", Estimate(*np.empty((3, 0))))
        return LayerStatistics(
            model=label,
            texts=len(self.counts),
            tokens=self.tokens,
            cut=cut,
            zero_start=self.zero_start,
            anisotropy=self._anisotropy(),
            cka=linear_cka(sample),
            cka_tokens=sample.shape[1],
            **estimates,
        )

    def _anisotropy(self) -> Estimate:
        """Mean cosine over pairs of tokens of different texts. It is a U-statistic over texts, whose standard
        error is twice that of the means of single texts (Hoeffding 1948)."""
        sums = torch.stack(self.directions)  # (texts, L+1, H)
        counts = torch.tensor(self.counts, dtype=torch.float64)
        others = sums.sum(0) - sums
        pairs = counts * (counts.sum() - counts)
        kept = pairs > 0
        if int(kept.sum()) < 2:
            return Estimate(*np.full((3, sums.shape[1]), math.nan))
        values = ((sums * others).sum(2) / pairs[:, None])[kept]
        return Estimate.of(values.numpy(), scale=2.0, weights=pairs[kept].numpy())


def _degrees(cosine: Tensor) -> Tensor:
    return torch.rad2deg(torch.arccos(cosine.clamp(-1, 1)))


def effective_rank(x_LH: Tensor) -> float:
    """exp(-Σ p log p) over singular values divided by their sum p (Roy and Vetterli 2007, definition 1); NaN
    for a matrix of zeros."""
    x_LH = x_LH.double()
    tall = x_LH.shape[0] > x_LH.shape[1]
    # Roots of the eigenvalues of the smaller product, within 1e-8 of the largest and several times as fast as
    # a decomposition.
    values = torch.linalg.eigvalsh(x_LH.T @ x_LH if tall else x_LH @ x_LH.T).clamp(min=0).sqrt()
    shares = values / values.sum()
    return float(torch.exp(-torch.special.xlogy(shares, shares).sum()))


def linear_cka(states: Tensor) -> Floats:
    """Linear CKA between all layers (Kornblith et al. 2019): HSIC(K, K') / √(HSIC(K, K) HSIC(K', K')) with K
    the products of centred states.

    Args:
        states: (layers, tokens, H).

    Returns:
        (layers, layers), symmetric, 1 on the diagonal.
    """
    grams = []
    for x_TH in states:
        x_TH = x_TH - x_TH.mean(0)
        gram = x_TH @ x_TH.T
        grams.append((gram / gram.norm().clamp(min=1e-30)).flatten())
    flat = torch.stack(grams)
    found: Floats = (flat @ flat.T).double().numpy()
    return found
