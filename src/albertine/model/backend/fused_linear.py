"""Linear layers for inference on a CPU: product, bias, activation and residual in one oneDNN kernel.

The kernels are those of torch's own compiler (`mkldnn._linear_pointwise`). They are not public, so
`autotune.py` checks them against plain operations before they are used.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from albertine.model.backend.base import PLAIN

KERNELS = {"gelu": ("gelu", "none"), "gelu_new": ("gelu", "tanh"), "relu": ("relu", "")}
"""oneDNN's name and algorithm for the activations that it fuses. Of "relu2" it fuses the ReLU, and the square
follows in place."""


def activation_name(name: str, dtype: torch.dtype) -> str:
    """The activation that is computed on a CPU for a name.

    Below float32 GELU always has the erf form: the two differ by at most 5e-4, less than the rounding of such
    formats (decision 015), and torch's tanh takes four times as long.
    """
    return "gelu" if name == "gelu_new" and dtype != torch.float32 else name


MANY, SMALL = 128, 1 << 17
"""Minimum rows, and maximum weights, for which a CPU with AVX2 alone multiplies faster without weights
prepacked for oneDNN: by a third in the smallest products (docs/experiments). With many rows torch takes a
tenth less than oneDNN or a sixth more, depending on the CPU, so that is measured (`autotune.py`). A single
row of larger weights, which torch multiplies in half the time, uses oneDNN all the same: the last layer of a
shared model would read weights that the other layers have not cached."""


class FusedLinear:
    """x·Wᵀ + b in float32 or bfloat16, without gradients.

    Args:
        weight: (out, in). bias: (out,), of the same dtype; made contiguous, because oneDNN ignores strides.
        narrow: for AVX2 alone, where oneDNN's GELU in float32 takes three to eight times as long as torch's:
            activations follow the product, and small products use torch.
        many: whether oneDNN multiplies many rows on such a CPU, instead of torch.
    """

    def __init__(self, weight: Tensor, bias: Tensor, narrow: bool = False, many: bool = False) -> None:
        self.weight, self.bias, self.narrow = weight.detach(), bias.detach().contiguous(), narrow
        self._many = many
        self._laid_out: Tensor | None = None
        self._product = torch.ops.mkldnn._linear_pointwise.default
        self._added = torch.ops.mkldnn._linear_pointwise.binary

    def __call__(self, x_TI: Tensor, activation: str | None = None, residual: Tensor | None = None) -> Tensor:
        """Rows (T, in) to (T, out): through an activation, and then added to a residual (T, out)."""
        if self.narrow and self._without_layout(x_TI.shape[0]):
            return activate_and_add(F.linear(x_TI, self.weight, self.bias), activation, residual)
        weight = self._laid_out
        if weight is None:  # prepacked for about this number of rows; any number can use it
            whole = self.weight.contiguous()
            weight = self._laid_out = torch.ops.mkldnn._reorder_linear_weight(whole, x_TI.shape[0] or None)
        if activation is None and residual is not None:
            summed: Tensor = self._added(x_TI, residual, weight, self.bias, "add")
            return summed
        name, algorithm = "none", ""
        squared = activation == "relu2"
        if activation is not None and not self.narrow:
            fused = "relu" if squared else activation_name(activation, self.weight.dtype)
            name, algorithm = KERNELS[fused]
        out = self._product(x_TI, weight, self.bias, name, [], algorithm)
        if squared and not self.narrow:
            out.square_()
        return activate_and_add(out, activation if self.narrow else None, residual)

    def _without_layout(self, rows: int) -> bool:
        """Whether, with AVX2 alone, torch's product is faster for this number of rows."""
        return (rows >= MANY and not self._many) or self.weight.numel() <= SMALL


def activate_and_add(y_TO: Tensor, activation: str | None, residual: Tensor | None) -> Tensor:
    """A product (T, out), which may be modified in place, through an activation, and then added to a
    residual."""
    y_TO = y_TO if activation is None else PLAIN.activate(y_TO, activation)
    return y_TO if residual is None else y_TO.add_(residual)
