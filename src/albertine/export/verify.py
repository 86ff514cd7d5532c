"""Verification of an exported model: it and its source compute the same batches, and the
differences are kept beside the export.

A runtime is a callable from inputs to outputs by their names, as arrays; every format is verified by the same
code. What padding holds is compared with nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from albertine.core.batch import from_padded
from albertine.core.randomness import generator
from albertine.errors import ModelError
from albertine.inference.graph_heads import Head
from albertine.model.config import EncoderConfig
from albertine.model.model import evaluating
from albertine.tokenizers.base import Tokenizer

Arrays = dict[str, NDArray[Any]]
Run = Callable[[Arrays], Arrays]
LEAST_SHAPES = 12
EXACT = 1e-5
"""The greatest difference of float32, for numbers up to 1; for larger ones in proportion."""
FAR = 1e29
"""Larger numbers stand for masked positions; only whether both outputs have one is compared."""
AMPLE = 8.0
"""Largest difference as a multiple of that between the source in float32 and in float64: where two tokens
have almost equal attention scores, another order of additions can change the result."""
ALIKE = {"int8": 0.999, "bfloat16": 0.99}
"""The least cosine of a coarser format. bfloat16 has eight bits of a number, in any program: ours gives
0.9989 of the English model's whitened vectors, for a text of one random token."""
NOWHERE = 1 << 20
"""A larger place is of no text."""
PLACES = 0.9
"""The least share of places (where spans begin and end) that float32 finds again; two that are as likely may
change their order."""
_LENGTHS = (1, 2, 3, 5, 7, 8, 13, 16, 33, 64, 128)
_BATCHES = (1, 3, 2, 4)


@dataclass(frozen=True)
class Compared:
    """One batch.

    Attributes:
        batch, length: its shape. tokens: how many of its batch · length places are no padding.
        difference: the greatest absolute one of any number. largest: absolute number of the source.
        cosine: the least of the outputs, each taken as one vector, or as one a text (`Head.vectors`), and of
            how likely each place is where spans are found; 1 where the source has 0 throughout.
        places: share of equal numbers in outputs that hold places; 1 without such.
    """

    batch: int
    length: int
    tokens: int
    difference: float
    largest: float
    cosine: float
    places: float

    def exact(self, rounding: float = 0.0) -> bool:
        """Whether the difference is no more than float32 rounds.

        Args:
            rounding: what `rounding_of` found.
        """
        return self.difference <= max(EXACT * max(1.0, self.largest), AMPLE * rounding)


@dataclass(frozen=True)
class Verified:
    """The differences over all batches.

    Attributes:
        rounding: from `rounding_of`, if it was needed.
    """

    shapes: tuple[Compared, ...]
    rounding: float | None = None

    @property
    def difference(self) -> float:
        return max(one.difference for one in self.shapes)

    @property
    def cosine(self) -> float:
        return min(one.cosine for one in self.shapes)

    @property
    def places(self) -> float:
        return min(one.places for one in self.shapes)

    @property
    def exact(self) -> bool:
        """Whether every batch is as exact as float32 is."""
        return all(one.exact(self.rounding or 0.0) for one in self.shapes)

    def as_data(self) -> dict[str, Any]:
        """For export.json."""
        certain = {} if self.rounding is None else {"float32_of_source_to_its_float64": self.rounding}
        return {
            "greatest_difference": self.difference,
            **certain,
            "least_cosine": self.cosine,
            "shapes": [asdict(one) for one in self.shapes],
        }

    def lines(self) -> list[str]:
        """One line a batch, and why a difference is no larger than it must be."""
        lines = [
            f"{one.batch} x {one.length} ({one.tokens} tokens): greatest difference {one.difference:.1e} "
            f"of {one.largest:.1e}, cosine {one.cosine:.6f}"
            + (f", {one.places:.1%} of places alike" if one.places < 1 else "")
            for one in self.shapes
        ]
        if self.rounding is not None:
            lines.append(f"The model's own float32 is up to {self.rounding:.1e} from its float64.")
        return lines


def shapes_for(config: EncoderConfig) -> list[tuple[int, int]]:
    """At least twelve shapes (batch, length), from one token to the longest text that the model reads."""
    longest = config.max_sequence_length or config.max_position_embeddings
    lengths = [n for n in _LENGTHS if n < longest] + [longest]
    shapes: dict[tuple[int, int], None] = {}
    turn = 0
    while len(shapes) < LEAST_SHAPES:
        for i, length in enumerate(lengths):
            # The longest costs the most: its first batch is of one.
            batch = _BATCHES[(i + turn) % len(_BATCHES)] + turn // len(_BATCHES) * len(_BATCHES)
            shapes[1 if length == longest and turn == 0 else batch, length] = None
        turn += 1
    return list(shapes)


def batches(config: EncoderConfig) -> Iterator[Arrays]:
    """A fixed batch of random tokens for every shape: all rows but the first are padded on the right, and the
    second half of each is segment 1."""
    for number, (batch, length) in enumerate(shapes_for(config)):
        draws = generator(0, "batches of a verification", number)
        sizes = draws.integers(1, length, batch, endpoint=True)
        sizes[0] = length
        columns = np.arange(length)
        real = columns < sizes[:, None]
        ids = np.where(real, draws.integers(0, config.vocab_size, (batch, length)), config.pad_token_id)
        second = real & (columns >= (sizes[:, None] + 1) // 2)
        yield {
            "input_ids": ids.astype(np.int64),
            "attention_mask": real.astype(np.int64),
            "token_type_ids": second.astype(np.int64),
        }


def text_batches(config: EncoderConfig, rows: Sequence[Arrays]) -> Iterator[Arrays]:
    """The same shapes, filled with the tokens of these rows one after another. What begins with one of two
    texts has its second half in segment 1, all else is in the first."""
    ids = np.concatenate([row["input_ids"][0] for row in rows])
    second = [np.full(row["input_ids"].size, (row["token_type_ids"] == 1).any()) for row in rows]
    of_two, at = np.concatenate(second), 0
    for padded in batches(config):
        real = padded["attention_mask"] != 0
        ends = at + real.sum(1).cumsum()
        padded["input_ids"][real] = ids[np.arange(at, ends[-1]) % len(ids)]
        padded["token_type_ids"] *= of_two[(ends - real.sum(1)) % len(ids)][:, None]
        at = int(ends[-1])
        yield padded


def framed(inputs: Iterable[Arrays], tokenizer: Tokenizer) -> Iterator[Arrays]:
    """The same batches with every row laid out as a text alone, [CLS] and [SEP] in place of its ends. Pieces
    in no order have vectors that nearly all point one way, beside which nothing else in them is seen; those
    of such rows point apart."""
    ids, types = (np.array(x, np.int64) for x in tokenizer.layout([]))
    lead, behind = tokenizer.lead, len(ids) - tokenizer.lead
    for padded in inputs:
        short = max(0, len(ids) - padded["input_ids"].shape[1])
        found = {name: np.pad(x, ((0, 0), (0, short))) for name, x in padded.items()}
        found["token_type_ids"][:] = 0
        for row, size in enumerate(found["attention_mask"].sum(1)):
            end = max(int(size), len(ids))
            found["attention_mask"][row, :end] = 1
            for name, special in (("input_ids", ids), ("token_type_ids", types)):
                found[name][row, :lead] = special[:lead]
                found[name][row, end - behind : end] = special[lead:]
        yield found


def packed_inputs(padded: Arrays) -> Arrays:
    """A padded batch as the packed graph takes it."""
    real = padded["attention_mask"] != 0
    offsets = np.concatenate([[0], real.sum(1).cumsum()]).astype(np.int64)
    return {name: padded[name][real] for name in ("input_ids", "token_type_ids")} | {"cu_seqlens": offsets}


def subjects_of(padded: Arrays) -> NDArray[np.int64]:
    """One subject a row: its first token and its middle one."""
    sizes = padded["attention_mask"].sum(1)
    return np.stack([np.arange(len(sizes)), np.zeros_like(sizes), (sizes - 1) // 2], 1)


def verify(head: Head, run: Run, *, packed: bool = False, inputs: Iterable[Arrays] | None = None) -> Verified:
    """Compute the same batches with an exported model and its source.

    Args:
        run: from inputs to outputs by name. packed: the inputs are those of the packed graph.
        inputs: padded batches; by default `batches`.

    Raises:
        ModelError: the outputs of the exported model have other names, or other shapes, or are no numbers.
    """
    inputs = batches(head.base.config) if inputs is None else inputs
    return Verified(tuple(_compared(head, run, padded, packed) for padded in inputs))


@torch.no_grad()
def rounding_of(head: Head) -> float:
    """The greatest difference between the outputs of the source in float32 and in float64."""
    found = []
    for double in (False, True):
        head.model.double() if double else head.model.float()
        with evaluating(head.model):
            found.append([_source_outputs(head, padded) for padded in batches(head.base.config)])
    head.model.float()  # which every float32 survives
    pairs = (pair for both in zip(*found, strict=True) for pair in zip(*both, strict=True))
    apart = (np.abs(b.astype(np.float64) - a)[np.abs(a) < FAR] for a, b in pairs if a.dtype.kind == "f")
    return max((float(x.max(initial=0.0)) for x in apart), default=0.0)


def _source_outputs(head: Head, padded: Arrays) -> list[NDArray[Any]]:
    """The outputs of the source."""
    batch, _ = from_padded(*(torch.from_numpy(x) for x in padded.values()))
    subjects = torch.from_numpy(subjects_of(padded)) if head.of_subjects else None
    return [x.numpy() for x in head.source(batch, subjects)]


@torch.no_grad()
def _compared(head: Head, run: Run, padded: Arrays, packed: bool) -> Compared:
    real = padded["attention_mask"] != 0
    further: Arrays = {"subjects": subjects_of(padded)} if head.of_subjects else {}
    with evaluating(head.model):
        right = _source_outputs(head, padded)
    found = run((packed_inputs(padded) if packed else dict(padded)) | further)
    differences, largest, cosines, places = [0.0], [0.0], [1.0], [1.0]
    for (name, axes), expected in zip(head.axes.items(), right, strict=True):
        got = _output(found, name)
        if "tokens" in axes and not packed:
            got = got[real] if got.shape[:2] == real.shape else got
        if got.shape != expected.shape:
            raise ModelError(
                f"the export answers `{name}` of shape {list(got.shape)}, its source {list(expected.shape)}"
            )
        if name in head.integers:
            places.append(float((got == expected).mean()))
        else:
            if np.isnan(expected).any():
                raise ModelError(
                    f"the model itself answers `{name}` with what is no number",
                    remedy="Its weights are damaged: copy them again, or go back to an earlier checkpoint",
                )
            known = np.abs(expected) < FAR
            if not np.array_equal(known, np.abs(got) < FAR):
                raise ModelError(f"the export answers `{name}` with what is no number")
            got, expected = (np.where(known, x, 0).astype(np.float64) for x in (got, expected))
            differences.append(float(np.abs(got - expected).max(initial=0.0)))
            largest.append(float(np.abs(expected).max(initial=0.0)))
            ends = real.sum(1).cumsum() if "tokens" in axes else np.arange(1, len(real) + 1)
            texts = (np.split(x, ends[:-1]) if head.vectors else [x] for x in (got, expected))
            if axes[0] == "batch" and expected.shape[1:] in ((), (1,)):
                # One number has no direction: how far off it is counts, as the cosine of so small an angle.
                cosines.append(1 - (differences[-1] / max(1.0, largest[-1])) ** 2 / 2)
            else:
                cosines += [cosine(a, b) for a, b in zip(*texts, strict=True)]
    if head.integers:
        cosines += _same_places(dict(zip(head.axes, right, strict=True)), found)
    size, tokens = len(real), int(real.sum())
    return Compared(size, real.shape[1], tokens, max(differences), max(largest), min(cosines), min(places))


Likely = tuple[NDArray[Any], NDArray[np.float64]]
"""Places, and how likely each is, the likeliest first; 0 where there is none."""


def _same_places(right: Arrays, got: Arrays) -> list[float]:
    """The cosines of how likely every place is to begin a span, one a text, and of how likely each is to end
    it, one for each place where both begin spans. In numbers in the order of their ranks it is not
    seen whose they are."""
    found = []
    for (starts, ends), (theirs, others) in zip(_spans(right), _spans(got), strict=True):
        found.append(_alike(starts, theirs))
        found += [_alike(ends[place], others[place]) for place in ends.keys() & others.keys()]
    return found


def _spans(outputs: Arrays) -> list[tuple[Likely, dict[int, Likely]]]:
    """For every text where spans begin, and for each such place where they end."""
    starts, ends = (outputs[f"{end}_top_index"].astype(np.int64).clip(0, NOWHERE) for end in ("start", "end"))
    scores = (outputs[f"{end}_top_log_probs"].astype(np.float64) for end in ("start", "end"))
    begins, lasts = map(np.exp, scores)
    shape = (len(starts), -1, starts.shape[1])
    found = []
    for places, p, last, q in zip(starts, begins, ends.reshape(shape), lasts.reshape(shape), strict=True):
        own = {int(place): (last[:, k], q[:, k]) for k, place in enumerate(places) if p[k]}
        found.append(((places, p), own))
    return found


def _alike(one: Likely, other: Likely) -> float:
    """The cosine of two tables over places, of which the likeliest are given. A place that only one gives has
    in the other as much as there, or as the last that is given, whichever is less: of two equal ones either
    may be given."""
    size = 1 + max(int(places.max()) for places, _ in (one, other))
    a, b = np.zeros(size), np.zeros(size)
    for table, (places, likely) in ((a, one), (b, other)):
        np.add.at(table, places, likely)
    most_a, most_b = (likely.min() for _, likely in (one, other))
    return cosine(np.where(a > 0, a, np.minimum(b, most_a)), np.where(b > 0, b, np.minimum(a, most_b)))


def _output(found: Arrays, name: str) -> NDArray[Any]:
    if name not in found:
        raise ModelError(f"the export has no output `{name}`; it has {', '.join(found)}")
    return np.asarray(found[name])


def cosine(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    """That of two arrays as vectors; 1 where both are zero."""
    sizes = float(np.linalg.norm(a) * np.linalg.norm(b))
    return float((a * b).sum() / sizes) if sizes else float(not a.any() and not b.any())
