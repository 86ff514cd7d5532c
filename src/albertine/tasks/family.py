"""The interface of task families: encoding, model, loss, outputs and predictions of a kind of task.

Examples and outputs are NumPy arrays. Methods that build, train or compute a torch model import torch
themselves, so that a family can compute an exported graph without it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from albertine.core.token_batches import batch_longest_first, batch_padded
from albertine.errors import DataError, ModelError, NotFinite, SettingsError
from albertine.inference.exported_model import ExportedModel
from albertine.interop.heads import ClassifierHead, Task, max_length_of, read_classifier, usual_pooling
from albertine.interop.huggingface.config import our_flags
from albertine.interop.model_folder import ModelDescription
from albertine.model.config import EncoderConfig, HeadInput
from albertine.tasks.encoded import Encoded, TaskBatch
from albertine.tasks.readers.table import Row
from albertine.tokenizers.base import Tokenizer

if TYPE_CHECKING:
    from torch import Tensor

    from albertine.core.batch import Packed
    from albertine.inference.graph_heads import Head
    from albertine.model.model import Model
    from albertine.model.task_model import TaskModel
    from albertine.objectives.losses import Part

    AnyModel: TypeAlias = TaskModel | ExportedModel
    """A model of torch, or an exported graph."""

Poll = Callable[[], None]


@dataclass(frozen=True)
class RunContext:
    """The start of a fine-tuning run, for `Family.for_run`.

    Attributes:
        encoder: config of the pretrained model. train: the training examples.
        pooling: from the settings; None: the default. balanced: weight the classes (`class_weights`).
        exits: a head after every layer.
        device: of the model in training.
    """

    encoder: EncoderConfig
    tokenizer: Tokenizer
    train: Encoded
    pooling: HeadInput | None = None
    balanced: bool = False
    exits: bool = False
    device: str = "cpu"


Runs = Callable[[Sequence[int]], Iterator[list[int]]]


@dataclass(frozen=True)
class Fields:
    """The columns of a table with the input of a task.

    Attributes:
        text: the text, or the passage. pair: the second text, or the question about the passage; None if
            there is none. options: a list of answers to choose from.
    """

    text: str = "text"
    pair: str | None = None
    options: str = "options"
    named_by: ClassVar[str] = "--{} COLUMN"
    """Format of the option for a column in messages."""

    def first(self, row: Row) -> str:
        """The text of a row.

        Raises:
            DataError: the column is missing, or holds no text.
        """
        value = row.fields.get(self.text)
        return value if isinstance(value, str) else self._named(row, self.text, "text").text(self.text)

    def second(self, row: Row) -> str | None:
        """The second text of a row, if there is a column for it. Raises as `first`."""
        return None if self.pair is None else self._named(row, self.pair, "pair").text(self.pair)

    def choices(self, row: Row) -> Any:
        """The value of the options column of a row.

        Raises:
            DataError: there is no such column.
        """
        return self._named(row, self.options, "options").get(self.options)

    def needed(self, row: Row) -> str:
        """As `second`, but required. Raises DataError."""
        if (found := self.second(row)) is None:
            remedy = f"Name it: {self.named_by.format('pair')}"
            raise DataError(
                "needs a column for the second text or the question", where=row.where, remedy=remedy
            )
        return found

    def _named(self, row: Row, column: str, name: str) -> Row:
        """The row, with a remedy that names the option if it lacks the column."""
        if column in row.fields:
            return row
        no_header = "--no-header" if self.named_by == Fields.named_by else "header=False"
        headless = f"; or {no_header}, if its first line is a row" if "header" in (row.advice or "") else ""
        return row._replace(advice=f"Name it: {self.named_by.format(name)}{headless}")


class ArgumentFields(Fields):
    """`Fields` from Python, whose messages name arguments."""

    named_by = "{}=COLUMN"


@dataclass(frozen=True)
class Tuned:
    """A tuned model folder, from which a family is built."""

    folder: ModelDescription
    tokenizer: Tokenizer
    where: Path

    @property
    def flags(self) -> dict[str, Any]:
        """The Albertine part of config.json."""
        return our_flags(self.folder.config)

    @property
    def length(self) -> int:
        """Most tokens of a row with which the head was tuned."""
        return max_length_of(self.folder)

    @property
    def head(self) -> ClassifierHead:
        """Its classifier. Raises ModelError."""
        return read_classifier(self.folder, self.where)


class Family(ABC):
    """A task: the encoding of its examples, head, loss, outputs, predictions, exported graph and distillation
    loss. Families are dataclasses. Their HTTP interface and the code of their card are registered beside them
    (`kind_settings.Registration`).

    Attributes:
        task: its name, which is also that of its head.
        fields: the default columns of its questions.
        metrics: names of `evaluation.metrics`; the first picks the best model.
        labels: names of the classes, where it has classes.
    """

    task: ClassVar[Task]
    fields: ClassVar[Fields] = Fields()
    metrics: tuple[str, ...]
    labels: tuple[str, ...]

    @property
    def settings(self) -> dict[str, Any]:
        """The task settings with which it was tuned: kind, lengths and the like."""
        return {}

    @property
    def heads(self) -> frozenset[str]:
        """The pretraining heads that the tuned model has."""
        return frozenset()

    @abstractmethod
    def example(self, row: Row, fields: Fields) -> Any:
        """The example in a row of a table, without a label.

        Raises:
            DataError: a column is missing or invalid.
        """

    @abstractmethod
    def encode(self, examples: Any, tokenizer: Tokenizer) -> Encoded:
        """Examples as model input for prediction and evaluation, truncated to the family's length."""

    def encode_to_learn(self, examples: Any, tokenizer: Tokenizer) -> Encoded:
        """Examples as model input for training."""
        return self.encode(examples, tokenizer)

    def for_run(self, context: RunContext) -> Self:
        """The family with settings that depend on the encoder and the training examples.

        Raises:
            SettingsError: settings do not fit the task or the tokenizer.
        """
        if context.balanced:
            raise SettingsError(
                "training.class_weights is for tasks with one class a text",
                remedy="Leave it out, or set task.kind=single",
            )
        if context.exits:
            raise SettingsError(
                "training.exits is for tasks with one or several classes a text",
                remedy="Leave it out, or set task.kind=single or multi",
            )
        return self

    @abstractmethod
    def build(self, base: Model, dropout: float, seed: int) -> TaskModel:
        """The model with a new head."""

    @abstractmethod
    def part(self, model: Any, batch: Any) -> Part:
        """The loss of a batch, float32 with gradient."""

    @abstractmethod
    def predict(self, model: Any, data: Encoded, poll: Poll = lambda: None) -> Any:
        """The outputs for all examples, in order, computed on the device of the model; its mode is kept.

        Args:
            model: from `build`, or an exported graph of it.
        """

    @abstractmethod
    def answers(self, outputs: Any, data: Encoded) -> list[Any]:
        """One prediction an example, from the outputs."""

    def gold(self, data: Encoded) -> list[Any]:
        """The labels, in the form of `answers`; None if the file has none."""
        return [example.label for example in data.source_examples]

    def predictions(self, outputs: Any, data: Encoded, answers: Sequence[Any]) -> list[dict[str, Any]]:
        """For every example `prediction`, and its probabilities or score."""
        every = zip(data.source_examples, answers, self.extra_columns(outputs, data), strict=True)
        return [{"prediction": self.as_json(answer, example), **extra} for example, answer, extra in every]

    def lines(self, outputs: Any, data: Encoded, answers: Sequence[Any]) -> list[dict[str, Any]]:
        """The lines of a predictions file: for every example its id, input, prediction, label if known, and
        probabilities or score."""
        lines = []
        for example, gold, prediction in zip(
            data.source_examples, self.gold(data), self.predictions(outputs, data, answers), strict=True
        ):
            line = {"id": example.name, **self.input_columns(example), "prediction": prediction["prediction"]}
            right = {} if gold is None else {"label": self.as_json(gold, example)}
            lines.append(line | right | prediction)
        return lines

    def with_top(self, count: int) -> Family:
        """The family with at least `count` classes in its `predictions`, if it has classes."""
        return self

    def input_columns(self, example: Any) -> dict[str, Any]:
        """The input of an example in a predictions file."""
        return {}

    def as_json(self, answer: Any, example: Any) -> Any:
        """A prediction or a label as JSON."""
        return answer

    def extra_columns(self, outputs: Any, data: Encoded) -> Iterable[dict[str, Any]]:
        """For every example further columns, such as its probability."""
        return [{} for _ in data.examples]

    @abstractmethod
    def config(self, model_type: str, dropout: float) -> dict[str, Any]:
        """The part of config.json on the head."""

    def graph_head(self, model: TaskModel, where: Path) -> Head:
        """The head of an exported graph: its outputs, which `predict` reads of an `ExportedModel`.

        Args:
            model: as `build` makes it. where: its folder, for messages.

        Raises:
            ModelError: the head cannot be exported.
        """
        raise ModelError(f"has a head of `{self.task}` that has no graph", where=where)

    def graph_files(self, model: TaskModel) -> dict[str, bytes]:
        """Files beside an exported graph that `predict` needs, by their paths in the folder."""
        return {}

    @property
    def not_distillable(self) -> str | None:
        """Why a model of this family cannot be a teacher in fine-tuning; None: it can, with `soft_loss`."""
        return "no layer of classes"

    def soft_loss(
        self, student: Tensor, teacher: Tensor, batch: TaskBatch, temperature: float
    ) -> tuple[Tensor, Tensor]:
        """The distillation loss of a batch, for families that can be distilled.

        Args:
            student, teacher: outputs of both models for `batch.packed`, of one shape.
            temperature: of the softmax over classes.

        Returns:
            The loss summed over predictions, float32 with gradient, and the number of predictions on which
            both models agree, int64.
        """
        raise NotImplementedError


@runtime_checkable
class TunedOnDev(Protocol):
    """A family that tunes something on the dev set, such as a threshold, and keeps it in config.json."""

    def tune_on_dev(self, outputs: Any, data: Encoded) -> None:
        """Tune by the outputs for the dev set, before `answers`."""
        ...

    def load_state(self, flags: Mapping[str, Any]) -> None:
        """Load what was tuned from the Albertine part of config.json."""
        ...


@runtime_checkable
class Mergeable(Protocol):
    """A family that supports ensembles."""

    def merge(self, outputs: Sequence[Any], data: Encoded) -> Any:
        """The outputs of an ensemble, in the form of those of one model.

        Args:
            outputs: of each model, for the same examples.
            data: as the first model read them.

        Raises:
            ModelError: the models cannot be averaged.
        """
        ...


@dataclass
class OneLayer(Family):
    """The base of families with one linear layer as head, whose outputs are logits (rows or tokens, outputs).

    Attributes:
        outputs: number of outputs of the head.
        per_token: apply the head to every token, not to one pooled vector of a row.
        pooling: how that vector is pooled.
        layer: name of the layer in files.
    """

    per_token: ClassVar[bool] = False
    layer: ClassVar[str] = "classifier"
    pooling: HeadInput = field(default="cls", kw_only=True)

    @property
    def heads(self) -> frozenset[str]:
        return frozenset({"pooler"} if self.pooling == "cls" else ())

    @property
    @abstractmethod
    def outputs(self) -> int: ...

    def has_pairs(self, examples: Sequence[Any]) -> bool | None:
        """Whether examples are pairs of texts with one output; None: some are, and some are single."""
        return False

    def for_run(self, context: RunContext) -> Self:
        pairs = self.has_pairs(context.train.examples) is True
        pooling = context.pooling or usual_pooling(context.encoder, pairs=pairs)
        if pooling == "compared" and not pairs:
            raise SettingsError(
                "compares the two texts of a pair, and this task has no pairs of texts with a class or score",
                where="task.pooling=compared",
                remedy="Name the columns of both (task.text, task.pair), or set task.pooling=depths",
            )
        if pooling == "compared" and not context.tokenizer.segments:
            raise SettingsError(
                "compares two texts by their segments, and the tokenizer of this model has one segment for "
                "both",
                where="task.pooling=compared",
                remedy="Set task.pooling=cls or task.pooling=depths",
            )
        return replace(super().for_run(context), pooling=pooling)

    def build(self, base: Model, dropout: float, seed: int) -> TaskModel:
        from albertine.model.pair_head import Comparer
        from albertine.model.task_model import Classifier

        if self.pooling == "compared":
            return Comparer(base, self.outputs, dropout=dropout, seed=seed, name=self.layer)
        return Classifier(
            base,
            self.outputs,
            per_token=self.per_token,
            pooling=self.pooling,
            dropout=dropout,
            seed=seed,
            name=self.layer,
        )

    def part(self, model: Callable[..., Tensor], batch: TaskBatch) -> Part:
        return self.loss(model(batch.packed), batch)

    @abstractmethod
    def loss(self, logits: Tensor, batch: TaskBatch) -> Part:
        """The loss of a batch from the logits (rows or tokens, outputs), float32."""

    def predict(self, model: AnyModel, data: Encoded, poll: Poll = lambda: None) -> Any:
        return over_rows(model, data, poll, per_token=self.per_token)

    def graph_head(self, model: TaskModel, where: Path) -> Head:
        from albertine.inference.graph_heads import Classes, Comparison
        from albertine.model.pair_head import Comparer
        from albertine.model.task_model import Classifier

        if isinstance(model, Comparer):
            return Comparison(model)
        return Classes(model) if isinstance(model, Classifier) else super().graph_head(model, where)

    @property
    def not_distillable(self) -> str | None:
        return None

    def soft_loss(
        self, student: Tensor, teacher: Tensor, batch: TaskBatch, temperature: float
    ) -> tuple[Tensor, Tensor]:
        """The soft target loss of each row or token, whose outputs are the logits of classes."""
        from albertine.objectives.distillation import soft_target_loss

        same = student.argmax(-1) == teacher.argmax(-1)
        return soft_target_loss(student, teacher, temperature), same.sum()


def over_rows(
    model: AnyModel,
    data: Encoded,
    poll: Poll = lambda: None,
    *,
    per_token: bool = False,
    compute: Callable[[Packed], Tensor] | None = None,
    rows: Sequence[int] | None = None,
) -> NDArray[Any]:
    """The outputs of a model for rows of tokens, (rows or tokens, outputs) float32, in the order of the rows.
    Rows are batched by length; the model's mode is restored.

    Args:
        model: of torch, or an exported graph.
        compute: called in place of the model; its output has a row for every row or token.
        rows: indices of rows, in this order; default: all.

    Raises:
        NotFinite: a number is NaN or infinite; names the row of tokens.
    """
    wanted = range(len(data.ids)) if rows is None else rows
    lengths = [len(data.ids[i]) for i in wanted]
    found: list[NDArray[Any]] = [np.empty(0)] * len(lengths)
    with in_evaluation(model) as runs:
        for chosen in runs(lengths):
            poll()
            batch = [wanted[i] for i in chosen]
            if isinstance(model, ExportedModel):
                numbers: NDArray[Any] = model.numbers(*data.rows(batch), per_token=per_token)
            else:
                numbers = (compute or model)(data.packed(batch).to(model.base.device)).cpu().numpy()
            ends = np.cumsum([lengths[i] if per_token else 1 for i in chosen])
            for i, part in zip(chosen, np.split(numbers, ends[:-1]), strict=True):
                found[i] = part
    whole = np.concatenate(found)
    if not (whole < np.inf).all():  # also false for NaN; minus infinity is the score of impossible positions
        raise NotFinite.of_items(
            "row", [i for i, own in zip(wanted, found, strict=True) if not (own < np.inf).all()]
        )
    return whole


@contextmanager
def in_evaluation(model: AnyModel) -> Iterator[Runs]:
    """A context in which a model computes without gradients; its mode is restored. Yields a function from the
    lengths of rows to batches of their indices."""
    if isinstance(model, ExportedModel):
        yield partial(batch_padded, limit=model.tokens_per_pass)
        return
    import torch

    from albertine.model.model import evaluating

    with evaluating(model), torch.no_grad():
        yield partial(batch_longest_first, limit=model.base.tokens_per_pass)


def loss(family: Family) -> Callable[[Any, Any], dict[str, Part]]:
    """The loss function of a family for the training step."""

    def parts(model: Any, batch: Any) -> dict[str, Part]:
        return {"task": family.part(model, batch)}

    return parts
