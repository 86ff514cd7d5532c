"""Warnings about combinations of model and settings that are known to train badly, printed before a run.

Those on wide models and on RACE are from google-research/albert's README and issues of its users
(google-research/google-research#151, google-research/albert#89 and #197, huggingface/transformers#2104).
"""

from __future__ import annotations

from itertools import islice

from albertine.interop.heads import NARROW, classified_by_first
from albertine.interop.huggingface.config import encoder_in
from albertine.interop.huggingface.folders import folder_config
from albertine.interop.model_names import model_folder
from albertine.tasks.datasets.similarity import VectorsTask
from albertine.tasks.embed import CONTRASTS
from albertine.tasks.kind_settings import PooledTask, TaskChoice
from albertine.tasks.settings import FinetuneSettings, TuningChoice

WIDE, WIDE_RATE = 2048, 1e-5
RACE_RATE = 1e-5
FEW = 10_000
SMALL = ("cola", "rte", "mrpc", "sts-b", "wnli", "cluewsc")
"""Data sets of fewer than `FEW` examples: scores of BERT-like models vary by points with the seed, and some
runs fail."""


def advice(settings: FinetuneSettings, seeds: int = 1) -> list[str]:
    """Warnings about the model and the settings together.

    Args:
        seeds: how many runs there will be.
    """
    dataset = str(settings.task.dataset or "")
    config = folder_config(folder := model_folder(settings.encoder.folder))
    _, encoder = encoder_in(config, folder)
    width, dropout, found = encoder.hidden_size, encoder.hidden_dropout_prob, list[str]()
    training = settings.training
    rate, usual = training.rate(width), TuningChoice(optimizer=training.optimizer).rate(width)
    adamw = training.optimizer == "adamw"
    if adamw and width >= WIDE and rate > WIDE_RATE:
        found.append(
            f"models as wide as this one ({width}) often stay at chance or diverge at rates like "
            f"{rate:g}; training.learning_rate=0.000005 has rescued them, and "
            "run several seeds (--seeds 5)"
        )
    if rate < usual / 4:
        found.append(
            f"a model as narrow as this one ({width}) hardly moves at a rate of {rate:g}; without "
            f"training.learning_rate it is {usual:g} with {training.optimizer}"
        )
    if dropout == 0 and settings.encoder.dropout:
        found.append(
            "the checkpoint was pretrained without dropout, as ALBERT v2 is; with "
            f"encoder.dropout={settings.encoder.dropout:g} such models diverge on RACE, with 0 they do not"
        )
    if adamw and dropout == 0 and dataset.startswith("race") and rate > RACE_RATE:
        found.append(
            f"on RACE a rate of {rate:g} belongs to ALBERT v1; v2 models, which "
            "were pretrained without dropout as this one was, want training.learning_rate=0.00001"
        )
    one_row = width < NARROW and _in_one_row(settings.task, str(config.get("model_type")))
    if one_row and _scores_pairs(settings.task):
        found.append(
            f"a model as narrow as this one ({width}) hardly learns to compare two texts in one row; as two "
            "vectors it does (task.kind=similarity)"
        )
    if one_row and _classes_pairs(settings.task):
        found.append(
            f"a model as narrow as this one ({width}) hardly learns to compare two texts in one row; where a "
            "class is how similar they are, set task.pooling=compared"
        )
    if width < NARROW and _raw_vectors(settings.task):
        found.append(
            f"the first layer of a model as narrow as this one ({width}) gives better vectors, once they "
            "are whitened: task.similarity.pooling=whitened"
        )
    if seeds == 1 and _is_small(settings.task):
        found.append(
            "scores on a data set as small as this one vary much with the seed; --seeds 5 reports the "
            "median, as the ALBERT paper does, and the spread"
        )
    return found


def _scores_pairs(task: TaskChoice) -> bool:
    if task.dataset is not None:
        return task.dataset == "sts-b" and task.kind != "similarity"
    return task.kind == "score" and task.pair is not None


def _in_one_row(task: TaskChoice, model_type: str) -> bool:
    """Whether its classifier reads one vector for both texts of a row."""
    if not isinstance(task, PooledTask):
        return False
    usual = task.pooling is None and not classified_by_first(model_type)
    return not usual and task.pooling != "compared"


def _classes_pairs(task: TaskChoice) -> bool:
    """Whether pairs in own files are classified."""
    return task.kind == "single" and task.dataset is None and task.pair is not None


def _raw_vectors(task: TaskChoice) -> bool:
    """Whether text vectors are learned from scores of pairs without whitening."""
    own = task.similarity if isinstance(task, VectorsTask) else None
    return own is not None and own.pooling != "whitened" and own.loss not in CONTRASTS


def _is_small(task: TaskChoice) -> bool:
    if task.dataset is not None:
        return task.dataset in SMALL or str(task.dataset).startswith("fewclue-")
    paths = task.own("train")
    line_per_example = (path.suffix in (".csv", ".jsonl", ".tsv") and path.is_file() for path in paths)
    if not all(line_per_example):
        return False
    lines = 0
    for path in paths:
        with path.open("rb") as file:
            lines += sum(1 for _ in islice(file, FEW))
    return lines < FEW
