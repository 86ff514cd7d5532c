"""`albertine export`: write a model for another runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def export(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help="Model or run folder, released model, or OWNER/NAME of the Hugging Face hub.",
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Argument(
            metavar="[OUT]",
            help="New folder to write; default: `export` in the model's own folder, for --runtime.",
        ),
    ] = None,
    to: Annotated[
        list[str] | None,
        typer.Option(
            "--to",
            metavar="FORMAT",
            help="Format to write: onnx (the default), openvino, torch or gguf; may be repeated. Or an "
            "application of another server: ray-serve or triton.",
        ),
    ] = None,
    head: Annotated[
        str,
        typer.Option(
            "--head",
            metavar="HEAD",
            help="What the graph answers: task (that of the model, or the words under a mask), fill-mask, "
            "embed or features.",
        ),
    ] = "task",
    int8: Annotated[
        bool,
        typer.Option(
            "--int8", help="Write it in 8-bit integers too; refused where that is not what comes out."
        ),
    ] = False,
    packed: Annotated[
        bool,
        typer.Option(
            "--packed", help="Write the graph of packed batches, without padding, beside the padded one."
        ),
    ] = False,
    opset: Annotated[
        int | None, typer.Option("--opset", metavar="N", help="Operators of ONNX to use (default: 20).")
    ] = None,
    bfloat16: Annotated[
        bool, typer.Option("--bfloat16", help="Write it in bfloat16 too (--to openvino).")
    ] = False,
    sample: Annotated[
        list[Path] | None,
        typer.Option(
            "--sample",
            metavar="TEXT",
            help="Measure activations by the lines of this text (--to openvino --int8); may be repeated.",
        ),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Take the place of an earlier export.")
    ] = False,
) -> None:
    """Write a model for another runtime or server.

    The export is compared with the model on a dozen batches before the folder is in place. An application of
    Ray Serve or Triton has a copy of the model and only calls the engine of `albertine serve`."""
    from albertine.export.export_model import export as run
    from albertine.export.formats import ExportOptions

    options = ExportOptions(opset, int8, packed, bfloat16, tuple(sample or ()))
    done = run(model, output, to or ["onnx"], head=head, overwrite=overwrite, options=options)
    for line in done.lines:
        typer.echo(line)
    typer.echo(f"{done.folder}: written and verified")
