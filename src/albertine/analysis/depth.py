"""What a plan whose depths share everything does over depth: whether it settles, where, and how fast.

Every shared plan is a map that is applied again and again, and can be asked for its fixed point, whatever it
was trained for. Bai et al. (2019, 1909.01377) found that trained weight-tied transformers tend to have one;
the ALBERT paper (Lan et al. 2019, section 2.2) found that its states oscillate and do not converge.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from torch import Tensor

from albertine.analysis.plots import save_curves
from albertine.core.batch import Packed, pack
from albertine.core.randomness import isolated_torch_rng, seed_torch
from albertine.errors import DataError, NotFinite, SettingsError
from albertine.interop.huggingface.folders import load_model
from albertine.interop.model_location import model_folder
from albertine.model.config import STEP_DEPENDENT
from albertine.model.encoder import Encoder
from albertine.model.fixed_point import detached
from albertine.model.jacobian import spectral_radius
from albertine.model.loop import EncoderOutput, LayerFunction, LayerLoop
from albertine.model.model import Model, evaluating
from albertine.model.rows import Rows, SelectedRows
from albertine.model.sharing import SharingPlan
from albertine.model.solvers import SOLVERS, Sequences
from albertine.tokenizers.load import check_tokenizer, load_tokenizer

LIMIT, TOLERANCE = 200, 1e-5


@dataclass(frozen=True)
class DepthStudy:
    """What one block does when it is applied again and again, as means over sequences or of each.

    Attributes:
        residual: |f(z) - z| / |f(z)| of the input z of depth 1, 2, … cosine: between input and output of a
            depth, the mean over tokens.
        no_fixed_point: why there is none, and nothing else is told; None where one was looked for.
        distance: |z - z*| / |z*| of the same inputs.
        solver: how the fixed point z* was looked for. fixed_point_residual, iterations, converged: of each
            sequence.
        radius: of each sequence the spectral radius of ∂f/∂z at z*; below 1 repeating f leads there.
        rate: the factor by which the distance falls a depth, over the later half of what is not rounding;
            not a number where z* was not found.
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
    """`study_depth` of a model by any of its names, on texts; and that model.

    Args:
        max_length: tokens of a text that are read, at most as many as the model has positions.

    Raises:
        AlbertineError: there is no such model or no text, or its depths do not share everything.
    """
    if not texts:
        raise DataError("there is no text to read", remedy="Give one or more")
    folder = model_folder(what)
    model, tokenizer = load_model(folder), load_tokenizer(folder)
    check_tokenizer(model.config, tokenizer, folder)
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
    """Apply the block of a shared plan `depths` times, and look for its fixed point.

    A block that is told the number of its step is another map at each, and has none: it is applied as often
    as the plan has depths, at most, and only residuals and cosines are told.

    Args:
        depths: also more than the plan has. limit, tolerance: of the solver.

    Raises:
        SettingsError: depths have blocks or parameters of their own. NotFinite: a state is not; names the
            first text of which one is not.
    """
    plan = model.config.plan
    if plan != SharingPlan.shared(plan.depth):
        raise SettingsError(
            "a fixed point is that of one block, and the depths of this model differ",
            remedy="Name a model whose depths share everything, such as an ALBERT",
        )
    with evaluating(model), torch.no_grad():
        states = model.encoder(packed).last_hidden.split(packed.lengths)
    if bad := [i for i, x_LH in enumerate(states) if not bool(x_LH.isfinite().all())]:
        raise NotFinite.of_items("text", bad)
    why = None if model.config.step_signal == "none" else STEP_DEPENDENT
    watch = _Watch(depths if why is None else min(depths, plan.depth), solver, limit, tolerance, why)
    watch.from_zero = model.config.solves and model.config.input_injection
    with (
        isolated_torch_rng(model.device),
        evaluating(model),
        _looping(model.encoder, watch),
        torch.enable_grad(),
    ):
        seed_torch(0, "power method")
        model.encoder(packed)
    assert watch.study is not None
    if not all(map(math.isfinite, watch.study.residual)):
        raise NotFinite
    return watch.study


class _Watch(LayerLoop):
    """A loop over depths that studies the step it is given.

    Attributes:
        why: there is no fixed point; None: it is looked for.
        from_zero: whether depth 1 reads zeros, as where an encoder looks for its own fixed point with
            injection; else the embeddings.
    """

    study: DepthStudy | None = None
    from_zero = False

    def __init__(self, depths: int, solver: str, limit: int, tolerance: float, why: str | None) -> None:
        self.depths, self.solver, self.limit, self.tolerance, self.why = depths, solver, limit, tolerance, why

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
        if self.why is None:
            self.study = self._fixed(step, start_TH, rows, sequences, later=min(1, depth - 1))
        else:
            self.study = DepthStudy(no_fixed_point=self.why)
            self._repeat(step, start_TH, rows, sequences, self.study, later=depth - 1)
        return EncoderOutput(x_TH)

    def _fixed(
        self, step: LayerFunction, start_TH: Tensor, rows: Rows, sequences: Sequences, later: int
    ) -> DepthStudy:
        """The study of a map that has a fixed point: depth `later`, which stands for all behind it. The first
        depth of a pre-norm plan does not normalise its input."""

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
        return replace(study, rate=falling(study.distance) if all(study.converged) else math.nan)

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
        """Into the study how far each depth moves its input, and how far that is from the fixed point; no
        depth has a higher number than `later`."""
        for d in range(self.depths):
            next_TH = step(min(d, later), at_TH, at_TH, rows, rows)
            study.residual.append(_share(next_TH - at_TH, next_TH, sequences))
            study.cosine.append(float(torch.cosine_similarity(at_TH, next_TH, dim=1).mean()))
            if fixed_TH is not None:
                study.distance.append(_share(at_TH - fixed_TH, fixed_TH, sequences))
            at_TH = next_TH


def _share(part_TH: Tensor, whole_TH: Tensor, sequences: Sequences) -> float:
    """|part| / |whole|, the mean over sequences."""
    sizes = (sequences.dot(x, x).sqrt() for x in (part_TH, whole_TH))
    part_S, whole_S = sizes
    return float((part_S / whole_S.clamp(min=1e-30)).mean())


def falling(distances: list[float], noise: float = 1e-4) -> float:
    """The factor a depth, by least squares over the logarithms of the later half of those above the noise;
    not a number where fewer than four are left."""
    above = next((i for i, d in enumerate(distances) if not d > noise), len(distances))
    logs = [math.log(d) for d in distances[above // 2 : above]]
    if len(logs) < 4:
        return math.nan
    mean = (len(logs) - 1) / 2
    slope = sum((i - mean) * y for i, y in enumerate(logs)) / sum((i - mean) ** 2 for i in range(len(logs)))
    return math.exp(slope)


@contextmanager
def _looping(encoder: Encoder, depths: LayerLoop) -> Iterator[None]:
    """The encoder with another loop over depths, in float32, in which no pass is filled up with more rows."""
    before = encoder.loop, encoder.precision
    encoder.loop, encoder.precision = depths, "float32"
    try:
        yield
    finally:
        encoder.loop, encoder.precision = before


def save_study(path: Path, study: DepthStudy, title: str) -> Path:
    """Residual and distance over depth as a picture, in powers of ten.

    Raises:
        RunError: matplotlib is not installed.
    """
    curves = {"residual of a depth": _powers(study.residual)}
    if study.distance:
        curves["distance to the fixed point"] = _powers(study.distance)
    return save_curves(path, curves, title=title, x="depth", y="power of ten")


def _powers(values: list[float]) -> list[tuple[float, float]]:
    return [(float(i), math.log10(v) if v > 0 else math.nan) for i, v in enumerate(values, 1)]
