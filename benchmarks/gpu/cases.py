"""Small models and batches, each of which takes another way through the backend of a GPU."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from albertine.bench.inputs import inputs, lengths_of, pretraining
from albertine.core.batch import Packed
from albertine.core.precision import Precision
from albertine.model.config import EncoderConfig
from albertine.model.model import Model
from albertine.model.presets import preset
from albertine.model.sharing import SharingPlan
from albertine.objectives.batch import PretrainingBatch
from tests.reference import encode, mlm_logits, sentence_logits, unilm_mask

VOCABULARY = 1000
UNNOTICED = 1e-7
"""A dropout that takes the code path of dropout and drops nothing."""


@dataclass(frozen=True)
class Case:
    """A model, a batch, and the formats in which they are compared.

    Attributes:
        heads: of the model. prefix: sources and targets instead of pairs (UniLM).
        unmasked: every other sequence has no masked position, so the last depth has no query there.
        compiled: also with compiled depths, in these formats.
    """

    name: str
    config: EncoderConfig
    heads: tuple[str, ...] = ("mlm", "sop")
    prefix: bool = False
    unmasked: bool = False
    precisions: tuple[Precision, ...] = ("float32", "bfloat16")
    compiled: tuple[Precision, ...] = ()


@dataclass(frozen=True)
class Right:
    """What the reference computes, in float32 on the processor.

    Attributes:
        rows: every real row of the last depth, (T, H). gradients: by parameter; None where there is none.
    """

    rows: Tensor
    gradients: dict[str, Tensor | None]


def cases(toy: bool) -> list[Case]:
    """The most important first."""
    depth = 2 if toy else 3
    base = _shape("albert-base-v2", depth, _toy(64) if toy else {})
    tiny = _shape("albert-tiny-zh", depth, _toy(52) if toy else {})
    half: tuple[Precision, ...] = ("bfloat16",)
    unshared = replace(base, plan=SharingPlan.unshared(base.num_hidden_layers))
    return [
        Case("pairs", base, compiled=half),
        Case("masked words alone", base, ("mlm",), unmasked=True, compiled=half),
        Case("sources and targets", base, ("mlm",), prefix=True),
        Case("by the way of dropout", replace(base, attention_probs_dropout_prob=UNNOTICED)),
        Case("heads of 26", tiny, precisions=half, compiled=half),
        Case("unshared", unshared, precisions=half, compiled=half),
    ]


def _toy(hidden: int) -> dict[str, int]:
    return {"hidden_size": hidden, "num_attention_heads": 2, "intermediate_size": 96}


def _shape(name: str, depth: int, size: dict[str, int]) -> EncoderConfig:
    shape = replace(preset(name), plan=SharingPlan.shared(depth), vocab_size=VOCABULARY, **size)  # type: ignore[arg-type]
    return replace(shape, initializer_range=1.4 / shape.hidden_size**0.5)


def model_of(case: Case) -> Model:
    """With weights so large that rows attend to few others, and biases and norms that are not 0 and 1: with
    fresh ones a kernel that attends to the wrong rows would hardly show."""
    model = Model(case.config, case.heads)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    return model


def batch_of(case: Case, toy: bool) -> tuple[PretrainingBatch, dict[str, Tensor]]:
    """Six sequences of at most 128 tokens, packed and padded."""
    given = inputs("gpu", lengths_of(6, 16 if toy else 128, 0.6), VOCABULARY)
    batch, padded = pretraining(given)
    if case.unmasked:
        offsets = np.cumsum((0, *batch.packed.lengths))
        sequence = np.searchsorted(offsets, batch.mlm_positions.numpy(), side="right") - 1
        kept = torch.from_numpy(sequence % 2 == 0)
        batch = replace(batch, mlm_positions=batch.mlm_positions[kept], mlm_labels=batch.mlm_labels[kept])
    if case.prefix:
        sources = tuple(n // 2 for n in batch.packed.lengths)
        batch = replace(batch, packed=replace(batch.packed, prefix=sources))
    if "sop" not in case.heads:
        batch = replace(batch, sentence_labels=None, sentence_count=0)
    return batch, padded


def right(model: Model, case: Case, batch: PretrainingBatch, padded: dict[str, Tensor]) -> Right:
    """By `tests/reference.py`."""
    ids, mask, types = (padded[name] for name in ("input_ids", "attention_mask", "token_type_ids"))
    hidden = encode(model, ids, unilm_mask(types, mask) if case.prefix else mask, types)[-1]
    rows = packed_rows(hidden, batch.packed)
    loss = F.cross_entropy(mlm_logits(model, rows[batch.mlm_positions]), batch.mlm_labels)
    if batch.sentence_labels is not None:
        loss = loss + F.cross_entropy(sentence_logits(model, hidden), batch.sentence_labels)
    model.zero_grad(set_to_none=True)
    loss.backward()  # type: ignore[no-untyped-call]
    gradients = gradients_of(model)
    model.zero_grad(set_to_none=True)
    return Right(rows.detach(), gradients)


def packed_rows(x_BLH: Tensor, packed: Packed) -> Tensor:
    return torch.cat([row[:n] for row, n in zip(x_BLH, packed.lengths, strict=True)])


def gradients_of(model: Model) -> dict[str, Tensor | None]:
    """Copies on the processor."""
    every = model.named_parameters()
    return {name: None if p.grad is None else p.grad.detach().float().cpu().clone() for name, p in every}
