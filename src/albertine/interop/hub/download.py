"""Models of the Hugging Face hub by `owner/name`: in its cache on this machine, else downloaded.

The one file that uses the network. It fetches safetensors, JSON and vocabularies; no pickle, and no code.
"""

from __future__ import annotations

import functools
import os
import re
from contextlib import suppress
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath

from albertine.core.files import user_path
from albertine.core.released import suggestion
from albertine.errors import ModelError
from albertine.interop.pickled import PICKLED
from albertine.interop.sentence_transformers import DENSE, LAYERS, POOLING
from albertine.interop.weights import INDEX, PICKLES, SINGLE, read_json, weight_files

FILES = ("*.json", "*.safetensors", "*.model", "vocab*.txt", "README.md")
SECONDS = 10  # until a hub that does not answer is out of reach
FOLDERS = (".", POOLING, DENSE, LAYERS)  # the others are of sentence-transformers
NAME = re.compile(r"(?!.*\.\.)([a-z\d][\w.-]*/[a-z\d][\w.-]*)(?:@([\w-][\w./-]*))?", re.ASCII | re.IGNORECASE)


def is_hub_name(what: str) -> bool:
    """Whether a name that is no path here may be one of the hub: `owner/name` or `owner/name@revision`. Where
    `owner` is a folder here, it is a mistyped path."""
    return NAME.fullmatch(what) is not None and not os.path.isdir(what.partition("/")[0])


def hub_folder(what: str) -> Path:
    """The folder of a model of the hub: that in the cache if it is whole, although the hub may have a newer
    one; else downloaded into the cache. The folder's name is the commit.

    Args:
        what: `owner/name`, or `owner/name@revision` with a branch, a tag or a whole commit; default: main.

    Raises:
        ModelError: it is not available; the message has the reason, and how to get the folder otherwise.
    """
    parts = NAME.fullmatch(what)
    assert parts is not None
    name, revision = parts[1], parts[2] or "main"
    cached = _snapshot(name, revision)
    lack = "" if cached is None else _lack(cached)
    if cached is not None and not lack:
        return _completed(name, cached)
    try:
        folder = _downloaded(name, revision)
    except _NotFetched as why:
        there = f"not whole in the cache of the hub ({lack})" if lack else "not in the cache of the hub"
        raise ModelError(
            f"is no folder here and {there}, and was not downloaded: {why}",
            where=what,
            remedy=f"{suggestion(name, _cached())}Where the hub can be reached, `hf download {name} "
            f"--revision {revision} --local-dir FOLDER` fetches config.json, model.safetensors and the "
            "tokenizer (spiece.model, vocab.txt, tokenizer.json); name that FOLDER",
        ) from why
    if lack := _lack(folder):
        raise ModelError(f"holds no model that can be read ({lack})", where=what)
    return folder


def commit_of(folder: Path) -> str | None:
    """The commit of the hub that a folder of its cache holds; None for any other folder."""
    return folder.name if folder.parent.name == "snapshots" else None


def cache() -> Path:
    """The cache folder of huggingface_hub."""
    above = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    home = os.environ.get("HF_HOME") or f"{above}/huggingface"
    chosen = os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE") or f"{home}/hub"
    return user_path(os.path.expandvars(chosen))


def _cached() -> list[str]:
    """The models that are in the cache, as `owner/name`."""
    return [
        folder.name.removeprefix("models--").replace("--", "/") for folder in cache().glob("models--*--*")
    ]


def _snapshot(name: str, revision: str) -> Path | None:
    """The folder of a revision in the cache, which may be incomplete; None if there is none."""
    storage = cache() / f"models--{name.replace('/', '--')}"
    ref = storage / "refs" / revision
    folder = storage / "snapshots" / (ref.read_text(encoding="utf-8").strip() if ref.is_file() else revision)
    return folder if folder.is_dir() else None


@functools.cache
def _completed(name: str, snapshot: Path) -> Path:
    """A snapshot with the rest of its commit, where the hub can be reached: other programs fetch what they
    read themselves, and may leave out the vocabulary, or how vectors are made. A process that names a model
    many times tries once."""
    if not _mark(snapshot).is_file():
        with suppress(_NotFetched, ModelError):
            _downloaded(name, snapshot.name)
    return snapshot


def _mark(snapshot: Path) -> Path:
    """The file that is there once a snapshot has all that is read here."""
    return snapshot.parent.parent / f".albertine-{snapshot.name}"


def _lack(folder: Path) -> str:
    """The reason why a folder is not a complete model; empty if it is."""
    try:
        weight_files(folder)
        read_json(folder / "config.json")
    except ModelError as error:
        return error.what if error.where == folder else f"{Path(str(error.where)).name} {error.what}"
    return ""


class _NotFetched(Exception):
    """Why nothing came from the hub."""


def _downloaded(name: str, revision: str) -> Path:
    """Download the files of a model that Albertine reads into the cache.

    Raises:
        _NotFetched: huggingface_hub is missing, there is no network, it is disabled, or the hub refuses.
        ModelError: its weights are not in safetensors; nothing was downloaded.
    """
    try:
        from huggingface_hub import HfApi, errors, snapshot_download
    except ImportError as missing:
        raise _NotFetched("huggingface_hub is missing (pip install 'albertine[hub]')") from missing
    try:
        info = HfApi().model_info(name, revision=revision, timeout=SECONDS)
        files = [file.rfilename for file in info.siblings or ()]
        _check_weights(name, files)
        wanted = [file for file in files if _is_read(PurePosixPath(file))]
        folder = Path(snapshot_download(name, revision=revision, allow_patterns=wanted, cache_dir=cache()))
    except ModelError:
        raise
    except errors.OfflineModeIsEnabled as error:
        raise _NotFetched("HF_HUB_OFFLINE is set") from error
    except errors.RevisionNotFoundError as error:
        raise _NotFetched(f"it has no revision `{revision}`") from error
    except errors.GatedRepoError as error:
        raise _NotFetched(
            "its owner grants access on request, on its page, after which `hf auth login` is needed"
        ) from error
    except errors.RepositoryNotFoundError as error:
        raise _NotFetched("the hub has no model of that name, or shows it only to some") from error
    except Exception as error:  # whatever the HTTP library of the day raises where there is no network
        raise _NotFetched(f"the hub was not reached ({str(error).partition(chr(10))[0]})") from error
    with suppress(OSError):  # of a cache that others may write alone
        _mark(folder).touch()
    return folder


def _is_read(file: PurePosixPath) -> bool:
    return str(file.parent) in FOLDERS and any(fnmatch(file.name, pattern) for pattern in FILES)


def _check_weights(name: str, files: list[str]) -> None:
    if SINGLE in files or INDEX in files:
        return
    pickled = sorted(file for file in files if PurePosixPath(file).suffix in PICKLES)
    only = f", only {pickled[0]}, a format that can run code when it is read" if pickled else ""
    raise ModelError(
        f"has no weights in safetensors{only}",
        where=name,
        remedy=f"If you want it all the same, `hf download {name} --local-dir FOLDER` and name that FOLDER: "
        f"its {PICKLED} is read in a process of its own, which runs nothing of it",
    )
