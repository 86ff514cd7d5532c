"""What a task family gives to the run: the model that it tunes, its loss, and what the model's words mean."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from albertine.interop.heads import Task
from albertine.layout import Packed, longest_first
from albertine.model.model import Model, evaluating
from albertine.model.pooling import Pooling
from albertine.model.task_model import Classifier, TaskModel
from albertine.objectives.losses import Part
from albertine.tasks.encoded import Encoded, TaskBatch
from albertine.text.tokenizer import Tokenizer

Poll = Callable[[], None]


class Family(Protocol):
    """One way of asking a model.

    Attributes:
        task: its name, which is also that of its head.
        metrics: names of `evaluation.metrics`; the first picks the best model.
        labels: names of the classes, where it has classes.
        heads: the pretraining heads that the tuned model keeps.
    """

    @property
    def task(self) -> Task: ...
    @property
    def metrics(self) -> tuple[str, ...]: ...
    @property
    def labels(self) -> tuple[str, ...]: ...
    @property
    def heads(self) -> frozenset[str]: ...

    def encode(self, examples: Any, tokenizer: Tokenizer) -> Encoded:
        """Examples as model input, cut to the length that the family was made for: to be judged, to be asked,
        and, where nothing else is said, to be learned from."""
        ...

    def build(self, base: Model, dropout: float, seed: int) -> TaskModel:
        """The model with a new head."""
        ...

    def part(self, model: Any, batch: Any) -> Part:
        """The loss of a batch, float32 with gradient."""
        ...

    def predict(self, model: Any, data: Encoded, *, device: torch.device | str = "cpu", poll: Poll) -> Any:
        """What the model says of all examples, in their order; the model's mode is kept."""
        ...

    def answers(self, said: Any, data: Encoded) -> list[Any]:
        """What that means, one answer an example."""
        ...

    def gold(self, data: Encoded) -> list[Any]:
        """The right answers, of the same kind as `answers`."""
        ...

    def lines(self, said: Any, data: Encoded, answers: Sequence[Any]) -> list[dict[str, Any]]:
        """The predictions file: one object an example."""
        ...

    def config(self, model_type: str, dropout: float) -> dict[str, Any]:
        """What config.json says of the head."""
        ...


@runtime_checkable
class Settling(Protocol):
    """A family that chooses something on the dev set, such as a threshold, and tells it in config.json."""

    def settle(self, said: Any, data: Encoded) -> None:
        """Choose by what the model says of the dev set, before `answers`."""
        ...

    def recall(self, told: Mapping[str, Any]) -> None:
        """Take what was chosen from what `config` told, the part that is Albertine's own."""
        ...


@runtime_checkable
class Merging(Protocol):
    """A family whose models can be an ensemble."""

    def merge(self, said: Sequence[Any], data: Encoded) -> Any:
        """What several models say together: of the same kind as what `predict` gives for one.

        Args:
            said: what each model said, all about the same examples.
            data: as the first model read them.

        Raises:
            ModelError: the models cannot be averaged.
        """
        ...


class OneLayer(ABC):
    """The part that families share whose head is one linear layer; what their model says are logits (rows or
    tokens, outputs) of all rows.

    Attributes:
        outputs: numbers that the head gives for every row or token.
        per_token: whether the head looks at every token, or at one row of a sequence.
        pooling: which one that is.
        layer: name of the layer in files.
    """

    per_token: bool = False
    pooling: Pooling = "cls"
    layer: str = "classifier"

    @property
    def heads(self) -> frozenset[str]:
        return frozenset({"pooler"} if self.pooling == "cls" else ())

    @property
    @abstractmethod
    def outputs(self) -> int: ...

    def build(self, base: Model, dropout: float, seed: int) -> TaskModel:
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

    def predict(
        self,
        model: TaskModel,
        data: Encoded,
        *,
        device: torch.device | str = "cpu",
        poll: Poll = lambda: None,
    ) -> Tensor:
        return over_rows(model, data, per_token=self.per_token, device=device, poll=poll)


@torch.no_grad()
def over_rows(
    model: TaskModel,
    data: Encoded,
    *,
    per_token: bool = False,
    device: torch.device | str = "cpu",
    poll: Poll = lambda: None,
    ask: Callable[[Packed], Tensor] | None = None,
    rows: Sequence[int] | None = None,
) -> Tensor:
    """What a model of packed rows gives, (rows or tokens, outputs) float32 on the CPU, in the order of the
    rows; the model's mode is kept.

    Args:
        ask: asked instead of the model itself; what it gives has a row for every row or token.
        rows: which rows, in this order; default all.
    """
    wanted = range(len(data.ids)) if rows is None else rows
    lengths = [len(data.ids[i]) for i in wanted]
    found: list[Tensor] = [torch.empty(0)] * len(lengths)
    with evaluating(model):
        for chosen in longest_first(lengths, model.base.tokens_per_pass):
            poll()
            logits = (ask or model)(data.packed([wanted[i] for i in chosen]).to(device)).cpu()
            sizes = [lengths[i] if per_token else 1 for i in chosen]
            for i, part in zip(chosen, logits.split(sizes), strict=True):
                found[i] = part
    return torch.cat(found)


def loss(family: Family) -> Callable[[Any, Any], dict[str, Part]]:
    """The loss function of a family, as the training step wants it."""

    def parts(model: Any, batch: Any) -> dict[str, Part]:
        return {"task": family.part(model, batch)}

    return parts
