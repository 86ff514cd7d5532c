"""What the scores of a study are called and how they are written."""

from __future__ import annotations

from typing import NamedTuple


class Metric(NamedTuple):
    """A score for people: its label with the unit, the factor to that unit, and the digits behind the
    point."""

    label: str
    factor: float = 1.0
    digits: int = 3

    def number(self, value: float) -> str:
        """A value in the unit of the label."""
        return f"{value * self.factor:,.{self.digits}f}"

    def signed(self, value: float) -> str:
        """A difference, with its sign."""
        return f"{value * self.factor:+,.{self.digits}f}".replace("-", "−")


KNOWN = {
    "mlm_accuracy": Metric("predicted tokens right, %", 100, 1),
    "mask_accuracy": Metric("[MASK] right, %", 100, 1),
    "mlm_loss": Metric("loss of predicted tokens, nats"),
    "mask_loss": Metric("loss of [MASK], nats"),
    "context_gain": Metric("context gain, nats"),
    "sop_accuracy": Metric("sentence order right, %", 100, 1),
    "nsp_accuracy": Metric("next sentence right, %", 100, 1),
    "sop_baseline": Metric("sentence order without skill, %", 100, 1),
    "nsp_baseline": Metric("next sentence without skill, %", 100, 1),
    "sop_by_length": Metric("sentence order by lengths alone, %", 100, 1),
    "sop_above_baseline": Metric("sentence order, points above lengths alone", 100, 1),
    "nsp_above_baseline": Metric("next sentence, points above the commoner class", 100, 1),
    "tasks": Metric("mean of the tasks", 100, 1),
    "blimp": Metric("BLiMP, %", 100, 1),
    "sling": Metric("SLING, %", 100, 1),
    "parameters": Metric("parameters, millions", 1e-6, 2),
    "megabytes": Metric("float32 weights, MB", 1, 1),
    "training_flops": Metric("training, MFLOP a token", 1e-6, 1),
    "inference_flops": Metric("inference, MFLOP a token", 1e-6, 1),
    "tokens_per_second": Metric("tokens a second", 1, 0),
    "tokens": Metric("tokens read, millions", 1e-6, 2),
    "steps": Metric("updates", 1, 0),
    "nats_per_character": Metric("fixed words of other text, nats a character"),
    "words_right": Metric("fixed words of other text right, %", 100, 1),
    "distance": Metric("L2 distance of a layer's output to its input", 1, 2),
    "cosine": Metric("cosine of a layer's output and input"),
    "distance_last": Metric("L2 distance of the last layer, over the norm of its output"),
    "distance_change": Metric("mean change of the L2 distance from layer to layer, over its mean"),
    "turning": Metric("mean angle between the steps of successive layers, degrees", 1, 1),
    "cosine_last": Metric("cosine of the last layer's output and input"),
}
HIDDEN = frozenset(
    {
        *("steps", "inference_flops", "context_gain"),
        *("sop_baseline", "nsp_baseline", "sop_by_length", "sop_above_baseline", "nsp_above_baseline"),
    }
)
"""Scores that have no column of their own."""
IN_PLACE_OF = {"mlm_accuracy": "mask_accuracy", "mlm_loss": "mask_loss"}
"""Scores that have none beside another, which says more: a tenth of the tokens of the first are visible."""


def metric(name: str) -> Metric:
    """The label and unit of a score; one of a task, such as `sst-2` and `sst-2.accuracy`, is a share."""
    if name in KNOWN:
        return KNOWN[name]
    if name.endswith(".seconds"):
        return Metric(f"{name.removesuffix('.seconds')}, seconds an update", 1, 3)
    return Metric(name.replace(".", ", "), 100, 1)
