"""Text vectors: the cosine of two vectors is the similarity of the texts.

They are learned from scores of pairs (`cosine`, `cosent`), or from positive pairs against all other texts of
the batch (`contrastive`; in `simcse` a pair is a text twice, with different dropout).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from albertine.evaluation.ensembles import mean_score
from albertine.inference.embedding import normalize_rows, row_cosines, vector_settings
from albertine.interop.heads import Task, pooling_of
from albertine.tasks.encoded import Encoded, RowBuilder, TaskBatch
from albertine.tasks.examples import Example
from albertine.tasks.family import Family, Fields, Poll, Tuned, over_rows
from albertine.tasks.readers.table import Row
from albertine.tokenizers.base import Tokenizer

if TYPE_CHECKING:
    from albertine.model.model import Model
    from albertine.model.task_model import Embedder, WhitenedEmbedder
    from albertine.objectives.losses import Part
    from albertine.tasks.family import AnyModel

Objective = Literal["cosine", "cosent", "contrastive", "simcse"]
VectorPooling = Literal["mean", "cls", "depths", "whitened"]
CONTRASTS = ("contrastive", "simcse")
DIGITS = 6
"""Decimals of a cosine; float32 has one more."""


@dataclass(frozen=True)
class Likeness(Example):
    """A pair of texts with a similarity score from 0 to 1 as label.

    Attributes:
        negative: a text that is not similar to the first one (hard negative).
        left_out: has a label that the authors of the data set drop.
    """

    pair: str
    negative: str | None = None
    left_out: bool = False


def encode(
    examples: Sequence[Likeness], tokenizer: Tokenizer, max_length: int, *, contrast: bool = False
) -> Encoded:
    """Two rows an example, with `contrast` a third for its negative.

    The target is the score float32 (1,), with `contrast` the ids of its texts int64 (1, 3), equal for equal
    texts, -1 for no negative.
    """
    texts = [[e.text, e.pair, *([e.negative] if contrast and e.negative else [])] for e in examples]
    number = {text: i for i, text in enumerate(dict.fromkeys(t for row in texts for t in row))}
    ids = tokenizer.encode_batch(list(number))
    rows = RowBuilder(tokenizer, max_length)
    for row in texts:
        for text in row:
            rows.add(ids[number[text]], None)
        rows.end()
    if contrast:
        named = [[number[text] for text in row] for row in texts]
        return rows.encoded(examples, [np.array([(*row, -1)[:3]], dtype=np.int64) for row in named])
    scores = [e.label for e in examples]
    known = None not in scores
    targets = [np.array([score], dtype=np.float32) for score in scores] if known else None
    return rows.encoded(examples, targets)


@dataclass
class Embed(Family):
    """The family of text vectors.

    Attributes:
        objective: the loss. max_length: tokens of a text.
        scale: of cosines in a softmax, one over the temperature.
        pooling, normalize: as in `model.pooling`, or "whitened" (`WhitenedEmbedder`). symmetric: as in
            `contrastive`.
        heads: the pooler, unused, for other programs that load the folder.
    """

    objective: Objective
    max_length: int
    pooling: VectorPooling = "mean"
    normalize: bool = False
    scale: float = 20.0
    symmetric: bool = False
    metrics: tuple[str, ...] = ("spearman", "pearson")
    labels: tuple[str, ...] = ()
    heads: frozenset[str] = frozenset({"pooler"})
    task: ClassVar[Task] = "embed"
    fields: ClassVar[Fields] = Fields("text", "pair")

    @property
    def settings(self) -> dict[str, Any]:
        how = {"pooling": self.pooling, "normalize": self.normalize}
        return {"kind": "similarity", "max_length": self.max_length, "similarity": how}

    def build(self, base: Model, dropout: float, seed: int) -> Embedder | WhitenedEmbedder:
        from albertine.model.task_model import Embedder, WhitenedEmbedder

        if self.pooling == "whitened":
            return WhitenedEmbedder(base, self.normalize)
        return Embedder(base, self.pooling, self.normalize)

    def example(self, row: Row, fields: Fields) -> Likeness:
        second = fields.needed(row)
        return Likeness(row.name, fields.first(row), second, None, row.where)

    def encode(self, examples: Sequence[Likeness], tokenizer: Tokenizer) -> Encoded:
        return encode(examples, tokenizer, self.max_length)

    def encode_to_learn(self, examples: Sequence[Likeness], tokenizer: Tokenizer) -> Encoded:
        """As `encode`, with negatives; a batch is one micro-batch if the loss compares its examples."""
        found = encode(examples, tokenizer, self.max_length, contrast=self.objective in CONTRASTS)
        return replace(found, together=self.objective != "cosine")

    def part(self, model: Any, batch: TaskBatch) -> Part:
        import torch
        import torch.nn.functional as F

        from albertine.objectives.similarity import contrastive, cosent, cosine_error

        vectors = model(batch.packed)
        sizes = torch.tensor(batch.rows, device=vectors.device)
        first = sizes.cumsum(0) - sizes
        one, two = vectors[first], vectors[first + 1]
        if self.objective in CONTRASTS:
            three = vectors[first[sizes > 2] + 2]
            return contrastive(one, two, three, batch.targets, scale=self.scale, symmetric=self.symmetric)
        cosines = F.cosine_similarity(one, two, dim=-1)
        if self.objective == "cosent":
            return cosent(cosines, batch.targets, scale=self.scale)
        return cosine_error(cosines, batch.targets)

    def predict(self, model: AnyModel, data: Encoded, poll: Poll = lambda: None) -> NDArray[np.float32]:
        """The cosine of every pair, float32 (examples,), in [-1, 1]."""
        vectors, first = normalize_rows(over_rows(model, data, poll)), data.starts[:-1]
        return row_cosines(vectors[first], vectors[first + 1])

    def merge(self, outputs: Sequence[Any], data: Encoded) -> NDArray[np.float32]:
        """The mean of the outputs."""
        return mean_score(outputs)

    def answers(self, outputs: NDArray[np.float32], data: Encoded) -> list[float]:
        """The rounded cosines: those that differ by rounding only are equal, and have the same rank."""
        return [round(cosine, DIGITS) for cosine in outputs.tolist()]

    def as_json(self, answer: float, example: Any) -> float:
        return round(answer, DIGITS)

    def config(self, model_type: str, dropout: float) -> dict[str, Any]:
        flags: dict[str, Any] = {"task": self.task, "max_length": self.max_length}
        if self.pooling in ("depths", "whitened"):  # files of sentence-transformers have the others
            flags |= {"pooling": self.pooling, "normalize": self.normalize}
        return {"albertine": flags}


def of_folder(found: Tuned) -> Embed:
    """The family that a folder was tuned with."""
    how, own = vector_settings(found.folder, found.where), pooling_of(found.folder)
    pooling: VectorPooling = "whitened" if own == "whitened" else how.pooling
    return Embed("cosine", how.max_length or found.length, pooling, how.normalize)
