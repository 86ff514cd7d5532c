"""The format of `torch.autocast`, and that of the weights, is used."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from albertine.model.answerability_head import JointAnswer
from albertine.model.crf import CrfTagger
from albertine.model.incremental_decoding import decode_step
from albertine.model.model import Model
from albertine.model.relation_head import Relations
from albertine.model.sharing import SharingPlan
from albertine.model.task_model import Classifier, Embedder, Seq2Seq, WhitenedEmbedder
from tests import reference
from tests.model import builders

MODES = [torch.enable_grad, torch.no_grad, torch.inference_mode]
every_mode = pytest.mark.parametrize("mode", MODES)
BATCH = builders.packed([5, 9, 3])
ROWS = torch.tensor([1, 7, 16])


def build(precision: str = "float32", recompute: bool = False) -> Model:
    model = builders.model(SharingPlan.grouped(4, 2), initializer_range=0.1)
    model.precision, model.encoder.recompute = precision, recompute  # type: ignore[assignment]
    return model


def outputs(model: Model) -> dict[str, Tensor]:
    """All outputs that a model can return."""
    logits, sentence = model.pretraining_forward(BATCH, ROWS)
    padded = model(*builders.padded(BATCH), output_hidden_states=True)
    rows = model.encoder(BATCH, rows=ROWS).last_hidden
    read, cache = decode_step(model.encoder, BATCH)
    assert sentence is not None and padded.pooler_output is not None and padded.hidden_states is not None
    return {
        "logits": logits,
        "sentence": sentence,
        "padded": padded.last_hidden_state,
        "pooled": padded.pooler_output,
        "state": padded.hidden_states[1],
        "rows": rows,
        "mlm": model.mlm_logits(rows),
        "order": model.sentence_logits(rows),
        "extended": read,
        "keys": cache.keys[1],
    }


@pytest.mark.sample
@every_mode
@pytest.mark.parametrize("precision", ["float32", "auto"])
@pytest.mark.parametrize("backend", ["auto", "plain"])
def test_autocast_is_the_precision_to_the_bit(mode: Any, precision: str, backend: str) -> None:
    model, other = build(precision), build("bfloat16")
    model.encoder.backend = other.encoder.backend = backend
    with mode():
        with torch.autocast("cpu", dtype=torch.bfloat16):
            found = outputs(model)
            assert torch.is_autocast_enabled("cpu")
        expected = outputs(other)
        exact = outputs(build("float32"))
    for name, x in found.items():
        assert x.dtype == torch.bfloat16 and torch.equal(x, expected[name]), name
        assert not torch.equal(x.float(), exact[name]), name


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("inside", [False, True], ids=["backward outside", "backward inside"])
def test_gradients_under_autocast_are_float32_and_those_of_the_precision(
    recompute: bool, inside: bool
) -> None:
    found = []
    for model, autocast in ((build("float32", recompute), True), (build("bfloat16", recompute), False)):
        model.train()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
            logits, sentence = model.pretraining_forward(BATCH, ROWS)
            assert sentence is not None
            loss = logits.float().square().mean() + sentence.float().square().mean()
            if inside:
                loss.backward()
        if not inside:
            loss.backward()
        found.append({name: p.grad for name, p in model.named_parameters() if p.grad is not None})
    ours, theirs = found
    assert ours.keys() == theirs.keys() and len(ours) == len(list(model.parameters()))
    for name, gradient in ours.items():
        assert gradient.dtype == torch.float32 and torch.equal(gradient, theirs[name]), name
        assert gradient.abs().max() > 0


def test_a_requested_format_is_kept_under_autocast() -> None:
    with torch.inference_mode(), torch.autocast("cpu", dtype=torch.float16):
        assert build("bfloat16").encoder(BATCH).last_hidden.dtype == torch.bfloat16
        rough = build("float32").encoder(BATCH).last_hidden
    exact = build().encoder(BATCH).last_hidden
    assert rough.dtype == torch.float16
    torch.testing.assert_close(rough.float(), exact, atol=0.02, rtol=0.02)


def test_autocast_switched_off_again_inside() -> None:
    model = build()
    with torch.inference_mode(), torch.autocast("cpu", dtype=torch.bfloat16):
        with torch.autocast("cpu", enabled=False):
            inner = model.encoder(BATCH).last_hidden
        assert model.encoder(BATCH).last_hidden.dtype == torch.bfloat16
    with torch.inference_mode():
        assert torch.equal(inner, model.encoder(BATCH).last_hidden)


TUNED = {
    "classifier": lambda base: Classifier(base, 3),
    "tokens": lambda base: Classifier(base, 3, per_token=True),
    "writer": lambda base: Seq2Seq(base, 0.0),
    "embedder": Embedder,
    "first": lambda base: Embedder(base, "cls"),
    "whitened": WhitenedEmbedder,
    "joint": JointAnswer,
    "crf": lambda base: CrfTagger(base, [[True] * 4] * 4),
    "relations": lambda base: Relations(base, 2),
}
SOURCES = builders.packed([5, 9, 7])


def answers(tuned: Any) -> list[Tensor]:
    """The outputs of a task model, in training with its loss inputs."""
    if isinstance(tuned, Relations):
        return list(tuned(SOURCES, torch.tensor([[1, 2], [6, 6], [15, 16]])))
    if isinstance(tuned, Seq2Seq):
        return [tuned(replace(SOURCES, prefix=(3, 4, 2)))]
    found = [tuned(SOURCES)]
    if isinstance(tuned, CrfTagger):
        tags = torch.arange(SOURCES.num_tokens) % 3
        found.append(tuned.log_likelihood(found[0], SOURCES, tags) / SOURCES.num_tokens)
        tuned.tags(SOURCES)
    if isinstance(tuned, JointAnswer) and tuned.training:
        found += tuned.learn(SOURCES, torch.tensor([3, 0, 4]))
    return found


@pytest.mark.sample
@every_mode
@pytest.mark.parametrize("name", TUNED)
def test_task_models_under_autocast(mode: Any, name: str) -> None:
    """Near what their precision gives; their own layers are rounded by autocast."""
    found = []
    for precision, autocast in (("float32", True), ("bfloat16", False)):
        tuned: Any = TUNED[name](build(precision))
        tuned.dropout = 0.0
        tuned.train(mode is torch.enable_grad)
        with mode():
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
                x = answers(tuned)
            if mode is torch.enable_grad:
                sum(each.float().clamp(-10, 10).square().mean() for each in x).backward()  # type: ignore[union-attr]
                gradient = tuned.base.encoder.attention[0].query.weight.grad
                assert gradient.dtype == torch.float32 and gradient.abs().max() > 0
        found.append(x)
    for a, b in zip(*found, strict=True):
        if name == "joint":  # its places are integers that rounding may exchange
            assert a.shape == b.shape
        else:
            torch.testing.assert_close(a.float(), b.float(), atol=0.05, rtol=0.05)


def test_vectors_are_whitened_in_float32_under_autocast() -> None:
    plain, whitened = Embedder(build()), WhitenedEmbedder(build())
    torch.manual_seed(0)
    whitened.mean.normal_()
    whitened.matrix.normal_()
    with torch.inference_mode(), torch.autocast("cpu", dtype=torch.bfloat16):
        vectors, found = plain(SOURCES), whitened(SOURCES)
    assert found.dtype == vectors.dtype == torch.float32
    assert torch.equal(found, (vectors - whitened.mean) @ whitened.matrix)


@every_mode
@pytest.mark.parametrize(
    ("method", "dtype", "bound"),
    [("bfloat16", torch.bfloat16, 0.1), ("half", torch.float16, 0.02), ("double", torch.float64, 1e-5)],
)
def test_weights_of_another_format_compute_in_it(
    mode: Any, method: str, dtype: torch.dtype, bound: float
) -> None:
    exact, model = build(), getattr(build(), method)()
    with mode():
        found, expected = outputs(model), outputs(exact)
        if mode is torch.enable_grad:
            (found["logits"].square().mean() + found["sentence"].square().mean()).backward()
            assert {p.grad.dtype for p in model.parameters() if p.grad is not None} == {dtype}
    for name, x in found.items():
        assert x.dtype == dtype, name
        torch.testing.assert_close(x.float(), expected[name].float(), atol=bound, rtol=bound)
        assert not torch.equal(x.float(), expected[name]), name


def test_double_is_computed_in_double() -> None:
    model = build().double()
    ids, mask, types = builders.padded(BATCH)
    with torch.no_grad():
        found = model(ids, mask, types).last_hidden_state
        expected = reference.encode(model, ids, mask, types)[-1]
    # The reference's additive mask is float32, and exact for ones.
    torch.testing.assert_close(found[mask.bool()], expected[mask.bool()], atol=1e-12, rtol=1e-10)


@every_mode
def test_a_model_called_within_another_computes_as_it_does_alone(mode: Any) -> None:
    """As a teacher in a hook of its student: a running pass belongs to its own encoder."""
    outer, inner = build("bfloat16"), build("float32")
    with mode():
        alone = inner.encoder(BATCH).last_hidden
        with outer.encoder.forward_pass() as pass_of_outer:
            within = inner.encoder(BATCH).last_hidden
            with outer.encoder.forward_pass() as still:
                assert still is pass_of_outer
    assert within.dtype == alone.dtype == torch.float32
    assert torch.equal(within, alone)
