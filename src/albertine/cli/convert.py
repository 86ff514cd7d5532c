"""`albertine convert`: read a model in any layout, write it in another."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from albertine.cli import show

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


def convert(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="FROM",
            help="Model or run folder to read, one with a checkpoint of TensorFlow, released model, or "
            "OWNER/NAME of the Hugging Face hub. Its layout is recognised by its files.",
        ),
    ],
    target: Annotated[
        Path, typer.Argument(metavar="TO", help="Folder to write; new, or a model folder to replace.")
    ],
    share: Annotated[
        bool,
        typer.Option("--share", help="Give all depths the mean of their weights, and print the difference."),
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
            help="With a TensorFlow layout or lonepatient: write also what it holds only in part, and print "
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
    from albertine.corpus.source import Source
    from albertine.export.convert import convert as run

    texts = Source(whiten or ())
    done = run(
        source,
        target,
        to=to,
        share=share,
        lossy=lossy,
        stored=stored,
        whiten=whiten or (),
        depth=depth,
        sample=sample,
        without_head=without_head,
        without_tokenizer=without_tokenizer,
        on_file=texts.add_report,
    )
    show.notes(texts.passed_over())
    if done.distances:
        parts = (part.replace("_", "-") for part in done.distances)
        rows = enumerate(zip(*done.distances.values(), strict=True), 1)
        show.table(("depth", *parts), [(str(d), *(f"{x:.4f}" for x in row)) for d, row in rows])
        typer.echo("Distance from the mean over the mean's norm, in the Frobenius norm.")
    for note in done.notes:
        typer.echo(note)
    why = "" if without_tokenizer else ", as it had none"
    typer.echo(
        f"{target}: written, {'with its tokenizer' if done.tokenizer else f'without a tokenizer{why}'}"
    )
