"""Pairs of texts and how alike they are: data sets by name, and own files.

Scores run from 0 to 1 whatever the file has. Of the data sets of inference, entailment is more alike than
neutral and that more than contradiction, as Su orders them for CoSENT.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import cycle
from pathlib import Path

from albertine.errors import DataError
from albertine.tasks.datasets.classes import DATASETS, read_split
from albertine.tasks.embed import Embed, Likeness, Objective
from albertine.tasks.family import Family
from albertine.tasks.readers.files import TaskSet
from albertine.tasks.readers.table import Row
from albertine.tasks.settings import TaskChoice
from albertine.tasks.sources import Data, as_data, fewer, own_rows, read_splits
from albertine.text.tokenizer import Tokenizer

Scale = tuple[float, float] | Mapping[str, float]
"""The lowest and the highest score, or the score of every class."""
SAME: Scale = {"0": 0.0, "1": 1.0}
IMPLIES: Scale = {"contradiction": 0.0, "neutral": 0.5, "entailment": 1.0}
ALIKE, UNLIKE = 0.8, 0.2
"""From where on a pair is a positive, and up to where a negative: of five points of STS, four ("but for
unimportant details") and one ("not equivalent, on the same topic")."""


def _known(name: str, scale: Scale) -> TaskSet[Likeness]:
    dataset = DATASETS[name]

    def read(folder: Path, split: str) -> Iterator[Likeness]:
        label = dataset.columns_of(split).label or ""
        for e in read_split(dataset, folder, split):
            known = e.label is not None and e.label not in dataset.left_out
            score = _score(str(e.label), label, scale, e.where) if known else None
            yield Likeness(e.name, e.text, e.pair or "", score, e.where)

    return TaskSet(read, tuple(dataset.files))


SIMILAR: Mapping[str, TaskSet[Likeness]] = {
    "sts-b": _known("sts-b", (0.0, 5.0)),
    "sick-relatedness": _known("sick-relatedness", (1.0, 5.0)),
    **{name: _known(name, SAME) for name in ("mrpc", "qqp", "afqmc", "lcqmc", "bq", "paws-x")},
    **{name: _known(name, IMPLIES) for name in ("sick-entailment", "mnli", "mnli-mm", "ocnli")},
}


def own_pairs(
    rows: Iterable[Row],
    text: str,
    pair: str,
    label: str,
    negative: str | None,
    scale: Scale,
    *,
    alone: bool = False,
) -> Iterator[Likeness]:
    """A user's pairs by the names of their columns; a file may lack the scores.

    Args:
        negative: column of a third text that is unlike the first; empty where there is none.
        alone: the second text may be missing, which stands for the first.
    """
    for row in rows:
        first = row.text(text)
        second = first if alone and pair not in row.fields else row.text(pair)
        told = row.told(label) is not None
        score = _score(row.text(label).strip(), label, scale, row.where) if told else None
        third = row.text(negative) if negative is not None and row.get(negative) is not None else ""
        yield Likeness(row.name, first, second, score, row.where, third if third.strip() else None)


def _score(text: str, column: str, scale: Scale, where: str) -> float:
    """What stands in a column as a score from 0 to 1."""
    if isinstance(scale, Mapping):
        if text.lower() not in scale:
            raise DataError(f"`{column}` is `{text}`, not one of {', '.join(scale)}", where=where)
        return scale[text.lower()]
    lowest, highest = scale
    try:
        value = float(text)
    except ValueError:
        raise DataError(f"`{column}` is `{text}`, not a number", where=where) from None
    if not lowest <= value <= highest:
        raise DataError(
            f"`{column}` is {text}, outside {lowest:g} to {highest:g}",
            where=where,
            remedy="The range of own scores is task.similarity.lowest to task.similarity.highest",
        )
    return (value - lowest) / (highest - lowest)


def to_learn(pairs: Sequence[Likeness], objective: Objective) -> list[Likeness]:
    """The examples of a training file for an objective.

    For `contrastive` the pairs that are alike, all of them in a file without scores; a pair that is unlike
    gives its second text as hard negative to one that has the same first text and none yet. For `simcse`
    every text once, with itself. For the others the pairs with a score.

    Raises:
        DataError: nothing is left.
    """
    scored = [p for p in pairs if p.score is not None]
    if objective == "simcse":
        return _alone(pairs)
    found = _contrasts(scored or pairs) if objective == "contrastive" else scored
    if not found:
        what = "pairs that are alike" if objective == "contrastive" else "scores to learn from"
        raise DataError(f"the training file has no {what}", where=pairs[0].where)
    return found


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
        if p.score is not None and p.score <= UNLIKE:
            unlike.setdefault(p.text, []).append(p.pair)
    turns = {text: cycle(others) for text, others in unlike.items()}
    return [
        replace(p, negative=next(turns[p.text])) if p.negative is None and p.text in turns else p
        for p in pairs
        if p.score is None or p.score >= ALIKE
    ]


def to_judge(pairs: Sequence[Likeness], *, test: bool) -> list[Likeness]:
    """The pairs with a score; of a test file without any, all.

    Raises:
        DataError: no pair has a score.
    """
    scored = [p for p in pairs if p.score is not None]
    if not scored and not test:
        raise DataError("the dev file has no scores to judge by", where=pairs[0].where)
    return scored or list(pairs)


def counts(pairs: Sequence[Likeness], kept: Sequence[Likeness]) -> Iterator[tuple[int, str]]:
    """What to tell of a file beside the number of its examples."""
    used = {e.where for e in kept}
    yield sum(e.negative is not None for e in kept), "with a hard negative"
    yield sum(p.where not in used for p in pairs), "not taken"
    yield sum(not (p.text.strip() and p.pair.strip()) for p in pairs), "with an empty text"


def load(task: TaskChoice, tokenizer: Tokenizer, known: Family | None = None) -> Data:
    """The data of a task of similarity."""
    choice = task.similarity

    def own(path: Path, split: str) -> Iterator[Likeness]:
        scale, learned = (choice.lowest, choice.highest), split == "train"
        names = (task.text, task.pair or "", task.label, choice.negative if learned else None)
        alone = learned and choice.loss == "simcse"
        return own_pairs(own_rows(task, path), *names, scale, alone=alone)

    how = choice.pooling, choice.normalize, choice.scale, choice.symmetric
    family = Embed(choice.loss, task.max_length, *how)
    encoded, lost = {}, {}
    splits = read_splits(task, SIMILAR, own, judging=known is not None)
    for name, pairs in fewer(splits, task).items():
        used = to_learn(pairs, choice.loss) if name == "train" else to_judge(pairs, test=name == "test")
        encode = family.encode_to_learn if name == "train" else family.encode
        encoded[name] = encode(used, tokenizer)
        lost[name] = (*counts(pairs, used),)
    return as_data(family, encoded, task, lost)
