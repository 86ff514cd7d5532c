"""Strict settings from a YAML file and dotted overrides; unknown keys are errors with a suggestion."""

from __future__ import annotations

import difflib
import inspect
import os
import textwrap
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import zip_longest
from pathlib import Path, PurePath
from shlex import quote
from types import NoneType, UnionType
from typing import Any, ClassVar, Literal, TypeVar, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from albertine.core.files import user_path
from albertine.core.number_formats import Precision
from albertine.core.released import released_path_or
from albertine.errors import SettingsError

MAX_BYTES = 1_000_000
RECIPES = Path(__file__).parents[1] / "recipes"
COMMENT_WIDTH = 100
MAX_NAME_BYTES = 255
"""Of a file or folder name, on Linux and macOS."""
ABBREVIATIONS = {
    **{"lr": "learning_rate", "bs": "batch_size", "wd": "weight_decay"},
    **{"tie_word_embeddings": "output", "residual_factor": "residuals"},
}
"""Common names of settings in other programs, and in configurations of encoders."""


class Settings(BaseModel):
    """Base of all settings classes: immutable; unknown keys and infinite numbers are errors; `~` in paths is
    expanded.

    Paths that are not UTF-8 are errors, because settings are stored as YAML and JSON.

    Attributes:
        example: a minimal command for the message about missing settings; None if there is no such command.
    """

    example: ClassVar[str | None] = None

    model_config = ConfigDict(
        extra="forbid", frozen=True, validate_default=True, defer_build=True, allow_inf_nan=False
    )

    @field_validator("*")
    @classmethod
    def _expand_paths(cls, value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(cls._expand_paths, value))
        return _utf8(user_path(value)) if isinstance(value, Path) else value


def _utf8(path: Path) -> Path:
    name = os.fsencode(path)
    try:
        name.decode()
    except UnicodeDecodeError as error:
        written = name.decode("utf-8", "backslashreplace")
        raise ValueError(f"`{written}`: its name is not UTF-8; rename it") from error
    return path


class RunSettings(Settings):
    """Settings of every run: its name, parent folder and seed."""

    name: str = Field(description="name of the run's folder")
    output: Path = Field(Path("runs"), description="folder that holds the runs")
    seed: int = Field(1, ge=0, description="every random draw of training is a function of it")

    @field_validator("name")
    @classmethod
    def _one_folder(cls, name: str) -> str:
        if name in ("", ".", ".."):
            raise ValueError(f"`{name}` is no name of a new folder; every run has one of its own")
        invalid = [c for c in name if c in "/\\" or unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp")]
        if invalid:
            raise ValueError(
                f"{name!a} has {invalid[0]!a} in it; a run is one folder, so its name is one line without "
                "slashes; `output` is its parent folder"
            )
        if (size := len(os.fsencode(name))) > MAX_NAME_BYTES:
            raise ValueError(f"has {size} bytes; the name of a folder may have {MAX_NAME_BYTES}")
        return name

    @property
    def folder(self) -> Path:
        return self.output / self.name


class ComputeSettings(Settings):
    """How a run computes; the resulting weights are the same up to rounding."""

    precision: Precision = Field(
        "auto", description="auto, float32 or bfloat16; auto: bfloat16 where the processor or GPU has it"
    )
    compile: bool = Field(
        False,
        description="on a GPU compile each depth as one; on a processor nothing",
    )
    recompute: bool = Field(
        False,
        description="keep only what goes from depth to depth, compute the rest again in the backward pass: "
        "far less memory, about a third more time",
    )
    threads: int | None = Field(None, ge=1, description="of a process; default: what torch chooses")


S = TypeVar("S", bound=Settings)
MAX_MERGED_KEYS = 10_000
"""Keys that `<<` may merge into a mapping; nested lists of aliases multiply them."""
YAML_ERRORS = (yaml.YAMLError, ValueError, LookupError, AttributeError, ArithmeticError, RecursionError)
"""Exceptions of reading YAML: also for invalid dates, huge numbers, endless lists, and explicit tags that do
not fit, such as `!!int maybe`."""


class _DuplicateKey(yaml.YAMLError):
    """A key that occurs twice in a mapping."""

    def __init__(self, key: str, line: int) -> None:
        self.key, self.line = key, line
        super().__init__(f"`{key}` is written twice, line {line}")


class BoundedLoader(yaml.SafeLoader):
    """The safe loader with a limit on keys merged by `<<`."""

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        count = 0
        for key, value in node.value:
            if key.tag != "tag:yaml.org,2002:merge":
                continue
            for part in value.value if isinstance(value, yaml.SequenceNode) else [value]:
                if isinstance(part, yaml.MappingNode):
                    self.flatten_mapping(part)
                    count += len(part.value)
                if count > MAX_MERGED_KEYS:
                    raise yaml.YAMLError(f"`<<` brings more than {MAX_MERGED_KEYS:,} keys into one mapping")
        super().flatten_mapping(node)


class _UniqueKeyLoader(BoundedLoader):
    """A loader that refuses duplicate keys, of which YAML keeps only the last."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        known = set()
        for key, _ in node.value:  # before `<<` is merged
            if isinstance(key, yaml.ScalarNode) and key.value != "<<":
                if (key.tag, key.value) in known:
                    raise _DuplicateKey(key.value, key.start_mark.line + 1)
                known.add((key.tag, key.value))
        return node


def read_yaml(path: Path, what: str = "settings file") -> dict[str, Any]:
    """The mapping in a YAML file, read with the safe loader.

    Args:
        what: kind of file, for messages.
    """
    if not path.is_file():
        raise SettingsError(f"there is no such {what}", where=path, remedy="Check the path")
    if path.stat().st_size > MAX_BYTES:
        raise SettingsError(f"is larger than 1 MB, which no {what} is", where=path)
    try:
        tree = _UniqueKeyLoader(path.read_text(encoding="utf-8")).get_single_data()
    except _DuplicateKey as error:
        raise SettingsError(
            f"`{error.key}` is written twice",
            where=f"{path}, line {error.line}",
            remedy="Write it once, with what stands under both",
        ) from error
    except UnicodeDecodeError as error:
        raise SettingsError("is not UTF-8 text", where=path, remedy="Save it as UTF-8") from error
    except YAML_ERRORS as error:
        reason = " ".join(str(error).split())
        raise SettingsError(f"is not readable as YAML ({reason})", where=path) from error
    if tree is None:
        return {}
    if not isinstance(tree, dict):
        raise SettingsError("must hold `key: value` lines at its top level", where=path)
    return tree


def recipe_file(path: Path) -> Path:
    """The file of a recipe: `path`, else the recipe in the package given as `recipes/NAME.yaml`, `NAME.yaml`
    or `NAME`, else `path`."""
    if os.path.isfile(path) or path.is_absolute():
        return path
    parts = [part for part in path.parts if part not in ("..", "recipes")]
    requested = Path(*parts).with_suffix("") if path.suffix in (".yaml", ".yml") else Path(*parts)
    found = (name for name in recipe_names() if requested in (Path(name), Path(Path(name).name)))
    return next((RECIPES / f"{name}.yaml" for name in found), path)


def recipe_names() -> tuple[str, ...]:
    """Names of the recipes in the package, such as `albert-tiny-en` and `finetune/mnli`."""
    files = (*RECIPES.glob("*.yaml"), *RECIPES.glob("*/*.yaml"))
    return tuple(sorted(file.relative_to(RECIPES).with_suffix("").as_posix() for file in files))


def read_recipe(path: Path) -> dict[str, Any]:
    """Read the YAML file that `recipe_file` finds.

    Raises:
        SettingsError: no such file or recipe; the message suggests the nearest name.
    """
    file = recipe_file(path)
    if not os.path.isfile(file):
        name = "/".join(part for part in path.with_suffix("").parts if part not in ("..", "recipes"))
        near = difflib.get_close_matches(name, recipe_names(), n=1)
        meant = f"Did you mean `{near[0]}`? " if near else ""
        remedy = (
            f"{meant}Check the path, or name one that comes with the package: `albertine info` lists them"
        )
        raise SettingsError("there is no such settings file", where=path, remedy=remedy)
    return read_yaml(file)


def apply_overrides(tree: dict[str, Any], assignments: Iterable[str]) -> dict[str, Any]:
    """A copy of `tree` with every `key.sub=value` applied; `resolve` parses the values by the types of their
    fields."""
    result = {k: (dict(v) if isinstance(v, dict) else v) for k, v in tree.items()}
    for text in assignments:
        path, sign, value = text.partition("=")
        if not sign or not path:
            recipe = text.endswith((".yaml", ".yml"))
            remedy = f"A recipe is named by --config {text}" if recipe else "Write key.sub=value"
            raise SettingsError(f"`{text}` is not an override", remedy=remedy)
        node = result
        *parents, leaf = path.strip().split(".")
        for level, name in enumerate(parents, 1):
            child = node.get(name)
            if isinstance(child, _Unparsed):
                child = _yaml(child, name)
            if child is not None and not isinstance(child, dict):
                whole = ".".join(parents[:level])
                raise SettingsError(
                    f"`{whole}` has no parts, so `{path.strip()}` cannot be set",
                    remedy=f"Give it whole: {whole}=…",
                )
            node[name] = dict(child or {})
            node = node[name]
        node[leaf] = None if value == "null" else _Unparsed(value)
    return result


def merge(*trees: Mapping[str, Any]) -> dict[str, Any]:
    """Merge nested mappings; later ones take precedence."""
    result: dict[str, Any] = {}
    for tree in trees:
        for key, value in tree.items():
            before = result.get(key)
            parts = isinstance(before, Mapping) and isinstance(value, Mapping)
            result[key] = merge(before or {}, value) if parts else value
    return result


class _Unparsed(str):
    """A value from the command line, not yet parsed."""


def resolve(cls: type[S], tree: dict[str, Any], where: object = None, assignments: Iterable[str] = ()) -> S:
    """Validate `tree` as `cls`; one error lists all problems, with the nearest key for an unknown one.

    Args:
        where: origin of the tree, for the message.
        assignments: overrides of the command line, already applied to the tree.
    """
    try:
        return cls.model_validate(_parse((cls,), tree))
    except ValidationError as error:
        lines = [_explain(cls, item) for item in error.errors()]
        if where is not None:
            keys = tuple(text.partition("=")[0].strip() + "." for text in assignments)
            from_command_line = [_is_from_command_line(keys, item) for item in error.errors()]
            if all(from_command_line):
                where = "command line"
            else:
                lines = [x + " (command line)" * by for x, by in zip(lines, from_command_line, strict=True)]
        lacks = any(item["type"] == "missing" and len(item["loc"]) == 1 for item in error.errors())
        remedy = f"For example: {cls.example}" if cls.example and lacks else None
        raise SettingsError("; ".join(lines), where=where, remedy=remedy) from error


def _is_from_command_line(keys: tuple[str, ...], item: Any) -> bool:
    """Whether a validation error concerns an override: its location is below one of `keys` (each ends with a
    dot), or an override put a mapping where a plain value belongs."""
    place = ".".join(map(str, (*item["loc"], "")))
    part = isinstance(item["input"], dict) and item["type"] != "value_error"
    return place.startswith(keys) or (part and any(key.startswith(place) for key in keys))


def load(cls: type[S], path: Path | None, assignments: Iterable[str] = ()) -> S:
    """Validated settings from an optional YAML file and overrides."""
    assignments = list(assignments)
    _refuse_options(cls, assignments)
    return resolve(cls, apply_overrides(read_recipe(path) if path else {}, assignments), path, assignments)


def load_partial(cls: type[S], path: Path | None, assignments: Iterable[str] = ()) -> dict[str, Any]:
    """The settings in a YAML file and overrides without defaults and validation; empty parts are left out."""
    assignments = list(assignments)
    _refuse_options(cls, assignments)
    tree = _parse((cls,), apply_overrides(read_recipe(path) if path else {}, assignments))
    return {key: value for key, value in tree.items() if value is not None}


def dump(settings: Settings) -> str:
    """All settings as YAML, which `load` reads back."""
    return yaml.safe_dump(settings.model_dump(mode="json"), sort_keys=False, allow_unicode=True)


def commented_yaml(settings: Settings) -> str:
    """All settings as YAML with a comment above every key: the description of its field, or for a part the
    first line of its class's docstring."""
    return "".join(_commented(settings, settings.model_dump(mode="json"), ""))


def _commented(settings: Settings, tree: dict[str, Any], indent: str) -> Iterator[str]:
    for name, field in type(settings).model_fields.items():
        value = getattr(settings, name)
        if name not in tree and field.exclude_if is None:
            continue
        plain = tree.get(name, value)  # a value that is left out of files is plain
        part = isinstance(value, Settings) and bool(plain)
        comment = description(type(settings), name) or (inspect.getdoc(value) or "").partition("\n")[0]
        for line in textwrap.wrap(comment, COMMENT_WIDTH - len(indent), break_on_hyphens=False):
            yield f"{indent}# {line}\n"
        if part:
            yield f"{indent}{name}:\n"
            yield from _commented(value, plain, indent + "  ")
        else:
            line = yaml.safe_dump({name: plain}, sort_keys=False, allow_unicode=True)
            yield textwrap.indent(line, indent)


def description(cls: type[Settings], name: str) -> str | None:
    """The description of a field, from the class or the nearest base class that has one."""
    inherited = (c.model_fields.get(name) for c in cls.__mro__ if issubclass(c, Settings))
    return next((field.description for field in inherited if field and field.description), None)


def with_absolute_paths(settings: S) -> S:
    """The settings with absolute paths; names of models, released or of the hub, stay names."""
    found = {name: _absolute(value) for name, value in settings}
    if isinstance(settings, RunSettings):  # it need not exist yet
        found["output"] = settings.output.absolute()
    return settings.model_copy(update=found)


def _absolute(value: Any) -> Any:
    if isinstance(value, Settings):
        return with_absolute_paths(value)
    if isinstance(value, tuple):
        return tuple(map(_absolute, value))
    if isinstance(value, Path) and (os.path.lexists(value) or not _may_name_a_model(value)):
        return value.absolute()
    return value


def _may_name_a_model(path: Path) -> bool:
    owner, *name = path.parts or ("",)
    return released_path_or(path) != path or (len(name) == 1 and owner not in ("/", "..", "~"))


def _parse(models: Models, tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """The tree with values of the command line parsed: as text for text fields, else as YAML."""
    fields, result = _fields(models), dict(tree)
    for key, value in tree.items():
        inner = _nested(fields.get(key))
        if isinstance(value, _Unparsed):
            result[key] = value = _parsed(value, fields.get(key), prefix + key)
        if isinstance(value, dict) and inner:
            result[key] = _parse(inner, value, f"{prefix}{key}.")
    return result


def _parsed(value: _Unparsed, annotation: Any, name: str) -> Any:
    kinds = [k for k in _union_members(annotation) if k is not NoneType]
    if not value and len(kinds) < len(_union_members(annotation)):
        return None
    texts = [k for k in kinds if _is_text(k)]
    lists = [k for k in kinds if get_origin(k) is tuple and all(map(_is_text, get_args(k)[:1]))]
    if lists and value.lstrip().startswith("["):
        return [node.value for node in _yaml(value, name, yaml.compose).value]
    if _nested(annotation) and value.lstrip().startswith("{"):
        return _yaml(value, name)
    return _unquoted(str(value)) if texts or lists else _yaml(value, name)


def _union_members(annotation: Any) -> tuple[Any, ...]:
    """The members of a union type; another type alone."""
    return get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)


def _is_text(kind: Any) -> bool:
    if get_origin(kind) is Literal:
        return all(isinstance(value, str) for value in get_args(kind))
    return isinstance(kind, type) and issubclass(kind, str | PurePath)


def _unquoted(text: str) -> str:
    """Quoted text is parsed as YAML, which has escapes such as "\\t"; other text is unchanged."""
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        try:
            return str(yaml.safe_load(text))
        except YAML_ERRORS:
            pass
    return text


def _yaml(text: str, name: str, read: Callable[[str], Any] = yaml.safe_load) -> Any:
    try:
        return read(text)
    except YAML_ERRORS as error:
        raise SettingsError(f"the value of `{name}`, `{text}`, is not readable as YAML") from error


def unused_setting_error(name: str, reader: str, default: Any) -> SettingsError:
    """The error for a changed setting without effect; `reader` is the setting that would make it take
    effect."""
    return SettingsError(
        f"belongs to {reader}, and nothing in this run reads it",
        where=name,
        remedy=f"Leave it out; over a recipe write {name}={default}",
    )


def _refuse_options(cls: type[BaseModel], arguments: list[str]) -> None:
    """Raise SettingsError for a setting written as an option; the remedy shows how to write it."""
    for argument, following in zip_longest(arguments, arguments[1:], fillvalue=""):
        if argument.startswith("-"):
            option, sign, value = argument.partition("=")
            near = _nearest_key(option.lstrip("-"), _keys((cls,)))
            if not sign:
                value = "" if "=" in following or following.startswith("--") else following
            setting = f"{near}={value or 'VALUE'}"
            raise SettingsError(
                f"there is no option `{option}`",
                remedy=f"Write {quote(setting)}"
                if near
                else "Settings are written key.sub=value; --help lists the options",
            )


def _explain(cls: type[BaseModel], item: Any) -> str:
    path = [str(p) for p in item["loc"]]
    name = ".".join(path)
    if item["type"] == "extra_forbidden":
        near = _nearest_key(name, _keys((cls,)))
        hint = f"did you mean `{near}`?" if near else f"known keys here: {', '.join(_siblings((cls,), path))}"
        return f"unknown setting `{name}`; {hint}"
    if item["type"] == "model_type":
        own = _inner((cls,), path)[0].__annotations__
        return f"`{name}` has parts, such as `{name}.{next(iter(own))}`"
    if item["type"] == "tuple_type":  # pydantic's message names a tuple, which YAML lacks
        return f"`{name}`: input should be a list in square brackets, [] for none"
    message = str(item["msg"]).removeprefix("Value error, ")
    if not name or message.startswith(f"{name}."):
        return message
    return f"`{name}`: {message[:1].lower()}{message[1:]}"


def _nearest_key(name: str, keys: Iterable[str]) -> str | None:
    """The most similar key: one with the same last part, or of similar spelling."""
    name = name.replace("-", "_")
    part, _, last = name.rpartition(".")
    # Do not suggest a parent of the unknown key.
    known = {key: key.rpartition(".")[2] for key in sorted(keys) if not name.startswith(f"{key}.")}
    same = [key for key, last_part in known.items() if last_part in (last, ABBREVIATIONS.get(last))]
    parents = [part.rsplit(".", i)[0] for i in range(part.count(".") + 1)] if part else []

    def distance(key: str) -> tuple[int, int]:
        """Levels up to a parent of both, then the depth of the key."""
        up = next((i for i, parent in enumerate(parents) if key.startswith(f"{parent}.")), len(parents))
        return up, key.count(".")

    same.sort(key=distance)
    alike = difflib.get_close_matches(name, known, n=1, cutoff=0.5 if part else 0.7)
    lasts = difflib.get_close_matches(last, set(known.values()), n=1, cutoff=0.8)
    found = [*same, *alike, *(key for key, last_part in known.items() if last_part in lasts)]
    return found[0] if found else None


Models = tuple[type[BaseModel], ...]
"""The settings classes that a part may be an instance of."""


def _fields(models: Models) -> dict[str, Any]:
    return {name: field.annotation for model in models for name, field in model.model_fields.items()}


def _nested(annotation: Any) -> Models:
    """The settings classes in a field's annotation, and their subclasses."""
    candidates = [annotation, *getattr(annotation, "__args__", ())]
    found = [c for c in candidates if isinstance(c, type) and issubclass(c, BaseModel)]
    for model in found:
        found += model.__subclasses__()  # appends while iterating, to reach subclasses of subclasses
    return tuple(found)


def _keys(models: Models, prefix: str = "") -> Iterable[str]:
    for name, annotation in _fields(models).items():
        yield prefix + name
        if inner := _nested(annotation):
            yield from _keys(inner, f"{prefix}{name}.")


def _siblings(models: Models, path: list[str]) -> list[str]:
    return sorted(_fields(_inner(models, path[:-1])))


def _inner(models: Models, path: list[str]) -> Models:
    """The settings classes of the part at a path."""
    for name in path:
        models = _nested(_fields(models).get(name)) or models
    return models
