"""The encoder without gradients: in fused kernels and in int8 it equals, or is near, the slow reference."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from albertine.core.batch import pack
from albertine.core.precision import ComputeFormat
from albertine.errors import SettingsError
from albertine.model.backend import autotune, backend_for
from albertine.model.block import FeedForwardBlock
from albertine.model.model import Model
from tests import reference
from tests.model import builders


@given(builders.plans(), builders.lengths, st.data())
def test_inference_equals_the_reference(plan, lengths, data):
    """Without gradients blocks run in fused kernels over a rounded number of rows."""
    model, batch = builders.model(plan), builders.packed(lengths)
    row = st.integers(0, batch.num_tokens - 1)
    rows = torch.tensor(data.draw(st.lists(row, unique=True, min_size=1)))
    with torch.inference_mode():
        found = model.encoder(batch).last_hidden
        wanted = model.encoder(batch, rows=rows).last_hidden
    hidden = reference.encode(model, *builders.padded(batch))[-1]
    right = torch.cat([hidden[i, :n] for i, n in enumerate(batch.lengths)])
    torch.testing.assert_close(found, right, atol=3e-5, rtol=1e-4)
    torch.testing.assert_close(wanted, right[rows], atol=3e-5, rtol=1e-4)


@given(builders.lengths)
def test_int8_stays_near_float32(lengths):
    model, batch = builders.model(initializer_range=0.1), builders.packed(lengths)
    with torch.inference_mode():
        exact = model.encoder(batch).last_hidden
        model.precision = "int8"
        rough = model.encoder(batch).last_hidden
        first = model.encoder(batch, rows=batch.first_tokens).last_hidden
    assert F.cosine_similarity(rough.float(), exact).min() > 0.995
    torch.testing.assert_close(first.float(), rough[batch.first_tokens].float(), atol=0.1, rtol=0.1)


def test_weights_that_change_are_laid_out_again() -> None:
    model, batch = builders.model(), builders.packed([5, 9])
    with torch.no_grad():
        before = model.encoder(batch).last_hidden
        model.encoder.feed_forward[0].output.weight.mul_(2)
        after = model.encoder(batch).last_hidden
        hidden = reference.encode(model, *builders.padded(batch))[-1]
    assert not torch.allclose(before, after)
    torch.testing.assert_close(after[:5], hidden[0, :5], atol=3e-5, rtol=1e-4)


def test_int8_is_for_inference() -> None:
    model, batch = builders.model(), builders.packed([5])
    model.precision = "int8"
    with pytest.raises(SettingsError, match="int8 is for inference"):
        model.encoder(batch)
    with torch.inference_mode(), pytest.raises(SettingsError, match="int8 is for inference"):
        model.train().encoder(batch)


class Wrapped(FeedForwardBlock):
    pass


def wrapped(model: Model) -> None:
    model.encoder.feed_forward[0].__class__ = Wrapped


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda model: setattr(model.encoder, "backend", "plain"), "the backend `plain` has no int8"),
        (lambda model: setattr(model.encoder, "backend", "cuda"), "the backend `cuda` has no int8"),
        (wrapped, "a block that is wrapped, compiled or of another class has no int8"),
        (
            lambda model: model.encoder.attention[0].compile(backend="aot_eager"),
            "a block that is wrapped, compiled or of another class has no int8",
        ),
        (
            lambda model: model.encoder.feed_forward[0].compile(backend="aot_eager"),
            "a block that is wrapped, compiled or of another class has no int8",
        ),
        (lambda model: model.encoder.compile(backend="aot_eager"), r"torch\.compile makes has no int8"),
    ],
)
@pytest.mark.filterwarnings("ignore:Dynamo detected a call")
def test_int8_is_refused_where_it_would_not_be_computed(
    change: Callable[[Model], object], message: str
) -> None:
    torch._dynamo.reset()
    model, batch = builders.model(), builders.packed([5, 9])
    model.precision = "int8"
    with torch.inference_mode():
        model.encoder(batch)
        change(model)
        with pytest.raises(SettingsError, match=message):
            model.encoder(batch)
        model.precision = "float32"
        assert model.encoder(batch).last_hidden.isfinite().all()
    torch._dynamo.reset()


def test_int8_is_for_processors() -> None:
    form, card = ComputeFormat(torch.bfloat16, int8=True), torch.device("cuda")
    for name in ("auto", "onednn", "cuda", "plain"):
        with torch.inference_mode(), pytest.raises(SettingsError, match="int8 is for processors"):
            backend_for(name, form, card, weights_stay=True, compiled=False)


@pytest.mark.usefixtures("products_in_int8")
@pytest.mark.parametrize("precision", ["float32", "bfloat16", "int8"])
def test_a_text_is_answered_alike_alone_and_among_others(precision: str) -> None:
    """One of the others has rows that reach far: its scale must not apply to the others."""
    model = builders.model(initializer_range=0.1)
    with torch.no_grad():
        model.encoder.embeddings.word.weight[7] *= 1000
    one, *others = builders.sequences([9] + [11] * 20)
    others[4][:] = 7
    model.precision = precision  # type: ignore[assignment]
    with torch.inference_mode():
        alone = model.encoder(pack([one])).last_hidden.float()
        among = model.encoder(pack([*others, one])).last_hidden[-9:].float()
    bound = 2e-5 if precision == "float32" else 0.02
    assert (alone - among).abs().max() <= bound


@pytest.mark.parametrize("form", ["unsigned", "32-bit sums"])
def test_in_int8_a_text_is_answered_alike_alone_and_among_63_others(
    form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But for few: a float difference in the last bit may fall on the edge between two integers."""
    monkeypatch.setattr("albertine.core.precision.fast_bfloat16", lambda device: False)
    model = builders.model(
        hidden_size=64, intermediate_size=256, initializer_range=0.1, hidden_act="gelu_new"
    )
    texts = builders.sequences([1 + i % 12 + i % 7 for i in range(64)], seed=3)
    texts[40][:] = 7
    for text in (*texts[:40], *texts[41:]):
        text[text == 7] = 8
    with torch.no_grad():
        model.encoder.embeddings.word.weight[7] *= 1000
    model.precision = "int8"
    with autotune.fixed(int8=form), torch.inference_mode():
        together = model.encoder(pack(texts)).last_hidden
        alone = torch.cat([model.encoder(pack([text])).last_hidden for text in texts])
    assert together.dtype == torch.float32
    apart = (together - alone).abs().amax(1)
    count = int((apart > 1e-5).sum())
    assert count <= len(apart) // 20, f"{count} of {len(apart)} rows are more than 1e-5 apart"
    assert apart.max() < 0.1, "and those on an edge by an integer or two"


def test_without_kernels() -> None:
    model, batch = builders.model(), builders.packed([5, 9])
    with autotune.fixed(float32="plain", bfloat16="plain"), torch.inference_mode():
        found = model.encoder(batch).last_hidden
    hidden = reference.encode(model, *builders.padded(batch))[-1]
    torch.testing.assert_close(found[5:], hidden[1, :9], atol=3e-5, rtol=1e-4)
