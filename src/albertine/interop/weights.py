"""Weight files, one or several shards: safetensors, or pickles by way of `pickled`, read with every check
that costs less than a wrong model."""

from __future__ import annotations

import json
import os.path
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from albertine.core.files import read_regular, resolve_folder
from albertine.errors import ModelError
from albertine.interop.pickled import PICKLED, PICKLED_INDEX, as_safetensors

if TYPE_CHECKING:
    from torch import Tensor

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
WEIGHTS = (SINGLE, INDEX, PICKLED, PICKLED_INDEX)
"""Files that `open_weights` opens; a folder needs one of them."""
REPORT = "export.json"
"""The report of an export: its files, and their difference from the source."""
MAX_JSON_BYTES = 20_000_000
SHOWN = 200
"""Most characters of a name from an untrusted file in messages."""
FLOATS = frozenset({"F16", "BF16", "F32", "F64"})
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
ADAPTER = "adapter_config.json"
KERAS = (".h5", ".hdf5", ".keras")


@dataclass(frozen=True)
class OpenWeights:
    """Tensors that are open but not yet read.

    Attributes:
        shapes: shape of every tensor by name. read: gives one of them.
    """

    shapes: Mapping[str, tuple[int, ...]]
    read: Callable[[str], Tensor]


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file of bounded size.

    Raises:
        ModelError: missing, too large, not JSON, or not an object.
    """
    path = resolve_folder(path.parent) / path.name
    if not path.is_file():
        raise ModelError(
            "is missing",
            where=path,
            remedy="Name the folder that holds config.json and model.safetensors; a broken copy lacks one",
        )
    if path.stat().st_size > MAX_JSON_BYTES:
        raise ModelError("is too large to be a configuration", where=path)
    try:
        tree = json.loads(
            read_regular(path, MAX_JSON_BYTES).decode("utf-8-sig")
        )  # editors of Windows write its mark
    except (ValueError, RecursionError, OSError) as error:
        raise ModelError(f"is not readable as JSON ({error})", where=path, remedy="Fetch it again") from error
    if not isinstance(tree, dict):
        raise ModelError("must hold one JSON object", where=path)
    return tree


@contextmanager
def open_weights(folder: Path) -> Iterator[OpenWeights]:
    """Open the weights of a model folder, one file or shards: its safetensors; where it has none, what
    torch.save pickled, which another process reads first.

    Raises:
        ModelError: no weights, a damaged file, a missing shard, an integer tensor, a pickle with more than
            tensors.
    """
    with ExitStack() as stack:
        shapes: dict[str, tuple[int, ...]] = {}
        readers: dict[str, Callable[[str], Tensor]] = {}
        pickled = _pickled_files(folder)
        files = stack.enter_context(as_safetensors(pickled)) if pickled else weight_files(folder)
        for number, path in enumerate(files):
            named = pickled[number] if pickled else path
            for name, shape, read in _open(path, stack, named):
                if name in shapes:
                    raise ModelError(f"{name} is in two shards", where=named)
                shapes[name], readers[name] = shape, read
        yield OpenWeights(shapes, lambda name: readers[name](name))


def _open(
    path: Path, stack: ExitStack, named: Path
) -> Iterator[tuple[str, tuple[int, ...], Callable[[str], Tensor]]]:
    """Name, shape and reader of every tensor of a file, which messages call `named`."""
    from safetensors import SafetensorError, safe_open

    try:
        file = stack.enter_context(safe_open(path, framework="pt"))
        for name in file.keys():  # noqa: SIM118 - not a dict
            piece = file.get_slice(name)
            if piece.get_dtype() not in FLOATS and not name.endswith("position_ids"):
                raise ModelError(
                    f"{name} is stored as {piece.get_dtype()}, weights are floating-point numbers",
                    where=named,
                )
            yield name, tuple(piece.get_shape()), file.get_tensor
    except (SafetensorError, OSError) as error:
        raise ModelError(
            f"is not a whole safetensors file ({error})",
            where=named,
            remedy="It is cut short or damaged; copy it again",
        ) from error


def weight_files(folder: Path) -> list[Path]:
    """The safetensors of a model folder; all are there.

    Raises:
        ModelError: there are none, or only pickled ones, or a shard is missing.
    """
    single, index = folder / SINGLE, folder / INDEX
    if single.is_file():
        return [single]
    if index.is_file():
        return _shards(folder, index)
    pickled = sorted(p.name for p in folder.iterdir() if p.suffix in PICKLES)
    if pickled:
        raise ModelError(
            f"holds its weights only as {pickled[0]}, a format that can run code when it is read",
            where=folder,
            remedy="Save it as safetensors, for example with save_pretrained of a recent transformers",
        )
    if (folder / REPORT).is_file():
        raise ModelError(
            f"is an export{_source(folder / REPORT)}, which has no weights",
            where=folder,
            remedy="Use the model that it was made from",
        )
    raise ModelError(f"holds no {SINGLE}", where=folder, remedy="Fetch the missing file")


def _source(report: Path) -> str:
    """The source in a report, for messages; empty if it has none or is damaged."""
    try:
        source = read_json(report).get("source")
    except ModelError:
        return ""
    name = source.get("name") if isinstance(source, dict) else None
    return f" of {name[:SHOWN]}" if isinstance(name, str) else ""


def refuse_keras(folder: Path) -> None:
    """Refuse a folder whose only weights are a file of Keras.

    Raises:
        ModelError: with a way to convert it.
    """
    files = sorted(path for path in folder.iterdir() if path.suffix in KERAS)
    if files and not any(path.suffix in (".safetensors", *PICKLES) for path in folder.iterdir()):
        raise ModelError(
            f"holds its weights only as {files[0].name}, a file of Keras, by the names of its layers",
            where=folder,
            remedy="Save them in bert4keras with save_weights_as_checkpoint, in transformers as safetensors; "
            "keras-xlnet has no other form, its models come from a checkpoint of XLNet, which is read",
        )


def refuse_adapter(folder: Path) -> None:
    """Refuse a folder with an adapter of peft, which is not added to the weights.

    Raises:
        ModelError: with a way to merge it.
    """
    if (folder / ADAPTER).is_file():
        raise ModelError(
            f"holds an adapter of peft ({ADAPTER}), which Albertine does not add to the weights",
            where=folder,
            remedy="Merge it with peft: PeftModel.from_pretrained(BASE, FOLDER).merge_and_unload()"
            ".save_pretrained(NEW), BASE being the model it was trained on, and put the tokenizer into NEW",
        )


def _pickled_files(folder: Path) -> list[Path]:
    """The pickled weights of a folder that has no safetensors; empty where there are none."""
    if any((folder / name).is_file() for name in (SINGLE, INDEX)):
        return []
    single, index = folder / PICKLED, folder / PICKLED_INDEX
    if single.is_file():
        return [single]
    return _shards(folder, index) if index.is_file() else []


def _shards(folder: Path, index: Path) -> list[Path]:
    """The files that an index names."""
    table = read_json(index).get("weight_map")
    if not isinstance(table, dict) or not all(isinstance(v, str) for v in table.values()):
        raise ModelError("has no weight_map of names to files", where=index)
    return [_shard(folder, name) for name in sorted(set(table.values()))]


def _shard(folder: Path, name: str) -> Path:
    # A name with a folder in it could point anywhere on the machine.
    if Path(name).name != name:
        raise ModelError(f"the index names a file outside the folder: {name[:SHOWN]}", where=folder)
    if not os.path.isfile(folder / name):  # which, unlike Path.is_file, takes any name
        where = folder / name[:SHOWN]
        raise ModelError("is missing, the index names it", where=where, remedy="Fetch every shard")
    return folder / name
