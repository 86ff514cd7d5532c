"""Kill a pretraining run again and again at random moments; the final weights must be those without kills.

    python -m benchmarks.kill_resume --kills 20 --save
    python -m benchmarks.kill_resume --released --kills 20 --save

Runs `albertine pretrain` once without interruption and once with SIGKILL to its whole process group at
random moments (start-up, steps, evaluation, saving), resumed each time with `--resume auto`, then compares
the SHA-256 of the final weights. Dropout, accumulation, dynamic masks and data workers are on. With
--released the run is as those of the released models are: their block, Muon, stages with repeats, and two
processes with a loader process each.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from albertine.bench.machine import describe
from albertine.pretraining.demo import demo_texts
from benchmarks.keep import keep

OVERRIDES = (
    "model.change={hidden_size: 64, intermediate_size: 128, num_attention_heads: 4, num_hidden_layers: 3,"
    " embedding_size: 32, hidden_dropout_prob: 0.1, attention_probs_dropout_prob: 0.1}",
    "objective.max_length=64",
    "training.batch_size=64",
    "training.micro_batch_tokens=1500",
    "training.threads=1",
    "watching.evaluate_every=25",
    "watching.evaluate_sequences=64",
    "watching.checkpoint_every=10",
    "watching.log_every=5",
    "watching.tensorboard=false",
)
ALBERT = ("model.preset=albert-tiny-zh", "training.workers=2")
RELEASED = (
    "model.preset=albertine-mini",
    "training.workers=1",
    "objective.masking.whole_word=false",
    "stages=[{begin: 0, max_length: 16, pairs: none, mask_probability: 0.25},"
    " {begin: 0.2, max_length: 16, pairs: sop, repeats: 1.0}, {begin: 0.4, repeats: 0.1},"
    " {begin: 0.7, max_length: 40, pairs: none}, {begin: 0.85, repeats: 0.1}]",
    "--processes=2",
)


def albertine(*words: str) -> list[str]:
    return [sys.executable, "-m", "albertine", *words]


def pretrain(folder: Path, name: str, arguments: argparse.Namespace) -> list[str]:
    return albertine(
        *("pretrain", f"name={name}", f"output={folder / 'runs'}", f"corpus={folder / 'corpus'}"),
        *(f"training.steps={arguments.steps}", f"training.optimizer={arguments.optimizer}"),
        *(RELEASED if arguments.released else ALBERT),
        *OVERRIDES,
    )


def weights(folder: Path, name: str) -> str:
    return hashlib.sha256((folder / "runs" / name / "final" / "model.safetensors").read_bytes()).hexdigest()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--optimizer", choices=("lamb", "adamw", "muon"), help="default: lamb, released muon")
    parser.add_argument("--released", action="store_true", help="as the released models are trained")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--save", action="store_true", help="write the result under benchmarks/results")
    arguments = parser.parse_args()
    arguments.optimizer = arguments.optimizer or ("muon" if arguments.released else "lamb")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        text = demo_texts()["en"]
        tokenizer = folder / "tokenizer"
        for command in (
            albertine(
                "tokenizer", "train", *map(str, text), "--output", str(tokenizer), "--vocab-size", "2000"
            ),
            albertine(
                "prepare", *map(str, text), "--output", str(folder / "corpus"), "--tokenizer", str(tokenizer)
            ),
        ):
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        command = pretrain(folder, "straight", arguments)
        begin = time.monotonic()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        straight = time.monotonic() - begin
        print(f"uninterrupted: {straight:.0f} s, {weights(folder, 'straight')[:16]}")

        rng, kills, moments = random.Random(arguments.seed), 0, []
        command = pretrain(folder, "killed", arguments)
        while True:
            process = subprocess.Popen(
                command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True, text=True
            )
            # Late enough, on average, to get past start-up and one checkpoint; early enough to need every
            # kill.
            wait = rng.uniform(0.5, 6 + straight / arguments.kills) if kills < arguments.kills else None
            try:
                _, errors = process.communicate(timeout=wait)
                if process.returncode:
                    raise SystemExit(f"the resumed run failed with {process.returncode}:\n{errors}")
                break
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()
                kills += 1
                moments.append(round(wait or 0, 2))
                saved = sorted((folder / "runs" / "killed" / "checkpoints").glob("step-*"))
                newest = saved[-1].name if saved else "none"
                print(f"kill {kills:2} after {wait:5.1f} s; newest checkpoint {newest}", flush=True)
        same = weights(folder, "straight") == weights(folder, "killed")
        print(f"{kills} kills, weights {'identical' if same else 'DIFFERENT'}: {weights(folder, 'killed')}")
        if arguments.save:
            keep(
                "kill-resume-released" if arguments.released else "kill-resume",
                {
                    "machine": describe(),
                    "kills": kills,
                    "seconds_before_each_kill": moments,
                    "steps": arguments.steps,
                    "optimizer": arguments.optimizer,
                    "sha256_uninterrupted": weights(folder, "straight"),
                    "sha256_killed": weights(folder, "killed"),
                },
            )
        raise SystemExit(0 if same else 1)


if __name__ == "__main__":
    main()
