"""Reading and writing of sentence-transformers' files, which describe how a folder turns texts into
vectors."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from albertine.core.files import read_regular
from albertine.errors import ModelError
from albertine.interop.config_values import our_flags
from albertine.interop.pickled import PICKLED
from albertine.interop.weights import MAX_JSON_BYTES, SINGLE, read_json
from albertine.model.config import Pooling

if TYPE_CHECKING:
    from torch import Tensor

    from albertine.model.config import EncoderConfig
    from albertine.model.task_model import TaskModel

MODULES = "modules.json"
POOLING, DENSE, LAYERS = "1_Pooling", "2_Dense", "1_WeightedLayerPooling"
AVERAGED = "WeightedLayerPooling"
"""The module that averages the outputs of all layers."""
TRANSFORMER = "sentence_bert_config.json"
PROMPTS = "config_sentence_transformers.json"
WHITENING = "whitening.safetensors"
MAX_MODULE = 1 << 28
"""Bytes of a file of a module."""
_NAMES = ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
"""Under which older releases kept `TRANSFORMER`."""
UNLIMITED = 1 << 30
_NOT_FELT = frozenset(
    {"max_length", "truncation", "padding", "pad_to_multiple_of", "return_tensors", "verbose"}
)
"""Tokenizer arguments that are supported or have no effect on vectors, as padding is masked."""
_UNCUT = (False, "do_not_truncate")
"""Values of `truncation` with which texts are read up to the positions of the model."""
_MODES: Mapping[Pooling, str] = {"mean": "pooling_mode_mean_tokens", "cls": "pooling_mode_cls_token"}
_LAST = "pooling_mode_lasttoken"
"""For [CLS] as the last token, as in XLNet: the mode "cls" is the first token."""
_OTHER_MODES = (
    "pooling_mode_max_tokens",
    "pooling_mode_mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens",
    _LAST,
)


@dataclass(frozen=True)
class VectorSettings:
    """How a folder turns texts into vectors.

    Attributes:
        pooling, normalize: as in `model.pooling`.
        max_length: tokens that are looked at, special ones included; None: as many as the model has
            positions.
        lower: texts are put in lower case before anything else.
    """

    pooling: Pooling = "mean"
    normalize: bool = False
    max_length: int | None = None
    lower: bool = False


def sentence_files(model: TaskModel, max_length: int | None = None) -> dict[str, bytes]:
    """The files, by path in the folder; none for a model that does not embed.

    Args:
        max_length: tokens that are looked at, special ones included; default as many as there are positions.
    """
    from albertine.model.task_model import Embedder, WhitenedEmbedder

    if not isinstance(model, Embedder | WhitenedEmbedder):
        return {}
    pooling = model.pooling if isinstance(model, Embedder) else "mean"
    every, config = pooling == "depths", model.base.config
    pooling = "mean" if every else pooling
    longest = config.max_position_embeddings
    own = _LAST if pooling == "cls" and config.summary == "last" else _MODES[pooling]
    modules, dense = [("Transformer", ""), ("Pooling", POOLING)], dict[str, bytes]()
    if every:
        modules.insert(1, (AVERAGED, LAYERS))
        dense = _layer_files(config)
    if isinstance(model, WhitenedEmbedder):
        modules.append(("Dense", DENSE))
        dense = _dense_files(model.mean, model.matrix)
    if model.normalize:
        modules.append(("Normalize", f"{len(modules)}_Normalize"))
    trees: dict[str, Any] = {
        MODULES: [
            {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
            for i, (kind, path) in enumerate(modules)
        ],
        f"{POOLING}/config.json": {"word_embedding_dimension": config.hidden_size}
        | _flags(own)
        | {"include_prompt": True},
        TRANSFORMER: {"max_seq_length": min(longest, max_length or longest), "do_lower_case": False}
        | ({"config_args": {"output_hidden_states": True}} if every else {}),
        PROMPTS: {
            "model_type": "SentenceTransformer",
            "prompts": {},
            "default_prompt_name": None,
            "similarity_fn_name": "cosine",
        },
    }
    return dense | {name: (json.dumps(tree, indent=2) + "\n").encode() for name, tree in trees.items()}


def _layer_files(config: EncoderConfig) -> dict[str, bytes]:
    """The files of the mean over the outputs of all layers, the embeddings included."""
    import safetensors.torch
    import torch

    depth = config.num_hidden_layers
    tree = {"word_embedding_dimension": config.hidden_size, "layer_start": 0, "num_hidden_layers": depth}
    weights = {"layer_weights": torch.ones(depth + 1, dtype=torch.float32)}
    return {
        f"{LAYERS}/config.json": (json.dumps(tree, indent=2) + "\n").encode(),
        f"{LAYERS}/model.safetensors": safetensors.torch.save(weights),
    }


def _dense_files(mean_H: Tensor, matrix_HK: Tensor) -> dict[str, bytes]:
    """The files of a dense layer that computes (x - m) W."""
    import safetensors.torch

    weight, bias = matrix_HK.detach().cpu().T.contiguous(), -(mean_H @ matrix_HK).detach().cpu()
    tree = {
        "in_features": weight.shape[1],
        "out_features": weight.shape[0],
        "bias": True,
        "activation_function": "torch.nn.modules.linear.Identity",
    }
    return {
        f"{DENSE}/config.json": (json.dumps(tree, indent=2) + "\n").encode(),
        f"{DENSE}/model.safetensors": safetensors.torch.save({"linear.weight": weight, "linear.bias": bias}),
    }


def read_vectors(folder: Path, *, last: bool = False) -> VectorSettings:
    """The embedding settings of a folder; by default the mean over all tokens.

    Args:
        last: whether [CLS] is the last token of its model.

    Raises:
        ModelError: the files are damaged, or require what cannot be computed here.
    """
    if not (folder / MODULES).is_file():
        return VectorSettings()
    kinds, path = _modules(folder / MODULES)
    pooling = _pooling(folder, path, last)
    settings = _transformer_settings(folder)
    if odd := _unsupported(settings):
        raise ModelError(
            f"calls the tokenizer with {', '.join(odd)} (processing_kwargs), which is not heeded here",
            where=folder / TRANSFORMER,
            remedy="Take that out there, and vectors are made without",
        )
    prompts = _object(folder / PROMPTS)
    if (prompt := prompts.get("default_prompt_name")) is not None:
        raise ModelError(
            f"puts the prompt `{prompt}` before every text",
            where=folder / PROMPTS,
            remedy="Set default_prompt_name to null there, and write the prompt into the texts",
        )
    if (size := prompts.get("truncate_dim")) is not None:
        raise ModelError(
            f"cuts every vector to its first {size} numbers",
            where=folder / PROMPTS,
            remedy="Set truncate_dim to null there, and cut the vectors; with a server send `dimensions`",
        )
    return VectorSettings(
        pooling, "Normalize" in kinds, _length(folder, settings), settings.get("do_lower_case") is True
    )


def makes_vectors(folder: Path) -> bool:
    """Whether a folder lists the modules by which texts become vectors; a cross-encoder lists its own too."""
    return (folder / MODULES).is_file() and not _is_cross_encoder(_object(folder / PROMPTS))


def _is_cross_encoder(prompts: Mapping[str, Any]) -> bool:
    return prompts.get("model_type") == "CrossEncoder"


def with_cross_encoder(tree: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The config.json of a folder with the sentence-transformers settings of a cross-encoder, since version 6
    in other files: its function and its prompt, under the name that they had in config.json before, what of
    its `processing_kwargs` cannot be heeded, under that name, and how many tokens it reads."""
    prompts = _object(folder / PROMPTS)
    if not _is_cross_encoder(prompts):
        return tree
    own = _transformer_settings(folder)
    settings = {name: prompts[name] for name in ("activation_fn", "default_prompt_name") if prompts.get(name)}
    settings |= {"processing_kwargs": odd} if (odd := _unsupported(own)) else {}
    length = _length(folder, own)
    flags = ({} if length is None else {"max_length": length}) | our_flags(tree)
    return tree | {"sentence_transformers": settings, "albertine": flags}


def vector_files(
    folder: Path, *, same_weights: bool = True, last: bool = False, all_layers: bool = True
) -> dict[str, bytes]:
    """The files with the embedding settings of a folder, for a copy of its model.

    Args:
        same_weights: whether the encoder stays as it is. A whitening holds for its own alone, and without it
            none of the files would be true.
        last: whether [CLS] is the last token of the model.
        all_layers: whether what the files are for gives the outputs of all layers, and its config.json is
            that of a model tuned for vectors; modules that average all layers are left out otherwise.

    Raises:
        ModelError: their list is damaged.
    """
    if not same_weights and (folder / WHITENING).is_file():
        return {}
    names = [WHITENING]
    kinds, paths = _listed(folder / MODULES) if (folder / MODULES).is_file() else ([], [])
    if has_modules := (folder / MODULES).is_file() and (all_layers or AVERAGED not in kinds):
        parts = [path for path in paths if path not in ("", ".")]
        names += [
            MODULES,
            PROMPTS,
            *(f"{part}/{file}" for part in parts for file in _of_a_module(folder / part)),
        ]
    found = {name: read_regular(folder / name, MAX_MODULE) for name in names if (folder / name).is_file()}
    if has_modules:
        settings = _transformer_settings(folder)
        if (
            length := _length(folder, settings)
        ) is not None:  # which may stand in a file that is written anew
            settings["max_seq_length"] = length
        found[TRANSFORMER] = (json.dumps(settings, indent=2) + "\n").encode()
        tree = _object(folder / (pooling := f"{POOLING}/config.json"))
        if last and _poolings(tree) == ["cls"] and _tuned_here(folder):
            tree.pop("pooling_mode", None)
            found[pooling] = (json.dumps(tree | _flags(_LAST), indent=2) + "\n").encode()
    return found


def _of_a_module(part: Path) -> tuple[str, str]:
    """The files of a module; its weights go along as bytes also where they are pickled."""
    return "config.json", next((x for x in (SINGLE, PICKLED) if (part / x).is_file()), SINGLE)


def _flags(own: str) -> dict[str, bool]:
    """The flag of every way to pool; one holds."""
    return {name: name == own for name in (*_MODES.values(), *_OTHER_MODES)}


def _transformer_settings(folder: Path) -> dict[str, Any]:
    """The first non-empty file of those that sentence-transformers looks for."""
    names = (f"sentence_{name}_config.json" for name in _NAMES)
    return next(filter(None, (_object(folder / name) for name in names)), {})


def _object(file: Path) -> dict[str, Any]:
    return read_json(file) if file.is_file() else {}


def _processing(settings: Mapping[str, Any]) -> dict[str, Any]:
    """How the tokenizer is called, by the words that version 6 has for it: of texts, and over them of all."""
    prompts = settings.get("processing_kwargs") or {}
    parts = (
        [prompts.get(name) or {} for name in ("text", "common")] if isinstance(prompts, dict) else [prompts]
    )
    if not all(isinstance(part, dict) for part in parts):
        raise ModelError(f"has processing_kwargs of {prompts!r:.80}", where=TRANSFORMER)
    return {name: value for part in parts for name, value in part.items()}


def _unsupported(settings: Mapping[str, Any]) -> list[str]:
    """The words for the tokenizer by which the tokens would be others than they are here."""
    words = _processing(settings)
    odd = words.keys() - _NOT_FELT
    # Which of two texts is cut is felt in a pair.
    known = words.get("truncation", True) in (True, "longest_first", *_UNCUT)
    return sorted(odd if known else odd | {"truncation"})


def _length(folder: Path, settings: Mapping[str, Any]) -> int | None:
    """Tokens that are looked at: those that the tokenizer is called with, else those in its file, or in that
    of older releases."""
    words = _processing(settings)
    if words.get("truncation", True) in _UNCUT:
        return None
    name, file = "max_length", folder / TRANSFORMER
    length = words.get(name)
    if length is None:
        name = "max_seq_length"
        length = settings.get(name)
    if length is None:
        name, file = "model_max_length", folder / "tokenizer_config.json"
        length = _object(file).get(name)
    if length is None:
        return None
    if isinstance(length, bool) or not isinstance(length, int | float) or not length >= 3:
        raise ModelError(f"has a {name} of {length!r}", where=file)
    return int(min(length, UNLIMITED))


def _listed(file: Path) -> tuple[list[str], list[str]]:
    """The kinds of the modules, and the folders that they have their files in."""
    try:
        modules = json.loads(read_regular(file, MAX_JSON_BYTES).decode("utf-8-sig"))
        kinds = [str(m["type"]).rpartition(".")[2] for m in modules]
        paths = [str(m["path"]) for m in modules]
    except (ValueError, RecursionError, OSError, KeyError, TypeError) as error:
        raise ModelError(f"is not a list of modules ({error!r:.80})", where=file) from error
    # A name with a folder in it could point anywhere on the machine.
    if any(Path(path).name != path or path == ".." for path in paths if path not in ("", ".")):
        raise ModelError(f"expects its modules in the folders {paths}", where=file)
    return kinds, paths


def _modules(file: Path) -> tuple[Sequence[str], str]:
    """The kinds of the modules, and where the second one, the pooling, has its files."""
    kinds, paths = _listed(file)
    if kinds[1:2] == [AVERAGED] and _tuned_here(file.parent):  # config.json names it, too
        del kinds[1], paths[1]
    usual = ["Transformer", "Pooling", "Normalize"]
    if kinds[2:3] == ["Dense"]:
        if not (file.parent / WHITENING).is_file():
            raise ModelError(
                f"has a layer behind its pooling, and no {WHITENING} with the same values",
                where=file.parent,
                remedy="Copy that file from where Albertine tuned it; layers of others are not computed",
            )
        del kinds[2]
    if kinds != usual[: max(2, len(kinds))]:
        raise ModelError(
            f"names the modules {', '.join(kinds)}; known are Transformer, Pooling and then Normalize",
            where=file,
            remedy="Move the file away to use the encoder alone",
        )
    if paths[0] not in ("", ".") or paths[1] in ("", "."):
        raise ModelError(f"expects its modules in the folders {paths}", where=file)
    return kinds, paths[1]


def _poolings(tree: Mapping[str, Any]) -> list[Any]:
    """The names of the ways to pool that the file of a pooling chooses."""
    mode = tree.get("pooling_mode")  # a name or several; earlier releases have a flag for each
    short = {name: mode for mode, name in _MODES.items()}
    flags = [short.get(name, name) for name in (*_MODES.values(), *_OTHER_MODES) if tree.get(name)]
    return [mode] if isinstance(mode, str) else mode if isinstance(mode, list) else flags or ["mean"]


def _tuned_here(folder: Path) -> bool:
    """Whether Albertine tuned a folder for vectors. Until 2026-11-27 it wrote `cls` where [CLS] is the last
    token, too, and meant that one."""
    return our_flags(_object(folder / "config.json")).get("task") == "embed"


def _pooling(folder: Path, path: str, last: bool) -> Pooling:
    file = folder / path / "config.json"
    chosen = _poolings(read_json(file))
    if last and chosen in (["lasttoken"], [_LAST]):
        return "cls"
    if last and chosen == ["cls"] and not _tuned_here(folder):
        raise ModelError(
            "pools by the first token of a text, and [CLS], which could be taken, is the last of this model",
            where=file,
            remedy=f"If [CLS] is meant, put {_LAST} in the place of {_MODES['cls']} there",
        )
    for known in _MODES:
        if chosen == [known]:
            return known
    raise ModelError(
        f"pools by {' and '.join(map(str, chosen))}; known are the mean and the first token", where=file
    )
