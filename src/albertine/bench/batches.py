"""How fast batches are made, beside how fast a small model uses them up."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Generator, Iterator
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from albertine.bench.idle_check import Moment, load_since
from albertine.bench.process import megabytes
from albertine.bench.step import learn
from albertine.core.settings import resolve
from albertine.corpus.reader import Corpus
from albertine.model.config import EncoderConfig
from albertine.model.model import Model
from albertine.pretraining.data import PretrainingBatches
from albertine.pretraining.settings import PretrainingSettings

SKIPPED, READY = 3, 8


def measure(
    corpus: Path, config: EncoderConfig, *, seconds: float, workers: tuple[int, ...], threads: int
) -> dict[str, Any]:
    """Tokens per second of the batches of a corpus, in this process (0) and from loader processes, with the
    memory that these hold then; and of the training step (forward and backward, `auto` precision) of a model
    on the same batches. The ratio of the two is None where other programs disturbed it.

    Args:
        seconds: for each. threads: processors that this program may use.

    Raises:
        CorpusError: the corpus is missing or damaged.
    """
    begin = Moment.now()
    made, held = {}, {}
    for count in workers:
        batches = _batches(corpus, count)
        name = f"{count} loader processes"
        made[name] = _rate(batches, seconds)
        held[name] = megabytes([child.pid for child in multiprocessing.active_children() if child.pid])
        batches.close()  # its processes would count as other programs, and disturb what is measured next
    begun = _batches(corpus, 0)
    ready = list(islice(begun, READY))  # made before the clock, so that the step alone counts
    begun.close()
    used = _rate(_trained(cycle(ready), config), seconds)
    calm = load_since(begin, threads)
    ratio = max(made.values()) / used if calm["quiet"] else None
    return {"made": made, "megabytes": held, "used": used, "ratio": ratio, **calm}


def _batches(corpus: Path, workers: int) -> Generator[Any, None, None]:
    settings = resolve(
        PretrainingSettings,
        {
            "name": "bench",
            "corpus": corpus,
            "model": {"preset": "albert-tiny-zh"},  # of no consequence for the batches
            "objective": {"max_length": 128},
            "training": {"steps": 1, "batch_size": 32, "workers": workers},
        },
    )
    for _, parts in PretrainingBatches(Corpus(corpus), settings, None):
        yield parts


def _trained(batches: Iterator[Any], config: EncoderConfig) -> Iterator[Any]:
    model = Model(config, ("mlm", "sop"), precision="auto").train()
    for parts in batches:
        for part in parts:
            learn(model, part)
        model.zero_grad(set_to_none=True)
        yield parts


def _rate(batches: Iterator[Any], seconds: float) -> float:
    for _ in range(SKIPPED):
        next(batches)
    tokens, begin = 0, time.perf_counter()
    while time.perf_counter() - begin < seconds:
        tokens += sum(part.packed.num_tokens for part in next(batches))
    return tokens / (time.perf_counter() - begin)
