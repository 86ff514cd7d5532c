"""Models with the head of a task, as fine-tuned and saved."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from albertine.core.batch import Packed
from albertine.errors import ModelError
from albertine.model.backend import Linear
from albertine.model.config import HeadInput
from albertine.model.init import IsolatedInit, initialize
from albertine.model.model import Model
from albertine.model.pooling import Pooling, classifier_input, text_vectors

BASE = "base."


class TaskModel(nn.Module, metaclass=IsolatedInit):
    """An encoder and the head of one task; parameters of the head have their names in files.

    Attributes:
        base: encoder, and the pretraining heads that the task uses. dropout: before the head, in training.
    """

    def __init__(self, base: Model, dropout: float) -> None:
        super().__init__()
        self.base, self.dropout = base, dropout

    def initialize_head(self, seed: int) -> None:
        """Initialise the head, a function of the seed; to be called after its construction."""
        initialize(self, self.base.config, seed, skip=BASE)

    @property
    def head(self) -> dict[str, Tensor]:
        """The head's tensors by their names in files."""
        return {name: x for name, x in self.state_dict().items() if not name.startswith(BASE)}

    def load_head(self, tensors: Mapping[str, Tensor], where: object = None) -> None:
        """Take the head's tensors out of `tensors`, which may hold others.

        Raises:
            ModelError: one is missing or has another shape.
        """
        own = self.head
        for name, x in own.items():
            if name not in tensors:
                raise ModelError(
                    f"has no {name}", where=where, remedy="Use a model that was tuned for this task"
                )
            if tensors[name].shape != x.shape:
                raise ModelError(
                    f"has {name} of shape {list(tensors[name].shape)}, expected {list(x.shape)}", where=where
                )
        self.load_state_dict({name: tensors[name] for name in own}, strict=False)


class Classifier(TaskModel):
    """One linear layer over a row of every sequence (`classifier_input`), or over every token.

    Attributes:
        mean, matrix: (H,) and (H, H), or None: whitening; the input of the layer is (x - mean)·matrix instead
            of x. For training alone: files hold the equivalent layer of x.
    """

    mean: Tensor | None
    matrix: Tensor | None

    def __init__(
        self,
        base: Model,
        outputs: int,
        *,
        per_token: bool = False,
        pooling: HeadInput = "cls",
        dropout: float = 0.1,
        seed: int = 0,
        name: str = "classifier",
        width: int | None = None,
    ) -> None:
        """
        Args:
            outputs: number of logits. pooling: of a sequence.
            name: of the layer, in files. width: of its input; None: the encoder's.
        """
        super().__init__(base, dropout)
        self.per_token, self.name = per_token, name
        self.pooling: HeadInput = pooling
        self.add_module(name, Linear(width or base.config.hidden_size, outputs))
        self.initialize_head(seed)
        self.set_whitening(None, None)

    @property
    def uses_mean_pooling(self) -> bool:
        """Whether its input is a mean of encoder states."""
        return not self.per_token and self.pooling in ("mean", "depths")

    def set_whitening(self, mean: Tensor | None, matrix: Tensor | None) -> None:
        """Set or remove `mean` and `matrix`."""
        self.register_buffer("mean", mean)
        self.register_buffer("matrix", matrix)

    @property
    def head(self) -> dict[str, Tensor]:
        """The layer by its names in files (`fold_whitening`)."""
        if self.mean is None or self.matrix is None:
            return super().head
        own = {name: x.detach() for name, x in super().head.items()}
        return fold_whitening(own)

    def load_head(self, tensors: Mapping[str, Tensor], where: object = None) -> None:
        self.set_whitening(None, None)
        super().load_head(tensors, where)

    def forward(self, packed: Packed) -> Tensor:
        """Logits (S, outputs), or (T, outputs) of every token, float32."""
        if self.per_token:
            x = self.base.encoder(packed).last_hidden
        else:
            x = classifier_input(self.base, packed, self.pooling)
        if self.mean is not None and self.matrix is not None:
            x = (x - self.mean) @ self.matrix
        x = F.dropout(x, self.dropout, self.training)
        logits: Tensor = self.get_submodule(self.name)(x)
        return logits.float()


def fold_whitening(head: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of a head, with `mean` and `matrix` folded into its linear layers: A·Mᵀ(x - m) + b is a
    layer of x with the weight A·Mᵀ. With one whitening a layer (`early_exit.EarlyExits`), the layer named by
    a number d has the d-th, and the one without the last."""
    if not {"mean", "matrix"} <= head.keys():
        return dict(head)
    mean, matrix = head["mean"].double(), head["matrix"].double()
    found = {name: x for name, x in head.items() if name not in ("mean", "matrix")}
    for name in [name for name in found if name.endswith(".weight")]:
        own_mean, own_matrix = mean, matrix
        if mean.dim() == 2:
            number = name.split(".")[-2]
            place = int(number) - 1 if number.isdecimal() else -1
            own_mean, own_matrix = mean[place], matrix[place]
        bias = name.removesuffix("weight") + "bias"
        weight = found[name].double() @ own_matrix.T
        found |= {name: weight.float(), bias: (found[bias].double() - weight @ own_mean).float()}
    return found


class Embedder(TaskModel):
    """An encoder that returns one vector a text, without head parameters.

    Attributes:
        pooling, normalize: as in `text_vectors`.
    """

    def __init__(self, base: Model, pooling: Pooling = "mean", normalize: bool = False) -> None:
        super().__init__(base, dropout=0.0)
        self.pooling: Pooling = pooling
        self.normalize = normalize

    def forward(self, packed: Packed) -> Tensor:
        """Vectors (S, H) float32."""
        return text_vectors(self.base, packed, self.pooling, self.normalize)


class WhitenedEmbedder(TaskModel):
    """An encoder that returns one vector a text, (x - m) W of the mean x over its tokens.

    Attributes:
        mean, matrix: (H,) and (H, H), m and W, measured before the first update and not learned
            (`tasks/whitened_start.py`); in a folder they are its whitening. normalize: to length 1.
    """

    mean: Tensor
    matrix: Tensor

    def __init__(self, base: Model, normalize: bool = False) -> None:
        super().__init__(base, dropout=0.0)
        self.normalize = normalize
        hidden = base.config.hidden_size
        self.register_buffer("mean", torch.zeros(hidden))
        self.register_buffer("matrix", torch.eye(hidden))

    @property
    def head(self) -> dict[str, Tensor]:
        """Empty: a folder holds the whitening in its own file."""
        return {}

    def forward(self, packed: Packed) -> Tensor:
        """Vectors (S, H) float32, also under `torch.autocast`."""
        x_SH = text_vectors(self.base, packed, "mean")
        with torch.autocast(x_SH.device.type, enabled=False):
            x_SH = (x_SH - self.mean) @ self.matrix
        return F.normalize(x_SH, dim=-1) if self.normalize else x_SH


class Seq2Seq(TaskModel):
    """Sequence-to-sequence generation with the masked-LM head predicting the next token (UniLM, Dong et al.
    2019, section 2.3), without head parameters."""

    def forward(self, packed: Packed) -> Tensor:
        """Logits (P, V) at `predicting_rows`, the only rows of the last layer."""
        return self.base.pretraining_forward(packed, predicting_rows(packed))[0]


def predicting_rows(packed: Packed) -> Tensor:
    """Rows whose next token belongs to a target, int64 (P,): from the last of a source to the last but one of
    its target. Their labels are the `input_ids` of the next row."""
    if packed.prefix is None:
        raise ValueError("only a batch of sources and targets has rows that predict the next token")
    ends = np.cumsum(packed.lengths)
    spans = zip(ends - packed.lengths + packed.prefix, ends, strict=True)
    rows = np.concatenate([np.arange(first, end) for first, end in spans]) - 1
    return torch.from_numpy(rows).to(packed.input_ids.device)
