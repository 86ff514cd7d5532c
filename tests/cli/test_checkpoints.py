"""Checkpoints of TensorFlow on the command line: described, converted both ways, with their vocabularies."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

import albertine as package
from albertine.interop.heads import (
    head_config,
    labels_in,
    left_to_right,
    max_length_of,
    objective_config,
    task_of,
)
from albertine.interop.huggingface.config import our_flags
from albertine.interop.huggingface.folders import folder_config, read_folder, save_model
from albertine.interop.tensorflow.checkpoints import save_checkpoint
from albertine.interop.tensorflow.lossy import greatest_difference, random_rows
from albertine.model.answerability_head import JointAnswer
from albertine.model.pooling import Pooling
from albertine.model.sharing import SharingPlan
from albertine.tasks.answerability import AnswerOrNot
from albertine.tokenizers.wordpiece import WordPieceTokenizer
from tests.cli.conftest import Command, albertine
from tests.interop.test_brightmart import brightmart
from tests.interop.test_google import PIECES
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
    """Parameter counts from shapes, without reading any tensor data."""
    (folder / "model.ckpt-best.data-00000-of-00001").write_bytes(b"x" * 100_000)
    outcome = albertine("info", folder)
    assert outcome.code == 0 and "one block used at every depth" in outcome.out
    damaged = albertine("convert", folder, folder.with_name("out"))
    assert damaged.code == 2 and "the checksum of" in damaged.err


def on_one_line(text: str) -> str:
    return " ".join(text.split())


def test_brightmarts_factors_and_what_their_product_costs(albertine: Command, tmp_path: Path) -> None:
    model = brightmart()
    size = sum(x.numel() for x in model.parameters())
    save_checkpoint(model, None, tmp_path / "b", "brightmart")
    own = albertine("convert", tmp_path / "b", tmp_path / "own")
    assert own.code == 0 and "multiplied" not in own.out
    for name in ("hf", "transformers"):
        outcome = albertine("convert", tmp_path / "b", tmp_path / name, "--to", name)
        assert outcome.code == 0
        more = 53 * 24 - (53 * 8 + 8 * 24)
        cost = f"{size + more:,} numbers instead of {size:,}, for the same outputs; both factors are kept"
        assert cost in on_one_line(outcome.out)
        back = tmp_path / f"{name} back"
        assert albertine("convert", tmp_path / name, back, "--to", "brightmart").code == 0
        assert_same_model(package.load(back), model)
    assert "numbers" not in albertine("convert", tmp_path / "b", tmp_path / "a", "--to", "albertine").out
    assert "brightmart" in albertine("info", tmp_path / "b").out


@pytest.mark.parametrize("to", ["bert4keras", "brightmart", "hf", "albertine"])
def test_vocabularies_go_along(albertine: Command, tmp_path: Path, to: str) -> None:
    """A Chinese vocabulary is WordPiece by its file name, whatever the layout."""
    changes = {"embedding_mapping": "words"} if to == "brightmart" else {}
    package.save(builders.model(**changes), WordPieceTokenizer(PIECES), tmp_path / "m")
    outcome = albertine("convert", tmp_path / "m", tmp_path / "x", "--to", to)
    assert outcome.code == 0 and "with its tokenizer" in outcome.out
    for file in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / "x" / file).unlink(missing_ok=True)
    found = package.load_tokenizer(tmp_path / "x")
    assert found.kind == "wordpiece"
    assert found.encode("北京ab") == WordPieceTokenizer(PIECES).encode("北京ab")


def test_our_own_names_where_transformers_has_some(albertine: Command, folder: Path, tmp_path: Path) -> None:
    assert albertine("convert", folder, tmp_path / "own", "--to", "albertine").code == 0
    assert '"model_type": "albertine"' in (tmp_path / "own" / "config.json").read_text()
    assert_same_model(package.load(tmp_path / "own"), package.load(folder))
    assert (tmp_path / "own" / "vocab.txt").is_file()


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("changes", "to", "message"),
    [
        ({"hidden_act": "gelu"}, "google", "written as the tanh form of GELU"),
        ({"layer_norm_eps": 1e-3}, "google", "LayerNorms becomes 1e-12; it was made with 0.001"),
        ({"plan": SharingPlan.attention_only(3)}, "google", "Every depth is written as a block of its own"),
        ({"plan": SharingPlan.grouped(4, 2)}, "bert4keras", "numbers instead of"),
        ({"plan": SharingPlan.feed_forward_only(3), "hidden_act": "gelu"}, "bert4keras", "block of its own"),
        ({"embedding_mapping": "words"}, "google", "written multiplied"),
        ({"embedding_mapping": "words", "hidden_act": "gelu"}, "brightmart", "the tanh form"),
    ],
)
def test_losses_need_lossy_and_are_reported(
    albertine: Command, tmp_path: Path, changes: dict[str, Any], to: str, message: str
) -> None:
    """Refused first, with the remedy; then written, and the reported difference is that of the outputs."""
    model = builders.model(**changes)
    package.save(model, None, tmp_path / "m")
    refused = albertine("convert", tmp_path / "m", tmp_path / "x", "--to", to)
    assert refused.code == 2 and "dd --lossy" in on_one_line(refused.err) and not (tmp_path / "x").exists()
    outcome = albertine("convert", tmp_path / "m", tmp_path / "x", "--to", to, "--lossy")
    assert outcome.code == 0 and message in on_one_line(outcome.out)
    difference = float(on_one_line(outcome.out).split("differ by at most ")[1].split(",")[0])
    rows = random_rows(model)
    off, _ = greatest_difference(model, package.load(tmp_path / "x"), rows)
    assert off == pytest.approx(difference, rel=0.1, abs=1e-5)
    computed_otherwise = ("hidden_act" in changes and to != "bert4keras") or "layer_norm_eps" in changes
    assert (off > 1e-5) == computed_otherwise
    assert "On 16 rows of random tokens" in on_one_line(outcome.out)


@pytest.mark.sample(1)
@pytest.mark.parametrize("biases", ["block", "tied"])
def test_a_shared_xlnet_written_out(albertine: Command, tmp_path: Path, biases: Any) -> None:
    model = xlnet_model({"lm"}, plan=SharingPlan.shared(3), relative_biases=biases)
    package.save(model, None, tmp_path / "m")
    refused = albertine("convert", tmp_path / "m", tmp_path / "x", "--to", "xlnet-tf")
    assert refused.code == 2 and "shared weights. Add --lossy" in on_one_line(refused.err)
    outcome = albertine("convert", tmp_path / "m", tmp_path / "x", "--to", "xlnet-tf", "--lossy")
    assert outcome.code == 0 and "Every depth is written as a block of its own" in on_one_line(outcome.out)
    off, most = greatest_difference(model, package.load(tmp_path / "x"), random_rows(model))
    assert off < 1e-5 < most


def test_a_loss_on_a_sample_of_text(albertine: Command, tmp_path: Path) -> None:
    package.save(builders.model(hidden_act="gelu"), WordPieceTokenizer(PIECES), tmp_path / "m")
    (tmp_path / "text.txt").write_text("a b c\n\nd e\n")
    sample = ("--lossy", "--sample", tmp_path / "text.txt")
    outcome = albertine("convert", tmp_path / "m", tmp_path / "x", "--to", "google", *sample)
    assert outcome.code == 0 and "On 2 lines its outputs differ" in on_one_line(outcome.out)


def test_a_lossless_conversion_reports_no_loss(albertine: Command, folder: Path, tmp_path: Path) -> None:
    outcome = albertine("convert", folder, tmp_path / "x", "--to", "google", "--lossy")
    assert outcome.code == 0 and "differ" not in outcome.out


def test_folders_of_transformers_lose_nothing(albertine: Command, folder: Path, tmp_path: Path) -> None:
    outcome = albertine("convert", folder, tmp_path / "x", "--to", "hf", "--lossy")
    assert outcome.code == 2 and "--lossy belongs to --to google" in on_one_line(outcome.err)


def test_what_no_flag_makes_fit(albertine: Command, tmp_path: Path) -> None:
    package.save(builders.model(positions="rotary", hidden_act="gelu"), None, tmp_path / "m")
    outcome = albertine("convert", tmp_path / "m", tmp_path / "x", "--to", "google", "--lossy")
    assert outcome.code == 2 and "the block of roformer" in outcome.err
    assert "Leave --to out" in on_one_line(outcome.err) and not (tmp_path / "x").exists()


def test_xlnet(albertine: Command, tmp_path: Path) -> None:
    model = xlnet_model(plan=SharingPlan.unshared(2))
    save_model(model, None, tmp_path / "hf")
    assert albertine("convert", tmp_path / "hf", tmp_path / "tf", "--to", "xlnet-tf").code == 0
    assert albertine("convert", tmp_path / "tf", tmp_path / "back").code == 0
    assert_same_model(package.load(tmp_path / "back"), model)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--dtype", "float16"], "--dtype float16 has no place in the layout google"),
        (["--whiten", "text.txt"], "--whiten has no place"),
    ],
)
def test_what_a_checkpoint_cannot_hold(
    albertine: Command, folder: Path, tmp_path: Path, arguments: list[str], message: str
) -> None:
    outcome = albertine("convert", folder, tmp_path / "x", "--to", "google", *arguments)
    assert outcome.code == 2 and message in " ".join(outcome.err.split()) and not (tmp_path / "x").exists()


def test_a_plan_that_google_cannot_express(albertine: Command, tmp_path: Path) -> None:
    package.save(builders.model(SharingPlan.attention_only(3)), None, tmp_path / "m")
    outcome = albertine("convert", tmp_path / "m", tmp_path / "x", "--to", "google")
    assert outcome.code == 2 and "a plan other than groups of whole blocks" in outcome.err
    assert albertine("convert", tmp_path / "m", tmp_path / "y", "--to", "google", "--share").code == 0


def test_a_cased_vocabulary_is_recognised_by_its_tokens(folder: Path) -> None:
    """Google's archives state it in the name of the folder alone."""
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
    """Unless its pooling differs from Google's."""
    names = ("poor", "fair", "good")
    extra_config = head_config(
        "albert", "classify", 0.1, names=names, kind="single", pooling=pooling, max_length=9
    )
    head = {"classifier.weight": torch.randn(3, 24), "classifier.bias": torch.randn(3)}
    save_model(builders.model(), None, tmp_path / "hf", extra_tensors=head, extra_config=extra_config)
    first = albertine("convert", tmp_path / "hf", tmp_path / "g", "--to", "google")
    if pooling == "mean":
        message = "the layout google has no place for classifier.bias, classifier.weight. Add --lossy"
        assert first.code == 2 and message in on_one_line(first.err) and not (tmp_path / "g").exists()
        first = albertine("convert", tmp_path / "hf", tmp_path / "g", "--to", "google", "--lossy")
        assert "Left out: classifier.bias, classifier.weight, which the layout google" in on_one_line(
            first.out
        )
    assert first.code == 0
    assert albertine("convert", tmp_path / "g", tmp_path / "back").code == 0
    back = read_folder(tmp_path / "back")
    if pooling == "mean":
        assert not back.extra and task_of(back) is None and not labels_in(back.config)
    else:
        assert all(torch.equal(back.extra[name], x) for name, x in head.items())
        assert back.config == read_folder(tmp_path / "hf").config
        assert max_length_of(back) == 9 and labels_in(back.config) == names


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("kind", "to", "extra_config"),
    [
        ("causal", "xlnet-tf", {"objective": "causal"}),
        ("embed", "google", {"task": "embed", "pooling": "depths", "normalize": True, "max_length": 9}),
        ("embed", "lonepatient", {"task": "embed", "pooling": "depths", "normalize": True, "max_length": 9}),
        ("generate", "bert4keras", {"task": "generate", "max_length": 9}),
    ],
)
def test_what_a_model_was_made_for_goes_along_without_a_head(
    albertine: Command, tmp_path: Path, kind: str, to: str, extra_config: dict[str, Any]
) -> None:
    """Catches: a causal model read in a random order, an embedding model that makes other vectors."""
    model = xlnet_model({"lm"}, plan=SharingPlan.unshared(2)) if kind == "causal" else builders.model()
    save_model(model, None, tmp_path / "hf", extra_config={"albertine": extra_config})
    assert albertine("convert", tmp_path / "hf", tmp_path / "there", "--to", to).code == 0
    assert albertine("convert", tmp_path / "there", tmp_path / "back").code == 0
    for folder in ("there", "back"):
        for tree in (read_folder(tmp_path / folder).config, folder_config(tmp_path / folder)):
            assert extra_config.items() <= our_flags(tree).items()
    first, last = (json.loads((tmp_path / name / "config.json").read_text()) for name in ("hf", "back"))
    assert last == {name: first.get(name, value) for name, value in last.items()}


def test_the_head_of_squad_2_goes_along_with_its_threshold(albertine: Command, tmp_path: Path) -> None:
    model, family = builders.model(), AnswerOrNot(threshold=0.25)
    head = JointAnswer(model, seed=1).head
    extra_config = family.config("albert", 0.1)
    save_model(model, None, tmp_path / "hf", extra_tensors=head, extra_config=extra_config)
    refused = albertine("convert", tmp_path / "hf", tmp_path / "x", "--to", "lonepatient")
    assert refused.code == 2 and "lonepatient has no place for answer_class.dense_0.bias" in on_one_line(
        refused.err
    )
    assert albertine("convert", tmp_path / "hf", tmp_path / "g", "--to", "google").code == 0
    assert albertine("convert", tmp_path / "g", tmp_path / "back").code == 0
    first, last = (read_folder(tmp_path / name) for name in ("hf", "back"))
    assert last.config == first.config and our_flags(last.config)["threshold"] == 0.25
    assert last.extra.keys() == head.keys()
    assert all(torch.equal(last.extra[name], x) for name, x in head.items())


def test_what_makes_vectors_is_lost_only_with_lossy(albertine: Command, tmp_path: Path) -> None:
    """A whitening beside a causal model: it alone is left out, and only with --lossy."""
    model = xlnet_model({"lm"}, plan=SharingPlan.unshared(2))
    learned = objective_config({"kind": "causal"})
    files = {"whitening.safetensors": b"whatever"}
    save_model(model, None, tmp_path / "hf", extra_config=learned, extra_files=files)
    refused = albertine("convert", tmp_path / "hf", tmp_path / "x", "--to", "xlnet-tf")
    assert refused.code == 2 and "xlnet-tf has no place for whitening.safetensors" in on_one_line(refused.err)
    outcome = albertine("convert", tmp_path / "hf", tmp_path / "x", "--to", "xlnet-tf", "--lossy")
    assert outcome.code == 0 and "Left out: whitening.safetensors" in on_one_line(outcome.out)
    assert left_to_right(read_folder(tmp_path / "x"))


def test_a_head_is_left_out_whole_or_not_at_all(albertine: Command, tmp_path: Path) -> None:
    """Catches: tags by emissions alone that were tuned with a conditional random field."""
    head = {"classifier.weight": torch.ones(3, 24), "classifier.bias": torch.ones(3)}
    head |= {"crf.start": torch.ones(3)}
    save_model(
        builders.model(),
        None,
        tmp_path / "hf",
        extra_tensors=head,
        extra_config=head_config("albert", "tag", 0.1),
    )
    outcome = albertine("convert", tmp_path / "hf", tmp_path / "x", "--to", "lonepatient", "--lossy")
    assert "Left out: classifier.bias, classifier.weight, crf.start, which" in on_one_line(outcome.out)
    found = read_folder(tmp_path / "x")
    assert not found.extra and task_of(found) is None


def test_a_tokenizer_that_is_not_read_does_not_keep_the_weights(albertine: Command, tmp_path: Path) -> None:
    package.save(builders.model(), WordPieceTokenizer(PIECES), tmp_path / "m")
    file = tmp_path / "m" / "tokenizer_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"tokenizer_class": "BertJapaneseTokenizer"}))
    refused = albertine("convert", tmp_path / "m", tmp_path / "x")
    assert refused.code == 2 and "BertJapaneseTokenizer" in refused.err
    assert "Or add --without-tokenizer, and the model goes alone" in on_one_line(refused.err)
    outcome = albertine("convert", tmp_path / "m", tmp_path / "x", "--without-tokenizer")
    assert outcome.code == 0 and on_one_line(outcome.out).endswith("x: written, without a tokenizer")
    assert_same_model(package.load(tmp_path / "x"), builders.model())
    assert not list((tmp_path / "x").glob("*vocab*")) and not list((tmp_path / "x").glob("tokenizer*"))
