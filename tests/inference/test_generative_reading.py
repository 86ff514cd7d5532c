"""A model's continuations with and without memory, answers that stand in passages, and their votes."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from albertine.core.batch import pack
from albertine.inference.decoder import Decoder
from albertine.inference.generative_reading import (
    PassageQuestion,
    PassageVote,
    SourcePassage,
    TokenRuns,
    generate_answers,
    vote,
)
from albertine.inference.search import Search, beam_search
from albertine.inference.seq2seq_rows import generate_texts
from albertine.tokenizers.base import Spans
from tests.model import builders

PIECES, UNKNOWN, START, END = 50, 1, 2, 3


class Letters:
    """A tokenizer whose tokens are letters: a is 5. What a `Decoder` and a `SourcePassage` need of one."""

    vocab_size, sep_id, unk_id, between = PIECES, END, UNKNOWN, 1
    special_ids = frozenset({0, UNKNOWN, START, END, 4})

    def encode(self, text: str) -> list[int]:
        return [ord(c) - ord("a") + 5 for c in text]

    def decode(self, ids: tuple[int, ...]) -> str:
        return "".join(chr(i - 5 + ord("a")) for i in ids)

    def layout(self, a: list[int], b: list[int] | None = None) -> tuple[list[int], list[int]]:
        ids = [START, *a, END, *([] if b is None else [*b, END])]
        return ids, [0] * len(ids)

    def spans(self, text: str) -> Spans:
        return Spans(self.encode(text), list(range(len(text))), list(range(1, len(text) + 1)))


LETTERS: Any = Letters()


def inquiry(*passages: str, question: str = "wh", limit: int = 24) -> PassageQuestion:
    question_ids = LETTERS.encode(question)
    return PassageQuestion(
        tuple(SourcePassage.of(LETTERS, question_ids, p, LETTERS.spans(p), limit) for p in passages)
    )


def without_memory(model: Any, source: list[int], target: list[int]) -> torch.Tensor:
    """Logarithms of the probabilities of the token after a target, all computed anew."""
    types = [0] * len(source) + [1] * len(target)
    packed = pack([[*source, *target]], [types], [len(source)])
    rows = torch.tensor([packed.num_tokens - 1])
    logits = model.pretraining_forward(packed, rows)[0][0, :PIECES]
    silent = sorted(LETTERS.special_ids - {END})
    return logits.index_fill(0, torch.tensor(silent), float("-inf")).log_softmax(-1)


@settings(max_examples=20, deadline=None)
@given(
    st.lists(st.lists(st.integers(5, 40), min_size=1, max_size=8), min_size=1, max_size=4),
    st.lists(st.lists(st.tuples(st.integers(0, 99), st.integers(5, 40)), min_size=1, max_size=4), max_size=4),
)
def test_going_on_with_memory_equals_going_on_without(
    sources: list[list[int]], steps: list[list[tuple[int, int]]]
) -> None:
    model = builders.model()
    with torch.inference_mode():
        speaker = Decoder(model, LETTERS, sources)
        texts: list[tuple[list[int], list[int]]] = [(source, []) for source in sources]
        logits = speaker.first
        for step in [None, *steps]:
            if step is not None:
                rows = [row % len(texts) for row, _ in step]
                tokens = [token for _, token in step]
                logits = speaker.next(rows, tokens)
                texts = [(texts[r][0], [*texts[r][1], t]) for r, t in zip(rows, tokens, strict=True)]
            wanted = torch.stack([without_memory(model, *text) for text in texts])
            torch.testing.assert_close(logits, wanted, atol=1e-4, rtol=1e-4)


def test_beams_with_memory_find_what_beams_without_find() -> None:
    model = builders.model(seed=4)
    sources = [[START, 7, 8, END], [START, 9, END], [START, 30, 31, 32, 33, END]]
    search = Search(beams=3, max_tokens=8)
    with torch.inference_mode():
        fast = generate_texts(model, LETTERS, sources, search)
        texts: list[tuple[list[int], list[int]]] = [(source, []) for source in sources]

        def slow(rows: Any, tokens: Any) -> torch.Tensor:
            nonlocal texts
            texts = [(texts[r][0], [*texts[r][1], t]) for r, t in zip(rows, tokens, strict=True)]
            return torch.stack([without_memory(model, *text) for text in texts])

        first = torch.stack([without_memory(model, *text) for text in texts])
        wanted = beam_search(first, slow, END, search)
    for mine, theirs in zip(fast, wanted, strict=True):
        assert [w.text for w in mine] == [LETTERS.decode(f.ids) for f in theirs]
        assert [w.score for w in mine] == pytest.approx([f.score for f in theirs], abs=1e-4)


def test_texts_do_not_depend_on_what_is_computed_together(monkeypatch: pytest.MonkeyPatch) -> None:
    from albertine.inference import seq2seq_rows

    model = builders.model(seed=2)
    sources = [[START, *range(5, 5 + n), END] for n in (3, 9, 1, 6)]
    together = generate_texts(model, LETTERS, sources, Search(2, 6))
    monkeypatch.setattr(seq2seq_rows, "MAX_CACHED_TOKENS", 1)
    apart = generate_texts(model, LETTERS, sources, Search(2, 6))
    assert [[w.text for w in own] for own in together] == [[w.text for w in own] for own in apart]


def test_runs_go_on_where_a_passage_does() -> None:
    runs = TokenRuns([[1, 2, 1, 3], [2, 1]])
    assert runs.after(()) == {1, 2, 3}
    assert runs.after((1,)) == {2, 3}
    assert runs.after((2, 1)) == {3}
    assert runs.after((1, 2, 1, 3)) == runs.after((3, 3)) == set()
    assert runs.ends((2, 1)) == [(0, 3), (1, 2)]


def test_a_vote_by_hand() -> None:
    p = torch.tensor([[0.9, 0.1, 0.0], [0.2, 0.3, 0.5]])
    wanted = [(0.81 + 0.04) / (1.1 + 1), (0.01 + 0.09) / (0.4 + 1), 0.25 / (0.5 + 1)]
    assert vote(p.log()).exp().tolist() == pytest.approx(wanted)
    assert torch.equal(vote(p[1:].log()), p[1].log())
    assert vote(torch.full((2, 1), -80.0)).item() == pytest.approx(-160 + math.log(2), abs=1e-3)


def fixed(*tables: list[float]) -> Any:
    """A decoder with constant outputs; a row of probabilities for each source."""
    first = torch.tensor(tables).log()
    decoder = SimpleNamespace(first=first, rows=list(range(len(tables))))

    def after(rows: list[int], tokens: list[int]) -> torch.Tensor:
        decoder.rows = [decoder.rows[r] for r in rows]
        return first[decoder.rows]

    decoder.next = after
    return decoder


def test_passages_without_probabilities_have_no_vote() -> None:
    sure, unsure, silent = [0.1, 0.8, 0.1], [0.3, 0.4, 0.3], [0.9, 0.05, 0.05]
    panel = PassageVote(fixed(sure, silent, unsure, silent, silent), [3, 2], end=0)
    wanted = [(a * a + b * b) / (a + b + 1) for a, b in zip(sure, unsure, strict=True)]
    assert panel.first[0].exp().tolist() == pytest.approx(wanted)
    assert panel.first[1].tolist() == [0.0, -math.inf, -math.inf]  # no source has an answer
    forced = PassageVote(fixed(sure, silent, unsure, silent, silent), [3, 2], end=0, always=True)
    assert forced.first[0].exp().tolist() == pytest.approx([0.0, *wanted[1:]])
    assert forced.first[1].exp().tolist() == pytest.approx([0.0] + [2 * 0.05**2 / 1.1] * 2)
    after = panel.next([0, 0], [1, 2])
    assert after.shape == (2, 3)
    for row in after:
        assert row.exp().tolist() == pytest.approx(wanted)
    assert panel.next([1], [1])[0].exp().tolist() == pytest.approx(wanted)


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.text("abcdefg", min_size=1, max_size=30), min_size=1, max_size=3),
    st.integers(0, 5),
    st.integers(1, 4),
)
def test_an_answer_is_a_part_of_a_passage(passages: list[str], seed: int, beams: int) -> None:
    model = builders.model(seed=seed)
    found = generate_answers(model, LETTERS, [inquiry(*passages), inquiry("zyx")], Search(beams, 7))
    assert 1 <= len(found[0]) <= beams
    for written in found[0]:
        assert len(written.text) <= 6 and any(written.text in passage for passage in passages)
    assert all(written.text in "zyx" for written in found[1])
    must = generate_answers(model, LETTERS, [inquiry(*passages), inquiry("")], Search(beams, 7), always=True)
    assert all(written.text for written in must[0]) and must[1] == [("", 0.0)]


def test_a_free_answer_need_not_stand_anywhere() -> None:
    model = builders.model(seed=1)
    question = inquiry("aaaa")
    free = {w.text for w in generate_answers(model, LETTERS, [question], Search(4, 6), extract=False)[0]}
    assert not all(set(text) <= {"a"} for text in free)


def test_a_long_passage_is_shown_in_windows_and_searched_as_a_whole() -> None:
    text = "abcdefghij" * 5
    question = inquiry(text)
    assert len(question.sources) > 2 and max(map(len, question.sources)) <= 24
    assert all(
        source[0] == START and source[-3:] == [*LETTERS.encode("wh"), END] for source in question.sources
    )
    assert question.words(tuple(LETTERS.encode("jabcdefghijab"))) == "jabcdefghijab"
    assert question.words(()) == ""


def test_what_the_vocabulary_lacks_is_read_all_the_same() -> None:
    passage = SourcePassage.of(LETTERS, LETTERS.encode("wh"), "é", Spans([UNKNOWN], [0], [1]), 24)
    questions = [PassageQuestion((passage,))]
    (found,) = generate_answers(builders.model(seed=1), LETTERS, questions, Search(4, 3), always=True)
    assert [written.text for written in found] == ["é"]
