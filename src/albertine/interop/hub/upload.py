"""A model folder sent to the Hugging Face hub: what goes up, what keeps it from going, and one commit.

What goes up is named here. Everything else in a folder stays: checkpoints and logs of a run, text, settings
with the paths of a machine.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import fnmatch
from glob import escape
from os.path import isfile
from pathlib import Path

from albertine.errors import ModelError
from albertine.interop.exported_folder import REPORT, TRANSITIONS, is_export
from albertine.interop.hub.card import NAME, RESULTS, head_of
from albertine.interop.huggingface.config import encoder_in
from albertine.interop.huggingface.folders import read_folder
from albertine.interop.model_files import checkpoint_in
from albertine.interop.sentence_transformers import DENSE, LAYERS, POOLING
from albertine.interop.weights import PICKLES, read_json, weight_files
from albertine.model.config import EncoderConfig
from albertine.tokenizers.base import MODEL_FILE, VOCABULARY_FILE
from albertine.tokenizers.load import (
    FAST_FILE,
    check_tokenizer,
    has_vocabulary,
    load_tokenizer,
    vocabulary_file,
)

SENT = (
    "config.json",
    NAME,
    "LICENSE",
    "model.safetensors",
    "model-*-of-*.safetensors",
    "model.safetensors.index.json",
    "whitening.safetensors",
    VOCABULARY_FILE,
    MODEL_FILE,
    FAST_FILE,
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "modules.json",
    "sentence_bert_config.json",
    "config_sentence_transformers.json",
    f"{POOLING}/config.json",
    f"{DENSE}/config.json",
    f"{DENSE}/model.safetensors",
    f"{LAYERS}/config.json",
    f"{LAYERS}/model.safetensors",
    "export.json",
    "onnx/*.onnx",
    "onnx/*.onnx.data",
    "openvino/*.xml",
    "openvino/*.bin",
    "model.gguf",
    "torch/model*.pt2",
    TRANSITIONS,
    "scores.json",
    "curve.csv",
    "curve.png",
    f"{RESULTS}/*.yaml",
)
"""Paths in a model folder that are sent, of those that are there, beside a vocabulary of another name."""
_TEXTS = (".json", ".md", ".yaml", ".csv", ".txt", "")
_SECRET = re.compile(
    r"\bhf_[A-Za-z0-9]{20,}\b|\b(?:AKIA|ASIA)[A-Z0-9]{16}\b|-----BEGIN [A-Z ]*PRIVATE KEY-----"
)
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


@dataclass(frozen=True)
class UploadPlan:
    """The files of an upload.

    Attributes:
        files: path in the folder and size in bytes. left: paths that are not uploaded.
    """

    folder: Path
    files: tuple[tuple[str, int], ...]
    left: tuple[str, ...]

    @property
    def size(self) -> int:
        return sum(size for _, size in self.files)


class UploadFailed(ModelError):
    """Nothing was uploaded: there is no network, token or permission."""


def plan_upload(folder: Path) -> UploadPlan:
    """Check a model folder and list the files to upload.

    Raises:
        ModelError: it does not load, or of an export a file is missing; its tokenizer is missing or does not
            fit, it has no card or one without a licence, a file is a link out of it or holds a secret.
    """
    _in_order(folder)
    vocabulary = vocabulary_file(folder)
    sent: list[tuple[str, int]] = []
    left: list[str] = []
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_dir() and not path.is_symlink():
            continue
        usual = any(fnmatch(name, pattern) and name.count("/") == pattern.count("/") for pattern in SENT)
        if usual or path == vocabulary:
            _check_file(path, folder)
            sent.append((name, path.stat().st_size))
        else:
            left.append(name)
    return UploadPlan(folder, tuple(sent), tuple(left))


def _in_order(folder: Path) -> None:
    if checkpoint_in(folder) is not None:
        raise ModelError(
            "holds a checkpoint of TensorFlow, which programs that load from the hub do not read",
            where=folder,
            remedy=f"Send the folder that this writes: albertine convert {folder} NEW-FOLDER",
        )
    if not (folder / "config.json").is_file():
        raise ModelError("is no model folder", where=folder, remedy="Name the folder that holds config.json")
    exported = is_export(folder)
    encoder = _exported(folder) if exported else _loaded(folder)
    if not has_vocabulary(folder):
        raise ModelError(
            "has no tokenizer, without which it is useless", where=folder, remedy="Save it with its own"
        )
    check_tokenizer(encoder, load_tokenizer(folder), folder)
    card = folder / NAME
    licence = (
        head_of(card.read_text(encoding="utf-8", errors="replace")).get("license") if card.is_file() else None
    )
    if not licence or licence == "unknown":
        raise ModelError(
            f"has no {NAME} that states a licence",
            where=folder,
            remedy="Put the card of the model that it was made from there"
            if exported
            else f"Write one: albertine card {folder} --licence apache-2.0, or whatever it is",
        )


def _loaded(folder: Path) -> EncoderConfig:
    """The encoder of a model folder, which loads."""
    weight_files(folder)  # its message has the remedy where weights are pickled
    return read_folder(folder).model.config


def _exported(folder: Path) -> EncoderConfig:
    """The encoder of an export, whose files are all there."""
    files = read_json(folder / REPORT).get("files")
    for name in files if isinstance(files, dict) else ():
        if not isfile(folder / name):
            what = f"is an export without its {name}"
            raise ModelError(what, where=folder, remedy="Export the model again")
    return encoder_in(read_json(folder / "config.json"), folder / "config.json")[1]


def _check_file(path: Path, folder: Path) -> None:
    if not path.resolve().is_relative_to(folder.resolve()):
        raise ModelError(
            "is a link to a file outside the folder", where=path, remedy="Put a copy in its place"
        )
    if path.suffix in PICKLES and path.parent.name != "openvino":
        raise ModelError("is a pickle, which can run code when it is loaded", where=path)
    if path.suffix in _TEXTS and _SECRET.search(path.read_text(encoding="utf-8", errors="replace")):
        raise ModelError("holds what looks like a token or a key", where=path, remedy="Take it out")


def upload(what: UploadPlan, name: str, *, private: bool = False, revision: str | None = None) -> str:
    """Send a shipment to the hub in one commit; makes the model's place there if there is none.

    Args:
        name: `owner/name`. private: whether a new place is. revision: a branch, made if there is none.

    Returns:
        Where the commit can be looked at.

    Raises:
        NotSent: with the reason.
        ModelError: the name is none.
    """
    if not _NAME.fullmatch(name):
        raise ModelError("is no name of the hub", where=name, remedy="Write it as OWNER/NAME")
    try:
        from huggingface_hub import HfApi, constants, errors, get_token
    except ImportError as missing:
        raise _not_sent(name, "huggingface_hub is missing (pip install 'albertine[hub]')") from missing
    if constants.HF_HUB_OFFLINE:
        raise _not_sent(name, "HF_HUB_OFFLINE is set")
    if not get_token():
        raise _not_sent(name, "there is no token of the hub (`hf auth login`, or HF_TOKEN)")
    api = HfApi()
    try:
        api.create_repo(name, private=private, exist_ok=True)
        if revision is not None:
            api.create_branch(name, branch=revision, exist_ok=True)
        done = api.upload_folder(
            repo_id=name,
            folder_path=what.folder,
            revision=revision,
            allow_patterns=[escape(file) for file, _ in what.files],
            commit_message="Model of Albertine",
        )
    except errors.HfHubHTTPError as error:
        status = 0 if error.response is None else int(error.response.status_code)
        why = {401: "the token is not valid", 403: "the token may not write there"}.get(status)
        raise _not_sent(name, why or f"the hub refused it ({_first(error)})") from error
    except Exception as error:  # whatever the HTTP library of the day raises where there is no network
        raise _not_sent(name, f"the hub was not reached ({_first(error)})") from error
    return str(done.commit_url)


def _first(error: Exception) -> str:
    return next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)[:200]


def _not_sent(name: str, why: str) -> UploadFailed:
    return UploadFailed(
        f"nothing was sent: {why}",
        where=name,
        remedy="What would be sent is listed above. Give the command again where there are network and token",
    )
