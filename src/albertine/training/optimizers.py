"""Optimizers by name, and parameter groups with and without weight decay."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Literal

from torch import Tensor, nn
from torch.optim import AdamW, Optimizer

from albertine.core.number_formats import Precision
from albertine.errors import SettingsError
from albertine.training.distributed import World
from albertine.training.lamb import Lamb
from albertine.training.muon import Muon

OptimizerKind = Literal["lamb", "adamw", "muon"]
RateOf = Callable[[str], float]

ADAMW_SHARE = 0.15
"""Beside Muon, the learning rate of AdamW's parameters over that of the matrices: 0.003 over 0.02."""

# By name, not by shape: embeddings, stacked vectors of all layers and low-rank factors have two dimensions,
# too, and Muon is for linear maps of hidden states.
_MATRIX = re.compile(
    r"(?:^|\.)encoder\.(?:attention|feed_forward)\.\d+\.(?:query|key|value|output|intermediate)\.weight$"
)
_OUTPUT_PROJECTION = re.compile(r"(?:^|\.)encoder\.(?:attention|feed_forward)\.\d+\.output\.weight$")
_ZERO_AT_FIRST = (".up", ".gate.weight")
_INJECTION = re.compile(r"(?:^|\.)encoder\.injection\.weight$")


def block_matrices(model: nn.Module) -> dict[str, int]:
    """The weights of linear layers in the blocks by name, with the number of matrices stacked in each: two
    for a gated feed-forward, whose first output is twice as wide as its second input, and three for an input
    injection, for queries, keys and values.
    """
    shapes = {name: p.shape for name, p in model.named_parameters() if p.ndim == 2 and _MATRIX.search(name)}
    found = dict.fromkeys(shapes, 1)
    for name, (rows, _) in shapes.items():
        block, middle, _ = name.rpartition("intermediate.weight")
        after = shapes.get(f"{block}output.weight") if middle else None
        if after is not None and rows % after[1] == 0:
            found[name] = rows // after[1]
    return found | {name: 3 for name, _ in model.named_parameters() if _INJECTION.search(name)}


def parameter_groups(
    model: nn.Module,
    weight_decay: float,
    rate_of: RateOf | None = None,
    matrices: Mapping[str, int] | None = None,
    zero_outputs: bool = False,
) -> list[dict[str, Any]]:
    """Parameter groups: matrices with weight decay (and LAMB's adaptation), biases and LayerNorm weights
    without either; a group of each for every learning rate.

    Google excludes by name (`LayerNorm`, `layer_norm`, `bias`; `optimization.py`); here every vector is
    excluded. A parameter that several layers share is adapted once. A matrix that is zero at first (the
    second factor of a low-rank addition, a head gate) has weight decay but no adaptation, in which updates
    are proportional to its norm.

    Args:
        rate_of: share of the step's learning rate by parameter name; default 1 for all.
        matrices: for Muon, of `block_matrices`; they get groups of their own.
        zero_outputs: whether the output projections of the blocks were zero at first too.
    """
    groups: dict[tuple[bool, bool, float, int], dict[str, Any]] = {}
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        plain, rate = is_excluded(name, parameter), 1.0 if rate_of is None else rate_of(name)
        stacked = (matrices or {}).get(name, 0)
        zero = name.endswith(_ZERO_AT_FIRST) or (zero_outputs and _OUTPUT_PROJECTION.search(name))
        adapt = not plain and not zero
        new = {"params": [], "weight_decay": 0.0 if plain else weight_decay, "adapt": adapt, "rate": rate}
        groups.setdefault((plain, adapt, rate, stacked), new | {"matrices": stacked})["params"].append(
            parameter
        )
    return [groups[key] for key in sorted(groups)]


def is_excluded(name: str, parameter: Tensor) -> bool:
    """Whether a parameter has neither weight decay nor layer adaptation."""
    return parameter.ndim < 2 or "norm" in name.lower() or "bias" in name.rsplit(".", 1)[-1]


def build_optimizer(
    model: nn.Module,
    kind: OptimizerKind,
    *,
    weight_decay: float = 0.01,
    betas: tuple[float, float] | None = None,
    eps: float | None = None,
    rate_of: RateOf | None = None,
    adamw_share: float | None = None,
    zero_outputs: bool = False,
    precision: Precision = "auto",
    world: World | None = None,
) -> Optimizer:
    """The optimizer of a run; the learning rate is an argument of every step.

    Args:
        betas, eps: of LAMB and AdamW; default: the ALBERT paper's, 0.9, 0.999 and 1e-6, and beside Muon
            0.9, 0.98 and 1e-8.
        rate_of: share of that learning rate by parameter name; default 1 for all.
        adamw_share: Muon: learning rate of all other parameters over that of the matrices; default
            `ADAMW_SHARE`.
        zero_outputs: as in `parameter_groups`.
        precision, world: Muon: number format of its products, and the processes that compute them.

    Raises:
        SettingsError: an unknown kind, or a precision that the device does not support.
    """
    if kind == "muon":
        matrices, share = block_matrices(model), ADAMW_SHARE if adamw_share is None else adamw_share

        def rate(name: str) -> float:
            return (1.0 if rate_of is None else rate_of(name)) * (1.0 if name in matrices else share)

        groups = parameter_groups(model, weight_decay, rate, matrices)
        betas, eps = betas or (0.9, 0.98), 1e-8 if eps is None else eps
        return Muon(groups, betas=betas, eps=eps, precision=precision, world=world)
    groups = parameter_groups(model, weight_decay, rate_of, zero_outputs=zero_outputs)
    betas, eps = betas or (0.9, 0.999), 1e-6 if eps is None else eps
    if kind == "lamb":
        return Lamb(groups, betas=betas, eps=eps)
    if kind == "adamw":
        # The fused kernel is five times as fast as the loop on a CPU; it exists for CPU and CUDA.
        fused = {p.device.type for p in model.parameters()} <= {"cpu", "cuda"}
        return AdamW(groups, lr=0.0, betas=betas, eps=eps, fused=fused)
    raise SettingsError(f"unknown optimizer `{kind}`", remedy="Use lamb or adamw, or muon")
