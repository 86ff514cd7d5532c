"""Benchmarks report what was measured, under its own name."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from albertine.bench import batches
from albertine.bench.interleaved import compete
from albertine.inference.windows import WindowSettings
from albertine.model.presets import preset
from benchmarks import learned, memories, objectives, recall, release, table
from benchmarks.gpu.__main__ import saved_as
from benchmarks.intervals import interval
from benchmarks.vectors import pairs_of

ROOT = Path(__file__).parents[2]


def test_a_run_is_judged_by_held_out_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not from the last lines of its training, which have the same names."""
    rows = [
        {"step": 9, "mlm_loss": 9.0, "mlm_accuracy": 0.9, "tokens": 5},
        {"step": 9, "evaluation": {"mlm_loss": math.log(2), "mlm_accuracy": 0.25}, "elapsed": 2.0},
    ]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    monkeypatch.setattr(objectives, "albertine", lambda *_: '{"parameters": {"encoder": 1}}')
    monkeypatch.setattr(objectives, "open_pretrained", lambda _: None)
    monkeypatch.setattr(objectives, "scores_of", lambda *_: (0.0, 0.0))
    windows: Any = None
    found = objectives.judged(tmp_path, windows)
    assert found["accuracy"] == 25 and found["bits"] == pytest.approx(1)


def test_no_time_is_compared_with_a_peer_that_learned_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table, "save_curves", lambda *_, **__: None)
    row = {"step": 1, "mlm_accuracy": 0.1, "sentence_accuracy": 0.5}
    ours = {
        "albertine": [row | {"minutes": 1.0, "mlm_loss": 7.0}],
        **{"minutes": 30, "batch": 32, "length": 64, "learning_rate": 1e-3, "training_tokens": 9},
        "unigram_baseline": {"mlm_loss": 7.373, "mlm_accuracy": 0.04},
        "date": "2026-01-01",
    }
    theirs = {"curve": [row | {"minutes": 30.0, "mlm_loss": 7.372}], "date": "2026-01-01"}
    for who, figures in (("albertine", ours), ("transformers", theirs)):
        (tmp_path / f"2026-01-01-pretraining-en-{who}.json").write_text(json.dumps(figures))
    text = "".join(table.pretraining(tmp_path, "en"))
    assert "of the time" not in text and "log frequencies" in text


def test_tables_of_tuning_name_their_model(tmp_path: Path) -> None:
    record = {"model": "albertine-small-en", "contestants": ["model"], "tasks": {"sts-b": {}}}
    (tmp_path / "2026-01-01-tuned-en.json").write_text(json.dumps(record))
    (tmp_path / "2026-01-01-tuned-en.md").write_text("table")
    text = "".join(learned.tuned(tmp_path))
    assert "benchmarks.tuned albertine-small-en --contestants model --tasks sts-b" in text


def test_libraries_are_loaded_before_the_clock() -> None:
    if find_spec("datasets") is None or find_spec("transformers") is None:
        pytest.skip("datasets and transformers are not installed")
    code = (
        "import sys; from pathlib import Path; from benchmarks import encoding as e\n"
        "seen = []\n"
        "ask = lambda x, s: seen.append('datasets' in sys.modules) or 0\n"
        "e.VARIANTS['race, transformers'] = (lambda s: [], ask)\n"
        "e.measure('race, transformers', Path(), None); assert seen == [True]"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


def test_a_part_does_not_take_the_place_of_the_whole() -> None:
    assert saved_as(None) == "gpu" and saved_as(["encoding"]) == "gpu-part"
    assert saved_as(["passes of training as graphs"]) == "gpu-graphs"
    assert saved_as(["agreement", "every kind of model"]) == "gpu-checks"


def test_slow_batches_are_seen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    part = SimpleNamespace(packed=SimpleNamespace(num_tokens=100))

    def slow(*_: Any) -> Any:
        while True:
            time.sleep(0.05)
            yield [part]

    monkeypatch.setattr(batches, "_batches", slow)
    monkeypatch.setattr(batches, "learn", lambda *_: time.sleep(0.01))
    monkeypatch.setattr(batches, "load_since", lambda *_: {"quiet": True, "others_busy": 0.0})
    found = batches.measure(tmp_path, preset("albert-tiny-zh"), seconds=0.5, workers=(0,), threads=1)
    assert found["ratio"] < 1


def test_scores_are_kept_of_the_same_weights_alone(tmp_path: Path) -> None:
    for name, value in (("a", 1.0), ("b", 1.0), ("c", 2.0)):
        (tmp_path / name).mkdir()
        save_file({"w": torch.full((2,), value)}, tmp_path / name / "model.safetensors")
    assert release.same_weights(tmp_path / "a", tmp_path / "b")
    assert not release.same_weights(tmp_path / "a", tmp_path / "c")


def test_patience_is_of_one_run() -> None:
    """Not of a run together with its warm-up run."""
    ways = {"a": lambda: time.sleep(0.12), "b": lambda: time.sleep(0.8)}
    assert set(compete(ways, 1, 2, patience=10).times) == {"a", "b"}


def test_any_number_of_values_has_an_interval() -> None:
    assert all(interval([1.0, 2.0] * n)[1] > 0 for n in range(1, 20))
    assert interval([1.0, 2.0])[1] == pytest.approx(12.71 * 0.5)


def test_a_busy_machine_leaves_a_ratio_out(tmp_path: Path) -> None:
    runs = {"transformer-xl float32": {"median_ms": 2.0}, "albertine float32": {"median_ms": 1.0}}
    record = {"date": "2026-01-01", "speed": {"runs": runs, "ratios": {}}}
    (tmp_path / "2026-01-01-transformer-xl.json").write_text(json.dumps(record))
    assert "| albertine float32 | 1 |  |" in "".join(memories.transformer_xl(tmp_path))


def test_vectors_are_judged_by_the_scores_of_pairs(tmp_path: Path) -> None:
    (tmp_path / "dev.tsv").write_text("一\t二\t1\n三\t四\t0\n", encoding="utf-8")
    assert [pair.label for pair in pairs_of("lcqmc", tmp_path)] == [1, 0]


def test_a_best_epoch_is_named_as_such(tmp_path: Path) -> None:
    row = {"score": 0.5, "first_epoch": 0.4, "seconds_an_epoch": 1.0}
    record = {"settings": {"epochs": 4, "seeds": 3}, "median": {"shared": row}}
    (tmp_path / "2026-01-01-unsharing-x.json").write_text(json.dumps(record))
    assert "best by dev" in "".join(table.unsharing(tmp_path))


def test_the_peer_answers_as_long_as_we_do() -> None:
    peer = pytest.importorskip("benchmarks.peer_finetuning")
    task = SimpleNamespace(family=SimpleNamespace(reading=WindowSettings(stride=40, longest=50)))
    assert peer.Answers(task).reading.longest == 50
    assert peer.Answers(task).overlap(128) == 128 - 3 - 16 - 40


def test_a_worse_task_is_reported_with_its_interval(tmp_path: Path) -> None:
    runs = [{"albertine": a, "transformers": t} for a, t in ((0.65, 0.66), (0.66, 0.68))]
    record = {"runs": {"sst-2": runs, "mrpc": [{"albertine": 0.7, "transformers": 0.7}] * 2}}
    (tmp_path / "2026-01-01-xlnet-tasks.json").write_text(json.dumps(record))
    text = "".join(memories.tasks(tmp_path))
    assert "| sst-2 | 65.0, 66.0 | 66.0, 68.0 | -1.50 ± 6.36 |" in text and "| mrpc |" in text


def test_the_curve_of_a_loop_is_printed(tmp_path: Path) -> None:
    right = {"symbols": 1.0, "sequences": 1.0}
    run = {"task": "copy", "encoder": "plain", "parameters": 5, "short": right, "long": right}
    record = {"depth": 4, "steps": 8, "runs": [run | {"curve": [{"loss": 2.3}, {"loss": 0.25}]}]}
    (tmp_path / "2026-01-01-universal-copy.json").write_text(json.dumps(record))
    assert "2.30 0.25 |" in "".join(learned.loops(tmp_path))


def test_a_memory_is_learned_without_its_control_and_the_curve_is_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept: list[Any] = []
    monkeypatch.setattr(recall, "keep", lambda _, result: kept.append(result))
    monkeypatch.setattr(recall, "right", lambda *_: 0.5)
    words = ["--steps", "200", "--depths", "1", "--longest", "2", "--without-control", "--save"]
    monkeypatch.setattr(recall, "texts", partial(small, recall.texts))
    monkeypatch.setattr(sys, "argv", ["recall", *words])
    recall.main()
    (run,) = kept[0]["runs"]
    assert run["memory"] == recall.SEGMENT and [point["step"] for point in run["curve"]] == [200]


def small(texts: Any, count: int, *given: Any) -> Any:
    """With fewer texts in an update."""
    return texts(min(count, 2), *given)
