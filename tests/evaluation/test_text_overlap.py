"""Texts compared by their units, against written-out counts and a plain recursion."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from albertine.evaluation.metrics import METRICS
from albertine.evaluation.text_overlap import exact, f1, rouge_l, units

words = st.lists(st.sampled_from("abc"), max_size=8)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("中国的Ａlbert模型！", ["中", "国", "的", "albert", "模", "型"]),
        ("The café, 1999.", ["the", "cafe", "1999"]),
        ("a_b-c", ["a", "b", "c"]),
        ("…，", []),
        ("㐀𠀀", ["㐀", "𠀀"]),
    ],
)
def test_units(text: str, wanted: list[str]) -> None:
    assert units(text) == wanted


def test_by_hand() -> None:
    assert f1(units("北京市"), units("在北京")) == pytest.approx(2 / 3)
    assert f1(units("the old man"), units("old man")) == pytest.approx(2 * 1 * (2 / 3) / (1 + 2 / 3))
    assert rouge_l(list("police"), list("plcoie")) == pytest.approx(2 * 4 / 12)  # p, l, i, e
    gold = [["北京", "北京市"], ["上海"]]
    assert METRICS["text_exact"](gold, ["北京市。", "海上"]) == 0.5
    assert METRICS["text_f1"](gold, ["北京", "海上"]) == 1.0
    assert METRICS["rouge_l"](gold, ["北京", "海上"]) == 0.75


def test_nothing_against_nothing() -> None:
    assert exact([], []) == f1([], []) == rouge_l([], []) == 1.0
    assert f1([], ["a"]) == rouge_l(["a"], []) == 0.0
    with pytest.raises(ValueError):
        METRICS["text_f1"]([["a"]], [])


@given(words, words)
def test_rouge_l_is_the_longest_common_subsequence(a: list[str], b: list[str]) -> None:
    @cache
    def longest(i: int, j: int) -> int:
        if i == len(a) or j == len(b):
            return 0
        return 1 + longest(i + 1, j + 1) if a[i] == b[j] else max(longest(i + 1, j), longest(i, j + 1))

    wanted = 2 * longest(0, 0) / (len(a) + len(b)) if a or b else 1.0
    assert rouge_l(a, b) == pytest.approx(wanted) == pytest.approx(rouge_l(b, a))
