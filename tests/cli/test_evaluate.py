"""The verbs that score: each has only its own options."""

from __future__ import annotations

import re

import pytest

from tests.cli.conftest import Command

OPTIONS = {
    "evaluate": {"--dev", "--test", "--file", "--output", "--device", "--precision", "--layers", "--json"},
    "ensemble": {
        *("--pick", "--rule", "--dev", "--test", "--file", "--output", "--device", "--precision", "--json"),
    },
    "report": {"--output", "--json"},
    "score": {
        *("--texts", "--max-length", "--sequences", "--pairs", "--no-pairs", "--memory", "--reach"),
        "--sentence-task",
        *("--clamp", "--device", "--precision", "--layers", "--json"),
    },
    "suite": {"--data", "--limit", "--scoring", "--device", "--precision", "--layers", "--json"},
}


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
        assert outcome.code == 2 and name in outcome.err and "Traceback" not in outcome.err, name


@pytest.mark.parametrize(
    ("words", "message"),
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
def test_contradictory_options_are_refused(albertine: Command, words: str, message: str) -> None:
    outcome = albertine(*words.split())
    assert outcome.code == 2 and message in " ".join(outcome.err.split()), outcome.err
