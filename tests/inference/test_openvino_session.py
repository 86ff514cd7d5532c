"""Exported OpenVINO graphs as models: shapes, threads, precisions, and what is refused."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from albertine import Predictor
from albertine.cli.app import run
from albertine.errors import ModelError, SettingsError
from albertine.export.openvino import converted, save
from albertine.inference.exported_model import ExportedModel
from tests.inference.exports import TEXTS, with_export

openvino = pytest.importorskip("openvino")
TOLERANCE = 1e-4
GRAPH = "openvino/openvino_model.xml"


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A classifier, and its export to OpenVINO alone."""
    source = with_export(tmp_path_factory)
    graph = tmp_path_factory.mktemp("openvino") / "graph"
    return source, shutil.copytree(source / "export", graph, ignore=shutil.ignore_patterns("onnx"))


@pytest.fixture
def graph(both: tuple[Path, Path], tmp_path: Path) -> Path:
    """A copy of the export, to damage."""
    return shutil.copytree(both[1], tmp_path / "graph")


def test_batching_changes_nothing(both: tuple[Path, Path]) -> None:
    """Catches: padding that is read, outputs that the next pass overwrites, a shape kept from the first."""
    texts = [*TEXTS, *reversed(TEXTS), "a"]
    wanted = Predictor(both[0], precision="float32").classify(texts)
    for tokens in (1, 20, 4096):
        found = Predictor(both[1], batch_tokens=tokens).classify(texts)
        for one, two in zip(wanted, found, strict=True):
            assert one == pytest.approx(two, abs=TOLERANCE)


def test_outputs_are_copies(both: tuple[Path, Path]) -> None:
    """Catches: arrays over a buffer that the next pass fills."""
    model = ExportedModel(both[1])
    first = model.run([[2, 5, 6, 3]], [[0] * 4])["logits"]
    kept = first.copy()
    model.run([[2, 7, 8, 3]], [[0] * 4])
    assert np.array_equal(first, kept)


def test_threads_at_once(both: tuple[Path, Path]) -> None:
    """Catches: one infer request that two threads fill."""
    predictor = Predictor(both[1])
    wanted = [predictor.classify([text]) for text in TEXTS]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(5):
            assert list(pool.map(lambda text: predictor.classify([text]), TEXTS)) == wanted


def test_a_signal_after_the_model_was_dropped(both: tuple[Path, Path]) -> None:
    """Catches: the stack for signal handlers that OpenVINO gives a thread on processors with AMX, freed by
    another thread with the last model."""
    program = """
import os, signal, sys, threading
from albertine import Predictor
predictors = [Predictor(sys.argv[1]), Predictor(sys.argv[1])]
signal.signal(signal.SIGTERM, lambda *_: print("handled"))
dropping = threading.Thread(target=predictors.clear)
dropping.start()
dropping.join()
os.kill(os.getpid(), signal.SIGTERM)
"""
    done = subprocess.run([sys.executable, "-c", program, both[1]], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "handled\n"), done.stderr


def test_onnx_is_the_default_where_both_are(both: tuple[Path, Path]) -> None:
    graphs = both[0] / "export"
    assert ExportedModel(graphs).graph.runtime == "onnx"
    assert ExportedModel(graphs, runtime="openvino").graph.file == graphs / GRAPH
    with pytest.raises(ModelError, match="no graph of onnx"):
        ExportedModel(both[1], runtime="onnx")


def test_the_commands_read_such_a_folder(both: tuple[Path, Path], tmp_path: Path, capsys: Any) -> None:
    source, graph = both
    table, output = tmp_path / "rows.jsonl", tmp_path / "answers.jsonl"
    table.write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS), encoding="utf-8")
    assert run(["predict", "classify", str(graph), "--file", str(table), "--output", str(output)]) == 0
    answers = [json.loads(line)["prediction"] for line in output.read_text(encoding="utf-8").splitlines()]
    assert answers == [row["prediction"] for row in Predictor(source, precision="float32").predict(TEXTS)]
    capsys.readouterr()


@pytest.mark.parametrize(
    ("suffix", "how"),
    [(".xml", "cut"), (".xml", "other"), (".bin", "cut"), (".bin", "empty"), (".bin", "gone")],
)
def test_a_damaged_file_is_refused(graph: Path, suffix: str, how: str) -> None:
    """Catches: a traceback of OpenVINO, weights that are read as zeros."""
    file = (graph / GRAPH).with_suffix(suffix)
    content = file.read_bytes()
    if how == "gone":
        file.unlink()
    else:
        file.write_bytes({"cut": content[: len(content) // 2], "empty": b"", "other": b"no graph"}[how])
    with pytest.raises(ModelError, match=r"openvino_model\.xml: .*export the model again"):
        Predictor(graph)


def test_a_graph_with_a_loop_is_refused(graph: Path) -> None:
    """Catches: a search of the outer graph alone."""
    onnx = pytest.importorskip("onnx")
    make, kinds = onnx.helper, onnx.TensorProto
    body = make.make_graph(
        [make.make_node("Identity", ["on"], ["goes_on"]), make.make_node("Add", ["x", "x"], ["y"])],
        "body",
        [
            make.make_tensor_value_info("i", kinds.INT64, []),
            make.make_tensor_value_info("on", kinds.BOOL, []),
            make.make_tensor_value_info("x", kinds.FLOAT, [1]),
        ],
        [
            make.make_tensor_value_info("goes_on", kinds.BOOL, []),
            make.make_tensor_value_info("y", kinds.FLOAT, [1]),
        ],
    )
    loop = make.make_node("Loop", ["", "true", "start"], ["end"], body=body)
    inputs = [
        make.make_tensor_value_info("true", kinds.BOOL, []),
        make.make_tensor_value_info("start", kinds.FLOAT, [1]),
    ]
    outputs = [make.make_tensor_value_info("end", kinds.FLOAT, [1])]
    model = make.make_model(make.make_graph([loop], "endless", inputs, outputs))
    onnx.save(model, graph / "loop.onnx")
    save(converted(graph / "loop.onnx"), graph / GRAPH)
    with pytest.raises(ModelError, match=r"openvino_model\.xml: has a loop"):
        Predictor(graph)


def test_without_openvino_the_error_names_what_to_install(both: tuple[Path, Path]) -> None:
    code = (
        "import sys; sys.modules['openvino'] = None; from albertine.cli.app import run; "
        "raise SystemExit(run(sys.argv[1:]))"
    )
    found = subprocess.run(
        [sys.executable, "-c", code, "predict", "classify", str(both[1]), "a text"],
        capture_output=True,
        text=True,
    )
    assert found.returncode == 2 and "pip install 'albertine[openvino]'" in found.stderr
    assert "Traceback" not in found.stderr


def test_an_accelerator_is_refused(both: tuple[Path, Path]) -> None:
    with pytest.raises(SettingsError, match="on the processor, not on `cuda`"):
        Predictor(both[1], device="cuda")
