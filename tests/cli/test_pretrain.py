"""What `albertine pretrain` prints, and what it warns of."""

from __future__ import annotations

import re
import shlex
import shutil
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
    outcome = albertine("pretrain", *run)
    assert outcome.code == 0, outcome.err
    return outcome.out


@pytest.mark.parametrize("words", [[TINY], CAUSAL])
def test_the_next_command_can_be_given(
    albertine: Command, corpus: Path, tmp_path: Path, words: list[str]
) -> None:
    output = pretrain(albertine, corpus, tmp_path / "some runs", *words)
    (line,) = [line for line in output.splitlines() if line.startswith("Next: albertine ")]
    following = albertine(*shlex.split(line.removeprefix("Next: albertine ")))
    assert following.code == 0, following.err


def test_the_baseline_is_reported_where_sentences_are_judged(
    albertine: Command, corpus: Path, tmp_path: Path
) -> None:
    output = pretrain(albertine, corpus, tmp_path / "pairs", TINY)
    assert re.search(r"without skill .*, sentence_accuracy (0\.[5-9]|1\.)", output)
    assert "sentence_accuracy" not in pretrain(
        albertine, corpus, tmp_path / "none", TINY, "objective.pairs=none"
    )


@pytest.mark.parametrize(
    ("verb", "words", "expected"),
    [
        (
            "pretrain",
            ["corpus=c", TINY, "training.steps=2"],
            "  # sequences per update, over all processes\n  batch_size: 256\n",
        ),
        (
            "finetune",
            ["encoder.folder=e", "task.train=t.csv", "task.text=a"],
            "  # own files: column of the text\n  text: a\n",
        ),
    ],
)
def test_a_dry_run_prints_every_setting(
    albertine: Command, tmp_path: Path, verb: str, words: list[str], expected: str
) -> None:
    outcome = albertine(verb, "--dry-run", "name=toy", *words)
    assert outcome.code == 0 and expected in outcome.out
    file = tmp_path / "again.yaml"
    file.write_text(outcome.out, encoding="utf-8")
    assert albertine(verb, "--dry-run", f"--config={file}").out == outcome.out


def test_a_dry_run_lists_the_presets(albertine: Command) -> None:
    words = (
        "pretrain",
        "--dry-run",
        "name=toy",
        "corpus=c",
        "training.steps=1",
        "model.preset=albert-base-v3",
    )
    outcome = albertine(*words)
    assert outcome.code == 2 and outcome.out == ""
    assert outcome.err == "albertine: there is no preset `albert-base-v3`. Did you mean `albert-base-v2`?\n"


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("model.sharing=13", "model.sharing: 13 groups need as many layers, and the encoder has 12"),
        ("objective.max_length=600", "objective.max_length 600 is more than the 512 positions"),
        ("model.change.type_vocab_size=1", "model.change.type_vocab_size is 1"),
        ("stages=[{begin: 0, depth: 13}]", "stages: number 1 computes 13 layers, and the encoder has 12"),
        ("training.decay=0.5", "training.decay: belongs to training.schedule=wsd"),
        ("training.schedule=wsd; training.warmup=0.9", "warm-up (0.9) and decay (0.2) together are longer"),
        ("objective.ponder=0.1", "objective.ponder: this encoder does not halt"),
        ("objective.jacobian=2", "objective.jacobian: the Jacobian is that of a fixed-point iteration"),
    ],
)
def test_a_dry_run_refuses_what_the_run_would(albertine: Command, setting: str, message: str) -> None:
    words = ("name=toy", "corpus=c", "training.steps=1", "model.preset=albert-base-v2")
    outcome = albertine("pretrain", "--dry-run", *words, *setting.split("; "))
    assert outcome.code == 2 and outcome.out == "" and message in outcome.err


def test_a_dry_run_reports_layers_that_stages_leave_untrained(albertine: Command) -> None:
    words = ("name=toy", "corpus=c", "training.steps=9", "model.preset=albert-base-v2")
    outcome = albertine("pretrain", "--dry-run", *words, "stages=[{begin: 0, depth: 3}]")
    assert outcome.code == 0 and "# stages as they resolve:" in outcome.out
    assert outcome.err.startswith("warning: stages: the run ends in number 1, which computes 3 layers only")


@pytest.mark.parametrize("made_by", ["pieces", "jieba"])
@pytest.mark.parametrize("whole", ["true", "false"])
def test_words_that_are_not_masked_whole_are_reported(
    albertine: Command, corpus: Path, tmp_path: Path, made_by: str, whole: str
) -> None:
    copy = Path(shutil.copytree(corpus, tmp_path / "corpus"))
    manifest = copy / "manifest.json"
    text = manifest.read_text(encoding="utf-8")
    assert '"words": "pieces"' in text
    manifest.write_text(text.replace('"words": "pieces"', f'"words": "{made_by}"'), encoding="utf-8")
    pretrain(albertine, copy, tmp_path, TINY, f"objective.masking.whole_word={whole}")
    log = (tmp_path / "toy" / "log.txt").read_text(encoding="utf-8")
    assert log.count("objective.masking.whole_word=true") == ((made_by, whole) == ("jieba", "false"))
