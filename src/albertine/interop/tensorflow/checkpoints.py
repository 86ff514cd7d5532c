"""Folders with a checkpoint of TensorFlow: Google's ALBERT, BERT and XLNet, brightmart's albert_zh, what
bert4keras saves under Google's names, and the variables of TF-Hub. Which of them it is, is config_tree by the
names of its variables."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from albertine.core.files import replaced_folder
from albertine.errors import ModelError
from albertine.interop.config_values import config_errors
from albertine.interop.folder_writer import OURS, carry_over
from albertine.interop.heads import HEAD_KEYS, joint_architecture
from albertine.interop.huggingface.config import config_json, inner_blocks, our_flags
from albertine.interop.huggingface.xlnet import attention_type
from albertine.interop.keymap import Rule, check, refuse_too_deep, refuse_unexpected, to_ours, to_theirs
from albertine.interop.model_files import INDEX
from albertine.interop.model_folder import ModelFolder
from albertine.interop.save_checks import SavableTokenizer
from albertine.interop.tensorflow.bundle import open_bundle, write_bundle
from albertine.interop.tensorflow.config import google_json, read_google
from albertine.interop.tensorflow.layouts import written_kind
from albertine.interop.tensorflow.names import (
    BACKBONE,
    HEADS,
    Kind,
    heads_in,
    keymap,
    kind_of,
    placed,
    without_slots,
)
from albertine.interop.weights import OpenWeights, read_json
from albertine.model.config import EncoderConfig
from albertine.model.model import Model

CONFIGS: dict[Kind, str] = {
    "albert": "albert_config.json",
    "unshared": "albert_config.json",
    "bert": "bert_config.json",
    "brightmart": "albert_config.json",
    "xlnet": "xlnet_config.json",
}
NAME = "model.ckpt-best"
"""Name of the checkpoint that we write, as in Google's archives."""
SEGMENTS = "model/transformer/seg_embed"
MASK_EMBEDDING = "model/transformer/mask_emb/mask_emb"
_ARCHITECTURES = {"classifier": "ForSequenceClassification", "qa_outputs": "ForQuestionAnswering"}
_TASKS = {"classifier": "classify", "qa_outputs": "answer", "answer_class": "answer"}


def google_config(folder: Path, prefix: Path) -> EncoderConfig:
    """The encoder of a checkpoint; its numbers are not read.

    Raises:
        ModelError: as `read_checkpoint`.
    """
    with open_bundle(prefix) as weights:
        return _configured(folder, prefix, weights)[2]


def tensorflow_config(folder: Path, prefix: Path) -> dict[str, Any]:
    """The config.json that the encoder of a checkpoint would be written with, and what `save_checkpoint` was
    config_tree of it. Raises as `google_config`."""
    with open_bundle(prefix) as weights, torch.device("meta"):
        _, tree, config = _configured(folder, prefix, weights)
        return _with_head_settings(config_json(Model(config, ())), tree)


def read_checkpoint(folder: Path, prefix: Path) -> ModelFolder:
    """Everything in the folder of a checkpoint. What optimizers kept is passed over.

    Raises:
        ModelError: anything missing, damaged, contradictory, or of a kind that we cannot compute.
    """
    with open_bundle(prefix) as weights:
        kind, tree, config = _configured(folder, prefix, weights)
        return _assembled(kind, tree, config, weights, prefix)


def _configured(
    folder: Path, prefix: Path, weights: OpenWeights
) -> tuple[Kind, dict[str, Any], EncoderConfig]:
    kind = kind_of(weights.shapes)
    if kind is None:
        raise ModelError(
            "has no variables of ALBERT, BERT or XLNet",
            where=prefix.with_name(prefix.name + INDEX),
            remedy="Read are checkpoints by Google's names, such as bert/embeddings/word_embeddings",
        )
    file = _config_file(folder, kind)
    with config_errors(file):
        tree = read_json(file)
        config = read_google(kind, tree)
        if kind == "xlnet" and SEGMENTS not in weights.shapes:  # its graph had no segments
            config = replace(config, type_vocab_size=0)
        return kind, tree, config


def _config_file(folder: Path, kind: Kind) -> Path:
    """The configuration by its usual name, else the only one in the folder or in TF-Hub's `assets`."""
    places = [folder, folder / "assets"]
    usual = [place / CONFIGS[kind] for place in places]
    others = [p for place in places for p in sorted(place.glob("*config*.json"))]
    others = [p for p in others if not p.name.startswith(("tokenizer_", "generation_"))]
    found = [path for path in usual if path.is_file()] or others
    if len(found) != 1 and not (found and found[0] in usual):
        what = f"holds several configurations ({', '.join(p.name for p in found)})" if found else ""
        raise ModelError(
            what or f"holds a checkpoint and no {CONFIGS[kind]}",
            where=folder,
            remedy=f"Put the configuration of the checkpoint there, as {CONFIGS[kind]}",
        )
    return found[0]


def _assembled(
    kind: Kind,
    tree: dict[str, Any],
    config: EncoderConfig,
    weights: OpenWeights,
    prefix: Path,
) -> ModelFolder:
    where = prefix.with_name(prefix.name + INDEX)
    names = without_slots(weights.shapes)
    refuse_too_deep(config.plan, len(names), where)
    with torch.device("meta"):
        model = Model(config, heads_in(kind, names, our_flags(tree).get("sentence_objective")))
    state, heads = model.state_dict(), config.num_attention_heads
    rules = keymap(kind, config).entries(state, inner_blocks(tree) if kind == "albert" else 1)
    check(rules, state, {name: weights.shapes[name] for name in names}, where, heads)
    rest = sorted(names - {rule.theirs for rule in rules.values()} - {MASK_EMBEDDING})
    refuse_unexpected([name for name in rest if name.startswith(BACKBONE)], "variables", where)
    model.load_state_dict(to_ours(rules, weights.read, where, heads), assign=True)
    extra: dict[str, Tensor] = {}
    config_tree = config_json(model)
    for head, parts in HEADS.items():
        if all(part.theirs in rest and _fits(part, weights.shapes[part.theirs]) for part in parts):
            extra |= {part.ours: part.to_ours(weights.read(part.theirs), heads) for part in parts}
            rest = [name for name in rest if name not in {part.theirs for part in parts}]
            config_tree = _with_head(config_tree, head)
    if "head" not in our_flags(tree) and "classifier.bias" in extra and len(extra["classifier.bias"]) == 1:
        config_tree = config_tree | {
            "problem_type": "regression"
        }  # Google's code learns one number by its square
    config_tree = _with_head_settings(config_tree, tree)
    aside = tuple(name for name in rest if weights.shapes[name])  # scalars are the state of a run
    return ModelFolder(model.requires_grad_(True).eval(), config_tree, extra, aside, "tensorflow")


def _fits(part: Rule, shape: tuple[int, ...]) -> bool:
    """Whether a variable has the rank that a rule needs; its sizes are checked when the head is built."""
    return len(shape) == 2 or not part.transposed


def _with_head(config_tree: dict[str, Any], head: str) -> dict[str, Any]:
    """A config.json with the task of a head, by its class in transformers where there is one."""
    flags = {"albertine": our_flags(config_tree) | {"task": _TASKS[head]}}
    if head not in _ARCHITECTURES:
        return config_tree | flags | joint_architecture(config_tree["model_type"])
    if "architectures" in config_tree:
        encoder = config_tree["architectures"][0].partition("For")[0].removesuffix("Model")
        return config_tree | {"architectures": [encoder + _ARCHITECTURES[head]]}
    return config_tree | flags  # no class of transformers computes the encoder, so none is named


def _with_head_settings(config_tree: dict[str, Any], tree: Mapping[str, Any]) -> dict[str, Any]:
    """A config.json with the head settings from `save_checkpoint`, for which Google's format has no keys:
    names of classes, pooling, and the order of prediction."""
    settings = our_flags(tree).get("head")
    if not isinstance(settings, dict):
        return config_tree
    words = {name: settings[name] for name in HEAD_KEYS if name in settings}
    flags = our_flags(config_tree) | our_flags(settings)
    if "attn_type" in config_tree:
        words["attn_type"] = attention_type(flags)
    return config_tree | words | {"albertine": flags}


def save_checkpoint(
    model: Model,
    tokenizer: SavableTokenizer | None,
    folder: Path,
    wanted: str,
    *,
    extra_tensors: Mapping[str, Tensor] | None = None,
    extra_config: Mapping[str, Any] | None = None,
) -> tuple[str, ...]:
    """Write a folder for Google's code atomically: configuration, checkpoint and vocabulary.

    Args:
        wanted: "google", "bert4keras", "brightmart" or "xlnet-tf". extra_tensors: task heads, by their names
            in transformers.
        extra_config: entries of config.json on the head, such as class names, and on the use of the encoder.

    Returns:
        The names of tensors that Google's code does not support, which are not written.

    Raises:
        SettingsError: no code of Google's computes this model. ModelError: the folder holds something else.
    """
    kind = written_kind(model, wanted)
    state = model.state_dict()
    _, _, inner = model.config.plan.groups() or (0, 0, 1)
    rules = keymap(kind, model.config).entries(state, inner if kind == "albert" else 1)
    tensors = to_theirs(rules, state, model.config.num_attention_heads)
    if kind == "xlnet" and model.lm is None:  # every checkpoint of XLNet has it, even unused
        tensors[MASK_EMBEDDING] = torch.zeros(1, 1, model.config.hidden_size)
    extra, places = dict(extra_tensors or {}), placed(kind)
    held = {name: extra.pop(name).float() for name in places if name in extra}
    tensors |= to_theirs({name: places[name] for name in held}, held)
    pad = int(getattr(tokenizer, "pad_id", model.config.pad_token_id))
    tree = google_json(kind, model, pad, keras=wanted == "bert4keras")
    tree["albertine"] |= {"head": dict(extra_config)} if extra_config else {}
    _write(folder, CONFIGS[kind], tree, tensors, tokenizer)
    return tuple(sorted(extra))


def _write(
    folder: Path,
    file: str,
    tree: Mapping[str, Any],
    tensors: Mapping[str, Tensor],
    tokenizer: SavableTokenizer | None,
) -> None:
    ours = folder.is_dir() and ((folder / file).is_file() or not any(folder.iterdir()))
    if folder.exists() and not ours:
        raise ModelError(
            "exists and is not such a folder",
            where=folder,
            remedy="Name a new folder; nothing was overwritten",
        )
    try:
        with replaced_folder(folder) as beside:
            write_bundle(beside / NAME, tensors)
            (beside / "checkpoint").write_text(f'model_checkpoint_path: "{NAME}"\n', encoding="utf-8")
            (beside / file).write_text(json.dumps(tree, indent=2) + "\n", encoding="utf-8")
            if tokenizer is not None:
                tokenizer.save(beside)
            carry_over(folder, beside, (*OURS, f"{NAME}.*", "*.model", "*.vocab"))
    except OSError as error:
        raise ModelError(
            f"cannot be written ({error})", where=folder, remedy="Free space or choose another folder"
        ) from error
