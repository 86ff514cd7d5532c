"""Fifty steps of XLNet's pretraining beside transformers' model, on our batches: the loss of each."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from albertine.model.config import EncoderConfig
from albertine.model.model import Model
from albertine.model.sharing import SharingPlan
from albertine.objectives.stream_batch import StreamBatch, StreamBuilder
from albertine.objectives.stream_losses import StreamLoss
from albertine.objectives.stream_settings import StreamSettings
from tests.objectives.standin import SPECIALS, random_corpus

HIDDEN, HEADS, DEPTH, LENGTH, REUSE, MEMORY, WANTED = 32, 4, 2, 48, 16, 24, 8
LANES = (0, 2, 1, 3)
"""transformers takes the second half of a batch for backward, so both forward streams come first."""


def ours() -> Model:
    config = EncoderConfig(
        vocab_size=SPECIALS.vocab_size,
        embedding_size=HIDDEN,
        hidden_size=HIDDEN,
        num_attention_heads=HEADS,
        intermediate_size=2 * HIDDEN,
        plan=SharingPlan.unshared(DEPTH),
        type_vocab_size=3,
        positions="relative",
        embedding_norm=False,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    model = Model(config, {"lm"}, seed=3)
    with torch.no_grad():
        for number, parameter in enumerate(model.parameters()):  # none at its trivial value
            draws = torch.Generator().manual_seed(number)
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=draws))
    return model


def theirs(model: Model) -> Any:
    transformers = pytest.importorskip("transformers")
    config = transformers.XLNetConfig(
        vocab_size=SPECIALS.vocab_size,
        d_model=HIDDEN,
        n_layer=DEPTH,
        n_head=HEADS,
        d_inner=2 * HIDDEN,
        ff_activation="gelu_new",
        bi_data=True,
        mem_len=MEMORY,
        reuse_len=REUSE,
        dropout=0.0,
        layer_norm_eps=model.config.layer_norm_eps,
    )
    other = transformers.XLNetLMHeadModel(config).train()
    mine = model.state_dict()
    state = {
        "transformer.mask_emb": mine["lm.query"].view(1, 1, -1),
        "transformer.word_embedding.weight": mine["encoder.embeddings.word.weight"],
        "lm_loss.weight": mine["encoder.embeddings.word.weight"],
        "lm_loss.bias": mine["lm.bias"],
    }
    shape = (HIDDEN, HEADS, HIDDEN // HEADS)
    for d in range(DEPTH):
        a, f, layer = f"encoder.attention.{d}", f"encoder.feed_forward.{d}", f"transformer.layer.{d}"
        for name, letter in {"query": "q", "key": "k", "value": "v", "position": "r"}.items():
            state[f"{layer}.rel_attn.{letter}"] = mine[f"{a}.{name}.weight"].T.reshape(shape)
        state[f"{layer}.rel_attn.o"] = mine[f"{a}.output.weight"].reshape(shape)
        for name, letter in {"content": "w", "position": "r", "segment": "s"}.items():
            state[f"{layer}.rel_attn.r_{letter}_bias"] = mine[f"{a}.biases.{name}"]
        state[f"{layer}.rel_attn.seg_embed"] = mine[f"{a}.segments"]
        for part in ("weight", "bias"):
            state[f"{layer}.rel_attn.layer_norm.{part}"] = mine[f"{a}.layer_norm.{part}"]
            state[f"{layer}.ff.layer_norm.{part}"] = mine[f"{f}.layer_norm.{part}"]
            state[f"{layer}.ff.layer_1.{part}"] = mine[f"{f}.intermediate.{part}"]
            state[f"{layer}.ff.layer_2.{part}"] = mine[f"{f}.output.{part}"]
    other.load_state_dict({name: value.clone() for name, value in state.items()})
    return other


def their_loss(other: Any, batch: StreamBatch, mems: Any) -> tuple[Tensor, Any]:
    """The batch in the form of transformers: a matrix of who is blocked, and a row of places a target."""
    assert batch.when is not None and batch.until is not None
    count = batch.packed.num_sequences
    when, until, ids, types = (
        x.view(count, LENGTH)
        for x in (batch.when, batch.until, batch.packed.input_ids, batch.packed.token_type_ids)
    )
    targets = torch.zeros(count * LENGTH, dtype=torch.bool)
    targets[batch.mlm_positions] = True
    targets = targets.view(count, LENGTH)
    query_until = torch.where(targets, when, until)
    blocked = (when[:, None, :] >= query_until[:, :, None]).float()
    mapping = torch.zeros(count, WANTED, LENGTH)
    rows = []
    for s in range(count):
        for k, place in enumerate(targets[s].nonzero()[:, 0].tolist()):
            mapping[s, k, place] = 1
            rows.append(s * WANTED + k)
    out = other(
        input_ids=ids,
        perm_mask=blocked,
        target_mapping=mapping,
        token_type_ids=types,
        mems=mems,
        use_mems=True,
    )
    logits = out.logits.flatten(0, 1)[rows]
    return F.cross_entropy(logits, batch.mlm_labels), out.mems


def test_fifty_steps_beside_transformers() -> None:
    settings = StreamSettings("permutation", LENGTH, 4, reuse=REUSE, block=16, predictions=WANTED, both=True)
    streams = StreamBuilder(random_corpus(3, 40), settings, 5)
    model = ours()
    start = model.encoder.embeddings.word.weight.detach().clone()
    other = theirs(model)
    loss_fn = StreamLoss(model.config, MEMORY, 4)
    optimizers = [torch.optim.Adam(m.parameters(), lr=1e-3) for m in (model, other)]
    mems, losses = None, []
    for step in range(50):
        batch = streams.build(0, step, LANES)
        part = loss_fn(model, batch)["mlm"]
        here = part.loss_sum / part.count
        there, mems = their_loss(other, batch, mems)
        for loss, optimizer in zip((here, there), optimizers, strict=True):
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        loss_fn.settle()
        losses.append((here.item(), there.item()))
    mine, yours = np.array(losses).T
    assert np.abs(mine / yours - 1).max() <= 1e-4
    words = (start, model.encoder.embeddings.word.weight, other.transformer.word_embedding.weight)
    moved, apart = (words[1] - words[0]).norm(), (words[1] - words[2]).norm()
    assert apart < 0.01 * moved, "and went the same way"
    for d in range(DEPTH):
        state = loss_fn.tensors()[str(d)].view(4, MEMORY, HIDDEN)[list(LANES)]
        torch.testing.assert_close(state.transpose(0, 1), mems[d], rtol=1e-3, atol=1e-4)
    assert loss_fn.nbytes == sum(state.nbytes for name, state in loss_fn.tensors().items() if name.isdigit())
