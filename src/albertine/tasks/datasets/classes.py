"""Texts and pairs with a class, several classes, or a score: data sets by name, and own files."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, cast

from pydantic import Field, field_validator

from albertine.errors import DataError, SettingsError
from albertine.interop.heads import CROSS_ENCODER, Kind
from albertine.interop.huggingface.config import our_flags
from albertine.tasks.classify import Classify, of_folder
from albertine.tasks.dataset_files import SHOWN, Lost, alike, all_rows, check_known
from albertine.tasks.dataset_registry import Column, Dataset, Split
from albertine.tasks.encoded import Encoded
from albertine.tasks.examples import Example
from albertine.tasks.family import Family
from albertine.tasks.kind_settings import OWN_FILES, Examples, PooledTask, Registration, Splits, TaskCard
from albertine.tasks.readers.table import Row
from albertine.tasks.readers.values import kind_of_value, nested, number_of
from albertine.tokenizers.base import Tokenizer

if TYPE_CHECKING:
    from albertine.tasks.http.classify import ClassifyHttp
    from albertine.tasks.padded import PaddedTexts


BROKEN = "(a row of another number of fields)"
LEFT_OUT = "(a label of `left_out`)"
_WHOLE, _NUMBER = re.compile(r"-?\d+\.0+"), re.compile(r"-?\d{1,18}")
_PLACE = re.compile(r":\d+$|, row \d+$|\[\d+\]$")


def keywords(row: Row) -> Row:
    """CSL's row with its keywords as one text, as the baselines of CLUE join them: by spaces."""
    words = row.get("keyword")
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise DataError("`keyword` is not a list of words", where=row.where)
    return row._replace(fields={**row.fields, "keyword": " ".join(words)})


def marked(row: Row) -> Row:
    """CLUEWSC's row with its two spans marked in the text, as in the baselines of CLUE: the noun between
    underscores, the pronoun in square brackets.

    Raises:
        DataError: a span is not in the text at its offset.
    """
    text, target = row.text("text"), row.get("target")
    noun, pronoun = (_span(row, text, target, number) for number in (1, 2))
    for (begin, end), (left, right) in sorted([(noun, ("_", "_")), (pronoun, ("[", "]"))], reverse=True):
        text = text[:begin] + left + text[begin:end] + right + text[end:]
    return row._replace(fields={**row.fields, "text": text})


def _span(row: Row, text: str, target: Any, number: int) -> tuple[int, int]:
    tree = target if isinstance(target, dict) else {}
    words, begin = tree.get(f"span{number}_text"), tree.get(f"span{number}_index")
    if not isinstance(words, str) or not isinstance(begin, int):
        raise DataError(f"`target` lacks the words or the place of span {number}", where=row.where)
    if text[begin : begin + len(words)] != words:
        raise DataError(f"`{words}` does not stand at character {begin} of the text", where=row.where)
    return begin, begin + len(words)


LAYOUTS: Mapping[str, Callable[[Row], Row]] = {"keywords": keywords, "marked": marked}


def read(dataset: Dataset, folder: Path, split: Split) -> Iterator[Example]:
    """The examples of a split of a data set in its folder; a test file may lack the label column.

    Raises:
        DataError: the file or a column is missing, or a value is invalid.
    """
    columns, layout = dataset.columns_of(split), LAYOUTS.get(dataset.layout or "")
    for row in all_rows(dataset, folder, split, broken=True):
        if dataset.ragged and not row.fields:
            yield Example(str(row.number), "", None, BROKEN, row.where)
            continue
        if layout is not None:
            row = layout(row)
        text, pair = row.text(columns.text), None if columns.pair is None else row.text(columns.pair)
        label = _label(dataset, columns.label, row, optional=split == "test")
        yield Example(row.named(columns.id), text, pair, label, row.where)


def kept(examples: Iterable[Example]) -> list[Example]:
    """The examples without those that the authors of the data set drop."""
    return [e for e in examples if e.label not in (BROKEN, LEFT_OUT)]


@dataclass(frozen=True)
class SeveralClasses:
    """A multi-label value of a row, before all rows together decide between a list of names and 0/1 flags.

    Attributes:
        column: its name. names: the classes, read as a list.
        places: for each class whether the row has it, read as a 0 or 1 per class; empty if it cannot be.
        repeats: whether a value occurs twice, as it cannot in a list of classes.
    """

    column: str
    names: frozenset[str]
    places: tuple[bool, ...]
    repeats: bool


def _label(
    dataset: Dataset, column: str | None, row: Row, *, optional: bool
) -> str | float | SeveralClasses | None:
    if column is None or (optional and column not in row.fields):
        return None
    value = row.get(column)
    if dataset.kind == "multi":
        value = nested(value, row.where)
    if is_left_out(dataset, value):
        return LEFT_OUT
    if dataset.kind == "multi" and value is not None:
        return _several(dataset, column, row, value)
    if row.value_or_none(column) is None:
        return None
    if dataset.kind == "single":
        return class_name(row, column, value)
    return number_of(row.text(column).strip(), column, row.where)


def _several(dataset: Dataset, column: str, row: Row, value: Any) -> SeveralClasses:
    if not isinstance(value, list):
        text = class_name(row, column, value, several=True)
        parts: list[Any] = text.split(dataset.separator)
        listed = text[:1] + text[-1:] in ("[]", "{}", "()")
        if listed and (
            "'" in text or '"' in text or any(part.count("[") != part.count("]") for part in parts)
        ):
            raise DataError(
                f"`{column}` is `{text:.60}`, neither a list as JSON or Python writes it nor classes with "
                f"`{dataset.separator}` between them",
                where=row.where,
                remedy='Write a list as ["x", "y"], whole and with quotes',
            )
        if _BITS.fullmatch(text):
            parts = re.split(r"[\s,;|]+", text)
            names = [class_name(row, column, part, several=True) for part in text.split(dataset.separator)]
        else:
            names = parts = [class_name(row, column, part, several=True) for part in parts]
    else:
        numbers = [part for part in value if isinstance(part, float) and not part.is_integer()]
        if numbers and all(isinstance(part, int | float) for part in value):
            raise DataError(
                f"`{column}` is a list with the number {numbers[0]}, neither 0 or 1 nor the name of a class",
                where=row.where,
                remedy="Give 1 for every class that the row has and 0 for the others, or the names of its "
                "classes",
            )
        names = parts = [class_name(row, column, part, several=True) for part in value]
    bits = [_BIT.get(_without_point(part.rstrip(".")).lower()) for part in parts]
    places = tuple(bit for bit in bits if bit is not None)
    whole = len(places) == len(bits) and len(bits) > 1
    found = frozenset(name for name in names if name)
    return SeveralClasses(column, found, places if whole else (), whole and len({*places}) < len(places))


_BIT = {"0": False, "1": True, "false": False, "true": True}
_BITS = re.compile(r"(?:[01](?:\.0*)?|true|false)(?:[\s,;|]+(?:[01](?:\.0*)?|true|false))+", re.IGNORECASE)
"""A 0 or 1 for every class, as text: `0 1 0`, `0,1,0`, `False True`."""


def places_in(splits: Mapping[str, Sequence[Example]], known: int | None = None) -> int:
    """The number of classes if every row has a 0 or 1 per class, as in transformers: [0, 1, 0] is the second
    of three. 0 if rows list their classes by name. All rows are read in the same way.

    Args:
        known: number of classes of the model that is evaluated.

    Raises:
        DataError: only some rows have a 0 or 1 for every class, or rows differ in the number of classes.
    """
    files = [
        [
            (e, e.label)
            for e in part
            if isinstance(e.label, SeveralClasses) and (e.label.names or e.label.places)
        ]
        for part in splits.values()
    ]
    rows = [row for file in files for row in file]
    count = next((found for file in files if (found := _surely_places([label for _, label in file]))), 0)
    if not count:  # every row has two numbers, of two classes, or rows list their classes
        counts = {len(label.places) for _, label in rows}
        count = counts.pop() if len(counts) == 1 else 0
        return count if known in (None, count) else 0
    odd = next((row for row in rows if len(row[1].places) != count), None)
    if odd is None:
        return count
    example, label = odd
    here = f"a 0 or 1 for each of {len(label.places)} classes" if label.places else "a list of classes"
    raise DataError(
        f"`{label.column}` has {here}, and other rows a 0 or 1 for each of {count}",
        where=example.where,
        remedy="Give every row a 0 or 1 for every class, or in every row a list of its classes' names",
    )


def _surely_places(labels: Sequence[SeveralClasses]) -> int:
    """The number of classes if some rows of a file can only be read as a 0 or 1 per class; 0: there are none,
    or they are few among rows that list other names."""
    repeating = [label for label in labels if label.repeats]
    if not repeating:
        return 0
    count = len(repeating[0].places)
    fit = all(len(label.places) == count for label in labels)
    bits = all(label.places or label.names <= _BIT.keys() for label in labels)
    return count if fit or bits or 2 * len(repeating) >= len(labels) else 0


def _with_names(example: Example, names: Sequence[str], count: int) -> Example:
    """The example with the names of its classes.

    Args:
        count: number of classes if rows have a 0 or 1 for each; 0: rows list their classes.
    """
    label = example.label
    if not isinstance(label, SeveralClasses):
        return example
    if not count:
        return replace(example, label=label.names)
    classes = names or tuple(map(str, range(count)))
    return replace(
        example, label=frozenset(name for name, bit in zip(classes, label.places, strict=False) if bit)
    )


def class_name(row: Row, column: str, value: Any, *, several: bool = False) -> str:
    """The name of a class from a value of a row: "true" and "false" for booleans, and whole numbers without a
    decimal point (pandas turns a column of integers with missing values into floats).

    Args:
        several: the row may have several classes.

    Raises:
        DataError: the value is neither text nor a number nor true nor false.
    """
    if not isinstance(value, str | int | float):
        remedy = None
        if several:
            remedy = "Give a row's classes in one list of their names, or of a 0 or 1 for each class"
        elif isinstance(value, list):
            remedy = "Set task.kind=multi, by which a row has any number of classes"
        raise DataError(
            f"`{column}` is {kind_of_value(value)}, not the name of a class", where=row.where, remedy=remedy
        )
    return _as_name(value)


def is_left_out(dataset: Dataset, value: Any) -> bool:
    """Whether a label, or one of several, is among those that the data set drops."""
    if not dataset.left_out or value is None:
        return False
    parts = value if isinstance(value, list) else [value]
    if dataset.kind == "multi" and isinstance(value, str):
        parts = [value, *value.split(dataset.separator)]
    return not {*map(_as_name, parts)}.isdisjoint(map(_without_point, dataset.left_out))


def _as_name(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else _without_point(str(value).strip())


def _without_point(name: str) -> str:
    return name.partition(".")[0] if _WHOLE.fullmatch(name) else name


def _as_in_rows(labels: Sequence[str]) -> tuple[str, ...]:
    """Class names from settings or a model, such as "1.0", in the form of `class_name`."""
    found = tuple(map(_without_point, labels))
    return found if len(set(found)) == len(labels) else tuple(labels)


def label_names(dataset: Dataset, examples: Sequence[Example]) -> tuple[str, ...]:
    """The classes in the order of their numbers: the data set's own, or those of `examples`, sorted (as
    numbers where all are).

    Raises:
        DataError: there is only one class, or one score in all of several examples.
    """
    if dataset.kind == "score":
        scores = {example.label for example in examples}
        if len(scores) == 1 and len(examples) > 1:
            raise DataError(
                f"has only the score {scores.pop():g}",
                where=_PLACE.sub("", examples[0].where),
                remedy="Check task.label: it names the column of the scores",
            )
        return ()
    if dataset.labels:
        return _as_in_rows(dataset.labels)
    seen: set[str] = set()
    for example in examples:
        seen |= class_names(example)
    if len(seen) < (2 if dataset.kind == "single" else 1):
        raise DataError(
            f"has only the class `{min(seen)}`" if seen else "has no class in any row",
            where=_PLACE.sub("", examples[0].where) if examples else None,
            remedy="Check task.label: it names the column of the classes",
        )
    digits = all(map(_NUMBER.fullmatch, seen))
    return tuple(sorted(seen, key=lambda name: (int(name), name))) if digits else tuple(sorted(seen))


def class_names(example: Example) -> frozenset[str]:
    """The classes of an example; none of a score."""
    label = example.label
    if isinstance(label, SeveralClasses):
        return label.names
    if isinstance(label, frozenset):
        return label
    return frozenset({label}) if isinstance(label, str) else frozenset()


class LabelledTask(PooledTask):
    """The base of tasks with classes or scores."""

    drops = True
    read: ClassVar = staticmethod(read)

    def kept(self, split: str, examples: Examples) -> Examples:
        return kept(examples)

    def family(self, splits: dict[str, list[Any]], tokenizer: Tokenizer, known: Family | None) -> Family:
        dataset, kind = self.data, cast(Kind, self.kind)
        labels = label_names(dataset, splits["train"]) if known is None else _as_in_rows(known.labels)
        check_known("class", splits, class_names, labels)
        if "f1" in dataset.metrics and "1" not in labels:
            raise SettingsError(
                "f1 counts the class `1`, and there is none", remedy="macro_f1 counts every class"
            )
        if isinstance(known, Classify):
            return replace(known, kind=kind, labels=labels, metrics=self.metrics, max_length=self.max_length)
        return Classify(kind, labels, self.metrics, self.max_length)

    def lost(self, read: Examples, kept: Examples, encoded: Encoded, split: str) -> Iterable[Lost]:
        left_out = len(read) - len(self.kept(split, read))
        notes = [(left_out, "left out, as its authors do"), *super().lost(read, kept, encoded, split)]
        return [*_class_counts(kept), *notes] if split == "train" else notes


def _class_counts(examples: Examples) -> list[Lost]:
    """The number of classes and of names that look alike, which reveal a wrong column or inconsistent
    names."""
    names = {name for example in examples for name in class_names(example)}
    return [(len(names), "classes"), *alike(names)]


class ScoreTask(LabelledTask):
    """A number."""

    kind: Literal["score"]
    default_metrics = ("pearson", "spearman")
    other_metrics = ("mean_squared_error",)


class ClassTask(LabelledTask):
    """One class."""

    kind: Literal["single"] = "single"
    default_metrics = ("accuracy", "macro_f1")
    other_metrics = ("f1", "matthews")


class ClassesTask(LabelledTask):
    """Any number of classes."""

    kind: Literal["multi"]
    default_metrics = ("micro_f1",)
    other_metrics = ("accuracy",)

    separator: str = Field(
        ",",
        min_length=1,
        description="own files: between the classes of one row",
        json_schema_extra=OWN_FILES,
    )
    classes: tuple[Column, ...] = Field(
        (),
        description="own files: names of the classes in the order of their numbers, such as [x, y, z], for "
        "rows that have a 0 or 1 for every class; default: those of the training file, sorted, or their "
        "numbers from 0",
        json_schema_extra=OWN_FILES,
    )

    @field_validator("classes")
    @classmethod
    def _different(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        if twice := [name for name, count in Counter(names).items() if count > 1 or not name.strip()]:
            raise ValueError(f"has the name `{twice[0]}` twice or a name without a letter")
        return names

    @property
    def data(self) -> Dataset:
        found = super().data
        return found.model_copy(update={"labels": self.classes}) if self.classes else found

    def decided(self, splits: Splits, known: Family | None) -> tuple[Self, Splits]:
        """Decide from all rows whether they list their classes or have a 0 or 1 for each.

        Raises:
            DataError: as `places_in`; or the number of classes is not that of the names.
        """
        names = _as_in_rows(known.labels if known is not None else self.data.labels)
        count = places_in(splits, len(known.labels) if known is not None else None)
        if count and names and len(names) != count:
            every = (e for part in splits.values() for e in part if isinstance(e.label, SeveralClasses))
            where = next(e.where for e in every if e.label.places)
            raise DataError(
                f"has a 0 or 1 for each of {count} classes, and there are names of {len(names)}: "
                f"{', '.join(names[:SHOWN])}",
                where=where,
                remedy="Give rows of the same classes as the model's"
                if known is not None
                else "Name as many in task.classes",
            )
        read = {name: [_with_names(e, names, count) for e in part] for name, part in splits.items()}
        if not count or names:
            return self, read
        return self.model_copy(update={"classes": tuple(map(str, range(count)))}), read

    def lost(self, read: Examples, kept: Examples, encoded: Encoded, split: str) -> Iterable[Lost]:
        counts = [*super().lost(read, kept, encoded, split)]
        if split == "train" and self.classes == tuple(map(str, range(len(self.classes)))) != ():
            note = "classes by a 0 or 1 for each, numbered from 0 (task.classes names them)"
            counts[0] = (len(self.classes), note)
        return counts

    def kept(self, split: str, examples: Examples) -> Examples:
        """An empty cell means no class; a test file with only empty cells has no labels."""
        found = super().kept(split, examples)
        if split != "test" or any(example.label for example in found):
            return found
        return [replace(example, label=None) for example in found]


def http_task() -> type[ClassifyHttp]:
    """The HTTP interface, imported by the server alone."""
    from albertine.tasks.http.classify import ClassifyHttp

    return ClassifyHttp


def usage_call(config: Mapping[str, Any]) -> str:
    """The `Predictor` call shown in a model card: with a pair of texts for models tuned with pairs."""
    flags = our_flags(config)
    pairs = flags.get("pairs") is True or flags.get("pooling") == "compared"
    pairs = pairs or not config.keys().isdisjoint(CROSS_ENCODER)
    return 'classify([("a text", "another")])' if pairs else 'classify("a text")'


def padded_task() -> type[PaddedTexts]:
    """The call with padded batches, which imports torch."""
    from albertine.tasks.padded import PaddedTexts

    return PaddedTexts


CARD = TaskCard("text-classification", usage_call)
KINDS = (ClassTask, ClassesTask, ScoreTask)
FAMILY = Registration("classify", "classify texts", of_folder, KINDS, http_task, CARD, padded_task)
