"""The traced model run by torch: equal to its source for every head, and for every kind of encoder."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from albertine.core.batch import from_padded
from albertine.export.graph import example_of, graph_of
from albertine.export.verify import Arrays, Run, batches, framed, packed_inputs, shapes_for, verify
from albertine.inference.graph_heads import Pointers
from tests.export.heads import HEADS, PLANS, head_of
from tests.model.builders import config, model, packed
from tests.model.builders import padded as builders_padded


def traced(name: str, as_packed: bool, **changes: object) -> tuple[object, Run]:
    head = head_of(name, model(**changes))  # type: ignore[arg-type]
    graph = graph_of(head, as_packed)

    @torch.no_grad()
    def run(inputs: Arrays) -> Arrays:
        found = graph(*(torch.from_numpy(inputs[name]) for name in graph.inputs))
        return {name: x.numpy() for name, x in zip(graph.outputs, found, strict=True)}

    return head, run


@pytest.mark.sample
@pytest.mark.parametrize("as_packed", [False, True], ids=["padded", "packed"])
@pytest.mark.parametrize("name", HEADS)
def test_every_head_answers_as_its_source(name: str, as_packed: bool) -> None:
    head, run = traced(name, as_packed)
    found = verify(head, run, packed=as_packed)  # type: ignore[arg-type]
    assert found.exact, found.lines()
    assert all(one.places == 1 for one in found.shapes)


@pytest.mark.sample(22)
@pytest.mark.parametrize("name", ["features", "classify", "answer or not", "fill-mask", "compare"])
@pytest.mark.parametrize("plan", PLANS)
def test_every_encoder_computes_as_its_source(plan: str, name: str) -> None:
    head, run = traced(name, False, **PLANS[plan])
    assert verify(head, run).exact  # type: ignore[arg-type]
    if PLANS[plan].get("positions") != "relative":
        head, run = traced(name, True, **PLANS[plan])
        assert verify(head, run, packed=True).exact  # type: ignore[arg-type]


@pytest.mark.parametrize("as_packed", [False, True], ids=["padded", "packed"])
def test_a_model_with_one_kind_of_segment_is_traced_and_reads_pairs(as_packed: bool) -> None:
    """By its one vector, and by a head that still distinguishes the two texts; catches: a row of the table of
    segments that is not there."""
    for name in ("classify", "compare"):
        head, run = traced(name, as_packed, type_vocab_size=1)
        example_of(graph_of(head, as_packed))  # type: ignore[arg-type]
        assert verify(head, run, packed=as_packed).exact  # type: ignore[arg-type]


def test_padding_may_stand_on_the_left() -> None:
    """transformers pads XLNet there; the row of a text's vector is then not in the first column."""
    base = model()
    head = head_of("features", base)
    mask = torch.tensor([[0, 0, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0]])
    ids, types = torch.arange(12).view(2, 6) + 1, torch.zeros(2, 6, dtype=torch.long)
    with torch.no_grad():
        states, pooled = graph_of(head)(ids, mask, types)
        batch, _ = from_padded(ids, mask, types)
        expected, expected_pooled = head.source(batch, None)
    torch.testing.assert_close(states[mask == 1], expected, atol=1e-5, rtol=0)
    torch.testing.assert_close(pooled, expected_pooled, atol=1e-5, rtol=0)


def test_ends_of_spans_with_padding_on_the_left() -> None:
    """The same rows, padded on either side: the same numbers, and places that are as much further right."""
    _, run = traced("answer or not", False, **PLANS["xlnet"])
    outputs = []
    lengths, width = (8, 15, 11), 15
    for left in (False, True):
        batch = {name: np.zeros((3, width), np.int64) for name in ("input_ids", "token_type_ids")}
        batch["attention_mask"] = np.zeros((3, width), np.int64)
        for row, length in enumerate(lengths):
            there = slice(width - length, None) if left else slice(length)
            batch["input_ids"][row, there] = np.arange(length) % 20 + 1
            batch["attention_mask"][row, there] = 1
        outputs.append(run(batch))
    shift = width - np.array(lengths)[:, None]
    for name in ("start", "end"):
        right, left = (one[f"{name}_top_log_probs"] for one in outputs)
        np.testing.assert_allclose(left, right, atol=1e-4)
        right, left = (one[f"{name}_top_index"] for one in outputs)
        found = outputs[0][f"{name}_top_log_probs"] > -1e29
        assert ((left - shift == right) | ~found).all()


def test_relations_of_the_graph_are_those_of_the_model() -> None:
    """The source of that head shares the lookup of subjects with its graph, so it is held to `Relations`."""
    head = head_of("relate")
    assert isinstance(head, Pointers)
    batch = packed([5, 7, 4])
    subjects = torch.tensor([[0, 1, 2], [1, 3, 3], [2, 0, 3]])
    with torch.no_grad():
        pointers, objects = head.source(batch, subjects)
        own = head.relations(batch, batch.first_tokens[:, None] + subjects[:, 1:])
    torch.testing.assert_close(pointers, own[0])
    for row, expected in enumerate(own[1].split(batch.lengths)):
        torch.testing.assert_close(objects[row, : len(expected)], expected, atol=1e-5, rtol=0)
        assert (objects[row, len(expected) :] < -1e29).all()


def test_what_padding_holds_changes_nothing() -> None:
    """Leaving the mask out of attention goes unnoticed where padding equals that of training."""
    head, run = traced("classify", False)
    for batch in batches(head.base.config):  # type: ignore[attr-defined]
        other = dict(batch)
        other["input_ids"] = np.where(batch["attention_mask"] == 1, batch["input_ids"], 7)
        np.testing.assert_allclose(run(batch)["logits"], run(other)["logits"], atol=1e-6)


@pytest.mark.parametrize("positions", [1, 8, 32, 512])
def test_shapes_are_a_dozen_from_one_token_to_the_longest(positions: int) -> None:
    shapes = shapes_for(config(max_position_embeddings=positions))
    assert len(shapes) == len(set(shapes)) >= 12
    assert min(length for _, length in shapes) == 1
    assert max(length for _, length in shapes) == positions


def test_batches_have_padding_and_both_segments() -> None:
    made = list(batches(config()))
    assert any((batch["attention_mask"] == 0).any() for batch in made)
    assert any((batch["token_type_ids"] == 1).any() for batch in made)
    assert all((batch["attention_mask"].sum(1) >= 1).all() for batch in made)


def test_packed_inputs_are_the_tokens_end_to_end() -> None:
    padded = {
        "input_ids": np.array([[5, 6, 0], [7, 8, 9]]),
        "attention_mask": np.array([[1, 1, 0], [1, 1, 1]]),
        "token_type_ids": np.array([[0, 1, 0], [0, 0, 1]]),
    }
    found = packed_inputs(padded)
    assert found["input_ids"].tolist() == [5, 6, 7, 8, 9]
    assert found["token_type_ids"].tolist() == [0, 1, 0, 0, 1]
    assert found["cu_seqlens"].tolist() == [0, 2, 5]


@pytest.mark.parametrize("cls_last", [False, True])
def test_a_framed_row_is_a_text_alone(cls_last: bool) -> None:
    """Whatever the layout, in rows of one token too, and what is between the ends stays."""

    class Frame:
        lead = 0 if cls_last else 1

        def layout(self, ids: list[int]) -> tuple[list[int], list[int]]:
            return ([92, 91], [0, 2]) if cls_last else ([91, 92], [0, 0])

    before = list(batches(config()))
    after = list(framed(batches(config()), Frame()))  # type: ignore[arg-type]
    assert len({one["input_ids"].shape for one in after}) >= 12
    for old, new in zip(before, after, strict=True):
        for row, was in enumerate(old["attention_mask"].sum(1)):
            size = int(new["attention_mask"][row].sum())
            text, types = new["input_ids"][row, :size].tolist(), new["token_type_ids"][row].tolist()
            assert size == max(was, 2) and new["attention_mask"][row, :size].all()
            inner = slice(0, size - 2) if cls_last else slice(1, size - 1)
            assert text[inner] == old["input_ids"][row, inner].tolist()
            ends = text[-2:] if cls_last else [text[0], text[-1]]
            assert ends == ([92, 91] if cls_last else [91, 92])
            assert sum(types) == types[size - 1] == 2 * cls_last


@pytest.mark.parametrize("name", ["features", "embed"])
def test_the_least_cosine_is_that_of_one_text(name: str) -> None:
    """Catches: all vectors of a batch taken as one, in which a large one hides a small one."""
    head, run = traced(name, False)

    def one_turned(inputs: Arrays) -> Arrays:
        return {output: np.concatenate([-x[:1], x[1:]]) for output, x in run(inputs).items()}

    assert verify(head, run).cosine > 0.9999  # type: ignore[arg-type]
    found = verify(head, one_turned)  # type: ignore[arg-type]
    assert all(one.cosine == pytest.approx(-1) for one in found.shapes)


@pytest.mark.parametrize("as_packed", [False, True], ids=["padded", "packed"])
def test_a_sequence_that_overflows_spoils_no_other(as_packed: bool) -> None:
    """Also where sequences are of different lengths, and one is filled up."""
    base = model(max_position_embeddings=32)
    poison = base.config.vocab_size - 1
    with torch.no_grad():
        base.encoder.embeddings.word.weight[poison] = 3e38
    graph, batch = graph_of(head_of("features", base), as_packed), packed([5, 12, 3, 9])
    found = []
    for token in (1, poison):
        batch.input_ids[7] = batch.input_ids[-1] = token
        ids, mask, types = (x.numpy() for x in builders_padded(batch))
        arrays = {"input_ids": ids, "attention_mask": mask, "token_type_ids": types}
        inputs = packed_inputs(arrays) if as_packed else arrays
        with torch.no_grad():
            states = graph(*(torch.from_numpy(inputs[name]) for name in graph.inputs))[0]
        found.append(states if as_packed else states[torch.from_numpy(mask).bool()])
    for i, (right, states) in enumerate(zip(*(x.split(batch.lengths) for x in found), strict=True)):
        if i in (1, 3):
            assert not states.isfinite().any()
        else:
            torch.testing.assert_close(states, right)
