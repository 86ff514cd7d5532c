"""Sources that see themselves and targets read causally: against the slow reference and transformers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from albertine.core.batch import Packed, pack
from albertine.core.precision import ComputeFormat
from albertine.errors import SettingsError
from albertine.interop.huggingface.folders import save_model
from albertine.model.backend.base import Backend
from albertine.model.backend.cpu_attention import attend
from albertine.model.backend.cuda import attend_padded
from albertine.model.incremental_decoding import decode_step
from albertine.model.rows import Rows
from albertine.model.sharing import SharingPlan
from albertine.model.task_model import Seq2Seq, predicting_rows
from tests import reference
from tests.model import builders

CLOSE = {"atol": 2e-5, "rtol": 1e-4}
quick = settings(max_examples=25, deadline=None)
Shape = tuple[int, int]
shapes = st.lists(
    st.integers(1, 12).flatmap(lambda n: st.tuples(st.integers(1, n), st.just(n))), min_size=1, max_size=6
)
"""(tokens of the source, of the whole)."""


def batch_of(shapes: list[Shape], seed: int = 0) -> Packed:
    texts = builders.sequences([n for _, n in shapes], seed)
    types = [[0] * p + [1] * (n - p) for p, n in shapes]
    return pack(texts, types, [p for p, _ in shapes])


def expected(model: torch.nn.Module, batch: Packed) -> list[torch.Tensor]:
    """Every depth's real rows (T, H) by the reference."""
    ids, mask, types = builders.padded(batch)
    states = reference.encode(model, ids, reference.unilm_mask(types, mask), types)
    return [torch.cat([row[:n] for row, n in zip(s, batch.lengths, strict=True)]) for s in states]


@quick
@given(builders.plans(), shapes)
def test_it_equals_the_padded_reference_at_every_depth(plan: SharingPlan, shapes: list[Shape]) -> None:
    model, batch = builders.model(plan), batch_of(shapes)
    with torch.no_grad():
        found = model.encoder(batch, all_depths=True).hidden_states
        for ours, theirs in zip(found, expected(model, batch), strict=True):
            torch.testing.assert_close(ours, theirs, **CLOSE)


@quick
@given(builders.plans(), shapes, st.data())
def test_wanted_rows_equal_those_of_the_whole(
    plan: SharingPlan, shapes: list[Shape], data: st.DataObject
) -> None:
    model, batch = builders.model(plan), batch_of(shapes)
    row = st.integers(0, batch.num_tokens - 1)
    rows = torch.tensor(data.draw(st.lists(row, unique=True, min_size=1)))
    with torch.no_grad():
        part = model.encoder(batch, rows=rows).last_hidden
        torch.testing.assert_close(part, expected(model, batch)[-1][rows], **CLOSE)


@pytest.mark.parametrize("positions", ["learned", "relative"])
def test_attention_weights_equal_the_reference(positions: str) -> None:
    changes = {"embedding_norm": False} if positions == "relative" else {}
    model = builders.model(positions=positions, **changes)
    batch = batch_of([(2, 6), (4, 4), (1, 3), (5, 9)])
    ids, mask, types = builders.padded(batch)
    with torch.no_grad():
        found = model.encoder(batch, attention_weights=True).attentions
        right = reference.attentions(model, ids, reference.unilm_mask(types, mask), types)
    assert found is not None and float(found[0][0][0, 0, 2:].sum()) == 0  # a source sees no target
    for ours, theirs in zip(found, right, strict=True):
        for own, table, n in zip(ours, theirs, batch.lengths, strict=True):
            torch.testing.assert_close(own, table[:, :n, :n], **CLOSE)


def test_without_a_target_it_is_the_plain_batch() -> None:
    model = builders.model()
    texts = builders.sequences([5, 3])
    with torch.no_grad():
        plain = model.encoder(pack(texts)).last_hidden
        whole = model.encoder(pack(texts, prefix=[5, 3])).last_hidden
    torch.testing.assert_close(whole, plain, **CLOSE)
    rows = Rows.of(pack(texts))
    assert rows.visible is None
    assert rows.select(torch.tensor([1])).rows.visible is None


def test_no_position_attends_to_later_ones() -> None:
    model = builders.model()
    (text,) = builders.sequences([9])
    other = text.copy()
    other[6:] = (other[6:] + 1) % builders.VOCABULARY
    with torch.no_grad():
        states = [model.encoder(pack([t], [[0] * 4 + [1] * 5], [4])).last_hidden for t in (text, other)]
    torch.testing.assert_close(states[0][:6], states[1][:6], **CLOSE)
    assert not torch.allclose(states[0][6:], states[1][6:], atol=1e-3)


def test_gradients_equal_those_of_the_reference() -> None:
    model, batch = builders.model(SharingPlan.grouped(4, 2)), batch_of([(3, 9), (5, 6), (5, 6), (2, 8)])
    direction = torch.randn(batch.num_tokens, 24, generator=torch.Generator().manual_seed(1))
    names = [n for n, _ in model.encoder.named_parameters()]
    fast = torch.autograd.grad(
        (model.encoder(batch).last_hidden * direction).sum(), list(model.encoder.parameters())
    )
    slow = torch.autograd.grad(
        (expected(model, batch)[-1] * direction).sum(), list(model.encoder.parameters())
    )
    for name, ours, theirs in zip(names, fast, slow, strict=True):
        torch.testing.assert_close(ours, theirs, atol=5e-5, rtol=2e-3, msg=lambda m, n=name: f"{n}: {m}")


@pytest.mark.parametrize("shapes", [[(10, 20), (30, 31), (5, 22)], [(100, 131), (60, 131), (99, 101)]])
def test_bfloat16_stays_near_float32(shapes: list[Shape]) -> None:
    """With the filler of a CPU's bfloat16 batches, and with its own kernel in training."""
    model = builders.model(initializer_range=0.1, max_position_embeddings=256)
    batch = batch_of(shapes)
    rows = predicting_rows(batch)
    with torch.no_grad():
        exact = model.encoder(batch, rows=rows).last_hidden
    model.precision = "bfloat16"
    for training in (False, True):
        model.train(training)
        with torch.set_grad_enabled(training):
            rough = model.encoder(batch, rows=rows).last_hidden
        error = (rough.float() - exact).abs()
        assert 0 < error.mean() < 0.01
        assert error.max() < 0.15


@quick
@given(shapes, st.data())
def test_the_loop_and_the_padded_call_agree(shapes: list[Shape], data: st.DataObject) -> None:
    batch = batch_of(shapes)
    total = batch.num_tokens
    q, k, v = (
        torch.randn(total, 2, 6, generator=torch.Generator().manual_seed(s), dtype=torch.float64)
        for s in range(3)
    )
    keys = Rows.of(batch)
    index = torch.tensor(data.draw(st.lists(st.integers(0, total - 1), unique=True, min_size=1)))
    rows, places, _ = keys.select(index)
    plain = Backend(ComputeFormat(q.dtype)).attend
    whole = plain(q, k, v, keys, keys, 0.0)
    for kernel in (plain, attend, attend_padded):
        torch.testing.assert_close(kernel(q, k, v, keys, keys, 0.0), whole)
        torch.testing.assert_close(kernel(q[places], k, v, rows, keys, 0.0), whole[places])


@quick
@given(builders.plans(), shapes)
def test_reading_on_equals_reading_all_at_once(plan: SharingPlan, shapes: list[Shape]) -> None:
    """Sources first, then one token of every target at a time, of those that have one."""
    model, batch = builders.model(plan), batch_of(shapes)
    texts = batch.input_ids.split(batch.lengths)
    with torch.inference_mode():
        whole = model.encoder(batch).last_hidden.split(batch.lengths)
        hidden, cache = decode_step(
            model.encoder, pack([t[:p].numpy() for t, (p, _) in zip(texts, shapes, strict=True)])
        )
        for state, full, (p, _) in zip(hidden.split([p for p, _ in shapes]), whole, shapes, strict=True):
            torch.testing.assert_close(state, full[:p], **CLOSE)
        left, step = list(range(len(shapes))), 0
        while going := [i for i in left if shapes[i][0] + step < shapes[i][1]]:
            going.reverse()  # the order of sequences is free
            cache = cache.select([left.index(i) for i in going])
            at = [shapes[i][0] + step for i in going]
            assert cache.lengths == tuple(at)
            new = pack(
                [texts[i][a : a + 1].numpy() for i, a in zip(going, at, strict=True)], [[1]] * len(going)
            )
            new = Packed(new.input_ids, new.token_type_ids, torch.tensor(at), new.cu_seqlens, new.lengths)
            hidden, cache = decode_step(model.encoder, new, cache)
            for state, i, a in zip(hidden, going, at, strict=True):
                torch.testing.assert_close(state, whole[i][a], **CLOSE)
            left, step = going, step + 1


def test_a_cache_holds_the_keys_of_each_sequence_in_the_order_of_its_tokens() -> None:
    """Attention alone would not show it: a sum over keys is the same in any order."""
    model = builders.model()
    first, second = builders.sequences([7, 5])
    with torch.inference_mode():
        _, at_once = decode_step(model.encoder, pack([first[:4], second[:3]]))
        _, cache = decode_step(model.encoder, pack([first[:3], second[:1]]))
        new = pack([first[3:4], second[1:3]])
        at = torch.tensor([3, 1, 2])
        new = Packed(new.input_ids, new.token_type_ids, at, new.cu_seqlens, new.lengths)
        _, cache = decode_step(model.encoder, new, cache)
    assert (cache.starts, cache.lengths) == (at_once.starts, at_once.lengths) == ((0, 4), (4, 3))
    # Of the first depth alone: above it the first reading had not seen the later tokens.
    torch.testing.assert_close(cache.keys[0], at_once.keys[0], **CLOSE)
    torch.testing.assert_close(cache.values[0], at_once.values[0], **CLOSE)


def test_the_same_sequence_goes_on_in_several_ways() -> None:
    model = builders.model()
    (text,) = builders.sequences([6])
    with torch.inference_mode():
        _, cache = decode_step(model.encoder, pack([text[:4]]))
        new = pack([[7], [9]], [[1], [1]])
        new = Packed(new.input_ids, new.token_type_ids, torch.tensor([4, 4]), new.cu_seqlens, new.lengths)
        ways, _ = decode_step(model.encoder, new, cache.select([0, 0]))
        for way, token in zip(ways, (7, 9), strict=True):
            whole = model.encoder(pack([[*text[:4], token]], [[0, 0, 0, 0, 1]], [4])).last_hidden
            torch.testing.assert_close(way, whole[4], **CLOSE)
    with pytest.raises(SettingsError, match="longer than the model's 32 positions"):
        decode_step(model.encoder, pack(builders.sequences([33])))
    with torch.inference_mode():
        _, cache = decode_step(model.encoder, pack(builders.sequences([32])))
        with pytest.raises(SettingsError, match="of 33 tokens is longer than the model's 32 positions"):
            decode_step(model.encoder, pack([[7]]), cache)


def test_the_rows_that_predict_a_target() -> None:
    batch = batch_of([(3, 5), (2, 2), (1, 4)])
    assert predicting_rows(batch).tolist() == [2, 3, 7, 8, 9]
    model = builders.model()
    with torch.no_grad():
        logits = Seq2Seq(model, 0.1).eval()(batch)
        slow = reference.mlm_logits(model, expected(model, batch)[-1])
    torch.testing.assert_close(logits, slow[predicting_rows(batch)], atol=1e-4, rtol=1e-4)
    with pytest.raises(ValueError, match="sources and targets"):
        _ = predicting_rows(builders.packed([3]))
    for prefix in ([0], [4], [2, 1]):
        with pytest.raises(ValueError):
            pack([[1, 2, 3]], prefix=prefix)


@pytest.mark.parametrize("kind", ["albert", "bert"])
def test_transformers_computes_the_same_with_the_mask_written_out(kind: str, tmp_path: object) -> None:
    from transformers import AutoModel

    plan = SharingPlan.shared(3) if kind == "albert" else SharingPlan.unshared(3)
    model = builders.model(plan, **({} if kind == "albert" else {"embedding_size": 24}))
    save_model(model, None, str(tmp_path))
    theirs = AutoModel.from_pretrained(str(tmp_path), attn_implementation="eager").eval()
    batch = batch_of([(4, 9), (7, 8), (1, 12), (5, 5)])
    ids, mask, types = builders.padded(batch)
    seen = reference.unilm_mask(types, mask).bool()[:, None]
    bias = torch.zeros(seen.shape).masked_fill(~seen, torch.finfo(torch.float32).min)
    with torch.no_grad():
        ours = model.encoder(batch).last_hidden
        out = theirs(ids, attention_mask=bias, token_type_ids=types).last_hidden_state
    wanted = torch.cat([row[:n] for row, n in zip(out, batch.lengths, strict=True)])
    assert np.abs((ours - wanted).numpy()).max() <= 1e-5
