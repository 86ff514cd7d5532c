"""`albertine demo`: raw text to two small models that fill in masked words, in a few minutes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from albertine.cli import show
from albertine.cli.inputs import IN_WORDS
from albertine.cli.predict import in_words
from albertine.cli.score import print_scores

if TYPE_CHECKING:
    from albertine.corpus.manifest import Manifest
    from albertine.pretraining.demo import DemoLanguage
    from albertine.pretraining.run import PretrainResult
    from albertine.pretraining.settings import PretrainingSettings

HELD_OUT = 0.06


def demo(
    minutes: Annotated[
        float, typer.Option("--minutes", min=0.01, help="Of pretraining, for each language.")
    ] = 1.9,
    output: Annotated[Path, typer.Option("--output", "-o", help="Where runs and corpora go.")] = Path("runs"),
    texts: Annotated[Path, typer.Option("--texts", help="Folder of the demo text.")] = Path("data/demo"),
    language: Annotated[str, typer.Option("--language", help="en, zh or both.")] = "both",
) -> None:
    """Pretrain two small encoders and show what they learned. From raw text, in a few minutes each."""
    from albertine.pretraining.demo import LANGUAGES, demo_texts

    chosen = [one for one in LANGUAGES if language in (one.code, "both")]
    if not chosen:
        raise typer.BadParameter(f"`{language}` is none of en, zh and both", param_hint="--language")
    found = demo_texts(texts)
    for one in chosen:
        show.heading(f"\n{IN_WORDS[one.code]}")
        if code := _one(one, found[one.code], output, minutes):
            raise typer.Exit(code)


def _one(language: DemoLanguage, paths: list[Path], output: Path, minutes: float) -> int:
    """One language, from text to report; the exit code, which is 0 unless it was stopped."""
    from albertine.corpus.build import build_corpus
    from albertine.corpus.source import Source
    from albertine.pretraining.demo import demo_settings
    from albertine.pretraining.run import pretrain

    corpus = output / f"corpus-demo-{language.code}"
    manifest = build_corpus(
        Source(paths),
        corpus,
        vocab_size=language.vocab_size,
        shrink=True,
        language=language.code,
        held_out=HELD_OUT,
        progress=show.progress,
    )
    typer.echo(
        f"{manifest.documents:,} documents, {manifest.sentences:,} sentences, {manifest.tokens:,} tokens; "
        f"{manifest.count('documents', 'heldout')} documents are held out.\n"
        f"A {manifest.tokenizer['kind']} vocabulary of {manifest.vocab_size:,} pieces was made from them."
    )
    settings = demo_settings(language, corpus, output, minutes)
    typer.echo(f"Pretraining {_model_in_words(settings, manifest)} for {minutes:g} min.")
    result = pretrain(settings)
    if result.outcome.done:
        _show(language, result, corpus)
    else:
        typer.echo("Stopped; the same command begins another run.")
    return result.outcome.exit_code


def _model_in_words(settings: PretrainingSettings, manifest: Manifest) -> str:
    from albertine.analysis.parameters import parameters_by_part
    from albertine.model.sharing import sharing_in_words
    from albertine.pretraining.initial_model import encoder_config
    from albertine.pretraining.model_costs import block_in_words

    config = encoder_config(settings.model, manifest.vocab_size, settings.objective.max_length)
    parameters = sum(parameters_by_part(config).values())
    sharing, block = sharing_in_words(config.plan), block_in_words(config)
    return f"an encoder of {parameters:,} parameters ({sharing}; {block})"


def _show(language: DemoLanguage, result: PretrainResult, corpus: Path) -> None:
    from shlex import quote

    from albertine.analysis.plots import terminal_curve
    from albertine.errors import RunError
    from albertine.pretraining.run_report import write_run_report
    from albertine.pretraining.scores import held_out_scores, open_pretrained
    from albertine.tasks.predictor import Predictor
    from albertine.training.metrics import curve

    run, final = result.folder, result.folder / "final"
    typer.echo(f"\n{terminal_curve(curve(run / 'metrics.jsonl', 'mlm_loss'), y='loss of masked tokens')}\n")
    predictor = Predictor(final)
    typer.echo("Its guesses for masked tokens:")
    for text in language.masked:
        for guesses in predictor.fill_mask(text, top_k=4):
            typer.echo(f"  {text}  {in_words(guesses)}")
    typer.echo()
    pretrained = open_pretrained(final)
    print_scores(scores := held_out_scores(pretrained, corpus))
    page = f"albertine serve {quote(str(final))} --open"
    report = run / "report.html"
    try:
        write_run_report(
            report,
            run,
            pretrained,
            corpus,
            scores,
            masked=language.masked,
            commands=[page, f"albertine predict fill-mask {quote(str(final))} {quote(language.masked[0])}"],
        )
        written = str(report)
    except RunError as error:
        written = f"not written: {error.what} ({error.remedy})"
    show.facts(
        f"Run folder {run}",
        {
            "report, open it in a browser": written,
            "curves": f"{run / 'plots'}/*.png",
            "again on held-out text": f"albertine score {quote(str(final))} {quote(str(corpus))}",
            "try it yourself": f"albertine predict fill-mask {quote(str(final))} {quote(language.masked[0])}",
            "what it costs": f"albertine info {quote(str(final))}",
            "its page in a browser": page,
        },
    )
