"""The table of mistakes that the suite is held against follows the source that they are made in."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import mutants
from benchmarks.mutants import MUTANTS, NOT_RUN, ROOT, Copy, Mutant, verdict


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: m.file)
def test_every_mistake_can_be_made_and_is_one(mutant: Mutant) -> None:
    text = (ROOT / "src" / "albertine" / mutant.file).read_text(encoding="utf-8")
    compile(mutant.made(text), mutant.file, "exec")
    assert mutant.made(text) != text


def test_no_mistake_is_made_twice() -> None:
    assert len({(mutant.file, mutant.before) for mutant in MUTANTS}) == len(MUTANTS) >= 40


@pytest.mark.parametrize(
    ("after", "tests", "by", "says"),
    [
        ("SUM = 3", "test_sums.py", "tests/test_sums.py::test_sum", "killed"),
        ("SUM = 1 + 1", "test_sums.py", "", "SURVIVED"),
        ("SUM = gone", "test_sums.py", "tests/test_sums.py", "killed"),
        ("SUM = 3", "test_sums.py -k renamed", f"{NOT_RUN} (pytest ended with 5)", "error"),
        ("SUM = 3", "test_gone.py", f"{NOT_RUN} (pytest ended with 4)", "error"),
    ],
)
def test_a_mistake_is_killed_by_a_test_that_was_run(
    after: str,
    tests: str,
    by: str,
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    source = tmp_path / "src" / "albertine" / "sums.py"
    (tmp_path / "tests").mkdir()
    source.parent.mkdir(parents=True)
    source.write_text("SUM = 2\n")
    test = f"exec(open({str(source)!r}).read())\ndef test_sum(): assert SUM == 2\n"
    (tmp_path / "tests" / "test_sums.py").write_text(test)
    monkeypatch.setattr(mutants, "NEEDED", ())
    with capfd.disabled():  # for the words of the pytest within
        seen = Copy(tmp_path).seen(Mutant("sums.py", "SUM = 2", after, f"tests/{tests}"))
    assert seen.startswith(by) and bool(seen) == bool(by) and verdict(seen, set()) == says
    assert source.read_text() == "SUM = 2\n"
    assert verdict("tests/test_sums.py::test_sum", {"tests/test_sums.py::test_sum"}) == "error"
