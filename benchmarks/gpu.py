"""Everything that needs a GPU, checked and measured in one call.

    python -m benchmarks.gpu --save            rates against transformers, with the card's own ceilings
    python -m benchmarks.gpu --corpus FOLDER --minutes 15 --save     and one run of ALBERT-base on that corpus

Rates are tokens of training (forward, backward, optimizer) per second at 512 real tokens a sequence, MLM +
SOP, bfloat16, in one process. MFU counts matrix products only: 6·L·(4h²+2hf) + 12·L·h·s + 6·E·h + 6·m(hE+EV)
per token, m = 0.15, over the matrix-product rate measured on the same card in the same call.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

import albertine
from albertine.analysis.parameters import training_flops_per_token
from albertine.bench.inputs import inputs, pretraining
from albertine.bench.machine import describe
from albertine.bench.step import learn
from benchmarks.keep import keep

LENGTH = 512


def ceilings() -> dict[str, float]:
    """What the card does at best: bfloat16 matrix products (TFLOP/s) and copies (GB/s)."""
    a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    big = torch.empty(2**30, device="cuda", dtype=torch.uint8)
    product = seconds(lambda: a @ a, 30)
    copy = seconds(lambda: big.clone(), 20)
    return {"bf16_tflops": 2 * 8192**3 / product / 1e12, "copy_gb_per_s": 2 * 2**30 / copy / 1e9}


def seconds(run: Callable[[], Any], rounds: int) -> float:
    """Fastest of `rounds` runs after three warm-ups, device finished each time."""
    best = float("inf")
    for i in range(rounds + 3):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        run()
        torch.cuda.synchronize()
        if i >= 3:
            best = min(best, time.perf_counter() - begin)
    return best


def rates(preset: str, sequences: int, fill: float, rounds: int) -> dict[str, Any]:
    """Tokens per second of ours (eager) and of transformers (eager, compiled) at one fill."""
    from transformers import AlbertConfig, AlbertForPreTraining

    shape = albertine.presets()[preset]
    config = AlbertConfig(
        hidden_size=shape.hidden_size,
        num_hidden_layers=shape.num_hidden_layers,
        num_attention_heads=shape.num_attention_heads,
        intermediate_size=shape.intermediate_size,
        classifier_dropout_prob=0.0,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    theirs = AlbertForPreTraining(config).cuda().train()
    with tempfile.TemporaryDirectory() as folder:
        theirs.save_pretrained(folder)
        ours = albertine.load(Path(folder)).cuda().train()
    ours.precision = "bfloat16"
    rng = np.random.default_rng(1)
    lengths = (
        np.full(sequences, LENGTH)
        if fill == 1
        else rng.integers(round((2 * fill - 1) * LENGTH), LENGTH + 1, sequences)
    )
    batch, padded = pretraining(inputs("gpu", lengths.tolist(), config.vocab_size))
    peer, mine = {name: x.cuda() for name, x in padded.items()}, batch.to("cuda")
    tokens = batch.packed.num_tokens

    def step_ours(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
        learn(model, mine)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    def step_theirs(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(**peer).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    result: dict[str, Any] = {
        "preset": preset,
        "sequences": sequences,
        "tokens": tokens,
        "fill": tokens / (sequences * LENGTH),
    }
    flops = training_flops_per_token(shape, LENGTH)
    for name, model, step in (
        ("albertine eager", ours, step_ours),
        ("transformers eager", theirs, step_theirs),
        ("transformers compiled", theirs, step_theirs),
    ):
        if name == "transformers compiled":
            model = torch.compile(theirs)  # type: ignore[assignment]
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
        torch.cuda.reset_peak_memory_stats()
        try:
            took = seconds(lambda m=model, o=optimizer, s=step: s(m, o), rounds)  # type: ignore[misc]
        except torch.OutOfMemoryError:
            result[name] = {"out_of_memory": True}
            continue
        result[name] = {
            "tokens_per_second": tokens / took,
            "tflops": tokens / took * flops / 1e12,
            "peak_gb": torch.cuda.max_memory_allocated() / 1e9,
        }
        print(preset, f"fill {result['fill']:.2f}", name, result[name], flush=True)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--preset", nargs="*", default=["albert-base-v2"])
    parser.add_argument("--sequences", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--corpus", type=Path, help="also pretrain ALBERT-base on this corpus")
    parser.add_argument("--minutes", type=float, default=15)
    parser.add_argument("--output", type=Path, default=Path("runs"))
    parser.add_argument("--save", action="store_true", help="write the result under benchmarks/results")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("this benchmark needs a CUDA device; torch sees none")
    torch.set_float32_matmul_precision("high")
    result: dict[str, Any] = {"machine": describe(), "ceilings": ceilings(), "rates": []}
    print(result["ceilings"], flush=True)
    for preset in arguments.preset:
        for fill in (1.0, 0.6):
            row = rates(preset, arguments.sequences, fill, arguments.rounds)
            for value in row.values():
                if isinstance(value, dict) and "tflops" in value:
                    value["mfu"] = value["tflops"] / result["ceilings"]["bf16_tflops"]
            result["rates"].append(row)
    if arguments.save:
        keep("gpu", result)
    if arguments.corpus:
        command = [sys.executable, "-m", "albertine", "pretrain", "--config", "recipes/albert-base-en.yaml"]
        overrides = [
            f"corpus={arguments.corpus}",
            f"output={arguments.output}",
            f"training.minutes={arguments.minutes}",
        ]
        subprocess.run([*command, *overrides, "training.steps=null"], check=True)


if __name__ == "__main__":
    main()
