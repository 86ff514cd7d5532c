"""LoRA adapters of PEFT: what they add is added, in training and in inference, whatever computes."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
import torch
from torch import Tensor, nn

from albertine.model.answerability_head import JointAnswer
from albertine.model.backend.autotune import fixed
from albertine.model.model import Model
from albertine.model.sharing import SharingPlan
from tests.model import builders

peft = pytest.importorskip("peft")

PLANS = [SharingPlan.shared(3), SharingPlan.unshared(3)]
NAMES = ["query", "value"]
BATCH = builders.packed([5, 9, 3])
ROWS = torch.tensor([1, 7, 16])
every_plan = pytest.mark.parametrize("plan", PLANS, ids=["shared", "unshared"])
M = TypeVar("M", bound=nn.Module)


def adapters(model: nn.Module) -> Iterator[tuple[str, Any]]:
    """The layers with an adapter, by name."""
    for name, layer in model.named_modules():
        if hasattr(layer, "lora_A"):
            yield name, layer


def adapted(plan: SharingPlan, targets: list[str] | None = None, **changes: object) -> tuple[Model, Model]:
    """A model before and after adapters that are not zero were put into it."""
    plain = builders.model(plan, **changes)
    return plain, with_adapters(plain, targets or NAMES)


def with_adapters(plain: M, targets: list[str]) -> M:
    """A copy with adapters that are not zero."""
    settings = peft.LoraConfig(r=2, lora_alpha=3, target_modules=targets)
    model: M = peft.inject_adapter_in_model(settings, copy.deepcopy(plain))
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for _, layer in adapters(model):
            for part in (layer.lora_A, layer.lora_B):
                weight = part["default"].weight
                weight.copy_(0.3 * torch.randn(weight.shape, generator=generator))
    return model.eval()


def by_hand(plain: M, model: M) -> M:
    """The model before with W + B·A·alpha/r written into its weights."""
    made = copy.deepcopy(plain)
    with torch.no_grad():
        for name, layer in adapters(model):
            low = layer.lora_B["default"].weight @ layer.lora_A["default"].weight
            made.get_submodule(name).weight.add_(low * 3 / 2)  # type: ignore[operator, union-attr]
    return made


def hidden(model: Model, precision: str = "float32") -> Tensor:
    model.precision = precision  # type: ignore[assignment]
    return model.encoder(BATCH).last_hidden.float()


@every_plan
def test_one_adapter_a_block(plan: SharingPlan) -> None:
    _, model = adapted(plan)
    assert len(list(adapters(model))) == len(NAMES) * plan.num_attention_blocks


@pytest.mark.sample(8)
@every_plan
@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("backend", ["auto", "plain"])
@pytest.mark.parametrize("targets", [NAMES, ["intermediate", "output", "dense", "mapping"]], ids=str)
def test_the_output_is_that_of_the_low_rank_sum(
    plan: SharingPlan, mode: Any, backend: str, targets: list[str]
) -> None:
    plain, model = adapted(plan, targets)
    right = by_hand(plain, model)
    plain.encoder.backend = model.encoder.backend = right.encoder.backend = backend
    with mode():
        assert (hidden(model) - hidden(plain)).abs().max() > 0.1
        torch.testing.assert_close(hidden(model), hidden(right), atol=1e-5, rtol=1e-5)
        for found, expected in zip(
            model.pretraining_forward(BATCH, ROWS), right.pretraining_forward(BATCH, ROWS), strict=True
        ):
            assert found is not None and expected is not None
            torch.testing.assert_close(found, expected, atol=3e-5, rtol=1e-5)


@every_plan
def test_adapters_that_are_zero_change_nothing(plan: SharingPlan) -> None:
    plain, model = adapted(plan)
    with torch.inference_mode():
        for _, layer in adapters(model):
            layer.lora_B["default"].weight.zero_()
        torch.testing.assert_close(hidden(model), hidden(plain), atol=1e-5, rtol=1e-5)


@every_plan
@pytest.mark.parametrize("precision", ["bfloat16", "int8"])
@pytest.mark.parametrize("targets", [NAMES, ["intermediate", "output"]], ids=str)
def test_lower_formats_have_the_adapter_too(plan: SharingPlan, precision: str, targets: list[str]) -> None:
    """Nearer to the sum in float32 than what is left without adapters, by an order of magnitude."""
    plain, model = adapted(plan, targets)
    right = by_hand(plain, model)
    # A form that every processor has; measured, a busy one may take float32, whose error is rounding alone.
    with torch.inference_mode(), fixed(int8="32-bit sums"):
        error = (hidden(model, precision) - hidden(right)).norm()
        without = (hidden(plain) - hidden(right)).norm()
        own = (hidden(right, precision) - hidden(right)).norm()
    assert error < 0.1 * without
    assert error < 3 * own


@every_plan
@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("backend", ["auto", "plain"])
def test_gradients_reach_the_adapters_alone(plan: SharingPlan, recompute: bool, backend: str) -> None:
    """With W' = W + s·B·A they are dB = s·dW'·Aᵀ and dA = s·Bᵀ·dW'."""
    plain, model = adapted(plan)
    right = by_hand(plain, model)
    for each in (model, right):
        each.train()
        each.encoder.recompute, each.encoder.backend = recompute, backend
        logits, sentence = each.pretraining_forward(BATCH, ROWS)
        assert sentence is not None
        (logits.square().mean() + sentence.square().mean()).backward()
    assert {n for n, p in model.named_parameters() if p.grad is not None} == {
        n for n, _ in model.named_parameters() if "lora_" in n
    }
    for name, layer in adapters(model):
        dW = right.get_submodule(name).weight.grad
        A, B = layer.lora_A["default"].weight, layer.lora_B["default"].weight
        assert isinstance(dW, Tensor) and dW.abs().max() > 1e-3
        torch.testing.assert_close(B.grad, 1.5 * dW @ A.T, atol=1e-5, rtol=1e-3)
        torch.testing.assert_close(A.grad, 1.5 * B.T @ dW, atol=1e-5, rtol=1e-3)


@every_plan
def test_training_in_bfloat16_has_gradients_near_those_of_float32(plan: SharingPlan) -> None:
    found = []
    for precision in ("float32", "bfloat16"):
        _, model = adapted(plan)
        model.precision = precision  # type: ignore[assignment]
        model.train().pretraining_forward(BATCH, ROWS)[0].float().logsumexp(1).sum().backward()
        found.append(
            torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])  # type: ignore[union-attr]
        )
    assert found[0].dtype == found[1].dtype == torch.float32
    assert torch.cosine_similarity(*found, 0) > 0.98


def test_attention_learns_where_its_queries_do_not() -> None:
    """One text long enough for a processor that attends by plain products in inference."""
    batch = builders.packed([200])
    found = []
    for backend in ("plain", "auto"):
        _, model = adapted(
            SharingPlan.shared(1), ["key", "value"], hidden_size=128, max_position_embeddings=256
        )
        model.encoder.backend, model.precision = backend, "bfloat16"
        with fixed(attention="products"):
            model.train().encoder(batch).last_hidden.float().logsumexp(1).sum().backward()
        found.append(
            torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])  # type: ignore[union-attr]
        )
    assert found[0].abs().max() > 0.1
    assert torch.cosine_similarity(*found, 0) > 0.99


@every_plan
@pytest.mark.parametrize("precision", ["float32", "bfloat16", "int8"])
def test_merging_and_unmerging_between_two_requests(plan: SharingPlan, precision: str) -> None:
    """PEFT writes merged weights through `.data`, which raises no counter."""
    plain = builders.model(plan)
    with torch.inference_mode():
        first = hidden(plain, precision)
    model = peft.get_peft_model(plain, peft.LoraConfig(r=2, target_modules=NAMES)).eval()
    with torch.no_grad():
        for name, p in model.named_parameters():
            if "lora_B" in name:
                p.copy_(0.3 * torch.randn(p.shape, generator=torch.Generator().manual_seed(0)))
    close = {"atol": 1e-5, "rtol": 1e-5} if precision == "float32" else {"atol": 0.3, "rtol": 0.1}
    with torch.inference_mode():
        apart = hidden(plain, precision)
        assert (apart - first).abs().max() > 0.5
        model.merge_adapter()
        torch.testing.assert_close(hidden(plain, precision), apart, **close)
        model.unmerge_adapter()
        torch.testing.assert_close(hidden(plain, precision), apart, **close)
        with model.disable_adapter():
            torch.testing.assert_close(hidden(plain, precision), first, **close)
        done = model.merge_and_unload()
        torch.testing.assert_close(hidden(done, precision), apart, **close)
    twin = builders.model(plan)
    twin.load_state_dict(done.state_dict())
    with torch.inference_mode():
        assert torch.equal(hidden(twin, precision), hidden(done, precision))


def test_a_model_of_peft_is_called_saved_and_loaded(tmp_path: Path) -> None:
    model = peft.get_peft_model(builders.model(), peft.LoraConfig(r=2, target_modules=NAMES)).eval()
    with torch.no_grad():
        for name, p in model.named_parameters():
            if "lora_B" in name:
                p.fill_(0.3)
    model.save_pretrained(tmp_path)
    again = peft.PeftModel.from_pretrained(builders.model(), tmp_path).eval()
    ids, mask, types = builders.padded(BATCH)
    with torch.inference_mode():
        found, expected = (
            m(ids, attention_mask=mask, token_type_ids=types).last_hidden_state for m in (again, model)
        )
        plain = builders.model()(ids, mask, types).last_hidden_state
    assert torch.equal(found, expected)
    assert (found - plain).abs().max() > 0.1


@pytest.mark.parametrize("changes", [{"norm": "pre"}, {"embedding_mapping": "words"}], ids=str)
@pytest.mark.parametrize("mode", [torch.enable_grad, torch.inference_mode])
def test_a_head_that_goes_back_through_the_mapping_has_its_adapter(
    mode: Any, changes: dict[str, Any]
) -> None:
    """Catches: logits that change when the adapter is merged."""
    plain, model = adapted(SharingPlan.shared(2), ["mapping"], **changes)
    right = by_hand(plain, model)
    with mode():
        rows = hidden(right)
        found = model.mlm_logits(rows)
        torch.testing.assert_close(found, right.mlm_logits(rows), atol=1e-4, rtol=1e-5)
        assert (found - plain.mlm_logits(rows)).abs().max() > 0.1


HEAD = ["start_logits.dense", "dense_0", "dense_1"]


@pytest.mark.parametrize("mode", [torch.enable_grad, torch.inference_mode])
def test_the_joint_head_has_its_adapters(mode: Any) -> None:
    """Catches: layers of which the weights are read, so that an adapter has no effect until it is merged."""
    plain = JointAnswer(builders.model(SharingPlan.shared(2)), seed=4).eval()
    model = with_adapters(plain, HEAD)
    right = by_hand(plain, model)
    assert len(list(adapters(model))) == 5
    batch, starts = builders.packed([6, 6]), torch.tensor([0, 4])
    with mode():
        each = zip(*(one.learn(batch, starts) for one in (model, right, plain)), strict=True)
        for found, expected, before in each:
            torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
            assert (found - before).abs().max() > 0.1


def test_gradients_reach_the_adapters_of_the_joint_head() -> None:
    plain = JointAnswer(builders.model(SharingPlan.shared(2)), seed=4).eval()
    model = with_adapters(plain, HEAD)
    logits = model.learn(builders.packed([6, 6]), torch.tensor([0, 4]))
    sum(x.clamp(min=-50).sum() for x in logits).backward()  # those that no answer can have are -1e30
    for name, layer in adapters(model):
        for part in (layer.lora_A, layer.lora_B):
            assert part["default"].weight.grad.abs().max() > 1e-4, name
