"""Variable names in the checkpoints of Google's ALBERT and BERT, of brightmart's albert_zh and of bert4keras;
those of XLNet are in `xlnet_names.py`.

Kernels of dense layers are transposed; tables, `output_weights` and vectors are not.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Literal

from albertine.interop.huggingface.xlnet_names import xlnet_tf
from albertine.interop.keymap import ATTENTION, FEED_FORWARD, KeyMap, Rule, dense, norm
from albertine.model.config import EncoderConfig

Kind = Literal["albert", "unshared", "bert", "brightmart", "xlnet"]
"""Kinds of checkpoints; "unshared" is an ALBERT_Unshared of bert4keras."""
_MARKS: dict[Kind, str] = {
    "unshared": "bert/encoder/transformer/group_0/inner_group_0/attention_1/self/query/kernel_1",
    "albert": "bert/encoder/transformer/group_0/",
    "brightmart": "bert/encoder/layer_shared/",
    "bert": "bert/encoder/layer_0/",
    "xlnet": "model/transformer/layer_0/",
}
"""Prefix of some variable in checkpoints of each kind; the first match applies."""
WORDS = "bert/embeddings/word_embeddings"
SECOND = f"{WORDS}_2"
"""The other factor of brightmart's word embeddings, (E, H)."""
BACKBONE = ("bert/", "cls/predictions/", "cls/seq_relationship/", "model/transformer/", "model/lm_loss/")


def _dense(ours: str, theirs: str) -> tuple[Rule, Rule]:
    return dense(ours, f"{theirs}/", "kernel", transposed=True)


def _norm(ours: str, theirs: str) -> tuple[Rule, Rule]:
    return norm(ours, f"{theirs}/", "gamma", "beta")


HEADS: dict[str, tuple[Rule, ...]] = {
    "classifier": (Rule("classifier.weight", "output_weights"), Rule("classifier.bias", "output_bias")),
    "qa_outputs": (
        Rule("qa_outputs.weight", "cls/squad/output_weights"),
        Rule("qa_outputs.bias", "cls/squad/output_bias"),
    ),
    "answer_class": (
        *_dense("start_logits.dense", "start_logits/dense"),
        *_dense("end_logits.dense_0", "end_logits/dense_0"),
        *_norm("end_logits.LayerNorm", "end_logits/LayerNorm"),
        *_dense("end_logits.dense_1", "end_logits/dense_1"),
        *_dense("answer_class.dense_0", "answer_class/dense_0"),
        Rule("answer_class.dense_1.weight", "answer_class/dense_1/kernel", transposed=True),
    ),
}
"""Task heads with the same computation, by their names in transformers. The last is that of SQuAD 2.0, of
ALBERT's `squad_utils.py` and of XLNet's `function_builder.py`: in both concatenations the token comes before
the start that it is combined with, and the expected start before [CLS], as in `model.answerability_head`."""


def placed(kind: Kind) -> dict[str, Rule]:
    """The rules for tensors of task heads in a kind of checkpoint, by our names. XLNet's classifier is named
    after its data set, so it has none."""
    heads = [HEADS["answer_class"]] if kind == "xlnet" else HEADS.values()
    return {rule.ours: rule for rules in heads for rule in rules}


_OUTER = (
    Rule("encoder.embeddings.word.weight", WORDS),
    Rule("encoder.embeddings.position.weight", "bert/embeddings/position_embeddings"),
    Rule("encoder.embeddings.token_type.weight", "bert/embeddings/token_type_embeddings"),
    *_norm("encoder.embeddings.layer_norm", "bert/embeddings/LayerNorm"),
    *_dense("encoder.embeddings.mapping", "bert/encoder/embedding_hidden_mapping_in"),
    *_dense("pooler.dense", "bert/pooler/dense"),
    *_dense("mlm.dense", "cls/predictions/transform/dense"),
    *_norm("mlm.layer_norm", "cls/predictions/transform/LayerNorm"),
    Rule("mlm.bias", "cls/predictions/output_bias"),
    Rule("sentence.classifier.weight", "cls/seq_relationship/output_weights"),
    Rule("sentence.classifier.bias", "cls/seq_relationship/output_bias"),
)
_GROUP = "bert/encoder/transformer/group_{group}/inner_group_{inner}"

ALBERT_TF = KeyMap(
    (
        *_OUTER,
        *(
            rule
            for part in ("query", "key", "value")
            for rule in _dense(f"{ATTENTION}{part}", f"{_GROUP}/attention_1/self/{part}")
        ),
        *_dense(f"{ATTENTION}output", f"{_GROUP}/attention_1/output/dense"),
        *_norm(f"{ATTENTION}layer_norm", f"{_GROUP}/LayerNorm"),
        *_dense(f"{FEED_FORWARD}intermediate", f"{_GROUP}/ffn_1/intermediate/dense"),
        *_dense(f"{FEED_FORWARD}output", f"{_GROUP}/ffn_1/intermediate/output/dense"),
        *_norm(f"{FEED_FORWARD}layer_norm", f"{_GROUP}/LayerNorm_1"),
    ),
    lambda block, inner: {"group": block // inner, "inner": block % inner},
)


def _bert(layer: str) -> KeyMap:
    block = (
        *(
            rule
            for part in ("query", "key", "value")
            for rule in _dense(f"{ATTENTION}{part}", f"{layer}/attention/self/{part}")
        ),
        *_dense(f"{ATTENTION}output", f"{layer}/attention/output/dense"),
        *_norm(f"{ATTENTION}layer_norm", f"{layer}/attention/output/LayerNorm"),
        *_dense(f"{FEED_FORWARD}intermediate", f"{layer}/intermediate/dense"),
        *_dense(f"{FEED_FORWARD}output", f"{layer}/output/dense"),
        *_norm(f"{FEED_FORWARD}layer_norm", f"{layer}/output/LayerNorm"),
    )
    return KeyMap((*_OUTER, *block))


BERT_TF = _bert("bert/encoder/layer_{layer}")
BRIGHTMART = replace(
    _bert("bert/encoder/layer_shared"),
    rules=(
        *(rule for rule in _bert("bert/encoder/layer_shared").rules if ".mapping." not in rule.ours),
        Rule("encoder.embeddings.mapping.weight", SECOND, transposed=True),
    ),
)
UNSHARED = KeyMap(
    tuple(
        replace(rule, theirs=rule.theirs.format(group=0, inner=0) + "{copy}")
        if "{group}" in rule.theirs
        else rule
        for rule in ALBERT_TF.rules
    ),
    lambda block, inner: {"copy": f"_{block}" if block else ""},
)
"""bert4keras gives the variables of all its layers one name, and TensorFlow counts them: kernel, kernel_1, …
(measured: bert4keras 0.11.5, `save_weights_as_checkpoint`)."""


def keymap(kind: Kind, config: EncoderConfig) -> KeyMap:
    """The names in checkpoints of a kind, for an encoder."""
    if kind == "xlnet":
        return xlnet_tf(config.num_hidden_layers, tied=config.relative_biases == "tied")
    maps = {"albert": ALBERT_TF, "unshared": UNSHARED, "bert": BERT_TF, "brightmart": BRIGHTMART}
    return maps[kind]


def kind_of(names: Iterable[str]) -> Kind | None:
    """The kind of checkpoint with these variables; None: unknown."""
    names = list(names)
    for kind, mark in _MARKS.items():
        if any(name.startswith(mark) for name in names):
            return kind
    return None


def without_slots(names: Iterable[str]) -> set[str]:
    """The variables without what optimizers keep of each, which is named after it: `…/kernel/adam_m`."""
    names = set(names)
    return {name for name in names if name.rpartition("/")[0] not in names}


def heads_in(kind: Kind, names: Iterable[str], objective: object) -> set[str]:
    """The pretraining heads that are there.

    Args:
        objective: "sop" or "nsp" where the configuration has the objective of the sentence head.
    """
    names = set(names)
    if objective not in ("sop", "nsp"):
        objective = "nsp" if kind == "bert" else "sop"
    marks = {
        "pooler": ("bert/pooler/dense/kernel", "model/sequnece_summary/summary/kernel"),
        "mlm": ("cls/predictions/output_bias",),
        "lm": ("model/lm_loss/bias",),
        str(objective): ("cls/seq_relationship/output_weights",),
    }
    return {head for head, mark in marks.items() if not names.isdisjoint(mark)}
