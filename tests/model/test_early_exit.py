"""Early exit: which layer a text leaves after, with which logits, and that other texts do not matter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from albertine.core.batch import Packed, pack
from albertine.core.between_layers import calling_between_layers
from albertine.core.exit_rule import ExitRule
from albertine.core.number_formats import InferencePrecision
from albertine.errors import SettingsError
from albertine.model.config import EncoderConfig, HeadInput
from albertine.model.early_exit import EarlyExits
from albertine.model.model import Model
from albertine.model.sharing import SharingPlan

DEPTH = 5
LENGTHS = (5, 31, 12, 3, 40, 17)
ENCODERS: dict[str, dict[str, Any]] = {
    "shared": {"plan": SharingPlan.shared(DEPTH)},
    "unshared": {"plan": SharingPlan.unshared(DEPTH)},
    "rotary, pre-norm": {"plan": SharingPlan.shared(DEPTH), "positions": "rotary", "norm": "pre"},
    "relative": {
        "plan": SharingPlan.shared(DEPTH),
        "positions": "relative",
        "embedding_norm": False,
        "embedding_size": 24,
    },
    "last token": {"plan": SharingPlan.shared(DEPTH), "summary": "last"},
}


def model(
    kind: str = "shared", pooling: HeadInput = "cls", several: bool = False, seed: int = 0
) -> EarlyExits:
    """Wide random weights, so that layers disagree."""
    small = EncoderConfig(
        vocab_size=50,
        embedding_size=8,
        hidden_size=24,
        num_attention_heads=2,
        intermediate_size=48,
        max_position_embeddings=64,
        initializer_range=0.4,
        plan=SharingPlan.shared(DEPTH),
    )
    base = Model(replace(small, **ENCODERS[kind]), {"pooler"}, seed=seed)
    return EarlyExits(base, 3, several=several, pooling=pooling, seed=seed).eval()


def batch(numbers: Sequence[int] = range(len(LENGTHS))) -> Packed:
    rng = np.random.default_rng(3)
    every = [rng.integers(1, 50, n).astype(np.int32) for n in LENGTHS]
    return pack([every[i] for i in numbers], [np.zeros(LENGTHS[i], np.int8) for i in numbers], None)


def by_hand(every_DSC: Tensor, rule: ExitRule, several: bool) -> list[int]:
    """The layer that each text leaves after, from the logits of all layers."""
    found = []
    for own_DC in every_DSC.unbind(1):
        answers = [tuple((x > 0).tolist()) if several else int(x.argmax()) for x in own_DC]
        chances = torch.sigmoid(own_DC.abs()).amin(1) if several else own_DC.softmax(1).amax(1)
        leaves = DEPTH
        for d in range(DEPTH, 0, -1):
            if rule.patience is not None:
                last = answers[max(0, d - 1 - rule.patience) : d]
                settled = len(last) == rule.patience + 1 and len(set(last)) == 1
            else:
                settled = bool(chances[d - 1] >= rule.confidence)
            leaves = d if settled else leaves
        found.append(leaves)
    return found


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("rule", ["patience=1", "patience=2", "confidence=0.6", "confidence=1"])
@pytest.mark.parametrize("pooling", ["cls", "mean", "depths"])
@pytest.mark.parametrize("kind", ENCODERS)
def test_texts_leave_with_the_logits_of_their_layer(
    kind: str, pooling: HeadInput, rule: str, several: bool
) -> None:
    found, wanted = model(kind, pooling, several), ExitRule.parse(rule)
    with torch.no_grad():
        every_DSC = found.every_logits(batch())
    logits, layers = found.leaving(batch(), wanted)
    assert layers.tolist() == by_hand(every_DSC, wanted, several)
    right = torch.stack([every_DSC[d - 1, i] for i, d in enumerate(layers.tolist())])
    torch.testing.assert_close(logits, right, rtol=0, atol=1e-5)


@pytest.mark.parametrize("kind", ENCODERS)
@pytest.mark.parametrize("pooling", ["cls", "mean", "depths"])
def test_a_layer_reads_what_an_encoder_of_that_depth_has(kind: str, pooling: HeadInput) -> None:
    """The classifier of every layer against an encoder that ends there."""
    found = model(kind, pooling)
    with torch.no_grad():
        every_DSC = found.every_logits(batch())
        for d in range(1, DEPTH + 1):
            out = found.base.encoder(batch(), depth=d, all_depths=True)
            if pooling == "cls":
                x_SH = found.base.pooled(out.last_hidden[found.base.summary_rows(batch())])
            else:
                states = out.hidden_states if pooling == "depths" else (out.last_hidden,)
                x_SH = torch.stack(
                    [torch.stack([own.mean(0) for own in x.split(LENGTHS)]) for x in states]
                ).mean(0)
            torch.testing.assert_close(every_DSC[d - 1], found.layer(d)(x_SH), rtol=0, atol=1e-5)
        torch.testing.assert_close(every_DSC[-1], found(batch()), rtol=0, atol=1e-5)


@pytest.mark.parametrize("kind", ENCODERS)
def test_other_texts_do_not_matter(kind: str) -> None:
    found, rule = model(kind, "cls"), ExitRule(patience=1)
    logits, layers = found.leaving(batch(), rule)
    assert len(set(layers.tolist())) > 1  # else nothing left while others stayed
    for i in range(len(LENGTHS)):
        alone, layer = found.leaving(batch([i]), rule)
        assert layer.item() == layers[i]
        torch.testing.assert_close(alone[0], logits[i], rtol=0, atol=1e-5)


def test_other_work_between_layers_changes_nothing() -> None:
    """As the server interrupts a pass by shorter ones."""
    found, rule = model(pooling="depths"), ExitRule(patience=1)
    right, layers = found.leaving(batch(), rule)
    called = list[int]()

    def between(done: int, depth: int) -> None:
        called.append(done)
        found.leaving(batch([3]), rule)

    with calling_between_layers(between):
        logits, again = found.leaving(batch(), rule)
    assert called == list(range(1, max(layers.tolist())))
    assert torch.equal(again, layers) and torch.equal(logits, right)


@pytest.mark.parametrize("precision", ["bfloat16", "int8"])
@pytest.mark.parametrize("pooling", ["cls", "depths"])
def test_who_never_leaves_early_has_the_logits_of_all_layers(
    pooling: HeadInput, precision: InferencePrecision
) -> None:
    """Catches: a head in another number format than without early exit."""
    found = model(pooling=pooling)
    found.base.encoder.precision = precision
    logits, layers = found.leaving(batch(), ExitRule(confidence=1))
    with torch.no_grad():
        right = found(batch())
    assert (layers == DEPTH).all()
    torch.testing.assert_close(logits, right, rtol=0, atol=0.05 * float(right.abs().max()))


def test_each_layer_has_its_own_whitening() -> None:
    """Catches: the whitening of another layer, folded into a saved head."""
    found, drawn = model(pooling="depths"), torch.Generator().manual_seed(0)
    found.set_whitening(
        torch.randn(DEPTH, 24, generator=drawn), torch.randn(DEPTH, 24, 24, generator=drawn) / 5
    )
    with torch.no_grad():
        before = found.every_logits(batch())
        found.load_head(found.head)
        assert found.mean is None
        torch.testing.assert_close(found.every_logits(batch()), before, rtol=1e-4, atol=1e-4)


def test_a_text_beyond_the_positions_is_refused() -> None:
    ids = np.ones(65, np.int32)
    with pytest.raises(SettingsError, match="65"):
        model().leaving(pack([ids], [np.zeros(65, np.int8)], None), ExitRule(patience=1))


@pytest.mark.parametrize(
    "text", ["", "patience", "patience=", "patience=0", "patience=1.5", "confidence=0", "confidence=2", "x=1"]
)
def test_other_rules_are_refused(text: str) -> None:
    with pytest.raises(SettingsError, match="early exit") as caught:
        ExitRule.parse(text)
    assert "patience=N" in str(caught.value)
