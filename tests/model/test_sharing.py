"""Sharing plans: constructors, renumbering, truncation, and the way back to groups."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from albertine.errors import SettingsError
from albertine.model.sharing import SharingPlan, sharing_in_words
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


structures = st.tuples(st.integers(0, 3), st.integers(1, 3), st.integers(1, 5), st.integers(0, 3))


def test_a_repeated_core_has_layers_of_their_own_around_it():
    plan = SharingPlan.looped(2, 2, 3, 1)
    assert plan == SharingPlan((0, 1, 2, 3, 2, 3, 2, 3, 4), (0, 1, 2, 3, 2, 3, 2, 3, 4))
    assert plan.loop_structure == (2, 2, 3, 1) and plan.depth_of(5) == 13
    assert sharing_in_words(plan) == (
        "9 depths, a core of 2 blocks used 3 times, 2 of their own before and 1 of their own after"
    )
    assert sharing_in_words(SharingPlan.looped(0, 2, 2, 0)) == "4 depths, a core of 2 blocks used 2 times"


@given(structures)
def test_the_structure_of_a_looped_plan_comes_back(structure):
    plan = replace(SharingPlan.looped(*structure), own=("norms",), low_rank=2)
    assert plan.loop_structure == (structure if structure[2] > 1 else None)


def test_what_repeats_no_core_has_no_structure():
    assert SharingPlan.shared(6).loop_structure == (0, 1, 6, 0)
    for plan in (
        SharingPlan.unshared(4),
        SharingPlan.shared(1),
        SharingPlan.grouped(4, 2),
        SharingPlan.attention_only(3),
        SharingPlan((0, 1, 0), (0, 1, 0)),
        SharingPlan((0, 0, 1, 0), (0, 0, 1, 0)),
        SharingPlan((0, 0, 0), (0, 1, 0)),
    ):
        assert plan.loop_structure is None
        with pytest.raises(SettingsError, match="repeats no core"):
            plan.depth_of(2)


@given(structures, st.integers(1, 7))
def test_another_number_of_loops_takes_the_trained_layers_in_order(structure, loops):
    prelude, core, trained, coda = structure
    trained += 1
    plan = SharingPlan.looped(prelude, core, trained, coda)
    order = list(plan.layer_order(prelude + core * loops + coda))
    expected = list(range(prelude))
    for loop in range(loops):
        at = prelude + core * min(loop, trained - 1)
        expected += range(at, at + core)
    expected += range(plan.depth - coda, plan.depth)
    assert order == expected
    other = plan.with_layers(len(order))
    assert other == SharingPlan.looped(prelude, core, loops, coda)
    if loops == trained:
        assert order == list(range(plan.depth))


@pytest.mark.parametrize(
    ("plan", "layers", "words"),
    [
        (SharingPlan.looped(1, 2, 3, 1), 5, r"1 \+ 2 × loops \+ 1.* Take 4 or 6"),
        (SharingPlan.looped(1, 2, 3, 1), 3, "Take 4$"),
        (SharingPlan.looped(1, 1, 3, 2), 0, "Take 4$"),
        (SharingPlan.unshared(3), 4, "repeats no core.* first 1 to 3 layers"),
        (SharingPlan.grouped(4, 2), 5, "first 1 to 4 layers"),
        (SharingPlan.shared(3), 0, "Take 1$"),
    ],
)
def test_a_number_of_layers_that_no_loops_give_is_refused(plan, layers, words):
    with pytest.raises(SettingsError, match=words):
        plan.layer_order(layers)


def test_a_plan_without_a_core_gives_its_first_layers():
    plan = SharingPlan.grouped(4, 2)
    assert plan.layer_order(3) == (0, 1, 2) and plan.with_layers(3) == plan.truncated(3)


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
        lambda: SharingPlan.looped(0, 0, 2, 0),
        lambda: SharingPlan.looped(0, 1, 0, 0),
        lambda: SharingPlan.looped(-1, 1, 2, 0),
        lambda: SharingPlan.looped(0, 1, 2, -1),
        lambda: SharingPlan.looped(1, 1, 3, 0).depth_of(0),
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
