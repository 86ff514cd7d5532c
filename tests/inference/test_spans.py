"""Windows over a passage, which one answers for a token, and the likeliest spans, against plain loops."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from albertine.errors import SettingsError
from albertine.inference.spans import LikelySpans, SpanTable, mean_spans, spans_from_logits, spans_from_table
from albertine.inference.windows import PassageTokens, Window, WindowSettings, owners, rows_of, windows_of
from albertine.tokenizers.load import load_tokenizer


def letters(count: int) -> PassageTokens:
    """A passage of `count` tokens, each one character."""
    ids = np.arange(10, 10 + count, dtype=np.int32)
    return PassageTokens(ids, np.arange(count, dtype=np.int32), np.arange(1, count + 1, dtype=np.int32))


def test_windows_cover_a_passage() -> None:
    assert [w.first for w in windows_of(2, 100, WindowSettings(45, stride=15))] == [0, 15, 30, 45, 60]
    for question, total, length, stride in [(2, 100, 45, 15), (5, 41, 12, 128), (1, 0, 12, 3), (3, 6, 12, 9)]:
        windows = windows_of(question, total, WindowSettings(length, stride=stride))
        seen = {token for w in windows for token in range(w.first, w.first + w.size)}
        assert seen == set(range(total))
        assert all(w.size + question + 3 <= length and w.offset == question + 2 for w in windows)
        assert windows[-1].first + windows[-1].size == total
    with pytest.raises(SettingsError, match=r"leaves no room.*Raise task\.max_length"):
        windows_of(30, 10, WindowSettings(36))


def test_rows_are_laid_out_as_the_tokenizer_does(shared_data: Path) -> None:
    tokenizer = load_tokenizer(shared_data / "tokenizers" / "albert-en-30k")
    passage = PassageTokens.of(tokenizer, "the old man said that he was never in the house of the time")
    question = tokenizer.encode("who said what to whom")
    windows, rows = rows_of(tokenizer, question, passage, WindowSettings(16, stride=4, question=3))
    assert len(rows) > 1
    for window, (ids, types) in zip(windows, rows, strict=True):
        part = passage.ids[window.first : window.first + window.size].tolist()
        assert (ids.tolist(), types.tolist()) == tokenizer.layout(question[:3], part)
        assert ids[window.offset] == part[0]


def test_the_owner_of_a_token_shows_most_around_it() -> None:
    windows = [Window(0, 3, 20), Window(8, 3, 20), Window(16, 3, 12)]
    owner = owners(windows, 28)
    for token in range(28):
        contexts = []
        for w in windows:
            at = token - w.first
            inside = 0 <= at < w.size
            contexts.append(min(at, w.size - 1 - at) + 0.01 * w.size if inside else -1)
        assert owner[token] == contexts.index(max(contexts)), token


def test_a_long_window_is_worth_a_little_context() -> None:
    """As in Google's script: a hundredth of its size."""
    owner = owners([Window(0, 3, 400), Window(300, 3, 150)], 450)
    assert [int(owner[token]) for token in (350, 351)] == [0, 1]  # 53 and 51.5, 52 and 52.5


@pytest.mark.parametrize("seed", range(4))
def test_spans_of_two_logits_are_those_of_trying_all(seed: int) -> None:
    reading, passage = WindowSettings(16, stride=5, longest=4, best=6), letters(23)
    passage.ends[7] = passage.starts[7]  # a token that stands for nothing visible
    windows = windows_of(2, 23, reading)
    owner, draws = owners(windows, 23), np.random.Generator(np.random.Philox(key=seed))
    logits = [3 * draws.normal(size=(w.size + 5, 2)).astype(np.float32) for w in windows]
    tried: dict[tuple[int, int], float] = {}
    for number, (w, table) in enumerate(zip(windows, logits, strict=True)):
        for first in range(w.size):
            for last in range(first, min(first + 4, w.size)):
                a, b = w.first + first, w.first + last
                if owner[a] == number and passage.starts[a] < passage.ends[b]:
                    span = (int(passage.starts[a]), int(passage.ends[b]))
                    value = float(table[w.offset + first, 0] + table[w.offset + last, 1])
                    tried[span] = max(value, tried.get(span, -math.inf))
    found = spans_from_logits(windows, logits, passage, WindowSettings(16, stride=5, longest=4, best=23))
    best = sorted(tried, key=tried.__getitem__, reverse=True)[:23]
    assert list(found.spans) == best
    total = sum(math.exp(tried[span]) for span in best)
    assert list(found.spans.values()) == pytest.approx([math.exp(tried[span]) / total for span in best])
    assert found.no_answer is None and found.best() is not None


def test_a_strong_start_counts_only_where_its_window_answers_for_it() -> None:
    reading, passage = WindowSettings(45, stride=15), letters(100)
    windows = windows_of(2, 100, reading)
    for token, owner in ((20, 0), (50, 2), (99, 4)):
        for number, window in enumerate(windows):
            if not window.first <= token < window.first + window.size:
                continue
            logits = [np.zeros((w.size + 5, 2), dtype=np.float32) for w in windows]
            logits[number][token - window.first + window.offset] = 9.0
            best = spans_from_logits(windows, logits, passage, reading).best()
            assert best is not None
            assert ((best.begin, best.end) == (token, token + 1)) == (number == owner), (token, number)


def test_a_passage_without_tokens_has_no_spans() -> None:
    found = spans_from_logits(
        windows_of(1, 0, WindowSettings(80)),
        [np.zeros((4, 2), dtype=np.float32)],
        letters(0),
        WindowSettings(80),
    )
    assert found.spans == {} and found.best() is None


def beam(rows: list[list[tuple[int, int, float]]], impossible: list[float]) -> SpanTable:
    starts, ends, scores = (np.array([[s[i] for s in row] for row in rows]) for i in range(3))
    return SpanTable(starts, ends, scores, np.array(impossible))


def test_spans_of_a_beam() -> None:
    reading, passage = WindowSettings(15, stride=5, longest=3), letters(15)
    windows = windows_of(2, 15, reading)  # from tokens 0 and 5, ten each, at place 4 of the row
    assert windows == [Window(0, 4, 10), Window(5, 4, 10)]
    first = [(0, 0, -0.1), (5, 6, -1.0), (5, 8, -0.2), (6, 5, -0.3), (12, 13, -0.4)]
    second = [(8, 9, -1.5), (2, 9, -0.1), (4, 4, -0.1), (13, 14, -0.1), (9, 10, -1e30)]
    found = spans_from_table(windows, beam([first, second], [2.0, -1.0]), passage, reading)
    # Left: (5, 6) of the first, and (8, 9) of the second. Not the first token or the question; not too long,
    # backwards, beyond the passage; not a start that the other window answers for; the masked one counts 0.
    assert list(found.spans)[:2] == [(1, 3), (9, 11)]
    assert found.spans[1, 3] == pytest.approx(1 / (1 + math.exp(-0.5)))
    assert sum(found.spans.values()) == pytest.approx(1)
    assert found.no_answer == pytest.approx(1 / (1 + math.exp(1.0)))  # the least sure window
    assert found.best() is not None and found.best(0.27) is not None and found.best(0.26) is None


def test_the_mean_of_several_models() -> None:
    one, two = LikelySpans({(0, 1): 0.6, (2, 3): 0.4}, 0.1), LikelySpans({(2, 3): 0.9, (4, 5): 0.1}, 0.7)
    both = mean_spans([one, two], best=2)
    assert both.spans == pytest.approx({(2, 3): 0.65, (0, 1): 0.3})
    assert list(both.spans) == [(2, 3), (0, 1)] and both.no_answer == pytest.approx(0.4)
    assert mean_spans([LikelySpans({(0, 1): 1.0})], 5) == LikelySpans({(0, 1): 1.0}, None)


def test_of_windows_that_show_as_much_around_a_token_the_first_answers() -> None:
    owner = owners([Window(0, 3, 20), Window(7, 3, 20)], 27)
    assert owner.tolist() == [0] * 14 + [1] * 13  # token 13 has six on its shorter side in both


def test_a_passage_as_unsure_as_the_threshold_is_answered() -> None:
    assert LikelySpans({(0, 1): 1.0}, 0.5).best(0.5) == (0, 1, 1.0)
    assert LikelySpans({(0, 1): 1.0}, 0.5).best(0.49) is None
