"""What torch compiles for training: on a processor the tanh GELU, elsewhere a whole depth.

torch's own tanh GELU takes longer than the product before it: its tanh is several times as slow as its exp.
The same as x·σ(2c(x + 0.044715x³)), c = √(2/π), in one compiled loop takes less than half of the time,
forward and backward; to compile it takes half a minute once on a machine, and a C++ compiler. On a GPU every
operation between two products costs a way to memory and back, so there the depth is compiled as one: once,
for all depths and for batches of any number of rows.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from albertine.precision import Compiled

if TYPE_CHECKING:
    from albertine.model.attention import Segments
    from albertine.model.block import PreparedAttention, PreparedFeedForward

SLOPE, CUBIC = 2 * 0.7978845608028654, 0.044715

log = logging.getLogger(__name__)


def compiles(device: torch.device) -> Compiled:
    """What is compiled there."""
    return "activation" if device.type == "cpu" else "depth"


def depth(
    x_TH: Tensor, keys: Segments, attention: PreparedAttention, feed_forward: PreparedFeedForward
) -> Tensor:
    """One depth for all rows, (T, H) to (T, H), as one compiled function."""
    found: Tensor = _compiled_depth()(x_TH, keys, attention, feed_forward)
    return found


@cache
def _compiled_depth() -> Callable[..., Tensor]:
    return torch.compile(_depth, dynamic=True)


def _depth(
    x_TH: Tensor, keys: Segments, attention: PreparedAttention, feed_forward: PreparedFeedForward
) -> Tensor:
    return feed_forward(attention(x_TH, keys, None))


def gelu_tanh(x: Tensor) -> Tensor:
    """The tanh form of GELU, computed in float32 and given in the format of x; compiled where that works."""
    if _kernels() is None:
        return F.gelu(x, approximate="tanh")
    return cast(Tensor, _Compiled.apply(x))  # type: ignore[no-untyped-call]


def _forward(x: Tensor) -> Tensor:
    wide = x.float()
    return (wide * torch.sigmoid(SLOPE * (wide + CUBIC * wide * wide * wide))).to(x.dtype)


def _backward(dy: Tensor, x: Tensor) -> Tensor:
    wide = x.float()
    gate = torch.sigmoid(SLOPE * (wide + CUBIC * wide * wide * wide))
    slope = SLOPE * (1 + 3 * CUBIC * wide * wide)
    return (dy.float() * (gate + wide * gate * (1 - gate) * slope)).to(x.dtype)


@cache
def _kernels() -> tuple[Callable[[Tensor], Tensor], Callable[[Tensor, Tensor], Tensor]] | None:
    """Both, compiled for any number of rows, or None where they cannot be."""
    forward, backward = (torch.compile(f, dynamic=True) for f in (_forward, _backward))
    try:
        with torch.no_grad():
            x = torch.linspace(-6, 6, 32).view(4, 8)
            right = bool((forward(x) - F.gelu(x, approximate="tanh")).abs().max() < 1e-5)
            backward(x, x)
    except Exception as error:  # a compiler that is missing or broken shows itself in many ways
        log.warning("not compiled (%s); the plain GELU is used", str(error).splitlines()[0][:200])
        return None
    return (forward, backward) if right else None


class _Compiled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        kernels = _kernels()
        assert kernels is not None
        return kernels[0](x)

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, dy: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        kernels = _kernels()
        assert kernels is not None
        return kernels[1](dy.contiguous(), x)
