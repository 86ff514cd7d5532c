"""Figures, tables and report of attention weights."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from albertine.analysis.attention import AttentionMaps
from albertine.analysis.grids import save_map_grid
from albertine.analysis.html_report import Section, Table, write_page
from albertine.analysis.plots import HeatMap, save_panels, svg_of


def save_maps(path: Path, maps: AttentionMaps, model: str) -> Path:
    """Draw the weights of every layer and head into a PNG or SVG.

    Raises:
        RunError: matplotlib is not installed.
    """
    return save_map_grid(
        path,
        maps.weights,
        maps.tokens,
        title=f"Attention of {model}: queries down, keys across",
        label="attention weight",
    )


def save_summary(path: Path, maps: AttentionMaps) -> Path:
    """Draw entropy and distance of every head, and the similarity of layers. Raises as `save_maps`."""
    heads, layers = _numbers(maps.weights.shape[1]), _numbers(len(maps.weights))
    longest = math.log(len(maps.tokens))
    farthest = float(maps.distance.max())
    tables = [
        HeatMap("entropy", maps.entropy, "head", "layer", 0.0, longest, "nats", heads, layers, "upper"),
        HeatMap(
            "mean distance", maps.distance, "head", "layer", 0.0, farthest, "tokens", heads, layers, "upper"
        ),
        _similarity("similarity of layers", maps.similarity, layers),
    ]
    if not math.isnan(maps.mean_head_similarity):
        tables.append(_similarity("the same head in two layers", maps.head_similarity.mean(0), layers))
    return save_panels(path, tables, title="Attention of every head and layer", columns=2)


def _similarity(title: str, values: NDArray[np.float32], layers: list[str]) -> HeatMap:
    """With the darkest colour for 1, the lightest for a round number below all values."""
    low = math.floor(10 * float(np.nanmin(values))) / 10
    return HeatMap(
        title, values, "layer", "layer", min(low, 0.9), 1.0, "1 - JS / ln 2", layers, layers, "upper"
    )


def _numbers(count: int) -> list[str]:
    return [str(i) for i in range(1, count + 1)]


def layer_table(maps: AttentionMaps) -> Table:
    """Every layer: its attention block, means and ranges over its heads, and its similarity to the layer
    before."""
    columns = ["layer", "block", "entropy", "of heads", "distance", "of heads", "similar to before"]
    before = ["", *(f"{x:.3f}" for x in np.diagonal(maps.similarity, 1))]
    rows = [
        [layer, str(block + 1), *_range(maps.entropy[i], ".2f"), *_range(maps.distance[i], ".1f"), before[i]]
        for i, (layer, block) in enumerate(zip(_numbers(len(before)), maps.blocks, strict=True))
    ]
    return Table(columns, rows)


def _range(values: NDArray[np.float32], form: str) -> tuple[str, str]:
    return f"{values.mean():{form}}", f"{values.min():{form}} to {values.max():{form}}"


def head_tables(maps: AttentionMaps) -> dict[str, Table]:
    """Entropy and distance of every head, by title."""
    found = {}
    for title, values, form in (
        ("entropy in nats", maps.entropy, ".2f"),
        ("mean distance in tokens", maps.distance, ".1f"),
    ):
        columns = ["layer", *(f"head {n}" for n in _numbers(values.shape[1]))]
        rows = [[i, *(f"{x:{form}}" for x in own)] for i, own in enumerate(values, 1)]
        found[title] = Table(columns, rows)
    return found


def facts(maps: AttentionMaps) -> dict[str, str]:
    """The numbers for all layers, in words."""
    found = {
        "tokens": f"{len(maps.tokens)}, so that equal weights have {math.log(len(maps.tokens)):.2f} nats"
    }
    if not math.isnan(maps.mean_similarity):
        found["similarity of two layers"] = f"{maps.mean_similarity:.3f}, mean over pairs"
    if not math.isnan(maps.mean_head_similarity):
        found["the same head in two layers"] = (
            f"{maps.mean_head_similarity:.3f}, where they share its weights"
        )
    if not math.isnan(maps.other_heads):
        found["two heads of one layer"] = f"{maps.other_heads:.3f}, to compare with"
    return found


MEANING = (
    "Similarity is 1 - JS / ln 2, with JS the Jensen-Shannon divergence of two attention distributions, mean "
    "over queries: 1 for equal distributions, 0 for disjoint ones (Clark et al. 2019). Of two layers it "
    "compares the maps that are means over heads."
)
"""Of the similarities."""
EXPLAINED = (
    "0 for a query that attends to one token, mean over queries (Clark et al. 2019).",
    "Between a query and its keys, by their weights, mean over queries (Vig and Belinkov 2019).",
)
"""Of the values of heads."""


def sections(maps: AttentionMaps, model: str) -> list[Section]:
    """The parts of a report.

    Raises:
        RunError: matplotlib is not installed.
    """
    grid = svg_of(lambda path: save_maps(path, maps, model))
    summary = svg_of(lambda path: save_summary(path, maps))
    values = [[name, value] for name, value in facts(maps).items()]
    entropy, far = head_tables(maps).values()
    return [
        Section(
            "Similarity of layers",
            [MEANING],
            Table(["quantity", "value"], values),
            [summary],
            "entropy and distance of every head, similarity of layers",
        ),
        Section(
            "Weights of every layer and head",
            ["A row is a query and sums to 1; a column is a key. Colours are on the scale of a square root."],
            figures=[grid],
            alt="attention weights of every layer and head",
        ),
        Section(
            "Layers", ["Means over the heads of a layer, and the range of its heads."], layer_table(maps)
        ),
        Section("Entropy in nats", [EXPLAINED[0]], entropy),
        Section("Mean distance in tokens", [EXPLAINED[1]], far),
    ]


def write_attention(path: Path, maps: AttentionMaps, model: str, text: str) -> Path:
    """Write the report. Raises RunError where matplotlib is not installed or the file cannot be written."""
    return write_page(path, f"Attention of {model}", sections(maps, model), text=[f"Text: {text}"])
