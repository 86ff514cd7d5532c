"""Albertine and transformers pretrain the same tiny ALBERT on the same text for the same time, in turn.

    python -m benchmarks.pretraining en --shared ../shared/data --minutes 30 --save
    python -m benchmarks.pretraining zh --shared ../shared/data --minutes 15 --save
    python -m benchmarks.pretraining en --shared ../shared/data --minutes 2 --only recipe --save

English is `en_wiki_2018` and `en_books` with ALBERT's vocabulary of 30,000 tokens, Chinese `zh_wiki` and
`zh_histories_modern` with BERT's of 21,128. The encoder is ALBERT tiny: 4 depths of 312, E = 128. Our clock
includes the held-out evaluations, that of transformers does not. Both compute in bfloat16 where the processor
can.

`recipe` is today's recipe for so little time, `albertine-tiny-en` or `-zh`, with the same vocabulary. It
learns no sentence order, so it is judged in samples of one part, once, at its end; beside it stands the
ALBERT that is kept for this hardware, each less what frequencies alone lose in its samples.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

from albertine.bench.machine import RESULTS, describe, hardware, newest
from albertine.core.devices import fast_bfloat16
from albertine.core.settings import resolve
from albertine.corpus.prepare import write_corpus
from albertine.objectives.unigram_baseline import Unigram
from albertine.pretraining.data import held_out_batches
from albertine.pretraining.held_out import score_batches
from albertine.pretraining.run import pretrain
from albertine.pretraining.scores import open_pretrained, token_counts
from albertine.pretraining.settings import ObjectiveChoice, PretrainingSettings
from albertine.tokenizers.load import load_tokenizer
from albertine.training.metrics import read_metrics
from benchmarks.keep import keep

TEXT = {
    "en": (("en_wiki_2018", "en_books"), "tokenizers/albert-en-30k"),
    "zh": (("zh_wiki", "zh_histories_modern"), "tokenizers/bert-zh-21128"),
}
BATCH, LENGTH, RATE, WARMUP, HELD_OUT = 32, 64, 1e-3, 0.05, 512


def settings(language: str, folder: Path, minutes: float) -> PretrainingSettings:
    """Our half of the comparison."""
    return resolve(
        PretrainingSettings,
        {
            "name": f"tiny-{language}",
            "output": folder / "runs",
            "corpus": folder / language,
            "model": {"preset": "albert-tiny-zh", "embeddings": "wide", "output_bias": "unigram"},
            "objective": {"max_length": LENGTH},
            "training": {
                "minutes": minutes,
                "batch_size": BATCH,
                "optimizer": "adamw",
                "learning_rate": RATE,
                "warmup": WARMUP,
            },
            "watching": {
                "log_every": 50,
                "evaluate_every": 200,
                "evaluate_sequences": HELD_OUT,
                "checkpoint_every": 2000,
                "tensorboard": False,
            },
        },
    )


def today(language: str, folder: Path, minutes: float) -> dict[str, Any]:
    """The recipe's run of so many minutes with two processes, judged by whole words of up to three, as the
    others were, in samples of one part instead of two."""
    recipe, corpus = f"albertine-tiny-{language}", folder / language
    run = folder / "runs" / f"{recipe}-{minutes:g}"
    configurations = [
        *(f"recipes/{recipe}.yaml", "--processes", "2", f"name={run.name}", f"output={run.parent}"),
        *(f"corpus={corpus}", f"training.minutes={minutes}", "watching.tensorboard=false"),
    ]
    subprocess.run([sys.executable, "-m", "albertine", "pretrain", "--config", *configurations], check=True)
    lines = [line for line in read_metrics(run / "metrics.jsonl") if "tokens" in line]
    judged = open_pretrained(run / "final")
    alone = ObjectiveChoice(max_length=LENGTH, pairs="none")  # of sentence order the recipe learns nothing
    batches = held_out_batches(corpus, alone, sequences=HELD_OUT)
    baseline = Unigram(token_counts(judged, corpus)).score_batches(batches)
    return {
        "recipe": recipe,
        "minutes": lines[-1]["elapsed"] / 60,
        "step": lines[-1]["step"],
        "tokens": lines[-1]["tokens"],
        "unigram_loss": baseline.cross_entropy,
        **score_batches(judged.model, batches),
    }


def our_curve(chosen: PretrainingSettings) -> list[dict[str, float]]:
    """Held-out scores over the minutes of our run, and the unigram baseline of the same positions."""
    rows = read_metrics(chosen.folder / "metrics.jsonl")
    minutes = {row["step"]: row["elapsed"] / 60 for row in rows if "elapsed" in row}
    tokens = {row["step"]: row["tokens"] for row in rows if "tokens" in row}
    return [
        {
            "step": row["step"],
            "minutes": minutes[row["step"]],
            "tokens": tokens[row["step"]],
            **row["evaluation"],
        }
        for row in rows
        if "evaluation" in row and row["step"] in minutes
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("language", choices=sorted(TEXT))
    parser.add_argument("--shared", type=Path, default=Path("../shared/data"), help="folder of the data sets")
    parser.add_argument(
        "--folder", type=Path, default=Path("runs/benchmark"), help="where corpus and runs go"
    )
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--only", choices=("albertine", "transformers", "recipe"))
    parser.add_argument("--save", action="store_true", help="write the result under benchmarks/results")
    arguments = parser.parse_args()
    language, corpus = arguments.language, arguments.folder / arguments.language
    sources, vocabulary = TEXT[language]
    manifest = write_corpus(
        [arguments.shared / source for source in sources],
        corpus,
        load_tokenizer(arguments.shared / vocabulary),
        language,
    )
    print(f"{manifest.documents:,} documents, {manifest.tokens:,} tokens")
    if arguments.only == "recipe":
        found = today(language, arguments.folder, arguments.minutes)
        if path := newest(RESULTS / hardware(), f"pretraining-{language}-albertine"):
            print(beside(found, json.loads(path.read_text(encoding="utf-8"))))
        if arguments.save:
            keep(f"pretraining-{language}-recipe-{arguments.minutes:g}", {"machine": describe(), **found})
        return
    result: dict[str, Any] = {"machine": describe(), "language": language, "minutes": arguments.minutes}
    result |= {"batch": BATCH, "length": LENGTH, "learning_rate": RATE, "training_tokens": manifest.tokens}
    if arguments.only != "transformers":
        chosen = settings(language, arguments.folder, arguments.minutes)
        done = pretrain(chosen)
        result["albertine"] = our_curve(chosen)
        result["unigram_baseline"] = {
            "mlm_loss": done.baseline.cross_entropy,
            "mlm_accuracy": done.baseline.accuracy,
        }
        if arguments.save:
            keep(f"pretraining-{language}-albertine", result)
    if arguments.only != "albertine":
        name = f"pretraining-{language}-transformers"
        command = [
            *(sys.executable, "-m", "benchmarks.peer_pretraining", str(corpus)),
            *("--minutes", str(arguments.minutes), "--batch-size", str(BATCH), "--max-length", str(LENGTH)),
            *("--learning-rate", str(RATE), "--warmup", str(WARMUP), "--held-out-sequences", str(HELD_OUT)),
            *(("--bf16",) if fast_bfloat16(torch.device("cpu")) else ()),
            *(("--save", name) if arguments.save else ()),
        ]
        subprocess.run(command, check=True)
    compare(language)


def beside(found: dict[str, Any], other: dict[str, Any]) -> str:
    """The recipe's run beside the ALBERT of the other result."""
    last, frequencies = other["albertine"][-1], other["unigram_baseline"]["mlm_loss"]

    def line(loss: float, gain: float, accuracy: float, minutes: float) -> str:
        return (
            f"{loss:.3f} nats, {gain:.3f} less than frequencies, {accuracy:.1%} right after {minutes:.1f} min"
        )

    ours = found["mlm_loss"], found["unigram_loss"] - found["mlm_loss"], found["mlm_accuracy"]
    theirs = last["mlm_loss"], frequencies - last["mlm_loss"], last["mlm_accuracy"]
    one, two = line(*ours, found["minutes"]), line(*theirs, last["minutes"])
    return f"{found['recipe']} {one} ({found['tokens'] / 1e6:.1f} million tokens); ALBERT {two}"


def compare(language: str) -> None:
    """Report how long each took to the other's final loss, from the newest results on this hardware."""
    curves = {}
    for who in ("albertine", "transformers"):
        if (path := newest(RESULTS / hardware(), f"pretraining-{language}-{who}")) is None:
            return
        found = json.loads(path.read_text(encoding="utf-8"))
        curves[who] = found["curve" if who == "transformers" else "albertine"]
    theirs, ours = curves["transformers"], curves["albertine"]
    reached = time_to_reach(ours, theirs[-1]["mlm_loss"])
    print(f"transformers after {theirs[-1]['minutes']:.1f} min: {theirs[-1]['mlm_loss']:.3f} nats")
    print(f"albertine    after {ours[-1]['minutes']:.1f} min: {ours[-1]['mlm_loss']:.3f} nats")
    if reached is not None:
        share = reached / theirs[-1]["minutes"]
        print(f"albertine reaches the loss of transformers in {reached:.1f} min, {share:.2f} of the time")


def time_to_reach(curve: list[dict[str, float]], loss: float) -> float | None:
    """Minutes after which a curve is at `loss` or below, on straight lines between its points."""
    before = None
    for row in curve:
        if row["mlm_loss"] <= loss:
            if before is None or before["mlm_loss"] == row["mlm_loss"]:
                return row["minutes"]
            share = (before["mlm_loss"] - loss) / (before["mlm_loss"] - row["mlm_loss"])
            return before["minutes"] + share * (row["minutes"] - before["minutes"])
        before = row
    return None


if __name__ == "__main__":
    main()
