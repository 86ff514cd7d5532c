"""The same hidden words, asked of models of every objective (X19 of xlnet_and_relatives.md).

    python -m benchmarks.hidden_words corpora/demo-en RUN [RUN ...]

Windows of held-out text, with 9 of their 62 tokens hidden. A masked model sees [MASK] there; of a permutation
the second stream asks for the hidden tokens, and neither it nor any content sees one of them; a causal model
sees what stands to the left, hidden tokens included, and nothing of what comes after. So all predict equal
tokens from equal text, as their objectives let them, and bits compare across objectives.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from albertine.corpus.reader import Corpus
from albertine.layout import Packed, pack
from albertine.model.model import Model
from albertine.model.two_streams import Segments, predict_segments
from albertine.model.visibility import Visibility, causal
from albertine.pretraining.scores import Pretrained, objective_of, open_pretrained, token_counts
from albertine.randomness import generator

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


def asked(of: Pretrained, windows: Windows) -> tuple[float, float]:
    """Bits a hidden token, and the share in percent that is right."""
    objective, bits, right = objective_of(of, None), 0.0, 0
    for part in np.array_split(np.arange(len(windows.ids)), max(1, len(windows.ids) // 64)):
        ids, places = windows.ids[part], windows.places[part]
        labels = torch.from_numpy(np.take_along_axis(ids, places, 1).reshape(-1))
        with torch.inference_mode():
            if objective.kind == "masked":
                logits = _masked(of, ids, places, alone=not objective.memory)
            elif objective.kind == "causal":
                logits = _causal(of.model, ids, places)
            else:
                logits = _permuted(of.model, ids, places)
        bits += float(F.cross_entropy(logits.float(), labels, reduction="sum")) / math.log(2)
        right += int((logits.argmax(-1) == labels).sum())
    return bits / windows.places.size, 100 * right / windows.places.size


def _rows(places: np.ndarray, length: int, before: int = 0) -> Tensor:
    """The places of each window as rows of the packed batch."""
    return torch.from_numpy((np.arange(len(places))[:, None] * length + places + before).reshape(-1))


def _masked(of: Pretrained, ids: np.ndarray, places: np.ndarray, *, alone: bool) -> Tensor:
    """Samples between [CLS] and [SEP], or plain segments where that is how it read."""
    shown = ids.copy()
    np.put_along_axis(shown, places, of.tokenizer.mask_id, 1)
    if not alone:
        return predict_segments(of.model, Segments(pack(list(shown))), rows=_rows(places, TEXT))[0]
    ends = [np.full((len(ids), 1), i) for i in (of.tokenizer.cls_id, of.tokenizer.sep_id)]
    packed = pack(list(np.concatenate([ends[0], shown, ends[1]], 1)))
    rows = _rows(places, TEXT + 2, before=1)
    with of.model.encoder.computing():
        states = of.model.encoder(packed, rows=rows).last_hidden
        assert of.model.mlm is not None
        return of.model.mlm(states, of.model.encoder.embeddings)  # type: ignore[no-any-return]


def _causal(model: Model, ids: np.ndarray, places: np.ndarray) -> Tensor:
    packed = pack(list(ids))
    segments = Segments(packed, visible=causal(packed.lengths, packed.input_ids))
    return predict_segments(model, segments, rows=_rows(places, TEXT, before=-1))[0]


def _permuted(model: Model, ids: np.ndarray, places: np.ndarray) -> Tensor:
    packed: Packed = pack(list(ids))
    rows = _rows(places, TEXT)
    when = torch.zeros(packed.num_tokens, dtype=torch.int64)
    when[rows] = 1  # seen by those of `until` 2, which are none but the hidden contents themselves
    segments = Segments(packed, Visibility(when, when + 1), rows, torch.ones_like(rows))
    return predict_segments(model, segments)[0]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("corpus", type=Path, metavar="CORPUS", help="held-out text of it is asked about")
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
        bits, right = asked(open_pretrained(run), windows)
        print(f"{run.name}: {bits:.3f} bits, {right:.1f} % right", flush=True)


if __name__ == "__main__":
    main()
