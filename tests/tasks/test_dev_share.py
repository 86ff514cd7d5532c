"""One file to learn from and to be judged by: which of its rows are held out, and where they are used."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from albertine import api
from albertine.errors import CheckpointError, DataError, SettingsError
from albertine.tasks.answer import Question
from albertine.tasks.dataset_files import held_out
from albertine.tasks.examples import Example
from albertine.tasks.families import KINDS, of_its_kind
from albertine.tasks.finetune import FinetuneResult, finetune
from albertine.tasks.multiple_choice import Choice
from albertine.tasks.seeds import over_seeds
from albertine.tasks.settings import FinetuneSettings
from albertine.training.progress import Reporter

Tune = Callable[..., FinetuneSettings]


def example(number: int, text: str) -> Example:
    return Example(str(number), text, None, "a", f"a.csv:{number}")


def test_a_share_of_the_rows_is_held_out_and_equal_texts_stay_together() -> None:
    texts = [f"text {number % 100}" for number in range(300)]
    texts[200:] = [f" TEXT  {number}" for number in range(100)]  # the same, written otherwise
    examples = [example(number, text) for number, text in enumerate(texts)]
    learned, held = held_out(examples, 0.1)
    assert len(held) == 30 and len(learned) == 270
    assert [int(e.name) for e in held] == sorted(int(e.name) for e in held)
    about = [{int(e.name) % 100 for e in part} for part in (learned, held)]
    assert not about[0] & about[1]
    # Neither the position of a row nor its first letters decide where it goes.
    first = sorted({*texts[:100]})[:10]
    assert {e.text for e in held} & {*texts[:100]} not in ({*first}, {*texts[:10]}, {*texts[90:100]})


def test_rows_that_come_later_leave_most_of_the_held_ones() -> None:
    examples = [example(number, f"text {number}") for number in range(1000)]
    before, after = ({e.text for e in held_out(examples[:count], 0.1)[1]} for count in (900, 1000))
    assert len(before) == 90 and len(after) == 100 and len(before & after) > 75


def test_both_shares_are_nonempty() -> None:
    two = [example(0, "a"), example(1, "b")]
    for share in (0.001, 0.999):
        assert [len(part) for part in held_out(two, share)] == [1, 1]
    with pytest.raises(DataError, match=r"a\.csv:1: .* all are about the same one\. Name a dev file"):
        held_out([example(1, "a b"), example(2, " A b")], 0.5)


def test_questions_about_one_passage_stay_together() -> None:
    questions: list[Any] = [Question(str(n), f"who {n}", f"passage {n // 5}", (), "") for n in range(50)]
    learned, held = held_out(questions, 0.3)
    assert len(held) == 15 and not {q.passage for q in learned} & {q.passage for q in held}
    choices: list[Any] = [Choice(str(n), "", f"which {n}", ("a", "b"), 0, "") for n in range(50)]
    assert len(held_out(choices, 0.3)[1]) == 15  # of questions alone, by the questions


OF_KIND: dict[str, dict[str, Any]] = {
    "single": {"text": "T", "label": "fine"},
    "multi": {"text": "T", "label": ["fine"]},
    "score": {"text": "T", "label": 0.5},
    "similarity": {"text": "T", "pair": "b", "label": 0.5},
    "entities": {"text": "T", "label": [["x", 0, 1]]},
    "relations": {"text": "T", "label": [["a", "b", "c"]]},
    "generation": {"text": "T", "label": "b"},
    "reading": {"context": "T", "question": "who", "answers": {"text": ["T"], "answer_start": [0]}},
    "answers": {"context": "T", "question": "who", "answers": {"text": ["T"], "answer_start": [0]}},
    "choice": {"text": "T", "question": "who", "options": ["a", "b"], "label": 1},
}


@pytest.mark.parametrize("kind", OF_KIND)
def test_every_kind_holds_out_texts(kind: str, tmp_path: Path) -> None:
    words = json.dumps(OF_KIND[kind])
    (train := tmp_path / "train.jsonl").write_text(
        "\n".join(words.replace('"T"', f'"T{number // 2}"') for number in range(20))
    )
    pair = {"pair": "pair"} if kind == "similarity" else {}
    task = of_its_kind({"kind": kind, "train": train, "dev_share": 0.2, **pair})
    found = task.splits()
    about = [{getattr(e, "passage", None) or e.text for e in found[name]} for name in ("train", "dev")]
    assert [len(texts) for texts in about] == [8, 2] and not about[0] & about[1]
    assert [len(found[name]) for name in ("train", "dev")] == [16, 4]


def test_every_kind_has_a_test_case() -> None:
    assert set(KINDS) <= set(OF_KIND)


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.fixture
def tuned(tune: Tune) -> tuple[FinetuneSettings, FinetuneResult]:
    settings = tune(task={"dev": None, "dev_share": 0.25}, training={"steps": 20})
    return settings, finetune(settings, reporter=Reporter(quiet=True))


def test_a_run_is_judged_by_rows_it_has_not_learned(
    tuned: tuple[FinetuneSettings, FinetuneResult], tables: dict[str, Path]
) -> None:
    settings, result = tuned
    predictions = rows(result.folder / "predictions-dev.jsonl")
    with tables["train"].open(newline="", encoding="utf-8") as file:
        texts = {str(number): row["review"] for number, row in enumerate(csv.DictReader(file))}
    judged = {texts[str(row["id"])] for row in predictions}
    assert 100 <= len(predictions) < 110 and result.scores["accuracy"] > 0.5
    found = settings.task.splits()
    assert {e.text for e in found["dev"]} == judged and not judged & {e.text for e in found["train"]}
    assert len(found["train"]) == len(texts) - len(predictions)
    assert list(settings.task.splits(judging=True)) == ["dev"]
    assert (
        f"dev: {len(predictions)} examples, {len(predictions)} held out of the training rows" in result.notes
    )


def test_a_run_scores_its_held_out_share_again_everywhere(
    tuned: tuple[FinetuneSettings, FinetuneResult], tables: dict[str, Path], tmp_path: Path
) -> None:
    _, result = tuned
    scores = {name: value for name, value in result.scores.items() if name != "step"}
    assert api.evaluate(result.folder)["dev"] == pytest.approx(scores)
    # A dev file that is named, and own rows, stand in for the share, and no training file is read.
    gone = {"train": str(tmp_path / "gone.csv")}
    other = api.evaluate(result.folder, task={**gone, "dev": str(tables["dev"])})
    assert other["dev"] != pytest.approx(scores)
    own = api.evaluate(result.folder, file=tables["dev"], task={**gone, "text": "review", "label": "verdict"})
    assert own["test"] == pytest.approx(other["dev"])
    with pytest.raises(DataError, match=r"gone\.csv"):
        api.evaluate(result.folder, task=gone)


def test_the_same_command_changes_nothing_and_another_share_is_another_run(
    tuned: tuple[FinetuneSettings, FinetuneResult], tune: Tune
) -> None:
    settings, result = tuned
    again = finetune(settings, reporter=Reporter(quiet=True))
    assert again.scores == result.scores
    task = settings.task.model_copy(update={"dev_share": 0.5})
    with pytest.raises(CheckpointError, match="data"):
        finetune(settings.model_copy(update={"task": task}), reporter=Reporter(quiet=True))


def test_seeds_are_compared_on_the_same_share(tune: Tune) -> None:
    settings = tune(task={"dev": None, "dev_share": 0.25}, training={"steps": 4})
    calls = []

    def run(own: FinetuneSettings, **how: Any) -> FinetuneResult:
        result = finetune(own, reporter=Reporter(quiet=True), **how)
        calls.append([row["id"] for row in rows(result.folder / "predictions-dev.jsonl")])
        return replace(result)

    over_seeds(settings, 2, run=run)
    assert calls[0] == calls[1] and len(calls[0]) >= 100
    with pytest.raises(SettingsError, match=r"task\.dev_share=0\.1"):
        over_seeds(tune(task={"dev": None}), 2)


def test_a_data_set_has_files_of_its_own(tune: Tune, tmp_path: Path) -> None:
    task = {"dataset": "sst-2", "folder": tmp_path, "dev_share": 0.1, "train": None, "dev": None}
    with pytest.raises(SettingsError, match=r"task\.dev_share is for own files"):
        tune(task={**task, "text": "text", "label": "label"})
