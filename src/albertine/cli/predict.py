"""`albertine predict`: predictions of a trained model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from albertine.cli import generate, show
from albertine.cli.embed import embed, similarity
from albertine.cli.inputs import lines, model_and_pair, model_and_texts, opener
from albertine.cli.options import (
    ANY_MODEL,
    DeviceOption,
    EachJson,
    Json,
    LayersOption,
    PrecisionOption,
    RuntimeOption,
    Texts,
)
from albertine.cli.predict_file import over_files

if TYPE_CHECKING:
    from albertine.inference.fill_mask import Guess
    from albertine.tasks.predictor import Predictor


T = TypeVar("T")
ZERO_SHOT_TEXTS = 64
"""Texts that are computed together, each with every label."""


def fill_mask(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[MODEL] TEXT",
            help=f"{ANY_MODEL} Texts with [MASK]; without any, lines of stdin.",
        ),
    ] = None,
    top: Annotated[int, typer.Option("--top", min=1, help="Candidates for each mask.")] = 5,
    precision: PrecisionOption = "auto",
    device: DeviceOption = "cpu",
    runtime: RuntimeOption = None,
    layers: LayersOption = None,
    json: EachJson = False,
) -> None:
    """The likeliest words under every [MASK]."""
    model, text = model_and_texts(words, masked=True)
    open_for = opener(model, precision, device, runtime=runtime, layers=layers)
    used: set[Predictor] = set()

    def predict(line: str) -> list[list[Guess]]:
        used.add(predictor := open_for(line))
        return predictor.fill_mask(line, top_k=top)

    _each(
        text,
        json,
        predict,
        lambda masks, _: {
            "masks": [[{"token": g.token, "probability": g.probability} for g in mask] for mask in masks]
        },
        lambda masks, _: map(in_words, masks),
    )
    show.cut(sum(predictor.cut for predictor in used))


def order(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="[MODEL] FIRST SECOND",
            help=f"{ANY_MODEL} A passage, and the one that is thought to follow it.",
        ),
    ],
    layers: LayersOption = None,
    json: Json = False,
) -> None:
    """How likely the first passage is to come before the second."""
    model, first, second = model_and_pair(words)
    predictor = opener(model, layers=layers)(first, second)
    probability = predictor.sentence_order([(first, second)])[0]
    show.as_json({"in_order": probability}) if json else typer.echo(
        f"{probability:.1%} that they stand in order"
    )
    show.cut(predictor.cut)


@over_files("classify", "to classify", without=())
def classify(
    predictor: Predictor,
    text: Annotated[
        list[str] | None,
        typer.Argument(metavar="TEXT...", help="Texts; without any, lines of stdin. A tab parts a pair."),
    ] = None,
    json: EachJson = False,
) -> None:
    """The class of every text, or its score."""
    from albertine.tasks.prediction_columns import chunks
    from albertine.tasks.predictor import CHUNK

    def predict(batch: Sequence[str]) -> list[dict[str, float]]:
        parts = [line.split("\t", 1) for line in batch]
        return predictor.classify([(p[0], p[1]) if len(p) == 2 else p[0] for p in parts])

    for line, values in show.predicted(chunks(text or lines(), CHUNK), predict):
        result = {"text": line, "classes": values}
        show.as_json(result, indent=None) if json else typer.echo(f"{_classes(values)}  {line}")


def _classes(values: Mapping[str, float]) -> str:
    """The likeliest classes in one line, or the score."""
    if "score" in values and len(values) == 1:
        return f"{values['score']:.3f}"
    best = sorted(values.items(), key=lambda item: -item[1])[:3]
    return " · ".join(f"{name} {100 * value:.0f} %" for name, value in best)


def zero_shot(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="A model tuned for natural language inference.")
    ],
    labels: Annotated[
        str, typer.Option("--labels", metavar="LABEL,…", help="Labels, with commas between them.")
    ],
    text: Annotated[
        list[str] | None, typer.Argument(metavar="TEXT...", help="Texts; without any, lines of stdin.")
    ] = None,
    template: Annotated[
        str,
        typer.Option(
            "--template", help="The hypothesis, with {} for the label; in the language of the texts."
        ),
    ] = "This example is {}.",
    multi_label: Annotated[
        bool, typer.Option("--multi-label", help="Score each label by itself; default: among the others.")
    ] = False,
    precision: PrecisionOption = "auto",
    device: DeviceOption = "cpu",
    layers: LayersOption = None,
    json: EachJson = False,
) -> None:
    """The score of every given label for every text.

    Whether the text entails the label in a template, by a classifier with a class whose name begins with
    `entail` or `蕴含`."""
    from albertine.tasks.prediction_columns import chunks

    named = [label.strip() for label in labels.split(",") if label.strip()]
    if not named:
        raise typer.BadParameter("name one or more", param_hint="--labels")
    predictor = opener(model, precision, device, layers=layers)()

    def predict(batch: Sequence[str]) -> list[dict[str, float]]:
        return predictor.zero_shot(batch, named, template=template, multi_label=multi_label)

    for line, values in show.predicted(chunks(text or lines(), ZERO_SHOT_TEXTS), predict):
        result = {"text": line, "labels": values}
        show.as_json(result, indent=None) if json else typer.echo(f"{_classes(values)}  {line}")
    show.cut(predictor.cut)


@over_files("choose", "to choose")
def choose(
    predictor: Predictor,
    passage: Annotated[str | None, typer.Argument(help="A text, or the beginning of one.")] = None,
    options: Annotated[
        list[str] | None, typer.Argument(metavar="OPTION...", help="Answers, or continuations.")
    ] = None,
    question: Annotated[
        str, typer.Option("--question", help="A question about the text; `_` is a gap.")
    ] = "",
    json: Json = False,
) -> None:
    """How likely each of several options is to fit."""
    assert passage is not None
    options = options or []
    values = predictor.choose(passage, options, question=question)
    if json:
        show.as_json({"options": options, "probabilities": values})
        return
    for value, option in sorted(zip(values, options, strict=True), reverse=True):
        typer.echo(f"{value:6.1%}  {option}")


@over_files("tag", "on entities", without=("exit", "pair_column", "top"))
def tag(
    predictor: Predictor,
    text: Texts = None,
    json: EachJson = False,
) -> None:
    """The entities in every text."""
    _each(
        text,
        json,
        predictor.tag,
        lambda found, _: {"entities": found},
        lambda found, line: (f"{kind}: {line[a:b]} ({a} to {b})" for kind, a, b in found),
    )


@over_files("answer", "on questions")
def answer(
    predictor: Predictor,
    question: Annotated[str | None, typer.Argument(help="The question.")] = None,
    passage: Annotated[str | None, typer.Argument(help="The text that holds the answer.")] = None,
    json: Json = False,
) -> None:
    """The part of a passage that answers a question.

    An empty line if none does, which only a model can find that was tuned with questions that have no answer.
    Probabilities are among the likeliest spans; `no_answer` is that of there being no answer.
    """
    assert question is not None and passage is not None
    found = predictor.likely_spans([(question, passage)])[0]
    best = found.best(predictor.threshold)
    text = "" if best is None else passage[best.begin : best.end]
    if not json:
        typer.echo(text)
        return
    result = {"answer": text} | ({} if best is None else best._asdict())
    show.as_json(result if found.no_answer is None else result | {"no_answer": found.no_answer})


@over_files("relate", "on relations", without=("exit", "pair_column", "top"))
def relate(
    predictor: Predictor,
    text: Texts = None,
    json: EachJson = False,
) -> None:
    """Subjects, predicates and objects in every text."""
    _each(
        text,
        json,
        predictor.relate,
        lambda found, line: {"relations": [relation.words(line) for relation in found]},
        lambda found, line: (" · ".join(relation.words(line)) for relation in found),
    )


def _each(
    text: list[str] | None,
    json: bool,
    predict: Callable[[str], T],
    as_dict: Callable[[T, str], dict[str, Any]],
    words: Callable[[T, str], Iterable[str]],
) -> None:
    """Predict for every text; print a JSON object for each, or the text and its results below it."""
    each = ([line] for line in text or lines())
    for line, found in show.predicted(each, lambda group: list(map(predict, group))):
        if json:
            show.as_json({"text": line, **as_dict(found, line)}, indent=None)
        else:
            typer.echo(line)
            for one in words(found, line):
                typer.echo(f"  {one}")


def in_words(guesses: list[Guess]) -> str:
    """Candidates on one line, `the 21 % · his 9 %`, the mark of a word's beginning left out where there is
    more."""
    shown = ((guess.token.replace("▁", "") or guess.token, guess.probability) for guess in guesses)
    return " · ".join(f"{token} {100 * probability:.0f} %" for token, probability in shown)


GROUP = "Predict with a tuned or released model."
COMMANDS = (
    *(fill_mask, order, classify, zero_shot, choose, tag, answer, relate),
    *(embed, similarity, generate.generate, generate.read, generate.continue_),
)
