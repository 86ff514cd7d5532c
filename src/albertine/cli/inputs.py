"""What a command is given besides its arguments."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from albertine.core.released import DEFAULT_MODELS, released_names
from albertine.errors import DataError, ModelError

if TYPE_CHECKING:
    from albertine.core.number_formats import InferencePrecision, Runtime
    from albertine.tasks.predictor import Predictor
    from albertine.tasks.rescore import Split, TunedRun

IN_WORDS = {"en": "English", "zh": "Chinese"}


def all_lines() -> Iterator[str]:
    """The lines of standard input, as they come; on a terminal a usage error, at once."""
    if sys.stdin.isatty():
        raise typer.BadParameter("give a text, or pipe lines in", param_hint="TEXT")
    return _decoded(getattr(sys.stdin, "buffer", sys.stdin))


def _decoded(stream: Iterable[bytes | str]) -> Iterator[str]:
    """Lines of UTF-8 with any line ends, independent of the locale.

    Raises:
        DataError: a line is not UTF-8 text.
    """
    from albertine.text.lines import guess_encoding

    for number, line in enumerate(stream, 1):
        try:
            text = line.decode("utf-8-sig" if number == 1 else "utf-8") if isinstance(line, bytes) else line
            good = "\0" not in text
        except UnicodeDecodeError:
            good = False
        if not good:
            raw = line if isinstance(line, bytes) else line.encode()
            guess = guess_encoding(raw)
            binary = b"\0" in raw and not guess.startswith("utf")
            raise DataError(
                f"line {number} is binary, not text" if binary else f"line {number} is not UTF-8 text",
                where="standard input",
                remedy=None if binary else f"Convert it before: iconv -f {_iconv(guess)} -t utf-8",
            )
        yield text.rstrip("\r\n")


def _iconv(encoding: str) -> str:
    """What iconv calls an encoding."""
    return {"latin-1": "latin1", "utf-16-le": "utf-16le", "utf-16-be": "utf-16be"}.get(encoding, encoding)


def check_texts(*words: str | Sequence[str] | None) -> None:
    """Look at texts of the command line.

    Raises:
        DataError: as `check_decoded`. typer.BadParameter: one is the name of a file, in which the text is.
    """
    texts = [one for some in words for one in ([some] if isinstance(some, str) else some or ())]
    check_decoded(texts)
    for text in texts:
        if Path(text).suffix and os.path.isfile(text):
            raise typer.BadParameter(
                f"`{text}` is a file. For its lines use `< {text}`, for the rows of a table "
                f"--file {text} --output ANSWERS.csv",
                param_hint="TEXT",
            )


def check_decoded(words: Iterable[str]) -> None:
    """Look at words of the command line, among which may be names of files that are there.

    Raises:
        DataError: Python could not decode one of them, and has lone surrogates in place of its bytes.
    """
    from albertine.text.lines import guess_encoding

    for word in words:
        if not re.search("[\udc80-\udcff]", word) or os.path.exists(word):
            continue
        raw = os.fsencode(word)
        if (guess := guess_encoding(raw + b"\n")) == "utf-8":  # an end, which one character alone lacks
            what, remedy = "is UTF-8, and the locale is not", "Write LC_ALL=C.UTF-8 before the command"
        else:
            what = "is not UTF-8 text"
            remedy = f"Convert the script that it stands in before: iconv -f {_iconv(guess)} -t utf-8"
        shown = raw.decode(errors="replace")[:40]
        raise DataError(f"`{shown}` {what}", where="command line", remedy=remedy)


def lines() -> Iterator[str]:
    """The lines of standard input that are not blank."""
    return (line for line in all_lines() if line.strip())


def model_and_texts(words: Sequence[str] | None, *, masked: bool = False) -> tuple[str | None, list[str]]:
    """The model among the words of a command, None if the first word is a text already; and the texts.

    What exists is a model. Otherwise a text has a mask in it, or, where `masked` is False, words with spaces
    between them or Chinese characters, and no slash: a mistyped path must not be taken for a text.
    A model without texts is looked up at once, before texts are read from standard input.
    """
    from albertine.interop.model_names import model_folder
    from albertine.text.sentences import detect_language

    if not words:
        return None, []
    first, *rest = words
    check_decoded([first])
    check_texts(rest)
    if not first.strip():
        raise typer.BadParameter("the first word is empty: give a model, or a text", param_hint="TEXT")
    reads = " " in first.strip() or detect_language(first) == "zh"
    looks = "[MASK]" in first if masked else reads and "/" not in first
    there = os.path.exists(first)
    if looks and not there:
        return None, [first, *rest]
    if not rest and masked and reads and not there:
        raise typer.BadParameter("there is no [MASK] in it, where a word is to be guessed", param_hint="TEXT")
    if not rest:
        model_folder(first)
    return first, rest


def model_and_pair(words: Sequence[str]) -> tuple[str | None, str, str]:
    """The model among the words of a command, None if there are two texts alone; and the texts."""
    check_decoded(words)
    check_texts(words[-2:] if len(words) == 3 else None)
    if len(words) == 3:
        return words[0], words[1], words[2]
    message = f"give two texts, and a model before them or none; there are {len(words)} words"
    if len(words) == 2:
        first, second = words
        path = "/" in first and not any(map(str.isspace, first))
        if not path and not os.path.exists(first) and first not in released_names():
            return None, first, second
        message += f", and `{first}` is a model or a path"
    raise typer.BadParameter(message)


def _default_model(*texts: str) -> str:
    """The name of the released model for texts: the Chinese one if a fifth of their letters are Han
    characters, else the English one.

    Raises:
        ModelError: it is not installed.
    """
    from albertine.text.sentences import detect_language

    language = detect_language("\n".join(texts).replace("[MASK]", ""))
    name = DEFAULT_MODELS[language]
    if name not in released_names():
        raise ModelError(
            f"no model is named, and the released one for {IN_WORDS[language]} is not installed",
            where=name,
            remedy="Name a model folder before the text",
        )
    return name


def opener(
    model: str | None,
    precision: InferencePrecision = "auto",
    device: str = "cpu",
    batch_tokens: int | None = None,
    runtime: Runtime | None = None,
    layers: int | None = None,
) -> Callable[..., Predictor]:
    """A function from texts to a `Predictor`: of the named model, else of the released one for their
    language, loaded once and named on standard error."""
    from albertine.tasks.predictor import Predictor

    @cache
    def opened(name: str) -> Predictor:
        if model is None:
            typer.echo(f"using model {name}, since none is named", err=True)
        return Predictor(
            name,
            device=device,
            precision=precision,
            batch_tokens=batch_tokens,
            runtime=runtime,
            layers=layers,
        )

    return lambda *texts: opened(_default_model(*texts) if model is None else model)


def runs_and_settings(
    words: Sequence[str],
    file: Path | None,
    device: str,
    precision: InferencePrecision | None,
    *,
    dev: bool | None = False,
    layers: int | None = None,
) -> tuple[list[Path], list[TunedRun]]:
    """The folders among the words of a command, and the runs that they hold, with the settings written
    key.sub=value among the words; data that they share is read once. `dev` and `layers` as `open_run` has
    them."""
    from albertine.core.devices import parse_device
    from albertine.core.files import user_path
    from albertine.tasks.rescore import open_run
    from albertine.tasks.task_data import once

    settings = [word for word in words if "=" in word and not os.path.exists(word)]
    paths = [user_path(word) for word in words if word not in settings]
    if not paths:
        raise typer.BadParameter("name a run besides its settings", param_hint="RUN")
    parse_device(device)  # before any data is read
    read = once()
    how: Any = {"file": file, "dev": dev, "precision": precision, "layers": layers, "read": read}
    found = [open_run(path, settings, **how) for path in paths]
    return paths, found


def splits(dev: bool, test: bool, file: Path | None) -> tuple[Split, ...]:
    """What is scored: a file of one's own stands where the test file does."""
    if file is not None and (dev or test):
        hint = "--dev" if dev else "--test"
        raise typer.BadParameter("is a file of the run, and --file names another", param_hint=hint)
    if dev == test and file is None:
        return ("dev", "test")
    return ("dev",) if dev else ("test",)
