"""A trained run as a released model: its folder in `albertine/released`, with card, settings, curve and
scores.

    python -m benchmarks.release runs/albertine-mini-en corpora/en --suite blimp --data ../shared/data/blimp

Scores of the same weights that were measured before are kept unless --again is given, so that the card can be
written anew.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import math
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import torch
import yaml
from safetensors.torch import load_file

import albertine
from albertine.analysis.parameters import parameters_by_part
from albertine.analysis.plots import save_curves
from albertine.bench.machine import describe
from albertine.core.processors import usable_cores
from albertine.core.released import FOLDER
from albertine.corpus.manifest import load_manifest
from albertine.inference import whitening
from albertine.interop.hub.card import Card
from albertine.interop.hub.card import render_card as card_text
from albertine.interop.hub.citations import citation
from albertine.interop.huggingface.folders import save_model
from albertine.model.config import EncoderConfig
from albertine.pretraining.run import stage_ends
from albertine.training.metrics import read_metrics
from albertine.training.resuming import branch_of

TEXTS = {
    "en": "English Wikipedia (8 x 8 MB of articles of 2018, CC BY-SA 3.0 / GFDL) and 165 books in the public "
    "domain (Project Gutenberg)",
    "zh": "Chinese Wikipedia (CC BY-SA 3.0 / GFDL) and modern Chinese translations of the classical "
    "histories (collected by NiuTrans/Classical-Modern; original rights stay with their sources)",
}
BOOKS = {"en": "old books", "zh": "histories in modern translation"}
SUITES = {"blimp": "BLiMP", "sling": "SLING"}
EXAMPLES = {"en": "He played for the national football [MASK].", "zh": "皇帝下诏任命他为大将[MASK]。"}
OPENINGS = " Which of two passages comes first it tells mostly by how an article opens; "
UNABLE = {
    "albertine-mini-en": f"{OPENINGS}within other texts it is right about six pairs of ten.",
    "albertine-small-en": f"{OPENINGS}within other texts it is right about six pairs of ten.",
    "albertine-small-zh": " Of SLING's pairs, which ask for grammar, it has fewer right than "
    "albertine-mini-zh by sums (60.2 for 63.8 %), and as many by perplexity.",
}
"""What scores on held-out text alone do not show (docs/experiments)."""


def json_of(*words: object) -> Any:
    """What a command of ours prints as JSON."""
    command = [sys.executable, "-m", "albertine", *map(str, words), "--json"]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def measured(folder: Path, corpus: Path, suite: str, data: Path, before: dict[str, Any]) -> dict[str, Any]:
    """All that the card states of the model; what is in `before` is not measured again. As many things at
    once as there are processors, as scores do not depend on it; those of int8, whose products are timed,
    alone."""
    commands: dict[str, tuple[object, ...]] = {
        "held_out": ("score", folder, corpus, "--max-length", 64),
        "held_out_128": ("score", folder, corpus, "--max-length", 128),
        "held_out_256": ("score", folder, corpus, "--max-length", 256),
        "held_out_512": ("score", folder, corpus, "--max-length", 512),
        "held_out_passages": ("score", folder, corpus, "--max-length", 128, "--no-pairs"),
        "held_out_int8": ("score", folder, corpus, "--max-length", 64, "--precision", "int8"),
        "suite": ("suite", suite, folder, "--data", data),
    }

    def score(key: str) -> Any:
        return before.get(key) or json_of(*commands[key])

    order = sorted(commands.keys() - {"held_out_int8"}, key=lambda key: key != "suite")  # the longest first
    with ThreadPoolExecutor(usable_cores()) as pool:
        scores = dict(zip(order, pool.map(score, order), strict=True))
    scores["held_out_int8"] = score("held_out_int8")
    found = {key: scores[key] for key in commands}
    found["suite"].pop("model", None)
    return {"machine": before.get("machine") or describe(), **found}


class Part(NamedTuple):
    """A run that a model went through.

    Attributes:
        run: its folder, or that of a released model, which describes the runs before it.
        end: its last step that counts. branched: whether the next one is its branch, which counts on; else
            that begins with its weights (`model.start_from`) and counts anew.
    """

    run: Path
    end: float = math.inf
    branched: bool = False


def lineage(run: Path) -> list[Part]:
    """The run and those it goes back to, the first one first."""
    found = [Part(run)]
    while True:
        settings = yaml.safe_load((found[0].run / "settings.yaml").read_text(encoding="utf-8"))
        origin = settings["model"].get("start_from")
        if branch := branch_of(found[0].run):
            found.insert(0, Part(Path(branch["checkpoint"]).parents[1], branch["step"], True))
        elif origin is not None and (first := run_of(Path(origin))) is not None:
            found.insert(0, Part(first))
        else:
            return found


def run_of(origin: Path) -> Path | None:
    """The run that a folder is, or is the model of; the folder of a released model by its name."""
    return release_of(origin) or next(
        (f for f in (origin, origin.parent) if (f / "metrics.jsonl").is_file()), None
    )


def release_of(origin: Path) -> Path | None:
    """The folder of a released model, where that is the name of one."""
    folder = FOLDER / origin.name
    return folder if origin.parent == Path() and (folder / "curve.csv").is_file() else None


def training_rows(run: Path) -> list[dict[str, Any]]:
    """The lines of training that a run wrote, or a released model holds."""
    if (run / "metrics.jsonl").is_file():
        return [row for row in read_metrics(run / "metrics.jsonl") if "tokens" in row]
    with (run / "curve.csv").open(newline="", encoding="utf-8") as file:
        return [
            {
                "step": int(row["step"]),
                "stage": int(row["stage"]),
                "tokens": int(row["tokens"]),
                "elapsed": 60 * float(row["minutes"]),
                "mlm_loss": float(row["training_loss"]),
                "mlm_accuracy": float(row["training_accuracy"]),
            }
            for row in csv.DictReader(file)
        ]


def settings_of(run: Path) -> list[Path]:
    """The files of settings of a run; of a released model those of the runs before it as well."""
    numbered = sorted(run.glob("settings-*.yaml"), key=lambda file: int(file.stem.partition("-")[2]))
    return [*numbered, run / "settings.yaml"]


def curve(runs: list[Part], folder: Path) -> dict[str, Any]:
    """Write curve.csv and curve.png; returns what the runs took together."""
    training: list[dict[str, Any]] = []
    lines: list[int] = []
    so_far = {"step": 0, "tokens": 0, "elapsed": 0.0}
    for part in runs:
        rows = [row for row in training_rows(part.run) if row["step"] <= part.end]
        training += [row | {key: row[key] + n for key, n in so_far.items()} for row in rows]
        if (metrics := part.run / "metrics.jsonl").is_file():
            lines += [int(so_far["step"]) + border for border in stage_ends(metrics)]
        if not part.branched:
            so_far = {key: training[-1][key] for key in so_far}
            lines.append(int(so_far["step"]))
    with (folder / "curve.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["step", "stage", "tokens", "minutes", "training_loss", "training_accuracy"])
        for row in training:
            cells = [row["step"], row.get("stage", 0), row["tokens"], f"{row['elapsed'] / 60:.2f}"]
            writer.writerow([*cells, f"{row['mlm_loss']:.4f}", f"{row['mlm_accuracy']:.4f}"])
    points = [(row["step"], row["mlm_loss"]) for row in training]
    save_curves(
        folder / "curve.png",
        {"training": points},
        title=f"{folder.name}: masked words",
        y="loss, nats",
        borders=tuple(lines[:-1]),
    )
    last = training[-1]
    return {"tokens": last["tokens"], "minutes": last["elapsed"] / 60, "steps": last["step"]}


def settings_text(file: Path, name: str) -> str:
    """Settings as in a recipe: corpus and runs where the recipe has them."""
    if file.parent.parent == FOLDER:
        return file.read_text(encoding="utf-8")
    tree = yaml.safe_load(file.read_text(encoding="utf-8"))
    tree |= {"name": name, "corpus": f"corpora/{name.rpartition('-')[2]}", "output": "runs"}
    origin = tree["model"].get("start_from")
    if origin is not None and release_of(Path(origin)) is None:
        origin = Path(origin)
        tree["model"]["start_from"] = str("runs" / origin.relative_to((run_of(origin) or origin).parent))
    return yaml.safe_dump(tree, sort_keys=False, allow_unicode=True)


def corpus_record(corpus: Path) -> dict[str, Any]:
    """What identifies a corpus and its held-out documents: its rules, and the digest of
    each split's text. A run that continues the release must hold out the same."""
    manifest = load_manifest(corpus)
    kept = {key: getattr(manifest, key) for key in ("language", "settings", "documents_read", "dropped")}
    sources = [{**source, "path": Path(source["path"]).name} for source in manifest.sources]
    splits = {
        split: {
            "documents": manifest.count("documents", split),
            "tokens": manifest.count("tokens", split),
            "text": hashlib.sha256("".join(shard.text for shard in shards).encode()).hexdigest(),
        }
        for split, shards in manifest.splits.items()
    }
    return {**kept, "sources": sources, "splits": splits}


def parts_lines(runs: list[Part], name: str, processes: int = 1) -> list[str]:
    """Where the last run began, and the command that makes such a model.

    Args:
        processes: that shared the last run.
    """
    lines, number = [], 0
    for part in runs[:-1]:
        files = [f"`settings-{number + i}.yaml`" for i in range(1, len(settings_of(part.run)) + 1)]
        number += len(files)
        end = int(part.end) if part.branched else training_rows(part.run)[-1]["step"]
        if part.run.parent == FOLDER:
            how = (
                f"Its first {end:,} updates are those of the release before, {' and '.join(files)}, with "
                "whose weights the next run began (`model.start_from`). Which documents that one held out "
                "was not kept, so it may have read some of those that are held out now"
            )
        elif part.branched:
            how = (
                f"Until update {end:,} it was a shorter run, {files[0]}, which was gone on with by "
                "`albertine pretrain --branch-from` its last checkpoint"
            )
        else:
            how = (
                f"Its first {end:,} updates are those of {files[0]}, with whose weights the "
                "next run began (`model.start_from`, `model.student`)"
            )
        lines.append(f"- {how}; minutes and tokens count both.")
    shared = f" --processes {processes}" if processes > 1 else ""
    one = ", which is one run of fewer minutes" if any(part.branched for part in runs) else ""
    return [
        *lines,
        f"- Command: `albertine pretrain --config recipes/{name}.yaml{shared}`{one}",
    ]


def without_skill(order: dict[str, Any]) -> float:
    """What is right of the order of pairs without reading them: the commoner answer, or by their lengths."""
    return max(order["baseline"], order.get("by_length", 0.0))


def card(name: str, config: EncoderConfig, took: dict[str, Any], scores: dict[str, Any], suite: str) -> str:
    """The README.md of the folder."""
    language = name.rpartition("-")[2]
    masked, order, longer = scores["held_out"][0], scores["held_out_128"][1], scores["held_out_256"][1]
    passages, spans, overall = scores["held_out_passages"][0], masked["spans"], scores["suite"]
    count = sum(parameters_by_part(config).values())
    parts: dict[str, list[str]] = {
        "model": [
            f"# {name}",
            "",
            f"A small text encoder, trained from nothing on {took['where']}: {count:,} parameters, "
            f"{config.num_hidden_layers} layers, {config.hidden_size} wide, a vocabulary of "
            f"{config.vocab_size:,}. Its layout is RoFormer's, so transformers loads it too; "
            "weights are stored in float16.",
            "",
            "```python",
            "import albertine",
            "",
            f'model = albertine.load("{name}")',
            f'tokenizer = albertine.load_tokenizer("{name}")',
            "```",
            "",
            f'`albertine predict fill-mask {name} "{EXAMPLES[language]}"`; fine-tune it with '
            f"`encoder.folder={name}`.",
        ],
        "training": [
            "## How it was made",
            "",
            f"- Text: {TEXTS[language]}. 1 % of the documents are held out and were never trained on; "
            "`corpus.json` tells by which rules.",
            f"- Run: `settings.yaml` in the environment of `environment.json`; {took['steps']:,} "
            f"updates, {took['tokens'] / 1e6:.1f} million tokens, {took['minutes']:.1f} minutes by the clock "
            f"on {took['machine']}. `curve.csv` is its curve.",
            *took["parts"],
        ],
        "scores": [
            "## Scores (`scores.json`)",
            "",
            "| what | score | without skill |",
            "| --- | ---: | ---: |",
            f"| hidden tokens right, all [MASK], samples of 64 | {masked['mask_accuracy']:.1%} "
            f"| {masked['mask_baseline']:.1%} |",
            *(
                f"| the same, samples of {length} | {scores[f'held_out_{length}'][0]['mask_accuracy']:.1%} "
                f"| {scores[f'held_out_{length}'][0]['mask_baseline']:.1%} |"
                for length in (128, 256)
            ),
            f"| the same, passages of 128 in one segment | {passages['mask_accuracy']:.1%} "
            f"| {passages['mask_baseline']:.1%} |",
            f"| the same, samples of 64, in int8 | {scores['held_out_int8'][0]['mask_accuracy']:.1%} | |",
            f"| their loss, samples of 64, nats | {masked['mask_loss']:.3f} "
            f"| {masked['mask_baseline_loss']:.3f} |",
            "| all chosen tokens right, 80 % as [MASK], 10 % random, 10 % as they are "
            f"| {masked['accuracy']:.1%} | {masked['floor']:.1%} |",
            f"| nats per character of fixed words | {spans['nats_per_character']:.3f} "
            f"| {spans['unigram_nats_per_character']:.3f} |",
            f"| whole words right | {spans['span_accuracy']:.1%} | |",
            f"| sentence order, samples of 128 | {order['accuracy']:.1%} | {without_skill(order):.1%} |",
            f"| the same, samples of 256 | {longer['accuracy']:.1%} | {without_skill(longer):.1%} |",
            *(
                f"| the same, samples of 512 | {row['accuracy']:.1%} | {without_skill(row):.1%} |"
                for row in scores.get("held_out_512", [])[1:]
            ),
            f"| a word looked up in a copy of its passage | {masked['copying']['right']:.1%} "
            f"| {masked['copying']['without_copy']:.1%} |",
            f"| {SUITES[suite]} ({overall['pairs']:,} pairs) | {overall['right']:.1%} | 50.0% |",
            *(
                [f"| the same by perplexity | {overall['right_by_perplexity']:.1%} | 50.0% |"]
                if overall.get("published_by") == "perplexity"
                else []
            ),
            "",
            "One seed, the last checkpoint of the run; nothing was chosen by these scores.",
        ],
        "limits": [
            "## What it is not",
            "",
            f"It has read {took['tokens'] / 1e6:.0f} million tokens of an encyclopedia and of "
            f"{BOOKS[language]}. It knows common words, some grammar and what goes together; it knows "
            f"few facts, and says what its texts said, their prejudices included.{UNABLE.get(name, '')}",
        ],
        "cite": ["## Citation", "", citation("roformer")],
    }
    head = {
        "library_name": "albertine",
        "license": "apache-2.0",
        "language": [language],
        "tags": ["albertine", "roformer", "fill-mask"],
    }
    return card_text(Card(head, {key: "\n".join(lines) for key, lines in parts.items()}))


def same_weights(one: Path, other: Path) -> bool:
    """Whether scores of one model hold for the other."""
    a, b = (load_file(folder / "model.safetensors") for folder in (one, other))
    return a.keys() == b.keys() and all(torch.equal(x, b[name]) for name, x in a.items())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path, help="folder of the finished run")
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--suite", choices=tuple(SUITES), required=True)
    parser.add_argument("--data", type=Path, required=True, help="folder of the suite's files")
    parser.add_argument("--whiten", type=Path, nargs="+", help="text, as in convert --whiten")
    parser.add_argument("--name", help="of the model; default: that of the run")
    parser.add_argument("--again", action="store_true", help="measure again")
    options = parser.parse_args()
    settings = yaml.safe_load((options.run / "settings.yaml").read_text(encoding="utf-8"))
    name = options.name or settings["name"]
    folder = FOLDER / name
    kept = folder / "scores.json"
    model = albertine.load(options.run / "final")
    with tempfile.TemporaryDirectory() as beside:
        new = Path(beside) / name
        tokenizer = albertine.load_tokenizer(options.run / "final")
        extra = {}
        if options.whiten:
            vectors = whitening.fit_whitening(model, tokenizer, whitening.sentences_of(options.whiten))
            extra = {whitening.FILE: vectors.to_bytes()}
        save_model(model, tokenizer, new, stored="float16", extra_files=extra)
        keeps = kept.is_file() and not options.again and same_weights(folder, new)
        before = json.loads(kept.read_text(encoding="utf-8")) if keeps else {}
        runs = lineage(options.run)
        ran = json.loads((options.run / "environment.json").read_text(encoding="utf-8"))
        # The place and machine of the run do not help to run it again.
        ran = {key: value for key, value in ran.items() if key not in ("host", "command")}
        gpu = ran["device"] != "cpu"
        cores = "one core" if ran["world_size"] * ran["threads"] == 1 else "both cores"
        took = {
            **curve(runs, new),
            "parts": parts_lines(runs, name, ran["world_size"]),
            "where": "one GPU" if gpu else "processor cores",
            "machine": f"one {ran['device']}"
            if gpu
            else f"{cores} of two, while other programs ran beside it",
        }
        (new / "environment.json").write_text(json.dumps(ran, indent=2) + "\n", encoding="utf-8")
        text = json.dumps(corpus_record(options.corpus), indent=1, ensure_ascii=False)
        (new / "corpus.json").write_text(text + "\n", encoding="utf-8")
        files = [file for part in runs for file in settings_of(part.run)]
        for number, file in enumerate(files, 1):
            name_there = "settings.yaml" if file is files[-1] else f"settings-{number}.yaml"
            (new / name_there).write_text(settings_text(file, name), encoding="utf-8")
        # With the settings beside it a model is judged by masks as it was trained with.
        scores = measured(new, options.corpus, options.suite, options.data, before)
        (new / "scores.json").write_text(json.dumps(scores, indent=1) + "\n", encoding="utf-8")
        (new / "README.md").write_text(card(name, model.config, took, scores, options.suite), "utf-8")
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(new, folder)
    print(f"written: {folder}")


if __name__ == "__main__":
    main()
