"""One layer's products on this processor, in float32, bfloat16 and int8, in every form there is.

    python -m benchmarks.layer [THREADS]

768 to 2,304, 768 to 768 with a residual, 768 to 3,072 through GELU, 3,072 to 768 with a residual; the least
of several times, taken in turn. ONEDNN_MAX_CPU_ISA and ATEN_CPU_CAPABILITY (avx2) make it an older processor.
"""

from __future__ import annotations

import argparse
import time

import torch
from torch import Tensor

from albertine.model.backend.autotune import CANDIDATES, LinearLayer, choices

HIDDEN, INNER = 768, 3072
SHAPES = ((3 * HIDDEN, HIDDEN), (HIDDEN, HIDDEN), (INNER, HIDDEN), (HIDDEN, INNER))
REPEATS = {32: 40, 1024: 8, 4096: 4}


def run(layers: list[LinearLayer], x: Tensor) -> Tensor:
    """What a block multiplies, but for attention and norms."""
    first, output, up, down = layers
    first(x)
    y = output(x, None, x)
    return down(up(y, "gelu"), None, y)


def _milliseconds(layer: LinearLayer, x: Tensor) -> float:
    """Of a call after the first one; a loop of scalars takes 25 for two rows."""
    layer(x)
    begin = time.perf_counter()
    layer(x)
    return 1e3 * (time.perf_counter() - begin)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("threads", type=int, nargs="?", default=1, help="default 1")
    torch.set_num_threads(parser.parse_args().threads)
    for choice in choices():
        print(f"{choice.kind}: {choice.form}, {1e3 * choice.seconds:.2f} ms against {1e3 * choice.plain:.2f}")
    weights = [(torch.randn(shape) / shape[1] ** 0.5, torch.randn(shape[0])) for shape in SHAPES]
    ways: dict[str, tuple[list[LinearLayer], torch.dtype]] = {}
    for kind, dtype in (
        ("float32", torch.float32),
        ("bfloat16", torch.bfloat16),
        ("int8", torch.float32),
        ("int8", torch.bfloat16),
    ):
        for way in CANDIDATES[kind]:
            name = f"{kind}, {way.form}" + (
                " to bfloat16" if kind == "int8" and dtype == torch.bfloat16 else ""
            )
            try:
                layers = [way.make(*each, dtype) for each in weights]
                if _milliseconds(layers[1], torch.randn(2, HIDDEN).to(dtype)) < 10:
                    ways[name] = layers, dtype
                    continue
            except (RuntimeError, AttributeError):
                pass
            print(f"left out: {name}")
    for rows, repeats in REPEATS.items():
        best = {name: float("inf") for name in ways}
        for _ in range(repeats):
            for name in best:
                layers, dtype = ways[name]
                x = torch.randn(rows, HIDDEN).to(dtype)
                begin = time.perf_counter()
                run(layers, x)
                best[name] = min(best[name], time.perf_counter() - begin)
        usual = best["float32, fused"]
        for name, seconds in best.items():
            print(f"{rows:5} rows  {name:40} {1e3 * seconds:8.2f} ms  {usual / seconds:5.2f}")


if __name__ == "__main__":
    with torch.inference_mode():
        main()
