"""The verbs that judge: what `evaluate` no longer does is told, and each has only its own options."""

from __future__ import annotations

import re
from pathlib import Path
from shlex import split

import pytest

from tests.cli.conftest import Command

OPTIONS = {
    "evaluate": {"--dev", "--test", "--file", "--output", "--device", "--precision", "--json"},
    "ensemble": {
        *("--pick", "--rule", "--dev", "--test", "--file", "--output", "--device", "--precision", "--json"),
    },
    "report": {"--output", "--json"},
    "score": {
        *("--texts", "--max-length", "--sequences", "--pairs", "--no-pairs", "--memory", "--reach"),
        "--sentence-task",
        *("--clamp", "--device", "--precision", "--json"),
    },
    "suite": {"--data", "--limit", "--device", "--precision", "--json"},
}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("m corpus", "score m corpus"),
        ("m corpus --texts a --texts b --json", "score m corpus --texts a --texts b --json"),
        ("'my run' corpus --max-length=64", "score 'my run' corpus --max-length 64"),
        ("m --texts a", "score m --texts a"),
        ("m --texts=a", "score m --texts a"),
        ("m --sequences 9", "score m --sequences 9"),
        ("m --no-pairs", "score m --no-pairs"),
        ("m --pairs", "score m --pairs"),
        ("m --suite blimp --data d --limit 3", "suite blimp m --data d --limit 3"),
        ("--suite=sling m --data d", "suite sling m --data d"),
        ("m --suite", "suite NAME m"),
        ("--ensemble a b --pick 2 -o out", "ensemble a b --pick 2 -o out"),
        ("a b --pick=2", "ensemble a b --pick 2"),
        ("a b --rule best", "ensemble a b --rule best"),
        ("a b task.folder=x --ensemble --dev", "ensemble a b task.folder=x --dev"),
        ("a b --report out --json", "report a b --output out --json"),
        ("--report out --ensemble a b", "report --output out a b"),
    ],
)
def test_an_old_way_to_write_it_is_answered_with_the_new_one(
    albertine: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: str, new: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("corpus").mkdir()
    Path("corpus", "manifest.json").touch()
    outcome = albertine("evaluate", *split(old))
    assert outcome.code == 2 and outcome.out == ""
    assert outcome.err == f"albertine: `evaluate` scores tuned runs alone; write: albertine {new}\n"


@pytest.mark.parametrize("verb", OPTIONS)
def test_help_lists_the_own_options_alone(albertine: Command, verb: str) -> None:
    listed = albertine(verb, "--help").out.partition("Options:")[2]
    found = re.findall(r"^ +(?:-\w, )?(--[\w-]+)(?: / (--[\w-]+))?", listed, re.MULTILINE)
    assert {name for names in found for name in names if name} == OPTIONS[verb] | {"--help"}


@pytest.mark.parametrize("verb", OPTIONS)
def test_an_option_of_another_verb_is_refused(albertine: Command, verb: str) -> None:
    others = set().union(*OPTIONS.values()) - OPTIONS[verb]
    for name in others:
        value = [] if name in ("--pairs", "--no-pairs", "--dev", "--test") else ["3"]
        outcome = albertine(verb, "blimp", "m", name, *value)
        says = (
            "write: albertine"
            if verb == "evaluate" and name not in ("--data", "--limit", "--memory", "--reach", "--clamp")
            else name
        )
        assert outcome.code == 2 and says in outcome.err and "Traceback" not in outcome.err, name


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("score m --texts a --no-pairs", "belongs to a corpus"),
        ("ensemble a b --rule best", "belongs to --pick"),
        ("ensemble a b --pick 2 --rule worst", "'greedy', 'best'"),
        ("evaluate a --file f --dev", "is a file of the run"),
        ("ensemble a b --file f --test", "is a file of the run"),
        ("evaluate task.x=3", "name a run"),
        ("ensemble task.x=3", "name a run"),
        ("evaluate", "Missing argument"),
        ("score", "Missing argument"),
        ("report a", "--output"),
        ("suite blimp m", "--data"),
    ],
)
def test_what_means_nothing_together(albertine: Command, words: str, says: str) -> None:
    outcome = albertine(*words.split())
    assert outcome.code == 2 and says in " ".join(outcome.err.split()), outcome.err
