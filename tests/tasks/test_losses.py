"""What a classifier learns from, by hand."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn.functional import softplus

from albertine.tasks.classify import Classify
from albertine.tasks.encoded import TaskBatch
from albertine.tasks.multiple_choice import Choose

LOGITS = torch.tensor([[2.0, -1.0, 0.5], [0.0, 1.0, -3.0]])


def batch(targets: torch.Tensor, rows: tuple[int, ...] = (1, 1)) -> TaskBatch:
    packed: Any = None  # not looked at
    return TaskBatch(packed, targets, rows, len(targets))


def test_several_classes_weigh_as_much_as_one() -> None:
    """The mean over the classes of a text: the rate need not follow their number."""
    targets = torch.tensor([[1.0, 0.0, 1.0], [0.0, 1.0, 1.0]])
    part = Classify("multi", ("a", "b", "c"), (), 8).loss(LOGITS, batch(targets))
    signs = torch.where(targets > 0, -LOGITS, LOGITS)
    assert float(part.loss_sum) == pytest.approx(float(softplus(signs).mean(-1).sum()), rel=1e-6)
    assert (part.count, int(part.correct)) == (2, 1)


def test_classes_have_their_weights_and_scores_their_squares() -> None:
    right, weights = torch.tensor([0, 2]), torch.tensor([1.0, 5.0, 3.0])
    part = Classify("single", ("a", "b", "c"), (), 8, weights).loss(LOGITS, batch(right))
    each = -LOGITS.log_softmax(-1)[[0, 1], right]
    assert float(part.loss_sum) == pytest.approx(float(each[0] + 3 * each[1]), rel=1e-6)
    part = Classify("score", (), (), 8).loss(torch.tensor([[1.0], [3.0]]), batch(torch.tensor([1.4, 2.0])))
    assert float(part.loss_sum) == pytest.approx(1.16) and int(part.correct) == 1


def test_an_option_that_is_not_there_is_never_chosen() -> None:
    """However low the others are: one of two questions has an option fewer."""
    logits = torch.tensor([[-3e4], [-3e4 - 1], [5.0], [4.0], [3.0]])
    part = Choose(8).loss(logits, batch(torch.tensor([0, 1]), (2, 3)))
    first, second = (-rows.squeeze(-1).log_softmax(-1) for rows in (logits[:2], logits[2:]))
    assert float(part.loss_sum) == pytest.approx(float(first[0] + second[1]), rel=1e-5)
    assert (part.count, int(part.correct)) == (2, 1)
