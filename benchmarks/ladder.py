"""What helps a small encoder to learn from little text: runs that differ in one thing, at equal time.

    albertine prepare YOUR_TEXT --output corpora/en --vocab-size 8000
    python -m benchmarks.ladder corpora/en --minutes 12 --rows albert,albert-ramp,bert-ramp --seeds 1,2 --save

Every row is `PLAIN`, an ALBERT of four depths of 256, with changes. A run gets the same minutes (or, with
--steps, the same updates and tokens: for a machine that others use too), is decayed to zero inside them, and
is judged by the same masked tokens, all shown as [MASK] (`albertine score`), in samples of its own length;
with --suite also by minimal pairs, 200 of every paradigm (`albertine suite`), causally too where a run ends
with a causal share. Runs that are done are not run again, so the ladder can be stopped and resumed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from statistics import mean
from typing import Any

from safetensors.numpy import load_file

from albertine.training.metrics import read_metrics

LENGTH, BATCH = 64, 64
PAIRS = 200
"""Of a paradigm, to judge a run by minimal pairs."""

Change = dict[str, Any]
PLAIN: Change = {
    "model.preset": "albertine-mini",
    "model.change.positions": "learned",
    "model.sharing": "all",
    "model.embeddings": "wide",
    "model.output_bias": "unigram",
    "objective.max_length": LENGTH,
    "objective.pairs": "none",
    "objective.short_probability": 0.1,
    "objective.masking": {"probability": 0.15, "ngram": 1, "whole_word": False},
    "training.batch_size": BATCH,
    "training.micro_batch_tokens": 4096,
    "training.optimizer": "adamw",
    "training.learning_rate": 0.001,
    "training.warmup": 0.05,
    "watching.log_every": 50,
    "watching.evaluate_sequences": 256,
    "watching.checkpoint_every": 1000,
    "stages": [],
}
"""Of no recipe, so that a row that was measured stays what it was."""


def ramp(*stages: tuple[float, int]) -> Change:
    """Stages by where they begin, as a share of the run, and the tokens of their samples."""
    return {"stages": [{"begin": begin, "max_length": length} for begin, length in stages]}


RAMP = ramp((0, 8), (0.12, 16), (0.2, 32), (0.3, 64))
MUON: Change = {"training.optimizer": "muon", "training.learning_rate": None}
ROTARY: Change = {"model.change.positions": "rotary"}
SHORT = ramp((0, 16), (0.15, 32), (0.3, 64))
ALBERT = PLAIN | RAMP | MUON
ROFORMER = PLAIN | MUON | ROTARY | SHORT
MODERN: Change = {
    "model.change.norm": "pre",
    "model.change.feed_forward": "gated",
    "model.change.intermediate_size": 704,
    "model.change.biases": False,
    "model.change.type_vocab_size": 0,
}
STAGES = SHORT["stages"]
TWO: Change = {"model.sharing": "none", "model.change.num_hidden_layers": 2}
CAUSAL = {
    "stages": [{"begin": 0, "max_length": LENGTH, "causal": True}, {"begin": 0.2, "max_length": LENGTH}]
}
CAUSAL_RAMP = {"stages": [s | {"causal": True} if s["begin"] < 0.3 else s for s in STAGES]}
UNSHARED = ROFORMER | {"model.sharing": "none"}


def share(causal: float) -> Change:
    """A share of causal sequences throughout."""
    return {"objective.causal_share": causal}


def one_block(loops: int, hidden: int, width: int) -> Change:
    """One block `loops` times, `hidden` wide, with heads of 64 and a feed-forward part of `width`."""
    return ROFORMER | {
        "model.change.num_hidden_layers": loops,
        "model.change.hidden_size": hidden,
        "model.change.num_attention_heads": hidden // 64,
        "model.change.intermediate_size": width,
    }


RECURSIVE: Change = {
    "model.change.norm": "pre",
    "model.change.qk_norm": True,
    "model.change.head_gate": True,
    "model.change.hidden_act": "relu2",
    "model.own": ["norms"],
    "model.output": "own",
    "model.residual_init": "zeros",
}
"""The block of RecGPT (serdardoesml/bblm26-recgpt)."""
ROWS: dict[str, Change] = {
    "albert": PLAIN,
    "albert-muon": PLAIN | MUON,
    "albert-ramp": PLAIN | RAMP,
    "albert-ramp-muon": ALBERT,
    "albert-ramp-late": ALBERT | ramp((0, 8), (0.35, 16), (0.5, 32), (0.65, 64)),
    "albert-ramp-256": ALBERT
    | ramp((0, 8), (0.12, 16), (0.2, 32), (0.3, 64), (0.45, 128), (0.6, 256))
    | {
        "objective.max_length": 256,
        "objective.pairs": "sop",
        "training.batch_size": BATCH * LENGTH // 256,
    },
    "albert-ramp-growing": ALBERT
    | {
        "stages": [
            {"begin": b, "max_length": n, "depth": d}
            for b, n, d in ((0, 8, 1), (0.12, 16, 1), (0.2, 32, 1), (0.3, 64, 2), (0.75, 64, 4))
        ]
    },
    "albert-ramp-half": ALBERT | {"model.change.num_hidden_layers": 2},
    "albert-ramp-sop": ALBERT | {"objective.pairs": "sop"},
    "albert-ramp-lamb": PLAIN | RAMP | {"training.optimizer": "lamb", "training.learning_rate": 0.005},
    "bert-ramp": ALBERT | {"model.sharing": "none", "model.change.embedding_size": 256},
    "rotary-adamw": PLAIN | ROTARY,
    "rotary": PLAIN | ROTARY | MUON,
    "rotary-ramp": ROFORMER,
    "unshared": UNSHARED,
    "unshared-causal-start": UNSHARED | CAUSAL,
    "causal-25": UNSHARED | share(0.25),
    "causal-50": UNSHARED | share(0.5),
    "causal-75": UNSHARED | share(0.75),
    "own-output": UNSHARED | {"model.output": "own"},
    "head-gate": UNSHARED | {"model.change.head_gate": True},
    "relu2": UNSHARED | {"model.change.hidden_act": "relu2"},
    "zeros": UNSHARED | {"model.residual_init": "zeros"},
    "recursive": UNSHARED | RECURSIVE,
    **{
        f"one-{loops}x{hidden}-{width}": one_block(loops, hidden, width)
        for loops, hidden, width in (
            *((n, 256, 256 * k) for n in (4, 6, 8) for k in (4, 8, 16)),
            *((n, 512, 2048) for n in (2, 4)),
            (3, 384, 3072),
        )
    },
    "half-as-deep": ROFORMER | TWO,
    "half-as-deep-causal": ROFORMER | TWO | CAUSAL,
    "half-as-deep-causal-ramp": ROFORMER | TWO | CAUSAL_RAMP,
    "modernbert": ROFORMER | MODERN,
    "qk-norm": ROFORMER | {"model.change.qk_norm": True},
    "pre-norm-qk-norm": ROFORMER | {"model.change.qk_norm": True, "model.change.norm": "pre"},
    "own": ROFORMER | {"model.own": ["norms", "residuals", "injection"]},
    "low-rank": ROFORMER | {"model.own": ["norms"], "model.low_rank": 8},
    "masks-30-15": ROFORMER
    | {"stages": [s | {"mask_probability": p} for s, p in zip(STAGES, (0.3, 0.25, 0.15), strict=True)]},
    "all-masked": ROFORMER | {"stages": [s | {"masked": 1.0, "random": 0.0} for s in STAGES]},
    "growing": ROFORMER | {"stages": [s | {"depth": d} for s, d in zip(STAGES, (1, 2, 4), strict=True)]},
    "causal-start": ROFORMER | CAUSAL,
    "average": ROFORMER | {"training.average": 0.99},
    "batch-2048": ROFORMER | {"training.batch_size": BATCH // 2},
    "batch-8192": ROFORMER | {"training.batch_size": BATCH * 2},
    "sop": ROFORMER | {"objective.pairs": "sop"},
    "sop-repeats": ROFORMER | {"objective.pairs": "sop", "objective.repeats": 0.2},
    "repeats-ramp": ROFORMER
    | TWO
    | {
        "objective.pairs": "sop",
        "objective.repeats": 0.3,
        "stages": [s | {"pairs": "sop"} for s in STAGES],
    },
}
"""Name → settings. Those with a ramp are Muon's, but for `albert-ramp`, AdamW's, and `albert-ramp-lamb`."""

KEPT = {
    "albert": "no: without a ramp it stays blind (017)",
    "albert-ramp": "no: AdamW makes less than half of Muon's way",
    "albert-ramp-256": "later in a run: so early, long samples and sentence order cost",
    "albert-ramp-sop": "later in a run: so early sentence order costs",
    "albert-ramp-lamb": "no: Muon",
    "bert-ramp": "no depth shared: see unshared",
    "causal-start": "no, and promising: docs/experiments",
    "half-as-deep-causal": "no, and promising: docs/experiments",
    "half-as-deep-causal-ramp": "no, and promising: docs/experiments",
    "average": "no: nothing gained",
    "masks-30-15": "in part: recipes begin with 25 %",
    "albert-muon": "no: without a ramp it stays blind (017)",
    "albert-ramp-muon": "the ramp; not four depths from the start (020)",
    "albert-ramp-growing": "yes: albert-tiny-en, -zh (020)",
    "albert-ramp-half": "no: growing has more in the same time (020)",
    "rotary-ramp": "the block, for all released models (017)",
    "unshared": "yes: the released models, for hours (020)",
    "half-as-deep": "yes: albertine-tiny-en, -zh, the demo (020)",
    "growing": "no: two depths of their own have more (020)",
    "all-masked": "no: half a point of [MASK] alone, which is all that it trains on",
    "batch-2048": "no: nothing gained",
    "sop-repeats": "later in a run: so early it costs (021)",
    "pre-norm-qk-norm": "no: transformers has no such layout, and little is gained",
    "qk-norm": "no: transformers has no such layout, and little is gained",
    "modernbert": "no: nothing gained so early, and fewer tokens in the same time",
    "own": "no: nothing gained with one shared block so early",
}
"""Row → what became of it, with the number of the decision."""


def assignments(changes: Change) -> list[str]:
    """Settings as a command line has them."""
    return [f"{key}={json.dumps(value)}" for key, value in changes.items()]


def one_run(row: str, seed: int, options: argparse.Namespace) -> dict[str, Any]:
    """Pretrain and judge, or read what an earlier start with the same settings left."""
    name = f"{row}-{seed}"
    folder: Path = options.output / name
    kept = folder / "ladder.json"
    changes = ROWS[row] | {
        "name": name,
        "output": str(options.output),
        "corpus": str(options.corpus),
        "seed": seed,
        "training.threads": options.threads,
        "training.minutes": None if options.steps else options.minutes,
        "training.steps": options.steps,
        "watching.evaluate_every": options.evaluate_every,
        "watching.tensorboard": False,
    }
    if kept.is_file():
        before: dict[str, Any] = json.loads(kept.read_text())
        if before.pop("asked", None) != json.loads(json.dumps(changes)):
            raise SystemExit(f"{folder} was made with other settings; name another --output")
        return before
    command = [sys.executable, "-m", "albertine"]
    subprocess.run([*command, "pretrain", *assignments(changes)], check=True)
    judge = [*command, "score", str(folder / "final"), str(options.corpus), "--json"]
    printed = json.loads(subprocess.run(judge, check=True, stdout=subprocess.PIPE, text=True).stdout)
    found = {"row": row, "seed": seed, **summary(folder, printed)}
    if options.suite is not None:
        found["suite"] = {
            "name": options.suite.name,
            **suite_scores(folder / "final", changes, options.suite),
        }
    kept.write_text(json.dumps(found | {"asked": changes}, indent=2) + "\n")
    return found


def suite_scores(model: Path, settings: Change, data: Path) -> dict[str, float]:
    """Shares of minimal pairs that are right, by scoring: "pll", and where the run was causal "causal"."""
    stages = settings.get("stages") or [{}]
    causal = stages[-1].get("causal_share", settings.get("objective.causal_share", 0))
    found = {}
    for scoring in ("pll", "causal") if causal else ("pll",):
        command = [sys.executable, "-m", "albertine", "suite", data.name, str(model), "--data", str(data)]
        command += ["--limit", str(PAIRS), "--json"]
        command += ["--scoring", "causal"] if scoring == "causal" else []
        printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        found[scoring] = json.loads(printed)["right"]
    return found


def summary(folder: Path, judged: Any) -> dict[str, Any]:
    """The figures of one run: of `albertine score --json`, and when its context began to help."""
    masked = next(task for task in judged if task["task"] == "mlm")
    lines = read_metrics(folder / "metrics.jsonl")
    last = [line for line in lines if "tokens" in line][-1]
    return {
        "spans": masked["spans"],
        "copying": masked["copying"],
        "onset_minutes": masked["onset_minutes"],
        "mask_accuracy": masked["mask_accuracy"],
        "mask_loss": masked["mask_loss"],
        "tokens": last["tokens"],
        "minutes": last["elapsed"] / 60,
        "steps": last["step"],
        "parameters": sum(
            tensor.size for tensor in load_file(folder / "final" / "model.safetensors").values()
        ),
        "curve": [{"step": line["step"], **line["evaluation"]} for line in lines if line.get("evaluation")],
    }


def table(runs: list[dict[str, Any]]) -> str:
    """A line a row: means over the seeds, with the least and the greatest, and what became of it."""
    scorings = [name for name in ("pll", "causal") if any(name in run.get("suite", {}) for run in runs)]
    suite = next((run["suite"]["name"] for run in runs if "suite" in run), "")
    lines = [
        "| row | seeds | tokens | nats a character | right, [MASK] alone | loss, [MASK] alone "
        + "".join(f"| {suite}, {name} " for name in scorings)
        + "| measured | kept, and why |",
        "| --- | ---: | ---: | ---: | ---: | ---: |" + " ---: |" * len(scorings) + " --- | --- |",
    ]
    for row in dict.fromkeys(run["row"] for run in runs):
        of = [run for run in runs if run["row"] == row]
        lines.append(
            f"| {row} | {len(of)} | {mean(r['tokens'] for r in of) / 1e6:.1f} M "
            f"| {_over([r['spans']['nats_per_character'] for r in of], '.3f')} "
            f"| {_over([r['mask_accuracy'] for r in of], '.1%')} "
            f"| {_over([r['mask_loss'] for r in of], '.3f')} "
            + "".join(
                f"| {_over([r['suite'][name] for r in of if name in r.get('suite', {})], '.1%')} "
                for name in scorings
            )
            + f"| {of[0].get('date', 'now')} | {KEPT.get(row, '')} |"
        )
    return "\n".join(lines)


def _over(seeds: list[float], form: str) -> str:
    if not seeds:
        return ""
    text = f"{mean(seeds):{form}}"
    return text if len(seeds) == 1 else f"{text} ({min(seeds):{form}} to {max(seeds):{form}})"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--rows", default=",".join(ROWS), help="comma-separated; default: all")
    parser.add_argument("--seeds", default="1")
    parser.add_argument("--minutes", type=float, default=12.0)
    parser.add_argument("--steps", type=int, help="so many updates instead of minutes")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--evaluate-every", type=int, default=100)
    parser.add_argument("--suite", type=Path, help="folder of BLiMP or SLING, named blimp or sling")
    parser.add_argument("--output", type=Path, default=Path("runs/ladder"))
    parser.add_argument("--save", action="store_true", help="keep the result below benchmarks/results")
    options = parser.parse_args()
    rows = options.rows.split(",")
    if unknown := sorted(set(rows) - set(ROWS)):
        parser.error(f"there is no row {unknown[0]}; there are {', '.join(ROWS)}")
    runs = [one_run(row, int(seed), options) for row in rows for seed in options.seeds.split(",")]
    print(table(runs))
    if options.save:
        from benchmarks.keep import keep

        budget = {"steps": options.steps} if options.steps else {"minutes": options.minutes}
        keep("ladder", {**budget, "threads": options.threads, "corpus": options.corpus.name, "runs": runs})


if __name__ == "__main__":
    main()
