"""`albertine convert`: read a model folder, write it as a Hugging Face folder."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from albertine.cli import show

if TYPE_CHECKING:
    from albertine.interop.model_folder import ModelFolder
    from albertine.model.model import Model
    from albertine.text.tokenizer import Tokenizer

SAMPLES = 64
Stored = Literal["float32", "bfloat16", "float16"]
Target = Literal["transformers", "bert", "electra", "roformer", "modernbert", "xlnet", "google", "xlnet-tf"]
"""Layouts of transformers that hold a copy of shared weights for every depth, of which the first is the one
that fits; and two of TensorFlow."""
_HEADS = {"classify": "classifier.", "answer": "qa_outputs."}
"""Heads that Google's code has too, by task."""


def convert(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="FROM",
            help="Model or run folder to read, one with a checkpoint of TensorFlow, released model, or "
            "OWNER/NAME of the Hugging Face hub.",
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
            help="A layout of transformers, with a copy of shared weights for every depth; or a TensorFlow "
            "checkpoint of Google's ALBERT and BERT (google) or XLNet (xlnet-tf). By default a folder that "
            "transformers loads, nothing written twice.",
        ),
    ] = None,
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
        typer.Option("--depth", min=0, help="With --whiten: the depth that vectors are made of; default 1."),
    ] = None,
    sample: Annotated[
        Path | None,
        typer.Option("--sample", help=f"With --share: compare outputs on a text's first {SAMPLES} lines."),
    ] = None,
) -> None:
    """Write a model as transformers or Google's code loads it.

    For transformers that is a folder with config.json, safetensors and tokenizer."""
    import albertine
    from albertine.errors import ModelError, SettingsError
    from albertine.interop.heads import carried_config
    from albertine.interop.huggingface import read_folder, save_model, written_type
    from albertine.interop.places import model_folder
    from albertine.text.load import has_vocabulary

    source = model_folder(source)
    if source.resolve() == target.resolve():
        raise ModelError("is both read and written", where=source, remedy="Name another folder to write")
    if sample is not None and not share:
        raise SettingsError("--sample belongs to --share", remedy="Add --share, or leave it out")
    if depth is not None and not whiten:
        raise SettingsError("--depth belongs to --whiten", remedy="Add --whiten, or leave it out")
    found = read_folder(source)
    # A damaged tokenizer must not pass for an absent one.
    tokenizer = albertine.load_tokenizer(source) if has_vocabulary(source) else None
    model = _shared(found.model, tokenizer, sample) if share else found.model
    if to == "google" or to == "xlnet-tf":
        _checkpoint(model, tokenizer, found, target, to, stored, whiten)
    else:
        files = _whitening(source, model, tokenizer, whiten, 1 if depth is None else depth, not share)
        task = carried_config(found, written_type(model.config, to))
        save_model(
            model,
            tokenizer,
            target,
            extra_tensors=found.extra,
            extra_config=task,
            extra_files=files,
            layout=to,
            stored=stored,
        )
    for note in found.notes:
        typer.echo(note)
    if found.left_aside:
        typer.echo(f"Left out: {', '.join(found.left_aside)}, a head that Albertine does not compute.")
    typer.echo(
        f"{target}: written, {'with its tokenizer' if tokenizer else 'without a tokenizer, as it had none'}"
    )


def _checkpoint(
    model: Model,
    tokenizer: Tokenizer | None,
    found: ModelFolder,
    target: Path,
    to: str,
    stored: Stored,
    whiten: list[Path] | None,
) -> None:
    """Write a checkpoint of TensorFlow, which holds float32 and what its code computes."""
    from albertine.errors import SettingsError
    from albertine.interop.google import save_checkpoint
    from albertine.interop.google_config import written_kind
    from albertine.interop.heads import carried_config, pooling_of, task_of

    if stored != "float32" or whiten:
        what = "--whiten" if whiten else f"--dtype {stored}"
        raise SettingsError(f"{what} has no place in the layout {to}", remedy="Leave it out")
    # Its classifier looks at [CLS] alone, and other heads of a layer have the names of none there.
    head = _HEADS.get(str(task_of(found))) if pooling_of(found) == "cls" else None
    extra = {name: x for name, x in found.extra.items() if head and name.startswith(head)}
    task = carried_config(found, written_kind(model, to)) if extra else {}
    left = save_checkpoint(model, tokenizer, target, to, extra_tensors=extra, extra_config=task)
    if out := sorted({*left, *found.extra.keys() - extra.keys()}):
        typer.echo(f"Left out: {', '.join(out)}, which Google's code has no place for.")


def _whitening(
    source: Path, model: Model, tokenizer: Tokenizer | None, texts: list[Path] | None, depth: int, kept: bool
) -> dict[str, bytes]:
    """The file of a whitening: a new one by texts, else that of the source, as long as its encoder is
    kept."""
    from albertine.cli.source import Source
    from albertine.errors import ModelError
    from albertine.inference.whitening import FILE, measure, read_whitening, sentences_of

    config, found = model.config, None
    if texts:
        if tokenizer is None:
            raise ModelError("has no tokenizer to read text with", where=source)
        text = Source(texts)
        found = measure(model, tokenizer, sentences_of(texts, on_file=text.note), depth)
        show.notes(text.passed_over())
    elif kept:
        found = read_whitening(source, config.hidden_size, config.plan.depth)
    return {} if found is None else {FILE: found.to_bytes()}


def _shared(model: Model, tokenizer: Tokenizer | None, sample: Path | None) -> Model:
    """The model with one block for all depths; how far each depth was from it is printed."""
    from albertine.errors import DataError, ModelError
    from albertine.layout import pack
    from albertine.model.replan import distances, output_change, shared_again
    from albertine.tasks.readers.files import text_lines

    shared = shared_again(model)
    apart = distances(model, shared)
    show.table(
        ("depth", *(part.replace("_", "-") for part in apart)),
        [(str(d), *(f"{x:.4f}" for x in row)) for d, row in enumerate(zip(*apart.values(), strict=True))],
    )
    typer.echo("Distance from the mean over the mean's norm, in the Frobenius norm.")
    if sample is not None:
        if tokenizer is None:
            raise ModelError("cannot read the sample: the model has no tokenizer", where=sample)
        limit = model.config.max_position_embeddings
        lines = islice((line for _, line in text_lines(sample, prefix=None) if line.strip()), SAMPLES)
        rows = [tokenizer.layout(tokenizer.encode(line), max_length=limit) for line in lines]
        if not rows:
            raise DataError("has no line with text", where=sample)
        change = output_change(model, shared, pack([ids for ids, _ in rows], [types for _, types in rows]))
        typer.echo(f"Outputs on {len(rows)} lines change by {change:.4f} of their norm.")
    return shared
