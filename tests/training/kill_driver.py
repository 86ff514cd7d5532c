"""Runs the toy job in real processes that are killed at random moments, and prints what came of it as JSON.

    python -m tests.training.kill_driver FOLDER KILLS SEED

A process of its own, with one thread from the start, so that it may fork: every run is then a process that
starts in a few milliseconds.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from albertine.training.average import Average
from albertine.training.loop import train
from albertine.training.run_folder import RunFolder
from tests.training.toy import toy_job, toy_loss

STEPS, PAUSE = 60, 0.004


def run(path: Path, kind: Any) -> int:
    def slow(model: Any, batch: Any) -> Any:
        time.sleep(PAUSE)
        return toy_loss(model, batch)

    with RunFolder(path) as folder:
        job = toy_job(folder, kind, steps=STEPS, checkpoint_every=6)
        job.loss_fn = slow
        if kind != "lamb":  # and with the average of the weights that a run may keep
            job.average = Average(job.model, 0.9)
        return train(job).exit_code


def forked(work: Callable[[], int]) -> int:
    child = os.fork()
    if child == 0:
        os.setpgrp()
        try:
            os._exit(work())
        except BaseException as error:
            print(error, file=sys.stderr)
            os._exit(1)
    os.setpgid(child, child)  # here too: it may be killed before it has begun
    return child


def end(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def digest(path: Path) -> list[str]:
    """SHA-256 of weights, optimiser and average at the last step."""
    files = (
        path / "checkpoints" / f"step-{STEPS}" / f"{name}.safetensors" for name in ("model", "optimizer")
    )
    return [hashlib.sha256(file.read_bytes()).hexdigest() for file in files]


def experiment(folder: Path, kind: str, kills: int, draws: random.Random) -> dict[str, Any]:
    straight, killed = folder / kind, folder / f"{kind}-killed"
    began = time.monotonic()
    assert end(forked(lambda: run(straight, kind))) == 0
    length = time.monotonic() - began
    codes = []
    for number in range(kills):
        child = forked(lambda: run(killed, kind))
        time.sleep(draws.uniform(0, 2.5 * length / kills))
        # A kill now, and now and then a polite request that saves first.
        os.killpg(child, signal.SIGTERM if number % 4 == 3 else signal.SIGKILL)
        codes.append(end(child))
    last = end(forked(lambda: run(killed, kind)))
    return {"codes": codes, "last": last, "same": digest(straight) == digest(killed)}


def main() -> None:
    torch.set_num_threads(1)
    os.fsync = os.fstat  # a kill loses nothing of what was written
    folder, kills, draws = Path(sys.argv[1]), int(sys.argv[2]), random.Random(int(sys.argv[3]))
    print(json.dumps({kind: experiment(folder, kind, kills, draws) for kind in ("lamb", "adamw", "muon")}))


if __name__ == "__main__":
    main()
