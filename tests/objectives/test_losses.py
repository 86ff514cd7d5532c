from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from albertine.core.batch import Packed
from albertine.model.backend.base import Backend
from albertine.model.config import EncoderConfig
from albertine.model.model import Model
from albertine.model.sharing import SharingPlan
from albertine.objectives.batch import PretrainingBatch
from albertine.objectives.losses import pretraining_losses


class Fixed:
    """A model that answers with the logits it was given."""

    def __init__(self, mlm: Tensor, sentence: Tensor | None) -> None:
        self.mlm, self.sentence = mlm, sentence

    def pretraining_forward(
        self,
        packed: Packed,
        mlm_rows: Tensor,
        *,
        depth: int | None = None,
        loops: int | None = None,
        sentence: bool = True,
    ) -> tuple[Tensor, Tensor | None]:
        assert depth is None and loops is None and sentence == (self.sentence is not None)
        assert len(mlm_rows) == len(self.mlm)
        return self.mlm, self.sentence


def batch_of(labels: list[int], sentence: list[int] | None) -> PretrainingBatch:
    count = len(sentence or [0])
    ids = torch.arange(4 * count)
    packed = Packed(ids, ids * 0, ids % 4, torch.arange(0, 4 * count + 1, 4, dtype=torch.int32), (4,) * count)
    labelled = None if sentence is None else torch.tensor(sentence)
    return PretrainingBatch(
        packed,
        torch.arange(len(labels)),
        torch.tensor(labels, dtype=torch.int64),
        labelled,
        0 if labelled is None else int((labelled >= 0).sum()),
        torch.zeros(count, 2, dtype=torch.int64),
    )


def test_sums_counts_and_hits_by_hand() -> None:
    log2, log3 = math.log(2), math.log(3)
    mlm = torch.tensor([[log3, 0.0], [0.0, 0.0], [0.0, log3]], requires_grad=True)
    sentence = torch.tensor([[0.0, log3], [9.0, 0.0], [log3, 0.0]], requires_grad=True)
    parts = pretraining_losses(Fixed(mlm, sentence), batch_of([0, 0, 0], [1, -100, 1]))
    # -log(3/4) - log(1/2) - log(1/4), and -log(3/4) - log(1/4); the sample without a label counts nowhere.
    assert parts["mlm"].loss_sum.item() == pytest.approx(2 * log2 - log3 + log2 + 2 * log2)
    assert parts["sentence"].loss_sum.item() == pytest.approx(4 * log2 - log3)
    assert (parts["mlm"].count, parts["sentence"].count) == (3, 2)
    assert (int(parts["mlm"].correct), int(parts["sentence"].correct)) == (2, 1)
    assert parts["mlm"].mean.item() == pytest.approx(parts["mlm"].loss_sum.item() / (3 + 1e-5), rel=1e-7)
    sum(p.loss_sum for p in parts.values()).backward()  # type: ignore[union-attr]
    assert mlm.grad is not None and sentence.grad is not None
    torch.testing.assert_close(mlm.grad[1], torch.tensor([-0.5, 0.5]))
    assert sentence.grad[1].tolist() == [0.0, 0.0]


def test_softmax_of_bfloat16_logits_is_taken_in_float32() -> None:
    torch.manual_seed(0)
    logits = (torch.randn(64, 5000) * 4).bfloat16()
    labels = torch.randint(0, 5000, (64,))
    part = pretraining_losses(Fixed(logits, None), batch_of(labels.tolist(), None))["mlm"]
    exact = torch.nn.functional.cross_entropy(logits.double(), labels, reduction="sum")
    assert part.loss_sum.dtype == torch.float32
    assert part.loss_sum.item() == pytest.approx(exact.item(), rel=1e-6)


@pytest.mark.parametrize("count", [1, 15, 16, 17, 30])
def test_logits_are_of_a_multiple_of_rows_without_a_trace(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Products of few different shapes are fast; the filler must not be a prediction."""
    config = EncoderConfig(
        vocab_size=50,
        embedding_size=8,
        hidden_size=16,
        num_attention_heads=2,
        intermediate_size=20,
        max_position_embeddings=64,
        plan=SharingPlan.shared(2),
    )
    model = Model(config, {"mlm"}, seed=3, precision="bfloat16")
    rows = torch.arange(1, 49)
    packed = Packed(rows, rows * 0, rows - 1, torch.tensor([0, 48], dtype=torch.int32), (48,))
    positions = torch.arange(48).flip(0)[:count].flip(0)
    labels = torch.arange(count) % 50
    batch = PretrainingBatch(packed, positions, labels, None, 0, torch.zeros(1, 2, dtype=torch.int64))
    computed: list[int] = []
    tied = Backend.tied

    def spy(self: Backend, x: Tensor, word: Tensor, bias: Tensor) -> Tensor:
        computed.append(len(x))
        return tied(self, x, word, bias)

    monkeypatch.setattr(Backend, "tied", spy)
    part = pretraining_losses(model, batch)["mlm"]
    assert [n % 16 for n in computed] == [0]
    logits, _ = model.pretraining_forward(packed, positions)
    assert len(logits) == count
    plain = torch.nn.functional.cross_entropy(logits.float(), labels, reduction="sum")
    assert part.count == count
    assert part.loss_sum.item() == pytest.approx(plain.item(), rel=1e-6)
    assert int(part.correct) == int((logits.argmax(1) == labels).sum())
    model.encoder.backend = "plain"
    logits, _ = model.pretraining_forward(packed, positions)
    assert computed[-1] == count
    plain = torch.nn.functional.cross_entropy(logits.float(), labels, reduction="sum")
    mine, theirs = (torch.autograd.grad(x, list(model.parameters())) for x in (part.loss_sum, plain))
    for a, b in zip(mine, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=0.1, atol=0.02 * float(b.abs().max()) + 1e-3)
