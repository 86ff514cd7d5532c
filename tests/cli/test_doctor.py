"""`albertine doctor --full` of a model: the head of its task and its vocabulary are read too."""

from __future__ import annotations

from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from albertine.cli.checkup import machine
from albertine.interop.heads import head_config
from albertine.interop.huggingface.folders import save_model
from albertine.interop.tensorflow.checkpoints import save_checkpoint
from albertine.model.backend.autotune import KernelChoice
from albertine.model.model import Model
from albertine.tokenizers.wordpiece import WordPieceTokenizer
from tests.cli.conftest import Command
from tests.interop.test_google import PIECES
from tests.model import builders
from tests.toy import toy_corpus


def tuned(folder: Path) -> Path:
    """A classifier with its vocabulary."""
    head = {"classifier.weight": torch.ones(2, 24), "classifier.bias": torch.zeros(2)}
    extra_config = head_config("albert", "classify", 0.1, names=("bad", "good"), kind="single")
    model, pieces = builders.model(), WordPieceTokenizer(PIECES)
    save_model(model, pieces, folder, extra_tensors=head, extra_config=extra_config)
    return folder


def diverged(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    tensors["classifier.weight"][0, 0] = float("nan")
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def garbage(folder: Path) -> None:
    (folder / "vocab.txt").unlink()
    (folder / "spiece.model").write_bytes(b"garbage")


def foreign(folder: Path) -> None:
    (folder / "vocab.txt").write_text("\n".join([*PIECES, *(f"word{i}" for i in range(50))]))


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (diverged, "classifier.weight holds values that are not finite. The training that made it diverged"),
        (garbage, "spiece.model: "),
        (foreign, "has 53 word vectors, and its tokenizer has 84 tokens"),
    ],
)
def test_the_files_of_inference_are_checked_too(
    albertine: Command, tmp_path: Path, damage: Callable[[Path], None], words: str
) -> None:
    """Catches: `every number finite` of a folder that no predictor can use."""
    folder = tuned(tmp_path / "tuned")
    whole = albertine("doctor", "--full", folder)
    assert whole.code == 0 and "and a vocabulary that fits, every number finite" in whole.out
    damage(folder)
    outcome = albertine("doctor", "--full", folder)
    assert outcome.code == 2 and words in outcome.err and str(folder) in outcome.err and not outcome.out


def test_a_model_without_a_vocabulary_is_whole(albertine: Command, tmp_path: Path) -> None:
    save_model(builders.model(), None, tmp_path / "m")
    save_checkpoint(builders.model(), WordPieceTokenizer(PIECES), tmp_path / "google", "google")
    outcome = albertine("doctor", "--full", tmp_path / "m", tmp_path / "google")
    alone, both = outcome.out.splitlines()
    assert outcome.code == 0 and "vocabulary" not in alone and "vocabulary" in both


def test_a_run_without_its_checkpoints_is_a_run(albertine: Command, tmp_path: Path) -> None:
    """As after deleting them to save space, or for a run killed before its first one."""
    folder = tmp_path / "run"
    (folder / "final").mkdir(parents=True)
    (folder / "settings.yaml").write_text("name: run\n")
    save_model(Model(builders.config(), {"mlm"}), None, folder / "final")
    found = albertine("doctor", str(folder))
    assert found.code == 0 and "a run with 0 whole checkpoints; final: a model with" in found.out
    (folder / "final" / "model.safetensors").write_bytes(b"damaged")
    assert albertine("doctor", str(folder)).code == 2


def test_how_an_adapter_becomes_a_model_is_explained_everywhere(albertine: Command, tmp_path: Path) -> None:
    (tmp_path / "adapter").mkdir()
    (tmp_path / "adapter" / "adapter_config.json").write_text('{"peft_type": "LORA"}')
    rows = tmp_path / "rows.csv"
    rows.write_text("text,label\na,b\nb,a\n")
    task = [f"task.train={rows}", f"task.dev={rows}", "task.kind=single"]
    tuning = ["name=a", f"output={tmp_path}", f"encoder.folder={tmp_path / 'adapter'}", *task]
    for words in (["info", tmp_path / "adapter"], ["doctor", tmp_path / "adapter"], ["finetune", *tuning]):
        outcome = albertine(*words)
        assert outcome.code == 2 and "merge_and_unload" in outcome.err, outcome


def test_a_package_that_is_not_installed(albertine: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = metadata.version

    def version(name: str) -> str:
        if name == "albertine":
            raise metadata.PackageNotFoundError(name)
        return plain(name)

    monkeypatch.setattr(metadata, "version", version)
    assert albertine("doctor").code == 0


def test_the_choice_of_matrix_kernels_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes at which int8 gains nothing, and what training takes, included."""
    chosen = [
        KernelChoice("int8", "unsigned", "qlinear", 1.0, 2.0, ((256, 256), (1024, 256))),
        KernelChoice("training", "biases apart", "plain"),
    ]
    monkeypatch.setattr("albertine.model.backend.choices", lambda: chosen)
    facts = machine()
    assert facts["products in int8"] == (
        "unsigned (qlinear), 2.0 times as fast as without; it gains nothing for products of 256 to 256, "
        "1024 to 256 numbers, which stay as they are"
    )
    assert facts["training in bfloat16"] == "biases apart (plain)"


def test_both_splits_of_a_corpus_are_looked_at(albertine: Command, tmp_path: Path) -> None:
    copy = toy_corpus(tmp_path)
    assert albertine("doctor", copy).code == 0
    lost = next((copy / "heldout").glob("*.npy"))
    lost.unlink()
    outcome = albertine("doctor", copy)
    assert outcome.code == 2 and lost.name in outcome.err
