"""Autotuning of attention in bfloat16 without gradients, once a process, as `autotune.py` does for products.

torch's fused kernel has products of its own in bfloat16 with AMX alone. Elsewhere it computes in float32, and
two plain products with a softmax between them take half its time where the CPU multiplies bfloat16.
"""

from __future__ import annotations

from functools import cache, partial

import torch

from albertine.core.devices import fast_bfloat16
from albertine.model.backend.autotune import BETTER, TOLERANCE, KernelChoice, fastest_times, fixed_form
from albertine.model.backend.cpu_attention import QueryMask, by_kernel, by_products

FUSED = "aten.scaled_dot_product_attention"
SHAPE = (4, 96, 12, 64)
"""Timed shape: sequences, tokens, heads, head size."""


def products_are_faster() -> bool:
    """Whether plain products are faster here, and correct."""
    return (fixed_form("attention") or choice().form) == "products"


@cache
def choice() -> KernelChoice:
    """The chosen form, "products" or "fused"."""
    if not fast_bfloat16(torch.device("cpu")):
        return KernelChoice("attention", "fused", FUSED)
    with torch.inference_mode():
        count = torch.Size((3, *SHAPE)).numel()
        values = torch.arange(1, count + 1, dtype=torch.float32, device="cpu").mul_(12.9898).sin_()
        q, k, v = values.view(3, *SHAPE).transpose(2, 3).bfloat16().unbind(0)
        exact = by_kernel(q.float(), k.float(), v.float(), QueryMask(), 0.0)
        found = by_products(q, k, v).float()
        wrong = not bool((found - exact).abs().max() <= TOLERANCE["bfloat16"] * exact.abs().max())
        ways = {
            "fused": partial(by_kernel, q, k, v, QueryMask(), 0.0),
            "products": partial(by_products, q, k, v),
        }
        times = fastest_times(ways, lambda t: t["products"] <= BETTER * t["fused"])
    if wrong or times["products"] > BETTER * times["fused"]:
        return KernelChoice("attention", "fused", FUSED, times["fused"], times["fused"])
    return KernelChoice("attention", "products", "aten.baddbmm", times["products"], times["fused"])
