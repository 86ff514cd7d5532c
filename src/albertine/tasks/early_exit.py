"""Classification in which every text passes through as many layers as its prediction needs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from albertine.core.exit_rule import ExitRule
from albertine.errors import ModelError
from albertine.tasks.classify import Classify, Logits
from albertine.tasks.encoded import Encoded
from albertine.tasks.family import Family, Poll, over_rows

if TYPE_CHECKING:
    from torch import Tensor

    from albertine.core.batch import Packed
    from albertine.tasks.family import AnyModel


class NoExits(ModelError):
    """A model has no head after every layer, which early exit needs."""


class ExitOutputs(NamedTuple):
    """Outputs of a classifier with exits.

    Attributes:
        logits: after the last layer that a text has passed, (rows, classes). layers: how many, (rows,).
    """

    logits: Logits
    layers: NDArray[np.int64]


@dataclass
class ExitingClassify(Classify):
    """The family of a class or several classes, with early exit.

    Attributes:
        rule: when a text leaves. layers_used: how many texts have left after each number of layers so far.
    """

    rule: ExitRule = field(default_factory=lambda: ExitRule(patience=1))
    layers_used: Counter[int] = field(default_factory=Counter)

    def predict(self, model: AnyModel, data: Encoded, poll: Poll = lambda: None) -> ExitOutputs:
        import torch

        from albertine.model.early_exit import EarlyExits

        assert isinstance(model, EarlyExits)

        def leaving(packed: Packed) -> Tensor:
            logits, layers = model.leaving(packed, self.rule)
            return torch.cat([logits, layers[:, None].to(logits.dtype)], 1)

        table = over_rows(model, data, poll, compute=leaving)
        layers = table[:, -1].astype(np.int64)
        self.layers_used.update(layers.tolist())
        return ExitOutputs(table[:, :-1], layers)

    def logits(self, outputs: Any) -> Logits:
        return outputs.logits if isinstance(outputs, ExitOutputs) else super().logits(outputs)

    def merge(self, outputs: Sequence[Any], data: Encoded) -> Logits:
        return super().merge([self.logits(one) for one in outputs], data)

    def answers(self, logits: Any, data: Encoded) -> list[str | float | frozenset[str]]:
        return super().answers(self.logits(logits), data)

    def extra_columns(self, logits: Any, data: Encoded) -> Iterable[dict[str, Any]]:
        """The probabilities of the most probable classes, and the number of layers."""
        columns = super().extra_columns(self.logits(logits), data)
        return [
            {**column, "layers": count} for column, count in zip(columns, logits.layers.tolist(), strict=True)
        ]

    def values(self, logits: Any) -> list[list[float]]:
        return super().values(self.logits(logits))


def check_exits(exits: bool, where: Path) -> None:
    """Raises NoExits: a model has no head after every layer.

    Args:
        where: its folder.
    """
    if not exits:
        raise NoExits(
            "has no head after every layer, which an early exit needs",
            where=where,
            remedy="Tune it with training.exits=true, or leave --exit out",
        )


def with_exit(family: Family, rule: ExitRule, where: Path, *, exported: bool = False) -> ExitingClassify:
    """A family that predicts with early exit.

    Args:
        where: the folder of its model. exported: whether that is an exported graph.

    Raises:
        NoExits: the model has no head after every layer. ModelError: it is an exported graph.
    """
    check_exits(isinstance(family, Classify) and family.exits, where)
    assert isinstance(family, Classify)
    if exported:
        raise ModelError(
            "is an exported graph, which always computes all layers",
            where=where,
            remedy="Use the model folder that it was exported from, with --runtime torch; or leave "
            "--exit out",
        )
    return ExitingClassify(**{one.name: getattr(family, one.name) for one in fields(family)}, rule=rule)
