"""`albertine predict embed` and `similarity`: text vectors, and how alike texts are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from albertine.cli import show
from albertine.cli.inputs import all_lines, model_and_pair, model_and_texts
from albertine.cli.options import ANY_MODEL, Json, Overwrite
from albertine.cli.predict_file import over_files_of_any

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from albertine.tasks.predictor import Predictor

Opener = Callable[..., Callable[..., "Predictor"]]
"""From the name of a model, or none, to what `given.opener` gives."""
PoolingOption = Annotated[
    Literal["mean", "cls"] | None,
    typer.Option("--pooling", help="Mean of all tokens, or the first; default: as in the folder, or mean."),
]


@over_files_of_any("vectors", without=("exit", "pair_column", "top"))
def embed(
    open_for: Opener,
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[MODEL] TEXT",
            help=f"{ANY_MODEL} Texts; without any, every line of stdin, blank ones too. A text of one word "
            "needs a model before it.",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="FILE.npy: a row a text, float32, instead of JSON. With --file its rows with their vectors, "
            ".csv, .tsv, .jsonl or .parquet; a command that was interrupted goes on.",
        ),
    ] = None,
    pooling: PoolingOption = None,
    normalize: Annotated[
        bool | None,
        typer.Option("--normalize/--no-normalize", help="Length 1 or not; default: as in the folder."),
    ] = None,
    overwrite: Overwrite = False,
) -> None:
    """The vector of every text.

    As JSON lines, as a NumPy array, or beside the rows of a table.
    """
    from io import BytesIO

    import numpy as np

    from albertine.core.files import make_folder, replace_durably
    from albertine.tasks.predict import check_free
    from albertine.tasks.prediction_columns import chunks, decimals
    from albertine.tasks.predictor import CHUNK

    if output is not None and (output.suffix != ".npy" or output.is_dir()):
        raise typer.BadParameter("name a file that ends in .npy", param_hint="--output")
    if overwrite and output is None:
        raise typer.BadParameter("belongs to --output", param_hint="--overwrite")
    model, text = model_and_texts(words)
    if output is not None:
        check_free(output, overwrite)
        make_folder(output.parent)  # before the work, not behind it
    parts = chunks(text or all_lines(), CHUNK)
    first = next(parts, ())
    # One model for all, by the first of them: vectors of two models cannot be compared.
    embedder, rows, cut = open_for(model)(*first).embedder, [], 0

    def predict(chunk: Sequence[str]) -> list[NDArray[np.float32]]:
        nonlocal cut
        found = embedder(chunk, pooling=pooling, normalize=normalize)
        cut += found.cut
        return list(found.vectors)

    for line, row in show.predicted(chain([first] if first else [], parts), predict):
        if output is None:
            show.as_json({"text": line, "vector": decimals(row)}, indent=None)
        else:
            rows.append(row)
    if output is not None:
        content = BytesIO()
        size, width = len(rows), len(rows[0]) if rows else embedder([]).vectors.shape[1]
        head = {"descr": "<f4", "fortran_order": False, "shape": (size, width)}
        np.lib.format.write_array_header_1_0(content, head)
        # Of some rows at once: one by one would take longer than to compute them.
        pieces = (np.ascontiguousarray(np.stack(part), dtype="<f4").data for part in chunks(rows, CHUNK))
        replace_durably(output.resolve(), content.getvalue(), *pieces)  # a link to a file stays a link
        typer.echo(f"{size:,} vectors of {width:,} numbers in {output}")
    if cut:
        typer.echo(f"warning: {cut:,} texts were cut to {embedder.limit} tokens", err=True)


@over_files_of_any("cosines", without=("exit", "top"))
def similarity(
    open_for: Opener,
    words: Annotated[list[str], typer.Argument(metavar="[MODEL] A B", help=f"{ANY_MODEL} Two texts.")],
    pooling: PoolingOption = None,
    json: Json = False,
) -> None:
    """How alike two texts are: the cosine of their vectors.

    It is 1 for vectors of the same direction. With --file it is computed for the two texts of every row.
    """
    model, first, second = model_and_pair(words)
    predictor = open_for(model)(first, second)
    value = float(predictor.similarity([first], [second], pooling=pooling)[0, 0])
    show.as_json({"similarity": value}) if json else typer.echo(f"{value:.4f}")
    show.cut(predictor.cut)
