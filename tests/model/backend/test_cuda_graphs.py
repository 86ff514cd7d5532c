"""CUDA graphs, with a graph that a CPU replays."""

from __future__ import annotations

import gc
import logging
import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from albertine.core.batch import Packed
from albertine.model.backend import cuda, cuda_graphs, current
from albertine.model.backend.cuda_graphs import MOST_TOKENS, BatchSize, CapturedPasses, round_up
from albertine.model.model import Model
from albertine.model.sharing import SharingPlan
from tests.model import builders
from tests.model.backend.test_cuda import by_mask

RECORDED: list[BatchSize] = []
STARTED: list[BatchSize] = []


@pytest.fixture(autouse=True)
def on_a_card(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A CPU that takes the code paths of a GPU. A captured pass computes again at each replay, and its result
    is in the same memory every time."""

    def recorded(run, device):
        run()
        recording = run.__self__
        first = recording._out
        RECORDED.append(recording._size)

        def started():
            run()
            first.last_hidden.copy_(recording._out.last_hidden)
            recording._out = first
            STARTED.append(recording._size)

        return started

    monkeypatch.setattr(cuda, "PACKED_KERNEL", by_mask)
    monkeypatch.setattr(cuda, "HALF", (torch.float32,))
    monkeypatch.setattr(cuda_graphs, "recorded", recorded)
    monkeypatch.setattr(cuda_graphs, "can_replay", lambda x: type(x) is Tensor)
    RECORDED.clear()
    STARTED.clear()
    yield
    cuda_graphs._replays.clear()


def card_model(**changes: object) -> Model:
    shape = {"max_position_embeddings": 64, **changes}
    model = builders.model(SharingPlan.grouped(4, 2), **shape).eval()
    model.encoder.backend = "cuda"
    return model


def plainly(model: Model, packed: Packed, **how: object) -> Tensor:
    model.encoder.backend = "plain"
    found = model.encoder(packed, **how).last_hidden
    model.encoder.backend = "cuda"
    return found


def same(model: Model, packed: Packed, **how: object) -> None:
    found = model.encoder(packed, **how).last_hidden
    torch.testing.assert_close(found, plainly(model, packed, **how), atol=1e-5, rtol=1e-5)


BATCHES = ([5, 9], [12, 3, 7], [30], [1, 1, 1, 1], [40, 20], [5, 9], [63], [64])


@pytest.mark.parametrize("changes", [{}, {"positions": "rotary"}], ids=["learned", "rotary"])
def test_every_batch_of_a_size_is_answered_by_one_graph(changes: dict[str, object]) -> None:
    model = card_model(**changes)
    with torch.inference_mode():
        for lengths in BATCHES:
            same(model, builders.packed(lengths))
            same(model, builders.packed(lengths), rows=torch.tensor([3, 0]))
            same(model, builders.packed(lengths), depth=2)
    assert len(RECORDED) == 2 and set(RECORDED) == {BatchSize(64, 16, 64)}  # of all depths and of two


def test_an_answer_is_not_overwritten_by_the_next() -> None:
    model = card_model()
    with torch.no_grad():
        packed = builders.packed([5, 9])
        found = [model.encoder(packed).last_hidden for _ in range(5)]
        kept = found[-1].clone()
        model.encoder(builders.packed([7, 3]))
    assert len(RECORDED) == 1 and not found[-1].is_inference()
    assert torch.equal(found[-1], kept)
    assert torch.equal(found[0], kept)  # the same kernels before there was a graph


def test_other_weights_are_seen() -> None:
    """Written in place, by `.data`, by an optimizer, and put elsewhere."""
    model, packed = card_model(), builders.packed([5, 9])
    with torch.inference_mode():
        for _ in range(4):
            model.encoder(packed)
    weight = model.encoder.attention[0].query.weight
    with torch.no_grad():
        weight.mul_(2)
        same(model, packed)
        weight.data[0] += 1
        same(model, packed)
        assert len(RECORDED) == 1
        weight.data = weight.data * 3
        same(model, packed)
        same(model, packed)
        assert len(RECORDED) == 2  # the old graph reads memory that has been reused
        weight.data = weight.data.t()
        same(model, packed)
        same(model, packed)
    assert len(RECORDED) == 3  # and this one the same memory in another order


@pytest.mark.parametrize("positions", ["relative", "none"])
def test_what_others_put_into_a_model_is_computed(positions: str) -> None:
    """Hooks, layers of another kind, and kinds of model that no graph takes."""
    packed = builders.packed([5, 9])
    with torch.no_grad():
        model = card_model()
        for _ in range(4):
            model.encoder(packed)
        calls = []
        handle = model.encoder.attention[1].register_forward_hook(lambda *_: calls.append(1))
        before = len(STARTED)
        same(model, packed)
        assert len(calls) == 4 and len(STARTED) == before > 0  # of two depths, here and plainly
        handle.remove()
        same(model, packed)
        assert len(STARTED) > before

        class Louder(nn.Linear):
            def forward(self, x: Tensor) -> Tensor:
                return super().forward(x) + 1

        before = model.encoder(packed).last_hidden
        louder = Louder(24, 24)
        louder.load_state_dict(model.encoder.attention[0].query.state_dict())
        model.encoder.attention[0].query = louder
        STARTED.clear()
        assert (model.encoder(packed).last_hidden - before).abs().max() > 1e-3
        same(model, packed)
        assert not STARTED
        other = card_model(positions=positions, position_signal="sinusoid" if positions == "none" else "none")
        RECORDED.clear()
        for _ in range(4):
            same(other, packed)
    assert not RECORDED


def test_what_no_graph_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Training, gradients, every depth, sources and targets, too many tokens, too many short sequences."""
    monkeypatch.setattr(cuda_graphs, "MOST_TOKENS", 128)
    model, packed = card_model(), builders.packed([5, 9])

    def four(batch: Packed, **how: object) -> None:
        for _ in range(4):
            model.encoder(batch, **how)

    four(packed)  # gradients are wanted
    with torch.no_grad():
        model.train()
        four(packed)
        model.eval()
        four(packed, all_depths=True)
        four(packed, depth=0)
        four(builders.packed([60, 60, 9]))
        four(builders.packed([1] * 20))
        four(replace(packed, prefix=(2, 3)))
        model.encoder.attention[1].train()  # Monte Carlo dropout
        four(packed)
        model.eval()
        assert not RECORDED
        four(packed)
    assert len(RECORDED) == 1


def test_sizes() -> None:
    for tokens in range(1, MOST_TOKENS + 1):
        size = round_up(tokens)
        assert tokens <= size <= max(64, tokens + 31, tokens * 1.125)
    assert len({round_up(n) for n in range(1, MOST_TOKENS + 1)}) < 60
    for lengths in BATCHES:
        packed = builders.packed(lengths)
        size = BatchSize.of(packed)
        assert size is not None
        offsets = size.offsets(packed)
        assert offsets[: len(lengths) + 1].tolist() == packed.cu_seqlens.tolist()
        assert len(offsets) == size.sequences + 1 and int(offsets[-1]) == size.tokens
        assert int(offsets.diff().min()) >= 0 and int(offsets.diff().max()) <= size.longest


def test_only_so_many_graphs_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_graphs, "MOST_GRAPHS", 2)
    monkeypatch.setattr(cuda_graphs, "SIGHTS", 1)
    model = card_model()
    with torch.no_grad():
        for depth in (1, 2, 1, 3, 1):
            same(model, builders.packed([5, 9]), depth=depth)
    (kept,) = cuda_graphs._replays.values()
    assert [kind[0] for kind, _ in kept.graphs.known] == [3, 1]


def test_a_pass_that_cannot_be_recorded_is_computed_and_reported(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def recorded(run, device):
        raise RuntimeError("operation not permitted when stream is capturing\nmore")

    monkeypatch.setattr(cuda_graphs, "recorded", recorded)
    model = card_model()
    with torch.no_grad(), caplog.at_level(logging.WARNING):
        for _ in range(6):
            same(model, builders.packed([5, 9]))
    assert [r.getMessage() for r in caplog.records] == [
        "a pass could not be recorded as a CUDA graph, and is computed without: "
        "operation not permitted when stream is capturing"
    ]


def test_a_recording_casts_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights cast by the surrounding pass are not captured: they may be others at the next replay."""
    model, computed, passes, packed = card_model(), [], [], builders.packed([5, 9])
    inner, outer = model.encoder.encode, cuda.run_captured

    def spied(ops, *how):
        computed.append(ops)
        return inner(ops, *how)

    def run_captured(*how):
        passes.append(current())
        return outer(*how)

    monkeypatch.setattr(model.encoder, "encode", spied)
    monkeypatch.setattr(cuda, "run_captured", run_captured)
    with torch.no_grad():
        for _ in range(4):
            model.encoder(packed)
    assert len(passes) == 4 and len(computed) > 3
    assert not {id(ops) for ops in computed} & {id(ops) for ops in passes}


def test_threads_take_turns() -> None:
    model, wrong = card_model(), []
    batches = [builders.packed(lengths) for lengths in BATCHES]
    with torch.no_grad():
        right = [model.encoder(b).last_hidden for b in batches]

    def compute() -> None:
        with torch.no_grad():
            for _ in range(20):
                for batch, wanted in zip(batches, right, strict=True):
                    if not torch.allclose(model.encoder(batch).last_hidden, wanted, atol=1e-5):
                        wrong.append(batch.lengths)

    threads = [threading.Thread(target=compute) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and len(RECORDED) == 1


def test_graphs_go_with_their_model() -> None:
    model = card_model()
    with torch.no_grad():
        for _ in range(4):
            model.encoder(builders.packed([5, 9]))
    assert len(cuda_graphs._replays) == 1 and isinstance(
        next(iter(cuda_graphs._replays.values())), CapturedPasses
    )
    del model
    gc.collect()
    assert len(cuda_graphs._replays) == 0
