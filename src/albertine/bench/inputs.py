"""The batches that are measured: random tokens in lengths that are always the same."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from albertine.core.batch import Packed, pack
from albertine.core.randomness import generator
from albertine.objectives.batch import PretrainingBatch

MASKED = 0.15


@dataclass(frozen=True)
class Inputs:
    """One batch, packed and padded.

    Attributes:
        name: what it stands for.
        padded: `input_ids`, `attention_mask` and `token_type_ids`, int64 (B, L).
    """

    name: str
    packed: Packed
    padded: dict[str, Tensor]

    @property
    def tokens(self) -> int:
        return self.packed.num_tokens

    @property
    def fill(self) -> float:
        """The share of the padded batch that is real."""
        return self.tokens / self.padded["input_ids"].numel()


def lengths_of(sequences: int, longest: int, fill: float) -> list[int]:
    """So many lengths, evenly spaced and shuffled, one of them `longest`, that fill a padded batch to that
    share."""
    if sequences == 1 or fill >= 1:
        return [longest] * sequences
    shortest = max(2.0, (2 * fill - 1) * longest)
    top = 2 * fill * longest - shortest  # so that the mean is fill * longest
    found = np.linspace(shortest, min(top, longest), sequences).round().astype(int)
    found[-1] = longest
    order = generator(0, "bench lengths").permutation(sequences)
    return [int(n) for n in found[order]]


def inputs(name: str, lengths: list[int], vocab_size: int) -> Inputs:
    """A batch of random pairs of those lengths."""
    rng = generator(0, "bench tokens")
    rows = [rng.integers(5, vocab_size, n) for n in lengths]
    kinds = [(np.arange(n) >= n // 2).astype(np.int64) for n in lengths]
    shape = (len(lengths), max(lengths))
    padded = {
        key: torch.zeros(shape, dtype=torch.long) for key in ("input_ids", "attention_mask", "token_type_ids")
    }
    for i, (ids, kind) in enumerate(zip(rows, kinds, strict=True)):
        padded["input_ids"][i, : len(ids)] = torch.tensor(ids)
        padded["attention_mask"][i, : len(ids)] = 1
        padded["token_type_ids"][i, : len(ids)] = torch.tensor(kind)
    return Inputs(name, pack(rows, kinds), padded)


def pretraining(
    given: Inputs, sentence_label: str = "sentence_order_label"
) -> tuple[PretrainingBatch, dict[str, Tensor]]:
    """The same batch with 15 % of its tokens masked: for us, and for transformers.

    Args:
        sentence_label: what transformers calls the answer of the sentence head.
    """
    rng = generator(0, "bench masks")
    labels = torch.full_like(given.padded["input_ids"], -100)
    places, wanted, offset = [], [], 0
    for i, n in enumerate(given.packed.lengths):
        chosen = np.sort(rng.choice(np.arange(1, n - 1), max(1, round(MASKED * n)), replace=False))
        ids = given.padded["input_ids"][i, chosen]
        labels[i, chosen] = ids
        places.append(chosen + offset)
        wanted.append(ids)
        offset += n
    count = given.packed.num_sequences
    order = torch.tensor(rng.integers(0, 2, count))
    batch = PretrainingBatch(
        packed=given.packed,
        mlm_positions=torch.tensor(np.concatenate(places)),
        mlm_labels=torch.cat(wanted),
        sentence_labels=order,
        sentence_count=count,
        samples=torch.zeros(count, 2, dtype=torch.long),
    )
    return batch, {**given.padded, "labels": labels, sentence_label: order}
