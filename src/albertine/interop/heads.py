"""Heads of fine-tuned tasks under the names that transformers gives them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, get_args

from albertine.errors import ModelError
from albertine.interop.huggingface.config import model_type, our_flags, read_model_type, written_flags
from albertine.interop.keymap import OURS
from albertine.model.config import COMPARED, EncoderConfig, HeadInput

if TYPE_CHECKING:
    from albertine.interop.model_folder import ModelDescription, ModelFolder

Kind = Literal["single", "multi", "score"]
_PROBLEMS: dict[Kind, str] = {
    "single": "single_label_classification",
    "multi": "multi_label_classification",
    "score": "regression",
}
CROSS_ENCODER = ("sentence_transformers", "sbert_ce_default_activation_function")
"""Keys in the config.json of a cross-encoder for the function that sentence-transformers applies to scores,
from version 4 on and before."""
HEAD_KEYS = ("id2label", "label2id", "problem_type", *CROSS_ENCODER)
"""Keys of config.json for a head in transformers and sentence-transformers."""
Task = str
"""The task of a head: the name of its family in `tasks`, such as "classify"."""
_HEADS: dict[Task, str] = {
    "classify": "ForSequenceClassification",
    "choose": "ForMultipleChoice",
    "tag": "ForTokenClassification",
    "answer": "ForQuestionAnswering",
    "generate": "ForMaskedLM",
}
_ENCODERS = {"albert": "Albert", "bert": "Bert"}
NARROW = 512
"""Below this hidden size nothing was seen to compare two texts in one row (docs/experiments)."""
_SIMPLE = "ForQuestionAnsweringSimple"
"""XLNet's two numbers a token; what transformers calls XLNetForQuestionAnswering is the joint head."""
_ALIKE: dict[str, tuple[str, frozenset[Task]]] = {
    **{kind: (name, frozenset(_HEADS)) for kind, name in _ENCODERS.items()},
    "electra": ("Electra", frozenset({"choose", "tag", "answer"})),
    "roformer": ("RoFormer", frozenset({"choose", "tag", "answer", "generate"})),
    "modernbert": ("ModernBert", frozenset({"generate"})),
    "xlnet": ("XLNet", frozenset({"classify", "choose", "tag", "answer"})),
}
"""Encoders by model_type, with those of their heads in transformers that compute what ours do. ELECTRA's and
RoFormer's multiple choice computes it only with `SUMMARY` in config.json; their classifiers have another
layer in place of the pooler, and ModernBERT's heads have one more layer."""
SUMMARY: Mapping[str, Any] = {
    "summary_type": "first",
    "summary_use_proj": True,
    "summary_activation": "tanh",
    "summary_proj_to_labels": False,
}
"""With these settings `sequence_summary` of ELECTRA and RoFormer computes what our pooler does."""
SUMMARY_LAYER = "sequence_summary.summary."
OWN_HEAD = "own_head"
"""The entry of `albertine` in a config.json for a head that no class of transformers computes: `why`, and in
`words` the `HEAD_KEYS`, which transformers would use at the top level."""
OWN_NAME = "Albertine"
"""Prefix of `architectures` in such a folder."""
OWN_TENSORS = f"{OURS}head."
"""Prefix of the tensors of such a head."""


_DROPOUTS = {"albert": "classifier_dropout_prob", "xlnet": "summary_last_dropout"}


@dataclass(frozen=True)
class ClassifierHead:
    """The sequence classifier of a folder.

    Attributes:
        outputs: how many numbers it gives; one for a score.
        labels: names of the classes; empty for a score. pooling: what of a text it looks at.
        pairs: whether it was tuned with pairs of texts; None: with both, or unknown.
        sigmoid: whether its score is the sigmoid of its output.
    """

    outputs: int
    labels: tuple[str, ...]
    kind: Kind
    pooling: HeadInput = "cls"
    pairs: bool | None = None
    sigmoid: bool = False


def usual_pooling(config: EncoderConfig, *, pairs: bool = False) -> HeadInput:
    """The default pooling of a new classifier: the first token if transformers has the same classifier, as
    for BERT, ALBERT and brightmart's with its embeddings multiplied out; else the mean over tokens and
    layers, from which small encoders learn sooner (docs/decisions/018); for pairs and narrow encoders the
    comparison of the two texts (docs/decisions/033).

    Args:
        pairs: whether every example is a pair of texts.
    """
    if config.architecture == "brightmart":
        config = replace(config, embedding_size=config.hidden_size, embedding_mapping="if_needed")
    if classified_by_first(model_type(config)):
        return "cls"
    return "compared" if pairs and config.hidden_size < NARROW else "depths"


def classified_by_first(model_type: str) -> bool:
    """Whether transformers has a classifier of the first token for that layout which computes what ours
    does."""
    return _same_in_transformers(model_type, "classify")


def head_config(
    model_type: str,
    task: Task,
    dropout: float,
    *,
    names: Sequence[str] = (),
    kind: Kind | None = None,
    pooling: HeadInput = "cls",
    max_length: int | None = None,
    pairs: bool | None = None,
) -> dict[str, Any]:
    """The config.json entries of a head.

    Args:
        names: of its outputs, where they have names. kind: of a "classify" head. pooling: of one that looks
            at one row of a text. max_length: tokens of a row that it was tuned with. pairs: as in
            `ClassifierHead`.
    """
    tree: dict[str, Any] = {} if kind is None else {"problem_type": _PROBLEMS[kind]}
    if kind == "score":  # sentence-transformers would apply a sigmoid
        tree[CROSS_ENCODER[0]] = {"activation_fn": "torch.nn.modules.linear.Identity"}
    if names:
        tree["id2label"] = {str(i): name for i, name in enumerate(names)}
        tree["label2id"] = {name: i for i, name in enumerate(names)}
    tree[_DROPOUTS.get(model_type, "classifier_dropout")] = dropout
    tree |= _architectures(model_type, task, pooling)
    stored: dict[str, Any] = {"task": task}
    if pooling != "cls":
        stored["pooling"] = pooling
    if max_length is not None:
        stored["max_length"] = max_length
    if pairs is not None:
        stored["pairs"] = pairs
    return tree | {"albertine": stored}


def max_length_of(folder: ModelDescription) -> int:
    """Most tokens of a row with which the head of a folder was tuned; the model's positions if the folder
    does not record it."""
    positions = folder.encoder.max_position_embeddings
    stored = our_flags(folder.config).get("max_length")
    return min(stored, positions) if isinstance(stored, int) and stored > 2 else positions


def _architectures(model_type: str, task: Task | None, pooling: HeadInput) -> dict[str, Any]:
    """The class of transformers that has the head of a task, if one computes the same."""
    same = task is not None and pooling == "cls" and _same_in_transformers(model_type, task)
    if not (task and same):
        return {}
    head = _SIMPLE if (model_type, task) == ("xlnet", "answer") else _HEADS[task]
    return {"architectures": [_ALIKE[model_type][0] + head]}


def is_joint(names: Iterable[str]) -> bool:
    """Whether tensors of these names are the joint head, which also predicts whether a question has an
    answer."""
    return any(name.startswith("answer_class.") for name in names)


def joint_architecture(model_type: str) -> dict[str, Any]:
    """The config.json entries of that head: transformers has it for XLNet alone."""
    from albertine.model.answerability_head import ENDS, STARTS

    named = {"architectures": ["XLNetForQuestionAnswering"], "start_n_top": STARTS, "end_n_top": ENDS}
    return named if model_type == "xlnet" else {}


def _same_in_transformers(model_type: str, task: Task) -> bool:
    return model_type in _ALIKE and task in _ALIKE[model_type][1]


def class_of_head(
    model_type: str, task: Task, pooling: HeadInput, shapes: Mapping[str, tuple[int, ...]]
) -> tuple[str | None, str]:
    """The class of transformers that computes a head of ours, and why there is none.

    Args:
        model_type: of the folder. task: of the head, which has tensors of its own.
        shapes: of these, by our names.

    Returns:
        The name of the class and "", or None and the reason, a clause.
    """
    if is_joint(shapes):
        if named := joint_architecture(model_type):
            return str(named["architectures"][0]), ""
        return None, "only XLNet has a class that also predicts whether there is an answer"
    if any(name.startswith("crf.") for name in shapes):
        return None, "its tags are decoded by a CRF, which token classifiers of transformers lack"
    if model_type not in _ALIKE or task not in _HEADS:
        return None, f"there is no class for heads of the task `{task}`"
    theirs = _ALIKE[model_type][0] + _HEADS[task]
    if model_type == "modernbert":
        return None, f"{theirs} has a dense layer and a LayerNorm below its classifier, this head has not"
    if task in ("classify", "choose") and pooling != "cls":
        return None, f"it uses pooling `{pooling}`, {theirs} uses the [CLS] token"
    usual = {"choose": ("classifier.bias", 1), "answer": ("qa_outputs.bias", 2)}
    if task in usual and shapes.get(usual[task][0]) != (usual[task][1],):
        return None, f"{theirs} gives {usual[task][1]} number{'s' * (task == 'answer')} a row"
    if named := _architectures(model_type, task, pooling):
        return str(named["architectures"][0]), ""
    return None, f"{theirs} has a dense layer with another activation in place of the pooler's tanh"


def class_name(task: Task) -> str:
    """The value of `architectures` for a head of the task that no class of transformers computes."""
    return OWN_NAME + _HEADS.get(task, "For" + "".join(part.title() for part in task.split("-")))


def has_own_head(config: Mapping[str, Any]) -> bool:
    """Whether a config.json records that no class of transformers computes its head."""
    return isinstance(our_flags(config).get(OWN_HEAD), dict)


def why_own_head(config: Mapping[str, Any]) -> str:
    """The reason that a config.json gives for that, a clause; empty where there is none."""
    found = our_flags(config).get(OWN_HEAD)
    return str(found.get("why", "")) if isinstance(found, dict) else ""


def known_to_transformers(config: Mapping[str, Any]) -> str:
    """How transformers and Albertine load the folder of a tuned model, for people."""
    if config.get("model_type") == "albertine":
        return "does not load it; albertine.Predictor does"
    if has_own_head(config):
        return (
            f"AutoModel loads the encoder; no class computes the head: {why_own_head(config)}. "
            "albertine.Predictor answers with it"
        )
    name = next(iter(config.get("architectures") or ()), "AutoModel")
    return f"{name} computes the same"


def with_head_keys(config: dict[str, Any]) -> dict[str, Any]:
    """A config.json as it is read: with the labels and the problem type of its own head at the top level."""
    found = our_flags(config).get(OWN_HEAD)
    words = found.get("words") if isinstance(found, dict) else None
    if not isinstance(words, dict):
        return config
    return config | {name: words[name] for name in HEAD_KEYS if name in words}


def reads_pooler_as_summary(model_type: str, config: Mapping[str, Any]) -> bool:
    """Whether the `sequence_summary` of a folder computes what our pooler does."""
    same = all(config.get(name) == value for name, value in SUMMARY.items())
    return model_type in ("electra", "roformer") and same


def pooling_of(folder: ModelDescription) -> HeadInput:
    """The pooling of the classifier in a folder."""
    return pooling_in(folder.config)


def pooling_in(config: Mapping[str, Any]) -> HeadInput:
    """The pooling of the classifier in a config.json.

    Raises:
        ModelError: it is unknown.
    """
    stored = our_flags(config).get("pooling", "cls")
    for known in get_args(HeadInput):
        if stored == known:
            return known  # type: ignore[no-any-return]
    raise ModelError(
        f"pools by `{stored}`; known are {', '.join(get_args(HeadInput))}", remedy="Update albertine"
    )


def head_config_for(folder: ModelFolder, model_type: str) -> dict[str, Any]:
    """The config.json entries of a folder's head, for the same head on an encoder of another type."""
    # All but the settings of the encoder: the task, and the settings of its predictions, such as a threshold.
    encoder = written_flags(folder.model)
    left = {*encoder, "encoder", OWN_HEAD}
    own = {n: x for n, x in our_flags(folder.config).items() if n not in left}
    if folder.extra and (task := task_of(folder)) is not None:
        own["task"] = task  # which theirs names by a class that the other layout may lack
    if not folder.extra and not own:
        return {}
    outputs = folder.shapes.get("classifier.bias", ())
    if task_of(folder) in ("classify", None) and outputs == (1,) and _squashed(folder.config):
        own["sigmoid"] = True
    tree: dict[str, Any] = {key: folder.config[key] for key in HEAD_KEYS if key in folder.config}
    if own:
        tree["albertine"] = own
    if is_joint(folder.extra):
        return tree | joint_architecture(model_type)
    was = _ENCODERS.get(read_model_type(folder.config))
    now = _ENCODERS.get(model_type)
    if was and now and not has_own_head(folder.config):
        names = map(str, folder.config.get("architectures") or ())
        tree["architectures"] = [now + name.removeprefix(was) for name in names]
    else:
        tree |= _architectures(model_type, task_of(folder), pooling_of(folder))
    return tree


def without_head(folder: ModelFolder) -> ModelFolder:
    """A tuned folder without the head of its task and its settings."""
    return replace(folder, config=without_head_keys(folder.config), extra={})


def without_head_keys(config: Mapping[str, Any]) -> dict[str, Any]:
    """A config.json without the keys of a head."""
    words = (*HEAD_KEYS, "architectures", "albertine")
    return {name: value for name, value in config.items() if name not in words}


def objective_config(objective: Mapping[str, Any]) -> dict[str, Any]:
    """The entries of config.json for a pretraining objective, `ObjectiveChoice` as JSON data: its kind, if it
    is other than masked tokens, the share of causal samples, and the loops of an elastic depth."""
    flags: dict[str, Any] = {}
    if (kind := objective.get("kind", "masked")) != "masked":
        flags["objective"] = kind
    if share := objective.get("causal_share"):
        flags["causal_share"] = share
    if elastic := objective.get("elastic"):
        flags["elastic"] = [elastic["least"], elastic["most"]]
    return {"albertine": flags} if flags else {}


def causal_share(config: Mapping[str, Any]) -> float:
    """The share of causal samples when the training of a masked LM ended, by its config.json."""
    found = our_flags(config).get("causal_share", 0.0)
    return float(found) if isinstance(found, int | float) else 0.0


def left_to_right(folder: ModelDescription) -> bool:
    """Whether a model was trained as a causal language model, by its config.json."""
    return our_flags(folder.config).get("objective") == "causal"


def task_of(folder: ModelDescription) -> Task | None:
    """The task that a folder was tuned for, as far as it is recorded."""
    return task_in(folder.config)


def task_in(config: Mapping[str, Any]) -> Task | None:
    """The task that a config.json names, if any."""
    stored = our_flags(config).get("task")
    if stored is not None:
        return str(stored)
    names = [str(name).removesuffix("Simple") for name in config.get("architectures") or ()]
    # Every pretrained model is named as if it generated.
    heads = {task: head for task, head in _HEADS.items() if task != "generate"}
    return next((task for task, head in heads.items() if any(name.endswith(head) for name in names)), None)


def read_classifier(folder: ModelDescription, where: object) -> ClassifierHead:
    """The sequence classifier of a folder that was read.

    Raises:
        ModelError: it has none, it does not fit the encoder, or it gives several scores.
    """
    if folder.left_aside:
        raise ModelError(
            f"has a head that Albertine does not compute ({folder.left_aside[0]})",
            where=where,
            remedy="Its encoder is read all the same: tune it with albertine finetune",
        )
    shapes = folder.shapes
    name = "qa_outputs" if "qa_outputs.weight" in shapes else "classifier"
    if not {f"{name}.weight", f"{name}.bias"} <= shapes.keys():
        raise ModelError(
            "has no head of a task",
            where=where,
            remedy="Fine-tune it first: albertine finetune",
        )
    weight, bias = (shapes[f"{name}.{part}"] for part in ("weight", "bias"))
    hidden = folder.encoder.hidden_size
    width = head_input_size(folder.config, hidden)
    if len(weight) != 2 or weight[1] != width or bias != weight[:1]:
        raise ModelError(
            f"has a classifier of shape {list(weight)} on an encoder of width {hidden}", where=where
        )
    kind, labels = _kind(folder.config, bias[0]), labels_in(folder.config, bias[0])
    if task_of(folder) in ("classify", None):  # the tags of tokens may share a name
        labels = _apart(labels)
        if kind == "score" and bias[0] > 1:
            raise ModelError(
                f"gives {bias[0]} numbers a text, and a score of Albertine's is one",
                where=where,
                remedy='If they are classes, write "problem_type": "single_label_classification" into its '
                "config.json",
            )
    if kind == "score":
        _refuse_other_scores(folder.config, where)
    pairs = our_flags(folder.config).get("pairs")
    return ClassifierHead(
        bias[0],
        () if kind == "score" else labels,
        kind,
        pooling_of(folder),
        pairs if isinstance(pairs, bool) else None,
        kind == "score" and _squashed(folder.config),
    )


def head_input_size(config: Mapping[str, Any], hidden_size: int) -> int:
    """How many numbers the classifier that a config.json describes looks at."""
    return COMPARED * hidden_size if our_flags(config).get("pooling") == "compared" else hidden_size


def labels_in(config: Mapping[str, Any], count: int | None = None) -> tuple[str, ...]:
    """The names of the classes in a config.json, in the order of their numbers; one without a name is called
    LABEL_ and its number, as transformers does, since an empty answer would look like none.

    Args:
        count: how many there must be; by default as many as are named.
    """
    names = config.get("id2label")
    table: Mapping[str, Any] = names if isinstance(names, dict) else {}
    stored = (str(table.get(str(i), "")) for i in range(len(table) if count is None else count))
    return tuple(name if name.strip() else f"LABEL_{i}" for i, name in enumerate(stored))


def _apart(names: tuple[str, ...]) -> tuple[str, ...]:
    """Unique names of classes: to names that are shared the class number is appended."""
    return tuple(f"{name} ({i})" if names.count(name) > 1 else name for i, name in enumerate(names))


def _kind(tree: Mapping[str, Any], outputs: int) -> Kind:
    for kind, problem in _PROBLEMS.items():
        if tree.get("problem_type") == problem:
            return kind
    return "score" if outputs == 1 else "single"


def _squashed(tree: Mapping[str, Any]) -> bool:
    """Whether the one number of a classifier is stored as its sigmoid: where its config.json names that, and
    where it names nothing and no regression either, as transformers and sentence-transformers do."""
    if isinstance(stored := our_flags(tree).get("sigmoid"), bool):
        return stored
    if (named := _function(tree)) is not None:
        return named == "Sigmoid"
    return tree.get("problem_type") != _PROBLEMS["score"]


def _function(tree: Mapping[str, Any]) -> str | None:
    """The function that a cross-encoder applies to its score; None where it names none of torch's, since
    sentence-transformers trusts no others."""
    new, old = (tree.get(key) for key in CROSS_ENCODER)
    named = new["activation_fn"] if isinstance(new, dict) and "activation_fn" in new else old
    trusted = isinstance(named, str) and named.startswith("torch.")
    return str(named).rpartition(".")[2] if trusted else None


def _refuse_other_scores(tree: Mapping[str, Any], where: object) -> None:
    """Refuse a cross-encoder whose score would differ from that of sentence-transformers.

    Raises:
        ModelError: it applies another function than the sigmoid, puts a prompt before texts, or calls its
            tokenizer otherwise.
    """
    named, settings = _function(tree), tree.get(CROSS_ENCODER[0])
    if named not in (None, "Identity", "Sigmoid"):
        raise ModelError(f"applies {named} to its score; known are Identity and Sigmoid", where=where)
    if isinstance(settings, dict) and (prompt := settings.get("default_prompt_name")) is not None:
        raise ModelError(
            f"puts the prompt `{prompt}` before texts",
            where=where,
            remedy="Set default_prompt_name to null where it stands, and write the prompt into the texts",
        )
    if isinstance(settings, dict) and isinstance(odd := settings.get("processing_kwargs"), list):
        words = ", ".join(map(str, odd))
        raise ModelError(
            f"calls the tokenizer with {words} (processing_kwargs), which is not heeded here",
            where=where,
            remedy="Take that out where it stands, and scores are computed without",
        )
