"""Losses of elastic depth with a teacher: fewer loops learn the predictions of more, in one pass.

The self-distillation within a loop of Elastic Looped Transformers (2604.09168): the teacher is the pass with
all loops, the student a drawn, earlier exit of the same pass. LoopFormer (2602.11451) aligns shorter and full
trajectories likewise.
"""

from __future__ import annotations

import torch
from torch import Tensor

from albertine.model.model import Model
from albertine.objectives.batch import PretrainingBatch
from albertine.objectives.distillation import soft_target_loss
from albertine.objectives.losses import Part, parts_of


def elastic_losses(model: Model, batch: PretrainingBatch) -> dict[str, Part]:
    """As `pretraining_losses` with `batch.teacher_loops`, and the parts "elastic_mlm" (of causal samples
    "elastic_causal") and "elastic_sentence": the KL divergence of the predictions with `batch.loops` from
    them, whose `correct` counts equal predictions.

    The teacher gets no gradient from these parts; the layers that both compute get that of both.
    """
    assert batch.loops is not None and batch.teacher_loops is not None
    labels = batch.sentence_labels
    deep, shallow = model.elastic_forward(
        batch.packed,
        batch.mlm_positions,
        loops=batch.teacher_loops,
        shallow_loops=batch.loops,
        sentence=labels is not None,
    )
    parts = parts_of(*deep, batch)
    parts[f"elastic_{batch.part}"] = _part(shallow[0], deep[0], batch.counts[batch.part])
    if labels is not None and shallow[1] is not None and deep[1] is not None:
        paired = labels >= 0
        parts["elastic_sentence"] = _part(shallow[1][paired], deep[1][paired], batch.sentence_count)
    return parts


def _part(student: Tensor, teacher: Tensor, count: int) -> Part:
    teacher = teacher.detach()
    with torch.no_grad():
        agreed = (student.float().max(-1).indices == teacher.float().max(-1).indices).sum()
    return Part(soft_target_loss(student, teacher, 1.0), count, agreed)
