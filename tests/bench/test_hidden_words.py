"""Which tokens a model may attend to in a text with masked tokens, by objective."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from torch import Tensor

from albertine.model.model import Model
from benchmarks.hidden_words import TEXT, Windows, guesses
from tests.model import builders

CONFIG = builders.config(positions="relative")


class Opened:
    """What `guesses` uses of a pretrained model."""

    def __init__(self, model: Model) -> None:
        self.model, self.tokenizer = model, self
        self.mask_id, self.cls_id, self.sep_id = 4, 2, 3


@pytest.mark.sample
@pytest.mark.parametrize("memory", [0, 32])
@pytest.mark.parametrize("kind", ["permutation", "causal", "masked"])
def test_masked_tokens_are_not_visible_and_the_rest_is(kind: str, memory: int) -> None:
    opened = opened_for(kind)
    rng = np.random.default_rng(0)
    ids = rng.integers(5, builders.VOCABULARY, (2, TEXT))
    places = np.array([[9, 20, 31], [12, 13, 40]])

    def logits(changed: int | None = None) -> Tensor:
        given = ids.copy()
        if changed is not None:
            given[:, changed] = 5 + (given[:, changed] - 4) % (builders.VOCABULARY - 5)
        ((_, found),) = guesses(opened, Windows(given, places), kind, memory)
        return found.view(2, 3, -1)

    as_it_is, hidden, left, right = logits(), logits(20), logits(5), logits(55)
    seen = (hidden - as_it_is).abs().amax(-1) > 0
    if kind == "causal":  # the token at 20 is hidden in the first text, and stands to the left of 31
        assert seen[0].tolist() == [False, False, True] and bool((logits(31)[0] == as_it_is[0]).all())
        assert bool((right == as_it_is).all())
    else:
        assert not bool(seen[0].any()) and bool(seen[1].all())  # it is not masked in the second text
        assert bool(((right - as_it_is).abs().amax(-1) > 0).all())
    assert bool(((left - as_it_is).abs().amax(-1) > 0).all())
    assert len({tuple(row.tolist()) for row in as_it_is[0]}) == 3  # each of its own place


@pytest.mark.parametrize("kind", ["permutation", "causal", "masked"])
def test_a_memory_is_what_was_read_before_in_the_same_stretch(kind: str) -> None:
    opened, rng = opened_for(kind), np.random.default_rng(1)
    ids = rng.integers(5, builders.VOCABULARY, (18, TEXT))  # two lanes of three windows, six of two
    places = np.sort(rng.permuted(np.tile(np.arange(8, 54), (18, 1)), axis=1)[:, :3])

    def by_window(ids: np.ndarray, memory: int) -> np.ndarray:
        found = np.zeros((len(ids), 3, builders.VOCABULARY))
        for part, logits in guesses(opened, Windows(ids, places), kind, memory):
            found[part] = logits.view(len(part), 3, -1).numpy()
        return found

    changed = ids.copy()
    changed[3, 60] = 5 + (changed[3, 60] - 4) % (builders.VOCABULARY - 5)
    own = set() if kind == "causal" else {3}  # which sees nothing of what comes after
    for memory, visible in ((0, own), (16, own | {4, 5})):
        differ = np.abs(by_window(changed, memory) - by_window(ids, memory)).max((1, 2)) > 0
        assert set(np.flatnonzero(differ)) == visible, memory


def opened_for(kind: str) -> Any:
    heads = {"mlm"} if kind == "masked" else {"lm"}
    return Opened(Model(CONFIG, heads, seed=3, precision="float32").eval())
