"""The configurations of models by their names, and the costs and descriptions of these."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from albertine.core.files import is_run_checkpoint
from albertine.core.released import model_name_help
from albertine.corpus.manifest import MANIFEST_FILE, Manifest, load_manifest
from albertine.errors import ModelError, SettingsError, check_integer
from albertine.interop.config_values import config_errors, our_flags
from albertine.interop.exported_folder import REPORT, is_export
from albertine.interop.huggingface.config import read_config, read_model_type
from albertine.interop.model_files import checkpoint_in
from albertine.interop.model_names import identify, model_of_run, resolve_model
from albertine.interop.weights import read_json, refuse_adapter
from albertine.model.config import EncoderConfig
from albertine.model.presets import preset

if TYPE_CHECKING:
    from albertine.analysis.parameters import Report
    from albertine.interop.tensorflow.names import Kind
    from albertine.interop.tied_detection import ExpandedModel


DEFAULT_LENGTHS = (128, 512)
_ARCHITECTURES = {
    "bert": "BERT and ALBERT",
    "albert": "BERT and ALBERT",
    "brightmart": "BERT and ALBERT, below it brightmart's mapping of words alone",
    "roformer": "RoFormer",
    "modernbert": "ModernBERT",
    "xlnet": "XLNet",
}


@dataclass(frozen=True)
class NoModel:
    """Something that is not a model: its kind, and facts to print."""

    kind: str
    facts: dict[str, Any]


def look_up(what: str) -> EncoderConfig | NoModel:
    """The configuration of the encoder that `what` names (`interop.model_names`), or facts about a corpus or
    an exported model.

    Raises:
        AlbertineError: there is nothing of this name; with the nearest one.
    """
    kind, path = identify(what)
    if kind in ("path", "recipe"):
        return _folder(path) if path.is_dir() else _file(path)
    if path.suffix in (".yaml", ".yml", ".json"):
        raise ModelError("there is no such file", where=what, remedy="Check the path")
    if kind == "hub" or "/" in what or path.suffix:
        return _folder(resolve_model(what))
    try:
        return preset(what)
    except SettingsError as error:
        raise SettingsError(error.what, remedy=f"{model_name_help(what)}. {error.remedy}") from error


def look_up_model(what: str) -> EncoderConfig:
    """`look_up` of a model."""
    found = look_up(what)
    if isinstance(found, NoModel):
        raise ModelError(f"is a {found.kind} and no model", where=what)
    return found


def _folder(folder: Path) -> EncoderConfig | NoModel:
    if is_export(folder):
        from albertine.interop.exported_folder import describe_export

        return NoModel("exported model", describe_export(read_json(folder / REPORT), folder / REPORT))
    from albertine.interop.tensorflow.checkpoints import google_config

    if is_run_checkpoint(folder):
        from albertine.interop.run_checkpoint import encoder_of_checkpoint

        return encoder_of_checkpoint(folder)
    if (prefix := checkpoint_in(folder)) is not None:
        return google_config(folder, prefix)
    for file in (*_config_files(folder), folder / "settings.yaml"):
        if file.is_file():
            return _file(file)
    if any((folder / name).is_file() for name in ("manifest.json", "prepare.json")):
        return NoModel("corpus", corpus_facts(load_manifest(folder)))
    refuse_adapter(folder)
    raise ModelError(
        "holds no model, corpus or run",
        where=folder,
        remedy="Name a folder with config.json, manifest.json or settings.yaml",
    )


def _config_files(folder: Path) -> list[Path]:
    """Possible paths of the config.json of a model folder or run folder."""
    files = [folder / "config.json"]
    with suppress(ModelError):
        files.append(model_of_run(folder) / "config.json")
    return files


def _config_file(what: str) -> Path | None:
    """The config.json of a named model, if it has one."""
    kind, path = identify(what)
    path = resolve_model(what) if kind == "hub" else path
    files = _config_files(path) if path.is_dir() else [path]
    return next((file for file in files if file.is_file() and file.suffix == ".json"), None)


def trained_loops(what: str) -> tuple[int, int] | None:
    """The fewest and the most loops of the core with which a named model was trained, if they were drawn."""
    file = _config_file(what)
    found = None if file is None else our_flags(read_json(file)).get("elastic")
    if isinstance(found, list) and len(found) == 2 and all(type(n) is int and n > 0 for n in found):
        return found[0], found[1]
    return None


def loops_in_words(config: EncoderConfig, loops: tuple[int, int]) -> str:
    """For how many layers an encoder of elastic depth was trained."""
    least, most = map(config.plan.depth_of, loops)
    return (
        f"Trained with {loops[0]} to {loops[1]} loops of its core, drawn for every step: {least} to {most} "
        "layers; --layers computes as many, or more."
    )


def copies_behind(what: str) -> ExpandedModel | None:
    """The shared encoder whose layers a named model repeats as copies, or None."""
    if (file := _config_file(what)) is None:
        return None
    from albertine.interop.tensorflow.checkpoints import CONFIGS
    from albertine.interop.tied_detection import detect_expanded

    return None if file.name in CONFIGS.values() else detect_expanded(file)


def corpus_facts(manifest: Manifest) -> dict[str, Any]:
    """The facts of a corpus in the order of a report."""
    facts: dict[str, Any] = {
        "language": manifest.language,
        "tokenizer": f"{manifest.tokenizer['kind']}, {manifest.vocab_size:,} pieces",
        "documents read": f"{manifest.documents_read:,}",
        "dropped": ", ".join(f"{number:,} {why}" for why, number in manifest.dropped.items() if number)
        or "none",
    }
    if manifest.passed_over:
        facts["files passed over"] = ", ".join(f"{n:,} {why}" for why, n in manifest.passed_over.items())
    for split in manifest.splits:
        counts = [f"{manifest.count(what, split):,} {what}" for what in ("documents", "sentences", "tokens")]
        facts[split] = ", ".join(counts)
    facts["unknown tokens"] = f"{manifest.unknown_share:.3%}"
    facts["sources"] = ", ".join(str(source["path"]) for source in manifest.sources)
    return facts


def _file(path: Path) -> EncoderConfig | NoModel:
    if path.suffix in (".yaml", ".yml"):
        return _recipe(path)
    tree = read_json(path)
    with config_errors(path):
        if "model_type" not in tree and (kind := _google_kind(path, tree)) is not None:
            from albertine.interop.tensorflow.config import read_google

            return read_google(kind, tree)
        if "ln_type" in tree:  # the names of weights decide
            from albertine.interop.huggingface.folders import encoder_in_folder

            return encoder_in_folder(read_model_type(tree), tree, path)
        return read_config(read_model_type(tree), tree)


def _google_kind(path: Path, tree: Mapping[str, Any]) -> Kind | None:
    """The kind of Google's layout of a configuration file, by its name; None for other names. What only the
    variables of a checkpoint show, such as unshared layers, is not known here."""
    from albertine.interop.tensorflow.checkpoints import CONFIGS

    found = next((kind for kind, name in CONFIGS.items() if name == path.name), None)
    return "brightmart" if found == "albert" and "ln_type" in tree else found


def _recipe(path: Path) -> EncoderConfig:
    """The encoder of a recipe: of a fine-tuning or a student, from the configuration of the model to start
    from; of pretraining from a preset, with the vocabulary size of the corpus, or the preset's without a
    corpus (`assumed`)."""
    from albertine.core.settings import load, read_yaml
    from albertine.pretraining.initial_model import encoder_config
    from albertine.pretraining.settings import PretrainingSettings
    from albertine.pretraining.student import student_config
    from albertine.tasks.settings import FinetuneSettings

    if "task" in read_yaml(path):
        from albertine.tasks.initial_model import tuned_config

        tuning = load(FinetuneSettings, path)
        begun = look_up_model(str(tuning.encoder.folder))
        return tuned_config(begun, tuning.encoder, tuning.task.usual_depth)
    settings = load(PretrainingSettings, path)
    if settings.model.preset is None:
        begun, student = look_up_model(str(settings.model.start_from)), settings.model.student
        return begun if student is None else student_config(begun, student)
    manifest = _manifest(settings.corpus)
    vocabulary = preset(settings.model.preset).vocab_size if manifest is None else manifest.vocab_size
    return encoder_config(settings.model, vocabulary, settings.objective.max_length)


def _manifest(corpus: Path) -> Manifest | None:
    return load_manifest(corpus) if (corpus / MANIFEST_FILE).is_file() else None


def assumed(what: str) -> str | None:
    """A note on the vocabulary size that `look_up` assumes for a recipe without its corpus; else None."""
    from albertine.core.settings import load, read_yaml
    from albertine.pretraining.settings import PretrainingSettings

    path = identify(what).path
    if path.suffix not in (".yaml", ".yml") or "task" in read_yaml(path):
        return None
    settings = load(PretrainingSettings, path)
    if settings.model.preset is None or _manifest(settings.corpus) is not None:
        return None
    size = preset(settings.model.preset).vocab_size
    return f"Counted with the preset's vocabulary of {size:,} tokens; in a run it is that of the corpus."


def preset_sizes() -> dict[str, int]:
    """Parameters of every preset, with pooler and pretraining heads."""
    from albertine.analysis.parameters import parameters_by_part
    from albertine.model.presets import PRESETS

    return {name: sum(parameters_by_part(config).values()) for name, config in PRESETS.items()}


def lengths_of(config: EncoderConfig, requested: Sequence[int] | None = None) -> tuple[int, ...]:
    """The requested sequence lengths; by default those of `DEFAULT_LENGTHS` that the model has positions for.

    Raises:
        SettingsError: one is less than 1, or more than the model supports.
    """
    if not requested:
        most = config.max_position_embeddings
        return tuple(n for n in DEFAULT_LENGTHS if n <= most) or (most,)
    for length in requested:
        check_integer("length", length, 1)
    longest = config.max_sequence_length
    if longest is not None and max(requested) > longest:
        raise SettingsError(
            f"the model has a maximum of {longest} tokens, and a length of {max(requested)} is more",
            remedy=f"Give {longest} at most (--length, in Python length=)",
        )
    return tuple(requested)


def common_lengths(models: Sequence[str], requested: Sequence[int] | None = None) -> tuple[int, ...]:
    """`lengths_of` for several models, by that with the fewest positions. Raises as `look_up_model` too."""
    if not models:
        raise SettingsError("name one or more models")
    configs = map(look_up_model, models)
    return lengths_of(min(configs, key=lambda config: config.max_position_embeddings), requested)


def costs(what: str, lengths: Sequence[int] | None = None) -> dict[str, Any]:
    """The costs of a model as JSON data; of a corpus or an exported model its facts.

    Args:
        what: as in `look_up`. lengths: of sequences, for the operations per token; default 128 and 512.

    Raises:
        AlbertineError: as `look_up` and `lengths_of`.
    """
    from albertine.analysis.parameters import report
    from albertine.model.sharing import sharing_in_words

    config = look_up(what)
    if isinstance(config, NoModel):
        return config.facts
    plan, copies = sharing_in_words(config.plan), copies_behind(what)
    found: dict[str, Any] = {"name": what, "encoder": config.to_dict(), "sharing": plan}
    found["block"] = block_in_words(config)
    if (loops := trained_loops(what)) is not None and config.plan.loop_structure is not None:
        found["elastic"] = {"loops": loops, "layers": [config.plan.depth_of(n) for n in loops]}
    if copies is not None:
        sharing, encoder = sharing_in_words(copies.config.plan), copies.config.to_dict()
        found["copies_of"] = {"sharing": sharing, "equal": copies.equal, "encoder": encoder}
    return found | _as_data(report(config, lengths_of(config, lengths)))


def _as_data(found: Report) -> dict[str, Any]:
    return {
        "parameters": {
            **found.parts,
            "without_pooler": found.without_pooler,
            "with_pooler": found.backbone,
            "everything": found.everything,
        },
        "training_flops_per_token": found.training_flops,
        "inference_flops_per_token": found.inference_flops,
        "memory_bytes": found.memory,
    }


def block_in_words(config: EncoderConfig) -> str:
    """The parts of a block, and the architecture it is of."""
    words = [
        "no positions" if config.positions == "none" else f"{config.positions} positions",
        f"{config.norm}-norm",
        *(["QK-norm"] if config.qk_norm else []),
        *(["head gates"] if config.head_gate else []),
        *([f"residual factor {config.residual_factor:.3g}"] if config.residual_factor != 1 else []),
        f"{config.feed_forward} feed-forward ({config.hidden_act})",
        *([] if config.biases else ["no biases"]),
        *_loop_in_words(config),
        *(["input injection"] if config.input_injection else []),
        *(["output matrix of its own"] if config.output == "own" else []),
    ]
    if config.solves:
        most, near = config.num_hidden_layers, config.tolerance
        words.append(f"run to its fixed point by {config.solver} (at most {most} iterations, to {near:g})")
    architecture = _ARCHITECTURES.get(str(config.architecture))
    return ", ".join(words) + (f": the block of {architecture}" if architecture else "")


def _loop_in_words(config: EncoderConfig) -> list[str]:
    """Embeddings added before every step, and halting."""
    signals = {"place": config.position_signal, "step": config.step_signal}
    words = [f"{kind} signal of the {name}" for name, kind in signals.items() if kind != "none"]
    if config.halts:
        steps = f"at most {config.num_hidden_layers} steps, epsilon {config.halting_epsilon:g}"
        words.append(f"{config.halting} halting ({steps})")
    return words
