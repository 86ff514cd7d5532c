"""`albertine bench`: speed beside its peers, everyone in turn in one process."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import typer

from albertine.cli import show
from albertine.cli.options import Json


class BatchShape(StrEnum):
    """A batch: 32 texts of very different lengths, 8 of 128 tokens, one of 32."""

    varied = "varied"
    dense = "dense"
    single = "single"


Preset = Annotated[str, typer.Option("--preset", help="Shape of the encoder; weights are random.")]
Rounds = Annotated[
    int, typer.Option("--rounds", min=1, help="Everyone is timed so often, in turn; medians count.")
]
Threads = Annotated[
    int | None, typer.Option("--threads", min=1, help="Processors to use; default all of this process.")
]
Save = Annotated[
    Path | None,
    typer.Option("--save", metavar="FOLDER", help="Write the result there, below the name of the hardware."),
]
Against = Annotated[
    Path | None,
    typer.Option(
        "--against",
        metavar="FOLDER",
        help="Fail if a ratio is 15 % below that of the newest result kept there for this hardware, preset "
        "and number of threads.",
    ),
]


def inference(
    preset: Preset = "albert-base-v2",
    shape: Annotated[list[BatchShape] | None, typer.Option("--shape", help="Default all three.")] = None,
    rounds: Rounds = 7,
    threads: Threads = None,
    compiled: Annotated[
        bool, typer.Option("--compiled", help="Also torch.compile of the peer; takes minutes.")
    ] = False,
    save: Save = None,
    against: Against = None,
    json: Json = False,
) -> None:
    """Encode the same batches with the same weights.

    Timed are our encoder, transformers, ONNX Runtime and OpenVINO.
    """
    from albertine.bench.inference import measure
    from albertine.model.presets import preset as named

    shapes = [each.value for each in shape or list(BatchShape)]
    count = _threads(threads)
    found = measure(named(preset), shapes, rounds=rounds, threads=count, compiled=compiled, log=_log(json))
    result = {each.inputs.name: each.as_dict() for each in found}
    for name, each in {} if json else result.items():
        rows = [
            (who, f"{row['median_ms']:.1f}", f"{row['tokens_per_second']:,.0f}", f"{row['least_cosine']:.4f}")
            for who, row in each["runs"].items()
        ]
        title = f"{name}: {each['sequences']} × up to {each['longest']} tokens, {each['fill']:.0%} real"
        show.table(("", "ms", "real tokens/s", "least cosine"), rows, title=title)
        _ratios(each)
        _left_out(each)
        _warn(each)
    _finish("inference", {"preset": preset, "rounds": rounds, "shapes": result}, count, save, json, against)


def train(
    preset: Preset = "albert-base-v2",
    rounds: Rounds = 7,
    threads: Threads = None,
    save: Save = None,
    against: Against = None,
    json: Json = False,
) -> None:
    """A training step, beside transformers' ALBERT or BERT."""
    from albertine.bench import training
    from albertine.model.presets import preset as named

    count = _threads(threads)
    found = training.measure(named(preset), rounds=rounds, threads=count, log=_log(json))
    result = {"preset": preset, "rounds": rounds, **training.as_dict(*found)}
    _table("training-step", result, count, save, json, against)


def optimizer(
    preset: Preset = "albert-base-v2",
    rounds: Rounds = 20,
    threads: Threads = None,
    save: Save = None,
    against: Against = None,
    json: Json = False,
) -> None:
    """A step of AdamW, LAMB and Muon, beside those of torch."""
    from albertine.bench import optimizer
    from albertine.model.presets import preset as named

    count = _threads(threads)
    found = optimizer.measure(named(preset), rounds=rounds, threads=count, log=_log(json))
    result = {"preset": preset, "rounds": rounds, **optimizer.as_dict(found)}
    _table("optimizer", result, count, save, json, against)


def start_up(rounds: Rounds = 5, save: Save = None, json: Json = False) -> None:
    """Time and memory of new processes.

    They run `albertine --help`, and load a small model for its first prediction.
    """
    from albertine.bench import start_up

    count = _threads(None)
    found = start_up.measure(rounds=rounds, threads=count, log=_log(json))
    result = start_up.as_dict(*found)
    _table("start-up", {"rounds": rounds, **result}, count, save, json)
    for name, size in {} if json else result["peak_mb"].items():
        typer.echo(f"{size:6.0f} MB at most: {name}")


def data(
    corpus: Annotated[Path, typer.Argument(metavar="CORPUS", help="A prepared corpus folder.")],
    preset: Preset = "albert-tiny-zh",
    seconds: Annotated[float, typer.Option("--seconds", min=1, help="For each measurement.")] = 10,
    threads: Threads = None,
    save: Save = None,
    json: Json = False,
) -> None:
    """How fast batches are made, and how fast a model uses them."""
    from dataclasses import replace

    from albertine.bench.batches import measure
    from albertine.corpus.reader import Corpus
    from albertine.model.presets import preset as named

    count = _threads(threads)
    config = replace(named(preset), vocab_size=Corpus(corpus).tokenizer().vocab_size)
    found = measure(corpus, config, seconds=seconds, workers=tuple(range(count + 1)), threads=count)
    _finish("data", {"preset": preset, **found}, count, save, json)
    if not json:
        memory = {name: "" if mb is None else f"{mb:,.0f}" for name, mb in found["megabytes"].items()}
        rows = [(name, f"{rate:,.0f}", memory[name]) for name, rate in found["made"].items()]
        show.table(("", "tokens/s", "MB of the loaders"), [*rows, (preset, f"{found['used']:,.0f}", "")])
        if found["quiet"]:
            typer.echo(f"batches are made {found['ratio']:.1f} times as fast as they are used up")
        _warn(found)


def sizes(
    sequences: Annotated[int, typer.Option("--sequences", min=1, help="In a batch.")] = 4,
    length: Annotated[int, typer.Option("--length", min=8, max=512, help="Of every sequence.")] = 128,
    rounds: Rounds = 3,
    threads: Threads = None,
    save: Save = None,
    json: Json = False,
) -> None:
    """Tokens a second of BERT and ALBERT, as table 2 of the paper."""
    import torch

    from albertine.bench.idle_check import Moment, load_since
    from albertine.bench.paper_table2 import PAPER, measure

    count, begin = _threads(threads), Moment.now()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    how = {"sequences": sequences, "length": length, "rounds": rounds}
    found = []
    for size in measure(**how, device=device):
        found.append(size)
        _log(json)(f"{size.name}: {size.tokens_per_second:,.0f} tokens/s")
    calm = load_since(begin, count)
    unit = next(size.tokens_per_second for size in found if size.name == "bert-large")
    rows: dict[str, dict[str, Any]] = {
        size.name: {
            "parameters": size.parameters,
            "tokens_per_second": size.tokens_per_second,
            "speed_up": size.tokens_per_second / unit if calm["quiet"] else None,
            "paper": PAPER[size.name],
        }
        for size in found
    }
    result = {"device": device, **how, "sizes": rows, **calm}
    _finish("sizes", result, count, save, json)
    if not json:
        lines = [
            (
                name,
                f"{row['parameters'] / 1e6:.0f} M",
                f"{row['speed_up']:.2f}" if calm["quiet"] else "",
                f"{row['paper']:.1f}",
            )
            for name, row in rows.items()
        ]
        show.table(("", "parameters", "speed, BERT-large = 1", "in the paper"), lines)
        _warn(result)


def scaling(threads: Threads = None, save: Save = None, json: Json = False) -> None:
    """Time and memory against length, batch, depth and width."""
    from albertine.bench.idle_check import Moment, load_since
    from albertine.bench.scaling import MIDDLE, measure

    count, begin, points = _threads(threads), Moment.now(), []
    for point in measure(count):
        points.append(point)
        _log(json)(f"{point.axis} {point.value}: {point.milliseconds:.1f} ms, {point.megabytes:.0f} MB")
    result = {"middle": MIDDLE, "points": [vars(point) for point in points], **load_since(begin, count)}
    _finish("scaling", result, count, save, json)
    if not json:
        lines = [(f"{p.axis} {p.value}", f"{p.milliseconds:.1f}", f"{p.megabytes:.0f}") for p in points]
        show.table(("", "ms", "MB"), lines)
        _warn(result)


def _table(
    name: str,
    result: Mapping[str, Any],
    threads: int,
    save: Path | None,
    json: bool,
    against: Path | None = None,
) -> None:
    if not json:
        rows = [
            (who, f"{row['median_ms']:.1f}", f"{row['min_ms']:.1f}") for who, row in result["runs"].items()
        ]
        show.table(("", "ms", "fastest"), rows)
        _ratios(result)
        _left_out(result)
        _warn(result)
    _finish(name, result, threads, save, json, against)


def _finish(
    name: str,
    result: Mapping[str, Any],
    threads: int,
    save: Path | None,
    json: bool,
    against: Path | None = None,
) -> None:
    """Print JSON, keep the result, hold it against the one that is kept."""
    from albertine.bench.machine import describe, save_result
    from albertine.bench.regression import fallen, kept, not_compared

    whole = {"machine": describe(), "threads": threads, **result}
    if json:
        show.as_json(whole)
    left, worse = [], []
    if against is not None:
        before = kept(name, against, whole)
        left, worse = not_compared(whole, before), fallen(whole, before)
    if save is not None:
        typer.echo(f"written: {save_result(name, whole, save)}", err=json)
    for line in left:
        typer.echo(f"not compared: {line}", err=True)
    for line in worse:
        typer.echo(f"fallen: {line}", err=True)
    if worse:
        raise typer.Exit(1)


def _ratios(result: Mapping[str, Any]) -> None:
    for what, ratio in result.get("ratios", {}).items():
        typer.echo(f"{ratio:5.2f}  {what}")
    for name, rates in result["tflops"].items():
        made = f"{median(rates):.2f} TFLOP/s, {min(rates):.2f} to {max(rates):.2f}"
        typer.echo(f"the machine's own {name} product meanwhile: {made}")


def _left_out(result: Mapping[str, Any]) -> None:
    for who, why in result["left_out"].items():
        typer.echo(f"left out: {who} ({why})")


def _warn(result: Mapping[str, Any]) -> None:
    if not result["quiet"]:
        typer.echo(
            f"warning: other programs kept {result['others_busy']:.1f} processors busy; the times are "
            "no basis for ratios. End them and measure again",
            err=True,
        )


def _threads(wanted: int | None) -> int:
    import torch

    from albertine.core.processors import usable_cores

    count = wanted or usable_cores()
    torch.set_num_threads(count)
    return count


def _log(json: bool) -> Any:
    return lambda text: None if json else typer.echo(text, err=True)


GROUP = "Measure speed beside other programs."
COMMANDS = (inference, train, optimizer, data, sizes, scaling, start_up)
