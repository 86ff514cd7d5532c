"""Texts whose numbers overflow: each is refused by its place, the others are answered, and JSON is valid."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import albertine as package
from albertine.core.files import to_json
from albertine.errors import NotFinite
from albertine.inference.likelihood import PseudoLikelihood
from albertine.inference.whitening import fit_whitening
from albertine.interop.heads import head_config
from albertine.interop.huggingface.folders import load_model, save_model
from albertine.model.task_model import Classifier
from albertine.tokenizers.load import load_tokenizer
from tests.cli.conftest import Command
from tests.export import saved

GOOD, BAD = "the old man [MASK].", "the old man [MASK]." + " said the old man" * 6
"""The second is long enough to reach the position that overflows."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with the heads of pretraining and a classifier."""
    room = tmp_path_factory.mktemp("overflow") / "model"
    base = saved.model(max_position_embeddings=64)
    with torch.no_grad():
        base.encoder.embeddings.position.weight[20:] = 3e38  # type: ignore[union-attr]
    tuned = Classifier(base, 3, seed=3).eval()
    extra_config = head_config("albert", "classify", 0.1, names=("x", "y", "z"), kind="single", pooling="cls")
    save_model(base, saved.tokenizer(), room, extra_tensors=tuned.head, extra_config=extra_config)
    return room


@pytest.mark.parametrize("verb", ["fill-mask", "embed", "classify"])
def test_texts_beside_it_are_answered(verb: str, folder: Path, albertine: Command) -> None:
    words = ("--json",) if verb != "embed" else ()
    done = albertine("predict", verb, folder, GOOD, BAD, GOOD, *words)
    assert done.code == 1
    answers = [json.loads(line, parse_constant=pytest.fail) for line in done.out.splitlines()]
    assert [one["text"] for one in answers] == [GOOD, GOOD] and answers[0] == answers[1]
    assert "text 2" in done.err and "not finite" in done.err


@pytest.mark.parametrize("verb", ["order", "similarity"])
def test_one_answer_is_refused(verb: str, folder: Path, albertine: Command) -> None:
    for words in ((), ("--json",)):
        done = albertine("predict", verb, folder, BAD, GOOD, *words)
        assert done.code == 1 and not done.out and "not finite" in done.err
    done = albertine("predict", verb, folder, "the", "man", "--json")
    assert done.code == 0 and json.loads(done.out, parse_constant=pytest.fail)


@pytest.mark.parametrize("verb", ["embed", "classify"])
def test_a_row_of_a_file_is_named(verb: str, folder: Path, albertine: Command, tmp_path: Path) -> None:
    table, output = tmp_path / "asked.csv", tmp_path / "told.csv"
    table.write_text("text\n" + "".join(f"{text}\n" for text in (GOOD, GOOD, BAD, GOOD)), encoding="utf-8")
    done = albertine("predict", verb, folder, "--file", table, "--output", output)
    assert done.code == 1 and "asked.csv:4" in done.err and "not finite" in done.err
    assert not output.exists()


def test_analyze_depth(folder: Path, albertine: Command) -> None:
    done = albertine("analyze", "depth", folder, GOOD, BAD, "--depths", 4, "--json")
    assert done.code == 1 and not done.out and "text 2" in done.err


@pytest.mark.parametrize("view", ["attention", "lens"])
def test_analyze_one_text(view: str, folder: Path, albertine: Command) -> None:
    done = albertine("analyze", view, folder, BAD, "--json")
    assert done.code == 1 and not done.out and "not finite" in done.err
    done = albertine("analyze", view, folder, GOOD, "--json")
    assert done.code == 0 and json.loads(done.out, parse_constant=pytest.fail)


def test_errors_in_python_name_the_text(folder: Path) -> None:
    predictor = package.Predictor(folder)
    for predict in (predictor.embed, predictor.fill_mask_all, predictor.classify):
        with pytest.raises(NotFinite, match="text 2"):
            predict([GOOD, BAD])
        assert len(predict([GOOD])) == 1
    with pytest.raises(NotFinite, match="pair 2"):
        predictor.sentence_order([(GOOD, "man"), (BAD, GOOD)])
    model, tokenizer = load_model(folder), load_tokenizer(folder)
    with pytest.raises(NotFinite, match="sentence 3"):
        fit_whitening(model, tokenizer, [GOOD, GOOD, BAD, *[GOOD] * 60])
    with pytest.raises(NotFinite, match="text 2"):
        PseudoLikelihood(model, tokenizer)([GOOD, BAD])


def test_json_has_null_where_there_is_no_number() -> None:
    tree = {"a": [1.5, float("nan")], "b": {"c": float("-inf")}, "d": "北京"}
    assert json.loads(to_json(tree), parse_constant=pytest.fail) == {
        "a": [1.5, None],
        "b": {"c": None},
        "d": "北京",
    }
