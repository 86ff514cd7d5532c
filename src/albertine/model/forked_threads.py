"""Processes that are forked from one that has a model compute with one thread of torch, as servers and pools
make them: importing this says so.

The threads among which torch shares an operation out do not live on in such a process, and it would wait for
them for ever: loading a model is enough to start them.
"""

from __future__ import annotations

import os

import torch

os.register_at_fork(after_in_child=lambda: torch.set_num_threads(1))
