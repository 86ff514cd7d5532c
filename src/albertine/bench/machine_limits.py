"""What a machine can do at the moment, against which times are to be read."""

from __future__ import annotations

import time

import torch

from albertine.core.devices import fast_bfloat16

SIZE = 1536


def tflops() -> dict[str, float]:
    """TFLOP/s of a large matrix product by format, fastest of three; in bfloat16 where the processor has it.

    A virtual machine that shares its cores may have half of them for minutes, which no clock shows.
    """
    formats = {"float32": torch.float32}
    if fast_bfloat16(torch.device("cpu")):
        formats["bfloat16"] = torch.bfloat16
    return {name: _tflops(dtype) for name, dtype in formats.items()}


@torch.inference_mode()
def _tflops(dtype: torch.dtype) -> float:
    a = torch.ones(SIZE, SIZE, dtype=dtype)
    seconds = []
    for _ in range(4):  # the first compiles a kernel
        begin = time.perf_counter()
        torch.mm(a, a)
        seconds.append(time.perf_counter() - begin)
    return 2 * SIZE**3 / min(seconds[1:]) / 1e12
