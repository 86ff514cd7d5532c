"""`albertine.TextClassifier` is a classifier of scikit-learn: its own checks, and what it is used with."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import check_estimator, check_estimators_pickle
from sklearn.utils.validation import validate_data

import albertine
from albertine import TextClassifier
from albertine.errors import RunError, SettingsError
from tests.tasks.test_api import rows


class OfNumbers(TextClassifier):
    """Takes the numbers that scikit-learn's checks feed, as words."""

    def fit(self, X: Any, y: Any) -> TextClassifier:
        X, y = validate_data(self, X, y)
        return super().fit(words(X), y)

    def predict_proba(self, X: Any) -> Any:
        found = super().predict_proba(words(validate_data(self, X, reset=False))).astype(float).round(4)
        # A text's numbers differ in the last bit of float32 with its place in a batch, and the checks require
        # more digits than that.
        found[:, -1] = 1 - found[:, :-1].sum(1)
        return found

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = True
        return tags


def words(numbers: Any) -> list[str]:
    return [" ".join(f"{x:.1f}" for x in row) for row in numbers.tolist()]


FAIL = {
    "check_classifiers_train": "asks for 83 % right of numbers, which as words are nearly all unknown",
    "check_estimators_pickle": "what was fitted without `output` is refused; the next test asks with it",
}
SMALL: dict[str, Any] = {"steps": 1, "max_length": 16, "precision": "float32"}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
def test_the_checks_of_scikit_learn(pretrained: Path) -> None:
    found = check_estimator(OfNumbers(pretrained, **SMALL), expected_failed_checks=FAIL)
    assert {one["check_name"] for one in found if one["status"] == "xfail"} == set(FAIL)
    assert len(found) > 50


def test_what_is_pickled_is_where_the_model_lies(pretrained: Path, tmp_path: Path) -> None:
    kept = OfNumbers(pretrained, output=tmp_path, **SMALL)
    check_estimators_pickle("TextClassifier", kept)
    kept.fit(np.eye(4), [0, 1, 0, 1])
    assert len(pickle.dumps(kept)) < 2_000 < (kept.model_ / "model.safetensors").stat().st_size
    fitted = OfNumbers(pretrained, **SMALL).fit(np.eye(4), [0, 1, 0, 1])
    with pytest.raises(RunError, match="output=FOLDER"):
        pickle.dumps(fitted)
    assert pickle.loads(pickle.dumps(clone(fitted))).get_params() == fitted.get_params()
    del kept._predictor  # as in a pickle of a version that had another name for it
    assert kept.predict(np.eye(4)).shape == (4,)


@pytest.fixture(scope="module")
def small(pretrained: Path) -> TextClassifier:
    return TextClassifier(
        pretrained, epochs=6, batch_size=16, learning_rate=0.003, max_length=16, precision="float32"
    )


def test_it_learns_as_finetune_does(
    small: TextClassifier, tables: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    train, dev = rows(tables["train"]), rows(tables["dev"])
    X, y = [row["review"] for row in train], [row["verdict"] for row in train]
    reviews = [row["review"] for row in dev]
    fitted = clone(small).fit(X, y)
    assert not list((tmp_path / "temporary").iterdir()) and fitted.model_ is None
    assert list(fitted.classes_) == ["fine", "poor"]
    assert fitted.score(reviews, [row["verdict"] for row in dev]) > 0.9
    how = {"epochs": 6, "batch_size": 16, "learning_rate": 0.003, "precision": "float32"}
    result = albertine.finetune(
        small.encoder,
        train=[{"text": a, "label": b} for a, b in zip(X, y, strict=True)],
        task={"max_length": 16},
        training=how,
        watching={"tensorboard": False, "report": False},
        output=tmp_path,
    )
    answers = albertine.Predictor(result.model, precision="float32").classify(reviews)
    np.testing.assert_array_equal(fitted.predict_proba(reviews), [list(one.values()) for one in answers])


def test_a_fit_that_was_done_is_not_done_again(
    small: TextClassifier, tables: dict[str, Path], tmp_path: Path
) -> None:
    train = rows(tables["train"])[:40]
    X, y = [row["review"] for row in train], [row["verdict"] for row in train]
    kept = clone(small).set_params(steps=2, output=tmp_path)
    first = kept.fit(X, y).model_
    weights = first / "model.safetensors"
    written = weights.stat().st_mtime_ns
    again = clone(kept).fit(X, y)
    assert again.model_ == first and weights.stat().st_mtime_ns == written
    others = [clone(kept).fit(X[1:], y[1:]), clone(kept).set_params(random_state=2).fit(X, y)]
    assert len({first, *(one.model_ for one in others)}) == 3


def test_pipelines_and_searches(small: TextClassifier, tables: dict[str, Path]) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.read_csv(tables["train"])[:60]
    short = clone(small).set_params(steps=2)
    line = make_pipeline(FunctionTransformer(lambda X: X.str.upper()), short)
    assert line.fit(frame["review"], frame["verdict"]).predict(frame["review"]).shape == (60,)
    scores = cross_val_score(short, frame["review"].to_numpy(), frame["verdict"], cv=2)
    assert scores.shape == (2,) and np.isfinite(scores).all()
    grid = {"learning_rate": np.array([1e-9, 0.003]), "steps": np.array([40])}
    search = GridSearchCV(clone(small), grid, cv=2).fit(list(frame["review"]), frame["points"] > 1)
    assert search.best_params_["learning_rate"] == 0.003 and search.classes_.dtype == bool
    assert search.predict(frame["review"][:3]).dtype == bool


def test_pairs(small: TextClassifier, tables: dict[str, Path]) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.read_csv(tables["dev"])[:20]
    pairs = list(zip(frame["answer"], frame["review"], strict=True))
    short = clone(small).set_params(steps=4, settings={"training": {"class_weights": "balanced"}})
    fitted = short.fit(pairs, frame["points"].astype(int))
    assert fitted.classes_.tolist() == [0, 2]
    expected = fitted.predict_proba(pairs)
    for form in (frame[["answer", "review"]], np.array(pairs), [list(pair) for pair in pairs]):
        np.testing.assert_array_equal(fitted.predict_proba(form), expected)
    assert not np.allclose(fitted.predict_proba([(b, a) for a, b in pairs]), expected)


def test_what_is_no_text(small: TextClassifier) -> None:
    for X, y, message in (
        ("a man", ["x"], "X is text"),
        ([], [], "X is a list"),
        (["a", 3], ["x", "y"], r"X\[1\] is no text.*: 3$"),
        (["a", None], ["x", "y"], r"X\[1\] is no text.*: None$"),
        (["a", ("b", "c")], ["x", "y"], r"X\[1\] is no text.*as the others"),
        (["a", "b"], ["x"], "inconsistent numbers of samples"),
        (["a", "b"], ["x", "x"], r"one class: \['x'\]"),
        (["a", "b"], ["x", "x "], "two classes or more"),
        (["a", "b"], ["x", ""], "two classes or more"),
        (["a", "b"], [0.5, 0.7], "continuous"),
        (["a", "b"], None, "y should be a 1d array"),
    ):
        with pytest.raises(ValueError, match=message):
            clone(small).fit(X, y)
    with pytest.raises(SettingsError, match=r"training\.batch_size"):
        clone(small).set_params(batch_size=0).fit(["a", "b"], ["x", "y"])


def test_without_scikit_learn_the_error_names_it() -> None:
    script = (
        "import sys; sys.modules['sklearn'] = None\nfrom albertine import *\nimport albertine\n"
        "try: albertine.TextClassifier\nexcept albertine.errors.AlbertineError as error: print(error)"
    )
    output = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert output == "TextClassifier needs scikit-learn. pip install 'albertine[sklearn]'\n"


def test_settings_beside_the_parameters(small: TextClassifier, tmp_path: Path) -> None:
    """They override defaults; settings that would be lost are refused by name."""
    short = clone(small).set_params(steps=1, output=tmp_path, settings={"watching": {"report": True}})
    fitted = short.fit(["a", "b"], ["x", "y"])
    written = (fitted.model_.parent / "settings.yaml").read_text(encoding="utf-8")
    assert "report: true" in written and "tensorboard: false" in written
    for settings, message in (
        ({"training": {"learning_rate": 0.1}}, r"`training\.learning_rate` is a parameter.*learning_rate="),
        ({"seed": 7}, r"`seed` is a parameter.*random_state="),
        ({"task": {"max_length": 8}}, r"`task\.max_length` is a parameter"),
        ({"encoder": {"dropout": 0.1}}, "`encoder` is a parameter"),
        ({"train": "a file"}, "`train` is none of them.*encoder_options"),
        ({"name": "mine"}, "`name` is none of them"),
        ({"task": {"label": "stars"}}, r"`task\.label` is none of them"),
        ({"training": 3}, "`training` is a number, not a dictionary"),
        ({"training": {"epoch": 3}}, r"unknown setting `training\.epoch`"),
    ):
        with pytest.raises(SettingsError, match=message):
            clone(short).set_params(settings=settings).fit(["a", "b"], ["x", "y"])


def test_a_pickled_classifier_works_in_another_folder(
    small: TextClassifier, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    fitted = clone(small).set_params(steps=1, output="runs").fit(["a", "b"], ["x", "y"])
    content, expected = pickle.dumps(fitted), fitted.predict_proba(["a"])
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    np.testing.assert_array_equal(pickle.loads(content).predict_proba(["a"]), expected)


def test_columns_of_other_libraries(small: TextClassifier) -> None:
    datasets, pa = pytest.importorskip("datasets"), pytest.importorskip("pyarrow")
    columns = {"text": ["a good man", "a house"] * 2, "label": [3, 5] * 2}
    table, short = datasets.Dataset.from_dict(columns), clone(small).set_params(steps=1)
    expected = short.fit(columns["text"], columns["label"]).predict_proba(columns["text"])
    for X, y in (
        (table["text"], table["label"]),
        (pa.array(columns["text"]), pa.array(columns["label"])),
        (pa.chunked_array([columns["text"]]), pa.chunked_array([columns["label"]])),
    ):
        fitted = clone(short).fit(X, y)
        assert fitted.classes_.tolist() == [3, 5]
        np.testing.assert_array_equal(fitted.predict_proba(X), expected)


def test_few_texts_are_reported_at_once(small: TextClassifier, monkeypatch: pytest.MonkeyPatch) -> None:
    fitted, sizes = clone(small).set_params(steps=1).fit(["a", "b"], ["x", "y"]), list[int]()
    classify = albertine.Predictor.classify

    def counted(self: albertine.Predictor, texts: list[str]) -> Any:
        sizes.append(len(texts))
        return classify(self, texts)

    monkeypatch.setattr(albertine.Predictor, "classify", counted)
    assert fitted.predict_proba(["a man"] * 1100).shape == (1100, 2) and max(sizes) <= 512


def test_classes_that_are_digits_keep_their_columns(small: TextClassifier) -> None:
    """NumPy sorts "10" before "2"; the classes of a run are sorted as numbers."""
    fitted = clone(small).set_params(steps=1).fit(["a man", "a house"] * 2, ["2", "10"] * 2)
    assert fitted.classes_.tolist() == ["10", "2"]
    predictor: Any = fitted._predictor
    (answer,) = predictor.classify(["a man"])
    assert answer["2"] != answer["10"]
    np.testing.assert_array_equal(fitted.predict_proba(["a man"]), [[answer["10"], answer["2"]]])


def test_a_missing_class_is_named(small: TextClassifier) -> None:
    """Catches: the class `nan` that NumPy makes of it, and a traceback of pandas."""
    pd = pytest.importorskip("pandas")
    for y in (
        ["x", np.nan, "y"],
        ["x", None, "y"],
        np.array(["x", None, "y"], dtype=object),
        pd.Series(["x", pd.NA, "y"], dtype="string"),
        pd.Series([1, None, 2], dtype="Int64", index=[7, 7, 7]),
        pd.Series(["x", None, "y"], dtype="category"),
    ):
        with pytest.raises(ValueError, match=r"^y\[1\] is missing\. Give every text its class"):
            clone(small).fit(["a man", "a house", "a town"], y)
