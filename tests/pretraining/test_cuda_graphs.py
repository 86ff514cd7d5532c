"""Pretraining passes as CUDA graphs, with graphs that a CPU computes anew."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from albertine.bench.inputs import inputs, pretraining
from albertine.model.backend import cuda
from albertine.model.model import Model
from albertine.model.sharing import SharingPlan
from albertine.objectives.batch import PretrainingBatch
from albertine.objectives.losses import pretraining_losses
from albertine.pretraining import cuda_graphs, run
from albertine.pretraining.cuda_graphs import CudaGraphRunner, cuda_graph_runner
from albertine.training.progress import Reporter
from albertine.training.step import MicroBatchRunner, StepReport, train_step
from tests.model import builders
from tests.pretraining.conftest import Build
from tests.toy import MODEL

CPU = torch.device("cpu")
CASES = [{"positions": "rotary"}, {"plan": SharingPlan.unshared(2)}]


class Card:
    """A GPU that runs captured passes on the CPU.

    Attributes:
        recordings, started: number of captures and of replays. measured: number of passes whose memory was
            measured. share: memory of a pass as a share of the GPU's.
    """

    def __init__(self) -> None:
        self.recordings = self.started = self.measured = 0
        self.share = 0.01

    def recorded(self, run: Callable[[], None], device: torch.device) -> Callable[[], None]:
        run()  # must have no effect
        self.recordings += 1

        def start() -> None:
            self.started += 1
            run()

        return start

    def peak_share(self, run: Callable[[], None], device: torch.device) -> float:
        self.measured += 1
        run()
        return self.share


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch, lengths_from_device: None) -> Iterator[Card]:
    found = Card()
    monkeypatch.setattr(cuda_graphs, "recorded", found.recorded)
    monkeypatch.setattr(cuda_graphs, "peak_share", found.peak_share)
    yield found


def model_of(plan: SharingPlan | None = None, **changes: Any) -> Model:
    model = builders.model(plan, **{"max_position_embeddings": 64, **changes}).train()
    model.encoder.backend = "cuda"
    return model


def batch_of(lengths: list[int], pairs: bool = True, **changes: Any) -> PretrainingBatch:
    batch = pretraining(inputs("toy", lengths, builders.VOCABULARY))[0]
    return replace(batch, **({} if pairs else {"sentence_labels": None, "sentence_count": 0}) | changes)


Step = Callable[..., StepReport]


def step_of(model: Model, runner: MicroBatchRunner | None = None) -> Step:
    """Steps of the one optimizer to which a gradient of nearly zero is one."""
    optimizer = torch.optim.SGD(model.parameters(), momentum=0.9, weight_decay=0.1)

    def step(*batches: PretrainingBatch, parts: Sequence[str] | None = None) -> StepReport:
        return train_step(model, batches, pretraining_losses, optimizer, lr=0.02, runner=runner, parts=parts)

    return step


def compared(one: Model, other: Model) -> None:
    for (name, a), b in zip(one.named_parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(b, a, atol=2e-5, rtol=1e-4, msg=lambda m, name=name: f"{name}: {m}")


@pytest.mark.parametrize("changes", CASES, ids=["rotary", "learned"])
def test_captured_passes_equal_eager_ones(changes: dict[str, Any], card: Card) -> None:
    """Pairs and single texts, two micro-batches of a step, two of one size, and one that no graph takes."""
    model = model_of(**changes)
    twin = copy.deepcopy(model)
    plain, whole = step_of(twin), step_of(model, CudaGraphRunner(model, CPU))
    one, two, many = batch_of([9, 21, 14]), batch_of([12, 8, 23, 5]), batch_of([30] * 9)
    single, half = batch_of([20, 11], pairs=False), batch_of([13, 24, 9], depth=1)
    without = batch_of([15, 16], sentence_labels=torch.full((2,), -100), sentence_count=0)
    first = {name: p.detach().clone() for name, p in model.named_parameters()}
    for batches in ((single,), (single,), (single, single), (single,)):
        reports = plain(*batches), whole(*batches)
        assert reports[0].parts["mlm"].loss_sum == pytest.approx(reports[1].parts["mlm"].loss_sum, rel=1e-4)
        compared(twin, model)
    assert card.started > 0
    # The head that had no part in it is as it was, weight decay included.
    assert torch.equal(
        dict(model.named_parameters())["sentence.classifier.weight"], first["sentence.classifier.weight"]
    )
    for batches in (
        (one, two),
        (two,),
        (many, one),
        (many,),
        (one, many, many),
        (half,),
        (half,),
        (half, one),
    ):
        reports = plain(*batches), whole(*batches)
        for name, part in reports[0].parts.items():
            assert part.loss_sum == pytest.approx(reports[1].parts[name].loss_sum, rel=1e-4)
            assert (part.count, part.correct) == (
                reports[1].parts[name].count,
                reports[1].parts[name].correct,
            )
        assert reports[0].grad_norm == pytest.approx(reports[1].grad_norm, rel=1e-3)
        assert reports[0].tokens == reports[1].tokens
        compared(twin, model)
    before = card.started
    for _ in range(3):  # a part that nothing is predicted of is left out, its decay too
        plain(without), whole(without)
        compared(twin, model)
    assert card.started == before and card.recordings == 4
    for _ in range(3):
        plain(without, one), whole(without, one)
        compared(twin, model)
    assert card.started == before + 5 and card.recordings == 5


def test_a_stage_without_pairs_is_captured_too(card: Card) -> None:
    """Where the parts of the loss are those of all stages."""
    model = model_of()
    twin, single = copy.deepcopy(model), batch_of([20, 11], pairs=False)
    plain, whole = step_of(twin), step_of(model, CudaGraphRunner(model, CPU))
    names = ("mlm", "sentence")
    for _ in range(4):
        reports = plain(single, parts=names), whole(single, parts=names)
        assert reports[0].parts.keys() == reports[1].parts.keys() == set(names)
        assert reports[1].parts["sentence"].count == 0 < reports[1].parts["mlm"].count
        assert reports[0].parts["mlm"].loss_sum == pytest.approx(reports[1].parts["mlm"].loss_sum, rel=1e-4)
        compared(twin, model)
    assert card.started == 3


def test_large_passes_are_neither_padded_nor_captured(card: Card, monkeypatch: pytest.MonkeyPatch) -> None:
    """Passes of much memory are padded and not captured."""
    model = model_of()
    runner = CudaGraphRunner(model, CPU)
    twin = copy.deepcopy(model)
    plain, whole = step_of(twin), step_of(model, runner)
    large, small = batch_of([30] * 9), batch_of([9, 21])
    monkeypatch.setattr(cuda_graphs, "MAX_STATE_ELEMENTS", 100 * model.config.hidden_size)
    runner(large, ["mlm", "sentence"], {"mlm": 1.0, "sentence": 1.0}, torch.zeros(2, 2).double())
    model.zero_grad()
    assert card.measured == 0
    card.share = 0.3
    for _ in range(4):
        plain(small, large), whole(small, large)
        compared(twin, model)
    assert (card.recordings, card.started) == (0, 0)


def test_a_resumed_run_ends_with_the_same_bits(card: Card) -> None:
    """Whether a batch is padded must not depend on earlier batches."""
    batches = [batch_of(lengths) for lengths in ([9, 21], [30] * 9, [12, 8, 23], [9, 20], [30] * 8)]

    def end(cuts: tuple[int, ...], share: float) -> list[torch.Tensor]:
        model, card.share = model_of(), share
        optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
        for first, last in zip((0, *cuts), (*cuts, 12), strict=True):
            passes = CudaGraphRunner(model, CPU)
            for i in range(first, last):
                batch = batches[i % len(batches)]
                train_step(model, [batch], pretraining_losses, optimizer, lr=0.02, runner=passes)
        return [p.detach().clone() for p in model.parameters()]

    straight = end((), 0.01)
    for cuts, share in (((7,), 0.01), ((1, 9), 0.01), ((7,), 0.9)):
        assert all(map(torch.equal, straight, end(cuts, share)))
    assert card.started > 0


def test_a_pass_that_cannot_be_captured_runs_eagerly_with_a_warning(
    card: Card, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def failing(run: Callable[[], None], device: torch.device) -> Callable[[], None]:
        started = card.recorded(run, device)
        if card.recordings == 2:
            raise RuntimeError("out of memory\nmore")
        return started

    monkeypatch.setattr(cuda_graphs, "recorded", failing)
    model = model_of()
    twin = copy.deepcopy(model)
    plain, whole = step_of(twin), step_of(model, CudaGraphRunner(model, CPU))
    one, two = batch_of([9, 21]), batch_of([30] * 9)
    with caplog.at_level(logging.WARNING):
        for batches in ((one,), (one,), (one, two), (one, two), (one, two), (two,)):
            plain(*batches), whole(*batches)
            compared(twin, model)
    assert card.recordings == 2
    assert [r.getMessage() for r in caplog.records] == [
        "a pass could not be recorded as a CUDA graph, and is computed without: out of memory"
    ]


def test_hooks_and_moved_weights_are_seen(card: Card) -> None:
    model = model_of()
    whole, batch, calls = step_of(model, CudaGraphRunner(model, CPU)), batch_of([9, 21]), []
    for _ in range(3):
        whole(batch)
    assert (card.recordings, card.started) == (1, 2)
    handle = model.sentence.register_forward_hook(lambda *_: calls.append(1))
    whole(batch)
    assert calls and card.started == 2
    handle.remove()
    whole(batch)
    assert (card.recordings, card.started) == (1, 3)
    weight = model.encoder.attention[0].query.weight
    weight.data = weight.data.clone()
    whole(batch)
    assert (card.recordings, card.started) == (2, 4)  # the old one reads freed memory


def test_which_models_are_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        cuda, "packed_kernel", lambda dtype, size: object if dtype == torch.bfloat16 else None
    )
    model, card = model_of(), torch.device("cuda")
    assert cuda_graph_runner(model, pretraining_losses, card) is None  # in float32 attention is padded
    model.precision = "bfloat16"
    assert isinstance(cuda_graph_runner(model, pretraining_losses, card), CudaGraphRunner)
    assert cuda_graph_runner(model, pretraining_losses, CPU) is None
    assert cuda_graph_runner(model, lambda *_: {}, card) is None
    others = [{"hidden_dropout_prob": 0.1}, {"attention_probs_dropout_prob": 0.1}, {"sentence_dropout": True}]
    others += [{"positions": "relative"}, {"solver": "anderson", "input_injection": True}]
    for changes in others:
        other = model_of(**changes)
        other.precision = "bfloat16"
        assert cuda_graph_runner(other, pretraining_losses, card) is None
    model.encoder.recompute = True
    assert cuda_graph_runner(model, pretraining_losses, card) is None


def test_a_run_on_a_gpu_captures(build: Build, card: Card, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run with captured passes ends as one without."""

    def passes(model: nn.Module, losses: Any, device: torch.device) -> CudaGraphRunner:
        assert losses is pretraining_losses and isinstance(model, Model)
        return CudaGraphRunner(model, device)

    shape = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    ends = []
    for name in ("plain", "recorded"):
        if name == "recorded":
            monkeypatch.setattr(run, "cuda_graph_runner", passes)
        settings = build(name=name, model={"preset": "albert-tiny-zh", "change": {**MODEL, **shape}})
        result = run.pretrain(settings, reporter=Reporter(quiet=True))
        ends.append(result.outcome.scores)
    assert card.started > 3
    assert ends[0].keys() == ends[1].keys()
    for name, value in ends[0].items():
        assert ends[1][name] == pytest.approx(value, rel=0.02, abs=0.02)
