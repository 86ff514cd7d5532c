"""Making model input of SQuAD and RACE: seconds and memory against the way of transformers' example scripts.

    python -m benchmarks.encoding --shared ../shared/data --save

Every variant is a process of its own. The peer does what `run_qa.py` (windows of 384, stride 128, padded to
the full length, which is its default) and `run_swag.py` (four rows a question of 512 tokens, not padded) do:
`datasets.map` in batches with the fast tokenizer of the same vocabulary. Reading the files is outside the
clock for both, and memory is what comes on top of it.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any

from albertine.bench.machine import describe
from benchmarks.keep import keep

TOKENIZER = "tokenizers/albert-en-30k"
SQUAD, RACE = 384, 512
FILES = ("train_subset-v1.1.json", "dev-v1.1.json")


def peak() -> float:
    """Largest resident size so far, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def questions(shared: Path) -> list[Any]:
    from albertine.tasks.datasets.answer import squad_file
    from albertine.tasks.readers.files import find

    return [q for name in FILES for q in squad_file(find(shared / "squad1.1", name))]


def choices(shared: Path) -> list[Any]:
    from albertine.tasks.dataset_registry import named
    from albertine.tasks.datasets.multiple_choice import read

    return list(read(named("race"), shared / "race", "train"))


def our_squad(examples: list[Any], shared: Path) -> int:
    from albertine.inference.windows import WindowSettings
    from albertine.tasks.answer import encode
    from albertine.tokenizers.load import load_tokenizer

    return len(encode(examples, load_tokenizer(shared / TOKENIZER), WindowSettings(SQUAD)).ids)


def our_race(examples: list[Any], shared: Path) -> int:
    from albertine.tasks.multiple_choice import encode
    from albertine.tokenizers.load import load_tokenizer

    return len(encode(examples, load_tokenizer(shared / TOKENIZER), RACE).ids)


def their_squad(examples: list[Any], shared: Path) -> int:
    tokenizer = fast(shared)
    rows = {
        "question": [e.question for e in examples],
        "context": [e.passage for e in examples],
        "text": [e.answers[0][0] for e in examples],
        "start": [e.answers[0][1] for e in examples],
    }

    def features(batch: dict[str, list[Any]]) -> dict[str, Any]:
        found = tokenizer(
            [q.lstrip() for q in batch["question"]],
            batch["context"],
            truncation="only_second",
            max_length=SQUAD,
            stride=128,
            return_overflowing_tokens=True,
            return_offsets_mapping=True,
            padding="max_length",
        )
        owners, places = found.pop("overflow_to_sample_mapping"), found.pop("offset_mapping")
        found["start_positions"], found["end_positions"] = [], []
        for i, owner in enumerate(owners):
            begin = batch["start"][owner]
            end, sides = begin + len(batch["text"][owner]), found.sequence_ids(i)
            first, last = sides.index(1), len(sides) - 1 - sides[::-1].index(1)
            inside = places[i][first][0] <= begin and places[i][last][1] >= end
            hit = [t for t in range(first, last + 1) if places[i][t][0] < end and places[i][t][1] > begin]
            found["start_positions"].append(hit[0] if inside and hit else 0)
            found["end_positions"].append(hit[-1] if inside and hit else 0)
        return dict(found)

    return mapped(rows, features)


def their_race(examples: list[Any], shared: Path) -> int:
    tokenizer = fast(shared)
    rows = {
        "passage": [e.passage for e in examples],
        "question": [e.question for e in examples],
        "options": [list(e.options) for e in examples],
        "label": [e.label for e in examples],
    }

    def features(batch: dict[str, list[Any]]) -> dict[str, Any]:
        firsts = [[passage] * 4 for passage in batch["passage"]]
        seconds = [
            [f"{question} {option}" for option in options]
            for question, options in zip(batch["question"], batch["options"], strict=True)
        ]
        found = tokenizer(list(chain(*firsts)), list(chain(*seconds)), truncation=True, max_length=RACE)
        return {name: [v[i : i + 4] for i in range(0, len(v), 4)] for name, v in found.items()}

    return 4 * mapped(rows, features)


def fast(shared: Path) -> Any:
    from transformers import AlbertTokenizer

    return AlbertTokenizer.from_pretrained(shared / TOKENIZER)


def mapped(rows: dict[str, list[Any]], features: Callable[..., Any]) -> int:
    """Rows of the features, kept in a file as the scripts keep them."""
    from datasets import Dataset

    with tempfile.TemporaryDirectory() as folder:
        data = Dataset.from_dict(rows)
        made = data.map(
            features,
            batched=True,
            remove_columns=list(rows),
            cache_file_name=str(Path(folder) / "made.arrow"),
        )
        return len(made)


VARIANTS: dict[str, tuple[Callable[[Path], list[Any]], Callable[[list[Any], Path], int]]] = {
    "squad, albertine": (questions, our_squad),
    "squad, transformers": (questions, their_squad),
    "race, albertine": (choices, our_race),
    "race, transformers": (choices, their_race),
}


def measure(name: str, shared: Path, count: int | None) -> dict[str, float]:
    read, encode = VARIANTS[name]
    examples = read(shared)[:count]
    imported(name)
    before, begin = peak(), time.perf_counter()
    rows = encode(examples, shared)
    seconds = time.perf_counter() - begin
    return {"examples": len(examples), "rows": rows, "seconds": seconds, "megabytes": peak() - before}


def imported(name: str) -> None:
    """What each side computes with, before its clock begins."""
    if name.endswith("transformers"):
        import datasets  # noqa: F401
        from transformers import AlbertTokenizer  # noqa: F401
    else:
        import albertine.tokenizers.load  # noqa: F401


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shared", type=Path, default=Path("../shared/data"), help="folder of the data sets")
    parser.add_argument("--examples", type=int, help="of each data set; default all")
    parser.add_argument("--variant", choices=tuple(VARIANTS), help="measure this one alone, as JSON")
    parser.add_argument("--save", action="store_true", help="write the result under benchmarks/results")
    arguments = parser.parse_args()
    if arguments.variant:
        print(json.dumps(measure(arguments.variant, arguments.shared, arguments.examples)))
        return
    found = {}
    for name in VARIANTS:
        words = ["--variant", name, "--shared", str(arguments.shared)]
        if arguments.examples:
            words += ["--examples", str(arguments.examples)]
        command = [sys.executable, "-m", "benchmarks.encoding", *words]
        printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        found[name] = json.loads(printed.splitlines()[-1])
        print(name, {key: round(value, 1) for key, value in found[name].items()}, flush=True)
    if arguments.save:
        keep("encoding", {"machine": describe(), "runs": found})


if __name__ == "__main__":
    main()
