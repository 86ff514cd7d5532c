"""Scores of every depth of an encoder with what each costs: linear probes, and their figures and report.

A linear probe is a logistic regression on pooled states of a layer (Alain and Bengio 2016, 1610.01644); it
shows what is linearly readable from them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from albertine.analysis.html_report import Section, Table, write_page
from albertine.analysis.layers import unrolled
from albertine.analysis.parameters import inference_flops_per_token
from albertine.analysis.plots import Panel, save_panels, svg_of
from albertine.core.batch import Packed
from albertine.model.config import EncoderConfig
from albertine.model.model import Model


@dataclass(frozen=True)
class DepthScore:
    """The score after a number of layers; depth 0 is the embeddings.

    Attributes:
        value: a share. low, high: its 95 % interval.
        flops: of the encoder per token. seconds: of the computation up to this depth.
    """

    depth: int
    value: float
    low: float
    high: float
    flops: float
    seconds: float


@dataclass(frozen=True)
class DepthScores:
    """The scores of a model over depth.

    Attributes:
        model: its name. what: the suite or task. metric: what a score is a share of.
        baseline: the score of a guess; baseline_is: which guess.
        count: pairs or examples that were scored. scores: of depth 0 to the number of layers,
            or of some of these.
    """

    model: str
    what: str
    metric: str
    baseline: float
    baseline_is: str
    count: int
    scores: tuple[DepthScore, ...]

    def as_dict(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)

    @property
    def best(self) -> DepthScore:
        """The highest score, at the least depth."""
        return max(self.scores, key=lambda score: (score.value, -score.depth))


def flops_of_depths(config: EncoderConfig, length: int) -> list[float]:
    """Operations of the encoder per token after 0, 1, … layers, for a sequence length; no head."""

    def of(layers: int) -> float:
        plan = replace(config.plan, attention=(0,) * layers, feed_forward=(0,) * layers)
        return inference_flops_per_token(config.with_plan(plan), length)

    layer = of(2) - of(1)
    return [of(1) + (depth - 1) * layer for depth in range(config.num_hidden_layers + 1)]


class LogisticRegression:
    """Multinomial logistic regression with an L2 penalty: minimises Σ cross-entropy + ‖W‖² / 2 over
    standardised features, scikit-learn's default (C = 1), by L-BFGS in float64."""

    def __init__(self, features: Tensor, labels: Tensor, classes: int) -> None:
        """
        Args:
            features: (n, H). labels: int64 (n,), below `classes`.
        """
        self.mean, self.deviation = features.double().mean(0), features.double().std(0, correction=0)
        self.deviation = torch.where(self.deviation > 0, self.deviation, 1.0)
        x_NH, count = self._standardised(features), len(features)
        self.weight = torch.zeros(classes, x_NH.shape[1], dtype=torch.float64, requires_grad=True)
        self.bias = torch.zeros(classes, dtype=torch.float64, requires_grad=True)
        optimizer = torch.optim.LBFGS(
            [self.weight, self.bias], max_iter=500, tolerance_grad=1e-6, line_search_fn="strong_wolfe"
        )

        def closure() -> Tensor:
            optimizer.zero_grad()
            loss = F.cross_entropy(F.linear(x_NH, self.weight, self.bias), labels)
            loss = loss + self.weight.square().sum() / (2 * count)
            loss.backward()  # type: ignore[no-untyped-call]
            return loss

        with torch.enable_grad():
            optimizer.step(closure)  # type: ignore[no-untyped-call]

    def _standardised(self, features: Tensor) -> Tensor:
        return (features.double() - self.mean) / self.deviation

    @torch.no_grad()
    def predict(self, features: Tensor) -> Tensor:
        """The most probable class of each row, int64 (n,)."""
        return F.linear(self._standardised(features), self.weight, self.bias).argmax(1)


@torch.inference_mode()
def pooled_states(model: Model, batches: Iterable[Packed]) -> Tensor:
    """Mean over tokens of the states of every layer, float32 (texts, layers + 1, H), in the order of the
    batches. An encoder that solves for a fixed point is computed as many layers as it has iterations at most;
    state 0 is the embeddings of any encoder."""
    found = []
    for packed in batches:
        packed = packed.to(model.device)
        with unrolled(model):
            states = list(model.encoder(packed, all_depths=True).hidden_states)
        if model.config.solves:
            states[0] = model.encoder(packed, depth=0).last_hidden
        means = [torch.stack([part.mean(0) for part in x.split(packed.lengths)]) for x in states]
        found.append(torch.stack(means, 1).float().cpu())
    return torch.cat(found)


def majority(labels: NDArray[np.int64], dev: NDArray[np.int64]) -> float:
    """Accuracy on `dev` of the most frequent of `labels`."""
    return float((dev == np.bincount(labels).argmax()).mean())


def table(found: DepthScores) -> Table:
    rows = [
        [
            score.depth or "0 (embeddings)",
            f"{score.value:.1%}",
            f"{score.low:.1%} to {score.high:.1%}",
            f"{score.flops / 1e6:.3g}",
            f"{score.seconds:.2f}",
        ]
        for score in found.scores
    ]
    return Table(["depth", found.metric, "95 % interval", "MFLOP per token", "seconds"], rows)


def in_words(found: DepthScores) -> str:
    """What was scored, the baseline, and the least depth within the interval of the best."""
    enough = next(score for score in found.scores if score.value >= found.best.low)
    words = f"{found.what}, {found.count:,} scored; {found.baseline_is} {found.baseline:.1%}. "
    words += f"Best at depth {found.best.depth}"
    if enough.depth < found.best.depth:
        share = enough.flops / found.best.flops
        words += f"; depth {enough.depth} is within its interval, with {share:.0%} of the operations"
    return f"{words}."


def save_probe(path: Path, found: Sequence[DepthScores]) -> Path:
    """Draw the scores over depth and over operations into a PNG or SVG.

    Raises:
        RunError: matplotlib is not installed.
    """
    panels = []
    level = {found[0].baseline_is: found[0].baseline}
    axes: dict[str, Callable[[DepthScore], float]] = {
        "depth (0: embeddings)": lambda score: float(score.depth),
        "MFLOP per token": lambda score: score.flops / 1e6,
    }
    for x, at in axes.items():
        curves = {one.model: [(at(s), s.value) for s in one.scores] for one in found}
        bands = {one.model: [(at(s), s.low, s.high) for s in one.scores] for one in found}
        panels.append(Panel(found[0].metric, curves, bands, x, levels=level))
    return save_panels(path, panels, title=title(found))


def title(found: Sequence[DepthScores]) -> str:
    models = found[0].model if len(found) == 1 else f"{len(found)} models"
    return f"{found[0].what} over depth: {models}"


def write_probe(path: Path, found: Sequence[DepthScores]) -> Path:
    """Write the report as one HTML file.

    Raises:
        RunError: matplotlib is not installed, or the file cannot be written.
    """
    figure = svg_of(lambda file: save_probe(file, found))
    sections = [
        Section(
            "Scores over depth",
            ["A band is the 95 % interval. Operations are those of the encoder up to a depth, no head."],
            figures=[figure],
            alt=f"{found[0].metric} at each depth and over operations",
        )
    ]
    sections += [Section(f"Values of {one.model}", [in_words(one)], table(one)) for one in found]
    return write_page(path, title(found), sections)
