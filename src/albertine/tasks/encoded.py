"""Examples of a task as model input: some rows of tokens for each, all of them in memory as NumPy arrays; a
batch to learn from is tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from albertine.tokenizers.base import Spans, Tokenizer

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from albertine.core.batch import Packed

Numbers = list[int] | NDArray[Any]
IGNORED = -100
"""The target of a token that nothing is learned of."""


@dataclass(frozen=True)
class TaskBatch:
    """A packed batch of examples.

    Attributes:
        packed: the rows of all examples, end to end.
        targets: what is to be learned; its form is the family's.
        rows: how many rows each example has.
        predictions: how many targets count. taught: whether a teacher is asked about them too.
    """

    packed: Packed
    targets: Tensor
    rows: tuple[int, ...]
    predictions: int
    taught: bool = field(default=False, kw_only=True)

    @property
    def counts(self) -> dict[str, int]:
        return {"task": self.predictions} | ({"soft": self.predictions} if self.taught else {})

    @property
    def num_tokens(self) -> int:
        return self.packed.num_tokens

    def to(self, device: torch.device | str) -> TaskBatch:
        return replace(self, packed=self.packed.to(device), targets=self.targets.to(device))


@dataclass(frozen=True)
class Encoded:
    """Examples as model input.

    Attributes:
        examples: what was encoded. truncated: how many rows lost tokens.
        ids, types: token and segment ids of every row.
        starts: number of each example's first row, and of rows in all, int64 (examples + 1,).
        targets: of every example an array that others are appended to, or None where a label is missing.
        together: a batch of them is one micro-batch, however long, because its examples are compared.
        prefix: of every row how many tokens are its source, where the rest is read causally; else None.
        cut_questions: how many questions to passages lost tokens, which no row by itself tells.
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
        """The examples as they were read, whatever a family keeps beside them."""
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
        """Every row as an example of its own, which has the row's target."""
        examples = tuple(e for e, count in zip(self.examples, self.sizes, strict=True) for _ in range(count))
        targets = None if self.targets is None else [row[None] for rows in self.targets for row in rows]
        return replace(self, examples=examples, starts=np.arange(len(self.ids) + 1), targets=targets)

    def some(self, chosen: Sequence[int]) -> Encoded:
        """These examples alone, in this order."""
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
        """Some examples as a batch to learn from.

        Args:
            seed, epoch: name the draws of a family that draws, together with the example.
        """
        import torch

        assert self.targets is not None
        counts = tuple(int(self.starts[i + 1] - self.starts[i]) for i in chosen)
        targets = np.concatenate([self.targets[i] for i in chosen])
        ignored = 0 if targets.dtype.kind == "f" else int((targets == IGNORED).sum())
        packed = self.packed(self.rows_of(chosen))
        return TaskBatch(packed, torch.from_numpy(targets), counts, len(targets) - ignored)


class Tally:
    """Counts labels by what happens to them, with the first one of each kind."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._first: dict[str, str] = {}

    def add(self, what: str, label: str, where: str) -> None:
        """Count a label.

        Args:
            what: it is one of, and what happens to it, in words behind a number. where: its row.
        """
        self._counts[what] = self._counts.get(what, 0) + 1
        # What ends with "), " and a number is the end of an example, which a published card leaves out.
        label = label.replace("), ", ") ")
        self._first.setdefault(what, f"{label} in {where}" if where else label)

    @property
    def lost(self) -> tuple[tuple[int, str], ...]:
        """How many there are of each kind, and which with the first."""
        return tuple((n, f"{what} (the first: {self._first[what]})") for what, n in self._counts.items())


@dataclass(frozen=True)
class CutText:
    """A text as the model sees it: the tokens that it has room for, where they stand in the text, and how
    many special pieces stand before them in the row."""

    example: Any
    spans: Spans
    lead: int = 1


def cut_text(example: Any, tokenizer: Tokenizer, max_length: int) -> tuple[CutText, list[int]]:
    """The `text` of an example as the model sees it, alone in its row, and the ids of all its tokens."""
    spans = tokenizer.encode_spans(example.text)
    cut = Spans(*(part[: max_length - 2] for part in spans))
    return CutText(example, cut, tokenizer.lead), spans.ids


class RowBuilder:
    """Collects the rows of examples.

    Attributes:
        cut: how many rows lost tokens.
    """

    def __init__(self, tokenizer: Tokenizer, max_length: int) -> None:
        self._tokenizer, self._max_length = tokenizer, max_length
        self._ids: list[NDArray[np.int32]] = []
        self._types: list[NDArray[np.int8]] = []
        self._starts = [0]
        self.cut = 0

    def add(self, first: Sequence[int], second: Sequence[int] | None) -> None:
        """A row of one text or a pair, by its token ids; the longer one loses tokens from its end."""
        wanted = len(first) + 2 + (0 if second is None else len(second) + 1)
        ids, types = self._tokenizer.layout(first, second, max_length=self._max_length)
        self._put(ids, types, wanted > self._max_length)

    def take(self, rows: Sequence[tuple[Numbers, Numbers]], cut: int) -> None:
        """One example of rows that are laid out already, `cut` of which lost tokens."""
        for ids, types in rows:
            self._put(ids, types, False)
        self.cut += cut
        self.end()

    def _put(self, ids: Numbers, types: Numbers, cut: bool) -> None:
        self._ids.append(np.asarray(ids, dtype=np.int32))
        self._types.append(np.asarray(types, dtype=np.int8))
        self.cut += cut

    def end(self) -> None:
        """The rows since the last call are one example."""
        self._starts.append(len(self._ids))

    def encoded(self, examples: Sequence[Any], targets: list[NDArray[Any]] | None) -> Encoded:
        starts = np.array(self._starts, dtype=np.int64)
        return Encoded(tuple(examples), self._ids, self._types, starts, targets, self.cut)
