"""Small random models with every head that has a graph."""

from __future__ import annotations

import torch

from albertine.inference.graph_heads import (
    Classes,
    Comparison,
    Head,
    Hidden,
    JointSpan,
    Pointers,
    Span,
    TextVector,
    Words,
)
from albertine.inference.whitening import Whitening
from albertine.model.answerability_head import JointAnswer
from albertine.model.model import Model
from albertine.model.pair_head import Comparer
from albertine.model.relation_head import Relations
from albertine.model.sharing import SharingPlan
from albertine.model.task_model import Classifier
from tests.model.builders import model

HEADS = (
    *("features", "fill-mask", "classify", "classify by mean", "classify by depths", "tag", "choose"),
    *("answer", "answer or not", "relate", "embed", "embed by depths", "embed whitened", "compare"),
)

PLANS: dict[str, dict[str, object]] = {
    "albert": {},
    "bert": {"plan": SharingPlan.unshared(3), "embedding_size": 24},
    "groups": {"plan": SharingPlan((0, 0, 1), (0, 1, 0))},
    "own": {"plan": SharingPlan((0,) * 3, (0,) * 3, ("norms", "residuals", "injection"), 2)},
    "modernbert": {
        "norm": "pre",
        "feed_forward": "gated",
        "biases": False,
        "positions": "rotary",
        "type_vocab_size": 0,
    },
    "roformer": {"positions": "rotary", "hidden_act": "gelu"},
    "recgpt": {
        "plan": SharingPlan((0,) * 3, (0,) * 3, ("norms",)),
        **{"positions": "rotary", "norm": "pre", "qk_norm": True, "head_gate": True},
        **{"hidden_act": "relu2", "output": "own", "residual_factor": 0.5},
    },
    "qk-norm": {"qk_norm": True, "hidden_act": "relu"},
    "universal": {"position_signal": "sinusoid", "step_signal": "learned", "positions": "none"},
    "injection": {"input_injection": True},
    "xlnet": {
        "positions": "relative",
        "embedding_size": 24,
        "embedding_norm": False,
        "summary": "last",
        "type_vocab_size": 3,
        "clamp_positions": 6,
    },
    "transformer-xl": {"positions": "relative", "relative_biases": "tied", "type_vocab_size": 0},
}
"""Encoders that differ in what a graph must get right."""


def head_of(name: str, base: Model | None = None) -> Head:
    """The head of that name on a small model."""
    base = base or model()
    base.encoder.backend = "plain"
    hidden = base.config.hidden_size
    made: dict[str, Head] = {"features": Hidden(base)}
    if name == "fill-mask":
        return Words(base)
    if name.startswith("embed"):
        whitening = Whitening(1, torch.linspace(-1, 1, hidden), torch.eye(hidden)[:, :5] + 0.1)
        pooling = "depths" if name == "embed by depths" else "mean"
        return TextVector(base, pooling, True, whitening if name == "embed whitened" else None)
    if name.startswith("classify"):
        pooling = {"classify by mean": "mean", "classify by depths": "depths"}.get(name, "cls")
        return Classes(Classifier(base, 3, pooling=pooling, seed=1).eval())  # type: ignore[arg-type]
    if name == "compare":
        comparer = Comparer(base, 3, seed=1).eval()
        torch.nn.init.normal_(comparer.means, std=0.3)
        torch.nn.init.normal_(comparer.matrices)
        return Comparison(comparer)
    if name == "tag":
        return Classes(Classifier(base, 5, per_token=True, seed=1).eval())
    if name == "choose":
        return Classes(Classifier(base, 1, seed=1).eval())
    if name == "answer":
        return Span(Classifier(base, 2, per_token=True, name="qa_outputs", seed=1).eval())
    if name == "answer or not":
        return JointSpan(JointAnswer(base, seed=1).eval())
    if name == "relate":
        relations = Relations(base, 4, seed=1).eval()
        torch.nn.init.normal_(relations.scale.weight)  # a new head takes no notice of the subject
        return Pointers(relations)
    return made[name]
