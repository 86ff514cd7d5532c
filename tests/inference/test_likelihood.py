"""Log-likelihoods against a slow loop over the padded reference, one sentence, or masked copy, at a time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from albertine.core.batch import Packed
from albertine.errors import ModelError, SettingsError
from albertine.inference import likelihood
from albertine.inference.likelihood import (
    CausalLikelihood,
    MaskedInput,
    PseudoLikelihood,
    score_masked_tokens,
)
from albertine.model.config import EncoderConfig
from albertine.model.model import Model
from albertine.model.sharing import SharingPlan
from albertine.tokenizers.base import Tokenizer
from albertine.tokenizers.load import load_tokenizer
from tests import reference
from tests.toy import toy_vocabulary

TEXTS = [
    "The cats are asleep.",
    "The cats is asleep.",
    "Nobody has ever seen the house by the river.",
    "The cats are asleep.",
    "Ever nobody has seen the house by the river.",
    "",
]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return load_tokenizer(toy_vocabulary(tmp_path_factory.mktemp("likelihood"), 60_000)[1])


def made(heads: set[str] | None = None, **changes: Any) -> Model:
    settings = {
        "vocab_size": 500,
        "embedding_size": 8,
        "hidden_size": 24,
        "num_attention_heads": 4,
        "intermediate_size": 40,
        "max_position_embeddings": 64,
        "initializer_range": 0.4,
        "plan": SharingPlan.shared(2),
    }
    return Model(EncoderConfig(**(settings | changes)), heads or {"mlm", "sop"}).eval()


def slow(model: Model, tokenizer: Tokenizer, text: str, depth: int = -1) -> float:
    ids, types = tokenizer.layout(tokenizer.encode(text))
    total = 0.0
    for place in range(1, len(ids) - 1):
        masked = [*ids[:place], tokenizer.mask_id, *ids[place + 1 :]]
        row, mask, segments = (torch.tensor([x]) for x in (masked, [1] * len(ids), types))
        hidden = reference.encode(model, row, mask, segments)[depth]
        total += float(reference.mlm_logits(model, hidden)[0, place].log_softmax(-1)[ids[place]])
    return total


def slow_causal(model: Model, tokenizer: Tokenizer, text: str, depth: int = -1) -> float:
    """Each token by a pass over [CLS] and the tokens before it alone."""
    ids, types = tokenizer.layout(tokenizer.encode(text))
    total = 0.0
    for place in range(1, len(ids) - 1):
        row, segments = (torch.tensor([x[:place]]) for x in (ids, types))
        mask = torch.ones(1, place, place).tril()
        hidden = reference.encode(model, row, mask, segments)[depth]
        total += float(reference.mlm_logits(model, hidden)[0, -1].log_softmax(-1)[ids[place]])
    return total


@torch.no_grad()
@pytest.mark.parametrize("positions", ["learned", "rotary"])
def test_from_left_to_right_against_the_reference(
    tokenizer: Tokenizer, positions: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = made(positions=positions)
    expected = [slow_causal(model, tokenizer, text) for text in TEXTS]
    assert len(set(expected)) == 5 and expected[-1] == 0
    calls: list[tuple[int, int | None]] = []
    found = CausalLikelihood(model, tokenizer)(TEXTS, lambda done, total: calls.append((done, total)))
    np.testing.assert_allclose(found.nats, expected, rtol=1e-4)
    assert found.tokens.tolist() == [len(tokenizer.encode(text)) for text in TEXTS]
    assert found.nats[0] == found.nats[3] and calls[-1][0] == calls[-1][1]
    monkeypatch.setattr(likelihood, "ROWS", 3)
    model.batch_tokens = 12
    again = CausalLikelihood(model, tokenizer)(TEXTS)
    np.testing.assert_allclose(again.nats, expected, rtol=1e-4)
    for depth in (0, 1):
        one = CausalLikelihood(model, tokenizer, depth=depth)(TEXTS[:3])
        slow_ones = [slow_causal(model, tokenizer, text, depth) for text in TEXTS[:3]]
        np.testing.assert_allclose(one.nats, slow_ones, rtol=1e-4)


@torch.no_grad()
def test_from_left_to_right_a_score_does_not_depend_on_other_texts(tokenizer: Tokenizer) -> None:
    score = CausalLikelihood(made(), tokenizer)
    together = score(TEXTS).nats
    np.testing.assert_allclose([score([text]).nats[0] for text in TEXTS], together, rtol=1e-5)
    np.testing.assert_allclose(score(TEXTS[::-1]).nats[::-1], together, rtol=1e-5)
    with pytest.raises(ModelError, match="no masked-LM head"):
        CausalLikelihood(made({"sop"}), tokenizer)
    with pytest.raises(SettingsError, match="and the model reads 8"):
        CausalLikelihood(made(max_position_embeddings=8), tokenizer)(TEXTS)


@torch.no_grad()
def test_against_the_reference(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    model = made()
    expected = [slow(model, tokenizer, text) for text in TEXTS]
    assert len(set(expected)) == 5 and expected[-1] == 0
    calls: list[tuple[int, int | None]] = []
    found = PseudoLikelihood(model, tokenizer)(TEXTS, lambda done, total: calls.append((done, total)))
    np.testing.assert_allclose(found.nats, expected, rtol=1e-4)
    assert found.tokens.tolist() == [len(tokenizer.encode(text)) for text in TEXTS]
    assert found.nats[0] == found.nats[3] and calls[-1][0] == calls[-1][1]
    monkeypatch.setattr(likelihood, "COPIES", 7)  # sentences in chunks of their own
    model.batch_tokens = 20
    calls.clear()
    again = PseudoLikelihood(model, tokenizer)(TEXTS, lambda done, total: calls.append((done, total)))
    np.testing.assert_allclose(again.nats, expected, rtol=1e-4)
    assert len(calls) > 2


@torch.no_grad()
@pytest.mark.parametrize("plan", [SharingPlan.shared(2), SharingPlan.unshared(2)])
def test_a_depth_is_scored_by_the_head_on_the_states_of_its_layer(
    tokenizer: Tokenizer, plan: SharingPlan
) -> None:
    model = made(plan=plan)
    for depth in (0, 1, 2):
        found = PseudoLikelihood(model, tokenizer, depth=depth)(TEXTS[:3])
        expected = [slow(model, tokenizer, text, depth) for text in TEXTS[:3]]
        np.testing.assert_allclose(found.nats, expected, rtol=1e-4)


def test_what_sentences_share_is_computed_once(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    model, seen = made(), 0
    inner = model.encoder.forward

    def counting(packed: Packed, **how: Any) -> Any:
        nonlocal seen
        seen += packed.num_sequences
        assert len(how["rows"]) == packed.num_sequences, "the last depth computes the masked rows alone"
        return inner(packed, **how)

    monkeypatch.setattr(model.encoder, "forward", counting)
    good, bad = "the cat", "the dog"
    one, two = tokenizer.encode(good), tokenizer.encode(bad)
    texts = [good, bad, good]
    copies = {(*row[:i], -1, *row[i + 1 :]) for row in (one, two) for i in range(len(row))}
    PseudoLikelihood(model, tokenizer)(texts)
    assert seen == len(copies)
    if len(one) == len(two):
        assert seen < len(one) + len(two)


def test_neither_head_nor_room(tokenizer: Tokenizer, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no masked-LM head"):
        PseudoLikelihood(made({"sop"}), tokenizer, tmp_path)
    score = PseudoLikelihood(made(max_position_embeddings=8), tokenizer)
    with pytest.raises(SettingsError, match=r"`The cats are asleep\.` has \d+ tokens, and the model reads 8"):
        score(TEXTS)
    longest = max(len(tokenizer.layout(ids)[0]) for ids in tokenizer.encode_batch(TEXTS))
    assert len(PseudoLikelihood(made(max_position_embeddings=longest), tokenizer)(TEXTS).nats) == len(TEXTS)


@torch.no_grad()
def test_answers_come_in_the_order_of_the_questions(tokenizer: Tokenizer) -> None:
    model, questions = made(type_vocab_size=1), []
    for text in ("A cat.", "The house by the river is old.", "He said nothing."):
        ids, _ = tokenizer.layout(tokenizer.encode(text))
        places = [1, len(ids) - 2]
        masked = [tokenizer.mask_id if i in places else token for i, token in enumerate(ids)]
        questions.append(MaskedInput(masked, [1] * len(ids), places, [ids[i] for i in places]))
    for question, answer in zip(questions, score_masked_tokens(model, questions), strict=True):
        row = torch.tensor([question.ids])
        hidden = reference.encode(model, row, torch.ones_like(row), torch.zeros_like(row))[-1]
        logits = reference.mlm_logits(model, hidden)[0, question.places]
        labels = torch.tensor(question.labels)
        expected = logits.log_softmax(-1)[range(2), labels]
        np.testing.assert_allclose(answer.log_probabilities, expected, rtol=1e-4)
        assert answer.right.tolist() == (logits.argmax(-1) == labels).tolist()


def test_a_scorer_leaves_the_mode_as_it_was(tokenizer: Tokenizer) -> None:
    model = made(hidden_dropout_prob=0.5).train()
    texts: Sequence[str] = TEXTS[:2]
    score = PseudoLikelihood(model, tokenizer)
    assert score(texts).nats.tolist() == score(texts).nats.tolist(), "dropout is off"
    assert model.training
