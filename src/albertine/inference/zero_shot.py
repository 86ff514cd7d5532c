"""Classification by labels that are named at prediction time, by a model of natural language inference.

A text is the premise, and the label in a template the hypothesis (Yin et al., 2019, "Benchmarking Zero-shot
Text Classification"), as in the `zero-shot-classification` pipeline of transformers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from albertine.errors import ModelError, SettingsError
from albertine.inference.probabilities import softmax

TEMPLATE = "This example is {}."
"""The hypothesis for a label, by default; as in transformers."""
ENTAILMENT = ("entail", "蕴含", "蕴涵")
CONTRADICTION = ("contradict", "矛盾")
"""What the names of these classes begin with, in lower case."""


class NliClasses(NamedTuple):
    """Numbers of classes.

    Attributes:
        contradiction: None if no class of several means it.
    """

    entailment: int
    contradiction: int | None


def nli_classes(labels: Sequence[str], where: object = None) -> NliClasses:
    """Which of the classes of a model means entailment, and which contradiction: of two classes the other
    one. transformers instead takes the first class as contradiction, or the last where the first means
    entailment, whatever its name.

    Raises:
        ModelError: no class means entailment, or several do.
    """
    found = [i for i, name in enumerate(labels) if name.lower().startswith(ENTAILMENT)]
    if len(found) != 1:
        several = "several classes mean" if found else "no class means"
        named = f"its classes are {', '.join(labels)}" if labels else "it predicts a score"
        raise ModelError(
            f"is no model of natural language inference: {several} entailment ({named})",
            where=where,
            remedy="Use a model tuned for it, such as on MNLI, with a class whose name begins with "
            "`entail` or `蕴含`",
        )
    [entailment] = found
    against = [i for i, name in enumerate(labels) if name.lower().startswith(CONTRADICTION)]
    if len(labels) == 2:
        against = [1 - entailment]
    return NliClasses(entailment, against[0] if len(against) == 1 else None)


def hypotheses(labels: Sequence[str], template: str) -> list[str]:
    """The hypothesis of every label.

    Raises:
        SettingsError: the template has not one place for the label.
    """
    if template.count("{}") != 1:
        raise SettingsError(
            "the template of the hypothesis is to have one {} where the label goes",
            remedy=f'Write it as in "{TEMPLATE}"',
        )
    return [template.replace("{}", label) for label in labels]


def zero_shot_scores(
    logits: NDArray[Any], classes: NliClasses, labels: int, *, multi_label: bool
) -> NDArray[np.float64]:
    """The score of every label for every text, (texts, labels).

    Args:
        logits: of every text with every hypothesis, text by text, (texts · labels, classes).
        multi_label: whether each label may be right by itself: its score is the softmax of entailment against
            contradiction; otherwise scores are the softmax of entailment over the labels. One label alone is
            scored as with `multi_label`.

    Raises:
        ModelError: entailment is to be compared with contradiction, and no class means that.
    """
    table = logits.reshape(-1, labels, logits.shape[-1])
    if not multi_label and labels > 1:
        return softmax(table[..., classes.entailment])
    if classes.contradiction is None:
        raise ModelError(
            "has no class that means contradiction, which a label alone is compared with",
            remedy="Give several labels, without multi_label",
        )
    return softmax(table[..., [classes.contradiction, classes.entailment]])[..., 1]
