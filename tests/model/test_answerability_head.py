"""The joint head of SQuAD v2.0 against a padded one written out in loops, and against transformers' parts."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from albertine.core.batch import Packed, pack
from albertine.model.answerability_head import ENDS, STARTS, Beam, JointAnswer
from albertine.tasks.answerability import AnswerOrNot
from albertine.tasks.encoded import TaskBatch
from tests import reference
from tests.model import builders

SHAPES = [(3, 9), (1, 14), (6, 2), (2, 0)]  # tokens of the question and of the passage


@pytest.fixture(params=["first", "last"])
def summary(request: pytest.FixtureRequest) -> str:
    """Where [CLS] is, and with it the passage: XLNet has the passage first, then the question, then [CLS]."""
    return str(request.param)


@pytest.fixture
def model(summary: str) -> JointAnswer:
    made = JointAnswer(builders.model(summary=summary, type_vocab_size=3), dropout=0.5, seed=4)
    generator = torch.Generator().manual_seed(8)
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            if not name.startswith("base.") and parameter.ndim == 1:
                parameter.add_(0.2 * torch.randn(parameter.shape, generator=generator))
    return made.eval()


@pytest.fixture
def batch(summary: str) -> Packed:
    """[CLS] question [SEP] passage [SEP] of several lengths; the last passage is empty."""
    ids = builders.sequences([q + p + 3 for q, p in SHAPES], seed=2)
    if summary == "last":
        return pack(ids, [np.repeat([0, 1, 2], [p + 1, q + 1, 1]) for q, p in SHAPES])
    return pack(ids, [np.repeat([0, 1], [q + 2, p + 1]) for q, p in SHAPES])


@pytest.fixture
def targets(summary: str) -> Tensor:
    """Two answers and twice none."""
    if summary == "last":
        return torch.tensor([[0, 3], [17, 17], [1, 1], [4, 4]])
    return torch.tensor([[5, 8], [0, 0], [9, 9], [0, 0]])


class Written:
    """The head as google-research/albert's `squad_utils.py` has it, over a padded batch, a window and a token
    at a time."""

    def __init__(self, model: JointAnswer, batch: Packed) -> None:
        self.p, self.eps = dict(model.named_parameters()), model.base.config.layer_norm_eps
        ids, mask, types = builders.padded(batch)
        self.hidden = reference.encode(model.base, ids, mask, types)[-1]
        self.length = ids.shape[1]
        self.p_mask = torch.ones(ids.shape)
        last = model.base.config.summary == "last"
        self.cls = torch.tensor([q + p + 2 if last else 0 for q, p in SHAPES])
        for row, (question, passage) in enumerate(SHAPES):
            begin = 0 if last else question + 2
            self.p_mask[row, self.cls[row]] = 0
            self.p_mask[row, begin : begin + passage] = 0

    def dense(self, name: str, x: Tensor) -> Tensor:
        y = self.p[f"{name}.weight"] @ x
        return y + self.p[f"{name}.bias"] if f"{name}.bias" in self.p else y

    def masked(self, logits: Tensor, row: int) -> Tensor:
        return logits * (1 - self.p_mask[row]) - 1e30 * self.p_mask[row]

    def starts(self, row: int) -> Tensor:
        logits = torch.stack([self.dense("start_logits.dense", x)[0] for x in self.hidden[row]])
        return torch.log_softmax(self.masked(logits, row), -1)

    def ends(self, row: int, start: int) -> Tensor:
        logits = []
        for x in self.hidden[row]:
            y = torch.tanh(self.dense("end_logits.dense_0", torch.cat([x, self.hidden[row, start]])))
            y = reference.layer_norm(self.p, "end_logits.LayerNorm", y, self.eps)
            logits.append(self.dense("end_logits.dense_1", y)[0])
        return torch.log_softmax(self.masked(torch.stack(logits), row), -1)

    def impossible(self, row: int) -> Tensor:
        expected = torch.zeros(self.hidden.shape[2])
        for weight, x in zip(self.starts(row).exp(), self.hidden[row], strict=True):
            expected = expected + weight * x
        y = torch.tanh(
            self.dense("answer_class.dense_0", torch.cat([expected, self.hidden[row, self.cls[row]]]))
        )
        return self.dense("answer_class.dense_1", y)[0]

    def beam(self, row: int) -> list[tuple[int, int, float]]:
        found = []
        starts = self.starts(row)
        for start in starts.argsort(descending=True)[:5].tolist():
            ends = self.ends(row, start)
            for end in ends.argsort(descending=True)[:5].tolist():
                found.append((start, end, (starts[start] + ends[end]).item()))
        return found


def test_training_equals_the_head_written_out(model: JointAnswer, batch: Packed, targets: Tensor) -> None:
    written = Written(model, batch)
    part = AnswerOrNot().part(model, TaskBatch(batch, targets, (1,) * 4, 4))
    logits = model.learn(batch, targets[:, 0])
    total = 0.0
    for row, (start, end) in enumerate(targets.tolist()):
        length = batch.lengths[row]
        inside = written.p_mask[row, :length] == 0
        for ours, theirs in (
            (logits.starts, written.starts(row)),
            (logits.ends, written.ends(row, start)),
        ):
            mine = ours[row, :length]
            assert (ours[row, length:] == -math.inf).all()
            torch.testing.assert_close(mine[inside], theirs[:length][inside], atol=2e-5, rtol=1e-4)
            assert (mine[~inside] < -1e29).all()
        torch.testing.assert_close(logits.impossible[row], written.impossible(row), atol=2e-5, rtol=1e-4)
        spans = -(written.starts(row)[start] + written.ends(row, start)[end]) / 2
        yes = torch.sigmoid(written.impossible(row))
        total += (spans + 0.5 * -torch.log(yes if start == written.cls[row] else 1 - yes)).item()
    assert part.loss_sum.item() == pytest.approx(total, rel=1e-4)
    assert part.count == 4


def test_the_beam_equals_the_head_written_out(model: JointAnswer, batch: Packed) -> None:
    written = Written(model, batch)
    with torch.no_grad():
        beam = Beam.of(model(batch))
    assert beam.scores.shape == (4, STARTS * ENDS)
    for row in range(4):
        theirs = [found for found in written.beam(row) if found[2] > -1e29]
        ours = [
            (s, e, v)
            for s, e, v in zip(*(x[row].tolist() for x in beam[:3]), strict=True)
            if math.isfinite(v) and v > -1e29
        ]
        assert [found[:2] for found in ours] == [found[:2] for found in theirs]
        assert [found[2] for found in ours] == pytest.approx([found[2] for found in theirs], abs=1e-4)
        assert float(beam.impossible[row]) == pytest.approx(written.impossible(row).item(), abs=1e-4)


def test_the_parts_are_those_of_transformers_xlnet(
    model: JointAnswer, batch: Packed, targets: Tensor
) -> None:
    from transformers import XLNetConfig
    from transformers.models.xlnet import modeling_xlnet as theirs

    written, size = Written(model, batch), model.base.config.hidden_size
    config = XLNetConfig(d_model=size, n_head=4, layer_norm_eps=model.base.config.layer_norm_eps)

    def part(name: str, kind: Any) -> Any:
        made = kind(config).eval()
        prefix = f"{name}."
        made.load_state_dict(
            {k.removeprefix(prefix): v for k, v in model.head.items() if k.startswith(prefix)}
        )
        return made

    start = part("start_logits", theirs.XLNetPoolerStartLogits)
    end = part("end_logits", theirs.XLNetPoolerEndLogits)
    answer = part("answer_class", theirs.XLNetPoolerAnswerClass)
    with torch.no_grad():
        starts = start(written.hidden, p_mask=written.p_mask).log_softmax(-1)
        ends = end(written.hidden, start_positions=targets[:, 0], p_mask=written.p_mask).log_softmax(-1)
        expected = torch.einsum("blh,bl->bh", written.hidden, starts.exp())
        impossible = answer(written.hidden, start_states=expected, cls_index=written.cls)
        ours = model.learn(batch, targets[:, 0])
    for name, wanted in (("starts", starts), ("ends", ends)):
        for mine, row, length in zip(getattr(ours, name), wanted, batch.lengths, strict=True):
            torch.testing.assert_close(mine[:length], row[:length], atol=2e-5, rtol=1e-4)
    torch.testing.assert_close(ours.impossible, impossible, atol=2e-5, rtol=1e-4)


def test_a_window_does_not_depend_on_its_neighbours(model: JointAnswer, batch: Packed) -> None:
    together = Beam.of(model(batch))
    ids, types = batch.input_ids.split(batch.lengths), batch.token_type_ids.split(batch.lengths)
    for row in range(4):
        alone = Beam.of(model(pack([ids[row].numpy()], [types[row].numpy()])))
        there = alone.scores[0] > -1e29  # the order of masked ones means nothing
        for a, b in zip(alone[:3], together[:3], strict=True):
            torch.testing.assert_close(a[0][there], b[row][there], atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(alone.impossible[0], together.impossible[row], atol=1e-5, rtol=1e-5)


def test_every_part_of_the_head_learns_and_dropout_is_for_training(
    model: JointAnswer, batch: Packed, targets: Tensor
) -> None:
    model.train()
    family = AnswerOrNot()
    losses = {family.part(model, TaskBatch(batch, targets, (1,) * 4, 4)).loss_sum.item() for _ in range(3)}
    assert len(losses) == 3
    family.part(model, TaskBatch(batch, targets, (1,) * 4, 4)).loss_sum.backward()
    for name, parameter in model.named_parameters():
        if not name.startswith(("base.mlm", "base.pooler", "base.sentence")):
            assert parameter.grad is not None and parameter.grad.isfinite().all(), name
            shift = name in ("start_logits.dense.bias", "end_logits.dense_1.bias")  # nothing to a softmax
            assert shift or parameter.grad.abs().sum() > 0, name
