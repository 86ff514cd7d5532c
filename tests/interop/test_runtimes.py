"""Which runtime computes a model with an export beside its weights, and what `albertine doctor` records."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from albertine import Predictor
from albertine.cli.app import run
from albertine.errors import ModelError, SettingsError
from albertine.export.export_model import export
from albertine.inference.exported_model import ExportedModel
from albertine.interop import runtimes
from albertine.interop.runtimes import Timed, record, resolve_runtime
from tests.inference.exports import TEXTS, tuned, with_export

pytest.importorskip("openvino")


@pytest.fixture
def folder(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: Any) -> Iterator[Path]:
    """A classifier with its export beside it, and a cache of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    yield shutil.copytree(with_export(tmp_path_factory), tmp_path / "model")


def measured(folder: Path, **seconds: float) -> None:
    """Record that float32 took so long in each runtime."""
    ways = [Timed(name, "float32", True, {"one text": time}) for name, time in seconds.items()]
    record(folder, runtimes.export_of(folder) or folder, ways, {})


def runtime_of(predictor: Predictor) -> str:
    return predictor.model.graph.runtime if isinstance(predictor.model, ExportedModel) else "torch"


def test_doctor_measures_and_records(folder: Path, capsys: Any) -> None:
    """Catches: a measurement of one way under the names of all, a default that changes with a record."""
    before = sorted((path, path.stat().st_mtime_ns) for path in folder.rglob("*"))
    assert run(["doctor", str(folder), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)[str(folder)]["runtimes"]
    ways = {way["way"]: way for way in found["ways"]}
    assert {"torch float32", "onnx float32", "openvino float32"} <= ways.keys()
    for name, way in ways.items():
        assert way["milliseconds"].keys() == {"one text", "mixed lengths", "full batch"}
        # Random weights: of eight texts one may lie so near the limit that rounding to 8 or 16 bits decides.
        assert way["speed"] > 0 and way["same"] >= (1 if name.endswith("float32") else 0.75)
    assert 0 < ways["openvino float32"]["greatest_difference"] < 1e-4
    assert sorted((path, path.stat().st_mtime_ns) for path in folder.rglob("*")) == before
    assert Path(found["recorded"]).is_file()
    chosen = found["fastest"]["float32"]
    auto = Predictor(folder, precision="float32", runtime="auto")
    assert runtime_of(auto) == chosen and runtime_of(Predictor(folder)) == "torch"
    fastest = min(("torch", "onnx", "openvino"), key=lambda name: -ways[f"{name} float32"]["speed"])
    assert chosen in (fastest, "torch")  # torch where the gain is small


def test_the_record_decides(folder: Path) -> None:
    default = Predictor(folder, precision="float32")
    wanted = default.classify(TEXTS)
    for slow in ({"torch": 2.0, "onnx": 1.5, "openvino": 1.0}, {"torch": 2.0, "onnx": 1.0, "openvino": 1.5}):
        measured(folder, **slow)
        predictor = Predictor(folder, runtime="auto")
        assert runtime_of(predictor) == min(slow, key=lambda name: slow[name])
        for one, two in zip(predictor.classify(TEXTS), wanted, strict=True):
            assert one == pytest.approx(two, abs=1e-4)
        assert predictor.fingerprint != default.fingerprint
        assert runtime_of(Predictor(folder)) == "torch"
    measured(folder, torch=1.0, onnx=0.97, openvino=1.2)
    assert runtime_of(Predictor(folder, runtime="auto")) == "torch"  # a gain within the noise


def test_without_a_record_nothing_changes(folder: Path, monkeypatch: Any) -> None:
    """None at all; one of another processor; a damaged one."""
    assert resolve_runtime(folder, "auto") == (folder, None)
    measured(folder, torch=2.0, openvino=1.0)
    assert resolve_runtime(folder, "auto") == (folder / "export", "openvino")
    assert resolve_runtime(folder, "auto", device="cuda") == (folder, None)
    assert resolve_runtime(folder, "auto", "int8") == (folder, None)
    with monkeypatch.context() as other:
        other.setattr(runtimes, "cpu_name", lambda: "another processor")
        assert resolve_runtime(folder, "auto") == (folder, None)
    with monkeypatch.context() as missing:
        missing.setitem(runtimes.MODULES, "openvino", "a_module_that_is_not_installed")
        assert resolve_runtime(folder, "auto") == (folder, None)
    file = runtimes.record_file(folder, folder / "export")
    for damaged in ("", "[]", '{"version": 1}', '{"version": 1, "ways": [{"runtime": 1}]}'):
        file.write_text(damaged)
        assert resolve_runtime(folder, "auto") == (folder, None)


def test_a_stale_export_is_refused(folder: Path, tmp_path: Path) -> None:
    """Catches: graphs of the weights before another training."""
    measured(folder, torch=2.0, openvino=1.0)
    other = tuned("multi", tmp_path / "other")
    shutil.copy(other / "config.json", folder / "config.json")
    for runtime in ("auto", "onnx", "openvino"):
        with pytest.raises(ModelError, match=r"other weights .*albertine export .* --overwrite"):
            Predictor(folder, runtime=runtime)  # type: ignore[arg-type]
    assert run(["doctor", str(folder)]) == 2
    assert runtime_of(Predictor(folder)) == "torch"


def test_a_graph_of_other_weights_is_left_out(folder: Path, capsys: Any) -> None:
    """Its export.json fits, and its predictions do not. Catches: a comparison of a way with itself."""
    onnx = pytest.importorskip("onnx")
    file = folder / "export" / "onnx" / "model.onnx"
    graph = onnx.load(file)
    (bias,) = (x for x in graph.graph.initializer if x.name.endswith("classifier.bias"))
    changed = onnx.numpy_helper.to_array(bias) + np.array([90, 0, -90], dtype=np.float32)
    bias.CopyFrom(onnx.numpy_helper.from_array(changed, bias.name))
    onnx.save(graph, file)
    assert run(["doctor", str(folder), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)[str(folder)]["runtimes"]
    assert "other predictions" in found["left_out"]["onnx float32"]
    assert "openvino float32" in {way["way"] for way in found["ways"]}


def test_an_exported_folder_alone(folder: Path, tmp_path: Path, capsys: Any) -> None:
    graphs = shutil.copytree(folder / "export", tmp_path / "graphs")
    assert run(["doctor", str(graphs)]) == 0
    printed = capsys.readouterr().out
    assert "whose graphs open (onnx float32, openvino float32)" in printed and "recorded: " in printed
    measured(graphs, onnx=2.0, openvino=1.0)
    assert runtime_of(Predictor(graphs, runtime="auto")) == "openvino"
    assert runtime_of(Predictor(graphs)) == "onnx"
    with pytest.raises(SettingsError, match="exported graph, which torch does not compute"):
        Predictor(graphs, runtime="torch")
    (graphs / "openvino" / "openvino_model.bin").write_bytes(b"")
    assert run(["doctor", str(graphs)]) == 2


def test_a_cache_that_cannot_be_written(folder: Path, tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert run(["doctor", str(folder)]) == 0
    assert "not recorded" in capsys.readouterr().err
    assert runtime_of(Predictor(folder, runtime="auto")) == "torch"


def test_requests_that_cannot_be_met(folder: Path, tmp_path: Path) -> None:
    bare = shutil.copytree(folder, tmp_path / "bare", ignore=shutil.ignore_patterns("export"))
    assert runtime_of(Predictor(bare, runtime="auto")) == "torch"
    with pytest.raises(ModelError, match=r"no export beside it .*albertine export .* --to openvino"):
        Predictor(bare, runtime="openvino")
    with pytest.raises(SettingsError, match="no runtime `tvm`"):
        Predictor(bare, runtime="tvm")  # type: ignore[arg-type]
    with pytest.raises(SettingsError, match=r"no folder of yours.*albertine-mini-en OUT"):
        export("albertine-mini-en")


def test_the_command_takes_a_runtime(folder: Path, capsys: Any) -> None:
    words = ["predict", "classify", str(folder), "the old man", "--json"]
    printed = []
    for runtime in ("torch", "onnx", "openvino", "auto"):
        assert run([*words, "--precision", "float32", "--runtime", runtime]) == 0
        printed.append(json.loads(capsys.readouterr().out)["classes"])
    assert all(one == pytest.approx(printed[0], abs=1e-4) for one in printed)
    assert printed[1] != printed[0]  # the digits of another program
    assert run([*words, "--runtime", "tvm"]) == 2
