"""The backend of a GPU, on a processor: its branches on the device "meta", where every wait of the host
raises, and a compiled depth against the plain one."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend

from albertine.core.batch import Packed, pack
from albertine.model.backend import cuda, onednn
from albertine.model.model import Model
from albertine.model.rows import Rows
from albertine.model.sharing import SharingPlan
from albertine.objectives.batch import PretrainingBatch
from albertine.objectives.losses import pretraining_losses
from albertine.training.optimizers import build_optimizer
from tests.model import builders


def same_gradients(model: Model, batch: Packed) -> None:
    """Compiled and not."""
    found = []
    for wanted in (False, True):
        model.encoder.compiled = wanted
        model.zero_grad(set_to_none=True)
        model.encoder(batch).last_hidden.square().sum().backward()
        found.append([p.grad for p in model.encoder.parameters()])
    for plain, other in zip(*found, strict=True):
        torch.testing.assert_close(other, plain, atol=1e-4, rtol=1e-4)


def by_mask(q_TND, k_TND, v_TND, cu_q, cu_k, longest_q, longest_k):
    """Attention within sequences whose lengths are never copied to the host, as in the kernel of a GPU."""
    every = torch.arange(len(q_TND))
    own = torch.bucketize(every, cu_k.long(), right=True)
    scores = torch.einsum("tnd,und->ntu", q_TND, k_TND) * q_TND.shape[2] ** -0.5
    weights = scores.masked_fill(own[:, None] != own[None], float("-inf")).softmax(-1)
    return torch.einsum("ntu,und->tnd", weights, v_TND)


def compiling(monkeypatch: pytest.MonkeyPatch) -> CompileCounterWithBackend:
    """Layers are compiled here too, by a compiler that counts its calls."""
    torch._dynamo.reset()
    counter = CompileCounterWithBackend("aot_eager")
    whole = torch.compile(cuda.plain_layer, dynamic=True, backend=counter)
    monkeypatch.setattr(cuda, "_compiled_layer", lambda: whole)
    monkeypatch.setattr(cuda, "PACKED_KERNEL", by_mask)
    monkeypatch.setattr(cuda, "HALF", (torch.float32,))
    monkeypatch.setattr(cuda.Traced, "attend", cuda.Cuda.attend)
    return counter


def messages_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Messages of albertine; the compiler of torch logs many others."""
    return [record.getMessage() for record in caplog.records if record.name.startswith("albertine")]


def test_a_depth_is_compiled_for_all_depths_and_batches(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Once behind the embeddings and once behind another depth; with the gradients of plain torch."""
    counter = compiling(monkeypatch)
    model = builders.model(SharingPlan.shared(5), hidden_act="gelu_new").train()
    model.encoder.backend = "cuda"
    for lengths in ([5, 9], [12, 3, 7], [20]):
        same_gradients(model, builders.packed(lengths))
    assert 1 <= counter.frame_count <= 2 and not messages_of(caplog)


@pytest.mark.sample(2, keep=["forward", "full_backward"])
@pytest.mark.parametrize("kind", ["forward_pre", "forward", "full_backward_pre", "full_backward"])
def test_a_hook_is_called_in_a_depth_that_was_compiled_before(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches: a probe that is never called, as torch does not look again whether what it compiled has
    hooks."""
    counter = compiling(monkeypatch)
    model, batch = builders.model(SharingPlan.shared(3)).train(), builders.packed([5, 9])
    model.encoder.backend, model.encoder.compiled = "cuda", True
    calls: list[torch.nn.Module] = []

    def learned() -> int:
        calls.clear()
        model.encoder(batch).last_hidden.sum().backward()
        return len(calls)

    learned()
    layer = model.encoder.feed_forward[0].intermediate
    handle = getattr(layer, f"register_{kind}_hook")(lambda module, *_: calls.append(module))
    assert learned() == 3
    handle.remove()
    before = counter.frame_count
    assert learned() == 0 and counter.frame_count == before  # compiled, and not anew


@pytest.mark.parametrize("changes", [{"attention_probs_dropout_prob": 0.1}, {}, {"norm": "pre"}])
def test_what_the_padded_kernel_computes_is_not_compiled(
    changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It has other shapes for every batch, and would be compiled for each. Nor is what a depth has of its
    own; that is reported once."""

    def missing(*_: object) -> None:
        raise AssertionError("compiled")

    if "norm" in changes:
        compiling(monkeypatch)
    monkeypatch.setattr(cuda, "_compiled_layer", missing)
    model = builders.model(**changes).train()  # in float32, and with dropout
    model.encoder.backend, model.encoder.compiled = "cuda", True
    cuda._warn_not_compiled.cache_clear()
    for _ in range(2):
        model.encoder(builders.packed([5, 9])).last_hidden.sum().backward()
    assert [line[:32] for line in messages_of(caplog)] == ["training.compile does not apply "]


def on_meta(batch: Packed) -> Packed:
    return batch.to("meta")


def meta_model(monkeypatch: pytest.MonkeyPatch, **changes: object) -> Model:
    from torch.nn.attention.varlen import varlen_attn

    monkeypatch.setattr(cuda, "PACKED_KERNEL", varlen_attn)
    with torch.device("meta"):
        model = Model(builders.config(SharingPlan.grouped(4, 2), **changes), {"mlm", "sop"})
    model.precision = "bfloat16"
    return model.train()


@pytest.mark.parametrize(
    ("precision", "changes", "prefix"),
    [
        ("bfloat16", {}, None),
        ("bfloat16", {"hidden_size": 104, "num_attention_heads": 4}, None),  # heads of 26
        ("bfloat16", {"attention_probs_dropout_prob": 0.1, "hidden_dropout_prob": 0.1}, None),
        ("bfloat16", {}, [3, 5, 2]),
        ("float32", {}, None),
    ],
)
@pytest.mark.parametrize("recompute", [False, True])
def test_a_training_step_never_waits_for_the_device(
    precision: str,
    changes: dict[str, object],
    prefix: list[int] | None,
    recompute: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On "meta" there are no values: reading one raises."""
    model = meta_model(monkeypatch, **changes)
    model.precision, model.encoder.recompute = precision, recompute  # type: ignore[assignment]
    lengths = [9, 12, 4]
    packed = pack(builders.sequences(lengths), [[0] * n for n in lengths], prefix).to("meta")
    rows, three = (
        torch.zeros(5, dtype=torch.long, device="meta"),
        torch.zeros(3, dtype=torch.long, device="meta"),
    )
    batch = PretrainingBatch(packed, rows, rows, three, 3, three)
    parts = pretraining_losses(model, batch)
    torch.stack([part.loss_sum / part.count for part in parts.values()]).sum().backward()
    assert all(p.grad is not None and p.grad.dtype == torch.float32 for p in model.parameters())
    optimizer = build_optimizer(model, "lamb")
    optimizer.step()
    with torch.inference_mode():
        assert model.eval().encoder(packed, rows=rows).last_hidden.shape == (5, model.config.hidden_size)


def test_the_unpadded_kernel_is_taken_where_it_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object) -> None:
        raise AssertionError("padded")

    model = meta_model(monkeypatch)
    monkeypatch.setattr(cuda, "attend_padded", missing)
    model.encoder(builders.packed([9, 12]).to("meta"))
    model.precision = "float32"
    with pytest.raises(AssertionError, match="padded"):
        model.encoder(builders.packed([9, 12]).to("meta"))


def test_rows_named_twice_stay_within_the_bound() -> None:
    """The kernel leaves queries beyond it unwritten."""
    every = torch.arange(12, device="meta").repeat(2)
    assert Rows.of(builders.packed([12]).to("meta")).select(every).rows.longest == 24
    assert Rows.of(builders.packed([12, 3]).to("meta")).select(every[:2]).rows.longest == 2


@pytest.mark.parametrize("there", [False, True])
def test_bfloat16_without_hardware_support_is_reported_once(
    there: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    onednn._warn_emulated.cache_clear()
    monkeypatch.setattr(onednn, "fast_bfloat16", lambda device: there)
    model = builders.model().train()
    for precision in ("float32", "bfloat16", "bfloat16"):
        model.precision = precision  # type: ignore[assignment]
        model.encoder(builders.packed([5])).last_hidden.sum().backward()
    messages = [] if there else ["this processor has no bfloat16, and emulates it several times as slowly"]
    assert [record.message.partition(" as it")[0] for record in caplog.records] == messages
    onednn._warn_emulated.cache_clear()


def test_compiling_on_a_processor_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    onednn._warn_uncompiled.cache_clear()
    model = builders.model().train()
    model.encoder.compiled = True
    for _ in range(2):
        model.encoder(builders.packed([5])).last_hidden.sum().backward()
    assert [record.message.split(":")[0] for record in caplog.records] == [
        "training.compile does nothing on a CPU"
    ]
