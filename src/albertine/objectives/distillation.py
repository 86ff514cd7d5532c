"""Losses of a student beside its teacher: soft targets, hidden states and attention, beside the labels.

Soft targets as DistilBERT has them (Hinton et al. 2015; Sanh et al. 2019), hidden states through a learned
map as TinyBERT (Jiao et al. 2020, section 3.1), attention as MiniLM and its second version do.
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
    attended,
    check_attends_plainly,
    map_divergence,
    relation_divergence,
)
from albertine.objectives.batch import PretrainingBatch
from albertine.objectives.losses import Part, parts_of


@dataclass(frozen=True)
class Lessons:
    """What a student learns of its teacher, and how much each counts beside the masked-LM loss of the labels.

    Attributes:
        soft, hidden, attention: weights; what has none is not computed.
        temperature: of the soft targets.
    """

    soft: float = 1.0
    hidden: float = 1.0
    attention: float = 0.1
    temperature: float = 2.0

    @property
    def names(self) -> tuple[str, ...]:
        """The parts of the loss that there are, as `PretrainingBatch.lessons` wants them."""
        return tuple(name for name in ("soft", "hidden", "attention") if getattr(self, name))

    @property
    def looks_inside(self) -> bool:
        """Whether the states of all depths are needed."""
        return bool(self.hidden or self.attention)


def mapped_depths(student: int, teacher: int) -> tuple[int, ...]:
    """The depth of the teacher that each depth of the student follows, evenly, from the embeddings (0) to the
    last: (student + 1,). TinyBERT's "uniform" function, rounded where it does not come out even."""
    return tuple((2 * d * teacher + student) // (2 * student) for d in range(student + 1))


def soft_target_loss(student_PV: Tensor, teacher_PV: Tensor, temperature: float) -> Tensor:
    """KL divergence of softmax(student / T) from softmax(teacher / T), times T², summed over the rows,
    float32 scalar; T² keeps the size of the gradient (Hinton et al. 2015, section 2)."""
    mine, its = (F.log_softmax(x.float() / temperature, dim=-1) for x in (student_PV, teacher_PV))
    return F.kl_div(mine, its, reduction="sum", log_target=True) * temperature**2


def hidden_loss(student_TH: Tensor, teacher_TH: Tensor) -> Tensor:
    """Squared distance over the squared length of the teacher's state, summed over the rows, float32 scalar:
    TinyBERT's squared error, in a unit that does not depend on how long the states of an encoder are."""
    gap, size = (x.float().square().sum(-1) for x in (student_TH.float() - teacher_TH.float(), teacher_TH))
    return (gap / size.clamp_min(1e-12)).sum()


class Said(NamedTuple):
    """What a model says of a batch: masked-LM logits (P, V), sentence logits (S, 2) or None, and the states
    (T, H) of the embeddings and of every depth, or None where nobody looks at them."""

    mlm: Tensor
    sentence: Tensor | None
    states: tuple[Tensor, ...] | None


def answers(model: Model, batch: PretrainingBatch, *, states: bool, sentence: bool) -> Said:
    """What a model says of a batch; with `states` its last depth computes all rows."""
    if not states:
        said = model.pretraining_forward(batch.packed, batch.mlm_positions, sentence=sentence)
        return Said(*said, None)
    out = model.encoder(batch.packed, all_depths=True)
    rows_PH = out.last_hidden.index_select(0, batch.mlm_positions)
    summary_SH = out.last_hidden.index_select(0, model.summary_rows(batch.packed))
    order = model.sentence_logits(summary_SH) if sentence else None
    return Said(model.mlm_logits(rows_PH), order, out.hidden_states)


class DistillationLosses:
    """As `pretraining_losses`, and a part for each lesson: "soft" over the masked tokens, whose `correct` are
    those of which the student says the teacher's likeliest word, "hidden" and "attention" over all tokens.

    Attributes:
        trained: what a run trains: the student, and where it is narrower than its teacher also `maps`, a
            matrix without bias for each of its states, which is left behind when the run is over.
        teacher: frozen, in evaluation mode. depths: of it, that each of the student's follows.
        relation_heads: of relations among rows of one kind; None: attention maps are compared head by head,
            because there are as many heads.
    """

    def __init__(self, student: Model, teacher: Model, lessons: Lessons, seed: int = 0) -> None:
        """
        Raises:
            SettingsError: attention is to be compared and one of the two attends in another way.
        """
        self.student, self.lessons = student, lessons
        self.teacher = teacher.requires_grad_(False).eval()
        mine, its = student.config, teacher.config
        self.depths = mapped_depths(mine.num_hidden_layers, its.num_hidden_layers)
        if lessons.attention:
            check_attends_plainly(its, "the teacher")
            check_attends_plainly(mine, "the student")
        heads = its.num_attention_heads
        same = mine.num_attention_heads == heads
        self.relation_heads = None if same else gcd(heads, mine.hidden_size)
        self.maps: nn.ModuleList | None = None
        self.trained: nn.Module = student
        if lessons.hidden and mine.hidden_size != its.hidden_size:
            self.maps = _maps(len(self.depths), mine.hidden_size, its.hidden_size, seed)
            self.trained = nn.ModuleDict({"student": student, "maps": self.maps})

    def __call__(self, trained: nn.Module, batch: PretrainingBatch) -> dict[str, Part]:
        """
        Args:
            batch: its `lessons` are the names of these.
        """
        inside, sentence = self.lessons.looks_inside, batch.sentence_labels is not None
        with torch.no_grad():
            its_PV, its_states = self._told(batch)
        with self.student.encoder.forward_pass():
            mine = answers(self.student, batch, states=inside, sentence=sentence)
            parts = parts_of(mine.mlm, mine.sentence, batch)
            if its_PV is not None:
                parts["soft"] = self._soft(mine.mlm, its_PV)
            if mine.states is not None and its_states is not None:
                followed = tuple(its_states[d] for d in self.depths)
                nothing = torch.zeros((), dtype=torch.int64, device=mine.mlm.device)
                if self.lessons.hidden:
                    parts["hidden"] = Part(self._hidden(mine.states, followed), batch.num_tokens, nothing)
                if self.lessons.attention:
                    loss = self._attention(batch.packed, mine.states, its_states)
                    parts["attention"] = Part(loss, batch.num_tokens, nothing)
        return parts

    def _told(self, batch: PretrainingBatch) -> tuple[Tensor | None, tuple[Tensor, ...] | None]:
        """The teacher's masked-LM logits (P, V), where they are learned, and its states, where those are. One
        whose states alone are learned needs no head."""
        if not self.lessons.soft:
            return None, self.teacher.encoder(batch.packed, all_depths=True).hidden_states
        its = answers(self.teacher, batch, states=self.lessons.looks_inside, sentence=False)
        return its.mlm, its.states

    def _soft(self, mine_PV: Tensor, its_PV: Tensor) -> Part:
        loss = self.lessons.soft * soft_target_loss(mine_PV, its_PV, self.lessons.temperature)
        with torch.no_grad():
            agreed = (mine_PV.float().max(-1).indices == its_PV.float().max(-1).indices).sum()
        return Part(loss, len(mine_PV), agreed)

    def _hidden(self, mine: tuple[Tensor, ...], followed: tuple[Tensor, ...]) -> Tensor:
        """The mean over the student's depths, the embeddings included."""
        mapped = mine if self.maps is None else [m(x.float()) for m, x in zip(self.maps, mine, strict=True)]
        losses = [hidden_loss(x, y) for x, y in zip(mapped, followed, strict=True)]
        return self.lessons.hidden * torch.stack(losses).mean()

    def _attention(self, packed: Packed, mine: tuple[Tensor, ...], its: tuple[Tensor, ...]) -> Tensor:
        """The mean over the student's depths. One that follows the embeddings reads what the teacher's first
        depth reads, and attends as that does."""
        losses = []
        for d, followed in enumerate(self.depths[1:]):
            with torch.no_grad(), self.teacher.encoder.forward_pass():
                teacher = attended(self.teacher.encoder, packed, its, max(followed, 1) - 1)
            student = attended(self.student.encoder, packed, mine, d)
            if self.relation_heads is None:
                losses.append(map_divergence(student, teacher, packed.lengths))
            else:
                losses.append(relation_divergence(student, teacher, packed.lengths, self.relation_heads))
        return self.lessons.attention * torch.stack(losses).mean()


def _maps(count: int, narrow: int, wide: int, seed: int) -> nn.ModuleList:
    """Matrices (wide, narrow) that keep the lengths of states on average."""
    maps = nn.ModuleList(nn.Linear(narrow, wide, bias=False) for _ in range(count))
    with torch.no_grad():
        for i, layer in enumerate(maps):
            drawn = torch_generator(seed, f"distillation/map/{i}")
            values = torch.randn(wide, narrow, generator=drawn, device="cpu")
            layer.weight.copy_(values / narrow**0.5)  # type: ignore[union-attr, operator, arg-type]
    return maps
