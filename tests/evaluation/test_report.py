"""Reports on crafted runs: the numbers are right, pictures are there, and without matplotlib an error names
it."""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

from albertine.errors import RunError
from albertine.evaluation.error_analysis import analyze_errors
from albertine.evaluation.report import best_run, write_report
from albertine.evaluation.runs import Run, read_run, write_predictions, write_record

pytestmark = pytest.mark.pictures


def line(
    number: int, right: str, predicted: str, sure: float, labels: tuple[str, str] = ("fine", "poor")
) -> Any:
    other = next(name for name in labels if name != predicted)
    values = {predicted: sure, other: 1 - sure}
    return {
        "id": str(number),
        "text": f"text {number}",
        "prediction": predicted,
        "label": right,
        "probabilities": {name: values[name] for name in labels},
    }


LINES = [
    line(0, "fine", "fine", 0.95),
    line(1, "fine", "poor", 0.75),
    line(2, "poor", "poor", 0.85),
    line(3, "poor", "fine", 0.92),
]
# Bins (0.7, 0.8], (0.8, 0.9], (0.9, 1.0]: one of 0.75, wrong; one of 0.85, right; two of 0.935, one right.
ECE = (1 * 0.75 + 1 * 0.15 + 2 * abs(0.5 - 0.935)) / 4


def made(folder: Path, score: float, lines: Any = LINES, **record: Any) -> Run:
    folder.mkdir(parents=True)
    metric = record.pop("metric", "accuracy")
    facts = {"name": folder.name, "metrics": [metric], "scores": {"step": 9, metric: score}, "seconds": 30.0}
    write_record(folder, facts | record)
    write_predictions(folder / "predictions-dev.jsonl", lines)
    rows = [
        {"step": 5, "task_loss": 0.9},
        {"step": 5, "evaluation": {metric: score / 2}},
        {"step": 9, "task_loss": 0.4},
        {"step": 9, "evaluation": {metric: score}},
    ]
    (folder / "metrics.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return read_run(folder)


def test_one_run(tmp_path: Path) -> None:
    model = {"kind": "albert", "parameters": 11683584, "num_hidden_layers": 12, "hidden_size": 768}
    run = made(tmp_path / "toy", 0.5, notes=["train: 9 examples"], model=model, pretraining="corpus wiki")
    page = write_report(tmp_path / "report", "toy", {"toy": [run]})
    text = page.read_text()
    assert "| toy | accuracy | 0.5000 | 0.5 |" in text
    for words in (
        "11,683,584 parameters, 12 layers of 768",
        "corpus wiki",
        "train: 9 examples",
        f"{ECE:.4f}",
    ):
        assert words in text
    assert "| fine | 1 | 1 |" in text and "| poor | 1 | 1 |" in text
    worst = text[text.index("Worst mistakes") :]
    third, first = "3: **fine** (92.0% confidence), right is **poor**", "1: **poor** (75.0% confidence)"
    assert worst.index(third) < worst.index(first)
    assert "text 3" in worst and "text 0" not in worst
    assert "The wrong answers of highest confidence, each with the id or number of its example." in worst
    for name in ("dev", "loss", "confusion", "calibration"):
        assert (page.parent / f"{name}.png").stat().st_size > 5_000 and f"({name}.png)" in text
    tree = json.loads((page.parent / "report.json").read_text())["tasks"]["toy"]
    assert tree["metrics"]["accuracy"]["median"] == 0.5
    assert tree["best_run"]["expected_calibration_error"] == pytest.approx(ECE)
    assert tree["best_run"]["confusion"] == [[i, j, 1] for i in (0, 1) for j in (0, 1)]


def test_scores_of_a_test_set_alone(tmp_path: Path) -> None:
    """As `albertine evaluate --file` leaves them."""
    both = {"metrics": ["f1", "accuracy"], "scores": {}, "test": {"f1": 0.8, "accuracy": 0.7}}
    runs = [made(tmp_path / name, 0.5, **both) for name in ("one", "two")]
    text = write_report(tmp_path / "alone", "toy", {"toy": runs[:1]}).read_text()
    assert "| f1 |  | 0.8000 |" in text and "| accuracy |  | 0.7000 |" in text
    text = write_report(tmp_path / "both", "toy", {"toy": runs}).read_text()
    assert "| accuracy |  |  |  |  | 0.7000 |" in text


def test_seeds_and_tasks(tmp_path: Path) -> None:
    seeds = [made(tmp_path / f"a-seed-{i}", score) for i, score in enumerate((0.6, 0.9, 0.7))]
    error = made(tmp_path / "b", 0.2, [], metric="mean_squared_error", test={"mean_squared_error": 0.25})
    page = write_report(tmp_path / "report", "both", {"a": seeds, "b": [error]}, ["Left out: c."])
    text = page.read_text()
    assert "| a | accuracy | 3 | 0.7000 | 0.6000 | 0.9000 | 0.1528 | a-seed-1 |  | 1.5 |" in text
    assert "| b | mean_squared_error | 1 | 0.2000 | 0.2000 | 0.2000 |  | b | 0.2500 | 0.5 |" in text
    tree = json.loads((page.parent / "report.json").read_text())["tasks"]
    assert tree["b"]["metrics"]["mean_squared_error"]["deviation"] is None  # undefined for one run
    assert "Left out: c." in text and "What follows is of the best run, a-seed-1." in text
    drawn = {p.name for p in page.parent.glob("*.png")}
    assert drawn >= {"scores.png", "a-dev.png", "a-confusion.png", "b-loss.png"}


def test_means_over_the_splits_of_a_task_and_over_all(tmp_path: Path) -> None:
    scores = {"csl-0": 0.2, "csl-1": 0.4, "ocnli-0": 0.6}
    runs = {name: [made(tmp_path / name, score)] for name, score in scores.items()}
    text = write_report(tmp_path / "report", "few", runs).read_text()
    assert "the 2 parts of csl **0.3000**, all 3 tasks **0.4000**" in text
    assert "ocnli **" not in text
    alone = write_report(tmp_path / "alone", "one", {"csl-0": runs["csl-0"]}).read_text()
    assert "Mean of" not in alone


def test_pictures_of_tasks_whose_names_are_written_alike(tmp_path: Path) -> None:
    names = ["reviews.v1", "reviews-v1", "Reviews v1"]
    tasks = {name: [made(tmp_path / name, 0.5)] for name in names}
    text = write_report(tmp_path / "report", "all", tasks).read_text()
    for number in ("", "-2"):
        assert f"(reviews-v1{number}-dev.png)" in text
    assert "(Reviews-v1-3-dev.png)" in text, "a disk may take large letters for small ones"


def test_the_best_run_goes_by_its_metric(tmp_path: Path) -> None:
    errors = [
        made(tmp_path / name, score, metric="mean_squared_error") for name, score in (("0", 0.3), ("1", 0.2))
    ]
    assert best_run(errors).name == "1"
    assert best_run([made(tmp_path / "x", 0.3), made(tmp_path / "y", 0.2)]).name == "x"


def test_without_matplotlib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    runs = {name: [made(tmp_path / name, 0.5)] for name in ("one", "two")}
    page = write_report(tmp_path / "report", "toys", runs)
    text = page.read_text()
    assert "There are no pictures: matplotlib is not installed" in text and "| fine | 1 | 1 |" in text
    assert not list(page.parent.glob("*.png"))


def test_chinese_classes_are_drawn_or_numbered(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from albertine.analysis.plots import legible

    labels = ("财经", "体育")
    rows = [line(0, "财经", "体育", 0.8, labels), line(1, "体育", "体育", 0.7, labels)]
    run = made(tmp_path / "新闻", 0.5, rows)
    text = write_report(tmp_path / "report", "新闻", {"新闻": [run]}).read_text()
    assert "| 财经 | 0 | 1 |" in text
    drawn = legible(labels)
    assert drawn in ({"财经": "财经", "体育": "体育"}, {"财经": "#1", "体育": "#2"})
    assert ("In the picture: #1 财经, #2 体育." in text) == (drawn["财经"] == "#1")


def test_long_names_leave_a_picture_its_room(tmp_path: Path) -> None:
    """Long labels pushed the matrix out of the figure, and were cut to equal texts."""
    pytest.importorskip("matplotlib")
    labels = tuple(f"{word}, in a name that goes on and on and on and on" for word in ("fine", "poor"))
    rows = [line(0, labels[0], labels[1], 0.8, labels), line(1, labels[1], labels[1], 0.7, labels)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # matplotlib warns that there is no room
        report = write_report(tmp_path / "report", "toy", {"toy": [made(tmp_path / "toy", 0.5, rows)]})
    assert f"In the picture: #1 {labels[0]}, #2 {labels[1]}." in report.read_text()


def test_names_are_no_formulas(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    run = made(tmp_path / "$x^$", 0.5, [line(0, "$\\frac$", "b", 0.8, ("$\\frac$", "b"))])
    page = write_report(tmp_path / "report", "$x^$", {"$x^$": [run], "b": [run]})
    assert len(list(page.parent.glob("*.png"))) == 9


def test_markdown_in_texts_is_shown_as_it_is(tmp_path: Path) -> None:
    odd = {**line(0, "fine", "poor", 0.9), "text": "a | b *c* <br>\nd `e` _f_ g_h " + "x" * 400}
    text = write_report(tmp_path / "report", "toy", {"toy": [made(tmp_path / "toy", 0.0, [odd])]}).read_text()
    assert r"a \| b \*c\* \<br\> d \`e\` \_f\_ g_h xxx" in text and "x" * 350 not in text


def test_texts_hold_separators_of_lines(tmp_path: Path) -> None:
    """Real web text has U+2028, U+0085 and form feeds; a prediction is a line all the same."""
    strange = line(0, "fine", "poor", 0.9) | {"text": "one\u2028two\u0085three\x0cfour\rfive"}
    run = made(tmp_path / "run", 0.5, [strange, LINES[1]])
    assert run.predictions == [strange, LINES[1]]
    assert "five" in write_report(tmp_path / "report", "run", {"run": [run]}).read_text(encoding="utf-8")


def test_findings_of_options_numbers_and_parts() -> None:
    fields = {"question": "who?", "options": ["Ann", "Bo"]}
    chosen = [
        {"id": "m-0", **fields, "prediction": 1, "label": 0, "group": "middle"},
        {"id": "h-0", **fields, "prediction": 0, "label": 0, "group": "high"},
        {"id": "h-1", **fields, "prediction": 1, "label": 0, "group": "high"},
    ]
    shown = analyze_errors([{**row, "probabilities": [0.2, 0.8]} for row in chosen])
    assert shown.groups == {"middle": (1, 0.0), "high": (2, 0.5)}
    assert [(m.name, m.predicted, m.right, m.confidence) for m in shown.mistakes] == [
        ("m-0", "Bo", "Ann", 0.8),
        ("h-1", "Bo", "Ann", 0.8),
    ]
    assert shown.labels == () and sum(b.size for b in shown.bins) == 3
    numbers = analyze_errors(
        [{"id": str(i), "label": 3.0, "prediction": p} for i, p in enumerate((2.9, 5.5, 1.0))]
    )
    assert [m.name for m in numbers.mistakes] == ["1", "2", "0"] and numbers.bins == []
    unknown = analyze_errors([{"id": "0", "prediction": "fine", "probabilities": {"fine": 0.9, "poor": 0.1}}])
    assert unknown.count == 0 and not unknown.mistakes
    spans = analyze_errors([{"id": "0", "prediction": [["X", 0, 1, "a"]], "label": []}])
    assert spans.count == 1 and not spans.mistakes and not spans.bins


def test_what_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no finished run"):
        read_run(tmp_path)
    (tmp_path / "result.json").write_text("[]")
    with pytest.raises(RunError, match="is not a record"):
        read_run(tmp_path)


def test_of_many_classes_only_nonempty_cells_are_reported(tmp_path: Path) -> None:
    names = [str(n) for n in range(2000)]

    def row(number: int) -> dict[str, Any]:
        """The prediction for one example: the ten likeliest classes, the right one not always among them."""
        predicted = (number + number % 3) % 2000
        likely = {names[(predicted + i) % 2000]: 0.5 / (i + 1) for i in range(10)}
        return {
            "id": names[number],
            "label": names[number],
            "prediction": names[predicted],
            "probabilities": likely,
        }

    run = made(tmp_path / "a", 0.5, [row(n) for n in range(1999, -1, -2)], labels=names)
    page = write_report(tmp_path / "report", "many", {"many": [run]})
    assert (page.parent / "report.json").stat().st_size < 200_000
    best = json.loads((page.parent / "report.json").read_text())["tasks"]["many"]["best_run"]
    assert best["labels"] == names and best["examples"] == 1000
    assert best["confusion"] == [[n, (n + n % 3) % 2000, 1] for n in range(1, 2000, 2)]
    assert analyze_errors([row(5)]).labels == (*names[7:17], "5")
