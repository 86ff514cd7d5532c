"""Every measurement, run small: peers and ours compute the same, and the records match the runs."""

from __future__ import annotations

import json
import multiprocessing
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import albertine
from albertine.bench import (
    batches,
    idle_check,
    inference,
    interleaved,
    optimizer,
    paper_table2,
    peers,
    process,
    scaling,
    start_up,
    training,
)
from albertine.bench.inputs import inputs, lengths_of, pretraining
from albertine.bench.machine import hardware, save_result, saved_results
from albertine.bench.peers import Peer
from albertine.bench.regression import fallen, kept, not_compared
from albertine.cli.app import run
from albertine.errors import RunError
from albertine.model.config import EncoderConfig
from albertine.model.model import Model
from albertine.model.presets import preset
from albertine.model.sharing import SharingPlan
from tests.model.builders import config

ROOT = Path(__file__).parents[2]
TOY = config(vocab_size=97, max_position_embeddings=128, initializer_range=0.1)
BERT = replace(TOY, embedding_size=TOY.hidden_size, plan=SharingPlan.unshared(3))
XLNET = replace(
    BERT, positions="relative", type_vocab_size=3, embedding_norm=False, summary="last", pad_token_id=5
)


@pytest.mark.parametrize(("sequences", "fill"), [(32, 0.48), (8, 0.57), (8, 1.0), (1, 1.0), (4, 0.3)])
def test_lengths_fill_their_share(sequences: int, fill: float) -> None:
    lengths = lengths_of(sequences, 128, fill)
    assert len(lengths) == sequences and max(lengths) == 128 and min(lengths) >= 2
    assert sum(lengths) / (sequences * 128) == pytest.approx(fill, abs=0.03 if sequences >= 8 else 0.2)
    assert lengths == lengths_of(sequences, 128, fill)


def test_packed_and_padded_are_the_same_batch() -> None:
    given = inputs("x", [5, 9, 2], 97)
    real = given.padded["attention_mask"].bool()
    assert torch.equal(given.padded["input_ids"][real], given.packed.input_ids)
    assert torch.equal(given.padded["token_type_ids"][real], given.packed.token_type_ids)
    assert given.fill == pytest.approx(16 / 27)
    batch, padded = pretraining(inputs("x", [20, 40], 97))
    assert torch.equal(padded["labels"][padded["labels"] >= 0], batch.mlm_labels)
    assert torch.equal(batch.packed.input_ids[batch.mlm_positions], batch.mlm_labels)


def test_inference(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("transformers")

    def broken(*_: object) -> None:
        raise ValueError("no such thing\nand more")

    def absent(*_: object) -> None:
        raise ImportError("gone", name="gone")

    first = inference.peers()[0]
    others = (
        Peer("broken", "broken", broken),
        Peer("absent", "absent", absent),
        Peer("long", "x", broken, True),
    )  # type: ignore[arg-type]
    monkeypatch.setattr(inference, "peers", lambda: (first, *others))
    (found,) = inference.measure(TOY, ["varied"], rounds=2, threads=1)
    record = found.as_dict()
    assert set(record["left_out"]) == {"broken", "absent"}
    assert record["left_out"]["broken"] == "ValueError: no such thing"
    assert record["left_out"]["absent"] == "not installed: gone"
    assert {first.name, "albertine float32"} <= set(record["runs"])
    assert record["runs"][first.name]["least_cosine"] > 0.99999
    assert all(row["least_cosine"] > 0.98 and row["min_ms"] > 0 for row in record["runs"].values())


@pytest.mark.matrix
def test_inference_of_xlnet(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("transformers")
    first = inference.peers()[0]
    monkeypatch.setattr(inference, "peers", lambda: (first,))
    (found,) = inference.measure(XLNET, ["single"], rounds=1, threads=1)
    assert XLNET.architecture == "xlnet" and found.as_dict()["left_out"] == {}
    assert found.cosines[first.name] > 0.99999


@pytest.mark.matrix
def test_inference_continues_without_a_peer_that_cannot_encode(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(_: object) -> torch.Tensor:
        raise ValueError

    monkeypatch.setattr(inference, "peers", lambda: (Peer("failing", "x", lambda *_: failing),))
    (found,) = inference.measure(TOY, ["single"], rounds=1, threads=1)
    record = found.as_dict()
    assert record["left_out"] == {"failing": "ValueError: "}
    assert "albertine float32" in record["runs"] and "failing" not in record["runs"]


def endless(*_: object) -> Any:
    """Practically endless: it takes a minute."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        time.sleep(0.001)


@pytest.mark.matrix
def test_inference_ends_with_a_peer_that_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interleaved, "FIRST", 0.5)
    monkeypatch.setattr(inference, "peers", lambda: (Peer("endless", "x", lambda *_: endless),))
    (found,) = inference.measure(TOY, ["single"], rounds=1, threads=1)
    assert found.as_dict()["left_out"]["endless"].startswith("stopped: took 10 times")
    assert set(found.as_dict()["runs"]) >= {"albertine float32"} and "endless" not in found.as_dict()["runs"]


@pytest.mark.matrix
def test_training_ends_with_a_peer_that_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interleaved, "FIRST", 0.5)
    monkeypatch.setattr(training, "pretraining_peer", lambda folder: None)
    monkeypatch.setattr(training, "_their_step", lambda *_: endless)
    monkeypatch.setattr(training, "fast_bfloat16", lambda device: False)
    found, losses = training.measure(TOY, rounds=1, threads=1)
    record = training.as_dict(replace(found, others=0.0), losses)
    assert set(record["runs"]) == {training.OURS.format("float32")} and record["ratios"] == {}
    assert [*record["left_out"]] == [training.THEIRS.format("float32")]


@pytest.mark.matrix
def test_optimizers_end_with_one_that_does_not(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(interleaved, "FIRST", 0.5)
    monkeypatch.setattr(optimizer._Two, "step", endless)
    assert run(["bench", "optimizer", "--preset", "albert-tiny-zh", "--rounds", "1", "--threads", "1"]) == 0
    assert f"left out: {optimizer.TORCH_MUON} (stopped: took 10 times" in capsys.readouterr().out


@pytest.mark.matrix
def test_start_up_ends_with_a_peer_that_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("transformers")
    monkeypatch.setattr(interleaved, "FIRST", 0.5)
    monkeypatch.setattr(start_up, "call", lambda command: endless() if "-c" in command else "")
    monkeypatch.setattr(start_up, "run", lambda command: ("", 1.0))
    found, peaks = start_up.measure(rounds=1, threads=1)
    assert set(start_up.as_dict(found, peaks)["left_out"]) == {"transformers pipeline fill-mask"}
    assert set(peaks) == set(found.times) == {"albertine --help", "albertine predict fill-mask"}


@pytest.mark.sample(1)
@pytest.mark.parametrize(("shape", "peer"), [(TOY, "AlbertForPreTraining"), (BERT, "BertForPreTraining")])
def test_training_computes_the_same_loss(
    shape: EncoderConfig, peer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("transformers")
    theirs: list[torch.nn.Module] = []

    def heard(folder: Path) -> torch.nn.Module:
        theirs.append(peers.pretraining_peer(folder))
        return theirs[0]

    monkeypatch.setattr(training, "pretraining_peer", heard)
    contest, losses = training.measure(shape, rounds=1, threads=1)
    assert type(theirs[0]).__name__ == peer
    ours = Model(shape, shape.pretraining_heads)
    counts = [sum(p.numel() for p in model.parameters()) for model in (theirs[0], ours)]
    assert counts[0] == counts[1]
    values = list(losses.values())
    assert len(values) in (2, 4) and values[1] == pytest.approx(values[0], abs=1e-4)
    assert values == pytest.approx([values[0]] * len(values), abs=0.05)
    assert set(training.as_dict(contest, losses)["runs"]) == set(losses)


@pytest.mark.parametrize("shape", [XLNET, replace(TOY, plan=SharingPlan.attention_only(3))])
def test_training_is_compared_with_its_like_alone(shape: EncoderConfig) -> None:
    with pytest.raises(RunError, match="ALBERT and BERT"):
        training.measure(shape, rounds=1, threads=1)


def test_training_without_the_peer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "transformers", None)
    with pytest.raises(RunError, match=r"albertine\[bench\]"):
        training.measure(TOY, rounds=1, threads=1)


@pytest.mark.matrix
def test_optimizers() -> None:
    record = optimizer.as_dict(replace(optimizer.measure(TOY, rounds=2, threads=1), others=0.0))
    ours = [optimizer.OURS, optimizer.LAMB, optimizer.MUON]
    assert set(record["runs"]) == {optimizer.TORCH, optimizer.TORCH_MUON, *ours}
    pairs = [(name, optimizer.TORCH) for name in ours] + [(optimizer.MUON, optimizer.TORCH_MUON)]
    assert list(record["ratios"]) == [" / ".join(pair) for pair in pairs]


def test_data(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shape = replace(TOY, vocab_size=preset("albert-tiny-zh").vocab_size)
    monkeypatch.setattr(idle_check, "others", lambda begin, end: 0.1)
    found = batches.measure(corpus, shape, seconds=0.2, workers=(0, 1), threads=2)
    assert found["used"] > 0 and found["ratio"] == max(found["made"].values()) / found["used"]
    if found["megabytes"]["1 loader processes"] is not None:  # the system reports it
        assert found["megabytes"]["0 loader processes"] == 0 and found["megabytes"]["1 loader processes"] > 10
    monkeypatch.setattr(idle_check, "others", lambda begin, end: 1.5)
    assert batches.measure(corpus, shape, seconds=0.2, workers=(0,), threads=2)["ratio"] is None


@pytest.mark.matrix
def test_no_loader_process_counts_as_another_program(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[Any] = []

    def load_since(*_: object) -> dict[str, Any]:
        left.extend(multiprocessing.active_children())
        return {"others_busy": 0.0, "quiet": True}

    monkeypatch.setattr(batches, "load_since", load_since)
    shape = replace(TOY, vocab_size=preset("albert-tiny-zh").vocab_size)
    batches.measure(corpus, shape, seconds=0.1, workers=(0, 1), threads=2)
    assert left == []


@pytest.mark.matrix
def test_no_speed_is_reported_on_a_busy_machine(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(paper_table2, "PAPER", {"bert-large": 1.0})
    monkeypatch.setattr(paper_table2, "preset", lambda name: preset("albert-tiny-zh"))
    command = ["bench", "sizes", "--sequences", "1", "--length", "8", "--rounds", "1", "--json"]
    for busy, speed in ((0.0, 1.0), (9.0, None)):
        monkeypatch.setattr(idle_check, "others", lambda begin, end, busy=busy: busy)
        assert run(command) == 0
        found = json.loads(capsys.readouterr().out)
        assert found["sizes"]["bert-large"]["speed_up"] == speed and found["quiet"] == (speed is not None)


def test_the_command_prints_and_saves(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["bench", "optimizer", "--preset", "albert-tiny-zh", "--rounds", "1", "--threads", "1"]
    assert run([*command, "--json", "--save", str(tmp_path / "a place")]) == 0
    out, err = capsys.readouterr()
    record = json.loads(out)
    (path,) = (tmp_path / "a place").rglob("*.json")
    assert path.parent.name == hardware() and path.name.endswith("-optimizer.json") and str(path) in err
    assert json.loads(path.read_text())["runs"] == record["runs"] and record["machine"]["cores"] >= 1
    assert run(command) == 0
    assert "albertine LAMB" in capsys.readouterr().out
    assert run(["bench", "inference", "--shape", "round"]) == 2


@pytest.mark.matrix
def test_a_ratio_that_has_fallen_fails_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = {"shapes": {"dense": {"ratios": {"a / b": 10.0, "a / c": 2.0, "gone": 3.0}}}, "ratios": {"x": 1.0}}
    found = {"shapes": {"dense": {"ratios": {"a / b": 8.6, "a / c": 1.5, "new": 9.0}}}, "ratios": {"x": 1.2}}
    assert fallen(found, kept) == [
        "dense: a / c was 2.00 and is 1.50",
        "dense: gone was 3.00 and is not there",
    ]
    assert not_compared(found, kept) == []
    command = [
        "bench",
        "optimizer",
        "--preset",
        "albert-tiny-zh",
        "--rounds",
        "1",
        "--threads",
        "1",
        "--against",
        str(tmp_path),
    ]
    assert run(command) == 2
    assert "holds no result `optimizer`" in capsys.readouterr().err
    path = tmp_path / hardware() / "2026-01-01-optimizer.json"
    path.parent.mkdir()
    for ratio, code in ((1e9, 1), (1e-9, 0)):
        settings = {"preset": "albert-tiny-zh", "threads": 1}
        path.write_text(json.dumps({**settings, "ratios": {f"{optimizer.OURS} / {optimizer.TORCH}": ratio}}))
        ended = run(command)
        assert ended == code or "no basis for ratios" in capsys.readouterr().err


def test_a_machine_that_is_less_able_is_not_held_against_itself() -> None:
    kept = {"shapes": {"dense": {"ratios": {"a / b": 10.0}, "tflops": {"float32": [0.2, 0.3, 0.4]}}}}
    found = {"shapes": {"dense": {"ratios": {"a / b": 5.0}, "tflops": {"float32": [0.1, 0.15, 0.5]}}}}
    assert fallen(found, kept) == []
    (line,) = not_compared(found, kept)
    assert line.startswith("dense: ") and "50%" in line
    assert fallen({"shapes": {"dense": {**kept["shapes"]["dense"], "ratios": {"a / b": 5.0}}}}, kept)


def test_a_result_is_held_against_one_of_the_same_preset_and_threads(tmp_path: Path) -> None:
    folder = tmp_path / hardware()
    folder.mkdir()
    likes = [("albert-base-v2", 2), ("albert-base-v2", 1), ("albert-base-v2", 2), ("albert-tiny-zh", 2)]
    for day, (name, threads) in enumerate(likes, start=1):
        tree = {"preset": name, "threads": threads, "day": day}
        (folder / f"2026-01-0{day}-inference.json").write_text(json.dumps(tree))
    (folder / "2026-01-09-inference.json").write_text("{}")  # of before the two were written down
    (folder / "2026-01-10-inference.json").write_text("{")  # cut off
    assert kept("inference", tmp_path, {"preset": "albert-base-v2", "threads": 2})["day"] == 3
    with pytest.raises(RunError, match=r"`inference` .* preset albert-tiny-zh and threads 1.*--save"):
        kept("inference", tmp_path, {"preset": "albert-tiny-zh", "threads": 1})


def test_a_result_replaces_only_results_of_the_same_request(tmp_path: Path) -> None:
    """Two presets saved on one day, and the first again."""
    base, tiny = {"preset": "albert-base-v2", "threads": 2}, {"preset": "albert-tiny-zh", "threads": 2}
    for number, settings in enumerate((base, tiny, {**base, "threads": 1}, base, tiny)):
        save_result("inference", {**settings, "number": number}, tmp_path)
    assert kept("inference", tmp_path, base)["number"] == 3
    assert kept("inference", tmp_path, tiny)["number"] == 4
    paths = saved_results(tmp_path / hardware(), "inference")
    assert [json.loads(path.read_text())["number"] for path in paths] == [2, 4, 3]
    for settings in (
        {"steps": 300},
        {"steps": None, "minutes": 6},
        {"steps": 300, "corpus": "zh"},
        {"steps": 300},
    ):
        save_result("ladder", {"threads": 1, **settings}, tmp_path)
    found = [json.loads(path.read_text()) for path in saved_results(tmp_path / hardware(), "ladder")]
    assert [one["steps"] for one in found] == [300, None, 300] and len({str(one) for one in found}) == 3


def test_what_was_not_requested_has_not_fallen() -> None:
    before = {"shapes": {"dense": {"ratios": {"a / b": 2.0}}, "single": {"ratios": {"a / b": 3.0}}}}
    found = {"shapes": {"dense": {"ratios": {"a / b": 2.0}}}}
    assert fallen(found, before) == not_compared(found, before) == []
    assert fallen(before, found) == []
    assert not_compared(before, found) == ["single: the kept result has no such measurement"]


def test_no_ratio_of_a_busy_machine_counts_as_fallen() -> None:
    calm = {"ratios": {"a / b": 2.0}, "quiet": True}
    busy: dict[str, Any] = {"ratios": {}, "quiet": False}
    assert fallen(busy, calm) == fallen(calm, busy) == []
    assert not_compared(busy, calm) == ["the machine was busy"]
    assert not_compared(calm, busy) == ["the machine was busy when the kept result was made"]


def test_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paper_table2, "PAPER", {"albert-tiny-zh": 1.0, "albert-small-zh": 1.0})
    found = list(paper_table2.measure(sequences=2, length=16, rounds=1))
    assert [size.name for size in found] == ["albert-tiny-zh", "albert-small-zh"]
    assert found[0].parameters < found[1].parameters and all(size.tokens_per_second > 0 for size in found)


def test_the_memory_of_a_process() -> None:
    hold = "x = bytearray(300 * 2**20)"
    (printed, little), (_, much) = (
        process.run([sys.executable, "-c", code]) for code in ("print('你好')", hold)
    )
    assert printed == "你好\n" and little < 100 < 300 < much < 450
    with pytest.raises(RunError, match="failed: ZeroDivisionError"):
        process.run([sys.executable, "-c", "1 / 0"])


@pytest.mark.matrix
def test_start_up_and_a_small_process() -> None:
    contest, peaks = start_up.measure(rounds=1, threads=1)
    record = start_up.as_dict(contest, peaks)
    assert (
        set(record["runs"]) == set(record["peak_mb"]) >= {"albertine --help", "albertine predict fill-mask"}
    )
    assert record["peak_mb"]["albertine --help"] < 100  # megabytes: torch is not imported
    # A tiny model answers in a small container; torch with CUDA is larger than that by itself.
    assert torch.version.cuda or record["peak_mb"]["albertine predict fill-mask"] < 512


@pytest.mark.matrix
def test_scaling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scaling, "AXES", {"length": (16, 128)})
    monkeypatch.setattr(scaling, "MIDDLE", {"length": 16, "batch": 16, "depth": 2, "width": 64})
    short, long = scaling.measure(1)
    assert (short.axis, short.value, long.value) == ("length", 16, 128)
    assert short.milliseconds > 0 and long.megabytes > short.megabytes
    with pytest.raises(RunError, match=r"failed: .*positions"):
        scaling._child({"length": 600, "batch": 1, "depth": 1, "width": 64, "rounds": 1, "threads": 1})


def test_a_faster_size_has_a_larger_speed_up(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = [paper_table2.Size("bert-large", 9, 100.0), paper_table2.Size("albert-base-v2", 3, 400.0)]
    monkeypatch.setattr(paper_table2, "measure", lambda **how: iter(found))
    monkeypatch.setattr(idle_check, "others", lambda begin, end: 0.0)
    assert run(["bench", "sizes", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)["sizes"]
    assert {n: row["speed_up"] for n, row in record.items()} == {"bert-large": 1.0, "albert-base-v2": 4.0}


@pytest.mark.matrix
def test_one_token_that_differs_is_reported_and_padding_is_no_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    def turned(folder: Path, threads: int, given: Any) -> Any:
        model = albertine.load(folder)
        model.precision = "float32"

        def run(batch: Any) -> torch.Tensor:
            with torch.inference_mode():
                names = ("input_ids", "attention_mask", "token_type_ids")
                x = model(*(batch[name] for name in names)).last_hidden_state.clone()
                x[0, 0] = -x[0, 0]
            return x

        return run

    monkeypatch.setattr(inference, "peers", lambda: (Peer("turned", "x", turned),))
    (found,) = inference.measure(TOY, ["varied"], rounds=1, threads=1)
    row = found.as_dict()["runs"]["turned"]
    assert row["least_cosine"] == pytest.approx(-1, abs=1e-3)
    assert row["tokens_per_second"] * row["median_ms"] / 1e3 == pytest.approx(found.inputs.tokens, rel=0.01)
