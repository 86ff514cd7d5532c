"""A report on a pretraining run as one HTML file: curves, held-out scores, guesses, their change over depth,
and layers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from albertine.analysis import layer_figures, lens_figures
from albertine.analysis.grids import word
from albertine.analysis.html_report import Section, Table, write_page
from albertine.analysis.layers import layer_statistics
from albertine.analysis.lens import lens
from albertine.analysis.parameters import parameters_by_part
from albertine.analysis.plots import Panel, save_panels, svg_of
from albertine.core.files import user_path
from albertine.errors import SettingsError
from albertine.evaluation.runs import RECORD
from albertine.inference.fill_mask import fill_masks
from albertine.interop.model_names import model_of_run
from albertine.model.sharing import sharing_in_words
from albertine.pretraining.probes import held_out_texts
from albertine.pretraining.run import run_curves, stage_ends
from albertine.pretraining.scores import Pretrained, held_out_scores, open_pretrained, settings_of_run
from albertine.tokenizers.base import Tokenizer

TEXTS = 64
"""Most held-out documents for the statistics of layers."""
GUESSES, MASKED, MASKED_TOKENS = 5, 3, 16
"""Guesses for a masked token; without texts of their own, the held-out texts with a masked token and the
tokens of each."""
_TASKS = {"mlm": "masked tokens", "sop": "sentence order", "nsp": "next sentence", "lm": "predicted tokens"}


def report_pretraining(runs: Sequence[str | Path], output: Path) -> Path | None:
    """Write `report.html` on a pretraining run into a folder; None where no run is one of pretraining.

    Raises:
        SettingsError: it is named with others. AlbertineError: it has no model, or its corpus cannot be read.
    """
    folders = [user_path(run) for run in runs]
    found = [f for f in folders if not (f / RECORD).is_file() and settings_of_run(f / "final") is not None]
    if not found:
        return None
    if len(folders) > 1:
        raise SettingsError(
            "is a pretraining run, and a report is of one such run or of runs of tasks",
            where=found[0],
            remedy="Name it alone",
        )
    settings = settings_of_run(found[0] / "final")
    assert settings is not None
    pretrained = open_pretrained(model_of_run(found[0]))
    scores = held_out_scores(pretrained, settings.corpus)
    path = output / "report.html"
    return write_run_report(path, found[0], pretrained, settings.corpus, scores)


def write_run_report(
    path: Path,
    run: Path,
    pretrained: Pretrained,
    corpus: Path,
    scores: Mapping[str, Mapping[str, Any]],
    *,
    masked: Sequence[str] = (),
    commands: Sequence[str] = (),
) -> Path:
    """Write the report.

    Args:
        path: the HTML file. run: folder of the run. pretrained: its model.
        corpus: its folder, whose held-out documents are read.
        scores: of `held_out_scores`. masked: texts with [MASK] for its guesses; default: from held-out text.
        commands: to go on with.

    Raises:
        RunError: matplotlib is not installed, or the file cannot be written.
    """
    model, name = pretrained.model, run.name
    parts = parameters_by_part(model.config)
    text = [
        f"{sum(parts.values()):,} parameters; {sharing_in_words(model.config.plan)}; hidden size "
        f"{model.config.hidden_size}, vocabulary of {model.config.vocab_size:,}."
    ]
    sections = [_curves(run, scores), _scores(scores)]
    texts = held_out_texts(corpus, pretrained.tokenizer, TEXTS)
    if model.mlm is not None:
        masked = masked or [_with_mask(text, pretrained.tokenizer) for text in texts[:MASKED]]
        sections += _guesses(pretrained, masked, name)
    found = layer_statistics(model, pretrained.tokenizer, texts, label=name)
    sections += layer_figures.sections([found])
    if commands:
        sections.append(Section("Commands for this model", pre="\n".join(commands)))
    return write_page(path, f"Pretraining run {name}", sections, text=text)


def _curves(run: Path, scores: Mapping[str, Mapping[str, Any]]) -> Section:
    metrics = run / "metrics.jsonl"
    baseline = scores.get("mlm", {}).get("baseline_loss")
    panels = [
        Panel(
            f"{what}: {unit}",
            curves,
            x="step",
            levels={"unigram baseline": baseline} if key == "mlm_loss" and baseline is not None else {},
            borders=stage_ends(metrics),
        )
        for key, what, unit, curves in run_curves(metrics)
    ]
    if not panels:
        return Section("Training", ["The run has no metrics yet."])
    figure = svg_of(lambda path: save_panels(path, panels, title=f"Training of {run.name}", columns=2))
    return Section("Training", figures=[figure], alt="loss and accuracy over training steps")


def _scores(scores: Mapping[str, Mapping[str, Any]]) -> Section:
    rows = [
        [
            _TASKS.get(task, task),
            f"{own['accuracy']:.1%}",
            f"{own['baseline']:.1%}",
            f"{own['loss']:.3f}",
            f"{own['baseline_loss']:.3f}",
            f"{own['count']:,}",
        ]
        for task, own in scores.items()
    ]
    columns = ("held-out documents", "accuracy", "baseline", "loss, nats", "baseline", "predictions")
    words = "The baseline always predicts the most frequent token or label; its loss is that of frequencies."
    return Section("Scores", [words], Table(columns, rows))


def _with_mask(text: str, tokenizer: Tokenizer) -> str:
    """The first tokens of a text, the one in the middle as [MASK]."""
    ids = tokenizer.encode(text)[:MASKED_TOKENS]
    middle = len(ids) // 2
    before, after = tokenizer.decode(ids[:middle]), tokenizer.decode(ids[middle + 1 :])
    return f"{before} {tokenizer.special.mask} {after}"


def _guesses(pretrained: Pretrained, texts: Sequence[str], name: str) -> Iterator[Section]:
    """The guesses for all texts, and those for the first over depth."""
    found, _ = fill_masks(pretrained.model, pretrained.tokenizer, list(texts), GUESSES, pretrained.folder)
    rows = []
    for text, masks in zip(texts, found, strict=True):
        for mask in masks:
            guesses = " · ".join(f"{word(g.token)} {g.probability:.0%}" for g in mask)
            rows.append([text, guesses])
    yield Section("Guesses for masked tokens", table=Table(("text", "most probable tokens"), rows))
    found_over_depth = lens(pretrained.model, pretrained.tokenizer, texts[0], top=GUESSES)
    first, *_ = lens_figures.sections(found_over_depth, name)
    yield replace(first, heading="Guesses over depth", text=[f"Text: {texts[0]}", *first.text])
