"""Sequence labelling: entities in a text, one tag a token (BIO or BIOES), one linear layer over every token,
and over that, if wanted, a conditional random field.

Entities are spans of characters on both sides, so no score depends on how the text was cut into pieces. A
token has the tag of the entity that it lies in; the first token of an entity begins it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from albertine.errors import ModelError
from albertine.evaluation.ensembles import mean_softmax
from albertine.inference.chances import softmax
from albertine.inference.exported import ExportedModel
from albertine.inference.tags import Entity, Scheme, allowed, entities_of, marks, scheme_of
from albertine.interop.heads import Task, head_config
from albertine.tasks.encoded import IGNORED, Encoded, RowBuilder, TaskBatch, cut_text
from albertine.tasks.examples import Example
from albertine.tasks.family import Fields, OneLayer, Poll, Tuned, over_rows
from albertine.tasks.readers.table import Row
from albertine.text.tokenizer import Spans, Tokenizer

if TYPE_CHECKING:
    from torch import Tensor

    from albertine.model.model import Model
    from albertine.model.task_model import TaskModel
    from albertine.objectives.losses import Part


def encode(
    examples: Sequence[Example], tokenizer: Tokenizer, max_length: int, labels: Sequence[str]
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
        # What tags others have need not be a scheme: parts of speech have no O, and some have no B.
        tags = [number.get(tag, IGNORED) for tag in tags_for(cut.spans, example.label or (), scheme)]
        before = [IGNORED] * tokenizer.lead
        padded = [*before, *tags, *[IGNORED] * (2 - len(before))]
        targets.append(np.array(padded, dtype=np.int64))
    known = all(example.label is not None for example in examples)
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
    task: ClassVar[Task] = "tag"
    per_token: bool = True

    @property
    def settings(self) -> dict[str, Any]:
        return {"kind": "entities", "max_length": self.max_length, "crf": self.crf}

    @property
    def outputs(self) -> int:
        return len(self.labels)

    def example(self, row: Row, fields: Fields) -> Example:
        return Example(row.name, fields.first(row), None, None, row.where)

    def encode(self, examples: Sequence[Example], tokenizer: Tokenizer) -> Encoded:
        return encode(examples, tokenizer, self.max_length, self.labels)

    def build(self, base: Model, dropout: float, seed: int) -> TaskModel:
        from albertine.model.crf import CrfTagger

        if self.crf:
            return CrfTagger(base, allowed(self.labels), dropout=dropout, seed=seed)
        return super().build(base, dropout, seed)

    def part(self, model: Any, batch: TaskBatch) -> Part:
        if not self.crf:
            return super().part(model, batch)
        from albertine.objectives.losses import Part

        logits = model(batch.packed)
        likelihood = model.log_likelihood(logits, batch.packed, batch.targets)
        # How many are right is told of the logits alone: to decode in training would cost as much again.
        return Part(-likelihood, batch.predictions, (logits.argmax(-1) == batch.targets).sum())

    def loss(self, logits: Tensor, batch: TaskBatch) -> Part:
        import torch.nn.functional as F

        from albertine.objectives.losses import Part

        total = F.cross_entropy(logits, batch.targets, reduction="sum", ignore_index=IGNORED)
        return Part(total, batch.predictions, (logits.argmax(-1) == batch.targets).sum())

    def predict(self, model: Any, data: Encoded, poll: Poll = lambda: None) -> NDArray[Any]:
        """The logits of every token, (tokens, tags); with a CRF the tags of the best sequences, int64
        (tokens,)."""
        if not self.crf:
            return over_rows(model, data, poll, per_token=True)
        if isinstance(model, ExportedModel):
            return self._decoded(model, over_rows(model, data, poll, per_token=True), data)
        return over_rows(model, data, poll, per_token=True, ask=model.tags)

    def _decoded(self, model: ExportedModel, logits: NDArray[np.float32], data: Encoded) -> NDArray[np.int64]:
        """The best sequences by the logits of a graph and the transitions beside it; 0 for special tokens."""
        transitions, at = model.transitions(self.labels), 0
        tags = np.zeros(len(logits), dtype=np.int64)
        for cut, ids in zip(data.examples, data.ids, strict=True):
            inside = slice(at + cut.lead, at + len(ids) - 2 + cut.lead)
            if len(ids) > 2:
                tags[inside] = transitions.best(logits[inside])
            at += len(ids)
        return tags

    def merge(self, said: Sequence[NDArray[np.float32]], data: Encoded) -> NDArray[np.float32]:
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

    def answers(self, said: NDArray[Any], data: Encoded) -> list[list[Entity]]:
        """The entities of every text."""
        labels = self.labels
        tags = said if self.crf else said.argmax(-1)
        rows = np.split(tags, np.cumsum([len(ids) for ids in data.ids])[:-1])
        return [
            entities_of(cut.spans, [labels[i] for i in row[cut.lead :][: len(cut.spans.ids)].tolist()])
            for cut, row in zip(data.examples, rows, strict=True)
        ]

    def sureness(
        self, logits: NDArray[Any], data: Encoded, answers: Sequence[Sequence[Entity]]
    ) -> list[list[float]]:
        """How sure the model is of every entity of every text: the mean probability of the tags of its
        tokens. For models without a CRF, whose tags have no probability one by one."""
        chances = softmax(logits).max(-1)
        rows = np.split(chances, np.cumsum([len(ids) for ids in data.ids])[:-1])
        found = []
        for cut, row, entities in zip(data.examples, rows, answers, strict=True):
            starts, ends = np.array(cut.spans.starts), np.array(cut.spans.ends)
            own = row[cut.lead :][: len(starts)]
            found.append([float(own[(starts < end) & (ends > begin)].mean()) for _, begin, end in entities])
        return found

    def shown(self, example: Example) -> dict[str, Any]:
        return {"text": example.text}

    def plain(self, answer: Sequence[Entity], example: Example) -> list[list[Any]]:
        """Type, first character, end, words of every entity."""
        return [[name, begin, end, example.text[begin:end]] for name, begin, end in answer]

    def config(self, model_type: str, dropout: float) -> dict[str, Any]:
        return head_config(model_type, self.task, dropout, names=self.labels, max_length=self.max_length)


def of_folder(found: Tuned) -> Tag:
    """The family that a folder was tuned with."""
    crf = any(name.startswith("crf.") for name in found.folder.shapes)
    return Tag(found.head.labels, found.length, crf)
