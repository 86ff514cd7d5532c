"""Figures, tables and report of a lens."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from albertine.analysis.grids import save_token_grid, word
from albertine.analysis.html_report import Section, Table, write_page
from albertine.analysis.lens import Lens, LensPosition
from albertine.analysis.plots import Panel, save_panels, svg_of

COLUMNS = 14
"""Most depths of a figure."""
DRAWN = 8
"""Most masks of a figure."""
DETAILED = 24
"""Most positions of a report with a table of their own."""


def some_depths(lens: Lens, most: int = COLUMNS) -> list[int]:
    """Indices of evenly spaced depths, with the first, the model's and the last among them."""
    count = len(lens.depths)
    if count <= most:
        return list(range(count))
    chosen = {round(i) for i in np.linspace(0, count - 1, most - 1)}
    return sorted(chosen | {i for i, depth in enumerate(lens.depths) if depth == lens.layers})


def masked_in_text(lens: Lens) -> list[LensPosition]:
    """Positions of the text's own masks."""
    return [p for p in lens.positions if p.answer is None]


def guess_table(lens: Lens, position: LensPosition) -> Table:
    """The best tokens at one position, a row for each depth."""
    ranks = len(position.guesses[0])
    columns = ["depth", *(str(rank) for rank in range(1, ranks + 1))]
    if position.answer is not None:
        columns.append(f"p({word(position.answer)})")
    rows = []
    for i in some_depths(lens, 26):
        row = [depth_name(lens, i), *(f"{word(g.token)} {g.probability:.2f}" for g in position.guesses[i])]
        if position.probability is not None:
            row.append(f"{position.probability[i]:.3f}")
        rows.append(row)
    return Table(columns, rows)


def depth_name(lens: Lens, index: int) -> str:
    depth = lens.depths[index]
    return f"{depth} (model)" if depth == lens.layers else str(depth)


def token_table(lens: Lens) -> Table:
    """Texts without [MASK]: for each token the best token at some depths with the probability of the right
    one, and the depths at which the model's answer is stable; then means over tokens."""
    known = [p for p in lens.positions if p.answer is not None]
    chosen = some_depths(lens, 6)
    columns = ["token", *(f"depth {depth_name(lens, i)}" for i in chosen), "stable"]
    rows: list[list[object]] = []
    for p in known:
        assert p.answer is not None and p.probability is not None
        cells = [f"{word(p.guesses[i][0].token)} {p.probability[i]:.2f}" for i in chosen]
        rows.append([word(p.answer), *cells, f"{p.stable[0]} to {p.stable[1]}"])
    right, mean = lens.right, mean_probability(lens)
    assert right is not None
    rows.append(["mean probability", *(f"{mean[i]:.3f}" for i in chosen), ""])
    rows.append(["share right", *(f"{right[i]:.3f}" for i in chosen), ""])
    return Table(columns, rows)


def mean_probability(lens: Lens) -> list[float]:
    """Of the right tokens, for each depth."""
    known = [p.probability for p in lens.positions if p.probability is not None]
    return [float(np.mean([own[i] for own in known])) for i in range(len(lens.depths))]


def title_of(lens: Lens, position: LensPosition) -> str:
    if position.answer is None:
        return f"[MASK] at token {position.place}"
    return f"token {position.place}: {word(position.answer)}"


def stable_in_words(lens: Lens, position: LensPosition) -> str:
    """The model's answer, and the depths at which it is stable."""
    own = max((i for i, d in enumerate(lens.depths) if d <= lens.layers), default=0)
    first, last = position.stable
    span = f"from depth {first} to {last}" if last > first else f"at depth {first}"
    until = "the last one computed" if last == lens.depths[-1] else "then another token is best"
    return f"“{word(position.guesses[own][0].token)}” is best {span}, {until}"


def save_lens(path: Path, lens: Lens, model: str) -> Path:
    """Draw the guesses over depth into a PNG or SVG.

    Raises:
        RunError: matplotlib is not installed.
    """
    chosen = some_depths(lens)
    masks = masked_in_text(lens)[:DRAWN]
    border = next((i for i, k in enumerate(chosen) if lens.depths[k] == lens.layers), None)
    border = None if border is None or border == len(chosen) - 1 else border
    columns = [str(lens.depths[i]) for i in chosen]
    if masks:
        ranks = range(len(masks[0].guesses[0]))
        prefixes = [f"token {p.place}, " if len(masks) > 1 else "" for p in masks]
        rows = [f"{prefix}rank {rank + 1}" for prefix in prefixes for rank in ranks]
        cells = [[p.guesses[i][r] for i in chosen] for p in masks for r in ranks]
        title = f"Most probable tokens of {model} at [MASK]"
    else:
        rows = [word(p.answer or "") for p in lens.positions]
        cells = [[p.guesses[i][0] for i in chosen] for p in lens.positions]
        title = f"Most probable tokens of {model}, each masked alone"
    return save_token_grid(
        path,
        [[g.token for g in row] for row in cells],
        np.array([[g.probability for g in row] for row in cells]),
        rows,
        columns,
        title=title,
        x=depth_axis(lens),
        label="probability",
        border=border,
    )


def depth_axis(lens: Lens) -> str:
    beyond = f"; the model has {lens.layers}" if lens.depths[-1] > lens.layers else ""
    return f"depth in layers (0: embeddings{beyond})"


def save_right(path: Path, lens: Lens, model: str) -> Path:
    """Draw the probability of the right tokens and the share of right answers over depth. Raises as
    `save_lens`."""
    right = lens.right
    assert right is not None
    at = [float(d) for d in lens.depths]
    curves = {
        "mean probability of the right token": list(zip(at, mean_probability(lens), strict=True)),
        "share of right answers": list(zip(at, right, strict=True)),
    }
    return save_panels(
        path, [Panel("probability, share", curves, x=depth_axis(lens))], title=f"Right tokens of {model}"
    )


def notes(lens: Lens) -> list[str]:
    """What a reader has to know of the depths."""
    found = []
    if lens.depths[-1] > lens.layers:
        found.append(f"The model has {lens.layers} layers; larger depths repeat its block.")
    if lens.final_norm:
        found.append(
            "The final norm of this pre-norm encoder was applied to the output of every layer, "
            "and not to depth 0."
        )
    return found


def sections(lens: Lens, model: str) -> list[Section]:
    """The parts of a report.

    Raises:
        RunError: matplotlib is not installed.
    """
    grid = svg_of(lambda path: save_lens(path, lens, model))
    found = [
        Section("Tokens over depth", notes(lens), figures=[grid], alt="most probable tokens at every depth")
    ]
    if lens.right is not None:
        curve = svg_of(lambda path: save_right(path, lens, model))
        explained = ["Every token is masked alone, each in a copy of the text; other parts of its word stay."]
        found.append(
            Section("Right tokens", explained, token_table(lens), [curve], "right tokens over depth")
        )
    found += [
        Section(title_of(lens, p), [f"{stable_in_words(lens, p)}."], guess_table(lens, p))
        for p in lens.positions[:DETAILED]
    ]
    return found


def write_lens(path: Path, lens: Lens, model: str, text: str) -> Path:
    """Write the report. Raises RunError where matplotlib is not installed or the file cannot be written."""
    return write_page(path, f"{model} over depth", sections(lens, model), text=[f"Text: {text}"])
