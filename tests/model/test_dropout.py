"""Dropout counted at each of its four sites: embeddings, attention weights, attention output, feed-forward
output.

The model's weights are set so that the output shows what was dropped where. Norms are taken away.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from albertine.core.batch import Packed, pack
from albertine.core.randomness import seed_torch
from albertine.model.model import Model
from albertine.model.pair_head import Comparer
from albertine.model.relation_head import Relations
from albertine.model.sharing import SharingPlan
from albertine.model.task_model import Classifier
from tests.model import builders

WIDTH, HEADS = 16, 4
BACKENDS = [("plain", "float32"), ("plain", "bfloat16"), ("onednn", "float32"), ("onednn", "bfloat16")]
every_backend = pytest.mark.parametrize(("backend", "precision"), BACKENDS)


def transparent(backend: str, precision: str, **changes: object) -> Model:
    """A model in training whose products all give 0 and whose norms change nothing."""
    settings: dict[str, object] = {
        "embedding_size": WIDTH,
        "hidden_size": WIDTH,
        "num_attention_heads": HEADS,
        "intermediate_size": 32,
        "max_position_embeddings": 128,
        "hidden_act": "relu",
    }
    plan = changes.pop("plan", SharingPlan.shared(1))
    config = builders.config(plan, **(settings | changes))  # type: ignore[arg-type]
    model = Model(config, {"mlm", "sop"}, precision=precision)  # type: ignore[arg-type]
    with torch.no_grad():
        for p in model.encoder.parameters():
            p.zero_()
    model.encoder.backend = backend
    model.encoder.embeddings.layer_norm = nn.Identity()  # type: ignore[assignment]
    for block in (*model.encoder.attention, *model.encoder.feed_forward):
        block.layer_norm = nn.Identity()
    seed_torch(0, "dropout")
    return model.train()


def with_sites(model: Model, embeddings: float, attention: float, feed_forward: float) -> Model:
    """What each site carries before its dropout, the same in every place. It comes through all layers before
    the site, so that a dropout inside of these would give other values."""
    encoder = model.encoder
    with torch.no_grad():
        encoder.embeddings.word.weight.fill_(embeddings)
        for block in encoder.attention:
            block.value.bias.fill_(1.0)
            block.output.weight.fill_(attention / WIDTH)
        for block in encoder.feed_forward:
            block.intermediate.bias.fill_(1.0)
            block.output.weight.fill_(feed_forward / 32)
    return model


def batch(sequences: int = 24, length: int = 24) -> Packed:
    return pack([torch.full((length,), 7).numpy()] * sequences)


def shares(x: Tensor) -> dict[float, float]:
    """The values that occur, but for rounding, and how often."""
    values, counts = x.detach().float().flatten().round(decimals=1).unique(return_counts=True)
    return dict(zip(values.tolist(), (counts / x.numel()).tolist(), strict=True))


@every_backend
@pytest.mark.parametrize("feed_forward", [True, False], ids=["google", "transformers"])
def test_hidden_dropout_behind_embeddings_attention_and_feed_forward(
    backend: str, precision: str, feed_forward: bool
) -> None:
    """The three carry 1, 4 and 16: every sum of what is left of them is another number."""
    model = transparent(backend, precision, hidden_dropout_prob=0.5, feed_forward_dropout=feed_forward)
    out = with_sites(model, 1, 4, 16).encoder(batch()).last_hidden
    last = (0.0, 32.0) if feed_forward else (16.0,)
    expected = {e + a + f for e in (0.0, 2.0) for a in (0.0, 8.0) for f in last}
    found = shares(out)
    assert set(found) == expected
    for value, share in found.items():
        assert share == pytest.approx(1 / len(expected), abs=0.02), value


@every_backend
def test_survivors_are_scaled_by_the_share_that_is_left(backend: str, precision: str) -> None:
    model = transparent(backend, precision, hidden_dropout_prob=0.2)
    out = with_sites(model, 4, 16, 64).encoder(batch()).last_hidden
    found = shares(out)
    assert set(found) == {e + a + f for e in (0.0, 5.0) for a in (0.0, 20.0) for f in (0.0, 80.0)}
    assert found[0.0] == pytest.approx(0.2**3, abs=0.005) and found[105.0] == pytest.approx(0.8**3, abs=0.02)


@every_backend
def test_dropout_of_the_embeddings_is_before_the_mapping(backend: str, precision: str) -> None:
    model = transparent(backend, precision, hidden_dropout_prob=0.5, embedding_mapping="always")
    encoder = model.encoder
    with torch.no_grad():
        encoder.embeddings.word.weight.fill_(1.0)
        assert encoder.embeddings.mapping is not None
        encoder.embeddings.mapping.weight.copy_(torch.eye(WIDTH))
        encoder.embeddings.mapping.bias.fill_(8.0)
    found = shares(encoder(batch(), depth=0).last_hidden)
    assert found == {8.0: pytest.approx(0.5, abs=0.03), 10.0: pytest.approx(0.5, abs=0.03)}


@every_backend
@pytest.mark.parametrize("length", [32, 96])  # in bfloat16 there are two ways, by length
@pytest.mark.parametrize("shape", ["all see all", "source and target"])
def test_attention_weights_are_dropped(backend: str, precision: str, length: int, shape: str) -> None:
    """One token carries a value; each query looks at all tokens alike, in every head, and so what it gets is
    one weight times the value."""
    model = transparent(backend, precision, attention_probs_dropout_prob=0.5)
    encoder, sources = model.encoder, length if shape == "all see all" else length - 1
    with torch.no_grad():
        encoder.embeddings.word.weight[5] = float(sources)
        encoder.attention[0].value.weight.copy_(torch.eye(WIDTH))
        encoder.attention[0].output.weight.copy_(torch.eye(WIDTH))
    ids = torch.full((length,), 7)
    ids[0] = 5
    out = encoder(pack([ids.numpy()] * 24, None, None if sources == length else [sources] * 24)).last_hidden
    rows = out.detach().float().view(24, length, HEADS, WIDTH // HEADS)[:, 1:sources]
    assert (rows == rows[..., :1]).all(), "a weight is one number a head"
    found, dropped = shares(rows[..., 0]), rows[..., 0] == 0
    assert found == {0.0: pytest.approx(0.5, abs=0.04), 2.0: pytest.approx(0.5, abs=0.04)}
    for other in (dropped.roll(1, 0), dropped.roll(1, 1), dropped.roll(1, 2)):  # sequences, queries, heads
        assert (dropped == other).float().mean() == pytest.approx(0.5, abs=0.06)


@every_backend
def test_the_last_depth_drops_for_wanted_rows_too(backend: str, precision: str) -> None:
    model = transparent(backend, precision, hidden_dropout_prob=0.5, plan=SharingPlan.unshared(2))
    every = batch()
    out = with_sites(model, 1, 4, 16).encoder(every, rows=torch.arange(0, every.num_tokens, 2)).last_hidden
    sums = {
        2.0 * e + 8.0 * a + 32.0 * f
        for e, a, f in torch.cartesian_prod(torch.arange(2), torch.arange(3), torch.arange(3)).tolist()
    }
    assert set(shares(out)) == sums


@every_backend
@pytest.mark.parametrize("mode", ["eval", "probability 0"])
def test_nothing_is_dropped_where_nothing_should_be(backend: str, precision: str, mode: str) -> None:
    p = 0.5 if mode == "eval" else 0.0
    model = transparent(backend, precision, hidden_dropout_prob=p, attention_probs_dropout_prob=p)
    model.train(mode != "eval")
    assert shares(with_sites(model, 1, 4, 16).encoder(batch()).last_hidden) == {21.0: 1.0}


@every_backend
def test_the_heads_of_pretraining_drop_nothing(backend: str, precision: str) -> None:
    model = builders.model(hidden_dropout_prob=0.5, attention_probs_dropout_prob=0.5)
    model.encoder.backend, model.precision = backend, precision  # type: ignore[assignment]
    x = torch.randn(9, 24)
    evaluated = model.mlm_logits(x), model.sentence_logits(x)
    model.train()
    trained = model.mlm_logits(x), model.sentence_logits(x)
    for a, b in zip(evaluated, trained, strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("head", ["cls", "mean", "tokens", "pairs", "subjects", "objects"])
def test_the_head_of_a_task_drops_what_it_looks_at(head: str) -> None:
    """Its layer is taken away, so that what comes out is what it would have looked at."""
    base, packed = builders.model(), builders.packed([9] * 40)
    task: nn.Module
    if head in ("subjects", "objects"):
        task = Relations(base, 2, dropout=0.5)
        task.subject = task.object = nn.Identity()
    elif head == "pairs":
        task = Comparer(base, 3, dropout=0.5)
        task.classifier = nn.Identity()
    else:
        pooling = "mean" if head == "mean" else "cls"
        task = Classifier(base, 3, dropout=0.5, per_token=head == "tokens", pooling=pooling)  # type: ignore[arg-type]
        task.classifier = nn.Identity()

    def looked_at() -> Tensor:
        if head not in ("subjects", "objects"):
            return task(packed)
        x = base.encoder(packed).last_hidden
        if head == "subjects":
            return task.subjects(x)
        ends = x[torch.stack([packed.first_tokens, packed.last_tokens], 1)]
        return task.objects(x, ends, torch.arange(40).repeat_interleave(9))

    seed_torch(0, "dropout")
    with torch.no_grad():
        task.eval()
        plain = looked_at()
        task.train()
        found = looked_at()
    dropped = found == 0
    assert float(dropped.float().mean()) == pytest.approx(0.5, abs=0.07)
    torch.testing.assert_close(found[~dropped], 2 * plain[~dropped], atol=1e-4, rtol=1e-3)
