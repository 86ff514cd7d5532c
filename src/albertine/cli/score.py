"""`albertine score`: a pretrained model on text it has not seen."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from albertine.cli import show
from albertine.cli.options import DeviceOption, Json, LayersOption, PrecisionOption

TASKS = {"mlm": "masked tokens", "sop": "sentence order", "nsp": "next sentence"}
NO_SKILL = {"mlm": "the commonest word", "sop": "the commoner order", "nsp": "the commoner answer"}
ORDERS = {"in_order": "in order", "swapped": "swapped", "truly_next": "truly next", "random": "random"}


def score(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="Folder, run or name of a pretrained model.")],
    corpus: Annotated[
        Path | None,
        typer.Argument(
            metavar="CORPUS", help="Folder of `albertine prepare`; its held-out documents are the text."
        ),
    ] = None,
    texts: Annotated[
        list[Path] | None,
        typer.Option(
            "--texts",
            help="Hide words of these files or folders (give it again for more), not of the corpus; the same "
            "words for every vocabulary.",
        ),
    ] = None,
    max_length: Annotated[
        int | None,
        typer.Option("--max-length", min=8, help="Tokens of a sample; default: the run's, or 128."),
    ] = None,
    sequences: Annotated[
        int,
        typer.Option(
            "--sequences",
            min=1,
            help="Most samples to judge; where sequences go on, the text of so many of the run's length.",
        ),
    ] = 1024,
    pairs: Annotated[
        bool,
        typer.Option(
            "--pairs/--no-pairs",
            help="Of a corpus: samples of two segments for a model with sentence order, as it was trained; "
            "without them all models see the same passages.",
        ),
    ] = True,
    sentence_task: Annotated[
        Literal["sop", "nsp"] | None,
        typer.Option(
            "--sentence-task",
            help="Of a corpus: pairs by which the sentence head is judged, whatever it was trained with: "
            "sentence order or next sentence (Table 5 of the ALBERT paper); default: its own.",
        ),
    ] = None,
    memory: Annotated[
        int | None,
        typer.Option(
            "--memory",
            min=0,
            help="Of a model whose sequences go on: tokens before a sample that it may look at; default: as "
            "in its training. More, with short samples (--max-length), is Transformer-XL's evaluation.",
        ),
    ] = None,
    reach: Annotated[
        int | None,
        typer.Option(
            "--reach",
            min=0,
            help="Of such a model: every token sees itself and so many before it, wherever it stands in its "
            "sample: XLNet's same_length for N of memory; Transformer-XL's own code has one fewer, N - 1.",
        ),
    ] = None,
    clamp: Annotated[
        int | None,
        typer.Option(
            "--clamp",
            min=1,
            help="Of such a model: larger distances count as this one, as in Transformer-XL's evaluation; "
            "default: as in its training.",
        ),
    ] = None,
    device: DeviceOption = "cpu",
    precision: PrecisionOption = "float32",
    layers: LayersOption = None,
    json: Json = False,
) -> None:
    """Score a pretrained model on text that it has not seen. Beside that stands what no skill would score.

    Give a corpus, or text of your own with --texts, or both."""
    of_corpus: dict[str, Any] = {"sentence_task": sentence_task}
    of_corpus |= {"memory": memory, "reach": reach, "clamp": clamp}
    unused = [f"--{name.replace('_', '-')}" for name, value in of_corpus.items() if value is not None]
    if corpus is None and (unused or not pairs):
        raise typer.BadParameter("belongs to a corpus", param_hint="--no-pairs" if not pairs else unused[0])
    from albertine.core.files import user_path
    from albertine.corpus.source import Source
    from albertine.pretraining.probes import score_pretrained

    source = Source(texts or ())
    scores = score_pretrained(
        model,
        None if corpus is None else user_path(corpus),
        texts=[user_path(path) for path in texts or ()],
        max_length=max_length,
        sequences=sequences,
        device=device,
        precision=precision,
        layers=layers,
        on_file=source.add_report,
        pairs=pairs,
        **of_corpus,
    )
    show.notes(source.passed_over())
    if json:
        show.as_json(list(scores.values()))
        return
    if "lm" in scores:
        _print_stream(scores["lm"])
    elif corpus is not None:
        print_scores(scores)
    if "mlm" in scores:
        _print_reading(scores["mlm"])


def _print_stream(s: Mapping[str, Any]) -> None:
    """The scores of a model whose sequences go on; of a masked one those on [MASK] alone first."""
    of, one = ("mask_", "[MASK]") if "mask_loss" in s else ("", "token")
    loss, level, count = s[f"{of}loss"], s[f"{of}baseline_loss"], show.count(s[f"{of}count"])
    known = {
        "perplexity": f"{math.exp(loss):.2f} (by frequency alone {math.exp(level):.1f})",
        f"bits a {one}": f"{loss / math.log(2):.3f}",
        "right": f"{s[f'{of}accuracy']:.1%} of {count} (the commonest word: {s[f'{of}baseline']:.1%})",
    }
    if of:
        known["those kept or replaced too"] = (
            f"perplexity {s['perplexity']:.2f}, {s['accuracy']:.1%} of {show.count(s['count'])} right "
            f"(without skill, copied: {s['floor']:.1%})"
        )
    known["read"] = f"segments of {s['segment']} tokens, and {s['memory']} before each in memory"
    show.facts(f"Held-out documents, {s['kind']} tokens", known)


def print_scores(scores: Mapping[str, Mapping[str, Any]]) -> None:
    """The scores of every task as a table."""
    columns = ("held-out documents", "right", "without skill", "loss", "without skill", "judged")
    rows, known = [], {}
    for task, s in scores.items():
        other = f", by a head for {TASKS[s['trained_with']]}" if "trained_with" in s else ""
        name, right = f"{TASKS[task]}{other} (without skill: {NO_SKILL[task]})", s["baseline"]
        if "mask_loss" in s:
            hidden = (s["mask_accuracy"], s["mask_baseline"], s["mask_loss"])
            rows.append(_row(name, *hidden, s["mask_baseline_loss"], s["mask_count"]))
            name, right = "  those kept or replaced too (without skill: copies them)", s["floor"]
            known["context gain"] = (
                f"{s['context_gain']:.3f} nats (the loss without skill less that of the model)"
            )
            if "cosine" in s:
                known["mean cosine of final states"] = f"{s['cosine']:.3f} (1: the same for every word)"
            if "mean_steps" in s:
                known["mean steps of a token"] = f"{s['mean_steps']:.2f}"
        rows.append(_row(name, s["accuracy"], right, s["loss"], s["baseline_loss"], s["count"]))
        for key, words in ORDERS.items():
            if (value := s.get(f"{key}_accuracy")) is not None:
                rows.append([f"  pairs {words}", f"{value:.1%}", "", "", "", ""])
        if "by_length" in s:
            rows.append(["  by their lengths alone", f"{s['by_length']:.1%}", "", "", "", ""])
    show.table(columns, rows)
    if known:
        show.facts("Masked tokens", known)


def _row(name: str, right: float, floor: float, loss: float, level: float, count: int) -> list[str]:
    return [name, f"{right:.1%}", f"{floor:.1%}", f"{loss:.3f}", f"{level:.3f}", show.count(count)]


def _print_reading(read: Mapping[str, Any]) -> None:
    spans, copying, minute = read["spans"], read["copying"], read["onset_minutes"]
    known = {
        "nats per character": f"{spans['nats_per_character']:.4f} "
        f"(by frequency alone {spans['unigram_nats_per_character']:.4f})",
        "whole words right": f"{spans['span_accuracy']:.1%} of {show.count(spans['spans'])}, "
        f"{show.count(spans['characters'])} characters",
        "pieces right": f"{spans['piece_accuracy']:.1%} of {show.count(spans['pieces'])}, "
        f"{spans['unknown']:.1%} unknown",
    }
    show.facts("Fixed words of the text, all [MASK]", known)
    if copying is not None:
        from albertine.evaluation.intervals import of_share

        sure = of_share(copying["right"], copying["words"])
        known = {
            "right": f"{copying['right']:.1%} (95% interval: {sure.low:.1%} to {sure.high:.1%})",
            "without the first copy": f"{copying['without_copy']:.1%} of {show.count(copying['words'])}",
        }
        show.facts("A passage twice, a word masked in the second", known)
    if minute is not None:
        typer.echo(f"Context gain over 0.3 nats by minute {minute:.1f} of training.")
