"""Processes that are forked from one that has a model."""

from __future__ import annotations

import os
from functools import cache

import torch


@cache
def compute_alone_once_forked() -> None:
    """Let a process that is forked from this one, as servers and pools do, compute with one thread of torch.

    The threads among which torch shares an operation out do not live on in it, and it would wait for them for
    ever: loading a model is enough to start them.
    """
    os.register_at_fork(after_in_child=lambda: torch.set_num_threads(1))
