"""Writing a model folder so that a reader finds the old one or the new one, never a mixture."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Any

from albertine.core.files import replaced_folder
from albertine.errors import ModelError, SettingsError
from albertine.interop.config_values import our_flags
from albertine.interop.hub.card import NAME as README
from albertine.interop.hub.card import RESULTS, model_card
from albertine.interop.huggingface.config import read_model_type
from albertine.interop.pickled import PICKLED, PICKLED_INDEX
from albertine.interop.save_checks import SavableTokenizer
from albertine.interop.sentence_transformers import (
    DENSE,
    LAYERS,
    MODULES,
    POOLING,
    PROMPTS,
    TRANSFORMER,
    WHITENING,
)
from albertine.interop.weights import INDEX, SINGLE, read_json

if TYPE_CHECKING:
    from torch import Tensor

SAVED = (
    "config.json",
    "spiece.model",
    "tokenizer.json",
    "tokenizer_config.json",
    "vocab.txt",
    SINGLE,
    WHITENING,
    *(MODULES, TRANSFORMER, PROMPTS, POOLING, DENSE, LAYERS),
)
"""Files and folders that saving a model writes, besides its card; they decide what it computes."""
OURS = (
    *SAVED,
    README,
    RESULTS,
    "added_tokens.json",
    "special_tokens_map.json",
    "*.safetensors",
    INDEX,
    PICKLED,
    "pytorch_model-*.bin",
    PICKLED_INDEX,
    *("export.json", "onnx", "openvino", "torch", "model.gguf"),
    *("scores.json", "pruning.json", "corpus.json", "curve.csv", "curve.png"),
    *("settings.yaml", "settings-*.yaml", "environment.json"),
)
"""Files in a folder that belong to its model: weights in every format, configuration, and records of their
origin."""


def write_folder(
    folder: Path,
    tensors: Mapping[str, Tensor],
    config: Mapping[str, Any],
    tokenizer: SavableTokenizer | None,
    files: Mapping[str, bytes],
    *,
    parameters: int,
    pickled: bool = False,
) -> None:
    """Write beside, flush to the disk, then rename (`replaced_folder`).

    Args:
        parameters: how many the model has, for its card.
        pickled: the weights as torch.save writes them and by lonePatient's names, which its code alone loads.

    Files of another kind in a model folder that is replaced are carried over, and a person's part of its
    card; what is of the model that was there (`OURS`) is not.

    Raises:
        ModelError: `folder` is a file or holds no model, or the disk refuses.
    """
    import torch
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    if folder.exists() and not (folder.is_dir() and (not any(folder.iterdir()) or _of_a_model(folder))):
        raise ModelError(
            "exists and is not a model folder",
            where=folder,
            remedy="Name a new folder; nothing was overwritten",
        )
    try:
        with replaced_folder(folder) as beside:
            weights = beside / (PICKLED if pickled else SINGLE)
            if pickled:
                with weights.open("wb") as file:  # whose errors name the disk, unlike torch's own
                    torch.save(dict(tensors), file)
            else:
                save_file(dict(tensors), weights, metadata={"format": "pt"})
            text = json.dumps(config, indent=2, ensure_ascii=False) + "\n"
            (beside / "config.json").write_text(text, encoding="utf-8")
            # The library makes its file private; a model folder is as readable as any other.
            weights.chmod((beside / "config.json").stat().st_mode)
            before = folder / README
            old_card = before.read_text(encoding="utf-8", errors="replace") if before.is_file() else ""
            card = model_card(config, parameters, old_card, names="lonepatient" if pickled else "")
            (beside / README).write_text(card, encoding="utf-8")
            if tokenizer is not None:
                tokenizer.save(beside)
                fit_tokenizer(beside, config)
                if config["model_type"] == "modernbert":
                    # It has no segments, and transformers passes all outputs of the tokenizer to the model.
                    _set_tokenizer_value(beside, "model_input_names", ["input_ids", "attention_mask"])
            for name, content in files.items():
                (beside / name).parent.mkdir(exist_ok=True)
                (beside / name).write_bytes(content)
            carry_over(folder, beside)
    except (OSError, SafetensorError) as error:
        raise ModelError(
            f"cannot be written ({error})", where=folder, remedy="Free space or choose another folder"
        ) from error


def fit_tokenizer(folder: Path, config: Mapping[str, Any]) -> None:
    """Write the longest row that the model of a config.json reads to the tokenizer's files beside it, where
    transformers and its pipelines cut texts by it."""
    places: tuple[Mapping[str, Any], ...] = (config, config.get("encoder") or {}, our_flags(config))
    lengths = (values.get("max_position_embeddings") for values in places)
    if (longest := next(filter(None, lengths), None)) is not None:
        _set_tokenizer_value(folder, "model_max_length", longest)


def _set_tokenizer_value(folder: Path, name: str, value: object) -> None:
    file = folder / "tokenizer_config.json"
    if file.is_file():
        tree = json.loads(file.read_text(encoding="utf-8")) | {name: value}
        file.write_text(json.dumps(tree, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _of_a_model(folder: Path) -> bool:
    """Whether a folder's config.json is that of a model: by its content, or by weights beside it. Many other
    programs have a file of that name."""
    if not (folder / "config.json").is_file():
        return False
    if any(any(folder.glob(name)) for name in ("*.safetensors", "pytorch_model*.bin", "export.json")):
        return True
    try:
        read_model_type(read_json(folder / "config.json"))
    except (ModelError, SettingsError):
        return False
    return True


def carry_over(old: Path, new: Path, ours: Sequence[str] = OURS) -> None:
    """Copy what is of another kind, by name, from a folder that is replaced."""
    if not old.is_dir():
        return
    for path in old.iterdir():
        if any(fnmatch(path.name, pattern) for pattern in ours) or (new / path.name).exists():
            continue
        if path.is_dir():
            shutil.copytree(path, new / path.name, symlinks=True)
        else:
            shutil.copy2(path, new / path.name, follow_symlinks=False)
