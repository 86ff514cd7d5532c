"""Operations on a plan: unshare, share again, grow, cut."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings

from albertine.errors import SettingsError
from albertine.model.resharing import distances, replan, shared_again
from albertine.model.sharing import SharingPlan
from tests.model import builders


def outputs(model, lengths=(5, 3)):
    with torch.no_grad():
        return model.encoder(builders.packed(list(lengths)), all_depths=True).hidden_states


@settings(max_examples=20, deadline=None)
@given(builders.plans())
def test_unsharing_changes_no_output_and_shares_again_without_loss(plan):
    model = builders.model(plan)
    apart = replan(model, SharingPlan.unshared(plan.depth))
    assert all(torch.equal(a, b) for a, b in zip(outputs(model), outputs(apart), strict=True))
    together = replan(apart, plan)
    assert together.config == model.config
    assert all(torch.equal(together.state_dict()[n], v) for n, v in model.state_dict().items())


def test_blocks_apart_train_apart_and_no_longer_merge():
    model = builders.model()
    apart = replan(model, SharingPlan.unshared(3))
    with torch.no_grad():
        apart.encoder.attention[1].query.weight.add_(3.0)
    kept = model.encoder.attention[0].query.weight
    assert torch.equal(apart.encoder.attention[0].query.weight, kept)
    with pytest.raises(SettingsError, match="differ"):
        replan(apart, SharingPlan.shared(3))
    mean = replan(apart, SharingPlan.shared(3), merge="mean")
    torch.testing.assert_close(mean.encoder.attention[0].query.weight, kept + 1.0)


def test_the_norm_of_depth_0_counts_where_it_is_read():
    """A pre-norm encoder without `embedding_norm` normalises there too."""
    model = builders.model(SharingPlan.shared(2), norm="pre", embedding_norm=False)
    apart, batch = replan(model, SharingPlan.unshared(2)), builders.packed([5, 3])
    kept = model.encoder.attention[0].layer_norm.weight
    with torch.no_grad():
        apart.encoder.attention[0].layer_norm.weight.mul_(3.0)
        changed = apart.encoder(batch).last_hidden - model.encoder(batch).last_hidden
    assert changed.abs().max() > 0.01
    with pytest.raises(SettingsError, match=r"blocks \[0, 1\] of attention differ"):
        replan(apart, SharingPlan.shared(2))
    mean = replan(apart, SharingPlan.shared(2), merge="mean")
    torch.testing.assert_close(mean.encoder.attention[0].layer_norm.weight, 2 * kept)


def test_an_injection_is_not_lost_where_its_depth_becomes_the_first():
    plan = replace(SharingPlan.shared(3), own=("injection",))
    model = builders.model(plan)
    with torch.no_grad():
        model.encoder.own[2].injection.zero_()
    with pytest.raises(SettingsError, match="depth 1 adds the embeddings to its input, and a first depth"):
        replan(model, plan, source=[1, 0, 2])
    for source in ([0, 1, 2], [2, 1, 0]):  # a factor of zero can be left out
        moved = replan(model, plan, source=source)
        assert torch.equal(moved.encoder.own[1].injection, model.encoder.own[1].injection)


def test_what_is_new_is_of_the_format_of_the_rest():
    model = builders.model(SharingPlan.shared(3)).double()
    grown = replan(model, replace(model.config.plan, own=("norms", "residuals", "injection"), low_rank=2))
    assert {p.dtype for p in grown.parameters()} == {torch.float64}
    for a, b in zip(outputs(model), outputs(grown), strict=True):
        torch.testing.assert_close(a, b)


def test_a_shared_model_grows_by_looping_on():
    model = builders.model(SharingPlan.shared(2))
    grown = replan(model, SharingPlan.shared(4))
    assert sum(p.numel() for p in grown.parameters()) == sum(p.numel() for p in model.parameters())
    assert all(torch.equal(a, b) for a, b in zip(outputs(model), outputs(grown)[:3], strict=True))
    assert not torch.equal(outputs(grown)[4], outputs(model)[2])


def test_chosen_depths_of_an_unshared_model():
    model = builders.model(SharingPlan.unshared(3))
    twice = replan(model, SharingPlan.unshared(4), source=[0, 0, 2, 2])
    with torch.no_grad():
        for new, old in enumerate([0, 0, 2, 2]):
            assert torch.equal(
                twice.encoder.attention[new].key.weight, model.encoder.attention[old].key.weight
            )
    for source in ([0, 1], [0, 1, 2, 3]):
        with pytest.raises(SettingsError, match="source"):
            replan(model, SharingPlan.unshared(4), source=source)


def test_a_new_plan_can_be_trained():
    apart = replan(builders.model().train(), SharingPlan.unshared(3))
    assert apart.training
    apart.encoder(builders.packed([4])).last_hidden[:, 0].sum().backward()
    assert all(p.grad is not None for p in apart.encoder.parameters())


def test_tied_biases_are_no_depths_own_and_all_else_is_shared_again():
    """Catches: the first block, which holds them for all, as a longer vector than the others."""
    model = builders.model(SharingPlan.unshared(3), positions="relative", relative_biases="tied")
    shared = shared_again(model)
    for name, tensor in model.encoder.attention[0].biases.named_parameters():
        assert torch.equal(shared.encoder.attention[0].biases.get_parameter(name), tensor)
    found = distances(model, shared)
    assert {part: len(each) for part, each in found.items()} == {"attention": 3, "feed_forward": 3}
    weights = [
        torch.cat([p.detach().double().flatten() for n, p in block.named_parameters() if "biases" not in n])
        for block in model.encoder.attention
    ]
    mean = sum(weights) / 3
    expected = [float((weight - mean).norm() / mean.norm()) for weight in weights]
    torch.testing.assert_close(torch.tensor(found["attention"]), torch.tensor(expected))


def test_tied_biases_stay_where_blocks_get_the_norms_of_their_depths():
    """The first block is that of two depths here, whose copies bring its biases along; a third has none."""
    plan = SharingPlan((0, 1, 0), (0, 0, 0), own=("norms",))
    model = builders.model(plan, positions="relative", relative_biases="tied")
    shared = replan(model, SharingPlan.shared(3), merge="mean")
    for name, tensor in model.encoder.attention[0].biases.named_parameters():
        torch.testing.assert_close(shared.encoder.attention[0].biases.get_parameter(name), tensor)
