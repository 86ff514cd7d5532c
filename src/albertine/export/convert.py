"""A model in any layout, written in another."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path

from albertine.core.batch import Packed, pack
from albertine.errors import DataError, ModelError, SettingsError, TokenizerError
from albertine.inference.whitening import FILE, fit_whitening, sentences_of
from albertine.interop.config_values import our_flags
from albertine.interop.heads import (
    has_own_head,
    head_config_for,
    known_to_transformers,
    pooling_of,
    task_of,
)
from albertine.interop.heads import without_head as headless
from albertine.interop.huggingface.folders import STORED, Stored, read_folder, save_model, written_type
from albertine.interop.huggingface.lonepatient import save_lonepatient
from albertine.interop.huggingface.modernbert import preserved_keys
from albertine.interop.huggingface.xlnet_names import MASK_EMBEDDING
from albertine.interop.model_folder import ModelFolder
from albertine.interop.model_names import check_separate, model_folder
from albertine.interop.sentence_transformers import MODULES, WHITENING, makes_vectors, vector_files
from albertine.interop.tensorflow.checkpoints import save_checkpoint
from albertine.interop.tensorflow.layouts import written_kind
from albertine.interop.tensorflow.lossy import fit_to_layout, greatest_difference, random_rows
from albertine.interop.tensorflow.names import Kind, placed
from albertine.interop.tied_expansion import LAYOUTS, expanded, size_change
from albertine.interop.weights import read_json
from albertine.model.model import Model
from albertine.model.resharing import distances, output_change, shared_again
from albertine.tasks.readers.files import text_lines
from albertine.text.documents import FileReport
from albertine.tokenizers.base import Tokenizer
from albertine.tokenizers.load import check_tokenizer, has_vocabulary, load_tokenizer

AddNote = Callable[[str], None]
OnFile = Callable[[FileReport], None] | None
SAMPLES = 64
"""Lines of a text on which outputs are compared."""
CHECKPOINTS = ("google", "bert4keras", "brightmart", "xlnet-tf", "lonepatient")
"""Layouts that are not folders of transformers or ours."""


@dataclass(frozen=True)
class Converted:
    """The result of a conversion.

    Attributes:
        folder: the folder written. tokenizer: whether it has a tokenizer.
        distances: if layers were shared again, for each layer the distance of its weights from their mean
            over the norm of the mean, by part of the block.
        notes: on tensors that were left out, and on differences of outputs.
    """

    folder: Path
    tokenizer: bool
    distances: Mapping[str, Sequence[float]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def convert(
    source: str | Path,
    target: Path,
    *,
    to: str | None = None,
    share: bool = False,
    lossy: bool = False,
    stored: Stored = "float32",
    whiten: Sequence[Path] = (),
    depth: int | None = None,
    sample: Path | None = None,
    without_head: bool = False,
    without_tokenizer: bool = False,
    on_file: OnFile = None,
) -> Converted:
    """Write a model as another program loads it.

    Args:
        source: any name of a model. target: a new folder, or a model folder to replace.
        to: one of `LAYOUTS` or `CHECKPOINTS`; None: a folder that transformers loads where it can.
        share: give all depths the mean of their weights.
        lossy: with a checkpoint also write what it holds only in part.
        stored: number format of the weights in the file.
        whiten: files of text by which vectors are made comparable. depth: the one that vectors are made of.
        sample: a text on whose first lines outputs are compared.
        without_head: the encoder alone. without_tokenizer: the model alone.
        on_file: called with every file of `whiten` that is read or passed over.

    Raises:
        AlbertineError: the model cannot be read, the layout has no place for it, options that do not go
            together, or `target` holds something else.
    """
    notes, apart = list[str](), dict[str, list[float]]()
    if to not in (None, *LAYOUTS, *CHECKPOINTS):
        known = ", ".join((*LAYOUTS, *CHECKPOINTS))
        raise SettingsError(f"there is no layout `{to}`", remedy=f"Known are {known}")
    if stored not in STORED:
        raise SettingsError(f"there is no format `{stored}`", remedy=f"Known are {', '.join(STORED)}")
    source = model_folder(source)
    check_separate(source, target)
    if sample is not None and not (share or (lossy and to != "lonepatient")):
        raise SettingsError(
            "--sample belongs to --share, or to --lossy with a TensorFlow layout",
            remedy="Leave it out: without these no output changes",
        )
    if lossy and to not in CHECKPOINTS:
        raise SettingsError(
            f"--lossy belongs to --to {', '.join(CHECKPOINTS)}",
            remedy="Leave it out: folders of transformers lose nothing, or are refused",
        )
    if depth is not None and not whiten:
        raise SettingsError("--depth belongs to --whiten", remedy="Add --whiten, or leave it out")
    found = read_folder(source)
    if without_head:
        found = headless(found)
    # A damaged tokenizer must not pass for an absent one.
    tokenizer = None
    if not without_tokenizer and has_vocabulary(source):
        tokenizer = _tokenizer(source, found)
    text = None if sample is None else _rows(sample, found.model, tokenizer)
    model = found.model
    if share:
        model, apart = _shared(model, text, notes.append)
    if to is not None and to in CHECKPOINTS:
        if stored != "float32" or whiten:
            what = "--whiten" if whiten else f"--dtype {stored}"
            raise SettingsError(f"{what} has no place in the layout {to}", remedy="Leave it out")
        _checkpoint(
            source, replace(found, model=model), tokenizer, target, to, text, notes.append, lossy=lossy
        )
    else:
        if whiten:
            files = _whitening(source, model, tokenizer, whiten, depth, on_file)
        else:
            found, files = _vectors(source, found, model, notes.append, all_layers=not without_head)
        _folder(replace(found, model=model), tokenizer, target, to, files, stored, notes.append)
    if found.left_aside:
        notes.append(f"Left out: {', '.join(found.left_aside)}, a head that Albertine does not compute.")
    return Converted(target, tokenizer is not None, apart, tuple(notes))


def _vectors(
    source: Path, found: ModelFolder, model: Model, add_note: AddNote, *, all_layers: bool
) -> tuple[ModelFolder, dict[str, bytes]]:
    """The settings of vectors in a folder, as far as they hold for the model as it is written, with a note
    on those left out.

    Args:
        all_layers: as in `vector_files`.
    """

    last = model.config.summary == "last"
    every = vector_files(source, last=last, all_layers=all_layers)
    if model.config.plan == found.model.config.plan:
        return found, every
    files = vector_files(source, same_weights=False, last=last, all_layers=all_layers)
    if left := sorted(every.keys() - files.keys()):
        add_note(f"Left out: {', '.join(left)}, of the weights before. --whiten TEXT makes new ones.")
    whitened = our_flags(found.config).get("pooling") == "whitened"
    return (headless(found) if left and whitened else found), files


def _tokenizer(source: Path, found: ModelFolder) -> Tokenizer:
    """The tokenizer of a model, which fits it."""

    try:
        tokenizer = load_tokenizer(source)
    except TokenizerError as error:
        way = "Or add --without-tokenizer, and the model goes alone"
        remedy = f"{error.remedy}. {way}" if error.remedy else way
        raise TokenizerError(error.what, where=error.where, remedy=remedy) from error
    check_tokenizer(found.model.config, tokenizer, source)
    return tokenizer


def _folder(
    found: ModelFolder,
    tokenizer: Tokenizer | None,
    target: Path,
    to: str | None,
    files: dict[str, bytes],
    stored: Stored,
    add_note: AddNote,
) -> None:
    """Write a folder with config.json and safetensors."""

    layout = None if to is None else LAYOUTS[to]
    kind = written_type(found.model.config, layout)
    kept = preserved_keys(found.config, ids=tokenizer is None) if kind == "modernbert" else {}
    save_model(
        found.model,
        tokenizer,
        target,
        extra_tensors=found.extra,
        extra_config=kept | head_config_for(found, kind),
        extra_files=files,
        layout=layout,
        stored=stored,
    )
    if has_own_head(written := read_json(target / "config.json")):
        add_note(f"transformers: {known_to_transformers(written)}.")
    if layout is not None and layout != "albertine" and found.model.config.mapping_input == "words":
        numbers = size_change(found.model, expanded(found.model, layout))
        add_note(f"Its word embeddings are written multiplied: {numbers}; both factors are kept beside.")


def _checkpoint(
    source: Path,
    found: ModelFolder,
    tokenizer: Tokenizer | None,
    target: Path,
    to: str,
    text: Packed | None,
    add_note: AddNote,
    *,
    lossy: bool,
) -> None:
    """Write what holds float32 and what its code computes: a checkpoint of TensorFlow, or lonePatient's.

    Raises:
        SettingsError: it has no place for all of the model, and `lossy` is not set.
    """

    alone = to == "lonepatient"
    model, changes = fit_to_layout(found.model, to) if lossy and not alone else (found.model, ())
    kind: Kind = "albert" if alone else written_kind(model, to)
    if out := _out_of_place(source, found, to, kind):
        if not lossy:
            raise SettingsError(
                f"the layout {to} has no place for {', '.join(out)}",
                remedy="Add --lossy, and the model is written without; or leave --to out, and all goes along",
            )
        if task_of(found) == "embed" or not found.extra.keys().isdisjoint(out):
            found = headless(found)
    head_config = head_config_for(found, kind)
    if alone:
        save_lonepatient(model, tokenizer, target, extra_tensors=found.extra, extra_config=head_config)
    else:
        save_checkpoint(model, tokenizer, target, to, extra_tensors=found.extra, extra_config=head_config)
    if out:
        add_note(f"Left out: {', '.join(out)}, which the layout {to} has no place for.")
    if changes:
        add_note(" ".join(changes))
        rows = random_rows(model) if text is None else text
        off, most = greatest_difference(found.model, model, rows)
        where = "rows of random tokens (--sample takes a text)" if text is None else "lines"
        far = f"its outputs differ by at most {off:.2g}, where the greatest is {most:.2g}"
        add_note(f"On {rows.num_sequences} {where} {far}.")


def _out_of_place(source: Path, found: ModelFolder, to: str, kind: Kind) -> list[str]:
    """The parts of a model that a checkpoint does not support: a task head, as a whole, and the settings of
    vectors.

    Args:
        kind: naming of its variables.
    """

    task, pooling = task_of(found) or "classify", pooling_of(found)  # the default of folders without a task
    names = found.extra.keys() - {MASK_EMBEDDING}  # in every XLNet, but unused without a head
    # A head of another task may have the names of one of these.
    layer = {"classify": "classifier", "answer": "qa_outputs"}
    places: Iterable[str] = placed(kind) if task in layer else ()
    if to == "lonepatient":
        layer |= {"choose": "classifier", "tag": "classifier"}
        places = [f"{layer.get(task)}.{part}" for part in ("weight", "bias")]
    held = pooling == "cls" and names.issubset(places)  # its classifiers look at [CLS]
    files = {name for name in (MODULES, WHITENING) if (source / name).is_file()}
    files -= set() if makes_vectors(source) else {MODULES}  # a cross-encoder is described by config.json
    if task == "embed" and pooling in ("mean", "depths") and WHITENING not in files:
        files = set()  # config.json has the same
    return sorted((set() if held else names) | files)


def _whitening(
    source: Path,
    model: Model,
    tokenizer: Tokenizer | None,
    texts: Sequence[Path],
    depth: int | None,
    on_file: OnFile,
) -> dict[str, bytes]:
    """The file of a new whitening, by the sentences of texts."""

    if tokenizer is None:
        raise ModelError("has no tokenizer to read text with", where=source)
    found = fit_whitening(model, tokenizer, sentences_of(list(texts), on_file=on_file), depth)
    return {FILE: found.to_bytes()}


def _rows(sample: Path, model: Model, tokenizer: Tokenizer | None) -> Packed:
    """The first lines of a text, as a model reads them."""

    if tokenizer is None:
        raise ModelError("cannot read the sample: the model has no tokenizer", where=sample)
    limit = model.config.max_position_embeddings
    lines = islice((line for _, line in text_lines(sample, prefix=None) if line.strip()), SAMPLES)
    rows = [tokenizer.layout(tokenizer.encode(line), max_length=limit) for line in lines]
    if not rows:
        raise DataError("has no line with text", where=sample)
    return pack([ids for ids, _ in rows], [types for _, types in rows])


def _shared(model: Model, text: Packed | None, add_note: AddNote) -> tuple[Model, dict[str, list[float]]]:
    """The model with one block for all depths, and how far each depth was from it."""
    shared = shared_again(model)
    apart = distances(model, shared)
    if text is not None:
        change = output_change(model, shared, text)
        add_note(f"Outputs on {text.num_sequences} lines change by {change:.4f} of their norm.")
    return shared, {part: list(values) for part, values in apart.items()}
