"""The loop to a fixed point: that it is one, its gradient, its memory, and the report where it does not
converge."""

from __future__ import annotations

import copy
import logging
import weakref
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from albertine.core.batch import Packed, pack
from albertine.core.randomness import seed_torch
from albertine.errors import SettingsError
from albertine.interop.huggingface.folders import load_model, save_model
from albertine.model.encoder import EncoderOutput
from albertine.model.fixed_point import FixedPoint
from albertine.model.incremental_decoding import decode_step
from albertine.model.model import Model
from albertine.model.sharing import SharingPlan
from albertine.model.solvers import Sequences
from albertine.model.two_streams import Segments, encode_segments
from tests import reference
from tests.model import builders

LENGTHS = [5, 1, 12, 7]
each_solver = pytest.mark.parametrize("solver", ["anderson", "broyden"])


def made(limit: int = 60, **changes: object) -> Model:
    """An equilibrium encoder in double whose block is contractive (spectral radius about .8)."""
    settings = {"solver": "anderson", "input_injection": True, "tolerance": 1e-6, "initializer_range": 0.1}
    return builders.model(SharingPlan.shared(limit), **(settings | changes)).double()  # type: ignore[arg-type]


def encoded(model: Model, batch: Packed, **options: Any) -> EncoderOutput:
    with torch.no_grad():
        return model.encoder(batch, **options)


def loop(model: Model) -> FixedPoint:
    assert isinstance(model.encoder.loop, FixedPoint)
    return model.encoder.loop


@pytest.mark.parametrize(
    ("solver", "positions"),
    [("anderson", "learned"), ("anderson", "rotary"), ("broyden", "learned")],
)
def test_it_is_the_fixed_point_of_the_slow_reference(solver: str, positions: str) -> None:
    model, batch = made(solver=solver, positions=positions), builders.packed(LENGTHS)
    found = encoded(model, batch)
    assert found.equilibrium is not None and found.equilibrium.forward.converged.all()
    assert float(found.equilibrium.forward.residual.max()) <= 1e-6
    parts = batch.input_ids.split(LENGTHS), batch.token_type_ids.split(LENGTHS)
    for ours, ids, types in zip(found.last_hidden.split(LENGTHS), *parts, strict=True):
        with torch.no_grad():
            point = reference.fixed_point(model, ids, types, 150)
        assert float((ours - point).norm() / point.norm()) <= 1e-5


@each_solver
def test_three_starts_end_in_one_point(solver: str) -> None:
    model, batch = made(solver=solver), builders.packed(LENGTHS)
    inner, points = loop(model), []
    solve = inner.solve
    for scale in (0.0, 1.0, 10.0):
        noise = torch.randn(25, 24, generator=torch.Generator().manual_seed(3), dtype=torch.float64)

        def elsewhere(f: Any, start: Tensor, sequences: Sequences, limit: int, by: float = scale) -> Any:
            return solve(f, start + by * noise, sequences, limit)  # noqa: B023

        inner.solve = elsewhere  # type: ignore[method-assign]
        out = encoded(model, batch)
        assert out.equilibrium is not None and out.equilibrium.forward.converged.all()
        points.append(out.last_hidden)
    for other in points[1:]:
        assert float((other - points[0]).norm() / points[0].norm()) <= 10 * 1e-6


def loss_of(model: Model, batch: Packed, weights: Tensor) -> Tensor:
    return (model.encoder(batch).last_hidden * weights).sum()


@each_solver
def test_the_gradient_is_that_of_three_hundred_unrolled_steps(solver: str) -> None:
    batch = builders.packed(LENGTHS)
    weights = torch.randn(25, 24, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    weights[:5] = 0  # a sequence without loss
    implicit, unrolled = made(300, solver=solver), made(300, solver=solver)
    loop(unrolled).unrolled = True
    for model in (implicit, unrolled):
        loss_of(model, batch, weights).backward()
    pairs = dict(unrolled.named_parameters())
    checked = 0
    for name, p in implicit.encoder.named_parameters():
        theirs = pairs[f"encoder.{name}"].grad
        if theirs is None:
            assert p.grad is None
            continue
        assert p.grad is not None
        size = float(theirs.norm())
        # A key's bias shifts every score of a query alike: its gradient is rounding in both.
        assert float((p.grad - theirs).norm()) <= 1e-3 * max(size, 1e-3), name
        checked += size > 1e-3
    assert checked > 15


def test_the_gradient_is_as_exact_of_a_small_loss() -> None:
    """The gradient of a mean over a large batch is far below the tolerance; the absolute tolerance of the
    solver must not take it for zero."""
    batch = builders.packed(LENGTHS)
    weights = torch.randn(25, 24, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    found = []
    for scale in (1.0, 1e-9):
        model = made()
        loss_of(model, batch, scale * weights).backward()
        found.append({name: p.grad / scale for name, p in model.named_parameters() if p.grad is not None})
    assert len(found[0]) > 15
    for name, gradient in found[0].items():
        torch.testing.assert_close(found[1][name], gradient, rtol=1e-8, atol=1e-10, msg=name)


def test_the_gradient_is_that_of_finite_differences() -> None:
    batch, model = builders.packed(LENGTHS), made(200, tolerance=1e-12)
    weights = torch.randn(25, 24, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    loss_of(model, batch, weights).backward()
    for name in ("injection.weight", "attention.0.value.weight", "embeddings.word.weight"):
        p = model.encoder.get_parameter(name)
        assert p.grad is not None
        direction = torch.randn(p.shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
        values = []
        for side in (1e-5, -2e-5):
            with torch.no_grad():
                p.add_(side * direction)
                values.append(float(loss_of(model, batch, weights)))
        with torch.no_grad():
            p.add_(1e-5 * direction)
        measured = (values[0] - values[1]) / 2e-5
        assert float((p.grad * direction).sum()) == pytest.approx(measured, rel=1e-5), name


def test_alone_is_as_in_company_of_a_hard_one() -> None:
    model, texts = made(), builders.sequences([6, 9, 4])
    with torch.no_grad():  # a piece whose embedding throws a sequence about
        model.encoder.embeddings.layer_norm.weight.mul_(3)
    hard = builders.sequences([12], seed=8)
    together = encoded(model, pack([*texts, *hard]))
    assert together.equilibrium is not None
    numbers = together.equilibrium.forward
    for i, text in enumerate(texts):
        alone = encoded(model, pack([text]))
        assert alone.equilibrium is not None
        rows = together.last_hidden.split([6, 9, 4, 12])[i]
        torch.testing.assert_close(rows, alone.last_hidden, rtol=0, atol=1e-6)
        assert int(alone.equilibrium.forward.iterations) == int(numbers.iterations[i])
    assert len(set(numbers.iterations.tolist())) > 1


class PeakBytes(TorchDispatchMode):
    """The most bytes of tensors that were alive at once, of those made under it."""

    def __init__(self) -> None:
        super().__init__()
        self.alive = self.peak = 0
        self.known: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for x in tree_leaves(out):
            if isinstance(x, Tensor) and (address := x.untyped_storage().data_ptr()) not in self.known:
                storage = x.untyped_storage()
                self.known.add(address)
                self.alive += (size := storage.nbytes())
                self.peak = max(self.peak, self.alive)
                weakref.finalize(storage, self._gone, address, size)
        return out

    def _gone(self, address: int, size: int) -> None:
        self.known.discard(address)
        self.alive -= size


def peak_of(limit: int, unrolled: bool = False) -> int:
    model = made(limit, tolerance=1e-15, hidden_size=48).train()
    loop(model).unrolled = unrolled
    batch = builders.packed([30] * 4)
    with PeakBytes() as memory:
        out = model.encoder(batch)
        out.last_hidden.square().sum().backward()
    if not unrolled:
        assert out.equilibrium.forward.iterations.tolist() == [limit] * 4
        assert out.equilibrium.backward.iterations.tolist() == [limit] * 4
    return memory.peak


def test_memory_does_not_depend_on_the_iterations() -> None:
    few, many = peak_of(10), peak_of(40)
    assert many / few <= 1.05
    assert peak_of(40, unrolled=True) > 2 * peak_of(10, unrolled=True)  # which is what is measured here


def test_dropout_masks_stay_over_the_iterations() -> None:
    rates = {"hidden_dropout_prob": 0.2, "attention_probs_dropout_prob": 0.2}
    model, batch = made(**rates).train(), builders.packed(LENGTHS)
    values = []
    for seed in (1, 1, 2):
        seed_torch(seed, "dropout")
        out = model.encoder(batch)
        assert out.equilibrium.forward.converged.all()
        values.append(out.last_hidden.detach())
        after = torch.rand(3)
    torch.testing.assert_close(values[0], values[1])
    assert not torch.allclose(values[0], values[2], atol=1e-2)
    seed_torch(2, "dropout")
    loop(model).tolerance = 1e-2  # fewer iterations leave the generator where more do
    model.encoder(batch)
    assert torch.equal(torch.rand(3), after)


@pytest.mark.parametrize("limit", [3, 60])
def test_training_continues_from_the_best_iterate_as_inference_does(limit: int) -> None:
    model, batch = made(limit, initializer_range=0.6), builders.packed(LENGTHS)
    in_training = model.encoder(batch)
    inference = encoded(model, batch)
    assert not inference.equilibrium.forward.converged.all()
    torch.testing.assert_close(in_training.last_hidden, inference.last_hidden)
    torch.testing.assert_close(
        in_training.equilibrium.forward.residual, inference.equilibrium.forward.residual
    )


def test_rows_depth_and_states(caplog: pytest.LogCaptureFixture) -> None:
    model, batch = made(), builders.packed(LENGTHS)
    rows = torch.tensor([0, 7, 6, 24, 20])
    whole = encoded(model, batch)
    torch.testing.assert_close(encoded(model, batch, rows=rows).last_hidden, whole.last_hidden[rows])
    states = encoded(model, batch, all_depths=True).hidden_states
    assert states is not None and len(states) == 2
    torch.testing.assert_close(states[1], whole.last_hidden)
    torch.testing.assert_close(states[0], encoded(model, batch, depth=0).last_hidden)
    assert not caplog.records
    few = encoded(model, batch, depth=4)
    assert few.equilibrium.forward.iterations.tolist() == [4] * 4
    encoded(model, batch, depth=4)
    (record,) = caplog.records  # once, with the residual
    assert record.levelno == logging.WARNING and "4 of 4 sequences" in record.message
    assert f"{float(few.equilibrium.forward.residual.max()):.2g}" in record.message
    with pytest.raises(SettingsError, match="depth 61"):
        encoded(model, batch, depth=61)


def test_padding_sequences_are_not_reported() -> None:
    model, batch = made().float(), builders.packed([5, 6])
    loop(model).tolerance = 1e-3
    out = encoded(model, batch)
    assert len(out.equilibrium.forward.converged) == 2 and len(out.last_hidden) == 11


@pytest.mark.sample(2)
@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("precision", ["float32", "auto"])
def test_backends_agree(recompute: bool, precision: str) -> None:
    batch, found = builders.packed(LENGTHS), {}
    rows = torch.tensor([1, 6, 8, 20])
    for backend in ("plain", "auto"):
        model = made(tolerance=1e-5, initializer_range=0.1).float().train()
        model.precision, model.encoder.backend = precision, backend  # type: ignore[assignment]
        model.encoder.recompute = recompute and backend == "auto"
        logits, pair = model.pretraining_forward(batch, rows)
        (logits.square().sum() + pair.square().sum()).backward()
        found[backend] = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
    assert found["plain"].keys() == found["auto"].keys() and "encoder.injection.weight" in found["auto"]
    for n, gradient in found["plain"].items():
        close = {"atol": 2e-3 * float(gradient.abs().max()) + 1e-4, "rtol": 1e-2}
        torch.testing.assert_close(found["auto"][n], gradient, **close, msg=lambda m, n=n: n + m)


@each_solver
def test_weights_that_are_not_finite_are_reported_and_never_raised(
    solver: str, caplog: pytest.LogCaptureFixture
) -> None:
    model, batch = made(solver=solver), builders.packed(LENGTHS)
    with torch.no_grad():
        model.encoder.feed_forward[0].output.weight[0, 0] = float("nan")
    numbers = encoded(model, batch).equilibrium.forward
    assert not numbers.converged.any() and torch.isinf(numbers.residual).all()
    assert len(caplog.records) == 1 and "residual up to inf" in caplog.records[0].message
    model.encoder(
        batch
    ).last_hidden.sum().backward()  # in training what is not finite is the loop's to refuse


REFUSED = {
    "depths of this plan differ": {"plan": SharingPlan.unshared(3)},
    "the depths of this plan": {"plan": SharingPlan((0, 0), (0, 0), own=("injection",))},
    "pre-norm": {"norm": "pre"},
    "input_injection=true": {"input_injection": False},
    "tolerance": {"tolerance": 0.0},
    "none, anderson, broyden": {"solver": "newton"},
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_has_no_fixed_point_is_refused(message: str) -> None:
    changes = {"plan": SharingPlan.shared(3), "solver": "anderson", "input_injection": True}
    with pytest.raises(SettingsError, match=message):
        builders.config(**(changes | REFUSED[message]))  # type: ignore[arg-type]


def test_a_memory_is_refused() -> None:
    with pytest.raises(SettingsError, match="solver: none"):
        encode_segments(made(positions="relative").encoder, Segments(builders.packed([4])))


def test_reading_on_is_refused() -> None:
    with pytest.raises(SettingsError, match="has no KV cache"):
        decode_step(made().encoder, builders.packed([4]))


def test_it_is_saved_and_loaded(tmp_path: Any) -> None:
    model, batch = made().float(), builders.packed(LENGTHS)
    save_model(model, None, tmp_path / "saved")
    again = load_model(tmp_path / "saved")
    assert again.config == model.config and isinstance(again.encoder.loop, FixedPoint)
    torch.testing.assert_close(encoded(again, batch).last_hidden, encoded(model, batch).last_hidden)
    with pytest.raises(SettingsError, match="solver anderson"):
        save_model(model, None, tmp_path / "foreign", layout="transformers")
    copy.deepcopy(model)
