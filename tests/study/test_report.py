"""The report is made from one small file; its numbers are those of the file."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import albertine
from albertine.core.files import write_json
from albertine.errors import DataError
from albertine.study.results import compared
from albertine.study.study_report import write_study_report

CELLS = {
    "sharing all": {"1": (0.20, 3.0), "2": (0.21, 3.1), "3": (0.19, 2.9)},
    "sharing none": {"1": (0.25, 2.5), "2": (0.26, 2.7), "3": (0.24, 2.4)},
}


def results(**changes: Any) -> dict[str, Any]:
    """Results made up by hand."""
    both = {"of": {"sharing": "none"}, "minus": {"sharing": "all"}}
    return {
        "format": 1,
        "study": "toy",
        "scale": "two-core",
        "title": "Does sharing <cost> anything?",
        "source": {"paper": "Lan et al.", "table": "Table 4", "note": "", "columns": ["sharing", "avg"],
                   "rows": [["all", 80.1], ["none", None]]},
        "budget": {"steps": 8, "minutes": None},
        "judged": {"tasks": {}},
        "conclusions": [
            {"claim": "it costs accuracy", "metric": "mask_accuracy", "expected": "greater", **both},
            {"claim": "it costs nothing | here", "metric": "mask_accuracy", "expected": "equal",
             "within": 0.01, **both},
            {"claim": "it is above chance", "metric": "sop_accuracy", "of": "sharing all", "minus": 0.5,
             "expected": "greater"},
        ],
        "notes": ["a remark"],
        "corpora": [{"text": ["text"], "documents": 10, "tokens": 12345, "vocabulary": 500}],
        "cells": [
            {
                "name": name,
                "at": {"sharing": name.split()[1]},
                "changes": {},
                "seeds": {
                    seed: {"scores": {"mask_accuracy": right, "mask_loss": loss, "steps": 8}, "facts": {},
                           "curve": [[4, loss + 1], [8, loss]]}
                    for seed, (right, loss) in seeds.items()
                },
            }
            for name, seeds in CELLS.items()
        ],
        "missing": [{"cell": "sharing all", "seed": 4, "state": "failed", "reason": "its process died"}],
        "machines": [{"cpu": "a processor", "cores": 2, "gpu": None, "python": "3.11.2",
                      "hardware": "2-core-x", "threads": 1,
                      "versions": {"albertine": "0.1.0", "torch": "2.13.0"}}],
        "first": "2026-11-30T10:00:00+00:00",
        "last": "2026-11-30T11:00:00+00:00",
        "hours": 0.5,
        "command": "albertine study run toy",
        **changes,
    }  # fmt: skip


def test_differences_are_paired_by_seed() -> None:
    costs, nothing, chance = compared(results())
    assert costs.difference is not None
    assert costs.difference.mean == pytest.approx(0.05)
    assert costs.difference.high == pytest.approx(
        0.05, abs=1e-9
    )  # 0.05 for every seed: the interval is a point
    assert (costs.verdict, nothing.verdict, chance.verdict) == ("holds", "does not hold", "not decided")
    assert chance.difference is None


def test_a_seed_counts_where_both_sides_have_it() -> None:
    tree = results()
    del tree["cells"][0]["seeds"]["3"]
    tree["cells"][1]["seeds"]["2"]["scores"]["mask_accuracy"] = 0.30
    (costs, *_) = compared(tree)
    assert costs.difference is not None
    assert costs.difference.seeds == 2
    assert costs.difference.mean == pytest.approx((0.05 + 0.09) / 2)
    # 12.7062 · s / √2 with s = 0.04 / √2
    assert costs.difference.low == pytest.approx(0.07 - 12.7062 * 0.02, abs=1e-6)
    assert costs.verdict == "not decided"


def test_the_mean_of_tasks_and_of_several_cells() -> None:
    tree = results(judged={"tasks": {"a": {}, "b": {}, "c": None}})
    for cell in tree["cells"]:
        cell["seeds"] = {
            "1": {"scores": {"a": 0.5, "b": 0.7 if cell["name"].endswith("none") else 0.6}, "facts": {}}
        }
    tree["conclusions"] = [
        {"claim": "c", "metric": "tasks", "of": {}, "minus": 0.5, "expected": "greater", "threshold": 0.05}
    ]
    (one,) = compared(tree)
    assert one.difference is not None
    assert one.difference.mean == pytest.approx((0.55 + 0.6) / 2 - 0.5)
    assert one.verdict == "holds"


@pytest.mark.pictures
def test_the_report_is_made_from_the_file_alone(tmp_path: Path) -> None:
    file = tmp_path / "toy.json"
    write_json(file, results())
    found = albertine.study.report(file)
    report = Path(found["report"]).read_text(encoding="utf-8")
    compared = "| it costs accuracy | [MASK] right, % | sharing none − sharing all | > 0 |"
    assert f"{compared} +5.0 (+5.0 to +5.0, 3 seeds) |" in report
    assert "| it costs nothing \\| here |" in report
    assert "| sharing all | 3 | 20.0 ± 2.5 | 3.000 ± 0.248 |" in report
    assert "| none | – |" in report
    assert "its process died" in report
    assert "albertine study run toy" in report
    for picture in re.findall(r"\]\((pictures/[^)]+)\)", report):
        assert (tmp_path / picture).read_text(encoding="utf-8").lstrip().startswith("<?xml")
    assert json.loads(file.read_text(encoding="utf-8")) == results()

    page = Path(found["page"]).read_text(encoding="utf-8")
    assert "Does sharing &lt;cost&gt; anything?" in page
    assert page.count("<svg") >= 2
    assert not re.search(r'(?:src|href)="(?!#)', page)

    before = {path.name: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    albertine.study.report(file)
    assert {path.name: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


@pytest.mark.pictures
def test_the_index_lists_all_verdicts_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "foreign.json").write_text('{"format": 1}', encoding="utf-8")
    write_study_report(results(), tmp_path)
    write_study_report(results(study="other", scale="gpu", title="Another"), tmp_path)
    index = (tmp_path / "index.md").read_text(encoding="utf-8")
    assert "Of 6 conclusions 2 hold, 2 do not, and 2 are not decided at this scale." in index
    assert (
        "| [other](other-gpu.md) | gpu | it costs accuracy | +5.0 (+5.0 to +5.0, 3 seeds) | **holds** |"
        in index
    )
    assert "| [toy](toy.md) | two-core |" in index


def test_what_has_no_results_is_refused(tmp_path: Path) -> None:
    empty = results()
    for cell in empty["cells"]:
        cell["seeds"] = {}
    with pytest.raises(DataError, match="has no results yet"):
        write_study_report(empty, tmp_path / "reports")
    assert not (tmp_path / "reports").exists()
    (tmp_path / "x.json").write_text("{}", encoding="utf-8")
    with pytest.raises(DataError, match="holds no results of a study"):
        albertine.study.report(tmp_path / "x.json")
