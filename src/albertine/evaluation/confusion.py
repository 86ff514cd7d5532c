"""Confusion matrix of classes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Confusion(NamedTuple):
    """How often one class was predicted for another, and the share of all examples of the right class."""

    right: str
    taken_for: str
    times: int
    share: float


def confusion(gold: Sequence[str], predicted: Sequence[str], labels: Sequence[str]) -> NDArray[np.int64]:
    """Counts (classes, classes): a row is the right class, a column the predicted one.

    Raises:
        ValueError: a class is not among `labels`.
    """
    number = {name: i for i, name in enumerate(labels)}
    table = np.zeros((len(labels), len(labels)), dtype=np.int64)
    for right, prediction in zip(gold, predicted, strict=True):
        if right not in number or prediction not in number:
            raise ValueError(f"`{right}` or `{prediction}` is not one of the classes {', '.join(labels)}")
        table[number[right], number[prediction]] += 1
    return table


def most_common_confusions(
    table: NDArray[np.int64], labels: Sequence[str], most: int = 10
) -> list[Confusion]:
    """The most frequent confusions, most frequent first."""
    found = [
        Confusion(labels[i], labels[j], int(table[i, j]), float(table[i, j] / table[i].sum()))
        for i, j in np.argwhere(table).tolist()
        if i != j
    ]
    return sorted(found, key=lambda m: (-m.times, -m.share))[:most]
