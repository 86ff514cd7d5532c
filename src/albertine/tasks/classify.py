"""Classification and similarity of texts and pairs: encoding, head, loss, scores, predictions.

The head is the paper's (albert_family.md 1.8): pooled first token, dropout, one linear layer; a score is one
output under squared error, several classes at once are one sigmoid each.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from albertine.evaluation.metrics import METRICS
from albertine.files import replace_durably
from albertine.layout import Packed, pack
from albertine.model.block import stacked
from albertine.model.model import Model
from albertine.objectives.losses import Part
from albertine.randomness import torch_generator
from albertine.tasks.datasets.classify import Kind
from albertine.tasks.examples import Example
from albertine.text.tokenizer import Tokenizer

PREDICT_TOKENS = 16384


class Classifier(nn.Module):
    """An encoder with one linear layer over its pooled first token.

    Attributes:
        base: encoder and pooler. dropout: before the linear layer, in training.
    """

    def __init__(self, base: Model, outputs: int, *, dropout: float = 0.1, seed: int = 0) -> None:
        """Weights of the head are normal, cut at two sigma, a function of the seed; its bias is zero."""
        super().__init__()
        self.base, self.dropout = base, dropout
        self.classifier = nn.Linear(base.config.hidden_size, outputs)
        sigma = base.config.initializer_range
        generator = torch_generator(seed, "init/classifier.weight")
        with torch.no_grad():
            nn.init.trunc_normal_(
                self.classifier.weight, 0.0, sigma, -2 * sigma, 2 * sigma, generator=generator
            )
            self.classifier.bias.zero_()

    def forward(self, packed: Packed) -> Tensor:
        """Logits (S, outputs), float32. The last depth computes the first token of each sequence alone."""
        first_SH = self.base.encoder(packed, rows=packed.first_tokens).last_hidden
        pooled_SH = F.dropout(self.base.pooled(first_SH), self.dropout, self.training)
        logits: Tensor = stacked(self.classifier, dtype=pooled_SH.dtype)(pooled_SH)
        return logits.float()


@dataclass(frozen=True)
class ClassifyBatch:
    """A packed batch with its targets: class numbers int64 (S,), memberships float32 (S, classes), or
    scores float32 (S,)."""

    packed: Packed
    targets: Tensor

    @property
    def counts(self) -> dict[str, int]:
        return {"task": self.packed.num_sequences}

    @property
    def num_tokens(self) -> int:
        return self.packed.num_tokens

    def to(self, device: torch.device | str) -> ClassifyBatch:
        return replace(self, packed=self.packed.to(device), targets=self.targets.to(device))


@dataclass(frozen=True)
class Encoded:
    """Examples as model input: token and segment ids by example, and targets by example if all have one."""

    examples: tuple[Example, ...]
    ids: list[NDArray[np.int32]]
    types: list[NDArray[np.int8]]
    targets: Tensor | None
    truncated: int

    @property
    def lengths(self) -> NDArray[np.int64]:
        return np.array([len(ids) for ids in self.ids], dtype=np.int64)

    def packed(self, chosen: Sequence[int]) -> Packed:
        return pack([self.ids[i] for i in chosen], [self.types[i] for i in chosen])

    def batch(self, chosen: Sequence[int]) -> ClassifyBatch:
        assert self.targets is not None
        return ClassifyBatch(self.packed(chosen), self.targets[torch.tensor(chosen)])


def encode(
    examples: Sequence[Example], tokenizer: Tokenizer, max_length: int, kind: Kind, labels: Sequence[str]
) -> Encoded:
    """Examples as model input; the longer text of one that is too long loses tokens from its end.

    Args:
        labels: the classes in the order of their numbers; every label must be among them.
    """
    firsts = tokenizer.encode_batch([e.text for e in examples])
    pairs = [e.pair for e in examples]
    seconds = iter(tokenizer.encode_batch([p for p in pairs if p is not None]))
    ids, types, truncated = [], [], 0
    for first, pair in zip(firsts, pairs, strict=True):
        second = None if pair is None else next(seconds)
        wanted = len(first) + 2 + (0 if second is None else len(second) + 1)
        row, segments = tokenizer.layout(first, second, max_length=max_length)
        truncated += wanted > max_length
        ids.append(np.array(row, dtype=np.int32))
        types.append(np.array(segments, dtype=np.int8))
    return Encoded(tuple(examples), ids, types, _targets(examples, kind, labels), truncated)


def _targets(examples: Sequence[Example], kind: Kind, labels: Sequence[str]) -> Tensor | None:
    golds = [e.label for e in examples]
    if any(gold is None for gold in golds):
        return None
    if kind == "score":
        return torch.tensor(golds, dtype=torch.float32)
    number = {name: i for i, name in enumerate(labels)}
    if kind == "single":
        return torch.tensor([number[str(gold)] for gold in golds])
    member = torch.zeros(len(golds), len(labels))
    for row, gold in enumerate(golds):
        assert isinstance(gold, frozenset)
        member[row, [number[name] for name in gold]] = 1.0
    return member


def loss(kind: Kind, weights: Tensor | None = None) -> Callable[[Classifier, ClassifyBatch], dict[str, Part]]:
    """The loss of a kind: cross-entropy, mean of the classes' sigmoid cross-entropies, or squared error.

    Args:
        weights: (classes,) of every class, for "single" and "multi".
    """

    def part(model: Classifier, batch: ClassifyBatch) -> dict[str, Part]:
        logits, targets = model(batch.packed), batch.targets
        if kind == "single":
            total = F.cross_entropy(logits, targets, weights, reduction="sum")
            right = (logits.argmax(-1) == targets).sum()
        elif kind == "multi":
            each = F.binary_cross_entropy_with_logits(logits, targets, weights, reduction="none")
            total, right = each.mean(-1).sum(), ((logits > 0) == targets.bool()).all(-1).sum()
        else:
            gap = logits.squeeze(-1) - targets
            total, right = gap.square().sum(), (gap.abs() < 0.5).sum()  # "right" is within half a point
        return {"task": Part(total, len(targets), right)}

    return part


@torch.no_grad()
def predict(
    model: Classifier,
    data: Encoded,
    *,
    device: torch.device | str = "cpu",
    poll: Callable[[], None] = lambda: None,
) -> Tensor:
    """Logits (examples, outputs), float32 on the CPU, in the order of the examples; the mode is kept."""
    was_training = model.training
    model.eval()
    try:
        order = np.argsort(-data.lengths, kind="stable")
        parts = []
        for chosen in by_tokens(order, data.lengths, PREDICT_TOKENS):
            poll()
            parts.append(model(data.packed(chosen).to(device)).cpu())
    finally:
        model.train(was_training)
    logits = torch.cat(parts)
    return torch.empty_like(logits).index_copy_(0, torch.from_numpy(order), logits)


def by_tokens(order: NDArray[np.int64], lengths: NDArray[np.int64], limit: int) -> Iterator[list[int]]:
    """Runs of `order` with at most `limit` tokens together; an example that is longer goes alone."""
    group: list[int] = []
    size = 0
    for i in order.tolist():
        if group and size + lengths[i] > limit:
            yield group
            group, size = [], 0
        group.append(i)
        size += int(lengths[i])
    if group:
        yield group


def answers(logits: Tensor, kind: Kind, labels: Sequence[str]) -> list[str | float | frozenset[str]]:
    """What the logits (examples, outputs) mean: a class, a set of classes, or a number."""
    if kind == "score":
        return list(logits.squeeze(-1).tolist())
    if kind == "single":
        return [labels[i] for i in logits.argmax(-1).tolist()]
    return [
        frozenset(name for name, there in zip(labels, row, strict=True) if there)
        for row in (logits > 0).tolist()
    ]


def score(
    examples: Sequence[Example], predicted: Sequence[str | float | frozenset[str]], metrics: Sequence[str]
) -> dict[str, float]:
    """The named metrics of predictions against the examples' labels."""
    gold = [e.label for e in examples]
    return {name: METRICS[name](gold, predicted) for name in metrics}


def write_predictions(
    path: Path,
    examples: Sequence[Example],
    logits: Tensor,
    predicted: Sequence[str | float | frozenset[str]],
    kind: Kind,
    labels: Sequence[str],
) -> None:
    """One JSON object a line: id, prediction, gold label if known, and the probability of every class."""
    probabilities = (
        logits.softmax(-1) if kind == "single" else logits.sigmoid() if kind == "multi" else logits
    ).tolist()
    lines = []
    for example, answer, values in zip(examples, predicted, probabilities, strict=True):
        row: dict[str, object] = {"id": example.name, "prediction": _plain(answer)}
        if example.label is not None:
            row["label"] = _plain(example.label)
        if kind != "score":
            row["probabilities"] = dict(zip(labels, (round(v, 6) for v in values), strict=True))
        lines.append(json.dumps(row, ensure_ascii=False))
    replace_durably(path, ("\n".join(lines) + "\n").encode())


def _plain(label: str | float | frozenset[str]) -> str | float | list[str]:
    return sorted(label) if isinstance(label, frozenset) else label
