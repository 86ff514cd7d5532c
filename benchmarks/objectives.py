"""What one text teaches one encoder by different objectives, and by different plans (docs/objectives.md).

    albertine prepare data/demo/english.tar.xz --output corpora/demo-en --vocab-size 4000
    python -m benchmarks.objectives corpora/demo-en --steps 400 --shared ../shared/data --save
    python -m benchmarks.objectives corpora/demo-en --minutes 4 --only plans --shared ../shared/data --save

Every run is `albertine pretrain` in a process of its own with one thread, two at a time; encoder, tokens a
step, optimizer and text are the same, only `objective` differs, or for the rows of plans `model.sharing`. A
run is judged by what it predicts itself on held-out text, by masked tokens that are the same for all runs
(`hidden_words.py`), and where --shared is given by what the model then learns of 2,000 sentences of SST-2
(accuracy on the 872 of dev). The table has the mean of all seeds and half the width of its 95 % interval
(Student's t), which one seed has not.
"""

from __future__ import annotations

import argparse
import json
import lzma
import math
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from albertine.bench.machine import describe
from albertine.pretraining.scores import open_pretrained
from benchmarks.hidden_words import Windows, scores_of
from benchmarks.intervals import interval
from benchmarks.keep import keep

ENCODER = [
    "model.preset=albertine-mini",
    "model.change.num_hidden_layers=4",
    "model.change.positions=relative",
    "model.sharing=all",
    "model.output_bias=unigram",
    "objective.pairs=none",
    "objective.max_length=64",
    "training.batch_size=32",
    "training.micro_batch_tokens=2048",
    "training.optimizer=muon",
    "training.threads=1",
    "training.workers=0",
    "watching.evaluate_every=100000",
    "watching.checkpoint_every=100000",
    "watching.evaluate_sequences=256",
    "watching.tensorboard=false",
]
MEMORY = ", memory 64"
"""How the names end of rows that have a memory; its gain is reported seed by seed."""
PERMUTATION = ["objective.kind=permutation", "objective.permutation.predictions=11"]
OBJECTIVES = {
    "masked": ["objective.kind=masked"],
    "masked, memory 64": ["objective.kind=masked", "objective.memory=64"],
    "causal": ["objective.kind=causal"],
    "causal, memory 64": ["objective.kind=causal", "objective.memory=64"],
    "permutation": PERMUTATION,
    "permutation, memory 64": [*PERMUTATION, "objective.memory=64"],
}
# The plan that shares everything is "permutation, memory 64".
PLANS = {
    f"permutation, {name}": [*PERMUTATION, "objective.memory=64", *plan]
    for name, plan in {
        "attention shared": ["model.sharing=attention"],
        "two groups": ["model.sharing=2"],
        "unshared": ["model.sharing=none"],
    }.items()
}


def albertine(*words: str) -> str:
    """What a command prints; its error otherwise."""
    done = subprocess.run([sys.executable, "-m", "albertine", *words], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"albertine {' '.join(words)}\n{done.stderr[-2000:]}")
    return done.stdout


def pretrained(corpus: Path, runs: Path, name: str, changes: list[str], seed: int, length: str) -> Path:
    """The folder of a run; a done one of the same settings is not made again, one of others is refused.
    `length` is the setting of its end."""
    folder = runs / f"{name.replace(', ', '-').replace(' ', '-')}-{seed}"
    place = [f"name={folder.name}", f"output={runs}", f"corpus={corpus}", f"seed={seed}"]
    albertine("pretrain", *place, length, *ENCODER, *changes)
    return folder


def judged(folder: Path, windows: Windows) -> dict[str, float]:
    """The last evaluation of a run, the masked tokens of the windows, its tokens and its parameters."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    scores = next(line["evaluation"] for line in reversed(lines) if "evaluation" in line)
    last = next(line for line in reversed(lines) if "tokens" in line)
    parameters = json.loads(albertine("info", str(folder / "final"), "--json"))["parameters"]
    hidden_bits, hidden_right = scores_of(open_pretrained(folder), windows)
    return {
        "accuracy": 100 * scores["mlm_accuracy"],
        "bits": scores["mlm_loss"] / math.log(2),
        "bits of a hidden word": hidden_bits,
        "hidden words right": hidden_right,
        "million tokens": last["tokens"] / 1e6,
        "updates": last["step"],
        "parameters of the encoder": parameters["encoder"],
    }


def sentiment(shared: Path, runs: Path) -> tuple[Path, Path]:
    """2,000 sentences of SST-2 to learn from, and its dev set."""
    paths = []
    for part, name, rows in (("train", "train.tsv.xz", 2000), ("dev", "dev.tsv", None)):
        content = (shared / "glue" / "SST-2" / name).read_bytes()
        text = lzma.decompress(content) if name.endswith(".xz") else content
        header, *lines = text.decode().splitlines()
        path = runs / f"sst-2-{part}.tsv"
        path.write_text("\n".join([header, *lines[:rows]]) + "\n")
        paths.append(path)
    return paths[0], paths[1]


def tuned(folder: Path, runs: Path, train: Path, dev: Path, seed: int) -> float:
    """Accuracy in percent of the model that SST-2 was taught to."""
    name = f"sst-2-{folder.name}"
    task = [f"task.train={train}", f"task.dev={dev}", "task.text=sentence", "task.label=label"]
    length = ["training.epochs=2", "training.learning_rate=1e-3", "training.threads=1"]
    place = [f"name={name}", f"output={runs}", f"encoder.folder={folder / 'final'}", f"seed={seed}"]
    albertine("finetune", *place, *task, *length)
    found = json.loads(albertine("evaluate", str(runs / name), "--json"))
    return 100 * float(found[0]["scores"]["accuracy"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("corpus", type=Path)
    until = parser.add_mutually_exclusive_group()
    until.add_argument("--steps", type=int, default=400, help="of each pretraining")
    until.add_argument("--minutes", type=float, help="of each pretraining, in place of steps")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--runs", type=Path, default=Path("runs/objectives"))
    rows = [*OBJECTIVES, *PLANS]
    parser.add_argument(
        "--only", nargs="+", default=rows, metavar="ROW", help='or "plans", the four of XLNet'
    )
    parser.add_argument("--shared", type=Path, help="folder with glue/SST-2")
    parser.add_argument("--side-by-side", type=int, default=2)
    parser.add_argument("--save", action="store_true")
    given = parser.parse_args()
    if given.only == ["plans"]:
        given.only = ["permutation, memory 64", *PLANS]
    unit, much = ("steps", given.steps) if given.minutes is None else ("minutes", given.minutes)
    runs = given.runs / f"{much:g}-{unit}"
    runs.mkdir(parents=True, exist_ok=True)
    files = sentiment(given.shared, runs) if given.shared else None
    windows = Windows.of(given.corpus, 1024)

    def one(job: tuple[str, int]) -> tuple[str, dict[str, float]]:
        row, seed = job
        changes = {**OBJECTIVES, **PLANS}[row]
        folder = pretrained(given.corpus, runs, row, changes, seed, f"training.{unit}={much}")
        found = judged(folder, windows)
        if files:
            found["SST-2"] = tuned(folder, runs, *files, seed)
        print(row, seed, {name: round(value, 3) for name, value in found.items()}, flush=True)
        return row, found

    # Seed by seed, so that a table is whole, with fewer seeds, whenever one has to stop.
    jobs = [(row, seed) for seed in range(given.seeds) for row in given.only]
    with ThreadPoolExecutor(given.group_by_length) as pool:
        done = list(pool.map(one, jobs))
    singles = {row: [scores for name, scores in done if name == row] for row in given.only}
    table: dict[str, Any] = {}
    for row, found in singles.items():
        table[row] = {name: interval([scores[name] for scores in found]) for name in found[0]}
        if (other := row.removesuffix(MEMORY)) != row and other in singles:
            table[f"{row}: more than {other}, seed by seed"] = {
                name: interval([a[name] - b[name] for a, b in zip(found, singles[other], strict=True)])
                for name in found[0]
            }
    for row, settings in table.items():
        print(row, {name: f"{mean:.2f} ± {half:.2f}" for name, (mean, half) in settings.items()})
    if given.save:
        how = {unit: much, "seeds": given.seeds, "corpus": given.corpus.name}
        name = "objectives" if given.minutes is None else "objectives-equal-time"
        rounded = {
            row: {name: (mean, half if math.isfinite(half) else None) for name, (mean, half) in found.items()}
            for row, found in table.items()
        }
        keep(name, {"machine": describe(), **how, "rows": rounded, "runs": singles})


if __name__ == "__main__":
    main()
