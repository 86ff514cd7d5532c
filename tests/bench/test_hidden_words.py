"""What a model may see of a text whose words are hidden, by objective."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from albertine.model.model import Model
from benchmarks.hidden_words import TEXT, _causal, _masked, _permuted
from tests.model import builders

CONFIG = builders.config(positions="relative")


class Opened:
    """What `_masked` asks of a pretrained model."""

    def __init__(self, model: Model) -> None:
        self.model, self.tokenizer = model, self
        self.mask_id, self.cls_id, self.sep_id = 4, 2, 3


@pytest.mark.parametrize("kind", ["permutation", "causal", "masked", "masked streams"])
def test_what_is_hidden_is_not_seen_and_the_rest_is(kind: str) -> None:
    model = Model(CONFIG, {"mlm"} if "masked" in kind else {"lm"}, seed=3, precision="float32").eval()
    opened: Any = Opened(model)
    rng = np.random.default_rng(0)
    ids = rng.integers(5, builders.VOCABULARY, (2, TEXT))
    places = np.array([[9, 20, 31], [12, 13, 40]])

    def logits(changed: int | None = None) -> Tensor:
        given = ids.copy()
        if changed is not None:
            given[:, changed] = 5 + (given[:, changed] - 4) % (builders.VOCABULARY - 5)
        with torch.inference_mode():
            if kind == "permutation":
                found = _permuted(model, given, places)
            elif kind == "causal":
                found = _causal(model, given, places)
            else:
                found = _masked(opened, given, places, alone=kind == "masked")
        return found.view(2, 3, -1)

    as_it_is, hidden, left, right = logits(), logits(20), logits(5), logits(55)
    seen = (hidden - as_it_is).abs().amax(-1) > 0
    if kind == "causal":  # the token at 20 is hidden in the first text, and stands to the left of 31
        assert seen[0].tolist() == [False, False, True] and bool((logits(31)[0] == as_it_is[0]).all())
        assert bool((right == as_it_is).all())
    else:
        assert not bool(seen[0].any()) and bool(seen[1].all())  # nobody hides it in the second text
        assert bool(((right - as_it_is).abs().amax(-1) > 0).all())
    assert bool(((left - as_it_is).abs().amax(-1) > 0).all())
    assert len({tuple(row.tolist()) for row in as_it_is[0]}) == 3  # each of its own place
