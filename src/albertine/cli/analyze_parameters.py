"""`albertine analyze parameters`: parameters, operations and memory of models side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from albertine.cli import show
from albertine.cli.analyze_options import Html, Plot, check_outputs
from albertine.cli.options import Json

if TYPE_CHECKING:
    from albertine.analysis.html_report import Table
    from albertine.analysis.parameters import Report
    from albertine.analysis.plots import Bars
    from albertine.model.config import EncoderConfig

_GROUPS = {
    "embeddings": ("embeddings", "mapping"),
    "encoder blocks": ("encoder",),
    "pooler and heads": ("pooler", "mlm_head", "sentence_head"),
}
_TITLE, _DRAWN = "Parameters, operations and memory", "Parameters and operations"


def parameters(
    models: Annotated[
        list[str], typer.Argument(metavar="MODEL...", help="Presets, models, recipes: all that `info` takes.")
    ],
    length: Annotated[
        list[int] | None, typer.Option("--length", min=1, help="Sequence length for FLOPs; may be repeated.")
    ] = None,
    plot: Plot = None,
    html: Html = None,
    json: Json = False,
) -> None:
    """Parameters, FLOPs and bytes side by side.

    By part, per token and by number format (Table 1 of the ALBERT paper). No weights are loaded."""
    from albertine.analysis.names import model_labels
    from albertine.analysis.parameters import report
    from albertine.pretraining.model_costs import common_lengths, costs, look_up_model

    check_outputs(plot, html)
    models = list(dict.fromkeys(models))
    configs = dict(zip(model_labels(models), map(look_up_model, models), strict=True))
    lengths = common_lengths(models, length)
    if json:
        labels = zip(configs, models, strict=True)
        show.as_json([costs(model, lengths) | {"name": label} for label, model in labels])
        return
    found = {name: report(config, lengths) for name, config in configs.items()}
    tables = _tables(configs, found)
    for title, table in tables.items():
        show.table(table.columns, table.rows, title=title)
    if plot is not None:
        from albertine.analysis.plots import save_panels

        save_panels(plot, _bars(found), title=_DRAWN)
    if html is not None:
        from albertine.analysis.html_report import Section, write_page
        from albertine.analysis.plots import save_panels, svg_of

        drawn = svg_of(lambda path: save_panels(path, _bars(found), title=_DRAWN))
        sections = [Section("Comparison", figures=[drawn], alt="parameters by part, operations per token")]
        sections += [Section(title, table=table) for title, table in tables.items()]
        write_page(html, _TITLE, sections)


def _tables(configs: dict[str, EncoderConfig], found: dict[str, Report]) -> dict[str, Table]:
    """Tables with a row for each model by their titles."""
    from albertine.analysis.html_report import Table
    from albertine.analysis.parameters import MASKED_SHARE, MEMORY, PARTS
    from albertine.model.sharing import sharing_in_words

    parts, memory = list(PARTS), list(MEMORY)
    lengths = list(next(iter(found.values())).training_flops)
    shape = [
        [
            name,
            c.num_hidden_layers,
            c.hidden_size,
            c.embedding_size,
            c.num_attention_heads,
            c.intermediate_size,
            show.count(c.vocab_size),
            sharing_in_words(c.plan),
        ]
        for name, c in configs.items()
    ]
    counts = [
        [name, *map(show.count, (*(r.parts[p] for p in parts), r.without_pooler, r.backbone, r.everything))]
        for name, r in found.items()
    ]
    flops = [
        [name, *(show.operations(of[n]) for n in lengths for of in (r.training_flops, r.inference_flops))]
        for name, r in found.items()
    ]
    sizes = [[name, *(show.size(r.memory[key]) for key in memory)] for name, r in found.items()]
    columns = ("layers", "hidden", "embedding", "heads", "feed-forward", "vocabulary", "sharing")
    totals = ("without pooler", "with pooler", "with all heads")
    operations = [f"{what}, length {n}" for n in lengths for what in ("training", "inference")]
    masked = f"operations per token; in training {MASKED_SHARE:.0%} of the tokens are predicted"
    return {
        "shape": Table(("model", *columns), shape),
        "parameters": Table(("model", *PARTS.values(), *totals), counts),
        masked: Table(("model", *operations), flops),
        "memory without activations": Table(("model", *MEMORY.values()), sizes),
    }


def _bars(found: dict[str, Report]) -> list[Bars]:
    from albertine.analysis.plots import Bars

    parameters = {
        name: {group: sum(r.parts[part] for part in parts) / 1e6 for group, parts in _GROUPS.items()}
        for name, r in found.items()
    }
    length = next(iter(next(iter(found.values())).inference_flops))
    flops = {name: {"inference": r.inference_flops[length] / 1e6} for name, r in found.items()}
    return [
        Bars("parameters, millions", parameters),
        Bars(f"inference, MFLOP per token at length {length}", flops),
    ]
