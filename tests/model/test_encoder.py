"""The packed encoder against the slow padded one, and against itself called in other ways."""

from dataclasses import replace
from typing import get_args

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from albertine.core.batch import pack
from albertine.core.randomness import seed_torch
from albertine.errors import SettingsError
from albertine.model.backend.onednn import round_up
from albertine.model.config import Activation, Positions
from albertine.model.model import Model
from albertine.model.positions.registry import ATTENTION_BLOCKS, ENCODINGS
from albertine.model.sharing import SharingPlan
from tests import reference
from tests.model import builders

CLOSE = {"atol": 2e-5, "rtol": 1e-4}
acts = st.sampled_from(get_args(Activation))
widths = st.sampled_from([8, 24])
quick = settings(max_examples=25, deadline=None)


def rows_of(batch, states_BLH):
    """The real rows (T, …) of a padded tensor."""
    return torch.cat([row[:n] for row, n in zip(states_BLH, batch.lengths, strict=True)])


@quick
@given(builders.plans(), builders.lengths, acts, widths, st.sampled_from(["if_needed", "always"]))
def test_packed_equals_the_padded_reference_at_every_depth(plan, lengths, act, width, mapping):
    model = builders.model(plan, hidden_act=act, embedding_size=width, embedding_mapping=mapping)
    batch = builders.packed(lengths)
    with torch.no_grad():
        found = model.encoder(batch, all_depths=True)
        expected = reference.encode(model, *builders.padded(batch))
    assert len(found.hidden_states) == plan.depth + 1
    for ours, theirs in zip(found.hidden_states, expected, strict=True):
        torch.testing.assert_close(ours, rows_of(batch, theirs), **CLOSE)
    assert torch.equal(found.last_hidden, found.hidden_states[-1])


@quick
@given(builders.plans(), builders.lengths, st.data())
def test_wanted_rows_equal_those_of_the_whole(plan, lengths, data):
    model, batch = builders.model(plan), builders.packed(lengths)
    row = st.integers(0, batch.num_tokens - 1)
    rows = torch.tensor(data.draw(st.lists(row, unique=True, min_size=1)))
    depth = data.draw(st.integers(0, plan.depth))
    with torch.no_grad():
        whole = model.encoder(batch, depth=depth).last_hidden
        part = model.encoder(batch, depth=depth, rows=rows).last_hidden
    torch.testing.assert_close(part, whole[rows], **CLOSE)


def test_a_row_named_twice_and_no_row_at_all():
    model, batch = builders.model(), builders.packed([3, 5])
    whole = model.encoder(batch).last_hidden
    twice = torch.tensor([4, 0, 4])
    torch.testing.assert_close(model.encoder(batch, rows=twice).last_hidden, whole[twice], **CLOSE)
    assert model.encoder(batch, rows=torch.tensor([], dtype=torch.long)).last_hidden.shape == (0, 24)


@quick
@given(builders.plans(), builders.lengths, st.data())
def test_an_early_exit_is_the_truncated_plan(plan, lengths, data):
    depth = data.draw(st.integers(1, plan.depth))
    model, batch = builders.model(plan), builders.packed(lengths)
    short = Model(model.config.with_plan(plan.truncated(depth)), model.heads)
    short.load_state_dict({k: v for k, v in model.state_dict().items() if k in short.state_dict()})
    with torch.no_grad():
        early, whole = model.encoder(batch, depth=depth).last_hidden, short.eval().encoder(batch).last_hidden
    assert torch.equal(early, whole)


@quick
@given(builders.lengths, st.randoms(use_true_random=False))
def test_order_of_sequences_changes_nothing(lengths, random):
    model, texts = builders.model(), builders.sequences(lengths)
    order = list(range(len(texts)))
    random.shuffle(order)
    with torch.no_grad():
        straight = model.encoder(pack(texts)).last_hidden.split(lengths)
        mixed = model.encoder(pack([texts[i] for i in order])).last_hidden.split([lengths[i] for i in order])
    for place, i in enumerate(order):
        torch.testing.assert_close(mixed[place], straight[i], **CLOSE)


def test_a_sequence_is_blind_to_its_neighbours():
    model = builders.model()
    one, other, third = builders.sequences([5, 7, 9])
    with torch.no_grad():
        beside = [model.encoder(pack([one, x])).last_hidden[:5] for x in (other, third)]
    torch.testing.assert_close(*beside, **CLOSE)


@settings(max_examples=10, deadline=None)
@given(builders.plans(), builders.lengths, st.data())
def test_gradients_equal_those_of_the_reference(plan, lengths, data):
    model, batch = builders.model(plan).double().float(), builders.packed(lengths)
    row = st.integers(0, batch.num_tokens - 1)
    rows = torch.tensor(data.draw(st.lists(row, unique=True, min_size=1)))
    labels = torch.arange(len(rows)) % builders.VOCABULARY
    order = torch.arange(batch.num_sequences) % 2
    entropy = torch.nn.functional.cross_entropy

    logits, sentence = model.pretraining_forward(batch, rows)
    (entropy(logits, labels) + entropy(sentence, order)).backward()
    ours = {name: p.grad for name, p in model.named_parameters()}
    model.zero_grad(set_to_none=True)
    hidden = reference.encode(model, *builders.padded(batch))[-1]
    slow = entropy(reference.mlm_logits(model, rows_of(batch, hidden)[rows]), labels)
    (slow + entropy(reference.sentence_logits(model, hidden), order)).backward()
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(
            ours[name], parameter.grad, atol=3e-5, rtol=2e-3, msg=lambda m, n=name: f"{n}: {m}"
        )


def test_bfloat16_stays_near_float32():
    model, batch = builders.model(initializer_range=0.1), builders.packed([3, 12, 7, 7, 1])
    rows = torch.tensor([1, 5, 20])
    with torch.no_grad():
        exact = model.encoder(batch).last_hidden
        logits, _ = model.pretraining_forward(batch, rows)
        model.precision = "bfloat16"
        rough = model.encoder(batch).last_hidden
        rough_logits, rough_sentence = model.pretraining_forward(batch, rows)
    assert rough.dtype == rough_logits.dtype == rough_sentence.dtype == torch.bfloat16
    for found, expected in ((rough, exact), (rough_logits, logits)):
        error = (found.float() - expected).abs()
        assert 0 < error.mean() < 0.01
        assert error.max() < 0.1


def test_the_filler_of_bfloat16_batches_is_invisible():
    """In bfloat16 a CPU computes a rounded number of rows; what comes out are the real ones."""
    lengths = [20, 31, 22]
    model, batch = builders.model(initializer_range=0.1), builders.packed(lengths)
    model.precision = "bfloat16"
    with torch.no_grad():
        assert builders.computed(model, batch) == (80, None)
    rows = torch.tensor([72, 0, 40])
    with torch.no_grad():
        states = model.encoder(batch, all_depths=True).hidden_states
        wanted = model.encoder(batch, rows=rows).last_hidden
        early = model.encoder(batch, depth=1).last_hidden
        alone = model.encoder(builders.packed([20])).last_hidden
        model.precision = "float32"
        exact = model.encoder(batch).last_hidden
    assert [len(state) for state in states] == [73] * 4
    assert (len(early), len(wanted)) == (73, 3)
    torch.testing.assert_close(wanted, states[-1][rows], rtol=0.02, atol=0.02)
    torch.testing.assert_close(states[-1].float(), exact, rtol=0.1, atol=0.1)
    assert len(alone) == 20


@given(st.integers(1, 20_000))
def test_few_different_numbers_of_rows_are_computed(tokens):
    rows = round_up(tokens)
    assert rows % 16 == 0 and tokens <= rows < max(tokens + 16, 1.125 * tokens)


@pytest.mark.parametrize(
    ("precision", "gradients", "fills"),
    [("float32", True, False), ("float32", False, True), ("bfloat16", True, True), ("bfloat16", False, True)],
)
def test_where_onednn_multiplies_rows_are_filled_up(precision, gradients, fills):
    model, batch = builders.model(), builders.packed([9, 12])
    model.precision = precision
    with torch.set_grad_enabled(gradients):
        # For two requested rows, inference computes two: fourteen more take longer than to compile for two.
        two = 16 if fills and gradients else 2
        assert builders.computed(model, batch, torch.tensor([3, 5])) == (32 if fills else 21, two)
        # Of a row for each of many texts there would be any number, and a kernel for each.
        assert builders.computed(model, batch, torch.arange(20)) == ((32, 32) if fills else (21, 20))
        model.encoder.backend = "plain"
        assert builders.computed(model, batch, torch.arange(20)) == (21, 20)


@given(builders.plans(), builders.lengths)
def test_recomputing_changes_nothing(plan, lengths):
    model, batch = builders.model(plan, hidden_dropout_prob=0.1).train(), builders.packed(lengths)
    found = []
    for recompute in (False, True):
        model.encoder.recompute = recompute
        model.zero_grad(set_to_none=True)
        seed_torch(0, "test")
        logits, _ = model.pretraining_forward(batch, torch.tensor([0]))
        logits.float().square().sum().backward()
        found.append({n: p.grad for n, p in model.named_parameters() if p.grad is not None})
    kept, recomputed = found
    assert kept.keys() == recomputed.keys() and len(kept) > 10
    assert all(torch.equal(kept[name], recomputed[name]) for name in kept)


def test_recomputing_keeps_less():
    model, batch = builders.model(SharingPlan.shared(8)).train(), builders.packed([12, 9])
    kept = []
    for recompute in (False, True):
        model.encoder.recompute = recompute
        numbers = 0

        def count(tensor):
            nonlocal numbers
            numbers += tensor.numel()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
            model.encoder(batch)
        kept.append(numbers)
    assert kept[1] < kept[0] / 4


def test_bfloat16_gradients_reach_float32_parameters():
    model, batch = builders.model(initializer_range=0.1).train(), builders.packed([3, 12, 7])

    def gradients(precision):
        model.precision = precision
        model.zero_grad(set_to_none=True)
        logits, sentence = model.pretraining_forward(batch, torch.tensor([1, 9]))
        (logits.float().logsumexp(1).sum() + sentence.float().square().sum()).backward()
        return {name: p.grad for name, p in model.named_parameters()}

    exact, rough = gradients("float32"), gradients("bfloat16")
    for name, gradient in rough.items():
        assert gradient.dtype == torch.float32, name
        if name.endswith("key.bias"):
            # Softmax does not see it: its gradient is zero, and what stands there is rounding.
            assert gradient.abs().max() < 1e-3
        else:
            assert torch.cosine_similarity(gradient.flatten(), exact[name].flatten(), 0) > 0.98, name


def test_dropout_is_a_function_of_the_seed():
    model = builders.model(hidden_dropout_prob=0.3, attention_probs_dropout_prob=0.3).train()
    batch = builders.packed([9, 4])

    def run(step):
        seed_torch(1, "dropout", step)
        return model.encoder(batch).last_hidden

    assert torch.equal(run(0), run(0))
    assert not torch.equal(run(0), run(1))
    model.eval()
    assert torch.equal(run(0), run(1))


@pytest.mark.parametrize(("kind", "keeps_ffn"), [("google", True), ("huggingface", False)])
def test_feed_forward_dropout_is_google_semantics(kind, keeps_ffn):
    config = builders.config(SharingPlan.shared(1), hidden_dropout_prob=0.5)
    config = config if kind == "google" else config.huggingface()
    block = Model(config).train().encoder.feed_forward[0]
    x = torch.randn(6, 24)
    assert torch.equal(block(x), block(x)) is not keeps_ffn


def test_precision_none_of_the_parameters_is_ever_cast():
    model = builders.model()
    model.precision = "bfloat16"
    model.encoder(builders.packed([3]))
    assert {p.dtype for p in model.parameters()} == {torch.float32}


@pytest.mark.parametrize(
    ("lengths", "wants"),
    [
        ([33], {}),
        ([3], {"depth": 4}),
        ([3], {"depth": -1}),
        ([3], {"rows": torch.tensor([0]), "all_depths": True}),
    ],
)
def test_impossible_requests_are_refused(lengths, wants):
    with pytest.raises(SettingsError):
        builders.model().encoder(builders.packed(lengths), **wants)


def test_shared_weights_are_prepared_once_per_forward(monkeypatch):
    from albertine.model.backend.gradient_accumulation import AccumulatedGradients

    calls = []
    build = AccumulatedGradients._stacked
    monkeypatch.setattr(
        AccumulatedGradients, "_stacked", lambda s, layers: calls.append(layers) or build(s, layers)
    )
    model = builders.model(SharingPlan.grouped(6, 2))
    model.encoder(builders.packed([3]))
    blocks = 2 * [3, 1, 1, 1]  # query, key and value as one, output, up, down
    assert sorted(map(len, calls)) == sorted([1, *blocks])  # and the mapping of the embeddings


@pytest.mark.parametrize("change", ["in_place", "load", "assign", "precision", "optimizer"])
def test_kept_weights_follow_every_change(change):
    model, other = builders.model(seed=0), builders.model(seed=1)
    batch = builders.packed([5, 2])
    with torch.no_grad():
        before = model.encoder(batch).last_hidden
        assert torch.equal(before, model.encoder(batch).last_hidden)
    if change == "in_place":
        with torch.no_grad():
            for parameter, new in zip(model.parameters(), other.parameters(), strict=True):
                parameter.copy_(new)
    elif change in ("load", "assign"):
        model.load_state_dict(other.state_dict(), assign=change == "assign")
    elif change == "precision":
        model.precision = other.precision = "bfloat16"
        other.load_state_dict(model.state_dict())
    else:
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
        model.encoder(batch).last_hidden[:, 0].sum().backward()
        optimizer.step()
        other.load_state_dict(model.state_dict())
    with torch.no_grad():
        after = model.encoder(batch).last_hidden
        assert torch.equal(after, other.encoder(batch).last_hidden)
    assert not torch.equal(before, after)


def test_a_copy_of_a_model_that_has_run_is_independent():
    import copy

    model, batch = builders.model(), builders.packed([5])
    with torch.inference_mode():
        before = model.encoder(batch).last_hidden
    twin = copy.deepcopy(model)
    with torch.no_grad():
        twin.encoder.attention[0].query.weight.zero_()
        assert not torch.equal(twin.encoder(batch).last_hidden, before)
        assert torch.equal(model.encoder(batch).last_hidden, before)


def test_positions_of_padding_on_the_left_are_its_columns():
    model = builders.model()
    ids = torch.tensor([[0, 0, 7, 8], [5, 6, 7, 8]])
    mask = torch.tensor([[0, 0, 1, 1], [1, 1, 1, 1]])
    with torch.no_grad():
        found = model(ids, mask).last_hidden_state
        expected = reference.encode(model, ids, mask, torch.zeros_like(ids))[-1]
    torch.testing.assert_close(found[mask.bool()], expected[mask.bool()], **CLOSE)
    assert not found[0, :2].any()


def test_long_position_tables_and_one_token_texts():
    model = builders.model(max_position_embeddings=512)
    batch = builders.packed([512, 1])
    with torch.no_grad():
        found = model.encoder(batch).last_hidden
        expected = reference.encode(model, *builders.padded(batch))[-1]
    torch.testing.assert_close(found, rows_of(batch, expected), **CLOSE)
    assert np.isfinite(found.numpy()).all()


def test_config_changes_are_copies():
    config = builders.config()
    assert replace(config, hidden_act="relu") != config


@pytest.mark.parametrize("wanted", [[0], [2, 2], [0, 1, 2, 0]])
def test_rows_that_are_filled_up_are_rows_that_there_are(wanted):
    model = builders.model()
    model.precision = "bfloat16"
    for num_rows in (3, 16, 40):
        filled = model.encoder._backend().padded_rows(torch.tensor(wanted), num_rows)
        assert filled[: len(wanted)].tolist() == wanted
        assert filled.max() < num_rows


def test_every_position_encoding_is_registered_with_its_blocks():
    assert set(ENCODINGS) == set(get_args(Positions))
    for name, encoding in ENCODINGS.items():
        blocks = encoding.blocks(builders.config(positions=name), 2)
        assert len(blocks) == 2 and {type(block) for block in blocks} <= ATTENTION_BLOCKS
        assert (encoding.add is None) == (encoding.trace is None)
