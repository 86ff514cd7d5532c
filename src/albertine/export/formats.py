"""The formats that a model can be exported to.

A format is a module of `albertine.export` with `NEEDS` (required modules), `EXTRA` (the extra of the package
that installs them), `OPTIONS` (the options that it supports) and

    write(source: Opened, folder: Path, options: ExportOptions) -> list[ExportedFile]

which writes a new folder. A new format is such a module, named here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from albertine.errors import RunError, SettingsError
from albertine.export.applications import APPLICATIONS
from albertine.export.source_model import Opened
from albertine.export.verify import Arrays, Run
from albertine.inference.graph_heads import Head

FORMATS = {
    "onnx": "albertine.export.onnx",
    "openvino": "albertine.export.openvino",
    "torch": "albertine.export.archive",
    "gguf": "albertine.export.gguf",
}


@dataclass(frozen=True)
class ExportOptions:
    """Options of an export.

    Attributes:
        opset: of ONNX; None: `onnx.OPSET`. int8: also in 8-bit integers. packed: also the graph of packed
            batches. bfloat16: also in that format. sample: texts by which activations are measured.
    """

    opset: int | None = None
    int8: bool = False
    packed: bool = False
    bfloat16: bool = False
    sample: tuple[Path, ...] = ()


@dataclass(frozen=True)
class ExportedFile:
    """A file (or a group of files) that a format has written, before verification.

    Attributes:
        name: its path in the exported folder. precision: float32, bfloat16 or int8.
        run: computes it in its runtime. packed: whether it reads packed batches.
        facts: its entry in export.json, besides the verification; "notes" are lines of text.
        head: its outputs, if they are not all of its source's. inputs: batches to verify it with, if random
            tokens are not suitable.
    """

    name: str
    precision: str
    run: Run
    packed: bool = False
    facts: Mapping[str, Any] = field(default_factory=dict)
    head: Head | None = None
    inputs: Sequence[Arrays] | None = None


class ExportFormat(Protocol):
    """The interface of a format's module."""

    NEEDS: tuple[str, ...]
    EXTRA: str
    OPTIONS: frozenset[str]

    def write(self, source: Opened, folder: Path, options: ExportOptions) -> list[ExportedFile]: ...


def check_options(options: ExportOptions, chosen: Mapping[str, ExportFormat]) -> None:
    """Check that each option is supported by one of the chosen formats.

    Raises:
        SettingsError: an option is not.
    """
    known = frozenset[str]().union(*(module.OPTIONS for module in chosen.values()))
    for option in fields(options):
        if getattr(options, option.name) != option.default and option.name not in known:
            has = [name for name in FORMATS if option.name in _module(name).OPTIONS]
            raise SettingsError(
                f"--{option.name} belongs to {' and '.join(has)}",
                remedy=f"Add --to {has[0]}, or leave it out",
            )
    if options.sample and not options.int8:
        raise SettingsError("--sample belongs to --int8", remedy="Add --int8, or leave it out")


def _module(name: str) -> ExportFormat:
    found: ExportFormat = import_module(FORMATS[name])  # type: ignore[assignment]
    return found


def format_of(name: str) -> ExportFormat:
    """The format of that name, whose libraries are there.

    Raises:
        SettingsError: there is none. RunError: a library is missing.
    """
    if name not in FORMATS:
        known = ", ".join((*FORMATS, *APPLICATIONS))
        raise SettingsError(f"there is no format `{name}`", remedy=f"Use one of {known}")
    found = _module(name)
    if missing := [module for module in found.NEEDS if find_spec(module) is None]:
        raise RunError(
            f"an export to {name} needs {' and '.join(missing)}",
            remedy=f"pip install 'albertine[{found.EXTRA}]'",
        )
    return found
