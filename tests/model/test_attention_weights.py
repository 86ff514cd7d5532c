"""Attention weights and hidden states of a pass: those of the reference, and of the fast passes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from albertine.core.batch import pack
from albertine.core.randomness import seed_torch
from albertine.errors import SettingsError
from albertine.model.sharing import SharingPlan
from tests import reference
from tests.model import builders
from tests.model.test_universal import universal

LENGTHS = [5, 9, 1, 7, 3, 9]
RELATIVE = {"positions": "relative", "embedding_norm": False}
MODERN = {"positions": "rotary", "norm": "pre", "feed_forward": "gated", "biases": False}
KINDS: dict[str, dict[str, Any]] = {
    "shared": {},
    "unshared": {"plan": SharingPlan.unshared(3)},
    "groups": {"plan": SharingPlan.grouped(4, 2)},
    "feed-forward alone": {"plan": SharingPlan.feed_forward_only(3)},
    "norms of its own": {"plan": replace(SharingPlan.shared(3), own=("norms", "residuals"))},
    "rotary": {"positions": "rotary"},
    "queries normed": {"positions": "rotary", "qk_norm": True},
    "relative": RELATIVE,
    "relative unshared": RELATIVE | {"plan": SharingPlan.unshared(2)},
    "pre-norm": MODERN,
    "pre-norm unshared": MODERN | {"plan": SharingPlan.unshared(3), "embedding_norm": False},
    "signals": {"positions": "none", "position_signal": "sinusoid", "step_signal": "learned"},
}


def batch_of(lengths: list[int] = LENGTHS) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return builders.padded(builders.packed(lengths))


@pytest.mark.parametrize("kind", KINDS)
def test_weights_and_states_equal_the_reference_and_the_fast_pass(kind: str) -> None:
    model = builders.model(**KINDS[kind])
    ids, mask, types = batch_of()
    with torch.no_grad():
        found = model(ids, mask, types, output_hidden_states=True, output_attentions=True)
        fast = model(ids, mask, types, output_hidden_states=True)
        states, expected = reference.encode_with_weights(model, ids, mask, types)
    assert (found.last_hidden_state - fast.last_hidden_state).abs().max() <= 1e-5
    assert (found.pooler_output - fast.pooler_output).abs().max() <= 1e-5
    real = mask.bool()
    for mine, yours, theirs in zip(found.hidden_states, fast.hidden_states, states, strict=True):
        assert (mine - yours).abs().max() <= 1e-5
        assert (mine - theirs)[real].abs().max() <= 3e-5
    pairs = (real[:, :, None] & real[:, None]).float()[:, None]
    assert len(found.attentions) == model.config.plan.depth
    for mine, theirs in zip(found.attentions, expected, strict=True):
        assert mine.shape == (len(LENGTHS), 4, 9, 9)
        assert (mine - theirs * pairs).abs().max() <= 1e-5  # zeros at padding
        assert (mine.sum(-1) - mask[:, None]).abs().max() <= 1e-5


@pytest.mark.parametrize("kind", ["shared", "relative", "rotary"])
def test_padding_may_stand_anywhere(kind: str) -> None:
    model = builders.model(**KINDS[kind])
    ids, _, types = batch_of([12, 12, 12])
    mask = torch.ones_like(ids)
    mask[0, :4], mask[1, 5:8], mask[2, 7:] = 0, 0, 0
    with torch.no_grad():
        found = model(ids, mask, types, output_attentions=True).attentions
        expected = reference.attentions(model, ids, mask, types)
    pairs = (mask[:, None, :, None] * mask[:, None, None, :]).float()
    for mine, theirs in zip(found, expected, strict=True):
        assert (mine - theirs * pairs).abs().max() <= 1e-5


def test_nothing_more_is_returned_than_was_requested() -> None:
    model = builders.model()
    ids, mask, types = batch_of([4, 2])
    assert model(ids, mask, types).attentions is None and model(ids, mask, types).hidden_states is None
    found = model(ids, mask, types, output_attentions=True)
    assert found.hidden_states is None and len(found.attentions) == 3
    assert model.encoder(builders.packed([4, 2]), depth=0, attention_weights=True).attentions == ()


@pytest.mark.parametrize("kind", ["basic", "accumulated"])
def test_of_a_sequence_that_has_halted_there_are_zeros(kind: str) -> None:
    model = universal(kind)
    batch = builders.packed([5, 1, 12, 9, 3])
    with torch.no_grad():
        out = model.encoder(batch, attention_weights=True)
        expected = reference.attentions(model, *builders.padded(batch))
        fast = model.encoder(batch)
    assert (out.last_hidden - fast.last_hidden).abs().max() <= 1e-5
    steps = [int(x.max()) for x in out.ponder.steps.split(batch.lengths)]
    assert len({*steps}) > 1 and min(steps) < 6  # which is what is compared here
    assert len(out.attentions) == 6
    for d, (layer, theirs) in enumerate(zip(out.attentions, expected, strict=True)):
        for s, (n, weights) in enumerate(zip(batch.lengths, layer, strict=True)):
            right = theirs[s, :, :n, :n] if d < steps[s] else torch.zeros(4, n, n)
            assert (weights - right).abs().max() <= 1e-5


def test_at_a_fixed_point_there_are_the_weights_of_that_point() -> None:
    plan = SharingPlan.shared(60)
    model = builders.model(
        plan, solver="anderson", input_injection=True, initializer_range=0.2, tolerance=1e-6
    )
    lengths = [4, 9, 4]
    ids, mask, types = batch_of(lengths)
    with torch.no_grad():
        out = model(ids, mask, types, output_hidden_states=True, output_attentions=True)
        fast = model(ids, mask, types)
        assert len(out.attentions) == 1 and len(out.hidden_states) == 2
        assert (out.last_hidden_state - fast.last_hidden_state).abs().max() <= 1e-4
        p = dict(model.named_parameters())
        for s, n in enumerate(lengths):
            point = reference.fixed_point(model, ids[s, :n], types[s, :n], 60)
            start = reference._embed(p, model.config, ids[s, :n], types[s, :n])
            name, ones = "encoder.attention.0", torch.ones(n)
            _, weights = reference.attention(p, name, point, ones, model.config, start)
            assert (out.attentions[0][s, :, :n, :n] - weights).abs().max() <= 1e-4


@pytest.mark.parametrize("kind", ["shared", "relative"])
@pytest.mark.parametrize("recompute", [False, True])
def test_gradients_pass_through_the_weights(kind: str, recompute: bool) -> None:
    """Catches: weights that were detached, or computed twice."""
    model = builders.model(**KINDS[kind]).double()
    model.encoder.recompute = recompute
    ids, mask, types = batch_of([4, 7])
    weight = model.encoder.attention[0].query.weight

    def loss() -> torch.Tensor:
        found = model(ids, mask, types, output_attentions=True).attentions
        return sum(x.square().sum() for x in found)  # type: ignore[return-value]

    loss().backward()
    gradient, small = float(weight.grad[1, 2]), 1e-6
    with torch.no_grad():
        weight[1, 2] += small
        above = float(loss())
        weight[1, 2] -= 2 * small
        below = float(loss())
    assert gradient == pytest.approx((above - below) / (2 * small), rel=1e-4)


def test_weights_are_those_before_dropout() -> None:
    model = builders.model(attention_probs_dropout_prob=0.4)
    ids, mask, types = batch_of([6, 3])
    right = model(ids, mask, types, output_attentions=True).attentions[0]
    seed_torch(1, "dropout")
    model.train()
    assert torch.allclose(model(ids, mask, types, output_attentions=True).attentions[0], right, atol=1e-6)


def test_bfloat16_and_a_pass_within_another_one() -> None:
    model = builders.model()
    ids, mask, types = batch_of([6, 3])
    with torch.no_grad():
        right = model(ids, mask, types, output_attentions=True).attentions
        with model.encoder.forward_pass():
            again = model(ids, mask, types, output_attentions=True).attentions
        assert all(torch.equal(a, b) for a, b in zip(right, again, strict=True))
        model.precision = "bfloat16"
        rough = model(ids, mask, types, output_attentions=True).attentions
    assert all((a - b).abs().max() <= 0.05 for a, b in zip(right, rough, strict=True))


def test_what_has_no_weights_is_refused() -> None:
    model = builders.model()
    batch = pack([[1, 2, 3]])
    with pytest.raises(SettingsError, match="every row"):
        model.encoder(batch, rows=torch.tensor([0]), attention_weights=True)
    model.precision = "int8"
    with torch.inference_mode(), pytest.raises(SettingsError, match="not computed with int8") as caught:
        model.encoder(batch, attention_weights=True)
    assert "precision" in caught.value.remedy
