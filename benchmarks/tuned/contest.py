"""Everyone is tuned for a task with the same number of steps; each result is written when it is done."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import albertine
from albertine.core.files import replace_durably
from albertine.core.settings import resolve
from albertine.interop.model_names import model_folder
from albertine.model.model import Model
from albertine.tasks.finetune import finetune
from albertine.tasks.run_record import stamp
from albertine.tasks.settings import FinetuneSettings
from albertine.tasks.task_data import once
from albertine.text.sentences import detect_language
from albertine.tokenizers.base import Tokenizer
from albertine.training.progress import Reporter
from benchmarks.tuned.tasks import Files, Task

Result = dict[str, Any]


def untrained(model: Path, folder: Path) -> Path:
    """A folder with the shape and the tokenizer of a model and random weights; written once."""
    found, tokenizer = albertine.load(model), albertine.load_tokenizer(model)
    if not (folder / "config.json").is_file():
        albertine.save(Model(found.config, found.heads, seed=1), tokenizer, folder)
    same = albertine.load_tokenizer(folder).fingerprint == tokenizer.fingerprint
    if not same or albertine.load(folder).config != found.config:
        raise SystemExit(f"{folder} is of another model; name another --work")
    return folder


def language_of(tokenizer: Tokenizer) -> str:
    """Of a vocabulary: Chinese where a fifth of its letters are Han characters."""
    size = tokenizer.vocab_size
    return detect_language("".join(tokenizer.id_to_piece(i) for i in range(0, size, max(1, size // 4000))))


@dataclass
class Contest:
    """Who is tuned, and for how long.

    Attributes:
        contestants: model folders by name.
        work: folder of results, and of runs while they last.
        steps, rate: the budget and the learning rate of every task and seed, in place of each task's own.
    """

    contestants: Mapping[str, Path]
    files: Files
    work: Path
    steps: int | None = None
    rate: float | None = None
    report: Callable[[str], None] = print

    def __post_init__(self) -> None:
        self._read = once()
        lengths = [albertine.load(f).config.max_position_embeddings for f in self.contestants.values()]
        self.max_length = min(lengths)

    def settings(self, name: str, task: Task, who: str, seed: int, steps: int) -> FinetuneSettings:
        return resolve(
            FinetuneSettings,
            {
                "name": f"{name}-{who}-{seed}",
                "output": self.work / "runs",
                "seed": seed,
                "task": self.files.task(task, self.max_length),
                "encoder": {"folder": model_folder(self.contestants[who])},
                "training": {
                    "steps": steps,
                    "batch_size": task.batch,
                    "optimizer": task.optimizer,
                    "learning_rate": self.rate or task.rate,
                },
                # Judged once, at the end: nothing is picked on the dev set.
                "watching": {"evaluations": 1, "log_every": 50, "tensorboard": False, "report": False},
            },
        )

    def kept(self, name: str, task: Task, who: str, seed: int) -> Result | None:
        """The result of a run that is done, of files and settings that have not changed since."""
        settings = self.settings(name, task, who, seed, self.steps or task.steps)
        found = _kept(self._path(settings))
        return found if found is not None and found["stamp"] == stamp(settings) else None

    def _path(self, settings: FinetuneSettings) -> Path:
        return self.work / "results" / f"{settings.name}.json"

    def result(self, name: str, task: Task, who: str, seed: int) -> Result:
        """One run, or what is kept of it where nothing it was made of has changed."""
        steps = self.steps or task.steps
        settings = self.settings(name, task, who, seed, steps)
        path, mark = self._path(settings), stamp(settings)
        if (kept := self.kept(name, task, who, seed)) is not None:
            return kept
        found = finetune(
            settings,
            reporter=Reporter(quiet=True),
            read=lambda choice, tokenizer: replace(self._read(choice, tokenizer), test=None),
        )
        if not found.outcome.done:
            raise SystemExit(found.outcome.exit_code)  # stopped and saved; the same command goes on
        result = {
            "task": name,
            "contestant": who,
            "seed": seed,
            "score": found.scores[task.metric],
            "scores": dict(found.scores),
            "steps": steps,
            "seconds": round(found.outcome.elapsed, 1),
            "notes": list(found.notes),
            "stamp": mark,
        }
        _write(path, result)
        shutil.rmtree(settings.folder)
        self.report(f"{name} {who} seed {seed}: {task.metric} {result['score']:.4f}, {steps} steps")
        return result


def _kept(path: Path) -> Result | None:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _write(path: Path, tree: Result) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_durably(path, (json.dumps(tree, indent=2, ensure_ascii=False) + "\n").encode())
