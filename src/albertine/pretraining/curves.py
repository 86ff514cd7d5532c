"""The curves of a run, from its metrics file to `plots/`."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

from albertine.analysis.plots import save_curves
from albertine.errors import RunError
from albertine.training.metrics import curve, read_metrics
from albertine.training.run_folder import RunFolder

log = logging.getLogger("albertine.training")


def borders(metrics: Path) -> list[int]:
    """The steps after which a run's metrics tell of another stage than before; none without stages."""
    rows = [row for row in read_metrics(metrics) if "stage" in row]
    return [one["step"] for one, two in pairwise(rows) if one["stage"] != two["stage"]]


def draw(folder: RunFolder, levels: Mapping[str, Mapping[str, float]], words: str = "masked words") -> None:
    """Loss and accuracy curves as PNG; none, and a line in the log, where matplotlib is not installed.

    Thin vertical lines stand where a stage ends.

    Args:
        levels: of `mlm_loss` and the other pictures, horizontal lines by name. words: what it is the loss of.
    """
    between = borders(folder.metrics)
    try:
        for part, what in (("mlm", words), ("sentence", "sentence pairs")):
            for number, unit in (("loss", "loss, nats"), ("accuracy", "share that is right")):
                key = f"{part}_{number}"
                found = {
                    "training": curve(folder.metrics, key),
                    "held out": curve(folder.metrics, key, evaluated=True),
                }
                curves = {name: points for name, points in found.items() if points}
                if curves:
                    path, lines = folder.plots / f"{key}.png", levels.get(key, {})
                    title = f"{folder.path.name}: {what}"
                    save_curves(path, curves, title=title, y=unit, levels=lines, borders=between)
    except RunError as error:
        log.info("no plots: %s", error)
