"""What a task is, of whatever kind: its settings, and the way from the files that they name to what a run
learns from and is judged by.

A kind of task is a class below `TaskChoice`: settings that only it has, its usual metrics, and how a file of
it is read; `families.py` lists them.
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
from albertine.tasks.dataset_files import Data, Lost, as_data, blank, check_told, held_out
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
    """What is learned, of any kind: a known data set in its folder, or own files by column names.

    Attributes:
        usual: the metrics where nothing is said, the first picks the best model; none where the files tell.
        further: what else can judge it. readers: of files that have a form of their own.
        labelled: every row of a training and a dev file must tell its answer.
        paired: a second text, or a question, may stand beside the first.
        drops: rows of the labels that a data set leaves out are dropped.
        share_passages: several examples may be about one passage, and their errors are not independent.
        as_benchmark: on a data set known by name the task is that of its benchmark.
    """

    usual: ClassVar[tuple[str, ...]] = ()
    further: ClassVar[tuple[str, ...]] = ()
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
        description="a file, by which the best model is picked; beside task.dataset instead of its dev file",
    )
    dev_share: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="own files: where no dev file is named, judge by so large a share of the training rows, "
        "such as 0.1, and learn from the others; rows about the same text stay together",
        json_schema_extra=OWN_FILES,
    )
    test: Path | Literal[False] | None = Field(
        None,
        description="its rows need no labels, they are answered all the same; beside task.dataset instead of "
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
        None, ge=1, description="learn from so many of the training examples, drawn at random; default all"
    )
    encoding: str = Field("utf-8", description="of the files, such as gb18030")
    max_length: int = Field(
        128,
        ge=SHORTEST,
        description="tokens, special pieces included; default: 128, or the encoder's positions if fewer",
    )

    @property
    def source(self) -> str:
        """What is learned from, in words: the data set, or the own training files."""
        return str(self.dataset or ", ".join(map(str, self.own("train"))))

    @property
    def place(self) -> Path:
        """The folder of the data set's files; own files are named one by one."""
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
        # A test file of one's own is laid out as the others, whose rows may lack their labels there.
        columns = found.test_columns if self.test is None else None
        return found.model_copy(update={"files": named, "test_columns": columns})

    @property
    def metrics(self) -> tuple[str, ...]:
        """The data set's, or the usual ones where it says none for this kind."""
        return (self.data.metrics if self.kind == self.data.kind else ()) or self.usual

    @property
    def has_dev(self) -> bool:
        """Whether there is something to judge by while it learns."""
        return "dev" in self.data.files or self.held_share is not None

    @property
    def held_share(self) -> float | None:
        """The share of the training rows that stands in for a dev file; none where there is one."""
        return None if "dev" in self.data.files else self.dev_share

    def _own_settings(self) -> dict[str, Any]:
        """What the settings say of own files."""
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
    def _no_test(cls, given: Any) -> Any:
        """`test: null` beside a data set leaves its test file out; not so among all settings, as a run saves
        them, where `train` is null too. `false` leaves it out everywhere."""
        if not isinstance(given, dict) or given.get("dataset") is None or "test" not in given:
            return given
        without = given["test"] is None and given.get("train", "") is not None
        return {**given, "test": False} if without or given["test"] == "false" else given

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
                raise ValueError(f"{idle} is for own files, and {self.dataset} says that itself")
        elif not own:
            raise ValueError("give task.dataset and task.folder, or task.train")
        elif self.folder is not None:
            raise ValueError("task.folder belongs to task.dataset; own files are named one by one")
        return self

    @model_validator(mode="after")
    def _one_text(self) -> TaskChoice:
        if not self.paired and self.data.columns.pair is not None:
            name = "task.pair" if self.dataset is None else "columns.pair"
            raise ValueError(f"task.kind={self.kind} asks about one text; leave {name} out")
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
        """The same task with its default lengths shortened to what an encoder of so many positions reads;
        lengths that were given stay."""
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
            known: the family of a model that is to be judged, which tells its classes; no training file is
                read.

        Raises:
            DataError: a file is missing, or not what its task wants.
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
        """The task with settings that all rows together determine, such as whether labels are places or
        texts, and the examples as read by them. Arguments and errors as `load`."""
        return self, splits

    def family(self, splits: Splits, tokenizer: Tokenizer, known: Family | None) -> Family:
        """How the model is asked, by the examples of all splits, which are checked. Arguments as `load`."""
        raise NotImplementedError

    @staticmethod
    def read(dataset: Dataset, folder: Path, split: Split) -> Iterator[Any]:
        """The examples of a split of a data set in its folder."""
        raise NotImplementedError

    @staticmethod
    def in_own_form(
        path: File, columns: Columns | Fields, encoding: str, prefix: str
    ) -> Iterator[Any] | None:
        """The examples of a file, with their answers or without; None where it is a table.

        Args:
            columns: of a table, by which it is told apart. encoding, prefix: as in `rows_of`.

        Raises:
            DataError: it cannot be read.
        """
        return None

    @staticmethod
    def own_fields(fields: Fields) -> Fields:
        """The columns of rows that `own_row` makes: those given, or the usual ones."""
        return fields

    @staticmethod
    def own_row(example: Any, fields: Fields) -> dict[str, Any]:
        """An example of `in_own_form` as the fields of a row of a table, without its answer."""
        return {fields.text: example.text}

    @staticmethod
    def table_row(row: Row, fields: Fields) -> Row:
        """A row of a table as `Family.example` reads it."""
        return row

    @staticmethod
    def beside(path: File) -> Iterator[File]:
        """Files that are read with a file of the task, such as one of its answers."""
        return iter(())

    def examples_in(self, split: Split) -> Iterator[Any]:
        """The examples of a split. Raises DataError."""
        return type(self).read(self.data, self.place, split)

    def kept(self, split: str, examples: Examples) -> Examples:
        """The examples but for those that are never asked."""
        return examples

    def used(self, split: str, examples: Examples) -> Examples:
        """What is made of the examples that are left, before they are encoded."""
        return examples

    def lost(self, read: Examples, kept: Examples, encoded: Encoded, split: str) -> Iterable[Lost]:
        """What a person should know of a file: how many of its examples were left out, are empty or the
        like."""
        return [blank(kept, "text", "pair")]

    def splits(self, *, judging: bool = False) -> Splits:
        """The examples of every split that there is; of a set known by name the test file may be missing.

        Args:
            judging: the training file is not read, but for a share of it by which a model is judged.

        Raises:
            DataError: a file is missing, empty or not what it should be; a row of a training or dev file
                lacks its answer, or one of a test file in which others have theirs; all training rows are
                about the same text, of which a share is wanted.
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
                check_told(found[split], dataset.columns_of(split).label or "", test=split == "test")
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
        """`examples` of the training examples, drawn once and for all and left in their order: after what is
        told by all of them, such as the names of the classes."""
        if self.examples is None or self.examples >= len(examples):
            return examples
        chosen = np.sort(permutation(len(examples), 0, "task examples")[: self.examples])
        return [examples[i] for i in chosen]


class PooledTask(TaskChoice):
    """What looks at one vector of a text."""

    pooling: Literal["cls", "mean", "depths", "compared"] | None = Field(
        None,
        description="learn from cls, the token [CLS]; mean, that of all tokens; depths, the mean over all "
        "depths too; compared, how the means of two texts differ and agree. Default: cls for an ALBERT, "
        "BERT or XLNet that transformers has, else depths, but compared for pairs below a hidden size of 512",
    )


def is_of_own_files(field: FieldInfo) -> bool:
    """Whether a setting says something of own files, and nothing beside a named data set."""
    return field.json_schema_extra == OWN_FILES


def _of_own_files(part: Settings, prefix: str) -> Iterator[str]:
    """The settings that say something of own files, by their names."""
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
        call: of config.json the call of a `Predictor` in the example of use, such as `tag("a text")`; None:
            the card has no such example.
    """

    pipeline: str | None = None
    call: Callable[[Mapping[str, Any]], str | None] = lambda config: 'predict(["a text"])'


def usual_http() -> type[HttpTask]:
    """The HTTP interface of a family that registers no other."""
    from albertine.tasks.http.base import HttpTask

    return HttpTask


class Known(NamedTuple):
    """The registration of a family.

    Attributes:
        task: its name. words: what it does. of_folder: the way from a model folder to it.
        kinds: the kinds of task by which it is tuned.
        http: imports its HTTP interface; None: it is not served.
        card: what model cards say of it.
        padded: imports its call with padded batches (`albertine.load_task`); None: it has none.
    """

    task: Task
    words: str
    of_folder: Callable[[Tuned], Family]
    kinds: tuple[type[TaskChoice], ...]
    http: Callable[[], type[HttpTask]] | None = usual_http
    card: TaskCard = TaskCard()
    padded: Callable[[], type[PaddedFamily]] | None = None
