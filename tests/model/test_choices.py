"""Every choice of block, position and depth parameter: against the slow reference and the plain backend, and
with all that an encoder can do."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import pytest
import torch

from albertine.core.batch import from_padded, pack
from albertine.core.randomness import seed_torch
from albertine.errors import SettingsError
from albertine.interop.huggingface.folders import load_model, save_model
from albertine.model.config import EncoderConfig
from albertine.model.incremental_decoding import decode_step
from albertine.model.model import Model
from albertine.model.resharing import distances, replan, shared_again
from albertine.model.sharing import SharingPlan
from tests import reference
from tests.model import builders

CLOSE = {"atol": 3e-5, "rtol": 1e-4}
SHARED = SharingPlan.shared(3)
ALL = ("norms", "residuals", "injection")
CHOICES: dict[str, dict[str, object]] = {
    "roformer": {"positions": "rotary"},
    "modernbert": {
        "positions": "rotary",
        "norm": "pre",
        "feed_forward": "gated",
        "biases": False,
        "type_vocab_size": 0,
        "hidden_act": "gelu",
    },
    "pre-norm": {"norm": "pre"},
    "pre-norm, embeddings without": {"norm": "pre", "positions": "rotary", "embedding_norm": False},
    "pre-norm, as wide as hidden": {"norm": "pre", "embedding_size": 24},
    "gated": {"feed_forward": "gated"},
    "no biases": {"biases": False},
    "qk_norm": {"qk_norm": True, "positions": "rotary"},
    "norms": {"plan": replace(SHARED, own=("norms",))},
    "residuals": {"plan": replace(SHARED, own=("residuals",))},
    "injection": {"plan": replace(SHARED, own=("injection",))},
    "low rank": {"plan": replace(SHARED, low_rank=2)},
    "input injection": {"input_injection": True, "plan": replace(SHARED, own=("norms",))},
    "pre-norm with all": {"norm": "pre", "qk_norm": True, "plan": replace(SHARED, own=ALL, low_rank=3)},
    "xlnet": {"positions": "relative", "embedding_norm": False},
    "xlnet, tied biases, clamped": {
        "positions": "relative",
        "embedding_norm": False,
        "relative_biases": "tied",
        "clamp_positions": 4,
        "plan": SharingPlan.unshared(3),
    },
    "xlnet with input injection": {"positions": "relative", "input_injection": True},
    "relative positions alone": {"positions": "relative", "type_vocab_size": 0, "norm": "pre"},
    "pre-norm with input injection": {"norm": "pre", "positions": "rotary", "input_injection": True},
    "groups with all": {
        "plan": replace(SharingPlan.grouped(4, 2), own=ALL, low_rank=1),
        "positions": "rotary",
    },
    "sinusoids": {"positions": "none", "position_signal": "sinusoid", "step_signal": "sinusoid"},
    "learned signals": {"position_signal": "learned", "step_signal": "learned"},
    "signals, pre-norm with injection": {
        "norm": "pre",
        "plan": replace(SHARED, own=("injection",)),
        "position_signal": "sinusoid",
        "step_signal": "learned",
    },
    "basic halting": {
        "positions": "none",
        "position_signal": "sinusoid",
        "step_signal": "learned",
        "halting": "basic",
    },
    "accumulated halting": {"norm": "pre", "halting": "accumulated", "positions": "rotary"},
    "relative halting": {"positions": "relative", "step_signal": "sinusoid", "halting": "basic"},
    "halting by the reference": {"halting": "accumulated", "halting_limit": "reference"},
    "halting with injection": {
        "positions": "rotary",
        "halting": "basic",
        "plan": replace(SHARED, own=("injection",)),
    },
    "head gate": {"head_gate": True},
    "head gate, no biases": {"head_gate": True, "biases": False, "positions": "rotary", "norm": "pre"},
    "xlnet with head gate": {"positions": "relative", "embedding_norm": False, "head_gate": True},
    "halting with head gate": {"halting": "basic", "positions": "rotary", "head_gate": True},
    "residual factor": {"residual_factor": 0.5},
    "residual factors of both kinds": {
        "norm": "pre",
        "residual_factor": 3**-0.5,
        "plan": replace(SHARED, own=("residuals",), low_rank=2),
    },
    "relu2": {"hidden_act": "relu2"},
    "relu2, gated": {"hidden_act": "relu2", "feed_forward": "gated"},
    "own output": {"output": "own"},
    "own output, pre-norm": {"output": "own", "norm": "pre"},
    "recgpt": {
        "positions": "rotary",
        "norm": "pre",
        "qk_norm": True,
        "head_gate": True,
        "hidden_act": "relu2",
        "output": "own",
        "plan": replace(SHARED, own=("norms",)),
    },
}
LENGTHS = [5, 1, 12, 12, 7]
each = pytest.mark.parametrize("name", CHOICES)


def made(name: str, **more: object) -> Model:
    """With every parameter, also those that begin at zero or one, at random."""
    model = changed(builders.model(**(CHOICES[name] | more)))  # type: ignore[arg-type]
    generator = torch.Generator().manual_seed(10)
    with torch.no_grad():
        for parameter_name, parameter in model.named_parameters():
            if parameter_name.endswith("gate.weight"):
                parameter.copy_(0.5 * torch.randn(parameter.shape, generator=generator))
    return model


def changed(model: Model) -> Model:
    """The model with other numbers in what depths have of their own and in its last norm."""
    generator = torch.Generator().manual_seed(9)
    with torch.no_grad():
        for part in (model.encoder.own, model.encoder.final_norm):
            for parameter in () if part is None else part.parameters():
                parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator))
    return model


def rows_of(states_BLH: torch.Tensor) -> torch.Tensor:
    return torch.cat([row[:n] for row, n in zip(states_BLH, LENGTHS, strict=True)])


@pytest.mark.sample(14, keep=["recgpt"])
@each
def test_it_equals_the_reference_at_every_depth(name: str) -> None:
    model, batch = made(name), builders.packed(LENGTHS)
    with torch.no_grad():
        found = model.encoder(batch, all_depths=True).hidden_states
        expected = [rows_of(x) for x in reference.encode(model, *builders.padded(batch))]
        for ours, theirs in zip(found, expected, strict=True):
            torch.testing.assert_close(ours, theirs, **CLOSE)
        logits = model.mlm_logits(found[-1])
        torch.testing.assert_close(logits, reference.mlm_logits(model, expected[-1]), atol=2e-4, rtol=1e-4)


@pytest.mark.sample(10)
@each
def test_wanted_rows_and_early_exits_equal_those_of_the_whole(name: str) -> None:
    model, batch = made(name), builders.packed(LENGTHS)
    rows = torch.tensor([0, 7, 6, 36, 20])
    with torch.no_grad():
        for depth in (1, 2, None):
            whole = model.encoder(batch, depth=depth).last_hidden
            part = model.encoder(batch, depth=depth, rows=rows).last_hidden
            torch.testing.assert_close(part, whole[rows], **CLOSE)
    shorter = replan(model, model.config.plan.truncated(2))
    with torch.no_grad():
        ends = shorter.encoder(batch).last_hidden
        torch.testing.assert_close(ends, model.encoder(batch, depth=2).last_hidden, **CLOSE)


@pytest.mark.sample(14, keep=["recgpt"])
@each
@pytest.mark.parametrize("recompute", [False, True])
def test_gradients_equal_those_of_the_plain_backend(name: str, recompute: bool) -> None:
    batch = builders.packed(LENGTHS)
    rows = torch.tensor([1, 6, 8, 30])
    weights = torch.randn(4, builders.VOCABULARY, generator=torch.Generator().manual_seed(1))
    found = {}
    for backend in ("plain", "auto"):
        model = made(name).train()
        model.encoder.backend, model.encoder.recompute = backend, recompute and backend == "auto"
        logits, pair = model.pretraining_forward(batch, rows)
        ((logits * weights).sum() + pair.square().sum()).backward()
        found[backend] = {n: p.grad for n, p in model.named_parameters()}
    assert all(g is not None for n, g in found["plain"].items() if not unused(model, n))
    for n, gradient in found["plain"].items():
        if gradient is not None:
            torch.testing.assert_close(
                found["auto"][n], gradient, atol=1e-3, rtol=1e-3, msg=lambda m, n=n: n + m
            )


def unused(model: Model, name: str) -> bool:
    """Depth 0 of a pre-norm encoder does not normalise again, so a block of its own has a norm unused."""
    again = model.config.norm == "pre" and model.config.embedding_norm
    return again and name.startswith("encoder.attention.0.layer_norm")


@pytest.mark.sample(10, keep=["recgpt"])
@each
def test_bfloat16_and_int8_stay_near(name: str) -> None:
    model, batch = made(name), builders.packed([16, 16])
    with torch.no_grad():
        exact = model.encoder(batch).last_hidden
        for precision, bound in (("bfloat16", 0.06), ("int8", 0.12)):
            model.precision = precision
            change = (model.encoder(batch).last_hidden.float() - exact).norm() / exact.norm()
            assert change < bound, (precision, float(change))


def test_embeddings_that_no_map_reads_are_rounded_once_behind_their_norm() -> None:
    embeddings = builders.model(**CHOICES["pre-norm, as wide as hidden"]).encoder.embeddings
    assert embeddings.mapping is None
    with torch.no_grad():
        wide, narrow = (embeddings(builders.packed([9, 4]), x) for x in (torch.float32, torch.bfloat16))
    assert torch.equal(narrow, wide.bfloat16())


@pytest.mark.sample(10, keep=["recgpt"])
@each
def test_reading_on_equals_reading_at_once(name: str) -> None:
    model = made(name)
    if model.config.halts:
        with pytest.raises(SettingsError, match="has no KV cache"):
            decode_step(model.encoder, builders.packed([3]))
        return
    texts = builders.sequences([9, 6])
    batch = pack(texts, [[0] * 4 + [1] * 5, [0] * 4 + [1] * 2], [4, 4])
    with torch.no_grad():
        whole = model.encoder(batch).last_hidden
        _, cache = decode_step(model.encoder, pack([t[:4] for t in texts], [[0] * 4] * 2))
        for place in range(4, 6):
            new = pack([t[place : place + 1] for t in texts], [[1]] * 2)
            new = replace(new, position_ids=torch.full((2,), place))
            found, cache = decode_step(model.encoder, new, cache)
            torch.testing.assert_close(found, whole[[place, 9 + place]], **CLOSE)


@pytest.mark.sample(10)
@each
def test_a_mask_may_have_holes_and_padding_on_either_side(name: str) -> None:
    """Positions are columns: what follows a gap stays as far away as it is."""
    model = made(name)
    ids, _, types = builders.padded(builders.packed([9, 9, 9, 9, 9]))
    mask = torch.ones_like(ids)
    mask[0, 2:4], mask[1, 7:], mask[2, :3], mask[3, [0, 2, 5, 8]] = 0, 0, 0, 0
    real = mask.bool()
    with torch.no_grad():
        found = model(ids, mask, types, output_hidden_states=True).hidden_states
        for ours, theirs in zip(found, reference.encode(model, ids, mask, types), strict=True):
            torch.testing.assert_close(ours[real], theirs[real], **CLOSE)
        batch, _ = from_padded(ids, mask, types)
        rows = torch.tensor([0, 5, 6, 20])
        part = model.encoder(batch, rows=rows).last_hidden
        torch.testing.assert_close(part, found[-1][real][rows], **CLOSE)
        model.encoder.backend = "plain"  # fills no batch up: the places are more than all tokens
        alone = model(ids[3:4], mask[3:4], types[3:4]).last_hidden_state
        torch.testing.assert_close(alone[0, real[3]], found[-1][3, real[3]], **CLOSE)


@pytest.mark.sample(14, keep=["recgpt"])
@each
def test_a_saved_folder_is_the_same_model(name: str, tmp_path) -> None:
    model, batch = made(name), builders.packed(LENGTHS)
    save_model(model, None, tmp_path / "m")
    again = load_model(tmp_path / "m")
    assert again.config == model.config
    with torch.no_grad():
        states = model.encoder(batch).last_hidden
        assert torch.equal(again.encoder(batch).last_hidden, states)
        assert torch.equal(again.mlm_logits(states), model.mlm_logits(states))


@pytest.mark.sample(10, keep=["recgpt"])
@each
def test_unsharing_changes_no_output(name: str) -> None:
    model, batch = made(name), builders.packed(LENGTHS)
    plan = model.config.plan
    if model.config.halts:
        with pytest.raises(SettingsError, match=r"halting repeats one block.*3 of attention"):
            replan(model, replace(SharingPlan.unshared(plan.depth), own=plan.own))
        return
    apart = replan(model, replace(SharingPlan.unshared(plan.depth), own=plan.own, low_rank=plan.low_rank))
    with torch.no_grad():
        expected = model.encoder(batch).last_hidden
        assert torch.equal(apart.encoder(batch).last_hidden, expected)
    if "injection" in plan.own or plan.low_rank:
        with pytest.raises(SettingsError, match="take over"):
            replan(model, SharingPlan.unshared(plan.depth))
        return
    plain = replan(model, SharingPlan.unshared(plan.depth))  # norms and factors go into the blocks
    with torch.no_grad():
        torch.testing.assert_close(plain.encoder(batch).last_hidden, expected, **CLOSE)


def test_a_factor_that_goes_into_its_block_takes_the_low_rank_addition_with_it() -> None:
    plan = replace(SHARED, own=("residuals",), low_rank=2)
    model, batch = changed(builders.model(plan)), builders.packed(LENGTHS)
    folded = replan(model, replace(SharingPlan.unshared(3), low_rank=2))
    with torch.no_grad():
        expected = model.encoder(batch).last_hidden
        torch.testing.assert_close(folded.encoder(batch).last_hidden, expected, **CLOSE)


@pytest.mark.parametrize("merge", ["exact", "mean"])
def test_a_norm_that_is_read_nowhere_counts_for_nothing_in_a_merge(merge: Literal["exact", "mean"]) -> None:
    """Depth 0 of a pre-norm encoder does not normalise what its attention reads."""
    shared = builders.model(SHARED, norm="pre")
    batch = builders.packed(LENGTHS)
    apart = replan(shared, SharingPlan.unshared(3))
    alike = replan(shared, replace(SHARED, own=("norms",)))
    with torch.no_grad():
        for norm in (apart.encoder.attention[0].layer_norm, shared.encoder.final_norm):
            norm.weight.fill_(7.0)
        alike.encoder.final_norm.weight.fill_(7.0)
        expected = shared.encoder(batch).last_hidden
        for model in (apart, alike):
            model.encoder.final_norm.weight.fill_(7.0)
            again = replan(model, SHARED, merge=merge)
            torch.testing.assert_close(again.encoder(batch).last_hidden, expected, **CLOSE)


def test_depths_with_norms_of_their_own_can_be_repeated() -> None:
    """The depth that comes from depth 0, which has no norm before its attention, begins with the last one."""
    plan = replace(SHARED, own=ALL, low_rank=2)
    model = changed(builders.model(plan, norm="pre"))
    grown = replan(model, plan.resized(5))
    own, final = grown.encoder.own, model.encoder.final_norm
    assert torch.equal(own[3].attention.layer_norm.weight, final.weight)
    assert torch.equal(
        own[3].feed_forward.layer_norm.weight, model.encoder.own[0].feed_forward.layer_norm.weight
    )
    assert torch.equal(own[4].attention.layer_norm.weight, model.encoder.own[1].attention.layer_norm.weight)
    assert float(own[3].injection.detach()) == 0 and torch.equal(
        own[4].injection, model.encoder.own[1].injection
    )
    assert grown.encoder(builders.packed(LENGTHS)).last_hidden.isfinite().all()


def test_shared_again_keeps_what_depths_have_of_their_own() -> None:
    plan = replace(SharingPlan.unshared(3), own=ALL, low_rank=2)
    model = changed(builders.model(plan))
    shared = shared_again(model)
    assert shared.config.plan == replace(SHARED, own=ALL, low_rank=2)
    own = {name: x for name, x in model.state_dict().items() if ".own." in name}
    assert own and all(torch.equal(shared.state_dict()[name], x) for name, x in own.items())
    mean = torch.stack([block.query.weight for block in model.encoder.attention]).mean(0)  # type: ignore[misc]
    assert torch.equal(shared.encoder.attention[0].query.weight, mean)
    assert all(part[0] > 0 for part in distances(model, shared).values())


def test_a_depth_gets_parameters_of_its_own_that_change_nothing() -> None:
    model, batch = builders.model(SHARED), builders.packed(LENGTHS)
    grown = replan(model, replace(SHARED, own=ALL, low_rank=4))
    with torch.no_grad():
        torch.testing.assert_close(
            grown.encoder(batch).last_hidden, model.encoder(batch).last_hidden, **CLOSE
        )
    down = grown.encoder.own[1].attention.down
    assert float(down.detach().std()) > 0  # else it could never learn


def test_low_rank_additions_begin_at_the_scale_of_what_they_read_and_apart() -> None:
    grown = replan(builders.model(SHARED), replace(SHARED, low_rank=16))
    downs = [own.attention.down.detach() for own in grown.encoder.own]  # type: ignore[union-attr]
    for down in downs:
        assert float(down.std()) == pytest.approx(24**-0.5, rel=0.12)  # (16, 24), read from 24 numbers
    assert not torch.equal(downs[0], downs[1])


def test_dropout_falls_on_what_a_block_adds_where_a_depth_has_its_own() -> None:
    plain = builders.model(SHARED, hidden_dropout_prob=0.5)
    found = []
    for model in (plain, replan(plain, replace(SHARED, own=("residuals",)))):
        model.train().encoder.backend = "plain"
        seed_torch(0, "dropout")
        found.append(model.encoder(builders.packed(LENGTHS)).last_hidden)
    torch.testing.assert_close(found[1], found[0], **CLOSE)


def test_a_plan_is_unshared_or_grouped_by_its_blocks() -> None:
    unshared = replace(SharingPlan.unshared(3), own=("norms",), low_rank=2)
    assert unshared.is_unshared and unshared.groups() == (3, 3, 1)
    assert replace(SharingPlan.grouped(4, 2), own=ALL).groups() == (4, 2, 1)
    assert replace(SHARED, own=("residuals", "norms")).own == ("norms", "residuals")


def test_a_new_model_begins_as_if_depths_had_nothing_of_their_own() -> None:
    batch = builders.packed(LENGTHS)
    plain = Model(builders.config(SHARED))
    grown = Model(builders.config(replace(SHARED, own=ALL, low_rank=4)))
    with torch.no_grad():
        torch.testing.assert_close(
            grown.encoder(batch).last_hidden, plain.encoder(batch).last_hidden, **CLOSE
        )


def test_a_head_gate_begins_as_a_half_for_every_head_and_token() -> None:
    gated, plain = (Model(builders.config(head_gate=gate)).eval() for gate in (True, False))
    with torch.no_grad():
        plain.encoder.attention[0].output.weight.mul_(0.5)  # type: ignore[union-attr]
        batch = builders.packed(LENGTHS)
        torch.testing.assert_close(
            gated.encoder(batch).last_hidden, plain.encoder(batch).last_hidden, **CLOSE
        )
    gate = gated.encoder.attention[0].gate
    assert tuple(gate.weight.shape) == (4, 24) and not gate.weight.any() and not gate.bias.any()  # type: ignore[union-attr]


@pytest.mark.parametrize("positions", ["learned", "relative"])
def test_a_head_may_have_its_own_output_matrix(positions: Literal["learned", "relative"]) -> None:
    """Both heads: E wide, and nothing of the embeddings in them."""
    config = builders.config(output="own", positions=positions, norm="pre")
    model = Model(config, {"mlm", "lm"}, seed=3)
    states = torch.randn(5, 24, generator=torch.Generator().manual_seed(1))
    for head in (model.mlm, model.lm):
        assert head is not None and head.output is not None and head.dense is not None
        assert head.output.shape == (builders.VOCABULARY, 8) and head.output.std() > 0.1
        with torch.no_grad():
            before = head(states, model.encoder.embeddings)
            for parameter in model.encoder.embeddings.parameters():
                parameter.add_(1)
            assert torch.equal(head(states, model.encoder.embeddings), before)
    assert model.lm is not None and model.lm.dense is not None and model.lm.output is not None
    expected = states @ model.lm.dense.weight.T @ model.lm.output.T + model.lm.bias
    torch.testing.assert_close(model.lm(states, model.encoder.embeddings), expected, **CLOSE)
    assert Model(builders.config(output="own", embedding_size=24), {"lm"}).lm.dense is None  # type: ignore[union-attr]


def test_rotary_attention_depends_on_distance_alone() -> None:
    model = builders.model(positions="rotary")
    batch = builders.packed([6])
    later = replace(batch, position_ids=batch.position_ids + 11)
    with torch.no_grad():
        torch.testing.assert_close(
            model.encoder(later).last_hidden, model.encoder(batch).last_hidden, **CLOSE
        )
        other = replace(batch, position_ids=batch.position_ids * 2)
        assert not torch.allclose(
            model.encoder(other).last_hidden, model.encoder(batch).last_hidden, atol=1e-2
        )


def test_rotary_positions_have_no_table_to_run_out_of() -> None:
    model = builders.model(positions="rotary", max_position_embeddings=8)
    assert model.encoder(builders.packed([20])).last_hidden.shape[0] == 20


@pytest.mark.parametrize(
    ("changes", "architecture"),
    [
        ({}, "albert"),
        ({"plan": SharingPlan.unshared(3), "embedding_size": 24}, "bert"),
        ({"plan": replace(SharingPlan.unshared(3), own=("norms",)), "embedding_size": 24}, "albert"),
        (CHOICES["roformer"], "roformer"),
        (CHOICES["modernbert"], "modernbert"),
        (CHOICES["pre-norm"], None),
        (CHOICES["qk_norm"], None),
        (CHOICES["injection"], None),
        (CHOICES["low rank"], None),
        (CHOICES["head gate"], None),
        (CHOICES["residual factor"], None),
        (CHOICES["relu2"], "albert"),
        (CHOICES["own output"], "albert"),
    ],
)
def test_whose_block_it_is(changes: dict[str, object], architecture: str | None) -> None:
    assert builders.config(**changes).architecture == architecture  # type: ignore[arg-type]


def test_a_configuration_without_new_settings_is_written_as_before() -> None:
    before = builders.config().to_dict()
    assert before["format"] == 1
    later = {"positions", "norm", "qk_norm", "head_gate", "residual_factor", "output"}
    assert not later & before.keys() and before["plan"].keys() == {"attention", "feed_forward"}
    new = builders.config(positions="rotary").to_dict()
    assert new["format"] == 2 and new["positions"] == "rotary"
    own = builders.config(replace(SHARED, own=("norms",), low_rank=2)).to_dict()
    assert own["format"] == 2 and own["plan"]["own"] == ["norms"] and own["plan"]["low_rank"] == 2
    assert builders.config(type_vocab_size=0).to_dict()["format"] == 2
    assert EncoderConfig.from_dict(own).plan.own == ("norms",)
    for name in ("head gate", "residual factor", "relu2", "own output"):
        config = builders.config(**CHOICES[name])  # type: ignore[arg-type]
        assert config.to_dict()["format"] == 5 and EncoderConfig.from_dict(config.to_dict()) == config


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"positions": "absolute"}, "positions"),
        ({"norm": "both"}, "norm"),
        ({"positions": "rotary", "num_attention_heads": 8}, "even"),
        ({"positions": "rotary", "rotary_base": 1.0}, "base"),
        ({"positions": "rotary", "rotary_base": float("nan")}, "rotary_base must be above 1 and finite"),
        ({"positions": "rotary", "rotary_base": float("inf")}, "rotary_base must be above 1 and finite"),
        ({"positions": "rotary", "rotary_base": 10**400}, "number of about 400 digits"),
        ({"rotary_base": 10**400}, "number of about 400 digits"),
        ({"rotary_base": float("nan")}, "rotary_base must be above 1 and finite"),
        ({"rotary_base": "10000"}, "rotary_base must be above 1 and finite"),
        ({"initializer_range": 10**5000}, "number of about 5000 digits"),
        ({"hidden_dropout_prob": 10**5000}, "number of about 5000 digits"),
        ({"hidden_size": 10**5000}, "number of about 5000 digits"),
        ({"type_vocab_size": -1}, "type_vocab_size"),
        ({"residual_factor": 0}, r"above 0 and at most 1, got 0\. Use 1 for plain"),
        ({"residual_factor": 1.5}, "above 0 and at most 1, got 1.5"),
        ({"residual_factor": float("nan")}, "above 0 and at most 1, got nan"),
        ({"residual_factor": "0.5"}, "above 0 and at most 1, got '0.5'"),
        ({"residual_factor": True}, "above 0 and at most 1, got True"),
        ({"head_gate": 1}, "head_gate must be true or false"),
        ({"output": "untied"}, "output `untied` is not supported. Use one of tied, own"),
        ({"hidden_act": "relu3"}, "hidden_act `relu3` is not supported. Use one of .*relu2"),
    ],
)
def test_impossible_choices_are_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        builders.config(**changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [{"own": ("norm",)}, {"low_rank": -1}, {"low_rank": 1 << 20}])
def test_impossible_entries_of_a_plan_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(SettingsError):
        replace(SHARED, **wrong)  # type: ignore[arg-type]
