"""Prediction spans follow the official distribution where its defect is requested, and end at words where
not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from albertine.errors import SettingsError
from albertine.objectives.prediction_spans import SpanSettings, halves, prediction_spans

FACTS = Path(__file__).parent / "facts" / "xlnet_data.npz"
FAR = 4.5
"""Standard deviations: of a few hundred numbers one of a true law lies beyond it once in a thousand runs."""


def edges(chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """First token and token behind of every run."""
    jumps = np.flatnonzero(np.diff(np.concatenate([[0], chosen.astype(int), [0]])))
    return jumps[::2], jumps[1::2]


def law(facts: Any, backward: bool, defects: bool) -> dict[str, np.ndarray]:
    """Counts of one drawing of each of 20,000 segments, (segments, what is counted)."""
    length, wanted, count = facts["spans/sizes"].tolist()
    stream = np.unpackbits(facts["spans/stream"]).astype(bool)
    settings = SpanSettings(reference_defects=defects)
    rng = np.random.default_rng(17)
    found = {
        "rate": np.zeros((count, length), dtype=np.int8),
        "runs": np.zeros((count, 40), dtype=np.int8),
        "gaps": np.zeros((count, 80), dtype=np.int8),
    }
    for k in range(count):
        starts = stream[k : k + length]
        if backward:
            chosen = prediction_spans(starts[::-1], wanted, settings, rng, backward=True)[::-1]
        else:
            chosen = prediction_spans(starts, wanted, settings, rng, backward=False)
        assert int(chosen.sum()) == wanted
        begin, end = edges(chosen)
        found["rate"][k] = chosen
        found["runs"][k] = np.bincount(np.minimum(end - begin, 39), minlength=40)
        found["gaps"][k] = np.bincount(np.minimum(begin[1:] - end[:-1], 79), minlength=80)
    return found


def distances(ours: np.ndarray, theirs: np.ndarray) -> np.ndarray:
    """How far two sums over as many segments are apart, in standard deviations of their difference."""
    spread = np.sqrt(2 * len(ours) * ours.var(0, ddof=1))
    rare = ours.sum(0) + theirs < 20
    return np.where(rare, 0, (ours.sum(0, dtype=np.int64) - theirs) / np.where(spread > 0, spread, 1))


@pytest.mark.sample(1)
@pytest.mark.parametrize("backward", [False, True])
def test_the_law_is_the_official_one(backward: bool) -> None:
    """Length of runs, distance between them, and rate at every place, over 20,000 segments of one text."""
    facts = np.load(FACTS)
    ours = law(facts, backward, defects=True)
    for what, counts in ours.items():
        apart = distances(counts, facts[f"spans/{what}"][int(backward)])
        assert np.abs(apart).max() < FAR, (what, np.abs(apart).argmax(), apart)
    fixed = law(facts, backward, defects=False)
    assert np.abs(distances(fixed["runs"], facts["spans/runs"][int(backward)])).max() > 3 * FAR


def walked(starts: np.ndarray, settings: SpanSettings, seed: int, wanted: int, backward: bool) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return prediction_spans(starts, wanted, settings, rng, backward=backward)


@pytest.mark.parametrize("backward", [False, True])
def test_spans_are_whole_words(backward: bool) -> None:
    """With more context than a segment has, one span is drawn and the rest is filled; it ends at a word."""
    broken = 0
    for seed in range(300):
        rng = np.random.default_rng(1000 + seed)
        starts = rng.random(200) < 0.5
        starts[0] = True
        settings = SpanSettings(alpha=6, beta=1)
        layout = starts[::-1] if backward else starts
        chosen = walked(layout, settings, seed, 4000 // 200, backward)
        reading = chosen[::-1] if backward else chosen
        begin, end = edges(reading)
        ends = np.append(starts, True)
        broken += int((~starts[begin] | ~ends[end]).sum())
        assert chosen.sum() == 20
    # Only the tokens that fill up may break a word: on average two thirds of a token in a segment.
    assert broken / 300 < 1.5


def test_a_word_longer_than_what_is_left_is_passed_over() -> None:
    starts = np.zeros(60, dtype=bool)
    starts[::6] = True
    chosen = walked(starts, SpanSettings(longest=5), 3, 7, False)
    begin, end = edges(chosen)
    assert chosen.sum() == 7 and any(starts[b] and (e - b) % 6 == 0 for b, e in zip(begin, end, strict=True))


def test_halves_of_an_odd_number() -> None:
    assert halves(85) == (43, 42) and halves(20) == (10, 10)


def test_every_token_can_be_wanted() -> None:
    for defects in (False, True):
        chosen = walked(np.ones(16, dtype=bool), SpanSettings(reference_defects=defects), 1, 16, True)
        assert chosen.all()


def test_a_text_without_a_word_start_is_filled_up() -> None:
    assert walked(np.zeros(16, dtype=bool), SpanSettings(), 1, 5, False).sum() == 5


@pytest.mark.parametrize(("alpha", "beta"), [(1, 2), (0, 0), (3, 0)])
def test_no_context_is_refused(alpha: int, beta: int) -> None:
    with pytest.raises(SettingsError, match="no context"):
        SpanSettings(alpha=alpha, beta=beta)
