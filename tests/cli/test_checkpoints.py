"""Checkpoints of TensorFlow on the command line: told, converted both ways, with their vocabularies."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

import albertine as package
from albertine.interop.google import save_checkpoint
from albertine.interop.heads import head_config, labels_in, length_of
from albertine.interop.huggingface import read_folder, save_model
from albertine.model.plan import SharingPlan
from albertine.model.pooling import Pooling
from albertine.text.wordpiece import WordPieceTokenizer
from tests.cli.conftest import Command, albertine
from tests.interop.test_google import PIECES, brightmart
from tests.interop.test_roformer import assert_same_model
from tests.interop.test_xlnet import our_model as xlnet_model
from tests.model import builders

__all__ = ["albertine"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """As Google's archives are: configuration, checkpoint, vocab.txt."""
    save_checkpoint(builders.model(), WordPieceTokenizer(PIECES), tmp_path / "google", "google")
    for file in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / "google" / file).unlink()
    return tmp_path / "google"


def test_there_and_back(albertine: Command, folder: Path, tmp_path: Path) -> None:
    first = albertine("convert", folder, tmp_path / "hf")
    assert (first.code, "written, with its tokenizer" in first.out) == (0, True)
    assert albertine("convert", tmp_path / "hf", tmp_path / "back", "--to", "google").code == 0
    assert_same_model(package.load(tmp_path / "back"), package.load(folder))
    for name in ("albert_config.json", "model.ckpt-best.index", "model.ckpt-best.data-00000-of-00001"):
        assert (tmp_path / "back" / name).read_bytes() == (folder / name).read_bytes()
    assert (tmp_path / "back" / "vocab.txt").read_bytes() == (folder / "vocab.txt").read_bytes()
    tokenizer = package.load_tokenizer(tmp_path / "hf")
    assert tokenizer.kind == "wordpiece" and tokenizer.encode("京A") == package.load_tokenizer(folder).encode(
        "京a"
    )


def test_info(albertine: Command, folder: Path) -> None:
    """The parameters of the shape, without a number of the data being read."""
    (folder / "model.ckpt-best.data-00000-of-00001").write_bytes(b"x" * 100_000)
    told = albertine("info", folder)
    assert told.code == 0 and "one block used at every depth" in told.out
    damaged = albertine("convert", folder, folder.with_name("out"))
    assert damaged.code == 2 and "the checksum of" in damaged.err


def test_brightmarts_loss_of_size_is_said(albertine: Command, tmp_path: Path) -> None:
    brightmart(tmp_path / "b")
    outcome = albertine("convert", tmp_path / "b", tmp_path / "out")
    assert outcome.code == 0 and "1,272 numbers instead of 462" in " ".join(outcome.out.split())


def test_xlnet(albertine: Command, tmp_path: Path) -> None:
    model = xlnet_model(plan=SharingPlan.unshared(2))
    save_model(model, None, tmp_path / "hf")
    assert albertine("convert", tmp_path / "hf", tmp_path / "tf", "--to", "xlnet-tf").code == 0
    assert albertine("convert", tmp_path / "tf", tmp_path / "back").code == 0
    assert_same_model(package.load(tmp_path / "back"), model)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--dtype", "float16"], "--dtype float16 has no place in the layout google"),
        (["--whiten", "text.txt"], "--whiten has no place"),
    ],
)
def test_what_a_checkpoint_cannot_hold(
    albertine: Command, folder: Path, tmp_path: Path, arguments: list[str], says: str
) -> None:
    outcome = albertine("convert", folder, tmp_path / "x", "--to", "google", *arguments)
    assert outcome.code == 2 and says in " ".join(outcome.err.split()) and not (tmp_path / "x").exists()


def test_a_plan_that_google_cannot_express(albertine: Command, tmp_path: Path) -> None:
    package.save(builders.model(SharingPlan.attention_only(3)), None, tmp_path / "m")
    outcome = albertine("convert", tmp_path / "m", tmp_path / "x", "--to", "google")
    assert outcome.code == 2 and "a plan other than groups of whole blocks" in outcome.err
    assert albertine("convert", tmp_path / "m", tmp_path / "y", "--to", "google", "--share").code == 0


def test_a_cased_vocabulary_is_told_by_its_pieces(folder: Path) -> None:
    """Google's archives say it in the name of the folder alone."""
    assert package.load_tokenizer(folder).encode("aB") == package.load_tokenizer(folder).encode("ab")
    path = folder / "vocab.txt"
    path.write_text(path.read_text() + "Berlin\nParis\nRome\n")
    lowered, kept = (package.load_tokenizer(folder).encode(text) for text in ("berlin", "Berlin"))
    assert len(kept) == 1 and lowered != kept


def test_the_vocabulary_of_an_archive_by_any_name(albertine: Command, folder: Path, tmp_path: Path) -> None:
    shutil.move(folder / "vocab.txt", folder / "vocab_chinese.txt")
    assert "with its tokenizer" in albertine("convert", folder, tmp_path / "out").out
    assert (tmp_path / "out" / "vocab.txt").is_file()


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_a_classifier_goes_along_with_the_names_of_its_classes(
    albertine: Command, tmp_path: Path, pooling: Pooling
) -> None:
    """Unless it looks at other than Google's does."""
    names = ("poor", "fair", "good")
    told = head_config("albert", "classify", 0.1, names=names, kind="single", pooling=pooling, max_length=9)
    head = {"classifier.weight": torch.randn(3, 24), "classifier.bias": torch.randn(3)}
    save_model(builders.model(), None, tmp_path / "hf", extra_tensors=head, extra_config=told)
    first = albertine("convert", tmp_path / "hf", tmp_path / "g", "--to", "google")
    assert albertine("convert", tmp_path / "g", tmp_path / "back").code == 0
    left = "Left out: classifier.bias, classifier.weight, which Google's code has no place for." in first.out
    assert left == (pooling == "mean")
    back = read_folder(tmp_path / "back")
    assert all(torch.equal(back.extra[name], x) for name, x in head.items()) if not left else not back.extra
    if pooling == "cls":
        assert back.config == read_folder(tmp_path / "hf").config
        assert length_of(back) == 9 and labels_in(back.config) == names
