"""Convergence over depth: residuals and cosines of all layers, and for an encoder whose layers share all
weights the fixed point and the rate.

An encoder with one shared layer applies one map repeatedly, which may have a fixed point, whatever it was
trained for. Bai et al. (2019, 1909.01377) found that trained weight-tied transformers tend to have one; the
ALBERT paper (Lan et al. 2019, section 2.2) found that its states oscillate and do not converge.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median

import torch
from torch import Tensor

from albertine.analysis.html_report import Section, Table, write_page
from albertine.analysis.plots import save_curves, svg_of
from albertine.core.batch import Packed, pack
from albertine.core.randomness import isolated_torch_rng, seed_torch
from albertine.errors import DataError, NotFinite
from albertine.interop.huggingface.folders import named_model
from albertine.model.config import STEP_DEPENDENT
from albertine.model.encoder import Encoder
from albertine.model.fixed_point import detached
from albertine.model.jacobian import spectral_radius
from albertine.model.loop import EncoderOutput, LayerFunction, LayerLoop
from albertine.model.model import Model, evaluating
from albertine.model.rows import Rows, SelectedRows
from albertine.model.sharing import SharingPlan
from albertine.model.solvers import SOLVERS, Sequences

LIMIT, TOLERANCE = 200, 1e-5
LAYERS_DIFFER = "a fixed point is that of one map, and the layers of this model have different weights"


@dataclass(frozen=True)
class DepthStudy:
    """Repeated application of one layer f, or of the different layers of a model, as means over sequences or
    a value for each.

    Attributes:
        residual: |f(z) - z| / |f(z)| of the input z of depth 1, 2, … cosine: between input and output at each
            depth, the mean over tokens.
        no_fixed_point: why f has none, in which case the following are empty; None if one was searched.
        distance: |z - z*| / |z*| of the same inputs.
        solver: of the fixed point z*. fixed_point_residual, iterations, converged: of each sequence.
        radius: spectral radius of ∂f/∂z at z* for each sequence; below 1 the iteration of f converges to z*.
        rate: factor by which the distance falls per depth, over the later half of the values above rounding
            errors; NaN if z* was not found.
    """

    residual: list[float] = field(default_factory=list)
    cosine: list[float] = field(default_factory=list)
    no_fixed_point: str | None = None
    distance: list[float] = field(default_factory=list)
    solver: str = "none"
    fixed_point_residual: list[float] = field(default_factory=list)
    iterations: list[int] = field(default_factory=list)
    converged: list[bool] = field(default_factory=list)
    radius: list[float] = field(default_factory=list)
    rate: float = math.nan


def study_texts(
    what: str | Path, texts: Sequence[str], *, depths: int, max_length: int = 128
) -> tuple[DepthStudy, Model]:
    """`study_depth` of a named model on texts; and the model.

    Args:
        max_length: tokens of a text, at most the positions of the model.

    Raises:
        AlbertineError: there is no such model or no text.
    """
    if not texts:
        raise DataError("there is no text to read", remedy="Give one or more")
    model, tokenizer = named_model(what)
    length = min(max_length, model.config.max_position_embeddings)
    encoded = tokenizer(list(texts), max_length=length)
    packed = pack(encoded["input_ids"], encoded["token_type_ids"])
    return study_depth(model, packed, depths=depths), model


def study_depth(
    model: Model,
    packed: Packed,
    *,
    depths: int = 48,
    solver: str = "anderson",
    limit: int = LIMIT,
    tolerance: float = TOLERANCE,
) -> DepthStudy:
    """Apply the layer of a shared plan `depths` times, and search its fixed point.

    Layers that differ, in their weights or in step embeddings, have none: they are applied once each, at most
    `depths` of them, and only residuals and cosines are computed.

    Args:
        depths: may exceed the layers of a shared plan. limit, tolerance: of the solver.

    Raises:
        NotFinite: a state is not finite; names the first such text.
    """
    plan = model.config.plan
    with evaluating(model), torch.no_grad():
        states = model.encoder(packed).last_hidden.split(packed.lengths)
    if bad := [i for i, x_LH in enumerate(states) if not bool(x_LH.isfinite().all())]:
        raise NotFinite.of_items("text", bad)
    why = None if model.config.step_signal == "none" else STEP_DEPENDENT
    why = why if plan == SharingPlan.shared(plan.depth) else LAYERS_DIFFER
    loop = _Study(depths if why is None else min(depths, plan.depth), solver, limit, tolerance, why)
    loop.from_zero = model.config.zero_start
    with (
        isolated_torch_rng(model.device),
        evaluating(model),
        _looping(model.encoder, loop),
        torch.enable_grad(),
    ):
        seed_torch(0, "power method")
        model.encoder(packed)
    assert loop.study is not None
    if not all(map(math.isfinite, loop.study.residual)):
        raise NotFinite
    return loop.study


class _Study(LayerLoop):
    """A layer loop that applies the studied step.

    Attributes:
        no_fixed_point: the reason; None: it is searched.
        from_zero: whether the first input is zero, as in a fixed-point encoder with injection; else the
            embeddings.
    """

    study: DepthStudy | None = None
    from_zero = False

    def __init__(
        self, depths: int, solver: str, limit: int, tolerance: float, no_fixed_point: str | None
    ) -> None:
        self.depths, self.solver, self.limit, self.tolerance, self.no_fixed_point = (
            depths,
            solver,
            limit,
            tolerance,
            no_fixed_point,
        )

    def run(
        self,
        step: LayerFunction,
        x_TH: Tensor,
        rows: Rows,
        depth: int,
        wanted: SelectedRows | None,
        all_depths: bool,
    ) -> EncoderOutput:
        sequences = Sequences.of(rows.cu_seqlens)
        start_TH = (torch.zeros_like(x_TH) if self.from_zero else x_TH).detach()
        if self.no_fixed_point is None:
            self.study = self._fixed(step, start_TH, rows, sequences, later=min(1, depth - 1))
        else:
            self.study = DepthStudy(no_fixed_point=self.no_fixed_point)
            self._repeat(step, start_TH, rows, sequences, self.study, later=depth - 1)
        return EncoderOutput(x_TH)

    def _fixed(
        self, step: LayerFunction, start_TH: Tensor, rows: Rows, sequences: Sequences, later: int
    ) -> DepthStudy:
        """The study of the map of layer `later`, which stands for all later ones: the first layer of a
        pre-norm plan differs, as it does not normalise its input."""

        def f(z_TH: Tensor) -> Tensor:
            return step(later, z_TH, z_TH, rows, rows)

        plain = detached(f, start_TH.dtype, gradients=False)
        found = SOLVERS[self.solver](plain, start_TH, sequences, limit=self.limit, tolerance=self.tolerance)
        z_TH = found.z.clone().requires_grad_()
        radius = spectral_radius(f(z_TH), z_TH, sequences)
        study = DepthStudy(
            solver=self.solver,
            fixed_point_residual=found.residual.tolist(),
            iterations=found.iterations.tolist(),
            converged=found.converged.tolist(),
            radius=radius.tolist(),
        )
        self._repeat(step, start_TH, rows, sequences, study, later, found.f)
        return replace(study, rate=convergence_rate(study.distance) if all(study.converged) else math.nan)

    @torch.no_grad()
    def _repeat(
        self,
        step: LayerFunction,
        at_TH: Tensor,
        rows: Rows,
        sequences: Sequences,
        study: DepthStudy,
        later: int,
        fixed_TH: Tensor | None = None,
    ) -> None:
        """Append residual, cosine and distance of every depth to the study; layers after `later` are computed
        as `later`."""
        for d in range(self.depths):
            next_TH = step(min(d, later), at_TH, at_TH, rows, rows)
            study.residual.append(_share(next_TH - at_TH, next_TH, sequences))
            study.cosine.append(float(torch.cosine_similarity(at_TH, next_TH, dim=1).mean()))
            if fixed_TH is not None:
                study.distance.append(_share(at_TH - fixed_TH, fixed_TH, sequences))
            at_TH = next_TH


def _share(part_TH: Tensor, whole_TH: Tensor, sequences: Sequences) -> float:
    """|part| / |whole|, mean over sequences."""
    sizes = (sequences.dot(x, x).sqrt() for x in (part_TH, whole_TH))
    part_S, whole_S = sizes
    return float((part_S / whole_S.clamp(min=1e-30)).mean())


def convergence_rate(distances: list[float], noise: float = 1e-4) -> float:
    """The factor per depth, by least squares on the logarithms of the later half of the distances above the
    noise; NaN with fewer than four of them."""
    above = next((i for i, d in enumerate(distances) if not d > noise), len(distances))
    logs = [math.log(d) for d in distances[above // 2 : above]]
    if len(logs) < 4:
        return math.nan
    mean = (len(logs) - 1) / 2
    slope = sum((i - mean) * y for i, y in enumerate(logs)) / sum((i - mean) ** 2 for i in range(len(logs)))
    return math.exp(slope)


@contextmanager
def _looping(encoder: Encoder, depths: LayerLoop) -> Iterator[None]:
    """Within, the encoder has another layer loop and float32, in which no pass is padded."""
    before = encoder.loop, encoder.precision
    encoder.loop, encoder.precision = depths, "float32"
    try:
        yield
    finally:
        encoder.loop, encoder.precision = before


def _point(study: DepthStudy) -> str:
    return "the fixed point" if all(study.converged) else "the best point found"


def save_study(path: Path, study: DepthStudy, model: str) -> Path:
    """Plot residual and distance over depth on a logarithmic axis, into a PNG or SVG.

    Args:
        model: its name in the title.

    Raises:
        RunError: matplotlib is not installed.
    """
    curves = {"residual |f(z) - z| / |f(z)|": list(enumerate(study.residual, 1))}
    if study.distance:
        curves[f"distance to {_point(study)} |z - z*| / |z*|"] = list(enumerate(study.distance, 1))
    return save_curves(
        path,
        curves,
        title=f"Convergence over depth of {model}",
        x="depth",
        y="relative L2 distance",
        log=True,
    )


def depth_table(study: DepthStudy) -> Table:
    """Residual, cosine and, where there is a fixed point, the distance to it, of every depth."""
    columns = {
        "residual": [f"{x:.2e}" for x in study.residual],
        "cosine": [f"{x:.4f}" for x in study.cosine],
    }
    if study.no_fixed_point is None:
        columns[f"distance to {_point(study)}"] = [f"{x:.2e}" for x in study.distance]
    rows = enumerate(zip(*columns.values(), strict=True), 1)
    return Table(["depth", *columns], [[depth, *values] for depth, values in rows])


def facts(study: DepthStudy) -> dict[str, str]:
    """The fixed point in words by name; empty where there is none."""
    if study.no_fixed_point is not None:
        return {}
    count, radius = len(study.converged), study.radius
    known = {
        "found": f"for {sum(study.converged)} of {count} texts by {study.solver} in at most "
        f"{max(study.iterations)} iterations, residual up to {max(study.fixed_point_residual):.1e}",
        "spectral radius there": f"{median(radius):.3f} (median), {max(radius):.3f} (largest)",
    }
    if study.rate == study.rate:
        known["the distance falls by"] = f"{study.rate:.3f} a depth"
    return known


def no_fixed_point_in_words(study: DepthStudy, layers: int) -> str:
    """Why there is none, a sentence."""
    why = study.no_fixed_point or ""
    return f"{why[:1].upper()}{why[1:]} (the plan has {layers} depths)."


def write_study(path: Path, study: DepthStudy, model: str, layers: int) -> Path:
    """Write the report as one HTML file.

    Args:
        model: its name. layers: of its plan.

    Raises:
        RunError: matplotlib is not installed, or the file cannot be written.
    """
    text = [f"The model has {layers} layers."]
    text += [f"{name[:1].upper()}{name[1:]}: {value}." for name, value in facts(study).items()]
    if study.no_fixed_point is not None:
        text = [no_fixed_point_in_words(study, layers)]
    figure = svg_of(lambda file: save_study(file, study, model))
    sections = [
        Section("Convergence", text, figures=[figure], alt="residual of each depth, logarithmic"),
        Section("Values", ["Residual: |f(z) - z| / |f(z)| of the input z of a depth."], depth_table(study)),
    ]
    return write_page(path, f"Convergence over depth of {model}", sections)
