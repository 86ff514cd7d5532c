"""The tasks a small pretrained encoder is judged by: their files, lengths and rates, fixed for everyone.

The rate is what `albertine finetune` takes by itself for the optimizer and a hidden size of 256, for
everyone.
"""

from __future__ import annotations

import csv
import lzma
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PATHS = ("folder", "train", "dev")


@dataclass(frozen=True)
class Task:
    """A task and how everyone is tuned for it.

    Attributes:
        language: "en" or "zh". metric: what is reported of it.
        task: as in the settings of a fine-tuning run; paths are below the folder of the data sets.
        rate, batch: of the optimizer, with linear decay and a tenth of warm-up.
        steps: of training, for everyone: minutes of one core, tens of them for answers in passages.
        note: what a reader of the figure must know.
    """

    language: str
    metric: str
    task: Mapping[str, Any]
    rate: float = 5e-4
    batch: int = 32
    optimizer: str = "adamw"
    steps: int = 1000
    note: str = ""


QUESTIONS: Mapping[str, Any] = {"rate": 0.01, "batch": 48, "optimizer": "muon", "steps": 1500}
"""Of answers in passages: to compare a question with them is learned by large steps, in short windows."""

SST = {"dataset": "sst-2", "folder": "glue/SST-2", "max_length": 64}
TNEWS = {"dataset": "tnews", "folder": "tnews", "max_length": 64}
FEW = "learned from so many examples, the same for everyone, drawn from the training file"

TASKS: Mapping[str, Task] = {
    "squad": Task(
        "en",
        "squad_f1",
        {
            "kind": "answers",
            "train": [
                "squad1.1/train_subset-v1.1.json.xz",
                "squadshifts/amazon_reviews_v1.0.json.xz",
                "squadshifts/reddit_v1.0.json.xz",
            ],
            "dev": "squad1.1/dev-v1.1.json.xz",
            "max_length": 128,
            "answer": {"stride": 40, "question": 32, "blank": 0.02},
        },
        **QUESTIONS,
        note="trained on 11,877 of SQuAD's questions and 19,688 of SQuADShifts on reviews and Reddit, as its "
        "own training file is not at hand; whole dev set",
    ),
    "sst-2": Task("en", "accuracy", SST, steps=1500),
    "sst-2-500": Task("en", "accuracy", {**SST, "examples": 500}, steps=300, note=FEW),
    "sts-b": Task(
        "en",
        "spearman",
        {
            "kind": "similarity",
            "dataset": "sts-b",
            "folder": "glue/STS-B",
            "max_length": 64,
            "similarity": {"loss": "cosine", "pooling": "whitened"},
        },
        batch=16,
        steps=600,
        note="cosine of two whitened means of the first depth; not a cross-encoder",
    ),
    "sick": Task(
        "en",
        "accuracy",
        {
            "train": "sick/SICK_train.txt.xz",
            "dev": "sick/SICK_test_annotated.txt.xz",
            "text": "sentence_A",
            "pair": "sentence_B",
            "label": "entailment_judgment",
            "max_length": 64,
            "pooling": "compared",
        },
        steps=800,
        note="entailment, judged by the 4,927 test rows, the two texts compared (task.pooling); always "
        "NEUTRAL is right in 56.7 %",
    ),
    "cmrc2018": Task(
        "zh",
        "cmrc_f1",
        {
            "kind": "answers",
            "train": [
                "cmrc2018/train.json.xz",
                "cmrc2018/trial.json.xz",
                "drcd/DRCD_dev.json.xz",
                "dureader_robust/dev.json.xz",
            ],
            "dev": "cmrc2018/dev.json.xz",
            "max_length": 128,
            "answer": {"rules": "cmrc", "stride": 40, "question": 32, "blank": 0.02, "longest": 50},
        },
        **QUESTIONS,
        note="trained on CMRC's train and trial files and the dev files of DRCD and DuReader-robust, 16,085 "
        "questions, none on a passage of CMRC's dev file, which is judged whole",
    ),
    "tnews": Task("zh", "accuracy", TNEWS, steps=2000),
    "tnews-1000": Task("zh", "accuracy", {**TNEWS, "examples": 1000}, steps=500, note=FEW),
    "lcqmc": Task(
        "zh",
        "accuracy",
        {
            "train": ["lcqmc"],
            "dev": "lcqmc",
            "text": "one",
            "pair": "two",
            "max_length": 64,
            "pooling": "compared",
        },
        note="the two texts compared (task.pooling); its training file is not at hand: tuned on the rows of "
        "the dev file before the last 2,000 that share no text with these, judged by these",
    ),
    "chnsenticorp": Task(
        "zh",
        "accuracy",
        {"dataset": "chnsenticorp", "folder": "chnsenticorp", "max_length": 192},
        steps=600,
        note="335 of the 1,200 dev texts also stand in train, as released",
    ),
}

JUDGED = 2000
"""Rows at the end of LCQMC's dev file that are held out."""


@dataclass
class Files:
    """The folder of the data sets, and one to write into what has to be made of them."""

    shared: Path
    made: Path
    _parted: tuple[Path, Path] | None = field(default=None, init=False)

    def task(self, task: Task, max_length: int) -> dict[str, Any]:
        """`task` of the settings, its files where they lie, its texts no longer than the models read."""
        tree = {**task.task, "max_length": min(task.task["max_length"], max_length)}
        if "answer" in tree:
            settings, length = tree["answer"], tree["max_length"]
            fitting = {"stride": min(settings["stride"], length // 2)}
            tree["answer"] = settings | fitting | {"question": min(settings["question"], length // 4)}
        if tree.get("dev") == "lcqmc":
            train, dev = self._parted = self._parted or part_pairs(self.shared / "lcqmc", self.made)
            return {**tree, "train": [train], "dev": dev}
        for name in PATHS:
            if (value := tree.get(name)) is not None:
                several = isinstance(value, list)
                tree[name] = [self.shared / v for v in value] if several else self.shared / value
        return tree


def part_pairs(folder: Path, made: Path, judged: int = JUDGED) -> tuple[Path, Path]:
    """A training and a dev file of `dev.tsv.xz` in `folder` (text, text, class), which share no text."""
    text = lzma.decompress((folder / "dev.tsv.xz").read_bytes()).decode("utf-8-sig")
    rows = [line.rstrip("\r").split("\t") for line in text.split("\n") if line.strip()]
    first, last = rows[:-judged], rows[-judged:]
    held = {text for *texts, _ in last for text in texts}
    files = made / "lcqmc-train.csv", made / "lcqmc-dev.csv"
    for path, kept in zip(files, ([row for row in first if held.isdisjoint(row[:2])], last), strict=True):
        lines = [["one", "two", "label"], *kept]
        if not path.is_file() or _rows(path) != lines:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("w", newline="", encoding="utf-8") as file:
                csv.writer(file).writerows(lines)
    return files


def _rows(path: Path) -> list[list[str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.reader(file))
