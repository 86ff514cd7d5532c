"""Pairs of texts with a similarity score: data sets by name, and own files.

Scores are scaled to 0 to 1. In data sets of inference, entailment has a higher score than neutral, and
neutral than contradiction, as in CoSENT (Su).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field, model_validator

from albertine.core.settings import Settings
from albertine.errors import DataError
from albertine.tasks.dataset_files import Lost, all_rows, check_labelled
from albertine.tasks.dataset_registry import Column, Dataset, Split
from albertine.tasks.datasets.classes import is_left_out
from albertine.tasks.embed import CONTRASTS, Embed, Likeness, Objective, VectorPooling, of_folder
from albertine.tasks.encoded import Encoded
from albertine.tasks.family import Family
from albertine.tasks.kind_settings import OWN_FILES, Examples, Registration, TaskCard, TaskChoice
from albertine.tasks.readers.values import number_of
from albertine.tokenizers.base import Tokenizer

if TYPE_CHECKING:
    from albertine.tasks.padded import PaddedVectors

Scale = tuple[float, float] | Mapping[str, float]
"""The lowest and the highest score, or the score of every class."""
UNIT: Scale = (0.0, 1.0)
ALIKE, UNLIKE = 0.8, 0.2
"""Least score of a positive pair and highest score of a negative one; on the five-point scale of STS four
("but for unimportant details") and one ("not equivalent, on the same topic")."""


def read(dataset: Dataset, folder: Path, split: Split, *, alone: bool = False) -> Iterator[Likeness]:
    """The pairs of a split of a data set, which may lack the scores.

    Args:
        alone: the second text of a training pair may be missing, and is then the first.
    """
    columns, learned = dataset.columns_of(split), split == "train"
    pair, label, negative = columns.pair, columns.label or "", columns.negative if learned else None
    for row in all_rows(dataset, folder, split):
        first = row.text(columns.text)
        lacks = pair is None or pair not in row.fields
        second = first if alone and learned and lacks else row.text(pair or "")
        labelled = row.value_or_none(label) is not None
        left_out = labelled and is_left_out(dataset, row.get(label))
        scale = dataset.scores or UNIT
        has_score = labelled and not left_out
        score = _score(row.text(label).strip(), label, scale, row.where) if has_score else None
        third = row.text(negative) if negative is not None and row.get(negative) is not None else ""
        name = row.named(columns.id)
        yield Likeness(name, first, second, score, row.where, third if third.strip() else None, left_out)


def _score(text: str, column: str, scale: Scale, where: str) -> float:
    """A score of a file on the scale from 0 to 1."""
    if isinstance(scale, Mapping):
        if text.lower() not in scale:
            raise DataError(f"`{column}` is `{text}`, not one of {', '.join(scale)}", where=where)
        return scale[text.lower()]
    lowest, highest = scale
    value = number_of(text, column, where)
    if not lowest <= value <= highest:
        raise DataError(
            f"`{column}` is {text}, outside {lowest:g} to {highest:g}",
            where=where,
            remedy="Set the range of own files: task.similarity.lowest and task.similarity.highest",
        )
    return (value - lowest) / (highest - lowest)


def to_learn(pairs: Sequence[Likeness], objective: Objective) -> list[Likeness]:
    """The training examples of an objective.

    For `contrastive` the positive pairs, or all pairs of a file without scores; the second text of a negative
    pair is the hard negative of a positive pair with the same first text and no negative. For `simcse` every
    text once, paired with itself. For the others the pairs with a score.

    Raises:
        DataError: there are none.
    """
    scored = [p for p in pairs if p.label is not None]
    if objective == "simcse":
        return _alone(pairs)
    found = _contrasts(scored or pairs) if objective == "contrastive" else scored
    if not found:
        what = "pairs that are alike" if objective == "contrastive" else "scores to learn from"
        raise DataError(f"the training file has no {what}", where=pairs[0].where)
    return found


def check_differences(pairs: Sequence[Likeness], objective: Objective, where: str) -> None:
    """Check that the loss of the examples depends on the weights.

    Raises:
        DataError: with the reason why it does not.
    """
    what, remedy = None, "Look at task.text, task.pair and task.label"
    scores = {p.label for p in pairs}
    kinds = {frozenset((p.text, p.pair)) for p in pairs}
    if not pairs:
        what = "all texts are empty"
    elif objective in CONTRASTS:
        refutes = any(p.negative is not None and p.negative not in (p.text, p.pair) for p in pairs)
        # Sets of one or two texts that intersect pairwise have one text in common, or are sides of a
        # triangle.
        meet = bool(frozenset.intersection(*kinds)) or (
            len(kinds) <= 3 and all(a & b for a in kinds for b in kinds)
        )
        if meet and not refutes:
            what = "every example shares a text with every other, so no text has one that it is unlike"
    elif all(len(kind) == 1 for kind in kinds):
        what = "every text is paired with itself, whose cosine is always 1"
    elif len(scores) == 1 and (objective == "cosent" or len(pairs) > 1):
        what = f"all scores are equal ({scores.pop():g} on a scale from 0 to 1), so no pair is more alike"
        remedy += ", or learn from pairs that are alike: task.similarity.loss=contrastive"
    elif objective == "cosent" and len(kinds) == 1:
        what = "all pairs are of the same two texts, so no pair is more alike"
    if what is not None:
        raise DataError(f"{what}: there is nothing to learn", where=where, remedy=remedy)


def _alone(pairs: Sequence[Likeness]) -> list[Likeness]:
    found: dict[str, Likeness] = {}
    for pair in pairs:
        for text in (pair.text, pair.pair):
            if text.strip() and text not in found:
                found[text] = Likeness(str(len(found)), text, text, None, pair.where)
    return list(found.values())


def _contrasts(pairs: Sequence[Likeness]) -> list[Likeness]:
    unlike: dict[str, list[str]] = {}
    for p in pairs:
        if p.label is not None and p.label <= UNLIKE:
            unlike.setdefault(p.text, []).append(p.pair)
    turns = {text: cycle(others) for text, others in unlike.items()}
    return [
        replace(p, negative=next(turns[p.text])) if p.negative is None and p.text in turns else p
        for p in pairs
        if p.label is None or p.label >= ALIKE
    ]


def to_judge(pairs: Sequence[Likeness], label: str, *, test: bool) -> list[Likeness]:
    """The pairs without those that the authors of the data set drop. Arguments and errors as
    `check_labelled`."""
    kept = [p for p in pairs if not p.left_out] or list(pairs)
    check_labelled(kept, label, test=test)
    return kept


def counts(pairs: Sequence[Likeness], kept: Sequence[Likeness]) -> Iterator[tuple[int, str]]:
    """Counts for the note on a file, besides the number of its examples."""
    used = {e.where for e in kept}
    yield sum(e.negative is not None for e in kept), "with a hard negative"
    yield sum(p.where not in used for p in pairs), "not taken"
    yield sum(not (p.text.strip() and p.pair.strip()) for p in pairs), "with an empty text"


class SimilarityChoice(Settings):
    """Settings of kind similarity: the text vectors and their loss."""

    loss: Objective = Field(
        "cosent",
        description="cosine: its squared distance from the score; cosent: the order of the scores; "
        "contrastive: positive pairs against all others of the batch; simcse: every text and "
        "itself under other dropout, without any labels. All but cosine compare the examples of a batch: "
        "a process computes its share of training.batch_size at once, whatever the value of "
        "training.micro_batch_tokens, and of N processes each compares within its own N-th part",
    )
    pooling: VectorPooling = Field(
        "mean",
        description="mean: of all tokens; cls: the first one; whitened: the mean after the first depth (or "
        "encoder.num_hidden_layers), with all directions of the training texts made equally long, which "
        "suits small encoders best; depths: the mean over all tokens and all depths",
    )
    normalize: bool = Field(False, description="vectors of length 1")
    scale: float = Field(20.0, gt=0, description="of cosines in cosent and contrasts: 1 / temperature")
    symmetric: bool = Field(False, description="contrasts: also find the first text of every second one")
    lowest: float = Field(
        0.0,
        description="own files: the score of two texts that have nothing in common",
        json_schema_extra=OWN_FILES,
    )
    highest: float = Field(
        1.0, description="own files: the score of two equivalent texts", json_schema_extra=OWN_FILES
    )
    negative: Column | None = Field(
        None,
        description="own files, contrastive: column of a third text, unlike the first; may be empty",
        json_schema_extra=OWN_FILES,
    )

    @model_validator(mode="after")
    def _range(self) -> SimilarityChoice:
        if not self.lowest < self.highest:
            raise ValueError(f"lowest {self.lowest:g} is not below highest {self.highest:g}")
        return self


class VectorsTask(TaskChoice):
    """One vector a text, evaluated by the cosines of pairs."""

    kind: Literal["similarity"]
    default_metrics = ("spearman", "pearson")
    labelled = False
    drops = True
    as_benchmark = False
    read: ClassVar = staticmethod(read)

    similarity: SimilarityChoice = SimilarityChoice()

    @property
    def usual_depth(self) -> int | None:
        """One for whitened vectors: an early layer represents best what a text is about."""
        return 1 if self.similarity.pooling == "whitened" else None

    @property
    def learns_from_dropout(self) -> str | None:
        return "task.similarity.loss=simcse" if self.similarity.loss == "simcse" else None

    def _own_settings(self) -> dict[str, Any]:
        found, own = super()._own_settings(), self.similarity
        columns = {**found["columns"], "negative": own.negative}
        return {**found, "columns": columns, "scores": (own.lowest, own.highest)}

    @model_validator(mode="after")
    def _two_texts(self) -> VectorsTask:
        alone = self.similarity.loss == "simcse" and self.data.files.keys() == {"train"}
        if self.data.columns.pair is None and not alone:
            name = "task.pair" if self.dataset is None else "columns.pair"
            raise ValueError(f"task.kind=similarity needs {name}, the column of the second text")
        return self

    def family(self, splits: dict[str, list[Any]], tokenizer: Tokenizer, known: Family | None) -> Family:
        own = self.similarity
        how = own.pooling, own.normalize, own.scale, own.symmetric
        return Embed(own.loss, self.max_length, *how, metrics=self.metrics)

    def examples_in(self, split: Split) -> Iterator[Likeness]:
        return read(self.data, self.place, split, alone=self.similarity.loss == "simcse")

    def used(self, split: str, examples: Examples) -> Examples:
        if split == "train":
            found = to_learn(examples, self.similarity.loss)
            check_differences(found, self.similarity.loss, examples[0].where)
            return found
        label = self.data.columns_of(split).label or ""
        return to_judge(examples, label, test=split == "test")

    def lost(self, read: Examples, kept: Examples, encoded: Encoded, split: str) -> Iterable[Lost]:
        if split == "train" and len({ids.tobytes() for ids in encoded.ids}) < 2:
            raise DataError(
                "all texts have the same tokens: there is nothing to learn",
                where=kept[0].where,
                remedy="Look at task.text and task.pair, and whether the vocabulary knows the script",
            )
        return counts(kept, encoded.examples)


def padded_task() -> type[PaddedVectors]:
    """The call with padded batches, which imports torch."""
    from albertine.tasks.padded import PaddedVectors

    return PaddedVectors


CARD = TaskCard("sentence-similarity", lambda config: None)
FAMILY = Registration(
    "embed", "make vectors of texts", of_folder, (VectorsTask,), http=None, card=CARD, padded=padded_task
)
