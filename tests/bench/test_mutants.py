"""The table of mistakes that the suite is held against follows the source that they are made in."""

from __future__ import annotations

import pytest

from benchmarks.mutants import MUTANTS, ROOT, Mutant


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: m.file)
def test_every_mistake_can_be_made_and_is_one(mutant: Mutant) -> None:
    text = (ROOT / "src" / "albertine" / mutant.file).read_text(encoding="utf-8")
    compile(mutant.made(text), mutant.file, "exec")
    assert mutant.made(text) != text


def test_no_mistake_is_made_twice() -> None:
    assert len({(mutant.file, mutant.before) for mutant in MUTANTS}) == len(MUTANTS) >= 40
