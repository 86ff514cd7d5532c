"""The curves of a run, from its metrics file to `plots/`."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

from albertine.analysis.plots import Curve, save_curves
from albertine.errors import RunError
from albertine.training.metrics import read_metrics
from albertine.training.run_folder import RunFolder

log = logging.getLogger("albertine.training")


def curve(metrics: Path, key: str, *, held_out: bool = False) -> Curve:
    """(step, value) of one number of a run.

    Args:
        key: such as `mlm_loss` or `sentence_accuracy`.
        held_out: as judged on held-out documents instead of on the training batches.
    """
    rows = read_metrics(metrics)
    if held_out:
        rows = [{"step": row["step"], **row["evaluation"]} for row in rows if "evaluation" in row]
    return [(row["step"], row[key]) for row in rows if isinstance(row.get(key), int | float)]


def borders(metrics: Path) -> list[int]:
    """The steps after which a run's metrics tell of another stage than before; none without stages."""
    rows = [row for row in read_metrics(metrics) if "stage" in row]
    return [one["step"] for one, two in pairwise(rows) if one["stage"] != two["stage"]]


def draw(folder: RunFolder, levels: Mapping[str, float], words: str = "masked words") -> list[Path]:
    """Loss and accuracy curves as PNG; none, and a line in the log, where matplotlib is not installed.

    Thin vertical lines stand where a stage ends.

    Args:
        levels: horizontal lines by name in the picture of the loss. words: what it is the loss of.
    """
    pictures, between = [], borders(folder.metrics)
    try:
        for part, what in (("mlm", words), ("sentence", "sentence pairs")):
            for number in ("loss", "accuracy"):
                key = f"{part}_{number}"
                curves = {
                    name: points
                    for name, points in (
                        ("training", curve(folder.metrics, key)),
                        ("held out", curve(folder.metrics, key, held_out=True)),
                    )
                    if points
                }
                if curves:
                    lines = (
                        levels if key == "mlm_loss" else {"chance": 0.5} if key == "sentence_accuracy" else {}
                    )
                    path = folder.plots / f"{key}.png"
                    title = f"{folder.path.name}: {what}"
                    save_curves(path, curves, title=title, y=number, levels=lines, borders=between)
                    pictures.append(path)
    except RunError as error:
        log.info("no plots: %s", error)
    return pictures
