"""Another number of layers from one set of weights: more or fewer loops of a repeated core."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from albertine.errors import SettingsError
from albertine.model.resharing import with_layers
from albertine.model.sharing import SharingPlan
from tests import reference
from tests.model import builders

ENCODERS = {
    "plain": {},
    "own parameters": {"own": ("norms", "residuals", "injection"), "low_rank": 2},
    "pre-norm": {"norm": "pre", "own": ("norms",)},
    "rotary": {"positions": "rotary", "own": ("norms",)},
    "signals": {"step_signal": "sinusoid", "position_signal": "learned"},
    "learned steps": {"step_signal": "learned"},
    "gates": {"head_gate": True, "hidden_act": "relu2", "residual_factor": 0.5, "own": ("norms",)},
}


def encoder(plan, kind, **more):
    """A model of the kind; what its layers have of their own is away from the initial values."""
    changes = ENCODERS[kind] | more
    own = {name: changes.pop(name) for name in ("own", "low_rank") if name in changes}
    model = builders.model(replace(plan, **own), **changes)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if ".own." in name:
                parameter.add_(
                    0.3 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(len(name)))
                )
    return model


def expected(model, batch, layers):
    """The last states (T, H) of the reference that computes these layers."""
    ids, mask, types = builders.padded(batch)
    return reference.encode(model, ids, mask, types, layers)[-1][mask.bool()]


@pytest.mark.parametrize("kind", ENCODERS)
@settings(max_examples=12, deadline=None)
@given(
    st.tuples(st.integers(0, 2), st.integers(1, 2), st.integers(2, 3), st.integers(0, 2)),
    st.integers(1, 5),
    builders.lengths,
)
def test_loops_compute_the_listed_layers(kind, structure, loops, lengths):
    prelude, core, trained, coda = structure
    model, batch = encoder(SharingPlan.looped(*structure), kind), builders.packed(lengths)
    layers = list(range(prelude))
    for loop in range(loops):
        layers += [prelude + core * min(loop, trained - 1) + i for i in range(core)]
    layers += range(prelude + core * trained, prelude + core * trained + coda)
    wanted = expected(model, batch, layers)
    rows = torch.arange(0, batch.num_tokens, 2)
    with torch.no_grad():
        found = model.encoder(batch, loops=loops).last_hidden
        torch.testing.assert_close(found, wanted, atol=2e-5, rtol=1e-4)
        part = model.encoder(batch, loops=loops, rows=rows).last_hidden
        torch.testing.assert_close(part, wanted[rows], atol=2e-5, rtol=1e-4)
        other = with_layers(model, len(layers))
        assert other.config.plan.depth == len(layers)
        torch.testing.assert_close(other.encoder(batch).last_hidden, wanted, atol=2e-5, rtol=1e-4)


def test_every_state_and_its_attention_weights_are_those_of_the_loops():
    model, batch = encoder(SharingPlan.looped(1, 1, 2, 1), "own parameters"), builders.packed([5, 3])
    ids, mask, types = builders.padded(batch)
    layers = [0, 1, 2, 2, 3]
    states, weights = reference.encode_with_weights(model, ids, mask, types, layers)
    with torch.no_grad():
        found = model.encoder(batch, loops=3, all_depths=True, attention_weights=True)
    for mine, theirs in zip(found.hidden_states, states, strict=True):
        torch.testing.assert_close(mine, theirs[mask.bool()], atol=2e-5, rtol=1e-4)
    for mine, theirs in zip(found.attentions, weights, strict=True):
        torch.testing.assert_close(mine[0], theirs[0], atol=2e-5, rtol=1e-4)


def test_the_trained_number_of_loops_is_the_model_itself():
    model, batch = encoder(SharingPlan.looped(1, 2, 3, 1), "plain"), builders.packed([5, 3])
    assert with_layers(model, 8) is model
    with torch.no_grad():
        assert torch.equal(model.encoder(batch, loops=3).last_hidden, model.encoder(batch).last_hidden)


def test_a_plan_without_a_core_has_its_first_layers():
    model, batch = encoder(SharingPlan.grouped(4, 2), "own parameters"), builders.packed([5, 3])
    with torch.no_grad():
        shallow = with_layers(model, 3).encoder(batch).last_hidden
        assert torch.equal(shallow, model.encoder(batch, depth=3).last_hidden)
        with pytest.raises(SettingsError, match="repeats no core"):
            model.encoder(batch, loops=2)
    with pytest.raises(SettingsError, match="first 1 to 4 layers"):
        with_layers(model, 5)


def test_the_weights_of_the_model_stay_its_own():
    model = encoder(SharingPlan.looped(0, 1, 3, 1), "own parameters")
    before = {name: value.clone() for name, value in model.state_dict().items()}
    other = with_layers(model, 6)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.zero_()
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_loops_and_depth_together_are_refused():
    model = encoder(SharingPlan.shared(3), "plain")
    with pytest.raises(SettingsError, match="use one of them"):
        model.encoder(builders.packed([4]), depth=2, loops=2)
    with pytest.raises(SettingsError, match="loops must be a whole number from 1"):
        model.encoder(builders.packed([4]), loops=0)


def test_gradients_are_those_of_the_model_with_other_layers():
    """Training reads `loops`; blocks, own parameters and signals get what the plan with these layers would
    give them."""
    model, batch = encoder(SharingPlan.looped(1, 1, 3, 1), "own parameters"), builders.packed([6, 4])
    other = with_layers(model, 4)
    for one, kwargs in ((model, {"loops": 2}), (other, {})):
        one.zero_grad()
        one.encoder(batch, **kwargs).last_hidden.square().sum().backward()
    mine, theirs = dict(model.named_parameters()), dict(other.named_parameters())
    for name in ("encoder.attention.1.query.weight", "encoder.own.1.attention.scale"):
        torch.testing.assert_close(mine[name].grad, theirs[name].grad)
    torch.testing.assert_close(
        mine["encoder.own.4.attention.scale"].grad, theirs["encoder.own.3.attention.scale"].grad
    )
    assert mine["encoder.own.3.attention.scale"].grad is None
