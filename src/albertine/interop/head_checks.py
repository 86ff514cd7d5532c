"""Writing of task heads: `config.json` names a class of transformers only if that class computes the same
outputs, which is checked whenever a folder is written, without transformers.

The check reads the tensors to be written as the class does, computes the formula of the class
(`class_numbers`) on rows of several lengths, and compares the result with that of our head. The tests compare
the formulas with the classes themselves.

A head that no class computes is written so that transformers does not load it: its tensors and labels have
names of Albertine's own, and the name that the class of its task would read has an empty tensor, whose shape
transformers refuses. `AutoModel` loads the encoder of such a folder.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from albertine.core.batch import Packed, pack
from albertine.core.devices import on_cpu
from albertine.core.randomness import generator
from albertine.errors import AlbertineError, SettingsError
from albertine.interop.heads import (
    HEAD_KEYS,
    OWN_HEAD,
    OWN_TENSORS,
    SUMMARY,
    SUMMARY_LAYER,
    Task,
    class_name,
    class_of_head,
    is_joint,
    labels_in,
    pooling_in,
    reads_pooler_as_summary,
    task_in,
)
from albertine.interop.huggingface.config import ModelType, our_flags, read_model_type
from albertine.interop.huggingface.xlnet_names import MASK_EMBEDDING, their_head_name
from albertine.interop.keymap import OURS
from albertine.interop.model_folder import ModelFolder
from albertine.interop.tied_expansion import Layout
from albertine.model.answerability_head import JointAnswer
from albertine.model.config import EncoderConfig, HeadInput
from albertine.model.model import Model, evaluating
from albertine.model.task_model import Classifier, TaskModel

BOUND = 1e-4
"""Largest difference of a class's outputs from ours; if ours exceed 1, relative to the largest."""
ROWS, SHORTEST, LONGEST = 12, 3, 40
Read = Callable[[ModelType, dict[str, Any], Mapping[str, Tensor]], ModelFolder]
_POOLER = f"{OURS}pooler.dense."
_TOKEN_LEVEL = ("tag", "answer")
_NO_TENSORS = ("embed", "generate")
"""Tasks whose models have no tensors besides those of encoder and pretraining heads."""


def with_head(
    kind: ModelType,
    model: Model,
    encoder: Mapping[str, Tensor],
    head: Mapping[str, Tensor],
    tree: dict[str, Any],
    read: Read,
    *,
    layout: Layout | None,
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors of a folder with its task head, and its config.json.

    Args:
        kind: its model_type. model: the model to write. encoder: its tensors, on the CPU.
        head: tensors of the head by our names. tree: config.json, with the keys of the head.
        read: reads tensors and config.json as programs other than Albertine do.
        layout: of the folder, if the caller chose one.

    Raises:
        SettingsError: a layout of transformers was chosen, which has no class that computes the head.
    """
    own = {name: x for name, x in head.items() if name != MASK_EMBEDDING}
    rest = {name: x for name, x in head.items() if name == MASK_EMBEDDING}
    task = task_in(tree) or _task_by_names(own)
    if not own or task is None or task in _NO_TENSORS:
        return {**encoder, **own, **rest}, tree
    pooling: HeadInput = "cls" if task in _TOKEN_LEVEL else pooling_in(tree)
    if kind == "albertine":  # transformers does not have it
        return {**encoder, **own, **rest}, {n: x for n, x in tree.items() if n != "architectures"}
    named, why = class_of_head(kind, task, pooling, {name: tuple(x.shape) for name, x in own.items()})
    if named is not None:
        tensors, words = _for_class(kind, named, {**encoder, **rest}, own, tree, model.config)
        far = class_distance(kind, named, tensors, words, model, task, pooling, own, read)
        if far <= 1.0:
            return tensors, words
        why = f"{named} computes other numbers from it"
    if layout is not None:
        raise SettingsError(
            f"transformers has no class that computes the head of this model: {why}",
            remedy="Leave the layout out: Albertine loads the folder, and AutoModel its encoder; or write "
            "the encoder alone (`albertine convert` with --without-head)",
        )
    words = {name: value for name, value in tree.items() if name not in HEAD_KEYS}
    head_keys = {name: tree[name] for name in HEAD_KEYS if name in tree}
    flags = our_flags(tree) | {"task": task, OWN_HEAD: {"why": why, "words": head_keys}}
    words |= {"architectures": [class_name(task)], "albertine": flags}
    tensors = {**encoder, **rest, **{f"{OWN_TENSORS}{name}": x for name, x in own.items()}}
    for name in refused_names(kind, task):
        tensors[name] = torch.zeros(0, dtype=torch.float32)
    return tensors, words


def refused_names(kind: str, task: Task) -> tuple[str, ...]:
    """The tensor that transformers' class for a task reads in this layout, which gets another shape than it
    expects."""
    if task == "classify" and kind in ("electra", "roformer"):
        return ("classifier.out_proj.weight",)
    if task in ("classify", "choose"):
        return ("logits_proj.weight",) if kind == "xlnet" else ("classifier.weight",)
    if task == "answer" and kind != "modernbert":
        return ("qa_outputs.weight",)
    return ("classifier.weight",) if task in _TOKEN_LEVEL else ()


def outdated_head(config: Mapping[str, Any], found: ModelFolder) -> str:
    """Why the stored head of a folder has other outputs in transformers, as a clause; empty if it has not.
    Folders were written so before decision 037.

    Args:
        config: the content of config.json. found: the folder that was read.
    """
    flags, own = our_flags(config), {n: s for n, s in found.shapes.items() if n != MASK_EMBEDDING}
    kind, task = read_model_type(config), flags.get("task")
    if kind == "albertine" or not own or task is None or task in _NO_TENSORS or OWN_HEAD in flags:
        return ""
    pooling: HeadInput = "cls" if task in _TOKEN_LEVEL else pooling_in(config)
    named, why = class_of_head(kind, str(task), pooling, own)
    if named is None:
        return why
    if named.endswith("ForMultipleChoice") and kind in ("electra", "roformer"):
        return "" if reads_pooler_as_summary(kind, config) else f"{named} would use another token than [CLS]"
    return "" if [named] == config.get("architectures") else f"it names another class than {named}"


def _task_by_names(head: Mapping[str, Tensor]) -> Task | None:
    """The task of a head whose config.json names none, by the names of its tensors."""
    if "qa_outputs.weight" in head:
        return "answer"
    return "classify" if "classifier.weight" in head else None


def _for_class(
    kind: ModelType,
    named: str,
    encoder: dict[str, Tensor],
    head: Mapping[str, Tensor],
    tree: dict[str, Any],
    config: EncoderConfig,
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and config.json with the names and keys of a class."""
    words: dict[str, Any] = {"architectures": [named]}
    if named.endswith(("ForSequenceClassification", "ForTokenClassification")):
        count = len(head["classifier.bias"])
        if (
            len(tree.get("id2label", "ab")) != count
        ):  # by which the class knows how many; 2 where none is named
            labels = labels_in(tree, count)
            words["id2label"] = {str(i): label for i, label in enumerate(labels)}
            words["label2id"] = {label: i for i, label in enumerate(labels)}
    if named.endswith("ForMultipleChoice") and kind in ("electra", "roformer"):
        words |= {**SUMMARY, "summary_last_dropout": config.classifier_dropout_prob}
        encoder = {name.replace(_POOLER, SUMMARY_LAYER, 1): x for name, x in encoder.items()}
    if kind == "xlnet":
        head = {their_head_name(name, [named]): x for name, x in head.items()}
    return {**encoder, **head}, tree | words


def class_distance(
    kind: ModelType,
    named: str,
    tensors: Mapping[str, Tensor],
    tree: dict[str, Any],
    model: Model,
    task: Task,
    pooling: HeadInput,
    head: Mapping[str, Tensor],
    read: Read,
) -> float:
    """The difference of a class's outputs from ours on sample rows, as a multiple of `BOUND`; infinite if the
    class cannot read the folder."""
    packed = sample_rows(model.config)
    with on_cpu(), torch.no_grad():
        try:
            ours = _numbers(_our_head(_on_processor(model), task, pooling, head), packed)
            theirs = class_numbers(named, tree, read(kind, tree, tensors).model, tensors, packed)
        except (AlbertineError, KeyError):
            return float("inf")
    if ours.shape != theirs.shape:
        return float("inf")
    same = ours == theirs  # also where both are infinite, as at positions beyond the end of a row
    finite = ours[ours.isfinite()]
    allowed = BOUND * max(1.0, float(finite.abs().max()) if len(finite) else 0.0)
    found = float((ours - theirs).abs().masked_fill(same, 0.0).max()) / allowed
    return found if found == found else float("inf")


def sample_rows(config: EncoderConfig) -> Packed:
    """A dozen rows of several lengths of random tokens; the second half of each is segment 1 if the encoder
    has segments."""
    most = min(LONGEST, config.max_position_embeddings)
    lengths = np.linspace(min(SHORTEST, most), most, ROWS).round().astype(int).tolist()
    ids = generator(0, "interop/written head").integers(0, config.vocab_size, sum(lengths))
    rows = np.split(ids, np.cumsum(lengths)[:-1])
    second = int(config.type_vocab_size > 1)
    return pack(rows, [[0] * (n - n // 2) + [second] * (n // 2) for n in lengths])


def _on_processor(model: Model) -> Model:
    """The same weights on the CPU, computed in float32."""
    with torch.device("meta"):
        result = Model(model.config, model.heads)
    result.load_state_dict({name: x.detach().cpu() for name, x in model.state_dict().items()}, assign=True)
    return result.eval()


def _our_head(base: Model, task: Task, pooling: HeadInput, head: Mapping[str, Tensor]) -> TaskModel:
    """The model of a task as Albertine computes it."""
    made: TaskModel
    if is_joint(head):
        made = JointAnswer(base)
    else:
        name = "qa_outputs" if task == "answer" else "classifier"
        outputs = len(head[f"{name}.bias"])
        made = Classifier(base, outputs, per_token=task in _TOKEN_LEVEL, pooling=pooling, name=name)
    made.load_head(head)
    return made


def _numbers(model: TaskModel, packed: Packed) -> Tensor:
    with evaluating(model):
        return model(packed)  # type: ignore[no-any-return]


def class_numbers(
    named: str, tree: Mapping[str, Any], model: Model, tensors: Mapping[str, Tensor], packed: Packed
) -> Tensor:
    """The outputs of a class of transformers for a folder: the logits of every row or token, of
    XLNetForQuestionAnswering the table of likely spans.

    Args:
        named: the class. tree: config.json. model: encoder and pooler as the class reads them.
        tensors: all tensors of the folder, by name.

    Raises:
        KeyError: a tensor of the class is missing.
    """

    def linear(layer: str, x: Tensor) -> Tensor:
        return F.linear(x, tensors[f"{layer}.weight"].float(), tensors[f"{layer}.bias"].float())

    if named == "XLNetForQuestionAnswering":
        joint = JointAnswer(model)
        joint.load_head(tensors)
        return _numbers(joint, packed)
    with evaluating(model):
        x_TH = model.encoder(packed).last_hidden.float()
    if named.endswith("ForTokenClassification"):
        return linear("classifier", x_TH)
    if named.endswith(("ForQuestionAnswering", "ForQuestionAnsweringSimple")):
        return linear("qa_outputs", x_TH)
    if named.startswith(
        "XLNet"
    ):  # whose rows are padded in front, so that the last token is that of the text
        last = tree["summary_type"] == "last"
        x_SH = x_TH[packed.last_tokens if last else packed.first_tokens]
        return linear("logits_proj", torch.tanh(linear("sequence_summary.summary", x_SH)))
    first_SH = x_TH[packed.first_tokens]
    if named.startswith(("RoFormer", "Electra")):  # multiple choice, with the words of `SUMMARY`
        return linear("classifier", torch.tanh(linear(SUMMARY_LAYER[:-1], first_SH)))
    pooler = {"Albert": "albert.pooler", "Bert": "bert.pooler.dense"}[named.partition("For")[0]]
    return linear("classifier", torch.tanh(linear(pooler, first_SH)))
