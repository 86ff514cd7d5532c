"""Classification and similarity data sets as data: which file, which column, which labels, which score.

Sources: GLUE (gluebenchmark.com, files of the official download), SICK (SemEval-2014 task 1), CLUE
(CLUEbenchmark), FewCLUE, and the Chinese sets everybody uses. Scores are the official ones; the first of a
data set picks the best model. `../shared/data/README.md` has sources, licences and known defects.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from albertine.tasks.readers.table import Row

Kind = Literal["single", "multi", "score"]
"""One class, any number of classes, or a number."""

YES_NO = ("0", "1")
BROKEN = "(a row of another number of fields)"
ENTAILMENT = ("entailment", "not_entailment")
IFLYTEK = tuple(map(str, range(119)))  # small splits lack some


@dataclass(frozen=True)
class Columns:
    """Where a row holds what.

    Attributes:
        text, pair, label, name: fields; None where there is none.
        header: names of the fields where the file has no header line.
    """

    text: str = "sentence"
    pair: str | None = None
    label: str | None = "label"
    name: str | None = None
    header: tuple[str, ...] = ()


@dataclass(frozen=True)
class Dataset:
    """A data set.

    Attributes:
        files: split to file name; the file may be compressed, with the ending that says so.
        columns: of every split; `special` has the splits that differ.
        labels: the classes in the order of their numbers; empty: those of the training file, sorted.
        metrics: names of `evaluation.metrics`.
        left_out: labels of rows that the authors tell to drop; `BROKEN` of rows that they pass over because
            fields are missing.
        separator: between the labels of one row, for "multi".
        archive: name of a tar that may hold the files.
        laid_out: gives a row as `columns` wants it, where the file has more than texts.
    """

    files: Mapping[str, str]
    columns: Columns = Columns()
    special: Mapping[str, Columns] = field(default_factory=dict)
    kind: Kind = "single"
    labels: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ("accuracy",)
    left_out: frozenset[str] = frozenset()
    separator: str = ","
    archive: str | None = None
    laid_out: Callable[[Row], Row] | None = None

    def columns_of(self, split: str) -> Columns:
        return self.special.get(split, self.columns)


def _splits(ending: str, *names: str) -> dict[str, str]:
    return {name: f"{name}.{ending}" for name in names or ("train", "dev", "test")}


def _pair(label: str | None = "label", name: str | None = "index") -> Columns:
    return Columns("sentence1", "sentence2", label, name)


_MRPC = Columns("#1 String", "#2 String", "Quality")
_COLA = Columns(header=("source", "label", "mark", "sentence"))
_THREE = Columns("text", "pair", "label", header=("text", "pair", "label"))
_THREE_TEST = Columns("text", "pair", None, header=("text", "pair"))
_CHN = Columns("text_a")
_BERT4KERAS = Columns("text", header=("text", "label"))

GLUE = {
    "cola": Dataset(
        _splits("tsv"),
        _COLA,
        {"test": Columns(label=None, name="index")},
        labels=YES_NO,
        metrics=("matthews", "accuracy"),
    ),
    "sst-2": Dataset(_splits("tsv"), Columns(), {"test": Columns(label=None, name="index")}, labels=YES_NO),
    "mrpc": Dataset(
        _splits("tsv"),
        _MRPC,
        {"test": Columns("#1 String", "#2 String", None, "index")},
        labels=YES_NO,
        metrics=("accuracy", "f1"),
    ),
    "sts-b": Dataset(
        _splits("tsv"),
        _pair("score"),
        {"test": _pair(None)},
        kind="score",
        metrics=("pearson", "spearman"),
    ),
    "qqp": Dataset(
        _splits("tsv"),
        Columns("question1", "question2", "is_duplicate", "id"),
        {"test": Columns("question1", "question2", None, "id")},
        labels=YES_NO,
        metrics=("accuracy", "f1"),
        left_out=frozenset({BROKEN}),  # the training file has some; Google's reader passes over them too
    ),
    "mnli": Dataset(
        {"train": "train.tsv", "dev": "dev_matched.tsv", "test": "test_matched.tsv"},
        Columns("sentence1", "sentence2", "gold_label", "index"),
        {"test": _pair(None)},
        labels=("contradiction", "entailment", "neutral"),  # the order of the reference
        left_out=frozenset({"-"}),
    ),
    "mnli-mm": Dataset(
        {"train": "train.tsv", "dev": "dev_mismatched.tsv", "test": "test_mismatched.tsv"},
        Columns("sentence1", "sentence2", "gold_label", "index"),
        {"test": _pair(None)},
        labels=("contradiction", "entailment", "neutral"),
        left_out=frozenset({"-"}),
    ),
    "qnli": Dataset(
        _splits("tsv"),
        Columns("question", "sentence", "label", "index"),
        {"test": Columns("question", "sentence", None, "index")},
        labels=ENTAILMENT,
    ),
    "rte": Dataset(_splits("tsv"), _pair(), {"test": _pair(None)}, labels=ENTAILMENT),
    "wnli": Dataset(_splits("tsv"), _pair(), {"test": _pair(None)}, labels=YES_NO),
    "diagnostic": Dataset(
        {"test": "diagnostic.tsv"},
        _pair(None),
        labels=("contradiction", "entailment", "neutral"),
        metrics=("matthews",),
    ),
}

_SICK_FILES = {"train": "SICK_train.txt", "dev": "SICK_trial.txt", "test": "SICK_test_annotated.txt"}
ENGLISH = {
    "sick-entailment": Dataset(
        _SICK_FILES,
        Columns("sentence_A", "sentence_B", "entailment_judgment", "pair_ID"),
        labels=("CONTRADICTION", "ENTAILMENT", "NEUTRAL"),
    ),
    "sick-relatedness": Dataset(
        _SICK_FILES,
        Columns("sentence_A", "sentence_B", "relatedness_score", "pair_ID"),
        kind="score",
        metrics=("pearson", "spearman", "mean_squared_error"),
    ),
}

CHINESE = {
    "tnews": Dataset(_splits("json"), Columns(), {"test": Columns(label=None, name="id")}),
    "afqmc": Dataset(_splits("json"), _pair(name=None), {"test": _pair(None, "id")}, labels=YES_NO),
    "ocnli": Dataset(
        {"train": "train.10k.json", "dev": "dev.json", "test": "test.json"},
        _pair(name="id"),
        {"test": _pair(None, "id")},
        labels=("contradiction", "entailment", "neutral"),
        left_out=frozenset({"-"}),
    ),
    "iflytek": Dataset(
        _splits("json"),
        Columns(name="id"),
        {"test": Columns(label=None, name="id")},
        labels=IFLYTEK,
    ),
    "chnsenticorp": Dataset(_splits("tsv"), _CHN, labels=YES_NO),
    "lcqmc": Dataset(_splits("tsv"), _THREE, {"test": _THREE_TEST}, labels=YES_NO),
    "bq": Dataset(_splits("tsv"), _THREE, {"test": _THREE_TEST}, labels=YES_NO),
    "paws-x": Dataset(_splits("tsv"), _THREE, {"test": _THREE_TEST}, labels=YES_NO),
    "sentiment": Dataset(
        {"train": "sentiment.train.data", "dev": "sentiment.valid.data", "test": "sentiment.test.data"},
        _BERT4KERAS,
        labels=YES_NO,
    ),
    "shop-reviews": Dataset({"train": "online_shopping_10_cats.csv"}, Columns("review"), labels=YES_NO),
}
