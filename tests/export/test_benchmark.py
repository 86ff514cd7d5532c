"""The page of docs/performance.md about exports, from a result as `benchmarks.exports` keeps it."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.exported import exported

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


def test_the_page_tells_sizes_shares_and_ratios(tmp_path: Path) -> None:
    assert "".join(exported(tmp_path)) == ""
    (tmp_path / "2026-11-23-exports.json").write_text(json.dumps(RESULT))
    page = "".join(exported(tmp_path))
    assert "| export int8 | 11.8 | 74 of 98, refused |" in page and "| export float32 | 46.7 |  |" in page
    assert "| export int8 | 27.7 | 0.9997 |" in page and "BUSY" in page
    assert "| export int8 / transformers float32 | 5.69 |" in page
