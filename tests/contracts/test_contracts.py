"""What the package is now beside the stored contract of it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contracts import numbers, verbs
from tests.contracts.parts import ALONE, OF_PRODUCTS
from tests.contracts.products import Products
from tests.contracts.snapshots import DATA, UPDATE, differences, plain, shape_of, stored


def check(part: str, found: Any, tolerance: float = 0.0) -> None:
    changed = list(differences(stored(part), plain(found), tolerance=tolerance))
    shown = "\n  ".join([*changed[:50], *(["…"] if len(changed) > 50 else [])])
    assert not changed, f"users would see this; if that is meant: {UPDATE} {part}\n  {shown}"


@pytest.mark.parametrize("part", ALONE)
def test_the_contract_is_kept(part: str) -> None:
    check(part, ALONE[part]())


@pytest.mark.parametrize("part", OF_PRODUCTS)
def test_the_contract_of_products_is_kept(part: str, products: Products) -> None:
    check(part, OF_PRODUCTS[part](products), numbers.TOLERANCE)


def test_every_verb_and_option_has_help() -> None:
    assert not verbs.without_help()


def test_every_part_is_stored() -> None:
    assert {file.stem for file in DATA.iterdir()} == {*ALONE, *OF_PRODUCTS}


def test_differences_name_their_place() -> None:
    before = {"a": {"b": 1, "c": [1.0, 2.0]}, "gone": True}
    after = {"a": {"b": 2, "c": [1.001, 2.0]}, "new": None}
    found = list(differences(before, after))
    assert [line.split()[0] for line in found] == ["/a/b", "/a/c/0", "/gone", "/new"]
    assert len(list(differences(before, after, tolerance=0.01))) == 3
    assert not list(differences(before, before))


def test_a_shape_has_types_in_place_of_values() -> None:
    rows = [{"a": 1, "b": "x"}, {"a": None}]
    assert shape_of({"rows": rows, "none": []}) == {
        "none": [],
        "rows": [{"a": {"any of": ["null", "number"]}, "b": "text"}],
    }
