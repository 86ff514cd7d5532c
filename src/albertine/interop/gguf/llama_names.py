"""The architectures of llama.cpp for our encoders, and the names of their tensors
(`ggml-org/llama.cpp:gguf-py/gguf/constants.py`; the computation is in `src/models/*.cpp` there).

    bert           post-norm, learned positions, plain feed-forward
    jina-bert-v3   the same with rotary positions; llama.cpp rotates i and i + D/2, as we do
    modern-bert    pre-norm, rotary positions, gated feed-forward, no biases, no segments

All have a block of weights for each layer, embeddings as wide as the hidden states, and the tanh form of
GELU; the segment of every token is 0. The only head is BERT's: pooler and one layer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

from albertine.interop.keymap import ATTENTION, FEED_FORWARD, KeyMap, Rule, dense, norm
from albertine.interop.tied_expansion import Layout, unsupported_features
from albertine.model.config import EncoderConfig

LlamaArchitecture = Literal["bert", "jina-bert-v3", "modern-bert"]

_EMBEDDINGS = (
    Rule("encoder.embeddings.word.weight", "token_embd.weight"),
    *norm("encoder.embeddings.layer_norm", "token_embd_norm."),
)
_SEGMENTS = Rule("encoder.embeddings.token_type.weight", "token_types.weight")
_POSITIONS = Rule("encoder.embeddings.position.weight", "position_embd.weight")
_APART = (
    *dense(f"{ATTENTION}query", "blk.{layer}.attn_q."),
    *dense(f"{ATTENTION}key", "blk.{layer}.attn_k."),
    *dense(f"{ATTENTION}value", "blk.{layer}.attn_v."),
)
_TOGETHER = tuple(
    Rule(f"{ATTENTION}{part}.{kind}", f"blk.{{layer}}.attn_qkv.{kind}", part=(i, 3))
    for i, part in enumerate(("query", "key", "value"))
    for kind in ("weight", "bias")
)
_POST_NORM = (
    *dense(f"{ATTENTION}output", "blk.{layer}.attn_output."),
    *norm(f"{ATTENTION}layer_norm", "blk.{layer}.attn_output_norm."),
    *dense(f"{FEED_FORWARD}intermediate", "blk.{layer}.ffn_up."),
    *dense(f"{FEED_FORWARD}output", "blk.{layer}.ffn_down."),
    *norm(f"{FEED_FORWARD}layer_norm", "blk.{layer}.layer_output_norm."),
)
_PRE_NORM = (
    Rule(f"{ATTENTION}output.weight", "blk.{layer}.attn_output.weight"),
    Rule(f"{ATTENTION}layer_norm.weight", "blk.{layer}.attn_norm.weight"),
    Rule(f"{FEED_FORWARD}intermediate.weight", "blk.{layer}.ffn_up.weight"),
    Rule(f"{FEED_FORWARD}output.weight", "blk.{layer}.ffn_down.weight"),
    Rule(f"{FEED_FORWARD}layer_norm.weight", "blk.{layer}.ffn_norm.weight"),
    Rule("encoder.final_norm.weight", "output_norm.weight"),
)


LLAMA: Mapping[LlamaArchitecture, KeyMap] = {
    "bert": KeyMap(
        (*_EMBEDDINGS, _SEGMENTS, _POSITIONS, *_APART, *_POST_NORM, *dense("pooler.dense", "cls."))
    ),
    "jina-bert-v3": KeyMap((*_EMBEDDINGS, _SEGMENTS, *_TOGETHER, *_POST_NORM)),
    "modern-bert": KeyMap((*_EMBEDDINGS, *_TOGETHER, *_PRE_NORM)),
}
CLASSIFIER = "cls.output."
"""The layer over the pooler's output, of bert only."""
_LAYOUTS: Mapping[LlamaArchitecture, Layout] = {
    "bert": "bert",
    "jina-bert-v3": "roformer",
    "modern-bert": "modernbert",
}


def llama_layout(config: EncoderConfig) -> LlamaArchitecture:
    """The nearest architecture to an encoder."""
    if config.norm == "pre":
        return "modern-bert"
    return "jina-bert-v3" if config.positions == "rotary" else "bert"


def unsupported_by_llama(config: EncoderConfig) -> list[str]:
    """The features of an encoder that its nearest architecture does not support."""
    kind = llama_layout(config)
    config = replace(config, output="tied")  # there is no head that predicts words
    # The file can hold any rotary base, but no mapping.
    elsewhere = ("rotary_base", "embeddings of", "a mapping of embeddings")
    found = [what for what in unsupported_features(config, _LAYOUTS[kind]) if not what.startswith(elsewhere)]
    if config.has_mapping and kind != "modern-bert":
        found.append(
            f"embeddings of {config.embedding_size} that are normalised and then mapped to "
            f"{config.hidden_size}, where llama.cpp normalises last"
        )
    if config.hidden_act != "gelu_new":
        which = "the erf form of GELU" if config.hidden_act == "gelu" else config.hidden_act
        found.append(f"{which}, where llama.cpp has the tanh form of GELU")
    return found
