"""The card that a model is saved with: how many parameters it has, and who loads it."""

from __future__ import annotations

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from albertine.analysis.parameters import parameters_by_part
from albertine.evaluation.card_metadata import CardMetadata
from albertine.interop.heads import head_config
from albertine.interop.hub.citations import citation
from albertine.interop.huggingface.config import KINDS
from albertine.interop.huggingface.folders import Layout, read_folder, save_model
from albertine.interop.huggingface.lonepatient import save_lonepatient
from albertine.model.answerability_head import JointAnswer
from albertine.model.model import Model
from albertine.model.sharing import SharingPlan
from albertine.pretraining.model_costs import look_up_model
from albertine.tasks.answerability import AnswerOrNot
from albertine.tasks.model_card import write_card
from tests.interop.test_xlnet import our_model as xlnet
from tests.model import builders

BERT = {"plan": SharingPlan.unshared(3), "embedding_size": 24}
ROFORMER = {"plan": SharingPlan.unshared(3), "positions": "rotary", "type_vocab_size": 2}


def counted(folder: Path) -> int:
    """The number in a card."""
    found = re.search(r"([\d,]+) parameters", (folder / "README.md").read_text())
    assert found is not None
    return int(found[1].replace(",", ""))


@pytest.mark.parametrize(
    ("changes", "layout"),
    [
        ({}, None),
        (BERT, None),
        ({"embedding_size": 24}, None),  # an identity is written beside it
        (ROFORMER, None),  # a table of sines
        ({"embedding_mapping": "words"}, "transformers"),  # both factors are kept
        ({"plan": SharingPlan.attention_only(3)}, "albertine"),
    ],
)
def test_a_card_counts_the_parameters_of_its_model(
    changes: dict[str, Any], layout: Layout | None, tmp_path: Path
) -> None:
    """As `albertine info` counts them, whatever the file holds."""
    save_model(builders.model(**changes), None, tmp_path, layout=layout)
    assert counted(tmp_path) == sum(parameters_by_part(look_up_model(str(tmp_path))).values())


def test_a_card_of_lonepatients_counts_ties_once(tmp_path: Path) -> None:
    model = builders.model()
    head = {"classifier.weight": torch.ones(3, 24), "classifier.bias": torch.ones(3)}
    extra_config = head_config("albert", "classify", 0.1, names=("a", "b", "c"), kind="single")
    save_lonepatient(model, None, tmp_path, extra_tensors=head, extra_config=extra_config)
    assert counted(tmp_path) == sum(x.numel() for x in model.parameters()) + 75


def test_an_xlnet_has_no_parameter_that_nothing_reads(tmp_path: Path) -> None:
    model = xlnet({"pooler"}, plan=SharingPlan.unshared(2))
    save_model(model, None, tmp_path / "m")
    found = read_folder(tmp_path / "m")
    save_model(found.model, None, tmp_path / "again", extra_tensors=found.extra)
    count = sum(x.numel() for x in model.parameters())
    assert counted(tmp_path / "m") == counted(tmp_path / "again") == count


def test_the_card_of_lonepatients_names_does_not_suggest_transformers(tmp_path: Path) -> None:
    """transformers would silently start from random weights."""
    model: Model = builders.model()
    save_lonepatient(model, None, tmp_path)
    for by_command in (False, True):
        if by_command:
            write_card(tmp_path, CardMetadata())
        card = (tmp_path / "README.md").read_text()
        assert "from transformers" not in card and "from_pretrained" not in card
        assert "lonePatient's albert_pytorch loads" in card and "albertine convert" in card
        assert 'albertine.load("path/to/this/folder")' in card
    save_model(model, None, tmp_path)  # as transformers names them, in its place
    assert "from transformers" in (tmp_path / "README.md").read_text()


def test_the_card_of_a_tensorflow_checkpoint_does_not_suggest_transformers(tmp_path: Path) -> None:
    shutil.copytree(Path(__file__).with_name("tensorflow") / "albert", tmp_path / "albert")
    write_card(tmp_path / "albert", CardMetadata())
    card = (tmp_path / "albert" / "README.md").read_text()
    assert "from_pretrained" not in card and "on TensorFlow, loads the same folder" in card


def test_a_card_names_the_class_that_has_the_joint_head(tmp_path: Path) -> None:
    family, base = AnswerOrNot(), xlnet({"pooler"}, plan=SharingPlan.unshared(2))
    head = JointAnswer(base, seed=1).head
    save_model(base, None, tmp_path, extra_tensors=head, extra_config=family.config("xlnet", 0.1))
    card = (tmp_path / "README.md").read_text()
    (name,) = re.findall(r"model = (\w+)\.from_pretrained", card)
    assert f"from transformers import {name}, AutoTokenizer" in card
    _, loading_info = getattr(transformers, name).from_pretrained(tmp_path, output_loading_info=True)
    left = {"sequence_summary.summary.weight", "sequence_summary.summary.bias"}  # of the pooler, not the head
    assert not loading_info["missing_keys"] and set(loading_info["unexpected_keys"]) <= left


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("albert", "albertine")])
def test_every_layout_has_its_paper(kind: str) -> None:
    assert citation(kind).count("@inproceedings") == 2
