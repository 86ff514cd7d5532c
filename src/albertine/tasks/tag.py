"""Sequence labelling: entities in a text, one tag a token (BIO or BIOES), one linear layer over every token,
and over that, if wanted, a conditional random field.

Entities are spans of characters on both sides, so no score depends on how the text was cut into pieces. A
token has the tag of the entity that it lies in; the first token of an entity begins it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from albertine.errors import ModelError
from albertine.evaluation.ensembles import mean_softmax
from albertine.inference.tags import Entity, Scheme, allowed, entities_of, marks, scheme_of
from albertine.interop.heads import Task, head_config
from albertine.model.crf import CrfTagger
from albertine.model.model import Model
from albertine.model.task_model import TaskModel
from albertine.objectives.losses import IGNORED, Part
from albertine.tasks.encoded import Encoded, RowBuilder, TaskBatch, cut_text
from albertine.tasks.family import Fields, OneLayer, Poll, Tuned, over_rows
from albertine.tasks.readers.table import Row
from albertine.text.tokenizer import Spans, Tokenizer


@dataclass(frozen=True)
class Tagged:
    """One text.

    Attributes:
        name: how predictions name it. entities: None where the file does not tell. where: for messages.
    """

    name: str
    text: str
    entities: tuple[Entity, ...] | None
    where: str


def encode(
    examples: Sequence[Tagged], tokenizer: Tokenizer, max_length: int, labels: Sequence[str]
) -> Encoded:
    """A row a text; its target are the tags of its tokens, int64 (tokens,), the special ones ignored.

    Args:
        labels: all tags in the order of their numbers; the scheme is theirs.
    """
    rows, cuts, targets = RowBuilder(tokenizer, max_length), [], []
    scheme, number = scheme_of(labels), {tag: i for i, tag in enumerate(labels)}
    for example in examples:
        cut, ids = cut_text(example, tokenizer, max_length)
        rows.add(ids, None)
        rows.end()
        cuts.append(cut)
        tags = [number[tag] for tag in tags_for(cut.spans, example.entities or (), scheme)]
        before = [IGNORED] * tokenizer.lead
        targets.append(torch.tensor([*before, *tags, *[IGNORED] * (2 - len(before))]))
    known = all(example.entities is not None for example in examples)
    return rows.encoded(cuts, targets if known else None)


def tags_for(spans: Spans, entities: Sequence[Entity], scheme: Scheme = "bio") -> list[str]:
    """The tag of every token; of overlapping entities the one that begins first, of those the longest."""
    tags = ["O"] * len(spans.ids)
    free = [True] * len(tags)
    for name, begin, end in sorted(entities, key=lambda e: (e[1], -e[2])):
        inside = [
            i for i, (a, b) in enumerate(zip(spans.starts, spans.ends, strict=True)) if a < end and b > begin
        ]
        if inside and all(free[i] for i in inside):
            for mark, i in zip(marks(len(inside), scheme), inside, strict=True):
                tags[i], free[i] = f"{mark}-{name}", False
    return tags


@dataclass
class Tag(OneLayer):
    """The family of sequence labelling.

    Attributes:
        labels: the tags, in the order of their numbers. max_length: tokens of a text.
        crf: whether a conditional random field judges and decodes whole sequences.
    """

    labels: tuple[str, ...]
    max_length: int
    crf: bool = False
    metrics: tuple[str, ...] = ("entity_f1",)
    task: Task = "tag"
    per_token: bool = True

    @property
    def outputs(self) -> int:
        return len(self.labels)

    def example(self, row: Row, fields: Fields) -> Tagged:
        return Tagged(row.name, fields.first(row), None, row.where)

    def encode(self, examples: Sequence[Tagged], tokenizer: Tokenizer) -> Encoded:
        return encode(examples, tokenizer, self.max_length, self.labels)

    def build(self, base: Model, dropout: float, seed: int) -> TaskModel:
        if self.crf:
            return CrfTagger(base, allowed(self.labels), dropout=dropout, seed=seed)
        return super().build(base, dropout, seed)

    def part(self, model: Any, batch: TaskBatch) -> Part:
        if not self.crf:
            return super().part(model, batch)
        logits = model(batch.packed)
        likelihood = model.log_likelihood(logits, batch.packed, batch.targets)
        # How many are right is told of the logits alone: to decode in training would cost as much again.
        return Part(-likelihood, batch.predictions, (logits.argmax(-1) == batch.targets).sum())

    def loss(self, logits: Tensor, batch: TaskBatch) -> Part:
        total = F.cross_entropy(logits, batch.targets, reduction="sum", ignore_index=IGNORED)
        return Part(total, batch.predictions, (logits.argmax(-1) == batch.targets).sum())

    def predict(
        self,
        model: Any,
        data: Encoded,
        *,
        device: torch.device | str = "cpu",
        poll: Poll = lambda: None,
    ) -> Tensor:
        """The logits of every token, (tokens, tags); with a CRF the tags of the best sequences, int64
        (tokens,)."""
        return over_rows(
            model, data, per_token=True, device=device, poll=poll, ask=model.tags if self.crf else model
        )

    def merge(self, said: Sequence[Tensor], data: Encoded) -> Tensor:
        """Logits of the mean probabilities, token by token.

        Raises:
            ModelError: the models have CRFs, or cut the texts into different tokens.
        """
        if self.crf:
            raise ModelError(
                "a CRF decodes whole sequences, which have no mean", remedy="Tune without task.crf"
            )
        tokens = sum(map(len, data.ids))
        if any(len(logits) != tokens for logits in said):
            raise ModelError("the models cut the texts into different tokens, which have no mean")
        return mean_softmax(said)

    def answers(self, said: Tensor, data: Encoded) -> list[list[Entity]]:
        """The entities of every text."""
        labels = self.labels
        tags = said if self.crf else said.argmax(-1)
        rows = torch.split(tags, [len(ids) for ids in data.ids])
        return [
            entities_of(cut.spans, [labels[i] for i in row[cut.lead :][: len(cut.spans.ids)].tolist()])
            for cut, row in zip(data.examples, rows, strict=True)
        ]

    def gold(self, data: Encoded) -> list[Any]:
        return [cut.example.entities for cut in data.examples]

    def lines(self, said: Tensor, data: Encoded, answers: Sequence[Any]) -> list[dict[str, Any]]:
        """Id, text, and the entities found and right: type, first character, end, words."""
        lines = []
        for cut, found in zip(data.examples, answers, strict=True):
            text = cut.example.text
            line: dict[str, Any] = {"id": cut.example.name, "text": text, "prediction": _told(text, found)}
            if cut.example.entities is not None:
                line["label"] = _told(text, cut.example.entities)
            lines.append(line)
        return lines

    def config(self, model_type: str, dropout: float) -> dict[str, Any]:
        return head_config(model_type, self.task, dropout, names=self.labels, max_length=self.max_length)


def _told(text: str, entities: Sequence[Entity]) -> list[list[Any]]:
    return [[name, begin, end, text[begin:end]] for name, begin, end in entities]


def of_folder(found: Tuned) -> Tag:
    """The family that a folder was tuned with."""
    crf = any(name.startswith("crf.") for name in found.folder.extra)
    return Tag(found.head.labels, found.length, crf)
