"""Distillation losses: soft targets, hidden states and attention of a teacher, beside the labels.

Soft targets as in DistilBERT (Hinton et al. 2015; Sanh et al. 2019), hidden states through a learned map as
in TinyBERT (Jiao et al. 2020, section 3.1), attention as in MiniLM and MiniLMv2.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from albertine.core.batch import Packed
from albertine.core.randomness import torch_generator
from albertine.model.model import Model
from albertine.objectives.attention_relations import (
    attention_inputs,
    check_plain_attention,
    map_divergence,
    relation_divergence,
)
from albertine.objectives.batch import PretrainingBatch
from albertine.objectives.losses import Part, parts_of


@dataclass(frozen=True)
class DistillationWeights:
    """Weights of the distillation losses relative to the masked-LM loss of the labels.

    Attributes:
        soft, hidden, attention: weights; a loss of weight 0 is not computed.
        temperature: of the soft targets.
    """

    soft: float = 1.0
    hidden: float = 1.0
    attention: float = 0.1
    temperature: float = 2.0

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the computed losses, for `PretrainingBatch.distillation`."""
        return tuple(name for name in ("soft", "hidden", "attention") if getattr(self, name))

    @property
    def needs_states(self) -> bool:
        """Whether the hidden states of all layers are needed."""
        return bool(self.hidden or self.attention)


def teacher_layers(student: int, teacher: int) -> tuple[int, ...]:
    """The layer of the teacher that each layer of the student is compared with, evenly, from the embeddings
    (0) to the last: (student + 1,). TinyBERT's "uniform" function, rounded."""
    return tuple((2 * d * teacher + student) // (2 * student) for d in range(student + 1))


def soft_target_loss(student_PV: Tensor, teacher_PV: Tensor, temperature: float) -> Tensor:
    """KL divergence of softmax(student / T) from softmax(teacher / T), times T², summed over the rows,
    float32 scalar; T² keeps the size of the gradient (Hinton et al. 2015, section 2)."""
    mine, its = (F.log_softmax(x.float() / temperature, dim=-1) for x in (student_PV, teacher_PV))
    return F.kl_div(mine, its, reduction="sum", log_target=True) * temperature**2


def hidden_loss(student_TH: Tensor, teacher_TH: Tensor) -> Tensor:
    """Squared distance over the squared norm of the teacher's state, summed over the rows, float32 scalar:
    TinyBERT's squared error, normalised."""
    gap, size = (x.float().square().sum(-1) for x in (student_TH.float() - teacher_TH.float(), teacher_TH))
    return (gap / size.clamp_min(1e-12)).sum()


class PretrainingOutputs(NamedTuple):
    """Outputs for a batch: masked-LM logits (P, V), sentence logits (S, 2) or None, and the states (T, H) of
    the embeddings and of every layer, or None where not requested."""

    mlm: Tensor
    sentence: Tensor | None
    states: tuple[Tensor, ...] | None


def pretraining_outputs(
    model: Model, batch: PretrainingBatch, *, states: bool, sentence: bool
) -> PretrainingOutputs:
    """Outputs of a model for a batch; with `states` its last layer computes all rows."""
    if not states:
        logits = model.pretraining_forward(batch.packed, batch.mlm_positions, sentence=sentence)
        return PretrainingOutputs(*logits, None)
    out = model.encoder(batch.packed, all_depths=True)
    rows_PH = out.last_hidden.index_select(0, batch.mlm_positions)
    summary_SH = out.last_hidden.index_select(0, model.summary_rows(batch.packed))
    order = model.sentence_logits(summary_SH) if sentence else None
    return PretrainingOutputs(model.mlm_logits(rows_PH), order, out.hidden_states)


class DistillationLosses:
    """As `pretraining_losses`, with a part for each distillation loss: "soft" over the masked tokens, whose
    `correct` counts equal predictions of student and teacher, "hidden" and "attention" over all tokens.

    Attributes:
        trained: the trained module: the student, and where its width differs from the teacher's also `maps`,
            a matrix without bias for each of its states, which is discarded after the run.
        teacher: frozen, in evaluation mode. depths: its layer for each of the student's.
        relation_heads: number of heads of relations; None: attention maps are compared head by head, because
            both have as many heads.
    """

    def __init__(self, student: Model, teacher: Model, weights: DistillationWeights, seed: int = 0) -> None:
        """
        Raises:
            SettingsError: attention is compared, and one of the two models has another kind of attention.
        """
        self.student, self.weights = student, weights
        self.teacher = teacher.requires_grad_(False).eval()
        mine, its = student.config, teacher.config
        self.depths = teacher_layers(mine.num_hidden_layers, its.num_hidden_layers)
        if weights.attention:
            check_plain_attention(its, "the teacher")
            check_plain_attention(mine, "the student")
        heads = its.num_attention_heads
        same = mine.num_attention_heads == heads
        self.relation_heads = None if same else gcd(heads, mine.hidden_size)
        self.maps: nn.ModuleList | None = None
        self.trained: nn.Module = student
        if weights.hidden and mine.hidden_size != its.hidden_size:
            self.maps = _maps(len(self.depths), mine.hidden_size, its.hidden_size, seed)
            self.trained = nn.ModuleDict({"student": student, "maps": self.maps})

    def __call__(self, trained: nn.Module, batch: PretrainingBatch) -> dict[str, Part]:
        """
        Args:
            batch: its `distillation` has the names of these losses.
        """
        inside, sentence = self.weights.needs_states, batch.sentence_labels is not None
        with torch.no_grad():
            its_PV, its_states = self._teacher_outputs(batch)
        with self.student.encoder.forward_pass():
            mine = pretraining_outputs(self.student, batch, states=inside, sentence=sentence)
            parts = parts_of(mine.mlm, mine.sentence, batch)
            if its_PV is not None:
                parts["soft"] = self._soft(mine.mlm, its_PV)
            if mine.states is not None and its_states is not None:
                followed = tuple(its_states[d] for d in self.depths)
                nothing = torch.zeros((), dtype=torch.int64, device=mine.mlm.device)
                if self.weights.hidden:
                    parts["hidden"] = Part(self._hidden(mine.states, followed), batch.num_tokens, nothing)
                if self.weights.attention:
                    loss = self._attention(batch.packed, mine.states, its_states)
                    parts["attention"] = Part(loss, batch.num_tokens, nothing)
        return parts

    def _teacher_outputs(self, batch: PretrainingBatch) -> tuple[Tensor | None, tuple[Tensor, ...] | None]:
        """The teacher's masked-LM logits (P, V), and its states, each where a loss uses it. Without soft
        targets the teacher needs no head."""
        if not self.weights.soft:
            return None, self.teacher.encoder(batch.packed, all_depths=True).hidden_states
        its = pretraining_outputs(self.teacher, batch, states=self.weights.needs_states, sentence=False)
        return its.mlm, its.states

    def _soft(self, mine_PV: Tensor, its_PV: Tensor) -> Part:
        loss = self.weights.soft * soft_target_loss(mine_PV, its_PV, self.weights.temperature)
        with torch.no_grad():
            agreed = (mine_PV.float().max(-1).indices == its_PV.float().max(-1).indices).sum()
        return Part(loss, len(mine_PV), agreed)

    def _hidden(self, mine: tuple[Tensor, ...], followed: tuple[Tensor, ...]) -> Tensor:
        """The mean over the student's layers, the embeddings included."""
        mapped = mine if self.maps is None else [m(x.float()) for m, x in zip(self.maps, mine, strict=True)]
        losses = [hidden_loss(x, y) for x, y in zip(mapped, followed, strict=True)]
        return self.weights.hidden * torch.stack(losses).mean()

    def _attention(self, packed: Packed, mine: tuple[Tensor, ...], its: tuple[Tensor, ...]) -> Tensor:
        """The mean over the student's layers. A layer that corresponds to the embeddings is compared with the
        teacher's first layer."""
        losses = []
        for d, followed in enumerate(self.depths[1:]):
            with torch.no_grad(), self.teacher.encoder.forward_pass():
                teacher = attention_inputs(self.teacher.encoder, packed, its, max(followed, 1) - 1)
            student = attention_inputs(self.student.encoder, packed, mine, d)
            if self.relation_heads is None:
                losses.append(map_divergence(student, teacher, packed.lengths))
            else:
                losses.append(relation_divergence(student, teacher, packed.lengths, self.relation_heads))
        return self.weights.attention * torch.stack(losses).mean()


def _maps(count: int, narrow: int, wide: int, seed: int) -> nn.ModuleList:
    """Random matrices (wide, narrow) that preserve the norm of states on average."""
    maps = nn.ModuleList(nn.Linear(narrow, wide, bias=False) for _ in range(count))
    with torch.no_grad():
        for i, layer in enumerate(maps):
            drawn = torch_generator(seed, f"distillation/map/{i}")
            values = torch.randn(wide, narrow, generator=drawn, device="cpu")
            layer.weight.copy_(values / narrow**0.5)  # type: ignore[union-attr, operator, arg-type]
    return maps
