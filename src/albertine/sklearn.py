"""`albertine.TextClassifier`: `finetune` and `Predictor` as a classifier of scikit-learn."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from albertine import api
from albertine.core.number_formats import Precision
from albertine.core.settings import merge
from albertine.errors import InputError, RunError, SettingsError
from albertine.tasks.datasets.classes import class_name
from albertine.tasks.prediction_columns import chunks
from albertine.tasks.predictor import Predictor
from albertine.tasks.readers.table import Row
from albertine.tasks.readers.values import kind_of_value, plain
from albertine.training.progress import Reporter

try:
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.utils import assert_all_finite, check_consistent_length, column_or_1d
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted
except ImportError as gone:
    raise SettingsError(
        "TextClassifier needs scikit-learn", remedy="pip install 'albertine[sklearn]'"
    ) from gone


TRAINING = ("epochs", "steps", "batch_size", "learning_rate", "precision")
PARAMETERS = {f"training.{name}": name for name in TRAINING} | {
    "task.max_length": "max_length",
    "seed": "random_state",
    "encoder": "encoder",
    "output": "output",
}
"""Settings of `finetune` that are parameters of `TextClassifier`."""
WATCHING = {"watching": {"tensorboard": False, "report": False}}
PARTS = ("task", "training", "watching", "encoder_options")
OWN = {"task.kind", "task.dataset", "task.folder", "task.train", "task.dev", "task.test"}
OWN |= {"task.text", "task.pair", "task.label"}
"""Settings that `fit` passes itself."""


class TextClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier of texts, or of pairs of texts (also as two columns), that fine-tunes an encoder.

    Args:
        encoder: a model or run folder, a released model, or `owner/name[@revision]` of the hub.
        epochs, steps, batch_size, learning_rate, precision: as in the settings `training`.
        max_length: tokens of a text or a pair; None: 128, or the encoder's positions if fewer.
        random_state: the seed, a number.
        device: where to answer; it learns on a GPU where there is one.
        output: folder for the runs, one for every other X, y and parameters: a fit that was done is not done
            again, and one that was interrupted goes on. Default: nothing is left behind, and what was fitted
            lives in memory alone.
        settings: others of `finetune`, of the parts `task`, `training`, `watching` and `encoder_options`:
            `{"training": {"class_weights": "balanced"}}`.

    Attributes:
        classes_: sorted, as y has them.
        model_: the folder of the fitted model; None without `output`.
    """

    _predictor: Predictor | None = None  # of estimators that were pickled when it had another name

    def __init__(
        self,
        encoder: str | Path = "albertine-mini-en",
        *,
        epochs: float = 3,
        steps: int | None = None,
        batch_size: int = 32,
        learning_rate: float | None = None,
        max_length: int | None = None,
        precision: Precision = "auto",
        device: str = "cpu",
        random_state: int = 1,
        output: str | Path | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self.encoder, self.settings, self.output = encoder, settings, output
        self.epochs, self.steps, self.batch_size = epochs, steps, batch_size
        self.learning_rate, self.max_length, self.random_state = learning_rate, max_length, random_state
        self.precision, self.device = precision, device

    def fit(self, X: Any, y: Any) -> TextClassifier:
        """Train a classifier of texts.

        Raises:
            ValueError: not texts, a class is missing, or there are fewer than two. AlbertineError: as
                `albertine.finetune`; `settings` have one that is a parameter, or none of a classifier.
        """
        own = _checked(self.settings)
        texts = _texts(X)
        _check_none_missing(y)
        y = column_or_1d(y, warn=True)
        assert_all_finite(y, input_name="y")
        check_classification_targets(y)
        check_consistent_length(texts, y)
        classes, numbers = np.unique(y, return_inverse=True)
        names = [class_name(Row({}, "y"), "y", plain(name, "y")) for name in classes]
        if len({*names} - {""}) < max(2, len(classes)):
            raise InputError(f"y must have two classes or more of different names, not one class: {names}")
        rows = [{**text, "label": names[n]} for text, n in zip(texts, numbers, strict=True)]
        task: dict[str, Any] = {"kind": "single"}
        task |= {} if self.max_length is None else {"max_length": self.max_length}
        task |= {"pair": "pair"} if "pair" in rows[0] else {}
        training = {name: getattr(self, name) for name in TRAINING}
        parameters = {"task": task, "training": training, "seed": self.random_state}
        tree = merge(WATCHING, own, plain(parameters, "settings"))
        whole = json.dumps([str(self.encoder), tree, rows], sort_keys=True, default=str).encode()
        tree["name"] = f"fit-{hashlib.blake2b(whole, digest_size=8).hexdigest()}"
        with TemporaryDirectory() if self.output is None else nullcontext(self.output) as output:
            tree |= {"output": output, "reporter": Reporter(quiet=True)}
            done = api.finetune(self.encoder, train=rows, **tree)
            if not done.outcome.done:  # it saved itself first
                raise KeyboardInterrupt
            self._predictor = self._open(done.model)
        self.model_: Any = None if self.output is None else done.model.absolute()
        self.classes_, self._columns = classes, [self._predictor.family.labels.index(name) for name in names]
        return self

    def _open(self, folder: Path) -> Predictor:
        predictor = Predictor(folder, device=self.device, precision=self.precision)
        predictor.tuned  # noqa: B018  (all is read while the folder is there)
        return predictor

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """The probability of every class, (texts, classes), in the order of `classes_`."""
        check_is_fitted(self)
        texts: list[Any] = [(t["text"], t["pair"]) if "pair" in t else t["text"] for t in _texts(X)]
        self._predictor = self._predictor or self._open(self.model_)
        outputs = map(self._predictor.classify, chunks(texts, 512))  # a dictionary of all classes a text
        return np.concatenate([np.array([list(x.values()) for x in part]) for part in outputs])[
            :, self._columns
        ]

    def predict(self, X: Any) -> NDArray[Any]:
        """The likeliest class of every text."""
        chances = self.predict_proba(X)
        return np.asarray(self.classes_[chances.argmax(1)])

    def __getstate__(self) -> dict[str, Any]:
        """The parameters, and where the fitted model lies: weights are never pickled."""
        if hasattr(self, "classes_") and self.model_ is None:
            what = "what was fitted without `output` lives in memory alone, and cannot be pickled or copied"
            raise RunError(what, remedy="Fit with output=FOLDER, which keeps the model there")
        return {name: None if name == "_predictor" else value for name, value in vars(self).items()}

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string, tags.input_tags.two_d_array = True, False
        return tags


def _checked(settings: Any) -> Mapping[str, Any]:
    """What a person sets beside the parameters.

    Raises:
        SettingsError: it is a parameter, or nothing that is set for a classifier.
    """
    for part, value in (settings or {}).items():
        if part in PARTS and not isinstance(value, Mapping):
            raise SettingsError(f"`{part}` is {kind_of_value(value)}, not a dictionary", where="settings")
        for name in [f"{part}.{key}" for key in value] if part in PARTS else [part]:
            if name in PARAMETERS:
                remedy = f"Give TextClassifier(..., {PARAMETERS[name]}=...)"
                raise SettingsError(f"`{name}` is a parameter", where="settings", remedy=remedy)
            if name == part or name in OWN:
                remedy = f"They are of the parts {', '.join(PARTS)}, without those that `fit` passes itself"
                raise SettingsError(f"`{name}` is none of them", where="settings", remedy=remedy)
    return settings or {}


def _listed(values: Any) -> Any:
    """Texts or classes as a list, of whatever library; what is none is left as it is."""
    for method in ("to_pylist", "to_numpy", "tolist"):  # of pyarrow; pandas and polars; NumPy
        values = getattr(values, method)() if hasattr(values, method) else values
    is_column = isinstance(values, Sequence) and not isinstance(values, str | bytes)  # of `datasets`
    return list(values) if is_column else values


def _check_none_missing(y: Any) -> None:
    """
    Raises:
        InputError: a class is None, NaN or NA, of which NumPy would make one more class, `nan`.
    """
    classes = _listed(y)
    for number, one in enumerate(classes if isinstance(classes, list) else ()):
        if plain(one, f"y[{number}]") is None:
            raise InputError(f"y[{number}] is missing", remedy="Give every text its class, or leave it out")


def _texts(X: Any) -> list[dict[str, str]]:
    """Every text as a row with `text`, and `pair` where it has one."""
    rows = _listed(X)
    if not isinstance(rows, list | tuple) or not rows:
        raise InputError(f"X is {kind_of_value(rows)}", remedy="Give a list of one text or more")
    found = [[row] if isinstance(row, str) else row for row in rows]
    for number, parts in enumerate(found):
        texts = isinstance(parts, list | tuple) and all(isinstance(part, str) for part in parts)
        if not texts or len(parts) != len(found[0]) or len(parts) not in (1, 2):
            raise InputError(f"X[{number}] is no text or pair, as the others are: {rows[number]!r:.80}")
    return [dict(zip(("text", "pair"), parts, strict=False)) for parts in found]
