"""After any change of a parameter, inference equals that of a new model with the same parameters."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, parametrize, prune, vector_to_parameters

from albertine.model.backend.onednn import Layers
from albertine.model.backend.weight_cache import ParameterState, cached
from albertine.model.model import Model
from albertine.model.sharing import SharingPlan
from albertine.training.optimizers import build_optimizer
from tests.model import builders

BATCH = builders.packed([5, 9, 2])
ROWS = torch.tensor([1, 6, 15])


def outputs(model: Model) -> Tensor:
    """Encoder and heads, one tensor."""
    with torch.inference_mode():
        logits, sentence = model.pretraining_forward(BATCH, ROWS)
        assert sentence is not None
        hidden = model.encoder(BATCH).last_hidden
        return torch.cat([x.float().flatten() for x in (hidden, logits, sentence)])


def fresh(model: Model) -> Tensor:
    """What a new model with the same parameters gives."""
    twin = Model(model.config, model.heads, precision=model.precision)
    twin.load_state_dict(model.state_dict())
    return outputs(twin.eval())


def in_place(model: Model) -> None:
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(0.9)


def in_inference_mode(model: Model) -> None:
    with torch.inference_mode():
        for p in model.parameters():
            p.mul_(0.9)


def data_assigned(model: Model) -> None:
    for p in model.parameters():
        p.data = p.data * 0.9


def data_assigned_thrice(model: Model) -> None:
    """The memory of the first values is free after the first time, and may be taken again."""
    for _ in range(3):
        data_assigned(model)


def data_written(model: Model) -> None:
    """Changes that raise no version counter and move no memory: PEFT's merging, many moving averages."""
    for p in model.parameters():
        p.data.mul_(0.9)


def biases_written(model: Model) -> None:
    """As the average of a run that trains biases alone does."""
    for p in model.parameters():
        if p.ndim == 1:
            p.data.mul_(0.9)


def transposed(model: Model) -> None:
    """Another view of the same memory."""
    for block in model.encoder.attention:
        block.query.weight.data = block.query.weight.data.t()
        block.output.weight.data = block.output.weight.data.t()


def loaded(model: Model) -> None:
    model.load_state_dict(builders.model(model.config.plan, seed=1).state_dict())


def assigned(model: Model) -> None:
    model.load_state_dict(builders.model(model.config.plan, seed=1).state_dict(), assign=True)


def from_vector(model: Model) -> None:
    vector_to_parameters(parameters_to_vector(model.parameters()).detach() * 0.9, model.parameters())


def to_bfloat16(model: Model) -> None:
    model.precision = "bfloat16"


def to_int8(model: Model) -> None:
    model.precision = "int8"


def replaced_parameter(model: Model) -> None:
    block = model.encoder.attention[0]
    block.output.weight = nn.Parameter(block.output.weight.detach() * 0.9)


def replaced_layer(model: Model) -> None:
    model.encoder.attention[0].query = builders.model(model.config.plan, seed=1).encoder.attention[0].query


CHANGES = [
    in_place,
    in_inference_mode,
    data_assigned,
    data_assigned_thrice,
    data_written,
    biases_written,
    transposed,
    loaded,
    assigned,
    from_vector,
    to_bfloat16,
    to_int8,
    replaced_parameter,
    replaced_layer,
]


@pytest.mark.parametrize("plan", [SharingPlan.shared(2), SharingPlan.unshared(2)], ids=["shared", "unshared"])
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.usefixtures("products_in_int8")
def test_inference_follows(change: Callable[[Model], None], plan: SharingPlan) -> None:
    model = builders.model(plan)
    before = outputs(model)
    assert torch.equal(before, outputs(model))
    change(model)
    after = outputs(model)
    assert not torch.equal(before, after)
    assert torch.equal(after, fresh(model))


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "int8"])
@pytest.mark.parametrize("kind", ["adamw", "lamb"])
def test_inference_follows_an_optimizer(kind: str, precision: str) -> None:
    """Without a pass in training between the step and the next inference."""
    model = builders.model()
    model.pretraining_forward(BATCH, ROWS)[0].square().sum().backward()
    optimizer = build_optimizer(model, kind)  # type: ignore[arg-type]
    model.precision = precision  # type: ignore[assignment]
    before = outputs(model)
    for group in optimizer.param_groups:
        group["lr"] = 0.05
    optimizer.step()
    assert not torch.equal(before, outputs(model))
    assert torch.equal(outputs(model), fresh(model))


@pytest.mark.parametrize("kind", ["adamw", "lamb"])
def test_one_number_that_an_optimizer_changed_is_seen(kind: str) -> None:
    """torch's fused kernels raise no counter, and a sample of the values does not see each of them."""
    model = builders.model()
    weight = model.encoder.feed_forward[0].output.weight
    for column in range(weight.shape[1]):
        optimizer = build_optimizer(model, kind, weight_decay=0.0)  # type: ignore[arg-type]
        for group in optimizer.param_groups:
            group["lr"] = 0.05
        before = outputs(model)
        weight.grad = torch.zeros_like(weight)
        weight.grad[3, column] = 1.0
        optimizer.step()
        after = outputs(model)
        assert not torch.equal(before, after), column
        assert torch.equal(after, fresh(model)), column


@pytest.mark.parametrize("how", ["in place", "in other memory"])
def test_one_number_that_changed_is_seen(how: str) -> None:
    model = builders.model()
    weight = model.encoder.feed_forward[0].output.weight
    for column in range(weight.shape[1]):
        before = outputs(model)
        if how == "in place":
            with torch.no_grad():
                weight[3, column] += 1.0
        else:
            values = weight.detach().clone()
            values[3, column] += 1.0
            weight.data = values
        assert not torch.equal(before, outputs(model)), column
    assert torch.equal(outputs(model), fresh(model))


def test_another_parameter_in_the_same_memory_is_not_the_one_before() -> None:
    """It has a version counter of its own, which may equal that of the one before."""
    model = builders.model()
    layer = model.encoder.feed_forward[0].output
    for column in range(layer.weight.shape[1]):
        before, version = outputs(model), layer.weight._version
        layer.weight = nn.Parameter(layer.weight.data)
        with torch.no_grad():
            layer.weight[3, column].add_(1.0)
            while layer.weight._version < version:
                layer.weight[3, column].add_(1.0)
        assert layer.weight._version == max(1, version)
        assert not torch.equal(before, outputs(model)), column
    assert torch.equal(outputs(model), fresh(model))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("gaps", [False, True])
def test_a_write_through_data_is_seen_in_every_format(dtype: torch.dtype, gaps: bool) -> None:
    values = torch.randn(30, 60).to(dtype)
    parameter = nn.Parameter(values[:, ::2] if gaps else values, requires_grad=False)
    stamp = ParameterState.of([parameter])
    assert stamp.holds([parameter])
    parameter.data.copy_(torch.randn(parameter.shape).to(dtype))
    assert not stamp.holds([parameter])


class Masked(nn.Module):
    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.register_buffer("mask", torch.ones_like(weight))

    def forward(self, weight: Tensor) -> Tensor:
        return weight * self.mask  # type: ignore[no-any-return]


@pytest.mark.parametrize("what", ["weight", "bias"])
@pytest.mark.parametrize("how", ["pruned", "parametrized", "a tensor"])
@pytest.mark.usefixtures("products_in_int8")
def test_a_weight_that_is_computed_anew_is_followed(how: str, what: str) -> None:
    """Its parameters do not change when the mask does, so nothing derived from it may be cached."""
    model = builders.model()
    layer = model.encoder.feed_forward[0].output

    def change(value: float) -> None:
        if how == "pruned":
            mask = torch.ones_like(getattr(layer, what))
            mask[:3] = value
            prune.custom_from_mask(layer, what, mask)
        elif how == "parametrized":
            if not parametrize.is_parametrized(layer):
                parametrize.register_parametrization(layer, what, Masked(getattr(layer, what)))
            layer.parametrizations[what][0].mask[:3] = value  # type: ignore[index, union-attr]
        else:
            values = getattr(layer, what).detach().clone()
            values[:3] *= value
            if what in layer._parameters:
                delattr(layer, what)
            setattr(layer, what, values)

    for value in (1.0, 0.5, 0.0):
        change(value)
        found = outputs(model)
        model.encoder.backend = "plain"
        exact = outputs(model)
        model.encoder.backend = "auto"
        torch.testing.assert_close(found, exact, atol=1e-4, rtol=1e-4)


def test_a_write_to_one_column_through_data_is_seen() -> None:
    """The compared values are in different columns in different rows, whatever the width."""
    parameter = nn.Parameter(torch.randn(256, 64), requires_grad=False)
    for column in range(64):
        stamp = ParameterState.of([parameter])
        parameter.data[:, column] += 1.0
        assert not stamp.holds([parameter]), column


def test_weights_that_did_not_change_are_prepared_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from albertine.model.backend import onednn

    made = []
    laid_out = onednn._laid_out
    monkeypatch.setattr(onednn, "_laid_out", lambda *what: made.append(what) or laid_out(*what))
    model = builders.model()
    outputs(model)
    count = len(made)
    assert count
    outputs(model)
    assert len(made) == count


def test_what_was_prepared_goes_with_its_model() -> None:
    model = builders.model()
    outputs(model)
    query = weakref.ref(model.encoder.attention[0].query)
    del model
    gc.collect()
    assert query() is None


def test_query_key_and_value_are_looked_up_once_a_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """Although the last layer multiplies queries apart from keys and values."""
    from albertine.model.backend import onednn

    model = builders.model()
    attention = model.encoder.attention[0]
    own = [attention.query, attention.key, attention.value]
    calls: list[Layers] = []
    monkeypatch.setattr(onednn, "cached", lambda layers, *rest: calls.append(layers) or cached(layers, *rest))
    with torch.inference_mode():
        model.encoder(BATCH, rows=ROWS)
    assert [layers for layers in calls if set(layers) & set(own)] == [tuple(own)]


@pytest.mark.parametrize("which", ["aaa", "abb", "aab", "abc"])
def test_each_layer_is_given_its_own_input(which: str) -> None:
    model = builders.model()
    attention = model.encoder.attention[0]
    layers = attention.query, attention.key, attention.value
    hidden = model.config.hidden_size
    rows = {name: torch.full((4, hidden), value) for name, value in (("a", 0.1), ("b", -0.2), ("c", 0.3))}
    with torch.no_grad(), model.encoder.forward_pass() as ops:
        found = ops.linears(layers, [rows[name] for name in which])
        expected = [layer(rows[name]) for layer, name in zip(layers, which, strict=True)]
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_memory_of_weights_can_still_be_freed() -> None:
    """FSDP empties storages in place, which is refused of memory that numpy has seen."""
    model = builders.model()
    outputs(model)
    for parameter in model.parameters():
        storage = parameter.untyped_storage()
        size = storage.size()
        storage.resize_(0)
        storage.resize_(size)


def test_memory_that_was_freed_is_not_looked_at() -> None:
    """FSDP's parameters between two passes: the same storage, without memory."""
    parameter = nn.Parameter(torch.randn(30, 60), requires_grad=False)
    stamp = ParameterState.of([parameter])
    stamp.some[:] = [None]  # type: ignore[list-item]  # reading it fails
    parameter.untyped_storage().resize_(0)
    assert not stamp.holds([parameter])


@pytest.mark.parametrize("shape", [(0, 4), (4, 0), (1, 1)])
def test_a_stamp_of_next_to_nothing(shape: tuple[int, int]) -> None:
    parameter = nn.Parameter(torch.zeros(shape))
    stamp = ParameterState.of([parameter])
    assert stamp.holds([parameter])
    assert not stamp.holds([nn.Parameter(torch.zeros(shape))])
    assert not stamp.holds([])
