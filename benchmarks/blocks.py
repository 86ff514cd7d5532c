"""What the encoder's choices cost: a training step of each block beside ALBERT's of the same width, in turn.

    python -m benchmarks.blocks --save

4 depths of 256 that share one block, 4,096 tokens in sequences of --length, a seventh of them predicted. The
fastest of the rounds counts. Random weights.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from albertine.core.batch import Packed, pack
from albertine.model.config import EncoderConfig
from albertine.model.model import Model
from albertine.model.sharing import SharingPlan
from albertine.training.optimizers import build_optimizer

TOKENS, VOCABULARY = 4096, 8000
SHARED = SharingPlan.shared(4)
BASE: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "embedding_size": 128,
    "hidden_size": 256,
    "num_attention_heads": 4,
    "intermediate_size": 1024,
    "plan": SHARED,
}
MODERN = {"positions": "rotary", "norm": "pre", "feed_forward": "gated", "biases": False}
BLOCKS: dict[str, dict[str, Any]] = {
    "ALBERT": {},
    "RoFormer": {"positions": "rotary"},
    "rotary, QK-norm": {"positions": "rotary", "qk_norm": True},
    "rotary, pre-norm, QK-norm": {"positions": "rotary", "norm": "pre", "qk_norm": True},
    "ModernBERT, F 704": MODERN | {"intermediate_size": 704, "type_vocab_size": 0},
    "own norms, residuals, injection": {"plan": replace(SHARED, own=("norms", "residuals", "injection"))},
    "low rank 8": {"plan": replace(SHARED, low_rank=8)},
}


def batch_of(length: int) -> tuple[Packed, Tensor, Tensor]:
    """Packed sequences, the rows to predict, and what they are to be."""
    random = np.random.default_rng(0)
    count = TOKENS // length
    texts = [random.integers(5, VOCABULARY, length) for _ in range(count)]
    rows = np.sort(random.choice(count * length, count * length * 3 // 20, replace=False))
    labels = random.integers(5, VOCABULARY, len(rows))
    return pack(texts, [np.arange(length) >= length // 2] * count), *map(torch.from_numpy, (rows, labels))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--save", action="store_true", help="keep the result below benchmarks/results")
    options = parser.parse_args()
    packed, rows, labels = batch_of(options.length)
    models = {}
    for name, change in BLOCKS.items():
        model = Model(EncoderConfig(**BASE | change), {"mlm", "sop"}).train()
        model.precision = "auto"
        models[name] = model, build_optimizer(model, "muon")
    seconds: dict[str, dict[str, list[float]]] = {n: {"gradients": [], "update": []} for n in BLOCKS}
    for number in range(options.rounds + 2):
        for name, (model, optimizer) in models.items():
            start = time.perf_counter()
            logits, order = model.pretraining_forward(packed, rows)
            assert order is not None
            (F.cross_entropy(logits.float(), labels) + order.float().square().mean()).backward()
            between = time.perf_counter()
            for group in optimizer.param_groups:
                group["lr"] = 1e-4
            optimizer.step()
            end = time.perf_counter()
            optimizer.zero_grad(set_to_none=True)
            if number > 1:
                seconds[name]["gradients"].append(between - start)
                seconds[name]["update"].append(end - between)
    found = {}
    for name in BLOCKS:
        gradients, update = (1e3 * min(seconds[name][part]) for part in ("gradients", "update"))
        found[name] = {"gradients": gradients, "update": update}
        ratio = gradients / found["ALBERT"]["gradients"]
        print(f"{name:34} {gradients:7.1f} ms, {ratio:.2f} times ALBERT's; Muon {update:.1f} ms")
    if options.save:
        from benchmarks.keep import keep

        keep("blocks", {"length": options.length, "tokens": TOKENS, "milliseconds": found})


if __name__ == "__main__":
    main()
