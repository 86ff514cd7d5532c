"""`albertine predict generate`, `predict read` and `predict continue`: texts that a model writes."""

from __future__ import annotations

from dataclasses import astuple
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from albertine.cli import show
from albertine.cli.inputs import check_texts, lines
from albertine.cli.options import DeviceOption, Json
from albertine.cli.predict_file import over_files

if TYPE_CHECKING:
    from albertine.inference.search import Draw, Search
    from albertine.inference.seq2seq_rows import Written
    from albertine.tasks.predictor import Predictor

FOLLOWED = "Texts followed at once; 1 is the greedy choice"
BEAMS = Annotated[
    int | None, typer.Option("--beams", min=1, help=f"{FOLLOWED}; as the model was scored if left out.")
]
TOKENS = Annotated[
    int | None,
    typer.Option("--max-tokens", min=1, help="Longest text in tokens; that of tuning if left out."),
]
PENALTY = Annotated[
    float,
    typer.Option(
        "--length-penalty", min=0, help="Texts are ranked by sum of log-probabilities / tokens^a; this is a."
    ),
]


SAMPLES = Annotated[
    int, typer.Option("--samples", min=0, help="Draw so many texts instead of the likeliest.")
]
TOP_K = Annotated[int, typer.Option("--top-k", min=0, help="Draw from the k likeliest tokens; 0: all.")]
TOP_P = Annotated[
    float, typer.Option("--top-p", min=0, max=1, help="Draw from the likeliest tokens of this probability.")
]
TEMPERATURE = Annotated[
    float,
    typer.Option(
        "--temperature",
        min=0.01,
        help="Divides the logits: below 1 likely tokens come more often, above 1 rare.",
    ),
]
SEED = Annotated[int, typer.Option("--seed", min=0, help="The draws are a function of it.")]


@over_files("generate", "to generate", without=("exit", "top"))
def generate(
    predictor: Predictor,
    text: Annotated[
        list[str] | None,
        typer.Argument(metavar="TEXT...", help="Sources; without any, lines of stdin. A tab parts a pair."),
    ] = None,
    beams: BEAMS = None,
    max_tokens: TOKENS = None,
    length_penalty: PENALTY = 1.0,
    samples: SAMPLES = 0,
    top_k: TOP_K = 0,
    top_p: TOP_P = 1.0,
    temperature: TEMPERATURE = 1.0,
    seed: SEED = 1,
    json: Json = False,
) -> None:
    """The text that goes with every source, such as its title."""
    scored = predictor.writer.search
    limit = max_tokens or scored.max_tokens
    how = _how(beams, scored.beams, limit, length_penalty, samples, top_k, top_p, temperature, seed)

    def predict(line: str) -> list[Written]:
        source, _, pair = line.partition("\t")
        return predictor.generate(source, pair or None, how=how)

    each = ([line] for line in text or lines())
    for line, found in show.predicted(each, lambda group: list(map(predict, group))):
        _tell(line, found, json, every=samples > 0)


def continue_(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="A pretrained XLNet or Transformer-XL, or its run.")
    ],
    text: Annotated[
        list[str] | None,
        typer.Argument(metavar="TEXT...", help="Beginnings; without any, lines of stdin."),
    ] = None,
    left_to_right: Annotated[
        bool | None,
        typer.Option(
            "--left-to-right/--both-directions",
            help="The model was trained so (objective.kind=causal), or in XLNet's way; by default as its "
            "in the folder.",
        ),
    ] = None,
    memory: Annotated[
        int,
        typer.Option(
            "--memory",
            min=0,
            help="Most tokens that are remembered; 0: the newest up to a segment are read anew each time.",
        ),
    ] = 512,
    segment: Annotated[
        int,
        typer.Option(
            "--segment",
            min=1,
            help="Most tokens that are read at once; in XLNet's way the newest up to so many each time anew.",
        ),
    ] = 128,
    max_tokens: Annotated[int, typer.Option("--max-tokens", min=1, help="Longest text in tokens.")] = 64,
    beams: Annotated[
        int | None, typer.Option("--beams", min=1, help=f"{FOLLOWED}, the default.", show_default=False)
    ] = None,
    length_penalty: PENALTY = 1.0,
    samples: SAMPLES = 0,
    top_k: TOP_K = 0,
    top_p: TOP_P = 1.0,
    temperature: TEMPERATURE = 1.0,
    seed: SEED = 1,
    device: DeviceOption = "cpu",
    json: Json = False,
) -> None:
    """How a language model goes on with a text."""
    from albertine.inference.continuation import Going
    from albertine.tasks.predictor import Predictor

    check_texts(text)
    how = _how(beams, 1, max_tokens, length_penalty, samples, top_k, top_p, temperature, seed)
    predictor, going = Predictor(model, device=device), Going(left_to_right, memory, segment)
    each = ([line] for line in text or lines())
    for line, found in show.predicted(
        each, lambda group: [predictor.go_on(one, how, going) for one in group]
    ):
        _tell(line, found, json, every=samples > 0)


@over_files("read", "to read", without=("exit", "top"))
def read(
    predictor: Predictor,
    question: Annotated[str | None, typer.Argument(help="The question.")] = None,
    passages: Annotated[
        list[str] | None, typer.Argument(metavar="PASSAGE...", help="Texts that may hold the answer.")
    ] = None,
    beams: BEAMS = None,
    max_tokens: TOKENS = None,
    length_penalty: PENALTY = 1.0,
    free: Annotated[bool, typer.Option("--free", help="The answer need not stand in a passage.")] = False,
    always: Annotated[
        bool | None,
        typer.Option(
            "--always/--no-always",
            help="Answer even where no passage has an answer by the model; default: as the model was scored.",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """The answer to a question, written from passages.

    An empty line where they give none. With --file every row is read alone: each evidence of WebQA is a row
    of its own, whereas `albertine evaluate` lets those of a question vote.
    """
    from albertine.inference.search import Search

    assert question is not None and passages is not None
    scored = predictor.reader.search
    search = Search(beams or scored.beams, max_tokens or scored.max_tokens, length_penalty)
    found = predictor.read(question, passages, search=search, extract=not free, always=always)
    show.as_json({"question": question, "found": _as_dicts(found)}) if json else typer.echo(found[0].text)


def _how(
    beams: int | None, usual: int, limit: int, length_penalty: float, samples: int, *drawing: Any
) -> Search | Draw:
    """Draws where samples are wanted, with `top_k`, `top_p`, `temperature` and `seed`; otherwise a search.

    Args:
        beams: None: as many as are usual.
    """
    from albertine.inference.search import Draw, Search

    options, plain = ("--top-k", "--top-p", "--temperature", "--seed"), astuple(Draw())[2:]
    given = [name for name, value, is_plain in zip(options, drawing, plain, strict=True) if value != is_plain]
    if given and not samples:
        raise typer.BadParameter("is for texts that are drawn: --samples", param_hint=given[0])
    if samples and (beams is not None or length_penalty != 1.0):
        hint = "--length-penalty" if beams is None else "--beams"
        raise typer.BadParameter("is for the likeliest texts, and --samples draws some", param_hint=hint)
    return Draw(samples, limit, *drawing) if samples else Search(beams or usual, limit, length_penalty)


def _tell(line: str, found: list[Written], json: bool, *, every: bool) -> None:
    """Print what was written after a line: the best, or every text."""
    if json:
        show.as_json({"text": line, "found": _as_dicts(found)}, indent=None)
        return
    for written in found if every else found[:1]:
        typer.echo(written.text)


def _as_dicts(found: list[Written]) -> list[dict[str, str | float]]:
    return [{"text": written.text, "score": written.score} for written in found]
