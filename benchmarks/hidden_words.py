"""The same masked tokens predicted by models of every objective.

    python -m benchmarks.hidden_words corpora/demo-en RUN [RUN ...]

Windows of held-out text, with 9 of their 62 tokens hidden. A masked model sees [MASK] there; of a permutation
the second stream predicts the hidden tokens, and neither it nor any content sees one of them; a causal model
sees what stands to the left, hidden tokens included, and nothing of what comes after. So all predict equal
tokens from equal text, as their objectives let them, and bits compare across objectives.

A model that was trained with a memory has it here too: the windows are read one after the other in a few
lanes, and as in training it remembers what was hidden there as itself, a masked model as [MASK].
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from albertine.core.batch import pack
from albertine.core.randomness import generator
from albertine.corpus.reader import Corpus
from albertine.model.segment_memory import Memory
from albertine.model.two_streams import Segments, predict_segments
from albertine.model.visibility import Visibility, causal
from albertine.pretraining.scores import Pretrained, objective_of, open_pretrained, token_counts
from albertine.pretraining.stream_data import HELD_OUT_LANES

TEXT, HIDDEN, MARGIN = 62, 9, 8
"""Tokens of a window, how many of them are hidden, and how far from its ends they are at least."""


class Windows(NamedTuple):
    """Windows of held-out text, int64 (S, TEXT), and the hidden places, int64 (S, HIDDEN), ascending."""

    ids: np.ndarray
    places: np.ndarray

    @classmethod
    def of(cls, corpus: Path, count: int) -> Windows:
        text = Corpus(corpus, split="heldout")
        ids = np.asarray(text.span(0, text.num_sentences)[0], dtype=np.int64)
        count = min(count, len(ids) // TEXT)
        inner = np.arange(MARGIN, TEXT - MARGIN)
        drawn = [generator(0, "hidden words", s).choice(inner, HIDDEN, replace=False) for s in range(count)]
        return cls(ids[: count * TEXT].reshape(count, TEXT), np.sort(drawn))


def scores_of(of: Pretrained, windows: Windows) -> tuple[float, float]:
    """Bits a hidden token, and the share in percent that is right."""
    objective, bits, right = objective_of(of, None), 0.0, 0
    for part, logits in guesses(of, windows, objective.kind, objective.memory):
        hidden = np.take_along_axis(windows.ids[part], windows.places[part], 1)
        labels = torch.from_numpy(hidden.reshape(-1))
        bits += float(F.cross_entropy(logits.float(), labels, reduction="sum")) / math.log(2)
        right += int((logits.argmax(-1) == labels).sum())
    return bits / windows.places.size, 100 * right / windows.places.size


def guesses(of: Pretrained, windows: Windows, kind: str, memory: int) -> Iterator[tuple[np.ndarray, Tensor]]:
    """Some windows at a time, by their numbers, and logits (P, V) of their hidden places.

    Args:
        kind: the objective of the model. memory: how many tokens before a window it remembers.
    """
    past: Memory | None = None
    for part in _order(len(windows.ids), memory):
        ids, places = windows.ids[part], windows.places[part]
        if past is not None:
            past = past.of(range(len(part)))
        with torch.inference_mode():
            if kind == "masked" and not memory:
                logits = _samples(of, ids, places)
            else:
                segments, rows = _segments(ids, places, kind, of.tokenizer.mask_id)
                logits, kept = predict_segments(of.model, segments, past, rows=rows, keep=memory)
                past = kept if memory else None
        yield part, logits


def _order(count: int, memory: int) -> list[np.ndarray]:
    """Which windows are read together. With a memory every lane is a stretch of the text, read from window to
    window; the first lanes are the longer ones."""
    if not memory:
        return np.array_split(np.arange(count), max(1, count // 64))
    lanes = np.array_split(np.arange(count), HELD_OUT_LANES)
    return [np.array([lane[i] for lane in lanes if i < len(lane)]) for i in range(len(lanes[0]))]


def _rows(places: np.ndarray, length: int, before: int = 0) -> Tensor:
    """The places of each window as rows of the packed batch."""
    return torch.from_numpy((np.arange(len(places))[:, None] * length + places + before).reshape(-1))


def _samples(of: Pretrained, ids: np.ndarray, places: np.ndarray) -> Tensor:
    """Logits of a masked model that read samples between [CLS] and [SEP]."""
    shown = _masked(ids, places, of.tokenizer.mask_id)
    ends = [np.full((len(ids), 1), i) for i in (of.tokenizer.cls_id, of.tokenizer.sep_id)]
    packed = pack(list(np.concatenate([ends[0], shown, ends[1]], 1)))
    rows = _rows(places, TEXT + 2, before=1)
    with of.model.encoder.forward_pass():
        states = of.model.encoder(packed, rows=rows).last_hidden
        assert of.model.mlm is not None
        return of.model.mlm(states, of.model.encoder.embeddings)  # type: ignore[no-any-return]


def _masked(ids: np.ndarray, places: np.ndarray, mask_id: int) -> np.ndarray:
    shown = ids.copy()
    np.put_along_axis(shown, places, mask_id, 1)
    return shown


def _segments(ids: np.ndarray, places: np.ndarray, kind: str, mask_id: int) -> tuple[Segments, Tensor | None]:
    """Windows as segments of an objective, and the rows that predict; None: the second stream does."""
    packed, rows = pack(list(ids)), _rows(places, TEXT)
    if kind == "masked":
        return Segments(pack(list(_masked(ids, places, mask_id)))), rows
    if kind == "causal":
        return Segments(packed, visible=causal(packed.lengths, packed.input_ids)), rows - 1
    when = torch.zeros(packed.num_tokens, dtype=torch.int64)
    when[rows] = 1  # seen by those of `until` 2, which are none but the hidden contents themselves
    return Segments(packed, Visibility(when, when + 1), rows, torch.ones_like(rows)), None


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("corpus", type=Path, metavar="CORPUS", help="corpus whose held-out text is used")
    parser.add_argument(
        "runs", type=Path, nargs="+", metavar="RUN", help="runs or models with its vocabulary"
    )
    parser.add_argument("--windows", type=int, default=1024, help="most windows")
    options = parser.parse_args()
    windows = Windows.of(options.corpus, options.windows)
    first = open_pretrained(options.runs[0])
    counts = token_counts(first, options.corpus) + 1.0
    labels = np.take_along_axis(windows.ids, windows.places, 1)
    floor = -np.log2(counts[labels] / counts.sum()).mean()
    print(f"{windows.places.size:,} hidden tokens; by frequency alone {floor:.2f} bits")
    for run in options.runs:
        bits, right = scores_of(open_pretrained(run), windows)
        print(f"{run.name}: {bits:.3f} bits, {right:.1f} % right", flush=True)


if __name__ == "__main__":
    main()
