"""The table of verbs, and what becomes of an error.

Every verb lives in a module of its own that imports nothing heavy, so that `albertine --help` stays instant.
"""

from __future__ import annotations

import errno
import io
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from difflib import get_close_matches
from types import FrameType, ModuleType
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from albertine import __version__
from albertine.cli import (
    analyze,
    bench,
    card,
    cloze,
    convert,
    demo,
    distill,
    doctor,
    ensemble,
    evaluate,
    export,
    finetune,
    golden,
    info,
    predict,
    prepare,
    pretrain,
    prune,
    push,
    report,
    score,
    serve,
    study,
    suite,
    tokenizer,
)
from albertine.cli.options import Verb
from albertine.core.processors import BFLOAT16, competing_threads, cpu_flags, cpu_time_limited, usable_cores
from albertine.errors import AlbertineError, NotFinite, ProcessError, missing_torch_error

VERBS = (
    *(info, demo, doctor),
    *(tokenizer, prepare, pretrain, distill, score, suite, cloze),
    *(finetune, evaluate, ensemble, report, study),
    *(predict, serve, golden, analyze, convert, export, prune, card, push, bench),
)
"""Each a module of the verb's name, in the order in which a reader of `--help` meets them. Its function of
that name is the command, made with `HOW`; or its `COMMANDS` are those of a group."""
FAILED, WRONG, INTERRUPTED, TERMINATED = 1, 2, 130, 143
FULL = (errno.ENOSPC, errno.EDQUOT)


def build() -> typer.Typer:
    """The whole command; boxes and colours in the help of a terminal, plain text elsewhere.

    Help is read as Markdown there: as markup of rich, `[@revision]` would be a tag, and not be shown.
    """
    on_terminal = sys.stdout.isatty() and sys.stderr.isatty()
    app = typer.Typer(
        name="albertine",
        cls=_InOrder,
        help="Pretrain, fine-tune, study, convert and serve parameter-shared text encoders: ALBERT and its "
        "family.",
        no_args_is_help=True,
        rich_markup_mode="markdown" if on_terminal else None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root)
    for verb in VERBS:
        name = _name(verb)
        if hasattr(verb, "COMMANDS"):
            group = typer.Typer(cls=_OfOneVerb, help=verb.GROUP, no_args_is_help=True)
            group.callback()(lambda: None)  # without one, a single command's name would be left out
            for command in verb.COMMANDS:
                group.command(_command(command), cls=Verb)(command)
            app.add_typer(group, name=name)
        else:
            app.command(name, **({"cls": Verb} | getattr(verb, "HOW", {})))(getattr(verb, name))
    return app


def _name(verb: ModuleType) -> str:
    return verb.__name__.rpartition(".")[2]


def _command(function: Callable[..., None]) -> str:
    """The name of a function as a command of a group."""
    return function.__name__.rstrip("_").replace("_", "-")


class _InOrder(TyperGroup):
    """Lists the verbs in the order of `VERBS`."""

    def list_commands(self, _: object) -> list[str]:
        return [_name(verb) for verb in VERBS]

    def resolve_command(self, context: Any, words: list[str]) -> Any:
        """Suggests `predict X` for a command X of `predict`."""
        if words[0] in [_command(one) for one in predict.COMMANDS]:
            context.fail(f"No such command '{words[0]}'. Did you mean 'predict {words[0]}'?")
        return super().resolve_command(context, words)


class _OfOneVerb(TyperGroup):
    """Lists the commands of a verb when it gets something else first, such as a model."""

    def resolve_command(self, context: Any, words: list[str]) -> Any:
        if not get_close_matches(words[0], self.commands):
            commands = ", ".join(self.commands)
            context.fail(f"No such command '{words[0]}'. Write one of these before it: {commands}.")
        return super().resolve_command(context, words)


def _root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=lambda on: _version(on), is_eager=True, help="Print it."),
    ] = False,
) -> None: ...


def _version(on: bool) -> None:
    if on:
        typer.echo(f"albertine {__version__}")
        raise typer.Exit


def _set_thread_variables(arguments: list[str]) -> None:
    """Set, unless the user has, how OpenMP threads wait (decision 008), their number under a CPU limit of a
    container, and the size of oneDNN's kernel cache. Torch reads the variables when it is imported."""
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    if cpu_time_limited():
        os.environ.setdefault("OMP_NUM_THREADS", str(usable_cores()))
    idle = competing_threads() < (os.cpu_count() or 1) / 2
    verb = arguments[0] if arguments else ""
    if verb == "bench" or (verb in ("predict", "serve") and idle):  # short work on an idle machine
        os.environ.setdefault("GOMP_SPINCOUNT", "10000")
    if verb in ("pretrain", "distill", "finetune") and not cpu_flags() & BFLOAT16:
        # In float32 only GELU is compiled, for every number of rows: a thousand kernels, by which nothing is
        # faster, lay scattered between buffers of all sizes, and after an hour of training 4 GB were holes.
        os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "8")


def run(arguments: list[str] | None = None) -> int:
    """Run the command line.

    Args:
        arguments: without the program's name; those of the process by default.

    Returns:
        The exit code.
    """
    signal.signal(signal.SIGTERM, _terminate)
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # closed, as a daemon's are
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115
    words = sys.argv[1:] if arguments is None else arguments
    _set_thread_variables(words)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without Unicode shows ? for what it lacks
    try:
        build()(arguments, prog_name="albertine")
    except SystemExit as leaving:
        return _finish(leaving.code if isinstance(leaving.code, int) else FAILED)
    except KeyboardInterrupt:
        return INTERRUPTED
    except (NotFinite, ProcessError) as error:
        return _fail(str(error), FAILED)
    except AlbertineError as error:
        return _fail(str(error), WRONG)
    except ModuleNotFoundError as error:
        if (named := missing_torch_error(error)) is error:
            raise
        return _fail(str(named), WRONG)
    except OSError as error:
        if error.errno == errno.EPIPE:
            return _quiet()
        if error.filename is None:
            if error.errno not in FULL:
                raise
            _quiet()  # else what is left is tried again as Python ends, which makes the exit code 120
        return _fail(_plain_words(error), WRONG)
    except (MemoryError, RuntimeError) as error:
        if not _is_out_of_memory(error):
            raise
        reason = " ".join(str(error).split())[:120] or "Python could not allocate"
        return _fail(
            f"there is not enough memory ({reason}). In training, set training.recompute=true and give the "
            "same command again, or begin a new run with fewer training.micro_batch_tokens; elsewhere lower "
            "--batch-tokens, or take a smaller model",
            WRONG,
        )
    return _finish(0)


def _terminate(number: int, frame: FrameType | None) -> NoReturn:
    # A run that must save first puts its own handler in place of this one.
    raise SystemExit(TERMINATED)


def _finish(code: int) -> int:
    """Flush here, where a reader that went away or a terminal that was closed is no error, rather than while
    the interpreter shuts down."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        return _quiet()
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        _quiet()
    return code


def _quiet() -> int:
    with suppress(io.UnsupportedOperation):  # no file of the system
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return FAILED


def _fail(message: str, code: int) -> int:
    typer.echo(f"albertine: {message}", err=True)
    return code


def _is_out_of_memory(error: Exception) -> bool:
    """Of Python and numpy, of torch on a GPU, or of torch on a CPU, which has only a message for it."""
    named = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
    return named or "can't allocate memory" in str(error)


def _plain_words(error: OSError) -> str:
    where = f"{error.filename}: " if error.filename is not None else ""
    if error.errno in FULL:
        return f"{where}the disk is full. Free some space and give the same command again"
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return f"{where}may not be opened or written. Check its owner and permissions"
    return f"{where}{(error.strerror or str(error)).lower()}. Check the path"
