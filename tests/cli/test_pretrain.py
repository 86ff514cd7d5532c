"""What `albertine pretrain` prints at the end of a run."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from tests.cli.conftest import Command
from tests.toy import RUN, toy_corpus

TINY = "model.preset=albert-tiny-zh"
CAUSAL = [TINY, "model.change.positions=relative", "objective.kind=causal", "objective.pairs=none"]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toy_corpus(tmp_path_factory.mktemp("a home"))


def pretrain(albertine: Command, corpus: Path, output: Path, *words: str) -> str:
    run = ("name=toy", f"output={output}", f"corpus={corpus}", *RUN, *words)
    told = albertine("pretrain", *run)
    assert told.code == 0, told.err
    return told.out


@pytest.mark.parametrize("words", [[TINY], CAUSAL])
def test_the_next_command_can_be_given(
    albertine: Command, corpus: Path, tmp_path: Path, words: list[str]
) -> None:
    told = pretrain(albertine, corpus, tmp_path / "some runs", *words)
    (line,) = [line for line in told.splitlines() if line.startswith("Next: albertine ")]
    following = albertine(*shlex.split(line.removeprefix("Next: albertine ")))
    assert following.code == 0, following.err


def test_the_level_of_a_coin_is_told_where_sentences_are_judged(
    albertine: Command, corpus: Path, tmp_path: Path
) -> None:
    assert "sentence_accuracy 0.500" in pretrain(albertine, corpus, tmp_path / "pairs", TINY)
    assert "sentence_accuracy" not in pretrain(
        albertine, corpus, tmp_path / "none", TINY, "objective.pairs=none"
    )
