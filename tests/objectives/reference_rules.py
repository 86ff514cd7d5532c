"""The reference's sample-making rules, written out one token at a time: slow, and obvious on purpose.

These are the rules of google-research/albert's `create_pretraining_data.py`, in our own words. The package
must agree with them in every statistic; it cannot agree draw by draw, because it draws in another order.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

SEP = "sep"


@dataclass
class Sample:
    a: list[int]
    b: list[int]
    label: int  # 1 swapped or foreign, 0 in order
    single: bool  # the chunk had one sentence
    foreign: bool


@dataclass
class Masked:
    budget: int
    ngrams: list[list[int]] = field(default_factory=list)  # token positions of every n-gram taken
    sizes: list[int] = field(default_factory=list)  # in units
    fates: dict[int, str] = field(default_factory=dict)
    ids: dict[int, int] = field(default_factory=dict)


def flat(lists: list[list[int]]) -> list[int]:
    return [item for inner in lists for item in inner]


def make_samples(
    documents: list[list[list[int]]], rng: random.Random, *, nsp: bool, max_length: int, short: float = 0.1
) -> list[Sample]:
    """All samples of all documents; a document is a list of sentences, a sentence a list of tokens."""
    samples = []
    for number in range(len(documents)):
        samples += _document(documents, number, rng, nsp, max_length - 3, short)
    return samples


def _document(
    documents: list[list[list[int]]], number: int, rng: random.Random, nsp: bool, room: int, short: float
) -> list[Sample]:
    document = documents[number]
    target = rng.randint(2, room) if rng.random() < short else room
    samples: list[Sample] = []
    chunk: list[list[int]] = []
    i = 0
    while i < len(document):
        chunk.append(document[i])
        if i == len(document) - 1 or sum(map(len, chunk)) >= target:
            cut = rng.randint(1, len(chunk) - 1) if len(chunk) >= 2 else 1
            a = flat(chunk[:cut])
            b: list[int] = []
            single = len(chunk) == 1
            foreign = single or (nsp and rng.random() < 0.5)
            if foreign:
                label = 1
                for _ in range(10):
                    other = rng.randrange(len(documents))
                    if other != number:
                        break
                start = rng.randrange(len(documents[other]))
                for sentence in documents[other][start:]:
                    b += sentence
                    if len(b) >= target - len(a):
                        break
                i -= len(chunk) - cut
            else:
                b = flat(chunk[cut:])
                label = 0
                if not nsp and rng.random() < 0.5:
                    a, b, label = b, a, 1
            truncate(a, b, room, rng)
            samples.append(Sample(a, b, label, single, foreign))
            chunk = []
        i += 1
    return samples


def truncate(a: list[int], b: list[int], room: int, rng: random.Random) -> None:
    while len(a) + len(b) > room:
        longer = a if len(a) > len(b) else b
        longer.pop(0 if rng.random() < 0.5 else -1)


def mask(
    tokens: list[int | str],
    starts: list[bool],
    rng: random.Random,
    *,
    vocab_size: int,
    max_predictions: int = 10**9,
    probability: float = 0.15,
    longest: int = 3,
    favor_shorter: bool = True,
    whole_word: bool = True,
) -> Masked:
    """Mask one sample; special tokens are the string SEP. N-grams stay inside their segment."""
    segments: list[list[list[int]]] = [[]]
    for position, token in enumerate(tokens):
        if token == SEP:
            segments.append([])
        elif whole_word and segments[-1] and not starts[position]:
            segments[-1][-1].append(position)
        else:
            segments[-1].append([position])
    weights = [1 / n for n in range(1, longest + 1)]
    if not favor_shorter:
        weights.reverse()
    candidates = [segment[i:] for segment in segments for i in range(len(segment))]
    rng.shuffle(candidates)
    result = Masked(min(max_predictions, max(1, round(probability * len(tokens)))))
    covered: set[int] = set()
    for words in candidates:
        if len(covered) >= result.budget:
            break
        n = min(rng.choices(range(1, longest + 1), weights)[0], len(words))
        while n and len(covered) + len(flat(words[:n])) > result.budget:
            n -= 1
        positions = flat(words[:n])
        if n == 0 or covered & set(positions):
            continue
        covered |= set(positions)
        result.ngrams.append(positions)
        result.sizes.append(n)
        for position in positions:
            draw = rng.random()
            result.fates[position] = "mask" if draw < 0.8 else "keep" if draw < 0.9 else "random"
            if result.fates[position] == "random":
                result.ids[position] = rng.randrange(vocab_size)
    return result
