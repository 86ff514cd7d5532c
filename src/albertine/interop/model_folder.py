"""What a folder with a model held, whatever its layout; and what of that a task has to know."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from albertine.model.config import EncoderConfig

if TYPE_CHECKING:
    from torch import Tensor

    from albertine.model.model import Model

Shapes = Mapping[str, tuple[int, ...]]


class ModelDescription(Protocol):
    """The description of a model in a folder, whether its weights are tensors or in a graph.

    Attributes:
        encoder: the shape of its encoder. config: its config.json.
        shapes: of the tensors of the head of its task, by the names that transformers gives them.
        left_aside: names of those of a head that computes otherwise than ours.
    """

    @property
    def encoder(self) -> EncoderConfig: ...
    @property
    def config(self) -> dict[str, Any]: ...
    @property
    def shapes(self) -> Shapes: ...
    @property
    def left_aside(self) -> tuple[str, ...]: ...


@dataclass(frozen=True)
class ModelFolder:
    """What a model folder held.

    Attributes:
        model: the encoder with the pretraining heads found. config: its config.json as it stands; of a layout
            that has none, the one that it would be written with.
        extra: tensors of other heads (a fine-tuned classifier), by the names that transformers gives them.
        left_aside: names of those of a head that computes otherwise than ours, which are not in `extra`.
        names: whose its parameters are called by: a kind of transformers, "lonepatient", "bright"
            (brightmart's), or "tensorflow".
    """

    model: Model
    config: dict[str, Any]
    extra: dict[str, Tensor]
    left_aside: tuple[str, ...] = ()
    names: str = ""

    @property
    def encoder(self) -> EncoderConfig:
        """The shape of the encoder."""
        return self.model.config

    @property
    def shapes(self) -> Shapes:
        """Of the tensors in `extra`."""
        return {name: tuple(x.shape) for name, x in self.extra.items()}
