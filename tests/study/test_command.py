"""`albertine study` as a command: what it prints, its exit codes, and what it refuses."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from albertine.study import engines
from tests.cli.conftest import Command
from tests.cli.conftest import albertine as albertine  # the fixture
from tests.study.conftest import Here, Write


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> Here:
    """The engine of this process in place of both others."""
    engine = Here()
    monkeypatch.setattr(engines, "engine", lambda name, parallel: engine)
    return engine


@pytest.mark.pictures
def test_run_status_report(albertine: Command, here: Here, write: Write, data: Path, tmp_path: Path) -> None:
    file, where = write(), (f"--data={data}", f"--output={tmp_path / 'studies'}")
    assert albertine("study", "run", file, *where, "--dry-run").out.endswith(
        "4 cells with seeds: 1 corpus, 2 cost, 4 pretrain, 4 held out\n"
    )
    assert here.computed == []
    assert not (tmp_path / "studies").exists()
    waiting = json.loads(albertine("study", "status", file, *where, "--json").out)
    assert {one["state"] for one in waiting} == {"waiting"}
    assert (none := albertine("study", "report", file, *where)).code == 2
    assert "has no results yet" in none.err

    run = albertine("study", "run", file, *where)
    assert run.code == 0, run.err
    options = f"--output {tmp_path / 'studies'} --data '{data}'"
    assert f"Next: albertine study report {file} {options}\n" in run.out
    done = json.loads(albertine("study", "status", file, *where, "--json").out)
    assert [(one["cell"], one["seed"], one["state"]) for one in done] == [
        (f"sharing {sharing}", seed, "done") for sharing in ("all", "none") for seed in (1, 2)
    ]
    report = albertine("study", "report", file, *where)
    assert "sharing saves parameters" in report.out
    assert "holds" in report.out
    again = json.loads(albertine("study", "report", tmp_path / "studies/reports/toy.json", "--json").out)
    assert again["verdicts"][0]["verdict"] == "holds"
    assert str(tmp_path) not in (tmp_path / "studies/reports/toy.json").read_text(encoding="utf-8").replace(
        str(file), ""
    )


def test_settings_over_those_of_a_study(
    albertine: Command,
    write: Write,
    data: Path,
) -> None:
    found = albertine("study", "run", write(), "seeds=[3]", f"--data={data}", "--dry-run")
    assert found.out.endswith("2 cells with seeds: 1 corpus, 2 cost, 2 pretrain, 2 held out\n")


def test_a_study_that_does_not_exist(albertine: Command) -> None:
    found = albertine("study", "run", "shering")
    assert found.code == 2
    assert found.err.startswith("albertine: shering: there is no such study. Did you mean `sharing`?")


def test_an_unknown_setting(albertine: Command, write: Write, data: Path) -> None:
    found = albertine("study", "run", write(), "budgets.steps=3", f"--data={data}")
    assert found.code == 2
    assert "unknown setting `budgets`; did you mean `budget`?" in found.err


def test_without_ray(
    albertine: Command,
    write: Write,
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    output = tmp_path / "studies"
    found = albertine("study", "run", write(), f"--data={data}", f"--output={output}", "--engine=ray")
    assert found.code == 2
    assert found.err.count("\n") == 1
    assert "pip install 'albertine[ray]', or leave --engine ray out" in found.err
    assert not output.exists()


@pytest.mark.parametrize("address", ["nonsense", "127.0.0.1:1"])
def test_without_a_cluster(
    address: str,
    albertine: Command,
    write: Write,
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def init(address: str, **options: object) -> None:
        raise ValueError(f"invalid address {address}")

    ray = SimpleNamespace(is_initialized=lambda: False, init=init)
    monkeypatch.setitem(sys.modules, "ray", ray)
    monkeypatch.setenv("RAY_ADDRESS", address)
    output = tmp_path / "studies"
    found = albertine("study", "run", write(), f"--data={data}", f"--output={output}", "--engine=ray")
    assert found.code != 0
    assert found.err.count("\n") == 1
    assert f"Ray has no cluster at RAY_ADDRESS={address}" in found.err
    assert not output.exists()


def test_a_folder_of_another_study(
    albertine: Command,
    here: Here,
    write: Write,
    data: Path,
    tmp_path: Path,
) -> None:
    (tmp_path / "studies" / "toy").mkdir(parents=True)
    (tmp_path / "studies" / "toy" / "notes.txt").write_text("mine", encoding="utf-8")
    found = albertine("study", "run", write(), f"--data={data}", f"--output={tmp_path / 'studies'}")
    assert found.code == 2
    assert "holds something else than a study. Name another folder with --output" in found.err
    assert here.computed == []
