"""Text vectors: texts that mean the same are to point the same way. A row a text, judged by cosines.

Two ways to learn them: from scores of pairs (`cosine`, `cosent`), or from texts that belong together, against
all others of the batch (`contrastive`; `simcse` is that with a text and itself under other dropout).
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
"""Of a cosine behind the point; float32 has one more."""


@dataclass(frozen=True)
class Likeness(Example):
    """Two texts and how alike they are: the label runs from 0, unlike, to 1, the same.

    Attributes:
        negative: a text that is unlike the first one, in contrast to the second.
        left_out: by its label, the authors of the data set drop it.
    """

    pair: str
    negative: str | None = None
    left_out: bool = False


def encode(
    examples: Sequence[Likeness], tokenizer: Tokenizer, max_length: int, *, contrast: bool = False
) -> Encoded:
    """Two rows an example, with `contrast` a third for its negative.

    The target is the score float32 (1,), with `contrast` the numbers of its texts int64 (1, 3), equal for
    equal texts, -1 for no negative. A batch to contrast, or to put in order, is never cut up.
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
        objective: how they are learned. max_length: tokens of a text.
        scale: of cosines under a softmax, one over the temperature.
        pooling, normalize: as in `model.pooling`, or "whitened" (`WhitenedEmbedder`). symmetric: as in
            `contrastive`.
        heads: the pooler is kept, unused, for other users of the folder.
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
        """A batch of them is never cut up where its members are compared."""
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
        """The cosines as they are shown: those that differ by rounding alone are equal, and has one rank."""
        return [round(cosine, DIGITS) for cosine in outputs.tolist()]

    def as_json(self, answer: float, example: Any) -> float:
        return round(answer, DIGITS)

    def config(self, model_type: str, dropout: float) -> dict[str, Any]:
        flags: dict[str, Any] = {"task": self.task, "max_length": self.max_length}
        if self.pooling in ("depths", "whitened"):  # the default of other files
            flags |= {"pooling": self.pooling, "normalize": self.normalize}
        return {"albertine": flags}


def of_folder(found: Tuned) -> Embed:
    """The family that a folder was tuned with."""
    how, own = vector_settings(found.folder, found.where), pooling_of(found.folder)
    pooling: VectorPooling = "whitened" if own == "whitened" else how.pooling
    return Embed("cosine", how.max_length or found.length, pooling, how.normalize)
