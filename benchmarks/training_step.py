"""One training step (forward and backward) of ALBERT-base against transformers, in one process.

    python -m benchmarks.training_step

The peer is `AlbertForPreTraining` as it comes: a padded batch and the masked-LM head over every position.
Ours is packed, with the head at the masked positions only. Eight sequences of at most 128 tokens, 57 % of
the padded batch real, 15 % of the real tokens masked. The variants take turns and the fastest of their runs
counts, because other work on the machine only ever adds time.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

import albertine
from albertine.layout import pack
from albertine.objectives.batch import PretrainingBatch
from albertine.objectives.losses import pretraining_losses
from albertine.precision import Precision, fast_bfloat16
from benchmarks.machine import describe, save_result

LENGTHS = (128, 104, 88, 76, 64, 52, 40, 32)  # 584 of 8 x 128 = 57 %


def inputs(vocab_size: int) -> tuple[dict[str, torch.Tensor], PretrainingBatch]:
    """The same eight sentence pairs, padded for the peer and packed for us."""
    rng = np.random.default_rng(0)
    rows, types, positions, offset = [], [], [], 0
    padded = torch.zeros(len(LENGTHS), max(LENGTHS), dtype=torch.long)
    mask, kinds, labels = torch.zeros_like(padded), torch.zeros_like(padded), torch.full_like(padded, -100)
    flat_labels = []
    for i, length in enumerate(LENGTHS):
        ids = rng.integers(5, vocab_size, length)
        kind = (np.arange(length) >= length // 2).astype(np.int64)
        chosen = np.sort(rng.choice(np.arange(1, length - 1), max(1, round(0.15 * length)), replace=False))
        rows.append(ids)
        types.append(kind)
        positions.append(chosen + offset)
        flat_labels.append(ids[chosen])
        padded[i, :length], kinds[i, :length], mask[i, :length] = torch.tensor(ids), torch.tensor(kind), 1
        labels[i, chosen] = torch.tensor(ids[chosen])
        offset += length
    order = torch.tensor(rng.integers(0, 2, len(LENGTHS)))
    batch = PretrainingBatch(
        packed=pack(rows, types),
        mlm_positions=torch.tensor(np.concatenate(positions)),
        mlm_labels=torch.tensor(np.concatenate(flat_labels)),
        sentence_labels=order,
        sentence_count=len(LENGTHS),
        samples=torch.zeros(len(LENGTHS), 2, dtype=torch.long),
    )
    peer = {
        "input_ids": padded,
        "attention_mask": mask,
        "token_type_ids": kinds,
        "labels": labels,
        "sentence_order_label": order,
    }
    return peer, batch


def our_step(model: torch.nn.Module, batch: PretrainingBatch) -> float:
    parts = pretraining_losses(model, batch)
    loss = sum(part.loss_sum / part.count for part in parts.values())
    loss.backward()
    model.zero_grad(set_to_none=True)
    return float(loss.detach())


def peer_step(model: torch.nn.Module, inputs: dict[str, torch.Tensor], bf16: bool) -> float:
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=bf16):
        loss = model(**inputs).loss
    loss.backward()
    model.zero_grad(set_to_none=True)
    return float(loss.detach())


def measure(variants: dict[str, Callable[[], float]], rounds: int) -> dict[str, dict[str, float]]:
    """Milliseconds of every variant, in turn, after one warm-up each."""
    losses = {name: run() for name, run in variants.items()}
    times: dict[str, list[float]] = {name: [] for name in variants}
    for _ in range(rounds):
        for name, run in variants.items():
            begin = time.perf_counter()
            run()
            times[name].append((time.perf_counter() - begin) * 1e3)
    return {
        name: {"min_ms": min(t), "median_ms": statistics.median(t), "loss": losses[name]}
        for name, t in times.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument(
        "--bf16",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="also bfloat16; minutes where it is emulated",
    )
    parser.add_argument("--save", action="store_true", help="write the result under benchmarks/results")
    arguments = parser.parse_args()
    from transformers import AlbertConfig, AlbertForPreTraining

    torch.manual_seed(0)
    config = AlbertConfig(
        hidden_size=768,
        num_attention_heads=12,
        intermediate_size=3072,
        classifier_dropout_prob=0.0,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    theirs = AlbertForPreTraining(config).train()
    with tempfile.TemporaryDirectory() as folder:
        theirs.save_pretrained(folder)
        ours = albertine.load(Path(folder)).train()
    peer, batch = inputs(config.vocab_size)

    def ours_in(precision: Precision) -> Callable[[], float]:
        def run() -> float:
            ours.precision = precision
            return our_step(ours, batch)

        return run

    # Where bfloat16 is emulated one of its steps takes minutes: the two formats are measured apart.
    result = measure(
        {
            "transformers fp32, padded, dense head": lambda: peer_step(theirs, peer, bf16=False),
            "albertine fp32, packed": ours_in("float32"),
        },
        arguments.rounds,
    )
    base32, mine32 = (row["min_ms"] for row in result.values())
    ratios = {"albertine fp32 / transformers fp32": base32 / mine32}
    if arguments.bf16:
        rounds = arguments.rounds if fast_bfloat16(torch.device("cpu")) else 1
        halves = measure(
            {
                "transformers bf16, padded, dense head": lambda: peer_step(theirs, peer, bf16=True),
                "albertine bf16, packed": ours_in("bfloat16"),
            },
            rounds,
        )
        base16, mine16 = (row["min_ms"] for row in halves.values())
        result |= halves
        ratios["albertine bf16 / transformers bf16"] = base16 / mine16
        ratios["albertine, faster format / transformers fp32"] = base32 / min(mine32, mine16)
    for name, row in result.items():
        print(f"{name:42} {row['min_ms']:8.0f} ms (median {row['median_ms']:.0f})  loss {row['loss']:.4f}")
    for name, ratio in ratios.items():
        print(f"{name:48} {ratio:5.2f}x faster")
    if arguments.save:
        save_result(
            "training-step",
            {"machine": describe(), "rounds": arguments.rounds, "runs": result, "ratios": ratios},
        )


if __name__ == "__main__":
    main()
