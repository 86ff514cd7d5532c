"""Subject and object probabilities of a torch relation model."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from albertine.core.batch import Packed
from albertine.inference.triples import Subject
from albertine.model.relation_head import OBJECT_POWER, SUBJECT_POWER, Relations, probability


class TorchPointers:
    """A `triples.PointerModel` of texts, whose hidden states are computed once.

    Attributes:
        lengths: tokens of every row.
    """

    def __init__(self, model: Relations, packed: Packed) -> None:
        self.lengths: Sequence[int] = packed.lengths
        self._model, self._x_TH = model, model.base.encoder(packed).last_hidden
        self._offsets = [0, *accumulate(packed.lengths)]

    def subjects(self) -> NDArray[Any]:
        """Probabilities (T, 2)."""
        found: NDArray[Any] = probability(self._model.subjects(self._x_TH), SUBJECT_POWER).cpu().numpy()
        return found

    def objects(self, subjects: Sequence[Subject]) -> NDArray[Any]:
        """Probabilities (R, predicates, 2)."""
        at = [self._offsets[text] for text, _, _ in subjects]
        lengths = [self.lengths[text] for text, _, _ in subjects]
        rows = np.concatenate([np.arange(begin, begin + n) for begin, n in zip(at, lengths, strict=True)])
        ends = [[begin + first, begin + last] for begin, (_, first, last) in zip(at, subjects, strict=True)]
        owner = np.repeat(np.arange(len(subjects)), lengths)
        x_TH = self._x_TH
        rows_R, ends_S2, owner_R = (torch.as_tensor(x, device=x_TH.device) for x in (rows, ends, owner))
        logits = self._model.objects(x_TH.index_select(0, rows_R), x_TH[ends_S2], owner_R)
        found: NDArray[Any] = probability(logits, OBJECT_POWER).cpu().numpy()
        return found
