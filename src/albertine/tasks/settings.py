"""The settings of a fine-tuning run: what a recipe may say."""

from __future__ import annotations

import os.path
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator, model_validator

from albertine.settings import Computing, RunSettings, Settings
from albertine.tasks.registry import (
    SPLITS,
    Column,
    Columns,
    Dataset,
    Rules,
    described,
    listed,
)

PAPER_RATE, NARROW_RATE = 2e-5, 5e-4
"""The rate for models of BERT's width, and the most for narrow ones (docs/decisions/018)."""
MUON_RATE = 0.01
"""Muon's steps have one size at every width; half of its rate in pretraining (docs/log.md)."""


class SimilarityChoice(Settings):
    """Kind similarity: one vector a text, and how it is learned."""

    loss: Literal["cosine", "cosent", "contrastive", "simcse"] = Field(
        "cosent",
        description="cosine: its squared distance from the score; cosent: the order of the scores; "
        "contrastive: pairs that are alike, each told from all others of its batch; simcse: every text and "
        "itself under other dropout, without any labels. All but cosine compare the examples of a batch: "
        "a process computes its share of training.batch_size at once, whatever "
        "training.micro_batch_tokens says, and of N processes each compares within its own N-th part",
    )
    pooling: Literal["mean", "cls", "depths"] = Field(
        "mean",
        description="of all tokens, the first token, or the mean of all tokens over all depths, which "
        "suits small encoders and which sentence-transformers cannot compute",
    )
    normalize: bool = Field(False, description="vectors of length 1")
    scale: float = Field(20.0, gt=0, description="of cosines in cosent and contrasts: 1 / temperature")
    symmetric: bool = Field(False, description="contrasts: also find the first text of every second one")
    lowest: float = Field(0.0, description="own files: the score of two texts that have nothing in common")
    highest: float = Field(1.0, description="own files: the score of two texts that say the same")
    negative: Column | None = Field(
        None, description="own files, contrastive: column of a third text, unlike the first; may be empty"
    )

    @model_validator(mode="after")
    def _range(self) -> SimilarityChoice:
        if not self.lowest < self.highest:
            raise ValueError(f"lowest {self.lowest:g} is not below highest {self.highest:g}")
        return self


class AnswerChoice(Settings):
    """How questions about passages are read, in tokens, and how own files of them are scored."""

    stride: int = Field(128, ge=1, description="from one window of task.max_length to the next")
    question: int = Field(64, ge=1, description="of the question, the rest is cut")
    longest: int = Field(30, ge=1, description="of an answer")
    blank: float = Field(
        1.0,
        ge=0,
        le=1,
        description="share of the training windows without the answer of their question that are learned "
        "from; a small budget is better spent on the others",
    )
    n_best: int = Field(20, ge=1, description="how many likely spans are kept")
    no_answer: bool = Field(False, description="own files: passages may not answer, as in SQuAD v2.0")
    rules: Rules = Field(
        "squad", description="own files: whose script scores the answers; the last three are for Chinese"
    )


def named_or_file(dataset: Any) -> Any:
    """The name of a data set, or the path of the YAML file that describes one."""
    is_file = str(dataset).endswith((".yaml", ".yml"))
    return Path(os.path.expanduser(dataset)) if is_file else dataset


class TaskChoice(Settings):
    """What is learned, of any kind: a known data set in its folder, or own files by column names."""

    kind: str
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
    dev: Path | None = None
    test: Path | None = Field(None, description="its rows need no labels, they are answered all the same")
    header: bool = Field(
        True,
        description="own files: whether CSV and TSV begin with a line of names; without one, columns are "
        "named by number, as in task.text=1 task.label=2",
    )
    text: Column = Field("text", description="own files: column of the text")
    pair: Column | None = Field(None, description="own files: column of the second text")
    label: Column = Field("label", description="own files: column of the class or score")
    examples: int | None = Field(
        None, ge=1, description="learn from so many of the training examples, drawn at random; default all"
    )
    encoding: str = "utf-8"
    max_length: int = Field(128, ge=8, description="tokens, special pieces included")

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
            return Dataset.model_validate({"files": files, **self._told()})
        found = described(self.dataset)
        return found if self.encoding == "utf-8" else found.model_copy(update={"encoding": self.encoding})

    def _told(self) -> dict[str, Any]:
        """What the settings say of own files."""
        told = {name: value for name, value in self if name in Dataset.model_fields}
        return {**told, "columns": {name: value for name, value in self if name in Columns.model_fields}}

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
        return found or () if split == "train" else () if found is None else (found,)

    @model_validator(mode="after")
    def _one_source(self) -> TaskChoice:
        own = [*self.own("train"), *self.own("dev"), *self.own("test")]
        if self.dataset is not None:
            if self.folder is None and isinstance(self.dataset, str):
                raise ValueError("task.dataset needs task.folder, the folder of its files")
            if own:
                raise ValueError("give task.dataset or own files, and not both")
        elif not own:
            raise ValueError("give task.dataset and task.folder, or task.train")
        elif self.folder is not None:
            raise ValueError("task.folder belongs to task.dataset; own files are named one by one")
        return self


class PooledTask(TaskChoice):
    """What looks at one vector of a text."""

    pooling: Literal["cls", "mean", "depths"] | None = Field(
        None,
        description="learn from the first token, the mean of all tokens, or their mean over all depths; "
        "default: the first for ALBERT and BERT, as transformers has it, else the last of the three",
    )


class ClassTask(PooledTask):
    """One class, or a number."""

    kind: Literal["single", "score"] = "single"


class ClassesTask(PooledTask):
    """Any number of classes."""

    kind: Literal["multi"]
    separator: str = Field(",", min_length=1, description="own files: between the classes of one row")


class OptionsTask(PooledTask):
    """One of several options."""

    kind: Literal["choice"]
    options: Column = Field("options", description="own files: field of the list of options")


class EntitiesTask(TaskChoice):
    """Entities in a text."""

    kind: Literal["entities"]
    tags: Literal["bio", "bioes"] = Field(
        "bio", description="mark the first token, or also the last and an only one"
    )
    crf: bool = Field(False, description="judge and decode whole sequences of tags")


class AnswersTask(TaskChoice):
    """Answers in a passage (SQuAD's format)."""

    kind: Literal["answers"]
    answer: AnswerChoice = AnswerChoice()

    def _told(self) -> dict[str, Any]:
        told = {name: value for name, value in self.answer if name in Dataset.model_fields}
        return super()._told() | told

    @model_validator(mode="after")
    def _own_rules(self) -> AnswersTask:
        if self.dataset is not None and (self.answer.no_answer or self.answer.rules != "squad"):
            raise ValueError("task.answer.no_answer and task.answer.rules are for own files")
        return self


class RelationsTask(TaskChoice):
    """Relations between names in a text."""

    kind: Literal["relations"]


class VectorsTask(TaskChoice):
    """One vector a text, judged by the cosines of pairs."""

    kind: Literal["similarity"]
    similarity: SimilarityChoice = SimilarityChoice()

    def _told(self) -> dict[str, Any]:
        told, own = super()._told(), self.similarity
        columns = {**told["columns"], "negative": own.negative}
        return {**told, "columns": columns, "scores": (own.lowest, own.highest)}

    @model_validator(mode="after")
    def _two_texts(self) -> VectorsTask:
        alone = self.similarity.loss == "simcse" and self.data.files.keys() == {"train"}
        if self.data.columns.pair is None and not alone:
            name = "task.pair" if self.dataset is None else "columns.pair"
            raise ValueError(f"task.kind=similarity needs {name}, the column of the second text")
        return self


class WritingTask(TaskChoice):
    """A text to be written (task.label is its column), or answers that are written (SQuAD's or WebQA's
    format)."""

    kind: Literal["generation", "reading"]
    target_length: int = Field(
        32, ge=2, description="of max_length the most tokens of the target, [SEP] included"
    )
    beams: int = Field(2, ge=1, description="texts followed at once when judged")


Task = (
    ClassTask
    | ClassesTask
    | OptionsTask
    | EntitiesTask
    | AnswersTask
    | RelationsTask
    | VectorsTask
    | WritingTask
)
KINDS: dict[str, type[TaskChoice]] = {
    kind: model for model in get_args(Task) for kind in get_args(model.model_fields["kind"].annotation)
}


def of_its_kind(given: Any) -> Any:
    """The settings of a task as those of its kind, which a data set tells where they do not.

    Raises:
        ValueError: a setting, or the data set, is for other kinds. SettingsError: there is no such data set.
    """
    if isinstance(given, TaskChoice):
        return given
    if not isinstance(given, dict):
        raise ValueError("give its settings, such as task.train=FILE")
    kind = kind_of(given)
    for name in given:
        others = [other for other, model in KINDS.items() if name in model.model_fields]
        if others and kind not in others:
            raise ValueError(f"task.{name} is for {', '.join(others)}, and this task is {kind}")
    return KINDS[kind].model_validate({**given, "kind": kind})


def kind_of(given: Mapping[str, Any]) -> str:
    """The kind of a task. Raises as `of_its_kind`."""
    dataset, kind = named_or_file(given.get("dataset")), given.get("kind")
    if kind is not None and str(kind) not in KINDS:
        raise ValueError(f"there is no task.kind `{kind}`; known are {', '.join(KINDS)}")
    if not isinstance(dataset, Path | str):
        return kind or "single"
    kinds = described(dataset).kinds
    if kind not in (*kinds, "single", None):
        others = ", ".join(listed(kind))
        raise ValueError(
            f"`{dataset}` is no data set of the kind {kind}, but of {', '.join(kinds)}"
            + (f"; known of {kind}: {others}" if others else "")
        )
    return kind if kind in kinds else kinds[0]


def saved(task: Mapping[str, Any], now: Mapping[str, Any]) -> Mapping[str, Any]:
    """The task of a saved run without settings of other kinds, which earlier versions wrote too.

    Args:
        now: the same with what a person says anew, perhaps its kind.
    """
    try:
        own = KINDS[kind_of(now)].model_fields
    except (ValueError, AttributeError):
        return task  # whoever reads it says what is wrong
    others = {name for model in KINDS.values() for name in model.model_fields} - own.keys()
    return {name: value for name, value in task.items() if name not in others}


class EncoderChoice(Settings):
    """The pretrained encoder and what becomes of it."""

    folder: Path = Field(
        description="model or run folder, released model, or owner/name[@revision] on the hub"
    )
    unshare: Literal["no", "all", "attention", "ffn", "share"] = Field(
        "no",
        description="give every depth its own copy of the shared weights, or of one part; "
        "share: the reverse, all depths get the mean of their weights",
    )
    groups: int | None = Field(
        None, ge=1, description="copies that unshare makes, one for each run of depths; default one a depth"
    )
    num_hidden_layers: int | None = Field(None, ge=1, description="more or fewer loops than the checkpoint")
    dropout: float | None = Field(
        None,
        ge=0,
        lt=1,
        description="hidden and attention dropout; default: the checkpoint's own; v2 models: 0, BERT: 0.1",
    )
    classifier_dropout: float = Field(0.1, ge=0, lt=1)

    @model_validator(mode="after")
    def _copies(self) -> EncoderChoice:
        if self.groups is not None and self.unshare in ("no", "share"):
            raise ValueError(
                "encoder.groups says how many copies encoder.unshare makes: all, attention or ffn"
            )
        return self


class TuningChoice(Computing):
    """How it is optimised and for how long. Defaults: the smaller settings of table 14."""

    epochs: float = Field(3, gt=0)
    steps: int | None = Field(None, ge=1, description="length of the run in updates, instead of epochs")
    batch_size: int = Field(32, ge=1)
    micro_batch_tokens: int = Field(16384, ge=64)
    optimizer: Literal["adamw", "muon"] = Field(
        "adamw",
        description="muon: for the matrices of the blocks, AdamW for all else; a small model soon learns to "
        "answer from passages with it",
    )
    learning_rate: float | None = Field(
        None,
        gt=0,
        description="default: 2e-5 at a hidden size of 768 or more, and more for a narrower model: "
        "with the cube of 768 over its hidden size, at most 5e-4; of muon 0.01",
    )
    embedding_rate: float | None = Field(
        None,
        gt=0,
        description="learning rate of the word vectors over that of the rest; default: 1, and for a "
        "classifier of means below a hidden size of 768 as many times as the word vectors are longer "
        "than new ones, at most 8",
    )
    whiten: bool = Field(
        True,
        description="a classifier of means (task.pooling) learns from whitened vectors, which is faster; "
        "saved models are of the same form either way",
    )
    schedule: Literal["linear", "wsd", "constant"] = "linear"
    warmup: float = Field(0.1, ge=0, lt=1, description="share of the run")
    weight_decay: float = Field(0.01, ge=0)
    class_weights: Literal["none", "balanced"] = Field(
        "none", description="balanced: a class counts as much as any other, however rare"
    )
    adversarial: float = Field(
        0.0, ge=0, description="FGM: length of the step against the word vectors, often 0.5 to 1; 0: none"
    )
    layer_decay: float = Field(
        1.0, gt=0, le=1, description="learning rate of a depth over that of the depth above"
    )
    crf_rate: float = Field(
        1000.0, gt=0, description="learning rate of a CRF over that of the head, as bert4keras has it"
    )
    ema: float = Field(
        0.0, ge=0, lt=1, description="judge and save a moving average of the weights; its decay, often 0.999"
    )
    clip: float | None = Field(1.0, gt=0)

    def rate(self, hidden_size: int) -> float:
        """The peak learning rate: given, or by the optimizer and the width of the model."""
        if self.learning_rate is not None:
            return self.learning_rate
        if self.optimizer == "muon":
            return MUON_RATE
        return min(NARROW_RATE, PAPER_RATE * max(1.0, 768 / hidden_size) ** 3)


class TuningWatch(Settings):
    """How often to look and to save; `every` counts steps."""

    log_every: int = Field(20, ge=1)
    evaluations: int = Field(3, ge=1, description="times the dev set is scored, evenly over the run")
    early_stopping: int | None = Field(
        None, ge=1, description="end after so many evaluations without a new best"
    )
    keep: int = Field(2, ge=2)
    tensorboard: bool = True
    report: bool = Field(True, description="write report/ with tables and pictures when the run is done")


class FinetuneSettings(RunSettings):
    """One fine-tuning run."""

    task: Annotated[Task, BeforeValidator(of_its_kind)]
    encoder: EncoderChoice
    training: TuningChoice = TuningChoice()
    watching: TuningWatch = TuningWatch()

    @property
    def simcse(self) -> bool:
        """Whether nothing but dropout is learned from."""
        return isinstance(self.task, VectorsTask) and self.task.similarity.loss == "simcse"

    @model_validator(mode="after")
    def _something_differs(self) -> FinetuneSettings:
        if self.simcse and self.encoder.dropout == 0:
            raise ValueError(
                "task.similarity.loss=simcse learns from dropout alone; set encoder.dropout, for example 0.1"
            )
        return self
