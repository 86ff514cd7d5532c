"""The content of a model folder in any layout, and the description of it that tasks use."""

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
    """The content of a model folder.

    Attributes:
        model: the encoder with the pretraining heads found. config: its config.json; for a layout without
            one, that with which it would be written.
        extra: tensors of task heads, by their names in transformers.
        left_aside: names of tensors of an unsupported head, which are not in `extra`.
        names: the naming of its parameters: a kind of transformers, "lonepatient", "bright" (brightmart's),
            or "tensorflow".
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
        """The shapes of the tensors in `extra`."""
        return {name: tuple(x.shape) for name, x in self.extra.items()}
