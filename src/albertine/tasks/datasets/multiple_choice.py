"""Multiple-choice data sets: RACE, DREAM, C3, ChID, and own JSON lines.

RACE is a folder or a tar with one JSON file per passage; DREAM and C3 are one JSON list of [passage lines,
questions, id]; ChID is JSON lines, in FewCLUE with one gap `#idiom#` in a passage, in CLUE with numbered gaps
in several passages and the answers in a separate file.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, cast

from pydantic import Field

from albertine.errors import DataError
from albertine.inference.option_rows import IDIOM
from albertine.tasks.answer import question_fields
from albertine.tasks.dataset_files import Lost, blank, files_of, rows_in
from albertine.tasks.dataset_registry import SPLITS, Column, Columns, Dataset, LabelIs, Split
from albertine.tasks.encoded import Encoded
from albertine.tasks.family import Family, Fields
from albertine.tasks.kind_settings import OWN_FILES, Examples, PooledTask, Registration, Splits, TaskCard
from albertine.tasks.multiple_choice import Choice, Choose, checked_options, of_folder
from albertine.tasks.readers.files import (
    LIMITS,
    PACKED,
    File,
    NotThere,
    find,
    parsed,
    unpacked,
    whole,
    whole_json,
)
from albertine.tasks.readers.table import Row, first_fields, rows_of
from albertine.tasks.readers.values import kind_of_value, nested, text_in, whole_number
from albertine.text.streams import tar_members
from albertine.tokenizers.base import Tokenizer

if TYPE_CHECKING:
    from albertine.tasks.http.multiple_choice import ChooseHttp
    from albertine.tasks.padded import PaddedOptions

LETTERS = string.ascii_uppercase
RACE_ARCHIVE = "RACE.tar"


def _race(dataset: Dataset, folder: Path, split: Split) -> Iterator[Choice]:
    """The questions of RACE, whose `files` are folders with one file per passage."""
    for name, content in _race_files(folder, [str(level) for level in dataset.files[split]]):
        yield from _passage(parsed(content, name, dataset.encoding), name)


def _race_files(folder: Path, levels: Sequence[str]) -> Iterator[tuple[str, bytes]]:
    for root in (folder / "RACE", folder):
        if (root / levels[0]).parent.is_dir():
            for level in levels:
                for path in sorted((root / level).glob("*.txt"), key=lambda p: (len(p.name), p.name)):
                    with unpacked(path) as stream:
                        yield str(path), whole(stream)
            return
    archive = find(folder, RACE_ARCHIVE)
    wanted = tuple(f"RACE/{level}/" for level in levels)
    with unpacked(archive) as stream:
        for member in tar_members(stream, LIMITS):
            inside = member.name.rpartition(":")[2]
            if inside.startswith(wanted) and inside.endswith(".txt"):
                yield member.name, whole(member)


def _race_folder(folder: Path, encoding: str, prefix: str) -> Iterator[Choice]:
    """The questions of all passages in a folder and its subfolders, such as RACE/test or RACE/test/high."""
    for path in sorted(folder.rglob("*.txt"), key=lambda p: (p.parent, len(p.name), p.name)):
        yield from _passage(whole_json(path, encoding, prefix), str(path))


def _passage(tree: Any, where: str) -> Iterator[Choice]:
    try:
        group = "high" if "high" in tree["id"] else "middle"
        answers = tree.get("answers") or [None] * len(tree["questions"])
        for i, (question, options) in enumerate(zip(tree["questions"], tree["options"], strict=True)):
            texts = checked_options(options, where, f"options[{i}]")
            answer = None if answers[i] is None else list(LETTERS[: len(texts)]).index(answers[i])
            passage, text = text_in(tree["article"]), text_in(question)
            yield Choice(f"{tree['id']}-{i}", passage, text, texts, answer, where, group)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DataError(f"is not a RACE passage ({error})", where=where) from error


def dialogues(path: File, encoding: str = "utf-8", prefix: str = "task.") -> Iterator[Choice]:
    """The questions of a list of [lines, questions, id]; a name such as `c3-m-dev.json` contains a group."""
    group = Path(str(path)).name.split("-")[1:2]
    try:
        for lines, questions, name in whole_json(path, encoding, prefix):
            yield from _questions("\n".join(lines), questions, name, str(path), group)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DataError(
            f"is not a list of [lines of a passage, its questions, its name] ({error!r:.80})",
            where=str(path),
            remedy="Choices are such a list, as DREAM and C3 have it, or an object a line with its options",
        ) from error


def _questions(
    passage: str, questions: list[dict[str, Any]], name: str, where: str, group: list[str]
) -> Iterator[Choice]:
    for i, fields in enumerate(questions):
        options, gold = fields["choice"], fields.get("answer")
        texts = checked_options(options, where, f"choice of question {i} of {name}")
        if gold is not None and gold not in options:
            raise DataError(f"question {i} of {name}: `{gold}` is not one of its options", where=where)
        answer = None if gold is None else options.index(gold)
        named = "-".join([*group, name, str(i)])
        yield Choice(named, passage, text_in(fields["question"]), texts, answer, where, "".join(group))


BLANK = re.compile(r"#idiom\d+#")


def idioms(
    path: File, encoding: str = "utf-8", prefix: str = "task.", *, labelled: bool = False
) -> Iterator[Choice]:
    """A question for every blank, `#idiom000123#`, of ChID in CLUE's layout: an object a line with passages,
    `content`, and ten `candidates`. The other blanks of its passage are underscores.

    Args:
        labelled: require the file of the answers, such as `train_answer.json` beside `train.json`.

    Raises:
        NotThere: the file of the answers is missing. DataError: a file is not in that layout, or a blank has
            no answer.
    """
    try:
        file = answers_beside(path)
        answers = whole_json(file, encoding, prefix)
    except NotThere:
        if labelled:
            raise
        file, answers = path, None
    if not isinstance(answers, dict | None):
        raise DataError(
            f"holds {kind_of_value(answers)}, not an object of numbers by blanks", where=str(file)
        )
    for row in rows_of(path, encoding=encoding, prefix=prefix):
        options = checked_options(row.get("candidates"), row.where, "candidates")
        content = row.get("content")
        for text in content if isinstance(content, list) else [content]:
            if not isinstance(text, str):
                raise DataError(f"`content` holds {kind_of_value(text)}, not text", where=row.where)
            for found in BLANK.finditer(text):
                before, after = text[: found.start()], text[found.end() :]
                passage = BLANK.sub("____", before) + IDIOM + BLANK.sub("____", after)
                number = None if answers is None else whole_number(answers.get(found[0]))
                if answers is not None and (number is None or not 0 <= number < len(options)):
                    raise DataError(
                        f"`{found[0]}` has no answer from 0 to {len(options) - 1} in {file}", where=row.where
                    )
                yield Choice(found[0], passage, "", options, number, row.where)


def answers_beside(path: File) -> File:
    """The file of the answers to a file of ChID in CLUE's layout. Raises NotThere."""
    name = PurePosixPath(str(path.name)).name
    while (packed := PurePosixPath(name)).suffix in PACKED[1:]:
        name = packed.stem
    wanted = f"{PurePosixPath(name).stem}_answer.json"
    if isinstance(path, Path):
        return find(path.parent, wanted)
    return replace(path, name=str(PurePosixPath(path.name).with_name(wanted)))


def in_own_form(path: File, columns: Columns | Fields, encoding: str, prefix: str) -> Iterator[Choice] | None:
    """The questions of a folder of RACE, of dialogues, or of ChID in CLUE's layout; None: it is a table."""
    if isinstance(path, Path) and path.is_dir():
        return _race_folder(path, encoding, prefix)
    first = first_fields(path, encoding, prefix)
    if first is None:
        return dialogues(path, encoding, prefix)
    if isinstance(first.get("content"), list) and isinstance(first.get("candidates"), list):
        return idioms(path, encoding, prefix)
    return None


def read(dataset: Dataset, folder: Path, split: Split) -> Iterator[Choice]:
    """The questions of a split of a data set."""
    if dataset.reader == "race":
        yield from _race(dataset, folder, split)
        return
    columns, how = dataset.columns_of(split), (dataset.encoding, "task.")
    for path in files_of(dataset, folder, split):
        if dataset.reader == "idioms":
            yield from idioms(path, *how, labelled=split != "test")
            continue
        is_dialogues = dataset.reader == "dialogues"
        own = dialogues(path, *how) if is_dialogues else in_own_form(path, columns, *how)
        yield from own_choices(rows_in(dataset, path, split), columns) if own is None else own


@dataclass(frozen=True)
class LabelReadings:
    """The label of a row under each possible reading, before all rows together decide for one.

    Attributes:
        column: name of the label column. value: the label. options: those of the row.
        by: number of the option, from 0, under each reading that is possible: "text", the text of an option;
            "place", its number from 0 or its letter from A; "place_from_1", its number from 1 or its letter.
    """

    column: str
    value: str
    options: tuple[str, ...]
    by: Mapping[LabelIs, int]


def own_choices(rows: Iterable[Row], columns: Columns) -> Iterator[Choice]:
    """The questions of a table: text, question, a list of options, and `LabelReadings` of the right one."""
    for row in rows:
        raw = nested(row.get(columns.options), row.where)
        texts = checked_options(raw, row.where, columns.options)
        question = "" if columns.pair is None else row.text(columns.pair)
        answer: Any = None if columns.label is None else _readings(row, columns.label, texts, raw)
        yield Choice(row.named(columns.id), row.text(columns.text), question, texts, answer, row.where)


def _readings(row: Row, label: str, options: tuple[str, ...], raw_options: list[Any]) -> LabelReadings | None:
    value, count = row.value_or_none(label), len(options)
    if value is None:
        return None
    found: dict[LabelIs, int] = {}
    if not isinstance(value, bool):
        # The row's own values, as options may be numbers; in Python 0 == False.
        same = [i for i, option in enumerate(raw_options) if option == value and not isinstance(option, bool)]
        if value in options:
            found["text"] = options.index(value)
        elif same:
            found["text"] = same[0]
        text = str(value).strip().removesuffix(".0")
        letters = dict(zip(LETTERS, range(count), strict=False))
        for name, first in (("place", 0), ("place_from_1", 1)):
            places = {str(i + first): i for i in range(count)} | letters
            if isinstance(value, str | int | float) and text in places:
                found[cast(LabelIs, name)] = places[text]
    if not found:
        raise DataError(f"`{label}` is `{value!s:.60}`, {_none_of(count)}", where=row.where)
    return LabelReadings(label, str(value), options, found)


def _none_of(count: int, first: int = 0) -> str:
    last = count - 1
    return (
        f"neither one of the options nor their number from {first} to {last + first} nor their letter from "
        f"A to {LETTERS[min(last, len(LETTERS) - 1)]}"
    )


WORDS: Mapping[LabelIs, str] = {
    "text": "the text of an option",
    "place": "the number of an option from 0, or its letter",
    "place_from_1": "the number of an option from 1, or its letter",
}
SETTINGS = "task.label_is=place, task.label_is=place_from_1 or task.label_is=text"


def read_labels(
    splits: Splits, label_is: LabelIs | None = None, usual: LabelIs | None = None
) -> tuple[LabelIs | None, Splits]:
    """Read the labels of all rows of all files in the same way.

    Args:
        label_is: the reading; None: the one that fits all rows.
        usual: the reading of the evaluated model's training rows, which decides if both fit all rows.

    Returns:
        The reading, None where it makes no difference; and the questions by split, with the numbers of their
        right options as labels.

    Raises:
        DataError: no reading fits all rows; or both do and give different options.
    """
    every = [e for name in SPLITS for e in splits.get(name, ()) if isinstance(e.label, LabelReadings)]
    place: LabelIs = "place_from_1" if usual == "place_from_1" else "place"
    ways: list[LabelIs] = [label_is] if label_is else [place, "text"]
    evidence: dict[LabelIs, str] = {}  # for the remaining reading the first row that excludes the other
    for example in every:
        found = example.label
        left = [way for way in ways if way in found.by]
        for way in ways:
            if left and way not in left:
                evidence[left[0]] = f"{example.where}: `{found.value:.60}`"
        if not left:
            raise _inconsistent_label(example, ways, evidence)
        ways = left
    differs = next((e for e in every if len({e.label.by[way] for way in ways}) > 1), None)
    if differs is not None and usual is not None and usual in ways:
        ways = [usual]
    elif differs is not None:
        found = differs.label
        one, other = (found.options[found.by[way]] for way in ways)
        raise DataError(
            f"`{found.column}` is `{found.value:.60}`, as a place the option `{one:.60}` and as a text "
            f"`{other:.60}`, and no row decides which",
            where=differs.where,
            remedy="Set task.label_is=place or task.label_is=text",
        )
    read = {
        name: [
            replace(e, label=e.label.by[ways[0]]) if isinstance(e.label, LabelReadings) else e for e in part
        ]
        for name, part in splits.items()
    }
    return (ways[0] if len(ways) == 1 and every else label_is or usual), read


def _inconsistent_label(
    example: Choice, ways: Sequence[LabelIs], evidence: Mapping[LabelIs, str]
) -> DataError:
    """The error for a row whose label cannot be read as those before it."""
    found: Any = example.label
    as_others = f", as in other rows ({evidence[ways[0]]})" if ways[0] in evidence else ""
    remedy = f"Write it in one way in all rows; {SETTINGS} sets the way"
    if "place_from_1" in found.by and "text" not in found.by:
        remedy = "If the first option is number 1, set task.label_is=place_from_1"
    why = (
        _none_of(len(found.options), int("place_from_1" in ways))
        if len(ways) > 1
        else f"not {WORDS[ways[0]]}{as_others}"
    )
    return DataError(f"`{found.column}` is `{found.value:.60}`, {why}", where=example.where, remedy=remedy)


class OptionsTask(PooledTask):
    """One of several options."""

    kind: Literal["choice"]
    default_metrics = ("accuracy",)
    readers = ("race", "dialogues", "idioms")
    share_passages = True
    read: ClassVar = staticmethod(read)
    in_own_form: ClassVar = staticmethod(in_own_form)
    own_fields: ClassVar = staticmethod(question_fields)

    options: Column = Field(
        "options", description="own files: field of the list of options", json_schema_extra=OWN_FILES
    )
    label_is: LabelIs | None = Field(
        None,
        description="own files: what task.label holds in all rows: place, the number of the right option "
        "from 0 or its letter from A; place_from_1, its number from 1 or its letter; text, the option "
        "itself. Default: place or text, whichever fits all rows",
        json_schema_extra=OWN_FILES,
    )

    @staticmethod
    def beside(path: File) -> Iterator[File]:
        with suppress(NotThere):
            yield answers_beside(path)

    def input_files(self) -> Iterator[Path]:
        yield from super().input_files()
        if self.dataset is not None:
            yield from self._files_named(RACE_ARCHIVE)
        for name in chain(*self.data.files.values()):
            if isinstance(name, Path):
                yield from sorted(name.rglob("*.txt"))
            else:
                for root in (self.place / "RACE", self.place):
                    yield from sorted((root / name).glob("*.txt"))

    def decided(self, splits: Splits, known: Family | None) -> tuple[Self, Splits]:
        before = known.label_is if isinstance(known, Choose) else None
        label_is, read = read_labels(splits, self.data.label_is, before)
        return self.model_copy(update={"label_is": label_is}), read

    @staticmethod
    def own_row(example: Choice, fields: Fields) -> dict[str, Any]:
        question = {fields.pair or "": example.question, fields.text: example.passage}
        return {**question, fields.options: list(example.options)}

    def family(self, splits: dict[str, list[Any]], tokenizer: Tokenizer, known: Family | None) -> Family:
        return Choose(self.max_length, label_is=self.label_is)

    def lost(self, read: Examples, kept: Examples, encoded: Encoded, split: str) -> Iterable[Lost]:
        return [blank(kept, "passage", "question")]


def http_task() -> type[ChooseHttp]:
    """The HTTP interface, imported by the server alone."""
    from albertine.tasks.http.multiple_choice import ChooseHttp

    return ChooseHttp


def padded_task() -> type[PaddedOptions]:
    """The call with padded batches, which imports torch."""
    from albertine.tasks.padded import PaddedOptions

    return PaddedOptions


CARD = TaskCard("multiple-choice", lambda config: 'choose("a passage", ["one option", "another"])')
FAMILY = Registration(
    "choose", "choose among options", of_folder, (OptionsTask,), http_task, CARD, padded_task
)
