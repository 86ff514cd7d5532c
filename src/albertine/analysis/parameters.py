"""Parameters, operations and memory of a configuration, without allocating weights."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from albertine.model.config import EncoderConfig
from albertine.model.model import Model

MASKED_SHARE = 0.15
PARTS = {
    "embeddings": "embeddings",
    "mapping": "embedding-to-hidden mapping",
    "encoder": "encoder blocks",
    "pooler": "pooler",
    "mlm_head": "language-model head (a tied output matrix is in the embeddings)",
    "sentence_head": "sentence head",
}
"""The parts of `parameters_by_part` in words."""
MEMORY = {
    "weights_float32": "weights, float32",
    "weights_bfloat16": "weights, bfloat16",
    "weights_int8": "weights, int8",
    "training_adamw": "training state, AdamW or LAMB",
}
"""Entries of `memory` in words; that of LAMB is the same as of AdamW."""


@dataclass(frozen=True)
class Report:
    """The costs of one configuration.

    Attributes:
        parts: parameters by part, as `parameters_by_part`.
        without_pooler, backbone, everything: the three totals that papers quote.
        training_flops, inference_flops: per token, by sequence length.
        memory: bytes, as `memory`.
    """

    parts: dict[str, int]
    without_pooler: int
    backbone: int
    everything: int
    training_flops: dict[int, float]
    inference_flops: dict[int, float]
    memory: dict[str, int]


def report(config: EncoderConfig, lengths: tuple[int, ...] = (128, 512)) -> Report:
    """All costs, for the given sequence lengths."""
    parts = parameters_by_part(config)
    without_pooler = parts["embeddings"] + parts["mapping"] + parts["encoder"]
    return Report(
        parts,
        without_pooler,
        without_pooler + parts["pooler"],
        sum(parts.values()),
        {length: training_flops_per_token(config, length) for length in lengths},
        {length: inference_flops_per_token(config, length) for length in lengths},
        memory(config),
    )


def parameters_by_part(config: EncoderConfig) -> dict[str, int]:
    """Parameters of embeddings, mapping, encoder (distinct blocks and per-layer parameters), pooler, mlm_head
    and sentence_head. XLNet's language-model head counts as mlm_head; without the V of its bias, all are the
    published ones.

    Counted on modules on the meta device; a tied output matrix counts once, as embeddings.
    """
    model = _empty(config)
    embeddings = model.encoder.embeddings
    mapping = _count(embeddings.mapping)
    return {
        "embeddings": _count(embeddings) - mapping,
        "mapping": mapping,
        "encoder": _count(model.encoder) - _count(embeddings),
        "pooler": _count(model.pooler),
        "mlm_head": _count(model.mlm or model.lm),
        "sentence_head": _count(model.sentence),
    }


def training_flops_per_token(config: EncoderConfig, length: int, masked: float = MASKED_SHARE) -> float:
    """Floating-point operations of one token forward and backward, matrix products only.

    6·L·(4h²+2hf) + 12·L·h·s + 6·E·h + 6·m·(hE+EV), with L the layers (sharing saves none), s the sequence
    length and m the share of masked positions, to which the masked-LM head is applied; 6·E·h only with a
    mapping. A gated feed-forward has 3hf, low-rank additions 4hr and head gates hN more per layer, and the
    tied head of a pre-norm encoder or of brightmart's h² more; XLNet's has no hE. Relative positions double
    the products of attention: a query has 2s distances. Input injection has 3h² once.
    """
    hidden, embedding = config.hidden_size, config.embedding_size
    tied_to_mapping = config.mapping_input != "normed" and config.has_mapping and config.output == "tied"
    wide = hidden**2 if tied_to_mapping else 0
    dense = 0 if config.architecture == "xlnet" else hidden * embedding
    head = masked * (dense + embedding * config.vocab_size + wide)
    return 3 * inference_flops_per_token(config, length) + 6 * head


def inference_flops_per_token(config: EncoderConfig, length: int) -> float:
    """Operations of one token forward through the encoder, no head: a third of the training terms."""
    hidden, depth = config.hidden_size, config.num_hidden_layers
    feed_forward = (3 if config.feed_forward == "gated" else 2) * hidden * config.intermediate_size
    gates = hidden * config.num_attention_heads if config.head_gate else 0
    products = depth * (4 * hidden**2 + feed_forward + 4 * hidden * config.plan.low_rank + gates)
    attention = (4 if config.positions == "relative" else 2) * depth * hidden * length
    mapping = config.embedding_size * hidden if config.has_mapping else 0
    injection = 3 * hidden**2 if config.input_injection else 0
    return float(2 * (products + attention + mapping + injection))


def memory(config: EncoderConfig) -> dict[str, int]:
    """Bytes of the weights with all pretraining heads, and of training state without activations.

    weights_int8 has a byte per matrix element and a float32 scale per row, and vectors in float32. Training
    state is float32 weights, gradients and two moments, the same for AdamW and LAMB.
    """
    model = _empty(config)
    count = _count(model)
    matrices = [p for p in model.parameters() if p.ndim == 2]
    in_matrices = sum(p.numel() for p in matrices)
    scales = 4 * sum(p.shape[0] for p in matrices)
    return {
        "weights_float32": 4 * count,
        "weights_bfloat16": 2 * count,
        "weights_int8": in_matrices + scales + 4 * (count - in_matrices),
        "training_adamw": 16 * count,
        "training_lamb": 16 * count,
    }


def _empty(config: EncoderConfig) -> Model:
    with torch.device("meta"):
        return Model(config, config.pretraining_heads)


def _count(module: nn.Module | None) -> int:
    return 0 if module is None else sum(p.numel() for p in module.parameters())
