"""What a process that is forked beside a model computes."""

import os
import signal
import time

import torch

from tests.model import builders

LONGEST = 60.0
"""Seconds until a process that still computes is taken for hanging."""


def test_a_forked_process_does_not_wait_for_the_threads_of_its_parent():
    torch.set_num_threads(2)  # which conftest.py takes back
    builders.model()
    many = torch.ones(1 << 20)
    assert many.sum() == len(many)  # here by two threads
    child = os.fork()
    if child == 0:
        alone = torch.get_num_threads() == 1 and many.sum() == len(many)
        os._exit(0 if alone else 1)
    until = time.monotonic() + LONGEST
    while (ended := os.waitpid(child, os.WNOHANG)) == (0, 0) and time.monotonic() < until:
        time.sleep(0.01)
    if ended == (0, 0):
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert ended == (child, 0)
    assert torch.get_num_threads() == 2
