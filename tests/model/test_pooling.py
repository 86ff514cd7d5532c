"""Text vectors against loops over the sequences."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import numpy as np
import pytest
import torch

from albertine.core.batch import pack
from albertine.model.config import EncoderConfig
from albertine.model.model import Model
from albertine.model.pooling import Pooling, mean_rows, text_vectors
from albertine.model.sharing import SharingPlan
from albertine.model.task_model import Classifier, Embedder


def toy(depth: int = 2) -> Model:
    config = EncoderConfig(
        vocab_size=50,
        embedding_size=8,
        hidden_size=16,
        num_attention_heads=2,
        intermediate_size=24,
        plan=SharingPlan.shared(depth),
        max_position_embeddings=32,
        initializer_range=0.3,
    )
    return Model(config, {"pooler"}, seed=5).eval()


PACKED = pack([np.arange(n) + 3 for n in (7, 1, 20, 2)])


def test_the_mean_is_over_the_tokens_of_a_sequence_and_no_other() -> None:
    x = torch.randn(PACKED.num_tokens, 6, generator=torch.Generator().manual_seed(1), requires_grad=True)
    found = mean_rows(x, PACKED.first_tokens)
    expected = torch.stack([part.mean(0) for part in x.split(list(PACKED.lengths))])
    torch.testing.assert_close(found, expected)
    weights = torch.randn(4, 6, generator=torch.Generator().manual_seed(2))
    (mine,) = torch.autograd.grad((found * weights).sum(), x)
    (wanted,) = torch.autograd.grad((expected * weights).sum(), x)
    torch.testing.assert_close(mine, wanted)


def test_a_text_has_the_same_vector_alone_and_in_company() -> None:
    model = toy()
    with torch.no_grad():
        for pooling in get_args(Pooling):
            together = Embedder(model, pooling)(PACKED)
            assert together.shape == (4, 16) and together.dtype == torch.float32
            for i, length in enumerate(PACKED.lengths):
                states = model.encoder(pack([np.arange(length) + 3]), all_depths=True).hidden_states
                assert states is not None and len(states) == 3
                means = [x.mean(0) for x in states]
                expected = {"mean": means[-1], "cls": states[-1][0], "depths": sum(means) / 3}[pooling]
                torch.testing.assert_close(together[i], expected, atol=1e-5, rtol=1e-5)


def test_normalised_vectors_have_length_one_and_the_same_direction() -> None:
    model = toy()
    with torch.no_grad():
        plain, unit = (text_vectors(model, PACKED, "mean", normalize) for normalize in (False, True))
    torch.testing.assert_close(unit.norm(dim=1), torch.ones(4))
    torch.testing.assert_close(unit * plain.norm(dim=1, keepdim=True), plain)


def test_an_embedder_learns_and_has_no_head() -> None:
    model = Embedder(toy()).train()
    assert model.head == {}
    model(PACKED).square().sum().backward()
    used = {name for name, p in model.named_parameters() if p.grad is not None}
    assert "base.encoder.embeddings.word.weight" in used
    assert not any("pooler" in name for name in used)


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_of_first_tokens_alone_the_last_depth_is_computed_once(pooling: str) -> None:
    """The two ways differ in what they compute, not in what they read."""
    model = toy(1)
    with torch.no_grad():
        whole = model.encoder(PACKED).last_hidden
        found = Embedder(model, pooling)(PACKED)  # type: ignore[arg-type]
    first = whole[PACKED.first_tokens]
    assert torch.allclose(found, first, atol=1e-5) == (pooling == "cls")


@pytest.mark.parametrize("pooling", get_args(Pooling))
def test_a_classifier_looks_at_a_mean_or_at_the_pooled_first_token(pooling: Pooling) -> None:
    base = toy()
    model = Classifier(base, 3, pooling=pooling, seed=2).eval()
    layer = model.get_submodule("classifier")
    with torch.no_grad():
        found = model(PACKED)
        for i, length in enumerate(PACKED.lengths):
            alone = pack([np.arange(length) + 3])
            seen = text_vectors(base, alone, pooling)
            seen = (base.pooled(seen) if pooling == "cls" else seen)[0]
            torch.testing.assert_close(found[i], layer(seen), atol=1e-5, rtol=1e-5)


def test_a_classifier_of_whitened_vectors_is_one_layer_in_files() -> None:
    """Its logits in training equal those of a classifier with the layer of its files on the plain vectors."""
    base = toy()
    model, plain = (Classifier(base, 3, pooling="depths", seed=seed).eval() for seed in (2, 3))
    drawn = torch.Generator().manual_seed(5)
    mean, matrix = torch.randn(16, generator=drawn), torch.randn(16, 16, generator=drawn)
    with torch.no_grad():
        before = model(PACKED)
        model.set_whitening(mean, matrix)
        model.get_submodule("classifier").bias.add_(0.5)
        plain.load_head(model.head)
        assert not torch.allclose(model(PACKED), before, atol=0.1)
        torch.testing.assert_close(plain(PACKED), model(PACKED), atol=1e-4, rtol=1e-4)
        layer = model.get_submodule("classifier")
        seen = (text_vectors(base, PACKED, "depths") - mean) @ matrix
        torch.testing.assert_close(model(PACKED), layer(seen))
        found = model(PACKED)
        model.load_head(model.head)  # as after a run, when the best model is read back
        assert model.mean is None and set(model.head) == {"classifier.weight", "classifier.bias"}
        torch.testing.assert_close(model(PACKED), found, atol=1e-4, rtol=1e-4)


def test_cls_may_be_the_last_token_and_padding_may_be_on_the_left() -> None:
    """XLNet's layout: pooler, classifier, sentence head and vector look at the last token, wherever the
    padding of a padded call is."""
    config = replace(toy().config, summary="last", positions="rotary", type_vocab_size=0)
    model = Model(config, {"pooler", "mlm", "sop"}, seed=5).eval()
    with torch.no_grad():
        states = model.encoder(PACKED).last_hidden
        ends = torch.stack([part[-1] for part in states.split(list(PACKED.lengths))])
        torch.testing.assert_close(text_vectors(model, PACKED, "cls"), ends)
        classifier = Classifier(model, 3, seed=1).eval()
        torch.testing.assert_close(classifier(PACKED), classifier.classifier(model.pooled(ends)))
        order = model.pretraining_forward(PACKED, torch.tensor([2]))[1]
        torch.testing.assert_close(order, model.sentence_logits(ends))
        rows = PACKED.input_ids.split(list(PACKED.lengths))
        for side in ("left", "right"):
            ids, mask = torch.full((4, 24), 7), torch.zeros(4, 24, dtype=torch.long)
            for row, tokens in enumerate(rows):
                here = slice(24 - len(tokens), 24) if side == "left" else slice(len(tokens))
                ids[row, here], mask[row, here] = tokens, 1
            out = model(ids, mask, token_type_ids=3 - 3 * mask)
            torch.testing.assert_close(out.pooler_output, model.pooled(ends))
            torch.testing.assert_close(out.last_hidden_state[mask == 1], states)
            assert not out.last_hidden_state[mask == 0].any()
