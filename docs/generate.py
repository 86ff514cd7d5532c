"""What the site takes from the code: verbs from Typer, settings from pydantic, quotes of the example.

A hook of MkDocs (`hooks` in mkdocs.yml). The Python interface is read from docstrings by mkdocstrings.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePath
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined
from typer.core import TyperGroup
from typer.main import get_command

from albertine.cli.app import build
from albertine.pretraining.settings import PretrainingSettings
from albertine.tasks.families import KINDS
from albertine.tasks.kind_settings import TaskChoice
from albertine.tasks.settings import FinetuneSettings

EXAMPLE = Path(__file__).parents[1] / "examples" / "albert_in_one_file.py"


def on_startup(**_: Any) -> None:
    """Silence jieba, by which the search index splits Chinese."""
    with suppress(ImportError):
        import jieba

        jieba.setLogLevel("WARNING")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Put the source of `Name` of the example in the place of `<!-- quote Name -->`."""
    return re.sub(r"<!-- quote ([\w.]+) -->", lambda found: _quoted(found[1]), markdown)


def _quoted(name: str) -> str:
    source = EXAMPLE.read_text(encoding="utf-8")
    inside: Any = ast.parse(source)
    for part in name.split("."):
        if not (found := [node for node in inside.body if getattr(node, "name", None) == part]):
            raise PluginError(f"{EXAMPLE.name} has no {name}, which a page quotes")
        inside = found[0]
    first = min([inside.lineno, *(each.lineno for each in inside.decorator_list)])
    lines = source.splitlines()[first - 1 : inside.end_lineno]
    return "```python\n" + inspect.cleandoc("\n" + "\n".join(lines)) + "\n```"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages to those of the folder."""
    pages = {
        "reference/verbs.md": verbs(),
        "reference/settings-pretrain.md": pretraining_settings(),
        "reference/settings-finetune.md": finetuning_settings(),
    }
    for path, lines in pages.items():
        files.append(File.generated(config, path, content="\n".join(lines) + "\n"))
    return files


def verbs() -> Iterator[str]:
    """Every command with its arguments and options."""
    root: Any = get_command(build())
    yield "# Commands\n"
    yield "Generated from the command line itself; `albertine VERB --help` prints the same. Exit codes and"
    yield "the rules for settings are on [their own page](command-line.md).\n"
    yield from _rows(("verb", "does"))
    for name, command in root.commands.items():
        summary = inspect.cleandoc(command.help or "").split("\n\n")[0]
        yield f"| [`{name}`](#{name}) | {_cell(summary)} |"
    for name, command in root.commands.items():
        yield from _verb(command, name, depth=2)


def _verb(command: Any, name: str, depth: int) -> Iterator[str]:
    anchor = name.replace(" ", "-")
    yield f"\n{'#' * depth} {name} {{ #{anchor} }}\n"
    yield inspect.cleandoc(command.help or "") + "\n"
    if isinstance(command, TyperGroup):
        for below, sub in command.commands.items():
            yield from _verb(sub, f"{name} {below}", depth + 1)
        return
    context = command.context_class(command, info_name=f"albertine {name}")
    yield f"```text\n{command.get_usage(context).removeprefix('Usage: ').strip()}\n```\n"
    records = [one.get_help_record(context) for one in command.params if one.name != "help"]
    if records := [record for record in records if record]:
        yield from _rows(("argument or option", "is"))
        yield from (f"| {_code(what)} | {_cell(text)} |" for what, text in records)


def pretraining_settings() -> Iterator[str]:
    """Every setting of `pretrain`, with what `distill` has beside it."""
    yield "# Settings of pretrain and distill\n"
    yield "One YAML file (`--config`) and any number of `key.sub=value` on the command line;"
    yield "[Runs and settings](../how-to/runs.md) explains how they are read. `pretrain … --dry-run`"
    yield "prints all of them with the values of a run. `distill` has the same settings and sets"
    yield "`model.start_from`, `model.student` and `objective.distillation` from its arguments.\n"
    yield from _settings(PretrainingSettings, "", 2)


def finetuning_settings() -> Iterator[str]:
    """Every setting of `finetune`: what all tasks have, then those of each kind of task."""
    yield "# Settings of finetune\n"
    yield "One YAML file (`--config`) and any number of `key.sub=value`. `task.kind`, or the named data set,"
    yield "decides which settings `task` has; a setting of another kind is an error.\n"
    yield from _settings(FinetuneSettings, "", 2)
    common = set(TaskChoice.model_fields)
    for task in dict.fromkeys(KINDS.values()):
        names = [name for name, known in KINDS.items() if known is task]
        listed = ", ".join(f"`{name}`" for name in names)
        own = {name: field for name, field in task.model_fields.items() if name not in common}
        yield f"\n## task, of kind {listed}\n"
        if own:
            yield "Beside the settings of every task:\n"
            yield from _table(own, "task.")
            yield from _parts(own, "task.", 3)
        else:
            yield "The settings of every task.\n"


def _settings(model: type[BaseModel], prefix: str, depth: int) -> Iterator[str]:
    fields = model.model_fields
    if plain := {name: field for name, field in fields.items() if _part(field) is None or _has_values(field)}:
        yield from _table(plain, prefix)
    yield from _parts(fields, prefix, depth)


def _parts(fields: dict[str, FieldInfo], prefix: str, depth: int) -> Iterator[str]:
    for name, field in fields.items():
        if (part := _part(field)) is None:
            continue
        many = get_origin(_bare(field.annotation)) is tuple
        of_many = ", of each in the list" if many else ""
        yield f"\n{'#' * min(depth, 4)} {prefix}{name}{of_many}\n"
        described = field.description or ""
        if described:
            yield described[0].upper() + described[1:] + ".\n"
        yield from _settings(part, f"{prefix}{name}.", depth + 1)


def _part(field: FieldInfo) -> type[BaseModel] | None:
    """The settings class below a field, also of one that may be none or a list."""
    found = _bare(field.annotation)
    for one in (found, *get_args(found)):
        for inner in (_bare(one), *get_args(_bare(one))):
            if isinstance(inner, type) and issubclass(inner, BaseModel):
                return inner
    return None


def _has_values(field: FieldInfo) -> bool:
    """Whether a setting that may have parts may also be one of several words."""
    return any(get_origin(_bare(one)) is Literal for one in get_args(_bare(field.annotation)))


def _bare(annotation: Any) -> Any:
    while get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    return annotation


def _table(fields: dict[str, FieldInfo], prefix: str) -> Iterator[str]:
    yield from _rows(("setting", "is", "values", "default"))
    for name, field in fields.items():
        values = _values(field.annotation)
        yield f"| `{prefix}{name}` | {_cell(field.description or '')} | {values} | {_default(field)} |"


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True, validated_data={})
    if value is None or value is PydanticUndefined or value == ():
        return ""
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, tuple):
        return f"`[{', '.join(map(str, value))}]`"
    return f"`{value}`"


def _values(annotation: Any) -> str:
    annotation = _bare(annotation)
    origin, inside = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return ", ".join(f"`{str(one).lower() if isinstance(one, bool) else one}`" for one in inside)
    if origin in (Union, UnionType):
        return " or ".join(dict.fromkeys(_values(one) for one in inside if one is not NoneType))
    if origin is tuple:
        return f"list of {_values(inside[0])}" if inside else "list"
    if origin is dict:
        return "mapping"
    if isinstance(annotation, type) and issubclass(annotation, PurePath):
        return "path"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "parts, below"
    names = {bool: "`true`, `false`", int: "integer", float: "number", str: "text"}
    return names.get(annotation, getattr(annotation, "__name__", "value"))


def _rows(head: tuple[str, ...]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield f"| {' | '.join('---' for _ in head)} |"


def _code(text: str) -> str:
    return f"<code>{_cell(text)}</code>"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("<", "&lt;").replace("|", "&#124;")
