"""A model of the hub is had by `owner/name`: from its cache, else from the hub, else there is one message."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import albertine
from albertine.errors import ModelError
from albertine.interop.hub.download import _completed, cache, commit_of
from albertine.interop.model_names import model_folder
from albertine.tasks.predictor import Predictor
from tests import stand_in
from tests.hub import COMMIT, OTHER, Hub, contents, keep, serving

constants = pytest.importorskip("huggingface_hub.constants")
NAME = "someone/a-model"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return stand_in.put(tmp_path_factory.mktemp("model"), "en")


@pytest.fixture(scope="module")
def files(model: Path) -> dict[str, bytes]:
    return contents(model)


@pytest.fixture(autouse=True)
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache, empty; no network; a working directory with nothing in it."""
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.delenv("HUGGINGFACE_HUB_CACHE", raising=False)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    return tmp_path / "hub"


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with serving(Hub()) as hub:
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        for name in ("HUGGINGFACE_CO_URL_TEMPLATE", "ENDPOINT"):
            monkeypatch.setattr(
                constants, name, getattr(constants, name).replace(constants.ENDPOINT, hub.url)
            )
        yield hub


def weights(model: torch.nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def refused(what: str) -> str:
    with pytest.raises(ModelError) as caught:
        albertine.load(what)
    with pytest.raises(ModelError) as also:
        Predictor(what)
    assert str(caught.value) == str(also.value)
    return str(caught.value)


def test_a_model_in_the_cache_needs_no_network(kept: Path, model: Path, files: dict[str, bytes]) -> None:
    snapshot = keep(kept, NAME, files)
    assert (snapshot / "config.json").is_symlink() and (snapshot / "config.json").is_file()
    assert torch.equal(weights(albertine.load(NAME)), weights(albertine.load(model)))
    assert albertine.load_tokenizer(NAME).fingerprint == albertine.load_tokenizer(model).fingerprint
    assert (Predictor(NAME).embed(["the old cat"]) == Predictor(model).embed(["the old cat"])).all()
    assert model_folder(Path(NAME)) == snapshot
    assert commit_of(model_folder(NAME)) == COMMIT and commit_of(model) is None


def test_the_rest_of_what_another_program_fetched_is_fetched_once(
    hub: Hub, kept: Path, files: dict[str, bytes]
) -> None:
    """transformers' AutoModel fetches neither vocabulary nor how vectors are made."""
    hub.models[NAME] = {**files, "modules.json": b"[]"}
    some = {name: files[name] for name in ("config.json", "model.safetensors")}
    snapshot = keep(kept, NAME, some)
    assert model_folder(NAME) == snapshot
    assert contents(snapshot) == hub.models[NAME] and not any("safetensors" in path for path in hub.requested)
    hub.requested.clear()
    hub.models.clear()
    _completed.cache_clear()  # as in another process
    assert model_folder(NAME) == snapshot and not hub.requested


def test_a_part_that_was_fetched_is_used_where_there_is_no_network(
    kept: Path, files: dict[str, bytes]
) -> None:
    snapshot = keep(kept, NAME, {name: files[name] for name in ("config.json", "model.safetensors")})
    assert model_folder(NAME) == snapshot and albertine.load(NAME).config.vocab_size


def test_a_revision_is_a_branch_or_a_commit(kept: Path, files: dict[str, bytes]) -> None:
    first = keep(kept, NAME, files)
    second = keep(kept, NAME, files, OTHER, ref="refs/pr/1")
    assert model_folder(NAME) == model_folder(f"{NAME}@main") == model_folder(f"{NAME}@{COMMIT}") == first
    assert model_folder(f"{NAME}@refs/pr/1") == model_folder(f"{NAME}@{OTHER}") == second
    assert "not in the cache of the hub" in refused(f"{NAME}@v2")


def test_a_folder_here_of_that_name_wins(kept: Path, files: dict[str, bytes]) -> None:
    keep(kept, NAME, files)
    albertine.save(albertine.load(NAME), albertine.load_tokenizer(NAME), NAME)
    assert model_folder(NAME) == Path(NAME)


@pytest.mark.parametrize(
    ("names", "where"),
    [
        ({}, "~/.cache/huggingface/hub"),
        ({"XDG_CACHE_HOME": "/x"}, "/x/huggingface/hub"),
        ({"XDG_CACHE_HOME": "/x", "HF_HOME": "~/y"}, "~/y/hub"),
        ({"HF_HOME": "/y", "HUGGINGFACE_HUB_CACHE": "/old"}, "/old"),
        ({"HF_HUB_CACHE": "/new", "HUGGINGFACE_HUB_CACHE": "/old"}, "/new"),
    ],
)
def test_the_cache_lies_where_the_hubs_programs_have_it(
    names: dict[str, str], where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("XDG_CACHE_HOME", "HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in names.items():
        monkeypatch.setenv(name, value)
    assert cache() == Path(where).expanduser()


def test_offline_the_message_explains_how_to_get_a_folder() -> None:
    message = refused("albert/albert-base-v2")
    assert "not in the cache of the hub, and was not downloaded: HF_HUB_OFFLINE is set" in message
    assert "`hf download albert/albert-base-v2 --revision main --local-dir FOLDER`" in message
    assert "config.json, model.safetensors and the tokenizer" in message


def test_without_the_library_the_message_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    assert "huggingface_hub is missing (pip install 'albertine[hub]')" in refused(NAME)


def test_without_the_library_the_cache_is_read(
    kept: Path, files: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    keep(kept, NAME, files)
    assert albertine.load(NAME).heads


@pytest.mark.parametrize(
    ("lost", "put", "lack"),
    [
        ("model.safetensors", {}, "holds no model.safetensors"),
        ("config.json", {}, "config.json is missing"),
        (
            "model.safetensors",
            {"pytorch_model.bin": b"x"},
            "only as pytorch_model.bin, a format that can run code",
        ),
        (
            "model.safetensors",
            {"model.safetensors.index.json": b'{"weight_map": {"a": "model-00001-of-00002.safetensors"}}'},
            "model-00001-of-00002.safetensors is missing",
        ),
    ],
)
def test_a_copy_in_the_cache_that_is_not_whole(
    kept: Path, files: dict[str, bytes], lost: str, put: dict[str, bytes], lack: str
) -> None:
    keep(kept, NAME, {name: content for name, content in files.items() if name != lost} | put)
    message = refused(NAME)
    assert f"not whole in the cache of the hub ({lack}" in message.replace("holds its weights ", "")
    assert "HF_HUB_OFFLINE is set" in message and "hf download" in message


def test_a_link_whose_blob_is_gone_is_no_file(kept: Path, files: dict[str, bytes]) -> None:
    snapshot = keep(kept, NAME, files)
    os.remove(os.path.realpath(snapshot / "model.safetensors"))
    assert "holds no model.safetensors" in refused(NAME)


def test_near_names_of_the_cache_and_of_folders(kept: Path, files: dict[str, bytes]) -> None:
    keep(kept, NAME, files)
    assert f"Did you mean `{NAME}`?" in refused("someone/a-modle")
    Path("runs/reviews/best").mkdir(parents=True)
    assert "Did you mean `runs/reviews`?" in refused("rnus/reviws")


def test_a_path_in_an_existing_folder_is_not_requested(hub: Hub) -> None:
    Path("runs/reviews").mkdir(parents=True)
    hub.models["runs/reviws"] = {}
    message = refused("runs/reviws")
    assert "is neither a folder nor a released model. Did you mean `runs/reviews`?" in message


@pytest.mark.parametrize(
    "name", ["../up", "a/../b", "a/b/c", "/a/b", "a//b", "a/b@", "a/b@../c", "a/b@c/../d", "./a", "甲/乙"]
)
def test_what_is_no_name_of_the_hub(name: str, hub: Hub) -> None:
    assert "is neither a folder nor a released model" in refused(name)


def test_what_is_fetched_is_read_from_then_on(
    hub: Hub, kept: Path, model: Path, files: dict[str, bytes]
) -> None:
    hub.models[NAME] = files | {
        "pytorch_model.bin": b"a pickle",
        "modeling.py": b"code",
        "onnx/model.onnx": b"a graph",
        "checkpoint-5/model.safetensors": b"another",
        "1_Pooling/config.json": b"{}",
    }
    folder = model_folder(NAME)
    assert folder == kept / "models--someone--a-model" / "snapshots" / COMMIT
    assert set(hub.requested) == set(contents(folder)) == set(files) | {"1_Pooling/config.json"}
    assert torch.equal(weights(albertine.load(NAME)), weights(albertine.load(model)))
    count = len(hub.requested)
    hub.models.clear()
    assert model_folder(NAME) == model_folder(f"{NAME}@{COMMIT}") == folder and len(hub.requested) == count


def test_a_copy_that_is_not_whole_is_filled_up(hub: Hub, kept: Path, files: dict[str, bytes]) -> None:
    hub.models[NAME] = files
    keep(kept, NAME, {"config.json": files["config.json"]})
    assert contents(model_folder(NAME)) == files


def test_weights_that_are_pickled_are_not_fetched(hub: Hub, kept: Path, files: dict[str, bytes]) -> None:
    hub.models[NAME] = {"config.json": files["config.json"], "pytorch_model.bin": b"a pickle"}
    message = refused(NAME)
    assert "has no weights in safetensors, only pytorch_model.bin, a format that can run code" in message
    assert f"`hf download {NAME} --local-dir FOLDER` and name that FOLDER" in message
    assert hub.requested == [] and not kept.exists()
    hub.models[NAME] = {"config.json": files["config.json"]}
    assert "has no weights in safetensors. If you" in refused(NAME)


def test_what_the_hub_does_not_have(hub: Hub, files: dict[str, bytes]) -> None:
    assert "the hub has no model of that name" in refused(NAME)
    hub.models[NAME] = files
    assert "it has no revision `v2`" in refused(f"{NAME}@v2")
    hub.gated.add(NAME)
    assert "its owner grants access on request" in refused(NAME)


def test_a_hub_that_is_not_reached(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{free.getsockname()[1]}")
        message = refused(NAME)
    assert "was not downloaded: the hub was not reached (" in message and "hf download" in message
