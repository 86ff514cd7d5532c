"""Descriptions of data sets: those known by name, from `datasets/known.yaml`, and YAML files of users."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import Field, field_validator

from albertine.core.settings import Settings, read_yaml, resolve
from albertine.errors import SettingsError

Split = Literal["train", "dev", "test"]
SPLITS: tuple[Split, ...] = get_args(Split)
Rules = Literal["squad", "cmrc", "dureader", "mlqa"]
LabelIs = Literal["place", "place_from_1", "text"]
"""How a label names the right option: by its number from 0 or 1 or its letter, or by its text."""
Column = Annotated[str, Field(coerce_numbers_to_str=True)]
"""A column by its name, or by its number where a table has no names."""
PARTS = ("few_all", "0", "1", "2", "3", "4")


class Columns(Settings):
    """The names of the columns; None: the table has no such column."""

    text: Column = "text"
    pair: Column | None = None
    label: Column | None = "label"
    id: Column = "id"
    options: Column = "options"
    negative: Column | None = None
    header: bool | tuple[Column, ...] = Field(
        True, description="whether CSV and TSV begin with a line of names; or the names, where they do not"
    )

    @field_validator("header", mode="before")
    @classmethod
    def _line_or_names(cls, value: Any) -> Any:
        if not isinstance(value, bool | list | tuple):
            raise ValueError("wanted is true, false, or a list of names")
        return value


class Dataset(Settings):
    """A data set."""

    kind: str = "single"
    files: dict[Split, tuple[Path | str, ...]] = Field(
        description="names, of files in the set's folder, or paths"
    )
    reader: str | None = Field(None, description="of files of a form of their own; default: by their ending")
    columns: Columns = Columns()
    test_columns: Columns | None = Field(None, description="of the test file, where they differ")
    metrics: tuple[str, ...] = Field((), description="the first picks the best model")
    labels: tuple[Column, ...] = Field(
        (), description="in the order of their numbers; default: those of the training file, sorted"
    )
    left_out: tuple[Column, ...] = Field((), description="labels of rows that the data set's authors drop")
    separator: str = Field(",", min_length=1, description="between the classes of one row")
    scores: tuple[float, float] | dict[str, float] | None = Field(
        None, description="for similarity: the lowest and the highest score, or the score of every class"
    )
    label_is: LabelIs | None = Field(None, description="of choice: as task.label_is")
    rules: Rules = Field("squad", description="whose script scores answers")
    no_answer: bool = Field(False, description="passages may not answer")
    encoding: str = "utf-8"
    quotes: bool = Field(True, description="take fields of TSV out of their quotes")
    ragged: bool = Field(False, description="pass over rows of another number of fields")
    archive: str | None = Field(None, description="a tar that may hold the files")
    layout: Literal["keywords", "marked"] | None = Field(None, description="of CSL and of CLUEWSC")

    @field_validator("files", mode="before")
    @classmethod
    def _by_split(cls, value: Any) -> Any:
        expected = "wanted are files by split, such as {train: train.csv, dev: dev.csv}"
        if not isinstance(value, dict) or not value:
            raise ValueError(expected)
        for split, names in value.items():
            if split not in SPLITS or not isinstance(names, str | Path | list | tuple):
                raise ValueError(f"{expected}, not {split}: {names}")
        return {split: (one,) if isinstance(one, str | Path) else one for split, one in value.items()}

    @field_validator("metrics", "labels", "left_out", mode="before")
    @classmethod
    def _listed(cls, value: Any) -> Any:
        if not isinstance(value, list | tuple):
            raise ValueError(f"wanted is a list, such as [{value}]")
        if any(isinstance(one, bool) for one in value):
            raise ValueError("yes, no, true and false are written in quotes")
        return value

    @field_validator("scores", mode="before")
    @classmethod
    def _scale(cls, value: Any) -> Any:
        match value:
            case None:
                return None
            case [int() | float() as lowest, int() | float() as highest] if lowest < highest:
                return value
            case dict() if value and not any(isinstance(name, bool) for name in value):
                return {str(name).lower(): score for name, score in value.items()}
        raise ValueError(
            "wanted are the lowest and the highest score, [0, 5], or the score of every class, "
            "{unlike: 0, like: 1}"
        )

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds that a task on it can have, its own first."""
        similarity: tuple[str, ...] = ("similarity",) if self.scores is not None else ()
        return (self.kind, *similarity, *(("reading",) if self.kind == "answers" else ()))

    def columns_of(self, split: str) -> Columns:
        return self.test_columns if split == "test" and self.test_columns else self.columns


@cache
def known() -> Mapping[str, Mapping[str, Any]]:
    """The data sets known by name, unchecked."""
    found: dict[str, Mapping[str, Any]] = {}
    for name, entry in read_yaml(Path(__file__).with_name("datasets") / "known.yaml").items():
        if not name.startswith("."):
            parts = PARTS if "{part}" in str(entry["files"]) else PARTS[:1]
            for part in parts:
                files = {split: _part(one, part) for split, one in entry["files"].items()}
                found[name if part == PARTS[0] else f"{name}-{part}"] = {**entry, "files": files}
    return found


def _part(name: Any, part: str) -> Any:
    return name.replace("{part}", part) if isinstance(name, str) else name


def listed(kind: str | None = None) -> list[str]:
    """The names of all data sets, or of those with tasks of a kind; without numbered parts."""
    names = [name for name in known() if not re.search(r"-\d$", name)]
    return names if kind is None else [name for name in names if kind in named(name).kinds]


@cache
def named(name: str) -> Dataset:
    """A data set by its name; for an unknown one a SettingsError suggests the nearest."""
    if name in known():
        return Dataset.model_validate(known()[name])
    near = difflib.get_close_matches(name, known(), n=1)
    hint = f"Did you mean `{near[0]}`?" if near else f"Known: {', '.join(listed())}."
    raise SettingsError(
        f"there is no data set `{name}`", remedy=f"{hint} For own files leave it out, or name a YAML file"
    )


def described(dataset: str | Path) -> Dataset:
    """A data set by its name, or by the YAML file that describes it.

    Raises:
        SettingsError: there is no such data set, or the file does not describe one.
    """
    return (
        named(dataset)
        if isinstance(dataset, str)
        else resolve(Dataset, read_yaml(dataset, "data set"), dataset)
    )
