"""Settings of a task, and reading, checking and encoding its files.

A kind of task is a subclass of `TaskChoice` with its own settings, default metrics and readers; `families.py`
lists them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
from pydantic import BeforeValidator, Field, ValidationInfo, field_validator, model_validator
from pydantic.fields import FieldInfo

from albertine.core.files import user_path
from albertine.core.randomness import permutation
from albertine.core.settings import Settings
from albertine.errors import DataError, SettingsError
from albertine.interop.heads import Task
from albertine.model.config import EncoderConfig
from albertine.tasks.dataset_files import Data, Lost, as_data, blank, check_labelled, held_out
from albertine.tasks.dataset_registry import SPLITS, Column, Columns, Dataset, Split, described
from albertine.tasks.encoded import Encoded
from albertine.tasks.family import Family, Fields, Tuned
from albertine.tasks.readers.files import ArchiveMember, File, NotThere, find
from albertine.tasks.readers.table import Row
from albertine.tokenizers.base import Tokenizer

if TYPE_CHECKING:
    from albertine.tasks.http.base import HttpTask
    from albertine.tasks.padded import PaddedFamily


Examples = list[Any]
Splits = dict[str, Examples]
OwnForm = Callable[[File, Columns | Fields, str, str], Iterator[Any] | None]
"""`TaskChoice.in_own_form`."""
SHORTEST = 8
"""The least `task.max_length`."""
OWN_FILES: dict[str, Any] = {"own_files": True}
"""`json_schema_extra` of settings that describe own files, and that a named data set does not use."""


def named_or_file(dataset: Any) -> Any:
    """The name of a data set, or the path of the YAML file that describes one."""
    is_file = str(dataset).endswith((".yaml", ".yml"))
    return user_path(dataset) if is_file else dataset


class TaskChoice(Settings):
    """The data of a task: a known data set in its folder, or own files by column names.

    Attributes:
        default_metrics: the first selects the best model; empty if they depend on the settings.
        other_metrics: further ones that are allowed. readers: names of readers of special file formats.
        labelled: every row of a training and a dev file must have a label.
        paired: examples may have a second text or a question.
        drops: rows with labels in `Dataset.left_out` are dropped.
        share_passages: several examples may have the same passage, so that their errors are not independent.
        as_benchmark: on a data set known by name the task is that of its benchmark.
    """

    default_metrics: ClassVar[tuple[str, ...]] = ()
    other_metrics: ClassVar[tuple[str, ...]] = ()
    readers: ClassVar[tuple[str, ...]] = ()
    labelled: ClassVar[bool] = True
    paired: ClassVar[bool] = True
    drops: ClassVar[bool] = False
    share_passages: ClassVar[bool] = False
    as_benchmark: ClassVar[bool] = True
    kind: str = Field(description="kind of task, listed in docs/how-to/fine-tuning.md")
    dataset: Annotated[str | Path | None, BeforeValidator(named_or_file)] = Field(
        None,
        description="for example sst-2 or tnews, or a YAML file that describes one; without it own files",
    )
    folder: Path | None = Field(
        None, description="folder of the data set's files; default: that of the YAML file"
    )
    train: tuple[Path, ...] | None = Field(
        None,
        description="a file (CSV, TSV, JSON, Parquet; CoNLL for entities), or a list of files",
    )
    dev: Path | None = Field(
        None,
        description="a file, by which the best model is selected; beside task.dataset instead of its dev "
        "file",
    )
    dev_share: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="own files: without a dev file, evaluate on this share of the training rows, "
        "such as 0.1, and train on the others; rows with the same text stay together",
        json_schema_extra=OWN_FILES,
    )
    test: Path | Literal[False] | None = Field(
        None,
        description="a file, whose rows need no labels to be predicted; beside task.dataset instead of "
        "its test file, and null (saved as false): none",
    )
    header: bool = Field(
        True,
        description="own files: whether CSV and TSV begin with a line of names; without one, columns are "
        "named by number, as in task.text=1 task.label=2",
        json_schema_extra=OWN_FILES,
    )
    text: Column = Field("text", description="own files: column of the text", json_schema_extra=OWN_FILES)
    pair: Column | None = Field(
        None, description="own files: column of the second text", json_schema_extra=OWN_FILES
    )
    label: Column = Field(
        "label", description="own files: column of the class or score", json_schema_extra=OWN_FILES
    )
    examples: int | None = Field(
        None, ge=1, description="number of training examples, drawn at random; default all"
    )
    encoding: str = Field("utf-8", description="of the files, such as gb18030")
    max_length: int = Field(
        128,
        ge=SHORTEST,
        description="tokens, special ones included; default: 128, or the encoder's positions if fewer",
    )

    @property
    def source(self) -> str:
        """The data set, or the own training files, as text."""
        return str(self.dataset or ", ".join(map(str, self.own("train"))))

    @property
    def place(self) -> Path:
        """The folder of the data set's files; unused with own files."""
        beside = self.dataset.parent if isinstance(self.dataset, Path) else Path()
        return beside if self.folder is None else self.folder

    @property
    def data(self) -> Dataset:
        """The data set; own files are one without a name."""
        if self.dataset is None:
            files = {split: paths for split in SPLITS if (paths := self.own(split))}
            return Dataset.model_validate({"files": files, **self._own_settings()})
        found = described(self.dataset)
        if self.encoding != "utf-8":
            found = found.model_copy(update={"encoding": self.encoding})
        if self.dev is None and self.test is None:
            return found
        named: dict[Split, tuple[Path | str, ...]] = dict(found.files)
        if self.test is not None:
            named.pop("test", None)
        for split in SPLITS:
            if paths := self.own(split):
                named[split] = paths
        # An own test file has the columns of the training file, except that labels may be missing.
        columns = found.test_columns if self.test is None else None
        return found.model_copy(update={"files": named, "test_columns": columns})

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics of the data set, or `default_metrics` if it has none for this kind."""
        return (self.data.metrics if self.kind == self.data.kind else ()) or self.default_metrics

    @property
    def has_dev(self) -> bool:
        """Whether there is a dev set."""
        return "dev" in self.data.files or self.held_share is not None

    @property
    def held_share(self) -> float | None:
        """The share of the training rows that is the dev set; None if there is a dev file or neither."""
        return None if "dev" in self.data.files else self.dev_share

    def _own_settings(self) -> dict[str, Any]:
        """The fields of `Dataset` for own files."""
        values = {name: value for name, value in self if name in Dataset.model_fields}
        return {**values, "columns": {name: value for name, value in self if name in Columns.model_fields}}

    @field_validator("train", "dev", "test", mode="before")
    @classmethod
    def _files(cls, value: Any, info: ValidationInfo) -> Any:
        several = info.field_name == "train" and isinstance(value, list | tuple)
        for one in value if several else (value,):
            if not isinstance(one, str | Path | int | None):
                raise ValueError(
                    f"a {type(one).__name__} is no file; rows in memory go to albertine.finetune(train=…, "
                    "dev=…), which keeps them in the run's folder"
                )
        return (value,) if info.field_name == "train" and value is not None and not several else value

    def own(self, split: str) -> tuple[Path, ...]:
        """The own files of a split: several of "train", at most one of the others."""
        found = getattr(self, split)
        return found or () if split == "train" else (found,) if found else ()

    @model_validator(mode="before")
    @classmethod
    def _no_test(cls, values: Any) -> Any:
        """`test: null` beside a data set leaves its test file out, unless `train` is null too, as among all
        settings of a saved run. `false` always does."""
        if not isinstance(values, dict) or values.get("dataset") is None or "test" not in values:
            return values
        without = values["test"] is None and values.get("train", "") is not None
        return {**values, "test": False} if without or values["test"] == "false" else values

    @model_validator(mode="after")
    def _one_source(self) -> TaskChoice:
        own = [*self.own("train"), *self.own("dev"), *self.own("test")]
        if self.dataset is not None:
            if self.folder is None and isinstance(self.dataset, str):
                raise ValueError("task.dataset needs task.folder, the folder of its files")
            if self.train:
                raise ValueError(
                    "give task.dataset or own files to learn from (task.train), and not both; task.dev and "
                    "task.test may name files that are laid out as those of the data set"
                )
            if idle := next(_of_own_files(self, "task."), None):
                raise ValueError(f"{idle} is for own files, and {self.dataset} has a value of its own")
        elif not own:
            raise ValueError("give task.dataset and task.folder, or task.train")
        elif self.folder is not None:
            raise ValueError("task.folder belongs to task.dataset; own files are named one by one")
        return self

    @model_validator(mode="after")
    def _one_text(self) -> TaskChoice:
        if not self.paired and self.data.columns.pair is not None:
            name = "task.pair" if self.dataset is None else "columns.pair"
            raise ValueError(f"task.kind={self.kind} takes one text; leave {name} out")
        return self

    @model_validator(mode="after")
    def _droppable(self) -> TaskChoice:
        if not self.drops and self.data.left_out:
            raise ValueError(
                f"left_out drops rows by their class or score, and task.kind={self.kind} has neither; leave "
                "it out, and such rows out of the files"
            )
        return self

    def fitting(self, positions: int) -> Self:
        """The task with default lengths shortened to the positions of an encoder; lengths set by the user
        stay."""
        if "max_length" in self.model_fields_set or not SHORTEST <= positions < self.max_length:
            return self
        return self.model_copy(update={"max_length": positions})

    @property
    def usual_depth(self) -> int | None:
        """The default number of layers that an encoder is cut to; None: it is not cut."""
        return None

    @property
    def learns_from_dropout(self) -> str | None:
        """The setting by which a run learns from differences of dropout alone; None: it does not."""
        return None

    def check_encoder(self, config: EncoderConfig, where: object) -> None:
        """Check that an encoder supports the task.

        Raises:
            SettingsError: it does not.
        """

    def input_files(self) -> Iterator[Path]:
        """The files that the readers of the task open, as far as they are there."""
        if isinstance(self.dataset, Path):
            yield self.dataset
        for name in chain(*self.data.files.values()):
            if isinstance(name, Path):
                yield from (name, *(file for file in self.beside(name) if isinstance(file, Path)))
            elif self.dataset is not None:
                yield from self._files_named(name)

    def _files_named(self, name: str) -> Iterator[Path]:
        """A file of the data set, or its archive, and what is read with it; nothing where it is not there."""
        with suppress(NotThere):
            file = find(self.place, name, self.data.archive)
            yield file.archive if isinstance(file, ArchiveMember) else file
            yield from (one for one in self.beside(file) if isinstance(one, Path))

    def load(self, tokenizer: Tokenizer, known: Family | None = None) -> Data:
        """Read, check and encode the files.

        Args:
            known: the family of a model that is only evaluated, which has its classes; the training file is
                not read.

        Raises:
            DataError: a file is missing or does not fit the task.
        """
        task, read = self.decided(self.splits(judging=known is not None), known)
        return task._encoded(read, tokenizer, known)

    def _encoded(self, read: Splits, tokenizer: Tokenizer, known: Family | None) -> Data:
        kept = {name: self.kept(name, examples) for name, examples in read.items()}
        family = self.family(kept, tokenizer, known)
        kept["train"] = self._drawn(kept.get("train", []))
        encoded, lost = {}, {}
        for name in read:
            used = self.used(name, kept[name])
            encode = family.encode_to_learn if name == "train" else family.encode
            encoded[name] = encode(used, tokenizer)
            lost[name] = (*self.lost(read[name], kept[name], encoded[name], name),)
        if "dev" in lost and self.held_share is not None:
            lost["dev"] = ((len(kept["dev"]), "held out of the training rows"), *lost["dev"])
        return as_data(family, encoded, lost, self.max_length)

    def decided(self, splits: Splits, known: Family | None) -> tuple[Self, Splits]:
        """The task with settings that depend on all rows, such as whether labels are numbers or texts of
        options, and the examples read accordingly. Arguments and errors as `load`."""
        return self, splits

    def family(self, splits: Splits, tokenizer: Tokenizer, known: Family | None) -> Family:
        """The family of the task for the examples of all splits, which it checks. Arguments as `load`."""
        raise NotImplementedError

    @staticmethod
    def read(dataset: Dataset, folder: Path, split: Split) -> Iterator[Any]:
        """The examples of a split of a data set in its folder."""
        raise NotImplementedError

    @staticmethod
    def in_own_form(
        path: File, columns: Columns | Fields, encoding: str, prefix: str
    ) -> Iterator[Any] | None:
        """The examples of a file in a special format, with or without labels; None if it is a table.

        Args:
            columns: of a table, by which it is recognised. encoding, prefix: as in `rows_of`.

        Raises:
            DataError: it cannot be read.
        """
        return None

    @staticmethod
    def own_fields(fields: Fields) -> Fields:
        """The columns of the rows from `own_row`: `fields`, with defaults of the kind."""
        return fields

    @staticmethod
    def own_row(example: Any, fields: Fields) -> dict[str, Any]:
        """An example of `in_own_form` as the fields of a table row, without its label."""
        return {fields.text: example.text}

    @staticmethod
    def table_row(row: Row, fields: Fields) -> Row:
        """A row of a table as `Family.example` reads it."""
        return row

    @staticmethod
    def beside(path: File) -> Iterator[File]:
        """Files that are read together with a file of the task, such as that of its answers."""
        return iter(())

    def examples_in(self, split: Split) -> Iterator[Any]:
        """The examples of a split. Raises DataError."""
        return type(self).read(self.data, self.place, split)

    def kept(self, split: str, examples: Examples) -> Examples:
        """The examples without those that the data set drops."""
        return examples

    def used(self, split: str, examples: Examples) -> Examples:
        """The examples to encode, from those that were kept."""
        return examples

    def lost(self, read: Examples, kept: Examples, encoded: Encoded, split: str) -> Iterable[Lost]:
        """Counts for the note on a file: how many of its examples were left out, are empty or the like."""
        return [blank(kept, "text", "pair")]

    def splits(self, *, judging: bool = False) -> Splits:
        """The examples of every split; the test file of a data set known by name may be missing.

        Args:
            judging: the model is only evaluated: the training file is not read, unless the dev set is a share
                of it.

        Raises:
            DataError: a file is missing, empty or invalid; a row of a training or dev file has no label, or
                only some rows of a test file have one; all training rows have the same text and the dev set
                is a share of them.
        """
        dataset, share, found = self.data, self.held_share, Splits()
        for split in SPLITS[judging and share is None :]:
            if split not in dataset.files:
                continue
            try:
                found[split] = list(self.examples_in(split))
            except NotThere:
                if split != "test" or not isinstance(self.dataset, str):
                    raise
                continue
            if not found[split]:
                raise DataError(f"holds no {split} examples", where=self.folder or dataset.files[split][0])
            if self.labelled:
                check_labelled(found[split], dataset.columns_of(split).label or "", test=split == "test")
        if "train" not in found and not judging:
            if self.dataset is None:
                raise SettingsError("give task.train, the file to learn from")
            raise DataError(
                f"`{self.dataset}` has no training file, it only tests",
                where=self.place,
                remedy="Name own files: one to learn from as task.train, this one as task.dev or task.test",
            )
        if share is not None and "train" in found:
            learned, held = held_out(found.pop("train"), share)
            found = {**({} if judging else {"train": learned}), "dev": held, **found}
        return found

    def _drawn(self, examples: list[Any]) -> list[Any]:
        """As many of the training examples as the setting `examples`, in their order, the same in every run.
        They are drawn after all examples have determined the classes."""
        if self.examples is None or self.examples >= len(examples):
            return examples
        chosen = np.sort(permutation(len(examples), 0, "task examples")[: self.examples])
        return [examples[i] for i in chosen]


class PooledTask(TaskChoice):
    """The base of tasks whose head reads one pooled vector of a text."""

    pooling: Literal["cls", "mean", "depths", "compared"] | None = Field(
        None,
        description="input of the head: cls, the token [CLS]; mean, over all tokens; depths, the mean over "
        "all layers too; compared, differences and products of the means of two texts. Default: cls for an "
        "ALBERT, BERT or XLNet in transformers' format, else depths, but compared for pairs below a hidden "
        "size of 512",
    )


def is_of_own_files(field: FieldInfo) -> bool:
    """Whether a setting is only for own files, not for a named data set."""
    return field.json_schema_extra == OWN_FILES


def _of_own_files(part: Settings, prefix: str) -> Iterator[str]:
    """The names of settings for own files that are not at their default."""
    for name, field in type(part).model_fields.items():
        value = getattr(part, name)
        if isinstance(value, Settings):
            yield from _of_own_files(value, f"{prefix}{name}.")
        elif is_of_own_files(field) and value != field.default:
            yield prefix + name


@dataclass(frozen=True)
class TaskCard:
    """Card data of the models of a family.

    Attributes:
        pipeline: the Hub's name of the task (`pipeline_tag`); None: it has none.
        call: from config.json to the `Predictor` call in the usage example, such as `tag("a text")`; None:
            the card has no such example.
    """

    pipeline: str | None = None
    call: Callable[[Mapping[str, Any]], str | None] = lambda config: 'predict(["a text"])'


def usual_http() -> type[HttpTask]:
    """The default HTTP interface of a family."""
    from albertine.tasks.http.base import HttpTask

    return HttpTask


class Registration(NamedTuple):
    """The registration of a family.

    Attributes:
        task: its name. words: what it does, as a verb with object. of_folder: builds it from a model folder.
        kinds: the kinds of task with which it is tuned.
        http: imports its HTTP interface; None: it is not served.
        card: its part of model cards.
        padded: imports its call with padded batches (`albertine.load_task`); None: it has none.
    """

    task: Task
    words: str
    of_folder: Callable[[Tuned], Family]
    kinds: tuple[type[TaskChoice], ...]
    http: Callable[[], type[HttpTask]] | None = usual_http
    card: TaskCard = TaskCard()
    padded: Callable[[], type[PaddedFamily]] | None = None
