"""What a folder with a model held, whatever its layout."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from albertine.model.model import Model


@dataclass(frozen=True)
class ModelFolder:
    """What a model folder held.

    Attributes:
        model: the encoder with the pretraining heads found. config: its config.json as it stands; of a layout
            that has none, the one that it would be written with.
        extra: tensors of other heads (a fine-tuned classifier), by the names that transformers gives them.
        left_aside: names of those of a head that computes otherwise than ours, which are not in `extra`.
        notes: what a person who converts it has to know.
    """

    model: Model
    config: dict[str, Any]
    extra: dict[str, Tensor]
    left_aside: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
