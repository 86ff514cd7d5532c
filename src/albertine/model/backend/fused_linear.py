"""Linear layers of inference on a processor: product, bias and what follows them in one kernel of oneDNN.

The kernels are those that torch's own compiler puts into models (`mkldnn._linear_pointwise`). They are not
part of its public interface, so `proof.py` tries them against the plain operations before it lets anybody use
them.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from albertine.model.backend.base import PLAIN

KERNELS = {"gelu": ("gelu", "none"), "gelu_new": ("gelu", "tanh"), "relu": ("relu", "")}
"""oneDNN's name and algorithm of every activation."""


def formula(name: str, dtype: torch.dtype) -> str:
    """The formula of an activation on a processor, by its name.

    In less than float32 GELU is always that of erf. The two are within 5e-4, which the rounding of such
    formats hides (decision 015); torch's tanh takes four times as long.
    """
    return "gelu" if name == "gelu_new" and dtype != torch.float32 else name


MANY, SMALL = 128, 1 << 17
"""Rows from which, and number of weights up to which, a processor with AVX2 alone multiplies faster without
weights laid out for oneDNN: by a third in the smallest products, most of which are calls (docs/experiments).
With many rows torch's library takes a tenth less than oneDNN or a sixth more, depending on the processor;
that is measured (`proof.py`). A single row of larger weights, which torch multiplies in half the time, is not
given to it: the last depth of a shared model would wait for weights that the others have not read."""


class FusedLinear:
    """x·Wᵀ + b in float32 or bfloat16, without gradients.

    Args:
        weight: (out, in). bias: (out,), of the same dtype; one with gaps is copied, as oneDNN takes no notice
            of them.
        narrow: for AVX2 alone, where oneDNN's GELU of float32 takes three to eight times as long as torch's:
            activations are computed after the product, and small products are torch's.
        many: whether oneDNN, not torch, multiplies many rows on such a processor.
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
            return followed(F.linear(x_TI, self.weight, self.bias), activation, residual)
        weight = self._laid_out
        if weight is None:  # in the order that suits about so many rows; any number of rows can use it
            whole = self.weight.contiguous()
            weight = self._laid_out = torch.ops.mkldnn._reorder_linear_weight(whole, x_TI.shape[0] or None)
        if activation is None and residual is not None:
            summed: Tensor = self._added(x_TI, residual, weight, self.bias, "add")
            return summed
        name, algorithm = "none", ""
        if activation is not None and not self.narrow:
            name, algorithm = KERNELS[formula(activation, self.weight.dtype)]
        out = self._product(x_TI, weight, self.bias, name, [], algorithm)
        return followed(out, activation if self.narrow else None, residual)

    def _without_layout(self, rows: int) -> bool:
        """Whether, with AVX2 alone, torch's own product of so many rows is the faster one."""
        return (rows >= MANY and not self._many) or self.weight.numel() <= SMALL


def followed(y_TO: Tensor, activation: str | None, residual: Tensor | None) -> Tensor:
    """A product (T, out), which nobody else has, through an activation, and then added to a residual."""
    y_TO = y_TO if activation is None else PLAIN.activate(y_TO, activation)
    return y_TO if residual is None else y_TO.add_(residual)
