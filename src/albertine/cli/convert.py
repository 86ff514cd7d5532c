"""`albertine convert`: read a model in any layout, write it in another."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from albertine.cli import show

if TYPE_CHECKING:
    from collections.abc import Iterable

    from albertine.interop.google_names import Kind
    from albertine.interop.model_folder import ModelFolder
    from albertine.layout import Packed
    from albertine.model.model import Model
    from albertine.text.tokenizer import Tokenizer

SAMPLES = 64
Stored = Literal["float32", "bfloat16", "float16"]
Target = Literal[
    "hf",
    "transformers",
    "bert",
    "electra",
    "roformer",
    "modernbert",
    "xlnet",
    "albertine",
    "google",
    "bert4keras",
    "brightmart",
    "xlnet-tf",
    "lonepatient",
]
"""Layouts of transformers that hold a copy of shared weights for every depth, of which the first two are the
one that fits; our own; those of TensorFlow; and that of lonePatient's albert_pytorch."""
_CHECKPOINTS = ("google", "bert4keras", "brightmart", "xlnet-tf", "lonepatient")
"""Of these layouts, those that are no folders of transformers or ours."""


def convert(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="FROM",
            help="Model or run folder to read, one with a checkpoint of TensorFlow, released model, or "
            "OWNER/NAME of the Hugging Face hub. Its layout is told by its files.",
        ),
    ],
    target: Annotated[
        Path, typer.Argument(metavar="TO", help="Folder to write; new, or a model folder to replace.")
    ],
    share: Annotated[
        bool,
        typer.Option("--share", help="Give all depths the mean of their weights, and tell the difference."),
    ] = False,
    to: Annotated[
        Target | None,
        typer.Option(
            "--to",
            metavar="LAYOUT",
            help="For transformers, with a copy of shared weights for every depth: hf (the one that fits), "
            "bert, electra, roformer, modernbert, xlnet. Our own: albertine. TensorFlow checkpoints: google "
            "(its ALBERT or BERT), bert4keras, brightmart (albert_zh), xlnet-tf. For albert_pytorch: "
            "lonepatient. By default a folder that transformers loads, nothing written twice.",
        ),
    ] = None,
    lossy: Annotated[
        bool,
        typer.Option(
            "--lossy",
            help="With a TensorFlow layout or lonepatient: write also what it holds only in part, and tell "
            "what is lost and how far outputs change.",
        ),
    ] = False,
    stored: Annotated[
        Stored,
        typer.Option(
            "--dtype", help="Of the weights in the file; the small ones are loaded as float32 all the same."
        ),
    ] = "float32",
    whiten: Annotated[
        list[Path] | None,
        typer.Option(
            "--whiten",
            metavar="TEXT",
            help="Make vectors of texts comparable, by the sentences of these files or folders (give it "
            "again for more): for `predict embed` and `similarity` of a model that was not tuned for them.",
        ),
    ] = None,
    depth: Annotated[
        int | None,
        typer.Option(
            "--depth",
            min=0,
            help="With --whiten: the depth that vectors are made of; default 1, of a solver all.",
        ),
    ] = None,
    sample: Annotated[
        Path | None,
        typer.Option(
            "--sample",
            help="With --share, or --lossy and a TensorFlow layout: compare outputs on a text's first "
            f"{SAMPLES} lines.",
        ),
    ] = None,
    without_head: Annotated[
        bool,
        typer.Option(
            "--without-head",
            help="Write the encoder alone, without the head of the task that it was tuned for.",
        ),
    ] = False,
    without_tokenizer: Annotated[
        bool,
        typer.Option(
            "--without-tokenizer",
            help="Write the model alone, also where its tokenizer is of a kind that is not read.",
        ),
    ] = False,
) -> None:
    """Write a model as another program loads it.

    For transformers that is a folder with config.json, safetensors and tokenizer; for Google's code,
    brightmart's, bert4keras and XLNet's a checkpoint of TensorFlow; for lonePatient's a pytorch_model.bin."""
    from albertine.errors import SettingsError
    from albertine.interop.huggingface import read_folder
    from albertine.interop.places import check_apart, model_folder
    from albertine.text.load import has_vocabulary

    source = model_folder(source)
    check_apart(source, target)
    if sample is not None and not (share or (lossy and to != "lonepatient")):
        raise SettingsError(
            "--sample belongs to --share, or to --lossy with a TensorFlow layout",
            remedy="Leave it out: without these no output changes",
        )
    if lossy and to not in _CHECKPOINTS:
        raise SettingsError(
            f"--lossy belongs to --to {', '.join(_CHECKPOINTS)}",
            remedy="Leave it out: folders of transformers lose nothing, or are refused",
        )
    if depth is not None and not whiten:
        raise SettingsError("--depth belongs to --whiten", remedy="Add --whiten, or leave it out")
    found = read_folder(source)
    if without_head:
        from albertine.interop.heads import without_head as headless

        found = headless(found)
    # A damaged tokenizer must not pass for an absent one.
    tokenizer = None
    if not without_tokenizer and has_vocabulary(source):
        tokenizer = _tokenizer(source, found)
    text = None if sample is None else _rows(sample, found.model, tokenizer)
    model = _shared(found.model, text) if share else found.model
    if to is not None and to in _CHECKPOINTS:
        if stored != "float32" or whiten:
            what = "--whiten" if whiten else f"--dtype {stored}"
            raise SettingsError(f"{what} has no place in the layout {to}", remedy="Leave it out")
        _checkpoint(source, replace(found, model=model), tokenizer, target, to, text, lossy=lossy)
    else:
        if whiten:
            files = _whitening(source, model, tokenizer, whiten, depth)
        else:
            found, files = _vectors(source, found, model)
        _folder(replace(found, model=model), tokenizer, target, to, files, stored)
    if found.left_aside:
        typer.echo(f"Left out: {', '.join(found.left_aside)}, a head that Albertine does not compute.")
    why = "" if without_tokenizer else ", as it had none"
    typer.echo(f"{target}: written, {'with its tokenizer' if tokenizer else f'without a tokenizer{why}'}")


def _vectors(source: Path, found: ModelFolder, model: Model) -> tuple[ModelFolder, dict[str, bytes]]:
    """What a folder says of how it makes vectors, as far as it is true of the model as it is written; what is
    left out is told."""
    from albertine.interop.config_values import our_flags
    from albertine.interop.heads import without_head
    from albertine.interop.sentence_transformers import vector_files

    last = model.config.summary == "last"
    every = vector_files(source, last=last)
    if model.config.plan == found.model.config.plan:
        return found, every
    files = vector_files(source, same_weights=False, last=last)
    if left := sorted(every.keys() - files.keys()):
        typer.echo(f"Left out: {', '.join(left)}, of the weights before. --whiten TEXT makes new ones.")
    whitened = our_flags(found.config).get("pooling") == "whitened"
    return (without_head(found) if left and whitened else found), files


def _tokenizer(source: Path, found: ModelFolder) -> Tokenizer:
    """The tokenizer of a model, which fits it."""
    from albertine.errors import TokenizerError
    from albertine.text.load import check_tokenizer, load_tokenizer

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
) -> None:
    """Write a folder with config.json and safetensors."""
    from albertine.interop.copies import LAYOUTS, copied, in_numbers
    from albertine.interop.heads import carried_config, has_own_head, in_transformers
    from albertine.interop.huggingface import save_model, written_type
    from albertine.interop.modernbert import kept_words
    from albertine.interop.weights import read_json

    layout = None if to is None else LAYOUTS[to]
    kind = written_type(found.model.config, layout)
    kept = kept_words(found.config, ids=tokenizer is None) if kind == "modernbert" else {}
    save_model(
        found.model,
        tokenizer,
        target,
        extra_tensors=found.extra,
        extra_config=kept | carried_config(found, kind),
        extra_files=files,
        layout=layout,
        stored=stored,
    )
    if has_own_head(written := read_json(target / "config.json")):
        typer.echo(f"transformers: {in_transformers(written)}.")
    if layout is not None and layout != "albertine" and found.model.config.mapped == "words":
        numbers = in_numbers(found.model, copied(found.model, layout))
        typer.echo(f"Its word embeddings are written multiplied: {numbers}; both factors are kept beside.")


def _checkpoint(
    source: Path,
    found: ModelFolder,
    tokenizer: Tokenizer | None,
    target: Path,
    to: str,
    text: Packed | None,
    *,
    lossy: bool,
) -> None:
    """Write what holds float32 and what its code computes: a checkpoint of TensorFlow, or lonePatient's.

    Raises:
        SettingsError: it has no place for all of the model, and `lossy` is not asked for.
    """
    from albertine.errors import SettingsError
    from albertine.interop.google import save_checkpoint
    from albertine.interop.heads import carried_config, task_of, without_head
    from albertine.interop.lonepatient import save_lonepatient
    from albertine.interop.nearest import fitted, greatest_difference, random_rows
    from albertine.interop.tensorflow_layouts import written_kind

    alone = to == "lonepatient"
    model, told = fitted(found.model, to) if lossy and not alone else (found.model, ())
    kind: Kind = "albert" if alone else written_kind(model, to)
    if out := _out_of_place(source, found, to, kind):
        if not lossy:
            raise SettingsError(
                f"the layout {to} has no place for {', '.join(out)}",
                remedy="Add --lossy, and the model is written without; or leave --to out, and all goes along",
            )
        if task_of(found) == "embed" or not found.extra.keys().isdisjoint(out):
            found = without_head(found)
    said = carried_config(found, kind)
    if alone:
        save_lonepatient(model, tokenizer, target, extra_tensors=found.extra, extra_config=said)
    else:
        save_checkpoint(model, tokenizer, target, to, extra_tensors=found.extra, extra_config=said)
    if out:
        typer.echo(f"Left out: {', '.join(out)}, which the layout {to} has no place for.")
    if told:
        typer.echo(" ".join(told))
        rows = random_rows(model) if text is None else text
        off, most = greatest_difference(found.model, model, rows)
        where = "rows of random pieces (--sample takes a text)" if text is None else "lines"
        far = f"its outputs differ by at most {off:.2g}, where the greatest is {most:.2g}"
        typer.echo(f"On {rows.num_sequences} {where} {far}.")


def _out_of_place(source: Path, found: ModelFolder, to: str, kind: Kind) -> list[str]:
    """What a checkpoint has no place for: the head of a task, whole or not at all, and what makes vectors.

    Args:
        kind: whose names it is written by.
    """
    from albertine.interop.google_names import placed
    from albertine.interop.heads import pooling_of, task_of
    from albertine.interop.sentence_transformers import MODULES, WHITENING, makes_vectors
    from albertine.interop.xlnet_names import MASK_EMBEDDING

    task, pooling = task_of(found) or "classify", pooling_of(found)  # which older folders do not say
    names = found.extra.keys() - {MASK_EMBEDDING}  # of every XLNet, though without a head nothing reads it
    # A head of another task may have the names of one of these.
    layer = {"classify": "classifier", "answer": "qa_outputs"}
    places: Iterable[str] = placed(kind) if task in layer else ()
    if to == "lonepatient":
        layer |= {"choose": "classifier", "tag": "classifier"}
        places = [f"{layer.get(task)}.{part}" for part in ("weight", "bias")]
    held = pooling == "cls" and names.issubset(places)  # its classifiers look at [CLS]
    files = {name for name in (MODULES, WHITENING) if (source / name).is_file()}
    files -= set() if makes_vectors(source) else {MODULES}  # config.json says all of a cross-encoder's
    if task == "embed" and pooling in ("mean", "depths") and WHITENING not in files:
        files = set()  # config.json says the same
    return sorted((set() if held else names) | files)


def _whitening(
    source: Path, model: Model, tokenizer: Tokenizer | None, texts: list[Path], depth: int | None
) -> dict[str, bytes]:
    """The file of a new whitening, by the sentences of texts."""
    from albertine.cli.source import Source
    from albertine.errors import ModelError
    from albertine.inference.whitening import FILE, measure, sentences_of

    if tokenizer is None:
        raise ModelError("has no tokenizer to read text with", where=source)
    text = Source(texts)
    found = measure(model, tokenizer, sentences_of(texts, on_file=text.note), depth)
    show.notes(text.passed_over())
    return {FILE: found.to_bytes()}


def _rows(sample: Path, model: Model, tokenizer: Tokenizer | None) -> Packed:
    """The first lines of a text, as a model reads them."""
    from albertine.errors import DataError, ModelError
    from albertine.layout import pack
    from albertine.tasks.readers.files import text_lines

    if tokenizer is None:
        raise ModelError("cannot read the sample: the model has no tokenizer", where=sample)
    limit = model.config.max_position_embeddings
    lines = islice((line for _, line in text_lines(sample, prefix=None) if line.strip()), SAMPLES)
    rows = [tokenizer.layout(tokenizer.encode(line), max_length=limit) for line in lines]
    if not rows:
        raise DataError("has no line with text", where=sample)
    return pack([ids for ids, _ in rows], [types for _, types in rows])


def _shared(model: Model, text: Packed | None) -> Model:
    """The model with one block for all depths; how far each depth was from it is printed."""
    from albertine.model.replan import distances, output_change, shared_again

    shared = shared_again(model)
    apart = distances(model, shared)
    show.table(
        ("depth", *(part.replace("_", "-") for part in apart)),
        [(str(d), *(f"{x:.4f}" for x in row)) for d, row in enumerate(zip(*apart.values(), strict=True), 1)],
    )
    typer.echo("Distance from the mean over the mean's norm, in the Frobenius norm.")
    if text is not None:
        change = output_change(model, shared, text)
        typer.echo(f"Outputs on {text.num_sequences} lines change by {change:.4f} of their norm.")
    return shared
