"""Properties of relative attention, memory and two streams that hold exactly, whatever the weights."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from albertine.core.batch import Packed, pack
from albertine.core.randomness import seed_torch
from albertine.errors import SettingsError
from albertine.model.backend import Linear
from albertine.model.config import EncoderConfig
from albertine.model.incremental_decoding import decode_step
from albertine.model.model import Model
from albertine.model.positions import relative
from albertine.model.positions.registry import with_positions
from albertine.model.positions.relative import SequenceGroup, shifted_scores
from albertine.model.resharing import replan
from albertine.model.rows import Rows
from albertine.model.segment_memory import Memory
from albertine.model.sharing import SharingPlan
from albertine.model.two_streams import Segments, encode_segments, predict_segments
from albertine.model.visibility import Visibility, causal
from benchmarks.relative_shift import reshaped_scores
from tests import reference
from tests.model import builders
from tests.model.builders import permuted

XLNET: dict[str, object] = {"positions": "relative", "embedding_norm": False}
H = 24


def xlnet(plan: SharingPlan | None = None, seed: int = 0, **changes: object) -> Model:
    made = Model(builders.config(plan, **(XLNET | changes)), {"lm", "pooler"}, seed=seed)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    return made.double().eval()


def read(model: Model, segments: Segments, memory: Memory | None = None, **how: object) -> torch.Tensor:
    assert model.lm is not None
    return encode_segments(model.encoder, segments, memory, query=model.lm.query, **how)[0]  # type: ignore[arg-type]


def at_random(
    lengths: list[int], seed: int = 0, share: float = 0.5
) -> tuple[Packed, Visibility, torch.Tensor, torch.Tensor, torch.Tensor]:
    """A batch, who sees whom in a random order, ranks (-1: ordinary), targets, and their `until`."""
    batch = builders.packed(lengths, seed)
    generator = torch.Generator().manual_seed(seed)
    ranks = torch.cat([torch.randperm(n, generator=generator) for n in lengths])
    is_target = torch.rand(len(ranks), generator=generator) < share
    is_target[torch.tensor([0, *lengths[:-1]]).cumsum(0)] = True
    ranks = torch.where(is_target, ranks, -1)
    content, query = permuted(ranks, is_target)
    targets = is_target.nonzero()[:, 0]
    return batch, content, ranks, targets, query.until[targets]


def by_sequence(lengths: list[int], x: torch.Tensor) -> list[torch.Tensor]:
    return list(x.split(lengths))


@pytest.mark.parametrize("clamp", [0, 3])
def test_p1_a_reversed_text_mirrors_what_is_computed(clamp: int) -> None:
    model, lengths = xlnet(clamp_positions=clamp), [7, 5, 7]
    tokens = builders.sequences(lengths)
    ahead = read(model, Segments(pack(tokens)))
    back = read(model, Segments(pack([x[::-1].copy() for x in tokens]), backward=(True,) * 3))
    same = read(model, Segments(pack([x[::-1].copy() for x in tokens])))
    mirrored = torch.cat([x.flip(0) for x in by_sequence(lengths, back)])
    torch.testing.assert_close(mirrored, ahead, atol=1e-12, rtol=0)
    unsigned = torch.cat([x.flip(0) for x in by_sequence(lengths, same)])
    assert (unsigned - ahead).abs().max() > 1e-2


def test_p2_without_targets_the_contents_are_those_of_the_plain_encoder() -> None:
    model, lengths = xlnet(), [7, 1, 12]
    batch = builders.packed(lengths)
    ranks = torch.full((batch.num_tokens,), -1)
    visible, _ = permuted(ranks, torch.zeros(batch.num_tokens, dtype=torch.bool))
    found = read(model, Segments(batch, visible=visible))
    torch.testing.assert_close(found, model.encoder(batch).last_hidden, atol=1e-12, rtol=0)


@pytest.mark.parametrize("gate", [False, True])
def test_p3_in_reading_order_the_contents_are_those_of_a_causal_encoder_and_queries_see_what_is_before(
    gate: bool,
) -> None:
    model, lengths = xlnet(head_gate=gate), [6, 9]
    batch = builders.packed(lengths)
    ranks = torch.cat([torch.arange(n) for n in lengths])
    everything = torch.arange(batch.num_tokens)
    content, query = permuted(ranks, torch.ones_like(ranks, dtype=torch.bool))
    streams = Segments(batch, visible=content)
    plain = read(model, Segments(batch, visible=causal(lengths, batch.input_ids)))
    torch.testing.assert_close(read(model, streams), plain, atol=0, rtol=0)
    two = replace(streams, targets=everything, target_until=query.until)
    influence = influences(model, two)
    row, key = torch.meshgrid(everything, everything, indexing="ij")
    sequence = torch.repeat_interleave(torch.arange(2), torch.tensor(lengths))
    before = (key < row) & (sequence[row] == sequence[key])
    assert torch.equal(influence > 0, before)


def influences(model: Model, segments: Segments, memory: Memory | None = None) -> torch.Tensor:
    """How much each answer (K or T, H) depends on each token's embedding, (K or T, T)."""
    found = []
    table = model.encoder.embeddings
    packed = segments.packed
    weight = table.word.weight.detach()[packed.input_ids].clone().requires_grad_()

    class LinearInputs(torch.nn.Module):
        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            return weight

    was, table.word = table.word, LinearInputs()
    table.word.weight = was.weight  # type: ignore[assignment]
    try:
        out = read(model, segments, memory)
    finally:
        table.word = was
    for row in out:
        (gradient,) = torch.autograd.grad(row.square().sum(), weight, retain_graph=True)
        found.append(gradient.abs().sum(1))
    return torch.stack(found)


@pytest.mark.parametrize("remembered", [(0, 0, 0), (4, 0, 2)])
def test_p4_no_answer_depends_on_its_token_or_on_later_ones(remembered: tuple[int, ...]) -> None:
    lengths = [7, 4, 9]
    model = xlnet(SharingPlan.shared(4))
    batch, visible, ranks, targets, until = at_random(lengths)
    memory = None
    if any(remembered):
        states = tuple(torch.randn(sum(remembered), H, dtype=torch.float64) for _ in range(4))
        memory = Memory(states, remembered)
    segments = Segments(batch, visible=visible, targets=targets, target_until=until)
    found = influences(model, segments, memory)
    sequence = torch.repeat_interleave(torch.arange(3), torch.tensor(lengths))
    for row, target in zip(found, targets.tolist(), strict=True):
        earlier = (ranks < ranks[target]) & (sequence == sequence[target])
        assert (row[~earlier] == 0).all()
        assert (row[earlier] > 0).all()
    # Ordinary tokens know of no target; a target's content knows itself.
    content = influences(model, replace(segments, targets=None), memory)
    ordinary = ranks == -1
    assert (content[ordinary][:, ~ordinary] == 0).all()
    assert (content[targets, targets] > 0).all()


def test_p4_a_row_that_sees_nothing_gets_only_what_it_began_with() -> None:
    """The mean of all values, as in the official code, would leak what it is to predict."""
    model, lengths = xlnet(), [5]
    batch = builders.packed(lengths)
    ranks = torch.tensor([2, 0, 1, 4, 3])
    content, query = permuted(ranks, ranks >= 0)
    segments = Segments(batch, content, torch.arange(5), query.until)
    blind = read(model, segments)[1]
    other = pack([[int(i) % 7 + 1 for i in range(5)]], [batch.token_type_ids.numpy()])
    assert torch.equal(read(model, replace(segments, packed=other))[1], blind)


@pytest.mark.parametrize(("norm", "gate"), [("post", False), ("pre", False), ("pre", True)])
def test_p5_segment_by_segment_is_one_long_text(norm: str, gate: bool) -> None:
    """Causal, with a memory of everything, at every depth; also through `decode_step`."""
    model = xlnet(SharingPlan.shared(3), norm=norm, head_gate=gate, type_vocab_size=0)
    tokens = builders.sequences([14, 11])
    whole = pack(tokens)
    states = model.encoder
    visible = causal(whole.lengths, whole.input_ids)
    long = by_sequence([14, 11], read(model, Segments(whole, visible=visible)))
    memory, cache = None, None
    for first, end in ((0, 4), (4, 5), (5, 11)):
        part = pack([x[first:end] for x in tokens])
        seen = causal(part.lengths, part.input_ids)
        found, memory = encode_segments(states, Segments(part, visible=seen), memory, keep=100)
        expected = torch.cat([x[first:end] for x in long])
        torch.testing.assert_close(found, expected, atol=1e-12, rtol=0)
        assert memory.lengths == (end, end)
    prefixed = pack(tokens, prefix=(1, 1))
    torch.testing.assert_close(states(prefixed).last_hidden, torch.cat(long), atol=1e-12, rtol=0)
    for first, end in ((0, 1), (1, 2), (2, 3)):
        part = pack([x[first:end] for x in tokens])
        part = replace(part, position_ids=part.position_ids + first)
        found, cache = decode_step(states, part, cache)
        torch.testing.assert_close(found, torch.cat([x[first:end] for x in long]), atol=1e-12, rtol=0)


def test_p5_memory_has_no_gradient_and_its_reach_grows_with_depth() -> None:
    keep, lengths = 3, [3]
    segment = [builders.sequences(lengths, seed)[0] for seed in range(4)]
    for depth in (1, 2, 3):
        model = xlnet(SharingPlan.shared(depth), type_vocab_size=0)

        def last(tokens: list[object], model: Model = model) -> torch.Tensor:
            memory = None
            for part in tokens:
                packed = pack([part])  # type: ignore[list-item]
                visible = causal(packed.lengths, packed.input_ids)
                found, memory = encode_segments(
                    model.encoder, Segments(packed, visible=visible), memory, keep=keep
                )
                assert not any(x.requires_grad for x in memory.states)
            return found

        before = last(list(segment))
        for back in range(1, 4):
            other = list(segment)
            other[3 - back] = (segment[3 - back] % 50) + 1
            changed = (last(other) - before).abs().max() > 0
            assert changed == (back <= depth)


@settings(max_examples=25, deadline=None)
@given(
    sizes=st.lists(st.tuples(st.integers(1, 9), st.integers(0, 5), st.booleans()), min_size=1, max_size=5),
    seed=st.integers(0, 1000),
)
def test_p7_packed_is_each_alone(sizes: list[tuple[int, int, bool]], seed: int) -> None:
    """Any mix of lengths, memory lengths and directions, with targets, keeping and reusing."""
    model = xlnet(seed=1)
    lengths, before, backward = map(list, zip(*sizes, strict=True))
    batch, visible, _, targets, until = at_random(lengths, seed, share=0.3)
    states = tuple(torch.randn(sum(before), H, dtype=torch.float64) for _ in range(3))
    memory = Memory(states, tuple(before))
    how: dict[str, object] = {"keep": 6, "reuse": 4}
    whole = Segments(batch, visible, targets, until, tuple(backward))
    assert model.lm is not None
    together, kept = encode_segments(model.encoder, whole, memory, query=model.lm.query, **how)  # type: ignore[arg-type]
    alone, first, out = [], 0, []
    for s, length in enumerate(lengths):
        rows = slice(first, first + length)
        mine = (targets >= first) & (targets < first + length)
        one = Segments(
            pack([batch.input_ids[rows].numpy()], [batch.token_type_ids[rows].numpy()]),
            Visibility(visible.when[rows], visible.until[rows]),
            targets[mine] - first,
            until[mine],
            (backward[s],),
        )
        x, memory_of = encode_segments(model.encoder, one, memory.of([s]), query=model.lm.query, **how)  # type: ignore[arg-type]
        out.append(x)
        alone.append(memory_of)
        first += length
    torch.testing.assert_close(together, torch.cat(out), atol=1e-11, rtol=0)
    joined = Memory.joined(alone)
    assert joined.lengths == kept.lengths
    assert max(kept.lengths) <= 6
    for mine, theirs in zip(kept.states, joined.states, strict=True):
        torch.testing.assert_close(mine, theirs, atol=1e-11, rtol=0)


def test_a_backward_text_equals_the_reference_with_its_sign() -> None:
    model = xlnet(SharingPlan.shared(1)).float()
    batch = builders.packed([9])
    p, config = dict(model.named_parameters()), model.config
    x = reference._embed(p, config, batch.input_ids, batch.token_type_ids)
    name, types = "encoder.attention.0", batch.token_type_ids
    mask = torch.ones(9)
    mixed, _ = reference.relative_attention(p, name, x, mask, types, config, sign=-1)
    x = reference.layer_norm(p, f"{name}.layer_norm", x + mixed, config.layer_norm_eps)
    f = "encoder.feed_forward.0"
    x = reference.layer_norm(
        p, f"{f}.layer_norm", x + reference.feed_forward(p, f, x, config), config.layer_norm_eps
    )
    found = read(model, Segments(batch, backward=(True,)))
    torch.testing.assert_close(found, x, atol=3e-5, rtol=1e-4)


def test_a_query_reaches_no_further_than_it_may() -> None:
    model, length = xlnet(SharingPlan.shared(1), type_vocab_size=0), 8
    batch = pack(builders.sequences([length]))
    segments = Segments(batch, visible=causal([length], batch.input_ids), reach=2)
    found = influences(model, segments) > 0
    distance = torch.arange(length)[:, None] - torch.arange(length)
    assert torch.equal(found, (distance >= 0) & (distance <= 2))


@torch.no_grad()
@pytest.mark.parametrize("by", [1, 40, 700])
def test_p6_places_may_move_and_padding_stand_before(by: int) -> None:
    model, batch = xlnet(), builders.packed([7, 3])
    wanted = model.encoder(batch).last_hidden
    moved = replace(batch, position_ids=batch.position_ids + by)
    for rows in (None, torch.tensor([1, 8])):  # all of the last depth, or some that look distances up
        found, whole = model.encoder(moved, rows=rows).last_hidden, wanted if rows is None else wanted[rows]
        torch.testing.assert_close(found, whole, atol=1e-6, rtol=0)
    columns = batch.input_ids[:7], torch.ones(7, dtype=torch.int64), batch.token_type_ids[:7]
    padded = model(*(torch.cat([x.new_zeros(by), x])[None] for x in columns)).last_hidden_state
    torch.testing.assert_close(padded[0, by:], wanted[:7], atol=1e-6, rtol=0)


@torch.no_grad()
def test_by_reshapes_the_scores_are_the_same_view() -> None:
    """Appendix B of Transformer-XL copies nothing on the way there: numbers and strides are ours."""
    nothing = torch.zeros(0, dtype=torch.int64)
    group = SequenceGroup(3, 6, 10, False, 6, 10, nothing, None, nothing, nothing)
    q, table, some = torch.randn(3, 4, 6, 8), torch.randn(4, 8, 21), slice(0, None)
    ours, theirs = (form(q, table, group, some) for form in (shifted_scores, reshaped_scores))
    assert torch.equal(ours, theirs) and ours.stride() == theirs.stride()


def test_of_a_sequence_without_a_wanted_row_nothing_is_computed() -> None:
    model, batch = xlnet(), builders.packed([7, 3, 5])
    wanted = torch.tensor([1, 12])
    whole = model.encoder(batch).last_hidden
    torch.testing.assert_close(
        model.encoder(batch, rows=wanted).last_hidden, whole[wanted], atol=1e-12, rtol=0
    )
    assert model.encoder(batch, rows=wanted[:0]).last_hidden.shape == (0, H)


@pytest.mark.parametrize("streams", [1, 2])
def test_queries_in_parts_are_those_computed_at_once(streams: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers and gradients, with memories, both directions and orders of factorisation; 7 and 9 rows in
    parts of 3 end once inside a part."""
    lengths, remembered = [7, 7, 9], (4, 4, 2)
    batch, content, _, targets, until = at_random(lengths)
    segments = Segments(batch, content, backward=(False, True, True))
    if streams == 2:
        segments = replace(segments, targets=targets, target_until=until)
    states = torch.randn(3, sum(remembered), H, generator=torch.Generator().manual_seed(3)).double()
    found = []
    for rows in (128, 3):
        monkeypatch.setattr(relative, "QUERIES_AT_ONCE", rows)
        model = xlnet(SharingPlan.unshared(3))
        out = read(model, segments, Memory(tuple(states), remembered))
        out.square().sum().backward()
        found.append({"out": out} | {n: p.grad for n, p in model.named_parameters() if p.grad is not None})
    assert len(found[0]) > 30
    for name, at_once in found[0].items():
        torch.testing.assert_close(found[1][name], at_once, atol=1e-11, rtol=1e-11)


@pytest.mark.parametrize("plan", [SharingPlan.shared(3), SharingPlan.unshared(3)])
def test_w_r_is_applied_once_a_pass_where_depths_share_it(
    plan: SharingPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, forward = xlnet(plan), Linear.forward
    layers = {id(block.position.weight): 0 for block in model.encoder.attention}

    def counted(layer: Linear, x: torch.Tensor) -> torch.Tensor:
        if id(layer.weight) in layers:
            layers[id(layer.weight)] += 1
        return forward(layer, x)

    monkeypatch.setattr(Linear, "forward", counted)
    model.encoder(builders.packed([5, 3]))
    assert set(layers.values()) == {1}


def test_the_block_of_every_depth_counts_as_published() -> None:
    """5·H numbers of biases and segments belong to the block (zihangdai/xlnet, `modeling.py`)."""
    shared, apart = xlnet(SharingPlan.shared(3)), xlnet(SharingPlan.unshared(3))
    tied = xlnet(SharingPlan.unshared(3), relative_biases="tied")
    block = 5 * H * H + 5 * H + 2 * H
    feed_forward = 2 * H * 40 + 40 + H + 2 * H

    def size(model: Model) -> int:
        return sum(p.numel() for p in model.encoder.parameters())

    assert size(apart) - size(shared) == 2 * (block + feed_forward)
    assert size(apart) - size(tied) == 2 * 3 * H


@pytest.mark.parametrize("biases", ["block", "tied"])
def test_unsharing_changes_no_answer(biases: str) -> None:
    model = xlnet(SharingPlan.shared(3), relative_biases=biases)
    batch, visible, _, targets, until = at_random([6, 8])
    segments = Segments(batch, visible, targets, until)
    apart = replan(model, SharingPlan.unshared(3))
    torch.testing.assert_close(read(apart, segments), read(model, segments), atol=1e-12, rtol=0)
    again = replan(apart, SharingPlan.shared(3))
    torch.testing.assert_close(read(again, segments), read(model, segments), atol=1e-12, rtol=0)


def test_logits_are_the_word_embeddings_times_the_rows() -> None:
    model = xlnet()
    assert model.lm is not None and model.encoder.embeddings.mapping is not None
    batch, visible, _, targets, until = at_random([6, 8])
    segments = Segments(batch, visible, targets, until)
    logits, _ = predict_segments(model, segments)
    back = read(model, segments) @ model.encoder.embeddings.mapping.weight
    expected = back @ model.encoder.embeddings.word.weight.T + model.lm.bias
    torch.testing.assert_close(logits, expected, atol=1e-12, rtol=0)


def test_dropout_falls_on_the_table_of_distances_once_a_pass() -> None:
    model = xlnet(SharingPlan.shared(1), hidden_dropout_prob=0.5).train()
    seed_torch(1, "dropout")
    rows, like = Rows.of(builders.packed([9])), torch.empty(0, dtype=torch.float64)
    table = with_positions(rows, model.config, like, model.training).distances.table_PH  # type: ignore[union-attr]
    assert 0.3 < float((table == 0).double().mean()) < 0.7
    model.eval()
    table = with_positions(rows, model.config, like, model.training).distances.table_PH  # type: ignore[union-attr]
    assert float((table == 0).double().mean()) < 0.1


@pytest.mark.parametrize(
    "place", ["inside the feed-forward", "behind the last depth", "at the start of the second stream"]
)
def test_xlnet_drops_out_in_two_more_places(place: str) -> None:
    """Products of 0 or of one number, so that the output shows what was dropped: halves of the 40 inner
    values, of which each adds 1/40, or the sum itself."""
    model = xlnet(SharingPlan.shared(1), hidden_dropout_prob=0.5).train()
    encoder, batch = model.encoder, pack([[7] * 24] * 24)
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.zero_()
        block = encoder.feed_forward[0]
        block.intermediate.bias.fill_(8.0)
        block.output.weight.fill_(1 / 40)
        for each in (*encoder.attention, block):
            each.layer_norm = torch.nn.Identity()
        if place == "inside the feed-forward":
            block.output.weight.mul_(torch.eye(40)[:24].to(block.output.weight.dtype) * 40)
        if place == "at the start of the second stream":
            block.output.weight.zero_()
    seed_torch(0, "dropout")
    if (
        place == "at the start of the second stream"
    ):  # ones, which pass two dropouts of a half, each for itself
        rows = torch.arange(batch.num_tokens)
        segments = Segments(batch, causal(batch.lengths, batch.input_ids), rows, rows % 24)
        ones = torch.ones(24, dtype=torch.float64)
        begun = encode_segments(encoder, segments, query=ones)[0].detach()
        assert begun.unique().tolist() == [0.0, 4.0]
        assert float((begun == 0).double().mean()) == pytest.approx(3 / 4, abs=0.02)
        assert 0 < float((begun == begun[:1]).double().mean()) < 1, "no two targets drop the same"
        return
    found = encoder(batch).last_hidden.detach()
    inner, outer, last = 2.0, 2.0, 2.0
    assert found.unique().numel() >= 2
    if place == "inside the feed-forward":  # one inner value a column: it passes three dropouts of a half
        values, counts = found.round(decimals=6).unique(return_counts=True)
        assert values.tolist() == [0.0, 8.0 * inner * outer * last]
        assert float(counts[1] / found.numel()) == pytest.approx(1 / 8, abs=0.02)
    else:
        assert float((found == 0).double().mean()) == pytest.approx(3 / 4, abs=0.02)


@pytest.mark.parametrize("remembered", [(), (4, 3)])
@pytest.mark.parametrize("streams", [1, 2])
def test_computing_again_keeps_less_and_gives_the_same_gradients(
    streams: int, remembered: tuple[int, ...]
) -> None:
    batch, content, _, targets, until = at_random([9, 7])
    segments = Segments(batch, content, targets, until) if streams == 2 else Segments(batch)
    found, kept = [], []
    for again in (False, True):
        model = xlnet(SharingPlan.unshared(8), hidden_dropout_prob=0.1).train()
        model.encoder.recompute = again
        memory = None
        if remembered:
            generator = torch.Generator().manual_seed(3)
            states = [torch.randn(sum(remembered), H, generator=generator).double() for _ in range(8)]
            memory = Memory(tuple(states), remembered)
        numbers: dict[int, int] = {}

        def count(tensor: torch.Tensor, numbers: dict[int, int] = numbers) -> torch.Tensor:
            numbers[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
            return tensor

        seed_torch(0, "dropout")
        with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
            out = read(model, segments, memory)
        kept.append(sum(numbers.values()))
        out.square().sum().backward()
        found.append({name: p.grad for name, p in model.named_parameters() if p.grad is not None})
    assert kept[1] < kept[0] / 2
    assert found[0].keys() == found[1].keys() and len(found[0]) > 50
    assert all(torch.equal(found[1][name], gradient) for name, gradient in found[0].items())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"clamp_positions": -1}, "clamp_positions must be .* from 0 to .*, got -1.*1 or more, or 0 for no"),
        ({"qk_norm": True}, "qk_norm: false"),
        ({"hidden_size": 27, "num_attention_heads": 3}, "even hidden_size"),
        ({"positions": "rotary", "clamp_positions": 3}, "belong to relative positions"),
        ({"relative_biases": "none"}, "relative_biases `none`"),
    ],
)
def test_a_choice_that_does_not_fit_is_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        builders.config(**(XLNET | changes))


def test_memory_and_query_stream_need_relative_positions_and_a_head() -> None:
    plain = builders.model()
    with pytest.raises(SettingsError, match="need relative positions, and this encoder's are learned"):
        encode_segments(plain.encoder, Segments(builders.packed([3])))
    model = Model(builders.config(**XLNET), {"mlm"})
    batch, visible, _, targets, until = at_random([6])
    with pytest.raises(SettingsError, match="cannot begin a second stream"):
        predict_segments(model, Segments(batch, visible, targets, until))
    with pytest.raises(SettingsError, match="no head that predicts"):
        predict_segments(Model(builders.config(**XLNET)), Segments(batch))
    assert EncoderConfig.from_dict(model.config.to_dict()) == model.config
