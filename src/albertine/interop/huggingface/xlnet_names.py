"""The names that XLNet's parameters have in transformers, and in Google's own checkpoints.

Attention kernels have three dimensions in both, (H, N, D), and are not transposed: those of queries, keys,
values and positions map H to heads, that of the output heads back to H (zihangdai/xlnet, `modeling.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

from albertine.interop.keymap import ATTENTION, FEED_FORWARD, OURS, KeyMap, Rule, dense, norm

MASK_EMBEDDING = "transformer.mask_emb"
"""Input of the query stream: part of our language-model head, and in transformers of every XLNet."""

_KERNELS = {"query": "q", "key": "k", "value": "v", "position": "r", "output": "o"}
_BIASES = {"content": "r_w_bias", "position": "r_r_bias", "segment": "r_s_bias"}


def _kernels(place: str, end: str = "") -> tuple[Rule, ...]:
    return tuple(
        Rule(f"{ATTENTION}{ours}.weight", f"{place}{theirs}{end}", ours != "output", per_head=True)
        for ours, theirs in _KERNELS.items()
    )


_LAYER = "transformer.layer.{layer}."

XLNET = KeyMap(
    (
        Rule("encoder.embeddings.word.weight", "transformer.word_embedding.weight"),
        *_kernels(f"{_LAYER}rel_attn."),
        *(Rule(f"{ATTENTION}biases.{ours}", f"{_LAYER}rel_attn.{name}") for ours, name in _BIASES.items()),
        Rule(f"{ATTENTION}segments", f"{_LAYER}rel_attn.seg_embed"),
        *norm(f"{ATTENTION}layer_norm", f"{_LAYER}rel_attn.layer_norm."),
        *dense(f"{FEED_FORWARD}intermediate", f"{_LAYER}ff.layer_1."),
        *dense(f"{FEED_FORWARD}output", f"{_LAYER}ff.layer_2."),
        *norm(f"{FEED_FORWARD}layer_norm", f"{_LAYER}ff.layer_norm."),
        Rule("lm.query", MASK_EMBEDDING, leading=2),
        Rule("lm.bias", "lm_loss.bias"),
        Rule("lm.output", "lm_loss.weight"),
        *dense("pooler.dense", "sequence_summary.summary."),
        *dense("mlm.dense", f"{OURS}mlm.dense."),
        *norm("mlm.layer_norm", f"{OURS}mlm.layer_norm."),
        Rule("mlm.bias", f"{OURS}mlm.bias"),
        Rule("mlm.output", f"{OURS}mlm.output"),
        *dense("sentence.classifier", f"{OURS}sentence.classifier."),
    ),
)


def xlnet_tf(depth: int, *, tied: bool = False) -> KeyMap:
    """The names in a checkpoint of `zihangdai/xlnet`, without the `:0` of TensorFlow.

    The biases of all depths are one variable there, (depth, N, D), or (N, D) where they are tied; the
    misspelling of the summary is theirs.
    """
    root, layer = "model/transformer/", "model/transformer/layer_{layer}/"
    biases = {f"biases.{part}": name for part, name in _BIASES.items()}
    each_depth = {"segments": "seg_embed"} | ({} if tied else biases)
    stacked = [
        Rule(f"{ATTENTION.format(n=d)}{ours}", f"{root}{theirs}", part=(d, depth), leading=1)
        for ours, theirs in each_depth.items()
        for d in range(depth)
    ]
    first = ATTENTION.format(n=0)
    once = [Rule(f"{first}{ours}", f"{root}{theirs}") for ours, theirs in biases.items() if tied]
    rules = (
        Rule("encoder.embeddings.word.weight", f"{root}word_embedding/lookup_table"),
        *_kernels(f"{layer}rel_attn/", "/kernel"),
        *stacked,
        *once,
        *norm(f"{ATTENTION}layer_norm", f"{layer}rel_attn/LayerNorm/", "gamma", "beta"),
        *dense(f"{FEED_FORWARD}intermediate", f"{layer}ff/layer_1/", "kernel", transposed=True),
        *dense(f"{FEED_FORWARD}output", f"{layer}ff/layer_2/", "kernel", transposed=True),
        *norm(f"{FEED_FORWARD}layer_norm", f"{layer}ff/LayerNorm/", "gamma", "beta"),
        Rule("lm.query", f"{root}mask_emb/mask_emb", leading=2),
        Rule("lm.bias", "model/lm_loss/bias"),
        *dense("pooler.dense", "model/sequnece_summary/summary/", "kernel", transposed=True),
    )
    return KeyMap(rules)


_CLASSIFIER, _PROJECTION = "classifier.", "logits_proj."
_OF_TEXTS = ("ForSequenceClassification", "ForMultipleChoice")


def our_head_name(name: str) -> str:
    """Our name of a tensor of a task's head: transformers calls the layer that classifies whole texts
    `logits_proj` in XLNet, and `classifier` in every other model."""
    return name.replace(_PROJECTION, _CLASSIFIER, 1) if name.startswith(_PROJECTION) else name


def their_head_name(name: str, architectures: Sequence[str]) -> str:
    """The inverse, for a head of these classes of transformers."""
    of_texts = any(architecture.endswith(_OF_TEXTS) for architecture in architectures)
    return name.replace(_CLASSIFIER, _PROJECTION, 1) if of_texts and name.startswith(_CLASSIFIER) else name
