"""CSL, CLUEWSC and the nine tasks of FewCLUE: files whose rows hold more than texts, and splits by number.

FewCLUE gives every task five small training sets, each with its own dev set, and the union of the five. A
data set `fewclue-TASK` is the union, `fewclue-TASK-K` split K from 0 to 4; the test set is the public one,
with labels. The few-shot score is the mean over the five splits. Files: `FOLDER/TASK/train_0.json` and so
on, or the tar of them all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from albertine.errors import DataError
from albertine.tasks.datasets.classify import IFLYTEK, YES_NO, Columns, Dataset
from albertine.tasks.readers.table import Row

ARCHIVE = "fewclue.tar"
PARTS = ("few_all", "0", "1", "2", "3", "4")


def few_shot(task: str) -> Iterator[tuple[str, dict[str, str]]]:
    """The names of a task's data sets, each with the files of its splits."""
    for part in PARTS:
        name = f"fewclue-{task}" if part == PARTS[0] else f"fewclue-{task}-{part}"
        files = {"train": f"{task}/train_{part}.json", "dev": f"{task}/dev_{part}.json"}
        yield name, files | {"test": f"{task}/test_public.json"}


def keywords(row: Row) -> Row:
    """CSL's row with its keywords as one text, as the baselines of CLUE join them: by spaces."""
    words = row.get("keyword")
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise DataError("`keyword` is not a list of words", where=row.where)
    return Row({**row.fields, "keyword": " ".join(words)}, row.where)


def marked(row: Row) -> Row:
    """CLUEWSC's row with its two spans marked in the text, as the baselines of CLUE do: the noun between
    underscores, the pronoun in square brackets; the text stands alone, without a pair.

    Raises:
        DataError: a span is not in the text where the row says.
    """
    text, target = row.text("text"), row.get("target")
    noun, pronoun = (_span(row, text, target, number) for number in (1, 2))
    for (begin, end), (left, right) in sorted([(noun, ("_", "_")), (pronoun, ("[", "]"))], reverse=True):
        text = text[:begin] + left + text[begin:end] + right + text[end:]
    return Row({**row.fields, "text": text}, row.where)


def _span(row: Row, text: str, target: Any, number: int) -> tuple[int, int]:
    tree = target if isinstance(target, dict) else {}
    words, begin = tree.get(f"span{number}_text"), tree.get(f"span{number}_index")
    if not isinstance(words, str) or not isinstance(begin, int):
        raise DataError(f"`target` lacks the words or the place of span {number}", where=row.where)
    if text[begin : begin + len(words)] != words:
        raise DataError(f"`{words}` does not stand at character {begin} of the text", where=row.where)
    return begin, begin + len(words)


_FILES = {"train": "train.json", "dev": "dev.json", "test": "test.json"}
_CSL = Dataset(
    _FILES,
    Columns("keyword", "abst", name="id"),
    {"test": Columns("keyword", "abst", None, "id")},
    labels=YES_NO,
    laid_out=keywords,
)
_WSC = Dataset(
    _FILES,
    Columns("text", name="idx"),
    {"test": Columns("text", label=None, name="id")},
    labels=("false", "true"),
    laid_out=marked,
)
_PAIR = Columns("sentence1", "sentence2", name="id")
_ONE = Columns(name="id")
FEW_SHOT: Mapping[str, Dataset] = {
    "tnews": Dataset({}, _ONE),
    "csl": _CSL,
    "csldcp": Dataset({}, Columns("content", name="id")),
    "cluewsc": _WSC,
    "ocnli": Dataset({}, _PAIR, labels=("contradiction", "entailment", "neutral"), left_out=frozenset({"-"})),
    "bustm": Dataset({}, _PAIR, labels=YES_NO),
    "eprstmt": Dataset({}, _ONE, labels=("Negative", "Positive")),
    "iflytek": Dataset({}, _ONE, labels=IFLYTEK),
}
"""What the files of FewCLUE hold; ChID, a multiple choice, stands with its kind."""

CLUE: dict[str, Dataset] = {"csl": _CSL, "cluewsc": _WSC} | {
    name: replace(held, files=files, special={}, archive=ARCHIVE)
    for task, held in FEW_SHOT.items()
    for name, files in few_shot(task)
}
