"""Examples of a task as model input: one or more rows of tokens for each, as NumPy arrays in memory; a
training batch is tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from albertine.tokenizers.base import Spans, Tokenizer

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from albertine.core.batch import Packed

Numbers = list[int] | NDArray[Any]
IGNORED = -100
"""The target of a token that is not in the loss."""


@dataclass(frozen=True)
class TaskBatch:
    """A packed batch of examples.

    Attributes:
        packed: the rows of all examples, concatenated.
        targets: in the form of the family.
        rows: number of rows of each example.
        predictions: number of targets in the loss. distilled: the loss of a teacher's outputs is added.
    """

    packed: Packed
    targets: Tensor
    rows: tuple[int, ...]
    predictions: int
    distilled: bool = field(default=False, kw_only=True)

    @property
    def counts(self) -> dict[str, int]:
        return {"task": self.predictions} | ({"soft": self.predictions} if self.distilled else {})

    @property
    def num_tokens(self) -> int:
        return self.packed.num_tokens

    def to(self, device: torch.device | str) -> TaskBatch:
        return replace(self, packed=self.packed.to(device), targets=self.targets.to(device))


@dataclass(frozen=True)
class Encoded:
    """Examples as model input.

    Attributes:
        examples: the encoded examples. truncated: number of rows that were truncated.
        ids, types: token and segment ids of every row.
        starts: index of each example's first row, and the number of rows, int64 (examples + 1,).
        targets: an array for every example, concatenated in a batch; None if a label is missing.
        together: a batch is one micro-batch, however long, because its examples are compared.
        prefix: number of source tokens of every row, after which attention is causal; else None.
        cut_questions: number of truncated questions to passages, each of which may have several rows.
        lost: labels that a model cannot predict, or not learn: how many, and why, with the first one.
    """

    examples: tuple[Any, ...]
    ids: list[NDArray[np.int32]]
    types: list[NDArray[np.int8]]
    starts: NDArray[np.int64]
    targets: list[NDArray[Any]] | None
    truncated: int
    together: bool = field(default=False, kw_only=True)
    prefix: tuple[int, ...] | None = field(default=None, kw_only=True)
    cut_questions: int = field(default=0, kw_only=True)
    lost: tuple[tuple[int, str], ...] = field(default=(), kw_only=True)

    @property
    def source_examples(self) -> list[Any]:
        """The examples as they were read, without what a family adds to them."""
        return [getattr(example, "example", example) for example in self.examples]

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Tokens of each example, int64 (examples,)."""
        rows = np.array([0, *map(len, self.ids)], dtype=np.int64).cumsum()
        return np.diff(rows[self.starts])

    @property
    def sizes(self) -> tuple[int, ...]:
        """Rows of each example."""
        return tuple(np.diff(self.starts).tolist())

    @property
    def apart(self) -> Encoded:
        """Every row as an example of its own, with the row's target."""
        examples = tuple(e for e, count in zip(self.examples, self.sizes, strict=True) for _ in range(count))
        targets = None if self.targets is None else [row[None] for rows in self.targets for row in rows]
        return replace(self, examples=examples, starts=np.arange(len(self.ids) + 1), targets=targets)

    def some(self, chosen: Sequence[int]) -> Encoded:
        """A subset of the examples, in this order."""
        rows, sizes = self.rows_of(chosen), np.diff(self.starts)[list(chosen)]
        return replace(
            self,
            examples=tuple(self.examples[i] for i in chosen),
            ids=[self.ids[row] for row in rows],
            types=[self.types[row] for row in rows],
            starts=np.array([0, *sizes], dtype=np.int64).cumsum(),
            targets=None if self.targets is None else [self.targets[i] for i in chosen],
            prefix=None if self.prefix is None else tuple(self.prefix[row] for row in rows),
        )

    def rows_of(self, chosen: Sequence[int]) -> list[int]:
        """The rows of some examples, in their order."""
        return [row for i in chosen for row in range(int(self.starts[i]), int(self.starts[i + 1]))]

    def rows(self, rows: Sequence[int]) -> tuple[list[NDArray[np.int32]], list[NDArray[np.int8]]]:
        """Token and segment ids of some rows."""
        return [self.ids[i] for i in rows], [self.types[i] for i in rows]

    def packed(self, rows: Sequence[int]) -> Packed:
        """Some rows as a batch without padding."""
        from albertine.core.batch import pack

        prefix = None if self.prefix is None else [self.prefix[i] for i in rows]
        return pack(*self.rows(rows), prefix)

    def batch(self, chosen: Sequence[int], *, seed: int = 0, epoch: int = 0) -> TaskBatch:
        """A training batch of some examples.

        Args:
            seed, epoch: keys of random draws in families that have them, together with the example.
        """
        import torch

        assert self.targets is not None
        counts = tuple(int(self.starts[i + 1] - self.starts[i]) for i in chosen)
        targets = np.concatenate([self.targets[i] for i in chosen])
        ignored = 0 if targets.dtype.kind == "f" else int((targets == IGNORED).sum())
        packed = self.packed(self.rows_of(chosen))
        return TaskBatch(packed, torch.from_numpy(targets), counts, len(targets) - ignored)


class EncodedExample(NamedTuple):
    """One of the examples of an `Encoded`."""

    data: Encoded
    number: int


def joined(chosen: Sequence[EncodedExample]) -> Encoded:
    """Examples of one or more `Encoded`, at least one, as one without targets."""
    first = chosen[0].data
    if len(chosen) == len(first.examples) and all(
        one.data is first and one.number == i for i, one in enumerate(chosen)
    ):
        return first
    parts = [one.data.rows_of([one.number]) for one in chosen]
    rows = [(one.data, row) for one, own in zip(chosen, parts, strict=True) for row in own]
    return Encoded(
        examples=tuple(one.data.examples[one.number] for one in chosen),
        ids=[data.ids[row] for data, row in rows],
        types=[data.types[row] for data, row in rows],
        starts=np.array([0, *map(len, parts)], dtype=np.int64).cumsum(),
        targets=None,
        truncated=0,
        prefix=None if first.prefix is None else tuple(data.prefix[row] for data, row in rows if data.prefix),
    )


class Tally:
    """Counts labels that cannot be predicted or learned, by reason, with the first one of each."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._first: dict[str, str] = {}

    def add(self, what: str, label: str, where: str) -> None:
        """Count a label.

        Args:
            what: the reason and its effect, as text after a number. where: the location of its row.
        """
        self._counts[what] = self._counts.get(what, 0) + 1
        # A published card leaves out the example, which ends with "), " and a number.
        label = label.replace("), ", ") ")
        self._first.setdefault(what, f"{label} in {where}" if where else label)

    @property
    def lost(self) -> tuple[tuple[int, str], ...]:
        """How many there are of each kind, and which with the first."""
        return tuple((n, f"{what} (the first: {self._first[what]})") for what, n in self._counts.items())


@dataclass(frozen=True)
class CutText:
    """A truncated text: its tokens with their offsets in the text, and the number of special tokens before
    them in the row."""

    example: Any
    spans: Spans
    lead: int = 1


def cut_text(example: Any, tokenizer: Tokenizer, max_length: int) -> tuple[CutText, list[int]]:
    """The `text` of an example truncated for a row of its own, and the ids of all its tokens."""
    spans = tokenizer.encode_spans(example.text)
    cut = Spans(*(part[: max_length - 2] for part in spans))
    return CutText(example, cut, tokenizer.lead), spans.ids


class RowBuilder:
    """Collects the rows of examples.

    Attributes:
        cut: number of truncated rows.
    """

    def __init__(self, tokenizer: Tokenizer, max_length: int) -> None:
        self._tokenizer, self._max_length = tokenizer, max_length
        self._ids: list[NDArray[np.int32]] = []
        self._types: list[NDArray[np.int8]] = []
        self._starts = [0]
        self.cut = 0

    def add(self, first: Sequence[int], second: Sequence[int] | None) -> None:
        """Add a row of one text or a pair, by its token ids; the longer one is truncated at its end."""
        wanted = len(first) + 2 + (0 if second is None else len(second) + 1)
        ids, types = self._tokenizer.layout(first, second, max_length=self._max_length)
        self._put(ids, types, wanted > self._max_length)

    def take(self, rows: Sequence[tuple[Numbers, Numbers]], cut: int) -> None:
        """Add an example of complete rows, `cut` of which were truncated."""
        for ids, types in rows:
            self._put(ids, types, False)
        self.cut += cut
        self.end()

    def _put(self, ids: Numbers, types: Numbers, cut: bool) -> None:
        self._ids.append(np.asarray(ids, dtype=np.int32))
        self._types.append(np.asarray(types, dtype=np.int8))
        self.cut += cut

    def end(self) -> None:
        """End an example: the rows since the last call."""
        self._starts.append(len(self._ids))

    def encoded(self, examples: Sequence[Any], targets: list[NDArray[Any]] | None) -> Encoded:
        starts = np.array(self._starts, dtype=np.int64)
        return Encoded(tuple(examples), self._ids, self._types, starts, targets, self.cut)
