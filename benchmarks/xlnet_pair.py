"""A step of XLNet's pretraining, by Albertine and by transformers' XLNetLMHeadModel, from equal weights: what
`benchmarks.xlnet_step` and `benchmarks.relative_shift` measure."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from albertine.core.batch import pack
from albertine.core.precision import InferencePrecision
from albertine.core.randomness import generator
from albertine.interop.huggingface.folders import save_model
from albertine.interop.huggingface.xlnet import xlnet_json
from albertine.model.config import EncoderConfig
from albertine.model.model import Model
from albertine.model.segment_memory import Memory
from albertine.model.sharing import SharingPlan
from albertine.model.two_streams import Segments, predict_segments
from albertine.model.visibility import Visibility
from albertine.objectives.factorisation import factorisation_order

VOCABULARY, HEAD = 8000, 64
SPECIALS = 3  # [SEP], [SEP] and [CLS] end a segment
FORMATS: tuple[InferencePrecision, ...] = ("float32", "bfloat16")
APART = {"float32": 1e-5, "bfloat16": 1e-3}
"""Relative difference of loss and gradient that is taken for equal."""
OURS, THEIRS = "albertine", "transformers"
Step = Callable[[], tuple[float, float]]
"""Makes a step; returns the loss in nats and the norm of the word vectors' gradient."""


@dataclass(frozen=True)
class Shape:
    """An encoder and a batch: `length` tokens of a segment, `memory` before it, `targets` of it predicted."""

    width: int
    depth: int
    batch: int
    length: int
    memory: int
    targets: int

    @property
    def reuse(self) -> int:
        return self.length // 2


class Batch(NamedTuple):
    """Tokens and segments (B, L), which of them are predicted, the two integers of each, and what every depth
    remembers, (B, M, H)."""

    ids: np.ndarray
    types: np.ndarray
    targets: np.ndarray
    when: np.ndarray
    until: np.ndarray
    memory: list[Tensor]


def batch_of(shape: Shape) -> Batch:
    """Segments [reused][A][SEP][B][SEP][CLS] of random tokens, half of the targets in each half."""
    rng, (count, length, half) = generator(0, "xlnet_step"), (shape.batch, shape.length, shape.reuse)
    a_end = half + (length - half - SPECIALS) // 2
    types = np.repeat([0, 1, 2], [a_end + 1, length - a_end - 2, 1])
    functional = np.isin(np.arange(length), [a_end, length - 2, length - 1])
    targets = np.zeros((count, length), dtype=bool)
    for row in targets:
        late = shape.targets // 2
        row[rng.choice(half, shape.targets - late, replace=False)] = True
        row[half + rng.choice(np.flatnonzero(~functional[half:]), late, replace=False)] = True
    everywhere = np.broadcast_to(functional, targets.shape)
    order = factorisation_order(targets, everywhere, rng.random((count, 2 * half)), reuse=half, block=half)
    ids = rng.integers(5, VOCABULARY, (count, length))
    remembered = rng.standard_normal((shape.depth, count, shape.memory, shape.width), dtype=np.float32)
    memory = list(torch.from_numpy(remembered))
    return Batch(ids, np.broadcast_to(types, ids.shape), targets, order.when, order.until, memory)


def our_model(shape: Shape) -> Model:
    """XLNet with a block of its own at every depth."""
    config = EncoderConfig(
        vocab_size=VOCABULARY,
        embedding_size=shape.width,
        hidden_size=shape.width,
        num_attention_heads=shape.width // HEAD,
        intermediate_size=4 * shape.width,
        plan=SharingPlan.unshared(shape.depth),
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        type_vocab_size=3,
        positions="relative",
        embedding_norm=False,
        initialization="normal",
        summary="last",
    )
    model = Model(config, {"lm"}).train()
    draws = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():  # nothing stays 0 or 1, or a term of theirs might be missing
            parameter.add_(0.02 * torch.randn(parameter.shape, generator=draws))
    return model


def their_model(shape: Shape, equal_to: Model | None = None) -> nn.Module:
    """Theirs, with the weights of a model of ours or new ones."""
    from transformers import XLNetConfig, XLNetLMHeadModel

    reading = {"mem_len": shape.memory, "reuse_len": shape.reuse, "use_mems_train": True, "bi_data": True}
    if equal_to is None:
        tree = xlnet_json(our_model(replace(shape, depth=1)).config, None)
        new: nn.Module = XLNetLMHeadModel(XLNetConfig(**{**tree, "n_layer": shape.depth, **reading}))
        return new.train()
    with tempfile.TemporaryDirectory() as folder:
        save_model(equal_to, None, folder)
        model: nn.Module = XLNetLMHeadModel.from_pretrained(folder, **reading)
    return model.train()


def our_step(model: Model, shape: Shape, batch: Batch, precision: InferencePrecision) -> Step:
    when, until = (torch.from_numpy(x.reshape(-1)) for x in (batch.when, batch.until))
    rows = torch.from_numpy(np.flatnonzero(batch.targets))
    labels = torch.from_numpy(batch.ids.reshape(-1))[rows]
    segments = Segments(
        pack(list(batch.ids), list(batch.types)),
        Visibility(when, until),
        rows,
        when[rows],  # a target does not see itself
        tuple(2 * i >= shape.batch > 1 for i in range(shape.batch)),
    )
    memory = Memory(tuple(x.flatten(0, 1) for x in batch.memory), (shape.memory,) * shape.batch)

    def step() -> tuple[float, float]:
        model.precision = precision
        logits, _ = predict_segments(model, segments, memory, keep=shape.memory, reuse=shape.reuse)
        loss = F.cross_entropy(logits.float(), labels)
        return _learned(model, loss, model.encoder.embeddings.word.weight)

    return step


def their_step(model: nn.Module, shape: Shape, batch: Batch, precision: InferencePrecision) -> Step:
    query_until = np.where(batch.targets, batch.when, batch.until)
    blocked = batch.when[:, None, :] >= query_until[:, :, None]
    places = np.nonzero(batch.targets)[1].reshape(shape.batch, shape.targets)
    ids = torch.from_numpy(batch.ids)
    given = {
        "input_ids": ids,
        "token_type_ids": torch.from_numpy(batch.types.copy()),
        "perm_mask": torch.from_numpy(blocked).float(),
        "target_mapping": F.one_hot(torch.from_numpy(places), shape.length).float(),
        "mems": [x.transpose(0, 1).contiguous() for x in batch.memory] if shape.memory else None,
        "use_mems": True,
    }
    labels = ids[torch.from_numpy(batch.targets)]

    def step() -> tuple[float, float]:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "bfloat16"):
            logits = model(**given).logits
        loss = F.cross_entropy(logits.float().flatten(0, 1), labels)
        return _learned(model, loss, model.transformer.word_embedding.weight)  # type: ignore[union-attr,arg-type]

    return step


def _learned(model: nn.Module, loss: Tensor, words: Tensor) -> tuple[float, float]:
    loss.backward()  # type: ignore[no-untyped-call]
    assert words.grad is not None
    norm = float(words.grad.norm())
    model.zero_grad(set_to_none=True)
    return float(loss.detach()), norm


def steps_of(shape: Shape) -> tuple[dict[str, Step], dict[str, list[float]]]:
    """A step of each program in each format, from equal weights; and how far the two of a format are apart,
    relatively, in loss and gradient.

    Raises:
        AssertionError: farther than `APART`.
    """
    ours, batch = our_model(shape), batch_of(shape)
    theirs = their_model(shape, ours)
    steps: dict[str, Step] = {}
    apart: dict[str, list[float]] = {}
    for precision in FORMATS:
        both = our_step(ours, shape, batch, precision), their_step(theirs, shape, batch, precision)
        mine, others = np.array([step() for step in both])
        apart[precision] = (abs(mine - others) / others).tolist()
        assert max(apart[precision]) <= APART[precision], (precision, mine, others)
        steps |= {f"{name} {precision}": step for name, step in zip((OURS, THEIRS), both, strict=True)}
    return steps, apart
