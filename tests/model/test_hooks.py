"""Hooks and replaced layers have the effect that they have in any module of torch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from albertine.model.answerability_head import JointAnswer
from albertine.model.backend import Linear
from albertine.model.backend.cuda_graphs import own_weights
from albertine.model.loop import EncoderOutput
from albertine.model.model import Model
from albertine.model.sharing import SharingPlan
from tests.model import builders

BATCH = builders.packed([5, 9, 3])
ROWS = torch.tensor([1, 7, 16])
MODES = [torch.enable_grad, torch.no_grad, torch.inference_mode]
every_mode = pytest.mark.parametrize("mode", MODES)
every_precision = pytest.mark.parametrize("precision", ["float32", "bfloat16"])
every_backend = pytest.mark.parametrize("backend", ["auto", "plain"])


def build(precision: str = "float32", backend: str = "auto", recompute: bool = False) -> Model:
    model = builders.model(SharingPlan((0, 1, 0), (0, 0, 1)))
    model.precision = precision  # type: ignore[assignment]
    model.encoder.backend, model.encoder.recompute = backend, recompute
    return model


def called(model: Model) -> dict[str, nn.Module]:
    """Every module below the model that computes: a ModuleList does not."""
    every = {name: m for name, m in model.named_modules() if name and not isinstance(m, nn.ModuleList)}
    assert len(every) == 34
    return every


def outputs(model: Model) -> list[Tensor]:
    logits, sentence = model.pretraining_forward(BATCH, ROWS)
    assert sentence is not None
    return [logits, sentence]


def padded(model: Model) -> list[Tensor]:
    found = model(*builders.padded(BATCH), output_hidden_states=True)
    return [found.last_hidden_state, found.pooler_output, *found.hidden_states]


def agree(found: list[Tensor], expected: list[Tensor], bound: float) -> None:
    for a, b in zip(found, expected, strict=True):
        assert a.shape == b.shape and (a.float() - b.float()).abs().max() <= bound


@contextmanager
def has_hooks(handles: list[Any]) -> Iterator[None]:
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@pytest.mark.sample(12)
@every_mode
@every_precision
@every_backend
@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("everywhere", [False, True], ids=["of each module", "global"])
def test_every_module_is_called(
    mode: Any, precision: str, backend: str, recompute: bool, everywhere: bool
) -> None:
    """And hooks change nothing, except for the rounding of one kernel instead of two."""
    model = build(precision, backend, recompute)
    modules = called(model)
    names = {m: name for name, m in modules.items()}
    before: set[str] = set()
    after: set[str] = set()

    def pre(module: nn.Module, _: Any) -> None:
        before.add(names.get(module, ""))

    def post(module: nn.Module, _: Any, __: Any) -> None:
        after.add(names.get(module, ""))

    with mode():
        plain = outputs(model), padded(model)
        if everywhere:
            handles = [
                nn.modules.module.register_module_forward_pre_hook(pre),
                nn.modules.module.register_module_forward_hook(post),
            ]
        else:
            handles = [
                h
                for m in modules.values()
                for h in (m.register_forward_pre_hook(pre), m.register_forward_hook(post))
            ]
        bound = 1e-5 if precision == "float32" else 0.1
        with has_hooks(handles):
            agree(outputs(model), plain[0], bound)
            assert before - {""} == after - {""} == set(modules)
            before.clear(), after.clear()
            agree(padded(model), plain[1], bound)
            heads = {name for name in modules if name.startswith(("mlm", "sentence"))}
            assert before - {""} == after - {""} == set(modules) - heads
        for a, b in zip([*outputs(model), *padded(model)], [*plain[0], *plain[1]], strict=True):
            assert torch.equal(a, b), "a hook that is gone has left something"


@every_mode
@every_precision
@every_backend
def test_a_forward_of_one_object_is_called(mode: Any, precision: str, backend: str) -> None:
    """accelerate's `add_hook_to_module` puts its hook there."""
    model = build(precision, backend)
    modules = called(model)
    reached: set[str] = set()

    def around(name: str, forward: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*args: Any, **options: Any) -> Any:
            reached.add(name)
            return forward(*args, **options)

        return watched

    with mode():
        plain = outputs(model)
        for name, module in modules.items():
            module.forward = around(name, module.forward)
        agree(outputs(model), plain, 1e-5 if precision == "float32" else 0.1)
    assert reached == set(modules) and own_weights(model) is None
    for module in modules.values():
        del module.forward
    assert own_weights(model) is not None


def tilted(_: nn.Module, __: Any, y: Any) -> Any:
    """Unequal factors: a norm or a softmax would ignore equal ones."""
    if isinstance(y, EncoderOutput):
        return EncoderOutput(tilted(_, __, y.last_hidden), y.hidden_states)
    return y * torch.linspace(0.5, 1.5, y.shape[-1], dtype=y.dtype)


@every_mode
@every_backend
def test_the_result_of_a_hook_is_used(mode: Any, backend: str) -> None:
    model = build(backend=backend)
    for name, module in called(model).items():
        with mode():
            before = outputs(model)
            with has_hooks([module.register_forward_hook(tilted)]):
                after = outputs(model)
        changes = any((a - b).abs().max() > 1e-4 for a, b in zip(after, before, strict=True))
        assert changes, name


@every_mode
@every_precision
def test_every_module_of_the_joint_head_is_called(mode: Any, precision: str) -> None:
    """And the result of a hook is passed on."""
    model, batch = JointAnswer(build(precision), seed=4).eval(), builders.packed([6, 6])
    modules = {name: m for name, m in model.named_modules() if name and not name.startswith("base")}
    assert len(modules) == 9
    reached: set[str] = set()

    def current_outputs() -> list[Tensor]:
        return list(model.learn(batch, torch.tensor([0, 4])))

    with mode():
        before = current_outputs()
        for name, module in modules.items():
            watched = module.register_forward_hook(lambda _, __, y, name=name: reached.add(name))  # type: ignore[misc]
            with has_hooks([watched]):
                agree(current_outputs(), before, 0.0)
            with has_hooks([module.register_forward_hook(tilted)]):
                changed = any(
                    (a - b).abs().max() > 1e-4 for a, b in zip(current_outputs(), before, strict=True)
                )
            assert changed, name
    assert reached == set(modules)


@pytest.mark.sample(8)
@pytest.mark.parametrize("name", ["attention.0.query", "attention.0.output", "feed_forward.0.intermediate"])
@every_mode
@every_backend
def test_a_forward_hook_equals_the_same_change_of_a_bias(mode: Any, backend: str, name: str) -> None:
    model, other = build(backend=backend), build(backend=backend)
    model.encoder.get_submodule(name).register_forward_hook(lambda _, __, y: y + 0.5)
    with torch.no_grad():
        other.encoder.get_submodule(name).bias.add_(0.5)  # type: ignore[operator, union-attr]
    with mode():
        agree(outputs(model), outputs(other), 2e-5)


KINDS = ["forward_pre", "forward", "full_backward_pre", "full_backward"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("everywhere", [False, True], ids=["of each layer", "global"])
@every_backend
@pytest.mark.filterwarnings("ignore:For backward hooks to be called")  # the encoder's output is no tensor
@pytest.mark.filterwarnings("ignore:Full backward hook is firing")  # of the embeddings, whose input is ids
def test_a_hook_of_one_kind_alone_is_called(kind: str, everywhere: bool, backend: str) -> None:
    """A layer computed in one product with others would not call the hook."""
    model = build(backend=backend)
    layers = {m: name for name, m in called(model).items() if isinstance(m, nn.Linear)}
    reached: set[str] = set()

    def hook(module: nn.Module, *_: Any) -> None:
        if module in layers:
            reached.add(layers[module])

    if everywhere:
        handles = [getattr(nn.modules.module, f"register_module_{kind}_hook")(hook)]
    else:
        handles = [getattr(layer, f"register_{kind}_hook")(hook) for layer in layers]
    with has_hooks(handles):
        gradients(model)
    assert reached == set(layers.values()) and len(reached) == 16


@pytest.mark.sample(8)
@pytest.mark.parametrize("name", ["query", "key", "value", "output"])
@every_mode
@every_backend
def test_a_subclass_of_the_own_layer_computes_too(mode: Any, backend: str, name: str) -> None:
    """As an adapter is made that begins with the layer it replaces."""

    class Own(Linear):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) + raised(self.out_features) / 100

    model, other = build(backend=backend), build(backend=backend)
    layer, twin = (x.encoder.attention[0].get_submodule(name) for x in (model, other))
    layer.__class__ = Own
    with torch.no_grad():
        twin.bias.add_(raised(24) / 100)  # type: ignore[operator, union-attr]
    with mode():
        agree(outputs(model), outputs(other), 2e-5)


def raised(width: int) -> Tensor:
    """100, but for one place: what follows some layers is a norm, which would not see the same everywhere."""
    return torch.full((width,), 100.0).index_fill(0, torch.tensor(0), 50.0)


class Raised(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + raised(self.out_features)


LAYERS = [
    "encoder.attention.0.query",
    "encoder.attention.0.value",
    "encoder.attention.0.output",
    "encoder.feed_forward.0.intermediate",
    "encoder.feed_forward.0.output",
    "encoder.embeddings.mapping",
    "mlm.dense",
    "pooler.dense",
    "sentence.classifier",
]


@pytest.mark.sample(14)
@pytest.mark.parametrize("name", LAYERS)
@every_mode
@every_backend
def test_a_replaced_layer_is_the_one_that_computes(mode: Any, backend: str, name: str) -> None:
    model, other = build(backend=backend), build(backend=backend)
    old = model.get_submodule(name)
    assert isinstance(old, nn.Linear)
    new = Raised(old.in_features, old.out_features)
    new.weight, new.bias = old.weight, old.bias
    model.set_submodule(name, new)
    with mode():
        before = outputs(other)
        with torch.no_grad():
            other.get_submodule(name).bias.add_(raised(old.out_features))  # type: ignore[operator, union-attr]
        right, found = outputs(other), outputs(model)
    assert any((a - b).abs().max() > 1e-3 for a, b in zip(found, before, strict=True))
    for a, b in zip(found, right, strict=True):
        torch.testing.assert_close(a, b, atol=1e-3, rtol=1e-4)


def gradients(model: Model) -> dict[str, Tensor]:
    model.zero_grad()
    logits, sentence = outputs(model)
    (logits.float().square().mean() + sentence.float().square().mean()).backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


@every_backend
@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("which", ["blocks", "all"])
@pytest.mark.filterwarnings("ignore:Full backward hook is firing")  # of the embeddings, whose input is ids
def test_full_backward_hooks_see_gradients_and_change_none(backend: str, recompute: bool, which: str) -> None:
    model = build(backend=backend, recompute=recompute)
    expected = gradients(model)
    modules = called(model)
    if which == "blocks":
        kinds = ("AttentionBlock", "FeedForwardBlock")
        modules = {name: m for name, m in modules.items() if type(m).__name__ in kinds}
    names = {m: name for name, m in modules.items()}
    reached: dict[str, float] = {}

    def hook(module: nn.Module, _: Any, out: Any) -> None:
        reached[names[module]] = max(float(g.abs().max()) for g in out if g is not None)

    takers = [m for name, m in modules.items() if name != "encoder"]  # its output is no tensor
    with has_hooks([m.register_full_backward_hook(hook) for m in takers]):
        found = gradients(model)
    assert set(reached) == set(modules) - {"encoder"} and all(value > 0 for value in reached.values())
    assert found.keys() == expected.keys() and len(found) == len(list(model.parameters()))
    for name, gradient in found.items():
        torch.testing.assert_close(gradient, expected[name], atol=1e-5, rtol=1e-4, msg=name)


@every_backend
def test_a_full_backward_hook_can_change_a_gradient(backend: str) -> None:
    model = build(backend=backend)
    expected = gradients(model)
    block = model.encoder.feed_forward[1]
    double: Callable[..., Any] = lambda _, grads, __: tuple(2 * g for g in grads)  # noqa: E731
    with has_hooks([block.register_full_backward_hook(double)]):
        found = gradients(model)
    # Block 1 is that of the last depth: everything before it gets twice as much, itself and the heads do not.
    name = "encoder.feed_forward.1.output.weight"
    torch.testing.assert_close(found[name], expected[name], atol=1e-5, rtol=1e-4)
    name = "encoder.attention.1.output.weight"
    torch.testing.assert_close(found[name], 2 * expected[name], atol=1e-5, rtol=1e-4)


def test_parametrized_weights() -> None:
    from torch.nn.utils.parametrizations import weight_norm

    model, other = build(), build()
    layer = model.encoder.attention[0].query
    weight_norm(layer)
    with torch.no_grad():
        layer.parametrizations.weight.original0.mul_(2.0)
        other.encoder.attention[0].query.weight.mul_(2.0)
    for mode in MODES:
        with mode():
            agree(outputs(model), outputs(other), 2e-5)
    gradients(model)
    assert layer.parametrizations.weight.original0.grad.abs().max() > 0


class Doubled(Tensor):
    """A weight with its own matrix product, as the quantized weights of torchao."""

    @staticmethod
    def __new__(cls, x: Tensor) -> Doubled:
        return torch.Tensor._make_subclass(cls, x)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        with torch._C.DisableTorchFunctionSubclass():
            if func is nn.functional.linear:
                x, weight, bias = args
                return func(x, 2.0 * weight.as_subclass(Tensor), bias)
            found = func(*args, **(kwargs or {}))
        return found.as_subclass(cls) if func in (Tensor.to, Tensor.detach) else found


@pytest.mark.sample(14)
@every_mode
@every_backend
@pytest.mark.parametrize("name", LAYERS)
def test_a_weight_of_another_class_multiplies_in_its_own_way(mode: Any, backend: str, name: str) -> None:
    model, other = build(backend=backend), build(backend=backend)
    layer, twin = model.get_submodule(name), other.get_submodule(name)
    layer.weight = nn.Parameter(Doubled(layer.weight.detach().clone()), requires_grad=False)  # type: ignore[operator, union-attr]
    with torch.no_grad():
        twin.weight.mul_(2.0)  # type: ignore[operator, union-attr]
    with mode():
        agree(outputs(model), outputs(other), 2e-5)


@every_precision
@pytest.mark.parametrize(
    ("quiet", "positions"),
    [(torch.no_grad, "learned"), (torch.inference_mode, "learned"), (torch.no_grad, "relative")],
)
def test_a_pass_without_gradients_keeps_gradients_of_later_ones(
    precision: str, quiet: Any, positions: str
) -> None:
    """A pass casts and stacks each weight once; tensors cached for a hook without gradients are not part of
    the graph."""
    model = builders.model(SharingPlan.unshared(2), positions=positions)
    model.precision = precision  # type: ignore[assignment]
    expected = gradients(model)

    def watch(block: nn.Module, given: Any) -> None:
        with quiet():
            block.forward(*given)

    blocks = [*model.encoder.attention, *model.encoder.feed_forward]
    with has_hooks([block.register_forward_pre_hook(watch) for block in blocks]):
        found = gradients(model)
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in found)
