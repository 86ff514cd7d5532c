"""The GPU benchmark on a CPU: it runs, and it detects errors."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import weakref
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from albertine.analysis.parameters import training_flops_per_token
from albertine.core.settings import load
from albertine.model.backend import cuda
from albertine.model.backend.base import Backend
from albertine.model.model import Model
from albertine.model.presets import preset
from albertine.model.rows import Rows
from albertine.pretraining import cuda_graphs as recording
from albertine.pretraining.settings import PretrainingSettings
from benchmarks.gpu import __main__ as script
from benchmarks.gpu import cases, checks, graphs, parts, rates, runs
from benchmarks.gpu.findings import Findings
from benchmarks.gpu.place import Place, standing_in

ROOT = Path(__file__).resolve().parents[2]
TOY = Place(True, 1)


def agreement(monkeypatch: pytest.MonkeyPatch, name: str) -> Findings:
    """The result of the comparison for one case."""
    (case,) = [case for case in cases.cases(True) if case.name == name]
    monkeypatch.setattr(checks, "cases", lambda toy: [case])
    found = Findings()
    checks.agreement(TOY, found)
    return found


@pytest.mark.matrix
def test_the_gpu_script_runs_on_a_cpu(tmp_path: Path) -> None:
    """Runs every line that needs no GPU, which is nearly all. The widest preset has all training paths; BERT
    has dropout and unshared blocks."""
    pytest.importorskip("transformers")
    chosen = [part.name for part in parts.PARTS if not part.name.startswith("training")]
    chosen += ["training albert-xxlarge-v2", "training bert-base"]
    out = tmp_path / "new" / "gpu.json"
    words = ["--rehearse", "--rounds", "1", "--only", *chosen, "--out", str(out)]
    command = [sys.executable, "-m", "benchmarks.gpu", *words]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
    found = json.loads(out.read_text())["parts"]
    assert {name: part["status"] for name, part in found.items()} == dict.fromkeys(chosen, "done")
    wide, bert = (found[f"training {name}"] for name in ("albert-xxlarge-v2", "bert-base"))
    ours = {"albertine", "albertine compiled", "albertine LAMB", "albertine recomputed"}
    assert ours | {"transformers"} <= set(wide) and "albertine compiled" not in bert
    assert {"transformers", "albertine", "albertine LAMB"} <= set(bert)
    for row in (wide["albertine"], bert["transformers"]):
        assert {"loss", "fill 1.00"} < set(row) and set(row["fill 1.00"]) > {"tokens_per_second", "mfu"}
    agreed = found["agreement"]
    assert agreed["pairs, bfloat16, compiled: functions compiled"] >= 1
    for case in ("masked words alone", "sources and targets", "by the way of dropout"):
        assert agreed[f"{case}, float32: rows"] < 1e-5 and agreed[f"{case}, float32: gradients"] < 1e-5
    assert agreed["heads of 26, bfloat16, compiled: gradients"] < 0.1
    assert found["resuming"]["adamw, dropout 0.1: a resumed run differs by"] == 0
    assert len(found["passes of training as graphs"]) > 20 and len(found["encoding"]) > 7


def test_what_there_may_be_no_time_for_only_explains_the_rest() -> None:
    assert [part.name for part in parts.PARTS][-1] == "kernels"


@pytest.mark.matrix
def test_a_comparison_without_compilation_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda.Cuda, "run_layer", Backend.run_layer)
    with standing_in():
        found = agreement(monkeypatch, "pairs")
    assert found.wrong == ["pairs, bfloat16, compiled: nothing was compiled, so nothing was compared"]


def test_a_kernel_that_attends_to_the_wrong_rows_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sources and targets that all see one another, by as much as bfloat16 forgives least."""
    of = Rows.of
    monkeypatch.setattr(Rows, "of", lambda packed: of(replace(packed, prefix=None)))
    with standing_in():
        found = agreement(monkeypatch, "sources and targets")
    errors = " ".join(found.wrong)
    for name in ("float32", "bfloat16"):
        for what in ("rows", "rows of inference", "gradients"):
            assert f"sources and targets, {name}: {what} is" in errors


@pytest.mark.matrix
def test_wrong_gradients_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of the right direction and another length, and missing ones."""
    learn = checks.learn

    def twice(model: Model, batch: Any) -> Tensor:
        learn(model, batch)
        return learn(model, batch)

    monkeypatch.setattr(checks, "learn", twice)
    with standing_in():
        found = agreement(monkeypatch, "by the way of dropout")
    assert [text.partition(" is ")[0] for text in found.wrong] == [
        f"by the way of dropout, {name}: gradients" for name in ("float32", "bfloat16")
    ]
    one = {"a": torch.ones(3)}
    assert checks.distance(one, one) == 0 and checks.distance({"a": None}, one) == float("inf")
    found = Findings()
    found.bounded("nothing", float("nan"), 1.0)
    assert found.wrong


def test_blind_rows_and_dropout_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    padded = cuda.attend_padded

    def seeing(q: Tensor, k: Tensor, v: Tensor, queries: Rows, keys: Rows, dropout: float) -> Tensor:
        return padded(q, k, v, replace(queries, visible=None), replace(keys, visible=None), 0.0)

    monkeypatch.setattr(cuda, "attend_padded", seeing)
    found = Findings()
    checks.blindness(TOY, found)
    assert len(found.wrong) == 3 and "drops nothing" in found.wrong[-1]


def test_mfu_counts_real_lengths() -> None:
    shape = preset("albert-base-v2")
    work = rates.Work.of(shape, 4, 512, 0.6)
    lengths = work.batch.packed.lengths
    masked = len(work.batch.mlm_positions) / sum(lengths)
    assert work.flops == pytest.approx(sum(n * training_flops_per_token(shape, n, masked) for n in lengths))
    assert work.flops < 0.99 * sum(lengths) * training_flops_per_token(shape, 512, masked)


@pytest.mark.matrix
def test_of_every_way_nothing_is_left_when_the_next_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the peak memory is that of two models."""
    pytest.importorskip("transformers")
    alive: list[weakref.ref[torch.nn.Module]] = []

    def watched(place: Place, model: torch.nn.Module) -> torch.nn.Module:
        assert [name() for name in alive if name() is not None] == []
        alive.append(weakref.ref(model))
        return model

    monkeypatch.setattr(Place, "ready", watched)
    found = Findings()
    rates.training("albert-base-v2", TOY, found)
    gc.collect()
    assert len(alive) == 5 and not found.wrong


@pytest.mark.matrix
def test_a_way_without_memory_and_one_that_computes_something_else(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: object) -> Any:
        raise torch.OutOfMemoryError

    monkeypatch.setattr(rates, "_theirs", none)
    monkeypatch.setattr(
        rates, "learn", lambda model, batch: torch.tensor(5.0 if model.encoder.compiled else 7.0)
    )
    found = Findings()
    rates.training("albert-base-v2", TOY, found)
    assert found.values["transformers"] == {"out_of_memory": True}
    assert found.wrong == ["albertine compiled begins at 5.000, others at 7.000"]


@pytest.mark.matrix
def test_a_graph_that_cannot_be_recorded_or_trains_differently_is_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def none(*_: object) -> Any:
        raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr(graphs, "SHAPES", {"albert-base-v2, 32 x 512": (32, 512)})
    with standing_in():
        with monkeypatch.context() as here:
            here.setattr(recording, "recorded", none)
            found = Findings()
            graphs.graphs(TOY, found)
        assert found.wrong[0] == "albert-base-v2, 32 x 512: a pass could not be recorded"
        assert found.values["albert-base-v2, 32 x 512: ms"] > 0

        monkeypatch.setattr(recording, "recorded", lambda run, device: (run(), lambda: (run(), run()))[1])
        found = Findings()
        graphs.graphs(TOY, found)
        assert any("gradients is 1," in text for text in found.wrong), found.wrong
        assert found.values["albert-base-v2, 32 x 512: sizes recorded and kept"] == 1


def test_a_resumed_run_that_differs_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    way = {"a": torch.zeros(3)}
    ends = iter([{"a": torch.ones(3)}, {"a": torch.ones(3)}, {"a": torch.tensor([1.0, 1.0, 1.0001])}] * 2)
    monkeypatch.setattr(runs, "_corpus", lambda scratch: scratch)
    monkeypatch.setattr(runs, "load_file", lambda path: way)
    monkeypatch.setattr(runs, "_pretrained", lambda tree, resume: next(ends))
    found = Findings()
    runs.resuming(TOY, found)
    assert len(found.wrong) == 2 and all("a resumed run differs" in text for text in found.wrong)


def test_a_part_that_fails_keeps_what_it_found(tmp_path: Path) -> None:
    def run(place: Place, found: Findings) -> None:
        found.note("before", 1)
        raise ZeroDivisionError("by zero")

    record = parts.guarded(parts.Part("one", run, 1), TOY, tmp_path / "found.json")
    assert record["before"] == 1 and record["error"] == "ZeroDivisionError: by zero"
    assert json.loads((tmp_path / "found.json").read_text()) == record and parts.status(record) == "failed"


@pytest.mark.matrix
def test_parts_in_processes_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """One worker finishes, one dies, one is too slow."""
    monkeypatch.chdir(ROOT)
    assert parts.isolated(["--child", "ceilings", "--rehearse", "--rounds", "1"], 200).keys() == {
        "bf16_tflops",
        "copy_gb_per_s",
    }
    assert "ended with code" in parts.isolated(["--child", "no such part", "--rehearse"], 200)["error"]
    assert parts.isolated(["--child", "agreement", "--rehearse"], 0.1)["error"].startswith("ended after 0 s")


def test_all_parts_get_what_is_left_of_the_minutes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A failed part does not end the run; the result is written after each."""
    clock, limits, out = [0.0], [], tmp_path / "gpu.json"
    monkeypatch.setattr(parts.time, "monotonic", lambda: clock[0])

    def isolated(words: list[str], seconds: float) -> dict[str, Any]:
        if limits:
            assert len(json.loads(out.read_text())["parts"]) == len(limits)
        limits.append((words[1], seconds))
        clock[0] += 50.0
        return {"error": "broken"} if len(limits) == 1 else {"wrong": ["x"]} if len(limits) == 2 else {}

    monkeypatch.setattr(script, "isolated", isolated)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda *_: "card")
    words = ["gpu", "--minutes", "5", "--corpus", "somewhere", "--out", str(out)]
    monkeypatch.setattr(sys, "argv", words)
    assert script.main() == 1
    names = [part.name for part in parts.PARTS]
    assert [name for name, _ in limits] == names[:6]
    assert [seconds for _, seconds in limits] == [
        min(p.seconds, 300 - 50 * i) for i, p in enumerate(parts.PARTS[:6])
    ]
    found = json.loads(out.read_text())["parts"]
    states = ["failed", "wrong", "done", "done", "done", "done", *["skipped"] * (len(names) - 5)]
    assert [part["status"] for part in found.values()] == states
    assert list(found) == [*names, parts.RECIPE]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit, match="needs a CUDA device"):
        script.main()


def test_the_recipe_writes_a_line_a_step(tmp_path: Path) -> None:
    words = runs.recipe_command(tmp_path, tmp_path / "runs", 90.0)
    first = words.index("--config")
    overrides = [word for word in words[first + 2 :] if "=" in word]
    settings = load(PretrainingSettings, ROOT / words[first + 1], overrides)
    assert settings.watching.log_every == 1 and settings.training.minutes == 1.5
    assert settings.training.compile and settings.folder == tmp_path / "runs" / "albert-base-en"


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_wait_for_the_device_raises_on_a_card() -> None:
    place = Place(False, 1)
    x = torch.ones(3, device="cuda")
    with pytest.raises(RuntimeError), place.never_waiting():
        x.nonzero()
    x.nonzero()  # and only there
    assert place.freed() >= 0 and place.peak_gb() > 0
