"""`Predictor.zero_shot` and `albertine predict zero-shot`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from transformers import pipeline

from albertine import Predictor
from albertine.cli.app import run
from albertine.errors import AlbertineError, DataError, ModelError, SettingsError
from tests.inference.exports import TEXTS, tuned

LABELS = ["a house", "who", "never bad"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tuned("nli", tmp_path_factory.mktemp("nli") / "nli")


@pytest.mark.parametrize("multi_label", [False, True])
def test_scores_are_those_of_transformers(folder: Path, multi_label: bool) -> None:
    theirs = pipeline("zero-shot-classification", str(folder))
    found = Predictor(folder, precision="float32").zero_shot(TEXTS[:2], LABELS, multi_label=multi_label)
    for text, own in zip(TEXTS[:2], found, strict=True):
        wanted = theirs(text, candidate_labels=LABELS, multi_label=multi_label)
        scores = dict(zip(wanted["labels"], wanted["scores"], strict=True))
        assert list(own) == LABELS and own == pytest.approx(scores, abs=1e-6)


@pytest.mark.parametrize(
    ("arguments", "more", "error"),
    [
        ((["a"], []), {}, SettingsError),
        ((["a"], ["x", "x"]), {}, SettingsError),
        ((["a"], ["x"]), {"template": "none"}, SettingsError),
        (([1], ["x"]), {}, DataError),
    ],
)
def test_what_is_refused(
    folder: Path, arguments: tuple[list[str], list[str]], more: dict[str, str], error: type[AlbertineError]
) -> None:
    with pytest.raises(error):
        Predictor(folder).zero_shot(*arguments, **more)


def test_a_model_of_other_classes_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="its classes are a, b, c"):
        Predictor(tuned("single", tmp_path / "single")).zero_shot("who", LABELS)


def test_no_texts(folder: Path) -> None:
    assert Predictor(folder).zero_shot([], LABELS) == []


def test_the_command(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["predict", "zero-shot", str(folder), *TEXTS[:2], "--labels", "a house, who"]
    assert run([*command, "--template", "it was {}", "--json", "--precision", "float32"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    wanted = Predictor(folder, precision="float32").zero_shot(
        TEXTS[:2], ["a house", "who"], template="it was {}"
    )
    assert [line["text"] for line in lines] == TEXTS[:2]
    for line, own in zip(lines, wanted, strict=True):
        assert line["labels"] == pytest.approx(own, abs=1e-6)
    assert run(command) == 0
    shown = capsys.readouterr().out.splitlines()
    assert len(shown) == 2 and "%" in shown[0] and TEXTS[0] in shown[0]
    assert run(command[:-2]) == 2 and "--labels" in capsys.readouterr().err
