"""The benchmark of a memory: a text read at once is the text read segment by segment."""

from __future__ import annotations

import pytest
import torch

from benchmarks.recall import SEGMENT, answers, answers_at_once, encoder, texts


@pytest.mark.parametrize("memory", [0, SEGMENT])
@pytest.mark.parametrize("depth", [1, 3])
def test_a_text_read_at_once_gives_the_answers_of_reading_in_segments(depth: int, memory: int) -> None:
    model = encoder(depth, 0).eval()
    ids, _ = texts(3, 4, "here", depth)
    with torch.no_grad():
        torch.testing.assert_close(
            answers_at_once(model, ids, memory), answers(model, ids, memory), rtol=0, atol=1e-5
        )


def test_only_a_text_read_at_once_has_a_gradient_through_its_memory() -> None:
    """How the output for a word of the first segment changes with the third segment, except for the word
    itself."""
    model = encoder(2, 0).eval()
    ids, _ = texts(2, 3, "here")
    ids[ids == 0] = 1
    ids[:, 0, 0] = 0  # a value used nowhere else
    word = model.get_submodule("encoder.embeddings.word").weight
    moved = {}
    for read in (answers, answers_at_once):
        model.zero_grad()
        read(model, ids, SEGMENT)[1, ..., 1:].sum().backward()  # type: ignore[no-untyped-call]
        moved[read] = float(word.grad[0].abs().sum())  # type: ignore[union-attr,index]
    assert moved[answers] == 0 < moved[answers_at_once]
