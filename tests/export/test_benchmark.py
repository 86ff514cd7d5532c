"""The page of docs/results about exports, from a result as `benchmarks.exports` keeps it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from albertine.errors import ModelError
from albertine.export.export_model import Exported
from albertine.export.formats import ExportOptions, check_options, format_of
from benchmarks import exports
from benchmarks.exported import exported, foreign, missing_torch_error

RESULT = {
    "rounds": 3,
    "threads": 2,
    "models": {
        "albert-base-v2": {
            "weights": 46_735_416,
            "files": {
                "export int8": {"bytes": 11_822_732, "products": 98, "quantised": 74, "refused": "why"},
                "export float32": {"bytes": 46_748_550},
            },
            "shapes": {
                "single": {
                    "sequences": 1,
                    "longest": 128,
                    "fill": 1.0,
                    "quiet": False,
                    "runs": {"export int8": {"median_ms": 27.71, "least_cosine": 0.99971}},
                    "ratios": {"export int8 / transformers float32": 5.69},
                }
            },
            "left_out": {},
        }
    },
}


def test_the_page_lists_sizes_shares_and_ratios(tmp_path: Path) -> None:
    assert "".join(exported(tmp_path)) == ""
    (tmp_path / "2026-11-23-exports.json").write_text(json.dumps(RESULT))
    page = "".join(exported(tmp_path))
    assert "| export int8 | 11.8 | 74 of 98, refused |" in page and "| export float32 | 46.7 |  |" in page
    assert "| export int8 | 27.7 | 0.9997 |" in page and "BUSY" in page
    assert "| export int8 / transformers float32 | 5.69 |" in page


@pytest.mark.matrix
def test_every_format_takes_part(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Catches: latencies of ONNX alone; an 8-bit export that is refused and then not measured at all."""
    calls: list[tuple[Any, Any]] = []

    def exported(folder: Path, out: Path, to: list[str], *, head: str, options: ExportOptions) -> Any:
        calls.append((to, options))
        if to == ["openvino"] and options.int8:
            raise ModelError("is another model")
        files = {"onnx": "onnx/model.onnx", "openvino": "openvino/openvino_model.xml", "torch": "model.pt2"}
        entry = {"layout": "padded", "bytes": 1, "greatest_difference": 0.0, "least_cosine": 1.0}
        return Exported(out, {"files": {files[to[0]]: entry | {"precision": "float32"}}}, [])

    monkeypatch.setattr(exports, "export", exported)
    monkeypatch.setattr(exports, "_in_8_bits", lambda *of: (tmp_path / "refused.xml", {"quantised": 7}))
    monkeypatch.setattr(exports, "_way", lambda *of: lambda given: torch.zeros(1))
    ways, record = exports.exports(tmp_path, tmp_path, 1)
    names = {f"export {name} float32" for name in ("ONNX", "OpenVINO", "torch")}
    assert ways.keys() == record.keys() == names | {"export OpenVINO int8"}
    assert record["export OpenVINO int8"] == {"bytes": 0, "quantised": 7, "refused": "is another model"}
    assert [to for to, _ in calls] == [["onnx"], ["openvino"], ["openvino"], ["torch"]]
    for to, options in calls:
        check_options(options, {name: format_of(name) for name in to})
        assert all(file.is_file() for file in options.sample)


def test_the_page_lists_outputs_of_other_programs(tmp_path: Path) -> None:
    row = {"runtime": "llama.cpp", "model": "bert", "answers": "features", "difference": 1.2e-6}
    compared = [{**row, "same_tokens": same} for same in (True, False)]
    (tmp_path / "2026-11-23-foreign-runtimes.json").write_text(
        json.dumps({"versions": {"optimum.version": "2.1"}, "note": "So it was.", "compared": compared})
    )
    page = "".join(foreign(tmp_path))
    assert "| llama.cpp | bert | features | 1e-06 | the same |" in page and "| OTHERS |" in page
    assert "Used: optimum 2.1. So it was." in page


def test_the_page_lists_every_package_and_those_never_imported(tmp_path: Path) -> None:
    packages = {"numpy": [57.4, 14.0], "rich": [1.3, 1.4], "tqdm": [0.2, 0.3], "h11": [0.1, 0.1]}
    sizes = {"without caches": 59.0, "with caches": 74.8, "packages": packages, "never imported": ["rich"]}
    result = {"megabytes": sizes, "seconds_to_first_answer": {"torch": 2.0, "no torch": 0.5}}
    result["greatest_difference"] = {"single": 1e-6}
    (tmp_path / "2026-11-23-torch-free.json").write_text(json.dumps(result))
    page = "".join(missing_torch_error(tmp_path))
    assert "has 59 MB of packages, 75 with their bytecode" in page and "imports 3 of them never" in page
    assert "| rich | 1.3 | 1.4 | no |" in page and "| others | 0.3 | 0.4 |  |" in page
