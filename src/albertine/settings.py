"""Strict settings: one YAML file, dotted overrides, and a suggestion for every key that does not exist."""

from __future__ import annotations

import difflib
import unicodedata
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from albertine.errors import SettingsError
from albertine.precision import Precision

MAX_BYTES = 1_000_000


class Settings(BaseModel):
    """Base of every settings class: immutable, and an unknown key is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)


class RunSettings(Settings):
    """What every run has: a name, a place, a seed."""

    name: str = Field(description="name of the run's folder")
    output: Path = Field(Path("runs"), description="folder that holds the runs")
    seed: int = Field(1, ge=0)

    @field_validator("name")
    @classmethod
    def _one_folder(cls, name: str) -> str:
        if name in ("", ".", ".."):
            raise ValueError(f"`{name}` is no name of a new folder; every run has one of its own")
        odd = [c for c in name if c in "/\\" or unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp")]
        if odd:
            raise ValueError(
                f"{name!a} has {odd[0]!a} in it; a run is one folder, so its name is one line without "
                "slashes; `output` says where it lies"
            )
        return name

    @property
    def folder(self) -> Path:
        return self.output / self.name


class Computing(Settings):
    """How a run computes; the weights that come out are the same but for rounding."""

    precision: Precision = "auto"
    compile: bool = Field(
        False,
        description="on a GPU compile each depth as one; on a processor nothing",
    )
    recompute: bool = Field(
        False,
        description="keep only what goes from depth to depth, compute the rest again in the backward pass: "
        "far less memory, about a third more time",
    )
    threads: int | None = Field(None, ge=1, description="default: what torch chooses")


S = TypeVar("S", bound=Settings)


def read_yaml(path: Path) -> dict[str, Any]:
    """The mapping in a YAML file, read with the safe loader."""
    if not path.is_file():
        raise SettingsError(
            "there is no such settings file", where=path, remedy="Check the path after --config"
        )
    if path.stat().st_size > MAX_BYTES:
        raise SettingsError("is larger than 1 MB, which no settings file is", where=path)
    try:
        tree = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise SettingsError(f"is not readable as YAML ({error})", where=path) from error
    if tree is None:
        return {}
    if not isinstance(tree, dict):
        raise SettingsError("must hold `key: value` lines at its top level", where=path)
    return tree


def override(tree: dict[str, Any], assignments: Iterable[str]) -> dict[str, Any]:
    """A copy of `tree` with every `key.sub=value` applied; values are read as YAML."""
    result = {k: (dict(v) if isinstance(v, dict) else v) for k, v in tree.items()}
    for text in assignments:
        path, sign, value = text.partition("=")
        if not sign or not path:
            raise SettingsError(f"`{text}` is not an override", remedy="Write key.sub=value")
        node = result
        *parents, leaf = path.strip().split(".")
        for name in parents:
            child = node.get(name)
            node[name] = dict(child) if isinstance(child, dict) else {}
            node = node[name]
        try:
            node[leaf] = yaml.safe_load(value)
        except yaml.YAMLError as error:
            raise SettingsError(
                f"the value of `{text}` is not readable", remedy="Quote it for YAML"
            ) from error
    return result


def resolve(cls: type[S], tree: dict[str, Any], where: object = None) -> S:
    """Validate `tree` as `cls`; every problem in one message, with the nearest key for an unknown one."""
    try:
        return cls.model_validate(tree)
    except ValidationError as error:
        lines = [_explain(cls, item) for item in error.errors()]
        raise SettingsError("; ".join(lines), where=where) from error


def load(cls: type[S], path: Path | None, assignments: Iterable[str] = ()) -> S:
    """Settings from an optional YAML file and overrides."""
    return resolve(cls, override(read_yaml(path) if path else {}, assignments), where=path)


def dump(settings: Settings) -> str:
    """The settings, fully resolved, as YAML that `load` reads back."""
    return yaml.safe_dump(settings.model_dump(mode="json"), sort_keys=False, allow_unicode=True)


def _explain(cls: type[BaseModel], item: Any) -> str:
    path = [str(p) for p in item["loc"]]
    name = ".".join(path)
    if item["type"] == "extra_forbidden":
        near = difflib.get_close_matches(name, sorted(_keys(cls)), n=1, cutoff=0.5)
        hint = f"did you mean `{near[0]}`?" if near else f"known keys here: {', '.join(_siblings(cls, path))}"
        return f"unknown setting `{name}`; {hint}"
    message = item["msg"].removeprefix("Value error, ")
    return f"`{name}`: {message[:1].lower()}{message[1:]}" if name else message


def _fields(cls: type[BaseModel]) -> dict[str, Any]:
    return {name: field.annotation for name, field in cls.model_fields.items()}


def _nested(annotation: Any) -> type[BaseModel] | None:
    candidates = [annotation, *getattr(annotation, "__args__", ())]
    return next((c for c in candidates if isinstance(c, type) and issubclass(c, BaseModel)), None)


def _keys(cls: type[BaseModel], prefix: str = "") -> Iterable[str]:
    for name, annotation in _fields(cls).items():
        yield prefix + name
        if inner := _nested(annotation):
            yield from _keys(inner, f"{prefix}{name}.")


def _siblings(cls: type[BaseModel], path: list[str]) -> list[str]:
    for name in path[:-1]:
        inner = _nested(_fields(cls).get(name))
        if inner is None:
            break
        cls = inner
    return sorted(_fields(cls))
