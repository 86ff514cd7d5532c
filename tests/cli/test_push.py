"""A model folder is checked, listed and sent to the hub in one commit; nothing else of a run ever is."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import albertine as package
from albertine.errors import ModelError
from albertine.interop.hub import upload as hub_upload
from albertine.interop.hub.upload import plan_upload, upload
from tests import stand_in
from tests.cli.conftest import Command
from tests.hub import Hub, contents, serving

constants = pytest.importorskip("huggingface_hub.constants")
NAME = "someone/a-model"


@pytest.fixture
def folder(tmp_path: Path, albertine: Command) -> Path:
    """A model with a card, in a run that holds more than should be seen."""
    run = tmp_path / "run"
    made = stand_in.put(tmp_path, "en")
    for place in ("best", "checkpoints/step-5"):
        (run / place).parent.mkdir(parents=True, exist_ok=True)
        package.save(package.load(made), package.load_tokenizer(made), run / place)
    (run / "settings.yaml").write_text("name: run\nseed: 1\n")
    (run / "train.csv").write_text("a text of somebody\n")
    assert albertine("card", run, "--licence", "apache-2.0").code == 0
    return run / "best"


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    with serving(Hub()) as hub:
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        for name in ("HUGGINGFACE_CO_URL_TEMPLATE", "ENDPOINT"):
            monkeypatch.setattr(
                constants, name, getattr(constants, name).replace(constants.ENDPOINT, hub.url)
            )
        monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))
        monkeypatch.setenv("HF_TOKEN", hub.token)
        yield hub


def test_a_folder_goes_up_in_one_commit_and_comes_down_the_same(
    albertine: Command, hub: Hub, folder: Path
) -> None:
    (folder / "notes.txt").write_text("mine alone")
    (folder / "training_args.bin").write_bytes(b"\x80")
    done = albertine("push", folder.parent, NAME, "--private")
    assert done.code == 0, done.err
    sent = hub.models[NAME]
    left = {"notes.txt", "training_args.bin"}
    assert sent == {name: content for name, content in contents(folder).items() if name not in left}
    assert {"config.json", "model.safetensors", "README.md", "tokenizer.json"} <= sent.keys()
    assert len(hub.commits) == 1 and hub.private == {NAME} and f"{hub.url}/{NAME}/commit/" in done.out
    assert "stays here: notes.txt, training_args.bin" in done.out
    assert hub.commits[0]["revision"] == "main"
    again = albertine("push", folder, NAME, "--revision", "v2", "--json")
    assert again.code == 0 and json.loads(again.out)["files"].keys() == sent.keys(), again.err
    assert hub.branches == {"v2"} and hub.commits[1]["revision"] == "v2"
    same = package.load(NAME)
    ours = package.load(folder)
    assert all(torch.equal(x, same.state_dict()[name]) for name, x in ours.state_dict().items())


def test_a_dry_run_lists_what_would_go(albertine: Command, hub: Hub, folder: Path) -> None:
    done = albertine("push", folder, NAME, "--dry-run", "--json")
    assert done.code == 0, done.err
    printed = json.loads(done.out)
    assert (
        printed["sent"] is None
        and printed["files"]["model.safetensors"] == (folder / "model.safetensors").stat().st_size
    )
    assert not hub.models and not hub.commits
    shown = albertine("push", folder, NAME, "--dry-run")
    assert "model.safetensors" in shown.out and "nothing was sent" in shown.out


@pytest.mark.parametrize(
    ("trouble", "message"),
    [
        ("offline", "HF_HUB_OFFLINE is set"),
        ("token", "there is no token of the hub"),
        ("wrong token", "the token is not valid"),
        ("other owner", "the token may not write there"),
        ("no network", "the hub was not reached"),
    ],
)
def test_where_it_cannot_be_sent_the_list_is_shown_and_one_message(
    trouble: str, message: str, albertine: Command, hub: Hub, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if trouble == "offline":
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    elif trouble == "token":
        monkeypatch.setattr("huggingface_hub.get_token", lambda: None)
    elif trouble == "wrong token":
        monkeypatch.setenv("HF_TOKEN", "hf_of_nobody")
    elif trouble == "no network":
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{free.getsockname()[1]}")
    done = albertine("push", folder, "anyone/x" if trouble == "other owner" else NAME)
    assert done.code == 2 and done.err.count("\n") == 1 and message in done.err
    assert "model.safetensors" in done.out and not hub.commits


def test_what_is_not_in_order_is_not_sent(albertine: Command, folder: Path, tmp_path: Path) -> None:
    def refused(message: str) -> None:
        with pytest.raises(ModelError, match=message):
            plan_upload(folder)

    card = (folder / "README.md").read_text()
    (folder / "README.md").write_text(card.replace("license: apache-2.0", "license: unknown"))
    refused("states a licence. Write one: albertine card")
    (folder / "README.md").write_text(card + "\nmy token is hf_" + "a1B2" * 9)
    refused("README.md: holds what looks like a token")
    (folder / "README.md").write_text(card)
    secret = tmp_path / "secret.json"
    secret.write_text("{}")
    (folder / "special_tokens_map.json").unlink(missing_ok=True)
    (folder / "special_tokens_map.json").symlink_to(secret)
    refused("is a link to a file outside the folder")
    (folder / "special_tokens_map.json").unlink()
    assert not {"checkpoints", "train.csv", "settings.yaml"} & {name for name, _ in plan_upload(folder).files}
    for file in ("vocab.txt", "tokenizer.json", "tokenizer_config.json"):
        (folder / file).unlink(missing_ok=True)
    refused("has no tokenizer")
    (folder / "model.safetensors").unlink()
    refused("holds no model.safetensors")
    with pytest.raises(ModelError, match="is no name of the hub"):
        upload(hub_upload.UploadPlan(folder, (), ()), "no owner")


def test_an_export_is_sent_with_the_card_of_its_model(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "export.json").write_text(json.dumps({"files": {"onnx/model.onnx": {}}}))
    with pytest.raises(ModelError, match=r"is an export without its onnx/model\.onnx"):
        plan_upload(folder)
    (folder / "onnx").mkdir()
    (folder / "onnx" / "model.onnx").write_bytes(b"a graph")
    sent = dict(plan_upload(folder).files)
    assert {"onnx/model.onnx", "export.json", "config.json", "vocab.txt", "README.md"} <= sent.keys()
    (folder / "README.md").unlink()
    with pytest.raises(
        ModelError, match=r"states a licence\. Put the card of the model that it was made from"
    ):
        plan_upload(folder)


def test_a_vocabulary_of_another_name_is_sent(folder: Path) -> None:
    for file in ("tokenizer.json", "tokenizer_config.json", "spiece.model", "vocab.txt"):
        (folder / file).unlink(missing_ok=True)
    pieces = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b")
    (folder / "vocab-en.txt").write_text("".join(f"{piece}\n" for piece in pieces))
    (folder / "added_tokens.json").write_text(json.dumps({"[E1]": 7}))
    assert {"vocab-en.txt", "added_tokens.json"} <= dict(plan_upload(folder).files).keys()


def test_what_is_named_as_vocabularies_are_stays(folder: Path) -> None:
    """Catches: a pickle of gensim, or a list of customers, that goes up with the model."""
    (folder / "other.model").write_bytes(b"\x80\x04")
    (folder / "vocab-notes.txt").write_text("of somebody\n")
    found = plan_upload(folder)
    assert {"other.model", "vocab-notes.txt"} <= set(found.left) and "vocab.txt" in dict(found.files)
