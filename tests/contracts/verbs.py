"""The command line: every verb with its arguments, options, types and defaults.

Words of the help may change; that each verb and option has some is checked here.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from typer.main import get_command
from typer.models import ArgumentInfo, OptionInfo

from albertine.cli.app import build


def contract() -> dict[str, Any]:
    """By the words of a command what it takes."""
    return {" ".join(words): _parameters(command) for words, command in commands()}


def commands() -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command that runs something, by its words."""
    yield from _below(get_command(build()), ())


def without_help() -> list[str]:
    """Commands and parameters that have no help."""
    return [
        " ".join([*words, *(getattr(one, "opts", None) or [])])
        for words, command in commands()
        for one in (command, *command.params)
        if not (one.help or "").strip()
    ]


def _below(command: Any, words: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    if hasattr(command, "commands"):
        for name, inner in command.commands.items():
            yield from _below(inner, (*words, name))
    else:
        yield words, command


def _parameters(command: Any) -> list[str]:
    """A line for each argument and option: names, metavar, type, bounds and default."""
    # The types of typer's own parameters differ between its versions; those of the function do not.
    hints = get_type_hints(command.callback, include_extras=True)
    defaults = inspect.signature(command.callback).parameters
    lines = []
    for one in command.params:
        options = [", ".join(names) for names in (one.opts, one.secondary_opts) if names]
        is_option = one.param_type_name == "option"  # an argument is known by its metavar alone
        shown = one.metavar or ("" if is_option else one.name.upper())
        words = [*([" / ".join(options)] if is_option else []), *([shown] if shown else [])]
        kind = [_type(hints[one.name]), *_bounds(hints[one.name])]
        default = "required" if one.required else f"default {_plain(defaults[one.name].default)!r}"
        lines.append(f"{' '.join(words)}: {' '.join(kind)}, {default}")
    return lines


def _plain(default: Any) -> Any:
    if default is inspect.Parameter.empty:
        return None
    return str(default) if isinstance(default, Path) else default


def _type(hint: Any) -> Any:
    """A type in words: `text`, `path`, a list of choices, `list of text`, `text or none`."""
    origin, inner = get_origin(hint), get_args(hint)
    if hasattr(hint, "__metadata__"):
        return _type(inner[0])
    if origin is Literal:
        return "|".join(map(str, inner))
    if origin is list:
        return f"list of {_type(inner[0])}"
    if origin is tuple:
        return " and ".join(_type(one) for one in inner)
    if origin is Union or (origin is not None and origin.__name__ == "UnionType"):
        return " or ".join(_type(one) for one in inner)
    return {str: "text", Path: "path", type(None): "none"}.get(hint, getattr(hint, "__name__", str(hint)))


def _bounds(hint: Any) -> list[str]:
    """The least and the largest number that an option takes."""
    for info in getattr(hint, "__metadata__", ()):
        if isinstance(info, OptionInfo | ArgumentInfo):
            ends = ((">=", info.min), ("<=", info.max))
            return [f"{sign}{value:g}" for sign, value in ends if value is not None]
    return []
