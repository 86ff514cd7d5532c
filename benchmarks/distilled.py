"""What a student of two depths keeps of a released model's scores, and how much faster it is.

    albertine prepare TEXT --output corpora/en --tokenizer albertine-mini-en
    albertine distill albertine-mini-en corpora/en --config recipes/distilled-mini-en.yaml -o runs/student-en
    python -m benchmarks.distilled en runs/student-en --shared ../shared/data --corpus corpora/en --save

For every task and seed the teacher is tuned on the labels, and the student on the labels and on the outputs
of its tuned teacher for the same rows (`training.teacher`); both have the same steps, rate and batch, and are
judged once, at the end. Pairs that are compared, and whitened vectors, read no depth behind the first, which
a cut teacher has as well: `--tasks` names them, but they show little of a student. Beside them stand `cut`,
the teacher's first and third depth as they are, tuned on the labels alone, and on request `untrained`, a
student's shape with random weights. `kept` is the student's score over its teacher's of the same seed.
Finished runs are not repeated; the same command resumes where it was stopped. Without --save on a quiet
machine the speeds mean little; the file records its load.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from itertools import combinations
from pathlib import Path
from typing import Any

import torch

import albertine
from albertine.bench.inputs import inputs, lengths_of
from albertine.bench.interleaved import compete
from albertine.bench.machine import describe, save_result
from albertine.core.processors import usable_cores
from albertine.core.settings import resolve
from albertine.interop.model_names import model_folder
from albertine.model.model import Model
from albertine.pretraining.data import held_out_batches
from albertine.pretraining.held_out import score_batches
from albertine.pretraining.settings import ObjectiveChoice, Student
from albertine.pretraining.student import student_of
from albertine.tasks.finetune import finetune
from albertine.tasks.settings import FinetuneSettings
from albertine.training.progress import Reporter
from benchmarks.intervals import interval
from benchmarks.markdown import table
from benchmarks.tuned.tasks import TASKS, Files, Task

DEMO = Path(__file__).resolve().parents[1] / "data" / "demo"


def _of_demo(language: str, name: str, text: str, label: str, note: str) -> Task:
    """The classes of rows that come with the repository."""
    files = {"train": [DEMO / f"{name}-train.csv"], "dev": DEMO / f"{name}-dev.csv"}
    settings = {**files, "text": text, "label": label, "max_length": 64}
    return Task(language, "accuracy", settings, note=f"data/demo: {note}")


BOOKS = "which of seven books a sentence is from, judged by 210 of other chapters"
CLAUSES = "which book of the Civil Code a clause is from, judged by 164"
WNUT = {"dataset": "wnut-17", "folder": "wnut17", "max_length": 128}
TWEETS = "names in tweets and the like, most of them in no text that a model has read"
CLUENER = {"dataset": "cluener", "folder": "cluener2020", "max_length": 64}
WHOLE = {
    "sst-2": TASKS["sst-2"],
    "books": _of_demo("en", "books", "sentence", "book", BOOKS),
    "wnut-17": Task("en", "entity_f1", WNUT, note=TWEETS),
    "tnews": TASKS["tnews"],
    "chnsenticorp": TASKS["chnsenticorp"],
    "clauses": _of_demo("zh", "clauses", "条文", "编", CLAUSES),
    "cluener": Task("zh", "entity_macro_f1", CLUENER),
}
"""Tasks whose heads read all depths, by default those of the language."""
FIRST = {name: TASKS[name] for name in ("sts-b", "sick", "lcqmc")}
CHOSEN = WHOLE | FIRST
STEPS = {
    "sst-2": 800,
    "books": 200,
    "wnut-17": 600,
    "tnews": 800,
    "chnsenticorp": 200,
    "clauses": 200,
    "cluener": 800,
    "sts-b": 600,
    "sick": 800,
    "lcqmc": 500,
}
"""Of tuning, for teacher and student alike: less than benchmarks/tuned gives a task."""
UNTAUGHT = ("sts-b",)
"""Their head is no layer of classes: the student has the labels alone."""
SHAPES = {"32 texts of up to 64": (32, 64, 0.6), "one text of 32": (1, 32, 1.0)}
DEPTH = 2


def tuned(task: str, who: str, encoder: Path, seed: int, files: Files, work: Path, **training: Any) -> Any:
    """One run of fine-tuning, or its record where it is done."""
    chosen = CHOSEN[task]
    settings = resolve(
        FinetuneSettings,
        {
            "name": f"{task}-{who}-{seed}",
            "output": work / "runs",
            "seed": seed,
            "task": files.task(chosen, 512),
            "encoder": {"folder": encoder},
            "training": {
                "steps": STEPS[task],
                "batch_size": chosen.batch,
                "optimizer": chosen.optimizer,
                "learning_rate": chosen.rate,
                "threads": 1,
                **training,
            },
            "watching": {"evaluations": 1, "log_every": 50, "tensorboard": False, "report": False},
        },
    )
    found = finetune(settings, reporter=Reporter(quiet=True))
    if not found.outcome.done:
        raise SystemExit(found.outcome.exit_code)
    print(f"{settings.name}: {chosen.metric} {found.scores[chosen.metric]:.4f}", flush=True)
    return found


def contest(
    language: str, who: dict[str, Path], tasks: list[str], seeds: int, files: Files, work: Path
) -> list[dict[str, Any]]:
    """A row a task and seed: the scores of everyone, and what the student kept."""
    rows = []
    for seed in range(1, seeds + 1):
        for task in tasks:
            metric = CHOSEN[task].metric
            teacher = tuned(task, "teacher", who["teacher"], seed, files, work)
            row: dict[str, Any] = {"task": task, "seed": seed, "teacher": teacher.scores[metric]}
            for name, folder in who.items():
                if name != "teacher":
                    lesson = {"teacher": teacher.folder} if name == "student" and task not in UNTAUGHT else {}
                    row[name] = tuned(task, name, folder, seed, files, work, **lesson).scores[metric]
            rows.append(row | {"kept": row["student"] / row["teacher"]})
    return rows


def others(teacher: Path, work: Path, words: Iterable[str]) -> dict[str, Path]:
    """Folders of models that the student is measured against beside its teacher."""
    found: dict[str, Path] = {}
    whole, tokenizer = albertine.load(teacher), albertine.load_tokenizer(teacher)
    cut = student_of(whole, Student(depth=DEPTH), seed=1)
    for name in words:
        folder = found[name] = work / name
        if not (folder / "config.json").is_file():
            model = cut if name == "cut" else Model(cut.config, cut.heads, seed=1)
            albertine.save(model, tokenizer, folder)
    return found


def speed(teacher: Path, student: Path, rounds: int) -> dict[str, Any]:
    """Milliseconds of both, in turn, for what a classifier of them reads: the states of all depths."""
    models = {"teacher": albertine.load(teacher), "student": albertine.load(student)}
    found = {}
    for name, shape in SHAPES.items():
        given = inputs(name, lengths_of(*shape), models["teacher"].config.vocab_size)
        ways = {
            who: lambda model=model, batch=given.packed: model.encoder(batch, all_depths=True)
            for who, model in models.items()
        }
        with torch.inference_mode():
            measured = compete(ways, rounds, usable_cores())
        ratio = measured.ratios([("student", "teacher")])
        found[name] = {**measured.as_dict(), "tokens": given.tokens, "ratio": ratio}
    return found


def held_out(corpus: Path, models: dict[str, Path]) -> dict[str, Any]:
    """The predictions of each for masked tokens of documents outside the student's training data; and of any
    two layers of the teacher, which a student may begin with."""
    objective = ObjectiveChoice.model_validate({"masking": {"ngram": 1, "whole_word": False}})
    batches = held_out_batches(corpus, objective, sequences=256)
    found = {name: score_batches(albertine.load(folder), batches) for name, folder in models.items()}
    teacher = albertine.load(models["teacher"])
    for depths in combinations(range(teacher.config.num_hidden_layers), DEPTH):
        found[f"depths {depths}"] = score_batches(
            student_of(teacher, Student(depths=depths), seed=1), batches
        )
    return found


def in_markdown(rows: list[dict[str, Any]], speeds: dict[str, Any]) -> str:
    """A row a task; with several seeds the mean and half the width of its 95 % interval."""
    everyone = [name for name in rows[0] if name not in ("task", "seed", "kept")]

    def cell(task: str, name: str) -> str:
        mean, half = interval([100 * row[name] for row in rows if row["task"] == task])
        return f"{mean:.1f}" if half != half else f"{mean:.1f} ± {half:.1f}"

    tasks = list(dict.fromkeys(row["task"] for row in rows))
    lines = [
        [task, CHOSEN[task].metric, *(cell(task, name) for name in everyone), cell(task, "kept")]
        for task in tasks
    ]
    text = table(["task", "metric", *everyone, "kept, %"], lines)
    notes = [f"\n- {task}: {CHOSEN[task].note}." for task in tasks if CHOSEN[task].note]
    for name, measured in speeds.items():
        each = ", ".join(f"{who} {run['median_ms']:.1f} ms" for who, run in measured["runs"].items())
        busy = "" if measured["quiet"] else "; the machine was busy with other programs, so no ratio"
        ratio = "".join(f", {x:.2f} times as fast" for x in measured["ratio"].values())
        notes.append(f"\n- {name}: {each}{ratio}{busy}.")
    return text + "".join(notes) + "\n"


def parsed(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("language", choices=("en", "zh"))
    parser.add_argument("student", type=Path, help="folder of the student's model or run")
    parser.add_argument("--teacher", help="default: the released model of the language")
    parser.add_argument("--shared", type=Path, default=Path("../shared/data"), help="folder of the data sets")
    parser.add_argument("--corpus", type=Path, help="to judge both on its held-out documents")
    parser.add_argument(
        "--tasks", nargs="+", choices=tuple(CHOSEN), help="default: those that read all depths"
    )
    parser.add_argument("--beside", nargs="*", choices=("cut", "untrained"), default=["cut"])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=30, help="of the measurement of speed")
    parser.add_argument("--work", type=Path, help="default: runs/distilled-LANGUAGE")
    parser.add_argument("--save", action="store_true", help="write the result under benchmarks/results")
    return parser.parse_args(arguments)


def main(words: list[str] | None = None) -> None:
    options = parsed(words)
    teacher = model_folder(options.teacher or f"albertine-mini-{options.language}")
    student = model_folder(options.student)
    work = options.work or Path("runs") / f"distilled-{options.language}"
    tasks = options.tasks or [name for name, task in WHOLE.items() if task.language == options.language]
    who = {"teacher": teacher, "student": student, **others(teacher, work, options.beside)}
    torch.set_num_threads(1)
    rows = contest(options.language, who, tasks, options.seeds, Files(options.shared, work / "data"), work)
    speeds = speed(teacher, student, options.rounds)
    text = in_markdown(rows, speeds)
    print(text)
    if options.save:
        record: dict[str, Any] = {
            "machine": describe(),
            "depths": DEPTH,
            "steps": {task: STEPS[task] for task in tasks},
            "runs": rows,
            "speed": speeds,
        }
        if options.corpus is not None:
            record["held_out"] = held_out(options.corpus, {"teacher": teacher, "student": student})
        path = save_result(f"distilled-{options.language}", record)
        path.with_suffix(".md").write_text(text, encoding="utf-8")
        print(f"written: {path}")


if __name__ == "__main__":
    main()
