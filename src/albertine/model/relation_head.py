"""Relation extraction head: pointers to subjects, then, for a given subject, to the objects of every
predicate.

A pointer has two logits a token, for the first and for the last token of an entity.
The objects depend on the subject through conditional LayerNorm: scale and shift of the norm are linear in the
hidden states of the subject's first and last token (bert4keras, `task_relation_extraction`).
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from albertine.core.batch import Packed
from albertine.model.backend import Linear
from albertine.model.config import OBJECT_POWER as OBJECT_POWER
from albertine.model.config import SUBJECT_POWER as SUBJECT_POWER
from albertine.model.model import Model
from albertine.model.task_model import TaskModel


def probability(logits: Tensor, power: int) -> Tensor:
    """sigmoid to a power: few tokens are positive, so an untrained pointer begins near 0."""
    return logits.sigmoid() ** power


class Relations(TaskModel):
    """An encoder with pointers to subjects and objects.

    The conditional norm takes the encoder's output. (That of bert4keras takes the sum before the last
    LayerNorm, in whose place it stands.)

    Attributes:
        scale, shift: 2H→H, of the conditional norm. At the start 1 and 0 whatever the subject, so their
            biases are the plain norm's own.
    """

    def __init__(self, base: Model, predicates: int, *, dropout: float = 0.1, seed: int = 0) -> None:
        """
        Args:
            predicates: their number.
        """
        super().__init__(base, dropout)
        hidden = base.config.hidden_size
        self.subject = Linear(hidden, 2)
        self.scale = Linear(2 * hidden, hidden)
        self.shift = Linear(2 * hidden, hidden)
        self.object = Linear(hidden, 2 * predicates)
        self.initialize_head(seed)
        with torch.no_grad():
            self.scale.weight.zero_()
            self.shift.weight.zero_()
            self.scale.bias.fill_(1.0)

    def forward(self, packed: Packed, subjects_S2: Tensor) -> tuple[Tensor, Tensor]:
        """Logits of one encoder pass with one subject a sequence.

        Args:
            subjects_S2: int64, rows in T of the first and the last token of each sequence's subject.

        Returns:
            Subject pointers (T, 2) and object pointers (T, predicates, 2), float32, in turn first and last.
        """
        x_TH = self.base.encoder(packed).last_hidden
        lengths = packed.cu_seqlens.diff()
        owner_T = torch.repeat_interleave(lengths, output_size=packed.num_tokens)
        return self.subjects(x_TH), self.objects(x_TH, x_TH[subjects_S2], owner_T)

    def subjects(self, x_TH: Tensor) -> Tensor:
        """Subject pointers (T, 2) of the encoder's output, float32."""
        x_TH = F.dropout(x_TH, self.dropout, self.training)
        return self.subject(x_TH).float()  # type: ignore[no-any-return]

    def objects(self, x_RH: Tensor, ends_S2H: Tensor, owner_R: Tensor) -> Tensor:
        """Object pointers (R, predicates, 2), float32.

        Args:
            x_RH: rows of the encoder's output. ends_S2H: of its rows those of each subject's two ends.
            owner_R: index in S of the subject of each row.
        """
        width = x_RH.shape[1]
        ends = ends_S2H.flatten(1)
        norm_S2H = torch.cat([self.scale(ends), self.shift(ends)], 1)
        # An embedding lookup, because its gradient is summed in a fixed order on every device.
        scale_RH, shift_RH = F.embedding(owner_R.long(), norm_S2H).chunk(2, 1)
        plain_RH = F.layer_norm(x_RH, (width,), eps=self.base.config.layer_norm_eps)
        y_RH = F.dropout(plain_RH * scale_RH + shift_RH, self.dropout, self.training)
        objects: Tensor = self.object(y_RH)
        return objects.float().view(x_RH.shape[0], -1, 2)
