"""What pretraining is worth: a pretrained model, its shape untrained, and others, tuned under one budget.

    python -m benchmarks.tuned albertine-mini-en --shared ../shared/data --save \\
        --contestants model untrained transformers=runs/transformers-en

MODEL is a folder or a released name; the tasks are those of its language. Everyone gets the same number of
steps, which each task has of its own. Every result is written when it is done, and the same command goes on
where it was stopped; `--work` holds what is done. The folder of a model that transformers pretrained is made
by `benchmarks.transformers_baseline`.
"""

from __future__ import annotations

import argparse
import sys
from itertools import product
from pathlib import Path

import albertine
from albertine.bench.machine import describe, save_result
from albertine.interop.model_names import model_folder
from benchmarks.tuned.contest import Contest, language_of, untrained
from benchmarks.tuned.report import in_markdown
from benchmarks.tuned.tasks import TASKS, Files


def parsed(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", help="folder, or name of a released model")
    parser.add_argument("--shared", type=Path, default=Path("../shared/data"), help="folder of the data sets")
    parser.add_argument("--tasks", nargs="+", choices=tuple(TASKS), help="default: those of the language")
    parser.add_argument("--seeds", type=int, default=3, help="the last of them")
    parser.add_argument("--first", type=int, default=1, help="seed, so that two processes can share the work")
    parser.add_argument("--steps", type=int, help="of training, a task and a seed; default: the task's own")
    parser.add_argument("--rate", type=float, help="of learning; default: the task's own")
    parser.add_argument(
        "--contestants",
        nargs="+",
        default=["model", "untrained"],
        metavar="model|untrained|NAME=FOLDER",
    )
    parser.add_argument("--work", type=Path, help="default: runs/tuned/ and the model's name")
    parser.add_argument("--note", help="what a reader must know of the model, as of one tuned before")
    parser.add_argument("--kept", action="store_true", help="run nothing, print what is done")
    parser.add_argument("--save", action="store_true", help="write the result under benchmarks/results")
    return parser.parse_args(arguments)


def contestants(words: list[str], model: Path, work: Path) -> dict[str, Path]:
    """Model folders by the names of their contestants, `model` that of the given one; in the order given."""
    found: dict[str, Path] = {}
    for word in words:
        name, _, folder = word.partition("=")
        if folder:
            found[name] = model_folder(folder)
        elif name == "untrained":
            found[name] = untrained(model, work / "untrained")
        elif name == "model":
            found[name] = model
        else:
            raise SystemExit(f"{name}: write {name}=FOLDER, or one of model, untrained")
    return found


def called(model: str) -> str:
    """The name of a model; of one in the folder of a run the run's."""
    path = Path(model)
    return path.parent.name if path.name in ("best", "final") and path.parent.name else path.name


def main(words: list[str] | None = None) -> None:
    arguments = parsed(words)
    model = model_folder(arguments.model)
    work = arguments.work or Path("runs") / "tuned" / called(arguments.model)
    everyone = contestants(arguments.contestants, model, work)
    language = language_of(albertine.load_tokenizer(model))
    names = arguments.tasks or [name for name, task in TASKS.items() if task.language == language]
    files = Files(arguments.shared, work / "data")
    contest = Contest(everyone, files, work, arguments.steps, arguments.rate)
    find = contest.kept if arguments.kept else contest.result
    runs = list(product(names, range(arguments.first, arguments.seeds + 1), everyone))
    found = [find(name, TASKS[name], who, seed) for name, seed, who in runs]
    for (name, seed, who), result in zip(runs, found, strict=True):
        if result is None:
            print(f"left out, not done or of other files: {name} {who} seed {seed}", file=sys.stderr)
    results = [result for result in found if result is not None]
    text = in_markdown(results, TASKS, arguments.note)
    (work / "table.md").write_text(text, encoding="utf-8")
    print(text)
    if arguments.save:
        record = {
            "model": arguments.model,
            "note": arguments.note,
            "contestants": arguments.contestants,
            "max_length": contest.max_length,
            "tasks": {
                name: {
                    "optimizer": TASKS[name].optimizer,
                    "rate": arguments.rate or TASKS[name].rate,
                    "batch": TASKS[name].batch,
                    "task": dict(TASKS[name].task),
                }
                for name in names
            },
            "notes": {name: TASKS[name].note for name in names},
            "runs": [{k: v for k, v in result.items() if k != "stamp"} for result in results],
        }
        model_name = called(arguments.model)
        other = () if model_name.startswith("albertine-mini-") else (model_name,)
        name = "-".join(("tuned", language, *(arguments.tasks or ()), *other))
        path = save_result(name, {"machine": describe(), **record})
        path.with_suffix(".md").write_text(text, encoding="utf-8")
        print(f"written: {path}")


if __name__ == "__main__":
    main()
