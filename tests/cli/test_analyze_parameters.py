"""`albertine analyze parameters`: the counts of `info` side by side."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from albertine.interop.huggingface.folders import save_model
from tests.analysis.test_html_report import Elements
from tests.cli.conftest import Command
from tests.model import builders


def test_presets_and_folders_side_by_side(albertine: Command, tmp_path: Path) -> None:
    save_model(builders.model(), None, tmp_path / "mine" / "final")
    outcome = albertine("analyze", "parameters", "albert-base-v2", "bert-base", tmp_path / "mine")
    assert outcome.code == 0, outcome.err
    # Table 1 of the ALBERT paper: 12 M and 108 M parameters; exact counts of the encoder with the pooler.
    for words in ("11,683,584", "109,482,240", "mine", "one block used at every depth"):
        assert words in outcome.out
    # 32 positions of the smallest model, not the usual 128 and 512
    assert "training, length 32" in outcome.out and "length 128" not in outcome.out
    assert str(tmp_path) not in outcome.out


def test_json_is_that_of_info(albertine: Command) -> None:
    models = ("albert-tiny-zh", "bert-base")
    found = json.loads(albertine("analyze", "parameters", *models, "--json").out)
    for one, name in zip(found, models, strict=True):
        assert one == json.loads(albertine("info", name, "--json").out)


@pytest.mark.pictures
def test_figure_and_report(albertine: Command, tmp_path: Path) -> None:
    figure, report = tmp_path / "parameters.svg", tmp_path / "parameters.html"
    models = ("albert-base-v2", "albert-large-v2", "bert-base")
    outcome = albertine("analyze", "parameters", *models, "--length", 256, "--plot", figure, "--html", report)
    assert outcome.code == 0, outcome.err
    drawn = figure.read_text(encoding="utf-8")
    assert ">parameters, millions<" in drawn and ">encoder blocks<" in drawn
    assert ">11.81<" in drawn and ">110.1<" in drawn  # with all heads, at the ends of the bars
    text = report.read_text(encoding="utf-8")
    assert [tag for tag, _ in Elements(text).found].count("table") == 4 and "11,683,584" in text


def test_bad_input_is_refused(albertine: Command, tmp_path: Path) -> None:
    for words, message in (
        (["albert-bse-v2"], "albert-base-v2"),
        (["albert-base-v2", "--length", 600], "maximum of 512"),
        (["albert-base-v2", "--plot", tmp_path / "x.gif"], "is not the name of a PNG or SVG file"),
    ):
        outcome = albertine("analyze", "parameters", *words)
        assert outcome.code == 2 and message in outcome.err
