"""Write docs/performance.md and its pictures from the newest results on each kind of hardware.

python -m benchmarks.table
"""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from statistics import median
from typing import Any

from albertine.analysis.pictures import save_bars
from albertine.analysis.plots import save_curves
from albertine.bench.machine import RESULTS
from albertine.core.files import read_json
from albertine.core.released import FOLDER
from benchmarks import attention, memories, serving
from benchmarks.asked import from_python, predicted_files
from benchmarks.exported import exported, foreign, missing_torch_error
from benchmarks.gpu.section import section as gpu
from benchmarks.in_short import in_short
from benchmarks.learned import blocks, distilled, ladder, loops, tuned, vectors
from benchmarks.markdown import newest, newest_of_each, table
from benchmarks.pretraining import beside, time_to_reach

DOCS = Path(__file__).parents[1] / "docs"

HEAD = """# Performance

Written by `python -m benchmarks.table` from the files under `benchmarks/results/`; each was made by the
command above its table. Compare ratios: they come from one run on one machine. Absolute times move with it.
Figures of albertine-mini-en from before 2026-11-27 are of earlier releases: of 80 million tokens from
2026-11-24 on, before that of 90, on 2026-11-22 of 38; those of albertine-mini-zh from before
2026-11-27 of one of 65, on 2026-11-22 of 38.
Answers to CMRC 2018 could have up to 30 tokens where the file of results does not tell `longest`, else 50.
"""


def inference(hardware: Path) -> Iterator[str]:
    if (found := newest(hardware, "inference")) is None:
        return
    yield f"## Encoding, {found['preset']}\n\n`albertine bench inference --preset {found['preset']} "
    yield f"--save benchmarks/results`, {found['date']}, {found['threads']} threads: the same random weights "
    yield "and tokens, everyone in "
    yield f"turn, medians of {found['rounds']} rounds. Peers get padded batches, ours is packed. Ratios are "
    yield "medians of those of single rounds. The last column is the least cosine of a token's vector with "
    yield "that of our float32.\n"
    for name, shape in found["shapes"].items():
        texts = "text" if shape["sequences"] == 1 else "texts"
        yield f"\n{name}: {shape['sequences']} {texts} of at most {shape['longest']} tokens, "
        yield f"{shape['fill']:.0%} of the padded batch real"
        yield ".\n\n" if shape["quiet"] else "; the machine was BUSY, compare nothing.\n\n"
        rows = sorted(shape["runs"].items(), key=lambda item: -item[1]["median_ms"])
        picture = f"pictures/inference-{name}-{hardware.name}.png"
        rates = {who: (row["tokens_per_second"],) for who, row in reversed(rows)}
        title = f"{found['preset']}, {name}"
        save_bars(DOCS / picture, rates, title=title, x="real tokens a second", form=",.0f")
        yield f"![tokens a second of everyone]({picture})\n\n"
        yield table(
            ["", "ms", "fastest", "real tokens/s", "least cosine"],
            [
                [
                    who,
                    f"{row['median_ms']:,.1f}",
                    f"{row['min_ms']:,.1f}",
                    f"{row['tokens_per_second']:,.0f}",
                    f"{row['least_cosine']:.4f}",
                ]
                for who, row in rows
            ],
        )
        yield _ratios(shape)


def _ratios(found: Mapping[str, Any]) -> str:
    rows = [[name, f"{ratio:.2f}"] for name, ratio in found["ratios"].items()]
    made = [
        f"{median(rates):.2f} in {name} ({min(rates):.2f} to {max(rates):.2f})"
        for name, rates in found["tflops"].items()
    ]
    able = f"\nThe machine's own matrix product made {', '.join(made)} TFLOP/s meanwhile.\n"
    return "\n" + table(["ratio", "times faster"], rows) + able


def training_step(hardware: Path) -> Iterator[str]:
    if (found := newest(hardware, "training-step")) is None:
        return
    preset = found.get("preset", "albert-base-v2")
    yield f"## Training step, {preset}\n\n`albertine bench train --preset {preset} --save "
    yield "benchmarks/results`, "
    yield f"{found['date']}. Eight "
    yield "sequences of at most 128 tokens, 57 % of the padded batch real; forward and backward; "
    yield f"medians of {found['rounds']} rounds.\n\n"
    yield table(
        ["variant", "ms", "fastest", "loss"],
        [
            [name, f"{row['median_ms']:,.0f}", f"{row['min_ms']:,.0f}", f"{row['loss']:.4f}"]
            for name, row in found["runs"].items()
        ],
    )
    yield _ratios(found)


def optimizer(hardware: Path) -> Iterator[str]:
    if (found := newest(hardware, "optimizer")) is None:
        return
    yield f"## Optimizer step, {found['preset']}\n\n`albertine bench optimizer --save benchmarks/results`, "
    yield f"{found['date']}, medians of {found['rounds']} rounds; 1 is the speed of torch.\n\n"
    rows = [[name, f"{row['median_ms']:.1f}", f"{row['min_ms']:.1f}"] for name, row in found["runs"].items()]
    yield table(["", "ms", "fastest"], rows)
    yield _ratios(found)


def start_up(hardware: Path) -> Iterator[str]:
    if (found := newest(hardware, "start-up")) is None:
        return
    yield f"## Cold processes\n\n`albertine bench start-up --save benchmarks/results`, {found['date']}, "
    yield f"medians of {found['rounds']}; ALBERT tiny.\n\n"
    rows = [
        [name, f"{row['median_ms'] / 1e3:.2f}", f"{row['min_ms'] / 1e3:.2f}"]
        for name, row in found["runs"].items()
    ]
    yield table(["", "seconds", "fastest"], rows)
    yield "\nPeak memory of that process: "
    yield ", ".join(f"{name} {size:,.0f} MB" for name, size in found["peak_mb"].items()) + ".\n"


def sizes(hardware: Path) -> Iterator[str]:
    if (found := newest(hardware, "sizes")) is None:
        return
    yield "## Data throughput by size\n\n`albertine bench sizes --save benchmarks/results`, "
    yield f"{found['date']}, on {found['device']}: a training step (MLM and sentence task, AdamW) over "
    yield f"{found['sequences']} full sequences of {found['length']} tokens, BERT-large being 1; in the "
    yield "manner of table 2 of the ALBERT paper, which was measured on TPUs with 24 layers of xxlarge.\n\n"
    rows = [
        [
            name,
            f"{row['parameters'] / 1e6:.0f} M",
            f"{row['tokens_per_second']:,.0f}",
            "" if row["speed_up"] is None else f"{row['speed_up']:.2f}",
            f"{row['paper']:.1f}",
        ]
        for name, row in found["sizes"].items()
    ]
    yield table(["", "parameters", "tokens/s", "speed", "in the paper"], rows)


def scaling(hardware: Path) -> Iterator[str]:
    if (found := newest(hardware, "scaling")) is None:
        return
    yield "## Time and memory of a training step\n\n`albertine bench scaling --save benchmarks/results`, "
    middle = ", ".join(f"{axis} {value}" for axis, value in found["middle"].items())
    yield f"{found['date']}: each alone moved away from {middle}; vocabulary of 30,000. Memory is the peak "
    yield "above that of a process with the model alone.\n\n"
    for what, unit in (("milliseconds", "ms"), ("megabytes", "MB")):
        picture = f"pictures/scaling-{what}-{hardware.name}.png"
        curves: dict[str, list[tuple[float, float]]] = {}
        for point in found["points"]:
            relative = point["value"] / found["middle"][point["axis"]]
            curves.setdefault(point["axis"], []).append((relative, point[what]))
        title = f"One training step, {what}"
        save_curves(
            DOCS / picture, curves, title=title, x="size, in multiples of the middle one", y=unit, levels={}
        )
        yield f"![{title}]({picture})\n\n"
    rows = [
        [f"{p['axis']} {p['value']}", f"{p['milliseconds']:,.1f}", f"{p['megabytes']:,.0f}"]
        for p in found["points"]
    ]
    yield table(["", "ms", "MB"], rows)


def loading(hardware: Path) -> Iterator[str]:
    if (found := newest(hardware, "data")) is None:
        return
    yield "## Making batches\n\n`albertine bench data CORPUS --save benchmarks/results`, "
    yield f"{found['date']}. Tokens a second of finished training batches, and of the training step of "
    yield f"{found['preset']} on them.\n\n"
    held = {name: size for name, size in found.get("megabytes", {}).items() if size is not None}
    rows = [
        [name, f"{rate:,.0f}", f"{held[name]:,.0f}" if name in held else ""]
        for name, rate in found["made"].items()
    ]
    head = ["", "tokens/s", "memory of the loader processes, MB"]
    yield table(head, [*rows, [f"used by {found['preset']}", f"{found['used']:,.0f}", ""]])
    if found["ratio"] is not None:
        yield f"\nBatches are made {found['ratio']:.1f} times as fast as they are used up.\n"


def int8(hardware: Path) -> Iterator[str]:
    if (found := newest(hardware, "int8")) is None:
        return
    yield f"## What 8-bit integers cost\n\n`python -m benchmarks.int8 MODEL --save`, {found['date']}: three "
    yield f"tasks tuned from {models([found])}, each scored on its dev set in three formats, and the "
    yield "cosine of the vectors of its texts (mean of the tokens) with those of float32, mean and least.\n\n"
    rows = []
    for name, task in found["tasks"].items():
        scores = [f"{100 * value:.2f}" for value in task["scores"].values()]
        cosines = (f"{each['mean']:.5f}, {each['least']:.5f}" for each in task["cosines"].values())
        rows.append([f"{name}, {task['metric']}", *scores, *cosines])
    yield table(["task", "float32", "bfloat16", "int8", "cosine of bfloat16", "cosine of int8"], rows)


def kill_resume(hardware: Path) -> Iterator[str]:
    released = "the block of the released models, stages with repeats, two processes with a loader each"
    runs = {
        "kill-resume": ("--save", "dropout, accumulation, two loader processes"),
        "kill-resume-released": ("--released --save", released),
    }
    told = [(newest(hardware, name), *run) for name, run in runs.items()]
    yield "## Killed and resumed\n" if any(found for found, *_ in told) else ""
    for found, options, what in told:
        if found is None:
            continue
        same = found["sha256_killed"] == found["sha256_uninterrupted"]
        yield f"\n`python -m benchmarks.kill_resume {options}`, {found['date']}: {found['kills']} times "
        yield f"SIGKILL in a run of {found['steps']} steps ({found['optimizer'].upper()}, {what}). "
        yield f"The final weights are {'identical to' if same else 'NOT those of'} "
        yield f"the uninterrupted run's: SHA-256 `{found['sha256_killed'][:16]}…`.\n"


def pretraining(hardware: Path, language: str) -> Iterator[str]:
    ours = newest(hardware, f"pretraining-{language}-albertine")
    if ours is None:
        return
    name = {"en": "English", "zh": "Chinese"}[language]
    theirs = newest(hardware, f"pretraining-{language}-transformers")
    curves = {"Albertine": ours["albertine"], **({"transformers": theirs["curve"]} if theirs else {})}
    picture = f"pictures/pretraining-{language}-{hardware.name}.png"
    save_curves(
        DOCS / picture,
        {who: [(row["minutes"], row["mlm_loss"]) for row in curve] for who, curve in curves.items()},
        title=f"ALBERT tiny, {name}: held-out loss of masked words",
        x="minutes",
        y="nats",
        levels={"guessing by frequency": ours["unigram_baseline"]["mlm_loss"]},
    )
    yield f"## Pretraining a tiny ALBERT, {name}\n\n`python -m benchmarks.pretraining {language} --minutes "
    yield f"{ours['minutes']:g} --save`, {ours['date']}. Batch {ours['batch']}, length "
    yield f"{ours['length']}, AdamW at "
    yield f"{ours['learning_rate']:g}; {ours['training_tokens']:,} tokens of text; both in "
    yield "bfloat16 where the processor has it. Ours begins with wide embeddings and the log frequencies of "
    yield "words as its bias, so at the unigram baseline; transformers' begins as it comes and masks single "
    yield "tokens, while both are judged by whole words of up to three. Small "
    yield "pretraining: a curve to "
    yield "compare by, not a model to use.\n\n"
    rows = [
        [
            who,
            f"{curve[-1]['minutes']:.1f}",
            f"{curve[-1]['step']:,}",
            f"{curve[-1]['mlm_loss']:.3f}",
            f"{curve[-1]['mlm_accuracy']:.1%}",
            f"{curve[-1]['sentence_accuracy']:.1%}",
        ]
        for who, curve in curves.items()
    ]
    base = ours["unigram_baseline"]
    rows.append(
        ["unigram, chance", "", "", f"{base['mlm_loss']:.3f}", f"{base['mlm_accuracy']:.1%}", "50.0%"]
    )
    yield table(["", "minutes", "updates", "MLM loss", "MLM accuracy", "SOP accuracy"], rows)
    copied = 0.1 + 0.8 * base["mlm_accuracy"]  # a tenth of the chosen tokens is shown
    by_length = order_by_length(language)
    yield "\nThese are scores on all chosen tokens, of which some are shown: a model that copies those and "
    yield f"has learned no more than frequencies has {copied:.1%} of them right. By the lengths of its "
    yield f"segments alone the order of {by_length:.1%} of pairs can be told, as measured on the corpus of a "
    yield "released model.\n"
    last = theirs["curve"][-1]["mlm_loss"] if theirs else math.nan
    if last > base["mlm_loss"] - 0.05:
        yield "\ntransformers ends where frequencies alone do, so no times are compared.\n"
    elif theirs and (reached := time_to_reach(ours["albertine"], last)) is not None:
        whole = theirs["curve"][-1]["minutes"]
        first = "at its first look, " if reached == ours["albertine"][0]["minutes"] else ""
        yield f"\nAlbertine is below the final loss of transformers {first}after {reached:.1f} "
        yield f"of {whole:.1f} minutes: {reached / whole:.2f} of the time.\n"
    for minutes, found in newest_of_each(hardware, f"pretraining-{language}-recipe").items():
        yield f"\n`python -m benchmarks.pretraining {language} --only recipe --minutes {minutes} --save`, "
        yield f"{found['date']}: {beside(found, ours)}.\n"
    yield f"\n![held-out loss over time]({picture})\n"


def order_by_length(language: str) -> float:
    """What lengths alone tell of the order of pairs, in the corpus of a released model and samples of 64."""
    scores = read_json(FOLDER / f"albertine-mini-{language}" / "scores.json")["held_out"]
    return next(float(row["by_length"]) for row in scores if row["task"] == "sop")


def prepared(hardware: Path) -> Iterator[str]:
    if (found := newest(hardware, "prepare")) is None:
        return
    rates = found["rates"]
    yield "## Preparing a corpus\n\n`python -m benchmarks.prepare --save`, "
    yield f"{found['date']}. {rates['megabytes']:g} MB of {found['language']} text. "
    yield "The peer does the same work with `datasets.map` in two processes: the same sentence splitter, "
    yield "the same vocabulary as a fast tokenizer.\n\n"
    yield table(
        ["", "MB of raw text a second"],
        [[name, f"{rate:.2f}"] for name, rate in rates["megabytes_per_second"].items()],
    )
    yield f"\nTwo workers against the peer: {rates['ratio_whole']:.1f} times the rate. "
    yield "Bytes for 1 and 4 workers: "
    yield "equal.\n" if found["bytes"]["equal"] else "DIFFERENT.\n"
    if memory := found.get("memory"):
        yield f"Peak memory of all processes on {memory['megabytes']:,.0f} MB of text: "
        yield f"{memory['peak_pss_megabytes']} MB.\n"


def models(results: Iterable[Mapping[str, Any]]) -> str:
    """Names of what results began from; the oldest do not tell."""
    names = {result.get("model", "a checkpoint of minutes of pretraining") for result in results}
    return ", ".join(sorted(names))


def finetuning(hardware: Path) -> Iterator[str]:
    if not (found := newest_of_each(hardware, "finetuning")):
        return
    yield "## Fine-tuning against transformers\n\n`python -m benchmarks.finetuning MODEL NAME SETTINGS "
    yield "--save`, the settings being in the files of the results: the same model "
    yield f"({models(found.values())}), examples, rate and batch in transformers' Trainer, in turn. Medians "
    yield "over the seeds, from the least to the most in brackets; seconds include making tokens and scoring "
    yield "the dev set. Where a shared model is of a layout that has a block a depth, transformers tunes the "
    yield "copies; heads are each program's own.\n\n"
    rows = []
    for name, result in found.items():
        row = [f"{name}, {result['metric']}"]
        row.append(" / ".join(f"{count:,}" for count in result["examples"].values()))
        for who in ("albertine", "transformers"):
            scores = [100 * run["score"] for run in result["runs"][who]]
            middle = 100 * result["median"][who]["score"]
            row.append(f"{middle:.2f} ({min(scores):.2f} to {max(scores):.2f})")
        seconds = (f"{result['median'][who]['seconds']:.0f}" for who in ("albertine", "transformers"))
        rows.append([*row, " / ".join(seconds), f"{result['share']:.2f}"])
    columns = [
        "task",
        "train / dev",
        "Albertine",
        "transformers",
        "seconds, ours / theirs",
        "share of the time",
    ]
    yield table(columns, rows)


def unsharing(hardware: Path) -> Iterator[str]:
    if not (found := newest_of_each(hardware, "unsharing")):
        return
    yield "## Shared and unshared\n\n`python -m benchmarks.unsharing MODEL --tasks TASK --batch B --rate R "
    yield "--save`, batch and rate being in the files of the results: shared and unshared in turn, medians "
    yield f"of the seeds, from {models(found.values())}. The score is the first of its task "
    yield "(accuracy, F1 of triples) after the epoch that was best by dev, which flatters both.\n\n"
    rows = [
        [
            f"{name}, {result['settings']['epochs']} epochs, {result['settings']['seeds']} seeds, {how}",
            *(f"{100 * row[key]:.2f}" for key in ("score", "first_epoch")),
            f"{row['seconds_an_epoch']:.1f}",
        ]
        for name, result in found.items()
        for how, row in result["median"].items()
    ]
    yield table(["task", "score", "after the first epoch", "seconds an epoch"], rows)


def ensembles(hardware: Path) -> Iterator[str]:
    if not (found := newest_of_each(hardware, "ensembles")):
        return
    yield "## Ensembles\n\n`python -m benchmarks.ensembles MODEL --save`: four candidates "
    yield "of two depths a task, members picked on dev, which is therefore too high; the test set was scored "
    yield f"once. From {models(found.values())}.\n\n"
    rows = []
    for name, task in found.items():
        metric, splits = task["metric"], list(task["together"])
        for who, scores in task["candidates"].items():
            taken = "yes" if who in task["members"] else ""
            rows.append([who, taken, *(f"{100 * scores[split][metric]:.2f}" for split in splits)])
        together = (f"{100 * task['together'][split][metric]:.2f}" for split in splits)
        rows.append([f"**{name} together**, {task['rule']}", str(len(task["members"])), *together])
    yield table(["", "taken", "dev", "test"], rows)


def encoding(hardware: Path) -> Iterator[str]:
    if (found := newest(hardware, "encoding")) is None:
        return
    yield f"## Making model input\n\n`python -m benchmarks.encoding --save`, {found['date']}: SQuAD in "
    yield "windows of 384 tokens, RACE in rows of 512, with the same vocabulary; the peer does what the "
    yield "example scripts of transformers do. Memory is what comes on top of the examples.\n\n"
    keys = (("examples", ",.0f"), ("rows", ",.0f"), ("seconds", ".1f"), ("megabytes", ",.0f"))
    rows = [[name, *(f"{row[key]:{form}}" for key, form in keys)] for name, row in found["runs"].items()]
    yield table(["", "examples", "rows", "seconds", "MB"], rows)


PARTS: tuple[Callable[[Path], Iterator[str]], ...] = (
    inference,
    exported,
    foreign,
    missing_torch_error,
    int8,
    training_step,
    sizes,
    scaling,
    optimizer,
    loading,
    start_up,
    lambda hardware: pretraining(hardware, "en"),
    lambda hardware: pretraining(hardware, "zh"),
    ladder,
    blocks,
    loops,
    attention.section,
    memories.steps,
    memories.shift,
    memories.transformer_xl,
    memories.longer_memories,
    memories.tasks,
    tuned,
    distilled,
    vectors,
    prepared,
    kill_resume,
    finetuning,
    unsharing,
    ensembles,
    encoding,
    predicted_files,
    from_python,
    serving.section,
    gpu,
)


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    folders = sorted(path for path in RESULTS.iterdir() if path.is_dir())
    pages = [HEAD, *in_short(folders)]
    for hardware in folders:
        pages.append(f"\n# {hardware.name}\n")
        texts = ("".join(part(hardware)) for part in PARTS)
        # With its machine, so that every heading can be linked to.
        pages += [
            re.sub("^(##+ .+)$", rf"\1, {hardware.name}", f"\n{text}", flags=re.M) for text in texts if text
        ]
    (DOCS / "performance.md").write_text("".join(pages), encoding="utf-8")
    print(f"written: {DOCS / 'performance.md'}")


if __name__ == "__main__":
    main()
