"""Everything that needs a GPU, checked and measured in one call.

    python -m benchmarks.gpu --save            equality, rates beside transformers, the card's own ceilings
    python -m benchmarks.gpu --corpus FOLDER --minutes 15 --save     and one run of ALBERT-base on that corpus
    python -m benchmarks.gpu --rehearse        every line at toy size on a processor; measures nothing

Checked first: packed encoders in float32 and bfloat16, plain and compiled, against `tests/reference.py` and
against each other's gradients. Training rates are tokens of a whole step (forward, backward, AdamW) per
second at 512 real tokens a sequence, MLM + SOP, bfloat16; with the widest model activations are computed
again in the backward pass. MFU counts matrix products only: 6·L·(4h²+2hf) + 12·L·h·s + 6·E·h + 6·m(hE+EV)
per token, m = 0.15, over the matrix-product rate measured on the same card in the same call. Encoding is of
32 texts of at most 128 tokens.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import albertine
from albertine.analysis.parameters import training_flops_per_token
from albertine.bench.inputs import inputs, lengths_of, pretraining
from albertine.bench.machine import describe
from albertine.bench.step import learn
from albertine.model.config import EncoderConfig
from albertine.model.model import Model
from albertine.model.plan import SharingPlan
from albertine.model.presets import preset as named
from benchmarks.keep import keep
from tests.reference import encode

SEQUENCES = {"albert-base-v2": 128, "albert-large-v2": 64, "albert-xxlarge-v2": 32}
LENGTH = 512
WIDE = 4096
"""From this width on activations are computed again."""


class Place:
    """The card, or for a rehearsal a processor."""

    def __init__(self, rehearse: bool) -> None:
        self.device = torch.device("cpu" if rehearse else "cuda")
        self.rehearse = rehearse

    def wait(self) -> None:
        if not self.rehearse:
            torch.cuda.synchronize()

    def seconds(self, run: Callable[[], Any], rounds: int) -> float:
        """Fastest of `rounds` runs after three warm-ups, device finished each time."""
        best, warm = float("inf"), 1 if self.rehearse else 3
        for i in range(rounds + warm):
            self.wait()
            begin = time.perf_counter()
            run()
            self.wait()
            if i >= warm:
                best = min(best, time.perf_counter() - begin)
        return best

    def peak_gb(self) -> float:
        """Of the memory used since the last call."""
        if self.rehearse:
            return 0.0
        peak = torch.cuda.max_memory_allocated() / 1e9
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        return peak

    def compiled(self, model: nn.Module) -> Any:
        return torch.compile(model, backend="eager" if self.rehearse else "inductor")


def ceilings(place: Place) -> dict[str, float]:
    """What the card does at best: bfloat16 matrix products (TFLOP/s) and copies (GB/s)."""
    n, size = (64, 2**16) if place.rehearse else (8192, 2**30)
    a = torch.randn(n, n, device=place.device, dtype=torch.bfloat16)
    big = torch.empty(size, device=place.device, dtype=torch.uint8)
    product, copy = place.seconds(lambda: a @ a, 30), place.seconds(lambda: big.clone(), 20)
    return {"bf16_tflops": 2 * n**3 / product / 1e12, "copy_gb_per_s": 2 * size / copy / 1e9}


def agreement(place: Place) -> dict[str, float]:
    """Largest difference from the reference, relative to its largest value, of every fast path; and the
    cosine of all its gradients with those of plain float32."""
    shape = named("albert-base-v2")
    config = replace(shape, plan=SharingPlan.shared(3), vocab_size=1000)
    model = Model(config, ("mlm", "sop")).eval()
    given = inputs("agreement", lengths_of(6, 128, 0.6), config.vocab_size)
    padded = (given.padded[name] for name in ("input_ids", "attention_mask", "token_type_ids"))
    right = encode(model, *padded)[-1]
    real = given.padded["attention_mask"].bool()
    batch, _ = pretraining(given)
    model.to(place.device)
    mine, found = batch.to(place.device), {}
    gradients: dict[str, Tensor] = {}
    for precision in ("float32", "bfloat16"):
        for compiled in (False,) if place.rehearse else (False, True):
            name = precision + (", compiled" if compiled else "")
            model.precision, model.encoder.compiled = precision, compiled  # type: ignore[assignment]
            with torch.no_grad():
                said = model.eval().encoder(mine.packed).last_hidden.float().cpu()
            found[f"{name}, rows"] = float((said - right[real]).abs().max() / right.abs().max())
            learn(model.train(), mine)
            every = [p.grad.double().flatten() for p in model.parameters() if p.grad is not None]
            gradients[name] = torch.cat(every)
            model.zero_grad(set_to_none=True)
            cosine = F.cosine_similarity(gradients[name], gradients["float32"], dim=0)
            found[f"{name}, gradients"] = float(cosine)
    for name, value in found.items():
        exact = name.startswith("float32")
        bound = (1e-4 if exact else 0.05) if name.endswith("rows") else (0.9999 if exact else 0.99)
        if (value > bound) if name.endswith("rows") else (value < bound):
            raise SystemExit(f"WRONG: {name} is {value}, where {bound} is the bound")
    return found


def both(shape: EncoderConfig, place: Place) -> tuple[nn.Module, Model]:
    """transformers' model and ours with the same random weights, both in training."""
    from transformers import AlbertConfig, AlbertForPreTraining

    config = AlbertConfig(
        hidden_size=shape.hidden_size,
        num_hidden_layers=shape.num_hidden_layers,
        num_attention_heads=shape.num_attention_heads,
        intermediate_size=shape.intermediate_size,
        classifier_dropout_prob=0.0,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    theirs = AlbertForPreTraining(config).train()
    with tempfile.TemporaryDirectory() as folder:
        theirs.save_pretrained(folder)
        ours = albertine.load(Path(folder)).train()
    ours.precision = "bfloat16"
    return theirs.to(place.device), ours.to(place.device)


def training(
    preset: str, shape: EncoderConfig, sequences: int, fill: float, rounds: int, place: Place
) -> dict[str, Any]:
    """Tokens per second of ours and of transformers, eager and compiled, at one fill."""
    theirs, ours = both(shape, place)
    ours.encoder.recompute = shape.hidden_size >= WIDE
    length = 32 if place.rehearse else LENGTH
    batch, padded = pretraining(inputs("gpu", lengths_of(sequences, length, fill), shape.vocab_size))
    peer, mine = {name: x.to(place.device) for name, x in padded.items()}, batch.to(place.device)
    tokens = batch.packed.num_tokens

    def ours_learns(model: Any) -> None:
        learn(model, mine)

    def theirs_learns(model: Any) -> None:
        with torch.autocast(place.device.type, dtype=torch.bfloat16):
            loss = model(**peer).loss
        loss.backward()

    result: dict[str, Any] = {
        "preset": preset,
        "sequences": sequences,
        "tokens": tokens,
        "fill": tokens / (sequences * length),
        "recomputed": ours.encoder.recompute,
        "runs": {},
    }
    flops = training_flops_per_token(shape, length)
    ways: dict[str, tuple[Any, Callable[[Any], None], bool]] = {
        "albertine": (ours, ours_learns, False),
        "albertine compiled": (ours, ours_learns, not place.rehearse),
        "transformers": (theirs, theirs_learns, False),
        "transformers compiled": (place.compiled(theirs), theirs_learns, False),
    }
    for name, (model, learns, compiled) in ways.items():
        ours.encoder.compiled = compiled
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=not place.rehearse)

        def step(model: Any = model, learns: Any = learns, optimizer: Any = optimizer) -> None:
            learns(model)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

        place.peak_gb()
        try:
            took = place.seconds(step, rounds)
        except torch.OutOfMemoryError:
            result["runs"][name] = {"out_of_memory": True}
            optimizer.zero_grad(set_to_none=True)
            continue
        result["runs"][name] = {
            "tokens_per_second": tokens / took,
            "tflops": tokens / took * flops / 1e12,
            "peak_gb": place.peak_gb(),
        }
        print(preset, f"fill {result['fill']:.2f}", name, result["runs"][name], flush=True)
    return result


def encoding(shape: EncoderConfig, rounds: int, place: Place) -> dict[str, float]:
    """Milliseconds of 32 texts of at most 128 tokens, in bfloat16."""
    theirs, ours = both(shape, place)
    given = inputs("gpu", lengths_of(32, 128, 0.48), shape.vocab_size)
    peer = {name: x.to(place.device) for name, x in given.padded.items()}
    packed = given.packed.to(place.device)
    half: Any = theirs.albert.to(torch.bfloat16).eval()  # type: ignore[union-attr, operator]
    faster = place.compiled(half)
    ours.eval()
    ways = {
        "albertine": lambda: ours.encoder(packed),
        "transformers": lambda: half(**peer),
        "transformers compiled": lambda: faster(**peer),
    }
    with torch.inference_mode():
        found = {name: 1e3 * place.seconds(run, rounds) for name, run in ways.items()}
    print("encoding", found, flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--preset", nargs="*", choices=tuple(SEQUENCES), default=list(SEQUENCES))
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--corpus", type=Path, help="also pretrain ALBERT-base on this corpus")
    parser.add_argument("--minutes", type=float, default=15)
    parser.add_argument("--output", type=Path, default=Path("runs"))
    parser.add_argument("--rehearse", action="store_true", help="toy size on a processor, nothing is kept")
    parser.add_argument("--save", action="store_true", help="write the result under benchmarks/results")
    arguments = parser.parse_args()
    if not arguments.rehearse and not torch.cuda.is_available():
        raise SystemExit("this benchmark needs a CUDA device; torch sees none (--rehearse needs none)")
    place = Place(arguments.rehearse)
    result: dict[str, Any] = {"machine": describe(), "agreement": agreement(place)}
    print(result["agreement"], flush=True)
    torch.set_float32_matmul_precision("high")  # from here on nothing is compared
    result |= {"ceilings": ceilings(place), "training": []}
    print(result["ceilings"], flush=True)
    shapes = {preset: named(preset) for preset in arguments.preset}
    if place.rehearse:
        tiny = {"hidden_size": 64, "num_attention_heads": 2, "intermediate_size": 96}
        shapes = {name: replace(shape, plan=SharingPlan.shared(2), **tiny) for name, shape in shapes.items()}
    for preset, shape in shapes.items():
        for fill in (1.0, 0.6):
            sequences = 2 if place.rehearse else SEQUENCES[preset]
            row = training(preset, shape, sequences, fill, arguments.rounds, place)
            for value in row["runs"].values():
                if "tflops" in value:
                    value["mfu"] = value["tflops"] / result["ceilings"]["bf16_tflops"]
            result["training"].append(row)
    result["encoding_ms"] = encoding(next(iter(shapes.values())), arguments.rounds, place)
    if arguments.save and not place.rehearse:
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
