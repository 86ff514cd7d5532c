"""Parameter names of ALBERT, BERT, ELECTRA, RoFormer, ModernBERT and XLNet in transformers."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from albertine.errors import SettingsError
from albertine.interop.huggingface.lonepatient_names import BRIGHT, LONEPATIENT
from albertine.interop.huggingface.xlnet_names import MASK_EMBEDDING, XLNET
from albertine.interop.keymap import ATTENTION, FEED_FORWARD, OURS, KeyMap, Rule, dense, norm
from albertine.model.sharing import SharingPlan


def huggingface_plan(layers: int, groups: int, inner: int) -> SharingPlan:
    """The plan that transformers computes. Its floating-point division gives the group below in a few cases,
    such as layer 9 of 18 in 14 groups, unlike Google's integer division (`SharingPlan.grouped`)."""
    if not 1 <= groups <= layers or inner < 1:
        raise SettingsError(f"{groups} groups of {inner} inner blocks do not fit {layers} layers")
    blocks = tuple(
        int(layer / (layers / groups)) * inner + i for layer in range(layers) for i in range(inner)
    )
    return SharingPlan(blocks, blocks)


def _embeddings(base: str, *, positions: bool = True) -> tuple[Rule, ...]:
    ours, theirs = "encoder.embeddings.", f"{base}.embeddings."
    table = Rule(f"{ours}position.weight", f"{theirs}position_embeddings.weight")
    return (
        Rule(f"{ours}word.weight", f"{theirs}word_embeddings.weight"),
        *((table,) if positions else ()),
        Rule(f"{ours}token_type.weight", f"{theirs}token_type_embeddings.weight"),
        *norm(f"{ours}layer_norm", f"{theirs}LayerNorm."),
    )


OUR_HEADS = (
    *dense("pooler.dense", f"{OURS}pooler.dense."),
    *dense("sentence.classifier", f"{OURS}sentence.classifier."),
)
"""The pretraining heads that ELECTRA, RoFormer and ModernBERT do not have in transformers."""

_ALBERT_BLOCK = "albert.encoder.albert_layer_groups.{group}.albert_layers.{inner}."

ALBERT = KeyMap(
    (
        *_embeddings("albert"),
        *dense("encoder.embeddings.mapping", "albert.encoder.embedding_hidden_mapping_in."),
        *(
            rule
            for part, name in (("query", "query"), ("key", "key"), ("value", "value"), ("output", "dense"))
            for rule in dense(f"{ATTENTION}{part}", f"{_ALBERT_BLOCK}attention.{name}.")
        ),
        *norm(f"{ATTENTION}layer_norm", f"{_ALBERT_BLOCK}attention.LayerNorm."),
        *dense(f"{FEED_FORWARD}intermediate", f"{_ALBERT_BLOCK}ffn."),
        *dense(f"{FEED_FORWARD}output", f"{_ALBERT_BLOCK}ffn_output."),
        *norm(f"{FEED_FORWARD}layer_norm", f"{_ALBERT_BLOCK}full_layer_layer_norm."),
        *dense("pooler.dense", "albert.pooler."),
        *dense("mlm.dense", "predictions.dense."),
        *norm("mlm.layer_norm", "predictions.LayerNorm."),
        Rule("mlm.bias", "predictions.bias"),
        Rule("mlm.output", "predictions.decoder.weight"),
        *dense("sentence.classifier", "sop_classifier.classifier."),
    ),
    lambda block, inner: {"group": block // inner, "inner": block % inner},
)


def _block(base: str, *, neighbours: bool) -> tuple[Rule, ...]:
    """A layer of BERT and of models derived from it."""
    theirs = f"{base}.encoder.layer.{{layer}}."
    turned = ("query", "key") if neighbours else ()
    return (
        *(
            replace(rule, neighbours=part in turned)
            for part in ("query", "key", "value")
            for rule in dense(f"{ATTENTION}{part}", f"{theirs}attention.self.{part}.")
        ),
        *dense(f"{ATTENTION}output", f"{theirs}attention.output.dense."),
        *norm(f"{ATTENTION}layer_norm", f"{theirs}attention.output.LayerNorm."),
        *dense(f"{FEED_FORWARD}intermediate", f"{theirs}intermediate.dense."),
        *dense(f"{FEED_FORWARD}output", f"{theirs}output.dense."),
        *norm(f"{FEED_FORWARD}layer_norm", f"{theirs}output.LayerNorm."),
    )


_BERT_MLM = (
    *dense("mlm.dense", "cls.predictions.transform.dense."),
    *norm("mlm.layer_norm", "cls.predictions.transform.LayerNorm."),
    Rule("mlm.bias", "cls.predictions.bias"),
    Rule("mlm.output", "cls.predictions.decoder.weight"),
)

BERT = KeyMap(
    (
        *_embeddings("bert"),
        *_block("bert", neighbours=False),
        *dense("pooler.dense", "bert.pooler.dense."),
        *_BERT_MLM,
        *dense("sentence.classifier", "cls.seq_relationship."),
    ),
)

ELECTRA = KeyMap(
    (
        *_embeddings("electra"),
        *dense("encoder.embeddings.mapping", "electra.embeddings_project."),
        *_block("electra", neighbours=False),
        *dense("mlm.dense", "generator_predictions.dense."),
        *norm("mlm.layer_norm", "generator_predictions.LayerNorm."),
        Rule("mlm.bias", "generator_lm_head.bias"),
        Rule("mlm.output", "generator_lm_head.weight"),
        *OUR_HEADS,
    ),
)
GENERATOR = ("generator_predictions.", "generator_lm_head.")
"""Prefixes of ELECTRA's masked-LM head."""
_OUR_GENERATOR = tuple(OURS + name for name in GENERATOR)
"""Its prefixes in files where transformers would compute the head with another activation, and must not load
it."""

ROFORMER = KeyMap(
    (
        *_embeddings("roformer", positions=False),
        *dense("encoder.embeddings.mapping", "roformer.embeddings_project."),
        *_block("roformer", neighbours=True),
        *_BERT_MLM,
        *OUR_HEADS,
    ),
)
_MODERNBERT_BLOCK = "model.layers.{layer}."

MODERNBERT = KeyMap(
    (
        Rule("encoder.embeddings.word.weight", "model.embeddings.tok_embeddings.weight"),
        Rule("encoder.embeddings.layer_norm.weight", "model.embeddings.norm.weight"),
        *(
            Rule(f"{ATTENTION}{part}.weight", f"{_MODERNBERT_BLOCK}attn.Wqkv.weight", part=(i, 3))
            for i, part in enumerate(("query", "key", "value"))
        ),
        Rule(f"{ATTENTION}output.weight", f"{_MODERNBERT_BLOCK}attn.Wo.weight"),
        Rule(f"{ATTENTION}layer_norm.weight", f"{_MODERNBERT_BLOCK}attn_norm.weight"),
        Rule(f"{FEED_FORWARD}intermediate.weight", f"{_MODERNBERT_BLOCK}mlp.Wi.weight"),
        Rule(f"{FEED_FORWARD}output.weight", f"{_MODERNBERT_BLOCK}mlp.Wo.weight"),
        Rule(f"{FEED_FORWARD}layer_norm.weight", f"{_MODERNBERT_BLOCK}mlp_norm.weight"),
        Rule("encoder.final_norm.weight", "model.final_norm.weight"),
        Rule("mlm.dense.weight", "head.dense.weight"),
        Rule("mlm.layer_norm.weight", "head.norm.weight"),
        Rule("mlm.bias", "decoder.bias"),
        Rule("mlm.output", "decoder.weight"),
        *OUR_HEADS,
    ),
)
UNUSED_NORM = "encoder.attention.0.layer_norm.weight"
"""The first norm of a pre-norm encoder, which is not used after the embedding norm; ModernBERT has no such
norm, and in our block it stays at its initial value."""

KEYMAPS: dict[str, KeyMap] = {
    "albert": ALBERT,
    "bert": BERT,
    "electra": ELECTRA,
    "roformer": ROFORMER,
    "modernbert": MODERNBERT,
    "xlnet": XLNET,
    "lonepatient": LONEPATIENT,
    "bright": BRIGHT,
}
_BERT_TIED = ("cls.predictions.decoder.weight", "cls.predictions.decoder.bias")
TIED = {
    "albert": ("predictions.decoder.weight", "predictions.decoder.bias"),
    "bert": _BERT_TIED,
    "electra": ("generator_lm_head.weight",),
    "roformer": _BERT_TIED,
    "modernbert": ("decoder.weight",),
    "xlnet": ("lm_loss.weight",),
    "lonepatient": (_BERT_TIED[0],),
    "bright": (_BERT_TIED[0],),
}
"""Tensors that repeat another one or are not used; the weights only where they are tied."""
_BACKBONE = {
    "albert": ("albert.", ("embeddings.", "encoder.", "pooler.")),
    "bert": ("bert.", ("embeddings.", "encoder.", "pooler.")),
    "electra": ("electra.", ("embeddings.", "embeddings_project.", "encoder.")),
    "roformer": ("roformer.", ("embeddings.", "embeddings_project.", "encoder.")),
    "modernbert": ("model.", ("embeddings.", "layers.", "final_norm.")),
    "xlnet": ("transformer.", ("word_embedding.", "mask_emb", "layer.")),
    "lonepatient": ("bert.", ("embeddings.", "encoder.", "pooler.")),
    "bright": ("bert.", ("embeddings.", "encoder.", "pooler.")),
}
"""Prefixes of the backbone in a whole model, and in a file of the backbone alone."""
_OTHER_HEADS = {
    "electra": (
        "classifier.dense.",
        "classifier.out_proj.",
        "sequence_summary.",
        "discriminator_predictions.",
    ),
    "roformer": ("classifier.dense.", "classifier.out_proj.", "sequence_summary."),
    "modernbert": ("head.",),
}
_COMPUTED = ("embeddings.position_ids", "encoder.embed_positions.weight")
_RENAMED = (("LayerNorm.gamma", "LayerNorm.weight"), ("LayerNorm.beta", "LayerNorm.bias"))
"""Suffixes of names in files of 2018, and today."""
_AS_BERT = {
    "albert": (
        ("cls.predictions.transform.", "predictions."),
        ("cls.predictions.", "predictions."),
        ("cls.seq_relationship.", "sop_classifier.classifier."),
    ),
}
"""Prefixes in files that were converted with the names of BERT's heads, and in transformers; the first match
applies."""


def entries(kind: str, names: Iterable[str], inner: int = 1) -> dict[str, Rule]:
    """The rule for each of our parameters, with its name in the file; "albertine" folders have our names."""
    if kind == "albertine":
        return {name: Rule(name, name) for name in names}
    found = KEYMAPS[kind].entries(names, inner)
    if kind == "modernbert":
        found.pop(UNUSED_NORM)
    return found


def second_bias(kind: str) -> tuple[str, str] | None:
    """The bias of a masked-LM head in transformers, and the name that it has there a second time: that of the
    output layer, which is the one that is computed."""
    twin = next((name for name in TIED.get(kind, ()) if name.endswith("bias")), None)
    return None if twin is None else (twin.replace("decoder.", ""), twin)


def canonical(kind: str, names: Iterable[str]) -> dict[str, str]:
    """Names in the file by the names in a whole model: covers files of a backbone alone and older names."""
    base, alone = _BACKBONE.get(kind, ("", ()))
    whole = any(n.startswith(base) for n in names)
    result: dict[str, str] = {}
    for name in names:
        full = name if whole or not name.startswith(alone) else base + name
        full = full.removeprefix(OURS) if full.startswith(_OUR_GENERATOR) else full
        for old, new in _RENAMED:
            full = full.removesuffix(old) + new if full.endswith(old) else full
        for old, new in _AS_BERT.get(kind, ()):
            full = new + full.removeprefix(old) if full.startswith(old) else full
        if not full.endswith(_COMPUTED):
            result[full] = name
    bias, twin = second_bias(kind) or ("", "")
    if twin in result and bias not in result:
        result[bias] = result.pop(twin)
    return result


_PRETRAINING_HEADS = {"electra": GENERATOR, "modernbert": ("decoder.",), "xlnet": ("lm_loss.",)}


def hidden_generator(tensors: Mapping[str, Any]) -> dict[str, Any]:
    """The tensors of an ELECTRA with its masked-LM head renamed, so that transformers does not load it."""
    return {OURS + name if name.startswith(GENERATOR) else name: x for name, x in tensors.items()}


def belongs(kind: str, name: str) -> bool:
    """Whether a tensor is of the backbone or a pretraining head."""
    ours = ("encoder.", "pooler.", "mlm.", "lm.", "sentence.")
    heads = _PRETRAINING_HEADS.get(kind, ("predictions.", "sop_classifier.", "cls."))
    if name == MASK_EMBEDDING:  # used by a head only, although it is in the backbone
        return False
    return name.startswith(ours if kind == "albertine" else (_BACKBONE[kind][0], *heads, OURS))


def other_head(kind: str, names: Iterable[str], heads: Collection[str] = ()) -> tuple[str, ...]:
    """The tensors of a head that differs from ours: task heads of RoFormer and ModernBERT have a further
    layer below the classifier, and the masked-LM heads of "bright" and ELECTRA may differ.

    Args:
        heads: of the model that is read.
    """
    names = list(names)
    if kind == "bright" and "mlm" not in heads:
        return tuple(sorted(name for name in names if name.startswith("cls.predictions.")))
    if kind == "electra" and "mlm" not in heads and any(name.startswith(GENERATOR) for name in names):
        return tuple(sorted(name for name in names if name.startswith(GENERATOR)))
    marks = _OTHER_HEADS.get(kind, ())
    if not any(name.startswith(marks) for name in names):
        return ()
    return tuple(sorted(name for name in names if name.startswith((*marks, "classifier."))))


def heads_in(kind: str, names: Mapping[str, str], flags: Mapping[str, Any]) -> set[str]:
    """The pretraining heads with at least one tensor."""
    ours = ("pooler.dense.weight", "mlm.bias", "lm.bias", "sentence.classifier.weight")
    if kind == "albertine":
        by_ours = dict(zip(ours, ours, strict=True))
    else:
        by_ours = {rule.ours: rule.theirs for rule in KEYMAPS[kind].rules}
    pooler, mlm, lm, sentence = (by_ours.get(name) for name in ours)
    objective = flags.get("sentence_objective")
    if objective not in ("sop", "nsp"):
        objective = "nsp" if kind == "bert" else "sop"
    found = {"pooler": pooler in names, "mlm": mlm in names, "lm": lm in names, objective: sentence in names}
    return {head for head, present in found.items() if present}
