"""Applications: a copy of a model, and the files with which another server starts it.

The files only call `albertine.serving`, so that answers, limits and errors are those of `albertine serve`. An
application is a module of `albertine.export` with `NEEDS` (required modules), `EXTRA` (the extra of the
package that installs them), `HEADS` (values of `--head` that it supports) and

    model_place(name: str) -> str                           where in the folder the copy of the model is
    write(model: CopiedModel, folder: Path) -> list[str]    writes its files; returns how to start it
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

from albertine.core.files import is_run_checkpoint
from albertine.errors import MissingExtra, ModelError, RunError, SettingsError
from albertine.inference.exported_model import ExportedModel
from albertine.interop.hub.upload import SENT
from albertine.interop.model_files import digest_of, files_of_model
from albertine.tasks.families import FAMILIES
from albertine.tasks.predictor import Predictor
from albertine.tokenizers.load import load_tokenizer

APPLICATIONS = {"ray-serve": "albertine.export.ray_serve", "triton": "albertine.export.triton"}
COPIED = (*SENT, "vocab*", "merges.txt", "*.model", "assets/*", "golden.json")
"""Files that are copied, beside those that decide what the model computes."""


@dataclass(frozen=True)
class CopiedModel:
    """The model of an application.

    Attributes:
        name: for clients: letters, digits, dots, dashes and underscores.
        source: what it was made from: a name of the hub or of a released model, else the name of its folder.
        digest: of its weights and configuration. predictor: of the folder that was copied.
        head: one of the application's `HEADS`.
    """

    name: str
    source: str
    digest: str
    predictor: Predictor
    head: str

    @cached_property
    def answers(self) -> str:
        """What it answers: the task of its head, `fill-mask` or `embed`.

        Raises:
            ModelError: its task is none that the server offers.
        """
        if self.head == "embed":
            return "embed"
        family = None
        with suppress(ModelError):  # it has no head of a task
            family = self.predictor.family
        if family is None:
            try:
                self.predictor.fill_mask(self.predictor.tokenizer.special.mask)
            except ModelError:
                self.predictor.embed(["a"])  # its error says what is missing
                return "embed"
            return "fill-mask"
        if family.task != "embed" and (registration := FAMILIES[family.task]).http is None:
            raise ModelError(
                f"was tuned to {registration.words}, which is not served",
                where=self.predictor.path,
                remedy="Use it with albertine predict",
            )
        return str(family.task)

    @property
    def extra(self) -> str:
        """The extra of the package that computes it."""
        model = self.predictor.model
        return model.graph.runtime if isinstance(model, ExportedModel) else "torch"

    @property
    def example(self) -> tuple[str, dict[str, Any]]:
        """A path of the server and a body for it."""
        if self.answers == "embed":
            return "/embed", {"inputs": "a text"}
        if self.answers == "fill-mask":
            return "/", {"inputs": f"a {self.predictor.tokenizer.special.mask} text"}
        http = FAMILIES[self.answers].http  # type: ignore[index]
        assert http is not None
        return "/", dict(http().routes["/"].example)


class Application(Protocol):
    """The interface of an application's module."""

    NEEDS: tuple[str, ...]
    EXTRA: str
    HEADS: tuple[str, ...]

    def model_place(self, name: str) -> str: ...

    def write(self, model: CopiedModel, folder: Path) -> list[str]: ...


def application_of(to: Sequence[str], head: str) -> Application:
    """The application that is written, whose libraries are there.

    Args:
        to: formats and applications.

    Raises:
        SettingsError: several, or it does not support the head. MissingExtra: a library is missing.
    """
    if len(to) > 1:
        raise SettingsError(
            f"{' and '.join(to)}: an application has a folder of its own",
            remedy="Export each by a command with one --to",
        )
    found: Application = import_module(APPLICATIONS[to[0]])  # type: ignore[assignment]
    if head not in found.HEADS:
        raise SettingsError(
            f"--head {head} does not belong to {to[0]}",
            remedy=f"Use --head {' or '.join(found.HEADS)}, or leave it out",
        )
    if missing := [module for module in found.NEEDS if find_spec(module) is None]:
        raise MissingExtra(
            f"an application for {to[0]} needs {' and '.join(missing)}",
            remedy=f"pip install 'albertine[{found.EXTRA}]'",
        )
    return found


def write_application(module: Application, source: Path, given: str, head: str, folder: Path) -> CopiedModel:
    """Write an application into a new folder.

    Args:
        source: the folder of the model. given: the name by which the user gave it.

    Raises:
        ModelError, TokenizerError: it cannot be read, or has no task that the server offers.
        RunError: it changed while it was copied.
    """
    if is_run_checkpoint(source):
        raise ModelError(
            "is a checkpoint of a run, with the state of its optimizer",
            where=source,
            remedy="Name the run, whose best or last model is then taken",
        )
    name = name_of(given)
    shown = name if os.path.exists(given) else given  # a path is that of one machine
    model = CopiedModel(name, shown, digest_of(source), Predictor(source), head)
    copy = folder / module.model_place(name)
    copy_model(source, copy)
    if (digest_of(copy), load_tokenizer(copy).fingerprint) != (
        model.digest,
        model.predictor.tokenizer.fingerprint,
    ):
        raise RunError("changed while it was copied", where=source, remedy="Wait until it is written")
    return model


def name_of(given: str) -> str:
    """The name of a model for clients: the last part of a path or name."""
    last = given.rstrip("/").rpartition("/")[2]
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", last)[:64].strip("-.") or "model"


def copy_model(source: Path, target: Path) -> None:
    """Copy the files of a model folder: those that decide what it computes, its vocabulary, card, licence and
    golden answers."""
    found = set(files_of_model(source))
    for pattern in COPIED:
        found.update(path for path in source.glob(pattern) if path.is_file())
    for path in sorted(found):
        copy = target / path.relative_to(source)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)


def in_shell(body: dict[str, Any]) -> str:
    """A body as an argument in a shell."""
    return shlex.quote(json.dumps(body, ensure_ascii=False))
