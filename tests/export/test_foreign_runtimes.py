"""`benchmarks.foreign_runtimes` as far as it runs without the other programs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import foreign_runtimes as foreign

OURS = [np.array([[0.5, 1.0]]), np.array([[2.0, 3.0], [0.0, 1.0]])]


def test_differences() -> None:
    """Catches: the last text alone, a mean, other shapes taken for the same, logits beside chances."""
    theirs = [one.tolist() for one in OURS]
    assert foreign.difference(theirs, OURS, "features") == 0
    theirs[0][0][1] += 0.25
    assert foreign.difference(theirs, OURS, "features") == 0.25
    assert foreign.difference([one[:1] for one in theirs], OURS, "features") == np.inf
    even = [np.array([0.5, 0.5])]
    assert foreign.difference([[3.0, 3.0]], even, "classify") == 0


def test_other_tokens_are_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    questions: list[Any] = []

    def answers_of(python: str, driver: str, given: list[Any], libraries: str | None = None) -> list[Any]:
        questions.extend(given)
        ids = foreign.saved.tokenizer()([*foreign.TEXTS])["input_ids"]
        right = [[[i for i in row if i], [0.0]] for row in ids]
        return [right] * (len(given) - 1) + [[[[7], [1.0]]] * len(right)]

    ours = [np.zeros(1)] * len(foreign.TEXTS)
    monkeypatch.setattr(foreign, "answers_of", answers_of)
    monkeypatch.setattr(foreign, "made", lambda folder, *case: (folder, ours))
    *found, last = foreign.of_llama("python", tmp_path, None)
    assert all((one.difference, one.same_tokens) == (0, True) for one in found) and len(found) == 9
    assert last.same_tokens is False and last.answers == "classify"
    assert [one["each"] for one in questions] == [one.answers == "features" for one in (*found, last)]


def test_our_own_side_of_every_question(tmp_path: Path) -> None:
    """The requests to llama.cpp are written, and our answers are one per text; catches: a kind whose changes
    are those of another block, a head that the folder does not have."""
    for i, answers in enumerate(("features", "embed cls", "classify")):
        out, ours = foreign.made(tmp_path / str(i), "bert", answers, "gguf")
        assert (out / "model.gguf").is_file() and len(ours) == len(foreign.TEXTS)
    assert np.allclose([one.sum() for one in ours], 1)


def test_what_is_not_there_is_passed_over(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    nowhere = str(tmp_path / "python")
    monkeypatch.setattr(sys, "argv", ["foreign_runtimes", "--llama", nowhere, "--onnx", nowhere, "--save"])
    foreign.main()
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in lines] == [
        "llama.cpp",
        "sentence-transformers and optimum-onnx",
    ]
    assert all("passed over" in line and "No such file" in line for line in lines)
    assert "albertine_of_nowhere" in str(foreign.lacking(sys.executable, "albertine_of_nowhere"))
    assert foreign.lacking(sys.executable, "numpy") is None


def test_a_program_that_fails_is_no_agreement(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"run_llama\.py: .*"):
        foreign.answers_of(sys.executable, "run_llama.py", [{"file": "nowhere"}])
