"""What a run finds in the process that calls it, and leaves as it was."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from albertine.core.devices import on_cpu
from albertine.core.randomness import isolated_torch_rng
from albertine.training.distributed import World, stop


@contextmanager
def own_process(world: World, threads: int | None = None) -> Iterator[None]:
    """Train as in a process of one's own: gradients flow also under `torch.no_grad`, numbers are float32 and
    lie where the run computes whatever the default format and device, products are as the settings say also
    under `torch.autocast`. Afterwards torch's generators, that format and the number of threads are as a
    program had them, and the other processes of the run are left.

    Args:
        world: as `start` gave it. threads: how many compute on a processor; None: as many as before.
    """
    before, broken = torch.get_num_threads(), True
    try:
        if threads:
            torch.set_num_threads(threads)
        plain = torch.autocast(world.device.type, enabled=False)
        # The third is with gradients.
        with on_cpu(), isolated_torch_rng(world.device), torch.inference_mode(False), plain:
            yield
        broken = False
    finally:
        if threads:
            torch.set_num_threads(before)
        stop(world, broken=broken)
