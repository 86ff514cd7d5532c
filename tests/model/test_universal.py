"""The Universal Transformer: signals before every step, and positions that halt by themselves."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from albertine.core.batch import Packed, pack
from albertine.errors import InputError, SettingsError
from albertine.interop.huggingface.folders import load_model, save_model
from albertine.model.config import EncoderConfig
from albertine.model.halting import Halting, HaltingUnit
from albertine.model.model import Model
from albertine.model.resharing import replan
from albertine.model.rows import Rows
from albertine.model.sharing import SharingPlan
from albertine.model.two_streams import Segments, encode_segments
from tests import reference
from tests.model import builders

DEEP = SharingPlan.shared(6)
LENGTHS = [5, 1, 12, 9, 3]
SIGNALS = {"positions": "none", "position_signal": "sinusoid", "step_signal": "learned"}
CLOSE = {"atol": 1e-6, "rtol": 1e-6}
each_rule = pytest.mark.parametrize("rule", ["basic", "accumulated"])


def universal(rule: str = "basic", *, bias: float = 0.5, spread: float = 0.2, **changes: object) -> Model:
    """With a unit so wide that positions take two to five steps; with .3 one to all."""
    model = builders.model(DEEP, halting=rule, **{**SIGNALS, **changes})
    unit = model.encoder.halting
    assert unit is not None
    with torch.no_grad():
        unit.bias.fill_(bias)
        unit.weight.mul_(spread / 0.3)
    return model


def in_double(model: Model) -> Model:
    model.double()
    model.encoder.backend = "plain"
    return model


class Prescribed:
    """A step to states that were drawn before: number 0 of a row is 1, number 1 its place."""

    def __init__(self, depth: int, tokens: int, hidden: int, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.states = torch.randn(depth + 1, tokens, hidden, generator=generator, dtype=torch.float64)
        self.states[:, :, 0] = 1
        self.states[:, :, 1] = torch.arange(tokens)
        self.computed: list[int] = []

    def __call__(self, d: int, x_RH: Tensor, context_TH: Tensor, queries: Rows, keys: Rows) -> Tensor:
        assert x_RH is context_TH and queries is keys
        assert sum(queries.known_lengths()) == len(x_RH) and 0 not in queries.known_lengths()
        assert tuple(queries.cu_seqlens.diff().tolist()) == queries.known_lengths()
        self.computed.append(len(x_RH))
        return self.states[d + 1][x_RH[:, 1].long()]


@settings(max_examples=40, deadline=None)
@given(
    builders.lengths,
    st.integers(1, 7),
    st.sampled_from(["basic", "accumulated"]),
    st.sampled_from(["remainder", "reference"]),
    st.sampled_from([0.01, 0.1, 0.3]),
    st.floats(-2, 2),
    st.integers(0, 99),
)
def test_the_state_machine_equals_the_scalar_one(
    lengths: list[int], depth: int, rule: str, limit: str, epsilon: float, bias: float, seed: int
) -> None:
    """Steps, remainders, outputs and sums of weights of every position."""
    config = builders.config(
        SharingPlan.shared(depth), halting=rule, halting_limit=limit, halting_epsilon=epsilon, hidden_size=8
    )
    unit = HaltingUnit(config).double()
    with torch.no_grad():
        unit.bias.fill_(bias)
        unit.weight.copy_(torch.randn(1, 8, generator=torch.Generator().manual_seed(seed)))
        unit.weight[0, 1] = 0
    batch = builders.packed(lengths)
    step = Prescribed(depth, batch.num_tokens, 8, seed)
    with torch.no_grad():
        out = Halting(config, unit, None).run(step, step.states[0], Rows.of(batch), depth, None, True)
    assert out.ponder is not None and out.hidden_states is not None and len(out.hidden_states) == depth + 1

    names = {f"encoder.halting.{n}": p.detach() for n, p in unit.named_parameters()}
    chances = [[reference.chance(names, row) for row in state] for state in step.states[:-1]]
    y, steps, remainders, weights = reference.halted(config, list(step.states), chances, depth)
    assert out.ponder.steps.tolist() == steps
    torch.testing.assert_close(
        out.ponder.remainder, torch.stack([r.double() for r in remainders]), atol=1e-7, rtol=0
    )
    torch.testing.assert_close(out.last_hidden, y, **CLOSE)
    if rule == "accumulated":
        sums = out.last_hidden[:, 0]
        torch.testing.assert_close(sums, torch.tensor(weights).double(), atol=1e-7, rtol=0)
        if limit == "remainder":
            torch.testing.assert_close(sums, torch.ones_like(sums), atol=1e-7, rtol=0)
    for most in range(1, depth + 1):  # each depth is what that limit gives
        expected = reference.halted(config, list(step.states), chances, most)[0]
        torch.testing.assert_close(out.hidden_states[most], expected, **CLOSE)


def test_the_reference_loses_what_is_not_halted_at_the_limit() -> None:
    """Exactly 1 - h, with small p nearly 1; the basic rule leaves Π(1 - w) on the zero it began with."""
    for rule, kept in (("accumulated", [0.3, 0.6]), ("basic", [0.3, 1 - 0.7 * 0.7])):
        config = builders.config(SharingPlan.shared(2), halting=rule, halting_limit="reference")
        unit = HaltingUnit(config)
        with torch.no_grad():
            unit.weight.zero_()
            unit.bias.fill_(float(np.log(0.3 / 0.7)))
        step = Prescribed(2, 3, 24, 0)
        rows = Rows.of(builders.packed([3]))
        out = Halting(config, unit, None).run(step, step.states[0], rows, 2, None, True)
        assert out.hidden_states is not None and out.ponder is not None
        found = [float(x.detach()[0, 0]) for x in out.hidden_states[1:]]
        assert found == pytest.approx(kept, abs=1e-6)
        assert out.ponder.steps.tolist() == [2] * 3 and out.ponder.remainder.tolist() == [0] * 3


def test_the_basic_rule_is_not_a_mean() -> None:
    """Weights .3, .3 and .4 leave .294 on the zero."""
    config = builders.config(SharingPlan.shared(3), halting="basic")
    unit = HaltingUnit(config)
    with torch.no_grad():
        unit.weight.zero_()
        unit.bias.fill_(float(np.log(0.3 / 0.7)))
    step = Prescribed(3, 2, 24, 0)
    out = Halting(config, unit, None).run(step, step.states[0], Rows.of(builders.packed([2])), 3, None, False)
    assert float(out.last_hidden.detach()[0, 0]) == pytest.approx(0.706)
    assert out.ponder is not None and float(out.ponder.cost.detach()[0]) == pytest.approx(3.4)


@each_rule
def test_forced_to_halt_at_once_or_never(rule: str) -> None:
    batch = builders.packed(LENGTHS)
    for bias, steps in ((20.0, 1), (-20.0, 6)):
        model = universal(rule, bias=bias, spread=0.0)
        fixed = Model(replace(model.config, halting="none"), model.heads)
        fixed.load_state_dict(
            {n: x for n, x in model.state_dict().items() if not n.startswith("encoder.halting")}
        )
        with torch.no_grad():
            found = model.encoder(batch)
            expected = fixed.eval().encoder(batch, depth=steps).last_hidden
        assert found.ponder.steps.tolist() == [steps] * batch.num_tokens
        torch.testing.assert_close(found.last_hidden, expected, **CLOSE)
    lost = universal(rule, bias=-20.0, spread=0.0, halting_limit="reference")
    with torch.no_grad():
        assert float(lost.encoder(batch).last_hidden.abs().max()) < 1e-6


@each_rule
def test_the_gradient_of_pondering_is_that_of_finite_differences(rule: str) -> None:
    """In double: the unit's own weights, and a weight of the block that the states come from."""
    model, batch = in_double(universal(rule, spread=0.3)), builders.packed(LENGTHS)
    unit = model.encoder.halting
    assert unit is not None

    def cost() -> Tensor:
        ponder = model.encoder(batch).ponder
        assert ponder is not None
        return ponder.cost.mean()

    cost().backward()
    block = model.encoder.attention[0].value.weight  # type: ignore[union-attr]
    assert isinstance(block, Tensor)
    moved = 1e-6
    for parameter in (unit.weight, unit.bias, block):
        assert parameter.grad is not None and float(parameter.grad.abs().max()) > 1e-3
        flat = parameter.detach().view(-1)
        for i in range(0, len(flat), max(1, len(flat) // 7)):
            values = []
            for sign in (1, -1):
                flat[i] += sign * moved
                values.append(float(cost().detach()))
                flat[i] -= sign * moved
            expected = (values[0] - values[1]) / (2 * moved)
            assert float(parameter.grad.view(-1)[i]) == pytest.approx(expected, abs=1e-5)


@each_rule
@pytest.mark.parametrize("backend", ["plain", "auto"])
def test_alone_is_as_packed_with_longer_runners(rule: str, backend: str) -> None:
    model, texts = universal(rule), builders.sequences(LENGTHS)
    model.encoder.backend = backend
    with torch.no_grad():
        together = model.encoder(pack(texts))
        alone = [model.encoder(pack([text])) for text in texts]
    assert len({int(out.ponder.steps.max()) for out in alone}) > 1, "all run equally long"
    torch.testing.assert_close(together.last_hidden, torch.cat([x.last_hidden for x in alone]), **CLOSE)
    assert together.ponder.steps.tolist() == [n for x in alone for n in x.ponder.steps.tolist()]
    torch.testing.assert_close(
        together.ponder.remainder, torch.cat([x.ponder.remainder for x in alone]), **CLOSE
    )


@each_rule
def test_gradients_alone_are_as_packed_with_longer_runners(rule: str) -> None:
    texts, found = builders.sequences(LENGTHS), []
    for batches in ([texts], [[text] for text in texts]):
        model = universal(rule).train()
        for batch in batches:
            out = model.encoder(pack(batch))
            (out.last_hidden.pow(3).sum() + out.ponder.cost.sum()).backward()
        found.append({name: p.grad for name, p in model.named_parameters() if p.grad is not None})
    assert found[0].keys() == found[1].keys()
    for name, gradient in found[0].items():
        torch.testing.assert_close(
            found[1][name], gradient, atol=2e-3, rtol=1e-3, msg=lambda m, n=name: n + m
        )


def test_a_sequence_leaves_when_all_its_positions_have_halted(monkeypatch: pytest.MonkeyPatch) -> None:
    model, batch = universal(), builders.packed(LENGTHS)
    model.encoder.backend = "plain"  # which has no filler
    computed: list[int] = []
    plain = type(model.encoder).run_layer

    def counted(self: object, d: int, x: Tensor, *rest: object) -> Tensor:
        computed.append(len(x))
        return plain(self, d, x, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(type(model.encoder), "run_layer", counted)
    with torch.no_grad():
        steps = model.encoder(batch).ponder.steps.split(LENGTHS)
    longest = [int(n.max()) for n in steps]
    assert len(set(longest)) > 1
    every = [sum(n for n, most in zip(LENGTHS, longest, strict=True) if d < most) for d in range(6)]
    assert computed == [n for n in every if n]


@each_rule
def test_the_filler_of_bfloat16_counts_for_nothing(rule: str) -> None:
    model, batch = universal(rule), builders.packed([7, 13])
    with torch.no_grad():
        exact = model.encoder(batch)
        model.precision = "bfloat16"
        assert builders.computed(model, batch) == (32, None)
        rough = model.encoder(batch, rows=torch.tensor([3]))
        whole = model.encoder(batch)
    assert len(rough.ponder.steps) == len(rough.ponder.remainder) == 20 and len(rough.last_hidden) == 1
    assert rough.ponder.remainder.dtype == torch.float32
    torch.testing.assert_close(whole.last_hidden.float(), exact.last_hidden, atol=0.15, rtol=0.1)
    assert (rough.ponder.steps - exact.ponder.steps).abs().max() <= 1


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_computing_again_gives_the_same_gradients(precision: Literal["float32", "bfloat16"]) -> None:
    found = []
    for again in (False, True):
        model = universal().train()
        model.precision, model.encoder.recompute = precision, again
        out = model.encoder(builders.packed(LENGTHS), rows=torch.tensor([0, 7, 20]))
        (out.last_hidden.float().square().sum() + out.ponder.cost.sum()).backward()
        found.append({name: p.grad for name, p in model.named_parameters() if p.grad is not None})
    assert found[0].keys() == found[1].keys() and "encoder.halting.weight" in found[0]
    for name, gradient in found[0].items():
        torch.testing.assert_close(found[1][name], gradient, msg=lambda m, n=name: n + m)


def test_a_limit_of_depths_and_no_depth_at_all() -> None:
    model, batch = universal(), builders.packed(LENGTHS)
    with torch.no_grad():
        whole = model.encoder(batch, all_depths=True)
        for depth in (1, 2, 4):
            early = model.encoder(batch, depth=depth)
            torch.testing.assert_close(early.last_hidden, whole.hidden_states[depth], **CLOSE)
            assert early.ponder.steps.tolist() == whole.ponder.steps.clamp(max=depth).tolist()
        start = model.encoder(batch, depth=0)
        one = model.encoder(batch, depth=0, rows=torch.tensor([4, 0]))
    assert start.ponder is None and torch.equal(start.last_hidden, whole.hidden_states[0])
    assert torch.equal(one.last_hidden, start.last_hidden[[4, 0]])


def test_signals_are_by_place_and_by_step() -> None:
    """Against the formulas: a block of zeros adds nothing, so the state is the sum of all signals."""
    model = builders.model(
        positions="none", position_signal="sinusoid", step_signal="learned", norm="pre", qk_norm=False
    )
    with torch.no_grad():
        for part in (model.encoder.attention, model.encoder.feed_forward):
            for parameter in part.parameters():
                parameter.zero_()
        batch = builders.packed([4, 3])
        batch = replace(batch, position_ids=batch.position_ids + 9)
        states = model.encoder(batch, all_depths=True).hidden_states
    table = model.encoder.signals.step  # type: ignore[union-attr]
    assert isinstance(table, Tensor)
    expected = torch.zeros(7, 24)
    for row, place in enumerate(batch.position_ids.tolist()):
        expected[row] = reference.signal({}, model.config, "position", "sinusoid", place)
    for d in (0, 1):
        torch.testing.assert_close(states[d + 1] - states[d], expected + table[d], atol=1e-5, rtol=1e-5)


def test_tracing_a_model_leaves_no_state() -> None:
    """The tables of signals are cached between passes, and a tracer computes with proxies."""
    config = replace(builders.config(DEEP, **SIGNALS), hidden_size=28)  # a table that no other test uses
    batch = builders.packed(LENGTHS)

    class Traced(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = Model(config, seed=1).eval().encoder
            self.encoder.backend = "plain"

        def forward(self, ids: Tensor) -> Tensor:
            return self.encoder(replace(batch, input_ids=ids)).last_hidden

    torch.export.export(Traced(), (batch.input_ids,), strict=False)
    other = Model(config, seed=2).eval()
    assert type(other.encoder(batch).last_hidden) is Tensor


def test_another_number_of_steps_takes_its_signals_along() -> None:
    model, batch = builders.model(step_signal="learned", position_signal="learned"), builders.packed([4])
    grown = replan(model, SharingPlan.shared(5))
    with torch.no_grad():
        assert torch.equal(grown.encoder(batch, depth=3).last_hidden, model.encoder(batch).last_hidden)
    steps, before = grown.encoder.signals.step, model.encoder.signals.step  # type: ignore[union-attr]
    assert torch.equal(steps[3:], before[:2])  # type: ignore[index]


def test_a_signal_has_a_row_for_every_place() -> None:
    model = builders.model(positions="none", position_signal="sinusoid", max_position_embeddings=8)
    with pytest.raises(SettingsError, match="9 tokens is longer than the model's 8"):
        model.encoder(builders.packed([9]))
    mask = torch.zeros(1, 12, dtype=torch.long)
    mask[:, -4:] = 1
    with pytest.raises(InputError, match=r"column 11, and the model has the positions 0 to 7.*on the right"):
        model(torch.ones_like(mask), mask)
    nowhere = builders.model(positions="none", max_position_embeddings=8)
    assert len(nowhere.encoder(builders.packed([9])).last_hidden) == 9


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"plan": SharingPlan.grouped(4, 2), "halting": "basic"}, "2 of attention and 2 of feed-forward"),
        ({"plan": SharingPlan.attention_only(2), "halting": "basic"}, "sharing=all"),
        ({"halting": "global"}, "none, basic, accumulated"),
        ({"halting_epsilon": 0.0, "halting": "basic"}, "halting_epsilon"),
        ({"halting_limit": "t2t"}, "remainder, reference"),
        ({"step_signal": "on"}, "step_signal"),
    ],
)
def test_impossible_loops_are_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(SettingsError, match=message) as error:
        builders.config(**changes)  # type: ignore[arg-type]
    assert error.value.remedy or "epsilon" in message


def test_a_new_unit_begins_at_the_bias_of_the_reference() -> None:
    unit = Model(builders.config(halting="basic")).encoder.halting
    assert unit is not None and unit.bias.tolist() == [1.0] and float(unit.weight.detach().std()) > 0


@each_rule
def test_a_saved_folder_names_its_model_type_and_computes_the_same(rule: str, tmp_path) -> None:
    model, batch = universal(rule, halting_epsilon=0.05), builders.packed(LENGTHS)
    tree = model.config.to_dict()
    assert tree["format"] == 3 and model.config.architecture is None
    assert EncoderConfig.from_dict(tree) == model.config
    save_model(model, None, tmp_path / "m")
    assert '"model_type": "albertine"' in (tmp_path / "m" / "config.json").read_text()
    again = load_model(tmp_path / "m")
    with torch.no_grad():
        one, other = model.encoder(batch), again.encoder(batch)
    assert torch.equal(one.last_hidden, other.last_hidden)
    assert torch.equal(one.ponder.steps, other.ponder.steps)
    with pytest.raises(SettingsError, match="position_signal sinusoid, step_signal learned, halting"):
        save_model(model, None, tmp_path / "n", layout="transformers")


def test_a_padded_call_halts_as_the_packed_one() -> None:
    model, batch = universal(), builders.packed([5, 9])
    ids, mask, types = builders.padded(batch)
    with torch.no_grad():
        padded = model(ids, mask, types, output_hidden_states=True)
        packed: Packed = batch
        expected = model.encoder(packed).last_hidden
    torch.testing.assert_close(padded.last_hidden_state[mask.bool()], expected, **CLOSE)
    assert len(padded.hidden_states) == 7


@pytest.mark.parametrize("changes", [{"halting": "basic"}, {"position_signal": "sinusoid"}])
def test_a_memory_of_segments_is_refused(changes: dict[str, object]) -> None:
    model = builders.model(positions="relative", **changes)
    with pytest.raises(SettingsError, match="a memory keeps neither") as error:
        encode_segments(model.encoder, Segments(builders.packed([4, 6])))
    assert error.value.remedy
    stepped = builders.model(positions="relative", step_signal="learned")
    batch = builders.packed([4, 6])
    with torch.no_grad():
        found, _ = encode_segments(stepped.encoder, Segments(batch))
        torch.testing.assert_close(found, stepped.encoder(batch).last_hidden, **CLOSE)
