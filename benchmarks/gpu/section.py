"""What was measured on a GPU, as a section of docs/results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.markdown import newest, table

GRAPHS = "passes of training as graphs"


def section(hardware: Path) -> Iterator[str]:
    whole, graphs = newest(hardware, "gpu"), newest(hardware, "gpu-graphs")
    if whole is None and graphs is None:
        return
    yield "## On a GPU\n\n"
    if whole is not None:
        yield from _whole(whole)
    if (checks := newest(hardware, "gpu-checks")) is not None:
        yield from _agreement(checks["parts"])
    if graphs is not None:
        yield from _graphs(graphs)


def _whole(found: Mapping[str, Any]) -> Iterator[str]:
    parts = found["parts"]
    yield f"{source_line('python -m benchmarks.gpu', found)}, transformers "
    yield f"{found['machine']['versions']['transformers']}, in bfloat16. {found.get('note', '')}\n\n"
    if (best := parts.get("ceilings")) is not None:
        yield f"The card's own matrix product makes {best['bf16_tflops']:,.0f} TFLOP/s, a copy "
        yield f"{best['copy_gb_per_s']:,.0f} GB/s.\n\n"
    for name, part in parts.items():
        if name.startswith("training "):
            yield from _training(name.removeprefix("training "), part)
    if (part := parts.get("encoding")) is not None:
        yield from _encoding(part)


def source_line(command: str, found: Mapping[str, Any]) -> str:
    machine = found["machine"]
    return f"`{command}`, {found['date']}, {machine['gpu']}, torch {machine['versions']['torch']}"


def _graphs(found: Mapping[str, Any]) -> Iterator[str]:
    part = found["parts"][GRAPHS]
    yield source_line(f'python -m benchmarks.gpu --only "{GRAPHS}"', found)
    yield ". A step of pretraining with Muon in bfloat16, sequences of at most so many tokens, forward and "
    yield "backward pass started kernel by kernel and as one CUDA graph, milliseconds; and the largest "
    yield "difference of the two gradients:\n\n"
    names = [key.removesuffix(": recorded, ms") for key in part if key.endswith(": recorded, ms")]
    rows = []
    for name in names:
        plain, whole = part[f"{name}: ms"], part[f"{name}: recorded, ms"]
        rows.append(
            [
                name,
                f"{plain:.1f}",
                f"{whole:.1f}",
                f"{plain / whole:.1f}",
                f"{part[f'{name}: gradients']:.1e}",
            ]
        )
    yield table(["", "kernel by kernel", "graph", "times as fast", "gradients"], rows)


def _training(preset: str, part: Mapping[str, Any]) -> Iterator[str]:
    ways = {name: row for name, row in part.items() if isinstance(row, dict)}
    fills = list(dict.fromkeys(key for row in ways.values() for key in row if key.startswith("fill ")))
    yield f"Training {preset}, a step of masked words and a sentence task at 512 tokens, thousands of real "
    yield "tokens a second, the share of the card's own matrix product (MFU), and gigabytes at most:\n\n"
    head = [f"{key}: {what}" for key in fills for what in ("tokens", "MFU", "GB")]
    rows = []
    for name, row in ways.items():
        cells = []
        for key in fills:
            one = row.get(key)
            rate = ("out of memory", "", "") if one is None else _rates(one)
            cells += rate
        rows.append([name, *cells])
    yield table(["", *head], rows) + "\n"


def _rates(row: Mapping[str, float]) -> tuple[str, str, str]:
    return f"{row['tokens_per_second'] / 1e3:,.0f}", f"{row['mfu']:.2f}", f"{row['peak_gb']:.0f}"


def _encoding(part: Mapping[str, Any]) -> Iterator[str]:
    yield "ALBERT-base, 32 texts of at most 128 tokens (48 % of the padded batch real) and one of 32, "
    yield "milliseconds:\n\n"
    whats = ("32 texts", "1 text")
    ways = [key.split(", ")[1] for key in part if key.startswith(whats[0])]
    yield table(
        ["", *whats], [[way, *(f"{part[f'{what}, {way}, ms']:.2f}" for what in whats)] for way in ways]
    )
    yield "\n"


def _agreement(parts: Mapping[str, Any]) -> Iterator[str]:
    """The largest difference of each kind and format."""
    yield "Beside `tests/reference.py` in float32 on a processor, the largest difference of rows, and of "
    yield "gradients as a whole, over all cases, plain and compiled; and of three steps of runs of all kinds "
    yield "of model beside the same steps on a processor:\n\n"
    questions = {
        "rows": ("agreement", ("rows", "rows of inference")),
        "gradients": ("agreement", ("gradients",)),
        "runs: loss": ("every kind of model", ("loss",)),
        "runs: first gradient": ("every kind of model", ("first gradient",)),
        "runs: held out": ("every kind of model", ("held out",)),
    }
    rows = [
        [name, *(_largest(parts[part], form, kinds) for form in ("float32", "bfloat16"))]
        for name, (part, kinds) in questions.items()
    ]
    yield table(["", "float32", "bfloat16"], rows)


def _largest(part: Mapping[str, Any], form: str, kinds: tuple[str, ...]) -> str:
    found = [value for key, value in part.items() if f", {form}" in key and key.split(": ")[-1] in kinds]
    return f"{max(found):.1e}"
