"""`albertine info`: what a model costs, before anything is trained or loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from albertine.cli import show
from albertine.cli.options import Json

if TYPE_CHECKING:
    from albertine.interop.tied_detection import ExpandedModel
    from albertine.model.config import EncoderConfig

_WHAT = "PRESET|FILE|FOLDER|NAME"


def info(
    what: Annotated[
        str | None,
        typer.Argument(
            metavar=_WHAT,
            help="A preset, a config.json, a recipe, a model, corpus or run folder, a checkpoint of a run, a "
            "released model, or OWNER/NAME of the Hugging Face hub.",
        ),
    ] = None,
    length: Annotated[
        list[int] | None, typer.Option("--length", min=1, help="Sequence length for FLOPs; may be repeated.")
    ] = None,
    json: Json = False,
) -> None:
    """What a model costs: parameters, FLOPs per token, memory. Without an argument, the presets and
    the recipes that come with the package."""
    if what is None:
        _presets(json)
        return
    if not what.strip():
        raise typer.BadParameter("is empty: give a preset, file, folder or name", param_hint=f"'{_WHAT}'")
    from albertine.pretraining.model_costs import (
        NoModel,
        assumed,
        copies_behind,
        costs,
        lengths_of,
        look_up,
        loops_in_words,
        trained_loops,
    )

    if json:
        show.as_json(costs(what, length))
        return
    found = look_up(what)
    if isinstance(found, NoModel):
        show.facts(found.kind, found.facts)
        return
    _model(what, found, copies_behind(what), lengths_of(found, length))
    if (loops := trained_loops(what)) is not None and found.plan.loop_structure is not None:
        typer.echo(loops_in_words(found, loops))
    if (note := assumed(what)) is not None:
        typer.echo(note)


def _presets(json: bool) -> None:
    from albertine.analysis.parameters import parameters_by_part
    from albertine.model.presets import PRESETS

    if json:
        from albertine.pretraining.model_costs import preset_sizes

        show.as_json(preset_sizes())
        return
    columns = ("preset", "depth", "hidden", "embedding", "heads", "vocabulary", "parameters")
    rows = [
        (
            name,
            config.num_hidden_layers,
            config.hidden_size,
            config.embedding_size,
            config.num_attention_heads,
            show.count(config.vocab_size),
            show.count(sum(parameters_by_part(config).values())),
        )
        for name, config in PRESETS.items()
    ]
    show.table(columns, rows)
    typer.echo(
        "Parameters include the pooler and the pretraining heads. "
        "Rows of the paper's tables are presets too: albert-base-{all,attention,ffn,none}-e{64,128,256,768}."
    )
    for verb, names in _recipes().items():
        typer.echo(f"\nRecipes for {verb}: {', '.join(names)}.")


def _recipes() -> dict[str, list[str]]:
    """The names of the recipes in the package, by the option that takes them."""
    from albertine.core.settings import recipe_names

    verbs = {"": "pretrain --config", "finetune": "finetune --config", "suites": "finetune --suite"}
    found: dict[str, list[str]] = {verb: [] for verb in verbs.values()}
    for name in recipe_names():
        folder, _, own = name.rpartition("/")
        found[verbs[folder]].append(own)
    return found


def _model(name: str, config: EncoderConfig, copies: ExpandedModel | None, lengths: tuple[int, ...]) -> None:
    from albertine.analysis.parameters import MASKED_SHARE, MEMORY, PARTS, report
    from albertine.model.sharing import sharing_in_words
    from albertine.pretraining.model_costs import block_in_words

    found = report(config, lengths)
    plan, block = sharing_in_words(config.plan), block_in_words(config)
    show.heading(f"{name}: {plan}")
    typer.echo(block)
    if copies is not None:
        typer.echo(copies_in_words(config, copies))
    rows = [(PARTS[part], show.count(number)) for part, number in found.parts.items()]
    rows += [
        ("encoder with embeddings, without pooler", show.count(found.without_pooler)),
        ("with pooler", show.count(found.backbone)),
        ("with all pretraining heads", show.count(found.everything)),
    ]
    show.table(("part", "parameters"), rows)
    flops = [
        (f"length {n}", show.operations(found.training_flops[n]), show.operations(found.inference_flops[n]))
        for n in found.training_flops
    ]
    show.table(("per token", "training", "inference"), flops)
    typer.echo(
        f"In training {MASKED_SHARE:.0%} of the tokens are predicted, as masked tokens; "
        "causal runs predict all."
    )
    if config.halts:
        typer.echo("Operations are those of a token that takes every step.")
    if config.solves:
        typer.echo(f"Operations are those of all {config.num_hidden_layers} iterations.")
    show.table(("memory", "bytes"), [(text, show.size(found.memory[key])) for key, text in MEMORY.items()])
    typer.echo("Training state is weights, gradients and two moments in float32; activations come on top.")


def copies_in_words(config: EncoderConfig, copies: ExpandedModel) -> str:
    """What a model that is written out was before, and whether Albertine reads it as that.

    Args:
        config: of the model as it is written.
    """
    from albertine.analysis.parameters import parameters_by_part
    from albertine.model.sharing import sharing_in_words

    before = copies.config
    of = sharing_in_words(before.plan)
    if before.has_mapping and not config.has_mapping:
        of += f"; words of {before.embedding_size} mapped to {before.hidden_size}, here one table"
    if copies.equal is None:
        return f"Written as copies of another model: {of}."
    if not copies.equal:
        return f"Written as copies of another model, trained apart since and read as it stands: {of}."
    less, more = (show.count(sum(parameters_by_part(one).values())) for one in (before, config))
    return f"Its depths are copies, read as the model they were written from ({less} of {more}): {of}."
