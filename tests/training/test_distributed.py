"""Two ranks over gloo: the same model as one, the same decisions on both."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.distributed import TCPStore

from albertine.errors import RunError
from albertine.training import distributed
from albertine.training.distributed import LOCAL_RANKS, World, isolated_process_state, start, stop
from albertine.training.launch import PartnerEnded
from albertine.training.metrics import TIMINGS, read_metrics
from tests.training.toy import Toy

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Ended:
    """Reports of the ranks of a run, their weights, and the run's folder."""

    reports: list[dict[str, Any]]
    weights: list[dict[str, Tensor]]
    run: Path

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [row for row in read_metrics(self.run / "metrics.jsonl") if "loss" in row]


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ended]:
    """All runs of this file; `resumed` resumes the one that a signal stopped, `branch`
    begins at a checkpoint of `two`, and `branched` is the same command again."""
    base = tmp_path_factory.mktemp("ranks")
    sizes = {"one": 1, "two": 2, "poison": 2, "signal": 2, "resumed": 2, "branch": 2, "branched": 2}
    sizes |= {"dropout": 2, "alone": 2, "alone-one": 1, "muon": 2, "muon-one": 1}
    shared = {"resumed": "signal", "branched": "branch"}
    places = {name: base / shared.get(name, name) for name in sizes}
    words = [f"{name}:{sizes[name]}:{place}" for name, place in places.items()]
    command = [sys.executable, "-m", "tests.training.rank", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    result: dict[str, Ended] = {}
    for name, place in places.items():
        files = [place / f"{name}-{rank}" for rank in range(sizes[name])]
        reports = [json.loads(file.with_suffix(".json").read_text()) for file in files]
        weights = [load_file(file.with_suffix(".safetensors")) for file in files]
        result[name] = Ended(reports, weights, place / "run")
    return result


def equal(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def test_two_ranks_are_one(ended: dict[str, Ended]) -> None:
    one, two = ended["one"], ended["two"]
    assert two.reports[0] == two.reports[1] and two.reports[0]["step"] == 20
    assert two.reports[0]["scores"] == {"mlm_loss": 3.0}
    assert equal(*two.weights), "the ranks drifted apart"
    for name, value in one.weights[0].items():
        error = float((two.weights[0][name] - value).norm() / value.norm().clamp_min(1e-9))
        assert error <= 1e-6, f"{name}: {error:.1e}"
    for row, other in zip(two.rows, one.rows, strict=True):
        for key in set(row) - set(TIMINGS):
            assert row[key] == pytest.approx(other[key], rel=1e-5), key


def test_ranks_drop_different_numbers(ended: dict[str, Ended]) -> None:
    """Equal draws would be one pattern for all sequences that stand in the same place of their rank."""
    reports = ended["dropout"].reports
    patterns = [tuple(pattern) for rank in reports for pattern in rank["dropped"]]
    assert len(patterns) == 8 and len(set(patterns)) == 8
    assert all(0.2 < sum(pattern) / len(pattern) < 0.8 for pattern in patterns)
    assert equal(*ended["dropout"].weights)


def test_what_one_rank_alone_uses_is_updated_on_both(ended: dict[str, Ended]) -> None:
    """A parameter that rank 1 alone uses; the other part of the loss is of rank 0 alone."""
    two, one = ended["alone"], ended["alone-one"]
    assert equal(*two.weights), "the ranks drifted apart"
    start = Toy().spare.weight.detach()
    assert float((two.weights[0]["spare.weight"] - start).norm()) > 0.1 * float(start.norm())
    for name, value in one.weights[0].items():
        error = float((two.weights[0][name] - value).norm() / value.norm().clamp_min(1e-9))
        assert error <= 1e-5, f"{name}: {error:.1e}"


def test_a_part_of_the_loss_that_one_rank_has_counts_on_both(ended: dict[str, Ended]) -> None:
    """Catches: ranks that add up as many numbers as they have parts, each in places of its own."""
    two, one = ended["alone"], ended["alone-one"]
    for row, other in zip(two.rows, one.rows, strict=True):
        assert row["sentence_loss"] == pytest.approx(other["sentence_loss"], rel=1e-5)


def test_two_ranks_are_one_with_muon_and_an_average(ended: dict[str, Ended]) -> None:
    """As far as rounding goes, which the five steps of an orthogonalisation make larger."""
    two, one = ended["muon"], ended["muon-one"]
    assert equal(*two.weights), "the ranks drifted apart"
    assert sum(name.startswith("average/") for name in two.weights[0]) >= 8
    for name, value in one.weights[0].items():
        error = float((two.weights[0][name] - value).norm() / value.norm().clamp_min(1e-9))
        assert error <= 1e-5, f"{name}: {error:.1e}"


def test_not_finite_on_one_rank_stops_both_with_equal_weights(ended: dict[str, Ended]) -> None:
    """Call 9 of rank 1 is in step 5."""
    poison = ended["poison"]
    assert all("not finite at step 5" in report["error"] for report in poison.reports)
    assert equal(*poison.weights)
    assert all(bool(torch.isfinite(t).all()) for t in poison.weights[0].values())
    assert equal(load_file(poison.run / "checkpoints" / "step-4" / "model.safetensors"), poison.weights[0])


def test_a_signal_to_one_rank_stops_both_and_loses_no_step(ended: dict[str, Ended]) -> None:
    assert [(report["step"], report["exit_code"]) for report in ended["signal"].reports] == [
        (5, 143),
        (5, 143),
    ]
    resumed, straight = ended["resumed"], ended["two"]
    assert resumed.reports[0]["step"] == 20
    assert equal(resumed.weights[0], straight.weights[0]) and equal(*resumed.weights)
    assert (resumed.run / "log.txt").read_text().count("resumed from") == 1


def test_two_ranks_begin_a_branch_together(ended: dict[str, Ended]) -> None:
    for name in ("branch", "branched"):
        assert [report["step"] for report in ended[name].reports] == [20, 20], ended[name].reports
        assert equal(*ended[name].weights) and equal(ended[name].weights[0], ended["two"].weights[0])
    assert json.loads((ended["branch"].run / "branch.json").read_text())["step"] == 15


def test_no_thread_of_gloo_is_left_at_the_end(ended: dict[str, Ended]) -> None:
    """One that lets go of a tensor while the interpreter shuts down aborts the process."""
    assert [report["threads of gloo"] for report in ended["two"].reports] == [0, 0]


def test_an_incomplete_environment_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    for name in ("RANK", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(RunError, match="torchrun"):
        start("cpu")


class Cards:
    """A machine with so many GPUs, as torch reports it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, count: int) -> None:
        self.chosen: list[torch.device] = []
        monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
        monkeypatch.setattr(torch.cuda, "set_device", self.chosen.append)


@pytest.mark.parametrize(
    ("count", "local", "device", "advice"),
    [(2, 2, None, "--nproc-per-node 2"), (2, 0, "cuda:5", "GPU 5"), (0, 0, "cuda", "device cpu")],
)
def test_a_card_that_is_not_there_is_reported(
    count: int, local: int, device: str | None, advice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cards = Cards(monkeypatch, count)
    monkeypatch.setenv("LOCAL_RANK", str(local))
    with pytest.raises(RunError, match=rf"torch sees {count} .*{advice}|{advice}.*torch sees {count}"):
        start(device)
    assert not cards.chosen


@pytest.mark.parametrize("device", [None, "cuda"])
def test_the_process_group_gets_its_gpu(device: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise NCCL guesses the device at the first barrier."""
    given_arguments: list[dict[str, Any]] = []
    cards = Cards(monkeypatch, 2)
    values = {"RANK": 3, "LOCAL_RANK": 1, "WORLD_SIZE": 4, "MASTER_ADDR": "localhost", "MASTER_PORT": 1}
    for name, value in values.items():
        monkeypatch.setenv(name, str(value))
    group = torch.distributed
    monkeypatch.setattr(group, "init_process_group", lambda *_, **given: given_arguments.append(given))
    monkeypatch.setattr(group, "get_rank", lambda: 3)
    monkeypatch.setattr(group, "get_world_size", lambda: 4)
    card = torch.device("cuda", 1)
    assert start(device) == World(3, 4, card)
    assert given_arguments[0]["device_id"] == card and cards.chosen == [card]
    start("cpu")
    assert given_arguments[1]["device_id"] is None


@pytest.mark.parametrize(("rank", "message"), [(0, "1 did not start"), (1, "did not answer")])
def test_a_process_that_never_starts_is_not_waited_for_without_end(
    rank: int, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    monkeypatch.setattr(distributed, "PATIENCE", timedelta(seconds=2))
    values = {"RANK": rank, "WORLD_SIZE": 2, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": store.port}
    values |= {"TORCHELASTIC_RUN_ID": "one", "TORCHELASTIC_USE_AGENT_STORE": "True"}
    for name, value in values.items():
        monkeypatch.setenv(name, str(value))
    with pytest.raises(RunError, match=rf"{message} within .*start the run again"):
        start("cpu")


@pytest.mark.parametrize(
    ("message", "gone"),
    [
        ("Connection closed by peer [127.0.0.1]:1234", True),
        ("Read error: Connection reset by peer", True),
        ("Timed out waiting 1800000ms for recv operation to complete", True),
        ("Socket Timeout", True),
        ("wait timeout after 1800000ms", True),
        ("CUDA error: peer access is not supported between these two devices", False),
        ("CUDA error: the launch timed out and was terminated", False),
        ("The size of tensor a (2) must match the size of tensor b (3)", False),
    ],
)
def test_errors_of_another_process_are_recognised(
    message: str, gone: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(tensor: Tensor) -> None:
        raise RuntimeError(message)

    monkeypatch.setattr(torch.distributed, "all_reduce", fail)
    with pytest.raises(RuntimeError if not gone else PartnerEnded):
        World(size=2).any(True)


def test_alone_every_sum_is_its_argument() -> None:
    world = World()
    assert world.main and world.add_numbers([1.5, 2]) == [1.5, 2] and not world.any(False) and world.any(True)
    assert world.from_main(3.0) == 3.0 and torch.equal(world.add(torch.ones(2)), torch.ones(2))


def test_a_barrier_is_left_when_no_rank_is_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rank 0 of two calls `busy` twice while this one waits."""
    others, sums = iter([1.0, 1.0, 0.0]), []

    def all_reduce(tensor: Tensor) -> None:
        tensor.add_(next(others))
        sums.append(tensor.item())

    monkeypatch.setattr(torch.distributed, "all_reduce", all_reduce)
    World(rank=1, size=2).together()
    assert sums == [1.0, 1.0, 0.0]
    World().together()


def test_sums_of_numbers_are_exact_beyond_what_float32_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tokens of a large batch are more than 2**24, from where on float32 counts in twos."""
    monkeypatch.setattr(torch.distributed, "all_reduce", lambda tensor: tensor.mul_(2))
    odd = 2**24 + 1
    assert World(size=2).add_numbers([odd, 2**40 + 1, 0.5]) == [2 * odd, 2**41 + 2, 1.0]


def test_buffers_are_shared_like_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    model = torch.nn.BatchNorm1d(2)
    sent: list[torch.Tensor] = []
    monkeypatch.setattr(torch.distributed, "broadcast", lambda tensor, src: sent.append(tensor))
    World(size=2).share_weights(model)
    assert {id(x) for x in sent} == {id(x) for x in (*model.parameters(), *model.buffers())}


def test_which_card_is_used_where_there_are_several(monkeypatch: pytest.MonkeyPatch) -> None:
    Cards(monkeypatch, 4)
    for name in LOCAL_RANKS:
        monkeypatch.delenv(name, raising=False)
    joined(monkeypatch, {"RANK": 1, "WORLD_SIZE": 4, "MASTER_ADDR": "localhost", "MASTER_PORT": 1})
    with pytest.raises(RunError, match=r"LOCAL_RANK is not.* with one process a machine set LOCAL_RANK=0"):
        start()
    for name, card in (("OMPI_COMM_WORLD_LOCAL_RANK", 3), ("SLURM_LOCALID", 2), ("LOCAL_RANK", 1)):
        monkeypatch.setenv(name, str(card))
        assert start().device == torch.device("cuda", card)


def joined(monkeypatch: pytest.MonkeyPatch, values: dict[str, Any]) -> None:
    """A process group of one process."""
    for name, value in values.items():
        monkeypatch.setenv(name, str(value))
    group = torch.distributed
    monkeypatch.setattr(group, "init_process_group", lambda *_, **__: None)
    monkeypatch.setattr(group, "get_rank", lambda: values["RANK"])
    monkeypatch.setattr(group, "get_world_size", lambda: values["WORLD_SIZE"])


def test_after_a_broken_run_another_can_be_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches: "trying to initialize the default process group twice" in a notebook that goes on."""
    left: list[str] = []
    monkeypatch.setattr(torch.distributed, "destroy_process_group", lambda: left.append("left"))
    joined(monkeypatch, {"RANK": 0, "WORLD_SIZE": 2, "MASTER_ADDR": "localhost", "MASTER_PORT": 1})
    stop(World(size=2, device=torch.device("cuda", 0)), broken=True)
    assert not left
    for _ in range(2):
        start("cpu")
        assert left == ["left"]


def test_a_rank_that_fails_does_not_wait_for_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """NCCL would wait, and the error would never be printed; gloo does not wait."""
    ended: list[str] = []
    monkeypatch.setattr(distributed, "_abandoned", [])
    monkeypatch.setattr(torch.distributed, "destroy_process_group", lambda: ended.append("left"))
    monkeypatch.setattr("albertine.training.distributed.isolated_torch_rng", lambda device: nullcontext())
    card = World(size=2, device=torch.device("cuda", 0))
    with pytest.raises(RunError), isolated_process_state(card):
        raise RunError("the disk is full")
    assert not ended
    with isolated_process_state(card):
        pass
    assert ended == ["left"]
    with pytest.raises(RunError), isolated_process_state(World(size=2)):
        raise RunError("the disk is full")
    assert len(ended) == 2
