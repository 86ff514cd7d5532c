"""The family of relations in a text: subject, predicate, object, by pointers to the ends of both names.

In training the targets of a text are all its subjects, and the objects of one subject that is drawn each
epoch; in inference the objects of all subjects found are predicted (model/relation_head.py,
inference/triples.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from albertine.errors import ModelError
from albertine.evaluation.entities import Triple, plain_triple
from albertine.inference.exported_model import ExportedModel, ExportedPointers
from albertine.inference.triples import THRESHOLDS, PointerModel, Relation, relations
from albertine.interop.heads import Task, head_config, labels_in
from albertine.tasks.encoded import Encoded
from albertine.tasks.examples import Example
from albertine.tasks.family import Family, Fields, Poll, Tuned, in_evaluation
from albertine.tasks.readers.table import Row
from albertine.tasks.relation_rows import Related, RelationBatch, encode
from albertine.tokenizers.base import Tokenizer

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor

    from albertine.inference.graph_heads import Head
    from albertine.model.model import Model
    from albertine.model.relation_head import Relations
    from albertine.model.task_model import TaskModel
    from albertine.objectives.losses import Part


def pointer_loss(logits: Tensor, targets: Tensor, power: int) -> Tensor:
    """Binary cross-entropy of sigmoid(logits) to the power, elementwise, in nats.

    With p = s^n, 1 - p = (1 - s)(1 + s + … + s^(n-1)), which has no cancellation for any logits.
    """
    import torch
    import torch.nn.functional as F

    s = logits.sigmoid()
    rest = torch.stack([s**k for k in range(power)]).sum(0).log()
    return -torch.where(targets, power * F.logsigmoid(logits), F.logsigmoid(-logits) + rest)


def read_texts(model: Any, data: Encoded, rows: Sequence[int]) -> PointerModel:
    """The pointers of a model in some texts of the data."""
    if isinstance(model, ExportedModel):
        return ExportedPointers(model, *data.rows(rows))
    from albertine.inference.relation_pointers import TorchPointers

    return TorchPointers(model, data.packed(rows).to(model.base.device))


@dataclass
class Relate(Family):
    """The family of relations.

    Attributes:
        labels: the predicates, in the order of their numbers. max_length: tokens of a text.
        thresholds: see `triples.relations`.
    """

    labels: tuple[str, ...]
    max_length: int
    thresholds: tuple[float, float] = THRESHOLDS
    metrics: tuple[str, ...] = ("triple_f1", "triple_precision", "triple_recall")
    task: ClassVar[Task] = "relate"

    @property
    def settings(self) -> dict[str, Any]:
        return {"kind": "relations", "max_length": self.max_length}

    heads: frozenset[str] = frozenset({"pooler"})  # unused; for other programs that load the folder

    def example(self, row: Row, fields: Fields) -> Example:
        return Example(row.name, fields.first(row), None, None, row.where)

    def encode(self, examples: Sequence[Example], tokenizer: Tokenizer) -> Related:
        return encode(examples, tokenizer, self.max_length, self.labels)

    def encode_to_learn(self, examples: Sequence[Example], tokenizer: Tokenizer) -> Related:
        return encode(examples, tokenizer, self.max_length, self.labels, learning=True)

    def build(self, base: Model, dropout: float, seed: int) -> Relations:
        from albertine.model.relation_head import Relations

        return Relations(base, len(self.labels), dropout=dropout, seed=seed)

    def part(self, model: Relations, batch: RelationBatch) -> Part:
        """The loss of a token: the mean over its two pointers (first, last), summed over the subjects and the
        objects of each predicate.

        A mean over predicates would leave the objects almost without weight, as few predicates occur in a
        text. Special tokens count. Both as in bert4keras' example. A token is correct if every pointer is on
        the right side of its threshold.
        """
        import torch

        from albertine.model.relation_head import OBJECT_POWER, SUBJECT_POWER, probability
        from albertine.objectives.losses import Part

        subjects, objects = model(batch.packed, batch.subjects)
        subject_loss = pointer_loss(subjects, batch.targets, SUBJECT_POWER).mean(-1).sum()
        found = pointer_loss(objects, batch.objects, OBJECT_POWER).mean(-1).sum()
        with torch.no_grad():
            limits = subjects.new_tensor(self.thresholds)
            right = ((probability(subjects, SUBJECT_POWER) > limits) == batch.targets).all(-1)
            right &= ((probability(objects, OBJECT_POWER) > limits) == batch.objects).all(-1).all(-1)
        return Part(subject_loss + found, batch.predictions, right.sum())

    def predict(self, model: Any, data: Encoded, poll: Poll = lambda: None) -> list[list[Relation]]:
        """The relations found in every text."""
        found: list[list[Relation]] = [[] for _ in data.examples]
        with in_evaluation(model) as runs:
            for rows in runs(data.lengths.tolist()):
                poll()
                cuts = [data.examples[i] for i in rows]
                spans, lead = [cut.spans for cut in cuts], cuts[0].lead
                reader = read_texts(model, data, rows)
                relations_of = relations(reader, spans, self.labels, self.thresholds, lead)
                for i, own in zip(rows, relations_of, strict=True):
                    found[i] = own
        return found

    def graph_head(self, model: TaskModel, where: Path) -> Head:
        from albertine.inference.graph_heads import Pointers
        from albertine.model.relation_head import Relations

        assert isinstance(model, Relations)
        return Pointers(model)

    def answers(self, outputs: Sequence[Sequence[Relation]], data: Encoded) -> list[list[Triple]]:
        """The triples of every text, each once."""
        return [
            list(dict.fromkeys(relation.words(cut.example.text) for relation in relations))
            for cut, relations in zip(data.examples, outputs, strict=True)
        ]

    def input_columns(self, example: Example) -> dict[str, Any]:
        return {"text": example.text}

    def merge(self, outputs: Sequence[Any], data: Encoded) -> list[list[Relation]]:
        """The triples that at least half of the models found, at any position in the text."""
        merged = []
        for number, cut in enumerate(data.examples):
            first: dict[Triple, Relation] = {}
            votes: Counter[Triple] = Counter()
            for one in outputs:
                found = {plain_triple(r.words(cut.example.text)): r for r in one[number]}
                votes.update(found.keys())
                first |= {triple: r for triple, r in found.items() if triple not in first}
            merged.append([r for triple, r in first.items() if 2 * votes[triple] >= len(outputs)])
        return merged

    def config(self, model_type: str, dropout: float) -> dict[str, Any]:
        names, length = self.labels, self.max_length
        tree = head_config(model_type, self.task, dropout, names=names, max_length=length)
        tree["albertine"]["thresholds"] = list(self.thresholds)
        return tree


def of_folder(found: Tuned) -> Relate:
    """The family that a folder was tuned with."""
    match found.flags.get("thresholds", THRESHOLDS):
        case [int() | float() as first, int() | float() as last]:
            return Relate(labels_in(found.folder.config), found.length, (float(first), float(last)))
        case other:
            raise ModelError(f"has thresholds {other!r:.60}, not two numbers", where=found.where)
