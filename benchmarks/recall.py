"""What a memory of segments is for: recall of the content of an earlier segment.

    python -m benchmarks.recall --save
    python -m benchmarks.recall --depths 4 --steps 4000 --without-control
    python -m benchmarks.recall --depths 2 --longest 3 --in-turn

A text is four pairs of a key and a value and the same pairs in another order, segments of filler, and the
four pairs once more, whose values are to be predicted; the first of them is scored, which nothing beside
it gives away. Keys and values are drawn anew for every text, so nothing can be memorised. The segments
are read in turn, with and without memory; chance is one in sixteen, and one in four for a model that knows
the values and not which one. The memory is as long as a segment: beyond depths × memory nothing can arrive.

A memory has no gradient, so nothing teaches a row to pass on what only a later segment wants. Therefore a
text is learned at once, every token of which sees what it would see with a memory: the same numbers, and a
gradient that reaches the first segment. Models are judged with the segments read in turn; with --in-turn they
learn so too, as in a pretraining with memory.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from albertine.core.batch import pack
from albertine.core.randomness import generator
from albertine.model.config import EncoderConfig
from albertine.model.model import Model
from albertine.model.segment_memory import Memory
from albertine.model.sharing import SharingPlan
from albertine.model.two_streams import Segments, predict_segments
from albertine.model.visibility import causal
from benchmarks.keep import keep

KEYS, VALUES, PAIRS, SEGMENT = 16, 16, 4, 16
SPAN = 2 * PAIRS
KEY_PLACES = np.arange(SEGMENT - SPAN, SEGMENT, 2)  # places of the keys at the end of a segment
RATE = 1e-3
FILLER = KEYS + VALUES  # one token of no meaning
VOCABULARY = FILLER + 1


def texts(count: int, segments: int, use: str, *key: int) -> tuple[np.ndarray, np.ndarray]:
    """Token ids (count, segments, SEGMENT), whose first and last segment end with pairs, and the values of
    these (2, count, PAIRS), each to be predicted at its key."""
    rng = generator(0, f"recall {use}", *key)
    ids = np.full((count, segments, SEGMENT), FILLER)
    keys = rng.random((count, KEYS)).argsort(1)[:, :PAIRS]
    values = KEYS + rng.integers(0, VALUES, (count, PAIRS))
    pairs = np.stack([keys, values], 2)
    ids[:, 0, :-SPAN] = pairs.reshape(count, SPAN)
    pieces = []
    for part in (0, -1):
        order = rng.random((count, PAIRS)).argsort(1)
        again = np.take_along_axis(pairs, order[..., None], 1)
        ids[:, part, -SPAN:] = again.reshape(count, SPAN)
        pieces.append(again[..., 1])
    return ids, np.stack(pieces)


def encoder(depth: int, seed: int) -> Model:
    config = EncoderConfig(
        vocab_size=VOCABULARY,
        embedding_size=64,
        hidden_size=64,
        num_attention_heads=4,
        intermediate_size=128,
        plan=SharingPlan.unshared(depth),
        type_vocab_size=0,
        positions="relative",
        norm="pre",
        initializer_range=0.05,
    )
    return Model(config, {"lm"}, seed=seed)


def answers_at_once(model: Model, ids: np.ndarray, memory: int) -> Tensor:
    """What `answers` gives, of texts each read as one segment under a mask: a token sees those before it in
    its own segment, and with a memory in the one before."""
    count, segments, _ = ids.shape
    place = torch.arange(segments * SEGMENT)
    back = place[:, None] // SEGMENT - place // SEGMENT
    mask = (place <= place[:, None]) & (back <= (1 if memory else 0))
    places = np.concatenate([first + KEY_PLACES for first in (0, (segments - 1) * SEGMENT)])
    rows = places + len(place) * np.arange(count)[:, None]
    seen = Segments(pack(list(ids.reshape(count, -1))), masks=(mask,) * count)
    logits, _ = predict_segments(model, seen, rows=torch.from_numpy(rows.flatten()))
    return logits.view(count, 2, PAIRS, -1).transpose(0, 1)


def answers(model: Model, ids: np.ndarray, memory: int) -> Tensor:
    """Logits (2, count, PAIRS, V) at the keys at the end of the first and of the last segment, one segment
    read after the other."""
    count, segments, _ = ids.shape
    kept: Memory | None = None
    places = KEY_PLACES + SEGMENT * np.arange(count)[:, None]
    keys, found = torch.from_numpy(places.flatten()), []
    for part in range(segments):
        batch = pack(list(ids[:, part]))
        seen = Segments(batch, visible=causal(batch.lengths, batch.input_ids))
        logits, kept = predict_segments(model, seen, kept if memory else None, rows=keys, keep=memory)
        found.append(logits.view(count, PAIRS, -1))
    return torch.stack([found[0], found[-1]])


def right(model: Model, segments: int, memory: int) -> float:
    """The share of 1,000 new texts of so many segments whose first value of the last one is right."""
    ids, values = texts(1000, segments, "test", segments)
    with torch.no_grad():
        predicted = answers(model.eval(), ids, memory)[1, :, 0].argmax(1)
    return float((predicted == torch.from_numpy(values[1, :, 0])).float().mean())


def learn(
    depth: int, memory: int, longest: int, steps: int, seed: int, *, in_turn: bool = False
) -> tuple[Model, list[dict[str, float]]]:
    """Trained on texts of two to `longest` segments, read at once or one segment after the other; and its
    losses every 200 updates."""
    read, curve = answers if in_turn else answers_at_once, list[dict[str, float]]()
    model = encoder(depth, seed).train()
    optimizer = torch.optim.AdamW(model.parameters(), RATE, weight_decay=0.0)
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = RATE * min(1.0, (step + 1) / 50, 2 * (1 - step / steps))
        ids, values = texts(64, 2 + step % (longest - 1), "train", seed, step)
        loss = F.cross_entropy(read(model, ids, memory).flatten(0, 2), torch.from_numpy(values).flatten())
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        if step % 200 == 199:
            curve.append({"step": step + 1, "loss": float(loss.detach())})
            print(f"depth {depth}, memory {memory}, step {step + 1}: loss {loss:.3f}", flush=True)
    return model, curve


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--depths", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--longest", type=int, default=5, help="segments of the longest text")
    parser.add_argument("--in-turn", action="store_true", help="learn without a gradient through the memory")
    parser.add_argument(
        "--without-control",
        action="store_true",
        help="leave out the models without memory, which stay at chance",
    )
    parser.add_argument("--save", action="store_true")
    given = parser.parse_args()
    how = {"steps": given.steps, "in turn": given.in_turn, "seed": given.seed, "chance": 1 / VALUES}
    result: dict[str, Any] = {**how, "runs": []}
    for depth in given.depths:
        for memory in (SEGMENT,) if given.without_control else (0, SEGMENT):
            begin = time.perf_counter()
            model, curve = learn(depth, memory, given.longest, given.steps, given.seed, in_turn=given.in_turn)
            scores = {n: right(model, n, memory) for n in range(2, given.longest + 1)}
            run = {"depth": depth, "memory": memory, "right": scores, "curve": curve}
            result["runs"].append(run | {"seconds": time.perf_counter() - begin})
            scores_line = ", ".join(f"{(n - 1) * SEGMENT} tokens back {x:.3f}" for n, x in scores.items())
            print(f"depth {depth}, memory {memory}: {scores_line}", flush=True)
    if given.save:
        keep("recall", result)


if __name__ == "__main__":
    main()
