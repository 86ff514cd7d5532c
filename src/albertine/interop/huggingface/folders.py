"""Model folders in the layout of Hugging Face: read and written for ALBERT, BERT, ELECTRA, RoFormer,
ModernBERT and XLNet, whole or backbone only.

A plan that transformers cannot express is written with model_type "albertine" and our own names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from albertine.core.devices import on_cpu
from albertine.core.files import is_run_checkpoint, resolve_folder
from albertine.errors import ModelError, SettingsError, check_integer
from albertine.interop.config_values import config_errors, number
from albertine.interop.folder_writer import write_folder
from albertine.interop.head_checks import with_head
from albertine.interop.heads import OWN_TENSORS, SUMMARY_LAYER, reads_pooler_as_summary, with_head_keys
from albertine.interop.huggingface.config import (
    ROFORMER_BASE,
    ModelType,
    config_json,
    encoder_in,
    generates,
    inner_blocks,
    model_type,
    our_flags,
    read_config,
)
from albertine.interop.huggingface.lonepatient_names import (
    PROJECTION,
    layout_of,
    lonepatient_plan,
    spare_tensors,
)
from albertine.interop.huggingface.names import (
    GENERATOR,
    TIED,
    UNUSED_NORM,
    belongs,
    canonical,
    entries,
    heads_in,
    hidden_generator,
    huggingface_plan,
    other_head,
    second_bias,
)
from albertine.interop.huggingface.roberta import (
    as_bert,
    bert_names,
    bert_shape,
    is_roberta,
    unused_rows,
    without_unused,
)
from albertine.interop.huggingface.xlnet import attention_type
from albertine.interop.huggingface.xlnet_names import MASK_EMBEDDING, our_head_name
from albertine.interop.keymap import OURS, check, refuse_too_deep, refuse_unexpected, to_ours, to_theirs
from albertine.interop.model_files import checkpoint_in
from albertine.interop.model_folder import ModelFolder as ModelFolder
from albertine.interop.model_names import model_folder
from albertine.interop.run_checkpoint import checkpoint_config, read_run_checkpoint
from albertine.interop.save_checks import (
    SavableTokenizer,
    check_finite,
    parameters_of,
    plain_model,
    plain_state,
)
from albertine.interop.sentence_transformers import with_cross_encoder
from albertine.interop.tensorflow.checkpoints import read_checkpoint, tensorflow_config
from albertine.interop.tied_detection import detect_tied, unrecoverable_parameters
from albertine.interop.tied_expansion import KEPT, Layout, expanded, expanded_config
from albertine.interop.weights import (
    WEIGHTS,
    OpenWeights,
    open_weights,
    read_json,
    refuse_adapter,
    refuse_keras,
)
from albertine.model.config import EncoderConfig
from albertine.model.model import Model
from albertine.model.resharing import with_layers
from albertine.model.sharing import SharingPlan
from albertine.tokenizers.base import Tokenizer
from albertine.tokenizers.load import check_tokenizer, load_tokenizer

POSITIONS = "roformer.encoder.embed_positions.weight"
HALF_PRECISION = 0.01


Stored = Literal["float32", "bfloat16", "float16"]
STORED: Mapping[Stored, torch.dtype] = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}


def load_model(folder: str | Path) -> Model:
    """The model in a folder, in evaluation mode; heads of fine-tuned tasks are left aside (`read_folder` has
    them).

    Raises:
        ModelError: anything missing, damaged, contradictory or of a kind we cannot compute.
    """
    return read_folder(folder).model


def named_model(what: str | Path) -> tuple[Model, Tokenizer]:
    """A model by any of its names, and its tokenizer.

    Raises:
        AlbertineError: there is no such model, or its tokenizer does not fit.
    """
    folder = model_folder(what)
    model, tokenizer = load_model(folder), load_tokenizer(folder)
    check_tokenizer(model.config, tokenizer, folder)
    return model, tokenizer


@on_cpu()
def read_folder(folder: str | Path, *, layers: int | None = None) -> ModelFolder:
    """Everything in a model folder, of transformers or with a checkpoint of TensorFlow, or in a checkpoint of
    a run.

    Args:
        layers: number of layers to compute, as of `model.resharing.with_layers`; None: those of the folder.

    Raises:
        ModelError: as `load_model`; or the folder has a head after every layer, and `layers` is given.
        SettingsError: the encoder cannot compute that number of layers.
    """
    if layers is not None:
        check_integer("layers", layers, 1)
    found = _read_folder(folder)
    if layers is None:
        return found
    if our_flags(found.config).get("exits") is True:
        raise ModelError(
            "has a head after every layer, of which an exit rule chooses one for each text",
            where=folder,
            remedy="Leave --layers out, or use --exit",
        )
    try:
        return replace(found, model=with_layers(found.model, layers))
    except SettingsError as error:
        raise SettingsError(error.what, where=folder, remedy=error.remedy) from error


def _read_folder(folder: str | Path) -> ModelFolder:
    """As `read_folder`, with all layers of the folder."""
    folder = resolve_folder(Path(folder))
    if not folder.is_dir():
        raise ModelError("is not a folder", where=folder, remedy="Name the folder that holds config.json")
    if is_run_checkpoint(folder):
        return read_run_checkpoint(folder)
    if (prefix := checkpoint_in(folder)) is not None:
        return read_checkpoint(folder, prefix)
    refuse_keras(folder)
    tree = folder_config(folder)
    kind, config = encoder_in(tree, folder / "config.json")
    settings = read_json(folder / "config.json")
    with open_weights(folder) as weights:
        try:
            return _assemble(kind, config, tree, _of_bert(weights, settings), folder)
        except SettingsError as error:
            raise ModelError(f"cannot be used: {error}", where=folder / "config.json") from error


def _of_bert(weights: OpenWeights, tree: Mapping[str, Any]) -> OpenWeights:
    """The weights of a RoBERTa as those of a BERT; of any other model as they are."""
    if not is_roberta(tree):
        return weights
    names, rows = bert_names(weights.shapes), unused_rows(tree)
    return OpenWeights(
        {name: bert_shape(name, weights.shapes[file], rows) for name, file in names.items()},
        lambda name: without_unused(name, weights.read(names[name]), rows),
    )


def folder_config(folder: Path) -> dict[str, Any]:
    """The config.json of a model folder, with a cross-encoder's entries of another file; or what it would be
    for a checkpoint of TensorFlow or of a run.

    Raises:
        ModelError: neither is there, or damaged; or an adapter is.
    """
    if is_run_checkpoint(folder):
        return checkpoint_config(folder)
    if (prefix := checkpoint_in(folder)) is not None:
        return tensorflow_config(folder, prefix)
    refuse_adapter(folder)
    tree = with_head_keys(read_json(folder / "config.json"))
    with config_errors(folder / "config.json"):
        return as_bert(with_cross_encoder(tree, folder))


def _assemble(
    kind: ModelType, config: EncoderConfig, tree: dict[str, Any], weights: OpenWeights, folder: Path
) -> ModelFolder:
    names: str = (layout_of(weights.shapes) if kind == "albert" else None) or kind
    config = _as_computed(names, config, tree)
    files = canonical(names, weights.shapes)
    if config.output == "own" and (biases := second_bias(names)) is not None and biases[1] in files:
        files[biases[0]] = files.pop(biases[1])  # without ties that of the output layer alone is computed
    if reads_pooler_as_summary(kind, tree):
        pooler = f"{OURS}pooler.dense."
        files = {name.replace(SUMMARY_LAYER, pooler, 1): file for name, file in files.items()}
    own = {name: files.pop(name) for name in list(files) if name.startswith(OWN_TENSORS)}
    if own:
        # Tensors without numbers, by which transformers refuses to load another head for it.
        files = {name: file for name, file in files.items() if weights.shapes[file] != (0,)}
    refuse_too_deep(config.plan, len(files), folder)
    found_heads = heads_in(names, files, our_flags(tree)) - _not_ours(names, files, config, weights)
    with torch.device("meta"):
        model = Model(config, found_heads)
    kept = {name: files.pop(name) for name in list(files) if name.startswith(KEPT)}
    rules = entries(names, model.state_dict(), inner_blocks(tree))
    found = {name: weights.shapes[file] for name, file in files.items()}
    check(rules, model.state_dict(), found, folder, config.num_attention_heads)
    known = {rule.theirs for rule in rules.values()}.union(TIED.get(names, ()))
    spare = spare_tensors(names, mapped=config.has_mapping, mlm=model.mlm is not None)
    others = [n for n in files if n not in known and not n.startswith(spare)]
    aside = other_head(names, others, model.heads)
    odd = [name for name in others if belongs(names, name) and name not in aside]
    refuse_unexpected(odd, "tensors", folder)
    state = to_ours(rules, lambda name: weights.read(files[name]), folder, config.num_attention_heads)
    if kind == "modernbert":
        state[UNUSED_NORM] = torch.ones(config.hidden_size, dtype=torch.float32)
    if kind == "roformer":
        _check_positions(config, weights, folder)
    if config.output == "tied":
        _check_tied(names, files, weights, state, folder)
    model.load_state_dict(state, assign=True)
    if our_flags(tree).get("embedding_mapping") == "if_needed":
        model = _without_identity(model)
    if isinstance(written := our_flags(tree).get("encoder"), dict) and kind != "albertine":
        tensors = {name: weights.read(file) for name, file in kept.items()}
        whole = detect_tied(
            model,
            EncoderConfig.from_dict(written),
            tensors,
            lambda name: weights.read(files[rules[name].theirs]).dtype,
        )
        model = whole or model
    extra = {our_head_name(name): weights.read(files[name]).clone() for name in others if name not in aside}
    extra |= {name.removeprefix(OWN_TENSORS): weights.read(file).clone() for name, file in own.items()}
    return ModelFolder(model.requires_grad_(True).eval(), tree, extra, aside, names)


def encoder_in_folder(kind: ModelType, tree: dict[str, Any], file: Path) -> EncoderConfig:
    """The encoder of a config.json. If only brightmart's `ln_type`, which other programs copy, indicates its
    architecture, the names of the weights beside it decide.

    Raises:
        ModelError: the weights are damaged. SettingsError: a value is not supported.
    """
    config = read_config(kind, tree)
    doubtful = kind == "albert" and "ln_type" in tree and "embedding_mapping" not in our_flags(tree)
    if not (doubtful and any((file.parent / name).is_file() for name in WEIGHTS)):
        return config
    with open_weights(file.parent) as weights:
        return _as_computed(layout_of(weights.shapes) or kind, config, tree)


def _as_computed(names: str, config: EncoderConfig, tree: Mapping[str, Any]) -> EncoderConfig:
    """The encoder as computed by the code that names its parameters in this way."""
    if names == "bright":
        plan = SharingPlan.shared(config.plan.depth)
        return replace(config, embedding_mapping="words", plan=plan, output="tied")
    if names in ("albert", "lonepatient") and "embedding_mapping" not in our_flags(tree):
        config = replace(config, embedding_mapping="if_needed")  # overrides brightmart's `ln_type`
    if names == "lonepatient":
        config = replace(config, output="tied")
        layers, groups = number(tree, "num_hidden_layers"), tree.get("num_hidden_groups", 1)
        return config.with_plan(lonepatient_plan(layers, groups, inner_blocks(tree)))
    if names == "albert" and config.embedding_size == config.hidden_size:
        return replace(config, embedding_mapping="always")
    return config


def _not_ours(names: str, files: Mapping[str, str], config: EncoderConfig, weights: OpenWeights) -> set[str]:
    """The masked-LM head if it differs from ours: that of "bright" if its last projection is not tied,
    ELECTRA's if its activation is not the encoder's."""
    if names == "electra":
        theirs = any(file.startswith(GENERATOR) for file in files.values())
        return {"mlm"} if theirs and not generates(config) else set()
    if PROJECTION not in files or names != "bright":
        return set()
    factor = files.get("bert.embeddings.word_embeddings_2.weight")
    if factor is None:  # which is reported later
        return set()
    return set() if torch.equal(weights.read(files[PROJECTION]).T, weights.read(factor)) else {"mlm"}


def _check_tied(
    kind: str,
    actual: Mapping[str, str],
    weights: OpenWeights,
    state: Mapping[str, Tensor],
    folder: Path,
) -> None:
    word = "encoder.embeddings.word.weight"
    twins = {"decoder.weight": word, "lm_loss.weight": word, "decoder.bias": "mlm.bias"}
    twins["generator_lm_head.weight"] = word
    for name in TIED.get(kind, ()):
        ours = twins[".".join(name.split(".")[-2:])]
        if (
            name in actual
            and ours in state
            and not torch.equal(weights.read(actual[name]).float(), state[ours])
        ):
            raise ModelError(
                f"{name} is not tied to the embeddings",
                where=folder,
                remedy="If the head has an output matrix of its own, set tie_word_embeddings to false in its "
                "config.json. Its encoder can be used without that head: transformers.AutoModel"
                ".from_pretrained(FOLDER).save_pretrained(NEW), with the files of the tokenizer copied into "
                "NEW",
            )


def _check_positions(config: EncoderConfig, weights: OpenWeights, folder: Path) -> None:
    """Check that a position table is RoFormer's sinusoids."""
    for name, shape in weights.shapes.items():
        if name.endswith(POSITIONS.removeprefix("roformer.")):
            # The shape first: a table without columns may claim any number of rows.
            fits = len(shape) == 2 and shape[1] == config.head_size
            if not fits or not torch.allclose(
                weights.read(name).float(), sinusoids(shape[0], config.head_size), atol=HALF_PRECISION
            ):
                raise ModelError(
                    f"{name} is not the table of sines and cosines that RoFormer's rotation is made of",
                    where=folder,
                    remedy="Its positions were changed; Albertine computes RoFormer's own only",
                )


def _without_identity(model: Model) -> Model:
    """Drop the identity mapping that `save_model` added for transformers; a trained mapping is kept."""
    mapping, config = model.encoder.embeddings.mapping, model.config
    if mapping is None or config.embedding_size != config.hidden_size:
        return model
    identity = torch.eye(config.hidden_size, dtype=torch.float32)
    if not torch.equal(mapping.weight, identity) or bool(mapping.bias.any()):
        return model
    with torch.device("meta"):
        plain = Model(replace(config, embedding_mapping="if_needed"), model.heads)
    kept = {k: v for k, v in model.state_dict(keep_vars=True).items() if ".mapping." not in k}
    plain.load_state_dict(kept, assign=True)
    return plain


def written_type(config: EncoderConfig, layout: Layout | None = None) -> ModelType:
    """The model_type that `save_model` writes. Raises SettingsError as it does."""
    if layout == "albertine":
        return "albertine"
    written = _written(config, layout)
    # By plan and block it could also be an ALBERT without sharing.
    return "electra" if layout == "electra" else model_type(written)


def _written(config: EncoderConfig, layout: Layout | None) -> EncoderConfig:
    if layout is None or layout == "albertine":
        return config
    known = layout == "transformers" and model_type(config) != "albertine"
    return config if known else expanded_config(config, layout)


def save_model(
    model: Model,
    tokenizer: SavableTokenizer | None,
    folder: str | Path,
    *,
    extra_tensors: Mapping[str, Tensor] | None = None,
    extra_config: Mapping[str, Any] | None = None,
    extra_files: Mapping[str, bytes] | None = None,
    layout: Layout | None = None,
    stored: Stored = "float32",
) -> None:
    """Write a model folder atomically: config.json, model.safetensors, tokenizer files, README.md.

    Args:
        layout: one of transformers' without sharing, in which every layer is a copy, from which `read_folder`
            recovers the shared weights; or "albertine", our own names. By default shared weights are written
            once, with transformers' names if it supports the plan.
        tokenizer: anything with save(folder); its special ids are written into config.json.
        extra_tensors, extra_config: task heads by their names in the file, and their entries of config.json,
            which override ours, so that a task can name its architecture.
        extra_files: further files, by their paths in the folder.
        stored: number format of the weights in the file; they are loaded as float32.

    Raises:
        ModelError: `folder` is a file or not a model folder, or cannot be written; the tokenizer has more
            tokens than the model has embeddings; a weight is not finite, or too large for float16; the
            parameters are not those of its configuration (`save_checks.py`).
        SettingsError: the layout does not support the model; or it is of transformers, and no class there
            computes the head.
    """
    model = plain_model(model, folder)
    size = getattr(tokenizer, "vocab_size", 0)
    if size > model.config.vocab_size:
        raise ModelError(
            f"the tokenizer has {size} pieces, the model {model.config.vocab_size} embeddings",
            where=folder,
            remedy="Save the tokenizer that the model was trained with",
        )
    shared = model
    if layout is not None and _written(model.config, layout) != model.config:
        model = expanded(shared, layout)
    kind, count = written_type(model.config, layout), parameters_of(model, extra_tensors or {})
    if model.lm is not None and kind not in ("xlnet", "albertine"):
        if layout is not None:
            raise SettingsError(
                f"the layout {layout} has no place for the head of a causal model",
                remedy="Leave it out, and the model is written in Albertine's own",
            )
        kind = "albertine"
    extra = {k: v.detach().cpu().contiguous() for k, v in (extra_tensors or {}).items()}
    settings = dict(extra_config or {})
    tree = config_json(model, tokenizer, kind)
    if model.config != shared.config:
        extra |= unrecoverable_parameters(shared, model)
        tree["albertine"] |= {"encoder": shared.config.to_dict()}
    flags = our_flags(tree) | our_flags(settings)
    if kind == "xlnet":
        tree["attn_type"] = attention_type(flags)
    tree |= settings | ({"albertine": flags} if flags else {})
    encoder = _tensors(kind, model)
    check_finite(encoder | extra, folder)
    whole, tree = with_head(kind, shared, encoder, extra, tree, _read_as_others, layout=layout)
    tensors = {name: _stored(name, x, stored, folder) for name, x in whole.items()}
    write_folder(Path(folder), tensors, tree, tokenizer, extra_files or {}, parameters=count)


def _read_as_others(kind: ModelType, tree: dict[str, Any], tensors: Mapping[str, Tensor]) -> ModelFolder:
    """A model from the tensors and the config.json of a folder, without the Albertine part."""
    plain = {name: value for name, value in tree.items() if name != "albertine"}
    weights = OpenWeights({name: tuple(x.shape) for name, x in tensors.items()}, tensors.__getitem__)
    with config_errors(Path("config.json")):
        return _assemble(kind, read_config(kind, plain), plain, weights, Path("config.json"))


def _stored(name: str, x: Tensor, form: Stored, folder: str | Path) -> Tensor:
    # Exact are sinusoids, which lose too much precision, and parameters from which copies are computed again.
    exact = form == "float32" or name == POSITIONS or name.startswith(KEPT)
    small = x if exact or not x.is_floating_point() else x.to(STORED[form])
    if small is not x and bool(torch.isfinite(x).all()) and not bool(torch.isfinite(small).all()):
        raise ModelError(
            f"{name} has numbers that {form} does not hold", where=folder, remedy="Store it as bfloat16"
        )
    return small


def _tensors(kind: ModelType, model: Model) -> dict[str, Tensor]:
    state = plain_state(model)
    if kind == "albert" and not model.config.has_mapping:
        # transformers always has the mapping; the identity changes no number (multiplying by 1, adding
        # zeros).
        size = model.config.hidden_size
        state["encoder.embeddings.mapping.weight"] = torch.eye(size, dtype=torch.float32)
        state["encoder.embeddings.mapping.bias"] = torch.zeros(size, dtype=torch.float32)
    _, _, inner = model.config.plan.groups(huggingface_plan) or (0, 0, 1)
    tensors = to_theirs(entries(kind, state, inner), state, model.config.num_attention_heads)
    biases = second_bias(kind) if model.config.output == "own" and model.mlm is not None else None
    if biases is not None:
        tensors[biases[1]] = tensors[biases[0]].clone()
    if kind == "xlnet" and model.lm is None:  # a parameter of every XLNet, though nothing reads it
        tensors[MASK_EMBEDDING] = torch.zeros(1, 1, model.config.hidden_size, dtype=torch.float32)
    if kind == "electra" and not generates(model.config):
        tensors = hidden_generator(tensors)
    if kind == "roformer":  # its table is a parameter, which transformers would report as missing
        tensors[POSITIONS] = sinusoids(model.config.max_position_embeddings, model.config.head_size)
    return tensors


def sinusoids(rows: int, head_size: int) -> Tensor:
    """RoFormer's table (rows, D), stored as if it had been learned: for every position the sines
    of its D/2 angles, then their cosines (transformers' RoFormerSinusoidalPositionalEmbedding)."""
    # On the processor, as what is read of a file, whatever device a program has made the default.
    places = torch.arange(rows, dtype=torch.float64, device="cpu")[:, None]
    speeds = ROFORMER_BASE ** -(torch.arange(0, head_size, 2, dtype=torch.float64, device="cpu") / head_size)
    return torch.cat([(places * speeds).sin(), (places * speeds).cos()], 1).float()
