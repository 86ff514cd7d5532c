"""Lossy conversion of a model to a TensorFlow layout that cannot hold all of it: only with --lossy, and with
a list of what is lost."""

from __future__ import annotations

from dataclasses import replace

import torch

from albertine.core.batch import Packed, pack
from albertine.core.randomness import generator
from albertine.interop.tensorflow.config import EPSILON
from albertine.interop.tensorflow.layouts import foreign_features, holds_plan
from albertine.interop.tied_expansion import model_with_state, multiplied_embeddings, size_change
from albertine.model.model import Model, evaluating
from albertine.model.resharing import replan
from albertine.model.sharing import SharingPlan

ROWS, LENGTH = 16, 64


def fit_to_layout(model: Model, wanted: str) -> tuple[Model, tuple[str, ...]]:
    """The nearest model that a layout has a place for, as far as there is one, and a sentence for everything
    given up. What stands in the way for other reasons stays; writing refuses it.

    Args:
        wanted: "google", "bert4keras", "brightmart" or "xlnet-tf".
    """
    losses: list[str] = []
    if model.config.architecture is None or foreign_features(model):
        return model, ()
    if wanted != "brightmart" and (other := multiplied_embeddings(model)) is not model:
        losses.append(f"Its word embeddings are written multiplied: {size_change(model, other)}.")
        model = other
    plan = model.config.plan
    if not holds_plan(plan, wanted) and wanted != "brightmart":
        other = replan(model, SharingPlan.unshared(plan.depth))
        losses.append(f"Every depth is written as a block of its own: {size_change(model, other)}.")
        model = other
    if model.config.hidden_act == "gelu" and wanted != "bert4keras":
        losses.append("Its activation is written as the tanh form of GELU; it was made with the erf form.")
        model = model_with_state(replace(model.config, hidden_act="gelu_new"), model, model.state_dict())
    if (epsilon := model.config.layer_norm_eps) != EPSILON:
        losses.append(f"The epsilon of its LayerNorms becomes {EPSILON:g}; it was made with {epsilon:g}.")
        model = model_with_state(replace(model.config, layer_norm_eps=EPSILON), model, model.state_dict())
    return model, tuple(losses)


def random_rows(model: Model) -> Packed:
    """Rows of random tokens, on which outputs are compared without a sample of text."""
    limit = model.config.max_position_embeddings
    ids = generator(0, "interop/sample").integers(0, model.config.vocab_size, (ROWS, min(LENGTH, limit)))
    return pack(list(ids))


@torch.no_grad()
def greatest_difference(model: Model, other: Model, packed: Packed) -> tuple[float, float]:
    """The greatest difference of any number of two models' last hidden states, and their greatest number."""
    with evaluating(model), evaluating(other):
        mine, theirs = (m.encoder(packed).last_hidden.float() for m in (model, other))
    return float((theirs - mine).abs().max()), float(mine.abs().max())
