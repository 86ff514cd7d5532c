"""Sharing plans: constructors, renumbering, truncation, and the way back to groups."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from albertine.errors import SettingsError
from albertine.model.sharing import SharingPlan
from tests.model.builders import plans


def test_the_four_ways_of_the_paper():
    assert SharingPlan.shared(3) == SharingPlan((0, 0, 0), (0, 0, 0))
    assert SharingPlan.unshared(3) == SharingPlan((0, 1, 2), (0, 1, 2))
    assert SharingPlan.attention_only(3) == SharingPlan((0, 0, 0), (0, 1, 2))
    assert SharingPlan.feed_forward_only(3) == SharingPlan((0, 1, 2), (0, 0, 0))


def test_blocks_are_numbered_in_order_of_use():
    plan = SharingPlan((7, 7, 2), (3, 0, 3))
    assert plan == SharingPlan((0, 0, 1), (0, 1, 0))
    assert (plan.num_attention_blocks, plan.num_feed_forward_blocks) == (2, 2)


def test_google_groups_follow_the_floor_rule():
    assert SharingPlan.grouped(6, 4).attention == (0, 0, 1, 2, 2, 3)
    assert SharingPlan.grouped(2, 1, 3).attention == (0, 1, 2, 0, 1, 2)
    assert SharingPlan.grouped(18, 14).attention[9] == 7


@given(st.integers(1, 12), st.data())
def test_groups_gives_back_a_shape_of_the_same_plan(layers, data):
    plan = SharingPlan.grouped(layers, data.draw(st.integers(1, layers)), data.draw(st.integers(1, 3)))
    found = plan.groups()
    assert found is not None
    assert SharingPlan.grouped(*found) == plan


def test_what_groups_cannot_express():
    assert SharingPlan.attention_only(2).groups() is None
    assert SharingPlan((0, 1, 0), (0, 1, 0)).groups() is None


@given(plans(), st.data())
def test_truncation_keeps_the_first_depths(plan, data):
    depth = data.draw(st.integers(1, plan.depth))
    short = plan.truncated(depth)
    assert (short.attention, short.feed_forward) == (plan.attention[:depth], plan.feed_forward[:depth])


WAYS = (
    SharingPlan.shared,
    SharingPlan.unshared,
    SharingPlan.attention_only,
    SharingPlan.feed_forward_only,
)


@pytest.mark.parametrize("way", WAYS)
@given(before=st.integers(2, 24), depth=st.integers(1, 24))
def test_another_depth_shares_in_the_same_way(way, before, depth):
    assert way(before).resized(depth) == way(depth)


@given(st.integers(1, 8), st.integers(1, 8), st.integers(1, 3), st.integers(1, 24))
def test_groups_stay_as_many_at_another_depth(layers, groups, inner, depth):
    plan = SharingPlan.grouped(max(layers, groups), groups, inner)
    if plan.is_unshared or plan == SharingPlan.shared(plan.depth):
        return
    _, groups, inner = plan.groups()
    if depth == plan.depth or (depth % inner == 0 and groups < depth // inner):
        resized = plan.resized(depth)
        assert resized == SharingPlan.grouped(depth // inner, groups, inner)
        assert (resized.num_attention_blocks, resized.depth) == (plan.num_attention_blocks, depth)
    else:
        with pytest.raises(SettingsError, match="no pattern that fits"):
            plan.resized(depth)


@given(plans(), st.integers(2, 24))
def test_a_resized_plan_comes_back_or_is_refused(plan, depth):
    try:
        resized = plan.resized(depth)
    except SettingsError as refused:
        assert "SharingPlan." in str(refused)
    else:
        assert resized.depth == depth and resized.resized(plan.depth) == plan


def test_each_part_keeps_its_own_way():
    plan = SharingPlan((0, 0, 1, 1), (0, 1, 0, 1))
    assert plan.resized(6) == SharingPlan((0, 0, 0, 1, 1, 1), (0, 1, 0, 1, 0, 1))
    assert SharingPlan((0, 0, 0), (0, 0, 1)).resized(3) == SharingPlan((0, 0, 0), (0, 0, 1))


@pytest.mark.parametrize(
    "make",
    [
        lambda: SharingPlan((), ()),
        lambda: SharingPlan((0, 0), (0,)),
        lambda: SharingPlan((0, -1), (0, 0)),
        lambda: SharingPlan.grouped(2, 3),
        lambda: SharingPlan.grouped(2, 1, 0),
        lambda: SharingPlan.shared(2).truncated(3),
        lambda: SharingPlan.shared(2).truncated(0),
        lambda: SharingPlan.shared(2).resized(0),
        lambda: SharingPlan.shared(1).resized(2),
        lambda: SharingPlan((0, 1, 1, 0), (0, 0, 0, 0)).resized(6),
        lambda: SharingPlan((0, 1, 0, 1), (0, 0, 0, 0)).resized(5),
    ],
)
def test_impossible_plans_are_refused(make):
    with pytest.raises(SettingsError):
        make()
