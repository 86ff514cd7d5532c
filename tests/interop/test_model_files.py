"""Which files make a model, in every layout: what changes with the weights, and what wins over a graph."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from albertine.errors import ModelError
from albertine.interop.exported_folder import is_exported
from albertine.interop.huggingface.folders import save_model
from albertine.interop.huggingface.lonepatient import save_lonepatient
from albertine.interop.model_files import checkpoint_in, digest_of, files_of_model
from albertine.interop.pickled import PICKLED, PICKLED_INDEX
from albertine.interop.tensorflow.checkpoints import NAME, save_checkpoint
from albertine.model.model import Model
from albertine.tasks.predictor import Predictor
from albertine.tokenizers.wordpiece import WordPieceTokenizer
from tests.interop.test_roformer import PIECES
from tests.model import builders

GRAPH = "onnx/model.onnx"


def safetensors(model: Model, folder: Path) -> None:
    save_model(model, WordPieceTokenizer(PIECES), folder)


def pickled(model: Model, folder: Path) -> None:
    save_lonepatient(model, WordPieceTokenizer(PIECES), folder)


def shards(model: Model, folder: Path) -> None:
    pickled(model, folder)
    state = torch.load(folder / PICKLED, weights_only=True)
    (folder / PICKLED).unlink()
    files = {name: f"pytorch_model-{len(name) % 2 + 1:05d}-of-00002.bin" for name in state}
    for file in set(files.values()):
        torch.save({name: x for name, x in state.items() if files[name] == file}, folder / file)
    (folder / PICKLED_INDEX).write_text(json.dumps({"weight_map": files}))


def google(model: Model, folder: Path) -> None:
    save_checkpoint(model, WordPieceTokenizer(PIECES), folder, "google")


def named(model: Model, folder: Path) -> None:
    """With a file name without `ckpt`."""
    google(model, folder)
    (folder / "checkpoint").unlink()
    for file in folder.glob(f"{NAME}.*"):
        file.rename(folder / file.name.replace(NAME, "mine"))


def tfhub(model: Model, folder: Path) -> None:
    google(model, folder)
    for name in ("assets", "variables"):
        (folder / name).mkdir()
    for file in filter(Path.is_file, folder.glob("*")):
        if file.name.startswith(NAME):
            file.rename(folder / "variables" / file.name.replace(NAME, "variables"))
        elif file.name != "checkpoint":
            file.rename(folder / "assets" / file.name)
    (folder / "checkpoint").unlink()


LAYOUTS: dict[str, Callable[[Model, Path], None]] = {
    f.__name__: f for f in (safetensors, pickled, shards, google, named, tfhub)
}
each = pytest.mark.parametrize("layout", LAYOUTS)


@each
def test_other_weights_or_words_make_another_model(layout: str, tmp_path: Path) -> None:
    """Catches: a table that continues with another model's answers; a TF-Hub folder that is not
    recognised."""
    for name, seed in (("one", 1), ("other", 2)):
        LAYOUTS[layout](builders.model(seed=seed), tmp_path / name)
    shutil.copytree(tmp_path / "one", tmp_path / "same")
    for identity in (lambda folder: Predictor(folder, precision="float32").fingerprint, digest_of):
        one, other, same = (identity(tmp_path / name) for name in ("one", "other", "same"))
        assert one == same != other
    places = (tmp_path / "same", tmp_path / "same" / "assets")
    (config,) = (p for place in places for p in place.glob("*config.json") if "tokenizer" not in p.name)
    before = digest_of(tmp_path / "same")
    config.write_text(config.read_text() + "\n")
    assert digest_of(tmp_path / "same") != before
    assert config in files_of_model(tmp_path / "same")


def test_of_several_checkpoints_the_chosen_one_counts(tmp_path: Path) -> None:
    google(builders.model(), tmp_path)
    known = digest_of(tmp_path)
    for end in ("index", "data-00000-of-00001"):
        shutil.copy(tmp_path / f"{NAME}.{end}", tmp_path / f"older.{end}")
    (tmp_path / f"{NAME}.meta").write_bytes(b"the graph of its training")
    (tmp_path / "eval").mkdir()
    (tmp_path / "eval" / "events").write_bytes(b"x")
    assert digest_of(tmp_path) == known
    (tmp_path / "checkpoint").unlink()
    with pytest.raises(ModelError, match="several checkpoints"):
        files_of_model(tmp_path)


@each
def test_weights_win_over_a_graph(layout: str, tmp_path: Path) -> None:
    """As in old clones of the hub, which have a graph beside pickled weights."""
    LAYOUTS[layout](builders.model(), tmp_path)
    (tmp_path / "onnx").mkdir()
    (tmp_path / GRAPH).write_bytes(b"not ours")
    assert not is_exported(tmp_path)
    found = Predictor(tmp_path, precision="float32").model
    assert isinstance(found, Model) and found.heads == builders.model().heads


def test_a_graph_alone_is_exported(tmp_path: Path) -> None:
    (tmp_path / "onnx").mkdir()
    (tmp_path / GRAPH).write_bytes(b"x")
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "faiss.index").write_bytes(b"x")  # of vectors
    (tmp_path / "head.safetensors").write_bytes(b"x")
    assert is_exported(tmp_path)
    names = [path.relative_to(tmp_path).as_posix() for path in files_of_model(tmp_path)]
    assert names == ["config.json", "head.safetensors", GRAPH]


def test_pickled_weights_beside_a_checkpoint_win_too(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "albert"}')
    (tmp_path / "pytorch_model.bin").write_bytes(b"x")
    for name in ("model.ckpt.index", "model.ckpt.data-00000-of-00001"):
        (tmp_path / name).write_bytes(b"x")
    assert checkpoint_in(tmp_path) is None
    (tmp_path / "pytorch_model.bin").unlink()
    assert checkpoint_in(tmp_path) == tmp_path / "model.ckpt"
