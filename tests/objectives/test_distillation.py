"""Each loss of a student against its definition written out, and what has a gradient of it."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from albertine.core.batch import Packed, pack
from albertine.errors import SettingsError
from albertine.model.attention import AttentionBlock
from albertine.model.block import FeedForwardBlock
from albertine.model.config import EncoderConfig
from albertine.model.model import Model
from albertine.model.sharing import SharingPlan
from albertine.objectives.attention_relations import (
    AttentionInputs,
    attention_inputs,
    map_divergence,
    relation_divergence,
)
from albertine.objectives.batch import PretrainingBatch
from albertine.objectives.distillation import (
    DistillationLosses,
    DistillationWeights,
    _maps,
    hidden_loss,
    soft_target_loss,
    teacher_layers,
)
from albertine.objectives.losses import pretraining_losses

LENGTHS = (5, 1, 9)


def config_of(depth: int = 2, *, hidden: int = 16, heads: int = 2, **changes: object) -> EncoderConfig:
    config = EncoderConfig(
        vocab_size=50,
        embedding_size=8,
        hidden_size=hidden,
        num_attention_heads=heads,
        intermediate_size=20,
        max_position_embeddings=32,
        initializer_range=0.5,
        plan=SharingPlan.unshared(depth),
    )
    return replace(config, **changes)  # type: ignore[arg-type]


def packed_of(lengths: tuple[int, ...] = LENGTHS, first: int = 0) -> Packed:
    """Sequences whose tokens are named by their number, from `first`, and by their places."""
    return pack([[(7 * i + 3 * j) % 45 + 5 for j in range(n)] for i, n in enumerate(lengths, first)])


def batch_of(
    weights: DistillationWeights, lengths: tuple[int, ...] = LENGTHS, first: int = 0
) -> PretrainingBatch:
    """Every second token is predicted, every pair is in order."""
    packed = packed_of(lengths, first)
    rows, count = torch.arange(0, packed.num_tokens, 2), len(lengths)
    samples, labels = torch.zeros(count, 2, dtype=torch.int64), torch.zeros(count, dtype=torch.int64)
    return PretrainingBatch(packed, rows, rows % 50, labels, count, samples, distillation=weights.names)


def losses_of(
    student: EncoderConfig, teacher: EncoderConfig, weights: DistillationWeights
) -> DistillationLosses:
    heads = {"mlm", "sop"}
    return DistillationLosses(Model(student, heads, seed=1), Model(teacher, heads, seed=2), weights, seed=3)


def kl(of: Tensor, given: Tensor) -> float:
    """Σ p·log(p / q) of two lists of chances, p being `given`."""
    return sum(float(p * (p / q).log()) for p, q in zip(given.double(), of.double(), strict=True))


@pytest.mark.parametrize(
    ("student", "teacher", "followed"),
    [
        (2, 4, (0, 2, 4)),
        (4, 12, (0, 3, 6, 9, 12)),
        (3, 4, (0, 1, 3, 4)),
        (6, 24, (0, 4, 8, 12, 16, 20, 24)),
        (4, 2, (0, 1, 1, 2, 2)),
        (5, 2, (0, 0, 1, 1, 2, 2)),
        (1, 5, (0, 5)),
    ],
)
def test_depths_are_mapped_evenly(student: int, teacher: int, followed: tuple[int, ...]) -> None:
    assert teacher_layers(student, teacher) == followed


def test_soft_targets_by_their_definition() -> None:
    torch.manual_seed(0)
    mine, its = torch.randn(4, 7) * 3, torch.randn(4, 7) * 3
    expected = 4.0 * sum(
        kl((x / 2).softmax(0), (y / 2).softmax(0)) for x, y in zip(mine.double(), its.double(), strict=True)
    )
    assert soft_target_loss(mine, its, 2.0).item() == pytest.approx(expected, rel=1e-5)
    assert soft_target_loss(its, its, 2.0).item() == pytest.approx(0.0, abs=1e-6)
    # In the limit of a high temperature the gradient is that of half the squared error of centred logits over
    # the classes, whatever the temperature: this is what T² is for.
    leaf = mine.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(soft_target_loss(leaf, its, 1000.0), leaf)
    centred = (mine - mine.mean(1, keepdim=True)) - (its - its.mean(1, keepdim=True))
    torch.testing.assert_close(gradient, centred / 7, rtol=1e-2, atol=1e-3)


def test_hidden_states_by_their_definition() -> None:
    torch.manual_seed(0)
    mine, its = torch.randn(3, 4), torch.randn(3, 4) * 9
    expected = sum(
        float(((x - y) ** 2).sum() / (y**2).sum()) for x, y in zip(mine.double(), its.double(), strict=True)
    )
    assert hidden_loss(mine, its).item() == pytest.approx(expected, rel=1e-5)


KINDS = {
    "learned": {},
    "rotary": {"positions": "rotary"},
    "pre-norm": {"positions": "rotary", "norm": "pre", "biases": False},
    "queries and keys normed": {"qk_norm": True},
    "norms of each depth": {
        "plan": SharingPlan((0, 0), (0, 0), own=("norms", "residuals")),
    },
}


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_compared_is_what_a_depth_attends_with(kind: str) -> None:
    """From queries, keys and values, by a loop over sequences, the next states come out."""
    model = Model(config_of(**KINDS[kind]), {"mlm"}, seed=4).eval()  # type: ignore[arg-type]
    encoder, packed = model.encoder, packed_of()
    with torch.no_grad():
        states = encoder(packed, all_depths=True).hidden_states
        assert states is not None
        for d in range(2):
            q, k, v = (x.split(LENGTHS) for x in attention_inputs(encoder, packed, states, d))
            mixed = []
            for q_LND, k_LND, v_LND in zip(q, k, v, strict=True):
                weights = (torch.einsum("lnd,mnd->nlm", q_LND, k_LND) / 8**0.5).softmax(-1)
                mixed.append(torch.einsum("nlm,mnd->lnd", weights, v_LND).flatten(1))
            attention = encoder.attention[encoder.config.plan.attention[d]]
            feed_forward = encoder.feed_forward[encoder.config.plan.feed_forward[d]]
            assert isinstance(attention, AttentionBlock) and isinstance(feed_forward, FeedForwardBlock)
            own = None if encoder.own is None else encoder.own[d]
            parts = (None, None) if own is None else (own.attention, own.feed_forward)
            x = attention.residual_add(attention.output, torch.cat(mixed), states[d], states[d], parts[0])
            after = feed_forward(x, parts[1])
            if d == 1 and encoder.final_norm is not None:
                after = encoder.final_norm(after)
            torch.testing.assert_close(after, states[d + 1], rtol=1e-4, atol=1e-4)


def attended_of(heads: int, size: int, seed: int) -> AttentionInputs:
    torch.manual_seed(seed)
    return AttentionInputs(*(torch.randn(sum(LENGTHS), heads, size) for _ in range(3)))


def by_definition(mine: tuple[Tensor, Tensor], its: tuple[Tensor, Tensor]) -> float:
    """The mean over heads of the summed divergence, one query at a time."""
    total, first, heads = 0.0, 0, mine[0].shape[1]
    for length in LENGTHS:
        rows = range(first, first + length)
        for head in range(heads):
            for i in rows:
                chances = [
                    torch.stack([a[i, head] @ b[j, head] for j in rows]).double() / a.shape[2] ** 0.5
                    for a, b in (mine, its)
                ]
                total += kl(chances[0].softmax(0), chances[1].softmax(0))
        first += length
    return total / heads


def test_attention_maps_by_their_definition() -> None:
    mine, its = attended_of(2, 4, 0), attended_of(2, 8, 1)  # as many heads, of another size
    expected = by_definition((mine.queries, mine.keys), (its.queries, its.keys))
    assert map_divergence(mine, its, LENGTHS).item() == pytest.approx(expected, rel=1e-4)


def test_relations_by_their_definition() -> None:
    mine, its = attended_of(2, 6, 0), attended_of(4, 8, 1)  # 12 and 32 numbers a row, cut into 4 heads
    cut = [[x.flatten(1).view(-1, 4, x[0].numel() // 4) for x in one] for one in (mine, its)]
    expected = sum(by_definition((a, a), (b, b)) for a, b in zip(*cut, strict=True)) / 3
    assert relation_divergence(mine, its, LENGTHS, 4).item() == pytest.approx(expected, rel=1e-4)


def test_parts_are_those_that_a_batch_counts_and_no_others() -> None:
    for weights in (
        DistillationWeights(),
        DistillationWeights(soft=0),
        DistillationWeights(hidden=0, attention=0),
        DistillationWeights(1, 0, 1),
    ):
        losses, batch = losses_of(config_of(), config_of(4), weights), batch_of(weights)
        parts = losses(losses.trained, batch)
        assert {name: part.count for name, part in parts.items()} == batch.counts
    assert batch_of(DistillationWeights()).counts == {
        "mlm": 8,
        "sentence": 3,
        "soft": 8,
        "hidden": 15,
        "attention": 15,
    }


def test_a_depth_that_follows_the_embeddings_attends_as_the_teachers_first() -> None:
    """Of five depths under two the first follows none of the two, but the states that it reads."""
    weights = DistillationWeights(soft=0, hidden=0, attention=1)
    losses = losses_of(config_of(5), config_of(2), weights)
    batch = batch_of(weights)
    mine, its = losses.student.encoder, losses.teacher.encoder
    with torch.no_grad():
        loss = losses(losses.trained, batch)["attention"].loss_sum.item()
        states = [encoder(batch.packed, all_depths=True).hidden_states for encoder in (mine, its)]
        expected = sum(
            map_divergence(
                attention_inputs(mine, batch.packed, states[0], d),
                attention_inputs(its, batch.packed, states[1], e),
                LENGTHS,
            ).item()
            for d, e in enumerate((0, 0, 0, 1, 1))
        )
    assert loss == pytest.approx(expected / 5, rel=1e-4)


@pytest.mark.parametrize("hidden", [16, 12])
def test_a_batch_may_be_cut_anywhere(hidden: int) -> None:
    weights = DistillationWeights()
    losses = losses_of(config_of(hidden=hidden), config_of(4), weights)
    cuts = ((4, 6, 2, 8), 0), ((4, 6), 0), ((2, 8), 2)
    whole, *halves = (losses(losses.trained, batch_of(weights, *cut)) for cut in cuts)
    for name in weights.names:
        together = sum(half[name].loss_sum.item() for half in halves)
        assert whole[name].loss_sum.item() == pytest.approx(together, rel=1e-4) and together > 0


@pytest.mark.parametrize("hidden", [16, 12])
def test_gradients_reach_only_the_student_and_its_maps(hidden: int) -> None:
    losses = losses_of(config_of(hidden=hidden), config_of(4), DistillationWeights())
    losses.trained.train()
    parts = losses(losses.trained, batch_of(DistillationWeights()))
    assert not losses.teacher.training
    torch.stack([part.loss_sum for part in parts.values()]).sum().backward()
    assert all(p.grad is None and not p.requires_grad for p in losses.teacher.parameters())
    named = dict(losses.trained.named_parameters())
    assert all(p.grad is not None and bool(p.grad.any()) for n, p in named.items() if "key.bias" not in n)
    assert [n for n in named if n.startswith("maps.")] == (
        [] if hidden == 16 else [f"maps.{i}.weight" for i in range(3)]
    )


@pytest.mark.parametrize("part", ["soft", "hidden", "attention"])
def test_the_gradient_is_that_of_plain_torch(part: str) -> None:
    """Kernels sum the gradients of a weight inside its products; the second use of queries counts."""
    only = {"soft": 0.0, "hidden": 0.0, "attention": 0.0, part: 1.0}
    gradients = []
    for backend in ("auto", "plain"):
        losses = losses_of(
            config_of(positions="rotary"), config_of(4, positions="rotary"), DistillationWeights(**only)
        )
        losses.student.encoder.backend = backend
        loss = losses(losses.trained, batch_of(losses.weights))[part].loss_sum
        wanted = [p for n, p in losses.student.named_parameters() if "attention.0." in n]
        gradients.append(torch.autograd.grad(loss, wanted, allow_unused=True))
    for one, other in zip(*gradients, strict=True):
        assert (one is None) == (other is None)
        if one is not None and other is not None:
            torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)


def test_a_student_that_is_its_teacher_has_nothing_to_learn() -> None:
    model, weights = Model(config_of(), {"mlm", "sop"}, seed=2).eval(), DistillationWeights()
    twin = Model(config_of(), {"mlm", "sop"}, seed=2).eval()
    parts = DistillationLosses(model, twin, weights)(model, batch_of(weights))
    for name in weights.names:
        assert parts[name].loss_sum.item() == pytest.approx(0.0, abs=1e-4)
    assert int(parts["soft"].correct) == parts["soft"].count


def test_the_student_runs_once_and_hard_label_losses_are_unchanged() -> None:
    weights = DistillationWeights()
    losses = losses_of(config_of(), config_of(4), weights)
    batch = batch_of(weights)
    mine, usual = losses(losses.trained, batch), pretraining_losses(losses.student, batch)
    for name in ("mlm", "sentence"):
        assert mine[name].loss_sum.item() == pytest.approx(usual[name].loss_sum.item(), rel=1e-5)
        assert int(mine[name].correct) == int(usual[name].correct)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"positions": "relative", "type_vocab_size": 0, "embedding_norm": False}, "relative positions"),
        ({"step_signal": "learned", "plan": SharingPlan.shared(2)}, "signals before every step"),
        ({"input_injection": True, "plan": SharingPlan.shared(2)}, "an input injection"),
    ],
)
def test_attention_of_another_kind_is_refused(changes: dict[str, object], message: str) -> None:
    odd = config_of(**changes)  # type: ignore[arg-type]
    with pytest.raises(SettingsError, match=f"the teacher has {message}"):
        losses_of(config_of(), odd, DistillationWeights())
    losses = losses_of(config_of(), odd, DistillationWeights(attention=0))
    assert losses(losses.trained, batch_of(losses.weights))["hidden"].loss_sum.item() > 0


def test_relation_heads_fit_both_widths() -> None:
    losses = losses_of(config_of(hidden=18, heads=3), config_of(hidden=24, heads=4), DistillationWeights())
    assert losses.relation_heads == 2
    assert losses_of(config_of(hidden=12), config_of(), DistillationWeights()).relation_heads is None


def test_each_loss_has_its_weight_over_the_compared_layers() -> None:
    weights = DistillationWeights(soft=0.5, hidden=3.0, attention=0.2, temperature=4.0)
    losses, batch = losses_of(config_of(), config_of(4), weights), batch_of(weights)
    mine, its = losses.student, losses.teacher
    with torch.no_grad():
        sums = {name: part.loss_sum.item() for name, part in losses(losses.trained, batch).items()}
        a, b = (m.encoder(batch.packed, all_depths=True).hidden_states for m in (mine, its))
        logits = [m.mlm_logits(x[-1][batch.mlm_positions]) for m, x in ((mine, a), (its, b))]
        soft = soft_target_loss(*logits, 4.0).item()
        hidden = sum(hidden_loss(a[d], b[2 * d]).item() for d in range(3)) / 3
        maps = [
            map_divergence(
                attention_inputs(mine.encoder, batch.packed, a, d),
                attention_inputs(its.encoder, batch.packed, b, 2 * d + 1),
                LENGTHS,
            ).item()
            for d in range(2)
        ]
    wanted = {"soft": 0.5 * soft, "hidden": 3 * hidden, "attention": 0.2 * sum(maps) / 2}
    assert {name: sums[name] for name in wanted} == pytest.approx(wanted, rel=1e-4)


def test_maps_are_drawn_on_the_processor_whatever_device_is_the_default() -> None:
    wanted = _maps(1, 4, 6, 1)[0].weight
    with torch.device("meta"):
        _maps(1, 4, 6, 1)
    assert torch.equal(_maps(1, 4, 6, 1)[0].weight, wanted)
